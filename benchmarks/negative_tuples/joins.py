"""Joins of the negative-tuple method: every plus and minus is paired with the live tuples of the other side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from benchmarks.negative_tuples.signed import Signed
from hayase.core.expressions import Projection
from hayase.core.keys import KeyIndex, encode, hashes, validity
from hayase.lifetimes.plans import Join
from hayase.lifetimes.relations import Span
from hayase.lifetimes.slot_columns import grown, slotted_column

__all__ = ["SignedJoin"]

_LEFT_TAG, _LEFT_ALONE, _RIGHT_ALONE = 0x14057B7EF767814F, 0x2545F4914F6CDD1D, 0x3C6EF372FE94F82B
"""Salts for the tags of pairs and of tuples without a partner."""
_NO_TUPLES = np.array([-1, -1, 0, -1, -1, 0])
_PAIR, _LONE_LEFT, _LONE_RIGHT, _LEFT = range(4)
"""What an event of an outer, semi or anti join shows: a pair, a tuple with NULLs, or the left tuple alone."""


def _mixed(tags: np.ndarray, salt: int) -> np.ndarray:
    """Hash tags to 64 bits; for one salt it is a bijection."""
    bits = (tags + salt) * np.int64(-7046029254386353131)
    return (bits ^ (bits >> 29)) * np.int64(-4658895280553007687)


class _Side:
    """The live tuples of one side by slot: values, tags and the linked lists of the loop."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._columns = [slotted_column(field.type) for field in schema]
        self._free = np.empty(0, np.int64)
        self._top = 0
        self.links, self.tags = np.empty((1, 2), np.int64), np.empty(1, np.int64)

    def add(self, signed: Signed) -> np.ndarray:
        """Store the values of pluses and return the slots by event; -1 for a minus, whose slot is not known yet."""
        slots = np.full(len(signed), -1)
        plus = np.flatnonzero(signed.plus)
        again = min(len(plus), len(self._free))
        new = np.concatenate(
            [self._free[len(self._free) - again :], np.arange(self._top, self._top + len(plus) - again)]
        )
        self._free = self._free[: len(self._free) - again]
        self._top += len(plus) - again
        self.links, self.tags = grown(self.links, self._top), grown(self.tags, self._top)
        rows = signed.rows if len(plus) == len(signed) else signed.rows.take(pa.array(plus))
        for column, values in zip(self._columns, rows.columns):
            column.put(new, values, self._top)
        slots[plus] = new
        return slots

    def take(self, slots: np.ndarray) -> pa.RecordBatch:
        """Return the values of slots; NULLs for -1."""
        if len(slots) and slots.min() < 0:
            there = self.take(slots[slots >= 0])
            places = np.cumsum(slots >= 0) - 1
            return there.take(pa.array(places, mask=slots < 0))
        return pa.RecordBatch.from_arrays([column.take(slots) for column in self._columns], schema=self._schema)

    def release(self, slots: np.ndarray) -> None:
        """Free the slots of tuples."""
        for column in self._columns:
            column.release(slots)
        self._free = np.concatenate([self._free, slots])


class _Keys:
    """The numbers of keys that have tuples, compared exactly like in the direct join, and their lists (see `joins_loops`).

    A key with a NULL equals no other: all such keys of a side have the number 0 (left) or 1 (right), where the other side
    never has tuples.
    """

    def __init__(self) -> None:
        self._index = KeyIndex()
        self.words = np.tile(_NO_TUPLES, (1024, 1))

    def of(self, number: int, keys: Sequence[pa.Array], count: int) -> np.ndarray:
        """Return the numbers of the keys of side 0 or 1."""
        there = [validity(key) for key in keys if key.null_count]
        whole = np.logical_and.reduce(there) if there else None
        if whole is not None:
            keys = [key.filter(pa.array(whole)) for key in keys]
        encoded = encode(keys, count)
        slots = self._index.slots(encoded, hashes(encoded))
        known = len(self.words)
        self.words = grown(self.words, self._index.capacity + 2)
        self.words[known:] = _NO_TUPLES
        if whole is None:
            return slots + 2
        numbers = np.full(count, number)
        numbers[whole] = slots + 2
        return numbers

    def drop(self, sides: Sequence[Signed], keys: Sequence[np.ndarray]) -> None:
        """Drop the keys that have lost their last tuple in these events."""
        from benchmarks.negative_tuples import joins_loops

        emptied, count = np.empty(sum(map(len, keys)), np.int64), 0
        for side, mine in zip(sides, keys):
            count = joins_loops.emptied(side.plus, mine, self.words, emptied, count)
        emptied = emptied[:count]
        self.words[emptied] = _NO_TUPLES
        self._index.drop(emptied[emptied >= 2] - 2)


class SignedJoin:
    """Joins of all kinds. The inner join is compiled; the others also count the partners of every tuple, in Python."""

    def __init__(self, node: Join) -> None:
        self._node = node
        self._sides = (_Side(node.left.schema), _Side(node.right.schema))
        self._names = ([left for left, _ in node.keys], [right for _, right in node.keys])
        self._keys = _Keys()
        self._both = pa.schema([*node.left.schema, *node.right.schema])
        self._residual = None if node.residual is None else Projection((), node.residual, pa.schema([]))
        self._partners: tuple[dict[int, int], dict[int, int]] = ({}, {})

    def advance(self, inputs: Sequence[Signed], span: Span) -> Signed:
        """Process a step and return the pairs, and the tuples without partners, that appear and end."""
        left, right = self._sides
        slots = [side.add(signed) for side, signed in zip(self._sides, inputs)]
        causes, lefts, rights = self._pairs(inputs, slots)
        plus, time = (np.concatenate([getattr(child, name) for child in inputs]) for name in ("plus", "time"))
        if self._residual is not None:
            columns = [*left.take(lefts).columns, *right.take(rights).columns]
            met = self._residual(pa.RecordBatch.from_arrays(columns, schema=self._both)).input_rows
            causes, lefts, rights = causes[met], lefts[met], rights[met]
        if self._node.kind == "inner":
            signs, tags = plus[causes], _mixed(left.tags[lefts], _LEFT_TAG) ^ right.tags[rights]
        else:
            causes, lefts, rights, signs, tags = self._shown(inputs, slots, causes, lefts, rights)
        columns = list(left.take(lefts).columns)
        if self._node.kind not in ("semi", "anti"):
            columns += right.take(rights).columns
        rows = pa.RecordBatch.from_arrays(columns, schema=self._node.schema)
        for side, signed, mine in zip(self._sides, inputs, slots):
            side.release(mine[~signed.plus])
        return Signed(rows, time[causes], signs, tags)

    def _pairs(
        self, inputs: Sequence[Signed], slots: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the event that caused each pair and the slots of its tuples; the slots of minuses are found on the way."""
        from benchmarks.negative_tuples import joins_loops

        room = sum(map(len, inputs))
        keys = [
            self._keys.of(number, [signed.rows.column(name) for name in names], len(signed))
            for number, (signed, names) in enumerate(zip(inputs, self._names))
        ]
        arrays = [
            part
            for child, mine, places, side in zip(inputs, keys, slots, self._sides)
            for part in (child.time, child.plus, child.tag, mine, places, side.links, side.tags)
        ]
        parts_found: list[tuple[np.ndarray, ...]] = []
        i = j = 0
        while not parts_found or i < len(inputs[0]) or j < len(inputs[1]):
            lists = [np.empty(room, np.int64) for _ in range(3)]
            i, j, count = joins_loops.join(self._keys.words, *arrays, i, j, *lists)
            assert count >= 0, "a minus without its plus"
            parts_found.append(tuple(column[:count] for column in lists))
            room *= 4
        self._keys.drop(inputs, keys)
        causes, lefts, rights = (np.concatenate(parts) if len(parts) > 1 else parts[0] for parts in zip(*parts_found))
        return causes, lefts, rights

    def _shown(
        self,
        inputs: Sequence[Signed],
        slots: Sequence[np.ndarray],
        causes: np.ndarray,
        lefts: np.ndarray,
        rights: np.ndarray,
    ) -> tuple[np.ndarray, ...]:
        """Return the events of a join that shows tuples by themselves: causes, slots, signs and tags."""
        from benchmarks.negative_tuples import loops

        kind = self._node.kind
        pairs = kind in ("left", "right", "full")
        alone = (
            {"left": _LONE_LEFT, "full": _LONE_LEFT, "anti": _LEFT}.get(kind),
            _LONE_RIGHT if kind in ("right", "full") else None,
        )
        order = np.empty(sum(map(len, inputs)), np.int64)
        loops.merge(inputs[0].time, inputs[1].time, order)
        met: dict[int, list[tuple[int, int]]] = {}
        for cause, left, right in zip(causes.tolist(), lefts.tolist(), rights.tolist()):
            met.setdefault(cause, []).append((left, right))
        events: list[tuple[int, int, int, int, bool]] = []

        def show(what: int | None, cause: int, side: int, slot: int, plus: bool) -> None:
            if what is not None:
                events.append((what, cause, -1 if side else slot, slot if side else -1, plus))

        for cause in order.tolist():
            side = int(cause >= len(inputs[0]))
            at = cause - side * len(inputs[0])
            plus, tag, slot = bool(inputs[side].plus[at]), int(inputs[side].tag[at]), int(slots[side][at])
            mine, others = met.get(cause, []), self._partners[1 - side]
            if plus:
                self._partners[side][tag] = len(mine)
            else:
                del self._partners[side][tag]
            if not mine:
                show(alone[side], cause, side, slot, plus)
            elif kind == "semi" and side == 0:
                show(_LEFT, cause, 0, slot, plus)
            for pair in mine:
                other = int(self._sides[1 - side].tags[pair[1 - side]])
                others[other] += 1 if plus else -1
                if others[other] == (1 if plus else 0):
                    show(alone[1 - side], cause, 1 - side, pair[1 - side], not plus)
                    if kind == "semi" and side == 1:
                        show(_LEFT, cause, 0, pair[0], plus)
                if pairs:
                    events.append((_PAIR, cause, *pair, plus))
        what, causes, lefts, rights, signs = np.array(events, np.int64).reshape(-1, 5).T
        left_tags, right_tags = (side.tags[of_side] for side, of_side in zip(self._sides, (lefts, rights)))
        tags = np.choose(
            what,
            [
                _mixed(left_tags, _LEFT_TAG) ^ right_tags,
                _mixed(left_tags, _LEFT_ALONE),
                _mixed(right_tags, _RIGHT_ALONE),
                left_tags,
            ],
        )
        return causes, lefts, rights, signs.astype(np.bool_), tags
