"""The daemon from which Spark forks its Python workers, with everything that tasks need imported and compiled.

Spark's own daemon imports nothing, so that every new worker would need seconds for imports: at start, and whenever one is lost.
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
"""Modules that tasks would otherwise import on first use."""

if __name__ == "__main__":
    for name in NEEDED:
        import_module(name)
    compile_ahead()
    gc.freeze()  # objects shared with workers are never collected
    gc.set_threshold(50_000, 20, 20)  # a batch creates millions of objects, few of them in reference cycles
    manager()
