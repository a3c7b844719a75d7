"""Runs the demo on Spark: opens the shop, sends events while the pipeline runs and is served, closes it, checks the results."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from hayase.console.pipeline_view import RUNNING
from hayase.console.standard_error import stderr_in
from hayase.console.stop_signals import Stopping, starting
from hayase.core.access import Access
from hayase.core.data_classes import dataclass
from hayase.core.errors import EnvironmentUnfit, HayaseError
from hayase.demo.display import DemoDisplay, open_demo_display
from hayase.demo.events import BLOCKED, Shop
from hayase.demo.hints import hints, program_name
from hayase.demo.observer import Observer
from hayase.demo.result_check import check_results
from hayase.demo.sender import Sender, Sent
from hayase.demo.shop_pipeline import fill_blocklist, shop_pipeline
from hayase.engine.home import Home
from hayase.engine.logs import Logs
from hayase.pipeline import Pipeline

if TYPE_CHECKING:
    from hayase.engine.commit.ledger import Ledger
    from hayase.engine.commit.manifests import Manifest
    from hayase.engine.spark.lanes import Lanes
    from hayase.serving import Server

__all__ = ["Options", "run_demo"]

SERVED_AT = "127.0.0.1:8421"
CHECK = 0.05
"""Seconds between two checks of the lanes."""


@dataclass(frozen=True, slots=True)
class Options:
    """`seconds` is how long the shop runs after the first result; `fast` sends the first `ticks` at once instead, `keep` runs
    until Ctrl-C. `home` is a temporary directory by default. With a `token` requests need it, and may change the operation."""

    seconds: float = 30.0
    home: Path | None = None
    master: str | None = None
    plain: bool = False
    fast: bool = False
    keep: bool = False
    ticks: int = 130
    token: str | None = None


def run_demo(options: Options) -> bool:
    """Run the shop until it closes, print the check of its results, and return whether everything adds up."""
    console = Console(highlight=False)
    with contextlib.ExitStack() as stack:
        home = options.home or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hayase-shop-")))
        pipeline, sent, manifest = _run_shop(home.expanduser().absolute(), options, console)
        report = check_results(pipeline, sent, manifest.totals)
        console.print(report)
        return report.good


def _run_shop(home: Path, options: Options, console: Console) -> tuple[Pipeline, Sent, Manifest]:
    """Run the shop until it closes; return its pipeline, what was sent to it, and the last manifest."""
    begun = time.monotonic()
    stopping = Stopping()
    with contextlib.ExitStack() as stack:
        display = stack.enter_context(open_demo_display(console, options.plain, begun))
        start_up = stack.enter_context(contextlib.ExitStack())
        start_up.enter_context(starting(console.print))
        display.phase("starting Spark")
        from hayase.engine.commit.ledger import open_ledger
        from hayase.engine.home import log_file
        from hayase.engine.spark.runner import run_lanes, start_session

        session_start = stack.enter_context(ThreadPoolExecutor(1)).submit(
            start_session, Home(home), options.master, on_phase=display.phase
        )
        pipeline = open_shop(home)  # planned while Spark starts
        stack.enter_context(pipeline.home.lock())
        logs = Logs(pipeline.home, pipeline.apply())
        ledger = stack.enter_context(open_ledger(pipeline.home))
        server = stack.enter_context(_served(ledger, options.token))
        needed = " (it asks for the token)" if options.token else ""
        display.say(f"the shop in a browser: {server.url}{needed}")
        customer = Shop().on_spree(0)
        display.show_hints(hints(home, server.url, customer, program_name(), with_token=options.token is not None))
        session = session_start.result()
        stack.enter_context(stderr_in(log_file(pipeline.home)))  # PySpark's threads print tracebacks when interrupted
        with run_lanes(
            pipeline.home, ledger=ledger, session=session, awake=True,
            on_commit=server.status.committed, on_phase=display.phase, on_condition=server.status.set_condition,
        ) as lanes:  # fmt: skip
            start_up.close()
            stack.enter_context(stopping.listening())
            observer, sender = Observer(pipeline), Sender(pipeline, options.ticks if options.fast else None)
            sender.start()

            def show() -> None:
                display.show(lanes.manifest, logs.ends(logs), pipeline.home, observer.observe)

            _sell(display, lanes, sender, stopping, options, show)
            display.phase("closing: finishing what is there")
            sent = sender.finish()
            while not lanes.is_idle():
                lanes.check()
                show()
                time.sleep(CHECK)
    return pipeline, sent, lanes.manifest


def _sell(
    display: DemoDisplay,
    lanes: Lanes,
    sender: Sender,
    stopping: Stopping,
    options: Options,
    show: Callable[[], None],
) -> None:
    """Let the shop run for the time that the options say, or until all is sent, a signal asks to stop, or the sender fails."""
    display.phase("waiting for the first result")
    until: float | None = None
    while not stopping and not sender.has_failed:
        if not options.keep and (sender.is_through or (until is not None and time.monotonic() >= until)):
            return
        lanes.check()
        if until is None and any(figures.written for figures in lanes.manifest.totals.values()):
            until = time.monotonic() + options.seconds
            display.phase(RUNNING)
            display.say(f"first result after {time.monotonic() - display.begun:.1f} s")
        show()
        stopping.wait(CHECK)


def open_shop(home: Path) -> Pipeline:
    """Return the pipeline with the blocklist loaded; a home whose shop has closed is refused."""
    pipeline = shop_pipeline(home)
    pipeline.apply()
    if pipeline.results("orders").log.index().finished:
        raise HayaseError(f'the shop in "{home}" has closed for good; name another home, or none')
    if pipeline.table("blocklist").get(next(iter(BLOCKED))) is None:
        fill_blocklist(pipeline)
    return pipeline


@contextlib.contextmanager
def _served(ledger: Ledger, token: str | None) -> Iterator[Server]:
    """Serve the home over HTTP inside the block: at the usual port, or at any free one if that is taken."""
    from hayase.serving import Status, serving

    status = Status("starting", ledger.latest())
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(
                serving(ledger.home, SERVED_AT, tables=ledger.tables, status=status, access=Access(token))
            )
        except EnvironmentUnfit:
            server = stack.enter_context(
                serving(ledger.home, "127.0.0.1:0", tables=ledger.tables, status=status, access=Access(token))
            )
        yield server
