"""What PostgreSQL's source and sink share: connections, names of tables, and errors in words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import psycopg2
from psycopg2 import sql
from psycopg2.extensions import parse_dsn

from hayase.connectors.secrets import secret_in
from hayase.core.errors import EndpointError

__all__ = ["CONNECT", "Column", "TableName", "columns_of", "connect", "explained", "table_name"]

CONNECT = 15
"""Seconds until a server that does not answer counts as unreachable."""
_KEEPALIVE = {
    "keepalives": "1", "keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}  # fmt: skip
_SESSION = {
    "client_encoding": "UTF8",
    "datestyle": "ISO",
    "timezone": "UTC",
    "bytea_output": "hex",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "1",
}
"""Settings by which values have the same text in every session."""


class TableName(NamedTuple):
    """A table with its schema."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def quoted(self) -> sql.Identifier:
        """The name in a statement."""
        return sql.Identifier(self.schema, self.table)


class Column(NamedTuple):
    """A column of a table: its type as the catalog names it, like `int4` or `_text`, and as people write it."""

    type: str
    shown: str
    needed: bool
    """Whether every insert must give a value: it is not null and has no default."""
    generated: bool


def connect(options: Mapping[str, Any], factory: Any = None, **settings: str) -> Any:
    """Return a new connection with these settings of its session; EndpointError says why there is none."""
    secret = secret_in(options, "dsn")
    if secret is None:
        raise EndpointError("there is no connection string", "give dsn_env or dsn_file")
    try:
        dsn = parse_dsn(secret)
    except psycopg2.Error:  # its message quotes the secret
        raise EndpointError(
            "the connection string cannot be read", "write it like postgresql://user:password@host:5432/database"
        ) from None
    session = " ".join(f"-c {name}={value}" for name, value in {**_SESSION, **settings}.items())
    dsn = {
        "application_name": "hayase", **_KEEPALIVE, **dsn, "connect_timeout": str(CONNECT),
        "options": f"{dsn.get('options', '')} {session}".strip(),
    }  # fmt: skip
    with explained(options):
        return psycopg2.connect(**dsn, **({} if factory is None else {"connection_factory": factory}))


@contextlib.contextmanager
def explained(options: Mapping[str, Any]) -> Iterator[None]:
    """Turn an error of the client into EndpointError with a remedy."""
    try:
        yield
    except psycopg2.Error as error:
        text = " ".join(str(error).split()) or type(error).__name__
        code = error.pgcode or ("28" if "authentication failed" in text else "")  # a refused connection has no code
        detail = getattr(error.diag, "column_name", None)
        remedy = next((words for prefix, words in _REMEDIES.items() if code.startswith(prefix)), _CHECK)
        column = f', column "{detail}"' if detail else ""
        raise EndpointError(f'PostgreSQL, table "{options["table"]}"{column}: {text}', remedy) from error


_CHECK = "check the server, the connection string and the access to it"
_REMEDIES = {
    "28": "check the user and the password in the connection string",
    "3D": "check the name of the database",
    "42501": "grant the user of the connection string what is missing",
    "42P01": "check the name of the table",
    "55P03": "another session holds a lock for long: see pg_locks",
    "55006": "another process uses it: end it, or wait until the server notices that it is gone (wal_sender_timeout)",
    "57014": "the statement took too long: see pg_stat_activity for what it waits for",
    "53": "give the server room, or a higher limit",
    "22": "the table cannot hold a value: change the type of the column, or the query",
    "23": "the table refuses a row: change its constraints, or the query",
}
"""What to do, by the beginning of the error's code."""


def table_name(cursor: Any, text: str) -> TableName:
    """Return a table's name with its schema; a name alone is in the first schema of the search path."""
    schema, _, table = text.rpartition(".")
    if not schema:
        cursor.execute("SELECT current_schema()")
        schema = cursor.fetchone()[0]
        if schema is None:
            raise EndpointError(f'there is no schema for the table "{text}"', "write it with one, like public.users")
    return TableName(schema, table)


def columns_of(cursor: Any, table: TableName) -> dict[str, Column]:
    """Return the columns of a table; none if there is no such table."""
    cursor.execute(
        "SELECT a.attname, t.typname, format_type(a.atttypid, a.atttypmod), "
        "a.attnotnull AND NOT a.atthasdef AND a.attidentity = '', a.attgenerated <> '' "
        "FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
        "JOIN pg_type t ON t.oid = a.atttypid "
        "WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        table,
    )
    return {name: Column(*rest) for name, *rest in cursor.fetchall()}
