"""Laws of the leaves: each window is what its definition says, however the instants are cut and whoever goes on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from hayase.core.stages import OFFSET, TIME
from hayase.lifetimes.leaves import leaf
from hayase.lifetimes.plans import (
    ADDED,
    ROW_ID,
    VALID_FROM,
    VALID_TO,
    Changes,
    Lifetimes,
    Order,
    Partition,
    Range,
    Rows,
    Unbounded,
    Windowed,
)
from hayase.lifetimes.relations import Delta, Span
from interval_relations import Driver, Interval, Told, assert_same, clock_lists, intervals, spans, told_relations

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64())])
INPUT = pa.schema([*SCHEMA, ("let", pa.bool_()), (TIME, pa.int64()), (OFFSET, pa.int64())])
BEGIN, LAST = -15, 30
CLOCKS = (
    st.lists(st.integers(BEGIN, LAST), max_size=3) | st.lists(st.integers(BEGIN, LAST), min_size=8, max_size=14)
).map(lambda clocks: [*sorted(clocks), LAST])
SEEDS = st.none() | st.integers(0, 1000)


class Record(NamedTuple):
    """A record of a stream; `let` says whether a filter lets it through."""

    time: int
    offset: int
    key: str | None
    value: int
    let: bool

    @property
    def row(self) -> dict[str, Any]:
        return {"key": self.key, "value": self.value}


@st.composite
def streams(draw: st.DrawFn) -> list[Record]:
    """Records in (time, offset) order; the log need not be in the order of time."""
    instants = st.integers(BEGIN, LAST - 1) | st.integers(0, 3)
    times = draw(st.lists(instants, max_size=8) | st.lists(instants, min_size=20, max_size=35))
    keys, lets = st.sampled_from(["a", "b", None]), st.booleans()
    records = [
        Record(time, offset, draw(keys), draw(st.integers(0, 2)), draw(lets)) for offset, time in enumerate(times)
    ]
    return sorted(records, key=lambda each: (each.time, each.offset))


def batches(records: Sequence[Record], span: Span) -> list[pa.RecordBatch]:
    """Input 0: all; input 1: time and offset of all; input 2: those that are let through."""
    now = [each for each in records if span.since <= each.time < span.clock]
    whole, some = (
        pa.RecordBatch.from_pylist(
            [{**each.row, "let": each.let, TIME: each.time, OFFSET: each.offset} for each in part], schema=INPUT
        )
        for part in (now, [each for each in now if each.let])
    )
    return [whole, whole.select(["value", TIME, OFFSET]), some]


def run(
    node: Windowed, records: Sequence[Record], clocks: Sequence[int], seed: int | None, strict: bool = True
) -> Driver:
    """Drive a leaf and compare it with `defined` at every instant."""
    driver = Driver(lambda: leaf(node), seed)
    told = spans(clocks, BEGIN)
    deltas = [driver.advance(batches(records, span), span) for span in told]
    assert all(delta.closed.min(initial=0) >= 0 for delta in deltas)
    found = intervals(deltas, told, strict)
    assert_same(found, defined(node, records), LAST)
    assert len(found) == len([each for each in defined(node, records) if each.start < LAST])
    return driver


def defined(node: Windowed, records: Sequence[Record]) -> list[Interval]:
    """The window by definition, without ghosts."""
    mine = [each for each in records if each.let] if node.input == 2 or node.where else list(records)
    window = node.window
    for entry in window.order if isinstance(window, Rows | Partition) else ():
        sign = -1 if entry.descending else 1
        records = sorted(records, key=lambda each: (each.time, sign * each.value, each.offset))
    match window:
        case Unbounded():
            result = [Interval(each.row, each.time, None) for each in mine]
        case Range(length, None, grain):
            result = [Interval(each.row, each.time, up(each.time + max(length, grain), grain)) for each in mine]
        case Range(length, slide, grain):
            assert slide
            result = [
                Interval(each.row, up(up(each.time, slide), grain), up(up(each.time + length, slide), grain))
                for each in mine
            ]
        case Rows(count, _, slide):
            result = by_rows(records, mine, count, slide)
        case Partition(_, count, slide):
            groups = defaultdict(list)
            for each in records:
                groups[each.key].append(each)
            result = [
                found
                for group in groups.values()
                for found in by_rows(group, [each for each in group if each in mine], count, slide)
            ]
    return [each for each in result if each.end is None or each.start < each.end]


def by_rows(records: Sequence[Record], mine: Sequence[Record], count: int, slide: int) -> list[Interval]:
    """After every `slide`-th record the window is the last `count` of them."""
    result = []
    for number, each in enumerate(records):
        moves = range(slide - 1, len(records), slide)
        inside = [at for at in moves if number <= at < number + count]
        after = [at for at in moves if at >= number + count]
        if each in mine and inside:
            result.append(Interval(each.row, records[inside[0]].time, records[after[0]].time if after else None))
    return result


def up(time: int, multiple: int) -> int:
    while time % multiple:
        time += 1
    return time


@given(streams(), st.integers(0, 12), st.sampled_from([1, 5]), CLOCKS, SEEDS)
def test_time_windows(records: list[Record], length: int, grain: int, clocks: list[int], seed: int | None) -> None:
    assert not run(Windowed(0, Range(length, None, grain), SCHEMA), records, clocks, seed).state


@given(streams(), st.integers(0, 12), st.integers(1, 9), st.sampled_from([1, 4]), CLOCKS, SEEDS)
def test_sliding_time_windows(
    records: list[Record], length: int, slide: int, grain: int, clocks: list[int], seed: int | None
) -> None:
    run(Windowed(0, Range(length, slide, grain), SCHEMA), records, clocks, seed)


@given(streams(), CLOCKS)
def test_unbounded_windows(records: list[Record], clocks: list[int]) -> None:
    assert not run(Windowed(0, Unbounded(), SCHEMA), records, clocks, None).state


ORDERS = st.sampled_from([(), (Order("value"),), (Order("value", descending=True),)])


@given(streams(), st.sampled_from([0, 2]), st.integers(1, 6), st.integers(1, 4), ORDERS, CLOCKS, SEEDS)
def test_row_windows(
    records: list[Record],
    number: int,
    count: int,
    slide: int,
    order: tuple[Order, ...],
    clocks: list[int],
    seed: int | None,
) -> None:
    driver = run(Windowed(number, Rows(count, 1, slide, order), SCHEMA), records, clocks, seed, strict=False)
    assert driver.operator.size("waiting") < slide


@given(streams(), st.sampled_from([None, "let"]), st.integers(1, 5), st.integers(1, 4), ORDERS, CLOCKS, SEEDS)
def test_partitioned_windows(
    records: list[Record],
    where: str | None,
    count: int,
    slide: int,
    order: tuple[Order, ...],
    clocks: list[int],
    seed: int | None,
) -> None:
    driver = run(Windowed(0, Partition(("key",), count, slide, order), SCHEMA, where), records, clocks, seed)
    groups = [[each for each in records if each.key == key] for key in ("a", "b", None)]
    moved = [len(group) // slide * slide for group in groups]
    waiting = [each for group, at in zip(groups, moved) for each in group[at:] if each.let or not where]
    assert driver.operator.size("waiting") == len(waiting)
    held = [len(group) - max(0, at - count) for group, at in zip(groups, moved)]
    assert driver.operator.size("members") == sum(held)


@given(streams(), st.integers(1, 5), st.integers(1, 4), CLOCKS, SEEDS)
def test_windows_without_columns(
    records: list[Record], count: int, slide: int, clocks: list[int], seed: int | None
) -> None:
    nothing = pa.schema([])
    windows = (Range(count), Range(count, slide), Rows(count, 1, slide), Partition(("key",), count, slide))
    for window in windows:
        driver, told = Driver(lambda window=window: leaf(Windowed(0, window, nothing)), seed), spans(clocks, BEGIN)
        deltas = [driver.advance(batches(records, span), span) for span in told]
        wanted = defined(Windowed(0, window, SCHEMA), records)
        bare = [Interval({}, each.start, each.end) for each in wanted]
        assert_same(intervals(deltas, told, strict=False), bare, LAST)


def restarted(
    build: Callable[[], Any], inputs: Callable[[Span], pa.RecordBatch], told: list[Span], seed: int | None
) -> tuple[list[Delta], Driver]:
    driver = Driver(build, seed)
    return [driver.advance([inputs(span)], span) for span in told], driver


@given(told_relations(st.fixed_dictionaries({"value": st.none() | st.integers(0, 2)}), most=20), clock_lists(), SEEDS)
def test_lifetimes(relation: list[Told], clocks: list[int], seed: int | None) -> None:
    schema = pa.schema([("value", pa.int64())])
    rows = []
    for number, each in enumerate(relation):
        seen = each.end if each.known_early else None
        rows.append({**each.row, ROW_ID: number, VALID_FROM: each.start, VALID_TO: seen, TIME: each.start})
        if each.end is not None and not each.known_early:
            rows.append({**rows[-1], VALID_TO: each.end, TIME: each.end})
    rows.sort(key=lambda row: row[TIME])
    full = pa.schema([*schema, *((name, pa.int64()) for name in (ROW_ID, VALID_FROM, VALID_TO, TIME, OFFSET))])

    def inputs(span: Span) -> pa.RecordBatch:
        now = [{**row, OFFSET: at} for at, row in enumerate(rows) if span.since <= row[TIME] < span.clock]
        return pa.RecordBatch.from_pylist(now, schema=full)

    told = spans(clocks, 0)
    deltas, driver = restarted(lambda: leaf(Lifetimes(0, schema)), inputs, told, seed)
    found = intervals(deltas, told)
    assert sorted(map(repr, found)) == sorted(repr(Interval(each.row, each.start, each.end)) for each in relation)
    assert not driver.state


CHANGED = st.tuples(st.integers(0, 25), st.booleans(), st.none() | st.integers(0, 2), st.sampled_from([0.0, -0.0, 1.5]))


@given(st.lists(CHANGED, max_size=8) | st.lists(CHANGED, min_size=25, max_size=50), clock_lists(), SEEDS)
def test_changes(changes: list[tuple[int, bool, int | None, float]], clocks: list[int], seed: int | None) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.float64())])
    full = pa.schema([*schema, (ADDED, pa.bool_()), (TIME, pa.int64()), (OFFSET, pa.int64())])
    ordered = sorted(enumerate(changes), key=lambda each: (each[1][0], each[0]))
    rows = [{"a": a, "b": b, ADDED: added, TIME: time, OFFSET: at} for at, (time, added, a, b) in ordered]
    wanted: list[Interval] = []
    alive: list[dict[str, Any]] = []
    orphans = []
    for row in rows:
        if row[ADDED]:
            alive.append(row)
            continue
        found = next((each for each in alive if (each["a"], each["b"]) == (row["a"], row["b"])), None)
        if found is None:
            orphans.append(row[OFFSET])
        else:
            alive.remove(found)
            wanted.append(Interval({"a": found["a"], "b": found["b"]}, found[TIME], row[TIME]))
    wanted += [Interval({"a": each["a"], "b": each["b"]}, each[TIME], None) for each in alive]
    wanted = [each for each in wanted if each.start != each.end]

    def inputs(span: Span) -> pa.RecordBatch:
        now = [row for row in rows if span.since <= row[TIME] < span.clock]
        return pa.RecordBatch.from_pylist(now, schema=full)

    told = spans(clocks, 0)
    deltas, driver = restarted(lambda: leaf(Changes(0, schema)), inputs, told, seed)
    assert sorted(map(repr, intervals(deltas, told))) == sorted(map(repr, wanted))
    assert [number for each in driver.spoiled for number in np.asarray(each.ids).tolist()] == orphans
