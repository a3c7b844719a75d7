"""The laws of lookups: the same answer as by DuckDB, and never older than the newest manifests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.relations import HomeReader
from hayase.relations.statement import parse
from relation_shop import purchases, relation_shop

RELATIONS = {"spend": ["user", "spent", "n"], "by_user": ["user", "n", "spent"], "by_amount": ["amount", "user", "n"]}
VALUES = ["'u0'", "'u1'", "'7'", "'nobody'", "7", "14", "$1", "99999999999999999999", "0.5", "null"]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HomeReader]:
    pipeline = relation_shop(tmp_path_factory.mktemp("lookups") / "shop")
    pipeline.append("purchases", purchases(0, 30))
    pipeline.run_until_idle(spark=False)
    with HomeReader(pipeline.home.path) as made:
        yield made


@st.composite
def lookups(draw: st.DrawFn) -> tuple[str, list[Any]]:
    relation, columns = draw(st.sampled_from(sorted(RELATIONS.items())))
    selected = draw(st.lists(st.sampled_from([*columns, columns[0].upper(), f"r.{columns[-1]}"]), min_size=1))
    compared = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=3))
    conditions = " and ".join(f"{column} = {draw(st.sampled_from(VALUES))}" for column in compared)
    what = draw(st.sampled_from(["*", ", ".join(selected)]))
    return f"select {what} from {relation} as r where {conditions}", [draw(st.sampled_from(["u2", "8", 8, None]))]


def outcome(reader: HomeReader, sql: str, parameters: list[Any]) -> Any:
    try:
        table = reader.statement(sql, parameters if "$1" in sql else []).table()
    except Exception as error:
        return type(error)
    return table.schema.names, table.schema.types, sorted(map(str, table.to_pylist()))


@settings(max_examples=examples(60, 2000), deadline=None)
@given(lookups())
def test_a_lookup_is_answered_as_by_duckdb(reader: HomeReader, lookup: tuple[str, list[Any]]) -> None:
    sql, parameters = lookup
    by_duckdb = f"{sql} and true"
    assert parse(by_duckdb).lookup is None
    assert outcome(reader, sql, parameters) == outcome(reader, by_duckdb, parameters)


def test_some_statements_are_lookups_and_others_not() -> None:
    for sql in ("select * from t where a = $1", "select a, t.b from t where (a = 'x') and b = 2"):
        assert parse(sql).lookup is not None, sql
    for sql in (
        "select * from t", "select a from t where a > 1", "select a + 1 from t where a = 1", "select * from t where a = 1 limit 1",
        "select distinct a from t where a = 1", "select * from t, u where a = 1", "select * from t x(b) where a = 1",
        "select * from t tablesample 1% where a = 1", "with t as (select 1 a) select * from t where a = 1",
        "select * exclude (b) from t where a = 1", "select a from t where a = 1 or b = 2", "select a from t where a = b",
    ):  # fmt: skip
        assert parse(sql).lookup is None, sql


def test_a_kept_catalogue_shows_every_commit_at_once(tmp_path: Path) -> None:
    pipeline = relation_shop(tmp_path / "shop")
    pipeline.apply()
    with HomeReader(pipeline.home.path) as reader:
        for count in range(1, 6):
            pipeline.append("purchases", purchases(3 * count, 3))
            assert reader.statement("select count(*) as n from purchases").table().to_pylist() == [{"n": 3 * count}]
            pipeline.run_until_idle(spark=False)
            for sql in ("select n from by_user where user = 'u1'", "select n from by_user where user = 'u1' and true"):
                assert reader.statement(sql).table().to_pylist() == [{"n": count}]
            (row,) = reader.statement("select sum(n)::bigint as n from spend").table().to_pylist()
            assert row == {"n": 3 * count - 1}
            assert reader.statement("select n from spend where user = 'u1'").table().to_pylist() == [{"n": count}]
