"""The column type Counter: exact sums of integers and decimals, independent of the order of additions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.tables.payloads import (
    Amount,
    Json,
    UnfitParameter,
    added,
    amount_bytes,
    amount_from,
    amount_of,
    kind_of,
    many_amount_bytes,
    number,
    varint_from,
)
from hayase.tables.types import ColumnType, Update

if TYPE_CHECKING:
    from hayase.tables.entry_blocks import RowUpdates

__all__ = ["Counter", "checked_amount", "summed"]


@dataclass(frozen=True, slots=True)
class Counter(ColumnType[Amount]):
    """The sum of all increments, 0 at first. Increments may be negative and may have decimals.

    >>> counter = Counter()
    >>> counter.read(None, [(b"1", counter.payload("incr", 0.1)), (b"2", counter.payload("incr", 0.2))])
    0.3
    """

    tag: ClassVar[int] = ord("C")
    methods: ClassVar[tuple[str, ...]] = ("incr",)
    arrow: ClassVar[pa.DataType] = pa.float64()

    def delta(self, method: str, parameter: Json) -> bytes:
        return amount_bytes(checked_amount(parameter))

    def deltas(self, method: str, parameters: Sequence[Json]) -> list[bytes] | None:
        return many_amount_bytes(parameters)

    def empty(self) -> Amount:
        return 0, 0

    def apply(self, state: Amount, updates: Sequence[Update]) -> Amount:
        return summed(state, [body for _, _, body in updates])

    def states_of(self, updates: RowUpdates) -> list[Amount | None]:
        return updates.sums(self.payload_head(1))

    def join(self, one: Amount, other: Amount) -> Amount:
        return added(one, other)

    def encode(self, state: Amount) -> bytes:
        return amount_bytes(state)

    def decode(self, body: bytes) -> Amount:
        return amount_from(body)[0]

    def plain_value(self, state: Amount) -> Json:
        return number(state)


def summed(amount: Amount, bodies: Iterable[bytes]) -> Amount:
    """Add encoded amounts to an amount; ValueError for malformed bytes."""
    by_scale: dict[int, int] = {}
    for body in bodies:
        shape, at = body[0], 1  # `amount_from`, inlined for speed
        if shape >= 128:
            shape, at = varint_from(body, 0)
        if len(body) - at != shape & 1023 or len(body) == at:
            raise ValueError("an amount is cut off")
        scale = shape >> 10
        by_scale[scale] = by_scale.get(scale, 0) + int.from_bytes(body[at:], "big", signed=True)
    for scale, n in by_scale.items():
        amount = added(amount, (n, scale))
    return amount


def checked_amount(parameter: Json) -> Amount:
    """Return a parameter as an amount; UnfitParameter if it is not a number."""
    if not isinstance(parameter, (int, float, Decimal)) or isinstance(parameter, bool):
        raise UnfitParameter(f"cannot add {kind_of(parameter)}", "it takes a number")
    return amount_of(parameter)
