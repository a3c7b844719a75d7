"""Commands that run a pipeline on Spark: run, demo."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hayase.cli.pipeline_location import DEFAULT
from hayase.cli.terminal import HomeOption, Master, PipelineFile, Verbose, errors, is_verbose, output
from hayase.console.stop_signals import Stopping
from hayase.core.errors import HayaseError

if TYPE_CHECKING:
    from rich.console import Console

    from hayase.console.display import Display
    from hayase.engine.commit.ledger import Ledger
    from hayase.engine.commit.manifests import Manifest
    from hayase.engine.condition import Condition
    from hayase.engine.home import Home
    from hayase.serving import Status

__all__ = ["demo", "run"]

LOOK = 0.05
"""Seconds between two looks at the lane."""
REDRAW = 0.25
"""Seconds between two frames."""
SERVED_AT = "127.0.0.1:8421"
TOKEN = "HAYASE_TOKEN"  # noqa: S105 - where it stands, not what it is

Plain = Annotated[bool, typer.Option("--plain", help="Lines instead of the live view.")]


def run(
    file: PipelineFile = DEFAULT,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Stop when everything there is has been processed.")
    ] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help=f"Answer over HTTP while it runs, at {SERVED_AT}: tables, streams, queries.")
    ] = False,
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="HOST:PORT", help="Serve there; port 0: any free one.", show_default=False),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"Requests need the token in FILE, or in the variable {TOKEN}; other machines can ask only with one.",
            show_default=False,
        ),
    ] = None,
    master: Master = None,
    home: HomeOption = None,
    plain: Plain = False,
    verbose: Verbose = False,
) -> None:
    """Run a pipeline on Spark; Ctrl-C finishes the running batch and stops, a second Ctrl-C stops at once.

    Example: [cyan]hayase run pipeline.yaml --until-idle[/]

    With its tables over HTTP: [cyan]hayase run --serve[/]    and then: [cyan]curl http://127.0.0.1:8421/tables[/]
    """
    from hayase.console.display import open_display
    from hayase.console.pipeline_view import summary
    from hayase.pipeline import Pipeline

    place = address or (SERVED_AT if serve else None)
    if place is None and token_file is not None:
        raise typer.BadParameter("it is asked of requests; give --serve too", param_hint="--token-file")
    token = None if place is None else _token(token_file)
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
        from hayase.engine.batch.lane_governor import seen_of
        from hayase.engine.home import log_file
        from hayase.engine.spark.runner import opened, running

        ledger = stack.enter_context(opened(pipeline.home))
        status = None if place is None else stack.enter_context(_served(console, ledger, place, token))
        if not is_verbose():  # PySpark's threads print tracebacks when they are interrupted
            log = stack.enter_context(log_file(pipeline.home).open("a", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stderr(log))
        with running(
            pipeline.home,
            ledger=ledger,
            master=master,
            awake=not until_idle,
            verbose=is_verbose(),
            on_commit=None if status is None else status.committed,
            on_phase=display.phase,
            on_condition=partial(_tell, display, status),
        ) as lanes:
            # not before: Spark takes Ctrl-C for itself when its session starts; until the lane is drained
            stack.enter_context(stopping.listening())
            if status is not None and status.now.manifest.version < lanes.manifest.version:
                status.committed(lanes.manifest)  # what the lane began with
            display.phase("waiting for the first batch")
            shown = float("-inf")
            while not stopping and not (until_idle and lanes.is_idle()):
                lanes.check()
                moment = time.monotonic()
                if moment >= shown + REDRAW:
                    display.show(moment, lanes.manifest, _ends(pipeline.home, lanes.manifest), seen_of(pipeline.home))
                    shown = moment
                stopping.wait(LOOK)
            ends = _ends(pipeline.home, lanes.manifest)
            display.show(time.monotonic(), lanes.manifest, ends, seen_of(pipeline.home))
    console.print(summary(start, lanes.manifest, _ends(pipeline.home, lanes.manifest), time.monotonic() - begun))


def _token(file: Path | None) -> str | None:
    """What requests must have, from a file or the environment; on the command line everybody could see it."""
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
    """What is committed, over HTTP; whoever runs the pipeline tells the status of what follows."""
    from hayase.serving import Status, serving

    status = Status("starting", ledger.latest())
    with serving(ledger.home, address, tables=ledger.tables, status=status, token=token) as server:
        needed = " (requests need the token)" if token else ""
        console.print(f"serving at {server.url}{needed}", markup=False, soft_wrap=True)
        yield status


def _tell(display: Display, status: Status | None, condition: Condition) -> None:
    """Tell the server how the pipeline is, and the person who watches what may worry them."""
    from hayase.console.pipeline_view import RUNNING

    if status is not None:
        status.tell(condition)
    if condition.state in ("recovering", "stalled"):
        display.phase(f"{condition.state}: {condition.reason}")
    elif condition.state == "running":
        display.phase(RUNNING if condition.notice is None else f"{RUNNING}; {condition.notice}")


def _ends(home: Home, manifest: Manifest) -> dict[str, int]:
    """Where the logs end now that stages read; under the definition that runs, as a newer one's may not be there yet."""
    from hayase.engine.definition.definitions import load
    from hayase.engine.logs import Logs

    offset = manifest.offset
    if not offset.definition:
        return {}
    logs = Logs(home, load(home, offset.definition))
    return logs.ends(stream for inputs in offset.positions.values() for stream in inputs)


def demo(
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="N", min=0, help="How long to go on after the first result.")
    ] = 30.0,
    fast: Annotated[bool, typer.Option("--fast", help="Few events, all at once, and no waiting.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Go on until Ctrl-C; then the books are made.")] = False,
    home: HomeOption = None,
    master: Master = None,
    plain: Plain = False,
    verbose: Verbose = False,
) -> None:
    """Watch a shop that uses all of Hayase: queries, tables, a job and an operation over events that never stop.

    It says what to try in a second terminal meanwhile. At the end every output is compared with plain Python over the same
    events; the exit code is 1 if something does not add up.

    Example: [cyan]hayase demo --seconds 60[/]

    As long as you like: [cyan]hayase demo --keep[/]
    """
    from hayase.demo.runner import Options, run_demo

    if not run_demo(Options(seconds, home, master, plain or is_verbose(), fast, keep)):
        raise typer.Exit(1)
