"""Builds the stage of a fragment of a query: map sides and keys of its inputs, operators of its kernel, output stream.

The filters, projections and table lookups of a leaf run on the map side, and so do the keys and arguments of the operator above
it. Above a window by partition, which must count all tuples, and above a stream of changes, they run in the kernel. For a
window by partition the map side checks them too: a record whose expressions fail is refused, but counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import Literal

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration
from hayase.core.stages import OFFSET, Input, MapSide, Stage
from hayase.cql.bag_calls import plan_bags
from hayase.cql.bounded_leaves import BoundedLeaf, plan_window, shared_leaf, split_keys, split_leaf, without_bounds
from hayase.cql.columns import column, column_name, conjunction, identity_columns
from hayase.cql.distribution import Fragment, LeafKey, is_leaf, leaves, needs_coalescing, never_ends, source_of
from hayase.cql.identity import digest, shape_of, source_facts, table_facts
from hayase.cql.logical import (
    Aggregate,
    Asof,
    Column,
    Distinct,
    Expression,
    Filter,
    Join,
    Node,
    Over,
    Project,
    RunningOver,
    SetOperation,
    Source,
    Top,
    ToStream,
    Unnest,
)
from hayase.cql.map_sides import ChangeRows, CheckedRows, EarliestRecord, LifetimeRows, SelectedColumns
from hayase.cql.outputs import Times, nullable
from hayase.cql.over_calls import over_plan
from hayase.cql.running_calls import running_plan
from hayase.cql.shared_scans import KernelFactory, shared_scan
from hayase.cql.shared_windows import guarded_sums, is_shared, relation_aggregate
from hayase.cql.snapshot_triggers import Trigger
from hayase.cql.stage_drafts import Draft, DraftInput, LookupStep, Step
from hayase.cql.steps import (
    build_map_side,
    columns_read,
    leaf_nodes,
    leaf_steps,
    only_drops_columns,
    scalar_steps,
    selection,
    shown_steps,
    source_column,
    split_selection,
    stream_columns,
)
from hayase.cql.time_bounds import time_limits
from hayase.lifetimes import plans
from hayase.lifetimes.kernel import KernelConfig
from hayase.lifetimes.plans import ADDED, COMPUTABLE, LET_THROUGH, ROW_ID, VALID_FROM, VALID_TO

__all__ = ["QueryFacts", "build_stage"]


@dataclass(frozen=True, slots=True)
class QueryFacts:
    """What all stages of a query share.

    `times` is the type of the result's time columns; `triggers` are the windows that decide when Rstream emits; `bases` maps
    every stream that the query reads to the declared streams behind it, and `streams` are all of these.
    """

    canon: str
    times: Times
    triggers: Sequence[Trigger]
    bases: Mapping[str, Sequence[StreamDeclaration]]
    streams: Sequence[StreamDeclaration]

    @classmethod
    def of(
        cls, root: Node, canon: str, bases: Mapping[str, Sequence[StreamDeclaration]], triggers: Sequence[Trigger]
    ) -> QueryFacts:
        """Collect the facts of a query from its logical plan."""
        sources = [source_of(leaf) for leaf in leaves(root)]
        times = Times.of(source.declaration for source in sources)
        streams = {base.name: base for source in sources for base in bases[source.declaration.name]}
        return cls(canon, times, triggers, bases, tuple(streams.values()))


def build_stage(fragment: Fragment, facts: QueryFacts, output: StreamDeclaration) -> Draft:
    """Build the stage of a fragment."""
    builder = _StageBuilder(facts, iter(fragment.keys))
    plan = builder.node(fragment.root)
    sources = [source_of(leaf_node) for leaf_node in leaves(fragment.root)]
    read = {base.name for source in sources for base in facts.bases[source.declaration.name]}
    is_global = _has_global_aggregate(plan)
    # Streams that only other stages of the query read also decide when the query begins, and its clock.
    clock_streams = [base for base in facts.streams if is_global or base.name not in read]
    earliest = [builder.earliest(base, "earliest" if is_global else "clock") for base in clock_streams]
    config = KernelConfig(plan, output.arrow_schema, output.time_scale, tuple(earliest) if is_global else ())
    dependencies = [
        source_facts(source, {*builder.read[number], source.declaration.time}) for number, source in enumerate(sources)
    ]
    dependencies += table_facts(node for leaf in leaves(fragment.root) for node in leaf_nodes(leaf))
    keys = repr([None if key is None else len(key) for key in fragment.keys])
    fingerprint = digest("query", facts.canon, dependencies, output.schema, fragment.name, shape_of(plan), keys)
    stage = Stage(
        fragment.name,
        tuple(builder.inputs),
        output,
        fingerprint,
        KernelFactory(config),
        shared_scan(builder.inputs, plan),
        closings=tuple(builder.closings),
    )
    return Draft(stage, tuple(builder.draft_inputs), plan)


@dataclass
class _StageBuilder:
    """Builds one stage: its inputs so far, and the keys of the leaves still to come."""

    facts: QueryFacts
    keys: Iterator[LeafKey]
    inputs: list[Input] = field(default_factory=list)
    draft_inputs: list[DraftInput] = field(default_factory=list)
    read: list[set[str]] = field(default_factory=list)
    """For every leaf, the columns of its stream that it reads."""
    closings: list[tuple[int, int, int, int]] = field(default_factory=list)
    """`Stage.closings` so far."""

    @property
    def grain(self) -> int:
        return self.facts.times.scale

    def add(self, stage_input: Input, draft_input: DraftInput) -> int:
        self.inputs.append(stage_input)
        self.draft_inputs.append(draft_input)
        return len(self.inputs) - 1

    def ticks(self, stream: StreamDeclaration, order: Sequence[plans.Order]) -> int:
        """Return the input that broadcasts the times of all tuples of a stream, and the columns of an order, to every bucket."""
        names = tuple(dict.fromkeys(entry.column for entry in order))
        for number, stage_input in enumerate(self.inputs):
            draft = self.draft_inputs[number]
            if stage_input.stream == stream.name and draft.role == "ticks" and draft.columns == names:
                return number
        schema = nullable(pa.schema([stream.arrow_schema.field(name) for name in names]))
        broadcast = Input(stream.name, SelectedColumns(names, schema), schema, (), broadcast=True)
        return self.add(broadcast, DraftInput("ticks", columns=names))

    def earliest(self, stream: StreamDeclaration, role: Literal["earliest", "clock"]) -> int:
        """Add the input for the event time of a stream's first record, and for its clock."""
        stage_input = Input(stream.name, EarliestRecord(stream.time), pa.schema([]), (), broadcast=True)
        return self.add(stage_input, DraftInput(role))

    def instants(self, trigger: Trigger) -> plans.Instants:
        """Return the instants of a window. Its stream is read once more, whole, in the one bucket where Rstream runs."""
        names = trigger.window.keys if isinstance(trigger.window, plans.Partition) else ()
        schema = nullable(pa.schema([trigger.stream.arrow_schema.field(name) for name in names]))
        stage_input = Input(trigger.stream.name, SelectedColumns(names, schema), schema, silent=True)
        known = stage_input in self.inputs
        number = (
            self.inputs.index(stage_input) if known else self.add(stage_input, DraftInput("instants", columns=names))
        )
        return plans.Instants(number, trigger.window)

    # ------------------------------------------------------------------------------------------------ leaves

    def leaf(self, node: Node) -> plans.Node:
        key = next(self.keys)
        nodes = leaf_nodes(node)
        source = nodes[0]
        assert isinstance(source, Source)
        if source.declaration.lifetimes:
            return self._lifetimes(source, nodes[1:], key)
        if source.declaration.changes is not None:
            return self._changes(source, nodes[1:], key)
        if source.window.has_bounds:
            return self._bounded(source, nodes, key)
        if source.window.partition:
            return self._partition(source, nodes[1:], key)
        read, steps = split_selection(source, leaf_steps(nodes[1:], source.schema))
        first = selection(source, read)
        schema = steps[-1].schema if steps else first.schema
        side = build_map_side(first, steps, pa.schema([]))
        number = self._reading(source, side, schema, (OFFSET,) if key is None else key, read, steps)
        window: plans.Window
        if source.window.kind == "range":
            length = source.window.length or self.grain
            window = plans.Range(length, source.window.slide, self.grain, source.window.offset)
        elif source.window.kind == "rows":
            order = _order(source)
            ticks = self.ticks(source.declaration, order)
            self.read[-1] |= {entry.column for entry in order}
            window = plans.Rows(source.window.length, ticks, source.window.slide or 1, order)
        elif source.window.kind == "unbounded":
            window = plans.Unbounded()
        else:
            raise AssertionError(f"{source.window.kind} has bounds")
        return plans.Windowed(number, window, schema)

    def _bounded(self, source: Source, nodes: Sequence[Node], key: LeafKey) -> plans.Node:
        """Read a window with bounds: what does not read the bounds is computed on the map side, the rest above the window."""
        leaf, window, base = split_leaf(nodes), plan_window(source), without_bounds(source)
        rows, (below, where) = leaf.rows, self._steps_below(source, leaf)
        read, steps = split_selection(base, below)
        side = build_map_side(selection(base, read), steps, pa.schema([]), where)
        schema = steps[-1].schema if steps else rows
        number = self._reading(base, side, schema, (OFFSET,) if key is None else key, read, steps)
        self.closings.append((number, *_closing(window)))
        bounds = [source.schema.field(name) for name in source.bounds]
        return _scalars(plans.Windowed(number, window, pa.schema([*rows, *bounds]), where), leaf.above)

    @staticmethod
    def _steps_below(source: Source, leaf: BoundedLeaf) -> tuple[list[Step], str | None]:
        """Return the steps of the map side, and the column that marks the records that WHERE accepts if there is one: records
        that WHERE removes belong to a session too."""
        if source.window.kind != "session":
            return list(leaf.below), None
        first, rest = split_keys(source, leaf.below)
        marked, where = _mark_instead_of_filter(rest)
        return [*first, *marked], where

    def _reading(
        self, source: Source, side: MapSide, schema: pa.Schema, key: tuple[str, ...], read: Mapping[str, str],
        steps: Sequence[Step | LookupStep],
    ) -> int:  # fmt: skip
        self.read.append(set(read.values()))
        stage_input = Input(source.declaration.name, side, schema, key)
        if stage_input in self.inputs:  # several windows over the same rows
            return self.inputs.index(stage_input)
        return self.add(stage_input, DraftInput("rows", tuple(shown_steps(read, steps, source)), tuple(read.values())))

    def _lifetimes(self, source: Source, above: Sequence[Node], key: LeafKey) -> plans.Node:
        read, steps = split_selection(source, scalar_steps(above, source.schema))
        carried = pa.schema([(ROW_ID, pa.int64()), (VALID_FROM, pa.int64()), (VALID_TO, pa.int64())])
        chosen = selection(source, read)
        first = LifetimeRows(chosen.columns, pa.schema([*chosen.schema, *carried]), source.declaration.time_scale)
        schema = steps[-1].schema if steps else chosen.schema
        side = build_map_side(first, steps, carried)
        hashed = (ROW_ID,) if key is None else key
        number = self._reading(source, side, pa.schema([*schema, *carried]), hashed, read, steps)
        return plans.Lifetimes(number, schema)

    def _changes(self, source: Source, above: Sequence[Node], key: LeafKey) -> plans.Node:
        own = stream_columns(source)
        chosen = selection(source, own)
        schema = pa.schema([*chosen.schema, pa.field(ADDED, pa.bool_())])
        sign = source.declaration.changes
        assert sign is not None
        side = ChangeRows(chosen.columns, schema, sign)
        number = self._reading(source, side, schema, key or (), {**own, ADDED: sign}, ())
        return _scalars(plans.Changes(number, chosen.schema), scalar_steps(above, source.schema))

    def _partition(self, source: Source, above: Sequence[Node], key: LeafKey) -> plans.Node:
        """Read all tuples, with a column that says whether they pass the filters: the window counts the others too."""
        own = stream_columns(source)
        nodes = list(above)
        conditions: list[Expression] = []
        while nodes and (isinstance(nodes[0], Filter) or only_drops_columns(nodes[0])):
            lowest = nodes.pop(0)
            if isinstance(lowest, Filter):
                conditions.append(lowest.predicate)
        visible = above[len(above) - len(nodes) - 1].schema.names if len(nodes) < len(above) else source.schema.names
        steps = scalar_steps(nodes, pa.schema([source.schema.field(name) for name in visible]))
        needed = columns_read(steps[0]) if steps else set(visible)
        keys = tuple(f"{source.alias}.{name}" for name in source.window.partition)
        order = _order(source, f"{source.alias}.")
        counting = {*keys, *(entry.column for entry in order)}
        where = conjunction(conditions)
        names = [name for name in own if name in needed or name in counting]
        read = {name: own[name] for name in own if name in names or (where and name in where.columns)}
        first = selection(source, read)
        schema = pa.schema([source.declaration.arrow_schema.field(own[name]).with_name(name) for name in names])
        schema = nullable(schema)
        if not steps and names != list(visible):  # the kernel drops the keys and the order of the window
            steps = [Step(identity_columns(pa.schema([schema.field(name) for name in visible])))]
        window = plans.Partition(keys, source.window.length, source.window.slide or 1, order)
        check = [Step(identity_columns(schema), where), *steps] if where else steps
        if all(step.only_selects for step in check):
            number = self._reading(source, first, schema, key or (), read, ())
            return _scalars(plans.Windowed(number, window, schema), steps)
        flag = LET_THROUGH if where else COMPUTABLE
        chosen = selection(source, {name: own[name] for name in names})
        side = CheckedRows(chosen, build_map_side(first, check, pa.schema([])), flag)
        shown = replace(where, sql=f"coalesce((\n{where.sql}\n), false)") if where else _computable(steps)
        marked = Step((*identity_columns(schema), Column(flag, shown)))
        number = self._reading(source, side, marked.schema, key or (), read, [marked])
        return _scalars(plans.Windowed(number, window, schema, flag), steps)

    # ------------------------------------------------------------------------------------------------ shared windows

    def _shared(self, node: Aggregate) -> plans.Node:
        """Aggregate one or many windows of a stream in one pass. Keys and arguments are columns of the input."""
        key = next(self.keys)
        nodes = leaf_nodes(node.child)
        source = nodes[0]
        assert isinstance(source, Source)
        window = source.window
        if window.has_bounds:
            return self._shared_bounded(node, source, key)
        steps = scalar_steps(nodes[1:], source.schema)
        names = tuple(column_name(output.value) or "" for output in node.keys)
        where = None
        if window.kind == "rows":
            steps, where = _mark_instead_of_filter(steps)
            hashed = tuple(
                next(name for name in names if source_column(node.child, name) == part) for part in key or ()
            )
        else:
            hashed = key or ()
        read, rest = split_selection(source, steps)
        own = (
            {} if rest else read
        )  # columns that are only chosen are called as the stream calls them: all readers agree
        first = selection(source, read if rest else {name: name for name in read.values()})
        side = build_map_side(first, rest, pa.schema([]), where)
        schema = rest[-1].schema if rest else first.schema
        hashed, keys = (tuple(own.get(name, name) for name in group) for group in (hashed, names))
        number = self._reading(source, side, schema, hashed, read, rest)
        lengths = window.several or ((window.length, None),)
        kind: Literal["rows", "range"] = "rows" if window.kind == "rows" else "range"
        windows = tuple(
            plans.SharedWindow(kind, length, window.slide or 1, tag, window.offset) for length, tag in lengths
        )
        guard = None
        if sums := guarded_sums(node):
            arguments = (call.argument or "" for call in _calls(replace(node, calls=sums), own))
            guard = pa.schema([schema.field(name) for name in dict.fromkeys([*keys, *arguments])])
        return plans.Shared(number, windows, keys, _calls(node, own), nullable(node.schema), where, guard)

    def _shared_bounded(self, node: Aggregate, source: Source, key: LeafKey) -> plans.Node:
        """Aggregate windows with bounds in one pass: one row for each window and group."""
        shared = shared_leaf(node)
        assert shared is not None, "only such aggregates are shared"
        base, (steps, where) = without_bounds(source), self._steps_below(source, shared.leaf)
        read, rest = split_selection(base, steps)
        own = (
            {} if rest else read
        )  # columns that are only chosen are called as the stream calls them: all readers agree
        first = selection(base, read if rest else {name: name for name in read.values()})
        side = build_map_side(first, rest, pa.schema([]), where)
        schema = rest[-1].schema if rest else first.schema
        hashed = tuple(own.get(name, name) for name in key or ())
        number = self._reading(base, side, schema, hashed, read, rest)
        columns = {name: own.get(below, below) for name, below in shared.leaf.below_names.items()}
        windows = []
        for length, tag in source.window.several or ((source.window.length, None),):
            single = plan_window(replace(source, window=replace(source.window, length=length)))
            self.closings.append((number, *_closing(single)))
            windows.append(_shared_window(single, tag))
        tags = [node.tag] if node.tag else []
        kinds = {field.name: field.type for field in node.schema}
        named = [pa.field(name, kinds[name]) for name in shared.keys]
        bounds = [source.schema.field(name) for name in source.bounds]
        results = [pa.field(call.name, call.kind) for call in node.calls]
        plan = plans.Shared(
            number, tuple(windows), tuple(own.get(name, name) for name in shared.keys.values()), _calls(node, columns),
            nullable(pa.schema([*tags, *named, *bounds, *results])), where, None, source.bounds,
            source.declaration.time_scale,
        )  # fmt: skip
        outputs = [Column(name, column(shared.bounds.get(name, name), kinds[name])) for name in node.schema.names]
        return _scalars(plan, [Step(tuple(outputs))])

    # ------------------------------------------------------------------------------------------------ operators

    def node(self, node: Node) -> plans.Node:
        """Return the operators of a node and of all nodes below it."""
        if is_leaf(node):
            return self.leaf(node)
        match node:
            case Filter() | Project():
                nodes: list[Node] = []
                inner: Node = node
                while isinstance(inner, Filter | Project):
                    nodes.insert(0, inner)
                    inner = inner.child
                return _scalars(self.node(inner), scalar_steps(nodes, inner.schema))
            case Join():
                return self._join(node)
            case Asof():
                return self._asof(node)
            case Aggregate() if is_shared(node):
                return self._shared(node)
            case Aggregate():
                child = self.node(node.child)
                keys = tuple(key.name for key in node.keys)
                kept = replace(node, calls=tuple(call for call in node.calls if call.template is None))
                calls = tuple(replace(call, function=relation_aggregate(call.function)) for call in _calls(kept))
                if bags := plan_bags(node):
                    return plans.Recomputed(child, keys, calls, bags, nullable(node.schema))
                return plans.Aggregate(child, keys, calls, nullable(node.schema))
            case Distinct():
                child = self.node(node.child)
                return plans.Multiset("coalesce" if node.all else "distinct", (child,), child.schema)
            case Unnest():
                child = self.node(node.child)
                schema = nullable(pa.schema([*child.schema, pa.field(node.name, node.value.kind.value_type)]))
                return plans.Unnest(child, column_name(node.value) or "", schema)
            case SetOperation():
                return self._set_operation(node)
            case Over():
                return over_plan(node, self.node(node.child))
            case RunningOver():
                return running_plan(node, self.node(node.child))
            case Top():
                child = self.node(node.child)
                keys = tuple(column_name(key) or "" for key in node.keys)
                order = tuple(
                    plans.Order(column_name(key.value) or "", key.descending, key.nulls_first) for key in node.order
                )
                lasting = never_ends(node.child)
                return plans.Top(
                    child, keys, order, node.listed, node.limit, node.offset, node.ties, child.schema, lasting
                )
            case ToStream():
                child = self.node(node.child)
                if node.kind != "rstream" and needs_coalescing(node.child):
                    child = plans.Multiset("coalesce", (child,), child.schema)
                instants = tuple(map(self.instants, self.facts.triggers)) if node.kind == "rstream" else ()
                return plans.ToStream(node.kind, child, child.schema, None, instants)
            case _:
                raise AssertionError(f"{type(node).__name__} is a leaf")

    def _join(self, node: Join) -> plans.Node:
        left, right = self.node(node.left), self.node(node.right)
        keys = tuple((column_name(one) or "", column_name(other) or "") for one, other in node.equal)
        schema = left.schema if node.kind in ("semi", "anti") else pa.schema([*left.schema, *right.schema])
        limits = time_limits(node)
        if limits is not None:
            left, right = _limited(left, limits.left), _limited(right, limits.right)
        joined = plans.Join(node.kind, left, right, keys, node.residual.sql if node.residual else None, schema)
        return plans.Lasting(joined, schema) if limits is not None else joined

    def _asof(self, node: Asof) -> plans.Node:
        left, right = self.node(node.left), self.node(node.right)
        keys = tuple((column_name(one) or "", column_name(other) or "") for one, other in node.equal)
        order = tuple(plans.Order(column_name(key.value) or "", key.descending, key.nulls_first) for key in node.order)
        schema = nullable(pa.schema([*left.schema, *right.schema]))
        return plans.Asof(node.kind, left, right, keys, column_name(node.value) or "", order, node.strict, schema)

    def _set_operation(self, node: SetOperation) -> plans.Node:
        sides = self.node(node.left), self.node(node.right)
        schema = sides[0].schema
        if node.kind == "union":
            union = plans.UnionAll(sides, schema)
            return union if node.all else plans.Multiset("distinct", (union,), schema)
        if node.kind == "except":
            return plans.Multiset("except all" if node.all else "except", sides, schema)
        return plans.Multiset("intersect all" if node.all else "intersect", sides, schema)


def _limited(child: plans.Node, length: int | None) -> plans.Node:
    return child if length is None else plans.Limited(child, length, child.schema)


def _order(source: Source, prefix: str = "") -> tuple[plans.Order, ...]:
    """Return the order of a window by rows; the names of its columns get a prefix."""
    return tuple(plans.Order(f"{prefix}{name}", *way) for name, *way in source.window.order)


def _scalars(child: plans.Node, steps: Iterable[Step]) -> plans.Node:
    for step in steps:
        columns = tuple((output.name, output.value.sql) for output in step.columns)
        child = plans.Scalar(child, columns, step.where.sql if step.where else None, step.schema)
    return child


def _computable(steps: Sequence[Step]) -> Expression:
    """Return what EXPLAIN shows for the check of the steps above a window by partition."""
    conditions = [step.where for step in steps if step.where]
    values = [output.value for step in steps for output in step.columns if column_name(output.value) is None]
    sql = f"computable({', '.join(value.sql for value in [*conditions, *values])})"
    return Expression(sql, pa.bool_(), frozenset(), sql)


def _calls(node: Aggregate, names: Mapping[str, str] = MappingProxyType({})) -> tuple[plans.Call, ...]:
    """Return the calls of an aggregate; `names` maps columns to other names in the input."""

    def name(argument: Expression | None) -> str | None:
        own = column_name(argument) if argument else None
        return names.get(own, own) if own is not None else None

    return tuple(
        plans.Call(call.function, name(call.argument), call.distinct, call.text, name(call.second), call.constant)
        for call in node.calls
    )


def _mark_instead_of_filter(steps: Sequence[Step]) -> tuple[list[Step], str | None]:
    """Return the steps with a column `LET_THROUGH` instead of filters, and its name if there is one.

    Nothing is computed for rows that do not pass. The map side also marks rows whose expressions fail.
    """
    let_through: Expression | None = None
    marked: list[Step] = []
    for step in steps:
        flag = let_through
        if step.where is not None:
            where = step.where if flag is None else _only_where(step.where, flag)
            flag = replace(where, sql=f"coalesce((\n{where.sql}\n), false)", equality=None)
        if flag is None:
            if step.only_selects:
                marked.append(step)
                continue
            flag = Expression("true", pa.bool_(), frozenset(), "true")
        columns = [
            output if column_name(output.value) else Column(output.name, _only_where(output.value, flag))
            for output in step.columns
        ]
        marked.append(Step((*columns, Column(LET_THROUGH, flag))))
        let_through = column(LET_THROUGH, pa.bool_())
    return marked, LET_THROUGH if let_through is not None else None


def _only_where(value: Expression, flag: Expression) -> Expression:
    sql = f"CASE WHEN (\n{flag.sql}\n) THEN (\n{value.sql}\n) END"
    return replace(value, sql=sql, columns=value.columns | flag.columns, equality=None)


def _closing(window: plans.Bounded | plans.Session) -> tuple[int, int, int]:
    """Return (step, offset, length): how `Stage.closings` describes a window."""
    if isinstance(window, plans.Session):
        return 1, 0, window.gap
    return window.length if window.kind == "cumulate" else window.step, window.offset, window.length


def _shared_window(window: plans.Bounded | plans.Session, tag: int | str | None) -> plans.SharedWindow:
    if isinstance(window, plans.Session):
        return plans.SharedWindow("session", window.gap, window.gap, tag, 0, window.keep)
    kind: Literal["hop", "cumulate"] = "cumulate" if window.kind == "cumulate" else "hop"
    return plans.SharedWindow(kind, window.length, window.step, tag, window.offset, window.keep)


def _has_global_aggregate(node: plans.Node) -> bool:
    """Return whether a plan has an aggregate without keys, which has a row also over an empty input."""
    aggregates = plans.Aggregate | plans.Recomputed | plans.Shared
    own = isinstance(node, aggregates) and not node.keys and not getattr(node, "bounds", ())
    return own or any(_has_global_aggregate(child) for child in plans.children(node))
