"""Finds the comparisons in an expression, in DuckDB's syntax tree (as JSON), and the kinds of values that can be compared.

If one side of an equality is a number or a time, DuckDB casts a text on the other side, and a record whose text cannot be cast
fails when it is processed. Hayase refuses such a comparison when the query is planned: this module finds the comparisons
and the kind of a type; `hayase.core.expressions` types their sides and refuses those whose kinds differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hayase.core.data_classes import dataclass

__all__ = [
    "Comparison",
    "Kind",
    "comparisons",
    "differ",
    "equalities_as_less_than",
    "kind_of",
    "kind_text",
    "takes_lambda",
]

Kind = str | tuple[Any, ...] | None
"""The kind of a type: a word, `("list", inner)`, `("struct", inner, ...)`, `("map", key, value)`; None for NULL."""

_LAMBDAS = frozenset({
    "apply", "array_apply", "array_filter", "array_reduce", "array_transform", "filter", "invoke", "list_apply",
    "list_filter", "list_reduce", "list_transform", "reduce",
})  # fmt: skip
_NUMBERS = (
    "tinyint", "smallint", "integer", "bigint", "hugeint", "utinyint", "usmallint", "uinteger", "ubigint", "uhugeint",
    "float", "double", "decimal", "bignum",
)  # fmt: skip
_TIMES = ("date", "timestamp", "timestamp_ns", "timestamp_ms", "timestamp_s", "timestamp with time zone")
_KIND_NAMES = {
    **dict.fromkeys(_NUMBERS, "number"),
    **dict.fromkeys(("varchar", "enum"), "text"),
    **dict.fromkeys(_TIMES, "time"),
    **dict.fromkeys(("time", "time with time zone", "time_ns"), "time of day"),
    "blob": "binary",
}
_LIKE_EACH_OTHER = frozenset({"nullif", "greatest", "least"})
_MEMBER = frozenset({
    "list_contains", "list_has", "array_contains", "array_has", "contains", "list_position", "list_indexof",
    "array_position", "array_indexof",
})  # fmt: skip
_BETWEEN_LISTS = frozenset({"list_has_any", "array_has_any", "list_has_all", "array_has_all", "&&", "@>", "<@"})
_EQUALITIES = frozenset({"COMPARE_EQUAL", "COMPARE_NOTEQUAL", "COMPARE_DISTINCT_FROM", "COMPARE_NOT_DISTINCT_FROM"})


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two nodes of a tree that are compared; `place` is the byte offset in the statement, -1 if it is not known.

    `member`: the left side is a list, and its elements are compared with the right side. `inside`: the comparison is in a
    lambda, so a side may name parameters of the lambda and then has no type of its own.
    """

    left: Any
    right: Any
    place: int
    member: bool = False
    inside: bool = False


def takes_lambda(function: str) -> bool:
    """Return whether `->` in the arguments of a function is a lambda; everywhere else it reads a field of JSON."""
    return function.lower() in _LAMBDAS


def comparisons(node: Any, inside: bool = False) -> Iterator[Comparison]:
    """Yield all comparisons in a tree, including those of IN, BETWEEN, CASE and some functions."""
    if isinstance(node, list):
        for child in node:
            yield from comparisons(child, inside)
    if not isinstance(node, dict):
        return
    for left, right, member in _compared_pairs(node):
        yield Comparison(left, right, _place(node, left), member, inside)
    function = str(node.get("function_name", ""))
    for key, child in node.items():
        yield from comparisons(child, inside or (key == "arguments" and takes_lambda(function)))


def _compared_pairs(node: dict[str, Any]) -> Iterator[tuple[Any, Any, bool]]:
    """Yield the pairs that one node compares, and whether the elements of the first, a list, are compared."""
    kind = node.get("class")
    if kind == "COMPARISON":
        yield node["left"], node["right"], False
    elif kind == "BETWEEN":
        yield node["input"], node["lower"], False
        yield node["input"], node["upper"], False
    elif node.get("type") in ("COMPARE_IN", "COMPARE_NOT_IN"):
        first, *others = node["children"]
        yield from ((first, other, False) for other in others)
    elif kind == "FUNCTION":
        name = str(node["function_name"]).lower()
        arguments = [argument.get("expression", argument) for argument in node["arguments"]]
        if name in _LIKE_EACH_OTHER:
            yield from ((arguments[0], other_argument, False) for other_argument in arguments[1:])
        elif len(arguments) == 2 and name in _MEMBER:
            yield arguments[0], arguments[1], True
        elif len(arguments) == 2 and name in _BETWEEN_LISTS:
            yield arguments[0], arguments[1], False


def _place(node: dict[str, Any], left: Any) -> int:
    """Return the offset of a comparison: the beginning of its left side, if that is known."""
    known = [part.get("query_location", -1) for part in (left, node) if isinstance(part, dict)]
    return int(next((offset for offset in known if 0 <= offset < 2**32), -1))


def equalities_as_less_than(node: Any) -> Any:
    """Return the tree with every equality replaced by `<`, which DuckDB itself refuses between different kinds."""
    if isinstance(node, list):
        return [equalities_as_less_than(child) for child in node]
    if not isinstance(node, dict):
        return node
    copy = {key: equalities_as_less_than(child) for key, child in node.items()}
    if copy.get("class") == "COMPARISON" and copy["type"] in _EQUALITIES:
        copy["type"] = "COMPARE_LESSTHAN"
    return copy


# ---------------------------------------------------------------------------------------------------- kinds


def kind_of(kind: Any) -> Kind:
    """Return the kind of a DuckDB type."""
    name = str(kind.id)
    if name in ("null", "any"):
        return None
    if name in ("list", "array"):
        return ("list", kind_of(kind.children[0][1]))
    if name in ("struct", "tuple", "map"):
        return ("map" if name == "map" else "struct", *(kind_of(child) for _, child in kind.children))
    return _KIND_NAMES.get(name, name)


def differ(one: Kind, other: Kind) -> bool:
    """Return whether values of two kinds cannot be compared without a cast. NULL can be compared with anything.

    >>> differ("number", "text"), differ("number", None), differ(("list", "number"), ("list", "text"))
    (True, False, True)
    """
    if one is None or other is None:
        return False
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) != len(other) or one[0] != other[0] or any(map(differ, one[1:], other[1:]))
    return one != other


def kind_text(kind: Kind) -> str:
    """Return a kind in words.

    >>> kind_text(("list", "number"))
    'list of number'
    """
    if isinstance(kind, tuple):
        inner: Sequence[Kind] = kind[1:]
        return f"{kind[0]} of {', '.join(kind_text(part) for part in inner)}"
    return kind or "null"
