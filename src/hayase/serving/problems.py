"""Errors as HTTP tells them: `application/problem+json` (RFC 9457) with what happened and what to do.

What Hayase raises on purpose has a status of its own here and keeps its text, which is fit to be shown. Anything else is
a fault: the caller gets the number of an incident, the log gets the traceback under that number.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

import orjson

from hayase.core.errors import (
    DamagedSegment,
    EnvironmentUnfit,
    HayaseError,
    OffsetGone,
    SchemaMismatch,
    StreamError,
    StreamFinished,
    UnknownName,
)
from hayase.tables.payloads import UnfitParameter
from hayase.tables.table import TooOld

__all__ = ["LOGGER", "PROBLEM_JSON", "RETRY_AFTER", "Problem", "busy", "problem_of"]

LOGGER = logging.getLogger("hayase.serving")
PROBLEM_JSON = "application/problem+json"
RETRY_AFTER = 1
"""Seconds after which a request that came too early or too thickly is worth a second try."""


@dataclass(eq=False)
class Problem(Exception):
    """A request that is answered with an error."""

    status: int
    detail: str
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, object] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        """The answer's text."""
        title = HTTPStatus(self.status).phrase
        return orjson.dumps({"title": title, "status": self.status, "detail": _writable(self.detail), **self.extra})


def busy(detail: str) -> Problem:
    """Not now: the same request may do better in a moment."""
    return Problem(503, detail, {"Retry-After": str(RETRY_AFTER)})


def problem_of(error: BaseException) -> Problem:
    """The answer to an error that ended a request."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, UnknownName) and error.kind == "column":
        return Problem(422, str(error))
    for kind, status in _STATUS.items():
        if isinstance(error, kind):
            return Problem(status, str(error))
    if isinstance(error, EnvironmentUnfit) or _passes(error):
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
    StreamFinished: 409,
    SchemaMismatch: 422,
    UnfitParameter: 422,
}


def _passes(error: BaseException) -> bool:
    """Whether it may go away by itself: a full disk, results that change while they are read."""
    if isinstance(error, StreamError):
        return not isinstance(error, DamagedSegment)
    return type(error) is HayaseError


def _writable(text: str) -> str:
    """A text that JSON can hold, also if it quotes half a character."""
    return text.encode("utf-8", "backslashreplace").decode()
