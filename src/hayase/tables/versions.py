"""Versions: the total order of a column's updates, encoded as bytes in that order.

A version is (event time in microseconds, event id, number of the update). An event that is repeated has the same version, so its
payload overwrites itself. The id breaks ties of the time, the number of the update breaks ties of both. So any two updates of a
column are ordered, and the order does not depend on arrival.

The encoding, for a sorted key-value store: the time in eight bytes, big-endian, its sign bit inverted; the id; the number of the
update, one byte below 240, else 240 and four bytes. Ids are ordered by their bytes: integers by value (1 and eight bytes like
the time), then UUIDs in their usual text form (2 and sixteen bytes instead of 36), then all other texts by code point (3, the
text in UTF-8, a zero byte).
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.tables.payloads import DamagedPayload, UnfitParameter, text_bytes, text_from

__all__ = [
    "TIME_BYTES",
    "Version",
    "event_of",
    "from_bytes",
    "id_bytes",
    "many_to_bytes",
    "since",
    "to_bytes",
    "update_number_bytes",
]

TIME_BYTES = 8
"""How many bytes at the start of a version are its time."""
_LONGEST_ID = 1024
_FEW = 240
_MOST_UPDATES = 2**32
_MIDDLE = 2**63
_WHOLE, _UUID, _TEXT = b"\x01", b"\x02", b"\x03"
_is_uuid = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").fullmatch

_DASH_PLACES = [8, 13, 18, 23]
_DIGIT_PLACES = [place for place in range(36) if place not in _DASH_PLACES]
_DIGITS = np.full(256, 255, np.uint8)
_DIGITS[list(b"0123456789abcdef")] = range(16)


class Version(NamedTuple):
    """The event's time in microseconds, its id, and the number of the update among those of the event on the column."""

    time: int
    id: str | int
    update: int = 0


def to_bytes(time: int, id: str | int, update: int = 0) -> bytes:
    """Encode a version.

    >>> to_bytes(5, "b") > to_bytes(5, "a", 7) > to_bytes(5, "a") > to_bytes(-9, "z")
    True
    """
    return since(time) + id_bytes(id) + update_number_bytes(update)


def many_to_bytes(times: np.ndarray, ids: pa.Array, update: int = 0) -> list[bytes]:
    """Encode many versions, from int64 times and a column of texts or integers without nulls.

    >>> many_to_bytes(np.array([5, -9]), pa.array(["a", "z"])) == [to_bytes(5, "a"), to_bytes(-9, "z")]
    True
    """
    if ids.null_count:
        raise UnfitParameter("an event id is null", "every event needs an id of its own")
    body = _fixed_ids(ids)
    if body is None:
        return [to_bytes(time, id, update) for time, id in zip(times.tolist(), ids.to_pylist())]
    head = _turned(times)
    tail = np.frombuffer(update_number_bytes(update), np.uint8)
    rows = np.hstack((head, body, np.broadcast_to(tail, (len(head), len(tail)))))
    data, width = rows.tobytes(), rows.shape[1]
    return [data[at : at + width] for at in range(0, len(data), width)]


def since(time: int) -> bytes:
    """Return the least bytes of a version at this time or later; `since(t + 1)` is greater than all versions up to t."""
    if not -_MIDDLE <= time < _MIDDLE:
        raise UnfitParameter(f"the event time {time} does not fit 64 bits")
    return (time + _MIDDLE).to_bytes(8, "big")


def from_bytes(data: bytes) -> Version:
    """Decode a version; DamagedPayload if the bytes are none.

    >>> from_bytes(to_bytes(-3, "0b8f7a6e-91c2-4d5e-8f10-2a3b4c5d6e7f", 300))
    Version(time=-3, id='0b8f7a6e-91c2-4d5e-8f10-2a3b4c5d6e7f', update=300)
    """
    try:
        time, kind = int.from_bytes(data[:8], "big") - _MIDDLE, data[8:9]
        id: str | int
        if kind == _WHOLE:
            id, end = int.from_bytes(data[9:17], "big") - _MIDDLE, 17
        elif kind == _UUID:
            hexed = data[9:25].hex()
            id, end = f"{hexed[:8]}-{hexed[8:12]}-{hexed[12:16]}-{hexed[16:20]}-{hexed[20:]}", 25
        else:
            id, end = text_from(data, 9)
        few = data[end] < _FEW
        update = data[end] if few else int.from_bytes(data[end + 1 :], "big")
        if to_bytes(time, id, update) == data:
            return Version(time, id, update)
    except (IndexError, ValueError, UnfitParameter):
        pass
    raise DamagedPayload(f"{data[:64].hex()} is not a version")


def event_of(data: bytes) -> bytes:
    """Return the bytes of a version without the number of the update: time and id of the event.

    >>> event_of(to_bytes(5, "b", 300)) == event_of(to_bytes(5, "b")) != event_of(to_bytes(5, "c"))
    True
    """
    kind = data[TIME_BYTES : TIME_BYTES + 1]
    ends = {_WHOLE: TIME_BYTES + 9, _UUID: TIME_BYTES + 17}
    return data[: ends[kind] if kind in ends else data.index(b"\0", TIME_BYTES + 1) + 1]


def update_number_bytes(update: int) -> bytes:
    """Encode the number of an update, the last part of a version."""
    if not 0 <= update < _MOST_UPDATES:
        raise UnfitParameter(f"there is no update number {update}")
    return bytes((update,)) if update < _FEW else b"\xf0" + update.to_bytes(4, "big")


def _turned(numbers: np.ndarray) -> np.ndarray:
    """Encode int64 numbers as eight bytes each, in the order of the numbers."""
    return (numbers.astype(np.int64).view(np.uint64) ^ np.uint64(_MIDDLE)).astype(">u8").view(np.uint8).reshape(-1, 8)


def _fixed_ids(ids: pa.Array) -> np.ndarray | None:
    """Return the bytes of ids, one row each, if all are integers or all are UUIDs; else None."""
    if pa.types.is_integer(ids.type) and ids.type != pa.uint64():
        numbers = _turned(ids.cast(pa.int64()).to_numpy(zero_copy_only=False))
        return np.hstack((np.full((len(ids), 1), _WHOLE[0], np.uint8), numbers))
    if not pa.types.is_string(ids.type) or not pc.all(pc.equal(pc.binary_length(ids), 36)).as_py():
        return None
    fixed = ids.cast(pa.binary()).cast(pa.binary(36))
    letters = np.frombuffer(fixed.buffers()[1], np.uint8)[fixed.offset * 36 :][: len(ids) * 36].reshape(-1, 36)
    digits = _DIGITS[letters[:, _DIGIT_PLACES]]
    if (letters[:, _DASH_PLACES] != ord("-")).any() or (digits > 15).any():
        return None
    return np.hstack((np.full((len(ids), 1), _UUID[0], np.uint8), digits[:, ::2] << 4 | digits[:, 1::2]))


def id_bytes(id: object) -> bytes:
    """Encode an event's id as part of a version."""
    if isinstance(id, str):
        if len(id) == 36 and _is_uuid(id):
            return _UUID + bytes.fromhex(id.replace("-", ""))
        if len(id) > _LONGEST_ID:
            raise UnfitParameter(f"an event id of {len(id):,} characters is too long", f"at most {_LONGEST_ID:,} fit")
        if not id:
            raise UnfitParameter("an event id is an empty text", "every event needs an id of its own")
        return _TEXT + text_bytes(id)
    if isinstance(id, bool) or not isinstance(id, int):
        raise UnfitParameter(f"an event id is a {type(id).__name__}", "it must be a text or a whole number")
    if not -_MIDDLE <= id < _MIDDLE:
        raise UnfitParameter(f"the event id {id} does not fit 64 bits", "write it as a text")
    return _WHOLE + (id + _MIDDLE).to_bytes(8, "big")
