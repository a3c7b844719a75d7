"""Tumbling, hopping and cumulating windows: a tuple is in every window that contains its time, with the window's bounds.

A tuple appears at the end of its window, so that it is final, and with `early` also before that (`plans.Bounded`).

Order: (time, offset).   Per tuple: O(1) for each window that contains it.   State: the tuples whose last window has not ended,
each once, however many windows contain it; where a tuple is in several windows also a counter for their ids.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hayase.core.keys import raw_values
from hayase.core.stages import OFFSET, TIME
from hayase.lifetimes.leaves import take_rows
from hayase.lifetimes.plans import Bounded, Session, Windowed
from hayase.lifetimes.relations import OPEN, Delta, Span, Step, no_delta
from hayase.lifetimes.state_registers import Registers
from hayase.lifetimes.tuples import TupleStore

__all__ = ["BoundedWindow", "bounds_columns"]

_NONE = np.empty(0, np.int64)


def bounds_columns(
    window: Bounded | Session, schema: pa.Schema, start: np.ndarray, end: np.ndarray, final: np.ndarray
) -> list[pa.Array]:
    """Return the columns with the bounds of windows and, for a window with Early, which tuples are final."""
    kinds = [schema.field(name).type for name in window.columns[:2]]
    bounds = [pa.array(times // window.unit).cast(kind) for times, kind in zip((start, end), kinds)]
    return bounds if window.early is None else [*bounds, pa.array(final)]


class BoundedWindow:
    """The operator of `plans.Bounded`. If a record has at most one tuple, its id is the offset, else a counter."""

    def __init__(self, node: Windowed, window: Bounded) -> None:
        self.schema = node.schema
        self._input, self._window = node.input, window
        own = pa.schema([field for field in node.schema if field.name not in window.columns])
        self._waiting = TupleStore(own, "waiting")  # the end of a tuple is that of its last window
        self._slots = _NONE  # of the waiting tuples, in the order of (time, offset)
        self._counter = Registers(("next",), (0,))

    def advance(self, batches: Sequence[pa.RecordBatch], span: Span) -> Step:
        """Return the tuples of all windows that end within the step, and those that appear early."""
        self._settle(span.since)
        batch, waiting = batches[self._input], self._waiting
        time, id = raw_values(batch.column(TIME), np.int64), raw_values(batch.column(OFFSET), np.int64)
        base, first, last = self._windows(time)
        rows = batch.select(waiting.schema.names)
        inside = np.flatnonzero(first <= last)  # a tuple between two windows is in none
        ends = base[inside] + last[inside] * self._window.step
        slots = waiting.add(take_rows(rows, inside), time[inside], ends, id[inside])
        self._slots = np.concatenate((self._slots, slots))
        delta = self._delta(span)
        ended = waiting.expire(span.clock)  # the tuples with the earliest times: the last window never goes back
        self._slots = self._slots[len(ended) :]
        waiting.release(ended)
        return Step(delta, [*waiting.changes(), *self._counter.changes(span.version)])

    def _windows(self, time: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the windows that contain tuples: those from `first` to `last` that end at `base + number * step`."""
        window = self._window
        moved = time - window.offset
        if window.kind == "cumulate":
            base = time - moved % window.length
            return base, (time - base) // window.step + 1, np.full(len(time), window.length // window.step)
        base = np.full(len(time), window.offset + window.length)
        return base, (moved - window.length) // window.step + 1, moved // window.step

    def _delta(self, span: Span) -> Delta:
        """Return the tuples that appear within the step."""
        window = self._window
        if not self._has_ends(span):
            return no_delta(self.schema)
        time = self._waiting.start[self._slots]
        base, first, last = self._windows(time)
        low, high = -((base - span.since) // window.step), -((base - span.clock) // window.step) - 1
        parts = [_numbered(np.maximum(first, low), np.minimum(last, high))]
        starts = [base[parts[0][0]] + parts[0][1] * window.step]
        if window.early is not None:
            appears = (time // window.early + 1) * window.early
            soon = (span.since <= appears) & (appears < span.clock)
            ending_later = np.maximum(first, (appears - base) // window.step + 1)
            parts.append(_numbered(ending_later, np.where(soon, last, ending_later - 1)))
            starts.append(appears[parts[1][0]])
        at, number = (np.concatenate(arrays) for arrays in zip(*parts))
        if not len(at):
            return no_delta(self.schema)
        start, final = np.concatenate(starts), np.arange(len(at)) < len(starts[0])
        ends = base[at] + number * window.step
        order = np.lexsort((ends, at, start))
        at, start, final, ends = at[order], start[order], final[order], ends[order]
        begins = base[at] if window.kind == "cumulate" else ends - window.length
        slots = self._slots[at]
        bounds = bounds_columns(window, self.schema, begins, ends, final)
        rows = pa.RecordBatch.from_arrays([*self._waiting.take(slots).columns, *bounds], schema=self.schema)
        until = np.where(final, np.minimum(ends + min(window.keep, OPEN), OPEN), ends)
        return Delta(rows, start, until, self._ids(slots))

    def _has_ends(self, span: Span) -> bool:
        """Return whether any window may end, or appear early, within the step."""
        grids = [(self._window.step, self._window.offset + self._window.length)]
        grids += [(self._window.early, 0)] if self._window.early is not None else []
        return any((span.clock - 1 - first) // step > (span.since - 1 - first) // step for step, first in grids)

    def _ids(self, slots: np.ndarray) -> np.ndarray:
        if self._window.kind == "tumble" and self._window.early is None:
            return self._waiting.id[slots].copy()
        self._counter["next"] += len(slots)
        return np.arange(self._counter["next"] - len(slots), self._counter["next"])

    def _settle(self, since: int) -> None:
        """Put restored tuples in their places."""
        added, removed = self._waiting.settle(since)
        if len(added) or len(removed):
            slots = np.concatenate((self._slots[~np.isin(self._slots, removed)], added))
            self._slots = slots[np.lexsort((self._waiting.id[slots], self._waiting.start[slots]))]
            self._waiting.release(removed)

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Load waiting tuples, or the counter."""
        if section == self._counter.section:
            self._counter.restore(section, rows, version)
        else:
            self._waiting.restore(rows, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the rows of tuples that are still waiting, or the counter."""
        if section == self._counter.section:
            return self._counter.live(section, rows, version)
        return self._waiting.live(rows, version)

    def size(self, section: str) -> int:
        """Return the number of waiting tuples, or 1 for the counter."""
        return self._counter.size(section) if section == self._counter.section else self._waiting.size()


def _numbered(first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return every number from `first` to `last` of each row, after the position of the row."""
    counts = np.maximum(last - first + 1, 0)
    rows = np.repeat(np.arange(len(counts)), counts)
    return rows, np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts) + first[rows]
