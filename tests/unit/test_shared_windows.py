"""Shared windows by example: the paper's figure, the ways to ask, what is refused."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from benchmarks import window_baselines

import hayase
from hayase.core.algebra import AGGREGATES, user_aggregate
from hayase.core.errors import DeclarationError
from hayase.windows.shared import SharedWindows, Window


def test_figure_2_of_the_paper() -> None:
    paper = window_baselines.PaperWindows([5, 7, 8], lambda older, newer: older + newer)
    before = [8, 5, 3, 5, 3, 2, 4, 7]
    for value in before:
        paper.push(value)
    assert (paper.da, paper.qa) == ([24, 16, 11, 8, 3, 13, 11, 7], [37, 13])
    steps = [
        (5, [5, 16, 11, 8, 3, 13, 11, 7], [37, 13], 21, 29, 34),
        (3, [5, 8, 11, 8, 3, 13, 11, 7], [37, 13], 21, 29, 32),
        (7, [5, 3, 15, 8, 3, 13, 11, 7], [37, 13], 26, 31, 36),
        (8, [5, 3, 7, 23, 3, 13, 11, 7], [37, 13], 30, 36, 39),
        (2, [25, 20, 17, 10, 2, 13, 11, 7], [25, 38], 25, 36, 38),
    ]
    windows = SharedWindows([5, 7, 8], ["sum"])
    windows.push(before)
    for value, da, qa, *answers in steps:
        paper.push(value)
        assert (paper.da, paper.qa) == (da, qa)
        assert [paper.answer(length) for length in (5, 7, 8)] == answers
        assert [each["sum"].to_pylist() for each in windows.push([value])] == [[answer] for answer in answers]


def test_the_public_name() -> None:
    assert hayase.SharedWindows is SharedWindows
    assert hayase.Aggregate is type(AGGREGATES["sum"])


def test_different_lengths_and_slides() -> None:
    answers = SharedWindows([(1, 1), (3, 2), Window(2, 4)], ["sum"]).push(np.arange(1, 6))
    assert [(each.window.length, each.at.tolist(), each["sum"].to_pylist()) for each in answers] == [
        (1, [0, 1, 2, 3, 4], [1, 2, 3, 4, 5]),
        (3, [1, 3], [3, 9]),
        (2, [3], [7]),
    ]
    assert answers[3, 2] is answers[3]
    with pytest.raises(KeyError):
        answers[9]


def test_nothing_pushed_and_too_little_pushed() -> None:
    shared = SharedWindows([(100, 10)], ["sum", "count"])
    assert shared.push(pa.array([], pa.float64()))[100]["sum"].to_pylist() == []
    assert shared.push([1.5] * 9)[100]["sum"].to_pylist() == []
    assert shared.push([1.5] * 11)[100]["sum"].to_pylist() == [15.0, 30.0]


def test_nulls_that_come_late() -> None:
    shared = SharedWindows([2, 20], {name: name for name in ("sum", "avg", "min", "max", "count")})
    shared.push([5] * 1000)
    answers = shared.push(pa.array([None, None, 7, None], pa.int64()))
    assert answers[2]["sum"].to_pylist() == [5, None, 7, 7]
    assert answers[2]["max"].to_pylist() == [5, None, 7, 7]
    assert answers[2]["count"].to_pylist() == [1, 0, 1, 1]
    assert answers[20]["count"].to_pylist() == [19, 18, 18, 17]
    assert answers[20]["avg"].to_pylist() == [5.0, 5.0, 92 / 18, 87 / 17]


def test_sums_that_do_not_fit() -> None:
    shared = SharedWindows([1, 2, 3], ["sum", "max"])
    answers = shared.push([2**62, 2**62, -(2**62)])
    assert answers[2]["sum"].to_pylist() == [2**62, None, 0]
    assert answers[2].overflowed["sum"].tolist() == [1]
    assert answers[3]["sum"].to_pylist() == [2**62, None, 2**62]
    assert answers[3].overflowed["max"].tolist() == []


def test_float_sums_forget_what_has_left() -> None:
    answers = SharedWindows([2], ["sum"]).push([1e300, 0.1, 0.2, float("inf"), 0.3, 0.4, float("nan"), 1.0, 2.0])
    assert answers[2]["sum"].to_pylist()[1:6] == [1e300, 0.1 + 0.2, float("inf"), float("inf"), 0.7]
    assert answers[2]["sum"].to_pylist()[8] == 3.0


def test_columns_types_and_a_users_own() -> None:
    joined = user_aggregate("joined", lift=str, combine=lambda older, newer: older + newer, result=pa.string())
    shared = SharedWindows(
        [(3, 1)], {"text": (joined, "a"), "all": ("count", ()), "top": ("max", "b")}, types={"b": pa.float32()}
    )
    answers = shared.push({"a": ["x", None, "y"], "b": [1, None, 3], "unused": [0, 0, 0]})
    assert answers[3]["text"].to_pylist() == ["x", "x", "xy"]
    assert answers[3]["all"].to_pylist() == [1, 2, 3]
    assert answers[3]["top"].type == pa.float32()
    assert answers[3]["top"].to_pylist() == [1.0, 1.0, 3.0]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: SharedWindows([(0, 1)], ["sum"]), r"no window W\[0, 1\]"),
        (lambda: SharedWindows([], ["sum"]), "without a window"),
        (lambda: SharedWindows([3], ["summ"]), "summ"),
        (lambda: SharedWindows([3], ["sum", ("sum", "x")]), "same name"),
        (lambda: SharedWindows([3], ["sum"]).push(["a"]), "no sum of a string"),
        (lambda: SharedWindows([3], ["sum"]).push({"x": [1]}), "no column 'value'"),
        (lambda: SharedWindows([3], [("sum", "x")]).push({"y": [1]}), "no column 'x'"),
        (lambda: SharedWindows([3], ["sum"]).push([None]), "is unknown; pass it as types"),
        (lambda: SharedWindows([3], {"a": ("sum", "x"), "b": ("sum", "y")}).push({"x": [1], "y": [1, 2]}), "lengths"),
        (
            lambda: SharedWindows(
                [3],
                [user_aggregate("odd", lift=int, combine=lambda a, b: b - a, result=pa.int64(), associative=False)],
            ),
            "not associative",
        ),
    ],
)
def test_what_is_refused(make: object, told: str) -> None:
    with pytest.raises(DeclarationError, match=told):
        make()  # type: ignore[operator]


def test_keys_always_or_never() -> None:
    shared = SharedWindows([3], ["sum"])
    shared.push([1], keys=["a"])
    with pytest.raises(DeclarationError, match="cannot be mixed"):
        shared.push([1])


def test_a_decimal_that_arrow_cannot_hold_overflows() -> None:
    small = Decimal("1e-10000000")
    tiny = user_aggregate(
        "tiny",
        lift=bool,
        combine=lambda a, b: b,
        lower=lambda x: small if x else Decimal("1.5"),
        result=pa.decimal128(10, 2),
    )
    (answers,) = SharedWindows([1], [tiny]).push([0, 1])
    assert answers["tiny"].to_pylist() == [Decimal("1.50"), None]
    assert answers.overflowed["tiny"].tolist() == [1]


@pytest.mark.parametrize(
    "kind",
    [
        pa.decimal256(5, 1_000_000),
        pa.decimal128(5, 1_000),
        pa.decimal128(5, -2_000_000),
        pa.struct({"x": pa.decimal128(5, 77)}),
        pa.list_(pa.decimal256(5, -77)),
    ],
    ids=str,
)
def test_decimals_with_an_impossible_scale_are_refused(kind: pa.DataType) -> None:
    values = (
        pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(32))])
        if pa.types.is_decimal(kind)
        else pa.array([None], kind)
    )
    with pytest.raises(DeclarationError, match=r"column 'value' is a .* whose scale is impossible"):
        SharedWindows([1], ["first"], types={"value": kind})
    with pytest.raises(DeclarationError, match="scale is impossible"):
        SharedWindows([1], ["first"]).push(values)


def test_decimals_of_another_scale_are_not_changed() -> None:
    kind = pa.decimal128(38, 20)
    shared = SharedWindows([1], ["first"], types={"value": kind})
    small = pa.array([Decimal("1.5")], pa.decimal128(38, 3))
    assert shared.push(small)[1]["first"].to_pylist() == [Decimal("1.5")]
    with pytest.raises(ValueError, match="precision"):
        shared.push(pa.array([Decimal("-1267650600228229401496703205378.040")], pa.decimal128(38, 3)))
