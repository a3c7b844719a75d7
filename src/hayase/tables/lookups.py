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
has such a number, found by `misfits`. `arrow_rows` does not check: it converts to the nearest double.

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

__all__ = ["TableLookup", "arrow_rows", "arrow_schema", "misfits", "reader_of", "rows_of"]


def _text(value: Json) -> str | None:
    return value if value is None or isinstance(value, str) else json_bytes(value).decode()


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Convert a table's values to an Arrow column of that type."""
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        offsets = np.cumsum([0, *map(len, values)], dtype=np.int32)
        items = [item for value in values for item in (value.values() if pa.types.is_map(kind) else value)]
        if pa.types.is_list(kind):
            return pa.ListArray.from_arrays(offsets, _column(items, kind.value_type), kind)
        keys = pa.array([key for value in values for key in value], kind.key_type)
        return pa.MapArray.from_arrays(offsets, keys, _column(items, kind.item_type), kind)
    convert: Callable[[Any], Any] = float if pa.types.is_floating(kind) else int if pa.types.is_integer(kind) else _text
    return pa.array([convert(value) for value in values], kind)


def arrow_schema(declaration: TableDeclaration) -> pa.Schema:
    """Return the Arrow schema of a table's columns, without its key."""
    return pa.schema([(name, TYPES[kind].arrow) for name, kind in declaration.columns])


def arrow_rows(declaration: TableDeclaration, rows: Sequence[Row]) -> pa.RecordBatch:
    """Convert rows of a table, with all its columns, to Arrow."""
    columns = [_column([row[name] for row in rows], TYPES[kind].arrow) for name, kind in declaration.columns]
    return pa.record_batch(columns, schema=arrow_schema(declaration))


def misfits(declaration: TableDeclaration, columns: Iterable[str], rows: Sequence[Row]) -> dict[int, str]:
    """Return the positions of rows that do not fit the Arrow types of these columns, with the reason: the first number of a row
    that no double holds."""
    kinds = dict(declaration.columns)
    reasons: dict[int, str] = {}
    for name in columns:
        kind = kinds[name]
        arrow = TYPES[kind].arrow
        is_map = pa.types.is_map(arrow)
        if not pa.types.is_floating(arrow.item_type if is_map else arrow):
            continue
        for at, row in enumerate(rows):
            for key, value in row[name].items() if is_map else ((None, row[name]),):
                if at not in reasons and not _fits_double(value):
                    place = f'"{name}"' if key is None else f'{shown(key)} in column "{name}"'
                    what = f'{kind} {place} of table "{declaration.name}" is {shown(value)}'
                    reasons[at] = f"{what}, which no double holds"
    return reasons


def _fits_double(value: int | float | Decimal) -> bool:
    if isinstance(value, float) or (type(value) is int and -_WHOLE_DOUBLES <= value <= _WHOLE_DOUBLES):
        return True
    try:
        _to_double(value)
    except Unfit:
        return False
    return True


_to_double = converter(pa.float64())
_WHOLE_DOUBLES = 2**53
"""All integers up to here are doubles."""


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
        found = [at for at, row in enumerate(rows) if row is not None]
        reasons = misfits(chosen, kinds, [row for row in rows if row is not None])
        fitting = [at for number, at in enumerate(found) if number not in reasons]
        refused = {found[number]: reasons[number] for number in sorted(reasons)}
        return (
            np.array(fitting, np.int64),
            arrow_rows(chosen, [row for at in fitting if (row := rows[at]) is not None]),
            Refusals(
                np.array([*refused], np.int64),
                [Reason(ReasonKind.OVERFLOW, f"{reason}; a query reads it as a double") for reason in refused.values()],
            ),
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
