"""Aggregates as algebra: DuckDB is the judge of their meaning; types, sketches, a user's own."""

from __future__ import annotations

import datetime as dt
import math
import pickle
import sys
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from hayase.core.algebra import (
    AGGREGATES,
    SYNONYMS,
    Aggregate,
    AggregateOverflow,
    Laws,
    user_aggregate,
)
from hayase.core.errors import DeclarationError
from hayase.core.laws import check_laws
from hayase.lifetimes.accumulators import result_type

NAN, INF = math.nan, math.inf
DAY = dt.date(2026, 1, 1)


@cache
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


def by_duckdb(name: str, *columns: pa.Array, more: str = "") -> Any:
    """The aggregate of some tuples, in their order, by DuckDB."""
    names = ["a", "v"][: len(columns)]
    connection().register("tuples", pa.table(dict(zip(names, columns, strict=True))))
    found = connection().execute(f"select {name}({', '.join(names)}{more}) from tuples").fetchall()
    return found[0][0]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-12)
    return type(one) is type(other) and one == other


COLUMNS = {
    "integers": pa.array([3, None, -1, 3, 2, -1], pa.int64()),
    "small": pa.array([3, None, -1, 127, -128], pa.int8()),
    "floats": pa.array([0.5, NAN, None, -2.25, INF, 0.5]),
    "finite": pa.array([0.5, None, -2.25, 1e10, 0.5]),
    "decimals": pa.array([Decimal("1.25"), None, Decimal("-3.50"), Decimal("1.25")], pa.decimal128(9, 2)),
    "texts": pa.array(["b", None, "", "a\0", "ü", "zz", "z"]),
    "days": pa.array([DAY, None, dt.date(1969, 12, 31), DAY]),
    "times": pa.array([7, None, -5, 7], pa.timestamp("us")),
    "truths": pa.array([True, None, False, True]),
    "nan only": pa.array([NAN, None, NAN]),
    "null first": pa.array([None, 1, 2], pa.int64()),
    "null last": pa.array([1, 2, None], pa.int64()),
    "one": pa.array([4.0]),
    "nulls": pa.array([None, None], pa.int64()),
    "empty": pa.array([], pa.float64()),
    "no truths": pa.array([], pa.bool_()),
}
NUMBERS = ["integers", "small", "floats", "finite", "decimals", "nan only", "null first", "one", "nulls", "empty"]
CASES = [
    (name, column) for name in ("count", "min", "max", "first", "last", "approx_count_distinct") for column in COLUMNS
]
CASES += [
    (name, each) for name in ("sum", "avg", "var_samp", "var_pop", "stddev_samp", "stddev_pop") for each in NUMBERS
]
CASES += [(name, each) for name in ("bool_and", "bool_or") for each in ("truths", "no truths")]


@pytest.mark.parametrize(("name", "column"), CASES)
def test_the_meaning_is_duckdbs(name: str, column: str) -> None:
    values = COLUMNS[column]
    mine, theirs = AGGREGATES[name].of(values.to_pylist()), by_duckdb(name, values)
    assert same(mine, theirs)


@pytest.mark.parametrize("name", ["arg_min", "arg_max"])
@pytest.mark.parametrize(
    ("answers", "by"),
    [
        (pa.array(["a", "b", "c", "d"]), pa.array([2, 1, 1, 2])),
        (pa.array(["a", None, "c"]), pa.array([2, 1, 3])),
        (pa.array(["a", None, "c"]), pa.array([2, 9, 3])),
        (pa.array(["a", "b", "c"]), pa.array([2, None, 3])),
        (pa.array([1, 2, 3, 4]), pa.array([NAN, INF, NAN, -INF])),
        (pa.array([1, 2]), pa.array([NAN, None])),
        (pa.array([1.5, 2.5]), pa.array(["b", "a"])),
        (pa.array([None, 2.5]), pa.array(["b", None])),
        (pa.array([], pa.int64()), pa.array([], pa.int64())),
    ],
)
def test_an_argument_at_the_extreme_is_the_oldest_one(name: str, answers: pa.Array, by: pa.Array) -> None:
    mine = AGGREGATES[name].of(answers.to_pylist(), by.to_pylist())
    assert same(mine, by_duckdb(name, answers, by))


@pytest.mark.parametrize(("name", "meant"), sorted(SYNONYMS.items()))
def test_synonyms(name: str, meant: str) -> None:
    assert Aggregate.from_name(name) is AGGREGATES[meant]


@pytest.mark.parametrize("name", ["mean", "variance", "stddev", "arbitrary"])
def test_synonyms_are_duckdbs(name: str) -> None:
    values = COLUMNS["finite"]
    assert same(Aggregate.from_name(name).of(values.to_pylist()), by_duckdb(name, values))


@pytest.mark.parametrize("name", ["argmin", "min_by", "argmax", "max_by"])
def test_synonyms_of_two_arguments_are_duckdbs(name: str) -> None:
    answers, by = pa.array(["a", "b", "c"]), pa.array([1, 2, 1])
    assert Aggregate.from_name(name).of(answers.to_pylist(), by.to_pylist()) == by_duckdb(name, answers, by)


def test_count_of_tuples_and_of_values() -> None:
    count = AGGREGATES["count"]
    assert count.lower(count.fold([count.lift(), count.lift()])) == 2
    assert count.of([None, 0, ""]) == 2


# ---------------------------------------------------------------------------------------------------- numbers


def test_a_sum_that_does_not_fit_is_told_only_at_the_end() -> None:
    total = AGGREGATES["sum"]
    assert total.of([2**63 - 1, 5, -5]) == 2**63 - 1
    assert total.of([-(2**63), 2**63 - 1, 1]) == 0
    assert total.of([-(2**63)]) == -(2**63)
    with pytest.raises(AggregateOverflow, match="the sum 9223372036854775808 does not fit 64 bits") as told:
        total.of([2**63 - 1, 1])
    assert told.value.value == 2**63
    assert AGGREGATES["avg"].of([2**63 - 1, 2**63 - 1]) == float(2**63 - 1)


def test_decimals_are_added_exactly() -> None:
    greatest, least = Decimal("9" * 36 + ".99"), Decimal("0.01")
    total = AGGREGATES["sum"]
    assert total.of([greatest, -least, least]) == greatest
    with pytest.raises(AggregateOverflow, match="38 digits"):
        total.of([greatest, least])
    assert AGGREGATES["avg"].of([greatest, greatest]) == float(greatest)
    assert AGGREGATES["avg"].of([Decimal(2**53 + 1), Decimal(0), Decimal(0)]) == (2**53 + 1) // 3


def test_floats_are_added_as_if_rounded_once() -> None:
    total = AGGREGATES["sum"]
    assert total.of([1e17, 1.0, -1e17]) == 1.0
    assert total.of([0.1] * 10) == 1.0
    newer = total.fold([total.lift(each) for each in (1e17, 1.0)])
    assert total.lower(total.combine(total.lift(-1e17), newer)) == 1.0
    assert total.of([INF, -INF]) != total.of([INF, -INF])
    assert total.of([1e308, 1e308]) == INF
    assert total.of([INF, 1.0]) == INF
    assert AGGREGATES["avg"].of([1e17, 1.0, -1e17, 3.0]) == 1.0


def test_variance_where_we_differ_from_duckdb() -> None:
    assert math.isnan(AGGREGATES["var_pop"].of([INF]))
    assert AGGREGATES["var_samp"].of([INF]) is None
    assert AGGREGATES["var_samp"].of([1e308, -1e308]) == INF
    assert AGGREGATES["var_samp"].of([1e308, -1e308, 0.0, 1.0]) == INF
    assert math.isnan(AGGREGATES["stddev_pop"].of([1e308, -1e308, NAN]))


def test_variance_does_not_cancel() -> None:
    assert AGGREGATES["var_samp"].of([1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16]) == 30.0


def test_zeros_are_one_value() -> None:
    assert math.copysign(1, AGGREGATES["min"].of([0.0, -0.0])) == 1  # the older
    assert AGGREGATES["arg_max"].of(["a", "b"], [-0.0, 0.0]) == "a"
    assert AGGREGATES["approx_count_distinct"].of([0.0, -0.0, NAN, -NAN]) == 2


def test_numpys_numbers() -> None:
    assert AGGREGATES["sum"].of(np.array([1, 2], np.int16)) == 3
    assert AGGREGATES["sum"].of(np.array([1.5, 2], np.float32)) == 3.5
    assert AGGREGATES["approx_count_distinct"].of([*np.array([1, 2]), 1]) == 2


# ---------------------------------------------------------------------------------------------------- types


@pytest.mark.parametrize(
    ("name", "kinds", "wanted"),
    [
        ("count", [], pa.int64()),
        ("count", [pa.list_(pa.int64())], pa.int64()),
        ("sum", [pa.int8()], pa.int64()),
        ("sum", [pa.float32()], pa.float64()),
        ("sum", [pa.decimal128(9, 3)], pa.decimal128(38, 3)),
        ("avg", [pa.uint64()], pa.float64()),
        ("stddev_pop", [pa.decimal128(9, 3)], pa.float64()),
        ("min", [pa.string()], pa.string()),
        ("first", [pa.list_(pa.int64())], pa.list_(pa.int64())),
        ("last", [pa.int8()], pa.int8()),
        ("arg_min", [pa.list_(pa.int64()), pa.date32()], pa.list_(pa.int64())),
        ("bool_or", [pa.bool_()], pa.bool_()),
        ("approx_count_distinct", [pa.string()], pa.int64()),
        ("approx_quantile", [pa.int32()], pa.float64()),
    ],
)
def test_types_of_results(name: str, kinds: list[pa.DataType], wanted: pa.DataType) -> None:
    assert AGGREGATES[name].result(kinds) == wanted


@pytest.mark.parametrize(
    ("name", "kinds", "message"),
    [
        ("sum", [], r"sum\(\*\) means nothing; name a column"),
        ("sum", [pa.int8(), pa.int8()], "sum takes one argument"),
        ("count", [pa.int8(), pa.int8()], "count takes one argument"),
        ("sum", [pa.uint64()], "cast it to bigint or decimal"),
        ("avg", [pa.string()], "no avg of a string; use integers"),
        ("max", [pa.list_(pa.int64())], "no max of a list"),
        ("arg_max", [pa.int64()], "arg_max takes two arguments"),
        ("arg_max", [pa.int64(), pa.list_(pa.int64())], "no arg_max by the order of a list"),
        ("bool_and", [pa.int64()], "no bool_and of a int64; use a condition"),
        ("approx_count_distinct", [pa.list_(pa.int64())], "no approx_count_distinct of a list"),
        ("approx_quantile", [pa.date32()], "no approx_quantile of a date32"),
    ],
)
def test_types_that_are_refused(name: str, kinds: list[pa.DataType], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        AGGREGATES[name].result(kinds)


def test_the_types_of_lifetimes_are_these() -> None:
    for name, kind in [("count", pa.string()), ("sum", pa.int8()), ("avg", pa.int8()), ("max", pa.string())]:
        assert result_type(name, kind) == AGGREGATES[name].result([kind])


def test_what_depends_on_the_order() -> None:
    assert {name for name, each in AGGREGATES.items() if each.ordered} == {"first", "last", "arg_min", "arg_max"}


# ---------------------------------------------------------------------------------------------------- sketches


def test_few_distinct_values_are_counted_exactly() -> None:
    distinct = AGGREGATES["approx_count_distinct"]
    kinds: list[Any] = ["", "a", b"", b"a", 1, 2**63, -(2**63), 0.5, NAN, Decimal("1.10"), DAY, dt.timedelta(1)]
    assert distinct.of([*kinds, *kinds]) == len(kinds)
    assert distinct.of([Decimal("1.10"), Decimal("1.1"), Decimal("-0.0"), Decimal("0")]) == 2
    assert distinct.of([2**64 - 1, 2**64 - 2, -1]) == 3
    assert distinct.of([None]) == 0


@pytest.mark.parametrize("count", [100, 384, 385, 3000, 50000])
def test_many_distinct_values_are_nearly_counted(count: int) -> None:
    distinct = AGGREGATES["approx_count_distinct"]
    assert distinct.of(range(count)) == pytest.approx(count, rel=0.05)


def test_a_distinct_count_depends_on_the_values_alone() -> None:
    distinct = AGGREGATES["approx_count_distinct"]
    values = [distinct.lift(each) for each in range(2000)]
    forward, backward = distinct.fold(values), distinct.fold(values[::-1])
    halves = distinct.combine(distinct.fold(values[:1200]), distinct.fold(values[800:]))
    assert distinct.lower(forward) == distinct.lower(backward) == distinct.lower(halves)


def ranks_off(values: list[float], fraction: float, found: float) -> float:
    """By how much of all ranks a quantile is off."""
    ordered = np.sort(np.array(values, float))
    below = np.searchsorted(ordered, found, "left") / len(ordered)
    upto = np.searchsorted(ordered, found, "right") / len(ordered)
    return float(max(below - fraction, fraction - upto, 0))


@pytest.mark.parametrize("fraction", [0, 0.01, 0.5, 0.9, 1])
@pytest.mark.parametrize("shape", ["mixed", "rising", "falling", "few"])
def test_quantiles_are_near(shape: str, fraction: float) -> None:
    random = np.random.default_rng(7)
    values = {
        "mixed": random.normal(size=4000).tolist(),
        "rising": [float(each) for each in range(4000)],
        "falling": [float(-each) for each in range(4000)],
        "few": random.integers(0, 4, 4000).astype(float).tolist(),
    }[shape]
    quantile = AGGREGATES["approx_quantile"].at(fraction)
    assert ranks_off(values, fraction, quantile.of(values)) <= 0.01


@pytest.mark.parametrize("values", [[], [None], [NAN], [INF, -INF], [2.0], [None, 2.0, NAN, INF]])
def test_quantiles_leave_out_what_duckdb_leaves_out(values: list[float | None]) -> None:
    quantile = AGGREGATES["approx_quantile"]
    assert quantile.of(values) == by_duckdb("approx_quantile", pa.array(values, pa.float64()), more=", 0.5")


def test_quantiles_of_all_numbers_are_doubles() -> None:
    quantile = AGGREGATES["approx_quantile"]
    assert same(quantile.of([Decimal("1.5")]), 1.5)
    assert same(quantile.of([3]), 3.0)


@pytest.mark.parametrize("name", ["approx_count_distinct", "approx_quantile"])
def test_sketches_are_values_and_draw_no_random_bits(name: str) -> None:
    aggregate = AGGREGATES[name]
    random = np.random.default_rng(3)
    older, newer = ([aggregate.lift(each) for each in random.normal(size=5000)] for _ in range(2))
    one, other = aggregate.fold(older), aggregate.fold(newer)
    kept = bytes(one), bytes(other)
    both = aggregate.combine(one, other)
    assert (one, other) == kept
    assert both == aggregate.combine(aggregate.fold(older), aggregate.fold(newer))
    assert aggregate.combine(aggregate.from_bytes(aggregate.to_bytes(one)), other) == both
    assert len(both) < 12_000


def test_a_quantile_takes_a_fraction() -> None:
    quantile = AGGREGATES["approx_quantile"]
    assert quantile.constant == 0.5
    assert quantile.at(0.25).constant == 0.25
    assert quantile.at(0).of([2.0, 1.0]) == 1.0
    assert AGGREGATES["sum"].at(None) is AGGREGATES["sum"]
    for wrong in (None, -0.1, 1.5, NAN):
        with pytest.raises(DeclarationError, match="fraction between 0 and 1"):
            quantile.at(wrong)
    with pytest.raises(DeclarationError, match="sum takes no constant"):
        AGGREGATES["sum"].at(0.5)


@pytest.mark.parametrize("name", AGGREGATES)
def test_aggregates_and_their_partials_can_be_sent_elsewhere(name: str) -> None:
    aggregate = AGGREGATES[name]
    again = pickle.loads(pickle.dumps(aggregate))
    assert again.name == name
    sample: tuple[Any, ...] = (True, True) if aggregate.arity == 2 else (True,)
    for made in (aggregate.empty(), aggregate.lift(*sample)):
        assert aggregate.from_bytes(aggregate.to_bytes(made)) == made
        assert again.lower(made) == aggregate.lower(made)


# ---------------------------------------------------------------------------------------------------- a user's own


def longest(older: str, newer: str) -> str:
    return newer if len(newer) > len(older) else older


def shared(kinds: Any) -> pa.DataType:
    return kinds[0]


def test_a_users_own_without_an_empty_partial() -> None:
    own = user_aggregate("longest", lift=str, combine=longest, result=shared, idempotent=True)
    assert own.of(["a", None, "ccc", "bbb"]) == "ccc"
    assert own.of([]) is None
    assert own.laws == Laws(associative=True, idempotent=True)
    assert own.ordered
    assert own.result([pa.large_string()]) == pa.large_string()
    assert pickle.loads(pickle.dumps(own)).of(["a", "bb"]) == "bb"
    check_laws(own, ["a", "b", "cc", "dd", "", None])


def test_a_users_own_of_two_arguments_with_all_its_parts() -> None:
    own = user_aggregate(
        "weighted",
        lift=lambda value, weight: (value * weight, weight),
        combine=lambda older, newer: (older[0] + newer[0], older[1] + newer[1]),
        lower=lambda made: made[0] / made[1] if made[1] else None,
        empty=lambda: (0, 0),
        result=pa.float64(),
        arity=2,
        commutative=True,
        invertible=True,
        to_bytes=lambda made: f"{made[0]} {made[1]}".encode(),
        from_bytes=lambda data: tuple(map(int, data.split())),
    )
    assert own.of([1, 5, None], [3, 1, 7]) == 2.0
    assert own.of([], []) is None
    assert own.from_bytes(own.to_bytes((8, 4))) == (8, 4)
    check_laws(own, [(1, 3), (5, 1), (2, 2), (None, 1)])
    with pytest.raises(DeclarationError, match="weighted takes 2 arguments"):
        own.result([pa.int64()])


def test_a_users_own_may_keep_nulls() -> None:
    own = user_aggregate(
        "missing", lift=lambda value: int(value is None), combine=lambda a, b: a + b, empty=int, result=pa.int64(),
        keeps_nulls=True, commutative=True, invertible=True,
    )  # fmt: skip
    assert own.of([None, 1, None]) == 2
    assert own.of([]) == 0
    check_laws(own, [None, 1])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": "two words"}, '"two words" is not a name'),
        ({"name": "sum"}, "there is an aggregate sum already"),
        ({"name": "mean"}, "there is an aggregate mean already"),
        ({"arity": 0}, "takes no argument"),
        ({"to_bytes": pickle.dumps}, "give both or none"),
    ],
)
def test_a_users_own_that_is_declared_wrongly(changed: dict[str, Any], message: str) -> None:
    given = {"name": "own", "lift": str, "combine": longest, "result": pa.string(), **changed}
    with pytest.raises(DeclarationError, match=message):
        user_aggregate(**given)


@pytest.mark.parametrize(
    ("combine", "laws", "message"),
    [
        (
            lambda a, b: a - b,
            {},
            r"own is not associative: \(ab\)c is -1 and a\(bc\) is 1 for a = 1, b = 1, c = 1; fix combine",
        ),
        (lambda a, b: a, {"commutative": True}, "own is not commutative: ab is 1 and ba is 2 for a = 1, b = 2"),
        (lambda a, b: a + b, {"idempotent": True}, "own is not idempotent: aa is 2 and a is 1 for a = 1"),
        (min, {"invertible": True}, "own is not invertible: ab and ac are both 1 for a = 1, b = 1, c = 2"),
    ],
)
def test_a_broken_law_is_told_with_its_counterexample(combine: Any, laws: dict[str, bool], message: str) -> None:
    own = user_aggregate("own", lift=int, combine=combine, result=pa.int64(), **laws)
    with pytest.raises(DeclarationError, match=message):
        check_laws(own, [1, 2, 4])


def test_an_empty_partial_must_be_neutral() -> None:
    own = user_aggregate("own", lift=int, combine=max, empty=lambda: 2, result=pa.int64())
    with pytest.raises(DeclarationError, match="no neutral empty partial: a with empty is 2 and a is 1 for a = 1"):
        check_laws(own, [1, 2, 4])


def test_combine_must_not_change_its_arguments() -> None:
    def joined(older: list[int], newer: list[int]) -> list[int]:
        older += [each for each in newer if each not in older]
        return older

    own = user_aggregate("own", lift=lambda value: [value], combine=joined, lower=len, result=pa.int64())
    with pytest.raises(DeclarationError, match="own "):
        check_laws(own, [1, 2, 4])


def test_partials_that_differ_only_later_are_told_apart() -> None:
    average = user_aggregate(
        "own", lift=lambda value: (value, 1), combine=lambda a, b: (a[0] + b[0], a[1] + b[1]),
        lower=lambda made: made[0] / made[1], result=pa.float64(), idempotent=True,
    )  # fmt: skip
    with pytest.raises(
        DeclarationError, match=r"own is not idempotent: aa is 1\.33\d* and a is 1\.5 before 2 for a = 1"
    ):
        check_laws(average, [1, 2])


# ---------------------------------------------------------------------------------------------------- by name


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_users_own_by_its_name(modules: Path) -> None:
    text = "import pyarrow as pa\nfrom hayase.core.algebra import user_aggregate\n"
    text += 'widest = user_aggregate("widest", lift=abs, combine=max, result=pa.int64())\n'
    (modules / "algebra_of_shop.py").write_text(text)
    assert Aggregate.from_name("algebra_of_shop:widest").of([1, -7, 3]) == 7
    with pytest.raises(DeclarationError, match='algebra_of_shop has no "widst"; did you mean "widest"'):
        Aggregate.from_name("algebra_of_shop:widst")
    with pytest.raises(DeclarationError, match="algebra_of_shop:pa is a module, not an aggregate; make it with"):
        Aggregate.from_name("algebra_of_shop:pa")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_thing_at_all\n", "broken_algebra cannot be loaded: No module named 'no_such_thing_at_all'"),
        ("1 / 0\n", "broken_algebra cannot be loaded: ZeroDivisionError: division by zero"),
        ("def\n", "broken_algebra cannot be loaded: SyntaxError"),
        ("", 'broken_algebra has no "own"; it has no aggregate at all'),
    ],
)
def test_a_module_that_does_not_work(modules: Path, text: str, message: str) -> None:
    (modules / "broken_algebra.py").write_text(text)
    with pytest.raises(DeclarationError, match=message):
        Aggregate.from_name("broken_algebra:own")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:own", "there is no module no_such_module; it must be installed"),
        ("hayase.no_such:own", r"there is no module hayase\.no_such"),
        ("no_such.module:own", "there is no module no_such;"),
        ("hayase.core.algebra:", 'has no ""'),
        (":own", "cannot be loaded"),
        ("medain", "there is no aggregate medain"),
        ("vari_pop", 'there is no aggregate vari_pop; did you mean "var_pop"'),
    ],
)
def test_names_that_stand_for_nothing(name: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        Aggregate.from_name(name)
