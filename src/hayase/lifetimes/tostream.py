"""Relation to stream: the rows that appear, the rows that go, or all rows at certain instants.

A record is told as a tuple that starts at its time and has no end. Istream and Dstream compare with the instant before:
their child must not tell a row that stays as one that goes and one that comes; the plan puts a `coalesce` below them
where that could be. Rstream sees to it itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hayase.core.stages import Stateless
from hayase.lifetimes.multisets import Alive, MultisetOperator, Swept
from hayase.lifetimes.plans import Multiset, ToStream
from hayase.lifetimes.registers import Registers
from hayase.lifetimes.relations import OPEN, Delta, Span, Step
from hayase.lifetimes.tuples import TupleStore

__all__ = ["ToStreamOperator"]

_NEXT, _EMITTED = "next", "emitted"


class _Istream(Stateless):
    """The starts of a relation. No state."""

    def advance(self, given: Delta, span: Span) -> Step:
        return Step(Delta(given.rows, given.start, np.full(len(given), OPEN), given.id))


class _Dstream:
    """The ends of a relation. What is alive is kept, for its values."""

    def __init__(self, node: ToStream) -> None:
        self._alive = TupleStore(node.schema, "alive")

    def advance(self, given: Delta, span: Span) -> Step:
        alive = self._alive
        alive.release(alive.settle(span.since)[1])
        alive.add(given.rows, given.start, given.end, given.id)
        alive.close(given.closed, given.closed_end)
        gone = alive.expire(span.clock)
        delta = Delta(alive.take(gone), alive.end[gone], np.full(len(gone), OPEN), alive.id[gone])
        alive.release(gone)
        return Step(delta, alive.changes())

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        self._alive.restore(rows, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        return self._alive.live(rows, version)

    def size(self, section: str) -> int:
        return self._alive.size()


class _Rstream:
    """The snapshots of a relation at the instants of a query, or at the multiples of a job's slide. Costs its output."""

    def __init__(self, node: ToStream) -> None:
        self._every = node.every
        self._relation = MultisetOperator(Multiset("coalesce", (node.child,), node.schema))
        self._registers = Registers((_NEXT,), (0,), _EMITTED)

    def advance(self, given: Delta, instants: Sequence[np.ndarray], span: Span) -> Step:
        self._relation.settle(span.since)
        earlier = self._relation.alive()
        swept = self._relation.sweep([given], span)
        values, times = _snapshots(earlier, swept, span, self._every or np.unique(np.concatenate(instants)))
        first = self._registers[_NEXT]
        self._registers[_NEXT] = first + len(values)
        rows, ids = self._relation.rows(values), np.arange(first, first + len(values))
        state = [*swept.state, *self._registers.changes(span.version)]
        return Step(Delta(rows, times, np.full(len(times), OPEN), ids), state)

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        (self._registers if section == _EMITTED else self._relation).restore(section, rows, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        return (self._registers if section == _EMITTED else self._relation).live(section, rows, version)

    def size(self, section: str) -> int:
        return (self._registers if section == _EMITTED else self._relation).size(section)


class ToStreamOperator:
    """A `plans.ToStream` (`relations.Operator`)."""

    def __init__(self, node: ToStream) -> None:
        self.schema = node.schema
        self._inner: _Istream | _Dstream | _Rstream
        if node.kind == "istream":
            self._inner = _Istream()
        else:
            self._inner = _Dstream(node) if node.kind == "dstream" else _Rstream(node)

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        """The records of a step, in time order."""
        given, *instants = inputs
        if isinstance(self._inner, _Rstream):
            return self._inner.advance(given, [each.start for each in instants], span)
        return self._inner.advance(given, span)

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Take up what is alive, and the running number of records."""
        self._inner.restore(section, rows, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Of tuples, those that are alive."""
        return self._inner.live(section, rows, version)

    def size(self, section: str) -> int:
        """How many tuples of a section are alive."""
        return self._inner.size(section)


def _snapshots(earlier: Alive, swept: Swept, span: Span, at: int | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values alive at some instants of the step, or at the multiples of a number, older ones first."""
    delta = swept.delta
    end = np.full(len(earlier.id), OPEN)
    end[np.searchsorted(earlier.id, delta.closed)] = delta.closed_end
    values = np.concatenate((earlier.values, swept.opened))
    start = np.concatenate((np.maximum(earlier.start, span.since), delta.start))
    end = np.minimum(np.concatenate((end, delta.end)), span.clock)
    if isinstance(at, int):
        first, stop = -(-start // at), -(-end // at)
    else:
        first, stop = np.searchsorted(at, start), np.searchsorted(at, end)
    counts = stop - first
    copies = np.repeat(np.arange(len(values)), counts)
    numbers = np.arange(len(copies)) - np.repeat(np.cumsum(counts) - counts, counts) + first[copies]
    times = numbers * at if isinstance(at, int) else at[numbers]
    order = np.argsort(times, kind="stable")
    return values[copies[order]], times[order]
