"""Exclusive access to a table for loading rows into it while the pipeline does not run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hayase.core.clock import now_us
from hayase.core.declarations import TableDeclaration
from hayase.core.errors import HomeInUse, StageChanged
from hayase.core.stages import MAIN
from hayase.engine.commit.ledger import Ledger
from hayase.engine.definition.definitions import latest_version, load
from hayase.engine.home import Home, writing

if TYPE_CHECKING:
    from hayase.tables.table import OwnTable

__all__ = ["open_for_writing"]


@contextlib.contextmanager
def open_for_writing(path: Path, declaration: TableDeclaration) -> Iterator[OwnTable]:
    """Lock the home and yield the table with all committed updates applied. A definition that has not run yet is taken up
    first, so that a pending reset of the table happens before rows are loaded, not afterwards."""
    home = Home(path)
    name = declaration.name
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(home.lock())
        except HomeInUse as error:
            hint = "rows are loaded while it does not run; a pipeline that runs takes records, by `hayase append`"
            raise HomeInUse(f'table "{name}" cannot be loaded: {error}; {hint}') from error
        ledger = stack.enter_context(contextlib.closing(Ledger(home)))
        commits = ledger.of(MAIN)
        manifest = commits.recover()
        if latest_version(home):
            manifest = commits.take_up(manifest, now_us())
        _check(home, manifest.offset.definition, declaration)
        stack.enter_context(writing(f'table "{name}"'))
        yield ledger.tables.own(declaration)


def _check(home: Home, version: int, declaration: TableDeclaration) -> None:
    """Raise StageChanged if the declaration does not fit the rows that the table of the home holds."""
    tables = load(home, version).declaration.tables if version else ()
    for table in tables:
        same = table.key == declaration.key and declaration.columns[: len(table.columns)] == table.columns
        if table.name == declaration.name and not same:
            raise StageChanged(
                f'table "{table.name}" is declared otherwise than the one in {home.path}, with the key '
                f"({', '.join(table.key)}) and the columns {', '.join(table.column_names)}; put that back, or apply the "
                "change first, with `hayase apply`"
            )
