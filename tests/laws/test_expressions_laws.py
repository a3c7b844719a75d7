"""Laws of expressions: one answer per row, whichever path computes it, however the rows are cut into batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.core.expressions import Projection, check
from hayase.core.stages import Mapped

SCHEMA = pa.schema({"a": pa.int64(), "b": pa.int64(), "x": pa.float64(), "s": pa.string()})
LOW, HIGH = -(2**63), 2**63 - 1
Row = dict[str, object]


class Raises(Exception):
    """What the oracle raises where DuckDB does."""


@dataclass(frozen=True)
class Formula:
    """An expression as SQL and as Python."""

    sql: str
    value: Callable[[Row], object]


def _binary(sign: str, exact: Callable[[int, int], int]) -> Callable[[tuple[Formula, Formula]], Formula]:
    def build(pair: tuple[Formula, Formula]) -> Formula:
        left, right = pair

        def value(row: Row) -> object:
            one, other = left.value(row), right.value(row)
            if one is None or other is None:
                return None
            result = exact(one, other)  # type: ignore[arg-type]
            if not LOW <= result <= HIGH:
                raise Raises
            return result

        return Formula(f"({left.sql} {sign} {right.sql})", value)

    return build


def _modulo(pair: tuple[Formula, Formula]) -> Formula:
    left, right = pair

    def value(row: Row) -> object:
        one, other = left.value(row), right.value(row)
        if one is None or other is None:
            return None
        if other == 0:
            raise Raises
        rest = abs(one) % abs(other)  # type: ignore[arg-type]
        return -rest if one < 0 else rest  # type: ignore[operator]

    return Formula(f"({left.sql} % {right.sql})", value)


def _cast(row: Row) -> object:
    text = row["s"]
    if text is None:
        return None
    if not str(text).isdecimal():
        raise Raises
    return int(str(text))


def _column(name: str) -> Formula:
    return Formula(name, lambda row: row[name])


def _literal(number: int) -> Formula:
    return Formula(f"{number}::bigint", lambda row: number)


LEAVES = st.one_of(
    st.sampled_from([_column("a"), _column("b"), Formula("cast(s as bigint)", _cast)]),
    st.integers(0, 1000).map(_literal),
)
NUMBERS = st.recursive(
    LEAVES,
    lambda inner: st.tuples(inner, inner).flatmap(
        lambda pair: st.sampled_from(
            [
                _binary("+", lambda one, other: one + other)(pair),
                _binary("-", lambda one, other: one - other)(pair),
                _binary("*", lambda one, other: one * other)(pair),
                _modulo(pair),
            ]
        )
    ),
    max_leaves=4,
)
SIGNS: list[tuple[str, Callable[[int, int], bool]]] = [
    ("<", lambda one, other: one < other),
    ("=", lambda one, other: one == other),
    (">=", lambda one, other: one >= other),
]


@st.composite
def conditions(draw: st.DrawFn) -> Formula:
    left, right = draw(NUMBERS), draw(NUMBERS)
    sign, holds = draw(st.sampled_from(SIGNS))

    def value(row: Row) -> object:
        one, other = left.value(row), right.value(row)
        return None if one is None or other is None else holds(one, other)  # type: ignore[arg-type]

    return Formula(f"{left.sql} {sign} {right.sql}", value)


WHOLE = st.one_of(st.none(), st.integers(-1000, 1000), st.sampled_from([LOW + 1, HIGH, 2**32, 0]))
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "a": WHOLE,
            "b": WHOLE,
            "x": st.one_of(st.none(), st.floats()),
            "s": st.one_of(st.none(), st.sampled_from(["0", "7", "19", "seven", ""])),
        }
    ),
    max_size=12,
)
CLEAN = st.lists(
    st.fixed_dictionaries({"a": st.integers(-9, 9), "b": st.integers(-9, 9), "x": st.floats(), "s": st.just("7")}),
    max_size=12,
)


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def projection_of(number: Formula, where: Formula | None) -> Projection:
    columns = (("v", number.sql), ("x", "x"), ("s", "s || '!'"))
    condition = where.sql if where else None
    return Projection(columns, condition, check(columns, condition, SCHEMA))


def alike(one: Mapped, other: Mapped) -> bool:
    """Equal bit by bit, NaN included."""
    return (
        one.rows.schema == other.rows.schema
        and [repr(each) for each in one.rows.to_pylist()] == [repr(each) for each in other.rows.to_pylist()]
        and np.array_equal(one.input_rows, other.input_rows)
        and np.array_equal(one.refused.rows, other.refused.rows)
        and list(one.refused.reasons) == list(other.refused.reasons)
    )


@settings(deadline=None, max_examples=examples(30))
@given(NUMBERS, st.one_of(st.none(), conditions()), ROWS)
def test_every_row_gives_what_plain_python_gives(number: Formula, where: Formula | None, rows: list[Row]) -> None:
    expected: list[tuple[int, object]] = []
    refused: list[int] = []
    for at, row in enumerate(rows):
        try:
            if where is None or where.value(row):
                expected.append((at, number.value(row)))
        except Raises:
            refused.append(at)
    mapped = projection_of(number, where)(batch_of(rows))
    assert list(zip(mapped.input_rows.tolist(), mapped.rows.column("v").to_pylist())) == expected
    assert mapped.refused.rows.tolist() == refused
    assert len(mapped.refused.reasons) == len(refused)


@settings(deadline=None, max_examples=examples(20))
@given(NUMBERS, st.one_of(st.none(), conditions()), CLEAN)
def test_both_paths_agree_where_nothing_raises(number: Formula, where: Formula | None, rows: list[Row]) -> None:
    projection, batch = projection_of(number, where), batch_of(rows)
    assert alike(projection(batch), projection.row_by_row(batch))


@settings(deadline=None, max_examples=examples(20))
@given(NUMBERS, st.one_of(st.none(), conditions()), ROWS, st.data())
def test_how_rows_are_cut_into_batches_makes_no_difference(
    number: Formula, where: Formula | None, rows: list[Row], data: st.DataObject
) -> None:
    projection, batch = projection_of(number, where), batch_of(rows)
    cut = data.draw(st.integers(0, len(rows)))
    whole, first, second = projection(batch), projection(batch.slice(0, cut)), projection(batch.slice(cut))
    assert repr(whole.rows.to_pylist()) == repr(first.rows.to_pylist() + second.rows.to_pylist())
    assert whole.input_rows.tolist() == first.input_rows.tolist() + (second.input_rows + cut).tolist()
    assert whole.refused.rows.tolist() == first.refused.rows.tolist() + (second.refused.rows + cut).tolist()
    assert list(whole.refused.reasons) == [*first.refused.reasons, *second.refused.reasons]
