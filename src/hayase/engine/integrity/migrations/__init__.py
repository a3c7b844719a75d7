"""Migrations: how a home of an older format becomes one of the next, a module each.

A migration takes a home whose lock is held, and gives how many files it has changed. It reads everything that it is going to change
before it changes anything. It replaces files one by one and as a whole, and recognises those that it has replaced already:
so one that was interrupted is run again from the beginning. Only when all of it is durable does the home get the new number.

To change a format: raise `home_format.FORMAT`, add a row to its table, a module here and a line to `MIGRATIONS`, and keep a home of
the format before it in `tests/fixtures` (docs/design/0016-formats.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hayase.core.errors import FormatMismatch
from hayase.engine.home import Home
from hayase.engine.integrity.migrations import checksums
from hayase.streams import durable
from hayase.streams.home_format import FORMAT, check_home, format_of, write_format

__all__ = ["MIGRATIONS", "Upgrade", "upgrade"]

MIGRATIONS: Mapping[int, Callable[[Home], int]] = {2: checksums.migrate}
"""What brings a home to a format from the one before it."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What became of a home: from which format to which, and how many files were written for it."""

    before: int
    after: int
    files: int


def upgrade(home: Home) -> Upgrade:
    """Bring a home to the format of this version. Nobody may run it, append to it or change it meanwhile."""
    before = format_of(home.path)
    if before is None:
        raise FormatMismatch(f"there is no home of a pipeline in {home.path}; name another directory")
    if before > FORMAT:
        check_home(home.path)  # tells what to do
    files, at = 0, before
    with home.hold():
        for number in range(before + 1, FORMAT + 1):
            files += MIGRATIONS[number](home)
            write_format(home.path, number)
            at = number
        durable.remove_leftovers(home.path)
    return Upgrade(before, at, files)
