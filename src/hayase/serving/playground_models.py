"""Pydantic models of the playground: the words of queries, checks, plans, trials on the newest records, and additions.

Like `models`: bodies of requests are validated by them, answers only described in OpenAPI.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from hayase.core.reasons import ReasonKind
from hayase.serving.pipeline_models import Lifetime

__all__ = [
    "AddedStage",
    "AdditionAnswer",
    "AdditionAsked",
    "Check",
    "ColumnOfQuery",
    "Explanation",
    "FunctionWord",
    "MistakeInQuery",
    "NamedQuery",
    "PlanEdge",
    "PlanNode",
    "QueryMade",
    "QueryText",
    "Refused",
    "SourceWord",
    "Trial",
    "TrialAsked",
    "Words",
]

_SPEND = "select user_id, sum(amount) as spend from orders [Range 10 minutes] group by user_id"
_NAME = r"^[A-Za-z][A-Za-z0-9_]{0,62}$"


class _Model(BaseModel):
    model_config = ConfigDict(json_schema_serialization_defaults_required=True)


class QueryText(_Model):
    """A query that is not part of the pipeline."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"text": _SPEND}]})

    text: str = Field(max_length=20_000, description="The query, in CQL.")


class TrialAsked(QueryText):
    """A query to be run on the newest records."""

    records: int = Field(1000, ge=1, le=10_000, description="Records of each stream that it reads, the newest.")
    limit: int = Field(500, ge=1, le=1000, description="Rows in the answer, at most.")
    bins: int = Field(100, ge=1, le=1000, description="Parts of the range for which rows are counted.")


class NamedQuery(QueryText):
    """A query under the name that it would have."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [{"name": "recent_spend", "text": _SPEND}]}
    )

    name: str = Field(pattern=_NAME, description="A name that nothing in the pipeline has.")


class AdditionAsked(NamedQuery):
    """A query to be added."""

    start: Literal["earliest", "now"] = Field(
        "earliest", description="Whether it starts at the earliest retained record, or with new records."
    )


class ColumnOfQuery(_Model):
    """A column."""

    name: str = Field(examples=["spend"])
    type: str = Field(examples=["double"])


class SourceWord(_Model):
    """What a query can read."""

    name: str = Field(examples=["orders"])
    kind: Literal["stream", "query", "job", "operation", "table"]
    columns: list[ColumnOfQuery]


class FunctionWord(_Model):
    """A function that a query can call."""

    name: str = Field(examples=["lower"])
    kind: Literal["aggregate", "scalar", "stream operator", "own"] = Field(
        description="`own` are the functions and aggregates of the pipeline."
    )
    arguments: str = Field(description="The arguments of its shortest form.", examples=["string"])


class Words(_Model):
    """The words of queries, for editors."""

    sources: list[SourceWord]
    functions: list[FunctionWord]
    keywords: list[str]
    windows: list[str] = Field(description="An example of every kind of window.")


class MistakeInQuery(_Model):
    """A mistake, and what to do about it."""

    message: str = Field(examples=['unknown column "prise" in "orders"'])
    hint: str | None = Field(examples=['did you mean "price"?'])
    line: int | None = Field(description="Counted from 1; null if it has no place in the text.")
    column: int | None = Field(description="Counted from 1, in characters.")


class Check(_Model):
    """Whether a query can be run, and what it would give."""

    valid: bool
    mistakes: list[MistakeInQuery]
    kind: Literal["relation", "stream"] | None = Field(description="What it gives; null if it has mistakes.")
    columns: list[ColumnOfQuery] = Field(description="The columns of its rows.")
    reads: list[str] = Field(description="The streams that its stages read.")


class PlanNode(_Model):
    """A part of a plan."""

    name: str = Field(description="Unique in the plan.")
    kind: Literal["stream", "table", "map side", "operator", "result"]
    title: str = Field(examples=["Aggregate"])
    lines: list[str] = Field(description="The details.")
    stage: str | None = Field(description="The stage that it belongs to; null for streams and tables.")


class PlanEdge(_Model):
    """The target reads the source."""

    source: str
    target: str


class Explanation(_Model):
    """How a query is understood, as `hayase explain` says it and as a graph."""

    text: str
    nodes: list[PlanNode]
    edges: list[PlanEdge]


class Refused(_Model):
    """Records that a stage refused for reasons of one kind."""

    stage: str
    kind: ReasonKind
    reason: str = Field(description="The first of the reasons.")
    records: int = Field(description="Among the first thousand that were refused.")


class Trial(_Model):
    """The rows of a query over the newest records, with their lifetimes: all of them, or an even sample, as for the lifetimes
    of a query of the pipeline."""

    kind: Literal["relation", "stream"]
    start_us: int | None = Field(
        description="The earliest instant of a row, in microseconds; null if there are no rows."
    )
    end_us: int | None = Field(description="The first instant behind the newest record.")
    matching: int = Field(description="How many rows there are.")
    density: list[int] = Field(
        description="Rows that are valid at the begin of each of `bins` equal parts of the range."
    )
    rows: list[Lifetime] = Field(description="In the order of their starts.")
    cut: bool = Field(description="Whether these are fewer rows than there are.")
    read: dict[str, int] = Field(description="How many records of each stream were read.")
    refused: int = Field(description="Records that could not be processed.")
    reasons: list[Refused] = Field(description="The most frequent kinds of reasons.")


class AddedStage(_Model):
    """A stage that a query would add."""

    name: str
    lane: str = Field(description="The lane that would run it.")
    reads: list[str]
    shares: list[str] = Field(description="Other stages with which it would share its pass over what it reads.")
    keeps: list[str] = Field(description="What it would keep from batch to batch; empty if nothing.")


class AdditionAnswer(_Model):
    """What adding a query would do."""

    version: int = Field(description="The version of the definition to which it would be added.")
    stages: list[AddedStage]
    changed: list[str] = Field(description="Stages that would run differently: operations that read by a pattern.")
    declaration: str = Field(description="The lines that declare the query in a pipeline file.")


class QueryMade(_Model):
    """A change of the queries."""

    name: str
    version: int = Field(description="The version of the definition that has it.")
    takes_effect: str = Field(examples=["at the next batch"])
