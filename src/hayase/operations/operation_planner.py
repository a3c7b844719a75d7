"""Plans the stages of declared operations: which streams each reads, the stream it writes, and its kernel.

Patterns match all streams: declared ones and the outputs of queries, jobs and other operations. An operation reads all
columns of a stream's records as they are; records of a query that is a relation have `valid_from` and `valid_to`. The
output stream follows from the declaration and the time column of the input, so that other stages can read it in
whatever order things are planned.

Windows by count over one queue take records in log order, and nothing is late for them. Windows by time, windows that
mix streams, and windows over outputs of stages use event time. In both cases the stage itself sets the clock of its
output: that of its inputs. The records of one batch are written bucket by bucket, so their times alone do not show it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import OperationDeclaration, PipelineDeclaration, StreamDeclaration
from hayase.core.errors import DeclarationError, Mistake, suggestion
from hayase.core.function_sources import FunctionSource
from hayase.core.schemas import arrow_schema, ddl
from hayase.core.stages import OFFSET, OPERATIONS, Input, Mapped, Stage
from hayase.operations.attempts import Attempts
from hayase.operations.children import Limits
from hayase.operations.operation_kernel import OperationConfig, OperationKernel
from hayase.operations.record_windows import WindowSpec
from hayase.operations.shipped_code import check_shipped
from hayase.operations.user_functions import OperationFunction

__all__ = [
    "AllColumns",
    "PlannedOperations",
    "function_of",
    "given_schema",
    "operation_streams",
    "plan_operations",
    "read_by",
    "read_schema",
    "window_of",
]

_MEANING = 1
"""Increased when the same declaration gets another meaning, so that older state and results no longer fit."""
MOST_STREAMS = 10_000
"""Maximal number of streams that one operation can read."""


@dataclass(frozen=True, slots=True)
class PlannedOperations:
    """The stages, and the mistakes with the name of the operation. An operation whose input is declared but could not
    be planned has neither."""

    stages: tuple[Stage, ...] = ()
    mistakes: tuple[tuple[str, Mistake], ...] = ()


@dataclass(frozen=True, slots=True)
class AllColumns:
    """A map side that passes records on: the columns `names` in this order, renamed to `seen` if given."""

    names: tuple[str, ...]
    seen: tuple[str, ...] = ()

    def __call__(self, batch: pa.RecordBatch) -> Mapped:
        rows = batch.select(list(self.names))
        return Mapped(rows.rename_columns(list(self.seen or self.names)), np.arange(batch.num_rows))


def plan_operations(
    declaration: PipelineDeclaration,
    streams: Mapping[str, StreamDeclaration],
    home: Path | None = None,
    expected: Iterable[str] = (),
) -> PlannedOperations:
    """Return the stages of all operations; `streams` are all other streams. Shipped code is in the home.

    `expected` are streams whose columns are not known: an operation that reads one gets no stage, and that is not a mistake.
    """
    outputs = operation_streams(declaration, streams)
    known = {**streams, **outputs}
    declared = {*_declared(declaration), *expected} - {table.name for table in declaration.tables}
    circles = _circles(
        {operation_.name: read_by(operation_, {*known, *declared}) for operation_ in declaration.operations}
    )
    stages: list[Stage] = []
    mistakes: list[tuple[str, Mistake]] = []
    for operation in declaration.operations:
        name = operation.name
        if name in circles:
            message = f"operations read each other: {' -> '.join(circles[name])}"
            mistakes.append((name, Mistake(message, "let one of them read something else", subject="reads")))
            continue
        try:
            read = _read(operation, known, declared)
            if all(stream in known for stream in read):
                stages.append(_stage(operation, [known[stream] for stream in read], home))
        except DeclarationError as error:
            mistakes += [(name, mistake) for mistake in error.mistakes]
    return PlannedOperations(tuple(stages), tuple(mistakes))


def operation_streams(
    declaration: PipelineDeclaration, streams: Mapping[str, StreamDeclaration]
) -> dict[str, StreamDeclaration]:
    """Return the output streams of operations that can be known from these streams: the schema is declared, and the
    time column is that of the first existing stream that the operation reads."""
    outputs: dict[str, StreamDeclaration] = {}
    with_schema = [operation_ for operation_ in declaration.operations if operation_.schema is not None]
    while True:
        known = {**streams, **outputs}
        before = len(outputs)
        for operation in with_schema:
            read = [name for name in read_by(operation, known) if name in known]
            if read and operation.name not in outputs:
                try:
                    outputs[operation.name] = _output(operation, known[read[0]])
                except DeclarationError:  # reported when the operation is planned
                    continue
        if len(outputs) == before:
            return outputs


def _declared(declaration: PipelineDeclaration) -> set[str]:
    """Return the names of all streams that will exist, whether or not they can be planned."""
    names = {
        declared.name for kind in (declaration.streams, declaration.queries, declaration.jobs) for declared in kind
    }
    for job in declaration.jobs:
        names |= {name for step in job.steps for name in (step.writes, *step.also) if name is not None}
    return (names | {operation.name for operation in declaration.operations}) - {
        table.name for table in declaration.tables
    }


def read_by(operation: OperationDeclaration, known: Iterable[str]) -> list[str]:
    """Return the streams that an operation reads, each once: names as declared, known or not; for patterns the known
    streams that match, sorted, without its own stream and internal ones."""
    names = sorted(name for name in known if name != operation.name and not name.startswith("_"))
    streams: dict[str, None] = {}
    for pattern in operation.reads:
        streams |= dict.fromkeys(
            [name for name in names if fnmatchcase(name, pattern)] if "*" in pattern else [pattern]
        )
    return list(streams)


def _read(operation: OperationDeclaration, known: Mapping[str, StreamDeclaration], declared: set[str]) -> list[str]:
    """Like `read_by`, once everything that can be known is; DeclarationError for names and patterns that match nothing."""
    names = {name for name in (*known, *declared) if not name.startswith("_") and name != operation.name}
    mistakes = []
    where = f' of operation "{operation.name}"'
    for pattern in operation.reads:
        if "*" in pattern and not any(fnmatchcase(name, pattern) for name in names):
            hint_ = f"there are: {', '.join(sorted(names)[:20])}" if names else "there are no streams"
            mistakes.append(Mistake(f'no stream matches "{pattern}"{where}', hint_, subject="reads"))
        elif "*" not in pattern and pattern not in names:
            hint = suggestion(pattern, names) or "declare it"
            mistakes.append(Mistake(f'unknown stream "{pattern}"{where}', hint, subject="reads"))
    read = read_by(operation, names)
    if len(read) > MOST_STREAMS:
        mistakes.append(
            Mistake(f"{len(read)} streams are read{where}", f"at most {MOST_STREAMS} can be", subject="reads")
        )
    if mistakes:
        raise DeclarationError(mistakes)
    return read


def _circles(reads: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return a shortest cycle for each operation that reads itself through others."""
    circles: dict[str, list[str]] = {}
    for name in reads:
        paths, seen = [[name]], set[str]()
        while paths and name not in circles:
            path = paths.pop(0)
            for source in reads.get(path[-1], ()):
                if source == name:
                    circles.setdefault(name, [*path, name])
                elif source in reads and source not in seen:
                    seen.add(source)
                    paths.append([*path, source])
    return circles


# ---------------------------------------------------------------------------------------------------- what it is


def window_of(operation: OperationDeclaration, streams: Sequence[StreamDeclaration]) -> WindowSpec:
    """Return the windows of an operation that reads these streams. The order of a stage's output in its log depends on
    how batches were cut, so windows of several such records use event time."""
    unit, slide = "time" if operation.by_time else "count", operation.slide or operation.window
    per_queue = len(streams) == 1 or not (operation.key or operation.together)
    has_stable_order = per_queue and not any(stream.ordered for stream in streams)
    by_arrival = unit == "count" and (has_stable_order or operation.window == 1)
    return WindowSpec(unit, operation.window, slide, operation.key, per_queue=per_queue, by_arrival=by_arrival)


def function_of(operation: OperationDeclaration, home: Path | None = None) -> OperationFunction:
    """Return the location of the function: in the home once it is shipped, else where it was declared."""
    place, _, attribute = operation.function.rpartition(":")
    name, directory = operation.function, operation.directory
    if operation.code is not None:
        shipped = (home or Path()) / "definitions" / "code" / operation.code
        check_shipped(shipped)
        directory = str(shipped)
    elif place.endswith(".py"):
        name = f"{Path(directory or '.', place).absolute()}:{attribute}"
    return OperationFunction(FunctionSource(name, directory), operation.takes, operation.concurrency)


def given_schema(schema: str, *times: str) -> pa.Schema:
    """Return the schema of the function's results: the schema without the time column, under any of its names."""
    return pa.schema([field for field in arrow_schema(schema) if field.name not in times])


def read_schema(operation: OperationDeclaration, streams: Sequence[StreamDeclaration]) -> pa.Schema:
    """Return the schema of what an operation reads; DeclarationError if its streams differ."""
    first, others = streams[0], streams[1:]
    schema = first.shown_schema
    differences = []
    for other in others:
        difference = next(_differences(first, other), None)
        if difference is not None:
            differences.append(f'"{first.name}" and "{other.name}" differ: {difference}')
    if differences:
        more = f", and {len(differences) - 3} more" if len(differences) > 3 else ""
        message = (
            f'what operation "{operation.name}" reads must have the same columns; {"; ".join(differences[:3])}{more}'
        )
        raise DeclarationError([Mistake(message, "select the same columns by a query, or read less", subject="reads")])
    return pa.schema([field.with_nullable(True) for field in schema])


def _differences(one: StreamDeclaration, other: StreamDeclaration) -> Iterator[str]:
    mine, theirs = one.shown_schema, other.shown_schema
    for has, lacks, name in ((mine, theirs, other.name), (theirs, mine, one.name)):
        yield from (f'"{name}" has no "{column}"' for column in has.names if column not in lacks.names)
    for field in mine:
        if field.type != theirs.field(field.name).type:
            yield f"{ddl(pa.schema([field]))} is not {ddl(pa.schema([theirs.field(field.name)]))}"
    if one.shown_name(one.time) != other.shown_name(other.time):
        yield f'their time columns are "{one.time}" and "{other.time}"'
    if one.time_unit != other.time_unit:
        yield f"their times count {one.time_unit} and {other.time_unit}"


def _output(operation: OperationDeclaration, read: StreamDeclaration) -> StreamDeclaration:
    """Return the output stream of an operation: the instant of the window, then the function's results."""
    assert operation.schema is not None
    name = operation.name
    result_schema = given_schema(operation.schema, read.time, read.shown_name(read.time))
    if not len(result_schema):
        message = f'the schema of operation "{name}" has no column besides "{read.time}"'
        raise DeclarationError([Mistake(message, "say what else its function gives", subject="schema")])
    time = read.arrow_schema.field(read.time)
    try:
        schema = ddl(pa.schema([time, *result_schema]))
        return StreamDeclaration(
            name, schema, read.time, time_unit=read.time_unit, max_ahead=None, ordered=True, hidden_time=read.hides_time
        )
    except DeclarationError as error:
        raise DeclarationError(
            Mistake(f'output of operation "{name}": {mistake.message}', mistake.hint, subject="schema")
            for mistake in error.mistakes
        ) from error


def _stage(operation: OperationDeclaration, streams: Sequence[StreamDeclaration], home: Path | None) -> Stage:
    name = operation.name
    if operation.schema is None:
        message = f'what operation "{name}" gives is not known'
        hint = 'declare its schema, like "user string, score double", or append some records and check again'
        raise DeclarationError([Mistake(message, hint, subject="schema")])
    first = streams[0]
    reads, output = read_schema(operation, streams), _output(operation, first)
    window = window_of(operation, streams)
    try:
        window.check(reads)
    except DeclarationError as error:
        raise DeclarationError(
            Mistake(f'operation "{name}": {mistake.message}', mistake.hint, subject="key") for mistake in error.mistakes
        ) from error
    facts = [[stream.name, stream.schema, stream.time, stream.time_unit] for stream in streams]
    fingerprint = _digest([_MEANING, _fingerprint_facts(operation), facts, output.schema])
    single = window.unit == "count" and window.size == 1
    config = OperationConfig(
        name,
        fingerprint,
        function_of(operation, home),
        window,
        tuple(stream.name for stream in streams),
        reads,
        output.arrow_schema,
        output.time,
        output.time_scale,
        Attempts(operation.attempts, operation.pause / 1e6),
        Limits(operation.time_limit / 1e6, operation.memory_limit),
        first.shown_name(first.time),
    )
    held = pa.schema([field.with_nullable(True) for field in first.arrow_schema])
    remembered = [_MEANING, asdict(window), ddl(held), first.time, first.time_unit]
    return Stage(
        name,
        tuple(_input(number, stream, reads, window, single) for number, stream in enumerate(streams)),
        output,
        fingerprint,
        partial(OperationKernel, config),
        every=0 if window.by_arrival else None,
        lane=OPERATIONS,
        state_digest="" if single else orjson.dumps(remembered).decode(),
    )


def _input(number: int, stream: StreamDeclaration, reads: pa.Schema, window: WindowSpec, single: bool) -> Input:
    """Return the input for one queue; its key and bucket depend on which records share windows."""
    key: tuple[str, ...] = (OFFSET,) if single else window.by
    bucket = None if key else number if window.per_queue else 0
    columns = {stream.shown_name(name): name for name in stream.arrow_schema.names}
    side = AllColumns(tuple(columns[name] for name in reads.names), tuple(reads.names))
    return Input(stream.name, side, reads, key, bucket=bucket, dealt=single)


def _fingerprint_facts(operation: OperationDeclaration) -> dict[str, object]:
    """Return the part of a declaration that can change results. The location of shipped code cannot."""
    fields = asdict(operation)
    if operation.code is not None:
        del fields["directory"]
    if operation.code is not None or not operation.files:  # the digest of shipped code includes its files
        del fields["files"]
    return fields


def _digest(known: list[object]) -> str:
    return hashlib.blake2b(orjson.dumps(known), digest_size=16).hexdigest()
