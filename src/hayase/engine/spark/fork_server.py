"""The fork server: a process with all modules imported that forks a child for each Python interpreter that Spark starts.

    python -P -m hayase.engine.spark.fork_server DESCRIPTOR-OF-A-LISTENING-SOCKET

Spark starts an interpreter for every planning function of a Python data source and gives it ten seconds (a constant in Spark) to
import PySpark and connect back. Forking a process that has imported everything takes milliseconds, even on a busy machine.
Requests come from `hayase.engine.spark.interpreter_launcher`, over a socket that only this user can open; those that arrive before
the imports are done wait.

The server ends its children and itself when the process that started it ends, which it notices by the end of its standard input
or a changed parent. It runs no threads, so that forks are safe, and refuses to serve if a library has started one.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import runpy
import selectors
import signal
import socket
import struct
import sys
import time
import traceback
from dataclasses import field
from importlib import import_module
from pathlib import Path

from hayase.core.data_classes import dataclass
from hayase.engine.spark.interpreter_launcher import TAKEN

__all__ = ["READY", "ForkServer", "Request"]

READY = b"ready\n"
"""Written to standard output once the server accepts requests."""
PLANNING = (
    "hayase.engine.spark.data_source",
    "hayase.engine.spark.lane_source",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.worker",
)
"""Modules that Spark runs, or imports in processes forked from its daemon."""
NAMES = {
    "hayase.engine.spark.worker_daemon": "hayase-workers",
    "pyspark.sql.streaming.python_streaming_source_runner": "hayase-planner",
}
"""Process names of children in `ps` and `top`, by module; a forked process keeps the command line of its parent."""
MOST_BYTES = 16 * 2**20
"""Greatest length of a request: arguments and environment."""
LOOK = 1.0
"""Seconds between checks whether the parent still exists."""
GRACE = 5.0
"""Seconds that children have to terminate before they are killed when the server ends."""
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


@dataclass(frozen=True, slots=True)
class Request:
    """A request to run a module: its arguments, working directory and environment."""

    folder: bytes
    module: str
    arguments: tuple[str, ...]
    environment: dict[bytes, bytes]

    @classmethod
    def from_bytes(cls, text: bytes) -> Request:
        """Decode the request of a launcher.

        >>> Request.from_bytes(b"2\\0/tmp\\0mod\\0arg\\0A=1=2").environment
        {b'A': b'1=2'}
        """
        count, folder, *words = text.split(b"\0")
        module, *arguments = (os.fsdecode(word) for word in words[: int(count)])
        pairs = (word.partition(b"=") for word in words[int(count) :])
        return cls(folder, module, tuple(arguments), {key: value for key, _, value in pairs})


@dataclass(slots=True)
class _Link:
    """A connection to a launcher: the data received so far, and the child that was forked for it (0 before)."""

    socket: socket.socket
    received: bytearray = field(default_factory=bytearray)
    streams: list[int] = field(default_factory=list)
    child: int = 0

    def receive(self) -> bool:
        """Receive available data and descriptors; return False at the end of the connection."""
        data, passed, _, _ = socket.recv_fds(self.socket, 65_536, 3)
        self.streams.extend(passed)
        self.received += data
        return bool(data)

    def request(self) -> Request | None:
        """Return the request, or None until all of it has arrived."""
        length = int.from_bytes(self.received[:8], "big")
        if len(self.received) >= 8 and length > MOST_BYTES:
            raise ValueError(f"a request of {length:,} bytes")
        complete = len(self.received) >= 8 + length and len(self.received) > 8
        return Request.from_bytes(bytes(self.received[8 : 8 + length])) if complete else None

    def close(self) -> None:
        for descriptor in self.streams:
            os.close(descriptor)
        self.streams.clear()
        self.socket.close()


class ForkServer:
    """Accepts requests at a socket and runs each in a forked child, until the parent process has ended."""

    def __init__(self, listener: socket.socket, parent: int):
        self._listener, self._parent, self._own = listener, parent, os.getpid()
        self._template = [entry for entry in sys.path if entry not in _from_environment(os.environb)]
        self._hash_seed = os.environb.get(b"PYTHONHASHSEED")
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._children: dict[int, _Link] = {}
        self._links: set[int] = set()
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._woken, waking = socket.socketpair()
        self._woken.setblocking(False)
        waking.setblocking(False)
        self._waking = waking
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # needed for the wake-up descriptor to be written
        signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
        self._selector.register(0, selectors.EVENT_READ, "parent")
        self._selector.register(self._woken, selectors.EVENT_READ, "child")
        self._selector.register(self._listener, selectors.EVENT_READ, "listener")

    def run(self) -> None:
        """Serve until the parent has ended."""
        while os.getppid() == self._parent:
            for key, _ in self._selector.select(LOOK):
                if key.data == "parent":
                    if not os.read(0, 1):
                        return
                elif key.data == "child":
                    self._woken.recv(4096)
                elif key.data == "listener":
                    self._accept()
                else:
                    self._hear(key.data)
            self._reap()

    def end(self) -> None:
        """Terminate the children; kill those that do not end within GRACE seconds."""
        until = time.monotonic() + GRACE
        for number in (signal.SIGTERM, signal.SIGKILL):
            for child in self._children:
                os.kill(child, number)
            while self._children and (number == signal.SIGKILL or time.monotonic() < until):
                self._reap()
                time.sleep(0.01)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # the client has gone, or there are no free descriptors at the moment
            return
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, user, _ = struct.unpack("3i", credentials)
        if user != os.getuid():
            connection.close()
            return
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ, _Link(connection))

    def _hear(self, link: _Link) -> None:
        """Handle data from a launcher: a part of its request, a signal for its child, or the end of the connection."""
        try:
            if link.child:
                self._forward(link)
            elif not link.receive():
                self._drop(link)
            elif (request := link.request()) is not None:
                self._fork(link, request)
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, ValueError):
            self._drop(link)

    def _forward(self, link: _Link) -> None:
        """Forward signals to the child; kill it if the launcher has ended."""
        try:
            numbers = link.socket.recv(64)
        except ConnectionError:
            numbers = b""
        for number in numbers or (signal.SIGKILL,):
            os.kill(link.child, number)
        if not numbers:
            self._selector.unregister(link.socket)

    def _drop(self, link: _Link) -> None:
        self._selector.unregister(link.socket)
        link.close()

    def _fork(self, link: _Link, request: Request) -> None:
        """Fork the child of a launcher. Refuse another hash seed: it is fixed when an interpreter starts."""
        if len(link.streams) != 3 or request.environment.get(b"PYTHONHASHSEED") != self._hash_seed:
            self._drop(link)
            return
        child = os.fork()
        if child == 0:
            self._become(link, request)
        link.child = child
        self._children[child] = link
        for descriptor in link.streams:
            os.close(descriptor)
        link.streams.clear()
        link.socket.send(TAKEN)

    def _reap(self) -> None:
        """Collect children that have ended, and send their status to their launchers."""
        while self._children:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child == 0:
                return
            link = self._children.pop(child)
            try:
                link.socket.send(status.to_bytes(4, "big"))
                self._selector.unregister(link.socket)
            except (OSError, KeyError):  # the launcher has ended
                pass
            link.close()

    def _become(self, link: _Link, request: Request) -> None:
        """In the child: run the module as a newly started interpreter would. Never returns."""
        status = 1
        try:
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            if os.getppid() != self._own:
                os._exit(1)
            self._libc.prctl(_PR_SET_NAME, NAMES.get(request.module, "hayase-python").encode(), 0, 0, 0)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            for number, stream in enumerate(link.streams):
                os.dup2(stream, number)
            self._close()
            link.close()
            status = self._run_module(request)
        except SystemExit as exit_:
            status = _status_of(exit_)
        except BaseException:
            traceback.print_exc()
        finally:
            for file in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    file.flush()
            os._exit(status)

    def _run_module(self, request: Request) -> int:
        os.chdir(request.folder)
        os.environ.clear()
        os.environb.update(request.environment)
        folder = os.fsdecode(request.folder)
        sys.path[:] = [folder, *_from_environment(request.environment), *self._template]
        sys.argv[:] = [request.module, *request.arguments]
        sys.modules.pop(request.module, None)  # it runs as `__main__`; an imported copy would be a second module
        runpy.run_module(request.module, run_name="__main__", alter_sys=True)
        return 0

    def _close(self) -> None:
        """In a child: close the descriptors of the server, without unregistering them from the epoll set that the server shares."""
        for link in self._children.values():
            link.socket.close()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Link):
                key.data.socket.close()
        self._selector.close()
        for endpoint in (self._listener, self._woken, self._waking):
            endpoint.close()


def _from_environment(environment: os._Environ[bytes] | dict[bytes, bytes]) -> list[str]:
    """Return the directories in `PYTHONPATH`."""
    return [os.fsdecode(entry) for entry in environment.get(b"PYTHONPATH", b"").split(b":") if entry]


def _status_of(exit_: SystemExit) -> int:
    """Return the exit status of an interpreter for `sys.exit(...)`."""
    if exit_.code is None:
        return 0
    if isinstance(exit_.code, int):
        return exit_.code & 0xFF
    sys.stderr.write(f"{exit_.code}\n")
    return 1


def _announce(compiled: int, missing: int) -> None:
    """Tell the pipeline's process why the server is not ready yet."""
    if compiled % 10 == 0:
        os.write(1, f"compiling kernels for this processor, once: {compiled} of {missing}\n".encode())


def main() -> None:
    """Import all modules, announce readiness, and serve."""
    parent, listener = os.getppid(), socket.socket(fileno=int(sys.argv[1]))
    from hayase.engine.spark.worker_daemon import NEEDED
    from hayase.lifetimes.compilation import compile_ahead

    for name in (*NEEDED, *PLANNING):
        import_module(name)
    compile_ahead(_announce)
    threads = [task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    if len(threads) > 1:
        sys.exit(f"the fork server does not serve, since libraries have started threads: {', '.join(threads)}")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # as the JVM does for itself and its children
    gc.collect()
    gc.freeze()  # objects shared with children are never collected
    server = ForkServer(listener, parent)
    os.write(1, READY)
    os.dup2(2, 1)
    try:
        server.run()
    finally:
        server.end()
        os._exit(0)  # an orderly shutdown makes libraries print errors, and is not needed


if __name__ == "__main__":
    main()
