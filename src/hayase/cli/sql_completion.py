"""What Tab offers at the prompt of `hayase sql`: relations, columns, keywords, and commands with their arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

__all__ = ["KEYWORDS", "completions"]

KEYWORDS = (
    "SELECT", "DISTINCT", "FROM", "WHERE", "GROUP", "BY", "HAVING", "ORDER", "LIMIT", "OFFSET", "WITH", "AS", "JOIN",
    "LEFT", "RIGHT", "FULL", "INNER", "CROSS", "ON", "USING", "UNION", "ALL", "EXCEPT", "INTERSECT", "AND", "OR",
    "NOT", "IN", "IS", "NULL", "LIKE", "BETWEEN", "EXISTS", "CASE", "WHEN", "THEN", "ELSE", "END", "CAST", "ASC",
    "DESC", "NULLS", "FIRST", "LAST", "OVER", "PARTITION", "QUALIFY", "FILTER", "INTERVAL", "TIMESTAMP", "TRUE",
    "FALSE", "VALUES", "count", "sum", "avg", "min", "max", "FOR", "SYSTEM_TIME",
)  # fmt: skip
_WORD = re.compile(r"[\w.]*$")
_AFTER_FROM = re.compile(r"\b(?:from|join|,)\s+$", re.IGNORECASE)
_READ = re.compile(
    r"\b(?:from|join)\s+([\w.]+)(?:\s+(?:as\s+)?(\w+))?|,\s*([\w.]+)(?:\s+(?:as\s+)?(\w+))?", re.IGNORECASE
)


def completions(
    before: str, text: str, columns: Mapping[str, Sequence[str]], commands: Callable[[], Sequence[str]]
) -> tuple[str, list[str]]:
    """Return the word that is being typed, and what it may become. `before` is the text before the cursor, `text` all of it;
    `columns` has the columns of each relation.

    >>> completions("select sp", "select sp from totals", {"totals": ["user", "spend"], "orders": ["speed"]}, lambda: [])
    ('sp', ['spend'])
    """
    if before.lstrip().startswith("\\"):
        return _command_completions(before.lstrip(), list(columns), commands())
    word = _WORD.search(before)[0]  # type: ignore[index]
    relation, dot, part = word.rpartition(".")
    if dot:
        aliases = _aliases(text, columns)
        if (named := aliases.get(relation.lower())) is not None:
            return part, _beginning(part, columns[named])
        return word, _beginning(word, columns)
    if _AFTER_FROM.search(before[: len(before) - len(word)]) and "from" in before.lower():
        return word, _beginning(word, columns)
    mentioned = set(_aliases(text, columns).values()) or set(columns)
    names = dict.fromkeys(name for relation in columns if relation in mentioned for name in columns[relation])
    if not word:
        return word, list(names)
    return word, _beginning(word, [*names, *columns, *KEYWORDS])


def _command_completions(before: str, relations: Sequence[str], commands: Sequence[str]) -> tuple[str, list[str]]:
    name, space, argument = before.partition(" ")
    if not space:
        return name, [command for command in commands if command.startswith(name)]
    offered = {r"\d": relations, r"\as_of": ("complete", "latest"), r"\timing": ("on", "off")}.get(name, ())
    return argument, _beginning(argument, offered)


def _aliases(text: str, columns: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the relations that a statement reads, by their names and aliases in it, in lower case."""
    known = {name.lower(): name for name in columns}
    found: dict[str, str] = {}
    for match in _READ.finditer(text):
        name, alias = match[1] or match[3], match[2] or match[4]
        if name.lower() in known:
            found[name.lower()] = known[name.lower()]
            if alias and alias.upper() not in KEYWORDS:
                found[alias.lower()] = known[name.lower()]
    return found


def _beginning(word: str, names: Sequence[str] | Mapping[str, Sequence[str]]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.lower().startswith(word.lower())]
