"""The steps of a leaf, or of a kernel between two operators: filters and projections, in as few passes as they can be done,
and as map sides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from hayase.core.expressions import Projection
from hayase.core.stages import MapSide
from hayase.cql.columns import both, column, plain
from hayase.cql.drafts import Step
from hayase.cql.logical import Column, Expression, Filter, Node, Project, Source
from hayase.cql.map_sides import Chosen, Composed, Computed

__all__ = [
    "chain", "choosing", "chosen_first", "in_steps", "map_side", "only_keeps", "read_by", "same", "stream_columns", "told",
    "traced",
]  # fmt: skip


def in_steps(nodes: Sequence[Node], names: pa.Schema) -> list[Step]:
    """Filters and projections, the lowest first, over rows of that schema, in as few steps as they can be done."""
    steps: list[Step] = []
    conditions: list[Expression] = []
    for node in nodes:
        if isinstance(node, Filter):
            conditions.append(node.predicate)
            continue
        assert isinstance(node, Project)
        made = Step(node.columns, both(conditions))
        conditions = []
        if steps and made.only_chooses:
            values = {each.name: each.value for each in steps[-1].columns}
            chosen = tuple(Column(each.name, values[plain(each.value) or ""]) for each in made.columns)
            steps[-1] = Step(chosen, steps[-1].where)
        else:
            steps.append(made)
    if conditions:
        shown = nodes[-1].schema if steps else names
        steps.append(Step(same(shown), both(conditions)))
    return [each for each in steps if not _is_idle(each, steps, names)]


def _is_idle(step: Step, steps: Sequence[Step], names: pa.Schema) -> bool:
    """Whether a step, the only one, leaves everything as it is."""
    stays = [plain(each.value) for each in step.columns] == [each.name for each in step.columns] == names.names
    return len(steps) == 1 and step.only_chooses and stays


def same(schema: pa.Schema) -> tuple[Column, ...]:
    return tuple(Column(each.name, column(each.name, each.type)) for each in schema)


def map_side(first: MapSide, steps: Iterable[Step], carried: pa.Schema) -> MapSide:
    """The steps behind a first map side; the columns `carried` go through all of them."""
    side = first
    for step in steps:
        step = Step((*step.columns, *same(carried)), step.where)
        side = Composed(side, _computed(step))
    return side


def _computed(step: Step) -> MapSide:
    if step.only_chooses:
        return Chosen(tuple(plain(each.value) or "" for each in step.columns), step.schema)
    columns = tuple((each.name, each.value.sql) for each in step.columns)
    projection = Projection(columns, step.where.sql if step.where else None, step.schema)
    texts = tuple(each.value.text for each in step.columns)
    return Computed(projection, step.where.text if step.where else None, texts)


def stream_columns(source: Source) -> dict[str, str]:
    """The stream's own name of each column: behind the alias or, of a stream between two stages, in the same place."""
    own = source.declaration.arrow_schema.names
    found = {}
    for place, name in enumerate(source.schema.names):
        bare = name.removeprefix(f"{source.alias}.")
        found[name] = bare if bare in own else own[place]
    return found


def chosen_first(source: Source, steps: list[Step]) -> tuple[dict[str, str], list[Step]]:
    """Which columns of the stream are read, under which names, and the steps that are left then."""
    own = stream_columns(source)
    if not steps:
        return own, steps
    if steps[0].only_chooses:
        return {each.name: own[plain(each.value) or ""] for each in steps[0].columns}, steps[1:]
    values = [each.value for each in steps[0].columns]
    read = {name for each in [*values, *([steps[0].where] if steps[0].where else [])] for name in each.columns}
    return {name: stream for name, stream in own.items() if name in read} or dict([next(iter(own.items()))]), steps


def traced(leaf: Node, name: str) -> str | None:
    """The column of the source that a column of a leaf is, if it is nothing else."""
    found: str | None = name
    while not isinstance(leaf, Source):
        assert isinstance(leaf, Filter | Project)
        if isinstance(leaf, Project):
            found = next((plain(each.value) for each in leaf.columns if each.name == found), None)
        leaf = leaf.child
    return found


def chain(leaf: Node) -> list[Node]:
    """A leaf's source, and what stands upon it."""
    nodes = [leaf]
    while not isinstance(nodes[-1], Source):
        assert isinstance(nodes[-1], Filter | Project)
        nodes.append(nodes[-1].child)
    return nodes[::-1]


def choosing(source: Source, read: Mapping[str, str]) -> Chosen:
    schema = pa.schema([pa.field(name, source.declaration.arrow_schema.field(own).type) for name, own in read.items()])
    return Chosen(tuple(read.values()), schema)


def told(read: Mapping[str, str], steps: Sequence[Step], source: Source) -> list[Step]:
    if steps:
        return list(steps)
    kinds = source.declaration.arrow_schema
    return [Step(tuple(Column(name, column(own, kinds.field(own).type)) for name, own in read.items()))]


def only_keeps(node: Node) -> bool:
    """Whether a projection does nothing but leave columns out."""
    return isinstance(node, Project) and all(plain(each.value) == each.name for each in node.columns)


def read_by(step: Step) -> set[str]:
    values = [each.value for each in step.columns]
    return {name for each in [*values, *([step.where] if step.where else [])] for name in each.columns}
