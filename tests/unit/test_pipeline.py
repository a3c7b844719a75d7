"""The pipeline as people use it, without a JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import hayase as hy
import shop
from hayase.core.declarations import TableDeclaration
from hayase.core.errors import DeclarationError, StreamFinished, UnknownName, nearest
from hayase.tables import TYPES
from hayase.testing import trial
from shop import Event, check, expected

EVENTS = [Event(3, "a", 1), Event(1, "b", 2), Event(2, "a", None), Event(9, None, 4)]


@pytest.fixture
def pipeline(tmp_path: Path) -> hy.Pipeline:
    return shop.shop(tmp_path, 5)


def test_rows_tables_batches_and_frames_are_appended_alike(pipeline: hy.Pipeline) -> None:
    rows = [each.row() for each in EVENTS]
    table = pa.Table.from_pylist(rows)
    for records in (rows, table, table.to_batches()[0], pd.DataFrame(rows).astype({"amount": "Int64"})):
        assert pipeline.append("events", records).accepted == 4
    assert pipeline.results("events").table().to_pylist() == rows * 4


def test_declaring_writes_nothing(tmp_path: Path) -> None:
    shop.shop(tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_a_run_without_finish_leaves_open_what_may_still_come(pipeline: hy.Pipeline) -> None:
    pipeline.append("events", [each.row() for each in EVENTS])
    pipeline.run_until_idle(spark=False)
    check(pipeline, expected(EVENTS, 5, finished=False))
    assert pipeline.progress().totals["spend"].waiting == 1
    pipeline.finish("events")
    pipeline.run_until_idle(spark=False)
    check(pipeline, expected(EVENTS, 5, finished=True))
    with pytest.raises(StreamFinished):
        pipeline.append("events", [EVENTS[0].row()])


def test_a_run_that_has_nothing_to_do_commits_nothing(pipeline: hy.Pipeline) -> None:
    pipeline.append("events", [each.row() for each in EVENTS])
    first = pipeline.run_until_idle(spark=False)
    assert pipeline.run_until_idle(spark=False) == first


def test_results_come_in_time_order_and_ties_in_log_order(pipeline: hy.Pipeline) -> None:
    pipeline.append("events", [each.row() for each in [*EVENTS, Event(3, "z", 0)]])
    assert [(row["at"], row["user"]) for row in pipeline.results("events").rows()] == [
        (1, "b"), (2, "a"), (3, "a"), (3, "z"), (9, None),
    ]  # fmt: skip


def test_names_that_stand_for_nothing(pipeline: hy.Pipeline) -> None:
    with pytest.raises(UnknownName, match='did you mean "events"'):
        pipeline.append("event", [])
    with pytest.raises(UnknownName, match='did you mean "spend"'):
        pipeline.query("spent")
    with pytest.raises(UnknownName):
        pipeline.remove("nothing")
    with pytest.raises(DeclarationError, match="declared twice"):
        pipeline.query("Spend", shop.SPEND)


def test_a_mistaken_query_is_not_declared(pipeline: hy.Pipeline) -> None:
    with pytest.raises(DeclarationError, match='did you mean "amount"'):
        pipeline.query("wrong", "select amuont from events")
    pipeline.check()


def test_removing_what_a_query_reads_is_refused_when_it_is_applied(pipeline: hy.Pipeline) -> None:
    pipeline.remove("spend")
    with pytest.raises(DeclarationError, match='unknown stream "spend"'):
        pipeline.apply()


def test_a_pipeline_without_queries_runs(tmp_path: Path) -> None:
    pipeline = shop.shop(tmp_path, 0, [])
    pipeline.append("events", [EVENTS[0].row()])
    assert pipeline.run_until_idle(spark=False).totals == {}


def test_an_added_column_is_null_in_older_records(tmp_path: Path) -> None:
    shop.shop(tmp_path, 0, ["copy"]).append("events", [Event(1, "a", 1).row()])
    wider = hy.Pipeline("shop", tmp_path, clock=lambda: 0)
    wider.stream("events", shop.EVENTS + ", note string", "at", time_unit="us", max_ahead=None)
    wider.query("notes", "select user, note from events")
    wider.append("events", [{"at": 2, "user": "b", "note": "new"}])
    wider.run_until_idle(spark=False)
    assert [(row["user"], row["note"]) for row in wider.query("notes")] == [("a", None), ("b", "new")]


def test_a_file_is_appended_whole_and_a_repeat_is_recognised(tmp_path: Path) -> None:
    pipeline = hy.Pipeline("files", home=tmp_path / "home")
    pipeline.stream("orders", "time bigint, amount double", time="time", time_unit="s")
    file = tmp_path / "orders.csv"
    file.write_text("time,amount\n1,2.5\n2,a lot\n3,4\n")
    done = pipeline.append("orders", file, producer="import")
    assert (done.accepted, done.refused, done.first, done.next, done.repeated) == (2, 1, 0, 2, False)
    assert pipeline.append("orders", str(file), producer="import").repeated
    assert [row["amount"] for row in pipeline.stream("orders").rows()] == [2.5, 4.0]
    assert len(pipeline.dead_letters()) == 1
    (tmp_path / "empty.ndjson").touch()
    assert pipeline.append("orders", tmp_path / "empty.ndjson") == hy.Accepted(0, 0, 2, 2)
    with pytest.raises(hy.HayaseError, match="there is no file"):
        pipeline.append("orders", tmp_path / "other.csv")
    with pytest.raises(hy.HayaseError, match="without a sequence"):
        pipeline.append("orders", file, producer="import", sequence=1)


# -- tables ------------------------------------------------------------------------------------------------------------
RULES = """\
source: events
branches:
  - tables:
      - tableName: spent
        ops:
          - {key: .user, columnName: total, paramJq: .amount}
"""


def market(home: Path) -> hy.Pipeline:
    pipeline = hy.Pipeline("market", home)
    schema = "time timestamp, uuid string, country string, user string, amount double"
    pipeline.stream("events", schema, time="time", id="uuid", max_ahead=None)
    return pipeline


def test_a_table_is_declared_by_types_by_classes_or_by_their_names(tmp_path: Path) -> None:
    pipeline = market(tmp_path / "home")
    pipeline.table("one", key="user", total=hy.Counter(), seen=hy.Register, tags="ORSet")
    pipeline.table(
        "two",
        ["country", "user"],
        fold_after="2 hours",
        horizon="3 days",
        columns={"key": hy.GSet()},
        top=hy.MaxRegister(),
    )
    hour = 3_600_000_000
    assert pipeline.declaration.tables == (
        TableDeclaration("one", ("user",), (("total", "Counter"), ("seen", "Register"), ("tags", "ORSet"))),
        TableDeclaration("two", ("country", "user"), (("key", "GSet"), ("top", "MaxRegister")), 2 * hour, 72 * hour),
    )
    assert pipeline.table("two").declaration == pipeline.declaration.tables[1]
    assert repr(pipeline.table("two")) == "<table two: country, user -> key, top>"
    assert not (tmp_path / "home").exists()


def test_every_column_type_is_there_by_its_name() -> None:
    for name, kind in TYPES.items():
        assert getattr(hy, name) is kind
        assert name in hy.__all__
        assert name in dir(hy)


def test_what_is_no_column_type_is_refused_with_all_other_mistakes(tmp_path: Path) -> None:
    class Other:
        pass

    class Counter(hy.Register):
        pass

    pipeline = market(tmp_path)
    wrong: dict[str, Any] = {"a": 3, "b": int, "c": Other, "d": "Conter", "e": Counter(), "f": "x" * 99, "g": hy.GSet()}
    with pytest.raises(DeclarationError) as caught:
        pipeline.table("t", fold_after="9 days", **wrong)
    assert [str(each) for each in caught.value.mistakes] == [
        'column "a" of table "t" has 3, which is not a column type; give one like hy.Counter()',
        'column "b" of table "t" has int, which is not a column type; give one like hy.Counter()',
        'column "c" of table "t" has Other, which is not a column type; give one like hy.Counter()',
        'column "d" of table "t" has \'Conter\', which is not a column type; did you mean "Counter"?',
        'column "e" of table "t" has an object of another Counter, which is not a column type; give one like hy.Counter()',
        f'column "f" of table "t" has \'{"x" * 56}..., which is not a column type; {nearest("x", TYPES)[2:]}',
        'table "t" has no key; name its parts, like user_id',
        'the horizon of table "t" is shorter than fold_after; '
        "repeated events must be recognised at least until their updates are folded",
    ]
    with pytest.raises(DeclarationError, match='"t" has no columns'):
        pipeline.table("t", key="k")
    with pytest.raises(hy.HayaseError, match="is not a duration"):
        pipeline.table("t", key="k", horizon=hy.Counter())  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match='"Events" is declared twice'):
        pipeline.table("Events", key="k", v=hy.Counter())
    assert pipeline.declaration.tables == ()


def test_a_table_is_no_stream_and_a_stream_no_table(tmp_path: Path) -> None:
    pipeline = market(tmp_path)
    pipeline.table("spent", key="user", total=hy.Counter())
    with pytest.raises(UnknownName, match='unknown table "spend"; did you mean "spent"'):
        pipeline.table("spend")
    with pytest.raises(hy.HayaseError, match=r'"spent" is a table; ask for it by p.table\("spent"\)'):
        pipeline.results("spent")
    with pytest.raises(UnknownName, match='unknown stream "spent"'):
        pipeline.append("spent", [])


def test_rules_are_a_file_or_a_text_and_there_may_be_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rules.yaml").write_text(RULES)
    pipeline = market(tmp_path / "home")
    pipeline.table("spent", key="user", total=hy.Counter())
    pipeline.rules("rules.yaml")
    pipeline.rules(Path("rules.yaml"))
    pipeline.rules(text=RULES)  # would count each event twice
    others = [f"{RULES}# {number}\n" for number in range(2)]
    for text in (*others, *others):
        pipeline.rules(text=text)
    assert [(each.name, each.text) for each in pipeline.declaration.rules] == [
        ("rules.yaml", RULES), ("rules 1", others[0]), ("rules 2", others[1])
    ]  # fmt: skip
    pipeline.remove("rules 1")
    pipeline.rules(text=others[0])
    assert [each.name for each in pipeline.declaration.rules] == ["rules.yaml", "rules 2", "rules 1"]
    pipeline.rules(text=f"{RULES}# changed\n", name="rules 2")
    assert pipeline.declaration.rules[1].text.endswith("# changed\n")
    pipeline.remove("rules.yaml")
    pipeline.remove("spent")
    assert (pipeline.declaration.tables, len(pipeline.declaration.rules)) == ((), 2)
    with pytest.raises(
        UnknownName,
        match='unknown stream, query, aggregate, function, table, job, operation, output or rules "rules 3"; did you mean "rules',
    ):
        pipeline.remove("rules 3")
    with pytest.raises(DeclarationError, match='rules 2:4:20: unknown table "spent"'):
        pipeline.apply()


def test_mistaken_rules_are_not_declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pipeline = market(tmp_path / "home")
    pipeline.table("spent", key="user", total=hy.Counter())
    with pytest.raises(DeclarationError, match=r"^none.yaml: there is no such file; check the name"):
        pipeline.rules("none.yaml")
    with pytest.raises(
        DeclarationError, match='rules 1:6:38: unknown column "totl" in table "spent"; did you mean "total"'
    ):
        pipeline.rules(text=RULES.replace("total", "totl"))
    with pytest.raises(DeclarationError, match=r"^rules 1:6:\d+: the value: "):
        pipeline.rules(text=RULES.replace(".amount", ".amount +"))
    for given in ({}, {"path": "rules.yaml", "text": RULES}):
        with pytest.raises(DeclarationError, match="rules are given as a file or as a text"):
            pipeline.rules(**given)
    assert pipeline.declaration.rules == ()
    pipeline.check()


def test_a_pipeline_file_with_tables_is_checked_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("more.yaml").write_text(RULES.replace("source: events", "source: event"))
    text = """\
pipeline: market
streams: {events: {schema: "time timestamp, uuid string, user string, amount double", time: time, id: uuid}}
tables:
  spent:
    key: user
    columns: {total: Countr}
rules:
  - more.yaml
  - source: events
    branches:
      - tables: {spent: {key: .user, columns: {totl: .amount}}}
"""
    Path("market.yaml").write_text(text)
    with pytest.raises(DeclarationError) as caught:
        hy.Pipeline.from_file("market.yaml")
    assert str(caught.value).splitlines() == [
        'market.yaml:6:22: column "total" of table "spent" has the unknown type "Countr"; did you mean "Counter"?',
        'more.yaml:1:9: unknown stream "event"; did you mean "events"?',
    ]
    Path("market.yaml").write_text(text.replace("Countr", "Counter"))
    with pytest.raises(DeclarationError) as caught:
        hy.Pipeline.from_file("market.yaml")
    assert str(caught.value).splitlines() == [
        'more.yaml:1:9: unknown stream "event"; did you mean "events"?',
        'market.yaml:11:48: unknown column "totl" in table "spent"; did you mean "total"?',
    ]
    Path("more.yaml").write_text(RULES)
    Path("market.yaml").write_text(text.replace("Countr", "Counter").replace("totl", "total"))
    pipeline = hy.Pipeline.from_file("market.yaml")
    assert [each.name for each in pipeline.declaration.rules] == ["more.yaml", "market.yaml"]


@pytest.mark.parametrize(
    ("kind", "shown"), [("timestamp", "timestamp[us, tz=UTC]"), ("double", "double"), ("boolean", "bool")]
)
def test_an_id_that_a_table_cannot_use_is_refused_when_it_is_declared(tmp_path: Path, kind: str, shown: str) -> None:
    p = hy.Pipeline("market", home=tmp_path / "home")
    p.stream("events", schema=f"time timestamp, uuid {kind}, user string, amount double", time="time", id="uuid")
    p.table("spent", key="user", total="Counter")
    with pytest.raises(DeclarationError) as caught:
        p.rules(text=RULES)
    assert str(caught.value).partition(": ")[2] == (
        f'id column "uuid" of stream "events", which feeds a table, is a {shown}; a table recognises a repeated event by a '
        "string or an integer; declare such a column as the id"
    )


def test_a_reader_that_is_added_makes_a_finished_query_go_on() -> None:
    """As if the text of the query stood in that of its reader: rows in its window end while the reader's other stream goes on."""
    totals = "select user, sum(n) as total from s [Range 10 seconds] group by user"
    joined = "Istream(select t.user, q.total from t [Now] as t join {} as q on t.user = q.user)"
    with trial() as p:
        for name in ("s", "t"):
            p.stream(name, schema="at bigint, user string, n bigint", time="at", time_unit="s")
        p.query("totals", totals)
        p.append("s", [{"at": 1, "user": "a", "n": 2}, {"at": 3, "user": "b", "n": 4}])
        p.finish("s")
        p.run()
        assert [end for _, _, end in p.intervals("totals")] == [None, None]
        p.query("reader", joined.format("totals"))
        p.query("whole", joined.format(f"({totals})"))
        p.apply()
        p.append("t", [{"at": at, "user": "a", "n": 0} for at in (2, 5, 12, 20)])
        p.run()
        p.append("t", [{"at": 30, "user": "b", "n": 0}])
        p.finish("t")
        p.restart()
        p.run()
        assert p.rows("reader") == p.rows("whole")
        assert len(p.rows("reader")) == 2
        assert sorted((row["user"], start, end) for row, start, end in p.intervals("totals")) == [
            ("a", 1, 11),
            ("b", 3, 13),
        ]
