"""The loop of a connector: it moves records, waits where there are none, and tries again where the other side fails.

A failure never ends it: it is shown in the status, and the connector begins anew after a pause that doubles, up to half a minute.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from hayase.connectors.backlog import Backlog
from hayase.connectors.delivery import Delivery
from hayase.connectors.intake import Intake
from hayase.connectors.kinds import open_sink, open_source
from hayase.connectors.sink import SinkSetting
from hayase.connectors.source import SourceSetting
from hayase.connectors.status import Connector, Figures, Role, directory_of, is_paused
from hayase.core.clock import now_us
from hayase.core.data_classes import dataclass
from hayase.core.declarations import (
    OutputDeclaration,
    PipelineDeclaration,
    SourceDeclaration,
    StreamDeclaration,
    TableDeclaration,
)
from hayase.core.errors import EndpointError, HayaseError, UnknownName
from hayase.core.stages import Stage
from hayase.engine.home import Home
from hayase.engine.results.lifespans import own_columns
from hayase.engine.results.output_positions import identity_of, undelivered
from hayase.engine.source_backlogs import clear_backlog, note_backlog
from hayase.streams import StreamLog, durable

if TYPE_CHECKING:
    from hayase.connectors.table_delivery import TableDelivery

__all__ = ["Transfer", "connect_all", "run_transfer", "run_until_end"]

_log = logging.getLogger(__name__)
PATIENCE = 0.1
"""Seconds to wait for records before looking at anything else."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between attempts to reach the other side, and between starts of a process that ends."""
GIVE_UP = 60.0
"""Seconds after which a run until the end gives up on the other side."""
_NO_ERROR: dict[str, Any] = {"error": None, "since": None, "attempts": 0, "again": None}
"""What the status of a connector says while nothing fails."""


class Transfer(Protocol):
    """Records or changes on their way between Hayase and another system."""

    def step(self) -> int:
        """Move what there is, and wait a moment if there is nothing; return the number of records or changes."""

    def lag(self) -> int:
        """Return how much waits."""

    def positions(self) -> tuple[tuple[str, str], ...]:
        """Return how far it is, by partition."""

    def is_done(self) -> bool:
        """Return whether it has moved everything that was there when it began."""

    def flush(self) -> None:
        """Write what was collected for later: the run ends."""

    def close(self) -> None:
        """Release connections."""


class SourceTransfer:
    """From a source into its stream."""

    def __init__(self, home: Home, pipeline: PipelineDeclaration, source: SourceDeclaration, now: Callable[[], int]):
        stream = pipeline.stream(source.stream)
        StreamLog.ensure(home.path, stream)
        keep = directory_of(home, "sources", stream.name)
        self._source = open_source(source, _source_setting(pipeline, source, now, keep))
        try:
            self._intake = Intake(home.path, stream, self._source, now)
            self._ends = dict(self._source.ends())
            self._backlog = Backlog(partial(note_backlog, home, stream.name), partial(clear_backlog, home, stream.name))
            self._backlog.set_ends(self._ends)
        except BaseException:
            self._source.close()
            raise

    def step(self) -> int:
        moved = self._intake.step(PATIENCE)
        self._backlog.update(self._intake.positions, time.monotonic())
        return moved

    def lag(self) -> int:
        lag = self._intake.lag()
        self._backlog.set_ends(self._intake.ends)
        return lag

    def positions(self) -> tuple[tuple[str, str], ...]:
        return tuple((partition, str(position)) for partition, position in sorted(self._intake.positions.items()))

    def is_done(self) -> bool:
        return self._intake.has_reached(self._ends)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self._backlog.close()
        self._intake.close()


class OutputTransfer:
    """From the results of a stage to a sink."""

    def __init__(self, home: Home, pipeline: PipelineDeclaration, output: OutputDeclaration):
        keep, identity = directory_of(home, "outputs", output.name), identity_of(home)
        table = next((table for table in pipeline.tables if table.name == output.reads), None)
        self._delivery: Delivery | TableDelivery
        if table is None:
            log = StreamLog.open(home.path, output.reads)
            self._sink = open_sink(output, _sink_setting(pipeline, output, log.declaration, identity, keep))
        else:
            self._sink = open_sink(output, _table_setting(pipeline, output, table, identity, keep))
        try:
            if table is None:
                self._delivery = Delivery(home, output.name, log, self._sink)
            else:
                from hayase.connectors.table_delivery import TableDelivery  # loads RocksDB

                self._delivery = TableDelivery(home, output.name, table, self._sink)
        except BaseException:
            self._sink.close()
            raise

    def step(self) -> int:
        moved = self._delivery.step()
        if not moved:
            time.sleep(PATIENCE / 2)
        return moved

    def lag(self) -> int:
        return self._delivery.lag()

    def positions(self) -> tuple[tuple[str, str], ...]:
        position = self._delivery.position
        return () if position is None else (("number", str(position.number)), ("cursor", position.cursor))

    def is_done(self) -> bool:
        self._delivery.flush()
        return not self._delivery.lag()

    def flush(self) -> None:
        self._delivery.flush()

    def close(self) -> None:
        self._delivery.close()


def _source_setting(
    pipeline: PipelineDeclaration, source: SourceDeclaration, now: Callable[[], int], keep: Path | None = None
) -> SourceSetting:
    beside = None if source.directory is None else Path(source.directory)
    return SourceSetting(pipeline.stream(source.stream), source.values, pipeline.name, now, keep, beside)


def open_transfer(
    home: Home, pipeline: PipelineDeclaration, connector: Connector, now: Callable[[], int] = now_us
) -> Transfer:
    """Return a new transfer of a source or an output."""
    if isinstance(connector, SourceDeclaration):
        return SourceTransfer(home, pipeline, connector, now)
    return OutputTransfer(home, pipeline, connector)


def connect_all(pipeline: PipelineDeclaration, stages: Iterable[Stage]) -> Iterator[str]:
    """Connect to the other side of every source and output, and yield what was reached; an error says what was not. Nothing is
    moved, and nothing is written in a home."""
    for source in pipeline.sources:
        with closing(open_source(source, _source_setting(pipeline, source, now_us))) as opened:
            opened.ends()
        yield f'the source of stream "{source.stream}" ({source.kind})'
    streams = {stream.name: stream for stream in pipeline.streams}
    streams |= {stage.output.name: stage.stream for stage in stages if isinstance(stage.output, StreamDeclaration)}
    tables = {table.name: table for table in pipeline.tables}
    for output in pipeline.outputs:
        if output.reads in tables:
            setting = _table_setting(pipeline, output, tables[output.reads], "check")
        else:
            setting = _sink_setting(pipeline, output, streams[output.reads], "check")
        with closing(open_sink(output, setting)) as sink:
            sink.position()
        yield f'output "{output.name}" ({output.kind})'


def _table_setting(
    pipeline: PipelineDeclaration,
    output: OutputDeclaration,
    table: TableDeclaration,
    home: str,
    keep: Path | None = None,
) -> SinkSetting:
    from hayase.connectors.table_delivery import table_stream  # loads RocksDB

    stream = table_stream(table)
    setting = _sink_setting(pipeline, output, stream, home, keep)
    return replace(setting, rows=pa.schema([column for column in setting.rows if column.name != stream.time]))


def _sink_setting(
    pipeline: PipelineDeclaration,
    output: OutputDeclaration,
    stream: StreamDeclaration,
    home: str,
    keep: Path | None = None,
) -> SinkSetting:
    own = pa.schema([stream.arrow_schema.field(name) for name in own_columns(stream)])
    beside = None if output.directory is None else Path(output.directory)
    return SinkSetting(stream, own, output.values, pipeline.name, output.name, home, keep, beside)


@dataclass(slots=True)
class _Pauses:
    """How long to wait before the next attempt: twice as long each time, until something has moved."""

    next: float = FIRST_PAUSE
    attempts: int = 0
    since: int | None = None
    began: float = field(default_factory=time.monotonic)

    def failed(self) -> float:
        pause, self.next = self.next, min(2 * self.next, LONGEST_PAUSE)
        if not self.attempts:
            self.since, self.began = now_us(), time.monotonic()
        self.attempts += 1
        return pause

    @property
    def seconds(self) -> float:
        """Seconds since the first of the attempts that failed in a row."""
        return time.monotonic() - self.began if self.attempts else 0.0


def run_transfer(
    home: Home,
    pipeline: PipelineDeclaration,
    connector: Connector,
    stopping: Callable[[float], bool],
    *,
    until_end: bool = False,
    now: Callable[[], int] = now_us,
) -> None:
    """Move records until `stopping`, which waits so many seconds and returns whether to stop; with `until_end`, until everything
    that was there has been moved, and EndpointError if the other side cannot be reached for a minute."""
    role: Role = "sources" if isinstance(connector, SourceDeclaration) else "outputs"
    durable.remove_leftovers(directory_of(home, role, connector.name))
    figures = Figures(home, role, connector)
    pauses, transfer = _Pauses(), None
    figures.show("starting")
    try:
        while not stopping(0.0):
            try:
                if is_paused(home, role, connector.name):
                    if transfer is not None:
                        transfer.close()
                        transfer = None
                    pauses = _Pauses()
                    figures.show("paused", **_NO_ERROR)
                    if until_end or stopping(0.2):
                        return
                    continue
                if transfer is None:
                    transfer = open_transfer(home, pipeline, connector, now)
                moved = transfer.step()
                if moved or pauses.attempts:
                    pauses = _Pauses()
                figures.count(moved)
                if figures.is_due:
                    figures.show("running", lag=transfer.lag(), positions=transfer.positions(), **_NO_ERROR)
                if until_end and not moved and transfer.is_done():
                    return
            except UnknownName:  # the stage that writes the stream has not begun
                figures.show("starting", error=None)
                if until_end or stopping(0.2):
                    return
            except Exception as error:
                pause = pauses.failed()
                _note(connector, error, pauses)
                if transfer is not None:
                    _close(transfer)
                    transfer = None
                figures.fail(_text(error), pauses.attempts, pauses.since, pause, _waiting(home, connector))
                if until_end and pauses.seconds > GIVE_UP:
                    raise EndpointError(f'"{connector.name}" failed for {GIVE_UP:.0f} s: {_text(error)}') from error
                if _wait(pause, stopping, figures, lambda: is_paused(home, role, connector.name)):
                    return
        if transfer is not None:
            _flush(connector, transfer)
    finally:
        if transfer is not None:
            _close(transfer)
        figures.show("stopped", **_NO_ERROR)


def _wait(
    seconds: float, stopping: Callable[[float], bool], figures: Figures, is_interrupted: Callable[[], bool]
) -> bool:
    """Wait for the next attempt, or less if a command pauses the connector; return whether to stop. The status is written
    meanwhile: one that is not counts as that of a process that has ended."""
    while seconds > 0 and not is_interrupted():
        if stopping(min(seconds, 1.0)):
            return True
        seconds -= 1.0
        figures.show("retrying")
    return False


def _waiting(home: Home, connector: Connector) -> int | None:
    """Return about how much waits while the other side fails: of an output the home knows it, of a source nobody does."""
    if isinstance(connector, SourceDeclaration):
        return None
    try:
        return undelivered(home, connector.name, StreamLog.open(home.path, connector.reads))
    except HayaseError:  # such as a stream that is not there yet
        return None


def _close(transfer: Transfer) -> None:
    try:
        transfer.close()
    except Exception as error:  # what is lost with it is read or written again
        _log.info("closing failed: %s", error)


def _flush(connector: Connector, transfer: Transfer) -> None:
    try:
        transfer.flush()
    except Exception as error:  # it is written by the next run
        _log.warning('"%s" could not write what was left: %s', connector.name, _text(error))


def _text(error: Exception) -> str:
    if isinstance(error, HayaseError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _note(connector: Connector, error: Exception, pauses: _Pauses) -> None:
    """Log a failure: the first of a row, with the traceback if it is a fault."""
    if pauses.attempts == 1:
        fault = not isinstance(error, HayaseError)
        _log.warning('"%s" is tried again: %s', connector.name, _text(error), exc_info=error if fault else None)


def run_until_end(
    home: Home, pipeline: PipelineDeclaration, connectors: tuple[Connector, ...], now: Callable[[], int] = now_us
) -> None:
    """Move everything that is there now, of several connectors at the same time; the first error of one is raised."""
    if not connectors:
        return
    with ThreadPoolExecutor(min(8, len(connectors)), "connector") as pool:
        running = [
            pool.submit(run_transfer, home, pipeline, connector, _sleep, until_end=True, now=now)
            for connector in connectors
        ]
    for future in running:
        future.result()


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False
