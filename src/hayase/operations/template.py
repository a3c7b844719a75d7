"""The program of the processes that run user code: warm templates, and the children forked from them.

`main` runs the first template, with the number of its socket: it has imported what Hayase needs and, on request, forks
other templates, each of which loads one user module and then forks children that run its function. A frame on the
socket of a template (see `hayase.core.frames`) is

- `T`, with a working directory and a socket: fork a template that serves that socket from there; answers `p` and its
  process id;
- `L`, the function and the two schemas as JSON: load the module; answers `=` and what the function takes, or `!` and a
  failure;
- `F`, with a socket and a file: fork a child that serves that socket; answers `p` and its process id;
- `W`, a process id: make that child write down where its function is;
- `E`, a process id: end that process and everything it has started.

When a process that a template forked ends, the template sends `x`, the process id and the status of `os.waitpid`.
Templates run no user code except the import. They end, with everything they have forked, when the other end of their
socket is closed, however their owner ended.

A child answers `C` (`frames.pack_request`) with several `A` (`frames.pack_answer`), and `I`, the same request for a
schema, with `=` and the DDL or `!` and a failure. The file, shared with the owner, begins with two numbers: the current
window, and since when. From `TRACE` on it holds where the function was when it crashed or received SIGUSR2.

This protects against accidents, not against malice: user code has the rights of its owner.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import mmap
import os
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import orjson
import psutil
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError
from hayase.core.frames import readable, receive, send, send_within
from hayase.core.schemas import arrow_schema
from hayase.operations.frames import pack_answer, pack_request, unpack_request
from hayase.operations.outcomes import Failure, Request
from hayase.operations.result_rows import schema_of_results
from hayase.operations.user_functions import Function, OperationFunction, failure_of
from hayase.operations.window_runner import IDLE, GroupLength, answers, results_for

__all__ = ["CHANNEL_LOST", "FAULTY", "MEMORY_SHORT", "TRACE", "main"]

CHANNEL_LOST = 201
"""Exit code of a child whose socket descriptor no longer refers to its socket."""
MEMORY_SHORT = 202
"""Exit code of a child after it ran out of memory, which may leave it in any state; an answer with such a failure is
its last."""
FAULTY = 203
"""Exit code of a process after an error in Hayase itself."""
TRACE = 4096
"""Offset of traces in the shared file, and the size of its mapped part."""

_SUBREAPER, _DEATH_SIGNAL = 36, 1  # of prctl


def main(file: int) -> NoReturn:
    """Run the first template on the socket with this descriptor."""
    control = socket.socket(fileno=file)
    sys.dont_write_bytecode = True  # the code is in the home, where every file is checked
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    pa.array([1]).cast(pa.string())  # loads what Arrow otherwise loads on first use
    _serve_template(control)


def _prctl(option: int, value: int) -> None:
    """Call prctl; Linux only. On other systems, orphaned processes are not ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


# ---------------------------------------------------------------------------------------------------- templates


class _Template:
    """A template: its socket, what it has loaded, and the processes that it has forked."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.forked: set[int] = set()
        self.loaded: _Loaded | None = None
        self.woken, self.wake = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(self.woken, False)

    def watch(self) -> None:
        """Wake up when a forked process ends. Called again after an import, which may have changed the handler."""
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)

    def reap(self) -> None:
        """Report the processes that have ended. Their orphans have become children of this process, and are ended too."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.woken, 4096)
        ended = []
        with contextlib.suppress(ChildProcessError):
            while True:
                process, status = os.waitpid(-1, os.WNOHANG)
                if not process:
                    break
                if process in self.forked:
                    self.forked.discard(process)
                    ended.append((process, status))
        if ended:
            self.clear()
        for process, status in ended:
            send(self.control, b"x", orjson.dumps([process, status]))

    def clear(self) -> None:
        """End children of this process that it has not forked: orphans of ended processes."""
        for process in _children(os.getpid()):
            if process not in self.forked:
                _kill_tree(process)

    def end(self, process: int) -> None:
        if process in self.forked:
            _kill_tree(process)

    def fork(self) -> int:
        """Fork; the new process keeps nothing of the template except what it has loaded."""
        process = os.fork()
        if process:
            self.forked.add(process)
            return process
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self.woken)
        os.close(self.wake)
        self.control.close()
        os.setsid()
        _prctl(_DEATH_SIGNAL, signal.SIGKILL)
        return 0


def _children(process: int) -> list[int]:
    """Return the children of a process; on Linux from its own list, without scanning all processes."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")]
    except OSError:
        lists = []
    if lists:
        return [int(number) for text in lists for number in text.split()]
    with contextlib.suppress(psutil.Error):
        return [child.pid for child in psutil.Process(process).children()]
    return []


def _kill_tree(process: int) -> None:
    """Kill a process with all its descendants and its process group."""
    children = _children(process)
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(process, signal.SIGKILL)
    for child in children:
        _kill_tree(child)


def _serve_template(control: socket.socket) -> NoReturn:
    _prctl(_SUBREAPER, 1)
    template = _Template(control)
    template.watch()
    gc.freeze()
    try:
        while True:
            ready = readable([control, template.woken], None)
            template.reap()
            if control in ready:
                frame = receive(control)
                if frame is None:
                    break
                _obey(template, *frame)
    except (BrokenPipeError, ConnectionResetError):
        pass
    for process in list(template.forked):
        template.end(process)
    os._exit(0)


def _obey(template: _Template, letter: bytes, body: bytes, fds: list[int]) -> None:
    if letter == b"L":
        template.loaded, answer = _load(body)
        if template.loaded is not None:
            _warm_up(template.loaded)
        template.watch()
        gc.collect()
        gc.freeze()
        send(template.control, b"=" if template.loaded else b"!", orjson.dumps(answer))
    elif letter == b"E":
        template.end(int(body))
    elif letter == b"W":
        if int(body) in template.forked:
            os.kill(int(body), signal.SIGUSR2)
    else:
        process = template.fork()
        if not process:
            if body:
                _enter(body)
            _become(template.loaded, socket.socket(fileno=fds[0]), fds[1:])
        for descriptor in fds:
            os.close(descriptor)
        send(template.control, b"p", b"%d" % process)


def _enter(directory: bytes) -> None:
    """Make a directory the working directory; one that is gone by now is replaced by the root."""
    try:
        os.chdir(directory)
    except OSError:
        os.chdir("/")


def _become(loaded: _Loaded | None, sock: socket.socket, files: list[int]) -> NoReturn:
    """Run a forked process until it ends; never returns to the caller."""
    try:
        if not files:
            _serve_template(sock)
        assert loaded is not None
        _serve_child(loaded, sock, files[0])
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(FAULTY)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A loaded function with the schemas of its records and results (None: not known yet), the result field to drop,
    and its limit of address space."""

    function: Function
    reads: pa.Schema
    writes: pa.Schema | None
    ignored: str | None
    memory: int


def _load(body: bytes) -> tuple[_Loaded | None, Any]:
    request = orjson.loads(body)
    reads, writes = arrow_schema(request["reads"]), request["writes"]
    try:
        function = OperationFunction.from_json(request["function"]).load()
    except DeclarationError as error:
        return None, Failure("raised", str(error)).as_json()
    except BaseException as error:  # SystemExit among others
        return None, failure_of(error).as_json()
    schema = None if writes is None else arrow_schema(writes)
    memory = psutil.Process().memory_info().vms + request["memory"]
    return _Loaded(function, reads, schema, request["ignored"], memory), function.takes


def _warm_up(loaded: _Loaded) -> None:
    """Answer a dummy request without the function. What this loads in a template is shared by its children; in a child
    it takes page faults before the first real request."""
    nulls = [pa.nulls(1, field.type) for field in loaded.reads]
    request = Request(pa.RecordBatch.from_arrays(nulls, schema=loaded.reads), np.array([0, 0]), np.array([1, 1]))
    body = b"".join(bytes(memoryview(part)) for part in pack_request(request))
    results: Iterator[dict[str, Any]] = iter([{}])  # so that the second call raises an exception
    dummy = Function(lambda window: next(results), loaded.function.takes)
    for outcomes in answers(dummy, loaded.writes or loaded.reads, unpack_request(body, loaded.reads), [0, 0]):
        pack_answer(0, outcomes)


# ---------------------------------------------------------------------------------------------------- children


class _Channel:
    """The socket of a child, checked before each use: user code may have closed its descriptor."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._identity = self._now()

    def _now(self) -> tuple[int, int]:
        status = os.fstat(self.sock.fileno())
        return status.st_dev, status.st_ino

    def send(self, letter: bytes, parts: list[Any]) -> None:
        try:
            if self._now() == self._identity:
                send_within(self.sock, letter, parts, 3600.0)
                return
        except OSError:
            pass
        os._exit(CHANNEL_LOST)

    def receive(self) -> tuple[bytes, bytes]:
        try:
            if self._now() == self._identity:
                frame = receive(self.sock)
                if frame is None:
                    os._exit(0)
                return frame[:2]
        except OSError:
            pass
        os._exit(CHANNEL_LOST)


def _serve_child(loaded: _Loaded, sock: socket.socket, shared: int) -> NoReturn:
    """Answer requests until the other end of the socket is closed."""
    note = memoryview(mmap.mmap(shared, TRACE)).cast("q")
    os.lseek(shared, TRACE, os.SEEK_SET)
    faulthandler.enable(shared, all_threads=False)
    faulthandler.register(signal.SIGUSR2, shared, all_threads=False, chain=False)
    channel = _Channel(sock)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit_memory(loaded.memory)
    _warm_up(loaded)
    length = GroupLength()
    while True:
        try:
            _answer(loaded, channel, note, length)
        except MemoryError:  # outside the function: the records or the results do not fit
            _relieve()
            os._exit(MEMORY_SHORT)


def _answer(loaded: _Loaded, channel: _Channel, note: Any, length: GroupLength) -> None:
    """Receive and answer one request."""
    letter, body = channel.receive()
    request = unpack_request(body, loaded.reads)
    if letter == b"I":
        note[1] = time.monotonic_ns()
        note[0] = 0
        answer_letter, text = _inferred(loaded, request, note)
        note[0] = IDLE
        channel.send(answer_letter, [text])
        return
    first = 0
    assert loaded.writes is not None
    for outcomes in answers(loaded.function, loaded.writes, request, note, loaded.ignored, _relieve, length):
        channel.send(b"A", pack_answer(first, outcomes))
        first += len(outcomes.counts)
        note[0] = IDLE
        if any(failure.kind == "memory" for failure in outcomes.failures.values()):
            os._exit(MEMORY_SHORT)  # the parent sends no more requests either


def _limit_memory(most: int) -> None:
    """Limit the address space to `most` bytes.

    Address space rather than resident memory: the limit applies at once, and raises an exception where it is exceeded.
    The hard limit stays, so that there is room to report the failure.
    """
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _relieve() -> None:
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def _inferred(loaded: _Loaded, request: Request, note: Any) -> tuple[bytes, bytes]:
    """Return the answer to a request for the schema of a function's results."""
    try:
        return b"=", schema_of_results(list(results_for(loaded.function, request, note)), loaded.ignored).encode()
    except DeclarationError as error:
        failure = Failure("unfit", str(error))
    except BaseException as error:
        failure = failure_of(error)
    return b"!", orjson.dumps(failure.as_json())
