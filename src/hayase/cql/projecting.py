"""Queries without a kernel: they select and project records one by one, in the order of the log.

The result always has the input's event-time column: selected under its own name, or appended.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DeclarationError, Mistake
from hayase.core.schemas import ddl
from hayase.core.stages import Input, Stage
from hayase.cql.columns import column
from hayase.cql.drafts import Draft, Reading
from hayase.cql.identity import digest, source_facts, table_facts
from hayase.cql.keying import is_leaf, source_of
from hayase.cql.logical import Column, Filter, Node, Project, Source, TableJoin, ToStream
from hayase.cql.outputs import nullable, written
from hayase.cql.rewriting import prune, push_down
from hayase.cql.steps import chain, choosing, chosen_first, in_steps, map_side, same, told, traced

__all__ = ["is_stateless", "projected"]

_EVENT_TIME = "__event_time"


def is_stateless(root: Node) -> bool:
    """Whether a query only selects and projects records as they come, one by one: those that appear in a relation from
    which nothing ever goes, or all that there are at the time of each, which is all that `[Now]` has."""
    kind = root.kind if isinstance(root, ToStream) else "istream"
    inner = root.child if isinstance(root, ToStream) else root
    if not is_leaf(inner):
        return False
    source = source_of(inner)
    stream, window = source.declaration, source.window
    if stream.lifetimes or stream.changes is not None:
        return False
    is_now = window.kind == "range" and window.length == 0 and window.slide is None
    return (kind == "istream" and window.kind == "unbounded") or (kind == "rstream" and is_now)


def projected(name: str, root: Node, canon: str) -> Draft:
    """The stage of a query without a kernel: the selected columns and the event time of the record."""
    leaf = root.child if isinstance(root, ToStream) else root
    source = source_of(leaf)
    stream = source.declaration
    time = f"{source.alias}.{stream.time}"
    selected = next((each for each in written(leaf) if each.name.lower() == stream.time.lower()), None)
    if selected is not None and traced(leaf, selected.name) != time:
        message = f'"{selected.name}" is the event time of the result and must be that of the input'
        hint = f'name this column differently, or select "{stream.time}" itself'
        raise DeclarationError([Mistake(message, hint, None, selected.value.line, selected.value.column)])
    kind = source.schema.field(time).type
    columns = list(same(leaf.schema))
    if selected is None:
        below = time if all(isinstance(each, Source | Filter | TableJoin) for each in chain(leaf)) else _EVENT_TIME
        columns.append(Column(stream.time, column(below, kind)))
    whole = Project(_with_time(leaf, time, kind), tuple(columns))
    above = chain(prune(push_down(whole)))[1:]
    read, steps = chosen_first(source, in_steps(above, source.schema))
    schema = nullable(whole.schema)
    side = map_side(choosing(source, read), steps, pa.schema([]))
    output = StreamDeclaration(
        name, ddl(schema), selected.name if selected else stream.time, _id(leaf, source),
        time_unit=stream.time_unit, slack=stream.slack, max_ahead=None, ordered=stream.ordered,
    )  # fmt: skip
    known = [source_facts(source, {*read.values(), stream.time}), *table_facts(above)]
    fingerprint = digest("projection", canon, known, output.schema)
    reading = Reading("rows", tuple(told(read, steps, source)), tuple(read.values()))
    return Draft(Stage(name, (Input(stream.name, side, schema),), output, fingerprint), (reading,))


def _id(leaf: Node, source: Source) -> str | None:
    """The column that identifies a record of the result: that of the input, if it is selected."""
    own = source.declaration.id
    if own is None:
        return None
    return next((each for each in leaf.schema.names if traced(leaf, each) == f"{source.alias}.{own}"), None)


def _with_time(node: Node, time: str, kind: pa.DataType) -> Node:
    """A leaf with the event time among its columns."""
    match node:
        case Filter() | TableJoin():
            return replace(node, child=_with_time(node.child, time, kind))
        case Project():
            inner = node.child
            while isinstance(inner, Filter | TableJoin):
                inner = inner.child
            below = time if isinstance(inner, Source) else _EVENT_TIME
            return Project(
                _with_time(node.child, time, kind), (*node.columns, Column(_EVENT_TIME, column(below, kind)))
            )
        case Source():
            return node
        case _:
            raise AssertionError(f"{type(node).__name__} is no part of a leaf")
