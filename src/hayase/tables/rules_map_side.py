"""The map side of a table that is fed by rules: records in, entries out, one entry per event and key.

An event that fails in some rules is refused with all their reasons; its updates by the other rules are kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import EVENT_TIME, StreamDeclaration, TableDeclaration
from hayase.core.reasons import Reason, ReasonKind, joined
from hayase.core.stages import OFFSET, Mapped, Refusals
from hayase.streams import event_times
from hayase.tables import TYPES, ColumnType, entries, versions
from hayase.tables.entries import UpdateColumn
from hayase.tables.events import events_of
from hayase.tables.jq import Jq
from hayase.tables.payloads import UnfitParameter
from hayase.tables.rule_payloads import EvaluatedUpdate, Keys, payloads
from hayase.tables.rules import RuleSet

__all__ = ["EntryBuilder", "RulesMapSide", "Target"]


class Target(NamedTuple):
    """Where an update writes: the place of its column, and its number among the updates of that column."""

    place: int
    number: int


@dataclass(frozen=True, slots=True)
class RulesMapSide:
    """The rules of one table for the events of one stream; `number` is the stream's position among those that feed the table."""

    table: TableDeclaration
    stream: StreamDeclaration
    id: str
    number: int
    rules: RuleSet
    targets: tuple[Target, ...]

    def updates(self) -> Iterator[tuple[object, ...]]:
        """Yield the updates by events of the stream as plain tuples, the column first, to compare rules."""
        for branch in self.rules.branches(self.stream.name):
            for table in branch.tables:
                for update in table.updates:
                    within = self.targets[update.number].number
                    yield update.column, within, branch.condition, update.key, update.value, update.method

    def _events(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records as rules see them. A hidden event time also has the log's name for it, as in earlier releases."""
        events = batch.select([name for name in batch.schema.names if name != OFFSET])
        if not self.stream.hides_time or EVENT_TIME in events.schema.names:
            return events
        return events.append_column(EVENT_TIME, events.column(self.stream.time))

    def __call__(self, batch: pa.RecordBatch) -> Mapped:
        outcome = payloads(self.rules, self.stream.name, events_of(self._events(batch)), _jq(os.getpid()))
        builder = EntryBuilder(
            self.table, self.targets, event_times(batch, self.stream), batch.column(self.id), self.number
        )
        for refusal in outcome.refusals:
            builder.refuse(refusal.event, ReasonKind.RULE, f"{refusal.rule}, {refusal.program}: {refusal.reason}")
        return builder.mapped(outcome.updates)


@dataclass(slots=True)
class _UpdateGroup:
    """Updates with the same events and keys: their deltas are columns of the same entries."""

    events: Sequence[int]
    keys: Sequence[bytes] | pa.Array
    columns: list[UpdateColumn]


class EntryBuilder:
    """Converts evaluated updates of one batch into entries of a table. `targets` says by number where each update writes;
    times and ids are those of the events, `number` is that of their stream."""

    def __init__(
        self, table: TableDeclaration, targets: Sequence[Target], times: np.ndarray, ids: pa.Array, number: int
    ):
        self.targets = targets
        self.types: list[ColumnType[Any]] = [TYPES[kind]() for _, kind in table.columns]
        self.reasons: dict[int, list[Reason]] = {}
        self.versions = _Versions(times, ids, number)

    def mapped(self, evaluated_updates: Sequence[EvaluatedUpdate]) -> Mapped:
        """Return the entries and all refusals."""
        updates = [evaluated for evaluated in evaluated_updates if len(evaluated.events)]
        groups = self.groups(updates)
        rows = self.pack_singly(updates) if groups is None else self.pack_groups(groups)
        broken = sorted(self.reasons)
        refused = Refusals(np.array(broken, np.int64), [joined(self.reasons[at]) for at in broken])
        return Mapped(rows, np.empty(0, np.int64), refused)

    def groups(self, updates: Sequence[EvaluatedUpdate]) -> list[_UpdateGroup] | None:
        """Group the updates by events and keys. None if two groups share an event or anything is to be refused."""
        groups: dict[tuple[int, tuple[str, ...]], _UpdateGroup] = {}
        for evaluated in updates:
            update = evaluated.update
            place, within = self.targets[update.number]
            if set(evaluated.numbers) != {update.number}:
                return None
            deltas: Any = self.types[place].column(update.method, evaluated.parameters)
            if deltas is None:
                deltas = self.types[place].payloads(update.method, evaluated.parameters)
                if UnfitParameter in set(map(type, deltas)):
                    return None
            group = groups.get((id(evaluated.events), update.key))
            if group is None:
                keys: Any = None
                if isinstance(evaluated.keys, Keys) and len(evaluated.keys.columns) == 1:
                    keys = entries.text_keys(evaluated.keys.columns[0])
                if keys is None:
                    keys = entries.many_key_bytes(list(evaluated.keys))
                    if UnfitParameter in set(map(type, keys)):
                        return None
                group = groups[id(evaluated.events), update.key] = _UpdateGroup(evaluated.events, keys, [])
            group.columns.append(UpdateColumn(place, within, deltas))
        count = sum(len(part.events) for part in groups.values())
        if len(groups) > 1 and len({event for part in groups.values() for event in part.events}) < count:
            return None
        return list(groups.values()) if self.versions.are_valid() else None

    def pack_groups(self, groups: Sequence[_UpdateGroup]) -> pa.RecordBatch:
        packed = [
            entries.pack_columns(group.keys, self.versions.column().take(pa.array(group.events)), group.columns)
            for group in groups
        ]
        return pa.concat_batches(packed) if packed else _NONE

    def pack_singly(self, updates: Sequence[EvaluatedUpdate]) -> pa.RecordBatch:
        """Build the entries event by event, the slow way, and refuse events with a bad key, parameter or version."""
        updates_of_rows: dict[tuple[int, bytes], list[tuple[int, bytes, bytes]]] = {}
        for evaluated in updates:
            update = evaluated.update
            place, within = self.targets[update.number]
            deltas = self.types[place].payloads(update.method, evaluated.parameters)
            keys = entries.many_key_bytes(list(evaluated.keys))
            for event, key, number, delta in zip(evaluated.events, keys, evaluated.numbers, deltas, strict=True):
                wrong = next((error for error in (key, delta) if isinstance(error, UnfitParameter)), None)
                wrong = wrong or self.versions.error(event)
                if wrong is not None:
                    self.refuse(event, ReasonKind.SCHEMA, f"{evaluated.rule}: {wrong}")
                    continue
                assert isinstance(key, bytes)
                assert isinstance(delta, bytes)
                bytes_of_number = versions.update_number_bytes(within + number - update.number)
                updates_of_rows.setdefault((event, key), []).append((place, bytes_of_number, delta))
        row_versions = [self.versions.of(event) for event, _ in updates_of_rows]
        return entries.pack([key for _, key in updates_of_rows], row_versions, list(updates_of_rows.values()))

    def refuse(self, event: int, kind: ReasonKind, text: str) -> None:
        """Refuse an event; it may have several reasons."""
        self.reasons.setdefault(event, []).append(Reason(kind, text))


class _Versions:
    """The versions of a batch's events, which contain the number of their stream."""

    def __init__(self, times: np.ndarray, ids: pa.Array, number: int):
        self._times, self._ids, self._number = times, ids, number
        self._all: pa.Array | None = None

    def are_valid(self) -> bool:
        """Whether all events have a valid time and id."""
        try:
            if self._all is None:
                encoded = versions.many_to_bytes(self._times, self._ids, self._number)
                self._all = pa.array(encoded, pa.large_binary())
        except UnfitParameter:
            return False
        return True

    def column(self) -> pa.Array:
        assert self._all is not None
        return self._all

    def error(self, event: int) -> UnfitParameter | None:
        """Return why an event has no version; None if it has one."""
        try:
            self.of(event)
        except UnfitParameter as error:
            return error
        return None

    def of(self, event: int) -> bytes:
        return versions.to_bytes(int(self._times[event]), self._ids[event].as_py(), self._number)


_NONE = entries.pack((), (), ())


@lru_cache(maxsize=1)
def _jq(process: int) -> Jq:
    """Return the Jq of this process: a forked process must not share its parent's child process."""
    return Jq()
