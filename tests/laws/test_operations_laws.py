"""Operations: retries judged by a model, windows by brute force, the kernel by one call over everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.core.function_sources import FunctionSource
from hayase.core.stages import OFFSET, TIME, Tuples
from hayase.core.times import BEGINNING
from hayase.operations.attempts import Attempts, Pace, WindowResults, most_calls, try_windows
from hayase.operations.operation_kernel import OperationConfig, OperationKernel
from hayase.operations.outcomes import Failure, Outcomes
from hayase.operations.record_windows import QUEUE, Complete, Windows, WindowSpec, windows_of
from hayase.operations.user_functions import OperationFunction

VALUE = pa.schema([("value", pa.int64())])


class Model:
    """A function that gives back its records, fails while it sees a poison one, and may fail a few times for no reason.

    Of the poison some spoil it: after that it fails until it is made anew.
    """

    def __init__(self, poison: set[int], moods: dict[int, int], spoilers: set[int] | None = None) -> None:
        self.poison, self.moods, self.spoilers = poison, moods, spoilers or set()
        self.calls: list[tuple[int, int]] = []
        self.spoiled = False

    def renew(self) -> None:
        self.spoiled = False

    def __call__(self, starts: np.ndarray, stops: np.ndarray, careful: bool) -> Outcomes:
        values: list[int] = []
        counts, failures = [], {}
        for at, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist())):
            self.calls.append((start, stop))
            records = range(start, stop)
            bad = [each for each in records if each in self.poison]
            moody = [each for each in records if self.moods.get(each, 0) > 0]
            for each in moody:
                self.moods[each] -= 1
            self.spoiled = self.spoiled or bool(self.spoilers.intersection(records))
            if bad or moody or self.spoiled:
                failures[at] = Failure("raised", f"poison {bad}")
                counts.append(0)
                if careful:
                    self.renew()
            else:
                values += records
                counts.append(len(records))
        took = 10 * (stops - starts)
        return Outcomes(pa.table({"value": pa.array(values, pa.int64())}), np.array(counts, np.int64), failures, took)


class Hours:
    """A clock that only a pause moves; or each look at it, too."""

    def __init__(self, ticking: bool) -> None:
        self.now, self.ticking = 0.0, ticking
        self.pauses: list[float] = []

    def __call__(self) -> float:
        self.now += 0.01 * self.ticking
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds
        self.pauses.append(seconds)


def tried(
    model: Model, windows: tuple[np.ndarray, np.ndarray], attempts: int, divide: bool, data: st.DataObject
) -> WindowResults:
    """What comes of windows that are called in portions of any size."""
    hours, pace = Hours(data.draw(st.booleans())), Pace(data.draw(st.sampled_from([64, 1, 2, 3])))
    done = try_windows(model, *windows, Attempts(attempts), divide, hours.sleep, model.renew, pace=pace, clock=hours)
    if not hours.ticking and pace.windows >= 64:
        assert len(hours.pauses) <= (0 if attempts == 1 else 2 * (attempts - 1) + 5)  # 20 records are halved five times
    return done


@st.composite
def tumbling(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    sizes = draw(st.lists(st.one_of(st.just(1), st.integers(1, 20)), min_size=1, max_size=12))
    stops = np.cumsum(np.array(sizes, np.int64))
    return stops - np.array(sizes, np.int64), stops


@given(windows=tumbling(), attempts=st.integers(1, 4), data=st.data())
def test_a_good_record_comes_out_once_and_a_poison_one_is_refused_once(
    windows: tuple[np.ndarray, np.ndarray], attempts: int, data: st.DataObject
) -> None:
    starts, stops = windows
    total = int(stops[-1])
    poison = data.draw(st.sets(st.integers(0, total - 1), max_size=8))
    model = Model(poison, {})
    done = tried(model, windows, attempts, True, data)
    assert done.rows.column("value").to_pylist() == [each for each in range(total) if each not in poison]
    assert [each.start for each in done.refusals] == sorted(poison)
    assert all(each.stop == each.start + 1 and each.attempts >= attempts for each in done.refusals)
    assert done.calls == len(model.calls)
    allowed = 0
    for number, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist())):
        bad = len([each for each in poison if start <= each < stop])
        allowed += most_calls(stop - start, bad, attempts)
        inside = [
            value for value, window in zip(done.rows.column("value").to_pylist(), done.window) if window == number
        ]
        assert inside == [each for each in range(start, stop) if each not in poison]
    assert done.calls <= allowed
    took = np.zeros(len(starts), np.int64)
    for start, stop in model.calls:
        took[np.searchsorted(starts, start, side="right") - 1] += 10 * (stop - start)
    assert done.nanoseconds.tolist() == took.tolist()


@given(windows=tumbling(), attempts=st.integers(2, 4), data=st.data())
def test_who_fails_less_often_than_is_tried_comes_through_whole(
    windows: tuple[np.ndarray, np.ndarray], attempts: int, data: st.DataObject
) -> None:
    total = int(windows[1][-1])
    moods = data.draw(st.dictionaries(st.integers(0, total - 1), st.integers(1, attempts - 1), max_size=8))
    done = tried(Model(set(), dict(moods)), windows, attempts, True, data)
    assert not done.refusals
    assert done.rows.column("value").to_pylist() == list(range(total))


@given(windows=tumbling(), attempts=st.integers(2, 4), data=st.data())
def test_what_a_record_spoils_for_the_others_is_made_good(
    windows: tuple[np.ndarray, np.ndarray], attempts: int, data: st.DataObject
) -> None:
    total = int(windows[1][-1])
    places = st.integers(0, total - 1)
    spoilers = data.draw(st.sets(places, max_size=attempts - 1))
    poison = spoilers | data.draw(st.sets(places, max_size=4))
    model = Model(poison, {}, spoilers)
    model.spoiled = data.draw(st.booleans()) and len(spoilers) < attempts - 1
    done = tried(model, windows, attempts, True, data)
    assert done.rows.column("value").to_pylist() == [each for each in range(total) if each not in poison]
    assert [each.start for each in done.refusals] == sorted(poison)


@given(count=st.integers(1, 20), size=st.integers(1, 6), attempts=st.integers(1, 3), data=st.data())
def test_windows_that_may_not_be_divided_are_refused_whole(
    count: int, size: int, attempts: int, data: st.DataObject
) -> None:
    starts = np.arange(count, dtype=np.int64)
    poison = data.draw(st.sets(st.integers(0, count + size), max_size=4))
    model = Model(poison, {})
    done = tried(model, (starts, starts + size), attempts, False, data)
    bad = [at for at in range(count) if poison & set(range(at, at + size))]
    assert [(each.window, each.start, each.stop, each.attempts) for each in done.refusals] == [
        (at, at, at + size, attempts) for at in bad
    ]
    good = [value for at in range(count) if at not in bad for value in range(at, at + size)]
    assert done.rows.column("value").to_pylist() == good
    assert done.calls == count + len(bad) * (attempts - 1)


# ---------------------------------------------------------------------------------------------------- windows

RECORD = pa.schema([("user", pa.string()), ("value", pa.int64()), ("id", pa.int64())])
Record = tuple[int, int, int, str | None, int]
"""Time, queue, offset, user, value."""


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    """Records of a few queues in order; offsets are unique in a queue and follow no order."""
    queues = draw(st.integers(1, 3))
    found: list[Record] = []
    for queue in range(queues):
        count = draw(st.integers(0, 25))
        offsets = draw(st.permutations(range(count)))
        for offset in offsets:
            user = draw(st.sampled_from(["a", "b", "", None]))
            found.append((draw(st.integers(-30, 30)), queue, offset, user, draw(st.sampled_from([0, 1, 9]))))
    return sorted(found, key=lambda each: each[:3])


@st.composite
def specs(draw: st.DrawFn) -> WindowSpec:
    unit = draw(st.sampled_from(["count", "time"]))
    size = draw(st.one_of(st.integers(1, 7), st.integers(1, 40)) if unit == "time" else st.integers(1, 7))
    slide = draw(st.one_of(st.just(size), st.integers(1, size)))
    by = draw(st.sampled_from([(), ("user",), ("user", "value")]))
    return WindowSpec(unit, size, slide, by, draw(st.booleans()))


clocks = st.lists(st.integers(-35, 45), min_size=3, max_size=10).map(lambda some: sorted(set(some)))


def identity(name: tuple[int, int]) -> int:
    """Queue and offset in one number, as a column of the record."""
    return name[0] * 1000 + name[1]


def batches(some: list[Record], queues: int = 3) -> list[pa.RecordBatch]:
    made = []
    for queue in range(queues):
        mine = [each for each in some if each[1] == queue]
        columns = {
            TIME: pa.array([each[0] for each in mine], pa.int64()),
            OFFSET: pa.array([each[2] for each in mine], pa.int64()),
            "user": pa.array([each[3] for each in mine], pa.string()),
            "value": pa.array([each[4] for each in mine], pa.int64()),
            "id": pa.array([identity(each[1:3]) for each in mine], pa.int64()),
        }
        made.append(pa.record_batch(columns))
    return made


def brute_force(some: list[Record], spec: WindowSpec, clock: int) -> list[tuple[int, list[tuple[int, int]]]]:
    """Every window that is complete at the clock, as its instant and its records, in order."""
    groups: dict[object, list[Record]] = {}
    for each in some:
        if each[0] < clock:
            values = {"user": each[3], "value": each[4]}
            key = (each[1] if spec.per_queue else None, *(values[name] for name in spec.by))
            groups.setdefault(key, []).append(each)
    found: list[tuple[int, tuple[int, int, int], list[Record]]] = []
    for mine in groups.values():
        if spec.unit == "count":
            for start in range(0, len(mine) - spec.size + 1, spec.slide):
                window = mine[start : start + spec.size]
                found.append((window[-1][0], window[-1][:3], window))
        else:
            for number in range(-80, 60):
                start, end = number * spec.slide, number * spec.slide + spec.size
                window = [each for each in mine if start <= each[0] < end]
                if window and end <= clock:
                    found.append((end - 1, window[0][:3], window))
    return [
        (instant, [each[1:3] for each in window]) for instant, _, window in sorted(found, key=lambda each: each[:2])
    ]


@dataclass
class Worker:
    """Windows that a worker holds, as of a version."""

    windows: Windows
    version: int = 0


@dataclass
class StateLog:
    """State as the engine keeps it: tuples by version, of which the oldest are now and then looked at and rewritten."""

    segments: list[tuple[int, Tuples]] = field(default_factory=list)
    reclaimed: int = 0

    def caught_up(self, worker: Worker, spec: WindowSpec) -> Worker:
        """The worker with all that others wrote, or a new one if it has missed what is gone without a trace."""
        if worker.version < self.reclaimed:
            worker = Worker(windows_of(spec, RECORD))
        for version, tuples in self.segments:
            if version > worker.version:
                worker.windows.restore(tuples.rows)
        return worker

    def join(self) -> None:
        """Make one of all that end, and one of all that do not."""
        joined = []
        for ends in (True, False):
            some = [each for each in self.segments if (each[1].until is not None) == ends]
            if some:
                rows = pa.concat_batches([each.rows for _, each in some])
                until = max([each.until for _, each in some if each.until is not None], default=None)
                joined.append((max(version for version, _ in some), Tuples(some[0][1].section, rows, until)))
        self.segments = joined

    def forward(self, worker: Worker, state: Sequence[Tuples], version: int, clock: int, count: int) -> None:
        """Write the state of a step; drop what has ended; look at so many of the oldest again."""
        worker.version = version
        kept = [each for each in self.segments if each[1].until is None or each[1].until >= clock]
        endless = [each for each in kept if each[1].until is None][:count]
        rewritten = [Tuples(each.section, worker.windows.live(each.rows)) for _, each in endless]
        self.reclaimed = max([self.reclaimed, *(number for number, _ in endless)])
        self.segments = [each for each in kept if not any(each is one for one in endless)]
        self.segments += [(version, each) for each in (*rewritten, *state) if each.rows.num_rows]


def told(complete: Complete) -> list[tuple[int, list[tuple[int, int]]]]:
    names = list(zip(*columns(complete.rows, QUEUE, OFFSET)))
    return [
        (instant, names[start:stop])
        for instant, start, stop in zip(
            complete.instants.tolist(), complete.starts.tolist(), complete.stops.tolist(), strict=True
        )
    ]


@settings(max_examples=examples(40, 750))
@given(some=records(), spec=specs(), steps=clocks, data=st.data())
def test_windows_are_those_of_brute_force_however_the_steps_are_cut_and_whoever_takes_them(
    some: list[Record], spec: WindowSpec, steps: list[int], data: st.DataObject
) -> None:
    workers = [Worker(windows_of(spec, RECORD)) for _ in range(2)]
    log = StateLog()
    found: list[tuple[int, list[tuple[int, int]]]] = []
    since = BEGINNING
    for version, clock in enumerate(steps, 1):
        inputs = batches([each for each in some if since <= each[0] < clock])
        turn = data.draw(st.integers(0, 2))
        worker = log.caught_up(workers[turn] if turn < 2 else Worker(windows_of(spec, RECORD)), spec)
        workers[turn % 2] = worker
        complete = worker.windows.advance(inputs, since, clock)
        found += told(complete)
        for at, queue, offset in zip(complete.arrived.tolist(), *columns(complete.rows, QUEUE, OFFSET)):
            assert at == -1 or inputs[queue].column(OFFSET)[at].as_py() == offset
        assert all(since <= instant < clock for instant in complete.instants.tolist())
        log.forward(worker, complete.state, version, clock, data.draw(st.sampled_from([0, 0, 1, 3, 9])))
        if data.draw(st.booleans()):
            log.join()
        held = len(worker.windows)
        fresh = log.caught_up(Worker(windows_of(spec, RECORD)), spec).windows
        fresh.advance(batches([]), clock, clock)
        worker.windows.advance(batches([]), clock, clock)
        assert len(fresh) == len(worker.windows) <= held
        since = clock
    assert found == brute_force(some, spec, steps[-1])


@st.composite
def logs(draw: st.DrawFn) -> list[list[Record]]:
    """What some steps bring of a few queues, in the order of their logs, at any time. A record may come once more."""
    values = st.tuples(st.integers(-30, 30), st.sampled_from(["a", "b", "", None]), st.sampled_from([0, 1, 9]))
    steps: list[list[Record]] = [[] for _ in range(draw(st.integers(1, 8)))]
    for queue in range(draw(st.integers(1, 3))):
        mine = [(at, queue, offset, *rest) for offset, (at, *rest) in enumerate(draw(st.lists(values, max_size=25)))]
        if mine and draw(st.booleans()):
            mine.append(mine[draw(st.integers(0, len(mine) - 1))])
        cuts = sorted(draw(st.lists(st.integers(0, len(mine)), min_size=len(steps) - 1, max_size=len(steps) - 1)))
        for step, (start, stop) in zip(steps, pairwise([0, *cuts, len(mine)])):
            step += mine[start:stop]
    return steps


@settings(max_examples=examples(30, 500))
@given(steps=logs(), base=specs(), data=st.data())
def test_windows_by_arrival_are_those_of_the_logs_however_they_are_cut_and_whoever_takes_them(
    steps: list[list[Record]], base: WindowSpec, data: st.DataObject
) -> None:
    some = [each for step in steps for each in step]
    several = len({each[1] for each in some}) > 1
    spec = WindowSpec("count", min(base.size, 7), min(base.slide, 7), base.by, base.per_queue or several, True)
    workers = [Worker(windows_of(spec, RECORD)) for _ in range(2)]
    log = StateLog()
    found: dict[int, list[tuple[int, list[tuple[int, int]]]]] = {}
    for version, step in enumerate(steps, 1):
        inputs = batches(step)
        turn = data.draw(st.integers(0, 2))
        worker = log.caught_up(workers[turn] if turn < 2 else Worker(windows_of(spec, RECORD)), spec)
        workers[turn % 2] = worker
        complete = worker.windows.advance(inputs, 0, 0)
        for instant, window in told(complete):
            found.setdefault(window[0][0], []).append((instant, window))
        for at, queue, offset in zip(complete.arrived.tolist(), *columns(complete.rows, QUEUE, OFFSET)):
            assert at == -1 or inputs[queue].column(OFFSET)[at].as_py() == offset
        log.forward(worker, complete.state, version, 0, data.draw(st.sampled_from([0, 0, 1, 3, 9])))
        if data.draw(st.booleans()):
            log.join()
        assert len(log.caught_up(Worker(windows_of(spec, RECORD)), spec).windows) == len(worker.windows)
    for queue in range(3):
        assert found.get(queue, []) == by_arrival([each for each in some if each[1] == queue], spec)


def by_arrival(mine: list[Record], spec: WindowSpec) -> list[tuple[int, list[tuple[int, int]]]]:
    """Every window of one queue, as its instant and its records, in the order in which they are full."""
    groups: dict[object, list[Record]] = {}
    found = []
    for each in mine:
        values = {"user": each[3], "value": each[4]}
        group = groups.setdefault(tuple(values[name] for name in spec.by), [])
        group.append(each)
        if len(group) >= spec.size and (len(group) - spec.size) % spec.slide == 0:
            found.append((each[0], [one[1:3] for one in group[-spec.size :]]))
    return found


def test_queues_take_turns_by_time_as_far_as_their_own_order_lets_them() -> None:
    times = {0: [5, 1, 9], 1: [4, 6, 2, 20]}
    some: list[Record] = [(at, queue, offset, "a", 0) for queue in times for offset, at in enumerate(times[queue])]
    found = told(windows_of(WindowSpec("count", 1, 1, by_arrival=True), RECORD).advance(batches(some), 0, 0))
    assert [instant for instant, _ in found] == [4, 5, 1, 6, 2, 9, 20]


@pytest.mark.parametrize("spec", [WindowSpec("time", 40, 40), WindowSpec("time", 40, 20), WindowSpec("count", 4, 4)])
def test_who_is_told_again_what_he_knows_does_not_take_it_twice(spec: WindowSpec) -> None:
    one, other = windows_of(spec, RECORD), windows_of(spec, RECORD)
    some: list[Record] = [(at, 0, at, "a", 1) for at in range(4)]
    first = one.advance(batches(some[:1]), BEGINNING, 1).state
    for each in first:
        other.restore(each.rows)
    second = other.advance(batches(some[1:2]), 1, 2).state
    one.restore(pa.concat_batches([each.rows for each in (*first, *second)]))
    one.restore(second[0].rows)
    found = told(one.advance(batches(some[2:]), 2, 50))
    assert found == brute_force(some, spec, 50)


def columns(rows: pa.RecordBatch, *names: str) -> list[list[int]]:
    return [rows.column(name).to_pylist() for name in names]


# ---------------------------------------------------------------------------------------------------- the kernel

OUTPUT = pa.schema([("id", pa.int64()), ("at", pa.int64())])


class Identities:
    """A function that gives the identities of its records, a second each, and fails while one of them has a nine."""

    records = 0

    def renew(self) -> None:
        pass

    def call(self, rows: pa.RecordBatch, starts: np.ndarray, stops: np.ndarray, careful: bool) -> Outcomes:
        ids, values = columns(rows, "id", "value")
        given: list[int] = []
        counts, failures = [], {}
        for at, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist())):
            if 9 in values[start:stop]:
                failures[at] = Failure("raised", "a nine")
                counts.append(0)
            else:
                given += ids[start:stop]
                counts.append(stop - start)
        took = 1_000_000_000 * (stops - starts)
        self.records += int((stops - starts).sum())
        return Outcomes(pa.table({"id": pa.array(given, pa.int64())}), np.array(counts, np.int64), failures, took)


@settings(max_examples=examples(30, 500))
@given(some=records(), spec=specs(), steps=clocks, attempts=st.integers(1, 3), data=st.data())
def test_a_kernel_loses_and_repeats_nothing_however_it_is_fed(
    some: list[Record], spec: WindowSpec, steps: list[int], attempts: int, data: st.DataObject
) -> None:
    source, function = OperationFunction(FunctionSource("nobody:asks")), Identities()
    queues = ("q0", "q1", "q2")
    config = OperationConfig("op", "1", source, spec, queues, RECORD, OUTPUT, "at", attempts=Attempts(attempts))

    def kernel() -> OperationKernel:
        return OperationKernel(config, caller=function, sleep=lambda seconds: None)

    current, state = kernel(), []
    out: list[tuple[int, int]] = []
    lost: list[int] = []
    windows: list[tuple[int, list[int]]] = []
    since = BEGINNING
    for version, clock in enumerate(steps, 1):
        if data.draw(st.booleans()):
            current = kernel()
            for number, tuples in state:
                current.restore(tuples.section, tuples.rows, number)
        inputs = batches([each for each in some if since <= each[0] < clock])
        function.records = 0
        outcome = current.process(inputs, since, clock, version)
        assert sum(outcome.seconds) == pytest.approx(function.records)
        assert all(not took or queue in {each[1] for each in some} for queue, took in enumerate(outcome.seconds))
        out += list(zip(*columns(outcome.rows, "at", "id")))
        for batch, refused in zip(inputs, outcome.refused):
            assert len(refused.rows) == len(refused.reasons)
            assert refused.rows.tolist() == sorted(refused.rows.tolist())
            lost += batch.column("id").take(pa.array(refused.rows, pa.int64())).to_pylist()
        for each in outcome.spoiled:
            assert len(each.reasons) == each.rows.num_rows
            if spec.tumbling:
                lost += each.rows.column("id").to_pylist()
            else:
                instants = each.rows.column("instant").cast(pa.int64()).to_pylist()
                lists = each.rows.column("records").to_pylist()
                windows += [(at, [one["id"] for one in records]) for at, records in zip(instants, lists)]
        state += [(version, each) for each in outcome.state]
        since = clock
    expected = [(at, [identity(each) for each in window]) for at, window in brute_force(some, spec, steps[-1])]
    nines = {identity(each[1:3]) for each in some if each[4] == 9}
    if spec.tumbling:
        assert out == [(at, each) for at, window in expected for each in window if each not in nines]
        assert sorted(lost) == sorted(each for _, window in expected for each in window if each in nines)
        assert not windows
    else:
        assert out == [(at, each) for at, window in expected if not nines & set(window) for each in window]
        assert windows == [(at, window) for at, window in expected if nines & set(window)]
        assert not lost


def test_the_time_of_a_window_is_shared_by_its_records() -> None:
    source = OperationFunction(FunctionSource("nobody:asks"))
    spec = WindowSpec("count", 4, 4, per_queue=False)
    config = OperationConfig("op", "1", source, spec, ("q0", "q1", "q2"), RECORD, OUTPUT, "at")
    some: list[Record] = [(at, 2 * (at % 4 == 0), at, "a", 1) for at in range(8)]
    outcome = OperationKernel(config, caller=Identities()).process(batches(some), 0, 10, 1)
    assert list(outcome.seconds) == [6.0, 0.0, 2.0]
