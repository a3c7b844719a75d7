"""Rows of a table that are new by a column that only grows, such as an identity or the time of the insert.

The position is the value behind the last row: a whole number, or microseconds of a time. A row is read once, as it is then. A
row that becomes visible when one with a greater value was read already is missed: see the guide.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pyarrow as pa
from psycopg2 import sql

from hayase.connectors.postgres_client import columns_of, connect, explained, table_name
from hayase.connectors.postgres_records import MOST_ROWS, TableRecords, copied
from hayase.connectors.source import Portion, Source, SourceSetting
from hayase.core.errors import EndpointError, nearest
from hayase.streams.records import Conformed

__all__ = ["PollSource"]

ROWS = "rows"
"""The only partition."""
_VALUES = {
    **dict.fromkeys(("int2", "int4", "int8"), "{column}"),
    "timestamptz": "(extract(epoch FROM {column}) * 1000000)::bigint",
    "timestamp": "(extract(epoch FROM {column}) * 1000000)::bigint",
}
"""The position of a row, by the type of the column."""
_BOUNDS = {
    **dict.fromkeys(("int2", "int4", "int8"), "%s"),
    "timestamptz": "'epoch'::timestamptz + %s * interval '1 microsecond'",
    "timestamp": "'epoch'::timestamp + %s * interval '1 microsecond'",
}
"""The value of the column at a position, which an index on the column finds."""
_SESSION = {"statement_timeout": "5min", "lock_timeout": "30s", "default_transaction_read_only": "on"}


class PollSource(Source):
    """A table whose new rows are asked for."""

    def __init__(self, setting: SourceSetting):
        self._setting, self._options = setting, setting.options
        self._column = setting.options["column"]
        self._look_at = float("-inf")
        self._connection = connect(self._options, **_SESSION)
        try:
            self._connection.autocommit = True
            with explained(self._options), self._connection.cursor() as cursor:
                self._table = table_name(cursor, self._options["table"])
                self._records = TableRecords(setting.stream, self._table, ())
                columns = columns_of(cursor, self._table)
                self._records.check(columns)
                if self._column not in columns:
                    raise EndpointError(
                        f'table "{self._table}" has no column "{self._column}"{nearest(self._column, list(columns))}',
                        "check the option column",
                    )
                kind = columns[self._column]
                if kind.type not in _VALUES:
                    raise EndpointError(
                        f'column "{self._column}" of table "{self._table}" is {kind.shown}, which is no position',
                        "name one of type bigint or timestamptz, or use the mode replication",
                    )
                self._types = {name: columns[name].type for name in self._records.names}
                cursor.execute("SELECT current_database()")
                self.identity = f"postgres/{cursor.fetchone()[0]}/{self._table}/{self._column}"
        except BaseException:
            self._connection.close()
            raise
        column = sql.Identifier(self._column)
        self._value = sql.SQL(_VALUES[kind.type]).format(column=column)
        self._bound = sql.SQL(_BOUNDS[kind.type])

    def starts(self) -> Mapping[str, int]:
        return {ROWS: 0}

    def ends(self) -> Mapping[str, int]:
        query = sql.SQL("SELECT {} FROM {} ORDER BY {} DESC NULLS LAST LIMIT 1").format(
            self._value, self._table.quoted, sql.Identifier(self._column)
        )
        with explained(self._options), self._connection.cursor() as cursor:
            cursor.execute(query)
            greatest = (cursor.fetchone() or (None,))[0]
        return {ROWS: 0 if greatest is None else max(0, greatest + 1)}

    def read(self, positions: Mapping[str, int], patience: float) -> Sequence[Portion]:
        moment = time.monotonic()
        if moment < self._look_at:
            time.sleep(min(patience, self._look_at - moment))
            return ()
        rows, end = self._rows_from(positions[ROWS])
        if end == positions[ROWS]:
            self._look_at = time.monotonic() + self._options["every"] / 1e6
            return ()
        return [Portion(ROWS, rows, end)]

    def close(self) -> None:
        self._connection.close()

    def _rows_from(self, position: int) -> tuple[Conformed, int]:
        """Return rows from a position on, all of those with one value together, and the position behind them."""
        names = [*self._records.names, "__position"]
        own = sql.SQL(", ").join(map(sql.Identifier, self._records.names))
        query = sql.SQL(
            "SELECT {own}, {value} FROM {table} WHERE {column} >= {bound} ORDER BY {column} FETCH FIRST {most} ROWS WITH TIES"
        ).format(
            own=own, value=self._value, table=self._table.quoted, column=sql.Identifier(self._column),
            bound=sql.SQL(self._bound.string.replace("%s", str(int(position)))), most=sql.Literal(MOST_ROWS),
        )  # fmt: skip
        pieces: list[dict[str, pa.Array]] = []
        with explained(self._options), self._connection.cursor() as cursor:
            copied(cursor, query, names, pieces.append)
        if not pieces:
            return Conformed(self._setting.stream.arrow_schema.empty_table()), position
        texts = {name: pa.concat_arrays([piece[name] for piece in pieces]) for name in names}
        values = texts.pop("__position")
        place = f'{self._table}, "{self._column}" '
        conformed = self._records.conformed(
            texts, self._types, {}, self._setting.now(), lambda at: f"{place}{values[at].as_py()}"
        )
        return conformed, int(values[-1].as_py()) + 1
