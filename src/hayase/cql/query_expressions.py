"""Resolves the expressions of a query: text in, typed SQL over the columns of the plan out.

Only names are replaced; the rest of the text stays as written. Mistakes are collected, with their places in the query, so that
all of them are reported at once. An expression with a mistake is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import tokenize

from hayase.core.errors import DeclarationError, Mistake
from hayase.core.expressions import ParsedExpression, bind, common_type, condition, parse_expression
from hayase.core.keys import check_key_type, check_order_type
from hayase.core.purity import Reference
from hayase.cql.columns import cast_to, column, quoted
from hayase.cql.function_calls import FunctionCalls
from hayase.cql.logical import Expression
from hayase.cql.scopes import ResolvedName, Scope, UnresolvedName
from hayase.cql.syntax import Part, Plain, normalize_token

__all__ = ["ExpressionResolver", "canonical", "comparable_sides", "name_end", "splice"]

_Replacements = Sequence[tuple[int, int, str]]
"""Replacements in a text: start, end, and the new text."""

_CORRELATION_HINT = "name columns of the query around a sub-query only in plain conditions of the sub-query's WHERE"


class ExpressionResolver:
    """Parses, resolves and types expressions. `aggregates` maps names of user-defined aggregates to "module:attribute"; `calls`
    has the user's functions."""

    def __init__(self, aggregates: Mapping[str, str] | None = None, calls: FunctionCalls | None = None) -> None:
        self.mistakes: list[Mistake] = []
        self.aggregates = dict(aggregates or {})
        self._calls = calls or FunctionCalls()

    def refuse(self, part: Part, message: str, hint: str | None = None) -> None:
        """Note a mistake at a part of the query."""
        self.mistakes.append(part.mistake(message, hint))

    def refuse_inside(self, part: Part, error: DeclarationError) -> None:
        """Note the mistakes of an error whose lines and columns count within the part."""
        for mistake in error.mistakes:
            line, start = mistake.line or 1, mistake.column or 1
            first = part.column - 1 if line == 1 else 0
            self.mistakes.append(replace(mistake, line=part.line + line - 1, column=start + first))

    def parse(self, part: Part) -> ParsedExpression | None:
        """Parse a part with DuckDB. Note its mistakes and return None if it has any."""
        try:
            parsed = parse_expression(part.text, frozenset(self.aggregates))
        except DeclarationError as error:
            self.refuse_inside(part, error)
            return None
        if parsed.mistakes:
            self.refuse_inside(part, DeclarationError(parsed.mistakes))
            return None
        return parsed

    def try_parse(self, part: Part) -> ParsedExpression | None:
        """Parse a part; return None, without noting a mistake, if that fails."""
        noted = len(self.mistakes)
        parsed = self.parse(part)
        del self.mistakes[noted:]
        return parsed

    # ------------------------------------------------------------------------------------------------ resolution

    def expression(self, part: Part, scope: Scope, schema: pa.Schema, deep: int = 0) -> Expression | None:
        """Resolve a part into SQL over `schema`. It may name columns of queries up to `deep` levels further out."""
        sql = self._to_sql(part, scope, deep)
        return self.bind(part, sql, schema) if sql is not None else None

    def condition(self, written: Plain, scope: Scope, schema: pa.Schema, deep: int = 0) -> Expression | None:
        """Resolve a condition into SQL over `schema`, with its two sides if it is an equality."""
        sql = self._to_sql(written.part, scope, deep)
        predicate = self.bind(written.part, sql, schema, boolean=True) if sql is not None else None
        if predicate is None or written.sides is None or not parse_expression(written.part.text).equality:
            return predicate
        noted = len(self.mistakes)  # a side may have a type that no stream can have: then the equality cannot be a key
        left, right = (self.expression(side, scope, schema, deep) for side in written.sides)
        del self.mistakes[noted:]
        return replace(predicate, equality=comparable_sides(left, right)) if left and right else predicate

    def _to_sql(self, part: Part, scope: Scope, deep: int) -> str | None:
        parsed = self.parse(part)
        if parsed is None:
            return None
        for call in parsed.calls:
            hint = "aggregates are allowed in the select list and in HAVING"
            self.refuse(part.piece(call.start, call.end), f"the aggregate {call.function} is not supported here", hint)
        pieces = self.replacements(part, parsed.columns, scope, deep)
        return splice(part.text, pieces) if pieces is not None and not parsed.calls else None

    def replacements(
        self, part: Part, columns: Iterable[Reference], scope: Scope, deep: int = 0
    ) -> _Replacements | None:
        """Return what replaces the column names of a part; None if one of them cannot be resolved."""
        pieces: list[tuple[int, int, str]] = []
        failed = False
        for reference in columns:
            column = self.find(part, reference, scope, deep)
            if column is None:
                failed = True
            else:
                pieces.append((reference.start, name_end(part.text, reference, column), column.sql))
        return None if failed else pieces

    def find(self, part: Part, reference: Reference, scope: Scope, deep: int = 0) -> ResolvedName | None:
        """Resolve the name of a column. Note a mistake and return None if that fails."""
        resolved = scope.find(reference.parts)
        place = part.piece(reference.start, reference.end)
        if isinstance(resolved, UnresolvedName):
            self.refuse(place, resolved.message, resolved.hint)
            return None
        if resolved.depth > deep:
            self.refuse(place, f'"{place.text}" belongs to the query around this sub-query', _CORRELATION_HINT)
            return None
        return resolved

    def bind(self, part: Part, sql: str, schema: pa.Schema, boolean: bool = False) -> Expression | None:
        """Return the typed expression for SQL over `schema`; `part` is what the user wrote for it."""
        field = next((other for other in schema if quoted(other.name) == sql), None)
        if field is not None and not boolean:
            return column(field.name, field.type, part)
        sql = self._calls.with_keys(sql)
        try:
            bound = (condition if boolean else bind)(sql, schema)
        except DeclarationError as error:
            self.mistakes += [self._calls.explained(part, mistake) for mistake in error.mistakes]
            return None
        return Expression(sql, bound.kind, bound.columns, part.text, part.line, part.column)

    def check_key(self, part: Part, kind: pa.DataType) -> bool:
        """Return whether values of a type can be keys; note a mistake if not."""
        return self._check(check_key_type, part, kind)

    def check_order(self, part: Part, kind: pa.DataType) -> bool:
        """Return whether rows can be ordered by values of a type; note a mistake if not."""
        return self._check(check_order_type, part, kind)

    def _check(self, check: Callable[[pa.DataType], None], part: Part, kind: pa.DataType) -> bool:
        try:
            check(kind)
        except DeclarationError as error:
            self.refuse_inside(part, error)
            return False
        return True


# ---------------------------------------------------------------------------------------------------- text


def splice(text: str, pieces: _Replacements) -> str:
    """Return the text with these pieces of it replaced.

    >>> splice("a + b", [(0, 1, "x.a"), (4, 5, "y.b")])
    'x.a + y.b'
    """
    for start, end, piece in sorted(pieces, reverse=True):
        text = text[:start] + piece + text[end:]
    return text


def name_end(text: str, reference: Reference, resolved: ResolvedName) -> int:
    """Return the offset at which the name of the column ends; what follows in the reference are fields of a struct."""
    tokens = tokenize(text[reference.start : reference.end], dialect="duckdb")
    return reference.start + tokens[2 * resolved.parts - 2].end + 1


def canonical(text: str, pieces: _Replacements) -> str:
    """Return a text in canonical form: no layout, comments, case or outer parentheses, and columns as in the plan.

    >>> canonical("( A + 1 )", [(2, 3, '"s.a"')])
    '"s.a" + 1'
    """
    starts = {start: (end, piece) for start, end, piece in pieces}
    words: list[str] = []
    at = 0
    for token in tokenize(text, dialect="duckdb"):
        if token.start < at:
            continue
        at, word = starts.get(token.start, (at, normalize_token(text[token.start : token.end + 1])))
        words.append(word)
    while _is_parenthesized(words):
        words = words[1:-1]
    return " ".join(words)


def _is_parenthesized(words: Sequence[str]) -> bool:
    """Return whether one pair of parentheses encloses all words."""
    if not words or words[0] != "(":
        return False
    depth = 0
    for at, word in enumerate(words):
        depth += {"(": 1, ")": -1}.get(word, 0)
        if depth == 0:
            return at == len(words) - 1
    return False


# ---------------------------------------------------------------------------------------------------- expressions


def comparable_sides(one: Expression, other: Expression) -> tuple[Expression, Expression] | None:
    """Return both sides of an equality, cast to the type in which they are compared; None if that type cannot be a key."""
    try:
        kind = common_type(one.kind, other.kind)
        check_key_type(kind)
    except DeclarationError:
        return None
    return cast_to(one, kind), cast_to(other, kind)
