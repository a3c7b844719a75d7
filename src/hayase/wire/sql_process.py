"""The SQL server in a process of its own, so that no statement can stop or slow the pipeline beside it.

    with sql_serving(home, "127.0.0.1:5433", access=access) as address:
        ...  # run the pipeline

The owner listens and passes the socket on; the process gets the token over a pipe, and ends when the pipe is closed, even if the
owner is killed. If the process ends by itself, it is started again after a pause, which is longer the more often it ends at once;
clients that connect meanwhile wait in the queue of the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hayase.core.access import OPEN, Access
from hayase.core.addresses import Address, listening
from hayase.core.log_files import rotated_file
from hayase.core.socket_processes import end_process, options_of_this_process, start_process
from hayase.engine.home import Home, open_log
from hayase.streams.durable import make_directory

if TYPE_CHECKING:
    from hayase.wire.server import SqlServer

__all__ = ["KeptProcess", "main", "sql_serving"]

_logger = logging.getLogger(__name__)
_MODULE = "hayase.wire.sql_process"
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between two starts of a process that ends by itself."""
_LOOK = 0.25
"""Seconds between two looks whether the owner ends."""


@contextlib.contextmanager
def sql_serving(
    home: Home,
    address: str,
    *,
    access: Access = OPEN,
    log: bool = True,
    on_end: Callable[[str], None] | None = None,
) -> Iterator[Address]:
    """Serve a home over PostgreSQL's protocol inside the block; yield the address with its actual port.

    Without a token, only at a loopback address. With a certificate clients may use TLS. The log is `logs/sql.log` in the home, or
    without `log` the standard error of this process, for a home that is only read. `on_end` gets a line each time that the process
    has ended by itself and is about to be started again.
    """
    wanted = Address.from_text(address)
    access.check()  # what cannot be used is an error here, not in the process
    with listening(wanted, access.is_secured) as listener:
        start, file = partial(_started, home, listener, access, log), home.path / "logs" / "sql.log" if log else None
        with KeptProcess(start, file, on_end):
            yield Address(wanted.host, listener.getsockname()[1])


class KeptProcess:
    """A context manager that keeps the server's process running; `on_end` gets a line each time that it has ended by itself."""

    def __init__(
        self, start: Callable[[], subprocess.Popen[bytes]], log: Path | None, on_end: Callable[[str], None] | None
    ):
        self._start, self._log, self._on_end = start, log, on_end
        self._done = threading.Event()
        self.process = start()
        self._thread = threading.Thread(target=self._keep, name="sql", daemon=True)

    def __enter__(self) -> KeptProcess:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        end_process(self.process)

    def _keep(self) -> None:
        pause = FIRST_PAUSE
        while True:
            begun = time.monotonic()
            self._wait()
            if self._done.is_set():
                return
            if time.monotonic() - begun > 2 * LONGEST_PAUSE:
                pause = FIRST_PAUSE
            told = f"the SQL server has ended ({self.process.returncode}) and starts again in {pause:g} s"
            told += f"; see {self._log}" if self._log is not None else ""
            _logger.warning("%s", told)
            if self._on_end is not None:
                self._on_end(told)
            if self._done.wait(pause):
                return
            pause = min(2 * pause, LONGEST_PAUSE)
            end_process(self.process)  # which closes the pipe to it
            self.process = self._start()

    def _wait(self) -> None:
        """Wait until the process has ended, or is about to be ended."""
        while not self._done.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_LOOK)
                return


def _started(home: Home, listener: socket.socket, access: Access, log: bool) -> subprocess.Popen[bytes]:
    options = {"home": str(home.path), "access": access.as_json(), "log": log}
    if not log:
        return start_process(_MODULE, listener, options)
    make_directory(home.path / "logs")
    with open(open_log(home.path / "logs" / "sql.log"), "wb") as file:  # noqa: PTH123 - a descriptor
        return start_process(_MODULE, listener, options, file)


def main() -> None:
    """Serve as the first line of standard input says, until standard input ends."""
    from hayase.wire.server import SqlServer

    listener, options = options_of_this_process()
    home = Path(options["home"])
    if options["log"]:
        logging.getLogger("hayase").addHandler(rotated_file(home / "logs" / "sql.log", logging.WARNING))
    server = SqlServer(home, access=Access.from_json(options["access"]))
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve_until_closed(server, listener))


async def _serve_until_closed(server: SqlServer, listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    serving = asyncio.create_task(server.serve(listener))
    closed = loop.run_in_executor(None, sys.stdin.buffer.read)
    await asyncio.wait([serving, closed], return_when=asyncio.FIRST_COMPLETED)
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving


if __name__ == "__main__":
    main()
