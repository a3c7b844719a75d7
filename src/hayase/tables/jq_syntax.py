"""The shapes of jq that Hayase evaluates itself, and the parser that recognises them.

Paths (`.a.b`, `.["x y"]`, `.a[0]`, `.time[:10]`), literals, comparisons, `and`, `or`, `not`, `//`, `+ - * /`, `if`,
pipes, objects, arrays, texts with interpolation, `tostring`. Each of them has exactly one result or fails. `parsed`
gives None for anything else, and libjq runs it; it never takes what libjq would refuse or read differently, so what
is in doubt is declined: what consists of constants only, which libjq may fold, and numbers that are no double.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from hayase.tables.jq_refusals import refusals
from hayase.tables.jq_tokens import Token, tokens

__all__ = [
    "Alternative",
    "Arithmetic",
    "Array",
    "Both",
    "Choice",
    "Comparison",
    "Either",
    "Field",
    "Index",
    "Literal",
    "Negation",
    "Node",
    "Not",
    "Object",
    "Pipe",
    "Root",
    "Slice",
    "Text",
    "ToString",
    "parsed",
]


@dataclass(frozen=True, slots=True)
class Root:
    """`.`"""


@dataclass(frozen=True, slots=True)
class Literal:
    """null, true, false, a number or a text without interpolation."""

    value: bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Field:
    """`.a`"""

    of: Node
    name: str


@dataclass(frozen=True, slots=True)
class Index:
    """`.[0]`"""

    of: Node
    position: int


@dataclass(frozen=True, slots=True)
class Slice:
    """`.[1:3]`"""

    of: Node
    start: int | None
    end: int | None


@dataclass(frozen=True, slots=True)
class Negation:
    """`-.a`"""

    of: Node


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`.a + .b`, and the same with - * /"""

    sign: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Comparison:
    """`.a == .b`, and the same with != < <= > >="""

    sign: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Both:
    """`.a and .b`"""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Either:
    """`.a or .b`"""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Alternative:
    """`.a // .b`"""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Pipe:
    """`.a | .b`"""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Choice:
    """`if .a then .b else .c end`"""

    condition: Node
    then: Node
    otherwise: Node


@dataclass(frozen=True, slots=True)
class Object:
    """`{a: .b, (.c): .d}`"""

    pairs: tuple[tuple[Node, Node], ...]


@dataclass(frozen=True, slots=True)
class Array:
    """`[.a, .b]`"""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """A text with `\\(.a)` in it."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """`not`, of what comes in."""


@dataclass(frozen=True, slots=True)
class ToString:
    """`tostring`, of what comes in."""


Node: TypeAlias = (
    Root
    | Literal
    | Field
    | Index
    | Slice
    | Negation
    | Arithmetic
    | Comparison
    | Both
    | Either
    | Alternative
    | Pipe
    | Choice
    | Object
    | Array
    | Text
    | Not
    | ToString
)

_NAMES: dict[str, Node] = {
    "null": Literal(None),
    "true": Literal(True),
    "false": Literal(False),
    "not": Not(),
    "tostring": ToString(),
}
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_FARTHEST = 2**31 - 1
_MOST_DIGITS = 300


def parsed(program: str) -> Node | None:
    """The tree of a program of the known shapes, None for any other.

    >>> parsed('.time[:10]')
    Slice(of=Field(of=Root(), name='time'), start=None, end=10)
    >>> parsed('.items[]') is None
    True
    """
    if refusals(program):
        return None
    reading = _Parser(tokens(program))
    try:
        node = reading.query()
        reading.end()
    except _Declined:
        return None
    return node


class _Declined(Exception):
    """The program is for libjq."""


class _Parser:
    """Recursive descent over the tokens, a method per level of precedence, the loosest first."""

    def __init__(self, found: tuple[Token, ...]):
        self.found, self.at = found, 0

    def sees(self, *texts: str) -> bool:
        if self.at == len(self.found):
            return False
        token = self.found[self.at]
        return token.kind in ("sign", "name") and token.text in texts

    def takes(self, *texts: str) -> bool:
        if self.sees(*texts):
            self.at += 1
            return True
        return False

    def needs(self, text: str) -> None:
        if not self.takes(text):
            raise _Declined

    def kind(self) -> str:
        return self.found[self.at].kind if self.at < len(self.found) else "end"

    def next(self) -> Token:
        if self.at == len(self.found):
            raise _Declined
        self.at += 1
        return self.found[self.at - 1]

    def end(self) -> None:
        if self.at < len(self.found):
            raise _Declined

    def query(self) -> Node:
        left = self.alternative()
        return Pipe(left, self.query()) if self.takes("|") else left

    def alternative(self) -> Node:
        left = self.either()
        return Alternative(left, self.alternative()) if self.takes("//") else left

    def either(self) -> Node:
        left = self.both()
        while self.takes("or"):
            left = Either(left, self.both())
        return left

    def both(self) -> Node:
        left = self.comparison()
        while self.takes("and"):
            left = Both(left, self.comparison())
        return left

    def comparison(self) -> Node:
        left = self.sum()
        if not self.sees(*_COMPARISONS):
            return left
        sign = self.next().text
        return Comparison(sign, *_folded_by_nobody(left, self.sum()))

    def sum(self) -> Node:
        left = self.product()
        while self.sees("+", "-"):
            sign = self.next().text
            left = Arithmetic(sign, *_folded_by_nobody(left, self.product()))
        return left

    def product(self) -> Node:
        left = self.term()
        while self.sees("*", "/"):
            sign = self.next().text
            left = Arithmetic(sign, *_folded_by_nobody(left, self.term()))
        return left

    def term(self) -> Node:
        if self.takes("-"):
            of = self.term()
            if isinstance(of, Literal) and type(of.value) is int and of.value:
                return Literal(-of.value)
            if _constant(of):
                raise _Declined
            return Negation(of)
        return self.postfix(self.primary())

    def primary(self) -> Node:
        kind = self.kind()
        if kind == "field":
            return Field(Root(), self.next().text[1:])
        if kind == "number":
            return Literal(_number(self.next().text))
        if kind == "open":
            return self.text()
        if self.takes("."):
            if self.kind() == "open":
                return Field(Root(), self.plain_text())
            return Root()
        if self.takes("("):
            node = self.query()
            self.needs(")")
            return node
        if self.takes("["):
            return Array(self.items())
        if self.takes("{"):
            return Object(self.pairs())
        if self.takes("if"):
            return self.choice()
        if kind == "name":
            node = _NAMES.get(self.next().text, Root())
            if not isinstance(node, Root) and not self.sees("("):
                return node
        raise _Declined

    def postfix(self, node: Node) -> Node:
        while True:
            if self.kind() == "field":
                node = Field(node, self.next().text[1:])
            elif self.takes("["):
                node = self.bracket(node)
            elif self.takes("."):
                if self.kind() == "open":
                    node = Field(node, self.plain_text())
                else:
                    self.needs("[")
                    node = self.bracket(node)
            else:
                return node

    def bracket(self, node: Node) -> Node:
        if self.kind() == "open":
            name = self.plain_text()
            self.needs("]")
            return Field(node, name)
        start = None if self.sees(":") else self.position()
        if self.takes("]") and start is not None:
            return Index(node, start)
        self.needs(":")
        end = None if start is not None and self.sees("]") else self.position()
        self.needs("]")
        return Slice(node, start, end)

    def position(self) -> int:
        sign = -1 if self.takes("-") else 1
        if self.kind() != "number":
            raise _Declined
        value = _number(self.next().text)
        if type(value) is not int or value > _FARTHEST:
            raise _Declined
        return sign * value

    def text(self) -> Node:
        self.at += 1
        parts: list[Node] = []
        written = ""
        while True:
            token = self.next()
            if token.kind == "plain":
                written += token.text
            elif token.kind == "escape":
                written += self.escapes(token.text)
            elif token.kind == "interpolation":
                parts += [Literal(written), self.query()]
                written = ""
                if self.next().kind != "interpolated":
                    raise _Declined
            elif token.kind == "close":
                return Text((*parts, Literal(written))) if parts else Literal(written)
            else:
                raise _Declined

    def escapes(self, written: str) -> str:
        """Escapes that follow each other are one JSON text to libjq, so that surrogates find each other."""
        while self.kind() == "escape":
            written += self.next().text
        try:
            text = json.loads(f'"{written}"')
        except ValueError as error:
            raise _Declined from error
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise _Declined
        return str(text)

    def plain_text(self) -> str:
        node = self.text()
        if isinstance(node, Literal) and isinstance(node.value, str):
            return node.value
        raise _Declined

    def items(self) -> tuple[Node, ...]:
        if self.takes("]"):
            return ()
        items = [self.alternative()]
        while self.takes(","):
            items.append(self.alternative())
        self.needs("]")
        return tuple(items)

    def pairs(self) -> tuple[tuple[Node, Node], ...]:
        pairs: list[tuple[Node, Node]] = []
        while not self.takes("}"):
            pairs.append(self.pair())
            if not self.sees("}"):
                self.needs(",")
        return tuple(pairs)

    def pair(self) -> tuple[Node, Node]:
        if self.takes("("):
            key = self.query()
            self.needs(")")
            if _constant(key) and not (isinstance(key, Literal) and isinstance(key.value, str)):
                raise _Declined
            self.needs(":")
            return key, self.object_value()
        if self.kind() == "open":
            name = self.plain_text()
        elif self.kind() == "name" and "::" not in self.found[self.at].text:
            name = self.next().text
        else:
            raise _Declined
        return Literal(name), self.object_value() if self.takes(":") else Field(Root(), name)

    def object_value(self) -> Node:
        left = self.alternative()
        return Pipe(left, self.object_value()) if self.takes("|") else left

    def choice(self) -> Node:
        condition = self.query()
        self.needs("then")
        then = self.query()
        if self.takes("elif"):
            return Choice(condition, then, self.choice())
        otherwise: Node = Root()
        if self.takes("else"):
            otherwise = self.query()
        self.needs("end")
        return Choice(condition, then, otherwise)


def _number(text: str) -> int | float:
    if len(text) > _MOST_DIGITS:
        raise _Declined
    if text.isdigit():
        return int(text)
    number = float(text)
    if number in (float("inf"), 0.0) or Decimal(repr(number)) != Decimal(text):
        raise _Declined
    return number


def _folded_by_nobody(left: Node, right: Node) -> tuple[Node, Node]:
    if _constant(left) and _constant(right):
        raise _Declined
    return left, right


def _constant(node: Node) -> bool:
    """Whether the node cannot depend on the event; a false no costs exactness, a false yes only speed."""
    match node:
        case Literal():
            return True
        case Object(pairs):
            return all(_constant(key) and _constant(value) for key, value in pairs)
        case Array(parts) | Text(parts):
            return all(map(_constant, parts))
        case Field(of) | Index(of) | Slice(of) | Negation(of):
            return _constant(of)
        case Pipe(left):
            return _constant(left)
        case Arithmetic(_, left, right) | Comparison(_, left, right):
            return _constant(left) and _constant(right)
        case Both(left, right) | Either(left, right) | Alternative(left, right):
            return _constant(left) and _constant(right)
        case Choice(condition, then, otherwise):
            return _constant(condition) and _constant(then) and _constant(otherwise)
    return False
