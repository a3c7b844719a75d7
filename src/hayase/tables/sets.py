"""Sets of JSON values: one that only grows, one that forbids coming back, one in which the last
writer wins, and one in which a removal takes back what it has observed.

Elements are the same if they are equal in JSON: 1 and 1.0 are, 1 and "1" are not. A set reads as a list in jq's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

import pyarrow as pa

from hayase.tables.payloads import DamagedPayload, Json, UnfitParameter, kind_of, pack, unpack, value_bytes, value_from
from hayase.tables.types import ColumnType, Update
from hayase.tables.versions import TIME_BYTES, event_of, id_bytes

__all__ = [
    "ADD_ALL",
    "GSet",
    "LWWSet",
    "ORSet",
    "TwoPhaseSet",
    "element_bytes",
    "elements",
    "restored_elements",
    "single",
]

ADD_ALL = "add_all"
"""The method that adds all elements of an array, as rows that are loaded have them."""
_ADDED, _REMOVED = b"+", b"-"


def element_bytes(method: str, parameter: Json) -> bytes:
    """The body of a delta about an element, or about all elements of an array."""
    if method != ADD_ALL:
        return value_bytes(parameter)
    if not isinstance(parameter, list):
        raise UnfitParameter(f"cannot add all elements of {kind_of(parameter)}", "it takes an array")
    return pack(sorted({value_bytes(each) for each in parameter}))


def single(updates: Iterable[Update]) -> Iterator[Update]:
    """Operations on one element each."""
    for version, method, body in updates:
        if method == ADD_ALL:
            yield from ((version, "add", each) for each in restored_elements(body))
        else:
            yield version, method, body


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
    methods: ClassVar[tuple[str, ...]] = ("add", ADD_ALL)
    arrow: ClassVar[pa.DataType] = pa.list_(pa.string())

    def delta(self, method: str, parameter: Json) -> bytes:
        return element_bytes(method, parameter)

    def empty(self) -> set[bytes]:
        return set()

    def absorbed(self, state: set[bytes], updates: Sequence[Update]) -> set[bytes]:
        for body in {body for _, _, body in single(updates)} - state:
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
    methods: ClassVar[tuple[str, ...]] = ("add", "remove", ADD_ALL)
    arrow: ClassVar[pa.DataType] = pa.list_(pa.string())

    def delta(self, method: str, parameter: Json) -> bytes:
        return element_bytes(method, parameter)

    def empty(self) -> dict[bytes, bytes]:
        return {}

    def absorbed(self, state: dict[bytes, bytes], updates: Sequence[Update]) -> dict[bytes, bytes]:
        for _, method, body in single(updates):
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
class LWWSet(ColumnType[dict[bytes, bytes]]):
    """A set in which the last writer wins: an element is there if the latest of its updates, by version, added it.

    Versions have an order (event time, then id, then update), so of an addition and a removal at the same time one wins by
    the order of their ids. A removed element is remembered with its version, for additions that are still under way. (Earlier
    releases called this type ORSet; its bytes are still marked with an `O`.)

    >>> cart = LWWSet()
    >>> add, remove = cart.payload("add", "tea"), cart.payload("remove", "tea")
    >>> cart.read(None, [(b"1", add), (b"2", remove)]), cart.read(None, [(b"1", add), (b"2", remove), (b"3", add)])
    ([], ['tea'])
    """

    tag: ClassVar[int] = ord("O")
    methods: ClassVar[tuple[str, ...]] = ("add", "remove", ADD_ALL)
    arrow: ClassVar[pa.DataType] = pa.list_(pa.string())

    def delta(self, method: str, parameter: Json) -> bytes:
        return element_bytes(method, parameter)

    def empty(self) -> dict[bytes, bytes]:
        """For every element its latest version, and behind it whether that added or removed it."""
        return {}

    def absorbed(self, state: dict[bytes, bytes], updates: Sequence[Update]) -> dict[bytes, bytes]:
        for version, method, body in single(updates):
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


@dataclass(frozen=True, slots=True)
class ORSet(ColumnType[dict[bytes, "_Tags"]]):
    """An observed-remove set: a removal takes back the additions that it has observed, and an addition that is concurrent stays.

    `remove` at t has observed the additions of that element with an event time before t; one at t itself stays. `remove_seen`
    takes `{"value": element, "seen": [ids]}` and has observed exactly the additions by the events with these ids, whatever
    their times. An element is there while any of its additions is left. All additions that are left are remembered, and of
    removals their latest time and the ids they listed, for additions that are still under way.

    >>> from hayase.tables.versions import to_bytes
    >>> cart = ORSet()
    >>> add, remove = cart.payload("add", "tea"), cart.payload("remove", "tea")
    >>> early, late = (to_bytes(1, "a"), add), (to_bytes(5, "b"), add)
    >>> cart.read(None, [early, (to_bytes(5, "c"), remove)]), cart.read(None, [early, late, (to_bytes(5, "c"), remove)])
    ([], ['tea'])
    >>> seen = cart.payload("remove_seen", {"value": "tea", "seen": ["b"]})
    >>> cart.read(None, [early, late, (to_bytes(9, "d"), seen)]), cart.read(None, [late, (to_bytes(2, "d"), seen)])
    (['tea'], [])
    """

    tag: ClassVar[int] = ord("o")
    methods: ClassVar[tuple[str, ...]] = ("add", "remove", "remove_seen", ADD_ALL)
    arrow: ClassVar[pa.DataType] = pa.list_(pa.string())

    def delta(self, method: str, parameter: Json) -> bytes:
        if method != "remove_seen":
            return element_bytes(method, parameter)
        if not isinstance(parameter, dict) or parameter.keys() != {"value", "seen"}:
            hint = 'it takes an object, {"value": element, "seen": [ids of the events that added it]}'
            raise UnfitParameter("cannot tell what was seen of which element", hint)
        seen = parameter["seen"]
        if not isinstance(seen, list):
            raise UnfitParameter(f"seen is {kind_of(seen)}", "list the ids of the events that added the element")
        return pack((value_bytes(parameter["value"]), pack(sorted({id_bytes(each) for each in seen}))))

    def empty(self) -> dict[bytes, _Tags]:
        return {}

    def absorbed(self, state: dict[bytes, _Tags], updates: Sequence[Update]) -> dict[bytes, _Tags]:
        for version, method, body in single(updates):
            ids: list[bytes] = []
            if method == "remove_seen":
                body, listed = unpack(body)
                ids = restored_elements(listed)
            if body not in state:
                value_from(body)
            tags = state.setdefault(body, _Tags())
            if method == "add":
                tags.additions.add(event_of(version))
            elif method == "remove":
                tags.before = max(tags.before, version[:TIME_BYTES])
            else:
                tags.seen.update(ids)
            tags.settle()
        return state

    def joined(self, one: dict[bytes, _Tags], other: dict[bytes, _Tags]) -> dict[bytes, _Tags]:
        for body, more in other.items():
            tags = one.setdefault(body, _Tags())
            tags.before = max(tags.before, more.before)
            tags.seen |= more.seen
            tags.additions |= more.additions
            tags.settle()
        return one

    def written(self, state: dict[bytes, _Tags]) -> bytes:
        order = sorted(state)
        return pack((pack(order), pack([state[body].to_bytes() for body in order])))

    def restored(self, body: bytes) -> dict[bytes, _Tags]:
        bodies, tags = unpack(body)
        return dict(zip(restored_elements(bodies), map(_Tags.from_bytes, unpack(tags)), strict=True))

    def shown(self, state: dict[bytes, _Tags]) -> Json:
        return elements(body for body, tags in state.items() if tags.additions)

    def _foreign(self, what: str, data: bytes) -> DamagedPayload:
        if data[:1] == bytes((LWWSet.tag,)):
            return DamagedPayload(
                f"a {what} was written when ORSet was the name of what is LWWSet now; declare the column LWWSet, and the table "
                "goes on as it was, or rebuild it with `hayase reset TABLE --from earliest`"
            )
        return ColumnType._foreign(self, what, data)


@dataclass(slots=True)
class _Tags:
    """What is known of one element of an ORSet: the time before which additions are removed, the ids of those that were listed
    as seen, and the events of the additions that are left."""

    before: bytes = b""
    seen: set[bytes] = field(default_factory=set)
    additions: set[bytes] = field(default_factory=set)

    def settle(self) -> None:
        """Drop the additions that are removed."""
        gone = [each for each in self.additions if each[:TIME_BYTES] < self.before or each[TIME_BYTES:] in self.seen]
        self.additions.difference_update(gone)

    def to_bytes(self) -> bytes:
        return pack((self.before, pack(sorted(self.seen)), pack(sorted(self.additions))))

    @classmethod
    def from_bytes(cls, data: bytes) -> _Tags:
        before, seen, additions = unpack(data)
        return cls(before, set(restored_elements(seen)), set(restored_elements(additions)))


def _order(latest: bytes) -> tuple[bytes, bytes]:
    return latest[:-1], latest[-1:]
