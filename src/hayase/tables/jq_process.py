"""The parent's side of the libjq process: starts it, sends programs and events, and replaces it when an event exceeds a limit.

When the process dies, only the current event is refused; the events before and after it are evaluated by the next process. The time
limit is CPU time, so that a busy machine refuses nothing; wall-clock time only detects a process that hangs.
"""

from __future__ import annotations

import contextlib
import importlib.util
import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hayase.core.errors import EnvironmentUnfit
from hayase.tables.jq_child import IDLE

__all__ = ["JqProcess", "Limits"]

_CHILD = Path(__file__).with_name("jq_child.py")
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
STANDING_STILL = 600.0
"""Seconds without an answer after which the process counts as hanging, even on a busy machine."""
_MOST_BYTES = 8 << 20
_MOST_STARTS = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits for one event in one program: CPU seconds, bytes of memory of the process, number of results, bytes of results."""

    seconds: float = 1.0
    memory: int = 512 << 20
    results: int = 1_000
    size: int = 16 << 20


class _Died(Exception):
    """The process ended, or hangs."""


class _Running:
    """One process: its pipes, its progress, and the programs it knows."""

    def __init__(self, limits: Limits):
        spec = importlib.util.find_spec("jq")
        if spec is None or spec.origin is None:
            raise EnvironmentUnfit('the Python package "jq" is missing; install it: pip install jq')
        self.owner = os.getpid()
        self.known: set[int] = set()
        with tempfile.TemporaryFile() as file:
            file.write(struct.pack("<I", IDLE))
            file.flush()
            self.progress = mmap.mmap(file.fileno(), 4)
            arguments = [str(Path(spec.origin).parent), limits.seconds, limits.memory, limits.results, limits.size]
            self.process = subprocess.Popen(
                [sys.executable, "-I", str(_CHILD), *map(str, arguments), str(file.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                pass_fds=[file.fileno()],
                cwd="/",
                env={
                    "TZ": "UTC",
                    "LC_ALL": "C.UTF-8",
                    **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
                },
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.sink, self.source = self.process.stdin.fileno(), self.process.stdout.fileno()

    def send(self, data: bytes) -> None:
        data = len(data).to_bytes(4, "little") + data
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self.sink, view) :]
        except BrokenPipeError as error:
            raise _Died from error

    def receive(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(4), "little"))

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            if not select.select([self.source], [], [], STANDING_STILL)[0]:
                raise _Died
            part = os.read(self.source, size - len(data))
            if not part:
                raise _Died
            data += part
        return bytes(data)

    def current_document(self) -> int | None:
        """Return the number of the current document; None if there is none."""
        number: int = struct.unpack_from("<I", self.progress, 0)[0]
        return None if number == IDLE else number

    def end(self) -> int:
        """End the process and return its exit code, as `subprocess` has it."""
        if self.owner != os.getpid():  # a fork of the owner: the process is not its child
            return 0
        self.process.kill()
        code = self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self.progress.close()
        return code


class JqProcess:
    """libjq in a child process, started when it is first needed."""

    def __init__(self, limits: Limits | None = None):
        self.limits = limits or Limits()
        self.starts = 0
        self._idle_deaths = 0
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
            running.send(b"E%d\n" % self._programs[program] + b"\n".join(documents[start:end]))
            while len(lines) < end - start:
                lines += running.receive().split(b"\n")
        except _Died:
            guilty = running.current_document()
            code = self._end()
            if guilty is None or code == -signal.SIGKILL:  # killed from outside, or because it hung: try again
                self._died_idle(code)
                return lines
            while len(lines) < guilty:  # evaluated, but not received
                lines += self._portion(program, documents, start + len(lines), start + guilty)
            lines.append(f"!it {_reason(code, self.limits)}".encode())
        self._idle_deaths = 0
        return lines

    def _died_idle(self, code: int) -> None:
        """Count a death that no event caused; EnvironmentUnfit if it happens again and again."""
        self._idle_deaths += 1
        if self._idle_deaths == _MOST_STARTS:
            self._idle_deaths = 0
            raise EnvironmentUnfit(f"the process for jq ended {_MOST_STARTS} times by itself, the last with {code}")

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
        running.send(b"C%d\n" % number + program.encode())
        answer = running.receive().decode()
        if answer == "=":
            running.known.add(number)
            return None
        return answer[1:]

    def _retried(self, ask: Callable[[_Running], str | None]) -> str | None:
        """Ask about a program until there is an answer. A process that exceeds a limit while compiling blames the program."""
        while True:
            running = self._start()
            try:
                return ask(running)
            except _Died:
                code = self._end()
                if code in (-signal.SIGPROF, -signal.SIGABRT, -signal.SIGSEGV):
                    return f"compiling it {_reason(code, self.limits)}"
                self._died_idle(code)

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
