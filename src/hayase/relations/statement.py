"""A statement as far as the reader must understand it: which relations it reads, as of when, and which of their rows and columns.

Only names of relations are replaced in the text; DuckDB gets everything else as it was written. What was read of a text is kept for
the next time, with any parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

from hayase.core.data_classes import dataclass
from hayase.core.errors import HayaseError, UnknownName
from hayase.relations.bounds import NOTHING_SAID, Bounds
from hayase.relations.conditions import Condition, Parameter, Parameters, bounds_of, conditions_by_table
from hayase.relations.lookups import Lookup, lookup_of

__all__ = ["Asked", "Statement", "StatementError", "Unsupported", "parse"]

_TEXTS, _LONGEST_KEPT = 1000, 10_000
"""Statements that are kept at most, and the length of the longest."""
_AS_OF = re.compile(
    r"\s+for\s+(?:system_time|timestamp)\s+as\s+of\s+(?:timestamp(?:tz)?\s+)?('(?:[^']|'')*'|\$?\d+)", re.IGNORECASE
)


class StatementError(HayaseError):
    """A statement that is not one that can be asked; `position` is the place in the text, counted from 1, if it is known."""

    def __init__(self, problem: str, remedy: str | None = None, position: int | None = None):
        super().__init__(problem, remedy)
        self.position = position


class Unsupported(StatementError):
    """A statement that does more than to read."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One mention of a relation: the name in the text that DuckDB gets, the relation, as of when, which columns and rows."""

    registered: str
    schema: str | None
    name: str
    as_of: str | int | None
    columns: frozenset[str] | None
    """Names in lower case that the statement mentions; None if it needs all columns."""
    bounds: Bounds
    position: int


@dataclass(frozen=True, slots=True)
class Statement:
    """A SELECT, with the text for DuckDB and the relations that it mentions; as a lookup, if it is no more than that."""

    text: str
    asked: tuple[Asked, ...]
    lookup: Lookup | None


@dataclass(frozen=True, slots=True)
class _Template:
    """A statement before its parameters are known. The conditions belong to the relations, in the same order."""

    statement: Statement
    as_of: tuple[str | int | Parameter | None, ...]
    conditions: tuple[tuple[Condition, ...], ...]

    def bound(self, parameters: Parameters) -> Statement:
        asked = tuple(
            replace(each, as_of=_instant(as_of, parameters), bounds=bounds_of(conditions, parameters))
            for each, as_of, conditions in zip(self.statement.asked, self.as_of, self.conditions)
        )
        return replace(self.statement, asked=asked)


@dataclass(frozen=True, slots=True)
class _Mention:
    """A mention of a relation in the text [start, end), with the AS OF behind it."""

    table: exp.Table
    start: int
    end: int
    as_of: str | int | Parameter | None


def parse(sql: str, parameters: Parameters = ()) -> Statement:
    """Read a statement; StatementError if it is not one SELECT."""
    return (_template(sql) if len(sql) <= _LONGEST_KEPT else _read(sql)).bound(parameters)


def _read(sql: str) -> _Template:
    tree = _select(sql)
    scopes = traverse_scope(tree)
    shadowed = {id(table) for scope in scopes for table in _shadowed(scope)}
    everything = _needs_everything(tree)
    named = frozenset(each.this.lower() for each in tree.find_all(exp.Identifier))
    conditions = conditions_by_table(scopes)
    changes = [(start, end, "") for start, end in _schemas_of_columns(tree)]
    asked: list[Asked] = []
    mentions = sorted(_mentions(sql, tree, shadowed), key=lambda each: each.start)
    for mention in mentions:
        table = mention.table
        whole = everything or (table.alias_or_name.lower() in _bare_names(tree)) or bool(table.args.get("pivots"))
        name = f"__relation_{len(asked)}"
        columns = None if whole else named
        asked.append(Asked(name, table.db or None, table.name, None, columns, NOTHING_SAID, mention.start + 1))
        changes.append((mention.start, mention.end, name if table.alias else f'{name} AS "{table.name}"'))
    text: list[str] = []
    at = 0
    for start, end, replacement in sorted(changes):
        text += [sql[at:start], replacement]
        at = end
    statement = Statement("".join([*text, sql[at:]]), tuple(asked), lookup_of(tree))
    found = tuple(conditions.get(id(mention.table), ()) for mention in mentions)
    return _Template(statement, tuple(mention.as_of for mention in mentions), found)


_template = lru_cache(maxsize=_TEXTS)(_read)


def _select(sql: str) -> exp.Query:
    try:
        trees = [tree for tree in sqlglot.parse(sql, read="duckdb") if tree is not None]
    except SqlglotError as error:
        raise _syntax_error(sql, error) from None
    except RecursionError:
        raise StatementError("the statement is nested too deeply", "write it with fewer levels") from None
    if len(trees) != 1:
        raise StatementError(f"{len(trees)} statements where one is expected", "send them one by one")
    tree = trees[0]
    if not isinstance(tree, exp.Query):
        what = sql.split(None, 1)[0].upper() if sql.split() else "nothing"
        raise Unsupported(f"{what} is not a SELECT, and a home can only be read here", "append by `hayase append`")
    return tree


def _syntax_error(sql: str, error: SqlglotError) -> StatementError:
    details = getattr(error, "errors", None) or [{}]
    line, column = details[0].get("line"), details[0].get("col")
    position = None
    if line is not None and column is not None:
        lines = sql.split("\n")
        position = (
            sum(len(each) + 1 for each in lines[: line - 1]) + column - len(details[0].get("highlight") or "") + 1
        )
    what = details[0].get("description") or str(error).split("\n")[0]
    near = f' at or near "{details[0]["highlight"]}"' if details[0].get("highlight") else ""
    return StatementError(f"syntax error{near}: {what}", None, position)


# ---------------------------------------------------------------------------------------------------- relations


def _shadowed(scope: Scope) -> Iterator[exp.Table]:
    """Yield the tables of a scope that name a part of the statement itself, such as one of WITH."""
    for table in scope.tables:
        if not table.db and isinstance(scope.sources.get(table.alias_or_name), Scope):
            yield table


def _schemas_of_columns(tree: exp.Query) -> Iterator[tuple[int, int]]:
    """Yield where a column is written with the schema of its relation, as in public.spend.user: relations are known by name."""
    for column in tree.find_all(exp.Column):
        schema, table = column.args.get("db"), column.args.get("table")
        if schema is not None and table is not None and "start" in schema.meta and "start" in table.meta:
            yield schema.meta["start"], table.meta["start"]


def _mentions(sql: str, tree: exp.Query, shadowed: set[int]) -> Iterator[_Mention]:
    defined = {each.alias_or_name.lower() for each in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        parts = [part for part in table.parts if isinstance(part, exp.Identifier)]
        if not parts or len(parts) != len(table.parts):
            continue  # a function, which DuckDB knows and which reaches no files
        if id(table) in shadowed or (not table.db and table.name.lower() in defined):
            if table.args.get("version"):
                raise StatementError(f'"{table.name}" is a part of this statement and has no AS OF of its own')
            continue
        if table.catalog:
            raise UnknownName("relation", f"{table.catalog}.{table.db}.{table.name}", ())
        start, end = parts[0].meta.get("start"), parts[-1].meta.get("end")
        if start is None or end is None:
            raise StatementError(f'"{table.name}" cannot be read in this place')
        end += 1
        as_of: str | int | Parameter | None = None
        if table.args.get("version") is not None:
            written = _AS_OF.match(sql, end)
            if written is None:
                raise StatementError(
                    f'what follows "{table.name}" is not a time',
                    "write FOR SYSTEM_TIME AS OF '2026-01-31T12:00:00Z', an integer, 'complete' or 'latest'",
                    end + 1,
                )
            as_of, end = _written(written[1]), written.end()
        yield _Mention(table, start, end, as_of)


def _written(text: str) -> str | int | Parameter:
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    return Parameter(int(text[1:])) if text.startswith("$") else int(text)


def _instant(as_of: str | int | Parameter | None, parameters: Parameters) -> str | int | None:
    if not isinstance(as_of, Parameter):
        return as_of
    value = as_of.value(parameters)
    if isinstance(value, datetime):
        return value.isoformat()
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise StatementError(f"parameter ${as_of.number} is not a time", "send ISO text or an integer")
    return value


# ---------------------------------------------------------------------------------------------------- columns


def _needs_everything(tree: exp.Query) -> bool:
    """Whether the statement names all columns of some relation at once: by a star, NATURAL, or COLUMNS(...)."""
    for star in tree.find_all(exp.Star):
        if not isinstance(star.parent, exp.Count):
            return True
    if any(join.method.upper() == "NATURAL" for join in tree.find_all(exp.Join)):
        return True
    return tree.find(exp.Columns, exp.Pivot) is not None


def _bare_names(tree: exp.Query) -> frozenset[str]:
    """Return the names that stand where a column stands, without a relation: one may be the name of a relation, which means its
    whole row."""
    return frozenset(column.name.lower() for column in tree.find_all(exp.Column) if not column.table)
