"""Rows of a table with their keys as Arrow batches, as exports and outputs take them.

`hayase.tables.lookups` lists the Arrow types of columns. The parts of a key are strings like a register: a text as it is, anything
else as JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa

from hayase.core.declarations import TableDeclaration
from hayase.core.errors import HayaseError, UnknownName
from hayase.tables.entries import Key
from hayase.tables.lookups import arrow_rows, misfits
from hayase.tables.table import Row

__all__ = ["export_rows"]


def export_rows(
    declaration: TableDeclaration, rows: Sequence[tuple[Key, Row]], columns: Sequence[str] | None = None
) -> pa.RecordBatch:
    """Return rows as a batch with the key and these columns (all if None); HayaseError for a number of a Counter or MapCounter
    that no double holds."""
    kinds = dict(declaration.columns)
    for name in columns or ():
        if name not in kinds:
            raise UnknownName("column", name, kinds, f' in table "{declaration.name}"')
    chosen = tuple((name, kinds[name]) for name in (kinds if columns is None else dict.fromkeys(columns)))
    reasons = misfits(declaration, dict(chosen), [row for _, row in rows])
    if reasons:
        raise HayaseError(f"{reasons[min(reasons)]}; rows() keeps every digit, or choose other columns")
    whole = [{**dict(zip(declaration.key, key, strict=True)), **row} for key, row in rows]
    parts = [arrow_rows(part, whole) for part in _parts(declaration, chosen)]
    fields = [field for batch in parts for field in batch.schema]
    return pa.record_batch([column for batch in parts for column in batch.columns], schema=pa.schema(fields))


@lru_cache(maxsize=256)
def _parts(declaration: TableDeclaration, chosen: tuple[tuple[str, str], ...]) -> tuple[TableDeclaration, ...]:
    """Return the key of a table as columns, and the chosen columns, as declarations of their own."""
    key_columns = tuple((part, "Register") for part in declaration.key)
    keys = replace(declaration, key=declaration.column_names, columns=key_columns)
    return (keys, replace(declaration, columns=chosen)) if chosen else (keys,)
