"""Values of json columns as readers get them: Python functions the value, JSON output the text as it is stored.

A json column is a column of text in Arrow. `records` and `python_columns` parse the texts, with all digits of numbers;
`written_records` leaves them for `record_text` to write as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa

from hayase.core.numbers import exact_loads
from hayase.core.schemas import is_json
from hayase.streams.record_text import Verbatim
from hayase.streams.typed_columns import python_values

__all__ = ["json_values", "python_columns", "records", "written_records"]

Rows: TypeAlias = "pa.Table | pa.RecordBatch"


def records(rows: Rows) -> list[dict[str, Any]]:
    """Return rows as dicts, with the values of json columns.

    >>> from hayase.core.schemas import arrow_schema
    >>> records(pa.table([["[1, 2.50]", None]], schema=arrow_schema("j json")))
    [{'j': [1, Decimal('2.50')]}, {'j': None}]
    """
    if not any(map(is_json, rows.schema)):
        return list(rows.to_pylist())
    return _dicts(rows, python_columns(rows))


def python_columns(rows: Rows) -> list[list[Any]]:
    """Return the columns as Python values, with the values of json columns."""
    return _columns(rows, exact_loads)


def written_records(rows: Rows) -> list[dict[str, Any]]:
    """Return rows as dicts for `record_text`, which writes json columns as they are stored."""
    return _dicts(rows, _columns(rows, Verbatim))


def json_values(texts: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of a json column."""
    return [None if text is None else exact_loads(text) for text in texts.to_pylist()]


def _columns(rows: Rows, convert: Callable[[str], Any]) -> list[list[Any]]:
    return [
        [None if text is None else convert(text) for text in column.to_pylist()]
        if is_json(field)
        else python_values(column)
        for field, column in zip(rows.schema, rows.columns)
    ]


def _dicts(rows: Rows, columns: list[list[Any]]) -> list[dict[str, Any]]:
    names = rows.schema.names
    return [dict(zip(names, row)) for row in zip(*columns)] if names else [{} for _ in range(rows.num_rows)]
