"""The running totals on small cases: nulls, overflow, long float sums, types, state tuples."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hayase.core.errors import DamagedState, DeclarationError
from hayase.core.stages import OFFSET, TIME, Kernel, Outcome
from hayase.windows.totals import SECTION, Count, EventTime, Key, RunningTotals, Sum, TotalsConfig, sum_type


def config(kind: pa.DataType, keys: tuple[str, ...] = ("k",)) -> TotalsConfig:
    mapped = pa.schema([("k", pa.string()), ("x", kind)])
    output = pa.schema(
        [("k", pa.string())] * len(keys)
        + [("n", pa.int64()), ("nx", pa.int64()), ("total", sum_type(kind)), ("time", pa.timestamp("us", tz="UTC"))]
    )
    columns = (*(Key(name) for name in keys), Count(), Count("x"), Sum("x", "sum(x)"), EventTime())
    return TotalsConfig(keys, columns, mapped, output)


def batch(keys: list[str | None], numbers: list[Any], kind: pa.DataType) -> pa.RecordBatch:
    columns = [pa.array(keys, pa.string()), pa.array(numbers, kind)]
    columns += [pa.array(range(len(keys)), pa.int64())] * 2
    return pa.RecordBatch.from_arrays(columns, ["k", "x", TIME, OFFSET])


def run(
    kernel: RunningTotals, keys: list[str | None], numbers: list[Any], kind: pa.DataType, version: int = 1
) -> Outcome:
    return kernel.process([batch(keys, numbers, kind)], 0, version)


def test_every_row_gives_the_totals_of_its_key_after_it() -> None:
    kernel: Kernel = RunningTotals(config(pa.int32()))
    outcome = kernel.process([batch(["a", "b", None, "a", "b", None], [1, None, 5, 2, 7, -5], pa.int32())], 0, 1)
    assert [tuple(row.values())[:4] for row in outcome.rows.to_pylist()] == [
        ("a", 1, 1, 1), ("b", 1, 0, None), (None, 1, 1, 5), ("a", 2, 2, 3), ("b", 2, 1, 7), (None, 2, 2, 0),
    ]  # fmt: skip
    assert outcome.rows.column("time").cast(pa.int64()).to_pylist() == list(range(6))
    assert [len(each) for each in outcome.refused] == [0]
    assert kernel.size(SECTION) == 3
    (tuples,) = outcome.state
    assert tuples.section == SECTION
    assert tuples.rows.to_pylist() == [
        {"key_0": "a", "count_0": 2, "count_1": 2, "sum_1": 3},
        {"key_0": "b", "count_0": 2, "count_1": 1, "sum_1": 7},
        {"key_0": None, "count_0": 2, "count_1": 2, "sum_1": 0},
    ]


@pytest.mark.parametrize(
    ("kind", "value", "most", "least", "limit"),
    [
        (pa.int64(), int, 2**63 - 1, -(2**63), "64 bits"),
        (pa.decimal128(38, 0), Decimal, 10**38 - 1, 1 - 10**38, "38 digits"),
    ],
)
def test_a_row_that_would_overflow_is_refused_and_changes_nothing(
    kind: pa.DataType, value: Callable[[int], Any], most: int, least: int, limit: str
) -> None:
    kernel = RunningTotals(config(kind))
    numbers = [value(most), value(1), value(least), None, value(-1), value(1), value(-1)]
    outcome = run(kernel, ["a", "a", "b", "a", "b", "b", "a"], numbers, kind)
    assert [tuple(row.values())[:4] for row in outcome.rows.to_pylist()] == [
        ("a", 1, 1, most), ("b", 1, 1, least), ("a", 2, 1, most), ("b", 2, 2, least + 1), ("a", 3, 2, most - 1),
    ]  # fmt: skip
    assert outcome.refused[0].rows.tolist() == [1, 4]
    assert list(outcome.refused[0].reasons) == [f"sum(x) of its key would overflow {limit}"] * 2
    assert outcome.rows.column("time").cast(pa.int64()).to_pylist() == [0, 2, 3, 5, 6]


def test_the_largest_decimals_overflow_their_upper_word_too() -> None:
    most, least = Decimal(10**38 - 1), Decimal(1 - 10**38)
    kernel = RunningTotals(config(pa.decimal128(38, 0)))
    outcome = run(kernel, ["a", "a", "b", "b"], [most, most, least, least], pa.decimal128(38, 0))
    assert outcome.refused[0].rows.tolist() == [1, 3]


def test_float_sums_keep_their_digits() -> None:
    kernel = RunningTotals(config(pa.float64()))
    outcome = run(kernel, ["a"] * 4, [1.0, 1e100, 1.0, -1e100], pa.float64())
    assert outcome.rows.column("total").to_pylist()[-1] == 2.0
    tenths = RunningTotals(config(pa.float64()))
    rows = run(tenths, ["a"] * 100_000, [0.1] * 100_000, pa.float64()).rows
    assert rows.column("total")[-1].as_py() == 100_000 * 0.1


def test_float_sums_beyond_the_finite_are_ieee() -> None:
    kernel = RunningTotals(config(pa.float64()))
    numbers = [1.0, math.inf, 5.0, -math.inf, 1.0]
    totals = run(kernel, ["a"] * 5, numbers, pa.float64()).rows.column("total").to_pylist()
    assert totals[:3] == [1.0, math.inf, math.inf]
    assert all(math.isnan(total) for total in totals[3:])
    large = run(kernel, ["b"] * 3, [1.7e308, 1.7e308, -1.7e308], pa.float64(), 2).rows.column("total").to_pylist()
    assert large == [1.7e308, math.inf, math.inf]


def test_without_keys_all_rows_are_one_group() -> None:
    kernel = RunningTotals(config(pa.int64(), keys=()))
    outcome = run(kernel, ["a", "b", None], [1, 2, 3], pa.int64())
    assert outcome.rows.column("total").to_pylist() == [1, 3, 6]
    assert outcome.state[0].rows.to_pylist() == [{"count_0": 3, "count_1": 3, "sum_1": 6}]
    again = RunningTotals(config(pa.int64(), keys=()))
    again.restore(SECTION, outcome.state[0].rows, 1)
    assert run(again, ["z"], [4], pa.int64(), 2).rows.column("total").to_pylist() == [10]


def test_only_counting_needs_no_arguments() -> None:
    mapped = pa.schema([("k", pa.int64())])
    output = pa.schema([("time", pa.int32()), ("n", pa.int64())])
    kernel = RunningTotals(TotalsConfig(("k",), (EventTime(1_000_000), Count()), mapped, output))
    rows = pa.record_batch({"k": [1, 2, 1], TIME: [0, 1_000_000, 7_000_000], OFFSET: [0, 1, 2]})
    assert kernel.process([rows], 0, 1).rows.to_pydict() == {"time": [0, 1, 7], "n": [1, 1, 2]}


def test_an_empty_batch_gives_nothing() -> None:
    outcome = run(RunningTotals(config(pa.float32())), [], [], pa.float32())
    assert (outcome.rows.num_rows, list(outcome.state)) == (0, [])


def test_a_late_repeat_of_an_old_tuple_does_not_win() -> None:
    first = RunningTotals(config(pa.int64()))
    old = run(first, ["a"], [1], pa.int64(), 1).state[0].rows
    new = run(first, ["a"], [2], pa.int64(), 2).state[0].rows
    second = RunningTotals(config(pa.int64()))
    for rows, version in ((old, 1), (new, 2), (old, 1)):
        second.restore(SECTION, rows, version)
    assert run(second, ["a"], [0], pa.int64(), 3).rows.column("total").to_pylist() == [3]


def test_live_gives_what_no_later_tuple_replaces_and_gives_it_once() -> None:
    kernel = RunningTotals(config(pa.int64()))
    old = run(kernel, ["a", "b", "c"], [1, 2, 3], pa.int64(), 1).state[0].rows
    run(kernel, ["b"], [10], pa.int64(), 2)
    run(kernel, ["d"], [4], pa.int64(), 3)
    twice = pa.Table.from_batches([old, old]).combine_chunks().to_batches()[0]
    live = kernel.live(SECTION, twice, 1)
    assert live.column("key_0").to_pylist() == ["a", "c"]
    assert kernel.live(SECTION, twice, 2).column("key_0").to_pylist() == ["b"]
    assert kernel.live(SECTION, twice, 2).num_rows == 0
    assert kernel.live(SECTION, live, 3).num_rows == 2  # rewritten at the version of the last batch, 3


def test_a_key_that_live_was_asked_for_in_vain_is_not_created() -> None:
    kernel = RunningTotals(config(pa.int64()))
    strange = run(RunningTotals(config(pa.int64())), ["a"], [1], pa.int64()).state[0].rows
    assert kernel.live(SECTION, strange, 9).num_rows == 0
    assert kernel.size(SECTION) == 0


def test_two_batches_of_one_version_both_write() -> None:
    kernel = RunningTotals(config(pa.int64()))
    run(kernel, ["a"], [1], pa.int64(), 1)
    assert run(kernel, ["a"], [1], pa.int64(), 1).state[0].rows.column("sum_1").to_pylist() == [2]


def test_state_of_another_definition_is_refused() -> None:
    rows = run(RunningTotals(config(pa.int64())), ["a"], [1], pa.int64()).state[0].rows
    with pytest.raises(DamagedState, match=r"sum_1 int64.*reset the stage"):
        RunningTotals(config(pa.float64())).restore(SECTION, rows, 1)


def test_config_is_plain_data() -> None:
    assert pickle.loads(pickle.dumps(config(pa.int64()))) == config(pa.int64())


def test_config_reports_all_its_mistakes() -> None:
    mapped = pa.schema([("k", pa.list_(pa.int64())), ("x", pa.string()), ("y", pa.int8())])
    output = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.int64()), ("d", pa.int32())])
    with pytest.raises(DeclarationError) as caught:
        TotalsConfig(("k",), (Key("y"), Sum("x"), Sum("y"), Count()), mapped, output)
    assert [mistake.message for mistake in caught.value.mistakes] == [
        'column "k": a list<item: int64> cannot be a key',
        'column "a": "y" is not a key',
        'column "b": there is no sum of a string',
        'column "d" is a int64, declared as int32',
    ]


def test_totals_of_many_keys_agree_with_numpy() -> None:
    generator = np.random.default_rng(7)
    numbers = generator.integers(0, 5_000, 50_000)
    kernel = RunningTotals(config(pa.int64()))
    state: dict[str, int] = {}
    for version, part in enumerate(np.array_split(numbers, 3)):
        outcome = run(kernel, [str(number) for number in part], part.tolist(), pa.int64(), version)
        state |= zip(*(outcome.state[0].rows.column(name).to_pylist() for name in ("key_0", "sum_1")))
    keys, counts = np.unique(numbers, return_counts=True)
    assert state == {str(key): int(key * count) for key, count in zip(keys, counts)}
