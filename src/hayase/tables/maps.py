"""The column types MapCounter, MapRegister and MapSet: maps from texts to counters, registers or sets.

`add` takes an object, each entry of which updates its key. A map contains a key once an entry has named it, until the key is
removed: from a MapRegister by a later `remove`, which is a write like any other; from a MapSet by a `remove` that has observed
all additions to the key's set. Counters keep no times, so nothing can be removed from a MapCounter. The value of a map is an
object, its keys by code point.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, TypeVar

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.tables.counters import checked_amount, summed
from hayase.tables.payloads import (
    LARGEST,
    Amount,
    Json,
    UnfitParameter,
    added,
    amount_bytes,
    amount_from,
    kind_of,
    many_amount_bytes,
    number,
    pack,
    text_bytes,
    text_from,
    unpack,
    value_bytes,
    value_from,
    varint,
    varint_from,
)
from hayase.tables.registers import Written
from hayase.tables.sets import ADD_ALL, elements, unpack_elements
from hayase.tables.types import ColumnType, Update
from hayase.tables.versions import TIME_BYTES

if TYPE_CHECKING:
    from hayase.tables.entry_blocks import RowUpdates

__all__ = ["MapCounter", "MapRegister", "MapSet"]

Entry = TypeVar("Entry")


class _Map(ColumnType[dict[bytes, Entry]]):
    """The base class of maps. Subclasses define what an entry is and what an update does to it."""

    __slots__ = ()

    methods: ClassVar[tuple[str, ...]] = ("add",)

    def delta(self, method: str, parameter: Json) -> bytes:
        if method == "remove":
            return _removal(parameter)
        if not isinstance(parameter, dict):
            raise UnfitParameter(f"cannot add {kind_of(parameter)} to a map", "it takes an object, {key: value}")
        keys = [key for key in parameter if isinstance(key, str)]
        if len(keys) < len(parameter):
            raise UnfitParameter("an object has a key that is not a text")
        parts = [varint(len(keys))]
        for key in sorted(keys):
            change = self.change(parameter[key])
            parts += (text_bytes(key), varint(len(change)), change)
        return b"".join(parts)

    def empty(self) -> dict[bytes, Entry]:
        return {}

    def apply(self, state: dict[bytes, Entry], updates: Sequence[Update]) -> dict[bytes, Entry]:
        for version, _, body in updates:
            count, at = varint_from(body, 0)
            for _ in range(count):
                end = body.index(b"\0", at) + 1
                key = body[at:end]
                length, at = varint_from(body, end)
                change, at = body[at : at + length], at + length
                if key not in state:
                    text_from(key)
                state[key] = self.changed(state.get(key), version, change)
            if at != len(body):
                raise ValueError("entries and bytes do not match")
        return state

    def join(self, one: dict[bytes, Entry], other: dict[bytes, Entry]) -> dict[bytes, Entry]:
        for key, entry in other.items():
            one[key] = self.join_entry(one[key], entry) if key in one else entry
        return one

    def encode(self, state: dict[bytes, Entry]) -> bytes:
        return pack(part for key in sorted(state) for part in (key, self.encode_entry(state[key])))

    def decode(self, body: bytes) -> dict[bytes, Entry]:
        parts = unpack(body)
        return {key: self.decode_entry(entry) for key, entry in zip(parts[::2], parts[1::2], strict=True)}

    def plain_value(self, state: dict[bytes, Entry]) -> Json:
        return {_text(key): self.entry_value(state[key]) for key in sorted(state) if self.is_shown(state[key])}

    def is_shown(self, entry: Entry) -> bool:
        """Whether the value contains the entry: not if it was removed."""
        return True

    @abstractmethod
    def change(self, parameter: Json) -> bytes:
        """Encode the parameter of an entry."""

    @abstractmethod
    def changed(self, entry: Entry | None, version: bytes, change: bytes) -> Entry:
        """Return the entry after a change; `entry` is None before the first."""

    @abstractmethod
    def join_entry(self, one: Entry, other: Entry) -> Entry:
        """Return the entry of the payloads of both."""

    @abstractmethod
    def encode_entry(self, entry: Entry) -> bytes:
        """Encode an entry."""

    @abstractmethod
    def decode_entry(self, data: bytes) -> Entry:
        """Decode an entry."""

    @abstractmethod
    def entry_value(self, entry: Entry) -> Json:
        """Return the value of an entry."""


@lru_cache(maxsize=4096)
def _text(key: bytes) -> str:
    """Decode the key of a map; many maps have the same keys."""
    return text_from(key)[0]


def _removal(parameter: Json) -> bytes:
    """Return the body of a removal: entries with empty values."""
    keys = parameter if isinstance(parameter, list) else [parameter]
    texts = {key for key in keys if isinstance(key, str)}
    if not all(isinstance(key, str) for key in keys):
        raise UnfitParameter(f"cannot remove {kind_of(parameter)} from a map", "it takes a key, or a list of keys")
    return b"".join((varint(len(texts)), *(text_bytes(key) + varint(0) for key in sorted(texts))))


@dataclass(frozen=True, slots=True)
class MapCounter(_Map[Amount]):
    """A counter for every key. A key whose increments add up to 0 stays in the map.

    >>> by_day = MapCounter()
    >>> by_day.read(None, [(b"1", by_day.payload("add", {"2017-01-02": 5})), (b"2", by_day.payload("add", {"2017-01-02": 0.5}))])
    {'2017-01-02': 5.5}
    """

    tag: ClassVar[int] = ord("c")
    arrow: ClassVar[pa.DataType] = pa.map_(pa.string(), pa.float64())

    def deltas(self, method: str, parameters: Sequence[Json]) -> list[bytes] | None:
        if not parameters or not {dict}.issuperset(map(type, parameters)) or {*map(len, parameters)} != {1}:
            return None
        keys = [key for parameter in parameters for key in parameter]
        changes = many_amount_bytes([value for parameter in parameters for value in parameter.values()])
        if changes is None or not {str}.issuperset(map(type, keys)):
            return None
        try:
            named = {key: b"\1" + text_bytes(key) for key in dict.fromkeys(keys)}
        except UnfitParameter:
            return None
        if max(map(len, named.values())) > LARGEST // 2:
            return None
        return [named[key] + varint(len(change)) + change for key, change in zip(keys, changes, strict=True)]

    def apply(self, state: dict[bytes, Amount], updates: Sequence[Update]) -> dict[bytes, Amount]:
        changes: dict[bytes, list[bytes]] = {}
        for _, _, body in updates:
            if body[0] != 1:  # nearly all have a single entry
                return _Map.apply(self, state, updates)
            end = body.index(b"\0", 1) + 1
            if body[end] != len(body) - end - 1:
                return _Map.apply(self, state, updates)
            key, change = body[1:end], body[end + 1 :]
            if key in changes:
                changes[key].append(change)
            else:
                changes[key] = [change]
        for key, changes_of_key in changes.items():
            if key not in state:
                text_from(key)
            state[key] = summed(state.get(key, (0, 0)), changes_of_key)
        return state

    def states_of(self, updates: RowUpdates) -> list[dict[bytes, Amount] | None]:
        return updates.sums_by_key(self.payload_head(1))

    def change(self, parameter: Json) -> bytes:
        return amount_bytes(checked_amount(parameter))

    def changed(self, entry: Amount | None, version: bytes, change: bytes) -> Amount:
        amount = self.decode_entry(change)
        return amount if entry is None else added(entry, amount)

    def join_entry(self, one: Amount, other: Amount) -> Amount:
        return added(one, other)

    def encode_entry(self, entry: Amount) -> bytes:
        return amount_bytes(entry)

    def decode_entry(self, data: bytes) -> Amount:
        amount, end = amount_from(data)
        if end != len(data):
            raise ValueError("bytes behind the amount")
        return amount

    def entry_value(self, entry: Amount) -> Json:
        return number(entry)

    def plain_value(self, state: dict[bytes, Amount]) -> Json:
        return {_text(key): number(state[key]) for key in sorted(state)}


@dataclass(frozen=True, slots=True)
class MapRegister(_Map[Written]):
    """A register for every key: its latest value, by version. `remove` takes a key or a list of keys and is a write too: the map
    contains a key unless its latest write is a removal.

    >>> settings = MapRegister()
    >>> settings.read(None, [(b"2", settings.payload("add", {"a": 2})), (b"1", settings.payload("add", {"a": 1, "b": 1}))])
    {'a': 2, 'b': 1}
    >>> settings.read(None, [(b"1", settings.payload("add", {"a": 1, "b": 1})), (b"2", settings.payload("remove", "a"))])
    {'b': 1}
    """

    tag: ClassVar[int] = ord("r")
    methods: ClassVar[tuple[str, ...]] = ("add", "remove")
    arrow: ClassVar[pa.DataType] = pa.map_(pa.string(), pa.string())

    def change(self, parameter: Json) -> bytes:
        return value_bytes(parameter)

    def changed(self, entry: Written | None, version: bytes, change: bytes) -> Written:
        if change:
            value_from(change)
        return (version, change) if entry is None else max(entry, (version, change))

    def join_entry(self, one: Written, other: Written) -> Written:
        return max(one, other)

    def encode_entry(self, entry: Written) -> bytes:
        return pack(entry)

    def decode_entry(self, data: bytes) -> Written:
        version, value = unpack(data)
        return version, value

    def is_shown(self, entry: Written) -> bool:
        return bool(entry[1])

    def entry_value(self, entry: Written) -> Json:
        return value_from(entry[1])


@dataclass(slots=True)
class _KeySet:
    """The state of one key of a MapSet: the time before which additions are removed, and for each remaining element the time of
    its latest addition. Elements that an earlier release has folded have an empty time: any removal removes them."""

    before: bytes = b""
    latest: dict[bytes, bytes] = field(default_factory=dict)

    def add(self, element: bytes, time: bytes) -> None:
        """Add an element at a time, unless a removal has observed the addition."""
        if time >= self.before:
            self.latest[element] = max(time, self.latest.get(element, b""))

    def remove(self, before: bytes) -> None:
        """Remove the additions before a time."""
        self.before = max(self.before, before)
        self.latest = {element: time for element, time in self.latest.items() if time >= self.before}


_TIMED = b"\0"
"""The first byte of an entry with times; an entry of elements alone begins with the length of the first element."""


@dataclass(frozen=True, slots=True)
class MapSet(_Map[_KeySet]):
    """A set for every key. The value of an entry is one element, even if it is an array; `add_all` takes an array of
    elements for each key. `remove` takes a key or a list of keys: at t it removes the additions to their sets with an event
    time before t, as `remove` of an ORSet does. The map contains a key while its set has elements.

    >>> from hayase.tables.versions import to_bytes
    >>> tags = MapSet()
    >>> early = (to_bytes(1, "a"), tags.payload("add", {"a": "x", "b": "x"}))
    >>> late = (to_bytes(5, "b"), tags.payload("add", {"a": "y"}))
    >>> tags.read(None, [early, late])
    {'a': ['x', 'y'], 'b': ['x']}
    >>> tags.read(None, [early, late, (to_bytes(5, "c"), tags.payload("remove", ["a", "b"]))])
    {'a': ['y']}
    """

    tag: ClassVar[int] = ord("s")
    methods: ClassVar[tuple[str, ...]] = ("add", ADD_ALL, "remove")
    arrow: ClassVar[pa.DataType] = pa.map_(pa.string(), pa.list_(pa.string()))

    def delta(self, method: str, parameter: Json) -> bytes:
        if method != ADD_ALL:
            return _Map.delta(self, method, parameter)
        if not isinstance(parameter, dict) or not all(isinstance(element, list) for element in parameter.values()):
            raise UnfitParameter("cannot add all elements to a map of sets", "it takes an object, {key: [elements]}")
        pairs = [(key, element) for key, elements in parameter.items() for element in elements]
        return pack(_Map.delta(self, "add", {key: element}) for key, element in pairs)

    def apply(self, state: dict[bytes, _KeySet], updates: Sequence[Update]) -> dict[bytes, _KeySet]:
        single = [
            (version, method, part)
            for version, method, body in updates
            for part in (unpack(body) if method == ADD_ALL else (body,))
        ]
        return _Map.apply(self, state, single)

    def change(self, parameter: Json) -> bytes:
        return value_bytes(parameter)

    def changed(self, entry: _KeySet | None, version: bytes, change: bytes) -> _KeySet:
        entry = _KeySet() if entry is None else entry
        if not change:
            entry.remove(version[:TIME_BYTES])
            return entry
        if change not in entry.latest:
            value_from(change)
        entry.add(change, version[:TIME_BYTES])
        return entry

    def join_entry(self, one: _KeySet, other: _KeySet) -> _KeySet:
        one.remove(other.before)
        for element, time in other.latest.items():
            one.add(element, time)
        return one

    def encode_entry(self, entry: _KeySet) -> bytes:
        order = sorted(entry.latest)
        if not entry.before and not any(entry.latest.values()):
            return pack(order)
        return _TIMED + pack((entry.before, pack(order), pack([entry.latest[element] for element in order])))

    def decode_entry(self, data: bytes) -> _KeySet:
        if data[:1] != _TIMED:
            return _KeySet(b"", dict.fromkeys(unpack_elements(data), b""))
        before, order, times = unpack(data[1:])
        return _KeySet(before, dict(zip(unpack_elements(order), unpack(times), strict=True)))

    def is_shown(self, entry: _KeySet) -> bool:
        return bool(entry.latest)

    def entry_value(self, entry: _KeySet) -> Json:
        return elements(entry.latest)
