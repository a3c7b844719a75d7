"""A pipeline checked whole, without Spark: every mistake of the file, its queries, tables and rules, with its place.

Operations can also be tried (`operation_trials`): their modules are loaded, and their functions are called, in a process of
their own, on the newest records that the home has of what they read. A trial infers the schema of an operation that declares
none. An operation that the home's newest definition already has is not tried again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from hayase.core.declarations import FieldMistake, OperationDeclaration, PipelineDeclaration
from hayase.core.errors import DeclarationError, Mistake, UnknownName
from hayase.core.pipeline_file import PipelineFile
from hayase.core.stages import Stage
from hayase.engine.definition.definitions import Definition, latest
from hayase.engine.definition.stage_graph import plan
from hayase.engine.home import Home

__all__ = ["check", "check_file", "check_governor", "infer_operations", "read_file", "with_known_schemas"]

_Placed = tuple[str, str, Mistake]


def check(declaration: PipelineDeclaration, *, pending: bool = False) -> tuple[Stage, ...]:
    """The stages of a declaration; DeclarationError lists everything that is wrong with it. Functions are not called.

    What is `pending`, the schemas that a sample is yet to tell, is no mistake then; there are no stages for it.
    """
    planned = plan(declaration)
    mistakes = _kept(declaration, [*planned.mistakes, *_governor_mistakes(declaration)], pending)
    if mistakes:
        raise DeclarationError([mistake for _, _, mistake in mistakes])
    return planned.stages


def check_file(file: PipelineFile, home: Home | None = None) -> tuple[Stage, ...]:
    """The stages of a pipeline file, with the place of each mistake in it. Operations are tried, in the file's own home if no
    other is given."""
    declaration, found = _tried(home or Home(file.home), file.declaration)
    return _placed(file, declaration, found)


def read_file(file: PipelineFile, home: Home) -> PipelineDeclaration:
    """What a pipeline file declares, checked but for the functions of operations, of which some may be pending (`check`)."""
    declaration = with_known_schemas(home, file.declaration)
    _placed(file, declaration, [], pending=True)
    return declaration


def _placed(
    file: PipelineFile, declaration: PipelineDeclaration, found: list[_Placed], pending: bool = False
) -> tuple[Stage, ...]:
    """The stages, or all mistakes, also those that were found already, with their places."""
    planned = plan(declaration)
    mistakes = _kept(declaration, [*found, *planned.mistakes, *_governor_mistakes(declaration)], pending)
    if mistakes:
        raise DeclarationError([file.at(kind, name, mistake) if kind else mistake for kind, name, mistake in mistakes])
    return planned.stages


def infer_operations(home: Home, declaration: PipelineDeclaration) -> PipelineDeclaration:
    """The declaration with the schemas of all operations. Every one that the home does not have yet is tried;
    DeclarationError tells those that fail, or whose schemas nobody knows."""
    declaration, mistakes = _tried(home, declaration)
    if mistakes:
        raise DeclarationError([mistake for _, _, mistake in mistakes])
    return declaration


def with_known_schemas(home: Home, declaration: PipelineDeclaration) -> PipelineDeclaration:
    """The declaration with the schemas that operations of the same names have in the home, where none are declared."""
    if all(each.schema is not None for each in declaration.operations):
        return declaration
    known = _known(home)
    filled = {
        each.name: replace(each, schema=known[each.name].schema)
        for each in declaration.operations
        if each.schema is None and each.name in known
    }
    return _with(declaration, filled)


def check_governor(declaration: PipelineDeclaration) -> None:
    """Refuse a policy, or options of one, that there are not."""
    mistakes = _governor_mistakes(declaration)
    if mistakes:
        raise DeclarationError([mistake for _, _, mistake in mistakes])


def _kept(declaration: PipelineDeclaration, mistakes: list[_Placed], pending: bool) -> list[_Placed]:
    """Mistakes without those that a sample will settle, if that is allowed, and without repetition."""
    unknown = {each.name for each in declaration.operations if each.schema is None}
    told = {name for kind, name, each in mistakes if kind == "operation" and name in unknown and not _is_open(each)}
    return [
        (kind, name, each)
        for kind, name, each in mistakes
        if not (kind == "operation" and name in unknown and _is_open(each) and (pending or name in told))
    ]


def _is_open(mistake: Mistake) -> bool:
    """Whether it is that a schema is not known."""
    return isinstance(mistake, FieldMistake) and mistake.field == "schema"


def _governor_mistakes(declaration: PipelineDeclaration) -> list[_Placed]:
    governor = declaration.governor
    if governor is None:
        return []
    from hayase.governor import policy_named

    found: list[_Placed] = []
    for options in ({}, *({name: value} for name, value in governor.options)):
        try:
            policy_named(governor.policy, **options)
        except UnknownName as error:
            field = "policy" if error.kind == "policy" else error.name
            found.append(("governor", "", FieldMistake(str(error), field=field)))
            if field == "policy":
                break
        except DeclarationError as error:
            field = next(iter(options), "policy")
            found += [("governor", "", FieldMistake(each.message, each.hint, field=field)) for each in error.mistakes]
    return found


# ---------------------------------------------------------------------------------------------------- operations


def _tried(home: Home, declaration: PipelineDeclaration) -> tuple[PipelineDeclaration, list[_Placed]]:
    """The declaration with all schemas that can be known, and what is wrong with functions."""
    if not declaration.operations:
        return declaration, []
    from hayase.engine.definition.operation_trials import tried

    known = _known(home)
    mistakes: list[_Placed] = []
    done = {each.name: each for each in _unchanged(declaration, known)}
    planned = plan(_with(declaration, done))
    wrong = {name for kind, name, each in planned.mistakes if kind == "operation" and not _is_open(each)}
    left = [each for each in declaration.operations if each.name not in {*done, *wrong}]
    while True:  # once, but for operations that read others whose schemas are not known yet
        before = len(left)
        for operation in list(left):
            beside = [*done.values(), *([known[operation.name]] if operation.name in known else [])]
            current = Definition(0, replace(declaration, operations=tuple(beside)), (), 1, home)
            try:
                made = tried(home, current, replace(declaration, operations=(*done.values(), operation)))
            except DeclarationError as error:
                left.remove(operation)
                mistakes += [
                    ("operation", operation.name, FieldMistake(each.message, each.hint, field="function"))
                    for each in error.mistakes
                ]
                continue
            found = made.operations[-1]
            if found.schema is not None:
                left.remove(operation)
                done[operation.name] = found
        if len(left) == before or not left:
            return _with(declaration, done), mistakes


def _with(declaration: PipelineDeclaration, known: Mapping[str, OperationDeclaration]) -> PipelineDeclaration:
    """The declaration with what is known of some operations."""
    return replace(declaration, operations=tuple(known.get(each.name, each) for each in declaration.operations))


def _known(home: Home) -> dict[str, OperationDeclaration]:
    """The operations that the home has, as the pipeline's own declaration had them."""
    newest = latest(home)
    if newest is None:
        return {}
    found = {each.name: each for each in newest.declaration.operations}
    for change in newest.changes:
        if change.declared is not None:
            found[change.name] = change.declared
        else:
            found.pop(change.name, None)
    return found


def _unchanged(
    declaration: PipelineDeclaration, known: Mapping[str, OperationDeclaration]
) -> Iterator[OperationDeclaration]:
    """The operations that are as the home has them, with the schemas that they have there."""
    from hayase.operations.shipped_code import ship

    with tempfile.TemporaryDirectory(prefix="hayase-check-") as place:
        for operation in declaration.operations:
            before = known.get(operation.name)
            if before is None:
                continue
            try:
                shipped = ship(operation, Path(place))
            except DeclarationError:  # told when it is tried
                continue
            if replace(shipped, schema=operation.schema or before.schema) == before:
                yield replace(operation, schema=before.schema)
