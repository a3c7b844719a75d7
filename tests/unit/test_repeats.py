"""Streams with `dedupe`: what is declared, what readers and stages see, what is counted, stored and kept."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from hayase import testing
from hayase.core.declarations import Retention, StreamDeclaration
from hayase.core.errors import DamagedState, DeclarationError, StreamError
from hayase.engine.commit.housekeeping import run_housekeeping
from hayase.engine.integrity.verification import verify
from hayase.streams import durable, repeats
from hayase.streams.log import StreamLog


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dedupe": 10}, 'dedupe of stream "s" needs the column that identifies a record; name it, like "id: uuid"'),
        (
            {"dedupe": 10, "id": "id", "slack": 11},
            'dedupe of stream "s" is shorter than its slack; give at least the slack',
        ),
        ({"dedupe": 10, "id": "tags"}, 'dedupe of stream "s": a list<item: string> cannot be a key'),
        ({"dedupe": 10, "id": "id", "changes": "id"}, "is for streams of records; this one is a relation"),
    ],
)
def test_mistakes_in_the_declaration(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        StreamDeclaration("s", "t timestamp, id string, tags array<string>", "t", **options)
    assert message in str(caught.value)


def declare(t: testing.Trial, **options: Any) -> None:
    t.stream("s", "ts bigint, id string, x bigint", time="ts", time_unit="s", id="id", dedupe="10 seconds", **options)


def record(ts: int, id_: str, x: int = 1) -> dict[str, Any]:
    return {"ts": ts, "id": id_, "x": x}


SENT = [record(1, "a"), record(1, "a", 5), record(20, "b"), record(20, "a"), record(3, "c"), record(20, "b")]
"""A repeat with another value, an id that is forgotten, a record that is too old, and a repeat."""


def one_of(record: dict[str, Any]) -> tuple[str, int]:
    return record["id"], record["x"]


def test_every_stage_and_every_reader_sees_the_same_stream() -> None:
    with testing.trial(name="dedupe") as t:
        declare(t, slack="10 seconds")
        t.query("one_by_one", "select id, x from s")
        t.query("total", "select sum(x) as n from s")
        t.table("ids", key="id", n="Counter")
        t.rules(text="{source: s, rules: [{tables: {ids: {key: .id, columns: {n: .x}}}}]}")
        t.job("pairs", reads="s", every="1 second").map(one_of)
        t.append("s", SENT[:2])
        t.run()
        t.append("s", SENT[2:])
        t.finish("s")
        t.run()
        assert [(row["id"], row["x"]) for row in t.rows("one_by_one")] == [("a", 1), ("b", 1), ("a", 1)]
        assert t.at("total") == [{"n": 3}]
        assert t.table("ids").get("a")["n"] == 2
        assert [row["ts"] for row in t.rows("s")] == [1, 3, 20, 20]
        for stage in ("one_by_one", "total", "ids", "pairs"):
            figures = t.figures(stage)
            assert (figures.read, figures.processed, figures.dead, figures.repeated, figures.waiting) == (6, 3, 1, 2, 0)
        letters = t.dead_letters()
        assert {(letter["kind"], letter["offset"]) for letter in letters} == {("too_old", 4)}
        assert letters[0]["reason"] == (
            "too old: 1970-01-01T00:00:03Z is before 1970-01-01T00:00:10Z; whether a record of stream "
            '"s" came before is known for 10 s (dedupe)'
        )


def test_dedupe_is_added_changed_and_removed_without_a_reset() -> None:
    with testing.trial(name="options") as t:
        t.stream("s", "ts bigint, id string, x bigint", time="ts", time_unit="s", id="id", slack="5 seconds")
        t.query("total", "select sum(x) as n from s")
        t.append("s", [record(1, "a"), record(1, "a")])
        t.run()
        (plain,) = t.declaration.streams
        for dedupe, ids in ((10_000_000, "ab"), (60_000_000, "bc"), (None, "cc")):
            t.declaration = replace(t.declaration, streams=(replace(plain, dedupe=dedupe),))
            t.append("s", [record(2, id_) for id_ in ids])
            t.run()
        t.finish("s")
        t.run()
        assert t.at("total") == [{"n": 2 + 1 + 1 + 2}]


def test_retention_keeps_the_records_whose_ids_are_needed() -> None:
    with testing.trial(name="kept") as t:
        declare(t, retention=Retention(size=0))
        t.query("one_by_one", "select id from s")
        for ts in range(0, 40, 2):
            t.append("s", [record(ts, f"{ts}")])
            t.run()
        log = StreamLog.open(t.home.path, "s")
        needed = repeats.needed_for_repeats(log)
        assert needed is not None
        log.trim(needed, t.clock())
        repeats.forget_repeats()
        run_housekeeping(t.home, t.clock())
        assert [row["ts"] for row in t.rows("s")] == [28, 30, 32, 34, 36, 38]
        t.append("s", [record(38, "28"), record(38, "26")])
        t.run()
        assert [row["id"] for row in t.rows("one_by_one")][20:] == ["26"]


def test_damaged_marks_are_found_and_can_be_removed() -> None:
    with testing.trial(name="damaged") as t:
        declare(t)
        t.query("one_by_one", "select id from s")
        t.append("s", [record(1, "a"), record(1, "a")])
        t.run()
        (file,) = (t.home.path / "streams" / "s" / repeats.DIRECTORY).glob("*.marks")
        assert not list(verify(t.home))
        file.write_bytes(file.read_bytes()[:-1])
        (finding,) = verify(t.home)
        assert finding.path == str(file)
        assert "are computed again from the log" in finding.remedy
        repeats.forget_repeats()
        with pytest.raises(DamagedState, match="does not match its checksum"):
            t.rows("s")
        file.unlink()
        assert len(t.rows("s")) == 1


@pytest.mark.parametrize(
    ("kind", "values"), [("bigint", [1, 2]), ("double", [0.5, 1.5]), ("date", ["2026-01-01", "2026-01-02"])]
)
def test_ids_of_other_types(kind: str, values: list[Any]) -> None:
    with testing.trial(name="types") as t:
        t.stream("s", f"ts bigint, id {kind}", time="ts", time_unit="s", id="id", dedupe="10 seconds")
        t.append("s", [{"ts": 1, "id": value} for value in values * 2])
        assert len(t.rows("s")) == 2


def test_a_full_disk_is_reported_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(step: str) -> None:
        if step == "before rename":
            raise OSError(errno.ENOSPC, "No space left on device")

    with testing.trial(name="full") as t:
        declare(t)
        t.append("s", [record(1, "a"), record(1, "a")])
        with monkeypatch.context() as patch:
            patch.setattr(durable, "reached", full)
            with pytest.raises(StreamError, match="free some space"):
                t.rows("s")
        assert len(t.rows("s")) == 1


def test_files_that_a_killed_process_did_not_remove_change_nothing() -> None:
    with testing.trial(name="killed") as t:
        declare(t)
        directory = t.home.path / "streams" / "s" / repeats.DIRECTORY
        old: dict[str, bytes] = {}
        for ts in range(5):
            t.append("s", [record(ts, "a"), record(ts, f"{ts}"), record(ts, f"{ts}")])
            assert [row["id"] for row in t.rows("s")] == ["a", *(f"{each}" for each in range(ts + 1))]
            old |= {file.name: file.read_bytes() for file in directory.glob("*.marks")}
            for name, content in old.items():
                (directory / name).write_bytes(content)
            repeats.forget_repeats()


@pytest.mark.parametrize("lost", [[0], [1], [0, 1], [2], [0, 1, 2]])
def test_marks_that_are_lost_are_computed_again(lost: list[int]) -> None:
    """Also if marks of later records are there: without them repeats would be taken for records that came first."""
    with testing.trial(name="lost") as t:
        declare(t)
        for first, count in ((0, 2000), (2000, 600), (2600, 3)):  # many runs each, so that their files are not joined
            ids = [f"{number - number % 4 // 3}" for number in range(first, first + count)]
            t.append("s", [record(number // 1000, id_) for number, id_ in zip(range(first, first + count), ids)])
            rows = t.rows("s")
        files = sorted((t.home.path / "streams" / "s" / repeats.DIRECTORY).glob("*.marks"))
        assert len(files) == 3
        for number in lost:
            files[number].unlink()
        repeats.forget_repeats()
        assert t.rows("s") == rows
        assert not list(verify(t.home))
        repeats.forget_repeats()
        assert t.rows("s") == rows
        t.append("s", [record(9, "last")])
        assert len(t.rows("s")) == len(rows) + 1
        left = sorted((t.home.path / "streams" / "s" / repeats.DIRECTORY).glob("*.marks"))
        assert [int(path.name[:20]) for path in left[1:]] == [int(path.name[21:41]) for path in left[:-1]]  # no overlap


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("marked", [0, 2])
def test_a_home_that_cannot_be_written_is_read_without_repeats(
    monkeypatch: pytest.MonkeyPatch, number: int, marked: int
) -> None:
    def refused(path: object, *more: object) -> int:
        raise OSError(number, "refused", str(path))

    with testing.trial(name="read_only") as t:
        declare(t)
        sent = [record(1, "a"), record(1, "a"), record(2, "a"), record(2, "b")]
        t.append("s", sent[:marked] or sent)
        if marked:
            assert len(t.rows("s")) == 1
            t.append("s", sent[marked:])
        repeats.forget_repeats()
        with monkeypatch.context() as patch:
            for name in ("make_directory", "open_file", "write_atomic"):
                patch.setattr(durable, name, refused)
            for _ in range(2):
                assert [row["id"] for row in t.rows("s")] == ["a", "b"]
        assert [row["id"] for row in t.rows("s")] == ["a", "b"]
