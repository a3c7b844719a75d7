"""Whatever happens to a log, in whatever order and by whichever writer, it equals a list in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.core.declarations import Retention, StreamDeclaration
from hayase.core.times import BEGINNING
from hayase.streams import UNKNOWN, Appended, StreamLog, durable, segments

AGE = 3
STREAM = StreamDeclaration("s", "at bigint", time="at", time_unit="us", retention=Retention(age=AGE))

TIMES = st.lists(st.integers(-50, 50), max_size=5)
OPERATIONS = st.one_of(
    st.tuples(st.just("append"), TIMES, st.sampled_from([None, "p", "q"])),
    st.tuples(st.just("repeat"), st.sampled_from(["p", "q"]), st.integers(0, 2)),
    st.tuples(st.just("publish"), TIMES, st.none() | st.integers(-50, 50)),
    st.tuples(st.just("advance"), st.integers(-50, 50)),
    st.tuples(st.just("compact"), st.integers(2, 4)),
    st.tuples(st.just("trim"), st.floats(0, 1)),
    st.tuples(st.just("clear")),
    st.tuples(st.just("reopen")),
)


@dataclass
class Model:
    """A log as a list: all records ever (time, when appended), from where on they exist, and what was said."""

    records: list[tuple[int, int]] = field(default_factory=list)
    start: int = 0
    cleared: int = 0
    clock: int = BEGINNING
    producers: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def running_max(self, offset: int) -> int:
        return max((time for time, _ in self.records[self.cleared : offset]), default=BEGINNING)


@contextmanager
def quick() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable.os, "fsync", lambda descriptor: None)
        patch.setattr(segments, "BATCH_ROWS", 4)
        yield Path(directory)


def table(times: list[int]) -> pa.Table:
    return pa.table({"at": pa.array(times, pa.int64())})


def act(log: StreamLog, model: Model, operation: tuple[object, ...], now: int, home: Path) -> None:
    match operation:
        case ("append", list(times), producer):
            sequence = None if producer is None else model.producers.get(str(producer), (0, 0, 0))[0] + 2
            first = len(model.records)
            answer = log.append(table(times), now=now, producer=producer, sequence=sequence)
            assert answer == Appended(first, first + len(times))
            model.records += [(time, now) for time in times]
            if times and sequence is not None:
                model.producers[str(producer)] = (sequence, first, first + len(times))
        case ("repeat", str(producer), int(back)) if producer in model.producers:
            sequence, first, next_ = model.producers[producer]
            where = (first, next_) if back == 0 else (UNKNOWN, UNKNOWN)
            answer = log.append(table([999]), now=now, producer=producer, sequence=sequence - back)
            assert answer == Appended(*where, repeated=True)
        case ("publish", list(times), clock):
            staged = log.stage(home, "staged.seg", table(times), now=now)
            assert log.publish(staged, clock).first == len(model.records)
            model.records += [(time, now) for time in times]
            model.clock = max(model.clock, BEGINNING if clock is None else clock)
        case ("advance", int(clock)):
            log.advance(clock)
            model.clock = max(model.clock, clock)
        case ("compact", int(at_least)):
            log.compact(at_least=at_least)
        case ("trim", float(share)):
            keep_from = model.start + int(share * (len(model.records) - model.start))
            gone = log.trim(keep_from, now)
            assert model.start + gone <= keep_from
            assert all(then < now - AGE for _, then in model.records[model.start : model.start + gone])
            model.start += gone
        case ("clear",):
            log.clear()
            model.start = model.cleared = len(model.records)
            model.clock = BEGINNING
            model.producers.clear()


def agree(log: StreamLog, model: Model) -> None:
    index = log.index()
    end = len(model.records)
    assert (index.start, index.next, index.clock) == (model.start, end, model.clock)
    assert index.running_max == model.running_max(end)
    for first, next_ in ((model.start, end), ((model.start + end) // 2, end), (model.start, (model.start + end) // 2)):
        at = first
        for piece in log.read(first, next_):
            assert piece.first == at
            assert piece.running_max_before == model.running_max(at) == log.running_max_at(at)
            times = piece.rows.column("at").to_pylist()
            assert times == [time for time, _ in model.records[at : at + len(times)]]
            at += len(times)
        assert at == next_


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(OPERATIONS, st.booleans()), max_size=25))
def test_a_log_equals_a_list(operations: list[tuple[tuple[object, ...], bool]]) -> None:
    with quick() as home:
        writers = [StreamLog.ensure(home, STREAM), StreamLog.open(home, "s")]
        model = Model()
        for now, (operation, other) in enumerate(operations):
            if operation == ("reopen",):
                writers[other] = StreamLog.open(home, "s")
            act(writers[other], model, operation, now, home)
            agree(writers[not other], model)
        agree(StreamLog.open(home, "s"), model)
