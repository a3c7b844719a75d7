"""De-duplication against the definition, read literally; and what must not depend on order, repetition, batches or restarts."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase import testing
from hayase.core.declarations import StreamDeclaration
from hayase.streams import repeats
from hayase.streams.log import StreamLog

D = 10
STREAM = StreamDeclaration(
    "s", "ts bigint, id string", "ts", id="id", time_unit="s", slack=5_000_000, dedupe=D * 1_000_000
)
RECORDS = st.lists(st.tuples(st.integers(0, 60), st.sampled_from("abcdef")), max_size=40)


def outcome(records: list[tuple[int, str]], dedupe: int = D) -> list[str]:
    """The definition: for each record whether it is the first with its id, a repeat or too old."""
    kept: dict[str, int] = {}
    outcomes = []
    most = -(10**9)
    for time, id_ in records:
        most = max(most, time)
        kept = {other: then for other, then in kept.items() if then >= most - dedupe}
        if time < most - dedupe:
            outcomes.append("old")
        elif id_ in kept:
            outcomes.append("repeat")
        else:
            outcomes.append("first")
            kept[id_] = time
    return outcomes


def rows(records: list[tuple[int, str]]) -> pa.Table:
    times, ids = zip(*records)
    return pa.table([pa.array(times, pa.int64()), pa.array(ids, pa.string())], schema=STREAM.arrow_schema)


def forget() -> None:
    """What a new process knows: nothing."""
    repeats.forget_repeats()


@settings(max_examples=examples(100))
@given(RECORDS, st.data())
def test_marks_follow_the_definition_however_they_are_computed(
    records: list[tuple[int, str]], data: st.DataObject
) -> None:
    expected = [each == "repeat" for each in outcome(records)]
    with tempfile.TemporaryDirectory() as directory:
        log = StreamLog.ensure(Path(directory), STREAM)
        at = 0
        while at < len(records):
            count = data.draw(st.integers(1, len(records) - at), label="appended")
            log.append(rows(records[at : at + count]), now=0)
            at += count
            for _ in range(data.draw(st.integers(0, 2), label="marked")):
                repeats.mark_repeats(log, data.draw(st.integers(0, at), label="up to"))
                if data.draw(st.booleans(), label="restarted"):
                    forget()
            if data.draw(st.booleans(), label="compacted"):
                log.compact(at_least=2)
        marks = repeats.marks_between(log, 0, at)
        assert repeats.repeated_in(marks, np.arange(at)).tolist() == expected
        pieces = list(repeats.first_pieces(log, 0, at)) if at else []
        offsets = [piece.first + row for piece in pieces for row in range(piece.rows.num_rows)]
        assert offsets == [number for number, is_repeat in enumerate(expected) if not is_repeat]
        maxima = [max((time for time, _ in records[: piece.first]), default=None) for piece in pieces]
        for piece, most in zip(pieces, maxima):
            assert most is None or piece.running_max_before == most * 1_000_000
        assert len(list((log.path / repeats.DIRECTORY).glob("*.marks"))) <= 8


@settings(max_examples=examples(50))
@given(RECORDS, RECORDS, st.integers(5, 40))
def test_a_changed_duration_holds_from_then_on(
    before: list[tuple[int, str]], after: list[tuple[int, str]], longer: int
) -> None:
    """Records that were marked stay as they are; the ids of those that were taken are known for the new duration."""
    with tempfile.TemporaryDirectory() as directory:
        log = StreamLog.ensure(Path(directory), STREAM)
        if before:
            log.append(rows(before), now=0)
        repeats.mark_repeats(log, len(before))
        log = StreamLog.ensure(Path(directory), replace(STREAM, dedupe=longer * 1_000_000))
        if after:
            log.append(rows(after), now=0)
        end = len(before) + len(after)
        mask = repeats.repeated_in(repeats.marks_between(log, 0, end), np.arange(end)).tolist()
        firsts = {}
        for number, ((time, id_), what) in enumerate(zip(before, outcome(before))):
            assert mask[number] == (what == "repeat")
            if what == "first":
                firsts[id_] = time
        most = max((time for time, _ in before), default=-(10**9))
        for number, (time, id_) in enumerate(after, len(before)):
            most = max(most, time)
            is_repeat = time >= most - longer and firsts.get(id_, -(10**9)) >= most - longer
            assert mask[number] == is_repeat
            if time >= most - longer and not is_repeat:
                firsts[id_] = time


EVENTS = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 9)), min_size=1, max_size=12, unique_by=lambda each: each
)


@settings(max_examples=examples(10), deadline=None)
@given(EVENTS, st.randoms(use_true_random=False), st.integers(1, 5))
def test_order_within_the_slack_repetition_and_batches_change_nothing(
    events: list[tuple[int, int]], random: object, most: int
) -> None:
    shuffle, uniform = random.uniform, random.randint  # type: ignore[attr-defined]
    distinct = [{"ts": ts, "id": f"{ts}-{x}", "x": x} for ts, x in sorted(events)]
    sent = sorted(
        (event for event in distinct for _ in range(uniform(1, 3))), key=lambda event: event["ts"] + shuffle(0, 4.9)
    )
    answers = []
    for records, dedupe in ((distinct, None), (sent, "10 seconds")):
        with testing.trial(name="dedupe") as t:
            t.stream(
                "s",
                "ts bigint, id string, x bigint",
                time="ts",
                time_unit="s",
                id="id",
                slack="5 seconds",
                dedupe=dedupe,
            )
            t.query("total", "select x, sum(x) as n, count(*) as c from s [Range 20 seconds] group by x")
            t.query("one_by_one", "select id, x from s where x > 2")
            at = 0
            while at < len(records):
                t.append("s", records[at : at + most])
                at += most
                t.run()
            t.finish("s")
            t.run()
            one_by_one = sorted((row["id"], row["x"]) for row in t.rows("one_by_one"))
            stream = sorted(row["id"] for row in t.rows("s"))
            answers.append((sorted(t.intervals("total"), key=str), one_by_one, stream))
            figures = t.figures("total")
            assert figures.read == figures.processed + figures.dead + figures.repeated + figures.waiting == len(records)
            assert figures.repeated == len(records) - len(distinct)
            assert not t.dead_letters()
    assert answers[0] == answers[1]
