"""Leaves whose window has bounds: which filters and expressions run on the map side, and which above the window.

The columns `window_start`, `window_end` and `is_final` exist only behind the window. Expressions that read none of them run on
the map side, so that they are computed once for each record and an error in one is a dead letter of the record. All others run
in the kernel, above the window. A record that WHERE removes is still in its session: it is marked instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration
from hayase.core.times import END, duration_text
from hayase.cql.columns import column, column_name, identity_columns, passed_columns, rename_columns
from hayase.cql.logical import Aggregate, Column, Expression, Filter, Join, Node, Project, Source, Window
from hayase.cql.rewrites.prune_columns import required_columns
from hayase.cql.stage_drafts import Step
from hayase.cql.steps import leaf_nodes, scalar_steps
from hayase.lifetimes import plans

__all__ = [
    "BOUNDS",
    "BoundedLeaf",
    "SharedLeaf",
    "bounds_fields",
    "hash_column",
    "misfit",
    "plan_window",
    "shared_leaf",
    "split_keys",
    "split_leaf",
    "with_session_keys",
    "without_bounds",
]

BOUNDS = ("window_start", "window_end", "is_final")
"""The columns that a window with bounds adds to those of its stream; the last one only with Early."""


def bounds_fields(window: Window, stream: StreamDeclaration) -> list[pa.Field]:
    """Return the columns that a window adds to a stream: times of the stream's type, and a boolean with Early."""
    if not window.has_bounds:
        return []
    kind = stream.arrow_schema.field(stream.time).type
    kind = pa.int64() if pa.types.is_integer(kind) else kind
    bounds = [pa.field(name, kind) for name in BOUNDS[:2]]
    return bounds if window.early is None else [*bounds, pa.field(BOUNDS[2], pa.bool_())]


def misfit(window: Window, stream: StreamDeclaration) -> str | None:
    """Return which duration of a window with bounds is not a whole number of the stream's units of time; None if all are."""
    unit = stream.time_scale
    lengths = [length for length, _ in window.several] or [window.length]
    keep = 0 if window.keep in (None, END) else window.keep
    durations = [*lengths, window.slide or 0, window.offset, keep or 0, window.early or 0]
    wrong = next((length for length in durations if length % unit), None) if window.has_bounds else None
    return None if wrong is None else duration_text(wrong)


def with_session_keys(node: Node, keys: Sequence[Expression]) -> Node:
    """Return a plan over one source with the keys of its sessions, which are expressions over the source."""
    match node:
        case Source():
            named = [Column(column_name(key) or f"__session{at}", key) for at, key in enumerate(keys, 1)]
            return replace(node, window=replace(node.window, sessions=tuple(named)))
        case Join():
            return replace(node, left=with_session_keys(node.left, keys))
        case Filter():
            return replace(node, child=with_session_keys(node.child, keys))
        case _:
            raise AssertionError(f"{type(node).__name__} is not below an aggregate over sessions")


def plan_window(source: Source) -> plans.Bounded | plans.Session:
    """Return the physical window of a source."""
    window, unit = source.window, source.declaration.time_scale
    if window.kind == "session":
        keys = tuple(key.name for key in window.sessions)
        return plans.Session(keys, window.length, window.kept, window.early, source.bounds, unit)
    assert window.kind in ("tumble", "hop", "cumulate"), window.kind
    return plans.Bounded(
        window.kind, window.length, window.step, window.offset, window.kept, window.early, source.bounds, unit
    )


def without_bounds(source: Source) -> Source:
    """Return the source as the map side sees it: without a window, and without the columns that the window adds."""
    own = [field for field in source.schema if field.name not in source.bounds]
    return replace(source, window=Window("unbounded"), schema=pa.schema(own))


@dataclass(frozen=True, slots=True)
class BoundedLeaf:
    """A leaf in two parts: steps on the map side, and steps above the window. `rows` is the schema between the two.

    `below_names` are the columns of the leaf that do not read the bounds, with their names in `rows`.
    """

    below: tuple[Step, ...]
    above: tuple[Step, ...]
    rows: pa.Schema
    below_names: Mapping[str, str]


@dataclass(slots=True)
class _Value:
    """A column of a leaf: its name in the part where it is computed, and whether that is above the window."""

    name: str
    above: bool


def split_leaf(nodes: Sequence[Node]) -> BoundedLeaf:
    """Split a leaf, given as its source and the nodes above it (`steps.leaf_nodes`)."""
    source = nodes[0]
    assert isinstance(source, Source)
    base = without_bounds(source)
    values = {name: _Value(name, name in source.bounds) for name in source.schema.names}
    below: Node = base
    kept: dict[str, pa.DataType] = {}
    session_keys = source.window.sessions
    if session_keys:
        computed = [key for key in session_keys if column_name(key.value) is None]
        below = Project(base, (*identity_columns(base.schema), *computed))
        kept |= {key.name: key.value.kind for key in session_keys}
    predicates: list[tuple[int, Expression]] = []
    levels: list[list[Column]] = []
    for node in nodes[1:]:
        read = node.predicate.columns if isinstance(node, Filter) else frozenset()
        names = {name: value.name for name, value in values.items()}
        if isinstance(node, Filter):
            predicate = rename_columns(node.predicate, names)
            if any(values[name].above for name in read):
                kept |= {
                    values[name].name: below.schema.field(values[name].name).type
                    for name in read
                    if not values[name].above
                }
                predicates.append((len(levels), predicate))
            else:
                below = Filter(below, predicate)
            continue
        assert isinstance(node, Project)
        outputs, computed_above, new_values = _split_columns(node, values, kept, below.schema, len(levels))
        if not outputs and not kept:  # rows without columns cannot be counted
            kept |= {name: below.schema.field(name).type for name in required_columns(below, frozenset())}
        carried = [
            Column(name, column(name, kind)) for name, kind in kept.items() if name not in {out.name for out in outputs}
        ]
        below = Project(below, (*outputs, *carried))
        levels.append(computed_above)
        values = new_values
    needed = [value.name for value in values.values() if not value.above]
    names_below = dict.fromkeys([*needed, *kept])
    below = Project(below, tuple(Column(name, column(name, below.schema.field(name).type)) for name in names_below))
    steps = scalar_steps(_chain(below, base), base.schema)
    bounds = [source.schema.field(name) for name in source.bounds]
    rows = below.schema
    above = _above(replace(source, schema=pa.schema([*rows, *bounds])), predicates, levels, values, nodes[-1].schema)
    return BoundedLeaf(
        tuple(steps), above, rows, {name: value.name for name, value in values.items() if not value.above}
    )


def _split_columns(
    node: Project, values: dict[str, _Value], kept: dict[str, pa.DataType], schema: pa.Schema, level: int
) -> tuple[list[Column], list[Column], dict[str, _Value]]:
    """Return the columns of a projection that are computed below and above the window, and where each of them is.

    Columns below that an expression above reads are added to `kept`.
    """
    names = {name: value.name for name, value in values.items()}
    below: list[Column] = []
    above: list[Column] = []
    places: dict[str, _Value] = {}
    for output in node.columns:
        for name in output.value.columns:
            if not values[name].above and any(values[other].above for other in output.value.columns):
                kept[values[name].name] = schema.field(values[name].name).type
    for at, output in enumerate(node.columns):
        value = rename_columns(output.value, names)
        plain = column_name(value)
        if not any(values[name].above for name in output.value.columns):
            taken = output.name in kept and plain != output.name
            name = f"__below{level}_{at}" if taken else output.name
            below.append(Column(name, value))
            places[output.name] = _Value(name, False)
        elif plain is not None:
            places[output.name] = _Value(plain, True)
        else:
            places[output.name] = _Value(f"__above{level}_{at}", True)
            above.append(Column(places[output.name].name, value))
    return below, above, places


def split_keys(source: Source, steps: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    """Split the steps of sessions: one that computes their keys, if there is one, and those that follow.

    A record whose key cannot be computed is in no session; one for which another expression fails is.
    """
    names = {key.name for key in source.window.sessions if column_name(key.value) is None}
    first = steps[0] if steps else None
    if first is None or not names & {output.name for output in first.columns if column_name(output.value) is None}:
        return [], list(steps)
    if first.where is None and all(output.name in names or column_name(output.value) for output in first.columns):
        return [first], list(steps[1:])
    own = dict.fromkeys(name for output in first.columns if output.name not in names for name in output.value.columns)
    if first.where is not None:
        own |= dict.fromkeys(first.where.columns)
    kinds = {field.name: field.type for field in source.schema}
    keys = [output for output in first.columns if output.name in names]
    passed = [Column(name, column(name, kinds[name])) for name in own]
    rest = [column_of(output, names) for output in first.columns]
    return [Step((*passed, *keys))], [Step(tuple(rest), first.where), *steps[1:]]


def column_of(output: Column, names: set[str]) -> Column:
    """Return an output, or the column that an earlier step has computed if it is one of `names`."""
    return Column(output.name, column(output.name, output.value.kind, output.value)) if output.name in names else output


def _chain(top: Node, base: Source) -> list[Node]:
    """Return the nodes from the lowest above a source to the top."""
    nodes: list[Node] = []
    while top is not base:
        assert isinstance(top, Filter | Project)
        nodes.insert(0, top)
        top = top.child
    return nodes


def _above(
    rows: Source,
    predicates: Sequence[tuple[int, Expression]],
    levels: Sequence[Sequence[Column]],
    values: dict[str, _Value],
    schema: pa.Schema,
) -> tuple[Step, ...]:
    """Return the steps above the window: filters and columns that read its bounds, then the columns of the leaf."""
    node: Node = rows
    for level in range(len(levels) + 1):
        for _, predicate in (pair for pair in predicates if pair[0] == level):
            node = Filter(node, predicate)
        if level < len(levels) and levels[level]:
            node = Project(node, (*identity_columns(node.schema), *levels[level]))
    outputs = [Column(field.name, column(values[field.name].name, field.type)) for field in schema]
    node = Project(node, tuple(outputs))
    return tuple(scalar_steps(_chain(node, rows), rows.schema))


@dataclass(frozen=True, slots=True)
class SharedLeaf:
    """The leaf below an aggregate that has one row for each window and group.

    `keys` are the other keys of the aggregate, with their columns in the rows of the map side; `bounds` are the columns of the
    source with the bounds that are keys, by the names of the keys.
    """

    leaf: BoundedLeaf
    keys: Mapping[str, str]
    bounds: Mapping[str, str]


def shared_leaf(node: Aggregate) -> SharedLeaf | None:
    """Return the leaf of an aggregate over windows with bounds if there is one row for each window and group; else None.

    GROUP BY must name the bounds, nothing but the keys may read them, and sessions must be those of the groups.
    """
    nodes = leaf_nodes(node.child)
    source = nodes[0]
    assert isinstance(source, Source)
    leaf = split_leaf(nodes)
    names = [column_name(key.value) or "" for key in node.keys]
    arguments = [column_name(argument) or "" for call in node.calls for argument in call.arguments]
    if len(leaf.above) > 1 or any(not step.only_selects for step in leaf.above):
        return None
    outputs = passed_columns(leaf.above[-1].columns) if leaf.above else {name: name for name in node.child.schema.names}
    bounds = {name: outputs[name] for name in names if outputs.get(name) in source.bounds}
    keys = {name: leaf.below_names[name] for name in names if name in leaf.below_names}
    enough = source.bounds[1:2] if source.window.kind == "cumulate" else source.bounds[:2]
    if len(keys) + len(bounds) < len(names) or not set(bounds.values()) & set(enough):
        return None
    if any(name not in leaf.below_names for name in arguments):
        return None
    if source.window.kind == "session":  # other columns are null where WHERE removes a record, which is in its session
        by_name = {name: hash_column(nodes, name) for name in keys}
        if set(by_name.values()) != {key.name for key in source.window.sessions}:
            return None
        keys = {name: own for name, own in by_name.items() if own is not None}
    return SharedLeaf(leaf, keys, bounds)


def hash_column(nodes: Sequence[Node], name: str) -> str | None:
    """Return the column of a leaf's input by which it must be hashed so that its result is distributed by the column `name`.

    That is no column that reads the bounds of the window; for sessions, it must be one of their keys.
    """
    source = nodes[0]
    assert isinstance(source, Source)
    if source.window.kind == "session":
        origin = _origin(nodes, name)
        return next((key.name for key in source.window.sessions if origin and key.value.sql == origin.sql), None)
    return split_leaf(nodes).below_names.get(name)


def _origin(nodes: Sequence[Node], name: str) -> Expression | None:
    """Return a column of a leaf as an expression over its source; None if it is computed in several steps."""
    origin = column(name, nodes[-1].schema.field(name).type)
    for node in reversed(nodes):
        if not isinstance(node, Project):
            continue
        outputs = {output.name: output.value for output in node.columns}
        plain = column_name(origin)
        if plain is not None:
            origin = outputs[plain]
            continue
        inner = {read: column_name(outputs[read]) for read in origin.columns}
        if None in inner.values():
            return None
        origin = rename_columns(origin, {read: own for read, own in inner.items() if own is not None})
    return origin
