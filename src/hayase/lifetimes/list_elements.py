"""The operator of UNNEST: every tuple once for each element of a list, with the lifetime of the tuple.

- Cost: constant per element. A tuple without elements gives none.
- Elements are numbered; a tuple whose end is not known yet is kept with the numbers of its elements, so that they end with it.

State: "open" (the first number and the number of elements of each open tuple), "registers" (the next number).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.keys import raw_values
from hayase.lifetimes.plans import Unnest
from hayase.lifetimes.relations import OPEN, Delta, Span, Step
from hayase.lifetimes.state_registers import Registers
from hayase.lifetimes.tuples import TupleStore

__all__ = ["UnnestOperator"]

_FIRST, _COUNT, _NEXT = "first", "count", "next"
_NUMBERS = pa.schema([(_FIRST, pa.int64()), (_COUNT, pa.int64())])


class UnnestOperator:
    """The operator of `plans.Unnest` (`relations.Operator`)."""

    def __init__(self, node: Unnest) -> None:
        self.schema = node.schema
        self._list = node.list
        self._open = TupleStore(_NUMBERS, "open")
        self._registers = Registers((_NEXT,), (0,))

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        """Return the elements of the tuples that appear, and the ends of those whose tuples end."""
        (delta,) = inputs
        self._open.release(self._open.settle(span.since)[1])
        lists = delta.rows.column(self._list)
        counts = raw_values(pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64()), np.int64)
        tuples = np.repeat(np.arange(len(delta)), counts)
        first = self._registers[_NEXT]
        self._registers[_NEXT] += len(tuples)
        columns = [*delta.rows.take(pa.array(tuples)).columns, lists.flatten().cast(self.schema.types[-1])]
        rows = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        closed, closed_end = self._closed(delta, span)
        opened = np.flatnonzero((delta.end == OPEN) & (counts > 0))
        if len(opened):
            numbers = [pa.array((first + np.cumsum(counts) - counts)[opened]), pa.array(counts[opened])]
            batch = pa.RecordBatch.from_arrays(numbers, schema=_NUMBERS)
            self._open.add(batch, delta.start[opened], delta.end[opened], delta.id[opened])
        ids = np.arange(first, first + len(tuples))
        state = [*self._open.changes(), *self._registers.changes(span.version)]
        return Step(Delta(rows, delta.start[tuples], delta.end[tuples], ids, closed, closed_end), state)

    def _closed(self, delta: Delta, span: Span) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers and ends of elements whose tuples end."""
        slots = self._open.close(delta.closed, delta.closed_end)
        numbers, ends = self._open.take(slots), self._open.end[slots]
        self._open.release(self._open.expire(span.clock))
        first, counts = (raw_values(numbers.column(name), np.int64) for name in (_FIRST, _COUNT))
        places = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(first, counts) + places, np.repeat(ends, counts)

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Load open tuples, or the next number."""
        if section == self._registers.section:
            self._registers.restore(section, rows, version)
        else:
            self._open.restore(rows, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the rows that are still needed."""
        if section == self._registers.section:
            return self._registers.live(section, rows, version)
        return self._open.live(rows, version)

    def size(self, section: str) -> int:
        """Return the number of live tuples of a section."""
        return self._registers.size(section) if section == self._registers.section else self._open.size()
