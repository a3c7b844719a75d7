"""The protocol between the processes of operations: frames of one letter, a length and that many bytes, over sockets.

Data is Arrow IPC, the rest JSON or plain numbers. Nothing that comes from a process with user code is unpickled, and
rows from there are validated before use.
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
    """Bytes that are not a frame, or a frame with impossible content."""


class Stalled(Exception):
    """The other side does not read."""


def send(sock: socket.socket, letter: bytes, body: bytes = b"", fds: Sequence[int] = ()) -> None:
    """Send a frame, optionally with file descriptors; blocks until it is sent."""
    head = _HEAD.pack(letter, len(body))
    if fds:
        socket.send_fds(sock, [head], list(fds))
    else:
        sock.sendall(head)
    if body:
        sock.sendall(body)


def receive(sock: socket.socket) -> tuple[bytes, bytes, list[int]] | None:
    """Return the next frame and the file descriptors sent with it; None if the other side has closed the socket."""
    head, fds, _, _ = socket.recv_fds(sock, _HEAD.size, _MOST_FDS)
    for descriptor in fds:
        os.set_inheritable(descriptor, False)
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
    """Send a frame; raises `Stalled` if the other side does not read it within `seconds`."""
    views = [memoryview(part).cast("B") for part in parts]
    views.insert(0, memoryview(_HEAD.pack(letter, sum(map(len, views)))))
    until = time.monotonic() + seconds
    for view in views:
        while view:
            try:
                view = view[sock.send(view, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                remaining = until - time.monotonic()
                if remaining <= 0 or not _polled([sock], select.POLLOUT, remaining):
                    raise Stalled from None


def readable(sources: Sequence[socket.socket | int], seconds: float | None) -> list[socket.socket | int]:
    """Return the sources that are readable or closed, after at most `seconds`."""
    return _polled(sources, select.POLLIN, seconds)


def _polled(sources: Sequence[socket.socket | int], event: int, seconds: float | None) -> list[socket.socket | int]:
    poll = select.poll()
    known = {source if isinstance(source, int) else source.fileno(): source for source in sources}
    for file in known:
        poll.register(file, event)
    return [known[file] for file, _ in poll.poll(None if seconds is None else max(seconds, 0.0) * 1000)]


class Inbox:
    """Frames from a socket, assembled as their parts arrive, without blocking."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._data = sock, bytearray()
        self.ended = False

    def frames(self) -> list[tuple[bytes, bytes]]:
        """Return all frames that are complete; `ended` is then true if no more will come."""
        while not self.ended:
            try:
                part = self._sock.recv(1 << 20, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                part = b""
            self.ended = not part
            self._data += part
        frames, at = [], 0
        while len(self._data) - at >= _HEAD.size:
            letter, size = _HEAD.unpack_from(self._data, at)
            if size > _LARGEST:
                raise Garbled
            end = at + _HEAD.size + size
            if end > len(self._data):
                break
            frames.append((letter, bytes(memoryview(self._data)[at + _HEAD.size : end])))
            at = end
        del self._data[:at]
        return frames


# ---------------------------------------------------------------------------------------------------- calls and answers


def pack_request(request: Request) -> list[Any]:
    """Encode a request; the receiver must know the schema of its rows."""
    head = struct.pack("<Q??6x", len(request.starts), request.alone, request.careful)
    bounds = [array.astype("<i8", copy=False) for array in (request.starts, request.stops)]
    return [head, *bounds, request.rows.serialize()]


def unpack_request(body: bytes, schema: pa.Schema) -> Request:
    """Decode a request."""
    count, alone, careful = struct.unpack_from("<Q??", body)
    bounds = np.frombuffer(body, "<i8", 2 * count, 16)
    rows = pa.ipc.read_record_batch(pa.py_buffer(body).slice(16 + 16 * count), schema)
    return Request(rows, bounds[:count], bounds[count:], alone, careful)


def pack_answer(first: int, outcomes: Outcomes) -> list[Any]:
    """Encode the outcomes of a group of windows; `first` is the number of its first window."""
    failed = orjson.dumps([[at, failure.as_json()] for at, failure in outcomes.failures.items()])
    head = struct.pack("<QQQ", first, len(outcomes.counts), len(failed))
    batches = outcomes.rows.combine_chunks().to_batches() or [
        pa.RecordBatch.from_pylist([], schema=outcomes.rows.schema)
    ]
    numbers = [array.astype("<i8", copy=False) for array in (outcomes.counts, outcomes.nanoseconds)]
    return [head, *numbers, failed, batches[0].serialize()]


def unpack_answer(body: bytes, schema: pa.Schema, windows: int) -> tuple[int, Outcomes]:
    """Decode and validate the answer for a group among `windows` windows; raises `Garbled` if it is invalid."""
    try:
        first, count, size = struct.unpack_from("<QQQ", body)
        if count == 0 or first + count > windows:
            raise Garbled
        counts, nanoseconds = np.frombuffer(body, "<i8", 2 * count, 24).reshape(2, count)
        at = 24 + 16 * count
        failures = {int(number): Failure.from_json(failure) for number, failure in orjson.loads(body[at : at + size])}
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
    """Decode the failure in a frame `!`; raises `Garbled` for any other frame."""
    try:
        if letter == b"!":
            return Failure.from_json(orjson.loads(body))
    except (ValueError, TypeError):
        pass
    raise Garbled
