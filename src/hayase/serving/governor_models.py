"""Pydantic models of the governor: its dial, the loads and shares of its queues, and their history.

Like `models`: bodies of requests are validated by them, answers only described in OpenAPI.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "DialSet",
    "GovernorAnswer",
    "GovernorChanged",
    "GovernorHistory",
    "LaneFigures",
    "QueueFigures",
    "QueueHistory",
]


class _Model(BaseModel):
    model_config = ConfigDict(json_schema_serialization_defaults_required=True)


class QueueFigures(_Model):
    """The measurements of one queue: a stream as one operation reads it, or as all stages of the main lane read it."""

    stage: str = Field(description="The operation; empty in the main lane.", examples=["scores"])
    stream: str = Field(examples=["orders"])
    rate: float = Field(description="Records that arrive per second.")
    service: float = Field(description="Seconds that one record takes.")
    load: float = Field(description="Workers that the queue keeps busy: rate times service.")
    share: float = Field(description="Its share of the work that its lane did lately, from 0 to 1.")
    waiting: int = Field(description="Records that are not taken yet.")


class LaneFigures(_Model):
    """The measurements of a lane's governor."""

    lane: Literal["main", "operations"]
    policy: str = Field(examples=["informed"])
    u: float | None = Field(description="The dial that the lane uses now; null if its policy has none.")
    slots: int = Field(description="Tasks that can run at once: the pool of workers.")
    load: float = Field(description="The sum of all loads: the least number of workers that can keep up.")
    empty: float = Field(description="The share of its polls that found nothing, since the start.")
    queues: list[QueueFigures] = Field(description="The busiest queues first, at most 100.")
    more: int = Field(description="Queues that are not listed.")


class GovernorAnswer(_Model):
    """The governor: its dial as it is declared, and what its lanes measure."""

    version: int = Field(description="The newest version of the pipeline's definition.")
    policy: str = Field(examples=["informed"])
    u: float | None = Field(description="The dial, from 0 up to 1; null if the policy has none.", examples=[0.97])
    declared_u: float | None = Field(description="The dial as the pipeline file says.", examples=[0.97])
    by: Literal["file", "command"] = Field(description="Whether the pipeline file or a command set it.")
    in_effect: bool = Field(description="Whether the running pipeline uses this version already.")
    lanes: list[LaneFigures]


class QueueHistory(_Model):
    """The samples of one queue, oldest first; the last one is the newest sample."""

    lane: Literal["main", "operations"]
    stage: str
    stream: str
    loads: list[float] = Field(examples=[[0.0, 0.25]])
    shares: list[float] = Field(examples=[[0.0, 0.5]])


class GovernorHistory(_Model):
    """Loads and shares of the last hour."""

    sample: int = Field(description="The number of the newest sample.")
    seconds: float = Field(description="The time between two samples.")
    queues: list[QueueHistory]


class GovernorChanged(_Model):
    """The dial to set."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"u": 0.5}]})

    u: float | None = Field(
        ge=0, lt=1, allow_inf_nan=False, description="The dial, from 0 up to 1; null for what the pipeline file says."
    )


class DialSet(_Model):
    """A change of the dial that was accepted."""

    version: int = Field(description="The version of the pipeline's definition that has it.")
    policy: str
    u: float | None
    declared_u: float | None
    by: Literal["file", "command"]
    takes_effect: str = Field(examples=["at the next batch"])
