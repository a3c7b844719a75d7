"""The laws of the engine, without a JVM: what comes out depends on the records alone.

However a run is cut into appends, batches, tasks and buckets, whatever is forgotten or started again in between: rows,
dead letters and figures are those of the plain model, and so of every other run over the same log.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from unittest import mock

from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import shop
from effort import examples
from hayase.engine import local
from hayase.engine.batch import offsets
from hayase.engine.batch.gate import Grants
from hayase.engine.batch.kernel_cache import forget_kernels
from hayase.engine.commit.housekeeping import run_housekeeping
from hayase.engine.local import InProcess
from hayase.streams import StreamLog
from interruptions import Granting, room_for_homes
from shop import Event, check, expected

LAW = settings(
    max_examples=examples(8, 120),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a run is a hundred fsyncs: shrinking would take minutes
)

amounts = st.none() | st.integers(-3, 9) | st.sampled_from([2**62, 2**63 - 1, -(2**63)])
events = st.lists(
    st.builds(Event, st.integers(-20, 40), st.none() | st.sampled_from(["a", "b", "c", "d", ""]), amounts), max_size=30
)


@dataclass(frozen=True)
class Moment:
    """What happens between two appends of a disturbed run."""

    append: int
    steps: int = 0
    limit: int = 100
    forget: bool = False
    restart: bool = False
    compact: bool = False


moments = st.lists(
    st.builds(
        Moment, st.integers(0, 8), st.integers(0, 3), st.integers(0, 7), st.booleans(), st.booleans(), st.booleans()
    ),
    max_size=8,
)


def disturbed(pipeline: shop.hy.Pipeline, given: list[Event], script: list[Moment], tasks: int, finish: bool) -> None:
    """Append and run by a script, then to the end."""
    gate = Granting()
    with mock.patch.object(local, "ranges", partial(offsets.ranges, least=1)):
        runner = InProcess(pipeline.home, lambda: 0, gate=gate, tasks=tasks)
        at = 0
        for moment in script:
            if moment.append:
                pipeline.append("events", [each.row() for each in given[at : at + moment.append]])
                at += moment.append
            gate.now = Grants(limit=moment.limit)
            for _ in range(moment.steps):
                runner.step()
                if moment.forget:
                    forget_kernels()
            if moment.compact:
                for log in (StreamLog.open(pipeline.home.path, each.name) for each in pipeline.declaration.streams):
                    log.compact(at_least=2)
                run_housekeeping(pipeline.home, now=0)
            if moment.restart:
                runner = InProcess(pipeline.home, lambda: 0, gate=gate, tasks=tasks)
        pipeline.append("events", [each.row() for each in given[at:]])
        if finish:
            pipeline.finish("events")
        gate.now = Grants()
        runner.run_until_idle()


@LAW
@given(events, st.integers(0, 25), moments, st.integers(1, 4), st.integers(1, 4), st.booleans())
@example([Event(5, "a", 1), Event(5, "a", 1)], 0, [Moment(1, 2)], 1, 2, False)
@example(  # 13 leaves a segment that 14 still waits in, and must not come back with it
    [Event(at, "a", 1) for at in (10, 13, 14, 17, 18)],
    4,
    [Moment(3, 2), Moment(1, 1, forget=True), Moment(1, 1)],
    1,
    1,
    False,
)
@example([Event(9, "a", 1), Event(4, "a", 1), Event(3, "a", 1)], 5, [Moment(1, 1), Moment(1, 1, 1)], 1, 1, False)
def test_what_comes_out_depends_on_the_records_alone(
    given: list[Event], slack: int, script: list[Moment], tasks: int, buckets: int, finish: bool
) -> None:
    with room_for_homes() as home:
        pipeline = shop.shop(home, slack)
        pipeline.declaration = replace(pipeline.declaration, buckets=buckets)
        pipeline.apply()
        disturbed(pipeline, given, script, tasks, finish)
        check(pipeline, expected(given, slack, finish))
        if finish:
            assert all(each.waiting == 0 for each in pipeline.progress().totals.values())


@LAW
@given(events, st.integers(0, 9), moments)
def test_stages_at_different_places_do_not_touch_each_other(
    given: list[Event], slack: int, script: list[Moment]
) -> None:
    """A stage that is added later, removed, added again or reset comes to what it would have come to from the start."""
    with room_for_homes() as home:
        early = shop.shop(home, slack, ["spend"])
        early.apply()
        half = len(given) // 2
        disturbed(early, given[:half], script[:2], 1, finish=False)
        whole = shop.shop(home, slack)
        whole.apply()
        disturbed(whole, given[half:], script[2:4], 2, finish=False)
        check(whole, expected(given, slack, finished=False))
        early.apply()
        without = InProcess(early.home, lambda: 0).run_until_idle()
        assert set(without.totals) == {"spend"}
        whole.apply()
        whole.reset("spend")
        whole.finish("events")
        late = Counter(row["offset"] for row in whole.dead_letters() if row["stage"] == "spend")
        InProcess(whole.home, lambda: 0).run_until_idle()
        want = expected(given, slack, finished=True)
        for name, each in want.items():
            assert shop.rows_of(whole, name) == each.rows, name
            assert each.figures in (None, shop.figures_of(whole, name)), name
        again = Counter(row["offset"] for row in whole.dead_letters() if row["stage"] == "spend")
        assert again - late == Counter(offset for offset, _ in want["spend"].dead.elements())


@LAW
@given(events, events, st.integers(0, 9), moments)
def test_reset_from_now_takes_only_what_comes(
    before: list[Event], after: list[Event], slack: int, script: list[Moment]
) -> None:
    with room_for_homes() as home:
        pipeline = shop.shop(home, slack, ["spend", "ranks"])
        pipeline.apply()
        disturbed(pipeline, before, [], 1, finish=False)
        dead = len(pipeline.dead_letters())
        pipeline.reset("spend", "now")
        InProcess(pipeline.home, lambda: 0).step()
        disturbed(pipeline, after, script, 1, finish=True)
        known_late = {offset - len(before) for offset in shop.late_ones([each.at for each in before + after], slack)}
        taken = [each for number, each in enumerate(after) if number not in known_late]
        totals = shop.expected_spend(taken, slack=2**40, finished=True)
        assert shop.rows_of(pipeline, "spend") == totals.rows
        assert shop.rows_of(pipeline, "ranks") == shop.expected_ranks(totals).rows
        refused = len({each for each in known_late if each >= 0}) + totals.dead.total()
        assert len(pipeline.dead_letters()) - dead == refused
        read, processed, gone, waiting = shop.figures_of(pipeline, "spend")
        assert (read, processed, gone, waiting) == (len(after), len(after) - refused, refused, 0)


@LAW
@given(st.lists(st.integers(-5, 30), min_size=1, max_size=12), st.lists(st.integers(1, 9), min_size=12, max_size=12))
def test_a_silent_stream_follows_the_wall_clock_and_the_decision_stands(times: list[int], pauses: list[int]) -> None:
    """Seconds: a pause of more than 3 lets the clock follow; what then is older than the clock is late for good."""
    second, idle_after, slack = 1_000_000, 3, 1
    with room_for_homes() as home:
        now = 0

        def wall_clock() -> int:
            return now * second

        pipeline = shop.shop(home, slack * second, ["spend"], clock=wall_clock, idle_after=idle_after * second)
        pipeline.apply()
        runner = InProcess(pipeline.home, wall_clock)
        runner.step()
        clock, peak, late, waits = -(10**9), -(10**9), set(), []
        for offset, (at, pause) in enumerate(zip(times, pauses)):
            pipeline.append("events", [Event(at * second, "a", 1).row()])
            if at < max(clock, peak - slack):
                late.add((offset, "late"))
            else:
                waits.append(at)
            peak = max(peak, at)
            clock = max(clock, peak - slack)
            runner.run_until_idle()
            now += pause
            if pause >= idle_after:
                clock = max(clock, now - idle_after - slack)
            if offset % 3 == 1:
                forget_kernels()
                runner = InProcess(pipeline.home, wall_clock)
            runner.run_until_idle()
            assert sum(shop.rows_of(pipeline, "spend").values()) == len({at for at in waits if at < clock})
            assert set(shop.dead_of(pipeline, "spend")) == late
        read, processed, dead, waiting = shop.figures_of(pipeline, "spend")
        assert (read, dead) == (len(times), len(late))
        assert read == processed + dead + waiting


def test_lateness_behind_a_filter_does_not_depend_on_batches() -> None:
    given = [Event(100, "a", 0), Event(10, "a", 5)]
    counts = []
    for steps in (0, 3):
        with room_for_homes() as home:
            pipeline = shop.shop(home, 0, ["big"])
            pipeline.query("bigs", "select user, count(*) as n from big group by user")
            pipeline.apply()
            disturbed(pipeline, given, [Moment(1, steps)], 1, finish=True)
            counts.append(pipeline.progress().totals["bigs"].dead)
    assert counts[0] == counts[1]
