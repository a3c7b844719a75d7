"""The figures of a running pipeline: computed once per second while somebody looks, sampled for an hour whether or not.

`Figures` reads manifests, logs and governors, and is used by one thread at a time. `LiveFigures` calls it from the event loop and
gives the result to all pages that are open.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from typing import Any

import orjson

from hayase.connectors.status import ConnectorStatus, statuses
from hayase.core.data_classes import dataclass
from hayase.core.errors import HayaseError
from hayase.core.times import BEGINNING, END, instant_text
from hayase.engine.batch.lane_governor import governor_statuses
from hayase.engine.commit.manifests import Manifest
from hayase.engine.dead_letters.letters import Letters
from hayase.engine.definition.definitions import Definition
from hayase.engine.definition.pipeline_graph import Edge, Graph, Node, graph_of
from hayase.engine.logs import Logs, index_of
from hayase.engine.stage_figures import History, StageView, stage_views
from hayase.serving.connector_figures import connector_edge, connector_figures, connector_notices, connectors_by_node
from hayase.serving.fan_out import FanOut, event
from hayase.serving.governor_figures import LoadSamples, lane_figures
from hayase.serving.problems import LOGGER
from hayase.serving.route_support import RequestWorkers
from hayase.serving.service import CommittedStatus, Service
from hayase.serving.stage_notices import DEAD_SECONDS, Notice, StreamFacts, notices

__all__ = ["Figures", "LiveFigures"]

TICK_SECONDS = 1.0
SAMPLE_SECONDS = 10.0
SAMPLES = 360
"""An hour."""


@dataclass(slots=True)
class _Samples:
    """Rate and lag of one node, oldest first; `since` is the number of the first sample."""

    since: int
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    lags: deque[int] = field(default_factory=lambda: deque(maxlen=SAMPLES))


class Figures:
    """Computes the figures. `monotonic` is a clock in seconds."""

    def __init__(self, service: Service, monotonic: Callable[[], float] = time.monotonic):
        self._service, self._monotonic = service, monotonic
        self._letters = Letters(service.home, clock=service.clock)
        self._manifests = History()
        self._ends: deque[tuple[float, Mapping[str, int]]] = deque()
        self._dead: deque[tuple[float, Mapping[str, int]]] = deque()
        self._samples: dict[str, _Samples] = {}
        self._loads = LoadSamples(SAMPLES)
        self.sample = 0
        """The number of the newest sample."""

    def look(self, now: CommittedStatus) -> dict[str, Any]:
        """Return the graph with the figures of this moment, as JSON data."""
        definition = self._service.definition(now)
        graph, manifest, moment = graph_of(definition), now.manifest, self._monotonic()
        streams = self._streams(definition, graph, moment)
        ends = {name: facts.length for name, facts in streams.items()}
        self._manifests = self._manifests.seen(moment, manifest)
        elapsed, before = self._manifests.base()
        views = {view.name: view for view in stage_views(before, manifest, ends, elapsed)}
        appended = self._appended(moment, ends)
        governors = governor_statuses(self._service.home)
        connectors = connectors_by_node(statuses(self._service.home, definition.declaration))
        problems = [
            *notices(
                now.condition, list(views.values()), manifest.offset.positions, streams,
                self._refused(moment, manifest), governors,
            ),
            *connector_notices(list(connectors.values()), self._service.clock()),
        ]  # fmt: skip
        return {
            "name": definition.declaration.name,
            "state": now.state,
            "reason": now.reason,
            "version": manifest.version,
            "definition": definition.version,
            "committed_at": now.committed_at,
            "batch_seconds": round(manifest.seconds, 4),
            "sample": self.sample,
            "dead_open": self._open_letters(),
            "nodes": [
                _node(node, views.get(node.name), streams.get(node.name), appended, connectors.get(node.name))
                for node in graph.nodes
            ],
            "edges": [
                connector_edge(edge, connectors) or _edge(edge, before, manifest, ends, elapsed) for edge in graph.edges
            ],
            "problems": [asdict(notice) for notice in sorted(problems, key=_is_warning)],
            "governor": lane_figures(governors),
        }  # fmt: skip

    def take_sample(self, pipeline: Mapping[str, Any]) -> None:
        """Add what `look` returned to the history; what is older than an hour is dropped."""
        self.sample += 1
        figures = {node["name"]: node["figures"] for node in pipeline["nodes"]}
        self._samples = {name: self._samples.get(name) or _Samples(self.sample) for name in figures}
        for name, samples in self._samples.items():
            samples.rates.append(figures[name]["rate"] or 0.0)
            samples.lags.append(figures[name]["lag"] or 0)
        self._loads.add(pipeline["governor"])

    def history(self) -> dict[str, Any]:
        """Return the samples of the last hour, as JSON data."""
        return {
            "sample": self.sample,
            "seconds": SAMPLE_SECONDS,
            "rates": {name: list(samples.rates) for name, samples in self._samples.items()},
            "lags": {name: list(samples.lags) for name, samples in self._samples.items()},
        }

    def governor_history(self) -> dict[str, Any]:
        """Return loads and shares of the last hour, as JSON data."""
        return {"sample": self.sample, "seconds": SAMPLE_SECONDS, "queues": self._loads.as_json()}

    def _streams(self, definition: Definition, graph: Graph, moment: float) -> dict[str, StreamFacts]:
        logs, wall = Logs(self._service.home, definition), self._service.clock()
        facts: dict[str, StreamFacts] = {}
        known = set(logs)
        for node in graph.nodes:
            index = index_of(logs[node.name]) if node.name in known else None
            if index is None:
                continue
            silent = None
            if node.kind == "stream":
                with contextlib.suppress(HayaseError, OSError):  # a segment that was just removed
                    written = logs[node.name].last_written()
                    silent = None if written is None else _coarse(max(0, wall - written) / 1e6)
            clock = index.clock
            if node.kind == "stream" and not index.finished and index.running_max > BEGINNING:
                clock = max(clock, index.running_max - logs[node.name].declaration.slack)
            facts[node.name] = StreamFacts(index.next, clock, silent, index.finished)
        return facts

    def _appended(self, moment: float, ends: Mapping[str, int]) -> dict[str, float]:
        """Return the records per second that were added to each stream lately."""
        self._ends.append((moment, ends))
        while len(self._ends) > 1 and self._ends[1][0] <= moment - History.WINDOW:
            self._ends.popleft()
        began, before = self._ends[0]
        if moment <= began:
            return dict.fromkeys(ends, 0.0)
        return {name: max(0, end - before.get(name, 0)) / (moment - began) for name, end in ends.items()}

    def _refused(self, moment: float, manifest: Manifest) -> dict[str, int]:
        """Return the number of dead letters that each stage wrote lately."""
        self._dead.append((moment, {name: total.dead + total.spoiled for name, total in manifest.totals.items()}))
        while len(self._dead) > 1 and self._dead[1][0] <= moment - DEAD_SECONDS:
            self._dead.popleft()
        before, now = self._dead[0][1], self._dead[-1][1]
        return {name: count - before.get(name, 0) for name, count in now.items() if count > before.get(name, 0)}

    def _open_letters(self) -> int:
        first, following = self._letters.bounds()
        settled = self._letters.settled()
        return int(following - first - (settled >= first).sum())


def _node(
    node: Node,
    stage: StageView | None,
    stream: StreamFacts | None,
    appended: Mapping[str, float],
    connector: ConnectorStatus | None,
) -> dict[str, Any]:
    figures = _figures(node, stage, stream, appended)
    if connector is None:
        return {**asdict(node), "figures": figures}
    figures |= {"rate": connector.rate, "lag": connector.lag, "written": connector.records}
    return {**asdict(node), "connector": connector_figures(connector), "figures": figures}


def _figures(
    node: Node, stage: StageView | None, stream: StreamFacts | None, appended: Mapping[str, float]
) -> dict[str, Any]:
    figures: dict[str, Any] = dict.fromkeys(
        ("rate", "written_rate", "lag", "waiting", "dead", "read", "written", "batch_seconds", "clock",
         "silent_seconds", "missed")
    )  # fmt: skip
    if stage is not None:
        figures |= {
            "rate": _rounded(stage.read_rate), "written_rate": _rounded(stage.written_rate), "lag": stage.behind,
            "waiting": stage.waiting, "dead": stage.dead, "read": stage.read, "written": stage.written,
            "batch_seconds": None if stage.batch_seconds is None else round(stage.batch_seconds, 4),
            "clock": _time(stage.clock), "missed": stage.missed,
        }  # fmt: skip
    elif stream is not None and node.kind == "stream":
        silent = stream.silent
        figures |= {
            "rate": _rounded(appended.get(node.name, 0.0)), "written": stream.length, "clock": _time(stream.clock),
            "silent_seconds": silent,
        }  # fmt: skip
    return figures


def _edge(edge: Edge, before: Manifest, now: Manifest, ends: Mapping[str, int], elapsed: float) -> dict[str, Any]:
    position = now.offset.positions.get(edge.target, {}).get(edge.source)
    earlier = before.offset.positions.get(edge.target, {}).get(edge.source)
    rate = lag = None
    if position is not None and edge.kind == "reads":
        taken = position.at - (earlier.at if earlier is not None and earlier.at <= position.at else position.first)
        rate = _rounded(taken / elapsed) if elapsed > 0 else 0.0
        lag = max(0, ends.get(edge.source, 0) - position.at)
    return {**asdict(edge), "rate": rate, "lag": lag, "state": None, "attempts": None}


def _is_warning(notice: Notice) -> bool:
    return notice.severity == "warning"


def _coarse(seconds: float) -> int:
    """Round a duration down, so that a silent stream does not change the figures every second."""
    step = 1 if seconds < 10 else 5 if seconds < 120 else 60
    return int(seconds // step) * step


def _time(clock: int) -> str | None:
    return instant_text(clock) if BEGINNING < clock < END else None


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


class LiveFigures:
    """Looks at the figures while the server runs, and sends them to all listeners when they have changed."""

    def __init__(self, service: Service, desk: RequestWorkers):
        self._service, self._desk = service, desk
        self._figures = Figures(service)
        self._turn = asyncio.Lock()
        self._newest: bytes | None = None
        self._looked = float("-inf")
        self.pages = FanOut()
        self.number = 0
        """How often the figures have changed."""

    async def run(self) -> None:
        """Look again and again, until the server stops."""
        sampled = time.monotonic()
        while not self._desk.stopping.is_set():
            due = time.monotonic() >= sampled + SAMPLE_SECONDS
            if self._service.status.now.is_open and (due or len(self.pages)):
                sampled = time.monotonic() if due else sampled
                try:
                    await self._look(due)
                except Exception:
                    LOGGER.warning("the figures of the pipeline could not be computed", exc_info=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await self._desk.stopping.wait()
        self.pages.close()

    async def newest(self) -> bytes:
        """Return the figures as JSON, no older than a second."""
        if self._newest is None or time.monotonic() >= self._looked + TICK_SECONDS:
            return await self._look(False)
        return self._newest

    async def history(self) -> bytes:
        """Return the samples of the last hour as JSON."""
        async with self._turn:
            return orjson.dumps(self._figures.history())

    async def governor_history(self) -> bytes:
        """Return loads and shares of the last hour as JSON."""
        async with self._turn:
            return orjson.dumps(self._figures.governor_history())

    async def _look(self, sample: bool) -> bytes:
        async with self._turn:  # the figures are computed once, whoever asks
            looked = await self._desk.run_look(self._look_once, sample)
            if looked != self._newest:
                self._newest = looked
                self.number += 1
                self.pages.send(event("pipeline", looked))
            self._looked = time.monotonic()
            return looked

    def _look_once(self, sample: bool) -> bytes:
        pipeline = self._figures.look(self._service.committed_status())
        if sample:
            self._figures.take_sample(pipeline)
            pipeline["sample"] = self._figures.sample
        return orjson.dumps(pipeline)
