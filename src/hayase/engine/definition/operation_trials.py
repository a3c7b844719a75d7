"""The operations of a declaration made ready to run: their code shipped, what commands have changed kept, schemas known.

An operation that is new or has changed is tried first, in a process of its own, on the newest records of what it reads. A
schema that nobody declared is found by that, and stays from then on as long as the results fit it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

import numpy as np
import pyarrow as pa

from hayase.core.declarations import OperationDeclaration, PipelineDeclaration, StreamDeclaration
from hayase.core.errors import DeclarationError
from hayase.engine.definition.definitions import Change, Definition, begin_anew
from hayase.engine.definition.stage_graph import plan
from hayase.engine.home import Home
from hayase.operations.children import Limits
from hayase.operations.function_check import MOST_SAMPLES, check_function
from hayase.operations.operation_planner import function_of, read_by, read_schema, window_of
from hayase.operations.record_windows import WindowSpec
from hayase.operations.shipped_code import ship
from hayase.streams import StreamLog, event_times

__all__ = ["readied", "tried"]

MOST_RECORDS = 10_000
"""Records that are read for a sample."""


def readied(
    home: Home, current: Definition | None, declaration: PipelineDeclaration, anew: AbstractSet[str] = frozenset()
) -> tuple[PipelineDeclaration, tuple[Change, ...]]:
    """What a declaration comes to in a home, and what of it is by command. Code is shipped to the home, nothing else is
    written. Operations that begin `anew` need not fit what they have written."""
    given = {each.name: ship(each, home.code("")) for each in declaration.operations}
    changes = _still(current, declaration, given)
    wanted = {**given, **{each.name: each.now for each in changes}}
    _check_names(declaration, changes)
    operations = tuple(each for each in wanted.values() if each is not None)
    return tried(home, current, replace(declaration, operations=operations), anew), changes


def _still(
    current: Definition | None, declaration: PipelineDeclaration, given: Mapping[str, OperationDeclaration]
) -> tuple[Change, ...]:
    """The changes by command that hold: where the declaration says what it said before, or was taken from the home itself."""
    if current is None:
        return ()
    if declaration == current.declaration:
        return current.changes
    ours = {each.name for each in declaration.operations if each.code is not None}
    return tuple(
        each
        for each in current.changes
        if _says(given.get(each.name), each.now if each.name in ours else each.declared)
    )


def _says(given: OperationDeclaration | None, known: OperationDeclaration | None) -> bool:
    """Whether something says of an operation what is known, in which its schema stands in any case."""
    if given is None or known is None:
        return given is known
    return replace(given, schema=given.schema or known.schema) == known


def _check_names(declaration: PipelineDeclaration, changes: Sequence[Change]) -> None:
    others = (declaration.streams, declaration.queries, declaration.tables, declaration.jobs)
    taken = {one.name.lower() for kind in others for one in kind}
    for each in changes:
        if each.now is not None and each.name.lower() in taken:
            raise DeclarationError(
                f'there is an operation "{each.name}", which was added by a command',
                f"call what is declared by another name, or remove the operation: `hayase ops remove {each.name}`",
            )


# ---------------------------------------------------------------------------------------------------- trying them


def tried(
    home: Home, current: Definition | None, declaration: PipelineDeclaration, anew: AbstractSet[str] = frozenset()
) -> PipelineDeclaration:
    """The declaration with the schemas of all operations. Those that are not the current ones are tried; DeclarationError
    if one fails."""
    known = {each.name: each for each in current.declaration.operations} if current else {}
    done: dict[str, OperationDeclaration] = {}
    left: list[OperationDeclaration] = []
    for each in declaration.operations:
        before = known.get(each.name)
        if before is not None and _says(each, before):
            done[each.name] = before
        else:
            left.append(each)
    while left:
        streams = _streams(home, replace(declaration, operations=tuple(done.values())))
        waiting = {each.name for each in left}
        free = [each for each in left if not waiting.intersection(read_by(each, {*streams, *waiting}))]
        for each in free or left[:1]:  # what waits for itself is told when it is planned
            before = known.get(each.name)
            done[each.name] = _tried(home, each, streams, None if before is None else before.schema, each.name in anew)
        left = [each for each in left if each.name not in done]
    return replace(declaration, operations=tuple(done[each.name] for each in declaration.operations))


def _streams(home: Home, declaration: PipelineDeclaration) -> dict[str, StreamDeclaration]:
    """The streams that are known before some operations are; what is wrong otherwise is told when all are planned."""
    stages = plan(declaration, home.path).stages
    outputs = [each.output for each in stages if isinstance(each.output, StreamDeclaration)]
    return {each.name: each for each in (*declaration.streams, *outputs)}


def _tried(
    home: Home,
    operation: OperationDeclaration,
    streams: Mapping[str, StreamDeclaration],
    before: str | None,
    anew: bool,
) -> OperationDeclaration:
    """The operation with its schema: the declared one, else the one it had before if results fit it, else as found."""
    names = read_by(operation, streams)
    if not names or not all(name in streams for name in names):
        return operation  # told when it is planned
    read = [streams[name] for name in names]
    try:
        reads, window = read_schema(operation, read), window_of(operation, read)
        window.check(reads)
        sample = _sample(home, read, reads, window)
    except DeclarationError:
        return operation  # likewise
    time = read[0].shown_name(read[0].time)
    declared = operation.schema if operation.schema is not None else before
    insists = operation.schema is not None and operation.schema != before
    try:
        found = _schema(home, operation, reads, window, declared, sample, time)
    except DeclarationError as error:
        if insists or before is None:
            raise _about(operation, error) from error
        try:  # what it gives now
            found = _schema(home, operation, reads, window, None, sample, time)
        except DeclarationError:
            raise _about(operation, error) from error
        if not anew:
            hint = f"let it give what it gave, call it by another name, or {begin_anew(operation.name)}"
            raise DeclarationError(
                f'operation "{operation.name}" would give ({found}), and what it has written is ({before})', hint
            ) from error
    return replace(operation, schema=found)


def _about(operation: OperationDeclaration, error: DeclarationError) -> DeclarationError:
    return DeclarationError(
        replace(each, message=f'operation "{operation.name}" is not taken: {each.message}') for each in error.mistakes
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
    """The schema of what the function gives, which the declared one is if it fits."""
    limits = Limits(operation.time_limit / 1e6, operation.memory_limit)
    found = check_function(function_of(operation, home.path), window, reads, declared, sample, limits, time)
    return declared if declared is not None else found


# ---------------------------------------------------------------------------------------------------- a sample


def _sample(
    home: Home, read: Sequence[StreamDeclaration], reads: pa.Schema, window: WindowSpec
) -> pa.RecordBatch | None:
    """Records of the newest windows, one window behind the other; None if there are not enough for one. Of windows by time
    there is one, which has what came last."""
    rows, times, queues = _newest(home, read, reads, window)
    if not rows.num_rows:
        return None
    in_log_order = window.unit == "count" and window.per_queue
    order = np.arange(rows.num_rows) if in_log_order else np.argsort(times, kind="stable")
    if window.unit == "time":
        groups = _groups(rows, order[times[order] > times.max() - window.size], queues, window)
        return rows.take(pa.array(max(groups, key=lambda at: int(times[at].max()))))
    groups = _groups(rows, order, queues, window)
    whole = [at for at in groups if len(at) >= window.size]
    each = -(-MOST_SAMPLES // max(1, len(whole)))
    picked = [at[len(at) - min(each, len(at) // window.size) * window.size :] for at in whole[:MOST_SAMPLES]]
    return rows.take(pa.array(np.concatenate(picked)[: MOST_SAMPLES * window.size])) if picked else None


def _newest(
    home: Home, read: Sequence[StreamDeclaration], reads: pa.Schema, window: WindowSpec
) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray]:
    """The last records of streams, with their event times and the number of the stream."""
    count = max(MOST_RECORDS // 10, min(MOST_RECORDS, window.size * MOST_SAMPLES) if window.unit == "count" else 0)
    count = max(count, window.size) if window.unit == "count" else count
    batches = [pa.RecordBatch.from_pylist([], schema=reads)]
    times, queues, found = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
    for number, stream in enumerate(read):
        log = StreamLog(home.path, stream)
        if found >= max(MOST_RECORDS, window.size if window.unit == "count" else 0) or not log.path.exists():
            continue
        index = log.index()
        for piece in log.read(max(index.start, index.next - count), index.next):
            batches.append(stream.shown(piece.rows).select(reads.names).cast(reads))
            times.append(event_times(piece.rows, stream))
            queues.append(np.full(piece.rows.num_rows, number))
            found += piece.rows.num_rows
    return pa.concat_batches(batches), np.concatenate(times), np.concatenate(queues)


def _groups(rows: pa.RecordBatch, order: np.ndarray, queues: np.ndarray, window: WindowSpec) -> list[np.ndarray]:
    """The rows of each group that has windows of its own, in that order."""
    table = pa.table(
        {f"{at}": rows.column(name) for at, name in enumerate(window.by)} | {"row": np.arange(len(queues))}
    )
    if window.per_queue:
        table = table.append_column("queue", pa.array(queues))
    names = [name for name in table.column_names if name != "row"]
    if not names:
        return [order]
    found = table.take(pa.array(order)).group_by(names, use_threads=False).aggregate([("row", "list")])
    return [np.array(each) for each in found.column("row_list").to_pylist()]
