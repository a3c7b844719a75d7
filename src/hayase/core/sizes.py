"""Reads and writes sizes in bytes with units: `10 GB` is decimal, `512 MiB` binary."""

from __future__ import annotations

import re

from hayase.core.errors import HayaseError

__all__ = ["size", "size_text"]

_UNITS = {
    "PiB": 2**50, "PB": 10**15, "TiB": 2**40, "TB": 10**12, "GiB": 2**30, "GB": 10**9,
    "MiB": 2**20, "MB": 10**6, "KiB": 2**10, "kB": 10**3, "B": 1,
}  # fmt: skip
_SPELLINGS = {name.lower(): scale for name, scale in _UNITS.items()}
_SIZE = re.compile(r"\s*(\d{1,19})(?:\.(\d{1,18}))?\s*([a-zA-Z]+)\s*")


def size(text: str) -> int:
    """Return the bytes of a size. A fraction is accepted if it gives whole bytes.

    >>> size("10 GB"), size("512 MiB"), size("1.5kB")
    (10000000000, 536870912, 1500)
    """
    match = _SIZE.fullmatch(text)
    scale = _SPELLINGS.get(match[3].lower()) if match else None
    if match and scale:
        whole, fraction = match[1], match[2] or ""
        total, rest = divmod(int(whole + fraction) * scale, 10 ** len(fraction))
        if not rest and total < 2**63:
            return total
    raise HayaseError(f'"{text}" is not a size; write a number and a unit, like "10 GB" or "512 MiB"')


def size_text(count: int) -> str:
    """Return the shortest exact text of a size; `size` reads it back.

    >>> size_text(10_000_000_000), size_text(1536), size_text(0)
    ('10 GB', '1536 B', '0 B')
    """
    for name, scale in _UNITS.items():
        if count and count % scale == 0:
            return f"{count // scale} {name}"
    return f"{count} B"
