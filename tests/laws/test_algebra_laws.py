"""Laws of the aggregates' algebra: the declared ones hold, the others have counterexamples, and DuckDB agrees."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.core.algebra import AGGREGATES, Aggregate, AggregateOverflow
from hayase.core.errors import DeclarationError
from hayase.core.laws import check_laws

NAN, INF = math.nan, math.inf
LAWS = ("associative", "commutative", "invertible", "idempotent")

integers = st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63), 2**62])
decimals = st.decimals(-5, 5, places=2) | st.sampled_from([Decimal("9" * 36 + ".99"), Decimal("-" + "9" * 36 + ".99")])
finite = st.sampled_from([0.0, -0.0, 0.1, 1.5, -2.25, 1e15, -1e15, 5e-324]) | st.floats(-1e6, 1e6)
floats = finite | st.sampled_from([NAN, INF, -INF])
texts = st.sampled_from(["", "a", "a\0", "ab", "ü", "z"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=4
)
days = st.dates(dt.date(1960, 1, 1), dt.date(2040, 1, 1))
truths = st.booleans()
KINDS: dict[str, tuple[st.SearchStrategy[Any], pa.DataType]] = {
    "integers": (integers, pa.int64()),
    "decimals": (decimals, pa.decimal128(38, 2)),
    "floats": (floats, pa.float64()),
    "finite": (finite, pa.float64()),
    "texts": (texts, pa.string()),
    "days": (days, pa.date32()),
    "truths": (truths, pa.bool_()),
}
ANY = ("integers", "decimals", "floats", "texts", "days", "truths")
EXACT = [(name, (kind,)) for name in ("count", "min", "max", "first", "last", "approx_count_distinct") for kind in ANY]
EXACT += [(name, (kind,)) for name in ("sum", "avg") for kind in ("integers", "decimals")]
EXACT += [(name, pair) for name in ("arg_min", "arg_max") for pair in (("texts", "floats"), ("floats", "texts"))]
EXACT += [("bool_and", ("truths",)), ("bool_or", ("truths",))]
MOMENTS = ("var_samp", "var_pop", "stddev_samp", "stddev_pop")
ROUNDED = [(name, (kind,)) for name in ("sum", "avg", *MOMENTS) for kind in ("finite", "floats")]
ROUNDED += [(name, (kind,)) for name in MOMENTS for kind in ("integers",)]


def tuples_of(kinds: Sequence[str], most: int = 6) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    return st.lists(st.tuples(*(st.none() | KINDS[kind][0] for kind in kinds)), max_size=most)


def folded(aggregate: Aggregate, tuples: Sequence[tuple[Any, ...]]) -> Any:
    return aggregate.fold([aggregate.lift(*each) for each in tuples])


def value(aggregate: Aggregate, made: Any) -> Any:
    """What a partial is worth; an overflow is worth its exact sum."""
    try:
        return aggregate.lower(made)
    except AggregateOverflow as told:
        return told.value


def same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) or bool(one != one and other != other)


def alike(aggregate: Aggregate, one: Any, other: Any) -> bool:
    """Whether partials are the same: as they are kept, or for a sketch by its value, now and with more to come."""
    if not isinstance(one, bytes):
        return same(one, other)
    more = aggregate.lift("more to come")
    return aggregate.lower(one) == aggregate.lower(other) and aggregate.lower(
        aggregate.combine(one, more)
    ) == aggregate.lower(aggregate.combine(other, more))


@pytest.mark.parametrize(("name", "kinds"), EXACT)
@settings(max_examples=examples(10), deadline=None)
@given(data=st.data())
def test_laws_hold_exactly(name: str, kinds: tuple[str, ...], data: st.DataObject) -> None:
    aggregate = AGGREGATES[name]
    combine, laws = aggregate.combine, aggregate.laws
    a, b, c = (folded(aggregate, data.draw(tuples_of(kinds))) for _ in range(3))
    assert laws.associative
    assert alike(aggregate, combine(combine(a, b), c), combine(a, combine(b, c)))
    assert alike(aggregate, combine(a, aggregate.empty()), a)
    assert alike(aggregate, combine(aggregate.empty(), a), a)
    if laws.commutative:
        assert alike(aggregate, combine(a, b), combine(b, a))
    if laws.idempotent:
        assert alike(aggregate, combine(a, a), a)
    if laws.invertible:
        assert alike(aggregate, combine(a, b), combine(a, c)) == alike(aggregate, b, c)
    assert alike(aggregate, aggregate.from_bytes(aggregate.to_bytes(a)), a)


def near(name: str, numbers: list[float], one: Any, other: Any) -> bool:
    """Equal up to some roundings of the largest numbers that take part."""
    if one is None or other is None or not (math.isfinite(one) and math.isfinite(other)):
        return same(one, other)
    size = max((abs(each) for each in numbers), default=0.0) * max(len(numbers), 1)
    if name.startswith("stddev"):
        one, other = one * one, other * other
    slack = 1e-12 * size * (1.0 if name in ("sum", "avg") else size)
    return abs(one - other) <= slack + 1e-300


@pytest.mark.parametrize(("name", "kinds"), ROUNDED)
@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_laws_hold_up_to_rounding(name: str, kinds: tuple[str, ...], data: st.DataObject) -> None:
    aggregate = AGGREGATES[name]
    combine = aggregate.combine
    lists = [data.draw(tuples_of(kinds)) for _ in range(3)]
    numbers = [float(each) for tuples in lists for (each,) in tuples if each is not None]
    a, b, c = (folded(aggregate, tuples) for tuples in lists)
    for one, other in [
        (combine(combine(a, b), c), combine(a, combine(b, c))),
        (combine(a, b), combine(b, a)),
        (combine(folded(aggregate, lists[0] + lists[1]), c), folded(aggregate, lists[0] + lists[1] + lists[2])),
    ]:
        assert one[0] == other[0]
        assert near(name, numbers, aggregate.lower(one), aggregate.lower(other))
    assert same(combine(a, aggregate.empty()), a)
    assert same(combine(aggregate.empty(), a), a)
    assert same(aggregate.from_bytes(aggregate.to_bytes(a)), a)


@settings(max_examples=examples(75), deadline=None)
@given(st.lists(finite | st.sampled_from([1e17, -1e17, 1e30, -1e30]), min_size=1, max_size=30), st.integers(0, 30))
def test_a_sum_of_floats_is_rounded_almost_once(numbers: list[float], cut: int) -> None:
    exact = sum(map(Fraction, numbers), Fraction(0))
    slack = Fraction(sum(map(abs, numbers))) * Fraction(1, 2**100) * len(numbers)
    total = AGGREGATES["sum"]
    parts = [folded(total, [(each,) for each in part]) for part in (numbers[:cut], numbers[cut:])]
    found = total.lower(total.combine(*parts))
    assert abs(Fraction(found) - exact) <= slack + abs(exact) * Fraction(1, 2**53)


@pytest.mark.parametrize("name", MOMENTS)
@settings(max_examples=examples(30), deadline=None)
@given(numbers=st.lists(finite, max_size=20), cut=st.integers(0, 20))
def test_moments_are_those_of_exact_arithmetic(name: str, numbers: list[float], cut: int) -> None:
    aggregate = AGGREGATES[name]
    sample = int(name.endswith("samp"))
    made = aggregate.combine(
        *(folded(aggregate, [(each,) for each in part]) for part in (numbers[:cut], numbers[cut:]))
    )
    if len(numbers) <= sample:
        assert aggregate.lower(made) is None
        return
    mean = sum(map(Fraction, numbers), Fraction(0)) / len(numbers)
    spread = sum(((Fraction(each) - mean) ** 2 for each in numbers), Fraction(0)) / (len(numbers) - sample)
    wanted = math.sqrt(spread) if name.startswith("stddev") else float(spread)
    assert near(name, numbers, aggregate.lower(made), wanted)


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.lists(finite, max_size=120), min_size=3, max_size=3), st.sampled_from([0.0, 0.1, 0.5, 0.99, 1.0]))
def test_quantiles_keep_their_error_however_they_are_combined(lists: list[list[float]], fraction: float) -> None:
    quantile = AGGREGATES["approx_quantile"].at(fraction)
    combine = quantile.combine
    ordered = np.sort(np.array([each for numbers in lists for each in numbers]))
    a, b, c = (folded(quantile, [(each,) for each in numbers]) for numbers in lists)
    for made in (combine(combine(a, b), c), combine(a, combine(b, c)), combine(combine(c, a), b)):
        found = quantile.lower(made)
        if not len(ordered):
            assert found is None
            continue
        slack = 0.01 + 1 / len(ordered)
        assert np.searchsorted(ordered, found, "left") / len(ordered) <= fraction + slack
        assert np.searchsorted(ordered, found, "right") / len(ordered) >= fraction - slack
    assert combine(a, b"") == a == combine(b"", a)
    assert combine(combine(a, b), c) == combine(combine(a, b), c)


@settings(max_examples=examples(15), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 900)), min_size=3, max_size=3))
def test_a_distinct_count_depends_on_the_set_alone(spans: list[tuple[int, int]]) -> None:
    distinct = AGGREGATES["approx_count_distinct"]
    sets = [range(first, first + count) for first, count in spans]
    a, b, c = (folded(distinct, [(each,) for each in numbers]) for numbers in sets)
    everything = sorted({each for numbers in sets for each in numbers})
    wanted = distinct.of(everything)
    assert distinct.lower(distinct.combine(distinct.combine(a, b), c)) == wanted
    assert distinct.lower(distinct.combine(c, distinct.combine(b, a))) == wanted
    assert wanted == pytest.approx(len(everything), rel=0.08)


# ---------------------------------------------------------------------------------------------------- what does not hold

COUNTEREXAMPLES: dict[tuple[str, str], list[Any]] = {
    ("count", "idempotent"): [1],
    ("sum", "idempotent"): [1],
    ("avg", "idempotent"): [1, 4],
    **{(name, "idempotent"): [1.0, 2.0, 4.0] for name in (*MOMENTS, "approx_quantile")},
    **{(name, "invertible"): [1e17, 1.0, 2.0] for name in MOMENTS},
    ("min", "invertible"): [1, 2, 3],
    ("max", "invertible"): [3, 1, 2],
    ("bool_and", "invertible"): [False, True],
    ("bool_or", "invertible"): [True, False],
    ("first", "commutative"): [1, 2],
    ("last", "commutative"): [1, 2],
    ("first", "invertible"): [1, 2],
    ("last", "invertible"): [1, 2],
    ("approx_quantile", "invertible"): [1.0, 2.0, 3.0],
    ("arg_min", "commutative"): [("a", 1), ("b", 1)],
    ("arg_max", "commutative"): [("a", 1), ("b", 1)],
    ("arg_min", "invertible"): [("a", 1), ("b", 2), ("c", 3)],
    ("arg_max", "invertible"): [("a", 3), ("b", 1), ("c", 2)],
    ("approx_count_distinct", "invertible"): [1, 2],
}


@pytest.mark.parametrize("name", AGGREGATES)
def test_declared_laws_survive_a_trial_and_undeclared_ones_do_not(name: str) -> None:
    aggregate = AGGREGATES[name]
    undeclared = [law for law in LAWS if not getattr(aggregate.laws, law)]
    for law in undeclared:
        samples = COUNTEREXAMPLES[name, law]
        check_laws(aggregate, samples)
        least = name == "approx_quantile" and law == "invertible"
        claiming = aggregate.at(0.0) if least else aggregate
        claiming = replace(claiming, laws=replace(aggregate.laws, **{law: True}))
        with pytest.raises(DeclarationError, match=f"{name} is not {law}: "):
            check_laws(claiming, samples)


# ---------------------------------------------------------------------------------------------------- DuckDB


@cache
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


JUDGED = [case for case in EXACT + ROUNDED if case[0] != "approx_count_distinct"]


@pytest.mark.parametrize(("name", "kinds"), JUDGED)
@settings(max_examples=examples(5), deadline=None)
@given(data=st.data())
def test_the_meaning_is_duckdbs(name: str, kinds: tuple[str, ...], data: st.DataObject) -> None:
    tuples = data.draw(tuples_of(kinds, most=12))
    aggregate = AGGREGATES[name]
    columns = {
        each: pa.array([row[at] for row in tuples], KINDS[kind][1]) for at, (each, kind) in enumerate(zip("av", kinds))
    }
    connection().register("tuples", pa.table(columns))
    text = f"select {name}({', '.join(columns)}) from tuples"
    mine = value(aggregate, folded(aggregate, tuples))
    numbers = [float(row[0]) for row in tuples if row[0] is not None] if name in ("sum", "avg", *MOMENTS) else []
    if name in MOMENTS and len(numbers) == 1 and not math.isfinite(numbers[0]):
        return  # where we differ
    try:
        theirs = connection().execute(text).fetchall()[0][0]
    except duckdb.OutOfRangeException:  # it may overflow on the way, and also for an average
        assert kinds == ("decimals",)
        assert sum(map(abs, numbers)) >= 10**36
        return
    if isinstance(mine, float) and name in ("sum", "avg", *MOMENTS):
        assert near(name, numbers, mine, float(theirs))
    else:
        assert same(mine, theirs)
        assert type(mine) is type(theirs)
