"""The column types GSet, TwoPhaseSet, LWWSet and ORSet: sets of JSON values that differ in what a removal does.

Elements are the same if they are equal in JSON: 1 and 1.0 are, 1 and "1" are not. The value of a set is a list in jq's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from itertools import pairwise
from typing import ClassVar, TypeVar

import pyarrow as pa

from hayase.core.data_classes import dataclass
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
    "split_add_all",
    "unpack_elements",
]

ADD_ALL = "add_all"
"""The method that adds all elements of an array, as in the rows of a bulk load."""
_ADDED, _REMOVED = b"+", b"-"
State = TypeVar("State")


def element_bytes(method: str, parameter: Json) -> bytes:
    """Return the body of a delta: one element, or for `add_all` the elements of an array."""
    if method != ADD_ALL:
        return value_bytes(parameter)
    if not isinstance(parameter, list):
        raise UnfitParameter(f"cannot add all elements of {kind_of(parameter)}", "it takes an array")
    return pack(sorted({value_bytes(element) for element in parameter}))


def split_add_all(updates: Iterable[Update]) -> Iterator[Update]:
    """Split updates by `add_all` into updates of one element each."""
    for version, method, body in updates:
        if method == ADD_ALL:
            yield from ((version, "add", element) for element in unpack_elements(body))
        else:
            yield version, method, body


def elements(bodies: Iterable[bytes]) -> list[Json]:
    """Decode elements into values, in jq's order."""
    return [value_from(body) for body in sorted(bodies)]


def unpack_elements(body: bytes) -> list[bytes]:
    """Unpack byte strings; ValueError unless they are in order and distinct."""
    parts = unpack(body)
    if any(part >= following for part, following in pairwise(parts)):
        raise ValueError("elements are not in order")
    return parts


class _SetType(ColumnType[State]):
    """What all sets share: the value is a list, and an update carries elements."""

    __slots__ = ()

    arrow: ClassVar[pa.DataType] = pa.list_(pa.string())

    def delta(self, method: str, parameter: Json) -> bytes:
        return element_bytes(method, parameter)


class _MarkedElements(_SetType[dict[bytes, bytes]]):
    """A set that remembers removed elements. Its state maps elements to bytes, the last of which says whether they are in it."""

    __slots__ = ()

    methods: ClassVar[tuple[str, ...]] = ("add", "remove", ADD_ALL)

    def empty(self) -> dict[bytes, bytes]:
        return {}

    def plain_value(self, state: dict[bytes, bytes]) -> Json:
        return elements(body for body, mark in state.items() if mark.endswith(_ADDED))


@dataclass(frozen=True, slots=True)
class GSet(_SetType[set[bytes]]):
    """A set that only grows.

    >>> colours = GSet()
    >>> colours.read(None, [(b"1", colours.payload("add", "red")), (b"2", colours.payload("add", "blue"))])
    ['blue', 'red']
    """

    tag: ClassVar[int] = ord("G")
    methods: ClassVar[tuple[str, ...]] = ("add", ADD_ALL)

    def empty(self) -> set[bytes]:
        return set()

    def apply(self, state: set[bytes], updates: Sequence[Update]) -> set[bytes]:
        for body in {body for _, _, body in split_add_all(updates)} - state:
            value_from(body)
            state.add(body)
        return state

    def join(self, one: set[bytes], other: set[bytes]) -> set[bytes]:
        return one | other

    def encode(self, state: set[bytes]) -> bytes:
        return pack(sorted(state))

    def decode(self, body: bytes) -> set[bytes]:
        return set(unpack_elements(body))

    def plain_value(self, state: set[bytes]) -> Json:
        return elements(state)


@dataclass(frozen=True, slots=True)
class TwoPhaseSet(_MarkedElements):
    """A set whose elements can be removed once and for all.

    A removed element never comes back, however often and however late it is added again. Event times do not matter: a removal
    also applies to additions with a later event time, and removing an element that was never added keeps it out from the start.
    Use it for what ends once (a cancelled order, a closed account, a withdrawn consent); for elements that come and go use an
    ORSet. Removed elements are remembered for ever.

    >>> orders = TwoPhaseSet()
    >>> add, remove = orders.payload("add", 7), orders.payload("remove", 7)
    >>> orders.read(None, [(b"1", add), (b"2", remove), (b"3", add), (b"4", orders.payload("add", 8))])
    [8]
    """

    tag: ClassVar[int] = ord("2")

    def apply(self, state: dict[bytes, bytes], updates: Sequence[Update]) -> dict[bytes, bytes]:
        for _, method, body in split_add_all(updates):
            if body not in state:
                value_from(body)
                state[body] = _ADDED
            if method == "remove":
                state[body] = _REMOVED
        return state

    def join(self, one: dict[bytes, bytes], other: dict[bytes, bytes]) -> dict[bytes, bytes]:
        for body, mark in other.items():
            if mark == _REMOVED or body not in one:
                one[body] = mark
        return one

    def encode(self, state: dict[bytes, bytes]) -> bytes:
        live = sorted(body for body, mark in state.items() if mark == _ADDED)
        gone = sorted(body for body, mark in state.items() if mark == _REMOVED)
        return pack((pack(live), pack(gone)))

    def decode(self, body: bytes) -> dict[bytes, bytes]:
        live, gone = unpack(body)
        return dict.fromkeys(unpack_elements(live), _ADDED) | dict.fromkeys(unpack_elements(gone), _REMOVED)


@dataclass(frozen=True, slots=True)
class LWWSet(_MarkedElements):
    """A last-writer-wins set: it contains an element if the element's latest update, by version, is an addition.

    Versions are ordered by event time, then id, then number of the update, so the ids decide between an addition and a removal
    at the same time. Removed elements are remembered with their version, for additions that arrive later. (Earlier releases
    called this type ORSet; its tag is still `O`.)

    >>> cart = LWWSet()
    >>> add, remove = cart.payload("add", "tea"), cart.payload("remove", "tea")
    >>> cart.read(None, [(b"1", add), (b"2", remove)]), cart.read(None, [(b"1", add), (b"2", remove), (b"3", add)])
    ([], ['tea'])
    """

    tag: ClassVar[int] = ord("O")

    def apply(self, state: dict[bytes, bytes], updates: Sequence[Update]) -> dict[bytes, bytes]:
        for version, method, body in split_add_all(updates):  # state: element -> latest version, then + or -
            latest = version + (_ADDED if method == "add" else _REMOVED)
            before = state.get(body)
            if before is None:
                value_from(body)
            if before is None or _order(before) < _order(latest):
                state[body] = latest
        return state

    def join(self, one: dict[bytes, bytes], other: dict[bytes, bytes]) -> dict[bytes, bytes]:
        for body, latest in other.items():
            before = one.get(body)
            if before is None or _order(before) < _order(latest):
                one[body] = latest
        return one

    def encode(self, state: dict[bytes, bytes]) -> bytes:
        order = sorted(state)
        return pack((pack(order), pack([state[body] for body in order])))

    def decode(self, body: bytes) -> dict[bytes, bytes]:
        bodies, latest = unpack(body)
        return dict(zip(unpack_elements(bodies), unpack(latest), strict=True))


@dataclass(frozen=True, slots=True)
class ORSet(_SetType[dict[bytes, "_Tags"]]):
    """An observed-remove set: a removal cancels the additions that it has observed; concurrent additions stay.

    `remove` at t observes the additions of that element with an event time before t; an addition at t itself stays. `remove_seen`
    takes `{"value": element, "seen": [ids]}` and observes exactly the additions by the events with these ids, whatever their
    times. The set contains an element while any of its additions is left. It remembers the additions that are left, the latest
    time of the removals and the ids they listed, for additions that arrive later.

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

    def delta(self, method: str, parameter: Json) -> bytes:
        if method != "remove_seen":
            return element_bytes(method, parameter)
        if not isinstance(parameter, dict) or parameter.keys() != {"value", "seen"}:
            hint = 'it takes an object, {"value": element, "seen": [ids of the events that added it]}'
            raise UnfitParameter("the parameter has no element and list of ids", hint)
        seen = parameter["seen"]
        if not isinstance(seen, list):
            raise UnfitParameter(f"seen is {kind_of(seen)}", "list the ids of the events that added the element")
        return pack((value_bytes(parameter["value"]), pack(sorted({id_bytes(id) for id in seen}))))

    def empty(self) -> dict[bytes, _Tags]:
        return {}

    def apply(self, state: dict[bytes, _Tags], updates: Sequence[Update]) -> dict[bytes, _Tags]:
        for version, method, body in split_add_all(updates):
            ids: list[bytes] = []
            if method == "remove_seen":
                body, listed = unpack(body)
                ids = unpack_elements(listed)
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

    def join(self, one: dict[bytes, _Tags], other: dict[bytes, _Tags]) -> dict[bytes, _Tags]:
        for body, others in other.items():
            tags = one.setdefault(body, _Tags())
            tags.before = max(tags.before, others.before)
            tags.seen |= others.seen
            tags.additions |= others.additions
            tags.settle()
        return one

    def encode(self, state: dict[bytes, _Tags]) -> bytes:
        order = sorted(state)
        return pack((pack(order), pack([state[body].to_bytes() for body in order])))

    def decode(self, body: bytes) -> dict[bytes, _Tags]:
        bodies, tags = unpack(body)
        return dict(zip(unpack_elements(bodies), map(_Tags.from_bytes, unpack(tags)), strict=True))

    def plain_value(self, state: dict[bytes, _Tags]) -> Json:
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
    """The state of one element of an ORSet: the time before which additions are removed, the ids that removals listed, and the
    events of the additions that are left."""

    before: bytes = b""
    seen: set[bytes] = field(default_factory=set)
    additions: set[bytes] = field(default_factory=set)

    def settle(self) -> None:
        """Drop the additions that a removal has observed."""
        gone = [
            event for event in self.additions if event[:TIME_BYTES] < self.before or event[TIME_BYTES:] in self.seen
        ]
        self.additions.difference_update(gone)

    def to_bytes(self) -> bytes:
        return pack((self.before, pack(sorted(self.seen)), pack(sorted(self.additions))))

    @classmethod
    def from_bytes(cls, data: bytes) -> _Tags:
        before, seen, additions = unpack(data)
        return cls(before, set(unpack_elements(seen)), set(unpack_elements(additions)))


def _order(latest: bytes) -> tuple[bytes, bytes]:
    return latest[:-1], latest[-1:]
