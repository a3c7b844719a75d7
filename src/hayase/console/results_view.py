"""Writes results as an aligned table, JSON lines or CSV; and a query with its mistakes marked."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, BinaryIO

import pyarrow as pa
from rich.cells import cell_len, set_cell_size

from hayase.console.records import cell_text, fit_widths
from hayase.core.errors import HayaseError, Mistake
from hayase.streams.json_columns import written_records
from hayase.streams.record_text import record_text

__all__ = ["dead_lines", "marked", "write_csv", "write_json", "write_table"]

TOGETHER = 10_000
"""Rows that are converted to Python objects at once."""
_WIDEST = 60


def write_table(table: pa.Table, sink: IO[str], width: int | None = None) -> None:
    """Write an aligned table, numbers to the right; with `width`, columns are cut to fit it.

    >>> import sys
    >>> write_table(pa.table({"user": ["taro", "hana"], "n": [1, 20]}), sys.stdout)
    user   n
    ----  --
    taro   1
    hana  20
    """
    columns = [[cell_text(value) for value in _values(column)] for column in table.columns]
    wanted = [max(map(cell_len, [name, *texts])) for name, texts in zip(table.column_names, columns)]
    widths = wanted
    if width is not None:
        room = width - 2 * (len(wanted) - 1)
        most = max(_WIDEST, room // max(len(wanted), 1))
        widths = fit_widths([min(length, most) for length in wanted], room)
    right = [
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        for kind in table.schema.types
    ]
    head = [table.column_names, ["-" * length for length in widths]]
    for texts in itertools.chain(head, zip(*columns)):
        cells = (_aligned(text, size, end) for text, size, end in zip(texts, widths, right))
        sink.write("  ".join(cells).rstrip() + "\n")


def _aligned(text: str, size: int, right: bool) -> str:
    room = size - cell_len(text)
    if room < 0:
        return set_cell_size(text, size - 1) + "…"
    return " " * room + text if right else text + " " * room


def write_json(table: pa.Table, sink: IO[str]) -> None:
    """Write a JSON object per line; a map is an object too.

    >>> import sys
    >>> write_json(pa.table({"n": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))}), sys.stdout)
    {"n": {"a": 1}}
    """
    maps = [field.name for field in table.schema if _has_names(field.type)]
    for batch in table.to_batches(max_chunksize=TOGETHER):
        for record in written_records(batch):
            record |= {name: dict(record[name]) for name in maps if record[name] is not None}
            sink.write(record_text(record) + "\n")


def _has_names(kind: pa.DataType) -> bool:
    """Whether values are maps whose keys are texts."""
    return pa.types.is_map(kind) and pa.types.is_string(kind.key_type)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column, maps as dicts."""
    values = column.to_pylist()
    return [None if value is None else dict(value) for value in values] if _has_names(column.type) else values


def write_csv(table: pa.Table, sink: BinaryIO) -> None:
    """Write CSV with a header."""
    import pyarrow.csv as pv

    nested = [field.name for field in table.schema if pa.types.is_nested(field.type)]
    if nested:
        raise HayaseError(f'column "{nested[0]}" has parts, which CSV cannot hold; use --format json')
    pv.write_csv(table, sink)


def marked(text: str, mistakes: Iterable[Mistake]) -> Iterator[str]:
    """Yield the lines that show mistakes: the message, and below it the line of the query with a caret.

    >>> print(*marked("select prise from trades", [Mistake('unknown column "prise"', line=1, column=8)]), sep="\\n")
    1:8: unknown column "prise"
      select prise from trades
             ^
    """
    lines = text.splitlines()
    for mistake in mistakes:
        yield str(mistake)
        if mistake.line is not None and mistake.column is not None and 1 <= mistake.line <= len(lines):
            line = lines[mistake.line - 1].replace("\t", " ")
            yield f"  {line}"
            yield "  " + " " * cell_len(line[: mistake.column - 1]) + "^"


def dead_lines(letters: Sequence[Mapping[str, Any]], count: int) -> Iterator[str]:
    """Yield the lines about refused records: their number, and the first ones with their reasons."""
    yield f"{count:,} record{'' if count == 1 else 's'} could not be taken:"
    for letter in letters:
        record = letter["record"] if len(letter["record"]) <= 100 else letter["record"][:99] + "…"
        yield f"  {letter['stream']}: {letter['reason']}"
        yield f"    {record}"
    if count > len(letters):
        yield f"  and {count - len(letters):,} more"
