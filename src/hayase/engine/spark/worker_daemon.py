"""The daemon from which Spark forks its Python workers, with everything that tasks need imported and compiled.

Spark's own daemon imports nothing, so that every new worker would need seconds for imports: at start, and whenever one is lost.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from pyspark.daemon import manager

NEEDED = (
    "hayase.engine.spark.lane",
    "hayase.engine.batch.map_side",
    "hayase.engine.definition.stage_graph",
    "hayase.jobs.job_planner",
    "hayase.tables.table_planner",
    "hayase.tables.lookups",
    "hayase.tables.rocksdb",
)
"""Modules that tasks would otherwise import on first use."""


@contextmanager
def ending_with_parent() -> Iterator[None]:
    """End this process if its parent, the JVM, ends inside the block: Spark's daemon notices that only when it serves."""
    parent = os.getppid()

    def check(*_: object) -> None:
        if os.getppid() != parent:
            os._exit(1)

    before = signal.signal(signal.SIGALRM, check)  # not a thread: workers are forked from this process
    signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


if __name__ == "__main__":
    with ending_with_parent():
        from hayase.lifetimes.compilation import compile_ahead

        for name in NEEDED:
            import_module(name)
        compile_ahead()
    gc.freeze()  # objects shared with workers are never collected
    gc.set_threshold(50_000, 20, 20)  # a batch creates millions of objects, few of them in reference cycles
    manager()
