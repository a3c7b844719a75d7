"""Results as Parquet files of a directory or an object store, partitioned by date if that is wanted.

The position is in the target, in `_hayase/OUTPUT.json`, which is only replaced if nobody else has replaced it. Before a write its
files are named there, and behind it they are not. A file is only created, never written over: a write that was interrupted is
taken back by the next process, which removes its files, or creates them empty where they were not there, so that nobody can create
them later.
"""

from __future__ import annotations

import io
import re
import uuid
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from urllib.parse import quote

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hayase.connectors.file_stores import open_store
from hayase.connectors.lake_rows import lake_rows, lake_schema
from hayase.connectors.sink import TIME, Changes, Position, Sink, SinkSetting
from hayase.core.data_classes import dataclass
from hayase.core.errors import EndpointError, PositionMoved
from hayase.storage.directory_store import DRAFTS
from hayase.streams.sealed import seal, unseal

__all__ = ["ParquetSink"]

KIND = "position of an output"
REMEDY = "remove it together with the files of the output: they are written again"


@dataclass(frozen=True, slots=True)
class _State:
    """What the target says: who writes, how far it got, and the files of a write that is not complete."""

    home: str
    number: int = 0
    cursor: str = ""
    writing: tuple[str, ...] = ()

    @property
    def position(self) -> Position | None:
        return Position(self.number, self.cursor) if self.number else None


class ParquetSink(Sink):
    """A directory of Parquet files, or a prefix in an object store."""

    def __init__(self, setting: SinkSetting):
        self._setting, self._options = setting, setting.options
        self._place, _ = open_store(self._options["path"], setting.beside)
        self._files = self._place.files
        self._name = f"{DRAFTS}/{setting.output}.json"
        self._state = _State(setting.home)
        self._version: str | None = None
        self._token = uuid.uuid4().hex[:12]
        self.every = self._options["every"] / 1e6

    def position(self) -> Position | None:
        self._state, self._version = self._stored()
        if self._setting.keep is not None:
            self._place.remove_drafts()
        if self._state.writing and self._setting.keep is not None:
            self._take_back(self._state.writing)
            self._replace(replace(self._state, writing=()))
        return self._state.position

    def write(self, changes: Changes) -> None:
        before = self._state
        if changes.since != before.position:
            raise PositionMoved(
                f"{self._options['path']} holds {before.position}, not {changes.since}", "start the output again"
            )
        files = dict(self._contents(changes))
        if files or changes.anew:
            self._replace(replace(before, writing=tuple(files)))
        if changes.anew:
            own = re.compile(rf"(?:.*/)?{re.escape(self._setting.output)}-\d+-[0-9a-f]+\.parquet")
            self._files.delete([file.name for file in self._files.list_after() if own.fullmatch(file.name)])
        for name, data in files.items():
            if self._files.create(name, data) is None:
                raise self._moved()
        self._replace(_State(before.home, changes.until.number, changes.until.cursor))

    def _contents(self, changes: Changes) -> Iterator[tuple[str, bytes]]:
        """Yield the names and contents of the files of a write."""
        emit = self._options["emit"]
        for directory, part in self._partitions(changes.rows):
            rows = lake_rows(part, emit)
            if rows.num_rows:
                name = f"{self._setting.output}-{changes.until.number:010d}-{self._token}.parquet"
                yield f"{directory}{name}", _file(rows)

    def _partitions(self, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        by = self._options["partition_by"]
        if not by:
            yield "", rows
            return
        names = self._setting.rows.names
        column = rows.column(by) if by in names else rows.column(TIME).cast(pa.timestamp("us", tz="UTC"))
        directory = by if by not in names or pa.types.is_date(column.type) else f"{by}_date"
        dates = column.cast(pa.date32())
        for date in sorted(pc.unique(dates).to_pylist(), key=str):
            of_date = dates.is_null() if date is None else pc.fill_null(pc.equal(dates, date), False)
            value = "__HIVE_DEFAULT_PARTITION__" if date is None else str(date)
            yield f"{quote(directory)}={value}/", rows.filter(of_date)

    def _take_back(self, names: tuple[str, ...]) -> None:
        """See to it that none of these files has records, now or later."""
        empty = _file(lake_schema(self._setting.rows, self._options["emit"]).empty_table())
        there = [name for name in names if self._files.create(name, empty) is None]
        self._files.delete(there)

    def _stored(self) -> tuple[_State, str | None]:
        stored = self._files.read(self._name)
        if stored is None:
            return _State(self._setting.home), None
        path = Path(self._options["path"]) / self._name
        data = orjson.loads(unseal(stored[0], KIND, path, REMEDY))
        state = _State(data["home"], data["number"], data["cursor"], tuple(data["writing"]))
        if state.home != self._setting.home and self._setting.keep is not None:
            raise EndpointError(
                f'another home writes its output "{self._setting.output}" to {self._options["path"]}',
                "give one of the two another directory or another name",
            )
        return state, stored[1]

    def _replace(self, state: _State) -> None:
        data = seal(KIND, orjson.dumps({**asdict(state), "writer": self._token}))  # tells our write from another's
        if self._version is None:
            version = self._files.create(self._name, data)
        else:
            version = self._files.replace(self._name, data, self._version)
        if version is None:
            raise self._moved()
        self._state, self._version = state, version

    def _moved(self) -> PositionMoved:
        return PositionMoved(f"another process writes to {self._options['path']}", "start the output again")


def _file(rows: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(rows, out, compression="zstd")
    return out.getvalue()
