"""What a table needs of a sorted key-value store, and the runs that it takes in.

A store is small on purpose: reads of one consistent state, atomic writes, and the ingestion of files that were sorted
elsewhere. All that a table means lies above it (`hayase.tables.table`), so another store needs only these few methods.
The first byte of a key says what it is:

| | key | value |
|---|---|---|
| `i` | name | a fact about the table: its generation, how far it is folded, counts |
| `m` | marker of a batch + eight bytes for the run | how many entries the run has |
| `p` | entry | value of the entry (`hayase.tables.entries`) |
| `s` | version + key | nothing: this entry is in the snapshot. The time comes first, so that old ones go by one range |
| `z` | key | snapshot of the row |

A run is a file of entries in their order, each once, with the marker of its batch inside: the marker and the entries of
all runs of a batch become visible at once, or not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.errors import DamagedState
from hayase.tables.entries import ENTRIES

__all__ = ["FACT", "GENERATION", "MARK", "MARKER", "PAYLOAD", "ROW", "Finding", "Store", "View", "check_begun", "discard",
           "generation_of", "marker_in_key", "open_secondary", "open_store", "run_of", "verify", "write_run"]  # fmt: skip

Result = TypeVar("Result")

FACT, MARKER, PAYLOAD, MARK, ROW = b"i", b"m", b"p", b"s", b"z"
GENERATION = FACT + b"generation"
"""Under which the generation of a table is kept."""

_RUN_BYTES = 8


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with the store in a directory; the message names the file and says what to do."""

    path: Path
    message: str


class View(Protocol):
    """One consistent state of a store, while the work lasts that it was given to."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of keys."""

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All with start <= key < stop, in order. What deletions left behind after `stop` costs nothing."""


class Store(Protocol):
    """A sorted key-value store. Any number of threads may read, write and ingest."""

    def read(self, work: Callable[[View], Result]) -> Result:
        """What the work makes of the present state. It may be done again if that changes meanwhile, so it must change
        nothing itself, and keep nothing of the view."""

    def write(
        self,
        puts: Iterable[tuple[bytes, bytes]] = (),
        deletes: Iterable[bytes] = (),
        ranges: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """Delete ranges [from, to), then keys, then put: all of it or nothing, durable on return."""

    def ingest(self, files: Sequence[Path]) -> None:
        """Take in runs, later ones over earlier ones: all or nothing, durable on return. The files are moved away."""

    def clear(self) -> None:
        """Throw everything away."""

    def refresh(self) -> None:
        """See what another process wrote meanwhile; nothing to do for the one that writes."""

    def size(self) -> int:
        """About how many bytes it takes on disk."""

    def close(self) -> None:
        """Let go of the files, as soon as nobody reads."""


def open_store(path: Path) -> Store:
    """The store in a directory, for the one process that writes it; it is created if need be."""
    from hayase.tables.rocksdb import RocksStore

    return RocksStore(path)


def open_secondary(path: Path) -> Store:
    """A store that another process may be writing, for reading; one that does not exist yet is empty. DamagedState names the
    file of a store that is not as it was written."""
    from hayase.tables.rocksdb import RocksReader

    return RocksReader(path)


def verify(path: Path) -> list[Finding]:
    """What is wrong with the store of a table in a directory (`home.table(name)`); an empty list if nothing is.

    Every live file is read whole, so it takes as long as that. A pipeline may be running on it. A store that is missing though
    the table was begun is a finding; one that was never begun is none. Each message says what to do.
    """
    from hayase.tables.rocksdb import verify_files

    return verify_files(path)


def generation_of(path: Path) -> str | None:
    """The generation of the table whose store is in a directory, without opening that; None if it cannot be said."""
    from hayase.tables.seals import read_seal

    try:
        seal = read_seal(path)
    except DamagedState:
        return None
    return None if seal is None else seal.generation


def check_begun(path: Path) -> None:
    """Raise DamagedState if the store in a directory, which must be there, is not, or cannot be read."""
    from hayase.tables.seals import check, damaged

    if check(path) is None:
        raise damaged(path, f"{path} is missing, although the table has taken in records")


def discard(path: Path) -> None:
    """Throw away the store in a directory. Nobody may have it open for writing."""
    from hayase.tables.rocksdb import discard

    discard(path)


def write_run(path: Path, batches: Iterable[pa.RecordBatch | pa.Table], marker: bytes) -> int:
    """Sort entries into a run, durably and as a whole; returns how many different ones there are.

    Markers of a table have the same length each, and their order is that of the batches.
    """
    from hayase.tables.rocksdb import write_sorted

    head, entries, values = run_of(path.name, batches, marker)
    write_sorted(path, head, PAYLOAD, entries, values)
    return len(entries)


def run_of(
    name: str, batches: Iterable[pa.RecordBatch | pa.Table], marker: bytes
) -> tuple[tuple[bytes, bytes], list[bytes], list[bytes]]:
    """What a run holds: the key and the value of its marker, the entries in order, which go behind PAYLOAD, their values."""
    entries, values = _sorted_once(batches)
    run = hashlib.blake2b(name.encode(), digest_size=_RUN_BYTES).digest()
    return (MARKER + marker + run, len(entries).to_bytes(8, "big")), entries, values


def marker_in_key(key: bytes) -> bytes:
    """The marker of the batch, from the key under which a run keeps it."""
    return key[1:-_RUN_BYTES]


def _sorted_once(batches: Iterable[pa.RecordBatch | pa.Table]) -> tuple[list[bytes], list[bytes]]:
    """Entries in order and their values; of equal entries the last."""
    tables = [pa.Table.from_batches([each]) if isinstance(each, pa.RecordBatch) else each for each in batches]
    table = pa.concat_tables([each.cast(ENTRIES) for each in tables]) if tables else ENTRIES.empty_table()
    if not len(table):
        return [], []
    entries, values = (table.column(name).combine_chunks() for name in ENTRIES.names)
    order = pc.sort_indices(entries)
    entries = entries.take(order)
    last = np.append(pc.not_equal(entries[:-1], entries[1:]).to_numpy(zero_copy_only=False), True)
    if not last.all():
        entries, order = entries.filter(pa.array(last)), order.filter(pa.array(last))
    return entries.to_pylist(), values.take(order).to_pylist()
