"""The command `hayase top`: the live view of a pipeline that runs in another process."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hayase.cli.pipeline_location import locate
from hayase.cli.terminal import HomeOption, output
from hayase.core.clock import now_us

if TYPE_CHECKING:
    from hayase.console.display import Display
    from hayase.engine.home import Home
    from hayase.engine.home_watch import Observation

__all__ = ["top"]

REDRAW = 0.5
"""Seconds between two looks at the home."""
BETWEEN = 1.0
"""Seconds between the two looks of `--once`, from which rates are computed."""


def top(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The pipeline file, if not ./pipeline.yaml.", show_default=False),
    ] = None,
    home: HomeOption = None,
    once: Annotated[bool, typer.Option("--once", help="Print the figures of one second, and end.")] = False,
) -> None:
    """Watch a pipeline that runs elsewhere: rates, lag, waiting records and clocks of its stages, until Ctrl-C.

    The figures come from the files of the home. Spark is not started, and the pipeline is not disturbed. A pipeline that does
    not run is shown as it was left, and the view goes on when it starts.

    Example: [cyan]hayase top[/]

    Of a home, once, for a script: [cyan]hayase top --home shop --once[/]
    """
    from hayase.console.display import open_display

    located = locate(file, home)
    console, name = output(), located.declaration.name
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how watching ends
        if once:
            _print_once(located.home, name)
            return
        with open_display(console, name, time.monotonic()) as display:
            _watch(located.home, display)


def _watch(home: Home, display: Display) -> None:
    from hayase.connectors.status import running_statuses
    from hayase.engine.home_watch import observe

    phase = None
    while True:
        seen = observe(home)
        moment = time.monotonic()
        display.run(_begun(seen, moment), _hint(seen))
        if phase != (phase := _phase(seen)):
            display.phase(phase)
        display.show(moment, seen.manifest, seen.ends, seen.governors, running_statuses(home))
        time.sleep(REDRAW)


def _print_once(home: Home, name: str) -> None:
    from hayase.connectors.status import running_statuses
    from hayase.console.pipeline_view import Frame, live_view, plain_lines
    from hayase.engine.home_watch import observe

    before = seen = observe(home)
    began = moment = time.monotonic()
    if seen.holder is not None:
        time.sleep(BETWEEN)
        seen, moment = observe(home), time.monotonic()
    begun = _begun(seen, moment)
    uptime = None if begun is None else moment - begun
    phase, elapsed = _phase(seen), moment - began
    frame = Frame(
        name, phase, before.manifest, seen.manifest, seen.ends, elapsed, uptime, (), seen.governors,
        running_statuses(home), _hint(seen),
    )  # fmt: skip
    console = output()
    if console.is_terminal:
        console.print(live_view(frame))
    else:
        for line in (f"{name}: {phase}", *plain_lines(frame)):
            console.print(line, markup=False, soft_wrap=True)


def _begun(seen: Observation, moment: float) -> float | None:
    """Return when the run began, by the monotonic clock of this process."""
    return None if seen.holder is None else moment - max(0, now_us() - seen.holder.since) / 1e6


def _phase(seen: Observation) -> str:
    from hayase.console.figures import clock_text
    from hayase.console.pipeline_view import RUNNING

    if seen.holder is not None:
        return RUNNING if seen.manifest.version else "starting"
    if not seen.manifest.version:
        return "not running, and nothing was committed yet"
    return f"not running; its last batch was committed at {clock_text(seen.manifest.committed_at)}"


def _hint(seen: Observation) -> str:
    if seen.holder is None:
        return "`hayase run` starts it; Ctrl-C ends this view"
    return f"process {seen.holder.process} runs it; Ctrl-C ends this view only"
