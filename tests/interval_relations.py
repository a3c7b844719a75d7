"""What the tests of interval relations share: relations in plain Python, cut into steps, driven through an operator.

A relation is a list of `Told`: a row, when it starts and ends (None: never), and whether its end is known as soon as the
row appears. `cut` tells it step by step, `drive` sends steps through an operator (or a leaf), losing it now and then and
rebuilding it from the state that it wrote, as the engine would; `intervals` reads the deltas that come out, checking
what every delta promises, and `snapshot` says what is alive at an instant.

    steps = cut(relation, schema, clocks)
    deltas = drive(lambda: Filter(...), [(span, [delta]) for span, delta in steps], seed=7)
    for instant in instants(relation): assert snapshot(intervals(deltas, ...), instant) == ...
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from hayase.core.stages import FailedRows, Tuples
from hayase.lifetimes.relations import OPEN, Delta, Span, Step

Row = dict[str, Any]


class Told(NamedTuple):
    """A row of a relation that a test made up. With `known_early` its end is told when it appears, else when it comes."""

    row: Row
    start: int
    end: int | None
    known_early: bool = False


class Interval(NamedTuple):
    """A row and when it is alive; an end of None is still open."""

    row: Row
    start: int
    end: int | None


def values(row: Row) -> tuple[Any, ...]:
    """A row as something that can be counted; all NaNs are one."""
    return tuple("NaN" if isinstance(each, float) and math.isnan(each) else each for each in row.values())


def snapshot(relation: Iterable[Told | Interval], instant: int) -> Counter[tuple[Any, ...]]:
    """The multiset of rows that are alive at an instant."""
    return Counter(
        values(each.row)
        for each in relation
        if each.start <= instant and (each.end is None or each.end == OPEN or instant < each.end)
    )


def instants(*relations: Iterable[Told | Interval]) -> list[int]:
    """Every instant at which something starts or ends, in order: between two of them no snapshot changes."""
    times = {each.start for relation in relations for each in relation}
    times |= {each.end for relation in relations for each in relation if each.end is not None and each.end != OPEN}
    return sorted(times)


def spans(clocks: Sequence[int], since: int, began: int | None = None) -> list[Span]:
    """The steps that end at these clocks; the first begins at `since`."""
    bounds = [since, *sorted(each for each in clocks if each >= since)]
    began = since if began is None else began
    return [Span(low, high, number, began) for number, (low, high) in enumerate(pairwise(bounds), 1)]


def cut(
    relation: Sequence[Told], schema: pa.Schema, clocks: Sequence[int], since: int | None = None
) -> list[tuple[Span, Delta]]:
    """A relation told step by step, up to the last clock. A tuple's id is its place in the list.

    A tuple is open when it appears if its end lies beyond the step and is not known early; it is closed by id later.
    """
    if since is None:
        since = min([each.start for each in relation] + list(clocks), default=0)
    return [(span, _told(relation, schema, span)) for span in spans(clocks, since)]


def _told(relation: Sequence[Told], schema: pa.Schema, span: Span) -> Delta:
    ends = [OPEN if each.end is None else each.end for each in relation]
    real = [at for at, each in enumerate(relation) if each.start < ends[at]]
    new = sorted(
        (at for at in real if span.since <= relation[at].start < span.clock), key=lambda at: relation[at].start
    )
    known = [ends[at] if relation[at].known_early or ends[at] < span.clock else OPEN for at in new]
    over = [
        at for at in real if relation[at].start < span.since <= ends[at] < span.clock and not relation[at].known_early
    ]
    over.sort(key=lambda at: (ends[at], at))
    return Delta(
        pa.RecordBatch.from_pylist([relation[at].row for at in new], schema=schema),
        np.array([relation[at].start for at in new], np.int64),
        np.array(known, np.int64),
        np.array(new, np.int64),
        np.array(over, np.int64),
        np.array([ends[at] for at in over], np.int64),
    )


def intervals(deltas: Sequence[Delta], told: Sequence[Span], strict: bool = True) -> list[Interval]:
    """What a sequence of deltas says, in the order of appearance; everything that a `Delta` promises is checked.

    Unless `strict`, ids may be closed that never appeared (a receiver ignores them).
    """
    rows: dict[int, Row] = {}
    alive: dict[int, tuple[int, int]] = {}
    unknown: set[int] = set()
    assert len(deltas) == len(told)
    for delta, span in zip(deltas, told):
        assert len(delta.closed) == len(delta.closed_end)
        assert list(delta.closed_end) == sorted(delta.closed_end)
        for number, end in zip(delta.closed.tolist(), delta.closed_end.tolist()):
            assert span.since <= end < span.clock, f"{number} is closed at {end}, outside of {span}"
            if number not in alive:
                assert not strict, f"{number} is closed but never appeared"
                unknown.add(number)
                continue
            start, before = alive[number]
            assert before == OPEN, f"{number} is closed but had the end {before}"
            assert start < end
            alive[number] = start, end
        assert len(delta.start) == len(delta.end) == len(delta.id)
        told_rows = delta.rows.to_pylist() if delta.rows.num_columns else [{}] * len(delta)
        assert len(told_rows) == len(delta)
        assert delta.start.dtype == delta.end.dtype == delta.id.dtype == np.int64
        assert list(delta.start) == sorted(delta.start)
        for row, start, end, number in zip(told_rows, delta.start.tolist(), delta.end.tolist(), delta.id.tolist()):
            assert span.since <= start < span.clock, f"{number} starts at {start}, outside of {span}"
            assert start < end, f"{number} is a ghost at {start}"
            assert number not in alive, f"the id {number} comes twice"
            assert number not in unknown, f"{number} was closed before it appeared"
            alive[number], rows[number] = (start, end), row
    return [Interval(rows[at], start, None if end == OPEN else end) for at, (start, end) in alive.items()]


def assert_same(found: Iterable[Interval], wanted: Iterable[Told | Interval], before: int) -> None:
    """Both have the same snapshots at all instants before a clock."""
    found, wanted = list(found), list(wanted)
    for instant in instants(found, wanted):
        if instant < before:
            assert snapshot(found, instant) == snapshot(wanted, instant), f"at {instant}"


@dataclass(slots=True)
class _Segment:
    """State tuples of one section as the engine keeps them: written at versions up to `high`."""

    section: str
    rows: pa.RecordBatch
    high: int
    until: int | None


@dataclass(slots=True)
class _Worker:
    """An operator in memory and the version that it is at."""

    operator: Any
    version: int


class Driver:
    """Runs an operator as the engine does. With a seed, chance decides which worker does a step (one of two that catch
    up from the state written meanwhile, or a new one), and when old state is joined or rewritten."""

    def __init__(self, build: Callable[[], Any], seed: int | None = None) -> None:
        self._build = build
        self._chance = None if seed is None else random.Random(seed)
        self._segments: list[_Segment] = []
        self._workers = [_Worker(build(), 0) for _ in range(1 if seed is None else 2)]
        self._reclaimed = 0
        self.spoiled: list[FailedRows] = []

    @property
    def operator(self) -> Any:
        """The worker of the last step, or one rebuilt from the state."""
        return self._workers[0].operator

    @property
    def state(self) -> list[Tuples]:
        """Everything that is kept on disk, in order."""
        return [Tuples(each.section, each.rows, each.until) for each in self._segments]

    def advance(self, inputs: Sequence[Any], span: Span) -> Delta:
        """One step, by whichever worker; its state is kept."""
        operator = self._chosen(span.version - 1)
        step: Step = operator.advance(inputs, span)
        self._workers[0].version = span.version
        self.spoiled += step.spoiled
        for each in step.state:
            assert operator.size(each.section) >= 0
            self._segments.append(_Segment(each.section, each.rows, span.version, each.until))
        self._segments = [each for each in self._segments if each.until is None or each.until >= span.clock]
        if self._chance is not None:
            self._look_after(operator, span.version)
        return step.delta

    def _chosen(self, version: int) -> Any:
        """Put the worker of the next step first, caught up."""
        if self._chance is not None:
            draw = self._chance.random()
            if draw < 0.6:
                self._workers.reverse()
            if draw < 0.15 or self._workers[0].version < self._reclaimed:  # what it should forget may be gone
                self._workers[0] = _Worker(self._build(), 0)
        worker = self._workers[0]
        for each in self._segments:
            if each.high > worker.version:
                worker.operator.restore(each.section, each.rows, each.high)
        worker.version = version
        return worker.operator

    def _look_after(self, operator: Any, version: int) -> None:
        """Join the newest segments of a section, or rewrite the oldest, as upkeep does."""
        assert self._chance is not None
        for section in sorted({each.section for each in self._segments}):
            mine = [each for each in self._segments if each.section == section]
            others = [each for each in self._segments if each.section != section]
            draw = self._chance.random()
            endless = [each for each in mine if each.until is None]
            if draw < 0.2 and endless:
                oldest = endless[0]
                count = self._chance.randint(1, max(1, oldest.rows.num_rows))
                live = operator.live(section, oldest.rows.slice(0, count), oldest.high)
                assert live.schema == oldest.rows.schema
                left = _Segment(section, oldest.rows.slice(count), oldest.high, None)
                mine = [left if each is oldest else each for each in mine]
                mine.append(_Segment(section, live, version, None))
                self._reclaimed = version
            elif draw < 0.4 and len(mine) > 1:
                at = self._chance.randrange(len(mine) - 1)
                rows = pa.Table.from_batches([each.rows for each in mine[at:]]).combine_chunks().to_batches()
                ends = [each.until for each in mine[at:]]
                until = None if None in ends else max(each for each in ends if each is not None)
                batch = rows[0] if rows else mine[at].rows.slice(0, 0)
                mine = [*mine[:at], _Segment(section, batch, version, until)]
            self._segments = [*others, *mine]


def drive(
    build: Callable[[], Any], steps: Iterable[tuple[Span, Sequence[Any]]], seed: int | None = None
) -> list[Delta]:
    """The deltas that an operator makes of steps (for each the inputs); see `Driver` for what a seed does."""
    driver = Driver(build, seed)
    return [driver.advance(inputs, span) for span, inputs in steps]


def told_relations(rows: st.SearchStrategy[Row], most: int = 15, last: int = 12) -> st.SearchStrategy[list[Told]]:
    """Small relations, with ties, touching intervals, and ends of all kinds."""
    times = st.integers(0, last)
    lengths = st.none() | st.integers(1, last)
    one = st.builds(
        lambda row, start, length, known: Told(row, start, None if length is None else start + length, known),
        rows, times, lengths, st.booleans(),
    )  # fmt: skip
    return st.lists(one, max_size=most // 2) | st.lists(one, min_size=2 * most // 3, max_size=most)


def clock_lists(last: int = 26) -> st.SearchStrategy[list[int]]:
    """Clocks at which steps end; the last is beyond everything in `told_relations` of the same make."""
    few = st.lists(st.integers(0, last - 1), max_size=3)
    many = st.lists(st.integers(0, last - 1), min_size=8, max_size=12)
    return (few | many).map(lambda clocks: [*sorted(clocks), last])
