"""Draws a running pipeline: the live table, the lines of text for logs, and the summary at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from hayase.console.connectors_view import connector_lines, connectors_table
from hayase.console.figures import (
    busiest,
    clock_text,
    compact,
    seconds_text,
    sparkline,
    uptime_text,
)
from hayase.core.data_classes import dataclass
from hayase.engine.stage_figures import StageView, stage_views

if TYPE_CHECKING:
    from hayase.connectors.status import ConnectorStatus
    from hayase.engine.batch.lane_governor import GovernorStatus
    from hayase.engine.commit.manifests import Manifest

__all__ = ["RUNNING", "STOPPING", "Frame", "governors_view", "live_view", "phase_view", "plain_lines", "summary"]

RUNNING, STOPPING = "running", "stopping"
"""The phases that the views treat specially."""
QUEUES = 10
"""How many queues are shown: the busiest ones."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The state of a running pipeline that a view is drawn from. `elapsed` is the seconds since `previous`, `ends` the ends of
    the streams, `governors` the state of the lanes' governors, `connectors` that of sources and outputs. `uptime` is None if it
    does not run; `hint` is the last line."""

    pipeline: str
    phase: str
    previous: Manifest
    manifest: Manifest
    ends: Mapping[str, int]
    elapsed: float
    uptime: float | None = 0.0
    trend: Sequence[float] = field(default=())
    governors: Sequence[GovernorStatus] = field(default=())
    connectors: Sequence[ConnectorStatus] = field(default=())
    hint: str | None = None

    def stages(self) -> tuple[StageView, ...]:
        return stage_views(self.previous, self.manifest, self.ends, self.elapsed)


def phase_view(pipeline: str, phase: str) -> RenderableType:
    """Draw the phase alone, before there are figures."""
    return Spinner("dots", Text.assemble((pipeline, "bold"), "  ", (phase, "cyan")), style="cyan")


def live_view(frame: Frame) -> RenderableType:
    """Draw the table that is refreshed while a pipeline runs."""
    stages = frame.stages()
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", show_edge=False)
    table.add_column("stage", style="bold", no_wrap=True, overflow="ellipsis", max_width=20)
    for name, width in (("in/s", 6), ("out/s", 6), ("lag", 6), ("waiting", 7), ("dead", 6), ("batch", 6)):
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    table.add_column("clock", no_wrap=True)
    for stage in stages:
        table.add_row(
            stage.name,
            _rate(stage.read_rate),
            _rate(stage.written_rate),
            _lag(stage),
            Text(compact(stage.waiting)),
            Text(compact(stage.dead), style="yellow" if stage.dead else ""),
            Text(seconds_text(stage.batch_seconds) + (f" ({stage.missed} missed)" if stage.missed else "")),
            Text(clock_text(stage.clock, short=True), style="dim"),
        )
    blocks: list[RenderableType] = [_head(frame, stages), Text(), table, Text()]
    if frame.connectors:
        blocks += [connectors_table(frame.connectors), Text()]
    if any(governor.queues for governor in frame.governors):
        blocks += [governors_view(frame.governors), Text()]
    return Group(*blocks, _foot(frame))


def governors_view(governors: Sequence[GovernorStatus]) -> RenderableType:
    """Draw the busiest queues, and a line for each lane."""
    lines = [Text(_governor_line(governor), style="dim") for governor in governors]
    return Group(_queues(governors), *lines)


def _queues(governors: Sequence[GovernorStatus]) -> RenderableType:
    """Draw the busiest queues: load, share of the work, length, waiting time, and polls."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", show_edge=False)
    table.add_column("queue", style="bold", no_wrap=True, overflow="ellipsis", max_width=30, min_width=10)
    for name, width in (("load", 6), ("share", 5), ("length", 6), ("waits", 6), ("polls", 6), ("empty", 6)):
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    shown, more = busiest(governors, QUEUES)
    for queue in shown:
        table.add_row(
            queue.name,
            Text(_load_text(queue.load), style="" if queue.load else "dim"),
            Text(f"{queue.share:.0%}", style="" if queue.share else "dim"),
            Text(compact(queue.waiting), style="yellow" if queue.waiting else "dim"),
            Text(seconds_text(queue.waited if queue.waiting else None), style="" if queue.waiting else "dim"),
            Text(compact(queue.polls), style="dim"),
            Text(compact(queue.empty), style="dim"),
        )
    return Group(table, Text(f"… and {more:,} more", style="dim")) if more else table


def _load_text(load: float) -> str:
    """Format a load, in workers, in at most six characters.

    >>> [_load_text(load) for load in (0.0, 0.004, 0.25, 12.345, 1234.5, 123456.0)]
    ['0', '0.004', '0.25', '12.3', '1,234', '123k']
    """
    if load >= 99.95 or load == 0:
        return compact(load)
    return f"{load:.1f}" if load >= 9.995 else f"{load:.2f}" if load >= 0.01 else f"{load:.3f}"


def _governor_line(governor: GovernorStatus) -> str:
    empty = governor.empty / governor.polls if governor.polls else 0.0
    dial = "" if governor.u is None else f" with u {governor.u:g}"
    return (
        f"{governor.lane}: {governor.policy}{dial}, load {_load_text(governor.load)} on {governor.slots} slots, "
        f"{empty:.1%} of {governor.polls:,} polls empty"
    )


def _head(frame: Frame, stages: Sequence[StageView]) -> Text:
    behind = sum(stage.behind for stage in stages)
    state = ("caught up", "green") if behind == 0 else (f"{behind:,} behind", "yellow")
    if frame.phase != RUNNING:
        state = (frame.phase, "cyan")
    return Text.assemble(
        (frame.pipeline, "bold"), "  ", state, "  ",
        (
            f"batch {frame.manifest.version:,} took {seconds_text(frame.manifest.seconds or None)}"
            + ("" if frame.uptime is None else f"  up {uptime_text(frame.uptime)}"),
            "dim",
        ),
    )  # fmt: skip


def _foot(frame: Frame) -> Text:
    hint = "Ctrl-C again stops at once" if frame.phase == STOPPING else "Ctrl-C finishes the running batch and stops"
    line = Text(frame.hint or hint, style="dim")
    if any(frame.trend):
        line = Text.assemble((sparkline(frame.trend[-30:]), "cyan"), ("  records/s  ", "dim"), line)
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _rate(rate: float) -> Text:
    return Text(compact(rate), style="green" if rate else "dim")


def _lag(stage: StageView) -> Text:
    """Draw the lag: one number, or for a stage with several inputs a line for each."""
    if len(stage.lag) <= 1:
        return Text(compact(stage.behind), style="yellow" if stage.behind else "dim")
    lines = [Text(f"{name} {compact(count)}", style="yellow" if count else "dim") for name, count in stage.lag]
    return Text("\n").join(lines)


def plain_lines(frame: Frame) -> list[str]:
    """Return lines of text for each stage, source, output and queue."""
    lines = []
    for stage in frame.stages():
        lag = " ".join(f"{stream}:{count}" for stream, count in stage.lag)
        lines.append(
            f"{stage.name}: in {stage.read_rate:.0f}/s, out {stage.written_rate:.0f}/s, read {stage.read}, "
            f"lag {lag or '0'}, waiting {stage.waiting}, dead {stage.dead}, "
            + (f"repeated {stage.repeated}, " if stage.repeated else "")
            + f"batch {seconds_text(stage.batch_seconds)}, clock {clock_text(stage.clock)}"
            + ("" if stage.missed is None else f", firings missed {stage.missed}")
        )
    lines += connector_lines(frame.connectors)
    governors = [governor for governor in frame.governors if governor.queues]
    lines += [f"governor of {_governor_line(governor)}" for governor in governors]
    shown, more = busiest(governors, QUEUES)
    for queue in shown:
        waits = f" since {seconds_text(queue.waited)}" if queue.waiting else ""
        lines.append(
            f"queue {queue.name}: load {_load_text(queue.load)}, share {queue.share:.0%}, length {queue.waiting}{waits}, "
            f"polls {queue.polls}, empty {queue.empty}"
        )
    return [*lines, f"and {more} more queues"] if more else lines


def summary(start: Manifest, end: Manifest, ends: Mapping[str, int], seconds: float) -> RenderableType:
    """Draw the totals of every stage at the end of a run: read = processed + dead + repeated + waiting."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", show_edge=False)
    table.add_column("stage", style="bold", no_wrap=True, overflow="ellipsis", max_width=20)
    stages = stage_views(start, end, ends, seconds)
    some_repeated = any(stage.repeated for stage in stages)
    for name in ("read", "= processed", "+ dead", *(["+ repeated"] if some_repeated else []), "+ waiting"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for name in ("written", "lag"):
        table.add_column(name, justify="right", no_wrap=True)
    for stage in stages:
        table.add_row(
            stage.name, f"{stage.read:,}", f"{stage.processed:,}",
            Text(f"{stage.dead:,}", style="yellow" if stage.dead else ""),
            *([f"{stage.repeated:,}"] if some_repeated else []), f"{stage.waiting:,}",
            Text("✓", style="green") if stage.reconciles else Text("✗ does not add up", style="bold red"),
            f"{stage.written:,}", f"{stage.behind:,}",
        )  # fmt: skip
    read = round(sum(stage.read_rate for stage in stages) * seconds)
    batches = end.version - start.version
    lines = [Text(f"stopped after {seconds:.1f} s: {batches:,} batches, {read:,} records read in this run")]
    if any(stage.dead for stage in stages):
        lines.append(Text("`hayase dead list` shows what could not be handled", style="dim"))
    return Group(table, Text(), *lines)
