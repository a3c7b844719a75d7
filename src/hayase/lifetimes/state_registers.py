"""Registers: a few named numbers of an operator's state, stored as one row of which the latest version counts.

Also `check_section`, with which operators check the columns of restored state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hayase.core.errors import DamagedState
from hayase.core.keys import raw_values
from hayase.core.stages import Tuples

__all__ = ["Registers", "check_section"]


def check_section(section: str, rows: pa.RecordBatch, wanted: pa.Schema) -> None:
    """Raise DamagedState unless the rows of a state section have the names and types of `wanted`."""
    if rows.schema.names != wanted.names or rows.schema.types != wanted.types:
        raise DamagedState(
            f'the state section "{section}" has the columns {", ".join(rows.schema.names)} '
            f"instead of {', '.join(wanted.names)}",
            "reset the stage",
        )


class Registers:
    """Named int64 values, read and set as in a dict.

    >>> registers = Registers(("next",), (0,))
    >>> registers["next"] += 5
    >>> [each.rows.to_pylist() for each in registers.changes(version=1)], registers.changes(version=2)
    ([[{'next': 5}]], [])
    """

    def __init__(self, names: Sequence[str], initial: Sequence[int], section: str = "registers") -> None:
        self.section = section
        self._values = dict(zip(names, initial, strict=True))
        self._kept = dict(self._values)
        self._schema = pa.schema([pa.field(name, pa.int64()) for name in names])
        self._written = self._latest = 0

    def __getitem__(self, name: str) -> int:
        return self._values[name]

    def __setitem__(self, name: str, value: int) -> None:
        assert name in self._values, name
        self._values[name] = int(value)

    def changes(self, version: int) -> list[Tuples]:
        """Return the row to write at the end of a step; nothing if no value has changed."""
        self._latest = version
        if self._values == self._kept:
            return []
        self._kept = dict(self._values)
        self._written = version
        return [Tuples(self.section, self._row())]

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Load the last row, unless a later version is known."""
        if rows.schema.names != self._schema.names:
            raise DamagedState(
                f'the state section "{section}" has the columns {", ".join(rows.schema.names)} '
                f"instead of {', '.join(self._schema.names)}",
                "reset the stage",
            )
        if rows.num_rows and version >= self._written:
            self._values = {name: int(raw_values(rows.column(name), np.int64)[-1]) for name in self._schema.names}
            self._kept = dict(self._values)
            self._written = version
        self._latest = max(self._latest, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the current values if they were last written at or before `version`; they count as written anew from then on."""
        if not rows.num_rows or self._written > version:
            return rows.slice(0, 0)
        self._written = self._latest
        return self._row()

    def size(self, section: str) -> int:
        """Return 1 once something was written, else 0."""
        return int(self._written > 0)

    def _row(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([self._kept], schema=self._schema)
