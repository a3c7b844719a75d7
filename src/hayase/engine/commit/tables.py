"""The tables of a home, opened for writing in the process that holds the home's lock."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from hayase.core.declarations import TableDeclaration
from hayase.core.errors import DamagedState, UnknownName
from hayase.engine.definition.definitions import latest
from hayase.engine.home import Home

if TYPE_CHECKING:
    from hayase.tables.table import OwnTable, Table

__all__ = ["Tables"]


_open: dict[Path, OwnTable] = {}
"""All tables that this process has open; a later owner of the same home in this process reuses them."""
_lock = threading.Lock()


class Tables:
    """Opens tables on first use and closes them together. Safe to use from any thread."""

    def __init__(self, home: Home):
        self._home = home

    def names(self) -> list[str]:
        """Return the names of the tables in the newest definition."""
        return [table.name for table in self._declared()]

    def declaration(self, name: str) -> TableDeclaration:
        """Return the declaration of a table in the newest definition; UnknownName if it has none."""
        for table in self._declared():
            if table.name == name:
                return table
        raise UnknownName("table", name, self.names())

    def table(self, name: str) -> Table:
        """Return a table for reading."""
        return self.own(self.declaration(name))

    def own(self, declaration: TableDeclaration) -> OwnTable:
        """Return a table for reading and writing."""
        from hayase.tables.table import open_own

        path = self._home.table(declaration.name)
        with _lock:
            table = _open.get(path)
            if table is None:
                table = _open[path] = open_own(path, declaration)
            table.declare(declaration)
            return table

    def begin(self, declaration: TableDeclaration, generation: str, again: bool = False) -> None:
        """Begin a generation of a table, unless it has begun; rows of earlier generations are deleted.

        A damaged store is discarded. It is an error if it is of this very generation, or if its generation is unknown and
        this is a repeated attempt (`again`).
        """
        from hayase.tables.stores import discard, generation_of

        path = self._home.table(declaration.name)
        try:
            self.own(declaration).begin(generation)
        except DamagedState:
            known = generation_of(path)
            if known == generation or (again and known is None):
                raise
            with _lock:
                if path in _open:
                    _open.pop(path).close()
            discard(path)
            self.own(declaration).begin(generation)

    def check(self, declaration: TableDeclaration) -> None:
        """Raise DamagedState if the store of a table that has begun is missing or unusable."""
        from hayase.tables.stores import check_begun

        if self._home.table(declaration.name) not in _open:
            check_begun(self._home.table(declaration.name))
        self.own(declaration)

    def close(self) -> None:
        """Close all tables of this home."""
        with _lock:
            for path in [open_path for open_path in _open if open_path.parent == self._home.tables]:
                _open.pop(path).close()

    def _declared(self) -> tuple[TableDeclaration, ...]:
        definition = latest(self._home)
        return definition.declaration.tables if definition is not None else ()
