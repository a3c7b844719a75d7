"""What a sink is: a target that stores changes together with the position behind them.

A sink only writes. `hayase.connectors.delivery` reads the durable results of a stage and gives them to the sink, portion by
portion; the target remembers how far it got, so nothing is written twice, whatever is killed when.
`hayase.testing.check_sink` holds a sink to the laws that are stated here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration

__all__ = ["APPEARS", "HEADS", "ROW", "TIME", "Changes", "Position", "Sink", "SinkSetting"]

TIME, APPEARS, ROW = HEADS = ("__time", "__appears", "__row")
"""The columns of changes before those of the row: the event time (microseconds), whether the row appears or ends, and the number
of the row, which is the same when it appears and when it ends."""


class Position(NamedTuple):
    """How far a target got: the number of the last write, and a cursor in the results behind it. Both grow."""

    number: int
    cursor: str


class Changes(NamedTuple):
    """Changes between two positions of a target, in the order of their event time, "ends" before "appears" at each instant.

    `since` is None for the first write ever. With `anew`, the query was reset: the target removes what it holds, in the same step.
    """

    rows: pa.Table
    since: Position | None
    until: Position
    anew: bool = False


@dataclass(frozen=True, slots=True)
class SinkSetting:
    """What a sink is made with: the stream that it reads, the columns of its rows, its options, and the names of pipeline and
    output. `home` identifies the home among all. `keep` is a directory of the home for files of its own; relative paths in options
    begin at `beside`."""

    stream: StreamDeclaration
    rows: pa.Schema
    options: Mapping[str, Any]
    pipeline: str
    output: str
    home: str
    keep: Path | None = None
    beside: Path | None = None


class Sink(ABC):
    """Something that changes can be written to. Every method may raise EndpointError; the sink is then closed, and another one
    is made after a pause."""

    every: float = 0.0
    """Seconds for which changes are collected before they are written together."""
    most: int | None = None
    """The greatest number of changes in one write, if the target has a limit."""

    @abstractmethod
    def position(self) -> Position | None:
        """Return how far the target got; None if nothing was written to it. Whoever wrote before and is still alive cannot
        write any more afterwards, if the target has a way to see to that."""

    @abstractmethod
    def write(self, changes: Changes) -> None:
        """Store changes and their position in one transaction of the target. PositionMoved if its position is not `since`."""

    def close(self) -> None:  # noqa: B027 (nothing to do for many)
        """Release connections."""
