"""The keys that a batch changes in a table, kept in the table itself for outputs that mirror it.

A run of a table that an output reads has one more record: its keys, without their values. It becomes visible with the entries of
the run, or not at all, so whoever reads the keys of a batch finds its updates too. Records that all outputs have passed are
deleted, and a fact says up to which batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import orjson

from hayase.tables.entries import split
from hayase.tables.payloads import pack, unpack
from hayase.tables.store_reader import end_of_prefix, generation, newest_marker
from hayase.tables.stores import CHANGED, FACT, LOADS, Store, View, marker_in_key

__all__ = ["TableState", "changed_keys", "forget_changes", "packed_keys", "state_of"]

FORGOTTEN = FACT + b"changes_forgotten"
"""The marker of the newest batch whose keys are deleted."""
MANY = 64
"""So many records are deleted together: a deletion makes a file of the store."""


class TableState(NamedTuple):
    """What a table has taken in: its generation, the marker of the newest batch, and how many loads."""

    generation: str
    marker: bytes
    loads: int


def packed_keys(entries: Sequence[bytes], values: Sequence[bytes]) -> bytes:
    """Return the distinct keys of entries, which are in order, as one value."""
    return pack(dict.fromkeys(split(entry, value)[0] for entry, value in zip(entries, values)))


def state_of(view: View) -> TableState:
    """Return what a table has taken in."""
    loads = view.get(LOADS)
    return TableState(
        generation(view) or "", newest_marker(view), 0 if loads is None else int(orjson.loads(loads)["loads"])
    )


def changed_keys(view: View, since: bytes) -> list[bytes] | None:
    """Return the keys that batches after the one with this marker have changed; None if they are not known any more."""
    if (view.get(FORGOTTEN) or b"") > since:
        return None
    records = view.scan(CHANGED + since, end_of_prefix(CHANGED))
    return list(dict.fromkeys(key for place, keys in records if marker_in_key(place) > since for key in unpack(keys)))


def forget_changes(store: Store, passed: Iterable[bytes]) -> None:
    """Delete the keys of batches that all readers have passed; `passed` has the marker that each has reached."""

    def obsolete(view: View) -> tuple[int, bytes]:
        until = min(passed, default=newest_marker(view))
        end = end_of_prefix(CHANGED + until) if until else CHANGED
        return sum(1 for _ in view.scan(CHANGED, end)), until

    count, until = store.read(obsolete)
    if count >= MANY:
        store.write([(FORGOTTEN, until)], ranges=[(CHANGED, end_of_prefix(CHANGED + until))])
