"""The map side of a table that is fed by a job: a tuple is a key and, for some columns, the parameter of their first method.

The tuples are in a stream of the job, with the time of their input. They have no event id; the offset in that stream identifies
an update.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration, TableDeclaration
from hayase.core.reasons import ReasonKind
from hayase.core.stages import OFFSET, Mapped, Refusals
from hayase.streams import event_times
from hayase.tables.rule_payloads import EvaluatedUpdate
from hayase.tables.rules import Update
from hayase.tables.rules_map_side import EntryBuilder, Target

__all__ = ["EmittedMapSide"]


@dataclass(frozen=True, slots=True)
class EmittedMapSide:
    """The tuples for one table in a stream of a job; `number` is the stream's position among those that feed the table."""

    table: TableDeclaration
    stream: StreamDeclaration
    number: int

    def updates(self) -> Iterator[tuple[object, ...]]:
        """Yield the updates that tuples may cause as plain tuples, the column first, to compare definitions."""
        yield from self.table.columns

    @property
    def id(self) -> str:
        """The column that identifies a tuple."""
        return OFFSET

    def __call__(self, batch: pa.RecordBatch) -> Mapped:
        mine = np.flatnonzero(pc.equal(batch.column("group"), self.table.name).to_numpy(zero_copy_only=False))
        own = batch.take(pa.array(mine))
        targets = [Target(place, 0) for place in range(len(self.table.columns))]
        times, ids = event_times(own, self.stream), own.column(OFFSET)
        builder = EntryBuilder(self.table, targets, times, ids, self.number)
        mapped = builder.mapped(self._updates(own, builder))
        return Mapped(mapped.rows, mapped.input_rows, Refusals(mine[mapped.refused.rows], mapped.refused.reasons))

    def _updates(self, own: pa.RecordBatch, builder: EntryBuilder) -> list[EvaluatedUpdate]:
        keys, values = (_documents(own.column(name)) for name in ("key", "value"))
        parts = len(self.table.key)
        events: dict[str, list[int]] = {name: [] for name in self.table.column_names}
        parameters: dict[str, list[Any]] = {name: [] for name in self.table.column_names}
        row_keys = [tuple(key) if isinstance(key, list) else (key,) for key in keys]
        for at, (key, value) in enumerate(zip(row_keys, values, strict=True)):
            if len(key) != parts:
                builder.refuse(
                    at,
                    ReasonKind.SCHEMA,
                    f'a key of {len(key)} parts for table "{self.table.name}", whose key has {parts}',
                )
            elif not isinstance(value, dict) or not value.keys() <= events.keys():
                shown = ", ".join(value) if isinstance(value, dict) else repr(value)
                names = ", ".join(events)
                builder.refuse(
                    at,
                    ReasonKind.SCHEMA,
                    f'table "{self.table.name}" takes {{column: parameter}}, of {names}; not {shown[:200]}',
                )
            else:
                for name, parameter in value.items():
                    events[name].append(at)
                    parameters[name].append(parameter)
        updates = []
        shared: dict[tuple[int, ...], list[int]] = {}
        for number, name in enumerate(self.table.column_names):
            positions = shared.setdefault(tuple(events[name]), events[name])
            update = Update(number, ("key",), name, ".")
            own_keys = [row_keys[at] for at in positions]
            updates.append(
                EvaluatedUpdate(
                    self.table.name, update, positions, own_keys, parameters[name], [number] * len(positions)
                )
            )
        return updates


def _documents(column: pa.Array) -> list[Any]:
    """Decode a column of JSON texts."""
    return list(orjson.loads(b"[" + b",".join(column.cast(pa.binary()).to_pylist()) + b"]"))
