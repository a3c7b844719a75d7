"""CQL's dialect, on top of DuckDB's: the parser notes where everything stands, and `[windows]` are set apart.

The nodes of a tree carry in `meta["span"]` the first and the last offset of the text they were read from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.parsers.duckdb import DuckDBParser

__all__ = ["trees", "without_windows"]


def trees(tokens: Sequence[Token], text: str) -> list[exp.Expr]:
    """The statements of a text, with spans. Raises what sqlglot raises."""
    return [each for each in _Parser(dialect=DuckDB()).parse(list(tokens), text) if each is not None]


class _Parser(DuckDBParser):
    """DuckDB's parser, noting of each expression, table and join where it stands."""

    def _span(self, node: Any, first: int) -> Any:
        if isinstance(node, exp.Expr) and self._index > first:
            span = (self._tokens[first].start, self._tokens[self._index - 1].end + 1)
            node.meta.setdefault("span", span)
        return node

    def _parse_disjunction(self) -> Any:
        first = self._index
        return self._span(super()._parse_disjunction(), first)

    def _parse_lambda(self, alias: bool = False) -> Any:
        first = self._index
        return self._span(super()._parse_lambda(alias=alias), first)

    def _parse_table(self, *args: Any, **kwargs: Any) -> Any:
        first = self._index
        return self._span(super()._parse_table(*args, **kwargs), first)

    def _parse_join(self, *args: Any, **kwargs: Any) -> Any:
        first = self._index
        return self._span(super()._parse_join(*args, **kwargs), first)


_NEXT_CLAUSE = {
    TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ORDER_BY, TokenType.LIMIT, TokenType.ON,
    TokenType.SELECT, TokenType.QUALIFY, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT,
}  # fmt: skip


def without_windows(tokens: Sequence[Token]) -> tuple[list[Token], list[int]]:
    """The tokens without `[...]` behind streams, and where those began.

    A bracket belongs to a stream when it stands in a FROM clause, which `extract(year from x[1])` and
    `a is distinct from b[1]` are not: a clause follows a SELECT of its own level, or opens the text.
    """
    kept: list[Token] = []
    found: list[int] = []
    states = ["select" if tokens and tokens[0].token_type is TokenType.FROM else ""]
    depth = 0  # of brackets, inside a window
    for token in tokens:
        kind, before = token.token_type, kept[-1].token_type if kept else None
        if depth:
            depth += {TokenType.L_BRACKET: 1, TokenType.R_BRACKET: -1}.get(kind, 0)
            continue
        if kind is TokenType.L_BRACKET and states[-1] == "from":
            found.append(token.start)
            depth = 1
            continue
        if kind is TokenType.L_PAREN:
            nested = states[-1] == "from" and before in (TokenType.FROM, TokenType.COMMA, TokenType.JOIN)
            states.append("from" if nested else "")
        elif kind is TokenType.R_PAREN and len(states) > 1:
            states.pop()
        elif kind is TokenType.FROM and states[-1] == "select" and before is not TokenType.DISTINCT:
            states[-1] = "from"
        elif kind in _NEXT_CLAUSE:
            states[-1] = "select" if kind is TokenType.SELECT else ""
        kept.append(token)
    return kept, found
