"""The tokens of a jq program, and what is refused in one because it reaches outside or gives another answer next time.

A batch that runs again must give the same, on any machine, so a program sees its event and nothing else: no
environment, no files, no further inputs, no clock, no local time zone, no output but its results. What is refused is
found among the tokens, as libjq reads them: `.env`, `{env: 1}` and `"env"` are names of fields and texts, `"\\(env)"`
is a call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hayase.core.errors import Mistake

__all__ = ["Token", "refusals", "tokens"]

LONGEST = 10_000
"""Characters in a program; a rule is a line or two."""
DEEPEST = 100
"""Brackets and texts within each other."""

_REFUSED = {
    "env": "it reads the environment of the process",
    "$ENV": "it reads the environment of the process",
    "input": "it reads further events",
    "inputs": "it reads further events",
    "input_filename": "it depends on how events are read",
    "input_line_number": "it depends on how events are read",
    "debug": "it writes outside of the result",
    "stderr": "it writes outside of the result",
    "halt": "it ends the process",
    "halt_error": "it ends the process",
    "import": "it reads files",
    "include": "it reads files",
    "module": "it has a meaning in files only",
    "modulemeta": "it reads files",
    "get_search_list": "it depends on the machine",
    "get_jq_origin": "it depends on the machine",
    "get_prog_origin": "it depends on the machine",
    "now": "it reads the clock, and a batch that runs again must give the same",
    "localtime": "it depends on the time zone of the machine; gmtime does not",
    "strflocaltime": "it depends on the time zone of the machine; strftime does not",
}
_INSTEAD = {"now": "use the time of the event", "localtime": "use gmtime", "strflocaltime": "use strftime"}

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
    interpolation (`\\(`), interpolated (the `)` to it) and close. What libjq would not read either is unknown.
    """

    kind: str
    text: str
    start: int


def tokens(program: str) -> tuple[Token, ...]:
    """The program cut as libjq cuts it, without white space and comments.

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


def refusals(program: str) -> list[Mistake]:
    """What a rule may not use, each with its line and column in the program.

    >>> refusals('{env: .input, at: now}')[0].message
    'jq\\'s "now" is refused here: it reads the clock, and a batch that runs again must give the same'
    """
    if len(program) > LONGEST:
        return [Mistake(f"the jq program is longer than {LONGEST:,} characters", "is it a rule?", None, 1, 1)]
    for index, character in enumerate(program):
        if character == "\0" or "\ud800" <= character <= "\udfff":
            return [_at(program, index, f"the character U+{ord(character):04X} cannot stand in jq", "remove it")]
    found = []
    open_ones: list[str] = []
    previous = ""
    for token in tokens(program):
        if token.kind in ("open", "interpolation") or (token.kind == "sign" and token.text in _CLOSING):
            open_ones.append(token.text)
            if len(open_ones) > DEEPEST:
                return [_at(program, token.start, f"jq nested more than {DEEPEST} deep", "write it flatter")]
        elif open_ones and (
            token.kind in ("close", "interpolated") or (token.kind == "sign" and token.text in (")", "]", "}"))
        ):
            open_ones.pop()
        key = token.kind == "name" and bool(open_ones) and open_ones[-1] == "{" and previous in ("{", ",")
        if token.text in _REFUSED and token.kind in ("name", "binding") and not key:
            message = f'jq\'s "{token.text}" is refused here: {_REFUSED[token.text]}'
            hint = _INSTEAD.get(token.text, "a rule sees its event and nothing else")
            found.append(_at(program, token.start, message, hint))
        previous = token.text if token.kind == "sign" else ""
    return found


def _at(program: str, index: int, message: str, hint: str) -> Mistake:
    line = program.count("\n", 0, index) + 1
    return Mistake(message, hint, None, line, index - program.rfind("\n", 0, index))
