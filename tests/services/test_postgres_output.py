"""Results in tables of PostgreSQL: mirrors and histories, with the position in the same transaction."""

from __future__ import annotations

import random
from contextlib import closing
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, ClassVar

import psycopg2
import pyarrow as pa
import pytest

from hayase.connectors.postgres_client import connect
from hayase.connectors.postgres_sink import PostgresSink
from hayase.connectors.postgres_types import texts_of
from hayase.connectors.sink import Position
from hayase.core.errors import EndpointError, PositionMoved
from hayase.core.schemas import arrow_schema
from hayase.testing import check_sink
from postgres_rows import changes, new_name, sink
from servers.postgres import PASSWORD, Postgres

SCHEMA = "user string, n bigint"
FIRST = Position(1, "c1")


def rows_of(postgres: Postgres, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    return sorted(postgres.execute(f'SELECT {columns} FROM "{table}"'), key=repr)


def test_a_mirror_by_key_holds_the_present_rows(postgres: Postgres) -> None:
    table = new_name()
    with closing(sink(postgres.dsn, table, SCHEMA, key="user")) as target:
        assert target.position() is None
        rows = [(1, "+", 1, "taro", 1), (1, "+", 2, "hana", 1), (2, "-", 1, "taro", 1), (2, "+", 3, "taro", 2)]
        target.write(changes(SCHEMA, rows, None))
        assert rows_of(postgres, table) == [("hana", 1), ("taro", 2)]
        target.write(changes(SCHEMA, [(3, "-", 2, "hana", 1), (3, "+", 4, None, 5)], FIRST))
        assert rows_of(postgres, table) == [("taro", 2), (None, 5)]
        target.write(
            changes(SCHEMA, [(4, "-", 4, None, 5), (4, "+", 5, None, 6), (5, "-", 3, "taro", 2)], Position(2, "c2"))
        )
        assert rows_of(postgres, table) == [(None, 6)]
        target.write(changes(SCHEMA, [(6, "-", 5, None, 6)], Position(3, "c3")))
        assert rows_of(postgres, table) == []
    with closing(sink(postgres.dsn, table, SCHEMA, key="user")) as target:
        assert target.position() == Position(4, "c4")


def test_a_mirror_without_a_key_has_numbers_of_rows(postgres: Postgres) -> None:
    table = new_name()
    with closing(sink(postgres.dsn, f"public.{table}", SCHEMA, output=table)) as target:
        target.position()
        rows = [(1, "+", 1, "taro", 1), (1, "+", 2, "taro", 1), (2, "+", 3, "gone", 1), (3, "-", 3, "gone", 1)]
        target.write(changes(SCHEMA, rows, None))
        assert rows_of(postgres, table) == [(1, "taro", 1), (2, "taro", 1)]
        target.write(changes(SCHEMA, [(4, "-", 1, "taro", 1), (4, "+", 7, "", None)], FIRST))
        assert rows_of(postgres, table) == [(2, "taro", 1), (7, "", None)]


def test_a_history_keeps_rows_with_their_times(postgres: Postgres) -> None:
    table = new_name()
    second = 1_000_000
    with closing(sink(postgres.dsn, table, SCHEMA, mode="history")) as target:
        target.position()
        rows = [(second, "+", 1, "taro", 1), (second, "+", 2, "hana", 1), (2 * second, "-", 2, "hana", 1)]
        target.write(changes(SCHEMA, rows, None))
        target.write(changes(SCHEMA, [(3 * second, "-", 1, "taro", 1), (3 * second, "+", 3, "taro", 2)], FIRST))
    times = {at: datetime(1970, 1, 1, 0, 0, at, tzinfo=UTC) for at in (1, 2, 3)}
    assert rows_of(postgres, table) == [
        (1, "taro", 1, times[1], times[3]),
        (2, "hana", 1, times[1], times[2]),
        (3, "taro", 2, times[3], None),
    ]


def test_a_history_counts_time_as_its_stream(postgres: Postgres) -> None:
    table = new_name()
    with closing(sink(postgres.dsn, table, SCHEMA, time_unit="ms", mode="history")) as target:
        target.position()
        target.write(changes(SCHEMA, [(5_000, "+", 1, "taro", 1), (-7_000, "+", 2, "hana", 1)], None))
        target.write(changes(SCHEMA, [(9_000, "-", 1, "taro", 1)], FIRST))
    assert rows_of(postgres, table, "row_id, valid_from, valid_to") == [(1, 5, 9), (2, -7, None)]


@pytest.mark.parametrize("options", [{}, {"key": "user"}, {"mode": "history"}])
def test_after_a_reset_the_table_is_written_anew(postgres: Postgres, options: dict[str, str]) -> None:
    table = new_name()
    with closing(sink(postgres.dsn, table, SCHEMA, **options)) as target:
        target.position()
        target.write(changes(SCHEMA, [(1, "+", 1, "taro", 1)], None))
        target.write(changes(SCHEMA, [(1, "+", 1, "hana", 1)], FIRST, anew=True))
    assert rows_of(postgres, table, '"user", n') == [("hana", 1)]


def test_only_one_of_two_writers_goes_on(postgres: Postgres) -> None:
    table = new_name()
    with closing(sink(postgres.dsn, table, SCHEMA)) as old:
        old.position()
        old.write(changes(SCHEMA, [(1, "+", 1, "taro", 1)], None))
        with closing(sink(postgres.dsn, table, SCHEMA)) as new:
            assert new.position() == FIRST
            with pytest.raises(PositionMoved, match="another process writes"):
                old.write(changes(SCHEMA, [(2, "+", 2, "zombie", 1)], FIRST))
            with pytest.raises(PositionMoved, match="holds"):
                new.write(changes(SCHEMA, [(2, "+", 2, "wrong", 1)], None))
            new.write(changes(SCHEMA, [(2, "+", 2, "hana", 1)], FIRST))
    assert rows_of(postgres, table) == [(1, "taro", 1), (2, "hana", 1)]


def test_a_write_is_whole_or_not_at_all(postgres: Postgres) -> None:
    table = new_name()
    with closing(sink(postgres.dsn, table, SCHEMA)) as target:
        target.position()
        target.write(changes(SCHEMA, [(1, "+", 1, "taro", 1)], None))
        with pytest.raises(EndpointError, match="duplicate key"):
            target.write(changes(SCHEMA, [(2, "+", 2, "hana", 1), (2, "+", 1, "again", 1)], FIRST))
        assert rows_of(postgres, table) == [(1, "taro", 1)]
        assert target.position() == FIRST
        postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hayase'")
        with pytest.raises(EndpointError, match="check the server"):
            target.write(changes(SCHEMA, [(2, "+", 2, "hana", 1)], FIRST))
    with closing(sink(postgres.dsn, table, SCHEMA)) as target:
        assert target.position() == FIRST
        target.write(changes(SCHEMA, [(2, "+", 2, "hana", 1)], FIRST))
    assert rows_of(postgres, table) == [(1, "taro", 1), (2, "hana", 1)]


class Cut:
    """A connection that can be cut at a commit: before the server does it, or before it can say so."""

    cuts: ClassVar[bool] = False
    commits: ClassVar[bool] = False

    def __init__(self, connection: Any):
        self.connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def commit(self) -> None:
        if self.commits or not self.cuts:
            self.connection.commit()
        if self.cuts:
            self.connection.close()
            raise psycopg2.OperationalError("server closed the connection unexpectedly")


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("options", [{}, {"key": "user"}, {"mode": "history"}])
def test_a_connection_that_is_cut_around_a_commit(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], commits: bool
) -> None:
    """Whoever comes next learns from the table whether it was done, and goes on there."""
    table = new_name()
    written = changes(SCHEMA, [(1, "+", 1, "taro", 1)], None)
    monkeypatch.setattr(
        "hayase.connectors.postgres_sink.connect", lambda *given, **named: Cut(connect(*given, **named))
    )
    monkeypatch.setattr(Cut, "commits", commits)
    with closing(sink(postgres.dsn, table, SCHEMA, **options)) as target:
        target.position()
        monkeypatch.setattr(Cut, "cuts", True)
        with pytest.raises(EndpointError, match="server closed the connection"):
            target.write(written)
    monkeypatch.setattr(Cut, "cuts", False)
    with closing(sink(postgres.dsn, table, SCHEMA, **options)) as target:
        position = target.position()
        assert position == (FIRST if commits else None)
        if position is None:
            target.write(written)
        target.write(changes(SCHEMA, [(2, "-", 1, "taro", 1), (2, "+", 2, "taro", 2)], FIRST))
    filtered = f"{table} WHERE valid_to IS NULL" if "mode" in options else table
    assert postgres.execute(f'SELECT "user", n FROM {filtered}') == [("taro", 2)]


# ---------------------------------------------------------------------------------------------------- existing tables


def test_a_table_that_exists_is_used_with_its_own_columns(postgres: Postgres) -> None:
    table = new_name()
    postgres.execute(
        f'CREATE TABLE {table} (id serial, n numeric, "user" varchar UNIQUE, written timestamptz DEFAULT now())'
    )
    with closing(sink(postgres.dsn, table, SCHEMA, key="user")) as target:
        target.position()
        target.write(changes(SCHEMA, [(1, "+", 1, "taro", 1)], None))
    assert rows_of(postgres, table, 'id, n, "user", written IS NOT NULL') == [(1, Decimal(1), "taro", True)]


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ('n bigint, "user" bigint UNIQUE', 'column "user" of table "public.{}" is bigint, and its values are text'),
        ('"user" text UNIQUE', 'has no column "n".*ALTER TABLE public.{} ADD COLUMN "n" bigint'),
        ('n bigint, "user" text', "no unique index on \"user\".*CREATE UNIQUE INDEX"),
        ('n bigint, "user" text UNIQUE, other bigint NOT NULL', 'column "other" of table "public.{}" needs a value'),
        ('m bigint, n bigint GENERATED ALWAYS AS (m) STORED, "user" text UNIQUE', 'column "n"'),
    ],
)  # fmt: skip
def test_a_table_that_does_not_fit_is_refused(postgres: Postgres, columns: str, error: str) -> None:
    table = new_name()
    postgres.execute(f"CREATE TABLE {table} ({columns})")
    with pytest.raises(EndpointError, match=error.format(table)):
        sink(postgres.dsn, table, SCHEMA, key="user")


def test_rows_of_others_are_not_touched(postgres: Postgres) -> None:
    table = new_name()
    postgres.execute(f'CREATE TABLE {table} ("user" text UNIQUE, n bigint)', f"INSERT INTO {table} VALUES ('old', 1)")
    first = changes(SCHEMA, [(1, "+", 1, "taro", 1)], None)

    def begin(target: PostgresSink) -> None:
        if target.position() is None:
            target.write(first)

    def refused(words: str, name: str = table, **options: str) -> None:
        target = sink(postgres.dsn, name, SCHEMA, key="user", **options)
        with closing(target), pytest.raises(EndpointError, match=words):
            begin(target)

    refused(r"has rows that output .* has not written")
    postgres.execute(f"DELETE FROM {table}")
    with closing(sink(postgres.dsn, table, SCHEMA, key="user")) as target:
        assert target.position() is None
        target.write(first)
    refused(r"is written by output .* of the home home1", home="home2")
    refused("give the output another name", name=new_name(), output=f"to_{table}")
    assert rows_of(postgres, table, '"user", n') == [("taro", 1)]


def test_nothing_is_created_before_the_first_write(postgres: Postgres) -> None:
    table = new_name()
    postgres.execute(f"CREATE SCHEMA {table}")
    for home in ("check", "home1"):
        with closing(sink(postgres.dsn, f"{table}.spend", SCHEMA, home=home)) as target:
            assert target.position() is None
    assert not postgres.execute(f"SELECT FROM pg_tables WHERE schemaname = '{table}'")
    with pytest.raises(EndpointError, match="its schema does not exist"):
        sink(postgres.dsn, f"not_{table}.spend", SCHEMA)


def test_of_two_that_begin_one_goes_on(postgres: Postgres) -> None:
    table = new_name()
    with closing(sink(postgres.dsn, table, SCHEMA)) as one, closing(sink(postgres.dsn, table, SCHEMA)) as other:
        assert one.position() is None
        assert other.position() is None
        one.write(changes(SCHEMA, [(1, "+", 1, "taro", 1)], None))
        with pytest.raises(PositionMoved, match="another process writes"):
            other.write(changes(SCHEMA, [(1, "+", 1, "taro", 1)], None))
    assert rows_of(postgres, table) == [(1, "taro", 1)]


@pytest.mark.parametrize("options", [{}, {"key": "user"}, {"mode": "history"}])
def test_the_laws_of_a_sink(postgres: Postgres, options: dict[str, str]) -> None:
    table = new_name()
    rows = pa.table([pa.array(["taro", "hana"]), pa.array([1, 2])], schema=arrow_schema(SCHEMA))
    check_sink(lambda: sink(postgres.dsn, table, SCHEMA, **options), rows, lambda: rows_of(postgres, table))


@pytest.mark.parametrize(("name", "mode"), [("row_id", "mirror"), ("valid_from", "history")])
def test_a_column_cannot_have_the_name_of_an_added_one(postgres: Postgres, name: str, mode: str) -> None:
    with pytest.raises(EndpointError, match=f'adds a column "{name}"'):
        sink(postgres.dsn, new_name(), f"{name} bigint", mode=mode)


# -------------------------------------------------------------------------------------------------------------- errors


def test_errors_say_what_to_do_and_no_secret(postgres: Postgres) -> None:
    table = new_name()
    cases = {
        postgres.dsn.replace(PASSWORD, "wrong-one"): "check the user and the password",
        postgres.dsn.replace(f":{postgres.port}", ":1"): "check the server",
        postgres.dsn.replace("/postgres", "/nowhere"): "nowhere",
        "a secret that is no connection string": "cannot be read",
    }
    for dsn, words in cases.items():
        with pytest.raises(EndpointError, match=words) as caught:
            sink(dsn, table, SCHEMA)
        assert "wrong-one" not in str(caught.value)
        assert "a secret" not in str(caught.value)


def test_a_lock_is_not_waited_for_without_end(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hayase.connectors.postgres_sink.SESSION", {"lock_timeout": "100ms"})
    table = new_name()
    with closing(sink(postgres.dsn, table, SCHEMA)) as target:
        target.position()
        target.write(changes(SCHEMA, [(1, "+", 1, "taro", 1)], None))
        with closing(psycopg2.connect(postgres.dsn)) as other, other.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {table}")
            with pytest.raises(EndpointError, match="another session holds a lock"):
                target.write(changes(SCHEMA, [(2, "+", 2, "hana", 1)], FIRST))
        target.write(changes(SCHEMA, [(2, "+", 2, "hana", 1)], FIRST))


def test_names_are_quoted(postgres: Postgres) -> None:
    table, schema = new_name("T$"), '`a"b; drop` bigint, `select` string'
    with closing(sink(postgres.dsn, table, schema, key='a"b; drop')) as target:
        target.position()
        target.write(changes(schema, [(1, "+", 1, 1, "x"), (2, "-", 1, 1, "x"), (2, "+", 2, 2, "y")], None))
        target.write(changes(schema, [(3, "-", 2, 2, "y")], FIRST))
    assert rows_of(postgres, table) == []


# --------------------------------------------------------------------------------------------------------------- types

NAN, INFINITY = float("nan"), float("inf")
LATEST = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
VALUES: dict[str, list[tuple[Any, Any]]] = {
    "boolean": [(True, True), (False, False)],
    "tinyint": [(-128, -128), (127, 127)],
    "smallint": [(-(2**15), -(2**15))],
    "int": [(2**31 - 1, 2**31 - 1), (-(2**31), -(2**31))],
    "bigint": [(2**63 - 1, 2**63 - 1), (-(2**63), -(2**63))],
    "ubigint": [(2**64 - 1, Decimal(2**64 - 1)), (0, Decimal(0))],
    "float": [(1.5, 1.5), (NAN, NAN), (INFINITY, INFINITY), (-INFINITY, -INFINITY), (-0.0, -0.0)],
    "double": [(0.1, 0.1), (5e-324, 5e-324), (1.7976931348623157e308, 1.7976931348623157e308), (NAN, NAN), (-INFINITY, -INFINITY)],
    "decimal(38, 0)": [(Decimal("9" * 38), Decimal("9" * 38))],
    "decimal(38, 38)": [(Decimal("0." + "1" * 38), Decimal("0." + "1" * 38)), (Decimal("1E-38"), Decimal("1E-38"))],
    "string": [("", ""), ("né\"',;\\\n\r\t ", "né\"',;\\\n\r\t "), ("\\N", "\\N"), ("a\0b", "a\ufffdb"), ("😀", "😀")],
    "binary": [(b"", b""), (b"\0\\x\xff\n", b"\0\\x\xff\n")],
    "date": [(date(1, 1, 1), date(1, 1, 1)), (date(9999, 12, 31), date(9999, 12, 31))],
    "timestamp": [(datetime(1, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)), (LATEST, LATEST)],
    "timestamp_ntz": [(datetime(2026, 1, 31, 12, 0, 0, 1), datetime(2026, 1, 31, 12, 0, 0, 1))],
    "time": [(time(0), time(0)), (time(23, 59, 59, 999_999), time(23, 59, 59, 999_999))],
    "json": [('{"a": [1, 2.50, "\\u0000"]}', '{"a": [1, 2.50, "\ufffd"]}'), ("null", "null"), ('"x"', '"x"')],
    "array<bigint>": [([], []), ([1, None, -(2**63)], [1, None, -(2**63)])],
    "array<string>": [(["", "NULL", None, 'a"b\\c,{}', "x\0"], ["", "NULL", None, 'a"b\\c,{}', "x\ufffd"])],
    "array<double>": [([0.1, NAN, None, INFINITY], [0.1, NAN, None, INFINITY])],
    "array<timestamp>": [([datetime(2026, 1, 31, tzinfo=UTC), None], [datetime(2026, 1, 31, tzinfo=UTC), None])],
    "array<array<int>>": [([[1], [2, 3]], "[[1], [2, 3]]")],
    "struct<a: int, b: struct<c: string>>": [
        ({"a": 1, "b": {"c": "é"}}, '{"a": 1, "b": {"c": "é"}}'), ({"a": None, "b": None}, '{"a": null, "b": null}'),
    ],
    "map<string, int>": [([("k", 1)], '[["k", 1]]')],
}  # fmt: skip


@pytest.mark.parametrize("kind", VALUES)
def test_each_type(postgres: Postgres, kind: str) -> None:
    table, schema = new_name(), f"v {kind}"
    pairs = [*VALUES[kind], (None, None)]
    with closing(sink(postgres.dsn, table, schema)) as target:
        target.position()
        target.write(changes(schema, [(1, "+", at, value) for at, (value, _) in enumerate(pairs)], None))
    text = "v::text" if postgres.execute(f"SELECT pg_typeof(v)::text FROM {table}")[0] == ("jsonb",) else "v"
    stored = [value for (value,) in postgres.execute(f"SELECT {text} FROM {table} ORDER BY row_id")]
    stored = [bytes(value) if isinstance(value, memoryview) else value for value in stored]
    assert repr(stored) == repr([expected for _, expected in pairs])


def test_times_beyond_the_calendar(postgres: Postgres) -> None:
    table, schema = new_name(), "v timestamp, d date"
    field = arrow_schema(schema).field("v")
    micros = [-210_866_803_200_000_000, 253_402_300_800_000_000, 9_223_371_000_000_000_000]
    column = pa.array(micros, pa.int64()).view(field.type)
    written = changes(schema, [(1, "+", at, None, None) for at in range(3)], None)
    place = written.rows.schema.get_field_index("v")
    written = written._replace(rows=written.rows.set_column(place, field, column))
    with closing(sink(postgres.dsn, table, schema)) as target:
        target.position()
        target.write(written)
    query = f"SELECT (extract(epoch FROM v) * 1000000)::numeric(30, 0) FROM {table} ORDER BY row_id"
    assert [int(value) for (value,) in postgres.execute(query)] == micros
    assert texts_of(column, field)[0].as_py() == "4714-11-24 00:00:00.000000Z BC"


def test_a_value_that_postgresql_does_not_have_is_an_error_with_its_column(postgres: Postgres) -> None:
    table, schema = new_name(), "v json"
    with closing(sink(postgres.dsn, table, schema)) as target:
        target.position()
        with pytest.raises(EndpointError, match="the table cannot hold a value"):
            target.write(changes(schema, [(1, "+", 1, "1e999999")], None))


# ---------------------------------------------------------------------------------------------------------------- laws


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("options", [{}, {"key": "user"}, {"mode": "history"}])
def test_any_changes_in_any_portions(postgres: Postgres, options: dict[str, str], seed: int) -> None:
    """The table equals a model in plain Python, however changes are cut into writes, with sinks that are opened anew."""
    table, source = new_name(), random.Random(seed)
    present: dict[int, tuple[str, int]] = {}
    history: dict[int, list[int | None]] = {}
    log: list[tuple[Any, ...]] = []
    values: dict[int, tuple[str, int]] = {}
    for instant in range(1, 60):
        ending = [number for number in sorted(present) if source.random() < 0.4]
        for number in ending:
            log.append((instant * 1_000_000, "-", number, *present.pop(number)))
            history[number][1] = instant
        free = [name for name in ("a", "b", "c", None) if name not in {user for user, _ in present.values()}]
        for user in free:
            if source.random() < 0.5:
                number = len(history)
                present[number] = values[number] = (user, source.randrange(3))
                history[number] = [instant, None]
                log.append((instant * 1_000_000, "+", number, *present[number]))
    position, at = None, 0
    while at < len(log):
        size = source.randrange(1, 9)
        with closing(sink(postgres.dsn, table, SCHEMA, **options)) as target:
            assert target.position() == position
            for _ in range(source.randrange(1, 4)):
                if portion := log[at : at + size]:
                    written = changes(SCHEMA, portion, position)
                    target.write(written)
                    position, at = written.until, at + size
    if "mode" in options:
        query = f'SELECT row_id, "user", n, extract(epoch FROM valid_from)::int, extract(epoch FROM valid_to)::int FROM {table}'
        expected = [(number, *values[number], *times) for number, times in history.items()]
        assert sorted(postgres.execute(query)) == sorted(expected)
    else:
        expected = sorted(present.values(), key=repr)
        assert rows_of(postgres, table, '"user", n') == expected
