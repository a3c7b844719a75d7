"""A source and a sink that live in memory, and fail when they are told to."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hayase.connectors import Changes, Portion, Position, Sink, SinkSetting, Source, SourceSetting
from hayase.connectors.inlet import Inlet
from hayase.connectors.sink import APPEARS, HEADS, ROW, TIME
from hayase.connectors.upserts import Upsert, Upserts
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import EndpointError, PositionMoved
from hayase.streams.records import conform


class ListSource(Source):
    """Lists of records by partition; a read takes as many of each as `sizes` says."""

    identity = "lists"

    def __init__(self, partitions: Mapping[str, Sequence[Any]], size: Callable[[], int] = lambda: 3):
        self.partitions, self._size = partitions, size

    def starts(self) -> dict[str, int]:
        return dict.fromkeys(self.partitions, 0)

    def ends(self) -> dict[str, int]:
        return {partition: len(records) for partition, records in self.partitions.items()}

    def read(self, positions: Mapping[str, int], patience: float) -> list[Portion]:
        portions = []
        for partition, at in positions.items():
            records = self.partitions[partition][at : at + self._size()]
            if records:
                portions.append(Portion(partition, list(records), at + len(records)))
        return portions


class UpsertSource(Source):
    """Messages by partition, each a key, a time in seconds and a number, None for a tombstone; a read takes as many of each as
    `size` says."""

    identity = "upserts"

    def __init__(
        self,
        stream: StreamDeclaration,
        partitions: Mapping[str, Sequence[tuple[str, int, int | None]]],
        size: Callable[[], int],
    ):
        self._stream, self._partitions, self._size = stream, partitions, size
        self._at: Mapping[str, int] = {}

    def prepare(self, inlet: Inlet) -> None:
        self._upserts = Upserts(self._stream, inlet.log, "id")

    def starts(self) -> dict[str, int]:
        return dict.fromkeys(self._partitions, 0)

    def ends(self) -> dict[str, int]:
        return {partition: len(messages) for partition, messages in self._partitions.items()}

    def read(self, positions: Mapping[str, int], patience: float) -> list[Portion]:
        if positions != self._at:
            self._upserts.load()
        portions = []
        for partition, at in positions.items():
            messages = self._partitions[partition][at : at + self._size()]
            rows = [
                {"at": time, "op": "+", "id": key, "n": number} for key, time, number in messages if number is not None
            ]
            places = itertools.count()
            upserts = [
                Upsert(key, time * 1_000_000, None if number is None else next(places))
                for key, time, number in messages
            ]
            changed = self._upserts.changes(upserts, conform(rows, self._stream, 0))
            if messages:
                portions.append(Portion(partition, changed, at + len(messages)))
        self._at = {**positions, **{portion.partition: portion.next for portion in portions}}
        return portions


@dataclass
class Target:
    """What a sink writes to: the rows that are there by number, all changes, and the position."""

    position: Position | None = None
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    changes: list[tuple[int, bool, dict[str, Any]]] = field(default_factory=list)
    writes: int = 0
    mirror: dict[Any, dict[str, Any]] = field(default_factory=dict)
    owner: object = None
    rewritten: int = 0


class TargetSink(Sink):
    """A sink of a `Target`. `fail` is asked at every step and may raise: before the write and after it."""

    def __init__(self, target: Target, fail: Callable[[str], None] = lambda step: None):
        self._target, self._fail = target, fail

    def position(self) -> Position | None:
        self._fail("position")
        self._target.owner = self
        return self._target.position

    def write(self, changes: Changes) -> None:
        self._fail("before")
        target = self._target
        if changes.since != target.position or target.owner is not self:
            raise PositionMoved(f"the target is at {target.position}, not at {changes.since}")
        if changes.anew:
            target.rows.clear()
            target.changes.clear()
            target.rewritten += 1
        for row in changes.rows.to_pylist():
            own = {name: value for name, value in row.items() if name not in HEADS}
            target.changes.append((row[TIME], row[APPEARS], own))
            if row[APPEARS]:
                target.rows[row[ROW]] = own
            else:
                del target.rows[row[ROW]]
        target.position = changes.until
        target.writes += 1
        self._fail("after")


class MirrorSink(TargetSink):
    """A sink of a `Target` that has the present row of each key, which is the first column; `written` counts rows."""

    written = 0

    def __init__(
        self,
        target: Target,
        fail: Callable[[str], None] = lambda step: None,
        every: float = 0.0,
        most: int | None = None,
    ):
        super().__init__(target, fail)
        self.every, self.most = every, most

    def write(self, changes: Changes) -> None:
        self._fail("before")
        target = self._target
        if changes.since != target.position or target.owner is not self:
            raise PositionMoved(f"the target is at {target.position}, not at {changes.since}")
        if changes.anew:
            target.mirror.clear()
            target.rewritten += 1
        for row in changes.rows.drop_columns(list(HEADS)).to_pylist():
            target.mirror[next(iter(row.values()))] = row
            self.written += 1
        target.position = changes.until
        target.writes += 1
        self._fail("after")


class Numbers(Source):
    """For declarations: a source of `count` numbers."""

    def __init__(self, setting: SourceSetting):
        options = dict(setting.options["options"])
        self.identity, self._count = "numbers", int(options["count"])
        if options.get("broken"):
            raise EndpointError("the numbers are gone", "look for them")
        if options.get("dies"):
            os.kill(os.getpid(), signal.SIGKILL)

    def starts(self) -> dict[str, int]:
        return {"0": 0}

    def ends(self) -> dict[str, int]:
        return {"0": self._count}

    def read(self, positions: Mapping[str, int], patience: float) -> list[Portion]:
        first = positions["0"]
        rows = [{"time": f"2026-01-01T00:00:{number % 60:02}Z", "n": number} for number in range(first, self._count)][
            :7
        ]
        return [Portion("0", rows, first + len(rows))] if rows else []


class FileSink(Sink):
    """For declarations: a sink of a file, with a line for each change, and one for each position."""

    def __init__(self, setting: SinkSetting):
        from pathlib import Path

        self._path = Path(dict(setting.options["options"])["file"])

    def position(self) -> Position | None:
        if not self._path.exists():
            return None
        number, cursor = self._path.read_text().splitlines()[-1].split(" ")[1:]
        return Position(int(number), cursor)

    def write(self, changes: Changes) -> None:
        if changes.since != self.position():
            raise PositionMoved("the file is elsewhere")
        lines = [f"{'+' if row[APPEARS] else '-'} {row}" for row in changes.rows.to_pylist()]
        old = self._path.read_text() if self._path.exists() and not changes.anew else ""
        position = f"at {changes.until.number} {changes.until.cursor}"
        self._path.write_text(old + "\n".join([*lines, position]) + "\n")
