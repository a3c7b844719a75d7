"""The trial of an operation before its definition is accepted: its module loads, its function works on a sample, its schema fits.

A new or changed operation is tried in a separate process, on the newest records of its inputs. The function may fail for
some windows of the sample, since poison records become dead letters, but for less than half of them. The trial infers a
schema that is not declared; the operation keeps it as long as its results fit.
"""

from __future__ import annotations

import contextlib
import time as clock
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextvars import ContextVar
from dataclasses import replace

import numpy as np
import pyarrow as pa

from hayase.core.declarations import OperationDeclaration, PipelineDeclaration, StreamDeclaration
from hayase.core.errors import DeclarationError
from hayase.core.schemas import arrow_schema, ddl, empty_rows
from hayase.engine.definition.definitions import Definition
from hayase.engine.definition.operation_changes import declares_same
from hayase.engine.definition.stage_comparison import begin_anew
from hayase.engine.definition.stage_graph import plan
from hayase.engine.home import Home
from hayase.operations.children import LOADING, Children, Limits
from hayase.operations.operation_planner import function_of, read_by, read_schema, window_of
from hayase.operations.record_windows import WindowSpec
from hayase.operations.user_functions import OperationFunction
from hayase.streams import StreamLog, event_times
from hayase.streams.repeats import first_rows

__all__ = [
    "MOST_SAMPLES",
    "check_function",
    "newest_windows",
    "readable_streams",
    "remaining_seconds",
    "trials_within",
    "try_operations",
]

MOST_RECORDS = 10_000
"""How many records are read for a sample."""
MOST_SAMPLES = 20
"""Maximal number of sample windows that a function is called on."""
PATIENCE = 10.0
"""Seconds after which no further window is tried: a user is waiting."""
_UNTIL: ContextVar[float] = ContextVar("until", default=float("inf"))
"""When all trials in this context must have ended, by the monotonic clock."""


def try_operations(
    home: Home, current: Definition | None, declaration: PipelineDeclaration, anew: AbstractSet[str] = frozenset()
) -> PipelineDeclaration:
    """Return the declaration with the schemas of all operations. Those that differ from the current definition are
    tried; DeclarationError if one fails."""
    known = {operation.name: operation for operation in current.declaration.operations} if current else {}
    finished: dict[str, OperationDeclaration] = {}
    remaining: list[OperationDeclaration] = []
    for operation in declaration.operations:
        before = known.get(operation.name)
        if before is not None and declares_same(operation, before):
            finished[operation.name] = before
        else:
            remaining.append(operation)
    while remaining:
        streams = readable_streams(home, replace(declaration, operations=tuple(finished.values())))
        waiting = {operation.name for operation in remaining}
        free = [
            operation for operation in remaining if not waiting.intersection(read_by(operation, {*streams, *waiting}))
        ]
        for operation in free or remaining[:1]:  # the planner reports operations that read themselves
            before = known.get(operation.name)
            finished[operation.name] = _try_operation(
                home, operation, streams, None if before is None else before.schema, operation.name in anew
            )
        remaining = [operation for operation in remaining if operation.name not in finished]
    return replace(declaration, operations=tuple(finished[operation.name] for operation in declaration.operations))


def readable_streams(home: Home, declaration: PipelineDeclaration) -> dict[str, StreamDeclaration]:
    """Return all streams that can be planned from this declaration; other mistakes are reported when everything is planned."""
    stages = plan(declaration, home.path).stages
    outputs = [stage.output for stage in stages if isinstance(stage.output, StreamDeclaration)]
    return {stream.name: stream for stream in (*declaration.streams, *outputs)}


def _try_operation(
    home: Home,
    operation: OperationDeclaration,
    streams: Mapping[str, StreamDeclaration],
    before: str | None,
    anew: bool,
) -> OperationDeclaration:
    """Return the operation with its schema: the declared one, else the previous one if the results fit, else the
    inferred one."""
    names = read_by(operation, streams)
    if not names or not all(name in streams for name in names):
        return operation  # the planner reports the mistake
    read = [streams[name] for name in names]
    try:
        reads, window = read_schema(operation, read), window_of(operation, read)
        window.check(reads)
        sample = newest_windows(home, read, reads, window)
    except DeclarationError:
        return operation  # as above
    time = read[0].shown_name(read[0].time)
    declared = operation.schema if operation.schema is not None else before
    insists = operation.schema is not None and operation.schema != before
    try:
        schema = _schema(home, operation, reads, window, declared, sample, time)
    except DeclarationError as error:
        if insists or before is None:
            raise _about(operation, error) from error
        try:  # infer the schema of its results now
            schema = _schema(home, operation, reads, window, None, sample, time)
        except DeclarationError:
            raise _about(operation, error) from error
        if not anew:
            hint = f"let it give what it gave, call it by another name, or {begin_anew(operation.name)}"
            raise DeclarationError(
                f'operation "{operation.name}" would give ({schema}), and what it has written is ({before})', hint
            ) from error
    return replace(operation, schema=schema)


def _about(operation: OperationDeclaration, error: DeclarationError) -> DeclarationError:
    return DeclarationError(
        replace(mistake, message=f'operation "{operation.name}" is not taken: {mistake.message}')
        for mistake in error.mistakes
    )


def _schema(
    home: Home,
    operation: OperationDeclaration,
    reads: pa.Schema,
    window: WindowSpec,
    declared: str | None,
    sample: pa.RecordBatch | None,
    time: str,
) -> str:
    """Call the function on the sample and return the schema of its results; if one is declared, check it and return it."""
    limits = Limits(operation.time_limit / 1e6, operation.memory_limit)
    inferred = check_function(function_of(operation, home.path), window, reads, declared, sample, limits, time)
    return declared if declared is not None else inferred


# ---------------------------------------------------------------------------------------------------- a function


@contextlib.contextmanager
def trials_within(seconds: float) -> Iterator[None]:
    """Bound the total time of all trials inside: the imports and all windows together."""
    token = _UNTIL.set(clock.monotonic() + seconds)
    try:
        yield
    finally:
        _UNTIL.reset(token)


def remaining_seconds() -> float:
    """Return the time that is left for trials in this context; infinite if it is not bounded."""
    return _UNTIL.get() - clock.monotonic()


def check_function(
    function: OperationFunction,
    window: WindowSpec,
    reads: pa.Schema,
    writes: str | None = None,
    sample: pa.RecordBatch | None = None,
    limits: Limits | None = None,
    time: str | None = None,
) -> str:
    """Return the schema, as DDL, of the function's results: the declared one, else the one inferred by calling it on
    the sample.

    The column `time` of the output is left out, since Hayase fills it in.

    Everything runs in a child process. DeclarationError if the function cannot be loaded, or fails, or returns what
    does not fit, for half of the sample.
    """
    window.check(reads)
    declared = None
    if writes is not None:
        declared = pa.schema([field for field in arrow_schema(writes) if field.name != time])
    remaining = max(0.1, remaining_seconds())
    limits = limits or Limits()
    limits = replace(limits, seconds=min(limits.seconds, remaining))
    children = Children(function, reads, declared, limits, time, min(LOADING, remaining))
    try:
        children.check()
        if sample is None or not sample.num_rows:
            if declared is None:
                hint = 'declare it, like "name string, score double"'
                raise DeclarationError(f"the schema of what {function.name} gives is not known without a sample", hint)
            return ddl(declared)
        size = min(window.size, sample.num_rows) if window.unit == "count" else sample.num_rows
        starts = np.arange(0, sample.num_rows - size + 1, size)[:MOST_SAMPLES]
        good = _good(children, sample, starts, starts + size)
        return ddl(declared) if declared is not None else children.infer(sample, starts[good], starts[good] + size)
    finally:
        children.close()


def _good(children: Children, sample: pa.RecordBatch, starts: np.ndarray, stops: np.ndarray) -> list[int]:
    """Return the windows for which the function works, of those that there is time for."""
    good: list[int] = []
    failed: list[DeclarationError] = []
    until = min(clock.monotonic() + PATIENCE, _UNTIL.get())
    for at in range(len(starts)):
        try:
            _call(children, sample, starts[at : at + 1], stops[at : at + 1])
            good.append(at)
        except DeclarationError as error:
            failed.append(error)
        if 2 * len(failed) >= len(starts):
            raise failed[0]
        if clock.monotonic() > until:
            break
    if 2 * len(failed) >= len(failed) + len(good):
        raise failed[0]
    return good


def _call(children: Children, sample: pa.RecordBatch, start: np.ndarray, stop: np.ndarray) -> None:
    """Call the function on one window; DeclarationError if it fails."""
    if children.writes is None:
        children.infer(sample, start, stop)
        return
    for failure in children.call(sample, start, stop).failures.values():
        message = f"{children.function.name} failed for the sample: {failure.reason}{failure.place}"
        raise DeclarationError(f"{message}\n{failure.traceback}" if failure.traceback else message)


# ---------------------------------------------------------------------------------------------------- a sample


def newest_windows(
    home: Home, read: Sequence[StreamDeclaration], reads: pa.Schema, window: WindowSpec, most: int = MOST_SAMPLES
) -> pa.RecordBatch | None:
    """Return records of at most `most` of the newest windows, one window after the other; None if no window is complete.
    For windows by time, the sample is the one window with the newest records."""
    rows, times, queues = _newest(home, read, reads, window, most)
    if not rows.num_rows:
        return None
    in_log_order = window.unit == "count" and window.per_queue
    order = np.arange(rows.num_rows) if in_log_order else np.argsort(times, kind="stable")
    if window.unit == "time":
        groups = _groups(rows, order[times[order] > times.max() - window.size], queues, window)
        return rows.take(pa.array(max(groups, key=lambda at: int(times[at].max()))))
    groups = _groups(rows, order, queues, window)
    whole = [at for at in groups if len(at) >= window.size]
    per_group = -(-most // max(1, len(whole)))
    picked = [at[len(at) - min(per_group, len(at) // window.size) * window.size :] for at in whole[:most]]
    return rows.take(pa.array(np.concatenate(picked)[: most * window.size])) if picked else None


def _newest(
    home: Home, read: Sequence[StreamDeclaration], reads: pa.Schema, window: WindowSpec, most: int
) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray]:
    """Return the newest records of the streams, with their event times and the index of their stream."""
    count = max(MOST_RECORDS // 10, min(MOST_RECORDS, window.size * most) if window.unit == "count" else 0)
    count = max(count, window.size) if window.unit == "count" else count
    batches = [empty_rows(reads)]
    times, queues, total = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
    for number, stream in enumerate(read):
        log = StreamLog(home.path, stream)
        if total >= max(MOST_RECORDS, window.size if window.unit == "count" else 0) or not log.path.exists():
            continue
        index = log.index()
        for rows in first_rows(log, max(index.start, index.next - count), index.next):
            batches.append(stream.shown(rows).select(reads.names).cast(reads))
            times.append(event_times(rows, stream))
            queues.append(np.full(rows.num_rows, number))
            total += rows.num_rows
    return pa.concat_batches(batches), np.concatenate(times), np.concatenate(queues)


def _groups(rows: pa.RecordBatch, order: np.ndarray, queues: np.ndarray, window: WindowSpec) -> list[np.ndarray]:
    """Return the row numbers of each group that has its own windows, in the given order."""
    table = pa.table(
        {f"{at}": rows.column(name) for at, name in enumerate(window.by)} | {"row": np.arange(len(queues))}
    )
    if window.per_queue:
        table = table.append_column("queue", pa.array(queues))
    names = [name for name in table.column_names if name != "row"]
    if not names:
        return [order]
    grouped = table.take(pa.array(order)).group_by(names, use_threads=False).aggregate([("row", "list")])
    return [np.array(numbers) for numbers in grouped.column("row_list").to_pylist()]
