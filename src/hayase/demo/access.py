"""The functions of the job that watches the access log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["parse", "refuse"]

LINE = re.compile(r'(\S+) \S+ \S+ \[[^]]+] "\S+ (\S+) [^"]*" (\d{3}) (\d+|-) "[^"]*" "[^"]*"')


def parse(record: Mapping[str, Any]) -> dict[str, Any]:
    """A line as a request; what is no line is a dead letter."""
    found = LINE.fullmatch(record["line"])
    if found is None:
        raise ValueError("this is no line of an access log")
    return {"address": found[1], "status": int(found[3])}


def refuse(address: str, counts: Sequence[Mapping[str, Any]], stored: Mapping[str, Any] | None) -> Iterator[Any]:
    """Addresses that came, beside the blocklist: only those that are in it."""
    if stored is not None:
        yield {"address": address, "hits": sum(each["hits"] for each in counts), "reason": stored["reason"]}
