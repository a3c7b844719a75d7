"""From a stage to its kernel in this process: building it, restoring its state, and handing it records in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.errors import DamagedState
from hayase.core.keys import raw_values
from hayase.core.schemas import empty_rows
from hayase.core.stages import OFFSET, TIME, Kernel, SharedKernels, Stage, Tuples
from hayase.engine.batch.messages import mapped_schema
from hayase.engine.batch.state import SegmentRef, read_tuples, reclaimed_up_to, segments
from hayase.streams.reorder_buffer import Ordered, ReorderBuffer

__all__ = ["Admitted", "StageRuntime", "build_runtimes"]


@dataclass(frozen=True, slots=True)
class Admitted:
    """Records that entered a runtime in a batch: what is `ready` for the kernel by input, the state of those that wait now, and
    how many waited before."""

    ready: Sequence[Ordered]
    added: Sequence[Tuples]
    waited: int


@dataclass(slots=True)
class StageRuntime:
    """A stage as this process runs it for one bucket: its kernel and a reorder buffer for each input, both as of `version`.

    Stages of a shared scan that were built together have the same `shared` kernels.
    """

    stage: Stage
    kernel: Kernel
    buffers: list[ReorderBuffer]
    shared: SharedKernels | None = None
    version: int = 0

    def can_catch_up(self, refs: Sequence[SegmentRef], version: int) -> bool:
        """Whether it can be brought to the state of the last manifest, which is the one before `version`."""
        return reclaimed_up_to(refs) <= self.version < version

    def catch_up(self, directory: Path, refs: Sequence[SegmentRef], since: int, version: int) -> None:
        """Restore the state segments that it has not seen; then it is at `version`. Records before `since` have left the
        buffers."""
        missed = [ref for ref in segments(refs) if ref.high > self.version]
        for section, buffer in zip(self.buffer_sections, self.buffers):
            rows = [read_tuples(directory, ref, self.stage.name) for ref in missed if ref.section == section]
            buffer.catch_up(rows, since - 1)
        for ref in missed:
            if ref.section not in self.buffer_sections:
                tuples = read_tuples(directory, ref, self.stage.name)
                try:
                    self.kernel.restore(ref.section, tuples, ref.high)
                except DamagedState as error:
                    raise DamagedState(f'the state of stage "{self.stage.name}" cannot be used: {error}') from error
        self.version = version

    @property
    def buffer_sections(self) -> list[str]:
        """The sections of the state that hold the reorder buffers, by input."""
        return [f"waiting.{number}" for number in range(len(self.buffers))]

    def admit(self, arrived: Mapping[int, Sequence[pa.RecordBatch]], clock: int) -> Admitted:
        """Take the batches that arrived for each input. The records before the clock are ready, in (event time, offset) order;
        a stage that fires takes everything, in the order of the log."""
        if self.stage.every is not None:
            return Admitted([self._in_log_order(number, arrived) for number in range(len(self.buffers))], [], 0)
        waited = self.count_waiting()
        ready, added = [], []
        for number, (section, buffer) in enumerate(zip(self.buffer_sections, self.buffers)):
            names = mapped_schema(self.stage.inputs[number].schema).names
            leaving, waiting = buffer.enter([rows.select(names) for rows in arrived.get(number, ())], clock - 1)
            ready.append(leaving)
            until = int(waiting.column(TIME)[-1].as_py()) if waiting.num_rows else None
            added.append(Tuples(section, waiting, until))
        return Admitted(ready, added, waited)

    def _in_log_order(self, number: int, arrived: Mapping[int, Sequence[pa.RecordBatch]]) -> pa.RecordBatch:
        schema = mapped_schema(self.stage.inputs[number].schema)
        batches = [rows.select(schema.names) for rows in arrived.get(number, ())]
        if not batches:
            return empty_rows(schema)
        whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        offsets = raw_values(whole.column(OFFSET), np.int64)
        if bool(np.all(offsets[1:] >= offsets[:-1])):
            return whole
        return whole.take(pa.array(np.argsort(offsets, kind="stable")))

    def count_waiting(self) -> int:
        """How many records wait that count as read. A record that several inputs read counts in the first of them."""
        inputs = reversed([*enumerate(self.stage.inputs)])
        counted = {source.stream: number for number, source in inputs if source.counts}
        return sum(len(self.buffers[number]) for number in counted.values())


def build_runtimes(stages: Sequence[Stage], bucket: int, buckets: int) -> list[StageRuntime]:
    """New runtimes without state, for stages that run together."""
    first, shared = stages[0], None
    if len(stages) > 1 and first.shared_scan is not None:
        shared = first.shared_scan.share_kernels(stages, bucket, buckets)
        kernels = shared.kernels
    else:
        assert first.kernel is not None
        kernels = [first.kernel(bucket, buckets)]
    return [
        StageRuntime(stage, kernel, [ReorderBuffer(mapped_schema(source.schema)) for source in stage.inputs], shared)
        for stage, kernel in zip(stages, kernels, strict=True)
    ]
