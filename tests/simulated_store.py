"""An object store that behaves as badly as a real one may: requests are delayed, refused, repeated, and lose their answers.

`faults` gives, for each request, what happens to it; `meanwhile` is called before each request, so that others act in between.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeVar, get_args

from hayase.storage.object_store import Failed, Refused
from hayase.storage.verbs import Status, Stored

Fault = Literal["none", "conflict", "unavailable", "lost answer", "delayed", "repeated"]
"""`conflict`: 409. `unavailable`: 503, not done. `lost answer`: done, then a time-out. `delayed`: a time-out, and done later, by
whoever comes next. `repeated`: the network delivers it twice, and the second answer counts."""
Answer = TypeVar("Answer")
FAULTS: tuple[Fault, ...] = get_args(Fault)


class SimulatedRequests:
    """Objects in memory. The version of an object is the number of the write that made it."""

    address = "simulated://store"

    def __init__(
        self, faults: Callable[[], Fault] = lambda: "none", meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        self.objects: dict[str, Stored] = {}
        self._faults, self._meanwhile = faults, meanwhile
        self._writes = 0
        self._late: list[Callable[[], object]] = []

    def create(self, name: str, data: bytes) -> str:
        def work() -> str:
            if name in self.objects:
                raise Refused("412")
            return self._write(name, data)

        return self._request(work)

    def replace(self, name: str, data: bytes, version: str) -> str:
        def work() -> str:
            if name not in self.objects:
                raise Refused("404")
            if self.objects[name].version != version:
                raise Refused("412")
            return self._write(name, data)

        return self._request(work)

    def put(self, name: str, source: bytes | Path) -> None:
        data = source if isinstance(source, bytes) else source.read_bytes()
        self._request(lambda: self._write(name, data))

    def read(self, name: str) -> Stored | None:
        return self._request(lambda: self.objects.get(name))

    def read_range(self, name: str, start: int, stop: int) -> bytes | None:
        def work() -> bytes | None:
            stored = self.objects.get(name)
            return None if stored is None else stored.data[start:stop]

        return self._request(work)

    def status(self, name: str) -> Status | None:
        return self._request(lambda: self._status(name) if name in self.objects else None)

    def list_after(self, directory: str, after: str) -> Iterator[Status]:
        names = [
            name
            for name in sorted(self.objects)
            if name > after and (not directory or name.startswith(f"{directory}/"))
        ]
        for at in range(0, len(names) + 1, 2):
            yield from self._request(lambda at=at: [self._status(name) for name in names[at : at + 2]])

    def delete(self, names: Sequence[str]) -> None:
        def work() -> None:
            for name in names:
                self.objects.pop(name, None)

        self._request(work)

    def _status(self, name: str) -> Status:
        stored = self.objects[name]
        return Status(name, len(stored.data), stored.version)

    def _write(self, name: str, data: bytes) -> str:
        self._writes += 1
        self.objects[name] = Stored(data, str(self._writes))
        return str(self._writes)

    def _request(self, work: Callable[[], Answer]) -> Answer:
        self._meanwhile()
        late, self._late = self._late, []
        for request in late:
            self._do(request)
        fault = self._faults()
        if fault == "conflict":
            raise Refused("409")
        if fault == "unavailable":
            raise Failed("503")
        if fault == "delayed":
            self._late.append(work)
            raise Failed("timed out")
        if fault == "repeated":
            self._do(work)
        answer = work()
        if fault == "lost answer":
            raise Failed("timed out")
        return answer

    def _do(self, request: Callable[[], object]) -> None:
        with contextlib.suppress(Refused):
            request()
