"""Where a plan runs: by which columns the tuples of every leaf are hashed, so that all that must meet are in one bucket,
and where it is cut because that cannot be done at once.

A *leaf* is a source with the filters, projections and tables directly upon it. A join, an aggregate, DISTINCT, a set operation
and the difference that Istream and Dstream take let tuples *meet*: those with equal keys. A key can be followed down to
the leaves as long as every meeting on the way is by that key too; then all of these operators run in one stage, in all
buckets. Where it cannot, the child is cut off: it becomes a stage of its own with a stream of lifetimes in between.
What has no key (an aggregate over everything, a join without an equality, Rstream) runs in one bucket, and what can be
spread below it is cut off. Of several possible keys the one with the fewest cuts wins; all others that fit are added.

Expects a plan that `rewriting` has been over: keys are columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

import pyarrow as pa

from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DeclarationError, Mistake
from hayase.core.keys import check_key_type
from hayase.cql.columns import column, column_name
from hayase.cql.logical import (
    Aggregate,
    Distinct,
    Expression,
    Filter,
    Join,
    Node,
    Project,
    SetOperation,
    Source,
    TableJoin,
    ToStream,
    Window,
    children,
)

__all__ = [
    "ANYWHERE",
    "Fragment",
    "LeafKey",
    "check_keys",
    "cut",
    "is_leaf",
    "leaves",
    "needs_coalescing",
    "source_of",
    "with_children",
]

LeafKey = tuple[str, ...] | None
"""The columns by which a leaf's rows are hashed: none of them, all rows in one bucket; ANYWHERE, any bucket will do."""
ANYWHERE: LeafKey = None
_MAX_KEY_COLUMNS = 4
"""More columns cost more to hash and spread rows no better."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a query that is one stage: its plan, and the key of each leaf, from left to right."""

    name: str
    root: Node
    keys: tuple[LeafKey, ...]


def cut(query: str, root: Node, between: Callable[[str, pa.Schema], StreamDeclaration]) -> tuple[Fragment, ...]:
    """The fragments of a query, each after those that it reads; the last one is the query's own.

    `between` declares the stream in which a fragment of that name leaves its rows.
    """
    placed = _Cutter(query, between).place(root)
    numbers = {each.name: f"_{query}_{number}" for number, each in enumerate(placed.cuts, 1)}
    fragments = (*placed.cuts, Fragment(query, placed.node, placed.keys))
    return tuple(
        replace(each, name=numbers.get(each.name, each.name), root=_rename_sources(each.root, numbers))
        for each in fragments
    )


# ---------------------------------------------------------------------------------------------------- leaves


def is_leaf(node: Node) -> bool:
    """Whether a node is a source with nothing but filters, projections and tables upon it."""
    return isinstance(node, Source) or (isinstance(node, Filter | Project | TableJoin) and is_leaf(node.child))


def leaves(node: Node) -> Iterator[Node]:
    """The leaves of a plan, from left to right."""
    if is_leaf(node):
        yield node
    else:
        for child in children(node):
            yield from leaves(child)


def source_of(leaf: Node) -> Source:
    """The source of a leaf."""
    while not isinstance(leaf, Source):
        (leaf,) = children(leaf)
    return leaf


def with_children(node: Node, inner: Sequence[Node]) -> Node:
    """The node over other children."""
    match node:
        case Source():
            return node
        case Join() | SetOperation():
            return replace(node, left=inner[0], right=inner[1])
        case _:
            return replace(node, child=inner[0])


def _rename_sources(node: Node, names: dict[str, str]) -> Node:
    if not isinstance(node, Source):
        return with_children(node, [_rename_sources(child, names) for child in children(node)])
    name = names.get(node.declaration.name)
    return replace(node, declaration=replace(node.declaration, name=name), alias=name) if name else node


def needs_coalescing(node: Node) -> bool:
    """Whether in a relation a row may end at the very instant at which an equal one begins: Istream and Dstream, which
    compare with the instant before, must not tell of these."""
    return not _never_ends(node) and not _is_coalesced(node)


def _never_ends(node: Node) -> bool:
    """Whether no row of a relation ever ends."""
    match node:
        case Source():
            stream = node.declaration
            return node.window.kind == "unbounded" and not stream.lifetimes and stream.changes is None
        case Join():
            return node.kind in ("inner", "semi") and _never_ends(node.left) and _never_ends(node.right)
        case Aggregate() | ToStream():
            return False
        case SetOperation():
            return node.kind != "except" and _never_ends(node.left) and _never_ends(node.right)
        case _:
            return _never_ends(node.child)


def _is_coalesced(node: Node) -> bool:
    """Whether a row that stays is never told as two: aggregates, DISTINCT and set operations see to that."""
    match node:
        case Aggregate() | Distinct():
            return True
        case SetOperation():
            return not (node.kind == "union" and node.all)
        case Filter():
            return _is_coalesced(node.child)
        case Project():
            shown = {column_name(each.value) for each in node.columns}
            return _is_coalesced(node.child) and shown.issuperset(node.child.schema.names)
        case _:
            return False


# ---------------------------------------------------------------------------------------------------- meeting


def _is_stateful(node: Node) -> bool:
    """Whether a node lets tuples meet, and so has state."""
    match node:
        case Join() | Aggregate() | Distinct():
            return True
        case SetOperation():
            return not (node.kind == "union" and node.all)
        case ToStream():
            return node.kind == "rstream" or needs_coalescing(node.child)
        case _:
            return False


def _possible_keys(node: Node) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The keys by which tuples meet: for each its column in every child, and the columns of the result that equal it."""
    match node:
        case Join():
            found: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
            for one, other in node.equal:
                pair = _key_column(one), _key_column(other)
                shown = {"inner": pair, "right": pair[1:], "full": ()}.get(node.kind, pair[:1])
                found.append((pair, shown))
            return found
        case Aggregate():
            return [((_key_column(each.value),), (each.name,)) for each in node.keys]
        case ToStream(kind="rstream"):
            return []
        case _:
            width = len(children(node))
            return [((name,) * width, (name,)) for name in node.schema.names]


def _key_column(key: Expression) -> str:
    name = column_name(key)
    assert name is not None, f"{key.sql} has no name; see cql.rewrites.name_keys"
    return name


# ---------------------------------------------------------------------------------------------------- cutting


@dataclass(frozen=True, slots=True)
class _Placement:
    """A plan in which cuts are made, the keys of its leaves, and what was cut off, sources first."""

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
        """The best place for a plan that may run by any key."""
        if is_leaf(node):
            return _Placement(node, (_default_key(node),))
        if not _is_stateful(node):
            return _combine(node, [self.place(child) for child in children(node)])
        meetings = [columns for columns, _ in _possible_keys(node)]
        if not meetings:
            return _combine(node, [self._place_in_one_bucket(child) for child in children(node)])
        best = min((self._place_by(node, columns) for columns in meetings), key=lambda each: len(each.cuts))
        fitting = [self._place_by(best.node, columns) for columns in meetings]
        keys = [each.keys for each in fitting if not each.cuts]
        return _Placement(best.node, tuple(_combined_key(each) for each in zip(*keys)), best.cuts)

    def _place_by(self, node: Node, columns: Sequence[str]) -> _Placement:
        """The plan by a key of which each child has a column."""
        return _combine(node, [self._place_or_cut(child, name) for child, name in zip(children(node), columns)])

    def _place_or_cut(self, node: Node, column: str) -> _Placement:
        """The plan by a column of its result, cut off if that saves cuts."""
        below = self._place_by_column(node, column)
        if below is not None and not below.cuts:
            return below
        off = self._cut_off(node)
        return below if below is not None and len(below.cuts) <= len(off.cuts) else replace(off, keys=((column,),))

    def _place_by_column(self, node: Node, column: str) -> _Placement | None:
        """The plan by a column of its result, if that column can be followed to all leaves."""
        if is_leaf(node):
            name = _hash_column(node, column)
            return None if name is None else _Placement(node, ((name,),))
        if isinstance(node, Project):
            inner = next((column_name(each.value) for each in node.columns if each.name == column), None)
            below = self._place_by_column(node.child, inner) if inner is not None else None
            return None if below is None else _combine(node, [below])
        if isinstance(node, Filter):
            below = self._place_by_column(node.child, column)
            return None if below is None else _combine(node, [below])
        if not _is_stateful(node):
            return _combine(node, [self._place_or_cut(child, column) for child in children(node)])
        found = [self._place_by(node, columns) for columns, shown in _possible_keys(node) if column in shown]
        return min(found, key=lambda each: len(each.cuts), default=None)

    def _place_in_one_bucket(self, node: Node) -> _Placement:
        """The plan in one bucket; what can be spread over many is cut off."""
        if is_leaf(node):
            return _Placement(node, ((),))
        base = node
        while isinstance(base, Filter | Project):
            base = base.child
        if not _is_stateful(base):
            return _combine(node, [self._place_in_one_bucket(child) for child in children(node)])
        settled = self.place(node)
        return replace(self._cut_off(node), keys=((),)) if settled.is_spread else settled

    def _cut_off(self, node: Node) -> _Placement:
        """The plan as a stage of its own, and a source that reads its result."""
        settled = self.place(node)
        name = f"_{self._query}_0{next(self._numbers)}"  # until it is known which cuts are made
        source = Source(self._between(name, node.schema), name, Window("unbounded"), node.schema)
        return _Placement(source, (ANYWHERE,), (*settled.cuts, Fragment(name, settled.node, settled.keys)))


def _combine(node: Node, placements: Sequence[_Placement]) -> _Placement:
    keys = tuple(key for each in placements for key in each.keys)
    return _Placement(
        with_children(node, [each.node for each in placements]),
        keys,
        tuple(one for each in placements for one in each.cuts),
    )


def _combined_key(keys: Sequence[LeafKey]) -> LeafKey:
    """A leaf's columns of several keys: some spread it well enough, and all leaves have those of the same keys."""
    return tuple(name for key in keys[:_MAX_KEY_COLUMNS] for name in key or ())


def _default_key(leaf: Node) -> LeafKey:
    """How a leaf is spread when nobody above it asks for a key."""
    source = source_of(leaf)
    if source.window.partition:
        return tuple(f"{source.alias}.{name}" for name in source.window.partition)
    if source.declaration.changes is not None:
        return tuple(each.name for each in source.schema if _can_be_key(each.type))[:_MAX_KEY_COLUMNS]
    return ANYWHERE


def _hash_column(leaf: Node, column: str) -> str | None:
    """The column by which a leaf must be hashed, so that it is by a column of its result.

    Of a window by partition and of a stream of changes, that is a column of the source: one of the partition's, so that
    the window's tuples are together.
    """
    source = source_of(leaf)
    if not source.window.partition and source.declaration.changes is None:
        return column
    name: str | None = column
    while not isinstance(leaf, Source):
        if isinstance(leaf, Project):
            name = next((column_name(each.value) for each in leaf.columns if each.name == name), None)
        (leaf,) = children(leaf)
    allowed = [f"{source.alias}.{each}" for each in source.window.partition] or source.schema.names
    return name if name in allowed else None


# ---------------------------------------------------------------------------------------------------- types


def check_keys(root: Node) -> list[Mistake]:
    """Values that would have to be compared with each other and have no canonical form, where they stand."""
    found = [_mistake(what, one) for what, one in _compared_expressions(root) if not _can_be_key(one.kind)]
    return list(dict.fromkeys(found))


def _can_be_key(kind: pa.DataType) -> bool:
    try:
        check_key_type(kind)
    except DeclarationError:
        return False
    return True


def _mistake(what: str, key: Expression) -> Mistake:
    hint = "use its atomic parts, or cast it to string"
    return Mistake(f"{what} compares values, and a {key.kind} cannot be compared", hint, None, key.line, key.column)


def _compared_expressions(node: Node) -> Iterator[tuple[str, Expression]]:
    match node:
        case Join():
            yield from (("a join", side) for pair in node.equal for side in pair)
        case Aggregate():
            yield from (("GROUP BY", each.value) for each in node.keys)
            for call in node.calls:
                if call.distinct and call.argument:
                    yield "DISTINCT", call.argument
        case Distinct():
            yield from (("DISTINCT", each) for each in _output_expressions(node.child))
        case SetOperation() if _is_stateful(node):
            yield from ((node.kind.upper(), each) for side in children(node) for each in _output_expressions(side))
        case ToStream() if _is_stateful(node) and node.kind != "rstream":
            yield from ((node.kind.capitalize(), each) for each in _output_expressions(node.child))
    for child in children(node):
        yield from _compared_expressions(child)
    if isinstance(node, Source) and node.declaration.changes is not None:
        yield from (
            ("a relation of changes", replace(each, line=node.line, column=node.column))
            for each in _output_expressions(node)
        )
    elif isinstance(node, Source) and node.window.partition:
        names = {f"{node.alias}.{each}" for each in node.window.partition}
        partition = (each for each in _output_expressions(node) if each.columns <= names)
        yield from (("Partition By", replace(each, line=node.line, column=node.column)) for each in partition)


def _output_expressions(node: Node) -> list[Expression]:
    """The columns of a relation, with the places where they were written."""
    match node:
        case Project():
            return [each.value for each in node.columns]
        case Filter() | Distinct():
            return _output_expressions(node.child)
        case SetOperation():
            return _output_expressions(node.left)
        case Aggregate():
            return [each.value for each in node.keys]
        case _:
            return [column(each.name, each.type) for each in node.schema]
