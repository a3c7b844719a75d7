"""An append with records and dead letters, with a fault at each of its durable steps: it has its whole effect or none."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DamagedSegment, StreamError, StreamFinished
from hayase.engine.home import Home
from hayase.engine.integrity.verification import verify
from hayase.streams import StreamLog, durable
from hayase.streams.appends import Accepted, append_conformed
from hayase.streams.records import conform

STREAM = StreamDeclaration("s", "at bigint", time="at", time_unit="us", max_ahead=None)
MIXED = [{"at": 1}, {"at": "noon"}, {"at": 2}]
BROKEN = [{"at": "noon"}]
RECORDS = {"records and dead letters": MIXED, "dead letters only": BROKEN}
Content = tuple[list[int], list[str]]


class Killed(BaseException):
    """The end of a process: nothing catches it, and no durable step follows it."""


def append(home: Path, records: list[dict[str, object]], producer: str | None = None, sequence: int = 1) -> Accepted:
    conformed = conform(records, STREAM, 0)
    return append_conformed(home, STREAM, conformed, 0, producer, sequence if producer else None)


def content(home: Path) -> Content:
    """What readers see: the records of the stream, and the records of the dead letters."""
    return _column(home, "s", "at"), _column(home, "_dead", "record")


def _column(home: Path, stream: str, column: str) -> list[object]:
    log = StreamLog.open(home, stream)
    index = log.current_index()
    return [value for piece in log.read(index.start, index.next) for value in piece.rows[column].to_pylist()]


def settled(home: Path) -> Content:
    """The same after another append to the stream, without that append."""
    append(home, [{"at": 99}])
    times, letters = content(home)
    assert times.pop() == 99
    return times, letters


@pytest.fixture
def origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which each log has been written before; the disk does not take part in the test."""
    monkeypatch.setattr(durable.os, "fsync", lambda descriptor: None)
    append(tmp_path / "origin", [{"at": 0}, {"at": "never"}])
    return tmp_path / "origin"


def with_fault(
    origin: Path, step: int, fault: Callable[[], BaseException], act: Callable[[Path], object], *, lasting: bool = False
) -> tuple[Path, BaseException | None, bool]:
    """Copy the home and act on it with a fault before a durable step, or from that step on: the home, what was raised, and
    whether the step was reached. The writes of one file count as one step. A directory that cannot be synced was changed."""
    home = origin.parent / f"{step} {lasting}"
    shutil.copytree(origin, home)
    left, reached, last = step, False, ""

    def strike(name: str) -> None:
        nonlocal left, reached, last
        if not name.startswith("before ") or name == "before remove" or (reached and not lasting):
            return
        if name != last or name != "before write":
            left -= 1
        last = name
        if left < 0:
            reached = True
            error = fault()
            if name == "before fsync directory" and isinstance(error, OSError):
                raise durable.Unsynced(errno.EIO, "Input/output error")
            raise error

    raised: BaseException | None = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable, "reached", strike)
        try:
            act(home)
        except (StreamError, Killed) as error:
            raised = error
    return home, raised, reached


def full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("producer", [None, "p"])
@pytest.mark.parametrize("kind", RECORDS)
def test_a_full_disk_at_every_step(kind: str, producer: str | None, lasting: bool, origin: Path) -> None:
    """An append that fails has no effect, now or later, and can be repeated; one that returns has its whole effect."""
    before, step, met = content(origin), 0, True
    times, letters = ([1, 2] if kind == "records and dead letters" else []), ['{"at": "noon"}']
    after = (before[0] + times, before[1] + letters)
    while met:
        home, raised, met = with_fault(
            origin, step, full, lambda home: append(home, RECORDS[kind], producer), lasting=lasting
        )
        step += 1
        unsure = raised is not None and "did not confirm" in str(raised)
        if raised is None:
            assert content(home)[0] == after[0]
        elif not unsure:
            assert content(home) == before, step
        if unsure and producer is None:
            assert settled(home) in (before, after), step
        else:
            if raised is not None:
                append(home, RECORDS[kind], producer)
            assert settled(home) == after, step
        if producer is not None:
            append(home, RECORDS[kind], producer)
            times_, letters_ = content(home)
            assert ([at for at in times_ if at != 99], letters_) == after, step
        assert not list(home.glob("streams/*/staging/*")), step
    assert step > 4


@pytest.mark.parametrize("producer", [None, "p"])
@pytest.mark.parametrize("kind", RECORDS)
def test_killed_at_every_step(kind: str, producer: str | None, origin: Path) -> None:
    """An append that is killed has its whole effect or none, once somebody appends again."""
    before, step, met = content(origin), 0, True
    whole = origin.with_name("whole")
    shutil.copytree(origin, whole)
    append(whole, RECORDS[kind], producer)
    while met:
        home, _, met = with_fault(origin, step, Killed, lambda home: append(home, RECORDS[kind], producer))
        step += 1
        if producer is not None and step % 2:
            append(home, RECORDS[kind], producer)
            assert content(home) == content(whole), step
        assert settled(home) in (before, content(whole)), step
    assert step > 4


def pending(origin: Path) -> tuple[Path, Path]:
    """A home with an append whose dead letters are not published yet, and the file that has them."""
    step = 0
    while True:
        home, _, _ = with_fault(origin, step, Killed, lambda home: append(home, MIXED, "p"))
        files = list(home.glob("streams/s/staging/letters-*.seg"))
        if files and content(home)[0] == [0, 1, 2]:
            return home, files[0]
        step += 1


def test_pending_letters_are_published_by_a_repeat_and_by_housekeeping(origin: Path) -> None:
    home, _ = pending(origin)
    assert len(content(home)[1]) == 1
    copy = home.with_name("copy")
    shutil.copytree(home, copy)
    assert append(home, MIXED, "p").repeated
    StreamLog.open(copy, "s").settle_letters()
    for each in (home, copy):
        assert content(each) == ([0, 1, 2], ['{"at": "never"}', '{"at": "noon"}'])
        assert not list(each.glob("streams/s/staging/*.seg"))


def test_a_repeat_that_refuses_other_records_keeps_the_letters_of_the_first(origin: Path) -> None:
    home, _ = pending(origin)
    assert append(home, [{"at": 1}, {"at": "noon"}, {"at": "night"}], "p").repeated
    assert content(home)[1] == ['{"at": "never"}', '{"at": "noon"}']


def test_damaged_pending_letters_are_found(origin: Path) -> None:
    home, file = pending(origin)
    damaged = bytearray(file.read_bytes())
    damaged[20] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(DamagedSegment, match=rf'"{file}" of an append to stream "s" are damaged; .* or remove it'):
        append(home, [{"at": 3}])
    findings = list(verify(Home(home)))
    assert [(finding.path, "remove it" in finding.remedy) for finding in findings] == [(str(file), True)]
    file.unlink()
    append(home, [{"at": 3}])
    assert content(home) == ([0, 1, 2, 3], ['{"at": "never"}'])


def test_what_fails_after_the_records_are_in_the_log_does_not_fail_the_append(
    origin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the head nor a superfluous file decides on an append."""
    log = StreamLog.open(origin, "s")
    log.advance(1)

    def strike(step: str) -> None:
        if step == "before remove":
            raise full()

    def written(descriptor: int, data: bytes, offset: int) -> int:
        if offset:
            raise full()
        return len(data)

    monkeypatch.setattr(durable, "reached", strike)
    monkeypatch.setattr(os, "pwrite", written)
    assert log.append(pa.table({"at": [5]}), now=0).next == 2
    assert content(origin)[0] == [0, 5]


def test_too_many_open_files_after_the_rename_leave_doubt(origin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def opened(path: object, flags: int, *more: int) -> int:
        if flags & os.O_DIRECTORY:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, flags, *more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(durable.os, "open", opened)
        with pytest.raises(StreamError, match="did not confirm"):
            append(origin, [{"at": 7}], "q")
    assert append(origin, [{"at": 7}], "q").repeated


def test_a_finished_stream_gets_no_letters(origin: Path) -> None:
    """The stream is not finished between the check and the letters."""
    append(origin, BROKEN, "p")
    log = StreamLog.open(origin, "s")
    log.finish()
    before = content(origin)
    for records in (BROKEN, MIXED):
        with pytest.raises(StreamFinished):
            append(origin, records)
    assert append(origin, BROKEN, "p").repeated
    assert content(origin) == before


def test_a_stream_is_finished_before_or_after_letters_and_not_meanwhile(
    origin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    finishing = threading.Thread(target=lambda: (StreamLog.open(origin, "s").finish(), order.append("finished")))

    def strike(step: str) -> None:
        if step == "before rename" and threading.current_thread() is not finishing and not finishing.ident:
            finishing.start()
            finishing.join(0.2)  # it waits for the append
            order.append("letters")

    monkeypatch.setattr(durable, "reached", strike)
    append(origin, BROKEN)
    finishing.join()
    assert order == ["letters", "finished"]
