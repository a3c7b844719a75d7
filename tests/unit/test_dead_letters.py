"""Dead letters: which are open, how they are found, and that each is replayed or dropped once, to the right place."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.core.declarations import DAY, Retention
from hayase.core.errors import DamagedState, DeclarationError, HayaseError, HomeInUse, UnknownName
from hayase.core.reasons import Reason, ReasonKind
from hayase.engine.commit.housekeeping import run_housekeeping
from hayase.engine.dead_letters import letters, settlement
from hayase.engine.dead_letters.edits import by_jq, in_turn, one_by_one, setting_texts
from hayase.engine.dead_letters.letters import Filter, Group, Letters, obsolete_before
from hayase.streams import StreamLog, durable
from hayase.streams.dead_letters import DEAD, SETTLED, dead_table
from hayase.streams.sealed import seal
from hayase.testing import Trial, at, trial

NOW = 1_767_225_600_000_000
ORDERS = [{"time": at(second), "user": ("taro", "hana")[second % 2], "amount": float(second)} for second in range(6)]


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    """No machine is switched off here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def shop() -> Iterator[Trial]:
    with trial("shop") as made:
        made.stream("orders", "time timestamp, user string, amount double")
        made.query("large", "select user, amount from orders where amount > 1")
        made.append("orders", ORDERS)
        made.apply()
        yield made


def write(
    home: Path, stage: str, stream: str, offsets: list[int | None], reason: str = "ValueError: bad 7",
    records: list[str] | None = None, version: str | None = "v1", now: int = NOW, kind: ReasonKind = ReasonKind.FUNCTION,
) -> int:  # fmt: skip
    """Letters as the engine writes them; the number of the first."""
    texts = records or [f'{{"n": {at}}}' for at in range(len(offsets))]
    rows = dead_table(stage, version, stream, offsets, texts, [Reason(kind, reason)] * len(offsets), 1, now)
    return StreamLog.ensure(home, DEAD).append(rows, now=now).first


def rows_of(home: Path, name: str = SETTLED.name) -> list[dict[str, Any]]:
    log = StreamLog.open(home, name)
    return (
        [row for piece in log.read(0, log.index().next) for row in piece.rows.to_pylist()] if log.index().next else []
    )


def of(shop: Trial) -> Letters:
    return Letters(shop.home, shop.declaration, shop.clock)


# -- looking ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("home", ["", "nowhere/at/all"])
def test_a_home_without_letters(tmp_path: Path, home: str) -> None:
    found = Letters(tmp_path / home)
    assert found.newest().letters == ()
    assert found.groups() == []
    assert found.replay().settled == found.drop().settled == 0
    assert not list(tmp_path.iterdir())
    with pytest.raises(UnknownName, match='unknown dead letter "3"; there are none'):
        found.get(3)
    with pytest.raises(UnknownName, match="there are none"):
        found.drop(Filter.of(3))


def test_newest_first_and_page_by_page(shop: Trial) -> None:
    for second in range(5):
        write(shop.home.path, "large", "orders", [second, second + 1])
    found = of(shop)
    assert [each.number for each in found.newest(limit=3).letters] == [9, 8, 7]
    assert found.newest(limit=3).older == 7
    assert [each.number for each in found.newest(limit=20, before=7).letters] == [6, 5, 4, 3, 2, 1, 0]
    assert found.newest(limit=20, before=7).older is None
    found.drop(Filter.of(8, 0))
    assert [each.number for each in found.newest(limit=3).letters] == [9, 7, 6]
    assert [(each.number, each.fate.state) for each in found.newest(limit=2, settled=True).letters] == [
        (9, "open"), (8, "dropped"),
    ]  # fmt: skip
    assert found.newest(limit=9, look_at=4).older == 6


def test_groups_are_of_reasons_that_differ_in_values_only(shop: Trial) -> None:
    home = shop.home.path
    for second, reason in enumerate(
        ["late: 5 is before 7", "late: 6 is before 19", 'must be double, not "x"\nTraceback']
    ):
        kind = ReasonKind.LATE if second < 2 else ReasonKind.SCHEMA
        write(home, "large", "orders", [second], reason, now=NOW + second, kind=kind)
    write(home, "append", "orders", [None], 'must be double, not "yy"', kind=ReasonKind.SCHEMA)
    assert of(shop).groups() == [
        Group("large", "orders", "late", "late: 6 is before 19", 2, 0, 1, NOW, NOW + 1),
        Group("large", "orders", "schema", 'must be double, not "x"', 1, 2, 2, NOW + 2, NOW + 2),
        Group("append", "orders", "schema", 'must be double, not "yy"', 1, 3, 3, NOW, NOW),
    ]
    of(shop).drop(Filter.of(0))
    assert of(shop).groups(Filter(reason="LATE"))[0].count == 1
    assert of(shop).groups(Filter(reason="LATE"), settled=True)[0].count == 2


def test_past_many_groups_the_rest_is_one(shop: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "MOST_GROUPS", 2)
    for word in "abcd":
        write(shop.home.path, "large", "orders", [0], word)
    assert [(each.reason, each.count) for each in of(shop).groups()] == [("other reasons", 2), ("a", 1), ("b", 1)]


TEXTS = st.sampled_from(["a", "b", "ab", ""])
MAYBE = st.none() | TEXTS
KINDS = st.none() | st.sampled_from([ReasonKind.LATE, ReasonKind.SCHEMA, ReasonKind.UNKNOWN])
LETTER = st.tuples(TEXTS, MAYBE, TEXTS, st.none() | st.integers(0, 5), TEXTS, st.integers(0, 5), KINDS)


@settings(max_examples=examples(15), deadline=None)
@given(
    st.lists(st.lists(LETTER, min_size=1, max_size=8), min_size=1, max_size=4),
    st.sets(st.integers(0, 31)),
    st.builds(
        Filter, stage=MAYBE, stream=MAYBE, reason=MAYBE, version=MAYBE, kind=KINDS,
        since=st.none() | st.integers(0, 5), until=st.none() | st.integers(0, 5),
        offsets=st.none() | st.tuples(st.integers(0, 5), st.integers(0, 5)), first=st.integers(0, 8),
    ),
    st.integers(1, 10),
)  # fmt: skip
def test_what_is_found_is_what_a_look_at_each_finds(
    tmp_path_factory: pytest.TempPathFactory, appends: list[list[Any]], dropped: set[int], wanted: Filter, limit: int
) -> None:
    home = tmp_path_factory.mktemp("home")
    for part in appends:
        columns = list(zip(*part))
        names = ["stage", "version", "stream", "offset", "reason", "time", "kind"]
        table = pa.table(
            dict(zip(names, map(list, columns))) | {"record": ["{}"] * len(part), "attempts": [1] * len(part)}
        )
        rows = table.select(DEAD.arrow_schema.names).cast(DEAD.arrow_schema)
        StreamLog.ensure(home, DEAD).append(rows, now=NOW)
    every = [letter for part in appends for letter in part]
    found = Letters(home, clock=lambda: NOW)
    gone = sorted(each for each in dropped if each < len(every))
    if gone:
        assert found.drop(Filter.of(*gone)).settled == len(gone)

    def meant(number: int) -> bool:
        stage, version, stream, offset, reason, time, kind = every[number]
        return (
            wanted.stage in (None, stage) and wanted.stream in (None, stream) and number >= wanted.first
            and (wanted.reason is None or wanted.reason in reason) and wanted.kind in (None, kind or "unknown")
            and (wanted.version is None or (version is not None and version.startswith(wanted.version)))
            and (wanted.since is None or time >= wanted.since) and (wanted.until is None or time < wanted.until)
            and (wanted.offsets is None or (offset is not None and wanted.offsets[0] <= offset <= wanted.offsets[1]))
        )  # fmt: skip

    expected = [number for number in range(len(every)) if meant(number) and number not in gone]
    assert [number for lot in found.matching(wanted) for number in lot.numbers.tolist()] == expected
    assert [each.number for each in found.newest(wanted, limit).letters] == expected[::-1][:limit]
    assert sum(each.count for each in found.groups(wanted)) == found.count(wanted) == len(expected)
    report = found.drop(wanted, limit=limit)
    assert report.settled == min(limit, len(expected))
    assert report.next == (expected[limit] if len(expected) > limit else None)
    assert Letters(home).settled().tolist() == sorted({*gone, *expected[:limit]})


def test_a_kind_that_there_is_not() -> None:
    with pytest.raises(UnknownName, match='unknown kind of dead letter "lat"; did you mean "late"'):
        Filter(kind="lat")


def test_a_text_with_half_a_character() -> None:
    with pytest.raises(HayaseError, match="half a character"):
        Filter(reason="\ud800")


# -- replaying to stages -----------------------------------------------------------------------------------------------------
def test_a_letter_is_replayed_as_its_stream_has_the_record(shop: Trial) -> None:
    """What the letter tells may be only a part of the record."""
    write(shop.home.path, "large", "orders", [4, 2, 2])
    report = of(shop).replay()
    assert (report.settled, report.appended, report.kept) == (3, 0, 0)
    told = rows_of(shop.home.path)
    assert [(each["letter"], each["stage"], each["stream"], each["offset"]) for each in told] == [
        (0, "large", "orders", 4), (1, "large", "orders", 2), (2, "large", "orders", 2),
    ]  # fmt: skip
    assert orjson.loads(told[0]["record"]) == {"time": "2026-01-01T00:00:04+00:00", "user": "taro", "amount": 4.0}
    again = of(shop).replay(Filter.of(0, 1))
    assert (again.settled, again.before) == (0, 2)
    assert len(rows_of(shop.home.path)) == 3


def test_a_record_that_retention_removed_is_taken_from_the_letter(shop: Trial) -> None:
    whole = '{"time": "2026-01-01T00:00:09Z", "user": "x", "amount": 3}'
    write(shop.home.path, "large", "orders", [90, 91], records=[whole, '{"__amount": 3}'])
    report = of(shop).replay()
    assert report.settled == 1
    assert orjson.loads(rows_of(shop.home.path)[0]["record"])["user"] == "x"
    assert "removed by retention" in report.refusals[0][1]


def test_what_is_edited_must_fit_its_stream(shop: Trial) -> None:
    write(shop.home.path, "large", "orders", [0, 1, 2, 3])

    def edit(record: dict[str, Any]) -> dict[str, Any]:
        if record["amount"] == 3:
            raise KeyError("nothing")
        return {**record, "amount": {0: 10, 1: "free", 2: 7}[int(record["amount"])]}

    report = of(shop).replay(edit=edit)
    assert report.settled == 2
    assert report.refusals == [
        (1, 'column "amount" must be double, not "free"'), (3, "the edit raised KeyError: 'nothing'"),
    ]  # fmt: skip
    assert [orjson.loads(each["record"])["amount"] for each in rows_of(shop.home.path)] == [10.0, 7.0]
    assert [each.number for each in of(shop).newest().letters] == [3, 1]


def test_jq_and_values_edit_in_turn(shop: Trial) -> None:
    write(shop.home.path, "large", "orders", [1, 2, 3])
    with by_jq("if .amount == 2 then empty elif .amount == 3 then .user else .amount += 10 end") as jq:
        editing = in_turn(jq, setting_texts({"user": "5"}))
        report = settlement.replay(of(shop), Filter(), editing)
    assert orjson.loads(rows_of(shop.home.path)[0]["record"]) | {"time": 0} == {"time": 0, "user": "5", "amount": 11.0}
    assert [reason for _, reason in report.refusals] == [
        "the jq program gave 0 results; one record must come of one",
        'the jq program gave "hana", which is not a record; it must give an object',
    ]
    with pytest.raises(DeclarationError, match="jq"), by_jq(".amount +"):
        pass
    with by_jq(".", expired=lambda: True) as jq:
        assert "no time left" in settlement.replay(of(shop), Filter(), jq).refusals[0][1]


def test_letters_that_cannot_be_replayed_say_what_to_do(shop: Trial) -> None:
    home = shop.home.path
    write(home, "large", "large", [None, None])
    write(home, "gone", "orders", [1])
    write(home, "large", "prices", [1])
    write(home, "view large", "large", [1])
    write(home, "load", "blocklist", [None])
    write(home, "append", "prices", [None])
    write(home, "large", "orders", [1], "late: 5 is before 7", kind=ReasonKind.LATE)
    write(home, "large", "orders", [1], "too old: 5 is before 7", kind=ReasonKind.TOO_OLD)
    report = of(shop).replay()
    assert (report.settled, report.late, report.kept) == (0, 2, 9)
    told = "\n".join(f"{count} {reason}" for reason, count in report.left.items())
    for part in (
        '2 it came up inside stage "large"', '1 stage "gone" is not in the newest definition',
        '1 stage "large" does not read "prices"', "1 it was refused by view large", "`hayase groups load blocklist`",
        'stream "prices" is not declared', "2 it was late",
    ):  # fmt: skip
        assert part in told
    assert of(shop).count() == 9
    assert of(shop).replay(late=True).settled == 2


def test_a_stage_that_has_not_changed_is_told(shop: Trial) -> None:
    version = shop.apply().record("large").fingerprint
    write(shop.home.path, "large", "orders", [1], version=version)
    write(shop.home.path, "large", "orders", [2], version=None)
    assert of(shop).replay(dry=True).unchanged == 1
    assert of(shop).count() == 2


def test_letters_are_replayed_in_lots_up_to_a_limit(shop: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlement, "LOT", 3)
    write(shop.home.path, "large", "orders", [number % 6 for number in range(10)])
    report = of(shop).replay(limit=7)
    assert (report.settled, report.next) == (7, 7)
    assert [each["letter"] for each in rows_of(shop.home.path)] == list(range(7))
    report = settlement.replay(of(shop), Filter(), expired=lambda: True)
    assert (report.settled, report.next) == (0, 7)


def test_what_became_of_a_letter(shop: Trial) -> None:
    home = shop.home.path
    write(home, "large", "orders", [1, 2, 3])
    found = of(shop)
    found.replay(Filter.of(0))
    found.drop(Filter.of(1))
    assert found.get(0).fate.state == "replayed"
    assert found.get(0).again is None
    assert (found.get(1).fate.state, found.get(2).fate.state) == ("dropped", "open")
    write(home, "large", "orders", [1], now=shop.clock() + 1)
    assert found.get(0).again == 3
    with pytest.raises(UnknownName, match="numbered 0 to 3"):
        found.get(4)


def test_a_replayed_record_reaches_its_stage_and_nobody_else() -> None:
    with trial("shop") as made:
        made.stream("orders", "time timestamp, uuid string, user string, amount double", id="uuid")
        made.query("large", "select user, amount from orders where amount > 1")
        made.table("spending", key="user", total="Counter")
        made.rules(text="source: orders\nrules:\n  - tables: {spending: {key: .user, columns: {total: .amount}}}")
        made.append(
            "orders", [{"time": at(1), "uuid": "a", "amount": 3}, {"time": at(2), "uuid": "b", "amount": "free"}]
        )
        made.run()
        report = of(made).replay(edit=lambda record: {**record, "user": "taro", "amount": 5})
        assert (report.settled, report.appended) == (2, 1)
        made.run()
        assert made.table("spending").get("taro") == {"total": 10}
        assert [(row["user"], row["amount"]) for row in made.rows("large")] == [(None, 3.0), ("taro", 5.0)]
        assert of(made).count() == 0


# -- replaying appends -------------------------------------------------------------------------------------------------------
def refused(shop: Trial) -> None:
    """Three letters of orders that no stream took."""
    shop.append("orders", [{"time": at(9), "user": "x", "amount": each} for each in ("1", "two", "3")])


def test_what_no_stream_took_is_appended_to_it(shop: Trial) -> None:
    refused(shop)
    report = of(shop).replay()
    assert (report.settled, report.kept) == (0, 3)
    report = of(shop).replay(edit=lambda record: {**record, "amount": float(record["amount"])})
    assert (report.settled, report.appended) == (2, 2)
    assert report.refusals[0][0] == 1
    assert [row["amount"] for row in shop.rows("orders")][-2:] == [1.0, 3.0]
    assert of(shop).get(2).fate.appended == 7
    assert of(shop).get(2).fate.state == "replayed"
    of(shop).drop()
    assert of(shop).get(1).fate.state == "dropped"


def test_a_text_that_is_no_record_can_be_made_one(shop: Trial) -> None:
    write(shop.home.path, "append", "orders", [None], records=["2026-01-01T00:00:07Z,taro,5"])
    assert "is an object" in of(shop).replay().refusals[0][1]
    with by_jq('split(",") | {time: .[0], user: .[1], amount: (.[2] | tonumber)}') as jq:
        assert settlement.replay(of(shop), Filter(), jq).appended == 1
    assert shop.rows("orders")[-1]["amount"] == 5.0


def test_a_stream_that_is_finished_takes_none(shop: Trial) -> None:
    refused(shop)
    shop.finish("orders")
    report = of(shop).replay(edit=lambda record: {**record, "amount": 1})
    assert "is finished" in next(iter(report.left))
    assert of(shop).count() == 3


def test_before_anything_is_declared_streams_are_as_they_lie(tmp_path: Path) -> None:
    with trial("early", home=tmp_path) as made:
        made.stream("orders", "time timestamp, amount double")
        made.append("orders", [{"time": at(1), "amount": "1"}])
    assert Letters(tmp_path, clock=lambda: NOW).replay(edit=lambda record: {**record, "amount": 1}).appended == 1


class Killed(Exception):
    pass


def test_whoever_is_killed_leaves_nothing_half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at every step of the way: afterwards every record is in its stream once, and its letter settled once."""
    with trial("shop", home=tmp_path / "begin") as shop:
        shop.stream("orders", "time timestamp, user string, amount double")
        refused(shop)

    def replay(home: Path) -> None:
        edit = lambda record: {**record, "amount": 1.0}  # noqa: E731
        Letters(home, clock=lambda: NOW).replay(edit=edit)

    def killed_at(home: Path, steps: int) -> bool:
        def reached(step: str) -> None:
            nonlocal steps
            steps -= 1
            if not steps:
                raise Killed(step)

        with monkeypatch.context() as patch:
            patch.setattr(durable, "reached", reached)
            try:
                replay(home)
            except Killed:
                return True
        return False

    steps, killed = 0, True
    while killed:
        steps += 1
        home = tmp_path / str(steps)
        shutil.copytree(tmp_path / "begin", home)
        killed = killed_at(home, steps)
        replay(home)
        assert [row["amount"] for row in rows_of(home, "orders")] == [1.0] * 3
        assert [(each["letter"], each["offset"]) for each in rows_of(home)] == [(0, 0), (1, 1), (2, 2)]
    assert steps > 20


def test_what_was_begun_is_not_done_twice_nor_against_the_stream(shop: Trial) -> None:
    refused(shop)
    begun = shop.home.path / "dead" / "appending.json"
    begun.parent.mkdir()
    records = ['{"time": "2026-01-01T00:00:07Z", "user": "y", "amount": 1.5}']
    body = orjson.dumps({"stream": "orders", "sequence": 1, "letters": [1], "records": records})
    begun.write_bytes(seal("replay", body))
    text = begun.read_bytes()
    of(shop).drop(Filter.of(2))
    assert shop.rows("orders")[-1]["user"] == "y"
    assert not begun.exists()
    begun.write_bytes(text)  # as after a loss of power
    of(shop).drop(Filter.of(2))
    assert len(shop.rows("orders")) == 7
    shop.finish("orders")
    body = orjson.dumps({"stream": "orders", "sequence": 9, "letters": [0], "records": records})
    begun.write_bytes(seal("replay", body))
    assert of(shop).drop(Filter.of(0)).settled == 1
    begun.write_bytes(b"{")
    with pytest.raises(DamagedState, match="cannot be read"):
        of(shop).drop()


def test_two_at_once_replay_each_letter_once(shop: Trial) -> None:
    write(shop.home.path, "large", "orders", [number % 6 for number in range(300)])
    begin = threading.Barrier(4)
    reports: list[settlement.Settlement] = []

    def work() -> None:
        begin.wait()
        reports.append(of(shop).replay())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sum(each.settled for each in reports) == 300
    assert sorted(each["letter"] for each in rows_of(shop.home.path)) == list(range(300))


def test_somebody_else_is_not_waited_for_for_ever(shop: Trial) -> None:
    write(shop.home.path, "large", "orders", [1])

    def edit(record: dict[str, Any]) -> dict[str, Any]:
        with pytest.raises(HomeInUse, match="wait for them"):
            settlement.drop(of(shop), Filter(), patience=0)
        return record

    report = settlement.replay(of(shop), Filter(), one_by_one(edit))
    assert (report.settled, report.refusals) == (1, [])


def test_what_became_of_letters_goes_with_them_and_no_earlier(shop: Trial) -> None:
    home = shop.home.path
    for lot in range(4):
        write(home, "large", "orders", [None] * 3, now=NOW + lot * DAY)
    letters_ = of(shop)
    letters_.drop(Filter.of(0, 1, 2, 4, 9))
    old = StreamLog(home, replace(DEAD, retention=Retention(age=3 * DAY // 2)))
    assert obsolete_before(shop.home) == 0
    old.trim(12, NOW + 3 * DAY)
    assert letters_.bounds() == (6, 12)
    assert obsolete_before(shop.home) == 4  # letter 9 is still there
    StreamLog(home, replace(SETTLED, retention=Retention(age=0))).trim(obsolete_before(shop.home), NOW * 2)
    for each in (letters_, of(shop)):
        assert [one.number for one in each.newest(settled=False).letters] == [11, 10, 8, 7, 6]
        assert each.get(9).fate.state == "dropped"


def test_what_became_of_a_letter_is_found_without_reading_all(shop: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    write(shop.home.path, "large", "orders", [None] * 50)
    letters_ = of(shop)
    for number in range(40):
        letters_.drop(Filter.of(number))
    letters_.settled()
    read: list[tuple[int, int]] = []
    reading = StreamLog.read

    def noted(self: StreamLog, first: int, next: int) -> Any:
        if self.declaration.name == SETTLED.name:
            read.append((first, next))
        return reading(self, first, next)

    monkeypatch.setattr(StreamLog, "read", noted)
    assert letters_.get(17).fate.state == "dropped"
    assert letters_.get(45).fate.state == "open"
    assert read == [(17, 18)]


def test_a_flood_of_letters_takes_little_room(tmp_path: Path) -> None:
    reason = Reason(ReasonKind.SCHEMA, 'unknown field "a"; ' * 5)
    rows = dead_table("append", None, "orders", None, ['{"a":1}'] * 50_000, [reason] * 50_000, 1, NOW)
    StreamLog.ensure(tmp_path, DEAD).append(rows, now=NOW)
    assert sum(each.stat().st_size for each in (tmp_path / "streams" / "_dead").glob("*.seg")) < 1_000_000
    assert Letters(tmp_path).count() == 50_000


def test_housekeeping_removes_old_letters_and_then_what_became_of_them(shop: Trial) -> None:
    for lot in range(3):
        write(shop.home.path, "large", "orders", [None], now=NOW + lot * 60 * DAY)
    of(shop).drop(Filter.of(0, 1, 2))
    shop.run()
    run_housekeeping(shop.home, NOW + 160 * DAY)
    letters_ = of(shop)
    assert letters_.bounds() == (2, 3)
    assert letters_.get(2).fate.state == "dropped"
    run_housekeeping(shop.home, NOW + 400 * DAY)
    assert of(shop).bounds() == (3, 3)
    run_housekeeping(shop.home, NOW + 401 * DAY)
    settled = StreamLog.open(shop.home.path, SETTLED.name).index()
    assert (settled.start, settled.next) == (3, 3)
