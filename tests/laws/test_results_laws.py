"""Results equal what a look at every single lifetime gives, whatever the batches, buckets, snapshots and upkeep."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.core.declarations import Retention, StreamDeclaration
from hayase.core.errors import HayaseError
from hayase.engine.results import snapshots
from hayase.engine.results.query_results import Results
from hayase.streams import StreamLog

DECLARATION = StreamDeclaration(
    "r", "v bigint, row_id bigint, valid_from bigint, valid_to bigint, changed_at bigint", "changed_at",
    time_unit="us", ordered=True, lifetimes=True, retention=Retention(size=0),
)  # fmt: skip


@dataclass(frozen=True)
class Life:
    """A row's life; `told` says that its end is known when it appears."""

    value: int
    start: int
    end: int | None
    told: bool


lives = st.builds(
    lambda value, start, length, told: Life(value, start, None if length is None else start + length, told),
    st.integers(0, 3), st.integers(0, 30), st.none() | st.integers(1, 15), st.booleans(),
)  # fmt: skip


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Life], list[int], list[str], int]:
    """Lives, the clocks of batches, what is done after each batch, and the number of buckets."""
    clocks = sorted(draw(st.sets(st.integers(1, 40), min_size=1, max_size=8)))
    deeds = draw(st.lists(st.sampled_from(["", "keep", "compact", "keep trim", "keep trim half", "compact keep"]),
                          min_size=len(clocks), max_size=len(clocks)))  # fmt: skip
    return (
        draw(st.lists(lives, min_size=draw(st.sampled_from([0, 15])), max_size=40)),
        clocks,
        deeds,
        draw(st.integers(1, 3)),
    )


class Writer:
    """Writes lives as the stage of a query does: batch by batch, a file for every bucket, the clock with the last."""

    def __init__(self, home: Path, lives: list[Life], buckets: int):
        self.log = StreamLog.ensure(home, DECLARATION)
        self.lives, self.buckets, self.clock, self.files = lives, buckets, -1, 0

    def batch(self, clock: int, parts: int | None = None) -> None:
        tables = [table for bucket in range(parts or self.buckets) if (table := self._table(bucket, clock)).num_rows]
        for number, table in enumerate(tables, 1):
            self.files += 1
            staged = self.log.stage(self.log.path / "staging", f"{self.files}", table, now=0)
            self.log.publish(staged, clock if parts is None and number == len(tables) else None)
        if parts is None:
            self.log.advance(clock)
            self.clock = clock

    def _table(self, bucket: int, clock: int) -> pa.Table:
        mine = [each for each in enumerate(self.lives) if each[0] % self.buckets == bucket]
        rows = [
            self._row(at, each, each.start, told=each.told or (each.end or 99) < clock)
            for at, each in mine
            if self.clock <= each.start < clock
        ]
        rows += [
            self._row(at, each, each.end, told=True)
            for at, each in mine
            if each.end is not None and not each.told and each.start < self.clock <= each.end < clock
        ]
        return pa.Table.from_pylist(sorted(rows, key=lambda row: row["changed_at"]), schema=DECLARATION.arrow_schema)

    @staticmethod
    def _row(at: int, life: Life, changed_at: int | None, told: bool) -> dict[str, Any]:
        return {"v": life.value, "row_id": at, "valid_from": life.start, "valid_to": life.end if told else None,
                "changed_at": changed_at}  # fmt: skip

    def known_end(self, life: Life) -> int | None:
        """The end as far as it is told by the last clock."""
        return life.end if life.end is not None and (life.told or life.end < self.clock) else None

    def alive(self, time: int) -> Counter[int]:
        return Counter(each.value for each in self.lives if each.start <= time < (each.end or 99))


@settings(max_examples=examples(20, 500))
@given(histories())
def test_snapshots_intervals_and_changes_are_those_of_the_lives(
    history: tuple[list[Life], list[int], list[str], int],
) -> None:
    lives, clocks, deeds, buckets = history
    with tempfile.TemporaryDirectory() as home, mock.patch.object(snapshots, "LEAST_UNDER_RETENTION", 3):
        writer = Writer(Path(home), lives, buckets)
        results = Results(writer.log)
        since = 0  # what is before may have gone
        for clock, deed in zip(clocks, deeds):
            writer.batch(clock)
            if "keep" in deed:
                kept = snapshots.update_snapshots(writer.log, 0)
            if "compact" in deed:
                writer.log.compact(at_least=2)
            if "trim" in deed and writer.log.trim(kept // 2 if "half" in deed else kept, 0):
                since = min(each.clock for each in snapshots.snapshots(writer.log, writer.log.index())) - 1
            check(writer, results, since)


def check(writer: Writer, results: Results, since: int) -> None:
    assert results.final() == writer.clock - 1 or writer.clock == 0
    for time in range(since, writer.clock):
        rows = results.at(time)
        assert Counter(row["v"] for row in rows) == writer.alive(time), time
        assert rows == results.at(time)
    begun = [each for each in writer.lives if each.start < writer.clock]
    told = [(each.value, each.start, writer.known_end(each)) for each in begun]
    found = [(row["v"], start, end) for row, start, end in results.intervals()]
    if since == 0:
        assert Counter(found) == Counter(told)
    else:  # what ended before the first snapshot may have gone
        assert Counter(each for each in found if (each[2] or 99) > since) == Counter(
            each for each in told if (each[2] or 99) > since
        )
    assert [each[1] for each in found] == sorted(each[1] for each in found)
    events = [(start, "+", value) for value, start, _ in found]
    events += [(end, "-", value) for value, _, end in found if end is not None and end < writer.clock]
    changes = [(time, sign, row["v"]) for time, sign, row in results.changes()]
    assert Counter(changes) == Counter(events)
    order = [(time, sign == "+") for time, sign, _ in changes]
    assert order == sorted(order)


@settings(max_examples=examples(12, 250))
@given(histories())
def test_a_batch_that_is_half_there_is_not_seen(history: tuple[list[Life], list[int], list[str], int]) -> None:
    lives, clocks, _, buckets = history
    with tempfile.TemporaryDirectory() as home, mock.patch.object(snapshots, "LEAST_UNDER_RETENTION", 1):
        writer = Writer(Path(home), lives, buckets + 1)
        results = Results(writer.log)
        for clock in clocks[:-1]:
            writer.batch(clock)
        if len(clocks) > 1:
            writer.batch(clocks[-1], parts=1)
            snapshots.update_snapshots(writer.log, 0)
            check(writer, results, 0)
            with pytest.raises(HayaseError, match=f"final up to {clocks[-2] - 1}, "):
                results.at(clocks[-2])
