"""Joins of negative tuples: keys are told apart by their bytes, as the direct method does it, and not by their hash."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.negative_tuples import joins
from benchmarks.negative_tuples.joins import SignedJoin
from benchmarks.negative_tuples.signed import Signed

from hayase.core.keys import EncodedKeys
from hayase.lifetimes.plans import Join, Unbounded, Windowed
from hayase.lifetimes.relations import Span

LEFT = pa.schema({"k": pa.string(), "v": pa.int64()})
RIGHT = pa.schema({"k1": pa.string(), "w": pa.int64()})
Event = tuple[int, bool, str | None, int]


def a_join(kind: Any) -> SignedJoin:
    schema = LEFT if kind in ("semi", "anti") else pa.schema([*LEFT, *RIGHT])
    leaves = Windowed(0, Unbounded(), LEFT), Windowed(1, Unbounded(), RIGHT)
    return SignedJoin(Join(kind, *leaves, (("k", "k1"),), None, schema))


def signed(events: list[Event], schema: pa.Schema) -> Signed:
    """Events of (time, plus, key, value); the value is the tag."""
    columns = [pa.array([each[at] for each in events], field.type) for at, field in zip((2, 3), schema)]
    time, tag = (np.array([each[at] for each in events], np.int64) for at in (0, 3))
    plus = np.array([each[1] for each in events], np.bool_)
    return Signed(pa.RecordBatch.from_arrays(columns, schema=schema), time, plus, tag)


def told(join: SignedJoin, left: list[Event], right: list[Event]) -> list[tuple[Any, ...]]:
    found = join.advance([signed(left, LEFT), signed(right, RIGHT)], Span(0, 100, 1))
    return [
        (time, plus, *row.values())
        for time, plus, row in zip(found.time.tolist(), found.plus.tolist(), found.rows.to_pylist())
    ]


@pytest.mark.parametrize("kind", ["inner", "left", "right", "full", "semi", "anti"])
def test_keys_whose_hashes_collide_stay_apart(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[Event] = [
        (1, True, "a", 1),
        (2, True, "b", 2),
        (3, True, None, 3),
        (7, False, "b", 2),
        (8, True, "c", 4),
    ]
    right: list[Event] = [
        (2, True, "b", 5),
        (4, True, "a", 6),
        (5, True, None, 7),
        (6, True, "c", 8),
        (9, False, "a", 6),
    ]
    plain = told(a_join(kind), left, right)

    def all_alike(encoded: EncodedKeys) -> np.ndarray:
        return np.full(len(encoded), 7, np.uint64)

    monkeypatch.setattr(joins, "hashes", all_alike)
    assert told(a_join(kind), left, right) == plain
    if kind == "inner":
        assert plain == [
            (2, True, "b", 2, "b", 5),
            (4, True, "a", 1, "a", 6),
            (7, False, "b", 2, "b", 5),
            (8, True, "c", 4, "c", 8),
            (9, False, "a", 1, "a", 6),
        ]


def test_keys_without_tuples_are_forgotten() -> None:
    join = a_join("inner")
    for number in range(100):
        key = f"key {number}"
        for plus in (True, False):
            told(
                join, [(number, plus, key, number), (number, plus, None, 1000 + number)], [(number, plus, key, number)]
            )
    assert len(join._keys._index) == 0
    assert join._keys._index.capacity == 1
