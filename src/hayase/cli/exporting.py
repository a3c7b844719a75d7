"""A stream as a file: Parquet, CSV or NDJSON, record by record in bounded memory, and complete or not there at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from hayase.cli.places import index_of
from hayase.core.errors import HayaseError
from hayase.streams import StreamLog
from hayase.streams.formats import format_of
from hayase.streams.record_text import record_text

__all__ = ["write_file"]

Write = Callable[[pa.RecordBatch], None]


def write_file(log: StreamLog, file: Path) -> int:
    """Write all records there are; returns how many. The file appears under its name when it is complete."""
    form = format_of(file)
    if form.compression is not None:
        raise HayaseError(f'"{file}" would be compressed with {form.compression}; Parquet compresses by itself')
    index = index_of(log)
    draft = file.with_name(f".{file.name}.part")
    try:
        with draft.open("wb") as sink, _WRITERS[form.name](sink, log.declaration.arrow_schema) as write:
            for piece in log.read(index.start, index.next) if index.next > index.start else ():
                write(piece.rows)
        draft.replace(file)
    except (OSError, pa.ArrowException) as error:
        raise HayaseError(f'"{file}" cannot be written as {form.name}: {error}') from error
    finally:
        draft.unlink(missing_ok=True)
    return index.next - index.start


@contextmanager
def _parquet(sink: BinaryIO, schema: pa.Schema) -> Iterator[Write]:
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        yield writer.write_batch


@contextmanager
def _csv(sink: BinaryIO, schema: pa.Schema) -> Iterator[Write]:
    nested = [each.name for each in schema if pa.types.is_nested(each.type)]
    if nested:
        raise HayaseError(f'column "{nested[0]}" has parts, which CSV cannot hold; export to .ndjson or .parquet')
    with pyarrow.csv.CSVWriter(sink, schema) as writer:
        yield writer.write_batch


@contextmanager
def _ndjson(sink: BinaryIO, schema: pa.Schema) -> Iterator[Write]:
    def write(batch: pa.RecordBatch) -> None:
        for record in batch.to_pylist():
            sink.write(record_text(record).encode() + b"\n")

    yield write


_WRITERS = {"parquet": _parquet, "csv": _csv, "ndjson": _ndjson}
