"""Loads and policies: the formulas by hand, the notices, what a declaration may say, the governor of a lane."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hayase.core.errors import DeclarationError, HayaseError, UnknownName
from hayase.governor import (
    Adaptive,
    Asker,
    Governor,
    Informed,
    LoadMeter,
    Loads,
    Policy,
    QueueState,
    RoundRobin,
    policy_named,
)
from hayase.governor.adaptive import WALKS, drawn, rest, restraint
from hayase.governor.governor import RESTS
from hayase.governor.informed import expected_records, fair_records
from hayase.governor.loads import LEAST, PANES


def state(
    rates: list[float],
    services: list[float],
    workers: int = 1,
    waiting: list[int] | None = None,
    since: list[float] | None = None,
    version: int = 0,
) -> QueueState:
    loads = Loads(np.array(rates), np.array(services), version)
    count = len(rates)
    return QueueState(loads, workers, np.array(waiting or [0] * count), np.array(since or [0.0] * count))


class TestLoads:
    def test_the_footnote_of_the_paper(self) -> None:
        """Work of 5 seconds that comes three times a second is 15 seconds of work in every second."""
        loads = Loads(np.array([3.0]), np.array([5.0]))
        assert loads.load.tolist() == [15.0]
        assert loads.total == 15.0

    def test_rates_and_service_times_over_a_window(self) -> None:
        meter = LoadMeter(["a", "b"], window=16.0)
        meter.observe(0.0, np.array([100, 0]), np.array([0.0, 0.0]), np.array([0, 0]))
        for second in range(1, 41):
            fast = 2 if second <= 20 else 10
            ends = np.array([100 + (2 * second if fast == 2 else 40 + 10 * (second - 20)), second])
            meter.observe(float(second), ends, np.array([0.5, 0.25]) * second, np.array([second, second]))
        assert meter.measured.rate == pytest.approx([10.0, 1.0])
        assert meter.measured.service == pytest.approx([0.5, 0.25])

    def test_a_guess_stands_until_a_record_is_done_and_what_is_known_stays(self) -> None:
        meter = LoadMeter(["a"], window=16.0, guess=0.1)
        assert meter.loads.service.tolist() == [0.1]
        meter.observe(0.0, np.array([9]), np.array([0.0]), np.array([0]))
        assert meter.observe(0.01, np.array([9]), np.array([4.0]), np.array([2]))  # at once: the guess was bad
        assert meter.loads.service.tolist() == [2.0]
        for second in range(1, 60):
            meter.observe(float(second), np.array([9]), np.array([4.0]), np.array([2]))
        assert meter.measured.service.tolist() == [2.0]
        assert meter.measured.rate.tolist() == [0.0]

    def test_a_notice_comes_when_a_load_differs_by_more_than_the_threshold(self) -> None:
        meter = LoadMeter(["a", "b"], window=1.0, threshold=0.2)
        ends, done = np.zeros(2), np.zeros(2)
        meter.observe(0.0, ends, done, done)

        def second(at: float, *came: float) -> bool:
            nonlocal ends, done
            ends, done = ends + came, done + came
            return meter.observe(at, ends, done * 0.5, done)

        assert second(1.0, 10, 10)
        assert meter.loads.load.tolist() == [5.0, 5.0]
        assert not second(2.0, 12, 8)
        assert meter.measured.load.tolist() == [6.0, 4.0]
        assert second(3.0, 13, 8)
        assert meter.loads.load.tolist() == [6.5, 5.0]  # the other did not tell
        assert meter.loads.version == 2

    def test_little_loads_make_no_notices(self) -> None:
        meter = LoadMeter(["a"], window=1.0, threshold=0.5)
        meter.observe(0.0, np.array([0]), np.array([0.0]), np.array([0]))
        meter.observe(1.0, np.array([0]), np.array([0.001]), np.array([1]))
        version = meter.loads.version
        for second in range(2, 20):
            meter.observe(float(second), np.array([second % 3]), np.array([0.001]), np.array([1]))
        assert meter.measured.load.max() < LEAST
        assert meter.loads.version == version

    def test_samples_do_not_become_more_when_somebody_looks_often(self) -> None:
        meter = LoadMeter(["a"], window=1.0)
        for step in range(20_000):
            meter.observe(step / 1000, np.array([step]), np.array([step / 10]), np.array([step]))
        assert len(meter._samples) <= PANES + 2
        assert meter.measured.rate == pytest.approx([1000.0])

    def test_other_queues_keep_what_is_known(self) -> None:
        meter = LoadMeter(["a", "b"], window=1.0)
        meter.observe(0.0, np.array([0, 0]), np.array([0.0, 0.0]), np.array([0, 0]))
        meter.observe(1.0, np.array([5, 7]), np.array([2.0, 3.0]), np.array([1, 1]))
        other = meter.for_queues(["b", "c"])
        assert other.loads.rate.tolist() == [7.0, 0.0]
        assert other.loads.service.tolist() == [3.0, 0.1]
        assert other.loads.version > meter.loads.version

    def test_figures_of_other_queues_are_refused(self) -> None:
        with pytest.raises(HayaseError, match="there are 2 queues"):
            LoadMeter(["a", "b"]).observe(0.0, np.array([1]), np.array([1.0]), np.array([1]))


class TestFormulas:
    def test_queues_are_drawn_in_proportion_to_load(self) -> None:
        """Loads 1, 3, 6: S = 10, and r from 0 to 10 falls on the first up to 1, on the second up to 4."""
        r = np.array([0.0, 0.99, 1.0, 3.99, 4.0, 9.99])
        assert drawn(np.array([1.0, 3.0, 6.0]), r / 10).tolist() == [0, 0, 1, 1, 2, 2]

    def test_a_queue_without_load_is_never_drawn_unless_no_queue_has_any(self) -> None:
        draws = np.linspace(0, np.nextafter(1, 0), 1000)
        assert set(drawn(np.array([0.0, 2.0, 0.0, 1.0, 0.0]), draws)) == {1, 3}
        assert set(drawn(np.zeros(3), draws)) == {0, 1, 2}

    def test_restraint_of_the_second_experiment(self) -> None:
        """30 queues, one record a second, 0.1 s each: S = 3. With 28 workers R = 25 / 28, and G (1 - R) is S again."""
        assert restraint(28, 3.0) == pytest.approx(25 / 28)
        assert 28 * (1 - restraint(28, 3.0)) == pytest.approx(3.0)
        assert restraint(2, 3.0) == 0.0

    def test_rest_between_two_visits(self) -> None:
        """R / (1 - R) = 25 / 3; L_S = 50 * 0.1 s; so 0.8333 s at u = 1, and u times that else."""
        services = np.full(50, 0.1)
        assert rest(0.999999, 28, 3.0, services, longest=10) == pytest.approx(25 / 3 * 0.1, rel=1e-5)
        assert rest(0.3, 28, 3.0, services, longest=10) == pytest.approx(0.25)
        assert rest(0.0, 28, 3.0, services, longest=10) == 0.0

    def test_a_pool_that_rests_uses_no_more_than_the_load(self) -> None:
        """The paper's check: with u = 1, L_S seconds of work in L_S / (1 - R) seconds."""
        services = np.array([0.1, 0.3, 0.5])
        pause = rest(1 - 1e-12, 10, 4.0, services, longest=math.inf)
        assert services.sum() / (services.sum() + pause * len(services)) == pytest.approx(1 - restraint(10, 4.0))

    def test_rest_is_bounded_without_load_and_nothing_under_too_much(self) -> None:
        assert rest(0.5, 10, 0.0, np.array([0.1]), longest=2.0) == 2.0
        assert rest(0.5, 10, 1e-9, np.array([0.1]), longest=2.0) == 2.0
        assert rest(0.5, 10, 12.0, np.array([0.1]), longest=2.0) == 0.0

    @pytest.mark.parametrize("u", [0.0, 0.1, 0.5, 0.95, 0.999])
    def test_records_to_be_expected_between_looks(self, u: float) -> None:
        count = expected_records(u)
        assert math.exp(-count) / (math.exp(-count) + count) == pytest.approx(1 - u)

    def test_equal_seconds_for_each_queue(self) -> None:
        """2 s are the first queue's whole work; of the other 20, each gets 10: ten records of 1 s, five of 2 s."""
        waiting, service = np.array([2, 100, 100]), np.array([1.0, 1.0, 2.0])
        assert fair_records(waiting, service, 22.0).tolist() == [2, 10, 5]
        assert fair_records(waiting, service, 23.0).tolist() == [2, 11, 5]
        assert fair_records(waiting, service, 1000.0).tolist() == [2, 100, 100]

    def test_seconds_that_are_just_enough_are_enough(self) -> None:
        """Sums of tenths are rounded one way or another by the order they are taken in."""
        for count in range(1, 200):
            waiting = np.arange(count) % 7 + 1
            enough = float(np.cumsum(np.sort(waiting * 0.1))[-1])
            assert (waiting - fair_records(waiting, np.full(count, 0.1), enough)).sum() in (0, 1)
            assert fair_records(waiting, np.full(count, 0.1), enough + 1e-9).tolist() == waiting.tolist()


class TestPolicies:
    def test_round_robin_goes_through_all_queues_in_turn(self) -> None:
        seen = state([0.0] * 120, [0.1] * 120)
        visited = np.concatenate([RoundRobin().round(seen, Asker(3, turn)).queues for turn in range(12)])
        assert (np.diff(visited) % 120 == 1).all()
        assert set(visited) == set(range(120))

    def test_a_list_has_50_queues_and_stays_until_the_next_notice(self) -> None:
        policy = Adaptive()
        before, after = (state([5.0, 1.0, 2.0], [0.1, 0.1, 0.2], version=version) for version in (1, 2))
        lists = [policy.round(before, Asker(7, turn)).queues for turn in range(WALKS)]
        assert all(len(each) == 51 for each in lists)
        assert all((each[1:] == lists[0][1:]).all() for each in lists)
        assert [each[0] for each in lists] == [(lists[0][0] + turn) % 3 for turn in range(WALKS)]
        assert (policy.round(after, Asker(7, 0)).queues[1:] != lists[0][1:]).any()
        assert (policy.round(before, Asker(8, 0)).queues[1:] != lists[0][1:]).any()
        assert (policy.round(before, Asker(7, WALKS)).queues[1:] != lists[0][1:]).any()

    def test_a_visit_takes_about_the_same_time_everywhere(self) -> None:
        alike = Adaptive().round(state([5.0, 1.0], [0.1, 0.1]), Asker())
        assert set(alike.records.tolist()) == {1}
        mixed = state([10.0, 1.0], [0.02, 0.2])
        answer = Adaptive(u=0.5).round(mixed, Asker())
        queues, records = answer.queues[1:], answer.records[1:]
        mean = mixed.loads.service[queues].mean()
        assert set(records[queues == 0].tolist()) == {int(mean / 0.02)}
        assert set(records[queues == 1].tolist()) == {1}
        assert answer.pause == pytest.approx(0.5 * (1 - 0.4) / 0.4 * (records * mixed.loads.service[queues]).mean())

    def test_lists_follow_the_loads(self) -> None:
        seen = state([5.0, 1.0, 2.0], [0.1, 0.1, 0.2])
        listed = np.concatenate([Adaptive().round(seen, Asker(number)).queues[1:] for number in range(400)])
        share = np.bincount(listed) / len(listed)
        assert share == pytest.approx([0.5, 0.1, 0.4], abs=0.02)

    def test_workers_rest_as_u_says(self) -> None:
        seen = state([1.0] * 30, [0.1] * 30, workers=28)
        assert Adaptive().round(seen, Asker()).pause == 0.0
        assert Adaptive(u=0.6).round(seen, Asker()).pause == pytest.approx(0.5)

    def test_the_informed_take_what_fits_and_first_from_those_that_wait_longest(self) -> None:
        seen = state([1.0] * 4, [1.0] * 4, waiting=[5, 5, 0, 5], since=[3.0, 1.0, 0.0, 2.0])
        two = Informed(seconds=2.0).round(seen, Asker())
        assert dict(zip(two.queues.tolist(), two.records.tolist(), strict=True)) == {1: 1, 3: 1}
        eight = Informed(seconds=2.0).round(seen, Asker(slots=4))
        assert dict(zip(eight.queues.tolist(), eight.records.tolist(), strict=True)) == {0: 2, 1: 3, 3: 3}
        assert eight.seconds(seen.loads) == 8.0

    def test_a_record_that_takes_longer_than_a_round_is_taken_all_the_same(self) -> None:
        seen = state([1.0, 1.0], [60.0, 60.0], waiting=[5, 5])
        assert Informed(seconds=1.0).round(seen, Asker(slots=2)).records.tolist() == [1, 1]

    def test_the_informed_look_again_when_something_should_have_come(self) -> None:
        policy = Informed(u=0.95, shortest=0.004, longest=0.25)
        for rate, wanted in ((30.0, 2.17 / 30), (1e6, 0.004), (0.0, 0.25), (0.01, 0.25)):
            idle = policy.round(state([rate], [0.1]), Asker())
            assert len(idle.queues) == 0
            assert idle.poll_after == pytest.approx(wanted, rel=0.01)

    @pytest.mark.parametrize("name", ["als", "asc", "informed"])
    @pytest.mark.parametrize("u", [-0.1, 1.0, math.nan])
    def test_u_is_below_one(self, name: str, u: float) -> None:
        with pytest.raises(DeclarationError, match="u is"):
            policy_named(name, u=u)

    def test_policies_by_name(self) -> None:
        assert policy_named("als", u=0.25) == Adaptive(u=0.25)
        assert policy_named("asc") == Adaptive(u=0.5)
        with pytest.raises(UnknownName, match='did you mean "informed"'):
            policy_named("informd")
        with pytest.raises(UnknownName, match='unknown option "v" of policy "als"'):
            policy_named("als", v=1)
        with pytest.raises(DeclarationError, match="it is a number"):
            policy_named("als", u="much")


class TestGovernor:
    @staticmethod
    def measured(policy: Policy, rates: list[float], service: float, seconds: float) -> Governor:
        governor = Governor(policy, range(len(rates)), window=16.0, seconds=seconds)
        done = np.ones(len(rates))
        governor.observe(0.0, 0 * done, 0 * done, 0 * done)
        governor.observe(1.0, np.array(rates), service * done, done)
        return governor

    def test_lists_of_all_workers_are_laid_together(self) -> None:
        governor = self.measured(Adaptive(), [30.0, 10.0], 0.1, seconds=20.0)
        decision = governor.decide(1.0, 8, np.array([0, 0]))
        assert (
            sum(decision.records.values()) == 8 * 51 * 3
        )  # a list is 5.1 s of work for each; three times fit into 20 s
        assert decision.records[0] / (8 * 51 * 3) == pytest.approx(0.75, abs=0.05)
        assert decision.poll_after == 0.0

    def test_a_list_that_is_too_long_for_one_decision_goes_on_in_the_next(self) -> None:
        governor = self.measured(RoundRobin(), [1.0] * 50, 0.1, seconds=1.0)
        served = [governor.decide(1.0, 1, np.zeros(50, np.int64)).records for _ in range(5)]
        assert [list(each) for each in served] == [list(range(at, at + 10)) for at in range(0, 50, 10)]
        assert set(governor.decide(1.0, 1, np.zeros(50, np.int64)).records) == set(range(10))

    def test_rests_between_visits_come_after_them_and_are_short(self) -> None:
        pause = 0.5 * (8 - 4) / 4 * 0.1
        governor = self.measured(Adaptive(u=0.5), [30.0, 10.0], 0.1, seconds=20.0)
        visits = int(RESTS / pause)
        decision = governor.decide(1.0, 8, np.array([0, 0]))
        assert sum(decision.records.values()) == 8 * visits
        assert decision.poll_after == pytest.approx(pause * visits)

    def test_a_notice_ends_a_list_but_not_before_its_first_visit(self) -> None:
        governor = self.measured(Adaptive(), [0.0, 1.0], 1.0, seconds=1.0)  # a visit in each decision
        met = []
        for second in range(2, 6):
            governor.observe(float(second), np.array([0.0, 9.0**second]), np.array([1.0, 1.0]), np.array([1, 1]))
            met += governor.decide(float(second), 1, np.array([0, 0])).records
        assert met == [0, 1, 0, 1]  # all in turn: the first visit of every list

    def test_it_measures_and_decides(self) -> None:
        governor = Governor(Informed(seconds=1.0), ["slow", "fast"], window=16.0)
        governor.observe(0.0, np.array([0, 0]), np.array([0.0, 0.0]), np.array([0, 0]))
        assert governor.observe(4.0, np.array([40, 4000]), np.array([4.0, 1.0]), np.array([8, 1000]))
        decision = governor.decide(4.0, 2, np.array([32, 3000]))
        assert decision.records == {"slow": 2, "fast": 1000}
        assert decision.seconds == pytest.approx(2.0)
        assert governor.decide(5.0, 2, np.array([0, 0])).records == {}

    def test_queues_come_and_go(self) -> None:
        governor = Governor(Informed(seconds=0.1), ["a", "b"])
        assert governor.decide(1.0, 1, np.array([9, 9])).records == {"a": 1}
        governor.replace_queues(["new", "b", "a"])
        order = [*(next(iter(governor.decide(2.0 + turn, 1, np.array([9, 9, 9])).records)) for turn in range(3))]
        assert order == ["b", "a", "new"]
        governor.replace_queues([])
        assert governor.decide(9.0, 1, np.array([], np.int64)).records == {}

    def test_who_was_served_comes_after_those_that_wait_also_at_the_same_moment(self) -> None:
        governor = Governor(Informed(seconds=0.1), ["a", "b", "c"])
        order = [*(next(iter(governor.decide(1.0, 1, np.array([9, 9, 9])).records)) for _ in range(6))]
        assert order == ["a", "b", "c"] * 2

    def test_without_workers_it_decides_as_for_one(self) -> None:
        assert Governor(Informed(), ["a"]).decide(0.0, 0, np.array([100])).records == {"a": 10}
