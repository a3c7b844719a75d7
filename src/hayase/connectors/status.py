"""What sources and outputs are doing, as small files in the home: for the command line, HTTP, metrics and the live view.

    <home>/sources/<stream>/status.json       <home>/outputs/<output>/status.json
    <home>/sources/<stream>/paused            <home>/outputs/<output>/paused

The process of a connector writes its status about once a second. `paused` is an empty file; commands create and remove it, and
the process looks at it. So all of this works whether or not the pipeline runs, and from other processes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import orjson

from hayase.core.clock import now_us
from hayase.core.data_classes import dataclass
from hayase.core.declarations import OutputDeclaration, PipelineDeclaration, SourceDeclaration
from hayase.core.errors import UnknownName
from hayase.engine.definition.definitions import definition_of, latest_version
from hayase.engine.home import Home, writing
from hayase.streams import durable

__all__ = [
    "ROLES",
    "ConnectorStatus",
    "Figures",
    "Role",
    "State",
    "connector_named",
    "connectors_of",
    "directory_of",
    "is_paused",
    "pause",
    "resume",
    "running_statuses",
    "status_of",
    "statuses",
]

Role = Literal["sources", "outputs"]
ROLES: tuple[Role, ...] = ("sources", "outputs")
State = Literal["starting", "running", "retrying", "paused", "stopped"]
STALE = 30.0
"""Seconds after which a status that is not written any more counts for nothing."""
_WINDOW = 10.0
"""Seconds over which rates are measured."""


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    """What a source or an output is doing. `records` counts records or changes since the pipeline started, `rate` those per
    second; `lag` is what waits on the other side (None: not known). `error` says why it is tried again, `since` when it began to
    fail, `attempts` how often it has failed since then, and `again` when the next attempt is made. `failures` counts all failures
    since the pipeline started; `last_error` is the last of them, also when it works again, and `failed` when that was.
    `positions` say how far it is. Times are microseconds."""

    role: Role
    name: str
    kind: str
    target: str = ""
    state: State = "stopped"
    records: int = 0
    rate: float = 0.0
    lag: int | None = None
    error: str | None = None
    since: int | None = None
    attempts: int = 0
    again: int | None = None
    failures: int = 0
    last_error: str | None = None
    failed: int | None = None
    positions: tuple[tuple[str, str], ...] = ()
    written: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return plain data for a JSON writer."""
        return {**asdict(self), "positions": dict(self.positions)}


Connector = SourceDeclaration | OutputDeclaration


def connectors_of(declaration: PipelineDeclaration, role: Role) -> tuple[Connector, ...]:
    """Return the declared sources or outputs."""
    return declaration.sources if role == "sources" else declaration.outputs


def connector_named(declaration: PipelineDeclaration, role: Role, name: str) -> Connector:
    """Return a declared source, by the name of its stream, or output; UnknownName if there is none."""
    declared = connectors_of(declaration, role)
    for connector in declared:
        if connector.name == name:
            return connector
    raise UnknownName(role.removesuffix("s"), name, [connector.name for connector in declared])


def directory_of(home: Home, role: Role, name: str) -> Path:
    """Return the directory of a connector's files."""
    return home.path / role / name


def status_of(home: Home, role: Role, connector: Connector) -> ConnectorStatus:
    """Return the last status of a connector; `stopped` or `paused` if no process of it runs."""
    nothing = ConnectorStatus(role, connector.name, connector.kind, connector.target)
    try:
        data = orjson.loads((directory_of(home, role, connector.name) / "status.json").read_bytes())
        status = ConnectorStatus(**{**data, "positions": tuple(data["positions"].items())})
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        status = nothing
    if status.kind != connector.kind:
        status = nothing
    if status.state != "stopped" and (now_us() - status.written > STALE * 1e6 or not home.is_locked()):
        status = replace(status, state="stopped", rate=0.0)
    status = replace(status, target=connector.target)
    if is_paused(home, role, connector.name):
        return replace(status, state="paused", rate=0.0)
    return replace(status, state="starting") if status.state == "paused" else status  # it has been resumed


def statuses(home: Home, declaration: PipelineDeclaration) -> Iterator[ConnectorStatus]:
    """Yield the status of every declared source and output."""
    for role in ROLES:
        for connector in connectors_of(declaration, role):
            yield status_of(home, role, connector)


def running_statuses(home: Home) -> list[ConnectorStatus]:
    """Return the statuses of the sources and outputs of the newest definition, which are the ones that run."""
    version = latest_version(home)
    return list(statuses(home, definition_of(home, version).declaration)) if version else []


def is_paused(home: Home, role: Role, name: str) -> bool:
    """Return whether a command has paused a connector."""
    return (directory_of(home, role, name) / "paused").exists()


def pause(home: Home, role: Role, name: str) -> bool:
    """Pause a connector, durably; return whether it was not paused before."""
    directory = directory_of(home, role, name)
    if is_paused(home, role, name):
        return False
    with writing(f"the pause of {name}"):
        durable.make_directory(directory)
        durable.create_empty(directory / "paused")
    return True


def resume(home: Home, role: Role, name: str) -> bool:
    """Let a paused connector go on; return whether it was paused."""
    if not is_paused(home, role, name):
        return False
    directory = directory_of(home, role, name)
    with writing(f"the pause of {name}"):
        durable.remove(directory / "paused")
        durable.fsync_directory(directory)
    return True


class Figures:
    """Counts what a connector does and writes its status, about once a second and when its state changes."""

    def __init__(self, home: Home, role: Role, connector: Connector):
        self._path = directory_of(home, role, connector.name) / "status.json"
        self._status = ConnectorStatus(role, connector.name, connector.kind, connector.target)
        self._counts: list[tuple[float, int]] = []
        self._shown_at = float("-inf")

    def show(self, state: State, **changed: Any) -> None:
        """Write the status if it is due; at once if the state or the error is another, or an attempt has failed."""
        new = replace(self._status, state=state, **changed)
        moment = time.monotonic()
        is_news = _news(new) != _news(self._status)
        self._status = new
        if is_news or moment >= self._shown_at + 1.0:
            self._shown_at = moment
            self._write(moment)

    def fail(self, error: str, attempts: int, since: int | None, pause: float, lag: int | None = None) -> None:
        """Count a failure and write it; the next attempt is made after `pause` seconds. `lag` is what waits, if it is known."""
        moment = now_us()
        self.show(
            "retrying", error=error, attempts=attempts, since=since, again=moment + round(pause * 1e6),
            lag=lag, failures=self._status.failures + 1, last_error=error, failed=moment,
        )  # fmt: skip

    def count(self, records: int) -> None:
        """Count records or changes that went through."""
        if records:
            self._status = replace(self._status, records=self._status.records + records)

    @property
    def is_due(self) -> bool:
        """Whether the next `show` writes; what is costly to find out is found out then."""
        return time.monotonic() >= self._shown_at + 1.0

    def _write(self, moment: float) -> None:
        self._counts = [(at, count) for at, count in self._counts if at > moment - _WINDOW]
        self._counts.append((moment, self._status.records))
        first, before = self._counts[0]
        rate = (self._status.records - before) / (moment - first) if moment > first else 0.0
        self._status = replace(self._status, rate=round(rate, 1), written=now_us())
        durable.make_directory(self._path.parent)
        durable.write_volatile(self._path, orjson.dumps(self._status.as_json()))


def _news(status: ConnectorStatus) -> tuple[object, ...]:
    return status.state, status.error, status.failures
