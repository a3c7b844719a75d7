"""Windows with bounds written as table functions, as in Flink SQL and RisingWave, which are read like windows in brackets.

TUMBLE(TABLE s, DESCRIPTOR(time), INTERVAL '10' MINUTES)    HOP(TABLE s, DESCRIPTOR(time), INTERVAL '1' MINUTE, INTERVAL '1' HOUR)
TABLE(CUMULATE(TABLE s, DESCRIPTOR(time), INTERVAL '10 minutes', INTERVAL '1 hour'))
SESSION(TABLE s PARTITION BY k, DESCRIPTOR(time), INTERVAL '30' MINUTES)    TUMBLE(s, time, INTERVAL '10 minutes')

The step comes before the length, and an offset may follow; arguments may be named: `SIZE => INTERVAL '10' MINUTES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import Token, TokenType, tokenize

from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError
from hayase.cql.syntax import Part, WindowText
from hayase.cql.windows_text import read_window

__all__ = ["WindowCall", "find_window_calls", "read_window_call"]

_DURATIONS = {
    "tumble": ("size", "offset"),
    "hop": ("slide", "size", "offset"),
    "cumulate": ("step", "size", "offset"),
    "session": ("gap",),
}
"""The arguments after the stream and its time column, in order."""
_WRITTEN = {
    "tumble": "TUMBLE(TABLE orders, DESCRIPTOR(time), INTERVAL '10' MINUTES)",
    "hop": "HOP(TABLE orders, DESCRIPTOR(time), INTERVAL '1' MINUTE, INTERVAL '10' MINUTES): the step, then the length",
    "cumulate": "CUMULATE(TABLE orders, DESCRIPTOR(time), INTERVAL '10' MINUTES, INTERVAL '1' HOUR): the step, then the length",
    "session": "SESSION(TABLE orders PARTITION BY user, DESCRIPTOR(time), INTERVAL '30' MINUTES)",
}
_BRACKETS = {
    "tumble": "Tumble {size}",
    "hop": "Hop {size} Every {slide}",
    "cumulate": "Cumulate {size} By {step}",
    "session": "Session {gap}",
}
_BEFORE = (TokenType.FROM, TokenType.JOIN, TokenType.COMMA, TokenType.L_PAREN)


@dataclass(frozen=True, slots=True)
class WindowCall:
    """The start and end of a call in the text, and of the stream's name in it."""

    start: int
    end: int
    name_start: int
    name_end: int

    @property
    def around_name(self) -> list[tuple[int, int]]:
        """The spans of the call before and after the name."""
        return [(self.start, self.name_start), (self.name_end, self.end)]


def find_window_calls(tokens: Sequence[Token]) -> tuple[list[Token], dict[int, WindowCall]]:
    """Return the tokens with the name of the stream in place of each call, and the calls by the start of that name."""
    kept: list[Token] = []
    calls: dict[int, WindowCall] = {}
    at = 0
    while at < len(tokens):
        opening = at + 2 if _is(tokens, at, "table") and _is(tokens, at + 1, "(") else at
        name = _stream_name(tokens, opening) if not kept or kept[-1].token_type in _BEFORE else None
        end = _closing(tokens, opening + 1) if name is not None else None
        if opening > at and end is not None:
            end = end + 1 if _is(tokens, end + 1, ")") else None
        if name is None or end is None:
            kept.append(tokens[at])
            at += 1
            continue
        calls[tokens[name].start] = WindowCall(
            tokens[at].start, tokens[end].end + 1, tokens[name].start, tokens[name].end + 1
        )
        kept.append(tokens[name])
        at = end + 1
    return kept, calls


def _stream_name(tokens: Sequence[Token], at: int) -> int | None:
    """Return the position of the stream's name in the call that begins at a token; None if there is no call."""
    if not (at < len(tokens) and tokens[at].text.lower() in _DURATIONS and _is(tokens, at + 1, "(")):
        return None
    name = at + 2
    if _is(tokens, name, "data"):
        name += 2 if _is(tokens, name + 1, "=>") else 0
    name += 1 if _is(tokens, name, "table") else 0
    follows = tokens[name + 1].token_type if name + 1 < len(tokens) else None
    return name if follows in (TokenType.COMMA, TokenType.PARTITION_BY, TokenType.R_PAREN) else None


def _is(tokens: Sequence[Token], at: int, text: str) -> bool:
    return at < len(tokens) and tokens[at].text.lower() == text


def _closing(tokens: Sequence[Token], opening: int) -> int | None:
    depth = 0
    for at in range(opening, len(tokens)):
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(tokens[at].token_type, 0)
        if depth == 0:
            return at
    return None


def read_window_call(call: Part) -> WindowText:
    """Read the window of a call. Raise DeclarationError if it is wrong.

    >>> read_window_call(Part("TUMBLE(TABLE s, DESCRIPTOR(time), INTERVAL '10' MINUTES)", 1, 15)).length
    600000000
    """
    tokens = tokenize(call.text, dialect="duckdb")
    if _is(tokens, 0, "table"):
        tokens = tokens[2:-1]
    kind = tokens[0].text.lower()
    arguments = _arguments(tokens[2:-1])
    names = _DURATIONS[kind]
    given: dict[str, Sequence[Token]] = {}
    for place, (name, argument) in enumerate(arguments):
        positional = ("data", "timecol", *names)
        key = name or (positional[place] if place < len(positional) else "")
        if key not in positional or key in given:
            raise _mistake(call, f"{kind.upper()} has no argument {name or place + 1}", kind)
        given[key] = argument
    missing = next((name for name in ("timecol", *names) if name not in given and name != "offset"), None)
    if missing is not None:
        raise _mistake(call, f"{kind.upper()} lacks its argument {missing}", kind)
    partition, columns = _partition(call, given["data"])
    durations = {name: _duration(call, given[name], kind) for name in names if name in given}
    offset = f" Offset {durations['offset']}" if "offset" in durations else ""
    try:
        window = read_window(
            Part(f"[{partition}{_BRACKETS[kind].format(**durations)}{offset}]", call.line, call.column)
        )
    except DeclarationError as error:
        placed = [replace(mistake, line=call.line, column=call.column) for mistake in error.mistakes]
        raise DeclarationError(placed) from None
    return replace(window, part=call, partition=columns, time=_time(call, given["timecol"], kind))


def _arguments(tokens: Sequence[Token]) -> list[tuple[str | None, Sequence[Token]]]:
    """Return the arguments of a call, each with its name if it is named."""
    arguments: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if token.token_type is TokenType.COMMA and depth == 0:
            arguments.append([])
        else:
            arguments[-1].append(token)
    return [
        (argument[0].text.lower(), argument[2:]) if _is(argument, 1, "=>") else (None, argument)
        for argument in arguments
    ]


def _partition(call: Part, tokens: Sequence[Token]) -> tuple[str, tuple[Part, ...]]:
    """Return PARTITION BY of a stream as it is written in brackets, and its columns."""
    at = next((at for at, token in enumerate(tokens) if token.token_type is TokenType.PARTITION_BY), len(tokens))
    columns = [token for token in tokens[at + 1 :] if token.text not in ("(", ")", ",")]
    parts = tuple(call.piece(token.start, token.end + 1) for token in columns)
    return (f"Partition By {', '.join(part.text for part in parts)} " if parts else ""), parts


def _time(call: Part, tokens: Sequence[Token], kind: str) -> Part:
    inner = tokens[2:-1] if _is(tokens, 0, "descriptor") else tokens
    if len(inner) != 1:
        raise _mistake(call, "the time column of a window is one name", kind)
    return call.piece(inner[0].start, inner[0].end + 1)


def _duration(call: Part, tokens: Sequence[Token], kind: str) -> str:
    """Return an interval as a duration is written in brackets."""
    words = [call.text[token.start : token.end + 1].strip("'") for token in tokens]
    if len(words) < 2 or words[0].lower() != "interval":
        written = call.text[tokens[0].start : tokens[-1].end + 1] if tokens else ""
        raise _mistake(call, f'"{written}" is not an interval', kind)
    return " ".join(words[1:])


def _mistake(call: Part, message: str, kind: str) -> DeclarationError:
    return DeclarationError([call.mistake(message, f"write it like {_WRITTEN[kind]}")])
