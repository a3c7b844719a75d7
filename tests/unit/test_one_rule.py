"""What becomes of a record is the same in every plan, and it is counted once: read = processed + dead + waiting."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from hayase.core.stages import query_of
from hayase.engine.batch.kernel_cache import forget_kernels
from hayase.testing import trial

Outcome = tuple[list[tuple[Any, ...]], list[tuple[str, str, int | None]]]
MOST = 2**63 - 1


def outcome(query: str, records: list[dict[str, Any]], *, schema: str, buckets: int = 3, together: str = "") -> Outcome:
    """The lifetimes of the rows of a query, without how they are called, and the dead letters of it: stage, stream, offset."""
    with trial() as t:
        t.declaration = replace(t.declaration, buckets=buckets)
        t.stream("s", f"ts bigint, {schema}", time="ts", time_unit="s")
        t.query("q", query)
        if together:
            t.query("other", together)
        t.append("s", records)
        t.finish("s")
        t.run()
        letters = [each for each in t.dead_letters() if each["stage"] == "q"]
        figures = t.figures("q")
        assert figures.read == figures.processed + figures.dead + figures.waiting
        assert figures.read == len(records)
        assert (figures.dead, figures.waiting) == (len(letters), 0)
        found = [(*row.values(), start, end) for row, start, end in t.query("q").intervals()]
        return sorted(found, key=repr), sorted((each["stage"], each["stream"], each["offset"]) for each in letters)


TEXTS = [{"ts": at, "k": 1, "v": v} for at, v in enumerate(["1", "2", "x", "4", "5"], start=1)]


@pytest.mark.parametrize("buckets", [1, 3])
@pytest.mark.parametrize(
    "query",
    [
        # shared, by the relation (count(distinct)), by the relation and the stream's own order (GROUP BY another)
        "select count(*) as n, max(v::int) as most from s [Rows 2]",
        "select count(*) as n, max(v::int) as most, count(distinct k) as ks from s [Rows 2]",
        "select count(*) as n, max(v::int) as most from s [Rows 2] where v::int > 0",
        "select count(*) as n, max(w) as most from (select v::int as w from s [Rows 2])",
        "select count(*) as n, max(v::int) as most from s [Partition By k Rows 2] group by k",
        "select count(*) as n, max(v::int) as most from s [Partition By k Rows 2] where v::int > 0 group by k",
        "select count(*) as n, max(v::int) as most, count(distinct v) as vs from s [Partition By k Rows 2] group by k",
        "select count(*) as n, max(w) as most from (select v::int as w, k from s [Partition By k Rows 2]) group by k",
    ],
)
def test_a_record_that_raises_is_counted_by_its_window(query: str, buckets: int) -> None:
    rows, letters = outcome(query, TEXTS, schema="k bigint, v string", buckets=buckets)
    assert letters == [("q", "s", 2)]
    found = [(*row[:2], *row[-2:]) for row in rows]
    assert found == [(1, 1, 1, 2), (1, 2, 3, 4), (1, 4, 4, 5), (2, 2, 2, 3), (2, 5, 5, None)]


NUMBERS = [{"ts": at, "k": 1, "x": x} for at, x in enumerate([5, MOST, 3, 4, MOST - 4], start=1)]


@pytest.mark.parametrize("window", ["Rows 1", "Rows 2 Slide 3", "Rows 3 Slide 2"])
@pytest.mark.parametrize(
    "query",
    [
        "select max(v::int) as most from s [{}] group by k",
        "select max(v::int) as most, count(distinct v) as vs from s [{}] group by k",
        "select max(v::int) as most, count(distinct v) as vs from s [{}] where k > 0 group by k",
        "select count(*) as n from s [{}] where v::int > 0 group by k",
        "select v::int as number from s [{}]",
        "Istream(select distinct number from (select v::int as number, k from s [{}]) where number + k < 9)",
    ],
)
def test_a_record_that_raises_is_refused_if_it_is_never_alive(query: str, window: str) -> None:
    """It is replaced at its own instant, or its block is never full."""
    with trial() as t:
        t.stream("s", "ts bigint, k bigint, v string", time="ts", time_unit="s")
        t.query("q", query.format(f"Partition By k {window}"))
        t.append("s", [{"ts": ts, "k": 1, "v": v} for ts, v in ((1, "x"), (1, "1"), (1, "2"), (2, "y"))])
        t.finish("s")
        t.run(batch_rows=1)
        assert sorted((each["stream"], each["offset"]) for each in t.dead_letters()) == [("s", 0), ("s", 3)]


@pytest.mark.parametrize(
    "query",
    [
        "select sum(x) as total, count(*) as n from s [Rows 2]",
        "select sum(x) as total, count(*) as n, count(distinct k) as ks from s [Rows 2]",
        "select sum(x) as total, count(*) as n from s [Partition By k Rows 2] group by k",
        "select k, sum(x) as total, count(*) as n from s [Rows 2] group by k",
        "select sum(x) as total, count(*) as n from s [Range 2 seconds]",
        "select sum(x) as total, count(*) as n from s [Range 2 seconds Slide 1 second]",
        # beside aggregates that only shared windows have
        "select sum(x) as total, count(*) as n, first(x) as f from s [Rows 2]",
        "select sum(x) as total, count(*) as n, last(x) as f from s [Partition By k Rows 2] group by k",
        "select sum(x) as total, count(*) as n, first(x) as f from s [Range 2 seconds Slide 1 second]",
        "select k, sum(x) as total, count(*) as n, arg_max(x, ts) as f from s [Range 2 seconds Slide 1 second] group by k",
        "select sum(x) as total, count(*) as n, approx_count_distinct(x) as f from s [Rows 2]",
    ],
)
def test_a_sum_that_leaves_64_bits_refuses_the_record(query: str) -> None:
    rows, letters = outcome(query, NUMBERS, schema="k bigint, x bigint")
    assert letters == [("q", "s", 1)]
    shift = 1 if query.startswith("select k") else 0
    found = [(*row[shift : shift + 2], *row[-2:]) for row in rows]
    assert sorted(found, key=lambda row: row[2]) == [(5, 1, 1, 3), (3, 1, 3, 4), (7, 2, 4, 5), (MOST, 2, 5, None)]


@pytest.mark.parametrize(
    "query",
    [
        "select a.x from s [Range 5 seconds] as a join s [Range 5 seconds] as b on a.k = b.k",
        "select a.x from s [Range 5 seconds] as a, s [Range 5 seconds] as b where a.k = b.k and a.v::int < 9 and b.v::int < 9",
    ],
)
def test_a_record_of_a_self_join_is_counted_once(query: str) -> None:
    records = [{"ts": at, "k": 1, "x": at, "v": "7"} for at in (5, 6, 2, 7)]
    records.append({"ts": 8, "k": 1, "x": 8, "v": "seven"})
    _, letters = outcome(query, records, schema="k bigint, x bigint, v string")
    late, raising = ("q", "s", 2), ("q", "s", 4)
    assert letters == ([late, raising] if "v" in query else [late])


@pytest.mark.parametrize(
    "query",
    [
        "Rstream(select v::int as m from s [Now])",  # record by record
        "Rstream(select distinct x as m from s [Now])",
        "Rstream(select v::int as m from s [Now] where x > 0)",
        "Rstream(select max(v::int) as m from s [Now])",
        "Rstream(select v::int as m from s [Range 1 second])",
    ],
)
def test_a_late_record_is_in_no_window(query: str) -> None:
    records = [{"ts": at, "x": at, "v": str(at)} for at in (5, 6, 2, 7)]
    with trial() as t:
        t.stream("s", "ts bigint, x bigint, v string", time="ts", time_unit="s")
        t.query("q", query)
        t.append("s", records)
        t.finish("s")
        t.run()
        assert [row["m"] for row in t.query("q").rows()] == [5, 6, 7]
        assert [(query_of(each["stage"]), each["offset"]) for each in t.dead_letters()] == [("q", 2)]


def test_a_view_over_a_window_refuses_late_records_for_its_readers() -> None:
    with trial() as t:
        t.stream("s", "ts bigint, x bigint", time="ts", time_unit="s")
        t.query("now", "Rstream(select x from s [Now])")
        t.query("plain", "select x from s")
        t.query("behind", "select x + 1 as y from now")
        t.query("anew", "Rstream(select x from plain [Now])")
        for batch in ((5, 6), (2, 7), (3,)):
            t.append("s", [{"ts": at, "x": at} for at in batch])
            t.run()
        t.finish("s")
        t.run()
        found = {
            name: [next(iter(row.values())) for row in t.query(name).rows()]
            for name in ("now", "plain", "behind", "anew")
        }
        assert found == {"now": [5, 6, 7], "plain": [2, 3, 5, 6, 7], "behind": [6, 7, 8], "anew": [5, 6, 7]}
        letters = sorted((each["stage"], each["offset"]) for each in t.dead_letters())
        assert letters == [(name, offset) for name in ("anew", "behind", "now") for offset in (2, 4)]


@pytest.mark.parametrize(
    ("window", "group"),
    [
        ("[Rows 3]", ""),
        ("[Partition By k Rows 3]", "group by k"),
        ("[Range 3 seconds Slide 2 seconds]", ""),
        ("[Range 4 seconds Slide 2 seconds]", "group by k"),
        ("[Range 2 seconds, 5 seconds Slide 1 second]", ""),
        ("[Partition By k Rows 2, 4]", "group by k"),
        ("[Rows 2 Slide 2]", ""),
        ("[Rows 3 Slide 2]", ""),
        ("[Rows 2 Slide 3]", ""),
        ("[Rows 4 Slide 3]", "where x <> 5"),
        ("[Rows 2, 5 Slide 2]", ""),
        ("[Partition By k Rows 4 Slide 2]", "group by k"),
        ("[Partition By k Rows 3 Slide 2]", "where x <> 5 group by k"),
        ("[Partition By k Rows 2, 5 Slide 3]", "group by k"),
    ],
)
def test_what_overflows_is_the_same_beside_every_aggregate(window: str, group: str) -> None:
    """The relation's aggregate (count(distinct)) and shared windows (others), in batches between which workers are lost."""
    random = Random(1)
    sizes = [MOST, -MOST - 1, MOST // 2, -MOST // 2, 1, 5, -3]
    records = [
        {"ts": at // 2 + random.choice([0, 0, 1, 2]), "k": random.randrange(2), "x": random.choice(sizes)}
        for at in range(30)
    ]
    told = []
    for beside, size in (
        ("count(distinct k) as ks", 30),
        ("count(distinct k) as ks", 5),
        ("first(ts) as f", 7),
        ("arg_max(k::string, ts) as f, approx_count_distinct(x) as g", 4),
    ):
        with trial() as t:
            t.declaration = replace(t.declaration, buckets=2)
            t.stream("s", "ts bigint, k bigint, x bigint", time="ts", time_unit="s", slack="2 seconds")
            t.query("q", f"select sum(x) as total, count(*) as n, min(x) as low, {beside} from s {window} {group}")
            for first in range(0, len(records), size):
                t.append("s", records[first : first + size])
                t.run()
                forget_kernels()
            t.finish("s")
            t.run()
            letters = [each["offset"] for each in t.dead_letters() if each["offset"] is not None]
            rows = [
                ({name: row[name] for name in ("total", "n", "low")}, *span) for row, *span in t.query("q").intervals()
            ]
            instants = range(-1, 25)
            alive = [[row for row, start, end in rows if start <= at and (end is None or at < end)] for at in instants]
            told.append((sorted(letters), [sorted(each, key=repr) for each in alive]))
            figures = t.figures("q")
            assert figures.read == figures.processed + figures.dead + figures.waiting
            assert figures.dead == len(letters)
    assert all(each == told[0] for each in told)
    assert told[0][0]


@pytest.mark.parametrize("size", [4, 1])
@pytest.mark.parametrize("window", ["[Rows 3 Slide 2]", "[Partition By k Rows 3 Slide 2]"])
@pytest.mark.parametrize("beside", ["count(distinct k) as f", "last(x) as f"])
def test_a_record_whose_block_is_full_in_a_later_batch_is_refused_with_its_offset(
    beside: str, window: str, size: int
) -> None:
    records = [{"ts": at, "k": 1, "x": x} for at, x in enumerate([5, 1, MOST, 2], start=1)]
    with trial() as t:
        t.stream("s", "ts bigint, k bigint, x bigint", time="ts", time_unit="s")
        group = "group by k" if "Partition" in window else ""
        t.query("q", f"select sum(x) as total, count(*) as n, {beside} from s {window} {group}")
        for first in range(0, len(records), size):
            t.append("s", records[first : first + size])
            t.run()
            forget_kernels()
        t.finish("s")
        t.run()
        assert [(each["stream"], each["offset"]) for each in t.dead_letters()] == [("s", 2)]
        assert (t.figures("q").dead, t.figures("q").processed) == (1, 3)
        found = [(row["total"], row["n"], *span) for row, *span in t.query("q").intervals() if row["n"]]
        assert found == [(6, 2, 2, 4), (3, 2, 4, None)]


@pytest.mark.parametrize("last", [4, 6, 7])
@pytest.mark.parametrize("beside", ["count(distinct k) as f", "last(x) as f"])
def test_a_record_is_refused_when_it_begins(beside: str, last: int) -> None:
    """At 6, the next multiple of the slide; it is no dead letter if the stream ends before."""
    records = [{"ts": ts, "k": 1, "x": x} for ts, x in ((1, 1), (4, MOST), (last, 2))]
    with trial() as t:
        t.stream("s", "ts bigint, k bigint, x bigint", time="ts", time_unit="s")
        t.query("q", f"select sum(x) as total, count(*) as n, {beside} from s [Range 6 seconds Slide 3 seconds]")
        for record in records:
            t.append("s", [record])
            t.run()
            forget_kernels()
        t.finish("s")
        t.run()
        found = [(each["stream"], each["offset"]) for each in t.dead_letters()]
        assert found == ([("s", 1)] if last >= 6 else [])
        figures = t.figures("q")
        assert (figures.read, figures.processed, figures.dead) == (3, 3 - len(found), len(found))
