"""A copy in an object store: objects named by their content, and one index that is replaced if it is unchanged, at the end.

    copy.json                             the index of the newest copy
    files/<checksum>-<number>             a content, and the number of the copy that wrote it

A copy may name the objects that the copy before it names, and those of its own number: an earlier attempt that was interrupted has
left them. Only whoever has put an index in place removes objects, those of its number and below that it does not name. So an object
cannot go between a decision to use it and the index that names it: that index would not find the one it replaces.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hayase.core.errors import DamagedState, PositionMoved
from hayase.engine.copies.copy_index import CopiedFile, CopyIndex, Progress, SourceFile, receive
from hayase.engine.copies.copy_sources import object_name, read_index
from hayase.engine.copies.home_snapshot import INDEX
from hayase.storage import Store

__all__ = ["write_stored_copy"]

AT_ONCE = 8
"""Objects that are sent at the same time."""


def write_stored_copy(
    store: Store, place: str, files: Sequence[SourceFile], made_at: int, writer: str, progress: Progress
) -> CopyIndex:
    """Write a copy, or continue one; return its index. PositionMoved if another copy was completed meanwhile."""
    read = read_index(store, place)
    old, version = read if read is not None else (None, None)
    number = (old.number if old else 0) + 1
    sending = _Sending(store, number, old)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        copied = {}
        for file, (entry, sent) in zip(files, pool.map(sending.copied, files), strict=True):
            copied[file.name] = entry
            progress(file.name, sent)
    index = CopyIndex(number, made_at, writer, copied)
    _check_there(store, place, index)
    data = index.as_bytes()
    done = store.create(INDEX, data) if version is None else store.replace(INDEX, data, version)
    if done is None:
        raise PositionMoved(f"another copy to {place} was completed meanwhile", "run it again")
    _remove_others(store, index)
    return index


class _Sending:
    """Sends contents that are not there yet."""

    def __init__(self, store: Store, number: int, old: CopyIndex | None):
        self._store, self._number = store, number
        self._old = old.files if old else {}
        self._numbers = {file.checksum: file.number for file in self._old.values()}
        self._there = {status.name: status.size for status in store.list_after("files")}

    def copied(self, file: SourceFile) -> tuple[CopiedFile, int]:
        """See to it that there is an object with the content of a file; return its entry, and how many bytes were sent."""
        before = self._old.get(file.name)
        if before is not None and file.same_as(before):
            return CopiedFile(file.name, file.size, before.checksum, file.mark, before.number, file.modified), 0
        if file.path is not None:
            return self._sent(file, receive(file), file.path)
        assert file.checksum is not None
        with tempfile.TemporaryDirectory(prefix="hayase-") as room:
            path = Path(room) / "content"
            with path.open("wb") as opened:
                receive(file, opened.write)
            return self._sent(file, file.checksum, path)

    def _sent(self, file: SourceFile, checksum: str, path: Path) -> tuple[CopiedFile, int]:
        number = self._numbers.get(checksum, self._number)
        entry = CopiedFile(file.name, file.size, checksum, file.mark, number, file.modified)
        name = object_name(checksum, number)
        if checksum in self._numbers or self._there.get(name) == file.size:
            return entry, 0
        self._store.put(name, path)
        return entry, file.size


def _check_there(store: Store, place: str, index: CopyIndex) -> None:
    """Raise DamagedState if an object that the index names is not in the store, or has another size."""
    there = {status.name: status.size for status in store.list_after("files")}
    for file in index.files.values():
        name = object_name(file.checksum, file.number)
        if there.get(name) != file.size:
            raise DamagedState(
                f"{place}/{name}, which has {file.name}, is missing or has another size",
                f"remove {place} and copy again",
            )


def _remove_others(store: Store, index: CopyIndex) -> None:
    named = {object_name(file.checksum, file.number) for file in index.files.values()}
    others = [
        status.name
        for status in store.list_after("files")
        if status.name not in named and int(status.name.rpartition("-")[2]) <= index.number
    ]
    store.delete(others)
