"""Shared windows against `core.algebra`: every aggregate, any set of windows, any batches, with keys and without."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchmarks import window_baselines
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws.test_folds_laws import CASES, SKETCHED, column, judged, largest_of, same, tuples

from effort import examples
from hayase.core.algebra import AGGREGATES, Aggregate, AggregateOverflow
from hayase.windows.shared import SharedWindows, Window

LENGTHS = (
    st.integers(1, 20) | st.integers(1, 80) | st.sampled_from([15, 16, 17, 31, 32, 33, 255, 256, 257, 272, 273, 600])
)
SLIDES = st.sampled_from([1, 1, 2, 2, 3, 4, 5, 16, 31, 32, 33, 100])
WINDOWS = st.lists(st.builds(Window, LENGTHS, SLIDES), min_size=1, max_size=4, unique=True)


def pushed(shared: SharedWindows, columns: dict[str, pa.Array], keys: Any, cuts: list[int], random: Any) -> list[Any]:
    """The answers of every window, all pushes together: at, key, value."""
    rows = len(next(iter(columns.values())))
    made: list[list[Any]] = [[] for _ in shared.windows]
    done = 0
    for cut in [*cuts, rows]:
        part = {name: each.slice(done, cut - done) for name, each in columns.items()}
        answers = shared.push(part, keys=None if keys is None else keys[done:cut])
        for into, each in zip(made, answers):
            assert len(each) == len(each["it"])
            lost = set(each.overflowed["it"].tolist())
            values = [AggregateOverflow if row in lost else value for row, value in enumerate(each["it"].to_pylist())]
            into += zip(each.at.tolist(), values)
        if random.random() < 0.3:
            shared = SharedWindows.from_state(shared.state())
        done = cut
    return made


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].name}-{'-'.join(map(str, case[1]))}")
@settings(max_examples=examples(5))
@given(data=st.data())
def test_shared_windows_equal_recomputation(case: tuple[Aggregate, Any], data: st.DataObject) -> None:
    aggregate, kinds = case
    most = 50 if aggregate.name in SKETCHED else 700
    mild = aggregate.name[:3] in ("var", "std") or data.draw(st.booleans())
    (lists, length), random = data.draw(tuples(kinds, most, mild))
    windows = data.draw(WINDOWS)
    keys = random.integers(0, 4, length) if data.draw(st.booleans()) else None
    names = [f"c{number}" for number in range(len(kinds))]
    columns = {name: column(values, kind) for name, values, kind in zip(names, lists, kinds)}
    calls = {"it": (aggregate, tuple(names))}
    columns = columns or {"value": pa.array(np.zeros(length))}
    cuts = np.sort(random.integers(0, length + 1, random.integers(0, 7))).tolist()
    made = pushed(SharedWindows(windows, calls), columns, keys, cuts, random)
    alone = pushed(SharedWindows([windows[-1]], calls), columns, keys, [], random)
    assert repr(alone[0]) == repr(made[-1])  # bit for bit: neither batches nor other windows matter
    places = np.arange(length)
    if keys is not None:
        places = np.array([np.count_nonzero(keys[:row] == keys[row]) for row in range(length)], np.int64)
    for window, answers in zip(windows, made):
        assert [at for at, _ in answers] == np.flatnonzero((places + 1) % window.slide == 0).tolist()
        for number in {*random.integers(0, len(answers), 12), len(answers) - 1} if answers else ():
            at, value = answers[number]
            before = np.arange(at + 1) if keys is None else np.flatnonzero(keys[: at + 1] == keys[at])
            wanted = judged(aggregate, lists, before[-window.length :])
            if wanted is AggregateOverflow or value is AggregateOverflow:
                assert wanted is value
            else:
                kind = aggregate.result(kinds)
                assert same(value, pa.scalar(wanted, kind).as_py(), aggregate, largest_of(lists)), (value, wanted)


@settings(max_examples=examples(30))
@given(WINDOWS, st.integers(0, 3000), st.integers(0, 2**32), st.sampled_from(["sum", "max", "min"]))
def test_baselines_agree(windows: list[Window], length: int, seed: int, name: str) -> None:
    random = np.random.default_rng(seed)
    values = random.integers(-50, 50, length).astype(np.float64)
    shared = SharedWindows(windows, [name])
    cuts = np.sort(random.integers(0, length + 1, 3))
    pieces = [shared.push(part) for part in np.split(values, cuts)]
    for window in windows:
        answers = np.concatenate([each[window.length, window.slide][name].to_numpy() for each in pieces])
        for baseline in window_baselines.BASELINES.values():
            assert baseline([window], name, values)[0].tolist() == answers.tolist()


@settings(max_examples=examples(20))
@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(1, 4), st.text("abc", max_size=40))
def test_the_papers_arrays(lengths: list[int], slide: int, text: str) -> None:
    """The paper's own algorithm, for a function that does not commute."""
    paper = window_baselines.PaperWindows(lengths, lambda older, newer: older + newer)
    for count, value in enumerate(text, 1):
        paper.push(value)
        for length in lengths:
            assert paper.answer(length) == text[max(0, count - length) : count]


def test_long_windows_over_many_levels() -> None:
    random = np.random.default_rng(1)
    values = random.integers(-1000, 1000, 300_000)
    windows = [(1, 1), (7, 3), (4095, 2), (65_537, 1), (100_000, 1000), (250_000, 7)]
    shared = SharedWindows(windows, ["sum", "max"])
    pieces = [shared.push(part) for part in np.split(values, [1, 17, 50_000, 50_001, 200_000])]
    totals = np.concatenate([[0], np.cumsum(values)])
    for length, slide in windows:
        at = np.concatenate([each[length, slide].at for each in pieces])
        assert at.tolist() == list(range(slide - 1, len(values), slide))
        sums = np.concatenate([each[length, slide]["sum"].to_numpy() for each in pieces])
        assert np.array_equal(sums, totals[at + 1] - totals[np.maximum(at + 1 - length, 0)])
        greatest = np.concatenate([each[length, slide]["max"].to_numpy() for each in pieces])
        for number in random.integers(0, len(at), 50):
            assert greatest[number] == values[max(0, at[number] + 1 - length) : at[number] + 1].max()


@pytest.mark.parametrize("keyed", [False, True])
def test_states_can_be_pickled(keyed: bool) -> None:
    aggregates = {name: (name, "x") for name in ("sum", "min", "var_samp", "first", "approx_count_distinct")}
    shared = SharedWindows([(3, 1), (40, 2)], aggregates)
    first = {"x": pa.array([1, None, 3, 4], pa.int64())}
    shared.push(first, keys=["a", "b", "a", "a"] if keyed else None)
    again = SharedWindows.from_state(pickle.loads(pickle.dumps(shared.state())))
    for each in (shared, again):
        each.push(first, keys=["b", "b", "c", "a"] if keyed else None)
    one, other = (each.push(first, keys=["a", "b", "c", "d"] if keyed else None) for each in (shared, again))
    assert [window.values for window in one] == [window.values for window in other]
    assert AGGREGATES["sum"].of([1, None, 3]) == 4
