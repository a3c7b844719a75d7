"""Queries without a kernel: they select and project records one by one, in the order of the log.

The result always has an event-time column: the input's, selected under its own name or as `event_time`; another one that is
selected as `event_time`; or else the input's, appended and hidden (`StreamDeclaration.hides_time`).
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from hayase.core.declarations import EVENT_TIME, StreamDeclaration
from hayase.core.errors import DeclarationError, Mistake
from hayase.core.expressions import cast
from hayase.core.schemas import ddl
from hayase.core.stages import Input, Stage
from hayase.cql.columns import column, quoted
from hayase.cql.distribution import is_leaf, source_of
from hayase.cql.identity import digest, source_facts, table_facts
from hayase.cql.logical import Column, Filter, Node, Project, Source, TableJoin, ToStream
from hayase.cql.outputs import nullable, written_columns
from hayase.cql.rewrites import prune_columns, push_down_filters
from hayase.cql.stage_drafts import Draft, DraftInput
from hayase.cql.steps import (
    build_map_side,
    identity_columns,
    leaf_nodes,
    leaf_steps,
    selection,
    shown_steps,
    source_column,
    split_selection,
    stream_columns,
)

__all__ = ["chooses_time", "is_stateless", "stateless_stage"]

_HIDDEN_TIME = "__event_time"


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


def stateless_stage(name: str, root: Node, canon: str) -> Draft:
    """The stage of a query without a kernel: the selected columns and the event time of the record."""
    leaf = root.child if isinstance(root, ToStream) else root
    source = source_of(leaf)
    stream = source.declaration
    time = f"{source.alias}.{stream.time}"
    kind = source.schema.field(time).type
    shown = _time_column(leaf, source)
    columns = list(identity_columns(leaf.schema))
    chosen = shown is not None and not _is_time(leaf, source, shown)
    hidden = stream.time if stream.time.lower() not in {each.lower() for each in leaf.schema.names} else EVENT_TIME
    if shown is None:
        below = (
            time if all(isinstance(each, Source | Filter | TableJoin) for each in leaf_nodes(leaf)) else _HIDDEN_TIME
        )
        columns.append(Column(hidden, column(below, kind)))
    elif chosen:
        columns = [_never_null(each) if each.name == shown else each for each in columns]
    whole = Project(_with_time(leaf, time, kind), tuple(columns))
    above = leaf_nodes(prune_columns(push_down_filters(whole)))[1:]
    read, steps = split_selection(source, leaf_steps(above, source.schema))
    schema = nullable(whole.schema)
    side = build_map_side(selection(source, read), steps, pa.schema([]))
    output = StreamDeclaration(
        name, ddl(schema), shown or hidden, _id_column(leaf, source), time_unit=stream.time_unit, slack=stream.slack,
        max_ahead=None, ordered=stream.ordered and not chosen, hidden_time=shown is None,
    )  # fmt: skip
    known = [source_facts(source, {*read.values(), stream.time}), *table_facts(above)]
    fingerprint = digest("projection", canon, known, output.schema)
    reading = DraftInput("rows", tuple(shown_steps(read, steps, source)), tuple(read.values()))
    return Draft(Stage(name, (Input(stream.name, side, schema),), output, fingerprint), (reading,))


def chooses_time(root: Node) -> bool:
    """Whether a query without a kernel gives its records another event time than they had."""
    leaf = root.child if isinstance(root, ToStream) else root
    source = source_of(leaf)
    shown = _time_column(leaf, source)
    return shown is not None and not _is_time(leaf, source, shown)


def _is_time(leaf: Node, source: Source, name: str) -> bool:
    """Whether a column of the result is the event time of the input."""
    return stream_columns(source).get(source_column(leaf, name) or "") == source.declaration.time


def _time_column(leaf: Node, source: Source) -> str | None:
    """The selected column that is the event time of the result: the one called `event_time`, which must be of the same type
    as that of the input, or that of the input under its own name."""
    stream = source.declaration
    for each in written_columns(leaf):
        if each.name.lower() == EVENT_TIME:
            kind = stream.arrow_schema.field(stream.time).type
            if each.value.kind != kind:
                message = f'"{each.name}" is the event time of the result, and of type {each.value.kind}, not {kind}'
                hint = f'cast it to the type of the event time of "{stream.name}", or name it differently with AS'
                raise DeclarationError([Mistake(message, hint, None, each.value.line, each.value.column)])
            return each.name
    own = (each.name for each in written_columns(leaf) if each.name.lower() == stream.time.lower())
    return next((each for each in own if _is_time(leaf, source, each)), None)


def _never_null(time: Column) -> Column:
    """A chosen event time: a record for which it is null fails."""
    failing = cast("'the event_time is null' || '!'", time.value.kind)
    sql = f"coalesce({quoted(time.name)}, {failing})"
    return Column(time.name, replace(time.value, sql=sql, equality=None))


def _id_column(leaf: Node, source: Source) -> str | None:
    """The column that identifies a record of the result: that of the input, if it is selected."""
    own = source.declaration.id
    if own is None:
        return None
    return next((each for each in leaf.schema.names if source_column(leaf, each) == f"{source.alias}.{own}"), None)


def _with_time(node: Node, time: str, kind: pa.DataType) -> Node:
    """A leaf with the event time among its columns."""
    match node:
        case Filter() | TableJoin():
            return replace(node, child=_with_time(node.child, time, kind))
        case Project():
            inner = node.child
            while isinstance(inner, Filter | TableJoin):
                inner = inner.child
            below = time if isinstance(inner, Source) else _HIDDEN_TIME
            return Project(
                _with_time(node.child, time, kind), (*node.columns, Column(_HIDDEN_TIME, column(below, kind)))
            )
        case Source():
            return node
        case _:
            raise AssertionError(f"{type(node).__name__} is no part of a leaf")
