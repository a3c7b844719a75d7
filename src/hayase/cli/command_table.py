"""The table of commands: the module of each, and its panel in the help. A command is built when it is asked for.

Building a command imports its module and inspects its function; `hayase query` needs one of 28. Typer converts every parameter with
Pydantic, which takes 0.07 s to import, also those that are not given; so parameters that need no conversion are kept from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["COMMANDS", "CommandGroup"]

COMMANDS = {
    "demo": ("run", "Begin"),
    "init": ("init", "Begin"),
    "check": ("project", "Begin"),
    "schema": ("project", "Begin"),
    "doctor": ("machine", "Begin"),
    "run": ("run", "Work"),
    "serve": ("serve", "Work"),
    "top": ("top", "Work"),
    "health": ("health", "Work"),
    "append": ("append", "Work"),
    "streams": ("streams", "Work"),
    "sources": ("connectors", "Work"),
    "outputs": ("connectors", "Work"),
    "groups": ("groups", "Work"),
    "dead": ("dead", "Work"),
    "show": ("show", "Ask"),
    "query": ("query", "Ask"),
    "sql": ("sql", "Ask"),
    "tables": ("tables", "Ask"),
    "rules": ("rules", "Ask"),
    "explain": ("explain", "Ask"),
    "plan": ("project", "Change"),
    "apply": ("project", "Change"),
    "reset": ("project", "Change"),
    "rebucket": ("project", "Change"),
    "ops": ("ops", "Change"),
    "queries": ("queries", "Change"),
    "governor": ("governor", "Change"),
    "home": ("home", "Change"),
    "bench": ("machine", "Measure"),
}
"""Of each command: the module of `hayase.cli` with its function, or with the `app` of its subcommands (also one of its name), and
its panel."""


class CommandGroup(TyperGroup):
    """The command `hayase`; its subcommands are those of the table."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes | {"commands": _Commands()})

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return list(COMMANDS)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, each with a conversion that needs Pydantic only for some values."""
        return [_spared(parameter) for parameter in super().get_params(ctx)]


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return [_spared(parameter) for parameter in super().get_params(ctx)]


class _Commands(MutableMapping[str, Any]):
    """The commands by name, built when they are looked up."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            self[name] = _built_command(name, *COMMANDS[name])
        return self._built[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._built[name] = command

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"the command {name} is in the table of commands")

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _built_command(name: str, module: str, panel: str) -> Any:
    holder = typer.Typer(rich_markup_mode="rich")
    loaded = import_module(f"hayase.cli.{module}")
    found = loaded.app if hasattr(loaded, "app") else getattr(loaded, name)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name, rich_help_panel=panel)
    else:
        holder.command(name, cls=_Command, rich_help_panel=panel)(found)
    return typer.main.get_group(holder).commands[name]


def _spared(parameter: Any) -> Any:
    """Return the parameter; Typer now converts only values that need it."""
    convert = getattr(parameter, "get_runtime_param", None)  # Typer before 0.29 has none, and does without Pydantic
    if convert is not None and not isinstance(getattr(convert, "__self__", None), _Conversion):
        parameter.get_runtime_param = _Conversion(parameter.type_descriptor.annotation, convert).itself
    return parameter


class _Conversion:
    """The conversion of the values of a parameter, by Typer if need be."""

    def __init__(self, annotation: Any, by_typer: Callable[[], Any]) -> None:
        self._annotation = annotation
        self._by_typer = by_typer

    def itself(self) -> _Conversion:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if self._annotation is str and isinstance(value, str):
            return value
        if self._annotation is Path and isinstance(value, str):
            return Path(value)
        if self._annotation == list[str] and all(isinstance(each, str) for each in value):
            return list(value)
        if (
            isinstance(self._annotation, type)
            and issubclass(self._annotation, StrEnum)
            and value in [*self._annotation]
        ):
            return self._annotation(value)
        return self._by_typer().coerce(value, param=param, ctx=ctx)
