"""Every durable step of a pipeline with tables, interrupted before and after, without a JVM.

A script appends, runs, folds and resets. At each step the home is copied as it is on disk, which is what `kill -9` would
leave there; every copy is then started again and taken to the end. Steps are those of `durable`, and before and after
whatever changes a table's store. Then what no copy shows: files that come back, writes that fail, and real deaths.
"""

from __future__ import annotations

import errno
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

import hayase as hy
import purchases
from effort import LONG
from hayase.core.declarations import PipelineDeclaration
from hayase.core.errors import HayaseError
from hayase.core.stages import MAIN
from hayase.engine.batch.gate import Grants
from hayase.engine.commit.housekeeping import fold_tables
from hayase.engine.commit.ledger import Ledger
from hayase.engine.commit.manifests import Commits
from hayase.engine.definition.definitions import latest
from hayase.engine.local import InProcess
from hayase.streams import durable
from hayase.tables import rocksdb
from interruptions import Act, Deaths, Granting, check_deaths, check_full_disk, room_for_homes
from purchases import HORIZON, TABLES, answers_of, append_chunk, check, log_of


@cache
def _declaration() -> PipelineDeclaration:
    return purchases.killed_pipeline(Path("nowhere")).declaration


def _pipeline(home: Path) -> hy.Pipeline:
    pipeline = hy.Pipeline("market", home, clock=lambda: 100)
    pipeline.declaration = _declaration()
    return pipeline


def _append(number: int) -> Act:
    return Act(f"append {number}", lambda home: append_chunk(_pipeline(home), number), number + 1)


def _run(home: Path, limit: int = 100) -> None:
    pipeline = _pipeline(home)
    with pipeline.home.lock():
        pipeline.apply()
        with closing(InProcess(pipeline.home, lambda: 100, gate=Granting(Grants(limit=limit)))) as runner:
            runner.run_until_idle()


def _fold(home: Path) -> int:
    pipeline = _pipeline(home)
    with pipeline.home.lock():
        pipeline.apply()
        with closing(InProcess(pipeline.home, lambda: 100)) as runner:
            return _fold_by(pipeline, runner)


def _fold_by(pipeline: hy.Pipeline, runner: InProcess, stop: Callable[[], bool] = lambda: False) -> int:
    definition = latest(pipeline.home)
    assert definition is not None
    return fold_tables(runner.tables, runner.manifest, definition, stop)


def _reset(home: Path) -> None:
    _pipeline(home).reset("buyers")


SCRIPT = (
    _append(0),
    Act("first run", _run, 1),
    _append(1),
    Act("run in small batches", partial(_run, limit=15), 2),
    Act("fold", _fold, 2),
    _append(2),  # repeats some of what is folded
    Act("run after the fold", _run, 3),
    Act("second fold", _fold, 3),
    Act("reset", _reset, 3),
    Act("run after the reset", _run, 3),
)


def _check(home: Path, chunks: int) -> None:
    """Taken to its end, the home holds what it must, once, and nothing else."""
    _run(home)
    pipeline = _pipeline(home)
    check(pipeline, log_of(chunks), HORIZON, again=True)
    _fold(home)
    check(pipeline, log_of(chunks), HORIZON, again=True)
    assert not list(pipeline.home.staged(MAIN).iterdir())


@pytest.fixture(scope="module")
def room() -> Iterator[Path]:
    with room_for_homes() as directory:
        yield directory


def _look(home: Path) -> frozenset[tuple[str, int, int]]:
    """What is there, by name and inode; in a store files also grow. What it logs for people makes no difference."""
    found = set()
    for path in home.rglob("*"):
        with suppress(FileNotFoundError):  # a store merges its files when it likes
            if path.name not in ("LOG", "LOCK"):
                told = path.stat()
                found.add((str(path.relative_to(home)), told.st_ino, told.st_size if "tables" in path.parts else 0))
    return frozenset(found)


def _copied(home: Path, target: Path) -> Path:
    """The home as it is at one moment: RocksDB also works by itself, beside us."""
    while True:
        with suppress(FileNotFoundError, shutil.Error):
            before = _look(home)
            shutil.copytree(home, target)
            if _look(home) == before:
                return target
        shutil.rmtree(target, ignore_errors=True)


def _announced(patch: pytest.MonkeyPatch) -> None:
    """Let what changes a store announce itself, like the steps of `durable`."""
    for name in ("write", "ingest"):
        plain = getattr(rocksdb.RocksStore, name)

        def announced(self: Any, *given: Any, plain: Any = plain, name: str = name, **more: Any) -> Any:
            durable.reached(f"before {name} of a store")
            found = plain(self, *given, **more)
            durable.reached(f"after {name} of a store")
            return found

        patch.setattr(rocksdb.RocksStore, name, announced)


@pytest.fixture(scope="module")
def deaths(room: Path) -> Deaths:
    """What `kill -9` would leave at every durable step of an undisturbed run of the script, by act."""
    home = room / "undisturbed"
    home.mkdir()
    found: Deaths = {each.name: [] for each in SCRIPT}
    seen = set()
    folded = 0
    with pytest.MonkeyPatch.context() as patch:
        _announced(patch)
        for act in SCRIPT:

            def reached(step: str, act: Act = act) -> None:
                look = _look(home)
                if look not in seen:
                    seen.add(look)
                    found[act.name].append((step, _copied(home, room / f"{len(seen):04d}")))

            _copied(home, room / f"before {act.name}")
            patch.setattr(durable, "reached", reached)
            folded += act.do(home) if act.do is _fold else 0  # type: ignore[operator]
            if act.do is not _fold:
                act.do(home)
    assert folded > 20, "the script should come to fold something"
    _check(home, 3)
    return found


@pytest.mark.parametrize("act", SCRIPT, ids=lambda act: act.name)
def test_a_death_at_any_durable_step_changes_nothing(act: Act, deaths: Deaths) -> None:
    check_deaths(act, deaths, _check)


@pytest.mark.parametrize(
    "act", [each for each in SCRIPT if "run" in each.name or "fold" in each.name], ids=lambda act: act.name
)
def test_a_full_disk_is_said_and_nothing_is_lost(act: Act, deaths: Deaths, monkeypatch: pytest.MonkeyPatch) -> None:
    before = deaths[act.name][0][1].with_name(f"before {act.name}")  # the test above has used the others up
    _announced(monkeypatch)
    check_full_disk(act, before, _check, monkeypatch, each_of=4)


def _at_work(home: Path, chunks: int = 2) -> hy.Pipeline:
    """A pipeline whose last batch has just been committed."""
    for number in range(chunks):
        append_chunk(_pipeline(home), number)
        _run(home)
    return _pipeline(home)


@pytest.fixture
def kept_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[Path, bytes]:
    """The runs that were taken in, by the place from which they were."""
    kept: dict[Path, bytes] = {}
    plain = rocksdb.RocksStore.ingest

    def keeping(self: Any, files: Sequence[Path]) -> None:
        kept.update((Path(file), Path(file).read_bytes()) for file in files)
        plain(self, files)

    monkeypatch.setattr(rocksdb.RocksStore, "ingest", keeping)
    return kept


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("part", ["all", "some"])
def test_runs_that_come_back_after_they_were_taken_in_count_once(
    tmp_path: Path, kept_runs: dict[Path, bytes], folded: bool, part: str
) -> None:
    """A removal may come undone by a loss of power; then the manifest is carried out again, its files are all there."""
    home = tmp_path / "home"
    pipeline = _at_work(home)
    wanted = {name: answers_of(pipeline, name) for name in TABLES}
    if folded:
        assert _fold(home)
    latest_runs = {pipeline.home.staged(MAIN) / each.file for each in Commits(pipeline.home, MAIN).latest().runs}
    assert latest_runs
    for path in sorted(latest_runs)[: None if part == "all" else 1]:
        path.write_bytes(kept_runs[path])
    for _ in range(2):
        with closing(Ledger(pipeline.home)) as ledger:
            ledger.recover()
        assert not list(pipeline.home.staged(MAIN).iterdir())
        assert {name: answers_of(pipeline, name) for name in TABLES} == wanted
    _check(home, 2)


@pytest.mark.parametrize("folds", [False, True])
def test_a_batch_of_repeated_events_changes_nothing(tmp_path: Path, folds: bool) -> None:
    """The whole log, appended again, as far as it is not too old by now; folded after every chunk, or only at last."""
    for number in range(4):
        append_chunk(_pipeline(tmp_path), number)
        _run(tmp_path)
        assert not folds or _fold(tmp_path)
    pipeline = _pipeline(tmp_path)
    wanted = {name: answers_of(pipeline, name) for name in TABLES}
    for source, rows in log_of(4).items():
        pipeline.append(source, rows)
    _run(tmp_path)
    assert {name: answers_of(pipeline, name) for name in TABLES} == wanted
    _fold(tmp_path)
    assert {name: answers_of(pipeline, name) for name in TABLES} == wanted


def test_an_error_between_the_manifest_and_the_table_is_made_good_by_the_same_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_chunk(_pipeline(tmp_path), 0)
    pipeline = _pipeline(tmp_path)
    pipeline.apply()

    def refuse(self: Any, files: Sequence[Path]) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with closing(InProcess(pipeline.home, lambda: 100)) as runner:
        monkeypatch.setattr(rocksdb.RocksStore, "ingest", refuse)
        with pytest.raises(HayaseError, match="Input/output error"):
            runner.run_until_idle()
        monkeypatch.undo()
        runner.run_until_idle()
    _check(tmp_path, 1)


def test_a_fold_that_is_stopped_or_fails_anywhere_changes_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tmp_path / "before"
    pipeline = _at_work(before)
    wanted = {name: answers_of(pipeline, name) for name in TABLES}
    plain = rocksdb.RocksStore.write
    for fails in (False, True):
        allowed, met = 0, True
        while met:
            home = tmp_path / f"{fails} {allowed}"
            shutil.copytree(before, home)
            left, met = allowed, False

            def spent() -> bool:
                nonlocal left, met
                left -= 1
                met = met or left < 0
                return left < 0

            def failing(self: Any, *given: Any, spent: Any = spent, **more: Any) -> None:
                if spent():
                    raise OSError(errno.ENOSPC, "No space left on device")
                plain(self, *given, **more)

            pipeline = _pipeline(home)
            with closing(InProcess(pipeline.home, lambda: 100)) as runner:
                if fails:
                    monkeypatch.setattr(rocksdb.RocksStore, "write", failing)
                    with suppress(OSError, HayaseError):
                        _fold_by(pipeline, runner)
                    monkeypatch.setattr(rocksdb.RocksStore, "write", plain)
                else:
                    _fold_by(pipeline, runner, spent)
                for name in TABLES:
                    found = {tuple(key): row for key, row in runner.tables.table(name).scan(limit=1000).rows}
                    assert found == wanted[name], name
            assert {name: answers_of(pipeline, name) for name in TABLES} == wanted
            _check(home, 2)
            shutil.rmtree(home)
            allowed += 1 if allowed < 6 else 7


def test_reads_beside_batches_and_folds_see_whole_batches(tmp_path: Path) -> None:
    """Every batch brings one event of every user, so in each state of the table all of them have the same count."""
    users, batches = 30, 25 if LONG else 12
    pipeline = hy.Pipeline("steps", tmp_path, clock=lambda: 0, buckets=3)
    pipeline.stream(
        "events", "at bigint not null, id bigint, user bigint", "at", id="id", time_unit="us", max_ahead=None
    )
    pipeline.table("counts", key="user", fold_after=2, horizon=4, n=hy.Counter(), last=hy.Register())
    pipeline.rules(
        text="{source: events, rules: [{tables: {counts: {key: .user, columns: {n: '1', last: .at}}}}]}",
    )
    pipeline.apply()
    done = threading.Event()
    found: dict[str, list[tuple[int, int | None]]] = {"own": [], "other": []}

    def watch(name: str, rows: Callable[[], list[dict[str, Any]]]) -> None:
        while not done.is_set():
            seen = rows()
            states = {(row["n"], row["last"]) for row in seen} or {(0, None)}
            assert len(states) == 1, f"{name} sees parts of batches: {sorted(states)}"
            assert len(seen) in (0, users)
            found[name] += states

    with closing(InProcess(pipeline.home, lambda: 0)) as runner, ThreadPoolExecutor(3) as pool:
        runner.step()
        own = runner.tables.table("counts")
        readers = [
            pool.submit(watch, "own", lambda: [row for _, row in own.scan(limit=1000).rows]),
            pool.submit(watch, "other", lambda: list(pipeline.table("counts").rows())),
        ]
        folding = pool.submit(_fold_until, pipeline, runner, done)
        try:
            for number in range(batches):
                rows = [{"at": number, "id": number * users + user, "user": user} for user in range(users)]
                pipeline.append("events", rows)
                runner.run_until_idle()
        finally:
            done.set()
        for each in readers:
            each.result()
        assert folding.result()
    for states in found.values():
        assert states == sorted(states, key=lambda state: state[0]), "what was seen is not lost again"
        assert all(last is None or n == last + 1 for n, last in states)
    assert {(row["n"], row["last"]) for row in pipeline.table("counts").rows()} == {(batches, batches - 1)}


def _fold_until(pipeline: hy.Pipeline, runner: InProcess, done: threading.Event) -> int:
    count = 0
    while not done.is_set():
        count += _fold_by(pipeline, runner)
    return count


def test_real_deaths_at_seeded_moments(tmp_path: Path) -> None:
    """`kill -9` of a process that appends, runs and folds."""
    seed, chunks = random.Random(5), 16
    command = [sys.executable, purchases.__file__, str(tmp_path), str(chunks)]
    for _ in range(4 if LONG else 2):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _wait_for_progress(child, tmp_path, seed.randint(1, 4))
        with suppress(subprocess.TimeoutExpired):
            child.wait(seed.random() * 0.1)
        child.kill()
        child.wait()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    purchases.check_whole(tmp_path, chunks)


def _wait_for_progress(child: subprocess.Popen[bytes], home: Path, batches: int) -> None:
    begun = Commits(_pipeline(home).home, MAIN).latest().version
    while child.poll() is None and Commits(_pipeline(home).home, MAIN).latest().version < begun + batches:
        time.sleep(0.002)
    assert child.poll() in (None, 0)
