"""Tables in queries and exports: rows as Arrow columns, and the lookup of the keys of a query.

| type | Arrow | |
|---|---|---|
| Counter | double | an integer that is exactly a double; the nearest double of a number with decimals |
| Register, MinRegister, MaxRegister | string | a text as it is, null as null, anything else as JSON |
| GSet, TwoPhaseSet, ORSet, LWWSet | list of string | the elements, converted like a Register |
| MapCounter, MapRegister, MapSet | map of string to double, string, list of string | the values, converted likewise |
| DistinctCount | int64 | |
| Quantiles | string | JSON |

A number that does not fit is an integer that is not a double, or a number whose nearest double is infinite, or zero although the
number is not; `hayase.streams.typed_values` has the same rule for columns of streams. A query refuses a record whose key
has such a number, found by `misfit`. `arrow_rows` does not check: it converts to the nearest double.

A text and the JSON of another value can look the same here; the table itself distinguishes them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import TableDeclaration
from hayase.core.reasons import Reason, ReasonKind
from hayase.core.stages import Refusals
from hayase.streams.record_text import shown
from hayase.streams.typed_values import Unfit, converter
from hayase.tables import TYPES
from hayase.tables.entries import many_key_bytes
from hayase.tables.payloads import Json, UnfitParameter, json_bytes
from hayase.tables.table import Row, Table, open_reader

__all__ = ["TableLookup", "arrow_rows", "arrow_schema", "misfit", "reader_of", "rows_of"]


def _text(value: Json) -> str | None:
    return value if value is None or isinstance(value, str) else json_bytes(value).decode()


def _written(kind: pa.DataType) -> Callable[[Any], Any]:
    """Return a function that converts a table's value for an Arrow column of that type."""
    if pa.types.is_map(kind):
        convert = _written(kind.item_type)
        return lambda value: [(key, convert(item)) for key, item in value.items()]
    if pa.types.is_list(kind):
        convert = _written(kind.value_type)
        return lambda value: [convert(item) for item in value]
    return float if pa.types.is_floating(kind) else int if pa.types.is_integer(kind) else _text


def arrow_schema(declaration: TableDeclaration) -> pa.Schema:
    """Return the Arrow schema of a table's columns, without its key."""
    return pa.schema([(name, TYPES[kind].arrow) for name, kind in declaration.columns])


def arrow_rows(declaration: TableDeclaration, rows: Sequence[Row]) -> pa.RecordBatch:
    """Convert rows of a table, with all its columns, to Arrow."""
    columns = []
    for name, kind in declaration.columns:
        arrow = TYPES[kind].arrow
        convert = _written(arrow)
        columns.append(pa.array([convert(row[name]) for row in rows], arrow))
    return pa.record_batch(columns, schema=arrow_schema(declaration))


def misfit(declaration: TableDeclaration, columns: Iterable[str], row: Row) -> str | None:
    """Return why a row does not fit the Arrow types of these columns: its first number that no double holds. None if it fits."""
    kinds = dict(declaration.columns)
    for name in columns:
        kind = kinds[name]
        arrow = TYPES[kind].arrow
        is_map = pa.types.is_map(arrow)
        if not pa.types.is_floating(arrow.item_type if is_map else arrow):
            continue
        for key, value in row[name].items() if is_map else ((None, row[name]),):
            if not _fits_double(value):
                place = f'"{name}"' if key is None else f'{shown(key)} in column "{name}"'
                what = f'{kind} {place} of table "{declaration.name}" is {shown(value)}'
                return f"{what}, which no double holds"
    return None


def _fits_double(value: int | float | Decimal) -> bool:
    if isinstance(value, float):
        return True
    try:
        _to_double(value)
    except Unfit:
        return False
    return True


_to_double = converter(pa.float64())


@dataclass(frozen=True)
class TableLookup:
    """A table in a query. It can be pickled; each process opens the store once."""

    table: TableDeclaration
    path: Path

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table, without its key."""
        return arrow_schema(self.table)

    def find(
        self, keys: pa.RecordBatch, columns: Sequence[str] | None = None
    ) -> tuple[np.ndarray, pa.RecordBatch, Refusals]:
        """Look up keys, one per row with the parts in their order. Return the positions of those that the table contains,
        ascending, their rows with these columns (all if None), and refusals of the keys whose rows have a number in these
        columns that no double holds; their positions are left out. The table contains no key with a null, and none that cannot
        be encoded, such as NaN."""
        kinds = {name: kind for name, kind in self.table.columns if columns is None or name in columns}
        chosen = replace(self.table, columns=tuple(kinds.items())) if kinds else self.table
        rows = rows_of(self.path, self.table, _keys(keys), chosen.column_names)
        fitting: list[tuple[int, Row]] = []
        refused: list[tuple[int, Reason]] = []
        for at, row in enumerate(rows):
            if row is None:
                continue
            reason = misfit(chosen, kinds, row)
            if reason is None:
                fitting.append((at, row))
            else:
                refused.append((at, Reason(ReasonKind.OVERFLOW, f"{reason}; a query reads it as a double")))
        return (
            np.array([at for at, _ in fitting], np.int64),
            arrow_rows(chosen, [row for _, row in fitting]),
            Refusals(np.array([at for at, _ in refused], np.int64), [reason for _, reason in refused]),
        )


def _keys(keys: pa.RecordBatch) -> list[bytes | None]:
    """Encode keys; None for a key that no row can have."""
    for column in keys.columns:
        if not any(fits(column.type) for fits in _KEY_TYPES):
            raise UnfitParameter(f"a key of type {column.type} for a table", "it must be a text, a number or a boolean")
    parts = list(zip(*(column.to_pylist() for column in keys.columns)))
    nulls = np.zeros(len(keys), bool)
    for column in keys.columns:
        nulls |= column.is_null().to_numpy(zero_copy_only=False)
    encoded = many_key_bytes(parts)
    return [None if null or isinstance(key, UnfitParameter) else key for key, null in zip(encoded, nulls.tolist())]


_KEY_TYPES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_null,
)

_readers: dict[tuple[int, Path, TableDeclaration], Table] = {}
_readers_lock = threading.Lock()


def reader_of(path: Path, declaration: TableDeclaration) -> Table:
    """Return the table, opened once in this process; a forked process opens its own."""
    place = (os.getpid(), path, declaration)
    with _readers_lock:
        if place not in _readers:
            _readers[place] = open_reader(path, declaration)
        return _readers[place]


def rows_of(
    path: Path, declaration: TableDeclaration, keys: Sequence[bytes | None], columns: Sequence[str] | None = None
) -> list[Row | None]:
    """Return the rows of encoded keys with these columns (all if None), each looked up once; None for a key that the table
    does not contain, and for None."""
    unique = list({key for key in keys if key is not None})
    reader = reader_of(path, declaration)
    reader.refresh()
    rows = dict(zip(unique, reader.get_encoded(unique, columns=columns), strict=True))
    return [None if key is None else rows[key] for key in keys]
