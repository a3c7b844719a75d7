"""Routes of the console: its files, which are built from `console-web/` and shipped in the package, and the session of a browser.

The files hold nothing secret and are served without the token, so that a browser can show the form that asks for it.
"""

from __future__ import annotations

import gzip
import mimetypes
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import orjson
import xxhash
from fastapi import Path as PathParameter
from starlette.requests import Request
from starlette.responses import Response

from hayase.core.data_classes import dataclass
from hayase.serving.bodies import JSON, content_type, read_as
from hayase.serving.pipeline_models import SessionAsked
from hayase.serving.problems import Problem
from hayase.serving.route_support import RequestWorkers
from hayase.serving.sessions import Sessions, ended

__all__ = ["POLICY", "ConsoleRoutes", "is_open"]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""The Content-Security-Policy of the console: only files of this server, no inline scripts or styles, no frames."""
DIRECTORY = Path(__file__).parent / "console"
_YEAR = "public, max-age=31536000, immutable"
_MOST_BYTES = 4096
"""The largest body of a login."""


def is_open(path: str) -> bool:
    """Whether a path is served without the token: the files of the console, and where a session begins."""
    return path in ("/", "/session") or path.startswith("/console/")


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    compressed: bytes
    kind: str
    tag: str


@lru_cache(maxsize=64)
def _file(name: str) -> _File | None:
    path = DIRECTORY / name
    if path.parent != DIRECTORY or not path.is_file():
        return None
    body = path.read_bytes()
    kind = "text/javascript" if path.suffix == ".js" else mimetypes.guess_type(name)[0] or "application/octet-stream"
    charset = "; charset=utf-8" if kind.startswith("text/") else ""
    return _File(body, gzip.compress(body, 9, mtime=0), kind + charset, f'"{xxhash.xxh3_128_hexdigest(body)}"')


class ConsoleRoutes:
    """The handlers; `sessions` is None if the server has no token."""

    def __init__(self, desk: RequestWorkers, sessions: Sessions | None):
        self.desk, self.sessions = desk, sessions

    async def console(self, request: Request) -> Response:
        """The console: the pipeline in a browser."""
        return self._answer(request, "index.html", "no-cache")

    async def console_file(
        self, request: Request, file: Annotated[str, PathParameter(max_length=200, pattern=r"^[\w.-]+$")]
    ) -> Response:
        """A file of the console."""
        return self._answer(request, file, _YEAR)

    def _answer(self, request: Request, name: str, caching: str) -> Response:
        found = _file(name)
        if found is None:
            what = (
                "the console was not built here; `make console` builds it" if name == "index.html" else "no such file"
            )
            raise Problem(404, f"{what}; GET /docs describes every route")
        headers = {
            "Content-Security-Policy": POLICY,
            "Cache-Control": caching,
            "ETag": found.tag,
            "Vary": "Accept-Encoding",
            "Cross-Origin-Opener-Policy": "same-origin",
        }
        if request.headers.get("if-none-match") == found.tag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(
                found.compressed, headers={**headers, "Content-Encoding": "gzip", "Content-Type": found.kind}
            )
        return Response(found.body, headers={**headers, "Content-Type": found.kind})

    async def session(self, request: Request) -> Response:
        """Whether the server asks for a token, and whether this browser has a session."""
        needed = self.sessions is not None
        answer = {"token_required": needed, "open": not needed or self._is_open(request)}
        return Response(orjson.dumps(answer), headers={"Cache-Control": "no-store"}, media_type=JSON)

    def _is_open(self, request: Request) -> bool:
        assert self.sessions is not None
        return self.sessions.holder(_host(request), request.headers.getlist("cookie")) is not None

    async def begin_session(self, request: Request) -> Response:
        """Begin a session of a browser: with the token, a cookie is set that stands for it, for twelve hours."""
        content_type(request.headers, (JSON,))
        body = await self.desk.body(request)
        if len(body) > _MOST_BYTES:
            raise Problem(413, f"a login is no longer than {_MOST_BYTES:,} bytes")
        asked = read_as(body, SessionAsked)
        headers = {"Cache-Control": "no-store"}
        if self.sessions is not None:
            holder = self.sessions.tokens.holder(asked.token)
            if holder is None:
                raise Problem(401, "this is not the token of this server", {"WWW-Authenticate": "Bearer"})
            headers["Set-Cookie"] = self.sessions.cookie(_host(request), holder.name)
        return Response(status_code=204, headers=headers)

    async def end_session(self, request: Request) -> Response:
        """End the session of this browser."""
        return Response(status_code=204, headers={"Cache-Control": "no-store", "Set-Cookie": ended(_host(request))})


def _host(request: Request) -> str:
    return request.headers.get("host", "")
