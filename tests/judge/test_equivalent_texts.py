"""Texts that mean the same by docs/semantics.md give the same rows at every instant, and the same records, in every plan.

Each is compared with a direct reading of the definitions over whole seconds (`expected`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from product import Plan, plans
from test_snapshots import EXAMPLES

from hayase.testing import Trial, trial

pytestmark = pytest.mark.timeout(600 + 5 * EXAMPLES)

WINDOWS: list[tuple[tuple[str, ...], int, int]] = [
    (("[Now]", "[Range 1 second]", "[Range 1 second Slide 1 second]", "[Range 500 ms Slide 1 second]"), 1, 1),
    (("[Range 3 seconds]", "[Range 3 seconds Slide 1 second]", "[Range 3000 ms]"), 3, 1),
    (("[Range 4 seconds Slide 2 seconds]", "[Range 4000 ms Slide 2000 ms]"), 4, 2),
]
"""Windows that are the same where times are whole seconds, with their length and slide."""
SOURCES = ["s {w}", "(select * from s {w})", "(select x, y from s {w})", "(select * from (select * from s {w}) as u)"]
"""Ways to write what is read; a query that is read by its name is one more."""
BODIES: list[tuple[str, ...]] = [
    (
        "select x from {s} as v where y > 0",
        "select x from (select x, y from {s} as v where y > 0)",
        "select a as x from (select x, y from {s} as v) as w(a, b) where b > 0",
        "select x from {s} as v where y > (select 0 * count(*) from {s} as u)",
        "select x from {s} as v where y > 0 or exists (select 1 from {s} as u where u.y > 1)",
        "select x from {s} as v where y > 0 and (x in (select x from {s} as u) or y > 5)",
        "select x from {s} as v where y > 0 and (select max(u.x) from {s} as u where u.x = v.x) = x",
    ),
    (
        "select distinct x from {s} as v",
        "select x from {s} as v group by x",
        "select x from {s} as v union select x from {s} as v",
        "select x from {s} as v intersect select x from {s} as v",
        "select x from {s} as v group by all",
        "select x from {s} as v union by name select x from {s} as v",
        "select distinct x from {s} as v natural join {s} as w",
    ),
    (
        "select x, count(*) as n from {s} as v where y > 0 group by x having count(*) > 1",
        "select x, n from (select x, count(*) as n from {s} as v where y > 0 group by x) where n > 1",
        "select x, count_if(y > 0) as n from {s} as v group by x having len(list(x) filter (where y > 0)) > 1",
        "select x, count(*) as n from {s} as v where y > 0 group by grouping sets ((x)) having bit_and(y) = 1 and count(*) > 1",
    ),
    (
        "select x, count(*) as n from {s} as v group by rollup (x)",
        "select x, count(*) as n from {s} as v group by cube (x)",
        "select x, count(*) as n from {s} as v group by x union all select null::bigint as x, count(*) as n from {s} as v",
        "select x, coalesce(len(list(y)), 0) as n from {s} as v group by grouping sets ((), (x))",
    ),
]
_RECORDS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=9)


def relation(body: int, records: list[tuple[int, int, int]], length: int, slide: int, at: int) -> Counter[Any]:
    """R(at) of a body, by its definition."""
    up = lambda time: -(-time // slide) * slide  # noqa: E731
    rows = [(x, y) for time, x, y in records if up(time) <= at < up(time + length)]
    if body == 0:
        return Counter((x,) for x, y in rows if y > 0)
    if body == 1:
        return Counter({(x,) for x, _ in rows})
    if body == 3:
        counted = Counter(dict.fromkeys(Counter(x for x, _ in rows).items(), 1))
        return counted + Counter({(None, len(rows)): 1} if at >= records[0][0] else {})
    counts = Counter(x for x, y in rows if y > 0)
    return Counter((x, n) for x, n in counts.items() if n > 1)


def expected(
    kind: str, body: int, records: list[tuple[int, int, int]], length: int, slide: int
) -> dict[int, Counter[Any]]:
    """What a query has, or gives, at each instant from the first event to the last."""
    first, last = records[0][0], records[-1][0]
    at = {time: relation(body, records, length, slide, time) for time in range(first - 1, last + 1)}
    moves = {-(-each // slide) * slide for time, _, _ in records for each in (time, time + length)}
    found = {}
    for time in range(first, last + 1):
        now, before = at[time], at[time - 1]
        given = {"": now, "Istream": now - before, "Dstream": before - now}
        found[time] = (now if time in moves else Counter()) if kind == "Rstream" else given[kind]
    return found


def answered(t: Trial, name: str, kind: str, first: int, last: int) -> dict[int, Counter[Any]]:
    """The same, as the product says."""
    rows = [(tuple(row.values()), start, end) for row, start, end in t.intervals(name)]
    return {
        time: Counter(
            row
            for row, start, end in rows
            if (start == time if kind else start <= time and (end is None or time < end))
        )
        for time in range(first, last + 1)
    }


@settings(max_examples=-(-EXAMPLES // 2), suppress_health_check=[HealthCheck.too_slow])
@given(
    _RECORDS, st.sampled_from(WINDOWS), st.integers(0, len(BODIES) - 1),
    st.sampled_from(["", "Istream", "Dstream", "Rstream"]), plans(), st.data(),
)  # fmt: skip
def test_texts_of_one_meaning_give_one_answer(
    gaps: list[tuple[int, int, int]],
    windows: tuple[tuple[str, ...], int, int],
    body: int,
    kind: str,
    plan: Plan,
    data: st.DataObject,
) -> None:
    texts, length, slide = windows
    records, now = [], 0
    for gap, x, y in gaps:
        now += gap
        records.append((now, x, y))
    with trial() as t:
        t.declaration = replace(t.declaration, buckets=plan.buckets)
        t.stream("s", "ts bigint, x bigint, y bigint", time="ts", time_unit="s")
        queries = {}
        for number in range(3):
            window, source, text = (data.draw(st.sampled_from(each)) for each in (texts, [*SOURCES, ""], BODIES[body]))
            if not source:
                source = f"named{number}"
                t.query(source, f"select x, y from s {window}")
            query = text.format(s=source.format(w=window))
            queries[f"q{number}"] = f"{kind}({query})" if kind else query
            t.query(f"q{number}", queries[f"q{number}"])
        note(str(records))
        for _, count, run in plan.pieces:
            done = t.stream("s").rows()
            t.append("s", [dict(zip(("ts", "x", "y"), each)) for each in records[len(done) : len(done) + count]])
            if run:
                t.run(batch_rows=plan.batch_rows)
                if plan.forget:
                    t.restart()
        done = t.stream("s").rows()
        t.append("s", [dict(zip(("ts", "x", "y"), each)) for each in records[len(done) :]])
        t.finish("s")
        t.run(batch_rows=plan.batch_rows)
        wanted = expected(kind, body, records, length, slide)
        for name, query in queries.items():
            assert answered(t, name, kind, records[0][0], now) == wanted, query
        assert not t.dead_letters()
