"""What the processes say to each other: frames of one letter, a length and that many bytes, over sockets.

Data is Arrow IPC, the rest JSON or plain numbers; nothing that comes from a process with foreign code in it is unpickled,
and rows from there are validated before they are believed.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from hayase.operations.outcomes import Failure, Outcomes, Request

__all__ = [
    "Garbled",
    "Inbox",
    "Stalled",
    "pack_answer",
    "pack_request",
    "readable",
    "receive",
    "send",
    "send_within",
    "unpack_answer",
    "unpack_failure",
    "unpack_request",
]

_HEAD = struct.Struct("<cQ")
_MOST_FDS = 2
_LARGEST = 1 << 36


class Garbled(Exception):
    """Bytes that are no frame, or a frame that says what cannot be."""


class Stalled(Exception):
    """The other side does not read."""


def send(sock: socket.socket, letter: bytes, body: bytes = b"", fds: Sequence[int] = ()) -> None:
    """Send a frame, and with it file descriptors. Waits as long as it takes."""
    head = _HEAD.pack(letter, len(body))
    if fds:
        socket.send_fds(sock, [head], list(fds))
    else:
        sock.sendall(head)
    if body:
        sock.sendall(body)


def receive(sock: socket.socket) -> tuple[bytes, bytes, list[int]] | None:
    """The next frame, with the file descriptors that came with it; None when the other side is gone."""
    head, fds, _, _ = socket.recv_fds(sock, _HEAD.size, _MOST_FDS)
    for each in fds:
        os.set_inheritable(each, False)
    rest = _exactly(sock, _HEAD.size - len(head)) if head else None
    if rest is None:
        return None
    letter, size = _HEAD.unpack(head + rest)
    body = _exactly(sock, size)
    return None if body is None else (letter, body, fds)


def _exactly(sock: socket.socket, size: int) -> bytes | None:
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        count = sock.recv_into(view[done:])
        if not count:
            return None
        done += count
    return bytes(data)


def send_within(sock: socket.socket, letter: bytes, parts: Sequence[Any], seconds: float) -> None:
    """Send a frame without waiting for ever; raises `Stalled` if the other side does not read in time."""
    views = [memoryview(each).cast("B") for each in parts]
    views.insert(0, memoryview(_HEAD.pack(letter, sum(map(len, views)))))
    until = time.monotonic() + seconds
    for view in views:
        while view:
            try:
                view = view[sock.send(view, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                left = until - time.monotonic()
                if left <= 0 or not _polled([sock], select.POLLOUT, left):
                    raise Stalled from None


def readable(sources: Sequence[socket.socket | int], seconds: float | None) -> list[socket.socket | int]:
    """Those from which something can be read, or which have ended, after at most so many seconds."""
    return _polled(sources, select.POLLIN, seconds)


def _polled(sources: Sequence[socket.socket | int], event: int, seconds: float | None) -> list[socket.socket | int]:
    poll = select.poll()
    known = {each if isinstance(each, int) else each.fileno(): each for each in sources}
    for file in known:
        poll.register(file, event)
    return [known[file] for file, _ in poll.poll(None if seconds is None else max(seconds, 0.0) * 1000)]


class Inbox:
    """Frames from a socket, put together as their parts come, without waiting for them."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._data = sock, bytearray()
        self.ended = False

    def frames(self) -> list[tuple[bytes, bytes]]:
        """All frames that are whole now; `ended` if no more will come."""
        while not self.ended:
            try:
                part = self._sock.recv(1 << 20, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                part = b""
            self.ended = not part
            self._data += part
        found, at = [], 0
        while len(self._data) - at >= _HEAD.size:
            letter, size = _HEAD.unpack_from(self._data, at)
            if size > _LARGEST:
                raise Garbled
            end = at + _HEAD.size + size
            if end > len(self._data):
                break
            found.append((letter, bytes(memoryview(self._data)[at + _HEAD.size : end])))
            at = end
        del self._data[:at]
        return found


# ---------------------------------------------------------------------------------------------------- calls and answers


def pack_request(request: Request) -> list[Any]:
    """A request, for one who knows the schema of its rows."""
    head = struct.pack("<Q??6x", len(request.starts), request.alone, request.careful)
    bounds = [each.astype("<i8", copy=False) for each in (request.starts, request.stops)]
    return [head, *bounds, request.rows.serialize()]


def unpack_request(body: bytes, schema: pa.Schema) -> Request:
    """The request as it was."""
    count, alone, careful = struct.unpack_from("<Q??", body)
    bounds = np.frombuffer(body, "<i8", 2 * count, 16)
    rows = pa.ipc.read_record_batch(pa.py_buffer(body).slice(16 + 16 * count), schema)
    return Request(rows, bounds[:count], bounds[count:], alone, careful)


def pack_answer(first: int, outcomes: Outcomes) -> list[Any]:
    """What came of a group of windows, the first of which has that number."""
    failed = orjson.dumps([[at, failure.as_json()] for at, failure in outcomes.failures.items()])
    head = struct.pack("<QQQ", first, len(outcomes.counts), len(failed))
    batches = outcomes.rows.combine_chunks().to_batches() or [
        pa.RecordBatch.from_pylist([], schema=outcomes.rows.schema)
    ]
    numbers = [each.astype("<i8", copy=False) for each in (outcomes.counts, outcomes.nanoseconds)]
    return [head, *numbers, failed, batches[0].serialize()]


def unpack_answer(body: bytes, schema: pa.Schema, windows: int) -> tuple[int, Outcomes]:
    """The answer about a group among so many windows; `Garbled` unless it is a sound one."""
    try:
        first, count, size = struct.unpack_from("<QQQ", body)
        if count == 0 or first + count > windows:
            raise Garbled
        counts, nanoseconds = np.frombuffer(body, "<i8", 2 * count, 24).reshape(2, count)
        at = 24 + 16 * count
        failures = {int(number): Failure.from_json(each) for number, each in orjson.loads(body[at : at + size])}
        rows = pa.ipc.read_record_batch(pa.py_buffer(body).slice(at + size), schema)
        rows.validate(full=True)
    except (ValueError, TypeError, KeyError, struct.error, OSError, pa.ArrowException) as error:
        raise Garbled from error
    if (counts < 0).any() or (nanoseconds < 0).any() or counts.sum() != rows.num_rows:
        raise Garbled
    if any(not 0 <= at - first < count or counts[at - first] for at in failures):
        raise Garbled
    return first, Outcomes(pa.Table.from_batches([rows]), counts, failures, nanoseconds)


def unpack_failure(letter: bytes, body: bytes) -> Failure:
    """The failure that a frame `!` tells of; `Garbled` if it is another, or tells of none."""
    try:
        if letter == b"!":
            return Failure.from_json(orjson.loads(body))
    except (ValueError, TypeError):
        pass
    raise Garbled
