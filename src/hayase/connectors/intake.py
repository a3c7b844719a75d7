"""Takes records from a source into the log of its stream, each exactly once.

The position behind a portion is the sequence of its append, and the append names the one before it. So a killed process loses
nothing, a repeated portion is recognised, and a process that was thought dead and still reads is refused by the log.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from hayase.connectors.inlet import Inlet
from hayase.connectors.source import Portion, Source, Staged
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import EndpointError, OutOfTurn
from hayase.streams.appends import append_conformed, last_sequence
from hayase.streams.log import FIRST, StreamLog
from hayase.streams.records import Conformed, conform

__all__ = ["Intake"]

DISCOVER = 10.0
"""Seconds between two looks for new partitions."""
CONFIRM = 1.0
"""Seconds between two confirmations of positions to the source."""


class Intake:
    """One source and its stream. `positions` are those behind what the stream has, by partition; `ends` are those of the source
    when its lag was last asked for."""

    def __init__(self, home: Path, declaration: StreamDeclaration, source: Source, now: Callable[[], int]):
        self._home, self._declaration, self._source, self._now = home, declaration, source, now
        self.positions: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        self._appended: dict[str, int] = {}
        """The sequence of the last append of each partition."""
        self._confirmed: dict[str, int] = {}
        self._discovered_at = self._confirmed_at = float("-inf")
        log, directory = StreamLog.ensure(home, declaration), home / "sources" / declaration.name
        source.prepare(Inlet(home, log, source.identity, directory, now))

    def step(self, patience: float) -> int:
        """Read once and append what there is; return the number of records, refused ones included."""
        moment = time.monotonic()
        if moment >= self._discovered_at + DISCOVER:
            self._discover()
            self._discovered_at = moment
        portions = self._source.read(self.positions, patience) if self.positions else ()
        count = sum(self._take(portion) for portion in portions)
        if not self.positions:
            time.sleep(patience)
        if time.monotonic() >= self._confirmed_at + CONFIRM:
            self.confirm()
        return count

    def lag(self) -> int:
        """Return how much the source has that the stream does not have yet, as the difference of positions."""
        self.ends = ends = dict(self._source.ends())
        return sum(max(0, end - self.positions.get(partition, end)) for partition, end in ends.items())

    def has_reached(self, ends: dict[str, int]) -> bool:
        """Return whether everything before these positions is in the stream."""
        return self._source.has_reached(self.positions, ends)

    def confirm(self) -> None:
        """Tell the source what is durable."""
        self._confirmed_at = time.monotonic()
        if self._confirmed != self.positions:
            self._source.confirm(dict(self.positions))
            self._confirmed = dict(self.positions)

    def close(self) -> None:
        """Close the source."""
        self._source.close()

    def _discover(self) -> None:
        """Begin to read partitions that are new, where the stream's last append of each ends."""
        for partition, start in self._source.starts().items():
            if partition not in self.positions:
                last = last_sequence(self._home, self._declaration, self._producer(partition))
                self._appended[partition] = last
                self.positions[partition] = start if last == FIRST else last

    def _producer(self, partition: str) -> str:
        return f"{self._source.identity}/{partition}"

    def _take(self, portion: Portion) -> int:
        partition, position = portion.partition, self.positions.get(portion.partition)
        if position is None or portion.next < position:
            raise EndpointError(
                f'partition "{partition}" of {self._source.identity} came with position {portion.next}, after {position}'
            )
        now = self._now()
        records = portion.records
        if isinstance(records, Staged):
            count = records.publish(portion.next)
            self.positions[partition] = self._appended[partition] = portion.next
            return count
        conformed = records if isinstance(records, Conformed) else conform(records, self._declaration, now)
        count = conformed.rows.num_rows + len(conformed.refused)
        if count:
            accepted = append_conformed(
                self._home, self._declaration, conformed, now,
                producer=self._producer(partition), sequence=portion.next, after=self._appended[partition],
            )  # fmt: skip
            if accepted.repeated:
                raise OutOfTurn(
                    self._declaration.name,
                    f'another process appends partition "{partition}" of {self._source.identity}',
                    "stop one of the two",
                )
            self._appended[partition] = portion.next
        self.positions[partition] = portion.next
        return count
