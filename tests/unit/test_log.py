"""The log of a stream: offsets, repeats, clocks, running maxima, upkeep, evolution, several writers."""

from __future__ import annotations

import multiprocessing
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from hayase.core.declarations import Retention, StreamDeclaration
from hayase.core.errors import (
    DamagedSegment,
    DamagedState,
    OffsetGone,
    SchemaMismatch,
    StreamError,
    StreamFinished,
    UnknownName,
)
from hayase.core.times import BEGINNING, END
from hayase.streams import UNKNOWN, Appended, StreamLog, durable
from hayase.streams.appends import append_conformed
from hayase.streams.log_directory import LogDirectory
from hayase.streams.log_index import segment_name
from hayase.streams.records import Conformed
from library_stand_ins import replace_in

STREAM = StreamDeclaration("s", "at bigint, text string", time="at", time_unit="us")


def table(*times: int) -> pa.Table:
    return pa.table(
        {"at": pa.array(times, pa.int64()), "text": pa.array([f"record {time}" for time in times], pa.string())}
    )


def times_of(log: StreamLog, first: int | None = None, next_: int | None = None) -> list[int]:
    index = log.index()
    pieces = log.read(index.start if first is None else first, index.next if next_ is None else next_)
    return [time for piece in pieces for time in piece.rows.column("at").to_pylist()]


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    return StreamLog.ensure(tmp_path, STREAM)


def segment_files(log: StreamLog) -> list[Path]:
    return sorted(log.path.glob("*.seg"))


def test_offsets_are_dense_and_times_may_lie_before_1970(log: StreamLog) -> None:
    assert log.append(table(-5, -9), now=0) == Appended(0, 2)
    assert log.append(table(3), now=0) == Appended(2, 3)
    index = log.index()
    assert (index.start, index.next, index.running_max, index.clock) == (0, 3, 3, BEGINNING)
    assert [(entry.before, entry.running_max) for entry in index.entries] == [(BEGINNING, -5), (-5, 3)]
    assert times_of(log) == [-5, -9, 3]


def test_an_empty_append_writes_nothing(log: StreamLog) -> None:
    log.append(table(1, 2), now=0)
    assert log.append(table(), now=0, producer="p", sequence=1) == Appended(2, 2)
    assert len(segment_files(log)) == 1


def test_reading_slices_and_knows_the_running_maximum_anywhere(log: StreamLog) -> None:
    log.append(table(5, 1, 9, 2), now=0)
    log.append(table(4, 11), now=0)
    assert times_of(log, 1, 5) == [1, 9, 2, 4]
    assert [(piece.first, piece.running_max_before) for piece in log.read(1, 5)] == [(1, 5), (4, 9)]
    assert [log.running_max_at(offset) for offset in range(7)] == [BEGINNING, 5, 5, 9, 9, 9, 11]
    assert list(log.read(6, 6)) == []
    with pytest.raises(StreamError, match="it ends before 6"):
        next(log.read(5, 7))


def test_a_repeated_append_is_recognised_also_by_another_process(log: StreamLog, tmp_path: Path) -> None:
    log.append(table(1), now=0)
    assert log.append(table(2, 3), now=0, producer="p", sequence=4) == Appended(1, 3)
    for same in (log, StreamLog.open(tmp_path, "s")):
        assert same.append(table(2, 3), now=0, producer="p", sequence=4) == Appended(1, 3, repeated=True)
        assert same.append(table(2, 3), now=0, producer="p", sequence=2) == Appended(UNKNOWN, UNKNOWN, repeated=True)
    assert log.append(table(7), now=0, producer="q", sequence=1) == Appended(3, 4)
    assert times_of(log) == [1, 2, 3, 7]
    assert not list((log.path / "staging").iterdir())


def test_publish_moves_a_staged_file(log: StreamLog, tmp_path: Path) -> None:
    staged = log.stage(tmp_path, "out.seg", table(4, 6), now=0)
    assert log.publish(staged, clock=5) == Appended(0, 2)
    assert log.index().clock == 5
    assert times_of(log) == [4, 6]
    with pytest.raises(StreamError, match="no staged segment"):
        log.publish(staged)
    assert log.publish(staged, clock=8, again=True) == Appended(UNKNOWN, UNKNOWN, repeated=True)
    assert (log.index().next, log.index().clock) == (2, 8)


def test_a_staged_file_without_records_carries_its_clock(log: StreamLog, tmp_path: Path) -> None:
    staged = log.stage(tmp_path, "out.seg", table(), now=0)
    assert log.publish(staged, clock=5) == Appended(0, 0)
    assert (log.index().next, log.index().clock, staged.exists()) == (0, 5, False)


def test_a_clock_only_moves_forward_and_leaves_one_file(log: StreamLog, tmp_path: Path) -> None:
    for clock in (3, 7, 5):
        log.advance(clock)
    assert log.index().clock == 7
    assert len(segment_files(log)) == 1
    log.append(table(9), now=0)
    assert log.index().clock == 7
    log.publish(log.stage(tmp_path, "out.seg", table(10), now=0), clock=9)
    assert log.index().clock == 9
    assert [entry.name for entry in log.index().entries] == [path.name for path in segment_files(log)]


def test_a_finished_stream_takes_repeats_and_nothing_else(log: StreamLog) -> None:
    log.append(table(1), now=0, producer="p", sequence=1)
    log.finish()
    log.finish()
    assert log.index().finished
    assert log.index().clock == END
    assert log.append(table(1), now=0, producer="p", sequence=1).repeated
    with pytest.raises(StreamFinished, match='"s" is finished'):
        log.append(table(2), now=0)
    assert not list((log.path / "staging").iterdir())


def test_an_index_sees_what_another_writer_does(log: StreamLog, tmp_path: Path) -> None:
    other = StreamLog.open(tmp_path, "s")
    for count in range(1, 20):
        (log if count % 2 else other).append(table(count), now=0)
        assert log.index().next == other.index().next == count
    assert times_of(log) == list(range(1, 20))


def test_an_index_is_reused_while_the_directory_rests(log: StreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
    from hayase.streams import log_directory

    log.append(table(1), now=0)
    changed = log.path.stat().st_mtime_ns
    replace_in(monkeypatch, log_directory, "time", time_ns=lambda: changed + 10**9, monotonic_ns=lambda: 0)
    index = log.index()
    replace_in(monkeypatch, log_directory, "os", listdir=lambda path: pytest.fail("listed again"))
    assert log.index() is index


def test_a_missing_file_is_a_gap_and_said_so(log: StreamLog, tmp_path: Path) -> None:
    for time in (1, 2, 3):
        log.append(table(time), now=0)
    segment_files(log)[1].unlink()
    with pytest.raises(StreamError, match=r"not whole: records 1 to 1 are missing before .*backup"):
        StreamLog.open(tmp_path, "s").index()


def test_overlapping_files_are_said_so(log: StreamLog, tmp_path: Path) -> None:
    log.append(table(1, 2), now=0)
    log.path.joinpath(segment_name(1, 4, 9, BEGINNING)).write_bytes(b"")
    with pytest.raises(StreamError, match="begins inside the records of"):
        StreamLog.open(tmp_path, "s").index()


def test_a_file_under_a_wrong_name_is_damage(log: StreamLog) -> None:
    log.append(table(1, 2), now=0)
    (path,) = segment_files(log)
    path.rename(log.path / segment_name(0, 3, 2, BEGINNING))
    with pytest.raises(DamagedSegment, match="it has 2 records"):
        list(log.read(0, 3))


def test_damage_is_reported_and_the_rest_stays_usable(log: StreamLog) -> None:
    log.append(table(1, 2), now=0)
    log.append(table(3), now=0)
    path = segment_files(log)[0]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedSegment, match=path.name):
        list(log.read(0, 3))
    assert times_of(log, 2, 3) == [3]
    assert log.append(table(4), now=0) == Appended(3, 4)


def test_unknown_streams_and_broken_declarations(log: StreamLog, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match='unknown stream "t"'):
        StreamLog.open(tmp_path, "t")
    with pytest.raises(UnknownName, match='unknown stream "t"'):
        StreamLog(tmp_path, replace(STREAM, name="t")).index()
    (log.path / "stream.json").write_text("{")
    with pytest.raises(DamagedState, match=r"stream\.json"):
        StreamLog.open(tmp_path, "s")


# ---- upkeep


def test_compaction_keeps_records_maxima_clocks_and_producers(log: StreamLog, tmp_path: Path) -> None:
    for number, time in enumerate([5, 1, 9, 2, 8, 3, 12, 4, 7]):
        log.append(table(time, time - 1), now=number, producer=f"p{number % 2}", sequence=number)
    log.publish(log.stage(tmp_path, "out.seg", table(6), now=0), clock=4)
    maxima = [log.running_max_at(offset) for offset in range(20)]
    old, rows = log.index(), times_of(log)
    assert log.compact() == 10
    assert log.compact() == 0
    assert len(segment_files(log)) == 1
    for same in (log, StreamLog.open(tmp_path, "s")):
        index = same.index()
        assert (index.next, index.running_max, index.clock) == (old.next, old.running_max, old.clock)
        assert times_of(same) == rows
        assert [same.running_max_at(offset) for offset in range(20)] == maxima
        assert [piece.rows.num_rows for piece in same.read(0, 19)] == [19]
        assert same.append(table(0), now=0, producer="p0", sequence=8) == Appended(16, 18, repeated=True)
        assert same.append(table(0), now=0, producer="p1", sequence=7) == Appended(14, 16, repeated=True)
    assert log.append(table(1), now=0, producer="p1", sequence=9) == Appended(19, 20)


def test_compaction_is_bounded_and_leaves_the_large_alone(log: StreamLog) -> None:
    log.append(table(*range(2000)), now=0)
    for time in range(7):
        log.append(table(time), now=0)
    assert log.compact() == 0  # seven small ones are not worth it
    log.append(table(7), now=0)
    assert log.compact() == 8
    assert [entry.next for entry in log.index().entries] == [2000, 2008]
    for time in range(9):
        log.append(table(time), now=0)
    assert log.compact(target_rows=8) == 8
    size = max(path.stat().st_size for path in segment_files(log)[-1:])
    for time in range(9):
        log.append(table(time), now=0)
    assert log.compact(target_bytes=3 * size, at_least=3) == 3


def test_readers_survive_compaction_under_their_feet(log: StreamLog) -> None:
    for time in range(12):
        log.append(table(time), now=0)
    reader = log.read(0, 12)
    seen = [next(reader).rows.column("at")[0].as_py()]
    assert log.compact() == 12
    seen += [time for piece in reader for time in piece.rows.column("at").to_pylist()]
    assert seen == list(range(12))


def test_retention_by_age_and_size_respects_what_is_still_needed(tmp_path: Path) -> None:
    log = StreamLog.ensure(tmp_path, replace(STREAM, retention=Retention(age=10)))
    for now in range(0, 50, 5):
        log.append(table(100 - now), now=now, producer="p", sequence=now)
    log.advance(3)
    assert log.trim(keep_from=3, now=40) == 3
    assert log.trim(keep_from=10, now=40) == 3
    index = log.index()
    assert (index.start, index.next, index.running_max, index.clock) == (6, 10, 100, 3)
    assert index.entries[0].before == log.running_max_at(6) == 100
    assert times_of(log) == [70, 65, 60, 55]
    with pytest.raises(OffsetGone, match=r"records 2 to 5 .* first one left is 6"):
        next(log.read(2, 8))
    assert len(segment_files(log)) == 5  # four with records, one with the clock
    bounded = StreamLog.ensure(tmp_path, replace(STREAM, retention=Retention(size=1)))
    assert bounded.trim(keep_from=9, now=0) == 3
    assert bounded.trim(keep_from=10, now=0) == 1
    fresh = StreamLog.open(tmp_path, "s")
    assert (fresh.index().next, fresh.index().running_max, fresh.index().clock) == (10, 100, 3)
    assert fresh.append(table(1), now=0, producer="p", sequence=45) == Appended(9, 10, repeated=True)
    assert fresh.append(table(1), now=0, producer="p", sequence=46) == Appended(10, 11)


def test_without_a_retention_nothing_goes(log: StreamLog) -> None:
    log.append(table(1), now=0)
    assert log.trim(keep_from=1, now=10**18) == 0


def test_what_files_without_records_said_outlives_them(tmp_path: Path) -> None:
    log = StreamLog.ensure(tmp_path, replace(STREAM, retention=Retention(age=10)))
    log.advance(77)
    log.append(table(1), now=0)
    assert log.trim(keep_from=1, now=100) == 1
    assert (log.index().start, log.index().clock) == (1, 77)


def test_clear_forgets_everything_but_the_offsets(log: StreamLog, tmp_path: Path) -> None:
    other = StreamLog.open(tmp_path, "s")
    log.append(table(5, 6), now=0, producer="p", sequence=1)
    assert other.append(table(5, 6), now=0, producer="p", sequence=1).repeated
    log.finish()
    log.clear()
    log.clear()
    index = other.index()
    assert (index.start, index.next, index.running_max, index.clock, index.finished) == (
        2,
        2,
        BEGINNING,
        BEGINNING,
        False,
    )
    assert other.append(table(1), now=0, producer="p", sequence=1) == Appended(2, 3)
    assert times_of(log) == [1]


def test_anew_takes_any_declaration_and_once_per_mark(log: StreamLog, tmp_path: Path) -> None:
    log.append(table(5, 6), now=0)
    other = StreamDeclaration("s", "when timestamp, n int", time="when")
    fresh = StreamLog.open_emptied(tmp_path, other, mark="7")
    assert (fresh.index().start, fresh.index().next) == (2, 2)
    rows = pa.table({"when": pa.array([1], pa.timestamp("us", tz="UTC")), "n": pa.array([1], pa.int32())})
    fresh.append(rows, now=0)
    assert StreamLog.open_emptied(tmp_path, other, mark="7").index().next == 3
    assert StreamLog.open_emptied(tmp_path, other, mark="7").index().start == 2
    assert StreamLog.open_emptied(tmp_path, other, mark="8").index().start == 3
    assert StreamLog.open(tmp_path, "s").declaration == other


# ---- evolution


def test_added_nullable_columns_are_null_in_older_records(log: StreamLog, tmp_path: Path) -> None:
    log.append(table(1), now=0)
    wider = replace(STREAM, schema="at bigint, text string, more double", slack=5)
    new = StreamLog.ensure(tmp_path, wider)
    new.append(pa.table({"at": [2], "text": ["x"], "more": [1.5]}), now=0)
    log.append(table(3), now=0)  # a writer that does not know yet
    assert StreamLog.open(tmp_path, "s").declaration == wider
    assert [value for piece in new.read(0, 3) for value in piece.rows.column("more").to_pylist()] == [None, 1.5, None]
    assert new.compact(at_least=2) == 3
    (piece,) = new.read(0, 3)
    assert piece.rows.schema == wider.arrow_schema
    assert piece.rows.column("more").to_pylist() == [None, 1.5, None]
    assert times_of(log) == [1, 2, 3]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"schema": "at bigint"}, 'column "text" is missing'),
        ({"schema": "at bigint, text int"}, 'column "text" is int and was string'),
        ({"schema": "text string, at bigint"}, "another order than at, text"),
        ({"schema": "at bigint, text string, more int not null"}, 'column "more" is not null and is new'),
        ({"schema": "at bigint, text string not null"}, 'column "text" is not null and was nullable'),
        ({"time_unit": "ms"}, "time_unit is ms and was us"),
        ({"schema": "at bigint, text string, then bigint", "time": "then"}, "the time column is then and was at"),
    ],
)
def test_other_changes_are_refused_with_the_way_out(
    log: StreamLog, tmp_path: Path, change: dict[str, str], complaint: str
) -> None:
    with pytest.raises(SchemaMismatch, match=complaint + ".*under a new name"):
        StreamLog.ensure(tmp_path, replace(STREAM, **change))
    assert StreamLog.open(tmp_path, "s").declaration == STREAM


# ---- several threads and processes


def test_threads_may_share_a_log(log: StreamLog) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda n: log.append(table(n), now=0, producer=f"p{n % 2}", sequence=n), range(24)))
    kept = sorted(answer.first for answer in answers if not answer.repeated)
    assert kept == list(range(log.index().next))
    assert set(times_of(log)) >= {22, 23}  # a sequence that comes after a later one of its producer is a repeat


def _write_many(home: Path, producer: str, count: int) -> None:
    log = StreamLog.open(home, "s")
    for sequence in range(count):
        log.append(table(sequence, -sequence), now=0, producer=producer, sequence=sequence)
        log.append(table(sequence, -sequence), now=0, producer=producer, sequence=sequence)
        if sequence % 3 == 2:
            log.compact(at_least=3)


def test_several_processes_write_compact_and_read_at_once(log: StreamLog, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(tmp_path, f"p{each}", 10)) for each in range(2)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        for piece in log.read(0, log.index().next):
            assert piece.running_max_before == log.running_max_at(piece.first)
        writers[0].join(0.01)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert log.index().next == 40
    assert sorted(times_of(log)) == sorted([t for n in range(10) for t in (n, -n)] * 2)
    assert durable.remove_leftovers(log.path / "staging") == 0


def test_how_far_a_read_goes_is_bounded_by_records_and_bytes(tmp_path: Path) -> None:
    declaration = StreamDeclaration("wide", "time bigint, text string", "time", time_unit="us")
    log = StreamLog.ensure(tmp_path, declaration)
    assert log.within(0, 10, 1000) == 0
    for number in range(4):
        rows = {"time": range(number * 10, number * 10 + 10), "text": ["x" * 1000] * 10}
        log.append(pa.table(rows, schema=declaration.arrow_schema), now=0)
    assert log.within(0, 1_000_000, 10**9) == 40
    assert log.within(5, 7, 10**9) == 12
    assert log.within(0, 1_000_000, 1) == 1
    assert 10 < log.within(0, 1_000_000, 25_000) < 30
    assert log.within(40, 5, 1) == 40


def test_appenders_join_small_segments_when_there_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hayase.streams.log.MANY_SEGMENTS", 16)
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    listings = []
    looked = LogDirectory.listing
    monkeypatch.setattr(LogDirectory, "listing", lambda self: listings.append(1) or looked(self))
    for at in range(100):
        append_conformed(tmp_path, STREAM, Conformed(table(at)), now=0, producer="p", sequence=at)
    log = StreamLog(tmp_path, STREAM)
    assert times_of(log) == list(range(100))
    assert len(log.index().entries) < 40
    assert len(listings) < 100  # one that stays open need not look at the directory each time
    for at in range(100, 130):  # processes that append once each
        StreamLog(tmp_path, STREAM).append(table(at), now=0)
    assert len(log.index().entries) < 40
    assert append_conformed(tmp_path, STREAM, Conformed(table(99)), now=0, producer="p", sequence=99).repeated


def test_a_log_that_was_removed_is_made_again(tmp_path: Path) -> None:
    for _ in range(2):
        assert append_conformed(tmp_path, STREAM, Conformed(table(1, 2)), now=0).first == 0
        shutil.rmtree(tmp_path / "streams")


def test_several_segments_are_published_in_order_and_the_last_one_moves_the_clock(
    log: StreamLog, tmp_path: Path
) -> None:
    files = [log.stage(tmp_path, f"{at}.seg", table(at), now=0) for at in (5, 3, 9)]
    assert log.publish_all(files, clock=4) == [Appended(0, 1), Appended(1, 2), Appended(2, 3)]
    assert times_of(log) == [5, 3, 9]
    index = StreamLog.open(tmp_path, "s").index()
    assert (index.next, index.clock_at(2), index.clock) == (3, BEGINNING, 4)
    assert not any(path.exists() for path in files)


def test_segments_of_which_some_were_published_before_are_published_once(log: StreamLog, tmp_path: Path) -> None:
    files = [log.stage(tmp_path, f"{at}.seg", table(at), now=0) for at in (1, 2)]
    log.publish(files[0])
    for _ in range(2):
        log.publish_all(files, clock=7, again=True)
    assert times_of(log) == [1, 2]
    assert log.index().clock == 7


def test_the_head_tells_of_published_segments_only_after_their_names_are_synced(
    log: StreamLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure, a head that is ahead of the files would look like lost records."""
    files = [log.stage(tmp_path, f"{at}.seg", table(at), now=0) for at in (1, 2)]
    heads: list[tuple[str, int]] = []
    monkeypatch.setattr(durable, "reached", lambda step: heads.append((step, LogDirectory(log.path, "s").head().next)))
    log.publish_all(files)
    assert ("before rename", 0) in heads
    synced = heads.index(("after fsync directory", 0))
    assert all(head == 0 for _, head in heads[:synced])
    assert [step for step, _ in heads[:synced]].count("after rename") == 2
    assert LogDirectory(log.path, "s").head().next == 2
