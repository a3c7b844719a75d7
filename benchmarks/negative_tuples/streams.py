"""Relation to stream, by the negative-tuple method: what comes and goes within an instant is balanced by value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from benchmarks.negative_tuples.signed import Signed, gathered, row_bytes
from hayase.core.keys import encode
from hayase.lifetimes.plans import ToStream
from hayase.lifetimes.relations import Span

__all__ = ["SignedToStream"]


class SignedToStream:
    """Istream, Dstream, Rstream; simple and slow. Its rows are pluses, and nothing ever goes."""

    def __init__(self, node: ToStream) -> None:
        self._node = node
        self._there: Counter[bytes] = Counter()
        self._rows = pa.RecordBatch.from_pylist([], schema=node.schema)
        self._next = 0
        self._due: int | None = None

    def advance(self, inputs: Sequence[Signed], span: Span) -> Signed:
        """The rows of the stream within this step."""
        given, *others = inputs
        asked = {time for each in others for time in each.time.tolist()}
        rows = gathered([self._rows, gathered([given.rows], self._node.schema)], self._node.schema)
        encoded = row_bytes(encode(rows.columns, rows.num_rows))
        sample = {key: row for row, key in enumerate(encoded)}
        events = encoded[self._rows.num_rows :]
        found: list[tuple[int, int]] = []
        instants = sorted({*given.time.tolist(), *asked})
        first = np.searchsorted(given.time, instants).tolist()
        for instant, start, stop in zip(instants, first, [*first[1:], len(given)]):
            self._multiples(instant, sample, found)
            change: Counter[bytes] = Counter()
            for row in range(start, stop):
                change[events[row]] += 1 if given.plus[row] else -1
            self._tell(instant, change, sample, found)
            if instant in asked:
                self._all(instant, sample, found)
        self._multiples(span.clock, sample, found)
        kept = [sample[key] for key in self._there]
        self._rows = rows.take(pa.array(kept, pa.int64()))
        tags = np.arange(self._next, self._next + len(found))
        self._next += len(found)
        return Signed(
            rows.take(pa.array([row for row, _ in found], pa.int64())),
            np.array([time for _, time in found], np.int64),
            np.ones(len(found), np.bool_),
            tags,
        )

    def _tell(
        self, instant: int, change: Counter[bytes], sample: dict[bytes, int], found: list[tuple[int, int]]
    ) -> None:
        """Take a change into what is there, and tell what the kind of stream tells of it."""
        sign = -1 if self._node.kind == "dstream" else 1
        for key, count in change.items():
            self._there[key] += count
            if not self._there[key]:
                del self._there[key]
            if self._node.kind != "rstream":
                found += [(sample[key], instant)] * max(sign * count, 0)
        if self._node.every is not None and self._due is None:
            self._due = -(-instant // self._node.every) * self._node.every

    def _multiples(self, before: int, sample: dict[bytes, int], found: list[tuple[int, int]]) -> None:
        """Tell all that is there at the multiples that are due before an instant."""
        while self._node.every is not None and self._due is not None and self._due < before:
            self._all(self._due, sample, found)
            self._due = self._due + self._node.every if self._there else None

    def _all(self, instant: int, sample: dict[bytes, int], found: list[tuple[int, int]]) -> None:
        found += [(sample[key], instant) for key, count in self._there.items() for _ in range(count)]
