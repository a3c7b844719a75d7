"""Messages of PostgreSQL's protocol, version 3: how they are cut out of a connection, and how those to a client are built.

Every length is bounded before anything is read. Integers are big-endian; a text ends with a zero byte.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping, Sequence

from hayase.core.data_classes import dataclass
from hayase.core.errors import HayaseError

__all__ = [
    "CANCEL",
    "GSS",
    "NO_TLS",
    "PROTOCOL",
    "TLS",
    "TLS_YES",
    "Field",
    "Garbled",
    "Payload",
    "authentication",
    "backend_key",
    "command_complete",
    "copy_out",
    "data_row",
    "error",
    "message",
    "parameter_description",
    "parameter_status",
    "read_message",
    "read_startup",
    "ready",
    "row_description",
]  # fmt: skip

PROTOCOL, CANCEL, TLS, GSS = 196_608, 80_877_102, 80_877_103, 80_877_104
"""What a connection begins with: a session of version 3.0, a cancel request, a request for TLS, one for GSSAPI."""
TLS_YES, NO_TLS = b"S", b"N"
MOST_STARTUP = 10_000
MOST_MESSAGE = 16 << 20


class Garbled(HayaseError):
    """A client does not keep to the protocol; its connection is closed."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column of an answer: its name, the number and size of its type, and whether its values are sent in binary."""

    name: str
    type: int
    size: int = -1
    binary: bool = False


class Payload:
    """Reads the parts of a message, one after the other."""

    def __init__(self, data: bytes):
        self._data, self._at = data, 0

    def text(self) -> str:
        """Read a text that ends with a zero byte."""
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise Garbled("a text in a message has no end")
        text, self._at = self._data[self._at : end], end + 1
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise Garbled("a text in a message is not UTF-8") from None

    def take(self, size: int) -> bytes:
        """Read so many bytes."""
        if size < 0 or self._at + size > len(self._data):
            raise Garbled("a message ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def short(self) -> int:
        """Read an integer of two bytes."""
        return int(struct.unpack("!h", self.take(2))[0])

    def long(self) -> int:
        """Read an integer of four bytes."""
        return int(struct.unpack("!i", self.take(4))[0])

    def shorts(self) -> list[int]:
        """Read a count and so many integers of two bytes."""
        return [self.short() for _ in range(self.short())]

    def value(self) -> bytes | None:
        """Read a length and so many bytes; None for NULL."""
        size = self.long()
        return None if size == -1 else self.take(size)

    def rest(self) -> bytes:
        """Read what is left."""
        return self.take(len(self._data) - self._at)


async def read_startup(reader: asyncio.StreamReader) -> tuple[int, Payload]:
    """Read the first message of a connection: its code, and what follows."""
    size = struct.unpack("!i", await reader.readexactly(4))[0]
    if not 8 <= size <= MOST_STARTUP:
        raise Garbled(f"a connection begins with a message of {size} bytes")
    data = await reader.readexactly(size - 4)
    return int(struct.unpack("!i", data[:4])[0]), Payload(data[4:])


async def read_message(reader: asyncio.StreamReader, most: int = MOST_MESSAGE) -> tuple[bytes, Payload]:
    """Read a message: its kind, and what it holds."""
    head = await reader.readexactly(5)
    size = struct.unpack("!i", head[1:])[0]
    if not 4 <= size <= most:
        raise Garbled(f"a message of {size} bytes, and at most {most:,} are taken")
    return head[:1], Payload(await reader.readexactly(size - 4))


def message(kind: bytes, *parts: bytes) -> bytes:
    """Return a message of a kind.

    >>> message(b"Z", b"I").hex()
    '5a0000000549'
    """
    size = 4 + sum(map(len, parts))
    return kind + struct.pack("!i", size) + b"".join(parts)


def _text(text: str) -> bytes:
    return text.encode(errors="replace").replace(b"\0", b"") + b"\0"


def authentication(code: int, data: bytes = b"") -> bytes:
    """Return a step of authentication; 0 says that it is done."""
    return message(b"R", struct.pack("!i", code), data)


def parameter_status(name: str, value: str) -> bytes:
    """Return the value of a setting, as clients keep it."""
    return message(b"S", _text(name), _text(value))


def backend_key(process: int, secret: int) -> bytes:
    """Return what a cancel request must send."""
    return message(b"K", struct.pack("!iI", process, secret))


def ready(status: bytes) -> bytes:
    """Say that the next statement may come; the status is I, T or E: idle, in a transaction, in a failed one."""
    return message(b"Z", status)


def command_complete(tag: str) -> bytes:
    """Say that a statement is done."""
    return message(b"C", _text(tag))


def row_description(fields: Sequence[Field]) -> bytes:
    """Return the columns of an answer."""
    parts = [struct.pack("!h", len(fields))]
    for field in fields:
        parts += [_text(field.name), struct.pack("!ihihih", 0, 0, field.type, field.size, -1, int(field.binary))]
    return message(b"T", *parts)


def parameter_description(types: Sequence[int]) -> bytes:
    """Return the types of the parameters of a statement."""
    return message(b"t", struct.pack(f"!h{len(types)}i", len(types), *types))


def data_row(values: Sequence[bytes | None]) -> bytes:
    """Return a row.

    >>> data_row([b"a", None]).hex()
    '440000000f00020000000161ffffffff'
    """
    parts = [struct.pack("!h", len(values))]
    for value in values:
        parts += [b"\xff\xff\xff\xff"] if value is None else [struct.pack("!i", len(value)), value]
    return message(b"D", *parts)


def copy_out(columns: int) -> bytes:
    """Say that the lines of a COPY follow."""
    return message(b"H", struct.pack(f"!bh{columns}h", 0, columns, *([0] * columns)))


def error(fields: Mapping[str, str], kind: bytes = b"E") -> bytes:
    """Return an error, or with the kind N a notice, by the letters of its fields."""
    return message(kind, *(letter.encode() + _text(text) for letter, text in fields.items()), b"\0")
