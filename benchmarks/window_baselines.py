"""Other algorithms for sliding windows: oracles and baselines for `hayase.windows.shared`.

| name          | combines per tuple                  | space         | order        | laws        | where from       |
|---------------|-------------------------------------|---------------|--------------|-------------|------------------|
| recompute     | r / s per window                    | r             | oldest first | associative | the definition   |
| two stacks    | 3 per window                        | 2 r           | oldest first | associative | folklore         |
| panes alone   | 1, and r / gcd(r, s) / s per window | r / gcd(r, s) | oldest first | associative | the idea of MCQA |
| PaperWindows  | 2 + max(r) / min(r)^2, 2 per answer | max(r)        | oldest first | associative | paper 2          |

The first three take windows, "sum", "max" or "min", and an array of floats, and return the answers of each window; sums are
plain sums of doubles. The last one takes any function and one tuple at a time, and exposes its two arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd
from typing import Any

import numpy as np

from hayase.core import loop_types as types
from hayase.core.machine_code import compiled, njit
from hayase.windows.shared import Window

__all__ = ["BASELINES", "PaperWindows", "panes_alone", "recompute", "two_stacks"]

_OPERATIONS = {"sum": 0, "max": 1, "min": 2}
_i64 = types.int64
_readonly = types.Array(types.float64, 1, "C", readonly=True)
_made = types.float64[::1]


@njit(inline="always")
def _combined(older: Any, newer: Any, operation: Any) -> Any:
    if operation == 0:
        return older + newer
    if operation == 1:
        return newer if newer > older else older
    return newer if newer < older else older


@compiled(types.void, _readonly, _i64, _i64, _i64, _made)
def _recompute(values: Any, length: Any, slide: Any, operation: Any, out: Any) -> None:
    for number in range(len(out)):
        last = (number + 1) * slide - 1
        first = max(0, last - length + 1)
        total = values[first]
        for at in range(first + 1, last + 1):
            total = _combined(total, values[at], operation)
        out[number] = total


@compiled(types.void, _readonly, _i64, _i64, _i64, _made)
def _two_stacks(values: Any, length: Any, slide: Any, operation: Any, out: Any) -> None:
    """The older stack holds backward values; when it is empty, the newer stack is reversed into it."""
    older = np.empty(length)
    older_count = newer = count = 0
    total = 0.0
    due = slide - 1
    for at in range(len(values)):
        if older_count + newer == length:
            if older_count == 0:
                for back in range(newer):
                    value = values[at - 1 - back]
                    older[back] = _combined(value, older[back - 1], operation) if back else value
                older_count, newer = newer, 0
            older_count -= 1
        total = _combined(total, values[at], operation) if newer else values[at]
        newer += 1
        if at == due:
            out[count] = _combined(older[older_count - 1], total, operation) if older_count else total
            count += 1
            due += slide


@compiled(types.void, _readonly, _i64, _i64, _i64, _i64, _made)
def _panes_alone(values: Any, pane: Any, length: Any, slide: Any, operation: Any, out: Any) -> None:
    """Fold each pane once, and for each answer all panes of its window.

    The array of panes is twice as long as needed; its newer half moves down when it is full.
    """
    held = length // pane
    panes = np.empty(2 * held)
    closed = count = 0
    for begin in range(0, len(values) - pane + 1, pane):
        total = values[begin]
        for at in range(begin + 1, begin + pane):
            total = _combined(total, values[at], operation)
        if closed == 2 * held:
            panes[:held] = panes[held:]
            closed = held
        panes[closed] = total
        closed += 1
        if begin + pane == (count + 1) * slide:
            first = max(0, closed - held)
            answer = panes[first]
            for at_pane in range(first + 1, closed):
                answer = _combined(answer, panes[at_pane], operation)
            out[count] = answer
            count += 1


def recompute(windows: Sequence[Window], operation: str, values: np.ndarray) -> list[np.ndarray]:
    """Compute every answer from its tuples."""
    return _each(windows, values, lambda window, out: _recompute(values, *_numbers(window, operation), out))


def two_stacks(windows: Sequence[Window], operation: str, values: np.ndarray) -> list[np.ndarray]:
    """Compute every window separately, with an older and a newer stack."""
    return _each(windows, values, lambda window, out: _two_stacks(values, *_numbers(window, operation), out))


def panes_alone(windows: Sequence[Window], operation: str, values: np.ndarray) -> list[np.ndarray]:
    """Fold panes of the greatest common divisor of length and slide, again for every answer."""
    return _each(
        windows,
        values,
        lambda window, out: _panes_alone(values, gcd(window.length, window.slide), *_numbers(window, operation), out),
    )


def _numbers(window: Window, operation: str) -> tuple[int, int, int]:
    return window.length, window.slide, _OPERATIONS[operation]


def _each(windows: Sequence[Window], values: np.ndarray, run: Callable[[Window, np.ndarray], None]) -> list[np.ndarray]:
    answers = []
    for window in windows:
        out = np.empty(len(values) // window.slide)
        run(window, out)
        answers.append(out)
    return answers


BASELINES: Mapping[str, Callable[[Sequence[Window], str, np.ndarray], list[np.ndarray]]] = {
    "recompute": recompute,
    "two stacks per query": two_stacks,
    "panes alone": panes_alone,
}


class PaperWindows:
    """Paper 2 as printed: `da` in cycles of the shortest window, `qa` with a fold for each cycle.

    `da` has max(r) slots. In the running cycle they hold raw values, except that the newest holds the forward value; a full
    cycle holds backward values. `qa[c]` is the fold from the beginning of cycle c to the end of the newest full cycle, oldest
    first; it is rebuilt when a cycle is full. `_running` holds the raw values: the paper overwrites the newest slot with the
    forward value and restores the raw one when the next tuple comes.

    >>> paper = PaperWindows([5, 7, 8], lambda older, newer: older + newer)
    >>> for value in (8, 5, 3, 5, 3, 2, 4, 7): paper.push(value)
    >>> paper.da, paper.qa, paper.answer(7)
    ([24, 16, 11, 8, 3, 13, 11, 7], [37, 13], 29)
    """

    def __init__(self, lengths: Sequence[int], combine: Callable[[Any, Any], Any]) -> None:
        self._longest, self._cycle = max(lengths), min(lengths)
        self._combine = combine
        cycles = -(-self._longest // self._cycle)
        self.da: list[Any] = [None] * self._longest
        self.qa: list[Any] = [None] * cycles
        self._next = 0  # the slot of the next tuple
        self._running: list[Any] = []
        self._forward: Any = None
        self._count = 0
        self._newest: int | None = None  # the newest full cycle

    def _bounds(self, cycle: int) -> tuple[int, int]:
        return cycle * self._cycle, min((cycle + 1) * self._cycle, self._longest)

    def push(self, value: Any) -> None:
        """Add one tuple."""
        start, stop = self._bounds(self._next // self._cycle)
        if self._running:
            self.da[self._next - 1] = self._running[-1]  # restore the raw value
            self._forward = self._combine(self._forward, value)
        else:
            self._forward = value
        self._running.append(value)
        self.da[self._next] = self._forward
        self._next += 1
        self._count += 1
        if self._next == stop:
            self._close(start, stop)

    def _close(self, start: int, stop: int) -> None:
        """Finish a full cycle: compute its backward values in place, and qa from it backwards."""
        back = self.da[stop - 1] = self._running[-1]
        for slot in range(stop - 2, start - 1, -1):
            back = self.da[slot] = self._combine(self._running[slot - start], back)
        newest = self._newest = start // self._cycle
        self.qa[newest] = back
        for step in range(1, len(self.qa)):
            cycle = (newest - step) % len(self.qa)
            if self.qa[cycle] is None:
                break
            self.qa[cycle] = back = self._combine(self.da[cycle * self._cycle], back)
        self._running, self._next = [], stop % self._longest

    def answer(self, length: int) -> Any:
        """Return the fold of the newest `length` tuples: at most a value of da, one of qa, and the forward value."""
        length = min(length, self._count)
        rest = length - len(self._running)
        parts = [self._forward] if self._running else []
        if rest == 0:
            return parts[0]
        first = (self._next - len(self._running) - rest) % self._longest
        cycle = first // self._cycle
        if first == cycle * self._cycle:
            return self._fold([self.qa[cycle], *parts])
        if cycle != self._newest:
            parts.insert(0, self.qa[(cycle + 1) % len(self.qa)])
        return self._fold([self.da[first], *parts])

    def _fold(self, parts: Sequence[Any]) -> Any:
        total = parts[0]
        for part in parts[1:]:
            total = self._combine(total, part)
        return total
