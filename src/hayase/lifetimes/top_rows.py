"""The operator for ORDER BY with LIMIT and OFFSET, DISTINCT ON and top-N per group: the first rows of each group.

- Cost: logarithmic in the live tuples of the group per start and end, on average; constant for most tuples that are not shown.
  Memory is proportional to the live tuples; if none ever ends, to those that are shown or skipped: the others never come back.
- All ends and starts of an instant are applied before the result is compared, so a row that is shown before and after it is
  not split.
- The end of a row is open when it appears, because a later one may displace it.

The order is total: rows that are equal in all columns of the order are ordered by their ids. So which rows are shown follows from
the live tuples alone; the state has them, and the ids under which they are shown. A kernel whose result these rows are reads the
values of those that end from here (`ShownRows`), so that it need not keep and write them a second time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.keys import KeyIndex, encode, hashes
from hayase.core.scratch import scratch
from hayase.lifetimes.copied_tuples import CopiedTuples, Copies
from hayase.lifetimes.plans import Top
from hayase.lifetimes.relations import Delta, Span, Step
from hayase.lifetimes.slot_columns import grown
from hayase.lifetimes.slot_keys import SlotKeys
from hayase.lifetimes.state_registers import Registers
from hayase.lifetimes.treaps import HEAD, NONE, ROOT
from hayase.lifetimes.tuples import TupleStore

__all__ = ["ShownRows", "TopOperator"]

UNTOUCHED = -2
ZONE, COPY = range(6, 8)
"""The words of a tuple after those of a node of a treap (or heap): its zone, and the copy that shows it."""
SKIPPED_LAST, SHOWN_LAST, SKIPPED, SHOWN, HEAP = range(2, 7)
"""The words of a group after those of its treap: the last tuples of two zones, how many these have, and the heap of the rest."""
SKIP, SHOW, TIE, REST = range(4)
STARTED, ENDED, OPENED, CLOSED, NOW, CHAIN, DROPPED = range(7)
"""The positions of a sweep: in its four lists, its instant, the first of the tuples touched at that instant, and the first of those
that can be dropped."""

_NEXT = "next"
_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class ShownRows:
    """Rows that were shown in earlier steps, and since when."""

    rows: pa.RecordBatch
    start: np.ndarray


class TopOperator(CopiedTuples):
    """The operator of `plans.Top` (`relations.Operator`). With `tells_closed`, `closed` has the rows that its last step closed."""

    def __init__(self, node: Top) -> None:
        self.tells_closed = False
        self.closed: ShownRows | None = None
        self.schema = node.schema
        self._node = node
        self._limits = _NO_LIMIT if node.limit is None else node.limit, node.offset, node.ties, node.lasting
        self._tuples = TupleStore(node.child.schema, "tuples")
        self._keys = SlotKeys(node.order, node.listed)
        self._nodes = np.empty((0, 8), np.int64)
        self._group_of = self._touched = np.empty(0, np.int64)
        self._groups = _Groups(node.keys)
        self._copies = Copies(self._tuples)
        self._registers = Registers((_NEXT,), (0,))

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        """Process a step and return the rows that come among the first ones and that leave them."""
        from hayase.lifetimes import top_rows_loops

        (child,) = inputs
        self._settle(span.since)
        passed = self._tuples.advance(child.rows, child, span.clock)
        self._index(passed.slots, child.rows)
        state = _beginning()
        opened, closed = (
            scratch(3, 2 * (len(child) + len(passed.ends)) + 1),
            scratch(2, 2 * len(passed.ends) + len(child) + 1),
        )
        earlier = self._copies.store.capacity
        while not top_rows_loops.sweep(
            *self._arrays(), *self._limits, self._touched, state,
            child.start, passed.slots, passed.ends, passed.ended, earlier, opened, closed,
        ):  # fmt: skip
            opened, closed = _doubled(opened), _doubled(closed)
        slots, start, end = opened[:, : state[OPENED]]
        ended, closed_end = closed[:, : state[CLOSED]]
        first = self._registers[_NEXT]
        self._registers[_NEXT] = first + len(slots)
        ids = np.arange(first, first + len(slots))
        shown = self._copies.store
        delta = Delta(self._tuples.take(slots), start, end, ids, shown.id[ended], closed_end)
        if self.tells_closed:
            self.closed = ShownRows(self._tuples.take(self._copies.tuples_of(ended)), shown.start[ended])
        self._copies.keep(delta, slots, self._nodes[:, COPY], span.clock)
        self._release(passed.ended)
        self._drop(state, span.clock)
        changes = [*self._tuples.changes(), *self._copies.store.changes(), *self._registers.changes(span.version)]
        return Step(delta, changes)

    def _settle(self, since: int) -> None:
        """Begin a step: index what was restored, and remove what ended meanwhile."""
        from hayase.lifetimes import top_rows_loops

        added, removed = self._tuples.settle(since)
        if len(added) or len(removed):
            self._index(added, self._tuples.take(added))
            top_rows_loops.place(*self._arrays(), *self._limits, self._touched, _beginning(), removed, added)
        self._copies.settle(since, self._nodes[:, COPY], self._shown_slots)
        self._release(removed)

    def _shown_slots(self) -> np.ndarray:
        zones = self._nodes[: self._tuples.capacity, ZONE]
        return np.flatnonzero((zones == SHOW) | (zones == TIE))

    def _drop(self, state: np.ndarray, clock: int) -> None:
        """Remove the tuples that a sweep found to be never shown again, as if they ended in its step."""
        from hayase.lifetimes import top_rows_loops

        if state[DROPPED] == NONE:
            return
        slots = np.empty(len(self._nodes), np.int64)
        slots = slots[: top_rows_loops.dropped_slots(self._nodes, state[DROPPED], slots)]
        self._tuples.close(self._tuples.id[slots], np.full(len(slots), clock - 1))
        self._release(self._tuples.expire(clock))

    def _index(self, slots: np.ndarray, rows: pa.RecordBatch) -> None:
        """Note the groups and keys of tuples that are about to enter their treaps."""
        if not len(slots):
            return
        known, capacity = len(self._touched), self._tuples.capacity
        for name in ("_nodes", "_group_of", "_touched"):
            setattr(self, name, grown(getattr(self, name), capacity))
        self._touched[known:] = UNTOUCHED
        self._nodes[known:, ZONE] = REST
        self._nodes[known:, COPY] = NONE
        groups = self._group_of[slots] = self._groups.numbers(rows)
        changed, heads = self._keys.put(slots, groups, rows, self._tuples.take, capacity)
        self._nodes[changed, HEAD] = heads

    def _release(self, slots: np.ndarray) -> None:
        """Free tuples that have left their treaps, and groups without tuples."""
        if len(slots):
            self._groups.tidy(self._group_of[slots])
            self._keys.release(slots)
            self._tuples.release(slots)

    def _arrays(self) -> tuple[np.ndarray, ...]:
        """Return what the loops take: tuples and groups, and the keys and ids of tuples."""
        return self._nodes, self._groups.words, self._group_of, *self._keys.parts, self._tuples.id


class _Groups:
    """Groups of tuples with equal keys, numbered, with seven words each. NULL equals NULL. Without keys all have number 0."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.words = np.empty((0, 7), np.int64)
        self._keys = keys
        self._index = KeyIndex()

    def numbers(self, rows: pa.RecordBatch) -> np.ndarray:
        """Return the groups of rows."""
        if self._keys:
            encoded = encode([rows.column(name) for name in self._keys], rows.num_rows)
            numbers = self._index.slots(encoded, hashes(encoded))
        else:
            numbers = np.zeros(rows.num_rows, np.int64)
        known = len(self.words)
        self.words = grown(self.words, max(self._index.capacity, 1))
        self.words[known:] = (NONE, NONE, NONE, NONE, 0, 0, NONE)
        return numbers

    def tidy(self, numbers: np.ndarray) -> None:
        """Drop those of some groups that have no tuples any more."""
        if self._keys:
            self._index.drop(np.unique(numbers[self.words[numbers, ROOT] == NONE]))


def _beginning() -> np.ndarray:
    state = np.zeros(7, np.int64)
    state[CHAIN] = state[DROPPED] = NONE
    return state


def _doubled(lines: np.ndarray) -> np.ndarray:
    larger = np.empty((lines.shape[0], 2 * lines.shape[1]), np.int64)
    larger[:, : lines.shape[1]] = lines
    return larger
