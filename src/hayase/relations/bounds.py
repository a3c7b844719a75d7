"""What a statement says about the rows that it needs of a relation: bounds on columns, and which columns.

Bounds are a help, not a promise: a relation may give more rows than they allow, because the statement itself is applied to all
rows that it gives. A relation must not leave out a row that is within them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import datetime

from hayase.core.data_classes import dataclass
from hayase.core.errors import HayaseError
from hayase.core.times import instant

__all__ = ["NOTHING_SAID", "Bounds", "Value"]

Value = str | int | float | bool | datetime
_Conversion = Callable[[Value], int | None]


@dataclass(frozen=True, slots=True)
class Bounds:
    """For each column, by its name in lower case: the values that it may have, its least and its greatest value."""

    among: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    least: Mapping[str, Value] = field(default_factory=dict)
    most: Mapping[str, Value] = field(default_factory=dict)

    def integers(self, column: str) -> tuple[int | None, int | None]:
        """Return the least and the greatest value of an integer column, as far as they are known.

        >>> Bounds({"a": (3, 5)}, {"a": 4}).integers("a")
        (4, 5)
        """
        return self._range(column, lambda value: value if isinstance(value, int) else None)

    def instants(self, column: str, scale: int | None) -> tuple[int | None, int | None]:
        """Return the least and the greatest instant of a column of times, in microseconds. `scale` is that of integers, in
        microseconds; None for a column of timestamps."""
        return self._range(column, lambda value: _microseconds(value, scale))

    def _range(self, column: str, convert: _Conversion) -> tuple[int | None, int | None]:
        among = [convert(value) for value in self.among.get(column, ())]
        known = [value for value in among if value is not None]
        least, most = (min(known), max(known)) if known and len(known) == len(among) else (None, None)
        if (bound := _converted(self.least, column, convert)) is not None:
            least = bound if least is None else max(least, bound)
        if (bound := _converted(self.most, column, convert)) is not None:
            most = bound if most is None else min(most, bound)
        return least, most


def _converted(values: Mapping[str, Value], column: str, convert: _Conversion) -> int | None:
    return convert(values[column]) if column in values else None


def _microseconds(value: Value, scale: int | None) -> int | None:
    if isinstance(value, bool | float):
        return None
    if scale is not None:
        return value * scale if isinstance(value, int) else None
    if isinstance(value, int):
        return None
    try:
        return instant(value)
    except HayaseError:
        return None


NOTHING_SAID = Bounds()
