"""The accumulators of an aggregate: its calls split into shared accumulators, and the arrays that drive the sweep.

Calls over the same argument share accumulators: count, sum and average are one, and so are average and variance. A group has
one row of 8-byte words (`GROUP_WORDS`, then its accumulators). A tuple that may end also has one, its cell: its group, which
arguments are NULL, links, and the words of its arguments.

| kind     | of a group, endless            | of a group whose tuples end                                                    |
|----------|--------------------------------|--------------------------------------------------------------------------------|
| COUNT    | how many                       | the same                                                                       |
| EXACT    | how many, sum in 1 or 2 words  | how many, sum in 3 words, for an end may take a sum out of its range for a while |
| NUMBER   | how many, sum in two doubles, sum of squares likewise | also what `NUMBER_WORDS` says                           |
| EXTREME  | how many, the value            | nothing: a heap of cells                                                       |
| DISTINCT | how many values                | the same                                                                       |
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hayase.core.algebra import AGGREGATES
from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError
from hayase.core.keys import check_key_type, is_text
from hayase.lifetimes.plans import Call

__all__ = ["MAINTAINED", "Accumulator", "Argument", "Layout", "Output", "layout", "result_type"]

VERSION, ROW, COUNTED = range(3)
"""The first words of a group: the version of its last write, the id of its open row or -1, its number of tuples."""
GROUP_WORDS = 3

COUNT, EXACT, NUMBER, EXTREME, DISTINCT = range(5)
"""Kinds of accumulators."""
HIGH, LOW, SIZE, DOUBT, NANS, ABOVE, BELOW = range(1, 8)
"""Words of a NUMBER after its count: the sum in two doubles. If tuples end, also the sum of absolute values, a bound of its
rounding error, and the numbers of NaN, infinity and minus infinity, which are in no sum. Sums of squares follow: two doubles
and, if tuples end, the bound of the rounding error and the count of numbers that are too large to be squared."""
NUMBER_WORDS = 8
LANES = 72
"""The number of 32-bit lanes that hold every sum of floats exactly."""
WHOLE, UNSIGNED, FLOAT, DECIMAL, TEXT, PAIR, PRESENCE = range(7)
"""Forms of arguments: an int64; a uint64 with its top bit inverted; a float64; the low and high word of a decimal; the first
eight bytes, place and length of a text; the number of a (group, value) pair; only whether it is NULL."""
LINES = (1, 1, 1, 2, 3, 1, 0)
"""The number of words of each form."""

KIND, AT, LINE, ARGUMENT, FORM, PARTS, LIMIT, SQUARES, SIDE, LINK, GREATEST = range(11)
"""The columns of the accumulators' program: kind, first word in the group, first line of the argument, the number of the
argument, its form, words of an exact sum, its limit, first word of the sums of squares (0: none), the heap's place among the
group's anchors (-1: none), its first link in a cell, and whether it is a maximum."""
ANY, BITS64, DIGITS38 = range(3)
"""Limits of exact sums."""

HOW_MANY, SUM, AVERAGE, VARIANCE, BEST = range(5)
"""What a call reads from its accumulator."""
READS, OF, TO, SAMPLE, ROOT = range(5)
"""The columns of the calls' program: what it reads, the accumulator (-1: the count of tuples), the first line of the output,
and for a variance whether it is that of a sample and whether it is the square root."""

_MOMENTS = {"var_samp": (1, 0), "var_pop": (0, 0), "stddev_samp": (1, 1), "stddev_pop": (0, 1)}
MAINTAINED = ("count", "sum", "avg", "min", "max", *_MOMENTS)
"""The aggregates that are maintained over a relation."""


def result_type(function: str, argument_type: pa.DataType | None, distinct: bool = False) -> pa.DataType:
    """Return the type of an aggregate call over a relation; raise DeclarationError if it is not supported.

    >>> result_type("sum", pa.int16()), result_type("avg", pa.decimal128(10, 2)), result_type("count", None)
    (DataType(int64), DataType(double), DataType(int64))
    >>> result_type("sum", pa.string())
    Traceback (most recent call last):
    hayase.core.errors.DeclarationError: there is no sum of a string; use integers, floats or decimals, or cast to one of them
    """
    if function not in MAINTAINED:
        raise DeclarationError(f"there is no aggregate {function}", f"use one of {', '.join(MAINTAINED)}")
    if distinct and function not in ("count", "min", "max"):
        raise DeclarationError(f"{function}(distinct ...) is not supported", "only count takes distinct")
    if distinct and function == "count":
        if argument_type is None:
            raise DeclarationError("count(distinct *) is not supported", "name a column or an expression")
        check_key_type(argument_type)
    return AGGREGATES[function].result(() if argument_type is None else (argument_type,))


def _is_float(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind))


def _is_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind))


@dataclass(frozen=True, slots=True)
class Argument:
    """A column in a form that the sweep takes; its words begin at line `line`."""

    column: str
    form: int
    line: int

    @property
    def lines(self) -> int:
        return LINES[self.form]


@dataclass(frozen=True, slots=True)
class Accumulator:
    """The accumulator of some calls: `words` words from word `at` of a group on. `text` names it in messages."""

    kind: int
    argument: int
    at: int
    words: int
    parts: int = 0
    limit: int = ANY
    squares: int = 0
    side: int = -1
    greatest: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """A call: what it reads from which accumulator (-1: the count of tuples); its words begin at line `to`."""

    reads: int
    of: int
    to: int
    lines: int
    kind: pa.DataType
    form: int
    scale: float = 1.0
    sample: int = 0
    root: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of an aggregate. In a cell, `links` is the first half word of links, and `base` the first word of arguments."""

    arguments: tuple[Argument, ...]
    accumulators: tuple[Accumulator, ...]
    outputs: tuple[Output, ...]
    endless: bool

    @property
    def group_words(self) -> int:
        return GROUP_WORDS + sum(accumulator.words for accumulator in self.accumulators)

    @property
    def lines(self) -> int:
        """The number of words of all arguments."""
        return sum(argument.lines for argument in self.arguments)

    @property
    def output_lines(self) -> int:
        return sum(output.lines for output in self.outputs)

    @property
    def heaps(self) -> int:
        return sum(accumulator.side >= 0 for accumulator in self.accumulators)

    @property
    def listed(self) -> bool:
        """Whether a group has a list of its tuples, from which float sums are recomputed."""
        return not self.endless and any(accumulator.kind == NUMBER for accumulator in self.accumulators)

    @property
    def links(self) -> int:
        return 1 + (len(self.arguments) + 31) // 32

    @property
    def base(self) -> int:
        return (self.links + 2 * self.listed + 3 * self.heaps + 1) // 2

    @property
    def cell_words(self) -> int:
        return self.base + self.lines

    def program(self) -> np.ndarray:
        """Return the accumulators as the loops take them."""
        rows = []
        for accumulator in self.accumulators:
            argument = self.arguments[accumulator.argument]
            link = self.links + 2 * self.listed + 3 * (accumulator.side - 1) if accumulator.side >= 0 else -1
            rows.append(
                (accumulator.kind, accumulator.at, argument.line, accumulator.argument, argument.form,
                 accumulator.parts, accumulator.limit, accumulator.squares, accumulator.side, link,
                 accumulator.greatest)
            )  # fmt: skip
        return np.array(rows, np.int64).reshape(-1, 11)

    def calls(self) -> np.ndarray:
        """Return the calls as the loops take them."""
        rows = [(output.reads, output.of, output.to, output.sample, output.root) for output in self.outputs]
        return np.array(rows, np.int64).reshape(-1, 5)

    def shape(self) -> np.ndarray:
        """Return for the loops: whether it is endless, the links of the group's list or -1, the first link, the first word of
        arguments, the number of their words."""
        listed = self.links if self.listed else -1
        return np.array([self.endless, listed, self.links, self.base, self.lines], np.int64)


def layout(calls: Sequence[Call], schema: pa.Schema, endless: bool) -> Layout:
    """Return the layout of calls over columns of `schema`; raise DeclarationError for what is not supported."""
    builder = _Builder(schema, endless)
    outputs: list[Output | None] = [None] * len(calls)
    counts_last = sorted(range(len(calls)), key=lambda at: calls[at].function == "count")
    for at in counts_last:  # a count uses the accumulator of another call if there is one
        outputs[at] = builder.output(calls[at])
    lines = 0
    placed = []
    for output in outputs:
        assert output is not None
        placed.append(
            Output(
                output.reads,
                output.of,
                lines,
                output.lines,
                output.kind,
                output.form,
                output.scale,
                output.sample,
                output.root,
            )
        )
        lines += output.lines
    return builder.layout(tuple(placed), calls)


class _Builder:
    """Collects distinct arguments and accumulators."""

    def __init__(self, schema: pa.Schema, endless: bool) -> None:
        self._schema, self._endless = schema, endless
        self._arguments: dict[tuple[str, int], int] = {}
        self._accumulators: dict[tuple[int, str, int], Accumulator] = {}

    def layout(self, outputs: tuple[Output, ...], calls: Sequence[Call]) -> Layout:
        arguments, line = [], 0
        for column, form in self._arguments:
            arguments.append(Argument(column, form, line))
            line += LINES[form]
        accumulators: list[Accumulator] = []
        at, side = GROUP_WORDS, 1
        for (kind, column, _), accumulator in self._accumulators.items():
            mine = [call for call in calls if call.argument == column]
            limit, squares, parts, words, text = ANY, 0, 0, 1, accumulator.text
            anchor = -1
            if kind == EXACT:
                sums = [call for call in mine if call.function == "sum"]
                decimal = arguments[accumulator.argument].form == DECIMAL
                limit = DIGITS38 if decimal else BITS64 if sums else ANY
                parts = 3 if not self._endless else 1 if limit == BITS64 else 2
                words = 1 + parts
                first = (sums or [call for call in mine if call.function == "avg"])[0]
                text = first.text or f"{first.function}({column})"
            elif kind == NUMBER:
                words = 3 if self._endless else NUMBER_WORDS
                if any(call.function in _MOMENTS for call in mine):
                    squares = words
                    words += 2 if self._endless else 4
            elif kind == EXTREME:
                words = 1 + LINES[arguments[accumulator.argument].form] if self._endless else 0
                if not self._endless:
                    anchor, side = side, side + 1
            accumulators.append(
                Accumulator(
                    kind, accumulator.argument, at, words, parts, limit, squares, anchor, accumulator.greatest, text
                )
            )
            at += words
        return Layout(tuple(arguments), tuple(accumulators), outputs, self._endless)

    def output(self, call: Call) -> Output:
        """Return what a call reads, and add its accumulator if it is new."""
        kind = None if call.argument is None else self._schema.field(call.argument).type
        wanted = result_type(call.function, kind, call.distinct)
        if call.argument is None or kind is None:
            return Output(HOW_MANY, -1, 0, 1, wanted, WHOLE)
        name = call.argument
        if call.function == "count":
            if call.distinct:
                return Output(HOW_MANY, self._accumulator(DISTINCT, name, PAIR), 0, 1, wanted, WHOLE)
            return Output(HOW_MANY, self._counting(name), 0, 1, wanted, WHOLE)
        if call.function in ("min", "max"):
            form = _ordered_form(kind)
            of = self._accumulator(EXTREME, name, form, call.function == "max")
            return Output(BEST, of, 0, LINES[form], wanted, form)
        if call.function in _MOMENTS:
            sample, root = _MOMENTS[call.function]
            of = self._accumulator(NUMBER, name, FLOAT)
            return Output(VARIANCE, of, 0, 1, wanted, FLOAT, sample=sample, root=root)
        form = FLOAT if _is_float(kind) else DECIMAL if _is_decimal(kind) or kind == pa.uint64() else WHOLE
        of = self._accumulator(NUMBER if form == FLOAT else EXACT, name, form)
        if call.function == "avg":
            return Output(AVERAGE, of, 0, 1, wanted, FLOAT, 10.0 ** (kind.scale if _is_decimal(kind) else 0))
        return Output(SUM, of, 0, 2 if form == DECIMAL else 1, wanted, form)

    def _accumulator(self, kind: int, column: str, form: int, greatest: bool = False) -> int:
        argument = self._arguments.setdefault((column, form), len(self._arguments))
        key = (kind, column, int(greatest))
        self._accumulators.setdefault(key, Accumulator(kind, argument, 0, 0, greatest=greatest))
        return list(self._accumulators).index(key)

    def _counting(self, column: str) -> int:
        for at, (kind, other, _) in enumerate(self._accumulators):
            if other == column and (kind in (COUNT, EXACT, NUMBER) or (kind == EXTREME and self._endless)):
                return at
        return self._accumulator(COUNT, column, PRESENCE)


def _ordered_form(kind: pa.DataType) -> int:
    if is_text(kind):
        return TEXT
    if _is_float(kind):
        return FLOAT
    if _is_decimal(kind):
        return DECIMAL
    return UNSIGNED if kind == pa.uint64() else WHOLE
