"""The kernels of reduces: group the tuples of a firing by key and emit what the function or the aggregates return per group.

They have no state between firings. If the function fails on a group, all its tuples are refused; the reason of the first one
contains the traceback.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.keys import raw_values
from hayase.core.reasons import Reason, ReasonKind
from hayase.core.stages import TIME, FailedRows, Outcome, Refusals, Stateless
from hayase.jobs.emitted_tuples import Emission, unfit_for_table
from hayase.jobs.job_map_side import ROUNDS
from hayase.jobs.job_outputs import Outlet
from hayase.jobs.key_groups import Groups, grouped
from hayase.jobs.reduce_aggregates import Aggregates
from hayase.jobs.step_functions import Step
from hayase.jobs.tuples import Shape, key_column, value_column

__all__ = ["AggregateKernel", "Firing", "ReduceKernel", "ReduceSpec", "aggregate_outcome", "refusals_of"]


@dataclass(frozen=True, slots=True)
class ReduceSpec:
    """The specification of a reduce: its function, the shape and order of its input, and its output."""

    step: Step
    shape: Shape
    outlet: Outlet
    batches: bool = False
    by_time: bool = False

    def keys(self, rows: pa.RecordBatch, groups: Groups) -> list[Any]:
        """Return the keys of groups as the function sees them."""
        names = list(self.shape.key)
        return self.shape.keys(rows.select(names).take(pa.array(groups.firsts)))

    def emission(
        self, rows: pa.RecordBatch, groups: Groups, keys: Sequence[Any], more: Sequence[Sequence[Any]] = ()
    ) -> Emission:
        """Call the function for each group; `more` are further arguments, one value per group each."""
        ordered = rows.select(list(self.shape.rest)).take(pa.array(groups.order))
        bounds = zip(groups.starts.tolist(), groups.ends.tolist())
        if self.batches:
            slices = (ordered.slice(start, stop - start) for start, stop in bounds)
            return self.step.on_groups(zip(keys, slices, *more))
        group_values = self.shape.values(ordered)
        return self.step.call_each(zip(keys, (group_values[start:stop] for start, stop in bounds), *more))


@dataclass(frozen=True, slots=True)
class Firing:
    """The rows of all inputs, one input after the other, and where each input ends."""

    rows: pa.RecordBatch
    time: np.ndarray
    round: np.ndarray | None
    ends: np.ndarray

    @classmethod
    def of(cls, inputs: Sequence[pa.RecordBatch]) -> Firing:
        whole = inputs[0] if len(inputs) == 1 else pa.concat_batches(list(inputs))
        counts = ROUNDS in whole.schema.names
        rounds = whole.column(ROUNDS).to_numpy(zero_copy_only=False) if counts else None
        ends = np.cumsum([batch.num_rows for batch in inputs])
        return cls(whole, raw_values(whole.column(TIME), np.int64), rounds, ends)

    def groups(self, shape: Shape, by_time: bool) -> Groups:
        """Group the tuples by key. In a loop, tuples of different rounds are in different groups, so that the time of their arrival
        does not matter."""
        keys = [self.rows.column(name) for name in (*shape.key, *([] if self.round is None else [ROUNDS]))]
        return grouped(keys, self.rows.num_rows, self.time if by_time else None)


def refusals_of(failed: dict[int, Reason], groups: Groups, ends: np.ndarray) -> list[Refusals]:
    """Return the refusals of the tuples of failed groups, per input; the first tuple of a group has the full reason."""
    if not failed:
        return []
    reasons: dict[int, Reason] = {}
    for group, reason in failed.items():
        rows = np.sort(groups.rows(group)).tolist()
        short = reason._replace(text=f"refused with its key: {reason.first_line}")
        reasons |= dict.fromkeys(rows, short)
        reasons[rows[0]] = reason
    rows_refused = np.array(sorted(reasons), np.int64)
    refusals = []
    for start, stop in zip(np.concatenate(([0], ends[:-1])), ends):
        mine = rows_refused[(rows_refused >= start) & (rows_refused < stop)]
        refusals.append(Refusals(mine - start, [reasons[row] for row in mine.tolist()]))
    return refusals


class ReduceKernel(Stateless):
    """The kernel of a reduce with a function."""

    def __init__(self, reducing: ReduceSpec, bucket: int = 0, buckets: int = 1) -> None:
        self._reducing = reducing

    def process(self, inputs: Sequence[pa.RecordBatch], since: int, clock: int, version: int) -> Outcome:
        """Reduce the tuples of a firing."""
        reducing, firing = self._reducing, Firing.of(inputs)
        groups = firing.groups(reducing.shape, reducing.by_time)
        emission = reducing.emission(firing.rows, groups, reducing.keys(firing.rows, groups))
        rounds = None if firing.round is None else groups.greatest(firing.round)[emission.call]
        time = groups.greatest(firing.time)[emission.call]
        rows = reducing.outlet.in_time_order(emission.columns, emission.target, time, rounds)
        return Outcome(rows, refusals_of(emission.failed, groups, firing.ends))


class AggregateKernel(Stateless):
    """The kernel of a reduce by aggregates. Its inputs are combined rows, or tuples if the aggregates need the order of time."""

    def __init__(
        self, aggregates: Aggregates, outlet: Outlet, by_time: bool = False, bucket: int = 0, buckets: int = 1
    ) -> None:
        self._aggregates, self._outlet, self._by_time = aggregates, outlet, by_time

    def process(self, inputs: Sequence[pa.RecordBatch], since: int, clock: int, version: int) -> Outcome:
        """Fold the partials of each key and emit the results."""
        firing = Firing.of(inputs)
        groups = firing.groups(self._aggregates.shape, self._by_time)
        if self._by_time:
            single = Groups.singles(len(groups))
            columns, lost = self._aggregates.lowered(self._aggregates.combined(firing.rows, groups), single)
        else:
            columns, lost = self._aggregates.lowered(firing.rows, groups)
        time = groups.greatest(firing.time)
        rounds = None if firing.round is None else groups.greatest(firing.round)
        return aggregate_outcome(self._aggregates, self._outlet, columns, lost, time, rounds)


def aggregate_outcome(
    aggregates: Aggregates,
    outlet: Outlet,
    columns: Sequence[pa.Array],
    lost: dict[int, Reason],
    time: np.ndarray,
    rounds: np.ndarray | None,
) -> Outcome:
    """Return the outcome of aggregate results; results that are lost or that a table does not take are spoiled."""
    rows = pa.RecordBatch.from_arrays(list(columns), schema=aggregates.result.schema)
    spoiled = []
    table = outlet.targets[0].table
    if table is not None:
        columns, unfit = _for_table(rows, aggregates.result, outlet)
        lost = unfit | lost
    if lost:
        gone = np.array(sorted(lost), np.int64)
        spoiled.append(FailedRows(rows.take(pa.array(gone)), [lost[at] for at in gone.tolist()]))
        kept = np.delete(np.arange(len(time)), gone)
        columns = [column.take(pa.array(kept)) for column in columns]
        time, rounds = time[kept], None if rounds is None else rounds[kept]
    written = outlet.in_time_order(columns, np.zeros(len(time), np.int64), time, rounds)
    return Outcome(written, (), (), spoiled)


def _for_table(rows: pa.RecordBatch, shape: Shape, outlet: Outlet) -> tuple[list[pa.Array], dict[int, Reason]]:
    """Convert results to updates of a table: plain tuples whose value is {column: parameter}."""
    table = outlet.targets[0].table
    keys, updates = shape.keys(rows), shape.values(rows)
    unfit = {at: unfit_for_table(pair, table) for at, pair in enumerate(zip(keys, updates))}
    key_texts, no_keys = key_column(keys)
    value_texts, no_values = value_column(updates)
    texts = {**no_values, **no_keys, **{at: reason for at, reason in unfit.items() if reason}}
    return [key_texts, value_texts], {at: Reason(ReasonKind.SCHEMA, text) for at, text in texts.items()}
