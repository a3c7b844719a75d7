"""Shows the demo while it runs: a live screen on a terminal, lines of text everywhere else."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from hayase.console.display import open_live
from hayase.console.pipeline_view import phase_view
from hayase.demo.hints import Hint
from hayase.demo.observer import Observation
from hayase.demo.screen import Screen, plain_lines
from hayase.engine.batch.lane_governor import governor_statuses
from hayase.engine.home import Home
from hayase.engine.stage_figures import History, stage_views

if TYPE_CHECKING:
    from hayase.engine.commit.manifests import Manifest

__all__ = ["DemoDisplay", "open_demo_display"]

REDRAW, PLAIN = 0.25, 3.0
"""Seconds between two frames of the live screen, and between two groups of lines."""
HINT = 6.0
"""Seconds for which a hint is shown."""


class DemoDisplay:
    """The display of the demo; `begun` is the monotonic time of its start in seconds, `live` is None for lines of text."""

    def __init__(self, console: Console, live: Live | None, begun: float):
        self._console, self._live, self.begun = console, live, begun
        self._phase, self._history = "starting", History()
        self._screen: Screen | None = None
        self._shown_at = float("-inf")
        self._hints: list[Hint] = []

    def phase(self, text: str) -> None:
        """Show what the demo does now."""
        self._phase = text
        if self._live is None:
            self.say(f"shop: {text}")
        elif self._screen is None:
            self._live.update(phase_view("shop", text))

    def show_hints(self, hints: list[Hint]) -> None:
        """Print the commands to try; they stay above everything that follows, and the live screen repeats one at a time."""
        self._hints = hints
        self._console.print("While it runs, try in a second terminal:", highlight=False)
        for hint in hints:
            if hint.what:
                self._console.print(Text(f"  # {hint.what}", style="dim"), soft_wrap=True)
            self._console.print(Text(f"  {hint.command}", style="cyan"), soft_wrap=True)

    def show(self, manifest: Manifest, ends: Mapping[str, int], home: Home, observe: Callable[[], Observation]) -> None:
        """Show the newest state if the next frame is due; `ends` are the ends of the streams."""
        moment = time.monotonic()
        self._history = self._history.seen(moment, manifest)
        if moment < self._shown_at + (PLAIN if self._live is None else REDRAW):
            return
        self._shown_at = moment
        elapsed, previous = self._history.base()
        uptime = moment - self.begun
        hint = self._hints[int(uptime / HINT) % len(self._hints)].command if self._hints else ""
        stages = stage_views(previous, manifest, ends, elapsed)
        screen = Screen(self._phase, stages, observe(), uptime, governor_statuses(home), hint)
        if self._live is not None:
            self._live.update(screen, refresh=True)
        else:
            for line in plain_lines(screen, self._screen):
                self.say(line)
        self._screen = screen

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def open_demo_display(console: Console, plain: bool, begun: float) -> Iterator[DemoDisplay]:
    """A display inside the block: live if the console is a terminal, unless `plain`."""
    if plain or not console.is_terminal:
        yield DemoDisplay(console, None, begun)
        return
    with open_live(console, phase_view("shop", "starting"), refresh_per_second=4) as live:
        yield DemoDisplay(console, live, begun)
