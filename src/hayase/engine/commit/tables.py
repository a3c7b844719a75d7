"""The tables of a home, as the process that holds its lock has them open."""

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
"""All that this process has open: who takes over a home within the process takes over its tables."""
_lock = threading.Lock()


class Tables:
    """Opened when first asked for, all closed together. Any thread may ask."""

    def __init__(self, home: Home):
        self._home = home

    def names(self) -> list[str]:
        """The tables of the newest definition."""
        return [each.name for each in self._declared()]

    def declaration(self, name: str) -> TableDeclaration:
        """What the newest definition says of a table."""
        for each in self._declared():
            if each.name == name:
                return each
        raise UnknownName("table", name, self.names())

    def table(self, name: str) -> Table:
        """A table, to be read."""
        return self.own(self.declaration(name))

    def own(self, declaration: TableDeclaration) -> OwnTable:
        """A table, to be written too."""
        from hayase.tables.table import open_own

        path = self._home.table(declaration.name)
        with _lock:
            found = _open.get(path)
            if found is None:
                found = _open[path] = open_own(path, declaration)
            found.declare(declaration)
            return found

    def begin(self, declaration: TableDeclaration, generation: str, again: bool = False) -> None:
        """Let a table begin as a generation, unless it has; what it held before goes. A store that is damaged is thrown away:
        but one of this very generation, or one of which that cannot be said when this is done `again`, is an error."""
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
        """See that the store of a table that was begun is there and can be used; DamagedState says what to do."""
        from hayase.tables.stores import check_begun

        if self._home.table(declaration.name) not in _open:
            check_begun(self._home.table(declaration.name))
        self.own(declaration)

    def close(self) -> None:
        """Let go of all of them."""
        with _lock:
            for path in [each for each in _open if each.parent == self._home.tables]:
                _open.pop(path).close()

    def _declared(self) -> tuple[TableDeclaration, ...]:
        definition = latest(self._home)
        return definition.declaration.tables if definition is not None else ()
