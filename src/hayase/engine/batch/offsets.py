"""How far every stage has read, and what the next batch takes: the offsets of a lane, as pure data.

An offset names the definition version and, for each stage and stream, the position: the records before `at` are taken,
`clock` says up to which event time the stream is complete there, `peak` is the greatest event time so far, `first` is the
record with which the stage began. All that a batch depends on is in its two offsets and the logs, so a batch that is run
again gives the same result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import orjson

from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DamagedState
from hayase.core.stages import query_of
from hayase.core.times import BEGINNING, END
from hayase.engine.batch.gate import BATCH_BYTES, Grants
from hayase.engine.definition.definitions import Definition, StageRecord, load
from hayase.engine.logs import end_of, index_of
from hayase.streams import Index, StreamLog
from hayase.streams.schema_evolution import kept_in

__all__ = [
    "Batch",
    "Firing",
    "Offset",
    "Position",
    "Range",
    "advance",
    "begun",
    "check_positions",
    "halted_stages",
    "ranges",
    "stage_clock",
]

IDLE_STEP = 1_000_000
"""A silent stream's clock follows the wall clock in steps of a second, so that silence does not cost a batch every poll."""


@dataclass(frozen=True, slots=True)
class Position:
    at: int
    clock: int = BEGINNING
    peak: int = BEGINNING
    first: int = 0


@dataclass(frozen=True, slots=True)
class Firing:
    """The last time that a stage fired, as a multiple of its interval, and how often it had to let one pass so far:
    records were there, and the lane was still busy. With a `rest` the batch could not hold it all: it goes on at once.

    Numbers only grow. When the wall clock is set back, the stage goes on firing at multiples of its interval, and its numbers
    are `ahead` of the clock by so many intervals from then on."""

    number: int
    missed: int = 0
    rest: bool = False
    ahead: int = 0

    @property
    def interval(self) -> int:
        """The interval of the wall clock in which it fired."""
        return self.number - self.ahead

    def as_json(self) -> list[Any]:
        return [self.number, self.missed, self.rest, *([self.ahead] if self.ahead else [])]


@dataclass(frozen=True, slots=True)
class Offset:
    """Where a lane stands between two batches. `tick` changes only to keep the workers awake; `settled` is how far it has read
    what became of dead letters."""

    definition: int = 0
    positions: Mapping[str, Mapping[str, Position]] = field(default_factory=dict)
    tick: int = 0
    firings: Mapping[str, Firing] = field(default_factory=dict)
    settled: int = 0

    def is_finished(self, stage: str) -> bool:
        """Whether nothing can come any more in what a stage reads."""
        return all(each.clock >= END for each in self.positions.get(stage, {}).values())

    def as_json(self) -> dict[str, Any]:
        return {
            "definition": self.definition,
            "tick": self.tick,
            "settled": self.settled,
            "firings": {stage: each.as_json() for stage, each in self.firings.items()},
            "positions": {
                stage: {stream: [each.at, each.clock, each.peak, each.first] for stream, each in inputs.items()}
                for stage, inputs in self.positions.items()
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Offset:
        return cls(
            definition=data["definition"],
            tick=data["tick"],
            settled=data.get("settled", 0),
            firings={stage: Firing(*each) for stage, each in data.get("firings", {}).items()},
            positions={
                stage: {stream: Position(*each) for stream, each in inputs.items()}
                for stage, inputs in data["positions"].items()
            },
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """A planned batch: everything that its tasks need to know besides the logs."""

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
    """Records [first, next) of a stream, to be read in one pass for the stages at that place.

    `passed` gives, for each stage, the clock that the stream had when the batch began: what is older is late.
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
    """The offset up to which the next batch goes; equal to `start` when there is nothing to do.

    A new definition takes effect by a batch of its own that reads nothing. `settled_end` is where the stream ends that says
    what became of dead letters.
    """
    if not grants.open:
        return start
    if definition.version < start.definition:
        load(definition.home, start.definition)  # tells that it is missing
    if definition.version != start.definition:
        carried = _carry_over(start, definition, logs)
        kept = {stage: each for stage, each in start.firings.items() if stage in carried}
        return Offset(definition.version, carried, start.tick, kept, start.settled)
    firing = {each.name: now // each.every for each in definition.records if each.every}
    ends: dict[tuple[str, int], Position] = {}
    positions: dict[str, Mapping[str, Position]] = {}
    cut: set[str] = set()
    halted = halted_stages(start, definition, logs, grants.at_once, now)
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
            if at < index.next:
                cut.add(stage)
            if (stream, at) not in ends:
                ends[stream, at] = _position_at(at, log, index, now)
            end = ends[stream, at]
            moved[stream] = _moved_position(position, end, at)
        positions[stage] = moved
    positions = _with_readers(positions, start, definition)
    fired_now = {
        stage: replace(
            _next_firing(
                interval, start.firings.get(stage), start.positions[stage], logs, definition.record(stage).every or 1
            ),
            rest=stage in cut,
        )
        for stage, interval in firing.items()
        if positions[stage] != start.positions[stage]
    }
    settled = max(start.settled, settled_end)
    return Offset(definition.version, positions, max(tick, start.tick), {**start.firings, **fired_now}, settled)


def _checked_index(log: StreamLog, position: Position, stage: str) -> Index | None:
    """The index of a log, None if it is not laid out yet; DamagedState if it ends before what a stage has read of it."""
    index = index_of(log)
    found = 0 if index is None else index.next
    if found < position.at and (index is None or log.look().next < position.at):
        raise DamagedState(
            f'stage "{stage}" has read stream "{log.declaration.name}" up to record {position.at}, and the log in {log.path} ends '
            f"before record {found}: files are missing; put them back from a backup, or let the stage begin anew: "
            f"`hayase reset {query_of(stage)} --from earliest`"
        )
    return index


def check_positions(offset: Offset, logs: Mapping[str, StreamLog]) -> None:
    """Raise DamagedState if a log ends before what a stage has read of it."""
    for stage, inputs in offset.positions.items():
        for stream, position in inputs.items():
            _checked_index(logs[stream], position, stage)


def _moved_position(position: Position, end: Position, at: int) -> Position:
    """A position that goes on to where its stream is. A stream that was finished may go on again: then what was known of it
    is what it held."""
    peak = max(end.peak, position.peak)
    known = position.clock
    if known >= END > end.clock:
        known = position.peak + (position.peak > BEGINNING)
    return replace(position, at=at, clock=max(end.clock, known), peak=peak)


def halted_stages(
    start: Offset, definition: Definition, logs: Mapping[str, StreamLog], at_once: bool, now: int
) -> dict[str, int | None]:
    """The stages that take nothing now, whatever is there, and the time at which they fire next; None where it is no
    matter of time, since they meet a table that has yet to take in what they have caused."""
    halted: dict[str, int | None] = {}
    records = {each.name: each for each in definition.records}
    for stage in start.positions:
        record, fired = records[stage], start.firings.get(stage)
        if (
            record.every
            and fired is not None
            and not at_once
            and not fired.rest
            and fired.interval - 1 <= now // record.every <= fired.interval  # beyond, the clock was set back
        ):
            halted[stage] = (fired.interval + 1) * record.every
        elif _awaits_table(record, definition, start, logs):
            halted[stage] = None
    return halted


def _awaits_table(record: StageRecord, definition: Definition, start: Offset, logs: Mapping[str, StreamLog]) -> bool:
    """Whether a stage meets a table that has yet to take in what the stage itself has caused."""
    following = definition.readers(record.name) if record.meets else frozenset()
    for table in record.meets:
        for each in following - {record.name}:
            if table in definition.readers(each) and any(
                stream in following and position.at < end_of(logs[stream])
                for stream, position in start.positions.get(each, {}).items()
            ):
                return True
    return False


def _next_firing(
    interval: int, last: Firing | None, inputs: Mapping[str, Position], logs: Mapping[str, StreamLog], every: int
) -> Firing:
    """A firing, and with it those that were missed since the oldest record that waits was written."""
    if last is None:
        return Firing(interval)
    passed = interval - last.interval
    number = max(interval, last.number + (passed != 0))
    if passed <= 1:
        return Firing(number, last.missed, ahead=number - interval)
    waiting = [
        logs[stream].written_at(each.at) // every for stream, each in inputs.items() if each.at < end_of(logs[stream])
    ]
    since = max(last.interval, min(waiting, default=interval))
    return Firing(number, last.missed + max(0, interval - since - 1), ahead=number - interval)


def _with_readers(
    positions: Mapping[str, Mapping[str, Position]], start: Offset, definition: Definition
) -> dict[str, Mapping[str, Position]]:
    """The positions, where a finished stream goes on as long as its company does.

    A query that others read lives on with them: what it has in its windows ends while their other streams go on, as if
    its text stood in theirs. So of a stream with nothing more to come, everything is known up to the greatest event of
    all streams behind the stage and its readers, and it is at its end when all of them are.
    """
    made = {each.name for each in definition.records}
    found: dict[str, Mapping[str, Position]] = {}
    for stage, inputs in positions.items():
        company = [
            position
            for each in definition.readers(stage)
            for stream, position in positions.get(each, {}).items()
            if stream not in made
        ]
        peak = max((each.peak for each in [*inputs.values(), *company]), default=BEGINNING)
        going = [each.clock for each in company if each.clock < END]
        known = max([peak + (peak > BEGINNING), *going]) if going else END
        before = start.positions[stage]
        if inputs is before:  # it waits for its time
            found[stage] = before
            continue
        found[stage] = {
            stream: each if each.clock < END else replace(each, clock=max(known, before[stream].clock), peak=peak)
            for stream, each in inputs.items()
        }
    return found


def _position_at(at: int, log: StreamLog, index: Index, now: int) -> Position:
    declaration = log.declaration
    everything = at == index.next
    peak = index.running_max if everything else log.running_max_at(at)
    if everything and index.finished:
        return Position(at, END, peak)
    said = index.clock if everything else index.clock_at(at)
    if declaration.ordered:
        return Position(at, said, peak)
    clock = peak - declaration.slack if peak > BEGINNING else BEGINNING
    idle = _idle_clock(declaration, log, now) if everything else BEGINNING
    return Position(at, max(said, clock, idle), peak)


def _idle_clock(declaration: StreamDeclaration, log: StreamLog, now: int) -> int:
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
    """Positions under a new definition: kept by stages that live on, set to their beginning for stages that begin anew."""
    begun_anew = {each.name for each in begun(start, definition)}
    made = {each.name for each in definition.records}
    elsewhere = {each.name: each for each in definition.beside}
    positions: dict[str, Mapping[str, Position]] = {}
    for record in definition.records:
        kept = {} if record.name in begun_anew else start.positions.get(record.name, {})
        begin = {}
        for stream in record.inputs:
            if stream in kept:
                begin[stream] = kept[stream]
                continue
            at = end_of(
                logs[stream]
            )  # before the question: where it goes on if it is to be emptied, as no offset is used twice
            if stream not in begun_anew and (stream not in elsewhere or _has_begun(elsewhere[stream], logs[stream])):
                index = logs[stream].index()
                at = index.next if record.start == "now" else index.start
            begin[stream] = Position(at, first=at)
        positions[record.name] = begin
    joined = {
        each.name
        for each in definition.records
        if each.name in begun_anew and any(one not in made for one in each.inputs)
    }
    for record in definition.records:
        if record.name not in begun_anew and joined & definition.readers(record.name):
            positions[record.name] = _reopened(positions[record.name])
    return positions


def _reopened(inputs: Mapping[str, Position]) -> Mapping[str, Position]:
    """The positions of a stage that was at its end, and has a new reader with which it goes on: at what it has told so far."""
    if not inputs or any(each.clock < END for each in inputs.values()):
        return inputs
    known = stage_clock(inputs.values())
    return {stream: replace(each, clock=known) for stream, each in inputs.items()}


def _has_begun(maker: StageRecord, log: StreamLog) -> bool:
    """Whether the lane of a stage has begun it, as it is now, and so emptied its output."""
    kept = kept_in(log.path)
    return kept is not None and kept.mark is not None and int(kept.mark) >= maker.generation


def begun(start: Offset, definition: Definition) -> tuple[StageRecord, ...]:
    """The stages that begin anew when a lane goes on from an offset: also those of versions it never took up."""
    return tuple(each for each in definition.records if each.generation > start.definition)


def ranges(start: Offset, end: Offset, slots: int, least: int = 20_000) -> tuple[tuple[Range, ...], ...]:
    """What a batch reads, cut into about as many tasks as there are slots, none smaller than `least` records."""
    shared: dict[tuple[str, int, int], dict[str, int]] = {}
    for stage, inputs in end.positions.items():
        before = start.positions.get(stage, {})
        for stream, to in inputs.items():
            since = before.get(stream)
            if since is not None and start.definition == end.definition and to.at > since.at:
                shared.setdefault((stream, since.at, to.at), {})[stage] = since.clock
    whole = [Range(*place, passed) for place, passed in sorted(shared.items())]
    weight = sum(len(each) * len(each.passed) for each in whole)
    target = max(least, -(-weight // max(slots, 1)))
    return _pack([piece for each in whole for piece in _cut(each, target)], slots)


def _cut(whole: Range, target: int) -> Iterable[Range]:
    count = max(1, min(len(whole), round(len(whole) * len(whole.passed) / target)))
    bounds = [whole.first + len(whole) * i // count for i in range(count + 1)]
    return [Range(whole.stream, first, last, whole.passed) for first, last in pairwise(bounds)]


def _pack(pieces: list[Range], slots: int) -> tuple[tuple[Range, ...], ...]:
    tasks: list[list[Range]] = [[] for _ in range(max(1, min(slots, len(pieces))))]
    loads = [0] * len(tasks)
    for piece in sorted(pieces, key=lambda each: -len(each) * len(each.passed)):
        lightest = loads.index(min(loads))
        tasks[lightest].append(piece)
        loads[lightest] += len(piece) * len(piece.passed)
    return tuple(tuple(task) for task in tasks)


def stage_clock(positions: Iterable[Position]) -> int:
    """The instant before which everything is known of a stage's inputs: the least of their clocks.

    A record at the clock itself may still have company. Once every input is finished nothing can come any more, and what
    is known goes up to the greatest event time of all, inclusive.

    >>> stage_clock([Position(0, clock=10), Position(0, clock=8)]), stage_clock([Position(5, clock=END, peak=7)])
    (8, 8)
    """
    found = list(positions)
    clock = min((each.clock for each in found), default=BEGINNING)
    peak = max((each.peak for each in found), default=BEGINNING)
    return clock if clock < END else peak + (peak > BEGINNING)
