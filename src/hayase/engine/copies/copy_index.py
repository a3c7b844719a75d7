"""The index of a copy: its files with their sizes and checksums, in one sealed file. A copy is there when its index is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import Protocol

import orjson
import xxhash

from hayase.core.data_classes import dataclass
from hayase.core.errors import DamagedState
from hayase.streams.sealed import seal, unseal

__all__ = ["KIND", "REMEDY", "CopiedFile", "CopyIndex", "Progress", "SourceFile", "Vanished", "receive"]

KIND = "index of a copy"
REMEDY = "copy the home again, to another place"
PORTION = 8 << 20
"""Bytes that are read at once."""


class Vanished(Exception):
    """A file of the source has gone since it was listed: take the source as it is now."""


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file of a copy. `mark` is that of the source's file, by which an unchanged one is recognised without reading it; `number`
    is that of the copy which wrote it; `modified` is when the file was last changed, in nanoseconds."""

    name: str
    size: int
    checksum: str
    mark: str = ""
    number: int = 0
    modified: int = 0


@dataclass(frozen=True, slots=True)
class CopyIndex:
    """All files of a copy, by name. Copies to one place are numbered from 1; `writer` tells apart two that were made at once."""

    number: int
    made_at: int
    writer: str
    files: Mapping[str, CopiedFile] = field(default_factory=dict)

    def as_bytes(self) -> bytes:
        data = {
            "number": self.number,
            "made_at": self.made_at,
            "writer": self.writer,
            "files": [asdict(file) for file in self.files.values()],
        }
        return seal(KIND, orjson.dumps(data))

    @classmethod
    def from_bytes(cls, data: bytes, place: str) -> CopyIndex:
        """Read an index; DamagedState if it is not what was written."""
        try:
            fields = orjson.loads(unseal(data, KIND, Path(place), REMEDY))
            files = [CopiedFile(**file) for file in fields["files"]]
            return cls(fields["number"], fields["made_at"], fields["writer"], {file.name: file for file in files})
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedState(f"the {KIND} {place} cannot be read: {error}", REMEDY) from error


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to copy. A source that is a copy itself knows the checksum; a home has the file at a path."""

    name: str
    size: int
    mark: str
    modified: int
    checksum: str | None
    path: Path | None
    portions: Callable[[], Iterator[bytes]]
    """Reads the content; Vanished if it is gone."""

    def same_as(self, copied: CopiedFile | None) -> bool:
        """Return whether a copied file is known to be this one without reading it."""
        if copied is None or copied.size != self.size:
            return False
        return copied.checksum == self.checksum if self.checksum is not None else copied.mark == self.mark


class Progress(Protocol):
    """Told of every file that a copy is done with, and how many of its bytes were sent."""

    def __call__(self, file: str, sent: int) -> None: ...


def receive(file: SourceFile, write: Callable[[bytes], object] = lambda portion: None) -> str:
    """Give the content of a file to `write`, in portions, and return its checksum; DamagedState if that is not the one it had."""
    state = xxhash.xxh3_128()
    for portion in file.portions():
        state.update(portion)
        write(portion)
    if file.checksum is not None and state.hexdigest() != file.checksum:
        raise DamagedState(f"{file.name} of the copy does not match its checksum", "use another copy")
    return state.hexdigest()
