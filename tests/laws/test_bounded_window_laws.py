"""Laws of windows with bounds: each is what its definition says, however the instants are cut and whoever goes on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from test_window_leaf_laws import BEGIN, CLOCKS, LAST, SCHEMA, SEEDS, Record, batches, streams

from hayase.core.times import END
from hayase.lifetimes.leaves import leaf
from hayase.lifetimes.plans import Bounded, Call, Session, Shared, SharedWindow, Windowed
from hayase.lifetimes.shared_windows import SharedOperator
from interval_relations import Driver, Interval, assert_same, intervals, spans

KEEPS = st.sampled_from([1, 3, 7, END])
EARLIES = st.none() | st.integers(1, 5)


def schema_of(window: Bounded | Session) -> pa.Schema:
    kinds = [pa.int64(), pa.int64(), pa.bool_()]
    return pa.schema([*SCHEMA, *zip(window.columns, kinds)])


def columns(early: int | None) -> tuple[str, ...]:
    return ("ws", "we") if early is None else ("ws", "we", "final")


def alive(
    window: Bounded | Session, each: Record, start: int, end: int, begins: int, until: int, final: bool
) -> Interval:
    row: dict[str, Any] = {**each.row, "ws": begins, "we": end}
    if window.early is not None:
        row["final"] = final
    return Interval(row, start, None if until >= END else until)


def bounded(window: Bounded, records: Sequence[Record]) -> list[Interval]:
    """Every record in every window that contains it, by definition."""
    result = []
    for each in records:
        if window.kind == "cumulate":
            grid = [at for at in range(BEGIN - 40, LAST + 40) if (at - window.offset) % window.length == 0]
            lengths = range(window.step, window.length + 1, window.step)
            pairs = [(begins, begins + length) for begins in grid for length in lengths]
        else:
            grid = [at for at in range(BEGIN - 40, LAST + 40) if (at - window.offset) % window.step == 0]
            pairs = [(begins, begins + window.length) for begins in grid]
        for begins, end in pairs:
            if begins <= each.time < end:
                result.append(alive(window, each, end, end, begins, end + window.keep, True))
                early = next((m for m in range(each.time + 1, end) if window.early and m % window.early == 0), None)
                if early is not None:
                    result.append(alive(window, each, early, end, begins, end, False))
    return result


def sessions(window: Session, records: Sequence[Record], passed: bool) -> list[Interval]:
    """The members of every session, by definition."""
    groups: dict[str | None, list[list[Record]]] = defaultdict(list)
    for each in records:
        mine = groups[each.key if window.keys else None]
        if not mine or each.time - mine[-1][-1].time >= window.gap:
            mine.append([])
        mine[-1].append(each)
    result = []
    for members in (session for group in groups.values() for session in group):
        begins, end = members[0].time, members[-1].time + window.gap
        own = [each for each in members if each.let or not passed]
        result += [alive(window, each, end, end, begins, end + window.keep, True) for each in own]
        for at in range(begins + 1, end):
            if window.early is not None and at % window.early == 0:
                far = max(each.time for each in members if each.time < at) + window.gap
                until = min(at + window.early, far)
                result += [alive(window, each, at, far, begins, until, False) for each in own if each.time < at]
    return result


def check(
    node: Windowed, records: Sequence[Record], clocks: Sequence[int], seed: int | None, wanted: list[Interval]
) -> Driver:
    driver, told = Driver(lambda: leaf(node), seed), spans(clocks, BEGIN)
    deltas = [driver.advance(batches(records, span), span) for span in told]
    assert_same(intervals(deltas, told), wanted, clocks[-1])
    return driver


@given(
    streams(), st.sampled_from(["tumble", "hop", "cumulate"]), st.integers(1, 4), st.integers(1, 9), st.integers(0, 5),
    KEEPS, EARLIES, CLOCKS, SEEDS,
)  # fmt: skip
def test_tumbling_hopping_and_cumulating_windows(
    records: list[Record], kind: Literal["tumble", "hop", "cumulate"], step: int, length: int, offset: int, keep: int,
    early: int | None, clocks: list[int], seed: int | None,
) -> None:  # fmt: skip
    """Also hops that are longer than the window: a record between two windows is in none."""
    length = {"tumble": step, "hop": length, "cumulate": step * min(length, 4)}[kind]
    window = Bounded(kind, length, step, offset, keep, early, columns(early))
    driver = check(Windowed(0, window, schema_of(window)), records, clocks, seed, bounded(window, records))
    last = [max((end for _, _, end in ends(window, each)), default=BEGIN) for each in records]
    assert driver.operator.size("waiting") == sum(end >= LAST for end in last)


def ends(window: Bounded, each: Record) -> list[tuple[int, int, int]]:
    found = bounded(Bounded(window.kind, window.length, window.step, window.offset, 1, None, ("ws", "we")), [each])
    return [(each.time, found_one.row["ws"], found_one.row["we"]) for found_one in found]


@given(
    streams(), st.booleans(), st.sampled_from([None, "let"]), st.integers(1, 6), KEEPS, EARLIES, CLOCKS, SEEDS,
)  # fmt: skip
def test_sessions(
    records: list[Record], keyed: bool, where: str | None, gap: int, keep: int, early: int | None, clocks: list[int],
    seed: int | None,
) -> None:  # fmt: skip
    window = Session(("key",) if keyed else (), gap, keep, early, columns(early))
    wanted = sessions(window, records, where is not None)
    driver = check(Windowed(0, window, schema_of(window), where), records, clocks, seed, wanted)
    last: dict[str | None, int] = {}
    for each in records:
        last[each.key if keyed else None] = each.time
    assert driver.operator.size("sessions") == sum(time + gap >= LAST for time in last.values())


@given(streams(), st.integers(1, 6), CLOCKS, SEEDS)
def test_an_ended_session_keeps_no_state(records: list[Record], gap: int, clocks: list[int], seed: int | None) -> None:
    window = Session(("key",), gap, 1, None, ("ws", "we"))
    node = Windowed(0, window, schema_of(window))
    driver = check(node, records, [*clocks, LAST + gap + 1], seed, sessions(window, records, False))
    assert driver.operator.size("sessions") == driver.operator.size("waiting") == 0


CALLS = (Call("count", None), Call("max", "value"), Call("last", "value"))


def grouped(members: Sequence[Interval], tag: int) -> list[Interval]:
    """One row for each window and group of the rows that are final, in the order in which they came."""
    groups: dict[tuple[Any, ...], list[Interval]] = defaultdict(list)
    for each in members:
        groups[each.row["key"], each.row["ws"], each.row["we"]].append(each)
    result = []
    for (key, begins, end), rows in groups.items():
        found = [each.row["value"] for each in rows]
        row = {
            "window": tag,
            "key": key,
            "ws": begins,
            "we": end,
            "n": len(found),
            "most": max(found),
            "last": found[-1],
        }
        result.append(Interval(row, rows[0].start, rows[0].end))
    return result


def shared(windows: Sequence[SharedWindow], where: str | None = None) -> Shared:
    names = ["window", "key", "ws", "we", "n", "most", "last"]
    schema = pa.schema([(name, pa.string() if name == "key" else pa.int64()) for name in names])
    return Shared(0, tuple(windows), ("key",), CALLS, schema, where, None, ("ws", "we"))


def check_shared(
    node: Shared, records: Sequence[Record], clocks: Sequence[int], seed: int | None, wanted: list[Interval]
) -> Driver:
    driver, told = Driver(lambda: SharedOperator(node), seed), spans(clocks, BEGIN)
    deltas = [driver.advance(batches(records, span), span) for span in told]
    found = intervals(deltas, told)
    assert_same(found, wanted, clocks[-1])
    assert len(found) == len([each for each in wanted if each.start < clocks[-1]])
    return driver


@given(
    streams(), st.booleans(), st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(0, 5)), min_size=1, max_size=3),
    KEEPS, CLOCKS, SEEDS,
)  # fmt: skip
def test_aggregates_of_hopping_and_cumulating_windows(
    records: list[Record], grows: bool, shapes: list[tuple[int, int, int]], keep: int, clocks: list[int], seed: int | None
) -> None:  # fmt: skip
    """Several windows in one pass, each what it is alone; a row for every window that holds records."""
    windows, wanted = [], []
    for tag, (step, length, offset) in enumerate(shapes):
        length = step * min(length, 4) if grows else length
        kind: Literal["hop", "cumulate"] = "cumulate" if grows else "hop"
        windows.append(SharedWindow(kind, length, step, tag, offset, keep))
        wanted += grouped(bounded(Bounded(kind, length, step, offset, keep, None, ("ws", "we")), records), tag)
    check_shared(shared(windows), records, clocks, seed, wanted)


@given(
    streams(),
    st.sampled_from([None, "let"]),
    st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True),
    KEEPS,
    CLOCKS,
    SEEDS,
)
def test_aggregates_of_sessions(
    records: list[Record], where: str | None, gaps: list[int], keep: int, clocks: list[int], seed: int | None
) -> None:
    windows, wanted = [], []
    for tag, gap in enumerate(gaps):
        windows.append(SharedWindow("session", gap, gap, tag, 0, keep))
        wanted += grouped(sessions(Session(("key",), gap, keep, None, ("ws", "we")), records, where is not None), tag)
    driver = check_shared(shared(windows, where), records, [*clocks, LAST + 7], seed, wanted)
    assert driver.operator.size("sessions") == 0
