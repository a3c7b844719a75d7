"""Signed tuples: what flows between the operators of the negative-tuple method."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hayase.core.keys import EncodedKeys

__all__ = ["Signed", "gathered", "row_bytes"]


@dataclass(frozen=True, slots=True)
class Signed:
    """What happens to a relation in a step, event by event in the order of `time`: a row comes (`plus`) or goes.

    The minus of a row has the values and the `tag` of its plus, and comes later in the order, if not in time: within an
    instant a row may come and go. A tag is used again only when its row is gone.
    """

    rows: pa.RecordBatch
    time: np.ndarray
    plus: np.ndarray
    tag: np.ndarray

    def __len__(self) -> int:
        return len(self.time)

    @staticmethod
    def none(schema: pa.Schema) -> Signed:
        """Nothing happens."""
        empty = np.empty(0, np.int64)
        return Signed(pa.RecordBatch.from_pylist([], schema=schema), empty, np.empty(0, np.bool_), empty)

    def at(self, positions: np.ndarray) -> Signed:
        """The events at some positions."""
        return Signed(
            self.rows.take(pa.array(positions)), self.time[positions], self.plus[positions], self.tag[positions]
        )

    def where(self, chosen: np.ndarray) -> Signed:
        """The events that are chosen."""
        return self if chosen.all() else self.at(np.flatnonzero(chosen))

    def then(self, other: Signed) -> Signed:
        """These events and behind them the others, in no order of time."""
        return Signed(
            gathered([self.rows, other.rows], self.rows.schema),
            np.concatenate([self.time, other.time]),
            np.concatenate([self.plus, other.plus]),
            np.concatenate([self.tag, other.tag]),
        )

    def sorted(self) -> Signed:
        """The events in the order of time."""
        return self.at(np.argsort(self.time, kind="stable"))

    def merged(self, other: Signed) -> Signed:
        """Both by time; these first where times are equal."""
        from benchmarks.negative_tuples import loops

        if not len(other):
            return self
        if not len(self):
            return other
        order = np.empty(len(self) + len(other), np.int64)
        loops.merge(self.time, other.time, order)
        return Signed(
            gathered([self.rows, other.rows], self.rows.schema, order),
            np.concatenate([self.time, other.time])[order],
            np.concatenate([self.plus, other.plus])[order],
            np.concatenate([self.tag, other.tag])[order],
        )


def gathered(pieces: Sequence[pa.RecordBatch], schema: pa.Schema, order: np.ndarray | None = None) -> pa.RecordBatch:
    """The rows of some batches, one behind the other, and then in an order."""
    if not pieces:
        return pa.RecordBatch.from_pylist([], schema=schema)
    named = [each if each.schema.names == schema.names else each.rename_columns(schema.names) for each in pieces]
    rows = named[0] if len(named) == 1 else pa.concat_batches(named)
    return rows if order is None else rows.take(pa.array(order))


def row_bytes(encoded: EncodedKeys) -> list[bytes]:
    """The encoding of every row."""
    data, bounds = encoded.data.tobytes(), encoded.offsets.tolist()
    return [data[start:stop] for start, stop in itertools.pairwise(bounds)]
