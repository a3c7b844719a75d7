"""What a new version of a pipeline does to the one in the home: told before it is made, or after.

What becomes of a stage is decided by `hayase.engine.definition.definitions.compare`, here as when the version is made.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hayase.core.declarations import PipelineDeclaration, TableDeclaration
from hayase.core.errors import SchemaMismatch
from hayase.core.stages import OPERATIONS, Stage
from hayase.engine.definition.definitions import (
    Change,
    Definition,
    StageChange,
    StageRecord,
    Start,
    compare,
    latest,
    only_writer,
    planned,
    readied,
    stages_of,
    with_readers,
)
from hayase.engine.home import Home
from hayase.streams.schema_evolution import kept_in, reconcile

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
    """What becomes of one thing that is declared; the `note` says why, or what to do."""

    kind: str
    name: str
    fate: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Preview:
    """What becomes of everything, against a version (0: there is none)."""

    version: int
    differences: tuple[Difference, ...]

    @property
    def is_possible(self) -> bool:
        """Whether the change can be made as it is."""
        return not any(each.fate in (_WORDS["refused"], "refused") for each in self.differences)

    @property
    def changes_nothing(self) -> bool:
        return all(each.fate == "kept" for each in self.differences)

    def as_json(self) -> dict[str, Any]:
        """Plain data, ready for a JSON writer."""
        return {
            "version": self.version,
            "possible": self.is_possible,
            "changes": [asdict(each) for each in self.differences],
        }


def preview(home: Home, declaration: PipelineDeclaration) -> Preview:
    """What would become of the pipeline in a home. Nothing is left behind; DeclarationError if the change is unsound."""
    if not home.path.exists():
        with tempfile.TemporaryDirectory() as empty:
            return _previewed(Home(Path(empty)), declaration)
    return _previewed(home, declaration)


class _Enough(Exception):
    """All is known, and nothing is to be kept."""


def _previewed(home: Home, declaration: PipelineDeclaration) -> Preview:
    found: list[Preview] = []
    try:
        with only_writer(home):
            current = latest(home)
            wanted, changes = readied(home, current, declaration)
            found.append(_differences(home, current, wanted, planned(wanted, home), changes, {}))
            raise _Enough
    except _Enough:
        return found[0]


def done(before: Definition | None, made: Definition) -> Preview:
    """What became of the pipeline by a version that was made."""
    anew: dict[str, Start] = {each.name: each.start for each in made.records if each.generation == made.version}
    return _differences(made.home, before, made.declaration, stages_of(made), made.changes, anew)


def _differences(
    home: Home,
    current: Definition | None,
    declaration: PipelineDeclaration,
    stages: Mapping[str, Stage],
    changes: Sequence[Change],
    anew: Mapping[str, Start],
) -> Preview:
    found = [
        *_streams(home, current, declaration),
        *_tables(current, declaration, stages),
        *_stages(current, declaration, stages, anew),
        *_operations(current, changes),
    ]
    return Preview(current.version if current else 0, tuple(found))


def _streams(home: Home, current: Definition | None, declaration: PipelineDeclaration) -> Iterator[Difference]:
    before = {each.name: each for each in current.declaration.streams} if current else {}
    for each in declaration.streams:
        kept = kept_in(home.path / "streams" / each.name)
        if each.name in before and before[each.name] == each:
            yield Difference("stream", each.name, "kept")
        elif each.name not in before and kept is None:
            yield Difference("stream", each.name, "added")
        else:
            try:
                if kept is not None:
                    reconcile(kept.declaration, each)
                fate = "changed in place" if each.name in before else "added"
                yield Difference("stream", each.name, fate)
            except SchemaMismatch as error:
                yield Difference("stream", each.name, "refused", str(error))
    names = {each.name for each in declaration.streams}
    for name in before:
        if name not in names:
            yield Difference("stream", name, "removed", "its records stay in the home")


def _tables(
    current: Definition | None, declaration: PipelineDeclaration, stages: Mapping[str, Stage]
) -> Iterator[Difference]:
    """Tables that nothing feeds; the others have a stage."""
    before = {each.name: each for each in current.declaration.tables} if current else {}
    fed = {*stages, *(each.name for each in (current.records if current else ()))}
    for each in declaration.tables:
        if each.name not in fed:
            same = before.get(each.name) == each
            fate = "kept" if same else "changed in place" if each.name in before else "added"
            yield Difference("table", each.name, fate)
    names = {each.name for each in declaration.tables}
    yield from (Difference("table", name, "removed") for name in before if name not in names and name not in fed)


def _stages(
    current: Definition | None,
    declaration: PipelineDeclaration,
    stages: Mapping[str, Stage],
    anew: Mapping[str, Start],
) -> Iterator[Difference]:
    """What is declared as one thing is told as one, by the worst that becomes of its stages."""
    records = {each.name: each for each in current.records} if current else {}
    declared = (*declaration.jobs, *(current.declaration.jobs if current else ()))
    jobs = {each.name for each in declared}
    fates: dict[tuple[str, str], list[StageChange]] = {}
    for name, fate in compare(current, stages, anew).items():
        stage = stages.get(name) or records[name]
        fates.setdefault((_kind(stage, jobs), stage.query), []).append(fate)
    for (kind, name), those in fates.items():
        fate = min(those, key=_WORST.index)
        if fate in ("added", "removed") and len(set(those)) > 1:
            fate = "changed"
        yield Difference(kind, name, _WORDS[fate], _note(name, fate, stages, anew))


def _kind(stage: Stage | StageRecord, jobs: Collection[str]) -> str:
    if isinstance(stage.output, TableDeclaration):
        return "table"
    return "operation" if stage.lane == OPERATIONS else "job" if stage.query in jobs else "query"


def _note(name: str, fate: StageChange, stages: Mapping[str, Stage], anew: Mapping[str, Start]) -> str:
    if fate == "refused":
        readers = [each for each in with_readers({name: "earliest"}, stages) if stages[each].query != name]
        more = f"; {', '.join(dict.fromkeys(stages[each].query for each in readers))} with it" if readers else ""
        return f"needs `hayase reset {name} --from earliest` (or `--from now`){more}"
    if fate == "anew":
        return "from the earliest record" if anew.get(name, "earliest") == "earliest" else "from now on"
    return "what it has written stays in the home" if fate == "removed" else ""


def _operations(current: Definition | None, changes: Sequence[Change]) -> Iterator[Difference]:
    """What commands have changed: where that stays so, and where the file takes over."""
    names = {each.name for each in changes}
    for each in changes:
        what = "removed" if each.now is None else "added" if each.declared is None else "changed"
        note = f"{what} by command, which holds until the file says something else of it; see `hayase ops history {each.name}`"
        yield Difference("change by command", each.name, "kept", note)
    for each in current.changes if current else ():
        if each.name not in names:
            yield Difference("change by command", each.name, "removed", "the file says something else of it now")
