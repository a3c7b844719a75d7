"""The reading API of a table: the row of a key, rows by key prefix, all rows, now or as of an event time.

A table can be read while the pipeline runs or not; each read sees everything that is committed.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from hayase.core.data_frames import Frames
from hayase.core.declarations import TableDeclaration
from hayase.core.errors import HayaseError
from hayase.core.times import instant

if TYPE_CHECKING:
    import pyarrow as pa

    from hayase.tables.bulk_load import Loaded
    from hayase.tables.entries import Key
    from hayase.tables.load_sources import Rows
    from hayase.tables.payloads import Json
    from hayase.tables.table import OwnTable, Page, Row, Table, TableInfo

__all__ = ["TableResults", "Time"]

Time = datetime | str | int
"""An event time: a datetime, ISO text, or microseconds."""
Owning: TypeAlias = "Callable[[Path, TableDeclaration], AbstractContextManager[OwnTable]]"
"""Opens a table of a home for writing, exclusively."""
PAGE_ROWS = 1000
SHOWN_ROWS = 10
"""Rows that a notebook shows."""


class TableResults(Frames):
    """The rows of a table. A row is a dict of its columns; unless it was requested by its key, it contains the key too.

    `as_of` reads the table as of that event time: all updates up to then and none later, whenever they arrived; TooOld if older
    updates are folded. Parts of keys are texts, numbers or booleans; 1 and "1" are different keys. Any number of threads may read.
    """

    def __init__(
        self,
        path: Path,
        declaration: TableDeclaration,
        open_for_writing: Owning | None = None,
        check: Callable[[Table], None] = lambda table: None,
    ):
        """`check` raises if a table that is opened for reading lacks updates that were committed."""
        self.path, self.declaration = path, declaration
        self._owning, self._check = open_for_writing, check
        self._reader: Table | None = None
        self._lock = threading.Lock()

    # -- by key ---------------------------------------------------------------------------------------------------------
    def get(self, *key: Json, as_of: Time | None = None, columns: Sequence[str] | None = None) -> Row | None:
        """Return all or some columns of a key; None if the table does not contain it. Give all parts of a composite key."""
        return self._now().get(key, columns=_names(columns), as_of=_moment(as_of))

    def get_many(
        self, keys: Iterable[Json], *, as_of: Time | None = None, columns: Sequence[str] | None = None
    ) -> list[Row | None]:
        """Return the rows of many keys, all from one state of the table. A composite key is a tuple."""
        whole = [key if isinstance(key, (tuple, list)) else (key,) for key in keys]
        return self._now().get_many(whole, columns=_names(columns), as_of=_moment(as_of))

    # -- many -----------------------------------------------------------------------------------------------------------
    def scan(
        self,
        *prefix: Json,
        text_prefix: str | None = None,
        limit: int | None = 100,
        as_of: Time | None = None,
        columns: Sequence[str] | None = None,
    ) -> list[Row]:
        """Return the first rows whose keys begin with these parts, in the order of their keys.

        `text_prefix` is a prefix of the next part, a text. Without a limit, all such rows are returned.
        """
        rows: list[Row] = []
        for page in self._pages(prefix, text_prefix, limit, as_of, columns):
            rows += self._rows(page)
            if limit is not None and len(rows) >= limit:
                break
        return rows[:limit]

    def rows(self, *, as_of: Time | None = None, columns: Sequence[str] | None = None) -> Iterator[Row]:
        """Yield all rows in the order of their keys, from the state of the table at the first row."""
        for page in self._pages((), None, None, as_of, columns):
            yield from self._rows(page)

    def __iter__(self) -> Iterator[Row]:
        return self.rows()

    def batches(self, *, as_of: Time | None = None, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows as Arrow batches, in bounded memory; `hayase.tables.lookups` lists the Arrow types.

        The parts of the key are strings like a register: a text as it is, anything else as JSON. A number of a Counter
        or MapCounter that no double holds raises HayaseError.
        """
        for page in self._pages((), None, None, as_of, columns):
            if page.rows:
                yield self._batch(page.rows, _names(columns))

    def reader(self, *, as_of: Time | None = None, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """Return the batches as an Arrow reader, which has their schema also if there are none."""
        import pyarrow as pa

        schema = self._batch((), _names(columns)).schema
        return pa.RecordBatchReader.from_batches(schema, self.batches(as_of=as_of, columns=columns))

    def batch_of(
        self, keys: Iterable[Json], *, as_of: Time | None = None, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Return the rows of some keys as one Arrow batch, each once; keys that the table does not contain are left out."""
        from hayase.tables.entries import key_bytes

        whole = [tuple(key) if isinstance(key, (tuple, list)) else (key,) for key in keys]
        different = list({key_bytes(key): key for key in whole}.values())
        found = self._now().get_many(different, columns=_names(columns), as_of=_moment(as_of))
        rows = [(key, row) for key, row in zip(different, found) if row is not None]
        return self._batch(rows, _names(columns))

    def to_arrow(self, as_of: Time | None = None, *, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows as one Arrow table. `to_pandas`, `to_polars` and `to_duckdb` take the same arguments."""
        return self.reader(as_of=as_of, columns=columns).read_all()

    def table(self, *, as_of: Time | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """Like `to_arrow`."""
        return self.to_arrow(as_of, columns=columns)

    # -- rows in --------------------------------------------------------------------------------------------------------
    def load(
        self,
        rows: Rows,
        *,
        key: Mapping[str, str] | None = None,
        time: str | None = None,
        ignore_others: bool = False,
        format: str | None = None,
        schema: str | None = None,
        progress: Callable[[int, int], None] = lambda read, written: None,
    ) -> Loaded:
        """Load rows, all or none: a file (CSV, NDJSON, Parquet), Arrow data, a data frame, or dicts. The pipeline must not run.

        Columns have the names of the parts of the key and of the table's columns; `key={"user": "user_id"}` maps a part to a column
        of another name. A value is the parameter of the column's first method; null means no update. Events override loaded
        registers, unless `time` names a column of event times (integers are microseconds). `schema` declares the types of CSV
        columns ("user_id string"), which are inferred otherwise. `progress` is called with the numbers of rows read and written.
        """
        from hayase.tables.bulk_load import load

        if self._owning is None:
            raise HayaseError(f'table "{self.declaration.name}" is open for reading only; load it by p.table(...).load')
        home = self.path.parent.parent
        with self._owning(home, self.declaration) as table:
            return load(
                table, home, rows,
                key=key, time=time, ignore_others=ignore_others, form=format, schema=schema, progress=progress,
            )  # fmt: skip

    # -- about it -------------------------------------------------------------------------------------------------------
    def info(self) -> TableInfo:
        """Return the approximate size of the table, and from which event time on it can be read."""
        return self._now().info()

    def close(self) -> None:
        """Close the table's files; the next read opens them again."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
            self._reader = None

    def __enter__(self) -> TableResults:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        key, columns = ", ".join(self.declaration.key), ", ".join(self.declaration.column_names)
        return f"<table {self.declaration.name}: {key} -> {columns}>"

    def _repr_html_(self) -> str:
        from hayase.core.html_tables import rows_html

        head = f"<p>{escape(repr(self)[1:-1])}</p>"
        try:
            rows = self.scan(limit=SHOWN_ROWS + 1)
        except (HayaseError, OSError) as error:  # a notebook would hide it
            return f"<div>{head}<p>{escape(str(error))}</p></div>"
        names = [*self.declaration.key, *self.declaration.column_names]
        remark = f"the first {SHOWN_ROWS} of more rows" if len(rows) > SHOWN_ROWS else ""
        return f"<div>{head}{rows_html(names, rows[:SHOWN_ROWS], remark)}</div>"

    # -- how it is read -------------------------------------------------------------------------------------------------
    def _open(self) -> Table:
        from hayase.tables.table import open_reader  # loads RocksDB

        reader = open_reader(self.path, self.declaration)
        try:
            self._check(reader)
        except BaseException:
            reader.close()
            raise
        return reader

    def _now(self) -> Table:
        """Return the table with all commits. It is opened once, and closed when this object is garbage."""
        with self._lock:
            if self._reader is None:
                self._reader = self._open()
                weakref.finalize(self, self._reader.close)
            else:
                self._reader.refresh()
            return self._reader

    def _pages(
        self,
        prefix: tuple[Json, ...],
        text_prefix: str | None,
        limit: int | None,
        as_of: Time | None,
        columns: Sequence[str] | None,
    ) -> Iterator[Page]:
        """Yield pages from one state of the table, which is opened for them; the last may exceed the limit."""
        names, moment = _names(columns), _moment(as_of)
        size = PAGE_ROWS if limit is None else max(1, min(limit, PAGE_ROWS))
        reader, after = self._open(), None
        try:
            while True:
                page = reader.scan(
                    prefix, text_prefix=text_prefix, after=after, limit=size, columns=names, as_of=moment
                )
                yield page
                after = page.next
                if after is None:
                    return
        finally:
            reader.close()

    def _rows(self, page: Page) -> Iterator[Row]:
        for key, row in page.rows:
            yield {**dict(zip(self.declaration.key, key, strict=True)), **row}

    def _batch(self, rows: Sequence[tuple[Key, Row]], columns: Sequence[str] | None) -> pa.RecordBatch:
        from hayase.tables.export_rows import export_rows

        return export_rows(self.declaration, rows, columns)


def _names(columns: Sequence[str] | None) -> Sequence[str] | None:
    """Return the names of columns as a sequence; a single name may be given as a text."""
    return (columns,) if isinstance(columns, str) else columns


def _moment(time: Time | None) -> int | None:
    return None if time is None else instant(time)
