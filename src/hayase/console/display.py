"""Shows a running pipeline: a live table on a terminal, lines of text everywhere else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from rich.console import Console, RenderableType
from rich.live import Live

from hayase.console.log_output import log_through
from hayase.console.pipeline_view import Frame, live_view, phase_view, plain_lines
from hayase.engine.stage_figures import History

if TYPE_CHECKING:
    from hayase.connectors.status import ConnectorStatus
    from hayase.engine.batch.lane_governor import GovernorStatus
    from hayase.engine.commit.manifests import Manifest

__all__ = ["Display", "open_display", "open_live"]

EVERY = 5.0
"""Seconds between two groups of lines."""


class Display(Protocol):
    """Shows a running pipeline. `moment` is a monotonic time in seconds."""

    def phase(self, text: str) -> None:
        """Show what the pipeline does now; "running" is the normal phase."""

    def run(self, begun: float | None, hint: str) -> None:
        """Set when the run began, None while there is none, and the last line: for a run of another process."""

    def show(
        self,
        moment: float,
        manifest: Manifest,
        ends: Mapping[str, int],
        governors: Sequence[GovernorStatus] = (),
        connectors: Sequence[ConnectorStatus] = (),
    ) -> None:
        """Show the newest state; called a few times a second. `ends` are the ends of the streams, `governors` the state of the
        lanes' governors, `connectors` that of sources and outputs."""


@contextlib.contextmanager
def open_display(console: Console, pipeline: str, moment: float, *, plain: bool = False) -> Iterator[Display]:
    """Show a pipeline that starts at `moment` inside the block: live if the console is a terminal, unless `plain`."""
    if plain or not console.is_terminal:
        yield _Plain(lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True), pipeline, moment)
        return
    with open_live(console, phase_view(pipeline, "starting"), refresh_per_second=8) as live:
        yield _OnTerminal(live, pipeline, moment)


@contextlib.contextmanager
def open_live(console: Console, first: RenderableType, refresh_per_second: int) -> Iterator[Live]:
    """Keep a view at the bottom of the terminal inside the block, beginning with `first`; log messages appear above it."""
    with (
        Live(
            first, console=console, refresh_per_second=refresh_per_second, transient=True, redirect_stderr=False
        ) as live,
        log_through(lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True)),
    ):
        yield live


class _Shown:
    """The state that both displays have."""

    def __init__(self, pipeline: str, moment: float):
        self._pipeline = pipeline
        self._begun: float | None = moment
        self._hint: str | None = None
        self._phase = "starting"
        self._history = History()

    def run(self, begun: float | None, hint: str) -> None:
        self._begun, self._hint = begun, hint

    def _frame(
        self,
        moment: float,
        manifest: Manifest,
        ends: Mapping[str, int],
        governors: Sequence[GovernorStatus],
        connectors: Sequence[ConnectorStatus],
    ) -> Frame:
        self._history = self._history.seen(moment, manifest)
        elapsed, previous = self._history.base()
        trend = self._history.trend()
        uptime = None if self._begun is None else moment - self._begun
        return Frame(
            self._pipeline, self._phase, previous, manifest, ends, elapsed, uptime, trend, governors, connectors,
            self._hint,
        )  # fmt: skip


class _OnTerminal(_Shown):
    def __init__(self, live: Live, pipeline: str, moment: float):
        super().__init__(pipeline, moment)
        self._live = live
        self._last: Frame | None = None

    def phase(self, text: str) -> None:
        self._phase = text
        if self._last is None:
            self._live.update(phase_view(self._pipeline, text))
        else:
            self._live.update(live_view(replace(self._last, phase=text)), refresh=True)

    def show(
        self,
        moment: float,
        manifest: Manifest,
        ends: Mapping[str, int],
        governors: Sequence[GovernorStatus] = (),
        connectors: Sequence[ConnectorStatus] = (),
    ) -> None:
        self._last = self._frame(moment, manifest, ends, governors, connectors)
        self._live.update(live_view(self._last))


class _Plain(_Shown):
    """Writes lines every few seconds, and none while nothing changes."""

    def __init__(self, write: Callable[[str], None], pipeline: str, moment: float):
        super().__init__(pipeline, moment)
        self._write = write
        self._written_at: float | None = None
        self._last: object = None

    def phase(self, text: str) -> None:
        self._phase = text
        self._write(f"{self._pipeline}: {text}")

    def show(
        self,
        moment: float,
        manifest: Manifest,
        ends: Mapping[str, int],
        governors: Sequence[GovernorStatus] = (),
        connectors: Sequence[ConnectorStatus] = (),
    ) -> None:
        frame = self._frame(moment, manifest, ends, governors, connectors)
        if self._written_at is not None and moment < self._written_at + EVERY:
            return
        state = (
            [(stage.name, stage.read, stage.lag, stage.waiting, stage.clock) for stage in frame.stages()],
            [(each.role, each.name, each.state, each.records, each.lag, each.failures) for each in connectors],
        )
        if state == self._last:
            return
        self._written_at, self._last = moment, state
        for line in plain_lines(frame):
            self._write(line)
