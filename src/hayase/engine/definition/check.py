"""Checks of a whole pipeline without Spark: every mistake in the file, its queries, tables and rules, with its position.

Operations can also be tried (`operation_trials`): Hayase loads their modules and calls their functions in a separate
process, on the newest records that the home has of their inputs. A trial infers the schema of an operation that
declares none. An operation that is unchanged from the home's newest definition is not tried again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hayase.core.declarations import FunctionDeclaration, OperationDeclaration, PipelineDeclaration
from hayase.core.errors import DeclarationError, Mistake, UnknownName
from hayase.core.stages import Stage
from hayase.cql.macros import Macros
from hayase.engine.definition.connector_check import connector_mistakes
from hayase.engine.definition.definitions import Definition, latest
from hayase.engine.definition.stage_graph import plan
from hayase.engine.home import Home

if TYPE_CHECKING:
    from hayase.core.pipeline_file import PipelineFile

__all__ = [
    "check",
    "check_connectors",
    "check_file",
    "check_functions",
    "check_governor",
    "infer_operations",
    "read_file",
    "with_known_schemas",
]

_Placed = tuple[str, str, Mistake]


def check(declaration: PipelineDeclaration, *, pending: bool = False) -> tuple[Stage, ...]:
    """Return the stages of a declaration without calling user functions; DeclarationError lists all mistakes.

    If `pending` is true, an operation whose schema only a trial can infer is not a mistake; it gets no stage.
    """
    planned = plan(declaration)
    open_names = _pending_names(declaration) if pending else ()
    connectors = connector_mistakes(declaration, planned.stages, open_names)
    mistakes = _kept(declaration, [*planned.mistakes, *_governor_mistakes(declaration), *connectors], pending)
    if mistakes:
        raise DeclarationError([mistake for _, _, mistake in mistakes])
    return planned.stages


def check_file(file: PipelineFile, home: Home | None = None) -> tuple[Stage, ...]:
    """Return the stages of a pipeline file; DeclarationError lists all mistakes with their positions. Operations are
    tried in `home`, by default the home that the file names."""
    declaration, found = _tried(home or Home(file.home), file.declaration, file.unread)
    return _placed(file, declaration, found)


def read_file(file: PipelineFile, home: Home) -> PipelineDeclaration:
    """Return the declaration of a pipeline file after checking everything except the functions of operations; schemas
    may be pending, as in `check`."""
    declaration = with_known_schemas(home, file.declaration) if not file.unread else file.declaration
    _placed(file, declaration, [], pending=True)
    return declaration


def _placed(
    file: PipelineFile, declaration: PipelineDeclaration, found: list[_Placed], pending: bool = False
) -> tuple[Stage, ...]:
    """Return the stages, or raise DeclarationError with the positions of all mistakes, including those passed as `found`
    and those of reading the file."""
    planned = plan(declaration, unread=file.unread)
    open_names = [*file.unread, *(_pending_names(declaration) if pending else ())]
    connectors = connector_mistakes(declaration, planned.stages, open_names)
    mistakes = _kept(declaration, [*found, *planned.mistakes, *_governor_mistakes(declaration), *connectors], pending)
    placed = [
        file.at(kind, name, mistake) if kind else mistake
        for kind, name, mistake in mistakes
        if not (name in file.unread and _is_open(mistake))
    ]
    if file.mistakes or placed:
        raise DeclarationError([*file.mistakes, *placed])
    return planned.stages


def _pending_names(declaration: PipelineDeclaration) -> list[str]:
    """Return the operations whose schemas only a trial can infer; they have no stages yet."""
    return [operation.name for operation in declaration.operations if operation.schema is None]


def infer_operations(home: Home, declaration: PipelineDeclaration) -> PipelineDeclaration:
    """Return the declaration with the schemas of all operations. Operations that the home does not have yet are tried;
    DeclarationError lists those that fail or whose schema cannot be inferred."""
    declaration, mistakes = _tried(home, declaration)
    if mistakes:
        raise DeclarationError([mistake for _, _, mistake in mistakes])
    return declaration


def with_known_schemas(home: Home, declaration: PipelineDeclaration) -> PipelineDeclaration:
    """Return the declaration in which operations without a schema have the one that the home knows under their name."""
    if all(operation.schema is not None for operation in declaration.operations):
        return declaration
    known = _known(home)
    filled = {
        operation.name: replace(operation, schema=known[operation.name].schema)
        for operation in declaration.operations
        if operation.schema is None and operation.name in known
    }
    return _with(declaration, filled)


def check_governor(declaration: PipelineDeclaration) -> None:
    """Raise DeclarationError if the governor's policy or one of its options does not exist or is invalid."""
    mistakes = _governor_mistakes(declaration)
    if mistakes:
        raise DeclarationError([mistake for _, _, mistake in mistakes])


def check_connectors(declaration: PipelineDeclaration) -> None:
    """Raise DeclarationError if a source names a column that its stream does not have."""
    mistakes = list(connector_mistakes(replace(declaration, outputs=()), ()))
    if mistakes:
        raise DeclarationError([mistake for _, _, mistake in mistakes])


def check_functions(functions: Sequence[FunctionDeclaration]) -> None:
    """Raise DeclarationError if SQL functions call each other in a circle, or with the wrong arguments."""
    mistakes = Macros(functions).mistakes
    if mistakes:
        raise DeclarationError([mistake for _, mistake in mistakes])


def _kept(declaration: PipelineDeclaration, mistakes: list[_Placed], pending: bool) -> list[_Placed]:
    """Return the mistakes to report: an unknown schema is left out if `pending` allows it, or if the same operation has
    another mistake."""
    unknown = {operation.name for operation in declaration.operations if operation.schema is None}
    reported = {
        name for kind, name, mistake in mistakes if kind == "operation" and name in unknown and not _is_open(mistake)
    }
    return [
        (kind, name, mistake)
        for kind, name, mistake in mistakes
        if not (kind == "operation" and name in unknown and _is_open(mistake) and (pending or name in reported))
    ]


def _is_open(mistake: Mistake) -> bool:
    """Return whether the mistake is a schema that is not known yet."""
    return mistake.subject == "schema"


def _governor_mistakes(declaration: PipelineDeclaration) -> list[_Placed]:
    governor = declaration.governor
    if governor is None:
        return []
    from hayase.governor import policy_named

    mistakes: list[_Placed] = []
    for options in ({}, *({name: value} for name, value in governor.options)):
        try:
            policy_named(governor.policy, **options)
        except UnknownName as error:
            field = "policy" if error.kind == "policy" else error.name
            mistakes.append(("governor", "", Mistake(str(error), subject=field)))
            if field == "policy":
                break
        except DeclarationError as error:
            field = next(iter(options), "policy")
            mistakes += [
                ("governor", "", Mistake(mistake.message, mistake.hint, subject=field)) for mistake in error.mistakes
            ]
    return mistakes


# ---------------------------------------------------------------------------------------------------- operations


def _tried(
    home: Home, declaration: PipelineDeclaration, unread: Collection[str] = ()
) -> tuple[PipelineDeclaration, list[_Placed]]:
    """Return the declaration with all schemas that can be inferred, and the mistakes of the functions; `unread` as in `plan`."""
    if not declaration.operations:
        return declaration, []
    from hayase.engine.definition.operation_trials import try_operations

    known = _known(home)
    mistakes: list[_Placed] = []
    finished = {
        unchanged.name: unchanged for unchanged in _unchanged(declaration, known) if unchanged.name not in unread
    }
    planned = plan(_with(declaration, finished), unread=unread)
    invalid = {name for kind, name, mistake in planned.mistakes if kind == "operation" and not _is_open(mistake)}
    remaining = [candidate for candidate in declaration.operations if candidate.name not in {*finished, *invalid}]
    while True:  # more than once only if operations read others whose schemas are not known yet
        before = len(remaining)
        for operation in list(remaining):
            beside = [*finished.values(), *([known[operation.name]] if operation.name in known else [])]
            current = Definition(0, replace(declaration, operations=tuple(beside)), (), 1, home)
            try:
                result = try_operations(home, current, replace(declaration, operations=(*finished.values(), operation)))
            except DeclarationError as error:
                remaining.remove(operation)
                mistakes += [
                    ("operation", operation.name, Mistake(mistake.message, mistake.hint, subject="function"))
                    for mistake in error.mistakes
                ]
                continue
            operation_with_schema = result.operations[-1]
            if operation.name in unread:  # the inferred schema is not the one in the file
                remaining.remove(operation)
            elif operation_with_schema.schema is not None:
                remaining.remove(operation)
                finished[operation.name] = operation_with_schema
        if len(remaining) == before or not remaining:
            return _with(declaration, finished), mistakes


def _with(declaration: PipelineDeclaration, known: Mapping[str, OperationDeclaration]) -> PipelineDeclaration:
    """Return the declaration with the operations in `known` in place of those of the same name."""
    return replace(
        declaration, operations=tuple(known.get(operation.name, operation) for operation in declaration.operations)
    )


def _known(home: Home) -> dict[str, OperationDeclaration]:
    """Return the operations of the home's newest definition, as the pipeline file declared them: without changes by command."""
    newest = latest(home)
    if newest is None:
        return {}
    operations = {operation.name: operation for operation in newest.declaration.operations}
    for change in newest.changes:
        if change.declared is not None:
            operations[change.name] = change.declared
        else:
            operations.pop(change.name, None)
    return operations


def _unchanged(
    declaration: PipelineDeclaration, known: Mapping[str, OperationDeclaration]
) -> Iterator[OperationDeclaration]:
    """Yield the operations that equal those in the home, with the schemas they have there."""
    from hayase.operations.shipped_code import ship

    with tempfile.TemporaryDirectory(prefix="hayase-check-") as directory:
        for operation in declaration.operations:
            before = known.get(operation.name)
            if before is None:
                continue
            try:
                shipped = ship(operation, Path(directory))
            except DeclarationError:  # the trial reports this mistake
                continue
            if replace(shipped, schema=operation.schema or before.schema) == before:
                yield replace(operation, schema=before.schema)
