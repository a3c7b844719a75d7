"""Loading: many rows into a table at once, all of them or none.

A row of a source names a key, and for some columns the parameter of their first method; null means none. It is an update
like an event's: its version is (time, number of the load and of the row), its source has a number that no stream has. Without
a column of times the time is 1970-01-01: any event sets a register anew, and so does a later load.

Rows are encoded lot by lot and sorted. What does not fit into memory lies in sorted runs on disk, which are cut at the same
keys, so that all rows of a key come together in one range and no two ranges overlap: a store takes such files as they are.
Rows of a key that has no snapshot yet become one, without being payloads first. Those of other keys are payloads, and so are
rows of a time as of which the table can still be read. All files of a load are written first and taken in by one atomic step;
what a load that was killed has left is removed by the next one. Memory is bounded but for the rows of one key.

Rows that do not fit go to the dead letters with their reasons, just before the others are taken in: if a load is killed at
that very moment and repeated, they are there twice.
"""

from __future__ import annotations

import shutil
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.clock import now_us
from hayase.core.declarations import TableDeclaration
from hayase.core.errors import HayaseError, StageChanged, UnknownName
from hayase.streams import StreamLog, durable
from hayase.streams.dead_letters import DEAD, dead_table
from hayase.streams.typed_columns import Fitted, fit_arrow, fit_values
from hayase.tables import TYPES, store_reader
from hayase.tables.entries import UpdateColumn, pack_columns
from hayase.tables.load_rows import first_snapshots
from hayase.tables.load_sources import Lot, Rows, Wanted, lots_of
from hayase.tables.load_values import deltas_of, keys_of
from hayase.tables.rows import Columns, RowSnapshot
from hayase.tables.stores import FACT, PAYLOAD, ROW, View, run_of
from hayase.tables.table import OwnTable
from hayase.tables.types import ColumnType
from hayase.tables.versions import many_to_bytes, since

__all__ = ["LOAD", "SOURCE", "Loaded", "Progress", "load"]

LOAD = "load"
"""The stage that stands in dead letters of rows that were refused here."""
SOURCE = 239
"""The number of loads among the sources of a table: no stream has it."""
LOADS = FACT + b"loads"
"""How often a table was loaded, and what its columns were then."""

Progress = Callable[[int, int], None]
"""Told how many rows have been read so far, and how many written."""

_IN_MEMORY, _BYTES_IN_MEMORY = 200_000, 64 << 20
"""Rows, and bytes of them, that are sorted at once."""
_SAMPLED = 4_096
"""One key out of so many is looked at to say where ranges end."""
_ASKED = 10_000
"""Keys that are looked up at once."""
_ROW_BITS = 40
_BINARY = pa.large_binary()
_NO_ROW = RowSnapshot(b"", ())


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a load came to: its number, the rows that are in the table and those that were refused, and for how many keys
    a snapshot was made at once; rows of the others will be folded into theirs."""

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
    """Load rows into a table of a home, whose lock the caller holds.

    `key` says for parts of the key which column they are, if not the one of that name; `time` names a column of event times,
    as timestamps, ISO texts or microseconds; `form` and `schema` are for files (`load_sources`).
    """
    declaration = table.declaration
    known = table.look(lambda view: _Known.of(view, declaration))
    encoder = _Encoder(declaration, known.loads + 1, key or {}, time)
    wanted = encoder.wanted(ignore_others)
    place = home / "loads"
    shutil.rmtree(place, ignore_errors=True)
    room = place / declaration.name
    durable.make_directory(room)
    try:
        runs, letters = _Runs(room), _Letters(room / "letters.arrow", declaration.name, clock())
        read = 0
        for lot in lots_of(rows, wanted, form=form, schema=schema):
            runs.add(encoder.encoded(lot, read, letters))
            read += lot.count
            progress(read, 0)
        output = _Output(table, encoder.places, room, known.limit)
        for some in runs.ranges():
            output.write(some)
            progress(read, output.rows)
        letters.send(home)
        if output.rows:
            output.write_facts(known)
            table.load(output.files)
        return Loaded(known.loads + 1 if output.rows else known.loads, output.rows, letters.count, output.snapshots)
    finally:
        with suppress(OSError):  # the next load removes what is left
            shutil.rmtree(place)


class _Known(NamedTuple):
    """What a table says of itself before a load: how often it was loaded, the time before which rows can be snapshots, and
    its counts."""

    loads: int
    limit: int
    counts: store_reader.Counts

    @classmethod
    def of(cls, view: View, declaration: TableDeclaration) -> _Known:
        found = view.get(LOADS)
        told: dict[str, Any] = orjson.loads(found) if found is not None else {"loads": 0}
        key, columns = told.get("key", list(declaration.key)), [tuple(each) for each in told.get("columns", ())]
        if tuple(key) != declaration.key or list(declaration.columns[: len(columns)]) != columns:
            names = ", ".join(name for name, _ in columns)
            raise StageChanged(
                f'table "{declaration.name}" was loaded with the key ({", ".join(key)}) and the columns {names}; put that '
                "back, or give the table another name"
            )
        return cls(told["loads"], max(store_reader.folded_before(view) or 1, 1), store_reader.counts(view))


# ---------------------------------------------------------------------------------------------------- encoding


class _Encoder:
    """Turns rows into keys, versions and deltas."""

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
        return Wanted(needed, others, self._declaration.name, ignore_others)

    def encoded(self, lot: Lot, before: int, letters: _Letters) -> pa.Table:
        """The rows of a lot that fit: key, time, number, and the deltas of the columns by their places."""
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
        for at, reason in lot.unreadable.items():
            reasons[at] = [reason]
        found = pa.table(columns)
        if not reasons:
            return found
        broken = sorted(reasons)
        letters.add(lot.texts(broken), [lot.where(at) + "; ".join(reasons[at]) for at in broken])
        keep = np.ones(lot.count, bool)
        keep[broken] = False
        return found.filter(pa.array(keep))

    def _numbers(self, before: int, count: int) -> np.ndarray:
        if before + count >= 1 << _ROW_BITS or self._number >= 1 << (62 - _ROW_BITS):
            raise HayaseError(f'table "{self._declaration.name}" was loaded too often, or with too many rows at once')
        return (self._number << _ROW_BITS) + np.arange(before, before + count, dtype=np.int64)

    def _times(self, lot: Lot, reasons: dict[int, list[str]]) -> np.ndarray:
        if self._time is None:
            return np.zeros(lot.count, np.int64)
        given = lot.columns.get(self._time, pa.nulls(lot.count))
        target = pa.field(self._time, pa.timestamp("us", tz="UTC"))
        fitted: Fitted
        if isinstance(given, list) and {int, NoneType}.issuperset(map(type, given)):
            with suppress(OverflowError):
                given = pa.array(given, pa.int64())
        if isinstance(given, list):
            fitted = fit_values(given, target)
        elif pa.types.is_integer(given.type):
            fitted = Fitted(pa.chunked_array([given.cast(pa.int64()).cast(target.type)]))
        else:
            fitted = fit_arrow(pa.chunked_array([given]), target, parse=True)
        for at, reason in fitted.reasons.items():
            reasons.setdefault(at, []).append(reason)
        times = fitted.column.cast(pa.int64())
        for at in np.flatnonzero(times.is_null().to_numpy()).tolist():
            reasons.setdefault(at, [f'column "{self._time}" is null, and is the time'])
        return pc.fill_null(times, 0).to_numpy()


@dataclass
class _Letters:
    """Rows that were refused, on disk until the others are ready."""

    path: Path
    table: str
    now: int
    count: int = 0
    _writer: pa.RecordBatchFileWriter | None = None

    def add(self, records: list[str], reasons: list[str]) -> None:
        letters = dead_table(LOAD, None, self.table, None, records, reasons, 1, self.now)
        if self._writer is None:
            self._writer = pa.ipc.new_file(str(self.path), letters.schema)
        self._writer.write_table(letters)
        self.count += len(records)

    def send(self, home: Path) -> None:
        """Append them to the dead letters."""
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
    """Rows that come in any order, and leave in that of their keys, in ranges that fit into memory."""

    room: Path
    _waiting: list[pa.Table] = field(default_factory=list)
    _files: list[Path] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        count, size = sum(each.num_rows for each in self._waiting), sum(each.nbytes for each in self._waiting)
        if count >= _IN_MEMORY or size >= _BYTES_IN_MEMORY:
            self._spill()

    def _spill(self) -> None:
        path = self.room / f"{len(self._files):06d}.arrow"
        rows = _sorted(self._waiting)
        self._waiting = []
        with pa.ipc.new_file(str(path), rows.schema) as writer:
            writer.write_table(rows, max_chunksize=_SAMPLED)
        self._files.append(path)

    def ranges(self) -> Iterator[pa.Table]:
        """All rows, range by range; no key is in two of them."""
        if not self._files:
            if sum(each.num_rows for each in self._waiting):
                yield _sorted(self._waiting)
            return
        if sum(each.num_rows for each in self._waiting):
            self._spill()
        runs = [pa.ipc.open_file(pa.memory_map(str(path))).read_all() for path in self._files]
        size = max(1, sum(run.nbytes for run in runs) // max(1, sum(run.num_rows for run in runs)))
        together = max(_SAMPLED, min(_IN_MEMORY, _BYTES_IN_MEMORY // size))
        sampled = sorted(key for run in runs for key in _samples(run))
        ends = sampled[together // _SAMPLED :: together // _SAMPLED]
        starts = [0] * len(runs)
        for end in [*dict.fromkeys(ends), None]:
            stops = [run.num_rows if end is None else _place(run, end) for run in runs]
            parts = [run.slice(at, to - at) for run, at, to in zip(runs, starts, stops) if to > at]
            starts = stops
            if parts:
                yield _sorted(parts)


def _sorted(tables: list[pa.Table]) -> pa.Table:
    """Rows in the order of their keys; those of one key in the order in which they came."""
    whole = pa.concat_tables(tables).combine_chunks()
    return whole.take(pc.sort_indices(whole.column("key")))


def _samples(run: pa.Table) -> list[bytes]:
    return list(run.column("key").take(pa.array(np.arange(0, run.num_rows, _SAMPLED))).to_pylist())


def _place(run: pa.Table, key: bytes) -> int:
    """How many rows of a run have a lesser key."""
    column = run.column("key")
    return bisect_left(range(run.num_rows), key, key=lambda at: column[at].as_py())


# ---------------------------------------------------------------------------------------------------- writing


class _Output:
    """Files for the store, of rows that come in the order of their keys."""

    def __init__(self, table: OwnTable, places: list[int], room: Path, limit: int):
        self._table, self._places, self._room, self._limit = table, places, room, limit
        self._columns = Columns(table.declaration)
        self.files: list[Path] = []
        self.rows = self.snapshots = self._payloads = 0

    def write(self, rows: pa.Table) -> None:
        """Write the rows of some keys, all there are of these."""
        keys = rows.column("key").combine_chunks()
        changes = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
        first = np.concatenate((np.ones(min(len(keys), 1), bool), changes))
        unique = keys.filter(pa.array(first)).to_pylist()
        times = rows.column("time").to_numpy()
        fresh = ~self._there(unique)[np.cumsum(first) - 1] & (times < self._limit)
        versions = pa.array(many_to_bytes(times, rows.column("row").combine_chunks(), SOURCE), _BINARY)
        deltas = {place: rows.column(f"{place}").combine_chunks() for place in self._places}
        if not fresh.all():
            self._write_payloads(keys, versions, deltas, pa.array(~fresh))
        if fresh.any():
            self._write_rows(keys, versions, deltas, fresh)
        self.rows += len(rows)

    def _there(self, keys: list[bytes]) -> np.ndarray:
        """Which keys have a snapshot already."""
        span = (ROW + keys[0], store_reader.behind_all(ROW + keys[-1]))
        found = np.zeros(len(keys), bool)
        if self._table.look(lambda view: next(view.scan(*span), None)) is None:
            return found
        for at in range(0, len(keys), _ASKED):
            asked = [ROW + key for key in keys[at : at + _ASKED]]
            there = self._table.look(lambda view: view.get_many(asked))  # noqa: B023
            found[at : at + _ASKED] = [each is not None for each in there]
        return found

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
        """A snapshot for every key."""
        mine = pa.array(fresh)
        keys, versions, deltas = keys.filter(mine), versions.filter(mine), _filtered(deltas, mine)
        changes = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
        first, last = np.concatenate(([True], changes)), np.concatenate((changes, [True]))
        alone = pa.array(first & last)
        ordered = keys.filter(alone).to_pylist()
        made = self._single(keys.filter(alone), versions.filter(alone), _filtered(deltas, alone))
        if len(ordered) < len(keys):
            shared = pc.invert(alone)
            folded = self._shared(keys.filter(shared), versions.filter(shared), _filtered(deltas, shared))
            whole = dict(zip(ordered, made)) | folded
            ordered = sorted(whole)
            made = [whole[each] for each in ordered]
        self._write_file(ROW, ordered, made)
        self.snapshots += len(ordered)

    def _single(self, keys: pa.Array, versions: pa.Array, deltas: Mapping[int, pa.Array]) -> list[bytes]:
        """The snapshots of keys that have one row each."""
        columns = [deltas.get(place) for place in range(len(self._columns.types))]
        return first_snapshots(self._columns, keys, versions, columns) if len(keys) else []

    def _shared(self, keys: pa.Array, versions: pa.Array, deltas: Mapping[int, pa.Array]) -> dict[bytes, bytes]:
        """The snapshots of keys that have several rows."""
        values = _packed(keys, versions, deltas).column(1).to_pylist()
        groups: dict[bytes, list[tuple[bytes, bytes]]] = {}
        for key, version, value in zip(keys.to_pylist(), versions.to_pylist(), values):
            groups.setdefault(key, []).append((version, value))
        return {key: self._columns.folded(key, _NO_ROW, sorted(entries)) for key, entries in groups.items()}

    def write_facts(self, known: _Known) -> None:
        """What the table says of itself after the load; part of the same step."""
        counts, declaration = known.counts, self._table.declaration
        counted = store_reader.Counts(counts.rows + self.snapshots, counts.payloads + self._payloads, counts.marker)
        columns = [list(each) for each in declaration.columns]
        told = {"loads": known.loads + 1, "key": list(declaration.key), "columns": columns}
        facts = {store_reader.COUNTS: counted.to_bytes(), LOADS: orjson.dumps(told)}
        if self.snapshots:
            facts[store_reader.FOLDED_BEFORE] = since(self._limit)
        self._write_file(b"", sorted(facts), [facts[each] for each in sorted(facts)])

    def _write_file(self, prefix: bytes, keys: list[bytes], values: list[bytes]) -> None:
        from hayase.tables.rocksdb import write_sorted

        path = self._room / f"{len(self.files):06d}.run"
        write_sorted(path, (prefix + keys[0], values[0]), prefix, keys[1:], values[1:])
        self.files.append(path)


def _filtered(deltas: Mapping[int, pa.Array], mine: pa.Array) -> dict[int, pa.Array]:
    return {place: column.filter(mine) for place, column in deltas.items()}


def _packed(keys: pa.Array, versions: pa.Array, deltas: Mapping[int, pa.Array]) -> pa.RecordBatch:
    return pack_columns(keys, versions, [UpdateColumn(place, 0, column) for place, column in deltas.items()])
