"""OVER in stream mode: window functions over a stream without a window, ordered by event time.

Each record has one result, as soon as the clock has passed it, so a frame cannot reach beyond the record and those of the same
time. What needs later records is refused by name: a window after the stream lets it be computed over a relation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa

from hayase.core.algebra import Aggregate
from hayase.core.errors import DeclarationError, HayaseError
from hayase.core.expressions import common_type
from hayase.core.times import duration, duration_text
from hayase.cql.columns import cast_to, column_name
from hayase.cql.logical import Expression, Node, RunningCall, RunningOver
from hayase.cql.outputs import nullable
from hayase.cql.query_expressions import ExpressionResolver
from hayase.cql.record_streams import is_event_time, is_one_stream
from hayase.cql.syntax import OverText, Part
from hayase.lifetimes import plans
from hayase.lifetimes.plans import Frame

__all__ = ["RunningCalls", "running_plan"]

_Express = Callable[[Part], Expression | None]
_COUNTERS = ("row_number", "rank", "dense_rank")
_VALUES = ("first_value", "last_value", "nth_value")
_AHEAD = ("lead", "ntile", "percent_rank", "cume_dist")
"""Functions that need later records."""
_AGGREGATES = (
    "count", "sum", "avg", "min", "max", "var_samp", "var_pop", "variance", "stddev_samp", "stddev_pop", "stddev",
    "bool_and", "bool_or",
)  # fmt: skip
_WINDOW = (
    "write a window after the stream, such as [Unbounded] or [Range 1 hour]: then it is over the rows at each instant"
)
_FRAMES = "write ROWS or RANGE BETWEEN ... PRECEDING AND CURRENT ROW"
_FRAME = re.compile(
    r"(?P<unit>rows|range|groups)\s+(?:between\s+(?P<start>.+?)\s+and\s+(?P<end>.+?)|(?P<only>.+?))(?P<rest>\s+exclude\s.*)?",
    re.IGNORECASE | re.DOTALL,
)
_INTERVAL = re.compile(r"interval\s+(?:'(?P<quoted>[^']*)'|(?P<bare>[\d.]+))\s*(?P<unit>[a-z]*)", re.IGNORECASE)


class RunningCalls:
    """The window functions of a select over one stream; `texts` are their names in the plan and what is written."""

    def __init__(
        self, resolver: ExpressionResolver, texts: Sequence[tuple[str, OverText]], node: Node, express: _Express
    ):
        self._resolver, self._texts, self._node, self._express = resolver, texts, node, express
        self._calls: list[tuple[tuple[Expression, ...], RunningCall]] = []

    @property
    def applies(self) -> bool:
        """Whether any function is ordered by event time, ascending, so that all are in stream mode."""
        return is_one_stream(self._node) and any(self._is_by_time(text) for _, text in self._texts)

    def _is_by_time(self, text: OverText) -> bool:
        if not text.order or text.order[0].descending:
            return False
        noted = len(self._resolver.mistakes)
        value = self._express(text.order[0].part)
        del self._resolver.mistakes[noted:]
        return value is not None and is_event_time(self._node, column_name(value))

    def resolve(self) -> list[pa.Field]:
        """Resolve all calls and return their columns; those with mistakes are left out."""
        for name, text in self._texts:
            noted = len(self._resolver.mistakes)
            call = self._call(name, text) if self._is_supported(text) else None
            keys = [self._express(part) for part in text.partition]
            for part, key in zip(text.partition, keys):
                if key is not None:
                    self._resolver.check_key(part, key.kind)
            if call is not None and len(self._resolver.mistakes) == noted:
                self._calls.append((tuple(key for key in keys if key), call))
        return [pa.field(call.name, call.kind) for _, call in self._calls]

    def above(self, child: Node) -> Node:
        """Return the operators above a plan: one for each partition."""
        partitions: dict[tuple[str, ...], list[tuple[tuple[Expression, ...], RunningCall]]] = {}
        for keys, call in self._calls:
            partitions.setdefault(tuple(key.sql for key in keys), []).append((keys, call))
        node = child
        for group in partitions.values():
            node = RunningOver(node, group[0][0], tuple(call for _, call in group))
        return node

    # ------------------------------------------------------------------------------------------------ calls

    def _is_supported(self, text: OverText) -> bool:
        refuse, function = self._resolver.refuse, text.function
        known = ("lag", *_COUNTERS, *_VALUES, *_AGGREGATES)
        if not self._is_by_time(text):
            message = (
                "a window function that is not ordered by event time beside one that is, over a stream without a window"
            )
            refuse(text.part, f"{message}, is not supported", f"order it by event time, or {_WINDOW}")
        elif len(text.order) > 1:
            hint = f"records of the same time are in the order of the stream; leave it out, or {_WINDOW}"
            refuse(text.order[1].part, "an order by more than event time over a stream is not supported", hint)
        elif function in _AHEAD:
            refuse(text.part, f"{function} over a stream needs records that have not come yet", _WINDOW)
        elif function not in known:
            refuse(text.part, f"{function} with OVER is not supported", f"there are {', '.join(sorted(known))}")
        elif text.distinct:
            refuse(text.part, f"{function}(DISTINCT ...) over a stream is not supported", _WINDOW)
        elif text.ignores_nulls and function not in ("first_value", "last_value"):
            refuse(text.part, f"{function} with IGNORE NULLS over a stream is not supported", _WINDOW)
        elif text.condition is not None and function not in _AGGREGATES:
            refuse(text.part, f"{function} with FILTER is not supported", "only aggregates take FILTER")
        elif text.frame and function in ("lag", *_COUNTERS):
            refuse(text.part, f"{function} has no frame", "leave the frame out")
        else:
            return self._has_arguments(text)
        return False

    def _has_arguments(self, text: OverText) -> bool:
        least, most = {"lag": (1, 3), "nth_value": (2, 2), "count": (0, 1)}.get(
            text.function, (0, 0) if text.function in _COUNTERS else (1, 1)
        )
        given = len([part for part in text.arguments if part.text != "*"])
        if not least <= given <= most:
            count = str(least) if least == most else f"{least} to {most}"
            self._resolver.refuse(text.part, f"{text.function} takes {count} arguments")
        return least <= given <= most

    def _call(self, name: str, text: OverText) -> RunningCall | None:
        noted = len(self._resolver.mistakes)
        function, parts = text.function, [part for part in text.arguments if part.text != "*"]
        values = [self._express(part) for part in parts[:1]]
        arguments = [value for value in values if value]
        constant, default = 0, None
        frame = self._frame(text)
        if function == "lag":
            frame = Frame("rows", self._number(parts[1], 0) if len(parts) > 1 else 1)
            default = self._express(parts[2]) if len(parts) > 2 else None
        elif function == "nth_value":
            constant = self._number(parts[1], 1)
        if function in _AGGREGATES and text.condition is not None:
            arguments = self._filtered(text.condition, arguments)
        if frame is None or len(self._resolver.mistakes) > noted:
            return None
        kind = pa.int64()
        try:
            if function in _AGGREGATES:
                kind = Aggregate.from_name(function).result([value.kind for value in arguments])
            elif function not in _COUNTERS:
                kind = common_type(arguments[0].kind, default.kind) if default else arguments[0].kind
                arguments, default = [cast_to(arguments[0], kind)], cast_to(default, kind) if default else None
        except DeclarationError as error:
            self._resolver.refuse(text.part, error.mistakes[0].message, error.mistakes[0].hint)
            return None
        return RunningCall(
            name, function, tuple(arguments), frame, constant, default, text.ignores_nulls, kind, text.part.text
        )

    def _filtered(self, condition: Part, arguments: Sequence[Expression]) -> list[Expression]:
        """Return the argument of an aggregate with FILTER: NULL, which aggregates skip, where the condition does not hold."""
        where = self._express(condition)
        if where is None:
            return []
        value = arguments[0] if arguments else Expression("true", pa.bool_(), frozenset(), "true")
        if where.kind != pa.bool_():
            self._resolver.refuse(condition, "FILTER takes a condition", "write FILTER (WHERE a > 0)")
        sql = f"CASE WHEN (\n{where.sql}\n) THEN (\n{value.sql}\n) END"
        return [Expression(sql, value.kind, where.columns | value.columns, value.text, value.line, value.column)]

    def _number(self, part: Part, least: int) -> int:
        """Return the number of rows that is written as an argument."""
        if part.text.isdecimal() and least <= int(part.text) < 2**31:
            return int(part.text)
        self._resolver.refuse(part, f"this argument is a whole number from {least} on", "write it as a number")
        return least

    # ------------------------------------------------------------------------------------------------ frames

    def _frame(self, text: OverText) -> Frame | None:
        """Return the frame of a call; None, with a mistake, if it cannot be had over a stream."""
        if not text.frame:
            return Frame("unbounded", 0, peers=True)
        match = _FRAME.fullmatch(text.frame.strip())
        if match is None or match["rest"]:
            self._resolver.refuse(text.part, "this frame over a stream is not supported", _FRAMES)
            return None
        unit, start, end = match["unit"].lower(), match["start"] or match["only"], match["end"] or "current row"
        start, end = (" ".join(bound.lower().split()) for bound in (start, end))
        if end.endswith("following") or start.endswith("following"):
            self._resolver.refuse(text.part, "FOLLOWING over a stream needs records that have not come yet", _WINDOW)
            return None
        if end != "current row":
            self._resolver.refuse(text.part, "a frame over a stream ends at CURRENT ROW", _FRAMES)
            return None
        peers = unit != "rows"
        if start == "unbounded preceding":
            return Frame("unbounded", 0, peers)
        amount = start.removesuffix("preceding").strip() if start != "current row" else "0"
        if unit == "groups" and amount != "0":
            self._resolver.refuse(text.part, "GROUPS with a number over a stream is not supported", _FRAMES)
            return None
        if unit == "rows":
            if amount.isdecimal() and int(amount) < 2**31:
                return Frame("rows", int(amount))
            self._resolver.refuse(text.part, "the rows of a frame are a whole number", _FRAMES)
            return None
        length = 0 if start == "current row" else self._length(text, amount)
        return None if length is None else Frame("range", length, peers=True)

    def _length(self, text: OverText, amount: str) -> int | None:
        """Return the length of a frame by time, in microseconds: an interval or, for integer times, a number of their units."""
        scale, integers = self._time_unit()
        if integers and amount.isdecimal():
            return int(amount) * scale
        match = _INTERVAL.fullmatch(amount)
        if match is None:
            written = "a number of its units, or an interval" if integers else "an interval"
            hint = "write RANGE BETWEEN INTERVAL '10 minutes' PRECEDING AND CURRENT ROW"
            self._resolver.refuse(text.part, f"a frame by RANGE over event time is {written}", hint)
            return None
        try:
            length = duration(f"{match['quoted'] or match['bare']} {match['unit']}".strip())
        except HayaseError as error:
            self._resolver.refuse(text.part, error.problem, error.remedy)
            return None
        if length % scale:
            message = f"event times are whole numbers of {duration_text(scale)}, and {duration_text(length)} is none"
            self._resolver.refuse(text.part, message, f"write a multiple of {duration_text(scale)}")
            return None
        return length

    def _time_unit(self) -> tuple[int, bool]:
        """Return the unit of the event times in microseconds, and whether they are integers."""
        from hayase.cql.distribution import leaves, source_of

        stream = source_of(next(leaves(self._node))).declaration
        return stream.time_scale, pa.types.is_integer(stream.arrow_schema.field(stream.time).type)


def running_plan(node: RunningOver, child: plans.Node) -> plans.RunningOver:
    """Return the operator of a logical node, all of whose expressions are columns of the child."""

    def name(value: Expression) -> str:
        return column_name(value) or ""

    calls = tuple(
        plans.RunningCall(
            call.name, call.function, tuple(map(name, call.arguments)), call.frame, call.constant,
            name(call.default) if call.default else None, call.ignores_nulls, call.text,
        )
        for call in node.calls
    )  # fmt: skip
    schema = pa.schema([*child.schema, *(pa.field(call.name, call.kind) for call in node.calls)])
    return plans.RunningOver(child, tuple(map(name, node.keys)), calls, nullable(schema))
