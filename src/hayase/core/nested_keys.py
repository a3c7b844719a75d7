"""Structs and lists in keys: the canonical bytes of their values, which `hayase.core.keys` encodes like those of a text.

- struct: the encoding of its fields, as if they were key columns;
- list: a word with the number of elements, a word with the size of each element's encoding in bytes, and these encodings.

Both are whole words. As in a key, a NULL inside equals a NULL; that is how SQL compares values inside of others. A NULL struct or
list itself has no bytes here.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.keys import EncodedKeys, decode, encode

__all__ = ["from_texts", "to_texts"]


def to_texts(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return where the bytes of each row begin (and of the last one end), and the bytes of all rows."""
    if pa.types.is_struct(column.type):
        encoded = encode(column.flatten(), len(column))
        return encoded.offsets, encoded.data
    counts = np.asarray(pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    elements = encode([column.flatten()])
    ends = _sums(counts)
    places = elements.offsets[ends] >> 3
    sizes = np.diff(places)
    starts = _sums(1 + counts + sizes)
    words = np.empty(starts[-1], np.uint64)
    words[starts[:-1]] = counts
    words[_spread(starts[:-1] + 1, counts)] = np.diff(elements.offsets)
    words[_spread(starts[:-1] + 1 + counts, sizes)] = elements.words[: places[-1]]
    return starts << 3, words.view(np.uint8)


def from_texts(kind: pa.DataType, data: np.ndarray, ends: np.ndarray, there: np.ndarray) -> pa.Array:
    """Return a column from the bytes of its rows: the inverse of `to_texts`; NULL where `there` is false."""
    offsets = np.concatenate((ends[:1], ends[1:][there]))  # a NULL has no bytes
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        columns = decode(EncodedKeys(offsets, data), [field.type for field in fields])
        rows = pa.StructArray.from_arrays(columns, fields=fields)
    else:
        words, starts = data.view(np.uint64), offsets[:-1] >> 3
        counts = words[starts].astype(np.int64)
        lengths = words[_spread(starts + 1, counts)].astype(np.int64)
        sizes = (offsets[1:] >> 3) - starts - 1 - counts
        inside = words[_spread(starts + 1 + counts, sizes)]
        (values,) = decode(EncodedKeys(_sums(lengths), inside.view(np.uint8)), [kind.value_type])
        rows = pa.ListArray.from_arrays(pa.array(_sums(counts).astype(np.int32)), values, type=kind)
    if there.all():
        return rows
    return rows.take(pa.array(np.cumsum(there) - 1, mask=~there))


def _sums(counts: np.ndarray) -> np.ndarray:
    """Return where parts of these sizes begin, and the last one ends, when they are one after the other."""
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    return ends


def _spread(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the numbers start, start + 1, ..., as many as counted, for each start.

    >>> _spread(np.array([10, 20]), np.array([2, 3])).tolist()
    [10, 11, 20, 21, 22]
    """
    ends = _sums(counts)
    return np.arange(ends[-1]) + np.repeat(starts - ends[:-1], counts)
