"""Entries: the encoding of an event's updates of one row in a table's store, ordered by key, then by version.

An entry contains all updates that one event of one source causes on one key:

    entry = bytes of the key + version (event time, event id, number of the source)
    value = length of the key's bytes (two bytes, big-endian), then for every update:
            place of the column (one byte), number of the update (as in versions), length of the delta (base 128), delta

The bytes of a key are its encoded parts in a row (`payloads.value_bytes`). The encoding of a part shows where it ends, so no key
is a prefix of another key, and the first parts of a key are a prefix of it. The number of the source is its position among the
streams that feed the table, always one byte. A column type sees the version (time, id, number of the update).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from hayase.tables.payloads import (
    DamagedPayload,
    Json,
    UnfitParameter,
    kind_of,
    many_text_bytes,
    many_whole_bytes,
    plain_text,
    text_column,
    value_bytes,
    values_from,
    varint,
)
from hayase.tables.versions import update_number_bytes

__all__ = [
    "ENTRIES",
    "LONGEST_KEY",
    "MOST_SOURCES",
    "Key",
    "UpdateColumn",
    "key_bytes",
    "key_from",
    "many_key_bytes",
    "pack",
    "pack_columns",
    "prefix_end",
    "split",
    "text_keys",
    "updates_of",
]

Key: TypeAlias = tuple[Json, ...]
"""The parts of a key: texts, numbers, booleans."""

ENTRIES = pa.schema([("entry", pa.large_binary()), ("value", pa.large_binary())])
"""The schema of what a table's map side returns."""
LONGEST_KEY = 1024
"""The greatest size of an encoded key, in bytes."""
MOST_SOURCES = 200
"""How many streams may feed one table; the numbers from here to 239 are for other sources, such as bulk loads."""

_BYTES = [bytes((byte,)) for byte in range(256)]
_LENGTHS = [length.to_bytes(2, "big") for length in range(LONGEST_KEY + 1)]


class UpdateColumn(NamedTuple):
    """One update of one column for many entries: the place of the column, the number of the update, and for each entry a delta, or
    None if the update does not apply."""

    place: int
    number: int
    deltas: Sequence[bytes | None] | pa.Array


# ---------------------------------------------------------------------------------------------------- keys


def key_bytes(parts: Sequence[Json]) -> bytes:
    """Encode a key.

    >>> key_bytes(("jp", 7)) == key_bytes(("jp", 7.0)) and key_bytes(("jp", 7)).startswith(key_bytes(("jp",)))
    True
    """
    for part in parts:
        if isinstance(part, (list, dict)):
            hint = "a part of a key must be a text, a number or a boolean"
            raise UnfitParameter(f"the key has {kind_of(part)} in it", hint)
    data = b"".join([value_bytes(part) for part in parts])
    if len(data) > LONGEST_KEY:
        raise UnfitParameter(f"the key takes {len(data):,} bytes", f"at most {LONGEST_KEY:,} fit")
    return data


def many_key_bytes(keys: Sequence[Key]) -> list[bytes | UnfitParameter]:
    """Encode many keys; in place of a key that does not fit, return the error. Equal keys of texts or
    of integers are encoded once."""
    kinds = {type(part) for key in keys for part in key}
    if kinds not in ({str}, {int}):
        return [_key_or_reason(key) for key in keys]
    unique = list(dict.fromkeys(keys))
    encode: Callable[[list[Json]], list[bytes] | None] = many_text_bytes if kinds == {str} else many_whole_bytes
    encoded = encode([key[0] for key in unique]) if len(unique[0]) == 1 else None
    if encoded is not None and max(map(len, encoded)) <= LONGEST_KEY:
        encoded_keys: dict[Key, bytes | UnfitParameter] = dict(zip(unique, encoded))
    else:
        encoded_keys = {key: _key_or_reason(key) for key in unique}
    return [encoded_keys[key] for key in keys]


def text_keys(texts: Sequence[Json]) -> pa.Array | None:
    """Encode keys of one part as a column, if all are plain texts that fit; else None.

    >>> text_keys(["taro", "hana"]).to_pylist() == [key_bytes(("taro",)), key_bytes(("hana",))]
    True
    """
    encoded = text_column(texts)
    return None if encoded is None or (pc.max(pc.binary_length(encoded)).as_py() or 0) > LONGEST_KEY else encoded


def _key_or_reason(key: Key) -> bytes | UnfitParameter:
    try:
        return key_bytes(key)
    except UnfitParameter as error:
        return error


def key_from(data: bytes) -> Key:
    """Decode a key into its parts."""
    return (text,) if (text := plain_text(data)) is not None else tuple(values_from(data))


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the least bytes greater than all that begin with a prefix; None if there are none.

    >>> prefix_end(b"ab"), prefix_end(b"a\\xff"), prefix_end(b"\\xff")
    (b'ac', b'b', None)
    """
    if prefix and prefix[-1] < 255:
        return prefix[:-1] + _BYTES[prefix[-1] + 1]
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else None


# ---------------------------------------------------------------------------------------------------- packing


def pack(
    keys: Sequence[bytes], versions: Sequence[bytes], updates: Sequence[Iterable[tuple[int, bytes, bytes]]]
) -> pa.RecordBatch:
    """Build entries from keys, versions (with the number of the source) and updates (column place, encoded number, delta)."""
    lengths = _LENGTHS
    values = [
        lengths[len(key)]
        + b"".join([b"%c%b%b%b" % (place, op, varint(len(delta)), delta) for place, op, delta in row_updates])
        for key, row_updates in zip(keys, updates, strict=True)
    ]
    entries = [key + version for key, version in zip(keys, versions, strict=True)]
    return pa.record_batch([pa.array(entries, pa.large_binary()), pa.array(values, pa.large_binary())], schema=ENTRIES)


def pack_columns(
    keys: Sequence[bytes] | pa.Array, versions: Sequence[bytes] | pa.Array, columns: Sequence[UpdateColumn]
) -> pa.RecordBatch:
    """Build entries from one column of deltas per update, without a Python step per row.

    >>> one = pack([b"k"], [b"v"], [[(0, b"\\0", b"abc"), (2, b"\\7", b"d")]])
    >>> one.equals(pack_columns([b"k"], [b"v"], [UpdateColumn(0, 0, [b"abc"]), UpdateColumn(2, 7, [b"d"])]))
    True
    """
    key_column, version_column = _binary(keys), _binary(versions)
    nothing = pa.scalar(b"", pa.large_binary())
    parts = [pa.array(_LENGTHS, pa.large_binary()).take(pc.binary_length(key_column))]
    for place, number, deltas in columns:
        column = _binary(deltas)
        head = pa.scalar(bytes((place,)) + update_number_bytes(number), pa.large_binary())
        parts.append(pc.binary_join_element_wise(head, _varints(pc.binary_length(column)), column, nothing))
    values = pc.binary_join_element_wise(*parts, nothing, null_handling="replace", null_replacement="")
    entries = pc.binary_join_element_wise(key_column, version_column, nothing)
    return pa.record_batch([entries, values], schema=ENTRIES)


def _binary(values: Sequence[bytes | None] | pa.Array) -> pa.Array:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values if values.type == pa.large_binary() else values.cast(pa.large_binary())
    return pa.array(values, pa.large_binary())


def _varints(lengths: pa.Array) -> pa.Array:
    """Encode numbers in base 128; null stays null."""
    most = pc.max(lengths).as_py() or 0
    if most < 2**14:
        return pa.array([varint(length) for length in range(most + 1)], pa.large_binary()).take(lengths)
    encoded = lengths.dictionary_encode()
    words = pa.array([varint(length) for length in encoded.dictionary.to_pylist()], pa.large_binary())
    return words.take(encoded.indices)


# ---------------------------------------------------------------------------------------------------- unpacking


def split(entry: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Split an entry into the bytes of its key and its version."""
    length = int.from_bytes(value[:2], "big")
    if len(value) < 2 or len(entry) < length + 10:
        raise DamagedPayload(f"{entry[:64].hex()} is not an entry of a table")
    return entry[:length], entry[length:]


def updates_of(value: bytes) -> list[tuple[int, bytes, bytes]]:
    """Decode the updates in the value of an entry: column place, encoded number of the update, delta.

    >>> updates_of(pack([b"k"], [b"v"], [[(3, b"\\0", b"abc")]])["value"][0].as_py())
    [(3, b'\\x00', b'abc')]
    """
    updates: list[tuple[int, bytes, bytes]] = []
    at, end = 2, len(value)
    try:
        while at < end:
            start = at + 1
            at = start + (1 if value[start] < 240 else 5)
            number = value[start:at]
            length = value[at]
            at += 1
            if length >= 128:
                length, shift = length & 127, 7
                while value[at] >= 128:
                    length |= (value[at] & 127) << shift
                    at, shift = at + 1, shift + 7
                length |= value[at] << shift
                at += 1
            updates.append((value[start - 1], number, value[at : at + length]))
            at += length
    except IndexError:
        at = -1
    if at != end:
        raise DamagedPayload("an entry of a table is cut off")
    return updates
