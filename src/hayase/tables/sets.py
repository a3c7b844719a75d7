"""Sets of JSON values: one that only grows, one that forbids coming back, one in which the later operation counts.

Elements are the same if they are equal in JSON: 1 and 1.0 are, 1 and "1" are not. A set reads as a list in jq's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import pyarrow as pa

from hayase.tables.payloads import Json, pack, unpack, value_bytes, value_from
from hayase.tables.types import ColumnType, Operation

__all__ = ["GSet", "ORSet", "TwoPhaseSet", "elements", "restored_elements"]

_ADDED, _REMOVED = b"+", b"-"


def elements(bodies: Iterable[bytes]) -> list[Json]:
    """The values of elements, in jq's order."""
    return [value_from(body) for body in sorted(bodies)]


def restored_elements(body: bytes) -> list[bytes]:
    """Packed byte strings, which must be in order and of which none may occur twice."""
    parts = unpack(body)
    if any(one >= next_one for one, next_one in pairwise(parts)):
        raise ValueError("elements are not in order")
    return parts


@dataclass(frozen=True, slots=True)
class GSet(ColumnType[set[bytes]]):
    """A set that only grows.

    >>> colours = GSet()
    >>> colours.read(None, [(b"1", colours.payload("add", "red")), (b"2", colours.payload("add", "blue"))])
    ['blue', 'red']
    """

    tag: ClassVar[int] = ord("G")
    methods: ClassVar[tuple[str, ...]] = ("add",)
    arrow: ClassVar[pa.DataType] = pa.list_(pa.string())

    def delta(self, method: str, parameter: Json) -> bytes:
        return value_bytes(parameter)

    def empty(self) -> set[bytes]:
        return set()

    def absorbed(self, state: set[bytes], operations: Sequence[Operation]) -> set[bytes]:
        for body in {body for _, _, body in operations} - state:
            value_from(body)
            state.add(body)
        return state

    def joined(self, one: set[bytes], other: set[bytes]) -> set[bytes]:
        return one | other

    def written(self, state: set[bytes]) -> bytes:
        return pack(sorted(state))

    def restored(self, body: bytes) -> set[bytes]:
        return set(restored_elements(body))

    def shown(self, state: set[bytes]) -> Json:
        return elements(state)


@dataclass(frozen=True, slots=True)
class TwoPhaseSet(ColumnType[dict[bytes, bytes]]):
    """A set of elements that live once: added, then perhaps removed, and then gone for good.

    What it forbids: an element that was removed never comes back, however often and however late it is added again. Nor
    does time matter: a removal also counts for additions before whose time it happened, and one of an element that was
    never added forbids it from the start. That is right for what ends once (a cancelled order, a closed account, a
    withdrawn consent) and wrong for what comes and goes: that is an ORSet. Removed elements are remembered for ever.

    >>> orders = TwoPhaseSet()
    >>> add, remove = orders.payload("add", 7), orders.payload("remove", 7)
    >>> orders.read(None, [(b"1", add), (b"2", remove), (b"3", add), (b"4", orders.payload("add", 8))])
    [8]
    """

    tag: ClassVar[int] = ord("2")
    methods: ClassVar[tuple[str, ...]] = ("add", "remove")
    arrow: ClassVar[pa.DataType] = pa.list_(pa.string())

    def delta(self, method: str, parameter: Json) -> bytes:
        return value_bytes(parameter)

    def empty(self) -> dict[bytes, bytes]:
        return {}

    def absorbed(self, state: dict[bytes, bytes], operations: Sequence[Operation]) -> dict[bytes, bytes]:
        for _, method, body in operations:
            if body not in state:
                value_from(body)
                state[body] = _ADDED
            if method == "remove":
                state[body] = _REMOVED
        return state

    def joined(self, one: dict[bytes, bytes], other: dict[bytes, bytes]) -> dict[bytes, bytes]:
        for body, mark in other.items():
            if mark == _REMOVED or body not in one:
                one[body] = mark
        return one

    def written(self, state: dict[bytes, bytes]) -> bytes:
        live = sorted(body for body, mark in state.items() if mark == _ADDED)
        gone = sorted(body for body, mark in state.items() if mark == _REMOVED)
        return pack((pack(live), pack(gone)))

    def restored(self, body: bytes) -> dict[bytes, bytes]:
        live, gone = unpack(body)
        return dict.fromkeys(restored_elements(live), _ADDED) | dict.fromkeys(restored_elements(gone), _REMOVED)

    def shown(self, state: dict[bytes, bytes]) -> Json:
        return elements(body for body, mark in state.items() if mark == _ADDED)


@dataclass(frozen=True, slots=True)
class ORSet(ColumnType[dict[bytes, bytes]]):
    """A set whose elements come and go: a removal takes back the additions before it, and none after it.

    Before and after are those of the versions, whatever arrived first: an element is there if the latest of its operations
    added it. So, unlike in a TwoPhaseSet, an element that was removed can be added again; and a late addition that is
    older than a removal does not bring it back. (An observed-remove set in which a removal has observed exactly what is
    older than itself. Versions have an order, so nothing is concurrent and no side need win.) A removed element is
    remembered with its version, for additions that are still under way.

    >>> cart = ORSet()
    >>> add, remove = cart.payload("add", "tea"), cart.payload("remove", "tea")
    >>> cart.read(None, [(b"1", add), (b"2", remove)]), cart.read(None, [(b"1", add), (b"2", remove), (b"3", add)])
    ([], ['tea'])
    """

    tag: ClassVar[int] = ord("O")
    methods: ClassVar[tuple[str, ...]] = ("add", "remove")
    arrow: ClassVar[pa.DataType] = pa.list_(pa.string())

    def delta(self, method: str, parameter: Json) -> bytes:
        return value_bytes(parameter)

    def empty(self) -> dict[bytes, bytes]:
        """For every element its latest version, and behind it whether that added or removed it."""
        return {}

    def absorbed(self, state: dict[bytes, bytes], operations: Sequence[Operation]) -> dict[bytes, bytes]:
        for version, method, body in operations:
            latest = version + (_ADDED if method == "add" else _REMOVED)
            known = state.get(body)
            if known is None:
                value_from(body)
            if known is None or _order(known) < _order(latest):
                state[body] = latest
        return state

    def joined(self, one: dict[bytes, bytes], other: dict[bytes, bytes]) -> dict[bytes, bytes]:
        for body, latest in other.items():
            known = one.get(body)
            if known is None or _order(known) < _order(latest):
                one[body] = latest
        return one

    def written(self, state: dict[bytes, bytes]) -> bytes:
        order = sorted(state)
        return pack((pack(order), pack([state[body] for body in order])))

    def restored(self, body: bytes) -> dict[bytes, bytes]:
        bodies, latest = unpack(body)
        return dict(zip(restored_elements(bodies), unpack(latest), strict=True))

    def shown(self, state: dict[bytes, bytes]) -> Json:
        return elements(body for body, latest in state.items() if latest.endswith(_ADDED))


def _order(latest: bytes) -> tuple[bytes, bytes]:
    return latest[:-1], latest[-1:]
