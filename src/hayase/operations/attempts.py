"""Retries of an operation's function: which windows are called again, which are cut in halves, and which are refused.

A window that fails is called again, up to `attempts` times, after pauses that double. If it still fails and windows may
be divided (they are tumbling), it is cut in halves, recursively, each half called once, until single records remain,
which get `attempts` calls of their own. So the neighbours of a poison record succeed, in smaller windows, and a record
is refused only if it fails alone. A window that may not be divided is refused as a whole.

Pauses do not block other work: windows are called in portions, and while some wait to be called again, others run.
`try_windows` sleeps only if nothing else is left to do.

A record may also corrupt what the function keeps between calls (close its connection, fill its memory), so that all
later calls fail too. After a portion whose last window failed, the function is therefore restarted. If the windows
right before it failed too, all of these are suspected: they are called again with care, which means that the function
is restarted after each failure.

A window with n records, k of them poison, costs at most `most_calls(n, k, attempts)` calls.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from heapq import heappop, heappush

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError
from hayase.operations.outcomes import DEADLY, Call, Failure

__all__ = ["Attempts", "Pace", "Refusal", "WindowResults", "most_calls", "try_windows"]


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often a window is called, and the pauses between calls, in seconds."""

    most: int = 3
    pause: float = 0.05
    longest_pause: float = 2.0

    def __post_init__(self) -> None:
        if self.most < 1:
            raise DeclarationError(f"{self.most} attempts are none", "give 1 or more")
        if self.pause < 0 or self.longest_pause < 0:
            raise DeclarationError("a pause between attempts is negative", "give 0 or more seconds")

    def pause_after(self, failures: int) -> float:
        """Return the pause before the next call of something that has failed `failures` times.

        >>> [Attempts(5, 0.5, 1.5).pause_after(failures) for failures in (1, 2, 3)]
        [0.5, 1.0, 1.5]
        """
        return min(self.pause * 2.0 ** min(failures - 1, 60), self.longest_pause)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Records [`start`, `stop`) of a window that failed for the last time; `attempts` calls with them failed."""

    window: int
    start: int
    stop: int
    attempts: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class WindowResults:
    """The result of `try_windows`: rows in window order with the window number of each, refusals in order, and the
    number of calls.

    `nanoseconds` is the time the function spent on each window, over all attempts.
    """

    rows: pa.Table
    window: np.ndarray
    refusals: tuple[Refusal, ...]
    calls: int
    nanoseconds: np.ndarray


@dataclass(slots=True)
class Pace:
    """How many windows are called at once: about as many as take half a second. Between two portions the function rests,
    for about a millisecond; a window that failed is called again after its portion at the earliest."""

    windows: int = 64

    def follow(self, seconds: float) -> None:
        """Adapt to how long a full portion took."""
        if seconds < 0.25:
            self.windows = min(self.windows * 4, 1 << 16)
        elif seconds > 1.0:
            self.windows = max(self.windows // 2, 16)


@dataclass(frozen=True, slots=True, order=True)
class _Span:
    """A window, or a part of one, that waits to be called again until it is `due`.

    `alone` counts the failures of exactly this span, `failed` all failed calls that contained its records. A `whole`
    span is a complete window; a `suspected` one is called with care; a `deadly` one has ended the process.
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
    """What is called together: spans that failed before, then windows that were never called."""

    again: list[_Span]
    new: range

    def __len__(self) -> int:
        return len(self.again) + len(self.new)

    @property
    def careful(self) -> bool:
        return bool(self.again) and self.again[0].suspected


class _Trial:
    """The progress of `try_windows`: windows not called yet, spans that wait, and the results so far."""

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
        """Return when the next call is due, None if nothing is left. If only waiting spans are left, those that are due
        shortly after each other are called together."""
        if self._new < len(self._starts):
            return -math.inf
        if not self._waiting:
            return None
        soon = self._waiting[0].due + self._attempts.pause / 4
        return max(span.due for span in self._waiting if span.due <= soon)

    def take(self, now: float, most: int) -> _Portion:
        """Return the next portion: what is due at `now`, and up to `most` new windows. Suspected spans form a portion
        of their own."""
        ready = []
        while self._waiting and self._waiting[0].due <= now:
            ready.append(heappop(self._waiting))
        suspected = [span for span in ready if span.suspected]
        if suspected:
            for span in ready:
                if not span.suspected:
                    heappush(self._waiting, span)
            return _Portion(sorted(suspected, key=_place), range(0))
        new = range(self._new, min(self._new + most, len(self._starts)))
        self._new = new.stop
        return _Portion(sorted(ready, key=_place), new)

    def call(self, call: Call, portion: _Portion) -> Mapping[int, Failure]:
        """Call a portion and return its failures by position."""
        new = slice(portion.new.start, portion.new.stop)
        bounds = np.array([_bounds(span) for span in portion.again], np.int64).reshape(-1, 3)
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
        """Decide on the failures of a portion: retry, divide or refuse. Return whether its last window failed."""
        all_failed_from = len(portion)  # from here on all windows have failed
        while all_failed_from - 1 in failures:
            all_failed_from -= 1
        suspicious = len(portion) - all_failed_from >= min(len(portion), 2)
        for position, failure in sorted(failures.items()):
            if position < len(portion.again):
                span = portion.again[position]
            else:
                number = portion.new[position - len(portion.again)]
                span = _Span(now, number, int(self._starts[number]), int(self._stops[number]))
            self._fail(span, failure, now, span.suspected or (suspicious and position >= all_failed_from))
        return all_failed_from < len(portion)

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

    def tried(self) -> WindowResults:
        """Return the result, once nothing is left to call."""
        window, start = (np.concatenate(parts) for parts in zip(*self._owners))
        rows = pa.concat_tables(self._tables)
        order = np.lexsort((start, window))
        if (order[1:] < order[:-1]).any():
            rows, window = rows.take(pa.array(order)), window[order]
        refusals = sorted(self._refusals, key=lambda refusal: (refusal.window, refusal.start))
        return WindowResults(rows, window, tuple(refusals), self._calls, self._nanoseconds)


def _bounds(span: _Span) -> tuple[int, int, int]:
    return span.window, span.start, span.stop


def _place(span: _Span) -> tuple[bool, int, int]:
    """Sort key: spans that may end the process come first, since results before them would have to be computed again."""
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
) -> WindowResults:
    """Call windows, at least one, until each has returned its rows or is refused. `renew` restarts the function, so
    that it loses what it keeps between calls."""
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
    """Return the maximal number of calls for a window with `records` records, of which `poison` always fail and the
    others never.

    >>> most_calls(1, 1, 3), most_calls(8, 0, 3), most_calls(8, 1, 3)
    (3, 1, 11)
    """
    if not poison:
        return 1
    if records == 1:
        return attempts
    levels = (records - 1).bit_length()
    return attempts + poison * (2 * levels + attempts - 1)
