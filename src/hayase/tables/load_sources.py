"""Sources of a bulk load: reads rows from files, Arrow data or dicts in lots (portions) that fit into memory.

Only columns that the table takes are read. Another column is an error that names it, unless other columns are to be ignored. A
line that cannot be read is refused by itself, with its number.

The types of CSV columns are inferred, unless a schema declares them. A number that its inferred type does not hold is read as in
NDJSON, and a text in a column of numbers is refused with its line. NDJSON is read as JSON, value by value, so a register may get
a number from one row and a text from another. Parquet has the types of its schema.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from hayase.core.data_classes import dataclass
from hayase.core.errors import HayaseError, nearest
from hayase.core.numbers import is_number
from hayase.core.reasons import Reason, ReasonKind
from hayase.core.schemas import arrow_schema
from hayase.streams import csv_blocks
from hayase.streams.file_formats import Format, format_of
from hayase.streams.inference import schema_of
from hayase.streams.record_text import line_text, record_text, shown
from hayase.streams.records import row_texts, rows_at
from hayase.streams.typed_columns import fit_arrow, python_values
from hayase.tables import jq_numbers

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["JSON_COLUMNS", "Lot", "Rows", "Wanted", "count_of", "lots_of"]

JSON_COLUMNS = "hayase.json"
"""The metadata key under which an exported Parquet file lists the string columns that contain JSON, not plain texts."""
Rows: TypeAlias = (
    "str | Path | pa.Table | pa.RecordBatch | pa.RecordBatchReader | pd.DataFrame | "
    "Iterable[pa.RecordBatch] | Iterable[Mapping[str, Any]]"
)
"""What can be loaded: a file, Arrow data, a data frame, or dicts."""

CHUNK_ROWS = 65_536
_BLOCK = 8 << 20
_LONGEST = 256 << 20
"""The longest line in bytes; a longer one means that the file has another format."""
_BOM = b"\xef\xbb\xbf"
_MANY_DIGITS = re.compile(rb"[0-9.]{17}|[0-9.][eE]")
"""Matches lines with numbers that a double may not represent."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The columns to read from a source: required ones and optional ones. Those in `numeric` take only numbers."""

    needed: tuple[str, ...]
    others: tuple[str, ...]
    table: str
    ignore_others: bool = False
    numeric: frozenset[str] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.needed, *(name for name in self.others if name not in self.needed))

    def check(self, columns: Iterable[str], *, whole: bool = True) -> None:
        """Raise HayaseError for an unknown or duplicate column and, if `whole`, for a missing one."""
        names = list(columns)
        for name in names:
            if name not in self.names and not self.ignore_others:
                remedy = "leave the column out, or ignore all others (--ignore-others, ignore_others=True)"
                raise HayaseError(
                    f'table "{self.table}" takes no column {shown(name)}{nearest(str(name), self.names)}; {remedy}'
                )
            if names.count(name) > 1 and name in self.names:
                raise HayaseError(f'column {shown(name)} for table "{self.table}" is there twice; rename one')
        for name in self.needed:
            if whole and name not in names:
                remedy = f"name the column that it is (--key {name}=COLUMN), or rename the column"
                raise HayaseError(
                    f'the rows for table "{self.table}" have no column "{name}"{nearest(name, names)}; {remedy}'
                )


@dataclass(frozen=True, slots=True)
class Lot:
    """A portion of rows: columns by name, as Arrow arrays or plain values, and what dead letters need.

    `texts` returns rows as texts, `where` the place of a row in the source; `unfit` has the reasons of rows that cannot be
    loaded, by position.
    """

    columns: Mapping[str, pa.Array | list[Any]]
    count: int
    texts: Callable[[list[int]], list[str]]
    where: Callable[[int], str]
    unfit: Mapping[int, Reason] = field(default_factory=dict)


def count_of(rows: Rows) -> int | None:
    """Return the number of rows, if it is known without reading them; else None."""
    if isinstance(rows, (str, Path)):
        if Path(rows).suffix.lower() in (".parquet", ".pq") and Path(rows).is_file():
            try:
                return int(pq.read_metadata(rows).num_rows)
            except (OSError, pa.ArrowException):
                return None
        return None
    return len(rows) if isinstance(rows, (pa.Table, pa.RecordBatch, list)) else None


def lots_of(rows: Rows, wanted: Wanted, *, form: str | None = None, schema: str | None = None) -> Iterator[Lot]:
    """Yield the rows of a source in portions. `form` is the format of a file if its name does not show it; `schema` declares the
    types of CSV columns, which are inferred otherwise."""
    if isinstance(rows, (str, Path)):
        path = Path(rows)
        if not path.is_file():
            raise HayaseError(f'there is no file "{path}"; check the name')
        yield from _file_lots(path, format_of(path.name, form), wanted, schema)
        return
    if "pandas" in sys.modules and isinstance(rows, sys.modules["pandas"].DataFrame):
        rows = pa.Table.from_pandas(rows, preserve_index=False)
    if isinstance(rows, pa.Table):
        wanted.check(rows.column_names)
        rows = rows.to_batches(max_chunksize=CHUNK_ROWS)
    elif isinstance(rows, pa.RecordBatch):
        rows = [rows]
    elif isinstance(rows, (Mapping, bytes)) or not isinstance(rows, Iterable):
        what = shown(rows)
        raise HayaseError(f"{what} are not rows; give a file, Arrow data, a frame, or dicts")
    yield from _lots_of_items(iter(rows), wanted)


def _lots_of_items(rows: Iterator[Any], wanted: Wanted) -> Iterator[Lot]:
    """Yield the portions of an iterator of batches or dicts."""
    behind = 0
    for item in rows:
        if isinstance(item, pa.RecordBatch):
            yield from _batch_lots(item, wanted, behind)
            behind += item.num_rows
        else:
            dicts = [item, *islice(rows, CHUNK_ROWS - 1)]
            yield _dict_lot(dicts, wanted, _row_number(behind), _of_dicts(dicts), first=not behind)
            behind += len(dicts)


def _of_dicts(rows: list[Any]) -> Callable[[list[int]], list[str]]:
    return lambda at: [record_text(rows[row]) for row in at]


def _row_number(before: int) -> Callable[[int], str]:
    return lambda at: f"row {before + at + 1:,}: "


def _batch_lots(batch: pa.RecordBatch, wanted: Wanted, behind: int) -> Iterator[Lot]:
    wanted.check(batch.schema.names)
    mine = batch.select([name for name in wanted.names if name in batch.schema.names])
    for start in range(0, batch.num_rows, CHUNK_ROWS):
        part, whole = mine.slice(start, CHUNK_ROWS), batch.slice(start, CHUNK_ROWS)
        columns = dict(zip(part.schema.names, map(_valid_column, part.columns)))
        yield Lot(columns, part.num_rows, _of_batch(whole), _row_number(behind + start))


def _of_batch(batch: pa.RecordBatch) -> Callable[[list[int]], list[str]]:
    return lambda at: row_texts(rows_at(pa.Table.from_batches([batch]), at))


def _valid_column(column: pa.Array) -> pa.Array | list[Any]:
    """Return a column, or its values one by one if it is invalid, such as texts that are not UTF-8."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return python_values(column)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _dict_lot(
    rows: list[Any],
    wanted: Wanted,
    where: Callable[[int], str],
    texts: Callable[[list[int]], list[str]],
    unreadable: Mapping[int, Reason] | None = None,
    *,
    first: bool,
) -> Lot:
    """Return a portion of objects. A required column that no row of the first portion has is an error; in later portions only the
    rows without it are refused."""
    strange = dict(unreadable or {})
    if not {dict}.issuperset(map(type, rows)):
        for at, row in enumerate(rows):
            if not isinstance(row, Mapping):
                text = f"a row is an object with columns as fields, not {shown(row)}"
                strange.setdefault(at, Reason(ReasonKind.UNREADABLE, text))
        rows = [row if isinstance(row, Mapping) else {} for row in rows]
    present = dict.fromkeys(name for names in {tuple(row) for row in rows} for name in names)
    wanted.check(present, whole=first and len(strange) < len(rows))
    columns = {name: [row.get(name) for row in rows] for name in wanted.names if name in present}
    return Lot(columns, len(rows), texts, where, strange)


# ---------------------------------------------------------------------------------------------------- files


def _file_lots(path: Path, form: Format, wanted: Wanted, schema: str | None) -> Iterator[Lot]:
    if schema is not None and form.name != "csv":
        raise HayaseError(f'"{path}" says itself what its columns are; a schema is for CSV')
    try:
        if form.name == "parquet":
            with pq.ParquetFile(path) as file:
                wanted.check(file.schema_arrow.names)
                written = (file.metadata.metadata or {}).get(JSON_COLUMNS.encode(), b"[]")
                as_json = frozenset(orjson.loads(written))
                for lot in _lots_of_items(file.iter_batches(batch_size=CHUNK_ROWS), wanted):
                    yield _decode_json_columns(lot, as_json) if as_json else lot
        elif form.name == "csv":
            yield from _csv_lots(path, form, wanted, schema)
        else:
            yield from _json_lots(path, form, wanted)
    except (OSError, pa.ArrowException) as error:
        raise HayaseError(f'"{path}" cannot be read as {form.name}: {error}') from error


def _blocks(path: Path, form: Format) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file in blocks; an empty block is the end."""
    with path.open("rb") as raw:
        source: Any = (
            raw if form.compression is None else pa.CompressedInputStream(pa.PythonFile(raw), form.compression)
        )
        first = True
        while block := bytes(source.read(_BLOCK)):
            yield block.removeprefix(_BOM) if first else block
            first = False
    yield b""


def _joined(carry: bytes, block: bytes, lines: int, form: Format) -> bytes:
    if len(carry) > _LONGEST:
        size = f"{_LONGEST >> 20} MB"
        raise HayaseError(f"line {lines + 1} is longer than {size}; is this a file of lines in {form.name}?")
    return carry + block if carry else block


def _json_lots(path: Path, form: Format, wanted: Wanted) -> Iterator[Lot]:
    carry, behind = b"", 0
    for piece in _blocks(path, form):
        block = _joined(carry, piece, behind, form)
        end = block.rfind(b"\n") + 1 if piece else len(block)
        lines, carry = block[:end].split(b"\n"), block[end:]
        if not lines[-1]:
            lines.pop()
        for start in range(0, len(lines), CHUNK_ROWS):
            yield _json_lot(lines[start : start + CHUNK_ROWS], behind + start + 1, wanted)
        behind += len(lines)


def _json_lot(lines: list[bytes], first: int, wanted: Wanted) -> Lot:
    numbers: Sequence[int] = range(first, first + len(lines))
    unreadable: dict[int, Reason] = {}
    rows: list[Any] | None = None
    if not any(map(_MANY_DIGITS.search, lines)):
        with suppress(orjson.JSONDecodeError):  # a blank line, or a line that is not JSON
            rows = list(map(orjson.loads, lines))
    if rows is None:
        kept = [(number, line) for number, line in zip(numbers, lines) if line and not line.isspace()]
        numbers, lines, rows = [number for number, _ in kept], [line for _, line in kept], []
        for at, line in enumerate(lines):
            try:
                rows.append(jq_numbers.read(line))
            except jq_numbers.NotPlain as error:
                rows.append({})
                unreadable[at] = Reason(ReasonKind.UNREADABLE, str(error))
            except (ValueError, RecursionError) as error:
                rows.append({})
                unreadable[at] = Reason(ReasonKind.UNREADABLE, f"not JSON: {error}")
    texts, places = lines, numbers
    return _dict_lot(
        rows,
        wanted,
        lambda at: f"line {places[at]}: ",
        lambda at: [line_text(texts[row]) for row in at],
        unreadable,
        first=first == 1,
    )


def _decode_json_columns(lot: Lot, names: frozenset[str]) -> Lot:
    """Decode the columns of a portion that contain JSON, as in the export of a table."""
    columns = {
        name: [_value(column.type, text) for text in python_values(column)]
        if name in names and isinstance(column, pa.Array)
        else column
        for name, column in lot.columns.items()
    }
    return replace(lot, columns=columns)


def _value(kind: pa.DataType, written: Any) -> Any:
    """Decode JSON text, or the JSON texts in a list or a map."""
    if written is None:
        return None
    if pa.types.is_map(kind):
        return {key: _value(kind.item_type, item) for key, item in dict(written).items()}
    if pa.types.is_list(kind):
        return [_value(kind.value_type, item) for item in written]
    return jq_numbers.read(written)


def _csv_lots(path: Path, form: Format, wanted: Wanted, schema: str | None) -> Iterator[Lot]:
    names: list[str] | None = None
    carry, lines = b"", 0
    fields: list[_Field] = []
    for piece in _blocks(path, form):
        block = _joined(carry, piece, lines, form)
        while names is None and (b"\n" in block or (not piece and block)):
            line, _, block = block.partition(b"\n")
            lines += 1
            if line := line.rstrip(b"\r"):
                names = csv_blocks.header(line)
                wanted.check(names)
        if names is None or not block.strip(b"\r\n"):
            carry = block
            continue
        fields = fields or _fields(path, names, schema, wanted)
        split = csv_blocks.split(block, [column.field.type for column in fields], not piece, _LONGEST // 2)
        carry = block[split.used :]
        for start in range(0, split.count, CHUNK_ROWS):
            yield _csv_lot(split, start, min(start + CHUNK_ROWS, split.count), lines + 1, fields, wanted)
        lines += split.lines


def _fields(path: Path, names: list[str], schema: str | None, wanted: Wanted) -> list[_Field]:
    """Return the fields of a CSV file: those of the schema, the others inferred."""
    declared = arrow_schema(schema) if schema is not None else pa.schema([])
    for name in declared.names:
        if name not in names:
            raise HayaseError(f'"{path}" has no column "{name}", which the schema names{nearest(name, names)}')
    inferred = schema_of([path]) if not set(names) <= set(declared.names) else declared
    fields = []
    for name in names:
        kind = (declared if name in declared.names else inferred).field(name).type
        if name not in declared.names and name in wanted.numeric and not _is_number(kind):
            kind = pa.float64()  # all texts in it are refused
        fields.append(_Field(pa.field(name, kind), name not in declared.names and _is_number(kind)))
    return fields


class _Field(NamedTuple):
    """A column of a CSV file, and whether its type is only a guess from the numbers that it holds."""

    field: pa.Field
    guessed: bool


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _csv_lot(split: csv_blocks.Split, start: int, stop: int, before: int, fields: list[_Field], wanted: Wanted) -> Lot:
    columns: dict[str, pa.Array | list[Any]] = {}
    reasons: dict[int, list[str]] = {}
    for (target, guessed), whole in zip(fields, split.columns):
        if target.name in wanted.names:
            column = whole.slice(start, stop - start)
            fitted = fit_arrow(column, target, parse=True)
            columns[target.name], refused = fitted.column.combine_chunks(), dict(fitted.reasons)
            if guessed and refused and pa.types.is_string(column.type):
                columns[target.name] = _with_unfit_numbers(columns[target.name], column, refused, target.name)
            for at, reason in refused.items():
                reasons.setdefault(at, []).append(reason)
    unfit = {at: Reason(ReasonKind.SCHEMA, "; ".join(row_reasons)) for at, row_reasons in reasons.items()}
    for at, reason in split.unreadable.items():
        if start <= at < stop:
            unfit[at - start] = Reason(ReasonKind.UNREADABLE, reason)
    return Lot(
        columns,
        stop - start,
        lambda at: [line_text(text) for text in split.texts([start + row for row in at])],
        lambda at: f"line {before + split.line(start + at)}: ",
        unfit,
    )


def _with_unfit_numbers(column: pa.Array, texts: pa.ChunkedArray, reasons: dict[int, str], name: str) -> list[Any]:
    """Return the values of a column with the numbers that its type does not hold, and remove their reasons."""
    values = [None if value is None else _finite(value) for value in column.to_pylist()]
    for at in list(reasons):
        text = texts[at].as_py()
        if is_number(text):
            try:
                values[at] = jq_numbers.canonical_number(text)
                del reasons[at]
            except jq_numbers.NotPlain as error:
                reasons[at] = f'column "{name}": {error}'
    return values


def _finite(number: Any) -> Any:
    """Return the canonical form of a number; None for NaN and the infinities, which are not JSON."""
    try:
        return jq_numbers.canonical(number)
    except jq_numbers.NotPlain:
        return None
