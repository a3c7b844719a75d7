"""Catalogues that are kept from statement to statement, as long as no lane has a newer manifest and no table has changed.

What identifies a set of manifests is read before the set itself, and compared again before each statement: the names and the
files of the newest definition and of each lane's newest manifest, and the places of the tables. So a kept catalogue is never older
than the newest manifests at the begin of a statement. One whose newest commit was still being published is not kept.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Hashable
from pathlib import Path

from hayase.core.data_classes import dataclass
from hayase.core.stages import MAIN, OPERATIONS
from hayase.engine.home import Home
from hayase.relations.kept_rows import KeptRows
from hayase.relations.relation_catalogue import Catalogue, catalogue_of
from hayase.relations.versions import OpenTables, Versions, read_versions
from hayase.streams.home_format import check_home
from hayase.tables.seals import place_of

__all__ = ["KeptCatalogues"]

_KEPT = 16
"""Catalogues at most: one for each set of tables that statements name."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A catalogue, and the newest files when it was read."""

    newest: Hashable
    catalogue: Catalogue


class KeptCatalogues:
    """The catalogues of one home. Any number of threads may ask for them."""

    def __init__(self, home: Home):
        self._home = home
        self._tables = OpenTables(home)
        self._rows = KeptRows()
        self._shown: dict[str, int] = {}
        """The greatest versions of lanes that were returned: no later statement goes back before them."""
        self._kept: OrderedDict[frozenset[str] | None, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def newest(self, tables: frozenset[str] | None = None) -> Catalogue:
        """Return the relations at the newest set of manifests: of tables those with these names in lower case, or all. Streams that
        others append to are looked at when the catalogue is first asked for them."""
        check_home(self._home.path)
        newest = _newest_files(self._home)
        with self._lock:
            kept = self._kept.get(tables)
            if kept is not None:
                self._kept.move_to_end(tables)
        if kept is not None and kept.newest == newest and self._is_in_place(kept.catalogue.versions):
            return kept.catalogue.anew()
        versions = read_versions(self._home, self._tables, tables, self._shown)
        with self._lock:
            for lane, manifest in versions.manifests.items():
                self._shown[lane] = max(self._shown.get(lane, 0), manifest.version)
        catalogue = catalogue_of(versions, self._rows)
        if versions.is_newest:
            with self._lock:
                for other in [each for each, older in self._kept.items() if older.newest != newest]:
                    del self._kept[other]  # it would only keep old files of tables open
                self._kept[tables] = _Kept(newest, catalogue)
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        return catalogue.anew()

    def forget(self) -> None:
        """Read everything again: what a kept catalogue refers to was removed."""
        with self._lock:
            self._kept.clear()

    def _is_in_place(self, versions: Versions) -> bool:
        """Whether no table has changed: a batch that is taken in, a fold and a load all change its place."""
        return all(place_of(self._home.table(name)) == place for name, place in versions.places.items())

    def close(self) -> None:
        """Let go of all tables."""
        self.forget()
        self._tables.close()


def _newest_files(home: Home) -> Hashable:
    """Return what identifies the newest definition and the newest manifest of each lane, with their files on disk."""
    return tuple(
        _newest_file(directory) for directory in (home.definitions, home.commits(MAIN), home.commits(OPERATIONS))
    )


def _newest_file(directory: Path) -> Hashable:
    try:
        name = max((name for name in os.listdir(directory) if name.endswith(".json")), default=None)
        if name is None:
            return None
        status = os.stat(f"{directory}/{name}")  # noqa: PTH116 (part of every statement)
    except FileNotFoundError:
        return None
    return name, status.st_ino, status.st_mtime_ns, status.st_size
