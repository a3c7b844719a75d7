"""The parent's side of the processes that run user code (`template`): nursery, templates, children, and how they end."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import sysconfig
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson

from hayase.core.child_process import MOST_STARTS, STANDING_STILL, Gone, SharedNote, ended_by_signal
from hayase.core.errors import EnvironmentUnfit
from hayase.core.frames import Inbox, Stalled, readable, send, send_within
from hayase.operations.template import CHANNEL_LOST, FAULTY, MEMORY_SHORT, TRACE
from hayase.operations.window_runner import IDLE

__all__ = ["NURSERY", "Child", "Template", "ending", "place"]

_LAST_WORDS = 0.5
_LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
_OWN = str(Path(__file__).parent)
_PLACE = re.compile(r'File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')
_PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "import sys; sys.path += sys.argv[2:]; from hayase.operations.template import main; "
    "sys.path[:] = sys.argv[2:]; main(int(sys.argv[1]))"
)
"""Imports come from the interpreter's own path first: a module of the user, such as `signal.py`, must not hide one of Python.
Ctrl-C is for the pipeline, which finishes its batch: it must not end a call."""


class Template:
    """The parent's side of a template process: its socket, and the exit statuses it has reported."""

    def __init__(self, control: socket.socket, process: int, parent: Template | None = None) -> None:
        self.control, self.process, self.parent = control, process, parent
        self._inbox = Inbox(control)
        self._requests = self._received = 0
        self._answers: dict[int, tuple[bytes, bytes]] = {}
        self.ended: dict[int, int] = {}

    def read(self) -> None:
        """Process the frames that have arrived."""
        for letter, body in self._inbox.frames():
            if letter == b"x":
                process, status = orjson.loads(body)
                self.ended[process] = status
                continue
            if letter == b"p":
                self.ended.pop(int(body), None)  # the status of an earlier process with the same id
            self._answers[self._received] = letter, body
            self._received += 1

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended, as far as its socket was read."""
        return self._inbox.ended

    def request(self, letter: bytes, body: bytes = b"", fds: Sequence[int] = ()) -> int:
        """Send a request and return the number to pass to `answer`."""
        self._send(letter, body, fds)
        self._requests += 1
        return self._requests - 1

    def answer(self, number: int, seconds: float) -> tuple[bytes, bytes]:
        """Wait for the answer to a request; raises `Gone` after `seconds`."""
        self.wait(lambda: number in self._answers, seconds)
        return self._answers.pop(number)

    def end(self, process: int) -> int:
        """End a process that was forked from this template and return its status, as `os.waitpid` reports it."""
        if process not in self.ended:
            self.kill(process)
            self.wait(lambda: process in self.ended, STANDING_STILL)
        return self.ended.pop(process)

    def kill(self, process: int) -> None:
        """End a process that was forked from this template without waiting for it."""
        self._send(b"E", b"%d" % process)

    def ask_where(self, process: int) -> None:
        """Make a process that was forked from this template write down where its function is."""
        self._send(b"W", b"%d" % process)

    def wait(self, done: Callable[[], bool], seconds: float) -> None:
        """Read frames until `done` returns true; raises `Gone` after `seconds`."""
        until = time.monotonic() + seconds
        self.read()
        while not done():
            remaining = until - time.monotonic()
            if remaining <= 0 or self.is_gone:
                raise Gone
            readable([self.control], remaining)
            self.read()

    def _send(self, letter: bytes, body: bytes, fds: Sequence[int] = ()) -> None:
        try:
            send(self.control, letter, body, fds)
        except OSError as error:
            raise Gone from error

    def close(self) -> None:
        self.control.close()


class _Nursery:
    """The process from which templates are forked; one for all threads of this process, started on demand."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.root: Template | None = None
        self._finalizer: weakref.finalize[Any, _Nursery] | None = None
        self._owner = 0

    def template(self) -> Template:
        """Return a new template that has not loaded a function yet, in the working directory of this process."""
        with self._lock:
            for _ in range(MOST_STARTS):
                try:
                    ours, theirs = socket.socketpair()
                    with theirs:
                        running = self._running()
                        number = running.request(b"T", os.fsencode(_working_directory()), [theirs.fileno()])
                        return Template(ours, int(running.answer(number, STANDING_STILL)[1]), running)
                except Gone:
                    ours.close()
                    self.close()
            raise EnvironmentUnfit(f"the process from which operations are forked ended {MOST_STARTS} times by itself")

    def end(self, template: Template) -> int | None:
        """End a template and return its exit status; None if it is unknown."""
        template.close()
        with self._lock:
            if self.root is None or template.parent is not self.root or self._owner != os.getpid():
                return None
            try:
                return self.root.end(template.process)
            except Gone:
                return None

    def _running(self) -> Template:
        if self.root is not None and self._owner != os.getpid():  # after a fork: the nursery belongs to the parent
            self.root.close()
            self.root = None
            if self._finalizer is not None:
                self._finalizer.detach()
        if self.root is None:
            ours, theirs = socket.socketpair()
            with theirs:
                process = subprocess.Popen(
                    [
                        sys.executable,
                        "-P",
                        "-c",
                        _PROGRAM,
                        str(theirs.fileno()),
                        *(str(Path(_working_directory(), directory)) for directory in sys.path),
                    ],
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=_standard_error(),
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            self.root = Template(ours, process.pid)
            self._owner = os.getpid()
            self._finalizer = weakref.finalize(self, _end_nursery, self.root, process, self._owner)
        return self.root

    def close(self) -> None:
        """End the process; the next template starts another one."""
        if self._finalizer is not None:
            self._finalizer()
        self.root = None


def _end_nursery(template: Template, process: subprocess.Popen[bytes], owner: int) -> None:
    template.close()
    if owner == os.getpid():
        try:
            process.wait(STANDING_STILL)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _working_directory() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # it was removed
        return "/"


def _standard_error() -> int:
    try:
        os.fstat(2)
        return 2
    except OSError:
        return subprocess.DEVNULL


NURSERY = _Nursery()


# ---------------------------------------------------------------------------------------------------- one child


class Child:
    """The parent's side of a child: its socket, the shared note, and the file of traces. It is being forked until
    `started` returns."""

    def __init__(self, template: Template) -> None:
        ours, theirs = socket.socketpair()
        self._note = SharedNote(TRACE, IDLE)
        self._asked = time.monotonic_ns()
        self.template, self.channel, self.inbox = template, ours, Inbox(ours)
        self.process = 0
        try:
            with theirs:
                self._number = template.request(b"F", fds=[theirs.fileno(), self._note.file])
        except Gone:
            ours.close()
            self._note.close()
            raise

    def started(self) -> None:
        """Wait until the child has been forked; raises `Gone` if it is not."""
        try:
            self.process = int(self.template.answer(self._number, STANDING_STILL)[1])
        except Gone:
            self.kill()
            raise

    def send(self, letter: bytes, parts: list[Any], seconds: float) -> None:
        """Send a request; raises `Gone` if the child does not read it in time."""
        self._asked = time.monotonic_ns()
        try:
            send_within(self.channel, letter, parts, seconds)
        except (OSError, Stalled) as error:
            raise Gone from error

    def frames(self, seconds: float) -> list[tuple[bytes, bytes]]:
        """Return the frames that arrive within `seconds`; raises `Gone` if none can arrive any more."""
        control = self.template.control
        known = self.process in self.template.ended or self.inbox.ended
        if not known and control in readable([self.channel, control], seconds):
            self.template.read()
            if self.template.is_gone:
                raise Gone
        ended = (
            self.inbox.ended or self.process in self.template.ended
        )  # checked before reading: all it sent has then arrived
        frames = self.inbox.frames()
        if not frames and (ended or self.inbox.ended):
            raise Gone
        return frames

    @property
    def noted(self) -> tuple[int, int]:
        """The current window, counted within the last request, or `IDLE`, or `GROUP` less the last window of a group;
        and since when, in nanoseconds."""
        window, since = self._note.numbers[0], self._note.numbers[1]
        return (
            (window, since) if since >= self._asked else (IDLE, self._asked)
        )  # an older note belongs to an earlier request

    def kept_waiting(self) -> float:
        """Return the seconds that the child was ready to run but not scheduled, since it was forked; 0 if the system
        does not say."""
        try:
            return int(Path(f"/proc/{self.process}/schedstat").read_bytes().split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            return 0.0

    def trace(self, ask: bool) -> str:
        """Return where the function was when the process crashed or, with `ask`, where it is now.

        A signal makes the process write it, which also works in C code; but a function may have blocked the signal.
        """
        text = self._traced()
        if ask:
            with contextlib.suppress(Gone):
                self.template.ask_where(self.process)
            until, before = time.monotonic() + _LAST_WORDS, ""
            while time.monotonic() < until and not (text and text == before):
                time.sleep(0.0003)
                before, text = text, self._traced()
        return text

    def _traced(self) -> str:
        size = os.fstat(self._note.file).st_size
        return os.pread(self._note.file, max(0, min(size - TRACE, 1 << 16)), TRACE).decode(errors="replace")

    def settle(self) -> None:
        """Wait briefly for a process that closed its socket to end, so that its note is final."""
        with contextlib.suppress(Gone):
            self.template.wait(lambda: self.process in self.template.ended, _LAST_WORDS)

    def end(self) -> int | None:
        """End the child and return its exit status; None if it is unknown."""
        self.channel.close()
        try:
            return self.template.end(self.process)
        except Gone:
            return None  # it ends with its template, or when it next reads its socket
        finally:
            self._note.close()

    def kill(self) -> None:
        """End the child without waiting. One that is still being forked ends when it reads its socket."""
        self.channel.close()
        if self.process:
            with contextlib.suppress(Gone):
                self.template.kill(self.process)
        self._note.close()


def ending(status: int | None) -> tuple[str, str]:
    """Return the kind of failure and the text for an exit status."""
    if status is None:
        return "killed", "it ended together with the process that it was forked from"
    if os.WIFSIGNALED(status):
        return ended_by_signal(os.WTERMSIG(status))
    code = os.WEXITSTATUS(status)
    if code == CHANNEL_LOST:
        return "crashed", "it closed file descriptors that are not its own"
    if code == MEMORY_SHORT:
        return "memory", "its records, or its results, do not fit into it"
    if code == FAULTY:
        return "crashed", "it broke the process in a way that is not known; stderr may tell more"
    return "exited", f"it ended the process with exit code {code}"


def place(trace: str) -> tuple[str | None, int | None, str]:
    """Return the innermost function and line of a trace outside libraries, and the trace without Hayase's own frames."""
    kept, places = [], []
    for line in trace.splitlines():
        match = _PLACE.search(line)
        if match is None or not match["file"].startswith((_OWN, "<string>")):
            kept.append(line)
            places += [match] if match is not None else []
    text = "\n".join(kept).partition("\n\nExtension modules:")[0].rstrip()
    inner = [match_ for match_ in places if not match_["file"].startswith(_LIBRARIES)] or places
    return (inner[0]["function"], int(inner[0]["line"]), text) if inner else (None, None, text)
