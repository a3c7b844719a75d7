"""The messages of PostgreSQL's logical decoding plugin `pgoutput`, protocol version 1, as transactions.

Values are texts, as PostgreSQL writes them. `UNCHANGED` stands for a value that is stored apart (TOAST) and was not touched by an
update: the server does not send it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

from hayase.core.errors import EndpointError

__all__ = ["UNCHANGED", "Change", "Decoder", "Relation", "Row", "Transaction", "Unchanged", "lsn_number", "lsn_text"]

_EPOCH = 946_684_800_000_000
"""Microseconds from 1970 to 2000, where times of PostgreSQL begin."""
_BEGIN, _COMMIT = struct.Struct(">qq"), struct.Struct(">Bqqq")
_TUPLE, _LENGTH, _COLUMN = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">Ii")


class Unchanged:
    """The type of `UNCHANGED`."""

    __slots__ = ()


UNCHANGED: Final = Unchanged()
Row = tuple["str | Unchanged | None", ...]


class Relation(NamedTuple):
    """A table as it was when its rows were written: columns, the numbers of their types, and which of them are the key."""

    schema: str
    table: str
    columns: tuple[str, ...]
    types: tuple[int, ...]
    key: tuple[str, ...]


Kind = Literal["insert", "update", "delete", "truncate"]


class Change(NamedTuple):
    """A change of a row. `old` is the row before it, or its key with NULL for all else; an update that leaves the key as it is may
    have none. `new` is the row behind it. A truncation, which removes all rows of the table, has neither."""

    kind: Kind
    relation: Relation
    old: Row | None = None
    new: Row | None = None


class Transaction(NamedTuple):
    """The changes of a transaction, when it was committed (microseconds), and the position behind it."""

    changes: list[Change]
    time: int
    end: int


class Decoder:
    """Puts messages together. It keeps the relations that the server has described, and the transaction that is not complete.

    The server sends a transaction once it is committed: `place` is where its commit stands in the log, `time` when it was."""

    def __init__(self) -> None:
        self._relations: dict[int, Relation] = {}
        self._changes: list[Change] | None = None
        self.size = 0
        """Bytes of the changes that wait."""
        self.place = self.time = 0
        self._handlers: dict[int, Callable[[bytes], Transaction | None]] = {
            ord("B"): self._begin, ord("C"): self._commit, ord("R"): self._relation, ord("I"): self._insert,
            ord("U"): self._update, ord("D"): self._delete, ord("T"): self._truncate,
            ord("O"): _ignored, ord("Y"): _ignored, ord("M"): _ignored,
        }  # fmt: skip

    @property
    def is_open(self) -> bool:
        """Whether the messages of a transaction are not complete."""
        return self._changes is not None

    @property
    def waiting(self) -> int:
        """The number of changes of the transaction that is not complete."""
        return len(self._changes or ())

    def take(self) -> list[Change]:
        """Return the changes that wait, and forget them: what is left of the transaction follows."""
        changes, self._changes, self.size = self._changes or [], [], 0
        return changes

    def feed(self, message: bytes) -> Transaction | None:
        """Take a message; return the transaction that it completes.

        >>> decoder = Decoder()
        >>> decoder.feed(b"B" + struct.pack(">qqI", 32, 0, 7))
        >>> decoder.feed(b"C" + struct.pack(">Bqqq", 0, 32, 40, 1))
        Transaction(changes=[], time=946684800000001, end=40)
        """
        try:
            handle = self._handlers[message[0]]
        except (IndexError, KeyError):
            raise EndpointError(
                f"PostgreSQL sent a message that Hayase does not know: {message[:20]!r}",
                "report it, with the server's version",
            ) from None
        self.size += len(message)
        return handle(message)

    def _begin(self, message: bytes) -> None:
        self._changes, self.size = [], 0
        self.place, time = _BEGIN.unpack_from(message, 1)
        self.time = time + _EPOCH

    def _commit(self, message: bytes) -> Transaction:
        _, _, end, time = _COMMIT.unpack_from(message, 1)
        changes, self._changes = self._changes or [], None
        return Transaction(changes, time + _EPOCH, end)

    def _relation(self, message: bytes) -> None:
        number = int.from_bytes(message[1:5])
        schema, at = _text(message, 5)
        table, at = _text(message, at)
        count = _TUPLE.unpack_from(message, at + 1)[0]
        at += 3
        columns, types, key = [], [], []
        for _ in range(count):
            is_key = message[at] & 1
            name, at = _text(message, at + 1)
            types.append(_COLUMN.unpack_from(message, at)[0])
            at += 8
            columns.append(name)
            if is_key:
                key.append(name)
        self._relations[number] = Relation(schema or "pg_catalog", table, tuple(columns), tuple(types), tuple(key))

    def _insert(self, message: bytes) -> None:
        self._add(Change("insert", self._of(message), new=_row(message, 6)[0]))

    def _update(self, message: bytes) -> None:
        old, at = None, 6
        if message[5] != ord("N"):
            old, at = _row(message, 6)
            at += 1
        self._add(Change("update", self._of(message), old, _row(message, at)[0]))

    def _delete(self, message: bytes) -> None:
        self._add(Change("delete", self._of(message), _row(message, 6)[0]))

    def _truncate(self, message: bytes) -> None:
        count = _LENGTH.unpack_from(message, 1)[0]
        for at in range(6, 6 + 4 * count, 4):
            self._add(Change("truncate", self._relations[int.from_bytes(message[at : at + 4])]))

    def _of(self, message: bytes) -> Relation:
        return self._relations[int.from_bytes(message[1:5])]

    def _add(self, change: Change) -> None:
        if self._changes is None:
            raise EndpointError(
                "PostgreSQL sent a change outside of a transaction", "report it, with the server's version"
            )
        self._changes.append(change)


def _ignored(message: bytes) -> None:
    """Origins, names of types and messages of programs say nothing about rows."""


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(0, at)
    return message[at:end].decode(), end + 1


def _row(message: bytes, at: int) -> tuple[Row, int]:
    values: list[Any] = []
    count = _TUPLE.unpack_from(message, at)[0]
    at += 2
    for _ in range(count):
        kind = message[at]
        at += 1
        if kind == 0x74:  # t
            end = at + 4 + _LENGTH.unpack_from(message, at)[0]
            values.append(message[at + 4 : end].decode())
            at = end
        else:
            values.append(None if kind == 0x6E else UNCHANGED)  # n, u
    return tuple(values), at


def lsn_number(text: str) -> int:
    """Return a position in the write-ahead log as a number.

    >>> lsn_number("16/B374D848")
    97500059720
    """
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_text(number: int) -> str:
    """Return a position as PostgreSQL writes it.

    >>> lsn_text(97500059720)
    '16/B374D848'
    """
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"
