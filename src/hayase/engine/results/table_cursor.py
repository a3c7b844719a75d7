"""The position of an output of a table: which state of the table its target has."""

from __future__ import annotations

from hayase.core.data_classes import dataclass
from hayase.core.errors import InvalidCursor
from hayase.tables.changed_keys import TableState

__all__ = ["TableCursor"]


@dataclass(frozen=True, slots=True)
class TableCursor:
    """Which state of a table a target has. `definition` is the version under which the batch ran, `after` the last key that was
    written while all rows go out; None behind that."""

    state: TableState
    definition: int
    columns: int
    after: bytes | None = None

    def __str__(self) -> str:
        generation, marker, loads = self.state
        after = "-" if self.after is None else self.after.hex()
        return f"table:{generation}:{marker.hex()}:{loads}:{self.definition}:{self.columns}:{after}"

    @classmethod
    def from_text(cls, text: str) -> TableCursor:
        """Parse the text that `str` gives.

        >>> cursor = TableCursor(TableState("3", b"main/7", 0), 3, 2, b"")
        >>> TableCursor.from_text(str(cursor)) == cursor
        True
        """
        try:
            _, generation, marker, loads, definition, columns, after = text.split(":")
            state = TableState(generation, bytes.fromhex(marker), int(loads))
            return cls(state, int(definition), int(columns), None if after == "-" else bytes.fromhex(after))
        except ValueError:
            raise InvalidCursor(
                "the target has a position of something else than a table; give the output another name"
            ) from None
