"""HTTP routes of sources and outputs: what they are doing, and pausing and resuming them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from hayase.connectors.status import (
    Connector,
    Role,
    connector_named,
    connectors_of,
    pause,
    resume,
    status_of,
)
from hayase.serving.bodies import JSON
from hayase.serving.json_rows import json_text
from hayase.serving.parameters import Name
from hayase.serving.route_support import RequestWorkers, answer
from hayase.serving.service import CommittedStatus, Service

__all__ = ["ConnectorRoutes"]


class ConnectorRoutes:
    """The handlers. Their docstrings are the descriptions in OpenAPI."""

    def __init__(self, service: Service, desk: RequestWorkers):
        self.service, self.desk = service, desk

    async def sources(self, request: Request) -> Response:
        """All sources, from which streams get their records: states, rates, lags."""
        return await self._all(request, "sources")

    async def outputs(self, request: Request) -> Response:
        """All outputs, to which results go: states, rates, lags."""
        return await self._all(request, "outputs")

    async def source(self, request: Request, name: Name) -> Response:
        """One source, by the name of its stream."""
        return await self._one(request, "sources", name)

    async def output(self, request: Request, name: Name) -> Response:
        """One output."""
        return await self._one(request, "outputs", name)

    async def pause_source(self, request: Request, name: Name) -> Response:
        """Pause a source until it is resumed, also over restarts. Nothing is lost."""
        return await self._changed("sources", name, paused=True)

    async def pause_output(self, request: Request, name: Name) -> Response:
        """Pause an output until it is resumed, also over restarts. Nothing is lost."""
        return await self._changed("outputs", name, paused=True)

    async def resume_source(self, request: Request, name: Name) -> Response:
        """Let a paused source go on."""
        return await self._changed("sources", name, paused=False)

    async def resume_output(self, request: Request, name: Name) -> Response:
        """Let a paused output go on."""
        return await self._changed("outputs", name, paused=False)

    async def _all(self, request: Request, role: Role) -> Response:
        now = self.service.committed_status()
        return answer(request, await self.desk.run(self._listed, now, role), now)

    async def _one(self, request: Request, role: Role, name: str) -> Response:
        now = self.service.committed_status()
        return answer(request, await self.desk.run(self._shown, now, role, name), now)

    async def _changed(self, role: Role, name: str, *, paused: bool) -> Response:
        now = self.service.committed_status()
        body = await self.desk.run_change(self._set, now, role, name, paused)
        return Response(body, media_type=JSON, headers={"Cache-Control": "no-store"})

    def _listed(self, now: CommittedStatus, role: Role) -> bytes:
        declared = connectors_of(self.service.definition(now).declaration, role)
        return json_text({"connectors": [status_of(self.service.home, role, each).as_json() for each in declared]})

    def _shown(self, now: CommittedStatus, role: Role, name: str) -> bytes:
        return json_text(status_of(self.service.home, role, self._named(now, role, name)).as_json())

    def _set(self, now: CommittedStatus, role: Role, name: str, paused: bool) -> bytes:
        self._named(now, role, name)
        (pause if paused else resume)(self.service.home, role, name)
        return self._shown(now, role, name)

    def _named(self, now: CommittedStatus, role: Role, name: str) -> Connector:
        return connector_named(self.service.definition(now).declaration, role, name)
