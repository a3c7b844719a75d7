"""An operation, and the governor, as plain data, the way a pipeline file says them.

Values are texts or what they stand for: a window is a number of records, or a duration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

from hayase.core.declarations import FieldMistake, GovernorDeclaration, OperationDeclaration
from hayase.core.errors import DeclarationError, HayaseError, nearest
from hayase.core.plain_data import mistakes_of, names, one_or_list
from hayase.core.schemas import arrow_schema, ddl
from hayase.core.sizes import size, size_text
from hayase.core.times import duration, duration_text

__all__ = ["GOVERNOR", "OPERATION", "declared_governor", "declared_operation", "governor_data", "operation_data"]

OPERATION = (
    "reads", "function", "window", "slide", "key", "together", "schema", "takes", "attempts", "pause", "time_limit",
    "memory_limit", "concurrency", "files",
)  # fmt: skip
"""What can be said of an operation."""
GOVERNOR = ("policy", "seconds", "window", "threshold")
"""What can be said of the governor besides the options of its policy."""
_NEEDED = {"reads": "name a stream, several, or q*", "function": "write it like module:function"}


def declared_operation(name: str, data: Mapping[str, Any], directory: str | None = None) -> OperationDeclaration:
    """An operation as a file says it; the module lies in `directory`. A DeclarationError has a `FieldMistake` for all that
    is wrong.

    >>> made = declared_operation("scores", {"reads": "orders", "function": "shop:score", "window": "5 minutes"})
    >>> made.reads, made.window, made.by_time
    (('orders',), 300000000, True)
    """
    where = f' of operation "{name}"'
    mistakes: list[FieldMistake] = []
    for each in data:
        if each not in OPERATION:
            hint = nearest(str(each), OPERATION).removeprefix("; ")
            mistakes.append(FieldMistake(f'operation "{name}" has no "{each}"', hint, field=str(each)))
    for each, hint in _NEEDED.items():
        if each not in data:
            mistakes.append(FieldMistake(f'operation "{name}" has no {each}', hint, field=each))
    given: dict[str, Any] = {"reads": ("_",), "function": "_:_"}
    for each, read in _READERS.items():
        if each in data:
            try:
                given[each] = read(data[each])
            except HayaseError as error:
                mistakes += [
                    FieldMistake(f"{each}{where}: {told.message}", told.hint, field=each) for told in mistakes_of(error)
                ]
    given |= _windows(data, where, mistakes)
    known = {each.field for each in mistakes}
    try:
        made = OperationDeclaration(name, directory=directory, **given)
    except DeclarationError as error:
        for told in error.mistakes:
            field = told.field if isinstance(told, FieldMistake) else ""
            if field not in known and field in data:
                schema = field == "schema"
                message = f"schema{where}: {told.message}" if schema else told.message
                mistakes.append(FieldMistake(message, told.hint, None, told.line, told.column, field))
            elif field not in known:
                mistakes.append(FieldMistake(told.message, told.hint, field=field))
        raise DeclarationError(mistakes) from error
    if mistakes:
        raise DeclarationError(mistakes)
    return made if made.schema is None else replace(made, schema=ddl(arrow_schema(made.schema)))


def _windows(data: Mapping[str, Any], where: str, mistakes: list[FieldMistake]) -> dict[str, Any]:
    """The window and what it slides by: both so many records, or both a duration."""
    found: dict[str, tuple[int, bool]] = {}
    for each in ("window", "slide"):
        if data.get(each) is not None:
            try:
                found[each] = _extent(data[each])
            except HayaseError as error:
                mistakes += [
                    FieldMistake(f"{each}{where}: {told.message}", told.hint, field=each) for told in mistakes_of(error)
                ]
                return {}
    window, by_time = found.get("window", (1, False))
    slide, slides_by_time = found.get("slide", (None, by_time))
    if by_time != slides_by_time:
        told = "a time" if by_time else "so many records"
        hint = f"slide by {told}, like the window"
        mistakes.append(FieldMistake(f"windows{where} last {told}, and do not slide by that", hint, field="slide"))
        return {}
    return {"window": window, "slide": slide, "by_time": by_time}


def _extent(given: object) -> tuple[int, bool]:
    """A number of records, or microseconds and that it is a time."""
    if isinstance(given, timedelta):
        return duration(given), True
    try:
        return _count(given), False
    except HayaseError:
        if not isinstance(given, str):
            raise
    try:
        return duration(given), True
    except HayaseError:
        raise DeclarationError(
            f'"{given}" is no window', 'give a number of records like 10, or a duration like "5 minutes"'
        ) from None


def _count(given: object) -> int:
    if isinstance(given, str) and given.strip().isascii() and given.strip().isdigit() and len(given) < 19:
        return int(given)
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    raise DeclarationError(f"{_shown(given)} is no whole number", "write one, like 3")


def _names(given: object) -> tuple[str, ...]:
    if isinstance(given, str) or (isinstance(given, Sequence) and all(isinstance(each, str) for each in given)):
        return names(given)
    raise DeclarationError(f"{_shown(given)} is no name", "give one, or a list of them")


def _text(given: object) -> str:
    if isinstance(given, str):
        return given
    raise DeclarationError(f"{_shown(given)} is no text", "write it as one")


def _text_or_none(given: object) -> str | None:
    return None if given is None else _text(given)


def _yes(given: object) -> bool:
    if given in ("true", "false"):
        return given == "true"
    if isinstance(given, bool):
        return given
    raise DeclarationError(f"{_shown(given)} is no answer", "say true or false")


def _duration(given: object) -> int:
    if isinstance(given, str | timedelta) or (isinstance(given, int) and not isinstance(given, bool)):
        return duration(given)
    raise DeclarationError(f"{_shown(given)} is no duration", 'write it like "30 s"')


def _size(given: object) -> int:
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    return size(_text(given))


def _shown(given: object) -> str:
    return f'"{given}"' if isinstance(given, str) else repr(given)


_READERS: dict[str, Callable[[object], Any]] = {
    "reads": _names,
    "function": _text,
    "key": _names,
    "together": _yes,
    "schema": _text_or_none,
    "takes": _text_or_none,
    "attempts": _count,
    "pause": _duration,
    "time_limit": _duration,
    "memory_limit": _size,
    "concurrency": _count,
    "files": _names,
}


def operation_data(operation: OperationDeclaration) -> dict[str, Any]:
    """What `declared_operation` makes the operation of; defaults are left out.

    >>> data = {"reads": ["a", "b"], "function": "shop:score", "window": 10, "slide": 2, "pause": "1 s"}
    >>> operation_data(declared_operation("scores", data)) == data
    True
    """
    extent = duration_text if operation.by_time else int
    writers: dict[str, Callable[[Any], Any]] = {
        "reads": one_or_list,
        "key": one_or_list,
        "window": extent,
        "slide": extent,
        "pause": duration_text,
        "time_limit": duration_text,
        "memory_limit": size_text,
        "files": one_or_list,
    }
    defaults = {each.name: each.default for each in fields(OperationDeclaration)}
    data: dict[str, Any] = {}
    for name in OPERATION:
        value = getattr(operation, name)
        if value != defaults[name] or (name == "window" and operation.by_time):
            data[name] = writers[name](value) if name in writers else value
    return data


# ---------------------------------------------------------------------------------------------------- the governor


def declared_governor(data: Mapping[str, Any]) -> GovernorDeclaration:
    """The governor as a file says it. What is none of its own is an option of the policy, whose names nobody knows here.

    >>> declared_governor({"policy": "als", "u": "0.5", "window": "30 s"})
    GovernorDeclaration(policy='als', options=(('u', 0.5),), seconds=None, window=30.0, threshold=None)
    """
    mistakes: list[FieldMistake] = []
    given: dict[str, Any] = {}
    options: list[tuple[str, float]] = []
    for name, value in data.items():
        try:
            if name == "policy":
                given[name] = _text(value)
            elif name in ("seconds", "window"):
                given[name] = None if value is None else _seconds(value)
            elif name == "threshold":
                given[name] = None if value is None else float(_number(value))
            else:
                options.append((str(name), _number(value)))
        except HayaseError as error:
            mistakes += [
                FieldMistake(f"{name} of the governor: {told.message}", told.hint, field=str(name))
                for told in mistakes_of(error)
            ]
    try:
        made = GovernorDeclaration(options=tuple(sorted(options)), **given)
    except DeclarationError as error:
        wrong = [each for each in error.mistakes if isinstance(each, FieldMistake)]
        raise DeclarationError([*mistakes, *wrong]) from error
    if mistakes:
        raise DeclarationError(mistakes)
    return made


def _number(given: object) -> float:
    """A number, whole if it is written so."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        return given
    for kind in (int, float):
        try:
            if isinstance(given, str):
                found = kind(given)
                if abs(found) < 1e300:
                    return found
        except ValueError:
            pass
    raise DeclarationError(f"{_shown(given)} is no number", "write one, like 0.5")


def _seconds(given: object) -> float:
    if isinstance(given, timedelta):
        return given.total_seconds()
    try:
        return float(_number(given))
    except DeclarationError:
        return duration(_text(given)) / 1_000_000


def governor_data(governor: GovernorDeclaration) -> dict[str, Any]:
    """What `declared_governor` makes the governor of; what was not said is left out.

    >>> governor_data(GovernorDeclaration("als", (("u", 0.5),), window=30.0))
    {'policy': 'als', 'u': 0.5, 'window': 30.0}
    """
    data: dict[str, Any] = {"policy": governor.policy, **dict(governor.options)}
    for name in ("seconds", "window", "threshold"):
        if getattr(governor, name) is not None:
            data[name] = getattr(governor, name)
    return data
