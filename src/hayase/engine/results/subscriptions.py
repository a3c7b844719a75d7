"""Subscriptions (`p.view`): functions in the pipeline's own process that receive results as they are committed.

A view receives the records of a stream in the order of the log, at least once: its position is in
`<home>/views/<stream>.<function>.json` and is written after each call. Records for which the function raises become dead
letters, and the view continues after them. One thread calls all views of a pipeline, so they need no locks.
"""

from __future__ import annotations

import logging
import re
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.errors import DamagedState, OffsetGone, StreamError, UnknownName
from hayase.core.reasons import Reason, ReasonKind
from hayase.engine.definition.definitions import latest
from hayase.engine.home import Home, writing
from hayase.streams import StreamLog
from hayase.streams.dead_letters import DEAD, VIEW, dead_table
from hayase.streams.durable import make_directory, write_atomic
from hayase.streams.json_columns import records
from hayase.streams.records import row_texts
from hayase.streams.repeats import first_pieces
from hayase.streams.schema_evolution import stored_declaration
from hayase.streams.sealed import read_sealed, seal

__all__ = ["MOST_RECORDS", "Subscription", "Subscriptions", "added"]

_KIND = "place of a view"

MOST_RECORDS = 1000
"""Greatest number of records per call of a view."""
LOOK = 1.0
"""Seconds between polls for records that no commit announces, such as those of declared streams."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A function that receives the records of a stream, as a list of dicts."""

    stream: str
    function: Callable[[list[dict[str, Any]]], object]

    @property
    def name(self) -> str:
        """The name of the function, which identifies the view among those of its stream."""
        name = getattr(self.function, "__name__", None) or type(self.function).__name__
        return re.sub(r"\W", "_", name)


def added(views: Sequence[Subscription], view: Subscription) -> tuple[Subscription, ...]:
    """Return the views with one more; it replaces the one with its stream and name."""
    return (*(other for other in views if (other.stream, other.name) != (view.stream, view.name)), view)


class Subscriptions:
    """A context manager that calls views in a thread. On exit, unless there was an error, it first delivers all committed
    records, and raises the error of the thread, if there is one."""

    def __init__(self, home: Home, views: Sequence[Subscription], now: Callable[[], int]) -> None:
        self._home, self._now = home, now
        self._views = [Reader(home, view) for view in views]
        self._wake, self._done, self._stop = threading.Event(), threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def committed(self, *_: object) -> None:
        """Wake the thread: there may be new results."""
        self._wake.set()

    def __enter__(self) -> Subscriptions:
        if self._views:
            self._thread = threading.Thread(target=self._rounds, name="views", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is None:
            return
        if error is not None:
            self._stop.set()
        self._done.set()
        self._wake.set()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _rounds(self) -> None:
        try:
            while not self._stop.is_set():
                last = self._done.is_set()  # read first, so that all records committed before the exit are delivered
                self._wake.clear()
                for reader in self._views:
                    reader.catch_up(self._now, self._stop.is_set)
                if last:
                    return
                self._wake.wait(LOOK)
        except BaseException as error:
            self._error = error
            logging.getLogger(__name__).error(
                "views receive nothing more until the pipeline is started again: %s", error
            )


class Reader:
    """A view and its position in its stream."""

    def __init__(self, home: Home, view: Subscription) -> None:
        self._home, self._view = home, view
        self._path = home.path / "views" / f"{view.stream}.{view.name}.json"
        self._next: int | None = None

    def catch_up(self, now: Callable[[], int], stopped: Callable[[], bool]) -> None:
        """Call the view with all records after its position."""
        began = self._began()
        try:
            log = StreamLog.open(self._home.path, self._view.stream)
            for first, rows in self._pieces(log):
                if stopped():
                    return
                self._give(rows, first, now)
                self._keep(first + rows.num_rows)
        except UnknownName:  # the stage that writes the stream has not begun
            return
        except (StreamError, DamagedState):
            if not self._is_replaced(began):
                raise

    def _began(self) -> int:
        """Return the definition with which the stage that wrote what is in the stream began; 0 if unknown."""
        try:
            stored = stored_declaration(self._home.path / "streams" / self._view.stream)
        except DamagedState:
            return 0
        return int(stored.mark) if stored is not None and stored.mark is not None else 0

    def _is_replaced(self, began: int) -> bool:
        """Return whether the stage that writes the stream begins anew, and removes what one that `began` earlier wrote."""
        definition = latest(self._home)
        records = definition.records if definition is not None else ()
        return any(record.generation > began for record in records if record.output.name == self._view.stream)

    def _pieces(self, log: StreamLog) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield records in portions of at most MOST_RECORDS, each with the offset of its first record."""
        index = log.index()
        at = max(self._place(), index.start)
        while at < index.next:
            try:
                for piece in first_pieces(log, at, index.next):
                    for first in range(0, piece.rows.num_rows, MOST_RECORDS):
                        yield piece.first + first, log.declaration.shown(piece.rows.slice(first, MOST_RECORDS))
                    at = piece.first + piece.rows.num_rows
                at = index.next  # the last records may be repeats
            except OffsetGone:  # removed by retention or a reset
                at = max(self._place(), log.index().start)

    def _give(self, rows: pa.RecordBatch, first: int, now: Callable[[], int]) -> None:
        try:
            self._view.function(records(rows))
        except BaseException as error:  # also SystemExit: a view must not end the pipeline
            name, count = self._view.stream, rows.num_rows
            letters = dead_table(
                stage=f"{VIEW}{name}",
                version=None,
                stream=name,
                offsets=list(range(first, first + count)),
                records=row_texts(pa.Table.from_batches([rows])),
                reasons=[Reason(ReasonKind.FUNCTION, f'view "{self._view.name}" raised {_error_text(error)}')] * count,
                attempts=1,
                now=now(),
            )
            producer = f"view/{name}.{self._view.name}"
            StreamLog.ensure(self._home.path, DEAD).append(
                letters, now=now(), producer=producer, sequence=first + count
            )

    def _place(self) -> int:
        if self._next is None:
            self._next = _kept(self._path)
        return self._next

    def _keep(self, after: int) -> None:
        with writing(f"the place of a view, {self._path}"):
            make_directory(self._path.parent)
            write_atomic(self._path, seal(_KIND, orjson.dumps({"next": after})))
        self._next = after


def _error_text(error: BaseException) -> str:
    """Format an error: its message, then the traceback from the view on."""
    trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
    lines = traceback.format_exception(type(error), error, trace)
    return f"{type(error).__name__}: {error}\n{''.join(lines).rstrip()}"


def _kept(path: Path) -> int:
    remedy = "put back a copy, or delete it: then the view gets all records again"
    try:
        return int(orjson.loads(read_sealed(path, _KIND, remedy))["next"])
    except FileNotFoundError:
        return 0
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedState(f"the place of a view, {path}, cannot be read: {error}", remedy) from error
