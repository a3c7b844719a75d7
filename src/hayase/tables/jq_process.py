"""The parent's side of the libjq process: starts it, sends programs and events, and replaces it when an event exceeds a limit.

When the process dies, only the current event is refused; the events before and after it are evaluated by the next process. The time
limit is CPU time, so that a busy machine refuses nothing; wall-clock time only detects a process that hangs.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from hayase.core.child_process import STANDING_STILL, Gone, Restarts, SharedNote, ended_by_signal
from hayase.core.data_classes import dataclass
from hayase.core.errors import EnvironmentUnfit
from hayase.core.frames import Garbled, Inbox, Stalled, readable, send_within
from hayase.tables.jq_child import IDLE

__all__ = ["JqProcess", "Limits"]

_CHILD = Path(__file__).with_name("jq_child.py")
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
_MOST_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits for one event in one program: CPU seconds, bytes of memory of the process, number of results, bytes of results."""

    seconds: float = 1.0
    memory: int = 512 << 20
    results: int = 1_000
    size: int = 16 << 20


class _Running:
    """One process: its socket, its progress, and the programs it knows."""

    def __init__(self, limits: Limits):
        spec = importlib.util.find_spec("jq")
        if spec is None or spec.origin is None:
            raise EnvironmentUnfit('the Python package "jq" is missing; install it: pip install jq')
        self.owner = os.getpid()
        self.known: set[int] = set()
        self._progress = SharedNote(8, IDLE)
        self._channel, theirs = socket.socketpair()
        self._inbox, self._frames = Inbox(self._channel), deque[tuple[bytes, bytes]]()
        arguments = [str(Path(spec.origin).parent), limits.seconds, limits.memory, limits.results, limits.size]
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", str(_CHILD), *map(str, arguments), str(self._progress.file)],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                pass_fds=[self._progress.file],
                cwd="/",
                start_new_session=True,
                env={
                    "TZ": "UTC",
                    "LC_ALL": "C.UTF-8",
                    **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
                },
            )

    def send(self, letter: bytes, parts: Sequence[bytes]) -> None:
        """Send a frame; raises `Gone` if the process does not read it."""
        try:
            send_within(self._channel, letter, parts, STANDING_STILL)
        except (OSError, Stalled) as error:
            raise Gone from error

    def receive(self) -> tuple[bytes, bytes]:
        """Return the next frame; raises `Gone` if none can come any more."""
        while not self._frames:
            if self._inbox.ended or not readable([self._channel], STANDING_STILL):
                raise Gone
            try:
                self._frames += self._inbox.frames()
            except Garbled as error:
                raise Gone from error
        return self._frames.popleft()

    def current_document(self) -> int | None:
        """Return the number of the current document; None if there is none."""
        number = self._progress.numbers[0]
        return None if number == IDLE else number

    def end(self) -> int:
        """End the process and return its exit code, as `subprocess` has it."""
        if self.owner != os.getpid():  # a fork of the owner: the process is not its child
            return 0
        self.process.kill()
        code = self.process.wait()
        self._channel.close()
        self._progress.close()
        return code


class JqProcess:
    """libjq in a child process, started when it is first needed."""

    def __init__(self, limits: Limits | None = None):
        self.limits = limits or Limits()
        self.starts = 0
        self._restarts = Restarts("the process for jq")
        self._programs: dict[str, int] = {}
        self._running: list[_Running] = []
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, _end, self._running)

    def close(self) -> None:
        """End the process; the next use starts another."""
        with self._lock:
            _end(self._running)

    @property
    def process_id(self) -> int | None:
        """The id of the running child process; None while there is none."""
        return self._running[0].process.pid if self._running else None

    def compile(self, program: str) -> str | None:
        """Compile a program; return libjq's error message, None if there is none."""
        with self._lock:
            return self._retried(lambda running: self._compile(running, program))

    def evaluate(self, program: str, documents: Sequence[bytes]) -> list[bytes]:
        """Return a line for each JSON text, as `jq_child` describes: `=` and the results, or `!` and the reason."""
        with self._lock:
            lines: list[bytes] = []
            while len(lines) < len(documents):
                lines += self._portion(program, documents, len(lines), len(documents))
            return lines

    def _portion(self, program: str, documents: Sequence[bytes], start: int, stop: int) -> list[bytes]:
        """Return the lines of as many documents as fit into a frame, or up to the first that exceeds a limit."""
        end, size = start, 0
        while end < stop and (end == start or size + len(documents[end]) < _MOST_BYTES):
            size += len(documents[end]) + 1
            end += 1
        lines: list[bytes] = []
        running = self._ready(program)
        try:
            running.send(b"E", [b"%d\n" % self._programs[program], b"\n".join(documents[start:end])])
            while len(lines) < end - start:
                lines += running.receive()[1].split(b"\n")
        except Gone:
            guilty = running.current_document()
            code = self._end()
            if guilty is None or code == -signal.SIGKILL:  # killed from outside, or because it hung: try again
                self._restarts.count(_how(code))
                return lines
            while len(lines) < guilty:  # evaluated, but not received
                lines += self._portion(program, documents, start + len(lines), start + guilty)
            lines.append(f"!it {_reason(code, self.limits)}".encode())
        self._restarts.reset()
        return lines

    def _ready(self, program: str) -> _Running:
        """Return a process that has compiled the program."""
        running = self._start()
        if self._programs.get(program) not in running.known:
            mistake = self._retried(lambda running: self._compile(running, program))
            if mistake is not None:
                raise EnvironmentUnfit(f"this jq program does not compile here: {program}; {mistake}")
        return self._start()

    def _compile(self, running: _Running, program: str) -> str | None:
        number = self._programs.setdefault(program, len(self._programs))
        running.send(b"C", [b"%d\n" % number, program.encode()])
        letter, mistake = running.receive()
        if letter != b"=":
            return mistake.decode()
        running.known.add(number)
        return None

    def _retried(self, ask: Callable[[_Running], str | None]) -> str | None:
        """Ask about a program until there is an answer. A process that exceeds a limit while compiling blames the program."""
        while True:
            running = self._start()
            try:
                return ask(running)
            except Gone:
                code = self._end()
                if code in (-signal.SIGPROF, -signal.SIGABRT, -signal.SIGSEGV):
                    return f"compiling it {_reason(code, self.limits)}"
                self._restarts.count(_how(code))

    def _start(self) -> _Running:
        if self._running and self._running[0].owner != os.getpid():
            self._running.clear()
        if not self._running:
            self._running.append(_Running(self.limits))
            self.starts += 1
        return self._running[0]

    def _end(self) -> int:
        return self._running.pop().end()


def _end(running: list[_Running]) -> None:
    while running:
        running.pop().end()


def _reason(code: int, limits: Limits) -> str:
    if code == -signal.SIGPROF:
        return f"takes more than {limits.seconds:g} s of computing"
    return f"takes more than {limits.memory >> 20:,} MB of memory, or is nested too deep"


def _how(code: int) -> str:
    return ended_by_signal(-code)[1] if code < 0 else f"it ended with exit code {code}"
