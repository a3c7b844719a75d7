"""Where copies come from: a home in a directory, or a copy in an object store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

from hayase.core.errors import DamagedState, HayaseError
from hayase.engine.copies.copy_index import PORTION, CopiedFile, CopyIndex, SourceFile, Vanished
from hayase.engine.copies.home_snapshot import INDEX, HeldFile, home_snapshot
from hayase.engine.home import Home
from hayase.storage import Store

__all__ = ["files_of_home", "files_of_stored_copy", "object_name", "read_index"]


@contextlib.contextmanager
def files_of_home(home: Home) -> Iterator[tuple[SourceFile, ...]]:
    """Yield the files of a home at one instant; they stay until the end of the block."""
    with home_snapshot(home) as held:
        yield tuple(
            SourceFile(file.name, file.size, file.mark, file.modified, None, file.path, partial(_portions, file))
            for file in held
        )


def _portions(file: HeldFile) -> Iterator[bytes]:
    try:
        with file.path.open("rb") as opened:
            while portion := opened.read(PORTION):
                yield portion
    except FileNotFoundError as error:
        raise Vanished(file.name) from error


def object_name(checksum: str, number: int) -> str:
    """Return the name of the object with a content that a copy wrote."""
    return f"files/{checksum}-{number:08d}"


def read_index(store: Store, place: str) -> tuple[CopyIndex, str] | None:
    """Return the index of the copy in a store and its version; None if there is none."""
    stored = store.read(INDEX)
    return None if stored is None else (CopyIndex.from_bytes(stored.data, f"{place}/{INDEX}"), stored.version)


@contextlib.contextmanager
def files_of_stored_copy(store: Store, place: str) -> Iterator[tuple[SourceFile, ...]]:
    """Yield the files of the newest copy in a store."""
    read = read_index(store, place)
    if read is None:
        raise HayaseError(
            f"there is no copy of a home in {place}", "check the address; `hayase home copy HOME ADDRESS` makes one"
        )
    index, _ = read
    yield tuple(
        SourceFile(
            file.name,
            file.size,
            "",
            file.modified,
            file.checksum,
            None,
            partial(_stored_portions, store, place, index.number, file),
        )
        for file in index.files.values()
    )


def _stored_portions(store: Store, place: str, number: int, file: CopiedFile) -> Iterator[bytes]:
    """Yield the content of a file of a copy; Vanished if a newer copy has replaced this one, DamagedState if it is missing."""
    name = object_name(file.checksum, file.number)
    for at in range(0, file.size, PORTION):
        portion = store.read_range(name, at, min(at + PORTION, file.size))
        if portion is None:
            newest = read_index(store, place)
            if newest is not None and newest[0].number != number:
                raise Vanished(file.name)
            raise DamagedState(f"{place}/{name} is missing, which has {file.name}", "use another copy")
        yield portion
