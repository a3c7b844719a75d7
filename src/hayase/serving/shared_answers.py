"""Answers that many clients ask for at the same time: computed once, and sent to all of them as the same bytes.

A client takes part if its request accepts an answer that is a little old: `Cache-Control: max-age=SECONDS`, as the pages of the
console send it when they renew what they show. An answer is shared at most that long, and only until something is committed or
the figures of the pipeline change, so that whoever asks because of such a change gets an answer from after it. An answer that
takes long to compute is not computed all the time: those who take part wait until `REST` times that have passed since the last
time. All other requests are answered at once and on their own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from hayase.core.data_classes import dataclass
from hayase.serving.guard import App, Message, Receive, Scope, Send
from hayase.serving.route_support import is_known
from hayase.serving.server_figures import HttpFigures

__all__ = ["SharedAnswers"]

MOST_ANSWERS = 64
MOST_BYTES = 16 << 20
"""How many answers are shared at a time, and the bytes of them together."""
REST = 50.0
MOST_REST = 10.0
"""Seconds that an answer is not computed again, for each second that it took, and in all."""
_PLACES = 1_000
_MAX_AGE = b"max-age="


@dataclass(frozen=True, slots=True)
class _Answer:
    """A complete answer with an ETag. `route` is what answered it, for the figures of the server."""

    headers: list[tuple[bytes, bytes]]
    tag: str
    body: bytes
    route: Any
    at: float


class SharedAnswers:
    """ASGI middleware that shares answers as the module describes; used in the thread of the event loop only.

    `state` returns the commit and the number of the figures that an answer begun now is from. When the server is `stopping`,
    nobody waits.
    """

    def __init__(
        self, app: App, figures: HttpFigures, state: Callable[[], tuple[object, int]], stopping: asyncio.Event
    ):
        self._app, self._figures, self._state, self._stopping = app, figures, state, stopping
        self._commit, self._number = state()
        self._answers: dict[tuple[bytes, bytes], asyncio.Future[_Answer | None]] = {}
        self._bytes = 0
        self._due: dict[tuple[bytes, bytes], float] = {}
        """When the answer at a place may be computed again."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        age, known = _asked(scope) if scope["type"] == "http" and scope["method"] == "GET" else (0, None)
        if not age:
            await self._app(scope, receive, send)
            return
        place = scope["raw_path"], scope["query_string"]
        first = self._current().get(place)
        while first is None and (rest := self._due.get(place, 0.0) - _now()) > 0 and not self._stopping.is_set():
            await self._rest(rest)
            first = self._current().get(place)
        if first is not None and not (first.done() and _is_older(first.result(), age)):
            answer = await self._wait(first)
            if answer is not None:
                scope["route"] = answer.route
                await _send(answer, known, send)
                return
        if len(self._answers) >= MOST_ANSWERS or (first is not None and not first.done()):
            await self._app(scope, receive, send)
            return
        await self._answer(scope, receive, send, place, known)

    def _current(self) -> dict[tuple[bytes, bytes], asyncio.Future[_Answer | None]]:
        """Return the answers since the last commit and the last change of the figures."""
        commit, number = self._state()
        if commit is not self._commit or number != self._number:
            self._commit, self._number, self._answers, self._bytes = commit, number, {}, 0
        return self._answers

    async def _wait(self, first: asyncio.Future[_Answer | None]) -> _Answer | None:
        if first.done():
            return first.result()
        self._figures.sharing += 1
        try:
            return await asyncio.shield(first)
        finally:
            self._figures.sharing -= 1

    async def _rest(self, seconds: float) -> None:
        self._figures.sharing += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stopping.wait()
        finally:
            self._figures.sharing -= 1

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, place: tuple[bytes, bytes], known: str | None
    ) -> None:
        """Answer a request, and let those who ask for the same meanwhile wait for it."""
        first = self._answers[place] = asyncio.get_running_loop().create_future()
        answers = self._answers

        def end(answer: _Answer | None) -> None:
            if first.done():
                return
            first.set_result(answer)
            if answers is self._answers:
                if answer is None or self._bytes + len(answer.body) > MOST_BYTES:
                    answers.pop(place, None)
                else:
                    self._bytes += len(answer.body)

        own = _Capture(send, lambda: end(None))
        whole = {**scope, "headers": [pair for pair in scope["headers"] if pair[0] != b"if-none-match"]}
        answer, began = None, _now()
        try:
            await self._app(whole, receive, own)
            scope["route"] = whole.get("route")
            answer = own.answer(scope["route"])
        finally:
            end(answer)
        if answer is None:
            await own.release()
            return
        if len(self._due) >= _PLACES:
            self._due.clear()
        self._due[place] = _now() + min((_now() - began) * REST, MOST_REST)
        await _send(answer, known, send)


class _Capture:
    """Keeps the messages of an answer that is sent in one piece; one in several pieces is passed on as it comes, after a call
    of `passes`."""

    def __init__(self, send: Send, passes: Callable[[], None]):
        self._send, self._pass = send, passes
        self._messages: list[Message] = []
        self._passes = False

    async def __call__(self, message: Message) -> None:
        self._messages.append(message)
        if self._passes or message.get("more_body"):
            self._passes = True
            self._pass()
            await self.release()

    async def release(self) -> None:
        """Send what was kept."""
        messages, self._messages = self._messages, []
        for message in messages:
            await self._send(message)

    def answer(self, route: Any) -> _Answer | None:
        """Return the answer if it can be shared: a whole one with a tag."""
        if len(self._messages) != 2 or self._messages[0]["status"] != 200:
            return None
        headers = list(self._messages[0]["headers"])
        tag = next((value.decode("latin-1") for name, value in headers if name == b"etag"), None)
        if tag is None:
            return None
        return _Answer(headers, tag, self._messages[1].get("body", b""), route, _now())


def _asked(scope: Scope) -> tuple[int, str | None]:
    """Return the age in seconds that a request accepts, 0 if it must be new, and the tags that it knows."""
    age, known = 0, None
    for name, value in scope["headers"]:
        if name == b"cache-control" and value.startswith(_MAX_AGE):
            digits = value[len(_MAX_AGE) :]
            age = int(digits) if digits.isdigit() and len(digits) < 10 else 0
        elif name == b"if-none-match":
            known = value.decode("latin-1")
    return age, known


def _is_older(answer: _Answer | None, age: int) -> bool:
    return answer is not None and _now() >= answer.at + age


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _send(answer: _Answer, known: str | None, send: Send) -> None:
    if is_known(answer.tag, known):
        headers = [pair for pair in answer.headers if pair[0] not in (b"content-length", b"content-type")]
        await send({"type": "http.response.start", "status": 304, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        return
    await send({"type": "http.response.start", "status": 200, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.body})
