"""Declarations of the user's functions in queries: a Python function, or an expression in SQL that stands for a call.

A declaration is complete: the names and types of arguments and result are known, so that planning runs no code of the user.
`hayase.core.function_data` completes what a pipeline file or a decorator leaves to annotations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declaration_fields import FUNCTION
from hayase.core.errors import DeclarationError, Mistake
from hayase.core.schemas import arrow_schema

__all__ = ["FunctionDeclaration"]

_RESULT = "result"


@dataclass(frozen=True, slots=True)
class FunctionDeclaration:
    """A function of the user: "module:function" or "path/to/file.py:function", or `sql` instead of one.

    `arguments` are the columns of a Python function (Spark DDL, empty if it takes none), and the names of those of an expression,
    separated by commas. `returns` is a type in Spark DDL. A Python function takes the values of one record, or arrays
    (`takes`); with `nulls` skip it is not called if an argument is NULL. A call that takes more than `time_limit` microseconds is
    interrupted. `directory` holds the module until it is shipped: then
    the home has a copy under the name `code`, with the data `files`, and `version` is a digest of the statements that the
    function depends on, without layout and comments.
    """

    name: str
    function: str | None = None
    sql: str | None = None
    arguments: str | None = None
    returns: str | None = None
    takes: str | None = None
    nulls: str = FUNCTION["nulls"].value
    time_limit: int = FUNCTION["time_limit"].value
    directory: str | None = None
    files: tuple[str, ...] = ()
    code: str | None = None
    version: str | None = None

    def __post_init__(self) -> None:
        mistakes = self._python_mistakes() if self.sql is None else self._sql_mistakes()
        for field in ("takes", "nulls"):
            value, known = getattr(self, field), FUNCTION[field].kind.schema["enum"]
            if value is not None and value not in known:
                mistakes.append(Mistake(f'{field} is "{value}"', f"write {' or '.join(known)}", subject=field))
        if mistakes:
            raise DeclarationError(mistakes)

    def _python_mistakes(self) -> list[Mistake]:
        place, _, attribute = (self.function or "").rpartition(":")
        if self.function is None:
            hint = "write function: module:function, or sql: x * 1.1"
            return [Mistake("it has neither a function nor sql", hint, subject="function")]
        mistakes = []
        if not place or not attribute.isidentifier():
            message = f'"{self.function}" names no function'
            mistakes.append(Mistake(message, "write it like module:function", subject="function"))
        for field, text in (("arguments", self.arguments), ("returns", self.returns and f"{_RESULT} {self.returns}")):
            try:
                arrow_schema(text or "none string")
            except DeclarationError as error:
                mistakes += [
                    Mistake(f"{field}: {mistake.message}", mistake.hint, subject=field) for mistake in error.mistakes
                ]
        if self.time_limit <= 0:
            mistakes.append(
                Mistake("a call cannot have no time", "give time_limit a value like 30 s", subject="time_limit")
            )
        for path in self.files:
            if not path or path.startswith(("/", "~")) or ".." in path.split("/"):
                hint = "name a path, or a pattern such as models/*.json, relative to the directory of the module"
                mistakes.append(Mistake(f'"{path}" names no file that lies beside its module', hint, subject="files"))
        return mistakes

    def _sql_mistakes(self) -> list[Mistake]:
        mistakes = [
            Mistake(f"an expression has no {field}", "only a Python function has", subject=field)
            for field in ("function", "returns", "takes", "files")
            if getattr(self, field)
        ]
        mistakes += [
            Mistake(f"an expression has no {field}", "only a Python function has", subject=field)
            for field in ("nulls", "time_limit")
            if getattr(self, field) != FUNCTION[field].value
        ]
        names = [name.lower() for name in self.names]
        for name in self.names:
            if not name.isidentifier():
                hint = "an expression has names, without types, as its arguments: x, rate"
                mistakes.append(Mistake(f'"{name}" is not the name of an argument', hint, subject="arguments"))
        twice = dict.fromkeys(name for name in names if names.count(name) > 1)
        return mistakes + [
            Mistake(f'"{name}" stands twice in the arguments', "remove one", subject="arguments") for name in twice
        ]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arguments of an expression."""
        return tuple(name.strip() for name in self.arguments.split(",")) if self.arguments else ()

    @property
    def schema(self) -> pa.Schema:
        """The arguments of a Python function."""
        return arrow_schema(self.arguments) if self.arguments else pa.schema([])

    @property
    def result(self) -> pa.Field:
        """The result of a Python function."""
        return arrow_schema(f"{_RESULT} {self.returns}").field(0)

    @property
    def signature(self) -> str:
        """The call as messages show it: the name with its arguments."""
        return f"{self.name}({self.arguments or ''})"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FunctionDeclaration:
        """The inverse of `dataclasses.asdict`."""
        return cls(**{**data, "files": tuple(data["files"])})
