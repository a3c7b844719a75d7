"""Evaluates the jq subset of `jq_syntax` over many events at once, in this process.

Each node of the syntax tree is evaluated for all events: a list of values in, a list of values out. A value that is in any doubt,
and every failure, is `UNSURE`: libjq then evaluates that event and returns the result or the reason. So the results are exactly
libjq's, and only libjq decides about odd values. `hayase bench jq` measures both.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import Any, Final, Protocol

import numpy as np

from hayase.tables.jq_numbers import NotPlain, canonical
from hayase.tables.jq_syntax import (
    Alternative,
    Arithmetic,
    Array,
    Both,
    Choice,
    Comparison,
    Either,
    Field,
    Index,
    Literal,
    Negation,
    Node,
    Not,
    Object,
    Pipe,
    Root,
    Slice,
    Text,
    ToString,
)

__all__ = ["UNSURE", "Inputs", "Unsure", "Values", "column", "results"]


class Unsure:
    """The type of `UNSURE`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSURE"


UNSURE: Final = Unsure()
_EXACT = 2**53
"""Every integer below it is a double."""
_SHORT = 10**15
"""libjq writes integer results below it with all their digits."""
_PLAIN = {str, int, bool, type(None)}


class Inputs(Protocol):
    """The documents to which a program is applied, as documents or as columns."""

    def __len__(self) -> int: ...

    def values(self) -> Sequence[Any]:
        """The documents."""

    def field(self, name: str) -> Sequence[Any]:
        """`.name` of each."""


class Values:
    """Documents, or the intermediate results of a program."""

    def __init__(self, values: Sequence[Any]):
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def values(self) -> Sequence[Any]:
        return self._values

    def field(self, name: str) -> Sequence[Any]:
        return _field(self._values, name)


def results(node: Node, inputs: Inputs) -> Sequence[Any]:
    """Return the result for each input, its numbers in canonical form, or `UNSURE`.

    >>> from hayase.tables.jq_syntax import parsed
    >>> results(parsed(".a < 2"), Values([{"a": 1}, {"a": "x"}, {}, 7]))
    [True, False, True, UNSURE]
    """
    if isinstance(node, Object):
        return _objects(node, inputs, results)
    values = column(node, inputs)
    kinds = set(map(type, values))
    if kinds <= _PLAIN:
        return values
    if kinds == {float}:
        return _canonical_floats(values)
    return [_canonical(value) for value in values]


def _canonical_floats(floats: Sequence[float]) -> Sequence[Any]:
    numbers = np.array(floats)
    if not np.isfinite(numbers).all():
        return [_canonical(value) for value in floats]
    whole = np.flatnonzero(numbers == np.rint(numbers)).tolist()
    if not whole:
        return floats
    canonical_values: list[Any] = list(floats)
    for at in whole:
        canonical_values[at] = canonical(floats[at])
    return canonical_values


def _canonical(value: Any) -> Any:
    if value is UNSURE:
        return UNSURE
    try:
        return canonical(value)
    except NotPlain:
        return UNSURE


@singledispatch
def column(node: Any, inputs: Inputs) -> Sequence[Any]:
    """Return the value of a node for each input, or `UNSURE`."""
    raise TypeError(f"no such shape: {node!r}")


@column.register
def _(node: Root, inputs: Inputs) -> Sequence[Any]:
    return inputs.values()


@column.register
def _(node: Literal, inputs: Inputs) -> Sequence[Any]:
    return [node.value] * len(inputs)


@column.register
def _(node: Field, inputs: Inputs) -> Sequence[Any]:
    if isinstance(node.of, Root):
        return inputs.field(node.name)
    return _field(column(node.of, inputs), node.name)


def _field(values: Sequence[Any], name: str) -> Sequence[Any]:
    return [value.get(name) if type(value) is dict else None if value is None else UNSURE for value in values]


@column.register
def _(node: Index, inputs: Inputs) -> Sequence[Any]:
    at = node.position
    needed = at + 1 if at >= 0 else -at
    return [
        (value[at] if len(value) >= needed else None) if type(value) is list else None if value is None else UNSURE
        for value in column(node.of, inputs)
    ]


@column.register
def _(node: Slice, inputs: Inputs) -> Sequence[Any]:
    part = slice(node.start, node.end)
    values = column(node.of, inputs)
    if set(map(type, values)) == {str}:
        return [value[part] for value in values]
    return [
        value[part] if type(value) is str or type(value) is list else None if value is None else UNSURE
        for value in values
    ]


@column.register
def _(node: Negation, inputs: Inputs) -> Sequence[Any]:
    return [-value if type(value) in _NUMBERS else UNSURE for value in column(node.of, inputs)]


@column.register
def _(node: Arithmetic, inputs: Inputs) -> Sequence[Any]:
    compute, others = _ARITHMETIC[node.sign]
    return [
        _computed(compute, left, right) if type(left) in _NUMBERS and type(right) in _NUMBERS else others(left, right)
        for left, right in zip(column(node.left, inputs), column(node.right, inputs), strict=True)
    ]


def _computed(compute: Callable[[Any, Any], Any], left: float, right: float) -> Any:
    """Compute with doubles, as libjq does. The result is sure if there is only one way to write it."""
    try:
        value = compute(float(left), float(right))
    except (ZeroDivisionError, OverflowError):
        return UNSURE
    if not math.isfinite(value) or not (abs(left) < _EXACT and abs(right) < _EXACT):
        return UNSURE
    if not value.is_integer():
        return value
    return int(value) if abs(value) < _SHORT and (value or math.copysign(1, value) > 0) else UNSURE


def _added(left: Any, right: Any) -> Any:
    if type(left) is str and type(right) is str:
        return left + right
    if left is UNSURE or right is UNSURE:
        return UNSURE
    return right if left is None else left if right is None else UNSURE


def _never(left: Any, right: Any) -> Any:
    return UNSURE


_NUMBERS = (int, float)
_ARITHMETIC: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "+": (operator.add, _added),
    "-": (operator.sub, _never),
    "*": (operator.mul, _never),
    "/": (operator.truediv, _never),
}


@column.register
def _(node: Comparison, inputs: Inputs) -> Sequence[Any]:
    left = column(node.left, inputs)
    if node.sign == "==" and isinstance(node.right, Literal) and type(node.right.value) is str:
        text = node.right.value
        if set(map(type, left)) <= _PLAIN:
            return [value == text for value in left]
    compare = _COMPARE[node.sign]
    orders = map(_order, left, column(node.right, inputs))
    return [UNSURE if order is None else compare(order, 0) for order in orders]


def _order(left: Any, right: Any) -> int | None:
    """Compare two values in jq's order: negative, 0 or positive; None if only libjq knows."""
    rank, other = _rank(left), _rank(right)
    if rank is None or other is None:
        return None
    if rank != other or rank < _NUMBER:
        return (rank > other) - (rank < other)
    if rank == _NUMBER:
        # libjq compares digits, or doubles after a computation; below 2**53 both agree
        sure = abs(left) < _EXACT or abs(right) < _EXACT or (type(left) is float and type(right) is float)
    else:
        sure = rank == _TEXT
    return (left > right) - (left < right) if sure else None


def _rank(value: Any) -> int | None:
    return _RANKS.get(type(value)) if value is not True else _RANKS[bool] + 1


_NUMBER, _TEXT = 3, 4
_RANKS = {type(None): 0, bool: 1, int: _NUMBER, float: _NUMBER, str: _TEXT, list: 5, dict: 6}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@column.register
def _(node: Both, inputs: Inputs) -> Sequence[Any]:
    return [
        UNSURE if left is UNSURE else False if _false(left) else UNSURE if right is UNSURE else not _false(right)
        for left, right in zip(column(node.left, inputs), column(node.right, inputs), strict=True)
    ]


@column.register
def _(node: Either, inputs: Inputs) -> Sequence[Any]:
    return [
        UNSURE if left is UNSURE else True if not _false(left) else UNSURE if right is UNSURE else not _false(right)
        for left, right in zip(column(node.left, inputs), column(node.right, inputs), strict=True)
    ]


@column.register
def _(node: Not, inputs: Inputs) -> Sequence[Any]:
    return [UNSURE if value is UNSURE else _false(value) for value in inputs.values()]


@column.register
def _(node: Alternative, inputs: Inputs) -> Sequence[Any]:
    return [
        right if _false(left) else left
        for left, right in zip(column(node.left, inputs), column(node.right, inputs), strict=True)
    ]


@column.register
def _(node: Choice, inputs: Inputs) -> Sequence[Any]:
    parts = (column(part, inputs) for part in (node.condition, node.then, node.otherwise))
    return [
        UNSURE if condition is UNSURE else otherwise if _false(condition) else then
        for condition, then, otherwise in zip(*parts, strict=True)
    ]


@column.register
def _(node: Pipe, inputs: Inputs) -> Sequence[Any]:
    values = column(node.left, inputs)
    piped = column(node.right, Values(values))
    if Unsure not in set(map(type, values)):
        return piped
    return [UNSURE if value is UNSURE else result for value, result in zip(values, piped, strict=True)]


def _false(value: Any) -> bool:
    return value is None or value is False


@column.register
def _(node: Object, inputs: Inputs) -> Sequence[Any]:
    return _objects(node, inputs, column)


def _objects(node: Object, inputs: Inputs, evaluate: Callable[[Node, Inputs], Sequence[Any]]) -> Sequence[Any]:
    keys = [column(key, inputs) for key, _ in node.pairs]
    values = [evaluate(value, inputs) for _, value in node.pairs]
    if len(keys) == 1 and set(map(type, keys[0])) == {str} and Unsure not in set(map(type, values[0])):
        return [{key: value} for key, value in zip(keys[0], values[0], strict=True)]
    rows = zip(zip(*keys, strict=True), zip(*values, strict=True), strict=True) if keys else [((), ())] * len(inputs)
    return [_object(row_keys, row) for row_keys, row in rows]


def _object(keys: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
    if any(type(key) is not str for key in keys) or any(value is UNSURE for value in values):
        return UNSURE
    return dict(zip(keys, values, strict=True))


@column.register
def _(node: Array, inputs: Inputs) -> Sequence[Any]:
    columns = [column(item, inputs) for item in node.items]
    rows = zip(*columns, strict=True) if columns else [()] * len(inputs)
    return [UNSURE if any(value is UNSURE for value in row) else [*row] for row in rows]


@column.register
def _(node: Text, inputs: Inputs) -> Sequence[Any]:
    columns = [list(map(_written, column(part, inputs))) for part in node.parts]
    return [UNSURE if any(part is UNSURE for part in row) else "".join(row) for row in zip(*columns, strict=True)]


@column.register
def _(node: ToString, inputs: Inputs) -> Sequence[Any]:
    return list(map(_written, inputs.values()))


def _written(value: Any) -> Any:
    """Return the text of a value if libjq has only one way to write it."""
    if type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    if type(value) is float:  # 3.0 is "3.0" if it was read and "3" if it was computed
        return repr(value) if 1e-4 < abs(value) < _SHORT and not value.is_integer() else UNSURE
    return _WORDS.get(value, UNSURE) if value is None or type(value) is bool else UNSURE


_WORDS = {None: "null", True: "true", False: "false"}
