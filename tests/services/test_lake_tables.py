"""Delta and Iceberg tables as outputs: the laws of sinks, types, resets, mirrors, processes that were thought dead."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from every_type import VALUES, changes_of, column_of
from hayase import Delta, Iceberg, Pipeline
from hayase.connectors.delta_sink import DeltaSink
from hayase.connectors.iceberg_sink import IcebergSink
from hayase.connectors.laws import check_sink
from hayase.connectors.sink import HEADS, Changes, Position, Sink, SinkSetting
from hayase.core.connector_data import declared_output
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import EndpointError, PositionMoved
from servers.iceberg import IcebergCatalog

SPEND = StreamDeclaration("spend", "time timestamp, user string, total bigint", "time")
ROWS = pa.schema({"user": pa.string(), "total": pa.int64()})
FIRST, SECOND = Position(1, "a.1.1"), Position(2, "a.2.1")


def setting(kind: str, options: dict[str, Any], keep: Path, rows: pa.Schema = ROWS) -> SinkSetting:
    values = declared_output("mart", {"reads": "spend", "to": {kind: options}}).values
    return SinkSetting(SPEND, rows, values, "shop", "mart", "h", keep)


def delta(place: Path | str, keep: Path, rows: pa.Schema = ROWS, **options: Any) -> DeltaSink:
    return DeltaSink(setting("delta", {"path": str(place), **options}, keep, rows))


def iceberg(place: Path | str, keep: Path, rows: pa.Schema = ROWS, **options: Any) -> IcebergSink:
    return IcebergSink(setting("iceberg", {"table": "shop.spend", "path": str(place), **options}, keep, rows))


def of_delta(place: Path) -> list[dict[str, Any]]:
    return list(DeltaTable(place).to_pyarrow_table().to_pylist()) if place.exists() else []


def of_iceberg(place: Path) -> list[dict[str, Any]]:
    keep = place.parent / "keep"
    catalog = load_catalog("hayase", type="sql", uri=f"sqlite:///{keep}/catalog.db", warehouse=place.as_uri())
    try:
        if not catalog.table_exists("shop.spend"):
            return []
        return list(catalog.load_table("shop.spend").scan().to_arrow().to_pylist())
    finally:
        catalog.close()


Make = Callable[..., Sink]
Read = Callable[[Path], list[dict[str, Any]]]
KINDS = [pytest.param(delta, of_delta, id="delta"), pytest.param(iceberg, of_iceberg, id="iceberg")]


def changes(*rows: tuple[int, bool, str | None, int]) -> pa.Table:
    columns = list(zip(*rows))
    heads = [pa.array([time * 1_000_000 for time in columns[0]]), pa.array(columns[1]), pa.array(range(len(rows)))]
    own = [pa.array(columns[2], pa.string()), pa.array(columns[3], pa.int64())]
    return pa.table([*heads, *own], names=[*HEADS, *ROWS.names])


@pytest.mark.parametrize(("make", "read"), KINDS)
def test_the_laws_of_a_sink(make: Make, read: Read, tmp_path: Path) -> None:
    rows = pa.table({"user": ["taro", "hana"], "total": [1, 2]})

    def held() -> list[str]:
        return sorted(map(str, read(tmp_path / "table")))

    check_sink(lambda: make(tmp_path / "table", tmp_path / "keep"), rows, held)


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize(("make", "read"), KINDS)
def test_every_type_of_column(make: Make, read: Read, kind: str, tmp_path: Path) -> None:
    sink = make(tmp_path / "table", tmp_path / "keep", column_of(kind), emit="rows")
    sink.position()
    sink.write(Changes(changes_of(kind), None, FIRST))
    sink.close()
    found = [row["value"] for row in read(tmp_path / "table")]
    value = VALUES[kind]
    if make is delta and kind in ("time", "array<time>"):  # Delta has no times of day
        value = value.isoformat() if kind == "time" else [one.isoformat() for one in value]
    assert sorted(found, key=lambda one: one is None) == [value, None]


@pytest.mark.parametrize(("make", "read"), KINDS)
def test_changes_rows_and_a_reset(make: Make, read: Read, tmp_path: Path) -> None:
    sink = make(tmp_path / "table", tmp_path / "keep")
    sink.position()
    sink.write(Changes(changes((1, True, "taro", 1), (2, False, "taro", 1)), None, FIRST))
    assert sorted(row["_change"] for row in read(tmp_path / "table")) == ["+", "-"]
    sink.write(Changes(changes((3, True, "hana", 3)), FIRST, SECOND, anew=True))
    assert [(row["_change"], row["user"]) for row in read(tmp_path / "table")] == [("+", "hana")]
    assert sink.position() == SECOND


@pytest.mark.parametrize(("make", "read"), KINDS)
def test_rows_that_only_end_move_the_position(make: Make, read: Read, tmp_path: Path) -> None:
    sink = make(tmp_path / "table", tmp_path / "keep", emit="rows")
    sink.position()
    sink.write(Changes(changes((1, True, "taro", 1)), None, FIRST))
    sink.write(Changes(changes((2, False, "taro", 1)), FIRST, SECOND))
    assert make(tmp_path / "table", tmp_path / "keep", emit="rows").position() == SECOND
    assert read(tmp_path / "table") == [{"user": "taro", "total": 1}]


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(("make", "read"), KINDS)
def test_a_process_that_was_thought_dead_cannot_write(make: Make, read: Read, begun: bool, tmp_path: Path) -> None:
    since = None
    if begun:
        sink = make(tmp_path / "table", tmp_path / "keep")
        sink.position()
        sink.write(Changes(changes((1, True, "zero", 0)), None, FIRST))
        since = FIRST
    zombie, successor = (make(tmp_path / "table", tmp_path / "keep") for _ in range(2))
    assert zombie.position() == successor.position() == since
    until = SECOND if begun else FIRST
    successor.write(Changes(changes((1, True, "a", 1)), since, until))
    held = read(tmp_path / "table")
    with pytest.raises(PositionMoved):
        zombie.write(Changes(changes((1, True, "b", 1)), since, until))
    assert read(tmp_path / "table") == held


@pytest.mark.parametrize(("make", "read"), KINDS)
def test_a_column_that_is_added(make: Make, read: Read, tmp_path: Path) -> None:
    sink = make(tmp_path / "table", tmp_path / "keep", emit="rows")
    sink.position()
    sink.write(Changes(changes((1, True, "taro", 1)), None, FIRST))
    wider = changes((2, True, "hana", 2)).append_column("city", pa.array(["Kyoto"]))
    sink = make(tmp_path / "table", tmp_path / "keep", ROWS.append(pa.field("city", pa.string())), emit="rows")
    sink.position()
    sink.write(Changes(wider, FIRST, SECOND))
    assert sorted(str(row["city"]) for row in read(tmp_path / "table")) == ["Kyoto", "None"]


def test_the_cursor_of_delta_is_in_the_home_or_in_the_commit(tmp_path: Path) -> None:
    sink = delta(tmp_path / "table", tmp_path / "keep")
    sink.position()
    sink.write(Changes(changes((1, True, "taro", 1)), None, FIRST))
    shutil.rmtree(tmp_path / "keep")
    assert delta(tmp_path / "table", tmp_path / "keep").position() == FIRST


@pytest.mark.parametrize(("make", "read"), KINDS)
def test_a_process_that_dies_before_its_commit_has_written_nothing(
    make: Make, read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """The end of a process."""

    def strike(*arguments: object, **options: object) -> None:
        raise Killed

    sink = make(tmp_path / "table", tmp_path / "keep")
    sink.position()
    sink.write(Changes(changes((1, True, "taro", 1)), None, FIRST))
    held = read(tmp_path / "table")
    with monkeypatch.context() as patch:
        patch.setattr("hayase.connectors.delta_sink.write_deltalake", strike)
        patch.setattr("pyiceberg.table.Transaction.commit_transaction", strike)
        with pytest.raises(Killed):
            sink.write(Changes(changes((2, True, "hana", 2)), FIRST, SECOND))
    again = make(tmp_path / "table", tmp_path / "keep")
    assert again.position() == FIRST
    assert read(tmp_path / "table") == held
    again.write(Changes(changes((2, True, "hana", 2), (3, True, "jiro", 3)), FIRST, SECOND))
    assert sorted(row["user"] for row in read(tmp_path / "table")) == ["hana", "jiro", "taro"]


def test_a_delta_table_that_others_write_to_keeps_the_position(tmp_path: Path) -> None:
    sink = delta(tmp_path / "table", tmp_path / "keep")
    sink.position()
    sink.write(Changes(changes((1, True, "taro", 1)), None, FIRST))
    DeltaTable(tmp_path / "table").optimize.compact()
    assert delta(tmp_path / "table", tmp_path / "keep").position() == FIRST


def test_the_retries_of_others_on_an_iceberg_table_stay_as_they_are(tmp_path: Path) -> None:
    sink = iceberg(tmp_path / "table", tmp_path / "keep")
    sink.position()
    sink.write(Changes(changes((1, True, "taro", 1)), None, FIRST))
    uri = f"sqlite:///{tmp_path}/keep/catalog.db"
    catalog = load_catalog("hayase", type="sql", uri=uri, warehouse=(tmp_path / "table").as_uri())
    table = catalog.load_table("shop.spend")
    catalog.close()
    assert list(table.properties) == ["hayase.h.mart"]
    assert table.current_snapshot().summary["hayase.h.mart"] == table.properties["hayase.h.mart"]


def test_a_mirror_has_the_present_rows_by_their_key(tmp_path: Path) -> None:
    sink = delta(tmp_path / "table", tmp_path / "keep", emit="mirror", key="user")
    sink.position()

    def held() -> list[tuple[str | None, int]]:
        rows = duckdb.from_arrow(DeltaTable(tmp_path / "table").to_pyarrow_table()).fetchall()
        return sorted(rows, key=str)

    sink.write(Changes(changes((1, True, "taro", 1), (1, True, "hana", 1), (1, True, None, 7)), None, FIRST))
    assert held() == [("hana", 1), ("taro", 1), (None, 7)]
    more = changes(
        (2, False, "taro", 1), (2, True, "taro", 2), (3, False, "hana", 1), (3, False, None, 7), (4, True, "jiro", 4)
    )
    sink.write(Changes(more, FIRST, SECOND))
    assert held() == [("jiro", 4), ("taro", 2)]
    third = Position(3, "a.3.1")
    sink.write(Changes(changes((5, True, "x", 1), (6, False, "x", 1)), SECOND, third))
    assert held() == [("jiro", 4), ("taro", 2)]
    again = delta(tmp_path / "table", tmp_path / "keep", emit="mirror", key="user")
    assert again.position() == third
    again.write(Changes(changes((7, True, "goro", 5)), third, Position(4, "b.1.1"), anew=True))
    assert held() == [("goro", 5)]


def test_delta_in_an_object_store(bucket: str, tmp_path: Path) -> None:
    place = f"{bucket}/spend"
    zombie, sink = delta(place, tmp_path), delta(place, tmp_path)
    zombie.position()
    sink.position()
    sink.write(Changes(changes((1, True, "taro", 1)), None, FIRST))
    with pytest.raises(PositionMoved):
        zombie.write(Changes(changes((1, True, "hana", 1)), None, FIRST))
    assert delta(place, tmp_path).position() == FIRST
    assert DeltaTable(place, storage_options={"allow_http": "true"}).to_pyarrow_table().num_rows == 1


@pytest.fixture
def namespace(iceberg_catalog: IcebergCatalog) -> str:
    """A namespace of the catalog `prod` that is free."""
    return f"n{uuid4().hex}"


def in_catalog(namespace: str, keep: Path, **options: Any) -> IcebergSink:
    return IcebergSink(setting("iceberg", {"table": f"{namespace}.spend", "catalog": "prod", **options}, keep))


def of_catalog(namespace: str) -> list[dict[str, Any]]:
    catalog = load_catalog("prod")
    if not catalog.table_exists(f"{namespace}.spend"):
        return []
    return list(catalog.load_table(f"{namespace}.spend").scan().to_arrow().to_pylist())


def test_the_laws_of_a_sink_with_a_rest_catalog(namespace: str, tmp_path: Path) -> None:
    rows = pa.table({"user": ["taro", "hana"], "total": [1, 2]})

    def held() -> list[str]:
        return sorted(map(str, of_catalog(namespace)))

    check_sink(lambda: in_catalog(namespace, tmp_path), rows, held)


def test_with_a_rest_catalog_one_of_two_writers_goes_on(namespace: str, tmp_path: Path) -> None:
    first = in_catalog(namespace, tmp_path, emit="rows")
    first.position()
    first.write(Changes(changes((1, True, "zero", 0)), None, FIRST))
    zombie, successor = (in_catalog(namespace, tmp_path, emit="rows") for _ in range(2))
    assert zombie.position() == successor.position() == FIRST
    successor.write(Changes(changes((1, True, "a", 1)), FIRST, SECOND))
    with pytest.raises(PositionMoved):
        zombie.write(Changes(changes((1, True, "b", 1)), FIRST, SECOND))
    assert sorted(row["user"] for row in of_catalog(namespace)) == ["a", "zero"]


def test_a_rest_catalog_that_is_killed_keeps_what_it_has(
    namespace: str, iceberg_catalog: IcebergCatalog, tmp_path: Path
) -> None:
    sink = in_catalog(namespace, tmp_path, emit="rows")
    sink.position()
    sink.write(Changes(changes((1, True, "taro", 1)), None, FIRST))
    iceberg_catalog.kill()
    try:
        with pytest.raises(EndpointError):
            sink.write(Changes(changes((2, True, "hana", 2)), FIRST, SECOND))
    finally:
        iceberg_catalog.start()
    again = in_catalog(namespace, tmp_path, emit="rows")
    assert again.position() == FIRST
    again.write(Changes(changes((2, True, "hana", 2)), FIRST, SECOND))
    assert sorted(row["user"] for row in of_catalog(namespace)) == ["hana", "taro"]


@pytest.mark.parametrize("make", [delta, iceberg])
def test_a_target_that_cannot_be_written_is_an_error(make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(EndpointError):  # noqa: PT012 (either step may notice)
        sink = make(tmp_path / "file" / "table", tmp_path / "keep")
        sink.position()
        sink.write(Changes(changes((1, True, "taro", 1)), None, FIRST))


def test_a_pipeline_writes_to_lakes(tmp_path: Path) -> None:
    pipeline = Pipeline("shop", home=tmp_path / "home")
    pipeline.stream("orders", "time bigint, user string, amount bigint", time="time", time_unit="s")
    pipeline.query("spend", "SELECT user, sum(amount) AS total FROM orders [RANGE UNBOUNDED] GROUP BY user")
    pipeline.output("mirror", reads="spend", to=Delta(str(tmp_path / "mirror"), emit="mirror", key="user"))
    pipeline.output("history", reads="orders", to=Iceberg("shop.orders", path=str(tmp_path / "iceberg"), emit="rows"))
    for first in (0, 10):
        rows = [{"time": at, "user": "taro" if at % 2 else "hana", "amount": at} for at in range(first, first + 10)]
        pipeline.append("orders", rows)
        pipeline.run_until_idle(spark=False)
    pipeline.finish("orders")
    pipeline.run_until_idle(spark=False)
    mirror = {row["user"]: row["total"] for row in of_delta(tmp_path / "mirror")}
    assert mirror == {"hana": 90, "taro": 100}
    keep = tmp_path / "home" / "outputs" / "history"
    catalog = load_catalog(
        "hayase", type="sql", uri=f"sqlite:///{keep}/catalog.db", warehouse=str(tmp_path / "iceberg")
    )
    found = catalog.load_table("shop.orders").scan().to_arrow().column("amount").to_pylist()
    catalog.close()
    assert sorted(found) == list(range(20))
