"""A writer stopped before and after every durable step, a full disk, a killed process: nothing acknowledged is lost."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
import pytest

from hayase.core.declarations import Retention, StreamDeclaration
from hayase.core.errors import StreamError, UnknownName
from hayase.core.times import BEGINNING
from hayase.streams import Appended, StreamLog, durable

STREAM = StreamDeclaration("s", "at bigint", time="at", time_unit="us", retention=Retention(age=10))
WIDER = replace(STREAM, schema="at bigint, more string")


class Stopped(BaseException):
    """The end of a process: nothing catches it, and no durable step follows it."""


class Stopper:
    """Lets so many durable steps through, and then no more: what is left undone stays undone."""

    def __init__(self, steps: int):
        self.left, self.passed = steps, 0

    def __call__(self, step: str) -> None:
        if self.passed >= self.left:
            raise Stopped(step)
        self.passed += 1


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tested is the order of the steps; the disk need not take part."""
    monkeypatch.setattr(durable.os, "fsync", lambda descriptor: None)


def table(*times: int) -> pa.Table:
    return pa.table({"at": pa.array(times, pa.int64())})


def contents(home: Path) -> tuple[int, list[int], list[int], int]:
    """Everything that a reader can see: start, times, running maximum before each, clock."""
    log = StreamLog.open(home, "s")
    index = log.index()
    times = [time for piece in log.read(index.start, index.next) for time in piece.rows.column("at").to_pylist()]
    return index.start, times, [log.running_max_at(at) for at in range(index.start, index.next)], index.clock


def prepared(home: Path) -> None:
    log = StreamLog.ensure(home, STREAM)
    for number, time in enumerate([5, 3, 8, 1]):
        log.append(table(time, time + 1), now=number, producer="p", sequence=number)
    log.advance(2)
    log.stage(home, "staged.seg", table(20, 21), now=4, producer="q", sequence=1)


def publish(home: Path) -> None:
    StreamLog.open(home, "s").publish(home / "staged.seg", clock=7, again=True)


def append(home: Path) -> None:
    StreamLog.open(home, "s").append(table(30, 31), now=5, producer="p", sequence=9)


OPERATIONS: dict[str, Callable[[Path], object]] = {
    "append": append,
    "publish": publish,
    "advance": lambda home: StreamLog.open(home, "s").advance(6),
    "finish": lambda home: StreamLog.open(home, "s").finish(),
    "compact": lambda home: StreamLog.open(home, "s").compact(at_least=2),
    "trim": lambda home: StreamLog.open(home, "s").trim(keep_from=8, now=12),
    "widen": lambda home: StreamLog.ensure(home, WIDER),
}
EMPTYING: dict[str, Callable[[Path], object]] = {
    "clear": lambda home: StreamLog.open(home, "s").clear(),
    "anew": lambda home: StreamLog.open_emptied(home, WIDER, mark="1"),
}


def stopped_at(steps: int, home: Path, operation: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the operation was stopped after so many steps; it is done otherwise."""
    with monkeypatch.context() as patch:
        patch.setattr(durable, "reached", Stopper(steps))
        try:
            operation(home)
        except Stopped:
            return True
    return False


def each_stop(origin: Path, operation: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Copies of a home in which an operation was stopped after no step, after one, after two, and so on."""
    steps = 0
    while True:
        home = origin.parent / f"{steps}"
        shutil.copytree(origin, home)
        if not stopped_at(steps, home, operation, monkeypatch):
            break
        yield home
        StreamLog.open(home, "s").compact()
        assert not list((home / "streams" / "s").rglob("*.tmp"))
        shutil.rmtree(home)
        steps += 1
    assert steps >= 4


def repeated(home: Path, sequence: int) -> bool:
    """Whether the log recognises one of the appends that were acknowledged before."""
    log = StreamLog.open(home, "s")
    rows = pa.Table.from_pylist([{"at": 1000}], schema=log.declaration.arrow_schema)
    return log.append(rows, now=2, producer="p", sequence=sequence).repeated


@pytest.mark.parametrize("name", OPERATIONS)
def test_stopped_at_every_step(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin, whole = tmp_path / "origin", tmp_path / "whole"
    prepared(origin)
    shutil.copytree(origin, whole)
    OPERATIONS[name](whole)
    before, after = contents(origin), contents(whole)
    for home in each_stop(origin, OPERATIONS[name], monkeypatch):
        assert contents(home) in (before, after)
        assert repeated(home, 2)
        OPERATIONS[name](home)
        assert contents(home) == after
        assert repeated(home, 3)


@pytest.mark.parametrize("name", EMPTYING)
def test_emptying_stopped_at_every_step_and_repeated(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = tmp_path / "origin"
    prepared(origin)
    before = contents(origin)
    for home in each_stop(origin, EMPTYING[name], monkeypatch):
        assert contents(home)[:3] in (before[:3], (8, [], []))
        EMPTYING[name](home)
        assert contents(home) == (8, [], [], BEGINNING)
        assert not repeated(home, 3)


def test_creation_stopped_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    while stopped_at(steps, tmp_path / f"{steps}", lambda home: StreamLog.ensure(home, STREAM), monkeypatch):
        home = tmp_path / f"{steps}"
        try:
            StreamLog.open(home, "s")
        except UnknownName:
            assert StreamLog.ensure(home, STREAM).append(table(1), now=0) == Appended(0, 1)
        steps += 1
    assert steps > 10


def test_a_whole_life_stopped_at_many_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes back repeats the operation that was stopped and goes on; the end is the same."""
    life = [prepared, append, *(OPERATIONS[name] for name in ("compact", "publish", "trim", "widen", "compact"))]

    def lived(home: Path, every: int) -> tuple[int, list[int], list[int], int]:
        for operation in life:
            steps = every
            while stopped_at(steps, home, operation, monkeypatch):
                steps += every  # further every time, so that it ends
        return contents(home)

    expected = lived(tmp_path / "undisturbed", 10**6)
    for every in (1, 2, 3, 5, 7, 11, 13, 29):
        assert lived(tmp_path / f"{every}", every) == expected


# ---- a full disk


@pytest.mark.parametrize("step", ["create", "write", "fsync file", "rename"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_on_disk(step: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(tmp_path)
    before = contents(tmp_path)
    log = StreamLog.open(tmp_path, "s")

    def full(reached: str) -> None:
        if reached == f"before {step}":
            raise OSError(code, os.strerror(code))

    operations: list[Callable[[], object]] = [
        lambda: log.append(table(1), now=0),
        lambda: log.compact(at_least=2),
        lambda: StreamLog.ensure(tmp_path, WIDER),
        lambda: log.stage(tmp_path, "more.seg", table(1), now=0),
    ]
    for operation in operations:
        with monkeypatch.context() as patch:
            patch.setattr(durable, "reached", full)
            with pytest.raises(StreamError, match=r'no room on disk for stream "s" .*free some space'):
                operation()
    assert contents(tmp_path) == before
    assert not list(tmp_path.rglob("*.tmp"))
    assert log.append(table(1), now=0) == Appended(8, 9)


def test_a_write_that_gets_stuck_half_way(tmp_path: Path) -> None:
    prepared(tmp_path)
    log = StreamLog.open(tmp_path, "s")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(StreamError, match="no room on disk"):
            log.append(table(*range(50_000)), now=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.rglob("*.tmp"))
    assert log.append(table(*range(50_000)), now=0) == Appended(8, 50_008)


def test_a_directory_that_cannot_be_synced_leaves_doubt_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(tmp_path)
    log = StreamLog.open(tmp_path, "s")

    def failing(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(durable.os, "fsync", failing)
        with pytest.raises(StreamError, match=r"the disk did not confirm it .*same producer and sequence"):
            log.append(table(50), now=0, producer="p", sequence=50)
    assert log.append(table(50), now=0, producer="p", sequence=50) == Appended(8, 9, repeated=True)


# ---- leftovers


def test_only_the_files_of_the_dead_are_leftovers(tmp_path: Path) -> None:
    (tmp_path / "append.1-1.tmp").write_bytes(b"half")
    with durable.temporary(tmp_path, "append") as (mine, _):
        assert durable.remove_leftovers(tmp_path) == 1
        assert list(tmp_path.iterdir()) == [mine]
    assert not list(tmp_path.iterdir())


def test_a_draft_taken_for_a_leftover_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[Path] = []

    def snatch(step: str) -> None:
        if step == "after create" and not removed:
            removed.extend(tmp_path.glob("*.tmp"))
            removed[0].unlink()

    monkeypatch.setattr(durable, "reached", snatch)
    with durable.temporary(tmp_path, "append") as (mine, _):
        assert mine.exists()
    assert removed


# ---- a process killed in earnest


def _append_for_ever(home: Path, acknowledged: Connection) -> None:
    log = StreamLog.open(home, "s")
    sequence = 100
    while True:
        log.append(table(*range(sequence, sequence + 50)), now=0, producer="killed", sequence=sequence)
        acknowledged.send(sequence)
        log.compact(at_least=4)
        sequence += 1


def test_a_killed_writer_loses_nothing_it_was_told_is_safe(tmp_path: Path) -> None:
    prepared(tmp_path)
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    writer = context.Process(target=_append_for_ever, args=(tmp_path, sender))
    writer.start()
    sender.close()
    acknowledged = [receiver.recv() for _ in range(10)]
    writer.kill()
    writer.join()
    try:
        while True:
            acknowledged.append(receiver.recv())
    except EOFError:
        receiver.close()
    log = StreamLog.open(tmp_path, "s")
    assert log.append(table(0), now=0, producer="killed", sequence=acknowledged[-1]).repeated
    _, times, maxima, _ = contents(tmp_path)
    expected = [5, 6, 3, 4, 8, 9, 1, 2]
    for sequence in range(100, acknowledged[-1] + 2):  # one more may have gone in before it could be acknowledged
        assert times[: len(expected)] == expected
        expected += range(sequence, sequence + 50)
    assert times in (expected, expected[:-50])
    assert maxima == [max(times[:at], default=BEGINNING) for at in range(len(times))]
    log.compact()
    assert not list(tmp_path.rglob("*.tmp"))
