"""Sinks and changes for the tests of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from hayase.connectors.postgres_sink import PostgresSink
from hayase.connectors.sink import HEADS, Changes, Position, SinkSetting
from hayase.core.connector_data import declared_output
from hayase.core.declarations import StreamDeclaration
from hayase.core.schemas import arrow_schema

__all__ = ["changes", "new_name", "sink", "variable"]

_names = count(1)


def new_name(prefix: str = "t") -> str:
    """A name that no other test of this process uses."""
    return f"{prefix}{next(_names)}"


@contextmanager
def variable(value: str, name: str = "HAYASE_TEST_DSN") -> Iterator[str]:
    """A variable of the environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, value)
        yield name


def sink(
    dsn: str,
    table: str,
    schema: str,
    *,
    home: str = "home1",
    output: str | None = None,
    time_unit: str | None = None,
    **options: Any,
) -> PostgresSink:
    """A sink of a table for rows of a schema."""
    time = "at bigint" if time_unit else "at timestamp"
    stream = StreamDeclaration("results", f"{time}, {schema}", time="at", time_unit=time_unit)
    output = output or f"to_{table}"
    with variable(dsn) as name:
        declared = declared_output(
            output, {"reads": "results", "to": {"postgres": {"dsn_env": name, "table": table, **options}}}
        )
        return PostgresSink(SinkSetting(stream, arrow_schema(schema), declared.values, "shop", output, home))


def changes(
    schema: str, rows: Iterable[tuple[Any, ...]], since: Position | None, anew: bool = False, cursor: str = ""
) -> Changes:
    """Changes from tuples of time, "+" or "-", number of the row, and its values."""
    heads = [pa.field(HEADS[0], pa.int64()), pa.field(HEADS[1], pa.bool_()), pa.field(HEADS[2], pa.int64())]
    whole = pa.schema([*heads, *arrow_schema(schema)])
    tuples = [(time, sign == "+", *rest) for time, sign, *rest in rows]
    columns = list(zip(*tuples)) if tuples else [[] for _ in whole]
    table = pa.table([pa.array(list(column), field.type) for column, field in zip(columns, whole)], schema=whole)
    number = 1 if since is None else since.number + 1
    return Changes(table, since, Position(number, cursor or f"c{number}"), anew)
