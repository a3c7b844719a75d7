"""Commands that run a pipeline on Spark: run, demo."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Annotated

import typer

from hayase.cli.places import DEFAULT
from hayase.cli.terminal import HomeOption, Master, PipelineFile, Verbose, is_verbose, output
from hayase.console.stopping import Stopping

if TYPE_CHECKING:
    from hayase.engine.home import Home
    from hayase.engine.manifests import Manifest

__all__ = ["demo", "run"]

LOOK = 0.05
"""Seconds between two looks at the lane."""
REDRAW = 0.25
"""Seconds between two frames."""

Plain = Annotated[bool, typer.Option("--plain", help="Lines instead of the live view.")]


def run(
    file: PipelineFile = DEFAULT,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Stop when everything there is has been processed.")
    ] = False,
    master: Master = None,
    home: HomeOption = None,
    plain: Plain = False,
    verbose: Verbose = False,
) -> None:
    """Run a pipeline on Spark; Ctrl-C finishes the running batch and stops, a second Ctrl-C stops at once.

    Example: [cyan]hayase run pipeline.yaml --until-idle[/]
    """
    from hayase.console.display import open_display
    from hayase.console.pipeline_view import RUNNING, summary
    from hayase.pipeline import Pipeline

    console = output()
    begun = time.monotonic()
    stopping = Stopping()
    pipeline = Pipeline.from_file(file, home)
    with contextlib.ExitStack() as stack:
        stack.enter_context(pipeline.home.lock())
        pipeline.apply()
        start = pipeline.progress()
        quiet = plain or is_verbose()
        display = stack.enter_context(open_display(console, pipeline.declaration.name, begun, plain=quiet))
        from hayase.engine.running import log_file, running

        if not is_verbose():  # PySpark's threads print tracebacks when they are interrupted
            log = stack.enter_context(log_file(pipeline.home).open("a", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stderr(log))
        with running(
            pipeline.home, master=master, awake=not until_idle, verbose=is_verbose(), on_phase=display.phase
        ) as lane:
            # not before: Spark takes Ctrl-C for itself when its session starts; until the lane is drained
            stack.enter_context(stopping.listening())
            display.phase("waiting for the first batch")
            first, begins, shown = lane.manifest.version, True, float("-inf")
            while not stopping and not (until_idle and lane.is_idle()):
                lane.check()
                if begins and lane.manifest.version > first:
                    begins = False
                    display.phase(RUNNING)
                moment = time.monotonic()
                if moment >= shown + REDRAW:
                    display.show(moment, lane.manifest, _ends(pipeline.home, lane.manifest))
                    shown = moment
                stopping.wait(LOOK)
            display.show(time.monotonic(), lane.manifest, _ends(pipeline.home, lane.manifest))
    console.print(summary(start, lane.manifest, _ends(pipeline.home, lane.manifest), time.monotonic() - begun))


def _ends(home: Home, manifest: Manifest) -> dict[str, int]:
    """Where the logs end now that stages read; under the definition that runs, as a newer one's may not be there yet."""
    from hayase.engine.definitions import load
    from hayase.engine.logs import Logs

    offset = manifest.offset
    if not offset.definition:
        return {}
    logs = Logs(home, load(home, offset.definition))
    return {stream: logs[stream].index().next for inputs in offset.positions.values() for stream in inputs}


def demo(
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="N", help="How long to go on after the first result.")
    ] = 20.0,
    home: HomeOption = None,
    master: Master = None,
    plain: Plain = False,
    verbose: Verbose = False,
) -> None:
    """Watch a shop's events being counted: late, repeated and broken ones too.

    Example: [cyan]hayase demo --seconds 30[/]
    """
    from hayase.demo import run_demo

    if not run_demo(seconds, home, master, plain):
        raise typer.Exit(1)
