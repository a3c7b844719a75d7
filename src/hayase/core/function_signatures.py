"""The signature of a Python function in queries, from its annotations: the columns that it takes, and the type that it returns.

    def slug(title: str, size: int = 20) -> str: ...                  # values of one record: slug(title string)
    def ratio(one: pa.Array, other: pa.Array) -> pa.Array: ...        # arrays: their types are declared

An annotation with None, as in `str | None`, has the type of the rest. Parameters with a default are no arguments, unless they
are declared.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from hayase.core.errors import DeclarationError, Mistake

__all__ = ["Signature", "signature_of"]

_TYPES: dict[Any, str] = {
    bool: "boolean", int: "bigint", float: "double", str: "string", bytes: "binary", datetime: "timestamp",
    date: "date", time: "time", Decimal: "decimal(38, 18)",
}  # fmt: skip
_ARRAYS = ("Array", "ChunkedArray")
_HINT = "annotate it with int, float, str, bool, bytes, datetime, date, time or Decimal, or declare {}"


class Signature(typing.NamedTuple):
    """What a function takes and returns, as a `FunctionDeclaration` has it."""

    arguments: str
    returns: str
    takes: str


def signature_of(
    function: Callable[..., Any], arguments: str | None, returns: str | None, takes: str | None
) -> Signature:
    """Return the signature of a function, from its annotations where it is not declared.

    >>> def cut(title: str, size: int) -> str | None: ...
    >>> signature_of(cut, None, None, None)
    Signature(arguments='`title` string, `size` bigint', returns='string', takes='values')
    """
    parameters = _parameters(function)
    hints = _hints(function)
    annotated = [_name_of(hint) for hint in hints.values()]
    takes = takes or ("arrays" if any(name in _ARRAYS for name in annotated) else "values")
    mistakes: list[Mistake] = []
    if arguments is None:
        columns = []
        for parameter in parameters:
            kind = _type_of(hints.get(parameter.name))
            if parameter.default is not parameter.empty:
                break
            if kind is None:
                hint = _HINT.format(f'arguments: "{parameter.name} string"')
                mistakes.append(Mistake(f'the type of "{parameter.name}" is not known', hint, subject="arguments"))
                break
            columns.append(f"`{parameter.name}` {kind}")
        arguments = ", ".join(columns)
    if returns is None:
        returns = _type_of(hints.get("return"))
        if returns is None:
            mistakes.append(
                Mistake("the type of its result is not known", _HINT.format("returns: string"), subject="returns")
            )
    if mistakes:
        raise DeclarationError(mistakes)
    assert returns is not None
    return Signature(arguments, returns, takes)


def check_count(function: Callable[..., Any], count: int) -> None:
    """Raise DeclarationError if a function cannot be called with so many arguments."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError as error:
        plural = "" if count == 1 else "s"
        raise DeclarationError(
            [Mistake(f"it cannot take {count} argument{plural}: {error}", "declare those it has", subject="arguments")]
        ) from error
    except ValueError:  # written in C
        return


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C
        return []
    return [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function; those that cannot be evaluated stay texts."""
    try:
        return typing.get_type_hints(function)
    except Exception:  # whatever the text of an annotation raises when it is evaluated
        return dict(getattr(function, "__annotations__", {}))


def _type_of(annotation: Any) -> str | None:
    """Return the type of an annotation in Spark DDL; None if it says nothing about that."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        rest = [part for part in typing.get_args(annotation) if part is not types.NoneType]
        return _type_of(rest[0]) if len(rest) == 1 else None
    return _TYPES.get(annotation) if isinstance(annotation, type) else None


def _name_of(annotation: Any) -> str:
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return str(name).rpartition(".")[2]
