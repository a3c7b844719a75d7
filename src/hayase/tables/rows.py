"""Reading and folding of rows: the columns of one key, from the key's snapshot and the entries since.

The snapshot of a row starts with `T`, the format, and a checksum of the key and of the rest: the newest version in the snapshot,
then the snapshot of every column, empty for a column without payloads; empty ones at the end are left out. An entry with a
version above the newest cannot be in the snapshot; for any other entry, a mark in the store says whether it is.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from hayase.core.declarations import TableDeclaration
from hayase.core.errors import UnknownName
from hayase.tables import TYPES
from hayase.tables.entries import key_from, updates_of
from hayase.tables.entry_blocks import EntryBlock
from hayase.tables.payloads import DamagedPayload, Json, pack, unpack
from hayase.tables.types import ColumnType, Payload
from hayase.tables.versions import Version, from_bytes

__all__ = ["ColumnUpdate", "Columns", "Entry", "RowSnapshot"]

_HEAD = b"T\x10"
_CHECKED = len(_HEAD) + 4

Entry = tuple[bytes, bytes]
"""A version with the number of the source, and the value of the entry."""


class RowSnapshot(NamedTuple):
    """A decoded snapshot: the newest version in it, and the snapshots of the columns."""

    newest: bytes
    columns: Sequence[bytes]


class ColumnUpdate(NamedTuple):
    """One update of a column: the method, the version, and the value of the column if this were the only update."""

    column: str
    type: str
    method: str
    version: Version
    alone: Json


_NONE = RowSnapshot(b"", ())


class Columns:
    """The columns of a table; reads and folds its rows."""

    def __init__(self, declaration: TableDeclaration):
        self._table = declaration.name
        self._names = declaration.column_names
        self.types: tuple[ColumnType[Any], ...] = tuple(TYPES[kind]() for _, kind in declaration.columns)

    def places(self, names: Sequence[str] | None) -> Sequence[int]:
        """Return the places of columns; of all columns for None."""
        if names is None:
            return range(len(self._names))
        for name in names:
            if name not in self._names:
                raise UnknownName("column", name, self._names, f' of table "{self._table}"')
        return [self._names.index(name) for name in names]

    def decode_snapshot(self, key: bytes, snapshot: bytes | None) -> RowSnapshot:
        """Decode the snapshot of a key after checking it; an empty one for None."""
        if snapshot is None:
            return _NONE
        if snapshot[:2] != _HEAD or snapshot[2:_CHECKED] != _checksum(key, snapshot[_CHECKED:]):
            raise self.damaged(key, "the snapshot does not match its checksum")
        try:
            newest, *columns = unpack(snapshot[_CHECKED:])
        except (IndexError, ValueError) as error:
            raise self.damaged(key, f"the snapshot is damaged: {error}") from error
        if len(columns) > len(self.types):
            raise self.damaged(key, f"the snapshot has {len(columns)} columns, the table has {len(self.types)}")
        return RowSnapshot(newest, columns)

    def read(
        self, key: bytes, snapshot: RowSnapshot, entries: Iterable[Entry], places: Sequence[int]
    ) -> dict[str, Json]:
        """Return the values of some columns of a row."""
        payloads = self._payloads(key, entries)
        row: dict[str, Json] = {}
        for place in places:
            before = snapshot.columns[place] if place < len(snapshot.columns) else b""
            kind, since = self.types[place], payloads[place]
            try:
                row[self._names[place]] = (
                    kind.value(before) if before and not since else kind.read(before or None, since)
                )
            except DamagedPayload as error:
                raise self.damaged(key, str(error), place) from error
        return row

    def read_rows(
        self, keys: Sequence[bytes], snapshots: Sequence[RowSnapshot], block: EntryBlock, places: Sequence[int]
    ) -> list[dict[str, Json]]:
        """Return the values of some columns of many rows: `read` for each, by loops over all of them if there are many entries."""
        states = self._states(snapshots, block, places) if block.is_large else None
        if states is None:
            rows = zip(keys, snapshots, range(len(keys)))
            return [self.read(key, snapshot, block.entries(row), places) for key, snapshot, row in rows]
        alone = {row for column in states if None in column for row, state in enumerate(column) if state is None}
        columns = [
            [None if state is None else plain_value(state) for state in column]
            for plain_value, column in zip([self.types[place].plain_value for place in places], states)
        ]
        names = [self._names[place] for place in places]
        results = [dict(zip(names, values)) for values in zip(*columns)] if columns else [{} for _ in keys]
        for row in alone:
            results[row] = self.read(keys[row], snapshots[row], block.entries(row), places)
        return results

    def _states(
        self, snapshots: Sequence[RowSnapshot], block: EntryBlock, places: Sequence[int]
    ) -> list[list[Any]] | None:
        """Return the states of some columns, None for a row that is to be read by itself; None if all rows are, because bytes are
        damaged, and reading them one by one says which."""
        updates = block.updates(len(self.types))
        if updates is None:
            return None
        try:
            return [self.types[place].fold_rows(_columns(snapshots, place), updates[place]) for place in places]
        except (DamagedPayload, ValueError):
            return None

    def updates(self, key: bytes, entries: Iterable[Entry]) -> list[ColumnUpdate]:
        """Return the updates in entries of a key, in the order of their versions."""
        updates: list[ColumnUpdate] = []
        for place, payloads in enumerate(self._payloads(key, entries)):
            kind, name = self.types[place], self._names[place]
            try:
                updates += [
                    ColumnUpdate(
                        name, kind.name, kind.method_of(delta), from_bytes(version), kind.read(None, [(version, delta)])
                    )
                    for version, delta in payloads
                ]
            except DamagedPayload as error:
                raise self.damaged(key, str(error), place) from error
        return sorted(updates, key=lambda update: (update.version.time, str(update.version.id), update.column))

    def fold(self, key: bytes, snapshot: RowSnapshot, entries: Sequence[Entry]) -> bytes:
        """Fold entries into a snapshot and encode it. The entries must be new to it and in the order of their versions."""
        columns = [*snapshot.columns, *[b""] * (len(self.types) - len(snapshot.columns))]
        for place, payloads in enumerate(self._payloads(key, entries)):
            if payloads:
                try:
                    columns[place] = self.types[place].fold(columns[place] or None, payloads)
                except DamagedPayload as error:
                    raise self.damaged(key, str(error), place) from error
        return _encoded(key, max(snapshot.newest, entries[-1][0]), columns)

    def fold_rows(
        self, rows: Sequence[tuple[bytes, RowSnapshot, Sequence[Entry]]]
    ) -> Iterator[bytes | DamagedPayload | None]:
        """Yield for each row, a key with its snapshot and new entries, what `fold` returns, None if it has no entries, or the error
        if bytes are damaged. By loops over all rows if there are many entries."""
        many = self._fold_by_loops(rows)
        for at, (key, snapshot, entries) in enumerate(rows):
            folded = None if many is None else many[at]
            if folded is None and entries:
                try:
                    yield self.fold(key, snapshot, entries)
                except DamagedPayload as error:
                    yield error
            else:
                yield folded

    def _fold_by_loops(self, rows: Sequence[tuple[bytes, RowSnapshot, Sequence[Entry]]]) -> list[bytes | None] | None:
        """Return the new snapshots of rows, None for one that is to be folded by itself; None if all are."""
        starts = [0, *accumulate(len(entries) for _, _, entries in rows)]
        pairs = [entry for _, _, entries in rows for entry in entries]
        block = EntryBlock([version for version, _ in pairs], [value for _, value in pairs], starts, [0] * len(rows))
        updates = block.updates(len(self.types)) if block.is_large else None
        if updates is None:
            return None
        columns = [_columns([snapshot for _, snapshot, _ in rows], place) for place in range(len(self.types))]
        alone: set[int] = set()
        try:
            for kind, column, of_column in zip(self.types, columns, updates):
                changed = of_column.has_any()
                befores = [before if any_ else None for before, any_ in zip(column, changed)]
                for row, state in enumerate(kind.fold_rows(befores, of_column)):
                    if state is None:
                        alone.add(row)
                    elif changed[row]:
                        column[row] = kind.encode_snapshot(state)
        except (DamagedPayload, ValueError):
            return None
        return [
            None
            if row in alone or not entries
            else _encoded(key, max(snapshot.newest, entries[-1][0]), [column[row] or b"" for column in columns])
            for row, (key, snapshot, entries) in enumerate(rows)
        ]

    def _payloads(self, key: bytes, entries: Iterable[Entry]) -> list[list[Payload]]:
        payloads: list[list[Payload]] = [[] for _ in self.types]
        try:
            for version, value in entries:
                event = version[:-1]
                for place, number, delta in updates_of(value):
                    payloads[place].append((event + number, delta))
        except IndexError as error:
            reason = f"an entry is about column {place + 1}, the table has {len(self.types)}"
            raise self.damaged(key, reason) from error
        except DamagedPayload as error:
            raise self.damaged(key, str(error)) from error
        return payloads

    def damaged(self, key: bytes, reason: str, place: int | None = None) -> DamagedPayload:
        """Return an error that names the table, the key and the column."""
        try:
            shown = ", ".join(map(repr, key_from(key)))
        except DamagedPayload:
            shown = key.hex()
        column = "" if place is None else f', column "{self._names[place]}"'
        return DamagedPayload(f'table "{self._table}", key {shown}{column}: {reason}')


def _encoded(key: bytes, newest: bytes, columns: list[bytes]) -> bytes:
    """Encode the snapshot of a row; empty columns at the end are left out."""
    while columns and not columns[-1]:
        columns.pop()
    body = pack([newest, *columns])
    return _HEAD + _checksum(key, body) + body


def _checksum(key: bytes, body: bytes) -> bytes:
    return zlib.crc32(body, zlib.crc32(key)).to_bytes(4, "big")


def _columns(snapshots: Sequence[RowSnapshot], place: int) -> list[bytes | None]:
    """Return the snapshots of one column; None where there is none."""
    return [
        (columns[place] or None) if place < len(columns) else None for columns in (row.columns for row in snapshots)
    ]
