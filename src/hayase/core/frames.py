"""Frames between a process and its children, over sockets: one letter, a length and that many bytes."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

__all__ = ["Garbled", "Inbox", "Stalled", "readable", "receive", "send", "send_within"]

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
