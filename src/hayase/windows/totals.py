"""The keyed running totals: for every input row, the count and the sums of its key up to and including that row.

Order: rows are taken in the order in which they come, which is (time, offset).   Per row: O(1), one pass.
State: one tuple per key, its accumulators; a batch writes those of the keys it touched, so its cost follows the change.
Laws:  counts and sums of integers and decimals are exact; a row whose addition would overflow is refused and changes
nothing; sums of floats are compensated (Neumaier 1974), so that a long sum keeps its digits, and NaN and the
infinities behave as IEEE 754 says. NULL arguments are ignored; the sum over none but NULLs is NULL. How a run was cut
into batches, or restored from its tuples in between, makes no difference to a single bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hayase.core.errors import DamagedState, DeclarationError, Mistake
from hayase.core.keys import check_key_type, flags, values
from hayase.core.stages import TIME, Outcome, Refusals, Tuples
from hayase.windows.keyed import KeyedAccumulators

__all__ = ["SECTION", "Count", "EventTime", "Key", "RunningTotals", "Sum", "TotalsConfig", "compile_ahead", "sum_type"]

SECTION = "totals"
"""The one section of the kernel's state."""

COUNT, INTEGER, FLOAT, DECIMAL = range(4)
"""What follows the count of an accumulator: nothing; a sum; a sum and its compensation; a sum's low and high word."""


@dataclass(frozen=True, slots=True)
class Key:
    """An output column that repeats a key column of the mapped row."""

    column: str


@dataclass(frozen=True, slots=True)
class Count:
    """An output column: how many rows so far, or how many of them whose `argument` (a mapped column) is not NULL."""

    argument: str | None = None


@dataclass(frozen=True, slots=True)
class Sum:
    """An output column: the sum so far of a mapped column; `text` is how the query words it, for refusals."""

    argument: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class EventTime:
    """The output column of the event time; `scale` is how many microseconds one unit of it has."""

    scale: int = 1


@dataclass(frozen=True, slots=True)
class TotalsConfig:
    """What to total: `columns[i]` says where column i of `output` comes from; `keys` are columns of `mapped`.

    `mapped` is the schema of the map side's rows, time and offset columns aside. Without keys all rows are one group.
    """

    keys: tuple[str, ...]
    columns: tuple[Key | Count | Sum | EventTime, ...]
    mapped: pa.Schema
    output: pa.Schema

    def __post_init__(self) -> None:
        mistakes: list[Mistake] = []
        for name in self.keys:
            try:
                check_key_type(self.mapped.field(name).type)
            except DeclarationError as error:
                mistakes += [Mistake(f'column "{name}": {each.message}', each.hint) for each in error.mistakes]
        if len(self.columns) != len(self.output):
            mistakes.append(Mistake(f"{len(self.columns)} columns are computed for {len(self.output)} of the output"))
        for column, field in zip(self.columns, self.output):
            try:
                wanted = self._type(column, field.type)
            except DeclarationError as error:
                mistakes += [Mistake(f'column "{field.name}": {each.message}', each.hint) for each in error.mistakes]
                continue
            if field.type != wanted:
                mistakes.append(Mistake(f'column "{field.name}" is a {wanted}, declared as {field.type}'))
        if mistakes:
            raise DeclarationError(mistakes)

    def _type(self, column: Key | Count | Sum | EventTime, declared: pa.DataType) -> pa.DataType:
        match column:
            case Key(name):
                if name not in self.keys:
                    raise DeclarationError(f'"{name}" is not a key', "group by it")
                return self.mapped.field(name).type
            case Count():
                return pa.int64()
            case Sum(argument):
                return sum_type(self.mapped.field(argument).type)
            case EventTime():
                return declared


def compile_ahead() -> None:
    """Make sure that the loops of this kernel and of the keys are compiled."""
    from hayase.windows import keyed_loops, totals_loops  # noqa: F401  (importing compiles; see the modules)


def sum_type(kind: pa.DataType) -> pa.DataType:
    """The type of a sum: integers give bigint, floats double, decimals 38 digits of the same scale; others are refused.

    >>> sum_type(pa.int16()), sum_type(pa.float32()), sum_type(pa.decimal128(10, 2))
    (DataType(int64), DataType(double), Decimal128Type(decimal128(38, 2)))
    """
    if pa.types.is_signed_integer(kind) or kind in (pa.uint8(), pa.uint16(), pa.uint32()):
        return pa.int64()
    if kind in (pa.float32(), pa.float64()):
        return pa.float64()
    if pa.types.is_decimal128(kind):
        return pa.decimal128(38, kind.scale)
    raise DeclarationError(f"there is no sum of a {kind}", "sum integers, floats or decimals, or cast to one of them")


@dataclass(frozen=True, slots=True)
class _Accumulator:
    """A count and, by its kind, the words of a sum, from word `at` of a slot's row; `argument` None counts rows."""

    argument: str | None
    kind: int
    at: int
    text: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return ("count", "sum", "rest")[: _WORDS[self.kind]]


_WORDS = (1, 2, 3, 3)
_KINDS = {pa.int64(): INTEGER, pa.float64(): FLOAT}


def _accumulators(config: TotalsConfig) -> tuple[_Accumulator, ...]:
    """One per distinct argument, in the order of the columns; a count and a sum of the same argument share one."""
    sums = {each.argument: each.text or f"sum({each.argument})" for each in config.columns if isinstance(each, Sum)}
    result: dict[str | None, _Accumulator] = {}
    at = 1
    for column in config.columns:
        if isinstance(column, Count | Sum) and column.argument not in result:
            kind = COUNT
            if column.argument in sums:
                kind = _KINDS.get(sum_type(config.mapped.field(column.argument).type), DECIMAL)
            result[column.argument] = _Accumulator(column.argument, kind, at, sums.get(column.argument or "", ""))
            at += _WORDS[kind]
    return tuple(result.values())


class RunningTotals:
    """The kernel of one bucket (`hayase.core.stages.Kernel`)."""

    def __init__(self, config: TotalsConfig) -> None:
        self._config = config
        self._plan = _accumulators(config)
        self._state = _state_schema(config, self._plan)
        self._keyed = KeyedAccumulators(sum(_WORDS[each.kind] for each in self._plan))
        self._version = 0

    def size(self, section: str) -> int:
        """The number of keys."""
        return len(self._keyed)

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Take up accumulators; of a key's tuples the latest written wins, of those of one version the last."""
        self._check_state(rows)
        slots = self._keyed.slots(self._key_columns_of_state(rows), rows.num_rows)
        words = [values(column, np.int64) for column in rows.columns[len(self._config.keys) :]]
        self._keyed.put(slots, np.stack(words) if words else np.empty((0, len(slots)), np.int64), version)
        self._version = max(self._version, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """The present accumulators of those keys of `rows` that were last written at or before `version`.

        From then on they count as written at the version of the last `process` (or `restore`, if that was later): the
        caller must write what it got under that version, and a second call for the same rows gives nothing.
        """
        self._check_state(rows)
        keys = self._key_columns_of_state(rows)
        slots = self._keyed.slots(keys, rows.num_rows, insert=False)
        positions = self._keyed.unchanged(slots, version)
        return self._tuples(keys, positions, slots[positions])

    def process(self, inputs: Sequence[pa.RecordBatch], clock: int, version: int) -> Outcome:
        """The totals after every row of the one input, and the accumulators of the keys that it touched."""
        from hayase.windows import totals_loops

        (batch,) = inputs
        count = batch.num_rows
        self._version = max(self._version, version)
        keys = [batch.column(name) for name in self._config.keys]
        slots = self._keyed.slots(keys, count)
        program, arguments, valid = self._arguments(batch)
        words = self._keyed.words
        totals = np.empty((words.shape[1] - 1, count), np.int64)
        noted, refused, culprits = (np.empty(count, np.int64) for _ in range(3))
        noting, refusing = totals_loops.accumulate(
            words, words.view(np.float64), slots, program, arguments, arguments.view(np.float64), valid,
            totals, totals.view(np.float64), noted, refused, culprits,
        )  # fmt: skip
        noted, refused, culprits = noted[:noting], refused[:refusing].copy(), culprits[:refusing]
        rows = self._output(batch, totals)
        if refusing:
            rows = rows.take(pa.array(np.delete(np.arange(count), refused)))
        state = (Tuples(SECTION, self._tuples(keys, noted, slots[noted])),) if noting else ()
        return Outcome(rows, (Refusals(refused, [self._reason(each) for each in culprits]),), state)

    def _arguments(self, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The program of the loop, the lines of arguments that it adds (floats as their bits) and of their validity."""
        program: list[tuple[int, int, int, int]] = []
        lines: list[np.ndarray] = []
        known: list[np.ndarray] = []
        for each in self._plan:
            line = flag = -1
            if each.argument is not None:
                column = batch.column(each.argument)
                if column.null_count:
                    flag = len(known)
                    known.append(flags(column))
                if each.kind != COUNT:
                    line = len(lines)
                    lines += _lines(column, each.kind)
            program.append((each.kind, each.at, line, flag))
        count = batch.num_rows
        return (
            np.array(program, np.int64).reshape(-1, 4),
            _stacked(lines, count, np.int64),
            _stacked(known, count, np.bool_),
        )

    def _output(self, batch: pa.RecordBatch, totals: np.ndarray) -> pa.RecordBatch:
        """The output rows of a batch, from its keys and times and the totals after each of its rows."""
        found = {each.argument: each for each in self._plan}
        columns: list[pa.Array] = []
        for column, field in zip(self._config.columns, self._config.output):
            match column:
                case Key(name):
                    columns.append(batch.column(name))
                case Count(argument):
                    columns.append(pa.array(totals[found[argument].at - 1]))
                case Sum(argument):
                    columns.append(_sums(found[argument], totals, field.type))
                case EventTime(scale):
                    times = values(batch.column(TIME), np.int64)
                    columns.append(pa.array(times if scale == 1 else times // scale).cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._config.output)

    def _tuples(self, keys: Sequence[pa.Array], rows: np.ndarray, slots: np.ndarray) -> pa.RecordBatch:
        """State tuples of distinct slots, whose keys stand in `rows` of the key columns; they count as written now."""
        gathered = self._keyed.gather(slots, self._version)
        chosen = pa.array(rows)
        columns = [column.take(chosen) for column in keys]
        columns += [
            pa.array(line.view(np.float64) if pa.types.is_float64(field.type) else line)
            for line, field in zip(gathered, list(self._state)[len(keys) :])
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._state)

    def _key_columns_of_state(self, rows: pa.RecordBatch) -> list[pa.Array]:
        return rows.columns[: len(self._config.keys)]

    def _check_state(self, rows: pa.RecordBatch) -> None:
        if not rows.schema.equals(self._state):
            raise DamagedState(
                f"state tuples have the columns ({_listed(rows.schema)}) where ({_listed(self._state)}) are expected; "
                "they belong to another definition of this stage: reset the stage"
            )

    def _reason(self, culprit: int) -> str:
        each = self._plan[culprit]
        limit = "64 bits" if each.kind == INTEGER else "38 digits"
        return f"{each.text} of its key would overflow {limit}"


def _state_schema(config: TotalsConfig, plan: Sequence[_Accumulator]) -> pa.Schema:
    """Keys, then for every accumulator its count and the words of its sum."""
    fields = [pa.field(f"key_{at}", config.mapped.field(name).type) for at, name in enumerate(config.keys)]
    for at, each in enumerate(plan):
        kinds = [pa.int64()] + [pa.float64() if each.kind == FLOAT else pa.int64()] * 2
        fields += [pa.field(f"{name}_{at}", kind) for name, kind in zip(each.names, kinds)]
    return pa.schema(fields)


def _lines(column: pa.Array, kind: int) -> list[np.ndarray]:
    """A sum's argument as lines of int64: integers, the bits of floats, or the low and high words of decimals."""
    if kind == DECIMAL:
        pairs = values(column, np.int64, 2).reshape(-1, 2)
        return [pairs[:, 0], pairs[:, 1]]
    return [values(column.cast(pa.float64() if kind == FLOAT else pa.int64()), np.int64)]


def _stacked(lines: Sequence[np.ndarray], count: int, kind: type) -> np.ndarray:
    """Lines as one matrix, without a copy if there is but one."""
    if len(lines) == 1:
        return lines[0].reshape(1, -1)
    return np.stack(lines) if lines else np.empty((0, count), kind)


def _sums(each: _Accumulator, totals: np.ndarray, kind: pa.DataType) -> pa.Array:
    """The column of a sum, NULL where nothing was added yet."""
    there = totals[each.at - 1] > 0
    validity = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
    line = totals[each.at]
    if each.kind == DECIMAL:
        line = np.stack((line, totals[each.at + 1]), axis=1)
    return pa.Array.from_buffers(kind, len(there), [validity, pa.py_buffer(line)])


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
