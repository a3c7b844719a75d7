"""The types in the signature of a compiled loop: numbers, C arrays of them, and tuples as results.

They are written as Numba writes them (`int64[:, ::1]`), and can be written without loading Numba (`to_numba` loads it).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from hayase.core.data_classes import dataclass

__all__ = [
    "Array",
    "Kind",
    "Record",
    "Scalar",
    "Tuple",
    "UniTuple",
    "boolean",
    "float64",
    "from_dtype",
    "int32",
    "int64",
    "to_numba",
    "uint8",
    "uint32",
    "uint64",
    "void",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number, or nothing (`void`), by the name that Numba gives it."""

    name: str

    def __getitem__(self, axes: slice | tuple[slice, ...]) -> Array:
        """Return a C array that is written: `int64[::1]`, `int64[:, ::1]`."""
        return Array(self, len(axes) if isinstance(axes, tuple) else 1)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype("bool" if self.name == "boolean" else self.name)


@dataclass(frozen=True, slots=True)
class Record:
    """A structured type of NumPy."""

    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Array:
    """A C array. Only arrays that are read can lie over Arrow buffers, which are read-only."""

    element: Scalar | Record
    dimensions: int
    layout: str = "C"
    readonly: bool = False


@dataclass(frozen=True, slots=True)
class Tuple:
    """A tuple, as a result."""

    parts: tuple[Scalar | Array, ...]


Kind: TypeAlias = Scalar | Array | Tuple


def UniTuple(part: Scalar, count: int) -> Tuple:  # noqa: N802 - Numba's name
    """Return a tuple whose parts have one type."""
    return Tuple((part,) * count)


def from_dtype(dtype: np.dtype[Any]) -> Record:
    """Return the element of arrays of a structured type."""
    return Record(dtype)


void, boolean = Scalar("void"), Scalar("boolean")
int32, int64 = Scalar("int32"), Scalar("int64")
uint8, uint32, uint64 = Scalar("uint8"), Scalar("uint32"), Scalar("uint64")
float64 = Scalar("float64")


def to_numba(kind: Kind | Record) -> Any:
    """Return Numba's type."""
    import numba
    from numba import types

    match kind:
        case Scalar(name):
            return getattr(types, name)
        case Record(dtype):
            return numba.from_dtype(dtype)
        case Array(element, dimensions, layout, readonly):
            return types.Array(to_numba(element), dimensions, layout, readonly=readonly)
        case Tuple(parts):
            return types.Tuple(tuple(to_numba(part) for part in parts))
