"""Writing what the stages of a bucket produce in a batch: staged segments, sorted runs, state files and dead letters.

The bytes of all files are durable when `TaskOutput.report` returns; the commit makes their names durable, by syncing the
directories before the manifest. They are named nowhere but in the report; what no manifest names is cleared away.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import TableDeclaration
from hayase.core.stages import OFFSET, TIME, FailedRows, Refusals, Stage
from hayase.engine.batch.messages import Data, Inbox
from hayase.engine.batch.placed_rows import write_placed
from hayase.engine.batch.report import Figures, Part, PlacedRows, Report, Run, batch_marker
from hayase.engine.batch.stage_runtime import Admitted, StageRuntime
from hayase.engine.batch.state import Bundle, SegmentRef, Upkeep, states_from_json
from hayase.engine.batch.steps import BatchOutcome
from hayase.engine.home import Home, writing
from hayase.streams.dead_letters import DEAD, dead_table, letters_by_stream
from hayase.streams.records import row_texts
from hayase.streams.reorder_buffer import Ordered, rows_at
from hayase.streams.segments import stage as stage_segment

__all__ = ["Task", "TaskOutput"]


@dataclass(frozen=True, slots=True)
class Task:
    """What the task of a bucket must know besides its messages: where files lie, and the state that the last manifest names, by
    stage identity and bucket. `version` is the version of the manifest that will commit the batch."""

    home: Home
    lane: str
    version: int
    epoch: str
    states: Mapping[str, Mapping[int, tuple[SegmentRef, ...]]]
    now: int

    def as_json(self) -> bytes:
        home = str(self.home.path)
        return orjson.dumps(
            (home, self.lane, self.version, self.epoch, self.states, self.now), option=orjson.OPT_NON_STR_KEYS
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Task:
        home, lane, version, epoch, states, now = orjson.loads(text)
        return cls(Home(Path(home)), lane, version, epoch, states_from_json(states), now)


class TaskOutput:
    """What a task has produced so far; `report` ends it."""

    def __init__(self, task: Task, inbox: Inbox, stages: Iterable[str], mirrored: Iterable[str] = ()) -> None:
        """`mirrored` are the tables that outputs read: their runs name the keys that change."""
        self._task, self._inbox, self._mirrored = task, inbox, frozenset(mirrored)
        self._directory = task.home.staged(task.lane)
        self._bundle = Bundle(
            task.home.state(task.lane), f"{task.version:012d}-{inbox.bucket}-{uuid.uuid4().hex}.state"
        )
        self._parts: list[Part] = []
        self._placed: list[PlacedRows] = []
        self._runs: list[Run] = []
        self._states: dict[str, tuple[SegmentRef, ...]] = {}
        self._letters: list[pa.Table] = list(inbox.letters)
        self._figures = {stage: Figures() for stage in stages}
        self._kernel_seconds: dict[str, dict[str, float]] = {}
        for message in inbox.figures:
            for name, figures in message.figures.items():
                self._figures[name].add(figures)
                self._figures[name].worked(message.stream, figures.read, figures.seconds)

    def keep_state(self, identity: str, refs: tuple[SegmentRef, ...]) -> None:
        """Set the state segments of a stage after the batch."""
        self._states[identity] = refs

    def write_mapped(self, stage: Stage, data: Sequence[Data]) -> None:
        """Write what the map side sent for a stage without a kernel: the entries of a table as one sorted run, the records of a
        stream chunk by chunk in the order of the log."""
        if isinstance(stage.output, TableDeclaration):
            if data:
                self._write_run(stage, [message.rows for message in data])
            return
        for message in sorted(data, key=lambda message: message.first):
            self._write_part(stage.name, pa.table(message.rows), stage.output, order=message.first)
            self._figures[stage.name].written += message.rows.num_rows

    def write_outcome(
        self,
        runtime: StageRuntime,
        admitted: Admitted,
        outcome: BatchOutcome,
        refs: Sequence[SegmentRef],
        clock: int,
    ) -> tuple[SegmentRef, ...]:
        """Write what a kernel produced: output, dead letters and state. Returns the state segments after the batch."""
        stage, figures = runtime.stage, self._figures[runtime.stage.name]
        if outcome.rows.num_rows:
            self._write_output(stage, outcome)
            figures.written += outcome.rows.num_rows
        if any(outcome.seconds):
            self._kernel_seconds[stage.name] = _by_stream(stage, outcome.seconds)
        refused = self._add_refusals(stage, admitted.ready, outcome.refused)
        for spoiled in outcome.spoiled:
            self._add_spoiled(stage, spoiled)
            if spoiled.input is None:
                figures.spoiled += spoiled.rows.num_rows
            else:  # they are records
                refused += spoiled.rows.num_rows
        waiting = runtime.count_waiting() - admitted.waited
        figures.dead += refused
        figures.waiting += waiting
        figures.processed -= waiting + refused  # the map side has counted them as processed
        upkeep = Upkeep(self._task.home.state(self._task.lane), self._bundle, self._task.version, stage.name)
        tuples = [*admitted.added, *outcome.state]
        return upkeep.forward(refs, tuples, runtime.kernel, runtime.buffer_sections, clock)

    def add_seconds(self, stage: Stage, seconds: float, data: Sequence[Data]) -> None:
        """Account the time that a stage took. It is divided among the streams as the kernel measured it, else by the bytes that
        came."""
        self._figures[stage.name].seconds += seconds
        sizes: dict[str, int] = {}
        for message in data:
            stream = stage.inputs[message.input].stream
            sizes[stream] = sizes.get(stream, 0) + message.rows.nbytes
        total = sum(sizes.values())
        by_size = {stream: seconds * (size / max(total, 1)) for stream, size in sizes.items()}
        for stream, worked in self._kernel_seconds.get(stage.name, by_size).items():
            self._figures[stage.name].worked(stream, 0, worked)

    def report(self) -> Report:
        """Write the dead letters, make the state file durable, and report everything."""
        if self._letters:
            self._write_letters(pa.concat_tables(self._letters))
        self._bundle.close()
        return Report(
            self._inbox.bucket,
            self._inbox.batch,
            tuple(self._parts),
            self._states,
            self._figures,
            tuple(self._runs),
            tuple(self._placed),
        )

    def _write_output(self, stage: Stage, outcome: BatchOutcome) -> None:
        """Write the output rows of a kernel: a part, or if rows of other buckets come between them, a file for the commit."""
        stream = stage.stream
        if outcome.places is None:
            self._write_part(stream.name, outcome.rows, stream, order=self._inbox.bucket)
        else:
            name = f"{self._task.version:012d}-{uuid.uuid4().hex}.placed"
            self._placed.append(write_placed(self._directory, name, stream.name, outcome.rows, outcome.places))

    def _write_part(self, stream: str, rows: pa.Table, declaration: Any, order: int) -> None:
        name = f"{self._task.version:012d}-{uuid.uuid4().hex}.seg"
        stage_segment(self._directory, rows, declaration, name, written_at=self._task.now, confirm=False)
        self._parts.append(Part(stream, name, rows.num_rows, order))

    def _write_letters(self, letters: pa.Table) -> None:
        """Write dead letters: those of a build, under the names that its stages and streams will have, apart from the others."""
        for name, rows in letters_by_stream(letters).items():
            self._write_part(name, rows, DEAD, order=self._inbox.bucket)

    def _write_run(self, stage: Stage, batches: list[pa.RecordBatch]) -> None:
        from hayase.tables.stores import write_run  # not loaded by pipelines without tables

        name = f"{self._task.version:012d}-{uuid.uuid4().hex}.run"
        with writing(f"the run {self._directory / name}"):
            marker = batch_marker(self._task.lane, self._task.version)
            count = write_run(self._directory / name, batches, marker, with_keys=stage.output.name in self._mirrored)
        self._runs.append(Run(stage.name, name, count))
        self._figures[stage.name].written += count

    def _add_refusals(self, stage: Stage, ready: Sequence[Ordered], refused: Sequence[Refusals]) -> int:
        """Add dead letters for the records that a kernel refused, as the map side sent them, and return how many there are. A
        record that several inputs refused is one."""
        count = 0
        known: set[tuple[str, int]] = set()
        for source, rows, of_input in zip(stage.inputs, ready, refused):
            refusals = _without_known(of_input, source.stream, rows, known)
            if len(refusals):
                lost = rows_at(rows, np.asarray(refusals.rows))
                offsets = lost.column(OFFSET).to_pylist()
                records = pa.table(lost).drop_columns([TIME, OFFSET])
                self._add_letters(stage, source.stream, offsets, records, refusals)
                count += len(refusals)
        return count

    def _add_spoiled(self, stage: Stage, spoiled: FailedRows) -> None:
        """Add dead letters for rows that arose inside the kernel. They belong to the stage's own output, unless they are
        records of an earlier batch."""
        streams, offsets = spoiled.streams, spoiled.offsets
        if spoiled.input is not None and spoiled.ids is not None:
            offsets = spoiled.ids.tolist()
            streams = [stage.inputs[spoiled.input].stream] * len(offsets)
        self._add_letters(stage, streams or stage.output.name, offsets or None, pa.table(spoiled.rows), spoiled)

    def _add_letters(
        self,
        stage: Stage,
        stream: str | Sequence[str],
        offsets: Sequence[int] | None,
        records: pa.Table,
        reasons: Refusals | FailedRows,
    ) -> None:
        letters = dead_table(
            stage=stage.name,
            version=stage.fingerprint,
            stream=stream,
            offsets=offsets,
            records=row_texts(records),
            reasons=reasons.reasons,
            attempts=reasons.attempts or 1,
            now=self._task.now,
        )
        self._letters.append(letters)
        self._figures[stage.name].count_kinds(Counter(reason.kind.value for reason in reasons.reasons))


def _by_stream(stage: Stage, seconds: Sequence[float]) -> dict[str, float]:
    """The seconds of a kernel's inputs, added up by stream. What a batch costs besides is not charged to records."""
    by_stream: dict[str, float] = {}
    for source, took in zip(stage.inputs, seconds):
        by_stream[source.stream] = by_stream.get(source.stream, 0.0) + took
    return by_stream


def _without_known(refused: Refusals, stream: str, rows: Ordered, known: set[tuple[str, int]]) -> Refusals:
    """The refusals of an input without the records in `known` (stream and offset); the others are added to it."""
    if not len(refused):
        return refused
    records = [(stream, offset) for offset in rows.column(OFFSET).to_numpy()[refused.rows].tolist()]
    new = [at for at, record in enumerate(records) if record not in known]
    known.update(records)
    if len(new) == len(refused):
        return refused
    reasons = [refused.reasons[at] for at in new]
    return Refusals(refused.rows[new], reasons, [refused.attempts[at] for at in new] if refused.attempts else ())
