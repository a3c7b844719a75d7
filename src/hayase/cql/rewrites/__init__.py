"""Rewrite rules of logical plans. Every rule returns a plan with the same result; `RULES` is the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

from hayase.cql.logical import Node
from hayase.cql.rewrites.limit_ranks import limit_ranks
from hayase.cql.rewrites.name_keys import name_keys
from hayase.cql.rewrites.prune_columns import prune_columns
from hayase.cql.rewrites.push_down_filters import push_down_filters

__all__ = ["RULES", "limit_ranks", "name_keys", "prune_columns", "push_down_filters", "rewrite"]

RULES: tuple[Callable[[Node], Node], ...] = (push_down_filters, limit_ranks, prune_columns, name_keys)


def rewrite(node: Node) -> Node:
    """Apply all rules to a plan."""
    for rule in RULES:
        node = rule(node)
    return node
