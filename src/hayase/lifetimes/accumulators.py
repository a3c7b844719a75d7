"""What an aggregate keeps: its calls taken apart into accumulators, and the small programs that drive the sweep.

Calls over the same argument share what they can: count, sum and average are one accumulator, and so are average and
variance. A group has one row of 8-byte words (`GROUP_WORDS`, then its accumulators); a tuple that may end has one too,
its cell: its group, which arguments are NULL, links, and the words of its arguments.

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
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hayase.core.algebra import AGGREGATES
from hayase.core.errors import DeclarationError
from hayase.core.keys import check_key_type, is_text
from hayase.lifetimes.plans import Call

__all__ = ["Accumulator", "Argument", "Layout", "Output", "layout", "result_type"]

VERSION, ROW, COUNTED = range(3)
"""The first words of a group: when it was last written, the id of its open row or -1, how many tuples it has."""
GROUP_WORDS = 3

COUNT, EXACT, NUMBER, EXTREME, DISTINCT = range(5)
"""Kinds of accumulators."""
HIGH, LOW, SIZE, DOUBT, NANS, ABOVE, BELOW = range(1, 8)
"""Words of a NUMBER behind its count. The sum in two doubles; while tuples end, also the sum of their sizes, how much
rounding may have gone into it, and how many are NaN, infinity and minus infinity: these are in no sum. Sums of squares
follow: two doubles and, while tuples end, the rounding and how many numbers are too large to be squared."""
NUMBER_WORDS = 8
LANES = 72
"""So many times 32 bits hold every sum of floats exactly."""
WHOLE, UNSIGNED, FLOAT, DECIMAL, TEXT, PAIR, PRESENCE = range(7)
"""Forms of arguments: an int64; an uint64 with its first bit turned; a float64; the low and high word of a decimal; the
first eight bytes, place and length of a text; the number of a pair of group and value; nothing but whether it is NULL."""
LINES = (1, 1, 1, 2, 3, 1, 0)
"""Words that each form takes."""

KIND, AT, LINE, ARGUMENT, FORM, PARTS, LIMIT, SQUARES, SIDE, LINK, GREATEST = range(11)
"""What a line of the accumulators' program says: kind, first word in the group, first line of the argument, the number
of the argument, its form, words of an exact sum, its limit, where sums of squares begin (0: nowhere), the heap's place
among the group's anchors and of its links in a cell, and whether the greatest is wanted."""
ANY, BITS64, DIGITS38 = range(3)
"""Limits of exact sums."""

HOW_MANY, SUM, AVERAGE, VARIANCE, BEST = range(5)
"""What a call reads from its accumulator."""
READS, OF, TO, SAMPLE, ROOT = range(5)
"""What a line of the calls' program says: which of these, the accumulator (-1: the tuples themselves), the first line of
the output, and for a variance whether it is the sample's and whether its root is wanted."""

_MOMENTS = {"var_samp": (1, 0), "var_pop": (0, 0), "stddev_samp": (1, 1), "stddev_pop": (0, 1)}
_FUNCTIONS = ("count", "sum", "avg", "min", "max", *_MOMENTS)


def result_type(function: str, argument_type: pa.DataType | None, distinct: bool = False) -> pa.DataType:
    """The type of an aggregate call that can be kept here, or a DeclarationError that says what to do instead.

    >>> result_type("sum", pa.int16()), result_type("avg", pa.decimal128(10, 2)), result_type("count", None)
    (DataType(int64), DataType(double), DataType(int64))
    >>> result_type("sum", pa.string())
    Traceback (most recent call last):
    hayase.core.errors.DeclarationError: there is no sum of a string; use integers, floats or decimals, or cast to one of them
    """
    if function not in _FUNCTIONS:
        if function in AGGREGATES or ":" in function:
            raise DeclarationError(
                f"{function} is not kept over this input",
                "use it directly over a stream, in a window by Range with Slide, or by Rows that are partitioned as it is grouped",
            )
        raise DeclarationError(f"there is no aggregate {function}", f"use one of {', '.join(_FUNCTIONS)}")
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
    """A column in a form that the sweep takes; its words begin at `line`."""

    column: str
    form: int
    line: int

    @property
    def lines(self) -> int:
        return LINES[self.form]


@dataclass(frozen=True, slots=True)
class Accumulator:
    """What is kept for some calls: `words` of them from word `at` of a group. `text` names it in messages."""

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
    """A call: what it reads from which accumulator (-1: the count of tuples), and its words from line `to` on."""

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
    """An aggregate taken apart. In a cell, `links` is the first half word of links and `base` the first word of arguments."""

    arguments: tuple[Argument, ...]
    accumulators: tuple[Accumulator, ...]
    outputs: tuple[Output, ...]
    endless: bool

    @property
    def group_words(self) -> int:
        return GROUP_WORDS + sum(each.words for each in self.accumulators)

    @property
    def lines(self) -> int:
        """Words of all arguments."""
        return sum(each.lines for each in self.arguments)

    @property
    def output_lines(self) -> int:
        return sum(each.lines for each in self.outputs)

    @property
    def heaps(self) -> int:
        return sum(each.side >= 0 for each in self.accumulators)

    @property
    def listed(self) -> bool:
        """Whether a group must find its tuples: to sum floats anew."""
        return not self.endless and any(each.kind == NUMBER for each in self.accumulators)

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
        """The accumulators as the loops take them."""
        rows = []
        for each in self.accumulators:
            argument = self.arguments[each.argument]
            link = self.links + 2 * self.listed + 3 * (each.side - 1) if each.side >= 0 else -1
            rows.append(
                (each.kind, each.at, argument.line, each.argument, argument.form, each.parts, each.limit, each.squares,
                 each.side, link, each.greatest)
            )  # fmt: skip
        return np.array(rows, np.int64).reshape(-1, 11)

    def calls(self) -> np.ndarray:
        """The calls as the loops take them."""
        rows = [(each.reads, each.of, each.to, each.sample, each.root) for each in self.outputs]
        return np.array(rows, np.int64).reshape(-1, 5)

    def shape(self) -> np.ndarray:
        """For the loops: endless or not, links to the group's list or -1, links, first word of arguments, their words."""
        listed = self.links if self.listed else -1
        return np.array([self.endless, listed, self.links, self.base, self.lines], np.int64)


def layout(calls: Sequence[Call], schema: pa.Schema, endless: bool) -> Layout:
    """Take the calls over columns of `schema` apart; what is not supported is refused."""
    builder = _Builder(schema, endless)
    outputs: list[Output | None] = [None] * len(calls)
    counts_last = sorted(range(len(calls)), key=lambda at: calls[at].function == "count")
    for at in counts_last:  # a count takes what is counted anyway
        outputs[at] = builder.output(calls[at])
    lines = 0
    placed = []
    for each in outputs:
        assert each is not None
        placed.append(
            Output(each.reads, each.of, lines, each.lines, each.kind, each.form, each.scale, each.sample, each.root)
        )
        lines += each.lines
    return builder.layout(tuple(placed), calls)


class _Builder:
    """Collects arguments and accumulators, each once."""

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
        for (kind, column, _), each in self._accumulators.items():
            mine = [call for call in calls if call.argument == column]
            limit, squares, parts, words, text = ANY, 0, 0, 1, each.text
            anchor = -1
            if kind == EXACT:
                sums = [call for call in mine if call.function == "sum"]
                decimal = arguments[each.argument].form == DECIMAL
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
                words = 1 + LINES[arguments[each.argument].form] if self._endless else 0
                if not self._endless:
                    anchor, side = side, side + 1
            accumulators.append(
                Accumulator(kind, each.argument, at, words, parts, limit, squares, anchor, each.greatest, text)
            )
            at += words
        return Layout(tuple(arguments), tuple(accumulators), outputs, self._endless)

    def output(self, call: Call) -> Output:
        """What a call reads; its accumulator is there afterwards."""
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
