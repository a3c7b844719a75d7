"""An object store: single requests that may fail or lose their answer become verbs that can be relied on.

A write that is refused is followed by reading back: the content tells whether it was done after all. Requests are repeated after
growing pauses, up to a limit of attempts and of time. That is safe for every verb: a conditional write that was done is refused
when it is repeated, and recognised by its content; an earlier attempt that arrives late finds its condition violated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from hayase.core.errors import EndpointError
from hayase.storage import request_counts
from hayase.storage.verbs import Status, Stored

__all__ = ["LIMIT", "PAUSES", "Failed", "ObjectStore", "Refused", "Requests"]

PAUSES = (0.05, 0.2, 0.8, 2.0, 4.0)
"""Seconds between attempts."""
LIMIT = 40.0
"""Seconds after which no further attempt is made."""
MANY = 1000
"""Objects that one request deletes."""
_Answer = TypeVar("_Answer")
_Again = Literal["again"]


class Refused(Exception):
    """The store says that the condition of a write does not hold (412, or 404 for one that is gone), or that another write of the
    object is under way (409)."""


class Failed(Exception):
    """There is no answer, or one that says to try again (5xx, 429): the request may have been done, or may yet be."""


class Requests(Protocol):
    """Single requests to an object store, named like the verbs. Each is made once and raises `Refused` or `Failed`."""

    address: str

    def create(self, name: str, data: bytes) -> str: ...
    def replace(self, name: str, data: bytes, version: str) -> str: ...
    def put(self, name: str, source: bytes | Path) -> None: ...
    def read(self, name: str) -> Stored | None: ...
    def read_range(self, name: str, start: int, stop: int) -> bytes | None: ...
    def status(self, name: str) -> Status | None: ...
    def list_after(self, directory: str, after: str) -> Iterator[Status]: ...
    def delete(self, names: Sequence[str]) -> None: ...


class ObjectStore:
    """A bucket or container below a prefix. `wait` and `now` are how time passes; tests give their own."""

    def __init__(
        self,
        requests: Requests,
        wait: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ):
        self._requests, self._wait, self._now = requests, wait, now

    def create(self, name: str, data: bytes) -> str | None:
        def refused() -> str | _Again | None:
            there = self.read(name)
            if there is None:  # 409, or removed meanwhile
                return "again"
            return there.version if there.data == data else None

        return self._repeated("create", name, lambda: self._requests.create(name, data), refused)

    def replace(self, name: str, data: bytes, version: str) -> str | None:
        def refused() -> str | _Again | None:
            there = self.read(name)
            if there is not None and there.version == version:  # 409
                return "again"
            return there.version if there is not None and there.data == data else None

        return self._repeated("replace", name, lambda: self._requests.replace(name, data, version), refused)

    def put(self, name: str, source: bytes | Path) -> None:
        self._repeated("put", name, lambda: self._requests.put(name, source))

    def read(self, name: str) -> Stored | None:
        return self._repeated("read", name, lambda: self._requests.read(name))

    def read_range(self, name: str, start: int, stop: int) -> bytes | None:
        return self._repeated("read", name, lambda: self._requests.read_range(name, start, stop))

    def status(self, name: str) -> Status | None:
        return self._repeated("status", name, lambda: self._requests.status(name))

    def list_after(self, directory: str = "", after: str = "") -> Iterator[Status]:
        pauses = iter(PAUSES)
        while True:
            request_counts.count("list")
            try:
                for status in self._requests.list_after(directory, after):
                    yield status
                    after, pauses = status.name, iter(PAUSES)
                return
            except (Refused, Failed) as error:
                pause = next(pauses, None)
                if pause is None:
                    raise self._given_up("list", directory, str(error)) from None
            self._wait(pause)

    def delete(self, names: Iterable[str]) -> None:
        remaining = list(names)
        for at in range(0, len(remaining), MANY):
            portion = remaining[at : at + MANY]
            self._repeated("delete", portion[0], partial(self._requests.delete, portion))

    def _repeated(
        self,
        verb: str,
        name: str,
        request: Callable[[], _Answer],
        refused: Callable[[], _Answer | _Again] = lambda: "again",
    ) -> _Answer:
        """Make a request until it is answered. `refused` says what a refusal means: an answer, or to try again."""
        began, problem = self._now(), "it is busy"
        for pause in (*PAUSES, None):
            request_counts.count(verb)
            try:
                return request()
            except Refused:
                answer = refused()
                if answer != "again":
                    return answer
            except Failed as error:
                problem = str(error)
            if pause is None or self._now() - began > LIMIT:
                break
            self._wait(pause)
        raise self._given_up(verb, name, problem)

    def _given_up(self, verb: str, name: str, problem: str) -> EndpointError:
        return EndpointError(
            f"{self._requests.address} fails: {problem} ({verb} {name})", "check its address and its credentials"
        )
