"""A conflict-free table: reads rows from snapshots and later payloads, ingests batches exactly once, folds old payloads.

A row is the fold of all payloads of its key, each counted once, in any order of arrival. With `as_of` it is the fold of payloads
up to that event time, whenever they arrived. Folding changes no result, but limits how far back a table can be read:
`folded_before`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from hayase.core.data_classes import dataclass
from hayase.core.declarations import TableDeclaration
from hayase.core.errors import DamagedState, HayaseError
from hayase.core.times import instant_text
from hayase.streams import durable
from hayase.tables import store_reader
from hayase.tables.changed_keys import forget_changes
from hayase.tables.entries import Key, key_bytes, key_from, prefix_end
from hayase.tables.entry_blocks import EntryBlock
from hayase.tables.fold import Folding
from hayase.tables.payloads import Json, UnfitParameter, value_bytes
from hayase.tables.rows import Columns, ColumnUpdate
from hayase.tables.store_reader import end_of_prefix, not_in_snapshot
from hayase.tables.stores import PAYLOAD, ROW, ReadableStore, Result, Store, View, open_readable, open_store
from hayase.tables.versions import since

__all__ = ["OwnTable", "Page", "Row", "Table", "TableInfo", "TooOld", "open_own", "open_reader", "open_with_staged"]

Row = dict[str, Json]

_LAST_TIME = 2**63 - 1


class TooOld(HayaseError):
    """A read as of a time before which payloads are folded, so that the earlier state is no longer known."""

    def __init__(self, table: str, as_of: int, oldest: int):
        self.table, self.as_of, self.oldest = table, as_of, oldest
        what = f'table "{table}" cannot be read as of {instant_text(as_of)}'
        super().__init__(
            f"{what}: older updates are folded; the oldest time that can be asked for is {instant_text(oldest)}"
        )


@dataclass(frozen=True, slots=True)
class Page:
    """Rows in the order of their keys, and where the next page begins; None if there are no more."""

    rows: list[tuple[Key, Row]]
    next: bytes | None


@dataclass(frozen=True, slots=True)
class TableInfo:
    """Statistics of a table; the numbers of keys and payloads are estimates."""

    keys: int
    payloads: int
    bytes: int
    folded_before: int | None
    generation: str | None


class Table:
    """A table for reading. Any number of threads may use it."""

    def __init__(self, declaration: TableDeclaration, store: ReadableStore):
        self.declaration = declaration
        self.store = store
        self._columns = Columns(declaration)

    def get(self, key: Sequence[Json], *, columns: Sequence[str] | None = None, as_of: int | None = None) -> Row | None:
        """Return the row of a key; None if the table does not contain it, or did not at `as_of`."""
        return self.get_many([key], columns=columns, as_of=as_of)[0]

    def get_many(
        self, keys: Sequence[Sequence[Json]], *, columns: Sequence[str] | None = None, as_of: int | None = None
    ) -> list[Row | None]:
        """Return the rows of some keys, all from one state of the table."""
        return self.get_encoded([self._key(key) for key in keys], columns=columns, as_of=as_of)

    def get_encoded(
        self, keys: Sequence[bytes], *, columns: Sequence[str] | None = None, as_of: int | None = None
    ) -> list[Row | None]:
        """Return the rows of encoded keys (`entries.key_bytes`), all from one state of the table."""
        places, end = self._columns.places(columns), _end(as_of)
        order = sorted(range(len(keys)), key=keys.__getitem__)  # neighbours are in one block of the store
        ordered = [keys[at] for at in order]

        def read(view: View) -> list[Row | None]:
            self._check(view, as_of)
            snapshots = view.get_many([ROW + key for key in ordered])
            rows: list[Row | None] = []
            for count, block in store_reader.payloads_of_keys(view, ordered, end):
                some = slice(len(rows), len(rows) + count)
                rows += self._rows(view, ordered[some], snapshots[some], block, places)
            return rows

        found: list[Row | None] = [None] * len(keys)
        for at, row in zip(order, self.store.read(read)):
            found[at] = row
        return found

    def updates(self, key: Sequence[Json], *, as_of: int | None = None) -> tuple[bool, list[ColumnUpdate]]:
        """Return whether a row has a snapshot, and the updates since, in the order of their versions."""
        encoded, end = self._key(key), _end(as_of)

        def read(view: View) -> tuple[bool, list[ColumnUpdate]]:
            self._check(view, as_of)
            stored = view.get(ROW + encoded)
            snapshot = self._columns.decode_snapshot(encoded, stored)
            head = PAYLOAD + encoded
            found = view.scan(head, end_of_prefix(head) if end is None else head + end)
            entries = [(entry[len(head) :], value) for entry, value in found]
            return stored is not None, self._columns.updates(
                encoded, not_in_snapshot(view, encoded, snapshot.newest, entries)
            )

        return self.store.read(read)

    def scan(
        self,
        prefix: Sequence[Json] = (),
        *,
        text_prefix: str | None = None,
        after: bytes | None = None,
        limit: int = 100,
        columns: Sequence[str] | None = None,
        as_of: int | None = None,
    ) -> Page:
        """Return a page of rows in the order of their keys: those whose first parts are `prefix` and whose next part begins with
        `text_prefix`. `after` is the `next` of the page before."""
        if limit < 1:
            raise UnfitParameter(f"a page of {limit} rows", "ask for at least one")
        start = self._prefix(prefix, text_prefix)
        stop = prefix_end(start)
        if after is not None:
            following = prefix_end(after)
            if following is None or (stop is not None and following >= stop):
                return Page([], None)
            start = max(start, following)
        places = self._columns.places(columns)

        def read(view: View) -> list[tuple[bytes, Row]]:
            self._check(view, as_of)
            end, found = _end(as_of), list[tuple[bytes, Row]]()
            for keys, snapshots, block in store_reader.blocks_in_range(view, start, stop, limit + 1):
                at = 0
                while at < len(keys) and len(found) <= limit:
                    until = min(at + limit + 1 - len(found), len(keys))
                    part = block.part(at, until)
                    part = part if end is None else part.before(end)
                    rows = self._rows(view, keys[at:until], snapshots[at:until], part, places)
                    found += [(key, row) for key, row in zip(keys[at:until], rows) if row is not None]
                    at = until
                if len(found) > limit:
                    break
            return found

        rows = self.store.read(read)
        more = len(rows) > limit
        return Page([(key_from(key), row) for key, row in rows[:limit]], rows[limit - 1][0] if more else None)

    def folded_before(self) -> int | None:
        """Return the event time before which payloads are folded: the table can be read as of t if t >= folded_before - 1."""
        return self.store.read(store_reader.folded_before)

    def generation(self) -> str | None:
        """The generation of the table; None if it was never begun."""
        return self.store.read(store_reader.generation)

    def newest_marker(self) -> bytes:
        """The marker of the newest batch that the table has taken in; empty if there is none."""
        return self.store.read(store_reader.newest_marker)

    def info(self) -> TableInfo:
        """Return statistics of the table. Keys without a snapshot are estimated from the first payloads."""
        size = self.store.size()

        def read(view: View) -> TableInfo:
            keys, payloads = store_reader.approximate_keys(view), store_reader.payloads(view)
            return TableInfo(keys, payloads, size, store_reader.folded_before(view), store_reader.generation(view))

        return self.store.read(read)

    def refresh(self) -> None:
        """Make new writes of the pipeline's process visible, in a table that was opened for reading."""
        self.store.refresh()

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def _key(self, key: Sequence[Json]) -> bytes:
        if len(key) != len(self.declaration.key):
            raise self._wrong_length(len(key))
        return key_bytes(key)

    def _prefix(self, parts: Sequence[Json], text: str | None) -> bytes:
        length = len(parts) + (text is not None)
        if length > len(self.declaration.key):
            raise self._wrong_length(length)
        begun = b"" if text is None else value_bytes(text)[:-1]
        return key_bytes(parts) + begun

    def _wrong_length(self, length: int) -> UnfitParameter:
        parts = ", ".join(self.declaration.key)
        return UnfitParameter(f'a key of {length} parts for table "{self.declaration.name}"', f"its key is ({parts})")

    def _check(self, view: View, as_of: int | None) -> None:
        if as_of is not None:
            folded = store_reader.folded_before(view)
            if folded is not None and as_of < folded - 1:
                raise TooOld(self.declaration.name, as_of, folded - 1)

    def _rows(
        self,
        view: View,
        keys: Sequence[bytes],
        stored: Sequence[bytes | None],
        block: EntryBlock,
        places: Sequence[int],
    ) -> list[Row | None]:
        """Return the rows of snapshots and later entries; None for a key that has neither."""
        snapshots = [self._columns.decode_snapshot(key, snapshot) for key, snapshot in zip(keys, stored)]
        new = store_reader.new_payloads(view, keys, [snapshot.newest for snapshot in snapshots], block)
        rows = self._columns.read_rows(keys, snapshots, new, places)
        return [
            None if snapshot is None and not block.count(at) else row
            for at, (snapshot, row) in enumerate(zip(stored, rows))
        ]


class OwnTable(Table):
    """A table for the one process that writes it."""

    def __init__(self, declaration: TableDeclaration, store: Store):
        super().__init__(declaration, store)
        self.store: Store = store
        self._folding = Folding(store, self._columns)
        self._writing, self._fold_lock = threading.Lock(), threading.Lock()
        self._closing = threading.Event()

    def declare(self, declaration: TableDeclaration) -> None:
        """Continue with a declaration that may have more columns at the end, another horizon or another `fold_after`."""
        if declaration != self.declaration:
            with self._fold_lock, self._writing:
                self.declaration, self._columns = declaration, Columns(declaration)
                self._folding = Folding(self.store, self._columns)

    def begin(self, generation: str) -> None:
        """Empty the table unless it has this generation already. Rows that were loaded before it had any generation stay."""
        with self._fold_lock, self._writing:
            present = self.store.read(store_reader.generation)
            if present == generation:
                return
            self._folding.restart()
            if present is not None:
                self.store.clear()
            self.store.write([(store_reader.GENERATION, generation.encode())])

    def ingest(self, files: Sequence[Path], marker: bytes) -> None:
        """Ingest the runs of a batch exactly once: if the batch is in the table already, remove the remaining files."""
        with self._writing:
            markers = {other for _, other, _ in self.store.read(store_reader.runs)}
            ingested, later = marker in markers, any(other > marker for other in markers)
            there = [file for file in files if file.exists()]
            if not ingested and len(there) == len(files):
                if files:
                    self.store.ingest(files)
                return
            if not ingested and not later:
                missing = next(file for file in files if file not in there)
                name = self.declaration.name
                raise DamagedState(
                    f'a run of table "{name}" is missing: {missing}',
                    f"rebuild the table from its streams with `hayase reset {name} --from earliest` and the next run",
                )
            for file in there:
                durable.remove(file)

    def read_store(self, work: Callable[[View], Result]) -> Result:
        """Call `work` with a view of the store and return its result; it must have no side effects and may be called again."""
        return self.store.read(work)

    def load(self, files: Sequence[Path]) -> None:
        """Ingest the files of a bulk load, with snapshots and facts, atomically and not during a fold."""
        with self._fold_lock, self._writing:
            self._folding.restart()
            self.store.ingest(files)

    def fold(self, before: int, keep_from: int, stop: Callable[[], bool] = lambda: False) -> int:
        """Fold payloads with an event time < before into snapshots; return how many were folded.

        Events with a time < keep_from cannot be repeated; for all others marks remain that they are counted. Reads and ingestions
        continue meanwhile. If `stop` returns True, the fold stops early, and the next call continues from there.
        """
        with self._fold_lock:
            return self._folding.fold(before, keep_from, lambda: stop() or self._closing.is_set())

    def forget_changes(self, passed: Iterable[bytes]) -> None:
        """Delete the keys that batches have changed, up to the least of the markers in `passed`; of all batches if it is empty."""
        with self._writing:
            forget_changes(self.store, list(passed))

    def close(self) -> None:
        """Close the store; a fold in progress stops."""
        self._closing.set()
        with self._fold_lock, self._writing:
            super().close()


def open_own(path: Path, declaration: TableDeclaration) -> OwnTable:
    """Open the table in a directory for the process that writes it; create it if it does not exist."""
    return OwnTable(declaration, open_store(path))


def open_reader(path: Path, declaration: TableDeclaration) -> Table:
    """Open the table in a directory for reading, in any process, while another may write it. `refresh` shows new writes."""
    return Table(declaration, open_readable(path))


def open_with_staged(path: Path, declaration: TableDeclaration, files: Sequence[Path]) -> Table:
    """Open the table in a directory for reading, as it is once these staged runs have been taken in."""
    from hayase.tables.rocksdb import StagedRuns
    from hayase.tables.staged_store import StagedStore

    runs = StagedRuns(files)
    try:
        return Table(declaration, StagedStore(open_readable(path), runs))
    except BaseException:
        runs.close()
        raise


def _end(as_of: int | None) -> bytes | None:
    """Return the bytes below which versions count as of a time; None for all."""
    return None if as_of is None or as_of >= _LAST_TIME else since(max(as_of, -_LAST_TIME - 2) + 1)
