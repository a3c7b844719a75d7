"""From declared operations to stages: which streams each reads, the stream it writes, and its kernel.

Patterns stand for the streams there are: declared ones and what queries, jobs and other operations write. An operation
reads the records of a stream as they are, all columns; those of a query that is a relation tell with `valid_from` and
`valid_to` when they are valid. What an operation writes follows from its declaration and the time column of what it reads,
so that others can read it whatever the order in which things are planned.

Windows by count of one queue take records in the order of the log, and nothing is late for them. Windows by time, windows
that mix streams, and those over what stages write go by event time. In both cases the stage says itself how far its output
is: as far as its inputs are. The records of one batch come out bucket by bucket, so their times alone do not tell that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from hayase.core.declarations import FieldMistake, OperationDeclaration, PipelineDeclaration, StreamDeclaration
from hayase.core.errors import DeclarationError, Mistake, nearest
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
"""Raised when the same operation comes to mean something else, so that older state and results no longer fit it."""
MOST_STREAMS = 10_000
"""Streams that one operation can read."""


@dataclass(frozen=True, slots=True)
class PlannedOperations:
    """The stages, and what is wrong, with the name of the operation. One that reads what is declared and could not be planned
    has neither."""

    stages: tuple[Stage, ...] = ()
    mistakes: tuple[tuple[str, Mistake], ...] = ()


@dataclass(frozen=True, slots=True)
class AllColumns:
    """A map side that passes records on, with their columns in one order, under the names that functions `see`."""

    names: tuple[str, ...]
    seen: tuple[str, ...] = ()

    def __call__(self, batch: pa.RecordBatch) -> Mapped:
        rows = batch.select(list(self.names))
        return Mapped(rows.rename_columns(list(self.seen or self.names)), np.arange(batch.num_rows))


def plan_operations(
    declaration: PipelineDeclaration, streams: Mapping[str, StreamDeclaration], home: Path | None = None
) -> PlannedOperations:
    """The stages of all operations; `streams` are all others there are. Code that is shipped lies in the home."""
    found = operation_streams(declaration, streams)
    known = {**streams, **found}
    declared = _declared(declaration)
    circles = _circles({each.name: read_by(each, {*known, *declared}) for each in declaration.operations})
    stages: list[Stage] = []
    mistakes: list[tuple[str, Mistake]] = []
    for operation in declaration.operations:
        name = operation.name
        if name in circles:
            message = f"operations read each other: {' -> '.join(circles[name])}"
            mistakes.append((name, FieldMistake(message, "let one of them read something else", field="reads")))
            continue
        try:
            read = _read(operation, known, declared)
            if all(each in known for each in read):
                stages.append(_stage(operation, [known[each] for each in read], home))
        except DeclarationError as error:
            mistakes += [(name, each) for each in error.mistakes]
    return PlannedOperations(tuple(stages), tuple(mistakes))


def operation_streams(
    declaration: PipelineDeclaration, streams: Mapping[str, StreamDeclaration]
) -> dict[str, StreamDeclaration]:
    """What operations write, as far as that is known when there are such streams: their schemas are declared, and the time
    column is that of the first stream which they read and which is there."""
    found: dict[str, StreamDeclaration] = {}
    left = [each for each in declaration.operations if each.schema is not None]
    while True:
        known = {**streams, **found}
        before = len(found)
        for operation in left:
            read = [name for name in read_by(operation, known) if name in known]
            if read and operation.name not in found:
                try:
                    found[operation.name] = _output(operation, known[read[0]])
                except DeclarationError:  # told when it is planned
                    continue
        if len(found) == before:
            return found


def _declared(declaration: PipelineDeclaration) -> set[str]:
    """The names of all streams that there will be, whether or not they can be planned."""
    names = {each.name for kind in (declaration.streams, declaration.queries, declaration.jobs) for each in kind}
    for job in declaration.jobs:
        names |= {name for step in job.steps for name in (step.writes, *step.also) if name is not None}
    return (names | {each.name for each in declaration.operations}) - {each.name for each in declaration.tables}


def read_by(operation: OperationDeclaration, known: Iterable[str]) -> list[str]:
    """The streams that an operation reads, each once: names as they are given, known or not; of patterns what is known and
    matches, in order, but not its own stream nor internal ones."""
    names = sorted(each for each in known if each != operation.name and not each.startswith("_"))
    found: dict[str, None] = {}
    for given in operation.reads:
        found |= dict.fromkeys([each for each in names if fnmatchcase(each, given)] if "*" in given else [given])
    return list(found)


def _read(operation: OperationDeclaration, known: Mapping[str, StreamDeclaration], declared: set[str]) -> list[str]:
    """The same, once all that can be known is; a DeclarationError for what stands for nothing."""
    names = {each for each in (*known, *declared) if not each.startswith("_") and each != operation.name}
    mistakes = []
    where = f' of operation "{operation.name}"'
    for given in operation.reads:
        if "*" in given and not any(fnmatchcase(each, given) for each in names):
            told = f"there are: {', '.join(sorted(names)[:20])}" if names else "there are no streams"
            mistakes.append(FieldMistake(f'no stream matches "{given}"{where}', told, field="reads"))
        elif "*" not in given and given not in names:
            hint = nearest(given, names).removeprefix("; ") or "declare it"
            mistakes.append(FieldMistake(f'unknown stream "{given}"{where}', hint, field="reads"))
    read = read_by(operation, names)
    if len(read) > MOST_STREAMS:
        mistakes.append(
            FieldMistake(f"{len(read)} streams are read{where}", f"at most {MOST_STREAMS} can be", field="reads")
        )
    if mistakes:
        raise DeclarationError(mistakes)
    return read


def _circles(reads: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Of each operation that comes to read itself through others, a shortest way round."""
    circles: dict[str, list[str]] = {}
    for name in reads:
        ways, seen = [[name]], set[str]()
        while ways and name not in circles:
            way = ways.pop(0)
            for source in reads.get(way[-1], ()):
                if source == name:
                    circles.setdefault(name, [*way, name])
                elif source in reads and source not in seen:
                    seen.add(source)
                    ways.append([*way, source])
    return circles


# ---------------------------------------------------------------------------------------------------- what it is


def window_of(operation: OperationDeclaration, streams: Sequence[StreamDeclaration]) -> WindowSpec:
    """The windows of an operation that reads these streams. How the output of a stage lies in its log depends on how batches
    fell, so that windows of several such records go by event time."""
    unit, slide = "time" if operation.by_time else "count", operation.slide or operation.window
    alone = len(streams) == 1 or not (operation.key or operation.together)
    lasting = alone and not any(each.ordered for each in streams)
    by_arrival = unit == "count" and (lasting or operation.window == 1)
    return WindowSpec(unit, operation.window, slide, operation.key, per_queue=alone, by_arrival=by_arrival)


def function_of(operation: OperationDeclaration, home: Path | None = None) -> OperationFunction:
    """Where its function is: in the home once it is shipped, else where it was declared."""
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
    """What a function gives: the schema without the time column, whatever it is called, which it need not give."""
    return pa.schema([each for each in arrow_schema(schema) if each.name not in times])


def read_schema(operation: OperationDeclaration, streams: Sequence[StreamDeclaration]) -> pa.Schema:
    """The columns of what an operation reads; a DeclarationError if streams differ."""
    first, others = streams[0], streams[1:]
    schema = first.shown_schema
    wrong = []
    for other in others:
        told = next(_differences(first, other), None)
        if told is not None:
            wrong.append(f'"{first.name}" and "{other.name}" differ: {told}')
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        message = f'what operation "{operation.name}" reads must have the same columns; {"; ".join(wrong[:3])}{more}'
        raise DeclarationError(
            [FieldMistake(message, "select the same columns by a query, or read less", field="reads")]
        )
    return pa.schema([each.with_nullable(True) for each in schema])


def _differences(one: StreamDeclaration, other: StreamDeclaration) -> Iterator[str]:
    mine, theirs = one.shown_schema, other.shown_schema
    for has, lacks, name in ((mine, theirs, other.name), (theirs, mine, one.name)):
        yield from (f'"{name}" has no "{each}"' for each in has.names if each not in lacks.names)
    for each in mine:
        if each.type != theirs.field(each.name).type:
            yield f"{ddl(pa.schema([each]))} is not {ddl(pa.schema([theirs.field(each.name)]))}"
    if one.shown_name(one.time) != other.shown_name(other.time):
        yield f'their time columns are "{one.time}" and "{other.time}"'
    if one.time_unit != other.time_unit:
        yield f"their times count {one.time_unit} and {other.time_unit}"


def _output(operation: OperationDeclaration, read: StreamDeclaration) -> StreamDeclaration:
    """What an operation writes: the instant of the window, then what the function gives."""
    assert operation.schema is not None
    name = operation.name
    given = given_schema(operation.schema, read.time, read.shown_name(read.time))
    if not len(given):
        message = f'the schema of operation "{name}" has no column besides "{read.time}"'
        raise DeclarationError([FieldMistake(message, "say what else its function gives", field="schema")])
    time = read.arrow_schema.field(read.time)
    try:
        schema = ddl(pa.schema([time, *given]))
        return StreamDeclaration(
            name, schema, read.time, time_unit=read.time_unit, max_ahead=None, ordered=True, hidden_time=read.hides_time
        )
    except DeclarationError as error:
        raise DeclarationError(
            FieldMistake(f'output of operation "{name}": {each.message}', each.hint, field="schema")
            for each in error.mistakes
        ) from error


def _stage(operation: OperationDeclaration, streams: Sequence[StreamDeclaration], home: Path | None) -> Stage:
    name = operation.name
    if operation.schema is None:
        message = f'what operation "{name}" gives is not known'
        hint = 'declare its schema, like "user string, score double", or append some records and check again'
        raise DeclarationError([FieldMistake(message, hint, field="schema")])
    first = streams[0]
    reads, output = read_schema(operation, streams), _output(operation, first)
    window = window_of(operation, streams)
    try:
        window.check(reads)
    except DeclarationError as error:
        raise DeclarationError(
            FieldMistake(f'operation "{name}": {each.message}', each.hint, field="key") for each in error.mistakes
        ) from error
    facts = [[each.name, each.schema, each.time, each.time_unit] for each in streams]
    fingerprint = _digest([_MEANING, _told(operation), facts, output.schema])
    single = window.unit == "count" and window.size == 1
    config = OperationConfig(
        name,
        fingerprint,
        function_of(operation, home),
        window,
        tuple(each.name for each in streams),
        reads,
        output.arrow_schema,
        output.time,
        output.time_scale,
        Attempts(operation.attempts, operation.pause / 1e6),
        Limits(operation.time_limit / 1e6, operation.memory_limit),
        first.shown_name(first.time),
    )
    kept = pa.schema([each.with_nullable(True) for each in first.arrow_schema])
    remembered = [_MEANING, asdict(window), ddl(kept), first.time, first.time_unit]
    return Stage(
        name,
        tuple(_input(number, each, reads, window, single) for number, each in enumerate(streams)),
        output,
        fingerprint,
        partial(OperationKernel, config),
        every=0 if window.by_arrival else None,
        lane=OPERATIONS,
        remembers="" if single else orjson.dumps(remembered).decode(),
    )


def _input(number: int, stream: StreamDeclaration, reads: pa.Schema, window: WindowSpec, single: bool) -> Input:
    """One queue: where its records go depends on whom they share windows with."""
    key: tuple[str, ...] = (OFFSET,) if single else window.by
    bucket = None if key else number if window.per_queue else 0
    own = {stream.shown_name(each): each for each in stream.arrow_schema.names}
    side = AllColumns(tuple(own[each] for each in reads.names), tuple(reads.names))
    return Input(stream.name, side, reads, key, bucket=bucket)


def _told(operation: OperationDeclaration) -> dict[str, object]:
    """All of a declaration that can change results. Where code lies says nothing once it is shipped."""
    told = asdict(operation)
    if operation.code is not None:
        del told["directory"]
    if operation.code is not None or not operation.files:  # what is shipped is in the code's name
        del told["files"]
    return told


def _digest(known: list[object]) -> str:
    return hashlib.blake2b(orjson.dumps(known), digest_size=16).hexdigest()
