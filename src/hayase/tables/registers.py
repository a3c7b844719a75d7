"""The column types Register, MinRegister and MaxRegister: the latest, least or greatest of all values that were set."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.data_classes import dataclass
from hayase.tables.payloads import (
    LARGEST,
    Json,
    UnfitParameter,
    many_text_bytes,
    pack,
    text_column,
    unpack,
    value_bytes,
    value_from,
)
from hayase.tables.types import ColumnType, Update

if TYPE_CHECKING:
    from hayase.tables.entry_blocks import RowUpdates

__all__ = ["MaxRegister", "MinRegister", "Register", "Written"]

Written = tuple[bytes, bytes]
"""A version and the encoded value that it set; the greater pair wins. Both are empty before the first value."""
_NEVER: Written = (b"", b"")


@dataclass(frozen=True, slots=True)
class Register(ColumnType[Written]):
    """The value with the latest version: by event time, then by the event's id, then by the number of the update.

    A JSON value of any type. It is null at first, and can be set to null.

    >>> register = Register()
    >>> register.read(None, [(b"2", register.payload("set", "new")), (b"1", register.payload("set", "old"))])
    'new'
    """

    tag: ClassVar[int] = ord("R")
    methods: ClassVar[tuple[str, ...]] = ("set",)

    def delta(self, method: str, parameter: Json) -> bytes:
        return value_bytes(parameter)

    def deltas(self, method: str, parameters: Sequence[Json]) -> list[bytes] | None:
        return many_text_bytes(parameters)

    def delta_column(self, head: bytes, method: str, parameters: Sequence[Json]) -> pa.Array | None:
        deltas = text_column(parameters, head)
        return deltas if deltas is not None and (pc.max(pc.binary_length(deltas)).as_py() or 0) <= LARGEST else None

    def empty(self) -> Written:
        return _NEVER

    def apply(self, state: Written, updates: Sequence[Update]) -> Written:
        version, _, body = max(updates)
        value_from(body)
        return max(state, (version, body))

    def states_of(self, updates: RowUpdates) -> list[Written | None]:
        states = updates.latest(self.payload_head(1))
        for state in states:
            if state is not None and state[1]:
                value_from(state[1])
        return states

    def join(self, one: Written, other: Written) -> Written:
        return max(one, other)

    def encode(self, state: Written) -> bytes:
        return pack(state)

    def decode(self, body: bytes) -> Written:
        version, value = unpack(body)
        return version, value

    def plain_value(self, state: Written) -> Json:
        return value_from(state[1]) if state[1] else None


class _Extreme(ColumnType[bytes]):
    """A register whose state is the encoded best value so far, empty at first."""

    __slots__ = ()

    methods: ClassVar[tuple[str, ...]] = ("set",)

    def delta(self, method: str, parameter: Json) -> bytes:
        if parameter is None:
            raise UnfitParameter("null cannot be a minimum or maximum", "leave the event out by a condition")
        return value_bytes(parameter)

    def empty(self) -> bytes:
        return b""

    def apply(self, state: bytes, updates: Sequence[Update]) -> bytes:
        bodies = [body for _, _, body in updates]
        for body in bodies:
            value_from(body)
        best = self.best(bodies)
        return self.best([state, best]) if state else best

    def states_of(self, updates: RowUpdates) -> list[bytes | None]:
        return updates.best(self.payload_head(1), greatest=self.best([b"\0", b"\1"]) == b"\1")

    def join(self, one: bytes, other: bytes) -> bytes:
        return self.best([one, other]) if one and other else one or other

    def encode(self, state: bytes) -> bytes:
        return state

    def decode(self, body: bytes) -> bytes:
        return body

    def plain_value(self, state: bytes) -> Json:
        return value_from(state) if state else None

    @abstractmethod
    def best(self, bodies: list[bytes]) -> bytes:
        """Return the value to keep."""


@dataclass(frozen=True, slots=True)
class MinRegister(_Extreme):
    """The least of all values that were set, null if there was none.

    Takes values of any type but null. The order is jq's: booleans, numbers, texts, arrays, objects.

    >>> least = MinRegister()
    >>> least.read(None, [(b"1", least.payload("set", 10)), (b"2", least.payload("set", 9.5))])
    9.5
    """

    tag: ClassVar[int] = ord("m")

    def best(self, bodies: list[bytes]) -> bytes:
        return min(bodies)


@dataclass(frozen=True, slots=True)
class MaxRegister(_Extreme):
    """The greatest of all values that were set, null if there was none; otherwise like MinRegister.

    Arrays are compared element by element, so an array can carry more beside the number that decides:

    >>> greatest = MaxRegister()
    >>> both = [(b"1", greatest.payload("set", [90, "taro"])), (b"2", greatest.payload("set", [95, "hanako"]))]
    >>> greatest.read(None, both)
    [95, 'hanako']
    """

    tag: ClassVar[int] = ord("M")

    def best(self, bodies: list[bytes]) -> bytes:
        return max(bodies)
