"""Negative tuples (NT): the paper's baseline, and a second opinion on every plan in tests. Not what the engine runs.

A tuple is two objects, a plus when it comes and a minus with the same values when it goes, and every operator works on
both. What each does with a signed tuple, and so twice per tuple of a window:

- window: keeps the tuple, sends a plus; when it goes, sends the minus (a copy of its values from the kept Arrow slice);
- selection, projection: evaluates the expressions; union: merges;
- join: hashes the key, finds its group, enters the tuple into its side's list or takes it out, and sends a plus or a minus
  with the values of both for every tuple of the other side's list;
- multiset rules (except, ...): hashes the row, counts it, and sends a row when the number of its copies changes;
- aggregate: hashes the key, adds to or takes from the sums, and sends a minus of the old row and a plus of the new one,
  unless they are equal.

For the six queries of the paper all of this is compiled and works on whole Arrow batches, as the direct method does; other
aggregates than count, sum and mean of integers, outer joins and streams are simple and slow. Keys are told apart exactly,
by the index that the direct method uses. A sum that would leave 64 bits is an error, not a dead letter. There is no state
on disk, and shared windows are not its business.
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
from hayase.core.stages import TIME, Outcome, Spoiled
from hayase.core.times import BEGINNING
from hayase.lifetimes.kernel import KernelConfig, in_order, lifetime_rows, stream_rows
from hayase.lifetimes.plans import (
    Aggregate,
    Changes,
    Instants,
    Join,
    Lifetimes,
    Multiset,
    Node,
    Scalar,
    Shared,
    ToStream,
    UnionAll,
    Windowed,
    children,
)
from hayase.lifetimes.relations import OPEN, Delta, Span
from hayase.lifetimes.scalars import ScalarOperator

__all__ = ["NegativeKernel"]


class SignedOperator(Protocol):
    """A node of a plan that is not a leaf."""

    def advance(self, inputs: Sequence[Signed], span: Span) -> Signed:
        """Go on by a step."""


class NegativeKernel:
    """A kernel (`hayase.core.stages.Kernel`, but for the state) that runs a plan on signed tuples."""

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
        """What comes and goes in the result at the instants of this step."""
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
        """The same as rows with lifetimes, as `QueryKernel` gives them: plus and minus are matched by their tags."""
        found = self.signed(inputs, since, clock, version)
        spoiled = [
            each for operator in self._operators if isinstance(operator, SignedScalar) for each in operator.spoiled
        ]
        if isinstance(self._config.plan, ToStream):
            never = np.full(len(found), OPEN)
            return Outcome(stream_rows(self._config, Delta(found.rows, found.time, never, found.tag)), spoiled=spoiled)
        return Outcome(self._lifetimes(found), spoiled=spoiled)

    def _lifetimes(self, found: Signed) -> pa.RecordBatch:
        """Rows for what came and for what had come earlier and went. What came and went within an instant is no row."""
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
        told = np.concatenate([new, gone])[by_time := np.argsort(changed, kind="stable")]
        self._open, self._open_ids = events.at(still), ids[still]
        rows = events.rows.take(pa.array(told))
        return lifetime_rows(
            self._config, rows, ids[told] * self._buckets + self._bucket, events.time[told], end[told], changed[by_time]
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
        case Shared():
            raise NotImplementedError(
                "negative tuples are a method for single windows: give an Aggregate over a Windowed"
            )


class SignedScalar:
    """Selection and projection, of the minus as of the plus; the direct method's operator does it, on signed tuples."""

    def __init__(self, node: Scalar) -> None:
        self._scalar = ScalarOperator(node)
        self._raised: set[int] = set()
        self.spoiled: list[Spoiled] = []

    def advance(self, inputs: Sequence[Signed], span: Span) -> Signed:
        """Those that satisfy the condition, as expressions. A row that raises is told once, when it comes."""
        (given,) = inputs
        step = self._scalar.advance([Delta(given.rows, given.time, given.plus, given.tag)], span)
        self.spoiled = [self._told(each) for each in step.spoiled]
        return Signed(step.delta.rows, step.delta.start, step.delta.end, step.delta.id)

    def _told(self, spoiled: Spoiled) -> Spoiled:
        """Without the minuses, which raise as their pluses did."""
        assert spoiled.ids is not None
        told = []
        for at, tag in enumerate(spoiled.ids.tolist()):
            if tag in self._raised:
                self._raised.remove(tag)
            else:
                self._raised.add(tag)
                told.append(at)
        return Spoiled(spoiled.rows.take(pa.array(told, pa.int64())), [spoiled.reasons[at] for at in told])


class SignedUnion:
    """All children's tuples."""

    def __init__(self, node: UnionAll) -> None:
        self._schema = node.schema

    def advance(self, inputs: Sequence[Signed], span: Span) -> Signed:
        """Merged by time."""
        count = len(inputs)
        named = [
            Signed(gathered([each.rows], self._schema), each.time, each.plus, each.tag * count + number)
            for number, each in enumerate(inputs)
        ]
        result = named[0]
        for each in named[1:]:
            result = result.merged(each)
        return result
