"""The Spark source of a lane: plans batches in Spark's planning process, and runs the map side in Spark's tasks.

The planning process is started with every lane and must start quickly, so this module imports little; what the map side needs
is imported where it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from hayase.core.clock import now_us
from hayase.core.data_classes import dataclass
from hayase.core.stages import MAIN
from hayase.core.timeline import reach
from hayase.core.times import END
from hayase.engine.batch.gate import FileGate
from hayase.engine.batch.lane_governor import LaneGovernor
from hayase.engine.batch.offsets import Batch, Offset, Range, advance, mark_taken_repeats, ranges
from hayase.engine.definition.definitions import Definition, definition_of, latest_version
from hayase.engine.home import Home
from hayase.engine.logs import Logs, settled_end
from hayase.engine.source_backlogs import has_backlog
from hayase.streams.directory_watch import DirectoryWatch

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["POLL", "LaneSource"]

POLL = 0.1
"""Seconds that the source waits for new records before it reports to Spark that there are none."""
LOOK = 0.004
"""Least number of seconds between two looks at the logs; the governor of the lane may ask for more."""
FLOOD = 20_000
"""Records from which on it pays to wait for more: a batch by itself costs as much as processing many of them."""
CALM = 0.06
"""Seconds within which another `FLOOD` records must come for the flood to go on."""
PATIENCE = 0.3
"""Most seconds to wait during a flood; about what a batch costs by itself."""
GLANCE = 0.01
"""Seconds between two looks at the logs during a flood."""
ENOUGH = 500_000
"""Records for which a batch is worth its cost while a source has a backlog: what it costs by itself is then a third of it."""
LONGEST_WAIT = 1.0
"""Most seconds to wait for so many. Whoever reads a backlog waits for its end, and not for the next result."""
BACKLOG_GLANCE = 0.05
"""Seconds between two looks at the logs during a backlog."""
KEEP_AWAKE = 25
"""Seconds between batches without data: Spark ends workers that are idle for a minute."""


@dataclass
class MapTask(InputPartition):
    """One map task. The first task of a batch also sends the headers."""

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
        self._watch: DirectoryWatch | None = None
        self._sourced: set[str] = set()
        """The streams of this lane that have a source."""
        self._looked_at = self._look_at = float("-inf")
        self._tick, self._ticked_at = -1, float("-inf")

    def __reduce__(self) -> tuple[type[LaneReader], tuple[dict[str, str]]]:
        return LaneReader, (self._options,)  # the planning state is of no use to the workers

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        return dict(orjson.loads(self._initial))

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:  # noqa: N802
        """The offset at which the next batch ends. Waits up to `POLL` seconds for records, so that an idle lane costs
        little."""
        reach("planner asked")
        since = end = Offset.from_json(start)
        until = time.monotonic() + POLL
        while end == since and (moment := time.monotonic()) < until:
            if moment < self._look_at:  # the governor said when the next look is worthwhile
                self._rest(min(self._look_at, until) - moment)
            else:
                end = self._plan(since)
        if self._lane == MAIN and self._governor.sees_ends() and not self._governor.left_behind:
            end = after_flood(since, end, lambda: self._plan(since))
            end = during_backlog(since, end, lambda: self._plan(since), self._has_backlog, time.sleep)
        reach("batch planned" if end != since else "nothing to plan")
        return end.as_json()

    def _rest(self, seconds: float) -> None:
        """Wait until the next look. Under a policy that decides by what waits, new files in the logs bring it forward."""
        if self._watch is None or not self._governor.sees_ends():
            time.sleep(seconds)
        elif self._watch.wait(seconds):
            self._look_at = self._looked_at + LOOK
            if (ahead := self._look_at - time.monotonic()) > 0:
                time.sleep(ahead)

    def _watch_inputs(self, definition: Definition) -> None:
        """Watch the logs that the lane reads, before a look at them: what comes after it is not missed."""
        self._watch = self._watch or DirectoryWatch()
        streams = {stream for record in definition.records for stream in record.inputs}
        self._sourced = {source.stream for source in definition.declaration.sources if source.stream in streams}
        self._watch.watch(self._home.path / "streams" / stream for stream in streams)
        self._watch.forget()

    def _plan(self, since: Offset) -> Offset:
        """Look at the logs once: the offset at which a batch ends that begins now."""
        now, moment, governor = now_us(), time.monotonic(), self._governor
        definition = definition_of(self._home, latest_version(self._home)).of_lane(self._lane)
        self._watch_inputs(definition)
        logs = Logs(self._home, definition)
        look = governor.decide(definition, since, logs, self._gate.grants(), self._gate.feedback(), now, moment)
        tick = self._next_tick(since, moment)
        end = advance(since, definition, logs, look.grants, now, tick, settled_end(self._home))
        mark_taken_repeats(end, logs)
        at_once = end != since and governor.left_behind
        self._looked_at = moment
        self._look_at = moment if at_once else moment + max(LOOK, look.poll_after)
        governor.show(self._home, since, logs, now, moment)
        return end

    def _has_backlog(self) -> bool:
        """Whether a source of this lane's streams has a backlog."""
        now = now_us()
        return any(has_backlog(self._home, stream, now) for stream in self._sourced)

    def _next_tick(self, since: Offset, moment: float) -> int:
        """The tick of a batch that begins now: it changes when the lane starts, and then every `KEEP_AWAKE` seconds."""
        if since.tick != self._tick:
            first, self._tick = self._tick < 0, since.tick
            self._ticked_at = self._ticked_at if first else moment
        return since.tick + (self._awake and moment >= self._ticked_at + KEEP_AWAKE)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[MapTask]:
        """The map tasks of a batch."""
        reach("tasks asked")
        batch = Batch(Offset.from_json(start), Offset.from_json(end))
        tasks = ranges(batch.start, batch.end, self._gate.feedback().slots or self._slots)
        return [MapTask(number, task, batch.as_blob()) for number, task in enumerate(tasks)]

    def read(self, partition: MapTask) -> Iterator[pa.RecordBatch]:
        """Run a map task; its messages, encoded."""
        from hayase.engine.batch.exchange import write_large
        from hayase.engine.batch.map_side import map_task
        from hayase.engine.batch.messages import encode, headers

        reach("map begins")
        batch = Batch.from_blob(partition.batch)
        definition = definition_of(self._home, batch.end.definition).of_lane(self._lane)
        if partition.number == 0:
            yield encode(headers(batch, definition.tasks))
        logs = Logs(self._home, definition)
        mapped = map_task(definition, logs, batch, partition.task, partition.number, now_us())
        yield from map(encode, write_large(mapped, self._home.exchange(self._lane)))
        reach("map ends")

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the manifest is the commit."""

    def stop(self) -> None:
        """Nothing is open."""


def after_flood(
    since: Offset, end: Offset, plan: Callable[[], Offset], sleep: Callable[[float], None] = time.sleep
) -> Offset:
    """The end of a batch that waits while records come in bulk, such as a file. Single records are not waited for."""
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


def during_backlog(
    since: Offset,
    end: Offset,
    plan: Callable[[], Offset],
    has_backlog: Callable[[], bool],
    sleep: Callable[[float], None],
) -> Offset:
    """The end of a batch that waits for more records of a source with a backlog. Each batch takes time from the source, which is
    on the same machine or waits for the same disk: fewer and larger ones let the whole get on."""
    for _ in range(round(LONGEST_WAIT / BACKLOG_GLANCE)):
        if end == since or _count_records(since, end) >= ENOUGH or _is_finished(end) or not has_backlog():
            break
        sleep(BACKLOG_GLANCE)
        end = plan()
    return end


def _is_finished(end: Offset) -> bool:
    """Whether all streams are finished."""
    return all(position.clock >= END for inputs in end.positions.values() for position in inputs.values())


def _count_records(before: Offset, end: Offset) -> int:
    """The number of records between two offsets; a record that several stages read counts for each."""
    return sum(
        to.at - before.positions[stage][stream].at
        for stage, inputs in end.positions.items()
        for stream, to in inputs.items()
        if stream in before.positions.get(stage, {})
    )


class LaneSource(DataSource):
    """The source of a lane, registered with Spark as `hayase_lane`."""

    @classmethod
    def name(cls) -> str:
        return "hayase_lane"

    def schema(self) -> str:
        return "bucket int, kind string, stages array<string>, input int, first bigint, blob binary"

    def streamReader(self, schema: object) -> LaneReader:  # noqa: N802
        return LaneReader(self.options)
