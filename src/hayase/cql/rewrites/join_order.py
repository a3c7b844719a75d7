"""The order of inner joins. A part of `push_down_filters`, because the conditions above a join decide its order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hayase.cql.columns import conjunction
from hayase.cql.equalities import can_be_keys, equality, join_keys
from hayase.cql.logical import Expression, Filter, Join, Node

__all__ = ["order_inner_joins"]


def order_inner_joins(
    node: Join, conditions: Sequence[Expression], push: Callable[[Node, Sequence[Expression]], Node]
) -> tuple[Node, list[Expression]]:
    """Join all relations of a tree of inner joins one after the other, and apply `conditions`, which stand above the tree.

    The order is the written one, except that a relation with an equality to those already joined comes first. `push` applies
    conditions over a single relation to it. Return the joins, and the conditions that read no column at all.
    """
    relations: list[Node] = []
    written: list[Expression] = []
    _flatten(node, relations, written)
    owner = {name: number for number, relation in enumerate(relations) for name in relation.schema.names}
    own: list[list[Expression]] = [[] for _ in relations]
    shared: list[Expression] = []
    constant: list[Expression] = []
    for condition in (*written, *conditions):
        owners = {owner[name] for name in condition.columns}
        (own[owners.pop()] if len(owners) == 1 else shared if owners else constant).append(condition)

    def columns(numbers: Iterable[int]) -> set[str]:
        return {name for name, number in owner.items() if number in numbers}

    equalities = [condition.equality for condition in shared if condition.equality]
    linked = [owner[name] for pair in equalities if can_be_keys(*pair) for side in pair for name in side.columns]
    joined = [min(linked, default=0)]
    result = push(relations[joined[0]], own[joined[0]])
    remaining = [number for number in range(len(relations)) if number not in joined]
    while remaining:
        known = columns(joined)
        has_key = (number for number in remaining if any(join_keys(each, known, columns([number])) for each in shared))
        chosen = next(has_key, remaining[0])
        remaining.remove(chosen)
        joined.append(chosen)
        now = columns(joined)
        ready = [condition for condition in shared if condition.columns <= now]
        shared = [condition for condition in shared if condition not in ready]
        pairs = [(condition, join_keys(condition, known, columns([chosen]))) for condition in ready]
        equal = tuple(pair for _, pair in pairs if pair)
        residual = conjunction([condition for condition, pair in pairs if not pair])
        result = Join("inner", result, push(relations[chosen], own[chosen]), equal, residual)
    return result, constant


def _flatten(node: Node, relations: list[Node], conditions: list[Expression]) -> None:
    """Collect the relations and the conditions of a tree of inner joins, with filters between them, in written order."""
    inner: Node = node
    filters: list[Expression] = []
    while isinstance(inner, Filter):
        filters.append(inner.predicate)
        inner = inner.child
    if isinstance(inner, Join) and inner.kind == "inner":
        _flatten(inner.left, relations, conditions)
        _flatten(inner.right, relations, conditions)
        conditions += [equality(*pair) for pair in inner.equal]
        conditions += [inner.residual] if inner.residual else []
        conditions += reversed(filters)
    else:
        relations.append(node)
