"""Which aggregates the kernel of shared windows computes (paper 2: many windows in one pass), and what becomes of the others.

An aggregate directly over a stream is shared if its window moves over the stream itself: by time with a slide, or by rows over
the whole stream or partitioned by the columns of GROUP BY; or if its window has bounds and GROUP BY names them, so that there is
one row for each window. It then needs an order and an associative combine, but no inverse.
Any other aggregate is over a relation, whose tuples appear and end in no order: what has no inverse cannot be maintained there,
and is recomputed from the rows of a group (`recompute_calls`). Several windows of such an aggregate are computed one by one. So
is a sum of 64-bit integers: the record at which it overflows is refused, and the next sum excludes it. Beside aggregates that
only shared windows compute, such a sum is guarded (`hayase.lifetimes.sum_guard`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pyarrow as pa

from hayase.core.algebra import Aggregate as Algebra
from hayase.cql.bag_calls import recomputed_call
from hayase.cql.bounded_leaves import shared_leaf
from hayase.cql.columns import column_name, identity_columns
from hayase.cql.distribution import is_leaf, source_of, with_children
from hayase.cql.logical import (
    Aggregate,
    AggregateCall,
    Column,
    Expression,
    Node,
    Project,
    SetOperation,
    Source,
    Window,
    children,
)
from hayase.cql.steps import source_column
from hayase.lifetimes.accumulators import MAINTAINED
from hayase.windows.partials import Lifting

__all__ = ["guarded_sums", "is_shared", "recompute_calls", "relation_aggregate", "split_windows"]

_SAFE_DIGITS = 28
"""Precision up to which ten billion decimals can be added without overflow."""


def is_shared(node: Aggregate) -> bool:
    """Return whether the kernel of shared windows computes an aggregate."""
    if not _is_over_sequence(node) or any(call.distinct or call.template is not None for call in node.calls):
        return False
    if source_of(node.child).window.has_bounds and guarded_sums(node):
        return False
    if any(map(_needs_order_or_inverse, node.calls)):
        return True
    return all(map(_is_compiled, node.calls)) and not any(map(_may_overflow, node.calls))


def guarded_sums(node: Aggregate) -> tuple[AggregateCall, ...]:
    """Return the sums of a shared aggregate that refuse a record at which they overflow."""
    return tuple(filter(_may_overflow, node.calls))


def _may_overflow(call: AggregateCall) -> bool:
    """Return whether a sum of a few records can overflow its type.

    Then one of them must be refused, in event-time order. The aggregate over a relation does that; shared partials cannot.
    """
    if call.function != "sum" or call.argument is None:
        return False
    kind = call.argument.kind
    if pa.types.is_decimal(kind):
        return bool(kind.precision > _SAFE_DIGITS)
    return pa.types.is_integer(kind) and kind.bit_width == 64


def _is_over_sequence(node: Aggregate) -> bool:
    """Return whether every window of an aggregate holds consecutive tuples of the stream, or of a group of it."""
    if not is_leaf(node.child):
        return False
    source = source_of(node.child)
    stream, window = source.declaration, source.window
    if stream.lifetimes or stream.changes is not None or window.length == 0:
        return False
    if window.has_bounds:
        return window.early is None and shared_leaf(node) is not None
    if window.kind == "range":
        return window.slide is not None and not any(
            length % stream.time_scale for length in (window.slide, window.offset)
        )
    if window.kind == "unbounded" or window.order:
        return False
    keys = {source_column(node.child, column_name(key.value) or "") for key in node.keys}
    return keys == {f"{source.alias}.{name}" for name in window.partition}


def _is_compiled(call: AggregateCall) -> bool:
    """Return whether the kernel of shared windows computes a call in compiled loops."""
    return Lifting(
        Algebra.from_name(call.function).at(call.constant), [argument.kind for argument in call.arguments]
    ).lanes


def relation_aggregate(function: str) -> str:
    """Return the aggregate that computes a function over a relation; for some functions, an equivalent one."""
    return {"bool_and": "min", "bool_or": "max"}.get(function, function)


def _needs_order_or_inverse(call: AggregateCall) -> bool:
    """Return whether an aggregate over a relation cannot maintain a call."""
    return call.template is None and relation_aggregate(call.function) not in MAINTAINED


def recompute_calls(node: Node) -> Node:
    """Replace the calls that only shared windows maintain, where these do not compute them, by functions of bags.

    Raise DeclarationError for calls that have no such function of their types.
    """
    node = with_children(node, [recompute_calls(child) for child in children(node)])
    if not isinstance(node, Aggregate) or is_shared(node):
        return node
    child = node.child
    calls = [recomputed_call(call, child) if _needs_order_or_inverse(call) else call for call in node.calls]
    return replace(node, calls=tuple(calls))


def split_windows(node: Node) -> Node:
    """Replace an aggregate over several windows that cannot share a pass by a union of one aggregate per window."""
    node = with_children(node, [split_windows(child) for child in children(node)])
    if not isinstance(node, Aggregate) or node.tag is None:
        return node
    if is_shared(node) and not guarded_sums(node):  # a guard has one window
        return node
    windows = source_of(node.child).window.several if is_leaf(node.child) else ()
    assert windows, "the resolution puts several windows under an aggregate only"
    aggregates: list[Node] = [_tagged_aggregate(node, node.tag, length, tag) for length, tag in windows]
    return reduce(lambda left, right: SetOperation("union", True, left, right), aggregates)


def _tagged_aggregate(node: Aggregate, field: pa.Field, length: int, tag: int | str) -> Node:
    """Return the aggregate over one of its windows, with the column that names the window."""
    text = f"{tag}::BIGINT" if isinstance(tag, int) else "'" + tag.replace("'", "''") + "'"
    single = replace(node, tag=None, child=_with_length(node.child, length))
    return Project(
        single,
        (Column(field.name, Expression(text, field.type, frozenset(), str(tag))), *identity_columns(single.schema)),
    )


def _with_length(leaf: Node, length: int) -> Node:
    if isinstance(leaf, Source):
        window: Window = replace(leaf.window, length=length, several=())
        return replace(leaf, window=window)
    return with_children(leaf, [_with_length(child, length) for child in children(leaf)])
