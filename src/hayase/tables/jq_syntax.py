"""The subset of jq that Hayase evaluates in its own process, as a syntax tree, and the parser for it.

The subset: paths (`.a.b`, `.["x y"]`, `.a[0]`, `.time[:10]`), literals, comparisons, `and`, `or`, `not`, `//`, `+ - * /`, `if`,
pipes, objects, arrays, texts with interpolation, `tostring`. `hayase bench jq` measures what each of them gains over libjq. Every
program of the subset has exactly one result or fails. `parsed` returns None for any other program, and libjq runs
it. It never accepts a program that libjq would reject or read differently, so it declines doubtful ones: operators whose
operands are all constants, which libjq may fold, and numbers that no double represents.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TypeAlias

from hayase.core.data_classes import dataclass
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
    """A text with `\\(.a)` in it; its parts are joined."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """`not`, of the input"""


@dataclass(frozen=True, slots=True)
class ToString:
    """`tostring`, of the input"""


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
        node = parser.pipe()
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
        self.unusual_number = self.writes_texts = False

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
        """Decline what is left over, and texts of numbers such as 1.50, whose digits libjq keeps."""
        if self.at < len(self.tokens) or (self.unusual_number and self.writes_texts):
            raise _Declined

    def pipe(self) -> Node:
        left = self.alternative()
        return Pipe(left, self.pipe()) if self.takes("|") else left

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
            if _constant(of):
                raise _Declined
            return Negation(of)
        return self.postfix(self.primary())

    def primary(self) -> Node:
        kind = self.kind()
        if kind == "field":
            return Field(Root(), self.next().text[1:])
        if kind == "number":
            return Literal(self.number())
        if kind == "open":
            return self.text()
        if self.takes("."):
            if self.kind() == "open":
                return Field(Root(), self.plain_text())
            return Root()
        if self.takes("("):
            node = self.pipe()
            self.needs(")")
            return node
        if self.takes("["):
            return Array(self.items())
        if self.takes("{"):
            return Object(self.pairs())
        if self.takes("if"):
            return self.choice()
        if kind == "name":
            named = _NAMES.get(self.next().text)
            if named is not None and not self.sees("("):
                self.writes_texts |= isinstance(named, ToString)
                return named
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
                    if isinstance(node, Slice):  # jq's grammar has no .a.[1:2]
                        raise _Declined
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

    def number(self) -> int | float:
        text = self.next().text
        if len(text) > _MOST_DIGITS:
            raise _Declined
        number = int(text) if text.isdigit() else float(text)
        if isinstance(number, float) and (number in (float("inf"), 0.0) or Decimal(repr(number)) != Decimal(text)):
            raise _Declined
        self.unusual_number |= repr(number) != text
        return number

    def position(self) -> int:
        sign = -1 if self.takes("-") else 1
        if self.kind() != "number":
            raise _Declined
        value = self.number()
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
                self.writes_texts = True
                parts += [Literal(written), self.pipe()]
                written = ""
                if self.next().kind != "interpolated":
                    raise _Declined
            elif token.kind == "close":
                return Text((*parts, Literal(written))) if parts else Literal(written)
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
        if self.takes("|"):  # a comma binds tighter than a pipe: it applies to each item
            right = self.pipe()
            items = [Pipe(item, right) for item in items]
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
            key = self.pipe()
            self.needs(")")
            if _constant(key) and not (isinstance(key, Literal) and isinstance(key.value, str)):
                raise _Declined
            self.needs(":")
            return key, self.pair_value()
        if self.kind() == "open":
            name = self.plain_text()
        elif self.kind() == "name" and "::" not in self.tokens[self.at].text:
            name = self.next().text
        else:
            raise _Declined
        return Literal(name), self.pair_value() if self.takes(":") else Field(Root(), name)

    def pair_value(self) -> Node:
        left = self.alternative()
        return Pipe(left, self.pair_value()) if self.takes("|") else left

    def choice(self) -> Node:
        condition = self.pipe()
        self.needs("then")
        then = self.pipe()
        if self.takes("elif"):
            return Choice(condition, then, self.choice())
        otherwise = self.pipe() if self.takes("else") else Root()
        self.needs("end")
        return Choice(condition, then, otherwise)


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
        case Array(parts) | Text(parts):
            return all(map(_constant, parts))
        case Field(of) | Index(of) | Slice(of) | Negation(of) | Pipe(of):
            return _constant(of)
        case Arithmetic(_, left, right) | Comparison(_, left, right):
            return _constant(left) and _constant(right)
        case Both(left, right) | Either(left, right) | Alternative(left, right):
            return _constant(left) and _constant(right)
        case Choice(condition, then, otherwise):
            return _constant(condition) and _constant(then) and _constant(otherwise)
    return False
