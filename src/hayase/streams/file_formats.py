"""Reads CSV, NDJSON and Parquet from files and pipes as chunks of conformed records, in bounded memory.

A chunk holds at most about 65,536 records or 8 MB of the file, whichever is less, and at least one record, however
large. A line that cannot be read is a refused record with its number and text; a file that cannot be read is an error.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import stat
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import field
from functools import partial
from pathlib import Path, PurePath
from typing import Any, BinaryIO

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import HayaseError, nearest
from hayase.streams import csv_blocks, exact_lines
from hayase.streams.json_blocks import block_reader
from hayase.streams.json_texts import conform_json, conform_loaded, conform_read
from hayase.streams.ordered_tasks import results_ahead
from hayase.streams.record_text import line_text
from hayase.streams.records import Conformed, Origin, check_columns, conform, conform_texts

__all__ = ["COMPRESSIONS", "FORMATS", "Chunk", "Format", "format_of", "read_records"]

FORMATS = {"csv": "csv", "ndjson": "ndjson", "jsonl": "ndjson", "json": "ndjson", "parquet": "parquet", "pq": "parquet"}
"""Format names and file suffixes, with the format each stands for."""
COMPRESSIONS = {"gz": "gzip", "zst": "zstd", "bz2": "bz2"}
"""Suffixes of compressed files."""

CHUNK_RECORDS = 65_536
BLOCK_BYTES = 8 << 20
LONGEST_RECORD = 256 << 20
"""A line longer than this is taken as a sign that the file has another format."""
_LINGER = 0.2
"""Seconds to wait for more lines from a pipe: lines of a slow writer are appended soon, those of a fast one in bulk."""
_BOM = b"\xef\xbb\xbf"
_THREADS = 2
"""Threads that parse CSV, where the machine has as many cores."""


@dataclass(frozen=True, slots=True)
class Format:
    """The format of a file: `csv`, `ndjson` or `parquet`, and Arrow's name of its compression, if any. A CSV file without a
    header has the columns of the schema, in their order."""

    name: str
    compression: str | None = None
    header: bool = field(default=True, repr=False)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of a file, and how many bytes of the file have been read up to their end."""

    conformed: Conformed
    done: int


def format_of(name: str | PurePath, given: str | None = None) -> Format:
    """Return the format of a file: the given one, else by its suffix.

    >>> format_of("orders.csv.gz"), format_of("-", "ndjson").name
    (Format(name='csv', compression='gzip'), 'ndjson')
    """
    suffixes = [suffix.removeprefix(".").lower() for suffix in PurePath(name).suffixes]
    compression = COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    if compression is not None:
        suffixes.pop()
    word = given if given is not None else suffixes[-1] if suffixes else ""
    if word.lower() not in FORMATS:
        if given is not None:
            raise HayaseError(f'unknown format "{given}"{nearest(word, FORMATS)}; give one of csv, ndjson, parquet')
        hint = "let it end in .csv, .ndjson or .parquet, or say the format (--format csv, ndjson or parquet)"
        raise HayaseError(f'the name "{name}" does not say what format it is; {hint}')
    if FORMATS[word.lower()] == "parquet" and compression is not None:
        raise HayaseError(f'"{name}" is Parquet inside {compression}; unpack it first, Parquet compresses by itself')
    return Format(FORMATS[word.lower()], compression)


def read_records(
    source: Path | BinaryIO,
    form: Format,
    declaration: StreamDeclaration,
    clock: Callable[[], int],
    ahead: bool | None = None,
) -> Generator[Chunk, None, None]:
    """Yield the records of a file or pipe in chunks; `clock` returns the current time for `max_ahead`.

    A file is read `ahead` in threads, so that reading it and writing its records overlap: for CSV several, since Arrow parses
    it outside of Python's lock.
    """
    parts = _parts_of(source, form, declaration, clock)
    if isinstance(source, Path) if ahead is None else ahead:
        chunks = results_ahead(parts, threads=min(_THREADS, os.cpu_count() or 1) if form.name == "csv" else 1)
    else:
        chunks = (part() for part in parts)
    with contextlib.closing(chunks), _readable(source, form):
        for portion in chunks:
            yield from portion


_Part = Callable[[], list[Chunk]]
"""Reads a part of a file that has been cut out; parts can be read at the same time."""


@contextlib.contextmanager
def _readable(source: Path | BinaryIO, form: Format) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        name = str(source) if isinstance(source, Path) else getattr(source, "name", "the input")
        raise HayaseError(f'"{name}" cannot be read as {form.name}: {error}') from error


def _parts_of(
    source: Path | BinaryIO, form: Format, declaration: StreamDeclaration, clock: Callable[[], int]
) -> Iterator[_Part]:
    if form.name == "parquet":
        yield from _parquet_parts(source, declaration, clock)
    elif isinstance(source, Path):
        with source.open("rb", buffering=0) as raw:
            yield from _text_parts(raw, form, declaration, clock)
    else:
        yield from _text_parts(source, form, declaration, clock)


def _text_parts(raw: Any, form: Format, declaration: StreamDeclaration, clock: Callable[[], int]) -> Iterator[_Part]:
    read: Callable[[int], bytes]
    if form.compression is not None:
        counted = _Counted(raw)
        read, done = pa.CompressedInputStream(pa.PythonFile(counted, "r"), form.compression).read, counted.bytes
    elif _is_pipe(raw):
        read, done = _patient(raw), None
    else:
        read, done = raw.read, None
    reader = _Csv(declaration, form.header, clock) if form.name == "csv" else _Ndjson(declaration, clock)
    carry, used, first = b"", 0, True
    while True:
        piece = read(BLOCK_BYTES)
        last = not piece
        if first:
            piece, used, first = piece.removeprefix(_BOM), used + len(_BOM) * piece.startswith(_BOM), False
        block = carry + piece if carry else piece
        for part in reader.cut(block, last):
            yield partial(_chunks, part, used + reader.used if done is None else done())
        used += reader.used
        carry = block[reader.used :]
        if last:
            return
        if len(carry) > LONGEST_RECORD:
            raise HayaseError(
                f"line {reader.lines + 1} is longer than {LONGEST_RECORD >> 20} MB; is this a file of lines in {form.name}?"
            )


def _chunks(part: Callable[[], Iterable[Conformed]], done: int) -> list[Chunk]:
    return [Chunk(conformed, done) for conformed in part()]


class _Counted(io.RawIOBase):
    """A file that counts the bytes read from it, below a decompressor that reads ahead."""

    def __init__(self, raw: Any):
        self._raw, self._bytes = raw, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        piece: bytes = self._raw.read(size) or b""
        self._bytes += len(piece)
        return piece

    def bytes(self) -> int:
        return self._bytes


def _is_pipe(raw: Any) -> bool:
    try:
        return not stat.S_ISREG(os.fstat(raw.fileno()).st_mode)
    except (OSError, AttributeError):  # not a file of the operating system
        return False


def _patient(raw: Any) -> Callable[[int], bytes]:
    """Return a function that reads what a pipe holds, and what follows soon."""
    descriptor = raw.fileno()

    def read(size: int) -> bytes:
        pieces: list[bytes] = []
        missing = size
        while missing and (not pieces or select.select([descriptor], [], [], _LINGER)[0]):
            piece = os.read(descriptor, missing)
            if not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    return read


class _Ndjson:
    """Cuts blocks of JSON lines; `used` counts bytes of the last block, `lines` lines of the file, that have been cut out."""

    def __init__(self, declaration: StreamDeclaration, clock: Callable[[], int]):
        self._declaration, self._clock = declaration, clock
        self._read, self._load = block_reader(declaration), exact_lines.loader(declaration.arrow_schema)
        self.used = self.lines = 0

    def cut(self, block: bytes, last: bool) -> Iterator[Callable[[], Iterable[Conformed]]]:
        """Cut the complete lines of a block into parts; each is a function that returns its records."""
        self.used = 0
        end = len(block) if last else block.rfind(b"\n") + 1
        lines = block[:end].split(b"\n")
        if not lines[-1]:
            lines.pop()
        for start in range(0, len(lines), CHUNK_RECORDS):
            portion = lines[start : start + CHUNK_RECORDS]
            self.used = min(end, self.used + sum(map(len, portion)) + len(portion))
            before = self.lines + 1
            self.lines += len(portion)
            yield partial(self._conform, portion, before)

    def _conform(self, lines: list[bytes], before: int) -> list[Conformed]:
        numbers: list[int] | range = range(before, before + len(lines))
        now = self._clock()
        columns = self._read(lines)
        if columns is not None:
            return [conform_read(columns, lines, self._declaration, now, lambda at: f"line {before + at}")]
        try:
            rows = self._load(lines)
        except ValueError:  # a blank line, or one that is not JSON
            kept = [(number, line) for number, line in zip(numbers, lines) if line and not line.isspace()]
            numbers, lines = [number for number, _ in kept], [line for _, line in kept]
            conformed = conform_json(lines, self._declaration, now, lambda at: f"line {numbers[at]}")
        else:
            conformed = conform_loaded(rows, lines, self._declaration, now, lambda at: f"line {numbers[at]}")
        return [conformed] if conformed.rows.num_rows or conformed.refused else []


class _Csv:
    """Cuts blocks of CSV, with a header or without; `used` and `lines` are those of `_Ndjson`."""

    def __init__(self, declaration: StreamDeclaration, header: bool, clock: Callable[[], int]):
        self._declaration, self._clock = declaration, clock
        self._names: list[str] | None = None if header else declaration.arrow_schema.names
        self.used = self.lines = 0

    def cut(self, block: bytes, last: bool) -> Iterator[Callable[[], Iterable[Conformed]]]:
        """Cut out the complete lines of a block, as one part."""
        self.used = 0
        if self._names is None:
            self._read_header(block, last)
        if self._names is None:
            return
        schema = self._declaration.arrow_schema
        kinds = [schema.field(name).type if name in schema.names else pa.string() for name in self._names]
        rest = block[self.used :]
        shape = csv_blocks.shape_of(rest, kinds, last)
        if shape is None:
            split = csv_blocks.careful_split(rest, len(kinds), last, LONGEST_RECORD // 2)
            used, lines, part = split.used, split.lines, lambda: split
        else:
            used, lines, part = shape.end, shape.lines, partial(csv_blocks.split_shaped, rest, kinds, shape)
        before = self.lines + 1
        self.used += used
        self.lines += lines
        yield partial(self._conform, part, before)

    def _read_header(self, block: bytes, last: bool) -> None:
        while self._names is None and (b"\n" in block[self.used :] or (last and self.used < len(block))):
            end = block.find(b"\n", self.used) + 1 or len(block)
            line = block[self.used : end].rstrip(b"\r\n")
            self.used, self.lines = end, self.lines + 1
            if line:
                names = csv_blocks.header(line)
                check_columns(names, self._declaration)
                self._names = names

    def _conform(self, part: Callable[[], csv_blocks.Split], before: int) -> Iterator[Conformed]:
        split = part()
        for start in range(0, split.count, CHUNK_RECORDS):
            yield self._conform_rows(split, start, min(start + CHUNK_RECORDS, split.count), before)

    def _conform_rows(self, split: csv_blocks.Split, start: int, stop: int, before: int) -> Conformed:
        origin = Origin(
            lambda at: [line_text(text) for text in split.texts([start + position for position in at])],
            lambda at: f"line {before + split.line(start + at)}",
            {at - start: reason for at, reason in split.unreadable.items() if start <= at < stop},
        )
        columns = {name: column.slice(start, stop - start) for name, column in zip(self._names or (), split.columns)}
        return conform_texts(columns, stop - start, self._declaration, self._clock(), origin)


def _parquet_parts(
    source: Path | BinaryIO, declaration: StreamDeclaration, clock: Callable[[], int]
) -> Iterator[_Part]:
    if not isinstance(source, Path) and not source.seekable():
        raise HayaseError("Parquet cannot be read from a pipe, its index is at the end; give a file")
    import pyarrow.parquet as pq  # with it come file systems and their encryption

    with pq.ParquetFile(source) as file:
        metadata = file.metadata
        check_columns(file.schema_arrow.names, declaration)
        size = source.stat().st_size if isinstance(source, Path) else source.seek(0, io.SEEK_END)
        weight = sum(metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups))
        rows = max(1, min(CHUNK_RECORDS, BLOCK_BYTES * metadata.num_rows // max(weight, 1)))
        read = 0
        names = file.schema_arrow.names
        if declaration.extra_fields == "ignore":
            names = [name for name in names if name in declaration.arrow_schema.names]
        for batch in file.iter_batches(batch_size=rows, columns=names):
            read += batch.num_rows
            chunk = Chunk(conform(batch, declaration, clock()), size * read // metadata.num_rows)
            yield lambda chunk=chunk: [chunk]  # type: ignore[misc]
