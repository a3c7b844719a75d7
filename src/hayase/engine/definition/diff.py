"""The difference between a new version of a pipeline and the one in the home, before it is written (`preview`) or after
(`done`).

`hayase.engine.definition.stage_comparison.compare` decides what becomes of a stage, here as when the version is written.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from hayase.core.data_classes import dataclass
from hayase.core.declarations import PipelineDeclaration, TableDeclaration
from hayase.core.errors import SchemaMismatch
from hayase.core.stages import OPERATIONS, Stage, is_build, query_of
from hayase.engine.definition.definitions import (
    Change,
    Definition,
    Dial,
    StageChange,
    StageRecord,
    Start,
    latest,
    planned,
    stages_of,
)
from hayase.engine.definition.proposals import Prepared, only_writer, prepare
from hayase.engine.definition.stage_comparison import can_be_built, compare, with_readers
from hayase.engine.home import Home
from hayase.streams.schema_evolution import reconcile, stored_declaration

__all__ = ["Difference", "Preview", "done", "preview"]

_WORDS: Mapping[StageChange, str] = {
    "kept": "kept",
    "changed": "changed in place",
    "anew": "begins anew",
    "refused": "rebuilt",
    "added": "added",
    "removed": "removed",
}
_WORST: Sequence[StageChange] = ("refused", "anew", "changed", "added", "removed", "kept")


@dataclass(frozen=True, slots=True)
class Difference:
    """What becomes of one declared object; `note` says why, or what to do."""

    kind: str
    name: str
    fate: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Preview:
    """What becomes of all declared objects, compared with `version` (0: there is none)."""

    version: int
    differences: tuple[Difference, ...]

    @property
    def is_possible(self) -> bool:
        """Whether the change can be made without a reset, and without a build beside what runs."""
        return not any(difference.fate in (_WORDS["refused"], "refused") for difference in self.differences)

    @property
    def changes_nothing(self) -> bool:
        return all(difference.fate == "kept" for difference in self.differences)

    def as_json(self) -> dict[str, Any]:
        """Return plain data for a JSON writer."""
        return {
            "version": self.version,
            "possible": self.is_possible,
            "changes": [asdict(difference) for difference in self.differences],
        }


def preview(home: Home, declaration: PipelineDeclaration) -> Preview:
    """Return what would become of the pipeline in a home. Nothing is written; DeclarationError if the declaration has mistakes.

    A home that cannot be written is read without its lock: nobody can change its definition meanwhile.
    """
    if not home.path.exists():
        with tempfile.TemporaryDirectory() as empty:
            return _previewed(Home(Path(empty)), declaration)
    return _previewed(home, declaration)


class _Enough(Exception):
    """Raised to leave `only_writer` with an error, so that shipped code is removed again."""


def _previewed(home: Home, declaration: PipelineDeclaration) -> Preview:
    previews: list[Preview] = []
    try:
        with only_writer(home) if os.access(home.path, os.W_OK) else contextlib.nullcontext():
            current = latest(home)
            wanted = prepare(home, current, declaration)
            running = None if current is None else current.without_build()
            shown = _differences(home, running, wanted, planned(wanted.declaration, home), {})
            previews.append(
                shown if current is None or current.build is None else _during_build(current, wanted, shown)
            )
            raise _Enough
    except _Enough:
        return previews[0]


def done(before: Definition | None, made: Definition) -> Preview:
    """Return what became of the pipeline through the version `made`; `before` is the definition it replaced."""
    before = None if before is None else before.without_build()
    if made.build is not None:
        wanted = Prepared.of(made.build)
        shown = _differences(made.home, before, wanted, planned(wanted.declaration, made.home), {})
        return _with_builds(made, shown, "built beside", "replaces the old one when it has caught up")
    anew: dict[str, Start] = {record.name: record.start for record in made.records if record.generation == made.version}
    wanted = Prepared.of(made)
    return _differences(made.home, before, wanted, stages_of(made), anew)


def _differences(
    home: Home,
    current: Definition | None,
    wanted: Prepared,
    stages: Mapping[str, Stage],
    anew: Mapping[str, Start],
) -> Preview:
    differences = [
        *_streams(home, current, wanted.declaration),
        *_connectors(current, wanted.declaration),
        *_tables(current, wanted.declaration, stages),
        *_stages(current, wanted.declaration, stages, anew),
        *_operations(current, wanted.changes),
        *_added_queries(current, wanted.added),
        *_dial(current, wanted.dial),
    ]
    return Preview(current.version if current else 0, tuple(differences))


def _during_build(current: Definition, wanted: Prepared, preview: Preview) -> Preview:
    """Return the differences of a declaration from what runs while something is built beside that."""
    build = current.build
    assert build is not None
    if wanted == Prepared.of(build):
        return _with_builds(current, preview, "being built", f"beside the old one, since version {build.generation}")
    queries = _built_queries(current)
    note = "gives way to this with `hayase apply --beside`" if wanted != Prepared.of(current) else "goes on"
    builds = (
        Difference("build", name, "being built", f"{note}; `hayase apply --cancel` gives it up") for name in queries
    )
    return replace(preview, differences=(*preview.differences, *builds))


def _with_builds(current: Definition, preview: Preview, fate: str, note: str) -> Preview:
    """Return a preview in which the queries that a definition builds have this fate, with how far they are behind."""
    from hayase.engine.batch.build_progress import records_behind
    from hayase.engine.commit.ledger import progress
    from hayase.engine.logs import Logs

    behind: dict[str, int] = {}
    for stage, count in records_behind(progress(current.home).offset, current, Logs(current.home, current)).items():
        behind[query_of(stage)] = behind.get(query_of(stage), 0) + count
    queries = _built_queries(current)
    differences = [
        replace(each, fate=fate, note=note + (f"; {behind[each.name]:,} records behind" if each.name in behind else ""))
        if each.name in queries and each.kind == "query"
        else each
        for each in preview.differences
    ]
    return replace(preview, differences=tuple(differences))


def _built_queries(definition: Definition) -> list[str]:
    return list(dict.fromkeys(record.query for record in definition.records if is_build(record.name)))


def _streams(home: Home, current: Definition | None, declaration: PipelineDeclaration) -> Iterator[Difference]:
    before = {stream.name: stream for stream in current.declaration.streams} if current else {}
    for stream in declaration.streams:
        kept = stored_declaration(home.path / "streams" / stream.name)
        if stream.name in before and before[stream.name] == stream:
            yield Difference("stream", stream.name, "kept")
        elif stream.name not in before and kept is None:
            yield Difference("stream", stream.name, "added")
        else:
            try:
                if kept is not None:
                    reconcile(kept.declaration, stream)
                fate = "changed in place" if stream.name in before else "added"
                yield Difference("stream", stream.name, fate)
            except SchemaMismatch as error:
                yield Difference("stream", stream.name, "refused", str(error))
    names = {stream.name for stream in declaration.streams}
    for name in before:
        if name not in names:
            yield Difference("stream", name, "removed", "its records stay in the home")


def _connectors(current: Definition | None, declaration: PipelineDeclaration) -> Iterator[Difference]:
    """Yield the differences of sources and outputs."""
    old = current.declaration if current else None
    for kind, before, now in (
        ("source", old.sources if old else (), declaration.sources),
        ("output", old.outputs if old else (), declaration.outputs),
    ):
        known = {connector.name: connector for connector in before}
        for connector in now:
            same = known.get(connector.name) == connector
            fate = "kept" if same else "changed in place" if connector.name in known else "added"
            yield Difference(kind, connector.name, fate)
        names = {connector.name for connector in now}
        yield from (Difference(kind, name, "removed") for name in known if name not in names)


def _tables(
    current: Definition | None, declaration: PipelineDeclaration, stages: Mapping[str, Stage]
) -> Iterator[Difference]:
    """Yield the differences of tables that nothing feeds; the others have a stage."""
    before = {table.name: table for table in current.declaration.tables} if current else {}
    fed = {*stages, *(record.name for record in (current.records if current else ()))}
    for table in declaration.tables:
        if table.name not in fed:
            same = before.get(table.name) == table
            fate = "kept" if same else "changed in place" if table.name in before else "added"
            yield Difference("table", table.name, fate)
    names = {table.name for table in declaration.tables}
    yield from (Difference("table", name, "removed") for name in before if name not in names and name not in fed)


def _stages(
    current: Definition | None,
    declaration: PipelineDeclaration,
    stages: Mapping[str, Stage],
    anew: Mapping[str, Start],
) -> Iterator[Difference]:
    """Yield one difference per declared object: the worst one among its stages."""
    records = {record.name: record for record in current.records} if current else {}
    declared = (*declaration.jobs, *(current.declaration.jobs if current else ()))
    jobs = {job.name for job in declared}
    changes: dict[tuple[str, str], list[StageChange]] = {}
    for name, change in compare(current, stages, anew).items():
        stage = stages.get(name) or records[name]
        changes.setdefault((_kind(stage, jobs), stage.query), []).append(change)
    for (kind, name), object_changes in changes.items():
        worst = min(object_changes, key=_WORST.index)
        if worst in ("added", "removed") and len(set(object_changes)) > 1:
            worst = "changed"
        yield Difference(kind, name, _WORDS[worst], _note(name, worst, stages, anew))


def _kind(stage: Stage | StageRecord, jobs: Collection[str]) -> str:
    if isinstance(stage.output, TableDeclaration):
        return "table"
    return "operation" if stage.lane == OPERATIONS else "job" if stage.query in jobs else "query"


def _note(name: str, fate: StageChange, stages: Mapping[str, Stage], anew: Mapping[str, Start]) -> str:
    if fate == "refused":
        readers = [stage for stage in with_readers({name: "earliest"}, stages) if stages[stage].query != name]
        more = f"; {', '.join(dict.fromkeys(stages[stage].query for stage in readers))} with it" if readers else ""
        beside = "`hayase apply --beside`, or " if can_be_built(stages.get(name)) else ""
        return f"needs {beside}`hayase reset {name} --from earliest` (or `--from now`){more}"
    if fate == "anew":
        return "from the earliest record" if anew.get(name, "earliest") == "earliest" else "from now on"
    return "what it has written stays in the home" if fate == "removed" else ""


def _operations(current: Definition | None, changes: Sequence[Change]) -> Iterator[Difference]:
    """Yield the changes by command that stay in force, and those that the file now overrides."""
    names = {change.name for change in changes}
    for change in changes:
        what = "removed" if change.now is None else "added" if change.declared is None else "changed"
        note = f"{what} by command, which holds until the file says something else of it; see `hayase ops history {change.name}`"
        yield Difference("change by command", change.name, "kept", note)
    for change in current.changes if current else ():
        if change.name not in names:
            yield Difference("change by command", change.name, "removed", "the file says something else of it now")


def _added_queries(current: Definition | None, added: Sequence[str]) -> Iterator[Difference]:
    """Yield the queries added by command that stay, and those that the file now declares."""
    for name in added:
        note = f"a query added by command, which stays until the file declares it; `DELETE /queries/{name}` removes it"
        yield Difference("change by command", name, "kept", note)
    for name in current.added if current else ():
        if name not in added:
            yield Difference("change by command", name, "removed", "the file declares it now")


def _dial(current: Definition | None, dial: Dial | None) -> Iterator[Difference]:
    """Yield whether the governor's u, if a command has set it, stays as it is."""
    if dial is not None:
        note = f"u is {dial.u:g} by command, which holds until the file says something else of the governor"
        yield Difference("change by command", "governor", "kept", note)
    elif current is not None and current.dial is not None:
        yield Difference("change by command", "governor", "removed", "the file says something else of it now")
