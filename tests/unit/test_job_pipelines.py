"""Jobs in whole pipelines, in this process: a real log, deaths and errors at durable steps, when jobs fire, what is refused."""

from __future__ import annotations

import errno
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import access_log
import hayase as hy
from access_log import (
    APACHE,
    Conditions,
    Moment,
    after_all,
    check_figures,
    disturbed,
    moved,
    plain,
    statistics,
    summed,
    total,
)
from effort import LONG, sample
from examples import access_monitor
from hayase.core.errors import HayaseError
from hayase.engine.batch.offsets import Firing
from hayase.engine.commit.manifests import Manifest
from hayase.engine.local import InProcess
from hayase.streams import durable
from hayase.tables import rocksdb
from hayase.testing import START, Trial, at, trial

SECOND = 1_000_000


# ------------------------------------------------------------------------------------------------ a real log


def words(record: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for word in record["line"].split():
        yield word, 1


@pytest.mark.skipif(not APACHE.exists(), reason="the real access log is not here")
@pytest.mark.parametrize(
    ("buckets", "limit", "at_once"), [pytest.param(1, 1_000_000, True, marks=pytest.mark.long), (3, 2_300, False)]
)
def test_the_facts_of_a_real_log(tmp_path: Path, buckets: int, limit: int, at_once: bool) -> None:
    pipeline = moved(access_monitor.p, tmp_path, buckets)
    job = pipeline.job("words", reads="lines", every="5 seconds")
    job.map(words)
    job.reduce("sum")
    log = access_log.apache_requests()
    script = [Moment(3_000, 2, 2, limit)] * 3
    disturbed(pipeline, "lines", [each.row() for each in log], script, tasks=2, at_once=at_once)
    counted = {200: 9_125, 304: 445, 404: 213, 301: 164, 206: 45, 500: 3, 416: 2, 403: 2}
    assert summed(pipeline, "statuses", "status", "hits") == counted
    hits = summed(pipeline, "addresses", "address", "hits")
    assert (len(hits), hits.total()) == (1_753, 9_999)
    wanted = statistics(log)
    assert hits == wanted.hits
    assert summed(pipeline, "addresses", "address", "bytes") == wanted.bytes
    assert total(pipeline, "words") == wanted.words
    stored = {(row["address"], row["hour"]): row["hits"] for row in pipeline.table("rates").rows()}
    assert stored == wanted.hourly
    busy = [{"address": address, **told} for address, told in plain(pipeline, "busy")]
    assert sorted(busy, key=json.dumps) == wanted.busy
    (letter,) = pipeline.dead_letters()
    assert "parse raised ValueError: this is not a line of an access log" in letter["reason"]
    assert letter["offset"] == next(number for number, each in enumerate(log) if each.address is None)
    check_figures(pipeline)


# ------------------------------------------------------------------------------------------------ deaths and errors

CHUNKS = 3


def _append(home: Path, number: int) -> None:
    access_log.append_chunk(_pipeline(home), access_log.log_of(CHUNKS), number, CHUNKS)


def _pipeline(home: Path) -> hy.Pipeline:
    return moved(access_monitor.p, home, 2)


def _run(home: Path, limit: int = 1_000_000) -> Manifest:
    pipeline = _pipeline(home)
    with pipeline.home.lock():
        pipeline.apply()
        with closing(InProcess(pipeline.home, after_all, gate=Conditions(limit=limit))) as runner:
            return runner.run_until_idle()


def _complete(home: Path) -> None:
    """Take a home to its end; it holds what it must, once."""
    for number in range(CHUNKS):
        _append(home, number)
    pipeline = _pipeline(home)
    if not pipeline.results("lines").log.index().finished:
        pipeline.finish("lines")
    _run(home)
    access_log.check(pipeline, access_log.log_of(CHUNKS))


@pytest.fixture
def room() -> Iterator[Path]:
    """A place for many homes: in memory, if that can be."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


@pytest.fixture
def begun(room: Path) -> Path:
    """A home in which the tables are loaded, one part of the log is processed, and another waits."""
    access_log.monitor(room / "home", 2)
    _append(room / "home", 0)
    _run(room / "home")
    _append(room / "home", 1)
    return room / "home"


def _copied(home: Path, target: Path) -> Path:
    """The home as it is at one moment: RocksDB also works by itself, beside us."""
    while True:
        with suppress(FileNotFoundError, shutil.Error):
            before = {each.relative_to(home) for each in home.rglob("*")}
            shutil.copytree(home, target)
            if before == {each.relative_to(home) for each in home.rglob("*")}:
                return target
        shutil.rmtree(target, ignore_errors=True)


def test_a_death_at_any_durable_step_changes_nothing(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The home is copied as it is on disk, at some of the steps and around whatever a table takes in: that is what `kill -9`
    would leave there."""
    copies: list[tuple[str, Path]] = []
    steps = 0

    def copied(step: str) -> None:
        copies.append((step, _copied(begun, begun.with_name(f"{len(copies)}"))))

    def reached(step: str) -> None:
        nonlocal steps
        steps += 1
        if steps % 47 == 1:
            copied(step)

    ingest = rocksdb.RocksStore.ingest

    def ingesting(self: Any, files: Sequence[Path]) -> None:
        copied("before a table takes in a batch")
        ingest(self, files)
        copied("after a table has taken in a batch")

    with monkeypatch.context() as patch:
        patch.setattr(durable, "reached", reached)
        patch.setattr(rocksdb.RocksStore, "ingest", ingesting)
        _run(begun, limit=40)
    assert {"before a table takes in a batch"} < {step for step, _ in copies}
    _complete(begun)
    for step, home in sample(copies, most=6):
        try:
            _complete(home)
        except Exception as error:
            raise AssertionError(f'after a death at "{step}": {error}') from error


@dataclass
class _Failing:
    """One durable step fails, the n-th."""

    left: int
    met: bool = False

    def __call__(self, step: str) -> None:
        self.left -= 1
        if self.left == 0:
            self.met = True
            raise OSError(errno.EIO, "Input/output error")


def test_after_an_error_at_any_durable_step_the_same_runner_goes_on(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, met = 1, True
    while met:
        home = begun.with_name(f"{number}")
        shutil.copytree(begun, home)
        failing = _Failing(number)
        pipeline = _pipeline(home)
        with (
            pipeline.home.lock(),
            closing(InProcess(pipeline.home, after_all, gate=Conditions(limit=25))) as runner,
        ):
            with monkeypatch.context() as patch, suppress(OSError, HayaseError):
                patch.setattr(durable, "reached", failing)
                runner.run_until_idle()
            runner.run_until_idle()
        _complete(home)
        shutil.rmtree(home)
        met = failing.met
        number = number * 2 + 5 if LONG else number * 4 + 9
    assert number > 50


# ------------------------------------------------------------------------------------------------ firings


def status(record: dict[str, Any]) -> tuple[int, int]:
    return record["status"], 1


def _counting(t: Trial) -> InProcess:
    """A runner of a job that counts, which lets it fire when its time has come."""
    t.stream("logs", "time timestamp, status int")
    job = t.job("counts", reads="logs", every="2 seconds")
    job.map(status)
    job.reduce("count")
    t.apply()
    return InProcess(t.home, t.clock, at_once=False)


def _come(t: Trial, *statuses: int) -> None:
    t.append("logs", [{"time": at(0), "status": each} for each in statuses])


def test_a_job_fires_at_multiples_of_its_interval_without_drift() -> None:
    with trial() as t, closing(_counting(t)) as runner:
        runner.run_until_idle()
        fired = []
        for _ in range(40):
            _come(t, 200)
            before = len(t.rows("counts"))
            runner.run_until_idle()
            if len(t.rows("counts")) > before:
                fired.append(t.clock() // SECOND)
            t.clock.advance("700 milliseconds")
        begin = int(START.timestamp())
        assert [each - begin for each in fired] == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26]
        firing = t.progress().offset.firings["counts"]
        assert firing.missed == 0
        assert firing.number == fired[-1] // 2
        t.clock.advance("2 seconds")
        runner.run_until_idle()
        assert total(t, "counts") == {200: 40}


def test_a_firing_without_records_is_no_batch() -> None:
    with trial() as t, closing(_counting(t)) as runner:
        _come(t, 200)
        runner.run_until_idle()
        version = runner.manifest.version
        for _ in range(20):
            t.clock.advance("2 seconds")
            assert not runner.step()
        assert runner.manifest.version == version
        assert t.progress().offset.firings["counts"].missed == 0
        _come(t, 404)
        runner.run_until_idle()
        assert t.progress().offset.firings["counts"].missed == 0, "nothing waited meanwhile"


def test_firings_that_pass_while_records_wait_are_counted_as_missed() -> None:
    with trial() as t, closing(_counting(t)) as runner:
        _come(t, 200)
        runner.run_until_idle()
        t.clock.advance("500 milliseconds")
        _come(t, 200, 404)
        t.clock.advance("9 seconds")  # the lane was busy: firings at 2, 4 and 6 passed, that at 8 comes late
        runner.run_until_idle()
        begin = int(START.timestamp()) // 2
        assert t.progress().offset.firings["counts"] == Firing(begin + 4, 3)
        assert total(t, "counts") == {200: 2, 404: 1}


def test_a_firing_takes_all_that_is_there() -> None:
    with trial() as t, closing(_counting(t)) as runner:
        runner.run_until_idle()
        for _ in range(5):
            _come(t, 200, 200, 404)
        runner.run_until_idle()
        assert sorted(plain(t, "counts")) == [(200, 10), (404, 5)]


def test_a_run_until_idle_waits_for_no_interval() -> None:
    with trial() as t:
        t.stream("logs", "time timestamp, status int")
        job = t.job("counts", reads="logs", every="1 day")
        job.map(status)
        job.reduce("count")
        for _ in range(3):
            _come(t, 200)
            t.run()
        assert list(plain(t, "counts")) == [(200, 1)] * 3


# ------------------------------------------------------------------------------------------------ what is refused


def shares(batch: pa.RecordBatch) -> pa.RecordBatch:
    values = batch.column("status")
    if pc.any(pc.equal(values, 13)).as_py():
        raise ValueError("unlucky")
    return pa.RecordBatch.from_arrays([values, pc.divide(1000, values)], names=["status", "share"])


def test_of_a_batch_only_the_rows_at_fault_are_refused() -> None:
    with trial() as t:
        t.stream("logs", "time timestamp, status int")
        t.job("shares", reads="logs").map(shares, schema="status int, share int", batches=True)
        _come(t, *range(1, 20), 0, 13)
        t.run()
        assert [(row["status"], row["share"]) for row in t.rows("shares")] == [
            (each, 1000 // each) for each in range(1, 20) if each != 13
        ]
        refused = {each["offset"]: each["reason"] for each in t.dead_letters()}
        assert set(refused) == {12, 19, 20}
        assert "shares raised ValueError: unlucky" in refused[12]
        assert "ArrowInvalid: divide by zero" in refused[19]
        check_figures(t)


def heavy(record: dict[str, Any]) -> tuple[str, str]:
    return "k", "x" * (record["status"] << 20)


def unsteady(record: dict[str, Any]) -> tuple[int, int]:
    ATTEMPTS[record["status"]] += 1
    if ATTEMPTS[record["status"]] < record["status"]:
        raise ConnectionError("not yet")
    return record["status"], 1


ATTEMPTS: Counter[int] = Counter()


def test_values_that_are_too_large_are_refused() -> None:
    with trial() as t:
        t.stream("logs", "time timestamp, status int")
        t.job("heavy", reads="logs").map(heavy)
        _come(t, 1, 17, 2)
        t.run()
        assert [len(value) >> 20 for _, value in plain(t, "heavy")] == [1, 2]
        (letter,) = t.dead_letters()
        assert letter["offset"] == 1
        assert "heavy: the value has 17,825,794 bytes as JSON; at most 16,777,216 fit" in letter["reason"]


def test_attempts() -> None:
    ATTEMPTS.clear()
    with trial() as t:
        t.stream("logs", "time timestamp, status int")
        t.job("tried", reads="logs").map(unsteady, attempts=3)
        _come(t, 1, 2, 3, 4)
        t.run()
        assert [key for key, _ in plain(t, "tried")] == [1, 2, 3]
        (letter,) = t.dead_letters()
        assert f"unsteady raised ConnectionError: not yet ({__file__}, line " in letter["reason"]
        assert "in 3 attempts" in letter["reason"]
        assert 'raise ConnectionError("not yet")' in letter["reason"], "the traceback shows the line"
        check_figures(t)


def updated(key: int, values: list[int]) -> Iterator[Any]:
    yield hy.to("seen", key, {"hits": sum(values) if key != 13 else "many"})
    yield key, sum(values)


def test_an_update_that_a_table_does_not_take_is_a_dead_letter_of_its_own() -> None:
    with trial() as t:
        t.stream("logs", "time timestamp, status int")
        t.table("seen", key="status", hits=hy.Counter())
        job = t.job("counts", reads="logs")
        job.map(status)
        job.reduce(updated, also="seen")
        _come(t, 200, 13, 200, 404, 13)
        t.run()
        assert total(t, "counts") == {200: 2, 13: 2, 404: 1}
        assert {row["status"]: row["hits"] for row in t.table("seen").rows()} == {200: 2, 404: 1}
        (letter,) = t.dead_letters()
        assert letter["stage"] == "seen"
        assert "hits" in letter["reason"]
        check_figures(t)


# ------------------------------------------------------------------------------------------------ changes


def one(record: dict[str, Any]) -> Iterator[Any]:
    yield hy.to("seen", record["status"], {"hits": 1})
    yield record["status"], 1


def ten(record: dict[str, Any]) -> Iterator[Any]:
    yield hy.to("seen", record["status"], {"hits": 10})
    yield record["status"], 10


def test_a_changed_function_counts_from_the_next_record_and_after_a_reset_from_the_first() -> None:
    with trial() as t:
        t.stream("logs", "time timestamp, status int")
        t.table("seen", key="status", hits=hy.Counter())
        t.job("counts", reads="logs").map(one, also="seen")
        _come(t, 200, 200)
        t.run()
        t.remove("counts")
        t.job("counts", reads="logs").map(ten, also="seen")
        _come(t, 200)
        t.run()
        assert (total(t, "counts"), t.table("seen").get(200)) == ({200: 12}, {"hits": 12})
        t.reset("counts")
        t.run()
        assert (total(t, "counts"), t.table("seen").get(200)) == ({200: 30}, {"hits": 30})


def test_a_sliding_reduce_cannot_change_without_a_reset() -> None:
    with trial() as t:
        t.stream("logs", "time timestamp, status int")
        t.job("counts", reads="logs").reduce(key="status", window="4 seconds", every="2 seconds", n="count(*)")
        _come(t, 200, 200)
        t.run()
        t.remove("counts")
        t.job("counts", reads="logs").reduce(key="status", window="6 seconds", every="2 seconds", n="count(*)")
        with pytest.raises(HayaseError, match="hayase reset counts"):
            t.run()
        t.reset("counts")
        t.append("logs", [{"time": at(5), "status": 404}])
        t.finish("logs")
        t.run()
        assert [(row["status"], row["n"], row["time"]) for row in t.rows("counts")] == [
            (200, 2, at(0)), (200, 2, at(2)), (200, 2, at(4)),
        ]  # fmt: skip
