"""Operations declared in Python: `@p.operation(reads="orders", window=10)` above a function, or a call with one.

@p.operation(reads="orders", key="user", window=10, schema="user string, mean double")
def means(records):
    return {"user": records[0]["user"], "mean": sum(record["amount"] for record in records) / len(records)}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from hayase.core.declarations import OperationDeclaration
from hayase.core.function_sources import FunctionSource, source_of
from hayase.core.operation_data import declared_operation

__all__ = ["Extent", "Names", "operation_of"]

Extent = int | str | timedelta
"""The size of a window: a number of records, or a duration."""
Names = str | Sequence[str]


def operation_of(
    function: Callable[..., Any] | str, writes: str | None, options: Mapping[str, Any], directory: str
) -> OperationDeclaration:
    """Return the declaration of a function, given itself or by name; modules named so are in `directory`. Without
    `writes`, the operation has the name of the function. Options that are None are left out.

    >>> score = operation_of("shop:score", None, {"reads": "orders", "window": "5 minutes", "slide": None}, ".")
    >>> score.name, score.function, score.by_time
    ('score', 'shop:score', True)
    """
    source = FunctionSource(function, directory) if isinstance(function, str) else source_of(function)
    data = {name: value for name, value in options.items() if value is not None}
    return declared_operation(writes or source.attribute, {**data, "function": source.name}, source.directory)
