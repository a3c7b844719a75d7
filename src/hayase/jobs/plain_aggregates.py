"""Aggregates over the values of plain tuples, which are JSON texts: each built-in aggregate, wrapped to decode and encode JSON.

`hayase.jobs.plain_aggregates:sum` names the sum of such values. A sum of integers is an integer; with any float it is a float.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from hayase.core.algebra import AGGREGATES, Aggregate, Partial
from hayase.core.errors import DeclarationError
from hayase.core.reasons import Reason, ReasonKind, reasons_of
from hayase.jobs.tuples import loads_all
from hayase.streams.record_text import shown

__all__ = ["of_texts", "unfit_values"]

_ANYTHING, _NUMBERS, _BOOLEANS = "anything", "numbers", "booleans"
_TYPES: dict[str, set[type]] = {_NUMBERS: {int, float, type(None)}, _BOOLEANS: {bool, type(None)}}


def of_texts(aggregate: Aggregate) -> Aggregate:
    """Wrap an aggregate so that it takes and returns JSON texts.

    >>> of_texts(AGGREGATES["sum"]).of(["1", "2", "null"])
    '3'
    """
    return replace(
        aggregate,
        name=f"plain_{aggregate.name}",
        lift=partial(_lift, aggregate, not _takes(aggregate, pa.list_(pa.string())) and _takes_all(aggregate)),
        lower=partial(_lower, aggregate),
        result=_text_type,
        constant=None,
    )


def __getattr__(name: str) -> Aggregate:
    """Return the built-in aggregate of that name, wrapped for JSON texts."""
    if name not in AGGREGATES:
        raise AttributeError(name)
    return _built_in(name)


@lru_cache(maxsize=64)
def _built_in(name: str) -> Aggregate:
    return of_texts(AGGREGATES[name])


def _text_type(kinds: Any) -> pa.DataType:
    return pa.string()


def _lift(aggregate: Aggregate, as_text: bool, text: str | None) -> Partial:
    value = None if text is None or text == "null" else text if as_text else orjson.loads(text)
    return aggregate.lift(value)


def _lower(aggregate: Aggregate, aggregated: Partial) -> str:
    return orjson.dumps(aggregate.lower(aggregated)).decode()


def _takes(aggregate: Aggregate, kind: pa.DataType) -> bool:
    try:
        aggregate.result([kind])
    except DeclarationError:
        return False
    return True


def _takes_all(aggregate: Aggregate) -> bool:
    """Whether the result has the same type for all arguments, such as a count of distinct values."""
    kinds = (pa.string(), pa.float64(), pa.bool_())
    return all(_takes(aggregate, kind) for kind in kinds) and len({aggregate.result([kind]) for kind in kinds}) == 1


def accepted_values(aggregate: Aggregate) -> str:
    """Return what values an aggregate takes: "anything", "numbers" or "booleans"."""
    if _takes(aggregate, pa.list_(pa.string())) or _takes_all(aggregate):
        return _ANYTHING
    return _NUMBERS if _takes(aggregate, pa.float64()) else _BOOLEANS


def unfit_values(texts: pa.Array, kind: str) -> tuple[np.ndarray, list[Reason]]:
    """Return the rows whose values an aggregate does not take, with the reasons."""
    if kind == _ANYTHING:
        return np.empty(0, np.int64), []
    values = loads_all(texts)
    if set(map(type, values)) <= _TYPES[kind]:
        return np.empty(0, np.int64), []
    rows = [at for at, value in enumerate(values) if type(value) not in _TYPES[kind]]
    reasons = [
        f"the value is {shown(values[at])} (a {type(values[at]).__name__}), and {kind} were expected" for at in rows
    ]
    return np.array(rows, np.int64), reasons_of(ReasonKind.RESULT, reasons)
