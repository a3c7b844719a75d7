"""The verbs of storage: what everything above asks of a directory or of an object store.

Names have "/" between their parts and are relative to the place of the store. A file is there whole or not at all, and what has
returned survives a power failure. Every verb can be called again after an error. A conditional write whose answer is lost is
resolved by reading back: equal bytes count as one's own write, so contents that several may write carry the writer's identity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

__all__ = ["Status", "Store", "Stored"]


class Stored(NamedTuple):
    """The content of a file, and the version that `Store.replace` compares."""

    data: bytes
    version: str


class Status(NamedTuple):
    """A file as a listing shows it: its name, its size, and a text that changes with its content."""

    name: str
    size: int
    tag: str


class Store(Protocol):
    """Files below one place. EndpointError if the place cannot be used; the verb may or may not have been done then."""

    def create(self, name: str, data: bytes) -> str | None:
        """Write a file if there is none of this name; return its version, None if another one is there."""

    def replace(self, name: str, data: bytes, version: str) -> str | None:
        """Write a file if it still has this version; return its new version, None if it has another one or is gone. None also if
        this write was done, its answer was lost, and another one has replaced it since."""

    def put(self, name: str, source: bytes | Path) -> None:
        """Write a file, whatever is there: for names that say their content, so that repeating it changes nothing."""

    def read(self, name: str) -> Stored | None:
        """Return a small file with its version; None if there is none."""

    def read_range(self, name: str, start: int, stop: int) -> bytes | None:
        """Return the bytes [start, stop) of a file, as far as it has them; None if there is no such file."""

    def status(self, name: str) -> Status | None:
        """Return what a listing would show of a file; None if there is none."""

    def list_after(self, directory: str = "", after: str = "") -> Iterator[Status]:
        """Yield the files below a directory ("" for all) whose names are greater than `after`, in the order of their names."""

    def delete(self, names: Iterable[str]) -> None:
        """Remove files; those that are not there are passed over."""
