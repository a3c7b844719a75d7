"""The join of two interval relations, direct: each tuple, when it appears, meets those of the other side that are there.

A pair lives on [later start, earlier end). A step is one sweep in time order over the tuples that come and leave in it,
ends before starts, with the tuples of every key and side in a chain: a probe walks those alive at that very instant.

Order: starts and ends as in a `Delta`.   Per tuple: O(1) and its results.   Space: the tuples alive, 32 bytes and their
values each, and 64 bytes for a pair whose end depends on an end that is not known yet.
Outer, semi and anti joins show a tuple by itself while it has no partner (or, for semi, while it has one). Without a
residual predicate a key knows how many tuples it has on each side, and only when that number leaves or comes to zero
something changes for the tuples of the other side. With one, all pairs alive are kept, and every tuple counts its own.

What is written besides the tuples: pairs whose end is to be told or that are counted (they end with their tuples, so
there are no tombstones), and the latest row in which a tuple that is alive is or was shown by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from hayase.core.errors import DamagedState
from hayase.core.expressions import Projection, bind
from hayase.core.keys import KeyIndex, encode, hashes, values
from hayase.core.stages import Spoiled, Tuples
from hayase.core.times import BEGINNING
from hayase.lifetimes.plans import Join
from hayase.lifetimes.registers import Registers
from hayase.lifetimes.relations import OPEN, Delta, Span, Step
from hayase.lifetimes.slotted import grown
from hayase.lifetimes.tuples import IdMap, TupleStore

__all__ = ["JoinOperator"]

PAIRS, SINGLES = "pairs", "singles"
"""Sections of the state; the others are `left` and `right`, those of the stores, and `registers`."""

CANDIDATES = 131_072
"""Pairs on which a residual predicate is evaluated at a time."""
_NO_LIMIT = 1 << 62
_FEWEST_ROWS = 1024
FEWEST_KEYS = 65_536
"""Keys without tuples that are not worth being cleared away."""

_PAIRS = pa.schema({"left": pa.int64(), "right": pa.int64(), "number": pa.int64()})
_SINGLES = pa.schema({"right": pa.bool_(), "tuple": pa.int64(), "mark": pa.int64()})

NEVER, ALONE, ACCOMPANIED = range(3)
"""When a tuple is shown by itself: never, while it has no partner, while it has one."""
NEXT, PREVIOUS, END, KEY = range(4)
FIRST, LAST, COUNT, THERE, RIGHT = range(5)
FRESH, MARK, PARTNERS = range(3)
"""Places in the lines of tuples, of keys (the right side's begin at RIGHT) and of tuples shown by themselves, all of
which `joins_loops` describes."""
NO_KEY, NOBODY = -1, -2
"""In the place of a tuple's key: a part of it is NULL, so that it never has a partner; nobody is in this slot."""

_RULES = {
    "inner": (NEVER, NEVER), "left": (ALONE, NEVER), "right": (NEVER, ALONE), "full": (ALONE, ALONE),
    "semi": (ACCOMPANIED, NEVER), "anti": (ALONE, NEVER),
}  # fmt: skip
_BLANK = np.array([-1, -1, 0, 0, -1, -1, 0, 0])
"""A key without tuples."""


class JoinOperator:
    """A join of any kind (`hayase.lifetimes.relations.Operator`)."""

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
        if not self._paired:  # of the right side nothing is shown
            needed = {name for _, name in node.keys} | self._read
            right_schema = pa.schema([each for each in right_schema if each.name in needed])
        self._counted = self._residual is not None and (left_rule, right_rule) != (NEVER, NEVER)
        self._left = _Side(left_schema, "left", [name for name, _ in node.keys], left_rule, self._counted)
        self._right = _Side(right_schema, "right", [name for _, name in node.keys], right_rule, self._counted)
        self._sides = {"left": self._left, "right": self._right}
        self._keys = _Keys()
        self._pool = np.empty((0, 8), np.int64)
        self._spare = np.array([-1, 0, 0])  # see `joins_loops._free`
        self._registers = Registers(("next",), (0,))
        self._seen = 0  # a pair with a lower number was made in a step that this object went through or caught up with
        self._expected = 0  # rows of the next sweep
        self._restored: dict[str, list[pa.RecordBatch]] = {PAIRS: [], SINGLES: []}

    # ------------------------------------------------------------------------------------------------ a step

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        """One sweep over the tuples that come and leave."""
        self._settle(span.since)
        new_left, new_right = self._entered(self._left, inputs[0]), self._entered(self._right, inputs[1])
        gone_left, gone_right = self._left.store.expire(span.clock), self._right.store.expire(span.clock)
        moves = _Moves(new_left, new_right, gone_left, gone_right, span.clock)
        found = self._by_keys(moves) if self._residual is None else self._by_pairs(moves, self._residual)
        delta = self._delta(found)
        state = [*self._pairs_to_write(found.kept), *self._singles_to_write(found, span.clock)]
        for side, new, gone in ((self._left, new_left, gone_left), (self._right, new_right, gone_right)):
            state += side.store.changes()
            side.finish(new, gone, span.clock)
        self._keys.clear(self._left, self._right)
        state += self._registers.changes(span.version)
        self._seen = self._registers["next"]
        return Step(delta, state, found.spoiled)

    def _entered(self, side: _Side, delta: Delta) -> np.ndarray:
        """Put a delta into a side: slots of the new tuples, in the order of their starts."""
        rows, start, end, ids = delta.rows, delta.start, delta.end, delta.id
        if rows.schema.names != side.store.schema.names:
            rows = rows.select(side.store.schema.names)
        whole = side.whole_keys(rows)
        if whole is not None and side.rule != ALONE:  # of the others nothing will ever come
            rows = rows.filter(pa.array(whole))
            start, end, ids, whole = start[whole], end[whole], ids[whole], None
        keys = self._keys.of(side, rows, len(ids), whole)
        slots = side.store.add(rows, start, end, ids)
        side.place(slots, keys)
        side.close(delta.closed, delta.closed_end)
        return slots

    def _by_keys(self, moves: _Moves) -> _Found:
        """Without a residual predicate: tuples of one key are partners."""
        lines, told, _ = self._sweep(moves, _NO_LIMIT)
        rows = self._numbered(lines)
        kept = rows.chosen(np.flatnonzero((rows.end == OPEN) & (rows.left >= 0) & (rows.right >= 0)))
        told = np.concatenate((told, self._pairs_told(moves)))
        self._keep(kept.left, kept.right, kept.number)
        return _Found(rows, kept, told)

    def _by_pairs(self, moves: _Moves, residual: Projection) -> _Found:
        """With a residual predicate: of the pairs of a key, those that satisfy it are partners."""
        from hayase.lifetimes import joins_loops

        lines, spoiled = self._satisfying(moves, residual)
        pairs = self._numbered(lines)
        if not self._counted:
            kept = pairs.chosen(np.flatnonzero(pairs.end == OPEN))
            told = self._pairs_told(moves)
            self._keep(kept.left, kept.right, kept.number)
            return _Found(pairs, kept, told, spoiled)
        self._make_room(len(pairs))
        singles, told = joins_loops.watch(
            moves.new_left, moves.new_right, moves.gone_left, moves.gone_right, pairs.lines(), pairs.number,
            self._left.nodes, self._right.nodes, self._left.store.start, self._right.store.start,
            self._pool, self._spare, self._left.firsts, self._right.firsts, self._left.shown, self._right.shown,
            self._left.rule, self._right.rule, self._paired,
        )  # fmt: skip
        rows = self._numbered(singles)
        if self._paired:
            rows = self._in_order(pairs.with_others(rows))
        return _Found(rows, pairs.chosen(np.flatnonzero(pairs.end >= moves.clock)), told, spoiled)

    def _sweep(self, moves: _Moves, limit: int) -> tuple[np.ndarray, np.ndarray, bool]:
        """Go on through the step by keys; with a residual predicate, only to find candidates."""
        from hayase.lifetimes import joins_loops

        by_keys = self._residual is None
        if not by_keys or (self._left.rule == NEVER and self._right.rule == NEVER):
            return self._pairs(moves, limit)
        lines, told, done = joins_loops.meet(
            moves.new_left, moves.new_right, moves.gone_left, moves.gone_right, moves.cursor, moves.clock, limit,
            self._left.nodes, self._right.nodes, self._left.store.start, self._right.store.start,
            self._keys.book, self._keys.reach, self._left.shown, self._right.shown, self._paired or not by_keys,
            self._left.rule if by_keys else NEVER, self._right.rule if by_keys else NEVER,
            _FEWEST_ROWS + min(self._expected, limit),
        )  # fmt: skip
        self._expected = len(lines) + len(lines) // 8
        return lines, told, done

    def _pairs(self, moves: _Moves, limit: int) -> tuple[np.ndarray, np.ndarray, bool]:
        """As `_sweep`, where there are only pairs."""
        from hayase.lifetimes import joins_loops

        found: list[np.ndarray] = []
        room = _FEWEST_ROWS + min(self._expected, limit)
        while True:
            lines = np.empty((room, 4), np.int64)
            count, done = joins_loops.pairs(
                moves.new_left, moves.new_right, moves.gone_left, moves.gone_right, moves.cursor, moves.clock,
                self._left.nodes, self._right.nodes, self._left.store.start, self._right.store.start,
                self._keys.book, lines,
            )  # fmt: skip
            found.append(lines[:count])
            if done or sum(map(len, found)) > limit:
                break
            room = 2 * room
        whole = found[0] if len(found) == 1 else np.concatenate(found)
        self._expected = len(whole) + len(whole) // 8
        return whole, np.empty((0, 4), np.int64), done

    def _satisfying(self, moves: _Moves, residual: Projection) -> tuple[np.ndarray, list[Spoiled]]:
        """The pairs of the step that satisfy the predicate, in the order of their starts, and those that it raises on."""
        met: list[np.ndarray] = [np.empty((0, 4), np.int64)]
        spoiled: list[Spoiled] = []
        done = False
        while not done:
            candidates, _, done = self._sweep(moves, CANDIDATES)
            for first in range(0, len(candidates), CANDIDATES):
                some = candidates[first : first + CANDIDATES]
                mapped = residual(self._pair_rows(some, self._read))
                met.append(some[mapped.origin])
                if len(mapped.refused):
                    spoiled.append(Spoiled(self._pair_rows(some[mapped.refused.rows]), mapped.refused.reasons))
        return np.concatenate(met), spoiled

    def _pair_rows(self, lines: np.ndarray, names: frozenset[str] | None = None) -> pa.RecordBatch:
        """The values of pairs: all, or those of the named columns and, if that is none, of one that does not matter."""
        columns: dict[str, pa.Array] = {}
        for side, at in ((self._left, 0), (self._right, 1)):
            wanted = [name for name in side.store.schema.names if names is None or name in names]
            if wanted:
                rows = side.store.take(np.ascontiguousarray(lines[:, at]))
                columns |= {name: rows.column(name) for name in wanted}
        return pa.RecordBatch.from_pydict(columns or {"__nothing": pa.array(np.zeros(len(lines), np.int8))})

    # ------------------------------------------------------------------------------------------------ results

    def _numbered(self, lines: np.ndarray) -> _Rows:
        """Rows that the loops found, in the order of results, and numbered in it."""
        from hayase.lifetimes import joins_loops

        first = self._registers["next"]
        self._registers["next"] = first + len(lines)
        left, right, start, end = joins_loops.apart(lines)
        rows = self._tied(_Rows(left, right, start, end, np.empty(0, np.int64)))
        return replace(rows, number=np.arange(first, first + len(lines)))

    def _in_order(self, rows: _Rows) -> _Rows:
        """Rows by start, then by the ids of their tuples, none before all."""
        return self._tied(rows.chosen(np.argsort(rows.start, kind="stable")))

    def _tied(self, rows: _Rows) -> _Rows:
        """The same of rows that are in the order of starts; they may have no numbers yet."""
        from hayase.lifetimes import joins_loops

        if bool(np.all(rows.start[1:] > rows.start[:-1])):
            return rows
        order = joins_loops.order_ties(rows.start, self._left.ids(rows.left), self._right.ids(rows.right))
        return rows.chosen(order) if len(order) else rows

    def _delta(self, found: _Found) -> Delta:
        rows = found.rows
        columns = self._left.taken(rows.left)
        if self._paired:
            columns = [*columns, *self._right.taken(rows.right)]
        closed, closed_end = found.told[:, 0], found.told[:, 1]
        order = np.lexsort((closed, closed_end))
        made = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return Delta(made, rows.start, rows.end, rows.number, closed[order], closed_end[order])

    # ------------------------------------------------------------------------------------------------ pairs that are kept

    def _keep(self, left: np.ndarray, right: np.ndarray, number: np.ndarray) -> None:
        """Keep pairs that are alive; the end of a result whose tuple's end is open is to be told."""
        from hayase.lifetimes import joins_loops

        is_open = (self._left.nodes[left, END] == OPEN) | (self._right.nodes[right, END] == OPEN)
        self._make_room(len(left))
        joins_loops.keep_pairs(
            left, right, number, (is_open & self._paired).astype(np.int64), self._pool, self._spare,
            self._left.firsts, self._right.firsts, self._left.shown, self._right.shown, self._counted,
        )  # fmt: skip

    def _make_room(self, count: int) -> None:
        self._pool = grown(self._pool, int(self._spare[1]) + count)

    def _pairs_told(self, moves: _Moves) -> np.ndarray:
        """The ends of results of earlier steps, by the tuples that leave."""
        from hayase.lifetimes import joins_loops

        if not self._spare[2]:
            return np.empty((0, 4), np.int64)
        told: np.ndarray = joins_loops.close_pairs(
            moves.gone_left, moves.gone_right, self._left.nodes, self._right.nodes,
            self._pool, self._spare, self._left.firsts, self._right.firsts,
        )  # fmt: skip
        return told

    def _pairs_to_write(self, kept: _Rows) -> list[Tuples]:
        if not len(kept):
            return []
        left, right = self._left.store, self._right.store
        columns = [pa.array(left.id[kept.left]), pa.array(right.id[kept.right]), pa.array(kept.number)]
        latest = int(np.minimum(left.end[kept.left], right.end[kept.right]).max())
        rows = pa.RecordBatch.from_arrays(columns, schema=_PAIRS)
        return [Tuples(PAIRS, rows, None if latest == OPEN else latest + 1)]

    # ------------------------------------------------------------------------------------------------ tuples by themselves

    def _singles_to_write(self, found: _Found, clock: int) -> list[Tuples]:
        """Rows of single tuples that stay open, and those that have ended before their tuples did."""
        result = []
        for side, at, slots in ((self._left, 0, found.rows.left), (self._right, RIGHT, found.rows.right)):
            if side.rule == NEVER:
                continue
            others = found.rows.right if side is self._left else found.rows.left
            still = np.flatnonzero((found.rows.end == OPEN) & (others < 0))
            shown = slots[still]
            side.marked += int(np.count_nonzero(side.shown[shown, MARK] < 0))
            side.shown[shown, MARK] = 2 * found.rows.number[still]
            side.shown[shown, FRESH] = -1
            hidden = found.told[found.told[:, 3] == at, 2]
            hidden = hidden[(side.nodes[hidden, END] >= clock) & (side.shown[hidden, MARK] & 1 == 1)]
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
            result.append(Tuples(SINGLES, rows, None if latest == OPEN else latest + 1))
        return result

    # ------------------------------------------------------------------------------------------------ state

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Take up tuples, pairs and rows of single tuples; the next step begins by sorting them out."""
        if section in self._sides:
            self._sides[section].store.restore(rows, version)
        elif section == self._registers.section:
            self._registers.restore(section, rows, version)
        else:
            wanted = _PAIRS if section == PAIRS else _SINGLES
            if rows.schema.names != wanted.names or rows.schema.types != wanted.types:
                raise DamagedState(
                    f'the state section "{section}" has the columns {", ".join(rows.schema.names)} '
                    f"instead of {', '.join(wanted.names)}; reset the stage"
                )
            self._restored[section].append(rows)

    def _settle(self, since: int) -> None:
        """Make what was restored part of the indexes, and forget what ended while another worker went on."""
        from hayase.lifetimes import joins_loops

        settled = [(side, *side.store.settle(since)) for side in (self._left, self._right)]
        for side, _, removed in settled:
            if len(removed):
                number = 0 if side is self._left else 1
                joins_loops.leave(removed, side.nodes, self._keys.book, number * RIGHT)
                joins_loops.drop_pairs(
                    removed, number, self._pool, self._spare,
                    self._left.firsts, self._right.firsts, self._left.shown, self._right.shown, self._counted,
                )  # fmt: skip
                side.forget(removed)
        for side, added, _ in settled:
            if len(added):
                rows = side.store.take(added)
                side.place(added, self._keys.of(side, rows, len(added), side.whole_keys(rows)))
                side.name(added)
                joins_loops.enter(
                    added, side.nodes, self._keys.book, 0 if side is self._left else RIGHT, self._keys.reach
                )
        self._settle_pairs()
        self._settle_singles()

    def _settle_pairs(self) -> None:
        if self._restored[PAIRS]:
            rows = pa.concat_batches(self._restored[PAIRS])
            ids_left, ids_right, number = (values(column, np.int64) for column in rows.columns)
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
        """Of rows of the section, for each side: those whose tuples are alive, the slots of these, the marks."""
        is_right = rows.column(0).to_numpy(zero_copy_only=False)
        ids, marks = values(rows.column(1), np.int64), values(rows.column(2), np.int64)
        for side, is_mine in ((self._left, ~is_right), (self._right, is_right)):
            mine = np.flatnonzero(is_mine)
            slots = side.find(ids[mine])
            there = np.flatnonzero(slots >= 0)
            if len(there):
                yield side, mine[there], slots[there], marks[mine[there]]

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Tuples that are alive, pairs of such, and the latest of the rows that show such a tuple by itself."""
        if section in self._sides:
            return self._sides[section].store.live(rows, version)
        if section == self._registers.section:
            return self._registers.live(section, rows, version)
        if section == PAIRS:
            left, right, _ = (values(column, np.int64) for column in rows.columns)
            return rows.filter(pa.array((self._left.find(left) >= 0) & (self._right.find(right) >= 0)))
        alive = np.zeros(rows.num_rows, np.bool_)
        for side, mine, slots, marks in self._singles(rows):
            alive[mine] = side.shown[slots, MARK] == marks
        return rows.filter(pa.array(alive))

    def size(self, section: str) -> int:
        """How many of them there are."""
        if section in self._sides:
            return self._sides[section].store.size()
        if section == self._registers.section:
            return self._registers.size(section)
        waiting = sum(each.num_rows for each in self._restored[section])
        return waiting + (int(self._spare[2]) if section == PAIRS else self._left.marked + self._right.marked)


@dataclass(frozen=True, slots=True)
class _Moves:
    """Slots of the tuples that come (by start) and leave (by end) in a step, and how far the sweep has got."""

    new_left: np.ndarray
    new_right: np.ndarray
    gone_left: np.ndarray
    gone_right: np.ndarray
    clock: int
    cursor: np.ndarray = field(default_factory=lambda: np.zeros(4, np.int64))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Results: the slots of their tuples (-1: none), lifetimes and numbers."""

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
        """As the loops take them."""
        return np.stack((self.left, self.right, self.start, self.end), axis=1)


@dataclass(frozen=True, slots=True)
class _Found:
    """What a step gives: results, pairs that are kept, ends of earlier results (see the loops), pairs that raised."""

    rows: _Rows
    kept: _Rows
    told: np.ndarray
    spoiled: Sequence[Spoiled] = ()


class _Side:
    """The tuples of one child: their store and, by slot, the lines that the loops work on."""

    def __init__(self, schema: pa.Schema, section: str, keys: Sequence[str], rule: int, counted: bool) -> None:
        self.store = TupleStore(schema, section)
        self.keys, self.rule = keys, rule
        self.nodes = np.empty((0, 4), np.int64)
        self.firsts = np.empty(0, np.int64)
        self.shown = np.empty((0, 3), np.int64)
        self.marked = 0
        self._is_shown = rule != NEVER or counted
        self._names: IdMap | None = None

    def whole_keys(self, rows: pa.RecordBatch) -> np.ndarray | None:
        """Which rows have no NULL in their keys; None if all."""
        columns = [rows.column(name) for name in self.keys]
        parts = [column.is_valid().to_numpy(zero_copy_only=False) for column in columns if column.null_count]
        return np.logical_and.reduce(parts) if parts else None

    def place(self, slots: np.ndarray, keys: np.ndarray) -> None:
        """Make lines for tuples that have come into the store."""
        known, capacity = len(self.nodes), self.store.capacity
        self.nodes = grown(self.nodes, capacity)
        self.nodes[known:, KEY] = NOBODY
        self.nodes[slots, END] = self.store.end[slots]
        self.nodes[slots, KEY] = keys
        self.firsts = grown(self.firsts, capacity)
        self.firsts[slots] = -1
        if self._is_shown:
            self.shown = grown(self.shown, capacity)
            self.shown[slots] = (-1, -1, 0)

    def close(self, ids: np.ndarray, ends: np.ndarray) -> None:
        """Open tuples have got their ends."""
        slots = self.store.close(ids, ends)
        self.nodes[slots, END] = self.store.end[slots]

    def finish(self, new: np.ndarray, gone: np.ndarray, clock: int) -> None:
        """End a step: some tuples have come, and some are gone."""
        if self._names is not None:
            self.name(new[self.nodes[new, END] >= clock])
        self.forget(gone)

    def forget(self, slots: np.ndarray) -> None:
        """Give back slots of tuples that are gone and out of all chains."""
        if self._is_shown:
            self.marked -= int(np.count_nonzero(self.shown[slots, MARK] >= 0))
        if self._names is not None:
            self._names.take_out(self.store.id[slots])
        self.nodes[slots, KEY] = NOBODY
        self.store.release(slots)

    def name(self, slots: np.ndarray) -> None:
        """From now on tuples are found by their ids, if anybody has asked for any."""
        if self._names is not None:
            self._names.enter(self.store.id[slots], slots)

    def find(self, ids: np.ndarray) -> np.ndarray:
        """The slots of tuples that are alive, -1 for others. Only what is restored or rewritten names tuples by their
        ids, so the map is made when that first happens, and kept from then on."""
        if self._names is None:
            self._names = IdMap()
            self.name(np.flatnonzero(self.nodes[: self.store.capacity, KEY] != NOBODY))
        return self._names.look_up(ids)

    def mark(self, slots: np.ndarray, marks: np.ndarray) -> None:
        """Take up what was written of rows of single tuples, in any order and as often as it comes."""
        self.marked -= int(np.count_nonzero(self.shown[np.unique(slots), MARK] >= 0))
        np.maximum.at(self.shown[:, MARK], slots, marks)
        self.marked += len(np.unique(slots))

    def ids(self, slots: np.ndarray) -> np.ndarray:
        """The ids of tuples, -1 where there is none."""
        if not len(slots) or slots.min() >= 0:
            return self.store.id[slots]
        return np.where(slots < 0, -1, np.append(self.store.id, -1)[slots])

    def taken(self, slots: np.ndarray) -> Sequence[pa.Array]:
        """The columns of tuples, NULL where there is none."""
        there = slots >= 0
        if there.all():
            return self.store.take(slots).columns
        if not there.any():
            return [pa.nulls(len(slots), each.type) for each in self.store.schema]
        places = pa.array(np.cumsum(there) - 1, mask=~there)
        return self.store.take(slots[there]).take(places).columns


class _Keys:
    """The keys of both sides: an index, a line for each in the book, and how far its right tuples reach for certain."""

    def __init__(self) -> None:
        self._index = KeyIndex()
        self._expected = FEWEST_KEYS  # so many keys are a reason to look for some without tuples
        self.book = np.empty((0, 8), np.int64)
        self.reach = np.empty(0, np.int64)

    def of(self, side: _Side, rows: pa.RecordBatch, count: int, whole: np.ndarray | None) -> np.ndarray:
        """The numbers of the rows' keys; those that are not whole have none."""
        columns = [rows.column(name) for name in side.keys]
        if whole is not None:
            mask = pa.array(whole)
            columns = [column.filter(mask) for column in columns]
        encoded = encode(columns, count)
        keys = self._index.slots(encoded, hashes(encoded))
        known = len(self.book)
        self.book = grown(self.book, len(self._index))
        self.reach = grown(self.reach, len(self._index))
        self.book[known:] = _BLANK
        self.reach[known:] = BEGINNING
        if whole is None:
            return keys
        all_keys = np.full(count, NO_KEY)
        all_keys[whole] = keys
        return all_keys

    def clear(self, left: _Side, right: _Side) -> None:
        """Forget the keys without tuples when there may be many: as many as half of all and a share of the slots, so
        that the keys since the last time pay for it."""
        if len(self._index) < self._expected:
            return
        book = self.book[: len(self._index)]
        filled = np.flatnonzero((book[:, COUNT] > 0) | (book[:, RIGHT + COUNT] > 0))
        if 2 * len(filled) <= len(book):
            numbers = np.full(len(book) + 2, NO_KEY)  # the last two are those of NOBODY and NO_KEY
            numbers[NOBODY] = NOBODY
            numbers[filled] = np.arange(len(filled))
            for side in (left, right):
                side.nodes[:, KEY] = numbers[side.nodes[:, KEY]]
            self._index.keep(filled)
            self.book, self.reach = book[filled], self.reach[filled]
        slots = len(left.nodes) + len(right.nodes)
        self._expected = len(self._index) + max(len(self._index), slots // 4, FEWEST_KEYS)
