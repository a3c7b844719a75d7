"""A table as people read it: by key, by prefix, whole, as Arrow; now and as of a time; before, during and after a run."""

from __future__ import annotations

import gc
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hayase as hy
from hayase.core.errors import HayaseError, UnknownName
from hayase.core.times import instant
from hayase.tables import table_results as results_module

RULES = """
source: events
rules:
  - tables:
      spent: {key: .user, columns: {total: .amount, last: .at, days: '{(.at[:10]): .amount}', users: .user}}
      by_country: {key: [.country, .user, .amount], columns: {tags: .user}}
"""
EVENTS = [
    ("2026-01-01", "jp", "taro", 5), ("2026-01-03", "jp", "hanako", 2), ("2026-01-02", "us", "taro", 0.5),
    ("2026-01-04", "jp", "tarō", 1), ("2026-01-05", None, "jirō", 4),
]  # fmt: skip


def market(home: Path) -> hy.Pipeline:
    pipeline = hy.Pipeline("market", home, buckets=2)
    schema = "time timestamp, id bigint, at string, country string, user string, amount double"
    pipeline.stream("events", schema, time="time", id="id", max_ahead=None)
    types: dict[str, Any] = {
        "total": hy.Counter(),
        "last": hy.Register(),
        "days": hy.MapCounter(),
        "users": hy.DistinctCount(),
    }
    pipeline.table("spent", "user", fold_after="30 days", horizon="60 days", **types)
    pipeline.table("by_country", ["country", "user", "amount"], fold_after="30 days", horizon="60 days", tags=hy.GSet())
    pipeline.rules(text=RULES)
    return pipeline


def append(pipeline: hy.Pipeline, events: list[tuple[str, str | None, str, float]], first: int = 0) -> None:
    rows = [
        {"time": f"{day}T12:00:00Z", "id": first + at, "at": day, "country": country, "user": user, "amount": amount}
        for at, (day, country, user, amount) in enumerate(events)
    ]
    pipeline.append("events", rows)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> hy.Pipeline:
    pipeline = market(tmp_path_factory.mktemp("market"))
    append(pipeline, EVENTS)
    pipeline.run_until_idle(spark=False)
    return pipeline


def test_before_the_first_run_a_table_is_empty(tmp_path: Path) -> None:
    spent = market(tmp_path).table("spent")
    assert spent.get("taro") is None
    assert spent.get_many(["taro", "hanako"]) == [None, None]
    assert list(spent) == spent.scan("taro") == []
    assert spent.table().num_rows == spent.info().keys == 0
    assert spent.table().column_names == ["user", "total", "last", "days", "users"]


def test_a_row_is_read_by_its_key(filled: hy.Pipeline) -> None:
    spent = filled.table("spent")
    days = {"2026-01-01": 5, "2026-01-02": 0.5}
    assert spent.get("taro") == {"total": 5.5, "last": "2026-01-02", "days": days, "users": 1}
    assert spent.get("taro", columns=["last", "total"]) == {"last": "2026-01-02", "total": 5.5}
    assert spent.get("taro", columns="total") == {"total": 5.5}
    assert spent.get("nobody") is None
    by_country = filled.table("by_country")
    assert by_country.get("us", "taro", 0.5) == {"tags": ["taro"]}
    assert by_country.get("us", "taro", "0.5") is None


def test_many_rows_are_read_by_their_keys(filled: hy.Pipeline) -> None:
    assert filled.table("spent").get_many(["hanako", "nobody", "taro"], columns=["total"]) == [
        {"total": 2}, None, {"total": 5.5}
    ]  # fmt: skip
    keys = [("us", "taro", 0.5), ["jp", "hanako", 2], ("jp", "taro", 0.5)]
    assert filled.table("by_country").get_many(keys) == [{"tags": ["taro"]}, {"tags": ["hanako"]}, None]


@pytest.mark.parametrize(
    "as_of",
    ["2026-01-01T12:00:00Z", datetime(2026, 1, 1, 12, tzinfo=UTC), instant("2026-01-01T12:00:00Z")],
    ids=["text", "datetime", "microseconds"],
)
def test_a_table_is_read_as_of_a_time(filled: hy.Pipeline, as_of: Any) -> None:
    spent = filled.table("spent")
    assert spent.get("taro", as_of=as_of, columns=["total"]) == {"total": 5}
    assert spent.get_many(["taro", "hanako"], as_of=as_of, columns=["total"]) == [{"total": 5}, None]
    assert list(spent.rows(as_of=as_of, columns=["total"])) == [{"user": "taro", "total": 5}]
    assert spent.scan(as_of=as_of, columns=["total"]) == [{"user": "taro", "total": 5}]
    assert spent.table(as_of=as_of, columns=["total"]).to_pylist() == [{"user": "taro", "total": 5.0}]
    assert spent.get("taro", as_of=instant("2026-01-01T12:00:00Z") - 1) is None


def test_rows_are_scanned_in_the_order_of_their_keys(filled: hy.Pipeline) -> None:
    spent, by_country = filled.table("spent"), filled.table("by_country")
    assert [row["user"] for row in spent.scan()] == ["hanako", "jirō", "taro", "tarō"]
    assert [row["user"] for row in spent.scan(text_prefix="ta")] == ["taro", "tarō"]
    assert [row["user"] for row in spent.scan(limit=2)] == ["hanako", "jirō"]
    assert [row["user"] for row in spent.scan("taro")] == ["taro"]
    assert spent.scan(limit=0) == spent.scan("nobody") == []
    assert by_country.scan("jp", columns=()) == [
        {"country": "jp", "user": "hanako", "amount": 2},
        {"country": "jp", "user": "taro", "amount": 5},
        {"country": "jp", "user": "tarō", "amount": 1},
    ]
    assert [row["amount"] for row in by_country.scan("jp", text_prefix="tar", limit=1)] == [5]


@pytest.mark.parametrize("page", [1, 2, 3, 4, 5])
def test_pages_are_nobody_s_business(filled: hy.Pipeline, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    spent = filled.table("spent")
    whole, arrow = list(spent), spent.table()
    monkeypatch.setattr(results_module, "PAGE_ROWS", page)
    assert list(spent.rows()) == spent.scan(limit=None) == spent.scan(limit=4) == whole
    assert spent.scan(limit=3) == whole[:3]
    assert spent.table() == arrow


def test_a_table_is_given_as_arrow(filled: hy.Pipeline) -> None:
    found = filled.table("spent").table(columns=["total", "days", "total"])
    assert found.schema == pa.schema(
        [("user", pa.string()), ("total", pa.float64()), ("days", pa.map_(pa.string(), pa.float64()))]
    )
    assert found.to_pylist()[2] == {"user": "taro", "total": 5.5, "days": [("2026-01-01", 5.0), ("2026-01-02", 0.5)]}
    assert filled.table("by_country").table(columns=[]).slice(0, 1).to_pylist() == [
        {"country": "jp", "user": "hanako", "amount": "2"}
    ]
    (batch,) = filled.table("spent").batches()
    assert batch.num_rows == 4


def test_a_key_that_does_not_fit_and_an_unknown_column_are_refused(filled: hy.Pipeline) -> None:
    by_country = filled.table("by_country")
    for wrong in (("jp",), (), ("jp", "taro", 5, 1)):
        with pytest.raises(HayaseError, match=r"its key is \(country, user, amount\)"):
            by_country.get(*wrong)
        with pytest.raises(HayaseError, match="its key is"):
            by_country.get_many([wrong])
    with pytest.raises(HayaseError, match="its key is"):
        by_country.scan("jp", "taro", 5, text_prefix="1")
    for read in (by_country.get_many, by_country.scan, lambda *_, **more: list(by_country.rows(**more))):
        with pytest.raises(UnknownName, match='unknown column "tag" of table "by_country"; did you mean "tags"'):
            read(*([[]] if read == by_country.get_many else []), columns=["tag"])
    with pytest.raises(UnknownName, match="unknown column"):
        by_country.table(columns="tag")
    with pytest.raises(HayaseError, match='"yesterday" is not a time'):
        by_country.get("jp", "taro", 5, as_of="yesterday")


def test_later_commits_are_seen_and_a_scan_stays_with_its_beginning(tmp_path: Path) -> None:
    pipeline = market(tmp_path)
    with pipeline.table("spent") as spent:
        append(pipeline, EVENTS[:1])
        assert spent.get("taro") is None
        pipeline.run_until_idle(spark=False)
        assert spent.get("taro", columns=["total"]) == {"total": 5}
        rows = spent.rows(columns=["total"])
        assert next(rows) == {"user": "taro", "total": 5}
        append(pipeline, EVENTS, first=1)
        pipeline.run_until_idle(spark=False)
        assert list(rows) == []
        assert spent.get("taro", columns=["total"]) == {"total": 10.5}
        spent.close()
        assert len(list(spent)) == 4
        assert spent.info().keys == 4


def test_results_that_nobody_has_any_more_are_closed(filled: hy.Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    from hayase.tables.table import Table

    closed: list[Table] = []
    plain = Table.close

    def close(table: Table) -> None:
        closed.append(table)
        plain(table)

    monkeypatch.setattr(Table, "close", close)
    spent = filled.table("spent")
    spent.get("taro")
    del spent
    gc.collect()
    assert len(closed) == 1


def test_a_number_that_no_double_holds_is_not_rounded_in_arrow(tmp_path: Path) -> None:
    pipeline = hy.Pipeline("large", tmp_path)
    pipeline.table("sums", "k", total=hy.Counter(), text=hy.Register())
    table = pipeline.table("sums")
    table.load([{"k": "a", "total": 2**53 + 1, "text": "odd"}])
    assert list(table.rows()) == [{"k": "a", "total": 2**53 + 1, "text": "odd"}]
    with pytest.raises(HayaseError, match=r'Counter "total" of table "sums" is 9007199254740993.*rows\(\)'):
        table.table()
    assert table.table(columns=["text"]).to_pylist() == [{"k": "a", "text": "odd"}]
