"""Interval relations: the deltas that flow between the operators of a plan, and the interface of an operator.

A tuple is alive on `[start, end)` in event time. Operators process a relation step by step. A step covers the instants
`since <= t < clock`, for which the input is complete. The change of a relation in a step is a `Delta`: the tuples that
appear, and the ends of tuples that appeared earlier with an unknown end.

This is the direct method of Imaki and Nishizawa (paper 1): one object per tuple, with both its times. Their expiry holder
is a number here, the `id`: a tuple whose end is `OPEN` is closed by a later delta that names its id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Protocol

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.stages import FailedRows, Tuples
from hayase.core.times import BEGINNING, END

__all__ = ["OPEN", "Delta", "Operator", "Span", "Step", "no_delta"]

OPEN = END
"""The end of a tuple that is alive now and whose end is not known yet."""


@dataclass(frozen=True, slots=True)
class Span:
    """One step: the instants `since <= t < clock`, and the version of its commit.

    `began` is the first event time that the stage has seen.
    """

    since: int
    clock: int
    version: int
    began: int = BEGINNING


@dataclass(frozen=True, slots=True)
class Delta:
    """The change of a relation in a step.

    - `rows[i]` is alive on `[start[i], end[i])`, with `since <= start[i] < clock`; rows are ordered by `start`.
    - There are no ghosts: `start < end`. An end before the clock is always known. A known end may lie beyond the clock
      and is not reported again: an operator that keeps the tuple removes it when the clock passes the end. An end that
      is not known is `OPEN`.
    - `id` is unique in the relation and is never reused.
    - `closed` are the ids of tuples of earlier steps with an open end; they end at `closed_end`, in that order and within
      the step. An operator ignores ids that it does not know, such as those that a filter has dropped.
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
    """Return the delta of a step in which nothing changes."""
    none = np.empty(0, np.int64)
    return Delta(pa.RecordBatch.from_pylist([], schema=schema), none, none, none)


@dataclass(frozen=True, slots=True)
class Step:
    """The result of a step: the delta of the operator's relation, the change of its state, and the tuples it refused."""

    delta: Delta
    state: Sequence[Tuples] = ()
    spoiled: Sequence[FailedRows] = ()


class Operator(Protocol):
    """The operator of a plan node for one bucket: takes a delta from each child, returns a delta; has state like a `Kernel`.

    The resulting relation does not depend on how the instants are cut into steps: it is the same at every snapshot, and
    so is the state that `restore` rebuilds from the tuples of earlier steps.
    """

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        """Process a step, given one delta per child."""

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Load tuples written at `version` or, if files were merged, up to it. Loading them twice is harmless."""

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return those of the rows, written up to `version`, that are still needed, in their current form.

        Called with the oldest rows first.
        """

    def size(self, section: str) -> int:
        """Return the number of live tuples of a section."""
