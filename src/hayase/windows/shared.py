"""`SharedWindows`: many sliding-window aggregates over one sequence, computed from one set of stored partials.

`W[r, s]`: after every s-th tuple, the aggregate of the newest r (of fewer, while there are fewer). Any number of such
windows, with different r and different s, share all stored values.

Paper 2 keeps two arrays: `da`, in cycles as long as the shortest window, with backward values in full cycles and a
forward value in the running one, and `qa`, folds of whole cycles. An answer is then at most a backward value, a value of
qa and a forward value. Its weak spot is the length of the cycles: qa is rebuilt at the end of each, which costs
max(r) / min(r). Here cycles always have 16 slots, and qa is built like da: 16 cycles are a cycle of the next level, and so
on. Between its two ends a window of r slots needs the newest (r - 1) // 16 full cycles, or one less: two windows one level
up, which that level computes in the same way.

The cost of this grid, in combines:

    per tuple             2 (one forward, one backward value), and 2/16 + 2/256 + ... for the levels above
    per answer            2 (backward, between, forward), whatever r is
    per tuple and window  2 * 2/16 + 3 * 2/256 + ... < 0.3 for the part between, if s < 32: the level above computes it
                          at each of its slots, and all answers of a cycle share it
    per answer, s >= 32   2 per level: log16(r) levels, looked up for each answer separately

No cost depends on max(r) / min(r), and only the last line depends on r: {1, 7, 1,000,000} costs what {10, 13, 19, 40}
does. Windows of up to 16 slots are combined from the folds of the newest 2, 4, 8 and 16; these cost up to 4 combines per
tuple for all such windows, and have no chain of dependent steps.

Order: oldest first.   Laws needed: associative; never an inverse.   Space: max(r) partials, up to twice that while the
tape slides, and 1/15 more.   Paper: 2 (Kawakami, Bou, Amagasa).
The order in which an answer is combined follows from r, s and the numbers of its tuples: batches and other windows do not
change its bits. One sequence of counts, sums or extremes is processed in blocks that stay in the cache (`shared_loops`);
other partials, and sequences by key, use `hayase.windows.folds`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from hayase.core.algebra import AGGREGATES, Aggregate
from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError
from hayase.core.keys import KeyIndex, encode, hashes
from hayase.core.numbers import fits_arrow
from hayase.windows.partials import Lifting
from hayase.windows.sequences import FoldedSequences, Tapes, Unlowered, fits_tape, positions_of

__all__ = ["Answers", "SharedWindows", "Window", "WindowAnswers"]

VALUE = "value"
"""The name of the column if plain values are pushed."""
_LARGEST_SCALE = 76
"""The most digits of a decimal in Arrow."""


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """W[r, s]: after every `slide` tuples, the newest `length` tuples."""

    length: int
    slide: int = 1

    def __post_init__(self) -> None:
        if self.length < 1 or self.slide < 1:
            raise DeclarationError(
                f"there is no window W[{self.length}, {self.slide}]", "use lengths and slides from 1 on"
            )


@dataclass(frozen=True, slots=True)
class WindowAnswers:
    """The answers of one window that became due in a push.

    `at` are the numbers of the tuples after which they are due, counted from 0 over all pushes; `due` is the same, as a
    range where possible. `keys` are the keys of those tuples. A sum that does not fit its type is NULL, and its row is in
    `overflowed`.
    """

    window: Window
    due: range | np.ndarray
    keys: pa.Array | None
    values: Mapping[str, pa.Array]
    overflowed: Mapping[str, np.ndarray]

    @property
    def at(self) -> np.ndarray:
        return positions_of(self.due)

    def __len__(self) -> int:
        return len(self.due)

    def __getitem__(self, name: str) -> pa.Array:
        return self.values[name]


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of a push: one `WindowAnswers` per window, in order; `answers[10]` is that of the window of length 10."""

    of: Sequence[WindowAnswers]

    def __iter__(self) -> Iterator[WindowAnswers]:
        return iter(self.of)

    def __getitem__(self, window: Window | tuple[int, int] | int) -> WindowAnswers:
        for answers in self.of:
            if window in (answers.window, answers.window.length, (answers.window.length, answers.window.slide)):
                return answers
        raise KeyError(window)


@dataclass(frozen=True, slots=True)
class _Call:
    """An aggregate over columns, and the name of its answers."""

    name: str
    aggregate: Aggregate
    columns: tuple[str, ...]


class SharedWindows:
    """Sliding-window aggregates over NumPy arrays, Arrow arrays or lists, pushed batch by batch.

    `windows` are pairs (length, slide), or lengths that all have the same `slide`. `aggregates` are names, `Aggregate`s, or
    pairs of one of these and its column (or columns), as a list or as a mapping from the names of the answers.

    >>> shared = SharedWindows([5, 7, 8], ["sum", "max"], slide=2)
    >>> answers = shared.push([2, 11, 4, 9, 3, 13])
    >>> for each in answers:
    ...     print(each.window.length, each.at, each["sum"].to_pylist(), each["max"].to_pylist())
    5 [1 3 5] [13, 26, 40] [11, 11, 13]
    7 [1 3 5] [13, 26, 42] [11, 11, 13]
    8 [1 3 5] [13, 26, 42] [11, 11, 13]
    >>> shared.push([1, 7])[5]["sum"].to_pylist()
    [33]

    Columns by name, windows per key, different slides, other aggregates:

    >>> trades = {"price": [10.0, 20.0, None, 40.0], "size": [3, 1, 2, 5], "symbol": ["A", "B", "A", "A"]}
    >>> shared = SharedWindows([(2, 1), (3, 3)], {"mean": ("avg", "price"), "at": ("arg_max", ("size", "price"))})
    >>> answers = shared.push(trades, keys=trades["symbol"])
    >>> answers[2]["mean"].to_pylist(), answers[2].keys.to_pylist()
    ([10.0, 20.0, 10.0, 40.0], ['A', 'B', 'A', 'A'])
    >>> answers[3]["at"].to_pylist(), answers[3].at
    ([5], array([3]))
    """

    def __init__(
        self,
        windows: Sequence[Window | tuple[int, int] | int],
        aggregates: Sequence[Any] | Mapping[str, Any],
        *,
        slide: int = 1,
        types: Mapping[str, pa.DataType] | None = None,
    ) -> None:
        self._windows = tuple(_window(window, slide) for window in windows)
        self._calls = _calls(aggregates)
        if not self._windows or not self._calls:
            raise DeclarationError("windows without a window or without an aggregate", "name at least one of both")
        self._types: dict[str, pa.DataType] = dict(types or {})
        for name, kind in self._types.items():
            _check_scale(name, kind)
        self._count = 0
        self._by_key: bool | None = None
        self._keys = _Keys()
        self._kept: dict[Any, Tapes | FoldedSequences] = {}
        self._liftings: list[tuple[Lifting, Any]] = []

    @property
    def windows(self) -> tuple[Window, ...]:
        """All windows, in the order of the answers."""
        return self._windows

    def push(self, values: Any, keys: Any = None) -> Answers:
        """Add tuples and return the answers that are due."""
        columns = self._columns(values)
        rows = len(next(iter(columns.values())))
        if self._by_key is None:
            self._by_key = keys is not None
            self._open()
        if self._by_key != (keys is not None):
            raise DeclarationError("tuples with and without keys cannot be mixed", "pass keys always or never")
        begins, self._count = self._count, self._count + rows
        if keys is None:
            return self._push_one(columns, begins, rows)
        return self._push_by_key(columns, _array(keys, self._keys.type), begins, rows)

    def _open(self) -> None:
        for call in self._calls:
            lifting = Lifting(call.aggregate, [self._types[column] for column in call.columns])
            place = (lifting.partial, call.columns)
            self._liftings.append((lifting, place))
            if place not in self._kept:
                taped = not self._by_key and lifting.lanes and fits_tape(lifting)
                self._kept[place] = Tapes(lifting, self._windows) if taped else FoldedSequences(lifting, self._windows)

    def _columns(self, values: Any) -> dict[str, pa.Array]:
        pushed = dict(values) if isinstance(values, Mapping) else {VALUE: values}
        used = {column for call in self._calls for column in call.columns} or set(pushed)
        missing = sorted(used - set(pushed))
        if missing:
            raise DeclarationError(
                f"no column {missing[0]!r} was pushed",
                "an aggregate without a column takes plain values; name its column as in ('sum', 'price')"
                if missing[0] == VALUE else "push all columns that the aggregates name",
            )  # fmt: skip
        for name in used:
            if isinstance(pushed[name], pa.Array | pa.ChunkedArray):
                _check_scale(name, pushed[name].type)
        columns = {name: _array(pushed[name], self._types.get(name)) for name in sorted(used)}
        if len({len(column) for column in columns.values()}) > 1:
            raise DeclarationError("columns of different lengths", "push one value of each column per tuple")
        for name, column in columns.items():
            if pa.types.is_null(column.type):
                raise DeclarationError(f"the type of column {name!r} is unknown", "pass it as types={...}")
            self._types[name] = column.type
        return columns

    def _push_one(self, columns: Mapping[str, pa.Array], begins: int, rows: int) -> Answers:
        due = [
            range(begins + window.slide - 1 - begins % window.slide, begins + rows, window.slide)
            for window in self._windows
        ]
        pushed = {place: kept.push(_columns_of(place, columns), due, rows) for place, kept in self._kept.items()}
        return self._answers(due, pushed, None)

    def _push_by_key(self, columns: Mapping[str, pa.Array], keys: pa.Array, begins: int, rows: int) -> Answers:
        codes = self._keys.codes(keys)
        due: list[np.ndarray] = []
        pushed = {}
        for place, kept in self._kept.items():
            due, pushed[place] = kept.push_by_key(_columns_of(place, columns), codes, rows)
        return self._answers(
            [begins + rows_due for rows_due in due], pushed, [keys.take(pa.array(rows_due)) for rows_due in due]
        )

    def _answers(
        self, due: Sequence[range | np.ndarray], unlowered: Mapping[Any, Unlowered], keys: Sequence[pa.Array] | None
    ) -> Answers:
        """Lower the answers of all windows together, and return them by window."""
        ends = np.cumsum([0, *(len(rows) for rows in due)])
        lowered = [self._kept[place].lower(lifting, unlowered[place], due) for lifting, place in self._liftings]
        of = []
        for number, window in enumerate(self._windows):
            begin, end = int(ends[number]), int(ends[number + 1])
            values, overflowed = {}, {}
            for call, (answers, lost) in zip(self._calls, lowered):
                values[call.name] = answers.slice(begin, end - begin)
                overflowed[call.name] = lost[(lost >= begin) & (lost < end)] - begin if len(lost) else lost
            of.append(WindowAnswers(window, due[number], None if keys is None else keys[number], values, overflowed))
        return Answers(of)

    def state(self) -> dict[str, Any]:
        """Return what `from_state` needs to continue: arrays, and the arguments of `SharedWindows`.

        >>> shared = SharedWindows([3], ["sum"])
        >>> before = shared.push([1, 2, 3])
        >>> again = SharedWindows.from_state(shared.state())
        >>> again.push([4])[3]["sum"].to_pylist()
        [9]
        """
        return {
            "windows": [(window.length, window.slide) for window in self._windows],
            "aggregates": {call.name: (_name_or_aggregate(call.aggregate), call.columns) for call in self._calls},
            "types": dict(self._types),
            "count": self._count,
            "by_key": self._by_key,
            "keys": self._keys.state(),
            "kept": [kept.state() for kept in self._kept.values()],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> SharedWindows:
        """Return windows that continue from a state."""
        windows = cls(state["windows"], state["aggregates"], types=state["types"])
        windows._count, windows._by_key = state["count"], state["by_key"]
        if windows._by_key is not None:
            windows._open()
            windows._keys.restore(state["keys"])
            for kept, held in zip(windows._kept.values(), state["kept"]):
                kept.restore(held)
        return windows


def _columns_of(place: Any, columns: Mapping[str, pa.Array]) -> list[pa.Array]:
    """Return the columns that a partial is computed from."""
    return [columns[name] for name in place[1]]


def _window(given: Window | tuple[int, int] | int, slide: int) -> Window:
    if isinstance(given, Window):
        return given
    return Window(*given) if isinstance(given, tuple | list) else Window(int(given), slide)


def _calls(aggregates: Sequence[Any] | Mapping[str, Any]) -> tuple[_Call, ...]:
    named = (
        list(aggregates.items())
        if isinstance(aggregates, Mapping)
        else [(None, aggregate_spec) for aggregate_spec in aggregates]
    )
    calls: list[_Call] = []
    for name, spec in named:
        name_or_aggregate, columns = spec if isinstance(spec, tuple | list) else (spec, VALUE)
        aggregate = (
            name_or_aggregate if isinstance(name_or_aggregate, Aggregate) else Aggregate.from_name(name_or_aggregate)
        )
        columns = (columns,) if isinstance(columns, str) else tuple(columns)
        if not aggregate.laws.associative:
            raise DeclarationError(
                f"{aggregate.name} is not associative", "shared windows need an associative aggregate"
            )
        calls.append(_Call(name or aggregate.name, aggregate, columns))
    if len({call.name for call in calls}) < len(calls):
        raise DeclarationError("two aggregates have the same name", "name them: {'low': ('min', 'x'), ...}")
    return tuple(calls)


def _name_or_aggregate(aggregate: Aggregate) -> Aggregate | str:
    """Return the name of a built-in aggregate, so that loading the state gives the same object; else the aggregate."""
    return aggregate.name if AGGREGATES.get(aggregate.name) is aggregate else aggregate


def _check_scale(name: str, kind: pa.DataType) -> None:
    """Refuse decimals with a scale that no number of 76 digits needs: Arrow has such types, but cannot convert their values."""
    if pa.types.is_decimal(kind) and abs(kind.scale) > _LARGEST_SCALE:
        raise DeclarationError(
            f"column {name!r} is a {kind}, whose scale is impossible", f"the scale is at most {_LARGEST_SCALE}; cast it"
        )
    for place in range(kind.num_fields):
        _check_scale(name, kind.field(place).type)


def _array(values: Any, kind: pa.DataType | None) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not isinstance(values, pa.Array):
        if kind is not None and pa.types.is_decimal(kind) and not fits_arrow(values):
            raise ValueError(f"a value does not fit {kind}: it has too many digits, or too large an exponent")
        return pa.array(values, kind)
    if kind is None or values.type == kind:
        return values
    if pa.types.is_decimal(kind):  # Arrow's own casts to decimals do not notice every overflow
        return _array(values.to_pylist(), kind)
    return values.cast(kind)


class _Keys:
    """Codes of keys, in the order of their first occurrence."""

    def __init__(self) -> None:
        self._index = KeyIndex()
        self.type: pa.DataType | None = None

    def codes(self, keys: pa.Array) -> np.ndarray:
        self.type = keys.type
        encoded = encode([keys])
        return self._index.slots(encoded, hashes(encoded))

    def state(self) -> tuple[pa.DataType | None, Any]:
        from hayase.core.keys import decode

        if self.type is None:
            return None, None
        return self.type, decode(self._index.encoded(np.arange(self._index.capacity)), [self.type])[0]

    def restore(self, state: tuple[pa.DataType | None, Any]) -> None:
        if state[0] is not None:
            self.codes(state[1])
