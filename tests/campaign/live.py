"""A live round: a real `hayase run` on Spark, appenders, readers, and faults that strike in between.

    release some chunks -> a fault strikes -> started again if that ended it -> caught up   (for each fault)
    -> streams finished -> idle -> stopped -> the verdict

Who dies when is drawn from the seed; what the machine makes of it is not, so a repeated seed repeats the faults and the
records, and not every interleaving.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

import hayase as hy
from campaign import judge, processes
from campaign.appenders import HAYASE, Appender, ByCommand, ByHttp, ByPython, Pace
from campaign.traffic import STREAMS, WATCHED, Chunk
from campaign.watchers import Watcher
from hayase.streams.log import StreamLog

__all__ = ["Fault", "Hang", "LiveRound", "Wrong"]

PROJECT = Path(__file__).parent / "project"
CLOCK = Path(__file__).parent / "clock"
TESTS = Path(__file__).parents[1]
PATIENCE = float(os.environ.get("HAYASE_PATIENCE", "600"))
"""Seconds without any progress after which a round is called a hang."""
LOOK = 0.25
"""Seconds between two looks at what a round waits for: a look costs CPU time, which the run lacks meanwhile."""
GONE = 300.0
"""Seconds within which the processes of a run that ended must be gone."""


class Wrong(AssertionError):
    """A round that did not come out as it must."""


class Hang(Wrong):
    """A round in which nothing happened any more."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What strikes. It `ends` the run, may end it (None), or does not; `needs` says what must be set up for it."""

    name: str
    strike: Callable[[LiveRound], None]
    ends: bool | None
    needs: str | None = None


@dataclass
class LiveRound:
    """One round, in a folder of its own."""

    seed: int
    faults: Sequence[Fault]
    folder: Path
    chunks: int = 3
    say: Callable[[str], None] = print
    master: str | None = None
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    rebuilt: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    lives: int = 0

    def __post_init__(self) -> None:
        self.dice = random.Random(f"live {self.seed}")
        self.project, self.home = self.folder / "project", self.folder / "project" / "home"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.pace = Pace()
        self.appenders: list[Appender] = []
        self.driver: subprocess.Popen[bytes] | None = None
        self.watcher = Watcher(self.url)
        self.clock = self.folder / "clock"
        self.scratch = Path(tempfile.mkdtemp(prefix="hyc-", dir="/tmp"))  # short: paths of sockets are
        self.filler = self.home / "filler"

    @property
    def environment(self) -> dict[str, str]:
        """What the processes of the round get: a mark, a clock that can jump, a folder of their own for what is temporary."""
        return {
            **os.environ,
            processes.MARK: self.mark,
            "HAYASE_CLOCK": str(self.clock),
            "PYTHONPATH": os.pathsep.join([str(CLOCK), str(TESTS), os.environ.get("PYTHONPATH", "")]),
            "TMPDIR": str(self.scratch),
            "PYTHONUNBUFFERED": "1",
            "SPARK_WORKER_DIR": str(self.scratch / "work"),
        }

    # -- the round ------------------------------------------------------------------------------------------------------
    def run(self) -> list[str]:
        """Play the round; returns what is wrong."""
        with self._set_up():
            try:
                self._play()
            except Wrong as error:
                self.wrong = self.wrong or [str(error)]
            finally:
                self._end()
            with contextlib.suppress(Wrong):
                if not self.wrong:
                    self._check("in the end")
                    self.wrong += judge.check_files(self.home)
                    self.say(
                        f"    {judge.version(self.home)} batches, {self.lives} starts, {self.watcher.answers} answers read"
                    )
        return self.wrong

    def _play(self) -> None:
        self.start()
        self.pace.let_go(self.chunks)
        self.wait("the first batches", lambda: judge.version(self.home) >= 4)  # two are of the start
        for fault in self.faults:
            self.pace.let_go(self.chunks)
            time.sleep(self.dice.random() * 2.0)
            began, lives = time.monotonic(), self.lives
            fault.strike(self)
            if fault.ends:
                self.wait("the end of the run", lambda: not self.runs)
            self.catch_up(may_end=fault.ends is not False)
            starts = self.lives - lives
            self.say(f"    {fault.name}: caught up after {time.monotonic() - began:.0f} s, {starts} starts")
            if fault.ends is False and starts:
                raise Wrong(f"{fault.name} ended the run: {self.said()}")
            self._check(f"after {fault.name}")
        for stream in STREAMS:
            StreamLog.open(self.home, stream).finish()
        self.wait("all to be idle", lambda: judge.is_idle(self.home))
        self.wait("the last changes to be read", self._heard_all)
        self.stop()

    def catch_up(self, *, may_end: bool) -> None:
        """Wait until a run serves and all that was released is acknowledged and processed, in as many lives as it takes."""
        for _ in range(4):
            done = self.wait_or_end(
                "catching up",
                lambda: all(each.done for each in self.appenders) and self._caught_up() and self._is_healthy(),
            )
            if done and self.runs:
                return
            if not may_end:
                raise Wrong(f"the run ended by itself: {self.said()}")
            self._after_end()
            self.start()
        raise Wrong(f"the run ends again and again: {self.said()}")

    def _caught_up(self) -> bool:
        with contextlib.suppress(OSError):
            return judge.is_idle(self.home)
        return False

    def _is_healthy(self) -> bool:
        """Whether the run says that it is well. One that ended says nothing, though all was processed before it ended."""
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/health", timeout=30, trust_env=False).status_code == 200
        return False

    def _heard_all(self) -> bool:
        count = len(self.watcher.changes)
        wanted = len(self.pipeline().query(self.watcher.query).changes())
        return count >= wanted

    # -- the run --------------------------------------------------------------------------------------------------------
    @property
    def runs(self) -> bool:
        """Whether the driver is there."""
        return self.driver is not None and self.driver.poll() is None

    @property
    def output(self) -> Path:
        """What the present life of the driver printed."""
        return self.folder / f"run-{self.lives}.txt"

    def start(self) -> None:
        """Start `hayase run`, and serve."""
        self.lives += 1
        master = ["--master", self.master] if self.master else []
        with self.output.open("wb") as out:
            self.driver = subprocess.Popen(
                [*HAYASE, "run", "--plain", "--address", f"127.0.0.1:{self.port}", *master],
                cwd=self.project, env=self.environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
                preexec_fn=_interruptible,
            )  # fmt: skip

    def parts(self) -> dict[str, list[psutil.Process]]:
        """The processes of the run by what they do."""
        assert self.driver is not None
        return processes.parts(self.driver.pid)

    def some(self, part: str) -> list[psutil.Process]:
        """The processes of a part, once there are some."""
        if part == "tree":
            return [each for some in self.parts().values() for each in some]
        if part == "appender":
            return [psutil.Process(each.process.pid) for each in self.appenders if each.process is not None]
        found: list[psutil.Process] = []

        def there() -> bool:
            found[:] = self.parts()[part]
            return bool(found)

        self.wait(f"a process that is {part}", there)
        return found

    def stop(self) -> None:
        """Stop the run as a person does; it must end well."""
        assert self.driver is not None
        self.driver.send_signal(self.dice.choice((signal.SIGTERM, signal.SIGINT)))
        self.wait("the end of the run", lambda: not self.runs)
        if self.driver.returncode:
            raise Wrong(f"the run was stopped and ended with {self.driver.returncode}: {self.said()}")
        if "does not add up" in self.output.read_text(errors="replace"):
            raise Wrong(f"the summary does not add up: {self.said()}")

    def _after_end(self) -> None:
        """What must hold when a run has ended, whyever: nobody is left of it, and it printed no traceback."""
        text = self.output.read_text(errors="replace")
        if "Traceback (most recent call last)" in text:
            self.wrong.append(f"the run ended with a traceback: {self.said()}")
        deadline = time.monotonic() + GONE
        while (left := self.processes_left()) and time.monotonic() < deadline:
            time.sleep(0.1)
        for each in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                self.wrong.append(f"a process is left of a run that ended: {' '.join(each.cmdline())[:200]}")
                each.kill()

    def processes_left(self) -> list[psutil.Process]:
        """Processes of the round but for its appenders, and for a recording of classes."""
        found = processes.belonging(self.mark)
        own = {each.process.pid for each in self.appenders if each.process is not None}
        own |= {each.pid for each in processes.recorders(found)}
        return [each for each in found if each.pid not in own and not _is_appender(each)]

    def said(self) -> str:
        """The last that the run printed but for its figures."""
        lines = self.output.read_text(errors="replace").splitlines() if self.output.exists() else []
        code = None if self.driver is None else self.driver.poll()
        return f"exit code {code}; {' / '.join(lines[-4:])[-600:]}"

    def command(self, *arguments: str, code: int = 0, home: bool = True) -> str:
        """Run a command in the project; it must end with a code."""
        done = subprocess.run(
            [*HAYASE, *arguments], cwd=self.project, env=self.environment, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip
        if done.returncode != code:
            raise Wrong(f"hayase {' '.join(arguments)} ended with {done.returncode}: {done.stderr[-500:]}")
        return done.stdout + done.stderr

    def pipeline(self) -> hy.Pipeline:
        """The pipeline as its file says now."""
        return hy.Pipeline.from_file(self.project / "pipeline.yaml")

    # -- waiting --------------------------------------------------------------------------------------------------------
    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for a condition; a run that ends meanwhile, unless its end is waited for, is told."""
        if not self.wait_or_end(what, condition):
            raise Wrong(f"waiting for {what}, the run ended: {self.said()}")

    def wait_or_end(self, what: str, condition: Callable[[], bool]) -> bool:
        """Wait for a condition while the run lives; whether it came true. Without any progress it is a hang."""
        seen, since = None, time.monotonic()
        while not condition():
            if not self.runs:
                return condition()
            now = (judge.version(self.home), *(len(each.acknowledged) for each in self.appenders))
            if now != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() > since + PATIENCE:
                raise Hang(f"a hang: {what}; {now}; {self.said()}")
            time.sleep(LOOK)
        return True

    # -- before and after -----------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _set_up(self) -> Iterator[None]:
        shutil.copytree(PROJECT, self.project)
        with contextlib.ExitStack() as stack:
            if any(each.needs == "small disk" for each in self.faults):
                stack.enter_context(small_disk(self.home))
            if any(each.needs == "cluster" for each in self.faults):
                self.master = "local-cluster[2,1,1024]"
            self.pipeline().table("watched").load(WATCHED)
            kinds: list[tuple[type[Appender], str, str]] = [
                (ByPython, "py", "orders"), (ByPython, "pv", "visits"),
                (ByCommand, "cmd", "visits"), (ByHttp, "http", "orders"),
            ]  # fmt: skip
            for kind, name, stream in kinds:
                self.appenders.append(kind(self.seed, name, stream, self.project, self.environment, self.pace))
            for each in self.appenders:
                if isinstance(each, ByHttp):
                    each.url = self.url
                each.start()
            self.watcher.start()
            yield

    def _end(self) -> None:
        """Nobody goes on."""
        self.pace.ended.set()
        self.watcher.ended.set()
        for each in self.appenders:
            each.kill()
        for thread in (*self.appenders, self.watcher):
            thread.join(60)
        if self.driver is not None and self.driver.poll() is None:  # after something went wrong
            processes.send(processes.tree(self.driver.pid), signal.SIGKILL)
            self.driver.wait()
        elif self.driver is not None:
            self._after_end()
        processes.send(
            processes.recorders(processes.belonging(self.mark)), signal.SIGKILL
        )  # its folders are removed now
        left = processes.clear_away(self.mark, GONE)
        self.wrong += [f"a process is left: {each}" for each in left]
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _check(self, when: str) -> None:
        """Judge the home as it is, with nothing under way: the log, the figures, and every answer against a clean run."""
        clean = self.folder / "clean"
        try:
            wrong = self._differences(clean)
        except Exception as error:
            wrong = [f"the home cannot be judged: {''.join(traceback.format_exception(error))[-2000:]}"]
        shutil.rmtree(clean, ignore_errors=True)
        if wrong:
            self.wrong += [f"{when}: {each}" for each in wrong]
            raise Wrong("what the home holds is not right")

    def _differences(self, clean: Path) -> list[str]:
        pipeline = self.pipeline()
        acknowledged: list[Chunk] = [chunk for each in self.appenders for chunk in each.acknowledged]
        wrong = [problem for each in self.appenders for problem in each.problems] + self.watcher.problems
        wrong += judge.check_log(pipeline, acknowledged)
        wrong += judge.check_figures(pipeline)
        wrong += judge.differences(judge.answers(pipeline), judge.clean_answers(pipeline, clean), self.rebuilt)
        heard, wanted = len(self.watcher.changes), len(pipeline.query(self.watcher.query).changes())
        if heard > wanted or (self.pace.ended.is_set() and heard < wanted):
            wrong.append(f"a reader heard {heard} changes of {self.watcher.query}, and there were {wanted}")
        return wrong


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def _interruptible() -> None:
    """A program started in the background ignores Ctrl-C otherwise."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_appender(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        command = " ".join(process.cmdline())
        return "campaign.appenders" in command or "append" in process.cmdline()
    return False


def can_mount() -> bool:
    """Whether a small file system can be had here: it takes the right to mount one."""
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(OSError):
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], capture_output=True, check=False
        )
        if done.returncode == 0:
            subprocess.run(["umount", folder], check=True)
            return True
    return False


@contextlib.contextmanager
def small_disk(path: Path, size: str = "48m") -> Iterator[None]:
    """A file system of its own, with little room."""
    path.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)], check=True)
    kept = path.with_name(f"{path.name}-kept")
    try:
        yield
    finally:
        shutil.copytree(path, kept, ignore=shutil.ignore_patterns("filler"))  # to be looked at, if the round failed
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def python() -> str:
    """The interpreter of the round's processes."""
    return sys.executable
