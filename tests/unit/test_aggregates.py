"""Aggregates over interval relations, case by case."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.interval_relations import Driver, Interval, Told, cut, intervals

from hayase.core.errors import DamagedState, DeclarationError
from hayase.core.keys import decode, encode
from hayase.core.reasons import ReasonKind
from hayase.core.times import BEGINNING
from hayase.lifetimes.accumulators import result_type
from hayase.lifetimes.aggregates import AggregateOperator
from hayase.lifetimes.plans import Aggregate, Call, Unbounded, Windowed
from hayase.lifetimes.relations import OPEN, Delta, Span

CHILD = pa.schema({"k": pa.string(), "x": pa.float64(), "i": pa.int64(), "s": pa.string()})


def aggregate(keys: Sequence[str], calls: Sequence[Call], child: pa.Schema = CHILD) -> Aggregate:
    fields = [(name, child.field(name).type) for name in keys]
    for at, call in enumerate(calls):
        kind = None if call.argument is None else child.field(call.argument).type
        fields.append((f"c{at}", result_type(call.function, kind, call.distinct)))
    return Aggregate(Windowed(0, Unbounded(), child), tuple(keys), tuple(calls), pa.schema(fields))


def told(start: int, end: int | None, known: bool = False, **row: Any) -> Told:
    return Told({name: row.get(name) for name in CHILD.names}, start, end, known)


def rows_of(
    relation: list[Told],
    calls: Sequence[Call],
    keys: Sequence[str] = ("k",),
    clocks: Sequence[int] = (100,),
    **more: Any,
) -> list[tuple[Any, ...]]:
    """(values, start, end) of all rows, by start."""
    driver = Driver(lambda: AggregateOperator(aggregate(keys, calls), more.get("endless", False)), None)
    steps = cut(relation, CHILD, list(clocks), since=0)
    found = intervals([driver.advance([delta], span) for span, delta in steps], [span for span, _ in steps])
    more.get("spoiled", []).extend(driver.spoiled)
    return [(*each.row.values(), each.start, each.end) for each in sorted(found, key=lambda each: each.start)]


@pytest.mark.parametrize(
    ("function", "kind", "wanted"),
    [
        ("count", pa.list_(pa.int64()), pa.int64()),
        ("sum", pa.int8(), pa.int64()),
        ("sum", pa.float32(), pa.float64()),
        ("sum", pa.decimal128(9, 3), pa.decimal128(38, 3)),
        ("avg", pa.int64(), pa.float64()),
        ("stddev_pop", pa.decimal128(9, 3), pa.float64()),
        ("min", pa.string(), pa.string()),
        ("max", pa.date32(), pa.date32()),
        ("max", pa.decimal128(9, 3), pa.decimal128(9, 3)),
    ],
)
def test_types_of_results(function: str, kind: pa.DataType, wanted: pa.DataType) -> None:
    assert result_type(function, kind) == wanted


@pytest.mark.parametrize(
    ("function", "kind", "distinct", "message"),
    [
        ("median", pa.int64(), False, "there is no aggregate median; use one of count"),
        ("sum", pa.int64(), True, "only count takes distinct"),
        ("sum", pa.timestamp("us"), False, "no sum of a timestamp"),
        ("sum", pa.uint64(), False, "cast it to bigint or decimal"),
        ("avg", None, False, "means nothing; name a column"),
        ("min", pa.list_(pa.int64()), False, "no min of a list"),
        ("count", pa.map_(pa.string(), pa.int64()), True, "cannot be a key"),
        ("count", None, True, "name a column"),
    ],
)
def test_what_is_not_supported_is_refused_with_a_hint(
    function: str, kind: pa.DataType | None, distinct: bool, message: str
) -> None:
    with pytest.raises(DeclarationError, match=message):
        result_type(function, kind, distinct)


def test_a_row_lasts_while_its_values_stay() -> None:
    relation = [told(0, 20, k="a", i=5), told(3, 6, k="a", i=5), told(6, 9, k="a", i=5), told(30, 31, k="a", i=None)]
    assert rows_of(relation, [Call("max", "i")]) == [("a", 5, 0, 20), ("a", None, 30, 31)]
    assert rows_of(relation, [Call("sum", "i")], clocks=(4, 7, 100)) == [
        ("a", 5, 0, 3), ("a", 10, 3, 9), ("a", 5, 9, 20), ("a", None, 30, 31),
    ]  # fmt: skip


def test_nothing_but_the_count_of_rows() -> None:
    relation = [told(0, 4, k="a"), told(1, None, k="b"), told(1, 3)]
    operator = AggregateOperator(aggregate((), [Call("count", None)], pa.schema([])), endless=False)
    deltas = []
    for span, delta in cut(relation, CHILD, [2, 10], since=0):
        bare = Delta(
            pa.RecordBatch.from_arrays([], names=[]), delta.start, delta.end, delta.id, delta.closed, delta.closed_end
        )
        deltas.append((span, operator.advance([bare], span).delta))
    found = intervals([delta for _, delta in deltas], [span for span, _ in deltas])
    assert [(each.row["c0"], each.start, each.end) for each in found] == [(1, 0, 1), (3, 1, 3), (2, 3, 4), (1, 4, None)]


def test_without_keys_the_row_begins_with_the_first_record_of_the_stage() -> None:
    operator = AggregateOperator(aggregate((), [Call("count", None), Call("sum", "i")]), endless=False)
    nothing = cut([], CHILD, [10], since=0)[0][1]
    assert len(operator.advance([nothing], Span(0, 10, 1, BEGINNING)).delta) == 0
    delta = operator.advance([nothing], Span(10, 20, 2, 13)).delta
    assert (delta.rows.to_pylist(), delta.start.tolist(), delta.end.tolist()) == ([{"c0": 0, "c1": None}], [13], [OPEN])
    assert len(operator.advance([nothing], Span(20, 30, 3, 13)).delta) == 0
    some = cut([told(35, 36, i=4)], CHILD, [40], since=30)[0][1]
    delta = operator.advance([some], Span(30, 40, 4, 13)).delta
    assert [tuple(row.values()) for row in delta.rows.to_pylist()] == [(1, 4), (0, None)]
    assert delta.closed_end.tolist() == [35]


def test_a_tuple_that_would_overflow_a_sum_is_spoiled_whole() -> None:
    spoiled: list[Any] = []
    relation = [
        told(0, 9, k="a", i=2**63 - 1, x=1.0),
        told(1, 5, k="a", i=1, x=2.0),
        told(2, None, k="a", i=-1, x=4.0),
        told(3, None, True, k="b", i=2**63 - 1),
        told(4, 50, True, k="b", i=2**62),
    ]
    calls = [Call("sum", "i", text="sum(i + 0)"), Call("sum", "x"), Call("count", None)]
    assert rows_of(relation, calls, clocks=(2, 10, 60), spoiled=spoiled) == [
        ("a", 2**63 - 1, 1.0, 1, 0, 2),
        ("a", 2**63 - 2, 5.0, 2, 2, 9),
        ("b", 2**63 - 1, None, 1, 3, None),
        ("a", -1, 4.0, 1, 9, None),
    ]
    assert [(each.ids.tolist(), each.reasons) for each in spoiled] == [
        ([1], [(ReasonKind.OVERFLOW, "sum(i + 0) of its group would overflow 64 bits")]),
        ([4], [(ReasonKind.OVERFLOW, "sum(i + 0) of its group would overflow 64 bits")]),
    ]


def test_an_end_that_takes_a_sum_out_of_range_leaves_null_and_is_told() -> None:
    spoiled: list[Any] = []
    big = 2**63 - 1
    relation = [
        told(0, 9, k="a", i=big),
        told(1, 5, k="a", i=-big),
        told(2, 7, k="a", i=big),
        told(6, None, k="a", i=-1),
    ]
    assert rows_of(relation, [Call("sum", "i"), Call("avg", "i")], spoiled=spoiled) == [
        ("a", big, float(big), 0, 1),
        ("a", 0, 0.0, 1, 2),
        ("a", big, big / 3, 2, 5),
        ("a", None, float(big), 5, 6),
        ("a", None, (2 * big - 1) / 3, 6, 7),
        ("a", big - 1, (big - 1) / 2, 7, 9),
        ("a", -1, -1.0, 9, None),
    ]
    assert [reason for each in spoiled for reason in each.reasons] == [
        (ReasonKind.OVERFLOW, "sum(i) is beyond 64 bits since a tuple of its group ended; it is NULL meanwhile")
    ] * 2


def test_averages_of_integers_do_not_overflow() -> None:
    relation = [told(at, None, k="a", i=2**63 - 1) for at in range(4)]
    found = rows_of(relation, [Call("avg", "i")], endless=True)
    assert found == [("a", 2.0**63, 0, None)]


def test_nan_and_infinity_leave_with_their_tuples() -> None:
    relation = [told(0, None, x=1.5), told(1, 4, x=math.inf), told(2, 3, x=-math.inf), told(5, 6, x=math.nan)]
    found = rows_of(relation, [Call("sum", "x"), Call("max", "x")])
    assert repr(found) == repr(
        [
            (None, 1.5, 1.5, 0, 1),
            (None, math.inf, math.inf, 1, 2),
            (None, math.nan, math.inf, 2, 3),
            (None, math.inf, math.inf, 3, 4),
            (None, 1.5, 1.5, 4, 5),
            (None, math.nan, math.nan, 5, 6),
            (None, 1.5, 1.5, 6, None),
        ]
    )


def test_sums_beyond_the_range_of_floats_come_back() -> None:
    relation = [told(0, None, x=1e308), told(1, 3, x=1e308), told(2, 4, x=-0.5)]
    found = rows_of(relation, [Call("sum", "x")])
    assert found == [(None, 1e308, 0, 1), (None, math.inf, 1, 3), (None, 1e308, 3, None)]


def test_variances_of_one_value_and_of_equal_ones() -> None:
    calls = [Call(name, "x") for name in ("var_samp", "var_pop", "stddev_samp", "stddev_pop")]
    relation = [told(0, 9, x=0.1), told(1, 8, x=0.1), told(2, 7, x=0.1), told(3, 4, x=0.4)]
    found = rows_of(relation, calls)
    assert found[0] == (None, None, 0.0, None, 0.0, 0, 1)
    assert found[1] == (None, 0.0, 0.0, 0.0, 0.0, 1, 3)
    assert found[2][1] == pytest.approx(0.0225)
    assert found[3][1:] == (0.0, 0.0, 0.0, 0.0, 4, 8)


def test_texts_are_ordered_by_their_bytes() -> None:
    relation = [told(at, 20 - at, s=text) for at, text in enumerate(["m", "abcdefghZ", "abcdefgh", "Z", "ü", "", None])]
    assert [row[1:3] for row in rows_of(relation, [Call("min", "s"), Call("max", "s")])] == [
        ("m", "m"), ("abcdefghZ", "m"), ("abcdefgh", "m"), ("Z", "m"), ("Z", "ü"), ("", "ü"),
        ("Z", "ü"), ("Z", "m"), ("abcdefgh", "m"), ("abcdefghZ", "m"), ("m", "m"),
    ]  # fmt: skip


def test_extremes_of_every_type() -> None:
    columns: dict[str, list[Any]] = {
        "flag": [True, False, None], "small": [-3, 7, None], "single": [0.1, math.nan, None],
        "day": [date(2020, 1, 2), date(1969, 1, 1), None], "time": [datetime(2020, 1, 2), datetime(1969, 1, 1), None],
        "money": [Decimal("1.50"), Decimal("-2.25"), None], "blob": [b"\xff", b"\x01", None],
        "fixed": [b"ab", b"aa", None], "natural": [2**64 - 1, 1, None],
    }  # fmt: skip
    kinds = [
        pa.bool_(), pa.int8(), pa.float32(), pa.date32(), pa.timestamp("us"), pa.decimal128(5, 2), pa.binary(),
        pa.binary(2), pa.uint64(),
    ]  # fmt: skip
    child = pa.schema(list(zip(columns, kinds)))
    calls = [Call(function, name) for name in columns for function in ("min", "max")]
    batch = pa.record_batch(columns, schema=child)
    order = np.arange(3)
    for endless in (False, True):
        operator = AggregateOperator(aggregate((), calls, child), endless)
        ends = np.full(3, OPEN)
        delta = operator.advance([Delta(batch, order, ends, order)], Span(0, 10, 1, 0)).delta
        last = list(delta.rows.to_pylist()[-1].values())
        wanted = [pick(each[:2]) for each in columns.values() for pick in (min, max)]
        wanted[4:6] = [batch.column("single")[0].as_py(), math.nan]
        assert repr(last) == repr(wanted)


def test_distinct_values_are_counted_while_they_are_there() -> None:
    relation = [told(0, 9, s="a"), told(1, 3, s="a"), told(2, 5, s="b"), told(4, 6, s=None), told(7, 8, s="")]
    found = rows_of(relation, [Call("count", "s", distinct=True)], clocks=(2, 4, 100))
    assert [each[1:] for each in found] == [(1, 0, 2), (2, 2, 5), (1, 5, 7), (2, 7, 8), (1, 8, 9)]


def test_groups_that_went_are_forgotten() -> None:
    child = pa.schema({"k": pa.int64(), "s": pa.string()})
    calls = [Call("max", "s"), Call("count", "s", distinct=True)]
    operator = AggregateOperator(aggregate(("k",), calls, child), endless=False)
    size = 5000
    for step in range(20):
        start = np.arange(step * size, (step + 1) * size)
        batch = pa.record_batch({"k": start, "s": [f"text {at}" for at in start]}, schema=child)
        made = operator.advance(
            [Delta(batch, start, start + 100, start)], Span(step * size, (step + 1) * size, step + 1)
        )
        assert len(made.delta) == size
    assert operator.size("groups") == operator.size("tuples") == 100
    assert len(operator._groups) < 3 * size
    assert len(operator._pairs) < 100_000
    assert operator._texts.used < 200_000


def test_state_of_another_definition_is_refused() -> None:
    operator = AggregateOperator(aggregate(("k",), [Call("sum", "i")]), endless=True)
    with pytest.raises(DamagedState, match="reset the stage"):
        operator.restore("groups", pa.record_batch({"key_0": ["a"]}), 1)


def test_tombstones_are_written_and_dropped() -> None:
    operator = AggregateOperator(aggregate(("k",), [Call("sum", "i")]), endless=False)
    (span, delta), (later, nothing) = cut([told(0, 5, True, k="a", i=1)], CHILD, [3, 9], since=0)
    first = {each.section: each.rows for each in operator.advance([delta], span).state}
    second = {each.section: each.rows for each in operator.advance([nothing], later).state}
    assert [row["row"] for row in first["groups"].to_pylist()] == [0]
    assert [row["row"] for row in second["groups"].to_pylist()] == [-1]
    assert operator.live("groups", first["groups"], 1).num_rows == 0
    assert operator.live("groups", second["groups"], 2).num_rows == 0
    assert operator.size("groups") == 0


def test_many_arguments() -> None:
    names = [f"v{at}" for at in range(70)]
    child = pa.schema([(name, pa.int64()) for name in names])
    calls = [Call("count", name) for name in names] + [Call("max", name) for name in names]
    relation = [
        Interval({name: None if (at + row) % 3 else at * row for at, name in enumerate(names)}, row, 10 + row)
        for row in range(3)
    ]
    batch = pa.RecordBatch.from_pylist([each.row for each in relation], schema=child)
    order = np.arange(3)
    operator = AggregateOperator(aggregate((), calls, child), endless=False)
    delta = operator.advance([Delta(batch, order, order + 10, order)], Span(0, 20, 1, 0)).delta
    for row, start in zip(delta.rows.to_pylist(), delta.start.tolist()):
        live = [each.row for each in relation if each.start <= start < (each.end or 0)]
        for at, name in enumerate(names):
            given = [each[name] for each in live if each[name] is not None]
            assert (row[f"c{at}"], row[f"c{at + 70}"]) == (len(given), max(given, default=None))


def test_keys_are_decoded_as_they_were_encoded() -> None:
    columns = [
        pa.array([7, None, -3], pa.int16()), pa.array(["ab", None, ""]), pa.array([None, Decimal("1.25"), Decimal("-7")]),
        pa.array([1.5, None, -0.5], pa.float32()), pa.array([True, None, False]), pa.array([2**64 - 1, 0, None], pa.uint64()),
        pa.array([b"abc", None, b"x12"], pa.binary(3)), pa.array([1, None, 3], pa.timestamp("us")),
    ]  # fmt: skip
    found = decode(encode(columns), [column.type for column in columns])
    assert [each.to_pylist() for each in found] == [each.to_pylist() for each in columns]
    assert [each.type for each in found] == [each.type for each in columns]
