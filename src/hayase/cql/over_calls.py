"""OVER in relation mode: the window functions of a select, and their operators.

A function is computed over the rows that are alive at an instant. Its order is completed by the other columns of FROM (or, with
GROUP BY, of the groups) from left to right, NULLs last, so that results are determined. Ranks, and frames by RANGE or GROUPS,
compare only the listed columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from hayase.core.errors import DeclarationError
from hayase.core.expressions import window_type
from hayase.core.keys import check_key_type
from hayase.cql.columns import column_name, quoted
from hayase.cql.logical import Expression, Node, OrderKey, Over, OverCall
from hayase.cql.outputs import nullable
from hayase.cql.query_expressions import ExpressionResolver, splice
from hayase.cql.row_order import tie_breakers
from hayase.cql.syntax import Item, Ordering, OverText, Part, Plain, Select
from hayase.lifetimes import plans

__all__ = ["OverCalls", "has_overs", "over_plan"]

_PEERS = ("rank", "dense_rank", "percent_rank", "cume_dist")
"""Functions that compare only the listed columns."""
_PLACES = ("row_number", "ntile", "lag", "lead")
_VALUES = ("first_value", "last_value", "nth_value")
_AGGREGATES = (
    "count", "sum", "avg", "min", "max", "var_samp", "var_pop", "variance", "stddev_samp", "stddev_pop", "stddev",
    "bool_and", "bool_or",
)  # fmt: skip
_ARGUMENTS = {
    **dict.fromkeys((*_PEERS, "row_number"), (0, 0)),
    "lag": (1, 3),
    "lead": (1, 3),
    "nth_value": (2, 2),
    "count": (0, 1),
}


class OverCalls:
    """The window functions of one select: collected from its expressions, then resolved, then turned into operators."""

    def __init__(self, resolver: ExpressionResolver, select: Select):
        self._resolver = resolver
        self._texts: dict[str, OverText] = {}
        self._calls: list[tuple[tuple[Expression, ...], tuple[OrderKey, ...], OverCall]] = []
        self.select = self._replaced_select(select)
        """The select, with columns in place of the calls."""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that stand for the calls."""
        return tuple(self._texts)

    @property
    def texts(self) -> tuple[OverText, ...]:
        """The calls as written."""
        return tuple(self._texts.values())

    @property
    def arguments(self) -> list[Part]:
        """The expressions inside of the calls."""
        return [part for text in self._texts.values() for part in _parts(text)]

    def _replaced_select(self, select: Select) -> Select:
        ordering: Ordering | None = select.ordering
        if ordering is not None:
            items = tuple(replace(item, part=self._replaced(item.part)) for item in ordering.items)
            ordering = replace(ordering, items=items)
        aliases = {item.alias.lower(): item for item in select.items if item.alias}
        return replace(
            select,
            items=tuple(self._replaced_item(item, place) for place, item in enumerate(select.items, 1)),
            distinct_on=tuple(map(self._replaced, select.distinct_on)),
            qualify=tuple(Plain(self._replaced(self._named(plain.part, aliases))) for plain in select.qualify),
            ordering=ordering,
        )

    def _replaced_item(self, item: Item, place: int) -> Item:
        """Return an entry of the select list without calls, and with a name: that of aggregates, or "column_N"."""
        if not item.part.overs:
            return item
        call = item.part.overs[0]
        name = f"column_{place}"
        if (call.start, call.end) == (0, len(item.part.text)):
            values = [part.text for part in call.arguments[:1] if part.text != "*"]
            if all(value.isidentifier() for value in values):
                name = "_".join([call.function, *values])
        return replace(item, part=self._replaced(item.part), alias=item.alias or name)

    def _named(self, part: Part, aliases: dict[str, Item]) -> Part:
        """Return a condition of QUALIFY with the expressions of the aliases that it names."""
        parsed = self._resolver.try_parse(self._replaced(part))
        known = [
            (reference, aliases[reference.parts[0].lower()])
            for reference in (parsed.columns if parsed else ())
            if len(reference.parts) == 1 and reference.parts[0].lower() in aliases
        ]
        replaced = self._replaced(part)
        pieces = [(place.start, place.end, f"({self._replaced(item.part).text})") for place, item in known]
        return replace(replaced, text=splice(replaced.text, pieces), inner=()) if known else part

    def _replaced(self, part: Part) -> Part:
        """Return an expression with columns in place of its calls."""
        if not part.overs:
            return part
        pieces = [(text.start, text.end, self._name(text)) for text in part.overs]
        return replace(part, text=splice(part.text, pieces), inner=(), overs=())

    def _name(self, text: OverText) -> str:
        for name, known in self._texts.items():
            if known.part == text.part:
                return name
        name = f"__over{len(self._texts) + 1}"
        self._texts[name] = text
        return name

    # ------------------------------------------------------------------------------------------------ resolution

    def resolve(self, express: Callable[[Part], Expression | None]) -> list[pa.Field]:
        """Resolve all calls, with `express` for the expressions inside of them; return their columns."""
        fields: list[pa.Field] = []
        for name, text in self._texts.items():
            if (call := self._call(name, text, express)) is not None:
                self._calls.append(call)
                fields.append(pa.field(name, call[2].kind))
        return fields

    def _call(
        self, name: str, text: OverText, express: Callable[[Part], Expression | None]
    ) -> tuple[tuple[Expression, ...], tuple[OrderKey, ...], OverCall] | None:
        if not self._is_supported(text):
            return None
        noted = len(self._resolver.mistakes)
        starred = [part for part in text.arguments if part.text == "*"]
        arguments = [express(part) for part in text.arguments if part not in starred]
        condition = express(text.condition) if text.condition else None
        keys = [self._compared(part, express, self._resolver.check_key) for part in text.partition]
        values = [self._compared(item.part, express, self._resolver.check_order) for item in text.order]
        if len(self._resolver.mistakes) > noted:
            return None
        order = [OrderKey(value, item.descending, item.nulls_first) for value, item in zip(values, text.order) if value]
        inside = [value for value in arguments if value]
        call = OverCall(
            name, text.function, tuple(inside), " ".join(text.frame.split()), condition, text.distinct, text.ignores_nulls,
            pa.null(), text.part.text,
        )  # fmt: skip
        kind = self._kind(text, call, order)
        return (tuple(key for key in keys if key), tuple(order), replace(call, kind=kind)) if kind else None

    def _is_supported(self, text: OverText) -> bool:
        function = text.function
        known = (*_PLACES, *_PEERS, *_VALUES, *_AGGREGATES)
        least, most = _ARGUMENTS.get(function, (1, 1))
        given = len([part for part in text.arguments if part.text != "*"])
        if function not in known:
            hint = f"there are {', '.join(sorted(known))}"
            self._resolver.refuse(text.part, f"{function} with OVER is not supported", hint)
        elif not least <= given <= most:
            count = str(least) if least == most else f"{least} to {most}"
            self._resolver.refuse(text.part, f"{function} takes {count} arguments")
        elif function in (*_PEERS, *_PLACES) and text.frame:
            self._resolver.refuse(text.part, f"{function} has no frame", "leave the frame out")
        elif function in _PEERS and not text.order:
            self._resolver.refuse(text.part, f"{function} needs an order", "write ORDER BY after OVER (")
        elif text.distinct and function not in _AGGREGATES:
            self._resolver.refuse(text.part, f"{function}(DISTINCT ...) is not supported", "leave DISTINCT out")
        else:
            return True
        return False

    def _compared(
        self, part: Part, express: Callable[[Part], Expression | None], check: Callable[[Part, pa.DataType], bool]
    ) -> Expression | None:
        value = express(part)
        return value if value is None or check(part, value.kind) else None

    def _kind(self, text: OverText, call: OverCall, order: Sequence[OrderKey]) -> pa.DataType | None:
        """Return the type of a call, computed from the types of its arguments."""
        values = [*call.arguments, *([call.condition] if call.condition else []), *(key.value for key in order)]
        stand_ins = {value.sql: quoted(f"v{number}") for number, value in enumerate(values)}
        schema = pa.schema([pa.field(name[1:-1], kind) for name, kind in zip(stand_ins.values(), _kinds(values))])
        schema = schema if len(schema) else pa.schema([("v", pa.int64())])
        sql, over = _sql(call, order, order, stand_ins)
        try:
            kind = window_type(sql, over, schema)
            if call.function == "sum" and pa.types.is_integer(call.arguments[0].kind):
                kind = pa.int64()  # as with GROUP BY
            check_key_type(kind)
        except DeclarationError as error:
            self._resolver.mistakes += [text.part.mistake(mistake.message, mistake.hint) for mistake in error.mistakes]
            return None
        return kind

    # ------------------------------------------------------------------------------------------------ operators

    def above(self, child: Node, columns: Sequence[Expression]) -> Node:
        """Return the operators above a plan: one for each partition and order. `columns` complete the orders."""
        node = child
        windows: dict[tuple[object, ...], list[int]] = {}
        for number, (keys, order, _) in enumerate(self._calls):
            listed = tuple((key.value.sql, key.descending, key.nulls_first) for key in order)
            windows.setdefault((tuple(key.sql for key in keys), listed), []).append(number)
        for numbers in windows.values():
            keys, order, _ = self._calls[numbers[0]]
            calls = tuple(self._calls[number][2] for number in numbers)
            completing = tie_breakers(columns, order) if any(map(_needs_whole_order, calls)) else []
            node = Over(node, keys, (*order, *completing), len(order), calls)
        return node


def has_overs(select: Select) -> bool:
    """Return whether a select has window functions."""
    parts = [item.part for item in select.items] + [plain.part for plain in select.qualify]
    parts += [item.part for item in select.ordering.items] if select.ordering else []
    return bool(select.qualify) or any(part.overs for part in (*parts, *select.distinct_on))


def _parts(text: OverText) -> list[Part]:
    inside = [part for part in text.arguments if part.text != "*"]
    inside += [text.condition] if text.condition else []
    return [*inside, *text.partition, *(item.part for item in text.order)]


def _kinds(values: Sequence[Expression]) -> list[pa.DataType]:
    return list({value.sql: value.kind for value in values}.values())


def _is_by_rows(call: OverCall) -> bool:
    return call.frame.lower().startswith("rows")


def _adds_floats(call: OverCall) -> bool:
    """Return whether the value of a call depends on the order in which it takes its rows, by rounding."""
    return call.function in _AGGREGATES and any(pa.types.is_floating(value.kind) for value in call.arguments)


def _needs_whole_order(call: OverCall) -> bool:
    """Return whether a call distinguishes rows that are equal in the listed columns."""
    return call.function in (*_PLACES, *_VALUES) or _is_by_rows(call) or _adds_floats(call)


def _sql(
    call: OverCall, order: Sequence[OrderKey], whole: Sequence[OrderKey], names: dict[str, str], last: str = ""
) -> tuple[str, str]:
    """Return a call, and the order and frame of its window, as DuckDB's SQL. `names` are the columns of its expressions.

    `last` is the column that decides between rows that are equal in the whole order.
    """
    arguments = [names[value.sql] for value in call.arguments] or (["*"] if call.function == "count" else [])
    listed, full = (
        ", ".join(
            f"{names[key.value.sql]} {'DESC' if key.descending else 'ASC'} NULLS {'FIRST' if key.nulls_first else 'LAST'}"
            for key in keys
        )
        for keys in (order, whole)
    )
    full = ", ".join(filter(None, (full, last)))
    by_rows = _is_by_rows(call)
    inner = ""
    if full and not call.distinct and not by_rows and (call.function in _VALUES or _adds_floats(call)):
        inner = f" ORDER BY {full}"  # the last of equal rows, and the order in which floats are added
    nulls = " IGNORE NULLS" if call.ignores_nulls else ""
    condition = f" FILTER (WHERE {names[call.condition.sql]})" if call.condition else ""
    sql = f"{call.function}({'DISTINCT ' if call.distinct else ''}{', '.join(arguments)}{inner}{nulls}){condition}"
    over = full if by_rows or call.function in _PLACES else listed
    return sql, f"{f'ORDER BY {over} ' if over else ''}{call.frame}".strip()


def over_plan(node: Over, child: plans.Node) -> plans.Over:
    """Return the operator of a logical node, all of whose expressions are columns of the child."""
    names = {value.sql: quoted(column_name(value) or "") for value in node.expressions}
    calls = tuple(
        plans.OverCall(
            call.name, *_sql(call, node.order[: node.listed], node.order, names, quoted(plans.TUPLE_ID)), call.text
        )
        for call in node.calls
    )
    reads = tuple(dict.fromkeys(column_name(value) or "" for value in node.expressions))
    keys = tuple(column_name(key) or "" for key in node.keys)
    schema = pa.schema([*child.schema, *(pa.field(call.name, call.kind) for call in node.calls)])
    return plans.Over(child, keys, reads, calls, nullable(schema))
