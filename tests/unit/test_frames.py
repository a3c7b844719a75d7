"""Results as frames, iterators, pictures and plots, and what they show when there is nothing or something odd."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import types
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import duckdb
import pyarrow as pa
import pytest

import hayase as hy
from hayase.core.errors import EnvironmentUnfit, HayaseError, NotFinal, UnknownName

EARLY = "2026-01-01T00:00:03Z"
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def shop(tmp_path: Path) -> hy.Pipeline:
    p = hy.Pipeline("shop", tmp_path / "home")
    p.stream("orders", "time timestamp, uuid string, user string, amount bigint, note json", time="time", id="uuid")
    p.query("spend", "select user, sum(amount) as spend from orders [Range 10 seconds] group by user")
    p.query("large", "select user, amount from orders where amount > 2")
    p.table("bought", key="user", total=hy.Counter())
    p.rules(text="{source: orders, rules: [{tables: {bought: {key: .user, columns: {total: .amount}}}}]}")
    return p


def fill(p: hy.Pipeline, users: tuple[str, ...] = ("taro", "hana", SCRIPT, "taro", "jiro")) -> hy.Pipeline:
    rows = [
        {"time": f"2026-01-01T00:00:{at:02d}Z", "uuid": str(at), "user": user, "amount": at, "note": {"n": at}}
        for at, user in enumerate(users)
    ]
    p.append("orders", rows)
    p.finish("orders")
    p.run_until_idle(spark=False)
    return p


# ---------------------------------------------------------------------------------------------------- frames


def test_a_relation_is_its_present_rows_those_of_the_past_or_all_lifetimes(shop: hy.Pipeline) -> None:
    spend = fill(shop).query("spend")
    assert spend.to_arrow().to_pylist() == spend.at() == list(spend)
    assert spend.to_arrow(EARLY).to_pylist() == spend.at(EARLY)
    assert spend.to_arrow(history=True) == spend.intervals_table()
    assert spend.to_pandas(EARLY)["spend"].tolist() == [row["spend"] for row in spend.at(EARLY)]
    assert spend.to_duckdb(history=True).count("*").fetchall() == [(len(spend.intervals()),)]
    assert pa.table(spend) == spend.to_arrow()
    assert spend.schema() == spend.to_arrow().schema
    assert spend.schema(history=True) == spend.to_arrow(history=True).schema
    with pytest.raises(HayaseError, match="leave out `at`"):
        spend.to_arrow(EARLY, history=True)
    with pytest.raises(NotFinal):
        spend.to_arrow("2027-01-01T00:00:00Z")


def test_a_stream_is_its_records_in_the_order_of_the_log(shop: hy.Pipeline) -> None:
    orders = fill(shop).stream("orders")
    assert orders.to_arrow().to_pylist() == orders.table().to_pylist()
    assert [row["note"] for row in orders] == [{"n": at} for at in range(5)], "json columns have their values"
    assert orders.to_arrow(EARLY).num_rows == 4
    assert sum(batch.num_rows for batch in orders.batches()) == 5
    assert orders.to_arrow(history=True).column_names[-2:] == ["valid_from", "valid_to"]
    assert orders.schema(history=True) == orders.to_arrow(history=True).schema
    large = shop.query("large")
    assert large.schema() == large.to_arrow().schema
    assert pa.table(large).to_pylist() == large.table().to_pylist()


def test_an_iteration_reads_a_stream_batch_by_batch(shop: hy.Pipeline) -> None:
    for part in range(3):
        rows = {"time": [part] * 2000, "uuid": [f"{part}.{n}" for n in range(2000)], "user": ["u"] * 2000}
        schema = shop.declaration.streams[0].arrow_schema
        empty = {"amount": pa.nulls(2000, pa.int64()), "note": pa.nulls(2000, pa.string())}
        shop.append("orders", pa.table({**rows, **empty}).cast(schema))
    iterator = iter(shop.stream("orders"))
    before = pa.total_allocated_bytes()
    assert next(iterator)["uuid"] == "0.0"
    assert pa.total_allocated_bytes() - before < 1_000_000
    assert sum(1 for _ in iterator) == 5999


def test_a_table_is_its_folded_rows(shop: hy.Pipeline) -> None:
    bought = fill(shop).table("bought")
    assert bought.to_arrow() == bought.table() == pa.table(bought)
    assert bought.to_arrow(EARLY).to_pylist() == bought.table(as_of=EARLY).to_pylist()
    assert bought.to_pandas(columns=["total"]).shape == (4, 2)
    assert bought.batch_of(["taro", "nobody", "taro", ("hana",)]).to_pylist() == [
        {"user": "taro", "total": 3.0}, {"user": "hana", "total": 1.0},
    ]  # fmt: skip
    with pytest.raises(UnknownName, match='unknown column "totl" in table "bought"; did you mean "total"'):
        bought.to_arrow(columns=["totl"])


def test_duckdb_finds_a_relation_by_its_variable(shop: hy.Pipeline) -> None:
    spend = fill(shop).query("spend").to_duckdb()
    assert spend.filter("user = 'jiro'").fetchall() == [("jiro", 4)]
    with duckdb.connect() as connection:
        rows = shop.query("spend").to_duckdb(connection=connection)
        assert rows.aggregate("sum(spend)").fetchall() == [(10,)]


def test_polars_is_used_if_it_is_there_and_named_if_not(shop: hy.Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    spend = fill(shop).query("spend")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(EnvironmentUnfit, match=r"to_polars\(\) needs polars, .*`pip install polars`"):
        spend.to_polars()
    polars = types.ModuleType("polars")
    monkeypatch.setattr(polars, "from_arrow", lambda table: ("frame", table.num_rows), raising=False)
    monkeypatch.setitem(sys.modules, "polars", polars)
    assert spend.to_polars() == ("frame", 4)


def test_statements_join_queries_tables_and_streams(shop: hy.Pipeline) -> None:
    text = "select s.user, s.spend, b.total from spend s join bought b using (user) where s.spend > $1 order by all"
    told = fill(shop).sql(text, [2])
    assert told.to_pylist() == [{"user": "jiro", "spend": 4, "total": 4.0}, {"user": "taro", "spend": 3, "total": 3.0}]
    assert hy.open(shop.home.path).sql("select count(*) as n from orders", as_of=EARLY).to_pylist() == [{"n": 4}]
    assert shop.sql("select * from spend_history").num_rows == len(shop.query("spend").intervals())
    with pytest.raises(HayaseError, match="spendd"):
        shop.sql("select * from spendd")


# ---------------------------------------------------------------------------------------------------- changes


def test_tail_gives_all_changes_and_ends_with_the_inputs(shop: hy.Pipeline) -> None:
    spend = fill(shop).query("spend")
    assert list(spend.tail()) == spend.changes()
    assert list(spend.tail("now")) == []
    assert list(shop.query("large").tail()) == shop.query("large").changes()
    with pytest.raises(HayaseError, match='say "earliest" or "now"'):
        spend.tail("yesterday")  # type: ignore[arg-type]


def test_tail_waits_for_what_comes_and_no_longer_than_it_is_told(shop: hy.Pipeline) -> None:
    spend = shop.query("spend")
    assert list(spend.tail(timeout=0)) == []
    seen: list[Any] = []
    reader = threading.Thread(target=lambda: seen.extend(spend.tail()))
    reader.start()
    fill(shop)
    reader.join()
    assert seen == spend.changes()


def test_async_for_gives_the_same(shop: hy.Pipeline) -> None:
    spend = fill(shop).query("spend")

    async def changes() -> list[Any]:
        return [change async for change in spend]

    assert asyncio.run(changes()) == spend.changes()


# ---------------------------------------------------------------------------------------------------- looks


def pictures(html: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", html, re.DOTALL)]


def test_results_show_rows_and_lifetimes_escaped(shop: hy.Pipeline) -> None:
    spend = fill(shop).query("spend")
    assert repr(spend) == "<relation spend (`user` string, spend bigint): final up to 2026-01-01T00:00:04Z>"
    html = spend._repr_html_()
    [picture] = pictures(html)
    assert len(picture.findall(".//{*}rect")) == len(spend.intervals())
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert "<th>valid_from</th>" in html
    [histogram] = pictures(shop.stream("orders")._repr_html_())
    assert len(histogram.findall(".//{*}rect")) == 5
    assert "<script" not in shop.table("bought")._repr_html_()
    assert "<td>taro</td><td>3</td>" in shop.table("bought")._repr_html_()


def test_large_results_show_some_of_them(shop: hy.Pipeline) -> None:
    fill(shop, tuple(f"user{number % 57}" for number in range(60)))
    html = shop.query("spend")._repr_html_()
    assert "the first 10 of more rows" in shop.stream("orders")._repr_html_()
    assert re.search(r"<p>30 of \d+ rows, the longest and a sample</p>", html)
    assert "the first 10 of more rows" in shop.table("bought")._repr_html_()


def test_what_has_not_begun_can_be_looked_at(shop: hy.Pipeline) -> None:
    spend = shop.query("spend")
    assert repr(spend) == "<relation spend (`user` string, spend bigint): nothing is final yet>"
    assert "nothing is final yet" in spend._repr_html_()
    assert (spend.to_arrow().num_rows, list(spend), shop.stream("orders").to_arrow().num_rows) == (0, [], 0)


def test_a_pipeline_shows_its_graph(shop: hy.Pipeline) -> None:
    assert repr(shop).startswith("<pipeline shop in /")
    assert repr(shop).endswith(": streams orders; queries spend, large; tables bought>")
    [picture] = pictures(shop._repr_html_())
    titles = [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert sorted(map(str, titles)) == ["query large", "query spend", "stream orders", "table bought"]
    assert len(picture.findall("{*}path")) == 6, "three lines with their tips"
    assert "nothing declared yet" in repr(hy.Pipeline("new", shop.home.path / "new"))


def test_a_pipeline_that_does_not_fit_together_says_why(shop: hy.Pipeline) -> None:
    shop.stream("orders", "time timestamp, uuid string, customer string", time="time", id="uuid")
    assert 'unknown column "user"' in shop._repr_html_().replace("&quot;", '"')


# ---------------------------------------------------------------------------------------------------- plots


def test_plots_of_lifetimes_and_values(shop: hy.Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    spend = fill(shop).query("spend")
    axes = spend.plot()
    assert (axes.get_title(), len(axes.get_yticks())) == ("spend", len(spend.intervals()))
    lines = spend.plot("spend", by="user")
    assert [text.get_text() for text in lines.get_legend().get_texts()] == ["taro", "hana", SCRIPT, "jiro"]
    assert spend.plot(axes=axes) is axes
    assert shop.stream("orders").plot("amount").get_ylabel() == "amount"
    shop.stream("orders").plot()
    with pytest.raises(UnknownName, match='unknown column "spent" of "spend"'):
        spend.plot("spent")
    with pytest.raises(HayaseError, match='column "user" has no numbers'):
        spend.plot("user")
    with pytest.raises(HayaseError, match="a limit of 1 or more"):
        spend.plot(limit=0)
    pyplot.close("all")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot")
    with pytest.raises(EnvironmentUnfit, match="pip install matplotlib"):
        spend.plot()
