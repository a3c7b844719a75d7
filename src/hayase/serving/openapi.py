"""The OpenAPI description of the routes: FastAPI's, completed with the errors and headers that all routes share; and `/docs`."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from hayase.serving.models import ProblemAnswer, QueryChange
from hayase.serving.problems import PROBLEM_JSON

__all__ = ["describe", "docs_page", "problems"]

ABOUT = """
Tables, streams and queries of a pipeline, served by its own process or, read-only, by a replica (`hayase serve`).

**Names** are those of the declaration. **Times** are ISO text (`2026-01-31T12:00:00Z`; without a zone UTC is meant) or
whole numbers: microseconds, or the unit of the query's integer time column. **Numbers** are written in full.

**Keys.** In `/tables/{table}/{key}` every segment behind the table is one part of the key, as text, percent-encoded:
`/tables/purchases/JP/taro` has two parts and `/tables/purchases/a%2Fb` has one, `a/b`. With `?json=true` every segment is a JSON
value: `5` is the number and `%225%22` the text. Use it for parts that are not text, and for text that a path cannot contain:
`%22..%22`, `%22%22`.

**How fresh.** Answers carry `Hayase-State` (running, stopping, stopped or failed), `Hayase-Versions` (the version of each lane,
such as `main=12`; that of an append also says where its records end), `Hayase-Committed-At` (the time of the last
commit that the answer is sure to contain) and `Hayase-Clock` (the event time before which all records but late ones are
processed). While a pipeline starts, requests for data are answered with 503 and `Retry-After`. `ETag` changes with the
content; send it back as `If-None-Match` and an unchanged answer is 304. With `?at_least=` the `Hayase-Versions` of another
answer, whichever server gave it, an answer is at least as fresh, or after some seconds 503 with `Retry-After`.

**Tokens** have roles: `read`, `append`, or with `operate` everything. A server without tokens listens at loopback addresses only.

**Errors** are `application/problem+json`; `detail` says what to do. Query parameters that a route does not know are errors.
"""

_EVERYWHERE = {
    400: "The request cannot be read.",
    401: "The server requires a token, and the request has none or a wrong one.",
    403: "The token has no role for this, this is a replica, or a page of another origin sent the request.",
    414: "The address is too long.",
    421: "The Host of the request is not a name of this server.",
    422: "A parameter is invalid.",
    431: "The headers are too long.",
    500: "A fault, logged under the incident it names.",
    503: "Not available now: the pipeline is starting, or there are too many requests. Try again after `Retry-After`.",
}
_SPECIAL = {
    304: "The content is still the one that `If-None-Match` names.",
    404: "There is nothing of that name, or no such key.",
    408: "The body did not arrive in time.",
    409: "Not possible in this state: the stream is finished, the time is not final yet, the number is not the next one.",
    410: "It existed and is no longer retained.",
    413: "The body is too long.",
    415: "The type of the body is not supported.",
}
_HEADERS: Mapping[str, Any] = {
    "ETag": {"description": "Changes with the content.", "schema": {"type": "string"}},
    "Hayase-State": {"description": "running, stopping, stopped or failed.", "schema": {"type": "string"}},
    "Hayase-Versions": {"description": "The version of each lane.", "schema": {"type": "string"}},
    "Hayase-Committed-At": {
        "description": "The time of the last commit that the answer is sure to contain.",
        "schema": {"type": "string"},
    },
    "Hayase-Clock": {
        "description": "The event time before which all records but late ones are processed.",
        "schema": {"type": "string"},
    },
}

_AT_LEAST: Mapping[str, Any] = {
    "name": "at_least", "in": "query", "required": False, "schema": {"type": "string"},
    "description": "The Hayase-Versions of another answer: this one is at least as fresh.",
}  # fmt: skip


def problems(*special: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route: its headers and errors; `special` are the statuses that not every route has."""
    schema = {"$ref": "#/components/schemas/ProblemAnswer"}
    responses: dict[int | str, dict[str, Any]] = {200: {"headers": _HEADERS}}
    for status, text in {**_EVERYWHERE, **{code: _SPECIAL[code] for code in special}}.items():
        responses[status] = {"description": text}
        if status != 304:
            responses[status]["content"] = {PROBLEM_JSON: {"schema": schema}}
    return responses


def describe(app: FastAPI, secured: bool) -> dict[str, Any]:
    """Return the OpenAPI description of an application; `secured` if requests need a token."""
    description: dict[str, Any] = get_openapi(
        title=app.title, version=app.version, description=ABOUT, routes=app.routes, openapi_version=app.openapi_version
    )
    components = description.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for model in (ProblemAnswer, QueryChange):
        schemas[model.__name__] = model.model_json_schema(ref_template="#/components/schemas/{model}")
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            if "304" in operation["responses"] or (method == "post" and path == "/tables/{table}"):
                operation.setdefault("parameters", []).append(_AT_LEAST)
    if secured:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        description["security"] = [{"token": []}]
    return description


def docs_page(description: Mapping[str, Any]) -> str:
    """Return the description as an HTML page without scripts or external resources."""
    parts = [f"<h1>{html.escape(description['info']['title'])}</h1>"]
    parts += [f"<p>{_text(part)}</p>" for part in description["info"]["description"].strip().split("\n\n")]
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            parts.append(_operation(method, path, operation))
    parts.append("<h2>Shapes</h2>")
    for name, schema in description["components"]["schemas"].items():
        fields = "".join(
            f"<tr><td><code>{html.escape(field)}</code><td>{_kind(about)}<td>{_text(about.get('description', ''))}"
            for field, about in schema.get("properties", {}).items()
        )
        head = f'<h3 id="{html.escape(name)}">{html.escape(name)}</h3><p>{_text(schema.get("description", ""))}</p>'
        parts.append(f"<section>{head}<table>{fields}</table></section>")
    body = "\n".join(parts)
    return f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Hayase</title><style>{_STYLE}</style>{body}</html>'


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{html.escape(field['name'])}</code><td>{html.escape(field['in'])}, {_kind(field.get('schema', {}))}"
        f"<td>{_text(field.get('description', ''))}"
        for field in operation.get("parameters", ())
    )
    bodies = operation.get("requestBody", {}).get("content", {})
    rows += "".join(
        f"<tr><td>body<td>{html.escape(kind)}<td>{_kind(body.get('schema', {}))}" for kind, body in bodies.items()
    )
    for status, response in operation["responses"].items():
        shapes = ", ".join(_kind(content.get("schema", {})) for content in response.get("content", {}).values())
        rows += f"<tr><td>{status}<td>{shapes}<td>{_text(response.get('description', ''))}"
    return (
        f"<section><h2><b>{method.upper()}</b> <code>{html.escape(path)}</code></h2>"
        f"<p>{_text(operation.get('description') or operation.get('summary', ''))}</p><table>{rows}</table></section>"
    )


def _kind(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = html.escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_kind(choice) for choice in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return html.escape(str(schema.get("type", "any")))


def _text(text: str) -> str:
    """Return text with `code` and **bold** as HTML."""
    pieces = html.escape(text).split("`")
    joined = "".join(f"<code>{piece}</code>" if at % 2 else piece for at, piece in enumerate(pieces))
    bold = joined.split("**")
    return "".join(f"<b>{piece}</b>" if at % 2 else piece for at, piece in enumerate(bold)).replace("\n\n", "<p>")


_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "code{background:#f3f3f3;padding:.1em .3em}section{border-top:1px solid #ddd;margin-top:1.5rem}"
    "h2{font-size:1.1rem}h3{font-size:1rem}td{padding:.15rem .8rem .15rem 0;vertical-align:top}"
)
