"""Commands that change one operation, whether or not the pipeline runs: add, update, remove, roll back.

Every change writes a new version of the definition, which lanes adopt between two batches. A change that fails its
check is refused and nothing is written. Concurrent changes are serialised, and none is lost. When the pipeline's file is
applied again, `prepare_operations` decides which changes stay in force.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

from hayase.core.data_classes import dataclass
from hayase.core.declarations import OperationDeclaration, PipelineDeclaration
from hayase.core.errors import DeclarationError, UnknownName
from hayase.core.operation_data import declared_operation, operation_data
from hayase.core.times import instant_text
from hayase.engine.definition.definitions import Change, Definition, Start, load, path_of, versions
from hayase.engine.definition.proposals import Prepared, amend
from hayase.engine.home import Home

__all__ = [
    "OperationVersion",
    "add_operation",
    "declares_same",
    "edited_operation",
    "history",
    "history_versions",
    "operations_of",
    "prepare_operations",
    "remove_operation",
    "rollback_operation",
    "update_operation",
]


@dataclass(frozen=True, slots=True)
class OperationVersion:
    """An operation from one version of the definition on; without a declaration it was removed in that version.

    `changed` names the fields that differ from the version before. It is `by_command` if it differs from the pipeline's
    file.
    """

    version: int
    time: datetime.datetime
    declaration: OperationDeclaration | None
    fingerprint: str | None
    changed: tuple[str, ...]
    by_command: bool

    @property
    def short(self) -> str:
        """The first characters of the fingerprint, to tell versions apart in output for people."""
        return (self.fingerprint or "")[:8]

    def as_json(self) -> dict[str, Any]:
        """Return plain data; the operation as in a pipeline file, null if it was removed."""
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
    """Add an operation, given as in a pipeline file (`hayase.core.operation_data`); its module is in `directory`.

    It starts at the earliest retained record, or with records that arrive from `now` on.
    """
    operation = declared_operation(name, data, directory)

    def edit(current: Definition) -> OperationDeclaration:
        if name in {existing.name for existing in current.declaration.operations}:
            raise DeclarationError(
                f'there is an operation "{name}" already', f"change it with `hayase ops update {name}`"
            )
        _check_free(current, name)
        return operation

    return _changed(home, name, edit, {name: start})


def update_operation(
    home: Home,
    name: str,
    data: Mapping[str, Any],
    directory: str | None = None,
    reset: Start | None = None,
) -> Definition:
    """Change the given fields of an operation; the others stay as they are. A new function's module is in `directory`.

    With `reset` it begins anew, and may then write another schema than before.
    """

    return _changed(
        home,
        name,
        lambda current: edited_operation(current, name, data, directory),
        None if reset is None else {name: reset},
    )


def edited_operation(
    current: Definition, name: str, data: Mapping[str, Any], directory: str | None = None
) -> OperationDeclaration:
    """Return an operation of a definition with the given fields changed, as `update_operation` declares it."""
    before = _operation(current, name)
    # a new function declares its schema, or its trial decides whether the previous one fits
    kept = {key: value for key, value in operation_data(before).items() if key != "schema" or "function" not in data}
    fields_now = {**kept, **data}
    if "window" in data and "slide" not in data:
        fields_now.pop("slide", None)
    operation = declared_operation(
        name, {key: value for key, value in fields_now.items() if value is not None}, directory
    )
    if "function" not in data:
        operation = replace(operation, function=before.function, directory=None, code=before.code)
    return operation


def remove_operation(home: Home, name: str) -> Definition:
    """Remove an operation; its output stream stays. Refused while other stages read it."""

    def edit(current: Definition) -> None:
        _operation(current, name)

    return _changed(home, name, edit, None)


def rollback_operation(home: Home, name: str, to: int | None = None, reset: Start | None = None) -> Definition:
    """Restore an operation as it was in version `to` of the definition; by default, as it was before its last change."""

    def edit(current: Definition) -> OperationDeclaration | None:
        versions = history(home, name)
        if to is None:
            others = [version for version in versions if version.declaration != versions[-1].declaration]
            if not others:
                raise DeclarationError(f'operation "{name}" has no version before this one', _see_history(name))
            return others[-1].declaration
        earlier = [version for version in versions if version.version <= to]
        if not earlier or to > current.version:
            raise DeclarationError(f'there is no operation "{name}" in version {to}', _see_history(name))
        return earlier[-1].declaration

    return _changed(home, name, edit, None if reset is None else {name: reset})


def history(home: Home, name: str) -> list[OperationVersion]:
    """Return the versions of an operation, oldest first: one entry for every definition that changed it."""
    histories = _histories(home)
    if name not in histories:
        raise UnknownName("operation", name, histories)
    return histories[name]


def operations_of(home: Home) -> dict[str, list[OperationVersion]]:
    """Return the operations of the newest definition, each with its history."""
    return {name: versions for name, versions in _histories(home).items() if versions[-1].declaration is not None}


def history_versions(home: Home) -> set[int]:
    """Return the versions of the definition in which some operation changed."""
    return {entry.version for entries in _histories(home).values() for entry in entries}


def _histories(home: Home) -> dict[str, list[OperationVersion]]:
    histories: dict[str, list[OperationVersion]] = {}
    for version in versions(home):
        operations = _operations_in(home, version)
        for name in dict.fromkeys([*histories, *operations.operations]):
            before, now = histories[name][-1] if name in histories else None, operations.operations.get(name)
            declared = None if before is None else before.declaration
            if now == declared and (before is None or before.by_command == (name in operations.by_command)):
                continue
            changed, fingerprint = _differences(declared, now), operations.fingerprints.get(name)
            entry = OperationVersion(version, operations.time, now, fingerprint, changed, name in operations.by_command)
            histories.setdefault(name, []).append(entry)
    return histories


@dataclass(frozen=True, slots=True)
class _OperationsOf:
    """The operations in one version of the definition."""

    time: datetime.datetime
    operations: Mapping[str, OperationDeclaration]
    fingerprints: Mapping[str, str]
    by_command: frozenset[str]


@lru_cache(maxsize=4096)
def _operations_in(home: Home, version: int) -> _OperationsOf:
    """Read the operations of a version; cached, because the file of a version never changes."""
    definition = load(home, version)
    operations = {operation.name: operation for operation in definition.declaration.operations}
    return _OperationsOf(
        datetime.datetime.fromtimestamp(path_of(home, version).stat().st_mtime, datetime.UTC),
        operations,
        {record.name: record.fingerprint for record in definition.records if record.name in operations},
        frozenset(change.name for change in definition.changes),
    )


def _differences(one: OperationDeclaration | None, other: OperationDeclaration | None) -> tuple[str, ...]:
    if one is None or other is None:
        return ("added",) if one is None else ("removed",)
    return tuple(field.name for field in fields(one) if getattr(one, field.name) != getattr(other, field.name))


def _see_history(name: str) -> str:
    return f"see `hayase ops history {name}`"


def _operation(current: Definition, name: str) -> OperationDeclaration:
    known = {operation.name: operation for operation in current.declaration.operations}
    if name not in known:
        raise UnknownName("operation", name, known)
    return known[name]


def _check_free(current: Definition, name: str) -> None:
    declared = current.declaration
    names = {
        "stream": [stream.name for stream in declared.streams],
        "query": [query.name for query in declared.queries],
        "table": [table.name for table in declared.tables],
        "job": [job.name for job in declared.jobs],
    }
    for kind, taken in names.items():
        if name.lower() in map(str.lower, taken):
            raise DeclarationError(f'"{name}" is a {kind} of this pipeline', "give the operation another name")


def _check_unread(current: Definition, name: str) -> None:
    readers = [record.name for record in current.records if name in record.inputs and record.name != name]
    if readers:
        listed = ", ".join(f'"{reader}"' for reader in readers)
        raise DeclarationError(f'operation "{name}" is read by {listed}', "change or remove what reads it first")


def _changed(
    home: Home,
    name: str,
    edit: Callable[[Definition], OperationDeclaration | None],
    resets: Mapping[str, Start] | None,
) -> Definition:
    """Write the definition in which the operation `name` is what `edit` returns (None: removed)."""
    from hayase.engine.definition.operation_trials import try_operations  # both are slow to import
    from hayase.operations.shipped_code import ship

    def whole(current: Definition) -> Prepared:
        wanted = edit(current)
        if wanted is None:
            _check_unread(current, name)
        now = None if wanted is None else ship(wanted, home.code(""))
        before = {operation.name: operation for operation in current.declaration.operations}
        operations = {other: declared for other, declared in before.items() if other != name or now is not None}
        if now is not None:
            operations[name] = now
        declaration = replace(current.declaration, operations=tuple(operations.values()))
        declaration = try_operations(home, current, declaration, frozenset(resets or ()))
        now = next((operation for operation in declaration.operations if operation.name == name), None)
        return replace(Prepared.of(current), declaration=declaration, changes=_overlay(current, name, now))

    return amend(home, whole, resets)


def _overlay(current: Definition, name: str, now: OperationDeclaration | None) -> tuple[Change, ...]:
    """Return the changes by command including this one; an operation that equals the file again is not a change."""
    known = {change.name: change for change in current.changes}
    if name in known:
        declared = known[name].declared
    else:
        declared = next((operation for operation in current.declaration.operations if operation.name == name), None)
    others = tuple(change for change in current.changes if change.name != name)
    return others if now == declared else (*others, Change(name, declared, now))


# ---------------------------------------------------------------------------------------------------- beside the file


def prepare_operations(
    home: Home, current: Definition | None, declaration: PipelineDeclaration, anew: AbstractSet[str] = frozenset()
) -> tuple[PipelineDeclaration, tuple[Change, ...]]:
    """Return the declaration as it will run in the home, and the changes by command that stay in force. Only shipped
    code is written to the home. Operations in `anew` may write another schema than before."""
    from hayase.engine.definition.operation_trials import try_operations  # both are slow to import
    from hayase.operations.shipped_code import ship

    shipped = {operation.name: ship(operation, home.code("")) for operation in declaration.operations}
    changes = _changes_in_force(current, declaration, shipped)
    wanted = {**shipped, **{change.name: change.now for change in changes}}
    _check_names(declaration, changes)
    operations = tuple(operation for operation in wanted.values() if operation is not None)
    return try_operations(home, current, replace(declaration, operations=operations), anew), changes


def _changes_in_force(
    current: Definition | None, declaration: PipelineDeclaration, returned: Mapping[str, OperationDeclaration]
) -> tuple[Change, ...]:
    """Return the changes by command that stay in force: those where the declaration says the same as before, or was
    itself read from the home."""
    if current is None:
        return ()
    if declaration == current.declaration:
        return current.changes
    shipped_before = {operation.name for operation in declaration.operations if operation.code is not None}
    return tuple(
        change
        for change in current.changes
        if declares_same(returned.get(change.name), change.now if change.name in shipped_before else change.declared)
    )


def declares_same(returned: OperationDeclaration | None, known: OperationDeclaration | None) -> bool:
    """Return whether two declarations of an operation are equal, ignoring a schema that only the known one has."""
    if returned is None or known is None:
        return returned is known
    return replace(returned, schema=returned.schema or known.schema) == known


def _check_names(declaration: PipelineDeclaration, changes: Sequence[Change]) -> None:
    others = (declaration.streams, declaration.queries, declaration.tables, declaration.jobs)
    taken = {declared.name.lower() for kind in others for declared in kind}
    for change in changes:
        if change.now is not None and change.name.lower() in taken:
            raise DeclarationError(
                f'there is an operation "{change.name}", which was added by a command',
                f"call what is declared by another name, or remove the operation: `hayase ops remove {change.name}`",
            )
