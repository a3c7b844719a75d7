"""State as files: immutable segments of tuples, appended batch by batch, named by the manifest.

A batch writes one file per bucket, holding a segment for each stage and section that changed. Upkeep is bounded by what
the batch itself wrote, so the cost of a batch follows the change, not the state:

- a segment none of whose tuples matters any more (`until`) is dropped without being read;
- when more than half of a section's tuples are superseded, the oldest are looked at again and the live ones rewritten;
- runs of small segments are joined into one.

What is looked at again may be gone without a trace, the tombstones of tuples too. A marker among the references says up to
which version that may be so: a kernel that has not seen all until then cannot catch up and is built anew.

Together they keep a section within about twice its live tuples, in a number of segments that grows with its logarithm
and its size over `JOINED`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from hayase.core.errors import DamagedState
from hayase.core.stages import Kernel, Tuples, query_of
from hayase.engine.home import writing
from hayase.streams import durable
from hayase.streams.reorder_buffer import MOST_BYTES

__all__ = [
    "Bundle",
    "SegmentRef",
    "Upkeep",
    "read_tuples",
    "reclaimed_up_to",
    "refs_as_json",
    "refs_from_json",
    "segments",
]

JOINED = 131_072
"""Tuples of a joined segment: large enough to be few, small enough to be written beside a batch."""
FANOUT = 8
"""Neighbours of the same size that are joined into one."""
SLACK_ROWS = 65_536
"""Superseded tuples that are not worth a rewrite; also the least that a rewrite looks at."""


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """Tuples of one section, in `length` bytes at `start` of a file, written at versions `low` to `high`.

    The first `skip` rows have been rewritten elsewhere. `until`: the time from which none of them matters.
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
        return self.rows - self.skip

    @classmethod
    def marker(cls, version: int) -> SegmentRef:
        """No tuples: says that of those written up to `version` some are gone."""
        return cls(_RECLAIMED, "", 0, 0, "", 0, 0, version)


_RECLAIMED = "reclaimed"


def reclaimed_up_to(refs: Iterable[SegmentRef]) -> int:
    """The version up to which tuples may be gone without a trace."""
    return max((each.high for each in refs if each.section == _RECLAIMED), default=0)


def segments(refs: Iterable[SegmentRef]) -> list[SegmentRef]:
    """The references without the marker."""
    return [each for each in refs if each.section != _RECLAIMED]


def refs_as_json(refs: Iterable[SegmentRef]) -> list[dict[str, Any]]:
    return [asdict(each) for each in refs]


def refs_from_json(data: Iterable[Mapping[str, Any]]) -> tuple[SegmentRef, ...]:
    return tuple(SegmentRef(**each) for each in data)


def read_tuples(directory: Path, ref: SegmentRef, stage: str) -> pa.RecordBatch:
    """The tuples of a segment of a stage, mapped from its file and checked against its checksum."""
    path = directory / ref.file
    remedy = f"restore it from a copy, or compute the stage anew by `hayase reset {query_of(stage)} --from earliest`"
    try:
        with pa.memory_map(str(path)) as mapped:
            buffer = mapped.read_buffer(mapped.size()).slice(ref.start, ref.length)
    except (OSError, pa.ArrowException) as error:
        raise DamagedState(f'the state of stage "{stage}" cannot be read from {path}: {error}; {remedy}') from error
    if len(buffer) != ref.length or xxhash.xxh3_64_hexdigest(buffer) != ref.checksum:
        raise DamagedState(
            f'the state of stage "{stage}" is damaged: {path}, between bytes {ref.start} and {ref.start + ref.length}; {remedy}'
        )
    table = pa.ipc.open_stream(buffer).read_all()
    batches = table.combine_chunks().to_batches()
    batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
    return batch.slice(ref.skip)


@dataclass(slots=True)
class Bundle:
    """The file of a bucket's new segments in one batch; opened only when there is something to write."""

    directory: Path
    name: str
    _parts: list[pa.Buffer | bytes] = field(default_factory=list)
    _size: int = 0

    def add(self, section: str, rows: pa.RecordBatch, low: int, high: int, until: int | None) -> SegmentRef:
        """Put tuples into the file; the reference is good once the bundle is closed."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows)
        body = sink.getvalue()
        ref = SegmentRef(
            section, self.name, self._size, body.size, xxhash.xxh3_64_hexdigest(body), rows.num_rows, low, high, until
        )
        padding = -body.size % 64  # Arrow wants its buffers aligned
        self._parts += [body, b"\0" * padding]
        self._size += body.size + padding
        return ref

    def close(self) -> None:
        """Make the file durable, if there is one. Its directory entry is made durable by the commit."""
        if not self._parts:
            return
        path = self.directory / self.name
        with writing(f"the state file {path}"):
            descriptor = durable.opened(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
            try:
                for part in self._parts:
                    durable.write(descriptor, memoryview(part))
                durable.fsync_file(descriptor)
            finally:
                os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Brings the segments of one stage and bucket forward by a batch: appends, drops, rewrites and joins."""

    directory: Path
    bundle: Bundle
    version: int
    stage: str = ""

    def forward(
        self, refs: Sequence[SegmentRef], added: Sequence[Tuples], kernel: Kernel, waiting: Collection[str], clock: int
    ) -> tuple[SegmentRef, ...]:
        """The segments after this batch. Tuples with `until` are gone once that is before the clock; the sections that
        are `waiting` are not the kernel's."""
        result: list[SegmentRef] = []
        kept = [each for each in segments(refs) if each.until is None or each.until >= clock]
        reclaimed = reclaimed_up_to(refs)
        for section in sorted({each.section for each in kept} | {each.section for each in added}):
            mine = [each for each in kept if each.section == section]
            fresh = [
                each
                for each in added
                if each.section == section and each.rows.num_rows and (each.until is None or each.until >= clock)
            ]
            if section not in waiting:
                changed = sum(each.rows.num_rows for each in fresh)
                left, rewritten = self._reclaim(section, mine, changed, kernel)
                reclaimed = max([reclaimed, *(each.high for each in mine if each not in left)])
                mine, fresh = left, [*rewritten, *fresh]
            if fresh:
                older = _segments_to_join(mine)
                mine = [*mine[: len(mine) - len(older)], *self._write(section, older, fresh)]
            result += mine
        return (*result, SegmentRef.marker(reclaimed)) if reclaimed else tuple(result)

    def _write(self, section: str, older: Sequence[SegmentRef], fresh: Sequence[Tuples]) -> list[SegmentRef]:
        """A new segment of the batch's tuples, behind those of older segments that it replaces; several, if one batch of Arrow
        cannot hold all."""
        batches = [read_tuples(self.directory, each, self.stage) for each in older] + [each.rows for each in fresh]
        ends = [each.until for each in older] + [each.until for each in fresh]
        until = None if None in ends else max(end for end in ends if end is not None)
        low = older[0].low if older else self.version
        parts: list[list[pa.RecordBatch]] = [[]]
        for each in batches:
            if parts[-1] and sum(one.nbytes for one in parts[-1]) + each.nbytes > MOST_BYTES:
                parts.append([])
            parts[-1].append(each)
        return [self.bundle.add(section, pa.concat_batches(part), low, self.version, until) for part in parts]

    def _reclaim(
        self, section: str, refs: list[SegmentRef], changed: int, kernel: Kernel
    ) -> tuple[list[SegmentRef], list[Tuples]]:
        """Look at the oldest tuples again when most are superseded: at most a few times as many as this batch changed.

        Segments that end by themselves are left alone.
        """
        endless = [each for each in refs if each.until is None]
        if sum(each.held for each in endless) + changed <= 2 * kernel.size(section) + SLACK_ROWS:
            return refs, []
        budget, rewritten = max(SLACK_ROWS, 3 * changed), []
        looked_at: dict[SegmentRef, list[SegmentRef]] = {}
        for oldest in endless:
            if budget <= 0:
                break
            count = min(oldest.held, budget)
            rows = kernel.live(section, read_tuples(self.directory, oldest, self.stage).slice(0, count), oldest.high)
            if rows.num_rows:
                rewritten.append(Tuples(section, rows))
            budget -= count
            looked_at[oldest] = [] if count == oldest.held else [replace(oldest, skip=oldest.skip + count)]
        return [left for each in refs for left in looked_at.get(each, [each])], rewritten


def _segments_to_join(refs: Sequence[SegmentRef]) -> Sequence[SegmentRef]:
    """The newest segments that the next one should take up: all up to the greatest size class that is full."""
    classes = [_size_class(each) for each in refs]
    for size in range(max(classes, default=-1), -1, -1):
        first = next((i + 1 for i in range(len(refs) - 1, -1, -1) if classes[i] > size), 0)
        run = refs[first:]
        small = sum(each.held for each in run) <= JOINED and sum(each.length for each in run) <= MOST_BYTES
        if classes[first:].count(size) >= FANOUT and small:
            return run
    return ()


def _size_class(ref: SegmentRef) -> int:
    """Sizes within a factor of the fan-out are one class."""
    return (max(ref.held, 1).bit_length() - 1) // (FANOUT.bit_length() - 1)
