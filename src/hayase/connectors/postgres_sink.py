"""Results as the rows of a table of PostgreSQL: the present rows (mirror), or all rows with their times (history).

The position stands in the table `hayase_positions` and is written in the same transaction as the rows, so each change is in the
table exactly once. Whoever opens an output anew counts its `epoch` up; whoever wrote before is refused from then on.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from psycopg2 import sql
from pyarrow import csv

from hayase.connectors.postgres_client import Column, TableName, columns_of, connect, explained, table_name
from hayase.connectors.postgres_types import accepts, postgres_type, texts_of
from hayase.connectors.sink import APPEARS, HEADS, ROW, TIME, Changes, Position, Sink, SinkSetting
from hayase.core.errors import EndpointError, PositionMoved

__all__ = ["PostgresSink"]

POSITIONS = "hayase_positions"
ROW_ID, VALID_FROM, VALID_TO = "row_id", "valid_from", "valid_to"
_PRESENT = "__present"
_LONGEST_NAME = 63
"""Bytes of a name; PostgreSQL cuts longer ones."""
SESSION = {"lock_timeout": "30s", "statement_timeout": "10min", "idle_in_transaction_session_timeout": "60s"}
_CREATING = 0x68617961
"""The advisory lock under which tables are created."""


class PostgresSink(Sink):
    """A table that gets the rows of an output."""

    def __init__(self, setting: SinkSetting):
        self._setting, self._options = setting, setting.options
        self._key: Sequence[str] = setting.options["key"]
        self._is_history = setting.options["mode"] == "history"
        self._fields = {field.name: field for field in _own_fields(setting, self._is_history, self._key)}
        self._epoch: int | None = None
        """How often the output was opened; None if it has never written."""
        self._connection = connect(self._options, **SESSION)
        try:
            with self._transaction() as cursor:
                self._table = table_name(cursor, self._options["table"])
                self._positions = TableName(self._table.schema, POSITIONS)
                if existing := columns_of(cursor, self._table):
                    self._check_table(cursor, existing)
                else:
                    self._check_creatable(cursor)
        except BaseException:
            self._connection.close()
            raise

    def position(self) -> Position | None:
        with self._transaction() as cursor:
            found = None
            if columns_of(cursor, self._positions):
                cursor.execute(
                    sql.SQL(
                        "UPDATE {} SET epoch = epoch + 1 WHERE home = %s AND output = %s "
                        "RETURNING epoch, number, cursor, target"
                    ).format(self._positions.quoted),
                    self._names,
                )
                found = cursor.fetchone()
            if found is None:
                self._epoch = None
                return None
            epoch, number, at, target = found
            if target != str(self._table):
                raise EndpointError(
                    f'output "{self._setting.output}" has written to table "{target}", and is declared with "{self._table}"',
                    f"give the output another name, or delete its row in {self._positions}: then it begins anew",
                )
        self._epoch = epoch
        return Position(number, at)

    def write(self, changes: Changes) -> None:
        with self._transaction() as cursor:
            if self._epoch is None:
                self._begin(cursor, changes.since)
            else:
                self._lock_position(cursor, changes.since)
            if changes.anew:
                cursor.execute(sql.SQL("DELETE FROM {}").format(self._table.quoted))
            if self._is_history:
                self._write_history(cursor, changes.rows)
            elif self._key:
                self._write_by_key(cursor, changes.rows)
            else:
                self._write_by_row(cursor, changes.rows)
            cursor.execute(
                sql.SQL("UPDATE {} SET number = %s, cursor = %s WHERE home = %s AND output = %s").format(
                    self._positions.quoted
                ),
                (*changes.until, *self._names),
            )
        self._epoch = self._epoch or 1

    def close(self) -> None:
        self._connection.close()

    @property
    def _names(self) -> tuple[str, str]:
        return self._setting.home, self._setting.output

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Any]:
        """A transaction that is committed at the end, or rolled back."""
        with explained(self._options):
            try:
                with self._connection.cursor() as cursor:
                    yield cursor
                self._connection.commit()
            except BaseException:
                if not self._connection.closed:
                    self._connection.rollback()
                raise

    def _begin(self, cursor: Any, since: Position | None) -> None:
        """Make the table this output's: create it if it is missing; refuse one that has rows or belongs to another output."""
        if since is not None:
            raise PositionMoved(f'table "{self._table}" holds nothing, not {since}', "start the output again")
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATING,))
        self._ensure_positions(cursor)
        if not columns_of(cursor, self._table):
            self._create_table(cursor)
        cursor.execute(
            sql.SQL("SELECT home, output FROM {} WHERE target = %s OR (home, output) = (%s, %s)").format(
                self._positions.quoted
            ),
            (str(self._table), *self._names),
        )
        owner = cursor.fetchone()
        if owner == self._names:
            raise self._replaced()
        if owner is not None:
            raise EndpointError(
                f'table "{self._table}" is written by output "{owner[1]}" of the home {owner[0]}',
                f"name another table; or, if that output is gone, delete its row in {self._positions} and those of the table",
            )
        self._check_empty(cursor)
        cursor.execute(
            sql.SQL("INSERT INTO {} (home, output, target, epoch) VALUES (%s, %s, %s, 1)").format(
                self._positions.quoted
            ),
            (*self._names, str(self._table)),
        )

    def _lock_position(self, cursor: Any, since: Position | None) -> None:
        cursor.execute(
            sql.SQL("SELECT epoch, number, cursor FROM {} WHERE home = %s AND output = %s FOR UPDATE").format(
                self._positions.quoted
            ),
            self._names,
        )
        found = cursor.fetchone()
        if found is None or found[0] != self._epoch:
            raise self._replaced()
        stored = Position(found[1], found[2])
        if stored != since:
            raise PositionMoved(f'table "{self._table}" holds {stored}, not {since}', "start the output again")

    def _replaced(self) -> PositionMoved:
        return PositionMoved(
            f'another process writes to table "{self._table}" as output "{self._setting.output}"', "stop one of the two"
        )

    # -------------------------------------------------------------------------------------------------------- rows

    def _write_by_row(self, cursor: Any, rows: pa.Table) -> None:
        """Rows that appear are copied, rows that end are deleted by their number; one that does both leaves no trace."""
        numbers, appears = rows.column(ROW).to_numpy(), rows.column(APPEARS).to_numpy()
        begun, ended = numbers[appears], numbers[~appears]
        gone = np.setdiff1d(ended, begun)
        if len(gone):
            statement = sql.SQL("DELETE FROM {} WHERE {} = ANY(%s)")
            cursor.execute(statement.format(self._table.quoted, sql.Identifier(ROW_ID)), (gone.tolist(),))
        staying = rows.filter(pa.array(appears & ~np.isin(numbers, ended)))
        self._copy(cursor, self._table.quoted, {ROW_ID: _plain(staying.column(ROW)), **self._texts(staying)})

    def _write_history(self, cursor: Any, rows: pa.Table) -> None:
        """Rows that appear are copied, with the time of their end if it is known; the end of earlier ones is set."""
        numbers, appears = rows.column(ROW).to_numpy(), rows.column(APPEARS).to_numpy()
        times = self._times(rows.column(TIME))
        begun, ended = rows.filter(pa.array(appears)), np.flatnonzero(~appears)
        own = np.isin(numbers[ended], numbers[appears])
        ends = times.take(pa.array(ended)).take(pc.index_in(_plain(begun.column(ROW)), pa.array(numbers[ended])))
        columns = {ROW_ID: _plain(begun.column(ROW)), **self._texts(begun)}
        columns |= {VALID_FROM: times.filter(pa.array(appears)), VALID_TO: ends}
        self._copy(cursor, self._table.quoted, columns)
        earlier = ended[~own]
        if len(earlier):
            kind = self._time_type
            statement = (
                "UPDATE {} AS t SET {to} = e.at FROM unnest(%s::bigint[], %s::{kind}[]) AS e (id, at) WHERE t.{} = e.id"
            )
            query = sql.SQL(statement).format(
                self._table.quoted, sql.Identifier(ROW_ID), to=sql.Identifier(VALID_TO), kind=sql.SQL(kind)
            )
            cursor.execute(query, (numbers[earlier].tolist(), times.take(pa.array(earlier)).to_pylist()))

    def _write_by_key(self, cursor: Any, rows: pa.Table) -> None:
        """The last change of each key decides: its row is written, or removed if the change ends it."""
        texts = self._texts(rows)
        keys = pa.table({**{str(at): texts[name] for at, name in enumerate(self._key)}, "at": np.arange(rows.num_rows)})
        names = [str(at) for at in range(len(self._key))]
        last = keys.group_by(names).aggregate([("at", "max")]).column("at_max").combine_chunks().sort()
        net = pa.table({**texts, _PRESENT: _plain(rows.column(APPEARS))}).take(last)
        self._ensure_staged(cursor)
        staged = sql.Identifier("pg_temp", "hayase_changes")
        self._copy(cursor, staged, dict(zip(net.column_names, net.columns)))
        own = [name for name in self._fields if name not in self._key]
        parts = {
            "table": self._table.quoted, "staged": staged, "columns": _listed(self._fields), "key": _listed(self._key),
            "present": sql.Identifier(_PRESENT),
        }  # fmt: skip
        if not pc.all(rows.column(APPEARS)).as_py():
            cursor.execute(sql.SQL("DELETE FROM {table} t USING {staged} s WHERE NOT s.{present} AND {same}").format(
                **parts, same=self._same("=")
            ))  # fmt: skip
            if any(texts[name].null_count for name in self._key):
                cursor.execute(
                    sql.SQL(
                        "DELETE FROM {table} t USING {staged} s WHERE NOT s.{present} AND ({null}) AND {same}"
                    ).format(
                        **parts,
                        same=self._same("IS NOT DISTINCT FROM"),
                        null=sql.SQL(" OR ").join(
                            sql.SQL("s.{} IS NULL").format(sql.Identifier(name)) for name in self._key
                        ),
                    )
                )
        upsert = (
            "INSERT INTO {table} ({columns}) SELECT {columns} FROM {staged} s WHERE s.{present} ON CONFLICT ({key}) "
        )
        change = sql.SQL("DO NOTHING")
        if own:
            change = sql.SQL("DO UPDATE SET ") + sql.SQL(", ").join(
                sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in own
            )
        cursor.execute(sql.SQL(upsert).format(**parts) + change)

    def _same(self, comparison: str) -> sql.Composed:
        return sql.SQL(" AND ").join(
            sql.SQL("t.{0} {1} s.{0}").format(sql.Identifier(name), sql.SQL(comparison)) for name in self._key
        )

    def _texts(self, rows: pa.Table) -> dict[str, pa.Array]:
        """Return the columns of rows as PostgreSQL reads them; a key has one 0, not two."""
        own = rows.drop_columns(list(HEADS))
        columns = {}
        for name, column in zip(own.column_names, own.columns):
            if name in self._key and pa.types.is_floating(column.type):
                column = pc.add(column, pa.scalar(0, column.type))
            columns[name] = texts_of(column, self._setting.rows.field(name))
        return columns

    def _copy(self, cursor: Any, target: sql.Composable, columns: dict[str, Any]) -> None:
        """Copy columns of texts into a table. A null is an empty field, an empty text a pair of quotes."""
        table = pa.table(columns)
        if not table.num_rows:
            return
        rows = io.BytesIO()
        csv.write_csv(table, rows, csv.WriteOptions(include_header=False, quoting_style="needed"))
        rows.seek(0)
        statement = sql.SQL("COPY {} ({}) FROM STDIN WITH (FORMAT csv)").format(target, _listed(columns))
        cursor.copy_expert(statement.as_string(cursor), rows)

    # ------------------------------------------------------------------------------------------------------- tables

    def _ensure_positions(self, cursor: Any) -> None:
        columns = columns_of(cursor, self._positions)
        wanted = ("home", "output", "target", "epoch", "number", "cursor")
        if not columns:
            cursor.execute(
                sql.SQL(
                    "CREATE TABLE {} (home text, output text, target text NOT NULL, epoch bigint NOT NULL, number bigint, "
                    "cursor text, PRIMARY KEY (home, output))"
                ).format(self._positions.quoted)
            )
        elif set(columns) != set(wanted):
            raise EndpointError(
                f'there is a table "{self._positions}" that is not Hayase\'s', "rename it, or use another schema"
            )

    def _check_creatable(self, cursor: Any) -> None:
        """The table does not exist: EndpointError if it cannot be created at the first write."""
        long = [name for name in self._fields if len(name.encode()) > _LONGEST_NAME]
        if long:
            raise EndpointError(
                f'"{long[0]}" is too long for a column of PostgreSQL', "give it another name in the query"
            )
        cursor.execute(
            "SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = %s", (self._table.schema,)
        )
        if (may := cursor.fetchone()) is None or not may[0]:
            what = "does not exist" if may is None else "lets the user of the connection string create nothing"
            raise EndpointError(
                f'there is no table "{self._table}", and its schema {what}', "create the table, or let it be created"
            )

    def _create_table(self, cursor: Any) -> None:
        nulls = sql.SQL("UNIQUE NULLS NOT DISTINCT" if self._connection.server_version >= 150_000 else "PRIMARY KEY")
        key = [sql.SQL("{} ({})").format(nulls, _listed(self._key))] if self._key else []
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(self._declared(name))) for name in self._fields
        ]
        every = sql.SQL(", ").join([*columns, *key])
        cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(self._table.quoted, every))

    def _check_table(self, cursor: Any, existing: Mapping[str, Column]) -> None:
        """EndpointError if a table that exists has not what is written."""
        for name, field in self._fields.items():
            if name not in existing:
                raise EndpointError(
                    f'table "{self._table}" has no column "{name}"',
                    f'add it: ALTER TABLE {self._table} ADD COLUMN "{name}" {postgres_type(field)}',
                )
            if existing[name].generated or not accepts(field, existing[name].type):
                raise EndpointError(
                    f'column "{name}" of table "{self._table}" is {existing[name].shown}, and its values are '
                    f"{postgres_type(field)}",
                    f'change it: ALTER TABLE {self._table} ALTER COLUMN "{name}" TYPE {postgres_type(field)}',
                )
        for name, column in existing.items():
            if column.needed and name not in self._fields:
                raise EndpointError(
                    f'column "{name}" of table "{self._table}" needs a value, and the results have no such column',
                    f'give it a default, or: ALTER TABLE {self._table} ALTER COLUMN "{name}" DROP NOT NULL',
                )
        self._check_unique(cursor)

    def _check_unique(self, cursor: Any) -> None:
        """The key, or `row_id`, must be unique in the table: that is how a row is found again."""
        key = tuple(self._key) or (ROW_ID,)
        cursor.execute(
            "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid "
            "JOIN pg_namespace n ON n.oid = c.relnamespace "
            "CROSS JOIN unnest(i.indkey[0:i.indnkeyatts - 1]) AS k (attnum) "
            "LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum "
            "WHERE n.nspname = %s AND c.relname = %s AND i.indisunique AND i.indimmediate AND i.indpred IS NULL "
            "AND i.indisvalid GROUP BY i.indexrelid",
            self._table,
        )
        if not any(set(names) == set(key) for (names,) in cursor.fetchall()):
            listed = ", ".join(f'"{name}"' for name in key)
            raise EndpointError(
                f'table "{self._table}" has no unique index on {listed}',
                f"create one: CREATE UNIQUE INDEX ON {self._table} ({listed})",
            )

    def _check_empty(self, cursor: Any) -> None:
        cursor.execute(sql.SQL("SELECT FROM {} LIMIT 1").format(self._table.quoted))
        if cursor.fetchone() is not None:
            raise EndpointError(
                f'table "{self._table}" has rows that output "{self._setting.output}" has not written',
                "empty it, or name another table",
            )

    def _ensure_staged(self, cursor: Any) -> None:
        """Create the temporary table of this connection that takes changes by key; it has the types of the table."""
        cursor.execute(
            sql.SQL(
                "CREATE TEMPORARY TABLE IF NOT EXISTS hayase_changes ON COMMIT DELETE ROWS AS "
                "SELECT {}, true AS {} FROM {} WITH NO DATA"
            ).format(_listed(self._fields), sql.Identifier(_PRESENT), self._table.quoted)
        )

    def _declared(self, name: str) -> str:
        kind = postgres_type(self._fields[name])
        if name == ROW_ID and not self._key:
            return f"{kind} PRIMARY KEY"
        return f"{kind} NOT NULL" if name == VALID_FROM and self._is_history else kind

    # -------------------------------------------------------------------------------------------------------- times

    @property
    def _time_type(self) -> str:
        return postgres_type(_time_field(VALID_FROM, self._setting))

    def _times(self, micros: pa.ChunkedArray) -> pa.Array:
        """Return event times as texts of the columns `valid_from` and `valid_to`."""
        field = _time_field(VALID_FROM, self._setting)
        whole = micros.combine_chunks()
        if pa.types.is_timestamp(field.type):
            return texts_of(whole.view(field.type), field)
        return pa.array(whole.to_numpy() // self._setting.stream.time_scale).cast(pa.string())


def _own_fields(setting: SinkSetting, is_history: bool, key: Sequence[str]) -> list[pa.Field]:
    """Return the columns of the table that are written: those of the rows, and those that tell them apart."""
    added = [] if key else [pa.field(ROW_ID, pa.int64())]
    if is_history:
        added += [_time_field(VALID_FROM, setting), _time_field(VALID_TO, setting)]
    for field in added:
        if field.name in setting.rows.names:
            raise EndpointError(
                f'output "{setting.output}" adds a column "{field.name}", and its rows have one of that name',
                "give the column another name in the query",
            )
    heads = [field for field in added if field.name == ROW_ID]
    return [*heads, *setting.rows, *added[len(heads) :]]


def _time_field(name: str, setting: SinkSetting) -> pa.Field:
    return pa.field(name, pa.int64() if setting.stream.time_unit is not None else pa.timestamp("us", tz="UTC"))


def _plain(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


def _listed(names: Any) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))
