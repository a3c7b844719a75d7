"""Kernels of several queries that aggregate the same records over different windows: these are shared (paper 2).

Each kernel keeps its own state and gives its own rows, the same as without the others; only the partial aggregates in
memory are common.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from hayase.core.stages import OFFSET, Outcome
from hayase.lifetimes.kernel import KernelConfig, QueryKernel, in_order
from hayase.lifetimes.plans import Shared
from hayase.lifetimes.shared_windows import SharedState

__all__ = ["SharedScanKernel"]


class SharedScanKernel:
    """The kernels of queries whose one leaf is a `Shared` over the same records (`hayase.core.stages.SharedKernels`)."""

    def __init__(self, configs: Sequence[KernelConfig], bucket: int, buckets: int) -> None:
        leaves = [leaf for config in configs for leaf in in_order(config.plan) if isinstance(leaf, Shared)]
        self._shared = leaves[0].input
        state = SharedState(leaves)
        self.kernels = [QueryKernel(config, bucket, buckets, state) for config in configs]

    def process(
        self, inputs: Sequence[Sequence[pa.RecordBatch]], since: int, clock: int, version: int
    ) -> list[Outcome]:
        """Every kernel over the columns of all of them, and what else it reads."""
        common = _join_columns([batches[self._shared] for batches in inputs])
        outcomes = []
        for kernel, batches in zip(self.kernels, inputs, strict=True):
            own = [common if number == self._shared else batch for number, batch in enumerate(batches)]
            outcomes.append(kernel.process(own, since, clock, version))
        return outcomes


def _join_columns(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The columns of all batches, which are of the same records."""
    first = batches[0]
    same = all(each.column(OFFSET).equals(first.column(OFFSET)) for each in batches[1:])
    assert same, "company stands at the same place, so it reads the same records"
    columns = {name: column for each in batches for name, column in _named(each)}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _named(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    return zip(batch.schema.names, batch.columns)
