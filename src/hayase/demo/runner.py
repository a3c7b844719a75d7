"""The demo on Spark: the shop opens, sells while everything runs, closes, and the books are made."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from hayase.console.display import open_live
from hayase.console.figures import History, stage_views
from hayase.console.pipeline_view import RUNNING, phase_view
from hayase.console.stop_signals import Stopping
from hayase.core.errors import EnvironmentUnfit, HayaseError
from hayase.demo.events import BLOCKED, TICK, Shop
from hayase.demo.hints import Hint, called, hints
from hayase.demo.observer import Sight, Watch
from hayase.demo.reconciliation import Sent, books_of
from hayase.demo.screen import Scene, plain_lines
from hayase.demo.shop_pipeline import fill_blocklist, shop_pipeline
from hayase.engine.batch.lane_governor import seen_of
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
SPEED = 60
"""How much faster time goes in the shop than on the wall."""
SENT_TWICE = 10
"""Of so many appends one is sent twice, as a client does that got no answer."""
LOOK, REDRAW, PLAIN = 0.05, 0.25, 3.0
"""Seconds between two looks at the lanes, between two frames, and between two groups of lines."""
HINT = 6.0
"""Seconds that a hint stays below the view."""

Show = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Options:
    """How long after the first result, where, and how it is shown. A shop in a hurry sends its first `ticks` at once, one that
    is kept open closes at Ctrl-C."""

    seconds: float = 30.0
    home: Path | None = None
    master: str | None = None
    plain: bool = False
    fast: bool = False
    keep: bool = False
    ticks: int = 130


class Sender(threading.Thread):
    """Sends the shop's events, tick by tick. Those that an earlier run has sent are known again, and not waited for."""

    def __init__(self, pipeline: Pipeline, at_once: int | None = None):
        """With `at_once` it sends so many ticks without waiting, and no more."""
        super().__init__(name="shop", daemon=True)
        self._pipeline, self._at_once = pipeline, at_once
        self._stopping = threading.Event()
        self._error: Exception | None = None
        self.sent = Sent()

    def run(self) -> None:
        """Send until `finish`, or until all is sent."""
        every = TICK.total_seconds() / SPEED
        due, tick = time.monotonic(), 0
        try:
            while not self._stopping.is_set() and tick != self._at_once:
                new = self._send(tick)
                tick += 1
                if new and self._at_once is None:
                    due = max(due + every, time.monotonic() - 1)
                    self._stopping.wait(max(0.0, due - time.monotonic()))
        except Exception as error:  # raised in `finish`, where somebody is listening
            self._error = error

    def _send(self, number: int) -> bool:
        """Send a tick; whether it was new."""
        tick, new = Shop().tick(number), False
        for stream, events in (("orders", tick.orders), ("lines", tick.lines)):
            answer = self._pipeline.append(stream, events, producer="shop", sequence=number)
            new |= not answer.repeated
            self.sent.records += len(events)
            self.sent.accepted += answer.accepted
            self.sent.refused += answer.refused
            if number % SENT_TWICE == 0:
                again = self._pipeline.append(stream, events, producer="shop", sequence=number)
                self.sent.repeats += again.repeated
        return new

    @property
    def is_through(self) -> bool:
        """Whether it has sent all it had."""
        return not self.is_alive()

    @property
    def has_failed(self) -> bool:
        """Whether it could not go on; `finish` says why."""
        return self._error is not None

    def finish(self) -> Sent:
        """Stop sending, and say that nothing will follow."""
        self._stopping.set()
        self.join()
        if self._error is not None:
            raise self._error
        for stream in ("orders", "lines"):
            self._pipeline.finish(stream)
        return self.sent


class Display:
    """Where the demo is shown: a live view on a terminal, lines everywhere else."""

    def __init__(self, console: Console, live: Live | None, begun: float):
        self._console, self._live, self.begun = console, live, begun
        self._phase, self._history = "starting", History()
        self._scene: Scene | None = None
        self._written_at = float("-inf")
        self.hints: list[Hint] = []

    def phase(self, text: str) -> None:
        """Say what is being done now."""
        self._phase = text
        if self._live is None:
            self.say(f"shop: {text}")
        elif self._scene is None:
            self._live.update(phase_view("shop", text))

    def try_out(self, found: list[Hint]) -> None:
        """Say what to try, above all that follows."""
        self.hints = found
        self._console.print("While it runs, try in a second terminal:", highlight=False)
        for each in found:
            if each.what:
                self._console.print(Text(f"  # {each.what}", style="dim"), soft_wrap=True)
            self._console.print(Text(f"  {each.command}", style="cyan"), soft_wrap=True)

    def show(self, manifest: Manifest, ends: dict[str, int], home: Home, look: Callable[[], Sight]) -> None:
        """Show the newest state, if it is time for that."""
        moment = time.monotonic()
        self._history = self._history.seen(moment, manifest)
        if moment < self._written_at + (PLAIN if self._live is None else REDRAW):
            return
        self._written_at = moment
        elapsed, previous = self._history.base()
        hint = self.hints[int((moment - self.begun) / HINT) % len(self.hints)].command if self.hints else ""
        stages = stage_views(previous, manifest, ends, elapsed)
        scene = Scene(self._phase, stages, look(), moment - self.begun, seen_of(home), hint)
        if self._live is not None:
            self._live.update(scene, refresh=True)
        else:
            for line in plain_lines(scene, self._scene):
                self.say(line)
        self._scene = scene

    def say(self, line: str) -> None:
        """Say something that stays."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def run_demo(options: Options) -> bool:
    """Run the shop until it closes; True if everything adds up."""
    console = Console(highlight=False)
    with contextlib.ExitStack() as stack:
        home = options.home or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hayase-shop-")))
        pipeline, sent, manifest = _live(home.expanduser().absolute(), options, console)
        books = books_of(pipeline, sent, manifest.totals)
        console.print(books)
        return books.good


def _live(home: Path, options: Options, console: Console) -> tuple[Pipeline, Sent, Manifest]:
    begun = time.monotonic()
    stopping = Stopping()
    with contextlib.ExitStack() as stack:
        display = stack.enter_context(_displayed(console, options.plain, begun))
        display.phase("starting Spark")
        from hayase.engine.home import log_file
        from hayase.engine.spark.runner import opened, running, start_session

        starting = stack.enter_context(ThreadPoolExecutor(1)).submit(start_session, Home(home), options.master)
        pipeline = _opened_shop(home)  # planned while Spark starts
        stack.enter_context(pipeline.home.lock())
        logs = Logs(pipeline.home, pipeline.apply())
        ledger = stack.enter_context(opened(pipeline.home))
        server = stack.enter_context(_served(ledger))
        display.try_out(hints(home, server.url, Shop().on_spree(0), called()))
        session = starting.result()
        log = stack.enter_context(log_file(pipeline.home).open("a", encoding="utf-8"))
        stack.enter_context(contextlib.redirect_stderr(log))  # PySpark's threads print tracebacks when interrupted
        with running(
            pipeline.home, ledger=ledger, session=session, awake=True,
            on_commit=server.status.committed, on_phase=display.phase, on_condition=server.status.tell,
        ) as lanes:  # fmt: skip
            stack.enter_context(stopping.listening())
            watch, sender = Watch(pipeline), Sender(pipeline, options.ticks if options.fast else None)
            sender.start()

            def show() -> None:
                display.show(lanes.manifest, logs.ends(logs), pipeline.home, watch.look)

            _sell(display, lanes, sender, stopping, options, show)
            display.phase("closing: finishing what is there")
            sent = sender.finish()
            while not lanes.is_idle():
                lanes.check()
                show()
                time.sleep(LOOK)
    return pipeline, sent, lanes.manifest


def _sell(display: Display, lanes: Lanes, sender: Sender, stopping: Stopping, options: Options, show: Show) -> None:
    """Let the shop run: so long after the first result, or until all is sent, or until somebody wants it to stop."""
    display.phase("waiting for the first result")
    until: float | None = None
    while not stopping and not sender.has_failed:
        if not options.keep and (sender.is_through or (until is not None and time.monotonic() >= until)):
            return
        lanes.check()
        if until is None and any(each.written for each in lanes.manifest.totals.values()):
            until = time.monotonic() + options.seconds
            display.phase(RUNNING)
            display.say(f"first result after {time.monotonic() - display.begun:.1f} s")
        show()
        stopping.wait(LOOK)


def _opened_shop(home: Path) -> Pipeline:
    """The pipeline, with the blocklist loaded; one whose shop has closed is not opened again."""
    pipeline = shop_pipeline(home)
    pipeline.apply()
    if pipeline.results("orders").log.index().finished:
        raise HayaseError(f'the shop in "{home}" has closed for good; name another home, or none')
    if pipeline.table("blocklist").get(next(iter(BLOCKED))) is None:
        fill_blocklist(pipeline)
    return pipeline


@contextlib.contextmanager
def _displayed(console: Console, plain: bool, begun: float) -> Iterator[Display]:
    if plain or not console.is_terminal:
        yield Display(console, None, begun)
        return
    with open_live(console, phase_view("shop", "starting"), refresh_per_second=4) as live:
        yield Display(console, live, begun)


@contextlib.contextmanager
def _served(ledger: Ledger) -> Iterator[Server]:
    """What is committed, over HTTP: at the usual port, or at any if that is taken."""
    from hayase.serving import Status, serving

    status = Status("starting", ledger.latest())
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(serving(ledger.home, SERVED_AT, tables=ledger.tables, status=status))
        except EnvironmentUnfit:
            server = stack.enter_context(serving(ledger.home, "127.0.0.1:0", tables=ledger.tables, status=status))
        yield server
