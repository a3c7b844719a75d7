"""Keeps a process for every source and output of the newest definition, beside the lanes of a running pipeline."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from types import TracebackType

from hayase.connectors.status import ROLES, Connector, Figures, Role, connector_named, connectors_of
from hayase.connectors.transfers import FIRST_PAUSE, LONGEST_PAUSE
from hayase.core.clock import now_us
from hayase.core.data_classes import dataclass
from hayase.core.declarations import PipelineDeclaration
from hayase.engine.definition.definitions import Definition, definition_of, latest_version
from hayase.engine.home import Home, open_log

__all__ = ["Connectors"]

_logger = logging.getLogger(__name__)
LOOK = 0.25
"""Seconds between two looks at the processes and at the definition."""
PATIENCE = 10.0
"""Seconds that a process has to end by itself."""


@dataclass(slots=True)
class _Child:
    """The process of a connector, and what it was started with."""

    process: subprocess.Popen[bytes]
    declared: object
    started: float
    pause: float = FIRST_PAUSE
    again_at: float | None = None
    deaths: int = 0
    """How often its process has ended by itself, each time soon after it was started."""
    died: int | None = None
    """When that began, in microseconds."""
    figures: Figures | None = None
    """What is shown until it is started again."""


class Connectors:
    """A context manager in which the connectors run. A connector that is added, changed or removed by a new definition starts,
    starts anew or ends; one whose process ends is started again."""

    def __init__(self, home: Home):
        self._home = home
        self._children: dict[tuple[Role, str], _Child] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._rounds, name="connectors", daemon=True)

    def __enter__(self) -> Connectors:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        for child in self._children.values():
            _ask_to_end(child.process)
        for child in self._children.values():
            _end(child.process)

    def _rounds(self) -> None:
        while not self._done.is_set():
            try:
                version = latest_version(self._home)
                if version:
                    self._compare(definition_of(self._home, version))
            except Exception as error:  # such as a definition that is damaged, which the lanes report
                _logger.warning("sources and outputs are looked at again: %s", error)
            self._done.wait(LOOK)

    def _compare(self, definition: Definition) -> None:
        """Start, restart and end processes, so that they are those that a definition declares."""
        declaration = definition.declaration
        wanted = {
            (role, connector.name): _declared(declaration, role, connector)
            for role in ROLES
            for connector in connectors_of(declaration, role)
        }
        for key, child in list(self._children.items()):
            if key not in wanted or wanted[key] != child.declared:
                _ask_to_end(child.process)
                _end(child.process)
                del self._children[key]
        for key, declared in wanted.items():
            if key not in self._children:
                self._children[key] = _Child(self._start(key, definition), declared, time.monotonic())
            elif self._children[key].process.poll() is not None:
                self._restart(key, self._children[key], definition)

    def _restart(self, key: tuple[Role, str], child: _Child, definition: Definition) -> None:
        """Start a process that has ended again, after a pause that is longer the more often it ends at once."""
        moment = time.monotonic()
        if child.again_at is None:
            if moment - child.started > 2 * LONGEST_PAUSE:
                child.pause, child.deaths, child.died = FIRST_PAUSE, 0, None
            child.deaths, child.died = child.deaths + 1, child.died or now_us()
            error = f"its process has ended {_way_of(child.process.returncode)}; see {self._home.connector_log}"
            connector = connector_named(definition.declaration, *key)
            child.figures = Figures(self._home, key[0], connector)
            child.figures.fail(error, child.deaths, child.died, child.pause)
            _logger.warning('"%s" is tried again in %.1f s: %s', key[1], child.pause, error)
            child.again_at, child.pause = moment + child.pause, min(2 * child.pause, LONGEST_PAUSE)
        elif moment >= child.again_at:
            _ask_to_end(child.process)  # nobody reads what it was asked with
            child.process, child.started, child.again_at = self._start(key, definition), moment, None
        elif child.figures is not None:
            child.figures.show("retrying")

    def _start(self, key: tuple[Role, str], definition: Definition) -> subprocess.Popen[bytes]:
        role, name = key
        command = [sys.executable, "-m", "hayase.connectors.worker", str(self._home.path), role, name]
        log = open_log(self._home.connector_log)
        try:
            return subprocess.Popen(
                [*command, str(definition.version)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        finally:
            os.close(log)


def _declared(declaration: PipelineDeclaration, role: Role, connector: Connector) -> object:
    """Return what a process depends on: the connector, and the stream of a source."""
    return (connector, declaration.stream(connector.name) if role == "sources" else None)


def _way_of(code: int) -> str:
    """Say how a process has ended."""
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def _ask_to_end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that was asked to end; kill it if it does not."""
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
