"""Queries that aggregate the same records over different windows run together: one reading, one pass (paper 2).

A group is known by what its members read: the stream, the key, and the filter and computed columns, if there are any. Who
else is in it says nothing about a member's state or answers: each has its own, so that queries come and go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from hayase.core.stages import Input, SharedKernels, SharedScan, Stage
from hayase.cql.map_sides import Chosen
from hayase.lifetimes import plans
from hayase.lifetimes.kernel import KernelConfig, QueryKernel

__all__ = ["Making", "shared_scan"]


@dataclass(frozen=True, slots=True)
class Making:
    """How a query's kernel is made."""

    config: KernelConfig

    def __call__(self, bucket: int, buckets: int) -> QueryKernel:
        """The kernel of a bucket."""
        return QueryKernel(self.config, bucket, buckets)


def shared_scan(inputs: Sequence[Input], plan: plans.Node) -> SharedScan | None:
    """How a stage runs together with others, if all that it reads is one stream through shared windows."""
    found = [each for each in _leaves(plan) if not isinstance(each, plans.Instants)]
    if len(found) != 1 or not isinstance(found[0], plans.Shared):
        return None
    first, leaf = inputs[0], found[0]
    if leaf.input != 0 or any(each.stream != first.stream for each in inputs):
        return None
    computed = "" if isinstance(first.map_side, Chosen) else repr(first.map_side)
    text = "\0".join((first.stream, *first.key, "", *leaf.keys, "", leaf.where or "", computed, repr(inputs[1:])))
    group = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return SharedScan(group, merge_inputs, share_kernels)


def _leaves(node: plans.Node) -> Iterator[plans.Node]:
    below = plans.children(node)
    if not below:
        yield node
    for child in below:
        yield from _leaves(child)


def merge_inputs(inputs: Sequence[Input]) -> Input:
    """One reading with the columns of all of these, which are chosen from one stream, or all the same."""
    first = inputs[0]
    if all(each == first for each in inputs):
        return first
    fields = {field.name: field for each in inputs for field in each.schema}
    schema = pa.schema(list(fields.values()))
    return Input(first.stream, Chosen(tuple(fields), schema), schema, first.key, first.broadcast, silent=first.silent)


def share_kernels(stages: Sequence[Stage], bucket: int, buckets: int) -> SharedKernels:
    from hayase.lifetimes.shared_scan import SharedScanKernel  # only workers need it

    makings = [stage.kernel for stage in stages]
    return SharedScanKernel([each.config for each in makings if isinstance(each, Making)], bucket, buckets)
