"""The reduce side of a batch: one bucket's blobs in, durable files and a report out. Knows nothing of Spark.

A worker keeps the kernels it has built. A kernel that is some versions behind catches up from the state segments it
missed; one that is ahead (its batch was never committed) is forgotten. Whatever happens to a task, only the report of
one that succeeded reaches the manifest, and files that no manifest names are cleared away.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from hayase.core.errors import DamagedState
from hayase.core.stages import OFFSET, TIME, Kernel, Refusals, Spoiled, Stage, Tuples
from hayase.engine.definitions import Definition, stages_of
from hayase.engine.home import Home
from hayase.engine.mapping import from_blob, mapped_schema
from hayase.engine.positions import Batch, Offset, horizon
from hayase.engine.state import (
    Bundle,
    SegmentRef,
    Upkeep,
    read_tuples,
    reclaimed_up_to,
    refs_as_json,
    refs_from_json,
    segments,
)
from hayase.streams.dead import DEAD, dead_table
from hayase.streams.ordering import WaitingRoom
from hayase.streams.records import row_texts
from hayase.streams.segments import stage as stage_segment

__all__ = ["Figures", "Part", "Report", "Task", "forget_kernels", "reduce_bucket"]


@dataclass(slots=True)
class Figures:
    """What happened to records, countable: read = processed + dead + waiting.

    `spoiled` are rows that came up inside the stage, such as a pair of a join, and went to the dead letters.
    """

    read: int = 0
    processed: int = 0
    dead: int = 0
    waiting: int = 0
    written: int = 0
    seconds: float = 0.0
    spoiled: int = 0

    def add(self, other: Figures) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True, slots=True)
class Part:
    """A durable file of output records that waits to be published; parts of a stream are published in their order."""

    stream: str
    file: str
    rows: int
    order: int


@dataclass(frozen=True, slots=True)
class Report:
    """What one bucket's task made, for the manifest."""

    bucket: int
    batch: Batch
    parts: tuple[Part, ...]
    states: Mapping[str, tuple[SegmentRef, ...]]
    figures: Mapping[str, Figures]

    def as_json(self) -> bytes:
        return orjson.dumps(
            {
                "bucket": self.bucket,
                "batch": self.batch.as_blob().decode(),
                "parts": [asdict(each) for each in self.parts],
                "states": {stage: refs_as_json(refs) for stage, refs in self.states.items()},
                "figures": {stage: asdict(each) for stage, each in self.figures.items()},
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
    """A stage's kernel for one bucket, as of a version, with the rooms where its inputs wait."""

    kernel: Kernel
    rooms: list[WaitingRoom]
    version: int = 0


_held: dict[tuple[str, str, str, str, int], _Held] = {}
"""Kernels of this process, by home, lane, epoch of the lane (one run of it), stage identity and bucket."""


@dataclass(slots=True)
class _Made:
    """What a task has made so far."""

    parts: list[Part] = field(default_factory=list)
    states: dict[str, tuple[SegmentRef, ...]] = field(default_factory=dict)
    figures: dict[str, Figures] = field(default_factory=dict)
    letters: list[pa.Table] = field(default_factory=list)


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
    made = _Made(figures={name: Figures() for name in stages})
    bundle = Bundle(task.home.state(task.lane), f"{task.version:012d}-{bucket}-{uuid.uuid4().hex}.state")
    for name, each in _figures(rows):
        made.figures[name].add(each)
    for record in definition.records:
        stage = stages[record.name]
        began = time.perf_counter()
        mine = [each for each in rows if each["stage"] == stage.name]
        made.letters += [pa.table(from_blob(each["blob"])) for each in mine if each["kind"] == "dead"]
        data = [each for each in mine if each["kind"] == "data"]
        if stage.kernel is None:
            _pass_on(task, stage, sorted(data, key=lambda each: each["first"]), directory, made)
        else:
            refs = task.states.get(record.identity, {}).get(bucket, ())
            step = _Step(task, stage, record.identity, bucket, definition.buckets, refs, batch)
            made.states[record.identity] = step.run(data, directory, bundle, made)
        made.figures[stage.name].seconds += time.perf_counter() - began
    if made.letters:
        letters = pa.concat_tables(made.letters)
        made.parts.append(_part(task, directory, DEAD.name, letters, DEAD, order=bucket))
    bundle.close()
    return Report(bucket, batch, tuple(made.parts), made.states, made.figures)


def _let_go(task: Task, definition: Definition) -> None:
    """Forget the kernels of stages that the lane has left behind, and those of its earlier runs."""
    lives = {each.identity for each in definition.records}
    mine = [each for each in _held if each[:2] == (str(task.home.path), task.lane)]
    for key in mine:
        if key[2] != task.epoch or key[3] not in lives:
            del _held[key]


def _figures(rows: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, Figures]]:
    for each in rows:
        if each["kind"] == "figures":
            for name, figures in orjson.loads(each["blob"].as_py()).items():
                yield name, Figures(**figures)


def _pass_on(task: Task, stage: Stage, data: list[Mapping[str, Any]], directory: Path, made: _Made) -> None:
    """A stage without a kernel: what the map side gave is the output, chunk by chunk in the order of the log."""
    for each in data:
        rows = pa.table(from_blob(each["blob"]))
        made.parts.append(_part(task, directory, stage.output.name, rows, stage.output, order=each["first"]))
        made.figures[stage.name].written += rows.num_rows


def _part(task: Task, directory: Path, stream: str, rows: pa.Table, declaration: Any, order: int) -> Part:
    name = f"{task.version:012d}-{uuid.uuid4().hex}.seg"
    stage_segment(directory, rows, declaration, name, written_at=task.now)
    return Part(stream, name, rows.num_rows, order)


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

    def run(
        self, data: list[Mapping[str, Any]], directory: Path, bundle: Bundle, made: _Made
    ) -> tuple[SegmentRef, ...]:
        since, clock = self._horizon(self.batch.start), self._horizon(self.batch.end)
        if not data and since == clock:
            return self.refs  # nothing came and no clock moved
        key = (str(self.task.home.path), self.task.lane, self.task.epoch, self.identity, self.bucket)
        held = self._current(_held.pop(key, None), since)  # a task that fails half-way leaves nothing behind
        waiting = self._waiting(held)
        ready, added = [], []
        for number, room in enumerate(held.rooms):
            came = [from_blob(each["blob"]) for each in data if each["input"] == number]
            leaving, new = room.enter(came, clock - 1)
            ready.append(leaving)
            added.append(
                Tuples(_section(number), new, until=int(new.column(TIME)[-1].as_py()) if new.num_rows else None)
            )
        outcome = held.kernel.process(ready, since, clock, self.task.version)
        if outcome.rows.num_rows:
            rows = pa.table(outcome.rows)
            made.parts.append(_part(self.task, directory, self.stage.output.name, rows, self.stage.output, self.bucket))
        refused = self._letters(ready, outcome.refused, made)
        read = zip(self.stage.inputs, ready)
        figures = made.figures[self.stage.name]
        figures.written += outcome.rows.num_rows
        figures.dead += refused
        figures.processed += sum(rows.num_rows for each, rows in read if not each.broadcast) - refused
        figures.waiting += self._waiting(held) - waiting
        figures.spoiled += self._spoiled(outcome.spoiled, made)
        upkeep = Upkeep(self.task.home.state(self.task.lane), bundle, self.task.version)
        rooms = {_section(number) for number in range(len(held.rooms))}
        refs = upkeep.forward(self.refs, [*added, *outcome.state], held.kernel, rooms, clock)
        held.version = self.task.version
        _held[key] = held
        return refs

    def _waiting(self, held: _Held) -> int:
        """How many records wait, of those that count as read."""
        return sum(len(room) for each, room in zip(self.stage.inputs, held.rooms) if not each.broadcast)

    def _current(self, held: _Held | None, since: int) -> _Held:
        """The kernel as the last manifest has it: the one at hand, caught up, or a new one."""
        base = self.task.version - 1
        if held is None or held.version > base or held.version < reclaimed_up_to(self.refs):
            assert self.stage.kernel is not None
            kernel = self.stage.kernel(self.bucket, self.buckets)
            held = _Held(kernel, [WaitingRoom(mapped_schema(each.schema)) for each in self.stage.inputs])
        directory = self.task.home.state(self.task.lane)
        missed = [each for each in segments(self.refs) if each.high > held.version]
        for number, room in enumerate(held.rooms):
            kept = [read_tuples(directory, each) for each in missed if each.section == _section(number)]
            room.catch_up(kept, since - 1)
        rooms = {_section(number) for number in range(len(held.rooms))}
        for each in missed:
            if each.section not in rooms:
                held.kernel.restore(each.section, read_tuples(directory, each), each.high)
        held.version = base
        return held

    def _horizon(self, offset: Offset) -> int:
        """The instant before which everything is known at an offset."""
        return horizon(offset.positions.get(self.stage.name, {}).values())

    def _letters(self, ready: list[pa.RecordBatch], refused: Sequence[Refusals], made: _Made) -> int:
        """Dead letters for what the kernel refused; the record is told as the map side gave it."""
        count = 0
        for source, rows, each in zip(self.stage.inputs, ready, refused):
            if len(each):
                lost = rows.take(pa.array(each.rows))
                made.letters.append(
                    dead_table(
                        stage=self.stage.name,
                        version=self.stage.fingerprint,
                        stream=source.stream,
                        offsets=lost.column(OFFSET).to_pylist(),
                        records=row_texts(pa.table(lost).drop_columns([TIME, OFFSET])),
                        reasons=each.reasons,
                        attempts=1,
                        now=self.task.now,
                    )
                )
                count += len(each)
        return count

    def _spoiled(self, spoiled: Sequence[Spoiled], made: _Made) -> int:
        """Dead letters for rows that came up inside the kernel: they are of no stream but the stage's own making."""
        for each in spoiled:
            made.letters.append(
                dead_table(
                    stage=self.stage.name,
                    version=self.stage.fingerprint,
                    stream=self.stage.output.name,
                    offsets=None,
                    records=row_texts(pa.table(each.rows)),
                    reasons=each.reasons,
                    attempts=1,
                    now=self.task.now,
                )
            )
        return sum(each.rows.num_rows for each in spoiled)


def _section(number: int) -> str:
    """The section of the state in which an input waits."""
    return f"waiting.{number}"


def forget_kernels() -> None:
    """Drop every kernel that this process holds, as a worker that was lost would have."""
    _held.clear()
