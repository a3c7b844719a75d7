"""Joins bounded by time: how long the rows of both sides can still meet others, by the conditions on their event times.

`p.time between o.time and o.time + interval '1 hour'` says that an order meets payments of the next hour only, so that neither side
must be kept longer, although the joined rows stay for ever. That holds for inner joins of streams without windows, and of the
results of such joins.

A row starts at an instant; a column of it that repeats an event time is at most so much older: its *delay*, zero for a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal, DecimalException

from sqlglot import ParseError, exp, parse_one

from hayase.core.data_classes import dataclass
from hayase.cql.columns import column_name
from hayase.cql.distribution import is_leaf, source_of
from hayase.cql.logical import Filter, Join, Node, Project, Unnest
from hayase.cql.steps import source_column, stream_columns

__all__ = ["Limits", "time_limits"]

_UNITS = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000,
    "day": 86_400_000_000, "week": 604_800_000_000,
}  # fmt: skip
"""The units of fixed length. A month is none."""
_ENDLESS = 1 << 62


@dataclass(frozen=True, slots=True)
class Limits:
    """For how many microseconds after their start rows of the two sides of a join can meet rows that come; None for ever."""

    left: int | None
    right: int | None


@dataclass(frozen=True, slots=True)
class _Time:
    """A column that repeats an event time: the microseconds of its unit, and its delay."""

    unit: int
    delay: int


@dataclass(frozen=True, slots=True)
class _Range:
    """The least and the greatest difference, in microseconds, of a time of the right side and one of the left side."""

    low: int = -_ENDLESS
    high: int = _ENDLESS

    def meet(self, other: _Range) -> _Range:
        return _Range(max(self.low, other.low), min(self.high, other.high))


def time_limits(join: Join) -> Limits | None:
    """Return how long the rows of a join must be kept; None if it is not one bounded by time."""
    if join.kind != "inner":
        return None
    limits = _limits(join, _times(join.left), _times(join.right))
    return None if limits == Limits(None, None) else limits


def _limits(join: Join, left: Mapping[str, _Time], right: Mapping[str, _Time]) -> Limits:
    pairs = [
        _pair_limits(join, one, left[one], other, right[other])
        for one in left
        for other in right
        if left[one].unit == right[other].unit
    ]
    lefts = [pair.left for pair in pairs if pair.left is not None]
    rights = [pair.right for pair in pairs if pair.right is not None]
    return Limits(min(lefts, default=None), min(rights, default=None))


def _pair_limits(join: Join, one: str, left: _Time, other: str, right: _Time) -> Limits:
    """Return the limits that follow from the conditions on one time of each side."""
    bounds = _Range()
    if any((column_name(key), column_name(equal)) == (one, other) for key, equal in join.equal):
        bounds = _Range(0, 0)
    for condition in _conditions(join):
        bounds = bounds.meet(_bounds(condition, one, other, left.unit))
    after, before = bounds.high + right.delay, -bounds.low + left.delay
    return Limits(max(after, 0) if bounds.high < _ENDLESS else None, max(before, 0) if bounds.low > -_ENDLESS else None)


def _times(node: Node) -> dict[str, _Time]:
    """Return the columns of a relation that repeat an event time; none unless its rows appear soon after it and never end."""
    if is_leaf(node):
        source = source_of(node)
        stream = source.declaration
        if source.window.kind != "unbounded" or stream.lifetimes or stream.changes is not None:
            return {}
        own = stream_columns(source)
        columns = {name: source_column(node, name) for name in node.schema.names}
        return {
            name: _Time(stream.time_scale, 0) for name, base in columns.items() if base and own[base] == stream.time
        }
    match node:
        case Filter():
            return _times(node.child)
        case Unnest():
            return {name: time for name, time in _times(node.child).items() if name != node.name}
        case Project():
            below = _times(node.child)
            return {output.name: below[name] for output in node.columns if (name := column_name(output.value)) in below}
        case Join(kind="inner"):
            left, right = _times(node.left), _times(node.right)
            limits = _limits(node, left, right)
            return {**_delayed(left, limits.left), **_delayed(right, limits.right)}
        case _:
            return {}


def _delayed(times: Mapping[str, _Time], limit: int | None) -> dict[str, _Time]:
    """Return the times of one side of a join in the joined rows, which appear when the later of both parts does."""
    return {} if limit is None else {name: _Time(time.unit, time.delay + limit) for name, time in times.items()}


# ---------------------------------------------------------------------------------------------------- conditions


def _conditions(join: Join) -> Iterator[exp.Expr]:
    """Yield the conditions of a join that are no keys."""
    if join.residual is None:
        return
    try:
        tree = parse_one(join.residual.sql, dialect="duckdb")
    except ParseError:
        return
    waiting = [tree]
    while waiting:
        node = waiting.pop().unnest()
        if isinstance(node, exp.And):
            waiting += [node.this, node.expression]
        elif isinstance(node, exp.Between):
            yield exp.GTE(this=node.this, expression=node.args["low"])
            yield exp.LTE(this=node.this, expression=node.args["high"])
        else:
            yield node


def _bounds(condition: exp.Expr, left: str, right: str, unit: int) -> _Range:
    """Return what a condition says about the difference of two columns."""
    if not isinstance(condition, exp.GTE | exp.GT | exp.LTE | exp.LT | exp.EQ):
        return _Range()
    one, other = _Sum.of(condition.this, unit), _Sum.of(condition.expression, unit)
    if one is None or other is None:
        return _Range()
    total = one.minus(other)
    if total.columns == {left: 1, right: -1}:
        total, is_flipped = total.negative(), True
    elif total.columns == {left: -1, right: 1}:
        is_flipped = False
    else:
        return _Range()
    bound = (
        -total.constant
    )  # right - left, compared with this; a strict comparison is not narrower by a whole microsecond
    if isinstance(condition, exp.EQ):
        return _Range(bound, bound)
    is_lower = isinstance(condition, exp.GTE | exp.GT) != is_flipped
    return _Range(low=bound) if is_lower else _Range(high=bound)


@dataclass(frozen=True, slots=True)
class _Sum:
    """A sum of columns, each with its factor, and of a constant in microseconds."""

    columns: Mapping[str, int]
    constant: int = 0

    @classmethod
    def of(cls, node: exp.Expr, unit: int) -> _Sum | None:
        """Return an expression as a sum; None if it is not one. Numbers are in `unit` microseconds."""
        node = node.unnest()
        match node:
            case exp.Column():
                return cls({node.name: 1}) if not node.table else None  # a field of a struct
            case exp.Interval():
                return _interval(node)
            case exp.Literal(is_string=False) if node.this.isdecimal():
                return cls({}, int(node.this) * unit)
            case exp.Neg():
                inner = cls.of(node.this, unit)
                return None if inner is None else inner.negative()
            case exp.Add() | exp.Sub():
                left, right = cls.of(node.this, unit), cls.of(node.expression, unit)
                if left is None or right is None:
                    return None
                return left.minus(right if isinstance(node, exp.Sub) else right.negative())
            case _:
                return None

    def negative(self) -> _Sum:
        return _Sum({name: -factor for name, factor in self.columns.items()}, -self.constant)

    def minus(self, other: _Sum) -> _Sum:
        names = {**self.columns, **other.columns}
        columns = {name: self.columns.get(name, 0) - other.columns.get(name, 0) for name in names}
        return _Sum({name: factor for name, factor in columns.items() if factor}, self.constant - other.constant)


def _interval(node: exp.Interval) -> _Sum | None:
    unit = node.args.get("unit")
    size = _UNITS.get(str(unit.name).lower().removesuffix("s")) if unit is not None else None
    number = node.this.unnest() if node.this is not None else None
    if size is None or not isinstance(number, exp.Literal):
        return None
    try:
        length = Decimal(number.this) * size
    except DecimalException:
        return None
    return _Sum({}, int(length)) if length.is_finite() and length == int(length) else None
