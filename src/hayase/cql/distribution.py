"""Distribution of a plan: by which columns the rows of every leaf are hashed, and where the plan is cut into stages.

A *leaf* is a source with the filters, projections and table lookups directly above it. A join, an aggregate, DISTINCT, a set
operation, and the difference that Istream and Dstream take are *stateful*: they bring tuples with equal keys together, so
these must be in one bucket. If every stateful operator down to the leaves can use the same key, all of them run in one stage,
in all buckets. Otherwise the child is cut off: it becomes a stage of its own, with a stream of lifetimes in between.
An operator without a key (an aggregate over everything, a join without an equality, Rstream) runs in one bucket, and what can
be distributed below it is cut off. Of several possible keys the one with the fewest cuts is taken; others that fit are added.

The plan must have been rewritten (`cql.rewrites`), so that all keys are columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import Mistake
from hayase.core.keys import is_key_type
from hayase.cql.bounded_leaves import hash_column, split_leaf
from hayase.cql.columns import column, column_name
from hayase.cql.logical import (
    Aggregate,
    Asof,
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
    TableJoin,
    Top,
    ToStream,
    Unnest,
    Window,
    children,
)
from hayase.cql.record_streams import is_one_stream, is_stream
from hayase.cql.steps import leaf_nodes, source_column

__all__ = [
    "ANYWHERE",
    "Fragment",
    "LeafKey",
    "check_keys",
    "cut",
    "is_leaf",
    "leaves",
    "needs_coalescing",
    "never_ends",
    "source_of",
    "with_children",
]

LeafKey = tuple[str, ...] | None
"""The columns by which a leaf's rows are hashed. `()`: all rows are in one bucket. ANYWHERE: a row may be in any bucket."""
ANYWHERE: LeafKey = None
_MAX_KEY_COLUMNS = 4
"""More columns take longer to hash and do not distribute rows better."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a query that runs as one stage: its plan, and the key of every leaf, from left to right."""

    name: str
    root: Node
    keys: tuple[LeafKey, ...]


def cut(
    query: str,
    root: Node,
    between: Callable[[str, pa.Schema], StreamDeclaration],
    name: str | None = None,
    first: int = 1,
) -> tuple[Fragment, ...]:
    """Cut a query into fragments, each after those that it reads. The last one gives the result and has the query's name.

    `between(name, schema)` declares the stream to which the fragment of that name writes its rows. For a stream inside of the
    query, `name` is that of the stream, and `first` is the first number for fragments that is not taken.
    """
    placement = _Cutter(query, between).place(root)
    numbers = {fragment.name: f"_{query}_{number}" for number, fragment in enumerate(placement.cuts, first)}
    fragments = (*placement.cuts, Fragment(name or query, placement.node, placement.keys))
    return tuple(
        replace(fragment, name=numbers.get(fragment.name, fragment.name), root=_rename_sources(fragment.root, numbers))
        for fragment in fragments
    )


# ---------------------------------------------------------------------------------------------------- leaves


def is_leaf(node: Node) -> bool:
    """Return whether a node is a source, with nothing but filters, projections and table lookups above it."""
    return isinstance(node, Source) or (isinstance(node, Filter | Project | TableJoin) and is_leaf(node.child))


def leaves(node: Node) -> Iterator[Node]:
    """Yield the leaves of a plan, from left to right."""
    if is_leaf(node):
        yield node
    else:
        for child in children(node):
            yield from leaves(child)


def source_of(leaf: Node) -> Source:
    """Return the source of a leaf."""
    while not isinstance(leaf, Source):
        (leaf,) = children(leaf)
    return leaf


def with_children(node: Node, inner: Sequence[Node]) -> Node:
    """Return the node with other children."""
    match node:
        case Source():
            return node
        case Join() | Asof() | SetOperation():
            return replace(node, left=inner[0], right=inner[1])
        case _:
            return replace(node, child=inner[0])


def _rename_sources(node: Node, names: dict[str, str]) -> Node:
    if not isinstance(node, Source):
        return with_children(node, [_rename_sources(child, names) for child in children(node)])
    name = names.get(node.declaration.name)
    return replace(node, declaration=replace(node.declaration, name=name), alias=name) if name else node


def needs_coalescing(node: Node) -> bool:
    """Return whether a row of a relation may end at the very instant at which an equal one begins.

    Istream and Dstream compare an instant with the one before, so they must not emit such rows.
    """
    return not never_ends(node) and not _is_coalesced(node)


def never_ends(node: Node) -> bool:
    """Return whether no row of a relation ever ends."""
    match node:
        case Source():
            stream = node.declaration
            return node.window.kind == "unbounded" and not stream.lifetimes and stream.changes is None
        case Join():
            return node.kind in ("inner", "semi") and never_ends(node.left) and never_ends(node.right)
        case Aggregate() | Asof() | Top() | Over() | ToStream():
            return False
        case SetOperation():
            return node.kind != "except" and never_ends(node.left) and never_ends(node.right)
        case _:
            return never_ends(node.child)


def _is_coalesced(node: Node) -> bool:
    """Return whether a row that stays is always one tuple, as aggregates, DISTINCT and set operations guarantee."""
    match node:
        case Aggregate() | Distinct():
            return True
        case SetOperation():
            return not (node.kind == "union" and node.all)
        case Filter():
            return _is_coalesced(node.child)
        case Project():
            names = {column_name(column.value) for column in node.columns}
            return _is_coalesced(node.child) and names.issuperset(node.child.schema.names)
        case _:
            return False


# ---------------------------------------------------------------------------------------------------- state and keys


def _is_stateful(node: Node) -> bool:
    """Return whether an operator brings tuples with equal keys together, and so has state."""
    match node:
        case Join() | Asof() | Aggregate() | Distinct() | Over() | RunningOver():
            return True
        case SetOperation():
            return not (node.kind == "union" and node.all)
        case Top():
            return not node.local
        case ToStream():
            return node.kind == "rstream" or needs_coalescing(node.child)
        case _:
            return False


def _possible_keys(node: Node) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return the keys of a stateful operator: for each its column in every child, and the columns of the result equal to it."""
    match node:
        case Join() | Asof():
            keys: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
            for left, right in node.equal:
                pair = _key_column(left), _key_column(right)
                equal_columns = {"inner": pair, "right": pair[1:], "full": ()}.get(node.kind, pair[:1])
                if not (_is_bound(node.left, pair[0]) or _is_bound(node.right, pair[1])):
                    keys.append((pair, equal_columns))
            return keys
        case Aggregate():
            keys = [((_key_column(key.value),), (key.name,)) for key in node.keys]
            return [key for key in keys if not _is_bound(node.child, key[0][0])]
        case Top() | Over() | RunningOver():
            return [((name,), (name,)) for name in map(_key_column, node.keys)]
        case ToStream(kind="rstream"):
            return []
        case _:
            inner = children(node)
            names = [name for name in node.schema.names if not any(_is_bound(child, name) for child in inner)]
            return [((name,) * len(inner), (name,)) for name in names]


def _is_bound(node: Node, name: str) -> bool:
    """Return whether a column depends on the bounds of a window, so that no map side can hash by it."""
    if not is_leaf(node) or not source_of(node).window.has_bounds:
        return False
    return name not in split_leaf(leaf_nodes(node)).below_names


def _key_column(key: Expression) -> str:
    name = column_name(key)
    assert name is not None, f"{key.sql} has no name; see cql.rewrites.name_keys"
    return name


# ---------------------------------------------------------------------------------------------------- cutting


@dataclass(frozen=True, slots=True)
class _Placement:
    """A plan with its cuts made, the keys of its leaves, and the fragments that were cut off, sources first."""

    node: Node
    keys: tuple[LeafKey, ...]
    cuts: tuple[Fragment, ...] = ()

    @property
    def is_spread(self) -> bool:
        """Whether it runs in more than one bucket."""
        return any(key != () for key in self.keys)


class _Cutter:
    def __init__(self, query: str, between: Callable[[str, pa.Schema], StreamDeclaration]):
        self._query, self._between, self._numbers = query, between, count(1)

    def place(self, node: Node) -> _Placement:
        """Return the best placement of a plan that may use any key."""
        if is_leaf(node):
            return _Placement(node, (_default_key(node),))
        if isinstance(node, ToStream) and is_stream(node.child) and not is_one_stream(node.child):
            return _Placement(node, tuple(() for _ in leaves(node)))  # in the order of times, then of the streams
        if not _is_stateful(node):
            return _combine(node, [self.place(child) for child in children(node)])
        possible_keys = [columns for columns, _ in _possible_keys(node)]
        if isinstance(node, RunningOver):
            return self._place_running(node, possible_keys)
        if isinstance(node, Top) and not possible_keys:
            return _combine(node, [self._place_below_top(node)])
        if not possible_keys:
            return _combine(node, [self._place_in_one_bucket(child) for child in children(node)])
        best = min(
            (self._place_by(node, columns) for columns in possible_keys), key=lambda placement: len(placement.cuts)
        )
        placements = [self._place_by(best.node, columns) for columns in possible_keys]
        keys = [placement.keys for placement in placements if not placement.cuts]
        return _Placement(best.node, tuple(_combined_key(leaf_keys) for leaf_keys in zip(*keys)), best.cuts)

    def _place_by(self, node: Node, columns: Sequence[str]) -> _Placement:
        """Place the plan by a key that is one of these columns in every child."""
        return _combine(node, [self._place_or_cut(child, name) for child, name in zip(children(node), columns)])

    def _place_or_cut(self, node: Node, column: str) -> _Placement:
        """Place the plan by a column of its result, or cut it off if that needs fewer cuts."""
        below = self._place_by_column(node, column)
        if below is not None and not below.cuts:
            return below
        cut_off = self._cut_off(node)
        return (
            below if below is not None and len(below.cuts) <= len(cut_off.cuts) else replace(cut_off, keys=((column,),))
        )

    def _place_by_column(self, node: Node, column: str) -> _Placement | None:
        """Place the plan by a column of its result. Return None if the column cannot be traced to all leaves."""
        if is_leaf(node):
            name = _hash_column(node, column)
            return None if name is None else _Placement(node, ((name,),))
        if isinstance(node, Project):
            inner = next((column_name(output.value) for output in node.columns if output.name == column), None)
            below = self._place_by_column(node.child, inner) if inner is not None else None
            return None if below is None else _combine(node, [below])
        if isinstance(node, Filter | Unnest):
            is_element = isinstance(node, Unnest) and column == node.name
            below = self._place_by_column(node.child, column) if not is_element else None
            return None if below is None else _combine(node, [below])
        if not _is_stateful(node):
            return _combine(node, [self._place_or_cut(child, column) for child in children(node)])
        placements = [
            self._place_by(node, columns) for columns, equal_columns in _possible_keys(node) if column in equal_columns
        ]
        if isinstance(node, RunningOver):
            placements = [placement for placement in placements if not placement.cuts]
        return min(placements, key=lambda placement: len(placement.cuts), default=None)

    def _place_in_one_bucket(self, node: Node) -> _Placement:
        """Place the plan in one bucket, and cut off what can be distributed."""
        if is_leaf(node):
            return _Placement(node, ((),))
        base = node
        while isinstance(base, Filter | Project):
            base = base.child
        if not _is_stateful(base):
            return _combine(node, [self._place_in_one_bucket(child) for child in children(node)])
        placement = self.place(node)
        return replace(self._cut_off(node), keys=((),)) if placement.is_spread else placement

    def _place_below_top(self, node: Top) -> _Placement:
        """Place what the first rows of all are taken from. If it is distributed, the first rows of each bucket suffice."""
        base = node.child
        while isinstance(base, Filter | Project):
            base = base.child
        if node.limit is None or not _is_stateful(base) or not self.place(node.child).is_spread:
            return self._place_in_one_bucket(node.child)
        local = replace(node, limit=node.limit + node.offset, offset=0, local=True)
        return replace(self._cut_off(local), keys=((),))

    def _place_running(self, node: RunningOver, possible_keys: Sequence[Sequence[str]]) -> _Placement:
        """Place window functions over a stream. They need the order of the stream, so nothing below them is cut off."""
        placements = [self._place_by(node, columns) for columns in possible_keys]
        keys = [placement.keys for placement in placements if not placement.cuts]
        if keys:
            return _Placement(node, tuple(_combined_key(leaf_keys) for leaf_keys in zip(*keys)))
        return _Placement(node, tuple(() for _ in leaves(node)))

    def _cut_off(self, node: Node) -> _Placement:
        """Make the plan a fragment of its own. Return a source that reads its result."""
        placement = self.place(node)
        name = f"_{self._query}_0{next(self._numbers)}"  # `cut` numbers the fragments once all cuts are known
        source = Source(self._between(name, node.schema), name, Window("unbounded"), node.schema)
        return _Placement(source, (ANYWHERE,), (*placement.cuts, Fragment(name, placement.node, placement.keys)))


def _combine(node: Node, placements: Sequence[_Placement]) -> _Placement:
    keys = tuple(key for placement in placements for key in placement.keys)
    return _Placement(
        with_children(node, [placement.node for placement in placements]),
        keys,
        tuple(fragment for placement in placements for fragment in placement.cuts),
    )


def _combined_key(keys: Sequence[LeafKey]) -> LeafKey:
    """Combine a leaf's columns of several keys. All leaves take the same keys, at most `_MAX_KEY_COLUMNS` of them."""
    return tuple(name for key in keys[:_MAX_KEY_COLUMNS] for name in key or ())


def _default_key(leaf: Node) -> LeafKey:
    """Return the key of a leaf when no operator above it needs one."""
    source = source_of(leaf)
    if source.window.kind == "session":
        return tuple(key.name for key in source.window.sessions)
    if source.window.has_bounds:
        return ANYWHERE
    if source.window.partition:
        return tuple(f"{source.alias}.{name}" for name in source.window.partition)
    if source.declaration.changes is not None:
        return tuple(field.name for field in source.schema if is_key_type(field.type))[:_MAX_KEY_COLUMNS]
    return ANYWHERE


def _hash_column(leaf: Node, column: str) -> str | None:
    """Return the column by which a leaf must be hashed so that its result is distributed by `column`.

    For a window by partition, this must be a column of the partition, so that the tuples of a window are in one bucket. For a
    stream of changes, it must be a column of the source.
    """
    source = source_of(leaf)
    if source.window.has_bounds:
        return hash_column(leaf_nodes(leaf), column)
    if not source.window.partition and source.declaration.changes is None:
        return column
    name = source_column(leaf, column)
    allowed = [f"{source.alias}.{part}" for part in source.window.partition] or source.schema.names
    return name if name in allowed else None


# ---------------------------------------------------------------------------------------------------- types


def check_keys(root: Node) -> list[Mistake]:
    """Return a mistake for every value that the plan must compare but whose type has no canonical form."""
    mistakes = [_mistake(what, value) for what, value in _compared_expressions(root) if not is_key_type(value.kind)]
    return list(dict.fromkeys(mistakes))


def _mistake(what: str, key: Expression) -> Mistake:
    hint = "use its atomic parts, or cast it to string"
    return Mistake(f"{what} compares values, and a {key.kind} cannot be compared", hint, None, key.line, key.column)


def _compared_expressions(node: Node) -> Iterator[tuple[str, Expression]]:
    match node:
        case Join():
            yield from (("a join", side) for pair in node.equal for side in pair)
        case Asof():
            yield from (("an ASOF join", side) for pair in node.equal for side in pair)
        case Aggregate():
            yield from (("GROUP BY", key.value) for key in node.keys)
            for call in node.calls:
                if call.distinct and call.argument:
                    yield "DISTINCT", call.argument
        case Distinct(all=False):
            yield from (("DISTINCT", value) for value in _output_expressions(node.child))
        case SetOperation() if _is_stateful(node):
            yield from ((node.kind.upper(), value) for side in children(node) for value in _output_expressions(side))
        case ToStream() if _is_stateful(node) and node.kind != "rstream":
            yield from ((node.kind.capitalize(), value) for value in _output_expressions(node.child))
    for child in children(node):
        yield from _compared_expressions(child)
    if isinstance(node, Source) and node.declaration.changes is not None:
        yield from (
            ("a relation of changes", replace(value, line=node.line, column=node.column))
            for value in _output_expressions(node)
        )
    elif isinstance(node, Source) and node.window.partition:
        names = {f"{node.alias}.{name}" for name in node.window.partition}
        partition = (value for value in _output_expressions(node) if value.columns <= names)
        yield from (("Partition By", replace(value, line=node.line, column=node.column)) for value in partition)


def _output_expressions(node: Node) -> list[Expression]:
    """Return the columns of a relation, with their places in the query's text."""
    match node:
        case Project():
            return [output.value for output in node.columns]
        case Filter() | Distinct() | Top():
            return _output_expressions(node.child)
        case SetOperation():
            return _output_expressions(node.left)
        case Aggregate():
            return [key.value for key in node.keys]
        case _:
            return [column(field.name, field.type) for field in node.schema]
