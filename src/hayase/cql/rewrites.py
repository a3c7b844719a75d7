"""Rewrites of a logical plan, each of which keeps what it means: filters go down, joins find their equalities, columns
that nobody reads go away, and keys and arguments get names.

The windows are computed over all tuples of a stream whatever is filtered, so a filter may go below them; how a window by
partition is kept right is the staging's business. A condition never goes below the side that an outer join pads with NULLs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from hayase.core.errors import DeclarationError
from hayase.core.expressions import cast
from hayase.core.keys import check_key_type
from hayase.cql.columns import both, column, kept, plain, plain_columns, quoted, renamed
from hayase.cql.logical import (
    Aggregate,
    Column,
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
)

__all__ = ["RULES", "name_keys", "prune", "push_down", "rewrite"]


def rewrite(node: Node) -> Node:
    """The plan after all rules."""
    for rule in RULES:
        node = rule(node)
    return node


# ---------------------------------------------------------------------------------------------------- filters


def push_down(node: Node) -> Node:
    """Every condition as near to the streams as it may stand."""
    return _pushed(node, ())


def _pushed(node: Node, wanted: Sequence[Expression]) -> Node:
    """The node below the conditions `wanted`, over its columns."""
    match node:
        case Source():
            return _filtered(node, wanted)
        case Filter():
            return _pushed(node.child, [node.predicate, *wanted])
        case Project():
            names = plain_columns(node.columns)
            down, up = _split(wanted, names)
            return _filtered(Project(_pushed(node.child, [renamed(each, names) for each in down]), node.columns), up)
        case TableJoin():
            own = {name: name for name in node.child.schema.names}
            names = own | (plain_columns(node.keys) if node.kind == "inner" else {})
            down, up = _split(wanted, names)
            below = _pushed(node.child, [renamed(each, names) for each in down])
            return _filtered(replace(node, child=below), up)
        case Aggregate():
            names = plain_columns(node.keys)
            down, up = _split(wanted, names)
            below = _pushed(node.child, [renamed(each, names) for each in down])
            return _filtered(replace(node, child=below), up)
        case Distinct():
            return Distinct(_pushed(node.child, wanted))
        case SetOperation():
            return SetOperation(node.kind, node.all, _pushed(node.left, wanted), _pushed(node.right, wanted))
        case Join(kind="inner"):
            return _joined(node, wanted)
        case Join():
            return _outer_joined(node, wanted)
        case ToStream():
            return ToStream(node.kind, _pushed(node.child, ()))


def _filtered(node: Node, conditions: Iterable[Expression]) -> Node:
    for each in conditions:
        node = Filter(node, each)
    return node


def _split(conditions: Iterable[Expression], names: Iterable[str]) -> tuple[list[Expression], list[Expression]]:
    """Conditions over these columns alone, and the others. One without any column stays where it is."""
    known = set(names)
    inside: list[Expression] = []
    outside: list[Expression] = []
    for each in conditions:
        (inside if each.columns and each.columns <= known else outside).append(each)
    return inside, outside


_PADDED = {"left": ("right",), "right": ("left",), "full": ("left", "right"), "semi": (), "anti": ()}
"""The sides that get NULLs where nobody is met: conditions above may not go below them."""
_CHOOSING = {"left": ("right",), "right": ("left",), "full": (), "semi": ("left", "right"), "anti": ("right",)}
"""The sides on which a condition of the join itself only chooses whom to meet."""


def _outer_joined(node: Join, wanted: Sequence[Expression]) -> Node:
    down: dict[str, list[Expression]] = {"left": [], "right": []}
    sides = {"left": node.left.schema.names, "right": node.right.schema.names}
    rest = list(wanted)
    for side, names in sides.items():
        if side not in _PADDED[node.kind]:
            down[side], rest = _split(rest, names)
    equal = list(node.equal)
    residual: list[Expression] = []
    for each in [node.residual] if node.residual else []:
        pair = _across(each, set(sides["left"]), set(sides["right"]))
        chooses = [name for name in _CHOOSING[node.kind] if _split([each], sides[name])[0]]
        if pair:
            equal.append(pair)
        elif chooses:
            down[chooses[0]].append(each)
        else:
            residual.append(each)
    usable = [pair for pair in equal if _comparable(*pair)]
    residual += [_equality(*pair) for pair in equal if pair not in usable]
    left, right = _pushed(node.left, down["left"]), _pushed(node.right, down["right"])
    return _filtered(Join(node.kind, left, right, tuple(usable), both(residual)), rest)


# ---------------------------------------------------------------------------------------------------- inner joins


def _joined(node: Join, wanted: Sequence[Expression]) -> Node:
    """All relations that are inner-joined here, one after the other: in the written order, but a relation that is equal in
    something to what is already joined goes first."""
    relations: list[Node] = []
    conditions: list[Expression] = []
    _flatten(node, relations, conditions)
    conditions += wanted
    owner = {name: number for number, each in enumerate(relations) for name in each.schema.names}
    own: list[list[Expression]] = [[] for _ in relations]
    shared: list[Expression] = []
    above: list[Expression] = []
    for each in conditions:
        owners = {owner[name] for name in each.columns}
        (own[owners.pop()] if len(owners) == 1 else shared if owners else above).append(each)

    def columns(numbers: Iterable[int]) -> set[str]:
        return {name for name, number in owner.items() if number in numbers}

    pairs = [each.equality for each in shared if each.equality and _comparable(*each.equality)]
    linked = [{owner[name] for name in one.columns} | {owner[name] for name in two.columns} for one, two in pairs]
    joined = [min(min(each) for each in linked)] if linked else [0]
    result = _pushed(relations[joined[0]], own[joined[0]])
    left = [number for number in range(len(relations)) if number not in joined]
    while left:
        known = columns(joined)
        chosen = next((each for each in left if any(_across(one, known, columns([each])) for one in shared)), left[0])
        left.remove(chosen)
        joined.append(chosen)
        now = columns(joined)
        ready = [each for each in shared if each.columns <= now]
        shared = [each for each in shared if each not in ready]
        found = [(each, _across(each, known, columns([chosen]))) for each in ready]
        equal = tuple(pair for _, pair in found if pair)
        residual = both([each for each, pair in found if not pair])
        result = Join("inner", result, _pushed(relations[chosen], own[chosen]), equal, residual)
    return _filtered(result, above)


def _flatten(node: Node, relations: list[Node], conditions: list[Expression]) -> None:
    inner: Node = node
    passed: list[Expression] = []
    while isinstance(inner, Filter):
        passed.append(inner.predicate)
        inner = inner.child
    if isinstance(inner, Join) and inner.kind == "inner":
        _flatten(inner.left, relations, conditions)
        _flatten(inner.right, relations, conditions)
        conditions += [_equality(*pair) for pair in inner.equal]
        conditions += [inner.residual] if inner.residual else []
        conditions += reversed(passed)
    else:
        relations.append(node)


def _equality(one: Expression, other: Expression) -> Expression:
    return Expression(
        f"({one.sql}) = ({other.sql})", pa.bool_(), one.columns | other.columns, f"{one.text} = {other.text}",
        one.line, one.column, (one, other),
    )  # fmt: skip


def _across(condition: Expression, left: set[str], right: set[str]) -> tuple[Expression, Expression] | None:
    """The two sides of an equality between these columns, the left one first, if they can be keys."""
    if condition.equality is None or not _comparable(*condition.equality):
        return None
    for one, other in (condition.equality, condition.equality[::-1]):
        if one.columns and other.columns and one.columns <= left and other.columns <= right:
            return one, other
    return None


def _comparable(one: Expression, other: Expression) -> bool:
    """Whether equal values of both have equal keys (see `hayase.core.keys`)."""
    try:
        check_key_type(one.kind)
        check_key_type(other.kind)
    except DeclarationError:
        return False
    return bool(one.kind == other.kind or _alike(one.kind, other.kind))


def _alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether two types are of one family, whose values have the same keys whatever their width."""
    families: tuple[Callable[[pa.DataType], bool], ...] = (pa.types.is_signed_integer, pa.types.is_floating)
    return any(each(one) and each(other) for each in families)


# ---------------------------------------------------------------------------------------------------- columns


def prune(node: Node) -> Node:
    """Only columns that somebody reads: at the streams, in the inputs of joins, and of projections and aggregates."""
    return _pruned(node, frozenset(node.schema.names))


def _pruned(node: Node, needed: frozenset[str]) -> Node:
    """The node with at least the columns `needed`."""
    match node:
        case Source():
            return _trimmed(node, needed)
        case Filter():
            return Filter(_pruned(node.child, needed | node.predicate.columns), node.predicate)
        case Project():
            columns = tuple(each for each in node.columns if each.name in needed) or node.columns[:1]
            return Project(_pruned(node.child, _read(each.value for each in columns)), columns)
        case TableJoin():
            below = needed | _read(each.value for each in node.keys)
            shown = tuple(each for each in node.columns if f"{node.alias}.{each}" in needed)
            return replace(node, child=_trimmed(_pruned(node.child, below), below), columns=shown)
        case Aggregate():
            calls = tuple(each for each in node.calls if each.name in needed)
            arguments = (one for each in calls for one in each.arguments)
            child = _pruned(node.child, _read([*(each.value for each in node.keys), *arguments]))
            return replace(node, child=child, calls=calls)
        case SetOperation(kind="union", all=True):
            wanted = _at_least_one(node, needed)
            left, right = (kept(_pruned(each, needed), wanted) for each in (node.left, node.right))
            return SetOperation(node.kind, node.all, left, right)
        case SetOperation():
            names = node.schema.names
            left, right = (kept(_pruned(each, frozenset(names)), names) for each in (node.left, node.right))
            return SetOperation(node.kind, node.all, left, right)
        case Distinct() | ToStream():
            names = node.schema.names
            return replace(node, child=kept(_pruned(node.child, frozenset(names)), names))
        case Join():
            read = needed | _read([*(side for pair in node.equal for side in pair)])
            read |= node.residual.columns if node.residual else frozenset()
            left, right = (_trimmed(_pruned(each, read), read) for each in (node.left, node.right))
            return replace(node, left=left, right=right)


def _read(expressions: Iterable[Expression]) -> frozenset[str]:
    return frozenset(name for each in expressions for name in each.columns)


def _trimmed(node: Node, needed: frozenset[str]) -> Node:
    return kept(node, _at_least_one(node, needed))


def _at_least_one(node: Node, needed: frozenset[str]) -> list[str]:
    """The columns that are needed; if none is, a cheap one, for rows without columns cannot be counted."""
    found = [name for name in node.schema.names if name in needed]
    fixed = [each.name for each in node.schema if pa.types.is_primitive(each.type)]
    return found or [*fixed, *node.schema.names][:1]


# ---------------------------------------------------------------------------------------------------- names


def name_keys(node: Node) -> Node:
    """Keys of joins and aggregates, and arguments, as columns of their child: what is computed for them has a name."""
    return _Names().named(node)


def _unwidened(key: Expression, schema: pa.Schema) -> Expression:
    """A column that was only cast to a wider type of its family, as it is: its key is the same, and it can be followed."""
    if len(key.columns) != 1:
        return key
    (name,) = key.columns
    kind = schema.field(name).type
    widens = _alike(kind, key.kind) and kind.bit_width <= key.kind.bit_width
    return column(name, kind, key) if widens and key.sql == cast(quoted(name), key.kind) else key


class _Names:
    def __init__(self) -> None:
        self._count = 0

    def _fresh(self) -> str:
        self._count += 1
        return f"__value{self._count}"

    def named(self, node: Node) -> Node:
        match node:
            case Source():
                return node
            case Join():
                left, right = self.named(node.left), self.named(node.right)
                left, lefts = self._with(left, [_unwidened(one, left.schema) for one, _ in node.equal])
                right, rights = self._with(right, [_unwidened(other, right.schema) for _, other in node.equal])
                return replace(node, left=left, right=right, equal=tuple(zip(lefts, rights)))
            case SetOperation():
                return replace(node, left=self.named(node.left), right=self.named(node.right))
            case Aggregate():
                return self._aggregate(replace(node, child=self.named(node.child)))
            case _:
                return replace(node, child=self.named(node.child))

    def _with(self, child: Node, expressions: Sequence[Expression]) -> tuple[Node, list[Expression]]:
        """The child with a column for each of these expressions over it."""
        columns = [Column(each.name, column(each.name, each.type)) for each in child.schema]
        found: list[Expression] = []
        for each in expressions:
            name = plain(each)
            if name is None:
                name = next((known.name for known in columns if known.value.sql == each.sql), None) or self._fresh()
                if all(known.name != name for known in columns):
                    columns.append(Column(name, each))
            found.append(column(name, each.kind, each))
        return (child if len(columns) == len(child.schema) else Project(child, tuple(columns))), found

    def _aggregate(self, node: Aggregate) -> Aggregate:
        """The child gives the keys under their names and each argument once."""
        columns = {each.value.sql: each for each in reversed(node.keys)}
        made = list(node.keys)

        def given(argument: Expression | None) -> Expression | None:
            if argument is None:
                return None
            known = columns.get(argument.sql)
            if known is None:
                name = plain(argument)
                taken = name is None or any(each.name.lower() == name.lower() for each in made)
                known = Column(self._fresh() if name is None or taken else name, argument)
                columns[argument.sql] = known
                made.append(known)
            return column(known.name, argument.kind, argument)

        calls = tuple(replace(each, argument=given(each.argument), second=given(each.second)) for each in node.calls)
        keys = tuple(Column(each.name, column(each.name, each.value.kind, each.value)) for each in node.keys)
        child = node.child
        if not made:
            child = kept(child, _at_least_one(child, frozenset()))
        elif all(plain(each.value) == each.name for each in made):
            child = kept(child, [each.name for each in made])
        else:
            child = Project(child, tuple(made))
        return replace(node, child=child, keys=keys, calls=calls)


RULES: tuple[Callable[[Node], Node], ...] = (push_down, prune, name_keys)
