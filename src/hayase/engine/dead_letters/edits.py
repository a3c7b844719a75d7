"""Edits of dead letters before they are replayed: a Python function, a jq program, values for columns.

Each gets the records as dicts of JSON values. A record that never was a JSON object, such as a broken line of a file, comes as
its text. An edit that fails costs the one record.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DeclarationError
from hayase.streams.record_text import shown
from hayase.tables.jq import Events, Jq, Limits, Refused, Several
from hayase.tables.jq_numbers import read

__all__ = ["Edit", "Editing", "Unedited", "by_jq", "in_turn", "one_by_one", "setting", "setting_texts"]

Edit: TypeAlias = Callable[[Any], Mapping[str, Any]]
"""Gives the record that is replayed instead of the one it gets."""


@dataclass(frozen=True, slots=True)
class Unedited:
    """A record that an edit could not deal with, and why."""

    reason: str


Editing: TypeAlias = "Callable[[Sequence[Any], StreamDeclaration], list[Any]]"
"""Gives for each record of a stream another one, or `Unedited`."""


def one_by_one(edit: Edit) -> Editing:
    """A function of one record, for many.

    >>> orders = StreamDeclaration("orders", "time timestamp, amount double", "time")
    >>> one_by_one(lambda record: {"amount": 1 / record["amount"]})([{"amount": 4}, {"amount": 0}], orders)
    [{'amount': 0.25}, Unedited(reason='the edit raised ZeroDivisionError: division by zero')]
    """

    def edited(record: Any) -> Any:
        try:
            return edit(record)
        except Exception as error:  # somebody's function
            return Unedited(f"the edit raised {type(error).__name__}: {error}")

    return lambda records, declaration: [edited(each) for each in records]


def in_turn(*edits: Editing) -> Editing:
    """Several edits, one after the other."""

    def editing(records: Sequence[Any], declaration: StreamDeclaration) -> list[Any]:
        found = list(records)
        for edit in edits:
            good = [at for at, each in enumerate(found) if not isinstance(each, Unedited)]
            for at, each in zip(good, edit([found[at] for at in good], declaration), strict=True):
                found[at] = each
        return found

    return editing


def setting(values: Mapping[str, Any]) -> Editing:
    """Columns that get these values."""
    return lambda records, declaration: [_with(each, values) for each in records]


def setting_texts(texts: Mapping[str, str]) -> Editing:
    """Columns that get what these texts mean, as somebody types them."""

    def editing(records: Sequence[Any], declaration: StreamDeclaration) -> list[Any]:
        values = {column: value_of(text, column, declaration) for column, text in texts.items()}
        return [_with(each, values) for each in records]

    return editing


def _with(record: Any, values: Mapping[str, Any]) -> Any:
    if not isinstance(record, Mapping):
        return Unedited(
            f"{shown(record)} is no JSON object, in which a column could be set; make one with a jq program"
        )
    return {**record, **values}


def value_of(text: str, column: str, declaration: StreamDeclaration) -> Any:
    """What somebody who types a value for a column means: in a column of texts the text, else JSON, if it is any.

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
    """A jq program that makes one record of each, in a process of its own; DeclarationError for one with mistakes.

    When it has `expired`, the records that are left stay as they are.

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
            found: list[Any] = []
            for at in range(0, len(records), _LOT):
                lot = records[at : at + _LOT]
                if expired():
                    found += [Unedited("there was no time left for it; replay fewer at once")] * len(lot)
                else:
                    found += map(_one_record, jq.evaluate(program, Events(lot)))
            return found

        yield editing


def _one_record(answer: Any) -> Any:
    if isinstance(answer, Refused):
        return Unedited(f"jq: {answer.reason}")
    if isinstance(answer, Several):
        return Unedited(f"the jq program gave {len(answer.values)} results; one record must come of one")
    if not isinstance(answer, dict):
        return Unedited(f"the jq program gave {shown(answer)}, which is no record; it must give an object")
    return answer
