"""A statement as far as the reader must understand it: which relations it reads, as of when, and which of their rows and columns.

Only names of relations are replaced in the text; DuckDB gets everything else as it was written. A condition is taken from a WHERE
if it compares a column with a constant, stands alone or between ANDs, and the relations of its FROM are joined in a way that
does not depend on rows which the condition leaves out (not ASOF or POSITIONAL). The statement itself still applies it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

from hayase.core.data_classes import dataclass
from hayase.core.errors import HayaseError, UnknownName
from hayase.relations.bounds import Bounds, Value

__all__ = ["Asked", "Statement", "StatementError", "Unsupported", "parse"]

Parameters = Sequence[Value | None]
_AS_OF = re.compile(
    r"\s+for\s+(?:system_time|timestamp)\s+as\s+of\s+(?:timestamp(?:tz)?\s+)?('(?:[^']|'')*'|\$?\d+)", re.IGNORECASE
)
_SIDES = {"", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "OUTER"}


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
    """A SELECT, with the text for DuckDB and the relations that it mentions."""

    text: str
    asked: tuple[Asked, ...]


@dataclass(frozen=True, slots=True)
class _Mention:
    """A mention of a relation in the text [start, end), with the AS OF behind it."""

    table: exp.Table
    start: int
    end: int
    as_of: str | int | None


def parse(sql: str, parameters: Parameters = ()) -> Statement:
    """Read a statement; StatementError if it is not one SELECT."""
    tree = _select(sql)
    scopes = traverse_scope(tree)
    shadowed = {id(table) for scope in scopes for table in _shadowed(scope)}
    everything = _needs_everything(tree)
    named = frozenset(each.this.lower() for each in tree.find_all(exp.Identifier))
    bounds = _bounds_by_table(scopes, parameters)
    changes = [(start, end, "") for start, end in _schemas_of_columns(tree)]
    asked: list[Asked] = []
    for mention in sorted(_mentions(sql, tree, shadowed, parameters), key=lambda each: each.start):
        table = mention.table
        whole = everything or (table.alias_or_name.lower() in _bare_names(tree)) or bool(table.args.get("pivots"))
        name = f"__relation_{len(asked)}"
        columns, rows = None if whole else named, bounds.get(id(table), Bounds())
        asked.append(Asked(name, table.db or None, table.name, mention.as_of, columns, rows, mention.start + 1))
        changes.append((mention.start, mention.end, name if table.alias else f'{name} AS "{table.name}"'))
    text: list[str] = []
    at = 0
    for start, end, replacement in sorted(changes):
        text += [sql[at:start], replacement]
        at = end
    return Statement("".join([*text, sql[at:]]), tuple(asked))


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


def _mentions(sql: str, tree: exp.Query, shadowed: set[int], parameters: Parameters) -> Iterator[_Mention]:
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
        as_of: str | int | None = None
        if table.args.get("version") is not None:
            written = _AS_OF.match(sql, end)
            if written is None:
                raise StatementError(
                    f'what follows "{table.name}" is not a time',
                    "write FOR SYSTEM_TIME AS OF '2026-01-31T12:00:00Z', an integer, 'complete' or 'latest'",
                    end + 1,
                )
            as_of, end = _instant(written[1], parameters), written.end()
        yield _Mention(table, start, end, as_of)


def _instant(text: str, parameters: Parameters) -> str | int:
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    if not text.startswith("$"):
        return int(text)
    value = parameters[int(text[1:]) - 1] if 0 < int(text[1:]) <= len(parameters) else None
    if isinstance(value, datetime):
        return value.isoformat()
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise StatementError(f"parameter {text} is not a time", "send ISO text or an integer")
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


# ---------------------------------------------------------------------------------------------------- rows


def _bounds_by_table(scopes: Sequence[Scope], parameters: Parameters) -> dict[int, Bounds]:
    found: dict[int, Bounds] = {}
    for scope in scopes:
        select = scope.expression
        if not isinstance(select, exp.Select) or not select.args.get("where") or not _joins_plainly(select):
            continue
        tables = {
            name: source
            for name, source in scope.sources.items()
            if isinstance(source, exp.Table) and not _is_altered(source)
        }
        conditions = list(_conditions(select.args["where"].this))
        for name, table in tables.items():
            is_only = len(scope.sources) == 1
            found[id(table)] = _bounds(conditions, name, is_only, parameters)
    return found


def _joins_plainly(select: exp.Select) -> bool:
    return all(
        not join.method and join.side.upper() in _SIDES and join.kind.upper() in _SIDES
        for join in select.args.get("joins") or ()
    ) and not select.args.get("laterals")


def _is_altered(table: exp.Table) -> bool:
    """Whether the columns of a relation are renamed, or only some of its rows are drawn."""
    alias = table.args.get("alias")
    return bool((alias and alias.columns) or table.args.get("sample") or table.args.get("pivots"))


def _conditions(condition: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(condition, exp.And):
        yield from _conditions(condition.left)
        yield from _conditions(condition.right)
    elif isinstance(condition, exp.Paren):
        yield from _conditions(condition.this)
    else:
        yield condition


def _bounds(conditions: Sequence[exp.Expr], name: str, is_only: bool, parameters: Parameters) -> Bounds:
    among: dict[str, tuple[Value, ...]] = {}
    least: dict[str, Value] = {}
    most: dict[str, Value] = {}

    def column(node: exp.Expr | None) -> str | None:
        if not isinstance(node, exp.Column):
            return None
        is_own = node.table.lower() == name.lower() if node.table else is_only
        return node.name.lower() if is_own else None

    for condition in conditions:
        if isinstance(condition, exp.In) and (of := column(condition.this)) and not condition.args.get("query"):
            values = [_constant(each, parameters) for each in condition.expressions]
            known = [value for value in values if value is not None]
            if known and len(known) == len(values):
                among.setdefault(of, tuple(known))
        elif isinstance(condition, exp.Between) and (of := column(condition.this)):
            low, high = (_constant(condition.args[each], parameters) for each in ("low", "high"))
            if low is not None and high is not None and not condition.args.get("symmetric"):
                least.setdefault(of, low)
                most.setdefault(of, high)
        elif isinstance(condition, exp.EQ | exp.GT | exp.GTE | exp.LT | exp.LTE):
            left, right = condition.left, condition.right
            of, is_swapped = column(left), False
            if of is None:
                of, is_swapped = column(right), True
            value = _constant(left if is_swapped else right, parameters)
            if of is None or value is None:
                continue
            if isinstance(condition, exp.EQ):
                among.setdefault(of, (value,))
            elif isinstance(condition, exp.GT | exp.GTE) != is_swapped:
                least.setdefault(of, value)
            else:
                most.setdefault(of, value)
    return Bounds(among, least, most)


def _constant(node: exp.Expr | None, parameters: Parameters) -> Value | None:
    """Return the value of a constant or a parameter; None if it is something else, or NULL."""
    if isinstance(node, exp.Cast) and node.to.is_type(*exp.DataType.TEMPORAL_TYPES, *exp.DataType.INTEGER_TYPES):
        node = node.this
    if isinstance(node, exp.Neg):
        value = _constant(node.this, parameters)
        return -value if isinstance(value, int | float) else None
    if isinstance(node, exp.Literal):
        if node.is_string:
            return str(node.this)
        text = str(node.this)
        return int(text) if text.isdigit() else None
    if isinstance(node, exp.Parameter | exp.Placeholder) and str(node.name).isdigit():
        number = int(node.name)
        return parameters[number - 1] if 0 < number <= len(parameters) else None
    return None
