"""SQL over PostgreSQL's protocol with real clients: psql, psycopg, SQLAlchemy, pandas, JDBC; with a token and TLS."""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import hayase as hy
from hayase.core.access import Access
from hayase.core.addresses import Address
from hayase.wire.sql_process import sql_serving
from relation_shop import purchases, relation_shop
from servers.maven import java, maven
from servers.process import Missing

TOKEN = "a-token-of-24-characters"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> hy.Pipeline:
    pipeline = relation_shop(tmp_path_factory.mktemp("clients") / "shop")
    pipeline.append("purchases", purchases(0, 40))
    pipeline.run_until_idle(spark=False)
    return pipeline


@pytest.fixture(scope="module")
def address(shop: hy.Pipeline) -> Iterator[Address]:
    with sql_serving(shop.home, "127.0.0.1:0", access=Access(TOKEN)) as place:
        yield place


def psql(address: Address, *commands: str, **environment: str) -> str:
    if shutil.which("psql") is None:
        pytest.skip("psql is missing: apt-get install postgresql-client")
    asked = [part for command in commands for part in ("-c", command)]
    line = ["psql", "-X", "-A", "-t", "-h", address.host, "-p", str(address.port), "-U", "me", "hayase", *asked]
    done = subprocess.run(
        line, env={**os.environ, "PGPASSWORD": TOKEN, **environment}, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_psql_asks_and_describes(address: Address) -> None:
    assert psql(address, "select user, n from spend order by user") == "u0|13\nu1|13\nu2|13\n"
    assert "public|spend_history|view|hayase" in psql(address, r"\d")
    assert "spent|bigint" in psql(address, r"\d spend")
    assert "stages" in psql(address, r"\dv hayase.*")
    assert psql(address, "copy (select n from total) to stdout") == "39\n"
    assert 'unknown relation "spent"' in psql(address, "select * from spent")
    assert "the token is not the one" in psql(address, "select 1", PGPASSWORD="another-token-of-it")


def test_a_server_that_is_killed_is_there_again(shop: hy.Pipeline) -> None:
    lines: queue.Queue[str] = queue.Queue()
    with sql_serving(shop.home, "127.0.0.1:0", access=Access(TOKEN), on_end=lines.put) as place:
        assert psql(place, "select n from total") == "39\n"
        (server,) = [
            child for child in psutil.Process().children() if "hayase.wire.sql_process" in " ".join(child.cmdline())
            and any(each.laddr.port == place.port for each in child.net_connections())
        ]  # fmt: skip
        server.kill()
        assert "starts again" in lines.get(timeout=60)
        assert psql(place, "select n from total") == "39\n"


def test_psql_over_tls(shop: hy.Pipeline, tmp_path: Path) -> None:
    import trustme

    file = tmp_path / "server.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(file))
    with sql_serving(shop.home, "127.0.0.1:0", access=Access(TOKEN, certificate=file)) as place:
        assert psql(place, "select n from total", PGSSLMODE="require") == "39\n"


def test_psycopg_with_parameters_in_text_and_binary(address: Address) -> None:
    import psycopg

    with psycopg.connect(
        host=address.host, port=address.port, user="me", password=TOKEN, dbname="hayase"
    ) as connection:
        for binary in (False, True):
            with connection.cursor(binary=binary) as cursor:
                cursor.execute("select user, n from spend where user = %s and n > %s", ("u1", 3))
                assert cursor.fetchall() == [("u1", 13)]
                cursor.execute(
                    "select [1, 2]::bigint[], 1.50::decimal(9, 2), date '2026-01-02', event_time from purchases limit 1"
                )
                row = cursor.fetchone()
                assert row is not None
                assert [str(value) for value in row] == ["[1, 2]", "1.50", "2026-01-02", "2026-01-01 00:00:00+00:00"]
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("select * from nix")


def test_sqlalchemy_reflects_and_pandas_reads(address: Address) -> None:
    import pandas
    import sqlalchemy

    engine = sqlalchemy.create_engine(f"postgresql+psycopg://me:{TOKEN}@{address}/hayase")
    try:
        inspector = sqlalchemy.inspect(engine)
        assert "spend" in inspector.get_view_names()
        assert [column["name"] for column in inspector.get_columns("spend")] == ["user", "spent", "n"]
        spend = sqlalchemy.Table("spend", sqlalchemy.MetaData(), autoload_with=engine)
        with engine.connect() as connection:
            chosen = sqlalchemy.select(spend.c.n).where(spend.c.user == "u2")
            assert connection.execute(chosen).scalar() == 13
            assert pandas.read_sql("select * from total", connection).to_dict("records") == [{"spent": 741, "n": 39}]
    finally:
        engine.dispose()


def test_jdbc_asks_and_describes(address: Address, tmp_path: Path) -> None:
    try:
        maven(tmp_path, "copy", "-Dartifact=org.postgresql:postgresql:42.7.7")
        command = java()
    except Missing as missing:
        pytest.skip(str(missing))
    source, place = Path(__file__).with_name("Asks.java"), f"jdbc:postgresql://{address}/hayase"
    line = [*command, "-cp", str(tmp_path / "postgresql-42.7.7.jar"), str(source), place, TOKEN]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    described = ["spend", "spend_history", "user text", "spent int8", "n int8"]
    assert done.stdout.splitlines() == ["u1 13"] * 7 + ["780", *described]
