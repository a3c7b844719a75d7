"""The source of a lane: plans batches in Spark's planning process, and runs the map side in its tasks.

The planning process starts anew with every lane and must be quick about it, so this module loads little; what the map side
needs is loaded where it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from hayase.core.clock import now_us
from hayase.core.stages import MAIN
from hayase.core.times import END
from hayase.engine.batch.gate import FileGate
from hayase.engine.batch.lane_governor import LaneGovernor
from hayase.engine.batch.offsets import Batch, Offset, Range, advance, ranges
from hayase.engine.definition.definitions import Definition, definition_of, latest_version
from hayase.engine.home import Home
from hayase.engine.logs import Logs, settled_end

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["POLL", "LaneSource"]

POLL = 0.1
"""Seconds that the source looks out for new records before it tells Spark that there are none."""
LOOK = 0.004
"""Seconds between two looks at the logs, at least; the governor of the lane says how many."""
FLOOD = 20_000
"""Records from which on it pays to wait for those behind them: a batch costs what many of them do."""
CALM = 0.06
"""Seconds in which so many must come for a flood to last."""
PATIENCE = 0.3
"""Seconds that a flood is waited for, at most; about what a batch costs by itself."""
GLANCE = 0.01
"""Seconds between two glances at a flood."""
KEEP_AWAKE = 25
"""Seconds between batches without data: Spark ends workers that were idle for a minute."""


@dataclass
class MapTask(InputPartition):
    """One task of the map side. The first of a batch also sends the headers."""

    number: int
    task: tuple[Range, ...]
    batch: bytes


class LaneReader(DataSourceStreamReader):
    """Plans batches (in Spark's planning process) and reads them (in the workers)."""

    def __init__(self, options: dict[str, str]):
        self._options = options
        self._home, self._lane = Home(Path(options["home"])), options["lane"]
        self._slots, self._awake = int(options["slots"]), options["awake"] == "true"
        self._initial = options["initial"]
        self._gate = FileGate(self._home.gate(self._lane))
        self._governor = LaneGovernor(self._lane, self._slots)
        self._look_at = float("-inf")
        self._tick, self._ticked_at = -1, float("-inf")

    def __reduce__(self) -> tuple[type[LaneReader], tuple[dict[str, str]]]:
        return LaneReader, (self._options,)  # what has been seen here is of no use to the workers

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        return dict(orjson.loads(self._initial))

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends. Waits a little for records to come, so that an idle lane costs next to nothing."""
        since = end = Offset.from_json(start)
        until = time.monotonic() + POLL
        while end == since and (moment := time.monotonic()) < until:
            if moment < self._look_at:  # the last look said when the next one is worth it
                time.sleep(min(self._look_at, until) - moment)
            else:
                end = self._plan(since)
        if self._lane == MAIN and self._governor.sees_ends() and not self._governor.left_behind:
            end = after_flood(since, end, lambda: self._plan(since))
        return end.as_json()

    def _plan(self, since: Offset) -> Offset:
        """One look at the logs: where a batch ends that begins now."""
        now, moment, governor = now_us(), time.monotonic(), self._governor
        definition = _definition_of_lane(self._home, latest_version(self._home), self._lane)
        logs = Logs(self._home, definition)
        look = governor.decide(definition, since, logs, self._gate.grants(), self._gate.feedback(), now, moment)
        tick = self._next_tick(since, moment)
        end = advance(since, definition, logs, look.grants, now, tick, settled_end(self._home))
        at_once = end != since and governor.left_behind
        self._look_at = moment if at_once else moment + max(LOOK, look.look_again)
        governor.show(self._home, since, logs, now, moment)
        return end

    def _next_tick(self, since: Offset, moment: float) -> int:
        """The tick of a batch that begins now: another one at once when the lane starts, then at every interval."""
        if since.tick != self._tick:
            first, self._tick = self._tick < 0, since.tick
            self._ticked_at = self._ticked_at if first else moment
        return since.tick + (self._awake and moment >= self._ticked_at + KEEP_AWAKE)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[MapTask]:
        batch = Batch(Offset.from_json(start), Offset.from_json(end))
        tasks = ranges(batch.start, batch.end, self._gate.feedback().slots or self._slots)
        return [MapTask(number, task, batch.as_blob()) for number, task in enumerate(tasks)]

    def read(self, partition: MapTask) -> Iterator[pa.RecordBatch]:
        from hayase.engine.batch.exchange import write_large
        from hayase.engine.batch.map_side import map_task
        from hayase.engine.batch.messages import encode, headers

        batch = Batch.from_blob(partition.batch)
        definition = _definition_of_lane(self._home, batch.end.definition, self._lane)
        if partition.number == 0:
            yield encode(headers(batch, definition.buckets))
        logs = Logs(self._home, definition)
        mapped = map_task(definition, logs, batch, partition.task, partition.number, now_us())
        yield from map(encode, write_large(mapped, self._home.exchange(self._lane)))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the manifest is the commit."""

    def stop(self) -> None:
        """Nothing is open."""


def after_flood(
    since: Offset, end: Offset, plan: Callable[[], Offset], sleep: Callable[[float], None] = time.sleep
) -> Offset:
    """Where a batch ends that waits for what comes in bulk, such as a file; what trickles in is not waited for."""
    before, calm = since, CALM
    for _ in range(round(PATIENCE / GLANCE)):
        if _count_records(before, end) >= FLOOD:
            before, calm = end, 0.0
        if calm >= CALM or end == since or _is_finished(end):
            break
        sleep(GLANCE)
        calm += GLANCE
        end = plan()
    return end


def _is_finished(end: Offset) -> bool:
    """Whether nothing can follow."""
    return all(each.clock >= END for inputs in end.positions.values() for each in inputs.values())


def _count_records(before: Offset, end: Offset) -> int:
    """Records between two offsets; those that several stages read count for each."""
    return sum(
        to.at - before.positions[stage][stream].at
        for stage, inputs in end.positions.items()
        for stream, to in inputs.items()
        if stream in before.positions.get(stage, {})
    )


class LaneSource(DataSource):
    """The source of a lane, known to Spark as `hayase_lane`."""

    @classmethod
    def name(cls) -> str:
        return "hayase_lane"

    def schema(self) -> str:
        return "bucket int, kind string, stages array<string>, input int, first bigint, blob binary"

    def streamReader(self, schema: object) -> LaneReader:  # noqa: N802
        return LaneReader(self.options)


@lru_cache(maxsize=64)
def _definition_of_lane(home: Home, version: int, lane: str) -> Definition:
    return definition_of(home, version).of_lane(lane)
