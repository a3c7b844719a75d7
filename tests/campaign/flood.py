"""A flood round: bodies that are large, slow, repeated or broken, and many connections, against one server.

Meanwhile `/health` answers, a quiet appender gets its records in, and the memory of the process stays bounded. Afterwards
all that was acknowledged is in the log, and the answers are those of a clean run.
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
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil

import hayase as hy
from campaign import bodies, judge, processes
from campaign.appenders import ByHttp, Pace
from campaign.live import CLOCK, PATIENCE, PROJECT, TESTS, free_port
from campaign.traffic import STREAMS, WATCHED

__all__ = ["FloodRound"]

HEALTH_PATIENCE = 120.0
"""Seconds after which `/health` is said not to answer."""
MEMORY = 2**30
"""Bytes by which a flood may make the process grow."""
LETTERS = 4
"""How many bytes of dead letters a byte that was sent may cost."""


class FloodRound:
    """One round, in a folder of its own."""

    def __init__(self, seed: int, folder: Path, say: Callable[[str], None] = print, floods: int = 3):
        self.seed, self.say, self.folder = seed, say, folder
        self.dice = random.Random(f"flood {seed}")
        names = list(FLOODS)
        self.floods = self.dice.sample(names, min(floods, len(names)))
        self.project = folder / "project"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.mark = uuid.uuid4().hex
        self.wrong: list[str] = []
        self.sent = 0
        self.accepted: dict[str, int] = {}
        """Records that were acknowledged, by the mark in their ids."""
        self.slowest_health, self.most_memory = 0.0, 0

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(CLOCK), str(TESTS), os.environ.get("PYTHONPATH", "")])
        return {**os.environ, processes.MARK: self.mark, "PYTHONPATH": path}

    def run(self) -> list[str]:
        """Play the round; returns what is wrong."""
        shutil.copytree(PROJECT, self.project)
        pipeline = hy.Pipeline.from_file(self.project / "pipeline.yaml")
        pipeline.table("watched").load(WATCHED)
        pace = Pace()
        with self._server() as server:
            quiet = ByHttp(self.seed, "quiet", "orders", self.project, self.environment, pace)
            quiet.url = self.url
            quiet.start()
            ended = threading.Event()
            watching = threading.Thread(target=self._watch, args=(server.pid, ended), daemon=True)
            watching.start()
            for name in self.floods:
                began = time.monotonic()
                flooding = threading.Thread(target=FLOODS[name], args=(self,), name=name, daemon=True)
                flooding.start()
                pace.let_go(2)
                self._wait(f"the quiet appender during {name}", lambda: quiet.done, server)
                self._wait(f"the end of {name}", lambda thread=flooding: not thread.is_alive(), server)  # type: ignore[misc]
                self.say(f"    {name}: {time.monotonic() - began:.0f} s")
            pace.ended.set()
            quiet.join(60)
            ended.set()
            watching.join(60)
            for stream in STREAMS:
                pipeline.finish(stream)
        self.wrong += quiet.problems
        if not self.wrong:
            self.wrong += self._verdict(pipeline, quiet)
        self.wrong += [f"a process is left: {each}" for each in processes.clear_away(self.mark, 20)]
        self.say(
            f"    {self.sent / 1e6:.0f} MB sent, {sum(self.accepted.values())} records acknowledged, memory +"
            f"{self.most_memory / 1e6:.0f} MB, slowest /health {self.slowest_health:.1f} s"
        )
        return self.wrong

    def _verdict(self, pipeline: hy.Pipeline, quiet: ByHttp) -> list[str]:
        wrong = []
        log = pipeline.results("orders").log
        index = log.index()
        ids = [each for piece in log.read(index.start, index.next) for each in piece.rows.column("id").to_pylist()]
        there: dict[str, int] = {}
        for each in ids:
            there[each.rsplit("-", 1)[0]] = there.get(each.rsplit("-", 1)[0], 0) + 1
        wanted = dict(self.accepted)
        for each in quiet.acknowledged:
            for record in each.good:
                wanted[record["id"].rsplit("-", 1)[0]] = wanted.get(record["id"].rsplit("-", 1)[0], 0) + 1
        lost = {mark: count for mark, count in wanted.items() if there.get(mark, 0) != count}
        if lost:
            wrong.append(f"acknowledged and not there, or there twice: {dict(list(lost.items())[:5])}")
        if self.most_memory > MEMORY:
            wrong.append(f"the process grew by {self.most_memory / 1e6:.0f} MB")
        size = sum(path.stat().st_size for path in (pipeline.home.path / "streams" / "_dead").glob("*.seg"))
        if size > LETTERS * self.sent + 2**20:
            wrong.append(f"{self.sent:,} bytes made {size:,} bytes of dead letters")
        wrong += judge.check_figures(pipeline)
        clean = self.folder / "clean"
        wrong += judge.differences(judge.answers(pipeline), judge.clean_answers(pipeline, clean))
        shutil.rmtree(clean, ignore_errors=True)
        return wrong

    # -- the server -----------------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _server(self) -> Iterator[subprocess.Popen[bytes]]:
        with (self.folder / "served.txt").open("wb") as out:
            server = subprocess.Popen(
                [sys.executable, "-m", "campaign.served", str(self.project), str(self.port)],
                cwd=self.project, env=self.environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        try:
            self._wait("the server", self._answers, server)
            yield server
            server.send_signal(signal.SIGTERM)
            server.wait(PATIENCE)
            if server.returncode:
                self.wrong.append(f"the server ended with {server.returncode}: {self._said()}")
        except (AssertionError, subprocess.TimeoutExpired) as error:
            self.wrong.append(str(error))
        finally:
            processes.send(processes.tree(server.pid), signal.SIGKILL)
            server.wait()

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/health", timeout=5, trust_env=False).status_code == 200
        return False

    def _said(self) -> str:
        return (self.folder / "served.txt").read_text(errors="replace")[-600:]

    def _wait(self, what: str, condition: Callable[[], bool], server: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert server.poll() is None, f"waiting for {what}, the server ended with {server.poll()}: {self._said()}"
            assert time.monotonic() < deadline, f"a hang: {what}"
            time.sleep(0.05)

    def _watch(self, process_id: int, ended: threading.Event) -> None:
        """Ask for the health all the time, on new connections, and look how large the process is."""
        process = psutil.Process(process_id)
        before = process.memory_info().rss
        while not ended.wait(0.2):
            began = time.monotonic()
            try:
                answer = httpx.get(f"{self.url}/health", timeout=HEALTH_PATIENCE, trust_env=False)
                if answer.status_code != 200:
                    self.wrong.append(f"/health answered {answer.status_code}: {answer.text[:200]}")
            except httpx.HTTPError as error:
                self.wrong.append(f"/health did not answer: {type(error).__name__}: {error}")
            self.slowest_health = max(self.slowest_health, time.monotonic() - began)
            with contextlib.suppress(psutil.Error):
                self.most_memory = max(self.most_memory, process.memory_info().rss - before)

    # -- what is sent ---------------------------------------------------------------------------------------------------
    def post(self, body: bytes, kind: str, mark: str | None = None, key: str | None = None) -> httpx.Response | None:
        """Send a body; what is accepted is remembered. None if there was no answer."""
        headers = {"Content-Type": kind} | ({"Idempotency-Key": key} if key else {})
        self.sent += len(body)
        try:
            answer = httpx.post(
                f"{self.url}/streams/orders", content=body, headers=headers, timeout=120, trust_env=False
            )
        except httpx.HTTPError:
            return None
        if answer.status_code >= 500 and answer.status_code != 503:
            self.wrong.append(
                f"a body of {len(body):,} bytes was answered with {answer.status_code}: {answer.text[:200]}"
            )
        if answer.status_code == 200 and mark is not None and answer.json()["accepted"]:
            self.accepted[mark] = answer.json()["accepted"]
        return answer


def _large(round: FloodRound) -> None:
    """Bodies about as large as may be, several at once: good records, and records of which none fits."""
    rows = bodies.orders(f"large-{round.seed}", 2_500)
    unfit = b"[" + b",".join([b'{"a":1}'] * (15 * 2**20 // 8)) + b"]"
    tasks = [(body, "application/x-ndjson", mark) for mark, body in rows] + [(unfit, "application/json", None)] * 3
    round.dice.shuffle(tasks)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda each: round.post(*each), tasks))


def _slow(round: FloodRound) -> None:
    """Many bodies that come byte by byte, and never to an end."""
    _held(round, 80, b"POST /streams/orders HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
          b"Content-Length: 100000\r\n\r\n[", b" ")  # fmt: skip


def _idle(round: FloodRound) -> None:
    """Connections that say nothing, or only half of their headers."""
    _held(round, 600, b"GET /health HTTP/1.1\r\nHost: %s\r\n" if round.dice.random() < 0.5 else b"", b"")


def _held(round: FloodRound, count: int, begin: bytes, more: bytes) -> None:
    held: list[socket.socket] = []
    host = f"127.0.0.1:{round.port}".encode()
    try:
        for _ in range(count):
            with contextlib.suppress(OSError):
                connection = socket.create_connection(("127.0.0.1", round.port), timeout=5)
                held.append(connection)
                if begin:
                    connection.sendall(begin.replace(b"%s", host))
        for _ in range(40):
            time.sleep(0.1)
            for connection in held:
                with contextlib.suppress(OSError):
                    if more:
                        connection.sendall(more)
    finally:
        for connection in held:
            connection.close()


def _repeated(round: FloodRound) -> None:
    """The same request many times at once, with one key: it counts once."""
    for number in range(5):
        mark = f"again-{round.seed}-{number}"
        body = bodies.lines(mark, 50)
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda _: round.post(body, "application/x-ndjson", mark, key=mark), range(24)))  # noqa: B023
        said = [each.json() for each in found if each is not None and each.status_code == 200]
        if sum(not each["repeated"] for each in said) > 1:
            round.wrong.append(f"{mark} was appended more than once")


def _broken(round: FloodRound) -> None:
    """Bodies that are nothing, cut off, too deep, too long, or of another kind than they say."""
    tasks = bodies.broken(round.dice)
    with ThreadPoolExecutor(6) as pool:
        for (name, _, _), answer in zip(tasks, pool.map(lambda each: round.post(each[1], each[2]), tasks)):
            if answer is not None and answer.status_code == 200 and answer.json()["accepted"]:
                round.wrong.append(f"a broken body ({name}) was accepted: {answer.text[:200]}")


def _many(round: FloodRound) -> None:
    """Very many small requests, each on a connection of its own."""

    def ask(number: int) -> None:
        if number % 3:
            with contextlib.suppress(httpx.HTTPError):
                path = ("/queries/spend", "/tables/purchases?limit=5", "/dead", "/metrics")[number % 4]
                httpx.get(f"{round.url}{path}", timeout=60, trust_env=False)
        else:
            mark = f"many-{round.seed}-{number}"
            round.post(bodies.lines(mark, 3), "application/x-ndjson", mark)

    with ThreadPoolExecutor(24) as pool:
        list(pool.map(ask, range(300)))


FLOODS: dict[str, Callable[[FloodRound], None]] = {
    "large bodies": _large,
    "slow bodies": _slow,
    "idle connections": _idle,
    "repeated requests": _repeated,
    "broken bodies": _broken,
    "many connections": _many,
}
