"""Cuts the text of a script or a prompt into statements, which end with a semicolon, and commands, which begin with a backslash."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Piece", "is_complete", "pieces"]

_COMMAND = re.compile(r"[ \t]*\\[^\n]*")
_SPACE = re.compile(r"\s*")


class Piece(NamedTuple):
    """A statement without its semicolon, or a command, and where it begins in the text."""

    text: str
    start: int


def pieces(text: str) -> Iterator[Piece]:
    """Yield the statements and commands of a text; the last statement needs no semicolon.

    >>> [piece.text for piece in pieces("select ';' -- one; two\\n; \\\\d orders\\nselect 2")]
    ["select ';' -- one; two", '\\\\d orders', 'select 2']
    """
    at = 0
    while at < len(text):
        at += _SPACE.match(text, at).end() - at  # type: ignore[union-attr]
        if command := _COMMAND.match(text, at):
            yield Piece(command[0].strip(), at)
            at = command.end()
            continue
        end = _end_of_statement(text, at)
        statement = text[at : len(text) if end is None else end]
        if statement.strip():
            yield Piece(statement.rstrip(), at)
        at = len(text) if end is None else end + 1


def is_complete(text: str) -> bool:
    """Whether a text that is being typed can be run: it is a command, empty, or its last statement ends with a semicolon.

    >>> is_complete("select 1"), is_complete("select 1;"), is_complete("\\\\d"), is_complete("select ';")
    (False, True, True, False)
    """
    at = 0
    while text[at:].strip():
        if _COMMAND.match(text, _SPACE.match(text, at).end()):  # type: ignore[union-attr]
            return True
        end = _end_of_statement(text, at)
        if end is None:
            return False
        at = end + 1
    return True


def _end_of_statement(text: str, at: int) -> int | None:
    """Return where the semicolon of the statement at `at` is; None if there is none."""
    import sqlglot
    from sqlglot.errors import SqlglotError

    for found in re.finditer(";", text[at:]):  # the first one behind which no quote or comment is open
        try:
            tokens = sqlglot.tokenize(text[at : at + found.end()], read="duckdb")
        except SqlglotError:
            continue
        if tokens and tokens[-1].text == ";" and tokens[-1].end == found.start():
            return at + found.start()
    return None
