"""The ledger of a home: the manifests of all lanes, merged into one view, and the tables that the lanes write."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from hayase.core.stages import MAIN
from hayase.engine.batch.offsets import Offset
from hayase.engine.commit.manifests import BatchTimes, Commits, Manifest
from hayase.engine.commit.tables import Tables
from hayase.engine.definition.definitions import Definition, definition_of, latest
from hayase.engine.home import Home

__all__ = ["Ledger", "home_manifest", "open_ledger", "progress"]

_T = TypeVar("_T")


class Ledger:
    """The commits of every lane. Only the process that holds the home's lock writes them; the tables stay open until
    `close`."""

    def __init__(self, home: Home):
        self.home, self.tables = home, Tables(home)
        self._commits: dict[str, Commits] = {}
        self.on_batch: Callable[[BatchTimes], None] = lambda times: None
        """Called after every batch, in the thread that commits."""

    def of(self, lane: str) -> Commits:
        """Return the commits of a lane."""
        if lane not in self._commits:
            self._commits[lane] = Commits(self.home, lane, self.tables, lambda times: self.on_batch(times))
        return self._commits[lane]

    def recover(self) -> Manifest:
        """Finish applying the newest manifest of every lane; return them merged."""
        definition = latest(self.home)
        lanes = definition.lanes if definition is not None else (MAIN,)
        return home_manifest(self.home, {lane: self.of(lane).recover() for lane in lanes})

    def latest(self) -> Manifest:
        """Return the newest manifests of all lanes, merged."""
        return progress(self.home)

    def close(self) -> None:
        """Close the tables."""
        self.tables.close()


@contextlib.contextmanager
def open_ledger(home: Home) -> Iterator[Ledger]:
    """Yield the ledger of a home with the newest manifests applied, so that streams and tables can be read; close it on exit."""
    with contextlib.closing(Ledger(home)) as ledger:
        ledger.recover()
        yield ledger


def progress(home: Home, definition: Definition | None = None) -> Manifest:
    """Return the newest manifests of the lanes of a definition (by default the newest one), merged."""
    definition = definition or latest(home)
    lanes = definition.lanes if definition is not None else (MAIN,)
    return home_manifest(home, {lane: Commits(home, lane).latest() for lane in lanes})


def home_manifest(home: Home, manifests: Mapping[str, Manifest]) -> Manifest:
    """Merge the manifests of lanes: positions, clocks and figures of all stages in the newest of their definitions.

    The version is the total number of batches. The result is for reading only: it holds no state to resume from.
    """
    committed = [manifest for manifest in manifests.values() if manifest.version]
    lanes = {lane: manifest.version for lane, manifest in manifests.items()}
    if len(committed) <= 1:
        return replace(committed[0] if committed else Manifest(), lanes=lanes)
    version = max(manifest.offset.definition for manifest in committed)
    stages = {record.name for record in definition_of(home, version).records}
    newest = max(committed, key=lambda manifest: manifest.committed_at)
    return replace(
        newest,
        version=sum(manifest.version for manifest in committed),
        offset=Offset(
            version,
            _merged([manifest.offset.positions for manifest in committed], stages),
            max(manifest.offset.tick for manifest in committed),
            _merged([manifest.offset.firings for manifest in committed], stages),
        ),
        clocks=_merged([manifest.clocks for manifest in committed], stages),
        states={},
        parts=tuple(part for manifest in committed for part in manifest.parts),
        runs=tuple(run for manifest in committed for run in manifest.runs),
        totals=_merged([manifest.totals for manifest in committed], stages),
        seconds=max(manifest.seconds for manifest in committed),
        lanes=lanes,
    )


def _merged(several: Sequence[Mapping[str, _T]], named: set[str]) -> dict[str, _T]:
    return {name: value for mapping in several for name, value in mapping.items() if name in named}
