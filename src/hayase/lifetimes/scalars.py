"""Operators for selection, projection and union all. They do not change lifetimes or holders and have no state."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from hayase.core.expressions import Projection
from hayase.core.scratch import scratch
from hayase.core.stages import FailedRows, Stateless
from hayase.lifetimes.leaves import take_rows
from hayase.lifetimes.plans import Scalar, UnionAll
from hayase.lifetimes.relations import Delta, Span, Step

__all__ = ["ScalarOperator", "UnionOperator"]


class ScalarOperator(Stateless):
    """The operator of `plans.Scalar`. A row for which an expression raises an error is refused; its later end is ignored."""

    def __init__(self, node: Scalar) -> None:
        self.schema = node.schema
        self._projection = Projection(node.columns, node.where, node.schema)
        plain = [_plain(sql) for _, sql in node.columns]
        self._chosen = [name for name in plain if name is not None]
        types = [node.child.schema.field(name).type for name in self._chosen]
        self.only_selects = node.where is None and types == self.schema.types
        """Whether the result has all rows of the child, with some of its columns under other names."""

    def selected(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of the child with the columns of the result, if it `only_selects`."""
        return pa.RecordBatch.from_arrays([rows.column(name) for name in self._chosen], schema=self.schema)

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        """Select and project the child's delta."""
        (child,) = inputs
        if self.only_selects:
            return Step(replace(child, rows=self.selected(child.rows)))
        mapped = self._projection(child.rows)
        input_rows, refused = mapped.input_rows, mapped.refused
        if len(input_rows) == len(child):
            delta = Delta(mapped.rows, child.start, child.end, child.id, child.closed, child.closed_end)
        else:
            delta = Delta(
                mapped.rows,
                child.start[input_rows],
                child.end[input_rows],
                child.id[input_rows],
                child.closed,
                child.closed_end,
            )
        if not len(refused):
            return Step(delta)
        lost = FailedRows(child.rows.take(pa.array(refused.rows)), refused.reasons, child.id[refused.rows])
        return Step(delta, (), (lost,))


class UnionOperator(Stateless):
    """The operator of `plans.UnionAll`. With n children, tuple k of child i gets the id n * k + i."""

    def __init__(self, node: UnionAll) -> None:
        self.schema = node.schema

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        """Merge the deltas of the children by time."""
        count = len(inputs)
        if count == 1:
            return Step(inputs[0])
        merged, by = inputs[0], count
        for number, delta in enumerate(inputs[1:], start=1):
            merged, by = self._merged(merged, by, delta, count, number), 1
        return Step(merged)

    def _merged(self, first: Delta, by: int, second: Delta, factor: int, number: int) -> Delta:
        """Merge two deltas by time. Ids of the first are multiplied by `by`, those of the second by `factor`, plus
        `number`."""
        from hayase.lifetimes import scalars_loops

        count, ended = len(first) + len(second), len(first.closed) + len(second.closed)
        start, end, id = scratch(3, count)
        closed_end, closed = scratch(2, ended)
        order = scratch(count, kind=np.int32)
        scalars_loops.merge_starts(
            first.start, first.end, first.id, by, second.start, second.end, second.id, factor, number,
            start, end, id, order,
        )  # fmt: skip
        scalars_loops.merge_ends(
            first.closed_end, first.closed, by, second.closed_end, second.closed, factor, number, closed_end, closed
        )
        rows = pa.concat_batches([delta.rows.rename_columns(self.schema.names) for delta in (first, second)])
        return Delta(take_rows(rows, order), start, end, id, closed, closed_end)


def _plain(sql: str) -> str | None:
    """Return the name of the column if an expression is just a quoted column, else None."""
    return sql[1:-1].replace('""', '"') if re.fullmatch(r'"(?:[^"]|"")+"', sql) else None
