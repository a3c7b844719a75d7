"""The operator for set operations (distinct, except, intersect, coalesce): counts the copies of equal rows over time.

- Cost: constant per start and end, plus a lookup of the row's number. Memory is proportional to the live tuples.
- All ends and starts of an instant are counted before the result is compared, so a row that exists before and after it is
  not split.
- Of equal copies the newest ends first. The end of a copy is open when it appears, because a later row may prolong it.

In memory each distinct row is kept once, as a numbered value, and tuples hold the number. In the state every tuple has its
row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.data_classes import dataclass
from hayase.core.errors import DamagedState, DeclarationError
from hayase.core.keys import KeyIndex, check_key_type, decode, encode, hashes, raw_values
from hayase.core.scratch import scratch
from hayase.core.stages import Tuples
from hayase.lifetimes.leaves import take_rows
from hayase.lifetimes.plans import Multiset, Rule
from hayase.lifetimes.relations import OPEN, Delta, Span, Step
from hayase.lifetimes.slot_columns import grown
from hayase.lifetimes.state_registers import Registers
from hayase.lifetimes.tuples import END, ID, START, Passage, TupleStore

__all__ = ["Alive", "MultisetOperator", "Swept"]

DISTINCT, COALESCE, EXCEPT, EXCEPT_ALL, INTERSECT, INTERSECT_ALL = range(6)
LEFT, RIGHT, OPENED, HEAD = range(4)
"""The words of a value: live tuples on the left and on the right, open copies in the result, the newest of these."""
NONE = -1

_RULES: dict[Rule, int] = {
    "distinct": DISTINCT,
    "coalesce": COALESCE,
    "except": EXCEPT,
    "except all": EXCEPT_ALL,
    "intersect": INTERSECT,
    "intersect all": INTERSECT_ALL,
}
_COPIES, _NEXT = "copies", "next"
MANY, SPARE_VALUES = 8, 65_536
"""Values are renumbered when there are more numbers than this, per value and in addition."""
_NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Alive:
    """Live copies: the numbers of their values, their starts and their ids."""

    values: np.ndarray
    start: np.ndarray
    id: np.ndarray


@dataclass(frozen=True, slots=True)
class Swept:
    """The effect of a step on the copies, and the numbers of the values that appeared, which are valid until the next step."""

    delta: Delta
    opened: np.ndarray
    state: list[Tuples]


class MultisetOperator:
    """The operator of `plans.Multiset` (`relations.Operator`). Rows are equal if all columns are; NULL equals NULL."""

    def __init__(self, node: Multiset) -> None:
        for field in node.schema:
            _check_comparable(field)
        self.schema = node.schema
        self._rule = _RULES[node.rule]
        self._as_given = not any(pa.types.is_floating(kind) for kind in node.schema.types)
        """Whether equal rows have equal bytes, so that any of them can represent the value."""
        self._values = _Values(node.schema)
        self._sides = [_Numbered(self._values, side) for side, _ in zip(("left", "right"), node.children)]
        self._copies = _Numbered(self._values, _COPIES)
        self._below = _NOTHING
        self._registers = Registers((_NEXT,), (0,))

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        """Process a step and return the copies that appear and end."""
        swept = self.sweep(inputs, span)
        return Step(swept.delta, swept.state)

    def settle(self, since: int) -> None:
        """Begin a step: index what was restored, remove what ended meanwhile, and drop values without tuples."""
        from hayase.lifetimes import multisets_loops

        for number, side in enumerate(self._sides):
            added, removed = side.settle(since)
            multisets_loops.count(self._values.words, side.values[added], number, 1)
            multisets_loops.count(self._values.words, side.values[removed], number, -1)
            self._values.doubt(side.values[removed])
            side.release(removed)
        added, removed = self._copies.settle(since)
        self._make_room()
        if len(removed):
            gone = np.zeros(len(self._below), np.bool_)
            gone[removed] = True
            multisets_loops.unlink(self._values.words, self._below, self._copies.values[removed], gone)
            self._values.doubt(self._copies.values[removed])
            self._copies.release(removed)
        if len(added):
            added = added[np.argsort(self._copies.store.id[added])]
            multisets_loops.push(self._values.words, self._below, self._copies.values[added], added)
        known = self._values.tidy()
        if known is not None:
            for store in (*self._sides, self._copies):
                store.renumber(known)

    def sweep(self, inputs: Sequence[Delta], span: Span) -> Swept:
        """Process a step."""
        from hayase.lifetimes import multisets_loops

        self.settle(span.since)
        started = [self._values.numbers(child.rows) for child in inputs]
        passed = [
            side.advance(child, numbers, span.clock) for side, child, numbers in zip(self._sides, inputs, started)
        ]
        starts = [(child.start, numbers) for child, numbers in zip(inputs, started)]
        ends = [(passage.ends, side.values[passage.ended]) for side, passage in zip(self._sides, passed)]
        if len(inputs) == 1:
            starts.append((_NOTHING, _NOTHING))
            ends.append((_NOTHING, _NOTHING))
        events = sum(len(times) for times, _ in (*starts, *ends))
        touched, causes, opened, start, end, below, cause, closed, closed_end = scratch(9, events)
        opening, closing = multisets_loops.sweep(
            self._rule, self._values.words, self._below, *starts[0], *starts[1], *ends[0], *ends[1],
            touched, causes, opened, start, end, below, cause, closed, closed_end,
        )  # fmt: skip
        for side, passage, (_, gone) in zip(self._sides, passed, ends):
            side.release(passage.ended)
            self._values.doubt(gone)
        first = self._registers[_NEXT]
        self._registers[_NEXT] = first + opening
        opened, closed = opened[:opening], closed[:closing]
        rows, ids = self._rows(inputs[0].rows, cause[:opening], opened), np.arange(first, first + opening)
        delta = Delta(rows, start[:opening], end[:opening], ids, self._copies.store.id[closed], closed_end[:closing])
        self._keep(delta, opened, below[:opening], span.clock)
        state = [tuples for store in (*self._sides, self._copies) for tuples in store.changes()]
        return Swept(delta, opened, [*state, *self._registers.changes(span.version)])

    def alive(self) -> Alive:
        """Return the open copies, in the order in which they appeared. Call it after `settle`."""
        slots = self._copies.slots()
        return self._copies.alive(slots[np.argsort(self._copies.store.id[slots])])

    def rows(self, numbers: np.ndarray) -> pa.RecordBatch:
        """Return the rows of numbered values."""
        return self._values.take(numbers)

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Load tuples; they are used from the next step on."""
        if section == self._registers.section:
            self._registers.restore(section, rows, version)
        else:
            self._section(section).restore(rows, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the rows of live tuples."""
        if section == self._registers.section:
            return self._registers.live(section, rows, version)
        return self._section(section).live(rows, version)

    def size(self, section: str) -> int:
        """Return the number of live tuples of a section."""
        if section == self._registers.section:
            return self._registers.size(section)
        return self._section(section).store.size()

    def _section(self, section: str) -> _Numbered:
        return next(store for store in (*self._sides, self._copies) if store.store.section == section)

    def _rows(self, left: pa.RecordBatch, causes: np.ndarray, opened: np.ndarray) -> pa.RecordBatch:
        """Return the rows of values that appeared; `causes` are the rows of the left input that caused them (-1: none)."""
        if self._as_given and len(causes) and causes.min() >= 0 and left.schema.types == self.schema.types:
            return take_rows(left, causes).rename_columns(self.schema.names)
        return self._values.take(opened)

    def _keep(self, delta: Delta, opened: np.ndarray, below: np.ndarray, clock: int) -> None:
        """Remove the copies that a step closed, and keep those that it left open."""
        from hayase.lifetimes import multisets_loops

        earlier = len(self._below)
        self._copies.close(delta, clock)
        still = np.flatnonzero(delta.end == OPEN)
        if len(still):
            slots = np.full(len(delta), NONE)
            slots[still] = self._copies.add(opened[still], delta.start[still], delta.end[still], delta.id[still])
            self._make_room()
            multisets_loops.keep(self._values.words, self._below, opened, below, slots, earlier)

    def _make_room(self) -> None:
        """Have a link for every slot of a copy."""
        self._below = grown(self._below, self._copies.store.capacity)


class _Numbered:
    """Live tuples, each with the number of its value instead of its row. In the log they have the row."""

    def __init__(self, known: _Values, section: str) -> None:
        self.store = TupleStore(_NUMBER, section, with_values=False)
        self.values = _NOTHING
        self._known = known
        self._written = [*known.schema.names, START, END, ID]

    def advance(self, delta: Delta, numbers: np.ndarray, clock: int) -> Passage:
        """Add the tuples of a step and expire those that end in it, which the caller releases."""
        passed = self.store.advance(_numbered(numbers), delta, clock)
        self._place(passed.slots, numbers)
        return passed

    def add(self, numbers: np.ndarray, start: np.ndarray, end: np.ndarray, id: np.ndarray) -> np.ndarray:
        """Add tuples and return their slots."""
        slots = self.store.add(_numbered(numbers), start, end, id)
        self._place(slots, numbers)
        return slots

    def close(self, delta: Delta, clock: int) -> None:
        """Remove the tuples that a step closed."""
        self.store.close(delta.closed, delta.closed_end)
        self.release(self.store.expire(clock))

    def release(self, slots: np.ndarray) -> None:
        """Free the slots of tuples."""
        self.values[slots] = NONE
        self.store.release(slots)

    def slots(self) -> np.ndarray:
        """Return the slots of all tuples."""
        return np.flatnonzero(self.values != NONE)

    def alive(self, slots: np.ndarray) -> Alive:
        """Return the tuples of some slots."""
        return Alive(self.values[slots], self.store.start[slots], self.store.id[slots])

    def renumber(self, numbers: np.ndarray) -> None:
        """Adopt new numbers of values."""
        slots = self.slots()
        self.values[slots] = numbers[self.values[slots]]

    def settle(self, since: int) -> tuple[np.ndarray, np.ndarray]:
        """Do `TupleStore.settle`; removed tuples keep their values until they are released."""
        added, removed = self.store.settle(since)
        if len(added):
            self._place(added, raw_values(self.store.take(added).column(0), np.int64))
        return added, removed

    def changes(self) -> list[Tuples]:
        """Return the change of the state, with rows instead of numbers; tombstones have no row."""
        return [Tuples(tuples.section, self._widened(tuples.rows), tuples.until) for tuples in self.store.changes()]

    def restore(self, rows: pa.RecordBatch, version: int) -> None:
        """Number the rows of tuples and pass them to the store."""
        if rows.schema.names != self._written or rows.schema.types[:-3] != self._known.schema.types:
            raise DamagedState(
                f'the state section "{self.store.section}" has the columns {", ".join(rows.schema.names)} '
                f"instead of {', '.join(self._written)}",
                "reset the stage",
            )
        times = [rows.column(name) for name in (START, END, ID)]
        there = pc.not_equal(times[0], times[1])
        numbers = np.full(rows.num_rows, NONE)
        own = rows.select(self._known.schema.names).filter(there)
        numbers[there.to_numpy(zero_copy_only=False)] = known = self._known.numbers(own)
        self._known.doubt(known)
        self.store.restore(pa.RecordBatch.from_arrays([pa.array(numbers), *times], [_VALUE, START, END, ID]), version)

    def live(self, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the log rows of live tuples."""
        places = [pa.array(np.arange(rows.num_rows)), *(rows.column(name) for name in (START, END, ID))]
        alive = self.store.live(pa.RecordBatch.from_arrays(places, [_VALUE, START, END, ID]), version)
        return rows.take(alive.column(0))

    def _place(self, slots: np.ndarray, numbers: np.ndarray) -> None:
        before = len(self.values)
        self.values = grown(self.values, self.store.capacity)
        self.values[before:] = NONE
        self.values[slots] = numbers

    def _widened(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        numbers = rows.column(0)
        own = self._known.take(raw_values(numbers.drop_null(), np.int64))
        if numbers.null_count:
            there = numbers.is_valid().to_numpy(zero_copy_only=False)
            own = own.take(pa.array(np.cumsum(there) - 1, mask=~there))
        return pa.RecordBatch.from_arrays([*own.columns, *rows.columns[1:]], self._written)


_VALUE = "__value"
_NUMBER = pa.schema([pa.field(_VALUE, pa.int64())])


def _numbered(numbers: np.ndarray) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(numbers)], schema=_NUMBER)


class _Values:
    """Distinct rows, numbered, with four words each. Rows are compared as keys: -0.0 equals 0.0, and all NaNs are equal.

    A value without tuples is dropped at the beginning of a step, and its number is reused.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.words = np.empty((0, 4), np.int64)
        self._index = KeyIndex()
        self._doubtful: list[np.ndarray] = []

    def __len__(self) -> int:
        return len(self._index)

    def numbers(self, rows: pa.RecordBatch) -> np.ndarray:
        """Return the numbers of rows; new rows get one."""
        encoded = encode(rows.columns, rows.num_rows)
        numbers = self._index.slots(encoded, hashes(encoded))
        known = len(self.words)
        self.words = grown(self.words, self._index.capacity)
        self.words[known:] = (0, 0, 0, NONE)
        return numbers

    def take(self, numbers: np.ndarray) -> pa.RecordBatch:
        """Return the rows of values, in any order and with repetitions."""
        return pa.RecordBatch.from_arrays(decode(self._index.encoded(numbers), self.schema.types), schema=self.schema)

    def doubt(self, numbers: np.ndarray) -> None:
        """Note values that may have no tuples any more."""
        self._doubtful.append(numbers)

    def tidy(self) -> np.ndarray | None:
        """Drop values without tuples. If few of very many numbers are in use, renumber the values and return the new numbers
        by the old ones; else None."""
        from hayase.lifetimes import multisets_loops

        if self._doubtful:
            numbers = np.concatenate(self._doubtful)
            gone = np.empty(len(numbers), np.int64)
            gone = gone[: multisets_loops.unused_values(self.words, numbers, gone)]
            self._index.drop(gone)
            self.words[gone, HEAD] = NONE
            self._doubtful = []
        count = self._index.capacity
        if count <= MANY * len(self) + SPARE_VALUES:
            return None
        alive = np.flatnonzero(self.words[:count, :HEAD].any(axis=1))
        self._index.keep(alive)
        self.words = self.words[alive]
        moved = np.full(count, NONE)
        moved[alive] = np.arange(len(alive))
        return moved


def _check_comparable(field: pa.Field) -> None:
    try:
        check_key_type(field.type)
    except DeclarationError as error:
        message = f'rows with the column "{field.name}", a {field.type}, cannot be compared'
        raise DeclarationError(message, "leave it out, or select its atomic parts") from error
