"""Folds and lifting against `core.algebra`: every aggregate, any keys, batches, stretches, trims and reloads."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.core.algebra import AGGREGATES, Aggregate, AggregateOverflow, user_aggregate
from hayase.windows.folds import Folds
from hayase.windows.partials import Lifting, Partials

CONCAT = user_aggregate("joined", lift=str, combine=lambda older, newer: older + newer, result=pa.string())

WHOLE = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
MILD = st.sampled_from([0.0, -0.0, 1.5, -2.25, 1e6, 3.1, 0.1, math.nan])
REAL = MILD | st.sampled_from([1e16, -1e16, 1e300, math.inf, -math.inf])
UTC = datetime.UTC
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): WHOLE,
    pa.int8(): st.integers(-128, 127),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float64(): REAL,
    pa.float32(): st.sampled_from([0.5, -1.25, 3.0, math.inf, math.nan]),
    pa.decimal128(9, 2): st.decimals(-1000000, 1000000, places=2),
    pa.decimal128(30, 2): st.decimals(-(10**20), 10**20, places=2),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)),
    pa.timestamp("us"): st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1)),
    pa.timestamp("us", "UTC"): st.datetimes(
        datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1), timezones=st.just(UTC)
    ),
    pa.time64("us"): st.times(),
    pa.string(): st.text("ab", max_size=3),
}
NUMBERS = [pa.int64(), pa.int8(), pa.uint32(), pa.float64(), pa.float32(), pa.decimal128(9, 2), pa.decimal128(30, 2)]
MOMENTS = [name for name in AGGREGATES if name[:3] in ("var", "std")]
CASES: list[tuple[Aggregate, tuple[pa.DataType, ...]]] = [
    *((AGGREGATES["sum"], (kind,)) for kind in NUMBERS),
    *((AGGREGATES["avg"], (kind,)) for kind in [*NUMBERS, pa.uint64()]),
    *((AGGREGATES[name], (kind,)) for kind in VALUES for name in ("min", "max", "first", "last")),
    *((AGGREGATES[name], (kind,)) for kind in (pa.int8(), pa.float64(), pa.decimal128(9, 2)) for name in MOMENTS),
    *((AGGREGATES[name], (pa.bool_(),)) for name in ("bool_and", "bool_or")),
    *((AGGREGATES[name], kinds) for name in ("arg_min", "arg_max")
      for kinds in ((pa.int64(), pa.float64()), (pa.string(), pa.int8()), (pa.date32(), pa.timestamp("us")))),
    (AGGREGATES["count"], ()),
    (AGGREGATES["count"], (pa.string(),)),
    (AGGREGATES["approx_count_distinct"], (pa.int64(),)),
    (AGGREGATES["approx_quantile"], (pa.int8(),)),
    (CONCAT, (pa.string(),)),
]  # fmt: skip
SKETCHED = ("approx_count_distinct", "approx_quantile")


def same(got: Any, wanted: Any, aggregate: Aggregate, largest: float) -> bool:
    if isinstance(wanted, float) and isinstance(got, float) and not math.isnan(wanted):
        if aggregate.name in ("min", "max", "first", "last", "arg_min", "arg_max"):
            return got == wanted
        allowed = largest**2 * 1e-11 if aggregate.name[:3] in ("var", "std") else largest * 1e-24
        if aggregate.name.startswith("std"):
            allowed = math.sqrt(allowed)
        return math.isclose(got, wanted, rel_tol=1e-13, abs_tol=allowed)
    return bool(got == wanted) or (got != got and wanted != wanted)


def largest_of(columns: list[list[Any]]) -> float:
    """The largest finite number: what rounding is measured by."""
    numbers = [abs(float(v)) for values in columns for v in values if isinstance(v, int | float | Decimal)]
    return max((number for number in numbers if math.isfinite(number)), default=0.0)


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """With an offset, as slices have one."""
    return pa.array([None, *values], kind)[1:]


@st.composite
def tuples(
    draw: st.DrawFn, kinds: tuple[pa.DataType, ...], most: int, mild: bool
) -> tuple[tuple[list[list[Any]], int], np.random.Generator]:
    """Columns of up to `most` values out of a few, and the random source that chose them."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    length = draw(st.integers(0, 40) | st.integers(0, most))
    columns = []
    for kind in kinds:
        values = MILD if mild and kind == pa.float64() else VALUES[kind]
        some = draw(st.lists(st.none() | values, min_size=1, max_size=6))
        columns.append([some[at] for at in random.integers(0, len(some), length)])
    if not kinds:
        columns = []
    return (columns, length), random


def by_key(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows by key, and the place of each row among them."""
    grouped = np.argsort(keys, kind="stable")
    places = np.empty_like(grouped)
    places[grouped] = np.arange(len(grouped))
    return grouped, places


def judged(aggregate: Aggregate, columns: list[list[Any]], rows: np.ndarray) -> Any:
    if not columns:
        return len(rows)
    try:
        return aggregate.of(*([values[row] for row in rows] for values in columns))
    except AggregateOverflow:
        return AggregateOverflow


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].name}-{'-'.join(map(str, case[1]))}")
@settings(max_examples=examples(6))
@given(data=st.data())
def test_folds_equal_recomputation(case: tuple[Aggregate, tuple[pa.DataType, ...]], data: st.DataObject) -> None:
    aggregate, kinds = case
    most = 60 if aggregate.name in SKETCHED else 700
    mild = aggregate.name[:3] in ("var", "std", "avg", "sum") and data.draw(st.booleans())
    if aggregate.name[:3] in ("var", "std"):
        mild = True
    (columns, length), random = data.draw(tuples(kinds, most, mild))
    keyed = data.draw(st.booleans())
    keys = random.integers(0, random.integers(1, 5), length) if keyed else np.zeros(length, np.int64)
    reach = int(random.choice([3, 20, 1000]))
    lifting = Lifting(aggregate, kinds)
    lifted = lifting.lift([column(values, kind) for values, kind in zip(columns, kinds)], rows=length)
    folds, whole = Folds(lifting), Folds(lifting)
    grouped, places = by_key(keys)
    whole.append(*((keys[grouped], lifted, places) if keyed else (None, lifted)))
    largest = largest_of(columns)
    cuts = np.sort(random.integers(0, length + 1, random.integers(0, 6)))
    done = 0
    for cut in [*cuts, length]:
        part = np.arange(done, cut)
        positions = folds.append(keys[part] if keyed else None, lifted.take(part))
        for row, position in zip(part, positions):
            assert position == np.count_nonzero(keys[:row] == keys[row])
        done = int(cut)
        if random.random() < 0.3:  # what is held is enough to begin again
            again = Folds(lifting)
            held = folds.held()
            for _ in range(random.integers(1, 3)):
                again.load(*held)
            folds = again
        present = np.unique(keys[:done])
        counts = np.array([np.count_nonzero(keys[:done] == key) for key in present], np.int64)
        asked, first, last = [], [], []
        for key, count in zip(present, counts):
            for _ in range(4):
                end = int(random.integers(max(0, count - reach), count))
                asked.append(key)
                last.append(end)
                first.append(int(random.integers(max(0, count - reach), end + 2)))
        first_, last_ = np.array(first, np.int64), np.array(last, np.int64)
        folded = folds.fold(np.array(asked, np.int64) if keyed else None, first_, last_)
        values, overflowed = lifting.lower(folded)
        grouped, places = by_key(np.array(asked, np.int64))
        ordered = np.array(asked, np.int64)[grouped] if keyed else None
        reference = whole.fold(ordered, first_[grouped], last_[grouped], places)
        for one, other in zip(folded.words, reference.words):  # bit for bit, whatever the batches were
            assert one.dtype == object or one.tobytes() == other.tobytes()
        for row, value in enumerate(values.to_pylist()):
            rows = np.flatnonzero(keys == asked[row])[first[row] : last[row] + 1]
            wanted = judged(aggregate, columns, rows)
            if wanted is AggregateOverflow:
                assert value is None
                assert row in overflowed
            else:
                assert row not in overflowed
                assert same(value, pa.scalar(wanted, lifting.result).as_py(), aggregate, largest), (value, wanted)
        folds.trim(present if keyed else None, (counts - reach) if keyed or len(counts) else np.empty(0, np.int64))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].name}-{'-'.join(map(str, case[1]))}")
@settings(max_examples=examples(4))
@given(data=st.data())
def test_runs_pairs_and_stored_partials(case: tuple[Aggregate, tuple[pa.DataType, ...]], data: st.DataObject) -> None:
    aggregate, kinds = case
    (columns, length), random = data.draw(tuples(kinds, 60, aggregate.name[:3] in ("var", "std")))
    lifting = Lifting(aggregate, kinds)
    present = random.random(length) < 0.7
    arrays = [column(values, kind) for values, kind in zip(columns, kinds)]
    lifted = lifting.lift(arrays, present)
    lifted = lifting.restored(lifting.stored(lifted))
    assert tuple(each.type for each in lifting.stored(lifted)) == lifting.stored_types
    starts = np.sort(random.integers(0, length + 1, 5))
    folded = lifting.runs(lifted, starts)
    values, _ = lifting.lower(folded)
    pairs, _ = lifting.lower(lifting.combined(folded.take(np.arange(4)), folded.take(np.arange(1, 5))))
    largest = largest_of(columns)
    stops = [*starts[1:], length]
    for run, (start, stop) in enumerate(zip(starts, stops)):
        rows = np.arange(start, stop)
        wanted = judged(aggregate, columns, rows[present[rows]])
        if wanted is AggregateOverflow:
            assert values[run].as_py() is None
        else:
            assert same(values[run].as_py(), pa.scalar(wanted, lifting.result).as_py(), aggregate, largest)
        if run < 4:
            rows = np.arange(start, stops[run + 1])
            wanted = judged(aggregate, columns, rows[present[rows]])
            if wanted is not AggregateOverflow:
                assert same(pairs[run].as_py(), pa.scalar(wanted, lifting.result).as_py(), aggregate, largest)


@pytest.mark.parametrize("name", ["arg_min", "arg_max"])
def test_zeros_of_either_sign_are_equal_and_the_oldest_counts(name: str) -> None:
    lifting = Lifting(AGGREGATES[name], [pa.int64(), pa.float64()])
    lifted = lifting.lift([pa.array([1, 2, 3, 4]), pa.array([0.0, -0.0, -0.0, 0.0])])
    assert lifting.lower(lifting.runs(lifted, np.array([0, 2])))[0].to_pylist() == [1, 3]


@given(st.lists(st.integers(0, 300), max_size=8), st.integers(0, 2**32))
def test_memory_follows_what_is_alive(batches: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    lifting = Lifting(AGGREGATES["max"], [pa.int64()])
    folds = Folds(lifting)
    held: dict[int, list[int]] = {}
    for many in batches:
        keys, values = random.integers(0, 20, many), random.integers(0, 1000, many)
        folds.append(keys, lifting.lift([pa.array(values)]))
        for key, value in zip(keys, values):
            held.setdefault(int(key), []).append(int(value))
        gone = random.permutation(20)[: random.integers(0, 4)]
        folds.drop(gone)
        for key in gone:
            held.pop(int(key), None)
        present = np.array(sorted(held), np.int64)
        lengths = np.array([len(held[int(key)]) for key in present], np.int64)
        folds.trim(present, lengths - 5)
        answers, _ = lifting.lower(folds.fold(present, lengths - 5, lengths - 1))
        assert answers.to_pylist() == [max(held[int(key)][-5:]) for key in present]


def test_long_sequences_use_few_rows() -> None:
    lifting = Lifting(AGGREGATES["sum"], [pa.float64()])
    folds = Folds(lifting)
    for number in range(200):
        folds.append(None, lifting.lift([pa.array(np.full(1000, float(number)))]))
        folds.trim(None, np.array([number * 1000 + 900]))
    answers, _ = lifting.lower(folds.fold(None, np.array([199_950]), np.array([199_999])))
    assert answers.to_pylist() == [50 * 199.0]
    assert len(folds._form._pool) <= 16_384  # type: ignore[union-attr]
    _, positions, partials = folds.held()
    assert positions.tolist() == list(range(199_900, 200_000))
    assert isinstance(partials, Partials)
