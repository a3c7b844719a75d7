"""Calls the functions of steps on records, on keys with their values, or on Arrow batches, and returns their tuples as columns.

A function returns a tuple, a list of tuples or None, or it yields tuples. Calls are atomic: if one raises or returns anything else,
none of its tuples is kept, and the reason has the function, file, line and traceback. Other calls are not affected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import GeneratorType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.function_sources import FunctionSource
from hayase.core.reasons import Reason, ReasonKind
from hayase.jobs.calls import Calls
from hayase.jobs.emitted_tuples import Emission, Target, kind_of
from hayase.jobs.function_errors import EXPLAINED, failure
from hayase.jobs.tuples import Shape
from hayase.streams.typed_columns import fit_arrow

__all__ = ["ROW", "Step"]

ROW = "__row"
"""A column in the result of a function on batches: the row of the input batch to which each row belongs."""


@dataclass(frozen=True, slots=True)
class Step:
    """The function of a step, the shape of its tuples, and its targets, the first of which is the default."""

    source: FunctionSource
    shape: Shape
    targets: tuple[Target, ...] = (Target(""),)
    attempts: int = 1

    def call_each(self, arguments: Iterable[tuple[Any, ...]]) -> Emission:
        """Call the function once for each tuple of arguments."""
        calls = Calls(self)
        calls.make(arguments)
        return calls.emission()

    def on_batch(self, batch: pa.RecordBatch) -> Emission:
        """Call a map on a batch. If it raises, halve the batch until the failing rows are isolated."""
        parts: list[_Part] = []
        failed: dict[int, Reason] = {}
        todo = [(0, batch.num_rows)] if batch.num_rows else []
        while todo:
            start, stop = todo.pop()
            try:
                parts.append(self._part(batch.slice(start, stop - start), start))
            except _Refused as error:
                if stop - start > 1:
                    middle = (start + stop) // 2
                    todo += [(middle, stop), (start, middle)]
                else:
                    failed[start] = error.reason(len(failed) < EXPLAINED)
        return self._join(parts, failed)

    def on_groups(self, groups: Iterable[tuple[Any, ...]]) -> Emission:
        """Call a reduce or merge on batches once for each key."""
        parts: list[_Part] = []
        failed: dict[int, Reason] = {}
        for number, arguments in enumerate(groups):
            try:
                parts.append(self._group(arguments, number))
            except _Refused as error:
                failed[number] = error.reason(len(failed) < EXPLAINED)
        return self._join(parts, failed)

    def _part(self, batch: pa.RecordBatch, start: int) -> _Part:
        """Call the function on a batch; result rows that do not fit are reported by their input row."""
        result = _as_batch(self, self._call(batch))
        if result is None:
            return _Part(_no_columns(self.shape.schema), np.empty(0, np.int64), {})
        if ROW in result.schema.names:
            row = _rows_named(self, result.column(ROW), batch.num_rows)
            result = result.drop_columns([ROW])
        elif result.num_rows == batch.num_rows:
            row = np.arange(batch.num_rows)
        else:
            raise _Refused(
                self, f"it took {batch.num_rows} rows and gave {result.num_rows}; give a row for each, or a column "
                f'"{ROW}" that says of which row each is'
            )  # fmt: skip
        columns, reasons = _fitted(self, result)
        return _Part(columns, row + start, {int(row[at]) + start: reason for at, reason in reasons.items()})

    def _group(self, arguments: tuple[Any, ...], number: int) -> _Part:
        result = _as_batch(self, self._call(*arguments))
        if result is None:
            return _Part(_no_columns(self.shape.schema), np.empty(0, np.int64), {})
        columns, reasons = _fitted(self, result)
        if reasons:
            raise _Refused(self, next(iter(reasons.values())))
        return _Part(columns, np.full(result.num_rows, number), {})

    def _call(self, *arguments: Any) -> Any:
        """Call the function, with its number of attempts."""
        function = self.source.load()
        for attempt in range(1, self.attempts + 1):
            try:
                return _exhausted(function(*arguments))
            except (Exception, SystemExit) as error:
                if attempt == self.attempts:
                    raise _Refused(self, None, error) from error
        raise AssertionError("there is at least one attempt")

    def _join(self, parts: Sequence[_Part], failed: dict[int, Reason]) -> Emission:
        for part in parts:
            failed |= {
                row: Reason(ReasonKind.RESULT, f"{self.source.attribute}: {reason}")
                for row, reason in part.unfit.items()
                if row not in failed
            }
        call = np.concatenate([np.empty(0, np.int64), *(part.row for part in parts)])
        columns = [
            pa.chunked_array([part.columns[at] for part in parts], field.type).combine_chunks()
            for at, field in enumerate(self.shape.schema)
        ]
        emission = Emission(columns, call, np.zeros(len(call), np.int64), dict(sorted(failed.items())))
        return emission.without_failed()


class _Part(NamedTuple):
    """The result of a call on a batch: columns, the input row of each result row, and the input rows whose results do not fit."""

    columns: list[pa.Array]
    row: np.ndarray
    unfit: dict[int, str]


class _Refused(Exception):
    """A call that raised an error, or returned a wrong result."""

    def __init__(self, step: Step, wrong: str | None, error: BaseException | None = None) -> None:
        self._step, self._wrong, self._error = step, wrong, error

    def reason(self, explained: bool) -> Reason:
        if self._error is None:
            return Reason(ReasonKind.RESULT, f"{self._step.source.attribute}: {self._wrong}")
        return failure(self._step.source, self._step.attempts, self._error, explained)


def _no_columns(schema: pa.Schema) -> list[pa.Array]:
    return [pa.array([], field.type) for field in schema]


def _exhausted(result: Any) -> Any:
    """Exhaust a generator, so that an error in it counts as the function's."""
    return list(result) if isinstance(result, GeneratorType) else result


def _as_batch(step: Step, result: Any) -> pa.RecordBatch | None:
    """Convert the result of a function on batches to one batch; None if there is none."""
    if isinstance(result, list | tuple):
        batches = [batch for batch in (_as_batch(step, part) for part in result) if batch is not None]
        if len({tuple(batch.schema.names) for batch in batches}) > 1:
            raise _Refused(step, "it gave batches of different columns; give the same ones always")
        return pa.concat_batches(batches) if batches else None
    if result is None or isinstance(result, pa.RecordBatch):
        return result
    if isinstance(result, pa.Table):
        whole = result.combine_chunks().to_batches()
        return whole[0] if whole else pa.RecordBatch.from_pylist([], schema=result.schema)
    raise _Refused(step, f"it gave {kind_of(result)}; give an Arrow batch or table, a list of such, or None")


def _rows_named(step: Step, column: pa.Array, count: int) -> np.ndarray:
    if not pa.types.is_integer(column.type) or column.null_count:
        raise _Refused(step, f'the column "{ROW}" is not all integers; it says of which row of the batch each row is')
    rows: np.ndarray = column.to_numpy(zero_copy_only=False).astype(np.int64)
    if len(rows) and (rows.min() < 0 or rows.max() >= count):
        raise _Refused(step, f'the column "{ROW}" has a number that is none of the {count} rows of the batch')
    return rows


def _fitted(step: Step, result: pa.RecordBatch) -> tuple[list[pa.Array], dict[int, str]]:
    schema, names = step.shape.schema, result.schema.names
    missing = [name for name in schema.names if name not in names]
    strange = [name for name in names if name not in schema.names]
    if missing or strange or len(set(names)) < len(names):
        wrong = [f'it gave no column "{absent}"' for absent in missing]
        wrong += [f'it gave a column "{extra}", which the schema does not have' for extra in strange]
        raise _Refused(step, "; ".join(wrong) or "it gave two columns of one name")
    columns, reasons = [], dict[int, str]()
    for field in schema:
        fitted = fit_arrow(pa.chunked_array([result.column(field.name)]), field)
        column = fitted.column.combine_chunks()
        if not field.nullable and column.null_count:
            null = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist()
            reasons = dict.fromkeys(null, f'column "{field.name}" is null, and must not be') | reasons
        reasons = fitted.reasons | reasons
        columns.append(column)
    return columns, reasons
