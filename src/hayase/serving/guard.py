"""The middleware around all routes: it admits requests, bounds their bodies and answers, and turns errors into problems.

It checks, in this order: the number of concurrent requests, the length of the address and of the headers, the Host (against
DNS rebinding), the token or the session of a browser and its role, whether anything may be changed here, and the origin of
requests that change something. A session counts only for requests from pages of this server. The body is counted while it is
read, and the connection of a client that does not read its answer is closed. `/health` is answered however many requests there
are. An error of a route becomes a problem; no traceback is sent.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from starlette.requests import ClientDisconnect

from hayase.core.addresses import host_name
from hayase.core.data_classes import dataclass
from hayase.core.tokens import Role, TokenHolder
from hayase.serving.body_admission import Body, Incoming, too_long
from hayase.serving.problems import LOGGER, PROBLEM_JSON, Problem, busy, problem_of
from hayase.serving.roles import role_needed
from hayase.serving.server_figures import HttpFigures
from hayase.serving.sessions import Sessions

__all__ = ["Guard", "Limits"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_SAFE = ("GET", "HEAD")
_READ_ONLY = (
    "this is a replica, which only reads; send what changes something to the server of the pipeline itself, which "
    "`hayase run --serve` starts, or use the command line where its home is"
)
_ALWAYS = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one server. Sizes are bytes, times seconds."""

    body: int = 16 << 20
    headers: int = 16 << 10
    target: int = 8 << 10
    page: int = 1000
    """Rows in an answer, and keys in a request."""
    seconds: float = 30.0
    """For a body to arrive, and for an answer to be computed."""
    trial: float = 25.0
    """For the trial of an operation or a query that a client sends."""
    trial_memory: int = 1 << 30
    """For the trial of a query."""
    requests: int = 64
    """Concurrent requests; one whose body is not complete, or that waits for the answer to an equal one, does not count."""
    bodies: int = 256
    """Concurrent requests whose body is not complete."""
    held: int = 256 << 20
    """Bytes of all bodies in memory."""
    work: int = 32 << 20
    """Bytes of bodies that are processed at once; others wait."""
    listeners: int = 128
    """Concurrent streams of events."""
    threads: int = 4
    """Threads that read and write the disk."""
    heartbeat: float = 15.0
    freshness: float = 5.0
    """For what a request wants to be at least as fresh as."""


class Guard:
    """ASGI middleware that checks every request as the module describes."""

    def __init__(
        self,
        app: App,
        limits: Limits,
        figures: HttpFigures,
        sessions: Sessions | None = None,
        hosts: Iterable[str] = (),
        is_open: Callable[[str], bool] = lambda path: False,
        is_read_only: bool = False,
    ):
        self._app, self._limits, self._figures = app, limits, figures
        self._sessions, self._is_open, self._is_read_only = sessions, is_open, is_read_only
        self._hosts = frozenset({"localhost", *(host.lower() for host in hosts)})
        self._known: dict[bytes, bool] = {}
        self._incoming = Incoming(limits.bodies, limits.held)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":  # not supported: refused during the handshake
                await receive()
                await send({"type": "websocket.close", "code": 1000})
            else:
                await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # handled as GET; the server omits the body
            scope = {**scope, "method": "GET"}
        figures, began, status = self._figures, time.perf_counter(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_ALWAYS]
            try:
                async with asyncio.timeout(self._limits.seconds):
                    await send(message)
            except TimeoutError:
                raise ConnectionAbortedError("the client does not read its answer") from None

        body = Body(receive, (scope.get("client") or ("",))[0], self._limits.body, self._incoming, _has_body(scope))
        figures.begin()
        try:
            self._admit(scope)
            if _has_body(scope):
                self._incoming.begin(body)
            await self._app(scope, body, answer)
        except ConnectionAbortedError:
            raise
        except ClientDisconnect:  # while it sent its body: nobody waits for an answer
            LOGGER.debug("a client disconnected before its request was complete")
        except Exception as error:
            problem = problem_of(error)
            if status:  # the answer has begun: HTTP signals an error by closing the connection
                LOGGER.warning("an answer was cut off: %s", problem.detail)
                raise ConnectionAbortedError("the answer could not be completed") from None
            await respond(problem, answer)
        finally:
            self._incoming.end(body)
            route = scope.get("route")
            figures.end(scope["method"], getattr(route, "path", ""), status, time.perf_counter() - began)

    def _admit(self, scope: Scope) -> None:
        limits = self._limits
        waiting = self._figures.listening + self._figures.sharing + self._incoming.count
        if self._figures.running > limits.requests + waiting and scope["path"] != "/health":
            raise busy(f"{limits.requests} requests are being answered, which is the limit; try again")
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > limits.target:
            raise Problem(
                414, f"the address is longer than {limits.target:,} bytes; ask for many keys with POST /tables/NAME"
            )
        size, length, host, authorization, origin, site = 0, b"", None, None, None, None
        cookies: list[str] = []
        for name, value in scope["headers"]:
            size += len(name) + len(value)
            if name == b"host":
                host = value
            elif name == b"authorization":
                authorization = value
            elif name == b"content-length":
                length = value
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
            elif name == b"cookie":
                cookies.append(value.decode("latin-1"))
        if size > limits.headers:
            raise Problem(431, f"the headers are longer than {limits.headers:,} bytes together; send less")
        if host is None or not self._is_own_host(host):
            raise Problem(
                421,
                "the Host of this request is not a name of this server; use its address, or localhost, "
                "or start it with that name among its hosts",
            )
        safe = scope["method"] in _SAFE
        if not self._is_open(scope["path"]):
            needed = role_needed(scope["method"], scope["path"])
            if self._sessions is not None:
                own_page = _is_own_page(origin, site, host, safe)
                holder = None
                if authorization is None and own_page:
                    holder = self._sessions.holder(host.decode("latin-1"), cookies)
                _check_role(holder or _holder(self._sessions, authorization), needed, scope)
            if self._is_read_only and needed != "read":
                raise Problem(403, _READ_ONLY)
        if not safe and not _same_origin(origin, site, host):
            raise Problem(403, "a page from elsewhere may not change anything here; send the request from a program")
        if length.isdigit() and int(length[:20]) > limits.body:
            raise too_long(limits.body)

    def _is_own_host(self, host: bytes) -> bool:
        known = self._known.get(host)
        if known is None:
            name = host_name(host.decode("latin-1"))
            known = name is not None and (name in self._hosts or _is_address(name))
            if len(self._known) < 1000:
                self._known[host] = known
        return known


def _holder(sessions: Sessions, authorization: bytes | None) -> TokenHolder:
    kind, _, token = (authorization or b"").partition(b" ")
    holder = sessions.tokens.holder(token.strip().decode("latin-1"))
    if holder is None or kind.lower() != b"bearer":
        raise Problem(
            401, "this server asks for its token; send it as Authorization: Bearer TOKEN",
            {"WWW-Authenticate": "Bearer"},
        )  # fmt: skip
    return holder


def _check_role(holder: TokenHolder, needed: Role, scope: Scope) -> None:
    if needed not in holder.roles:
        LOGGER.warning('%s %s was refused: the token "%s" has no role %s', *_what(scope), holder.name, needed)
        has = ", ".join(sorted(holder.roles))
        raise Problem(403, f'this needs the role {needed}, and the token "{holder.name}" has only: {has}')
    if needed != "read":
        LOGGER.info('%s %s by the token "%s"', *_what(scope), holder.name)


def _what(scope: Scope) -> tuple[str, str]:
    """Return method and path of a request for the log, on one line."""
    return scope["method"], scope["path"].encode("ascii", "backslashreplace").decode()[:200]


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0"))
        for name, value in scope["headers"]
    )


async def respond(problem: Problem, send: Send) -> None:
    """Send a problem."""
    body = problem.body
    headers = {"content-type": PROBLEM_JSON, "content-length": str(len(body)), "cache-control": "no-store"}
    if problem.status in (408, 413):
        headers["connection"] = "close"  # the rest of the body is not read
    pairs = [(name.lower().encode(), value.encode()) for name, value in {**headers, **problem.headers}.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


def _is_address(name: str) -> bool:
    """Whether a host is an IP address, which DNS rebinding cannot redirect."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _same_origin(origin: bytes | None, site: bytes | None, host: bytes) -> bool:
    """Whether a request comes from this server's own pages or from a program: only browsers send these headers."""
    if site is not None and site not in (b"same-origin", b"none"):
        return False
    return origin is None or origin in (b"http://" + host, b"https://" + host)


def _is_own_page(origin: bytes | None, site: bytes | None, host: bytes, safe: bool) -> bool:
    """Whether a request with a cookie surely comes from a page of this server: what it changes must name its origin."""
    return _same_origin(origin, site, host) and (safe or origin is not None)
