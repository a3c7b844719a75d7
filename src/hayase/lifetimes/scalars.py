"""Selection, projection and union: lifetimes pass through untouched, and so do holders. No state."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from hayase.core.expressions import Projection
from hayase.core.scratch import scratch
from hayase.core.stages import Spoiled, Stateless
from hayase.lifetimes.leaves import chosen
from hayase.lifetimes.plans import Scalar, UnionAll
from hayase.lifetimes.relations import Delta, Span, Step

__all__ = ["ScalarOperator", "UnionOperator"]


class ScalarOperator(Stateless):
    """Rows that satisfy a condition, as expressions. A row that raises is spoiled; its end, if it comes, is nobody's."""

    def __init__(self, node: Scalar) -> None:
        self.schema = node.schema
        self._projection = Projection(node.columns, node.where, node.schema)
        plain = [_plain(sql) for _, sql in node.columns] if node.where is None else [None]
        self._chosen = [each for each in plain if each is not None] if None not in plain else None

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        """The child's delta, selected and projected."""
        (given,) = inputs
        if self._chosen is not None:  # other names for the same columns
            columns = [given.rows.column(each) for each in self._chosen]
            if [each.type for each in columns] == self.schema.types:
                return Step(replace(given, rows=pa.RecordBatch.from_arrays(columns, schema=self.schema)))
        mapped = self._projection(given.rows)
        origin, refused = mapped.origin, mapped.refused
        if len(origin) == len(given):
            delta = Delta(mapped.rows, given.start, given.end, given.id, given.closed, given.closed_end)
        else:
            delta = Delta(
                mapped.rows, given.start[origin], given.end[origin], given.id[origin], given.closed, given.closed_end
            )
        if not len(refused):
            return Step(delta)
        lost = Spoiled(given.rows.take(pa.array(refused.rows)), refused.reasons, given.id[refused.rows])
        return Step(delta, (), (lost,))


class UnionOperator(Stateless):
    """All rows of all children. Of n children the i-th's tuple k is named n * k + i."""

    def __init__(self, node: UnionAll) -> None:
        self.schema = node.schema

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        """The children's deltas, merged by time."""
        count = len(inputs)
        if count == 1:
            return Step(inputs[0])
        merged, by = inputs[0], count
        for number, each in enumerate(inputs[1:], start=1):
            merged, by = self._merged(merged, by, each, count, number), 1
        return Step(merged)

    def _merged(self, first: Delta, by: int, second: Delta, factor: int, number: int) -> Delta:
        """Two deltas by time. Ids of the first are multiplied by one number, those of the second by another and added
        to a third."""
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
        rows = pa.concat_batches([each.rows.rename_columns(self.schema.names) for each in (first, second)])
        return Delta(chosen(rows, order), start, end, id, closed, closed_end)


def _plain(sql: str) -> str | None:
    """The column's name, if an expression is nothing but a quoted one."""
    return sql[1:-1].replace('""', '"') if re.fullmatch(r'"(?:[^"]|"")+"', sql) else None
