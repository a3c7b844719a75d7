"""The kernel of the negative-tuple method (NT), paper 1's baseline and an oracle for plans in tests. The engine does not use it.

A tuple is two objects, a plus when it appears and a minus with the same values when it ends, and every operator processes
both. What an operator does with a signed tuple, and so twice per tuple of a window:

- window: keeps the tuple and emits a plus; at its end emits the minus (a copy of its values from the kept Arrow slice);
- selection, projection: evaluates the expressions; union: merges;
- join: hashes the key, finds its group, adds the tuple to the list of its side or removes it, and emits a plus or minus with
  the values of both for every tuple in the list of the other side;
- set operations (except, ...): hashes the row, counts it, and emits a row when the number of its copies changes;
- aggregate: hashes the key, updates the sums, and emits a minus of the old row and a plus of the new one, unless they are
  equal.

For the six queries of the paper all of this is compiled and works on whole Arrow batches, like the direct method. Aggregates
other than count, sum and mean of integers, outer joins and streams are simple and slow. Keys are compared exactly, by the
index that the direct method uses. A sum that exceeds 64 bits is an error, not a dead letter. There is no state on disk, and
shared windows are not supported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from benchmarks.negative_tuples.groups import SignedMultiset, signed_aggregate
from benchmarks.negative_tuples.joins import SignedJoin
from benchmarks.negative_tuples.leaves import SignedLeaf, signed_leaf
from benchmarks.negative_tuples.signed import Signed, gathered
from benchmarks.negative_tuples.streams import SignedToStream
from hayase.core.stages import TIME, FailedRows, Outcome
from hayase.core.times import BEGINNING
from hayase.lifetimes.kernel import KernelConfig, in_order, lifetime_rows, stream_rows
from hayase.lifetimes.plans import (
    Aggregate,
    Asof,
    Changes,
    Instants,
    Join,
    Lasting,
    Lifetimes,
    Limited,
    Multiset,
    Node,
    Over,
    Recomputed,
    RunningOver,
    Scalar,
    Shared,
    Top,
    ToStream,
    UnionAll,
    Unnest,
    Windowed,
    children,
)
from hayase.lifetimes.relations import OPEN, Delta, Span
from hayase.lifetimes.scalars import ScalarOperator

__all__ = ["NegativeKernel"]


class SignedOperator(Protocol):
    """The operator of a plan node that is not a leaf."""

    def advance(self, inputs: Sequence[Signed], span: Span) -> Signed:
        """Process a step."""


class NegativeKernel:
    """A kernel (`hayase.core.stages.Kernel`, without state) that runs a plan on signed tuples."""

    def __init__(self, config: KernelConfig, bucket: int = 0, buckets: int = 1) -> None:
        self._config, self._bucket, self._buckets = config, bucket, buckets
        self._nodes = in_order(config.plan)
        self._operators = [_operator(node) for node in self._nodes]
        numbers = {id(node): number for number, node in enumerate(self._nodes)}
        self._children = [tuple(numbers[id(child)] for child in children(node)) for node in self._nodes]
        self._open = Signed.none(config.plan.schema)
        self._open_ids = np.empty(0, np.int64)
        self._next = 0
        self._began = BEGINNING

    def signed(self, inputs: Sequence[pa.RecordBatch], since: int, clock: int, version: int) -> Signed:
        """Process a step and return the changes of the result as signed tuples."""
        firsts = [inputs[number].column(TIME)[0].as_py() for number in self._config.earliest if inputs[number].num_rows]
        if self._began == BEGINNING and firsts:
            self._began = min(firsts)
        span = Span(since, clock, version, self._began)
        results: list[Signed] = []
        for number, operator in enumerate(self._operators):
            if isinstance(operator, SignedLeaf):
                results.append(operator.read(inputs, span))
            else:
                results.append(operator.advance([results[child] for child in self._children[number]], span))
        return results[-1]

    def process(self, inputs: Sequence[pa.RecordBatch], since: int, clock: int, version: int) -> Outcome:
        """Process a step and return rows with lifetimes like `QueryKernel`; plus and minus are matched by their tags."""
        changes = self.signed(inputs, since, clock, version)
        spoiled = [
            refused
            for operator in self._operators
            if isinstance(operator, SignedScalar)
            for refused in operator.spoiled
        ]
        if isinstance(self._config.plan, ToStream):
            never = np.full(len(changes), OPEN)
            return Outcome(
                stream_rows(self._config, Delta(changes.rows, changes.time, never, changes.tag)), spoiled=spoiled
            )
        return Outcome(self._lifetimes(changes), spoiled=spoiled)

    def _lifetimes(self, found: Signed) -> pa.RecordBatch:
        """Return rows for new tuples and for the ends of earlier ones. Tuples with an empty lifetime are dropped."""
        earlier = len(self._open)
        ids = np.concatenate([self._open_ids, np.arange(self._next, self._next + len(found))])
        self._next += len(found)
        events = self._open.then(found)
        order = np.argsort(events.tag, kind="stable")
        tag, plus = events.tag[order], events.plus[order]
        paired = np.flatnonzero((tag[1:] == tag[:-1]) & plus[:-1] & ~plus[1:])
        end = np.full(len(events), OPEN)
        end[order[paired]] = events.time[order[paired + 1]]
        assert len(paired) == int((~events.plus).sum()), "a minus without its plus"
        came = np.flatnonzero(events.plus & (end > events.time))
        new, gone = came[came >= earlier], came[(came < earlier) & (end[came] != OPEN)]
        still = came[end[came] == OPEN]
        changed = np.concatenate([events.time[new], end[gone]])
        reported = np.concatenate([new, gone])[by_time := np.argsort(changed, kind="stable")]
        self._open, self._open_ids = events.at(still), ids[still]
        rows = events.rows.take(pa.array(reported))
        return lifetime_rows(
            self._config,
            rows,
            ids[reported] * self._buckets + self._bucket,
            events.time[reported],
            end[reported],
            changed[by_time],
        )


def _operator(node: Node) -> SignedLeaf | SignedOperator:
    match node:
        case Windowed() | Lifetimes() | Changes() | Instants():
            return signed_leaf(node)
        case Scalar():
            return SignedScalar(node)
        case UnionAll():
            return SignedUnion(node)
        case Join():
            return SignedJoin(node)
        case Multiset():
            return SignedMultiset(node)
        case Aggregate():
            return signed_aggregate(node)
        case ToStream():
            return SignedToStream(node)
        case Limited() | Lasting():
            raise NotImplementedError("the baseline has no operators for joins bounded by time")
        case Shared() | Recomputed() | Unnest():
            raise NotImplementedError(
                "negative tuples are a method for aggregates over single windows: give an Aggregate over a Windowed"
            )
        case Top() | Over() | Asof() | RunningOver():
            raise NotImplementedError("the baseline has no operators for the order of rows")


class SignedScalar:
    """Selection and projection of plus and minus alike, with the operator of the direct method."""

    def __init__(self, node: Scalar) -> None:
        self._scalar = ScalarOperator(node)
        self._raised: set[int] = set()
        self.spoiled: list[FailedRows] = []

    def advance(self, inputs: Sequence[Signed], span: Span) -> Signed:
        """Select and project. A row for which an expression raises an error is reported once, when it appears."""
        (child,) = inputs
        step = self._scalar.advance([Delta(child.rows, child.time, child.plus, child.tag)], span)
        self.spoiled = [self._told(refused) for refused in step.spoiled]
        return Signed(step.delta.rows, step.delta.start, step.delta.end, step.delta.id)

    def _told(self, spoiled: FailedRows) -> FailedRows:
        """Drop the minuses, which raise the same errors as their pluses."""
        assert spoiled.ids is not None
        positions = []
        for at, tag in enumerate(spoiled.ids.tolist()):
            if tag in self._raised:
                self._raised.remove(tag)
            else:
                self._raised.add(tag)
                positions.append(at)
        return FailedRows(spoiled.rows.take(pa.array(positions, pa.int64())), [spoiled.reasons[at] for at in positions])


class SignedUnion:
    """The tuples of all children."""

    def __init__(self, node: UnionAll) -> None:
        self._schema = node.schema

    def advance(self, inputs: Sequence[Signed], span: Span) -> Signed:
        """Merge the tuples by time."""
        count = len(inputs)
        named = [
            Signed(gathered([child.rows], self._schema), child.time, child.plus, child.tag * count + number)
            for number, child in enumerate(inputs)
        ]
        result = named[0]
        for child in named[1:]:
            result = result.merged(child)
        return result
