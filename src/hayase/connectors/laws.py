"""The laws of sources and sinks, as checks for your own: `hayase.testing.check_source` and `check_sink`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa

from hayase.connectors.sink import HEADS, Changes, Position, Sink
from hayase.connectors.source import Source
from hayase.core.errors import HayaseError, PositionMoved
from hayase.streams.records import Conformed

__all__ = ["LawBroken", "check_sink", "check_source"]

_LONGEST = 10_000
"""Reads after which a source counts as endless."""


class LawBroken(HayaseError):
    """A source or a sink does not do what its law says."""


def check_source(make: Callable[[], Source]) -> dict[str, list[Any]]:
    """Return all records of a source that has an end, by partition; LawBroken says which law it breaks.

    Read from any position that it has named, a source made anew gives the same records behind that position. Positions grow, and
    reading gets to the ends. The records of a source that conforms them itself are its rows and what it refuses.
    """
    with closing(make()) as source:
        starts, ends = dict(source.starts()), dict(source.ends())
        if starts.keys() != ends.keys():
            raise LawBroken(f"starts names the partitions {sorted(starts)}, and ends {sorted(ends)}")
        records, places = _read_all(source, starts, ends)
    for partition, known in places.items():
        for position, before in known.items():
            with closing(make()) as again:
                others = {**ends, partition: position}
                behind, _ = _read_all(again, others, ends)
            if behind[partition] != records[partition][before:]:
                raise LawBroken(
                    f'read again from position {position} of partition "{partition}", the source gives other records'
                )
    return records


def _read_all(
    source: Source, starts: Mapping[str, int], ends: Mapping[str, int]
) -> tuple[dict[str, list[Any]], dict[str, dict[int, int]]]:
    """Read to the ends; return the records, and how many of them come before each position, by partition."""
    positions = dict(starts)
    records: dict[str, list[Any]] = {partition: [] for partition in starts}
    places: dict[str, dict[int, int]] = {partition: {at: 0} for partition, at in starts.items()}
    for _ in range(_LONGEST):
        if all(positions[partition] >= end for partition, end in ends.items()):
            return records, places
        for portion in source.read(dict(positions), 0.1):
            before = positions.get(portion.partition)
            if before is None:
                raise LawBroken(f'a portion comes from partition "{portion.partition}", which was not asked for')
            plain = _plain(portion.records)
            if portion.next < before or (plain and portion.next == before):
                raise LawBroken(
                    f'{len(plain)} records of partition "{portion.partition}" end at position {portion.next}, read from {before}'
                )
            positions[portion.partition] = portion.next
            records[portion.partition] += plain
            places[portion.partition][portion.next] = len(records[portion.partition])
    raise LawBroken(f"the source does not get to {dict(ends)}: it is at {positions} after {_LONGEST:,} reads")


def _plain(records: Any) -> list[Any]:
    if isinstance(records, Conformed):
        return [*records.rows.to_pylist(), *(refused.record for refused in records.refused)]
    if isinstance(records, pa.Table | pa.RecordBatch):
        return list(records.to_pylist())
    return list(records)


def check_sink(make: Callable[[], Sink], rows: pa.Table, held: Callable[[], list[Any]]) -> None:
    """Check a sink whose target is empty: `rows` are some rows that fit it, at least two, and `held` returns what its target
    holds, in any order. LawBroken says which law the sink breaks.

    The position is stored with the changes, survives the sink, and a write that does not follow it changes nothing.
    """
    if rows.num_rows < 2:
        raise HayaseError("give at least two rows")
    first, second = (_appearing(rows.slice(at, 1), at) for at in range(2))
    one, two = Position(1, "a.1.1"), Position(2, "a.2.1")
    with closing(make()) as sink:
        if (found := sink.position()) is not None:
            raise LawBroken(f"the target is empty, and its position is {found}")
        sink.write(Changes(first, None, one))
        if sink.position() != one:
            raise LawBroken(f"after a write up to {one}, the position is {sink.position()}")
    before = held()
    with closing(make()) as sink:
        if sink.position() != one:
            raise LawBroken(f"a new sink has the position {sink.position()}, not {one}")
        for wrong in (None, Position(0, "a.0.1"), two):
            try:
                sink.write(Changes(second, wrong, Position(3, "a.3.1")))
            except PositionMoved:
                continue
            raise LawBroken(f"a write behind {wrong} was accepted, though the position is {one}")
    if held() != before:
        raise LawBroken(f"a write that was refused has changed the target from {before} to {held()}")
    with closing(make()) as sink:
        sink.position()
        sink.write(Changes(second, one, two))
    if held() == before:
        raise LawBroken("a write has not changed the target")


def _appearing(rows: pa.Table, number: int) -> pa.Table:
    heads = [pa.array([number + 1], pa.int64()), pa.array([True]), pa.array([number + 1], pa.int64())]
    return pa.table([*heads, *rows.columns], names=[*HEADS, *rows.column_names])
