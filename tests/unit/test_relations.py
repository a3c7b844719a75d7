"""The reader of a home: every kind of relation, as of every kind of time, and what a statement may not do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import hayase as hy
from hayase.core.errors import HayaseError, NotFinal, UnknownName
from hayase.engine.commit import manifests
from hayase.relations import HomeReader, Limits
from hayase.relations.bounds import Bounds
from hayase.relations.relation import Records
from hayase.relations.statement import StatementError, Unsupported, parse
from hayase.relations.statement_runs import Control, Interrupted, OutOfMemory
from hayase.relations.table_rows import TableRows
from hayase.tables.table import OwnTable
from relation_shop import moment, purchase, purchases, relation_shop


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> hy.Pipeline:
    pipeline = relation_shop(tmp_path_factory.mktemp("relations") / "shop")
    pipeline.append("purchases", [*purchases(0, 20), {"id": 99, "moment": moment(19), "user": "u0", "amount": "much"}])
    pipeline.run_until_idle(spark=False)
    return pipeline


@pytest.fixture(scope="module")
def reader(shop: hy.Pipeline) -> Iterator[HomeReader]:
    with HomeReader(shop.home.path) as made:
        yield made


def asked(reader: HomeReader, sql: str, **options: Any) -> list[tuple[Any, ...]]:
    table = reader.statement(sql, **options).table()
    return list(zip(*(column.to_pylist() for column in table.columns)))


def test_relations_of_every_kind(reader: HomeReader) -> None:
    assert asked(reader, "select user, n from spend order by user") == [("u0", 7), ("u1", 6), ("u2", 6)]
    assert asked(reader, 'select count(*), max("offset") from purchases') == [(20, 19)]
    assert asked(reader, "select user, n from by_user where user = 'u1'") == [("u1", 7)]
    assert asked(
        reader, "select count(*) from big where event_time = moment_of(6)".replace("moment_of(6)", f"'{moment(6)}'")
    ) == [(1,)]
    history = asked(reader, "select n, valid_to is null from total_history order by valid_from")
    assert history == [(n, n == 19) for n in range(1, 20)]
    assert asked(reader, "select stage, kind from dead_letters") == [("append", "schema")]
    assert asked(reader, "select read, processed + waiting from hayase.stages where stage = 'spend'") == [(20, 20)]
    assert asked(reader, "select records from hayase.streams where stream = 'purchases'") == [(20,)]
    assert asked(reader, "select lane, version > 0 from hayase.lanes") == [("main", True)]
    assert ("total_history", "history") in asked(reader, "select relation, kind from hayase.relations")
    assert reader.relation("total").to_pylist() == [{"spent": 171, "n": 19}]


def test_as_of_an_event_time(reader: HomeReader) -> None:
    counts = "select (select n from total), (select count(*) from purchases), (select sum(n) from by_user)"
    assert asked(reader, counts, as_of=moment(5)) == [(6, 6, 6)]
    assert asked(reader, counts, as_of="complete") == [(19, 19, 19)]
    assert asked(reader, counts) == [(19, 20, 20)]
    sql = f"select a.n, b.n from total for system_time as of '{moment(3)}' a, total b"
    assert asked(reader, sql) == [(4, 19)]
    assert asked(reader, "select n from total for system_time as of $1", parameters=[moment(3)]) == [(4,)]
    assert asked(reader, "select count(*) from total_history where valid_to is null", as_of=moment(3)) == [(1,)]
    for relation in ("total", "purchases", "by_user"):
        with pytest.raises(NotFinal, match="final up to"):
            asked(reader, f"select * from {relation}", as_of="2030-01-01")


def test_names_are_those_of_the_home_only(reader: HomeReader) -> None:
    with pytest.raises(UnknownName, match='did you mean "spend"'):
        reader.statement("select * from spent")
    assert asked(reader, "with spent as (select 1 as x) select x from spent") == [(1,)]
    assert asked(reader, "select public.spend.n from public.spend where SPEND.user = 'u0'") == [(7,)]
    assert asked(reader, "select spend.user from Spend where spend.\"user\" = 'u0'") == [("u0",)]
    with pytest.raises(UnknownName):
        reader.statement("select * from '/etc/passwd'")


@pytest.mark.parametrize(
    "sql",
    ["delete from spend", "create table t (a int)", "copy spend to '/tmp/x'", "set threads = 1", "attach 'x'", "install json",
     "pragma version", "insert into spend values (1)", "call pragma_version()"],
)  # fmt: skip
def test_statements_only_read(reader: HomeReader, sql: str) -> None:
    with pytest.raises((Unsupported, StatementError)):
        reader.statement(sql)


@pytest.mark.parametrize("function", ["read_text('/etc/passwd')", "read_csv('/etc/passwd')", "glob('/etc/*')"])
def test_statements_reach_no_files(reader: HomeReader, function: str) -> None:
    with pytest.raises(StatementError, match=r"disabled|Permission"):
        reader.statement(f"select * from {function}").table()


def test_statements_are_bounded(shop: hy.Pipeline) -> None:
    with HomeReader(shop.home.path, Limits(memory=32 << 20, threads=1)) as reader:
        with pytest.raises(Interrupted, match="took longer"):
            reader.statement("select count(*) from range(1000000000000) a, range(1000) b", seconds=0.05).table()
        control = Control()
        control.interrupt("enough")
        with pytest.raises(Interrupted, match="enough"):
            reader.statement("select count(*) from range(1000000000000)", control=control).table()
        with pytest.raises(OutOfMemory):
            reader.statement("select list(a.range) from range(30000000) a").table()
        assert asked(reader, "select n from total") == [(19,)]


def test_conditions_and_columns_reach_the_relations() -> None:
    (one,) = parse(
        "select user from purchases p where p.\"offset\" >= 5 and amount in (1, 2) and moment < '2026-01-01'"
    ).asked
    assert one.bounds == Bounds({"amount": (1, 2)}, {"offset": 5}, {"moment": "2026-01-01"})
    assert one.columns is not None
    assert "user" in one.columns
    assert "id" not in one.columns
    left, right = parse("select * from a left join b on a.x = b.x where b.y = $1", ["v"]).asked
    assert (left.bounds, right.bounds) == (Bounds(), Bounds({"y": ("v",)}))
    for sql in (
        "select * from a asof join b on a.x >= b.x where b.y = 1",
        "select * from b where y = 1 or z = 2",
        "select * from b tablesample 10% where y = 1",
        "select * from b t(p, q) where y = 1",
    ):
        assert all(each.bounds == Bounds() for each in parse(sql).asked), sql


def test_bounds_leave_out_segments_and_rows_of_tables(shop: hy.Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    with HomeReader(shop.home.path) as reader:
        catalogue = reader.catalogue()
        stream, table = catalogue.find("purchases"), catalogue.find("by_amount")
        assert isinstance(stream, Records)
        assert isinstance(table, TableRows)
        few = list(stream.batches(None, ["id", "offset"], Bounds({}, {"offset": 3}, {"offset": 4})))
        assert [each for batch in few for each in batch["offset"].to_pylist()] == [3, 4]
        late = list(stream.batches(None, ["id"], Bounds({}, {"moment": moment(18)})))
        assert [each for batch in late for each in batch["id"].to_pylist()] == [18, 19]
        monkeypatch.setattr(table.table.__class__, "scan", None)  # rows by their whole key need no scan
        rows = list(table.batches(None, ["user", "n"], Bounds({"amount": ("4",), "user": ("u1", "u2")})))
        assert [each for batch in rows for each in batch["user"].to_pylist()] == ["u1"]


def test_a_commit_that_is_not_published_yet_is_not_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = relation_shop(tmp_path / "shop")
    pipeline.append("purchases", purchases(0, 5))
    pipeline.run_until_idle(spark=False)
    pipeline.append("purchases", [purchase(5, 5, 5)])

    def killed(hop: str) -> None:
        if hop == "manifest renamed":
            raise KeyboardInterrupt

    with HomeReader(pipeline.home.path) as reader:
        assert asked(reader, "select n from total") == [(4,)]
        with monkeypatch.context() as patch:
            patch.setattr(manifests, "reach", killed)
            with pytest.raises(KeyboardInterrupt):
                pipeline.run_until_idle(spark=False)
        assert asked(reader, "select n from total") == [(4,)]
        pipeline.run_until_idle(spark=False)
        assert asked(reader, "select n from total") == [(5,)]


def test_a_home_whose_run_was_killed_between_two_tables_is_read_with_the_staged_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = relation_shop(tmp_path / "shop")
    pipeline.append("purchases", purchases(0, 5))
    pipeline.run_until_idle(spark=False)
    pipeline.append("purchases", [purchase(5, 5, 5), purchase(6, 6, 4)])
    ingest = OwnTable.ingest

    def killed(table: OwnTable, files: Sequence[Path], marker: bytes) -> None:
        if table.declaration.name == "by_user" and any(file.exists() for file in files):
            raise KeyboardInterrupt
        ingest(table, files, marker)

    with monkeypatch.context() as patch:
        patch.setattr(OwnTable, "ingest", killed)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run_until_idle(spark=False)
    staged = sorted(pipeline.home.staged("main").iterdir())
    both = "select (select sum(n) from by_user), (select sum(n) from by_amount), (select n from total)"
    with HomeReader(pipeline.home.path) as reader:
        for _ in range(2):
            assert asked(reader, both) == [(7, 7, 6)]
        assert asked(reader, "select n, spent from by_user where user = 'u1'") == [(3, 9)]
        assert asked(reader, "select n from by_user where user = 'u2'") == [(2,)]
        assert sorted(pipeline.home.staged("main").iterdir()) == staged
        pipeline.run_until_idle(spark=False)
        assert asked(reader, both) == [(7, 7, 6)]
    by_user = "select user, n, spent from by_user order by user"
    with HomeReader(pipeline.home.path) as reader:
        assert asked(reader, by_user) == [("u0", 2, 3), ("u1", 3, 9), ("u2", 2, 7)]


def test_a_home_without_a_pipeline_says_so(tmp_path: Path) -> None:
    with HomeReader(tmp_path / "nothing") as reader, pytest.raises(HayaseError):
        reader.statement("select 1")
