"""Laws of the running totals: equal to recomputation from scratch, for any cut into batches, restore and rewrite."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hayase.core.stages import OFFSET, TIME, Outcome
from hayase.windows.totals import SECTION, Count, EventTime, Key, RunningTotals, Sum, TotalsConfig

MAPPED = pa.schema(
    [("k", pa.string()), ("f", pa.float64()), ("i", pa.int64()), ("d", pa.decimal128(38, 2)), ("x", pa.float64())]
)
KEYS = ("k", "f")
CONFIG = TotalsConfig(
    KEYS,
    (Sum("i"), Key("f"), Count(), Sum("x"), Count("i"), Sum("d"), EventTime(1000), Key("k")),
    MAPPED,
    pa.schema(
        {
            "si": pa.int64(),
            "f": pa.float64(),
            "n": pa.int64(),
            "sx": pa.float64(),
            "ni": pa.int64(),
            "sd": pa.decimal128(38, 2),
            "ms": pa.int64(),
            "k": pa.string(),
        }
    ),
)
Row = tuple[Any, ...]

big = st.sampled_from([2**63 - 1, -(2**63), 2**62, -(2**62)])
wide = st.sampled_from(["9" * 36 + ".99", "-" + "9" * 36 + ".99", "6" + "0" * 35 + ".00"]).map(Decimal)
# the first example loads compiled loops
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
rows_strategy = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "", None]),
        st.sampled_from([0.0, -0.0, math.nan, None]),
        st.none() | st.integers(-5, 5) | big,
        st.none() | st.decimals(-5, 5, places=2) | wide,
        st.none() | st.sampled_from([1e17, -1e17, 0.1]) | st.floats(-1e300, 1e300),
    ),
    max_size=40,
)
cuts = st.lists(st.integers(0, 40), max_size=5)


def batch(rows: Sequence[Row], first: int) -> pa.RecordBatch:
    columns = [pa.array([row[at] for row in rows], each.type) for at, each in enumerate(MAPPED)]
    offsets = range(first, first + len(rows))
    columns += [pa.array([offset * 1000 for offset in offsets], pa.int64()), pa.array(offsets, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, [*MAPPED.names, TIME, OFFSET])


def pieces(rows: Sequence[Row], where: Sequence[int]) -> list[tuple[int, Sequence[Row]]]:
    """The rows cut at some places: (the position of the first, the rows)."""
    edges = sorted({0, *(min(cut, len(rows)) for cut in where)})
    return [(first, rows[first:stop]) for first, stop in zip(edges, [*edges[1:], len(rows)])]


def bits(outcomes: Sequence[Outcome]) -> tuple[list[Any], list[int]]:
    """Output rows and offsets of refused rows, comparable to the last bit: floats as text, which keeps NaN equal."""
    rows = [repr(row) for outcome in outcomes for row in outcome.rows.to_pylist()]
    return rows, [len(outcome.refused[0]) for outcome in outcomes if len(outcome.refused[0])]


def feed(kernel: RunningTotals, parts: Sequence[tuple[int, Sequence[Row]]], version: int) -> list[Outcome]:
    return [kernel.process([batch(rows, first)], 0, version + at) for at, (first, rows) in enumerate(parts)]


class Model:
    """The totals in exact arithmetic, one row at a time."""

    def __init__(self) -> None:
        self.of: dict[Any, list[Any]] = {}

    def add(self, row: Row) -> list[Any] | None:
        """Count, count(i) and the exact totals after this row, None if it overflows."""
        key = (row[0], "nan" if row[1] is not None and math.isnan(row[1]) else (row[1],))
        count, seen, whole, exact, floating = self.of.get(key, [0, 0, None, None, []])
        if row[2] is not None:
            seen, whole = seen + 1, (whole or 0) + row[2]
        if row[3] is not None:
            exact = (exact or 0) + Fraction(row[3])
        if row[4] is not None:
            floating = [*floating, row[4]]
        if not -(2**63) <= (whole or 0) < 2**63 or abs(exact or 0) * 100 >= 10**38:
            return None
        self.of[key] = [count + 1, seen, whole, exact, floating]
        return self.of[key]


@given(rows_strategy, cuts)
@example([("a", 0.0, None, None, number) for number in (0.1, 1e17, 0.1, -1e17)], [1])
@untimed
def test_totals_are_those_recomputed_from_scratch(rows: list[Row], where: list[int]) -> None:
    model, kernel = Model(), RunningTotals(CONFIG)
    for version, (first, part) in enumerate(pieces(rows, where)):
        outcome = kernel.process([batch(part, first)], 0, version)
        results, refused = iter(outcome.rows.to_pylist()), []
        for at, row in enumerate(part):
            expected = model.add(row)
            if expected is None:
                refused.append(at)
                continue
            count, seen, whole, exact, floating = expected
            result = next(results)
            assert repr((result["k"], result["f"])) == repr(row[:2])
            assert (result["n"], result["ni"], result["si"], result["ms"]) == (count, seen, whole, first + at)
            assert (None if result["sd"] is None else Fraction(result["sd"])) == exact
            assert (result["sx"] is None) == (not floating)
            if floating:
                # Neumaier: an error of one rounding of the result and of n^2 squared roundings of the terms
                total, size = sum(map(Fraction, floating)), sum(abs(Fraction(number)) for number in floating)
                allowed = (
                    abs(total) * Fraction(2, 2**53) + size * Fraction(len(floating) ** 2, 2**105) + Fraction(5e-324)
                )
                assert abs(Fraction(result["sx"]) - total) <= allowed
        assert next(results, None) is None
        assert outcome.refused[0].rows.tolist() == refused
    assert kernel.size(SECTION) == len(model.of)


@given(rows_strategy, cuts, cuts)
@untimed
def test_how_a_run_is_cut_into_batches_makes_no_difference(rows: list[Row], one: list[int], other: list[int]) -> None:
    first, second = (bits(feed(RunningTotals(CONFIG), pieces(rows, where), 1)) for where in (one, other))
    assert first[0] == second[0]
    assert sum(first[1]) == sum(second[1])


@dataclass
class Segments:
    """State as an engine keeps it: segments of tuples and their versions, which it rewrites and joins as it likes."""

    data: st.DataObject
    held: list[tuple[pa.RecordBatch, int]] = field(default_factory=list)

    def forward(self, kernel: RunningTotals, outcome: Outcome, version: int) -> None:
        fresh = [tuples.rows for tuples in outcome.state]
        if self.held and self.data.draw(st.booleans(), "rewrite the oldest tuples"):
            oldest, written = self.held.pop(0)
            count = self.data.draw(st.integers(1, oldest.num_rows), "of them")
            fresh.append(kernel.live(SECTION, oldest.slice(0, count), written))
            if count < oldest.num_rows:
                self.held.insert(0, (oldest.slice(count), written))
        if self.held and self.data.draw(st.booleans(), "join with the segment before"):
            fresh.insert(0, self.held.pop()[0])
        rows = pa.concat_batches(fresh) if fresh else None
        if rows is not None and rows.num_rows:
            self.held.append((rows, version))

    def restore(self, kernel: RunningTotals, after: int = 0) -> None:
        for rows, version in self.held:
            step = self.data.draw(st.integers(1, 50), "rows at a time")
            for first in range(0, rows.num_rows if version > after else 0, step):
                kernel.restore(SECTION, rows.slice(first, step), version)


@given(rows_strategy, cuts, st.integers(0, 6), st.data())
@untimed
def test_restored_and_continued_equals_unbroken(
    rows: list[Row], where: list[int], broken: int, data: st.DataObject
) -> None:
    """Whether it starts from all segments, from all of them twice, or follows the segments that it missed."""
    parts = pieces(rows, where)
    broken = min(broken, len(parts))
    unbroken, kernel = feed(RunningTotals(CONFIG), parts, 1), RunningTotals(CONFIG)
    segments, follower, followed = Segments(data), RunningTotals(CONFIG), 0
    for version, part in enumerate(parts[:broken], 1):
        (outcome,) = feed(kernel, [part], version)
        segments.forward(kernel, outcome, version)
        if version == broken or data.draw(st.booleans(), "catch up"):
            segments.restore(follower, followed)
            followed = version
    restored, again = RunningTotals(CONFIG), RunningTotals(CONFIG)
    segments.restore(restored)
    segments.restore(again)
    segments.restore(again)
    assert len({one.size(SECTION) for one in (kernel, follower, restored, again)}) == 1
    for one in (kernel, follower, restored, again):
        assert bits(feed(one, parts[broken:], broken + 1)) == bits(unbroken[broken:])


@given(rows_strategy, cuts, st.data())
@untimed
def test_kernels_with_different_pasts_rewrite_the_same(rows: list[Row], where: list[int], data: st.DataObject) -> None:
    """A batch that runs again elsewhere gives the same bytes: what is live does not depend on how one knows it."""
    segments, kernel = Segments(data), RunningTotals(CONFIG)
    parts = pieces(rows, where)
    for version, part in enumerate(parts, 1):
        (outcome,) = feed(kernel, [part], version)
        segments.forward(kernel, outcome, version)
    restored = RunningTotals(CONFIG)
    segments.restore(restored)
    for each in (kernel, restored):
        feed(each, [(0, rows[:3])], len(parts) + 1)
    for tuples, version in segments.held:
        one, other = (repr(each.live(SECTION, tuples, version).to_pylist()) for each in (kernel, restored))
        assert one == other
