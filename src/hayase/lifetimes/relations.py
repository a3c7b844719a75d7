"""Interval relations and their operators: what flows between the nodes of a plan, and what a node must be able to do.

An interval tuple is alive on `[start, end)`. A relation is handed on step by step: a step covers the instants from
`since` up to, not including, `clock`, and everything about these instants is known. What a relation does in a step is a
`Delta`: the tuples that appear, and the ends of tuples that appeared earlier with an end that nobody knew yet.

This is the direct method of Imaki and Nishizawa: one object per tuple, with both its times. Their expiry holder is here
a number, the `id`: a tuple whose end is `OPEN` is closed by a later delta that names its id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from hayase.core.stages import Spoiled, Tuples
from hayase.core.times import BEGINNING, END

__all__ = ["OPEN", "Delta", "Operator", "Span", "Step", "no_delta"]

OPEN = END
"""The end of a tuple that is alive now and whose end is not known yet."""


@dataclass(frozen=True, slots=True)
class Span:
    """One step: the instants `since <= t < clock`. `began` is the first event time that the stage ever saw."""

    since: int
    clock: int
    version: int
    began: int = BEGINNING


@dataclass(frozen=True, slots=True)
class Delta:
    """What happens to a relation in a step.

    - `rows[i]` is alive on `[start[i], end[i])`, and `since <= start[i] < clock`, in the order of `start`.
    - There are no ghosts: `start < end`. An end before the clock is always known; a known end may lie beyond it, and is
      never spoken of again: whoever keeps the tuple lets it go by itself. Otherwise the end is `OPEN`.
    - `id` tells a tuple from all others of the relation, for ever.
    - `closed` are ids of tuples that came in an earlier step with an open end; they ended at `closed_end`, in that order
      and within the step. Some may be unknown to the receiver (a filter took them out): it ignores them.
    """

    rows: pa.RecordBatch
    start: np.ndarray
    end: np.ndarray
    id: np.ndarray
    closed: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    closed_end: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.start)


def no_delta(schema: pa.Schema) -> Delta:
    """Nothing happens."""
    none = np.empty(0, np.int64)
    return Delta(pa.RecordBatch.from_pylist([], schema=schema), none, none, none)


@dataclass(frozen=True, slots=True)
class Step:
    """What an operator made of a step: its relation's delta, the change of its state, and what it could not take."""

    delta: Delta
    state: Sequence[Tuples] = ()
    spoiled: Sequence[Spoiled] = ()


class Operator(Protocol):
    """A node of a plan, for one bucket: deltas in, delta out, with state like that of a `Kernel`.

    A step's result depends on the inputs alone, not on how the instants are cut into steps: the relations are equal,
    snapshot by snapshot, and so is the state that `restore` rebuilds from the tuples of earlier steps.
    """

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        """Go on by a step; one delta per child."""

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Take up tuples written at `version` or, after a merge, up to it. Repeating is harmless."""

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Of tuples written up to `version`, oldest first, those that still matter, as they are now."""

    def size(self, section: str) -> int:
        """How many tuples of a section are alive."""
