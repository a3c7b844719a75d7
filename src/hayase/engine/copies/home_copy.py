"""Copies a home: from a directory, whose pipeline may run, or from an object store, to either."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from hayase.core.data_classes import dataclass
from hayase.core.errors import HayaseError
from hayase.engine.copies.copy_index import Progress, SourceFile, Vanished
from hayase.engine.copies.copy_sources import files_of_home, files_of_stored_copy
from hayase.engine.copies.directory_copy import write_directory_copy
from hayase.engine.copies.stored_copy import write_stored_copy
from hayase.engine.home import Home, writing
from hayase.storage import is_address, open_store

__all__ = ["Copied", "copy_home"]

ROUNDS = 8
"""How often a copy begins anew because files went that it could not pin."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy has, and how much of it was sent for it."""

    number: int
    files: int
    bytes: int
    sent_files: int
    sent_bytes: int


class _Sent:
    def __init__(self, progress: Progress):
        self.files, self.bytes, self._progress = 0, 0, progress

    def __call__(self, file: str, sent: int) -> None:
        self.files, self.bytes = self.files + (1 if sent else 0), self.bytes + sent
        self._progress(file, sent)


def copy_home(source: str, target: str, now: int, progress: Progress = lambda file, sent: None) -> Copied:
    """Copy a home at one instant; the target has its older copy, or none, until the whole of the new one is there."""
    _check_apart(source, target)
    sent, writer = _Sent(progress), uuid.uuid4().hex
    for _ in range(ROUNDS):
        try:
            with _source(source) as files:
                return _written(target, files, now, writer, sent)
        except Vanished:
            continue
    raise HayaseError(
        f"{source} changes faster than it can be copied, and its files cannot be held",
        "copy it as the user who owns it, on the machine where it is",
    )


def _source(place: str) -> AbstractContextManager[tuple[SourceFile, ...]]:
    if is_address(place):
        return files_of_stored_copy(open_store(place), place)
    return files_of_home(Home(Path(place).absolute()))


def _written(target: str, files: Sequence[SourceFile], now: int, writer: str, sent: _Sent) -> Copied:
    if is_address(target):
        index = write_stored_copy(open_store(target), target, files, now, writer, sent)
    else:
        with writing(f"the copy {target}"):
            index = write_directory_copy(Path(target), files, now, writer, sent)
    size = sum(file.size for file in index.files.values())
    return Copied(index.number, len(index.files), size, sent.files, sent.bytes)


def _check_apart(source: str, target: str) -> None:
    if is_address(source) or is_address(target):
        if source.rstrip("/") == target.rstrip("/"):
            raise HayaseError("a home cannot be copied to itself", "name another place")
        return
    if not Path(source).is_dir():
        raise HayaseError(f'there is no directory "{source}"', "name the home of a pipeline")
    here, there = Path(source).resolve(), Path(target).resolve()
    if here == there or here in there.parents or there in here.parents:
        raise HayaseError(f"{target} and {source} lie in one another", "name another place")
