"""The interface of a table's sorted key-value store, and the sorted runs that it ingests.

The interface is small on purpose: reads of one consistent state, atomic writes, and ingestion of files that were sorted elsewhere.
The meaning of a table is implemented above it (`hayase.tables.table`), so another store needs only these few methods. The first
byte of a key is its kind:

| | key | value |
|---|---|---|
| `c` | marker of a batch + eight bytes for the run | the keys in the run, for outputs (`hayase.tables.changed_keys`) |
| `i` | name | a fact about the table: its generation, how far it is folded, counts |
| `m` | marker of a batch + eight bytes for the run | the number of entries in the run |
| `p` | entry | value of the entry (`hayase.tables.entries`) |
| `s` | version + key | empty. A mark: this entry is in the snapshot. The time is first, so that one range deletes old marks |
| `z` | key | snapshot of the row |

A run is a file of distinct entries in order, together with the marker of its batch: the marker and the entries of all runs of a
batch become visible at once, or not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.errors import DamagedState
from hayase.tables.entries import ENTRIES

__all__ = [
    "CHANGED",
    "FACT",
    "GENERATION",
    "LOADS",
    "MARK",
    "MARKER",
    "PAYLOAD",
    "ROW",
    "ReadableStore",
    "Store",
    "View",
    "check_begun",
    "discard",
    "generation_of",
    "marker_in_key",
    "open_readable",
    "open_store",
    "run_of",
    "verify",
    "write_run",
]

Result = TypeVar("Result")

CHANGED, FACT, MARKER, PAYLOAD, MARK, ROW = b"c", b"i", b"m", b"p", b"s", b"z"
GENERATION = FACT + b"generation"
"""The key of a table's generation."""
LOADS = FACT + b"loads"
"""The key of the fact that says how often a table was loaded, and what its key and columns were then."""

_RUN_BYTES = 8


class View(Protocol):
    """One consistent state of a store, valid during the call of the function that it was passed to."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None if there is none."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of keys."""

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values with start <= key < stop, in order. Deleted keys after `stop` cost nothing."""

    def scan_each(self, ranges: Sequence[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yield the keys and values of each range [start, stop), for ranges in order; one pass, faster than a scan of each."""


class ReadableStore(Protocol):
    """A sorted key-value store for reading. Any number of threads may read at the same time."""

    def read(self, work: Callable[[View], Result]) -> Result:
        """Call `work` with a view of the present state and return its result. It is called again if the state changes meanwhile,
        so it must have no side effects and must not keep the view."""

    def refresh(self) -> None:
        """Make changes by another process visible; no effect in the writing process."""

    def size(self) -> int:
        """Return the approximate size on disk in bytes."""

    def close(self) -> None:
        """Close the files as soon as no read is in progress."""


class Store(ReadableStore, Protocol):
    """A store for the process that writes it. Any number of threads may read, write and ingest at the same time."""

    def write(
        self,
        puts: Iterable[tuple[bytes, bytes]] = (),
        deletes: Iterable[bytes] = (),
        ranges: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """Delete ranges [from, to), then delete keys, then put: atomic, and durable on return."""

    def ingest(self, files: Sequence[Path]) -> None:
        """Ingest runs, later ones over earlier ones: atomic, and durable on return. The files are moved."""

    def clear(self) -> None:
        """Delete everything."""


def open_store(path: Path) -> Store:
    """Open the store in a directory for the one process that writes it; create it if it does not exist."""
    from hayase.tables.rocksdb import RocksStore

    return RocksStore(path)


def open_readable(path: Path) -> ReadableStore:
    """Open a store for reading while another process may write it; a store that does not exist is empty. DamagedState names a
    damaged file."""
    from hayase.tables.rocksdb import RocksReader

    return RocksReader(path)


def verify(path: Path) -> None:
    """Read every live file of the store of a table (`home.table(name)`); DamagedState says which file is damaged and what to do.
    A pipeline may be running. A missing store is damage if the table was begun."""
    from hayase.tables.rocksdb import verify_files

    verify_files(path)


def generation_of(path: Path) -> str | None:
    """Return the generation of a table from the seal of its store, without opening it; None if it is unknown."""
    from hayase.tables.seals import read_seal

    try:
        seal = read_seal(path)
    except DamagedState:
        return None
    return None if seal is None else seal.generation


def check_begun(path: Path) -> None:
    """Raise DamagedState if the store in a directory is missing or damaged."""
    from hayase.tables.seals import check, damage_error

    if check(path) is None:
        raise damage_error(path, f"{path} is missing, although the table has taken in records")


def discard(path: Path) -> None:
    """Delete the store in a directory. No process may have it open for writing."""
    from hayase.tables.rocksdb import discard

    discard(path)


def write_run(
    path: Path, batches: Iterable[pa.RecordBatch | pa.Table], marker: bytes, *, with_keys: bool = False
) -> int:
    """Sort entries into a run, written atomically and durably; return the number of distinct entries.

    All markers of a table have the same length, and their order is that of the batches. `with_keys` also keeps the keys.
    """
    from hayase.tables.changed_keys import packed_keys
    from hayase.tables.rocksdb import write_sorted

    head, entries, values = run_of(path.name, batches, marker)
    keys = [(CHANGED + head[0][len(MARKER) :], packed_keys(entries, values))] if with_keys else []
    write_sorted(path, [*keys, head], PAYLOAD, entries, values)
    return len(entries)


def run_of(
    name: str, batches: Iterable[pa.RecordBatch | pa.Table], marker: bytes
) -> tuple[tuple[bytes, bytes], list[bytes], list[bytes]]:
    """Return the contents of a run: key and value of its marker, the entries in order without the prefix PAYLOAD, their values."""
    entries, values = _sorted_once(batches)
    run = hashlib.blake2b(name.encode(), digest_size=_RUN_BYTES).digest()
    return (MARKER + marker + run, len(entries).to_bytes(8, "big")), entries, values


def marker_in_key(key: bytes) -> bytes:
    """Return the marker of a batch from the key under which a run stores it."""
    return key[1:-_RUN_BYTES]


def _sorted_once(batches: Iterable[pa.RecordBatch | pa.Table]) -> tuple[list[bytes], list[bytes]]:
    """Return the entries in order and their values; of equal entries the last."""
    tables = [pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch for batch in batches]
    table = pa.concat_tables([batch.cast(ENTRIES) for batch in tables]) if tables else ENTRIES.empty_table()
    if not len(table):
        return [], []
    entries, values = (table.column(name).combine_chunks() for name in ENTRIES.names)
    order = pc.sort_indices(entries)
    entries = entries.take(order)
    last = np.append(pc.not_equal(entries[:-1], entries[1:]).to_numpy(zero_copy_only=False), True)
    if not last.all():
        entries, order = entries.filter(pa.array(last)), order.filter(pa.array(last))
    return entries.to_pylist(), values.take(order).to_pylist()
