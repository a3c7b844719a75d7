"""Bodies for floods: good ones of any size, and broken ones of every kind."""

from __future__ import annotations

import io
import json
import random

import pyarrow as pa

__all__ = ["broken", "lines", "orders"]

JSON, NDJSON, ARROW = "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"
Body = tuple[str, bytes, str]


def lines(mark: str, rows: int, item: str = "tea") -> bytes:
    """Orders as NDJSON; their ids begin with the mark."""
    return "".join(
        json.dumps({"at": 1_000_000 + n % 500, "id": f"{mark}-{n}", "user": "mio", "item": item, "amount": n % 7})
        + "\n"
        for n in range(rows)
    ).encode()


def orders(mark: str, rows: int, parts: int = 2, size: int = 5_000) -> list[tuple[str, bytes]]:
    """Several bodies of so many large orders each, with their marks."""
    return [(f"{mark}-{part}", lines(f"{mark}-{part}", rows, "tea " * (size // 4))) for part in range(parts)]


def broken(dice: random.Random) -> list[Body]:
    """Bodies of which no record may be accepted, with a name and a content type each."""
    record = {"at": 1, "id": "x", "user": "mio", "item": "tea", "amount": 1}
    text = json.dumps([record] * 50).encode()
    arrow = _arrow(pa.table({"amount": pa.array([1], pa.int64())}))
    flipped = bytearray(arrow)
    flipped[dice.randrange(len(flipped))] ^= 1 << dice.randrange(8)
    found: list[Body] = [
        ("cut off", text[: dice.randrange(2, len(text) - 1)], JSON),
        ("no JSON", bytes(dice.randrange(256) for _ in range(2_000)), JSON),
        ("too deep", b"[" * 100_000 + b"]" * 100_000, JSON),
        ("deep in a record", b'{"at": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}", NDJSON),
        ("another type", text, ARROW),
        ("no Arrow", bytes(dice.randrange(256) for _ in range(2_000)), ARROW),
        ("Arrow with a bit flipped", bytes(flipped), ARROW),
        ("Arrow cut off", arrow[: dice.randrange(1, len(arrow))], ARROW),
        ("nulls that cost nothing", _arrow(pa.table({"other": pa.nulls(1_000_000)})), ARROW),
        ("a long exponent", b'{"at": 1e99999999999999999999, "id": "x"}\n', NDJSON),
        ("a small number", b'{"at": 1, "id": "x", "amount": 1e-10000000}\n', NDJSON),
        ("a long number", b'{"at": ' + b"9" * 1_000_000 + b"}\n", NDJSON),
        ("one long line", b'{"id": "' + b"x" * (8 * 2**20) + b'"}\n', NDJSON),
        ("not UTF-8", b'{"at": "\xff\xfe"}\n', NDJSON),
        ("only brackets", b"[]" * 10_000, JSON),
        ("too large", b" " * (17 * 2**20), JSON),
    ]
    dice.shuffle(found)
    return found


def _arrow(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
