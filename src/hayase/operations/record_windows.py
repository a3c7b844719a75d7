"""Windows of an operation: by count or by time, per queue or per key, tumbling or sliding, over records in order.

Records arrive in (time, queue, offset) order, in steps from one clock to the next. A window by count has the records `k
* slide` to before `k * slide + size` of its group, and is complete with its last record. A window by time has those
with `k * slide <= time < k * slide + size`, if there are any, and is complete when the clock reaches its end. Its
`instant` is the time of its last record, or the last instant before its end: always within the step that completes it.
Windows are emitted by instant; at the same instant by their last record, or by their first.

Windows by count may also use arrival order: then a step has whatever arrived, each queue in its own order, and the
clock does not matter. The instant of a window is still the time of its last record, which need not be its latest.
Windows are emitted as they are completed; within a step, queues alternate by time as far as their own order permits.

The output depends only on the records (with arrival order: on the order within each queue), not on the steps. What is
held back is state: rows of `held_schema`, in one section. A window by count writes a tombstone for a written row that
is no longer needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError, suggestion
from hayase.core.keys import check_atomic_key
from hayase.core.stages import OFFSET, TIME, Tuples
from hayase.core.times import duration_text

__all__ = ["GONE", "HELD", "QUEUE", "Complete", "WindowSpec", "Windows", "held_schema", "windows_of"]

HELD = "held"
"""The only section of the state."""
QUEUE = "__queue"
"""Column of held rows: the number of the input that a record came from."""
GONE = "__gone"
"""Column of state: whether the row is a tombstone, which says that a record is no longer held."""


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Windows of `size` records or microseconds, one starting every `slide`; tumbling if these are equal.

    Each group has windows of its own: records with equal values in the columns `by` and, if windows are `per_queue`, of
    one queue. Windows `by_arrival` take records in log order instead of time order.
    """

    unit: str
    size: int
    slide: int
    by: tuple[str, ...] = ()
    per_queue: bool = True
    by_arrival: bool = False

    def __post_init__(self) -> None:
        if self.unit not in ("count", "time"):
            raise DeclarationError(f'no window goes by "{self.unit}"', "a window goes by count or by time")
        if self.by_arrival and self.unit == "time":
            raise DeclarationError(
                "a window by time cannot take records as they come", "let it go by time, or by count"
            )
        if self.size < 1 or self.slide < 1:
            raise DeclarationError("a window of nothing", "give a size and a slide of at least 1")
        if self.slide > self.size:
            size, slide = (
                duration_text(extent) if self.unit == "time" else f"{extent}" for extent in (self.size, self.slide)
            )
            raise DeclarationError(
                f"a window of {size} that slides by {slide} leaves records out", "slide by the size or less"
            )

    @property
    def tumbling(self) -> bool:
        """Whether every record is in exactly one window."""
        return self.size == self.slide

    def check(self, schema: pa.Schema) -> None:
        """Raise DeclarationError if a key column does not exist or its type cannot be a key."""
        for name in self.by:
            if name not in schema.names:
                raise DeclarationError(f'unknown key column "{name}"', suggestion(name, schema.names))
            check_atomic_key(schema.field(name).type)


def held_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of records as windows hold them."""
    head = [pa.field(QUEUE, pa.int32()), pa.field(TIME, pa.int64()), pa.field(OFFSET, pa.int64())]
    return pa.schema([*head, *(field.with_nullable(True) for field in schema)])


@dataclass(frozen=True, slots=True)
class Complete:
    """Windows that a step completes: window i has `rows[starts[i]:stops[i]]`, oldest first, and its instant.

    `arrived[r]` is the position of row r in the batch of its queue, -1 if it arrived in an earlier step. `state` is the
    change of the held rows.
    """

    rows: pa.RecordBatch
    starts: np.ndarray
    stops: np.ndarray
    instants: np.ndarray
    arrived: np.ndarray
    state: Sequence[Tuples] = ()


class Windows(Protocol):
    """The windows of one bucket."""

    def advance(self, inputs: Sequence[pa.RecordBatch], since: int, clock: int) -> Complete:
        """Take the records of a step, one batch per queue in (time, offset) or arrival order, and return the windows it
        completes."""

    def restore(self, rows: pa.RecordBatch) -> None:
        """Take in state that was written."""

    def live(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of written state that are still held."""

    def __len__(self) -> int:
        """Return how many rows are held."""


def windows_of(spec: WindowSpec, schema: pa.Schema) -> Windows:
    """Return the windows for records with this schema, with no rows held."""
    from hayase.operations.count_windows import CountWindows, Singles
    from hayase.operations.time_windows import TimeWindows

    spec.check(schema)
    if spec.unit == "time":
        return TimeWindows(spec, schema)
    return CountWindows(spec, schema) if spec.size > 1 else Singles(spec, schema)
