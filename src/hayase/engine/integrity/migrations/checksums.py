"""Format 1 to 2: small files get checksums, logs and lanes get heads, and only the owner may access the home."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import orjson

from hayase.core.errors import DamagedState
from hayase.engine.home import Home
from hayase.engine.integrity.heads import DEFINITIONS, Head, write_head
from hayase.streams import durable
from hayase.streams.home_format import PRIVATE
from hayase.streams.log_directory import LogDirectory
from hayase.streams.log_index import is_trimmed
from hayase.streams.producers import FOLDED
from hayase.streams.sealed import is_sealed, seal, unseal

__all__ = ["migrate"]

_SEALED = {
    "definitions/*.json": "definition",
    "commits/*/*.json": "manifest",
    "streams/*/stream.json": "declaration",
    f"streams/*/{FOLDED}": "producers",
    "streams/*/staging/spark-*/committed.json": "batch",
    "views/*.json": "place of a view",
    "dead/appending.json": "replay",
}
"""Patterns of the files that get a checksum, with the kind of each."""
_RESTORE = "put back a copy from a backup, then upgrade again; nothing was changed"


def migrate(home: Home) -> int:
    """Bring a home from format 1 to format 2; return how many files were written."""
    files = dict(_bodies(home.path))
    logs = [LogDirectory(path, path.name) for path in _directories(home.path / "streams")]
    listings = {log.path: log.listing() for log in logs if (log.path / "stream.json").exists()}
    count = 0
    for path, (kind, body) in files.items():
        if body is not None:
            durable.write_atomic(path, seal(kind, body))
            count += 1
    for log in logs:
        listing = listings.get(log.path)
        if listing is not None and is_trimmed(listing) and not (log.path / FOLDED).exists():
            durable.write_atomic(log.path / FOLDED, seal("producers", orjson.dumps({"producers": []})))
            count += 1
        if listing is not None:
            with log.writing():
                log.set_head()
    _write_heads(home)
    for gate in (home.path / "gates").glob("*.json"):  # valid for one run: the next one writes its own
        durable.remove(gate)
    for directory in {path.parent for path in files}:
        durable.remove_leftovers(directory)
    _make_private(home.path)
    return count


def _bodies(home: Path) -> Iterator[tuple[Path, tuple[str, bytes | None]]]:
    """Yield the files that get a checksum, with kind and content; the content is None if a file has its checksum already."""
    for pattern, kind in _SEALED.items():
        for path in sorted(home.glob(pattern)):
            data = path.read_bytes()
            if is_sealed(data):
                unseal(data, kind, path, _RESTORE)
                yield path, (kind, None)
                continue
            try:
                orjson.loads(data)
            except ValueError as error:
                raise DamagedState(f"the {kind} {path} cannot be read: {error}", _RESTORE) from error
            yield path, (kind, data)


def _directories(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if entry.is_dir()) if path.is_dir() else []


def _write_heads(home: Home) -> None:
    """Write the heads of the definitions and of each lane's manifests."""
    numbers = [int(path.stem) for path in home.definitions.glob("*.json") if path.stem.isdigit()]
    if numbers:
        write_head(home, DEFINITIONS, Head(max(numbers)))
    for directory in _directories(home.path / "commits"):
        newest = max((path for path in directory.glob("*.json") if path.stem.isdigit()), default=None)
        if newest is not None:
            body = orjson.loads(unseal(newest.read_bytes(), "manifest", newest, _RESTORE))
            write_head(home, directory.name, Head(body["version"], body["offset"]["definition"]))


def _make_private(home: Path) -> None:
    """Remove the permissions of group and others, unless the home is shared on purpose (setgid)."""
    if home.stat().st_mode & 0o2000:
        return
    for directory, _, names in os.walk(home):
        for name in names:
            with suppress(FileNotFoundError, PermissionError):
                path = Path(directory, name)
                path.chmod(path.stat().st_mode & 0o700)
        with suppress(PermissionError):
            Path(directory).chmod(PRIVATE)
