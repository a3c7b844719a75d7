"""Aggregates over many windows in one pass (paper 2): which aggregates can be had so, and what becomes of the others.

An aggregate directly over a stream shares if its window moves over the stream itself: by rows, over the whole stream or
by the very columns it groups by, or by time with a slide. It then needs an order and a way to combine, and no inverse.
Any other aggregate is one of a relation, whose tuples come and go in no order: `first` means nothing there, and what
cannot be taken back cannot be kept. Several windows of such an aggregate are done one by one. So is a sum of 64-bit integers:
the record that takes it out of 64 bits is refused, and the next sum is without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

import pyarrow as pa

from hayase.core.algebra import Aggregate as Algebra
from hayase.core.errors import DeclarationError, Mistake
from hayase.cql.columns import column, column_name
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
from hayase.lifetimes.accumulators import result_type
from hayase.windows.partials import Lifting

__all__ = ["check_windows", "is_shared", "relation_aggregate", "split_windows"]

_SAFE_DIGITS = 28
"""Digits of a decimal of which ten billion can be added."""


def is_shared(node: Aggregate) -> bool:
    """Whether an aggregate is done by the kernel of shared windows."""
    if not _is_over_sequence(node) or any(each.distinct for each in node.calls):
        return False
    if any(map(_relation_mistakes, node.calls)):
        return True
    return all(map(_is_compiled, node.calls)) and not any(map(_may_overflow, node.calls))


def _may_overflow(call: AggregateCall) -> bool:
    """Whether a few records can take a sum out of its type. Then one of them must be refused, in the order in which they come
    and go: the relation's aggregate does that, and the partial sums that windows share cannot."""
    if call.function != "sum" or call.argument is None:
        return False
    kind = call.argument.kind
    if pa.types.is_decimal(kind):
        return bool(kind.precision > _SAFE_DIGITS)
    return pa.types.is_integer(kind) and kind.bit_width == 64


def _is_over_sequence(node: Aggregate) -> bool:
    """Whether the groups of an aggregate are stretches of sequences: of the stream, or of its tuples of each group."""
    if not is_leaf(node.child):
        return False
    source = source_of(node.child)
    stream, window = source.declaration, source.window
    if stream.lifetimes or stream.changes is not None or window.length == 0:
        return False
    if window.kind == "range":
        return window.slide is not None and window.slide % stream.time_scale == 0
    if window.kind == "unbounded":
        return False
    keys = {source_column(node.child, column_name(each.value) or "") for each in node.keys}
    return keys == {f"{source.alias}.{name}" for name in window.partition}


def _is_compiled(call: AggregateCall) -> bool:
    """Whether the kernel of shared windows has it in compiled loops."""
    return Lifting(Algebra.from_name(call.function).at(call.constant), [each.kind for each in call.arguments]).lanes


def relation_aggregate(function: str) -> str:
    """The aggregate that stands for a function over a relation: for a few, one that comes to the same."""
    return {"bool_and": "min", "bool_or": "max"}.get(function, function)


def _relation_mistakes(call: AggregateCall) -> list[Mistake]:
    """Why an aggregate over a relation cannot keep a call, if it cannot."""
    try:
        result_type(relation_aggregate(call.function), call.argument.kind if call.argument else None, call.distinct)
    except DeclarationError as error:
        return [replace(each, line=call.line, column=call.column) for each in error.mistakes]
    return []


def check_windows(root: Node) -> list[Mistake]:
    """Aggregates that need the order of a stream, or cannot be taken back, where there is a relation."""
    lost = (each for node in _aggregates(root) if not is_shared(node) for each in node.calls)
    return [mistake for each in lost for mistake in _relation_mistakes(each)]


def _aggregates(node: Node) -> Iterator[Aggregate]:
    if isinstance(node, Aggregate):
        yield node
    for child in children(node):
        yield from _aggregates(child)


def split_windows(node: Node) -> Node:
    """The plan in which several windows are only where one pass does them; others are united from as many aggregates."""
    node = with_children(node, [split_windows(child) for child in children(node)])
    if not isinstance(node, Aggregate) or node.tag is None or is_shared(node):
        return node
    several = source_of(node.child).window.several if is_leaf(node.child) else ()
    assert several, "the resolution puts several windows under an aggregate only"
    united: list[Node] = [_tagged_aggregate(node, node.tag, length, tag) for length, tag in several]
    return reduce(lambda left, right: SetOperation("union", True, left, right), united)


def _tagged_aggregate(node: Aggregate, field: pa.Field, length: int, tag: int | str) -> Node:
    """The aggregate over one of its windows, with what tells it from the others."""
    text = f"{tag}::BIGINT" if isinstance(tag, int) else "'" + tag.replace("'", "''") + "'"
    single = replace(node, tag=None, child=_with_length(node.child, length))
    rest = [Column(each.name, column(each.name, each.type)) for each in single.schema]
    return Project(single, (Column(field.name, Expression(text, field.type, frozenset(), str(tag))), *rest))


def _with_length(leaf: Node, length: int) -> Node:
    if isinstance(leaf, Source):
        window: Window = replace(leaf.window, length=length, several=())
        return replace(leaf, window=window)
    return with_children(leaf, [_with_length(child, length) for child in children(leaf)])
