"""Set operations on bare names, as CQL has them: `a union all b`, `a [Rows 5] except b [Rows 5]`, `Istream(a [Now])`.

A name that stands where a query must stand means `select * from name`: beside UNION, EXCEPT or INTERSECT, alone with a window,
or alone inside of Istream, Dstream or Rstream.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Token, TokenType

__all__ = ["find_bare_names", "with_selects"]

_SET_OPERATIONS = (TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT)
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_IN_LIST = (TokenType.COMMA, TokenType.L_PAREN)
_OPERATORS = ("istream", "dstream", "rstream")


def find_bare_names(tokens: Sequence[Token]) -> list[int]:
    """Return the places of the tokens that are names in place of queries.

    >>> from sqlglot import tokenize
    >>> find_bare_names(tokenize("a [Rows 5] except select x from b union all c", dialect="duckdb"))
    [0, 12]
    """
    return [at for at, token in enumerate(tokens) if token.token_type in _NAMES and _is_query(tokens, at)]


def _is_query(tokens: Sequence[Token], at: int) -> bool:
    after = _after_window(tokens, at + 1)
    follows = tokens[after].token_type if after < len(tokens) else None
    before = at - 1
    if [token.text.lower() for token in tokens[at : at + 2]] == ["by", "name"]:
        return False
    if before > 0 and [token.text.lower() for token in tokens[before - 1 : at]] == ["by", "name"]:
        before -= 2
    if before >= 0 and tokens[before].token_type in (TokenType.ALL, TokenType.DISTINCT):
        before -= 1
    if before >= 0 and tokens[before].token_type in _SET_OPERATIONS:
        return follows is not TokenType.DOT
    opens = at == 0 or tokens[at - 1].token_type is TokenType.L_PAREN
    if not opens or follows in _SET_OPERATIONS:
        return opens
    has_window = after > at + 1
    if at == 0:
        return has_window and follows in (None, TokenType.SEMICOLON)
    if at < 2 or tokens[at - 2].text.lower() not in _OPERATORS or follows is not TokenType.R_PAREN:
        return False
    around = tokens[at - 3].token_type if at > 2 else None
    return around in (None, TokenType.FROM, TokenType.JOIN) or (has_window and around in _IN_LIST)


def _after_window(tokens: Sequence[Token], at: int) -> int:
    """Return the place after a window in brackets that begins at a place, or that place."""
    if at >= len(tokens) or tokens[at].token_type is not TokenType.L_BRACKET:
        return at
    while at < len(tokens) and tokens[at].token_type is not TokenType.R_BRACKET:
        at += 1
    return at + 1


def with_selects(tokens: Sequence[Token], places: Sequence[int]) -> list[Token]:
    """Return the tokens with `select * from`, of no width, before each of these names."""
    kept: list[Token] = []
    for at, token in enumerate(tokens):
        if at in places:
            for kind, text in ((TokenType.SELECT, "select"), (TokenType.STAR, "*"), (TokenType.FROM, "from")):
                kept.append(Token(kind, text, token.line, token.col, token.start, token.start - 1, []))
        kept.append(token)
    return kept
