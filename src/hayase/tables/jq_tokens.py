"""The tokenizer of jq programs, which follows libjq's."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hayase.core.data_classes import dataclass

__all__ = ["Token", "tokens"]

_CODE = re.compile(
    r"""(?P<space>[ \r\n\t]+|\#(?:\\\\|\\\r?\n|[^\n])*)
      | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | (?P<field>\.[a-zA-Z_][a-zA-Z_0-9]*)
      | (?P<binding>\$(?:[a-zA-Z_][a-zA-Z_0-9]*::)*[a-zA-Z_][a-zA-Z_0-9]*)
      | (?P<name>(?:[a-zA-Z_][a-zA-Z_0-9]*::)*[a-zA-Z_][a-zA-Z_0-9]*)
      | (?P<format>@[a-zA-Z0-9_]+)
      | (?P<sign>\?//|//=|!=|==|//|\|=|\+=|-=|\*=|/=|%=|<=|>=|\.\.|[.?=;,:|+\-*/%$<>\[\]{}()"])""",
    re.VERBOSE,
)
_IN_TEXT = re.compile(
    r'(?P<interpolation>\\\()|(?P<end>")|(?P<escape>\\(?:u[a-zA-Z0-9]{0,4}|[^u(]))|(?P<plain>[^\\"]+)'
)
_CLOSING = {"(": ")", "[": "]", "{": "}", "\\(": ")"}


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a program: its kind, its text and the index at which it begins.

    Kinds: name, field (`.a`), binding (`$a`), number, format (`@csv`), sign; and for texts open, plain, escape,
    interpolation (`\\(`), interpolated (its closing `)`) and close. Characters that libjq rejects too are unknown.
    """

    kind: str
    text: str
    start: int


def tokens(program: str) -> tuple[Token, ...]:
    """Split a program into tokens as libjq does, without white space and comments.

    >>> [token.text for token in tokens('.a == "x" # equal')]
    ['.a', '==', '"', 'x', '"']
    """
    return tuple(_tokens(program))


def _tokens(program: str) -> Iterator[Token]:
    open_ones: list[str] = []
    at = 0
    while at < len(program):
        start = at
        in_text = bool(open_ones) and open_ones[-1] == '"'
        match = (_IN_TEXT if in_text else _CODE).match(program, at)
        if match is None:
            yield Token("unknown", program[at], at)
            at += 1
            continue
        at = match.end()
        kind, text = match.lastgroup or "", match.group()
        if kind == "space":
            continue
        if in_text:
            if kind == "end":
                open_ones.pop()
                kind = "close"
            elif kind == "interpolation":
                open_ones.append(text)
        elif kind == "sign" and text == '"':
            open_ones.append(text)
            kind = "open"
        elif text in _CLOSING:
            open_ones.append(text)
        elif open_ones and text == _CLOSING[open_ones[-1]]:
            kind = "interpolated" if open_ones.pop() == "\\(" else kind
        yield Token(kind, text, start)
