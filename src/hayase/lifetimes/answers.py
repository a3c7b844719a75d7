"""Turns the successive values ("answers") of windows into rows with lifetimes, at most one open row per key and window.

A track is one key of one window, numbered `key * windows + window`; the number of a key without rows may be reused. The
answers of a track come in time order; an answer that equals the previous one does not end its row. For each track the open
row is kept: its id and the values to compare with. Ids are assigned in the order of the answers.

State: "answers" (keys, window, id and values of a track's open row, or the id -1; the last version counts) and "registers".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.keys import raw_values, validity
from hayase.core.scratch import scratch
from hayase.core.stages import Tuples
from hayase.lifetimes.relations import OPEN
from hayase.lifetimes.slot_columns import grown, slotted_column
from hayase.lifetimes.state_registers import Registers, check_section

__all__ = ["AnswerRows", "Answers", "take_values"]

_ANSWERS, _WINDOW, _ROW = "answers", "__window", "__row"


class AnswerRows:
    """The effect of a step's answers: `made` are the answers that begin a row, `closed` the ids of rows of earlier steps."""

    __slots__ = ("closed", "closed_end", "end", "id", "made")

    def __init__(self, made: np.ndarray, end: np.ndarray, first: int, closed: np.ndarray, closed_end: np.ndarray):
        self.made, self.end, self.id = made, end, np.arange(first, first + len(made))
        self.closed, self.closed_end = closed, closed_end


class Answers:
    """The open rows of `windows` windows for numbered keys, whose columns are `keys`; the answers have `columns`."""

    def __init__(self, keys: Sequence[pa.Field], columns: Sequence[pa.Field], windows: int) -> None:
        self._keys, self._count = len(keys), windows
        self._kinds = [field.type for field in columns]
        named = [pa.field(f"key_{at}", field.type) for at, field in enumerate(keys)]
        own = [pa.field(f"value_{at}", field.type) for at, field in enumerate(columns)]
        self._written = pa.schema([*named, pa.field(_WINDOW, pa.int64()), pa.field(_ROW, pa.int64()), *own])
        self._values = [slotted_column(kind) for kind in self._kinds]
        self._rows = np.empty(0, np.int64)
        self._versions = np.empty(0, np.int64)
        self._newest = np.empty(0, np.int64)
        self._alive = 0
        self._latest = 0
        self.registers = Registers(("next", "born"), (0, 0))

    def follow(
        self, keys: np.ndarray, windows: np.ndarray, time: np.ndarray, there: np.ndarray, columns: Sequence[pa.Array],
        version: int, key_columns: Callable[[np.ndarray], list[pa.Array]],
    ) -> tuple[AnswerRows, list[Tuples]]:  # fmt: skip
        """Process the answers of a step, in time order; where `there` is false the track has no row."""
        from hayase.lifetimes import answers_loops

        self._latest = max(self._latest, version)
        tracks, count = keys * self._count + windows, len(keys)
        self._make_room(int(tracks.max(initial=-1)) + 1)
        same = self._unchanged(tracks, there, columns)
        begun, end, closed = scratch(count), scratch(count), scratch(3, count)
        first = self.registers["next"]
        making, closing = answers_loops.succeed(
            tracks, time, there, same, self._rows, self._newest, first, begun, end, closed
        )
        self.registers["next"] += making
        begun, end, closed = begun[:making], end[:making], closed[:, :closing]
        followed = AnswerRows(begun, end, first, closed[1].copy(), closed[2].copy())
        still = begun[end == OPEN]
        state = self._keep(tracks, still, closed[0].copy(), columns, version, key_columns)
        return followed, [*state, *self.registers.changes(version)]

    def _unchanged(self, tracks: np.ndarray, there: np.ndarray, columns: Sequence[pa.Array]) -> np.ndarray:
        """Return which answers equal the previous one of their track: in the step, or in its open row."""
        from hayase.lifetimes import answers_loops

        before, later, first = scratch(len(tracks)), scratch(len(tracks)), scratch(len(tracks))
        later_count, first_count = answers_loops.previous(tracks, there, self._rows, self._newest, before, later, first)
        later, first = later[:later_count], first[:first_count]
        for column, kept in zip(columns, self._values):
            if len(later):
                later = _equal_before(column, before, later)
            if len(first):
                first = first[_equal(take_values(column, first), kept.take(tracks[first]))]
        same = np.zeros(len(tracks), np.bool_)
        same[later] = same[first] = True
        return same

    def _keep(
        self, tracks: np.ndarray, still: np.ndarray, closed: np.ndarray, columns: Sequence[pa.Array], version: int,
        key_columns: Callable[[np.ndarray], list[pa.Array]],
    ) -> list[Tuples]:  # fmt: skip
        """Keep the values of open rows and free those of closed ones; return the change of the state."""
        opened, opened_columns = tracks[still], [take_values(column, still) for column in columns]
        for kept, column in zip(self._values, opened_columns):
            kept.release(closed)
            kept.put(opened, column, len(self._rows))
        self._alive += len(opened) - len(closed)
        buried = closed[self._rows[closed] < 0]
        changed = np.concatenate((opened, buried))
        if not len(changed):
            return []
        self._versions[changed] = version
        if len(buried):
            opened_columns = [
                pa.concat_arrays([column, pa.nulls(len(buried), column.type)]) for column in opened_columns
            ]
        return [Tuples(_ANSWERS, self._as_written(key_columns(changed // self._count), changed, opened_columns))]

    def _as_written(self, keys: list[pa.Array], tracks: np.ndarray, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        numbers = [pa.array(tracks % self._count), pa.array(self._rows[tracks])]
        return pa.RecordBatch.from_arrays([*keys, *numbers, *columns], schema=self._written)

    # ------------------------------------------------------------------------------------------ state

    def knows(self, section: str) -> bool:
        """Return whether a section belongs here."""
        return section in (_ANSWERS, self.registers.section)

    def key_columns(self, section: str, rows: pa.RecordBatch) -> list[pa.Array]:
        """Return the key columns of a section's rows."""
        return [] if section != _ANSWERS else rows.columns[: self._keys]

    def restore(self, section: str, rows: pa.RecordBatch, keys: np.ndarray, version: int) -> None:
        """Load rows of numbered keys. Of several rows of a track the latest version counts, and within a version the last."""
        self._latest = max(self._latest, version)
        if section == self.registers.section:
            self.registers.restore(section, rows, version)
            return
        check_section(_ANSWERS, rows, self._written)
        tracks = keys * self._count + raw_values(rows.column(_WINDOW), np.int64)
        self._make_room(int(tracks.max(initial=-1)) + 1)
        last = len(tracks) - 1 - np.unique(tracks[::-1], return_index=True)[1]
        last = last[self._versions[tracks[last]] <= version]
        tracks, ids = tracks[last], raw_values(rows.column(_ROW), np.int64)[last]
        before, now = self._rows[tracks] >= 0, ids >= 0
        for column, kept in zip(rows.columns[self._keys + 2 :], self._values):
            kept.release(tracks[before])
            kept.put(tracks[now], take_values(column, last[now]), len(self._rows))
        self._rows[tracks], self._versions[tracks] = ids, version
        self._alive += int(np.count_nonzero(now)) - int(np.count_nonzero(before))

    def live(self, section: str, rows: pa.RecordBatch, keys: np.ndarray, version: int) -> pa.RecordBatch:
        """Return the current open rows of tracks not written after `version`; they count as written anew."""
        if section == self.registers.section:
            return self.registers.live(section, rows, version)
        check_section(_ANSWERS, rows, self._written)
        tracks = np.where(keys >= 0, keys * self._count + raw_values(rows.column(_WINDOW), np.int64), -1)
        places = np.sort(np.unique(tracks, return_index=True)[1])
        places = places[(tracks[places] >= 0) & (tracks[places] < len(self._rows))]
        places = places[(self._rows[tracks[places]] >= 0) & (self._versions[tracks[places]] <= version)]
        tracks = tracks[places]
        self._versions[tracks] = self._latest
        named = [take_values(column, places) for column in rows.columns[: self._keys]]
        return self._as_written(named, tracks, [kept.take(tracks) for kept in self._values])

    def size(self, section: str) -> int:
        """Return the number of open rows."""
        return self.registers.size(section) if section == self.registers.section else self._alive

    def _make_room(self, count: int) -> None:
        known = len(self._rows)
        if count > known:
            self._rows, self._versions = grown(self._rows, count), grown(self._versions, count)
            self._newest = grown(self._newest, count)
            self._rows[known:], self._versions[known:], self._newest[known:] = -1, 0, -1


def take_values(column: pa.Array, rows: np.ndarray) -> pa.Array:
    """Return distinct rows of a column; without a copy if these are all rows in order."""
    if len(rows) == len(column) and (not len(rows) or bool((rows == np.arange(len(rows))).all())):
        return column
    return column.take(pa.array(rows))


def _equal_before(column: pa.Array, before: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Return the answers whose value equals the previous one (see `_equal`); the array `answers` may be overwritten."""
    from hayase.lifetimes import answers_loops

    kind = column.type
    if pa.types.is_primitive(kind) and kind.bit_width == 64 and not column.null_count:
        whole = raw_values(column, np.int64)
        kept = answers_loops.equal_before(whole, whole.view(np.float64), pa.types.is_floating(kind), before, answers)
        return answers[:kept]
    return answers[_equal(take_values(column, answers), take_values(column, before[answers]))]


def _equal(one: pa.Array, other: pa.Array) -> np.ndarray:
    """Return where two columns are equal. NULL equals NULL and NaN equals NaN; values that cannot be compared are unequal."""
    kind = one.type
    if pa.types.is_primitive(kind) and kind.bit_width in (8, 16, 32, 64):
        number = np.dtype(f"{'f' if pa.types.is_floating(kind) else 'i'}{kind.bit_width // 8}").type
        left, right = raw_values(one, number), raw_values(other, number)
        same = left == right
        if pa.types.is_floating(kind):
            same |= (left != left) & (right != right)
        if one.null_count or other.null_count:
            there, there_too = _there(one), _there(other)
            same = np.where(there & there_too, same, there == there_too)
        return np.asarray(same)
    try:
        same_values = pc.equal(one, other)
    except pa.ArrowNotImplementedError:
        return np.zeros(len(one), np.bool_)
    nulls = pc.and_(one.is_null(), other.is_null())
    return np.asarray(pc.or_(pc.fill_null(same_values, False), nulls).to_numpy(zero_copy_only=False))


def _there(column: pa.Array) -> np.ndarray:
    return validity(column) if column.null_count else np.ones(len(column), np.bool_)
