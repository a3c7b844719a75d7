"""Fingerprints of stages. Stages with the same fingerprint compute the same, so one can continue with the other's state."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import pyarrow as pa

from hayase.core.schemas import ddl
from hayase.cql.logical import Node, Source, TableJoin
from hayase.lifetimes import plans

__all__ = ["digest", "shape_of", "source_facts", "table_facts"]

_MEANING = {"projection": 1, "query": 1}
"""Version of the meaning of each kind of stage. Increase it when older state and results no longer fit."""


def source_facts(source: Source, used: set[str]) -> str:
    """Return what a stage depends on in a stream: its name, time, role, and the columns that are read."""
    stream = source.declaration
    schema = stream.arrow_schema
    read = pa.schema([schema.field(name) for name in schema.names if name in used])
    role = "lifetimes" if stream.lifetimes else f"changes {stream.changes}" if stream.changes else ""
    return "\0".join((stream.name, ddl(read), f"{stream.time} {stream.time_unit}", role))


def table_facts(nodes: Iterable[Node]) -> list[str]:
    """Return what a stage depends on in the tables that it joins: their keys, and the columns that are read."""
    facts: list[str] = []
    for node in nodes:
        if isinstance(node, TableJoin):
            table = node.table.table
            kinds = dict(table.columns)
            columns = [f"{name} {kinds[name]} {node.table.schema.field(name).type}" for name in sorted(node.columns)]
            facts.append("\0".join(("table", table.name, *table.key, "", *columns)))
    return facts


def shape_of(node: plans.Node) -> str:
    """Return the operators of a plan without names and expressions. State of one shape does not fit another."""
    inner = ", ".join(shape_of(child) for child in plans.children(node))
    rule = getattr(node, "rule", "") or getattr(node, "kind", "")
    window = type(node.window).__name__ if isinstance(node, plans.Windowed | plans.Instants) else ""
    if isinstance(node, plans.Windowed | plans.Shared) and node.where == plans.LET_THROUGH:
        window += " counts all"  # with COMPUTABLE alone, the state of releases that did not check the expressions fits
    if isinstance(node, plans.Shared) and node.guard is not None:
        window += " guarded"
    kinds = ", ".join(str(kind) for kind in node.schema.types)
    return f"{type(node).__name__} {rule}{window} ({kinds}) [{inner}]"


def digest(kind: str, canon: str, sources: Sequence[str], *facts: str) -> str:
    """Return a digest of everything the results depend on: neither the query's layout nor columns that it does not read."""
    text = "\0".join((kind, str(_MEANING[kind]), canon, *sources, *facts))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
