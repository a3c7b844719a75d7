"""A batch in steps: kernels take whole instants, as many records at once as fit the caches, and the outcomes are joined.

The result does not depend on how a batch is cut into steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.stages import TIME, FailedRows, Outcome, Refusals, Tuples
from hayase.engine.batch.stage_runtime import Admitted, StageRuntime
from hayase.streams.reorder_buffer import rows_between
from hayase.streams.row_buffer import MOST_BYTES

__all__ = ["STEP_BYTES", "STEP_ROWS", "BatchOutcome", "process_in_steps"]

STEP_ROWS = 131_072
"""Records that a kernel takes at once, so that its results stay in the caches and in memory that is used again."""
STEP_BYTES = MOST_BYTES // 2
"""Bytes that a kernel takes at once."""


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The `Outcome` of a whole batch."""

    rows: pa.Table
    refused: Sequence[Refusals]
    state: Sequence[Tuples]
    spoiled: Sequence[FailedRows]
    seconds: Sequence[float]
    places: np.ndarray | None = None


def process_in_steps(
    runtimes: Sequence[StageRuntime], admitted: Sequence[Admitted], since: int, clock: int, version: int
) -> list[BatchOutcome]:
    """Run the kernels of stages that run together over what is ready for them: the instants from `since` up to the clock."""
    first, shared = runtimes[0].kernel, runtimes[0].shared
    if runtimes[0].stage.every is not None:
        return [_join_outcomes([first.process(admitted[0].ready, since, clock, version)])]
    outcomes: list[list[Outcome]] = [[] for _ in runtimes]
    ends = [np.zeros(len(stage.ready), np.int64) for stage in admitted]
    times = [[rows.column(TIME).to_numpy() for rows in stage.ready] for stage in admitted]
    size = max(sum(rows.nbytes for rows in stage.ready) for stage in admitted)
    for until in (*_cuts(times[0], since, clock, size), clock):
        starts, ends = (
            ends,
            [np.array([np.searchsorted(column, until) for column in stage], np.int64) for stage in times],
        )
        inputs = [
            [rows_between(rows, int(start), int(end)) for rows, start, end in zip(stage.ready, *bounds)]
            for stage, *bounds in zip(admitted, starts, ends)
        ]
        if shared is None:
            results: Sequence[Outcome] = [first.process(inputs[0], since, until, version)]
        else:
            results = shared.process(inputs, since, until, version)
        for stage_outcomes, outcome, start in zip(outcomes, results, starts):
            stage_outcomes.append(_shifted(outcome, start))
        since = until
    return [_join_outcomes(stage_outcomes) for stage_outcomes in outcomes]


def _cuts(times: Sequence[np.ndarray], since: int, clock: int, size: int = 0) -> list[int]:
    """Instants that cut the event times of all inputs into steps of at most about `STEP_ROWS` records and `STEP_BYTES` bytes;
    all records together have `size` bytes."""
    longest = max(times, key=len)
    count = sum(map(len, times))
    most = max(1, min(STEP_ROWS, STEP_BYTES * count // max(size, 1)))
    stride = most * len(longest) // max(count, 1)
    instants = np.unique(longest[stride::stride]) if 0 < stride < len(longest) else np.empty(0, np.int64)
    return [int(instant) for instant in instants if since < instant < clock]


def _shifted(outcome: Outcome, starts: np.ndarray) -> Outcome:
    """An outcome whose refusals count rows from the beginning of the batch; `starts` are the rows before the step, by input."""
    refused = [replace(refusals, rows=refusals.rows + start) for refusals, start in zip(outcome.refused, starts)]
    return replace(outcome, refused=refused)


def _join_outcomes(outcomes: Sequence[Outcome]) -> BatchOutcome:
    """The outcomes of consecutive steps as one."""
    refused = []
    for of_input in zip(*(outcome.refused for outcome in outcomes if outcome.refused)):
        rows = np.concatenate([refusals.rows for refusals in of_input])
        reasons = [reason for refusals in of_input for reason in refusals.reasons]
        attempts = [count for refusals in of_input for count in refusals.attempts or [1] * len(refusals)]
        refused.append(Refusals(rows, reasons, attempts))
    places = [outcome.places for outcome in outcomes if outcome.places is not None]
    return BatchOutcome(
        pa.Table.from_batches([outcome.rows for outcome in outcomes]),
        refused,
        _not_replaced([tuples for outcome in outcomes for tuples in outcome.state]),
        [spoiled for outcome in outcomes for spoiled in outcome.spoiled],
        [sum(of_input) for of_input in zip(*(outcome.seconds for outcome in outcomes if outcome.seconds))],
        np.concatenate(places) if places else None,
    )


def _not_replaced(state: Sequence[Tuples]) -> list[Tuples]:
    """The state tuples without those that a later step of the batch wrote again as a whole."""
    last = {tuples.section: number for number, tuples in enumerate(state) if tuples.whole}
    return [tuples for number, tuples in enumerate(state) if number >= last.get(tuples.section, 0)]
