"""Pydantic models of the pipeline's graph with its figures, of sampled lifetimes, of records, groups of dead letters, and payloads.

Like `models`: bodies of requests are validated by them, answers only described in OpenAPI.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hayase.connectors.status import State as ConnectorState
from hayase.core.reasons import ReasonKind
from hayase.engine.condition import State
from hayase.engine.definition.pipeline_graph import NodeKind
from hayase.serving.governor_models import LaneFigures

__all__ = [
    "ConnectorFigures",
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


class ConnectorFigures(_Model):
    """What a source or an output is doing. `GET /sources/NAME` and `GET /outputs/NAME` have its positions too."""

    role: Literal["sources", "outputs"]
    name: str = Field(description="The stream of a source, or the output.", examples=["orders"])
    kind: str = Field(examples=["kafka"])
    target: str = Field(description="What it reads or writes to.", examples=["topic orders at localhost:9092"])
    state: ConnectorState
    attempts: int = Field(description="How often it has failed in a row.")
    failures: int = Field(description="How often it has failed since the pipeline started.")
    last_error: str | None = Field(description="Why it failed last.")


class NodeFigures(_Model):
    """The figures of a node. Rates are records per second over the last seconds; a figure that a node does
    not have is null."""

    rate: float | None = Field(
        description="Records appended to a stream, read by a stage, or moved by a source or an output, per second."
    )
    written_rate: float | None = Field(description="Records written per second.")
    lag: int | None = Field(
        description="Records that a stage has not yet read, or that wait for a source or an output."
    )
    waiting: int | None = Field(description="Records that wait for the clock.")
    dead: int | None = Field(description="Records that became dead letters, since the stage began.")
    read: int | None = Field(description="Records read since the stage began.")
    written: int | None = Field(
        description="Records written since the stage began; the length of a stream; records that a source or an output moved "
        "since the pipeline started."
    )
    batch_seconds: float | None = Field(description="Task time of a recent batch.")
    clock: str | None = Field(description="The event time up to which it is complete.")
    silent_seconds: float | None = Field(description="Time since the last append to a stream.")
    missed: int | None = Field(description="Firings that were missed because the lane was busy.")


class PipelineNode(_Model):
    """A source, a stream, a stage with its results, a table or an output."""

    name: str = Field(
        description="Its name, which no two nodes share: of a source `source:STREAM`, of an output `output:NAME`.",
        examples=["spend"],
    )
    kind: NodeKind
    part_of: str | None = Field(description="The declared name, if this is an internal stage of it.")
    lane: str | None = Field(description="The lane that runs the stage; null for streams.")
    shares: list[str] = Field(description="Other stages that can share its scan.")
    every: str | None = Field(description="The interval at which it fires.")
    connector: ConnectorFigures | None = Field(description="What a source or an output is doing; null for other nodes.")
    figures: NodeFigures


class PipelineEdge(_Model):
    """What one node reads of another."""

    source: str
    target: str
    kind: Literal["reads", "looks up", "moves"] = Field(
        description="Whether it reads records, looks rows up in a table, or gets records that a source or an output moves."
    )
    rate: float | None = Field(description="Records read or moved per second; null for lookups.")
    lag: int | None = Field(description="Records that are there and not yet read or moved.")
    state: ConnectorState | None = Field(
        description="What the source or the output is doing, if it is the edge of one."
    )
    attempts: int | None = Field(description="How often the source or the output has failed in a row.")


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
    kind: NodeKind
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
