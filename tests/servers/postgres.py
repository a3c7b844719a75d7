"""PostgreSQL with logical replication: the machine's own (Debian, Ubuntu), or Debian's packages unpacked into the cache.

Clients log in with a password. The server never runs as root. Writes are not synced unless a setting says so: what a killed process
has written stays.
"""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path

import psycopg2

from servers.parts import GET, fetch, find, unpack_packages
from servers.process import Missing, Server, free_port, unprivileged

__all__ = ["PASSWORD", "USER", "Postgres", "fetch_postgres"]

USER, PASSWORD = "shop", "only-for-tests"
_NAME = "postgresql-debian"
_PROGRAMS = "usr/lib/postgresql/*/bin"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "fsync": "off",
    "jit": "off",
}


def fetch_postgres() -> None:
    """Unpack Debian's PostgreSQL into the cache, if this machine has none."""
    if _programs(Path("/")) is None:
        fetch(_NAME, lambda directory: unpack_packages("postgresql", directory), for_all=True)


def _programs(root: Path) -> Path | None:
    """Return the directory of the newest PostgreSQL's programs below a root."""
    found = [path for path in root.glob(_PROGRAMS) if (path / "initdb").exists() and (path / "postgres").exists()]
    return max(found, key=lambda path: int(path.parent.name), default=None)


class Postgres(Server):
    """A PostgreSQL server; clients take `dsn`. Settings are those of `postgresql.conf`, beside the ones above."""

    name = "PostgreSQL"
    stop_signal = signal.SIGINT  # "fast": clients are disconnected

    def __init__(self, **settings: str) -> None:
        programs = _programs(Path("/"))
        if programs is None and (unpacked := find(_NAME, for_all=True)):
            programs = _programs(unpacked)
            libraries = {str(path.parent) for path in unpacked.glob("usr/lib/**/*.so*")}
            self.environment = {"LD_LIBRARY_PATH": ":".join(sorted(libraries))}
        if programs is None:
            raise Missing(f"there is no PostgreSQL here; {GET}; or, on Debian, Ubuntu: apt-get install postgresql")
        self._programs = programs
        self.user = unprivileged()
        super().__init__()
        self.port = free_port()
        self.settings = _SETTINGS | settings
        self.dsn = f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def prepare(self) -> None:
        password = self.directory / "password"
        password.write_text(PASSWORD, encoding="utf-8")
        self.run([
            f"{self._programs}/initdb", "--pgdata=data", "--username", USER, f"--pwfile={password}", "--auth=scram-sha-256",
            "--encoding=UTF8", "--locale=C", "--no-sync",
        ])  # fmt: skip

    def command(self) -> list[str]:
        settings = [f"--{name}={value}" for name, value in self.settings.items()]
        return [f"{self._programs}/postgres", "-D", "data", "-p", str(self.port), *settings]

    def answers(self) -> bool:
        try:
            with closing(psycopg2.connect(self.dsn, connect_timeout=30)):
                return True
        except psycopg2.OperationalError:
            return False

    def execute(self, *statements: str) -> list[tuple[object, ...]]:
        """Run statements, each in a transaction of its own, and return the rows of the last one."""
        with closing(psycopg2.connect(self.dsn)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return cursor.fetchall() if cursor.description else []
