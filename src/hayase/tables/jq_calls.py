"""Distinguishes calls from object keys among the names in a jq program.

In jq's grammar a bare name is a call, except as the key of an object or of an object pattern: `{now: 1}` or `{now}`. A key follows
the `{` of an object or a comma between its pairs. A comma inside a value is in brackets of its own, or between `if` and `end`. So
the program is read as a tree of `{`, `(`, `[`, texts and `if`, and a name is a key only if it begins a pair and `:`, `,` or `}`
follows. Any other name is a call, also in a program that libjq would reject.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hayase.core.data_classes import dataclass
from hayase.tables.jq_tokens import Token

__all__ = ["calls"]

_CLOSED = {")": "(", "]": "[", "}": "{"}


@dataclass(slots=True)
class _Region:
    """An open bracket, text, interpolation or `if`; in an object, whether a pair begins here."""

    opened: str
    pair: bool = False


def calls(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the calls and the variables that are read, in order. Names that definitions introduce are among them.

    >>> from hayase.tables.jq_tokens import tokens
    >>> [token.text for token in calls(tokens("{a: f, b, c: if d then 1, e else {g: $h} end, i: .j}"))]
    ['f', 'if', 'd', 'then', 'e', 'else', '$h', 'end']
    """
    regions = [_Region("")]
    for at, token in enumerate(tokens):
        region = regions[-1]
        begins, region.pair = region.pair, region.opened == "{" and token.kind == "sign" and token.text == ","
        if token.kind == "binding":
            yield token
        elif token.kind == "name":
            follows = tokens[at + 1] if at + 1 < len(tokens) else Token("end", "", token.start)
            if begins and follows.kind == "sign" and follows.text in (":", ",", "}"):
                continue
            if at and tokens[at - 1].kind == "sign" and tokens[at - 1].text == "$":
                token = replace(token, kind="binding", text="$" + token.text)
            yield token
            if token.text == "if":
                regions.append(_Region("if"))
            elif token.text == "end" and region.opened == "if":
                regions.pop()
        else:
            _bracket(regions, token)


def _bracket(regions: list[_Region], token: Token) -> None:
    """Open or close the region that a token opens or closes. An `if` ends with the bracket that contains it."""
    if token.kind in ("open", "interpolation") or (token.kind == "sign" and token.text in ("(", "[", "{")):
        regions.append(_Region(token.text, token.text == "{"))
        return
    opened = {"close": '"', "interpolated": "\\("}.get(token.kind)
    if token.kind == "sign":
        opened = _CLOSED.get(token.text)
    if opened is None or all(region.opened != opened for region in regions):
        return
    while regions.pop().opened != opened:
        pass
