"""The commit: one manifest makes a batch true; recovery finishes what it promised and clears away the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

import hayase as hy
import shop
from hayase.core.errors import DamagedState
from hayase.core.stages import MAIN
from hayase.core.times import END
from hayase.engine.batch.offsets import Batch, Offset, Position
from hayase.engine.batch.report import Figures, Part, Report
from hayase.engine.batch.state import SegmentRef
from hayase.engine.commit.manifests import KEPT, Commits, Manifest
from hayase.engine.local import InProcess
from hayase.streams import StreamLog
from shop import Event


@pytest.fixture
def pipeline(tmp_path: Path) -> hy.Pipeline:
    pipeline = shop.shop(tmp_path, 2, ["big", "spend"])
    pipeline.apply()
    return pipeline


def test_a_manifest_survives_json() -> None:
    ref = SegmentRef("totals", "f.state", 0, 8, "ab", 3, 1, 2)
    manifest = Manifest(
        3, "e", 2, Offset(1, {"s": {"x": Position(1, 2, 3)}}), (Part("s", "p.seg", 1, 0),), ("s",), {"s": END},
        {"s.1": {0: (ref,)}}, {"s": Figures(1, 1)}, 99,
    )  # fmt: skip
    assert Manifest.from_json(manifest.as_json()) == manifest
    assert manifest.files() == {"f.state"}


def test_before_the_first_batch_there_is_an_empty_manifest(pipeline: hy.Pipeline) -> None:
    assert Commits(pipeline.home, MAIN).latest() == Manifest()


def test_recovery_clears_away_what_no_manifest_names(pipeline: hy.Pipeline) -> None:
    pipeline.append("events", [Event(at, "a", 2).row() for at in range(9)])
    pipeline.run_until_idle(spark=False)
    state, staged = pipeline.home.state(MAIN), pipeline.home.staged(MAIN)
    before = set(state.iterdir())
    version = pipeline.progress().version
    for orphan in (
        state / f"{version:012d}-0-x.state", state / f"{version + 1:012d}-0-x.state", state / f"{version + 7:012d}-1-x.state",
        staged / f"{version + 1:012d}-x.seg", staged / f"{version + 1:012d}-y.seg.4-1.tmp",
        pipeline.home.commits(MAIN) / f"{version + 1:012d}.json.77-1.tmp",
        pipeline.home.path / "heads" / "main.ends.77-1.tmp", pipeline.home.path / "gates" / "main.json.77-1.tmp",
    ):  # fmt: skip
        orphan.parent.mkdir(exist_ok=True)
        orphan.write_bytes(b"half")
    pipeline.run_until_idle(spark=False)
    assert set(state.iterdir()) == before
    assert not list(staged.iterdir())
    assert not list(pipeline.home.path.rglob("*.tmp"))


def test_a_sweep_beside_a_running_batch_leaves_its_files_alone(pipeline: hy.Pipeline) -> None:
    runner = InProcess(pipeline.home, lambda: 0)
    runner.run_until_idle()
    version = runner.manifest.version
    for each in (version, version + 1):
        (pipeline.home.state(MAIN) / f"{each:012d}-0-x.state").touch()
    assert Commits(pipeline.home, MAIN).sweep(runner.manifest) == 1
    assert [path.name[:12] for path in pipeline.home.state(MAIN).iterdir()] == [f"{version + 1:012d}"]


def test_few_manifests_and_few_state_files_are_kept(pipeline: hy.Pipeline) -> None:
    runner = InProcess(pipeline.home, lambda: 0)
    for at in range(60):
        pipeline.append("events", [Event(at, f"user {at % 5}", 1).row()])
        runner.run_until_idle()
    assert len(list(pipeline.home.commits(MAIN).glob("*.json"))) <= KEPT
    assert {path.name for path in pipeline.home.state(MAIN).iterdir()} == runner.manifest.files()
    assert len(runner.manifest.files()) <= 2 * 24
    assert len(list((pipeline.home.path / "streams" / "spend").glob("*.seg"))) <= 61, "clocks do not pile up"


def test_a_damaged_manifest_says_so(pipeline: hy.Pipeline) -> None:
    pipeline.run_until_idle(spark=False)
    newest = max(pipeline.home.commits(MAIN).glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:-20])
    with pytest.raises(DamagedState, match=r"manifest .* cannot be read"):
        pipeline.run_until_idle(spark=False)


def test_a_batch_that_does_not_begin_where_the_last_one_ended_is_refused(pipeline: hy.Pipeline) -> None:
    commits = Commits(pipeline.home, MAIN)
    base = InProcess(pipeline.home, lambda: 0).run_until_idle()
    elsewhere = Offset(1, {"big": {"events": Position(7)}})
    reports = [Report(bucket, Batch(elsewhere, elsewhere), (), {}, {}) for bucket in range(2)]
    with pytest.raises(DamagedState, match="does not end"):
        commits.commit(base, "e", 1, reports, 0)


def test_a_missing_report_is_not_taken_for_an_empty_bucket(pipeline: hy.Pipeline) -> None:
    commits = Commits(pipeline.home, MAIN)
    base = InProcess(pipeline.home, lambda: 0).run_until_idle()
    with pytest.raises(DamagedState, match="1 reports for 2 buckets"):
        commits.commit(base, "e", 1, [Report(1, Batch(base.offset, base.offset), (), {}, {})], 0)


def test_the_clock_of_an_output_is_known_in_mid_log(pipeline: hy.Pipeline) -> None:
    """So that a stage which comes to it late need not hold everything back until it has read all of it."""
    runner = InProcess(pipeline.home, lambda: 0)
    for at in range(0, 40, 10):
        pipeline.append("events", [Event(at + each, f"user {each}", 1).row() for each in range(8)])
        runner.run_until_idle()
    index = StreamLog.open(pipeline.home.path, "spend").index()
    said = [index.clock_at(entry.next) for entry in index.entries]
    assert {0 + 7 - 2, 10 + 7 - 2, 20 + 7 - 2, 30 + 7 - 2} <= set(said)
