"""Signed tuples: the changes that flow between the operators of the negative-tuple method."""

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
    """The events of a relation in a step, ordered by `time`: a row appears (`plus`) or ends.

    The minus of a row has the values and the `tag` of its plus and follows it in the order, possibly at the same instant. A
    tag is reused only after its row has ended.
    """

    rows: pa.RecordBatch
    time: np.ndarray
    plus: np.ndarray
    tag: np.ndarray

    def __len__(self) -> int:
        return len(self.time)

    @staticmethod
    def none(schema: pa.Schema) -> Signed:
        """Return no events."""
        empty = np.empty(0, np.int64)
        return Signed(pa.RecordBatch.from_pylist([], schema=schema), empty, np.empty(0, np.bool_), empty)

    def at(self, positions: np.ndarray) -> Signed:
        """Return the events at some positions."""
        return Signed(
            self.rows.take(pa.array(positions)), self.time[positions], self.plus[positions], self.tag[positions]
        )

    def where(self, chosen: np.ndarray) -> Signed:
        """Return the events that a mask selects."""
        return self if chosen.all() else self.at(np.flatnonzero(chosen))

    def then(self, other: Signed) -> Signed:
        """Concatenate these events and the others, without ordering them by time."""
        return Signed(
            gathered([self.rows, other.rows], self.rows.schema),
            np.concatenate([self.time, other.time]),
            np.concatenate([self.plus, other.plus]),
            np.concatenate([self.tag, other.tag]),
        )

    def sorted(self) -> Signed:
        """Return the events in time order."""
        return self.at(np.argsort(self.time, kind="stable"))

    def merged(self, other: Signed) -> Signed:
        """Merge both by time; at equal times these come first."""
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
    """Concatenate batches, renamed to the schema, and reorder the rows."""
    if not pieces:
        return pa.RecordBatch.from_pylist([], schema=schema)
    named = [piece if piece.schema.names == schema.names else piece.rename_columns(schema.names) for piece in pieces]
    rows = named[0] if len(named) == 1 else pa.concat_batches(named)
    return rows if order is None else rows.take(pa.array(order))


def row_bytes(encoded: EncodedKeys) -> list[bytes]:
    """Return the encoding of every row."""
    data, bounds = encoded.data.tobytes(), encoded.offsets.tolist()
    return [data[start:stop] for start, stop in itertools.pairwise(bounds)]
