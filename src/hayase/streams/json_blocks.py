"""Reads many JSON texts at once into columns, with Arrow's reader, where that is certain to give what the exact readers give.

Arrow parses several times as fast as values are built one by one, and without holding up other threads. It is given only texts that
cannot mean anything else to it: each a single object on a line of its own, in UTF-8. Whatever it refuses or may have rounded, and
whatever has a type that it reads by rules of its own, is left to `exact_lines`: the answer is then None. On a text that is not an
object (`null`) Arrow 26 crashes the process, so no such text may reach it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.declarations import StreamDeclaration
from hayase.core.schemas import is_json
from hayase.streams.typed_columns import may_differ

__all__ = ["ReadBlock", "block_reader"]

ReadBlock: TypeAlias = Callable[[Sequence[bytes]], "dict[str, pa.ChunkedArray] | None"]
"""Returns the columns of texts; None if each text must be read by itself."""


def block_reader(declaration: StreamDeclaration, given: Collection[str] = ()) -> ReadBlock:
    """Return the reader of the records of a stream. Times and dates are columns of texts, other columns have their types; `given`
    are columns that come from elsewhere.

    >>> numbers = StreamDeclaration("numbers", "t bigint, x double", "t", time_unit="s")
    >>> read = block_reader(numbers)
    >>> read([b'{"t": 1, "x": 0.5}', b'{"t": 2}'])["x"].to_pylist()
    [0.5, None]
    >>> read([b'{"t": 1, "x": 9007199254740993}'])  # which a double does not hold
    """
    fields = [field for field in declaration.arrow_schema if field.name not in given]
    kinds = [_read_as(field) for field in fields]
    if None in kinds or not fields or declaration.extra_fields == "keep":
        return lambda texts: None
    import pyarrow.json as pj

    ignoring = declaration.extra_fields == "ignore"
    schema = pa.schema([(field.name, kind) for field, kind in zip(fields, kinds)])
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore" if ignoring else "error")
    floats = [field for field in fields if pa.types.is_floating(field.type)]

    def read(texts: Sequence[bytes]) -> dict[str, pa.ChunkedArray] | None:
        block = b"\n".join(texts)
        if not _is_plain(block, len(texts)) or (ignoring and not _is_flat(block, len(texts))):
            return None
        size = len(block) + 1
        try:
            table = pj.read_json(pa.BufferReader(block), pj.ReadOptions(use_threads=False, block_size=size), options)
        except pa.ArrowException:
            return None
        if table.num_rows != len(texts) or any(_may_be_rounded(table.column(f.name), f.type, block) for f in floats):
            return None
        return {name: table.column(name) for name in schema.names}

    return read


def _read_as(field: pa.Field) -> pa.DataType | None:
    """Return the type that a field is read with; None if its values must be read one by one."""
    kind = field.type
    if is_json(field):
        return None
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind):
        return kind
    if pa.types.is_floating(kind):
        return pa.float64()
    return pa.string() if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else None


def _is_plain(block: bytes, count: int) -> bool:
    """Return whether a block is `count` lines of UTF-8, each of them from `{` to `}`.

    No line can then be part of the object before or behind it: `{` never follows `}` inside an object. A line may still have
    several objects, or be none at all; the number of rows and Arrow's errors tell.
    """
    if not (block.startswith(b"{") and block.endswith(b"}")) or b"\0" in block:
        return False
    signs = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(signs == ord("\n"))  # none of them is the first or the last sign
    if len(ends) != count - 1 or np.any(signs[ends - 1] != ord("}")) or np.any(signs[ends + 1] != ord("{")):
        return False
    if block.isascii():
        return True
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_flat(block: bytes, count: int) -> bool:
    """Return whether no value is an object or an array: Arrow passes over those of unknown fields however deep they are."""
    return block.count(b"{") == count and b"[" not in block


def _may_be_rounded(column: pa.ChunkedArray, kind: pa.DataType, block: bytes) -> bool:
    """Return whether a double may be another number than its text, or none: a zero may be a number too small for a double."""
    doubtful = column.filter(pc.or_kleene(may_differ(column, kind), pc.is_nan(column)))
    if not len(doubtful):
        return False
    values = doubtful.to_numpy()
    if np.any(values != 0) or np.any(np.signbit(values)):  # -0 is an integer in JSON, and has no sign
        return True
    return b"e-" in block or b"E-" in block or b"0" * 100 in block
