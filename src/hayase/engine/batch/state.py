"""State files: immutable segments of a kernel's tuples, appended batch by batch and named by the manifest.

A batch writes one file per bucket, with a segment for each stage and section that changed. Upkeep is bounded by what the batch
itself wrote, so the cost of a batch follows the change, not the size of the state:

- a segment whose tuples have all expired (`until`) is dropped without being read;
- when more than half of a section's tuples are superseded, the oldest are read again and the live ones rewritten;
- runs of small segments are joined into one.

Together they keep a section within about twice its live tuples, in a number of segments that grows with its logarithm and with
its size over `JOINED`.

Rewriting may remove every trace of a tuple, its tombstone included. A marker among the references says up to which version: a
kernel that has not seen everything up to there cannot catch up and is built anew.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from hayase.core.data_classes import dataclass
from hayase.core.errors import DamagedState
from hayase.core.stages import Kernel, Tuples, query_of
from hayase.engine.batch.bodies import to_body
from hayase.engine.home import writing
from hayase.streams import durable
from hayase.streams.row_buffer import MOST_BYTES

__all__ = [
    "Bundle",
    "DamagedStateFile",
    "SegmentRef",
    "Upkeep",
    "read_tuples",
    "reclaimed_up_to",
    "refs_from_json",
    "segments",
    "states_from_json",
]

JOINED = 131_072
"""Most tuples of a joined segment: large enough that segments are few, small enough to be written within a batch."""
FANOUT = 8
"""How many neighbours of the same size class are joined into one."""
SLACK_ROWS = 65_536
"""Superseded tuples that are not worth a rewrite; also the least number of tuples that a rewrite reads."""


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A segment: tuples of one section, in `length` bytes at `start` of a file, written at versions `low` to `high`.

    The first `skip` rows have been rewritten elsewhere. From the event time `until` on, none of the tuples matters.
    """

    section: str
    file: str
    start: int
    length: int
    checksum: str
    rows: int
    low: int
    high: int
    until: int | None = None
    skip: int = 0

    @property
    def held(self) -> int:
        """How many rows belong to the state."""
        return self.rows - self.skip

    @classmethod
    def marker(cls, version: int) -> SegmentRef:
        """A reference without tuples; it says that some tuples written up to `version` may be gone."""
        return cls(_RECLAIMED, "", 0, 0, "", 0, 0, version)


_RECLAIMED = "reclaimed"


def reclaimed_up_to(refs: Iterable[SegmentRef]) -> int:
    """The version up to which tuples may be gone without a trace."""
    return max((ref.high for ref in refs if ref.section == _RECLAIMED), default=0)


def segments(refs: Iterable[SegmentRef]) -> list[SegmentRef]:
    """The references without the marker."""
    return [ref for ref in refs if ref.section != _RECLAIMED]


def states_from_json(
    data: Mapping[str, Mapping[str, Iterable[Mapping[str, Any]]]],
) -> dict[str, dict[int, tuple[SegmentRef, ...]]]:
    """The segments by stage identity and bucket; JSON has texts as keys."""
    return {
        stage: {int(bucket): refs_from_json(refs) for bucket, refs in buckets.items()}
        for stage, buckets in data.items()
    }


def refs_from_json(data: Iterable[Mapping[str, Any]]) -> tuple[SegmentRef, ...]:
    return tuple(SegmentRef(**fields) for fields in data)


class DamagedStateFile(DamagedState):
    """A state file that cannot be used, and the stages that have state in it."""

    def __init__(self, path: Path, damage: str, stages: Collection[str]):
        names = ", ".join(f'"{stage}"' for stage in stages)
        resets = " ".join(dict.fromkeys(map(query_of, stages)))
        few = len(stages) == 1
        super().__init__(
            f"the state of {'stage' if few else 'stages'} {names} {damage}",
            f"restore it from a copy, or compute {'it' if few else 'them'} anew by `hayase reset {resets} --from earliest`",
        )
        self.path, self.damage = path, damage

    def of_all(self, states: Mapping[str, Mapping[int, Sequence[SegmentRef]]]) -> DamagedStateFile:
        """Return the error that names all stages with state in the file, by the states of a manifest."""
        stages = {
            identity.rpartition(".")[0]
            for identity, buckets in states.items()
            if any(ref.file == self.path.name for refs in buckets.values() for ref in refs)
        }
        return DamagedStateFile(self.path, self.damage, sorted(stages)) if stages else self


def read_tuples(directory: Path, ref: SegmentRef, stage: str) -> pa.RecordBatch:
    """The tuples of a segment, memory-mapped from its file; DamagedStateFile if they do not match their checksum."""
    path = directory / ref.file
    try:
        with pa.memory_map(str(path)) as mapped:
            buffer = mapped.read_buffer(mapped.size()).slice(ref.start, ref.length)
    except (OSError, pa.ArrowException) as error:
        raise DamagedStateFile(path, f"cannot be read from {path}: {error}", [stage]) from error
    if len(buffer) != ref.length or xxhash.xxh3_64_hexdigest(buffer) != ref.checksum:
        place = f"between bytes {ref.start} and {ref.start + ref.length}"
        raise DamagedStateFile(path, f"is damaged: {path}, {place}", [stage])
    table = pa.ipc.open_stream(buffer).read_all()
    batches = table.combine_chunks().to_batches()
    batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
    return batch.slice(ref.skip)


@dataclass(slots=True)
class Bundle:
    """The file with the new segments of a bucket in one batch; it is created only if there are any."""

    directory: Path
    name: str
    _parts: list[pa.Buffer | bytes] = field(default_factory=list)
    _size: int = 0

    def add(self, section: str, rows: pa.RecordBatch, low: int, high: int, until: int | None) -> SegmentRef:
        """Add a segment. The reference is valid once the bundle is closed."""
        body = to_body(rows)
        ref = SegmentRef(
            section, self.name, self._size, body.size, xxhash.xxh3_64_hexdigest(body), rows.num_rows, low, high, until
        )
        padding = -body.size % 64  # Arrow wants its buffers aligned
        self._parts += [body, b"\0" * padding]
        self._size += body.size + padding
        return ref

    def close(self) -> None:
        """Write the file, if there are segments, and sync it. The commit syncs the directory."""
        if not self._parts:
            return
        path = self.directory / self.name
        with writing(f"the state file {path}"):
            descriptor = durable.open_file(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
            try:
                for part in self._parts:
                    durable.write(descriptor, memoryview(part))
                durable.fsync_file(descriptor)
            finally:
                os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Brings the segments of one stage and bucket to the next version: appends, drops, rewrites and joins."""

    directory: Path
    bundle: Bundle
    version: int
    stage: str = ""

    def forward(
        self, refs: Sequence[SegmentRef], added: Sequence[Tuples], kernel: Kernel, waiting: Collection[str], clock: int
    ) -> tuple[SegmentRef, ...]:
        """Write the tuples that a batch added, and return the segments after it.

        Tuples whose `until` is before the clock are dropped. The sections `waiting` hold reorder buffers, of which the kernel
        knows nothing.
        """
        result: list[SegmentRef] = []
        kept = [ref for ref in segments(refs) if ref.until is None or ref.until >= clock]
        reclaimed = reclaimed_up_to(refs)
        for section in sorted({ref.section for ref in kept} | {tuples.section for tuples in added}):
            old = [ref for ref in kept if ref.section == section]
            fresh = [
                tuples
                for tuples in added
                if tuples.section == section
                and tuples.rows.num_rows
                and (tuples.until is None or tuples.until >= clock)
            ]
            if section not in waiting:
                changed = sum(tuples.rows.num_rows for tuples in fresh)
                left, rewritten = self._reclaim(section, old, changed, kernel)
                reclaimed = max([reclaimed, *(ref.high for ref in old if ref not in left)])
                old, fresh = left, [*rewritten, *fresh]
            if fresh:
                joined = _segments_to_join(old)
                old = [*old[: len(old) - len(joined)], *self._write(section, joined, fresh)]
            result += old
        return (*result, SegmentRef.marker(reclaimed)) if reclaimed else tuple(result)

    def _write(self, section: str, older: Sequence[SegmentRef], fresh: Sequence[Tuples]) -> list[SegmentRef]:
        """Write the new tuples of a section behind those of the older segments that they are joined with. Returns one segment,
        or several if one Arrow batch cannot hold all."""
        batches = [read_tuples(self.directory, ref, self.stage) for ref in older] + [tuples.rows for tuples in fresh]
        ends = [ref.until for ref in older] + [tuples.until for tuples in fresh]
        until = None if None in ends else max(end for end in ends if end is not None)
        low = older[0].low if older else self.version
        parts: list[list[pa.RecordBatch]] = [[]]
        for rows in batches:
            if parts[-1] and sum(before.nbytes for before in parts[-1]) + rows.nbytes > MOST_BYTES:
                parts.append([])
            parts[-1].append(rows)
        return [self.bundle.add(section, pa.concat_batches(part), low, self.version, until) for part in parts]

    def _reclaim(
        self, section: str, refs: list[SegmentRef], changed: int, kernel: Kernel
    ) -> tuple[list[SegmentRef], list[Tuples]]:
        """Read the oldest tuples again if most are superseded: at most a few times as many as this batch changed. Returns the
        segments that are left, and the live tuples to be rewritten.

        Segments that expire by themselves are left alone.
        """
        endless = [ref for ref in refs if ref.until is None]
        if sum(ref.held for ref in endless) + changed <= 2 * kernel.size(section) + SLACK_ROWS:
            return refs, []
        budget, rewritten = max(SLACK_ROWS, 3 * changed), []
        remains: dict[SegmentRef, list[SegmentRef]] = {}
        for oldest in endless:
            if budget <= 0:
                break
            count = min(oldest.held, budget)
            rows = kernel.live(section, read_tuples(self.directory, oldest, self.stage).slice(0, count), oldest.high)
            if rows.num_rows:
                rewritten.append(Tuples(section, rows))
            budget -= count
            remains[oldest] = [] if count == oldest.held else [replace(oldest, skip=oldest.skip + count)]
        return [left for ref in refs for left in remains.get(ref, [ref])], rewritten


def _segments_to_join(refs: Sequence[SegmentRef]) -> Sequence[SegmentRef]:
    """The newest segments that the next one is joined with: all up to the greatest size class that is full."""
    classes = [_size_class(ref) for ref in refs]
    for size in range(max(classes, default=-1), -1, -1):
        first = next((i + 1 for i in range(len(refs) - 1, -1, -1) if classes[i] > size), 0)
        run = refs[first:]
        small = sum(ref.held for ref in run) <= JOINED and sum(ref.length for ref in run) <= MOST_BYTES
        if classes[first:].count(size) >= FANOUT and small:
            return run
    return ()


def _size_class(ref: SegmentRef) -> int:
    """The size class of a segment: sizes within a factor of `FANOUT` are one class."""
    return (max(ref.held, 1).bit_length() - 1) // (FANOUT.bit_length() - 1)
