"""The simulator against queueing theory: waiting times within confidence limits, Little's law, paper 3's own figures."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import pytest
from benchmarks.governor_scenarios import Factors, Outcome, Poisson, Scenario, Trace, constant, exponential
from benchmarks.governor_simulator import simulate

from hayase.governor import Adaptive, Asker, Informed, Policy, QueueState, Round, RoundRobin

AT_ONCE = Informed(u=0.0, seconds=1e-9, shortest=1e-7, longest=1e-7)
"""Whoever is free takes the next record the moment it is there: the servers of a textbook."""
SEEDS = 8


def long(*values: Any) -> Any:
    """A case that `make test-long` takes."""
    return pytest.param(*values, marks=pytest.mark.long)


def runs(scenario: Scenario, policy: Policy) -> list[Outcome]:
    return [simulate(scenario, policy, seed) for seed in range(SEEDS)]


def assert_within_limits(values: list[float], theory: float) -> None:
    """The mean of independent runs lies within 4 standard errors: with eight runs, 99.5% confidence."""
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    assert abs(np.mean(values) - theory) < 4 * error
    assert error < 0.1 * theory, "too few records to tell"


def one_queue(rate: float, workers: int, factors: Factors, empty_poll: float = 0.0, seconds: float = 350.0) -> Scenario:
    return Scenario(
        Poisson(np.array([rate])), np.array([0.1]), workers, seconds, empty_poll, factors=factors, warmup=50.0
    )


def lognormal(random: np.random.Generator, count: int) -> np.ndarray:
    return random.lognormal(-0.5, 1.0, count)  # mean 1, second moment e


def erlang_c(workers: int, load: float) -> float:
    """The probability that a record has to wait in M/M/c."""
    term = total = 1.0
    for count in range(1, workers):
        term *= load / count
        total += term
    last = term * load / workers / (1 - load / workers)
    return last / (total + last)


@pytest.mark.parametrize(
    ("factors", "second_moment"), [long(constant, 1.0), (exponential, 2.0), long(lognormal, math.e)]
)
def test_one_worker_waits_as_pollaczek_and_khinchine_say(factors: Factors, second_moment: float) -> None:
    rate, service = 6.0, 0.1
    theory = rate * second_moment * service**2 / (2 * (1 - rate * service))
    assert_within_limits([each.wait for each in runs(one_queue(rate, 1, factors), AT_ONCE)], theory)


@pytest.mark.parametrize(("workers", "rate"), [long(2, 14.0), long(4, 28.0)])
def test_several_workers_wait_as_erlang_says(workers: int, rate: float) -> None:
    theory = erlang_c(workers, rate * 0.1) * 0.1 / (workers - rate * 0.1)
    outcomes = runs(one_queue(rate, workers, exponential), AT_ONCE)
    assert_within_limits([each.wait for each in outcomes], theory)
    assert_within_limits([each.completion for each in outcomes], theory + 0.1)


def test_a_poller_waits_half_a_poll_longer() -> None:
    """A server with vacations: whoever polls an empty queue sees what comes meanwhile when that poll is over."""
    rate, service, empty_poll = 5.0, 0.1, 0.05
    theory = rate * 2 * service**2 / (2 * (1 - rate * service)) + empty_poll / 2
    outcomes = runs(one_queue(rate, 1, exponential, empty_poll), RoundRobin())
    assert_within_limits([each.wait for each in outcomes], theory)


@pytest.mark.parametrize("policy", [long(RoundRobin()), Adaptive(u=0.7), long(Informed())])
def test_littles_law(policy: Policy) -> None:
    """Records that wait, counted every second, are the rate times the waiting time of those that were served."""
    rates = np.array([1.0, 2.0, 9.0])
    outcomes = runs(Scenario(Poisson(rates), np.full(3, 0.1), 2, 300.0, 0.01, factors=exponential, warmup=60.0), policy)
    waiting = [each.length * 3 for each in outcomes]
    product = [rates.sum() * each.wait for each in outcomes]
    assert np.mean(waiting) == pytest.approx(np.mean(product), rel=0.05)


@pytest.mark.parametrize("u", [long(0.0), long(0.5), 0.9])
def test_empty_polls_against_u(u: float) -> None:
    """Figure 8. Time adds up: 28 workers = 3 of work + polls * rest + empty polls * 10 ms."""
    scenario = Scenario(Poisson(np.ones(30)), np.full(30, 0.1), 28, 360.0, 0.01, warmup=60.0)
    outcome = simulate(scenario, Adaptive(u=u))
    found = (25 * u + 0.3) / 25.3
    assert outcome.empty_share == pytest.approx(1 - found, abs=0.02)
    assert outcome.empty_share == pytest.approx(0.988, abs=0.002) if u == 0 else True


@pytest.mark.long
def test_the_informed_beside_those_who_poll() -> None:
    scenario = Scenario(Poisson(np.ones(30)), np.full(30, 0.1), 28, 360.0, 0.01, warmup=60.0)
    polling, informed = simulate(scenario, Adaptive()), simulate(scenario, Informed())
    assert informed.empty_share <= 0.05
    assert informed.completion <= 2 * polling.completion


@pytest.mark.parametrize(("share", "enough"), [(0.9, False), (1.1, True)])
def test_workers_that_round_robin_needs(share: float, enough: bool) -> None:
    """Figure 5: S + (n - 1) (hot - 1) e, for the hot queue is visited as often as each of the others."""
    queues, hot, empty_poll = 50, 20, 0.01
    rates = np.ones(queues)
    rates[-1] = hot
    needed = 0.1 * rates.sum() + (queues - 1) * (hot - 1) * empty_poll
    scenario = Scenario(Poisson(rates), np.full(queues, 0.1), round(share * needed), 600.0, empty_poll, limit=600)
    assert simulate(scenario, RoundRobin()).failed is not enough


@pytest.mark.parametrize("queues", [50, long(200)])
def test_load_sharing_needs_little_more_than_the_load(queues: int) -> None:
    rates = np.ones(queues)
    rates[-1] = 40
    workers = int(1.1 * rates.sum() * 0.1 + 1)
    outcome = simulate(Scenario(Poisson(rates), np.full(queues, 0.1), workers, 700.0, 0.01, limit=600), Adaptive())
    assert not outcome.failed


def test_load_sharing_among_quick_and_slow_queues() -> None:
    """Shares are of time: were they of visits, the quick queues would wait for what is not needed at the slow ones."""
    service, rates = np.repeat([0.01, 0.2], 50), np.ones(100)
    workers = int(1.1 * (service * rates).sum() + 1)
    outcome = simulate(Scenario(Poisson(rates), service, workers, 400.0, 0.01, limit=600), Adaptive())
    assert outcome.longest < 60


@pytest.mark.long
def test_lists_that_chance_made_unfair_do_not_stay() -> None:
    """Records like clockwork: after the first notice there is none, and the lists must be drawn anew all the same."""
    queues, seconds = 200, 700
    phases = np.random.default_rng(1).random(queues)
    rates = np.ones(queues, np.int64)
    rates[-1] = 20
    times = np.concatenate([(phase + np.arange(seconds * rate)) / rate for phase, rate in zip(phases, rates)])
    order = np.argsort(times)
    trace = Trace(times[order], np.repeat(np.arange(queues), seconds * rates)[order], queues)
    outcome = simulate(Scenario(trace, np.full(queues, 0.1), 25, float(seconds), 0.01, limit=600), Adaptive())
    assert outcome.notices <= 3
    assert outcome.longest < 60


@pytest.mark.parametrize("heeds", [True, False])
def test_a_notice_ends_a_round_that_heeds_it(heeds: bool) -> None:
    asked = []

    class Walks:
        sees_ends: ClassVar[bool] = False

        def round(self, state: QueueState, asker: Asker) -> Round:
            asked.append(state.loads.version)
            return Round(np.zeros(100_000, np.int64), np.ones(100_000, np.int64), heeds_notices=heeds)

        def bound(self, queues: int, slots: int) -> int:
            return 1

    outcome = simulate(Scenario(Poisson(np.array([5.0])), np.array([0.1]), 1, 120.0, 0.01), Walks())
    assert outcome.notices > 2
    assert asked == (list(range(outcome.notices + 1))[: len(asked)] if heeds else [0])
    assert not heeds or len(asked) >= outcome.notices


@pytest.mark.parametrize("policy", [RoundRobin(), Adaptive(u=0.5), Informed()])
def test_workers_that_come_are_used_and_those_that_go_are_missed(policy: Policy) -> None:
    scenario = Scenario(Poisson(np.full(10, 4.0)), np.full(10, 0.1), 2, 300.0, 0.001)
    few = simulate(scenario, policy)
    more = simulate(Scenario(**{**vars(scenario), "changes": [(20.0, 8)]}), policy)
    gone = simulate(Scenario(**{**vars(scenario), "workers": 8, "changes": [(20.0, 2), (280.0, 8)]}), policy)
    assert few.left > 4000
    assert more.left < 200
    assert gone.left > 3000


@pytest.mark.long
def test_nothing_is_handed_out_before_it_is_there() -> None:
    """Also where workers come and go all the time, and the next look was planned for when there was none."""
    changes = [(float(second), 2 + second % 2) for second in range(1, 120)]
    scenario = Scenario(Poisson(np.array([18.0])), np.array([0.1]), 2, 120.0, 0.001, changes=changes)
    assert all(each.waits.min() >= 0 for each in runs(scenario, Informed(u=0.0)))


def test_what_a_look_left_behind_does_not_wait_for_the_next() -> None:
    scenario = Scenario(Poisson(np.array([20.0])), np.array([0.1]), 1, 100.0, 0.001)
    assert simulate(scenario, Informed(shortest=5.0, longest=5.0)).served.sum() > 900


def test_workers_that_come_back_at_once_are_all_there() -> None:
    """Those that must go finish their record first, and are taken on again if they are wanted before that."""
    scenario = Scenario(Poisson(np.array([100.0])), np.array([2.5]), 8, 400.0, 0.01, factors=exponential)
    changed = Scenario(**{**vars(scenario), "changes": [(50.0, 2), (52.0, 4), (53.0, 8)]})
    one, other = (simulate(each, RoundRobin()).served.sum() for each in (scenario, changed))
    assert other == pytest.approx(one, rel=0.1)


def test_a_queue_that_is_too_long_ends_the_run() -> None:
    outcome = simulate(Scenario(Poisson(np.array([100.0])), np.array([0.1]), 1, 100.0, 0.01, limit=600), RoundRobin())
    assert outcome.failed
    assert outcome.seconds == 7.0
    assert outcome.longest > 600


@pytest.mark.long
def test_ten_thousand_queues() -> None:
    count = 10_000
    for policy in (RoundRobin(), Adaptive(), Informed()):
        outcome = simulate(Scenario(Poisson(np.ones(count)), np.full(count, 0.1), 1_100, 3.0, 0.01), policy)
        assert outcome.served.sum() + outcome.left == outcome.arrived
        assert outcome.served.sum() > 10_000
