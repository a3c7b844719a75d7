"""Trying again: which windows are called once more, which are cut in halves, and who is refused in the end.

A window that fails is called again, up to `attempts` times, after a pause that doubles. If it still fails and windows may
be divided (they are tumbling), it is cut in halves, and these again where they fail, each called once, until single
records are left, which have `attempts` calls of their own. So the neighbours of a poison record come through, in smaller
windows, and a record is refused only if it fails alone. A window that may not be divided is refused as a whole.

A record may also spoil what the function keeps between calls (close its connection, fill its memory), so that all that
follow fail too. When the last windows of a round have failed, it is that which is suspected: from then on every round
begins with the function made anew, and the first window that failed is called by itself, after the others.

All that is to be tried again goes into one round, so that a pause is one for all. A window of n records costs at most
`2 * attempts` rounds and the logarithm of n, and one with k poison records `most_calls(n, k, attempts)` calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from hayase.core.errors import DeclarationError
from hayase.operations.outcomes import Call, Failure

__all__ = ["Attempts", "Refusal", "Tried", "most_calls", "try_windows"]


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
    """Rows in the order of the windows, for each the number of its window; who is refused, in order; calls of a window."""

    rows: pa.Table
    window: np.ndarray
    refusals: tuple[Refusal, ...]
    calls: int


@dataclass(slots=True)
class _Spans:
    """Parts of windows that are to be called: as arrays, since there are many of them at first and few later.

    `alone` counts the failures of exactly this span, `failed` all calls with its records that failed.
    """

    window: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    alone: np.ndarray
    failed: np.ndarray
    whole: np.ndarray

    def __len__(self) -> int:
        return len(self.window)


@dataclass(slots=True)
class _Next:
    """Spans of the next round, as they are found."""

    lines: list[tuple[int, int, int, int, int, bool]] = field(default_factory=list)

    def spans(self) -> _Spans:
        window, start, stop, alone, failed, whole = np.array(sorted(self.lines), np.int64).T
        return _Spans(window, start, stop, alone, failed, whole != 0)


def try_windows(
    call: Call,
    starts: np.ndarray,
    stops: np.ndarray,
    attempts: Attempts,
    divide: bool,
    sleep: Callable[[float], None],
    renew: Callable[[], None] = lambda: None,
) -> Tried:
    """Call windows until each has given its rows or is refused. `renew` makes the function forget what it keeps."""
    count = len(starts)
    none = np.zeros(count, np.int64)
    todo = _Spans(np.arange(count), starts, stops, none, none, np.ones(count, np.bool_))
    suspects: list[tuple[int, int, int]] = []
    wary = False
    tables: list[pa.Table] = []
    owners: list[tuple[np.ndarray, np.ndarray]] = []
    refusals: list[Refusal] = []
    calls = 0
    while True:
        coming = _Next()
        first: int | None = None
        for together in _parts(todo, suspects):
            if wary:
                renew()
            outcomes = call(todo.start[together], todo.stop[together])
            calls += len(together)
            tables.append(outcomes.rows)
            window, start = todo.window[together], todo.start[together]
            owners.append((np.repeat(window, outcomes.counts), np.repeat(start, outcomes.counts)))
            for at, failure in sorted(outcomes.failures.items()):
                number = int(together[at])
                first = number if first is None else first
                _fail(todo, number, failure, attempts, divide, coming, refusals)
            wary = wary or all(
                len(together) - back in outcomes.failures for back in range(1, min(len(together), 2) + 1)
            )
        if not coming.lines:
            break
        if wary and first is not None:
            suspects.append((int(todo.window[first]), int(todo.start[first]), int(todo.stop[first])))
        todo = coming.spans()
        again = int(todo.alone.max())
        if again:
            sleep(attempts.pause_after(again))
    rows, window = tables[0], owners[0][0]
    if len(tables) > 1:
        window, start = (np.concatenate(parts) for parts in zip(*owners))
        order = np.lexsort((start, window))
        rows, window = pa.concat_tables(tables).take(pa.array(order)), window[order]
    return Tried(rows, window, tuple(sorted(refusals, key=lambda each: (each.window, each.start))), calls)


def _parts(todo: _Spans, suspects: list[tuple[int, int, int]]) -> list[np.ndarray]:
    """Which spans are called together: all that nobody suspects, then the others one by one."""
    suspected = np.zeros(len(todo), np.bool_)
    for window, start, stop in suspects:
        suspected |= (todo.window == window) & (todo.start < stop) & (start < todo.stop)
    others = [np.array([each]) for each in np.flatnonzero(suspected).tolist()]
    return others if others and suspected.all() else [np.flatnonzero(~suspected), *others]


def _fail(
    todo: _Spans,
    at: int,
    failure: Failure,
    attempts: Attempts,
    divide: bool,
    coming: _Next,
    refusals: list[Refusal],
) -> None:
    """What follows from a failure: the span once more, its halves, or a refusal."""
    window, start, stop = int(todo.window[at]), int(todo.start[at]), int(todo.stop[at])
    alone, failed, whole = int(todo.alone[at]) + 1, int(todo.failed[at]) + 1, bool(todo.whole[at])
    if alone < (attempts.most if whole or stop - start == 1 else 1):
        coming.lines.append((window, start, stop, alone, failed, whole))
    elif divide and stop - start > 1:
        middle = (start + stop) // 2
        coming.lines += [(window, start, middle, 0, failed, False), (window, middle, stop, 0, failed, False)]
    else:
        refusals.append(Refusal(window, start, stop, failed, failure))


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
