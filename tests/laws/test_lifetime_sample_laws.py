"""The timeline of a query against all of its lifetimes: the same rows in any range, in any batches, and counts of all of them."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.engine.results.lifespans import OPEN
from hayase.engine.results.lifetime_samples import Timeline
from hayase.testing import START, at, trial

QUERIES = {
    "recent": "select user, amount from orders [Range 10 seconds]",
    "spend": "select user, sum(amount) as spend from orders group by user",
    "pairs": "select user, amount from orders [Partition By user Rows 2]",
    "large": "select user, amount from orders where amount > 2",
}
BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc"), st.integers(0, 5)), max_size=8),
    min_size=1,
    max_size=5,
)
RANGES = st.lists(st.tuples(st.integers(-5, 60), st.integers(1, 40)), min_size=1, max_size=4)


@settings(max_examples=examples(20))
@given(st.sampled_from(sorted(QUERIES)), BATCHES, RANGES, st.integers(1, 7))
def test_a_range_has_the_rows_whose_lifetimes_touch_it(
    name: str, batches: list[list[tuple[int, str, int]]], ranges: list[tuple[int, int]], bins: int
) -> None:
    with trial() as pipeline:
        pipeline.stream("orders", "time timestamp, user string, amount bigint")
        pipeline.query(name, QUERIES[name])
        clock = 0
        for batch in batches:
            rows = []
            for step, user, amount in batch:
                clock += step
                rows.append({"time": at(clock), "user": user, "amount": amount})
            pipeline.append("orders", rows)
            pipeline.run()
        timeline = Timeline(pipeline.results(name).log)
        known = timeline.bounds()
        for first, length in ranges:
            start = round((START + timedelta(seconds=first)).timestamp() * 1e6)
            end = start + length * 1_000_000
            if known is not None and start < min(end, known[1]):
                check(pipeline.intervals(name), timeline, start, min(end, known[1]), bins)


def check(
    intervals: list[tuple[dict[str, object], object, object]], timeline: Timeline, start: int, end: int, bins: int
) -> None:
    """Compare a range with all lifetimes of the query."""
    is_relation = timeline.log.declaration.lifetimes
    spans = [(row, micros(since), OPEN if until is None else micros(until)) for row, since, until in intervals]
    if is_relation:
        touching = [span for span in spans if span[1] < end and span[2] > start]
    else:
        touching = [span for span in spans if start <= span[1] < end]
    sample = timeline.sample(start, end, 1000, bins)
    rows = sample.rows.to_pylist()
    assert sample.matching == len(touching) == len(rows)
    assert sample.complete
    ends = [min(until, end) for until in sample.ends.tolist()]
    found = sorted(zip(map(repr, map(values, rows)), sample.starts.tolist(), ends))
    assert found == sorted((repr(values(row)), since, min(until, end)) for row, since, until in touching)
    edges = [start + number * (end - start) // bins for number in range(bins + 1)]
    if is_relation:
        counts = [sum(since <= edge < until for _, since, until in touching) for edge in edges[:-1]]
    else:
        counts = [sum(low <= since < high for _, since, _ in touching) for low, high in pairwise(edges)]
    assert sample.density.tolist() == counts
    few = timeline.sample(start, end, 2, bins)
    assert (few.matching, few.density.tolist(), len(few.rows)) == (len(rows), counts, min(2, len(rows)))


def values(row: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if name in ("user", "amount", "spend")}


def micros(time: object) -> int:
    return round(time.timestamp() * 1e6)  # type: ignore[attr-defined]
