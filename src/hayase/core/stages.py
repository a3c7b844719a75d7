"""The contract between the engine and what runs in it: a stage is a map side, a key and a kernel.

The engine moves Arrow batches and files; what a stage computes is behind these few types. Nothing here knows Spark, and a
stage must be a pure function of its input: a batch that is run again gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from hayase.core.declarations import StreamDeclaration, TableDeclaration

__all__ = [
    "MAIN",
    "OFFSET",
    "OPERATIONS",
    "TIME",
    "Input",
    "Kernel",
    "Lookup",
    "MapSide",
    "Mapped",
    "Outcome",
    "Refusals",
    "SharedKernels",
    "SharedScan",
    "Spoiled",
    "Stage",
    "Stateless",
    "Tuples",
    "query_of",
]

MAIN = "main"
"""The lane that runs everything but operations."""
OPERATIONS = "operations"
"""The lane of operations, whose functions may be slow."""
TIME = "__time"
"""Column of every mapped batch: event time, int64 microseconds."""
OFFSET = "__offset"
"""Column of every mapped batch: offset of the record in its stream, int64."""


@dataclass(frozen=True, slots=True)
class Refusals:
    """Rows that a stage cannot handle: their positions in the batch at hand, and for each the reason.

    `attempts` says how often each was tried, if not once.
    """

    rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    reasons: Sequence[str] = ()
    attempts: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Mapped:
    """What a map side made of a batch. `origin[i]` is the input row that `rows[i]` came from; refused rows have no output."""

    rows: pa.RecordBatch
    origin: np.ndarray
    refused: Refusals = field(default_factory=Refusals)


class MapSide(Protocol):
    """Stateless, record by record: Arrow in, Arrow out."""

    def __call__(self, batch: pa.RecordBatch) -> Mapped: ...


@dataclass(frozen=True, slots=True)
class Tuples:
    """State tuples to be written, by section. `until`: the event time from which none of them matters any more.

    A batch may be processed in several steps. Tuples that are `whole` are all that is left of those of the section that the
    batch has brought so far: what earlier steps of it gave need not be written.
    """

    section: str
    rows: pa.RecordBatch
    until: int | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Spoiled:
    """Rows that came up inside a kernel and could not be gone on with, and for each the reason.

    `ids` are the names of the tuples, if the operator knows them: a tuple that is one record's is refused as that record.
    Rows that are records, which came in an earlier batch, have their `streams` and `offsets`; or an `input` and, as ids, the
    offsets there. `attempts` says how often each was tried, if not once.
    """

    rows: pa.RecordBatch
    reasons: Sequence[str]
    ids: np.ndarray | None = None
    streams: Sequence[str] = ()
    offsets: Sequence[int] = ()
    attempts: Sequence[int] = ()
    input: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a kernel made of its inputs: output rows in time order, what it could not take, the change of its state.

    `rows` has the columns of the stage's output stream. `refused[i]` speaks of input i's batch; `spoiled` are rows that
    are no record's alone, such as a pair of a join. `seconds` is how long the work for each input took, if that is known.
    """

    rows: pa.RecordBatch
    refused: Sequence[Refusals] = ()
    state: Sequence[Tuples] = ()
    spoiled: Sequence[Spoiled] = ()
    seconds: Sequence[float] = ()


class Kernel(Protocol):
    """The stateful half of a stage, for one bucket. Built empty, restored from its tuples, then fed batch by batch.

    The tuples that `process` returned, given to `restore` in the same order, rebuild the kernel. Versions number the
    batches of the lane and only grow.
    """

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Take up tuples that were written at `version` or, after a merge of segments, up to it. Repeating is harmless."""

    def process(self, inputs: Sequence[pa.RecordBatch], since: int, clock: int, version: int) -> Outcome:
        """One batch per input, in (time, offset) order: all records with `since <= time < clock`, and so the result of
        these instants is final. `since` is the clock of the last call, also if that was another worker's."""

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Of tuples written up to `version`, those that no later tuple replaces, as they are now: they will be rewritten."""

    def size(self, section: str) -> int:
        """How many tuples of a section are alive."""


class Stateless:
    """The part of a kernel that there is nothing to do for where nothing is kept."""

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """There is nothing to take up."""

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Nothing is."""
        return rows.slice(0, 0)

    def size(self, section: str) -> int:
        """Nothing."""
        return 0


@dataclass(frozen=True, slots=True)
class Input:
    """One reading of a stream by a stage: its map side, the schema that gives, and the columns whose hash chooses the
    bucket (also OFFSET, if any will do). A `broadcast` goes to every bucket, and its records do not count as read.

    With a `horizon` (microseconds), records that are older than the greatest event time before them in the log by more
    than that are refused. A map side that wants the records `numbered` gets a column OFFSET too. All records of an input
    that has a `bucket` go there (modulo the number of buckets), whatever the key. Records of a `silent` input, which only
    tells when they came, do not count as read.
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

    @property
    def counts(self) -> bool:
        """Whether its records count as read."""
        return not (self.broadcast or self.silent)


class Lookup(Protocol):
    """A table as queries meet it: the rows of some keys, as the table is when the batch begins."""

    @property
    def table(self) -> TableDeclaration: ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table, without its key."""

    def find(self, keys: pa.RecordBatch) -> tuple[np.ndarray, pa.RecordBatch]:
        """Of keys, a row each with the parts in their order, the positions of those that the table has, ascending, and
        their rows. A key with a null has none."""


class SharedKernels(Protocol):
    """Kernels of several stages that compute once what they have in common. Each has its own state and results."""

    @property
    def kernels(self) -> Sequence[Kernel]:
        """One for each stage, to be restored."""

    def process(
        self, inputs: Sequence[Sequence[pa.RecordBatch]], since: int, clock: int, version: int
    ) -> Sequence[Outcome]:
        """`Kernel.process` for each of them, over its own inputs, which are columns of the same records."""


@dataclass(frozen=True, slots=True)
class SharedScan:
    """How a stage runs together with others of its `group`, while they stand at the same place in the same streams.

    All of a group read the same records, by the same key, and call a column by the same name. Which of them there are
    makes no difference to what any of them gives.
    """

    group: str
    merge_inputs: Callable[[Sequence[Input]], Input]
    """One reading that has the columns of all of these."""
    share_kernels: Callable[[Sequence[Stage], int, int], SharedKernels]
    """Their kernels, for a bucket of so many."""


def query_of(stage: str) -> str:
    """What a stage was declared as, by its name: itself, or the middle of one like `_name_1`, a stage between.

    >>> query_of("spend"), query_of("_spend_2")
    ('spend', 'spend')
    """
    return stage.rpartition("_")[0][1:] if stage.startswith("_") else stage


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage as the engine runs it.

    Without a kernel the output is what the map side gives, in the order of the input's log. With one, each bucket's
    kernel sees its inputs in (time, stream, offset) order, and records later than the slack allows are refused. A stage
    that fires (`every`, microseconds) takes all that is there at multiples of it, with 0 whenever something is there: its
    kernel gets that at once, in the order of the logs, and nothing is late. The output is a stream, or a table: then the
    map sides give its entries (`hayase.tables.entries`).
    """

    name: str
    inputs: tuple[Input, ...]
    output: StreamDeclaration | TableDeclaration
    fingerprint: str
    kernel: Callable[[int, int], Kernel] | None = None
    """Called with the bucket and the number of buckets."""
    shared_scan: SharedScan | None = None
    every: int | None = None
    meets: tuple[str, ...] = ()
    """Tables that its kernel reads: it does not go on while what it caused in them is on its way."""
    lane: str = MAIN
    """Where it runs: what may take long runs apart."""
    remembers: str | None = None
    """What its state depends on, if that is less than the fingerprint: a stage that remembers the same goes on with its state
    when it has changed otherwise. Nothing ("") for one without state."""

    @property
    def stream(self) -> StreamDeclaration:
        """The output, of a stage that writes a stream."""
        assert isinstance(self.output, StreamDeclaration)
        return self.output

    @property
    def query(self) -> str:
        """The declared query that it belongs to: its own name, or the middle of one like `_name_1`, a stage between."""
        return query_of(self.name)
