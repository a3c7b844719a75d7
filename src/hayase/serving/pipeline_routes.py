"""Routes of the pipeline itself: its graph with live figures, health, metrics, and the description of all routes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated

import orjson
from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from hayase.connectors.status import ConnectorStatus, statuses
from hayase.engine.batch.lane_governor import governor_statuses
from hayase.engine.condition import WELL
from hayase.engine.definition.definitions import latest
from hayase.engine.definition.pipeline_graph import declaration_of, explanation_of, graph_of
from hayase.serving import metrics
from hayase.serving.bodies import JSON
from hayase.serving.fan_out import event
from hayase.serving.live_figures import LiveFigures
from hayase.serving.openapi import docs_page
from hayase.serving.problems import busy
from hayase.serving.route_support import RequestWorkers, answer, event_headers
from hayase.serving.service import CommittedStatus, Service

__all__ = ["PipelineRoutes"]

NodeName = Annotated[str, Path(max_length=80, examples=["spend"])]


class PipelineRoutes:
    """The handlers. Their docstrings are the descriptions in OpenAPI."""

    def __init__(self, service: Service, desk: RequestWorkers):
        self.service, self.desk = service, desk
        self.live = LiveFigures(service, desk)

    async def pipeline(self, request: Request) -> Response:
        """The graph of the pipeline: sources, streams, stages, tables and outputs, what reads what, with current figures, and
        problems in words."""
        now = self.service.committed_status()
        return answer(request, await self.live.newest(), now)

    async def pipeline_history(self, request: Request) -> Response:
        """Rates and lags of the last hour, sampled every ten seconds."""
        now = self.service.committed_status()
        return answer(request, await self.live.history(), now)

    async def pipeline_events(
        self,
        request: Request,
        wait: Annotated[
            float | None,
            Query(ge=0, le=86_400, description="End after so many seconds; with 0, after the first event."),
        ] = None,
    ) -> Response:
        """The graph with its figures as server-sent events: an event `pipeline` at once, and whenever it has changed.

        The figures are computed once a second for all listeners. A listener that does not read is dropped, with an event
        `dropped`; it may connect again.
        """
        now = self.service.committed_status()
        if self.desk.figures.listening >= self.desk.limits.listeners:
            raise busy(f"{self.desk.limits.listeners} listen already, which is the limit; try again later")
        first = event("pipeline", await self.live.newest())
        return StreamingResponse(
            self._events(first, wait), media_type="text/event-stream",
            headers=event_headers(now),
        )  # fmt: skip

    async def _events(self, first: bytes, wait: float | None) -> AsyncIterator[bytes]:
        began = time.monotonic()
        self.desk.figures.listening += 1
        try:
            heartbeat = self.desk.limits.heartbeat if wait is None else min(self.desk.limits.heartbeat, wait)
            async for data in self.live.pages.listen(b"retry: 1000\n\n" + first, heartbeat):
                yield data
                if wait is not None and time.monotonic() >= began + wait:
                    return
        finally:
            self.desk.figures.listening -= 1

    async def stage(self, request: Request, stage: NodeName) -> Response:
        """How a node of the graph is declared, and for a query how it is understood (`hayase explain`)."""
        now = self.service.committed_status()
        return answer(request, await self.desk.run(self._stage, stage, now), now)

    def _stage(self, name: str, now: CommittedStatus) -> bytes:
        definition = self.service.definition(now)
        node = graph_of(definition).node(name)
        explained = explanation_of(definition, node)
        declared = declaration_of(definition, node)
        return orjson.dumps({"name": node.name, "kind": node.kind, "declaration": declared, "explain": explained})

    async def health(self) -> Response:
        """The condition of the pipeline: 200 while it is running or stopping, in a replica also while it is stopped; else 503 with
        the reason: it is starting, recovering from the loss of a process, stalled (records wait and nothing is committed), or has
        failed. A replica says how far it is behind."""
        now = self.service.status.now
        well = now.state in WELL
        lag = await self.desk.run_health(self.service.lags, now) if now.is_open else {}
        health = {
            "state": now.state,
            "reason": now.reason,
            "notice": now.condition.notice,
            "version": now.manifest.version,
            "committed_at": now.committed_at,
            "versions": now.manifest.lanes,
            "lag": lag,
            "behind": None
            if now.behind is None
            else {"batches": now.behind.batches, "seconds": round(now.behind.seconds(time.monotonic()), 3)},
        }
        headers = {"Cache-Control": "no-store", "Hayase-State": now.state} | ({} if well else {"Retry-After": "1"})
        return Response(orjson.dumps(health), 200 if well else 503, headers, JSON)

    async def metrics(self) -> Response:
        """Metrics in the text format of Prometheus."""
        now = self.service.status.now
        lags = await self.desk.run_health(self.service.lags, now) if now.is_open else {}
        seen = await self.desk.run_health(governor_statuses, self.service.home)
        connectors = await self.desk.run_health(self._connectors)
        text = metrics.exposition(
            now, self.service.clock(), time.monotonic(), lags, self.desk.figures, seen, connectors
        )
        return Response(text.encode(), headers={"Cache-Control": "no-store", "Content-Type": metrics.CONTENT_TYPE})

    def _connectors(self) -> list[ConnectorStatus]:
        definition = latest(self.service.home)
        return [] if definition is None else list(statuses(self.service.home, definition.declaration))

    async def docs(self, request: Request) -> Response:
        """This description as an HTML page."""
        policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
        return HTMLResponse(docs_page(request.app.openapi()), headers={"Content-Security-Policy": policy})
