"""A test kit for pipelines: append rows, run until idle, read results, with a clock that the test sets. No Spark, no waiting.

    >>> with trial(name="shop") as t:
    ...     _ = t.stream("orders", "time timestamp, user string, amount double", slack="10 seconds")
    ...     _ = t.query("spend", "select user, sum(amount) as spend from orders group by user")
    ...     _ = t.append("orders", [{"time": at(5), "user": "taro", "amount": 2.0}, {"time": at(1), "user": "taro", "amount": 1.0}])
    ...     t.finish("orders")
    ...     _ = t.run()
    ...     [(row["spend"], since == at(5)) for row, since, until in t.intervals("spend")]
    [(1.0, False), (3.0, True)]

A trial of an existing pipeline file: `trial(file="pipeline.yaml")`. Results are the same on Spark, which runs the same map
sides, kernels and commits.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hayase.connectors.laws import LawBroken, check_sink, check_source
from hayase.core.errors import HayaseError
from hayase.core.stages import MAIN
from hayase.core.times import duration, instant
from hayase.engine.batch.gate import FileGate, Grants
from hayase.engine.batch.kernel_cache import forget_kernels
from hayase.engine.batch.report import Figures
from hayase.engine.commit.manifests import Manifest
from hayase.engine.results.query_results import Time
from hayase.pipeline import Pipeline

__all__ = [
    "START",
    "LawBroken",
    "ManualClock",
    "Trial",
    "at",
    "check_sink",
    "check_source",
    "trial",
]

START = datetime(2026, 1, 1, tzinfo=UTC)
"""The start of a manual clock, from which `at` counts."""


def at(seconds: float) -> datetime:
    """Return the time `seconds` after `START`.

    >>> at(1.5).isoformat()
    '2026-01-01T00:00:01.500000+00:00'
    """
    return START + timedelta(seconds=seconds)


class ManualClock:
    """A wall clock that moves only when the test advances or sets it; calling it returns microseconds.

    >>> clock = ManualClock()
    >>> clock.advance("1 minute")
    >>> clock() - instant(START)
    60000000
    """

    def __init__(self, now: datetime | str | int = START):
        self._now = instant(now)

    def __call__(self) -> int:
        return self._now

    def advance(self, by: str | int | timedelta) -> None:
        """Move the clock forward."""
        self._now += duration(by)

    def set(self, now: datetime | str | int) -> None:
        """Set the clock."""
        self._now = instant(now)


class Trial(Pipeline):
    """A pipeline in a home of its own, run in this process with a clock that the test sets."""

    clock: ManualClock

    def run(
        self,
        *,
        spark: bool = False,
        serve: str | None = None,
        token: str | None = None,
        master: str | None = None,
        traces: str | None = None,
        stop: Callable[[], bool] | None = None,
        batch_rows: int | None = None,
    ) -> Manifest:
        """Process everything that is in the streams, then stop; with `batch_rows`, in batches of at most that many records.

        A trial uses neither Spark nor HTTP and stops by itself, so the other arguments of `Pipeline.run` are refused.
        """
        refused = {"spark": spark, "serve": serve, "token": token, "master": master, "traces": traces, "stop": stop}
        for name, value in refused.items():
            if value:
                raise HayaseError(f"a trial runs in this process until idle and takes no {name}; use Pipeline.run")
        FileGate(self.home.gate(MAIN)).set(Grants() if batch_rows is None else Grants(limit=batch_rows))
        return self.run_until_idle(spark=False)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the records of a stream or of the output of a query, in the order of event time."""
        return self.results(name).rows()

    def intervals(self, name: str) -> list[tuple[dict[str, Any], Any, Any]]:
        """Return the rows of a query with their lifetimes: (row, start, end)."""
        return self.results(name).intervals()

    def changes(self, name: str) -> list[tuple[Any, str, dict[str, Any]]]:
        """Return the changes of a query: (time, "+" or "-", row)."""
        return self.results(name).changes()

    def at(self, name: str, time: Time | None = None) -> list[dict[str, Any]]:
        """Return the rows of a query that are valid at an instant; without one, at the latest final instant."""
        return self.results(name).at(time)

    def figures(self, stage: str) -> Figures:
        """Return the counts of a stage: read = processed + dead + repeated + waiting."""
        return self.progress().totals[stage]

    def restart(self) -> None:
        """Drop everything in memory, as after a crash: the next run continues from the files."""
        forget_kernels()


@contextlib.contextmanager
def trial(name: str = "trial", *, file: str | Path | None = None, home: str | Path | None = None) -> Iterator[Trial]:
    """A new pipeline for one test, or the one declared in `file`; its home is temporary unless `home` is given."""
    clock = ManualClock()
    with contextlib.ExitStack() as stack:
        place = Path(home) if home is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pipeline = Trial(name, home=place, clock=clock)
        if file is not None:
            pipeline.declaration = Pipeline.from_file(file, home=place).declaration
        pipeline.clock = clock
        yield pipeline
