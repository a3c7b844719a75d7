"""What the routes answer with, without HTTP: tables, streams and queries of a home, as the pipeline says it stands.

The pipeline tells its `Status`: where it is in its life, and the manifest whose promises are all kept, which is not always
the newest one on disk. An answer is labelled with the status from before it was read, so it holds at least what it says.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from hayase.core.declarations import StreamDeclaration, TableDeclaration
from hayase.core.errors import UnknownName
from hayase.core.times import BEGINNING, END, instant_text
from hayase.engine.commit.manifests import Manifest
from hayase.engine.condition import Condition, State
from hayase.engine.definition.definitions import Definition, latest, load
from hayase.engine.home import Home
from hayase.engine.logs import Logs, declared_streams
from hayase.serving.live_results import Live
from hayase.serving.problems import RETRY_AFTER, Problem
from hayase.streams import StreamLog
from hayase.streams.appends import Accepted, append_conformed
from hayase.streams.log import UNKNOWN
from hayase.streams.records import Conformed
from hayase.tables.table import Table

__all__ = ["Moment", "Service", "State", "Status", "TablesOfHome"]


class TablesOfHome(Protocol):
    """The tables, open for reading in this process."""

    def names(self) -> Sequence[str]: ...

    def declaration(self, name: str) -> TableDeclaration: ...

    def table(self, name: str) -> Table: ...


@dataclass(frozen=True, slots=True)
class Moment:
    """What a pipeline says of itself at one moment."""

    condition: Condition = Condition()  # noqa: RUF009 - frozen
    manifest: Manifest = Manifest()  # noqa: RUF009 - frozen
    is_open: bool = False
    """Whether what was committed is complete, so that it can be served."""
    moment: float | None = None
    """When the last batch was committed in this process, by a clock in seconds that only goes on."""

    @property
    def state(self) -> State:
        """Where the pipeline is in its life."""
        return self.condition.state

    @property
    def reason(self) -> str | None:
        """Why it is not simply running."""
        return self.condition.reason

    def seconds_ago(self, wall: int, moment: float) -> float | None:
        """The time since the last commit, whatever happened to the wall clock meanwhile; None if there was none."""
        if not self.manifest.version:
            return None
        return moment - self.moment if self.moment is not None else max(0, wall - self.manifest.committed_at) / 1e6

    @property
    def committed_at(self) -> str | None:
        """When the last batch was committed that answers are sure to hold."""
        return instant_text(self.manifest.committed_at) if self.manifest.version else None

    def clock(self, stage: str) -> int | None:
        """The event time before which a stage has taken in everything; None as long as there is none."""
        positions = self.manifest.offset.positions.get(stage, {}).values()
        clock = min((each.clock for each in positions), default=BEGINNING)
        if clock >= END:
            clock = max(each.peak for each in positions) + 1
        return None if clock <= BEGINNING + 1 else clock


class Status:
    """Written by the pipeline, read by the server; any thread may do either.

    >>> status = Status()
    >>> status.now.state
    'starting'
    >>> status.set("running")
    >>> status.now.state
    'running'
    """

    def __init__(self, state: State = "starting", manifest: Manifest | None = None):
        self.now = Moment(Condition(state), manifest or Manifest(), state != "starting" or manifest is not None)
        self._lock = threading.Lock()

    def set(self, state: State, reason: str | None = None) -> None:
        """Say where the pipeline is in its life. While it starts, data are served only if there is a manifest to go by."""
        self.tell(Condition(state, reason))

    def tell(self, condition: Condition) -> None:
        """Say how the pipeline is; the callback of those who run it."""
        with self._lock:
            is_open = self.now.is_open or condition.state not in ("starting", "failed")
            self.now = replace(self.now, condition=condition, is_open=is_open)

    def committed(self, manifest: Manifest) -> None:
        """Say that everything a manifest promises is done; the callback of a lane."""
        with self._lock:
            self.now = replace(self.now, manifest=manifest, is_open=True, moment=time.monotonic())


class Service:
    """Reads and appends for the routes. All of it may be called from many threads, and may wait for the disk."""

    def __init__(self, home: Home, clock: Callable[[], int], tables: TablesOfHome | None, status: Status):
        self.home, self.clock, self.tables, self.status = home, clock, tables, status
        self._definitions: dict[int, Definition] = {}
        self._tables: dict[tuple[int, str], Table] = {}

    # -- what there is --------------------------------------------------------------------------------------------------
    def moment(self) -> Moment:
        """The status, if the pipeline's data can be served; a problem with the reason if not."""
        now = self.status.now
        if not now.is_open:
            raise Problem(
                503, "the pipeline is starting, and what it had committed is not complete yet; try again in a moment",
                {"Retry-After": str(RETRY_AFTER), "Hayase-State": now.state},
            )  # fmt: skip
        return now

    def definition(self, now: Moment) -> Definition:
        """The definition that runs; before the first batch, the newest one."""
        version = now.manifest.offset.definition
        found = self._definitions.get(version)
        if found is None:
            newest = load(self.home, version) if version else latest(self.home)
            if newest is None:
                raise Problem(503, "no pipeline was declared in this home yet", {"Retry-After": str(RETRY_AFTER)})
            found = newest
            if version:
                self._definitions = {version: found}
        return found

    # -- tables ---------------------------------------------------------------------------------------------------------
    def table_names(self) -> list[str]:
        """The names of the tables."""
        return list(self.tables.names()) if self.tables is not None else []

    def table(self, name: str, now: Moment) -> Table:
        """A table to read from, looked up once for each definition."""
        place = now.manifest.offset.definition, name
        found = self._tables.get(place)
        if found is None:
            if self.tables is None:
                raise UnknownName("table", name, ())
            found = self.tables.table(name)
            self._tables = {key: each for key, each in self._tables.items() if key[0] == place[0]} | {place: found}
        return found

    # -- streams --------------------------------------------------------------------------------------------------------
    def streams(self, now: Moment) -> dict[str, StreamDeclaration]:
        """The streams that take records from outside."""
        return {each.name: each for each in self.definition(now).declaration.streams}

    def stream(self, name: str, now: Moment) -> StreamDeclaration:
        """A stream that takes records from outside; if it is another one, the problem says so."""
        definition = self.definition(now)
        if name in [each.name for each in definition.declaration.queries]:
            raise Problem(
                404, f'"{name}" is written by the query of that name; read it from /queries/{name}, and append to a '
                "stream that it reads",
            )  # fmt: skip
        return definition.declaration.stream(name)

    def log(self, declaration: StreamDeclaration) -> StreamLog:
        """The log of a stream."""
        return StreamLog(self.home.path, declaration)

    def append(self, declaration: StreamDeclaration, conformed: Conformed, key: tuple[str, int] | None) -> Accepted:
        """Append durably; with a key, once. What is said of a repeated append is what was said of the first."""
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

    def lags(self, now: Moment) -> dict[str, dict[str, int]]:
        """How many records each stage has yet to take, by stream."""
        positions = now.manifest.offset.positions
        if not positions:
            return {}
        logs = Logs(self.home, self.definition(now))
        ends = logs.ends({each for inputs in positions.values() for each in inputs})
        return {
            stage: {stream: max(0, ends.get(stream, 0) - each.at) for stream, each in inputs.items()}
            for stage, inputs in positions.items()
        }

    # -- queries --------------------------------------------------------------------------------------------------------
    def queries(self, now: Moment) -> Mapping[str, tuple[str, StreamDeclaration]]:
        """The text and the output of every query."""
        definition = self.definition(now)
        outputs = declared_streams(definition)
        return {each.name: (each.text, outputs[each.name]) for each in definition.declaration.queries}

    def query(self, name: str, now: Moment) -> Live:
        """The results of a query."""
        found = self.queries(now)
        if name not in found:
            raise UnknownName("query", name, found)
        return Live(self.log(found[name][1]))
