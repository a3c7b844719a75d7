"""The ledger of a home: the manifests of all its lanes, told as one, and the tables that they fill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from hayase.core.stages import MAIN
from hayase.engine.batch.offsets import Offset
from hayase.engine.commit.manifests import Commits, Manifest
from hayase.engine.commit.tables import Tables
from hayase.engine.definition.definitions import Definition, definition_of, latest
from hayase.engine.home import Home

__all__ = ["Ledger", "home_manifest", "progress"]

_T = TypeVar("_T")


class Ledger:
    """The commits of every lane. One process writes them, the one that holds the home's lock; the tables are open until
    `close`."""

    def __init__(self, home: Home):
        self.home, self.tables = home, Tables(home)
        self._commits: dict[str, Commits] = {}

    def of(self, lane: str) -> Commits:
        """The commits of a lane."""
        if lane not in self._commits:
            self._commits[lane] = Commits(self.home, lane, self.tables)
        return self._commits[lane]

    def recover(self) -> Manifest:
        """Finish what the newest manifests promised."""
        definition = latest(self.home)
        lanes = definition.lanes if definition is not None else (MAIN,)
        return home_manifest(self.home, {lane: self.of(lane).recover() for lane in lanes})

    def latest(self) -> Manifest:
        """What was committed last, in all lanes."""
        return progress(self.home)

    def close(self) -> None:
        """Let go of the tables."""
        self.tables.close()


def progress(home: Home, definition: Definition | None = None) -> Manifest:
    """What was committed last in the lanes of a definition, by default of the newest one."""
    definition = definition or latest(home)
    lanes = definition.lanes if definition is not None else (MAIN,)
    return home_manifest(home, {lane: Commits(home, lane).latest() for lane in lanes})


def home_manifest(home: Home, manifests: Mapping[str, Manifest]) -> Manifest:
    """The manifests of lanes as one: all positions, clocks and figures, of stages that the newest of their definitions has.

    Its version is the number of batches of all of them. It is for those who look: nobody can go on from it.
    """
    known = [each for each in manifests.values() if each.version]
    if len(known) <= 1:
        return known[0] if known else Manifest()
    version = max(each.offset.definition for each in known)
    named = {each.name for each in definition_of(home, version).records}
    newest = max(known, key=lambda each: each.committed_at)
    return replace(
        newest,
        version=sum(each.version for each in known),
        offset=Offset(
            version,
            _merged([each.offset.positions for each in known], named),
            max(each.offset.tick for each in known),
            _merged([each.offset.firings for each in known], named),
        ),
        clocks=_merged([each.clocks for each in known], named),
        states={},
        parts=tuple(part for each in known for part in each.parts),
        runs=tuple(run for each in known for run in each.runs),
        totals=_merged([each.totals for each in known], named),
        seconds=max(each.seconds for each in known),
    )


def _merged(several: Sequence[Mapping[str, _T]], named: set[str]) -> dict[str, _T]:
    return {name: value for each in several for name, value in each.items() if name in named}
