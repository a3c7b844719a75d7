"""New rows of a table as a stream, by a column that grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from hayase.connectors.intake import Intake
from hayase.connectors.postgres_source import PostgresSource
from hayase.connectors.source import SourceSetting
from hayase.core.clock import now_us
from hayase.core.connector_data import declared_source
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import EndpointError
from hayase.streams import StreamLog
from hayase.streams.dead_letters import DEAD
from hayase.testing import check_source
from postgres_rows import new_name, variable
from servers.postgres import Postgres

SCHEMA = "id bigint, seen timestamp, note string"


@contextmanager
def opened(postgres: Postgres, table: str, column: str) -> Iterator[Callable[[], PostgresSource]]:
    """A function that opens the source."""
    options = {"table": table, "mode": "poll", "column": column, "every": "10 ms"}
    with variable(postgres.dsn) as name:
        declared = declared_source(table, {"postgres": {"dsn_env": name, **options}})
        yield lambda: PostgresSource(SourceSetting(stream_of(table), declared.values, "shop", now_us))


def stream_of(table: str) -> StreamDeclaration:
    return StreamDeclaration(table, SCHEMA, time="seen")


@contextmanager
def polling(postgres: Postgres, home: Path, table: str, column: str) -> Iterator[Intake]:
    with opened(postgres, table, column) as make, closing(make()) as source:
        yield Intake(home, stream_of(table), source, now_us)


def read(postgres: Postgres, home: Path, table: str, column: str) -> list[Any]:
    """Read all that there is; return the ids that the stream has."""
    with polling(postgres, home, table, column) as intake:
        intake.step(0.01)
        while intake.lag():
            intake.step(0.01)
    log = StreamLog.open(home, table)
    return [number for piece in log.read(0, log.index().next) for number in piece.rows.column("id").to_pylist()]


@pytest.mark.parametrize("column", ["id", "seen", "written"])
def test_each_row_is_read_once(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    monkeypatch.setattr("hayase.connectors.postgres_poll.MOST_ROWS", 7)
    table = new_name("events")
    postgres.execute(f"CREATE TABLE {table} (id bigint, seen timestamptz, written timestamp, note text)")
    assert read(postgres, tmp_path, table, column) == []
    insert = (
        f"INSERT INTO {table} SELECT n, '2026-01-31Z'::timestamptz + n / 10 * interval '1 second', "
        f"'2026-01-31'::timestamp + n / 5 * interval '1 us', 'x' FROM generate_series({{}}, {{}}) n"
    )
    postgres.execute(insert.format(0, 49))
    assert sorted(read(postgres, tmp_path, table, column)) == list(range(50))
    assert sorted(read(postgres, tmp_path, table, column)) == list(range(50))
    postgres.execute(insert.format(50, 59), f"UPDATE {table} SET note = 'y' WHERE id < 10")
    assert sorted(read(postgres, tmp_path, table, column)) == list(range(60))


def test_the_laws_of_a_source(postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hayase.connectors.postgres_poll.MOST_ROWS", 3)
    table = new_name("events")
    postgres.execute(
        f"CREATE TABLE {table} (id bigint, seen timestamptz, note text)",
        f"INSERT INTO {table} SELECT n / 2, '2026-01-31Z', 'x' FROM generate_series(1, 20) n",
    )
    with opened(postgres, table, "id") as make:
        assert len(check_source(make)["rows"]) == 20


def test_a_row_that_does_not_fit_is_a_dead_letter_with_its_place(postgres: Postgres, tmp_path: Path) -> None:
    table = new_name("events")
    postgres.execute(
        f"CREATE TABLE {table} (id bigint, seen timestamptz, note text)",
        f"INSERT INTO {table} VALUES (1, NULL, 'a'), (2, '2026-01-31', NULL)",
    )
    assert read(postgres, tmp_path, table, "id") == [2]
    dead = StreamLog.ensure(tmp_path, DEAD)
    (piece,) = dead.read(0, dead.index().next)
    assert f'public.{table}, "id" 1: column "seen" is missing or null' in piece.rows.column("reason")[0].as_py()


def test_a_column_that_is_no_position_is_refused(postgres: Postgres, tmp_path: Path) -> None:
    table = new_name("events")
    postgres.execute(f"CREATE TABLE {table} (id bigint, seen timestamptz, note text)")
    with pytest.raises(EndpointError, match=r"is text, which is no position"):
        read(postgres, tmp_path, table, "note")
    with pytest.raises(EndpointError, match=r'has no column "ids".*"id"'):
        read(postgres, tmp_path, table, "ids")
