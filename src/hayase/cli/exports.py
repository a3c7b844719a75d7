"""Writes streams and tables to Parquet, CSV or NDJSON files, in bounded memory; a file appears only when it is complete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from decimal import Decimal
from math import isinf
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from hayase.cli.pipeline_location import index_of
from hayase.core.data_classes import dataclass
from hayase.core.declarations import TableDeclaration
from hayase.core.errors import HayaseError
from hayase.streams import StreamLog
from hayase.streams.file_formats import format_of
from hayase.streams.json_columns import written_records
from hayase.streams.record_text import record_text
from hayase.streams.repeats import first_rows
from hayase.tables.load_sources import JSON_COLUMNS

__all__ = ["Exported", "write_file", "write_table"]

Write: TypeAlias = Callable[[pa.RecordBatch], None]
Row: TypeAlias = dict[str, Any]

GROUP, GROUP_BYTES = 100_000, 64 << 20
"""The size of a row group of a Parquet file, in rows and in bytes."""


def write_file(log: StreamLog, file: Path) -> int:
    """Write all records of a stream; return their number."""
    index, count = index_of(log), 0
    with _open_draft(file) as (sink, form), _WRITERS[form](sink, log.declaration.shown_schema, {}) as write:
        for rows in first_rows(log, index.start, index.next) if index.next > index.start else ():
            write(log.declaration.shown(rows))
            count += rows.num_rows
    return count


@dataclass(slots=True)
class Exported:
    """The result of an export: the number of rows, the number of values per column that were rounded to a double, and the text
    columns that contain both strings and other values as JSON, which cannot be told apart in the file."""

    rows: int = 0
    rounded: dict[str, int] = field(default_factory=dict)
    mixed: list[str] = field(default_factory=list)


def write_table(
    table: TableDeclaration,
    columns: Sequence[str] | None,
    pages: Iterable[Sequence[Row]],
    file: Path,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> Exported:
    """Write pages of rows with all columns or some; `on_rows` is called with the number of rows of each page."""
    from hayase.tables.payloads import json_bytes

    done, shape = Exported(), _FileColumns(table, columns)
    with _open_draft(file) as (sink, form):
        exact = form == "ndjson"  # Arrow's types cannot represent every value exactly
        facts: dict[str, str] = {}
        kinds: dict[str, set[bool]] = {name: set() for name in shape.texts}
        with _WRITERS[form](sink, shape.schema, facts) as write:
            for page in pages:
                if exact:
                    sink.writelines(json_bytes(row) + b"\n" for row in page)
                else:
                    _count_rounded(shape.numbers, page, done.rounded)
                    _record_kinds(shape.texts, kinds, page)
                    write(shape.batch(page))
                done.rows += len(page)
                on_rows(len(page))
            facts[JSON_COLUMNS] = json_bytes([name for name, seen in kinds.items() if seen == {False}]).decode()
    done.mixed += [name for name, seen in kinds.items() if len(seen) > 1]
    return done


def _record_kinds(columns: Mapping[str, pa.DataType], kinds: dict[str, set[bool]], rows: Sequence[Row]) -> None:
    """Record for every text column whether it has strings (True) and other values (False), which are written as JSON."""
    for name, seen in kinds.items():
        if len(seen) < 2:
            for row in rows:
                seen.update(isinstance(leaf, str) for leaf in _leaves(columns[name], row[name]) if leaf is not None)


def _leaves(kind: pa.DataType, value: Any) -> Iterator[Any]:
    """Yield the values that are written as text: the elements of a list, the values of a map."""
    if pa.types.is_map(kind):
        for item in value.values():
            yield from _leaves(kind.item_type, item)
    elif pa.types.is_list(kind):
        for item in value:
            yield from _leaves(kind.value_type, item)
    else:
        yield value


class _FileColumns:
    """The columns of a file: the parts of the key, as text like the values of a Register, then the columns of the table."""

    def __init__(self, table: TableDeclaration, columns: Sequence[str] | None):
        from hayase.tables.lookups import arrow_schema

        kinds = dict(table.columns)
        chosen = tuple((name, kinds[name]) for name in (table.column_names if columns is None else columns))
        parts = tuple((name, "Register") for name in table.key)
        self._shapes = [replace(table, key=table.column_names, columns=parts)]
        self._shapes += [replace(table, columns=chosen)] if chosen else []
        self.schema = pa.schema([field for shape in self._shapes for field in arrow_schema(shape)])
        self.texts = {field.name: field.type for field in self.schema if _is_text(field.type)}
        self.numbers = [name for name, kind in chosen if kind in ("Counter", "MapCounter")]

    def batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        """Return rows as a record batch."""
        from hayase.tables.lookups import arrow_rows

        batches = [arrow_rows(shape, rows) for shape in self._shapes]
        return pa.record_batch([column for batch in batches for column in batch.columns], schema=self.schema)


def _is_text(kind: pa.DataType) -> bool:
    """Whether a column contains strings, or lists or maps of strings."""
    if pa.types.is_map(kind):
        return _is_text(kind.item_type)
    return _is_text(kind.value_type) if pa.types.is_list(kind) else pa.types.is_string(kind)


def _count_rounded(columns: Sequence[str], rows: Sequence[Row], rounded: dict[str, int]) -> None:
    """Count the numbers that a double cannot represent exactly; one beyond its range is an error."""
    for name in columns:
        for row in rows:
            values = row[name].values() if isinstance(row[name], Mapping) else (row[name],)
            for value in values:
                if isinstance(value, Decimal) or (isinstance(value, int) and float(value) != value):
                    if isinf(float(value)):
                        what = f'column "{name}" holds {value:.3e}, which is beyond the range of a double'
                        raise HayaseError(f"{what}; export to .ndjson, which keeps every digit")
                    rounded[name] = rounded.get(name, 0) + 1


@contextmanager
def _open_draft(file: Path) -> Iterator[tuple[BinaryIO, str]]:
    """Open a draft of the file and return it with its format; it gets its name at the end of the block."""
    form = format_of(file)
    if form.compression is not None:
        raise HayaseError(f'"{file}" would be compressed with {form.compression}; Parquet compresses by itself')
    draft = file.with_name(f".{file.name}.part")
    try:
        with draft.open("wb") as sink:
            yield sink, form.name
        draft.replace(file)
    except (OSError, pa.ArrowException) as error:
        raise HayaseError(f'"{file}" cannot be written as {form.name}: {error}') from error
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _parquet(sink: BinaryIO, schema: pa.Schema, facts: Mapping[str, str]) -> Iterator[Write]:
    waiting: list[pa.RecordBatch] = []

    def flush() -> None:
        if waiting:
            rows = pa.Table.from_batches(waiting, schema)
            writer.write_table(rows, row_group_size=GROUP)
            waiting.clear()

    def write(batch: pa.RecordBatch) -> None:
        waiting.append(batch)
        if sum(part.num_rows for part in waiting) >= GROUP or sum(part.nbytes for part in waiting) >= GROUP_BYTES:
            flush()

    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        yield write
        flush()
        writer.add_key_value_metadata(dict(facts))


@contextmanager
def _csv(sink: BinaryIO, schema: pa.Schema, facts: Mapping[str, str]) -> Iterator[Write]:
    nested = [field.name for field in schema if pa.types.is_nested(field.type)]
    if nested:
        raise HayaseError(f'column "{nested[0]}" has parts, which CSV cannot hold; export to .ndjson or .parquet')
    with pyarrow.csv.CSVWriter(sink, schema) as writer:
        yield writer.write_batch


@contextmanager
def _ndjson(sink: BinaryIO, schema: pa.Schema, facts: Mapping[str, str]) -> Iterator[Write]:
    def write(batch: pa.RecordBatch) -> None:
        for record in written_records(batch):
            sink.write(record_text(record).encode() + b"\n")

    yield write


_WRITERS = {"parquet": _parquet, "csv": _csv, "ndjson": _ndjson}
