"""HTTP routes of operations: list them with their history, add, change, remove and roll them back while the pipeline runs.

To change an operation is to run code on this machine, so the routes that do so need a token, even for local requests.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from hayase.core.errors import DeclarationError, StageChanged
from hayase.engine.definition import operation_changes
from hayase.engine.definition.definitions import Definition
from hayase.serving.bodies import JSON, content_type, read_as
from hayase.serving.json_rows import json_text
from hayase.serving.models import OperationAsked, OperationChanged, RollbackAsked
from hayase.serving.parameters import Name
from hayase.serving.problems import Problem
from hayase.serving.route_support import RequestWorkers, answer
from hayase.serving.service import CommittedStatus, Service

__all__ = ["FORBIDDEN", "MOST_BYTES", "OperationRoutes"]

MOST_BYTES = 1 << 20
"""The largest body of a request, in bytes."""
FORBIDDEN = "The server has no token, or a page from elsewhere sent this."

_Asked = TypeVar("_Asked", OperationAsked, OperationChanged, RollbackAsked)


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

        def change_with_source() -> Definition:
            before = operation_changes.history(self.service.home, operation)[-1].declaration
            function = asked.function or ("" if before is None else before.function.rpartition(":")[2])
            return _with_source(operation, function, asked, change)

        return await self._changed(change_with_source, operation)

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


def _make_change(change: Callable[[], Definition], seconds: float) -> Definition:
    """Make a change. The trial of its code is limited to `seconds`, because it occupies a thread that other changes need."""
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
    change: Callable[[dict[str, Any], str | None], Definition],
) -> Definition:
    """Make a change; the text of a module, if the request has one, is written to a file for it."""
    data = asked.model_dump(by_alias=True, exclude_unset=True, exclude={"name", "source", "start", "reset"})
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


def _about(name: str, versions: list[operation_changes.OperationVersion], now: CommittedStatus) -> dict[str, Any]:
    newest = versions[-1]
    return {"name": name, **newest.as_json(), "in_effect": now.manifest.offset.definition >= newest.version}
