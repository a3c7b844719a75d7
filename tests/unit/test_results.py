"""Results over logs written by hand: intervals, changes, snapshots, and up to where they are final."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hayase.core.declarations import Retention, StreamDeclaration
from hayase.core.errors import DamagedSegment, HayaseError
from hayase.engine.commit.housekeeping import run_housekeeping
from hayase.engine.results import snapshots
from hayase.engine.results.query_results import Results
from hayase.streams import StreamLog
from hayase.testing import at as moment
from hayase.testing import trial

Told = tuple[str, int, int, int | None, int]
"""A record: value, row_id, valid_from, valid_to, changed_at."""


def lifetimes(kind: str = "bigint", unit: str | None = "s", retention: Retention | None = None) -> StreamDeclaration:
    return StreamDeclaration(
        "r", f"v string, row_id bigint, valid_from {kind}, valid_to {kind}, changed_at {kind}", "changed_at",
        time_unit=unit, ordered=True, lifetimes=True, retention=retention or Retention(),
    )  # fmt: skip


def write(log: StreamLog, told: Sequence[Told], clock: int | None) -> None:
    """A part of a batch; the last one says the clock, in seconds."""
    names = log.declaration.arrow_schema.names
    columns = {name: [each[at] for each in told] for at, name in enumerate(names)}
    if log.declaration.time_unit is None:
        for name in names[2:]:
            columns[name] = [None if each is None else each * 1_000_000 for each in columns[name]]  # type: ignore[operator]
    table = pa.table(columns, schema=log.declaration.arrow_schema)
    staged = log.stage(log.path / "staging", "part", table, now=0)
    log.publish(staged, None if clock is None else clock * 1_000_000)


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    """a lives [1, 4), b [2, open), c [3, 9): all before 6 is final."""
    made = StreamLog.ensure(tmp_path, lifetimes())
    write(made, [("a", 1, 1, None, 1), ("b", 2, 2, None, 2)], 3)
    write(made, [("c", 3, 3, 9, 3)], None)
    write(made, [("a", 1, 1, 4, 4)], 6)
    return made


def test_intervals_tell_when_rows_are_valid(log: StreamLog) -> None:
    assert Results(log).intervals() == [({"v": "a"}, 1, 4), ({"v": "b"}, 2, None), ({"v": "c"}, 3, 9)]
    table = Results(log).intervals_table()
    assert table.to_pydict() == {"v": ["a", "b", "c"], "valid_from": [1, 2, 3], "valid_to": [4, None, 9]}


def test_changes_go_up_to_where_results_are_final(log: StreamLog) -> None:
    assert Results(log).changes() == [
        (1, "+", {"v": "a"}),
        (2, "+", {"v": "b"}),
        (3, "+", {"v": "c"}),
        (4, "-", {"v": "a"}),
    ]
    write(log, [("d", 4, 9, 11, 9)], 10)
    assert Results(log).changes()[4:] == [(9, "-", {"v": "c"}), (9, "+", {"v": "d"})]
    assert Results(log).changes_table().column_names == ["event_time", "change", "v"]


@pytest.mark.parametrize(("time", "valid"), [(0, ""), (1, "a"), (3, "abc"), (4, "bc"), (5, "bc"), (None, "bc")])
def test_at_gives_what_is_valid_then(log: StreamLog, time: int | None, valid: str) -> None:
    assert [row["v"] for row in Results(log).at(time)] == list(valid)


def test_at_an_instant_that_is_not_final_is_an_error(log: StreamLog) -> None:
    assert Results(log).final() == 5
    with pytest.raises(HayaseError, match=r'"r" is final up to 5, and 6 is after that; append later records'):
        Results(log).at(6)
    log.finish(8_000_000)
    assert [row["v"] for row in Results(log).at(8)] == ["b", "c"]
    assert Results(log).final() == 8
    with pytest.raises(HayaseError, match="final up to 8, and 9 is after that; the inputs end there"):
        Results(log).at(9)


def test_times_come_in_the_type_of_the_stream_and_are_taken_in_any(tmp_path: Path) -> None:
    log = StreamLog.ensure(tmp_path, lifetimes("timestamp", None))
    write(log, [("a", 1, 1, 4, 1)], 3)
    results = Results(log)
    second = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert results.intervals() == [({"v": "a"}, second, second.replace(second=4))]
    for time in (second, second.replace(tzinfo=None), "1970-01-01T00:00:01Z", 1_000_000):
        assert results.at(time) == [{"v": "a"}]
    assert results.final() == datetime(1970, 1, 1, 0, 0, 2, 999_999, tzinfo=UTC)
    with pytest.raises(HayaseError, match=r"final up to 1970-01-01T00:00:02\.999999Z"):
        results.at("1970-01-01T00:00:03Z")


def test_texts_and_moments_are_taken_for_integers(log: StreamLog) -> None:
    results = Results(log)
    assert results.at("4") == results.at("1970-01-01T00:00:04.5Z") == results.at(4)


def test_nothing_is_final_in_a_log_that_nobody_wrote_to(tmp_path: Path) -> None:
    results = Results(StreamLog(tmp_path, lifetimes()))
    assert (results.at(), results.intervals(), results.changes(), results.final()) == ([], [], [], None)
    with pytest.raises(HayaseError, match='nothing of "r" is final yet'):
        results.at(0)


def test_equal_rows_are_counted(tmp_path: Path) -> None:
    log = StreamLog.ensure(tmp_path, lifetimes())
    write(log, [("a", 1, 1, None, 1), ("a", 2, 1, None, 1), ("a", 3, 2, 3, 2), ("a", 2, 1, 2, 2)], 4)
    assert len(Results(log).at(1)) == len(Results(log).at(2)) == 2
    assert len(Results(log).at()) == 1
    assert [(time, sign) for time, sign, _ in Results(log).changes()] == [
        (1, "+"), (1, "+"), (2, "-"), (2, "+"), (3, "-")
    ]  # fmt: skip


class TestStreams:
    """Records of a stream that is not a relation live from their event time on."""

    @pytest.fixture
    def results(self, tmp_path: Path) -> Results:
        log = StreamLog.ensure(
            tmp_path, StreamDeclaration("s", "t bigint, valid_to string", "t", time_unit="ms", slack=2_000)
        )
        log.append(pa.table({"t": [5, 3, 9], "valid_to": ["x", "y", "z"]}), now=0)
        return Results(log)

    def test_they_never_end(self, results: Results) -> None:
        assert [(row["valid_to"], start, end) for row, start, end in results.intervals()] == [
            ("y", 3, None), ("x", 5, None), ("z", 9, None)
        ]  # fmt: skip
        assert results.intervals_table().column_names == ["t", "valid_to", "valid_from", "valid_to_"]

    def test_they_are_final_up_to_the_slack(self, results: Results) -> None:
        assert [row["valid_to"] for row in results.at()] == ["y", "x"]
        assert [sign for _, sign, _ in results.changes()] == ["+", "+"]
        with pytest.raises(HayaseError, match="final up to 6"):
            results.at(7)

    def test_a_finished_one_is_final_for_ever(self, results: Results) -> None:
        results.log.finish()
        assert len(results.at()) == len(results.at(1_000)) == 3


class TestSnapshots:
    """Written by the housekeeping; whoever reads sees no difference but the time it takes."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(snapshots, "LEAST", 2)
        monkeypatch.setattr(snapshots, "LEAST_UNDER_RETENTION", 2)

    def files(self, log: StreamLog) -> list[Path]:
        return sorted((log.path / snapshots.DIRECTORY).glob("*.rows"))

    def test_one_follows_as_many_records_as_the_last_has_rows(self, log: StreamLog) -> None:
        assert snapshots.update_snapshots(log, 0) == 4
        assert [(each.offset, each.rows) for each in snapshots.snapshots(log, log.index())] == [(2, 2), (4, 2)]
        assert snapshots.update_snapshots(log, 0) == 4
        write(log, [("d", 4, 6, 7, 6)], 7)
        assert snapshots.update_snapshots(log, 0) == 4

    def test_they_are_enough_without_the_records_before(self, log: StreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
        results = Results(log)
        expected = [results.at(time) for time in range(6)]
        snapshots.update_snapshots(log, 0)
        assert [results.at(time) for time in range(6)] == expected
        read: list[tuple[int, int]] = []
        monkeypatch.setattr(log, "read", lambda first, next_: read.append((first, next_)) or iter(()))
        assert [row["v"] for row in results.at(5)] == ["b", "c"]
        assert read == []

    def test_what_is_in_a_snapshot_survives_retention(self, tmp_path: Path) -> None:
        log = StreamLog.ensure(tmp_path, lifetimes(retention=Retention(size=0)))
        write(log, [("a", 1, 1, None, 1), ("b", 2, 2, None, 2)], 3)
        write(log, [("c", 3, 3, 9, 3), ("a", 1, 1, 4, 4)], 6)
        assert log.trim(snapshots.update_snapshots(log, 0), 0) == 4
        results = Results(log)
        assert results.intervals() == [({"v": "b"}, 2, None), ({"v": "c"}, 3, 9)]
        assert [row["v"] for row in results.at()] == ["b", "c"]
        write(log, [("b", 2, 2, 7, 7)], 8)
        assert results.intervals() == [({"v": "b"}, 2, 7), ({"v": "c"}, 3, 9)]
        with pytest.raises(HayaseError, match="was removed by its retention; what is left begins at 5"):
            results.at(4)

    @pytest.mark.parametrize("mark", [None, "2"])
    def test_a_stream_that_begins_anew_has_none(self, log: StreamLog, mark: str | None) -> None:
        snapshots.update_snapshots(log, 0)
        again = StreamLog.open_emptied(log.path.parent.parent, log.declaration, mark)
        assert snapshots.snapshots(again, again.index()) == []
        write(again, [("z", 1, 4, None, 4)], 6)
        assert Results(again).at(5) == [{"v": "z"}]
        snapshots.update_snapshots(again, 0)
        assert self.files(again) == []

    def test_a_damaged_one_is_told_of(self, log: StreamLog) -> None:
        snapshots.update_snapshots(log, 0)
        newest = self.files(log)[-1]
        newest.write_bytes(newest.read_bytes()[:-1])
        with pytest.raises(DamagedSegment, match="remove this file"):
            Results(log).at()
        newest.unlink()
        assert [row["v"] for row in Results(log).at()] == ["b", "c"]

    def test_a_running_pipeline_keeps_them_until_the_query_is_reset(self) -> None:
        with trial() as t:
            t.stream("s", "time timestamp, k string")
            t.query("q", "select k, count(*) as n from s group by k")
            t.append("s", [{"time": moment(each), "k": "ab"[each % 2]} for each in range(20)])
            t.run()
            run_housekeeping(t.home, 0)
            expected = [t.at("q", moment(each)) for each in range(19)]
            assert len(self.files(t.results("q").log)) == 1
            t.append("s", [{"time": moment(each), "k": "c"} for each in range(20, 30)])
            t.run()
            run_housekeeping(t.home, 0)
            assert len(self.files(t.results("q").log)) == 2
            assert [t.at("q", moment(each)) for each in range(19)] == expected
            t.reset("q")
            t.run()
            assert [t.at("q", moment(each)) for each in range(19)] == expected
            run_housekeeping(t.home, 0)
            assert len(self.files(t.results("q").log)) == 1

    def test_at_reads_no_more_than_lies_between_two(self, log: StreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
        for time in range(6, 40):
            write(log, [(str(time), time, time, time + 1, time)], time + 1)
        snapshots.update_snapshots(log, 0)
        read: list[int] = []
        whole = log.read

        def counted(first: int, next_: int) -> Any:
            read.append(next_ - first)
            return whole(first, next_)

        monkeypatch.setattr(log, "read", counted)
        for time in range(10, 40):
            assert [row["v"] for row in Results(log).at(time)] == ["b", str(time)]
        assert max(read) <= 3
