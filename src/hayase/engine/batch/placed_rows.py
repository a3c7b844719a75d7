"""Output rows with their places, for streams whose order does not depend on buckets: a file for each bucket, merged by the commit.

The output of most stages has no order between the buckets. That of `OVER` over a stream has the order of event time, then of the
offsets of the input, which every row brings along as its place. The files are not durable and need not be: what is merged is, and
a batch that is run again writes its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash

from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DamagedState
from hayase.core.keys import raw_values
from hayase.engine.batch.report import PlacedRows
from hayase.engine.home import writing
from hayase.streams import durable
from hayase.streams.segments import BATCH_ROWS

__all__ = ["merge_placed", "write_placed"]

_PLACE = "__place"


def write_placed(directory: Path, name: str, stream: str, rows: pa.Table, places: np.ndarray) -> PlacedRows:
    """Write rows and their places to a file; the rows are in the order of event time and place."""
    sink = pa.BufferOutputStream()
    whole = rows.append_column(_PLACE, pa.array(places))
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_table(whole)
    body = sink.getvalue()
    path = directory / name
    with writing(f"the output {path}"):
        descriptor = durable.open_file(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        try:
            durable.write(descriptor, memoryview(body))
        finally:
            os.close(descriptor)
    return PlacedRows(stream, name, rows.num_rows, xxhash.xxh3_64_hexdigest(body))


def merge_placed(directory: Path, files: Sequence[PlacedRows], declaration: StreamDeclaration) -> pa.Table:
    """Return the rows of some files of one stream, in the order of event time and place."""
    tables = [_read(directory / file.file, file) for file in files]
    assert declaration.time is not None
    times, places = (np.concatenate([_numbers(table, name) for table in tables]) for name in (declaration.time, _PLACE))
    order = np.lexsort((places, times))
    ends = np.cumsum([table.num_rows for table in tables])
    values = [table.drop_columns([_PLACE]) for table in tables]
    batches = [_taken(values, ends, order[first : first + BATCH_ROWS]) for first in range(0, len(order), BATCH_ROWS)]
    return pa.concat_tables(batches)


def _read(path: Path, file: PlacedRows) -> pa.Table:
    try:
        with pa.memory_map(str(path)) as mapped:
            body = mapped.read_buffer()
    except (OSError, pa.ArrowException) as error:
        raise DamagedState(f"{path} cannot be read: {error}; do all machines see the home?") from error
    if xxhash.xxh3_64_hexdigest(body) != file.checksum:
        raise DamagedState(f"{path} is damaged", "start the pipeline again: the batch is then run again")
    return pa.ipc.open_stream(body).read_all()


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    parts: Iterator[np.ndarray] = (raw_values(chunk, np.int64) for chunk in table.column(name).chunks)
    return np.concatenate([np.empty(0, np.int64), *parts])


def _taken(tables: Sequence[pa.Table], ends: np.ndarray, rows: np.ndarray) -> pa.Table:
    """Return some rows, numbered over all tables; of each table they are close together."""
    of = np.searchsorted(ends, rows, "right")
    slices, moved, count = [], rows.copy(), 0
    for number, table in enumerate(tables):
        own = of == number
        if own.any():
            first, last = int(rows[own].min()), int(rows[own].max())
            slices.append(table.slice(first - int(ends[number]) + table.num_rows, last + 1 - first))
            moved[own] += count - first
            count += last + 1 - first
    return pa.concat_tables(slices).combine_chunks().take(pa.array(moved))
