"""Interpreters for Spark that start in milliseconds: a fork server beside the pipeline's process, and the executable that
Spark is given in place of Python.

On a cluster, and on systems other than Linux, Spark starts plain interpreters.
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
from pathlib import Path

from hayase.engine.spark import interpreter_launcher

__all__ = ["WarmInterpreters"]

LONGEST_SOCKET = 107
"""Bytes that the path of a Unix socket may have."""


class WarmInterpreters:
    """A fork server with its socket and its launcher in a private folder. It ends with this process, however that ends.

    `executable` stands in for the interpreter; it becomes a plain one whenever the server is not there.
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
        """Whether this system has what the server needs, and the path of its socket is short enough."""
        return sys.platform == "linux" and len(os.fsencode(folder / "fork-server.sock")) <= LONGEST_SOCKET

    def start(self) -> None:
        """Start the server, unless it runs; it takes some seconds until it is ready."""
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

    def wait(self) -> bool:
        """Wait until the server is ready, however long that takes; False if it has ended instead."""
        process = self._process
        if process is None or process.stdout is None:
            return False
        if not self._ready.is_set() and process.stdout.readline() != b"":
            self._ready.set()
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
    """A socket that takes connections of this user only; the path's folder is private as well."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(128)
    return listener


def _environment() -> dict[str, str]:
    """The environment of the server. Spark starts its interpreters with the same hash seed and number of threads; without its
    own thread in the background, Arrow's allocator can be forked."""
    fixed = {"PYTHONUNBUFFERED": "YES", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
    return {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", **os.environ, **fixed}
