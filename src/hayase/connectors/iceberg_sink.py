"""Results as an Iceberg table: one commit for each interval, with the position in the table's properties.

Rows and position are one transaction of the table, which the catalog refuses if the table has got another snapshot meanwhile. The
position also stands in the summary of the snapshot, for people.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import TableProperties

from hayase.connectors.file_stores import local_path
from hayase.connectors.lake_rows import lake_rows, lake_schema
from hayase.connectors.sink import Changes, Position, Sink, SinkSetting
from hayase.core.errors import EndpointError, PositionMoved
from hayase.storage import is_address
from hayase.streams import durable

__all__ = ["IcebergSink"]

CATALOG = "hayase"
"""The name of the catalog in the home."""


class IcebergSink(Sink):
    """An Iceberg table that gets changes or rows."""

    def __init__(self, setting: SinkSetting):
        self._setting, self._options = setting, setting.options
        self._name = self._options["table"]
        self._property = f"hayase.{setting.home}.{setting.output}"
        self._table: Any = None
        self._at: Position | None = None
        self.every = self._options["every"] / 1e6
        with self._explained():
            self._catalog = self._opened()

    def position(self) -> Position | None:
        self._table = self._at = None
        if self._catalog is not None:
            with self._explained():
                try:
                    self._table = self._catalog.load_table(self._name)
                except NoSuchTableError:
                    return None
            stored = json.loads(self._table.properties.get(self._property, "null"))
            self._at = None if stored is None else Position(stored["number"], stored["cursor"])
        return self._at

    def write(self, changes: Changes) -> None:
        if changes.since != self._at:
            raise PositionMoved(f"{self._name} holds {self._at}, not {changes.since}", "start the output again")
        rows = lake_rows(changes.rows, self._options["emit"], _stored)
        position = json.dumps({"number": changes.until.number, "cursor": changes.until.cursor})
        with self._explained():
            if self._table is None:
                self._table = self._created()
            # here only: a transaction that is tried again on another snapshot would follow a write of another process
            self._table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
            with self._table.transaction() as transaction:
                if set(rows.column_names) - {field.name for field in self._table.schema().fields}:
                    with transaction.update_schema() as update:
                        update.union_by_name(rows.schema)
                if changes.anew:
                    transaction.delete(AlwaysTrue())
                transaction.append(rows, snapshot_properties={self._property: position})
                transaction.set_properties({self._property: position})
        self._at = changes.until

    def close(self) -> None:
        if self._catalog is not None:
            self._catalog.close()

    def _opened(self) -> Catalog | None:
        """Return the catalog; None if it would have to be created, and nothing may be."""
        if self._options["catalog"]:
            return load_catalog(self._options["catalog"])
        keep, path = self._setting.keep, self._options["path"]
        if keep is None:
            return None
        durable.make_directory(keep)
        warehouse = path if is_address(path) else local_path(path, self._setting.beside).absolute().as_uri()
        return load_catalog(
            CATALOG,
            type="sql",
            uri=f"sqlite:///{keep.absolute()}/catalog.db",
            warehouse=warehouse,
        )

    def _created(self) -> Any:
        if self._catalog is None:
            raise EndpointError(f"{self._name} has no catalog without a home")
        with suppress(NamespaceAlreadyExistsError):
            self._catalog.create_namespace(self._name.partition(".")[0])
        schema = lake_schema(self._setting.rows, self._options["emit"], _stored)
        try:
            return self._catalog.create_table(self._name, schema=schema)
        except TableAlreadyExistsError as error:
            raise PositionMoved(f"another process has created {self._name}", "start the output again") from error

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (EndpointError, PositionMoved):
            raise
        except CommitFailedException as error:
            raise PositionMoved(f"another process writes to {self._name}: {error}", "start the output again") from error
        except Exception as error:  # pyiceberg raises what its catalogs and file systems raise
            text = f"{type(error).__name__}: {error}"[:300]
            raise EndpointError(
                f"{self._name} fails: {text}", "check the catalog, the path and the credentials"
            ) from error


def _stored(kind: pa.DataType) -> pa.DataType:
    """Iceberg has neither small nor unsigned integers: they are integers and decimals."""
    if kind in (pa.int8(), pa.int16()):
        return pa.int32()
    return pa.decimal128(20, 0) if kind == pa.uint64() else kind
