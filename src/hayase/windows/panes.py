"""Time windows by panes: tuples of a key are folded into panes of equal width, and panes into windows.

A window `(length, slide)` has at every multiple B of the slide the aggregate over the tuples with `B - length < time <= B`.
Its panes are `((p - 1) * width, p * width]`, where width is the greatest common divisor of length and slide, so that a pane
is either in the window or not. Only panes with tuples exist. A turn is an instant at which the window of a key changes
because a pane enters or leaves it: the cost of a sparse key depends on its tuples, not on the number of slides, and a gap of
years is one step.

Panes of all keys close in time order. The closed panes are in one queue, and each window has two positions in it, of the
panes that have entered and that have left; nothing is searched.

The entries of a key are in chains, one for each epoch of `size` panes, where `size` is the greatest power of two that is at
most the number of panes of the window. A window then spans at most three chains, and the content of a chain follows from the
tuples only. So the bits of a result depend on the window and its tuples, not on how these are cut into steps or on other
windows. Windows of similar length share chains.

Order: time.   Laws: associative.   Per tuple: one combine; per turn: a few.   Space: the live panes, up to twice for each
power of two between the shortest and the longest window.
Papers: 2 (cycles), 5 (panes of the greatest common divisor).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from hayase.core.data_classes import dataclass
from hayase.windows.folds import Folds
from hayase.windows.partials import Lifting, Partials

if TYPE_CHECKING:
    from hayase.windows.bounded_panes import EveryWindow

__all__ = [
    "Cells",
    "Folding",
    "PaneSequence",
    "Panes",
    "ShortChains",
    "Turns",
    "WindowShape",
    "epoch_end",
    "pane_width",
    "put",
    "with_more",
]

_LEAST = 64
_SHORT = 4
"""Entries of the longest chains that are folded one after the other."""


def pane_width(length: int, slide: int) -> int:
    """Return the width of a window's panes.

    >>> pane_width(15, 6)
    3
    """
    return gcd(length, slide)


WindowShape = Literal["range", "hop", "cumulate"]
"""Whether a window has turns where its content changes, or at every multiple of its slide (`bounded_panes`)."""


def epoch_end(time: np.ndarray, length: int, slide: int, shape: WindowShape = "range") -> np.ndarray:
    """Return when the last pane of each tuple's epoch has left a window; until then the tuple is needed to rebuild it.

    With a turn at every multiple of the slide, that is the last multiple at which the pane is in the window.

    >>> epoch_end(np.array([1, 9]), 6, 3).tolist(), epoch_end(np.array([1, 9]), 6, 3, "hop").tolist()
    ([9, 15], [6, 12])
    """
    width = pane_width(length, slide)
    size = _epoch_size(length // width)
    last = (-(-time // width) // size + 1) * size - 1
    if shape == "cumulate":
        return -(-(last * width) // length) * length
    leaves = -(-(last * width + length) // slide) * slide
    return leaves if shape == "range" else leaves - slide


def _epoch_size(panes: int) -> int:
    """Return the greatest power of two that is at most the number of panes of a window."""
    return 1 << (panes.bit_length() - 1) if panes else 1


@dataclass(frozen=True, slots=True)
class Turns:
    """The instants at which windows of keys change, in time order: at most one per key, window and instant.

    `first` to `last` is the content of the window then. `cause` is the tuple that caused the turn; it distinguishes the
    turns of one instant and window.
    """

    time: np.ndarray
    key: np.ndarray
    cause: np.ndarray
    first: np.ndarray
    last: np.ndarray

    def __len__(self) -> int:
        return len(self.time)


class Folding(Protocol):
    """Folds the content of a window at its turns."""

    def fold(self, number: int, turns: Turns) -> Partials:
        """Return the partials of the windows at some turns, for the lifting of a number."""

    def filled(self, turns: Turns) -> np.ndarray:
        """Return at which turns the window is not empty."""


@dataclass(frozen=True, slots=True)
class _FoldedPanes:
    """The non-empty panes of keys, in the order of their numbers."""

    panes: np.ndarray
    keys: np.ndarray
    causes: np.ndarray
    partials: Sequence[Partials]

    def take(self, rows: np.ndarray) -> _FoldedPanes:
        taken = [partials.take(rows) for partials in self.partials]
        return _FoldedPanes(self.panes[rows], self.keys[rows], self.causes[rows], taken)

    def followed_by(self, other: _FoldedPanes) -> _FoldedPanes:
        if not len(self.keys):
            return other
        return _FoldedPanes(
            np.concatenate((self.panes, other.panes)),
            np.concatenate((self.keys, other.keys)),
            np.concatenate((self.causes, other.causes)),
            [Partials.joined(pair) for pair in zip(self.partials, other.partials)],
        )


class Panes:
    """Windows over panes of one width, for numbered keys; `liftings` are the aggregates."""

    def __init__(
        self,
        width: int,
        liftings: Sequence[Lifting],
        windows: Sequence[tuple[int, int] | tuple[int, int, WindowShape]],
    ) -> None:
        self._width = width
        self._liftings = list(liftings)
        sizes = [_epoch_size(window[0] // width) for window in windows]
        self._sequences = {size: PaneSequence(width, size, liftings) for size in sizes}
        self._windows = [self._sequences[size].window(*window) for size, window in zip(sizes, windows)]
        self._opened = 0  # the number of the open pane
        self._is_open = np.zeros(0, np.bool_)
        self._causes = np.empty(0, np.int64)
        self._cells = [Cells(lifting) for lifting in liftings]
        self._open_keys: list[np.ndarray] = []
        self._newest = np.empty(0, np.int64)
        self._emptied: list[np.ndarray] = []

    def advance(
        self, keys: np.ndarray, time: np.ndarray, cause: np.ndarray, partials: Sequence[Partials], clock: int
    ) -> list[tuple[Folding, Turns]]:
        """Add tuples in time order and advance to the clock.

        Returns for every window its turns before the clock and what folds them, valid until the next call.
        """
        for sequence in self._sequences.values():
            emptied = sequence.forget()
            if len(emptied):
                self._emptied.append(emptied)
        if len(keys):
            self._make_room(int(keys.max()) + 1)
        closed = self._closed(*self._folded(keys, time, cause, partials), clock)
        for sequence in self._sequences.values():
            sequence.append(closed)
        return [(window.sequence, window.turns(clock)) for window in self._windows]

    def emptied(self) -> np.ndarray:
        """Return the keys that may have become empty since the last call; check with `holds`."""
        keys = np.concatenate([np.empty(0, np.int64), *self._emptied])
        self._emptied = []
        return keys

    def holds(self, keys: np.ndarray) -> np.ndarray:
        """Return which keys have tuples that are still needed."""
        self._make_room(int(keys.max(initial=-1)) + 1)
        held = self._is_open[keys]
        for sequence in self._sequences.values():
            held = held | sequence.holds(keys)
        return held

    def _folded(
        self, keys: np.ndarray, time: np.ndarray, cause: np.ndarray, partials: Sequence[Partials]
    ) -> tuple[_FoldedPanes, np.ndarray]:
        """Return the panes of the tuples, in order, and the keys whose open pane is continued.

        Each tuple is combined after the existing content, as if all had come at once.
        """
        from hayase.windows import panes_loops

        count = len(keys)
        group, groups, goes_on = np.empty(count, np.int64), np.empty((3, count), np.int64), np.empty(count, np.bool_)
        panes = -(-time // self._width)
        count_of_panes = panes_loops.group(
            panes, keys, self._opened, self._is_open, self._newest, group, groups, goes_on
        )
        starts, order = np.zeros(count_of_panes + 1, np.int64), np.empty(count, np.int64)
        in_order = panes_loops.arrange(group, starts, order)
        own = groups[1, :count_of_panes].copy()
        causes, continued = cause[groups[2, :count_of_panes]], np.flatnonzero(goes_on[:count_of_panes])
        causes[continued] = self._causes[own[continued]]
        folded = []
        for lifting, cells, lifted in zip(self._liftings, self._cells, partials):
            rows = lifted if in_order and not len(continued) else lifted.take(np.arange(count) if in_order else order)
            if len(continued):
                at = starts[continued]
                put(rows, at, lifting.combined(cells.take(own[continued]), rows.take(at)))
            folded.append(rows if count_of_panes == count else lifting.runs(rows, starts[:-1]))
        return _FoldedPanes(groups[0, :count_of_panes].copy(), own, causes, folded), own[continued]

    def _closed(self, folded: _FoldedPanes, continued: np.ndarray, clock: int) -> _FoldedPanes:
        """Return the panes that end before the clock, in order, and keep the others open."""
        over = folded.panes * self._width < clock
        left = None
        if self._opened * self._width < clock:
            self._is_open[continued] = False
            left = self._left_open()
        if not over.all():
            self._keep_open(folded.take(np.flatnonzero(~over)))
            folded = folded.take(np.flatnonzero(over))
        return folded if left is None else left.followed_by(folded)

    def _left_open(self) -> _FoldedPanes:
        """Close and return the open panes that were not continued."""
        keys = np.concatenate([np.empty(0, np.int64), *self._open_keys])
        keys = keys[self._is_open[keys]]
        self._open_keys = []
        self._is_open[keys] = False
        panes = np.full(len(keys), self._opened)
        return _FoldedPanes(panes, keys, self._causes[keys], [cells.take(keys) for cells in self._cells])

    def _keep_open(self, folded: _FoldedPanes) -> None:
        """Keep panes that have not ended; all have the same number, that of the latest pane."""
        self._opened, keys = int(folded.panes[0]), folded.keys
        new = keys[~self._is_open[keys]]
        if len(new):
            self._open_keys.append(new)
        self._is_open[keys] = True
        self._causes[keys] = folded.causes
        for cells, partials in zip(self._cells, folded.partials):
            cells.put(keys, partials, len(self._is_open))

    def _make_room(self, count: int) -> None:
        known = len(self._is_open)
        if count > known:
            more = max(count, 2 * known, _LEAST) - known
            self._is_open = np.concatenate((self._is_open, np.zeros(more, np.bool_)))
            self._newest = np.concatenate((self._newest, np.full(more, -1)))
            self._causes = np.concatenate((self._causes, np.zeros(more, np.int64)))


class PaneSequence:
    """The closed panes of all keys, in chains of one size, and the folds over them."""

    def __init__(self, width: int, size: int, liftings: Sequence[Lifting]) -> None:
        self._size, self.width = size, width
        self._liftings = list(liftings)
        self._folds: list[Folds | ShortChains] = [
            ShortChains(lifting, size) if size <= _SHORT else Folds(lifting) for lifting in liftings
        ]
        self._windows: dict[tuple[int, int, WindowShape], PaneWindow | EveryWindow] = {}
        self.entries = np.empty((6, _LEAST), np.int64)
        self.base, self.held = 0, 0  # the number of the entry in column 0, and the number of columns in use
        self._oldest = 0  # the number of the oldest entry that is kept
        self._chains = np.empty((4, _LEAST), np.int64)
        self._of_keys = np.empty((3, 0), np.int64)
        self._free, self._freed, self._top = np.empty(_LEAST, np.int64), 0, 0

    def window(self, length: int, slide: int, shape: WindowShape = "range") -> PaneWindow | EveryWindow:
        """Return a window over the sequence; equal windows are the same object."""
        from hayase.windows.bounded_panes import EveryWindow

        if (length, slide, shape) not in self._windows:
            window = EveryWindow(self, length, slide, grows=shape == "cumulate") if shape != "range" else None
            self._windows[length, slide, shape] = window or PaneWindow(self, length, slide)
        return self._windows[length, slide, shape]

    def append(self, folded: _FoldedPanes) -> None:
        """Add closed panes."""
        from hayase.windows import panes_loops

        keys, count = folded.keys, len(folded.keys)
        if not count:
            return
        self.entries = _widened(self.entries, self.held + count, self.held)
        self._chains = _widened(self._chains, self._top + count, self._top)
        needed = int(keys.max()) + 1
        if needed > self._of_keys.shape[1]:
            self._of_keys = with_more(self._of_keys, needed, (-1, -1, 0))
        self._freed, self._top = panes_loops.chain_up(
            folded.panes, keys, folded.causes, self._size, self.entries, self.base, self.held, self._chains, self._of_keys,
            self._free, self._freed, self._top,
        )  # fmt: skip
        chains, places = (
            self.entries[field, self.held : self.held + count] for field in (panes_loops.IN, panes_loops.PLACE)
        )
        for folds, partials in zip(self._folds, folded.partials):
            if isinstance(folds, ShortChains):
                folds.put(chains, places, partials)
            else:
                folds.append(chains, partials)
        self.held += count

    def fold(self, number: int, turns: Turns) -> Partials:
        """Return the partials of the windows at some turns, for the lifting of a number."""
        from hayase.windows import panes_loops

        lifting, folds = self._liftings[number], self._folds[number]
        filled = np.flatnonzero(turns.first >= 0)
        first, last = turns.first[filled] - self.base, turns.last[filled] - self.base
        of, place = self.entries[panes_loops.IN], self.entries[panes_loops.PLACE]
        chain, to_chain, until = of[first], of[last], place[last]
        across = np.flatnonzero(chain != to_chain)
        stop = until.copy()
        stop[across] = self._chains[panes_loops.LENGTH, chain[across]] - 1
        partials = folds.fold(chain, place[first], stop)
        if len(across):
            middle, to_chain, until = self._chains[panes_loops.AFTER, chain[across]], to_chain[across], until[across]
            between = np.where(middle != to_chain, self._chains[panes_loops.LENGTH, middle] - 1, -1)
            older = partials.take(across)
            if (between >= 0).any():
                older = lifting.combined(older, folds.fold(middle, np.zeros(len(middle), np.int64), between))
            newer = folds.fold(to_chain, np.zeros(len(until), np.int64), until)
            put(partials, across, lifting.combined(older, newer))
        if len(filled) == len(turns):
            return partials
        result = lifting.empties(len(turns))
        put(result, filled, partials)
        return result

    def filled(self, turns: Turns) -> np.ndarray:
        """Return at which turns the window is not empty."""
        return turns.first >= 0

    def holds(self, keys: np.ndarray) -> np.ndarray:
        """Return which keys have entries."""
        from hayase.windows import panes_loops

        known = keys < self._of_keys.shape[1]
        held = np.zeros(len(keys), np.bool_)
        held[known] = self._of_keys[panes_loops.ALIVE, keys[known]] > 0
        return held

    def forget(self) -> np.ndarray:
        """Drop entries that have left all windows and return the keys that have none any more."""
        from hayase.windows import panes_loops

        oldest, stop = self._oldest - self.base, min(window.left for window in self._windows.values()) - self.base
        if oldest == stop:
            return np.empty(0, np.int64)
        freed, emptied = np.empty(stop - oldest, np.int64), np.empty(stop - oldest, np.int64)
        chains, keys = panes_loops.forget(
            self.entries, self.base, oldest, stop, self._chains, self._of_keys, freed, emptied
        )
        self._free = _widened(self._free.reshape(1, -1), self._freed + chains, self._freed)[0]
        self._free[self._freed : self._freed + chains] = freed[:chains]
        self._freed += chains
        if chains:
            for folds in self._folds:
                folds.drop(freed[:chains])
        self._oldest = self.base + stop
        if 2 * stop > self.held:
            self.entries[:, : self.held - stop] = self.entries[:, stop : self.held].copy()
            self.base, self.held = self._oldest, self.held - stop
        return emptied[:keys]


class PaneWindow:
    """A window over a sequence: the numbers of the next entries to enter and to leave, and for each key the oldest and
    newest entry in the window."""

    def __init__(self, sequence: PaneSequence, length: int, slide: int) -> None:
        self.sequence = sequence
        self._length, self._slide = length, slide
        self._entered = self.left = 0
        self._reach = np.empty((2, 0), np.int64)
        self._marks = np.empty(0, np.int64)

    def turns(self, clock: int) -> Turns:
        """Return the turns before the clock that were not returned yet."""
        from hayase.windows import panes_loops

        entries, base, width = self.sequence.entries, self.sequence.base, self.sequence.width
        panes = entries[panes_loops.PANE, : self.sequence.held]
        moved = (clock - 1) // self._slide * self._slide
        entered, left = self._entered - base, self.left - base
        entering = int(np.searchsorted(panes, moved // width, "right"))
        leaving = int(np.searchsorted(panes, (moved - self._length) // width, "right"))
        needed = int(entries[panes_loops.KEY, entered:entering].max(initial=-1)) + 1
        if needed > self._reach.shape[1]:
            self._reach = with_more(self._reach, needed, (-1, -1))
            self._marks = np.full(self._reach.shape[1], -1)
        turns = np.empty((5, max(entering - entered, 0) + max(leaving - left, 0)), np.int64)
        count = panes_loops.turn(
            entries, base, entered, entering, left, leaving, width, self._length, self._slide, self._reach, self._marks,
            turns,
        )  # fmt: skip
        self._entered, self.left = base + entering, base + leaving
        return Turns(*turns[:, :count])


class Cells:
    """One partial per key."""

    def __init__(self, lifting: Lifting) -> None:
        self._words = [np.empty(0, word.dtype) for word in lifting.empties(0).words]

    def __len__(self) -> int:
        return len(self._words[0])

    def take(self, keys: np.ndarray) -> Partials:
        """Return the partials of keys."""
        return Partials(tuple(word[keys] for word in self._words))

    def put(self, keys: np.ndarray, partials: Partials, capacity: int) -> None:
        """Set the partials of keys; there are at most `capacity` keys."""
        self.reserve(capacity)
        put(Partials(tuple(self._words)), keys, partials)

    def reserve(self, capacity: int) -> None:
        """Make room for keys."""
        if len(self._words[0]) < capacity:
            self._words = [np.concatenate((word, np.empty(capacity - len(word), word.dtype))) for word in self._words]

    def clear(self, keys: np.ndarray) -> None:
        """Let go of partials that are objects."""
        for word in self._words:
            if word.dtype == object:
                word[keys] = None


class ShortChains:
    """The partials of chains of at most `size` entries, side by side, with the fold over any range of a chain.

    It takes the place of `Folds` where windows have few panes: the same brackets, and a third of the memory or less.

    Order: oldest first.   Laws: associative.   Append: no combine.   Fold over n: n - 1 combines.   Space: `size` partials.
    """

    def __init__(self, lifting: Lifting, size: int) -> None:
        self._lifting, self._size = lifting, size
        self._cells = Cells(lifting)

    def put(self, chains: np.ndarray, places: np.ndarray, partials: Partials) -> None:
        """Set the partials at places of chains."""
        needed = self._size * (int(chains.max()) + 1)
        if needed > len(self._cells):
            self._cells.reserve(max(needed, 2 * len(self._cells), _LEAST))
        self._cells.put(chains * self._size + places, partials, 0)

    def fold(self, chains: np.ndarray, first: np.ndarray, last: np.ndarray) -> Partials:
        """Return the folds over places `first` to `last` of chains, inclusive; `first > last` is empty."""
        at, stop = chains * self._size + first, chains * self._size + last
        filled = np.flatnonzero(first <= last)
        if len(filled) < len(chains):
            result = self._lifting.empties(len(chains))
            if len(filled):
                put(result, filled, self._folded(at[filled], stop[filled]))
            return result
        return self._folded(at, stop)

    def _folded(self, at: np.ndarray, stop: np.ndarray) -> Partials:
        """Return the folds over cells `at` to `stop`, at least one each."""
        folded = self._cells.take(at)
        for step in range(1, self._size):
            longer = np.flatnonzero(at + step <= stop)
            if not len(longer):
                break
            more = self._cells.take(at[longer] + step)
            put(folded, longer, self._lifting.combined(folded.take(longer), more))
        return folded

    def drop(self, chains: np.ndarray) -> None:
        """Drop chains."""
        self._cells.clear((chains[:, None] * self._size + np.arange(self._size)).ravel())


def put(partials: Partials, rows: np.ndarray, new_partials: Partials) -> None:
    """Replace partials at some rows."""
    for word, new in zip(partials.words, new_partials.words):
        word[rows] = new


def with_more(of_keys: np.ndarray, needed: int, nothing: Sequence[int]) -> np.ndarray:
    """Enlarge lines by key; new keys get the values `nothing`."""
    known = of_keys.shape[1]
    larger = np.empty((len(of_keys), max(needed, 2 * known, _LEAST)), np.int64)
    larger[:, :known] = of_keys
    larger[:, known:] = np.array(nothing).reshape(-1, 1)
    return larger


def _widened(lines: np.ndarray, needed: int, held: int) -> np.ndarray:
    """Enlarge lines to at least `needed` columns; the first `held` are copied."""
    if needed <= lines.shape[1]:
        return lines
    larger = np.empty((len(lines), max(needed, 2 * lines.shape[1])), lines.dtype)
    larger[:, :held] = lines[:, :held]
    return larger
