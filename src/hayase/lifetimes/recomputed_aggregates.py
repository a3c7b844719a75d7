"""The operator of aggregates that nothing maintains: functions of the bag of a group's live rows, recomputed when it changes.

- At every instant at which rows of a group start or end, the functions are evaluated once over the rows that are alive then;
  all evaluations of a step go to DuckDB together. A row whose values do not change lives on.
- Cost: proportional to the rows of the groups that change, at every instant of change. Memory is proportional to the live
  tuples; they are kept also if none of them ever ends.
- The other calls of the aggregate, and which groups there are, come from an `AggregateOperator` inside, so that these mean the
  same beside any function. A tuple that it refuses is in no bag.
- A function that cannot be computed for a bag is NULL for it, and the row is reported.

State: "bag" (the live tuples), "rows" (the open rows of the result), "registers" (the id of the next row), and the sections of
the aggregate inside, named "kept.SECTION".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from hayase.core.bags import BAG, Evaluation, differ, evaluate
from hayase.core.keys import KeyIndex, decode, encode, hashes
from hayase.core.reasons import Reason
from hayase.core.stages import FailedRows
from hayase.lifetimes.aggregates import AggregateOperator
from hayase.lifetimes.leaves import take_rows
from hayase.lifetimes.plans import Aggregate, Recomputed
from hayase.lifetimes.relations import OPEN, Delta, Span, Step
from hayase.lifetimes.slot_columns import grown
from hayase.lifetimes.state_registers import Registers
from hayase.lifetimes.tuples import ID, TupleStore

__all__ = ["RecomputedOperator"]

_BAG, _ROWS, _KEPT, _NEXT = "bag", "rows", "kept.", "next"
_NONE = np.empty(0, np.int64)
MOST_ROWS = 1 << 20
"""The rows that one evaluation takes, unless a single bag has more."""
SPARE_GROUPS = 65_536
"""Fewer groups without rows than this do not cause their removal."""


class RecomputedOperator:
    """The operator of `plans.Recomputed` (`relations.Operator`). `endless`: no tuple of the child ever ends."""

    def __init__(self, node: Recomputed, endless: bool) -> None:
        self.schema = node.schema
        self._node = node
        bags = {bag.name for bag in node.bags}
        kept = pa.schema([field for field in node.schema if field.name not in bags])
        self._kept = AggregateOperator(Aggregate(node.child, node.keys, node.calls, kept), endless)
        self._bags = [
            Evaluation(bag.sql, node.schema.field(bag.name).type, bag.text, bag.fold, bag.constant) for bag in node.bags
        ]
        self._kept_names = kept.names[len(node.keys) :]
        names = dict.fromkeys([*node.keys, *(name for bag in node.bags for name in bag.columns)])
        self._store = TupleStore(pa.schema([node.child.schema.field(name) for name in names]), _BAG)
        self._rows = TupleStore(node.schema, _ROWS)
        self._registers = Registers((_NEXT,), (0,))
        self._index = KeyIndex()
        self._group = _NONE
        """The group of each tuple by slot; -1 if the slot is free."""
        self._row = _NONE
        """The slot of each group's open row; -1 if it has none."""

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        """Process a step and return the rows that begin and end in it."""
        kept = self._kept.advance(inputs, span)
        delta = _without(inputs[0], kept.spoiled)
        self._settle(span)
        groups = self._groups(delta.rows, len(delta))
        passed = self._store.advance(delta.rows.select(self._store.schema.names), delta, span.clock)
        self._place(passed.slots, groups)
        kept_groups = self._groups(kept.delta.rows, len(kept.delta))
        events = _Events(
            np.concatenate([self._group[passed.ended], groups, kept_groups]),
            np.concatenate([passed.ends, delta.start, kept.delta.start]),
        )
        values, exists, failed = self._evaluated(events, kept.delta, kept_groups)
        result, closed, reported = self._changes(events, values, exists, failed, span)
        self._group[passed.ended] = -1
        self._store.release(passed.ended)
        state = [replace(tuples, section=f"{_KEPT}{tuples.section}") for tuples in kept.state]
        state += [*self._store.changes(), *self._rows.changes(), *self._registers.changes(span.version)]
        self._tidy()
        return Step(replace(result, closed=closed[0], closed_end=closed[1]), state, [*kept.spoiled, *reported])

    # ------------------------------------------------------------------------------------------ groups

    def _groups(self, rows: pa.RecordBatch, count: int) -> np.ndarray:
        """Return the number of each row's group; new groups are added."""
        encoded = encode([rows.column(name) for name in self._node.keys], count)
        slots = self._index.slots(encoded, hashes(encoded))
        known = len(self._row)
        self._row = grown(self._row, len(self._index))
        self._row[known:] = -1
        return slots

    def _place(self, slots: np.ndarray, groups: np.ndarray) -> None:
        known = len(self._group)
        self._group = grown(self._group, self._store.capacity)
        self._group[known:] = -1
        self._group[slots] = groups

    def _settle(self, span: Span) -> None:
        """Index what was restored, and remove what ended while another worker ran the stage."""
        added, removed = self._store.settle(span.since)
        self._group[removed] = -1
        if len(added):
            self._place(added, self._groups(self._store.take(added), len(added)))
        self._store.release(removed)
        added, removed = self._rows.settle(span.since)
        if len(removed):
            groups = self._groups(self._rows.take(removed), len(removed))
            self._row[groups[self._row[groups] == removed]] = -1
            self._rows.release(removed)
        if len(added):
            groups = self._groups(self._rows.take(added), len(added))
            self._row[groups] = added

    def _tidy(self) -> None:
        """Drop the numbers of groups without tuples and rows when they are the greater part."""
        held = np.flatnonzero(self._group >= 0)
        if len(self._index) <= 2 * len(held) + SPARE_GROUPS:
            return
        there = self._row[: len(self._index)] >= 0
        there[self._group[held]] = True
        kept = np.flatnonzero(there)
        numbers = np.full(len(there), -1)
        numbers[kept] = np.arange(len(kept))
        encoded, rows = self._index.encoded(kept), self._row[kept]
        self._index = KeyIndex()
        self._index.slots(encoded, hashes(encoded))
        self._row = rows
        self._group[held] = numbers[self._group[held]]

    # ------------------------------------------------------------------------------------------ values

    def _evaluated(
        self, events: _Events, kept: Delta, kept_groups: np.ndarray
    ) -> tuple[pa.RecordBatch, np.ndarray, dict[int, list[Reason]]]:
        """Return the row of every event's group after it, whether it exists, and why functions failed for some of them."""
        slots = np.flatnonzero(self._group >= 0)
        slots = slots[events.touches(self._group[slots])]
        first, last = events.covered(self._group[slots], self._store.start[slots], self._store.end[slots])
        sizes = np.bincount(first, minlength=len(events) + 1) - np.bincount(last, minlength=len(events) + 1)
        sizes = np.cumsum(sizes)[: len(events)]
        known = events.last_before(kept_groups, kept.start)
        exists = sizes > 0
        if not self._node.keys:
            exists = (known >= 0) | (self._row[events.group] >= 0)
        columns = self._kept_columns(kept, known, self._row[events.group])
        failed: dict[int, list[Reason]] = {}
        parts: list[list[pa.Array]] = [[] for _ in self._node.bags]
        for low, high in _chunks(sizes):
            rows = self._members(slots, first, last, low, high)
            for part, result in zip(parts, evaluate(rows, np.arange(low, high), self._bags)):
                part.append(result.values)
                for at, reason in result.failed.items():
                    failed.setdefault(low + at, []).append(reason)
        for part, bag in zip(parts, self._node.bags):
            columns[bag.name] = pa.concat_arrays(part) if part else pa.nulls(0, self.schema.field(bag.name).type)
        keys = self._key_columns(events)
        arrays = [keys[name] if name in keys else columns[name] for name in self.schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema), exists, failed

    def _members(self, slots: np.ndarray, first: np.ndarray, last: np.ndarray, low: int, high: int) -> pa.RecordBatch:
        """Return the rows of the bags of the events in `[low, high)`, each with the number of its bag."""
        begin, end = np.maximum(first, low), np.minimum(last, high)
        own = np.flatnonzero(begin < end)
        counts = (end - begin)[own]
        tuples = np.repeat(slots[own], counts)
        ramp = np.arange(len(tuples)) - np.repeat(np.cumsum(counts) - counts, counts)
        bags = np.repeat(begin[own], counts) + ramp
        rows = self._store.take(tuples)
        names = [*rows.schema.names, ID, BAG]
        return pa.RecordBatch.from_arrays([*rows.columns, pa.array(self._store.id[tuples]), pa.array(bags)], names)

    def _kept_columns(self, kept: Delta, known: np.ndarray, rows: np.ndarray) -> dict[str, pa.Array]:
        """Return the columns that are maintained: from their last row in this step, or from the open row of the group."""
        has_row = rows >= 0
        earlier = self._rows.take(rows[has_row])
        places = np.where(has_row, len(kept) + np.cumsum(has_row) - 1, len(kept) + np.count_nonzero(has_row))
        chosen = pa.array(np.where(known >= 0, known, places))
        columns = {}
        for name in self._kept_names:
            kind = self.schema.field(name).type
            parts = [kept.rows.column(name), earlier.column(name), pa.nulls(1, kind)]
            columns[name] = pa.concat_arrays([part.cast(kind) for part in parts]).take(chosen)
        return columns

    def _key_columns(self, events: _Events) -> dict[str, pa.Array]:
        kinds = [self._node.child.schema.field(name).type for name in self._node.keys]
        return dict(zip(self._node.keys, decode(self._index.encoded(events.group), kinds))) if kinds else {}

    # ------------------------------------------------------------------------------------------ the result

    def _changes(
        self, events: _Events, values: pa.RecordBatch, exists: np.ndarray, failed: dict[int, list[Reason]], span: Span
    ) -> tuple[Delta, tuple[np.ndarray, np.ndarray], list[FailedRows]]:
        """Return the rows that begin, the ids and ends of earlier rows, and the rows in which a function is NULL."""
        count = len(events)
        same_group = np.zeros(count, np.bool_)
        same_group[1:] = events.group[1:] == events.group[:-1]
        rows = self._row[events.group]
        before = np.where(same_group, np.roll(exists, 1), rows >= 0)
        changed = self._differs(values, same_group, rows, before & exists)
        opens = exists & (~before | changed)
        closes = before & (~exists | changed)
        opened = np.flatnonzero(opens)
        ends = np.full(len(opened), OPEN)
        closing = np.flatnonzero(closes)
        owner = (np.cumsum(opens) - opens)[closing] - 1  # the last row opened before, if it is of the same group
        own = (
            (owner >= 0) & (events.group[opened[np.maximum(owner, 0)]] == events.group[closing])
            if len(opened)
            else np.zeros(len(closing), np.bool_)
        )
        ends[owner[own]] = events.time[closing[own]]
        earlier = closing[~own]
        order = np.lexsort((events.cause[opened], events.time[opened]))
        opened, ends = opened[order], ends[order]
        first = self._registers[_NEXT]
        self._registers[_NEXT] += len(opened)
        ids = np.arange(first, first + len(opened))
        delta = Delta(take_rows(values, opened), events.time[opened], ends, ids)
        earlier = earlier[np.lexsort((events.cause[earlier], events.time[earlier]))]
        closed = self._rows.id[rows[earlier]] if len(earlier) else _NONE, events.time[earlier]
        self._row[events.group[earlier]] = -1
        self._rows.close(*closed)
        self._rows.release(self._rows.expire(span.clock))
        still = np.flatnonzero(ends == OPEN)
        self._row[events.group[opened[still]]] = self._rows.add(
            take_rows(delta.rows, still), delta.start[still], ends[still], ids[still]
        )
        return delta, closed, _reported(delta, opened, failed)

    def _differs(
        self, values: pa.RecordBatch, same_group: np.ndarray, rows: np.ndarray, both: np.ndarray
    ) -> np.ndarray:
        """Return whether a row differs from that of the event before, or from the open row of its group."""
        result = np.zeros(len(both), np.bool_)
        keys = len(self._node.keys)
        inside, first = np.flatnonzero(both & same_group), np.flatnonzero(both & ~same_group)
        for chosen, earlier in ((inside, take_rows(values, inside - 1)), (first, self._rows.take(rows[first]))):
            result[chosen] = differ(take_rows(values, chosen).columns[keys:], earlier.columns[keys:])
        return result

    # ------------------------------------------------------------------------------------------ state

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Load state; it is used from the next step on."""
        if section.startswith(_KEPT):
            self._kept.restore(section.removeprefix(_KEPT), rows, version)
        elif section == self._registers.section:
            self._registers.restore(section, rows, version)
        else:
            self._section(section).restore(rows, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the rows that are still needed."""
        if section.startswith(_KEPT):
            return self._kept.live(section.removeprefix(_KEPT), rows, version)
        if section == self._registers.section:
            return self._registers.live(section, rows, version)
        return self._section(section).live(rows, version)

    def size(self, section: str) -> int:
        """Return the number of live tuples of a section."""
        if section.startswith(_KEPT):
            return self._kept.size(section.removeprefix(_KEPT))
        return self._registers.size(section) if section == self._registers.section else self._section(section).size()

    def _section(self, section: str) -> TupleStore:
        return self._store if section == _BAG else self._rows


class _Events:
    """The (group, instant) pairs of a step at which rows of the group start or end, each once, in that order.

    `cause` is the place of the first change of each in the order of the step, which decides the order of rows at an instant.
    """

    def __init__(self, groups: np.ndarray, times: np.ndarray) -> None:
        self._times = np.unique(times)
        self._groups = np.unique(groups)
        self._width = len(self._times) + 1
        self._keys, self.cause = np.unique(self._key(groups, times), return_index=True)
        self.group = self._groups[self._keys // self._width] if len(self._keys) else _NONE
        self.time = self._times[self._keys % self._width] if len(self._keys) else _NONE

    def __len__(self) -> int:
        return len(self._keys)

    def _key(self, groups: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Return numbers in the order of (group, instant)."""
        return np.asarray(np.searchsorted(self._groups, groups) * self._width + np.searchsorted(self._times, times))

    def touches(self, groups: np.ndarray) -> np.ndarray:
        """Return whether groups have an event."""
        return np.isin(groups, self._groups)

    def covered(self, groups: np.ndarray, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ranges of events of their groups at which tuples are alive."""
        return tuple(np.searchsorted(self._keys, self._key(groups, times)) for times in (start, end))  # type: ignore[return-value]

    def last_before(self, groups: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Return for every event the last of some rows of its group that start up to it; -1 if there is none."""
        if not len(groups):
            return np.full(len(self), -1)
        order = np.argsort(self._key(groups, start), kind="stable")
        places = np.searchsorted(self._key(groups, start)[order], self._keys, side="right") - 1
        found = order[np.maximum(places, 0)]
        return np.where((places >= 0) & (groups[found] == self.group), found, -1)


def _chunks(sizes: np.ndarray) -> list[tuple[int, int]]:
    """Return ranges of events whose bags have at most `MOST_ROWS` rows together, or that are single."""
    if not len(sizes):
        return []
    total = np.concatenate([[0], np.cumsum(sizes)])
    bounds = [0]
    while bounds[-1] < len(sizes):
        low = bounds[-1]
        bounds.append(max(low + 1, int(np.searchsorted(total, total[low] + MOST_ROWS, side="right")) - 1))
    return list(pairwise(bounds))


def _without(delta: Delta, spoiled: Sequence[FailedRows]) -> Delta:
    """Return the delta without the tuples that were refused."""
    ids = [failed.ids for failed in spoiled if failed.ids is not None]
    if not ids:
        return delta
    kept = np.flatnonzero(~np.isin(delta.id, np.concatenate(ids)))
    rows = take_rows(delta.rows, kept)
    return replace(delta, rows=rows, start=delta.start[kept], end=delta.end[kept], id=delta.id[kept])


def _reported(delta: Delta, opened: np.ndarray, failed: dict[int, list[Reason]]) -> list[FailedRows]:
    """Return the rows that begin with a function that could not be computed."""
    pairs = [(at, reason) for at, event in enumerate(opened.tolist()) for reason in failed.get(event, ())]
    if not pairs:
        return []
    return [FailedRows(take_rows(delta.rows, np.array([at for at, _ in pairs])), [reason for _, reason in pairs])]
