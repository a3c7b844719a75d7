"""Lane offsets: which records the next batch takes, and how it is cut into tasks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hayase as hy
import shop
from hayase.core.errors import StageChanged
from hayase.core.stages import MAIN
from hayase.core.times import BEGINNING, END
from hayase.engine.batch.gate import Grants
from hayase.engine.batch.offsets import Firing, Offset, Position, advance, ranges, stage_clock
from hayase.engine.definition.definitions import Definition
from hayase.engine.definition.proposals import propose
from hayase.engine.home import Home
from hayase.engine.logs import Logs
from hayase.streams import StreamLog


@pytest.fixture
def pipeline(tmp_path: Path) -> hy.Pipeline:
    return shop.shop(tmp_path, slack=3, queries=["big", "spend"])


def next_offset(pipeline: hy.Pipeline, start: Offset, grants: Grants = Grants(), now: int = 0) -> Offset:  # noqa: B008
    definition = pipeline.apply()
    return advance(start, definition, Logs(pipeline.home, definition), grants, now)


def append(pipeline: hy.Pipeline, *times: int) -> None:
    pipeline.append("events", [shop.Event(at, "a", 1).row() for at in times])


def test_an_offset_survives_json() -> None:
    offset = Offset(3, {"s": {"events": Position(7, END, 9)}}, tick=4, firings={"s": Firing(5, 2)}, settled=6)
    assert Offset.from_json(offset.as_json()) == offset


def test_a_definition_is_taken_up_by_a_batch_of_its_own(pipeline: hy.Pipeline) -> None:
    append(pipeline, 1, 2)
    begun = next_offset(pipeline, Offset())
    assert begun.positions == {name: {"events": Position(0)} for name in ("big", "spend")}
    assert ranges(Offset(), begun, slots=2) == ((),)
    assert next_offset(pipeline, begun).positions["spend"]["events"] == Position(2, clock=2 - 3, peak=2)


def test_nothing_new_is_the_same_offset(pipeline: hy.Pipeline) -> None:
    append(pipeline, 1)
    offset = next_offset(pipeline, next_offset(pipeline, Offset()))
    assert next_offset(pipeline, offset) == offset
    assert next_offset(pipeline, Offset(), Grants(open=False)) == Offset()


def test_grants_limit_each_stage_on_its_own(pipeline: hy.Pipeline) -> None:
    append(pipeline, 5, 9, 7, 8)
    begun = next_offset(pipeline, Offset())
    moved = next_offset(pipeline, begun, Grants(limit=3, stages={"big": 1}))
    assert moved.positions["big"]["events"] == Position(1, clock=2, peak=5)
    assert moved.positions["spend"]["events"] == Position(3, clock=6, peak=9)
    closed = next_offset(pipeline, moved, Grants(limit=0))
    assert closed == moved


def test_each_queue_of_a_stage_gets_what_it_is_granted(pipeline: hy.Pipeline) -> None:
    append(pipeline, 5, 9, 7, 8)
    begun = next_offset(pipeline, Offset())
    moved = next_offset(pipeline, begun, Grants(queues={"big": {"events": 2}}))
    assert moved.positions["big"]["events"].at == 2
    assert moved.positions["spend"] == begun.positions["spend"]


def test_the_stream_of_settled_letters_is_read_to_its_end(pipeline: hy.Pipeline) -> None:
    definition = pipeline.apply()
    logs = Logs(pipeline.home, definition)
    begun = advance(Offset(settled=3), definition, logs, Grants(), 0, settled_end=5)
    assert begun.settled == 3, "not in the batch that takes up a definition"
    assert advance(begun, definition, logs, Grants(open=False), 0, settled_end=5) == begun
    assert advance(begun, definition, logs, Grants(queues={}), 0, settled_end=5) == replace(begun, settled=5)
    assert Offset.from_json({"definition": 1, "tick": 0, "positions": {}}).settled == 0


class TestStreamsOfOtherLanes:
    """ "ranks" reads "spend", the output of another lane."""

    @pytest.fixture
    def definition(self, tmp_path: Path) -> Definition:
        definition = shop.shop(tmp_path, 0, ["spend", "ranks"]).apply()
        records = tuple(
            replace(each, lane="operations" if each.name == "ranks" else MAIN) for each in definition.records
        )
        return replace(definition, records=records).of_lane("operations")

    def begun(self, definition: Definition, start: Offset) -> Position:
        logs = Logs(definition.home, definition)
        return advance(start, definition, logs, Grants(), 0).positions["ranks"]["spend"]

    def test_a_log_that_does_not_exist_yet_is_empty(self, definition: Definition) -> None:
        assert self.begun(definition, Offset()) == Position(0)
        begun = Offset(1, {"ranks": {"spend": Position(0)}})
        assert advance(begun, definition, Logs(definition.home, definition), Grants(), 0) == begun

    def test_a_log_that_is_about_to_be_emptied_is_read_from_its_end_and_then_from_its_beginning(
        self, definition: Definition
    ) -> None:
        (spend,) = definition.beside
        log = StreamLog.open_emptied(definition.home.path, spend.output, mark="1")

        def write(count: int) -> None:
            columns = {each.name: pa.nulls(count, each.type) for each in spend.output.arrow_schema}
            columns[spend.output.time] = pa.array(range(count), spend.output.arrow_schema.field(spend.output.time).type)
            log.append(pa.table(columns).cast(spend.output.arrow_schema), now=0)

        write(3)
        assert self.begun(definition, Offset()) == Position(0)
        anew = tuple(replace(each, generation=2) for each in definition.records)
        later = replace(definition, version=2, records=anew, beside=(replace(spend, generation=2),))
        before = Offset(1, {"ranks": {"spend": Position(1)}})
        assert self.begun(later, before) == Position(3, first=3)
        log = StreamLog.open_emptied(definition.home.path, spend.output, mark="2")
        write(2)
        assert self.begun(later, before) == Position(3, first=3), "no new record is skipped"


def test_the_clock_of_a_finished_stream_is_the_end_once_everything_is_read(pipeline: hy.Pipeline) -> None:
    append(pipeline, 5, 9)
    pipeline.finish("events")
    begun = next_offset(pipeline, Offset())
    partly = next_offset(pipeline, begun, Grants(limit=1))
    assert partly.positions["spend"]["events"].clock == 5 - 3
    assert next_offset(pipeline, partly).positions["spend"]["events"] == Position(2, END, 9)


def test_a_reset_that_a_lane_has_not_taken_up_is_not_lost_by_the_next_change(pipeline: hy.Pipeline) -> None:
    append(pipeline, 5, 9)
    read = next_offset(pipeline, next_offset(pipeline, Offset()))
    assert read.positions["spend"]["events"].at == 2
    pipeline.reset("spend")
    pipeline.query("copy", shop.COPY)
    begun = next_offset(pipeline, read)
    assert begun.positions["spend"]["events"] == Position(0)
    assert begun.positions["big"] == read.positions["big"]


def test_the_reader_of_an_output_that_begins_anew_starts_where_that_goes_on(tmp_path: Path) -> None:
    pipeline = shop.shop(tmp_path, 0, ["spend", "ranks"])
    append(pipeline, 1, 2, 3)
    pipeline.run_until_idle(spark=False)
    pipeline.reset("spend")
    begun = next_offset(pipeline, pipeline.progress().offset)
    written = StreamLog.open(tmp_path, "spend").index().next
    assert written > 0
    assert begun.positions["ranks"]["spend"] == Position(written, first=written)
    assert begun.positions["spend"]["events"] == Position(0)


def test_idleness_moves_the_clock_in_whole_seconds(tmp_path: Path) -> None:
    second = 1_000_000
    pipeline = shop.shop(tmp_path, second, ["spend"], idle_after=2 * second)
    begun = next_offset(pipeline, Offset(), now=10**12)
    assert next_offset(pipeline, begun, now=10**12) == begun, "an empty stream is not idle"
    append(pipeline, 0)
    early = next_offset(pipeline, begun, now=2 * second - 1)
    assert early.positions["spend"]["events"].clock == -second
    later = next_offset(pipeline, early, now=10 * second + 7)
    assert later.positions["spend"]["events"].clock == 7 * second
    assert next_offset(pipeline, later, now=10 * second + 999_999) == later
    assert next_offset(pipeline, later, now=0) == later, "a clock never goes back"


@given(
    st.dictionaries(
        st.sampled_from("abcd"), st.tuples(st.integers(0, 50), st.integers(0, 90_000), st.integers(0, 9)), min_size=1
    ),
    st.integers(1, 6),
    st.integers(1, 30_000),
)
def test_tasks_cover_every_record_of_every_stage_once(
    stages: dict[str, tuple[int, int, int]], slots: int, least: int
) -> None:
    start = Offset(1, {name: {"s": Position(at, clock)} for name, (at, _, clock) in stages.items()})
    end = Offset(1, {name: {"s": Position(at + more)} for name, (at, more, _) in stages.items()})
    tasks = ranges(start, end, slots, least)
    assert 1 <= len(tasks) <= slots
    for name, (at, more, clock) in stages.items():
        mine = sorted((each.first, each.next) for task in tasks for each in task if name in each.passed)
        assert all(each.passed[name] == clock for task in tasks for each in task if name in each.passed)
        reached = at
        for first, last in mine:
            assert first == reached < last
            reached = last
        assert reached == at + more


def test_tasks_are_about_equal() -> None:
    start = Offset(1, {"s": {"x": Position(0)}})
    tasks = ranges(start, Offset(1, {"s": {"x": Position(1_000_000)}}), slots=4)
    assert [sum(map(len, task)) for task in tasks] == [250_000] * 4
    assert len(ranges(start, Offset(1, {"s": {"x": Position(100)}}), slots=4)) == 1


@given(st.lists(st.integers(0, 12), min_size=1, max_size=3))
def test_the_clock_of_a_stage_is_the_least_clock_of_its_inputs(clocks: list[int]) -> None:
    """A record at a clock may still come; earlier instants are complete, and no later one is."""
    least = stage_clock([Position(0, clock) for clock in clocks])
    assert all(clock >= least for clock in clocks)
    assert least in clocks


def test_the_clock_of_a_stage_at_the_end_and_at_the_beginning() -> None:
    assert stage_clock([Position(3, END, 7), Position(1, END, 9)]) == 10, "the greatest event time is complete too"
    assert stage_clock([Position(3, END, 7), Position(1, 5, 9)]) == 5
    assert stage_clock([Position(0, END)]) == BEGINNING, "a stream that ended before it began"
    assert stage_clock([]) == BEGINNING


def test_the_number_of_buckets_is_fixed_by_the_first_definition(tmp_path: Path) -> None:
    pipeline = shop.shop(tmp_path, 0, ["spend"])
    first: Definition = propose(Home(tmp_path), replace(pipeline.declaration, buckets=5))
    pipeline.query("big", shop.BIG)
    assert (first.buckets, pipeline.apply().buckets) == (5, 5)
    with pytest.raises(StageChanged, match=r"put 5 back, .*hayase rebucket 6"):
        propose(Home(tmp_path), replace(pipeline.declaration, buckets=6))


def test_the_clock_of_a_finished_stream_follows_the_other_streams_of_its_readers(tmp_path: Path) -> None:
    """The windows of a query empty while the other streams of its readers go on."""
    pipeline = hy.Pipeline("p", tmp_path, clock=lambda: 0)
    for name in ("s", "r"):
        pipeline.stream(name, "at bigint not null", "at", time_unit="us", max_ahead=None)
    pipeline.query("v", "select count(*) as n from s [Range 3 microseconds]")
    pipeline.query("both", "select v.n, r.at as t from v, r [Now]")
    pipeline.query("other", "select count(*) as n from s [Range 5 microseconds]")
    pipeline.append("s", [{"at": 1}])
    pipeline.finish("s")
    begun = next_offset(pipeline, Offset())
    for record in pipeline.apply().records:  # as the lane does that begins them
        StreamLog.ensure(tmp_path, record.output)
    first = next_offset(pipeline, begun)
    assert first.positions["v"]["s"].clock == 2, "the greatest event time of all streams"
    assert first.positions["other"]["s"].clock == END, "it has no readers"
    pipeline.append("r", [{"at": 7}])
    second = next_offset(pipeline, first)
    assert second.positions["v"]["s"].clock == 8
    pipeline.finish("r")
    third = next_offset(pipeline, second)
    assert (third.positions["v"]["s"].clock, third.positions["v"]["s"].peak) == (END, 7)
    assert stage_clock(third.positions["v"].values()) == 8
    assert next_offset(pipeline, third) == third


class Firings:
    """The shop, where "spend" fires every 100 microseconds, with a wall clock."""

    def __init__(self, path: Path):
        self.now = 0
        self.pipeline = hy.Pipeline("shop", path, clock=lambda: self.now)
        self.pipeline.declaration = shop.shop(path, queries=["big", "spend"]).declaration
        definition = self.pipeline.apply()
        records = tuple(replace(each, every=100 if each.name == "spend" else None) for each in definition.records)
        self.definition = replace(definition, records=records)
        self.offset = self.next(Offset(), 0)

    def next(self, start: Offset, now: int, grants: Grants = Grants()) -> Offset:  # noqa: B008
        return advance(start, self.definition, Logs(self.pipeline.home, self.definition), grants, now)

    def append(self, now: int) -> None:
        self.now = now
        append(self.pipeline, now)

    def look(self, now: int, at_once: bool = False) -> tuple[int, Firing | None]:
        """The offset of "spend" at that time, and its last firing."""
        self.offset = self.next(self.offset, now, Grants(at_once=at_once))
        return self.offset.positions["spend"]["events"].at, self.offset.firings.get("spend")


def test_a_stage_fires_at_multiples_of_its_interval(tmp_path: Path) -> None:
    firings = Firings(tmp_path)
    firings.append(10)
    assert firings.look(20) == (1, Firing(0))  # the first at once
    firings.append(30)
    assert firings.look(99) == (1, Firing(0))
    assert firings.offset.positions["big"]["events"].at == 2
    assert firings.look(104) == (2, Firing(1))  # a little late, and the next is on time all the same
    firings.append(120)
    assert firings.look(199)[0] == 2
    assert firings.look(200) == (3, Firing(2))


def test_a_stage_does_not_fire_without_records(tmp_path: Path) -> None:
    firings = Firings(tmp_path)
    firings.append(10)
    firings.look(20)
    before = firings.offset
    assert firings.look(1_000) == (1, Firing(0))
    assert firings.offset == before
    firings.append(1_005)
    assert firings.look(1_010) == (2, Firing(10))  # nothing was there to be fired at before


def test_firings_that_were_missed_are_counted(tmp_path: Path) -> None:
    firings = Firings(tmp_path)
    firings.append(10)
    firings.look(20)
    firings.append(130)  # and the lane is busy until 460: 200 and 300 pass by
    firings.append(250)
    assert firings.look(460) == (3, Firing(4, missed=2))
    firings.append(470)
    assert firings.look(500) == (4, Firing(5, missed=2))


def test_a_clock_that_is_set_back_stops_no_firing_and_numbers_only_grow(tmp_path: Path) -> None:
    firings = Firings(tmp_path)
    firings.append(5_010)
    assert firings.look(5_020) == (1, Firing(50))
    firings.append(4_990)  # set back a little: the interval is waited for once more, at most
    assert firings.look(4_999) == (1, Firing(50))
    firings.append(1_010)  # set back by much
    assert firings.look(1_020) == (3, Firing(51, ahead=41))
    assert Offset.from_json(firings.offset.as_json()) == firings.offset
    firings.append(1_030)
    assert firings.look(1_099) == (3, Firing(51, ahead=41))
    assert firings.look(1_100) == (4, Firing(52, ahead=41))
    firings.append(1_130)  # and the lane is busy until 1,460
    assert firings.look(1_460) == (5, Firing(53, missed=2, ahead=39))
    firings.append(9_000)  # set forward again
    assert firings.look(9_010) == (6, Firing(90, missed=2))
    firings.append(2_000)
    assert firings.look(2_010, at_once=True) == (7, Firing(91, missed=2, ahead=71))


def test_a_firing_that_does_not_fit_a_batch_goes_on_at_once(tmp_path: Path) -> None:
    firings = Firings(tmp_path)
    for at in (10, 11, 12):
        firings.append(at)
    firings.offset = firings.next(firings.offset, 20, Grants(limit=2))
    assert firings.offset.firings["spend"] == Firing(0, rest=True)
    firings.append(21)
    assert firings.look(22) == (4, Firing(0))
    firings.append(23)
    assert firings.look(24) == (4, Firing(0))


def test_a_run_until_idle_does_not_wait(tmp_path: Path) -> None:
    firings = Firings(tmp_path)
    firings.append(10)
    firings.look(20)
    firings.append(30)
    assert firings.look(40, at_once=True) == (2, Firing(0))
