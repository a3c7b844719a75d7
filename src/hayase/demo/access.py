"""The functions of the two jobs that watch the access log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["parse", "refuse"]

LINE = re.compile(r'(\S+) \S+ \S+ \[[^]]+] "\S+ (\S+) [^"]*" (\d{3}) (\d+|-) "[^"]*" "[^"]*"')


def parse(record: Mapping[str, Any]) -> dict[str, Any]:
    """Map: return the address and status of a line. A malformed line becomes a dead letter."""
    match = LINE.fullmatch(record["line"])
    if match is None:
        raise ValueError("this is not a line of an access log")
    return {"address": match[1], "status": int(match[3])}


def refuse(address: str, counts: Sequence[Mapping[str, Any]], stored: Mapping[str, Any] | None) -> Iterator[Any]:
    """Merge with the blocklist: yield the new hits of an address that is on it."""
    if stored is not None:
        yield {"address": address, "hits": sum(count["hits"] for count in counts), "reason": stored["reason"]}
