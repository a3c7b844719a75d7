"""Changes as the rows of tables in data lakes: columns beside each other, in types that a lake has."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from hayase.connectors.sink import APPEARS, HEADS, TIME

__all__ = ["lake_rows", "lake_schema", "stored_type"]

Stored = Callable[[pa.DataType], pa.DataType]
"""The type in which a target stores values of a type that is not nested."""


def lake_schema(rows: pa.Schema, emit: str, stored: Stored = lambda kind: kind) -> pa.Schema:
    """Return the columns of a table in a lake; changes have their time and their sign before those of the row.

    >>> lake_schema(pa.schema({"user": pa.string()}), "changes").names
    ['_time', '_change', 'user']
    """
    heads = [] if emit != "changes" else [*zip(_head_names(rows), (pa.timestamp("us", tz="UTC"), pa.string()))]
    own = [(field.name, stored_type(field.type, stored)) for field in rows]
    return pa.schema([pa.field(name, kind) for name, kind in [*heads, *own]])


def lake_rows(changes: pa.Table, emit: str, stored: Stored = lambda kind: kind) -> pa.Table:
    """Return changes as rows of `lake_schema`, or only the rows that appear."""
    if emit == "rows":
        changes = changes.filter(changes.column(APPEARS))
    own = changes.drop_columns(list(HEADS))
    schema = lake_schema(own.schema, emit, stored)
    columns = list(own.columns)
    if emit == "changes":
        signs = pc.if_else(changes.column(APPEARS), "+", "-")
        columns = [changes.column(TIME).cast(pa.timestamp("us", tz="UTC")), signs, *columns]
    return pa.table([column.cast(kind) for column, kind in zip(columns, schema.types)], schema=schema)


def stored_type(kind: pa.DataType, stored: Stored) -> pa.DataType:
    """Return a type with all types in it replaced by those that a target stores."""
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", stored_type(kind.value_type, stored)))
    if pa.types.is_map(kind):
        return pa.map_(stored_type(kind.key_type, stored), stored_type(kind.item_type, stored))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, stored_type(field.type, stored)) for field in kind])
    return stored(kind)


def _head_names(rows: pa.Schema) -> Iterator[str]:
    for name in ("_time", "_change"):
        while name in rows.names:
            name = f"_{name}"
        yield name
