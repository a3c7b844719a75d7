"""Drafts: a stage with the steps and operators it was built from, for `stateless_views` and `explain`."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.stages import Stage
from hayase.cql.columns import column_name
from hayase.cql.logical import Column, Expression, TableJoin
from hayase.lifetimes import plans

__all__ = ["Draft", "DraftInput", "LookupStep", "Step"]


@dataclass(frozen=True, slots=True)
class Step:
    """A filter and a projection, on a map side or in a kernel."""

    columns: tuple[Column, ...]
    where: Expression | None = None

    @property
    def only_selects(self) -> bool:
        return self.where is None and all(column_name(output.value) is not None for output in self.columns)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(output.name, output.value.kind) for output in self.columns])


@dataclass(frozen=True, slots=True)
class LookupStep:
    """A lookup of a table for the rows of a leaf; `keys` are the columns with the parts of the table's key, in order."""

    join: TableJoin
    keys: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        return self.join.schema


@dataclass(frozen=True, slots=True)
class DraftInput:
    """What an input of a stage is for, the steps of its map side, and the views it reads through, nearest first."""

    role: Literal["rows", "ticks", "instants", "earliest", "clock"] = "rows"
    steps: tuple[Step | LookupStep, ...] = ()
    columns: tuple[str, ...] = ()
    """The columns of the stream (or view) that it reads."""
    views: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """A stage, a description of every input, and the operators of its kernel, if it has one."""

    stage: Stage
    draft_inputs: tuple[DraftInput, ...]
    plan: plans.Node | None = None
