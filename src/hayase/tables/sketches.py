"""The column types DistinctCount and Quantiles: approximate statistics in a few kilobytes.

Both depend only on the *set* of payloads, as every column type must: the same payloads give the same bytes.

DistinctCount is the HyperLogLog of Apache DataSketches. The library's own format depends on the order of the values (its lists
and hash tables are in the order of arrival, and its estimate follows the history). So the state is what does not depend on it:
the sorted coupons of the values while they are few, then the registers. It is written in the library's format, flagged as a
union, from which the library estimates; other programs that use the library can read what `image` returns.

Quantiles does not use the library. Its KLL, REQ and classic sketches compact at random and take no seed, so two runs over the
same values differ; a t-digest is not random, but its clusters depend on the order. Quantiles is a histogram of fixed buckets
instead, as in HdrHistogram and DDSketch: it consists of counts only and merges exactly:

- up to 128 values are kept as they are, and quantiles are exact;
- more are counted in buckets: sign, binary exponent and the first 7 bits of the mantissa of the value as a 64-bit float.
  A bucket's width is at most 1/128 of its values, and its middle represents it: a quantile is off by at most 1/256, 0.39 %, of
  *its own value*, whatever the distribution. (KLL bounds the error of ranks: next to a gap its values can be far off.) No
  logarithm is used, because its last digit might differ between machines;
- if more than 2,048 buckets are filled, which needs values over at least 4.8 powers of ten (those below and above zero
  taken together), neighbouring buckets are joined in pairs and the error doubles, as in UDDSketch; and again. The number of
  times depends on the values alone: it is the least number that suffices for all of them. The least and the greatest value
  stay exact.
"""

from __future__ import annotations

import importlib
import math
import struct
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError
from hayase.tables.payloads import Json, UnfitParameter, amount_of, kind_of, number, value_bytes
from hayase.tables.types import ColumnType, Update

__all__ = ["DistinctCount", "Quantiles", "Spread"]


# ---------------------------------------------------------------------------------------------------- distinct values

_BITS = 12
"""2^12 registers: 4 KB, and a standard error of 1.6 %."""
_MOST_LISTED, _MOST_COUPONS = 7, 384
"""The most coupons in the library's list format and in its set format; more values are kept in registers."""
_LIST, _SET, _REGISTERS = 8, 9, 10
_COMPACT, _UNION = 8, 16


@cache
def _library() -> ModuleType:
    return importlib.import_module("datasketches")  # imported late: it is slow, and few tables need it


@dataclass(frozen=True, slots=True)
class DistinctCount(ColumnType[np.ndarray]):
    """The number of distinct values: exact up to 384, except for hash collisions, then within 1.6 % (one standard error).

    Values are the same if they are equal in JSON. The state is the coupons, uint32, ascending; or the registers, uint8.

    >>> visitors = DistinctCount()
    >>> visitors.read(None, [(b"1", visitors.payload("add", "taro")), (b"2", visitors.payload("add", "taro"))])
    1
    """

    tag: ClassVar[int] = ord("D")
    methods: ClassVar[tuple[str, ...]] = ("add",)
    arrow: ClassVar[pa.DataType] = pa.int64()

    def delta(self, method: str, parameter: Json) -> bytes:
        sketch = _library().hll_sketch(_BITS)
        sketch.update(_hashable(parameter))
        coupon: bytes = sketch.serialize_compact()[8:12]
        return coupon

    def empty(self) -> np.ndarray:
        return np.empty(0, np.uint32)

    def apply(self, state: np.ndarray, updates: Sequence[Update]) -> np.ndarray:
        bodies = [body for _, _, body in updates]
        return self.join(state, np.unique(_numbers(bodies, np.dtype("<u4"))))

    def join(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        if one.dtype == other.dtype == np.uint32:
            both = np.union1d(one, other)
            return both if len(both) <= _MOST_COUPONS else _registers(both)
        return np.maximum(_registers(one), _registers(other))

    def encode(self, state: np.ndarray) -> bytes:
        return _image(state)

    def decode(self, body: bytes) -> np.ndarray:
        mode = body[7]
        start = {_LIST: 8, _SET: 12, _REGISTERS: 40}[mode]
        state = np.frombuffer(body, np.uint8 if mode == _REGISTERS else "<u4", offset=start)
        if _image(state) != body:
            raise ValueError("not the image of a sketch")
        return state

    def plain_value(self, state: np.ndarray) -> Json:
        return round(_library().hll_sketch.deserialize(_image(state)).get_estimate())

    def image(self, snapshot: bytes) -> bytes:
        """Return the sketch in the format of Apache DataSketches. Texts and 64-bit integers are hashed as they are."""
        return self.encode(self.decode_snapshot(snapshot))


def _hashable(value: Json) -> str | int:
    """Return what the library hashes for a value: texts and 64-bit integers as they are, so that other programs agree; else a
    text that no JSON text equals. The library would ignore an empty text."""
    if isinstance(value, str) and value:
        value_bytes(value)
        return value
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        plain = number(amount_of(value))
        if isinstance(plain, int):
            return plain
    return "\0" + value_bytes(value).decode("latin-1")


def _registers(state: np.ndarray) -> np.ndarray:
    if state.dtype == np.uint8:
        return state
    registers = np.zeros(2**_BITS, np.uint8)
    np.maximum.at(registers, state & (2**_BITS - 1), (state >> 26).astype(np.uint8))
    return registers


def _image(state: np.ndarray) -> bytes:
    """Return coupons or registers in the library's compact format."""
    if state.dtype == np.uint32:
        count = len(state)
        if count <= _MOST_LISTED:
            flags = _COMPACT if count else _COMPACT | 4
            return bytes((2, 1, 7, _BITS, 3, flags, count, _LIST)) + state.astype("<u4").tobytes()
        slots = next(size for size in range(5, _BITS) if count <= 3 * 2 ** (size - 2))  # at most three quarters full
        head = bytes((3, 1, 7, _BITS, slots, _COMPACT, 0, _SET)) + struct.pack("<i", count)
        return head + state.astype("<u4").tobytes()
    inverse = np.ldexp(1.0, -state.astype(np.int32))  # their sums are exact in any order
    small = state < 32
    head = bytes((10, 1, 7, _BITS, 0, _COMPACT | _UNION, 0, _REGISTERS))
    sums = struct.pack("<dddii", 0.0, inverse[small].sum(), inverse[~small].sum(), int((state == 0).sum()), 0)
    return head + sums + state.tobytes()


# ---------------------------------------------------------------------------------------------------- quantiles

_MOST_EXACT = 128
_MANTISSA_BITS = 7
_SHIFT = 52 - _MANTISSA_BITS
_MOST_BUCKETS = 2048
_pack_float = struct.Struct(">d").pack
_LARGEST_FINITE = 0x7FEF_FFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """A histogram, ascending: `keys` are values if `level` is -1, else buckets that were joined `level` times."""

    level: int
    keys: np.ndarray
    counts: np.ndarray
    least: float = math.inf
    greatest: float = -math.inf

    @property
    def count(self) -> int:
        """The number of values."""
        return int(self.counts.sum())

    def at(self, *fractions: float) -> list[float | None]:
        """Return for every fraction the least value such that at least this fraction of all values is at or below it."""
        upto = self.counts.cumsum()
        total = int(upto[-1]) if len(upto) else 0
        quantiles: list[float | None] = []
        for fraction in fractions:
            part, whole = _ratio(fraction)
            rank = max(1, -(-part * total // whole))
            if total == 0:
                quantiles.append(None)
            elif rank in (1, total):
                quantiles.append(self.least if rank == 1 else self.greatest)
            else:
                key = self.keys[upto.searchsorted(rank)]
                value = float(key) if self.level < 0 else _middle(int(key), self.level)
                quantiles.append(min(max(value, self.least), self.greatest))
        return quantiles


_NOTHING = Spread(-1, np.empty(0, np.float64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Quantiles(ColumnType[Spread]):
    """The distribution of numbers: count, minimum, maximum, and the quantiles of some fractions.

    A quantile is the least number such that at least that fraction of all is at or below it: exact for up to 128 numbers, then
    off by at most 0.39 % of its own value, doubled for each doubling of the range beyond 4.8 powers of ten that the numbers
    fill. Numbers are taken as 64-bit floats.

    >>> latency = Quantiles([0.5])
    >>> latency.read(None, [(bytes([each]), latency.payload("add", each)) for each in range(1, 100)])
    {'count': 99, 'min': 1, 'max': 99, 'p50': 50}
    """

    fractions: Sequence[float] = (0.5, 0.9, 0.99)

    tag: ClassVar[int] = ord("Q")
    methods: ClassVar[tuple[str, ...]] = ("add",)

    def __post_init__(self) -> None:
        for fraction in self.fractions:
            if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 <= fraction <= 1:
                raise DeclarationError(
                    f"{fraction!r} is not a fraction of a Quantiles column", "give numbers from 0 to 1"
                )
        object.__setattr__(self, "fractions", tuple(float(fraction) for fraction in self.fractions))

    def delta(self, method: str, parameter: Json) -> bytes:
        if isinstance(parameter, bool) or not isinstance(parameter, (int, float, Decimal)):
            raise UnfitParameter(f"cannot add {kind_of(parameter)}", "it takes a number")
        try:
            value = float(parameter)
        except (OverflowError, ValueError):  # an integer that is too large, a signalling NaN
            value = math.inf
        if not math.isfinite(value):
            amount_of(parameter)  # raises unless the number is finite and only too large for a float
            raise UnfitParameter("a number is too large for a 64-bit float")
        return _pack_float(value + 0.0)

    def empty(self) -> Spread:
        return _NOTHING

    def apply(self, state: Spread, updates: Sequence[Update]) -> Spread:
        values = _numbers([body for _, _, body in updates], np.dtype(">f8")).astype(np.float64)
        if not np.isfinite(values).all():
            raise ValueError("a number is not finite")
        keys, counts = np.unique(values, return_counts=True)
        return self.join(state, Spread(-1, keys, counts, float(keys[0]), float(keys[-1])))

    def join(self, one: Spread, other: Spread) -> Spread:
        level = max(one.level, other.level)
        if one.count + other.count > _MOST_EXACT:
            level = max(level, 0)
        keys = np.concatenate((_keys_at(one, level), _keys_at(other, level)))
        counts = np.concatenate((one.counts, other.counts))
        keys, counts = _gathered(keys, counts)
        while level >= 0 and len(keys) > _MOST_BUCKETS:
            keys, counts = _gathered(keys >> 1, counts)
            level += 1
        return Spread(level, keys, counts, min(one.least, other.least), max(one.greatest, other.greatest))

    def encode(self, state: Spread) -> bytes:
        head = bytes((state.level + 1,))
        if state.level < 0:
            return head + np.repeat(state.keys, state.counts).astype(">f8").tobytes()
        first, steps = int(state.keys[0]), np.diff(state.keys)
        lines = np.concatenate((steps, state.counts))
        return head + struct.pack(">ddq", state.least, state.greatest, first) + _varints(lines)

    def decode(self, body: bytes) -> Spread:
        level = body[0] - 1
        if level < 0:
            keys, counts = np.unique(np.frombuffer(body, ">f8", offset=1).astype(np.float64), return_counts=True)
            return Spread(-1, keys, counts, float(keys[0]), float(keys[-1])) if len(keys) else _NOTHING
        least, greatest, first = struct.unpack(">ddq", body[1:25])
        lines = _varints_from(body[25:])
        steps, counts = lines[: len(lines) // 2], lines[len(lines) // 2 :]
        return Spread(level, np.concatenate(([0], np.cumsum(steps))) + first, counts, least, greatest)

    def plain_value(self, state: Spread) -> Json:
        names = ["min", "max", *map(_percent, self.fractions)]
        values = state.at(0.0, 1.0, *self.fractions)
        return {"count": state.count} | {name: _plain(value) for name, value in zip(names, values)}

    def spread(self, snapshot: bytes) -> Spread:
        """Return the histogram of a snapshot, which answers any quantile."""
        return self.decode_snapshot(snapshot)


def _plain(value: float | None) -> int | float | None:
    return int(value) if value is not None and value.is_integer() and abs(value) < 2**53 else value


@cache
def _ratio(fraction: float) -> tuple[int, int]:
    """Return a fraction as it was written in decimal, not as the float's binary value: 0.07 of 100 is 7."""
    return Fraction(repr(fraction)).as_integer_ratio()


@cache
def _percent(fraction: float) -> str:
    """Return the name of a quantile: p50, p99.9."""
    return f"p{number(amount_of(Decimal(repr(fraction)) * 100))}"


def _keys_at(spread: Spread, level: int) -> np.ndarray:
    """Return the keys of a histogram as buckets of a level that is at least its own."""
    if spread.level >= 0:
        return spread.keys >> (level - spread.level)
    if level < 0:
        return spread.keys
    magnitude = np.abs(spread.keys).view(np.int64) >> (_SHIFT + level)
    return np.where(spread.keys < 0, ~magnitude, magnitude)


def _middle(key: int, level: int) -> float:
    """Return the value in the middle of a bucket; zero for the bucket that contains it."""
    magnitude = ~key if key < 0 else key
    if magnitude == 0:
        return 0.0
    bits = (magnitude << (_SHIFT + level)) + (1 << (_SHIFT + level - 1))
    (middle,) = struct.unpack(">d", min(bits, _LARGEST_FINITE).to_bytes(8, "big"))
    return -middle if key < 0 else float(middle)


def _gathered(keys: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return every key once, ascending, with the sum of its counts."""
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    if not len(keys):
        return keys, counts
    starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    return keys[starts], np.add.reduceat(counts, starts)


# ---------------------------------------------------------------------------------------------------- bytes


def _numbers(bodies: list[bytes], kind: np.dtype[Any]) -> np.ndarray:
    """Decode bodies that consist of one number of this type each."""
    if any(len(body) != kind.itemsize for body in bodies):
        raise ValueError(f"not {kind.itemsize} bytes")
    return np.frombuffer(b"".join(bodies), kind)


_SHIFTS = np.arange(0, 63, 7, dtype=np.uint64)


def _varints(numbers: np.ndarray) -> bytes:
    """Encode non-negative int64 numbers in base 128, as `payloads.varint` does."""
    left = numbers.astype(np.uint64)[:, None] >> _SHIFTS
    there = left > 0
    there[:, 0] = True
    digits = (left & 127).astype(np.uint8)
    digits[:, :-1] |= there[:, 1:].astype(np.uint8) << 7
    return digits[there].tobytes()


def _varints_from(data: bytes) -> np.ndarray:
    """Decode numbers in base 128, as int64."""
    digits = np.frombuffer(data, np.uint8)
    last = np.flatnonzero(digits < 128)
    if not len(last) or last[-1] != len(digits) - 1:
        raise ValueError("numbers are cut off")
    starts = np.concatenate(([0], last[:-1] + 1))
    place = np.arange(len(digits)) - np.repeat(starts, last - starts + 1)
    return np.add.reduceat((digits & 127).astype(np.int64) << (7 * place), starts)
