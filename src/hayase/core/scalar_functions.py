"""Python functions in expressions: how SQL names them, how DuckDB calls them, and what becomes of the rows for which they fail.

In the SQL of a plan a call names the function with a key (`slug__fn_0123456789abcdef("e.title")`), so that different versions of
a function can run in one process. Each connection has two forms of every function. The plain form raises; DuckDB finds types
with it, and it is called inside of TRY. The other, which `with_rows` writes into the statements of a projection, also takes the
number of the row: it gives NULL for a row that fails, and notes the failure. So one bad row costs one note, where an exception
would cost DuckDB the whole vector: it would compute every row of it alone.

DuckDB calls a function with Arrow arrays of up to 2048 rows, only with the rows that need it (a branch of CASE), in the thread
of the statement. Functions count as pure: DuckDB may call them again, or not at all if the result is not used.
"""

from __future__ import annotations

import atexit
import inspect
import os
import re
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any, NamedTuple

import pyarrow as pa

from hayase.core.data_classes import dataclass

__all__ = ["FUNCTIONS", "Computed", "Failures", "ScalarFunction", "attach", "keys_in", "register", "shown", "with_rows"]


class Computed(NamedTuple):
    """The results of a function, NULL where it failed, and the messages of the failures, by position."""

    values: pa.Array
    failures: dict[int, str]


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A function as expressions call it. `key` is its name in SQL; `call` takes arrays of one length, and that length."""

    key: str
    arguments: tuple[pa.DataType, ...]
    result: pa.DataType
    call: Callable[[Sequence[pa.Array], int], Computed] = field(compare=False, repr=False)


FUNCTIONS: dict[str, ScalarFunction] = {}
"""The functions of this process, by key. They are never removed: a kernel may still use an older version."""

_KEY = re.compile(r"\b(\w+?)__fn_[0-9a-f]{16}(_rows)?\b")
_ROWS = "_rows"
_PIECES = re.compile(
    r"""--[^\n]*|/\*.*?\*/|[eE]?'(?:[^'\\]|\\.|'')*'|"(?:[^"]|"")*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$"""
    r"""|(?P<word>\w+)?\s*(?P<open>\()|(?P<close>\))""",
    re.DOTALL,
)
"""Comments, texts and quoted names, which are passed over; then parentheses, with the word before an opening one."""


def register(function: ScalarFunction) -> None:
    """Make a function known to all expressions of this process."""
    FUNCTIONS.setdefault(function.key, function)


def keys_in(sql: str) -> list[str]:
    """Return the keys of the functions that an expression calls."""
    if "__fn_" not in sql:
        return []
    return list(dict.fromkeys(match[0] for match in _KEY.finditer(sql) if match[0] in FUNCTIONS))


def shown(text: str) -> str:
    """Return a text in which functions have the names that the user knows.

    >>> shown('slug__fn_0123456789abcdef("title")')
    'slug("title")'
    """
    return _KEY.sub(r"\1", text) if "__fn_" in text else text


def with_rows(sql: str, row: str) -> str:
    """Return an expression in which functions, except inside of TRY, also take the number of the row: the column `row`."""
    if not keys_in(sql):
        return sql
    pieces: list[str] = []
    tried: list[bool] = []
    at = 0
    for match in _PIECES.finditer(sql):
        if match["close"]:
            tried[-1:] = []
        elif match["open"]:
            word = match["word"] or ""
            if word in FUNCTIONS and not any(tried):
                comma = "" if not FUNCTIONS[word].arguments else ", "
                pieces += [sql[at : match.start()], f"{word}{_ROWS}({row}{comma}"]
                at = match.end()
            tried.append(word.lower() == "try")
    return "".join([*pieces, sql[at:]])


# ---------------------------------------------------------------------------------------------------- connections


@dataclass(slots=True)
class Failures:
    """The failures of functions in the statements of a thread, since they were last taken: key and message, by row."""

    noted: dict[int, tuple[str, str]] = field(default_factory=dict)

    def take(self) -> dict[int, tuple[str, str]]:
        """Return the failures noted so far, and forget them."""
        taken, self.noted = self.noted, {}
        return taken


class FunctionFailed(Exception):
    """Raised by the plain form of a function; DuckDB makes an error of its own of it."""


_attached: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""The connections with functions, and the process that opened each."""


def attach(
    connection: Any, functions: Iterable[ScalarFunction], failures: Failures, sql_type: Callable[[pa.DataType], str]
) -> None:
    """Create functions in a connection of DuckDB."""
    for function in functions:
        arguments, result = [sql_type(kind) for kind in function.arguments], sql_type(function.result)
        options = {"type": "arrow", "null_handling": "special"}
        connection.create_function(function.key, _plain(function), arguments, result, **options)
        numbered = _numbered(function, failures)
        connection.create_function(f"{function.key}{_ROWS}", numbered, ["BIGINT", *arguments], result, **options)
    _attached[connection] = os.getpid()


@atexit.register
def _close() -> None:
    """Close the connections with functions before Python ends; DuckDB reports leaks otherwise."""
    for connection, owner in list(_attached.items()):
        if owner == os.getpid():
            connection.close()


def _plain(function: ScalarFunction) -> Callable[..., pa.Array]:
    def call(*columns: pa.ChunkedArray) -> pa.Array:
        computed = function.call(_arrays(columns, function), len(columns[0]) if columns else 1)
        if computed.failures:
            raise FunctionFailed(next(iter(computed.failures.values())))
        return computed.values

    return _with_parameters(call, len(function.arguments))


def _numbered(function: ScalarFunction, failures: Failures) -> Callable[..., pa.Array]:
    def call(rows: pa.ChunkedArray, *columns: pa.ChunkedArray) -> pa.Array:
        computed = function.call(_arrays(columns, function), len(rows))
        for position, message in computed.failures.items():
            failures.noted.setdefault(rows[position].as_py(), (function.key, message))
        return computed.values

    return _with_parameters(call, 1 + len(function.arguments))


def _arrays(columns: Sequence[pa.ChunkedArray], function: ScalarFunction) -> list[pa.Array]:
    """Return the columns as arrays of exactly the declared types: DuckDB names the inner fields of lists differently."""
    arrays = [column.combine_chunks() for column in columns]
    return [
        array if array.type.equals(kind, check_metadata=True) else array.cast(kind)
        for array, kind in zip(arrays, function.arguments, strict=True)
    ]


def _with_parameters(call: Callable[..., pa.Array], count: int) -> Callable[..., pa.Array]:
    """Give a function the signature from which DuckDB counts its parameters."""
    kind = inspect.Parameter.POSITIONAL_ONLY
    parameters = [inspect.Parameter(f"argument_{number}", kind) for number in range(count)]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call
