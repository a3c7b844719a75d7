"""Clients of the SQL server for `hayase bench ask`: lookups one after the other, and many clients at a steady rate together."""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections.abc import Callable, Sequence

__all__ = ["Asked", "crowd", "one_by_one"]

Row = list[str | None]
Asked = tuple[str, float, list[Row]]
"""The name of a statement, the seconds until its answer was there, and the answer."""


class Client:
    """A connection that sends simple queries."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> Client:
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        body = b"user\0bench\0database\0hayase\0\0"
        client._writer.write(struct.pack("!ii", len(body) + 8, 196_608) + body)
        await client._until_ready()
        return client

    async def ask(self, sql: str) -> list[Row]:
        """Return the rows of an answer; RuntimeError if there is an error instead."""
        body = sql.encode() + b"\0"
        self._writer.write(b"Q" + struct.pack("!i", len(body) + 4) + body)
        return await self._until_ready()

    async def _until_ready(self) -> list[Row]:
        rows: list[Row] = []
        failed: str | None = None
        while True:
            kind, size = struct.unpack("!ci", await self._reader.readexactly(5))
            data = await self._reader.readexactly(size - 4)
            if kind == b"D":
                rows.append(_row(data))
            elif kind == b"E":
                failed = data.decode(errors="replace").replace("\0", " ")
            elif kind == b"Z":
                if failed is not None:
                    raise RuntimeError(failed)
                return rows

    async def close(self) -> None:
        self._writer.write(b"X" + struct.pack("!i", 4))
        self._writer.close()
        await self._writer.wait_closed()


def _row(data: bytes) -> Row:
    row: Row = []
    at = 2
    for _ in range(struct.unpack("!h", data[:2])[0]):
        (size,) = struct.unpack("!i", data[at : at + 4])
        row.append(None if size < 0 else data[at + 4 : at + 4 + size].decode())
        at += 4 + max(size, 0)
    return row


Statement = Callable[[random.Random], tuple[str, str]]
"""Draws a statement: its name and its text."""


def one_by_one(port: int, draw: Statement, seconds: float, pause: float) -> list[Asked]:
    """Ask with one client, with a pause after each answer."""

    async def run() -> list[Asked]:
        client, drawn = await Client.connect(port), random.Random(1)
        asked: list[Asked] = []
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until:
                asked.append(await _timed(client, *draw(drawn)))
                await asyncio.sleep(pause)
        finally:
            await client.close()
        return asked

    return asyncio.run(run())


def crowd(port: int, draw: Statement, seconds: float, clients: int, rate: float) -> list[Asked]:
    """Ask with many clients, each at its share of the rate. A statement that is due while one runs is asked after it, and its time
    counts from when it was due."""

    async def run_one(number: int, asked: list[Asked]) -> None:
        client, drawn = await Client.connect(port), random.Random(number)
        every = clients / rate
        due = began + every * number / clients
        try:
            while due < began + seconds:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                name, spent, rows = await _timed(client, *draw(drawn))
                asked.append((name, max(spent, time.monotonic() - due), rows))
                due += every
        finally:
            await client.close()

    async def run() -> list[Asked]:
        asked: list[Asked] = []
        await asyncio.gather(*(run_one(number, asked) for number in range(clients)))
        return asked

    began = time.monotonic() + 0.5
    return asyncio.run(run())


async def _timed(client: Client, name: str, sql: str) -> Asked:
    began = time.monotonic()
    rows = await client.ask(sql)
    return name, time.monotonic() - began, rows


def torn(rows: Sequence[Row]) -> bool:
    """Whether an answer to the joined statement is torn: its columns are equal in pairs."""
    return any(row[at] != row[at + 1] for row in rows for at in range(0, len(row), 2))
