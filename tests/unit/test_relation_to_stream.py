"""Istream, Dstream and Rstream as docs/semantics.md defines them, whatever the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hayase.testing import trial

RECORDS = [{"ts": at, "x": 5} for at in (1, 2, 3, 6)]
BODIES = [
    "select x from s [Now]",
    "select x from s [Range 1 second]",
    "select x from s [Range 1 second Slide 1 second]",
    "select distinct x from s [Now]",
    "select distinct x from s [Range 1 second]",
    "select x from s [Now] union select x from s [Now]",
    "select x from named",
    "select x, x + 0 as y from s [Now] group by x",
    "select a.x from s [Now] as a join s [Now] as b on a.x = b.x",
]


def records(
    queries: Mapping[str, str], given: Mapping[str, Sequence[Mapping[str, Any]]], *, buckets: int = 3
) -> list[tuple[Any, ...]]:
    """The times and first values of the query `q`, after everything was read and finished."""
    with trial() as t:
        t.declaration = replace(t.declaration, buckets=buckets)
        for name, some in given.items():
            columns = ", ".join(f"{each} bigint" for each in some[0])
            t.stream(name, columns, time="ts", time_unit="s")
        for name, text in queries.items():
            t.query(name, text)
        for name, some in given.items():
            t.append(name, some)
            t.finish(name)
        t.run()
        times = {"ts", "changed_at", "event_time"}
        found = t.query("q").intervals()
        return sorted((at, *(row[name] for name in row if name not in times)) for row, at, _ in found)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize(("operator", "times"), [("Istream", [1, 6]), ("Rstream", [1, 2, 3, 6]), ("Dstream", [4])])
def test_every_plan_gives_the_same_records(operator: str, times: list[int], body: str) -> None:
    found = records({"named": "select x from s [Now]", "q": f"{operator}({body})"}, {"s": RECORDS})
    assert [at for at, *_ in found] == times


def test_a_lookup_by_now_finds_every_request() -> None:
    total = "select vid, sum(toll) as total from bal group by vid"
    text = "Rstream(select r.vid, b.total from req [Now] as r join {} as b on r.vid = b.vid)"
    given = {
        "req": [{"ts": at, "vid": 1} for at in (10, 11, 12)],
        "bal": [{"ts": 0, "vid": 1, "toll": 7}, {"ts": 20, "vid": 1, "toll": 1}],
    }
    for queries in ({"q": text.format(f"({total})")}, {"totals": total, "q": text.format("totals")}):
        assert records(queries, given) == [(10, 1, 7), (11, 1, 7), (12, 1, 7)]


@pytest.mark.parametrize(
    ("body", "times"),
    [
        # a record that WHERE takes out moves the window all the same, and so does its end
        ("select x from s [Range 4 seconds] where x > 5", [2, 5, 9]),
        ("select x from s [Rows 2] where x > 5", [2, 5, 9]),
        ("select x from high [Range 4 seconds]", [2, 5, 9]),
        # ends count for windows by time only, moved up to the slide
        ("select count(*) as n from s [Range 4 seconds]", [1, 2, 5, 6, 9]),
        ("select count(*) as n from s [Range 4 seconds Slide 4 seconds]", [4, 8]),
        ("select count(*) as n from s", [1, 2, 5, 9]),
        # a slide by rows moves at every second record, of the stream or of a partition
        ("select count(*) as n from s [Rows 4 Slide 2]", [2, 9]),
        ("select x, count(*) as n from s [Partition By x Rows 4 Slide 2] group by x", [5]),
        ("select count(*) as n from (select x from s [Partition By x Rows 4 Slide 2] where x > 0)", [5]),
    ],
)
@pytest.mark.parametrize("buckets", [1, 3])
def test_when_rstream_gives_a_snapshot(body: str, times: list[int], buckets: int) -> None:
    given = {"s": [{"ts": at, "x": x} for at, x in ((1, 5), (2, 6), (5, 5), (9, 7))]}
    found = records({"high": "select x from s where x > 5", "q": f"Rstream({body})"}, given, buckets=buckets)
    assert sorted({at for at, *_ in found}) == times
