"""The commands `hayase run` and `hayase demo`, which run a pipeline, on Spark or in this process."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from hayase.cli.access_options import TlsCert, TlsKey, TokenFile, TokensFile, access_of, single_token
from hayase.cli.pipeline_location import DEFAULT
from hayase.cli.terminal import (
    HomeOption,
    LogFileOption,
    LogFormatOption,
    Master,
    PipelineFile,
    Verbose,
    is_verbose,
    output,
)
from hayase.console.log_output import log_output
from hayase.console.stop_signals import Stopping, starting
from hayase.core.log_files import LogFormat

if TYPE_CHECKING:
    from rich.console import Console

    from hayase.console.display import Display
    from hayase.core.access import Access
    from hayase.engine.commit.ledger import Ledger
    from hayase.engine.condition import Condition
    from hayase.engine.home import Home
    from hayase.engine.local_run import RunningLanes
    from hayase.pipeline import Pipeline
    from hayase.pipeline_run import Place
    from hayase.serving import Status

__all__ = ["demo", "run"]

_log = logging.getLogger(__name__)
LOOK = 0.05
"""Seconds between two checks of the lanes."""
REDRAW = 0.25
"""Seconds between two frames."""
SERVED_AT, SQL_AT = "127.0.0.1:8421", "127.0.0.1:5433"

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
    sql: Annotated[
        str | None,
        typer.Option(
            "--sql",
            metavar="HOST:PORT",
            help=f"Serve SQL by PostgreSQL's protocol at this address, such as {SQL_AT}; psql and other tools ask there.",
            show_default=False,
        ),
    ] = None,
    token_file: TokenFile = None,
    tokens: TokensFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    traces: Annotated[
        str | None,
        typer.Option(
            "--traces",
            metavar="URL",
            help="Send a trace of every batch to this OpenTelemetry collector (OTLP over HTTP), such as http://127.0.0.1:4318.",
            show_default=False,
        ),
    ] = None,
    in_process: Annotated[
        bool,
        typer.Option(
            "--in-process", help="Run in this process, without Spark: same home, same results; for development."
        ),
    ] = False,
    master: Master = None,
    home: HomeOption = None,
    plain: Plain = False,
    verbose: Verbose = False,
    log_file: LogFileOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Run a pipeline on Spark; Ctrl-C finishes the running batch and stops, a second Ctrl-C stops at once.

    Example: [cyan]hayase run pipeline.yaml --until-idle[/]

    Without Spark: [cyan]hayase run --in-process[/]

    With its tables over HTTP: [cyan]hayase run --serve[/]    and then: [cyan]curl http://127.0.0.1:8421/tables[/]

    For psql, JDBC and BI tools: [cyan]hayase run --sql 127.0.0.1:5433[/]
    """
    from hayase.pipeline import Pipeline
    from hayase.pipeline_run import Place

    place = address or (SERVED_AT if serve else None)
    if in_process and master is not None:
        raise typer.BadParameter("a run in this process has no Spark master; leave one out", param_hint="--in-process")
    access = access_of(token_file, tokens, tls_cert, tls_key, is_served=place is not None or sql is not None)
    pipeline = Pipeline.from_file(file, home)
    with log_output(verbose=is_verbose(), file=log_file, form=log_format), contextlib.ExitStack() as asked:
        if sql is not None:
            asked.enter_context(_sql_served(pipeline.home, sql, access))
        where = Place(not in_process, master, place, access, traces)
        _run(pipeline, where, until_idle=until_idle, plain=plain or is_verbose())


def _run(pipeline: Pipeline, place: Place, *, until_idle: bool, plain: bool) -> None:
    """Run the pipeline until a signal asks to stop, or until it is idle if that is wanted; serve it at its address, if any."""
    from hayase.console.display import open_display
    from hayase.console.pipeline_view import summary

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
        start_up.enter_context(starting(console.print, "Spark" if place.spark else "the pipeline"))
        from hayase.connectors.supervision import Connectors
        from hayase.engine.batch_traces import traced_batches
        from hayase.engine.commit.ledger import open_ledger
        from hayase.engine.home_watch import input_ends

        ledger = stack.enter_context(open_ledger(pipeline.home))
        stack.enter_context(traced_batches(ledger, place.traces))
        status = None
        if place.serve is not None:
            status = stack.enter_context(_served(console, ledger, place.serve, place.access))
        if until_idle:
            if pipeline.declaration.sources:
                display.phase("reading sources")
            stack.enter_context(pipeline.transferring())
        else:
            stack.enter_context(Connectors(pipeline.home))
        with _lanes(pipeline.home, ledger, place, display, status, awake=not until_idle) as lanes:
            start_up.close()
            # Spark sets its own handler for Ctrl-C when its session starts, so ours is set after that, until the lanes are drained
            stack.enter_context(stopping.listening())
            if status is not None and status.now.manifest.version < lanes.manifest.version:
                status.committed(lanes.manifest)  # the state at the start
            display.phase("waiting for the first batch")
            _watch(pipeline.home, lanes, display, stopping, until_idle)
    _log.info("%s: stopped", pipeline.declaration.name)
    console.print(summary(start, lanes.manifest, input_ends(pipeline.home, lanes.manifest), time.monotonic() - begun))


@contextlib.contextmanager
def _lanes(
    home: Home, ledger: Ledger, place: Place, display: Display, status: Status | None, *, awake: bool
) -> Iterator[RunningLanes]:
    """Run the lanes inside the block, on Spark or in this process; the display and the status follow them."""
    on_commit = None if status is None else status.committed
    on_condition = partial(_report, display, status)
    if not place.spark:
        from hayase.engine.local_run import run_local_lanes

        with run_local_lanes(
            home, ledger=ledger, awake=awake, on_commit=on_commit, on_phase=display.phase, on_condition=on_condition
        ) as local:
            yield local
        return
    from hayase.console.standard_error import stderr_in
    from hayase.engine.home import log_file
    from hayase.engine.spark.runner import run_lanes

    with contextlib.ExitStack() as stack:
        if not is_verbose():  # PySpark's threads print tracebacks when they are interrupted
            stack.enter_context(stderr_in(log_file(home)))
        lanes = run_lanes(
            home, ledger=ledger, master=place.master, awake=awake, verbose=is_verbose(),
            on_commit=on_commit, on_phase=display.phase, on_condition=on_condition,
        )  # fmt: skip
        yield stack.enter_context(lanes)


def _watch(home: Home, lanes: RunningLanes, display: Display, stopping: Stopping, until_idle: bool) -> None:
    """Show the lanes until a signal asks to stop, or until they are idle if that is wanted; a failure of a lane is raised."""
    from hayase.connectors.status import running_statuses
    from hayase.engine.batch.lane_governor import governor_statuses
    from hayase.engine.home_watch import input_ends

    def show(moment: float) -> None:
        manifest = lanes.manifest
        display.show(moment, manifest, input_ends(home, manifest), governor_statuses(home), running_statuses(home))

    shown = float("-inf")
    while not stopping and not (until_idle and lanes.is_idle()):
        lanes.check()
        moment = time.monotonic()
        if moment >= shown + REDRAW:
            show(moment)
            shown = moment
        stopping.wait(LOOK)
    show(time.monotonic())


@contextlib.contextmanager
def _sql_served(home: Home, address: str, access: Access) -> Iterator[None]:
    """Serve the home over PostgreSQL's protocol inside the block."""
    from hayase.cli.serve import sql_line
    from hayase.streams.home_format import begin_home
    from hayase.wire.sql_process import sql_serving

    begin_home(home.path)
    console = output()

    def tell(line: str) -> None:
        console.print(line, style="yellow", markup=False, soft_wrap=True)

    with sql_serving(home, address, access=access, on_end=tell) as place:
        console.print(sql_line(place, access), markup=False, soft_wrap=True)
        yield


@contextlib.contextmanager
def _served(console: Console, ledger: Ledger, address: str, access: Access) -> Iterator[Status]:
    """Serve the home over HTTP inside the block; the caller passes commits and conditions to the status."""
    from hayase.serving import Status, serving

    status = Status("starting", ledger.latest())
    with serving(ledger.home, address, tables=ledger.tables, status=status, access=access) as server:
        needed = " (requests need the token)" if access.is_secured else ""
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
        if not run_demo(Options(seconds, home, master, plain or is_verbose(), fast, keep, token=single_token(None))):
            raise typer.Exit(1)
