"""Results as a Delta table: one commit for each interval, exactly once by the table's own `txn` action.

A commit carries the number of the write as the version of the application `hayase/HOME/OUTPUT`; the table refuses a second commit
of the same application that was prepared beside it. The cursor behind a write stands in the metadata of its commit, and in the home
before it is committed, since a table forgets the metadata of old commits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from hayase.connectors.change_texts import key_texts
from hayase.connectors.file_stores import local_path
from hayase.connectors.lake_rows import lake_rows, lake_schema
from hayase.connectors.sink import APPEARS, Changes, Position, Sink, SinkSetting
from hayase.connectors.sink_notes import SinkNotes
from hayase.core.errors import EndpointError, PositionMoved
from hayase.storage import is_address

__all__ = ["DeltaSink"]

METADATA = "hayase"
"""The key of a commit's metadata that holds application, number and cursor of a write."""
_SEARCHED = 1_000
"""Commits in which the cursor is looked for if the home does not have it."""


class DeltaSink(Sink):
    """A Delta table that gets changes or rows, or mirrors the present rows by a key."""

    def __init__(self, setting: SinkSetting):
        self._setting, self._options = setting, setting.options
        path = self._options["path"]
        self._uri = path if is_address(path) else str(local_path(path, setting.beside))
        self._storage = _storage_options(path)
        self._application = f"hayase/{setting.home}/{setting.output}"
        self._notes = SinkNotes(setting)
        self._table: DeltaTable | None = None
        self._at: Position | None = None
        self.every = self._options["every"] / 1e6

    def position(self) -> Position | None:
        with self._explained():
            try:
                self._table = DeltaTable(self._uri, storage_options=self._storage)
            except TableNotFoundError:
                self._table = None
            number = None if self._table is None else self._table.transaction_version(self._application)
        self._at = None if number is None else Position(number, self._notes.cursor(number) or self._searched(number))
        return self._at

    def write(self, changes: Changes) -> None:
        if changes.since != self._at:
            raise PositionMoved(f"{self._uri} holds {self._at}, not {changes.since}", "start the output again")
        self._notes.keep(changes)
        commit = self._commit(changes.until)
        with self._explained():
            if self._options["emit"] == "mirror" and self._table is not None and self._at and not changes.anew:
                self._merge(self._table, changes.rows, commit)
            else:
                self._append(changes, commit)
            self._table = DeltaTable(self._uri, storage_options=self._storage)
            if self._table.transaction_version(self._application) != changes.until.number:  # a merge without effect
                nothing = lake_rows(changes.rows.slice(0, 0), self._emit, _stored)
                write_deltalake(self._table, nothing, mode="append", commit_properties=commit)
        self._at = changes.until

    @property
    def _emit(self) -> str:
        return "rows" if self._options["emit"] == "mirror" else str(self._options["emit"])

    def _append(self, changes: Changes, commit: CommitProperties) -> None:
        """Append rows; after a reset, they replace all that the table has."""
        rows = changes.rows
        if self._options["emit"] == "mirror":
            rows = rows.take(pa.array(_last_of_keys(rows, self._options["key"]), pa.int64()))
        if self._table is None:
            self._table = self._created()
        write_deltalake(
            self._table,
            lake_rows(rows, self._emit, _stored),
            mode="overwrite" if changes.anew else "append",
            schema_mode="overwrite" if changes.anew else "merge",
            commit_properties=commit,
        )

    def _created(self) -> DeltaTable:
        """Create the table without rows; PositionMoved if another process was quicker."""
        schema = lake_schema(self._setting.rows, self._emit, _stored)
        try:
            return DeltaTable.create(self._uri, schema, mode="error", storage_options=self._storage)
        except DeltaError as error:
            if DeltaTable.is_deltatable(self._uri, self._storage):
                raise PositionMoved(f"another process has created {self._uri}", "start the output again") from error
            raise

    def _merge(self, table: DeltaTable, changes: pa.Table, commit: CommitProperties) -> None:
        """Bring the rows of the keys that have changed up to date."""
        last = changes.take(pa.array(_last_of_keys(changes, self._options["key"]), pa.int64()))
        every = last.set_column(last.column_names.index(APPEARS), APPEARS, pa.repeat(pa.scalar(True), last.num_rows))
        source = lake_rows(every, "rows", _stored)
        names, gone = source.column_names, "_gone"
        while gone in names:
            gone = f"_{gone}"
        source = source.append_column(gone, pa.array([not is_there for is_there in last.column(APPEARS).to_pylist()]))
        values = {_quoted(name): f"s.{_quoted(name)}" for name in names}
        same = " AND ".join(
            f"t.{_quoted(name)} IS NOT DISTINCT FROM s.{_quoted(name)}" for name in self._options["key"]
        )
        merging = table.merge(source, same, source_alias="s", target_alias="t", commit_properties=commit)
        merging = merging.when_matched_delete(f"s.{_quoted(gone)}").when_matched_update(values)
        merging.when_not_matched_insert(values, f"NOT s.{_quoted(gone)}").execute()

    def _commit(self, until: Position) -> CommitProperties:
        about = {"application": self._application, "number": until.number, "cursor": until.cursor}
        return CommitProperties(
            custom_metadata={METADATA: json.dumps(about)},
            app_transactions=[Transaction(self._application, until.number)],
        )

    def _searched(self, number: int) -> str:
        """Return the cursor behind a write from the metadata of its commit."""
        with self._explained():
            commits = [] if self._table is None else self._table.history(_SEARCHED)
        for commit in commits:
            about = json.loads(commit.get(METADATA) or "{}")
            if (about.get("application"), about.get("number")) == (self._application, number):
                return str(about["cursor"])
        raise EndpointError(
            f"write {number} of this output is in {self._uri}, but neither the home nor the last {_SEARCHED} commits know where it "
            "ended", "give the output another path, and remove this table",
        )  # fmt: skip

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except CommitFailedError as error:
            raise PositionMoved(f"another process writes to {self._uri}: {error}", "start the output again") from error
        except (DeltaError, OSError) as error:
            raise EndpointError(
                f"{self._uri} fails: {str(error)[:300]}", "check the path and the credentials"
            ) from error


def _stored(kind: pa.DataType) -> pa.DataType:
    """Delta has no unsigned integers and no times of day: they are decimals and texts, as in Spark programs."""
    if kind == pa.uint64():
        return pa.decimal128(20, 0)
    return pa.string() if pa.types.is_time(kind) else kind


def _last_of_keys(changes: pa.Table, key: tuple[str, ...]) -> list[int]:
    """Return the position of the last change of each key."""
    return list({name: at for at, name in enumerate(key_texts(changes, key))}.values())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _storage_options(path: str) -> dict[str, Any] | None:
    """Return what the store needs beside the variables of the environment: commits that only one writer can make."""
    if not path.startswith("s3://"):
        return None
    endpoint = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT") or ""
    return {"conditional_put": "etag", "allow_http": str(endpoint.startswith("http://")).lower()}
