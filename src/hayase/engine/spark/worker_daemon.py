"""The process from which Spark forks its Python workers, with everything imported and compiled that a task needs.

Spark's own daemon imports nothing, so every new worker spends seconds on it: at the start, and whenever workers are lost.
"""

from __future__ import annotations

import gc
from importlib import import_module

from pyspark.daemon import manager

from hayase.lifetimes.kernel import compile_ahead

NEEDED = (
    "hayase.engine.spark.lane",
    "hayase.engine.batch.map_side",
    "hayase.engine.definition.stage_graph",
    "hayase.jobs.job_planner",
    "hayase.tables.table_planner",
    "hayase.tables.lookups",
    "hayase.tables.rocksdb",
)
"""Modules that tasks import when they first need them."""

if __name__ == "__main__":
    for name in NEEDED:
        import_module(name)
    compile_ahead()
    gc.freeze()  # what all workers share is never garbage
    gc.set_threshold(50_000, 20, 20)  # a batch makes objects by the million, and few of them in circles
    manager()
