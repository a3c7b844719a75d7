"""Runs a case with Hayase, in this process; a plan says how appends are cut and shuffled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute
from given_cases import Case, Query
from given_streams import ALWAYS, EPOCH, SECOND, Row, Stream, grain_of, time_value
from hypothesis import strategies as st

from hayase.testing import Trial, trial

__all__ = ["WHOLE", "Plan", "Verdict", "plans", "running"]


@dataclass(frozen=True)
class Plan:
    """How a case is run: which pieces of which streams (by number) are appended in which order, and after which of them
    the pipeline runs. Records are shuffled within the slack."""

    pieces: tuple[tuple[int, int, bool], ...] = ()
    buckets: int = 1
    slack: int = 0
    moved: tuple[int, ...] = ()
    batch_rows: int | None = None
    forget: bool = False


WHOLE = Plan()


@dataclass(frozen=True)
class Verdict:
    """Hayase's result of a query: its rows with their lifetimes in microseconds, and up to which instant it is final."""

    lifetimes: list[tuple[int, int, Row]]
    final: int | None

    def at(self, instant: int) -> list[Row]:
        return [row for start, end, row in self.lifetimes if start <= instant < end]


@contextmanager
def running(case: Case, plan: Plan = WHOLE) -> Iterator[Product]:
    """Yield the pipeline of a case after everything has been appended, finished and processed."""
    with trial() as t:
        t.declaration = replace(t.declaration, buckets=plan.buckets)
        for stream in case.streams:
            t.stream(
                stream.name, stream.schema, time_unit=stream.unit, slack=plan.slack,
                changes="op" if stream.signs is not None else None,
            )  # fmt: skip
        _declare_functions(t, " ".join(query.text for query in case.queries))
        for query in case.queries:
            t.query(query.name, query.text)
        waiting = [_moved(stream, plan) for stream in case.streams]
        for number, count, run in plan.pieces:
            if number < len(waiting):
                _append(t, case.streams[number], waiting[number][:count])
                del waiting[number][:count]
            if run:
                t.run(batch_rows=plan.batch_rows)
                if plan.forget:
                    t.restart()
        for stream, rest in zip(case.streams, waiting):
            _append(t, stream, rest)
            t.finish(stream.name)
        t.run(batch_rows=plan.batch_rows)
        yield Product(t, case)


def twice(number: int) -> int:
    return 2 * number


def halved(numbers: pa.Array) -> pa.Array:
    return pa.compute.divide(numbers, 2.0)


def _declare_functions(t: Trial, text: str) -> None:
    """Declare those of the user's functions that are called: of a record, of arrays, and in SQL."""
    if "twice(" in text:
        t.function(twice, arguments="number bigint", returns="bigint")
    if "halved(" in text:
        t.function(halved, takes="arrays", arguments="numbers double", returns="double")
    if "paired(" in text:
        t.function(name="paired", sql="one || '-' || other")


@dataclass(frozen=True)
class Product:
    """A pipeline that has run."""

    trial: Trial
    case: Case

    def verdict(self, query: Query) -> Verdict:
        results, unit = self.trial.query(query.name), self.case.unit(query)
        intervals = [
            (_micros(start, unit), ALWAYS if end is None else _micros(end, unit), _plain(row, query))
            for row, start, end in results.intervals()
        ]
        final = results.final()
        return Verdict(intervals, None if final is None else _micros(final, unit))

    def at(self, query: Query, instant: int) -> list[Row]:
        """Return the snapshot that the pipeline gives."""
        time = time_value(instant, self.case.unit(query))
        return [_plain(row, query) for row in self.trial.query(query.name).at(time)]

    def dead(self) -> list[Any]:
        return self.trial.dead_letters()


def _append(t: Trial, stream: Stream, records: list[dict[str, Any]]) -> None:
    if records:
        t.append(stream.name, records)


def _moved(stream: Stream, plan: Plan) -> list[dict[str, Any]]:
    """Return the records in an order that the slack allows: a record may come after others that are later by at most the
    slack; ties stay in order."""
    delays = [plan.moved[at % len(plan.moved)] if plan.moved else 0 for at in range(len(stream.times))]
    together: dict[int, int] = {}
    for at, delay in zip(stream.times, delays):
        together.setdefault(at, delay)
    order = sorted(range(len(stream.times)), key=lambda at: (stream.times[at] + together[stream.times[at]], at))
    records = stream.records()
    return [records[at] for at in order]


def _micros(time: Any, unit: str | None) -> int:
    assert isinstance(time, datetime) == (unit is None), time
    return (time - EPOCH) // timedelta(microseconds=1) if isinstance(time, datetime) else time * grain_of(unit)


def _plain(row: dict[str, Any], query: Query) -> Row:
    """Return the columns of the query. A stream whose query selects no time has one more column for it."""
    names = [name for name, _ in query.columns]
    assert list(row)[: len(names)] == names, list(row)
    assert len(row) <= len(names) + 1, list(row)
    return tuple(_value(row[name]) for name in names)


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    if isinstance(value, bool):  # as SQLite has it
        return int(value)
    return float(value) if isinstance(value, Decimal) else value


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw a plan."""
    pieces = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6), st.booleans()), max_size=12))
    slack = draw(st.sampled_from([0, 0, 2 * SECOND]))
    moved = tuple(draw(st.lists(st.integers(0, slack), min_size=1, max_size=7))) if slack else ()
    return Plan(
        tuple(pieces), draw(st.integers(1, 4)), slack, moved,
        draw(st.sampled_from([None, None, 1, 2, 5])), draw(st.booleans()),
    )  # fmt: skip
