"""Trying again: which windows are called once more, which are cut in halves, and who is refused in the end.

A window that fails is called again, up to `attempts` times, after a pause that doubles. If it still fails and windows may
be divided (they are tumbling), it is cut in halves, and these again where they fail, each called once, until single
records are left, which have `attempts` calls of their own. So the neighbours of a poison record come through, in smaller
windows, and a record is refused only if it fails alone. A window that may not be divided is refused as a whole.

A pause is for what failed: windows go in portions, and while some wait to be tried again, others are worked on. Only when
nothing else is left to do, there is a pause for all.

A record may also spoil what the function keeps between calls (close its connection, fill its memory), so that all that
follow fail too. Behind a portion whose last window has failed, the function is therefore made anew; and if others before
it have failed too, without one between that did not, all of these are suspected: the next time they are called with care,
which is to make the function anew behind each failure.

A window with n records, k of them poison, costs at most `most_calls(n, k, attempts)` calls.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np
import pyarrow as pa

from hayase.core.errors import DeclarationError
from hayase.operations.outcomes import DEADLY, Call, Failure

__all__ = ["Attempts", "Pace", "Refusal", "Tried", "most_calls", "try_windows"]


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often a window is called, and the pauses between, in seconds."""

    most: int = 3
    pause: float = 0.05
    longest_pause: float = 2.0

    def __post_init__(self) -> None:
        if self.most < 1:
            raise DeclarationError(f"{self.most} attempts are none", "give 1 or more")
        if self.pause < 0 or self.longest_pause < 0:
            raise DeclarationError("a pause between attempts is negative", "give 0 or more seconds")

    def pause_after(self, failures: int) -> float:
        """The pause before something is called again that has failed so often.

        >>> [Attempts(5, 0.5, 1.5).pause_after(each) for each in (1, 2, 3)]
        [0.5, 1.0, 1.5]
        """
        return min(self.pause * 2.0 ** min(failures - 1, 60), self.longest_pause)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Records `start` to before `stop`, of a window, that failed for the last time; `attempts` calls with them failed."""

    window: int
    start: int
    stop: int
    attempts: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class Tried:
    """Rows in the order of the windows, for each the number of its window; who is refused, in order; calls of a window.

    `nanoseconds` are how long the function was at work on each window, in all attempts.
    """

    rows: pa.Table
    window: np.ndarray
    refusals: tuple[Refusal, ...]
    calls: int
    nanoseconds: np.ndarray


@dataclass(slots=True)
class Pace:
    """How many windows are called at once: as many as take about a tenth of a second."""

    windows: int = 64

    def follow(self, seconds: float) -> None:
        """Learn from how long it took to call so many."""
        if seconds < 0.05:
            self.windows = min(self.windows * 4, 1 << 16)
        elif seconds > 0.2:
            self.windows = max(self.windows // 2, 16)


@dataclass(frozen=True, slots=True, order=True)
class _Span:
    """A window, or a part of one, that waits to be called again until it is `due`.

    `alone` counts the failures of exactly this span, `failed` all calls with its records that failed. A span that is
    `whole` is a window; one that is `suspected` is called with care. One that is `deadly` has ended the process.
    """

    due: float
    window: int
    start: int
    stop: int
    alone: int = 0
    failed: int = 0
    whole: bool = True
    suspected: bool = False
    deadly: bool = False


@dataclass(frozen=True, slots=True)
class _Portion:
    """What is called together: spans, then windows that were not called before."""

    again: list[_Span]
    new: range

    def __len__(self) -> int:
        return len(self.again) + len(self.new)

    @property
    def careful(self) -> bool:
        return bool(self.again) and self.again[0].suspected


class _Trial:
    """Windows on their way: those never called so far, spans that wait, and what has come out."""

    def __init__(self, starts: np.ndarray, stops: np.ndarray, attempts: Attempts, divide: bool) -> None:
        self._starts, self._stops, self._attempts, self._divide = starts, stops, attempts, divide
        self._new = 0
        self._waiting: list[_Span] = []
        self._refusals: list[Refusal] = []
        self._tables: list[pa.Table] = []
        self._owners: list[tuple[np.ndarray, np.ndarray]] = []
        self._nanoseconds = np.zeros(len(starts), np.int64)
        self._calls = 0

    def due(self) -> float | None:
        """When something is to be called, None if nothing is left. Spans that are due soon one after the other wait for each
        other, if that is all there is."""
        if self._new < len(self._starts):
            return -math.inf
        if not self._waiting:
            return None
        soon = self._waiting[0].due + self._attempts.pause / 4
        return max(each.due for each in self._waiting if each.due <= soon)

    def take(self, now: float, most: int) -> _Portion:
        """What is due. Spans that are suspected go by themselves."""
        ready = []
        while self._waiting and self._waiting[0].due <= now:
            ready.append(heappop(self._waiting))
        suspected = [each for each in ready if each.suspected]
        if suspected:
            for each in ready:
                if not each.suspected:
                    heappush(self._waiting, each)
            return _Portion(sorted(suspected, key=_place), range(0))
        new = range(self._new, min(self._new + most, len(self._starts)))
        self._new = new.stop
        return _Portion(sorted(ready, key=_place), new)

    def call(self, call: Call, portion: _Portion) -> Mapping[int, Failure]:
        """Call a portion; what failed of it."""
        new = slice(portion.new.start, portion.new.stop)
        bounds = np.array([_bounds(each) for each in portion.again], np.int64).reshape(-1, 3)
        window = np.concatenate([bounds[:, 0], np.arange(new.start, new.stop)])
        start = np.concatenate([bounds[:, 1], self._starts[new]])
        outcomes = call(start, np.concatenate([bounds[:, 2], self._stops[new]]), portion.careful)
        self._calls += len(window)
        self._tables.append(outcomes.rows)
        self._owners.append((np.repeat(window, outcomes.counts), np.repeat(start, outcomes.counts)))
        if len(outcomes.nanoseconds):
            np.add.at(self._nanoseconds, window, outcomes.nanoseconds)
        return outcomes.failures

    def follow(self, portion: _Portion, failures: Mapping[int, Failure], now: float) -> bool:
        """What follows from failures: spans once more, their halves, or refusals. Whether the last one has failed."""
        run = len(portion)  # from there on all have failed
        while run - 1 in failures:
            run -= 1
        suspicious = len(portion) - run >= min(len(portion), 2)
        for at, failure in sorted(failures.items()):
            if at < len(portion.again):
                span = portion.again[at]
            else:
                number = portion.new[at - len(portion.again)]
                span = _Span(now, number, int(self._starts[number]), int(self._stops[number]))
            self._fail(span, failure, now, span.suspected or (suspicious and at >= run))
        return run < len(portion)

    def _fail(self, span: _Span, failure: Failure, now: float, suspected: bool) -> None:
        size, alone, failed = span.stop - span.start, span.alone + 1, span.failed + 1
        span = replace(span, failed=failed, suspected=suspected, deadly=failure.kind in DEADLY)
        if alone < (self._attempts.most if span.whole or size == 1 else 1):
            due = now + self._attempts.pause_after(alone)
            heappush(self._waiting, replace(span, due=due, alone=alone))
        elif self._divide and size > 1:
            middle = (span.start + span.stop) // 2
            for start, stop in ((span.start, middle), (middle, span.stop)):
                heappush(self._waiting, replace(span, due=now, start=start, stop=stop, alone=0, whole=False))
        else:
            self._refusals.append(Refusal(span.window, span.start, span.stop, failed, failure))

    def tried(self) -> Tried:
        """What has come of it."""
        window, start = (np.concatenate(parts) for parts in zip(*self._owners))
        rows = pa.concat_tables(self._tables)
        order = np.lexsort((start, window))
        if (order[1:] < order[:-1]).any():
            rows, window = rows.take(pa.array(order)), window[order]
        refusals = sorted(self._refusals, key=lambda each: (each.window, each.start))
        return Tried(rows, window, tuple(refusals), self._calls, self._nanoseconds)


def _bounds(span: _Span) -> tuple[int, int, int]:
    return span.window, span.start, span.stop


def _place(span: _Span) -> tuple[bool, int, int]:
    """Who comes first: those who may end the process, since what was done before them would have to be done again."""
    return not span.deadly, span.window, span.start


def try_windows(
    call: Call,
    starts: np.ndarray,
    stops: np.ndarray,
    attempts: Attempts,
    divide: bool,
    sleep: Callable[[float], None] = time.sleep,
    renew: Callable[[], None] = lambda: None,
    pace: Pace | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Tried:
    """Call windows, at least one, until each has given its rows or is refused. `renew` makes the function forget what it
    keeps."""
    pace, now = pace or Pace(), clock()
    trial = _Trial(starts, stops, attempts, divide)
    while (due := trial.due()) is not None:
        if due > now:
            sleep(due - now)
        now = max(now, due, clock())
        portion = trial.take(now, pace.windows)
        failures = trial.call(call, portion)
        began, now = now, max(now, clock())
        if len(portion.new) == pace.windows:
            pace.follow(now - began)
        if trial.follow(portion, failures, now):
            renew()
    return trial.tried()


def most_calls(records: int, poison: int, attempts: int) -> int:
    """The most calls that a window of some records can cost if so many of them always fail, and the others never.

    >>> most_calls(1, 1, 3), most_calls(8, 0, 3), most_calls(8, 1, 3)
    (3, 1, 11)
    """
    if not poison:
        return 1
    if records == 1:
        return attempts
    levels = (records - 1).bit_length()
    return attempts + poison * (2 * levels + attempts - 1)
