"""A query over a stage without a kernel reads the stream behind it: the stage serves as a view.

Lateness is then judged where the records are. Behind a filter it could not be: the filter's clock tells how far its input
is, its output only how far the records are that it let through. It also saves a batch of latency.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from hayase.core.stages import Mapped, MapSide, Refusals, Stage

__all__ = ["through"]


@dataclass(frozen=True, slots=True)
class Composed:
    """Two map sides, one after the other; a row that the first refuses is refused."""

    first: MapSide
    second: MapSide

    def __call__(self, batch: pa.RecordBatch) -> Mapped:
        inner = self.first(batch)
        outer = self.second(inner.rows)
        rows = np.concatenate([inner.refused.rows, inner.origin[outer.refused.rows]])
        order = np.argsort(rows, kind="stable")
        reasons = [*inner.refused.reasons, *outer.refused.reasons]
        refused = Refusals(rows[order], [reasons[at] for at in order])
        return Mapped(outer.rows, inner.origin[outer.origin], refused)


def through(view: Stage, stage: Stage) -> Stage:
    """The stage as it reads what is behind the view."""
    (behind,), (own,) = view.inputs, stage.inputs
    source = replace(own, stream=behind.stream, map_side=Composed(behind.map_side, own.map_side))
    fingerprint = hashlib.blake2b(f"{view.fingerprint}\0{stage.fingerprint}".encode(), digest_size=16).hexdigest()
    return replace(stage, inputs=(source,), fingerprint=fingerprint)
