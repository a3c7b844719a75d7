"""State segments: bounded size, number and work; any version restores the same kernel; damage is recognised."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.core.errors import DamagedState
from hayase.core.stages import Outcome, Tuples
from hayase.engine.batch import state
from hayase.engine.batch.state import (
    Bundle,
    SegmentRef,
    Upkeep,
    read_tuples,
    reclaimed_up_to,
    refs_from_json,
    segments,
)

SECTION = "numbers"
STATE = pa.schema([("k", pa.int64()), ("n", pa.int64())])


class Counts:
    """A minimal kernel: how often each key came. A later tuple of a key replaces an earlier one."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.written: dict[int, int] = {}

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        for key, count in zip(rows["k"].to_pylist(), rows["n"].to_pylist()):
            if version >= self.written.get(key, 0):
                self.counts[key], self.written[key] = count, version

    def process(self, inputs: Sequence[pa.RecordBatch], since: int, clock: int, version: int) -> Outcome:
        keys = inputs[0]["k"].to_pylist()
        for key in keys:
            self.counts[key] = self.counts.get(key, 0) + 1
            self.written[key] = version
        return Outcome(inputs[0], state=(Tuples(SECTION, self._rows(dict.fromkeys(keys))),))

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        latest = max(self.written.values(), default=0)
        kept = [key for key in dict.fromkeys(rows["k"].to_pylist()) if self.written[key] <= version]
        self.written.update((key, latest) for key in kept)
        return self._rows(kept)

    def size(self, section: str) -> int:
        return len(self.counts)

    def _rows(self, keys: Iterable[int]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([{"k": key, "n": self.counts[key]} for key in keys], schema=STATE)


def batch(keys: list[int]) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(keys, pa.int64())})


def forward(
    directory: Path, kernel: Counts, refs: tuple[SegmentRef, ...], keys: list[int], version: int
) -> tuple[SegmentRef, ...]:
    """One batch, as the reduce side does it."""
    outcome = kernel.process([batch(keys)], 0, 0, version)
    bundle = Bundle(directory, f"{version:06d}.state")
    refs = Upkeep(directory, bundle, version).forward(refs, outcome.state, kernel, (), 0)
    bundle.close()
    return refs


def restored(directory: Path, refs: tuple[SegmentRef, ...], since: Counts | None = None, at: int = 0) -> Counts:
    kernel = since or Counts()
    for each in segments(refs):
        if each.high > at:
            kernel.restore(each.section, read_tuples(directory, each, "counts"), each.high)
    return kernel


class Present(Counts):
    """Which keys are there: a key that comes again goes, and its tombstone, a zero, is forgotten in the end."""

    def process(self, inputs: Sequence[pa.RecordBatch], since: int, clock: int, version: int) -> Outcome:
        keys = inputs[0]["k"].to_pylist()
        came = {key for key in keys if key not in self.counts}
        for key in keys:
            self.counts.pop(key, None)
        self.counts.update(dict.fromkeys(came, 1))
        rows = [{"k": key, "n": int(key in came)} for key in keys]
        return Outcome(inputs[0], state=(Tuples(SECTION, pa.RecordBatch.from_pylist(rows, schema=STATE)),))

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        for key, count in zip(rows["k"].to_pylist(), rows["n"].to_pylist()):
            self.counts.pop(key, None)
            if count:
                self.counts[key] = 1

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        pairs = zip(rows["k"].to_pylist(), rows["n"].to_pylist())
        return self._rows(dict.fromkeys(key for key, count in pairs if count and key in self.counts))


@settings(deadline=None, max_examples=examples(50))
@given(st.lists(st.sets(st.integers(0, 6), max_size=5).map(list), min_size=2, max_size=30), st.integers(0, 30))
def test_the_marker_says_which_kernels_can_catch_up(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], behind: int
) -> None:
    directory = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "SLACK_ROWS", 1)
        kernel, refs, older, then = Present(), (), Present(), 0
        for version, keys in enumerate(batches, 1):
            refs = forward(directory, kernel, refs, keys, version)
            if version == behind:
                older, then = restored(directory, refs, Present()), version
        assert restored(directory, refs, Present()).counts == kernel.counts
        if then >= reclaimed_up_to(refs):
            assert restored(directory, refs, older, then).counts == kernel.counts


@settings(deadline=None, max_examples=examples(20))
@given(
    st.lists(st.lists(st.integers(0, 30), max_size=12), min_size=1, max_size=40),
    st.integers(0, 40),
    st.sampled_from([0, 4, 20]),
    st.sampled_from([8, 64, 10_000]),
)
def test_a_kernel_is_the_same_from_any_older_version(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], behind: int, spare: int, joined: int
) -> None:
    directory = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "SLACK_ROWS", spare)
        patch.setattr(state, "JOINED", joined)
        kernel, refs = Counts(), ()
        older, then = Counts(), 0
        for version, keys in enumerate(batches, 1):
            refs = forward(directory, kernel, refs, keys, version)
            if version == behind:
                older, then = restored(directory, refs), version
        assert refs_from_json(orjson.loads(orjson.dumps(refs))) == refs
        want = kernel.counts
        assert restored(directory, refs).counts == want
        assert restored(directory, refs, older, then).counts == want


def test_long_runs_of_small_batches_stay_within_twice_what_is_alive_in_few_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "SLACK_ROWS", 50)
    monkeypatch.setattr(state, "JOINED", 4_096)
    seed = random.Random(4)
    kernel, refs, read, written = Counts(), (), 0, []
    reader = state.read_tuples

    def counted(directory: Path, ref: SegmentRef, stage: str) -> pa.RecordBatch:
        nonlocal read
        rows = reader(directory, ref, stage)
        read += rows.num_rows
        return rows

    monkeypatch.setattr(state, "read_tuples", counted)
    live = 400
    for version in range(1, 501):
        keys = list({seed.randrange(live) for _ in range(10)})
        refs = forward(tmp_path, kernel, refs, keys, version)
        written.append(sum(each.rows for each in refs if each.file == f"{version:06d}.state"))
        if version > 300:
            assert sum(each.held for each in refs) <= 2 * kernel.size(SECTION) + 50 + 30
            assert len(refs) <= 8 * 4
    assert len({each.file for each in refs}) <= 32
    assert sum(written) <= 500 * 10 * 8, "every tuple is written a logarithmic number of times"
    assert read <= 500 * 10 * 60


def test_expired_tuples_are_dropped_unread(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path, "1.state")
    rows = batch([1, 2])
    waiting = [Tuples("waiting.0", rows, until=50)]
    refs = Upkeep(tmp_path, bundle, 1).forward((), waiting, Counts(), {"waiting.0"}, 10)
    bundle.close()
    (tmp_path / "1.state").unlink()
    assert len(refs) == 1
    later = Upkeep(tmp_path, Bundle(tmp_path, "2.state"), 2)
    assert later.forward(refs, [], Counts(), {"waiting.0"}, 50) == refs
    assert later.forward(refs, [], Counts(), {"waiting.0"}, 51) == ()


def test_tuples_that_expire_are_not_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "SLACK_ROWS", 1)
    kernel, refs = Counts(), ()
    for version in range(1, 4):
        bundle = Bundle(tmp_path, f"{version}.state")
        timed = Tuples(SECTION, batch([7]).append_column("n", pa.array([version])), until=100)
        refs = Upkeep(tmp_path, bundle, version).forward(refs, [timed], kernel, (), 10)
        bundle.close()
    for version in range(4, 9):
        refs = forward(tmp_path, kernel, refs, [1], version)
    assert [each.until for each in refs][:3] == [100] * 3
    assert sum(each.held for each in refs if each.until is None) <= 3


def test_nothing_to_write_makes_no_file(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path, "1.state")
    assert Upkeep(tmp_path, bundle, 1).forward((), [], Counts(), (), 0) == ()
    bundle.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "gone"])
def test_damage_is_recognised_and_named(tmp_path: Path, harm: str) -> None:
    kernel = Counts()
    refs = forward(tmp_path, kernel, (), [1, 2, 3], 1)
    path = tmp_path / refs[0].file
    data = bytearray(path.read_bytes())
    if harm == "flip":
        for at in range(refs[0].start, refs[0].start + refs[0].length, 97):
            changed = bytearray(data)
            changed[at] ^= 0x10
            path.write_bytes(changed)
            with pytest.raises(DamagedState, match=r"000001\.state"):
                read_tuples(tmp_path, refs[0], "counts")
        return
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(data[: len(data) // 2] if harm == "cut" else b"")
    with pytest.raises(DamagedState, match=r'stage "counts" .*hayase reset counts --from earliest'):
        read_tuples(tmp_path, refs[0], "counts")
