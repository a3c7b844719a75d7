"""Laws of recomputed aggregates: at every instant the functions of the live rows, for any cut into steps and restores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.interval_relations import Driver, Interval, Told, clock_lists, cut, instants, intervals, told_relations

from effort import examples
from hayase.core.times import BEGINNING
from hayase.lifetimes import recomputed_aggregates
from hayase.lifetimes.plans import BagCall, Call, Recomputed, Unbounded, Windowed
from hayase.lifetimes.recomputed_aggregates import RecomputedOperator

CHILD = pa.schema({"k": pa.string(), "i": pa.int64(), "x": pa.float64(), "s": pa.string()})
Row = dict[str, Any]
rows = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", "", None]),
        "i": st.none() | st.integers(-3, 3) | st.sampled_from([2**62, 2**63 - 1]),
        "x": st.none() | st.sampled_from([0.0, 0.5, -2.25, math.nan, math.inf]),
        "s": st.none() | st.sampled_from(["", "a", "ab", "longer than eight bytes"]),
    }
)
relations = told_relations(rows, most=14)


def there(live: Sequence[Row], name: str) -> list[Any]:
    return [row[name] for row in live if row[name] is not None]


def in_order(values: Sequence[Any]) -> list[Any]:
    """Values from the least to the greatest; NaN is the greatest number, and nulls are last."""
    return sorted(
        values, key=lambda each: (each is None, isinstance(each, float) and math.isnan(each), each or type(each)())
    )


def listed(live: Sequence[Row]) -> list[Any] | None:
    return in_order([row["s"] for row in live]) or None


def middle(live: Sequence[Row]) -> Any:
    values = in_order(there(live, "i"))
    return values[(len(values) - 1) // 2] if values else None


def most_frequent(live: Sequence[Row]) -> Any:
    counts = Counter(there(live, "s"))
    return min(counts, key=lambda value: (-counts[value], value)) if counts else None


def exclusive_or(live: Sequence[Row]) -> int | None:
    values = there(live, "i")
    total = 0
    for value in values:
        total ^= value
    return total if values else None


def sketch(live: Sequence[Row]) -> int:
    return len(set(there(live, "s")))


def joined(live: Sequence[Row]) -> str | None:
    return ",".join(in_order(there(live, "s"))) if there(live, "s") else None


BAGS: dict[str, tuple[BagCall, pa.DataType, Callable[[Sequence[Row]], Any]]] = {
    "list": (BagCall("list", 'list("s" ORDER BY "s" NULLS LAST)', ("s",)), pa.list_(pa.string()), listed),
    "disc": (BagCall("disc", 'quantile_disc("i", 0.5)', ("i",)), pa.int64(), middle),
    "mode": (BagCall("mode", 'mode("s" ORDER BY "s")', ("s",)), pa.string(), most_frequent),
    "xor": (BagCall("xor", 'bit_xor("i")', ("i",)), pa.int64(), exclusive_or),
    "join": (BagCall("join", "string_agg(\"s\", ',' ORDER BY \"s\")", ("s",)), pa.string(), joined),
    "many": (
        BagCall("many", 'list({\'v0\': "s"} ORDER BY "s")', ("s",), fold="approx_count_distinct"), pa.int64(), sketch,
    ),
    "floats": (
        BagCall("floats", 'list("x" ORDER BY "x") FILTER ("x" IS NOT NULL)', ("x",)), pa.list_(pa.float64()),
        lambda live: in_order(there(live, "x")) or None,
    ),
}  # fmt: skip
KEPT = [Call("count", None), Call("max", "x"), Call("sum", "i", text="sum(i)")]


@pytest.fixture(autouse=True, scope="module")
def _small_limits() -> Any:
    """A step is evaluated in several chunks, and groups without rows are dropped at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recomputed_aggregates, "MOST_ROWS", 30)
        patch.setattr(recomputed_aggregates, "SPARE_GROUPS", 0)
        yield


def node(keys: Sequence[str], names: Sequence[str], kept: Sequence[Call]) -> Recomputed:
    kinds = {"count": pa.int64(), "max": pa.float64(), "sum": pa.int64()}
    fields = [(name, CHILD.field(name).type) for name in keys]
    fields += [(name, BAGS[name][1]) for name in names[:1]]  # maintained columns may stand between recomputed ones
    fields += [(call.function, kinds[call.function]) for call in kept]
    fields += [(name, BAGS[name][1]) for name in names[1:]]
    bags = tuple(BAGS[name][0] for name in names)
    return Recomputed(Windowed(0, Unbounded(), CHILD), tuple(keys), tuple(kept), bags, pa.schema(fields))


def run(
    plan: Recomputed, relation: list[Told], clocks: list[int], seed: int | None, began: int | None = None
) -> tuple[list[Interval], Driver]:
    steps = cut(relation, CHILD, clocks, since=0)
    spans = [replace(span, began=BEGINNING if began is None or began >= span.clock else began) for span, _ in steps]
    driver = Driver(lambda: RecomputedOperator(plan, endless=False), seed)
    deltas = [driver.advance([delta], span) for span, (_, delta) in zip(spans, steps)]
    return intervals(deltas, spans), driver


def refused(driver: Driver) -> set[int]:
    return {number for spoiled in driver.spoiled if spoiled.ids is not None for number in spoiled.ids.tolist()}


def as_text(found: Sequence[Interval]) -> list[str]:
    return sorted(map(repr, found))


def check(
    found: list[Interval], relation: list[Told], plan: Recomputed, before: int, lost: set[int], began: int | None = None
) -> None:
    for instant in instants(found, relation):
        if instant >= before:
            continue
        live: dict[Any, list[Row]] = {}
        if not plan.keys and began is not None and instant >= began:
            live[()] = []
        for at, told in enumerate(relation):
            if at not in lost and told.start <= instant and (told.end is None or instant < told.end):
                live.setdefault(tuple(told.row[name] for name in plan.keys), []).append(told.row)
        alive = [each.row for each in found if each.start <= instant and (each.end is None or instant < each.end)]
        assert sorted(map(repr, (tuple(row[name] for name in plan.keys) for row in alive))) == sorted(map(repr, live))
        for row in alive:
            own = live[tuple(row[name] for name in plan.keys)]
            for bag in plan.bags:
                assert repr(row[bag.name]) == repr(BAGS[bag.name][2](own)), f"{bag.name} at {instant} over {own}"
            assert row.get("count", len(own)) == len(own)


def no_splits(found: list[Interval], plan: Recomputed) -> None:
    """A row that ends and one of its group that begins there are not the same."""
    key = lambda each: repr([each.row[name] for name in plan.keys])  # noqa: E731
    ended = {(key(each), each.end): repr(each.row) for each in found}
    assert all(ended.get((key(each), each.start)) != repr(each.row) for each in found)


names = st.lists(st.sampled_from(sorted(BAGS)), min_size=1, max_size=4, unique=True)
kept_calls = st.lists(st.sampled_from(KEPT), max_size=3, unique=True)


@given(relations, clock_lists(), st.integers(0, 1000), names, kept_calls)
@settings(max_examples=examples(30))
def test_rows_are_those_recomputed_at_every_instant(
    relation: list[Told], clocks: list[int], seed: int, bags: list[str], kept: list[Call]
) -> None:
    plan = node(("k",), bags, kept)
    whole, driver = run(plan, relation, clocks[-1:], None)
    lost = refused(driver)
    assert lost == set() or any(call.function == "sum" for call in kept)
    check(whole, relation, plan, clocks[-1], lost)
    no_splits(whole, plan)
    cut_up, driver = run(plan, relation, clocks, seed)
    assert as_text(cut_up) == as_text(whole)
    assert refused(driver) == lost


@given(relations, clock_lists(), st.integers(0, 1000), names, kept_calls, st.integers(0, 5))
@settings(max_examples=examples(20))
def test_without_keys_there_is_a_row_from_the_first_record_on(
    relation: list[Told], clocks: list[int], seed: int, bags: list[str], kept: list[Call], earlier: int
) -> None:
    plan = node((), bags, kept)
    first = min((told.start for told in relation), default=None)
    began = None if first is None else max(first - earlier, 0)
    whole, driver = run(plan, relation, clocks[-1:], None, began)
    check(whole, relation, plan, clocks[-1], refused(driver), began)
    no_splits(whole, plan)
    cut_up, _ = run(plan, relation, clocks, seed, began)
    assert as_text(cut_up) == as_text(whole)
