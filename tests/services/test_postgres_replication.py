"""The changes of a table as a stream, by logical replication."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from hayase.connectors.intake import Intake
from hayase.connectors.postgres_source import PostgresSource
from hayase.connectors.source import Portion, SourceSetting, Staged
from hayase.core.clock import now_us
from hayase.core.connector_data import declared_source
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import EndpointError, OutOfTurn
from hayase.streams import StreamLog
from hayase.streams.dead_letters import DEAD
from hayase.streams.event_time import event_times
from postgres_rows import new_name, variable
from servers.postgres import Postgres
from servers.process import PATIENCE

HEADS = "op string, at timestamp"


class Held(PostgresSource):
    """A source between whose read and append something happens."""

    before_append: Callable[[], None] | None = None

    def read(self, positions: Mapping[str, int], patience: float) -> Sequence[Portion]:
        portions = super().read(positions, patience)
        if self.before_append is not None and any(
            isinstance(portion.records, Staged) or portion.records.rows.num_rows for portion in portions
        ):
            self.before_append()
        return portions


class Replica:
    """A table, the stream that it fills, and its source."""

    def __init__(self, postgres: Postgres, home: Path, columns: str, schema: str, **options: Any):
        self.postgres, self.home, self.table = postgres, home, new_name("users")
        self.options = {"table": f"public.{self.table}", "slot": self.table, **options}
        self.stream = StreamDeclaration(self.table, f"{HEADS}, {schema}", time="at", changes="op", slack=0)
        postgres.execute(f"CREATE TABLE {self.table} ({columns})")

    @contextmanager
    def reading(self, before_append: Callable[[], None] | None = None) -> Iterator[Intake]:
        """What takes the source into the stream; `before_append` is called when it has read records."""
        with variable(self.postgres.dsn) as name:
            declared = declared_source(self.stream.name, {"postgres": {"dsn_env": name, **self.options}})
            source = Held(SourceSetting(self.stream, declared.values, "shop", now_us))
            source.before_append = before_append
            with closing(source):
                yield Intake(self.home, self.stream, source, now_us)

    def run(self, *statements: str) -> None:
        self.postgres.execute(*(statement.replace("T.", f"{self.table}") for statement in statements))

    def catch_up(self, intake: Intake) -> None:
        """Read until the stream has what the server has."""
        for _ in range(2000):
            intake.step(0.05)
            if not intake.lag():
                intake.confirm()
                return
        raise AssertionError(f"{intake.positions} is {intake.lag()} behind")

    def read(self) -> None:
        with self.reading() as intake:
            self.catch_up(intake)

    def records(self) -> list[tuple[Any, ...]]:
        """The records of the stream: sign, instant, values."""
        log = StreamLog.open(self.home, self.stream.name)
        index = log.index()
        pieces = [piece.rows for piece in log.read(index.start, index.next)]
        return [
            (sign, int(time), *row)
            for piece in pieces
            for sign, time, row in zip(
                piece.column("op").to_pylist(),
                event_times(piece, self.stream),
                zip(*(column.to_pylist() for column in piece.columns[2:])),
            )
        ]

    def changes(self) -> list[tuple[Any, ...]]:
        """The records of the stream without their times."""
        return [(sign, *row) for sign, _, *row in self.records()]

    def present(self) -> Counter[tuple[Any, ...]]:
        """The rows that the stream has; no row is removed that was not there."""
        rows: Counter[tuple[Any, ...]] = Counter()
        for sign, _, *row in self.records():
            rows[tuple(row)] += 1 if sign == "+" else -1
        assert all(count >= 0 for count in rows.values())
        return +rows

    def check(self, columns: str = "*") -> None:
        """The stream has the rows of the table, and its times never go back."""
        assert self.present() == Counter(self.postgres.execute(f"SELECT {columns} FROM {self.table}"))
        times = [time for _, time, *_ in self.records()]
        assert times == sorted(times)


Making = Callable[..., Replica]


@pytest.fixture
def replica(postgres: Postgres, tmp_path: Path) -> Iterator[Making]:
    made: list[Replica] = []

    def make(
        columns: str = "id bigint PRIMARY KEY, name text", schema: str = "id bigint, name string", **options: Any
    ) -> Replica:
        made.append(Replica(postgres, tmp_path, columns, schema, **options))
        return made[-1]

    yield make
    for each in made:
        postgres.execute(
            f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{each.options['slot']}'"
        )


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_table_is_copied_and_followed(replica: Making, identity: str) -> None:
    users = replica()
    users.run(f"ALTER TABLE T. REPLICA IDENTITY {identity}", "INSERT INTO T. VALUES (1, 'taro'), (2, NULL)")
    with users.reading() as intake:
        users.catch_up(intake)
        assert users.changes() == [("+", 1, "taro"), ("+", 2, None)]
        users.run(
            "INSERT INTO T. VALUES (3, 'hana')",
            "UPDATE T. SET name = 'jiro' WHERE id = 2",
            "DELETE FROM T. WHERE id = 1",
        )
        users.catch_up(intake)
    assert users.changes()[2:] == [("+", 3, "hana"), ("-", 2, None), ("+", 2, "jiro"), ("-", 1, "taro")]
    users.run("UPDATE T. SET id = 20 WHERE id = 2", "UPDATE T. SET name = '' WHERE id = 20")
    users.read()
    assert users.changes()[6:] == [("-", 2, "jiro"), ("+", 20, "jiro"), ("-", 20, "jiro"), ("+", 20, "")]
    users.run("TRUNCATE T.", "INSERT INTO T. VALUES (1, 'new')")
    users.read()
    assert sorted(users.changes()[10:]) == [("+", 1, "new"), ("-", 3, "hana"), ("-", 20, "")]
    users.check()


def test_a_transaction_is_one_instant(replica: Making) -> None:
    users = replica()
    users.read()
    with closing(psycopg2.connect(users.postgres.dsn)) as connection, connection.cursor() as cursor:
        for number in range(3):
            cursor.execute(
                f"INSERT INTO {users.table} SELECT n, 'x' FROM generate_series(%s, %s) n",
                (number * 10, number * 10 + 4),
            )
            cursor.execute(f"UPDATE {users.table} SET name = 'y' WHERE id = %s", (number * 10,))
            connection.commit()
        cursor.execute(f"INSERT INTO {users.table} VALUES (100, 'rolled back')")
        connection.rollback()
    users.read()
    times = [time for _, time, *_ in users.records()]
    assert [times.count(time) for time in sorted(set(times))] == [7, 7, 7]
    users.check()


def test_the_clock_moves_while_nothing_happens(replica: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hayase.connectors.postgres_replication.ADVANCE", 0.0)
    users = replica()
    users.run("INSERT INTO T. VALUES (1, 'a')")
    with users.reading() as intake:
        users.catch_up(intake)
        log = StreamLog.open(users.home, users.stream.name)
        for _ in range(200):
            intake.step(0.05)
            if log.index().clock > log.index().running_max:
                break
        clock = log.index().clock
        assert clock > log.index().running_max
        users.run("INSERT INTO T. VALUES (2, 'b')")
        users.catch_up(intake)
    assert users.records()[-1][1] >= clock
    users.check()


def test_the_clock_passes_what_was_there_when_it_is_read_to_the_end(replica: Making) -> None:
    """As a run until idle does it: reading ends at the first step that finds nothing, and the last instant is complete."""
    users = replica()
    users.run("INSERT INTO T. VALUES (1, 'a')")
    users.read()
    for _ in range(3):
        users.run("UPDATE T. SET name = name || 'b'")
        with users.reading() as intake:
            intake.lag()
            while intake.step(0.1) or intake.lag():
                pass
        index = StreamLog.open(users.home, users.stream.name).index()
        assert index.clock > index.running_max
    users.check()


def test_values_stored_apart_are_filled(replica: Making) -> None:
    users = replica("id bigint PRIMARY KEY, note text, n bigint", "id bigint, note string, n bigint")
    users.run(
        "ALTER TABLE T. ALTER COLUMN note SET STORAGE EXTERNAL", "INSERT INTO T. VALUES (1, repeat('long', 5000), 1)"
    )
    users.read()
    users.run("UPDATE T. SET n = 2")
    users.read()
    users.run("UPDATE T. SET n = 3")  # after a start: the row comes from the stream
    users.read()
    assert [(sign, len(note), n) for sign, _, note, n in users.changes()] == [
        ("+", 20_000, 1), ("-", 20_000, 1), ("+", 20_000, 2), ("-", 20_000, 2), ("+", 20_000, 3),
    ]  # fmt: skip
    users.check()


def test_a_table_without_a_key_sends_whole_rows(replica: Making) -> None:
    users = replica("name text, n bigint", "name string, n bigint")
    with pytest.raises(EndpointError, match=r"no primary key.*REPLICA IDENTITY FULL"), users.reading():
        pass
    assert not users.postgres.execute(f"SELECT FROM pg_publication WHERE pubname = '{users.table}'")
    users.run("ALTER TABLE T. REPLICA IDENTITY FULL", "INSERT INTO T. VALUES ('a', 1), ('a', 1), ('b', 2)")
    users.read()
    users.run("DELETE FROM T. WHERE ctid = (SELECT min(ctid) FROM T.)", "UPDATE T. SET n = 5 WHERE name = 'b'")
    users.read()
    users.check()
    users.run("TRUNCATE T.")
    users.read()
    users.check()
    assert not users.present()


TYPES = [
    (
        "a timestamptz, b numeric(10, 2), PRIMARY KEY (a, b)", "a timestamp, b decimal(12, 4)",
        "'2026-01-31 12:00+09', 1.5", "b = 2",
    ),
    ("a int, b bool, c text, PRIMARY KEY (a, b)", "a decimal(10, 2), b string, c string", "1, true, 'x'", "c = 'y'"),
    ("a bigint PRIMARY KEY, b int", "a double, b int", "100000000000000000, 1", "b = 2"),
    ("a float8 PRIMARY KEY, b int", "a double, b int", "1e20, 1", "b = 2"),
    ("a bytea PRIMARY KEY, b bool", "a binary, b boolean", "'\\x00ff', true", "b = NOT b"),
    (
        "a date, b time, c text, PRIMARY KEY (a, b)", "a date, b time, c string", "'2026-01-31', '12:00:00.5', 'x'",
        "c = 'y'",
    ),
    (
        "a uuid PRIMARY KEY, b jsonb", "a string, b json",
        "'6b2f3f1e-0000-4000-8000-000000000001', '{\"x\": 1.50}'", "b = '[]'",
    ),
    (
        "a int PRIMARY KEY, b int[][], c text[]", "a int, b array<array<int>>, c array<string>",
        "1, '{{1,2},{3,4}}', '{a,NULL,\"\"}'", "a = 2",
    ),
    (
        "a text PRIMARY KEY, b jsonb", "a string, b struct<x: int, y: array<string>>",
        "'k', '{\"x\": 1, \"y\": [\"é\"]}'", "a = 'l'",
    ),
    ("a int PRIMARY KEY, b bool, c numeric", "a int, b string, c double", "1, true, 'NaN'", "b = false"),
    ("a int PRIMARY KEY, b int4range, c interval", "a int, b string, c string", "1, '[1,5)', '1 day'", "c = '2 days'"),
    (
        "a smallint PRIMARY KEY, b numeric(20), c timestamp", "a tinyint, b ubigint, c timestamp_ntz",
        "-128, 18446744073709551615, '2026-01-31'", "a = 127",
    ),
    (
        "a int PRIMARY KEY, b float4, c float8", "a int, b float, c double", "1, 'infinity', '-infinity'",
        "b = 1.1, c = '-0'",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "schema", "insert", "update"), TYPES)
def test_types_from_a_table(replica: Making, columns: str, schema: str, insert: str, update: str) -> None:
    """A row is the same from the copy and from the log, and is removed as it was added, before and after a start."""
    users = replica(columns, schema)
    users.run(f"INSERT INTO T. VALUES ({insert})")
    users.read()
    copied = [row for _, *row in users.changes()]
    with users.reading() as intake:
        users.run("DELETE FROM T.", f"INSERT INTO T. VALUES ({insert})", f"UPDATE T. SET {update}")
        users.catch_up(intake)
    users.run(f"UPDATE T. SET {update}", "DELETE FROM T.")
    users.read()
    assert len(copied) == 1
    changes = users.changes()
    assert [sign for sign, *_ in changes] == ["+", "-", "+", "-", "+", "-", "+", "-"]
    assert repr([row for _, *row in changes[:4]]) == repr(copied * 4)
    assert repr(changes[4][1:]) == repr(changes[5][1:])
    assert not StreamLog.ensure(users.home, DEAD).index().next


def test_a_value_that_does_not_fit_is_a_dead_letter_with_its_place(replica: Making) -> None:
    users = replica("id bigint PRIMARY KEY, at_time timestamptz", "id bigint, at_time timestamp")
    users.run("INSERT INTO T. VALUES (1, 'infinity'), (2, '2026-01-31')")
    users.read()
    users.run("INSERT INTO T. VALUES (3, '20000-01-01')", "UPDATE T. SET at_time = '2026-01-31' WHERE id = 1")
    users.read()
    assert [row[:2] for row in users.changes()] == [("+", 2), ("+", 1)]
    dead = StreamLog.ensure(users.home, DEAD)
    letters = [letter for piece in dead.read(0, dead.index().next) for letter in piece.rows.to_pylist()]
    assert [letter["stream"] for letter in letters] == [users.table] * 2
    assert f"public.{users.table}, copied at" in letters[0]["reason"]
    assert f"public.{users.table}, 0/" in letters[1]["reason"]


# ------------------------------------------------------------------------------------------------------------- slots


def test_a_lost_slot_is_made_again_and_the_stream_gets_the_differences(replica: Making) -> None:
    users = replica()
    users.run("INSERT INTO T. SELECT n, 'x' FROM generate_series(1, 100) n")
    users.read()
    users.run(
        "SELECT pg_drop_replication_slot('T.')",
        "DELETE FROM T. WHERE id > 90",
        "UPDATE T. SET name = 'y' WHERE id <= 5",
    )
    users.run("INSERT INTO T. VALUES (200, 'z')")
    users.read()
    assert len(users.changes()) == 100 + 10 + 5 + 5 + 1
    assert len({time for _, time, *_ in users.records()}) == 2
    users.run("DELETE FROM T. WHERE id = 200")
    users.read()
    users.check()


def test_a_slot_that_fell_behind_its_limit_is_made_again(tmp_path: Path) -> None:
    with Postgres(max_slot_wal_keep_size="1MB", max_wal_size="32MB", min_wal_size="32MB") as small:
        users = Replica(small, tmp_path, "id bigint PRIMARY KEY, name text", "id bigint, name string")
        users.run("INSERT INTO T. VALUES (1, 'a'), (2, 'b')")
        users.read()
        for number in range(3, 8):
            users.run(f"INSERT INTO T. VALUES ({number}, 'x')", "SELECT pg_switch_wal()")
        users.run("DELETE FROM T. WHERE id = 1", "CHECKPOINT")
        assert small.execute("SELECT wal_status FROM pg_replication_slots") == [("lost",)]
        users.read()
        users.run("UPDATE T. SET name = 'c' WHERE id = 2")
        users.read()
        users.check()


def test_keys_that_are_stored_apart(replica: Making) -> None:
    users = replica("a text PRIMARY KEY, n bigint", "a string, n bigint")
    users.run("ALTER TABLE T. ALTER COLUMN a SET STORAGE EXTERNAL")
    users.run("INSERT INTO T. SELECT string_agg(md5(n::text), '' ORDER BY n), 1 FROM generate_series(1, 80) n")
    users.read()
    with users.reading() as intake:
        users.run("UPDATE T. SET n = 2", "UPDATE T. SET n = 3")
        users.catch_up(intake)
    users.run("UPDATE T. SET n = 4")
    users.read()
    users.check()
    assert len(users.changes()) == 7


def test_an_interrupted_copy_leaves_nothing(replica: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hayase.connectors.postgres_records.MOST_ROWS", 10)
    users = replica()
    users.run("INSERT INTO T. SELECT n, 'x' FROM generate_series(1, 100) n")
    with monkeypatch.context() as patch:
        patch.setattr("hayase.connectors.staged_append.StagedAppend.publish", _killed)
        with pytest.raises(Killed), users.reading():
            pass
    assert users.changes() == []
    users.run("DELETE FROM T. WHERE id = 1")
    with monkeypatch.context() as patch:  # the mark is there, and nothing is published
        patch.setattr("hayase.connectors.staged_append.publish_complete", _killed)
        with pytest.raises(Killed), users.reading():
            pass
    users.run("DELETE FROM T. WHERE id = 2")
    users.read()
    assert len(users.changes()) == 99 + 1
    users.check()


LARGE = "; ".join(
    (
        "INSERT INTO T. SELECT n, 'x' FROM generate_series(1, 100) n",
        "UPDATE T. SET name = 'y' WHERE id % 2 = 0",
        "DELETE FROM T. WHERE id % 5 = 0",
        "INSERT INTO T. SELECT n, 'z' FROM generate_series(201, 250) n",
    )
)
"""One transaction, with 220 changes and 270 records."""


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions of more than 20 changes are staged."""
    monkeypatch.setattr("hayase.connectors.postgres_replication.MOST_HELD", 20)
    monkeypatch.setattr("hayase.connectors.postgres_replication.MOST_CHANGES", 10)


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_transaction_that_is_larger_than_memory_is_one_instant(
    replica: Making, little_memory: None, identity: str
) -> None:
    users = replica()
    users.run(f"ALTER TABLE T. REPLICA IDENTITY {identity}")
    users.read()
    with users.reading() as intake:
        users.run("INSERT INTO T. VALUES (1001, 'before')")
        users.run(LARGE)
        users.run("INSERT INTO T. VALUES (2000, 'behind')")
        users.catch_up(intake)
        users.run("UPDATE T. SET name = 'again' WHERE id = 2000")  # the next append follows on the staged one
        users.catch_up(intake)
    users.check()
    instants = [at for _, at, *_ in users.records()]
    assert len(instants) == 1 + 100 + 2 * 50 + 20 + 50 + 1 + 2
    assert len(set(instants)) == 4
    users.read()
    assert len(users.records()) == len(instants)


@pytest.mark.parametrize("step", ["parts", "mark", "half"])
def test_a_large_transaction_is_whole_after_a_crash(
    replica: Making, little_memory: None, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    users = replica()
    users.read()
    users.run(LARGE)
    publish_all = StreamLog.publish_all

    def half(log: StreamLog, staged: Sequence[Path], **options: Any) -> None:
        publish_all(log, staged[:4], **options)
        raise Killed

    with users.reading() as intake, monkeypatch.context() as patch:
        if step == "half":
            patch.setattr(StreamLog, "publish_all", half)
        else:
            what = "StagedAppend.publish" if step == "parts" else "publish_complete"
            patch.setattr(f"hayase.connectors.staged_append.{what}", _killed)
        with pytest.raises(Killed):
            users.catch_up(intake)
    assert bool(users.records()) == (step == "half")
    users.read()
    users.check()
    assert len(users.records()) == 270
    assert not list((users.home / "sources").glob("*/copy-*"))


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
@pytest.mark.parametrize("held", [20, 10_000])
def test_a_transaction_that_empties_the_table_removes_its_own_rows_too(
    replica: Making, monkeypatch: pytest.MonkeyPatch, identity: str, held: int
) -> None:
    monkeypatch.setattr("hayase.connectors.postgres_replication.MOST_HELD", held)
    users = replica()
    users.run(f"ALTER TABLE T. REPLICA IDENTITY {identity}", "INSERT INTO T. VALUES (1001, 'before'), (1003, 'gone')")
    users.read()
    users.run(f"DELETE FROM T. WHERE id = 1003; {LARGE}; TRUNCATE T.; INSERT INTO T. VALUES (1, 'new')")
    users.run("INSERT INTO T. VALUES (2, 'behind')")
    users.read()
    users.check()


def test_half_of_a_complete_copy_is_completed(replica: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hayase.connectors.postgres_records.MOST_ROWS", 10)
    users = replica()
    users.run("INSERT INTO T. SELECT n, 'x' FROM generate_series(1, 100) n")
    publish_all = StreamLog.publish_all

    def publish(log: StreamLog, staged: Sequence[Path], **options: Any) -> None:
        publish_all(log, staged[:4], **options)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(StreamLog, "publish_all", publish)
        with pytest.raises(Killed), users.reading():
            pass
    assert 0 < len(users.changes()) < 100
    users.run("INSERT INTO T. VALUES (101, 'y')")
    users.read()
    assert len(users.changes()) == 101
    users.check()


class Killed(BaseException):
    """The end of a process."""


def _killed(*_: object) -> None:
    raise Killed


def test_the_slot_of_another_home_is_not_touched(replica: Making, tmp_path: Path) -> None:
    users = replica()
    users.read()
    users.home = tmp_path / "other"
    with pytest.raises(EndpointError, match="already that this home has not made"), users.reading():
        pass


def test_another_slot_begins_with_a_copy(replica: Making, postgres: Postgres) -> None:
    users = replica()
    users.run("INSERT INTO T. VALUES (1, 'a'), (2, 'b')")
    users.read()
    old, users.options["slot"] = users.table, f"{users.table}_new"
    postgres.execute(f"SELECT pg_create_logical_replication_slot('{users.options['slot']}', 'pgoutput')")
    users.run("DELETE FROM T. WHERE id = 1")
    with pytest.raises(EndpointError, match="already that this home has not made"), users.reading():
        pass
    postgres.execute(f"SELECT pg_drop_replication_slot('{users.options['slot']}')")
    users.read()
    assert users.changes() == [("+", 1, "a"), ("+", 2, "b"), ("-", 1, "a")]
    postgres.execute(f"SELECT pg_drop_replication_slot('{old}')")


def test_of_two_processes_one_goes_on(replica: Making) -> None:
    users = replica()
    users.run("INSERT INTO T. VALUES (1, 'a')")
    users.read()
    slots = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"

    def replace() -> None:
        """Another process takes over while this one is stopped."""
        with users.reading() as other, pytest.raises(EndpointError, match="another process uses it"):
            users.catch_up(other)
        users.postgres.execute(slots)
        _until(lambda: not users.postgres.execute(slots))
        users.read()

    with users.reading(replace) as zombie:
        users.run("INSERT INTO T. VALUES (2, 'b')")
        with pytest.raises(OutOfTurn):  # what it has read is in the log already
            users.catch_up(zombie)
    assert users.changes() == [("+", 1, "a"), ("+", 2, "b")]


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# ------------------------------------------------------------------------------------------------------------ tables


def test_columns_are_added_and_types_widened_without_a_stop(replica: Making) -> None:
    users = replica()
    users.run("INSERT INTO T. VALUES (1, 'a')")
    with users.reading() as intake:
        users.catch_up(intake)
        users.run("ALTER TABLE T. ADD COLUMN more text DEFAULT 'm'", "INSERT INTO T. VALUES (2, 'b', 'x')")
        users.run("ALTER TABLE T. ALTER COLUMN id TYPE numeric", "UPDATE T. SET name = 'c'")
        users.catch_up(intake)
    users.check("id::bigint, name")
    users.run("ALTER TABLE T. DROP COLUMN name", "INSERT INTO T. VALUES (3)")
    with pytest.raises(EndpointError, match='has no column "name"'), users.reading():
        pass


def test_a_column_that_is_dropped_is_an_error(replica: Making) -> None:
    users = replica()
    with users.reading() as intake:
        users.catch_up(intake)
        users.run("ALTER TABLE T. DROP COLUMN name", "INSERT INTO T. VALUES (3)")
        with pytest.raises(EndpointError, match='has lost the column "name"'):
            users.catch_up(intake)


def test_a_table_that_does_not_fit_the_stream_is_refused(replica: Making, postgres: Postgres) -> None:
    cases = {
        "id bigint, nmae string": 'has no column "nmae".*"name"',
        "id bigint, name bigint": 'column "name" of table .* is text, and that of stream .* takes bigint',
        "name string": 'has no column "id", which is in the key',
    }
    for schema, words in cases.items():
        with pytest.raises(EndpointError, match=words), replica(schema=schema).reading():
            pass
    with (
        pytest.raises(EndpointError, match="filled by the source"),
        replica("at bigint PRIMARY KEY", "x bigint").reading(),
    ):
        pass
    with pytest.raises(EndpointError, match="there is no table"), replica(table="public.nowhere").reading():
        pass
    users = replica()
    users.read()
    users.run("DROP TABLE T.", "CREATE TABLE T. (id bigint PRIMARY KEY, name text)")
    with pytest.raises(EndpointError, match="does not have table"), users.reading():
        pass


def test_a_server_without_logical_replication_says_so(tmp_path: Path) -> None:
    with Postgres(wal_level="replica") as plain:
        users = Replica(plain, tmp_path, "id bigint PRIMARY KEY", "id bigint")
        with pytest.raises(EndpointError, match="set wal_level = logical"), users.reading():
            pass


def test_a_publication_can_be_named(replica: Making) -> None:
    users = replica(publication="shared_publication")
    users.run(
        "CREATE TABLE T._other (id bigint PRIMARY KEY)", "CREATE PUBLICATION shared_publication FOR TABLE T., T._other"
    )
    users.run("INSERT INTO T. VALUES (1, 'a')")
    users.read()
    users.run("INSERT INTO T._other VALUES (7)", "INSERT INTO T. VALUES (2, 'b')", "TRUNCATE T._other")
    users.read()
    users.check()
