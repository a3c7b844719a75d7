"""Reduces by aggregates: partials are combined on the map side, then folded and lowered to results on the reduce side.

The map side sends one row per key and batch: the key and the partial aggregates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.algebra import Aggregate
from hayase.core.data_classes import dataclass
from hayase.core.declarations import AggregateDeclaration, StepDeclaration
from hayase.core.errors import DeclarationError, Mistake, suggestion
from hayase.core.reasons import Reason, ReasonKind
from hayase.jobs.key_groups import Groups
from hayase.jobs.plain_aggregates import accepted_values, of_texts, unfit_values
from hayase.jobs.tuples import KEY, PLAIN, VALUE, Shape
from hayase.windows.partials import Lifting

__all__ = ["AggregateCall", "Aggregates", "aggregates_of"]

_CALL = re.compile(r"\s*([^\W\d][\w.]*(?::[^\W\d]\w*)?)\s*(?:\((.*)\))?\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate of columns: `name` of the result column, `text` as declared, `function` the name under which it can be
    loaded."""

    name: str
    text: str
    function: str
    aggregate: Aggregate
    columns: tuple[str, ...]
    constant: float | None = None


@dataclass(frozen=True)
class Aggregates:
    """Aggregates over tuples of a shape. For plain tuples they aggregate the values, and the result is one value: with `single`
    that of the only aggregate, else a dict."""

    shape: Shape
    calls: tuple[AggregateCall, ...]
    single: bool = False

    @cached_property
    def liftings(self) -> list[Lifting]:
        schema = self.shape.schema
        return [
            Lifting(
                of_texts(call.aggregate) if self.shape.plain and call.columns else call.aggregate,
                [schema.field(name).type for name in call.columns],
            )
            for call in self.calls
        ]

    @cached_property
    def partials(self) -> pa.Schema:
        """The schema of combined rows: the key, then the words of each partial."""
        fields = [self.shape.schema.field(name) for name in self.shape.key]
        for at, lifting in enumerate(self.liftings):
            fields += [pa.field(f"__{at}_{word}", kind) for word, kind in enumerate(lifting.stored_types)]
        return pa.schema(fields)

    @cached_property
    def result(self) -> Shape:
        """The shape of the results."""
        if self.shape.plain:
            return PLAIN
        fields = [pa.field(name, self.shape.schema.field(name).type) for name in self.shape.key]
        fields += [pa.field(call.name, lifting.result) for call, lifting in zip(self.calls, self.liftings)]
        return Shape(pa.schema(fields), self.shape.key)

    def unfit(self, rows: pa.RecordBatch) -> tuple[np.ndarray, list[Reason]]:
        """Return the plain tuples whose values the aggregates do not take, with the reasons."""
        kinds = {accepted_values(call.aggregate) for call in self.calls if call.columns} if self.shape.plain else set()
        unfit = [unfit_values(rows.column(VALUE), kind) for kind in sorted(kinds)]
        positions = np.concatenate([np.empty(0, np.int64), *(unfit_rows for unfit_rows, _ in unfit)])
        reasons = [reason for _, row_reasons in unfit for reason in row_reasons]
        positions, firsts = np.unique(positions, return_index=True)
        return positions, [reasons[first] for first in firsts]

    def combined(self, rows: pa.RecordBatch, groups: Groups) -> pa.RecordBatch:
        """Return one row per group: the key and the partials of its rows."""
        columns = [rows.column(name).take(pa.array(groups.firsts)) for name in self.shape.key]
        for call, lifting in zip(self.calls, self.liftings):
            lifted = lifting.lift([rows.column(name) for name in call.columns], rows=rows.num_rows)
            columns += lifting.stored(lifting.runs(lifted.take(groups.order), groups.starts))
        return pa.RecordBatch.from_arrays(columns, schema=self.partials)

    def lowered(self, rows: pa.RecordBatch, groups: Groups) -> tuple[list[pa.Array], dict[int, Reason]]:
        """Fold groups of combined rows; return the columns of the results, and the groups without a result, with the reasons."""
        results: list[pa.Array] = []
        lost: dict[int, Reason] = {}
        at = len(self.shape.key)
        for call, lifting in zip(self.calls, self.liftings):
            width = len(lifting.stored_types)
            partials = lifting.restored(rows.columns[at : at + width]).take(groups.order)
            values, overflowed = lifting.lower(lifting.runs(partials, groups.starts))
            reason = Reason(ReasonKind.OVERFLOW, f"{call.text} does not fit its type")
            lost |= dict.fromkeys(overflowed.tolist(), reason)
            results.append(values)
            at += width
        keys = [rows.column(name).take(pa.array(groups.firsts)) for name in self.shape.key]
        return [*keys, *self.result_columns(results)], lost

    def result_columns(self, results: Sequence[pa.Array]) -> list[pa.Array]:
        """Convert results to columns of the result shape: for plain tuples one JSON text."""
        if not self.shape.plain:
            return list(results)
        texts = [pc.coalesce(result.cast(pa.string()), "null") for result in results]
        if self.single:
            return texts
        parts: list[pa.Array | str] = []
        for at, (call, text) in enumerate(zip(self.calls, texts)):
            opening = "," if at else "{"
            parts += [f"{opening}{orjson.dumps(call.name).decode()}:", text]
        return [pc.binary_join_element_wise(*parts, "}", "")]

    def text(self) -> str:
        """Return a description of the aggregates for a fingerprint."""
        return "; ".join(f"{call.name} {call.function} {call.constant} {','.join(call.columns)}" for call in self.calls)


def aggregates_of(
    step: StepDeclaration, shape: Shape, declared: Mapping[str, AggregateDeclaration]
) -> tuple[Aggregates | None, list[Mistake]]:
    """Return the aggregates of a step over tuples of a shape, or None and the mistakes."""
    calls: list[AggregateCall] = []
    mistakes: list[Mistake] = []
    for name, text in step.aggregates:
        try:
            calls.append(_call(name, text, shape, declared))
        except DeclarationError as error:
            mistakes += [Mistake(f"{text}: {mistake.message}", mistake.hint) for mistake in error.mistakes]
    taken_names = [*shape.key, *(call.name for call in calls)]
    for name in dict.fromkeys(column for column in taken_names if taken_names.count(column) > 1):
        mistakes.append(Mistake(f'two columns of the result are called "{name}"', "name one of them differently"))
    if mistakes:
        return None, mistakes
    aggregates = Aggregates(shape, tuple(calls), single=len(calls) == 1 and not step.aggregates[0][0])
    for call in calls:
        try:
            call.aggregate.result(
                [shape.schema.field(column).type for column in call.columns] if not shape.plain else _sample_types(call)
            )
        except DeclarationError as error:
            mistakes += [Mistake(f"{call.text}: {mistake.message}", mistake.hint) for mistake in error.mistakes]
    return (None, mistakes) if mistakes else (aggregates, [])


def _sample_types(call: AggregateCall) -> list[pa.DataType]:
    """Return an argument type that represents plain values."""
    if not call.columns:
        return []
    return [pa.bool_() if accepted_values(call.aggregate) == "booleans" else pa.float64()]


def _call(name: str, text: str, shape: Shape, declared: Mapping[str, AggregateDeclaration]) -> AggregateCall:
    read = _CALL.fullmatch(text)
    if read is None:
        raise DeclarationError("it is not an aggregate", "write it like count(*) or sum(size)")
    function, inside = read[1], read[2]
    if function in declared:
        aggregate, function = declared[function].load(), declared[function].source
    else:
        aggregate = Aggregate.from_name(function)
        function = function if ":" in function else aggregate.name
    arguments = [] if inside is None else [argument.strip() for argument in inside.split(",")]
    constant = None
    if aggregate.constant is not None:
        constant = aggregate.constant if len(arguments) < 2 else _number(arguments.pop())
        aggregate = aggregate.at(constant)
    if inside is None:
        columns = _default_columns(aggregate, shape)
    else:
        columns = () if arguments in (["*"], [""]) else tuple(_known(argument, shape) for argument in arguments)
    if not columns and not aggregate.star:
        raise DeclarationError(f"{aggregate.name} needs a column", "name it in brackets")
    return AggregateCall(name or aggregate.name, text.strip(), function, aggregate, columns, constant)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise DeclarationError(f'"{text}" is not a number', "write it like approx_quantile(size, 0.99)") from None


def _default_columns(aggregate: Aggregate, shape: Shape) -> tuple[str, ...]:
    """Return the columns of an aggregate that was declared without any."""
    if aggregate.star:
        return ()
    if len(shape.rest) == aggregate.arity == 1:
        return shape.rest
    raise DeclarationError("its column is missing", f"write it like {aggregate.name}({(*shape.rest, 'x')[0]})")


def _known(name: str, shape: Shape) -> str:
    if name in shape.schema.names and not (shape.plain and name == KEY):
        return name
    names = shape.rest if shape.plain else shape.schema.names
    raise DeclarationError(f'unknown column "{name}"', suggestion(name, names))
