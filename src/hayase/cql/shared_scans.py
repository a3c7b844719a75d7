"""Planning of shared scans: queries that aggregate the same records over different windows run together, in one pass (paper 2).

A group is identified by what its members read: the stream, the key, and the filter and computed columns, if there are any. The
state and the results of a member do not depend on the other members, so queries can be added and removed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.stages import Input, SharedKernels, SharedScan, Stage
from hayase.cql.map_sides import SelectedColumns
from hayase.lifetimes import plans
from hayase.lifetimes.kernel import KernelConfig, QueryKernel

__all__ = ["KernelFactory", "shared_scan"]


@dataclass(frozen=True, slots=True)
class KernelFactory:
    """The factory of a query's kernels."""

    config: KernelConfig

    def __call__(self, bucket: int, buckets: int) -> QueryKernel:
        """A new kernel for a bucket."""
        return QueryKernel(self.config, bucket, buckets)


def shared_scan(inputs: Sequence[Input], plan: plans.Node) -> SharedScan | None:
    """How a stage takes part in a shared scan; None unless it reads a single stream, through shared windows alone."""
    leaves = [leaf for leaf in _leaves(plan) if not isinstance(leaf, plans.Instants)]
    if len(leaves) != 1 or not isinstance(leaves[0], plans.Shared):
        return None
    first, windows = inputs[0], leaves[0]
    if windows.input != 0 or windows.guard is not None or any(source.stream != first.stream for source in inputs):
        return None
    computed = "" if isinstance(first.map_side, SelectedColumns) else repr(first.map_side)
    text = "\0".join((first.stream, *first.key, "", *windows.keys, "", windows.where or "", computed, repr(inputs[1:])))
    group = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return SharedScan(group, merge_inputs, share_kernels)


def _leaves(node: plans.Node) -> Iterator[plans.Node]:
    below = plans.children(node)
    if not below:
        yield node
    for child in below:
        yield from _leaves(child)


def merge_inputs(inputs: Sequence[Input]) -> Input:
    """One input with the columns of all of these, which choose columns of one stream or are equal."""
    first = inputs[0]
    if all(source == first for source in inputs):
        return first
    fields = {field.name: field for source in inputs for field in source.schema}
    schema = pa.schema(list(fields.values()))
    return Input(
        first.stream, SelectedColumns(tuple(fields), schema), schema, first.key, first.broadcast, silent=first.silent
    )


def share_kernels(stages: Sequence[Stage], bucket: int, buckets: int) -> SharedKernels:
    """The kernels of stages that run together, for a bucket."""
    from hayase.lifetimes.shared_scan import SharedScanKernel  # only workers need it

    factories = [stage.kernel for stage in stages]
    return SharedScanKernel(
        [factory.config for factory in factories if isinstance(factory, KernelFactory)], bucket, buckets
    )
