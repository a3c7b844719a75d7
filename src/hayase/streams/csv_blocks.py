"""Splits blocks of CSV bytes into columns of text: quoted fields, either line ending; malformed lines are reported one by one.

A field is quoted if a quote is its first character; inside, a quote is written twice, and commas and line ends are
data. A line that is not a record (the wrong number of fields, a quote that closes too early or never, bytes that are
not UTF-8) is reported alone, and reading continues at the next line. Blank lines are skipped; an empty field is null.
Columns of numbers are read as numbers if the whole block is simple enough.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from hayase.core.data_classes import dataclass
from hayase.core.errors import HayaseError
from hayase.streams.record_text import line_text, shown
from hayase.streams.typed_columns import may_differ

__all__ = ["Shape", "Split", "careful_split", "fields", "header", "shape_of", "split", "split_shaped"]

_QUOTED = rb'"[^"]*+(?:""[^"]*+)*+"'
_FIELD = rb"(?:" + _QUOTED + rb'|(?:[^",\n][^,\n]*+)?)'
_RECORD = re.compile(_FIELD + rb"(?:," + _FIELD + rb")*+\r?(?:\n|\Z)")
_FIELDS = re.compile(rb"(" + _FIELD + rb")(?:,|\r?\n?\Z)")
_OPEN = re.compile(rb"(?:" + _FIELD + rb',)*+"[^"]*+(?:""[^"]*+)*+"?\r?\Z')
"""Matches from the start of a record to the end of the block, if that is inside a quoted field or just after its quote."""


@dataclass(frozen=True, slots=True)
class Split:
    """The records of a block by column, as text or numbers (null where unreadable), with their lines and texts for
    error messages."""

    columns: tuple[pa.ChunkedArray, ...]
    count: int
    used: int
    lines: int
    texts: Callable[[list[int]], list[bytes]]
    line: Callable[[int], int]
    unreadable: dict[int, str]


def split(block: bytes, kinds: Sequence[pa.DataType], last: bool, limit: int) -> Split:
    """Return the records of a block up to the last complete one, with a field for each of `kinds`; `last` says that
    nothing follows.

    A column of numbers is returned as numbers if all of them can be read, else as text, like every other column. A
    quoted field that is still open at the end of a block longer than `limit` counts as a mistake in its line.

    >>> records = split(b'1,"a, b"\\n2,c\\n3', [pa.string()] * 2, last=False, limit=99)
    >>> [column.to_pylist() for column in records.columns]
    [['1', '2'], ['a, b', 'c']]
    """
    shape = shape_of(block, kinds, last)
    return careful_split(block, len(kinds), last, limit) if shape is None else split_shaped(block, kinds, shape)


@dataclass(frozen=True, slots=True)
class Shape:
    """A block without malformed quotes and lone carriage returns: where its last complete record ends, how many lines it has up to
    there, whether a field has line ends, and which columns are texts or have bytes that are not in numbers."""

    end: int
    lines: int
    newlines: bool
    odd: list[bool]


def shape_of(block: bytes, kinds: Sequence[pa.DataType], last: bool) -> Shape | None:
    """Return the shape of a block with a field for each of `kinds`; None if it has none, or nothing but line ends. This takes a
    small part of the time that `split_shaped` takes, so that blocks can be cut one after the other and split at the same time."""
    if not any(character in block for character in _NEEDS_A_LOOK):
        end = len(block) if last else block.rfind(b"\n") + 1
        lines = block.count(b"\n")
        return Shape(end, lines, False, [False] * len(kinds)) if lines < end else None
    from hayase.core import csv_loops

    odd = np.array([pa.types.is_string(_as_read(kind)) for kind in kinds], bool)  # text may have any bytes
    classes, plain = csv_loops.classes(_NOT_IN_NUMBERS), csv_loops.classes(b"")
    quoting, end, lines = csv_loops.quoting(np.frombuffer(block, np.uint8), classes, plain, odd, last)
    if quoting == csv_loops.MALFORMED:
        return None
    return Shape(end, lines, quoting == csv_loops.WITH_NEWLINES, odd.tolist())


def split_shaped(block: bytes, kinds: Sequence[pa.DataType], shape: Shape) -> Split:
    """Return the records of a block of this shape, as `split` does."""
    columns = _plain_columns(block, kinds, shape)
    if columns is None:
        return careful_split(block[: shape.end], len(kinds), last=True, limit=0)
    return _plain_split(block, columns, shape)


def _plain_columns(block: bytes, kinds: Sequence[pa.DataType], shape: Shape) -> tuple[pa.ChunkedArray, ...] | None:
    """Return the columns as Arrow's reader sees them; None if there is an odd line."""
    texts = [pa.string()] * len(kinds)
    read = [pa.string() if is_odd else _as_read(kind) for kind, is_odd in zip(kinds, shape.odd)]
    if read != texts:
        columns = _arrow_columns(block, read, shape)
        if columns is not None and not any(_may_differ(column, kind, block) for column, kind in zip(columns, kinds)):
            return columns
    return _arrow_columns(block, texts, shape)


_NOT_IN_NUMBERS = b" \txX"
"""Arrow skips blanks around numbers and reads hexadecimal ones; neither is a number in a stream."""
_NEEDS_A_LOOK = tuple(bytes([byte]) for byte in b'"\r' + _NOT_IN_NUMBERS)


def _as_read(kind: pa.DataType) -> pa.DataType:
    """Return the type in which Arrow reads a column. A `float` is read as a double, as in JSON."""
    return pa.float64() if pa.types.is_floating(kind) else kind if pa.types.is_integer(kind) else pa.string()


def _may_differ(column: pa.ChunkedArray, kind: pa.DataType, block: bytes) -> bool:
    """Return whether the numbers of a column may differ from their texts, so that the texts must be checked."""
    if not pa.types.is_floating(kind) or not pa.types.is_floating(column.type):
        return False
    doubtful = column.filter(may_differ(column, kind))
    if not len(doubtful):
        return False
    zeros = pc.all(pc.equal(doubtful, 0)).as_py()
    return not zeros or b"e" in block or b"E" in block or b"0" * 100 in block  # otherwise they are written as zeros


def _arrow_columns(block: bytes, kinds: Sequence[pa.DataType], shape: Shape) -> tuple[pa.ChunkedArray, ...] | None:
    names = [str(at) for at in range(len(kinds))]
    try:
        table = pv.read_csv(
            pa.py_buffer(block).slice(0, shape.end),
            pv.ReadOptions(use_threads=False, block_size=shape.end + 1, column_names=names),
            pv.ParseOptions(newlines_in_values=shape.newlines),
            pv.ConvertOptions(column_types=dict(zip(names, kinds)), null_values=[""], strings_can_be_null=True),
        )
    except pa.ArrowInvalid:
        return None
    return tuple(table.columns)


def _plain_split(block: bytes, columns: tuple[pa.ChunkedArray, ...], shape: Shape) -> Split:
    numbered: list[tuple[int, bytes]] = []

    def records() -> list[tuple[int, bytes]]:  # called only if a record is refused
        number = 0
        for match in _RECORD.finditer(block, 0, shape.end) if not numbered else ():
            if text := match[0].rstrip(b"\r\n"):
                numbered.append((number, text))
            number += match[0].count(b"\n")
        return numbered

    return Split(
        columns,
        count=len(columns[0]),
        used=shape.end,
        lines=shape.lines,
        texts=lambda at: [records()[position][1] for position in at],
        line=lambda at: records()[at][0],
        unreadable={},
    )


def careful_split(block: bytes, width: int, last: bool, limit: int) -> Split:
    """Return the records of any block as texts, line by line, as `split` does."""
    records: list[bytes] = []
    numbers: list[int] = []
    rows: list[list[bytes] | tuple[None, ...]] = []
    unreadable: dict[int, str] = {}
    blank = (None,) * width
    valid = _is_utf8(block)
    at = number = 0
    while at < len(block):
        end = block.find(b"\n", at) + 1 or len(block)
        record: bytes | None = block[at:end]
        if b'"' in block[at:end]:
            match = _RECORD.match(block, at)
            if match is not None:
                end, record = match.end(), match[0]
            elif not last and len(block) - at <= limit and _OPEN.match(block, at):
                break
            else:
                record = None
        if end == len(block) and not last and not block.endswith(b"\n"):
            break
        line = block[at:end].rstrip(b"\r\n")
        if line:
            values = fields(line) if record is not None else None
            numbers.append(number)
            records.append(line)
            if values is None:
                unreadable[len(rows)] = "a quoted field does not end where it should; write a quote inside as two"
            elif not valid and not _is_utf8(line):
                unreadable[len(rows)] = "the line is not UTF-8 text"
            elif len(values) != width:
                unreadable[len(rows)] = f"the line has {len(values)} fields and the header {width}"
            rows.append(blank if len(rows) in unreadable or values is None else values)
        number += block.count(b"\n", at, end)
        at = end
    return Split(
        tuple(pa.chunked_array([_texts(column)]) for column in (zip(*rows) if rows else ((),) * width)),
        count=len(rows),
        used=at,
        lines=number,
        texts=lambda at: [records[position] for position in at],
        line=lambda at: numbers[at],
        unreadable=unreadable,
    )


def fields(line: bytes) -> list[bytes]:
    """Return the fields of one well-formed record, without their quotes.

    >>> fields(b'1,"a, ""b"" c",')
    [b'1', b'a, "b" c', b'']
    """
    if b'"' not in line:
        return line.split(b",")
    texts = [match[1] for match in _FIELDS.finditer(line)]
    if not line.endswith(b","):
        texts.pop()  # the empty match at the end of the text
    return [text[1:-1].replace(b'""', b'"') if text.startswith(b'"') else text for text in texts]


def header(line: bytes) -> list[str]:
    """Return the names of the columns from the first line of a file.

    >>> header(b'time, "user"'), header(b'"first, last",age')
    (['time', '"user"'], ['first, last', 'age'])
    """
    if b'"' in line and _RECORD.fullmatch(line) is None:
        raise HayaseError(
            f"the names of the columns, {shown(line_text(line))}, have a quoted field that does not end where it should; "
            "write a quote inside as two, and all names in one line"
        )
    return [line_text(name).strip() for name in fields(line)]


def _texts(column: tuple[bytes | None, ...]) -> pa.Array:
    return pa.array([text or None for text in column], pa.string())


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
