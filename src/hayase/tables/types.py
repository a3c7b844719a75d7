"""What a column type is: how an update becomes a payload, and how payloads become a value.

A payload is (version, delta): the version says when the update happened and which it is (`hayase.tables.versions`), the
delta says what to do. A snapshot is what some set of payloads came to. For every type, and any two disjoint sets of
payloads p and q, no version twice, in whatever order they are given:

    fold(fold(None, p), q) = fold(None, p + q) = merge(fold(None, p), fold(None, q)),   byte for byte.

So it makes no difference when payloads arrive, when snapshots are taken, and which replica takes them.

The first byte of a delta or a snapshot is the type's tag; of the second the upper half is the version of the format, the
lower half is 0 for a snapshot, or the number of the method. A snapshot then has a checksum of four bytes. A delta has
none: its bytes must be whole and well formed, but a changed digit is for the store's checksums to find.
"""

from __future__ import annotations

import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import pyarrow as pa

from hayase.core.errors import UnknownName
from hayase.tables.payloads import LARGEST, DamagedPayload, Json, UnfitParameter

__all__ = ["ColumnType", "Payload", "Update"]

State = TypeVar("State")
Payload: TypeAlias = tuple[bytes, bytes]
"""A version and a delta."""
Update: TypeAlias = tuple[bytes, str, bytes]
"""A payload opened: the version, the method, and the body of the delta."""

_FORMAT = 1


class ColumnType(ABC, Generic[State]):
    """The type of a table's column.

    Above is what others call; below, what each type says about its state, a Python object that only it knows.
    """

    __slots__ = ()

    tag: ClassVar[int]
    methods: ClassVar[tuple[str, ...]]
    """The methods; the first is the default."""
    arrow: ClassVar[pa.DataType] = pa.string()
    """What a value is in queries and exports: a string, a double, an int64, or a list or a map of such."""

    @property
    def name(self) -> str:
        """The type's name, as it is declared."""
        return type(self).__name__

    def payload(self, method: str | None, parameter: Json) -> bytes:
        """The delta of an update; a parameter that does not fit raises UnfitParameter with the reason."""
        (found,) = self.payloads(method, (parameter,))
        if isinstance(found, UnfitParameter):
            raise found
        return found

    def payloads(self, method: str | None, parameters: Iterable[Json]) -> list[bytes | UnfitParameter]:
        """The deltas of many updates of one method; where a parameter does not fit, the reason stands instead."""
        named = self.method(method)
        head, delta = self._head(self.methods.index(named) + 1), self.delta
        parameters = parameters if isinstance(parameters, Sequence) else list(parameters)
        bodies = self.deltas(named, parameters)
        if bodies is not None:
            return [head + body for body in bodies]
        made: list[bytes | UnfitParameter] = []
        for parameter in parameters:
            try:
                body = delta(named, parameter)
                if len(body) > LARGEST:
                    reason = f"a parameter of {len(body):,} bytes is too large"
                    raise UnfitParameter(reason, f"at most {LARGEST:,} fit")
            except UnfitParameter as error:
                made.append(UnfitParameter(f"{self.name}.{named}: {error.reason}", error.hint))
            else:
                made.append(head + body)
        return made

    def column(self, method: str | None, parameters: Sequence[Json]) -> pa.Array | None:
        """`payloads` as a column, where a type can make one at once and every parameter fits; None otherwise."""
        named = self.method(method)
        return self.delta_column(self._head(self.methods.index(named) + 1), named, parameters)

    def delta_column(self, head: bytes, method: str, parameters: Sequence[Json]) -> pa.Array | None:
        """The deltas, each behind the head."""
        return None

    def method(self, name: str | None) -> str:
        """The method of that name, or the one that is meant when none is named."""
        if name is None:
            return self.methods[0]
        if name not in self.methods:
            raise UnknownName("method", name, self.methods, f" of {self.name}")
        return name

    def fold(self, snapshot: bytes | None, payloads: Iterable[Payload]) -> bytes:
        """The snapshot of all that the older one holds and of these payloads, each of which must be new to it."""
        return self._sealed(self._folded(snapshot, payloads))

    def merge(self, one: bytes, other: bytes) -> bytes:
        """The snapshot of all that two hold, when no payload is in both."""
        return self._sealed(self.joined(self.opened(one), self.opened(other)))

    def value(self, snapshot: bytes) -> Json:
        """What a snapshot says."""
        return self.shown(self.opened(snapshot))

    def read(self, snapshot: bytes | None, payloads: Iterable[Payload]) -> Json:
        """The value of a snapshot and later payloads: `value(fold(...))` without writing the bytes between."""
        return self.shown(self._folded(snapshot, payloads))

    def _folded(self, snapshot: bytes | None, payloads: Iterable[Payload]) -> State:
        state = self.empty() if snapshot is None else self.opened(snapshot)
        heads = _heads(type(self))
        updates: list[Update] = []
        for version, delta in payloads:
            method = heads.get(delta[:2])
            if method is None:
                raise self._foreign("payload", delta)
            updates.append((version, method, delta[2:]))
        try:
            return self.absorbed(state, updates) if updates else state
        except (IndexError, KeyError, ValueError, struct.error) as error:
            raise DamagedPayload(f"a payload of a {self.name} is damaged: {error}") from error

    @classmethod
    def _head(cls, kind: int) -> bytes:
        return bytes((cls.tag, _FORMAT << 4 | kind))

    def _sealed(self, state: State) -> bytes:
        head, body = self._head(0), self.written(state)
        return head + zlib.crc32(body, self.tag).to_bytes(4, "big") + body

    def opened(self, snapshot: bytes) -> State:
        """The state that a snapshot holds."""
        if snapshot[:2] != self._head(0):
            raise self._foreign("snapshot", snapshot)
        body = snapshot[6:]
        if zlib.crc32(body, self.tag).to_bytes(4, "big") != snapshot[2:6]:
            raise DamagedPayload(f"a snapshot of a {self.name} does not match its checksum")
        try:
            return self.restored(body)
        except (IndexError, KeyError, ValueError, struct.error) as error:
            raise DamagedPayload(f"a snapshot of a {self.name} is damaged: {error}") from error

    def _foreign(self, what: str, data: bytes) -> DamagedPayload:
        begun = data[:8].hex()
        if len(data) < 2 or data[0] != self.tag:
            return DamagedPayload(f"these bytes are no {what} of a {self.name}: they begin with {begun!r}")
        if data[1] >> 4 != _FORMAT:
            reason = f"has format {data[1] >> 4} and only format {_FORMAT} is known here"
            return DamagedPayload(f"a {what} of a {self.name} {reason}; it was written by another release")
        return DamagedPayload(f"bytes of a {self.name} are no {what}: they begin with {begun!r}")

    @abstractmethod
    def delta(self, method: str, parameter: Json) -> bytes:
        """The body of a delta."""

    def deltas(self, method: str, parameters: Sequence[Json]) -> list[bytes] | None:
        """The bodies of many deltas, where a type can make them faster at once; None leaves it to `delta`."""
        return None

    @abstractmethod
    def empty(self) -> State:
        """The state before all payloads."""

    @abstractmethod
    def absorbed(self, state: State, updates: Sequence[Update]) -> State:
        """The state after some updates; the given one may be changed. A body that is not well formed is an error."""

    @abstractmethod
    def joined(self, one: State, other: State) -> State:
        """The state of both; the given ones may be changed."""

    @abstractmethod
    def written(self, state: State) -> bytes:
        """The bytes of a state: equal ones for states of the same payloads."""

    @abstractmethod
    def restored(self, body: bytes) -> State:
        """The state that was written."""

    @abstractmethod
    def shown(self, state: State) -> Json:
        """The value of a state, as plain JSON."""


@lru_cache(maxsize=64)
def _heads(kind: type[ColumnType[Any]]) -> dict[bytes, str]:
    """The methods of a type by the first bytes of their deltas."""
    return {kind._head(at + 1): method for at, method in enumerate(kind.methods)}
