"""The bundled demo: a shop's events as they are in life, late, repeated and broken ones too, through two stages, live.

It ends by itself and adds everything up: what was sent is what was counted, or lies in the dead letters with its reason.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from hayase.console.display import open_display
from hayase.console.pipeline_view import RUNNING
from hayase.console.stopping import Stopping
from hayase.engine.home import Home
from hayase.engine.logs import Logs
from hayase.engine.manifests import Manifest
from hayase.pipeline import Pipeline

__all__ = ["Sent", "Shop", "demo_pipeline", "run_demo"]

SLACK = timedelta(seconds=2)
USERS = ("taro", "hana", "ken", "yui", "sora", "mei", "riku", "aoi")
TYPES = ("view", "cart", "purchase")
WITHIN_SLACK, TOO_LATE, BROKEN, ODD_QUANTITY, SENT_TWICE = 50, 5, 5, 5, 100
"""How often each of these happens, in thousandths."""
RATE = 2_000
"""Events a second."""
REDRAW = 0.2
"""Seconds between two frames."""


def demo_pipeline(home: Path) -> Pipeline:
    """The shop: its events, the revenue of each order line, and what every user has spent so far."""
    p = Pipeline("shop", home=home)
    p.stream(
        "events",
        schema="time timestamp, uuid string, type string, user_id string, quantity string, price double",
        time="time",
        id="uuid",
        slack=SLACK,
    )
    p.query("revenue", "select user_id, quantity::int * price as amount from events where type = 'purchase'")
    p.query(
        "activity",
        "select user_id, count(*) as events, sum(case when type = 'purchase' then price end) as purchases "
        "from events group by user_id",
    )
    return p


@dataclass(slots=True)
class Sent:
    """What the shop sent, and what it was answered."""

    records: int = 0
    accepted: int = 0
    refused: int = 0
    repeats: int = 0


@dataclass(slots=True)
class Shop:
    """Makes events, the same ones for the same seed and moments."""

    seed: int = 1
    _random: random.Random = field(init=False)
    _number: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 (a shop, not a secret)

    def events(self, count: int, now: datetime) -> Iterator[dict[str, Any]]:
        """Events of this moment, some of them from a while ago, some that make no sense."""
        for _ in range(count):
            self._number += 1
            dice = self._random.random() * 1000
            event: dict[str, Any] = {
                "time": now,
                "uuid": f"{self.seed}-{self._number}",
                "type": self._random.choices(TYPES, (80, 12, 8))[0],
                "user_id": self._random.choice(USERS),
                "quantity": str(self._random.randint(1, 4)),
                "price": round(self._random.lognormvariate(3, 1), 2),
            }
            if dice < WITHIN_SLACK:
                event["time"] = now - SLACK * self._random.random()
            elif dice < WITHIN_SLACK + TOO_LATE:
                event["time"] = now - SLACK * (2 + 10 * self._random.random())
            elif dice < WITHIN_SLACK + TOO_LATE + BROKEN:
                event |= self._random.choice(({"price": "a lot"}, {"time": None}, {"userid": "typo"}))
            elif dice < WITHIN_SLACK + TOO_LATE + BROKEN + ODD_QUANTITY:
                event |= {"type": "purchase", "quantity": "two"}
            yield event


class Sender(threading.Thread):
    """Sends the shop's events at a steady rate until told to stop; some appends twice, as a client that got no answer would."""

    def __init__(self, pipeline: Pipeline, rate: int, every: float = 0.1):
        super().__init__(name="shop", daemon=True)
        self._pipeline, self._rate, self._every = pipeline, rate, every
        self._stopping = threading.Event()
        self._error: Exception | None = None
        self.sent = Sent()

    def run(self) -> None:
        """Send until `finish`."""
        shop = Shop()
        due = time.monotonic()
        sequence = 0
        try:
            while not self._stopping.wait(max(0.0, due - time.monotonic())):
                due += self._every
                events = list(shop.events(int(self._rate * self._every), datetime.now(UTC)))
                answer = self._pipeline.append("events", events, producer="shop", sequence=sequence)
                self.sent.records += len(events)
                self.sent.accepted += answer.accepted
                self.sent.refused += answer.refused
                if sequence % (1000 // SENT_TWICE) == 0:
                    again = self._pipeline.append("events", events, producer="shop", sequence=sequence)
                    self.sent.repeats += again.repeated
                sequence += 1
        except Exception as error:  # raised in `finish`, where somebody is listening
            self._error = error

    def finish(self) -> Sent:
        """Stop sending, and say that nothing will follow."""
        self._stopping.set()
        self.join()
        if self._error is not None:
            raise self._error
        self._pipeline.finish("events")
        return self.sent


def run_demo(seconds: float, home: Path | None, master: str | None, plain: bool) -> bool:
    """Run the shop until so long after the first result; True if everything adds up."""
    with contextlib.ExitStack() as stack:
        place = (
            Path(home) if home is not None else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hayase-")))
        )
        stack.enter_context(Home(place).lock())
        console = Console()
        pipeline, sent, manifest = _live(place, seconds, master, console, plain)
        return _summed_up(pipeline, sent, manifest, console)


def _live(
    home: Path, seconds: float, master: str | None, console: Console, plain: bool
) -> tuple[Pipeline, Sent, Manifest]:
    begun = time.monotonic()
    stopping = Stopping()
    with contextlib.ExitStack() as stack:
        display = stack.enter_context(open_display(console, "shop", begun, plain=plain))
        display.phase("starting Spark")
        from hayase.engine.running import running, start_session

        starting = stack.enter_context(ThreadPoolExecutor(1)).submit(start_session, Home(home), master)
        pipeline = demo_pipeline(home)  # planned while Spark starts
        logs = Logs(pipeline.home, pipeline.apply())
        sender = Sender(pipeline, RATE)
        sender.start()
        with running(pipeline.home, session=starting.result(), on_phase=display.phase) as lane:
            stack.enter_context(stopping.listening())
            display.phase("waiting for the first result")
            until = None
            while not stopping and (until is None or time.monotonic() < until):
                lane.check()
                if until is None and logs["activity"].index().next:
                    until = time.monotonic() + seconds
                    display.phase(RUNNING)
                    console.print(f"first result after {time.monotonic() - begun:.1f} s")
                if until is not None:
                    display.show(time.monotonic(), lane.manifest, logs.ends())
                stopping.wait(REDRAW)
            display.phase("finishing what is there")
            sent = sender.finish()
            while not lane.is_idle():
                lane.check()
                time.sleep(0.02)
            display.show(time.monotonic(), lane.manifest, logs.ends())
    return pipeline, sent, lane.manifest


def _summed_up(pipeline: Pipeline, sent: Sent, manifest: Manifest, console: Console) -> bool:
    """The books: what was sent, what each stage made of it, and whether it adds up."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for name in ("", "read", "= processed", "+ dead letters", ""):
        table.add_column(name, justify="left" if not name else "right")
    entries = [("the shop's appends", sent.records, sent.accepted, sent.refused)]
    entries += [(name, each.read, each.processed, each.dead) for name, each in manifest.totals.items()]
    good = all(read == processed + dead for _, read, processed, dead in entries)
    good &= all(each.read == sent.accepted and not each.waiting for each in manifest.totals.values())
    for name, read, processed, dead in entries:
        mark = "[green]✓[/]" if read == processed + dead else "[bold red]✗[/]"
        table.add_row(name, f"{read:,}", f"{processed:,}", f"{dead:,}", mark)
    console.print(table)
    letters = pipeline.dead_letters()
    good &= len(letters) == sent.refused + sum(each.dead for each in manifest.totals.values())
    console.print(f"{sent.repeats} appends were sent twice, and recognised. {len(letters)} dead letters, such as:")
    examples = {(each["stage"], each["reason"][:20]): each for each in letters}
    for each in list(examples.values())[:4]:
        console.print(
            f"  {each['stage']}: {each['reason']}", markup=False, highlight=False, overflow="ellipsis", no_wrap=True
        )
    now = pipeline.query("activity").at()
    busiest = sorted(now, key=lambda row: -(row["purchases"] or 0))[:3]
    said = ", ".join(f"{row['user_id']} {row['purchases']:,.2f} in {row['events']} events" for row in busiest)
    console.print(f"spent most: {said}", highlight=False)
    console.print("[green]everything adds up[/]" if good else "[bold red]it does not add up[/]")
    return good
