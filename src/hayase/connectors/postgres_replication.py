"""The changes of a table, by logical replication: a copy of the table first, then every transaction of the server's log.

A replication slot keeps the log until the stream has it. A transaction is one instant: all its changes have one event time, the
time of its commit, or a tick later than the transaction before. The position is the end of the last transaction in the log (LSN).

An update is the old row removed and the new one added. With REPLICA IDENTITY FULL the server sends the old row; otherwise it sends
the key, and the source keeps the last row of each key, which it reads from the stream at the start.

If the slot is gone, changes are missing: a new slot is made, the table is copied again, and the differences to what the stream has
enter the stream as one instant.
"""

from __future__ import annotations

import hashlib
import select
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson
import psycopg2
import pyarrow as pa
from psycopg2 import sql
from psycopg2.extras import LogicalReplicationConnection

from hayase.connectors.inlet import Inlet
from hayase.connectors.last_rows import LastRows, LoggedChange, logged_changes
from hayase.connectors.pgoutput import UNCHANGED, Change, Decoder, Relation, Row, Transaction, lsn_number, lsn_text
from hayase.connectors.postgres_client import columns_of, connect, explained, table_name
from hayase.connectors.postgres_records import TableRecords, Texts, copied
from hayase.connectors.postgres_types import readable, texts_of
from hayase.connectors.source import Portion, Source, SourceSetting, Staged
from hayase.connectors.staged_append import StagedAppend, exclusive, publish_complete
from hayase.core.errors import EndpointError
from hayase.streams import durable
from hayase.streams.log import FIRST
from hayase.streams.records import Conformed
from hayase.streams.typed_columns import fit_arrow

__all__ = ["ReplicationSource"]

WAL = "wal"
"""The only partition."""
MOST_CHANGES = 20_000
"""Changes in one read, unless a transaction has more."""
MOST_HELD, MOST_BYTES = 50_000, 32 << 20
"""Changes of one transaction, and bytes of them, that are held in memory; one with more is staged beside the log. At least
`MOST_CHANGES`, so that a transaction is staged in the same parts whatever comes before it."""
LINGER = 0.02
"""Seconds in which transactions are collected, so that a flood of small ones does not make an append of each."""
ADVANCE = 1.0
"""Seconds between two looks at the server's clock, while nothing happens."""
_NOTE = "slot.json"
_SESSION = {"statement_timeout": "60s", "lock_timeout": "30s"}
_ONE_TEXT: Mapping[str, Callable[[pa.DataType], bool]] = {
    **dict.fromkeys(("int2", "int4", "int8"), pa.types.is_integer),
    **dict.fromkeys(("text", "varchar", "bpchar", "uuid"), pa.types.is_string),
    "bytea": pa.types.is_binary,
    "bool": pa.types.is_boolean,
}
"""Types whose values have one text, in the server as in a stream with a column of such a type."""


class ReplicationSource(Source):
    """A table whose changes are read from a slot."""

    def __init__(self, setting: SourceSetting):
        stream = setting.stream
        self._setting, self._options = setting, setting.options
        self._slot = setting.options["slot"] or _slot_name(setting.pipeline, stream.name)
        self._publication = setting.options["publication"] or self._slot
        self._replication: Any = None
        self._cursor: Any = None
        self._at = FIRST
        self._started: int | None = None
        """Where replication begins, if the stream has nothing."""
        self._last_time = 0
        self._rows: LastRows[Texts] | None = None
        """The last row of each key, unless the server sends old rows."""
        self._kept: list[Transaction] = []
        """Transactions that were received and not returned yet."""
        self._staged: _Staging | None = None
        """The transaction that is received and is too large for memory."""
        self._types: dict[Relation, dict[str, str]] = {}
        self._clock: tuple[int, int] | None = None
        """A position, and the time at which the server was there."""
        self._clock_at = float("-inf")
        self._inlet: Inlet | None = None
        self._connection = connect(self._options, **_SESSION)
        try:
            self._connection.autocommit = True
            with explained(self._options), self._connection.cursor() as cursor:
                self._table = table_name(cursor, self._options["table"])
                given = [name for name in (stream.time, stream.changes) if name is not None]
                self._records = TableRecords(stream, self._table, given)
                columns = columns_of(cursor, self._table)
                self._records.check(columns)
                self._present_types = {name: columns[name].type for name in self._records.names}
                self._check_server(cursor)
                self._key = self._identity_key(cursor)
                self._key_places = [self._records.names.index(name) for name in self._key]
            self._connect_replication()
            self.identity = f"postgres/{self._system}/{self._table}"
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------------------------------------------ the protocol

    def prepare(self, inlet: Inlet) -> None:
        self._inlet = inlet
        with explained(self._options), exclusive(inlet):
            publish_complete(inlet)
            last = inlet.last(WAL)
            self._last_time = inlet.latest()
            with self._connection.cursor() as cursor:
                self._ensure_publication(cursor)
                state = self._slot_state(cursor)
                self._started = self._note(inlet).get("start")
                if state is None or state["wal_status"] == "lost" or self._started is None:
                    self._copy(cursor, inlet, state, last)
                elif last > self._position_of(cursor):
                    raise EndpointError(
                        f'stream "{inlet.log.declaration.name}" has read up to {lsn_text(last)}, and the server is at '
                        f"{lsn_text(self._position_of(cursor))}: it was put back to an earlier state",
                        "read the table into a stream of another name",
                    )
        if self._key:
            self._rows = LastRows()
            for change in self._logged():
                self._rows.apply(self.key_in(change.row), change.added, change.row)

    def starts(self) -> Mapping[str, int]:
        with explained(self._options), self._connection.cursor() as cursor:
            self._check_published(cursor)
            return {WAL: self._position_of(cursor) if self._started is None else self._started}

    def ends(self) -> Mapping[str, int]:
        with explained(self._options):
            return {WAL: self._look()}

    def read(self, positions: Mapping[str, int], patience: float) -> Sequence[Portion]:
        with explained(self._options):
            if self._cursor is None or positions[WAL] != self._at:
                self._start(positions[WAL])
            transactions = self._kept or self._received(patience)
            self._kept = []
            for number, transaction in enumerate(transactions):
                if self._needs_all_rows(transaction):  # the stream must have what comes before
                    at = max(1, number)
                    transactions, self._kept = transactions[:at], transactions[at:]
                    if not number:
                        self._stage(transaction.changes, transaction.time, transaction.end)
                    break
            if self._staged is not None and transactions:
                staged, self._staged, self._at = self._staged, None, transactions[-1].end
                return [Portion(WAL, staged, self._at)]
            if transactions:
                self._at = transactions[-1].end
                self._clock_at = float("-inf")  # the clock is to pass them soon
            elif not self._decoder.is_open:
                self._at = max(self._at, self._cursor.wal_end)
                self._advance()
            if self._at == positions[WAL]:
                return ()
            return [Portion(WAL, self._conformed(transactions), self._at)]

    def confirm(self, positions: Mapping[str, int]) -> None:
        if self._cursor is not None and positions.get(WAL, FIRST) > 0:
            with explained(self._options):
                self._cursor.send_feedback(flush_lsn=positions[WAL], apply_lsn=positions[WAL], reply=True, force=True)

    def close(self) -> None:
        for connection in (self._replication, self._connection):
            if connection is not None:
                connection.close()

    # -------------------------------------------------------------------------------------------------- the server

    def _check_server(self, cursor: Any) -> None:
        cursor.execute("SHOW wal_level")
        if (level := cursor.fetchone()[0]) != "logical":
            raise EndpointError(
                f"PostgreSQL does not write what logical replication needs: wal_level is {level}",
                "set wal_level = logical in postgresql.conf, and restart the server",
            )

    def _identity_key(self, cursor: Any) -> tuple[str, ...]:
        """Return the columns that identify a row in the server's log; none if it sends whole rows."""
        cursor.execute(
            "SELECT c.relkind, c.relreplident, array(SELECT a.attname::text FROM pg_index i "
            "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey[0:i.indnkeyatts - 1]) "
            "WHERE i.indrelid = c.oid AND CASE c.relreplident WHEN 'd' THEN i.indisprimary ELSE i.indisreplident END "
            "ORDER BY a.attnum) "
            "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s",
            self._table,
        )
        kind, identity, names = cursor.fetchone()
        if kind != "r":
            raise EndpointError(f'"{self._table}" is not an ordinary table', "name a table, or a partition of one")
        if identity == "f":
            return ()
        if identity == "n" or not names:
            raise EndpointError(
                f'table "{self._table}" has no primary key: the server cannot say which row changes',
                f"add one, or: ALTER TABLE {self._table} REPLICA IDENTITY FULL",
            )
        for name in names:
            if name not in self._records.names:
                raise EndpointError(
                    f'stream "{self._setting.stream.name}" has no column "{name}", which is in the key of table "{self._table}"',
                    f"add it to the schema, or: ALTER TABLE {self._table} REPLICA IDENTITY FULL",
                )
        return tuple(names)

    def _connect_replication(self) -> None:
        """Open the connection for replication, and learn which server it is."""
        self._replication = connect(self._options, LogicalReplicationConnection)
        with explained(self._options), self._replication.cursor() as cursor:
            cursor.execute("IDENTIFY_SYSTEM")
            system, _, _, database = cursor.fetchone()
        self._system = f"{system}/{database}"

    def _ensure_publication(self, cursor: Any) -> None:
        cursor.execute("SELECT FROM pg_publication WHERE pubname = %s", (self._publication,))
        if cursor.fetchone() is None:
            statement = sql.SQL("CREATE PUBLICATION {} FOR TABLE {}")
            try:
                cursor.execute(statement.format(sql.Identifier(self._publication), self._table.quoted))
            except psycopg2.errors.InsufficientPrivilege as error:
                raise EndpointError(
                    f'there is no publication "{self._publication}", and the user may not create it: {error}'.strip(),
                    f"let the owner of the table run: CREATE PUBLICATION {self._publication} FOR TABLE {self._table}",
                ) from error
        self._check_published(cursor)

    def _check_published(self, cursor: Any) -> None:
        cursor.execute(
            "SELECT FROM pg_publication_tables WHERE (pubname, schemaname, tablename) = (%s, %s, %s)",
            (self._publication, *self._table),
        )
        if cursor.fetchone() is None:
            raise EndpointError(
                f'publication "{self._publication}" does not have table "{self._table}": it never had, or the table was dropped',
                f"run: ALTER PUBLICATION {self._publication} ADD TABLE {self._table}",
            )

    def _slot_state(self, cursor: Any) -> dict[str, Any] | None:
        cursor.execute(
            "SELECT active_pid, wal_status, plugin FROM pg_replication_slots WHERE slot_name = %s", (self._slot,)
        )
        found = cursor.fetchone()
        return None if found is None else dict(zip(("active_pid", "wal_status", "plugin"), found))

    def _position_of(self, cursor: Any) -> int:
        cursor.execute("SELECT pg_current_wal_flush_lsn()")
        return lsn_number(cursor.fetchone()[0])

    # ---------------------------------------------------------------------------------------------------- the copy

    def _copy(self, cursor: Any, inlet: Inlet, state: dict[str, Any] | None, last: int) -> None:
        """Make a new slot and bring the stream to the state of the table at its beginning."""
        if state is not None:
            if not self._note(inlet):
                raise EndpointError(
                    f'there is a slot "{self._slot}" already that this home has not made',
                    f"give another name with slot, or, if nobody needs it: SELECT pg_drop_replication_slot('{self._slot}')",
                )
            cursor.execute("SELECT pg_drop_replication_slot(%s)", (self._slot,))
        path = inlet.directory / _NOTE
        durable.write_atomic(path, orjson.dumps({"slot": self._slot}))
        with self._replication.cursor() as creator:
            creator.execute(f'CREATE_REPLICATION_SLOT "{self._slot}" LOGICAL pgoutput EXPORT_SNAPSHOT')
            _, consistent, snapshot, _ = creator.fetchone()
            position = lsn_number(consistent)
            if position <= last:
                raise EndpointError(
                    f"the server is at {lsn_text(position)}, and the stream has read up to {lsn_text(last)}: it was put back to "
                    "an earlier state",
                    "read the table into a stream of another name",
                )
            self._copy_rows(inlet, snapshot, position, Counter() if last == FIRST else self._present_rows())
        durable.write_atomic(path, orjson.dumps({"slot": self._slot, "start": position}))
        self._started = position
        self._last_time = inlet.latest()

    def _note(self, inlet: Inlet) -> dict[str, Any]:
        """Return what the home knows of the slot: that it has made it, and where it begins, once its copy is in the stream."""
        try:
            note: dict[str, Any] = orjson.loads((inlet.directory / _NOTE).read_bytes())
        except FileNotFoundError:
            return {}
        return note if note["slot"] == self._slot else {}

    def _copy_rows(self, inlet: Inlet, snapshot: str, position: int, present: Counter[Texts]) -> None:
        """Stage what the table has and the stream has not, then what the stream has and the table has not."""
        copy, records = StagedAppend(inlet, WAL, f"{position:016x}"), self._records
        place: Callable[[int], str] = lambda at: f"{self._table}, copied at {lsn_text(position)}"  # noqa: E731
        connection = connect(self._options)
        try:
            connection.set_session("REPEATABLE READ", readonly=True)
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION SNAPSHOT %s", (snapshot,))
                cursor.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
                moment = self._tick(cursor.fetchone()[0])

                def given(sign: str, count: int) -> dict[str, pa.Array]:
                    return self._given([moment] * count, [sign] * count)

                def take(texts: dict[str, pa.Array]) -> None:
                    count = len(texts[records.names[0]])
                    added = records.conformed(texts, self._present_types, given("+", count), inlet.now(), place)
                    if not present:
                        copy.add(added)
                        return
                    keep = []
                    for at, row in enumerate(records.texts(added.rows)):
                        if present[row] > 0:
                            present[row] -= 1
                        else:
                            keep.append(at)
                    copy.add(type(added)(added.rows.take(pa.array(keep, pa.int64())), added.refused))

                columns = sql.SQL(", ").join(map(sql.Identifier, records.names))
                query = sql.SQL("SELECT {} FROM ONLY {}").format(columns, self._table.quoted)
                copied(cursor, query, records.names, take)
                gone = list(present.elements())
                if gone:
                    removed = records.conformed(gone, self._present_types, given("-", len(gone)), inlet.now(), place)
                    copy.add(removed)
        finally:
            connection.close()
        copy.publish(position)

    def _present_rows(self) -> Counter[Texts]:
        """Return the rows that the stream has, by its log, and by what is staged of a transaction."""
        rows: Counter[Texts] = Counter()
        for change in self._logged():
            rows[change.row] += 1 if change.added else -1
        for batch in self._staged.append.rows() if self._staged is not None else ():
            for sign, row in zip(batch.column(self._setting.stream.changes).to_pylist(), self._records.texts(batch)):
                rows[row] += 1 if sign == "+" else -1
        return rows

    def _logged(self) -> Iterator[LoggedChange]:
        """Yield the changes that the stream has."""
        hint = (
            "remove the retention, or read the table into a stream of another name and: "
            f"ALTER TABLE {self._table} REPLICA IDENTITY FULL"
        )
        return logged_changes(self._log.log, 0, self._records.texts, hint)

    @property
    def _log(self) -> Inlet:
        assert self._inlet is not None, "prepare comes first"
        return self._inlet

    # ------------------------------------------------------------------------------------------------- transactions

    def _start(self, position: int) -> None:
        """Begin to receive the log from a position on."""
        if self._cursor is not None:
            self._replication.close()
            self._connect_replication()
        self._decoder, self._kept, self._staged, self._at = Decoder(), [], None, position
        self._cursor = self._replication.cursor()
        options = {"proto_version": "1", "publication_names": f'"{self._publication}"'}
        self._cursor.start_replication(slot_name=self._slot, start_lsn=position, options=options, decode=False)

    def _received(self, patience: float) -> list[Transaction]:
        """Return the transactions that are complete."""
        transactions: list[Transaction] = []
        count, deadline = 0, time.monotonic() + patience
        while count + self._decoder.waiting < MOST_CHANGES or not transactions:
            message = self._cursor.read_message()
            if message is None:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    break
                select.select([self._cursor], [], [], remaining)
                continue
            transaction = self._decoder.feed(message.payload)
            if transaction is None and not transactions and self._is_large():
                if self._decoder.place >= self._at:  # else the stream has it
                    self._stage(self._decoder.take(), self._decoder.time, self._decoder.place)
                else:
                    self._decoder.take()
                if time.monotonic() >= deadline:  # others have something to do meanwhile
                    break
            elif transaction is not None and self._staged is not None:
                self._stage(transaction.changes, transaction.time, self._decoder.place)
                return [transaction]
            elif transaction is not None and transaction.end > self._at:
                if not transactions:
                    deadline = min(deadline, time.monotonic() + LINGER)
                transactions.append(transaction)
                count += len(transaction.changes)
        return transactions

    def _needs_all_rows(self, transaction: Transaction) -> bool:
        """Whether a transaction empties the table, and the rows are not known."""
        return any(self._empties(change) and self._is_own(change.relation) for change in transaction.changes)

    def _is_large(self) -> bool:
        return self._decoder.waiting >= MOST_HELD or self._decoder.size >= MOST_BYTES

    def _stage(self, changes: Sequence[Change], committed: int, place: int) -> None:
        """Write changes of a transaction to a file. What it has removed and added so far counts where it empties the table."""
        if self._staged is None:
            self._last_time = max(self._last_time, self._log.latest())
            self._staged = _Staging(self._log, self._tick(committed), place)
        staged, own = self._staged, [change for change in changes if self._is_own(change.relation)]
        while own:
            end = next((at for at, change in enumerate(own) if self._empties(change)), len(own))
            first, own = own[: max(1, end)], own[max(1, end) :]
            changed = _Changed(self)
            changed.begin(staged.moment, staged.place)
            for change in first:
                changed.take(change)
            staged.append.add(self._records_of(changed))

    def _conformed(self, transactions: Sequence[Transaction]) -> Conformed:
        """Return the changes of the table as records."""
        changed = _Changed(self)
        self._last_time = max(self._last_time, self._log.latest())
        for transaction in transactions:
            own = [change for change in transaction.changes if self._is_own(change.relation)]
            if own:
                changed.begin(self._tick(transaction.time), transaction.end)
                for change in own:
                    changed.take(change)
        return self._records_of(changed)

    def _records_of(self, changed: _Changed) -> Conformed:
        return self._records.conformed(
            changed.rows, changed.types or self._present_types, self._given(changed.times, changed.signs),
            self._setting.now(), lambda at: f"{self._table}, {lsn_text(changed.ends[at])}", changed.unreadable,
        )  # fmt: skip

    def _given(self, times: Sequence[int], signs: Sequence[str]) -> dict[str, pa.Array]:
        """Return the columns that the source fills itself."""
        stream = self._setting.stream
        columns = {} if stream.changes is None else {stream.changes: pa.array(signs, pa.string())}
        return {stream.time: self._records.times(times), **columns}

    def _empties(self, change: Change) -> bool:
        """Whether a change empties the table, and the rows are not known."""
        return self._rows is None and change.kind == "truncate"

    def _is_own(self, relation: Relation) -> bool:
        return (relation.schema, relation.table) == self._table

    def _tick(self, micros: int) -> int:
        """Return the event time of a transaction: that of its commit, or a tick behind what the stream knows."""
        scale = self._setting.stream.time_scale
        self._last_time = max(micros // scale, self._last_time // scale + 1) * scale
        return self._last_time

    def _advance(self) -> None:
        """Move the clock of the stream to a time before which the server has nothing that the stream does not have."""
        if self._clock is not None and self._at >= self._clock[0]:
            if self._clock[1] > self._log.latest():
                self._log.log.advance(self._clock[1])
            self._clock = None
        if time.monotonic() >= self._clock_at + ADVANCE:
            self._look()
            self._cursor.send_feedback(reply=True, force=True)  # the server answers with its position

    def _look(self) -> int:
        """Return the end of the server's log. All that is before it was committed before the server's time now."""
        self._clock_at = time.monotonic()
        with self._connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_current_wal_flush_lsn(), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
            )
            position, micros = cursor.fetchone()
        end = lsn_number(position)
        if self._clock is None:
            self._clock = end, micros
        return end

    # ---------------------------------------------------------------------------------------------------------- rows

    def types_of(self, relation: Relation) -> dict[str, str]:
        """Return the types of the stream's columns in a relation; EndpointError if it lacks one."""
        known = self._types.get(relation)
        if known is None:
            missing = [name for name in self._records.names if name not in relation.columns]
            if missing:
                raise EndpointError(
                    f'table "{self._table}" has lost the column "{missing[0]}" of stream "{self._setting.stream.name}"',
                    "read it into a stream of another name, without that column",
                )
            if not self._key and relation.key != relation.columns:
                raise EndpointError(
                    f'table "{self._table}" had another REPLICA IDENTITY when its changes were written',
                    "start the source again",
                )
            with self._connection.cursor() as cursor:
                cursor.execute(
                    "SELECT t.oid, coalesce(b.typname, t.typname) FROM pg_type t LEFT JOIN pg_type b ON b.oid = t.typbasetype "
                    "WHERE t.oid = ANY(%s::oid[])",
                    (list(relation.types),),
                )
                names = dict(cursor.fetchall())
            types = {
                name: names.get(kind, "text")
                for name, kind in zip(relation.columns, relation.types)
                if name in self._records.names
            }
            known = self._types[relation] = types
        return known

    def key_in(self, row: Texts) -> Texts:
        """Return the values of the key in a row of the stream."""
        return tuple(row[place] for place in self._key_places)


class _Staging(Staged):
    """A transaction that is being staged: its event time, and where its commit stands in the server's log."""

    def __init__(self, inlet: Inlet, moment: int, place: int):
        self._inlet, self.moment, self.place = inlet, moment, place
        self.append = StagedAppend(inlet, WAL, f"t{place:016x}")

    def publish(self, position: int) -> int:
        with exclusive(self._inlet):
            return self.append.publish(position)


class _Changed:
    """The records of transactions, as they are put together."""

    def __init__(self, source: ReplicationSource):
        self._source = source
        self._names = source._records.names
        self.rows: list[Texts] = []
        self.signs: list[str] = []
        self.times: list[int] = []
        self.ends: list[int] = []
        self.types: dict[str, str] = {}
        self.unreadable: dict[int, str] = {}
        self._time = self._end = 0
        self._relation: Relation | None = None
        self._rewritten: list[tuple[int, str, pa.Field]] = []

    def begin(self, moment: int, end: int) -> None:
        """Begin with a transaction."""
        self._time, self._end = moment, end

    def take(self, change: Change) -> None:
        """Add the records of a change."""
        if change.relation != self._relation:
            self._relation, self.types = change.relation, self._source.types_of(change.relation)
            self._places = [change.relation.columns.index(name) for name in self._names]
            self._key_places = [change.relation.columns.index(name) for name in self._source._key]
            self._rewritten = self._rewritten_parts()
        rows, new = self._source._rows, change.new
        if change.kind == "truncate":
            self._truncate(rows)
            return
        old = None
        if change.kind != "insert":
            before = new if change.old is None else change.old
            assert before is not None
            # a row that is not known was refused when it came
            if rows is None:
                old = self._picked(before, None)
            else:
                old = rows.pop(self._key([before[place] for place in self._key_places]), None)
        if old is not None:
            self._add("-", old)
        if new is not None:
            row = self._picked(new, old)
            self._add("+", row)
            if rows is not None:
                rows[self._key(self._source.key_in(row))] = row

    def _truncate(self, rows: LastRows[Texts] | None) -> None:
        present = list(self._source._present_rows().elements()) if rows is None else list(rows.values())
        for row in present:
            self._add("-", row)
        if rows is not None:
            rows.clear()

    def _add(self, sign: str, row: Texts) -> None:
        self.rows.append(row)
        self.signs.append(sign)
        self.times.append(self._time)
        self.ends.append(self._end)

    def _picked(self, row: Row, old: Texts | None) -> Texts:
        """Return the values of the stream's columns; those that the server did not send are those of the old row."""
        values: list[Any] = [row[place] for place in self._places]
        if UNCHANGED in values:
            for at, value in enumerate(values):
                if value is UNCHANGED:
                    values[at] = None if old is None else old[at]
                    if old is None:
                        why = f'column "{self._names[at]}" was not sent, and the row before is not known'
                        self.unreadable[len(self.rows)] = why
        return tuple(values)

    def _rewritten_parts(self) -> list[tuple[int, str, pa.Field]]:
        """Return the parts of a key whose values may have several texts: where they stand, and their types on both sides."""
        schema = self._source._setting.stream.arrow_schema
        parts = [(at, self.types[name], schema.field(name)) for at, name in enumerate(self._source._key)]
        return [
            (at, kind, field) for at, kind, field in parts if not (kind in _ONE_TEXT and _ONE_TEXT[kind](field.type))
        ]

    def _key(self, values: Sequence[Any]) -> Texts:
        """Return a key in the form in which keys of the stream's own rows are."""
        if not self._rewritten:
            return tuple(values)
        key = list(values)
        for at, kind, field in self._rewritten:
            if key[at] is not None:
                key[at] = _canonical(key[at], kind, field)
        return tuple(key)


@lru_cache(100_000)
def _canonical(text: str, type_name: str, field: pa.Field) -> str | None:
    """Return a text as `texts_of` writes the value that the stream has for it."""
    column = pa.chunked_array([readable(pa.array([text], pa.string()), type_name, field)])
    fitted = fit_arrow(column, field, parse=True)
    return text if fitted.reasons else texts_of(fitted.column, field)[0].as_py()


def _slot_name(pipeline: str, stream: str) -> str:
    """Return the name of a slot: lower case, at most 63 characters.

    >>> _slot_name("Shop", "users")
    'hayase_shop_users'
    """
    name = "".join(each if each.isalnum() and each.isascii() else "_" for each in f"hayase_{pipeline}_{stream}".lower())
    return name if len(name) <= 63 else f"{name[:50]}_{hashlib.sha256(name.encode()).hexdigest()[:12]}"
