"""The contract between the engine and the stages that it runs: inputs with map sides and keys, and a kernel.

The engine moves Arrow batches and files; what a stage computes is behind these types. Nothing here depends on Spark. A stage
must be a pure function of its input: a batch that is run again gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Protocol

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration, TableDeclaration
from hayase.core.reasons import Reason

__all__ = [
    "MAIN",
    "OFFSET",
    "OPERATIONS",
    "TIME",
    "FailedRows",
    "Input",
    "Kernel",
    "Lookup",
    "MapSide",
    "Mapped",
    "Outcome",
    "Refusals",
    "SharedKernels",
    "SharedScan",
    "Stage",
    "Stateless",
    "Tuples",
    "build_name",
    "is_build",
    "public_name",
    "query_of",
]

MAIN = "main"
"""The lane of all stages except operations."""
OPERATIONS = "operations"
"""The lane of operations, whose functions may be slow."""
TIME = "__time"
"""Column of every mapped batch: event time, int64 microseconds."""
OFFSET = "__offset"
"""Column of every mapped batch: offset of the record in its stream, int64."""


@dataclass(frozen=True, slots=True)
class Refusals:
    """Rows that a stage cannot process: their positions in the batch that it was given, and the reason for each.

    `attempts` says how often each row was tried; empty if once.
    """

    rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    reasons: Sequence[Reason] = ()
    attempts: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Mapped:
    """The output of a map side for a batch. `input_rows[i]` is the input row of output row i; refused rows have no output."""

    rows: pa.RecordBatch
    input_rows: np.ndarray
    refused: Refusals = field(default_factory=Refusals)


class MapSide(Protocol):
    """The stateless part of an input: a function of single records, Arrow batches in and out."""

    def __call__(self, batch: pa.RecordBatch) -> Mapped: ...


@dataclass(frozen=True, slots=True)
class Tuples:
    """State tuples of one section, to be written. From the event time `until` on, none of them matters.

    A batch may be processed in several steps. `whole` tuples replace all tuples that earlier steps of the batch gave for the
    section, so that those need not be written.
    """

    section: str
    rows: pa.RecordBatch
    until: int | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class FailedRows:
    """Rows that arose inside a kernel and could not be processed, and the reason for each.

    `ids` are the ids of the tuples, if the operator knows them: a tuple that stands for one record is refused as that record.
    Rows that are records of an earlier batch have their `streams` and `offsets`; or an `input` and, as ids, the offsets there.
    `attempts` says how often each row was tried; empty if once.
    """

    rows: pa.RecordBatch
    reasons: Sequence[Reason]
    ids: np.ndarray | None = None
    streams: Sequence[str] = ()
    offsets: Sequence[int] = ()
    attempts: Sequence[int] = ()
    input: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a kernel for its inputs: output rows in time order, refusals, and the change of its state.

    `rows` has the columns of the stage's output stream. `refused[i]` refers to the batch of input i; `spoiled` are rows that do
    not stand for a single record, such as a pair of a join. `seconds` is how long the work for each input took, if that was
    measured. `places`, if given, are the places of the rows among those of equal times in all buckets.
    """

    rows: pa.RecordBatch
    refused: Sequence[Refusals] = ()
    state: Sequence[Tuples] = ()
    spoiled: Sequence[FailedRows] = ()
    seconds: Sequence[float] = ()
    places: np.ndarray | None = None


class Kernel(Protocol):
    """The stateful part of a stage, for one bucket. It is built empty, restored from its tuples, then fed batch by batch.

    The tuples that `process` returned, passed to `restore` in the same order, rebuild the kernel. Versions number the batches
    of the lane and only grow.
    """

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Restore tuples that were written at `version` or, if segments were joined, up to it. Repeating is harmless."""

    def process(self, inputs: Sequence[pa.RecordBatch], since: int, clock: int, version: int) -> Outcome:
        """Process one batch per input, in (time, offset) order. They hold all records with `since <= time < clock`, so the
        results of these instants are final. `since` is the clock of the last call, which another worker may have made."""

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Of tuples written up to `version`, return those that no later tuple replaces, as they are now; they will be
        rewritten."""

    def size(self, section: str) -> int:
        """The number of live tuples of a section."""


class Stateless:
    """The state methods of a kernel or operator that keeps no state."""

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Do nothing."""

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return no tuples."""
        return rows.slice(0, 0)

    def size(self, section: str) -> int:
        """Return 0."""
        return 0


@dataclass(frozen=True, slots=True)
class Input:
    """A stream as a stage reads it: the map side, the schema of its output, and the columns whose hash chooses the bucket
    (`key`; OFFSET if any bucket will do).

    - `dealt`: rows go to the buckets in turn, whatever the key, so that each gets as many: for stages without state.
    - `broadcast`: every row goes to every bucket, and the records do not count as read.
    - `horizon` (microseconds): records that are older than the greatest event time before them by more than this are refused.
    - `numbered`: the map side gets a column OFFSET too.
    - `bucket`: all rows go to this bucket (modulo the number of buckets), whatever the key.
    - `silent`: the input only reports when records came, and they do not count as read.
    """

    stream: str
    map_side: MapSide
    schema: pa.Schema
    key: tuple[str, ...] = ()
    broadcast: bool = False
    horizon: int | None = None
    numbered: bool = False
    bucket: int | None = None
    silent: bool = False
    dealt: bool = False

    @property
    def counts(self) -> bool:
        """Whether the records of this input count as read."""
        return not (self.broadcast or self.silent)


class Lookup(Protocol):
    """A table as queries read it: the rows of given keys, as of the beginning of the batch."""

    @property
    def table(self) -> TableDeclaration: ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table, without its key."""

    def find(
        self, keys: pa.RecordBatch, columns: Sequence[str] | None = None
    ) -> tuple[np.ndarray, pa.RecordBatch, Refusals]:
        """Look up keys, one per row, with the parts of the key as columns. Returns the positions of the keys that the table
        has, ascending, their rows with at least these columns (all if None), and refusals of the keys whose rows have a value
        in these columns that does not fit its Arrow type; these are not among the positions. A key with a null has no row."""


class SharedKernels(Protocol):
    """Kernels of several stages that compute common results once. Each stage has its own state and its own output."""

    @property
    def kernels(self) -> Sequence[Kernel]:
        """One kernel for each stage; each is restored by itself."""

    def process(
        self, inputs: Sequence[Sequence[pa.RecordBatch]], since: int, clock: int, version: int
    ) -> Sequence[Outcome]:
        """`Kernel.process` for every kernel, over its own inputs, which are columns of the same records."""


@dataclass(frozen=True, slots=True)
class SharedScan:
    """How a stage runs together with other stages of its `group` while their positions are equal.

    All stages of a group read the same records by the same key, and use the same name for a column. Which of them are there
    makes no difference to the results of any of them.
    """

    group: str
    merge_inputs: Callable[[Sequence[Input]], Input]
    """Merges the same input of several stages into one with the columns of all."""
    share_kernels: Callable[[Sequence[Stage], int, int], SharedKernels]
    """Builds the kernels of several stages. Called with the stages, the bucket and the number of buckets."""


def query_of(stage: str) -> str:
    """The declared query to which a stage belongs, by the name of the stage: the name itself, or `name` of an internal stage
    `_name_1`.

    >>> query_of("spend"), query_of("_spend_2"), query_of("_spend_2@7")
    ('spend', 'spend', 'spend')
    """
    name = public_name(stage)
    return name.rpartition("_")[0][1:] if name.startswith("_") else name


def build_name(stage: str, generation: int) -> str:
    """The name under which a stage, or its output, is built beside the version that it will replace; no declared name has "@".

    >>> build_name("spend", 7), public_name("spend@7"), is_build("spend@7"), is_build("spend")
    ('spend@7', 'spend', True, False)
    """
    return f"{stage}@{generation}"


def public_name(name: str) -> str:
    """The name of a stage or stream without that of a build."""
    return name.partition("@")[0]


def is_build(name: str) -> bool:
    """Whether a stage or stream is one of a build."""
    return "@" in name


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage as the engine runs it.

    Without a kernel, the output is that of the map side, in the order of the input's log. With one, the kernel of each bucket
    gets its inputs in (time, stream, offset) order. `refuses_late` tells whether late records are refused. A stage that fires
    (`every`, microseconds) takes all records that are there at multiples of the interval, or whenever there are some if it is
    0: its kernel gets them at once, in the order of the logs, and nothing is late. The output is a stream or a table; for a
    table, the map sides give its entries (`hayase.tables.entries`).
    """

    name: str
    inputs: tuple[Input, ...]
    output: StreamDeclaration | TableDeclaration
    fingerprint: str
    kernel: Callable[[int, int], Kernel] | None = None
    """Called with the bucket and the number of buckets."""
    shared_scan: SharedScan | None = None
    every: int | None = None
    tables_read: tuple[str, ...] = ()
    """Tables that its kernel reads: the stage waits until they have ingested what it has caused in them."""
    lane: str = MAIN
    """The lane that runs it: stages that may take long have their own."""
    state_digest: str | None = None
    """A digest of what its state depends on, if that is less than the fingerprint: a stage with the same digest goes on with
    its state although it has changed otherwise. Empty for a stage without state."""
    closings: tuple[tuple[int, int, int, int], ...] = ()
    """Windows with bounds over its inputs, as (input, step, offset, length): the last window that contains the time t ends
    `length` after the last multiple of `step` plus `offset` up to t. Once its inputs are finished, the stage goes on until the
    last of these windows has ended."""
    windowed: bool = False
    """Whether the query has a window, so that a record before the clock is late even if the stage has no kernel."""

    @property
    def refuses_late(self) -> bool:
        """Whether a late record is a dead letter of this stage."""
        return self.windowed or (self.kernel is not None and self.every is None)

    @property
    def stream(self) -> StreamDeclaration:
        """The output of a stage that writes a stream."""
        assert isinstance(self.output, StreamDeclaration)
        return self.output

    @property
    def query(self) -> str:
        """The declared query to which the stage belongs (`query_of`)."""
        return query_of(self.name)
