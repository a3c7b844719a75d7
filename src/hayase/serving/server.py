"""The HTTP server: uvicorn in a thread of the pipeline's process, without signal handlers or output to the terminal.

    with serving(home, "127.0.0.1:8421", tables=tables, status=status) as server:
        ...  # run the pipeline; call status.set("running"), status.committed(manifest)

Without a token it accepts loopback addresses only. Warnings and errors are also written to `logs/serving.log` in the home.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator

import uvicorn
from fastapi import FastAPI

from hayase.core.access import OPEN, Access
from hayase.core.addresses import Address, listening
from hayase.core.clock import now_us
from hayase.core.errors import EnvironmentUnfit
from hayase.core.log_files import rotated_file
from hayase.engine.home import Home
from hayase.serving.app import create_app
from hayase.serving.connections import IDLE_SECONDS, MOST_HEAD, connection_kind, most_connections
from hayase.serving.guard import Limits
from hayase.serving.live_figures import LiveFigures
from hayase.serving.problems import LOGGER
from hayase.serving.route_support import RequestWorkers
from hayase.serving.service import Service, Status, TablesOfHome
from hayase.streams.durable import make_directory

__all__ = ["Address", "Server", "served_at", "serving"]

_GRACE = 5
"""Seconds for requests to end when the server stops."""


class Server:
    """A running server."""

    def __init__(self, address: Address, status: Status, has_tls: bool = False):
        self.address, self.status, self.has_tls = address, status, has_tls

    @property
    def url(self) -> str:
        """The URL of the server, without a path."""
        return f"{'https' if self.has_tls else 'http'}://{self.address}"


@contextlib.contextmanager
def serving(
    home: Home,
    address: str = "127.0.0.1:8421",
    *,
    tables: TablesOfHome | None = None,
    status: Status | None = None,
    access: Access = OPEN,
    hosts: Iterable[str] = (),
    clock: Callable[[], int] = now_us,
    limits: Limits | None = None,
) -> Iterator[Server]:
    """Serve a home inside the block; at its end, requests in progress are finished and streams of events are ended.

    `hosts` are further host names of the server. Until the status is "running", requests for data are answered with 503.
    """
    wanted = Address.from_text(address)
    status = status or Status()
    access.check()
    with listening(wanted, access.is_secured) as listener, _logging(home):
        service = Service(home, clock, tables, status)
        app = create_app(service, limits=limits, access=access, hosts=[wanted.host, *hosts])
        with served_at(listener, app, access):
            server = Server(Address(wanted.host, listener.getsockname()[1]), status, access.certificate is not None)
            LOGGER.info("serving at %s", server.url)
            yield server
            LOGGER.info("stopped serving at %s", server.url)


@contextlib.contextmanager
def served_at(listener: socket.socket, app: FastAPI, access: Access = OPEN) -> Iterator[None]:
    """Serve an application at a listening socket inside the block, by TLS if there is a certificate."""
    certificate = access.open_certificate()
    kind = connection_kind()
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, lifespan="off", loop="asyncio", ws="none",
        http=kind, h11_max_incomplete_event_size=MOST_HEAD, timeout_keep_alive=IDLE_SECONDS,
        limit_concurrency=most_connections() if kind == "h11" else None,  # our connection class enforces the limit itself
        timeout_graceful_shutdown=_GRACE, proxy_headers=False,
    )  # fmt: skip
    config.load()
    config.ssl = None if certificate is None else certificate.context
    thread = _Thread(uvicorn.Server(config), listener, app.state.desk, app.state.live)
    thread.begin()
    try:
        yield
    finally:
        thread.end()


class _Thread:
    """The thread with the event loop of the server."""

    def __init__(self, server: uvicorn.Server, listener: socket.socket, desk: RequestWorkers, live: LiveFigures):
        self._server, self._listener, self._desk, self._live = server, listener, desk, live
        self._loop: asyncio.AbstractEventLoop | None = None
        self._up = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="serving", daemon=True)

    def begin(self) -> None:
        """Start, and wait until requests are accepted."""
        self._thread.start()
        self._up.wait()
        if self._error is not None:
            raise EnvironmentUnfit(f"the server could not start: {self._error}") from self._error

    def end(self) -> None:
        """Stop, and wait until the thread has ended."""
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(self._stop)
        self._thread.join()
        self._desk.close()

    def _stop(self) -> None:
        self._desk.stop()
        self._server.should_exit = True

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                runner.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._up.set()

    async def _serve(self) -> None:
        running = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        looking = asyncio.create_task(self._live.run())
        while not self._server.started and not running.done():
            await asyncio.sleep(0.001)
        self._up.set()
        await running
        self._desk.stop()
        await looking


@contextlib.contextmanager
def _logging(home: Home) -> Iterator[None]:
    """Write warnings and errors of the server and of uvicorn to `logs/serving.log` in the home, a file that is rotated.

    Those of the server also reach the handlers of the logger "hayase"; those of uvicorn go to the file only.
    """
    directory = home.path / "logs"
    make_directory(directory)
    handler = rotated_file(directory / "serving.log", logging.WARNING)
    uvicorn_logger = logging.getLogger("uvicorn")
    propagate = uvicorn_logger.propagate
    uvicorn_logger.propagate = False
    for logger in (LOGGER, uvicorn_logger):
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in (LOGGER, uvicorn_logger):
            logger.removeHandler(handler)
        uvicorn_logger.propagate = propagate
        handler.close()
