"""The kernels of a shared scan: several queries that aggregate the same records over different windows (paper 2).

Each kernel has its own state and its own results, the same as without the others; only the partial aggregates in memory are
shared.
"""

from __future__ import annotations

from collections.abc import Sequence

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
        """Run every kernel. The shared input of each has the columns of all; its other inputs are its own."""
        common = _join_columns([batches[self._shared] for batches in inputs])
        outcomes = []
        for kernel, batches in zip(self.kernels, inputs, strict=True):
            widened = [common if number == self._shared else batch for number, batch in enumerate(batches)]
            outcomes.append(kernel.process(widened, since, clock, version))
        return outcomes


def _join_columns(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch with the columns of all batches, which hold the same records."""
    first = batches[0]
    same = all(batch.column(OFFSET).equals(first.column(OFFSET)) for batch in batches[1:])
    assert same, "stages of a scan group have equal positions, so they read the same records"
    columns = {name: column for batch in batches for name, column in zip(batch.schema.names, batch.columns)}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
