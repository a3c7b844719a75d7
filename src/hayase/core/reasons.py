"""Why a record became a dead letter: a kind, which programs compare, and a text, which people read.

The kinds are a closed list. Nothing decides by the text of a reason, so texts can be reworded; a kind keeps its name and its
meaning, since it is a column of the stream `_dead`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

__all__ = ["KIND_MEANINGS", "Reason", "ReasonKind", "joined", "reasons_of"]


class ReasonKind(StrEnum):
    """The kind of a reason; `KIND_MEANINGS` says what each means."""

    UNREADABLE = "unreadable"
    SCHEMA = "schema"
    AHEAD = "ahead"
    LATE = "late"
    TOO_OLD = "too_old"
    EXPRESSION = "expression"
    OVERFLOW = "overflow"
    CHANGE = "change"
    RULE = "rule"
    FUNCTION = "function"
    RESULT = "result"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    CRASH = "crash"
    GONE = "gone"
    LOST = "lost"
    UNKNOWN = "unknown"


KIND_MEANINGS = {
    ReasonKind.UNREADABLE: "a line, row or text is not a record",
    ReasonKind.SCHEMA: "the record does not fit the columns of its stream or table",
    ReasonKind.AHEAD: "its event time is further ahead of now than `max_ahead` allows, and nothing else is wrong with it",
    ReasonKind.LATE: "it came after the clock of the stage had passed its event time",
    ReasonKind.TOO_OLD: "it is older than the horizon of its table, or than the `dedupe` of its stream",
    ReasonKind.EXPRESSION: "an expression of a query or a job could not be computed for it",
    ReasonKind.OVERFLOW: "a sum, or another number that it leads to, does not fit its type",
    ReasonKind.CHANGE: "it is a change that is neither + nor -, or it removes a row that is not there",
    ReasonKind.RULE: "an update rule of a table failed for it",
    ReasonKind.FUNCTION: "your function (of an operation, a job or a view) raised an exception",
    ReasonKind.RESULT: "what your function returned does not fit",
    ReasonKind.TIMEOUT: "your function took longer than its limit",
    ReasonKind.MEMORY: "your function asked for more memory than its limit",
    ReasonKind.CRASH: "your function ended its process, or the process was killed",
    ReasonKind.GONE: "it was replayed, and its stage does not take it any more",
    ReasonKind.LOST: "the letter itself is lost: it stands for one whose file was missing (`hayase home repair --accept-loss`)",
    ReasonKind.UNKNOWN: "it was written before letters had kinds",
}
"""What each kind of reason says about a record."""


class Reason(NamedTuple):
    """Why a record was refused."""

    kind: ReasonKind
    text: str

    @property
    def first_line(self) -> str:
        """The text without the traceback below it."""
        return self.text.partition("\n")[0]


def reasons_of(kind: ReasonKind, texts: Sequence[str]) -> list[Reason]:
    """Return reasons of one kind.

    >>> reasons_of(ReasonKind.LATE, ["late: ..."])[0].kind.value
    'late'
    """
    return [Reason(kind, text) for text in texts]


def joined(reasons: Sequence[Reason]) -> Reason:
    """Return all reasons of a record as one, of the kind of the first."""
    return Reason(reasons[0].kind, "; ".join(reason.text for reason in reasons))
