"""The Spark data source `format("hayase")`: reads queries, tables and streams of a home, and writes its streams.

    spark.read.format("hayase").option("home", "./shop").option("query", "spend").load()
    spark.read.format("hayase").option("home", "./shop").option("table", "purchases").load()
    spark.read.format("hayase").option("home", "./shop").option("stream", "orders").load()
    spark.readStream.format("hayase").load("./shop/streams/orders")

The option `home`, and `query`, `table` or `stream`, select what is read; a stream also by the path of its directory. `.schema(...)`
may name some of the columns; then only these are read. Spark evaluates the filters of a query itself. Further options:

    a query     at                instant: the rows that are valid then; by default the latest final instant
                history           true: every row with its lifetime, in the columns valid_from and valid_to
    a table     at                event time: the rows as of that time
                key               only the row of this key; several parts as a JSON array
    a stream    from, to          offsets: records from <= offset < to; by default all records
                since, until      event times: records since <= time < until; segments without such records are skipped
                slices            number of tasks; by default one per core
    streaming   start             earliest (the default) or latest: where a query without a checkpoint begins
                max_rows          greatest number of records in one batch
                slices            as above
    writing     none              see `hayase.engine.spark.stream_sink`

An offset of a streaming query is {"stream": name, "next": offset}. Retention does not wait for such queries: a
query whose next records were removed fails with `OffsetGone`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader

from hayase.core.errors import HayaseError, UnknownName
from hayase.core.schemas import ddl, spark_schema
from hayase.engine.spark.relation_source import QueryRows, TableRows, open_table, query_schema, table_schema
from hayase.engine.spark.session import is_one_process
from hayase.engine.spark.stream_sink import BatchWriter, StreamWriter
from hayase.engine.spark.stream_source import StreamFollower, StreamRecords, expected_schema
from hayase.streams import StreamLog
from hayase.tables.table_results import TableResults

__all__ = ["HayaseSource", "register"]

_DEFAULT_PYTHON = "python3"
"""The interpreter that Spark runs unless it is told otherwise: not that of an environment that is not activated."""
_PLACE = ("home", "stream", "path")
_READING = (*_PLACE, "from", "to", "since", "until", "slices")
_ASKING = ("home", "query", "at", "history")
_LOOKING_UP = ("home", "table", "at", "key")
_FOLLOWING = (*_PLACE, "start", "max_rows", "slices")
_WRITING = (*_PLACE, "checkpointlocation")


def register(session: SparkSession) -> None:
    """Register `format("hayase")` in a session.

    On this machine, the session's Python processes run the interpreter of this program unless another one was chosen with
    PYSPARK_PYTHON, so that they find Hayase. On a cluster, set `spark.pyspark.python` to an interpreter that has it.
    """
    context = session.sparkContext
    if is_one_process(context.master) and context.pythonExec == _DEFAULT_PYTHON:
        context.pythonExec = sys.executable
    session.dataSource.register(HayaseSource)


class HayaseSource(DataSource):
    """The data source that Spark knows as `hayase`: the queries, tables and streams of a home."""

    @classmethod
    def name(cls) -> str:
        return "hayase"

    def schema(self) -> str:
        if "query" in self.options:
            return ddl(query_schema(*self._query()))
        if "table" in self.options:
            return ddl(table_schema(self._table()))
        _check_options(self.options, {*_READING, *_FOLLOWING, *_WRITING})
        return ddl(spark_schema(_log(self.options).declaration.shown_schema))

    def reader(self, schema: Any) -> DataSourceReader:
        if "query" in self.options:
            log, history = self._query()
            expected = expected_schema(schema, query_schema(log, history), f'query "{log.declaration.name}"')
            return QueryRows(log, expected, self.options.get("at"), history)
        if "table" in self.options:
            table = self._table()
            expected = expected_schema(schema, table_schema(table), f'table "{table.declaration.name}"')
            key, at = self.options.get("key"), self.options.get("at")
            return TableRows(self._asked_home(), table, expected, key, at)
        _check_options(self.options, _READING)
        return StreamRecords(_log(self.options), schema, self.options)

    def _query(self) -> tuple[StreamLog, bool]:
        """Return the log of the query's results, and whether its history is asked for."""
        _check_options(self.options, _ASKING)
        history = self.options.get("history", "false").lower()
        if history not in ("true", "false"):
            raise HayaseError(f'option history cannot be "{history}"; say "true" or "false"')
        if history == "true" and "at" in self.options:
            raise HayaseError("the history has all instants; leave out the option at, or history")
        return StreamLog.open(self._asked_home(), self.options["query"]), history == "true"

    def _table(self) -> TableResults:
        _check_options(self.options, _LOOKING_UP)
        return open_table(self._asked_home(), self.options["table"])

    def _asked_home(self) -> Path:
        if "home" not in self.options:
            raise HayaseError("say which home it is in, by the option home")
        return _absolute(self.options["home"])

    def streamReader(self, schema: Any) -> StreamFollower:  # noqa: N802 (Spark's name)
        for name in ("query", "table"):
            if name in self.options:
                raise HayaseError(
                    f"a {name} is read by spark.read; follow the records of a stream, by the option stream"
                )
        _check_options(self.options, _FOLLOWING)
        return StreamFollower(_log(self.options), schema, self.options)

    def writer(self, schema: Any, overwrite: bool) -> BatchWriter:
        return BatchWriter(*self._target(overwrite), schema.fieldNames())

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:  # noqa: N802
        return StreamWriter(*self._target(overwrite), schema.fieldNames())

    def _target(self, overwrite: bool) -> tuple[Path, str]:
        _check_options(self.options, _WRITING)
        home, name = _place(self.options)
        if overwrite:
            raise HayaseError(f'stream "{name}" only grows; write to it in append mode')
        return home, name


def _log(options: Mapping[str, str]) -> StreamLog:
    return StreamLog.open(*_place(options))


def _place(options: Mapping[str, str]) -> tuple[Path, str]:
    """Return home and stream. The path is absolute, since tasks may run in another directory."""
    path, home, stream = options.get("path"), options.get("home"), options.get("stream")
    if path is not None and home is None and stream is None:
        place = Path(path.removeprefix("file://")).absolute()
        if place.parent.name == "streams":
            return place.parent.parent, place.name
        raise HayaseError(f'"{path}" is not the path of a stream; write it like "<home>/streams/<name>"')
    if path is None and home is not None and stream is not None:
        return _absolute(home), stream
    raise HayaseError(
        "say which stream: by the options home and stream, or by the path <home>/streams/<name> alone; a query and a table have "
        "options of their own, query and table"
    )


def _absolute(home: str) -> Path:
    return Path(home.removeprefix("file://")).expanduser().absolute()


def _check_options(options: Mapping[str, str], known: Iterable[str]) -> None:
    for name in options:
        if name not in known:
            raise UnknownName("option", name, set(known) - {"checkpointlocation"}, ' of format("hayase") here')
