"""A conflict-free table: rows read from snapshots and the payloads since, batches taken in once, old payloads folded.

A row is what all payloads of its key come to, each counted once, whatever the order in which they came. With `as_of` it is
what those come to whose event time is not later, whenever they arrived. Folding changes no answer, but ends how far back
a table can be read: `folded_before`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from hayase.core.declarations import TableDeclaration
from hayase.core.errors import DamagedState, HayaseError
from hayase.core.times import instant_text
from hayase.streams import durable
from hayase.tables import store_reader
from hayase.tables.entries import Key, behind, key_bytes, key_from
from hayase.tables.fold import Folding
from hayase.tables.payloads import Json, UnfitParameter, value_bytes
from hayase.tables.rows import Columns, Entry
from hayase.tables.store_reader import behind_all, uncounted
from hayase.tables.stores import PAYLOAD, ROW, Result, Store, View, open_secondary, open_store
from hayase.tables.versions import since

__all__ = ["OwnTable", "Page", "Row", "Table", "TableInfo", "TooOld", "open_own", "open_reader"]

Row = dict[str, Json]

_LAST_TIME = 2**63 - 1


class TooOld(HayaseError):
    """A table was asked for as of a time before which its payloads are folded: what it was then is not known any more."""

    def __init__(self, table: str, as_of: int, oldest: int):
        self.table, self.as_of, self.oldest = table, as_of, oldest
        told = f'table "{table}" cannot be read as of {instant_text(as_of)}'
        super().__init__(
            f"{told}: older updates are folded; the oldest time that can be asked for is {instant_text(oldest)}"
        )


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows in the order of their keys, and where the next page begins: None if there are no more."""

    rows: list[tuple[Key, Row]]
    next: bytes | None


@dataclass(frozen=True, slots=True)
class TableInfo:
    """What a table comes to; keys and payloads are estimates."""

    keys: int
    payloads: int
    bytes: int
    folded_before: int | None
    generation: str | None


class Table:
    """A table for reading. Any number of threads may use it."""

    def __init__(self, declaration: TableDeclaration, store: Store):
        self.declaration = declaration
        self._store = store
        self._columns = Columns(declaration)

    def get(self, key: Sequence[Json], *, columns: Sequence[str] | None = None, as_of: int | None = None) -> Row | None:
        """The row of a key; None if the table has no such key, or had none then."""
        return self.get_many([key], columns=columns, as_of=as_of)[0]

    def get_many(
        self, keys: Sequence[Sequence[Json]], *, columns: Sequence[str] | None = None, as_of: int | None = None
    ) -> list[Row | None]:
        """The rows of some keys, all as the table is at one moment."""
        return self.get_encoded([self._key(key) for key in keys], columns=columns, as_of=as_of)

    def get_encoded(
        self, keys: Sequence[bytes], *, columns: Sequence[str] | None = None, as_of: int | None = None
    ) -> list[Row | None]:
        """The same for keys whose bytes are known (`entries.key_bytes`)."""
        places, end = self._columns.places(columns), _end(as_of)

        def read(view: View) -> list[Row | None]:
            self._check(view, as_of)
            snapshots = view.get_many([ROW + key for key in keys])
            return [self._row(view, key, found, end, places) for key, found in zip(keys, snapshots)]

        return self._store.read(read)

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
        """Rows in the order of their keys: those whose first parts are `prefix`, and the part behind it begins with
        `text_prefix`; behind the page whose `next` is `after`."""
        if limit < 1:
            raise UnfitParameter(f"a page of {limit} rows", "ask for at least one")
        start = self._prefix(prefix, text_prefix)
        stop = behind(start)
        if after is not None:
            following = behind(after)
            if following is None or (stop is not None and following >= stop):
                return Page([], None)
            start = max(start, following)
        places = self._columns.places(columns)

        def read(view: View) -> list[tuple[bytes, Row]]:
            self._check(view, as_of)
            keys = store_reader.keyed(view, start, stop, limit + 1)
            return list(islice(self._rows(view, keys, _end(as_of), places), limit + 1))

        rows = self._store.read(read)
        more = len(rows) > limit
        return Page([(key_from(key), row) for key, row in rows[:limit]], rows[limit - 1][0] if more else None)

    def folded_before(self) -> int | None:
        """The event time up to which payloads are folded: as of t can be answered if t >= folded_before - 1."""
        return self._store.read(store_reader.folded_before)

    def info(self) -> TableInfo:
        """What the table comes to. Keys without a snapshot are estimated from the first payloads."""
        size = self._store.size()

        def read(view: View) -> TableInfo:
            keys, payloads = store_reader.about_keys(view), store_reader.payloads(view)
            return TableInfo(keys, payloads, size, store_reader.folded_before(view), store_reader.generation(view))

        return self._store.read(read)

    def refresh(self) -> None:
        """See what the pipeline's process wrote since; for a table that was opened for reading."""
        self._store.refresh()

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()

    def _key(self, key: Sequence[Json]) -> bytes:
        if len(key) != len(self.declaration.key):
            raise self._unfit(len(key))
        return key_bytes(key)

    def _prefix(self, parts: Sequence[Json], text: str | None) -> bytes:
        length = len(parts) + (text is not None)
        if length > len(self.declaration.key):
            raise self._unfit(length)
        begun = b"" if text is None else value_bytes(text)[:-1]
        return key_bytes(parts) + begun

    def _unfit(self, length: int) -> UnfitParameter:
        parts = ", ".join(self.declaration.key)
        return UnfitParameter(f'a key of {length} parts for table "{self.declaration.name}"', f"its key is ({parts})")

    def _check(self, view: View, as_of: int | None) -> None:
        if as_of is not None:
            folded = store_reader.folded_before(view)
            if folded is not None and as_of < folded - 1:
                raise TooOld(self.declaration.name, as_of, folded - 1)

    def _row(
        self, view: View, key: bytes, stored: bytes | None, end: bytes | None, places: Sequence[int]
    ) -> Row | None:
        head = PAYLOAD + key
        cut = len(head)
        found = view.scan(head, behind_all(head) if end is None else head + end)
        return self._made(view, key, stored, [(entry[cut:], value) for entry, value in found], places)

    def _rows(
        self,
        view: View,
        keys: Iterable[tuple[bytes, bytes | None, list[Entry]]],
        end: bytes | None,
        places: Sequence[int],
    ) -> Iterator[tuple[bytes, Row]]:
        for key, stored, entries in keys:
            within = entries if end is None else [entry for entry in entries if entry[0] < end]
            row = self._made(view, key, stored, within, places)
            if row is not None:
                yield key, row

    def _made(
        self, view: View, key: bytes, stored: bytes | None, entries: Sequence[Entry], places: Sequence[int]
    ) -> Row | None:
        """The row of a snapshot and of entries; None if there are neither."""
        if stored is None and not entries:
            return None
        snapshot = self._columns.opened(key, stored)
        return self._columns.read(key, snapshot, uncounted(view, key, snapshot.newest, entries), places)


class OwnTable(Table):
    """A table for the one process that writes it."""

    def __init__(self, declaration: TableDeclaration, store: Store):
        super().__init__(declaration, store)
        self._folding = Folding(store, self._columns)
        self._writing, self._fold_lock = threading.Lock(), threading.Lock()
        self._closing = threading.Event()

    def declare(self, declaration: TableDeclaration) -> None:
        """Go on with a declaration that may have more columns, behind the others, or other ages."""
        if declaration != self.declaration:
            with self._fold_lock, self._writing:
                self.declaration, self._columns = declaration, Columns(declaration)
                self._folding = Folding(self._store, self._columns)

    def begin(self, generation: str) -> None:
        """Empty the table, unless it is of this generation already. What was loaded before it had any stays."""
        with self._fold_lock, self._writing:
            known = self._store.read(store_reader.generation)
            if known == generation:
                return
            self._folding.restart()
            if known is not None:
                self._store.clear()
            self._store.write([(store_reader.GENERATION, generation.encode())])

    def ingest(self, files: Sequence[Path], marker: bytes) -> None:
        """Take in the runs of a batch, once: if it is in, what is left of the files is removed."""
        with self._writing:
            markers = {each for _, each, _ in self._store.read(store_reader.runs)}
            known, later = marker in markers, any(each > marker for each in markers)
            there = [file for file in files if file.exists()]
            if not known and len(there) == len(files):
                if files:
                    self._store.ingest(files)
                return
            if not known and not later:
                missing = next(file for file in files if file not in there)
                name = self.declaration.name
                raise DamagedState(
                    f'a run of table "{name}" is missing: {missing}; rebuild the table from its streams with '
                    f"`hayase reset {name} --from earliest` and the next run"
                )
            for file in there:
                durable.remove(file)

    def look(self, work: Callable[[View], Result]) -> Result:
        """What some work makes of the store as it is now; it must change nothing, and may be done again."""
        return self._store.read(work)

    def load(self, files: Sequence[Path]) -> None:
        """Take in files that hold rows and facts too, all at once, while nobody folds."""
        with self._fold_lock, self._writing:
            self._folding.restart()
            self._store.ingest(files)

    def fold(self, before: int, keep_from: int, stop: Callable[[], bool] = lambda: False) -> int:
        """Fold payloads with an event time < before into snapshots; returns how many have gone.

        No event may come again whose time is < keep_from: for the others it is kept in mind that they are counted. Reads
        and ingestions go on meanwhile. `stop` is asked now and then; the next call goes on from there.
        """
        with self._fold_lock:
            return self._folding.fold(before, keep_from, lambda: stop() or self._closing.is_set())

    def close(self) -> None:
        """Let go of the store; a fold that is under way stops."""
        self._closing.set()
        with self._fold_lock, self._writing:
            super().close()


def open_own(path: Path, declaration: TableDeclaration) -> OwnTable:
    """The table in a directory, for the process that writes it; it is created if need be."""
    return OwnTable(declaration, open_store(path))


def open_reader(path: Path, declaration: TableDeclaration) -> Table:
    """The table in a directory, for reading in any process, whether or not one writes it. `refresh` shows what is new."""
    return Table(declaration, open_secondary(path))


def _end(as_of: int | None) -> bytes | None:
    """Versions below it count, as of a time."""
    return None if as_of is None or as_of >= _LAST_TIME else since(max(as_of, -_LAST_TIME - 2) + 1)
