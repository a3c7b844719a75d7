"""Processes that serve at a listening socket of their owner.

A process gets the socket, and its options as one line of JSON over a pipe, where nobody else can read a token. It ends when the
pipe is closed, even if the owner is killed.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, BinaryIO

import orjson

__all__ = ["end_process", "options_of_this_process", "start_process"]

_SECONDS = 10
"""For a process to end when it is asked to."""


def start_process(
    module: str, listener: socket.socket, options: Mapping[str, Any], output: BinaryIO | None = None
) -> subprocess.Popen[bytes]:
    """Start a module that serves at a socket; its output goes to a file, or to where that of this process goes."""
    process = subprocess.Popen(
        [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=output, stderr=output, pass_fds=[listener.fileno()],
        start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended already, which the owner notices
        process.stdin.write(orjson.dumps({**options, "socket": listener.fileno()}) + b"\n")
        process.stdin.flush()
    return process


def options_of_this_process() -> tuple[socket.socket, dict[str, Any]]:
    """Return the socket and the options of a process that `start_process` started."""
    options = orjson.loads(sys.stdin.buffer.readline())
    listener = socket.socket(fileno=options["socket"])
    listener.setblocking(False)
    return listener, options


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, and kill it if it does not."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
