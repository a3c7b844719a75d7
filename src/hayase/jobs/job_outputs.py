"""What a stage writes: tuples with their time and, where there are several, the group that each is for.

In a loop a tuple carries how often it has gone round. One that has done so often enough leaves for the job's stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hayase.core.declarations import StreamDeclaration
from hayase.core.schemas import ddl
from hayase.jobs.emitted_tuples import Target
from hayase.jobs.tuples import Shape

__all__ = ["GROUP", "ROUND", "TIME_COLUMN", "Outlet"]

GROUP, ROUND, TIME_COLUMN = "group", "round", "time"
_TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Outlet:
    """The tuples of a shape for some targets. With `groups` there is a column that names them; with `rounds` one that
    counts, and `exit` is the target of those that leave the loop, if any do."""

    shape: Shape
    targets: tuple[Target, ...]
    groups: bool = False
    counts: bool = False
    rounds: int | None = None
    exit: int | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the stream."""
        fields = [pa.field(GROUP, pa.string())] if self.groups else []
        fields += [pa.field(each.name, each.type) for each in self.shape.schema]
        fields += [pa.field(ROUND, pa.int32())] if self.counts else []
        return pa.schema([*fields, pa.field(TIME_COLUMN, _TIME)])

    def stream(self, name: str, slack: int = 0, ordered: bool = True) -> StreamDeclaration:
        """The stream that holds them."""
        return StreamDeclaration(name, ddl(self.schema), TIME_COLUMN, slack=slack, max_ahead=None, ordered=ordered)

    def rows(
        self, columns: Sequence[pa.Array], target: np.ndarray, time: np.ndarray, round: np.ndarray | None = None
    ) -> pa.RecordBatch:
        """Tuples as they are written; `round` is that of what they were made from."""
        rounds = np.zeros(len(time), np.int32) if round is None else round.astype(np.int32, copy=True)
        if self.counts:
            back = np.array([each.back for each in self.targets], np.bool_)[target]
            rounds[back] += 1
            if self.rounds is not None and self.exit is not None:
                target = np.where(back & (rounds > self.rounds), self.exit, target)
        made = list(columns)
        if self.groups:
            names = pa.array([each.name for each in self.targets], pa.string())
            made.insert(0, names.take(pa.array(target)))
        if self.counts:
            made.append(pa.array(rounds))
        return pa.RecordBatch.from_arrays([*made, pa.array(time, pa.int64()).cast(_TIME)], schema=self.schema)

    def in_time_order(
        self, columns: Sequence[pa.Array], target: np.ndarray, time: np.ndarray, round: np.ndarray | None = None
    ) -> pa.RecordBatch:
        """The same, older tuples first."""
        rows = self.rows(columns, target, time, round)
        if bool(np.all(time[1:] >= time[:-1])):
            return rows
        return rows.take(pa.array(np.argsort(time, kind="stable")))
