"""Problems of a pipeline in words: what is wrong, with which node, and what waits for it. All functions are pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from hayase.core.data_classes import dataclass
from hayase.core.times import BEGINNING, END
from hayase.engine.batch.lane_governor import GovernorStatus
from hayase.engine.batch.offsets import Position
from hayase.engine.condition import WELL, Condition
from hayase.engine.stage_figures import StageView

__all__ = ["Notice", "StreamFacts", "notices"]

SILENT_SECONDS = 10.0
"""After so long without an append a stream is said to be silent, if records wait for its clock."""
BEHIND_SECONDS = 10.0
"""A stage with more work than it does in this time is said to be behind."""
DEAD_SECONDS = 60.0
"""Dead letters are mentioned for so long."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A problem in words; `subject` is the node, None for the whole pipeline."""

    severity: Literal["error", "warning"]
    subject: str | None
    text: str


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """A stream as a page shows it: its length, the greatest event time, its clock, and seconds since the last append."""

    length: int
    clock: int
    silent: float | None
    finished: bool


def notices(
    condition: Condition,
    stages: Sequence[StageView],
    positions: Mapping[str, Mapping[str, Position]],
    streams: Mapping[str, StreamFacts],
    refused: Mapping[str, int],
    governors: Sequence[GovernorStatus],
) -> list[Notice]:
    """Return the problems, the worst first. `refused` has the number of recent dead letters of each stage."""
    return [
        *_condition(condition),
        *(notice for stage in stages for notice in _silence(stage, positions.get(stage.name, {}), streams)),
        *(notice for stage in stages for notice in _backlog(stage)),
        *_refusals(refused),
        *(notice for governor in governors for notice in _overload(governor)),
    ]


def _condition(condition: Condition) -> Iterator[Notice]:
    if condition.state not in WELL and condition.state != "starting":
        because = f": {condition.reason}" if condition.reason else ""
        yield Notice("error", None, f"the pipeline is {condition.state}{because}")
    elif condition.reason and condition.state == "starting":
        yield Notice("warning", None, f"the pipeline is starting: {condition.reason}")
    if condition.notice:
        yield Notice("warning", None, condition.notice)


def _silence(
    stage: StageView, positions: Mapping[str, Position], streams: Mapping[str, StreamFacts]
) -> Iterator[Notice]:
    """Say which input holds the clock of a stage back, if records wait for it and nothing comes there."""
    if not stage.waiting or not positions:
        return
    name, slowest = min(positions.items(), key=lambda item: item[1].clock)
    facts = streams.get(name)
    if facts is None or facts.finished or slowest.clock >= END:
        return
    waits = f'"{stage.name}" waits for it, with {stage.waiting:,} record{"" if stage.waiting == 1 else "s"}'
    if facts.length == 0 or slowest.clock <= BEGINNING:
        yield Notice("warning", name, f'"{name}" has no records yet: {waits}')
    elif facts.silent is not None and facts.silent >= SILENT_SECONDS and not stage.behind:
        yield Notice("warning", name, f'"{name}" has been silent for {_seconds(facts.silent)}: {waits}')


def _backlog(stage: StageView) -> Iterator[Notice]:
    if stage.behind and stage.read_rate and stage.behind > BEHIND_SECONDS * stage.read_rate:
        seconds = _seconds(stage.behind / stage.read_rate)
        text = f'"{stage.name}" is {stage.behind:,} records behind, {seconds} of work at its present rate'
        yield Notice("warning", stage.name, text)


def _refusals(refused: Mapping[str, int]) -> Iterator[Notice]:
    """Say which stages refused records lately; a record that several stages refuse counts for each of them."""
    counts = {stage: count for stage, count in refused.items() if count}
    if len(counts) == 1:
        ((stage, count),) = counts.items()
        records = "1 record" if count == 1 else f"{count:,} records"
        yield Notice("warning", stage, f'"{stage}" refused {records} in the last minute; see the dead letters')
    elif counts:
        told = ", ".join(
            f'"{stage}" {count:,}' for stage, count in sorted(counts.items(), key=lambda item: -item[1])[:8]
        )
        text = f"{len(counts)} stages refused records in the last minute: {told}; see the dead letters"
        yield Notice("warning", None, text)


def _overload(governor: GovernorStatus) -> Iterator[Notice]:
    waiting = sum(queue.waiting for queue in governor.queues)
    if governor.load > governor.slots and waiting:
        text = (
            f"lane {governor.lane} has work for {governor.load:.1f} workers and {governor.slots} of them; queues grow"
        )
        yield Notice("warning", None, text)


def _seconds(seconds: float) -> str:
    """Return a duration in the greatest unit of which there are two.

    >>> [_seconds(s) for s in (12.3, 150, 9_000, 200_000)]
    ['12 s', '2 min', '2 h', '2 days']
    """
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}" if seconds / length < 10 else f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"
