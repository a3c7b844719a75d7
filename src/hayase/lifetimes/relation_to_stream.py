"""Istream, Dstream and Rstream: turn a relation into a stream of the rows that appear, that end, or of all rows at certain
instants.

A record of the stream is a tuple that starts at its time and has no end. Istream and Dstream compare with the instant
before, so their child must not end and start equal rows at one instant; the planner puts a `coalesce` below them where it
could.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hayase.core.stages import Stateless, Tuples
from hayase.lifetimes.multisets import Alive, MultisetOperator, Swept
from hayase.lifetimes.plans import Multiset, ToStream
from hayase.lifetimes.relations import OPEN, Delta, Span, Step
from hayase.lifetimes.state_registers import Registers
from hayase.lifetimes.tuples import OneStore, TupleStore

__all__ = ["ToStreamOperator"]

_NEXT, _EMITTED = "next", "emitted"


class _Istream(Stateless):
    """Istream: the tuples that start. No state."""

    def advance(self, delta: Delta, span: Span) -> Step:
        return Step(Delta(delta.rows, delta.start, np.full(len(delta), OPEN), delta.id))


class _Dstream(OneStore):
    """Dstream: the tuples that end. Live tuples are kept for their values."""

    def __init__(self, node: ToStream) -> None:
        self._store = TupleStore(node.schema, "alive")

    def advance(self, delta: Delta, span: Span) -> Step:
        alive = self._store
        alive.release(alive.settle(span.since)[1])
        alive.add(delta.rows, delta.start, delta.end, delta.id)
        alive.close(delta.closed, delta.closed_end)
        gone = alive.expire(span.clock)
        ended = Delta(alive.take(gone), alive.end[gone], np.full(len(gone), OPEN), alive.id[gone])
        alive.release(gone)
        return Step(ended, alive.changes())


class _Snapshots:
    """Rstream of a query: the rows of a relation at delta instants. Costs as much as its output; values are not compared."""

    def __init__(self, node: ToStream) -> None:
        self._alive = TupleStore(node.schema, "alive")
        self._held = np.empty(0, np.bool_)
        self._registers = Registers((_NEXT,), (0,), _EMITTED)

    def advance(self, delta: Delta, instants: np.ndarray, span: Span) -> Step:
        alive = self._alive
        added, removed = alive.settle(span.since)
        self._mark(added, held=True)
        self._release(removed)
        self._mark(alive.add(delta.rows, delta.start, delta.end, delta.id), held=True)
        alive.close(delta.closed, delta.closed_end)
        slots = np.flatnonzero(self._held)
        slots = slots[np.lexsort((alive.id[slots], alive.start[slots]))]
        start, end = np.maximum(alive.start[slots], span.since), np.minimum(alive.end[slots], span.clock)
        copies, times = _at_instants(start, end, instants)
        rows = alive.take(slots[copies])
        self._release(alive.expire(span.clock))
        return _records(rows, times, self._registers, alive.changes(), span)

    def _mark(self, slots: np.ndarray, *, held: bool) -> None:
        missing = self._alive.capacity - len(self._held)
        if missing > 0:
            self._held = np.concatenate((self._held, np.zeros(missing, np.bool_)))
        self._held[slots] = held

    def _release(self, slots: np.ndarray) -> None:
        self._mark(slots, held=False)
        self._alive.release(slots)

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        if section == _EMITTED:
            self._registers.restore(section, rows, version)
        else:
            self._alive.restore(rows, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        return self._registers.live(section, rows, version) if section == _EMITTED else self._alive.live(rows, version)

    def size(self, section: str) -> int:
        return self._registers.size(section) if section == _EMITTED else self._alive.size()


class _Multiples:
    """Rstream of a job: the rows of a relation at the multiples of its interval. Equal rows are kept once, with a count."""

    def __init__(self, node: ToStream, every: int) -> None:
        self._every = every
        self._relation = MultisetOperator(Multiset("coalesce", (node.child,), node.schema))
        self._registers = Registers((_NEXT,), (0,), _EMITTED)

    def advance(self, delta: Delta, span: Span) -> Step:
        self._relation.settle(span.since)
        earlier = self._relation.alive()
        swept = self._relation.sweep([delta], span)
        values, start, end = _lifetimes_in(earlier, swept, span)
        copies, times = _at_instants(start, end, self._every)
        return _records(self._relation.rows(values[copies]), times, self._registers, swept.state, span)

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        (self._registers if section == _EMITTED else self._relation).restore(section, rows, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        return (self._registers if section == _EMITTED else self._relation).live(section, rows, version)

    def size(self, section: str) -> int:
        return (self._registers if section == _EMITTED else self._relation).size(section)


class ToStreamOperator:
    """The operator of `plans.ToStream` (`relations.Operator`)."""

    def __init__(self, node: ToStream) -> None:
        self.schema = node.schema
        self._inner: _Istream | _Dstream | _Snapshots | _Multiples
        if node.kind == "istream":
            self._inner = _Istream()
        elif node.kind == "dstream":
            self._inner = _Dstream(node)
        else:
            self._inner = _Snapshots(node) if node.every is None else _Multiples(node, node.every)
        self.restore, self.live, self.size = self._inner.restore, self._inner.live, self._inner.size

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        """Process a step and return its records in time order."""
        delta, *instants = inputs
        if isinstance(self._inner, _Snapshots):
            asked = np.unique(np.concatenate([np.empty(0, np.int64), *(other.start for other in instants)]))
            return self._inner.advance(delta, asked, span)
        return self._inner.advance(delta, span)


def _lifetimes_in(earlier: Alive, swept: Swept, span: Span) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the values that were alive in a step, older ones first, with their starts and ends within it."""
    delta = swept.delta
    end = np.full(len(earlier.id), OPEN)
    end[np.searchsorted(earlier.id, delta.closed)] = delta.closed_end
    values = np.concatenate((earlier.values, swept.opened))
    start = np.concatenate((np.maximum(earlier.start, span.since), delta.start))
    return values, start, np.minimum(np.concatenate((end, delta.end)), span.clock)


def _at_instants(start: np.ndarray, end: np.ndarray, at: int | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which lifetimes contain each instant, and the instant of each, in time order.

    `at` are the instants themselves, or a number whose multiples they are.
    """
    if isinstance(at, int):
        first, stop = -(-start // at), -(-end // at)
    else:
        first, stop = np.searchsorted(at, start), np.searchsorted(at, end)
    counts = stop - first
    copies = np.repeat(np.arange(len(start)), counts)
    numbers = np.arange(len(copies)) - np.repeat(np.cumsum(counts) - counts, counts) + first[copies]
    times = numbers * at if isinstance(at, int) else at[numbers]
    order = np.argsort(times, kind="stable")
    return copies[order], times[order]


def _records(rows: pa.RecordBatch, times: np.ndarray, emitted: Registers, state: Sequence[Tuples], span: Span) -> Step:
    """Return rows as records, numbered consecutively across all steps."""
    first = emitted[_NEXT]
    emitted[_NEXT] = first + len(times)
    delta = Delta(rows, times, np.full(len(times), OPEN), np.arange(first, first + len(times)))
    return Step(delta, [*state, *emitted.changes(span.version)])
