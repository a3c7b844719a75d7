"""Laws of aggregates: at every instant what recomputation over the live tuples gives, for any cut into steps and restores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.interval_relations import Driver, Interval, Told, clock_lists, cut, instants, intervals, told_relations

from effort import examples
from hayase.core.times import BEGINNING
from hayase.lifetimes import aggregate_groups, aggregates
from hayase.lifetimes.accumulators import result_type
from hayase.lifetimes.aggregates import AggregateOperator
from hayase.lifetimes.plans import Aggregate, Call, Unbounded, Windowed
from hayase.lifetimes.relations import OPEN, Delta, Span

CHILD = pa.schema(
    {
        "k": pa.string(),
        "g": pa.float64(),
        "i": pa.int64(),
        "h": pa.int16(),
        "d": pa.decimal128(38, 2),
        "x": pa.float64(),
        "s": pa.string(),
        "b": pa.bool_(),
        "t": pa.timestamp("us"),
        "u": pa.uint64(),
    }
)
CALLS = [
    ("count", None), ("count", "i"), ("sum", "i"), ("avg", "i"), ("min", "i"), ("max", "i"), ("avg", "h"), ("max", "h"),
    ("var_pop", "h"), ("sum", "d"), ("avg", "d"), ("min", "d"), ("max", "d"), ("sum", "x"), ("avg", "x"), ("min", "x"),
    ("max", "x"), ("var_samp", "x"), ("var_pop", "x"), ("stddev_samp", "x"), ("stddev_pop", "x"), ("min", "s"),
    ("max", "s"), ("count", "s"), ("min", "b"), ("max", "t"), ("min", "u"), ("max", "u"), ("avg", "u"),
]  # fmt: skip
DISTINCT = ["s", "x", "i"]
CASES = [Call(function, argument, text=f"{function}({argument})") for function, argument in CALLS]
CASES += [Call("count", argument, distinct=True) for argument in DISTINCT]


@pytest.fixture(autouse=True, scope="module")
def _tidy_at_once() -> Iterator[None]:
    """Memory of what is alive no more is given back as soon as it is the greater part, not only when it is much."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aggregate_groups, "SPARE_TUPLES", 0)
        patch.setattr(aggregates, "SPARE_TUPLES", 0)
        yield


def aggregate(keys: Sequence[str], calls: Sequence[Call], child: pa.Schema = CHILD) -> Aggregate:
    fields = [(name, child.field(name).type) for name in keys]
    for at, call in enumerate(calls):
        kind = None if call.argument is None else child.field(call.argument).type
        fields.append((f"c{at}", result_type(call.function, kind, call.distinct)))
    return Aggregate(Windowed(0, Unbounded(), child), tuple(keys), tuple(calls), pa.schema(fields))


floats = st.sampled_from([0.0, -0.0, 0.1, 1.0, 1.5, -2.25, 1e17, -1e17, 1e300, -1e300, 1e-310]) | st.floats(-1e6, 1e6)
specials = st.sampled_from([math.nan, math.inf, -math.inf])
wide = st.sampled_from(["9" * 36 + ".99", "-" + "9" * 36 + ".99", "6" + "0" * 35 + ".00"]).map(Decimal)
rows = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", "", None]),
        "g": st.sampled_from([0.0, -0.0, math.nan, None]),
        "i": st.none() | st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63), 2**62, -(2**62)]),
        "h": st.none() | st.integers(-3, 3),
        "d": st.none() | st.decimals(-5, 5, places=2) | wide,
        "x": st.none() | floats | floats | specials,
        "s": st.none() | st.sampled_from(["", "a", "a\0", "ab", "abcdefgh", "abcdefghi", "abcdefgz", "ü", "z"]),
        "b": st.none() | st.booleans(),
        "t": st.none() | st.integers(0, 5),
        "u": st.none() | st.sampled_from([0, 1, 2**63, 2**64 - 1]),
    }
)
relations = told_relations(rows, most=14)


def exact(numbers: list[Any]) -> Fraction:
    return sum((Fraction(each) for each in numbers), Fraction(0))


def moment(numbers: list[float], sample: int) -> float | None:
    """Variance in exact arithmetic."""
    if len(numbers) <= sample:
        return None
    if not all(map(math.isfinite, numbers)):
        return math.nan
    mean = exact(numbers) / len(numbers)
    spread = sum(((Fraction(each) - mean) ** 2 for each in numbers), Fraction(0)) / (len(numbers) - sample)
    try:
        return float(spread)
    except OverflowError:
        return math.inf


def float_sum(numbers: list[float]) -> float:
    if any(map(math.isnan, numbers)) or {math.inf, -math.inf} <= set(numbers):
        return math.nan
    for infinite in (math.inf, -math.inf):
        if infinite in numbers:
            return infinite
    total = exact(numbers)
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def fits(call: Call, total: Fraction) -> bool:
    return -(2**63) <= total < 2**63 if call.argument == "i" else abs(total) * 100 < 10**38


def expected(call: Call, live: list[dict[str, Any]]) -> Any:
    """A call over the live tuples, recomputed."""
    if call.argument is None:
        return len(live)
    given = [row[call.argument] for row in live if row[call.argument] is not None]
    is_float = call.argument == "x"
    match call.function:
        case "count":
            return len({repr(each + 0.0 if is_float else each) for each in given}) if call.distinct else len(given)
        case "min" | "max" if given:
            numbers = [each for each in given if not (is_float and math.isnan(each))]
            key = (lambda text: text.encode()) if call.argument == "s" else None
            if call.function == "max" and len(numbers) < len(given):
                return math.nan
            return (min if call.function == "min" else max)(numbers, key=key) if numbers else math.nan
        case "sum" if given:
            if is_float:
                return float_sum(given)
            total = exact(given)
            return total if fits(call, total) else None
        case "avg" if given:
            return float_sum(given) / len(given) if is_float else float(exact(given) / len(given))
        case "var_samp" | "var_pop":
            return moment(given, call.function == "var_samp")
        case "stddev_samp" | "stddev_pop":
            spread = moment(given, call.function == "stddev_samp")
            return None if spread is None else math.sqrt(spread)
    return None


def close(call: Call, found: Any, wanted: Any, live: list[dict[str, Any]]) -> bool:
    """Equal, up to what is allowed for floats: 1e-9 of the sum of the sizes, and for a variance of the squares."""
    if found is None or wanted is None or not isinstance(wanted, float) or call.function in ("min", "max"):
        if isinstance(wanted, float) and math.isnan(wanted):
            return isinstance(found, float) and math.isnan(found)
        if isinstance(wanted, Fraction):
            found = None if found is None else Fraction(found)
        return bool(found == wanted)
    if not math.isfinite(wanted):
        return repr(found) == repr(wanted)
    given = [Fraction(row[call.argument]) for row in live if row[call.argument] is not None]  # type: ignore[index]
    if call.function in ("sum", "avg"):
        return abs(Fraction(found) - Fraction(wanted)) <= sum(map(abs, given)) / 10**9
    squares = sum(each * each for each in given)
    if squares >= Fraction(1e308):
        return True  # beyond the range of the squares nothing is promised
    if call.function.startswith("stddev"):
        found, wanted = found * found, wanted * wanted
    return abs(Fraction(found) - Fraction(wanted)) <= squares / 10**20 + Fraction(wanted) / 10**9 + Fraction(1e-300)


def key_of(row: dict[str, Any], keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(repr(each + 0.0 if isinstance(each, float) else each) for each in (row[name] for name in keys))


def spoiled_ids(relation: list[Told], keys: Sequence[str], calls: Sequence[Call]) -> set[int]:
    """The tuples whose addition takes an exact sum out of its range, or farther out, in the order of events."""
    events = []
    for at, each in enumerate(relation):
        events.append((each.start, 1, at))
        if each.end is not None:
            events.append((each.end, 0, at))
    live: dict[tuple[str, ...], list[int]] = {}
    lost: set[int] = set()
    checked = [call for call in calls if call.argument == "d" or (call.argument == "i" and call.function == "sum")]
    checked = [call for call in checked if call.function in ("sum", "avg")]
    for _, starts, at in sorted(events, key=lambda event: (event[0], event[1], event[2] if event[1] else 0)):
        group = live.setdefault(key_of(relation[at].row, keys), [])
        if not starts:
            if at not in lost:
                group.remove(at)
            continue
        for call in checked:
            add = relation[at].row[call.argument]
            before = exact([relation[other].row[call.argument] or 0 for other in group])
            if add is None or fits(call, before + Fraction(add)):
                continue
            if fits(call, before) or (add != 0 and (before > 0) == (add > 0)):
                lost.add(at)
        if at not in lost:
            group.append(at)
    return lost


def run(
    node: Aggregate, relation: list[Told], clocks: list[int], seed: int | None, began: int | None = None,
    endless: bool = False,
) -> tuple[list[Interval], Driver]:  # fmt: skip
    steps = cut(relation, CHILD, clocks, since=0)
    told = [replace(span, began=BEGINNING if began is None or began >= span.clock else began) for span, _ in steps]
    driver = Driver(lambda: AggregateOperator(node, endless), seed)
    deltas = [driver.advance([delta], span) for span, (_, delta) in zip(told, steps)]
    return intervals(deltas, told), driver


def check(
    found: list[Interval], relation: list[Told], keys: Sequence[str], calls: Sequence[Call], before: int, lost: set[int],
    began: int | None = None,
) -> None:  # fmt: skip
    for instant in instants(found, relation):
        if instant >= before:
            continue
        live: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        if not keys and began is not None and instant >= began:
            live[()] = []
        for at, each in enumerate(relation):
            if at not in lost and each.start <= instant and (each.end is None or instant < each.end):
                live.setdefault(key_of(each.row, keys), []).append(each.row)
        there = [each.row for each in found if each.start <= instant and (each.end is None or instant < each.end)]
        assert sorted(key_of(row, keys) for row in there) == sorted(live), f"at {instant}"
        for row in there:
            mine = live[key_of(row, keys)]
            for at, call in enumerate(calls):
                value = row[f"c{at}"]
                if call.argument == "t" and value is not None:
                    value = value.microsecond
                wanted = expected(call, mine)
                assert close(call, value, wanted, mine), f"at {instant}: {call} is {value}, not {wanted}, over {mine}"


def no_splits(found: list[Interval], keys: Sequence[str]) -> None:
    """A row that ends and one that begins there are not the same."""
    ended = {(key_of(each.row, keys), each.end): repr(each.row) for each in found}
    assert all(ended.get((key_of(each.row, keys), each.start)) != repr(each.row) for each in found)


def in_words(found: list[Interval]) -> list[str]:
    return sorted(repr(each) for each in found)


@given(relations, clock_lists(), st.integers(0, 1000))
@settings(max_examples=examples(50, 750))
def test_rows_are_those_recomputed_at_every_instant(relation: list[Told], clocks: list[int], seed: int) -> None:
    node, keys = aggregate(("k",), CASES), ("k",)
    lost = spoiled_ids(relation, keys, CASES)
    whole, driver = run(node, relation, clocks[-1:], None)
    check(whole, relation, keys, CASES, clocks[-1], lost)
    no_splits(whole, keys)
    assert {each for spoiled in driver.spoiled if spoiled.ids is not None for each in spoiled.ids.tolist()} == lost
    cut_up, driver = run(node, relation, clocks, seed)
    assert in_words(cut_up) == in_words(whole)
    assert {each for spoiled in driver.spoiled if spoiled.ids is not None for each in spoiled.ids.tolist()} == lost


@given(relations, clock_lists(), st.integers(0, 1000), st.lists(st.sampled_from(CASES), min_size=1, max_size=4))
@settings(max_examples=examples(50, 750))
def test_any_calls_over_any_keys(relation: list[Told], clocks: list[int], seed: int, calls: list[Call]) -> None:
    keys = ("g", "k")
    found, _ = run(aggregate(keys, calls), relation, clocks, seed)
    check(found, relation, keys, calls, clocks[-1], spoiled_ids(relation, keys, calls))
    no_splits(found, keys)


@given(relations, clock_lists(), st.integers(0, 1000), st.none() | st.integers(0, 5), st.booleans())
@settings(max_examples=examples(50))
def test_without_keys_there_is_a_row_from_the_first_record_on(
    relation: list[Told], clocks: list[int], seed: int, earlier: int | None, endless: bool
) -> None:
    if endless:
        relation = [each._replace(end=None) for each in relation]
    first = min((each.start for each in relation), default=None)
    began = first if earlier is None or first is None else max(first - earlier, 0)
    found, _ = run(aggregate((), CASES), relation, clocks, seed, began, endless)
    whole, _ = run(aggregate((), CASES), relation, clocks[-1:], None, began, endless)
    assert in_words(found) == in_words(whole)
    check(found, relation, (), CASES, clocks[-1], spoiled_ids(relation, (), CASES), began)
    no_splits(found, ())


@given(relations, clock_lists(), st.integers(0, 1000))
@settings(max_examples=examples(50))
def test_endless_relations_keep_no_tuples(relation: list[Told], clocks: list[int], seed: int) -> None:
    relation = [each._replace(end=None) for each in relation]
    keys = ("k",)
    calls = [call for call in CASES if call.argument != "x" or call.function in ("count", "min", "max")]
    found, driver = run(aggregate(keys, calls), relation, clocks, seed, endless=True)
    check(found, relation, keys, calls, clocks[-1], spoiled_ids(relation, keys, calls))
    no_splits(found, keys)
    assert "tuples" not in {each.section for each in driver.state}
    whole, _ = run(aggregate(keys, CASES), relation, clocks[-1:], None, endless=True)
    again, _ = run(aggregate(keys, CASES), relation, clocks, seed, endless=True)
    assert in_words(whole) == in_words(again)


@given(st.lists(st.none() | floats, max_size=30), st.booleans())
@example([0.1, 1e17, 0.1, -1e17], False)
def test_endless_sums_of_floats_keep_their_digits(numbers: list[float | None], moments: bool) -> None:
    sizes = sum(abs(Fraction(each)) for each in numbers if each is not None)
    assume(sizes < Fraction(1e308))
    calls = [Call("sum", "x"), Call("avg", "x")] + [Call("var_pop", "x")] * moments
    row = dict.fromkeys(CHILD.names)
    relation = [Told({**row, "x": each}, at, None) for at, each in enumerate(numbers)]
    found, _ = run(aggregate((), calls), relation, [len(numbers) + 1], None, 0, endless=True)
    check(found, relation, (), calls, len(numbers) + 1, set(), 0)


SIMPLE = pa.schema({"k": pa.int64(), "x": pa.float64()})


def churn(seed: int, steps: int, size: int, live: int, numbers: Any, calls: Sequence[Call]) -> None:
    """Many tuples through a window, in steps; after each step the open rows are compared with fresh sums."""
    chance = np.random.default_rng(seed)
    operator = AggregateOperator(aggregate(("k",), calls, SIMPLE), endless=False)
    key, number, ends = (np.empty(0, kind) for kind in (np.int64, np.float64, np.int64))
    rows: dict[int, Any] = {}
    for step in range(steps):
        span = Span(step * size, (step + 1) * size, step + 1)
        start = np.arange(span.since, span.clock)
        end = start + 1 + chance.integers(0, 2 * live, size)
        fresh = numbers(chance, size)
        keys = chance.integers(0, 3, size)
        batch = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(fresh)], schema=SIMPLE)
        delta = operator.advance([Delta(batch, start, end, start)], span).delta
        for closed in delta.closed.tolist():
            del rows[closed]
        still = np.flatnonzero(delta.end == OPEN)
        rows.update(zip(delta.id[still].tolist(), delta.rows.take(pa.array(still)).to_pylist()))
        key, number, ends = (np.concatenate(pair) for pair in ((key, keys), (number, fresh), (ends, end)))
        alive = ends >= span.clock
        key, number, ends = key[alive], number[alive], ends[alive]
        assert sorted(row["k"] for row in rows.values()) == sorted(set(key.tolist()))
        for row in rows.values():
            mine = number[key == row["k"]].tolist()
            for at, call in enumerate(calls):
                given = [{"x": each} for each in mine]
                assert close(call, row[f"c{at}"], expected(call, given), given), (step, call, row)


NUMERIC = [Call(name, "x") for name in ("sum", "avg", "var_pop", "min", "max")]


def test_large_numbers_that_come_and_go_leave_nothing_behind() -> None:
    def numbers(chance: np.random.Generator, size: int) -> np.ndarray:
        result = np.ones(size) + chance.integers(0, 3, size)
        result[chance.integers(0, size, 2)] = [1e300, -1e100]
        result[chance.integers(0, size, 2)] = [1e140, -1e20]
        result[chance.integers(0, size, 3)] = [np.nan, np.inf, -np.inf]
        return result

    churn(1, 40, 500, 20, numbers, NUMERIC)


def test_ordinary_numbers_do_not_drift() -> None:
    churn(2, 30, 20_000, 50, lambda chance, size: chance.normal(1e6, 1e-3, size), NUMERIC)


def test_ten_million_updates_leave_no_drift() -> None:
    def numbers(chance: np.random.Generator, size: int) -> np.ndarray:
        result = chance.normal(0.1, 1e3, size)
        result[chance.integers(0, size, 20)] *= 1e200
        return result

    churn(3, 50, 100_000, 1_000, numbers, NUMERIC[:2])
