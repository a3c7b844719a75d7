"""The reduce side of a batch: one bucket's blobs in, durable files and a report out. Knows nothing of Spark.

A worker keeps the kernels it has built. A kernel that is some versions behind catches up from the state segments it
missed; one that is ahead (its batch was never committed) is forgotten. Whatever happens to a task, only the report of
one that succeeded reaches the manifest, and files that no manifest names are cleared away.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from hayase.core.declarations import TableDeclaration
from hayase.core.errors import DamagedState
from hayase.core.keys import values
from hayase.core.stages import OFFSET, TIME, Kernel, Outcome, Refusals, SharedKernels, Spoiled, Stage, Tuples
from hayase.engine.batch.map_side import from_blob, mapped_schema
from hayase.engine.batch.offsets import Batch, Position, horizon
from hayase.engine.batch.state import (
    Bundle,
    SegmentRef,
    Upkeep,
    read_tuples,
    reclaimed_up_to,
    refs_as_json,
    refs_from_json,
    segments,
)
from hayase.engine.definition.definitions import Definition, StageRecord, stages_of
from hayase.engine.home import Home, writing
from hayase.streams.dead_letters import DEAD, dead_table
from hayase.streams.records import row_texts
from hayase.streams.reorder_buffer import MOST_BYTES, Ordered, WaitingRoom, rows_at, rows_between
from hayase.streams.segments import stage as stage_segment

__all__ = ["Figures", "Part", "Report", "Run", "Task", "batch_marker", "forget_kernels", "reduce_bucket"]


@dataclass(slots=True)
class Figures:
    """What happened to records, countable: read = processed + dead + waiting.

    `spoiled` are rows that came up inside the stage, such as a pair of a join, and went to the dead letters. `work` has, for
    each stream, how many records were read, and the seconds that this took.
    """

    read: int = 0
    processed: int = 0
    dead: int = 0
    waiting: int = 0
    written: int = 0
    seconds: float = 0.0
    spoiled: int = 0
    work: dict[str, tuple[int, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.work = {stream: (records, seconds) for stream, (records, seconds) in self.work.items()}  # JSON has lists

    def add(self, other: Figures) -> None:
        for name in self.__slots__:
            if name != "work":
                setattr(self, name, getattr(self, name) + getattr(other, name))
        for stream, (records, seconds) in other.work.items():
            self.worked(stream, records, seconds)

    def worked(self, stream: str, records: int, seconds: float) -> None:
        """Note work that was done for records of a stream."""
        before = self.work.get(stream, (0, 0.0))
        self.work[stream] = (before[0] + records, before[1] + seconds)


@dataclass(frozen=True, slots=True)
class Part:
    """A durable file of output records that waits to be published; parts of a stream are published in their order."""

    stream: str
    file: str
    rows: int
    order: int


@dataclass(frozen=True, slots=True)
class Run:
    """A durable file of a table's entries that waits to be taken in."""

    table: str
    file: str
    entries: int


def batch_marker(lane: str, version: int) -> bytes:
    """What stands in the runs of a batch, so that a table knows which batches it has taken in."""
    return f"{lane}/{version:012d}".encode()


@dataclass(frozen=True, slots=True)
class Report:
    """What one bucket's task made, for the manifest."""

    bucket: int
    batch: Batch
    parts: tuple[Part, ...]
    states: Mapping[str, tuple[SegmentRef, ...]]
    figures: Mapping[str, Figures]
    runs: tuple[Run, ...] = ()

    def as_json(self) -> bytes:
        return orjson.dumps(
            {
                "bucket": self.bucket,
                "batch": self.batch.as_blob().decode(),
                "parts": [asdict(each) for each in self.parts],
                "states": {stage: refs_as_json(refs) for stage, refs in self.states.items()},
                "figures": {stage: asdict(each) for stage, each in self.figures.items()},
                "runs": [asdict(each) for each in self.runs],
            }
        )

    @classmethod
    def from_json(cls, text: bytes | str) -> Report:
        data: dict[str, Any] = orjson.loads(text)
        return cls(
            data["bucket"],
            Batch.from_blob(data["batch"].encode()),
            tuple(Part(**each) for each in data["parts"]),
            {stage: refs_from_json(refs) for stage, refs in data["states"].items()},
            {stage: Figures(**each) for stage, each in data["figures"].items()},
            tuple(Run(**each) for each in data["runs"]),
        )


@dataclass(frozen=True, slots=True)
class Task:
    """What a bucket's task must know besides its blobs: where things lie, and the state that the last manifest names."""

    home: Home
    lane: str
    version: int
    epoch: str
    states: Mapping[str, Mapping[int, tuple[SegmentRef, ...]]]
    now: int


@dataclass(slots=True)
class _Held:
    """A stage's kernel for one bucket, as of a version, with the rooms where its inputs wait, and its company."""

    kernel: Kernel
    rooms: list[WaitingRoom]
    joint: SharedKernels | None = None
    version: int = 0


STEP_ROWS = 131_072
STEP_BYTES = MOST_BYTES // 2
"""Records that a kernel takes at once: what it makes of them stays in the caches, and in memory that is used again."""

_held: dict[tuple[str, str, str, str, str, int], _Held] = {}
"""Kernels of this process, by home, lane, epoch of the lane (one run of it), stage identity and fingerprint, and bucket."""


@dataclass(slots=True)
class _Made:
    """What a task has made so far."""

    parts: list[Part] = field(default_factory=list)
    states: dict[str, tuple[SegmentRef, ...]] = field(default_factory=dict)
    figures: dict[str, Figures] = field(default_factory=dict)
    letters: list[pa.Table] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    seconds: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """For stages whose kernel tells it, the work for each stream."""


def reduce_bucket(task: Task, bucket: int, definition: Definition, rows: Sequence[Mapping[str, Any]]) -> Report:
    """Run every stage's kernel over what came for one bucket.

    `rows` are blobs as mappings with the columns of `mapping.BLOBS`, `blob` being an Arrow binary scalar.
    """
    batch = next((Batch.from_blob(each["blob"].as_py()) for each in rows if each["kind"] == "header"), None)
    if batch is None:
        raise DamagedState(f"bucket {bucket} of lane {task.lane} got no header; this is a fault in Hayase")
    stages = stages_of(definition)
    _let_go(task, definition)
    directory = task.home.staged(task.lane)
    made = _Made(figures={each.name: Figures() for each in definition.records})
    made.letters += [pa.table(from_blob(each["blob"])) for each in rows if each["kind"] == "dead"]
    bundle = Bundle(task.home.state(task.lane), f"{task.version:012d}-{bucket}-{uuid.uuid4().hex}.state")
    for name, each in _figures(rows):
        made.figures[name].add(each)
    alone = {each["stage"] for each in rows if each["kind"] == "replayed"}
    for party in _parties(definition, stages, batch, alone):
        began = time.perf_counter()
        steps: list[_Step] = []
        shares: dict[str, Mapping[str, float]] = {}
        for record in party:
            stage = stages[record.name]
            mine = [each for each in rows if stage.name in each["stage"].split(",")]
            data = [each for each in mine if each["kind"] in ("data", "replayed")]
            shares[stage.name] = _shares(stage, data)
            if isinstance(stage.output, TableDeclaration):
                _gather(task, stage, data, directory, made)
            elif stage.kernel is None:
                _pass_on(task, stage, sorted(data, key=lambda each: each["first"]), directory, made)
            else:
                refs = task.states.get(record.identity, {}).get(bucket, ())
                steps.append(_Step(task, stage, record.identity, bucket, definition.buckets, refs, batch, data))
        made.states |= _run(steps, directory, bundle, made)
        for record in party:
            seconds = (time.perf_counter() - began) / len(party)
            made.figures[record.name].seconds += seconds
            by_share = {stream: seconds * share for stream, share in shares[record.name].items()}
            for stream, worked in made.seconds.get(record.name, by_share).items():
                made.figures[record.name].worked(stream, 0, worked)
    if made.letters:
        letters = pa.concat_tables(made.letters)
        made.parts.append(_part(task, directory, DEAD.name, letters, DEAD, order=bucket))
    bundle.close()
    return Report(bucket, batch, tuple(made.parts), made.states, made.figures, tuple(made.runs))


def _shares(stage: Stage, data: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Which share of what came is from which stream."""
    sizes: dict[str, int] = {}
    for each in data:
        stream = stage.inputs[each["input"]].stream
        sizes[stream] = sizes.get(stream, 0) + each["blob"].as_buffer().size
    total = sum(sizes.values())
    return {stream: size / total for stream, size in sizes.items()}


def _parties(
    definition: Definition, stages: Mapping[str, Stage], batch: Batch, alone: Collection[str]
) -> list[list[StageRecord]]:
    """Stages that run together: one alone, or company that goes from the same place to the same place. Those that get what
    no other gets are `alone`."""
    found: dict[tuple[str, frozenset[tuple[str, Position]], frozenset[tuple[str, Position]]], list[StageRecord]] = {}
    for record in definition.records:
        company = None if record.name in alone else stages[record.name].shared_scan
        start, end = (frozenset(each.positions.get(record.name, {}).items()) for each in (batch.start, batch.end))
        found.setdefault((company.group if company else record.name, start, end), []).append(record)
    return list(found.values())


def _run(steps: list[_Step], directory: Path, bundle: Bundle, made: _Made) -> dict[str, tuple[SegmentRef, ...]]:
    """One batch of stages that run together; their segments afterwards, by identity."""
    if not any(step.is_due for step in steps):
        return {step.identity: step.refs for step in steps}
    helds = [_held.pop(step.key, None) for step in steps]  # a task that fails half-way leaves nothing behind
    joint = helds[0].joint if helds[0] is not None else None
    current = [held for step, held in zip(steps, helds) if held is not None and step.fits(held)]
    together = [each for each in current if each.joint is joint]
    if len(together) != len(steps) or (joint is not None and list(joint.kernels) != [each.kernel for each in together]):
        joint, kernels = _kernels([step.stage for step in steps], steps[0].bucket, steps[0].buckets)
        current = [step.fresh(kernel, joint) for step, kernel in zip(steps, kernels)]
    begun = [step.begun(held, came) for step, held, came in zip(steps, current, _came(steps))]
    outcomes = _processed(steps[0], joint, begun)
    ended = {}
    for step, each, outcome in zip(steps, begun, outcomes):
        ended[step.identity] = step.ended(each, outcome, directory, bundle, made)
    for step, each in zip(steps, begun):
        _held[step.key] = each.held
    return ended


def _came(steps: Sequence[_Step]) -> list[dict[int, list[pa.RecordBatch]]]:
    """The batches that came for each step, by input; those that came for all of them are joined once for all."""
    found: list[dict[int, list[pa.RecordBatch]]] = []
    for step in steps:
        if found and step.data == steps[0].data:
            found.append(found[0])
            continue
        batches: dict[int, list[pa.RecordBatch]] = {}
        for each in step.data:
            batches.setdefault(each["input"], []).append(from_blob(each["blob"]))
        if len(steps) > 1:
            batches = {number: [pa.concat_batches(some)] for number, some in batches.items()}
        found.append(batches)
    return found


def _processed(step: _Step, joint: SharedKernels | None, begun: Sequence[_Begun]) -> list[_Result]:
    """What each kernel makes of a batch, taken in steps of whole instants that fit the caches."""
    if step.stage.every is not None:
        whole = begun[0].held.kernel.process(begun[0].ready, step.since, step.clock, step.task.version)
        return [_joined([whole])]
    made: list[list[Outcome]] = [[] for _ in begun]
    taken = [[np.zeros(len(each.ready), np.int64)] for each in begun]
    times = [[rows.column(TIME).to_numpy() for rows in each.ready] for each in begun]
    since, size = step.since, max(sum(rows.nbytes for rows in each.ready) for each in begun)
    for clock in (*_cuts(times[0], since, step.clock, size), step.clock):
        inputs = []
        for each, own, ends in zip(begun, times, taken):
            ends.append(np.array([np.searchsorted(one, clock) for one in own], np.int64))
            inputs.append(
                [rows_between(rows, int(at), int(to)) for rows, at, to in zip(each.ready, ends[-2], ends[-1])]
            )
        if joint is None:
            outcomes: Sequence[Outcome] = [begun[0].held.kernel.process(inputs[0], since, clock, step.task.version)]
        else:
            outcomes = joint.process(inputs, since, clock, step.task.version)
        for outcome, given, ends in zip(outcomes, made, taken):
            given.append(_shifted(outcome, ends[-2]))
        since = clock
    return [_joined(each) for each in made]


def _cuts(times: Sequence[np.ndarray], since: int, clock: int, size: int = 0) -> list[int]:
    """Instants between which there are about as many records as a step takes: so many, and not too many bytes of the `size`."""
    longest = max(times, key=len)
    count = sum(map(len, times))
    most = max(1, min(STEP_ROWS, STEP_BYTES * count // max(size, 1)))
    stride = most * len(longest) // max(count, 1)
    found = np.unique(longest[stride::stride]) if 0 < stride < len(longest) else np.empty(0, np.int64)
    return [int(each) for each in found if since < each < clock]


def _shifted(outcome: Outcome, first: np.ndarray) -> Outcome:
    """The same where the rows of its inputs stand behind others."""
    refused = [replace(each, rows=each.rows + at) for each, at in zip(outcome.refused, first)]
    return replace(outcome, refused=refused)


def _joined(outcomes: Sequence[Outcome]) -> _Result:
    """The outcomes of steps, one after the other, as one."""
    refused = []
    for several in zip(*(each.refused for each in outcomes if each.refused)):
        rows = np.concatenate([each.rows for each in several])
        attempts = [tried for each in several for tried in each.attempts or [1] * len(each)]
        refused.append(Refusals(rows, [reason for each in several for reason in each.reasons], attempts))
    return _Result(
        pa.Table.from_batches([each.rows for each in outcomes]),
        refused,
        _needed([tuples for each in outcomes for tuples in each.state]),
        [lost for each in outcomes for lost in each.spoiled],
        [sum(several) for several in zip(*(each.seconds for each in outcomes if each.seconds))],
    )


def _needed(state: Sequence[Tuples]) -> list[Tuples]:
    """Of the tuples that the steps of a batch gave, those that are not told again as a whole."""
    last = {tuples.section: number for number, tuples in enumerate(state) if tuples.whole}
    return [tuples for number, tuples in enumerate(state) if number >= last.get(tuples.section, 0)]


def _kernels(stages: Sequence[Stage], bucket: int, buckets: int) -> tuple[SharedKernels | None, Sequence[Kernel]]:
    first = stages[0]
    if len(stages) > 1 and first.shared_scan is not None:
        joint = first.shared_scan.join(stages, bucket, buckets)
        return joint, joint.kernels
    assert first.kernel is not None
    return None, [first.kernel(bucket, buckets)]


def _let_go(task: Task, definition: Definition) -> None:
    """Forget the kernels of stages that the lane has left behind, and those of its earlier runs."""
    lives = {(each.identity, each.fingerprint) for each in definition.records}
    mine = [each for each in list(_held) if each[:2] == (str(task.home.path), task.lane)]
    for key in mine:
        if key[2] != task.epoch or key[3:5] not in lives:
            _held.pop(key, None)  # another bucket's thread may have been faster


def _figures(rows: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, Figures]]:
    for each in rows:
        if each["kind"] == "figures":
            for name, told in orjson.loads(each["blob"].as_py()).items():
                figures = Figures(**told)
                figures.worked(each["stage"], figures.read, figures.seconds)
                yield name, figures


def _pass_on(task: Task, stage: Stage, data: list[Mapping[str, Any]], directory: Path, made: _Made) -> None:
    """A stage without a kernel: what the map side gave is the output, chunk by chunk in the order of the log."""
    for each in data:
        rows = pa.table(from_blob(each["blob"]))
        made.parts.append(_part(task, directory, stage.name, rows, stage.output, order=each["first"]))
        made.figures[stage.name].written += rows.num_rows


def _gather(task: Task, stage: Stage, data: list[Mapping[str, Any]], directory: Path, made: _Made) -> None:
    """A table: the entries that came to this bucket, in one sorted run."""
    if not data:
        return
    from hayase.tables.stores import write_run  # who has no tables does without

    name = f"{task.version:012d}-{uuid.uuid4().hex}.run"
    batches = [from_blob(each["blob"]) for each in data]
    with writing(f"the run {directory / name}"):
        count = write_run(directory / name, batches, batch_marker(task.lane, task.version))
    made.runs.append(Run(stage.name, name, count))
    made.figures[stage.name].written += count


def _part(task: Task, directory: Path, stream: str, rows: pa.Table, declaration: Any, order: int) -> Part:
    name = f"{task.version:012d}-{uuid.uuid4().hex}.seg"
    stage_segment(directory, rows, declaration, name, written_at=task.now)
    return Part(stream, name, rows.num_rows, order)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A step on its way: the kernel, how many records waited before, what is ready for it, and what waits now."""

    held: _Held
    waiting: int
    ready: list[Ordered]
    added: list[Tuples]


@dataclass(frozen=True, slots=True)
class _Result:
    """`Outcome` of a whole batch."""

    rows: pa.Table
    refused: Sequence[Refusals]
    state: Sequence[Tuples]
    spoiled: Sequence[Spoiled]
    seconds: Sequence[float]


@dataclass(frozen=True, slots=True)
class _Step:
    """One batch of one stage with a kernel, in one bucket."""

    task: Task
    stage: Stage
    identity: str
    bucket: int
    buckets: int
    refs: tuple[SegmentRef, ...]
    batch: Batch
    data: list[Mapping[str, Any]]

    @property
    def since(self) -> int:
        """The instant before which everything was known when the batch began."""
        return horizon(self.batch.start.positions.get(self.stage.name, {}).values())

    @property
    def clock(self) -> int:
        """The instant before which everything is known now."""
        return horizon(self.batch.end.positions.get(self.stage.name, {}).values())

    @property
    def is_due(self) -> bool:
        """Whether anything came, or a clock moved."""
        return bool(self.data) or (self.stage.every is None and self.since != self.clock)

    @property
    def key(self) -> tuple[str, str, str, str, str, int]:
        identity = (self.identity, self.stage.fingerprint)
        return str(self.task.home.path), self.task.lane, self.task.epoch, *identity, self.bucket

    def fits(self, held: _Held) -> bool:
        """Whether a kernel can be caught up with what the last manifest has."""
        return reclaimed_up_to(self.refs) <= held.version < self.task.version

    def fresh(self, kernel: Kernel, joint: SharedKernels | None) -> _Held:
        """A kernel that knows nothing yet."""
        return _Held(kernel, [WaitingRoom(mapped_schema(each.schema)) for each in self.stage.inputs], joint)

    def begun(self, held: _Held, came: Mapping[int, list[pa.RecordBatch]]) -> _Begun:
        """The kernel caught up, and its inputs up to the clock; `came` are the batches of each input."""
        self._catch_up(held)
        if self.stage.every is not None:
            return _Begun(held, 0, [self._in_log_order(number, came) for number in range(len(held.rooms))], [])
        waiting = self._waiting(held)
        ready, added = [], []
        for number, room in enumerate(held.rooms):
            names = mapped_schema(self.stage.inputs[number].schema).names
            leaving, new = room.enter([each.select(names) for each in came.get(number, ())], self.clock - 1)
            ready.append(leaving)
            added.append(
                Tuples(_section(number), new, until=int(new.column(TIME)[-1].as_py()) if new.num_rows else None)
            )
        return _Begun(held, waiting, ready, added)

    def _in_log_order(self, number: int, came: Mapping[int, list[pa.RecordBatch]]) -> pa.RecordBatch:
        """What came for an input, all of it."""
        schema = mapped_schema(self.stage.inputs[number].schema)
        batches = [each.select(schema.names) for each in came.get(number, ())]
        if not batches:
            return pa.RecordBatch.from_arrays([pa.array([], each.type) for each in schema], schema=schema)
        whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        offsets = values(whole.column(OFFSET), np.int64)
        return (
            whole
            if bool(np.all(offsets[1:] >= offsets[:-1]))
            else whole.take(pa.array(np.argsort(offsets, kind="stable")))
        )

    def ended(
        self, begun: _Begun, outcome: _Result, directory: Path, bundle: Bundle, made: _Made
    ) -> tuple[SegmentRef, ...]:
        """Write what the kernel gave; the segments of its state are as they are returned then."""
        held, ready = begun.held, begun.ready
        if outcome.rows.num_rows:
            output = self.stage.stream
            made.parts.append(_part(self.task, directory, output.name, outcome.rows, output, self.bucket))
        refused = self._letters(ready, outcome.refused, made)
        if any(outcome.seconds):
            made.seconds[self.stage.name] = self._by_stream(outcome.seconds)
        figures = made.figures[self.stage.name]
        figures.written += outcome.rows.num_rows
        spoiled = self._spoiled(outcome.spoiled, made)
        records = sum(each.rows.num_rows for each in outcome.spoiled if each.input is not None)
        figures.spoiled += spoiled - records
        refused += records
        waits = self._waiting(held) - begun.waiting
        figures.dead += refused
        figures.waiting += waits
        figures.processed -= waits + refused  # the map side has taken them for processed
        upkeep = Upkeep(self.task.home.state(self.task.lane), bundle, self.task.version, self.stage.name)
        rooms = {_section(number) for number in range(len(held.rooms))}
        refs = upkeep.forward(self.refs, [*begun.added, *outcome.state], held.kernel, rooms, self.clock)
        held.version = self.task.version
        return refs

    def _by_stream(self, seconds: Sequence[float]) -> dict[str, float]:
        """The seconds of the inputs, by the streams that they are of. What a batch costs beside them is not the records'."""
        found: dict[str, float] = {}
        for each, took in zip(self.stage.inputs, seconds):
            found[each.stream] = found.get(each.stream, 0.0) + took
        return found

    def _waiting(self, held: _Held) -> int:
        """How many records wait, of those that count as read; a record that several inputs read counts in the first."""
        counted = {each.stream: number for number, each in reversed([*enumerate(self.stage.inputs)]) if each.counts}
        return sum(len(held.rooms[number]) for number in counted.values())

    def _catch_up(self, held: _Held) -> None:
        """Bring a kernel to where the last manifest is."""
        directory = self.task.home.state(self.task.lane)
        missed = [each for each in segments(self.refs) if each.high > held.version]
        for number, room in enumerate(held.rooms):
            kept = [
                read_tuples(directory, each, self.stage.name) for each in missed if each.section == _section(number)
            ]
            room.catch_up(kept, self.since - 1)
        rooms = {_section(number) for number in range(len(held.rooms))}
        for each in missed:
            if each.section not in rooms:
                rows = read_tuples(directory, each, self.stage.name)
                try:
                    held.kernel.restore(each.section, rows, each.high)
                except DamagedState as error:
                    raise DamagedState(f'the state of stage "{self.stage.name}" cannot be used: {error}') from error
        held.version = self.task.version - 1

    def _letters(self, ready: Sequence[Ordered], refused: Sequence[Refusals], made: _Made) -> int:
        """Dead letters for what the kernel refused; the record is told as the map side gave it."""
        count = 0
        known: set[tuple[str, int]] = set()
        for source, rows, several in zip(self.stage.inputs, ready, refused):
            each = _unknown(several, source.stream, rows, known)
            if len(each):
                lost = rows_at(rows, np.asarray(each.rows))
                made.letters.append(
                    dead_table(
                        stage=self.stage.name,
                        version=self.stage.fingerprint,
                        stream=source.stream,
                        offsets=lost.column(OFFSET).to_pylist(),
                        records=row_texts(pa.table(lost).drop_columns([TIME, OFFSET])),
                        reasons=each.reasons,
                        attempts=each.attempts or 1,
                        now=self.task.now,
                    )
                )
                count += len(each)
        return count

    def _spoiled(self, spoiled: Sequence[Spoiled], made: _Made) -> int:
        """Dead letters for rows that came up inside the kernel: they are of no stream but the stage's own making, unless
        they are records of an earlier batch."""
        for each in spoiled:
            streams, offsets = each.streams, each.offsets
            if each.input is not None and each.ids is not None:
                offsets = each.ids.tolist()
                streams = [self.stage.inputs[each.input].stream] * len(offsets)
            made.letters.append(
                dead_table(
                    stage=self.stage.name,
                    version=self.stage.fingerprint,
                    stream=streams or self.stage.output.name,
                    offsets=offsets or None,
                    records=row_texts(pa.table(each.rows)),
                    reasons=each.reasons,
                    attempts=each.attempts or 1,
                    now=self.task.now,
                )
            )
        return sum(each.rows.num_rows for each in spoiled)


def _unknown(refused: Refusals, stream: str, rows: Ordered, known: set[tuple[str, int]]) -> Refusals:
    """The refusals of records that no other input has refused; `known` are those of a stream and offset that one has."""
    if not len(refused):
        return refused
    records = [(stream, offset) for offset in rows.column(OFFSET).to_numpy()[refused.rows].tolist()]
    new = [at for at, each in enumerate(records) if each not in known]
    known.update(records)
    if len(new) == len(refused):
        return refused
    tried = refused.attempts
    reasons, attempts = [refused.reasons[at] for at in new], [tried[at] for at in new] if tried else ()
    return Refusals(refused.rows[new], reasons, attempts)


def _section(number: int) -> str:
    """The section of the state in which an input waits."""
    return f"waiting.{number}"


def forget_kernels() -> None:
    """Drop every kernel that this process holds, as a worker that was lost would have."""
    _held.clear()
