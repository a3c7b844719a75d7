"""The map side of a table: records in, entries out. What an event does to a key is one entry, whatever it touches.

An event that breaks a rule is refused with all the rules it broke; what the other rules made of it stands.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from hayase.core.declarations import EVENT_TIME, StreamDeclaration, TableDeclaration
from hayase.core.stages import OFFSET, Mapped, Refusals
from hayase.streams import event_times
from hayase.tables import TYPES, ColumnType, entries, versions
from hayase.tables.entries import UpdateColumn
from hayase.tables.events import events_of
from hayase.tables.jq import Jq
from hayase.tables.payloads import UnfitParameter
from hayase.tables.rule_payloads import EvaluatedUpdate, Keys, payloads
from hayase.tables.rules import RuleSet

__all__ = ["Pass", "RulesMapSide", "Target"]


class Target(NamedTuple):
    """Where an update writes: the place of its column, and which of the updates on that column it is."""

    place: int
    number: int


@dataclass(frozen=True, slots=True)
class RulesMapSide:
    """The rules of one table for the events of one stream, the `number`th that feeds it."""

    table: TableDeclaration
    stream: StreamDeclaration
    id: str
    number: int
    rules: RuleSet
    targets: tuple[Target, ...]

    def updates(self) -> Iterator[tuple[object, ...]]:
        """What the events of the stream cause, as plain facts: the column first."""
        for branch in self.rules.branches(self.stream.name):
            for table in branch.tables:
                for each in table.updates:
                    within = self.targets[each.number].number
                    yield each.column, within, branch.condition, each.key, each.value, each.method

    def _events(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The records as rules see them; a hidden event time also under the name that the log has for it, as it was once."""
        events = batch.select([each for each in batch.schema.names if each != OFFSET])
        if not self.stream.hides_time or EVENT_TIME in events.schema.names:
            return events
        return events.append_column(EVENT_TIME, events.column(self.stream.time))

    def __call__(self, batch: pa.RecordBatch) -> Mapped:
        outcome = payloads(self.rules, self.stream.name, events_of(self._events(batch)), _jq(os.getpid()))
        made = Pass(self.table, self.targets, event_times(batch, self.stream), batch.column(self.id), self.number)
        for each in outcome.refusals:
            made.refuse(each.event, f"{each.rule}, {each.program}: {each.reason}")
        return made.mapped(outcome.updates)


@dataclass(slots=True)
class _Alike:
    """Operations of rules that concern the same events and keys, one each: columns of deltas beside one another."""

    events: Sequence[int]
    keys: Sequence[bytes] | pa.Array
    columns: list[UpdateColumn]


class Pass:
    """Updates on their way to the entries of a table. `targets` says where each update writes, by its number; times and
    ids are those of the events, `number` that of the stream that they come from."""

    def __init__(
        self, table: TableDeclaration, targets: Sequence[Target], times: np.ndarray, ids: pa.Array, number: int
    ):
        self.targets = targets
        self.types: list[ColumnType[Any]] = [TYPES[kind]() for _, kind in table.columns]
        self.reasons: dict[int, list[str]] = {}
        self.versions = _Versions(times, ids, number)

    def mapped(self, given: Sequence[EvaluatedUpdate]) -> Mapped:
        """The entries, and all that was refused."""
        updates = [each for each in given if len(each.events)]
        groups = self.alike(updates)
        rows = self.singly(updates) if groups is None else self.together(groups)
        broken = sorted(self.reasons)
        refused = Refusals(np.array(broken, np.int64), ["; ".join(self.reasons[at]) for at in broken])
        return Mapped(rows, np.empty(0, np.int64), refused)

    def alike(self, updates: Sequence[EvaluatedUpdate]) -> list[_Alike] | None:
        """The updates in groups, if no two groups concern one event and nothing is wrong with any of them."""
        groups: dict[tuple[int, tuple[str, ...]], _Alike] = {}
        for each in updates:
            update = each.update
            place, within = self.targets[update.number]
            if set(each.numbers) != {update.number}:
                return None
            deltas: Any = self.types[place].column(update.method, each.parameters)
            if deltas is None:
                deltas = self.types[place].payloads(update.method, each.parameters)
                if UnfitParameter in set(map(type, deltas)):
                    return None
            group = groups.get((id(each.events), update.key))
            if group is None:
                keys: Any = None
                if isinstance(each.keys, Keys) and len(each.keys.columns) == 1:
                    keys = entries.text_keys(each.keys.columns[0])
                if keys is None:
                    keys = entries.many_key_bytes(list(each.keys))
                    if UnfitParameter in set(map(type, keys)):
                        return None
                group = groups[id(each.events), update.key] = _Alike(each.events, keys, [])
            group.columns.append(UpdateColumn(place, within, deltas))
        count = sum(len(each.events) for each in groups.values())
        if len(groups) > 1 and len({event for each in groups.values() for event in each.events}) < count:
            return None
        return list(groups.values()) if self.versions.are_sound() else None

    def together(self, groups: Sequence[_Alike]) -> pa.RecordBatch:
        packed = [
            entries.pack_columns(each.keys, self.versions.column().take(pa.array(each.events)), each.columns)
            for each in groups
        ]
        return pa.concat_batches(packed) if packed else _NONE

    def singly(self, updates: Sequence[EvaluatedUpdate]) -> pa.RecordBatch:
        """The same, event by event; those that something is wrong with are refused, whatever it is."""
        found: dict[tuple[int, bytes], list[tuple[int, bytes, bytes]]] = {}
        for evaluated in updates:
            update = evaluated.update
            place, within = self.targets[update.number]
            deltas = self.types[place].payloads(update.method, evaluated.parameters)
            keys = entries.many_key_bytes(list(evaluated.keys))
            for event, key, number, delta in zip(evaluated.events, keys, evaluated.numbers, deltas, strict=True):
                wrong = next((each for each in (key, delta) if isinstance(each, UnfitParameter)), None)
                wrong = wrong or self.versions.mistake(event)
                if wrong is not None:
                    self.refuse(event, f"{evaluated.rule}: {wrong}")
                    continue
                assert isinstance(key, bytes)
                assert isinstance(delta, bytes)
                bytes_of_number = versions.update_number_bytes(within + number - update.number)
                found.setdefault((event, key), []).append((place, bytes_of_number, delta))
        made = [self.versions.of(event) for event, _ in found]
        return entries.pack([key for _, key in found], made, list(found.values()))

    def refuse(self, event: int, reason: str) -> None:
        self.reasons.setdefault(event, []).append(reason)


class _Versions:
    """The versions of a batch's events, with the number of their stream."""

    def __init__(self, times: np.ndarray, ids: pa.Array, number: int):
        self._times, self._ids, self._number = times, ids, number
        self._all: pa.Array | None = None

    def are_sound(self) -> bool:
        """Whether every event has one."""
        try:
            if self._all is None:
                made = versions.many_to_bytes(self._times, self._ids, self._number)
                self._all = pa.array(made, pa.large_binary())
        except UnfitParameter:
            return False
        return True

    def column(self) -> pa.Array:
        assert self._all is not None
        return self._all

    def mistake(self, event: int) -> UnfitParameter | None:
        """Why an event has none."""
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
    """This process's own: one that was forked must not share its parent's child."""
    return Jq()
