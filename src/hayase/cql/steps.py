"""The steps of a leaf, or of a kernel between two operators: filters, projections and tables to meet, in as few passes as
they can be done, and as map sides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa

from hayase.core.declarations import EVENT_TIME
from hayase.core.expressions import Projection
from hayase.core.stages import MapSide
from hayase.cql.columns import column, column_name, conjunction, passed_columns, rename_columns
from hayase.cql.logical import Column, Expression, Filter, Node, Project, Source, TableJoin
from hayase.cql.map_sides import Chosen, Composed, Computed, CountedRows, TableRows
from hayase.cql.outputs import nullable
from hayase.cql.stage_drafts import LookupStep, Step

__all__ = [
    "build_map_side",
    "columns_read",
    "identity_columns",
    "leaf_nodes",
    "leaf_steps",
    "only_drops_columns",
    "scalar_steps",
    "selection",
    "shown_steps",
    "source_column",
    "split_selection",
    "stream_columns",
]  # fmt: skip

_AnyStep = TypeVar("_AnyStep", Step, Step | LookupStep)


def leaf_steps(nodes: Sequence[Node], names: pa.Schema) -> list[Step | LookupStep]:
    """What stands upon a source, the lowest first, over rows of that schema, in as few steps as it can be done.

    What a table's key is equal to is computed in a step before the table is met, unless it is a column already.
    """
    steps: list[Step | LookupStep] = []
    conditions: list[Expression] = []
    for node in nodes:
        if isinstance(node, Filter):
            conditions.append(node.predicate)
            continue
        if isinstance(node, TableJoin):
            computed = [each for each in node.keys if column_name(each.value) is None]
            made = Step((*identity_columns(node.child.schema), *computed), conjunction(conditions))
            if computed and steps and not conditions:
                steps[-1:] = _add_computed(steps[-1], computed, made)
            elif computed or conditions:
                steps.append(made)
            conditions = []
            steps.append(LookupStep(node, tuple(column_name(each.value) or each.name for each in node.keys)))
            continue
        assert isinstance(node, Project)
        made = Step(node.columns, conjunction(conditions))
        conditions = []
        last = steps[-1] if steps else None
        if isinstance(last, Step) and made.only_selects:
            values = {each.name: each.value for each in last.columns}
            chosen = tuple(Column(each.name, values[column_name(each.value) or ""]) for each in made.columns)
            steps[-1] = Step(chosen, last.where)
        else:
            steps.append(made)
    if conditions:
        shown = nodes[-1].schema if steps else names
        steps.append(Step(identity_columns(shown), conjunction(conditions)))
    return [each for each in steps if not _changes_nothing(each, steps, names)]


def _add_computed(last: Step | LookupStep, computed: Sequence[Column], step: Step) -> list[Step | LookupStep]:
    """A step that gives computed columns too, if it only hands on what they read; else itself and the one `step` for them."""
    names = passed_columns(last.columns) if isinstance(last, Step) else {}
    if isinstance(last, LookupStep) or any(not each.value.columns <= names.keys() for each in computed):
        return [last, step]
    added = [Column(each.name, rename_columns(each.value, names)) for each in computed]
    return [Step((*last.columns, *added), last.where)]


def scalar_steps(nodes: Sequence[Node], names: pa.Schema) -> list[Step]:
    """The same where no table is met."""
    steps = leaf_steps(nodes, names)
    found = [each for each in steps if isinstance(each, Step)]
    assert len(found) == len(steps), "only records of this very instant meet tables"
    return found


def _changes_nothing(step: Step | LookupStep, steps: Sequence[Step | LookupStep], names: pa.Schema) -> bool:
    """Whether a step, the only one, leaves everything as it is."""
    if isinstance(step, LookupStep):
        return False
    stays = [column_name(each.value) for each in step.columns] == [each.name for each in step.columns] == names.names
    return len(steps) == 1 and step.only_selects and stays


def identity_columns(schema: pa.Schema) -> tuple[Column, ...]:
    return tuple(Column(each.name, column(each.name, each.type)) for each in schema)


def build_map_side(
    first: MapSide, steps: Iterable[Step | LookupStep], carried: pa.Schema, flag: str | None = None
) -> MapSide:
    """The steps behind a first map side; the columns `carried` go through all of them. Where there is a column `flag`,
    rows that are refused go on all the same, marked by it."""
    side = first
    for step in steps:
        if isinstance(step, LookupStep):
            assert not len(carried), "only records meet tables"
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
        return Chosen(tuple(column_name(each.value) or "" for each in step.columns), step.schema)
    columns = tuple((each.name, each.value.sql) for each in step.columns)
    projection = Projection(columns, step.where.sql if step.where else None, step.schema)
    texts = tuple(each.value.text for each in step.columns)
    return Computed(projection, step.where.text if step.where else None, texts)


def stream_columns(source: Source) -> dict[str, str]:
    """The stream's own name of each column: behind the alias or, of a stream between two stages, in the same place."""
    stream = source.declaration
    own = stream.arrow_schema.names
    found = {}
    for place, name in enumerate(source.schema.names):
        bare = name.removeprefix(f"{source.alias}.")
        if bare == EVENT_TIME and bare not in own:
            found[name] = "valid_from" if stream.lifetimes else stream.time
        else:
            found[name] = bare if bare in own else own[place]
    return found


def split_selection(source: Source, steps: Sequence[_AnyStep]) -> tuple[dict[str, str], list[_AnyStep]]:
    """Which columns of the stream are read, under which names, and the steps that are left then."""
    own = stream_columns(source)
    first = steps[0] if steps else None
    if not isinstance(first, Step):
        return own, list(steps)
    if first.only_selects:
        return {each.name: own[column_name(each.value) or ""] for each in first.columns}, list(steps[1:])
    read = columns_read(first)
    return {name: stream for name, stream in own.items() if name in read} or dict([next(iter(own.items()))]), list(
        steps
    )


def source_column(leaf: Node, name: str) -> str | None:
    """The column of the source that a column of a leaf is, if it is nothing else."""
    found: str | None = name
    while not isinstance(leaf, Source):
        assert isinstance(leaf, Filter | Project | TableJoin)
        if isinstance(leaf, Project):
            found = next((column_name(each.value) for each in leaf.columns if each.name == found), None)
        elif isinstance(leaf, TableJoin) and found not in leaf.child.schema.names:
            keys = leaf.keys if leaf.kind == "inner" else ()
            found = next((column_name(each.value) for each in keys if each.name == found), None)
        leaf = leaf.child
    return found


def leaf_nodes(leaf: Node) -> list[Node]:
    """A leaf's source, and what stands upon it."""
    nodes = [leaf]
    while not isinstance(nodes[-1], Source):
        assert isinstance(nodes[-1], Filter | Project | TableJoin)
        nodes.append(nodes[-1].child)
    return nodes[::-1]


def selection(source: Source, read: Mapping[str, str]) -> Chosen:
    schema = pa.schema([pa.field(name, source.declaration.arrow_schema.field(own).type) for name, own in read.items()])
    return Chosen(tuple(read.values()), schema)


def shown_steps(read: Mapping[str, str], steps: Sequence[Step | LookupStep], source: Source) -> list[Step | LookupStep]:
    if steps:
        return list(steps)
    kinds = source.declaration.arrow_schema
    return [Step(tuple(Column(name, column(own, kinds.field(own).type)) for name, own in read.items()))]


def only_drops_columns(node: Node) -> bool:
    """Whether a projection does nothing but leave columns out."""
    return isinstance(node, Project) and all(column_name(each.value) == each.name for each in node.columns)


def columns_read(step: Step) -> set[str]:
    values = [each.value for each in step.columns]
    return {name for each in [*values, *([step.where] if step.where else [])] for name in each.columns}
