"""The base class of column types: how an update becomes a payload, and how payloads become a value.

A payload is (version, delta). The version orders and identifies the update (`hayase.tables.versions`); the delta is what the
update does. A snapshot is the result of folding a set of payloads. Every type guarantees, for any two disjoint sets of payloads
p and q in any order:

    fold(fold(None, p), q) = fold(None, p + q) = merge(fold(None, p), fold(None, q)),   byte for byte.

So the value does not depend on when payloads arrive, when snapshots are taken, and which replica takes them.

Format: the first byte of a delta or a snapshot is the tag of the type. The upper half of the second byte is the format version;
the lower half is 0 for a snapshot, else the number of the method. A snapshot continues with a checksum of four bytes. A delta has
no checksum: malformed bytes are detected, but a changed digit is left to the store's checksums.
"""

from __future__ import annotations

import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

import pyarrow as pa

from hayase.core.errors import UnknownName
from hayase.tables.payloads import LARGEST, DamagedPayload, Json, UnfitParameter

if TYPE_CHECKING:
    from hayase.tables.entry_blocks import RowUpdates

__all__ = ["ColumnType", "Payload", "Update"]

State = TypeVar("State")
Payload: TypeAlias = tuple[bytes, bytes]
"""A version and a delta."""
Update: TypeAlias = tuple[bytes, str, bytes]
"""A decoded payload: the version, the method, and the body of the delta."""

_FORMAT = 1


class ColumnType(ABC, Generic[State]):
    """The type of a table's column.

    The first half is the interface for callers. The second half, the abstract methods, is what a type implements for its state, a
    Python object that only the type itself interprets.
    """

    __slots__ = ()

    tag: ClassVar[int]
    methods: ClassVar[tuple[str, ...]]
    """The methods; the first is the default."""
    arrow: ClassVar[pa.DataType] = pa.string()
    """The Arrow type of a value in queries and exports: a string, a double, an int64, or a list or a map of these."""

    @property
    def name(self) -> str:
        """The name of the type, as it is declared."""
        return type(self).__name__

    def payload(self, method: str | None, parameter: Json) -> bytes:
        """Return the delta of an update. UnfitParameter says why a parameter does not fit."""
        (delta,) = self.payloads(method, (parameter,))
        if isinstance(delta, UnfitParameter):
            raise delta
        return delta

    def payloads(self, method: str | None, parameters: Iterable[Json]) -> list[bytes | UnfitParameter]:
        """Return the deltas of many updates by one method; in place of a parameter that does not fit, the error."""
        named = self.method(method)
        head, delta = self.payload_head(self.methods.index(named) + 1), self.delta
        parameters = parameters if isinstance(parameters, Sequence) else list(parameters)
        bodies = self.deltas(named, parameters)
        if bodies is not None:
            return [head + body for body in bodies]
        deltas: list[bytes | UnfitParameter] = []
        for parameter in parameters:
            try:
                body = delta(named, parameter)
                if len(body) > LARGEST:
                    reason = f"a parameter of {len(body):,} bytes is too large"
                    raise UnfitParameter(reason, f"at most {LARGEST:,} fit")
            except UnfitParameter as error:
                deltas.append(UnfitParameter(f"{self.name}.{named}: {error.reason}", error.hint))
            else:
                deltas.append(head + body)
        return deltas

    def column(self, method: str | None, parameters: Sequence[Json]) -> pa.Array | None:
        """Return `payloads` as a column, if the type supports it for these parameters and all of them fit; else None."""
        named = self.method(method)
        return self.delta_column(self.payload_head(self.methods.index(named) + 1), named, parameters)

    def delta_column(self, head: bytes, method: str, parameters: Sequence[Json]) -> pa.Array | None:
        """Return the deltas, each with the head in front; None if the type builds them one by one."""
        return None

    def method(self, name: str | None) -> str:
        """Return the method of that name, or the default method for None; UnknownName if the type has no such method."""
        if name is None:
            return self.methods[0]
        if name not in self.methods:
            raise UnknownName("method", name, self.methods, f" of {self.name}")
        return name

    def method_of(self, delta: bytes) -> str:
        """Return the method by which a delta was made."""
        method = _heads(type(self)).get(delta[:2])
        if method is None:
            raise self._foreign("payload", delta)
        return method

    def fold(self, snapshot: bytes | None, payloads: Iterable[Payload]) -> bytes:
        """Return a snapshot of the older snapshot's payloads and these. None of these may be in the older one."""
        return self.encode_snapshot(self._fold_state(snapshot, payloads))

    def merge(self, one: bytes, other: bytes) -> bytes:
        """Return a snapshot of the payloads of two snapshots that have no payload in common."""
        return self.encode_snapshot(self.join(self.decode_snapshot(one), self.decode_snapshot(other)))

    def value(self, snapshot: bytes) -> Json:
        """Return the value of a snapshot, as plain JSON."""
        return self.plain_value(self.decode_snapshot(snapshot))

    def read(self, snapshot: bytes | None, payloads: Iterable[Payload]) -> Json:
        """Return the value of a snapshot and later payloads: `value(fold(...))` without encoding the snapshot between."""
        return self.plain_value(self._fold_state(snapshot, payloads))

    def fold_rows(self, snapshots: Sequence[bytes | None], updates: RowUpdates) -> list[State | None]:
        """Return the states of many rows, each of a snapshot and later updates. None for a row that is to be folded by itself,
        because it is unusual or damaged."""
        states = self.states_of(updates)
        if states is None:
            rows = zip(snapshots, updates.payloads())
            return [self._fold_state(snapshot, payloads) for snapshot, payloads in rows]
        for row, snapshot in enumerate(snapshots):
            state = states[row]
            if snapshot is not None and state is not None:
                states[row] = self.join(self.decode_snapshot(snapshot), state)
        return states

    def states_of(self, updates: RowUpdates) -> list[State | None] | None:
        """Return the state of the updates of each row, None for a row that is to be folded by itself; None if the type has no
        compiled loop."""
        return None

    def _fold_state(self, snapshot: bytes | None, payloads: Iterable[Payload]) -> State:
        state = self.empty() if snapshot is None else self.decode_snapshot(snapshot)
        heads = _heads(type(self))
        updates: list[Update] = []
        for version, delta in payloads:
            method = heads.get(delta[:2])
            if method is None:
                raise self._foreign("payload", delta)
            updates.append((version, method, delta[2:]))
        try:
            return self.apply(state, updates) if updates else state
        except (IndexError, KeyError, ValueError, struct.error) as error:
            raise DamagedPayload(f"a payload of a {self.name} is damaged: {error}") from error

    @classmethod
    def payload_head(cls, kind: int) -> bytes:
        return bytes((cls.tag, _FORMAT << 4 | kind))

    def encode_snapshot(self, state: State) -> bytes:
        """Encode a state as a snapshot, with a checksum."""
        head, body = self.payload_head(0), self.encode(state)
        return head + zlib.crc32(body, self.tag).to_bytes(4, "big") + body

    def decode_snapshot(self, snapshot: bytes) -> State:
        """Decode a snapshot after checking its head and checksum; DamagedPayload if they are wrong."""
        if snapshot[:2] != self.payload_head(0):
            raise self._foreign("snapshot", snapshot)
        body = snapshot[6:]
        if zlib.crc32(body, self.tag).to_bytes(4, "big") != snapshot[2:6]:
            raise DamagedPayload(f"a snapshot of a {self.name} does not match its checksum")
        try:
            return self.decode(body)
        except (IndexError, KeyError, ValueError, struct.error) as error:
            raise DamagedPayload(f"a snapshot of a {self.name} is damaged: {error}") from error

    def _foreign(self, what: str, data: bytes) -> DamagedPayload:
        begun = data[:8].hex()
        if len(data) < 2 or data[0] != self.tag:
            return DamagedPayload(f"these bytes are not a {what} of a {self.name}: they begin with {begun!r}")
        if data[1] >> 4 != _FORMAT:
            reason = f"has format {data[1] >> 4} and only format {_FORMAT} is known here"
            return DamagedPayload(f"a {what} of a {self.name} {reason}; it was written by another release")
        return DamagedPayload(f"bytes of a {self.name} are not a {what}: they begin with {begun!r}")

    @abstractmethod
    def delta(self, method: str, parameter: Json) -> bytes:
        """Return the body of a delta."""

    def deltas(self, method: str, parameters: Sequence[Json]) -> list[bytes] | None:
        """Return the bodies of many deltas, if the type has a faster way for these parameters; None to call `delta` for each."""
        return None

    @abstractmethod
    def empty(self) -> State:
        """Return the state without payloads."""

    @abstractmethod
    def apply(self, state: State, updates: Sequence[Update]) -> State:
        """Return the state after some updates; may modify the given state. Raises ValueError for a malformed body."""

    @abstractmethod
    def join(self, one: State, other: State) -> State:
        """Return the state of the payloads of both; may modify the given states."""

    @abstractmethod
    def encode(self, state: State) -> bytes:
        """Encode a state. States of the same payloads have the same bytes."""

    @abstractmethod
    def decode(self, body: bytes) -> State:
        """Decode a state that `encode` encoded."""

    @abstractmethod
    def plain_value(self, state: State) -> Json:
        """Return the value of a state, as plain JSON."""


@lru_cache(maxsize=64)
def _heads(kind: type[ColumnType[Any]]) -> dict[bytes, str]:
    """Map the first two bytes of a type's deltas to the method."""
    return {kind.payload_head(at + 1): method for at, method in enumerate(kind.methods)}
