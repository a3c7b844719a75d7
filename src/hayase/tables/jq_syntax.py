"""The subset of jq that Hayase evaluates in its own process, as a syntax tree, and the parser for it.

The subset: paths (`.a.b`, `.["x y"]`, `.a[0]`, `.time[:10]`), literals, comparisons, `and`, `or`, `//`, `+ - * /`, objects and
arrays. Every program of the subset has exactly one result or fails. `parsed` returns None for any other program, and libjq runs
it. It never accepts a program that libjq would reject or read differently, so it declines doubtful ones: operators whose
operands are all constants, which libjq may fold, and numbers that no double represents.
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
    "Comparison",
    "Either",
    "Field",
    "Index",
    "Literal",
    "Node",
    "Object",
    "Root",
    "Slice",
    "parsed",
]


@dataclass(frozen=True, slots=True)
class Root:
    """`.`"""


@dataclass(frozen=True, slots=True)
class Literal:
    """null, true, false, a number or a text."""

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
class Object:
    """`{a: .b, (.c): .d}`"""

    pairs: tuple[tuple[Node, Node], ...]


@dataclass(frozen=True, slots=True)
class Array:
    """`[.a, .b]`"""

    items: tuple[Node, ...]


Node: TypeAlias = (
    Root | Literal | Field | Index | Slice | Arithmetic | Comparison | Both | Either | Alternative | Object | Array
)

_NAMES = {"null": Literal(None), "true": Literal(True), "false": Literal(False)}
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_FARTHEST = 2**31 - 1
_MOST_DIGITS = 300


def parsed(program: str) -> Node | None:
    """Return the syntax tree of a program of the subset, None for any other program.

    >>> parsed('.time[:10]')
    Slice(of=Field(of=Root(), name='time'), start=None, end=10)
    >>> parsed('.items[]') is None
    True
    """
    if refusals(program):
        return None
    parser = _Parser(tokens(program))
    try:
        node = parser.alternative()
        parser.end()
    except _Declined:
        return None
    return node


class _Declined(Exception):
    """The program is not in the subset; libjq runs it."""


class _Parser:
    """A recursive descent parser, one method per level of precedence, the loosest first."""

    def __init__(self, tokens: tuple[Token, ...]):
        self.tokens, self.at = tokens, 0

    def sees(self, *texts: str) -> bool:
        if self.at == len(self.tokens):
            return False
        token = self.tokens[self.at]
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
        return self.tokens[self.at].kind if self.at < len(self.tokens) else "end"

    def next(self) -> Token:
        if self.at == len(self.tokens):
            raise _Declined
        self.at += 1
        return self.tokens[self.at - 1]

    def end(self) -> None:
        if self.at < len(self.tokens):
            raise _Declined

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
        return Comparison(sign, *_not_both_constant(left, self.sum()))

    def sum(self) -> Node:
        left = self.product()
        while self.sees("+", "-"):
            sign = self.next().text
            left = Arithmetic(sign, *_not_both_constant(left, self.product()))
        return left

    def product(self) -> Node:
        left = self.term()
        while self.sees("*", "/"):
            sign = self.next().text
            left = Arithmetic(sign, *_not_both_constant(left, self.term()))
        return left

    def term(self) -> Node:
        if self.takes("-"):
            of = self.term()
            if isinstance(of, Literal) and type(of.value) is int and of.value:
                return Literal(-of.value)
            raise _Declined
        return self.postfix(self.primary())

    def primary(self) -> Node:
        kind = self.kind()
        if kind == "field":
            return Field(Root(), self.next().text[1:])
        if kind == "number":
            return Literal(_number(self.next().text))
        if kind == "open":
            return Literal(self.text())
        if self.takes("."):
            if self.kind() == "open":
                return Field(Root(), self.text())
            return Root()
        if self.takes("("):
            node = self.alternative()
            self.needs(")")
            return node
        if self.takes("["):
            return Array(self.items())
        if self.takes("{"):
            return Object(self.pairs())
        if kind == "name":
            literal = _NAMES.get(self.next().text)
            if literal is not None and not self.sees("("):
                return literal
        raise _Declined

    def postfix(self, node: Node) -> Node:
        while True:
            if self.kind() == "field":
                node = Field(node, self.next().text[1:])
            elif self.takes("["):
                node = self.bracket(node)
            elif self.takes("."):
                if self.kind() == "open":
                    node = Field(node, self.text())
                else:
                    self.needs("[")
                    node = self.bracket(node)
            else:
                return node

    def bracket(self, node: Node) -> Node:
        if self.kind() == "open":
            name = self.text()
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

    def text(self) -> str:
        self.at += 1
        written = ""
        while True:
            token = self.next()
            if token.kind == "plain":
                written += token.text
            elif token.kind == "escape":
                written += self.escapes(token.text)
            elif token.kind == "close":
                return written
            else:
                raise _Declined

    def escapes(self, written: str) -> str:
        """Decode consecutive escapes as one JSON text, as libjq does, so that surrogate pairs are combined."""
        while self.kind() == "escape":
            written += self.next().text
        try:
            text = json.loads(f'"{written}"')
        except ValueError as error:
            raise _Declined from error
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise _Declined
        return str(text)

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
            key = self.alternative()
            self.needs(")")
            if _constant(key) and not (isinstance(key, Literal) and isinstance(key.value, str)):
                raise _Declined
            self.needs(":")
            return key, self.alternative()
        if self.kind() == "open":
            name = self.text()
        elif self.kind() == "name" and "::" not in self.tokens[self.at].text:
            name = self.next().text
        else:
            raise _Declined
        return Literal(name), self.alternative() if self.takes(":") else Field(Root(), name)


def _number(text: str) -> int | float:
    if len(text) > _MOST_DIGITS:
        raise _Declined
    if text.isdigit():
        return int(text)
    number = float(text)
    if number in (float("inf"), 0.0) or Decimal(repr(number)) != Decimal(text):
        raise _Declined
    return number


def _not_both_constant(left: Node, right: Node) -> tuple[Node, Node]:
    """Return the operands; decline the program if libjq could fold them."""
    if _constant(left) and _constant(right):
        raise _Declined
    return left, right


def _constant(node: Node) -> bool:
    """Whether the node is independent of the event. A wrong False costs exactness, a wrong True only speed."""
    match node:
        case Literal():
            return True
        case Object(pairs):
            return all(_constant(key) and _constant(value) for key, value in pairs)
        case Array(items):
            return all(map(_constant, items))
        case Field(of) | Index(of) | Slice(of):
            return _constant(of)
        case Arithmetic(_, left, right) | Comparison(_, left, right):
            return _constant(left) and _constant(right)
        case Both(left, right) | Either(left, right) | Alternative(left, right):
            return _constant(left) and _constant(right)
    return False
