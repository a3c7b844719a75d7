"""The SQL server in a process of its own, so that no statement can stop or slow the pipeline beside it.

    with sql_serving(home, "127.0.0.1:5433", token=token) as address:
        ...  # run the pipeline

The owner listens and passes the socket on; the process gets its token over a pipe, and ends when the pipe is closed, even if the
owner is killed. If the process ends by itself, it is started again after a pause, which is longer the more often it ends at once;
clients that connect meanwhile wait in the queue of the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from hayase.core.addresses import Address, check_token, listening
from hayase.core.errors import HayaseError
from hayase.core.log_files import rotated_file
from hayase.engine.home import Home, open_log
from hayase.streams.durable import make_directory

if TYPE_CHECKING:
    from hayase.wire.server import SqlServer

__all__ = ["KeptProcess", "main", "sql_serving"]

_logger = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between two starts of a process that ends by itself."""
_LOOK = 0.25
"""Seconds between two looks whether the owner ends."""
_SECONDS = 10
"""For the process to end when it is asked to."""


@contextlib.contextmanager
def sql_serving(
    home: Home,
    address: str,
    *,
    token: str | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    on_end: Callable[[str], None] | None = None,
) -> Iterator[Address]:
    """Serve a home over PostgreSQL's protocol inside the block; yield the address with its actual port.

    Without a token, only at a loopback address. With a `certificate` (PEM, with its `key` in a file of its own or in the same one)
    clients may use TLS. `on_end` gets a line each time that the process has ended by itself and is about to be started again.
    """
    wanted = Address.from_text(address)
    check_token(token)
    if certificate is not None:
        tls_context(certificate, key)  # an unusable one is an error here, not in the process
    with listening(wanted, token) as listener:
        start = partial(_started, home, listener, token, certificate, key)
        with KeptProcess(start, home.path / "logs" / "sql.log", on_end):
            yield Address(wanted.host, listener.getsockname()[1])


class KeptProcess:
    """A context manager that keeps the server's process running; `on_end` gets a line each time that it has ended by itself."""

    def __init__(self, start: Callable[[], subprocess.Popen[bytes]], log: Path, on_end: Callable[[str], None] | None):
        self._start, self._log, self._on_end = start, log, on_end
        self._done = threading.Event()
        self.process = start()
        self._thread = threading.Thread(target=self._keep, name="sql", daemon=True)

    def __enter__(self) -> KeptProcess:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        _ask_to_end(self.process)
        self._thread.join()
        _end(self.process)

    def _keep(self) -> None:
        pause = FIRST_PAUSE
        while True:
            begun = time.monotonic()
            self._wait()
            if self._done.is_set():
                return
            if time.monotonic() - begun > 2 * LONGEST_PAUSE:
                pause = FIRST_PAUSE
            told = (
                f"the SQL server has ended ({self.process.returncode}) and starts again in {pause:g} s; see {self._log}"
            )
            _logger.warning("%s", told)
            if self._on_end is not None:
                self._on_end(told)
            if self._done.wait(pause):
                return
            pause = min(2 * pause, LONGEST_PAUSE)
            _ask_to_end(self.process)  # nobody reads what it was asked with
            self.process = self._start()

    def _wait(self) -> None:
        """Wait until the process has ended, or is about to be ended."""
        while not self._done.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_LOOK)
                return


def _started(
    home: Home, listener: socket.socket, token: str | None, certificate: Path | None, key: Path | None
) -> subprocess.Popen[bytes]:
    make_directory(home.path / "logs")
    command = [sys.executable, "-m", "hayase.wire.sql_process"]
    with open(open_log(home.path / "logs" / "sql.log"), "wb") as log:  # noqa: PTH123 - a descriptor
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, pass_fds=[listener.fileno()], start_new_session=True
        )
    assert process.stdin is not None
    options = {"home": home.path, "socket": listener.fileno(), "token": token, "certificate": certificate, "key": key}
    process.stdin.write(orjson.dumps(options, default=str) + b"\n")
    process.stdin.flush()
    return process


def _ask_to_end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tls_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """Return what TLS needs; HayaseError if the certificate cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise HayaseError(
            f'the certificate "{certificate}" cannot be used: {error}', "give PEM files with its key"
        ) from error
    return context


def main() -> None:
    """Serve as the first line of standard input says, until standard input ends."""
    from hayase.wire.server import SqlServer

    options = orjson.loads(sys.stdin.buffer.readline())
    home = Path(options["home"])
    handler = rotated_file(home / "logs" / "sql.log", logging.WARNING)
    logging.getLogger("hayase").addHandler(handler)
    certificate, key = options["certificate"], options["key"]
    tls = None if certificate is None else tls_context(Path(certificate), None if key is None else Path(key))
    server = SqlServer(home, token=options["token"], tls=tls)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve_until_closed(server, options["socket"]))


async def _serve_until_closed(server: SqlServer, descriptor: int) -> None:
    listener = socket.socket(fileno=descriptor)
    listener.setblocking(False)
    loop = asyncio.get_running_loop()
    serving = asyncio.create_task(server.serve(listener))
    closed = loop.run_in_executor(None, sys.stdin.buffer.read)
    await asyncio.wait([serving, closed], return_when=asyncio.FIRST_COMPLETED)
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving


if __name__ == "__main__":
    main()
