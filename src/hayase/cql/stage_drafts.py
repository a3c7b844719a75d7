"""A stage and of what it was made, for those who look through it (`views`) or tell of it (`explain`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from hayase.core.stages import Stage
from hayase.cql.columns import column_name
from hayase.cql.logical import Column, Expression, TableJoin
from hayase.lifetimes import plans

__all__ = ["Draft", "DraftInput", "LookupStep", "Step"]


@dataclass(frozen=True, slots=True)
class Step:
    """One selection and projection of a leaf or in a kernel."""

    columns: tuple[Column, ...]
    where: Expression | None = None

    @property
    def only_selects(self) -> bool:
        return self.where is None and all(column_name(each.value) is not None for each in self.columns)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(each.name, each.value.kind) for each in self.columns])


@dataclass(frozen=True, slots=True)
class LookupStep:
    """Rows of a leaf meet a table; `keys` are the columns of the rows that are the parts of its key, in their order."""

    join: TableJoin
    keys: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        return self.join.schema


@dataclass(frozen=True, slots=True)
class DraftInput:
    """What an input of a stage is for, what its map side does, and the views it looks through, nearest first."""

    role: Literal["rows", "ticks", "instants", "earliest", "clock"] = "rows"
    steps: tuple[Step | LookupStep, ...] = ()
    columns: tuple[str, ...] = ()
    """Columns of the stream (or view) that it reads."""
    views: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """A stage, and of what it was made: a reading per input, and the operators of its kernel."""

    stage: Stage
    draft_inputs: tuple[DraftInput, ...]
    plan: plans.Node | None = None
