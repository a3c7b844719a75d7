"""Fingerprints: stages with the same one compute the same, and so one can go on with the state of the other."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import pyarrow as pa

from hayase.core.schemas import ddl
from hayase.cql.logical import Node, Source, TableJoin
from hayase.lifetimes import plans

__all__ = ["digest", "shape_of", "source_facts", "table_facts"]

_MEANING = {"projection": 1, "query": 1}
"""Raised when a kind of stage comes to mean something else, so that older state and results no longer fit it."""


def source_facts(source: Source, used: set[str]) -> str:
    """What a stage knows of a stream: not the columns that it does not read."""
    stream = source.declaration
    schema = stream.arrow_schema
    read = pa.schema([schema.field(each) for each in schema.names if each in used])
    role = "lifetimes" if stream.lifetimes else f"changes {stream.changes}" if stream.changes else ""
    return "\0".join((stream.name, ddl(read), f"{stream.time} {stream.time_unit}", role))


def table_facts(nodes: Iterable[Node]) -> list[str]:
    """What a stage knows of the tables that it meets: their keys, and the columns that it reads."""
    found: list[str] = []
    for node in nodes:
        if isinstance(node, TableJoin):
            table = node.table.table
            kinds = dict(table.columns)
            columns = [f"{name} {kinds[name]} {node.table.schema.field(name).type}" for name in sorted(node.columns)]
            found.append("\0".join(("table", table.name, *table.key, "", *columns)))
    return found


def shape_of(node: plans.Node) -> str:
    """The operators of a plan, without names and expressions: state of one shape does not fit another."""
    inner = ", ".join(shape_of(child) for child in plans.children(node))
    rule = getattr(node, "rule", "") or getattr(node, "kind", "")
    window = type(node.window).__name__ if isinstance(node, plans.Windowed | plans.Instants) else ""
    if isinstance(node, plans.Windowed | plans.Shared) and node.where is not None:
        window += " counts all"  # since records that raise are counted too
    kinds = ", ".join(str(each) for each in node.schema.types)
    return f"{type(node).__name__} {rule}{window} ({kinds}) [{inner}]"


def digest(kind: str, canon: str, sources: Sequence[str], *facts: str) -> str:
    """A digest of what the results depend on: not the layout of the query, nor columns that it does not read."""
    text = "\0".join((kind, str(_MEANING[kind]), canon, *sources, *facts))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
