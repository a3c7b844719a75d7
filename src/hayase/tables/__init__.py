"""Conflict-free tables: keyed state that does not depend on the order, repetition or delay of events.

This module exports the column types. A column stores its updates as payloads and folds them when it is read. `TYPES` maps the
declared name of each type to its class.

| type | methods (the first is the default) | takes | value |
|---|---|---|---|
| Counter | incr | a number | the exact sum |
| Register | set | any JSON value | the latest by version |
| MinRegister, MaxRegister | set | any value but null | the least, the greatest in jq's order |
| GSet | add, add_all | any value; an array of them | all elements that were added |
| TwoPhaseSet | add, remove, add_all | any value | added and never removed |
| ORSet | add, remove, remove_seen, add_all | any value; `{value, seen}` | those with an addition that no removal has observed |
| LWWSet | add, remove, add_all | any value | those whose latest update is an addition |
| MapCounter | add | an object | for every key a counter |
| MapSet | add, add_all, remove | an object; of arrays; keys | for every key a set; `remove` as from an ORSet |
| MapRegister | add, remove | an object; a key or a list of keys | for every key a register; a removal is a write, the latest wins |
| DistinctCount | add | any value | the approximate number of distinct values |
| Quantiles | add | a number | count, min, max and quantiles |
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hayase.tables.counters import Counter
from hayase.tables.maps import MapCounter, MapRegister, MapSet
from hayase.tables.payloads import DamagedPayload, UnfitParameter
from hayase.tables.registers import MaxRegister, MinRegister, Register
from hayase.tables.sets import GSet, LWWSet, ORSet, TwoPhaseSet
from hayase.tables.sketches import DistinctCount, Quantiles
from hayase.tables.types import ColumnType

__all__ = [
    "TYPES",
    "ColumnType",
    "Counter",
    "DamagedPayload",
    "DistinctCount",
    "GSet",
    "LWWSet",
    "MapCounter",
    "MapRegister",
    "MapSet",
    "MaxRegister",
    "MinRegister",
    "ORSet",
    "Quantiles",
    "Register",
    "TwoPhaseSet",
    "UnfitParameter",
]

_ALL: tuple[type[ColumnType[Any]], ...] = (
    Counter, Register, MinRegister, MaxRegister, GSet, TwoPhaseSet, ORSet, LWWSet, MapCounter, MapRegister, MapSet,
    DistinctCount, Quantiles,
)  # fmt: skip

TYPES: Mapping[str, type[ColumnType[Any]]] = MappingProxyType({kind.__name__: kind for kind in _ALL})
"""The column types by name."""
