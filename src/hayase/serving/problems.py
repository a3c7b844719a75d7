"""Errors as HTTP answers: `application/problem+json` (RFC 9457) with what happened and what to do.

Errors of Hayase have a status here and keep their text, which contains nothing secret. Any other exception is a fault: the
client receives the number of an incident, and the log has the traceback under that number.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import field
from http import HTTPStatus

import orjson

from hayase.core.data_classes import dataclass
from hayase.core.errors import (
    CursorGone,
    DamagedSegment,
    EnvironmentUnfit,
    HayaseError,
    InvalidCursor,
    NotFinal,
    OffsetGone,
    SchemaMismatch,
    StreamError,
    StreamFinished,
    UnknownName,
)
from hayase.engine.results.committed_results import MovedOn
from hayase.tables.payloads import UnfitParameter
from hayase.tables.table import TooOld

__all__ = ["LOGGER", "PROBLEM_JSON", "RETRY_AFTER", "Problem", "busy", "problem_of"]

LOGGER = logging.getLogger("hayase.serving")
PROBLEM_JSON = "application/problem+json"
RETRY_AFTER = 1
"""Seconds after which a client should repeat a request that was answered with 503."""


@dataclass(eq=False)
class Problem(Exception):
    """An error that ends a request with this answer."""

    status: int
    detail: str
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, object] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        """The body of the answer."""
        title = HTTPStatus(self.status).phrase
        return orjson.dumps(
            {"title": title, "status": self.status, "detail": _without_surrogates(self.detail), **self.extra}
        )


def busy(detail: str) -> Problem:
    """Return a 503 problem: the same request may succeed a moment later."""
    return Problem(503, detail, {"Retry-After": str(RETRY_AFTER)})


def problem_of(error: BaseException) -> Problem:
    """Return the problem that answers an exception; a fault is logged."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, UnknownName) and error.kind == "column":
        return Problem(422, str(error))
    for kind, status in _STATUS.items():
        if isinstance(error, kind):
            return Problem(status, str(error))
    if isinstance(error, EnvironmentUnfit) or _is_temporary(error):
        return busy(str(error))
    incident = uuid.uuid4().hex
    LOGGER.error("incident %s", incident, exc_info=error)
    return Problem(
        500,
        f"this is a fault in Hayase or in its files; look for incident {incident} in the log of the pipeline, "
        "logs/serving.log in its home",
        extra={"incident": incident},
    )


_STATUS: Mapping[type[HayaseError], int] = {
    UnknownName: 404,
    TooOld: 410,
    OffsetGone: 410,
    CursorGone: 410,
    StreamFinished: 409,
    NotFinal: 409,
    InvalidCursor: 422,
    SchemaMismatch: 422,
    UnfitParameter: 422,
}


def _is_temporary(error: BaseException) -> bool:
    """Whether an error is temporary: a full disk, results that change while they are read."""
    if isinstance(error, StreamError):
        return not isinstance(error, DamagedSegment)
    return type(error) is HayaseError or isinstance(error, MovedOn)


def _without_surrogates(text: str) -> str:
    """Replace lone surrogates, which a quoted text may contain and JSON cannot."""
    return text.encode("utf-8", "backslashreplace").decode()
