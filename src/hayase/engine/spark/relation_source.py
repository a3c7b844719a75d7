"""Readers of `format("hayase")` for queries and tables: rows at an instant, lifetimes, and folded rows of tables.

The instant is fixed when the read is planned, and what is final does not change, so that a task that is repeated reads the same
rows. One task reads them. There is no `pushFilters`: Spark 4.3 goes on using the filters of an earlier query over the same
DataFrame when the next one has none, and then misses rows (docs/design/0029-python.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from hayase.core.declarations import TableDeclaration
from hayase.core.errors import HayaseError, UnknownName
from hayase.core.schemas import spark_schema
from hayase.engine.commit.manifests import check_table_read
from hayase.engine.definition.definitions import latest
from hayase.engine.home import Home
from hayase.engine.results.query_results import Results, Time
from hayase.streams import StreamLog
from hayase.tables.table_results import TableResults

__all__ = ["QueryRows", "TableRows", "open_table", "query_schema", "table_schema"]


def query_schema(log: StreamLog, history: bool) -> pa.Schema:
    """Return the columns of the rows of a query, in Spark's types; with those of the lifetimes for the history."""
    return spark_schema(Results(log).schema(history=history))


def open_table(home: Path, name: str) -> TableResults:
    """Open a table of a home for reading."""
    definition = latest(Home(home))
    if definition is None:
        raise HayaseError(f'no pipeline was declared in "{home}" yet; run it first')
    declared = {table.name: table for table in definition.declaration.tables}
    if name not in declared:
        raise UnknownName("table", name, declared)
    return _results(home, declared[name])


def _results(home: Path, declared: TableDeclaration) -> TableResults:
    place = Home(home)
    return TableResults(place.table(declared.name), declared, check=lambda table: check_table_read(place, table))


def table_schema(table: TableResults) -> pa.Schema:
    """Return the columns of a table's rows, in Spark's types."""
    return spark_schema(table.reader().schema)


class _Rows(DataSourceReader):
    """What both readers do: one task, and the columns that Spark expects."""

    def __init__(self, schema: pa.Schema):
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in self._batches():
            columns = [batch.column(field.name).cast(field.type) for field in self._schema]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


class QueryRows(_Rows):
    """The rows of a query at an instant, by default the latest final one, or with `history` every row with its lifetime."""

    def __init__(self, log: StreamLog, schema: pa.Schema, at: str | None, history: bool):
        super().__init__(schema)
        self._home, self._name, self._history = log.path.parent.parent, log.declaration.name, history
        fixed: Time | None = at
        if at is not None and not history:
            Results(log).at_table(at)  # an instant that is not final is an error before tasks begin
        elif not history and log.declaration.lifetimes:
            fixed = Results(log).final()
        self._at = fixed

    def _batches(self) -> Iterator[pa.RecordBatch]:
        results = Results(StreamLog.open(self._home, self._name))
        return results.batches(self._at, history=self._history)


class TableRows(_Rows):
    """The folded rows of a table, all or that of one key, now or as of an event time."""

    def __init__(self, home: Path, table: TableResults, schema: pa.Schema, key: str | None, as_of: str | None):
        super().__init__(schema)
        self._home, self._declared, self._as_of = home, table.declaration, as_of
        self._keys = None if key is None else _keys(key, table.declaration)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        names = self._schema.names
        columns = [name for name in self._declared.column_names if name in names]
        with _results(self._home, self._declared) as table:
            if self._keys is None:
                yield from table.batches(as_of=self._as_of, columns=columns)
            else:
                yield table.batch_of(self._keys, as_of=self._as_of, columns=columns)


def _keys(text: str, declared: TableDeclaration) -> list[Any]:
    """Return the keys that an option means: a JSON array is the parts of a key; any other text is a key of one part, a text, or
    the number or truth value that is written so."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = text
    keys = (
        [tuple(value)]
        if isinstance(value, list)
        else [(text,), (value,)]
        if isinstance(value, (int, float))
        else [(text,)]
    )
    if len(keys[0]) != len(declared.key):
        raise HayaseError(
            f'the key of table "{declared.name}" has {len(declared.key)} parts, {", ".join(declared.key)}; give several as a JSON '
            'array, like ["jp", 7]'
        )
    return list(keys)
