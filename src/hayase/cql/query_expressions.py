"""Expressions of a query against the columns they may name: text in, typed SQL over the columns of the plan out.

The text stays what it was; only names are replaced. Mistakes gather in one list, placed in the query, so that all of
them are told at once; an expression with a mistake is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import tokenize

from hayase.core.errors import DeclarationError, Mistake
from hayase.core.expressions import ParsedExpression, bind, cast, common_type, condition, parse_expression
from hayase.core.keys import check_key_type
from hayase.core.purity import Reference
from hayase.cql.columns import column, quoted
from hayase.cql.logical import Expression
from hayase.cql.scopes import ResolvedName, Scope, UnresolvedName
from hayase.cql.syntax import Part, Plain, normalize_token

__all__ = ["ExpressionResolver", "canonical", "cast_to", "comparable_sides", "name_end", "splice"]

_Replacements = Sequence[tuple[int, int, str]]
"""What replaces the characters from one offset to another."""

_CORRELATION_HINT = "name columns of the query around a sub-query only in plain conditions of the sub-query's WHERE"


class ExpressionResolver:
    """Reads, resolves and types expressions. `aggregates` are a user's own, by name: where each is found."""

    def __init__(self, aggregates: Mapping[str, str] | None = None) -> None:
        self.mistakes: list[Mistake] = []
        self.aggregates = dict(aggregates or {})

    def refuse(self, part: Part, message: str, hint: str | None = None) -> None:
        """Note a mistake."""
        self.mistakes.append(part.mistake(message, hint))

    def refuse_inside(self, part: Part, error: DeclarationError) -> None:
        """Note the mistakes of a part, whose places count within it."""
        for each in error.mistakes:
            line, start = each.line or 1, each.column or 1
            first = part.column - 1 if line == 1 else 0
            self.mistakes.append(replace(each, line=part.line + line - 1, column=start + first))

    def parse(self, part: Part) -> ParsedExpression | None:
        """What DuckDB reads in a part."""
        try:
            found = parse_expression(part.text, frozenset(self.aggregates))
        except DeclarationError as error:
            self.refuse_inside(part, error)
            return None
        if found.mistakes:
            self.refuse_inside(part, DeclarationError(found.mistakes))
            return None
        return found

    # ------------------------------------------------------------------------------------------------ resolution

    def expression(self, part: Part, scope: Scope, schema: pa.Schema, deep: int = 0) -> Expression | None:
        """A part as SQL over `schema`; it may name columns of as many queries further out as `deep` says."""
        sql = self._to_sql(part, scope, deep)
        return self.bind(part, sql, schema) if sql is not None else None

    def condition(self, written: Plain, scope: Scope, schema: pa.Schema, deep: int = 0) -> Expression | None:
        """A condition as SQL over `schema`, with its two sides if it is an equality."""
        sql = self._to_sql(written.part, scope, deep)
        found = self.bind(written.part, sql, schema, boolean=True) if sql is not None else None
        if found is None or written.sides is None or not parse_expression(written.part.text).equality:
            return found
        noted = len(self.mistakes)  # a side may have a type that no stream has: then it is no equality to plan with
        one, other = (self.expression(each, scope, schema, deep) for each in written.sides)
        del self.mistakes[noted:]
        return replace(found, equality=comparable_sides(one, other)) if one and other else found

    def _to_sql(self, part: Part, scope: Scope, deep: int) -> str | None:
        found = self.parse(part)
        if found is None:
            return None
        for call in found.calls:
            hint = "aggregates stand in the select list or in HAVING"
            self.refuse(part.piece(call.start, call.end), f"the aggregate {call.function} is not supported here", hint)
        pieces = self.replacements(part, found.columns, scope, deep)
        return splice(part.text, pieces) if pieces is not None and not found.calls else None

    def replacements(
        self, part: Part, columns: Iterable[Reference], scope: Scope, deep: int = 0
    ) -> _Replacements | None:
        """What stands for the columns of a part; None if one of them is a mistake."""
        found: list[tuple[int, int, str]] = []
        failed = False
        for reference in columns:
            one = self.find(part, reference, scope, deep)
            if one is None:
                failed = True
            else:
                found.append((reference.start, name_end(part.text, reference, one), one.sql))
        return None if failed else found

    def find(self, part: Part, reference: Reference, scope: Scope, deep: int = 0) -> ResolvedName | None:
        """What a column stands for."""
        found = scope.find(reference.parts)
        place = part.piece(reference.start, reference.end)
        if isinstance(found, UnresolvedName):
            self.refuse(place, found.message, found.hint)
            return None
        if found.depth > deep:
            self.refuse(place, f'"{place.text}" belongs to the query around this sub-query', _CORRELATION_HINT)
            return None
        return found

    def bind(self, part: Part, sql: str, schema: pa.Schema, boolean: bool = False) -> Expression | None:
        """SQL over `schema`, typed; the part is what the user wrote for it."""
        alone = next((each for each in schema if quoted(each.name) == sql), None)
        if alone is not None and not boolean:
            return column(alone.name, alone.type, part)
        try:
            bound = (condition if boolean else bind)(sql, schema)
        except DeclarationError as error:
            self.mistakes += [part.mistake(each.message, each.hint) for each in error.mistakes]
            return None
        return Expression(sql, bound.kind, bound.columns, part.text, part.line, part.column)

    def check_key(self, part: Part, kind: pa.DataType) -> bool:
        """Whether values of a type can be told apart by a key; if not, that is a mistake."""
        try:
            check_key_type(kind)
        except DeclarationError as error:
            self.refuse_inside(part, error)
            return False
        return True


# ---------------------------------------------------------------------------------------------------- text


def splice(text: str, pieces: _Replacements) -> str:
    """The text with pieces of it replaced.

    >>> splice("a + b", [(0, 1, "x.a"), (4, 5, "y.b")])
    'x.a + y.b'
    """
    for start, end, piece in sorted(pieces, reverse=True):
        text = text[:start] + piece + text[end:]
    return text


def name_end(text: str, reference: Reference, resolved: ResolvedName) -> int:
    """Where the part of a reference ends that names the column; what follows are fields of it."""
    tokens = tokenize(text[reference.start : reference.end], dialect="duckdb")
    return reference.start + tokens[2 * resolved.parts - 2].end + 1


def canonical(text: str, pieces: _Replacements) -> str:
    """A text without layout, comments, case and the parentheses around it, its columns as in the plan.

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
    """Whether the first parenthesis closes at the end."""
    if not words or words[0] != "(":
        return False
    depth = 0
    for at, word in enumerate(words):
        depth += {"(": 1, ")": -1}.get(word, 0)
        if depth == 0:
            return at == len(words) - 1
    return False


# ---------------------------------------------------------------------------------------------------- expressions


def cast_to(expression: Expression, kind: pa.DataType) -> Expression:
    """The expression as a value of a type."""
    if expression.kind == kind:
        return expression
    return replace(expression, sql=cast(expression.sql, kind), kind=kind, equality=None)


def comparable_sides(one: Expression, other: Expression) -> tuple[Expression, Expression] | None:
    """Two sides of an equality in the type in which they are compared, if it can be a key."""
    try:
        kind = common_type(one.kind, other.kind)
        check_key_type(kind)
    except DeclarationError:
        return None
    return cast_to(one, kind), cast_to(other, kind)
