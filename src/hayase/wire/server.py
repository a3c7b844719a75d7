"""The server: connections, their number and their admission. Loopback by default; elsewhere only with a token, by SCRAM.

TLS is offered if a certificate is given. Cancel requests come over connections of their own, with a secret of the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
import socket
import ssl
from pathlib import Path

from hayase.core.access import OPEN, Access
from hayase.core.data_classes import dataclass
from hayase.relations.home_reader import HomeReader
from hayase.relations.statement_runs import Limits as StatementLimits
from hayase.wire import messages
from hayase.wire.authentication import Refused, Scrams
from hayase.wire.dialect import FUNCTIONS
from hayase.wire.messages import Garbled, Payload, read_message, read_startup
from hayase.wire.session import Session
from hayase.wire.settings import REPORTED, Settings
from hayase.wire.sql_errors import SqlError, fields_of
from hayase.wire.statements import Asking, Workers

__all__ = ["Limits", "SqlServer"]

_log = logging.getLogger(__name__)
_SASL, _SASL_CONTINUE, _SASL_FINAL = 10, 11, 12


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server: connections, threads, bytes of memory of all statements, seconds."""

    connections: int = 64
    threads: int = 8
    memory: int = 512 << 20
    seconds: float = 60.0
    """For a statement."""
    patience: float = 30.0
    """For a client to be admitted, and to read what it is sent."""


class SqlServer:
    """A home over PostgreSQL's protocol."""

    def __init__(self, home: Path, *, access: Access = OPEN, limits: Limits | None = None):
        self.limits = limits or Limits()
        bounds = StatementLimits(memory=self.limits.memory, threads=2, seconds=self.limits.seconds)
        self._home = HomeReader(home, bounds, functions=FUNCTIONS)
        self._workers = Workers(self.limits.threads)
        tokens, certificate = access.open_tokens(), access.open_certificate()
        self._scrams = None if tokens is None else Scrams(tokens)
        self._tls = None if certificate is None else certificate.context
        self._sessions: dict[int, tuple[int, Session]] = {}
        self._connected = 0
        self._next = 0

    async def serve(self, listener: socket.socket) -> None:
        """Serve until the task is cancelled."""
        server = await asyncio.start_server(self._connection, sock=listener)
        try:
            async with server:
                await server.serve_forever()
        finally:
            for _, session in self._sessions.values():
                session.close()
            self._workers.close()
            self._home.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connected += 1
        try:
            async with asyncio.timeout(self.limits.patience):
                first = await self._begun(reader, writer)
                if first is None:
                    return
                wishes = _wishes(first)
                await self._admit(dict(wishes).get("user", ""), reader, writer)
            await self._converse(wishes, reader, writer)
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError, ssl.SSLError):
            pass  # the client has left, or does not go on
        except (Refused, Garbled, SqlError) as error:
            writer.write(messages.error(fields_of(error, severity="FATAL")))
        except Exception:
            _log.exception("a session failed")
        finally:
            self._connected -= 1
            with contextlib.suppress(OSError, ssl.SSLError):
                writer.close()

    async def _begun(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Payload | None:
        """Return the startup message of a session; None if the connection was only for a cancel request."""
        while True:
            code, payload = await read_startup(reader)
            if code == messages.CANCEL:
                self._cancel(payload)
                return None
            if code in (messages.TLS, messages.GSS):
                offered = code == messages.TLS and self._tls is not None
                writer.write(messages.TLS_YES if offered else messages.NO_TLS)
                await writer.drain()
                if offered and self._tls is not None:
                    await writer.start_tls(self._tls)
                continue
            if code >> 16 != 3:
                raise SqlError("0A000", f"protocol version {code >> 16} is not supported", "use version 3")
            return payload

    def _cancel(self, payload: Payload) -> None:
        number, secret = payload.long(), payload.take(4)
        known = self._sessions.get(number)
        if known is not None and hmac.compare_digest(known[0].to_bytes(4, "big"), secret):
            known[1].cancel()

    async def _admit(self, user: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connected > self.limits.connections:
            raise SqlError(
                "53300", f"{self.limits.connections} clients are connected, which is the most", "try again later"
            )
        if self._scrams is None:
            return
        scram, roles = self._scrams.of(user)
        writer.write(messages.authentication(_SASL, b"SCRAM-SHA-256\0\0"))
        kind, payload = await read_message(reader, messages.MOST_STARTUP)
        if kind != b"p" or payload.text() != "SCRAM-SHA-256":
            raise Refused("this server asks for the token as the password, by SCRAM-SHA-256")
        answer, exchange = scram.exchange((payload.value() or b"").decode(errors="replace"))
        writer.write(messages.authentication(_SASL_CONTINUE, answer.encode()))
        kind, payload = await read_message(reader, messages.MOST_STARTUP)
        if kind != b"p":
            raise Refused("the proof of the token is missing")
        final = exchange.finish(payload.rest().decode(errors="replace"))
        if "read" not in roles:
            raise SqlError("42501", f'the token "{user}" has not the role read', "use one that has it")
        writer.write(messages.authentication(_SASL_FINAL, final.encode()))

    async def _converse(
        self, wishes: list[tuple[str, str]], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        settings = Settings(self.limits.seconds)
        for name, value in wishes:
            if name not in ("user", "database", "options", "replication") and not name.startswith("_pq_"):
                settings.set(name, value)
            for option, wanted in _options(value) if name == "options" else ():
                settings.set(option, wanted)
        self._next = number = self._next % 2**31 + 1
        secret = secrets.randbits(32)
        session = Session(reader, writer, Asking(self._home, settings), settings, self._workers, self.limits.patience)
        self._sessions[number] = secret, session
        try:
            writer.write(messages.authentication(0))
            writer.write(b"".join(messages.parameter_status(name, settings.get(name)) for name in REPORTED))
            writer.write(messages.backend_key(number, secret))
            await session.run()
        finally:
            del self._sessions[number]
            session.close()


def _wishes(first: Payload) -> list[tuple[str, str]]:
    """Return the parameters in the startup message of a client: its user, and settings."""
    wishes = []
    while name := first.text():
        wishes.append((name, first.text()))
    return wishes


def _options(text: str) -> list[tuple[str, str]]:
    """Return the settings in the options of a connection, such as `-c hayase.as_of=complete`.

    >>> _options("-c hayase.as_of=complete -cstatement_timeout=5s")
    [('hayase.as_of', 'complete'), ('statement_timeout', '5s')]
    """
    parts = text.replace("-c ", "-c").split()
    pairs = [part[2:].partition("=") for part in parts if part.startswith("-c") and "=" in part]
    return [(name, value) for name, _, value in pairs]
