"""Routes to dead letters: which there are, and how they are settled. What one request does is bounded; the answer says how to
go on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypeVar

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from hayase.core.errors import DeclarationError, HayaseError, HomeInUse
from hayase.core.reasons import ReasonKind
from hayase.core.times import instant_text
from hayase.engine.dead_letters import settlement
from hayase.engine.dead_letters.edits import Editing, by_jq, in_turn, setting
from hayase.engine.dead_letters.letters import Filter, Letter, Letters
from hayase.engine.dead_letters.settlement import Settlement
from hayase.serving.bodies import JSON, content_type, read_as
from hayase.serving.json_rows import json_text
from hayase.serving.models import DropAsked, ReplayAsked
from hayase.serving.parameters import Limit, instant_of
from hayase.serving.problems import Problem
from hayase.serving.route_support import RequestWorkers, answer
from hayase.serving.service import CommittedStatus, Service
from hayase.tables.jq import Limits as JqLimits

__all__ = ["DeadRoutes"]

_LOOKED_AT = 1_000_000
"""Letters that are looked at for one answer."""
_SECONDS = 10.0
"""After so long a request does no more letters."""
_PATIENCE = 5.0
"""Seconds for which somebody else who settles letters is waited for."""
_JQ = JqLimits(seconds=0.1, memory=256 << 20, results=10, size=1 << 20)
_HIGHEST = 2**62

_Asked = TypeVar("_Asked", DropAsked, ReplayAsked)
_Text = Annotated[str | None, Query(max_length=200)]
_Kind = Annotated[ReasonKind | None, Query(description="The kind of reason.")]
_Time = Annotated[str | None, Query(max_length=64, description="A time: ISO text or microseconds.")]


class DeadRoutes:
    """Handlers of requests for dead letters."""

    def __init__(self, service: Service, desk: RequestWorkers):
        self.service, self.desk = service, desk
        self.letters = Letters(service.home, clock=service.clock)

    async def dead(
        self,
        request: Request,
        stage: _Text = None,
        stream: _Text = None,
        kind: _Kind = None,
        reason: Annotated[str | None, Query(max_length=1000, description="A part of the reason.")] = None,
        since: _Time = None,
        until: _Time = None,
        version: _Text = None,
        before: Annotated[
            int | None, Query(ge=0, lt=_HIGHEST, description="Only letters with smaller numbers.")
        ] = None,
        settled: Annotated[bool, Query(description="Also those that were replayed or dropped.")] = False,
        limit: Limit = 100,
    ) -> Response:
        """The newest dead letters that are open: records that could not be taken, with the reasons."""
        now = self.service.committed_status()
        wanted = Filter(stage, stream, reason, _instant(since), _instant(until), version, kind=kind)
        return await self.desk.run(self._dead, request, now, wanted, min(limit, self.desk.limits.page), before, settled)

    def _dead(
        self, request: Request, now: CommittedStatus, wanted: Filter, limit: int, before: int | None, settled: bool
    ) -> Response:
        _, next_ = self.letters.bounds()
        page = self.letters.newest(wanted, limit, before=before, settled=settled, look_at=_LOOKED_AT)
        found = [_plain(each) for each in reversed(page.letters)]
        told = {"first": found[0]["letter"] if found else next_, "next": next_, "letters": found, "older": page.older}
        return answer(request, json_text(told), now)

    async def groups(self, request: Request, stage: _Text = None, stream: _Text = None, kind: _Kind = None) -> Response:
        """Open dead letters in groups of one stage, stream and kind with similar reasons, largest first; at most a thousand."""
        now = self.service.committed_status()
        wanted = Filter(stage, stream, kind=kind)
        return answer(request, await self.desk.run(self._groups, wanted), now)

    def _groups(self, wanted: Filter) -> bytes:
        groups = self.letters.groups(wanted)
        told = [
            {
                "stage": group.stage, "stream": group.stream, "kind": group.kind, "reason": group.reason,
                "letters": group.count, "first": group.first, "last": group.last,
                "since": instant_text(group.since), "until": instant_text(group.until),
            }
            for group in groups
        ]  # fmt: skip
        return json_text({"open": sum(group.count for group in groups), "groups": told})

    async def letter(
        self, request: Request, letter: Annotated[str, Path(pattern="^[0-9]{1,18}$", examples=["17"])]
    ) -> Response:
        """One dead letter, with what became of it."""
        now = self.service.committed_status()
        found = await self.desk.run(self.letters.get, int(letter))
        fate = found.fate
        more = {
            "settled_at": None if fate.at is None else instant_text(fate.at),
            "replayed": fate.record,
            "appended": fate.appended,
            "again": found.again,
        }
        return answer(request, json_text({**_plain(found), **more}), now)

    async def replay(self, request: Request) -> Response:
        """Give records once more to the stages that refused them, and to nobody else; records that no stream took are appended
        to theirs.

        Each letter is replayed once, whoever else asks for it. What is edited must fit its stream, or the letter stays open.
        """
        return await self._settled(request, ReplayAsked, self._replay)

    async def drop(self, request: Request) -> Response:
        """Settle letters without doing anything with them."""
        return await self._settled(request, DropAsked, self._drop)

    async def _settled(self, request: Request, model: type[_Asked], work: Callable[[_Asked], Settlement]) -> Response:
        self.service.committed_status()
        content_type(request.headers, (JSON,))
        body = await self.desk.body(request)
        report = await self.desk.run(lambda: work(read_as(body, model)))
        return Response(json_text(report.plain()), media_type=JSON, headers={"Cache-Control": "no-store"})

    def _replay(self, asked: ReplayAsked) -> Settlement:
        expired = _deadline()
        with contextlib.ExitStack() as stack:
            edits: list[Editing] = []
            if asked.edit is not None:
                try:
                    edits.append(stack.enter_context(by_jq(asked.edit, _JQ, expired)))
                except DeclarationError as error:
                    raise Problem(422, f"the edit is not a jq program: {error}") from None
            if asked.set is not None:
                edits.append(setting(asked.set))
            editing = in_turn(*edits) if edits else None
            with _one_at_a_time():
                return settlement.replay(
                    self.letters, _filter(asked), editing, late=asked.late, limit=asked.limit, dry=asked.dry_run,
                    expired=expired, patience=_PATIENCE,
                )  # fmt: skip

    def _drop(self, asked: DropAsked) -> Settlement:
        with _one_at_a_time():
            return settlement.drop(
                self.letters, _filter(asked), limit=asked.limit, dry=asked.dry_run, expired=_deadline(),
                patience=_PATIENCE,
            )  # fmt: skip


def _deadline() -> Callable[[], bool]:
    until = time.monotonic() + _SECONDS
    return lambda: time.monotonic() >= until


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    try:
        yield
    except HomeInUse as error:
        raise Problem(409, str(error)) from None


def _filter(asked: DropAsked | ReplayAsked) -> Filter:
    offsets = None
    if asked.first_offset is not None or asked.last_offset is not None:
        offsets = (asked.first_offset or 0, _HIGHEST if asked.last_offset is None else asked.last_offset)
    numbers = None if asked.letters is None else tuple(asked.letters)
    try:
        wanted = Filter(
            asked.stage, asked.stream, asked.reason, _instant(asked.since), _instant(asked.until), asked.version,
            offsets, numbers, asked.first, asked.kind,
        )  # fmt: skip
    except HayaseError as error:
        raise Problem(422, str(error)) from None
    if not asked.all and wanted == Filter(first=asked.first):
        raise Problem(422, 'say which letters: "letters", "stage" and the like, or "all": true')
    return wanted


def _instant(text: str | int | None) -> int | None:
    return None if text is None else instant_of(text)


def _plain(letter: Letter) -> dict[str, Any]:
    return {"letter": letter.number, **letter.columns, "state": letter.fate.state}
