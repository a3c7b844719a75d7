"""Structs and lists as keys in every kind of window and operator: they group as the text that is written for them does."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hayase.testing import trial

WINDOWS = [
    "[Range 4 seconds]", "[Range 6 seconds Slide 2 seconds]", "[Tumble 3 seconds]", "[Hop 4 seconds Every 2 seconds]",
    "[Rows 5]", "[Partition By l Rows 2]", "[Partition By l Rows 3 Slide 2]", "[Range 2 seconds, 6 seconds Slide 2 seconds]",
]  # fmt: skip
OTHERS = {
    "first": ("select distinct on ({0}) {0}::string as k, n from s [Range 5 seconds] order by n desc", "l"),
    "running": ("select n, sum(n) over (partition by {0} order by ts rows 2 preceding) as total from s", "r"),
    "ranked": ("select n, rank() over (partition by {0} order by n) as place from s [Rows 6] qualify place <= 2", "r"),
    "entered": ("Istream(select k::string as k from (select distinct {0} as k from s [Range 2 seconds]))", "r"),
    "lasting": ("select {0}::string as k, count(distinct {0}) as c, list(n) as ns from s group by {0}", "l"),
}


def records() -> list[dict[str, Any]]:
    dice = random.Random(3)
    lists = [None, [], [1], [1, None], [2, 1]]
    structs = [None, {"a": None, "b": ["x"]}, {"a": 1, "b": []}, {"a": 1, "b": None}]
    return [{"ts": at // 3, "l": dice.choice(lists), "r": dice.choice(structs), "n": at} for at in range(40)]


def results(texts: dict[str, str]) -> list[list[str]]:
    """Return the rows of queries with their lifetimes."""
    with trial() as t:
        t.stream(
            "s", "ts bigint, l array<bigint>, r struct<a: bigint, b: array<string>>, n bigint", "ts", time_unit="s"
        )
        for name, text in texts.items():
            t.query(name, text)
        t.append("s", records())
        t.finish("s")
        t.run(batch_rows=7)
        assert not t.dead_letters()
        return [sorted(map(repr, t.intervals(name))) for name in texts]


@pytest.mark.parametrize("window", WINDOWS)
def test_groups_in_windows(window: str) -> None:
    bounds = ", window_end" if window.startswith(("[Tumble", "[Hop")) else ""
    nested = f"select l::string as k, count(*) as c, sum(n) as n, max(n) as most from s {window} group by l{bounds}"
    found, wanted = results({"nested": nested, "plain": nested.replace("group by l", "group by l::string")})
    assert found
    assert found == wanted


@pytest.mark.parametrize("case", list(OTHERS))
def test_other_operators(case: str) -> None:
    text, name = OTHERS[case]
    found, wanted = results({"nested": text.format(name), "plain": text.format(f"({name}::string)")})
    assert found
    assert found == wanted
