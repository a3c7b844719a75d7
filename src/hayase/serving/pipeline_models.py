"""Pydantic models of the pipeline's graph with its figures, of sampled lifetimes, of records, groups of dead letters, and payloads.

Like `models`: bodies of requests are validated by them, answers only described in OpenAPI.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hayase.core.reasons import ReasonKind
from hayase.engine.condition import State
from hayase.serving.governor_models import LaneFigures

__all__ = [
    "DeadGroup",
    "DeadGroups",
    "History",
    "Lifetime",
    "Lifetimes",
    "NodeFigures",
    "Notice",
    "PayloadOfKey",
    "Payloads",
    "PipelineAnswer",
    "PipelineEdge",
    "PipelineNode",
    "RecordOfStream",
    "Records",
    "Session",
    "SessionAsked",
    "StageAnswer",
]


class _Model(BaseModel):
    model_config = ConfigDict(json_schema_serialization_defaults_required=True)


class Session(_Model):
    """Whether a browser may ask for data."""

    token_required: bool = Field(description="Whether the server has a token.")
    open: bool = Field(description="Whether requests of this browser are answered.")


class SessionAsked(_Model):
    """A login."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [{"token": "Zp-q0Jm3vYx8kT2s"}]}
    )

    token: str = Field(max_length=1000, description="The token of the server.")


class NodeFigures(_Model):
    """The figures of a stream, stage or table. Rates are records per second over the last seconds; a figure that a node does
    not have is null."""

    rate: float | None = Field(description="Records appended to a stream, or read by a stage, per second.")
    written_rate: float | None = Field(description="Records written per second.")
    lag: int | None = Field(description="Records that a stage has not yet read.")
    waiting: int | None = Field(description="Records that wait for the clock.")
    dead: int | None = Field(description="Records that became dead letters, since the stage began.")
    read: int | None = Field(description="Records read since the stage began.")
    written: int | None = Field(description="Records written since the stage began; the length of a stream.")
    batch_seconds: float | None = Field(description="Task time of a recent batch.")
    clock: str | None = Field(description="The event time up to which it is complete.")
    silent_seconds: float | None = Field(description="Time since the last append to a stream.")
    missed: int | None = Field(description="Firings that were missed because the lane was busy.")


class PipelineNode(_Model):
    """A stream, a stage with its output, or a table."""

    name: str = Field(examples=["spend"])
    kind: Literal["stream", "query", "job", "operation", "table"]
    part_of: str | None = Field(description="The declared name, if this is an internal stage of it.")
    lane: str | None = Field(description="The lane that runs the stage; null for streams.")
    shares: list[str] = Field(description="Other stages that can share its scan.")
    every: str | None = Field(description="The interval at which it fires.")
    figures: NodeFigures


class PipelineEdge(_Model):
    """What one node reads of another."""

    source: str
    target: str
    kind: Literal["reads", "looks up"] = Field(description="Whether it reads records, or looks rows up in a table.")
    rate: float | None = Field(description="Records read per second; null for lookups.")
    lag: int | None = Field(description="Records that are there and not yet read.")


class Notice(_Model):
    """A problem in words."""

    severity: Literal["error", "warning"]
    subject: str | None = Field(description="The node that it is about; null for the whole pipeline.")
    text: str = Field(examples=['"orders" has been silent for 40 s: "spend" waits for it, with 12 records'])


class PipelineAnswer(_Model):
    """The graph of a pipeline with its current figures."""

    name: str = Field(examples=["shop"])
    state: State
    reason: str | None
    version: int = Field(description="How many batches were committed in this home.")
    definition: int = Field(description="The version of the definition that runs.")
    committed_at: str | None
    batch_seconds: float = Field(description="How long the last batch took.")
    sample: int = Field(description="The number of the newest sample in the history.")
    dead_open: int = Field(description="Dead letters that are neither replayed nor dropped.")
    nodes: list[PipelineNode]
    edges: list[PipelineEdge]
    problems: list[Notice]
    governor: list[LaneFigures] = Field(description="What the governors of the lanes measure.")


class History(_Model):
    """Samples of the last hour, oldest first."""

    sample: int = Field(description="The number of the newest sample.")
    seconds: float = Field(description="The time between two samples.")
    rates: dict[str, list[float]] = Field(
        description="Records per second of each node.", examples=[{"spend": [0.0, 12.5]}]
    )
    lags: dict[str, list[int]] = Field(description="Records not yet read by each stage.", examples=[{"spend": [0, 3]}])


class StageAnswer(_Model):
    """How a node is declared, and how it is understood."""

    name: str
    kind: Literal["stream", "query", "job", "operation", "table"]
    declaration: str = Field(description="Its part of the pipeline file.")
    explain: str | None = Field(description="For a query, the text of `hayase explain`.")


class Lifetime(_Model):
    """A row with its lifetime."""

    row: dict[str, Any] = Field(examples=[{"user": "taro", "spend": 5.0}])
    valid_from: Any = Field(examples=["2026-01-31T12:00:00Z"])
    valid_to: Any = Field(description="Its end; null if it does not end before the end of the range.")
    from_us: int = Field(description="The start in microseconds.")
    to_us: int | None


class Lifetimes(_Model):
    """Rows whose lifetimes touch a range of event time: all of them, or an even sample."""

    query: str
    start: Any = Field(description="The begin of the range, in the query's own form; null if nothing is final yet.")
    end: Any = Field(description="The end of the range: at most the first instant that is not final.")
    start_us: int | None = Field(description="The same in microseconds.")
    end_us: int | None
    first_us: int | None = Field(description="The earliest instant that can be asked for.")
    final_us: int | None = Field(description="The first instant that is not final.")
    matching: int = Field(description="Rows that touch the range.")
    complete: bool = Field(description="Whether all records of the range were looked at; if not, the newest ones were.")
    density: list[int] = Field(
        description="Rows that are valid at the begin of each of `bins` equal parts of the range."
    )
    rows: list[Lifetime] = Field(description="In the order of their starts.")


class RecordOfStream(_Model):
    """A record and its offset."""

    offset: int
    record: dict[str, Any]


class Records(_Model):
    """The newest records of a stream, newest first."""

    stream: str
    next: int = Field(description="The offset that the next record will have.")
    records: list[RecordOfStream]
    older: int | None = Field(description="Send it as `before` for older ones; null if there are none.")


class DeadGroup(_Model):
    """Open dead letters of one stage, stream and kind with similar reasons."""

    stage: str
    stream: str
    kind: ReasonKind
    reason: str = Field(description="The reason of the newest one.")
    letters: int
    first: int = Field(description="The number of the oldest one.")
    last: int
    since: str
    until: str


class DeadGroups(_Model):
    """Groups of open dead letters, largest first."""

    open: int = Field(description="How many letters are open.")
    groups: list[DeadGroup]


class PayloadOfKey(_Model):
    """An update of a column that is not folded yet."""

    column: str
    type: str = Field(examples=["Counter"])
    method: str = Field(examples=["incr"])
    time: str = Field(description="The time of its event.")
    event: str | int = Field(description="The id of its event.")
    update: int = Field(description="Its number among the updates of the event.")
    alone: Any = Field(description="The value of the column if this were the only update.")


class Payloads(_Model):
    """The updates behind a row, newest first."""

    key: list[Any]
    folded: bool = Field(description="Whether the row also has a snapshot of older updates.")
    payloads: list[PayloadOfKey]
    more: bool = Field(description="Whether there are older ones that are not shown.")
