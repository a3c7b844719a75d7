"""Aggregate functions: each is defined by `lift`, `combine`, `lower` and the laws that hold for them.

The arguments of a tuple are lifted to a partial, partials are combined, older first, and the last one is lowered to the
result. This module defines the meaning, one value at a time; faster implementations are tested against it. Partials are
immutable: `combine` returns a new one.

The semantics are DuckDB's. NULL arguments are skipped, except by first and last. NaN is the greatest number. Over no tuples
the result is NULL, and a count is 0. Intended differences:

- A sum of integers is an exact bigint; one that does not fit raises AggregateOverflow. DuckDB's is a hugeint.
- A sum of floats is kept in two doubles: nearly always the exact sum rounded once. DuckDB rounds at every step.
- var_pop of one infinity is NaN, as for any set with an infinity; in DuckDB it is 0. Numbers whose differences overflow have
  the variance infinity; in DuckDB it is minus infinity.
- approx_quantile is a double for all numbers. In DuckDB it has the type of its argument.

| aggregate                      | partial                     | associative | commutative | invertible | idempotent |
|--------------------------------|-----------------------------|-------------|-------------|------------|------------|
| count                          | how many                    | yes         | yes         | yes        | no         |
| sum, avg                       | how many, sum in two parts  | yes *       | yes *       | yes *      | no         |
| var_*, stddev_*                | how many, mean, M2 (Chan)   | yes *       | yes *       | no         | no         |
| min, max, bool_and, bool_or    | the value                   | yes         | yes         | no         | yes        |
| first, last                    | the value in a tuple        | yes         | no          | no         | yes        |
| arg_min, arg_max               | both arguments              | yes         | no: ties    | no         | yes        |
| approx_count_distinct          | HLL sketch, as bytes        | yes         | yes         | no         | yes        |
| approx_quantile                | t-digest, as bytes          | yes *       | yes *       | no         | no         |

`*`: exactly for integers and decimals (sum, avg); up to rounding for finite floats; up to the sketch's error for quantiles. A
fold in the same order and with the same brackets always gives the same bits.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Context, Decimal
from fractions import Fraction
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError, HayaseError, suggestion
from hayase.core.function_sources import imported
from hayase.core.keys import check_order_type
from hayase.core.sketches import (
    digest_of_one,
    digests_combined,
    distinct_combined,
    distinct_count,
    distinct_of_one,
    no_sketch,
    quantile,
)

__all__ = [
    "AGGREGATES",
    "SYNONYMS",
    "Aggregate",
    "AggregateOverflow",
    "Laws",
    "Partial",
    "user_aggregate",
]

Partial = Any
"""A partial aggregate; its type depends on the aggregate."""

_EXACT = Context(prec=200)
"""A context in which any number of decimals of 76 digits are added without rounding."""


class AggregateOverflow(HayaseError):
    """A sum does not fit its type; `value` is the exact sum."""

    def __init__(self, value: int | Decimal, limit: str):
        self.value = value
        super().__init__(f"the sum {value} does not fit {limit}")


@dataclass(frozen=True, slots=True)
class Laws:
    """The laws of an aggregate, for all partials a, b, c, where ab is combine(a, b) and the empty partial is neutral.

    associative: (ab)c = a(bc), without which nothing can be shared; commutative: ab = ba; invertible: if ab = ac then
    b = c, so that old values could be removed again; idempotent: aa = a.
    """

    associative: bool = True
    commutative: bool = False
    invertible: bool = False
    idempotent: bool = False


def _pickled(partial_value: Partial) -> bytes:
    return pickle.dumps(partial_value, protocol=5)


def _unpickled(data: bytes) -> Partial:
    return pickle.loads(data)  # noqa: S301  (the pipeline's own state, which it has written itself)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """An aggregate function: its meaning, its laws and the types of its results.

    `arity` is the number of argument columns; with `star` it may also be none, as in count(*). With `keeps_nulls` a NULL
    argument is a value like any other, else it lifts to the empty partial. `combine` takes the older partial first.
    `constant` is the fraction of a quantile; see `at`. `to_bytes` and `from_bytes` serialise partials for the state.

    >>> average = AGGREGATES["avg"]
    >>> average.of([1, None, 4]), average.of([]), average.laws.commutative
    (2.5, None, True)
    """

    name: str
    laws: Laws
    empty: Callable[[], Partial]
    lift: Callable[..., Partial]
    combine: Callable[[Partial, Partial], Partial]
    lower: Callable[[Partial], Any]
    result: Callable[[Sequence[pa.DataType]], pa.DataType]
    arity: int = 1
    star: bool = False
    keeps_nulls: bool = False
    constant: float | None = None
    to_bytes: Callable[[Partial], bytes] = _pickled
    from_bytes: Callable[[bytes], Partial] = _unpickled

    @property
    def ordered(self) -> bool:
        """Whether the order of tuples matters, so that the aggregate is defined over a sequence but not over a relation."""
        return not self.laws.commutative

    def fold(self, partials: Sequence[Partial]) -> Partial:
        """Combine partials one after the other, oldest first."""
        total = self.empty()
        for newer in partials:
            total = self.combine(total, newer)
        return total

    def of(self, *columns: Sequence[Any]) -> Any:
        """Return the result over some tuples, oldest first, given one sequence per argument.

        >>> AGGREGATES["arg_max"].of(["a", "b", "c"], [1.0, 7.0, 7.0])
        'b'
        """
        return self.lower(self.fold([self.lift(*arguments) for arguments in zip(*columns, strict=True)]))

    def at(self, constant: float | None) -> Aggregate:
        """Return this aggregate with a constant: the quantile for a fraction between 0 and 1.

        >>> AGGREGATES["approx_quantile"].at(1).of([3, 1, 2])
        3.0
        """
        if self.constant is None:
            if constant is None:
                return self
            raise DeclarationError(f"{self.name} takes no constant", "leave it out")
        if constant is None or not 0 <= constant <= 1:
            raise DeclarationError(
                f"{self.name} takes a fraction between 0 and 1 as its second argument", "0.5 is the median"
            )
        return replace(self, constant=float(constant), lower=partial(quantile, float(constant)))

    @staticmethod
    def from_name(name: str) -> Aggregate:
        """Return the aggregate of a name: built-in, a synonym, or user-defined as "module:attribute".

        >>> Aggregate.from_name("mean").name
        'avg'
        >>> Aggregate.from_name("hayase.core.algebra:Laws")
        Traceback (most recent call last):
        hayase.core.errors.DeclarationError: hayase.core.algebra:Laws is a type, not an aggregate; make it with user_aggregate
        """
        if ":" in name:
            return _loaded(name)
        known = AGGREGATES.get(SYNONYMS.get(name, name))
        if known is None:
            hint = suggestion(name, [*AGGREGATES, *SYNONYMS])
            raise DeclarationError(f"there is no aggregate {name}", hint)
        return known


# ---------------------------------------------------------------------------------------------------- types of results


def _argument(name: str, kinds: Sequence[pa.DataType], arity: int = 1) -> pa.DataType:
    """Check the number of arguments and return the type of the first one."""
    if not kinds:
        raise DeclarationError(f"{name}(*) means nothing", "name a column or an expression")
    if len(kinds) != arity:
        raise DeclarationError(f"{name} takes {'one argument' if arity == 1 else 'two arguments'}")
    return kinds[0]


def _check_ordered(name: str, kind: pa.DataType) -> None:
    try:
        check_order_type(kind)
    except DeclarationError as error:
        raise DeclarationError(f"there is no {name} of a {kind}", "use numbers, booleans, texts or times") from error


def _check_number(name: str, kind: pa.DataType) -> None:
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise DeclarationError(
            f"there is no {name} of a {kind}", "use integers, floats or decimals, or cast to one of them"
        )


def _count_type(kinds: Sequence[pa.DataType]) -> pa.DataType:
    if kinds:
        _argument("count", kinds)
    return pa.int64()


def _sum_type(kinds: Sequence[pa.DataType]) -> pa.DataType:
    kind = _argument("sum", kinds)
    _check_number("sum", kind)
    if pa.types.is_floating(kind):
        return pa.float64()
    if kind == pa.uint64():
        raise DeclarationError(f"there is no sum of a {kind}", "cast it to bigint or decimal")
    return pa.int64() if pa.types.is_integer(kind) else pa.decimal128(38, kind.scale)


def _double_type(name: str, kinds: Sequence[pa.DataType]) -> pa.DataType:
    _check_number(name, _argument(name, kinds))
    return pa.float64()


def _ordered_type(name: str, kinds: Sequence[pa.DataType]) -> pa.DataType:
    kind = _argument(name, kinds)
    _check_ordered(name, kind)
    return kind


def _same_type(name: str, kinds: Sequence[pa.DataType]) -> pa.DataType:
    return _argument(name, kinds)


def _argument_at_type(name: str, kinds: Sequence[pa.DataType]) -> pa.DataType:
    kind = _argument(name, kinds, arity=2)
    _check_ordered(f"{name} by the order", kinds[1])
    return kind


def _boolean_type(name: str, kinds: Sequence[pa.DataType]) -> pa.DataType:
    kind = _argument(name, kinds)
    if not pa.types.is_boolean(kind):
        raise DeclarationError(f"there is no {name} of a {kind}", "use a condition")
    return kind


def _distinct_type(kinds: Sequence[pa.DataType]) -> pa.DataType:
    _check_ordered("approx_count_distinct", _argument("approx_count_distinct", kinds))
    return pa.int64()


# ---------------------------------------------------------------------------------------------------- counts and sums


def _nothing() -> None:
    return None


def _zero() -> int:
    return 0


def _one_if_there(*values: Any) -> int:
    return int(all(value is not None for value in values))


def _plus(older: int, newer: int) -> int:
    return older + newer


def _itself(partial_value: Any) -> Any:
    return partial_value


def _no_sum() -> tuple[int, Any, float]:
    return 0, 0, 0.0


def _sum_of_one(value: Any) -> tuple[int, Any, float]:
    if value is None:
        return _no_sum()
    if isinstance(value, Decimal):
        return 1, value, 0.0
    return 1, int(value) if isinstance(value, int | np.integer) else float(value), 0.0


def _added(older: tuple[int, Any, float], newer: tuple[int, Any, float]) -> tuple[int, Any, float]:
    """Combine (count, sum, rest): the sum is an integer, a decimal, or a float with its rounding error as the rest."""
    if not older[0] or not newer[0]:
        return older if older[0] else newer
    count, first, second = older[0] + newer[0], older[1], newer[1]
    if isinstance(first, Decimal):
        return count, _EXACT.add(first, second), 0.0
    if isinstance(first, int) and isinstance(second, int):
        return count, first + second, 0.0
    total = first + second
    if not math.isfinite(total):
        return count, total, 0.0
    taken = total - first
    rest = (first - (total - taken)) + (second - taken) + (older[2] + newer[2])  # Knuth's two-sum
    high = total + rest
    return (count, high, rest - (high - total)) if math.isfinite(high) else (count, high, 0.0)


def _total(partial_value: tuple[int, Any, float]) -> int | float | Decimal | None:
    count, total, _ = partial_value
    if not count:
        return None
    if isinstance(total, Decimal):
        _, digits, exponent = total.as_tuple()
        if len(digits) + max(int(exponent), 0) > 38:
            raise AggregateOverflow(total, "a decimal of 38 digits")
    elif isinstance(total, int) and not -(2**63) <= total < 2**63:
        raise AggregateOverflow(total, "64 bits")
    return total  # the rest of a float sum is smaller than half its last bit


def _average(partial_value: tuple[int, Any, float]) -> float | None:
    count, total, _ = partial_value
    if not count:
        return None
    return float(Fraction(total) / count) if isinstance(total, Decimal) else float(total / count)


# ---------------------------------------------------------------------------------------------------- moments


def _no_moments() -> tuple[int, float, float]:
    return 0, 0.0, 0.0


def _moments_of_one(value: Any) -> tuple[int, float, float]:
    if value is None:
        return _no_moments()
    number = float(value)
    return 1, number, 0.0 if math.isfinite(number) else math.nan


def _moments_combined(older: tuple[int, float, float], newer: tuple[int, float, float]) -> tuple[int, float, float]:
    """Combine (count, mean, sum of squared distances from the mean) (Chan, Golub, LeVeque 1979)."""
    if not older[0] or not newer[0]:
        return older if older[0] else newer
    count = older[0] + newer[0]
    apart, share = newer[1] - older[1], newer[0] / count
    if math.isinf(apart):  # also possible for finite means: weight them before adding
        mean = older[1] * (1.0 - share) + newer[1] * share
    else:
        mean = older[1] + apart * share
    return count, mean, older[2] + newer[2] + apart * apart * (older[0] * share)


def _variance(sample: int, root: bool, partial_value: tuple[int, float, float]) -> float | None:
    count, _, squares = partial_value
    if count <= sample:
        return None
    variance = squares / (count - sample)
    return math.sqrt(variance) if root else variance


# ---------------------------------------------------------------------------------------------------- chosen values


def _before(first: Any, second: Any) -> bool:
    """Return whether `first` is less than `second` in SQL's order, where NaN is the greatest."""
    if first != first or second != second:
        return bool(first == first)
    return bool(first < second)


def _least(older: Any, newer: Any) -> Any:
    if older is None or newer is None:
        return newer if older is None else older
    return newer if _before(newer, older) else older


def _greatest(older: Any, newer: Any) -> Any:
    if older is None or newer is None:
        return newer if older is None else older
    return newer if _before(older, newer) else older


def _in_tuple(value: Any) -> tuple[Any]:
    return (value,)


def _older(older: Any, newer: Any) -> Any:
    return newer if older is None else older


def _newer(older: Any, newer: Any) -> Any:
    return older if newer is None else newer


def _first_part(partial_value: tuple[Any, ...] | None) -> Any:
    return None if partial_value is None else partial_value[0]


def _both(value: Any, by: Any) -> tuple[Any, Any] | None:
    return None if value is None or by is None else (value, by)


def _at_least(older: Any, newer: Any) -> Any:
    if older is None or newer is None:
        return newer if older is None else older
    return newer if _before(newer[1], older[1]) else older


def _at_greatest(older: Any, newer: Any) -> Any:
    if older is None or newer is None:
        return newer if older is None else older
    return newer if _before(older[1], newer[1]) else older


def _every(older: bool | None, newer: bool | None) -> bool | None:
    if older is None or newer is None:
        return newer if older is None else older
    return bool(older and newer)


def _some(older: bool | None, newer: bool | None) -> bool | None:
    if older is None or newer is None:
        return newer if older is None else older
    return bool(older or newer)


# ---------------------------------------------------------------------------------------------------- the table


def _summing(
    name: str, lower: Callable[[Partial], Any], result: Callable[[Sequence[pa.DataType]], pa.DataType]
) -> Aggregate:
    laws = Laws(commutative=True, invertible=True)
    return Aggregate(
        name=name, laws=laws, empty=_no_sum, lift=_sum_of_one, combine=_added, lower=lower, result=result
    )  # fmt: skip


def _moment(name: str, sample: int, root: bool) -> Aggregate:
    return Aggregate(
        name=name, laws=Laws(commutative=True), empty=_no_moments, lift=_moments_of_one, combine=_moments_combined,
        lower=partial(_variance, sample, root), result=partial(_double_type, name),
    )  # fmt: skip


def _choice(
    name: str,
    combine: Callable[[Partial, Partial], Partial],
    result: Callable[[str, Sequence[pa.DataType]], pa.DataType],
) -> Aggregate:
    return Aggregate(
        name=name, laws=Laws(commutative=True, idempotent=True), empty=_nothing, lift=_itself, combine=combine,
        lower=_itself, result=partial(result, name),
    )  # fmt: skip


def _place(name: str, combine: Callable[[Partial, Partial], Partial]) -> Aggregate:
    return Aggregate(
        name=name, laws=Laws(idempotent=True), empty=_nothing, lift=_in_tuple, combine=combine, lower=_first_part,
        result=partial(_same_type, name), keeps_nulls=True,
    )  # fmt: skip


def _argument_at(name: str, combine: Callable[[Partial, Partial], Partial]) -> Aggregate:
    return Aggregate(
        name=name, laws=Laws(idempotent=True), empty=_nothing, lift=_both, combine=combine, lower=_first_part,
        result=partial(_argument_at_type, name), arity=2,
    )  # fmt: skip


_BUILT_IN = (
    Aggregate(
        name="count", laws=Laws(commutative=True, invertible=True), empty=_zero, lift=_one_if_there, combine=_plus,
        lower=_itself, result=_count_type, star=True,
    ),
    _summing("sum", _total, _sum_type),
    _summing("avg", _average, partial(_double_type, "avg")),
    _choice("min", _least, _ordered_type),
    _choice("max", _greatest, _ordered_type),
    _moment("var_samp", 1, False),
    _moment("var_pop", 0, False),
    _moment("stddev_samp", 1, True),
    _moment("stddev_pop", 0, True),
    _place("first", _older),
    _place("last", _newer),
    _argument_at("arg_min", _at_least),
    _argument_at("arg_max", _at_greatest),
    _choice("bool_and", _every, _boolean_type),
    _choice("bool_or", _some, _boolean_type),
    Aggregate(
        name="approx_count_distinct", laws=Laws(commutative=True, idempotent=True), empty=no_sketch,
        lift=distinct_of_one, combine=distinct_combined, lower=distinct_count, result=_distinct_type,
        to_bytes=_itself, from_bytes=_itself,
    ),
    Aggregate(
        name="approx_quantile", laws=Laws(commutative=True), empty=no_sketch, lift=digest_of_one,
        combine=digests_combined, lower=partial(quantile, 0.5), result=partial(_double_type, "approx_quantile"),
        constant=0.5, to_bytes=_itself, from_bytes=_itself,
    ),
)  # fmt: skip

AGGREGATES: Mapping[str, Aggregate] = MappingProxyType({aggregate.name: aggregate for aggregate in _BUILT_IN})
"""The built-in aggregates by name. approx_quantile is the median; use `at` for another fraction."""

SYNONYMS: Mapping[str, str] = MappingProxyType(
    {
        "count_star": "count", "mean": "avg", "variance": "var_samp", "stddev": "stddev_samp", "arbitrary": "first",
        "argmin": "arg_min", "min_by": "arg_min", "argmax": "arg_max", "max_by": "arg_max",
        "every": "bool_and", "logical_and": "bool_and", "logical_or": "bool_or",
    }
)  # fmt: skip
"""Synonyms and the aggregates that they stand for."""


# ---------------------------------------------------------------------------------------------------- user-defined aggregates


def user_aggregate(
    name: str,
    *,
    lift: Callable[..., Partial],
    combine: Callable[[Partial, Partial], Partial],
    result: pa.DataType | Callable[[Sequence[pa.DataType]], pa.DataType],
    lower: Callable[[Partial], Any] | None = None,
    empty: Callable[[], Partial] | None = None,
    arity: int = 1,
    keeps_nulls: bool = False,
    associative: bool = True,
    commutative: bool = False,
    invertible: bool = False,
    idempotent: bool = False,
    to_bytes: Callable[[Partial], bytes] | None = None,
    from_bytes: Callable[[bytes], Partial] | None = None,
) -> Aggregate:
    """Return a user-defined aggregate. `combine` takes the older partial first and must not change its arguments.

    Without `lower` the result is the partial itself. Without `empty` the result over no tuples is NULL, and the other
    functions never get an empty partial. Tuples with a NULL argument are skipped unless `keeps_nulls`. `result` is the type
    of the result, or a function from the types of the arguments. The laws are declared; `hayase.core.laws` checks them on
    samples. Partials are pickled into the state, or written with `to_bytes`.

    >>> from math import gcd
    >>> divisor = user_aggregate("gcd", lift=abs, combine=gcd, result=pa.int64(), commutative=True, idempotent=True)
    >>> divisor.of([12, None, -18]), divisor.of([])
    (6, None)
    """
    if not name.isidentifier():
        raise DeclarationError(f'"{name}" is not a name for an aggregate', "use letters, digits and underscores")
    if name in AGGREGATES or name in SYNONYMS:
        raise DeclarationError(f"there is an aggregate {name} already", "choose another name")
    if arity < 1:
        raise DeclarationError(
            f"the aggregate {name} takes no argument", "give it at least one; it may leave it unused"
        )
    if (to_bytes is None) != (from_bytes is None):
        raise DeclarationError(f"the aggregate {name} has one of to_bytes and from_bytes", "give both or none")
    none = _nothing if empty is None else empty
    if empty is None:
        combine, lower = partial(_combined_if_there, combine), partial(_lowered_if_there, lower or _itself)
    return Aggregate(
        name=name,
        laws=Laws(associative, commutative, invertible, idempotent),
        empty=none,
        lift=lift if keeps_nulls else partial(_lifted_if_there, lift, none),
        combine=combine,
        lower=lower or _itself,
        result=partial(_user_type, name, arity, result),
        arity=arity,
        keeps_nulls=keeps_nulls,
        to_bytes=to_bytes or _pickled,
        from_bytes=from_bytes or _unpickled,
    )


def _combined_if_there(combine: Callable[[Partial, Partial], Partial], older: Partial, newer: Partial) -> Partial:
    if older is None or newer is None:
        return newer if older is None else older
    return combine(older, newer)


def _lowered_if_there(lower: Callable[[Partial], Any], partial_value: Partial) -> Any:
    return None if partial_value is None else lower(partial_value)


def _lifted_if_there(lift: Callable[..., Partial], empty: Callable[[], Partial], *values: Any) -> Partial:
    return empty() if any(value is None for value in values) else lift(*values)


def _user_type(
    name: str,
    arity: int,
    result: pa.DataType | Callable[[Sequence[pa.DataType]], pa.DataType],
    kinds: Sequence[pa.DataType],
) -> pa.DataType:
    if len(kinds) != arity:
        raise DeclarationError(f"{name} takes {arity} argument{'s' if arity > 1 else ''}")
    return result if isinstance(result, pa.DataType) else result(kinds)


def _loaded(name: str) -> Aggregate:
    """Load the aggregate that "module:attribute" names."""
    module_name, _, attribute = name.partition(":")
    module = imported(module_name, "a directory of PYTHONPATH")
    aggregate = getattr(module, attribute, None)
    if aggregate is None:
        others = [key for key, value in vars(module).items() if isinstance(value, Aggregate)]
        hint = suggestion(attribute, others) or "it has no aggregate at all"
        raise DeclarationError(f'the module {module_name} has no "{attribute}"', hint)
    if not isinstance(aggregate, Aggregate):
        raise DeclarationError(
            f"{name} is a {type(aggregate).__name__}, not an aggregate", "make it with user_aggregate"
        )
    return aggregate
