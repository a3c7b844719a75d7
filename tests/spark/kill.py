"""A program to be killed: appends the chunks of a seeded shop and runs its pipeline on Spark until all is done.

    python kill.py HOME CHUNKS [MASTER]

Started again on the same home it goes on. Appends carry (producer, sequence), so those of an earlier life are repeats.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import hayase as hy
import marking
import shop
from hayase.engine.running import running
from shop import Event

SLACK = 20
MODELLED = ("big", "spend", "ranks")
STAGES = (*MODELLED, *shop.WINDOWED)
ROWS = 25


def chunk(number: int) -> list[Event]:
    """The events of one append: about in order, some of them late, some without a user or an amount, some too large."""
    seed = random.Random(number)
    return [
        Event(
            at=number * ROWS + at + seed.randint(-30, 5),
            user=seed.choice(["a", "b", "c", "d", None]),
            amount=seed.choice([None, 1, 2, 3, 5, 8, 2**62]),
        )
        for at in range(ROWS)
    ]


def events(chunks: int) -> list[Event]:
    return [each for number in range(chunks) for each in chunk(number)]


def pipeline_at(home: Path) -> hy.Pipeline:
    """The shop, and an operation that fails for some of its events."""
    p = shop.shop(home, SLACK, STAGES)
    p.operation(marking.mark, reads="events", writes="marks", schema=marking.MARKS, attempts=1, time_limit="2 s")
    return p


def main(home: Path, chunks: int, master: str | None) -> None:
    pipeline = pipeline_at(home)
    committed = threading.Event()
    with pipeline.home.lock():
        pipeline.apply()
        with running(pipeline.home, master=master, on_commit=lambda manifest: committed.set()) as lane:
            for number in range(chunks):
                committed.clear()
                rows = [each.row() for each in chunk(number)]
                if not pipeline.append("events", rows, producer="till", sequence=number).repeated:
                    while not committed.wait(0.2):
                        lane.check()
            if not pipeline.results("events").log.index().finished:
                pipeline.finish("events")
            while not lane.is_idle():
                lane.check()
                time.sleep(0.02)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
