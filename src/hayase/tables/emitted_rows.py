"""The map side of a table for what jobs emit to it: a key, and for some columns the parameter of their first method.

The tuples lie in a stream of the job, with the time of what they were made from. There is no event's id: which record of that
stream it is says which update it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.declarations import StreamDeclaration, TableDeclaration
from hayase.core.stages import OFFSET, Mapped, Refusals
from hayase.streams import event_times
from hayase.tables.rule_payloads import EvaluatedUpdate
from hayase.tables.rules import Update
from hayase.tables.rules_map_side import Pass, Target

__all__ = ["EmittedMapSide"]


@dataclass(frozen=True, slots=True)
class EmittedMapSide:
    """The tuples in a stream of a job that are for one table; the stream is the `number`th that feeds it."""

    table: TableDeclaration
    stream: StreamDeclaration
    number: int

    def updates(self) -> Iterator[tuple[object, ...]]:
        """What the tuples may cause, as plain facts: the column first."""
        yield from self.table.columns

    @property
    def id(self) -> str:
        """The column that tells the tuples apart."""
        return OFFSET

    def __call__(self, batch: pa.RecordBatch) -> Mapped:
        mine = np.flatnonzero(pc.equal(batch.column("group"), self.table.name).to_numpy(zero_copy_only=False))
        own = batch.take(pa.array(mine))
        targets = [Target(place, 0) for place in range(len(self.table.columns))]
        times, ids = event_times(own, self.stream), own.column(OFFSET)
        made = Pass(self.table, targets, times, ids, self.number)
        mapped = made.mapped(self._updates(own, made))
        return Mapped(mapped.rows, mapped.origin, Refusals(mine[mapped.refused.rows], mapped.refused.reasons))

    def _updates(self, own: pa.RecordBatch, made: Pass) -> list[EvaluatedUpdate]:
        keys, values = (_documents(own.column(name)) for name in ("key", "value"))
        parts = len(self.table.key)
        events: dict[str, list[int]] = {name: [] for name in self.table.column_names}
        parameters: dict[str, list[Any]] = {name: [] for name in self.table.column_names}
        whole = [tuple(key) if isinstance(key, list) else (key,) for key in keys]
        for at, (key, value) in enumerate(zip(whole, values, strict=True)):
            if len(key) != parts:
                made.refuse(at, f'a key of {len(key)} parts for table "{self.table.name}", whose key has {parts}')
            elif not isinstance(value, dict) or not value.keys() <= events.keys():
                given = ", ".join(value) if isinstance(value, dict) else repr(value)
                names = ", ".join(events)
                made.refuse(at, f'table "{self.table.name}" takes {{column: parameter}}, of {names}; not {given[:200]}')
            else:
                for name, parameter in value.items():
                    events[name].append(at)
                    parameters[name].append(parameter)
        found = []
        shared: dict[tuple[int, ...], list[int]] = {}
        for number, name in enumerate(self.table.column_names):
            who = shared.setdefault(tuple(events[name]), events[name])
            update = Update(number, ("key",), name, ".")
            mine = [whole[at] for at in who]
            found.append(EvaluatedUpdate(self.table.name, update, who, mine, parameters[name], [number] * len(who)))
        return found


def _documents(column: pa.Array) -> list[Any]:
    """The values of JSON texts."""
    return list(orjson.loads(b"[" + b",".join(column.cast(pa.binary()).to_pylist()) + b"]"))
