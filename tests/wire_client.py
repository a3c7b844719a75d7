"""A small client of PostgreSQL's protocol for tests: it sends single messages and keeps what comes back."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from hayase.core.access import OPEN, Access
from hayase.wire.server import Limits, SqlServer

Message = tuple[bytes, bytes]


class WireClient:
    """A connection. `until_ready` collects messages up to the next ReadyForQuery."""

    def __init__(self, port: int, password: str | None = None, **settings: str):
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.key = b""
        named = {"user": "me", "database": "hayase", **settings}
        body = b"".join(f"{name}\0{value}\0".encode() for name, value in named.items()) + b"\0"
        self._raw(struct.pack("!ii", len(body) + 8, 196_608) + body)
        self.status: dict[str, str] = {}
        self.greeting = self._admitted(password)

    def _admitted(self, password: str | None) -> list[Message]:
        while True:
            kind, data = self.receive()
            code = struct.unpack("!i", data[:4])[0] if kind == b"R" else None
            if code == 10 and password is not None:
                self._scram(password)
            elif kind == b"S":
                name, value, _ = data.decode().split("\0")
                self.status[name] = value
            elif kind == b"K":
                self.key = data
            elif kind in (b"Z", b"E") or code == 10:
                return [(kind, data)]

    def _scram(self, password: str) -> None:
        first = "n=,r=abc"
        said = f"n,,{first}".encode()
        self.send(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(said)) + said)
        _, data = self.receive()
        answer = data[4:].decode()
        parts = dict(part.split("=", 1) for part in answer.split(","))
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
        key = hmac.digest(salted, b"Client Key", "sha256")
        final = f"c=biws,r={parts['r']}"
        signature = hmac.digest(hashlib.sha256(key).digest(), f"{first},{answer},{final}".encode(), "sha256")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature))).decode()
        self.send(b"p", f"{final},p={proof}".encode())

    def _raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, kind: bytes, body: bytes = b"") -> None:
        self._raw(kind + struct.pack("!i", len(body) + 4) + body)

    def receive(self) -> Message:
        head = self._exactly(5)
        return head[:1], self._exactly(struct.unpack("!i", head[1:])[0] - 4)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the server has closed the connection")
            data += more
        return data

    def until_ready(self) -> list[Message]:
        found = []
        while not found or found[-1][0] != b"Z":
            found.append(self.receive())
        return found

    def query(self, sql: str) -> list[Message]:
        self.send(b"Q", sql.encode() + b"\0")
        return self.until_ready()

    def prepared(
        self,
        sql: str,
        values: Sequence[bytes | None] = (),
        types: Sequence[int] = (),
        *,
        binary: bool = False,
        most: int = 0,
    ) -> list[Message]:
        """Send a statement with parameters as text: Parse, Bind, Describe, Execute, Sync."""
        self.send(b"P", b"\0" + sql.encode() + b"\0" + struct.pack(f"!h{len(types)}i", len(types), *types))
        bound = [b"\xff\xff\xff\xff" if each is None else struct.pack("!i", len(each)) + each for each in values]
        body = struct.pack("!hh", 0, len(values)) + b"".join(bound) + struct.pack("!hh", 1, int(binary))
        self.send(b"B", b"\0\0" + body)
        self.send(b"D", b"P\0")
        self.send(b"E", b"\0" + struct.pack("!i", most))
        self.send(b"S")
        return self.until_ready()

    def cancel(self, port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), 60) as other:
            other.sendall(struct.pack("!ii", 16, 80_877_102) + self.key)
            other.recv(1)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.send(b"X")
        self.socket.close()


def rows(found: list[Message]) -> list[list[bytes | None]]:
    """The rows among messages."""
    return [_values(data) for kind, data in found if kind == b"D"]


def _values(data: bytes) -> list[bytes | None]:
    at, values = 2, list[bytes | None]()
    for _ in range(struct.unpack("!h", data[:2])[0]):
        size = struct.unpack("!i", data[at : at + 4])[0]
        values.append(None if size < 0 else data[at + 4 : at + 4 + size])
        at += 4 + max(size, 0)
    return values


def errors(found: list[Message]) -> list[dict[str, str]]:
    """The fields of the errors among messages."""
    return [{part[:1]: part[1:] for part in data.decode().split("\0") if part} for kind, data in found if kind == b"E"]


def tags(found: list[Message]) -> list[str]:
    """What the server says that it has done."""
    return [data.decode().rstrip("\0") for kind, data in found if kind == b"C"]


@contextlib.contextmanager
def served(home: Path, *, access: Access = OPEN, limits: Limits | None = None) -> Iterator[int]:
    """Serve a home in a thread; yield the port."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    listener.setblocking(False)
    port = listener.getsockname()[1]
    server, up = SqlServer(home, access=access, limits=limits), threading.Event()
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = []

    async def serve() -> None:
        task = asyncio.create_task(server.serve(listener))
        running.append((asyncio.get_running_loop(), task))
        up.set()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    up.wait()
    try:
        yield port
    finally:
        loop, task = running[0]
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
