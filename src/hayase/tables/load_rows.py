"""First snapshots of many rows with one update each, built by Arrow: the same bytes as `Columns.fold` returns."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.tables.counters import Counter
from hayase.tables.payloads import varint
from hayase.tables.registers import MaxRegister, MinRegister, Register
from hayase.tables.rows import Columns, RowSnapshot
from hayase.tables.types import ColumnType
from hayase.tables.versions import update_number_bytes

__all__ = ["first_snapshots"]

_BINARY = pa.large_binary()
_NOTHING, _EMPTY = pa.scalar(b"", _BINARY), pa.scalar(b"\0", _BINARY)
_NO_ROW = RowSnapshot(b"", ())


def first_snapshots(
    columns: Columns, keys: pa.Array, versions: pa.Array, deltas: Sequence[pa.Array | None]
) -> list[bytes]:
    """Return the snapshots of rows with one update each. `versions` contain the number of the source; `deltas` has for every column
    the deltas or nulls, or None if no row has the column. The number of the update is 0."""
    events = pc.binary_replace_slice(versions, -1, 2**31, update_number_bytes(0))
    pieces: list[pa.Array] = []
    later = np.zeros(len(keys), bool)
    for kind, column in zip(reversed(columns.types), reversed(deltas), strict=True):
        if column is None:
            column = pa.nulls(len(keys), _BINARY)
        there = column.is_valid().to_numpy(zero_copy_only=False)
        empty = pc.if_else(pa.array(later), _EMPTY, _NOTHING)  # empty columns at the end are left out
        pieces.append(pc.coalesce(_sized(_snapshots(kind, events, column)), empty))
        later |= there
    bodies = pc.binary_join_element_wise(_sized(versions), *reversed(pieces), _NOTHING)
    seeds = map(zlib.crc32, keys.to_pylist())
    sums = _checksums(bodies, seeds)
    head = pa.scalar(columns.fold(b"", _NO_ROW, [(b"", b"\0\0")])[:2], _BINARY)
    return list(pc.binary_join_element_wise(head, sums, bodies, _NOTHING).to_pylist())


def _snapshots(kind: ColumnType[Any], events: pa.Array, deltas: pa.Array) -> pa.Array:
    """Return a column's snapshot for every delta; null for null."""
    if isinstance(kind, (Counter, MinRegister, MaxRegister)):
        bodies = pc.binary_replace_slice(deltas, 0, 2, b"")
    elif isinstance(kind, Register):
        bodies = pc.binary_join_element_wise(
            _sized(events), _sized(pc.binary_replace_slice(deltas, 0, 2, b"")), _NOTHING
        )
    else:
        return pa.array(
            [
                None if delta is None else kind.fold(None, [(event, delta)])
                for event, delta in zip(events.to_pylist(), deltas.to_pylist())
            ],
            _BINARY,
        )
    head = pa.scalar(kind.fold(None, ())[:2], _BINARY)
    return pc.binary_join_element_wise(head, _checksums(bodies, repeat(kind.tag)), bodies, _NOTHING)


def _checksums(bodies: pa.Array, seeds: Any) -> pa.Array:
    filled = bodies if not bodies.null_count else pc.fill_null(bodies, b"")
    sums = np.fromiter(map(zlib.crc32, filled.to_pylist(), seeds), np.uint32, len(bodies)).astype(">u4")
    return pa.Array.from_buffers(pa.binary(4), len(bodies), [None, pa.py_buffer(sums.tobytes())]).cast(_BINARY)


def _sized(column: pa.Array) -> pa.Array:
    """Return byte strings, each preceded by its length."""
    lengths = pc.binary_length(column)
    most = pc.max(lengths).as_py() or 0
    return pc.binary_join_element_wise(_lengths(most.bit_length()).take(lengths), column, _NOTHING)


@lru_cache(maxsize=32)
def _lengths(bits: int) -> pa.Array:
    return pa.array([varint(length) for length in range(1 << bits)], _BINARY)
