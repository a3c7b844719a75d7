"""Reads and appends behind the routes, without HTTP: tables, streams and queries of a home at its last complete commit.

The pipeline keeps a `Status` up to date: its condition, and the last manifest whose outputs are all published, which is not
always the newest one on disk. An answer is labelled with the status from before the read, so it contains at least that commit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration, TableDeclaration
from hayase.core.errors import UnknownName
from hayase.core.times import BEGINNING, END, instant_text
from hayase.engine.commit.manifests import Manifest
from hayase.engine.condition import Condition, State
from hayase.engine.definition.definitions import Definition, latest, load
from hayase.engine.home import Home
from hayase.engine.logs import Logs, declared_streams
from hayase.engine.results.lifetime_samples import Timeline
from hayase.engine.results.live_results import Live
from hayase.serving.problems import RETRY_AFTER, Problem
from hayase.streams import Index, StreamLog
from hayase.streams.appends import Accepted, append_conformed
from hayase.streams.log import UNKNOWN
from hayase.streams.records import Conformed
from hayase.streams.schema_evolution import stored_declaration
from hayase.tables.table import Table

if TYPE_CHECKING:
    from hayase.relations.versions import Versions

__all__ = ["Behind", "CommittedStatus", "Service", "State", "Status", "TablesOfHome"]


class TablesOfHome(Protocol):
    """The tables, open for reading in this process."""

    def names(self) -> Sequence[str]: ...

    def declaration(self, name: str) -> TableDeclaration: ...

    def table(self, name: str) -> Table: ...


@dataclass(frozen=True, slots=True)
class Behind:
    """How far a replica is behind the newest manifests of its home: batches, and since when by a monotonic clock in seconds."""

    batches: int = 0
    since: float | None = None

    def seconds(self, monotonic: float) -> float:
        """Return for how long it has been behind."""
        return 0.0 if self.since is None else max(0.0, monotonic - self.since)


@dataclass(frozen=True, slots=True)
class CommittedStatus:
    """The condition of a pipeline and its last complete commit, as one value."""

    condition: Condition = Condition()
    manifest: Manifest = Manifest()
    is_open: bool = False
    """Whether everything that the manifest commits is published, so that it can be served."""
    committed_monotonic: float | None = None
    """When this process committed its last batch, by a monotonic clock in seconds."""
    versions: Versions | None = None
    """In a replica: exactly what it reads, with tables that are open at these versions."""
    behind: Behind | None = None
    """In a replica: what it does not show yet."""

    @property
    def state(self) -> State:
        """The state of the pipeline."""
        return self.condition.state

    @property
    def reason(self) -> str | None:
        """Why it is in this state, if there is a reason to give."""
        return self.condition.reason

    def seconds_ago(self, wall: int, monotonic: float) -> float | None:
        """Return the seconds since the last commit, or None if there was none; jumps of the wall clock do not matter."""
        if not self.manifest.version:
            return None
        if self.committed_monotonic is not None:
            return monotonic - self.committed_monotonic
        return max(0, wall - self.manifest.committed_at) / 1e6

    @property
    def committed_at(self) -> str | None:
        """When the last batch that answers are sure to contain was committed, as ISO text."""
        return instant_text(self.manifest.committed_at) if self.manifest.version else None

    def clock(self, stage: str) -> int | None:
        """Return the clock of a stage: all records before this event time are processed. None if it has not moved yet."""
        positions = self.manifest.offset.positions.get(stage, {}).values()
        clock = min((position.clock for position in positions), default=BEGINNING)
        if clock >= END:
            clock = max(position.peak for position in positions) + 1
        return None if clock <= BEGINNING + 1 else clock


class Status:
    """The current `CommittedStatus`: written by the pipeline, read by the server, from any thread.

    >>> status = Status()
    >>> status.now.state
    'starting'
    >>> status.set("running")
    >>> status.now.state
    'running'
    """

    def __init__(self, state: State = "starting", manifest: Manifest | None = None):
        self.now = CommittedStatus(
            Condition(state), manifest or Manifest(), state != "starting" or manifest is not None
        )
        self._lock = threading.Lock()
        self._subscribers: tuple[Callable[[], None], ...] = ()

    def subscribe(self, call: Callable[[], None]) -> Callable[[], None]:
        """Let `call` be called, in any thread, whenever the status has changed; return what ends that."""
        with self._lock:
            self._subscribers = (*self._subscribers, call)

        def unsubscribe() -> None:
            with self._lock:
                self._subscribers = tuple(each for each in self._subscribers if each is not call)

        return unsubscribe

    def set(self, state: State, reason: str | None = None) -> None:
        """Set the state. While the pipeline starts, data are served only if the status was made with a manifest."""
        self.set_condition(Condition(state, reason))

    def set_condition(self, condition: Condition) -> None:
        """Set the condition; the runner of the pipeline calls this back."""
        with self._lock:
            is_open = self.now.is_open or condition.state not in ("starting", "failed")
            self.now = replace(self.now, condition=condition, is_open=is_open)
        self._notify()

    def committed(self, manifest: Manifest) -> None:
        """Set the last manifest whose outputs are all published; the lanes call this back."""
        with self._lock:
            self.now = replace(self.now, manifest=manifest, is_open=True, committed_monotonic=time.monotonic())
        self._notify()

    def follow(self, now: CommittedStatus) -> None:
        """Set everything, as a replica does that follows the pipeline from another process."""
        with self._lock:
            self.now = now
        self._notify()

    def _notify(self) -> None:
        for call in self._subscribers:
            call()


class Service:
    """Reads and appends for the routes. All methods may be called from many threads, and may wait for the disk."""

    is_read_only = False
    """Whether requests that change something are refused."""
    reads_at_once = False
    """Whether a row is read in the thread of the event loop: to give it to another thread takes longer than to read it, but there
    nothing else may wait for the disk or for a lock of the pipeline."""

    def __init__(self, home: Home, clock: Callable[[], int], tables: TablesOfHome | None, status: Status):
        self.home, self.clock, self.tables, self.status = home, clock, tables, status
        self._definitions: dict[int, Definition] = {}
        self._tables: dict[tuple[int, str], Table] = {}

    # -- what there is --------------------------------------------------------------------------------------------------
    def committed_status(self) -> CommittedStatus:
        """Return the status if the data can be served, else raise a problem with the reason."""
        now = self.status.now
        if not now.is_open:
            raise Problem(
                503, "the pipeline is starting, and what it had committed is not complete yet; try again in a moment",
                {"Retry-After": str(RETRY_AFTER), "Hayase-State": now.state},
            )  # fmt: skip
        return now

    def definition(self, now: CommittedStatus) -> Definition:
        """Return the definition that runs; before the first batch, the newest one."""
        version = now.manifest.offset.definition
        definition = self._definitions.get(version)
        if definition is None:
            newest = load(self.home, version) if version else latest(self.home)
            if newest is None:
                raise Problem(503, "no pipeline was declared in this home yet", {"Retry-After": str(RETRY_AFTER)})
            definition = newest
            if version:
                self._definitions = {version: definition}
        return definition

    # -- tables ---------------------------------------------------------------------------------------------------------
    def table_names(self, now: CommittedStatus) -> list[str]:
        """Return the names of the tables."""
        return list(self.tables.names()) if self.tables is not None else []

    def table(self, name: str, now: CommittedStatus) -> Table:
        """Return a table to read from; it is looked up once for each definition."""
        place = now.manifest.offset.definition, name
        wanted = self._tables.get(place)
        if wanted is None:
            if self.tables is None:
                raise UnknownName("table", name, ())
            wanted = self.tables.table(name)
            self._tables = {key: table for key, table in self._tables.items() if key[0] == place[0]} | {place: wanted}
        return wanted

    # -- streams --------------------------------------------------------------------------------------------------------
    def streams(self, now: CommittedStatus) -> dict[str, StreamDeclaration]:
        """Return the declared streams, to which clients append, by name."""
        return {stream.name: stream for stream in self.definition(now).declaration.streams}

    def stream(self, name: str, now: CommittedStatus) -> StreamDeclaration:
        """Return a declared stream; the problem for the output of a query says where to read it."""
        definition = self.definition(now)
        if name in [query.name for query in definition.declaration.queries]:
            raise Problem(
                404, f'"{name}" is written by the query of that name; read it from /queries/{name}, and append to a '
                "stream that it reads",
            )  # fmt: skip
        return definition.declaration.stream(name)

    def readable(self, name: str, now: CommittedStatus) -> tuple[StreamLog, Index | None]:
        """Return the log of a stream whose records can be shown, a declared one or the output of a stage, and its index."""
        streams = {
            stream: found
            for stream, found in declared_streams(self.definition(now).without_build()).items()
            if stream[0] != "_"
        }
        if name not in streams:
            raise UnknownName("stream", name, streams)
        log = self.log(streams[name])
        return log, log.index() if log.path.exists() else None

    def log(self, declaration: StreamDeclaration) -> StreamLog:
        """Return the log of a stream."""
        return StreamLog(self.home.path, declaration)

    def append(self, declaration: StreamDeclaration, conformed: Conformed, key: tuple[str, int] | None) -> Accepted:
        """Append durably; with a key (producer and sequence), once: a repeated append gets the answer of the first."""
        if key is None:
            return append_conformed(self.home.path, declaration, conformed, self.clock())
        producer, sequence = key
        done = append_conformed(self.home.path, declaration, conformed, self.clock(), producer, sequence)
        if done.repeated and done.first == UNKNOWN:
            raise Problem(
                409, f"number {sequence} of this Idempotency-Key is not above its last one, and whether it was taken is "
                "not known any more; send the numbers of one name one after the other, each until it is answered",
            )  # fmt: skip
        if done.repeated and done.next - done.first != done.accepted:
            raise Problem(
                422, f"this Idempotency-Key was used for another request, of which {done.next - done.first:,} records were "
                f"taken, and {done.accepted:,} of this one fit; give each request a key of its own",
            )  # fmt: skip
        return done

    def lags(self, now: CommittedStatus) -> dict[str, dict[str, int]]:
        """Return how many records each stage has not yet read, by stage and stream."""
        positions = now.manifest.offset.positions
        if not positions:
            return {}
        logs = Logs(self.home, self.definition(now))
        ends = logs.ends({name for inputs in positions.values() for name in inputs})
        return {
            stage: {stream: max(0, ends.get(stream, 0) - position.at) for stream, position in inputs.items()}
            for stage, inputs in positions.items()
        }

    # -- queries --------------------------------------------------------------------------------------------------------
    def queries(self, now: CommittedStatus) -> Mapping[str, tuple[str, StreamDeclaration]]:
        """Return the text and the output stream of every query, by name."""
        definition = self.definition(now)
        outputs = declared_streams(definition)
        return {query.name: (query.text, outputs[query.name]) for query in definition.declaration.queries}

    def query(self, name: str, now: CommittedStatus) -> Live:
        """Return the results of a query."""
        return Live(self.results_log(name, now))

    def growing(self, name: str, now: CommittedStatus) -> Live:
        """Return the results of a query for one who follows them while they grow."""
        return self.query(name, now)

    def timeline(self, name: str, now: CommittedStatus) -> Timeline:
        """Return the results of a query as a timeline draws them."""
        return Timeline(self.results_log(name, now))

    def results_log(self, name: str, now: CommittedStatus) -> StreamLog:
        """Return the log of the results of a query."""
        queries = self.queries(now)
        if name not in queries:
            raise UnknownName("query", name, queries)
        log = self.log(queries[name][1])
        stored = stored_declaration(log.path)
        if stored is not None and stored.mark is not None and stored.declaration.schema != log.declaration.schema:
            log = self.log(stored.declaration)  # a version that has replaced this one just now
        return log
