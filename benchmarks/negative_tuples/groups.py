"""Set operations and aggregates of the negative-tuple method: signed tuples are counted and summed by group."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, get_args

import numpy as np
import pyarrow as pa

from benchmarks.negative_tuples.signed import Signed, gathered, row_bytes
from hayase.core.keys import KeyIndex, encode, hashes, raw_values, validity
from hayase.core.times import BEGINNING
from hayase.lifetimes.plans import Aggregate, Call, Multiset, Rule
from hayase.lifetimes.relations import Span
from hayase.lifetimes.slot_columns import grown

__all__ = ["Groups", "SignedMultiset", "signed_aggregate"]


class Groups:
    """Non-empty groups of equal keys, compared exactly like in the direct method, each with some words.

    One word marks a group that is in use: it is 0 for others.
    """

    def __init__(self, words: int, mark: int, counts: tuple[int, int]) -> None:
        """A group is empty when its words at `counts` are 0."""
        self._index = KeyIndex()
        self._mark, self._counts = mark, counts
        self.words = np.zeros((1024, words), np.int64)

    def of(self, *sides: pa.RecordBatch) -> list[np.ndarray]:
        """Return the groups of rows, given their keys."""
        groups = []
        for keys in sides:
            encoded = encode(keys.columns, keys.num_rows)
            groups.append(self._index.slots(encoded, hashes(encoded)))
        known = len(self.words)
        self.words = grown(self.words, self._index.capacity)
        self.words[known:] = 0
        return groups

    def drop(self, sides: Sequence[Signed], groups: Sequence[np.ndarray]) -> None:
        """Drop the groups that have become empty in these events."""
        from benchmarks.negative_tuples import loops

        empty, count = np.empty(sum(map(len, groups)), np.int64), 0
        for side, mine in zip(sides, groups):
            count = loops.emptied(side.plus, mine, self.words, self._mark, *self._counts, empty, count)
        self._index.drop(empty[:count])


class SignedMultiset:
    """Set operations: the counts of a row on the left and right determine the number of its copies."""

    def __init__(self, node: Multiset) -> None:
        self._schema = node.schema
        self._rule = get_args(Rule).index(node.rule)
        self._groups = Groups(3, 2, (0, 1))
        self._serial = np.ones(1, np.int64)

    def advance(self, inputs: Sequence[Signed], span: Span) -> Signed:
        """Process a step and return the copies that appear and end."""
        from benchmarks.negative_tuples import loops

        sides = [inputs[0], inputs[1] if len(inputs) > 1 else Signed.none(self._schema)]
        count = sum(map(len, sides))
        groups = self._groups.of(*(side.rows for side in sides))
        events, plus, tags = np.empty(count, np.int64), np.empty(count, np.bool_), np.empty(count, np.int64)
        results = loops.multiset(
            self._rule, self._groups.words, self._serial,
            sides[0].time, sides[0].plus, groups[0], sides[1].time, sides[1].plus, groups[1], events, plus, tags,
        )  # fmt: skip
        self._groups.drop(sides, groups)
        events = events[:results]
        rows = gathered([side.rows for side in sides], self._schema, events)
        return Signed(rows, np.concatenate([side.time for side in sides])[events], plus[:results], tags[:results])


# ---------------------------------------------------------------------------------------------------- aggregates


def signed_aggregate(node: Aggregate) -> _Sums | _Recomputed:
    """Return incremental sums if the calls are counts, sums and means of integers by key; else recomputation."""
    kinds = {field.name: field.type for field in node.child.schema}
    simple = all(
        not call.distinct
        and call.function in ("count", "sum", "avg")
        and (call.argument is None or call.function == "count" or pa.types.is_signed_integer(kinds[call.argument]))
        for call in node.calls
    )
    return _Sums(node) if simple and node.keys else _Recomputed(node)


class _Sums:
    """Counts and sums per group."""

    def __init__(self, node: Aggregate) -> None:
        from benchmarks.negative_tuples.loops import COUNT, MEAN, ROWS, SUM

        self._node = node
        self._arguments = sorted({call.argument for call in node.calls if call.argument is not None})
        kinds = {"count": COUNT, "sum": SUM, "avg": MEAN}
        self._program = np.array(
            [
                (ROWS, 0) if call.argument is None else (kinds[call.function], self._arguments.index(call.argument))
                for call in node.calls
            ],
            np.int64,
        ).reshape(-1, 2)
        self._groups = Groups(2 + 2 * len(self._arguments), 0, (1, 1))
        self._serial = np.ones(1, np.int64)

    def advance(self, inputs: Sequence[Signed], span: Span) -> Signed:
        """Process a step and return the old rows that end and the new ones that appear."""
        from benchmarks.negative_tuples import loops

        (child,) = inputs
        count, calls = len(child), len(self._program)
        (groups,) = self._groups.of(child.rows.select(list(self._node.keys)))
        arguments, valid = (
            np.empty((len(self._arguments), count), np.int64),
            np.ones((len(self._arguments), count), np.bool_),
        )
        for line, name in enumerate(self._arguments):
            column = child.rows.column(name)
            if pa.types.is_signed_integer(column.type):
                arguments[line] = raw_values(column.cast(pa.int64()), np.int64)
            else:
                arguments[line] = 0
            if column.null_count:
                valid[line] = validity(column)
        events, plus, tags = np.empty(2 * count, np.int64), np.empty(2 * count, np.bool_), np.empty(2 * count, np.int64)
        results, there = np.empty((calls, 2 * count), np.int64), np.empty((calls, 2 * count), np.bool_)
        count_out, overflows = loops.aggregate(
            self._program, self._groups.words, self._serial, child.plus, groups, arguments, valid,
            events, plus, tags, results, results.view(np.float64), there,
        )  # fmt: skip
        self._groups.drop([child], [groups])
        if overflows:
            raise OverflowError("a sum of the negative-tuple method left 64 bits")
        events = events[:count_out]
        keys = child.rows.select(list(self._node.keys)).take(pa.array(events))
        columns = list(keys.columns)
        for line, call, field in zip(range(calls), self._node.calls, list(self._node.schema)[len(columns) :]):
            numbers = results[line, :count_out]
            missing = None if there[line, :count_out].all() else ~there[line, :count_out]
            array = pa.array(numbers.view(np.float64) if call.function == "avg" else numbers, mask=missing)
            columns.append(array if array.type == field.type else array.cast(field.type))
        rows = pa.RecordBatch.from_arrays(columns, schema=self._node.schema)
        return Signed(rows, child.time[events], plus[:count_out], tags[:count_out])


class _Recomputed:
    """Every group keeps the arguments of its tuples; its row is recomputed after every instant that touches it."""

    def __init__(self, node: Aggregate) -> None:
        self._node = node
        self._keys: dict[bytes, tuple[Any, ...]] = {}
        self._members: dict[bytes, dict[int, tuple[Any, ...]]] = {}
        self._shown: dict[bytes, tuple[tuple[Any, ...], int]] = {}
        self._next = 0

    def advance(self, inputs: Sequence[Signed], span: Span) -> Signed:
        """Process a step and return the old rows that end and the new ones that appear."""
        (child,) = inputs
        keys = [child.rows.column(name) for name in self._node.keys]
        names = [call.argument for call in self._node.calls if call.argument is not None]
        lines = [child.rows.column(name).to_pylist() for name in names]
        key_values = list(zip(*(column.to_pylist() for column in keys))) if keys else [()] * len(child)
        encoded = row_bytes(encode(keys, len(child)))
        events: list[tuple[tuple[Any, ...], int, bool, int]] = []
        if not keys and b"" not in self._keys and span.began != BEGINNING:
            self._keys[b""], self._members[b""] = (), {}
            self._show(b"", span.began, events)
        touched: dict[bytes, None] = {}
        times = child.time.tolist()
        for row, key in enumerate(encoded):
            if row and times[row] != times[row - 1]:
                for touched_key in touched:
                    self._show(touched_key, times[row - 1], events)
                touched = {}
            touched[key] = None
            self._keys.setdefault(key, key_values[row])
            members = self._members.setdefault(key, {})
            if child.plus[row]:
                members[int(child.tag[row])] = tuple(line[row] for line in lines)
            else:
                del members[int(child.tag[row])]
        for touched_key in touched:
            self._show(touched_key, times[-1], events)
        columns = [
            pa.array([row[at] for row, _, _, _ in events], field.type) for at, field in enumerate(self._node.schema)
        ]
        return Signed(
            pa.RecordBatch.from_arrays(columns, schema=self._node.schema),
            np.array([time for _, time, _, _ in events], np.int64),
            np.array([plus for _, _, plus, _ in events], np.bool_),
            np.array([tag for _, _, _, tag in events], np.int64),
        )

    def _show(self, key: bytes, time: int, found: list[tuple[tuple[Any, ...], int, bool, int]]) -> None:
        """Update the row of a group."""
        members = list(self._members[key].values())
        new = None
        if members or not self._node.keys:
            at, results = 0, []
            for call, field in zip(self._node.calls, list(self._node.schema)[len(self._node.keys) :]):
                results.append(
                    _call(call, [member[at] for member in members] if call.argument else members, field.type)
                )
                at += call.argument is not None
            new = (*self._keys[key], *results)
        shown = self._shown.pop(key, None)
        if shown is not None and new is not None and repr(shown[0]) == repr(new):
            self._shown[key] = shown
            return
        if shown is not None:
            found.append((shown[0], time, False, shown[1]))
        if new is not None:
            found.append((new, time, True, self._next))
            self._shown[key] = (new, self._next)
            self._next += 1
        else:
            del self._keys[key], self._members[key]


def _call(call: Call, given: Sequence[Any], kind: pa.DataType) -> Any:
    """Return the value of an aggregate over some arguments, as in SQL."""
    if call.argument is None:
        return len(given)
    numbers = [value for value in given if value is not None]
    if call.distinct:
        numbers = list({_canonical(number): number for number in numbers}.values())
    if call.function == "count":
        return len(numbers)
    if not numbers:
        return None
    if call.function in ("min", "max"):
        choose: Callable[..., Any] = min if call.function == "min" else max
        return choose(numbers, key=lambda number: (1, 0) if number != number else (0, number))
    if call.function == "sum":
        return float(_total(numbers)) if pa.types.is_floating(kind) else sum(numbers)
    if call.function == "avg":
        return float(_total(numbers) / len(numbers))
    return _spread(call.function, numbers)


def _canonical(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def _total(numbers: Sequence[Any]) -> Any:
    """Return the exact sum; NaN and infinity are added as floats."""
    special = [number for number in numbers if isinstance(number, float) and not math.isfinite(number)]
    return sum(special) if special else sum(map(Fraction, numbers))


def _spread(function: str, numbers: Sequence[Any]) -> float | None:
    """Return the variance or standard deviation."""
    sample = function.endswith("samp")
    if len(numbers) == 1 and sample:
        return None
    if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
        return math.nan
    exact = [Fraction(number) for number in numbers]
    variance = float(statistics.variance(exact) if sample else statistics.pvariance(exact))
    return math.sqrt(variance) if function.startswith("stddev") else variance
