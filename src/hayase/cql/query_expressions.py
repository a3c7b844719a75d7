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
from hayase.core.expressions import Reading, bind, cast, common_type, condition, read
from hayase.core.keys import check_key_type
from hayase.core.purity import Reference
from hayase.cql.columns import column, quoted
from hayase.cql.logical import Expression
from hayase.cql.scopes import Found, Missing, Scope
from hayase.cql.syntax import Part, Plain, plain

__all__ = ["Phrases", "alike", "canonical", "name_end", "spliced", "typed"]

_Pieces = Sequence[tuple[int, int, str]]
"""What replaces the characters from one offset to another."""

_NESTED = "name columns of the query around a sub-query only in plain conditions of the sub-query's WHERE"


class Phrases:
    """Reads, resolves and types expressions. `aggregates` are a user's own, by name: where each is found."""

    def __init__(self, aggregates: Mapping[str, str] | None = None) -> None:
        self.mistakes: list[Mistake] = []
        self.aggregates = dict(aggregates or {})

    def wrong(self, part: Part, message: str, hint: str | None = None) -> None:
        """Note a mistake."""
        self.mistakes.append(part.mistake(message, hint))

    def within(self, part: Part, error: DeclarationError) -> None:
        """Note the mistakes of a part, whose places count within it."""
        for each in error.mistakes:
            line, start = each.line or 1, each.column or 1
            first = part.column - 1 if line == 1 else 0
            self.mistakes.append(replace(each, line=part.line + line - 1, column=start + first))

    def read(self, part: Part) -> Reading | None:
        """What DuckDB reads in a part."""
        try:
            found = read(part.text, frozenset(self.aggregates))
        except DeclarationError as error:
            self.within(part, error)
            return None
        if found.mistakes:
            self.within(part, DeclarationError(found.mistakes))
            return None
        return found

    # ------------------------------------------------------------------------------------------------ resolution

    def expression(self, part: Part, scope: Scope, schema: pa.Schema, deep: int = 0) -> Expression | None:
        """A part as SQL over `schema`; it may name columns of as many queries further out as `deep` says."""
        sql = self._resolved(part, scope, deep)
        return self.bound(part, sql, schema) if sql is not None else None

    def condition(self, written: Plain, scope: Scope, schema: pa.Schema, deep: int = 0) -> Expression | None:
        """A condition as SQL over `schema`, with its two sides if it is an equality."""
        sql = self._resolved(written.part, scope, deep)
        found = self.bound(written.part, sql, schema, boolean=True) if sql is not None else None
        if found is None or written.sides is None or not read(written.part.text).equality:
            return found
        noted = len(self.mistakes)  # a side may have a type that no stream has: then it is no equality to plan with
        one, other = (self.expression(each, scope, schema, deep) for each in written.sides)
        del self.mistakes[noted:]
        return replace(found, equality=alike(one, other)) if one and other else found

    def _resolved(self, part: Part, scope: Scope, deep: int) -> str | None:
        found = self.read(part)
        if found is None:
            return None
        for call in found.calls:
            hint = "aggregates stand in the select list or in HAVING"
            self.wrong(part.piece(call.start, call.end), f"the aggregate {call.function} is not supported here", hint)
        pieces = self.pieces(part, found.columns, scope, deep)
        return spliced(part.text, pieces) if pieces is not None and not found.calls else None

    def pieces(self, part: Part, columns: Iterable[Reference], scope: Scope, deep: int = 0) -> _Pieces | None:
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

    def find(self, part: Part, reference: Reference, scope: Scope, deep: int = 0) -> Found | None:
        """What a column stands for."""
        found = scope.find(reference.parts)
        place = part.piece(reference.start, reference.end)
        if isinstance(found, Missing):
            self.wrong(place, found.message, found.hint)
            return None
        if found.depth > deep:
            self.wrong(place, f'"{place.text}" belongs to the query around this sub-query', _NESTED)
            return None
        return found

    def bound(self, part: Part, sql: str, schema: pa.Schema, boolean: bool = False) -> Expression | None:
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

    def key(self, part: Part, kind: pa.DataType) -> bool:
        """Whether values of a type can be told apart by a key; if not, that is a mistake."""
        try:
            check_key_type(kind)
        except DeclarationError as error:
            self.within(part, error)
            return False
        return True


# ---------------------------------------------------------------------------------------------------- text


def spliced(text: str, pieces: _Pieces) -> str:
    """The text with pieces of it replaced.

    >>> spliced("a + b", [(0, 1, "x.a"), (4, 5, "y.b")])
    'x.a + y.b'
    """
    for start, end, piece in sorted(pieces, reverse=True):
        text = text[:start] + piece + text[end:]
    return text


def name_end(text: str, reference: Reference, found: Found) -> int:
    """Where the part of a reference ends that names the column; what follows are fields of it."""
    tokens = tokenize(text[reference.start : reference.end], dialect="duckdb")
    return reference.start + tokens[2 * found.parts - 2].end + 1


def canonical(text: str, pieces: _Pieces) -> str:
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
        at, word = starts.get(token.start, (at, plain(text[token.start : token.end + 1])))
        words.append(word)
    while _wrapped(words):
        words = words[1:-1]
    return " ".join(words)


def _wrapped(words: Sequence[str]) -> bool:
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


def typed(expression: Expression, kind: pa.DataType) -> Expression:
    """The expression as a value of a type."""
    if expression.kind == kind:
        return expression
    return replace(expression, sql=cast(expression.sql, kind), kind=kind, equality=None)


def alike(one: Expression, other: Expression) -> tuple[Expression, Expression] | None:
    """Two sides of an equality in the type in which they are compared, if it can be a key."""
    try:
        kind = common_type(one.kind, other.kind)
        check_key_type(kind)
    except DeclarationError:
        return None
    return typed(one, kind), typed(other, kind)
