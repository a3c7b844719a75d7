"""A session: one client, from its first message to its last. Simple and extended queries, COPY, transactions, settings.

Transactions only read, so they change nothing; from BEGIN to COMMIT all statements see one set of manifests. After an error in an
extended query, messages are skipped up to the next Sync, as the protocol demands. A client that does not read its answers for
`Limits.patience` seconds is cut off.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.errors import HayaseError
from hayase.relations.statement_runs import Answer, Control
from hayase.wire import messages
from hayase.wire.column_types import ColumnType, column_type, parameter, placeholder
from hayase.wire.commands import Command, CopyOut, command_of
from hayase.wire.copied_lines import copied_line
from hayase.wire.dialect import statements
from hayase.wire.messages import Field, Garbled, Payload, message, read_message
from hayase.wire.settings import REPORTED, Settings
from hayase.wire.sql_errors import SqlError, fields_of
from hayase.wire.statements import Asking, Following, Rows, Workers, binary_columns, copied, format_at

__all__ = ["Session"]

_log = logging.getLogger(__name__)
_POLL = 0.05
"""Seconds between two looks for changes."""
_PARAMETER = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\$(\d+)")
_MOST_NAMED = 1000
"""Prepared statements of a session at most."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared statement: its text, and the types of its parameters, 0 for one that is not known."""

    sql: str
    types: tuple[int, ...]


@dataclass(slots=True)
class Portal:
    """A statement with its parameters, and its answer as far as it is not sent yet."""

    prepared: Prepared
    parameters: Sequence[Any]
    formats: Sequence[int]
    rows: Rows | None = None
    sent: int = 0


class Session:
    """The conversation with a client that has been admitted."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asking: Asking,
        settings: Settings,
        workers: Workers,
        patience: float,
    ):
        self._reader, self._writer, self._asking, self._settings = reader, writer, asking, settings
        self._workers, self._patience = workers, patience
        self._prepared: dict[str, Prepared] = {}
        self._portals: dict[str, Portal] = {}
        self._status = b"I"
        self._skipping = False
        self._control: Control | None = None

    def cancel(self) -> None:
        """End the statement that runs, as a cancel request asks."""
        if self._control is not None:
            self._control.interrupt("canceled by the client")

    async def run(self) -> None:
        """Answer messages until the client leaves."""
        self._write(messages.ready(self._status))
        await self._drain()
        while True:
            kind, payload = await read_message(self._reader)
            if kind == b"X":
                return
            if self._skipping and kind != b"S":
                continue
            try:
                await self._answer(kind, payload)
            except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
                raise
            except Exception as error:
                self._report(error)
                self._skipping = kind != b"Q"
                if kind == b"Q":
                    self._write(messages.ready(self._status))
            if kind in (b"Q", b"S", b"H"):
                await self._drain()

    async def _answer(self, kind: bytes, payload: Payload) -> None:
        if kind == b"Q":
            await self._simple(payload.text())
        elif kind == b"P":
            self._parse(payload)
        elif kind == b"B":
            self._bind(payload)
        elif kind == b"D":
            await self._describe(payload)
        elif kind == b"E":
            await self._execute(payload)
        elif kind == b"C":
            self._close(payload)
        elif kind == b"S":
            self._skipping = False
            if self._status == b"I":
                self._close_portals()
            self._write(messages.ready(self._status))
        elif kind not in (b"H", b"d", b"c", b"f"):
            raise Garbled(f"a message of kind {kind!r} is not known")

    # -- simple queries -------------------------------------------------------------------------------------------------
    async def _simple(self, text: str) -> None:
        found = list(statements(text))
        if not found:
            self._write(message(b"I"))
        for offset, sql in found:
            try:
                await self._run_simple(sql)
            except HayaseError as error:
                self._report(error, offset)
                break
        self._write(messages.ready(self._status))

    async def _run_simple(self, sql: str) -> None:
        command = command_of(sql)
        if command.verb != "select":
            await self._command(command, described=False)
            return
        self._check_transaction(command)
        rows, parts, is_last = await self._begin(sql, (), ())
        try:
            self._write(messages.row_description(_fields(rows.schema, rows.types, rows.binary)))
            count = len(parts)
            while not is_last:
                await self._send(parts)
                parts, is_last = await self._workers.run(rows.take)
                count += len(parts)
            self._write(*parts, messages.command_complete(f"SELECT {count}"))
        finally:
            if not is_last:
                await self._workers.run(rows.close)
            self._control = None

    async def _begin(
        self, sql: str, parameters: Sequence[Any], formats: Sequence[int], most: int = 0
    ) -> tuple[Rows, list[bytes], bool]:
        self._control = Control()
        return await self._workers.run(self._asking.begin, sql, parameters, formats, self._control, most)

    async def _ask(self, sql: str, parameters: Sequence[Any]) -> Answer:
        self._control = Control()
        return await self._workers.run(self._asking.ask, sql, parameters, self._control)

    # -- commands -------------------------------------------------------------------------------------------------------
    def _check_transaction(self, command: Command) -> None:
        if self._status == b"E" and command.verb not in ("rollback", "commit"):
            raise SqlError("25P02", "the transaction has failed; nothing is done until its end", "send ROLLBACK")

    async def _command(self, command: Command, *, described: bool) -> None:
        """Do what is not a SELECT. A client that has asked for the columns of a SHOW has got them already."""
        self._check_transaction(command)
        tag = command.tag
        if command.verb == "begin":
            await self._workers.run(self._asking.pin)
            self._settings.begin()
            self._status = b"T"
        elif command.verb in ("commit", "rollback"):
            tag = "ROLLBACK" if self._status == b"E" else tag
            if tag == "ROLLBACK" and self._status != b"I":
                self._settings.undo()
            self._asking.unpin()
            self._status = b"I"
        elif command.verb in ("set", "reset", "discard"):
            self._set(command)
        elif command.verb == "deallocate":
            self._deallocate(command.name)
        elif command.verb == "show":
            rows = self._shown(command.name)
            if not described:
                self._write(messages.row_description(_show_fields(command.name)))
            self._write(*(messages.data_row([text.encode() for text in row]) for row in rows))
        elif command.copy is not None:
            tag = await self._copy(command.copy)
        self._write(messages.command_complete(tag))

    def _set(self, command: Command) -> None:
        if command.verb == "discard" or (command.verb == "reset" and command.name == "all"):
            self._settings.reset()
        elif command.name:
            self._settings.set(command.name, command.value)
            reported = [name for name in REPORTED if name.lower() == command.name.lower()]
            self._write(*(messages.parameter_status(name, self._settings.get(name)) for name in reported))

    def _deallocate(self, name: str) -> None:
        if name.lower() == "all":
            self._prepared.clear()
        else:
            self._prepared.pop(name, None)

    def _shown(self, name: str) -> list[list[str]]:
        if name.lower() == "all":
            return [[setting, value, ""] for setting, value in self._settings.all()]
        known = {"transaction isolation level": "transaction_isolation", "time zone": "timezone"}
        return [[self._settings.get(known.get(name.lower(), name))]]

    async def _copy(self, form: CopyOut) -> str:
        if form.subscribed is not None:
            following = await self._workers.run(self._asking.follow, form.subscribed, form.from_start)
            return await self._follow(following, form)
        assert form.select is not None
        answer = await self._ask(form.select, ())
        try:
            self._write(messages.copy_out(len(answer.schema)))
            if form.header:
                self._write(message(b"d", copied_line([name.encode() for name in answer.schema.names], form)))
            count = 0
            while (batch := await self._workers.run(_next, answer)) is not None:
                await self._send(await self._workers.run(list, copied(batch, form)))
                count += batch.num_rows
        finally:
            await self._workers.run(answer.close)
            self._control = None
        self._write(message(b"c"))
        return f"COPY {count}"

    async def _follow(self, following: Following, form: CopyOut) -> str:
        """Send changes until the client cancels or leaves."""
        self._control = control = Control()
        self._write(messages.copy_out(following.width))
        await self._drain()
        while control.reason is None:
            lines = await self._workers.run(following.lines, form)
            await self._send(lines)
            if self._reader.at_eof():
                raise ConnectionResetError("the client has left")
            if not lines:
                await asyncio.sleep(_POLL)
        raise SqlError("57014", "canceling statement due to user request")

    # -- extended queries -----------------------------------------------------------------------------------------------
    def _parse(self, payload: Payload) -> None:
        name, sql = payload.text(), payload.text()
        types = [payload.long() for _ in range(payload.short())]
        if len(self._prepared) >= _MOST_NAMED:
            raise SqlError("53000", f"{_MOST_NAMED} prepared statements are open, which is the most", "close some")
        if len(list(statements(sql))) > 1:
            raise SqlError("42601", "cannot insert multiple commands into a prepared statement")
        needed = max((int(found[1]) for found in _PARAMETER.finditer(sql) if found[1]), default=0)
        if needed > 10_000:
            raise SqlError("54000", f"a statement has at most 10,000 parameters, and this one ${needed}")
        types += [0] * (needed - len(types))
        self._prepared[name] = Prepared(sql, tuple(types))
        self._write(message(b"1"))

    def _bind(self, payload: Payload) -> None:
        portal, name = payload.text(), payload.text()
        prepared = self._named(name)
        formats = payload.shorts()
        given = [payload.value() for _ in range(payload.short())]
        if len(given) != len(prepared.types):
            raise SqlError("08P01", f"{len(given)} parameters are bound, and the statement has {len(prepared.types)}")
        parameters = [
            parameter(value, oid, bool(format_at(formats, at)))
            for at, (value, oid) in enumerate(zip(given, prepared.types))
        ]
        self._portals[portal] = Portal(prepared, parameters, payload.shorts())
        self._write(message(b"2"))

    async def _describe(self, payload: Payload) -> None:
        what, name = payload.take(1), payload.text()
        portal = self._portal(name) if what == b"P" else None
        prepared = portal.prepared if portal is not None else self._named(name)
        if portal is None:
            self._write(messages.parameter_description([oid or 25 for oid in prepared.types]))
        command = command_of(prepared.sql)
        if not prepared.sql.strip() or command.verb not in ("select", "show"):
            self._write(message(b"n"))
        elif command.verb == "show":
            self._write(messages.row_description(_show_fields(command.name)))
        else:
            known = [placeholder(oid) for oid in prepared.types] if portal is None else portal.parameters
            schema = await self._workers.run(self._asking.columns, prepared.sql, known)
            types = [column_type(field.type) for field in schema]
            formats = [False] * len(types) if portal is None else binary_columns(types, portal.formats)
            self._write(messages.row_description(_fields(schema, types, formats)))

    async def _execute(self, payload: Payload) -> None:
        portal, most = self._portal(payload.text()), payload.long()
        sql = portal.prepared.sql
        if not sql.strip():
            self._write(message(b"I"))
            return
        command = command_of(sql)
        if command.verb != "select":
            await self._command(command, described=True)
            return
        self._check_transaction(command)
        is_last = False
        try:
            is_last = await self._send_portal(portal, most)
        finally:
            if not is_last and portal.rows is not None and not most:
                await self._workers.run(portal.rows.close)
        self._write(messages.command_complete(f"SELECT {portal.sent}") if is_last else message(b"s"))

    async def _send_portal(self, portal: Portal, most: int) -> bool:
        """Send rows of a portal, at most so many unless that is 0; return whether these were the last."""
        left = most
        while True:
            if portal.rows is None:
                portal.rows, parts, is_last = await self._begin(
                    portal.prepared.sql, portal.parameters, portal.formats, left
                )
            else:
                parts, is_last = await self._workers.run(portal.rows.take, left)
            portal.sent += len(parts)
            left -= len(parts)
            if is_last or (most and left <= 0):
                self._write(*parts)
                return is_last
            await self._send(parts)

    def _close(self, payload: Payload) -> None:
        what, name = payload.take(1), payload.text()
        if what == b"S":
            self._prepared.pop(name, None)
        elif (portal := self._portals.pop(name, None)) is not None and portal.rows is not None:
            portal.rows.close()
        self._write(message(b"3"))

    def _named(self, name: str) -> Prepared:
        if name not in self._prepared:
            raise SqlError("26000", f'prepared statement "{name}" does not exist')
        return self._prepared[name]

    def _portal(self, name: str) -> Portal:
        if name not in self._portals:
            raise SqlError("34000", f'portal "{name}" does not exist')
        return self._portals[name]

    # -- writing --------------------------------------------------------------------------------------------------------
    def _report(self, error: Exception, offset: int = 0) -> None:
        if not isinstance(error, HayaseError):
            _log.error("a statement failed", exc_info=error)
        if self._status == b"T":
            self._status = b"E"
        self._write(messages.error(fields_of(error, offset)))

    def _write(self, *parts: bytes) -> None:
        self._writer.write(b"".join(parts))

    async def _send(self, parts: Sequence[bytes]) -> None:
        self._write(*parts)
        await self._drain()

    async def _drain(self) -> None:
        async with asyncio.timeout(self._patience):
            await self._writer.drain()

    def close(self) -> None:
        """End what still runs."""
        self.cancel()
        self._close_portals()

    def _close_portals(self) -> None:
        for portal in self._portals.values():
            if portal.rows is not None:
                portal.rows.close()
        self._portals.clear()


def _next(answer: Answer) -> pa.RecordBatch | None:
    return next(iter(answer), None)


def _fields(schema: pa.Schema, types: Sequence[ColumnType], binary: Sequence[bool]) -> list[Field]:
    return [Field(name, kind.oid, kind.size, flag) for name, kind, flag in zip(schema.names, types, binary)]


def _show_fields(name: str) -> list[Field]:
    names: Iterator[str] = iter(
        ("name", "setting", "description") if name.lower() == "all" else (name.replace(" ", "_"),)
    )
    return [Field(each, 25) for each in names]
