"""What is exported and loaded again is the same table, row by row, for every type whose value says all there is to say."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import hayase as hy
from effort import examples
from hayase.cli.exports import write_table
from hayase.core.declarations import TableDeclaration
from hayase.tables import TYPES

SKETCHES = ("DistinctCount", "Quantiles")
"""Of these a value does not say what was counted."""
KINDS = [name for name in TYPES if name not in SKETCHES]

numbers = (
    st.integers(-(2**70), 2**70) | st.decimals(-(10**6), 10**6, places=3) | st.sampled_from([Decimal("1e-30"), 0, 1.5])
)
texts = st.sampled_from(["", "a", "1", "null", "[1]", "2026-01-02T03:04:05Z", "naïve \u2603\n", '"q"'])
scalars = st.none() | st.booleans() | numbers | texts
values = scalars | st.lists(scalars, max_size=2) | st.dictionaries(texts, scalars, max_size=2)
sets = st.lists(values, max_size=3)
PARAMETERS: dict[str, st.SearchStrategy[Any]] = {
    "Counter": numbers,
    "Register": values,
    "MinRegister": values,
    "MaxRegister": values,
    "MapCounter": st.dictionaries(texts, numbers, max_size=3),
    "MapRegister": st.dictionaries(texts, values, max_size=3),
    "MapSet": st.dictionaries(texts, st.lists(values, min_size=1, max_size=3), max_size=3),
}
rows = st.fixed_dictionaries(
    {"region": texts | st.booleans(), "number": st.integers(-3, 3) | st.just(Decimal("0.5")) | texts},
    optional={kind.lower(): PARAMETERS.get(kind, sets) | st.none() for kind in KINDS},
)


def _pipeline(home: Path) -> hy.Pipeline:
    pipeline = hy.Pipeline("copies", home, buckets=2)
    for name in ("first", "second", "third"):
        pipeline.table(name, key=["region", "number"], **{kind.lower(): kind for kind in KINDS})
    return pipeline


@settings(max_examples=examples(7), deadline=None)
@given(st.lists(rows, min_size=1, max_size=8))
def test_a_table_that_is_exported_and_loaded_again_is_the_same(given_rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as room:
        pipeline = _pipeline(Path(room) / "home")
        first, second, third = (pipeline.table(name) for name in ("first", "second", "third"))
        assert first.load(given_rows).refused == 0
        wanted = list(first.rows())
        declaration: TableDeclaration = first.declaration
        file = Path(room) / "rows.ndjson"
        write_table(declaration, None, [wanted], file, lambda count: None)
        assert second.load(file).refused == 0
        assert list(second.rows()) == wanted
        assert third.load(wanted).refused == 0
        assert list(third.rows()) == wanted
        for each in (first, second, third):
            each.close()


def test_parquet_says_which_texts_are_json(tmp_path: Path) -> None:
    pipeline = hy.Pipeline("copies", tmp_path / "home", buckets=2)
    kinds = {"set": "ORSet", "last": "Register", "map": "MapRegister", "sets": "MapSet", "word": "Register"}
    rows = [
        {"key": 1, "set": [1, [2, "x"], None], "last": {"a": Decimal("0.1")}, "map": {"a": 1},
         "sets": {"b": [True, 2]}, "word": "7"},
        {"key": 2.5, "set": [], "last": None, "map": {}, "sets": {}, "word": "null"},
    ]  # fmt: skip
    first, second = (pipeline.table(name, key="key", **kinds) for name in ("first", "second"))
    first.load(rows)
    wanted = list(first.rows())
    file = tmp_path / "rows.parquet"
    assert write_table(first.declaration, None, [wanted], file).mixed == []
    assert second.load(file).refused == 0
    assert list(second.rows()) == wanted
    mixed = write_table(first.declaration, None, [[{**wanted[0], "last": "text"}, wanted[0]]], file).mixed
    assert mixed == ["last"]
