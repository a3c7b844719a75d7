"""Stateless queries: stages without a kernel, which filter and project records one by one, in the order of the log.

The result always has an event-time column: the input's, selected under its own name or as `event_time`; or another column,
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
from hayase.cql.columns import column, identity_columns, quoted
from hayase.cql.distribution import is_leaf, source_of
from hayase.cql.identity import digest, source_facts, table_facts
from hayase.cql.logical import Column, Filter, Node, Project, Source, TableJoin, ToStream
from hayase.cql.outputs import nullable, written_columns
from hayase.cql.rewrites import prune_columns, push_down_filters
from hayase.cql.stage_drafts import Draft, DraftInput
from hayase.cql.steps import (
    build_map_side,
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
    """Return whether a query only filters and projects records one by one.

    These are queries over `[Unbounded]` that emit the rows that appear, and `Rstream` over `[Now]`.
    """
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
    """Build the stage of a stateless query: the selected columns, and the event time of the record."""
    leaf = root.child if isinstance(root, ToStream) else root
    source = source_of(leaf)
    stream = source.declaration
    time = f"{source.alias}.{stream.time}"
    kind = source.schema.field(time).type
    time_column = _time_column(leaf, source)
    columns = list(identity_columns(leaf.schema))
    has_new_time = time_column is not None and not _is_time(leaf, source, time_column)
    hidden = stream.time if stream.time.lower() not in {name.lower() for name in leaf.schema.names} else EVENT_TIME
    if time_column is None:
        is_projected = any(isinstance(node, Project) for node in leaf_nodes(leaf))
        columns.append(Column(hidden, column(_HIDDEN_TIME if is_projected else time, kind)))
    elif has_new_time:
        columns = [_never_null(selected) if selected.name == time_column else selected for selected in columns]
    whole = Project(_with_time(leaf, time, kind), tuple(columns))
    above = leaf_nodes(prune_columns(push_down_filters(whole)))[1:]
    read, steps = split_selection(source, leaf_steps(above, source.schema))
    schema = nullable(whole.schema)
    side = build_map_side(selection(source, read), steps, pa.schema([]))
    output = StreamDeclaration(
        name, ddl(schema), time_column or hidden, _id_column(leaf, source), time_unit=stream.time_unit, slack=stream.slack,
        max_ahead=None, ordered=stream.ordered and not has_new_time, hidden_time=time_column is None,
    )  # fmt: skip
    facts = [source_facts(source, {*read.values(), stream.time}), *table_facts(above)]
    fingerprint = digest("projection", canon, facts, output.schema)
    draft_input = DraftInput("rows", tuple(shown_steps(read, steps, source)), tuple(read.values()))
    windowed = source.window.kind != "unbounded"
    stage = Stage(name, (Input(stream.name, side, schema),), output, fingerprint, windowed=windowed)
    return Draft(stage, (draft_input,))


def chooses_time(root: Node) -> bool:
    """Return whether a stateless query gives its records another event time than they had."""
    leaf = root.child if isinstance(root, ToStream) else root
    source = source_of(leaf)
    time_column = _time_column(leaf, source)
    return time_column is not None and not _is_time(leaf, source, time_column)


def _is_time(leaf: Node, source: Source, name: str) -> bool:
    """Return whether a column of the result is the event time of the input."""
    return stream_columns(source).get(source_column(leaf, name) or "") == source.declaration.time


def _time_column(leaf: Node, source: Source) -> str | None:
    """Return the selected column that is the event time of the result; None if none is.

    It is the column named `event_time`, which must have the type of the input's event time, or that one under its own name.
    """
    stream = source.declaration
    for output in written_columns(leaf):
        if output.name.lower() == EVENT_TIME:
            kind = stream.arrow_schema.field(stream.time).type
            if output.value.kind != kind:
                message = (
                    f'"{output.name}" is the event time of the result, and of type {output.value.kind}, not {kind}'
                )
                hint = f'cast it to the type of the event time of "{stream.name}", or name it differently with AS'
                raise DeclarationError([Mistake(message, hint, None, output.value.line, output.value.column)])
            return output.name
    own = (output.name for output in written_columns(leaf) if output.name.lower() == stream.time.lower())
    return next((name for name in own if _is_time(leaf, source, name)), None)


def _never_null(time: Column) -> Column:
    """Return the column of a selected event time with an expression that fails where it is null."""
    failure = cast("'the event_time is null' || '!'", time.value.kind)
    sql = f"coalesce({quoted(time.name)}, {failure})"
    return Column(time.name, replace(time.value, sql=sql, equality=None))


def _id_column(leaf: Node, source: Source) -> str | None:
    """Return the column that identifies a record of the result: the input's id column, if it is selected."""
    own = source.declaration.id
    if own is None:
        return None
    return next((name for name in leaf.schema.names if source_column(leaf, name) == f"{source.alias}.{own}"), None)


def _with_time(node: Node, time: str, kind: pa.DataType) -> Node:
    """Return the leaf with the event time of the input among its columns."""
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
            raise AssertionError(f"{type(node).__name__} is not part of a leaf")
