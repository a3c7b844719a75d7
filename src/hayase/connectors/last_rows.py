"""The last row of each key of a relation, for sources that learn the key of a row that changes and not the row.

The rows come from the stream itself: whoever is killed reads them there again, so there is no second memory that could differ.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from hayase.core.errors import OffsetGone
from hayase.streams.event_time import event_times
from hayase.streams.log import StreamLog

__all__ = ["LastRows", "LoggedChange", "logged_changes"]

Key = TypeVar("Key", bound=Hashable)
Row = tuple[Any, ...]


class LoggedChange(NamedTuple):
    """A change of a relation as its stream has it: whether the row is added, its values, and its event time in microseconds."""

    added: bool
    row: Row
    time: int


def logged_changes(
    log: StreamLog, first: int, values: Callable[[pa.RecordBatch], Sequence[Row]], hint: str
) -> Iterator[LoggedChange]:
    """Yield the changes from an offset on, in log order; `values` takes the rows apart. OffsetGone, with the hint, if retention
    has removed records: without them the rows are not known."""
    index, sign = log.index(), log.declaration.changes
    if index.start:
        name = log.declaration.name
        message = (
            f'retention has removed records of stream "{name}", by which its source knows the rows that it has sent'
        )
        raise OffsetGone(name, f"{message}; {hint}")
    for piece in log.read(first, index.next):
        signs, times = piece.rows.column(sign).to_pylist(), event_times(piece.rows, log.declaration)
        for added, row, time in zip(signs, values(piece.rows), times.tolist()):
            yield LoggedChange(added == "+", row, time)


class LastRows(dict[Key, Row]):
    """The last row of each key. A key without a row is not in it."""

    def apply(self, key: Key, added: bool, row: Row) -> None:
        """Take a logged change. A row that is removed after another one took its key leaves that other one."""
        if added:
            self[key] = row
        elif key in self and _is_same(self[key], row):
            del self[key]


def _is_same(one: Row, other: Row) -> bool:
    """Whether two rows are equal; NaN equals itself, also inside lists."""
    return one == other or repr(one) == repr(other)
