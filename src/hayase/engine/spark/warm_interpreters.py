"""Python interpreters for Spark that start in milliseconds: manages the fork server, and the executable that replaces Python.

Used on a local master under Linux; on a cluster and on other systems, Spark starts plain interpreters.
"""

from __future__ import annotations

import atexit
import os
import py_compile
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from hayase.engine.spark import interpreter_launcher
from hayase.engine.spark.fork_server import READY

__all__ = ["WarmInterpreters"]

LONGEST_SOCKET = 107
"""Greatest length in bytes of the path of a Unix socket."""


class WarmInterpreters:
    """A fork server with its socket and launcher in a private directory. The server ends with this process, however that ends.

    `executable` replaces the interpreter; it executes the plain one whenever the server does not run.
    """

    def __init__(self, folder: Path):
        self._socket, self.executable = folder / "fork-server.sock", folder / "python"
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = threading.Event()
        self._lock = threading.Lock()
        launcher = folder / "launcher.pyc"
        py_compile.compile(interpreter_launcher.__file__, cfile=str(launcher), doraise=True)
        words = [sys.executable, "-I", "-S", str(launcher), sys.executable, str(self._socket)]
        self.executable.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        self.executable.chmod(0o700)
        atexit.register(self.close)

    @staticmethod
    def can_serve(folder: Path) -> bool:
        """Whether the server runs on this system, and the path of its socket is short enough."""
        return sys.platform == "linux" and len(os.fsencode(folder / "fork-server.sock")) <= LONGEST_SOCKET

    def start(self) -> None:
        """Start the server unless it runs; it is ready some seconds later."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return
            self._release()
            self._ready.clear()
            with _listener(self._socket) as listener:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "hayase.engine.spark.fork_server", str(listener.fileno())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=_environment(),
                    pass_fds=[listener.fileno()],
                )

    @property
    def is_ready(self) -> bool:
        """Whether the server runs and has imported everything."""
        return self._ready.is_set() and self._process is not None and self._process.poll() is None

    def wait(self, on_progress: Callable[[str], None] = lambda progress: None) -> bool:
        """Wait without a time limit until the server is ready; return False if it has ended instead. `on_progress` gets what the
        server says it does."""
        process = self._process
        if process is None or process.stdout is None:
            return False
        while not self._ready.is_set() and (line := process.stdout.readline()):
            if line == READY:
                self._ready.set()
            else:
                on_progress(line.decode().rstrip("\n"))
        return self.is_ready

    def close(self) -> None:
        """End the server and its children."""
        with self._lock:
            self._release()

    def _release(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait()


def _listener(path: Path) -> socket.socket:
    """Return a listening socket that only this user can connect to; its directory is private as well."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(128)
    return listener


def _environment() -> dict[str, str]:
    """Return the environment of the server: the hash seed and thread count that Spark sets for its interpreters, and Arrow's
    allocator without its background thread, so that the process can be forked."""
    fixed = {"PYTHONUNBUFFERED": "YES", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
    return {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", **os.environ, **fixed}
