"""How fresh an answer is, and must be: the version of each lane and, behind an append, the offset up to which its stream is read.

An answer carries it as the header `Hayase-Versions`, such as `main=12,operations=7`; that of an append says besides where its
records end: `main=12,orders@105`. A request with `?at_least=` such a text waits until what it reads is as fresh, or is refused
after `Limits.freshness` seconds. So a client reads its own writes, and never goes back in time, whichever server it asks.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from urllib.parse import parse_qsl, urlencode

from hayase.core.data_classes import dataclass
from hayase.engine.commit.manifests import Manifest
from hayase.serving.guard import App, Limits, Receive, Scope, Send
from hayase.serving.problems import RETRY_AFTER, Problem
from hayase.serving.server_figures import HttpFigures
from hayase.serving.service import Status

__all__ = ["AT_LEAST", "VERSIONS", "AtLeast", "Freshness", "versions_text"]

AT_LEAST = "at_least"
VERSIONS = "Hayase-Versions"
_PART = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,63})([=@])([0-9]{1,18})")
_MOST_PARTS = 100


def versions_text(manifest: Manifest, ends: Mapping[str, int] | None = None) -> str:
    """Return the header of an answer from this manifest; `ends` has the offsets behind what was appended, by stream.

    >>> versions_text(Manifest(3, lanes={"main": 2, "operations": 1}), {"orders": 105})
    'main=2,operations=1,orders@105'
    """
    lanes = (f"{lane}={version}" for lane, version in manifest.lanes.items())
    return ",".join([*lanes, *(f"{stream}@{end}" for stream, end in (ends or {}).items())])


@dataclass(frozen=True, slots=True)
class AtLeast:
    """The least versions of lanes, and offsets up to which streams must be read by all stages that read them."""

    lanes: Mapping[str, int]
    ends: Mapping[str, int]

    @classmethod
    def from_text(cls, text: str) -> AtLeast:
        """Parse the text that `versions_text` gives.

        >>> AtLeast.from_text("main=2,orders@105")
        AtLeast(lanes={'main': 2}, ends={'orders': 105})
        """
        parts = [_PART.fullmatch(part.strip()) for part in text.split(",", _MOST_PARTS)]
        if not all(parts):
            raise Problem(422, f'"{AT_LEAST}" is the {VERSIONS} of another answer, unchanged, like main=12')
        found = [part.groups() for part in parts if part is not None]
        return cls(
            {name: int(number) for name, sign, number in found if sign == "="},
            {name: int(number) for name, sign, number in found if sign == "@"},
        )

    def missing_in(self, manifest: Manifest) -> str | None:
        """Return what a manifest lacks, in words; None if it is fresh enough.

        >>> AtLeast({"main": 2}, {}).missing_in(Manifest(1, lanes={"main": 1}))
        'lane "main" is at version 1, not 2'
        """
        for lane, version in self.lanes.items():
            if manifest.lanes.get(lane, 0) < version:
                return f'lane "{lane}" is at version {manifest.lanes.get(lane, 0)}, not {version}'
        if self.ends and not manifest.version:
            return "nothing was committed yet"
        for stream, end in self.ends.items():
            for stage, inputs in manifest.offset.positions.items():
                if stream in inputs and inputs[stream].at < end:
                    return f'"{stage}" has read "{stream}" up to {inputs[stream].at}, not {end}'
        return None


class Freshness:
    """ASGI middleware that lets a request for data wait until the status is as fresh as its `at_least`."""

    def __init__(self, app: App, limits: Limits, figures: HttpFigures, status: Status):
        self._app, self._limits, self._figures, self._status = app, limits, figures, status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and b"at_least" in scope["query_string"] and reads_data(scope):
            asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            wanted = [value for name, value in asked if name == AT_LEAST]
            for text in wanted:
                await self._wait(AtLeast.from_text(text))
            rest = [(name, value) for name, value in asked if name != AT_LEAST]
            scope = {**scope, "query_string": urlencode(rest).encode()} if wanted else scope
        await self._app(scope, receive, send)

    async def _wait(self, wanted: AtLeast) -> None:
        changed = asyncio.Event()
        unsubscribe = self._status.subscribe(_setting(changed))
        self._figures.sharing += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._limits.freshness):
                    while wanted.missing_in(self._status.now.manifest) is not None:
                        await changed.wait()
                        changed.clear()
        finally:
            self._figures.sharing -= 1
            unsubscribe()
        manifest = self._status.now.manifest
        missing = wanted.missing_in(manifest)
        if missing is not None:
            raise Problem(
                503, f"what is served here is not as fresh as asked for after {self._limits.freshness:g} s: {missing}; try again",
                {"Retry-After": str(RETRY_AFTER), VERSIONS: versions_text(manifest)},
            )  # fmt: skip


def reads_data(scope: Scope) -> bool:
    """Whether a request can wait for fresh data: it reads, by GET or as the one for many keys."""
    return scope["method"] == "GET" or (scope["method"] == "POST" and scope["path"].startswith("/tables/"))


def _setting(event: asyncio.Event) -> Callable[[], None]:
    """Return what sets an event of this thread's loop from any thread."""
    loop = asyncio.get_running_loop()

    def set_soon() -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(event.set)

    return set_soon
