"""Pydantic models of sources and outputs. Like `models`: answers are only described in OpenAPI."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from hayase.connectors.status import State

__all__ = ["ConnectorAnswer", "Connectors"]


class ConnectorAnswer(BaseModel):
    """A source or an output, and what it is doing."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    role: Literal["sources", "outputs"]
    name: str = Field(description="The stream of a source, or the output.", examples=["orders"])
    kind: str = Field(examples=["kafka"])
    target: str = Field(description="What it reads or writes to.", examples=["topic orders at localhost:9092"])
    state: State
    records: int = Field(description="Records or changes moved since the pipeline started.")
    rate: float = Field(description="Those per second, lately.")
    lag: int | None = Field(description="What waits on the other side, or in the results; null if it is not known.")
    error: str | None = Field(description="Why it is tried again.")
    since: int | None = Field(description="When it began to fail, in microseconds.")
    attempts: int = Field(description="How often it has failed in a row.")
    again: int | None = Field(description="When it is tried again, in microseconds.")
    failures: int = Field(description="How often it has failed since the pipeline started.")
    last_error: str | None = Field(description="Why it failed last, also if it works again.")
    failed: int | None = Field(description="When that was, in microseconds.")
    positions: dict[str, str] = Field(description="How far it is, by partition.")
    written: int = Field(description="When this was measured, in microseconds.")


class Connectors(BaseModel):
    """All sources, or all outputs."""

    connectors: list[ConnectorAnswer]
