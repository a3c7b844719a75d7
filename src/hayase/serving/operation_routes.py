"""HTTP routes of operations: list them with their history and their code, try a change, add, change, remove and roll them back
while the pipeline runs.

To change or to try an operation is to run code on this machine, so the routes that do so need a token, even for local requests.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Path as PathParameter
from starlette.requests import Request
from starlette.responses import Response

from hayase.core.errors import DeclarationError, StageChanged
from hayase.engine.definition import operation_changes
from hayase.engine.definition.definitions import Definition
from hayase.serving.bodies import JSON, content_type, read_as
from hayase.serving.json_rows import json_text, plain_rows
from hayase.serving.models import OperationAsked, OperationChanged, RollbackAsked, TrialAsked
from hayase.serving.parameters import Name
from hayase.serving.problems import Problem
from hayase.serving.route_support import RequestWorkers, answer
from hayase.serving.service import CommittedStatus, Service

if TYPE_CHECKING:
    import pyarrow as pa

    from hayase.engine.definition.trial_runs import TrialRun, TriedWindow

__all__ = ["FORBIDDEN", "MOST_BYTES", "OperationRoutes"]

MOST_BYTES = 1 << 20
"""The largest body of a request, in bytes."""
FORBIDDEN = "The server has no token, or a page from elsewhere sent this."

MOST_SHOWN = 20
"""Records, and results, that are shown of a window of a trial."""
MOST_TRIAL_BYTES = 4 << 20
"""Bytes of all records and results that are shown of a trial."""

_Asked = TypeVar("_Asked", OperationAsked, OperationChanged, RollbackAsked, TrialAsked)
_Made = TypeVar("_Made")


class OperationRoutes:
    """Handlers of requests for operations; changes are allowed if `writable`, that is if the server has a token."""

    def __init__(self, service: Service, desk: RequestWorkers, writable: bool):
        self.service, self.desk, self._writable = service, desk, writable

    async def operations(self, request: Request) -> Response:
        """List all operations."""
        now = self.service.committed_status()
        return answer(request, await self.desk.run(self._operations, now), now)

    def _operations(self, now: CommittedStatus) -> bytes:
        operations = operation_changes.operations_of(self.service.home)
        return json_text({"operations": [_about(name, versions, now) for name, versions in operations.items()]})

    async def operation(self, request: Request, operation: Name) -> Response:
        """Return an operation with its history."""
        now = self.service.committed_status()
        return answer(request, await self.desk.run(self._operation, operation, now), now)

    def _operation(self, name: str, now: CommittedStatus) -> bytes:
        versions = operation_changes.history(self.service.home, name)
        return json_text({**_about(name, versions, now), "history": [version.as_json() for version in versions]})

    async def operation_version(
        self, request: Request, operation: Name, version: Annotated[int, PathParameter(ge=1, lt=2**62)]
    ) -> Response:
        """Return an operation as of a version of the pipeline, with its code."""
        now = self.service.committed_status()
        return answer(request, await self.desk.run(self._operation_version, operation, version), now)

    def _operation_version(self, name: str, version: int) -> bytes:
        versions = [each for each in operation_changes.history(self.service.home, name) if each.version <= version]
        if not versions:
            raise Problem(404, f'there is no operation "{name}" in version {version}; GET /operations/{name} lists all')
        return json_text({"name": name, **versions[-1].as_json(), "files": self._files(versions[-1])})

    def _files(self, version: operation_changes.OperationVersion) -> list[dict[str, Any]]:
        from hayase.operations.shipped_code import source_texts  # slow to import

        if version.declaration is None or version.declaration.code is None:
            return []
        texts = source_texts(version.declaration, self.service.home.code(""))
        short = sum(map(len, texts.values())) <= MOST_BYTES
        return [{"path": path, "text": text if short else None} for path, text in texts.items()]

    async def try_operation(self, request: Request, operation: Name) -> Response:
        """Try a change of an operation on its newest windows. Nothing is written.

        Each window is answered with its records and the results of the function, or with how the call failed. The function
        runs in a process of its own, within the limits of the operation.
        """
        asked = await self._body(request, TrialAsked)

        def attempt(data: dict[str, Any], directory: str | None) -> bytes:
            from hayase.engine.definition.trial_runs import try_update  # slow to import

            anew = asked.reset is not None
            run = try_update(self.service.home, operation, data, directory, windows=asked.windows, anew=anew)
            return json_text({"name": operation, **_shown_run(run)})

        body = await self.desk.run_change(
            _make_change, lambda: self._with_present_function(operation, asked, attempt), self.desk.limits.trial
        )
        return Response(body, media_type=JSON, headers={"Cache-Control": "no-store"})

    async def add_operation(self, request: Request) -> Response:
        """Add an operation: the text of a module, and the fields of an operation in a pipeline file.

        It is tried on the newest records first, and refused if it fails. It starts at the next batch.
        """
        asked = await self._body(request, OperationAsked)

        def add(data: dict[str, Any], directory: str | None) -> Definition:
            fields = {key: value for key, value in data.items() if value is not None}
            return operation_changes.add_operation(self.service.home, asked.name, fields, directory, asked.start)

        return await self._changed(lambda: _with_source(asked.name, asked.function, asked, add), asked.name)

    async def change_operation(self, request: Request, operation: Name) -> Response:
        """Change the given fields of an operation.

        It is tried on the newest records first, and refused if it fails. Windows that are being processed finish with the
        version before.
        """
        asked = await self._body(request, OperationChanged)

        def change(data: dict[str, Any], directory: str | None) -> Definition:
            return operation_changes.update_operation(self.service.home, operation, data, directory, asked.reset)

        return await self._changed(lambda: self._with_present_function(operation, asked, change), operation)

    def _with_present_function(
        self, name: str, asked: OperationChanged, change: Callable[[dict[str, Any], str | None], _Made]
    ) -> _Made:
        """Make a change; a source without the name of a function has that of the present one."""
        before = operation_changes.history(self.service.home, name)[-1].declaration
        function = asked.function or ("" if before is None else before.function.rpartition(":")[2])
        return _with_source(name, function, asked, change)

    async def remove_operation(self, request: Request, operation: Name) -> Response:
        """Remove an operation; its output stays. It is refused while other stages read the output."""
        self._check()
        return await self._changed(lambda: operation_changes.remove_operation(self.service.home, operation), operation)

    async def rollback_operation(self, request: Request, operation: Name) -> Response:
        """Restore an operation as of a version of the pipeline; without one, as it was before its last change."""
        asked = await self._body(request, RollbackAsked)
        return await self._changed(
            lambda: operation_changes.rollback_operation(self.service.home, operation, asked.to, asked.reset), operation
        )

    def _check(self) -> None:
        self.service.committed_status()
        if not self._writable:
            raise Problem(
                403, "to change an operation is to run code, so it is possible here only with a token; start the server with "
                "one (--token-file), or use `hayase ops` on its machine",
            )  # fmt: skip

    async def _body(self, request: Request, model: type[_Asked]) -> _Asked:
        """Read and validate the body of a request; raise a Problem if it is too long or invalid."""
        self._check()
        content_type(request.headers, (JSON,))
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length[:20]) > MOST_BYTES:
            raise _too_long()
        body = await self.desk.body(request)
        if len(body) > MOST_BYTES:
            raise _too_long()
        return read_as(body, model)

    async def _changed(self, change: Callable[[], Definition], name: str) -> Response:
        definition = await self.desk.run_change(_make_change, change, self.desk.limits.trial)
        body = {"name": name, "version": definition.version, "takes_effect": "at the next batch"}
        return Response(json_text(body), media_type=JSON, headers={"Cache-Control": "no-store"})


def _make_change(change: Callable[[], _Made], seconds: float) -> _Made:
    """Make or try a change. The trial of its code is limited to `seconds`, because it occupies a thread that other changes need."""
    from hayase.engine.definition.operation_trials import trials_within  # slow to import

    try:
        with trials_within(seconds):
            return change()
    except DeclarationError as error:
        raise Problem(422, str(error)) from None
    except StageChanged as error:
        raise Problem(409, str(error)) from None


def _too_long() -> Problem:
    return Problem(413, f"the body is longer than {MOST_BYTES:,} bytes; install what is large where the pipeline runs")


def _with_source(
    name: str,
    function: str,
    asked: OperationAsked | OperationChanged,
    change: Callable[[dict[str, Any], str | None], _Made],
) -> _Made:
    """Make a change; the text of a module, if the request has one, is written to a file for it."""
    data = asked.model_dump(by_alias=True, exclude_unset=True, exclude={"name", "source", "start", "reset", "windows"})
    module, _, attribute = function.rpartition(":")
    if asked.source is None:
        if module.endswith(".py"):
            raise Problem(422, 'a function cannot come from a file of the server; send its text as "source"')
        return change(data, None)
    module = module or f"operation_{name}"
    if not module.isidentifier() or not attribute.isidentifier():
        raise Problem(422, 'with a source, "function" is the name of a function in it, like score')
    with tempfile.TemporaryDirectory(prefix="hayase-source-") as directory:
        (Path(directory) / f"{module}.py").write_text(asked.source, encoding="utf-8")
        return change({**data, "function": f"{module}:{attribute}"}, directory)


def _shown_run(run: TrialRun) -> dict[str, Any]:
    return {
        "schema": run.schema,
        "tried": len(run.windows),
        "failed": run.failed,
        "untried": run.untried,
        "passes": run.passes,
        "windows": _shown_windows(run),
    }


def _shown_windows(run: TrialRun) -> list[dict[str, Any]]:
    """Return the windows of a trial, the newest first, with as many records and results as an answer may have."""
    shown, left = [], MOST_TRIAL_BYTES
    for window in reversed(run.windows):
        rows = MOST_SHOWN if left > 0 else 0
        records, results = (_shown_rows(table, rows) for table in (window.records, window.results))
        left -= len(json_text(records)) + len(json_text(results))
        shown.append(_shown_window(window, records, results))
    return shown


def _shown_rows(table: pa.Table, most: int) -> list[dict[str, Any]]:
    return plain_rows(table.slice(0, most)) if table.nbytes <= MOST_TRIAL_BYTES else []


def _shown_window(window: TriedWindow, records: list[dict[str, Any]], results: list[dict[str, Any]]) -> dict[str, Any]:
    failure = window.failure
    return {
        "records": records,
        "more_records": window.records.num_rows - len(records),
        "results": results,
        "more_results": window.results.num_rows - len(results),
        "failure": None
        if failure is None
        else {"kind": failure.kind, "reason": f"{failure.reason}{failure.place}", "traceback": failure.traceback},
        "seconds": round(window.seconds, 6),
    }


def _about(name: str, versions: list[operation_changes.OperationVersion], now: CommittedStatus) -> dict[str, Any]:
    newest = versions[-1]
    return {"name": name, **newest.as_json(), "in_effect": now.manifest.offset.definition >= newest.version}
