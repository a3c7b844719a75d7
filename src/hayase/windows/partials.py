"""Vectorised partial aggregates: columns to partials (`lift`) and partials to results (`lower`).

`hayase.core.algebra` defines the meaning, one value at a time.

A partial is a few words of 8 bytes, one array per word, for these aggregates and arguments:

| aggregate              | arguments                               | words                                                |
|------------------------|-----------------------------------------|------------------------------------------------------|
| count                  | any                                     | how many                                             |
| sum, avg               | integers, decimals up to 18 digits      | how many, upper half of the sum, lower half          |
| sum, avg               | integers of 32 bits and less            | how many, the sum                                    |
| sum, avg               | floats                                  | how many, the sum, the sum of its rounding errors    |
| var_*, stddev_*        | the same                                | how many, mean, squared distances (Chan)             |
| min, max, bool_*       | numbers, booleans, dates and times      | how many, a key that is ordered as the values are    |
| first, last            | the same                                | nothing, NULL or a value; its bits                   |
| arg_min, arg_max       | the same, twice                         | whether there is one, key, bits                      |

A sum in halves of 32 bits is exact for two thousand million tuples and needs no carry: halves are added separately. For
min, keys are inverted. All others (texts, large decimals, sketches, user-defined aggregates) are arrays of objects.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.algebra import AGGREGATES, Aggregate, AggregateOverflow
from hayase.core.data_classes import dataclass
from hayase.core.numbers import fits_arrow
from hayase.core.scratch import scratch

__all__ = [
    "Lifting", "Partials", "as_rows", "column_of", "from_rows", "numbers", "objects", "ordered_keys", "scratch",
    "valid_rows",
]  # fmt: skip

_ADD, _SUM, _MAX, _MOMENTS, _FIRST, _LAST, _ARG = range(
    7
)  # as in `folds_loops`, which is not imported here because importing compiles it
_TOP = np.uint64(1 << 63)
_HALF = np.int64((1 << 32) - 1)
_NOTHING, _NULL, _VALUE = range(3)
_I, _F, _U = np.int64, np.float64, np.uint64
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Partials:
    """Partial aggregates, one per row: one array per word, or one array of objects."""

    words: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        return len(self.words[0])

    def take(self, rows: np.ndarray) -> Partials:
        """Return some of the partials, by position or by mask."""
        return Partials(tuple(word[rows] for word in self.words))

    @staticmethod
    def joined(parts: Sequence[Partials]) -> Partials:
        """Concatenate partials."""
        return Partials(tuple(np.concatenate(words) for words in zip(*(part.words for part in parts))))


def objects(values: Sequence[Any]) -> Partials:
    """Return partials that are objects."""
    column = np.empty(len(values), object)
    for row, value in enumerate(values):
        column[row] = value
    return Partials((column,))


def as_rows(partials: Partials, places: np.ndarray | None = None) -> np.ndarray:
    """Return the words side by side as bits; partial i is in row `places[i]`, by default in row i."""
    from hayase.windows.folds_loops import put_word

    rows = scratch(len(partials), len(partials.words))
    for at, word in enumerate(partials.words):
        put_word(np.ascontiguousarray(word).view(np.int64), _NONE if places is None else places, rows, at)
    return rows


def from_rows(rows: np.ndarray, lifting: Lifting, places: np.ndarray | None = None) -> Partials:
    """The reverse of `as_rows`."""
    from hayase.windows.folds_loops import take_word

    words = []
    for at, kind in enumerate(lifting.types_of_words):
        word = scratch(len(rows))
        take_word(rows, at, _NONE if places is None else places, word)
        words.append(word.view(kind))
    return Partials(tuple(words))


class Lifting:
    """An aggregate over arguments of certain types.

    Liftings with equal `partial` over equal columns have equal partials: sum and avg of one column are kept once. `parts`
    says how the words of two partials are combined (see `folds_loops`); it is empty if partials are objects.

    >>> average = Lifting(AGGREGATES["avg"], [pa.int64()])
    >>> lifted = average.lift([pa.array([1, 5, None, 6])])
    >>> average.lower(average.runs(lifted, np.array([0, 2])))[0].to_pylist()
    [3.0, 6.0]
    """

    def __init__(self, aggregate: Aggregate, types: Sequence[pa.DataType]) -> None:
        self.aggregate = aggregate
        self.types = tuple(types)
        self.result: pa.DataType = aggregate.result(self.types)
        form = _form(aggregate, self.types) or _object_form(aggregate, self.types)
        self.partial, self.parts, self.types_of_words = form.partial, form.parts, form.words
        self._form = form

    @property
    def lanes(self) -> bool:
        """Whether partials are words and not objects."""
        return bool(self.parts)

    def empties(self, rows: int) -> Partials:
        """Return partials of no tuples."""
        if not self.parts:
            return objects([self.aggregate.empty() for _ in range(rows)])
        return Partials(tuple(np.zeros(rows, kind) for kind in self.types_of_words))

    def lift(self, columns: Sequence[pa.Array], present: np.ndarray | None = None, rows: int | None = None) -> Partials:
        """Return one partial per row; rows that are not `present` have empty ones. `rows` is needed if there is no column."""
        count = len(columns[0]) if columns else len(present) if present is not None else int(rows or 0)
        lifted = self._form.lift(columns, np.ones(count, np.bool_) if present is None else present)
        if present is None or not self.parts:
            return lifted
        return Partials(tuple(np.where(present, word, word.dtype.type(0)) for word in lifted.words))

    def lower(self, partials: Partials) -> tuple[pa.Array, np.ndarray]:
        """Return the results, and the rows whose result does not fit its type; these are NULL."""
        with np.errstate(all="ignore"):
            values, overflowed = self._form.lower(partials, self.result)
        return values, overflowed

    def combined(self, older: Partials, newer: Partials) -> Partials:
        """Combine older and newer partials row by row."""
        if not self.parts:
            return objects([self.aggregate.combine(*pair) for pair in zip(older.words[0], newer.words[0])])
        from hayase.windows.folds_loops import combine_rows, kind_of

        one, other = as_rows(older), as_rows(newer)
        views = (rows.view(np.float64) for rows in (one, one, other))
        combine_rows(*(view for pair in zip((one, one, other), views) for view in pair), kind_of(*self.parts))
        return from_rows(one, self)

    def runs(self, partials: Partials, starts: np.ndarray) -> Partials:
        """Fold consecutive runs; each begins at its start and ends before the next start."""
        starts = np.ascontiguousarray(starts, np.int64)
        if not self.parts:
            stops = [*starts[1:], len(partials)]
            return objects([self.aggregate.fold(list(partials.words[0][a:b])) for a, b in zip(starts, stops)])
        from hayase.windows.folds_loops import fold_runs, kind_of

        rows, out = as_rows(partials), np.zeros((len(starts), len(self.types_of_words)), np.int64)
        fold_runs(out, out.view(np.float64), rows, rows.view(np.float64), starts, kind_of(*self.parts))
        return from_rows(out, self)

    def stored(self, partials: Partials) -> list[pa.Array]:
        """Return partials as columns of the state; see `restored`."""
        if self.parts:
            return [pa.array(word) for word in partials.words]
        return [pa.array([self.aggregate.to_bytes(folded) for folded in partials.words[0]], pa.binary())]

    def restored(self, columns: Sequence[pa.Array]) -> Partials:
        """Return the partials that were passed to `stored`."""
        if self.parts:
            return Partials(tuple(column.to_numpy(zero_copy_only=False) for column in columns))
        return objects([self.aggregate.from_bytes(data) for data in columns[0].to_pylist()])

    @property
    def stored_types(self) -> tuple[pa.DataType, ...]:
        """The types of the columns that `stored` returns."""
        return tuple(pa.from_numpy_dtype(kind) for kind in self.types_of_words) if self.parts else (pa.binary(),)


_Lift = Callable[[Sequence[pa.Array], np.ndarray], Partials]
_Lower = Callable[[Partials, pa.DataType], tuple[pa.Array, np.ndarray]]


@dataclass(frozen=True, slots=True)
class _Form:
    """How an aggregate is lifted and lowered: the identity of its partials, their parts and the types of their words."""

    partial: Hashable
    parts: tuple[int, ...]
    words: tuple[Any, ...]
    lift: _Lift
    lower: _Lower


def _form(aggregate: Aggregate, types: tuple[pa.DataType, ...]) -> _Form | None:
    """Return the form in words of a built-in aggregate, or None if it has none."""
    if AGGREGATES.get(aggregate.name) is not aggregate:
        return None
    name = aggregate.name
    if name == "count":
        return _Form(("count", len(types)), (_ADD,), (_I,), _lift_count, _lower_count)
    kind = types[0]
    if name in ("sum", "avg"):
        return _sum_form(name, kind)
    if name in ("min", "max", "bool_and", "bool_or") and _has_key(kind):
        least = name in ("min", "bool_and")
        return _Form(
            ("least" if least else "greatest", kind), (_ADD, _MAX), (_I, _U), partial(_lift_key, least),
            partial(_lower_key, least),
        )  # fmt: skip
    if name in _MOMENTS_OF and _is_number(kind):
        return _Form(
            ("moments", kind), (_MOMENTS,), (_I, _F, _F), _lift_moments, partial(_lower_moments, *_MOMENTS_OF[name])
        )
    if name in ("first", "last") and _has_key(kind):
        return _Form((name, kind), (_FIRST if name == "first" else _LAST,), (_I, _I), _lift_bits, _lower_bits)
    if name in ("arg_min", "arg_max") and _has_key(kind) and _has_key(types[1]):
        return _Form((name, types), (_ARG,), (_I, _U, _I), partial(_lift_pair, name == "arg_min"), _lower_pair)
    return None


_MOMENTS_OF = {"var_samp": (1, False), "var_pop": (0, False), "stddev_samp": (1, True), "stddev_pop": (0, True)}


def _sum_form(name: str, kind: pa.DataType) -> _Form | None:
    average = name == "avg"
    if pa.types.is_floating(kind):
        return _Form(("sum", kind), (_ADD, _SUM), (_I, _F, _F), _lift_floats, partial(_lower_floats, average))
    if pa.types.is_integer(kind) and kind.bit_width <= 32:
        lower = partial(_lower_exact, average, 0)
        return _Form(("sum", kind), (_ADD, _ADD), (_I, _I), partial(_lift_exact, False), lower)
    if pa.types.is_integer(kind) or _is_small_decimal(kind):
        scale = kind.scale if pa.types.is_decimal(kind) else 0
        lower = partial(_lower_exact, average, scale)
        return _Form(("sum", kind), (_ADD, _ADD, _ADD), (_I, _I, _I), partial(_lift_exact, True), lower)
    return None


def _object_form(aggregate: Aggregate, types: tuple[pa.DataType, ...]) -> _Form:
    shared = "sum" if aggregate in (AGGREGATES["sum"], AGGREGATES["avg"]) else aggregate.name
    known = AGGREGATES.get(aggregate.name)
    own = None if known is not None and known.lift is aggregate.lift else id(aggregate)
    return _Form(
        (shared, own, types), (), (object,), partial(_lift_objects, aggregate), partial(_lower_objects, aggregate)
    )


# ---------------------------------------------------------------------------------------------------- types


def _is_small_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal128(kind) and kind.precision <= 18)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or _is_small_decimal(kind))


def _has_key(kind: pa.DataType) -> bool:
    return _is_number(kind) or (
        bool(pa.types.is_boolean(kind) or pa.types.is_temporal(kind)) and not (pa.types.is_interval(kind))
    )


def numbers(column: pa.Array) -> np.ndarray:
    """Return the values as int64, uint64 or float64; NULL as 0, decimals as unscaled integers."""
    kind = column.type
    if pa.types.is_decimal128(kind):
        words = np.frombuffer(column.buffers()[1], np.int64) if len(column) else np.empty(0, np.int64)
        low = words[2 * column.offset : 2 * (column.offset + len(column)) : 2]
        return np.where(valid_rows(column), low, 0) if column.null_count else np.ascontiguousarray(low)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_temporal(kind):
        column = column.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(0, column.type) if not pa.types.is_floating(column.type) else 0.0)
    values = column.to_numpy(zero_copy_only=False)
    wide = _F if values.dtype.kind == "f" else _U if values.dtype == _U else _I
    return values.astype(wide, copy=False)


def column_of(values: np.ndarray, kind: pa.DataType, valid: np.ndarray | None) -> pa.Array:
    """The reverse of `numbers`."""
    mask = None if valid is None or valid.all() else ~valid
    if pa.types.is_decimal128(kind):
        return _decimals(
            values >> 63, values.view(_U), kind, np.ones(len(values), np.bool_) if valid is None else valid
        )
    if pa.types.is_boolean(kind):
        return pa.array(values != 0, kind, mask=mask)
    if pa.types.is_temporal(kind):
        narrow = np.int64 if kind.bit_width == 64 else np.int32
        return pa.array(values.astype(narrow), mask=mask).view(kind)
    return pa.array(values.astype(kind.to_pandas_dtype(), copy=False), kind, mask=mask)


def _decimals(upper: np.ndarray, lower: np.ndarray, kind: pa.DataType, valid: np.ndarray) -> pa.Array:
    words = np.stack([lower.view(_I), upper], axis=1)
    bits = pa.py_buffer(np.packbits(valid, bitorder="little")) if not valid.all() else None
    return pa.Array.from_buffers(kind, len(words), [bits, pa.py_buffer(np.ascontiguousarray(words))])


def valid_rows(column: pa.Array) -> np.ndarray:
    """Return which rows are not NULL."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    return column.is_valid().to_numpy(zero_copy_only=False)


def ordered_keys(column: pa.Array, least: bool) -> np.ndarray:
    """Return unsigned keys in the order of the values, NaN last and -0.0 before 0.0; inverted if `least`."""
    return _ordered_numbers(numbers(column), least)


def _ordered_numbers(values: np.ndarray, least: bool) -> np.ndarray:
    if values.dtype == _F:
        from hayase.windows.folds_loops import order_floats

        keys = scratch(len(values)).view(_U)
        order_floats(np.ascontiguousarray(values).view(_U), least, keys)
        return keys
    keys = values if values.dtype == _U else values.view(_U) ^ _TOP
    return ~keys if least else keys


def _from_keys(keys: np.ndarray, kind: pa.DataType, least: bool) -> np.ndarray:
    if pa.types.is_floating(kind):
        from hayase.windows.folds_loops import unorder_floats

        bits = scratch(len(keys)).view(_U)
        unorder_floats(keys, least, bits)
        return bits.view(_F)
    if least:
        keys = ~keys
    return keys if kind == pa.uint64() else (keys ^ _TOP).view(_I)


# ---------------------------------------------------------------------------------------------------- lifting, lowering


def _lift_count(columns: Sequence[pa.Array], present: np.ndarray) -> Partials:
    return Partials(((valid_rows(columns[0]) if columns else present).astype(_I),))


def _lower_count(partials: Partials, result: pa.DataType) -> tuple[pa.Array, np.ndarray]:
    return pa.array(partials.words[0]), _NONE


def _lift_exact(halves: bool, columns: Sequence[pa.Array], present: np.ndarray) -> Partials:
    count, values = valid_rows(columns[0]).astype(_I), numbers(columns[0])
    if not halves:
        return Partials((count, values))
    if values.dtype == _U:
        return Partials((count, (values >> np.uint64(32)).view(_I), (values & np.uint64(_HALF)).view(_I)))
    return Partials((count, values >> 32, values & _HALF))


def _lower_exact(average: bool, scale: int, partials: Partials, result: pa.DataType) -> tuple[pa.Array, np.ndarray]:
    count, upper, lower = partials.words if len(partials.words) == 3 else (partials.words[0], None, partials.words[1])
    valid = count > 0
    if upper is None:
        upper, lower = lower >> 32, lower & _HALF
    upper, lower = upper + (lower >> 32), lower & _HALF
    if average:
        total = np.ldexp(upper.astype(_F), 32) + lower
        return pa.array(total / np.where(valid, count, 1) / 10.0**scale, mask=~valid), _NONE
    if pa.types.is_decimal(result):  # a sum of numbers of 18 digits cannot exceed 38
        return _decimals(upper >> 32, ((upper << 32) | lower).view(_U), result, valid), _NONE
    fits = (upper >= -(1 << 31)) & (upper < 1 << 31)
    return pa.array((upper << 32) | lower, result, mask=~(valid & fits)), np.flatnonzero(valid & ~fits)


def _lift_floats(columns: Sequence[pa.Array], present: np.ndarray) -> Partials:
    values = numbers(columns[0])
    return Partials((valid_rows(columns[0]).astype(_I), values, np.zeros(len(values))))


def _lower_floats(average: bool, partials: Partials, result: pa.DataType) -> tuple[pa.Array, np.ndarray]:
    count, total, rest = partials.words
    valid = count > 0
    both = total + rest + 0.0
    rounded = np.where(np.isnan(both), total, both)
    return pa.array(rounded / np.where(valid, count, 1) if average else rounded, mask=~valid), _NONE


def _lift_key(least: bool, columns: Sequence[pa.Array], present: np.ndarray) -> Partials:
    valid, keys = valid_rows(columns[0]), ordered_keys(columns[0], least)
    return Partials((valid.astype(_I), np.where(valid, keys, np.uint64(0)) if columns[0].null_count else keys))


def _lower_key(least: bool, partials: Partials, result: pa.DataType) -> tuple[pa.Array, np.ndarray]:
    count, keys = partials.words
    return column_of(_from_keys(keys, result, least), result, count > 0), _NONE


def _lift_moments(columns: Sequence[pa.Array], present: np.ndarray) -> Partials:
    valid, values = valid_rows(columns[0]), numbers(columns[0]).astype(_F)
    if pa.types.is_decimal(columns[0].type):
        values = values / 10.0 ** columns[0].type.scale
    return Partials((valid.astype(_I), values, np.where(np.isfinite(values), 0.0, np.nan)))


def _lower_moments(sample: int, root: bool, partials: Partials, result: pa.DataType) -> tuple[pa.Array, np.ndarray]:
    count, _, squares = partials.words
    enough = count > sample
    variance = squares / np.where(enough, count - sample, 1)
    return pa.array(np.sqrt(variance) if root else variance, mask=~enough), _NONE


def _bits(column: pa.Array) -> np.ndarray:
    return numbers(column).view(_I)


def _from_bits(bits: np.ndarray, kind: pa.DataType) -> np.ndarray:
    return bits.view(_F if pa.types.is_floating(kind) else _U if kind == pa.uint64() else _I)


def _lift_bits(columns: Sequence[pa.Array], present: np.ndarray) -> Partials:
    return Partials((np.where(valid_rows(columns[0]), _VALUE, _NULL).astype(_I), _bits(columns[0])))


def _lower_bits(partials: Partials, result: pa.DataType) -> tuple[pa.Array, np.ndarray]:
    state, bits = partials.words
    return column_of(_from_bits(bits, result), result, state == _VALUE), _NONE


def _lift_pair(least: bool, columns: Sequence[pa.Array], present: np.ndarray) -> Partials:
    there, by = valid_rows(columns[0]) & valid_rows(columns[1]), numbers(columns[1])
    if by.dtype == _F:
        by = by + 0.0  # -0.0 becomes 0.0, which equals it
    keys = np.where(there, _ordered_numbers(by, least), np.uint64(0))
    return Partials((there.astype(_I), keys, np.where(there, _bits(columns[0]), 0)))


def _lower_pair(partials: Partials, result: pa.DataType) -> tuple[pa.Array, np.ndarray]:
    there, _, bits = partials.words
    return column_of(_from_bits(bits, result), result, there != 0), _NONE


def _lift_objects(aggregate: Aggregate, columns: Sequence[pa.Array], present: np.ndarray) -> Partials:
    rows = zip(*(column.to_pylist() for column in columns)) if columns else (() for _ in present)
    return objects([aggregate.lift(*row) if there else aggregate.empty() for row, there in zip(rows, present)])


def _lower_objects(aggregate: Aggregate, partials: Partials, result: pa.DataType) -> tuple[pa.Array, np.ndarray]:
    values: list[Any] = []
    overflowed: list[int] = []
    decimal = pa.types.is_decimal(result)
    for row, folded in enumerate(partials.words[0]):
        try:
            value = aggregate.lower(folded)
            if decimal and not fits_arrow((value,)):  # a user-defined aggregate may return any number
                raise AggregateOverflow(value, "a decimal of 38 digits")
            values.append(value)
        except AggregateOverflow:
            overflowed.append(row)
            values.append(None)
    return pa.array(values, result), np.array(overflowed, np.int64)
