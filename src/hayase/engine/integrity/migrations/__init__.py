"""Migrations of a home from one format to the next, one module each, and `upgrade`, which runs them.

A migration takes a home whose lock is held, and returns how many files it has changed. It reads everything that it is going to
change before it changes anything. It replaces whole files, one by one, and skips those that it has replaced already, so that an
interrupted migration can be run again from the start. The home gets the new format number only once all changes are durable.

To change a format: raise `home_format.FORMAT`, add a row to its table, a module here and a line to `MIGRATIONS`, and keep a home of
the format before it in `tests/fixtures` (docs/design/0016-formats.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from hayase.core.data_classes import dataclass
from hayase.core.errors import FormatMismatch
from hayase.engine.home import Home
from hayase.engine.integrity.migrations import checksums
from hayase.streams import durable
from hayase.streams.home_format import FORMAT, check_home, format_of, write_format

__all__ = ["MIGRATIONS", "Upgrade", "upgrade"]

MIGRATIONS: Mapping[int, Callable[[Home], int]] = {2: checksums.migrate}
"""The migration to each format from the one before it."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The result of an upgrade: the formats before and after, and how many files were written."""

    before: int
    after: int
    files: int


def upgrade(home: Home) -> Upgrade:
    """Bring a home to the format of this version. No process may run it, append to it or change it meanwhile."""
    before = format_of(home.path)
    if before is None:
        raise FormatMismatch(f"there is no home of a pipeline in {home.path}", "name another directory")
    if before > FORMAT:
        check_home(home.path)  # raises an error that says what to do
    files, at = 0, before
    with home.hold():
        for number in range(before + 1, FORMAT + 1):
            files += MIGRATIONS[number](home)
            write_format(home.path, number)
            logging.getLogger(__name__).info("%s has format %d now", home.path, number)
            at = number
        durable.remove_leftovers(home.path)
    return Upgrade(before, at, files)
