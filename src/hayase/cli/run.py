"""The commands `hayase run` and `hayase demo`, which run a pipeline on Spark."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hayase.cli.pipeline_location import DEFAULT
from hayase.cli.terminal import (
    HomeOption,
    LogFileOption,
    LogFormatOption,
    Master,
    PipelineFile,
    Verbose,
    errors,
    is_verbose,
    output,
)
from hayase.console.log_output import log_output
from hayase.console.stop_signals import Stopping, starting
from hayase.core.errors import HayaseError
from hayase.core.log_files import LogFormat

if TYPE_CHECKING:
    from rich.console import Console

    from hayase.console.display import Display
    from hayase.engine.commit.ledger import Ledger
    from hayase.engine.commit.manifests import Manifest
    from hayase.engine.condition import Condition
    from hayase.engine.home import Home
    from hayase.engine.spark.lanes import Lanes
    from hayase.pipeline import Pipeline
    from hayase.serving import Status

__all__ = ["demo", "run"]

_log = logging.getLogger(__name__)
LOOK = 0.05
"""Seconds between two checks of the lanes."""
REDRAW = 0.25
"""Seconds between two frames."""
SERVED_AT = "127.0.0.1:8421"
TOKEN = "HAYASE_TOKEN"  # noqa: S105 - where it stands, not what it is

Plain = Annotated[bool, typer.Option("--plain", help="Lines of text instead of the live view.")]


def run(
    file: PipelineFile = DEFAULT,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Stop when all records have been processed.")
    ] = False,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve",
            help=f"Serve it over HTTP while it runs, at {SERVED_AT}: the console in a browser, and every route.",
        ),
    ] = False,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="HOST:PORT",
            help="Serve at this address; port 0 takes any free port.",
            show_default=False,
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"Requests need the token in FILE, or in the variable {TOKEN}; required for requests from other machines.",
            show_default=False,
        ),
    ] = None,
    master: Master = None,
    home: HomeOption = None,
    plain: Plain = False,
    verbose: Verbose = False,
    log_file: LogFileOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Run a pipeline on Spark; Ctrl-C finishes the running batch and stops, a second Ctrl-C stops at once.

    Example: [cyan]hayase run pipeline.yaml --until-idle[/]

    With its tables over HTTP: [cyan]hayase run --serve[/]    and then: [cyan]curl http://127.0.0.1:8421/tables[/]
    """
    from hayase.pipeline import Pipeline

    place = address or (SERVED_AT if serve else None)
    if place is None and token_file is not None:
        raise typer.BadParameter("a token is for requests; give --serve too", param_hint="--token-file")
    token = None if place is None else _token(token_file)
    pipeline = Pipeline.from_file(file, home)
    with log_output(verbose=is_verbose(), file=log_file, form=log_format):
        _run(pipeline, place, token, master, until_idle=until_idle, plain=plain or is_verbose())


def _run(
    pipeline: Pipeline, address: str | None, token: str | None, master: str | None, *, until_idle: bool, plain: bool
) -> None:
    """Run the pipeline until a signal asks to stop, or until it is idle if that is wanted; serve it at `address`, if any."""
    from hayase.console.display import open_display
    from hayase.console.pipeline_view import summary
    from hayase.console.standard_error import stderr_in

    console = output()
    begun = time.monotonic()
    stopping = Stopping()
    with contextlib.ExitStack() as stack:
        stack.enter_context(pipeline.home.lock())
        definition = pipeline.apply()
        _log.info(
            "%s: running definition %d in %s", definition.declaration.name, definition.version, pipeline.home.path
        )
        start = pipeline.progress()
        display = stack.enter_context(open_display(console, pipeline.declaration.name, begun, plain=plain))
        start_up = stack.enter_context(contextlib.ExitStack())
        start_up.enter_context(starting(console.print))
        from hayase.engine.home import log_file
        from hayase.engine.spark.runner import open_ledger, run_lanes

        ledger = stack.enter_context(open_ledger(pipeline.home))
        status = None if address is None else stack.enter_context(_served(console, ledger, address, token))
        if not is_verbose():  # PySpark's threads print tracebacks when they are interrupted
            stack.enter_context(stderr_in(log_file(pipeline.home)))
        with run_lanes(
            pipeline.home,
            ledger=ledger,
            master=master,
            awake=not until_idle,
            verbose=is_verbose(),
            on_commit=None if status is None else status.committed,
            on_phase=display.phase,
            on_condition=partial(_report, display, status),
        ) as lanes:
            start_up.close()
            # Spark sets its own handler for Ctrl-C when its session starts, so ours is set after that, until the lanes are drained
            stack.enter_context(stopping.listening())
            if status is not None and status.now.manifest.version < lanes.manifest.version:
                status.committed(lanes.manifest)  # the state at the start
            display.phase("waiting for the first batch")
            _watch(pipeline.home, lanes, display, stopping, until_idle)
    _log.info("%s: stopped", pipeline.declaration.name)
    console.print(summary(start, lanes.manifest, _ends(pipeline.home, lanes.manifest), time.monotonic() - begun))


def _watch(home: Home, lanes: Lanes, display: Display, stopping: Stopping, until_idle: bool) -> None:
    """Show the lanes until a signal asks to stop, or until they are idle if that is wanted; a failure of a lane is raised."""
    from hayase.engine.batch.lane_governor import governor_statuses

    shown = float("-inf")
    while not stopping and not (until_idle and lanes.is_idle()):
        lanes.check()
        moment = time.monotonic()
        if moment >= shown + REDRAW:
            display.show(moment, lanes.manifest, _ends(home, lanes.manifest), governor_statuses(home))
            shown = moment
        stopping.wait(LOOK)
    display.show(time.monotonic(), lanes.manifest, _ends(home, lanes.manifest), governor_statuses(home))


def _token(file: Path | None) -> str | None:
    """Return the token for requests, from the file or the environment: on the command line every user could see it."""
    if file is None:
        return os.environ.get(TOKEN) or None
    try:
        if file.stat().st_mode & 0o077:
            errors().print(f"{file} can be read by others: `chmod 600 {file}`", style="yellow", markup=False)
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise HayaseError(f'the token cannot be read from "{file}": {error}; check the name') from error
    if not token:
        raise HayaseError(f'there is no token in "{file}"; write one into it')
    return token


@contextlib.contextmanager
def _served(console: Console, ledger: Ledger, address: str, token: str | None) -> Iterator[Status]:
    """Serve the home over HTTP inside the block; the caller passes commits and conditions to the status."""
    from hayase.serving import Status, serving

    status = Status("starting", ledger.latest())
    with serving(ledger.home, address, tables=ledger.tables, status=status, token=token) as server:
        needed = " (requests need the token)" if token else ""
        console.print(f"serving at {server.url}{needed}", markup=False, soft_wrap=True)
        yield status


def _report(display: Display, status: Status | None, condition: Condition) -> None:
    """Pass a new condition of the pipeline on to the server, the log and the display."""
    from hayase.console.pipeline_view import RUNNING

    if status is not None:
        status.set_condition(condition)
    _log.info("%s", ": ".join(part for part in (condition.state, condition.reason, condition.notice) if part))
    if condition.state in ("recovering", "stalled"):
        display.phase(f"{condition.state}: {condition.reason}")
    elif condition.state == "running":
        display.phase(RUNNING if condition.notice is None else f"{RUNNING}; {condition.notice}")


def _ends(home: Home, manifest: Manifest) -> dict[str, int]:
    """Return the ends of the streams that stages read, by the running definition: streams of a newer one may not exist yet."""
    from hayase.engine.definition.definitions import load
    from hayase.engine.logs import Logs

    offset = manifest.offset
    if not offset.definition:
        return {}
    logs = Logs(home, load(home, offset.definition))
    return logs.ends(stream for inputs in offset.positions.values() for stream in inputs)


def demo(
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="N", min=0, help="How long to run after the first result.")
    ] = 30.0,
    fast: Annotated[
        bool, typer.Option("--fast", help="A fixed number of events, sent at once, without waiting.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Run until Ctrl-C; then check the results.")] = False,
    home: HomeOption = None,
    master: Master = None,
    plain: Plain = False,
    verbose: Verbose = False,
    log_file: LogFileOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Watch a shop that uses all of Hayase: queries, tables, a job and an operation over events that never stop.

    It prints commands to try in a second terminal. At the end every output is compared with plain Python over the same
    events; the exit code is 1 if something differs.

    Example: [cyan]hayase demo --seconds 60[/]

    As long as you like: [cyan]hayase demo --keep[/]

    With a token in the variable HAYASE_TOKEN, the browser asks for it, and the operation can be changed there.
    """
    from hayase.demo.runner import Options, run_demo

    with log_output(verbose=is_verbose(), file=log_file, form=log_format):
        if not run_demo(Options(seconds, home, master, plain or is_verbose(), fast, keep, token=_token(None))):
            raise typer.Exit(1)
