"""The governor of a lane: queues, grants, rests, feedback and the measurements that it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.core.declarations import GovernorDeclaration, PipelineDeclaration, StreamDeclaration
from hayase.core.errors import UnknownName
from hayase.core.stages import MAIN, OPERATIONS
from hayase.engine.batch.gate import BATCH_ROWS, Feedback, Grants
from hayase.engine.batch.lane_governor import (
    LEAST_ROWS,
    LaneGovernor,
    Queue,
    governor_status,
    governor_statuses,
    policy_of,
    queues_of,
)
from hayase.engine.batch.offsets import Firing, Offset, Position
from hayase.engine.definition.definitions import Definition, StageRecord
from hayase.engine.home import Home
from hayase.governor import POLICIES, Informed

SECOND = 1_000_000


@dataclass
class FakeLog:
    """A log as the governor sees it: its end, and when its records were written."""

    end: int = 0
    written: int = 0
    laid_out: bool = True
    asked: int = 0

    def index(self) -> Any:
        if not self.laid_out:
            raise UnknownName("stream", "it", [])
        return self

    @property
    def start(self) -> int:
        return 0

    @property
    def next(self) -> int:
        return self.end

    def written_at(self, offset: int) -> int:
        self.asked += 1
        return self.written


def stream(name: str) -> StreamDeclaration:
    return StreamDeclaration(name=name, schema="at bigint not null", time="at", time_unit="us")


def defined(
    stages: Mapping[str, Sequence[str]],
    lane: str = OPERATIONS,
    governor: GovernorDeclaration | None = None,
    version: int = 1,
    every: Mapping[str, int] | None = None,
) -> Definition:
    records = tuple(
        StageRecord(name, name, 1, "earliest", tuple(inputs), stream(name), (every or {}).get(name), lane=lane)
        for name, inputs in stages.items()
    )
    return Definition(version, PipelineDeclaration("p", governor=governor), records, 8, Home(Path("unused")), lane)


@dataclass
class Lane:
    """A simulated lane: takes what it is granted, and sends back how long that took."""

    definition: Definition
    service: Mapping[str, float] = field(default_factory=dict)
    slots: int = 1
    order: Grants = field(default_factory=Grants)

    def __post_init__(self) -> None:
        self.governor = LaneGovernor(self.definition.lane or MAIN, self.slots)
        self.logs = {each: FakeLog() for record in self.definition.records for each in record.inputs}
        positions = {each.name: dict.fromkeys(each.inputs, Position(0)) for each in self.definition.records}
        self.offset = Offset(self.definition.version, positions)
        self.feedback = Feedback(self.slots)
        self.now = 0.0
        self.grants, self.poll_after = Grants(), 0.0

    def look(self, seconds: float = 0.0) -> dict[str, int]:
        """Let time pass and look at the logs: what a batch takes then, by stage and stream."""
        self.now += seconds
        now = round(self.now * SECOND)
        look = self.governor.decide(self.definition, self.offset, self.logs, self.order, self.feedback, now, self.now)  # type: ignore[arg-type]
        self.grants, self.poll_after = look
        taken = {}
        for stage, inputs in self.offset.positions.items():
            for name, position in inputs.items():
                count = min(look.grants.rows(stage, name), self.logs[name].end - position.at)
                if count > 0:
                    taken[f"{stage}<{name}"] = count
        return taken

    def run(self, taken: Mapping[str, int]) -> None:
        """Carry out a batch."""
        positions = {stage: dict(inputs) for stage, inputs in self.offset.positions.items()}
        work = {stage: dict(streams) for stage, streams in self.feedback.work.items()}
        for queue, count in taken.items():
            stage, name = queue.split("<")
            at = positions[stage][name].at
            positions[stage][name] = Position(at + count)
            records, seconds = work.setdefault(stage, {}).get(name, (0, 0.0))
            work[stage][name] = (records + count, seconds + count * self.service.get(stage, 0.05))
        self.offset = replace(self.offset, positions=positions)
        self.feedback = Feedback(self.slots, work)

    def step(self, seconds: float = 0.0) -> dict[str, int]:
        taken = self.look(seconds)
        self.run(taken)
        return taken

    def seen(self) -> Any:
        return self.governor.view(self.offset, self.logs, round(self.now * SECOND))  # type: ignore[arg-type]

    def queue(self, name: str) -> Any:
        return next(each for each in self.seen().queues if each.stream == name)


class TestDial:
    @pytest.mark.parametrize("policy", ["informed", "asc", "als"])
    def test_a_lane_that_gets_another_u_keeps_its_measurements(self, policy: str) -> None:
        stages = {"a": ["s"], "b": ["s"]}
        lane = Lane(
            defined(stages, governor=GovernorDeclaration(policy, (("u", 0.25),))), {"a": 0.5, "b": 0.02}, slots=2
        )
        for _ in range(20):
            lane.logs["s"].end += 3
            lane.step(1.0)
        before = lane.seen()
        lane.definition = defined(stages, governor=GovernorDeclaration(policy, (("u", 0.75),)), version=2)
        lane.offset = replace(lane.offset, definition=2)
        lane.look()
        after = lane.seen()
        assert (before.u, after.u) == (0.25, 0.75)
        for one, other in zip(after.queues, before.queues, strict=True):
            assert (one.service, one.rate) == (pytest.approx(other.service), pytest.approx(other.rate))
        assert after.queues[0].polls >= before.queues[0].polls > 0

    def test_another_policy_begins_to_measure_anew(self) -> None:
        lane = Lane(defined({"a": ["s"]}, governor=GovernorDeclaration("als")))
        lane.look()
        assert lane.seen().u == 0
        lane.definition = defined({"a": ["s"]}, governor=GovernorDeclaration("round-robin"), version=2)
        lane.offset = replace(lane.offset, definition=2)
        lane.look()
        assert (lane.seen().policy, lane.seen().u) == ("round-robin", None)


class TestQueues:
    def test_a_stage_and_a_stream_or_a_stream_for_all(self) -> None:
        stages = {"a": ["s", "t"], "b": ["s"]}
        assert queues_of(defined(stages), OPERATIONS) == {
            Queue("a", "s"): ("a",), Queue("a", "t"): ("a",), Queue("b", "s"): ("b",),
        }  # fmt: skip
        assert queues_of(defined(stages), MAIN) == {Queue("", "s"): ("a", "b"), Queue("", "t"): ("a",)}

    def test_defaults_of_a_lane_and_declared_options(self) -> None:
        usual = GovernorDeclaration()
        assert policy_of(usual, OPERATIONS) == Informed(seconds=1.0, longest=0.25)
        assert policy_of(usual, MAIN) == Informed(seconds=5.0, longest=0.05)
        own = GovernorDeclaration(options=(("u", 0.5), ("longest", 1.0)), seconds=2.0)
        assert policy_of(own, MAIN) == Informed(u=0.5, seconds=2.0, longest=1.0)


class TestOperations:
    def test_a_second_of_work_for_every_worker_as_it_is_measured(self) -> None:
        lane = Lane(defined({"slow": ["s"], "fast": ["t"]}), {"slow": 0.1, "fast": 0.01}, slots=2)
        lane.logs["s"].end = lane.logs["t"].end = 10_000
        assert lane.step() == {"slow<s": 20, "fast<t": 20}, "a guess of 50 ms each"
        assert lane.step(1.0) == {"slow<s": 10, "fast<t": 100}
        lane.slots = 6
        lane.feedback = replace(lane.feedback, slots=6)
        assert lane.step(1.0) == {"slow<s": 30, "fast<t": 300}

    @pytest.mark.parametrize(
        ("cost", "others", "seconds"),
        [(0.0, 0, 1.0), (0.05, 0, 1.0), (0.15, 1, 3.0), (0.3, 0, 6.0), (0.3, 1, 4.0), (5.0, 0, 8.0), (5.0, 3, 4.0)],
    )
    def test_batches_that_cost_much_by_themselves_get_more_work_while_there_is_a_backlog(
        self, cost: float, others: int, seconds: float
    ) -> None:
        lane = Lane(defined({"op": ["s", *(f"q{other}" for other in range(others))]}), {"op": 0.01})
        lane.logs["s"].end = 10**6
        taken = lane.step()
        for _ in range(40):
            taken = lane.step(taken["op<s"] * 0.01 + cost)
        assert taken["op<s"] == pytest.approx(seconds / 0.01, rel=0.01)

    @pytest.mark.parametrize(("waiting", "seconds"), [(10**6, 8.0), (100, 4.0), (0, 4.0)])
    def test_a_batch_gets_more_work_if_all_queues_have_a_backlog(self, waiting: int, seconds: float) -> None:
        """No record then waits for the batch that would not wait for its own queue."""
        lane = Lane(defined({"op": ["s"], "other": ["t"]}), {"op": 0.01, "other": 0.01})
        lane.logs["s"].end, taken = 10**6, {"op<s": 0}
        for _ in range(20):
            lane.logs["t"].end = lane.offset.positions["other"]["t"].at + waiting
            taken = lane.step(sum(taken.values()) * 0.01 + 5.0)
        assert sum(taken.values()) == pytest.approx(seconds / 0.01, rel=0.01)
        assert taken.get("other<t", 0) == min(waiting, seconds / 0.02)

    def test_the_first_batch_already_tells_what_one_costs(self) -> None:
        lane = Lane(defined({"op": ["s"]}), {"op": 0.01})
        lane.logs["s"].end = 10**6
        taken = lane.step()
        taken = lane.step(taken["op<s"] * 0.01 + 0.3)
        assert taken["op<s"] == pytest.approx(6.0 / 0.01, rel=0.01)

    def test_a_pause_without_a_backlog_is_no_cost_of_a_batch(self) -> None:
        lane = Lane(defined({"op": ["s"]}), {"op": 0.01})
        for _ in range(20):
            lane.logs["s"].end += 10
            assert lane.step(30.0) == {"op<s": 10}
        lane.logs["s"].end += 10**6
        assert lane.step(30.0)["op<s"] == pytest.approx(100, rel=0.01)

    @pytest.mark.parametrize(
        ("governor", "records"),
        [(GovernorDeclaration(seconds=0.5), 50), (GovernorDeclaration(options=(("longest", 1.0),)), 800)],
    )
    def test_declared_seconds_are_kept_whatever_a_batch_costs(
        self, governor: GovernorDeclaration, records: int
    ) -> None:
        lane = Lane(defined({"op": ["s"]}, governor=governor), {"op": 0.01})
        lane.logs["s"].end = 10**6
        taken = lane.step()
        for _ in range(10):
            taken = lane.step(taken["op<s"] * 0.01 + 2.0)
        assert taken["op<s"] == pytest.approx(records, rel=0.01)

    def test_there_are_no_more_workers_than_buckets(self) -> None:
        lane = Lane(defined({"slow": ["s"]}), {"slow": 0.1}, slots=100)
        lane.logs["s"].end = 10_000
        assert lane.step() == {"slow<s": 160}, "8 buckets, a second each, a guess of 50 ms"

    def test_a_light_queue_is_done_whole_beside_a_flood(self) -> None:
        lane = Lane(defined({"op": ["flood", "light"]}), slots=1)
        lane.logs["flood"].end, lane.logs["light"].end = 10**6, 3
        assert lane.step() == {"op<flood": 17, "op<light": 3}
        assert lane.governor.left_behind
        assert lane.step() == {"op<flood": 20}

    def test_at_least_one_record_however_long_it_takes(self) -> None:
        lane = Lane(defined({"op": ["s"]}), {"op": 60.0})
        lane.logs["s"].end = 5
        lane.step()
        lane.logs["s"].end = 500
        assert lane.step(300.0) == {"op<s": 1}

    def test_work_before_the_start_counts_for_the_service_time(self) -> None:
        lane = Lane(defined({"op": ["s"]}))
        lane.logs["s"].end = 1_000
        lane.feedback = Feedback(1, {"op": {"s": (100, 25.0)}})
        assert lane.look() == {"op<s": 4}

    def test_a_stage_that_began_anew_counts_from_nothing(self) -> None:
        lane = Lane(defined({"op": ["s"]}))
        lane.feedback = Feedback(1, {"op": {"s": (100, 10.0)}})
        lane.look()
        lane.feedback = Feedback(1, {"op": {"s": (10, 1.0)}})
        lane.look(1.0)
        assert lane.queue("s").service == pytest.approx(0.1)

    def test_a_log_that_another_lane_has_not_created_yet_is_empty(self) -> None:
        lane = Lane(defined({"op": ["s"]}))
        lane.logs["s"].laid_out = False
        assert lane.look() == {}
        lane.logs["s"] = FakeLog(1)
        assert lane.look() == {"op<s": 1}

    def test_a_new_definition_keeps_the_measurements(self) -> None:
        lane = Lane(defined({"op": ["s"]}), {"op": 0.25})
        lane.logs["s"].end = 1_000
        lane.step()
        lane.step(1.0)
        lane.definition = defined({"op": ["s"], "new": ["t"]}, version=2)
        assert lane.look(1.0), "it is taken up by a batch of its own, and nothing is governed"
        assert lane.grants == lane.order
        positions = {**lane.offset.positions, "new": {"t": Position(0)}}
        lane.offset, lane.logs["t"] = Offset(2, positions), FakeLog(1_000)
        assert lane.look(1.0) == {"op<s": 2, "new<t": 10}

    def test_another_policy_takes_effect_with_its_definition(self) -> None:
        lane = Lane(defined({"op": ["s"]}), {"op": 0.25})
        lane.logs["s"].end = 1_000
        lane.step()
        lane.definition = defined({"op": ["s"]}, governor=GovernorDeclaration("round-robin", seconds=3.0), version=2)
        lane.offset = replace(lane.offset, definition=2)
        assert lane.look(1.0) == {"op<s": 12}
        assert lane.seen().policy == "round-robin"

    def test_nothing_beyond_the_grants_of_the_gate_is_granted(self) -> None:
        lane = Lane(defined({"op": ["s"]}), order=Grants(limit=7))
        lane.logs["s"].end = 100
        assert lane.look() == {"op<s": 7}
        lane.order = Grants(open=False)
        lane.look()
        assert lane.grants == lane.order


class TestTheMainLane:
    def test_stages_at_equal_positions_stay_so(self) -> None:
        lane = Lane(defined({"a": ["s"], "b": ["s", "t"]}, MAIN), {"a": 1e-5, "b": 3e-5}, slots=2)
        lane.logs["s"].end = 100_000_000
        assert lane.step() == {"a<s": BATCH_ROWS, "b<s": BATCH_ROWS}
        assert lane.step(40.0) == {"a<s": 250_000, "b<s": 250_000}, "40 microseconds for both, 10 s of work"
        assert lane.queue("s").service == pytest.approx(4e-5)

    def test_all_that_is_there_is_taken_also_what_comes_after_the_look(self) -> None:
        lane = Lane(defined({"a": ["s"]}, MAIN))
        lane.logs["s"].end = 5
        lane.look()
        assert lane.grants.rows("a", "s") == BATCH_ROWS

    def test_a_few_slow_records_do_not_make_batches_small(self) -> None:
        lane = Lane(defined({"a": ["s"]}, MAIN), {"a": 0.01})
        lane.logs["s"].end = 10
        lane.step()
        lane.logs["s"].end = 10**6
        assert lane.step(1.0) == {"a<s": LEAST_ROWS}

    def test_a_stage_that_waits_for_its_time_is_looked_at_then(self) -> None:
        lane = Lane(defined({"job": ["s"]}, MAIN, every={"job": SECOND}))
        lane.offset = replace(lane.offset, firings={"job": Firing(0)})
        lane.logs["s"].end = 5
        lane.look(0.98)
        assert lane.queue("s").waiting == 0
        assert lane.poll_after == pytest.approx(0.02)
        lane.look(0.01)
        assert lane.poll_after == pytest.approx(0.01)
        assert lane.look(0.02) == {"job<s": 5}

    @pytest.mark.parametrize(("lane", "seconds"), [(MAIN, 0.05), (OPERATIONS, 0.25)])
    def test_the_looks_at_a_lane_without_stages_are_spaced(self, lane: str, seconds: float) -> None:
        empty = Lane(defined({}, lane))
        assert empty.look() == {}
        assert empty.poll_after == seconds
        assert not empty.governor.left_behind

    def test_the_looks_at_an_idle_lane_are_spaced(self) -> None:
        lane = Lane(defined({"a": ["s"]}, MAIN))
        lane.look()
        assert lane.poll_after == 0.05
        seen = lane.seen()
        assert (seen.polls, seen.empty) == (1, 1)


class TestBlindPolicies:
    def lane(self, policy: str, queues: int = 3, **options: float) -> Lane:
        governor = GovernorDeclaration(policy, tuple(options.items()))
        return Lane(defined({"op": [f"q{each}" for each in range(queues)]}, governor=governor))

    def test_visits_that_find_nothing_are_counted(self) -> None:
        lane = self.lane("round-robin")
        lane.logs["q1"].end = 100
        assert lane.step() == {"op<q1": 6}, "twenty visits of 50 ms, in rounds of three"
        lane.look()
        seen = lane.seen()
        assert [(each.polls, each.empty) for each in seen.queues] == [(2, 2), (1, 0), (2, 2)]
        assert (seen.polls, seen.empty) == (5, 4)

    def test_a_decision_that_is_not_carried_out_is_no_visit(self) -> None:
        lane = self.lane("round-robin")
        lane.logs["q1"].end = 100
        lane.look()
        lane.look()
        assert lane.queue("q1").polls == 0

    def test_nobody_looks_before_the_rest_is_over(self) -> None:
        lane = self.lane("asc", u=0.5)
        assert lane.look() == {}
        rest = lane.poll_after
        assert rest == 1.0, "without any load a rest is as long as it may be"
        before = lane.seen().polls
        for each in lane.logs.values():
            each.end = 10
        assert lane.look(rest / 2) == {}
        assert lane.poll_after == pytest.approx(rest / 2)
        assert lane.seen().polls == before
        assert lane.look(rest / 2)

    def test_the_rest_comes_after_the_batch(self) -> None:
        lane = self.lane("asc", queues=1, u=0.5)
        lane.logs["q0"].end = 1_000
        assert lane.step()
        assert lane.look(30.0) == {}
        assert lane.poll_after > 0


@settings(max_examples=examples(100), deadline=None)
@given(
    st.data(),
    st.sampled_from(sorted(POLICIES)),
    st.integers(1, 15),
    st.sampled_from([1, 1, 2]),
    st.sampled_from([MAIN, OPERATIONS]),
)
def test_no_queue_starves(data: st.DataObject, name: str, count: int, slots: int, lane_name: str) -> None:
    """Whatever arrives in the other queues, and however long their records take."""
    names = [f"q{each}" for each in range(count)]
    governor = GovernorDeclaration(name, seconds=1e-3)
    stages = {f"on_{each}": [each] for each in names}
    services = st.sampled_from([0.0, 1e-6, 0.05, 3.0])
    lane = Lane(defined(stages, lane_name, governor), {stage: data.draw(services) for stage in stages}, slots)
    random = data.draw(st.randoms(use_true_random=False))
    victim = data.draw(st.sampled_from([names[-1], *names]))
    policy = policy_of(governor, lane_name)
    bound = policy.bound(count, slots) * (1 if policy.sees_ends else 51)
    for log in lane.logs.values():
        log.end = random.choice([0, 10**7, 10**7])
    lane.logs[victim].end = max(1, lane.logs[victim].end)
    for _ in range(bound):
        taken = lane.step(random.choice([0.0, 2.0, 40.0]))
        while not lane.grants.queues:  # it rests, which is no decision
            taken = lane.step(lane.poll_after)
        if f"on_{victim}<{victim}" in taken:
            break
        for log in lane.logs.values():
            log.end += random.choice([0, 0, 1, 10**6])
    else:
        pytest.fail("it was not served within the bound")


class TestWhatIsShown:
    def test_loads_shares_lengths_and_waiting_times(self, tmp_path: Path) -> None:
        lane = Lane(defined({"op": ["s", "t"]}), {"op": 0.1})
        lane.logs["s"].end, lane.logs["t"].end = 30, 10
        lane.step()
        for each in lane.logs.values():
            each.written = SECOND
        lane.look(3.0)
        found = lane.queue("s")
        assert (found.name, found.waiting, found.waited) == ("op ← s", 20, 2.0)
        assert (found.share, found.polls, found.empty) == (0.5, 1, 0)
        assert found.service == pytest.approx(0.1)
        lane.look()
        assert lane.logs["s"].asked == 1, "the trailer of a segment is read once"

    def test_it_is_written_twice_a_second_at_most_and_read_by_others(self, tmp_path: Path) -> None:
        home = Home(tmp_path)
        lane = Lane(defined({"op": ["s"]}))
        lane.logs["s"].end = 7
        ats = []
        for _ in range(9):
            lane.look(0.125)
            lane.governor.show(home, lane.offset, lane.logs, round(lane.now * SECOND), lane.now)  # type: ignore[arg-type]
            found = governor_status(home, OPERATIONS)
            assert found is not None
            ats.append(found.at)
        assert sorted(set(ats)) == [125_000, 625_000, 1_125_000]
        assert found == lane.seen()
        assert governor_statuses(home) == (found,)

    @pytest.mark.parametrize("text", ["", "[]", '{"lane": "main"}', '{"queues": [1]}'])
    def test_measurements_that_cannot_be_read_are_none(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "gates").mkdir()
        (tmp_path / "gates" / "main.seen.json").write_text(text)
        assert governor_status(Home(tmp_path), MAIN) is None
