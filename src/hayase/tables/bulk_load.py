"""Bulk load: many rows into a table at once, all or none.

A row of a source has a key and, for some columns, the parameter of their first method; null means no update. A row is an update
like an event's: its version is (time, number of the load and of the row), and its source has a number that no stream has. Without
a time column the time is 1970-01-01, so that any event, and a later load, overwrites a register.

Rows are encoded in portions and sorted. Rows that do not fit into memory are spilled to sorted runs on disk. All runs are cut at
the same keys, so that a range has all rows of its keys and no two ranges overlap, as ingestion into a store requires. Rows of keys
without a snapshot become snapshots directly. Rows of other keys become payloads, and so do rows with a time as of which the table
can still be read. All files of a load are written first and ingested in one atomic step; the next load removes the files of one
that was killed. Memory is bounded except for the rows of a single key.

Rows that do not fit become dead letters just before the ingestion of the others: if a load is killed at that moment and repeated,
they are there twice.
"""

from __future__ import annotations

import shutil
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.clock import now_us
from hayase.core.data_classes import dataclass
from hayase.core.declarations import TableDeclaration
from hayase.core.errors import HayaseError, StageChanged, UnknownName
from hayase.core.reasons import Reason, ReasonKind
from hayase.streams import StreamLog, durable
from hayase.streams.dead_letters import DEAD, dead_table
from hayase.streams.typed_columns import Fitted, fit_arrow, fit_values
from hayase.tables import TYPES, store_reader
from hayase.tables.counters import Counter
from hayase.tables.entries import UpdateColumn, pack_columns
from hayase.tables.load_rows import first_snapshots
from hayase.tables.load_sources import Lot, Rows, Wanted, lots_of
from hayase.tables.load_values import deltas_of, keys_of
from hayase.tables.rows import Columns, RowSnapshot
from hayase.tables.sketches import Quantiles
from hayase.tables.stores import LOADS, PAYLOAD, ROW, View, run_of
from hayase.tables.table import OwnTable
from hayase.tables.types import ColumnType
from hayase.tables.versions import many_to_bytes, since

__all__ = ["LOAD", "SOURCE", "Loaded", "Progress", "load"]

LOAD = "load"
"""The stage name in the dead letters of refused rows."""
SOURCE = 239
"""The source number of loads, which no stream has."""

Progress = Callable[[int, int], None]
"""Called with the number of rows read so far and the number written."""

IN_MEMORY, _BYTES_IN_MEMORY = 200_000, 64 << 20
"""How many rows, and how many bytes of rows, are sorted in memory."""
SAMPLED = 4_096
"""One key out of so many is sampled to choose the ends of ranges."""
_ASKED = 10_000
"""How many keys are looked up at once."""
_ROW_BITS = 40
_BINARY = pa.large_binary()
_NO_ROW = RowSnapshot(b"", ())


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of a load: its number, the numbers of loaded and of refused rows, and for how many keys a snapshot was written
    directly. The rows of other keys are payloads, to be folded later."""

    number: int
    rows: int
    refused: int
    snapshots: int


def load(
    table: OwnTable,
    home: Path,
    rows: Rows,
    *,
    key: Mapping[str, str] | None = None,
    time: str | None = None,
    ignore_others: bool = False,
    form: str | None = None,
    schema: str | None = None,
    progress: Progress = lambda read, written: None,
    clock: Callable[[], int] = now_us,
) -> Loaded:
    """Load rows into a table of a home. The caller holds the lock of the home.

    `key` maps parts of the key to columns of another name; `time` names a column of event times, as timestamps, ISO texts or
    microseconds; `form` and `schema` are for files (`load_sources`).
    """
    declaration = table.declaration
    before = table.read_store(lambda view: _TableFacts.of(view, declaration))
    encoder = _Encoder(declaration, before.loads + 1, key or {}, time)
    wanted = encoder.wanted(ignore_others)
    loads_directory = home / "loads"
    shutil.rmtree(loads_directory, ignore_errors=True)
    directory = loads_directory / declaration.name
    durable.make_directory(directory)
    try:
        runs, letters = _Runs(directory), _Letters(directory / "letters.arrow", declaration.name, clock())
        read = 0
        for lot in lots_of(rows, wanted, form=form, schema=schema):
            runs.add(encoder.encoded(lot, read, letters))
            read += lot.count
            progress(read, 0)
        output = _Output(table, encoder.places, directory, before.limit)
        for range_rows in runs.ranges():
            output.write(range_rows)
            progress(read, output.rows)
        letters.send(home)
        if output.rows:
            output.write_facts(before)
            table.load(output.files)
        return Loaded(before.loads + 1 if output.rows else before.loads, output.rows, letters.count, output.snapshots)
    finally:
        with suppress(OSError):  # the next load removes what is left
            shutil.rmtree(loads_directory)


class _TableFacts(NamedTuple):
    """The facts of a table before a load: how often it was loaded, the time before which rows can become snapshots, its
    counts."""

    loads: int
    limit: int
    counts: store_reader.Counts

    @classmethod
    def of(cls, view: View, declaration: TableDeclaration) -> _TableFacts:
        stored = view.get(LOADS)
        facts: dict[str, Any] = orjson.loads(stored) if stored is not None else {"loads": 0}
        key, columns = facts.get("key", list(declaration.key)), [tuple(column) for column in facts.get("columns", ())]
        if tuple(key) != declaration.key or list(declaration.columns[: len(columns)]) != columns:
            names = ", ".join(name for name, _ in columns)
            raise StageChanged(
                f'table "{declaration.name}" was loaded with the key ({", ".join(key)}) and the columns {names}; put that '
                "back, or give the table another name"
            )
        return cls(facts["loads"], max(store_reader.folded_before(view) or 1, 1), store_reader.counts(view))


# ---------------------------------------------------------------------------------------------------- encoding


class _Encoder:
    """Encodes rows as keys, versions and deltas."""

    def __init__(self, declaration: TableDeclaration, number: int, key: Mapping[str, str], time: str | None):
        for part in key:
            if part not in declaration.key:
                raise UnknownName("part of the key", part, declaration.key, f' of table "{declaration.name}"')
        self._declaration, self._number, self._time = declaration, number, time
        self._key = [key.get(part, part) for part in declaration.key]
        self.places = [place for place, name in enumerate(declaration.column_names) if name not in self._key]
        self._types: list[ColumnType[Any]] = [TYPES[kind]() for _, kind in declaration.columns]

    def wanted(self, ignore_others: bool) -> Wanted:
        needed = tuple(dict.fromkeys([*self._key, *([] if self._time is None else [self._time])]))
        others = tuple(self._declaration.column_names[place] for place in self.places)
        numeric = {
            self._declaration.column_names[place]
            for place in self.places
            if isinstance(self._types[place], Counter | Quantiles)
        }
        return Wanted(needed, others, self._declaration.name, ignore_others, frozenset(numeric))

    def encoded(self, lot: Lot, before: int, letters: _Letters) -> pa.Table:
        """Return the rows of a portion that fit: key, time, number, and a column of deltas for each place. Add the others to
        the dead letters; `before` is the number of rows read earlier."""
        nothing = pa.nulls(lot.count)
        keys = keys_of([lot.columns.get(name, nothing) for name in self._key])
        reasons: dict[int, list[str]] = {at: [reason] for at, reason in keys.reasons.items()}
        times = self._times(lot, reasons)
        columns = {"key": keys.bytes, "time": pa.array(times), "row": pa.array(self._numbers(before, lot.count))}
        for place in self.places:
            name = self._declaration.column_names[place]
            if name in lot.columns:
                deltas = deltas_of(self._types[place], lot.columns[name])
                for at, reason in deltas.reasons.items():
                    reasons.setdefault(at, []).append(f'column "{name}": {reason}')
                columns[f"{place}"] = deltas.bytes
            else:
                columns[f"{place}"] = pa.nulls(lot.count, _BINARY)
        unfit = {at: Reason(ReasonKind.SCHEMA, "; ".join(texts)) for at, texts in reasons.items()} | dict(lot.unfit)
        rows = pa.table(columns)
        if not unfit:
            return rows
        broken = sorted(unfit)
        placed = [unfit[at]._replace(text=lot.where(at) + unfit[at].text) for at in broken]
        letters.add(lot.texts(broken), placed)
        keep = np.ones(lot.count, bool)
        keep[broken] = False
        return rows.filter(pa.array(keep))

    def _numbers(self, before: int, count: int) -> np.ndarray:
        if before + count >= 1 << _ROW_BITS or self._number >= 1 << (62 - _ROW_BITS):
            raise HayaseError(f'table "{self._declaration.name}" was loaded too often, or with too many rows at once')
        return (self._number << _ROW_BITS) + np.arange(before, before + count, dtype=np.int64)

    def _times(self, lot: Lot, reasons: dict[int, list[str]]) -> np.ndarray:
        if self._time is None:
            return np.zeros(lot.count, np.int64)
        values = lot.columns.get(self._time, pa.nulls(lot.count))
        target = pa.field(self._time, pa.timestamp("us", tz="UTC"))
        fitted: Fitted
        if isinstance(values, list) and {int, NoneType}.issuperset(map(type, values)):
            with suppress(OverflowError):
                values = pa.array(values, pa.int64())
        if isinstance(values, list):
            fitted = fit_values(values, target)
        elif pa.types.is_integer(values.type):
            fitted = Fitted(pa.chunked_array([values.cast(pa.int64()).cast(target.type)]))
        else:
            fitted = fit_arrow(pa.chunked_array([values]), target, parse=True)
        for at, reason in fitted.reasons.items():
            reasons.setdefault(at, []).append(reason)
        times = fitted.column.cast(pa.int64())
        for at in np.flatnonzero(times.is_null().to_numpy()).tolist():
            reasons.setdefault(at, [f'column "{self._time}" is null, and is the time'])
        return pc.fill_null(times, 0).to_numpy()


@dataclass
class _Letters:
    """The dead letters of refused rows, in a file until the other rows are written."""

    path: Path
    table: str
    now: int
    count: int = 0
    _writer: pa.RecordBatchFileWriter | None = None

    def add(self, records: list[str], reasons: list[Reason]) -> None:
        letters = dead_table(LOAD, None, self.table, None, records, reasons, 1, self.now)
        if self._writer is None:
            self._writer = pa.ipc.new_file(str(self.path), letters.schema)
        self._writer.write_table(letters)
        self.count += len(records)

    def send(self, home: Path) -> None:
        """Append them to the stream of dead letters."""
        if self._writer is None:
            return
        self._writer.close()
        log = StreamLog.ensure(home, DEAD)
        with pa.memory_map(str(self.path)) as source:
            file = pa.ipc.open_file(source)
            for at in range(file.num_record_batches):
                log.append(pa.Table.from_batches([file.get_batch(at)]), now=self.now)


# ---------------------------------------------------------------------------------------------------- sorting


@dataclass
class _Runs:
    """An external sort: takes rows in any order and returns them in the order of their keys, in ranges that fit into memory."""

    directory: Path
    _waiting: list[pa.Table] = field(default_factory=list)
    _files: list[Path] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        count, size = sum(table.num_rows for table in self._waiting), sum(table.nbytes for table in self._waiting)
        if count >= IN_MEMORY or size >= _BYTES_IN_MEMORY:
            self._spill()

    def _spill(self) -> None:
        path = self.directory / f"{len(self._files):06d}.arrow"
        rows = _sorted(self._waiting)
        self._waiting = []
        with pa.ipc.new_file(str(path), rows.schema) as writer:
            writer.write_table(rows, max_chunksize=SAMPLED)
        self._files.append(path)

    def ranges(self) -> Iterator[pa.Table]:
        """Yield all rows, range by range; a key is in one range only."""
        if not self._files:
            if sum(table.num_rows for table in self._waiting):
                yield _sorted(self._waiting)
            return
        if sum(table.num_rows for table in self._waiting):
            self._spill()
        runs = [pa.ipc.open_file(pa.memory_map(str(path))).read_all() for path in self._files]
        size = max(1, sum(run.nbytes for run in runs) // max(1, sum(run.num_rows for run in runs)))
        together = max(SAMPLED, min(IN_MEMORY, _BYTES_IN_MEMORY // size))
        sampled = sorted(key for run in runs for key in _samples(run))
        ends = sampled[together // SAMPLED :: together // SAMPLED]
        starts = [0] * len(runs)
        for end in [*dict.fromkeys(ends), None]:
            stops = [run.num_rows if end is None else _place(run, end) for run in runs]
            parts = [run.slice(at, to - at) for run, at, to in zip(runs, starts, stops) if to > at]
            starts = stops
            if parts:
                yield _sorted(parts)


def _sorted(tables: list[pa.Table]) -> pa.Table:
    """Sort rows by key; rows of one key stay in the order of arrival."""
    whole = pa.concat_tables(tables).combine_chunks()
    return whole.take(pc.sort_indices(whole.column("key")))


def _samples(run: pa.Table) -> list[bytes]:
    return list(run.column("key").take(pa.array(np.arange(0, run.num_rows, SAMPLED))).to_pylist())


def _place(run: pa.Table, key: bytes) -> int:
    """Return how many rows of a run have a lesser key."""
    column = run.column("key")
    return bisect_left(range(run.num_rows), key, key=lambda at: column[at].as_py())


# ---------------------------------------------------------------------------------------------------- writing


class _Output:
    """Writes files for the store from rows in the order of their keys."""

    def __init__(self, table: OwnTable, places: list[int], directory: Path, limit: int):
        self._table, self._places, self._directory, self._limit = table, places, directory, limit
        self._columns = Columns(table.declaration)
        self.files: list[Path] = []
        self.rows = self.snapshots = self._payloads = 0

    def write(self, rows: pa.Table) -> None:
        """Write a range: all rows of some keys."""
        keys = rows.column("key").combine_chunks()
        changes = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
        first = np.concatenate((np.ones(min(len(keys), 1), bool), changes))
        unique = keys.filter(pa.array(first)).to_pylist()
        times = rows.column("time").to_numpy()
        fresh = ~self._have_snapshot(unique)[np.cumsum(first) - 1] & (times < self._limit)
        versions = pa.array(many_to_bytes(times, rows.column("row").combine_chunks(), SOURCE), _BINARY)
        deltas = {place: rows.column(f"{place}").combine_chunks() for place in self._places}
        if not fresh.all():
            self._write_payloads(keys, versions, deltas, pa.array(~fresh))
        if fresh.any():
            self._write_rows(keys, versions, deltas, fresh)
        self.rows += len(rows)

    def _have_snapshot(self, keys: list[bytes]) -> np.ndarray:
        """Return which keys have a snapshot."""
        span = (ROW + keys[0], store_reader.end_of_prefix(ROW + keys[-1]))
        exists = np.zeros(len(keys), bool)
        if self._table.read_store(lambda view: next(view.scan(*span), None)) is None:
            return exists
        for at in range(0, len(keys), _ASKED):
            asked = [ROW + key for key in keys[at : at + _ASKED]]
            snapshots = self._table.read_store(lambda view: view.get_many(asked))  # noqa: B023
            exists[at : at + _ASKED] = [snapshot is not None for snapshot in snapshots]
        return exists

    def _write_payloads(
        self, keys: pa.Array, versions: pa.Array, deltas: Mapping[int, pa.Array], mine: pa.Array
    ) -> None:
        packed = _packed(keys.filter(mine), versions.filter(mine), _filtered(deltas, mine))
        _, entries, values = run_of("", [packed], b"")
        self._write_file(PAYLOAD, entries, values)
        self._payloads += len(entries)

    def _write_rows(
        self, keys: pa.Array, versions: pa.Array, deltas: Mapping[int, pa.Array], fresh: np.ndarray
    ) -> None:
        """Write a snapshot for every key."""
        mine = pa.array(fresh)
        keys, versions, deltas = keys.filter(mine), versions.filter(mine), _filtered(deltas, mine)
        changes = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
        first, last = np.concatenate(([True], changes)), np.concatenate((changes, [True]))
        alone = pa.array(first & last)
        ordered = keys.filter(alone).to_pylist()
        snapshots = self._snapshots_of_single_rows(keys.filter(alone), versions.filter(alone), _filtered(deltas, alone))
        if len(ordered) < len(keys):
            shared = pc.invert(alone)
            folded = self._folded_snapshots(keys.filter(shared), versions.filter(shared), _filtered(deltas, shared))
            whole = dict(zip(ordered, snapshots)) | folded
            ordered = sorted(whole)
            snapshots = [whole[key] for key in ordered]
        self._write_file(ROW, ordered, snapshots)
        self.snapshots += len(ordered)

    def _snapshots_of_single_rows(
        self, keys: pa.Array, versions: pa.Array, deltas: Mapping[int, pa.Array]
    ) -> list[bytes]:
        """Return the snapshots of keys that have one row each."""
        columns = [deltas.get(place) for place in range(len(self._columns.types))]
        return first_snapshots(self._columns, keys, versions, columns) if len(keys) else []

    def _folded_snapshots(
        self, keys: pa.Array, versions: pa.Array, deltas: Mapping[int, pa.Array]
    ) -> dict[bytes, bytes]:
        """Return the snapshots of keys that have several rows."""
        values = _packed(keys, versions, deltas).column(1).to_pylist()
        groups: dict[bytes, list[tuple[bytes, bytes]]] = {}
        for key, version, value in zip(keys.to_pylist(), versions.to_pylist(), values):
            groups.setdefault(key, []).append((version, value))
        return {key: self._columns.fold(key, _NO_ROW, sorted(entries)) for key, entries in groups.items()}

    def write_facts(self, before: _TableFacts) -> None:
        """Write the facts of the table after the load, as part of the same ingestion."""
        counts, declaration = before.counts, self._table.declaration
        counted = store_reader.Counts(counts.rows + self.snapshots, counts.payloads + self._payloads, counts.marker)
        columns = [list(column) for column in declaration.columns]
        loads = {"loads": before.loads + 1, "key": list(declaration.key), "columns": columns}
        facts = {store_reader.COUNTS: counted.to_bytes(), LOADS: orjson.dumps(loads)}
        if self.snapshots:
            facts[store_reader.FOLDED_BEFORE] = since(self._limit)
        self._write_file(b"", sorted(facts), [facts[name] for name in sorted(facts)])

    def _write_file(self, prefix: bytes, keys: list[bytes], values: list[bytes]) -> None:
        from hayase.tables.rocksdb import write_sorted

        path = self._directory / f"{len(self.files):06d}.run"
        write_sorted(path, (), prefix, keys, values)
        self.files.append(path)


def _filtered(deltas: Mapping[int, pa.Array], mine: pa.Array) -> dict[int, pa.Array]:
    return {place: column.filter(mine) for place, column in deltas.items()}


def _packed(keys: pa.Array, versions: pa.Array, deltas: Mapping[int, pa.Array]) -> pa.RecordBatch:
    return pack_columns(keys, versions, [UpdateColumn(place, 0, column) for place, column in deltas.items()])
