"""Laws of shared windows: what an aggregate over each window alone gives, however it is cut, restored and shared."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.core.algebra import Aggregate as Algebra
from hayase.core.stages import OFFSET, TIME, Tuples
from hayase.core.times import BEGINNING
from hayase.lifetimes.aggregates import AggregateOperator
from hayase.lifetimes.leaves import leaf
from hayase.lifetimes.plans import Aggregate, Call, Partition, Range, Rows, Shared, SharedWindow, Windowed
from hayase.lifetimes.relations import Delta, Span, Step
from hayase.lifetimes.shared_windows import SharedOperator, SharedState
from interval_relations import Driver, Interval, instants, intervals, snapshot, spans

FIELDS = pa.schema(
    {"k": pa.string(), "g": pa.float64(), "i": pa.int32(), "x": pa.float64(), "s": pa.string(), "b": pa.bool_()}
)
INPUT = pa.schema([*FIELDS, ("let", pa.bool_()), (TIME, pa.int64()), (OFFSET, pa.int64())])
BEGIN, LAST = -15, 40
PLAIN = [
    ("count", None), ("count", "i"), ("sum", "i"), ("avg", "i"), ("min", "i"), ("max", "i"), ("sum", "x"), ("avg", "x"),
    ("min", "x"), ("max", "x"), ("var_pop", "x"), ("stddev_samp", "i"), ("min", "s"), ("max", "s"), ("count", "s"),
    ("max", "b"),
]  # fmt: skip
CALLS = [Call(function, argument, text=f"{function}({argument})") for function, argument in PLAIN]
ORDERED = [Call(name, argument, text=name) for name in ("first", "last") for argument in ("i", "x", "s")]
ORDERED += [Call(name, "s", text=name, second=by) for name in ("arg_min", "arg_max") for by in ("i", "x")]
ORDERED += [Call(name, "b", text=name) for name in ("bool_and", "bool_or")]
ORDERED += [Call("sum", "x"), Call("avg", "x"), Call("var_samp", "x"), Call("count", None), Call("avg", "i")]
SKETCHED = [Call("approx_count_distinct", "s"), Call("approx_quantile", "i", constant=0.25)]
KEYS = st.sampled_from([("k",), ("g", "k"), ()])
SEEDS = st.none() | st.integers(0, 1000)
CLOCKS = (
    st.lists(st.integers(BEGIN, LAST), max_size=3) | st.lists(st.integers(BEGIN, LAST), min_size=8, max_size=14)
).map(lambda clocks: [*sorted(clocks), LAST])
COUNTED = st.builds(lambda length, slide: ("rows", length, slide), st.integers(1, 12), st.integers(1, 4))
TIMED = st.builds(lambda length, slide: ("range", length, slide), st.integers(0, 14), st.integers(1, 9))
NUMBERS = st.sampled_from([0.0, -0.0, 0.5, -2.25, 3.0, 7.0, math.nan, math.inf])
ROUGH = st.floats(-1e6, 1e6, allow_nan=False)


class Record(NamedTuple):
    """A record of a stream; `let` says whether a filter lets it through."""

    time: int
    offset: int
    row: dict[str, Any]
    let: bool | None


def rows(numbers: st.SearchStrategy[float]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "k": st.sampled_from(["a", "b", None]),
            "g": st.sampled_from([0.0, math.nan]),
            "i": st.none() | st.integers(-3, 3),
            "x": st.none() | numbers,
            "s": st.none() | st.sampled_from(["", "u", "vw", "é"]),
            "b": st.none() | st.booleans(),
        }
    )


@st.composite
def streams(draw: st.DrawFn, numbers: st.SearchStrategy[float] = NUMBERS) -> list[Record]:
    """Records in (time, offset) order; the log need not be in the order of time. There are ties and gaps."""
    times = st.integers(BEGIN, LAST - 1) | st.integers(0, 3) | st.sampled_from([-12, 0, 4, 6, 12])
    drawn = draw(st.lists(times, max_size=8) | st.lists(times, min_size=20, max_size=40))
    lets = st.sampled_from([True, True, False, None])
    given = rows(numbers)
    records = [Record(time, offset, draw(given), draw(lets)) for offset, time in enumerate(drawn)]
    return sorted(records, key=lambda each: (each.time, each.offset))


def windows(*kinds: st.SearchStrategy[tuple[str, int, int]]) -> st.SearchStrategy[list[tuple[str, int, int]]]:
    return st.lists(st.one_of(*kinds), min_size=1, max_size=5)


def batch(records: Sequence[Record]) -> pa.RecordBatch:
    listed = [{**each.row, "let": each.let, TIME: each.time, OFFSET: each.offset} for each in records]
    return pa.RecordBatch.from_pylist(listed, schema=INPUT)


def inputs(records: Sequence[Record], span: Span) -> list[pa.RecordBatch]:
    """Input 0: all; input 1: those that are let through."""
    now = [each for each in records if span.since <= each.time < span.clock]
    return [batch(now), batch([each for each in now if each.let])]


def result_type(call: Call) -> pa.DataType:
    named = [name for name in (call.argument, call.second) if name is not None]
    return Algebra.from_name(call.function).at(call.constant).result([FIELDS.field(name).type for name in named])


def shared(
    given: Sequence[tuple[str, int, int]], keys: Sequence[str], calls: Sequence[Call], where: str | None = None
) -> Shared:
    schema = pa.schema(
        [("w", pa.int64()), *(FIELDS.field(name) for name in keys)]
        + [(f"c{at}", result_type(call)) for at, call in enumerate(calls)]
    )
    tagged = tuple(SharedWindow(kind, length, slide, at) for at, (kind, length, slide) in enumerate(given))  # type: ignore[arg-type]
    return Shared(0, tagged, tuple(keys), tuple(calls), schema, where)


def told(records: Sequence[Record], clocks: Sequence[int]) -> list[Span]:
    first = min((each.time for each in records), default=BEGINNING)
    return [
        Span(each.since, each.clock, each.version, first if first < each.clock else BEGINNING)
        for each in spans(clocks, BEGIN)
    ]


def run(
    build: Callable[[], Any], records: Sequence[Record], clocks: Sequence[int], seed: int | None = None
) -> tuple[list[Interval], Driver]:
    driver, steps = Driver(build, seed), told(records, clocks)
    return intervals([driver.advance(inputs(records, span), span) for span in steps], steps), driver


def in_words(found: Sequence[Interval]) -> list[str]:
    """The rows in the order of their ids, to the last bit."""
    return [repr(each) for each in found]


def judged(
    window: tuple[str, int, int], keys: Sequence[str], calls: Sequence[Call], where: str | None, records: list[Record]
) -> list[Interval]:
    """What the operators give that keep every tuple: a window, and an aggregate over it."""
    kind, length, slide = window
    child: Windowed
    if kind == "range":
        child = Windowed(0 if where is None else 1, Range(length, slide), FIELDS)
    elif keys:
        child = Windowed(0, Partition(tuple(keys), length, slide), FIELDS, where)
    else:
        child = Windowed(0 if where is None else 1, Rows(length, 0, slide), FIELDS)
    named = [(f"c{at}", result_type(call)) for at, call in enumerate(calls)]
    node = Aggregate(child, tuple(keys), tuple(calls), pa.schema([*(FIELDS.field(key) for key in keys), *named]))
    below, above = leaf(child), AggregateOperator(node, endless=False)
    steps = told(records, [LAST])
    deltas = [above.advance([below.advance(inputs(records, span), span).delta], span).delta for span in steps]
    found: list[Interval] = intervals(deltas, steps)
    return found


def of_window(found: Sequence[Interval], number: int) -> list[Interval]:
    mine = [each for each in found if each.row["w"] == number]
    return [each._replace(row={name: value for name, value in each.row.items() if name != "w"}) for each in mine]


def close(one: Any, other: Any) -> bool:
    """The same value; floats may have been rounded on the way."""
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-6)
    return bool(one == other)


def by_key(found: Sequence[Interval], keys: Sequence[str], instant: int) -> dict[str, list[Any]]:
    """The values that are there at an instant, one row for each key."""
    there = [each for each in found if each.start <= instant and (each.end is None or instant < each.end)]
    result = {
        repr([row[key] for key in keys]): [value for name, value in row.items() if name not in keys]
        for row in (each.row for each in there)
    }
    assert len(result) == len(there), f"at {instant} a key has two rows"
    return result


def assert_alike(found: dict[str, list[Any]], wanted: dict[str, list[Any]], where: str) -> None:
    assert sorted(found) == sorted(wanted), where
    for key, row in found.items():
        assert all(map(close, row, wanted[key])), f"{where}: {key} has {row}, not {wanted[key]}"


@given(streams(), windows(COUNTED, TIMED), KEYS, st.sampled_from([None, "let"]), CLOCKS, SEEDS)
@settings(max_examples=examples(45))
def test_every_window_is_as_if_it_were_alone(
    records: list[Record], given: list[tuple[str, int, int]], keys: tuple[str, ...], where: str | None,
    clocks: list[int], seed: int | None,
) -> None:  # fmt: skip
    node = shared(given, keys, CALLS, where)
    found, _ = run(partial(SharedOperator, node), records, clocks, seed)
    for number, window in enumerate(given):
        mine, wanted = of_window(found, number), judged(window, keys, CALLS, where, records)
        for instant in instants(mine, wanted):
            there = by_key(mine, keys, instant), by_key(wanted, keys, instant)
            assert_alike(*there, f"{window} at {instant}")


def in_window(window: tuple[str, int, int], group: Sequence[Record], instant: int) -> list[Record]:
    """What a window of a group has at an instant."""
    kind, length, slide = window
    if kind == "range":
        at = instant // slide * slide
        return [each for each in group if at - length < each.time <= at]
    come = sum(1 for each in group if each.time <= instant) // slide * slide
    return list(group[max(come - length, 0) : come])


@given(
    streams(NUMBERS | ROUGH), windows(COUNTED, TIMED), KEYS, st.sampled_from([None, "let"]), CLOCKS, SEEDS,
    st.sampled_from([ORDERED, SKETCHED]),
)  # fmt: skip
@settings(max_examples=examples(30))
def test_every_aggregate_is_what_the_algebra_says(
    records: list[Record], given: list[tuple[str, int, int]], keys: tuple[str, ...], where: str | None,
    clocks: list[int], seed: int | None, calls: list[Call],
) -> None:  # fmt: skip
    found, _ = run(lambda: SharedOperator(shared(given, keys, calls, where)), records, clocks, seed)
    groups: dict[str, list[Record]] = {}
    for each in records:
        groups.setdefault(repr([each.row[key] for key in keys]), []).append(each)
    for number, window in enumerate(given):
        mine = of_window(found, number)
        for instant in range(BEGIN, LAST):
            wanted = {}
            for key, group in groups.items():
                live = [each.row for each in in_window(window, group, instant) if each.let or where is None]
                if live or (not keys and records[0].time <= instant):
                    wanted[key] = [computed(call, live) for call in calls]
            assert_alike(by_key(mine, keys, instant), wanted, f"{window} at {instant}")


def computed(call: Call, live: Sequence[dict[str, Any]]) -> Any:
    named = [name for name in (call.argument, call.second) if name is not None]
    algebra = Algebra.from_name(call.function).at(call.constant)
    return algebra.of(*([row[name] for row in live] for name in named)) if named else len(live)


@given(streams(NUMBERS | ROUGH), windows(COUNTED, TIMED), KEYS, CLOCKS, SEEDS, st.sampled_from([CALLS, ORDERED]))
@settings(max_examples=examples(20))
def test_ids_and_bits_depend_on_the_input_alone(
    records: list[Record], given: list[tuple[str, int, int]], keys: tuple[str, ...], clocks: list[int], seed: int | None,
    calls: list[Call],
) -> None:  # fmt: skip
    node = shared(given, keys, calls, "let")
    whole, _ = run(partial(SharedOperator, node), records, clocks[-1:])
    cut, _ = run(partial(SharedOperator, node), records, clocks, seed)
    assert in_words(cut) == in_words(whole)
    for number, window in enumerate(given):
        single = shared([window], keys, calls, "let")
        alone, _ = run(partial(SharedOperator, single), records, clocks)
        assert in_words(of_window(alone, 0)) == in_words(of_window(whole, number))


@given(
    streams(), COUNTED | TIMED.filter(lambda window: window[1] > 0), KEYS, CLOCKS, SEEDS, st.sampled_from([None, "let"])
)
@settings(max_examples=examples(40))
def test_a_guarded_sum_refuses_the_same_records_as_a_relation(
    records: list[Record], window: tuple[str, int, int], keys: tuple[str, ...], clocks: list[int], seed: int | None,
    where: str | None,
) -> None:  # fmt: skip
    """However the input is cut and restored. Time windows get no flag: their filter is in the map side."""
    where = where if window[0] == "rows" else None
    calls = (Call("sum", "large"), Call("count", None), Call("first", "s"), Call("arg_max", "s", second="i"))
    kinds = (pa.int64(), pa.int64(), pa.string(), pa.string())
    large = pa.field("large", pa.int64())
    named = [FIELDS.field(name) for name in keys]
    schema = pa.schema([*named, *((f"c{at}", kind) for at, kind in enumerate(kinds))])
    node = Shared(0, (SharedWindow(*window),), keys, calls, schema, where, pa.schema([*named, large]))  # type: ignore[arg-type]

    def widened(span: Span) -> list[pa.RecordBatch]:
        now = batch([each for each in records if span.since <= each.time < span.clock])
        numbers = [None if each is None else each * ((2**63 - 1) // 3) for each in now.column("i").to_pylist()]
        return [now.append_column(large, pa.array(numbers, pa.int64()))]

    def outcome(clocks: Sequence[int], seed: int | None) -> tuple[list[Interval], list[int]]:
        driver, steps = Driver(partial(SharedOperator, node), seed), told(records, clocks)
        found = intervals([driver.advance(widened(span), span) for span in steps], steps)
        return found, sorted(int(id) for each in driver.spoiled if each.ids is not None for id in each.ids)

    whole, refused = outcome(clocks[-1:], None)
    cut, refused_cut = outcome(clocks, seed)
    assert (in_words(cut), refused_cut) == (in_words(whole), refused)

    (step,) = told(records, clocks[-1:])
    kind, length, slide = window
    leaves = Range(length, slide) if kind == "range" else Partition(keys, length, slide)
    child = Windowed(0, leaves, pa.schema([*named, large]), where)
    sums = AggregateOperator(Aggregate(child, keys, calls[:2], pa.schema(list(schema)[:-2])), endless=False)
    summed = sums.advance([leaf(child).advance(widened(step), step).delta], step)
    assert refused == sorted(int(id) for each in summed.spoiled if each.ids is not None for id in each.ids)
    wanted = intervals([summed.delta], [step])
    for instant in instants(whole, wanted):
        ours = [values[:-2] for values in snapshot(whole, instant).elements()]
        assert sorted(map(repr, ours)) == sorted(map(repr, snapshot(wanted, instant).elements())), instant


@given(st.integers(0, 10**9))
@settings(max_examples=examples(25))
def test_busy_streams_through_many_hands(seed: int) -> None:
    chance = random.Random(seed)
    keys = chance.choice([("k",), ("g", "k"), ()])
    many, last = chance.choice([(60, LAST), (120, LAST), (300, 150)])
    drawn = [chance.randrange(BEGIN, last) for _ in range(many)]
    nothing = {"g": 0.0, "i": 1, "s": "", "b": True}
    records = sorted(
        Record(time, offset, {**nothing, "k": chance.choice("ab"), "x": chance.random()}, chance.random() < 0.8)
        for offset, time in enumerate(drawn)
    )
    given = [(chance.choice(["rows", "range"]), chance.randint(1, last // 2), chance.randint(1, 5)) for _ in range(3)]
    node = shared(
        given, keys, [Call("var_pop", "x"), Call("count", None), Call("first", "x")], chance.choice([None, "let"])
    )
    whole, _ = run(partial(SharedOperator, node), records, [last])
    clocks = sorted(chance.randrange(BEGIN, last) for _ in range(20))
    cut, _ = run(partial(SharedOperator, node), records, [*clocks, last], seed)
    assert in_words(cut) == in_words(whole)


def no_splits(found: Sequence[Interval], keys: Sequence[str]) -> None:
    """A row that ends and one that begins there are not the same."""
    ended = {(*(repr(each.row[key]) for key in ("w", *keys)), each.end): repr(each.row) for each in found}
    for each in found:
        before = ended.get((*(repr(each.row[key]) for key in ("w", *keys)), each.start))
        assert before != repr(each.row)


@given(streams(), windows(COUNTED, TIMED), KEYS, CLOCKS)
@settings(max_examples=examples(25))
def test_a_row_that_stays_the_same_lives_on(
    records: list[Record], given: list[tuple[str, int, int]], keys: tuple[str, ...], clocks: list[int]
) -> None:
    calls = [Call("max", "i"), Call("max", "s"), Call("first", "b"), Call("min", "g")]
    found, _ = run(lambda: SharedOperator(shared(given, keys, calls)), records, clocks)
    no_splits(found, keys)


class Two:
    """Two nodes that share a state, as one operator; each writes what it needs itself."""

    def __init__(self, nodes: Sequence[Shared], deltas: dict[int, Delta]) -> None:
        state = SharedState(nodes)
        self._operators = [SharedOperator(node, state) for node in nodes]
        self._deltas = deltas

    def advance(self, batches: Sequence[pa.RecordBatch], span: Span) -> Step:
        steps = [each.advance(batches, span) for each in self._operators]
        self._deltas[span.version] = steps[1].delta
        state = [
            Tuples(f"{at}.{each.section}", each.rows, each.until)
            for at, step in enumerate(steps)
            for each in step.state
        ]
        return Step(steps[0].delta, state)

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        at, name = section.split(".", 1)
        self._operators[int(at)].restore(name, rows, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        at, name = section.split(".", 1)
        return self._operators[int(at)].live(name, rows, version)

    def size(self, section: str) -> int:
        at, name = section.split(".", 1)
        return self._operators[int(at)].size(name)


@given(
    streams(NUMBERS | ROUGH), windows(COUNTED, TIMED), windows(COUNTED, TIMED), KEYS, CLOCKS, st.integers(0, 1000)
)  # fmt: skip
@settings(max_examples=examples(20))
def test_queries_that_share_do_not_notice_each_other(
    records: list[Record], first: list[tuple[str, int, int]], second: list[tuple[str, int, int]], keys: tuple[str, ...],
    clocks: list[int], seed: int,
) -> None:  # fmt: skip
    nodes = [shared(first, keys, ORDERED, "let"), shared(second, keys, CALLS, "let")]
    deltas: dict[int, Delta] = {}
    driver, steps = Driver(lambda: Two(nodes, deltas), seed), told(records, clocks)
    found = intervals([driver.advance(inputs(records, span), span) for span in steps], steps)
    found_too = intervals([deltas[span.version] for span in steps], steps)
    for node, shared_one in zip(nodes, (found, found_too)):
        alone, _ = run(partial(SharedOperator, node), records, clocks)
        assert in_words(shared_one) == in_words(alone)


YEAR = 365 * 86400 * 10**6


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5), st.sampled_from(["a", "b"])), max_size=12),
    st.sampled_from([(7, 3), (6, 6), (2, 5), (YEAR, 7), (12 * 10**6, 10**6)]), st.integers(0, 1000),
)  # fmt: skip
@settings(max_examples=examples(25))
@example([(0, -5, "a"), (1, 0, "b")], (7, 3), 5)
def test_gaps_of_years(given: list[tuple[int, int, str]], window: tuple[int, int], seed: int) -> None:
    at = [(year * YEAR + little, key) for year, little, key in given]
    empty = dict.fromkeys(FIELDS.names)
    records = [
        Record(time, offset, {**empty, "k": key, "x": 0.1 * offset}, True) for offset, (time, key) in enumerate(at)
    ]
    records.sort(key=lambda each: (each.time, each.offset))
    calls, drawn = [Call("count", None), Call("sum", "x")], ("range", *window)
    steps = told(records, [-3, 2, YEAR, YEAR + 1, 2 * YEAR + 3, 6 * YEAR])
    driver = Driver(lambda: SharedOperator(shared([drawn], ("k",), calls)), seed)
    found = intervals([driver.advance(inputs(records, span), span) for span in steps], steps)
    assert all(each.end is not None for each in found)
    assert driver.operator.size("answers") == 0
    for each in instants(found):
        there = snapshot(of_window(found, 0), each)
        boundary = each // window[1] * window[1]
        for key in "ab":
            live = [one for one in records if one.row["k"] == key and boundary - window[0] < one.time <= boundary]
            rows_there = [row for row in there if row[0] == key]
            assert [row[1] for row in rows_there] == ([len(live)] if live else [])
            assert all(row[2] == pytest.approx(math.fsum(one.row["x"] for one in live)) for row in rows_there)
