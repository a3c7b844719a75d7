"""Operators around a join that is bounded by time: its inputs end when they can meet nothing any more, and its rows stay for ever.

The join of relations that never end keeps all their tuples. If its condition says that a tuple meets only tuples that start within
some time of it, `LimitedOperator` ends it after that time, so that the join forgets it. Pairs then end too early, and
`LastingOperator` lets them stay. Neither operator has state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hayase.core.stages import Stateless
from hayase.lifetimes.plans import Lasting, Limited
from hayase.lifetimes.relations import OPEN, Delta, Span, Step

__all__ = ["LastingOperator", "LimitedOperator"]


class LimitedOperator(Stateless):
    """The operator of `plans.Limited`."""

    def __init__(self, node: Limited) -> None:
        self.schema = node.schema
        self._length = node.length

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        """Return the tuples of the child with their ends."""
        (child,) = inputs
        return Step(replace(child, end=np.minimum(child.start, OPEN - 1 - self._length - 1) + self._length + 1))


class LastingOperator(Stateless):
    """The operator of `plans.Lasting`."""

    def __init__(self, node: Lasting) -> None:
        self.schema = node.schema

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        """Return the tuples of the child without their ends."""
        (child,) = inputs
        return Step(Delta(child.rows, child.start, np.full(len(child), OPEN), child.id))
