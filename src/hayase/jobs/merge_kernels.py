"""The kernel of merges (MergeReducer of paper 5): calls the function for each key with its new tuples and its stored row.

Only the rows of keys with new tuples are read, unless the merge also covers all stored keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.keys import buckets as buckets_of
from hayase.core.keys import raw_values
from hayase.core.stages import TIME, FailedRows, Outcome, Refusals, Stateless
from hayase.jobs.emitted_tuples import Emission
from hayase.jobs.key_groups import Groups
from hayase.jobs.reduce_kernels import Firing, ReduceSpec, refusals_of
from hayase.jobs.stored_tuples import Stored, StoredKey, StoredRow
from hayase.jobs.tuples import Unfit, key_column, key_text
from hayase.streams.record_text import record_text

__all__ = ["MergeKernel", "MergeSpec"]

_AT_ONCE = 10_000
"""How many stored keys are processed at once."""


@dataclass(frozen=True, slots=True)
class MergeSpec:
    """The specification of a merge: a reduce with the stored row of each key. `side` selects keys with new tuples ("left"), stored
    keys ("right"), or "both". Unless it is "left", the inputs after the first `sources` tell when new input came."""

    reducing: ReduceSpec
    stored: Stored
    side: str = "left"
    sources: int = 1


class MergeKernel(Stateless):
    """The kernel of a merge."""

    def __init__(self, merging: MergeSpec, bucket: int = 0, buckets: int = 1) -> None:
        self._merging, self._bucket, self._buckets = merging, bucket, buckets

    def process(self, inputs: Sequence[pa.RecordBatch], since: int, clock: int, version: int) -> Outcome:
        """Merge the new tuples of a firing with the stored rows."""
        merging, reducing = self._merging, self._merging.reducing
        came, ticks = inputs[: merging.sources], inputs[merging.sources :]
        firing = Firing.of(came)
        groups = firing.groups(reducing.shape, reducing.by_time)
        keys = reducing.keys(firing.rows, groups)
        stored = [None if row is None else dict(row) for row in merging.stored.find([_parts(key) for key in keys])]
        met = np.arange(len(groups))
        if merging.side == "right":
            met = np.array([at for at, row in enumerate(stored) if row is not None], np.int64)
        met_groups = Groups(groups.order, groups.starts[met], groups.ends[met], groups.firsts[met])
        chosen = met.tolist()
        emission = reducing.emission(
            firing.rows, met_groups, [keys[at] for at in chosen], [[stored[at] for at in chosen]]
        )
        call = met[emission.call]
        parts = [_Part(emission, groups.greatest(firing.time)[call], _rounds_of(firing.round, groups, call))]
        spoiled: list[FailedRows] = []
        last = max(
            (int(raw_values(batch.column(TIME), np.int64).max()) for batch in ticks if batch.num_rows), default=None
        )
        if last is not None:
            for others, lost in self._others(keys):
                parts.append(
                    _Part(
                        others,
                        np.full(len(others.call), last),
                        np.zeros(len(others.call), np.int32),
                    )
                )
                spoiled += [lost] if lost.rows.num_rows else []
        failed = {int(met[at]): reason for at, reason in emission.failed.items()}
        refused = refusals_of(failed, groups, firing.ends)
        return Outcome(self._rows(parts), [*refused, *[Refusals()] * len(ticks)] if refused else (), (), spoiled)

    def _rows(self, parts: Sequence[_Part]) -> pa.RecordBatch:
        columns = [
            pa.chunked_array([part.emission.columns[at] for part in parts], column.type).combine_chunks()
            for at, column in enumerate(self._merging.reducing.step.shape.schema)
        ]
        target = np.concatenate([part.emission.target for part in parts])
        time, rounds = np.concatenate([part.time for part in parts]), np.concatenate([part.round for part in parts])
        return self._merging.reducing.outlet.in_time_order(columns, target, time, rounds)

    def _others(self, came: Sequence[Any]) -> Iterator[tuple[Emission, FailedRows]]:
        """Call the function for stored keys of this bucket without new tuples; yield the emissions and the failed keys."""
        reducing, shape = self._merging.reducing, self._merging.reducing.shape
        came_texts = {_text(_parts(came_key)) for came_key in came}
        nothing: Any = []
        if reducing.batches:
            nothing = pa.RecordBatch.from_pylist([], pa.schema([shape.schema.field(name) for name in shape.rest]))
        stored = self._merging.stored.all()
        while chunk := list(islice(stored, _AT_ONCE)):
            mine = [(_key(parts), row) for parts, row in self._of_bucket(chunk) if _text(parts) not in came_texts]
            calls = ((key, nothing if reducing.batches else [], dict(row)) for key, row in mine)
            emission = reducing.step.on_groups(calls) if reducing.batches else reducing.step.call_each(calls)
            lost = [mine[at] for at in emission.failed]
            columns = [
                key_column([key for key, _ in lost])[0],
                pa.array([record_text(row) for _, row in lost], pa.string()),
            ]
            rows = pa.RecordBatch.from_arrays(columns, names=["key", "stored"])
            yield emission, FailedRows(rows, list(emission.failed.values()))

    def _of_bucket(self, chunk: Sequence[tuple[StoredKey, StoredRow]]) -> Iterator[tuple[StoredKey, StoredRow]]:
        """Select the stored keys of this bucket, by the hash of a tuple's key columns or, if no tuple can have the key, of the
        key's text."""
        shape = self._merging.reducing.shape
        if shape.plain:
            chosen = buckets_of([key_column([_key(parts) for parts, _ in chunk])[0]], self._buckets)
        else:
            chosen = buckets_of([pa.array([_text(parts) for parts, _ in chunk], pa.string())], self._buckets)
            kinds = [shape.schema.field(name).type for name in shape.key]
            fit = [at for at, (parts, _) in enumerate(chunk) if _converts(parts, kinds)]
            if fit:
                columns = [pa.array([chunk[at][0][part] for at in fit], kind) for part, kind in enumerate(kinds)]
                chosen[fit] = buckets_of(columns, self._buckets)
        return (stored for stored, bucket in zip(chunk, chosen.tolist()) if bucket == self._bucket)


@dataclass(frozen=True, slots=True)
class _Part:
    """Tuples to write, with their times and rounds."""

    emission: Emission
    time: np.ndarray
    round: np.ndarray


def _rounds_of(rounds: np.ndarray | None, groups: Groups, call: np.ndarray) -> np.ndarray:
    return np.zeros(len(call), np.int32) if rounds is None else groups.greatest(rounds)[call]


def _parts(key: Any) -> StoredKey:
    return key if isinstance(key, tuple) else (key,)


def _key(parts: StoredKey) -> Any:
    """Return a stored key as functions see it."""
    return parts[0] if len(parts) == 1 else parts


def _text(parts: StoredKey) -> str:
    try:
        return key_text(list(parts)).decode()
    except Unfit:
        return repr(parts)


def _converts(parts: StoredKey, kinds: Sequence[pa.DataType]) -> bool:
    try:
        return len(parts) == len(kinds) and all(
            pa.array([part], kind)[0].as_py() == part for part, kind in zip(parts, kinds)
        )
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return False
