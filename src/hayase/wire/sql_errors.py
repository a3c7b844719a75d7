"""Errors as clients of PostgreSQL get them: a code of five signs (SQLSTATE), the message, what to do, and the place in the text."""

from __future__ import annotations

import re

from hayase.core.errors import HayaseError, NotFinal, UnknownName
from hayase.relations.statement import StatementError, Unsupported
from hayase.relations.statement_runs import Interrupted, OutOfMemory
from hayase.tables.table import TooOld
from hayase.wire.authentication import Refused
from hayase.wire.column_types import InvalidValue
from hayase.wire.messages import Garbled

__all__ = ["SqlError", "fields_of"]


class SqlError(HayaseError):
    """An error with its code."""

    def __init__(self, code: str, problem: str, remedy: str | None = None):
        super().__init__(problem, remedy)
        self.code = code


_CODES: tuple[tuple[type[HayaseError], str], ...] = (
    (Refused, "28P01"),
    (Garbled, "08P01"),
    (Unsupported, "25006"),
    (Interrupted, "57014"),
    (OutOfMemory, "53200"),
    (NotFinal, "55000"),
    (TooOld, "55000"),
    (InvalidValue, "22P02"),
    (UnknownName, "42P01"),
)
_BY_TEXT = (
    (re.compile(r"syntax error|Parser Error", re.IGNORECASE), "42601"),
    (re.compile(r"Referenced column|does not have a column", re.IGNORECASE), "42703"),
    (re.compile(r"unknown function|No function matches", re.IGNORECASE), "42883"),
    (re.compile(r"Conversion Error|Could not convert", re.IGNORECASE), "22P02"),
    (re.compile(r"Out of Range", re.IGNORECASE), "22003"),
    (re.compile(r"Permission Error", re.IGNORECASE), "42501"),
    (re.compile(r"Table with name .* does not exist", re.IGNORECASE), "42P01"),
    (re.compile(r"must appear in the GROUP BY", re.IGNORECASE), "42803"),
    (re.compile(r"Ambiguous reference", re.IGNORECASE), "42702"),
)


def fields_of(error: BaseException, offset: int = 0, severity: str = "ERROR") -> dict[str, str]:
    """Return the fields of an error message, by their letters. `offset` is where its statement begins in the text."""
    if not isinstance(error, HayaseError):
        problem = "this is a fault in Hayase; see the log of the server"
        return {"S": severity, "V": severity, "C": "XX000", "M": problem}
    fields = {"S": severity, "V": severity, "C": _code(error), "M": error.problem or str(error)}
    if error.remedy:
        fields["H"] = error.remedy
    if isinstance(error, StatementError) and error.position is not None:
        fields["P"] = str(error.position + offset)
    return fields


def _code(error: HayaseError) -> str:
    if isinstance(error, SqlError):
        return error.code
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    for pattern, code in _BY_TEXT:
        if pattern.search(str(error)):
            return code
    return "42000" if isinstance(error, StatementError) else "58000"
