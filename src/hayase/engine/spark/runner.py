"""A pipeline at work on Spark: start the session and the lanes, watch them, stop them in order."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator

from pyspark.sql import SparkSession

from hayase.core.stages import MAIN
from hayase.engine.commit.housekeeping import Housekeeping
from hayase.engine.commit.ledger import Ledger
from hayase.engine.commit.manifests import Manifest
from hayase.engine.condition import Condition
from hayase.engine.definition.definitions import latest
from hayase.engine.home import Home, log_file
from hayase.engine.spark.lanes import Lanes
from hayase.engine.spark.session import local_master, open_session, warm_up

__all__ = ["opened", "run", "run_until_idle", "running", "start_session"]

WATCH = 0.02
"""Seconds between two looks at whether a lane is idle, has failed or shall stop."""


def start_session(home: Home, master: str | None = None, verbose: bool = False) -> SparkSession:
    """A session for a home's lanes, its workers about to start too. On this machine, operations have slots of their own, so
    that their functions, which may only wait, do not hold up the rest."""
    if master is None:
        definition = latest(home)
        lanes = 1 if definition is None else len(definition.lanes)
        master = local_master(lanes * (os.cpu_count() or 1))
    session = open_session(master, log=log_file(home), verbose=verbose)
    warm_up(session)
    return session


@contextlib.contextmanager
def opened(home: Home) -> Iterator[Ledger]:
    """What was committed last, carried out: streams and tables can be read. The tables are open until this is left."""
    with contextlib.closing(Ledger(home)) as ledger:
        ledger.recover()
        yield ledger


@contextlib.contextmanager
def running(
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
    """The lanes of a home, running. On leaving, the batch that runs is finished; after an error it is not waited for.

    `on_condition` is told how they are, whenever that changes, also when they have failed.
    """
    if ledger is None:
        with opened(home) as own, running(
            home, ledger=own, master=master, session=session, awake=awake, verbose=verbose,
            on_commit=on_commit, on_phase=on_phase, on_condition=on_condition,
        ) as lanes:  # fmt: skip
            yield lanes
        return
    with _failing(on_condition):
        if session is None:
            on_phase("starting Spark")
            on_condition(Condition("starting", "starting Spark"))
            session = start_session(home, master, verbose)
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
        with contextlib.suppress(Exception):  # what went wrong first is what matters
            lanes.stop()
        raise
    lanes.check()


@contextlib.contextmanager
def _failing(on_condition: Callable[[Condition], None]) -> Iterator[None]:
    """Tell at once that the pipeline has failed, and why: what is left to be stopped may take its time."""
    try:
        yield
    except Exception as error:
        on_condition(Condition("failed", str(error) or type(error).__name__))
        raise


def run_until_idle(home: Home, *, master: str | None = None, session: SparkSession | None = None) -> Manifest:
    """Process everything that is there, then stop."""
    with running(home, master=master, session=session) as lanes:
        while not lanes.is_idle():
            lanes.check()
            time.sleep(WATCH)
    return lanes.manifest


def run(
    home: Home,
    *,
    ledger: Ledger | None = None,
    master: str | None = None,
    stop: Callable[[], bool] | None = None,
    on_commit: Callable[[Manifest], None] | None = None,
    on_phase: Callable[[str], None] = lambda phase: None,
    on_condition: Callable[[Condition], None] = lambda condition: None,
) -> Manifest:
    """Process streams as they grow, until `stop()`; without one, until interrupted."""
    never = threading.Event()
    at_work = running(
        home, ledger=ledger, master=master, awake=True,
        on_commit=on_commit, on_phase=on_phase, on_condition=on_condition,
    )  # fmt: skip
    with at_work as lanes, contextlib.suppress(KeyboardInterrupt):
        on_phase("running")
        while not (stop or never.is_set)():
            lanes.check()
            time.sleep(WATCH)
    return lanes.manifest
