"""Operations changed one at a time, whether or not the pipeline runs: added, updated, removed, taken back.

Every change is a new version of the definition, which lanes take up at a batch boundary. What fails its check is refused,
and nothing is written. Changes from several sides at once follow each other, and none is lost.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from hayase.core.declarations import OperationDeclaration, PipelineDeclaration
from hayase.core.errors import DeclarationError, UnknownName
from hayase.core.operation_data import declared_operation, operation_data
from hayase.core.times import instant_text
from hayase.engine.definition.definitions import Change, Definition, Start, amend, latest_version, load, path_of
from hayase.engine.home import Home

__all__ = [
    "OperationVersion",
    "add_operation",
    "history",
    "operations_of",
    "remove_operation",
    "rollback_operation",
    "update_operation",
]


@dataclass(frozen=True, slots=True)
class OperationVersion:
    """An operation from a version of the definition on; without a declaration it was removed then.

    `changed` names what is different from the version before. It is `by_command` if it is not as the pipeline's file says.
    """

    version: int
    time: datetime.datetime
    declaration: OperationDeclaration | None
    fingerprint: str | None
    changed: tuple[str, ...]
    by_command: bool

    @property
    def short(self) -> str:
        """The beginning of the fingerprint, which tells versions apart for people."""
        return (self.fingerprint or "")[:8]

    def as_json(self) -> dict[str, Any]:
        """Plain data; the operation as a pipeline file says it, null if it was removed."""
        declared = self.declaration
        return {
            "version": self.version,
            "since": instant_text(round(self.time.timestamp() * 1_000_000)),
            "fingerprint": self.fingerprint,
            "by": "command" if self.by_command else "file",
            "changed": list(self.changed),
            "operation": None if declared is None else operation_data(declared),
            "code": None if declared is None else declared.code,
        }


def add_operation(
    home: Home, name: str, data: Mapping[str, Any], directory: str | None = None, start: Start = "earliest"
) -> Definition:
    """Add an operation, as a pipeline file says it (`hayase.core.operation_data`); its module lies in `directory`.

    It begins with the earliest record there is, or with what comes from `now` on.
    """
    made = declared_operation(name, data, directory)

    def edit(current: Definition) -> OperationDeclaration:
        if name in {each.name for each in current.declaration.operations}:
            raise DeclarationError(
                f'there is an operation "{name}" already', f"change it with `hayase ops update {name}`"
            )
        _check_free(current, name)
        return made

    return _changed(home, name, edit, {name: start})


def update_operation(
    home: Home,
    name: str,
    data: Mapping[str, Any],
    directory: str | None = None,
    reset: Start | None = None,
) -> Definition:
    """Change what is given of an operation; the rest stays as it is. The module of a function lies in `directory`.

    With `reset` it begins anew, and may write something else than before.
    """

    def edit(current: Definition) -> OperationDeclaration:
        before = _operation(current, name)
        # a new function gives what the old one gave, or says otherwise
        kept = {
            key: value for key, value in operation_data(before).items() if key != "schema" or "function" not in data
        }
        given = {**kept, **data}
        if "window" in data and "slide" not in data:
            given.pop("slide", None)
        made = declared_operation(name, {key: value for key, value in given.items() if value is not None}, directory)
        if "function" not in data:
            made = replace(made, function=before.function, directory=None, code=before.code)
        return made

    return _changed(home, name, edit, None if reset is None else {name: reset})


def remove_operation(home: Home, name: str) -> Definition:
    """Remove an operation; the stream that it wrote stays. Refused while others read it."""

    def edit(current: Definition) -> None:
        _operation(current, name)

    return _changed(home, name, edit, None)


def rollback_operation(home: Home, name: str, to: int | None = None, reset: Start | None = None) -> Definition:
    """Make an operation what it was in a version of the definition; without one, what it was before its last change."""

    def edit(current: Definition) -> OperationDeclaration | None:
        versions = history(home, name)
        if to is None:
            others = [each for each in versions if each.declaration != versions[-1].declaration]
            if not others:
                raise DeclarationError(f'operation "{name}" has no version before this one', _see_history(name))
            return others[-1].declaration
        found = [each for each in versions if each.version <= to]
        if not found or to > current.version:
            raise DeclarationError(f'there is no operation "{name}" in version {to}', _see_history(name))
        return found[-1].declaration

    return _changed(home, name, edit, None if reset is None else {name: reset})


def history(home: Home, name: str) -> list[OperationVersion]:
    """What an operation has been, oldest first: one entry for every version that changed it."""
    found = _histories(home)
    if name not in found:
        raise UnknownName("operation", name, found)
    return found[name]


def operations_of(home: Home) -> dict[str, list[OperationVersion]]:
    """The operations there are now, each with its history."""
    return {name: found for name, found in _histories(home).items() if found[-1].declaration is not None}


def _histories(home: Home) -> dict[str, list[OperationVersion]]:
    found: dict[str, list[OperationVersion]] = {}
    for version in range(1, latest_version(home) + 1):
        told = _told(home, version)
        for name in dict.fromkeys([*found, *told.operations]):
            before, now = found[name][-1] if name in found else None, told.operations.get(name)
            declared = None if before is None else before.declaration
            if now == declared and (before is None or before.by_command == (name in told.by_command)):
                continue
            changed, fingerprint = _differences(declared, now), told.fingerprints.get(name)
            entry = OperationVersion(version, told.time, now, fingerprint, changed, name in told.by_command)
            found.setdefault(name, []).append(entry)
    return found


@dataclass(frozen=True, slots=True)
class _Told:
    """What a definition says of operations."""

    time: datetime.datetime
    operations: Mapping[str, OperationDeclaration]
    fingerprints: Mapping[str, str]
    by_command: frozenset[str]


@lru_cache(maxsize=4096)
def _told(home: Home, version: int) -> _Told:
    """Read once: a definition stays as it is."""
    definition = load(home, version)
    operations = {each.name: each for each in definition.declaration.operations}
    return _Told(
        datetime.datetime.fromtimestamp(path_of(home, version).stat().st_mtime, datetime.UTC),
        operations,
        {each.name: each.fingerprint for each in definition.records if each.name in operations},
        frozenset(each.name for each in definition.changes),
    )


def _differences(one: OperationDeclaration | None, other: OperationDeclaration | None) -> tuple[str, ...]:
    if one is None or other is None:
        return ("added",) if one is None else ("removed",)
    return tuple(each.name for each in fields(one) if getattr(one, each.name) != getattr(other, each.name))


def _see_history(name: str) -> str:
    return f"see `hayase ops history {name}`"


def _operation(current: Definition, name: str) -> OperationDeclaration:
    known = {each.name: each for each in current.declaration.operations}
    if name not in known:
        raise UnknownName("operation", name, known)
    return known[name]


def _check_free(current: Definition, name: str) -> None:
    declared = current.declaration
    names = {
        "stream": [each.name for each in declared.streams],
        "query": [each.name for each in declared.queries],
        "table": [each.name for each in declared.tables],
        "job": [each.name for each in declared.jobs],
    }
    for kind, those in names.items():
        if name.lower() in map(str.lower, those):
            raise DeclarationError(f'"{name}" is a {kind} of this pipeline', "give the operation another name")


def _check_unread(current: Definition, name: str) -> None:
    readers = [each.name for each in current.records if name in each.inputs and each.name != name]
    if readers:
        told = ", ".join(f'"{each}"' for each in readers)
        raise DeclarationError(f'operation "{name}" is read by {told}', "change or remove what reads it first")


def _changed(
    home: Home,
    name: str,
    edit: Callable[[Definition], OperationDeclaration | None],
    resets: Mapping[str, Start] | None,
) -> Definition:
    """Write the definition in which one operation is what `edit` says."""
    from hayase.engine.definition.operation_trials import tried
    from hayase.operations.shipped_code import ship

    def whole(current: Definition) -> tuple[PipelineDeclaration, tuple[Change, ...]]:
        wanted = edit(current)
        if wanted is None:
            _check_unread(current, name)
        now = None if wanted is None else ship(wanted, home.code(""))
        before = {each.name: each for each in current.declaration.operations}
        operations = {each: one for each, one in before.items() if each != name or now is not None}
        if now is not None:
            operations[name] = now
        declaration = replace(current.declaration, operations=tuple(operations.values()))
        declaration = tried(home, current, declaration, frozenset(resets or ()))
        now = next((each for each in declaration.operations if each.name == name), None)
        return declaration, _overlay(current, name, now)

    return amend(home, whole, resets)


def _overlay(current: Definition, name: str, now: OperationDeclaration | None) -> tuple[Change, ...]:
    """The changes by command with this one; what is again as the file says is none."""
    known = {each.name: each for each in current.changes}
    if name in known:
        declared = known[name].declared
    else:
        declared = next((each for each in current.declaration.operations if each.name == name), None)
    others = tuple(each for each in current.changes if each.name != name)
    return others if now == declared else (*others, Change(name, declared, now))
