"""The PostgreSQL of the tests: changes come out of a logical slot, which outlives the server's restarts."""

from __future__ import annotations

import select
import struct
import time
from contextlib import closing

import psycopg2
import pytest
from psycopg2.extras import LogicalReplicationConnection, ReplicationCursor

from servers.postgres import PASSWORD, Postgres
from servers.process import PATIENCE

COMMIT = struct.Struct(">cBqqq")
"""Of pgoutput: kind, flags, position of the commit, end of the transaction, time."""


def inserted(postgres: Postgres, slot: str, last: bytes) -> list[bytes]:
    """The texts that were inserted since a slot was last confirmed, up to the transaction of `last`; they are confirmed."""
    texts: list[bytes] = []
    with (
        closing(psycopg2.connect(postgres.dsn, connection_factory=LogicalReplicationConnection)) as connection,
        connection.cursor() as cursor,
    ):
        options = {"proto_version": "1", "publication_names": "changes"}
        cursor.start_replication(slot_name=slot, options=options, decode=False)
        for message in messages(cursor):
            if message.payload[:1] == b"I":  # its last bytes are its last column
                texts.append(message.payload[-1:])
            if message.payload[:1] == b"C" and last in texts:
                _, _, _, end, _ = COMMIT.unpack(message.payload)
                cursor.send_feedback(flush_lsn=end, force=True)
                break
    deadline = time.monotonic() + PATIENCE
    while postgres.execute(f"SELECT FROM pg_replication_slots WHERE slot_name = '{slot}' AND active"):
        assert time.monotonic() < deadline, "the server does not notice that its client is gone"
    return texts


def messages(cursor: ReplicationCursor):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if (message := cursor.read_message()) is not None:
            yield message
        else:
            select.select([cursor], [], [], 1)


def test_a_slot_receives_changes_and_outlives_restarts(postgres: Postgres) -> None:
    postgres.execute(
        "CREATE TABLE notes (id bigint PRIMARY KEY, note text)",
        "CREATE PUBLICATION changes FOR TABLE notes",
        "SELECT pg_create_logical_replication_slot('kept', 'pgoutput')",
        "INSERT INTO notes VALUES (1, 'a'), (2, 'b')",
    )
    assert inserted(postgres, "kept", b"b") == [b"a", b"b"]
    postgres.execute("INSERT INTO notes VALUES (3, 'c')")
    assert inserted(postgres, "kept", b"c") == [b"c"]  # what was confirmed does not come again
    postgres.execute("INSERT INTO notes VALUES (4, 'd')")
    postgres.restart()
    postgres.execute("INSERT INTO notes VALUES (5, 'e')")
    # What was confirmed may come again: before PostgreSQL 17 a restart forgets confirmations that freed nothing.
    assert inserted(postgres, "kept", b"e")[-2:] == [b"d", b"e"]
    postgres.execute("INSERT INTO notes VALUES (6, 'f')")
    postgres.kill()
    postgres.start()
    assert inserted(postgres, "kept", b"f")[-1:] == [b"f"]
    assert postgres.execute("SELECT count(*) FROM notes") == [(6,)]


def test_a_client_needs_the_password(postgres: Postgres) -> None:
    with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
        psycopg2.connect(postgres.dsn.replace(PASSWORD, "wrong"))


def test_a_paused_server_answers_later(postgres: Postgres) -> None:
    with closing(psycopg2.connect(postgres.dsn, async_=True)) as connection:
        wait(connection)
        postgres.pause()
        cursor = connection.cursor()
        cursor.execute("SELECT 1")
        assert connection.isexecuting()
        postgres.resume()
        wait(connection)
        assert cursor.fetchall() == [(1,)]


def wait(connection: psycopg2.extensions.connection) -> None:
    while (state := connection.poll()) != psycopg2.extensions.POLL_OK:
        reading = state == psycopg2.extensions.POLL_READ
        select.select([connection] if reading else [], [] if reading else [connection], [], PATIENCE)
