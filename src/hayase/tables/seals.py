"""Seals: checksums of a table's RocksDB MANIFEST, in a file beside the store, checked before RocksDB opens the store.

RocksDB's MANIFEST is a log of changes to the set of live files. RocksDB takes a damaged end of it for an unfinished write and
silently falls back to an earlier state, and it can loop forever over a damaged record in the middle. So every store is opened
only after `check` has read its MANIFEST: up to the seal the bytes must be those that were sealed; after it, where background work
of the store may have written since, every complete record must match its checksum.

The seal of `tables/accounts/` is `tables/accounts.seal`, outside the store, so that a removed store is noticed: a table that was
never begun has neither.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import asdict
from pathlib import Path

import orjson

from hayase.core.data_classes import dataclass
from hayase.core.errors import DamagedState
from hayase.streams import durable

__all__ = [
    "Place",
    "Seal",
    "check",
    "damage_error",
    "place_of",
    "read_seal",
    "remove_seal",
    "seal_bytes",
    "seal_of",
    "seal_path",
    "sealed_now",
    "write_seal",
]

_BLOCK = 32 << 10
_HEADER = struct.Struct("<IHB")
_MASK = 0xA282EAD8


@dataclass(frozen=True, slots=True)
class Seal:
    """The name of the MANIFEST, how many bytes of it are sealed, their CRC-32, and the table's generation, if any."""

    manifest: str
    length: int
    crc: int
    generation: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Identity and length of a store's MANIFEST; they change whenever the store changes."""

    manifest: str
    inode: int
    length: int


def damage_error(path: Path, what: str) -> DamagedState:
    """Return the error of a damaged store: what is wrong, and how to restore the table."""
    name = path.name
    return DamagedState(
        f'table "{name}" is damaged: {what}',
        f"restore {path} and {seal_path(path).name} from a copy, or rebuild the table from "
        f"its streams with `hayase reset {name} --from earliest` and the next run (rows that were loaded from files must then "
        "be loaded again)",
    )


def seal_path(path: Path) -> Path:
    """Return the path of a store's seal."""
    return path.with_name(path.name + ".seal")


def read_seal(path: Path) -> Seal | None:
    """Read the seal of a store; None if there is none: the store was never begun, or written before seals existed."""
    place = seal_path(path)
    try:
        data = place.read_bytes()
    except FileNotFoundError:
        return None
    try:
        body, crc = data.rsplit(b"\n", 1)
        if int(crc, 16) != zlib.crc32(body):
            raise ValueError("its checksum does not match")
        return Seal(**orjson.loads(body))
    except (ValueError, TypeError) as error:
        raise damage_error(path, f"its seal {place} cannot be read ({error})") from error


def write_seal(path: Path, seal: Seal) -> None:
    """Replace the seal of a store, durably."""
    durable.write_atomic(seal_path(path), seal_bytes(seal))


def seal_bytes(seal: Seal) -> bytes:
    """Return the content of a seal's file."""
    body = orjson.dumps(asdict(seal))
    return body + b"\n%08x" % zlib.crc32(body)


def remove_seal(path: Path) -> None:
    """Remove the seal of a store that is discarded."""
    if seal_path(path).exists():
        durable.remove(seal_path(path))


def seal_of(name: str, manifest: bytes, generation: str | None) -> Seal:
    """Return the seal of a MANIFEST with this name and content."""
    return Seal(name, len(manifest), zlib.crc32(manifest), generation)


def sealed_now(path: Path, before: Seal | None, generation: str | None) -> Seal:
    """Return a seal of a store's present state on disk. The part that `before` covers of the same MANIFEST is not read again."""
    name = _current(path)
    start, crc = (before.length, before.crc) if before is not None and before.manifest == name else (0, 0)
    with (path / name).open("rb") as file:
        file.seek(start)
        added = file.read()
    return Seal(name, start + len(added), zlib.crc32(added, crc), generation)


def check(path: Path) -> Place | None:
    """Check CURRENT, the MANIFEST and the seal of a store; return None if there is no store and never was one.

    DamagedState names the damaged file. Another process may be writing the store: if files change meanwhile, call it again.
    """
    seal = read_seal(path)
    if not path.exists() or (not any(path.glob("*.sst")) and not (path / "CURRENT").exists()):
        if seal is None:
            return None
        missing = path if not path.exists() else path / "CURRENT"
        raise damage_error(path, f"{missing} is missing, although the table was begun")
    name = _current(path)
    manifest = path / name
    try:
        with manifest.open("rb") as file:
            data = file.read()
            inode = manifest.stat().st_ino
    except FileNotFoundError as error:
        raise damage_error(path, f"{manifest} is missing, which {path / 'CURRENT'} names") from error
    start = 0
    if seal is not None:
        start = _check_sealed(path, manifest, data, seal)
    _check_records(path, manifest, data, start)
    return Place(name, inode, len(data))


def place_of(path: Path) -> Place | None:
    """Return identity and length of a store's MANIFEST without reading it; None if they cannot be determined."""
    try:
        name = (path / "CURRENT").read_bytes()[:-1].decode(errors="replace")
        stat = (path / name).stat()
    except (OSError, ValueError):
        return None
    return Place(name, stat.st_ino, stat.st_size)


def _current(path: Path) -> str:
    place = path / "CURRENT"
    try:
        text = place.read_bytes()
    except FileNotFoundError as error:
        raise damage_error(path, f"{place} is missing") from error
    name = text[:-1].decode(errors="replace")
    if text[-1:] != b"\n" or not name.startswith("MANIFEST-") or not name[9:].isdigit():
        raise damage_error(path, f"{place} does not name a MANIFEST")
    return name


def _check_sealed(path: Path, manifest: Path, data: bytes, seal: Seal) -> int:
    """Check the sealed part; return where the unsealed part begins, 0 for a newer MANIFEST."""
    if seal.manifest != manifest.name:
        if int(manifest.name[9:]) < int(seal.manifest[9:]):
            raise damage_error(path, f"{path / 'CURRENT'} names {manifest.name}, which is older than {seal.manifest}")
        return 0  # the writer began a new one and was stopped before it sealed it
    if len(data) < seal.length:
        raise damage_error(path, f"{manifest} ends after {len(data)} bytes of {seal.length}")
    if zlib.crc32(memoryview(data)[: seal.length]) != seal.crc:
        raise damage_error(path, f"{manifest} does not match its checksum")
    return seal.length


def _check_records(path: Path, manifest: Path, data: bytes, start: int) -> None:
    """Check every complete record of a MANIFEST from `start`, where a record begins. An incomplete last one is being written."""
    at = start
    while at < len(data):
        rest = _BLOCK - at % _BLOCK
        if rest < _HEADER.size:  # too small for a record: filled with zeros
            at += rest
            continue
        if at + _HEADER.size > len(data) or not any(data[at:]):
            return
        crc, length, kind = _HEADER.unpack_from(data, at)
        end = at + _HEADER.size + length
        if not 1 <= kind <= 4 or end > at + rest:
            raise damage_error(path, f"{manifest} is not readable at byte {at}")
        if end > len(data):
            return
        if _masked(_crc32c(data[at + 6 : end])) != crc:
            raise damage_error(path, f"{manifest} does not match its checksum at byte {at}")
        at = end


# ---------------------------------------------------------------------------------------------------- CRC-32C


def _table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_CRC = _table()


def _crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli), as RocksDB uses it.

    >>> hex(_crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _masked(crc: int) -> int:
    """Mask a checksum as RocksDB does before it stores it."""
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF
