"""Routes of the pipeline itself: health, metrics, and the description of all routes."""

from __future__ import annotations

import time

import orjson
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from hayase.engine.batch.lane_governor import governor_statuses
from hayase.engine.condition import WELL
from hayase.serving import metrics
from hayase.serving.bodies import JSON
from hayase.serving.openapi import docs_page
from hayase.serving.route_support import RequestWorkers
from hayase.serving.service import Service

__all__ = ["PipelineRoutes"]


class PipelineRoutes:
    """The handlers. Their docstrings are the descriptions in OpenAPI."""

    def __init__(self, service: Service, desk: RequestWorkers):
        self.service, self.desk = service, desk

    async def health(self) -> Response:
        """The condition of the pipeline: 200 while it is running or stopping, else 503 with the reason: it is starting, recovering
        from the loss of a process, stalled (records wait and nothing is committed), or has failed."""
        now = self.service.status.now
        well = now.state in WELL
        lag = await self.desk.run_health(self.service.lags, now) if now.is_open else {}
        health = {
            "state": now.state,
            "reason": now.reason,
            "notice": now.condition.notice,
            "version": now.manifest.version,
            "committed_at": now.committed_at,
            "lag": lag,
        }
        headers = {"Cache-Control": "no-store", "Hayase-State": now.state} | ({} if well else {"Retry-After": "1"})
        return Response(orjson.dumps(health), 200 if well else 503, headers, JSON)

    async def metrics(self) -> Response:
        """Metrics in the text format of Prometheus."""
        now = self.service.status.now
        lags = await self.desk.run_health(self.service.lags, now) if now.is_open else {}
        seen = await self.desk.run_health(governor_statuses, self.service.home)
        text = metrics.exposition(now, self.service.clock(), time.monotonic(), lags, self.desk.figures, seen)
        return Response(text.encode(), headers={"Cache-Control": "no-store", "Content-Type": metrics.CONTENT_TYPE})

    async def docs(self, request: Request) -> Response:
        """This description as an HTML page."""
        policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
        return HTMLResponse(docs_page(request.app.openapi()), headers={"Content-Security-Policy": policy})
