"""The reduce side: cached kernels that are current, behind, ahead or lost give the same results; damaged state is not used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import hayase as hy
import shop
from hayase.core.errors import DamagedState
from hayase.core.stages import MAIN
from hayase.engine.batch import reduce_side
from hayase.engine.batch.kernel_cache import KernelCache, KernelKey, forget_kernels, kernels
from hayase.engine.batch.messages import Inbox
from hayase.engine.batch.offsets import Batch, Offset
from hayase.engine.batch.report import Figures, Part, Report
from hayase.engine.batch.stage_runtime import build_runtimes
from hayase.engine.batch.state import SegmentRef
from hayase.engine.commit.manifests import Commits
from hayase.engine.definition.definitions import stages_of
from hayase.engine.local import InProcess
from hayase.streams.reorder_buffer import rows_at, rows_between
from hayase.testing import trial
from shop import Event, check, expected

EVENTS = [Event(at, "abc"[at % 3], at) for at in range(30)]


@pytest.fixture
def pipeline(tmp_path: Path) -> hy.Pipeline:
    return shop.shop(tmp_path, 5, ["spend"])


def run(pipeline: hy.Pipeline, runner: InProcess, first: int, last: int) -> None:
    for each in EVENTS[first:last]:
        pipeline.append("events", [each.row()])
        runner.run_until_idle()


def test_a_report_survives_json() -> None:
    ref = SegmentRef("totals", "f", 0, 8, "ab", 3, 1, 2, until=7, skip=1)
    report = Report(
        1, Batch(Offset(), Offset(1)), (Part("s", "f", 3, 9),), {"s.1": (ref,)}, {"s": Figures(5, 3, 1, 1, 3)}
    )
    assert Report.from_json(report.as_json()) == report


def test_figures_add_up() -> None:
    figures = Figures(5, 3, 1, 1, 3, 0.5)
    figures.add(Figures(1, 1))
    assert figures == Figures(6, 4, 1, 1, 3, 0.5)


def _no_commit(*_: object) -> None:
    raise OSError("lost on the way")


def test_a_kernel_that_is_behind_or_ahead_or_lost_is_brought_to_the_last_commit(
    pipeline: hy.Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.apply()
    runner = InProcess(pipeline.home, lambda: 0)
    one, another = KernelCache(), KernelCache()
    with monkeypatch.context() as patch:
        patch.setattr(reduce_side, "kernels", one)
        run(pipeline, runner, 0, 5)
        patch.setattr(reduce_side, "kernels", another)  # as if another worker had the bucket for a while
        run(pipeline, runner, 5, 15)
        patch.setattr(reduce_side, "kernels", one)  # now behind by many versions
        run(pipeline, runner, 15, 20)
    with monkeypatch.context() as patch:
        patch.setattr(Commits, "commit", _no_commit)
        with pytest.raises(OSError, match="lost"):
            run(pipeline, runner, 20, 22)  # now ahead of what was committed
    run(pipeline, runner, 21, 30)
    pipeline.finish("events")
    runner.run_until_idle()
    check(pipeline, expected(EVENTS, 5, finished=True))


def test_kernels_of_stages_that_are_gone_are_dropped(pipeline: hy.Pipeline) -> None:
    pipeline.apply()
    forget_kernels()
    runner = InProcess(pipeline.home, lambda: 0)
    run(pipeline, runner, 0, 5)
    for _ in range(3):
        pipeline.reset("spend")
        runner.run_until_idle()
    assert {key.identity for key in kernels} == {"spend.4"}


def key(bucket: int, lane: str = MAIN, stage: str = "s.1") -> KernelKey:
    return KernelKey("home", lane, "epoch", stage, "f", bucket)


def test_the_cache_evicts_the_least_recently_used_kernel(pipeline: hy.Pipeline) -> None:
    (runtime,) = build_runtimes([stages_of(pipeline.apply())["spend"]], 0, 1)
    cache = KernelCache(limit=2)
    for bucket in (0, 1):
        cache.put(key(bucket), runtime)
    assert cache.take(key(0)) is runtime
    assert cache.take(key(0)) is None, "it is taken out while a task uses it"
    cache.put(key(0), runtime)
    cache.put(key(2), runtime)
    assert list(cache) == [key(0), key(2)]


def test_the_cache_drops_what_a_lane_has_left_behind(pipeline: hy.Pipeline) -> None:
    (runtime,) = build_runtimes([stages_of(pipeline.apply())["spend"]], 0, 1)
    cache = KernelCache()
    other, gone, kept = key(0, lane="operations"), key(0, stage="s.0"), key(1)
    for each in (other, gone, kept):
        cache.put(each, runtime)
    cache.retain("home", MAIN, "epoch", {("s.1", "f")})
    assert list(cache) == [other, kept]
    cache.retain("home", MAIN, "another epoch", {("s.1", "f")})
    assert list(cache) == [other]


def test_results_do_not_depend_on_what_the_cache_holds(pipeline: hy.Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.apply()
    monkeypatch.setattr(reduce_side, "kernels", KernelCache(limit=1))
    runner = InProcess(pipeline.home, lambda: 0)
    run(pipeline, runner, 0, 30)
    pipeline.finish("events")
    runner.run_until_idle()
    check(pipeline, expected(EVENTS, 5, finished=True))


def test_a_bucket_without_a_header_is_refused() -> None:
    with pytest.raises(DamagedState, match="bucket 3 of lane main got no header"):
        Inbox.of(3, MAIN, [])


def test_damaged_state_stops_the_run_and_nothing_is_lost_when_it_is_restored(pipeline: hy.Pipeline) -> None:
    pipeline.apply()
    run(pipeline, InProcess(pipeline.home, lambda: 0), 0, 20)
    sound = {path: path.read_bytes() for path in pipeline.home.state(MAIN).iterdir()}
    assert sound
    for path, data in sound.items():
        path.write_bytes(data[:-1] if len(data) % 2 else bytes([data[0] ^ 1]) + data[1:])
    forget_kernels()
    pipeline.append("events", [each.row() for each in EVENTS[20:]])
    with pytest.raises(DamagedState, match=r"restore it from a copy, or .*hayase reset \w+ --from earliest"):
        pipeline.run_until_idle(spark=False)
    for path, data in sound.items():
        path.write_bytes(data)
    pipeline.finish("events")
    pipeline.run_until_idle(spark=False)
    check(pipeline, expected(EVENTS, 5, finished=True))


def test_damaged_state_can_be_left_behind_by_a_reset(pipeline: hy.Pipeline) -> None:
    pipeline.append("events", [each.row() for each in EVENTS])
    pipeline.run_until_idle(spark=False)
    for path in pipeline.home.state(MAIN).iterdir():
        path.write_bytes(b"")
    forget_kernels()
    pipeline.reset("spend")
    pipeline.finish("events")
    pipeline.run_until_idle(spark=False)
    check(pipeline, expected(EVENTS, 5, finished=True))


def test_records_leave_the_state_when_they_are_processed(pipeline: hy.Pipeline) -> None:
    pipeline.apply()
    runner = InProcess(pipeline.home, lambda: 0)
    run(pipeline, runner, 0, 30)
    waiting = [ref for refs in runner.manifest.states["spend.1"].values() for ref in refs if ref.section == "waiting.0"]
    clock = runner.manifest.clocks["spend"]
    assert waiting
    assert all(ref.until is not None and ref.until >= clock for ref in waiting)
    pipeline.finish("events")
    runner.run_until_idle()
    left = [ref for refs in runner.manifest.states["spend.1"].values() for ref in refs if ref.section == "waiting.0"]
    assert left == []


def test_records_that_wait_may_have_more_text_than_one_batch_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a lower limit of Arrow, records that wait, leave together and are kept in state come in several batches."""

    def answers() -> tuple[list[Any], list[Any]]:
        with trial() as p:
            p.stream("s", schema="at bigint, k bigint, text string", time="at", time_unit="s", slack="1000 seconds")
            p.query("longest", "select k, max(text) as text, count(*) as n from s [Range 50 seconds] group by k")
            p.query("bad", "Istream(select k, cast(max(text) as bigint) as n from s [Range 5 seconds] group by k)")
            for lot in range(4):
                times = [(7 * each + 13 * lot) % 97 for each in range(90)]
                p.append("s", [{"at": at, "k": at % 3, "text": f"{at:05}" * 20} for at in times])
                p.run()
                p.restart()
            p.append("s", [{"at": 3000, "k": 0, "text": "1"}])
            p.finish("s")
            p.run()
            letters = sorted(letter["reason"] for letter in p.dead_letters())
            return p.intervals("longest"), letters

    whole = answers()
    for place in ("hayase.streams.row_buffer.MOST_BYTES", "hayase.engine.batch.state.MOST_BYTES"):
        monkeypatch.setattr(place, 3_000)
    monkeypatch.setattr("hayase.engine.batch.steps.STEP_BYTES", 1_500)
    assert answers() == whole
    assert whole[0]


def test_rows_of_several_batches_are_found_by_position() -> None:
    batches = [pa.record_batch({"n": pa.array([*range(first, first + 4)])}) for first in (0, 4, 8)]
    table = pa.Table.from_batches(batches)
    assert rows_at(table, np.array([9, 0, 5])).column("n").to_pylist() == [9, 0, 5]
    assert rows_between(table, 3, 9).column("n").to_pylist() == [3, 4, 5, 6, 7, 8]
    assert rows_between(table, 3, 3).num_rows == 0
