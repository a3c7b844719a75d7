"""The launcher that Spark starts in place of a Python interpreter; the fork server runs the module that `-m` names.

    python -I -S interpreter_launcher.py INTERPRETER SOCKET -m MODULE ARGUMENTS...

It passes its standard streams, working directory, environment and arguments to the fork server (`hayase.engine.spark.fork_server`),
forwards signals to the child that the server forks, and ends with the status or signal of the child. If it is killed, the server
kills the child; if the server ends, so does the child, and this program exits with status 1. If the server cannot be reached, or
the arguments do not begin with `-m`, it executes the plain interpreter.

It starts in milliseconds because it imports only modules that are built into the interpreter, and nothing of Hayase.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import posix
import sys

TAKEN = b"\x01"
"""The reply of the server once it has forked a child for the request."""
_FORWARDED = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2")


def launch(interpreter: str, server: str, arguments: list[str]) -> int:
    """Run the module that the arguments name and return its exit status. Does not return if the plain interpreter is executed."""
    link = _request(server, arguments) if arguments[:1] == ["-m"] and len(arguments) > 1 else None
    if link is None:
        posix.execv(interpreter, [interpreter, *arguments])
    return _follow(link)


def _request(server: str, arguments: list[str]) -> _socket.socket | None:
    """Ask the server to run a module; return the connection, or None if it is not running or refuses, and nothing was run."""
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        link.connect(server)
        environment = [key + b"=" + value for key, value in posix.environ.items()]
        words = [word.encode(sys.getfilesystemencoding(), "surrogateescape") for word in arguments[1:]]
        request = b"\0".join([b"%d" % len(words), posix.getcwdb(), *words, *environment])
        message = memoryview(len(request).to_bytes(8, "big") + request)
        streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
        sent = link.sendmsg([message], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
        link.sendall(message[sent:])
        if link.recv(1) == TAKEN:
            return link
    except OSError:
        pass
    link.close()
    return None


def _follow(link: _socket.socket) -> int:
    """Wait for the child and return its exit status. If a signal ended the child, end this process by the same signal."""

    def forward(number: int, frame: object) -> None:
        link.send(bytes((number,)))

    for name in _FORWARDED:
        number = getattr(_signal, name)
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, forward)
    status = b""
    while len(status) < 4:
        part = link.recv(4 - len(status))
        if not part:
            return 1
        status += part
    wait_status = int.from_bytes(status, "big")
    number = wait_status & 0x7F
    if number:
        if number not in (_signal.SIGKILL, _signal.SIGSTOP):
            _signal.signal(number, _signal.SIG_DFL)
        posix.kill(posix.getpid(), number)
    return wait_status >> 8


if __name__ == "__main__":
    sys.exit(launch(sys.argv[1], sys.argv[2], sys.argv[3:]))
