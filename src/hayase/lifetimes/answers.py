"""Answers that follow each other: the rows of a relation in which every lane has at most one row at a time.

A lane is one key of one window; the number of a key that has no rows may become another's. Its answers come in the order
of time; an answer that equals the one before it does not split its row. What is kept of a lane is its open row: the id,
and the values it is compared by. Ids are numbered in the order of the answers.

State: "answers" (keys, window, id and values of a lane's open row, or the id -1; the last written counts) and "registers".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.errors import DamagedState
from hayase.core.keys import flags, values
from hayase.core.scratch import scratch
from hayase.core.stages import Tuples
from hayase.lifetimes.relations import OPEN
from hayase.lifetimes.slot_columns import grown, slotted_column
from hayase.lifetimes.state_registers import Registers

__all__ = ["Answers", "Followed", "taken_rows"]

_ANSWERS, _WINDOW, _ROW = "answers", "__window", "__row"


class Followed:
    """What came of the answers of a step: `made` of them begin a row, `closed` are ids of rows of earlier steps."""

    __slots__ = ("closed", "closed_end", "end", "id", "made")

    def __init__(self, made: np.ndarray, end: np.ndarray, first: int, closed: np.ndarray, closed_end: np.ndarray):
        self.made, self.end, self.id = made, end, np.arange(first, first + len(made))
        self.closed, self.closed_end = closed, closed_end


class Answers:
    """The open rows of `windows` windows for numbered keys, whose columns are `keys`; the answers have `columns`."""

    def __init__(self, keys: Sequence[pa.Field], columns: Sequence[pa.Field], windows: int) -> None:
        self._keys, self._count = len(keys), windows
        self._kinds = [each.type for each in columns]
        named = [pa.field(f"key_{at}", each.type) for at, each in enumerate(keys)]
        own = [pa.field(f"value_{at}", each.type) for at, each in enumerate(columns)]
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
    ) -> tuple[Followed, list[Tuples]]:  # fmt: skip
        """Take up the answers of a step, in the order of time; where one is not `there` the lane has no row."""
        from hayase.lifetimes import answers_loops

        self._latest = max(self._latest, version)
        lanes, count = keys * self._count + windows, len(keys)
        self._make_room(int(lanes.max(initial=-1)) + 1)
        same = self._unchanged(lanes, there, columns)
        made, end, closed = scratch(count), scratch(count), scratch(3, count)
        first = self.registers["next"]
        making, closing = answers_loops.succeed(
            lanes, time, there, same, self._rows, self._newest, first, made, end, closed
        )
        self.registers["next"] += making
        made, end, closed = made[:making], end[:making], closed[:, :closing]
        followed = Followed(made, end, first, closed[1].copy(), closed[2].copy())
        still = made[end == OPEN]
        state = self._keep(lanes, still, closed[0].copy(), columns, version, key_columns)
        return followed, [*state, *self.registers.changes(version)]

    def _unchanged(self, lanes: np.ndarray, there: np.ndarray, columns: Sequence[pa.Array]) -> np.ndarray:
        """Which answers are those that were there before: in the step, or as the open row of the lane."""
        from hayase.lifetimes import answers_loops

        before, later, first = scratch(len(lanes)), scratch(len(lanes)), scratch(len(lanes))
        many, some = answers_loops.previous(lanes, there, self._rows, self._newest, before, later, first)
        later, first = later[:many], first[:some]
        for column, kept in zip(columns, self._values):
            if len(later):
                later = _equal_before(column, before, later)
            if len(first):
                first = first[_equal(taken_rows(column, first), kept.take(lanes[first]))]
        same = np.zeros(len(lanes), np.bool_)
        same[later] = same[first] = True
        return same

    def _keep(
        self, lanes: np.ndarray, still: np.ndarray, closed: np.ndarray, columns: Sequence[pa.Array], version: int,
        key_columns: Callable[[np.ndarray], list[pa.Array]],
    ) -> list[Tuples]:  # fmt: skip
        """Keep the values of rows that are open now, forget those of rows that were closed; what is to be written."""
        opened, given = lanes[still], [taken_rows(column, still) for column in columns]
        for kept, column in zip(self._values, given):
            kept.release(closed)
            kept.put(opened, column, len(self._rows))
        self._alive += len(opened) - len(closed)
        buried = closed[self._rows[closed] < 0]
        changed = np.concatenate((opened, buried))
        if not len(changed):
            return []
        self._versions[changed] = version
        if len(buried):
            given = [pa.concat_arrays([column, pa.nulls(len(buried), column.type)]) for column in given]
        return [Tuples(_ANSWERS, self._as_written(key_columns(changed // self._count), changed, given))]

    def _as_written(self, keys: list[pa.Array], lanes: np.ndarray, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        numbers = [pa.array(lanes % self._count), pa.array(self._rows[lanes])]
        return pa.RecordBatch.from_arrays([*keys, *numbers, *columns], schema=self._written)

    # ------------------------------------------------------------------------------------------ state

    def knows(self, section: str) -> bool:
        """Whether a section is one of these."""
        return section in (_ANSWERS, self.registers.section)

    def key_columns(self, section: str, rows: pa.RecordBatch) -> list[pa.Array]:
        """The keys in rows of a section."""
        return [] if section != _ANSWERS else rows.columns[: self._keys]

    def restore(self, section: str, rows: pa.RecordBatch, keys: np.ndarray, version: int) -> None:
        """Take up rows of the numbered keys; of a lane's the latest written counts, of those of one version the last."""
        self._latest = max(self._latest, version)
        if section == self.registers.section:
            self.registers.restore(section, rows, version)
            return
        self._check(rows)
        lanes = keys * self._count + values(rows.column(_WINDOW), np.int64)
        self._make_room(int(lanes.max(initial=-1)) + 1)
        last = len(lanes) - 1 - np.unique(lanes[::-1], return_index=True)[1]
        last = last[self._versions[lanes[last]] <= version]
        lanes, ids = lanes[last], values(rows.column(_ROW), np.int64)[last]
        before, now = self._rows[lanes] >= 0, ids >= 0
        for column, kept in zip(rows.columns[self._keys + 2 :], self._values):
            kept.release(lanes[before])
            kept.put(lanes[now], taken_rows(column, last[now]), len(self._rows))
        self._rows[lanes], self._versions[lanes] = ids, version
        self._alive += int(np.count_nonzero(now)) - int(np.count_nonzero(before))

    def live(self, section: str, rows: pa.RecordBatch, keys: np.ndarray, version: int) -> pa.RecordBatch:
        """Of rows written up to `version`, those of lanes not written since, as they are; they count as written anew."""
        if section == self.registers.section:
            return self.registers.live(section, rows, version)
        self._check(rows)
        lanes = np.where(keys >= 0, keys * self._count + values(rows.column(_WINDOW), np.int64), -1)
        places = np.sort(np.unique(lanes, return_index=True)[1])
        places = places[(lanes[places] >= 0) & (lanes[places] < len(self._rows))]
        places = places[(self._rows[lanes[places]] >= 0) & (self._versions[lanes[places]] <= version)]
        lanes = lanes[places]
        self._versions[lanes] = self._latest
        named = [taken_rows(column, places) for column in rows.columns[: self._keys]]
        return self._as_written(named, lanes, [kept.take(lanes) for kept in self._values])

    def size(self, section: str) -> int:
        """How many open rows there are."""
        return self.registers.size(section) if section == self.registers.section else self._alive

    def _check(self, rows: pa.RecordBatch) -> None:
        if rows.schema.names != self._written.names or rows.schema.types != self._written.types:
            raise DamagedState(
                f'the state section "{_ANSWERS}" has the columns {", ".join(rows.schema.names)} '
                f"instead of {', '.join(self._written.names)}; reset the stage"
            )

    def _make_room(self, count: int) -> None:
        known = len(self._rows)
        if count > known:
            self._rows, self._versions = grown(self._rows, count), grown(self._versions, count)
            self._newest = grown(self._newest, count)
            self._rows[known:], self._versions[known:], self._newest[known:] = -1, 0, -1


def taken_rows(column: pa.Array, rows: np.ndarray) -> pa.Array:
    """Distinct rows of a column, without a copy if they are all there in order."""
    if len(rows) == len(column) and (not len(rows) or bool((rows == np.arange(len(rows))).all())):
        return column
    return column.take(pa.array(rows))


def _equal_before(column: pa.Array, before: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Those of the answers whose value is that of the one before, see `_equal`; the array may be used up."""
    from hayase.lifetimes import answers_loops

    kind = column.type
    if pa.types.is_primitive(kind) and kind.bit_width == 64 and not column.null_count:
        whole = values(column, np.int64)
        kept = answers_loops.equal_before(whole, whole.view(np.float64), pa.types.is_floating(kind), before, answers)
        return answers[:kept]
    return answers[_equal(taken_rows(column, answers), taken_rows(column, before[answers]))]


def _equal(one: pa.Array, other: pa.Array) -> np.ndarray:
    """Where two columns have the same value. NULL is one, and so is NaN; of values that cannot be compared none is."""
    kind = one.type
    if pa.types.is_primitive(kind) and kind.bit_width in (8, 16, 32, 64):
        number = np.dtype(f"{'f' if pa.types.is_floating(kind) else 'i'}{kind.bit_width // 8}").type
        left, right = values(one, number), values(other, number)
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
    return flags(column) if column.null_count else np.ones(len(column), np.bool_)
