"""Edits of dead letters before a replay: by a Python function, a jq program, or new values for columns.

An edit takes records as dicts of JSON values. A record that is not a JSON object, such as a broken line of a file, is passed as
text. If an edit fails, only that record stays open.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DeclarationError
from hayase.streams.record_text import shown
from hayase.tables.jq import Events, Jq, Limits, Refused, Several
from hayase.tables.jq_numbers import read

__all__ = ["Edit", "Editing", "Unedited", "by_jq", "in_turn", "one_by_one", "setting", "setting_texts"]

Edit: TypeAlias = Callable[[Any], Mapping[str, Any]]
"""Takes a record and returns the record to replay instead."""


@dataclass(frozen=True, slots=True)
class Unedited:
    """A record for which an edit failed, and why."""

    reason: str


Editing: TypeAlias = "Callable[[Sequence[Any], StreamDeclaration], list[Any]]"
"""Takes records of a stream and returns, for each, the edited record or `Unedited`."""


def one_by_one(edit: Edit) -> Editing:
    """Turn a function of one record into an edit of many.

    >>> orders = StreamDeclaration("orders", "time timestamp, amount double", "time")
    >>> one_by_one(lambda record: {"amount": 1 / record["amount"]})([{"amount": 4}, {"amount": 0}], orders)
    [{'amount': 0.25}, Unedited(reason='the edit raised ZeroDivisionError: division by zero')]
    """

    def edited(record: Any) -> Any:
        try:
            return edit(record)
        except Exception as error:  # the function is user code
            return Unedited(f"the edit raised {type(error).__name__}: {error}")

    return lambda records, declaration: [edited(item) for item in records]


def in_turn(*edits: Editing) -> Editing:
    """Chain edits: each takes the output of the one before, without records that failed."""

    def editing(records: Sequence[Any], declaration: StreamDeclaration) -> list[Any]:
        results = list(records)
        for edit in edits:
            good = [at for at, result in enumerate(results) if not isinstance(result, Unedited)]
            for at, result in zip(good, edit([results[at] for at in good], declaration), strict=True):
                results[at] = result
        return results

    return editing


def setting(values: Mapping[str, Any]) -> Editing:
    """Return an edit that sets columns to these values."""
    return lambda records, declaration: [_with(record, values) for record in records]


def setting_texts(texts: Mapping[str, str]) -> Editing:
    """Return an edit that sets columns to typed texts, read as `value_of` does."""

    def editing(records: Sequence[Any], declaration: StreamDeclaration) -> list[Any]:
        values = {column: value_of(text, column, declaration) for column, text in texts.items()}
        return [_with(record, values) for record in records]

    return editing


def _with(record: Any, values: Mapping[str, Any]) -> Any:
    if not isinstance(record, Mapping):
        return Unedited(
            f"{shown(record)} is not a JSON object, in which a column could be set; make one with a jq program"
        )
    return {**record, **values}


def value_of(text: str, column: str, declaration: StreamDeclaration) -> Any:
    """Return the value of a text typed for a column: in a string column the text, else parsed as JSON where possible.

    >>> orders = StreamDeclaration("orders", "time timestamp, user string, amount double", "time")
    >>> value_of("5", "user", orders), value_of("5", "amount", orders), value_of("null", "user", orders)
    ('5', 5, None)
    """
    schema = declaration.arrow_schema
    if column in schema.names and pa.types.is_string(schema.field(column).type) and text != "null":
        return text
    try:
        return read(text)
    except ValueError:
        return text


_LOT = 50


@contextlib.contextmanager
def by_jq(program: str, limits: Limits | None = None, expired: Callable[[], bool] = lambda: False) -> Iterator[Editing]:
    """Yield an edit by a jq program that returns one record for each, run in a process of its own. Raise DeclarationError if
    the program is invalid. Once `expired` returns true, the remaining records are not edited and stay open.

    >>> orders = StreamDeclaration("orders", "time timestamp, amount double", "time")
    >>> with by_jq(".amount |= abs") as edit:
    ...     edit([{"amount": -2}, {"amount": "x"}], orders)[0]
    {'amount': 2}
    """
    with Jq(limits) as jq:
        mistakes = jq.mistakes(program)
        if mistakes:
            raise DeclarationError(mistakes)

        def editing(records: Sequence[Any], declaration: StreamDeclaration) -> list[Any]:
            results: list[Any] = []
            for at in range(0, len(records), _LOT):
                lot = records[at : at + _LOT]
                if expired():
                    results += [Unedited("there was no time left for it; replay fewer at once")] * len(lot)
                else:
                    results += map(_one_record, jq.evaluate(program, Events(lot)))
            return results

        yield editing


def _one_record(answer: Any) -> Any:
    if isinstance(answer, Refused):
        return Unedited(f"jq: {answer.reason}")
    if isinstance(answer, Several):
        return Unedited(f"the jq program gave {len(answer.values)} results; one record must come of one")
    if not isinstance(answer, dict):
        return Unedited(f"the jq program gave {shown(answer)}, which is not a record; it must give an object")
    return answer
