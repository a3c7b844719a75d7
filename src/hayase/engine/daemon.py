"""The process from which Spark forks its Python workers, with everything imported and compiled that a task needs.

Spark's own daemon imports nothing, so every new worker spends seconds on it: at the start, and whenever workers are lost.
"""

from __future__ import annotations

from pyspark.daemon import manager

from hayase.engine import lane  # noqa: F401 (a worker forked from here has it)
from hayase.lifetimes.kernel import compile_ahead

if __name__ == "__main__":
    compile_ahead()
    manager()
