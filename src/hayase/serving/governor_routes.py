"""HTTP routes of the governor: its dial u with what its lanes measure, the loads and shares of the last hour, and a change of the
dial while the pipeline runs."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from hayase.core.errors import DeclarationError
from hayase.engine.batch.lane_governor import governor_statuses
from hayase.engine.definition.definitions import Definition, latest
from hayase.serving.bodies import JSON, content_type, read_as
from hayase.serving.governor_figures import lane_figures
from hayase.serving.governor_models import GovernorChanged
from hayase.serving.json_rows import json_text
from hayase.serving.live_figures import LiveFigures
from hayase.serving.problems import Problem
from hayase.serving.route_support import RequestWorkers, answer
from hayase.serving.service import CommittedStatus, Service

__all__ = ["GovernorRoutes"]

_MOST_BYTES = 4096
"""The largest body of a change."""


class GovernorRoutes:
    """The handlers. Their docstrings are the descriptions in OpenAPI."""

    def __init__(self, service: Service, desk: RequestWorkers, live: LiveFigures):
        self.service, self.desk, self.live = service, desk, live

    async def governor(self, request: Request) -> Response:
        """The governor: its policy and its dial u, and what its lanes measure: loads, shares, records that wait."""
        now = self.service.committed_status()
        return answer(request, await self.desk.run(self._governor, now), now)

    def _governor(self, now: CommittedStatus) -> bytes:
        from hayase.engine.definition.governor_dial import dial_status

        running = self.service.definition(now)
        newest = latest(self.service.home) or running
        lanes = lane_figures(governor_statuses(self.service.home))
        in_effect = now.manifest.offset.definition >= newest.version
        return json_text({**dial_status(newest).as_json(), "in_effect": in_effect, "lanes": lanes})

    async def governor_history(self, request: Request) -> Response:
        """Loads and shares of the queues in the last hour, sampled every ten seconds."""
        now = self.service.committed_status()
        return answer(request, await self.live.governor_history(), now)

    async def change_governor(self, request: Request) -> Response:
        """Set the dial u of the governor; it takes effect at the next batch, and lanes keep their measurements.

        It stays until the pipeline file says something else of the governor; null restores what the file says.
        """
        self.service.committed_status()
        content_type(request.headers, (JSON,))
        body = await self.desk.body(request)
        if len(body) > _MOST_BYTES:
            raise Problem(413, f"a change of the governor is no longer than {_MOST_BYTES:,} bytes")
        asked = read_as(body, GovernorChanged)
        definition = await self.desk.run_change(self._set_dial, asked.u)
        from hayase.engine.definition.governor_dial import dial_status

        told = {**dial_status(definition).as_json(), "takes_effect": "at the next batch"}
        return Response(json_text(told), media_type=JSON, headers={"Cache-Control": "no-store"})

    def _set_dial(self, u: float | None) -> Definition:
        from hayase.engine.definition.governor_dial import set_dial

        try:
            return set_dial(self.service.home, u)
        except DeclarationError as error:
            raise Problem(422, str(error)) from None
