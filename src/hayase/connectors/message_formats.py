"""Reads the values of messages as records of a stream: JSON, CSV, text, or Avro with a schema registry."""

from __future__ import annotations

import csv
import io
import json
import struct
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import EndpointError, EnvironmentUnfit
from hayase.streams import exact_lines
from hayase.streams.json_blocks import block_reader
from hayase.streams.json_texts import conform_loaded, conform_read, load_json
from hayase.streams.record_text import line_text
from hayase.streams.records import Conformed, Origin, conform_rows, conform_texts
from hayase.streams.typed_columns import fit_values

__all__ = ["Decoder", "Place", "decoder"]

Place = Callable[[int], str]
"""Where the message at a position stood, such as "topic t, partition 0, offset 7"."""
Extra = Mapping[str, Sequence[Any]]
"""Further columns of the records, such as the keys of their messages: a value for each record."""
Decoder = Callable[[Sequence[bytes], int, Place, Extra], Conformed]
"""Conforms the values of messages; the number is the wall clock. Values that cannot be read are refused."""
_WIRE = struct.Struct(">bI")
LONGEST_SCHEMA = 1 << 20


def decoder(options: Mapping[str, Any], declaration: StreamDeclaration, extra: Collection[str] = ()) -> Decoder:
    """Return the decoder of a format, by the options of a source; `extra` are the columns that do not come from values."""
    form = options["format"]
    if form == "json":
        return _Json(declaration, extra)
    if form == "avro":
        return _Avro(declaration, options["registry"] or "")
    return _Csv(declaration, extra) if form == "csv" else _Text(declaration, options["text_column"])


class _Json:
    def __init__(self, declaration: StreamDeclaration, extra: Collection[str]):
        self._declaration = declaration
        self._read, self._load = block_reader(declaration, extra), exact_lines.loader(declaration.arrow_schema)

    def __call__(self, values: Sequence[bytes], now: int, place: Place, extra: Extra) -> Conformed:
        columns, schema = self._read(values), self._declaration.arrow_schema
        if columns is not None:
            fitted = {name: fit_values(list(column), schema.field(name)) for name, column in extra.items()}
            if not any(each.reasons for each in fitted.values()):
                columns |= {name: each.column for name, each in fitted.items()}
                return conform_read(columns, values, self._declaration, now, place)
        unreadable: dict[int, str] = {}
        try:
            rows = self._load(values)
        except ValueError:  # one of them is not JSON
            rows, unreadable = load_json(values)
        if extra:
            fields = _rows(extra, len(rows))
            rows = [{**row, **more} if isinstance(row, dict) else row for row, more in zip(rows, fields)]
        return conform_loaded(rows, values, self._declaration, now, place, unreadable)


def _rows(extra: Extra, count: int) -> Iterable[dict[str, Any]]:
    """Return further columns as the fields of each record."""
    if not extra:
        return repeat({}, count)
    return (dict(zip(extra, values)) for values in zip(*extra.values()))


class _Text:
    def __init__(self, declaration: StreamDeclaration, column: str):
        self._declaration, self._column = declaration, column

    def __call__(self, values: Sequence[bytes], now: int, place: Place, extra: Extra) -> Conformed:
        rows: list[Any] = []
        unreadable: dict[int, str] = {}
        for at, (value, more) in enumerate(zip(values, _rows(extra, len(values)))):
            try:
                rows.append({self._column: value.decode(), **more})
            except UnicodeDecodeError as error:
                rows.append({})
                unreadable[at] = f"not UTF-8: {error}"
        return conform_loaded(rows, values, self._declaration, now, place, unreadable)


class _Csv:
    """A line for each message, without a header: the columns of the schema in their order, but for those from elsewhere."""

    def __init__(self, declaration: StreamDeclaration, extra: Collection[str]):
        self._declaration = declaration
        self._names = [name for name in declaration.arrow_schema.names if name not in extra]

    def __call__(self, values: Sequence[bytes], now: int, place: Place, extra: Extra) -> Conformed:
        names = self._names
        columns: dict[str, list[str | None]] = {name: [] for name in names}
        unreadable: dict[int, str] = {}
        for at, value in enumerate(values):
            fields = self._fields(value, len(names), unreadable, at)
            for name, field in zip(names, fields):
                columns[name].append(field)
        arrays: dict[str, Any] = {
            name: pa.chunked_array([pa.array(column, pa.string())]) for name, column in columns.items()
        }
        for name, column in extra.items():
            texts = [None if value is None else str(value) for value in column]
            arrays[name] = pa.chunked_array([pa.array(texts, pa.string())])
        origin = Origin(lambda at: [line_text(values[position]) for position in at], place, unreadable)
        return conform_texts(arrays, len(values), self._declaration, now, origin)

    @staticmethod
    def _fields(value: bytes, count: int, unreadable: dict[int, str], at: int) -> Sequence[str | None]:
        nothing: list[str | None] = [None] * count
        try:
            lines = list(csv.reader(io.StringIO(value.decode(), newline=""), strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            unreadable[at] = f"not CSV: {error}"
            return nothing
        if len(lines) != 1 or len(lines[0]) != count:
            found = len(lines[0]) if len(lines) == 1 else f"{len(lines)} lines"
            unreadable[at] = f"not CSV of {count} fields: it has {found}"
            return nothing
        return [field or None for field in lines[0]]


class _Avro:
    """Values in Confluent's form: a zero byte, the number of the schema in the registry, the Avro binary."""

    def __init__(self, declaration: StreamDeclaration, registry: str):
        try:
            import fastavro
        except ImportError as error:
            raise EnvironmentUnfit(
                f"the format avro needs fastavro: {error}", 'install it: pip install "hayase[kafka]"'
            ) from error
        self._read = fastavro.schemaless_reader
        self._parse = fastavro.parse_schema
        self._declaration, self._registry = declaration, registry.rstrip("/")
        self._schemas: dict[int, Any] = {}

    def __call__(self, values: Sequence[bytes], now: int, place: Place, extra: Extra) -> Conformed:
        rows: list[Any] = []
        unreadable: dict[int, str] = {}
        for at, (value, more) in enumerate(zip(values, _rows(extra, len(values)))):
            try:
                row = self._row(value)
                rows.append({**row, **more} if isinstance(row, dict) else row)
            except EndpointError:
                raise
            except Exception as error:  # fastavro raises what it happens to meet
                rows.append({})
                unreadable[at] = f"not Avro of its schema: {type(error).__name__}: {error}"
        origin = Origin(lambda at: [line_text(values[position]) for position in at], place, unreadable)
        return conform_rows(rows, self._declaration, now, origin)

    def _row(self, value: bytes) -> Any:
        if len(value) < _WIRE.size or value[0] != 0:
            raise ValueError("it does not begin with the number of a schema")
        number = _WIRE.unpack_from(value)[1]
        if number not in self._schemas:
            self._schemas[number] = self._parse(self._fetched(number))
        body = io.BytesIO(value[_WIRE.size :])
        row = self._read(body, self._schemas[number], None)
        if body.tell() != len(value) - _WIRE.size:
            raise ValueError("something follows the record")
        return row

    def _fetched(self, number: int) -> Any:
        address = f"{self._registry}/schemas/ids/{number}"
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 (checked in the declaration)
                text: str = json.loads(answer.read(LONGEST_SCHEMA))["schema"]
                return json.loads(text)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise ValueError(f"the registry has no schema {number}") from error
            raise EndpointError(f"the schema registry at {self._registry} answers {error.code}") from error
        except (OSError, ValueError, KeyError) as error:
            raise EndpointError(
                f"the schema registry at {self._registry} cannot be asked: {error}", "check registry"
            ) from error
