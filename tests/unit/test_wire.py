"""PostgreSQL's protocol, message by message: queries, parameters, COPY, transactions, settings, errors, cancelling, tokens."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import hayase as hy
from hayase.core.access import Access
from hayase.relations import HomeReader
from hayase.wire.column_types import column_type, values
from hayase.wire.commands import command_of
from hayase.wire.dialect import translated
from hayase.wire.server import Limits
from hayase.wire.settings import Settings
from hayase.wire.sql_errors import SqlError
from relation_shop import purchases, relation_shop
from wire_client import WireClient, errors, rows, served, tags

TOKEN = "a-token-of-24-characters"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> hy.Pipeline:
    pipeline = relation_shop(tmp_path_factory.mktemp("wire") / "shop")
    pipeline.append("purchases", purchases(0, 40))
    pipeline.run_until_idle(spark=False)
    return pipeline


@pytest.fixture(scope="module")
def port(shop: hy.Pipeline) -> Iterator[int]:
    with served(shop.home.path) as number:
        yield number


@pytest.fixture
def client(port: int) -> Iterator[WireClient]:
    with closing(WireClient(port)) as made:
        yield made


def test_a_simple_query_gives_rows_as_text(client: WireClient) -> None:
    found = client.query("select user, n from spend order by user")
    assert rows(found) == [[b"u0", b"13"], [b"u1", b"13"], [b"u2", b"13"]]
    assert tags(found) == ["SELECT 3"]
    assert found[-1] == (b"Z", b"I")
    assert client.status["server_version"] == "16.0"


def test_several_statements_come_in_one_query(client: WireClient) -> None:
    found = client.query("select 1; show hayase.as_of; select ';'")
    assert rows(found) == [[b"1"], [b"latest"], [b";"]]
    assert [kind for kind, _ in client.query("  ")] == [b"I", b"Z"]


def test_parameters_are_taken_as_text_and_results_come_in_binary(client: WireClient) -> None:
    found = client.prepared("select user, n from spend where user = $1", [b"u1"])
    assert rows(found) == [[b"u1", b"13"]]
    found = client.prepared("select n, n + $1 from spend where n > $2 limit 1", [b"2", b"5"], [20, 0], binary=True)
    assert rows(found) == [[struct.pack("!q", 13), struct.pack("!q", 15)]]
    assert [kind for kind, _ in found] == [b"1", b"2", b"T", b"D", b"C", b"Z"]


def test_a_portal_gives_as_many_rows_as_are_asked_for(client: WireClient) -> None:
    client.query("begin")
    found = client.prepared("select amount from purchases order by amount", most=3)
    assert rows(found) == [[b"0"], [b"1"], [b"2"]]
    assert found[-2][0] == b"s"
    client.send(b"E", b"\0" + struct.pack("!i", 2))
    client.send(b"S")
    assert rows(client.until_ready()) == [[b"3"], [b"4"]]
    assert client.query("commit")[-1] == (b"Z", b"I")


def test_errors_have_codes_and_places_and_the_session_goes_on(client: WireClient) -> None:
    (error,) = errors(client.query("select * from nix"))
    assert error["C"] == "42P01"
    (error,) = errors(client.query("select 1; select 1 +"))
    assert error["C"] == "42601"
    assert int(error["P"]) > 10
    assert errors(client.query("delete from spend"))[0]["C"] == "25006"
    assert errors(client.query("select nope from spend"))[0]["C"] == "42703"
    assert errors(client.query("select * from read_text('/etc/passwd')"))[0]["C"] == "42501"
    assert errors(client.prepared("select $1::bigint", [b"x"], [20]))[0]["C"] == "22P02"
    assert rows(client.query("select 1")) == [[b"1"]]


def test_a_failed_transaction_does_nothing_until_its_end(client: WireClient) -> None:
    assert client.query("begin")[-1] == (b"Z", b"T")
    assert client.query("select * from nix")[-1] == (b"Z", b"E")
    assert errors(client.query("select 1"))[0]["C"] == "25P02"
    assert tags(client.query("commit")) == ["ROLLBACK"]
    assert rows(client.query("select 1")) == [[b"1"]]


def test_settings_end_with_the_transaction_that_is_rolled_back(client: WireClient) -> None:
    client.query("set hayase.as_of = '2026-01-01T00:00:05Z'")
    assert rows(client.query("select n from total")) == [[b"6"]]
    client.query("begin; set hayase.as_of = 'complete'; rollback")
    assert rows(client.query("show hayase.as_of")) == [[b"2026-01-01T00:00:05Z"]]
    client.query("reset hayase.as_of")
    assert rows(client.query("select n from total")) == [[b"39"]]
    assert errors(client.query("set hayase.as_of = 'soon'"))[0]["C"] == "22023"
    assert errors(client.query("set nothing = 1"))[0]["C"] == "42704"
    assert errors(client.query("select n from total for system_time as of '2030-01-01'"))[0]["C"] == "55000"


def test_settings_come_with_the_connection(port: int) -> None:
    with closing(WireClient(port, options="-c hayase.as_of=2026-01-01T00:00:05Z")) as client:
        assert rows(client.query("select n from total")) == [[b"6"]]


def test_copy_writes_text_and_csv(client: WireClient) -> None:
    found = client.query("copy (select user, n from spend order by user) to stdout with (format csv, header)")
    assert b"".join(data for kind, data in found if kind == b"d") == b"user,n\nu0,13\nu1,13\nu2,13\n"
    assert tags(found) == ["COPY 3"]
    found = client.query("copy (select 'a\tb' as a, null as b) to stdout")
    assert [data for kind, data in found if kind == b"d"] == [b"a\\tb\t\\N\n"]
    assert errors(client.query("copy spend from stdin"))[0]["C"] == "0A000"


def test_a_transaction_sees_one_set_of_manifests(tmp_path: Path) -> None:
    pipeline = relation_shop(tmp_path / "shop")
    pipeline.append("purchases", purchases(0, 10))
    pipeline.run_until_idle(spark=False)
    asked = "select (select sum(n) from spend), (select sum(n) from by_user), (select count(*) from purchases)"
    with served(pipeline.home.path) as port, closing(WireClient(port)) as client:
        client.query("begin")
        before = rows(client.query(asked))
        pipeline.append("purchases", purchases(10, 10))
        pipeline.run_until_idle(spark=False)
        assert rows(client.query(asked)) == before == [[b"9", b"10", b"10"]]
        client.query("commit")
        assert rows(client.query(asked)) == [[b"19", b"20", b"20"]]


def test_a_subscription_follows_changes_until_it_is_canceled(tmp_path: Path) -> None:
    pipeline = relation_shop(tmp_path / "shop")
    pipeline.append("purchases", purchases(0, 3))
    pipeline.run_until_idle(spark=False)
    with served(pipeline.home.path) as port, closing(WireClient(port)) as client:
        client.send(b"Q", b"copy (subscribe total) to stdout\0")
        assert client.receive()[0] == b"H"
        pipeline.append("purchases", purchases(3, 2))
        pipeline.run_until_idle(spark=False)
        lines = [client.receive()[1] for _ in range(4)]
        assert lines[0] == b"2026-01-01 00:00:02+00:00\t-\t1\t2\n"
        assert lines[-1] == b"2026-01-01 00:00:03+00:00\t+\t6\t4\n"
        client.cancel(port)
        assert errors(client.until_ready())[0]["C"] == "57014"


def test_a_statement_is_canceled_by_request_and_by_time(client: WireClient, port: int) -> None:
    client.send(b"Q", b"select count(*) from range(1000000000000) a, range(1000) b\0")
    found: list[tuple[bytes, bytes]] = []
    while not found:  # a cancel request may come before the statement has begun, as with PostgreSQL
        client.cancel(port)
        client.socket.settimeout(1)
        try:
            found = client.until_ready()
        except TimeoutError:
            continue
    client.socket.settimeout(60)
    assert errors(found)[0]["C"] == "57014"
    client.query("set statement_timeout = '50 ms'")
    assert errors(client.query("select count(*) from range(1000000000000) a, range(1000) b"))[0]["C"] == "57014"


def test_a_token_is_the_password(shop: hy.Pipeline) -> None:
    with served(shop.home.path, access=Access(TOKEN)) as port:
        with closing(WireClient(port, TOKEN)) as client:
            assert rows(client.query("select n from total")) == [[b"39"]]
        with closing(WireClient(port, "another-token-of-it")) as client:
            assert errors(client.greeting)[0]["C"] == "28P01"


def test_connections_are_bounded(shop: hy.Pipeline) -> None:
    with served(shop.home.path, limits=Limits(connections=1)) as port, closing(WireClient(port)) as first:
        with closing(WireClient(port)) as second:
            assert errors(second.greeting)[0]["C"] == "53300"
        assert rows(first.query("select 1")) == [[b"1"]]


def test_tools_find_what_there_is(client: WireClient) -> None:
    listed = rows(
        client.query("select table_name from information_schema.tables where table_schema = 'public' order by 1")
    )
    assert [b"spend"] in listed
    assert [b"spend_history"] in listed
    found = rows(
        client.query(
            "select a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod) from pg_catalog.pg_attribute a "
            "where a.attrelid = 'spend'::regclass order by a.attnum"
        )
    )
    assert found == [[b"user", b"text"], [b"spent", b"bigint"], [b"n", b"bigint"]]
    assert rows(client.query("select version()"))[0][0] == b"PostgreSQL 16.0 (Hayase)"


def test_values_of_every_kind_are_written() -> None:
    cases = [
        (pa.array([True]), b"t"),
        (pa.array([1.5]), b"1.5"),
        (pa.array([float("nan")]), b"NaN"),
        (pa.array([b"\1"]), b"\\x01"),
        (pa.array([Decimal("-1.50")]), b"-1.50"),
        (pa.array([["a b", None, 'x"']]), b'{"a b",NULL,"x\\""}'),
        (pa.array([{"a": [1]}]), b'{"a":[1]}'),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), b'{"k":1}'),
        (pa.array([0], pa.timestamp("us", "UTC")), b"1970-01-01 00:00:00+00"),
        (pa.array([0], pa.timestamp("us")), b"1970-01-01 00:00:00"),
        (pa.array([2**63], pa.uint64()), b"9223372036854775808"),
    ]
    for column, text in cases:
        assert values(column, column_type(column.type), False) == [text]


def test_what_tools_write_is_read_by_duckdb() -> None:
    assert translated("select 'a OPERATOR(pg_catalog.~) b', x OPERATOR(pg_catalog.~) 'b'") == (
        "select 'a OPERATOR(pg_catalog.~) b', x ~ 'b'"
    )
    assert translated("select current_user") == "select 'hayase'"


def test_commands_are_told_by_their_first_words() -> None:
    assert command_of("/* a */ -- b\n BEGIN READ ONLY").verb == "begin"
    assert command_of("START TRANSACTION ISOLATION LEVEL SERIALIZABLE").verb == "begin"
    assert command_of("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY").name == ""
    assert command_of("set time zone 'UTC'").name == "timezone"
    assert command_of("set statement_timeout to default").value is None
    assert command_of("with a as (select 1) select * from a").verb == "select"
    assert command_of("copy (subscribe spend from start) to stdout").copy is not None
    with pytest.raises(SqlError, match="only COPY"):
        command_of("copy spend to '/tmp/x'")


def test_the_time_of_statements_is_bounded_by_the_server() -> None:
    settings = Settings(60.0)
    assert settings.seconds == 60.0
    settings.set("statement_timeout", "5s")
    assert settings.seconds == 5.0
    settings.set("statement_timeout", "0")
    assert settings.seconds == 60.0


def test_a_reader_takes_further_functions(shop: hy.Pipeline) -> None:
    with HomeReader(shop.home.path, functions=["twice(x) AS 2 * x"]) as reader:
        assert reader.statement("select twice(n) as n from total").table().to_pylist() == [{"n": 78}]
        assert reader.columns("select user, n from spend").names == ["user", "n"]
