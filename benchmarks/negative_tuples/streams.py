"""Istream, Dstream and Rstream of the negative-tuple method; changes within an instant are netted by value."""

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
    """Istream, Dstream and Rstream; simple and slow. All its rows are pluses that never end."""

    def __init__(self, node: ToStream) -> None:
        self._node = node
        self._there: Counter[bytes] = Counter()
        self._rows = pa.RecordBatch.from_pylist([], schema=node.schema)
        self._next = 0
        self._due: int | None = None

    def advance(self, inputs: Sequence[Signed], span: Span) -> Signed:
        """Return the records of the stream in this step."""
        child, *others = inputs
        asked = {time for other in others for time in other.time.tolist()}
        rows = gathered([self._rows, gathered([child.rows], self._node.schema)], self._node.schema)
        encoded = row_bytes(encode(rows.columns, rows.num_rows))
        sample = {key: row for row, key in enumerate(encoded)}
        events = encoded[self._rows.num_rows :]
        emitted: list[tuple[int, int]] = []
        instants = sorted({*child.time.tolist(), *asked})
        first = np.searchsorted(child.time, instants).tolist()
        for instant, start, stop in zip(instants, first, [*first[1:], len(child)]):
            self._multiples(instant, sample, emitted)
            change: Counter[bytes] = Counter()
            for row in range(start, stop):
                change[events[row]] += 1 if child.plus[row] else -1
            self._tell(instant, change, sample, emitted)
            if instant in asked:
                self._all(instant, sample, emitted)
        self._multiples(span.clock, sample, emitted)
        kept = [sample[key] for key in self._there]
        self._rows = rows.take(pa.array(kept, pa.int64()))
        tags = np.arange(self._next, self._next + len(emitted))
        self._next += len(emitted)
        return Signed(
            rows.take(pa.array([row for row, _ in emitted], pa.int64())),
            np.array([time for _, time in emitted], np.int64),
            np.ones(len(emitted), np.bool_),
            tags,
        )

    def _tell(
        self, instant: int, change: Counter[bytes], sample: dict[bytes, int], emitted: list[tuple[int, int]]
    ) -> None:
        """Apply a change to the current rows, and emit it if the kind of stream does."""
        sign = -1 if self._node.kind == "dstream" else 1
        for key, count in change.items():
            self._there[key] += count
            if not self._there[key]:
                del self._there[key]
            if self._node.kind != "rstream":
                emitted += [(sample[key], instant)] * max(sign * count, 0)
        if self._node.every is not None and self._due is None:
            self._due = -(-instant // self._node.every) * self._node.every

    def _multiples(self, before: int, sample: dict[bytes, int], emitted: list[tuple[int, int]]) -> None:
        """Emit all current rows at the multiples that are due before an instant."""
        while self._node.every is not None and self._due is not None and self._due < before:
            self._all(self._due, sample, emitted)
            self._due = self._due + self._node.every if self._there else None

    def _all(self, instant: int, sample: dict[bytes, int], emitted: list[tuple[int, int]]) -> None:
        emitted += [(sample[key], instant) for key, count in self._there.items() for _ in range(count)]
