"""The clients of `hayase bench ask`, and what it counts."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from benchmarks.ask import draw_statement, percentiles
from benchmarks.ask_clients import crowd, one_by_one, torn

from hayase.relations.statement import parse
from relation_shop import purchases, relation_shop
from wire_client import served


def test_clients_ask_one_by_one_and_together(tmp_path: Path) -> None:
    pipeline = relation_shop(tmp_path / "shop")
    pipeline.append("purchases", purchases(0, 10))
    pipeline.run_until_idle(spark=False)

    def lookup(drawn: random.Random) -> tuple[str, str]:
        return "table", f"select n, n from by_user where user = 'u{drawn.randrange(3)}'"

    with served(pipeline.home.path) as port:
        asked = [*one_by_one(port, lookup, 0.05, 0.0), *crowd(port, lookup, 0.1, clients=4, rate=80)]
        with pytest.raises(RuntimeError, match="42P01"):
            one_by_one(port, lambda drawn: ("nothing", "select * from nothing"), 0.05, 0.0)
    assert len(asked) >= 1 + 4 * 2
    assert {tuple(row) for _, _, rows in asked for row in rows} <= {("4", "4"), ("3", "3")}
    assert not any(torn(rows) for _, _, rows in asked)


def test_a_torn_answer_has_columns_that_differ_in_pairs() -> None:
    assert torn([["1", "1", "2", "3"]])
    assert not torn([["1", "1", None, None], ["2", "2", "3", "3"]])
    assert percentiles([3.0, 1.0, 2.0])["largest_seconds"] == 3.0


def test_lookups_are_answered_as_lookups() -> None:
    drawn = random.Random(1)
    asked = [draw_statement(drawn) for _ in range(50)]
    assert {name for name, _ in asked} == {"table", "query", "join"}
    assert all((parse(sql).lookup is None) == (name == "join") for name, sql in asked)
