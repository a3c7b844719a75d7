"""The stored partials of `SharedWindows`: tapes for one sequence of counts, sums or extremes, `Folds` for everything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.scratch import scratch
from hayase.windows.folds import Folds
from hayase.windows.partials import Lifting, Partials, column_of, numbers, ordered_keys, valid_rows

if TYPE_CHECKING:
    from hayase.windows.shared import Window

__all__ = ["FoldedSequences", "Tapes", "Unlowered", "fits_tape", "positions_of"]

_ADD, _SUM, _MAX = range(3)  # as in `folds_loops`
_NONE = np.empty(0, np.int64)


def positions_of(due: range | np.ndarray) -> np.ndarray:
    """Return the positions of answers as an array."""
    return np.arange(due.start, due.stop, due.step) if isinstance(due, range) else due


@dataclass(frozen=True, slots=True)
class Unlowered:
    """The answers of all windows, one after the other, before lowering: partials, or the words of tapes.

    `counts` are the numbers of tuples that are not NULL, or None if none is NULL; `words` are the words that follow.
    """

    partials: Partials | None = None
    counts: np.ndarray | None = None
    words: Sequence[np.ndarray] = ()


class FoldedSequences:
    """Partials kept in `Folds`: by key, or of kinds that tapes do not support."""

    def __init__(self, lifting: Lifting, windows: Sequence[Window]) -> None:
        self._lifting, self._windows = lifting, windows
        self._reach = max(window.length for window in windows)
        self._folds = Folds(lifting)

    def push(self, columns: Sequence[pa.Array], due: Sequence[range], rows: int) -> Unlowered:
        positions = self._folds.append(None, self._lifting.lift(columns, rows=rows))
        folds = []
        for window, rows_due in zip(self._windows, due):
            at = positions_of(rows_due)
            folds.append(self._folds.fold(None, at - window.length + 1, at))
        self._folds.trim(None, positions[-1:] + 1 - self._reach)
        return Unlowered(Partials.joined(folds))

    def push_by_key(
        self, columns: Sequence[pa.Array], codes: np.ndarray, rows: int
    ) -> tuple[list[np.ndarray], Unlowered]:
        """Also return the rows after which the answers of every window are due."""
        positions = self._folds.append(codes, self._lifting.lift(columns, rows=rows))
        due = [np.flatnonzero((positions + 1) % window.slide == 0) for window in self._windows]
        folds = []
        for window, rows_due in zip(self._windows, due):
            at = positions[rows_due]
            folds.append(self._folds.fold(codes[rows_due], at - window.length + 1, at))
        self._folds.trim(codes, positions + 1 - self._reach)
        return due, Unlowered(Partials.joined(folds))

    def lower(
        self, lifting: Lifting, unlowered: Unlowered, due: Sequence[range | np.ndarray]
    ) -> tuple[pa.Array, np.ndarray]:
        assert unlowered.partials is not None
        return lifting.lower(unlowered.partials)

    def state(self) -> Any:
        keys, positions, partials = self._folds.held()
        return keys, positions, self._lifting.stored(partials)

    def restore(self, state: Any) -> None:
        keys, positions, stored = state
        self._folds.load(keys, positions, self._lifting.restored(stored))


def fits_tape(lifting: Lifting) -> bool:
    """Return whether tapes can keep the partials of a lifting."""
    return all(part in (_ADD, _SUM, _MAX) for part in lifting.parts)


class Tapes:
    """Partials of a single sequence: one tape per word. Counts are kept only from the first NULL on."""

    def __init__(self, lifting: Lifting, windows: Sequence[Window]) -> None:
        from hayase.windows import shared_loops

        self._loops = shared_loops
        self._lifting, self._windows = lifting, windows
        kinds = {_ADD: np.int64, _SUM: np.complex128, _MAX: np.uint64}
        self._tapes = [_Tape(windows, kinds[part]) for part in lifting.parts[1:]]
        self._counts: _Tape | None = None
        self._count = 0

    def push(self, columns: Sequence[pa.Array], due: Sequence[range], rows: int) -> Unlowered:
        nulls = bool(columns) and columns[0].null_count > 0
        if nulls and self._counts is None:
            self._counts = _Tape(self._windows, np.int64)
            self._counts.fill(self._count)
        self._count += rows
        counts = None if self._counts is None else self._counts.push(valid_rows(columns[0]).astype(np.int64))
        words = [tape.push(*values) for tape, values in zip(self._tapes, self._words(columns, nulls))]
        return Unlowered(None, counts, words)

    def push_by_key(
        self, columns: Sequence[pa.Array], codes: np.ndarray, rows: int
    ) -> tuple[list[np.ndarray], Unlowered]:
        raise NotImplementedError  # sequences by key do not use tapes

    def _words(self, columns: Sequence[pa.Array], nulls: bool) -> list[tuple[np.ndarray, int, int]]:
        """Return what each tape takes: the values, their form, and the form of the answers."""
        if not self._tapes:
            return []
        if self._lifting.parts[1] != _MAX:
            lifted = [numbers(columns[0])] if len(self._tapes) == 1 else self._lifting.lift(columns).words[1:]
            return [(word, 0, 0) for word in lifted]
        kind, loops = columns[0].type, self._loops
        least = bool(self._lifting.partial[0] == "least")  # type: ignore[index]
        form = loops.FLOATS if pa.types.is_floating(kind) else 0 if kind == pa.uint64() else loops.SIGNED
        form |= loops.LEAST if least else 0
        if nulls:
            keys = np.where(valid_rows(columns[0]), ordered_keys(columns[0], least), np.uint64(0))
            return [(keys, 0, form)]
        return [(numbers(columns[0]).view(np.uint64), form, form)]

    def lower(
        self, lifting: Lifting, unlowered: Unlowered, due: Sequence[range | np.ndarray]
    ) -> tuple[pa.Array, np.ndarray]:
        average, exact = lifting.aggregate.name == "avg", len(unlowered.words) == 2
        counts = unlowered.counts
        if counts is None:
            needs_counts = average or exact or not unlowered.words
            counts = self._all_counts(due) if needs_counts else _NONE
        if not unlowered.words:
            return pa.array(counts), _NONE
        if exact:
            return lifting.lower(Partials((counts, *unlowered.words)))
        valid = None if unlowered.counts is None else unlowered.counts > 0
        word = unlowered.words[0]
        if average:
            word = word / np.maximum(counts, 1)
        elif lifting.parts[1] == _MAX and lifting.result != pa.uint64():
            word = word.view(np.float64 if pa.types.is_floating(lifting.result) else np.int64)
        return column_of(word, lifting.result, valid), _NONE

    def _all_counts(self, due: Sequence[range | np.ndarray]) -> np.ndarray:
        """Return the number of tuples of each answer if none is NULL."""
        return np.concatenate(
            [np.minimum(positions_of(rows) + 1, window.length) for rows, window in zip(due, self._windows)]
        )

    def state(self) -> Any:
        return self._count, [None if tape is None else tape.state() for tape in (self._counts, *self._tapes)]

    def restore(self, state: Any) -> None:
        self._count, state = state
        if state[0] is not None:
            self._counts = _Tape(self._windows, np.int64)
            self._counts.restore(state[0])
        for tape, held in zip(self._tapes, state[1:]):
            tape.restore(held)


class _Tape:
    """All windows over one word: the levels of cycles in one array, laid out for `shared_loops`."""

    def __init__(self, windows: Sequence[Window], kind: Any) -> None:
        from hayase.windows import shared_loops as loops

        self._loops, self._windows = loops, windows
        lines, reaches = _levels(windows, loops.FAN, loops.SPARSE)
        self._bounds = np.cumsum([0, *(len(level_lines) for level_lines in lines)])
        self._asked = np.array([line for level_lines in lines for line in level_lines], np.int64).reshape(-1, 4)
        self._places = np.zeros((len(lines), loops.PLACES), np.int64)
        self._marks = np.zeros((len(lines), loops.MARKS), np.int64)
        slots, middles = 0, 1  # the first middle stays empty, for lines without one
        for level, (line, reach) in enumerate(zip(lines, reaches)):
            room, width, tape = loops.room(level), loops.new_slots(level) + 2, loops.tape(level, reach)
            short = [asked[:2] for asked in line if asked[0] <= loops.FAN and asked[1] < loops.SPARSE]
            doubled = slots + 2 * room
            begins = doubled + (loops.FAN_BITS * room if short else 0)
            widest = max((length for length, _ in short), default=0)
            one_stream = level == 0 and all(slide % 2 == 0 for _, slide in short)  # only odd slots are due then
            self._places[level] = (
                slots, slots + room, doubled, begins, reach, tape, middles, width, widest, one_stream,
            )  # fmt: skip
            slots = begins + tape
            middles += width * len(line) if level else 0
        double = kind == np.complex128
        self._lane, self._middles, self._ready = (
            np.zeros((2, size) if double else size, np.float64 if double else kind)
            for size in (slots, middles, loops.BLOCK)
        )
        self._out = np.float64 if double else kind
        self._advance = {
            np.int64: loops.advance_integers, np.complex128: loops.advance_sums, np.uint64: loops.advance_keys,
        }[kind]  # fmt: skip
        self._begin(0)

    def _begin(self, slot: int) -> None:
        """Start at a slot that is the first of a cycle on every level, with nothing before it."""
        self._count = slot
        for level, reach in enumerate(self._places[:, self._loops.REACH]):
            first = slot >> (self._loops.FAN_BITS * level)
            self._marks[level] = first - 2 * self._loops.FAN, 2 * self._loops.FAN, 0, first - reach

    def push(self, words: np.ndarray, taken: int = 0, form: int = 0) -> np.ndarray:
        """Add values and return the answers of all windows, one window after the other."""
        begins, self._count = self._count, self._count + len(words)
        counts = [self._count // window.slide - begins // window.slide for window in self._windows]
        ends = np.cumsum(counts)
        out = scratch(int(ends[-1])).view(self._out)
        self._advance(
            np.ascontiguousarray(words), taken, form, self._lane, self._middles, self._ready, self._marks, self._places,
            self._asked, self._bounds, out, ends - counts,
        )  # fmt: skip
        return out

    def fill(self, count: int) -> None:
        """Set the state to that after `count` ones; only those in reach are pushed."""
        whole = self._loops.FAN ** len(self._marks)
        self._begin(max(0, count - int(self._places[0, self._loops.REACH])) // whole * whole)
        self.push(np.ones(count - self._count, np.int64))

    def state(self) -> dict[str, Any]:
        return {"count": self._count, "lane": self._lane.copy(), "marks": self._marks.copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._count = state["count"]
        self._lane[...] = state["lane"]
        self._marks[...] = state["marks"]


def _levels(
    windows: Sequence[Window], fan: int, sparse: int
) -> tuple[list[list[tuple[int, int, int, int]]], list[int]]:
    """Return for each level the lines asked at its slots (see `shared_loops.LENGTH`), and how far back these reach.

    On level 0 these are the windows. On the levels above they are, at every slot, the numbers of full cycles between the
    ends of those below, except for windows whose answers look them up separately.
    """
    asked = [(window.length, window.slide) for window in windows]
    lengths = {window.length for window in windows}
    lines: list[list[tuple[int, int, int, int]]] = []
    reaches = []
    while lengths:
        reaches.append((max(lengths) + 1) // 2 * 2 + 4 * fan)
        middles = sorted({cycles for length, slide in asked if slide < sparse for cycles in _between(length, fan)})
        numbered = {length: number for number, length in enumerate(middles)}
        lines.append([])
        for length, slide in asked:
            between = (0, 0) if slide >= sparse else ((length - 1) // fan, (length - 1) // fan - 1)
            wanted = _between(length, fan)
            longer, shorter = (numbered[cycles] if cycles in wanted else -1 for cycles in between)
            lines[-1].append((length, slide, longer, shorter))
        asked = [(length, 1) for length in middles]
        lengths = {cycles for length in lengths for cycles in _between(length, fan)}
    return lines, reaches


def _between(length: int, fan: int) -> set[int]:
    """Return the possible numbers of full cycles between the ends of a window.

    These are (length - 1) // fan, unless fan divides length - 1, and one less.
    """
    if length <= fan:
        return set()
    cycles = (length - 1) // fan
    return {number for number in (cycles if (length - 1) % fan else 0, cycles - 1) if number}
