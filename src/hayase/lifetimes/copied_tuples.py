"""The state of operators that keep the tuples of their input, and show copies of them in their result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from hayase.core.keys import raw_values
from hayase.lifetimes.relations import OPEN, Delta
from hayase.lifetimes.slot_columns import grown
from hayase.lifetimes.state_registers import Registers
from hayase.lifetimes.tuples import TupleStore

__all__ = ["CopiedTuples", "Copies"]

_TUPLE = "__tuple"
_NONE = -1


class Copies:
    """The copies that show the tuples of a store, each with the id of its tuple and the `values` that the operator adds.

    The operator keeps, by the slot of a tuple, the slot of the copy that shows it, or -1; methods take that array as `copy_of`.
    """

    def __init__(self, tuples: TupleStore, values: pa.Schema | None = None) -> None:
        self.store = TupleStore(pa.schema([pa.field(_TUPLE, pa.int64()), *(values or ())]), "shown")
        self._tuples = tuples
        self._owners = np.empty(0, np.int64)
        """The slot of the tuple that a copy shows, by the copy's slot."""

    def settle(self, since: int, copy_of: np.ndarray, candidates: Callable[[], np.ndarray]) -> None:
        """Begin a step: connect restored copies with their tuples, which are in slots of `candidates`, and drop ended ones."""
        shown, hidden = self.store.settle(since)
        if len(hidden):
            owners = self._owners[hidden]
            copy_of[owners[copy_of[owners] == hidden]] = _NONE
            self.store.release(hidden)
        if len(shown):
            slots = candidates()
            slots = slots[np.argsort(self._tuples.id[slots])]
            tuples = raw_values(self.store.take(shown).column(0), np.int64)
            self._connect(slots[np.searchsorted(self._tuples.id[slots], tuples)], shown, copy_of)

    def tuples_of(self, copies: np.ndarray) -> np.ndarray:
        """Return the slots of the tuples that copies show."""
        return self._owners[copies]

    def keep(
        self, delta: Delta, slots: np.ndarray, copy_of: np.ndarray, clock: int, values: Sequence[pa.Array] = ()
    ) -> None:
        """End a step: remove the copies that it closed, and store those that it leaves open, of tuples in these slots."""
        self.store.close(delta.closed, delta.closed_end)
        self.store.release(self.store.expire(clock))
        still = np.flatnonzero(delta.end == OPEN)
        if len(still):
            columns = [pa.array(self._tuples.id[slots[still]]), *(column.take(pa.array(still)) for column in values)]
            rows = pa.RecordBatch.from_arrays(columns, schema=self.store.schema)
            copies = self.store.add(rows, delta.start[still], delta.end[still], delta.id[still])
            self._connect(slots[still], copies, copy_of)

    def _connect(self, slots: np.ndarray, copies: np.ndarray, copy_of: np.ndarray) -> None:
        copy_of[slots] = copies
        self._owners = grown(self._owners, self.store.capacity)
        self._owners[copies] = slots


class CopiedTuples:
    """Base of such operators: tuples, copies, and registers, each in a section of its own."""

    _tuples: TupleStore
    _copies: Copies
    _registers: Registers

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Load tuples, or what is shown of them; they are used from the next step on."""
        if section == self._registers.section:
            self._registers.restore(section, rows, version)
        else:
            self._store(section).restore(rows, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the rows of live tuples."""
        if section == self._registers.section:
            return self._registers.live(section, rows, version)
        return self._store(section).live(rows, version)

    def size(self, section: str) -> int:
        """Return the number of live tuples of a section."""
        if section == self._registers.section:
            return self._registers.size(section)
        return self._store(section).size()

    def _store(self, section: str) -> TupleStore:
        return self._tuples if section == self._tuples.section else self._copies.store
