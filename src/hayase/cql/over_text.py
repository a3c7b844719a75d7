"""The text of a window function: its arguments, filter and frame. `syntax_reader` adds the partition and the order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import Token, TokenType, exp, tokenize

from hayase.cql.syntax import OverText, Part

__all__ = ["named_window", "outermost", "read_frame", "read_over"]

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_UNITS = ("rows", "range", "groups")


def outermost(node: exp.Expr) -> Iterator[exp.Window]:
    """Yield the calls of window functions in an expression that are in no other one."""
    for window in node.find_all(exp.Window):
        if "span" in window.meta and (window is node or not window.find_ancestor(exp.Window)):
            yield window


def read_over(part: Part) -> OverText | None:
    """Read a call, without its partition and order. Return None if it has another form.

    >>> text = read_over(Part("sum(distinct x + 1) filter (where y) over (order by t rows 3 preceding)", 1, 1))
    >>> text.function, [each.text for each in text.arguments], text.condition.text, text.frame, text.distinct
    ('sum', ['x + 1'], 'y', 'rows 3 preceding', True)
    """
    tokens = tokenize(part.text, dialect="duckdb")
    words = [token.text.lower() for token in tokens]
    groups = _groups(tokens)
    if words[-2:-1] == ["over"]:  # the name of a window
        groups.append((len(tokens) - 1, len(tokens) - 1))
    if not groups or groups[0][0] != 1 or groups[-1][1] != len(tokens) - 1 or words[groups[-1][0] - 1] != "over":
        return None
    inside = words[groups[0][0] + 1 : groups[0][1]]
    pieces = _split(tokens, groups[0][0] + 1, groups[0][1])
    distinct = inside[:1] == ["distinct"]
    ignores_nulls = False
    arguments: list[Part] = []
    for first, last in pieces:
        first += int(distinct and first == groups[0][0] + 1)
        if words[last - 1 : last + 1] in (["ignore", "nulls"], ["respect", "nulls"]):
            ignores_nulls = words[last - 1] == "ignore"
            last -= 2
        if any(words[at : at + 1] == ["order by"] for at in range(first, last + 1)):
            return None
        arguments.append(part.piece(tokens[first].start, tokens[last].end + 1))
    condition = None
    for opening, closing in groups[1:-1]:
        if words[opening - 1] != "filter" or words[opening + 1] != "where":
            return None
        condition = part.piece(tokens[opening + 2].start, tokens[closing - 1].end + 1)
    between = words[groups[-2][1] + 1 : groups[-1][0] - 1]
    if between in (["ignore", "nulls"], ["respect", "nulls"]):
        ignores_nulls = between[0] == "ignore"
    elif between:
        return None
    return OverText(
        0, len(part.text), part, words[0], tuple(arguments), (), (), _frame(part, tokens, groups[-1]), condition,
        distinct, ignores_nulls,
    )  # fmt: skip


def named_window(part: Part) -> bool:
    """Return whether a call names its window, `over w`, instead of writing it in parentheses."""
    words = [token.text.lower() for token in tokenize(part.text, dialect="duckdb")]
    return words[-2:-1] == ["over"]


def read_frame(part: Part) -> str:
    """Read the frame at the end of a window in parentheses; "" if there is none.

    >>> read_frame(Part("(partition by k order by t rows 3 preceding)", 1, 1))
    'rows 3 preceding'
    """
    tokens = tokenize(part.text, dialect="duckdb")
    return _frame(part, tokens, (0, len(tokens) - 1))


def _groups(tokens: Sequence[Token]) -> list[tuple[int, int]]:
    """Return the first and last token of every outermost pair of parentheses."""
    groups: list[tuple[int, int]] = []
    depth = opened = 0
    for at, token in enumerate(tokens):
        if token.token_type in _OPENING:
            opened = at if depth == 0 else opened
            depth += 1
        elif token.token_type in _CLOSING:
            depth -= 1
            if depth == 0:
                groups.append((opened, at))
    return groups


def _split(tokens: Sequence[Token], first: int, end: int) -> list[tuple[int, int]]:
    """Return the first and last token of every argument between two tokens."""
    pieces: list[tuple[int, int]] = []
    depth, begin = 0, first
    for at in range(first, end + 1):
        kind = tokens[at].token_type
        if at == end or (depth == 0 and kind is TokenType.COMMA):
            pieces += [(begin, at - 1)] if begin < at else []
            begin = at + 1
        depth += (kind in _OPENING) - (kind in _CLOSING)
    return pieces


def _frame(part: Part, tokens: Sequence[Token], group: tuple[int, int]) -> str:
    """Return the frame at the end of a window; "" if there is none."""
    depth = 0
    for at in range(group[1] - 1, group[0], -1):
        kind = tokens[at].token_type
        depth += (kind in _CLOSING) - (kind in _OPENING)
        if depth == 0 and tokens[at].text.lower() in _UNITS and at < group[1] - 1:
            follows = tokens[at + 1].text.lower()
            if follows in ("between", "unbounded", "current", "current row", "interval") or follows[:1].isdigit():
                return part.text[tokens[at].start : tokens[group[1] - 1].end + 1]
    return ""
