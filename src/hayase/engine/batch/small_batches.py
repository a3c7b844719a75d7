"""Which batches are so small that one task reduces all buckets, without a shuffle."""

from __future__ import annotations

from collections.abc import Mapping

from hayase.core.stages import MAIN
from hayase.engine.batch.offsets import Offset
from hayase.engine.batch.report import Figures

__all__ = ["is_small"]

SMALL_ROWS = 20_000
"""Most records of a small batch; a record that several stages read counts for each."""
SMALL_SECONDS = 0.1
"""Most seconds of work in a small batch: a shuffle costs as much as two tasks save of that."""


def is_small(lane: str, start: Offset, end: Offset | None, totals: Mapping[str, Figures]) -> bool:
    """Whether a batch between two offsets of a lane is small, by its records and by what records of its stages took so far.

    In the lane of operations no batch is: a record there may take seconds. Neither is a batch whose end is not known, that takes up
    another definition, that replays dead letters, or that finishes a stage, which then gives out all that it holds back.
    """
    if lane != MAIN or end is None or (end.definition, end.settled) != (start.definition, start.settled):
        return False
    if any(end.is_finished(stage) and not start.is_finished(stage) for stage in end.positions):
        return False
    count, seconds = 0, 0.0
    for stage, inputs in end.positions.items():
        figures = totals.get(stage, Figures())
        for stream, position in inputs.items():
            records = position.at - start.positions[stage][stream].at
            done, took = figures.work.get(stream, (0, 0.0))
            count += records
            seconds += records * (took / done if done else 0.0)
    return count <= SMALL_ROWS and seconds <= SMALL_SECONDS
