"""Infers what a file holds from its content: its format, its columns and their types, as a schema for a stream.

The whole file is read, or the first 64 MB of a larger one; later records that do not fit are refused when they are
appended. Text that is a date and a time of day becomes a timestamp, in UTC if it has no zone. A column of numbers gets
a type that keeps every digit of those seen: bigint, double, or decimal. A number that no column holds (1e400) does not
count, and its record is refused too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from types import NoneType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.errors import HayaseError
from hayase.core.numbers import NUMBER, BeyondNumber, exact_loads, is_number
from hayase.streams.file_formats import COMPRESSIONS, FORMATS, Format, format_of
from hayase.streams.number_types import exact_type, kept_by_doubles, type_of_texts
from hayase.streams.record_text import shown

__all__ = ["format_in", "schema_of"]

LOOKED_AT = 64 << 20
"""Maximal number of bytes of a text file that are read."""

_MOMENT = r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d(:?\d\d)?)?$"
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_SUFFIXES = {*FORMATS, *COMPRESSIONS}
_MAY_ROUND = re.compile(rb"[0-9.]{16}|[eE][+-]?[0-9]{3}")
"""Matches numbers that a double may not keep: they have that many digits or such an exponent."""
_NUMBERS = re.compile(
    rb'(?<![\w".+-])-?[0-9][0-9.]{15,}(?:[eE][+-]?[0-9]+)?|(?<![\w".+-])-?[0-9][0-9.]*[eE][+-]?[0-9]{3,}'
)
"""Matches numbers of NDJSON that may be rounded, and perhaps some digits inside texts."""


def format_in(path: Path) -> Format:
    """Return the format of a file: by its suffix if that is known, else by its first bytes."""
    suffix = path.suffix.removeprefix(".").lower()
    if suffix in _SUFFIXES:
        form = format_of(path.name)
        if form.name == "ndjson" and _head(path, form, 4096).lstrip()[:1] == b"[":
            raise HayaseError(
                f'"{path}" is one JSON array; write one object to a line, for example with `jq -c ".[]"`, and try again'
            )
        return form
    start = _head(path, Format(""), 4096)
    if start.startswith(b"PAR1"):
        return Format("parquet")
    if start.lstrip().startswith(b"{"):
        return Format("ndjson")
    line = start.partition(b"\n")[0]
    if b"," in line and _is_text(start):
        return Format("csv")
    raise HayaseError(
        f'what "{path}" holds is not clear from its name nor from its first line; name it .csv, .ndjson or .parquet'
    )


def schema_of(paths: Sequence[Path]) -> pa.Schema:
    """Return the schema of the records in files of any format, columns in the order of their first appearance."""
    schemas = [_schema(path, format_in(path)) for path in paths]
    try:
        unified = pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        names = ", ".join(map(str, paths))
        raise HayaseError(f"{names} do not have the same columns: {error}; say what they are with --schema") from error
    for path, schema in zip(paths, schemas):
        for column in schema:
            if pa.types.is_floating(unified.field(column.name).type) and not _as_doubles(column, path):
                raise HayaseError(
                    f'column "{column.name}" is {column.type} in "{path}" and double in another file, which would round it; '
                    "say what it is with --schema"
                )
    return unified


def _as_doubles(column: pa.Field, path: Path) -> bool:
    """Return whether doubles keep all values that a file has in this column."""
    if not pa.types.is_integer(column.type) or column.type.bit_width < 64:
        return not pa.types.is_decimal(column.type)
    form = format_in(path)
    if form.name == "parquet":
        import pyarrow.parquet as pq

        values = pq.read_table(path, columns=[column.name]).column(0)
    else:
        head = _readable(_head(path, form, LOOKED_AT), form, path)
        table = _csv(head) if form.name == "csv" else _ndjson(head, path)
        values = table.rename_columns([name.strip() for name in table.column_names]).column(column.name)
    bounds = pc.min_max(values)
    return bounds["max"].as_py() is None or (bounds["min"].as_py() >= -(2**53) and bounds["max"].as_py() <= 2**53)


def _schema(path: Path, form: Format) -> pa.Schema:
    try:
        if form.name == "parquet":
            import pyarrow.parquet as pq

            inferred = pq.read_schema(path)
        else:
            head = _head(path, form, LOOKED_AT)
            if len(head) == LOOKED_AT:
                head = head[: head.rfind(b"\n") + 1]
            head = _readable(head, form, path)
            table = _csv(head) if form.name == "csv" else _ndjson(head, path)
            inferred = pa.schema(
                [(name.strip(), _column_type(column)) for name, column in zip(table.column_names, table.columns)]
            )
    except (OSError, pa.ArrowException) as error:
        raise HayaseError(f'"{path}" cannot be read as {form.name}: {error}') from error
    if not len(inferred):
        raise HayaseError(f'"{path}" is empty; it should begin with its first record, or in CSV with the columns')
    return pa.schema([pa.field(field.name, _declared(field.type, field.name, path)) for field in inferred])


def _head(path: Path, form: Format, size: int) -> bytes:
    """Return the first bytes of a file, decompressed."""
    try:
        with path.open("rb") as raw:
            if form.compression is None:
                return raw.read(size)
            return bytes(pa.CompressedInputStream(pa.PythonFile(raw, "r"), form.compression).read(size))
    except (OSError, pa.ArrowException) as error:
        raise HayaseError(f'"{path}" cannot be read: {error}') from error


def _readable(head: bytes, form: Format, path: Path) -> bytes:
    """Return the bytes without lines that are not UTF-8: such lines are refused when they are appended, so they do not
    affect the types."""
    try:
        head.decode()
    except UnicodeDecodeError:
        lines = head.split(b"\n")
        if form.name == "csv" and not _decodes(lines[0]):
            raise HayaseError(f'the names of columns in "{path}" are not UTF-8 text; write the file in UTF-8') from None
        return b"\n".join([line for line in lines if _decodes(line)])
    return head


def _decodes(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_text(start: bytes) -> bool:
    return start[:4000].decode("utf-8", "ignore").replace("\n", "").replace("\r", "").replace("\t", "").isprintable()


def _csv(head: bytes) -> pa.Table:
    import pyarrow.csv as pv

    if not head.strip():
        return pa.table({})

    def read(names: list[str] | None) -> pa.Table:
        """Read all columns, or some of them as texts."""
        return pv.read_csv(
            pa.BufferReader(head),
            parse_options=pv.ParseOptions(newlines_in_values=b'"' in head, invalid_row_handler=lambda row: "skip"),
            convert_options=pv.ConvertOptions(
                null_values=[""], strings_can_be_null=True, include_columns=names,
                column_types=None if names is None else dict.fromkeys(names, pa.string()),
            ),
        )  # fmt: skip

    table = read(None)
    rounded = [field.name for field, column in zip(table.schema, table.columns) if _may_be_numbers(column)]
    if not rounded or not _MAY_ROUND.search(head) or len(set(table.column_names)) < len(table.column_names):
        return table
    for name, texts in zip(rounded, read(rounded).columns):
        if not kept_by_doubles(texts):
            kind = type_of_texts(texts)
            column = texts if kind is None else pa.chunked_array([pa.nulls(len(texts), kind)])
            table = table.set_column(table.column_names.index(name), name, column)
    return table


def _may_be_numbers(column: pa.ChunkedArray) -> bool:
    """Return whether Arrow has read a column as doubles, or all its texts are numbers, of which Arrow cannot read some."""
    if not pa.types.is_string(column.type):
        return bool(pa.types.is_floating(column.type))
    texts = column.drop_null()
    return bool(
        len(texts)
        and is_number(texts[0].as_py())
        and pc.all(pc.match_substring_regex(texts, f"^(?:{NUMBER.pattern})$")).as_py()
    )


def _ndjson(head: bytes, path: Path) -> pa.Table:
    import pyarrow.json as pj

    if not head.strip():
        return pa.table({})
    if kept_by_doubles(pa.array(_NUMBERS.findall(head)).cast(pa.string())):
        try:
            return pj.read_json(pa.BufferReader(head), read_options=pj.ReadOptions(block_size=len(head) + 1))
        except pa.ArrowInvalid:
            pass  # a line that is not JSON, or values of several types: read line by line below
    records = [record for line in head.split(b"\n") if isinstance(record := _loaded(line), dict)]
    names = list(dict.fromkeys(name for record in records for name in record))
    columns = {name: _column([record.get(name) for record in records], name, path) for name in names}
    return pa.table(columns)


def _loaded(line: bytes) -> Any:
    try:
        return exact_loads(line)
    except ValueError:
        return None


def _column(values: list[Any], name: str, path: Path) -> pa.Array:
    if {int, float, Decimal, BeyondNumber, NoneType}.issuperset(map(type, values)):
        kind = exact_type(value for value in values if value is not None)
        if kind is None:
            raise HayaseError(
                f'no type of a column holds all numbers of column "{name}" of "{path}" with all their digits; say which '
                "one it is with --schema, and the others are refused"
            )
        return pa.nulls(len(values), kind if any(value is not None for value in values) else pa.null())
    try:
        return pa.array(values)
    except pa.ArrowException as error:
        first = next(value for value in values if value is not None)
        other = next((value for value in values if value is not None and type(value) is not type(first)), first)
        raise HayaseError(
            f'column "{name}" of "{path}" has values of several types, {shown(first)} and {shown(other)}; say which '
            f"one it is with --schema, and the others are refused"
        ) from error


def _column_type(column: pa.ChunkedArray) -> pa.DataType:
    """Return the type of a column; text is a timestamp if all values are."""
    if not pa.types.is_string(column.type) or column.null_count == len(column):
        return column.type
    moments = pc.all(pc.match_substring_regex(column, _MOMENT), skip_nulls=True).as_py()
    return _TIMESTAMP if moments else column.type


def _declared(kind: pa.DataType, name: str, path: Path) -> pa.DataType:
    """Return the type of a stream's column that holds all values of an Arrow type."""

    def inner(inner_kind: pa.DataType) -> pa.DataType:
        return _declared(inner_kind, name, path)

    if pa.types.is_dictionary(kind):
        return inner(kind.value_type)
    if pa.types.is_timestamp(kind):
        return _TIMESTAMP
    if pa.types.is_date(kind):
        return pa.date32()
    if pa.types.is_null(kind) or re.fullmatch(r"(large_)?string(_view)?|time\d+\[s\]", str(kind)):
        return pa.string()
    if re.fullmatch(r"(large_)?binary(_view)?|fixed_size_binary\[\d+\]", str(kind)):
        return pa.binary()
    if pa.types.is_uint64(kind):
        return pa.decimal128(20, 0)
    if pa.types.is_unsigned_integer(kind):
        return pa.int64()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_map(kind):
        return pa.map_(inner(kind.key_type), inner(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(inner(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, inner(field.type)) for field in kind])
    if (
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal128(kind)
    ):
        return kind
    raise HayaseError(f'column "{name}" of "{path}" is a {kind}, which no stream can hold; leave it out of the file')
