"""Laws of the governor: no policy lets a queue starve, shares are fair, nothing is lost or made in the simulator."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from benchmarks.governor_scenarios import Poisson, Scenario, constant, exponential
from benchmarks.governor_simulator import simulate
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.governor import POLICIES, Asker, Informed, LoadMeter, Loads, QueueState, policy_named
from hayase.governor.adaptive import drawn
from hayase.governor.governor import Governor
from hayase.governor.informed import fair_records
from hayase.governor.loads import PANES
from hayase.governor.policy import waiting_since

policies = st.sampled_from(sorted(POLICIES)).flatmap(
    lambda name: (
        st.sampled_from([0.0, 0.3, 0.9]).map(lambda u: policy_named(name, u=u))
        if hasattr(policy_named(name), "u")
        else st.just(policy_named(name))
    )
)
rates = st.sampled_from([0.0, 1e-9, 0.5, 1.0, 40.0, 1e6])
services = st.sampled_from([0.0, 1e-9, 1e-3, 0.1, 1.0, 50.0])


def array(values: list[float], kind: type = np.float64) -> np.ndarray:
    return np.array(values, kind)


@given(st.data(), policies, st.integers(1, 130), st.integers(0, 40), st.integers(1, 5))
def test_every_queue_with_records_is_visited_within_the_bound(
    data: st.DataObject, policy: object, count: int, number: int, slots: int
) -> None:
    """Whatever the loads do, however often notices come, and whatever else arrives."""
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    slots = slots if policy.sees_ends else 1
    start = data.draw(st.integers(0, 1000))
    victims = set(data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=5)))
    waiting, before, since = np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count)
    unseen = set(victims)
    for turn in range(policy.bound(count, slots)):
        arrived = random.integers(0, 4, count) * (random.random(count) < 0.7)
        arrived[sorted(victims)] += 1  # these always have some
        waiting = waiting + arrived
        since = waiting_since(since, before, waiting, float(turn))
        loads = Loads(
            random.choice([0.0, 1e-9, 1.0, 1e6], count), random.choice([0.0, 1e-3, 0.1, 50.0], count), turn // 2
        )
        answer = policy.round(QueueState(loads, 7, waiting, since), Asker(number, start + turn, slots))
        queues, records = answer.queues, answer.records
        if answer.heeds_notices:  # a notice comes right after the first visit
            queues, records = queues[:1], records[:1]
        unseen -= set(queues.tolist())
        waiting = waiting.copy()
        np.subtract.at(waiting, queues, np.minimum(records, waiting[queues]))
        waiting = np.maximum(waiting, 0)
        since = since.copy()
        since[queues] = turn
        before = waiting
    assert not unseen


@given(st.data(), policies, st.integers(1, 60), st.integers(1, 9))
def test_a_round_is_sound(data: st.DataObject, policy: object, count: int, slots: int) -> None:
    """Queues that exist, at least a record from each, finite rests; equal questions get equal answers."""
    loads = Loads(
        array(data.draw(st.lists(rates, min_size=count, max_size=count))),
        array(data.draw(st.lists(services, min_size=count, max_size=count))),
        data.draw(st.integers(0, 9)),
    )
    waiting = array(data.draw(st.lists(st.integers(0, 2**40), min_size=count, max_size=count)), np.int64)
    since = array(data.draw(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=count, max_size=count)))
    state, asker = QueueState(loads, slots, waiting, since), Asker(data.draw(st.integers(0, 99)), 3, slots)
    answer, again = policy.round(state, asker), policy.round(state, asker)
    assert (answer.queues.tolist(), answer.records.tolist()) == (again.queues.tolist(), again.records.tolist())
    assert ((answer.queues >= 0) & (answer.queues < count)).all()
    assert (answer.records >= 1).all()
    assert 0 <= answer.pause < math.inf
    assert 0 <= answer.poll_after < math.inf
    if policy.sees_ends:
        assert len(set(answer.queues.tolist())) == len(answer.queues)
        assert (answer.records <= waiting[answer.queues]).all()
        assert len(answer.queues) >= min(slots, np.count_nonzero(waiting))
        assert answer.poll_after > 0
    else:
        assert len(answer.queues) > 0


@given(st.data(), st.integers(1, 12), st.integers(1, 4), st.sampled_from([0.01, 0.5, 3.0, 100.0]))
def test_the_informed_waste_nothing_and_stay_within_their_seconds(
    data: st.DataObject, count: int, slots: int, seconds: float
) -> None:
    service = array(data.draw(st.lists(st.sampled_from([1e-3, 0.1, 0.25, 1.0]), min_size=count, max_size=count)))
    waiting = array(data.draw(st.lists(st.integers(0, 300), min_size=count, max_size=count)), np.int64)
    state = QueueState(Loads(np.ones(count), service), slots, waiting, np.arange(count) * 1.0)
    answer = Informed(seconds=seconds).round(state, Asker(slots=slots))
    given_, budget = answer.seconds(state.loads), seconds * slots
    assert given_ <= budget * (1 + 1e-9) or (answer.records == 1).all()
    left = waiting.copy()
    left[answer.queues] -= answer.records
    if left.any():
        assert given_ + service[left > 0].min() > budget * (1 - 1e-9)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from([1, 2, 3, 7])), min_size=1, max_size=8), st.integers(0, 200)
)
def test_shares_are_fair(queues: list[tuple[int, int]], seconds: int) -> None:
    """Nothing is left that a record fits into, and no queue that wants more has less than others by more than its records take."""
    waiting, service = array([w for w, _ in queues], np.int64), array([float(s) for _, s in queues])
    records = fair_records(waiting, service, float(seconds))
    assert ((records >= 0) & (records <= waiting)).all()
    work = [Fraction(int(r)) * s for r, (_, s) in zip(records, queues)]
    assert sum(work) <= seconds
    for (there, each), done in zip(queues, work):
        if done < there * each:
            assert seconds - sum(work) < each
            assert all(done + 2 * each >= other - cost for other, (_, cost) in zip(work, queues))


@given(st.lists(rates, min_size=1, max_size=9), st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=9))
def test_draws_fall_where_the_paper_says(loads: list[float], draws: list[float]) -> None:
    """The h with sum(load[:h]) <= r < sum(load[:h + 1]), found by going along."""
    total = array(loads).cumsum()[-1]
    found = drawn(array(loads), array(draws)).tolist()
    for draw, queue in zip(draws, found):
        if total == 0:
            assert queue == int(draw * len(loads))
            continue
        assert loads[queue] > 0
        upto = array(loads).cumsum()
        assert (upto[queue - 1] if queue else 0.0) <= draw * total
        assert draw * total <= upto[queue]


@given(
    st.lists(st.tuples(st.floats(0.01, 3), st.integers(0, 50), st.floats(0, 2), st.integers(0, 9)), max_size=60),
    st.sampled_from([1.0, 4.0, 20.0]),
)
def test_the_meter_measures_what_came_in_its_window(steps: list[tuple[float, int, float, int]], window: float) -> None:
    """The rate is that since a sample which is older than the window by no more than two samples are apart."""
    meter = LoadMeter(["a"], window=window)
    totals = [(0.0, 0, 0.0, 0)]
    meter.observe(0.0, *(array([each]) for each in totals[0][1:]))
    for step in steps:
        totals.append(tuple(a + b for a, b in zip(totals[-1], step)))
        before = meter.measured
        meter.observe(totals[-1][0], *(array([each]) for each in totals[-1][1:]))
        if meter.measured.rate is before.rate:
            continue
        now, ends = totals[-1][:2]
        apart = window / PANES + max(each[0] for each in steps)
        possible = [each for each in totals[:-1] if now - window - apart <= each[0] <= max(now - window, 0) + 1e-9]
        assert any(math.isclose(meter.measured.rate[0], (ends - e) / (now - t)) for t, e, _, _ in possible)
    changed = abs(meter.measured.load[0] - meter.loads.load[0])
    assert changed <= 0.2 * max(meter.loads.load[0], 0.01) * (1 + 1e-9)


@settings(max_examples=examples(25))
@given(
    st.integers(0, 10**6),
    policies,
    st.lists(st.sampled_from([0.0, 0.5, 3.0, 20.0]), min_size=1, max_size=6),
    st.integers(1, 5),
    st.sampled_from([constant, exponential]),
)
def test_nothing_is_lost_or_made_in_the_simulator(
    seed: int, policy: object, arrivals: list[float], workers: int, factors: object
) -> None:
    count = len(arrivals)
    scenario = Scenario(
        Poisson(array(arrivals)),
        np.full(count, 0.1),
        workers,
        6.0,
        0.01,
        factors=factors,
        changes=[(3.0, workers + 1)],
    )
    outcome, again = (simulate(scenario, policy, seed) for _ in range(2))
    assert outcome.arrived == outcome.served.sum() + outcome.left
    assert (outcome.waits >= 0).all()
    assert len(outcome.waits) == outcome.served.sum()
    assert outcome.empty <= outcome.polls <= outcome.empty + outcome.served.sum()
    assert outcome.waits.tolist() == again.waits.tolist()
    assert outcome.polls == again.polls
    if not policy.sees_ends:  # the time of all workers adds up, but for what they began at the very end
        spent = outcome.services.sum() + outcome.empty * 0.01 + outcome.rested
        there = 6 * workers + 3
        assert there - 0.02 * (workers + 1) <= spent
        assert spent <= there + (workers + 1) * (outcome.services.max(initial=0.01) + 1.0)


@given(st.data(), st.integers(1, 30), st.integers(1, 6))
def test_a_lane_that_is_governed_drains(data: st.DataObject, count: int, workers: int) -> None:
    """Batch after batch as decided, every record is taken, by any policy, and none twice."""
    policy = data.draw(policies)
    waiting = array(data.draw(st.lists(st.integers(0, 50), min_size=count, max_size=count)), np.int64)
    governor = Governor(policy, range(count), guess=0.1)
    for turn in range(50 * 51 * count):  # a decision is a visit of each worker at least, and a round has 51
        if not waiting.any():
            break
        for queue, records in governor.decide(float(turn), workers, waiting).records.items():
            waiting[queue] -= min(records, waiting[queue])
    assert not waiting.any()


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_the_bound_does_not_grow_faster_than_the_queues(name: str) -> None:
    policy = policy_named(name)
    assert all(1 <= policy.bound(queues, slots) <= queues for queues in (1, 7, 300) for slots in (1, 8))
