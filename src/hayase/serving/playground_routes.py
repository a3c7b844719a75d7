"""Routes for queries that are being written: the words of the language, checks, plans, trials, and adding them to the pipeline.

Checks and plans only read text. A trial computes, so it runs in a process of its own with limits (`engine.trial_process`), one at a
time; nothing is written to the home. An added query is a new version of the definition, as `hayase apply` writes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import pyarrow as pa
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from hayase.core.declarations import QueryDeclaration, StreamDeclaration
from hayase.core.errors import DeclarationError, Mistake, StageChanged
from hayase.core.schemas import field_type
from hayase.cql import vocabulary
from hayase.cql.plan_graph import plan_graph
from hayase.engine.definition import query_changes
from hayase.engine.definition.definitions import Definition, definition_of, newest_version
from hayase.engine.definition.pipeline_graph import graph_of
from hayase.engine.logs import declared_streams
from hayase.engine.results.lifespans import own_columns
from hayase.engine.trial_process import TrialFailed, run_trial_process
from hayase.serving.bodies import JSON, content_type, read_as
from hayase.serving.json_rows import json_text, lifetime_rows
from hayase.serving.parameters import Name
from hayase.serving.playground_models import AdditionAsked, NamedQuery, QueryText, TrialAsked
from hayase.serving.problems import RETRY_AFTER, Problem
from hayase.serving.route_support import RequestWorkers, answer
from hayase.serving.service import Service
from hayase.tables.lookups import arrow_schema

__all__ = ["MOST_BYTES", "PlaygroundRoutes"]

MOST_BYTES = 200_000
"""The largest body of a request, in bytes: a text of the greatest length, escaped."""
_Asked = TypeVar("_Asked", bound=BaseModel)


class PlaygroundRoutes:
    """The handlers. Their docstrings are the descriptions in OpenAPI."""

    def __init__(self, service: Service, desk: RequestWorkers):
        self.service, self.desk = service, desk

    async def words(self, request: Request) -> Response:
        """The words of queries, for editors: what can be read, with its columns, functions, keywords and windows."""
        now = self.service.committed_status()
        return answer(request, await self.desk.run(self._words), now)

    def _words(self) -> bytes:
        definition = self._newest()
        functions = [
            {"name": one.name, "kind": one.kind, "arguments": one.arguments}
            for one in vocabulary.functions(definition.declaration)
        ]
        return json_text({
            "sources": _sources(definition),
            "functions": functions,
            "keywords": vocabulary.KEYWORDS,
            "windows": vocabulary.WINDOWS,
        })  # fmt: skip

    async def check(self, request: Request) -> Response:
        """Check a query against the streams, tables and queries of the pipeline: its columns, or its mistakes with their places and
        what to do about them."""
        asked = await self._body(request, QueryText)
        return _made(await self.desk.run(self._check, asked.text))

    def _check(self, text: str) -> dict[str, Any]:
        definition = self._newest()
        try:
            query = query_changes.plan_query(definition, query_changes.free_name(definition.declaration), text)
        except DeclarationError as error:
            mistakes = [_mistake(mistake) for mistake in error.mistakes]
            return {"valid": False, "mistakes": mistakes, "kind": None, "columns": [], "reads": []}
        output = query.drafts[-1].stage.stream
        reads = dict.fromkeys(stage_input.stream for draft in query.drafts for stage_input in draft.stage.inputs)
        within = {draft.stage.stream.name for draft in query.drafts}
        return {
            "valid": True,
            "mistakes": [],
            "kind": "relation" if output.lifetimes else "stream",
            "columns": _columns(output),
            "reads": [name for name in reads if name not in within],
        }

    async def explain(self, request: Request) -> Response:
        """How a query is understood: the text of `hayase explain`, and its plan as a graph. 422 if it has mistakes."""
        asked = await self._body(request, QueryText)
        return _made(await self.desk.run(_planned, self._explain, asked.text))

    def _explain(self, text: str) -> dict[str, Any]:
        definition = self._newest()
        name = query_changes.free_name(definition.declaration)
        graph = plan_graph(query_changes.plan_query(definition, name, text))
        nodes = [
            {"name": node.name, "kind": node.kind, "title": node.title, "lines": node.lines, "stage": node.stage}
            for node in graph.nodes
        ]
        return {
            "text": query_changes.explain_query(definition, name, text),
            "nodes": nodes,
            "edges": [{"source": source, "target": target} for source, target in dict.fromkeys(graph.edges)],
        }

    async def run(self, request: Request) -> Response:
        """Run a query on the newest records of the streams that it reads, in a process of its own. Nothing is written.

        Queries that it reads are computed from the newest records too; tables are looked up as they are now. 422 if the query has
        mistakes, or needs more time or memory than a trial has.
        """
        asked = await self._body(request, TrialAsked)
        return _made(await self.desk.run_trial(request, self._run, asked))

    def _run(self, check: Callable[[], None], asked: TrialAsked) -> dict[str, Any]:
        return _planned(self._trial, asked, check)

    def _trial(self, asked: TrialAsked, check: Callable[[], None]) -> dict[str, Any]:
        definition, limits = self._newest(), self.desk.limits
        name = query_changes.free_name(definition.declaration)
        query_changes.plan_query(definition, name, asked.text)
        part = query_changes.part_with(definition, QueryDeclaration(name, asked.text))
        trial = run_trial_process(
            self.service.home, part, name, records=asked.records, limit=min(asked.limit, limits.page), bins=asked.bins,
            seconds=limits.trial, memory=limits.trial_memory, check=check,
        )  # fmt: skip
        times = trial.valid_from.to_pylist(), trial.valid_to.to_pylist()
        return {
            "kind": "stream" if trial.is_stream else "relation",
            "start_us": trial.first,
            "end_us": trial.end,
            "matching": trial.matching,
            "density": trial.density.tolist(),
            "rows": lifetime_rows(trial.rows, trial.starts, trial.ends, *times),
            "cut": trial.rows.num_rows < trial.matching,
            "read": trial.read,
            "refused": trial.refused,
            "reasons": [asdict(refusal) for refusal in trial.reasons],
        }

    async def plan(self, request: Request) -> Response:
        """What adding a query would do: the stages that it adds, with what they share and keep, and the lines that declare it in a
        pipeline file. Nothing is written."""
        asked = await self._body(request, NamedQuery)
        return _made(await self.desk.run(_planned, self._plan, asked))

    def _plan(self, asked: NamedQuery) -> dict[str, Any]:
        return query_changes.addition(self._newest(), asked.name, asked.text).as_json()

    async def add_query(self, request: Request) -> Response:
        """Add a query to the pipeline; it starts at the next batch.

        It stays when the pipeline's file is applied again, or when the pipeline starts again, until the file declares something of
        its name.
        """
        asked = await self._body(request, AdditionAsked)
        add = self.desk.run_change(
            _planned, query_changes.add_query, self.service.home, asked.name, asked.text, asked.start
        )
        return _changed(asked.name, await add)

    async def remove_query(self, request: Request, query: Name) -> Response:
        """Remove a query that was added like this; its output stays. 409 if the file of the pipeline declares it, or while others
        read it."""
        self.service.committed_status()
        return _changed(query, await self.desk.run_change(_removed, self.service, query))

    def _newest(self) -> Definition:
        """Return the newest definition: a query may read what was just added."""
        version = newest_version(self.service.home)
        if not version:
            raise Problem(503, "no pipeline was declared in this home yet", {"Retry-After": str(RETRY_AFTER)})
        return definition_of(self.service.home, version)

    async def _body(self, request: Request, model: type[_Asked]) -> _Asked:
        self.service.committed_status()
        content_type(request.headers, (JSON,))
        body = await self.desk.body(request)
        if len(body) > MOST_BYTES:
            raise Problem(413, f"the body is longer than {MOST_BYTES:,} bytes; a query has at most 20,000 characters")
        return read_as(body, model)


_T = TypeVar("_T")


def _planned(work: Callable[..., _T], *arguments: Any) -> _T:
    """Return what `work` returns; mistakes in the query are a problem that lists them."""
    try:
        return work(*arguments)
    except DeclarationError as error:
        mistakes = [_mistake(mistake) for mistake in error.mistakes]
        raise Problem(422, str(error), extra={"mistakes": mistakes}) from None
    except TrialFailed as error:
        raise Problem(422, str(error)) from None
    except StageChanged as error:
        raise Problem(409, str(error)) from None


def _removed(service: Service, name: str) -> Definition:
    try:
        return query_changes.remove_query(service.home, name)
    except (DeclarationError, StageChanged) as error:
        raise Problem(409, str(error)) from None


def _made(value: dict[str, Any]) -> Response:
    return Response(json_text(value), media_type=JSON, headers={"Cache-Control": "no-store"})


def _changed(name: str, definition: Definition) -> Response:
    return _made({"name": name, "version": definition.version, "takes_effect": "at the next batch"})


def _mistake(mistake: Mistake) -> dict[str, Any]:
    return {"message": mistake.message, "hint": mistake.hint, "line": mistake.line, "column": mistake.column}


def _sources(definition: Definition) -> list[dict[str, Any]]:
    """Return what a query can read: streams, outputs of stages that have a name, and tables."""
    declaration, streams = definition.declaration, declared_streams(definition)
    kinds = {node.name: node.kind for node in graph_of(definition).nodes}
    sources = [
        {"name": name, "kind": kinds.get(name, "stream"), "columns": _columns(stream)}
        for name, stream in streams.items()
        if not name.startswith("_") and "." not in name
    ]
    for table in declaration.tables:
        keys = [{"name": part, "type": "key"} for part in table.key]
        columns = [{"name": field.name, "type": field_type(field)} for field in arrow_schema(table)]
        sources.append({"name": table.name, "kind": "table", "columns": [*keys, *columns]})
    return sources


def _columns(stream: StreamDeclaration) -> list[dict[str, str]]:
    schema: pa.Schema = stream.arrow_schema
    names = own_columns(stream) if stream.lifetimes else schema.names
    return [{"name": stream.shown_name(name), "type": field_type(schema.field(name))} for name in names]
