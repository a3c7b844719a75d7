"""Messages of pgoutput, put together by hand."""

from __future__ import annotations

import struct

import pytest

from hayase.connectors.pgoutput import UNCHANGED, Change, Decoder, Relation, Transaction
from hayase.core.errors import EndpointError

USERS = Relation("public", "users", ("id", "name"), (20, 25), ("id",))
YEAR_2000 = 946_684_800_000_000


def begin() -> bytes:
    return b"B" + struct.pack(">qqI", 90, 1, 7)


def commit(end: int = 100, time: int = 5) -> bytes:
    return b"C" + struct.pack(">Bqqq", 0, 90, end, time)


def relation(number: int, of: Relation) -> bytes:
    columns = b"".join(
        struct.pack(">B", name in of.key) + name.encode() + b"\0" + struct.pack(">Ii", kind, -1)
        for name, kind in zip(of.columns, of.types)
    )
    names = of.schema.encode() + b"\0" + of.table.encode() + b"\0"
    return b"R" + struct.pack(">I", number) + names + b"d" + struct.pack(">h", len(of.columns)) + columns


def row(*values: object) -> bytes:
    parts = [struct.pack(">h", len(values))]
    for value in values:
        if isinstance(value, str):
            parts.append(b"t" + struct.pack(">i", len(value.encode())) + value.encode())
        else:
            parts.append(b"n" if value is None else b"u")
    return b"".join(parts)


def transaction(*messages: bytes) -> Transaction:
    decoder = Decoder()
    for message in (relation(1, USERS), begin(), *messages):
        assert decoder.feed(message) is None
    assert decoder.is_open
    done = decoder.feed(commit())
    assert done is not None
    assert not decoder.is_open
    return done


def test_changes_of_a_transaction() -> None:
    number = struct.pack(">I", 1)
    done = transaction(
        b"I" + number + b"N" + row("1", "é"),
        b"U" + number + b"N" + row("1", UNCHANGED),
        b"U" + number + b"K" + row("1", None) + b"N" + row("2", ""),
        b"U" + number + b"O" + row("2", "") + b"N" + row("2", None),
        b"O" + struct.pack(">q", 1) + b"origin\0",
        b"Y" + number + b"public\0mood\0",
        b"D" + number + b"K" + row("2", None),
        b"T" + struct.pack(">iB", 1, 0) + number,
    )
    assert done == Transaction(
        [
            Change("insert", USERS, None, ("1", "é")),
            Change("update", USERS, None, ("1", UNCHANGED)),
            Change("update", USERS, ("1", None), ("2", "")),
            Change("update", USERS, ("2", ""), ("2", None)),
            Change("delete", USERS, ("2", None), None),
            Change("truncate", USERS),
        ],
        YEAR_2000 + 5,
        100,
    )


def test_a_relation_is_described_again_when_it_changes() -> None:
    decoder = Decoder()
    wider = USERS._replace(columns=("id", "name", "n"), types=(20, 25, 20))
    for message in (relation(1, USERS), relation(1, wider), begin(), b"I\0\0\0\1N" + row("1", "a", "2")):
        decoder.feed(message)
    assert decoder.waiting == 1
    done = decoder.feed(commit())
    assert done is not None
    assert done.changes == [Change("insert", wider, None, ("1", "a", "2"))]


@pytest.mark.parametrize("message", [b"", b"?x", b"S\0\0\0\1\0"])
def test_an_unknown_message_is_an_error(message: bytes) -> None:
    with pytest.raises(EndpointError, match="does not know"):
        Decoder().feed(message)


def test_a_change_outside_of_a_transaction_is_an_error() -> None:
    decoder = Decoder()
    decoder.feed(relation(1, USERS))
    with pytest.raises(EndpointError, match="outside of a transaction"):
        decoder.feed(b"I\0\0\0\1N" + row("1", "a"))
