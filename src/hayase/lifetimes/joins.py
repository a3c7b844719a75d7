"""The join operator: inner, outer, semi and anti joins of two interval relations by key, with a residual predicate.

A pair is alive on [later start, earlier end). A step is one sweep in time order over the tuples that come and leave, ends
before starts. The live tuples of every key and side are in a chain; a new tuple probes the chain of the other side.

Order: starts and ends as in a `Delta`.   Per tuple: O(1) plus its results.   Space: per live tuple 32 bytes and its values,
and 32 bytes for each pair whose end depends on an unknown end.

Outer, semi and anti joins emit rows of single tuples: a tuple is shown by itself while it has no partner (for semi: while
it has one). Without a residual predicate, a key counts its tuples on each side, and the tuples of the other side change
only when that count becomes or leaves zero. With one, all live pairs are kept, and every tuple counts its own partners.

State: the tuples of both sides; pairs whose end is reported later or that are counted (they end with their tuples, so there
are no tombstones); and for each live tuple the latest row that shows or showed it by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.expressions import Projection, bind
from hayase.core.keys import KeyIndex, encode, hashes, raw_values
from hayase.core.stages import FailedRows, Tuples
from hayase.core.times import BEGINNING
from hayase.lifetimes.plans import Join
from hayase.lifetimes.relations import OPEN, Delta, Span, Step
from hayase.lifetimes.slot_columns import grown
from hayase.lifetimes.state_registers import Registers, check_section
from hayase.lifetimes.tuples import IdMap, TupleStore, take_or_nulls

__all__ = ["JoinOperator"]

PAIRS, SINGLES = "pairs", "singles"
"""Sections of the state; the others are `left` and `right` (the tuple stores) and `registers`."""

CANDIDATES = 131_072
"""The number of pairs on which a residual predicate is evaluated at a time."""
_NO_LIMIT = 1 << 62
_FEWEST_ROWS = 1024

_PAIRS = pa.schema({"left": pa.int64(), "right": pa.int64(), "number": pa.int64()})
_SINGLES = pa.schema({"right": pa.bool_(), "tuple": pa.int64(), "mark": pa.int64()})

NEVER, ALONE, ACCOMPANIED = range(3)
"""When a tuple is shown by itself: never, while it has no partner, while it has one."""
NODE = np.dtype([("next", "i4"), ("previous", "i4"), ("key", "i4"), ("pair", "i4"), ("end", "i8"), ("id", "i8")])
"""The record of a tuple in the loops: the next and previous tuple of its key and side, its key, its first kept pair (-1 each:
none), its end and its id."""
FIRST, LAST, COUNT, THERE, RIGHT = range(5)
FRESH, MARK, PARTNERS = range(3)
"""Columns of `book`, by key (those of the right side begin at RIGHT), and of `shown`, by tuple; see `joins_loops`."""
OPENS, ARE_TIED, EMPTIED = 4, 5, 6
"""Words of a sweep's cursor after its four positions: the number of open ends, whether rows of one start are out of the order
of ids, and the number of keys that have lost their last tuple."""
NO_KEY, NOBODY = -1, -2
"""Special values of a tuple's key: a part of it is NULL, so that it never has a partner; the slot is unused."""

_RULES = {
    "inner": (NEVER, NEVER), "left": (ALONE, NEVER), "right": (NEVER, ALONE), "full": (ALONE, ALONE),
    "semi": (ACCOMPANIED, NEVER), "anti": (ALONE, NEVER),
}  # fmt: skip
_BLANK = np.array([-1, -1, 0, 0, -1, -1, 0, 0], np.int32)
"""The line of a key without tuples."""


class JoinOperator:
    """The operator of `plans.Join` (`relations.Operator`)."""

    def __init__(self, node: Join) -> None:
        self.schema = node.schema
        self._paired = node.kind not in ("semi", "anti")
        left_rule, right_rule = _RULES[node.kind]
        left_schema, right_schema = node.left.schema, node.right.schema
        self._residual: Projection | None = None
        self._read: frozenset[str] = frozenset()
        if node.residual is not None:
            self._residual = Projection((), node.residual, pa.schema([]))
            self._read = bind(node.residual, pa.schema([*left_schema, *right_schema])).columns
        if not self._paired:  # no columns of the right side are in the result
            needed = {name for _, name in node.keys} | self._read
            right_schema = pa.schema([field for field in right_schema if field.name in needed])
        self._shows_singles = (left_rule, right_rule) != (NEVER, NEVER)
        self._counted = self._residual is not None and self._shows_singles
        self._left = _Side(left_schema, "left", [name for name, _ in node.keys], left_rule, self._counted)
        self._right = _Side(right_schema, "right", [name for _, name in node.keys], right_rule, self._counted)
        self._sides = {"left": self._left, "right": self._right}
        self._keys = _Keys()
        self._pool = np.empty((0, 8), np.int32)
        self._spare = np.array([-1, 0, 0])  # see `joins_loops`
        self._closed_space = np.empty((0, 4), np.int64)  # for the ends of all pairs in the pool, reused in every step
        self._registers = Registers(("next",), (0,))
        self._seen = 0  # pairs with lower numbers are from steps that this object has processed or restored
        self._expected = 0  # the estimated number of rows of the next sweep
        self._restored: dict[str, list[pa.RecordBatch]] = {PAIRS: [], SINGLES: []}

    # ------------------------------------------------------------------------------------------------ a step

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        """Process a step: one sweep over the tuples that come and leave."""
        self._settle(span.since)
        new_left, gone_left = self._add_delta(self._left, inputs[0], span.clock)
        new_right, gone_right = self._add_delta(self._right, inputs[1], span.clock)
        leaving = 0 if self._shows_singles else len(gone_left) + len(gone_right)
        moves = _Moves(new_left, new_right, gone_left, gone_right, span.clock, np.empty(leaving, np.int64))
        result = self._join_by_keys(moves) if self._residual is None else self._join_by_pairs(moves, self._residual)
        delta = self._delta(result)
        state = [*result.kept, *self._singles_to_write(result, span.clock)]
        for side, new, gone in ((self._left, new_left, gone_left), (self._right, new_right, gone_right)):
            state += side.store.changes()
            side.finish(new.slots, gone.slots, span.clock)
        if self._shows_singles:
            self._keys.leave(self._left, gone_left.slots, self._right, gone_right.slots)
        else:
            self._keys.clear(moves.keys, int(moves.cursor[EMPTIED]))
        state += self._registers.changes(span.version)
        self._seen = self._registers["next"]
        return Step(delta, state, result.spoiled)

    def _add_delta(self, side: _Side, delta: Delta, clock: int) -> tuple[_Arriving, _Leaving]:
        """Add a delta to a side; return the tuples that come, whose records the sweep initialises, and those that leave."""
        if delta.rows.schema.names != side.store.schema.names:
            delta = replace(delta, rows=delta.rows.select(side.store.schema.names))
        whole = side.whole_keys(delta.rows)
        if whole is not None and side.rule != ALONE:  # tuples with a NULL key never have a result
            rows = delta.rows.filter(pa.array(whole))
            delta = replace(delta, rows=rows, start=delta.start[whole], end=delta.end[whole], id=delta.id[whole])
            whole = None
        keys = self._keys.of(side, delta.rows, len(delta), whole)
        passage = side.store.advance(delta.rows, delta, clock)
        gone = _Leaving(passage.ended, passage.ends)
        side.make_room(passage.slots)
        side.close(gone)
        return _Arriving(passage.slots, delta.start, delta.end, delta.id, keys), gone

    def _join_by_keys(self, moves: _Moves) -> _StepResult:
        """Process a step without a residual predicate: tuples of equal keys are partners."""
        columns, closed, _ = self._sweep(moves, _NO_LIMIT)
        rows = self._number_rows(columns, are_tied=self._shows_singles or moves.are_tied)
        closed_pairs = self._end_pairs(moves)
        closed = np.concatenate((closed, closed_pairs)) if len(closed) else closed_pairs
        return _StepResult(rows, self._keep_open_rows(rows, moves), closed)

    def _join_by_pairs(self, moves: _Moves, residual: Projection) -> _StepResult:
        """Process a step with a residual predicate: pairs of equal keys that satisfy it are partners."""
        from hayase.lifetimes import joins_loops

        columns, spoiled = self._satisfying_pairs(moves, residual)
        pairs = self._number_rows(columns, moves.are_tied)
        if not self._counted:
            closed = self._end_pairs(moves)
            return _StepResult(pairs, self._keep_open_rows(pairs, moves), closed, spoiled)
        self._make_room(len(pairs))
        singles, closed = joins_loops.sweep_residual(
            *self._left.arrays(moves.new_left, moves.gone_left), *self._right.arrays(moves.new_right, moves.gone_right),
            pairs.lines(), pairs.number, self._pool, self._spare, self._paired,
        )  # fmt: skip
        rows = self._number_rows(joins_loops.to_columns(singles), are_tied=True)
        if self._paired:
            rows = self._order_rows(pairs.with_others(rows))
        kept = pairs.chosen(np.flatnonzero(pairs.end >= moves.clock))
        return _StepResult(rows, self._pairs_to_write(kept), closed, spoiled)

    def _sweep(self, moves: _Moves, limit: int) -> tuple[Sequence[np.ndarray], np.ndarray, bool]:
        """Continue the sweep by keys; with a residual predicate, only to find candidate pairs.

        Returns the columns of rows (left slot, right slot, start, end), the ends of earlier rows (see `joins_loops`), and
        whether the step is finished.
        """
        from hayase.lifetimes import joins_loops

        if self._residual is not None or not self._shows_singles:
            columns, done = self._pairs(moves, limit)
            return columns, np.empty((0, 4), np.int64), done
        self._left.place(moves.new_left)
        self._right.place(moves.new_right)
        lines, closed, done = joins_loops.sweep_outer(
            *self._left.arrays(moves.new_left, moves.gone_left), *self._right.arrays(moves.new_right, moves.gone_right),
            moves.cursor, moves.clock, limit, self._keys.book, self._keys.reach, self._paired,
            _FEWEST_ROWS + min(self._expected, limit),
        )  # fmt: skip
        self._expected = len(lines) + len(lines) // 8
        return joins_loops.to_columns(lines), closed, done

    def _pairs(self, moves: _Moves, limit: int) -> tuple[Sequence[np.ndarray], bool]:
        """Do `_sweep` where rows are pairs only; there are no ends of earlier rows."""
        from hayase.lifetimes import joins_loops

        columns = [np.empty(_FEWEST_ROWS + min(self._expected, limit), np.int64) for _ in range(4)]
        count = 0
        while True:
            count, done = joins_loops.sweep_inner(
                *moves.new_left.arrays, *moves.new_right.arrays, *moves.gone_left.arrays, *moves.gone_right.arrays,
                moves.cursor, moves.clock, self._left.nodes, self._right.nodes,
                self._keys.book, moves.keys, *columns, count,
            )  # fmt: skip
            if done or count > limit:
                break
            share = (moves.cursor[0] + moves.cursor[1] + 1) / (len(moves.new_left) + len(moves.new_right) + 1)
            room = max(2 * len(columns[0]), min(int(1.2 * count / share), limit))
            columns = [grown(column, room) for column in columns]
        self._expected = count + count // 8
        return [column[:count] for column in columns], done

    def _satisfying_pairs(self, moves: _Moves, residual: Projection) -> tuple[Sequence[np.ndarray], list[FailedRows]]:
        """Return the pairs of the step that satisfy the predicate, by start, and those for which it raises an error."""
        satisfying: list[list[np.ndarray]] = [[np.empty(0, np.int64) for _ in range(4)]]
        spoiled: list[FailedRows] = []
        done = False
        while not done:
            candidates, _, done = self._sweep(moves, CANDIDATES)
            for first in range(0, len(candidates[0]), CANDIDATES):
                columns = [column[first : first + CANDIDATES] for column in candidates]
                mapped = residual(self._pair_rows(columns, self._read))
                satisfying.append([column[mapped.input_rows] for column in columns])
                if len(mapped.refused):
                    refused = self._pair_rows([column[mapped.refused.rows] for column in columns])
                    spoiled.append(FailedRows(refused, mapped.refused.reasons))
        return [np.concatenate(column) for column in zip(*satisfying)], spoiled

    def _pair_rows(self, columns: Sequence[np.ndarray], names: frozenset[str] | None = None) -> pa.RecordBatch:
        """Return the values of pairs: all columns or the named ones; if there are none, a placeholder column."""
        named: dict[str, pa.Array] = {}
        for side, at in ((self._left, 0), (self._right, 1)):
            wanted = [name for name in side.store.schema.names if names is None or name in names]
            if wanted:
                rows = side.store.take(columns[at])
                named |= {name: rows.column(name) for name in wanted}
        return pa.RecordBatch.from_pydict(named or {"__nothing": pa.array(np.zeros(len(columns[0]), np.int8))})

    # ------------------------------------------------------------------------------------------------ results

    def _number_rows(self, columns: Sequence[np.ndarray], are_tied: bool) -> _Rows:
        """Put rows into the order of results and number them. Unless they `are_tied`, they are in that order already."""
        first, count = self._registers["next"], len(columns[0])
        self._registers["next"] = first + count
        left, right, start, end = columns
        rows = _Rows(left, right, start, end, np.empty(0, np.int64))
        return replace(self._order_ties(rows) if are_tied else rows, number=np.arange(first, first + count))

    def _order_rows(self, rows: _Rows) -> _Rows:
        """Order rows by start, then by the ids of their tuples, missing ones first."""
        return self._order_ties(rows.chosen(np.argsort(rows.start, kind="stable")))

    def _order_ties(self, rows: _Rows) -> _Rows:
        """Order rows that are in the order of starts by the ids of their tuples; they may have no numbers yet."""
        from hayase.lifetimes import joins_loops

        if bool(np.all(rows.start[1:] > rows.start[:-1])):
            return rows
        order = joins_loops.order_ties(rows.start, self._left.ids(rows.left), self._right.ids(rows.right))
        return rows.chosen(order) if len(order) else rows

    def _delta(self, result: _StepResult) -> Delta:
        """Return the delta of the result."""
        rows = result.rows
        if not self._shows_singles:
            columns = [*self._left.store.take(rows.left).columns, *self._right.store.take(rows.right).columns]
        else:
            right = take_or_nulls(self._right.store, rows.right) if self._paired else ()
            columns = [*take_or_nulls(self._left.store, rows.left), *right]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return Delta(batch, rows.start, rows.end, rows.number, *_by_end(result.closed))

    # ------------------------------------------------------------------------------------------------ kept pairs

    def _keep_open_rows(self, rows: _Rows, moves: _Moves) -> list[Tuples]:
        """Keep the pairs whose ends are open, to report them later; return their rows of the state."""
        from hayase.lifetimes import joins_loops

        if self._shows_singles:
            count = int(np.count_nonzero((rows.end == OPEN) & (rows.left >= 0) & (rows.right >= 0)))
        else:
            count = int(moves.cursor[OPENS])  # or fewer, if a predicate has rejected some
        if not count:
            return []
        self._make_room(count)
        written = np.empty((3, count), np.int64)
        count, latest = joins_loops.add_open_rows(
            rows.left, rows.right, rows.end, rows.number, self._pool, self._spare, self._left.nodes, self._right.nodes,
            *written,
        )  # fmt: skip
        return _pairs_written(written[:, :count], latest) if count else []

    def _keep(self, left: np.ndarray, right: np.ndarray, number: np.ndarray) -> None:
        """Keep restored pairs; if pairs are results, an open end is reported when it is known."""
        from hayase.lifetimes import joins_loops

        self._make_room(len(left))
        joins_loops.add_pairs(
            left, right, number, self._paired, self._pool, self._spare,
            self._left.nodes, self._right.nodes, self._left.shown, self._right.shown, self._counted,
        )  # fmt: skip

    def _make_room(self, count: int) -> None:
        self._pool = grown(self._pool, int(self._spare[1]) + count)

    def _end_pairs(self, moves: _Moves) -> np.ndarray:
        """Return the ends of pairs of earlier steps whose tuples leave."""
        from hayase.lifetimes import joins_loops

        if len(self._closed_space) < self._spare[2]:
            self._closed_space = np.empty((2 * int(self._spare[2]), 4), np.int64)
        count = joins_loops.end_pairs(
            moves.gone_left.slots, moves.gone_right.slots, self._left.nodes, self._right.nodes,
            self._pool, self._spare, self._closed_space,
        )  # fmt: skip
        return self._closed_space[:count]

    def _pairs_to_write(self, kept: _Rows) -> list[Tuples]:
        if not len(kept):
            return []
        left, right = self._left.store, self._right.store
        latest = int(np.minimum(left.end[kept.left], right.end[kept.right]).max())
        return _pairs_written(np.stack((left.id[kept.left], right.id[kept.right], kept.number)), latest)

    # ------------------------------------------------------------------------------------------------ single tuples

    def _singles_to_write(self, result: _StepResult, clock: int) -> list[Tuples]:
        """Return the rows of the section "singles": rows that stay open, and rows that ended while their tuples live on."""
        tuples = []
        for side, at, slots in ((self._left, 0, result.rows.left), (self._right, RIGHT, result.rows.right)):
            if side.rule == NEVER:
                continue
            others = result.rows.right if side is self._left else result.rows.left
            still = np.flatnonzero((result.rows.end == OPEN) & (others < 0))
            shown = slots[still]
            side.marked += int(np.count_nonzero(side.shown[shown, MARK] < 0))
            side.shown[shown, MARK] = 2 * result.rows.number[still]
            side.shown[shown, FRESH] = -1
            hidden = result.closed[result.closed[:, 3] == at, 2]
            hidden = hidden[(side.nodes["end"][hidden] >= clock) & (side.shown[hidden, MARK] & 1 == 1)]
            both = np.concatenate((shown, hidden))
            if not len(both):
                continue
            columns = [
                pa.array(np.full(len(both), side is self._right)),
                pa.array(side.store.id[both]),
                pa.array(side.shown[both, MARK]),
            ]
            latest = int(side.store.end[both].max())
            rows = pa.RecordBatch.from_arrays(columns, schema=_SINGLES)
            tuples.append(Tuples(SINGLES, rows, None if latest == OPEN else latest + 1))
        return tuples

    # ------------------------------------------------------------------------------------------------ state

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Load tuples, pairs and rows of single tuples; they are indexed at the beginning of the next step."""
        if section in self._sides:
            self._sides[section].store.restore(rows, version)
        elif section == self._registers.section:
            self._registers.restore(section, rows, version)
        else:
            check_section(section, rows, _PAIRS if section == PAIRS else _SINGLES)
            self._restored[section].append(rows)

    def _settle(self, since: int) -> None:
        """Index what was restored, and remove what ended while another worker ran the stage."""
        from hayase.lifetimes import joins_loops

        settled = [(side, *side.store.settle(since)) for side in (self._left, self._right)]
        for side, _, removed in settled:
            if len(removed):
                number = 0 if side is self._left else 1
                joins_loops.unlink(removed, side.nodes, self._keys.book, number * RIGHT)
                joins_loops.drop_pairs(
                    removed, number, self._pool, self._spare,
                    self._left.nodes, self._right.nodes, self._left.shown, self._right.shown, self._counted,
                )  # fmt: skip
                side.forget(removed)
        self._keys.leave(self._left, settled[0][2], self._right, settled[1][2])
        for side, added, _ in settled:
            if len(added):
                rows = side.store.take(added)
                keys = self._keys.of(side, rows, len(added), side.whole_keys(rows))
                side.make_room(added)
                store = side.store
                side.place(_Arriving(added, store.start[added], store.end[added], store.id[added], keys))
                side.name(added)
                joins_loops.link(
                    added, side.nodes, self._keys.book, 0 if side is self._left else RIGHT, self._keys.reach
                )
        self._settle_pairs()
        self._settle_singles()

    def _settle_pairs(self) -> None:
        if self._restored[PAIRS]:
            rows = pa.concat_batches(self._restored[PAIRS])
            ids_left, ids_right, number = (raw_values(column, np.int64) for column in rows.columns)
            left, right = self._left.find(ids_left), self._right.find(ids_right)
            new = np.flatnonzero((number >= self._seen) & (left >= 0) & (right >= 0))
            new = new[np.unique(number[new], return_index=True)[1]]
            self._keep(left[new], right[new], number[new])
            self._restored[PAIRS] = []

    def _settle_singles(self) -> None:
        for rows in self._restored[SINGLES]:
            for side, _, slots, marks in self._singles(rows):
                side.mark(slots, marks)
        self._restored[SINGLES] = []

    def _singles(self, rows: pa.RecordBatch) -> Iterator[tuple[_Side, np.ndarray, np.ndarray, np.ndarray]]:
        """Yield for each side the rows of the section "singles" whose tuples are alive, the slots of these, and the marks."""
        is_right = rows.column(0).to_numpy(zero_copy_only=False)
        ids, marks = raw_values(rows.column(1), np.int64), raw_values(rows.column(2), np.int64)
        for side, is_mine in ((self._left, ~is_right), (self._right, is_right)):
            mine = np.flatnonzero(is_mine)
            slots = side.find(ids[mine])
            there = np.flatnonzero(slots >= 0)
            if len(there):
                yield side, mine[there], slots[there], marks[mine[there]]

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the rows of live tuples, of pairs of these, and the latest row that shows one of these by itself."""
        if section in self._sides:
            return self._sides[section].store.live(rows, version)
        if section == self._registers.section:
            return self._registers.live(section, rows, version)
        if section == PAIRS:
            left, right, _ = (raw_values(column, np.int64) for column in rows.columns)
            return rows.filter(pa.array((self._left.find(left) >= 0) & (self._right.find(right) >= 0)))
        alive = np.zeros(rows.num_rows, np.bool_)
        for side, mine, slots, marks in self._singles(rows):
            alive[mine] = side.shown[slots, MARK] == marks
        return rows.filter(pa.array(alive))

    def size(self, section: str) -> int:
        """Return the number of live tuples, pairs or single rows of a section."""
        if section in self._sides:
            return self._sides[section].store.size()
        if section == self._registers.section:
            return self._registers.size(section)
        waiting = sum(batch.num_rows for batch in self._restored[section])
        return waiting + (int(self._spare[2]) if section == PAIRS else self._left.marked + self._right.marked)


def _pairs_written(columns: np.ndarray, latest: int) -> list[Tuples]:
    """Return pairs as rows of the state: the ids of their tuples and their numbers; `latest` is when the last one ends."""
    rows = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=_PAIRS)
    return [Tuples(PAIRS, rows, None if latest == OPEN else latest + 1)]


@dataclass(frozen=True, slots=True)
class _Arriving:
    """Tuples that come to one side: their slots, starts, ends, ids and keys, by start."""

    slots: np.ndarray
    start: np.ndarray
    end: np.ndarray
    id: np.ndarray
    key: np.ndarray

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays in the order in which the loops take them."""
        return self.slots, self.start, self.end, self.id, self.key


@dataclass(frozen=True, slots=True)
class _Leaving:
    """Tuples that leave one side: their slots and ends, by end."""

    slots: np.ndarray
    end: np.ndarray

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays in the order in which the loops take them."""
        return self.slots, self.end


@dataclass(frozen=True, slots=True)
class _Moves:
    """The tuples that come and leave in a step, space for the keys that lose their last tuple, and the cursor of the sweep."""

    new_left: _Arriving
    new_right: _Arriving
    gone_left: _Leaving
    gone_right: _Leaving
    clock: int
    keys: np.ndarray
    cursor: np.ndarray = field(default_factory=lambda: np.zeros(10, np.int64))

    @property
    def are_tied(self) -> bool:
        """Whether the sweep has found pairs of one start out of the order of ids."""
        return bool(self.cursor[ARE_TIED])


@dataclass(frozen=True, slots=True)
class _Rows:
    """Result rows: the slots of their tuples (-1: none), lifetimes and numbers."""

    left: np.ndarray
    right: np.ndarray
    start: np.ndarray
    end: np.ndarray
    number: np.ndarray

    def __len__(self) -> int:
        return len(self.left)

    def chosen(self, which: np.ndarray) -> _Rows:
        number = self.number[which] if len(self.number) else self.number
        return _Rows(self.left[which], self.right[which], self.start[which], self.end[which], number)

    def with_others(self, others: _Rows) -> _Rows:
        names = self.__slots__
        return _Rows(*(np.concatenate((getattr(self, name), getattr(others, name))) for name in names))

    def lines(self) -> np.ndarray:
        """Return the rows as lines, as the loops take them."""
        return np.stack((self.left, self.right, self.start, self.end), axis=1)


@dataclass(frozen=True, slots=True)
class _StepResult:
    """The result of a step: rows, the change of the section "pairs", ends of earlier rows (see `joins_loops`), and the pairs
    for which the residual predicate raised an error."""

    rows: _Rows
    kept: list[Tuples]
    closed: np.ndarray
    spoiled: Sequence[FailedRows] = ()


def _by_end(closed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers and ends of earlier rows, in the order of (end, number)."""
    from hayase.lifetimes import joins_loops

    number, end = closed[:, 0].copy(), closed[:, 1].copy()
    if bool(np.all(end[1:] > end[:-1])):
        return number, end
    if bool(np.all(end[1:] >= end[:-1])):
        order = joins_loops.order_ties(end, number, number)
        return (number[order], end) if len(order) else (number, end)
    order = np.lexsort((number, end))
    return number[order], end[order]


class _Side:
    """The tuples of one child: their store and the arrays by slot that the loops work on."""

    def __init__(self, schema: pa.Schema, section: str, keys: Sequence[str], rule: int, counted: bool) -> None:
        self.store = TupleStore(schema, section)
        self.keys, self.rule = keys, rule
        self.nodes = np.empty(0, NODE)
        self.shown = np.empty((0, 3), np.int64)
        self.marked = 0
        self._is_shown = rule != NEVER or counted
        self._names: IdMap | None = None

    def whole_keys(self, rows: pa.RecordBatch) -> np.ndarray | None:
        """Return which rows have no NULL in their keys; None if all."""
        columns = [rows.column(name) for name in self.keys]
        parts = [column.is_valid().to_numpy(zero_copy_only=False) for column in columns if column.null_count]
        return np.logical_and.reduce(parts) if parts else None

    def make_room(self, slots: np.ndarray) -> None:
        """Enlarge the arrays for tuples that were added to the store."""
        known, capacity = len(self.nodes), self.store.capacity
        self.nodes = grown(self.nodes, capacity)
        self.nodes["key"][known:] = NOBODY
        if self._is_shown:
            self.shown = grown(self.shown, capacity)
            self.shown[slots] = (-1, -1, 0)

    def place(self, new: _Arriving) -> None:
        """Initialise the records of new tuples."""
        from hayase.lifetimes import joins_loops

        joins_loops.place(new.slots, new.end, new.id, new.key, self.nodes)

    def close(self, gone: _Leaving) -> None:
        """Set the ends of tuples that leave."""
        from hayase.lifetimes import joins_loops

        joins_loops.set_ends(gone.slots, gone.end, self.nodes)

    def arrays(self, new: _Arriving, gone: _Leaving) -> tuple[np.ndarray | int, ...]:
        """Return what the loops take of a side: its arrays by slot, the tuples that come and leave, and the rule."""
        return self.nodes, self.store.start, self.shown, new.slots, gone.slots, self.rule

    def finish(self, new: np.ndarray, gone: np.ndarray, clock: int) -> None:
        """Finish a step in which some tuples came and some left."""
        if self._names is not None:
            self.name(new[self.nodes["end"][new] >= clock])
        self.forget(gone)

    def forget(self, slots: np.ndarray) -> None:
        """Free the slots of tuples that have left all chains; `_Keys.leave` must follow."""
        if self._is_shown:
            self.marked -= int(np.count_nonzero(self.shown[slots, MARK] >= 0))
        if self._names is not None:
            self._names.take_out(self.store.id[slots])
        self.store.release(slots)

    def name(self, slots: np.ndarray) -> None:
        """Add tuples to the map of ids, if there is one."""
        if self._names is not None:
            self._names.enter(self.store.id[slots], slots)

    def find(self, ids: np.ndarray) -> np.ndarray:
        """Return the slots of live tuples by id; -1 for others.

        Only restoring and rewriting state needs ids, so the map is built when it is first used, and kept from then on.
        """
        if self._names is None:
            self._names = IdMap()
            self.name(np.flatnonzero(self.nodes["key"][: self.store.capacity] != NOBODY))
        return self._names.look_up(ids)

    def mark(self, slots: np.ndarray, marks: np.ndarray) -> None:
        """Load marks of single rows, in any order and with repetitions."""
        self.marked -= int(np.count_nonzero(self.shown[np.unique(slots), MARK] >= 0))
        np.maximum.at(self.shown[:, MARK], slots, marks)
        self.marked += len(np.unique(slots))

    def ids(self, slots: np.ndarray) -> np.ndarray:
        """Return the ids of tuples; -1 where there is none."""
        if not len(slots) or slots.min() >= 0:
            return self.store.id[slots]
        return np.where(slots < 0, -1, np.append(self.store.id, -1)[slots])


class _Keys:
    """The keys that have tuples on either side: an index, the line of each in `book`, and in `reach` the latest known end of
    its tuples on the right."""

    def __init__(self) -> None:
        self._index = KeyIndex()
        self.book = np.empty((0, 8), np.int32)
        self.reach = np.empty(0, np.int64)

    def of(self, side: _Side, rows: pa.RecordBatch, count: int, whole: np.ndarray | None) -> np.ndarray:
        """Return the numbers of the rows' keys; NO_KEY for those with a NULL."""
        columns = [rows.column(name) for name in side.keys]
        if whole is not None:
            mask = pa.array(whole)
            columns = [column.filter(mask) for column in columns]
        encoded = encode(columns, count)
        keys = self._index.slots(encoded, hashes(encoded))
        known = len(self.book)
        self.book = grown(self.book, self._index.capacity)
        self.reach = grown(self.reach, self._index.capacity)
        self.book[known:] = _BLANK
        self.reach[known:] = BEGINNING
        if whole is None:
            return keys
        all_keys = np.full(count, NO_KEY)
        all_keys[whole] = keys
        return all_keys

    def leave(self, left: _Side, gone_left: np.ndarray, right: _Side, gone_right: np.ndarray) -> None:
        """Drop the keys that have lost their last tuple, after tuples have left all chains."""
        from hayase.lifetimes import joins_loops

        keys = np.empty(len(gone_left) + len(gone_right), np.int64)
        count = joins_loops.vacate(gone_left, left.nodes, self.book, keys, 0)
        self.clear(keys, joins_loops.vacate(gone_right, right.nodes, self.book, keys, count))

    def clear(self, keys: np.ndarray, count: int) -> None:
        """Drop the first `count` keys, which have lost their last tuple, unless another tuple has come since."""
        from hayase.lifetimes import joins_loops

        if count:
            self._index.drop(keys[: joins_loops.clear_keys(self.book, self.reach, keys, count)])
