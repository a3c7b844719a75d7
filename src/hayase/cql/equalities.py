"""Equalities between two expressions, and whether they can serve as keys of a join."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from hayase.core.errors import DeclarationError
from hayase.core.keys import check_key_type
from hayase.cql.logical import Expression, Node

__all__ = ["are_same_family", "can_be_keys", "equality", "join_keys"]


def equality(left: Expression, right: Expression) -> Expression:
    """Return the condition `left = right`."""
    return Expression(
        f"({left.sql}) = ({right.sql})", pa.bool_(), left.columns | right.columns, f"{left.text} = {right.text}",
        left.line, left.column, (left, right),
    )  # fmt: skip


def join_keys(condition: Expression, left: set[str], right: set[str]) -> tuple[Expression, Expression] | None:
    """Return both sides of an equality between columns of `left` and columns of `right`, the left side first.

    Return None if the condition is not such an equality, or if its sides cannot be keys.
    """
    if condition.equality is None or not can_be_keys(*condition.equality):
        return None
    for one, other in (condition.equality, condition.equality[::-1]):
        if one.columns and other.columns and one.columns <= left and other.columns <= right:
            return one, other
    return None


def can_be_keys(one: Expression, other: Expression) -> bool:
    """Return whether equal values of both expressions have equal keys (see `hayase.core.keys`)."""
    try:
        check_key_type(one.kind)
        check_key_type(other.kind)
    except DeclarationError:
        return False
    return bool(one.kind == other.kind or are_same_family(one.kind, other.kind))


def are_same_family(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether both types are signed integers, or both floating point: equal values then have equal keys at any width."""
    families: tuple[Callable[[pa.DataType], bool], ...] = (pa.types.is_signed_integer, pa.types.is_floating)
    return any(is_member(one) and is_member(other) for is_member in families)


def node_join_keys(condition: Expression, left: Node, right: Node) -> tuple[Expression, Expression] | None:
    """Return the two sides of an equality between columns of one plan and columns of another; None if it is not one."""
    return join_keys(condition, set(left.schema.names), set(right.schema.names))
