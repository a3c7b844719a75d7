"""The kernel of an operation: forms windows, calls the function on each in a child process, and returns rows.

A record of this step that fails alone is refused as that record. A record from an earlier step, or a sliding window
that fails, is not a record of the current batch: it is reported as a spoiled row, with the streams and offsets of the
records. The time that the function spent is reported per input.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError, suggestion
from hayase.core.reasons import Reason
from hayase.core.schemas import empty_rows
from hayase.core.stages import OFFSET, FailedRows, Outcome, Refusals
from hayase.operations.arrivals import column
from hayase.operations.attempts import Attempts, Pace, Refusal, WindowResults, try_windows
from hayase.operations.children import Limits, shared_children
from hayase.operations.outcomes import KINDS, Outcomes
from hayase.operations.record_windows import QUEUE, Complete, WindowSpec, windows_of
from hayase.operations.user_functions import OperationFunction
from hayase.streams.row_buffer import ranges

__all__ = ["Caller", "OperationConfig", "OperationKernel", "reason_of"]


class Caller(Protocol):
    """Calls the function on windows of rows; `Children` implements it."""

    def call(self, rows: pa.RecordBatch, starts: np.ndarray, stops: np.ndarray, careful: bool) -> Outcomes: ...

    def renew(self) -> None:
        """Restart the function, so that it loses what it keeps between calls."""


@dataclass(frozen=True, slots=True)
class OperationConfig:
    """An operation: its function and windows, the streams it reads, all with the schema `reads`, and its output.

    The column `time` of the output is the instant of the window, in units of `scale` microseconds; the function returns
    the other columns. A field of that name in its results is dropped.
    """

    name: str
    version: str
    function: OperationFunction
    window: WindowSpec
    queues: tuple[str, ...]
    reads: pa.Schema
    output: pa.Schema
    time: str
    scale: int = 1
    attempts: Attempts = field(default_factory=Attempts)
    limits: Limits = field(default_factory=Limits)
    shown_time: str | None = None
    """The name under which the function knows the column `time`, if it differs."""

    def __post_init__(self) -> None:
        self.window.check(self.reads)
        if self.time not in self.output.names:
            message = f'unknown time column "{self.time}" in the output of operation "{self.name}"'
            raise DeclarationError(message, suggestion(self.time, self.output.names))

    @property
    def writes(self) -> pa.Schema:
        """The schema of the function's results."""
        return pa.schema([field for field in self.output if field.name != self.time])


class OperationKernel:
    """The kernel of one bucket (`hayase.core.stages.Kernel`)."""

    def __init__(
        self,
        config: OperationConfig,
        bucket: int = 0,
        buckets: int = 1,
        caller: Caller | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._config, self._sleep = config, sleep
        self._caller = caller or shared_children(
            config.function, config.reads, config.writes, config.limits, config.shown_time or config.time
        )
        self._windows = windows_of(config.window, config.reads)
        self._pace = Pace()

    def process(self, inputs: Sequence[pa.RecordBatch], since: int, clock: int, version: int) -> Outcome:
        """Call the function on all windows that this step completes."""
        complete = self._windows.advance(inputs, since, clock)
        rows = complete.rows.select(self._config.reads.names)
        if not len(complete.starts):
            return Outcome(empty_rows(self._config.output), (), complete.state)
        tried = try_windows(
            partial(self._caller.call, rows),
            complete.starts,
            complete.stops,
            self._config.attempts,
            self._config.window.tumbling,
            self._sleep,
            self._caller.renew,
            self._pace,
        )
        refused, spoiled = self._refused(complete, tried.refusals, len(inputs))
        seconds = _seconds(complete, tried, len(inputs))
        return Outcome(self._output(complete, tried), refused, complete.state, spoiled, seconds)

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Take in the held rows from written state."""
        self._windows.restore(rows)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the rows of written state that windows still hold."""
        return self._windows.live(rows)

    def size(self, section: str) -> int:
        """Return how many rows windows hold."""
        return len(self._windows)

    def _output(self, complete: Complete, tried: WindowResults) -> pa.RecordBatch:
        """Return the rows of the output, in window order."""
        schema = self._config.output
        instants = complete.instants[tried.window]
        kind = schema.field(self._config.time).type
        times = pa.array(instants if self._config.scale == 1 else instants // self._config.scale).cast(kind)
        columns = [
            times if name == self._config.time else tried.rows.column(name).combine_chunks() for name in schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _refused(
        self, complete: Complete, refusals: Sequence[Refusal], inputs: int
    ) -> tuple[list[Refusals], list[FailedRows]]:
        """Return refusals as the engine takes them: of this step's records by input, of others as spoiled rows."""
        if not refusals:
            return [], []
        reasons, attempts = (
            [reason_of(self._config, refusal) for refusal in refusals],
            [refusal.attempts for refusal in refusals],
        )
        if not self._config.window.tumbling:
            return [], [FailedRows(self._window_rows(complete, refusals), reasons, attempts=attempts)]
        row = np.array([refusal.start for refusal in refusals])
        arrived, queue = complete.arrived[row], complete.rows.column(QUEUE).to_numpy()[row]
        refused = [Refusals()] * inputs
        for number in np.unique(queue[arrived >= 0]).tolist():
            refused_here = np.flatnonzero((queue == number) & (arrived >= 0))
            refused_here = refused_here[np.argsort(arrived[refused_here])]
            numbers = refused_here.tolist()
            refused[number] = Refusals(
                arrived[refused_here], [reasons[at] for at in numbers], [attempts[at] for at in numbers]
            )
        older = np.flatnonzero(arrived < 0).tolist()
        if not older:
            return refused, []
        rows = complete.rows.take(pa.array(row[older]))
        return refused, [
            FailedRows(
                rows.select(self._config.reads.names),
                [reasons[at] for at in older],
                streams=[self._config.queues[number] for number in rows.column(QUEUE).to_pylist()],
                offsets=rows.column(OFFSET).to_pylist(),
                attempts=[attempts[at] for at in older],
            )
        ]

    def _with_sources(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return records with the stream and offset they came from."""
        streams = pa.array(self._config.queues, pa.string()).take(rows.column(QUEUE))
        names = self._config.reads.names
        columns = [streams, rows.column(OFFSET), *(rows.column(name) for name in names)]
        return pa.RecordBatch.from_arrays(columns, names=["__stream", OFFSET, *names])

    def _window_rows(self, complete: Complete, refusals: Sequence[Refusal]) -> pa.RecordBatch:
        """Return windows as rows: the instant, and the records as a list."""
        rows = pa.concat_batches(
            [complete.rows.slice(refusal.start, refusal.stop - refusal.start) for refusal in refusals]
        )
        with_origin = self._with_sources(rows)
        records = pa.StructArray.from_arrays(with_origin.columns, names=with_origin.schema.names)
        ends = np.cumsum([0, *(refusal.stop - refusal.start for refusal in refusals)])
        lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), records)
        instants = pa.array(complete.instants[[refusal.window for refusal in refusals]])
        return pa.RecordBatch.from_arrays([instants.cast(pa.timestamp("us", tz="UTC")), lists], ["instant", "records"])


def _seconds(complete: Complete, tried: WindowResults, inputs: int) -> list[float]:
    """Return how long the function worked for each input; the time of a window is divided evenly among its records."""
    sizes = complete.stops - complete.starts
    queue = column(complete.rows, QUEUE)[ranges(complete.starts, complete.stops)]
    shares = np.repeat(tried.nanoseconds / sizes / 1e9, sizes)
    seconds: list[float] = np.bincount(queue, shares, inputs).tolist()
    return seconds


def reason_of(config: OperationConfig, refusal: Refusal) -> Reason:
    """Return the reason for a dead letter: how the function failed, where, how often, in which version; then the traceback."""
    failure = refusal.failure
    description = failure.reason if failure.kind != "raised" else f"{KINDS['raised']}: {failure.reason}"
    if failure.kind in ("memory", "unfit"):
        description = f"{KINDS[failure.kind]}: {failure.reason}"
    times = "1 attempt" if refusal.attempts == 1 else f"{refusal.attempts} attempts"
    head = f'operation "{config.name}" (version {config.version}) failed in {times}: {description}{failure.place}'
    return Reason(failure.reason_kind, f"{head}\n{failure.traceback}" if failure.traceback else head)
