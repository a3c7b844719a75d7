"""All stages of a pipeline: those of its jobs and queries, each behind what it reads, then those of its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hayase.core.declarations import PipelineDeclaration, StreamDeclaration
from hayase.core.errors import Mistake
from hayase.core.stages import Lookup, Stage
from hayase.cql.planner import plan as plan_queries

__all__ = ["Planned", "lookups_of", "plan"]


@dataclass(frozen=True, slots=True)
class Planned:
    """The stages, each behind those whose output it reads but for the loops of jobs, and what is wrong: (kind, name, mistake).

    The kind is that of a `PipelineFile`'s places; it is empty where the mistake knows its place already.
    """

    stages: tuple[Stage, ...] = ()
    mistakes: tuple[tuple[str, str, Mistake], ...] = ()


def plan(declaration: PipelineDeclaration, home: Path | None = None) -> Planned:
    """The stages of a declaration; without a home they can be looked at, but find nothing in tables."""
    lookups = lookups_of(declaration, home)
    stages: list[Stage] = []
    mistakes: list[tuple[str, str, Mistake]] = []
    emitted: Mapping[str, Sequence[str]] = {}
    asked = declaration
    if declaration.jobs:
        from hayase.jobs.planning import plan_jobs
        from hayase.tables.stored import StoredTable

        # Queries may read what jobs write, and jobs what queries write that read no jobs.
        before = _streams(declaration.streams, plan_queries(declaration, lookups).stages)
        stored = {each.name: StoredTable(each, _place(home, each.name)) for each in declaration.tables}
        jobs = plan_jobs(declaration, before, stored)
        mistakes += [("job", name, each) for name, each in jobs.mistakes]
        stages += jobs.stages
        emitted = jobs.emitted
        public = tuple(each.stream for each in jobs.stages if not each.name.startswith("_"))
        asked = replace(declaration, streams=(*declaration.streams, *public), jobs=())
    queries = plan_queries(asked, lookups)
    if not mistakes:  # what a job with mistakes would write is not known
        mistakes += [("query", name, each) for name, each in queries.mistakes]
    stages = _in_order([*queries.stages, *stages])
    if declaration.tables or declaration.rules:
        from hayase.tables.planning import plan_tables

        tables = plan_tables(declaration, _streams(declaration.streams, stages), emitted)
        stages += tables.stages
        for name, mistake in tables.mistakes:
            mistakes.append(("column" if name and "." in name else "table" if name else "", name or "", mistake))
    return Planned(tuple(stages), tuple(mistakes))


def lookups_of(declaration: PipelineDeclaration, home: Path | None = None) -> dict[str, Lookup]:
    """The tables as queries meet them; without a home they are empty."""
    if not declaration.tables:
        return {}
    from hayase.tables import TYPES
    from hayase.tables.lookups import TableLookup

    known = [each for each in declaration.tables if all(kind in TYPES for _, kind in each.columns)]
    return {each.name: TableLookup(each, _place(home, each.name)) for each in known}


def _place(home: Path | None, table: str) -> Path:
    return (home or Path()) / "tables" / table


def _streams(declared: Sequence[StreamDeclaration], stages: Sequence[Stage]) -> dict[str, StreamDeclaration]:
    """Streams by name: the declared ones and what stages write."""
    return {each.name: each for each in declared} | {each.stream.name: each.stream for each in stages}


def _in_order(stages: Sequence[Stage]) -> list[Stage]:
    """Stages behind those whose output they read, otherwise as they stand; in a loop the first of it comes first."""
    left, found = list(stages), list[Stage]()
    while left:
        waiting = {each.name for each in left}
        free = [each for each in left if not any(one.stream in waiting for one in each.inputs)] or left[:1]
        found += free
        left = [each for each in left if each not in free]
    return found
