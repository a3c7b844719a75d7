"""Rows of a table of PostgreSQL as records of a stream, from the texts that the server writes."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from psycopg2 import sql
from pyarrow import csv

from hayase.connectors.postgres_client import Column, TableName
from hayase.connectors.postgres_types import can_read, postgres_type, readable, texts_of
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import EndpointError, nearest
from hayase.streams.record_text import record_text
from hayase.streams.records import Conformed, Origin, conform_texts

__all__ = ["TableRecords", "Texts", "copied"]

Texts = tuple["str | None", ...]
"""The values of a row."""
MOST_ROWS, MOST_BYTES = 20_000, 8 << 20
"""Rows and bytes that are converted together."""


class TableRecords:
    """The columns of a stream that come from a table. `given` are the others, which the source fills itself."""

    def __init__(self, stream: StreamDeclaration, table: TableName, given: Sequence[str]):
        self.stream, self.table = stream, table
        self.names: list[str] = [name for name in stream.arrow_schema.names if name not in given]
        self._fields = {name: stream.arrow_schema.field(name) for name in self.names}
        self._given = given

    def check(self, columns: Mapping[str, Column]) -> None:
        """EndpointError if the table lacks a column of the stream, or has one with another kind of values."""
        if not columns:
            raise EndpointError(
                f'there is no table "{self.table}"', "check its name, and the database of the connection"
            )
        for name in self._given:
            if name in columns:
                raise EndpointError(
                    f'column "{name}" of stream "{self.stream.name}" is filled by the source, and table "{self.table}" has one '
                    "of that name",
                    "give the column of the stream another name",
                )
        for name, field in self._fields.items():
            column = columns.get(name)
            if column is None or column.generated:
                what = "has no column" if column is None else "generates the column"
                raise EndpointError(
                    f'table "{self.table}" {what} "{name}" of stream "{self.stream.name}"{nearest(name, list(columns))}',
                    "leave it out of the stream's schema",
                )
            if not can_read(column.type, field):
                raise EndpointError(
                    f'column "{name}" of table "{self.table}" is {column.shown}, and that of stream "{self.stream.name}" takes '
                    f"{postgres_type(field)}",
                    "change its type in the stream's schema",
                )

    def conformed(
        self,
        rows: Sequence[Texts] | Mapping[str, pa.Array],
        types: Mapping[str, str],
        given: Mapping[str, pa.Array],
        now: int,
        place: Callable[[int], str],
        unreadable: Mapping[int, str] | None = None,
    ) -> Conformed:
        """Return rows, as tuples or as columns of texts, as records; `types` are those of the columns, as in `pg_type`."""
        if isinstance(rows, Mapping):
            texts = rows
        else:
            columns: Any = zip(*rows) if rows else ((),) * len(self.names)
            texts = {name: pa.array(values, pa.string()) for name, values in zip(self.names, columns)}
        arrays = {name: readable(texts[name], types[name], field) for name, field in self._fields.items()}
        whole = {name: pa.chunked_array([array]) for name, array in {**arrays, **given}.items()}
        count = len(next(iter(whole.values())))

        def shown(places: list[int]) -> list[str]:
            return [
                record_text({name: array[at].as_py() for name, array in {**texts, **given}.items()}) for at in places
            ]

        return conform_texts(whole, count, self.stream, now, Origin(shown, place, unreadable or {}))

    def texts(self, rows: pa.Table | pa.RecordBatch) -> list[Texts]:
        """Return records of the stream as rows of texts; `conformed` reads them as the same records."""
        columns = [texts_of(rows.column(name), field).to_pylist() for name, field in self._fields.items()]
        return list(zip(*columns))

    def times(self, micros: Sequence[int]) -> pa.Array:
        """Return event times in the type of the stream's time column."""
        kind, scale = self.stream.arrow_schema.field(self.stream.time).type, self.stream.time_scale
        column = pa.array([time // scale for time in micros], pa.int64())
        return column.view(kind) if pa.types.is_timestamp(kind) else column.cast(kind)


def copied(
    cursor: Any, query: sql.Composable, names: Sequence[str], take: Callable[[dict[str, pa.Array]], None]
) -> None:
    """Give the rows of a query to `take`, as columns of texts, some thousands at a time."""
    receiver = _Receiver(names, take)
    statement = sql.SQL("COPY ({}) TO STDOUT WITH (FORMAT csv)").format(query)
    cursor.copy_expert(statement.as_string(cursor), receiver)
    receiver.finish()


class _Receiver:
    """What the client writes a copy to: it gets every row by itself."""

    def __init__(self, names: Sequence[str], take: Callable[[dict[str, pa.Array]], None]):
        self._names, self._take = list(names), take
        self._rows: list[bytes] = []
        self._size = 0

    def write(self, row: bytes) -> None:
        self._rows.append(row)
        self._size += len(row)
        if len(self._rows) >= MOST_ROWS or self._size >= MOST_BYTES:
            self.finish()

    def finish(self) -> None:
        if self._rows:
            rows, self._rows, self._size = b"".join(self._rows), [], 0
            self._take(dict(_parsed(rows, self._names)))


def _parsed(rows: bytes, names: list[str]) -> Iterator[tuple[str, pa.Array]]:
    """Yield columns of texts from CSV; an empty field is null, a pair of quotes an empty text."""
    table = csv.read_csv(
        io.BytesIO(rows),
        csv.ReadOptions(column_names=names, block_size=len(rows) + 1, use_threads=False),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )  # fmt: skip
    for name in names:
        yield name, table.column(name).combine_chunks()
