"""The reduce side of a batch: the messages of one bucket in, durable files and a report out. Does not depend on Spark.

Each stage's runtime is taken from the kernel cache, caught up with the state segments that it missed, fed in steps, and put
back; one that is ahead of the last manifest (its batch was never committed) is built anew. Whatever happens to a task, only the
report of one that succeeded reaches the manifest.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.stages import Stage
from hayase.core.timeline import reach
from hayase.engine.batch.kernel_cache import KernelKey, kernels
from hayase.engine.batch.messages import Data, Inbox
from hayase.engine.batch.offsets import Batch, stage_clock
from hayase.engine.batch.outcomes import Task, TaskOutput
from hayase.engine.batch.report import Report
from hayase.engine.batch.scan_groups import scan_groups
from hayase.engine.batch.stage_runtime import StageRuntime, build_runtimes
from hayase.engine.batch.state import DamagedStateFile, SegmentRef
from hayase.engine.batch.steps import process_in_steps
from hayase.engine.definition.definitions import Definition

__all__ = ["reduce_bucket"]


def reduce_bucket(task: Task, definition: Definition, inbox: Inbox) -> Report:
    """Run every stage of a lane's definition over the messages of one bucket. A batch that only takes up a definition has none:
    then no stage runs, and the commit decides which state is kept."""
    alive = {(record.identity, record.fingerprint) for record in definition.records}
    kernels.retain(str(task.home.path), task.lane, task.epoch, alive)
    mirrored = [output.reads for output in definition.declaration.outputs]
    output = TaskOutput(task, inbox, [record.name for record in definition.records], mirrored)
    if inbox.batch.start.definition != inbox.batch.end.definition:
        return output.report()
    identities = {record.name: record.identity for record in definition.records}
    replayed = inbox.replayed
    for whole in scan_groups(definition, inbox.batch):
        for group in whole.split(replayed):
            began = time.perf_counter()
            data = inbox.data.get(group.names[0], ())  # the same for all stages of the group
            if group.stages[0].kernel is None:
                for stage in group.stages:
                    output.write_mapped(stage, data)
            elif inbox.bucket < (buckets := definition.buckets_of(group.names[0])):
                stages = [
                    _KernelStage(task, stage, identities[stage.name], inbox.bucket, inbox.batch)
                    for stage in group.stages
                ]
                try:
                    _run_kernels(stages, buckets, data, output)
                except DamagedStateFile as error:
                    raise error.of_all(task.states) from error
            seconds = (time.perf_counter() - began) / len(group.stages)
            for stage in group.stages:
                output.add_seconds(stage, seconds, data)
    return output.report()


@dataclass(frozen=True, slots=True)
class _KernelStage:
    """A stage with a kernel, in one batch and bucket."""

    task: Task
    stage: Stage
    identity: str
    bucket: int
    batch: Batch

    @property
    def refs(self) -> tuple[SegmentRef, ...]:
        """The state segments before the batch."""
        return self.task.states.get(self.identity, {}).get(self.bucket, ())

    @property
    def since(self) -> int:
        """The clock before the batch."""
        return stage_clock(self.batch.start.positions.get(self.stage.name, {}).values())

    @property
    def clock(self) -> int:
        """The clock after the batch."""
        return stage_clock(self.batch.end.positions.get(self.stage.name, {}).values())

    @property
    def key(self) -> KernelKey:
        task = self.task
        return KernelKey(str(task.home.path), task.lane, task.epoch, self.identity, self.stage.fingerprint, self.bucket)


def _run_kernels(stages: Sequence[_KernelStage], buckets: int, data: Sequence[Data], output: TaskOutput) -> None:
    """Run the kernels of stages that run together, if data came or the clock moved."""
    first = stages[0]
    task, since, clock = first.task, first.since, first.clock
    if not data and (first.stage.every is not None or since == clock):
        for stage in stages:
            output.keep_state(stage.identity, stage.refs)
        return
    runtimes = _take_runtimes(stages, buckets)
    arrived = _by_input(data, join=len(stages) > 1)
    admitted = []
    for stage, runtime in zip(stages, runtimes):
        runtime.catch_up(task.home.state(task.lane), stage.refs, since, task.version - 1)
        admitted.append(runtime.admit(arrived, clock))
    outcomes = process_in_steps(runtimes, admitted, since, clock, task.version)
    reach("kernels ran")
    for stage, runtime, records, outcome in zip(stages, runtimes, admitted, outcomes):
        refs = output.write_outcome(runtime, records, outcome, stage.refs, clock)
        output.keep_state(stage.identity, refs)
        runtime.version = task.version
    for stage, runtime in zip(stages, runtimes):
        kernels.put(stage.key, runtime)


def _take_runtimes(stages: Sequence[_KernelStage], buckets: int) -> list[StageRuntime]:
    """The runtimes of stages that run together: from the cache if all of them are there, were built together and can catch up
    with the last manifest, else new ones."""
    cached = [kernels.take(stage.key) for stage in stages]
    usable = [
        runtime
        for stage, runtime in zip(stages, cached)
        if runtime is not None and runtime.can_catch_up(stage.refs, stage.task.version)
    ]
    if len(usable) == len(stages):
        shared = usable[0].shared
        if shared is None and len(stages) == 1:
            return usable
        if shared is not None and list(shared.kernels) == [runtime.kernel for runtime in usable]:
            return usable
    return build_runtimes([stage.stage for stage in stages], stages[0].bucket, buckets)


def _by_input(data: Sequence[Data], join: bool) -> Mapping[int, Sequence[pa.RecordBatch]]:
    """The rows of messages by input; joined to one batch if several stages read them, so that this is done once."""
    batches: dict[int, list[pa.RecordBatch]] = {}
    for message in data:
        batches.setdefault(message.input, []).append(message.rows)
    if join:
        return {number: [pa.concat_batches(parts)] for number, parts in batches.items()}
    return batches
