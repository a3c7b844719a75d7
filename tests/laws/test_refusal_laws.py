"""What cannot be computed, and sums that overflow, come to the same in windows that share a pass and in single ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.testing import trial

LARGE = 2**62
MOST = "count(*) as n, max(v::int) as most"
SUMS = "count(*) as n, sum(x) as total"
GUARDED = f"{SUMS}, last(x) as latest"  # which only shared windows compute
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 1), st.sampled_from(["1", "2", "x"]), st.sampled_from([0, 1, LARGE, -LARGE])
    ),
    min_size=1,
    max_size=10,
)


@st.composite
def windows(draw: st.DrawFn) -> tuple[str, str, str]:
    """A window, the grouping that makes it one of a sequence, and a condition."""
    where = draw(st.sampled_from(["", " where v::int > 0"]))
    slide = draw(st.integers(1, 3))
    form = draw(st.sampled_from(["rows", "partition", "range"]))
    if form == "range":
        return f"[Range {draw(st.integers(1, 4))} seconds Slide {slide} seconds]", "", where
    rows = f"Rows {draw(st.integers(1, 4))}" + (f" Slide {slide}" if slide > 1 else "")
    return (f"[{rows}]", "", where) if form == "rows" else (f"[Partition By k {rows}]", " group by k", where)


def alive(t: Any, query: str, columns: tuple[str, ...], at: int) -> list[Any]:
    """Some columns of the rows of a query at an instant."""
    found = [row for row, since, until in t.query(query).intervals() if since <= at and (until is None or at < until)]
    return sorted([tuple(row[name] for name in columns) for row in found], key=repr)


@settings(max_examples=examples(7), suppress_health_check=[HealthCheck.too_slow])
@given(RECORDS, windows(), st.sampled_from([MOST, SUMS, GUARDED]), st.integers(1, 3), st.sampled_from([None, 3]))
def test_what_is_refused_is_the_same_in_every_plan(
    records: list[tuple[int, int, str, int]],
    window: tuple[str, str, str],
    calls: str,
    buckets: int,
    batch_rows: int | None,
) -> None:
    """`count(distinct)` keeps a query from sharing windows.

    A dead letter is a record of the stream, the same in every plan, or a result row whose sum does not fit because a row has
    ended. The latter belongs to the output of its query: there is one for each such row, and the rows of queries that select
    other columns differ.
    """
    text, group, where = window
    rows, now = [], 0
    for gap, k, v, x in records:
        now += gap
        rows.append({"ts": now, "k": k, "v": v, "x": x})
    apart = SUMS if calls == GUARDED else calls
    with trial() as t:
        t.declaration = replace(t.declaration, buckets=buckets)
        t.stream("s", "ts bigint, k bigint, v string, x bigint", time="ts", time_unit="s")
        t.query("q", f"select {calls} from s {text}{where}{group}")
        t.query("apart", f"select {apart}, count(distinct v) as vs from s {text}{where}{group}")
        t.append("s", rows)
        t.finish("s")
        t.run(batch_rows=batch_rows)
        refused: dict[str, list[int]] = {"q": [], "apart": []}
        for name, offsets in refused.items():
            letters = [each for each in t.dead_letters() if each["stage"] == name]
            assert {(each["stream"], each["offset"] is None) for each in letters} <= {("s", False), (name, True)}
            offsets += sorted(each["offset"] for each in letters if each["offset"] is not None)
            unfit = [row for row, _, _ in t.query(name).intervals() if row["n"] and row.get("total", 0) is None]
            figures = t.figures(name)
            assert figures.read == figures.processed + figures.dead + figures.waiting == len(rows)
            assert figures.dead + figures.spoiled == len(letters) == len(offsets) + len(unfit)
        assert refused["q"] == refused["apart"]
        if calls == MOST:
            assert refused["q"] == [at for at, row in enumerate(rows) if row["v"] == "x"]
        columns = ("n", "most") if calls == MOST else ("n", "total")
        for at in range(now + 1):
            assert alive(t, "q", columns, at) == alive(t, "apart", columns, at), at
