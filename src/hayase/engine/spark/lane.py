"""A lane on Spark: many stages in one Structured Streaming query whose plan never changes.

    source.read() = map side ──messages per bucket──▶ repartitionById ──▶ mapInArrow = reduce side ──reports──▶ commit

Spark plans batches in a process of its own, map tasks and reduce tasks run in Python workers, the commit in the pipeline's
process. What they do is in `engine.batch` (`offsets`, `map_side`, `reduce_side`) and `engine.commit.manifests`; this module
connects them to Spark. Every start of a lane is an *epoch* with a Spark checkpoint of its own. The newest manifest alone says
where to go on, so a batch that was planned and never committed leaves no trace.
"""

from __future__ import annotations

import logging
import math
import shutil
import time
import uuid
from collections.abc import Callable

import orjson
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from hayase.core.clock import now_us
from hayase.core.errors import LaneFailed
from hayase.core.timeline import reach
from hayase.engine.batch import exchange
from hayase.engine.batch.gate import FileGate, Grants
from hayase.engine.batch.idleness import is_caught_up
from hayase.engine.batch.offsets import Offset, halted_stages, ranges
from hayase.engine.batch.outcomes import Task
from hayase.engine.batch.small_batches import is_small
from hayase.engine.commit.manifests import Commits
from hayase.engine.definition.definitions import definition_of, latest_version
from hayase.engine.home import Home
from hayase.engine.logs import Logs
from hayase.engine.spark.checkpoint_files import checkpoint_location
from hayase.engine.spark.failures import failure_of
from hayase.engine.spark.lane_source import POLL
from hayase.engine.spark.reduction import Reduction
from hayase.engine.spark.restarts import Restarts
from hayase.engine.spark.session import python_starts, task_slots

__all__ = ["Lane"]


class Lane:
    """One running lane. The caller holds the lock of the home and is the only one to commit.

    `on_commit` is called after a batch is committed. `before_change` is called with the version before the commit of a batch
    that takes up another definition; by then `arrived` is that version, and no task of the lane runs under an older one.
    """

    def __init__(
        self,
        session: SparkSession,
        home: Home,
        lane: str,
        *,
        commits: Commits,
        awake: bool = False,
        on_commit: Callable[[], None] = lambda: None,
        before_change: Callable[[int], None] = lambda version: None,
    ):
        self._session, self._home, self._lane = session, home, lane
        self._gate = FileGate(home.gate(lane))
        self._at_once = not awake
        self._gate.set(Grants(at_once=self._at_once))
        self._commits = commits
        self._on_commit, self._before_change = on_commit, before_change
        self._slots, self._awake = task_slots(session), awake
        self._restarts, self._restart_at = Restarts(), math.inf
        self._reduction = Reduction(session)
        self._query: StreamingQuery | None = None
        self.trouble: str | None = None
        self.has_committed = False
        self._begin()

    def _begin(self) -> None:
        """Start the query from the newest manifest; if Spark fails to start it, try again after a pause."""
        self._restart_at = math.inf
        self.manifest = self._commits.take_up(self._commits.recover(), now_us())
        self.arrived = self.manifest.offset.definition
        exchange.clear(self._home.exchange(self._lane))
        self._send_feedback()
        self._epoch = uuid.uuid4().hex
        self._started = now_us()
        logging.getLogger(__name__).info(
            "lane %s starts after batch %d, definition %d", self._lane, self.manifest.version, self.arrived
        )
        try:
            self._query = self._start()
        except (Py4JJavaError, PySparkException) as error:
            self._fail(error)

    def _start(self) -> StreamingQuery:
        checkpoints = self._home.checkpoints(self._lane)
        shutil.rmtree(checkpoints, ignore_errors=True)
        session = self._session
        blobs = (
            session.readStream.format("hayase_lane")
            .option("home", str(self._home.path))
            .option("lane", self._lane)
            .option("slots", self._slots)
            .option("awake", str(self._awake).lower())
            .option("initial", orjson.dumps(self.manifest.offset.as_json()).decode())
            .load()
        )
        session.sparkContext.setLocalProperty("spark.scheduler.pool", self._lane)
        return (
            blobs.writeStream.foreachBatch(self._run_batch)
            .queryName(f"hayase-{self._lane}")
            .option("checkpointLocation", checkpoint_location(session, checkpoints / self._epoch))
            .start()
        )

    def _run_batch(self, blobs: DataFrame, batch: int) -> None:
        """Reduce and commit the messages of a batch."""
        base = self.manifest
        if base.epoch == self._epoch and batch <= base.batch:  # committed, although Spark has not recorded it
            return
        reach("batch handed over")
        began = time.perf_counter()
        task = Task(self._home, self._lane, base.version + 1, self._epoch, base.states, now_us())
        end = self._planned_end(batch)
        if is_small(self._lane, base.offset, end, base.totals):
            messages = blobs.coalesce(1)
        else:
            messages = blobs.repartitionById(self._tasks(base.offset, end), "bucket")
        reports = self._reduction.reports(task, messages)
        took = time.perf_counter() - began
        reach("reports collected")
        planned = reports[0].batch.end
        if planned.definition != base.offset.definition:
            self.arrived = planned.definition
            self._before_change(planned.definition)
        self.manifest = self._commits.commit(base, self._epoch, batch, reports, now_us(), took)
        self.trouble, self.has_committed = None, True
        self._restarts.worked(records=any(ranges(base.offset, planned, slots=1)))
        self._send_feedback()
        exchange.clear(self._home.exchange(self._lane))
        if self.manifest.version % 64 == 0:
            self._commits.sweep(self.manifest)
        self._on_commit()
        reach("batch notified")

    def _tasks(self, start: Offset, end: Offset | None) -> int:
        """The number of reduce tasks of a batch: that of its definition, or enough for any that it may have."""
        versions = {end.definition} if end is not None else {start.definition, latest_version(self._home)} - {0}
        return max(definition_of(self._home, version).tasks for version in versions)

    def _planned_end(self, batch: int) -> Offset | None:
        """Where a batch ends, by Spark's log of offsets; None if that cannot be read."""
        path = self._home.checkpoints(self._lane) / self._epoch / "offsets" / str(batch)
        try:
            return Offset.from_json(orjson.loads(path.read_bytes().splitlines()[-1]))
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            return None

    def is_idle(self) -> bool:
        """Whether everything that is in the logs now has been committed."""
        return is_caught_up(self._home, self._lane, self.manifest.offset, self._started)

    def waiting(self) -> dict[tuple[str, str], tuple[int, int]]:
        """By stage and stream, the offset reached and the end of each queue from which records could be taken now."""
        offset = self.manifest.offset
        if not offset.definition:
            return {}
        definition = definition_of(self._home, offset.definition).of_lane(self._lane)
        logs = Logs(self._home, definition)
        halted = halted_stages(offset, definition, logs, self._at_once, now_us())
        ends = logs.ends({stream for inputs in offset.positions.values() for stream in inputs})
        return {
            (stage, stream): (position.at, ends[stream])
            for stage, inputs in offset.positions.items()
            for stream, position in inputs.items()
            if stage not in halted and position.at < ends.get(stream, 0)
        }

    def _send_feedback(self) -> None:
        """Send the work done so far and the number of task slots to the planning process."""
        self._gate.send_feedback(self._slots, {stage: figures.work for stage, figures in self.manifest.totals.items()})

    def count_slots(self) -> None:
        """Update the number of task slots, since executors may have come or gone."""
        slots = task_slots(self._session)
        if slots != self._slots:
            self._slots = slots
            self._send_feedback()

    @property
    def is_active(self) -> bool:
        """Whether the query is running."""
        return self._query is not None and bool(self._query.isActive)

    def check(self) -> None:
        """Raise LaneFailed if the query has failed. A query that ended because a process was lost, or did not start in time on
        a busy machine, is started again after a pause; `trouble` says why until the next commit."""
        if time.monotonic() >= self._restart_at:
            self._begin()
        if self._restart_at < math.inf or self._query is None or self._query.isActive:
            return
        error = self._query.exception()
        if error is not None:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Schedule a restart of the lane if that can help; otherwise raise LaneFailed."""
        failure, moment = failure_of(str(error), self._home.spark_log), time.monotonic()
        slow = failure.again == "slow" and python_starts()  # otherwise Python may not be able to start here at all
        if failure.again == "never" or not self._restarts.allow(moment, free=slow):
            raise LaneFailed(f"lane {self._lane} failed: {failure}") from error
        self.trouble = f"lane {self._lane} is started again: {failure.cause}"
        logging.getLogger(__name__).warning(self.trouble)
        self._restart_at = moment + self._restarts.pause()

    def drain(self, patience: float = 600.0) -> None:
        """Wait for the running batch to finish, begin no other, and stop."""
        if self.is_active:
            self._gate.set(Grants(open=False, at_once=self._at_once))
            until = time.monotonic() + patience
            quiet_since: float | None = None
            while self.is_active and time.monotonic() < until:
                if self.in_flight():  # a batch that was planned just before the gate closed may still appear
                    quiet_since = None
                elif quiet_since is None:
                    quiet_since = time.monotonic()
                elif time.monotonic() >= quiet_since + 2 * POLL:
                    break
                time.sleep(0.01)
        self.stop()
        self._gate.clear()
        self._commits.sweep(self.manifest)  # what attempts on a lost executor left

    @property
    def run_id(self) -> str | None:
        """Spark's id of the running query, which is another one after each start; None before the first start."""
        return None if self._query is None else str(self._query.runId)

    def in_flight(self) -> bool:
        """Whether Spark has planned a batch that is not committed yet, by the two logs in its checkpoint."""
        root = self._home.checkpoints(self._lane) / self._epoch
        planned, committed = (
            max((int(path.name) for path in (root / name).glob("*") if path.name.isdigit()), default=-1)
            for name in ("offsets", "commits")
        )
        return planned > committed

    def stop(self) -> None:
        """Stop at once. A batch that is not committed will be run again."""
        self._restart_at = math.inf
        if self._query is not None:
            self._query.stop()
