"""CQL's dialect for sqlglot, on top of DuckDB's: `[windows]` after streams, `Istream(...)` and the like, and places.

A node of a tree holds in `meta["span"]` the start and end of the text it was read from. A window's brackets are in
`meta["window"]` of the table, alias or sub-query that they follow; if it is written as a table function, the call is in
`meta["window_call"]` of the table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.parsers.duckdb import DuckDBParser

from hayase.core.data_classes import dataclass
from hayase.cql.window_functions import find_window_calls

__all__ = [
    "STREAM_OPERATORS", "NestedOperators", "ParsedText", "StreamOperator", "find_nested_operators", "find_stream_operator",
    "parse_statements",
]  # fmt: skip

logging.getLogger("sqlglot").setLevel(
    logging.ERROR
)  # it warns of statements that it does not know; these are refused here
STREAM_OPERATORS = ("istream", "dstream", "rstream")


@dataclass(frozen=True, slots=True)
class ParsedText:
    """The statements of a text, and the start and end of its windows."""

    statements: tuple[exp.Expr, ...]
    windows: tuple[tuple[int, int], ...]


def parse_statements(
    tokens: Sequence[Token],
    text: str,
    nested: Mapping[int, str] = MappingProxyType({}),
    functions: Set[str] = frozenset(),
) -> ParsedText:
    """Parse the statements of a text, with spans. Raise sqlglot's errors.

    `nested` are the kinds of the stream operators around sub-queries in FROM, by the offset of the closing parenthesis; they are
    in `meta["stream"]` of the sub-query. Calls of `functions`, whose names are in lower case, are plain calls, also where another
    system has a syntax for the name.
    """
    parser = _Parser(dialect=DuckDB())
    parser.operators, parser.own_functions = nested, functions
    kept, calls = find_window_calls(tokens)
    statements = [statement for statement in parser.parse(kept, text) if statement is not None]
    windows: set[tuple[int, int]] = set()
    for node in (node for tree in statements for node in tree.walk()):
        if "window" in node.meta:
            windows.add(node.meta["window"])
        call = calls.get(node.meta["span"][0]) if isinstance(node, exp.Table) and "span" in node.meta else None
        if call is not None:
            node.meta["window_call"] = (call.start, call.end)
            windows |= set(call.around_name)
    return ParsedText(tuple(statements), tuple(sorted(windows)))


def _with_span(parse: Callable[..., Any], *, unless_continued: bool = False) -> Any:
    """Return a method of the parser that also records the span of the node that it reads.

    `unless_continued`: not if it has arguments, because it then continues an expression already begun.
    """

    def parse_with_span(self: _Parser, *args: Any, **kwargs: Any) -> Any:
        first = self._index
        node = parse(self, *args, **kwargs)
        return node if unless_continued and (args or kwargs) else self._span(node, first)

    return parse_with_span


class _Parser(DuckDBParser):
    """DuckDB's parser, which also records spans and reads windows."""

    operators: Mapping[int, str] = MappingProxyType({})
    own_functions: Set[str] = frozenset()

    def _parse_function_call(self, functions: Any = None, anonymous: bool = False, *args: Any, **kwargs: Any) -> Any:
        own = self._curr is not None and self._curr.text.lower() in self.own_functions
        return super()._parse_function_call(functions, anonymous or own, *args, **kwargs)

    def _span(self, node: Any, first: int) -> Any:
        if isinstance(node, exp.Expr) and self._index > first:
            span = (self._tokens[first].start, self._tokens[self._index - 1].end + 1)
            node.meta["span"] = span  # the outermost wins: a unary plus has no node of its own
        return node

    def _window(self, node: Any) -> Any:
        """Read the brackets that follow the node, if there are any, as its window."""
        if not isinstance(node, exp.Expr) or self._curr.token_type is not TokenType.L_BRACKET:
            return node
        first, depth = self._curr.start, 0
        while self._curr:
            depth += {TokenType.L_BRACKET: 1, TokenType.R_BRACKET: -1}.get(self._curr.token_type, 0)
            self._advance()
            if depth == 0:
                node.meta["window"] = (first, self._prev.end + 1)
                return node
        self.raise_error("Expecting ]")
        return node

    def validate_expression(self, expression: Any, args: list[Any] | None = None) -> Any:
        """Check a node, except for an aggregate: resolution checks its arguments, and has better words for them."""
        return expression if isinstance(expression, exp.AggFunc) else super().validate_expression(expression, args)

    def _parse_table_parts(self, *args: Any, **kwargs: Any) -> Any:
        first = self._index
        parts = self._span(super()._parse_table_parts(*args, **kwargs), first)
        return parts if kwargs.get("fast") else self._window(parts)

    def _parse_table_alias(self, *args: Any, **kwargs: Any) -> Any:
        return self._window(super()._parse_table_alias(*args, **kwargs))

    def _parse_subquery(self, this: Any, parse_alias: bool = True) -> Any:
        operator = self.operators.get(self._prev.start) if self._prev else None
        window = self._window(exp.Null()) if this is not None and parse_alias else None
        subquery = super()._parse_subquery(this, parse_alias=parse_alias)
        if window is not None and subquery is not None:
            subquery.meta.update(window.meta)
        if operator is not None and subquery is not None:
            subquery.meta["stream"] = operator
        return subquery

    _parse_table = _with_span(DuckDBParser._parse_table)
    _parse_join = _with_span(DuckDBParser._parse_join)
    _parse_disjunction = _with_span(DuckDBParser._parse_disjunction)
    _parse_conjunction = _with_span(DuckDBParser._parse_conjunction)
    _parse_equality = _with_span(DuckDBParser._parse_equality)
    _parse_comparison = _with_span(DuckDBParser._parse_comparison, unless_continued=True)
    _parse_range = _with_span(DuckDBParser._parse_range, unless_continued=True)
    _parse_bitwise = _with_span(DuckDBParser._parse_bitwise)
    _parse_unary = _with_span(DuckDBParser._parse_unary)
    _parse_lambda = _with_span(DuckDBParser._parse_lambda)


# ---------------------------------------------------------------------------------------------------- streams


@dataclass(frozen=True, slots=True)
class StreamOperator:
    """`Istream(...)`, `Dstream(...)` or `Rstream(...)` around a query or a select list, and its tokens."""

    kind: str
    tokens: frozenset[int]
    place: int


@dataclass(frozen=True, slots=True)
class NestedOperators:
    """The stream operators around sub-queries in FROM: their tokens, and their kinds by the offset of the closing parenthesis."""

    tokens: frozenset[int]
    kinds: Mapping[int, str]


def find_nested_operators(tokens: Sequence[Token]) -> NestedOperators:
    """Return the operators that stand before a sub-query in FROM: `from Istream(select ...) [Rows 5]`."""
    before = (TokenType.FROM, TokenType.JOIN, TokenType.COMMA, TokenType.L_PAREN)
    kinds: dict[int, str] = {}
    found: set[int] = set()
    for at in _operator_calls(tokens):
        inside = tokens[at + 2].token_type if at + 2 < len(tokens) else None
        close = _closing_parenthesis(tokens, at + 1)
        if at and tokens[at - 1].token_type in before and inside in _QUERY_STARTS and close is not None:
            found.add(at)
            kinds[tokens[close].start] = tokens[at].text.lower()
    return NestedOperators(frozenset(found), kinds)


_QUERY_STARTS = (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN)


def _operator_calls(tokens: Sequence[Token]) -> list[int]:
    """Return the places of the names of stream operators before a parenthesis."""
    return [
        at
        for at, token in enumerate(tokens[:-1])
        if token.text.lower() in STREAM_OPERATORS
        and token.token_type is not TokenType.IDENTIFIER
        and token.token_type is not TokenType.STRING
        and tokens[at + 1].token_type is TokenType.L_PAREN
    ]


def find_stream_operator(tokens: Sequence[Token]) -> tuple[StreamOperator | None, list[Token]]:
    """Return the operator around the whole query, if there is one, and the tokens of misplaced ones.

    It is written around the query, `Istream(select a from s)`, or, as in the literature on CQL, around the select list:
    `select Istream(a) from s`.
    """
    nested = find_nested_operators(tokens).tokens
    calls = [at for at in _operator_calls(tokens) if at not in nested]
    if not calls:
        return None, []
    first = calls[0]
    close, last = _closing_parenthesis(tokens, first + 1), len(tokens) - 1
    while tokens[last].token_type is TokenType.SEMICOLON:
        last -= 1
    before = [earlier.token_type for earlier in tokens[:first]]
    operator: StreamOperator | None = None
    if close == last and not before:
        operator = StreamOperator(tokens[first].text.lower(), frozenset({first}), tokens[first].start)
    elif before in ([TokenType.SELECT], [TokenType.SELECT, TokenType.DISTINCT]) and close is not None:
        follows = tokens[close + 1].token_type if close < last else None
        if follows in (TokenType.FROM, None) and not _has_set_operation(tokens):
            own_tokens = frozenset({first, first + 1, close})
            operator = StreamOperator(tokens[first].text.lower(), own_tokens, tokens[first].start)
    return operator, [tokens[at] for at in calls if operator is None or at != first]


def _closing_parenthesis(tokens: Sequence[Token], opening: int) -> int | None:
    depth = 0
    for at in range(opening, len(tokens)):
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(tokens[at].token_type, 0)
        if depth == 0:
            return at
    return None


def _has_set_operation(tokens: Sequence[Token]) -> bool:
    """Return whether there is a set operation outside of all parentheses."""
    depth = 0
    for token in tokens:
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if depth == 0 and token.token_type in (TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT):
            return True
    return False
