"""Steps of a leaf, or of a kernel between two operators: filters, projections and table lookups in as few passes as possible.

`leaf_steps` makes steps of plan nodes; `build_map_side` makes a map side of steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa

from hayase.core.declarations import EVENT_TIME
from hayase.core.expressions import Projection
from hayase.core.stages import MapSide
from hayase.cql.columns import column, column_name, conjunction, identity_columns, passed_columns, rename_columns
from hayase.cql.logical import Column, Expression, Filter, Node, Project, Source, TableJoin
from hayase.cql.map_sides import Composed, Computed, CountedRows, SelectedColumns, TableRows
from hayase.cql.outputs import nullable
from hayase.cql.stage_drafts import LookupStep, Step

__all__ = [
    "build_map_side", "columns_read", "identity_columns", "leaf_nodes", "leaf_steps", "only_drops_columns",
    "scalar_steps", "selection", "shown_steps", "source_column", "split_selection", "stream_columns",
]  # fmt: skip

_AnyStep = TypeVar("_AnyStep", Step, Step | LookupStep)


def leaf_steps(nodes: Sequence[Node], names: pa.Schema) -> list[Step | LookupStep]:
    """Return the steps for the nodes above a source, the lowest first; `names` is the schema of the source's rows.

    A computed key of a table is computed in a step before the lookup.
    """
    steps: list[Step | LookupStep] = []
    conditions: list[Expression] = []
    for node in nodes:
        if isinstance(node, Filter):
            conditions.append(node.predicate)
            continue
        if isinstance(node, TableJoin):
            computed = [key for key in node.keys if column_name(key.value) is None]
            step = Step((*identity_columns(node.child.schema), *computed), conjunction(conditions))
            if computed and steps and not conditions:
                steps[-1:] = _add_computed(steps[-1], computed, step)
            elif computed or conditions:
                steps.append(step)
            conditions = []
            steps.append(LookupStep(node, tuple(column_name(key.value) or key.name for key in node.keys)))
            continue
        assert isinstance(node, Project)
        step = Step(node.columns, conjunction(conditions))
        conditions = []
        last = steps[-1] if steps else None
        if isinstance(last, Step) and step.only_selects:
            values = {output.name: output.value for output in last.columns}
            outputs = tuple(Column(output.name, values[column_name(output.value) or ""]) for output in step.columns)
            steps[-1] = Step(outputs, last.where)
        else:
            steps.append(step)
    if conditions:
        schema = nodes[-1].schema if steps else names
        steps.append(Step(identity_columns(schema), conjunction(conditions)))
    return [kept for kept in steps if not _changes_nothing(kept, steps, names)]


def _add_computed(last: Step | LookupStep, computed: Sequence[Column], step: Step) -> list[Step | LookupStep]:
    """Add computed columns to the last step if it passes on the columns that they read. Otherwise append `step`."""
    names = passed_columns(last.columns) if isinstance(last, Step) else {}
    if isinstance(last, LookupStep) or any(not added_column.value.columns <= names.keys() for added_column in computed):
        return [last, step]
    added = [Column(added_column.name, rename_columns(added_column.value, names)) for added_column in computed]
    return [Step((*last.columns, *added), last.where)]


def scalar_steps(nodes: Sequence[Node], names: pa.Schema) -> list[Step]:
    """Return the steps of nodes among which there is no table lookup."""
    steps = leaf_steps(nodes, names)
    scalars = [step for step in steps if isinstance(step, Step)]
    assert len(scalars) == len(steps), "only a stream [Now] is joined with tables"
    return scalars


def _changes_nothing(step: Step | LookupStep, steps: Sequence[Step | LookupStep], names: pa.Schema) -> bool:
    """Return whether a step is the only one and gives the same columns that it takes."""
    if isinstance(step, LookupStep):
        return False
    is_identity = (
        [column_name(output.value) for output in step.columns]
        == [output.name for output in step.columns]
        == names.names
    )
    return len(steps) == 1 and step.only_selects and is_identity


def build_map_side(
    first: MapSide, steps: Iterable[Step | LookupStep], carried: pa.Schema, flag: str | None = None
) -> MapSide:
    """Return a map side that runs `first` and then the steps; the columns `carried` pass through all of them.

    A step with the column `flag` keeps rows that are refused, with that column false.
    """
    side = first
    for step in steps:
        if isinstance(step, LookupStep):
            assert not len(carried), "only records are joined with tables"
            side = Composed(side, _table_rows(step))
        else:
            computed = _projection(Step((*step.columns, *identity_columns(carried)), step.where))
            if flag is not None and flag in step.schema.names:
                computed = CountedRows(computed, tuple(passed_columns(step.columns).items()), flag)
            side = Composed(side, computed)
    return side


def _table_rows(step: LookupStep) -> TableRows:
    join = step.join
    own = tuple(join.child.schema.names)
    return TableRows(join.table.table.name, join.kind, own, step.keys, join.columns, nullable(join.schema), join.table)


def _projection(step: Step) -> MapSide:
    if step.only_selects:
        return SelectedColumns(tuple(column_name(output.value) or "" for output in step.columns), step.schema)
    columns = tuple((output.name, output.value.sql) for output in step.columns)
    projection = Projection(columns, step.where.sql if step.where else None, step.schema)
    texts = tuple(output.value.text for output in step.columns)
    return Computed(projection, step.where.text if step.where else None, texts)


def stream_columns(source: Source) -> dict[str, str]:
    """Map the columns of a source to those of its stream: by the name after the alias or, between two stages, by position.

    The bounds of a window are no columns of the stream.
    """
    stream = source.declaration
    own = stream.arrow_schema.names
    columns = {}
    for place, name in enumerate(source.schema.names[: len(source.schema) - len(source.bounds)]):
        bare = name.removeprefix(f"{source.alias}.")
        if bare == EVENT_TIME and bare not in own:
            columns[name] = "valid_from" if stream.lifetimes else stream.time
        else:
            columns[name] = bare if bare in own else own[place]
    return columns


def split_selection(source: Source, steps: Sequence[_AnyStep]) -> tuple[dict[str, str], list[_AnyStep]]:
    """Return the columns of the stream to read, by their names in the plan, and the steps that remain after that selection."""
    own = stream_columns(source)
    first = steps[0] if steps else None
    if not isinstance(first, Step):
        return own, list(steps)
    if first.only_selects:
        return {output.name: own[column_name(output.value) or ""] for output in first.columns}, list(steps[1:])
    read = columns_read(first)
    return {name: stream for name, stream in own.items() if name in read} or dict([next(iter(own.items()))]), list(
        steps
    )


def source_column(leaf: Node, name: str) -> str | None:
    """Return the column of the source that a column of a leaf repeats; None if it is computed."""
    current: str | None = name
    while not isinstance(leaf, Source):
        assert isinstance(leaf, Filter | Project | TableJoin)
        if isinstance(leaf, Project):
            current = next((column_name(output.value) for output in leaf.columns if output.name == current), None)
        elif isinstance(leaf, TableJoin) and current not in leaf.child.schema.names:
            keys = leaf.keys if leaf.kind == "inner" else ()
            current = next((column_name(key.value) for key in keys if key.name == current), None)
        leaf = leaf.child
    return current


def leaf_nodes(leaf: Node) -> list[Node]:
    """Return a leaf's source and the nodes above it, from the bottom up."""
    nodes = [leaf]
    while not isinstance(nodes[-1], Source):
        assert isinstance(nodes[-1], Filter | Project | TableJoin)
        nodes.append(nodes[-1].child)
    return nodes[::-1]


def selection(source: Source, read: Mapping[str, str]) -> SelectedColumns:
    """Return the map side that selects columns of the stream; `read` maps names in the plan to them."""
    schema = pa.schema([pa.field(name, source.declaration.arrow_schema.field(own).type) for name, own in read.items()])
    return SelectedColumns(tuple(read.values()), schema)


def shown_steps(read: Mapping[str, str], steps: Sequence[Step | LookupStep], source: Source) -> list[Step | LookupStep]:
    """Return the steps that EXPLAIN shows: those of the leaf or, if there are none, the selection of columns."""
    if steps:
        return list(steps)
    kinds = source.declaration.arrow_schema
    return [Step(tuple(Column(name, column(own, kinds.field(own).type)) for name, own in read.items()))]


def only_drops_columns(node: Node) -> bool:
    """Return whether a node is a projection that only drops columns."""
    return isinstance(node, Project) and all(column_name(output.value) == output.name for output in node.columns)


def columns_read(step: Step) -> set[str]:
    """Return the columns that a step reads."""
    values = [output.value for output in step.columns]
    return {name for value in [*values, *([step.where] if step.where else [])] for name in value.columns}
