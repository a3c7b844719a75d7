"""A table for somebody who writes it beside its pipeline: one who loads rows, while nobody runs."""

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

__all__ = ["owning"]


@contextlib.contextmanager
def owning(path: Path, declaration: TableDeclaration) -> Iterator[OwnTable]:
    """The table, with all that was committed in it. A definition that nobody has run yet is taken up first: a table that is
    to begin anew does so before it is written, not afterwards."""
    home = Home(path)
    name = declaration.name
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(home.lock())
        except HomeInUse as error:
            hint = "rows are loaded while it does not run; a pipeline that runs takes records, by `hayase append`"
            raise HomeInUse(f'table "{name}" cannot be loaded: {error}; {hint}') from error
        ledger = held.enter_context(contextlib.closing(Ledger(home)))
        commits = ledger.of(MAIN)
        manifest = commits.recover()
        if latest_version(home):
            manifest = commits.take_up(manifest, now_us())
        _check(home, manifest.offset.definition, declaration)
        held.enter_context(writing(f'table "{name}"'))
        yield ledger.tables.own(declaration)


def _check(home: Home, version: int, declaration: TableDeclaration) -> None:
    """Rows of another shape must not get among those that are there."""
    tables = load(home, version).declaration.tables if version else ()
    for each in tables:
        same = each.key == declaration.key and declaration.columns[: len(each.columns)] == each.columns
        if each.name == declaration.name and not same:
            raise StageChanged(
                f'table "{each.name}" is declared otherwise than the one in {home.path}, with the key '
                f"({', '.join(each.key)}) and the columns {', '.join(each.column_names)}; put that back, or apply the "
                "change first, with `hayase apply`"
            )
