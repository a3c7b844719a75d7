"""The output of a job's stage: tuples with their time and, if there are several groups, the name of their group.

In a loop a tuple has the number of its rounds; after the last round it goes to the job's stream.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration
from hayase.core.schemas import ddl
from hayase.jobs.emitted_tuples import Target
from hayase.jobs.tuples import Shape

__all__ = ["GROUP", "ROUND", "TIME_COLUMN", "Outlet"]

GROUP, ROUND, TIME_COLUMN = "group", "round", "time"
_TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Outlet:
    """The output of tuples of one shape for some targets. With `groups`, a column names the target; with `counts`, a column has the
    number of rounds, at most `rounds`; `exit` is the target of tuples that leave the loop."""

    shape: Shape
    targets: tuple[Target, ...]
    groups: bool = False
    counts: bool = False
    rounds: int | None = None
    exit: int | None = None

    @property
    def schema(self) -> pa.Schema:
        """The schema of the stream."""
        fields = [pa.field(GROUP, pa.string())] if self.groups else []
        fields += self.shape.nullable_fields
        fields += [pa.field(ROUND, pa.int32())] if self.counts else []
        return pa.schema([*fields, pa.field(TIME_COLUMN, _TIME)])

    def stream(self, name: str, slack: int = 0, ordered: bool = True) -> StreamDeclaration:
        """Return the declaration of the stream."""
        return StreamDeclaration(name, ddl(self.schema), TIME_COLUMN, slack=slack, max_ahead=None, ordered=ordered)

    def rows(
        self, columns: Sequence[pa.Array], target: np.ndarray, time: np.ndarray, round: np.ndarray | None = None
    ) -> pa.RecordBatch:
        """Return the rows of the stream for some tuples; `round` is the round of their input."""
        rounds = np.zeros(len(time), np.int32) if round is None else round.astype(np.int32, copy=True)
        if self.counts:
            back = np.array([destination.back for destination in self.targets], np.bool_)[target]
            rounds[back] += 1
            if self.rounds is not None and self.exit is not None:
                target = np.where(back & (rounds > self.rounds), self.exit, target)
        arrays = list(columns)
        if self.groups:
            names = pa.array([destination.name for destination in self.targets], pa.string())
            arrays.insert(0, names.take(pa.array(target)))
        if self.counts:
            arrays.append(pa.array(rounds))
        return pa.RecordBatch.from_arrays([*arrays, pa.array(time, pa.int64()).cast(_TIME)], schema=self.schema)

    def in_time_order(
        self, columns: Sequence[pa.Array], target: np.ndarray, time: np.ndarray, round: np.ndarray | None = None
    ) -> pa.RecordBatch:
        """Return `rows`, ordered by time."""
        rows = self.rows(columns, target, time, round)
        if bool(np.all(time[1:] >= time[:-1])):
            return rows
        return rows.take(pa.array(np.argsort(time, kind="stable")))
