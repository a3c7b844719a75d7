"""Operations and the governor as plain data, in the form of a pipeline file, to and from their declarations.

The fields, their kinds and their defaults are those of `declaration_fields`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hayase.core.declaration_fields import GOVERNOR, OPERATION
from hayase.core.declarations import GovernorDeclaration, OperationDeclaration
from hayase.core.errors import DeclarationError, HayaseError, Mistake, suggestion
from hayase.core.field_kinds import NUMBER
from hayase.core.plain_data import mistakes_of
from hayase.core.schemas import arrow_schema, ddl

__all__ = ["declared_governor", "declared_operation", "governor_data", "operation_data"]


def declared_operation(name: str, data: Mapping[str, Any], directory: str | None = None) -> OperationDeclaration:
    """Return the declaration of an operation from its plain data; its module lies in `directory`.

    A DeclarationError carries a mistake for everything that is wrong, with the field as its subject.

    >>> operation = declared_operation("scores", {"reads": "orders", "function": "shop:score", "window": "5 minutes"})
    >>> operation.reads, operation.window, operation.by_time
    (('orders',), 300000000, True)
    """
    where = f' of operation "{name}"'
    mistakes: list[Mistake] = []
    for field in data:
        if field not in OPERATION.names:
            hint = suggestion(str(field), OPERATION.names)
            mistakes.append(Mistake(f'operation "{name}" has no "{field}"', hint, subject=str(field)))
    for field, hint in OPERATION.required.items():
        if field not in data:
            mistakes.append(Mistake(f'operation "{name}" has no {field}', hint, subject=field))
    values, unreadable = OPERATION.read(data, where)
    mistakes += unreadable
    values |= _windows(values, where, mistakes)
    known = {mistake.subject for mistake in mistakes}
    try:
        operation = OperationDeclaration(name, directory=directory, **{"reads": ("_",), "function": "_:_", **values})
    except DeclarationError as error:
        for mistake in error.mistakes:
            field = mistake.subject
            if field not in known:
                message = f"schema{where}: {mistake.message}" if field == "schema" else mistake.message
                mistakes.append(Mistake(message, mistake.hint, None, mistake.line, mistake.column, field))
        raise DeclarationError(mistakes) from error
    if mistakes:
        raise DeclarationError(mistakes)
    return operation if operation.schema is None else replace(operation, schema=ddl(arrow_schema(operation.schema)))


def _windows(values: dict[str, Any], where: str, mistakes: list[Mistake]) -> dict[str, Any]:
    """Take the extents of the window and its slide out of `values`; return them as the declaration keeps them.

    Both are numbers of records, or both are durations; otherwise a mistake is added.
    """
    window, by_time = values.pop("window", None) or OPERATION["window"].value
    slide, slides_by_time = values.pop("slide", None) or (None, by_time)
    if any(mistake.subject in ("window", "slide") for mistake in mistakes):
        return {}
    if by_time != slides_by_time:
        unit = "a time" if by_time else "so many records"
        message = f"windows{where} last {unit}, and do not slide by that"
        mistakes.append(Mistake(message, f"slide by {unit}, like the window", subject="slide"))
        return {}
    return {"window": window, "slide": slide, "by_time": by_time}


def operation_data(operation: OperationDeclaration) -> dict[str, Any]:
    """Return the plain data of an operation, which `declared_operation` takes; defaults are left out.

    >>> data = {"reads": ["a", "b"], "function": "shop:score", "window": 10, "slide": 2, "pause": "1 s"}
    >>> operation_data(declared_operation("scores", data)) == data
    True
    """
    values = {name: getattr(operation, name) for name in OPERATION.names}
    values["window"] = (operation.window, operation.by_time)
    values["slide"] = None if operation.slide is None else (operation.slide, operation.by_time)
    return OPERATION.write(values)


def declared_governor(data: Mapping[str, Any]) -> GovernorDeclaration:
    """Return the declaration of the governor from its plain data. Other fields than those of `GOVERNOR` are options of the
    policy; their names are checked where policies are known.

    >>> declared_governor({"policy": "als", "u": "0.5", "window": "30 s"})
    GovernorDeclaration(policy='als', options=(('u', 0.5),), seconds=None, window=30.0, threshold=None)
    """
    values, mistakes = GOVERNOR.read(data, " of the governor")
    if values.get("threshold") is not None:
        values["threshold"] = float(values["threshold"])
    options: list[tuple[str, float]] = []
    for name, value in data.items():
        if name not in GOVERNOR.names:
            try:
                options.append((str(name), NUMBER.read(value)))
            except HayaseError as error:
                mistakes += [
                    Mistake(f"{name} of the governor: {mistake.message}", mistake.hint, subject=str(name))
                    for mistake in mistakes_of(error)
                ]
    try:
        governor = GovernorDeclaration(options=tuple(sorted(options)), **values)
    except DeclarationError as error:
        raise DeclarationError([*mistakes, *error.mistakes]) from error
    if mistakes:
        raise DeclarationError(mistakes)
    return governor


def governor_data(governor: GovernorDeclaration) -> dict[str, Any]:
    """Return the plain data of the governor, which `declared_governor` takes; what is not declared is left out.

    >>> governor_data(GovernorDeclaration("als", (("u", 0.5),), window=30.0))
    {'policy': 'als', 'u': 0.5, 'window': 30.0}
    """
    values = {name: getattr(governor, name) for name in GOVERNOR.names if name != "policy"}
    return {"policy": governor.policy, **dict(governor.options), **GOVERNOR.write(values)}
