"""Lane offsets: how far every stage has read each of its streams, and which records the next batch takes. Pure data.

An offset holds the version of the definition and, for each stage and stream, a position. A batch depends on its two offsets and
on the logs alone, so a batch that is run again gives the same result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from itertools import pairwise
from typing import Any

import orjson

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DamagedState
from hayase.core.stages import is_build, public_name, query_of
from hayase.core.times import BEGINNING, END
from hayase.engine.batch.build_progress import common_cut
from hayase.engine.batch.gate import BATCH_BYTES, Grants
from hayase.engine.definition.definitions import Definition, StageRecord, load
from hayase.engine.logs import end_of, first_of_build, index_of
from hayase.streams import Index, StreamLog
from hayase.streams.repeats import mark_repeats
from hayase.streams.schema_evolution import stored_declaration

__all__ = [
    "Batch",
    "Firing",
    "Offset",
    "Position",
    "Range",
    "adopted",
    "advance",
    "begun",
    "check_positions",
    "halted_stages",
    "has_caught_up",
    "mark_taken_repeats",
    "ranges",
    "stage_clock",
]

IDLE_STEP = 1_000_000
"""Microseconds by which the clock of an idle stream follows the wall clock, so that idleness does not cost a batch at every
poll."""


@dataclass(frozen=True, slots=True)
class Position:
    """The place of a stage in a stream: the records before `at` are taken.

    The stream is complete before the event time `clock`; `peak` is the greatest event time so far, `first` the offset of the
    record with which the stage began.
    """

    at: int
    clock: int = BEGINNING
    peak: int = BEGINNING
    first: int = 0


@dataclass(frozen=True, slots=True)
class Firing:
    """The last firing of a stage, numbered by multiples of its interval.

    `missed` counts the firings so far that did not happen although records were there, because the lane was busy. With a `rest`
    the batch could not hold all records, and the stage goes on at once. Numbers only grow: when the wall clock is set back, the
    stage still fires at multiples of its interval, and its numbers are `ahead` of the clock by so many intervals from then on.
    """

    number: int
    missed: int = 0
    rest: bool = False
    ahead: int = 0

    @property
    def interval(self) -> int:
        """The interval of the wall clock in which the stage fired."""
        return self.number - self.ahead

    def as_json(self) -> list[Any]:
        return [self.number, self.missed, self.rest, *([self.ahead] if self.ahead else [])]


@dataclass(frozen=True, slots=True)
class Offset:
    """The state of reading of a lane between two batches.

    `tick` changes only to keep the workers alive; `settled` is how far the lane has read the stream `_settled`.
    """

    definition: int = 0
    positions: Mapping[str, Mapping[str, Position]] = field(default_factory=dict)
    tick: int = 0
    firings: Mapping[str, Firing] = field(default_factory=dict)
    settled: int = 0

    def is_finished(self, stage: str) -> bool:
        """Whether all streams that a stage reads are finished."""
        return all(position.clock >= END for position in self.positions.get(stage, {}).values())

    def as_json(self) -> dict[str, Any]:
        return {
            "definition": self.definition,
            "tick": self.tick,
            "settled": self.settled,
            "firings": {stage: firing.as_json() for stage, firing in self.firings.items()},
            "positions": {
                stage: {stream: [place.at, place.clock, place.peak, place.first] for stream, place in inputs.items()}
                for stage, inputs in self.positions.items()
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Offset:
        return cls(
            definition=data["definition"],
            tick=data["tick"],
            settled=data.get("settled", 0),
            firings={stage: Firing(*fields) for stage, fields in data.get("firings", {}).items()},
            positions={
                stage: {stream: Position(*fields) for stream, fields in inputs.items()}
                for stage, inputs in data["positions"].items()
            },
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """A planned batch, by its offsets: everything that its tasks need to know besides the logs."""

    start: Offset
    end: Offset

    def as_blob(self) -> bytes:
        return orjson.dumps({"start": self.start.as_json(), "end": self.end.as_json()})

    @classmethod
    def from_blob(cls, blob: bytes | memoryview) -> Batch:
        data = orjson.loads(blob)
        return cls(Offset.from_json(data["start"]), Offset.from_json(data["end"]))


@dataclass(frozen=True, slots=True)
class Range:
    """Records [first, next) of a stream, read in one pass for all stages that have the same position there.

    `passed` holds, for each stage, the clock of the stream before the batch: older records are late.
    """

    stream: str
    first: int
    next: int
    passed: Mapping[str, int]

    def __len__(self) -> int:
        return self.next - self.first


def advance(
    start: Offset,
    definition: Definition,
    logs: Mapping[str, StreamLog],
    grants: Grants,
    now: int,
    tick: int = 0,
    settled_end: int = 0,
) -> Offset:
    """The offset at which the next batch ends; equal to `start` when there is nothing to do.

    A new definition takes effect in a batch of its own that reads no records. `settled_end` is the end of the stream
    `_settled`.
    """
    if not grants.open:
        return start
    if definition.version < start.definition:
        load(definition.home, start.definition)  # raises: it is missing
    if definition.version != start.definition:
        carried = _carry_over(start, definition, logs)
        firings = {stage: firing for stage, firing in start.firings.items() if stage in carried}
        return Offset(definition.version, carried, start.tick, firings, start.settled)
    intervals = {record.name: now // record.every for record in definition.records if record.every}
    ends: dict[tuple[str, int], Position] = {}
    positions: dict[str, Mapping[str, Position]] = {}
    with_rest: set[str] = set()
    halted = halted_stages(start, definition, logs, grants.at_once, now)
    cut = common_cut(start, definition, logs) if definition.build is not None else None
    for stage, inputs in start.positions.items():
        if stage in halted:
            positions[stage] = inputs
            continue
        moved = {}
        for stream, position in inputs.items():
            log = logs[stream]
            index = _checked_index(log, position, stage)
            if index is None:
                moved[stream] = position
                continue
            at = max(position.at, log.within(position.at, grants.rows(stage, stream), BATCH_BYTES))
            place = None if cut is None else cut.place(stage, stream)
            if place is not None:
                at = min(at, place.at)
            if at < index.next:
                with_rest.add(stage)
            if (stream, at) not in ends:
                ends[stream, at] = _position_at(at, log, index, now)
            end = ends[stream, at]
            if place is not None and at == place.at:  # the clock of the version that was there first may be ahead
                end = replace(end, clock=max(end.clock, place.clock))
            moved[stream] = _moved_position(position, end, at)
        positions[stage] = moved
    positions = _with_readers(positions, start, definition, _last_ends(definition, positions, logs))
    fired_now = {
        stage: replace(
            _next_firing(
                interval, start.firings.get(stage), start.positions[stage], logs, definition.record(stage).every or 1
            ),
            rest=stage in with_rest,
        )
        for stage, interval in intervals.items()
        if positions[stage] != start.positions[stage]
    }
    settled = max(start.settled, settled_end)
    return Offset(definition.version, positions, max(tick, start.tick), {**start.firings, **fired_now}, settled)


def has_caught_up(start: Offset, definition: Definition, logs: Mapping[str, StreamLog], now: int) -> bool:
    """Whether the build of a definition has processed exactly the records that the stages which it replaces have processed."""
    cut = common_cut(start, definition, logs)
    if cut is None or not cut.is_reached(start):
        return False
    end = advance(start, definition, logs, Grants(at_once=True), now)
    return all(end.positions[stage] == start.positions[stage] for stage in cut.feeding)


def _checked_index(log: StreamLog, position: Position, stage: str) -> Index | None:
    """The index of a log, None if the log does not exist yet; DamagedState if it ends before the position of a stage."""
    index = index_of(log)
    end = 0 if index is None else index.next
    if end < position.at and (index is None or log.current_index().next < position.at):
        raise DamagedState(
            f'stage "{stage}" has read stream "{log.declaration.name}" up to record {position.at}, and the log in {log.path} ends '
            f"before record {end}: files are missing",
            f"put them back from a backup, or let the stage begin anew: `hayase reset {query_of(stage)} --from earliest`",
        )
    return index


def mark_taken_repeats(end: Offset, logs: Mapping[str, StreamLog]) -> None:
    """Compute the repeats of all records before an offset in streams with `dedupe`, once for all tasks of a batch."""
    taken: dict[str, int] = {}
    for inputs in end.positions.values():
        for stream, position in inputs.items():
            taken[stream] = max(taken.get(stream, 0), position.at)
    for stream, at in taken.items():
        mark_repeats(logs[stream], at)


def check_positions(offset: Offset, logs: Mapping[str, StreamLog]) -> None:
    """Raise DamagedState if a log ends before the position of a stage."""
    for stage, inputs in offset.positions.items():
        for stream, position in inputs.items():
            _checked_index(logs[stream], position, stage)


def _moved_position(position: Position, end: Position, at: int) -> Position:
    """A position advanced to `at`, where the position of the stream itself is `end`. Clocks do not go back, unless a finished
    stream is continued: then it was complete up to the greatest event time that it held."""
    peak = max(end.peak, position.peak)
    clock = position.clock
    if clock >= END > end.clock:
        clock = position.peak + (position.peak > BEGINNING)
    return replace(position, at=at, clock=max(end.clock, clock), peak=peak)


def halted_stages(
    start: Offset, definition: Definition, logs: Mapping[str, StreamLog], at_once: bool, now: int
) -> dict[str, int | None]:
    """The stages that take no records now, and the time at which they fire next: None for a stage that waits for a table which
    has yet to ingest what the stage has caused."""
    halted: dict[str, int | None] = {}
    records = {entry.name: entry for entry in definition.records}
    for stage in start.positions:
        record, last = records[stage], start.firings.get(stage)
        if (
            record.every
            and last is not None
            and not at_once
            and not last.rest
            and last.interval - 1 <= now // record.every <= last.interval  # before that, the clock was set back
        ):
            halted[stage] = (last.interval + 1) * record.every
        elif _awaits_table(record, definition, start, logs):
            halted[stage] = None
    return halted


def _awaits_table(record: StageRecord, definition: Definition, start: Offset, logs: Mapping[str, StreamLog]) -> bool:
    """Whether a stage reads a table that has yet to ingest what the stage itself has caused."""
    downstream = definition.readers(record.name) if record.meets else frozenset()
    for table in record.meets:
        for stage in downstream - {record.name}:
            if table in definition.readers(stage) and any(
                stream in downstream and position.at < end_of(logs[stream])
                for stream, position in start.positions.get(stage, {}).items()
            ):
                return True
    return False


def _next_firing(
    interval: int, last: Firing | None, inputs: Mapping[str, Position], logs: Mapping[str, StreamLog], every: int
) -> Firing:
    """The firing of a stage in this interval. Firings since the oldest waiting record was written count as missed."""
    if last is None:
        return Firing(interval)
    passed = interval - last.interval
    number = max(interval, last.number + (passed != 0))
    if passed <= 1:
        return Firing(number, last.missed, ahead=number - interval)
    waiting = [
        logs[stream].written_at(position.at) // every
        for stream, position in inputs.items()
        if position.at < end_of(logs[stream])
    ]
    since = max(last.interval, min(waiting, default=interval))
    return Firing(number, last.missed + max(0, interval - since - 1), ahead=number - interval)


def _last_ends(
    definition: Definition, positions: Mapping[str, Mapping[str, Position]], logs: Mapping[str, StreamLog]
) -> dict[str, int]:
    """When the last window with bounds of each stage ends, or the last event of its inputs if that is later, once these are
    finished; empty if no stage has such windows."""
    ends: dict[str, int] = {}
    for record in definition.records if any(record.closings for record in definition.records) else ():
        own = BEGINNING
        for stream in positions.get(record.name, {}):
            index = index_of(logs[stream]) if stream not in ends else None
            peak = ends.get(stream, index.running_max if index is not None else BEGINNING)
            grids = [grid for name, *grid in record.closings if name == stream and peak > BEGINNING]
            closes = [(peak - offset) // step * step + offset + length for step, offset, length in grids]
            own = max([own, peak, *closes])
        ends[record.name] = own
    return ends


def _with_readers(
    positions: Mapping[str, Mapping[str, Position]],
    start: Offset,
    definition: Definition,
    last_ends: Mapping[str, int],
) -> dict[str, Mapping[str, Position]]:
    """The positions, with the clocks of finished streams held back as long as the streams of a stage's readers go on.

    A query that others read ends with them: its windows empty while their other streams go on, as if its text stood in theirs.
    So the clock of a finished stream is the greatest event time of all streams behind the stage and its readers, and goes to
    the end of time when all of these are finished. Then that time is also the end of the last of their windows with bounds, so
    that these end.
    """
    outputs = {record.name for record in definition.records}
    result: dict[str, Mapping[str, Position]] = {}
    for stage, inputs in positions.items():
        sources = [
            position
            for reader in definition.readers(stage)
            for stream, position in positions.get(reader, {}).items()
            if stream not in outputs
        ]
        peak = max((place.peak for place in [*inputs.values(), *sources]), default=BEGINNING)
        open_clocks = [place.clock for place in sources if place.clock < END]
        clock = max([peak + (peak > BEGINNING), *open_clocks]) if open_clocks else END
        if last_ends and not open_clocks:
            peak = max([peak, *(last_ends.get(reader, BEGINNING) for reader in definition.readers(stage))])
        before = start.positions[stage]
        if inputs is before:  # the stage is halted
            result[stage] = before
            continue
        result[stage] = {
            stream: place if place.clock < END else replace(place, clock=max(clock, before[stream].clock), peak=peak)
            for stream, place in inputs.items()
        }
    return result


def _position_at(at: int, log: StreamLog, index: Index, now: int) -> Position:
    """The position of a reader that has taken the records of a log before `at`."""
    declaration = log.declaration
    at_end = at == index.next
    peak = index.running_max if at_end else log.running_max_at(at)
    if at_end and index.finished:
        return Position(at, END, peak)
    declared = index.clock if at_end else index.clock_at(at)
    if declaration.ordered:
        return Position(at, declared, peak)
    clock = peak - declaration.slack if peak > BEGINNING else BEGINNING
    idle = _idle_clock(declaration, log, now) if at_end else BEGINNING
    return Position(at, max(declared, clock, idle), peak)


def _idle_clock(declaration: StreamDeclaration, log: StreamLog, now: int) -> int:
    """The clock of a stream by its `idle_after`."""
    if declaration.idle_after is None:
        return BEGINNING
    written = log.last_written()
    if written is None or now - written < declaration.idle_after:
        return BEGINNING
    clock = now - declaration.idle_after - declaration.slack
    return clock - clock % IDLE_STEP


def _carry_over(
    start: Offset, definition: Definition, logs: Mapping[str, StreamLog]
) -> dict[str, Mapping[str, Position]]:
    """Positions under a new definition: unchanged for stages that go on, at the beginning for stages that begin anew."""
    begun_anew = {entry.name for entry in begun(start, definition)}
    builds = {entry.name: entry.as_build().name for entry in adopted(start, definition)}
    outputs = {entry.name for entry in definition.records}
    elsewhere = {entry.name: entry for entry in definition.beside}
    positions: dict[str, Mapping[str, Position]] = {}
    for record in definition.records:
        kept = {} if record.name in begun_anew else start.positions.get(builds.get(record.name, record.name), {})
        if record.name in builds:
            kept = {public_name(stream): position for stream, position in kept.items()}
        inputs = {}
        for stream in record.inputs:
            if stream in kept:
                inputs[stream] = kept[stream]
                continue
            # asked first: a stream that is about to be emptied goes on there, as no offset is used twice
            at = end_of(logs[stream])
            if is_build(stream):
                at = max(at, first_of_build(definition.home, logs[stream].declaration))
            if stream not in begun_anew and (stream not in elsewhere or _has_begun(elsewhere[stream], logs[stream])):
                index = logs[stream].index()
                at = index.next if record.start == "now" else index.start
            inputs[stream] = Position(at, first=at)
        positions[record.name] = inputs
    new_readers = {
        entry.name
        for entry in definition.records
        if entry.name in begun_anew and any(name not in outputs for name in entry.inputs)
    }
    for record in definition.records:
        if record.name not in begun_anew and new_readers & definition.readers(record.name):
            positions[record.name] = _reopened(positions[record.name])
    return positions


def _reopened(inputs: Mapping[str, Position]) -> Mapping[str, Position]:
    """The positions of a stage that was finished and goes on with a new reader: its clock is where its results end."""
    if not inputs or any(position.clock < END for position in inputs.values()):
        return inputs
    clock = stage_clock(inputs.values())
    return {stream: replace(position, clock=clock) for stream, position in inputs.items()}


def _has_begun(maker: StageRecord, log: StreamLog) -> bool:
    """Whether the lane of a stage has begun its current generation, and so emptied its output."""
    schema = stored_declaration(log.path)
    return schema is not None and schema.mark is not None and int(schema.mark) >= maker.generation


def begun(start: Offset, definition: Definition) -> tuple[StageRecord, ...]:
    """The stages that begin anew when a lane goes on from an offset, those of versions that it skipped included."""
    return tuple(record for record in definition.records if record.generation > start.definition)


def adopted(start: Offset, definition: Definition) -> tuple[StageRecord, ...]:
    """The stages that take over from their builds when a lane goes on from an offset to another definition."""
    if start.definition == definition.version:
        return ()
    return tuple(record for record in definition.records if record.as_build().name in start.positions)


def ranges(start: Offset, end: Offset, slots: int, least: int = 20_000) -> tuple[tuple[Range, ...], ...]:
    """The ranges that a batch reads, cut and packed into about as many tasks as there are slots, of at least `least`
    records."""
    shared: dict[tuple[str, int, int], dict[str, int]] = {}
    for stage, inputs in end.positions.items():
        before = start.positions.get(stage, {})
        for stream, to in inputs.items():
            since = before.get(stream)
            if since is not None and start.definition == end.definition and to.at > since.at:
                shared.setdefault((stream, since.at, to.at), {})[stage] = since.clock
    wholes = [Range(*place, passed) for place, passed in sorted(shared.items())]
    weight = sum(len(whole) * len(whole.passed) for whole in wholes)
    target = max(least, -(-weight // max(slots, 1)))
    return _pack([piece for whole in wholes for piece in _cut(whole, target)], slots)


def _cut(whole: Range, target: int) -> Iterable[Range]:
    """A range in pieces of about equal size, with a weight (records times stages) of about `target`."""
    count = max(1, min(len(whole), round(len(whole) * len(whole.passed) / target)))
    bounds = [whole.first + len(whole) * i // count for i in range(count + 1)]
    return [Range(whole.stream, first, last, whole.passed) for first, last in pairwise(bounds)]


def _pack(pieces: list[Range], slots: int) -> tuple[tuple[Range, ...], ...]:
    """Pieces distributed over tasks: the heaviest first, each to the task with the least weight."""
    tasks: list[list[Range]] = [[] for _ in range(max(1, min(slots, len(pieces))))]
    loads = [0] * len(tasks)
    for piece in sorted(pieces, key=lambda part: -len(part) * len(part.passed)):
        lightest = loads.index(min(loads))
        tasks[lightest].append(piece)
        loads[lightest] += len(piece) * len(piece.passed)
    return tuple(tuple(task) for task in tasks)


def stage_clock(positions: Iterable[Position]) -> int:
    """The clock of a stage: the least clock of its inputs.

    Records at the clock itself may still arrive. If every input is finished, the inputs are complete up to and including the
    greatest event time of all.

    >>> stage_clock([Position(0, clock=10), Position(0, clock=8)]), stage_clock([Position(5, clock=END, peak=7)])
    (8, 8)
    """
    inputs = list(positions)
    clock = min((position.clock for position in inputs), default=BEGINNING)
    peak = max((position.peak for position in inputs), default=BEGINNING)
    return clock if clock < END else peak + (peak > BEGINNING)
