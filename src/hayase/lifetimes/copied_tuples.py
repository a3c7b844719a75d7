"""The state of operators that keep the tuples of their input, and show copies of them in their result."""

from __future__ import annotations

import pyarrow as pa

from hayase.lifetimes.state_registers import Registers
from hayase.lifetimes.tuples import TupleStore

__all__ = ["CopiedTuples"]


class CopiedTuples:
    """Base of such operators: tuples, copies, and registers, each in a section of its own."""

    _tuples: TupleStore
    _copies: TupleStore
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
        return self._tuples if section == self._tuples.section else self._copies
