"""CQL's dialect, on top of DuckDB's: `[windows]` behind streams, `Istream(...)` and its like, and places.

The nodes of a tree carry in `meta["span"]` the first and the last offset of the text they were read from. A window's
brackets are in `meta["window"]` of the table, its alias or the sub-query that they stand behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.parsers.duckdb import DuckDBParser

__all__ = ["STREAM_OPERATORS", "ParsedText", "StreamOperator", "find_stream_operator", "parse_statements"]

STREAM_OPERATORS = ("istream", "dstream", "rstream")


@dataclass(frozen=True, slots=True)
class ParsedText:
    """The statements of a text, and where its windows begin and end."""

    statements: tuple[exp.Expr, ...]
    windows: tuple[tuple[int, int], ...]


def parse_statements(tokens: Sequence[Token], text: str) -> ParsedText:
    """The statements of a text, with spans. Raises what sqlglot raises."""
    parser = _Parser(dialect=DuckDB())
    statements = [each for each in parser.parse(list(tokens), text) if each is not None]
    windows = {each.meta["window"] for tree in statements for each in tree.walk() if "window" in each.meta}
    return ParsedText(tuple(statements), tuple(sorted(windows)))


class _Parser(DuckDBParser):
    """DuckDB's parser, noting where everything stands, and reading windows."""

    def _span(self, node: Any, first: int) -> Any:
        if isinstance(node, exp.Expr) and self._index > first:
            span = (self._tokens[first].start, self._tokens[self._index - 1].end + 1)
            node.meta["span"] = span  # the outermost says all: a unary plus makes no node of its own
        return node

    def _window(self, node: Any) -> Any:
        """Read the brackets that follow, if any: they belong to the node."""
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

    # -------------------------------------------------------------------------------------------- relations

    def _parse_table_parts(self, *args: Any, **kwargs: Any) -> Any:
        first = self._index
        parts = self._span(super()._parse_table_parts(*args, **kwargs), first)
        return parts if kwargs.get("fast") else self._window(parts)

    def _parse_table_alias(self, *args: Any, **kwargs: Any) -> Any:
        return self._window(super()._parse_table_alias(*args, **kwargs))

    def _parse_subquery(self, this: Any, parse_alias: bool = True) -> Any:
        behind = self._window(exp.Null()) if this is not None and parse_alias else None
        found = super()._parse_subquery(this, parse_alias=parse_alias)
        if behind is not None and found is not None:
            found.meta.update(behind.meta)
        return found

    def _parse_table(self, *args: Any, **kwargs: Any) -> Any:
        first = self._index
        return self._span(super()._parse_table(*args, **kwargs), first)

    def _parse_join(self, *args: Any, **kwargs: Any) -> Any:
        first = self._index
        return self._span(super()._parse_join(*args, **kwargs), first)

    # ------------------------------------------------------------------------------------------ expressions

    def _parse_disjunction(self) -> Any:
        first = self._index
        return self._span(super()._parse_disjunction(), first)

    def _parse_conjunction(self) -> Any:
        first = self._index
        return self._span(super()._parse_conjunction(), first)

    def _parse_equality(self, *args: Any, **kwargs: Any) -> Any:
        first = self._index
        return self._span(super()._parse_equality(*args, **kwargs), first)

    def _parse_comparison(self, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs:  # goes on with what was read before
            return super()._parse_comparison(*args, **kwargs)
        first = self._index
        return self._span(super()._parse_comparison(), first)

    def _parse_range(self, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs:
            return super()._parse_range(*args, **kwargs)
        first = self._index
        return self._span(super()._parse_range(), first)

    def _parse_bitwise(self) -> Any:
        first = self._index
        return self._span(super()._parse_bitwise(), first)

    def _parse_unary(self) -> Any:
        first = self._index
        return self._span(super()._parse_unary(), first)

    def _parse_lambda(self, alias: bool = False) -> Any:
        first = self._index
        return self._span(super()._parse_lambda(alias=alias), first)


# ---------------------------------------------------------------------------------------------------- streams


@dataclass(frozen=True, slots=True)
class StreamOperator:
    """`Istream(...)` around a query or a select list: which it is, and the tokens that say so."""

    kind: str
    tokens: frozenset[int]
    place: int


def find_stream_operator(tokens: Sequence[Token]) -> tuple[StreamOperator | None, list[Token]]:
    """The operator around the whole of a query, if there is one, and those that stand elsewhere.

    It may be written around the query, `Istream(select a from s)`, or, as in the CQL of the literature, around the
    select list: `select Istream(a) from s`.
    """
    calls = [
        at
        for at, token in enumerate(tokens[:-1])
        if token.text.lower() in STREAM_OPERATORS
        and token.token_type is not TokenType.IDENTIFIER
        and token.token_type is not TokenType.STRING
        and tokens[at + 1].token_type is TokenType.L_PAREN
    ]
    if not calls:
        return None, []
    first = calls[0]
    close, last = _closing_parenthesis(tokens, first + 1), len(tokens) - 1
    while tokens[last].token_type is TokenType.SEMICOLON:
        last -= 1
    before = [each.token_type for each in tokens[:first]]
    found: StreamOperator | None = None
    if close == last and not before:
        found = StreamOperator(tokens[first].text.lower(), frozenset({first}), tokens[first].start)
    elif before in ([TokenType.SELECT], [TokenType.SELECT, TokenType.DISTINCT]) and close is not None:
        follows = tokens[close + 1].token_type if close < last else None
        if follows in (TokenType.FROM, None) and not _has_set_operation(tokens):
            said = frozenset({first, first + 1, close})
            found = StreamOperator(tokens[first].text.lower(), said, tokens[first].start)
    return found, [tokens[at] for at in calls if found is None or at != first]


def _closing_parenthesis(tokens: Sequence[Token], opening: int) -> int | None:
    depth = 0
    for at in range(opening, len(tokens)):
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(tokens[at].token_type, 0)
        if depth == 0:
            return at
    return None


def _has_set_operation(tokens: Sequence[Token]) -> bool:
    """Whether a set operation stands outside of all parentheses."""
    depth = 0
    for token in tokens:
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if depth == 0 and token.token_type in (TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT):
            return True
    return False
