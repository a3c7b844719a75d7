"""The FastAPI application: the table of routes with their descriptions, and the answers to errors of the framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from hayase.core.access import OPEN, Access
from hayase.serving import connector_models, governor_models, models, pipeline_models, playground_models
from hayase.serving.bodies import ARROW, JSON, NDJSON
from hayase.serving.connector_routes import ConnectorRoutes
from hayase.serving.console_routes import ConsoleRoutes, is_open
from hayase.serving.dead_routes import DeadRoutes
from hayase.serving.freshness import Freshness
from hayase.serving.governor_routes import GovernorRoutes
from hayase.serving.guard import Guard, Limits
from hayase.serving.openapi import describe, problems
from hayase.serving.operation_routes import FORBIDDEN, OperationRoutes
from hayase.serving.parameters import refuse_unknown
from hayase.serving.pipeline_routes import PipelineRoutes
from hayase.serving.playground_routes import PlaygroundRoutes
from hayase.serving.problems import PROBLEM_JSON, Problem, problem_of
from hayase.serving.query_routes import QueryRoutes
from hayase.serving.route_support import RequestWorkers
from hayase.serving.service import Service
from hayase.serving.sessions import Sessions
from hayase.serving.shared_answers import SharedAnswers
from hayase.serving.stream_routes import StreamRoutes
from hayase.serving.table_routes import TableRoutes

__all__ = ["create_app"]

_QUIET = TelemetryConfig(tracing=False, metrics=False, logs=False, operation_spans=False, auto_configure=False)


def create_app(
    service: Service, *, limits: Limits | None = None, access: Access = OPEN, hosts: Iterable[str] = ()
) -> FastAPI:
    """Return the application that serves a home, with tokens only for requests that have one; `hosts` are further host names."""
    desk = RequestWorkers(limits or Limits())
    tables, streams = TableRoutes(service, desk), StreamRoutes(service, desk)
    queries, dead, pipeline = QueryRoutes(service, desk), DeadRoutes(service, desk), PipelineRoutes(service, desk)
    operations = OperationRoutes(service, desk, writable=access.is_secured)
    tokens = access.open_tokens()
    sessions = None if tokens is None else Sessions(tokens, service.clock, access.certificate is not None)
    console = ConsoleRoutes(desk, sessions)
    app = FastAPI(
        title="Hayase", version="1", docs_url=None, redoc_url=None, redirect_slashes=False,
        telemetry=_QUIET,
        exception_handlers={
            HTTPException: _answer_http_error, RequestValidationError: _invalid_parameters, Problem: _answer_problem
        },
    )  # fmt: skip
    app.state.desk, app.state.live = desk, pipeline.live
    app.add_middleware(
        SharedAnswers,
        figures=desk.figures,
        state=lambda: (service.status.now, pipeline.live.number),
        stopping=desk.stopping,
    )
    app.add_middleware(Freshness, limits=desk.limits, figures=desk.figures, status=service.status)
    app.add_middleware(
        Guard,
        limits=desk.limits,
        figures=desk.figures,
        sessions=sessions,
        hosts=tuple(hosts),
        is_open=is_open,
        is_read_only=service.is_read_only,
    )
    app.openapi = cache(lambda: describe(app, access.is_secured))  # type: ignore[method-assign]
    strict = [Depends(_refuse_unknown)]

    def route(path: str, work: Callable[..., Any], model: Any, *special: int, **more: Any) -> None:
        method = more.pop("method", "GET")
        app.add_api_route(
            path, work, methods=[method], response_model=model, responses=_merged(problems(*special), more.pop("documented", {})),
            dependencies=strict, name=work.__name__, **more,
        )  # fmt: skip

    route("/tables", tables.tables, models.Tables, 304)
    route("/tables/{table}", tables.table, models.TableAnswer, 304, 404)
    route("/tables/{table}", tables.get_many, models.RowsOfKeys, 404, 408, 410, 413, 415, method="POST",
          openapi_extra=_body({JSON: {"schema": models.KeysAsked.model_json_schema()}}))  # fmt: skip
    route("/scan/{table}", tables.scan, models.Rows, 304, 404, 410)
    route("/tables/{table}/{key:path}", tables.get, models.Row, 304, 404, 410, openapi_extra=_GET)
    route("/payloads/{table}/{key:path}", tables.payloads, pipeline_models.Payloads, 304, 404, 410)
    route("/streams", streams.streams, models.Streams, 304)
    route("/streams/{stream}", streams.stream, models.StreamAnswer, 304, 404)
    route("/streams/{stream}", streams.append, models.AppendAnswer, 404, 408, 409, 413, 415, method="POST",
          openapi_extra=_body(_RECORDS))  # fmt: skip
    route("/streams/{stream}/records", streams.records, pipeline_models.Records, 304, 404, 410)
    route("/queries", queries.queries, models.Queries, 304)
    route("/queries/{query}", queries.query, models.Snapshot, 304, 404, 409, 410)
    route("/queries/{query}/changes", queries.changes, None, 404, 410, response_class=StreamingResponse,
          documented=_EVENT_STREAM)  # fmt: skip
    route("/queries/{query}/lifetimes", queries.lifetimes, pipeline_models.Lifetimes, 304, 404, 410)
    _add_playground_routes(route, PlaygroundRoutes(service, desk))
    _add_operation_routes(route, operations)
    _add_governor_routes(route, GovernorRoutes(service, desk, pipeline.live))
    _add_connector_routes(route, ConnectorRoutes(service, desk))
    route("/dead", dead.dead, models.DeadLetters, 304)
    route("/dead/replay", dead.replay, models.SettledLetters, 404, 408, 409, 413, 415, method="POST",
          openapi_extra=_body({JSON: {"schema": models.ReplayAsked.model_json_schema()}}))  # fmt: skip
    route("/dead/drop", dead.drop, models.SettledLetters, 404, 408, 409, 413, 415, method="POST",
          openapi_extra=_body({JSON: {"schema": models.DropAsked.model_json_schema()}}))  # fmt: skip
    route("/dead/groups", dead.groups, pipeline_models.DeadGroups, 304)
    route("/dead/{letter}", dead.letter, models.DeadLetterAnswer, 304, 404)
    route("/pipeline", pipeline.pipeline, pipeline_models.PipelineAnswer, 304)
    route("/pipeline/history", pipeline.pipeline_history, pipeline_models.History, 304)
    route("/pipeline/events", pipeline.pipeline_events, None, response_class=StreamingResponse, documented=_FIGURES)
    route("/pipeline/stages/{stage}", pipeline.stage, pipeline_models.StageAnswer, 304, 404)
    _add_console_routes(route, console)
    route("/health", pipeline.health, models.Health)
    route("/metrics", pipeline.metrics, None, documented={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
          response_class=Response)  # fmt: skip
    route("/docs", pipeline.docs, None, response_class=HTMLResponse)
    # The most frequent route comes first and bypasses the framework's validation, which it does not need.
    app.router.routes.insert(0, tables.shortcut)
    return app


def _add_operation_routes(route: Callable[..., None], operations: OperationRoutes) -> None:
    route("/operations", operations.operations, models.Operations, 304)
    route("/operations/{operation}", operations.operation, models.OperationAnswer, 304, 404)
    route("/operations/{operation}/versions/{version}", operations.operation_version, models.OperationSources, 304, 404)
    code: dict[str, Any] = {"documented": {403: {"description": FORBIDDEN}}}
    route("/operations/{operation}/trial", operations.try_operation, models.TrialAnswer, 404, 408, 413, 415, method="POST",
          openapi_extra=_body({JSON: {"schema": models.TrialAsked.model_json_schema()}}), **code)  # fmt: skip
    route("/operations", operations.add_operation, models.OperationMade, 404, 408, 409, 413, 415, method="POST",
          openapi_extra=_body({JSON: {"schema": models.OperationAsked.model_json_schema()}}), **code)  # fmt: skip
    route("/operations/{operation}", operations.change_operation, models.OperationMade, 404, 408, 409, 413, 415,
          method="PATCH", openapi_extra=_body({JSON: {"schema": models.OperationChanged.model_json_schema()}}), **code)  # fmt: skip
    route("/operations/{operation}", operations.remove_operation, models.OperationMade, 404, 409,
          method="DELETE", **code)  # fmt: skip
    route("/operations/{operation}/rollback", operations.rollback_operation, models.OperationMade, 404, 408, 409, 413, 415,
          method="POST", openapi_extra=_body({JSON: {"schema": models.RollbackAsked.model_json_schema()}}), **code)  # fmt: skip


def _add_playground_routes(route: Callable[..., None], playground: PlaygroundRoutes) -> None:
    def post(path: str, work: Callable[..., Any], model: Any, asked: Any) -> None:
        route(path, work, model, 408, 409, 413, 415, method="POST",
              openapi_extra=_body({JSON: {"schema": asked.model_json_schema()}}))  # fmt: skip

    route("/playground/words", playground.words, playground_models.Words, 304)
    post("/playground/check", playground.check, playground_models.Check, playground_models.QueryText)
    post("/playground/explain", playground.explain, playground_models.Explanation, playground_models.QueryText)
    post("/playground/run", playground.run, playground_models.Trial, playground_models.TrialAsked)
    post("/playground/plan", playground.plan, playground_models.AdditionAnswer, playground_models.NamedQuery)
    post("/queries", playground.add_query, playground_models.QueryMade, playground_models.AdditionAsked)
    route("/queries/{query}", playground.remove_query, playground_models.QueryMade, 404, 409, method="DELETE")


def _add_connector_routes(route: Callable[..., None], connectors: ConnectorRoutes) -> None:
    for role, all_, one, paused, resumed in (
        ("sources", connectors.sources, connectors.source, connectors.pause_source, connectors.resume_source),
        ("outputs", connectors.outputs, connectors.output, connectors.pause_output, connectors.resume_output),
    ):
        route(f"/{role}", all_, connector_models.Connectors, 304)
        route(f"/{role}/{{name}}", one, connector_models.ConnectorAnswer, 304, 404)
        route(f"/{role}/{{name}}/pause", paused, connector_models.ConnectorAnswer, 404, method="POST")
        route(f"/{role}/{{name}}/resume", resumed, connector_models.ConnectorAnswer, 404, method="POST")


def _add_governor_routes(route: Callable[..., None], governor: GovernorRoutes) -> None:
    route("/governor", governor.governor, governor_models.GovernorAnswer, 304)
    route("/governor", governor.change_governor, governor_models.DialSet, 408, 413, 415, method="PATCH",
          openapi_extra=_body({JSON: {"schema": governor_models.GovernorChanged.model_json_schema()}}))  # fmt: skip
    route("/governor/history", governor.governor_history, governor_models.GovernorHistory, 304)


def _add_console_routes(route: Callable[..., None], console: ConsoleRoutes) -> None:
    route("/session", console.session, pipeline_models.Session)
    route("/session", console.begin_session, None, 408, 413, 415, method="POST", status_code=204,
          openapi_extra=_body({JSON: {"schema": pipeline_models.SessionAsked.model_json_schema()}}))  # fmt: skip
    route("/session", console.end_session, None, method="DELETE", status_code=204)
    route("/", console.console, None, response_class=HTMLResponse, include_in_schema=False)
    route("/console/{file}", console.console_file, None, response_class=Response, include_in_schema=False)


async def _answer_problem(request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    return Response(problem.body, problem.status, {"Cache-Control": "no-store", **problem.headers}, PROBLEM_JSON)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = {
        404: "there is nothing at this address; GET /docs lists what there is",
        405: f"{request.method} is not possible here; see Allow",
    }.get(error.status_code, str(error.detail))
    return await _answer_problem(request, Problem(error.status_code, detail, dict(error.headers or {})))


async def _invalid_parameters(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    detail = "; ".join(f'{item["loc"][0]} parameter "{item["loc"][-1]}": {item["msg"]}' for item in error.errors()[:10])
    return await _answer_problem(request, Problem(422, detail))


async def _refuse_unknown(request: Request) -> None:
    asked = request.query_params if request.scope["query_string"] else ()
    if asked:
        refuse_unknown(asked, [parameter.alias for parameter in request.scope["route"].dependant.query_params])


def _merged(one: dict[int | str, dict[str, Any]], other: dict[int, dict[str, Any]]) -> dict[int | str, dict[str, Any]]:
    return {status: {**answer, **other.get(int(status), {})} for status, answer in one.items()}


def _body(content: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": content}}


_RECORDS: dict[str, Any] = {
    JSON: {
        "schema": {"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]},
        "example": {"time": "2026-01-31T12:00:00Z", "user": "taro", "amount": 3.5},
    },
    NDJSON: {"schema": {"type": "string"}, "example": '{"user": "taro"}\n{"user": "hanako"}\n'},
    ARROW: {"schema": {"type": "string", "format": "binary"}},
}
_GET: dict[str, Any] = {
    "parameters": [
        {"name": "table", "in": "path", "required": True, "schema": {"type": "string", "maxLength": 64}, "example": "purchases"},
        {"name": "key", "in": "path", "required": True, "schema": {"type": "string"}, "example": "taro",
         "description": "The parts of the key, each a segment."},
        {"name": "columns", "in": "query", "required": False, "schema": {"type": "string"},
         "description": "Some columns, separated by commas."},
        {"name": "as_of", "in": "query", "required": False, "schema": {"type": "string"},
         "description": "An event time: only updates up to it count."},
        {"name": "json", "in": "query", "required": False, "schema": {"type": "boolean"},
         "description": "Read every segment of the key as a JSON value."},
    ]
}  # fmt: skip
_EVENT = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
    "required": ["data"],
}
"""The schema of one server-sent event; `data` is a JSON text."""
_FIGURES: dict[int, dict[str, Any]] = {
    200: {
        "description": "Events of kind `pipeline`; the data are a PipelineAnswer.",
        "content": {"text/event-stream": {"schema": _EVENT}},
    }
}
_EVENT_STREAM: dict[int, dict[str, Any]] = {
    200: {
        "description": "Events, each with an id, of kind `change`; the data are a QueryChange.",
        "content": {
            "text/event-stream": {
                "schema": _EVENT,
                "example": 'id: 3.1767225600000000.1\nevent: change\ndata: {"time":"2026-01-01T00:00:00Z","change":"+",'
                '"row":{"user":"taro","spend":5.0}}\n\n',
            }
        },
    }
}
