"""Running a pipeline on Spark: starts the session and the lanes, monitors them, and stops them in order."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator

from pyspark.sql import SparkSession

from hayase.core.stages import MAIN
from hayase.engine.commit.housekeeping import Housekeeping
from hayase.engine.commit.ledger import Ledger, open_ledger
from hayase.engine.commit.manifests import Manifest
from hayase.engine.condition import Condition
from hayase.engine.definition.definitions import latest
from hayase.engine.home import Home, log_file
from hayase.engine.spark.lanes import Lanes
from hayase.engine.spark.session import local_master, open_session, warm_up

__all__ = ["run_lanes", "run_until_idle", "start_session"]

WATCH = 0.02
"""Seconds between checks whether a lane is idle, has failed or is to stop."""


def start_session(
    home: Home,
    master: str | None = None,
    verbose: bool = False,
    on_phase: Callable[[str], None] = lambda phase: None,
) -> SparkSession:
    """Start a Spark session for the lanes of a home, and its workers in the background. The default, local master has task slots
    for each lane, so that functions of operations, which may only wait, do not delay the main lane."""
    if master is None:
        definition = latest(home)
        lanes = 1 if definition is None else len(definition.lanes)
        master = local_master(lanes * (os.cpu_count() or 1))
    session = open_session(master, log=log_file(home), verbose=verbose, on_phase=on_phase)
    warm_up(session)
    return session


@contextlib.contextmanager
def run_lanes(
    home: Home,
    *,
    ledger: Ledger | None = None,
    master: str | None = None,
    session: SparkSession | None = None,
    awake: bool = False,
    verbose: bool = False,
    on_commit: Callable[[Manifest], None] | None = None,
    on_phase: Callable[[str], None] = lambda phase: None,
    on_condition: Callable[[Condition], None] = lambda condition: None,
) -> Iterator[Lanes]:
    """Run the lanes of a home while the context is active. On exit, current batches are finished; after an error they are not.

    `on_condition` is called whenever the condition changes, also when the pipeline has failed.
    """
    if ledger is None:
        with open_ledger(home) as own, run_lanes(
            home, ledger=own, master=master, session=session, awake=awake, verbose=verbose,
            on_commit=on_commit, on_phase=on_phase, on_condition=on_condition,
        ) as lanes:  # fmt: skip
            yield lanes
        return
    with _failing(on_condition):
        if session is None:
            on_phase("starting Spark")
            on_condition(Condition("starting", "starting Spark"))
            session = start_session(home, master, verbose, on_phase)
        on_phase("starting the lanes")
        lanes = Lanes(session, home, ledger, awake=awake, on_commit=on_commit, on_condition=on_condition)
    try:
        with _failing(on_condition):
            with Housekeeping(home, ledger.of(MAIN)):
                yield lanes
            on_phase("stopping")
            on_condition(Condition("stopping"))
            lanes.drain()
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is raised
            lanes.stop()
        raise
    lanes.check()


@contextlib.contextmanager
def _failing(on_condition: Callable[[Condition], None]) -> Iterator[None]:
    """Report at once that the pipeline has failed, and why: stopping the rest may take long."""
    try:
        yield
    except Exception as error:
        on_condition(Condition("failed", str(error) or type(error).__name__))
        logging.getLogger(__name__).info("the pipeline has failed: %s", error)
        raise


def run_until_idle(home: Home, *, master: str | None = None, session: SparkSession | None = None) -> Manifest:
    """Process all records that are in the streams, then stop; return the last manifest."""
    with run_lanes(home, master=master, session=session) as lanes:
        while not lanes.is_idle():
            lanes.check()
            time.sleep(WATCH)
    return lanes.manifest
