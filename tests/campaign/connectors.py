"""A connector round: a pipeline from Kafka, PostgreSQL and files to Kafka, PostgreSQL, Parquet and Delta, and faults in between.

    records on three ways -> a fault strikes -> it is healed -> the streams have everything   (for each fault)
    -> the outputs have everything -> stopped -> finished -> the verdict

The servers are real. The pipeline runs without Spark; its sources and outputs have processes of their own, as in `hayase run`.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

import hayase as hy
from campaign import connector_judge, judge, processes
from campaign.connector_endpoints import Endpoints, endpoints
from campaign.connector_traffic import Traffic
from campaign.live import GONE, PATIENCE, TESTS, Hang, Wrong
from hayase.connectors.status import ConnectorStatus, Role, connector_named, connectors_of, pause, resume, status_of
from hayase.streams.log import StreamLog

__all__ = ["ConnectorFault", "ConnectorRound"]

LOOK = 0.25
OUTPUTS = ("alerts", "mirror", "history", "lake", "table")
SOURCES = ("orders", "users", "logs")


@dataclass(frozen=True, slots=True)
class ConnectorFault:
    """What strikes, while records come in. `opens` a round: it wants outputs that have not written yet, and much that waits."""

    name: str
    strike: Callable[[ConnectorRound], None]
    opens: bool = False


@dataclass
class ConnectorRound:
    """One round, in a folder of its own."""

    seed: int
    faults: Sequence[ConnectorFault]
    folder: Path
    say: Callable[[str], None] = print
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    lives: int = 0
    kills: int = 0
    """Processes of connectors that the round has ended itself."""
    slot_dropped: bool = False
    stopped: list[psutil.Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = random.Random(f"connectors {self.seed}")
        self.name = f"r{uuid.uuid4().hex[:10]}"
        self.home, self.file = self.folder / "home", self.folder / "pipeline.yaml"
        self.driver: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What the processes of the round get."""
        return {
            **os.environ,
            processes.MARK: self.mark,
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
            "SHOP_DSN": self.at.dsn,
            "SMALL_DSN": self.at.small_dsn,
        }

    @property
    def at(self) -> Endpoints:
        return endpoints()

    @property
    def lake(self) -> Path:
        return self.at.lake_disk.path / self.name

    @property
    def alerts(self) -> str:
        """The topic that gets results."""
        return f"{self.name}_alerts"

    def pipeline(self) -> hy.Pipeline:
        return hy.Pipeline.from_file(self.file)

    # -- the round ------------------------------------------------------------------------------------------------------
    def run(self) -> list[str]:
        """Play the round; returns what is wrong."""
        with self._set_up():
            try:
                self._play()
                self._finish()
                wrong = connector_judge.verdict(self)
            except Wrong as error:
                wrong = [str(error)]
            finally:
                left = self._end()
                if self.lake.is_dir():
                    shutil.copytree(self.lake, self.folder / "lake")  # to be looked at, if the round failed
                    shutil.rmtree(self.lake)
        return wrong + left

    @contextlib.contextmanager
    def _set_up(self) -> Iterator[None]:
        self.at.heal()
        self.at.create_topics(self.name, self.alerts)
        self.traffic = Traffic(self.at, self.name, self.folder / "files", self.seed)
        self.lake.mkdir()
        self.file.write_text(_PIPELINE.format(
            name=self.name, brokers=self.at.brokers, alerts=self.alerts, lake=self.lake, files=self.traffic.files
        ))  # fmt: skip
        before = {name: os.environ.get(name) for name in ("SHOP_DSN", "SMALL_DSN")}
        os.environ |= {name: self.environment[name] for name in before}
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value
            self.at.heal()
            self.at.drop_slot(self.name)
            self.at.remove_topics(self.name, self.alerts)
            tables = ", ".join(f"{self.name}{each}" for each in ("", "_audit"))
            own = f"{self.name}_mirror, {self.name}_history"
            self.at.postgres.execute(f"DROP TABLE {tables} CASCADE", f"DROP TABLE IF EXISTS {own}")

    def _play(self) -> None:
        opening = [fault for fault in self.faults if fault.opens]
        self.pipeline().apply()
        if opening:
            for name in OUTPUTS:
                pause(self.pipeline().home, "outputs", name)
        self.start()
        self.wait("the copy of the table", lambda: self.status("sources", "users").state == "running")
        if opening:
            for _ in range(2):  # what is in the first is final when the second is there
                self.traffic.begin(350, 200, 20)
                self.traffic.join()
                self.catch_up()
            self.wait("all to be processed", lambda: judge.is_idle(self.home))
            self.stop()
            for name in OUTPUTS:
                resume(self.pipeline().home, "outputs", name)
            for fault in opening:
                self._strike(fault)
            self.start()
        for fault in self.faults:
            if not fault.opens:
                self.traffic.begin(self.dice.randrange(40, 160), self.dice.randrange(20, 60), self.dice.randrange(80))
                time.sleep(self.dice.uniform(0.0, 1.0))
                self._strike(fault)
                self.traffic.join()
                self.catch_up()

    def _strike(self, fault: ConnectorFault) -> None:
        began = time.monotonic()
        fault.strike(self)
        self.say(f"    {fault.name}: {time.monotonic() - began:.0f} s")

    def _finish(self) -> None:
        """Let the outputs get everything that is final; stop, and let the last records be final too."""
        self.catch_up()
        self.wait("the outputs", self._outputs_caught_up)
        ended = self.ended()
        if ended > self.kills:
            raise Wrong(f"{ended} processes ended, of which {self.kills} were killed: {self.said()}")
        self.stop()
        for stream in ("orders", "logs"):
            StreamLog.open(self.home, stream).finish()
        self.pipeline().run_until_idle(spark=False)

    def _end(self) -> list[str]:
        """End what still runs; returns what did not end by itself."""
        if self.driver is not None and self.runs:
            self.driver.kill()
            self.driver.wait()
        self.release()
        processes.send(self.stopped, signal.SIGCONT)
        return [f"a process is left: {each}" for each in processes.clear_away(self.mark, GONE / 10)]

    # -- the run --------------------------------------------------------------------------------------------------------
    @property
    def runs(self) -> bool:
        return self.driver is not None and self.driver.poll() is None

    def start(self) -> None:
        """Start the pipeline."""
        self.release()
        self.lives += 1
        with (self.folder / f"run-{self.lives}.txt").open("wb") as out:
            self.driver = subprocess.Popen(
                [sys.executable, "-m", "campaign.connector_driver", str(self.file)],
                cwd=self.folder, env=self.environment, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def release(self) -> None:
        """Close the pipe to a run that has ended."""
        if self.driver is not None and self.driver.stdin is not None:
            self.driver.stdin.close()

    def stop(self) -> None:
        """Stop the pipeline; it must end well, with all its processes."""
        assert self.driver is not None
        self.driver.send_signal(signal.SIGTERM)
        self.wait("the end of the run", lambda: self.driver is not None and self.driver.poll() is not None)
        if self.driver.returncode:
            raise Wrong(f"the run was stopped and ended with {self.driver.returncode}: {self.said()}")
        self.release()
        self.wait("the end of its processes", lambda: not processes.belonging(self.mark))

    def worker(self, role: Role, name: str) -> psutil.Process:
        """The process of a connector, once there is one."""
        found: list[psutil.Process] = []

        def there() -> bool:
            assert self.driver is not None
            found[:] = [each for each in processes.tree(self.driver.pid)[1:] if _moves(each, role, name)]
            return bool(found)

        self.wait(f"a process of {name}", there)
        return found[0]

    def any_connector(self) -> tuple[Role, str]:
        """A source or an output, drawn."""
        everyone: list[tuple[Role, str]] = [("sources", each) for each in SOURCES]
        everyone += [("outputs", each) for each in OUTPUTS]
        return self.dice.choice(everyone)

    def kill(self, process: psutil.Process) -> None:
        """Kill a process of a connector; the pipeline starts it again."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
            self.kills += 1

    def status(self, role: Role, name: str) -> ConnectorStatus:
        pipeline = self.pipeline()
        return status_of(pipeline.home, role, connector_named(pipeline.declaration, role, name))

    def ended(self) -> int:
        """How often a process of a connector has ended while the pipeline ran."""
        texts = (path.read_text(errors="replace") for path in self.folder.glob("run-*.txt"))
        return sum(text.count(" has ended (") for text in texts)

    def said(self) -> str:
        """The last that the run and its processes said."""
        lines = (self.folder / f"run-{self.lives}.txt").read_text(errors="replace").splitlines()[-6:]
        pipeline = self.pipeline()
        with contextlib.suppress(OSError):
            lines += pipeline.home.connector_log.read_text(errors="replace").splitlines()[-6:]
        for role in ("sources", "outputs"):
            for each in connectors_of(pipeline.declaration, role):
                status = status_of(pipeline.home, role, each)
                lines.append(f"{each.name}: {status.state}, lag {status.lag}, {status.error}")
        return "\n        ".join(lines)[-6000:]

    # -- waiting --------------------------------------------------------------------------------------------------------
    def wait(self, what: str, holds: Callable[[], bool], patience: float = PATIENCE) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + patience
        while not holds():
            if time.monotonic() > deadline:
                raise Hang(f"{what}: not after {patience:.0f} s: {self.said()}")
            if self.driver is not None and self.driver.poll():
                raise Wrong(f"the run ended by itself, with {self.driver.returncode}: {self.said()}")
            time.sleep(LOOK)

    def catch_up(self) -> None:
        """Wait until the streams have all that was sent."""
        orders = len(self.at.messages(self.name))
        self.wait("the orders", lambda: connector_judge.count(self.home, "orders") >= orders)
        self.wait("the files", lambda: connector_judge.count(self.home, "logs") >= self.traffic.logged.total())
        table = self.at.rows(f"SELECT id, name, n FROM {self.name}")
        self.wait("the table", lambda: connector_judge.present(self.home) == table)

    def _outputs_caught_up(self) -> bool:
        if not judge.is_idle(self.home):
            return False
        statuses = [self.status("outputs", name) for name in OUTPUTS]
        return all(status.state == "running" and status.lag == 0 for status in statuses)


def _moves(process: psutil.Process, role: Role, name: str) -> bool:
    with contextlib.suppress(psutil.Error):
        command = process.cmdline()
        return "hayase.connectors.worker" in command and command[-3:-1] == [role, name]
    return False


_PIPELINE = """
pipeline: {name}
home: home
streams:
  orders:
    schema: "time timestamp, id bigint, user string, amount bigint"
    time: time
    slack: 1 hour
    from: {{kafka: {{brokers: "{brokers}", topic: {name}}}}}
  users:
    schema: "op string, at timestamp, id bigint, name string, n bigint"
    time: at
    changes: op
    slack: 0 s
    from: {{postgres: {{dsn_env: SHOP_DSN, table: {name}, slot: {name}}}}}
  logs:
    schema: "time timestamp, id bigint, level string"
    time: time
    slack: 1 hour
    from: {{files: {{path: "{files}/*.ndjson", watch: 1 second}}}}
queries:
  spend: select user, sum(amount) as total from orders group by user
  present: select id, name, n from users
  levels: select level, count(*) as n from logs group by level
outputs:
  alerts: {{reads: spend, to: {{kafka: {{brokers: "{brokers}", topic: {alerts}, key: user}}}}}}
  mirror: {{reads: present, to: {{postgres: {{dsn_env: SMALL_DSN, table: {name}_mirror, key: id}}}}}}
  history: {{reads: present, to: {{postgres: {{dsn_env: SMALL_DSN, table: {name}_history, mode: history}}}}}}
  lake: {{reads: orders, to: {{parquet: {{path: "{lake}/orders", every: 1 second, emit: rows}}}}}}
  table: {{reads: spend, to: {{delta: {{path: "{lake}/spend", every: 1 second}}}}}}
"""
