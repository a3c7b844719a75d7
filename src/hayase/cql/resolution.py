"""One query against the stream that it reads: names resolved, expressions typed, the key and the kernel chosen.

Two kinds of stages come out: a *projection* (select and where, no kernel) and *running totals* (with group by: one row
per input row, the totals of its key up to and including it). The result always has the input's event-time column:
selected under its own name, or appended.

Names of output columns: an alias as it is written; a column as the stream spells it; `count(*)` is "count", `sum(x)`
and `count(x)` of a column are "sum_x" and "count_x"; any other expression is "column_N", N its place in the list.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DeclarationError, Mistake
from hayase.core.expressions import Bound, Projection, bind, condition
from hayase.core.keys import check_key_type
from hayase.core.schemas import ddl
from hayase.core.stages import Input, Stage
from hayase.cql.statement import Aggregate, Item, Part, Statement
from hayase.windows.totals import Count, EventTime, Key, RunningTotals, Sum, TotalsConfig, sum_type

__all__ = ["stage_of"]

_Source = Key | Count | Sum | EventTime

_MEANING = {"projection": 1, "totals": 1}
"""Raised when a kind of stage comes to mean something else, so that older state and results no longer fit it."""


def stage_of(name: str, statement: Statement, source: StreamDeclaration) -> Stage:
    """The stage of a query over a stream, or DeclarationError with everything that is wrong."""
    return _Resolution(name, statement, source).stage()


@dataclass(frozen=True, slots=True)
class _Column:
    """An output column: its name, and the column of the input or the entry of the select list that it is."""

    name: str
    part: Part
    item: Item | None = None

    @property
    def aggregate(self) -> Aggregate | None:
        return self.item.aggregate if self.item else None

    @property
    def sql(self) -> str:
        return self.item.part.text if self.item else _quoted(self.name)

    @property
    def canon(self) -> str:
        return self.item.part.canon if self.item else _quoted(self.name.lower())


class _MapSide:
    """The columns that a map side computes for a kernel; the same expression is computed once."""

    def __init__(self) -> None:
        self.fields: list[pa.Field] = []
        self.columns: list[tuple[str, str]] = []
        self._known: dict[tuple[str, str], str] = {}

    def add(self, prefix: str, meaning: str, kind: pa.DataType, sql: str) -> str:
        name = self._known.setdefault((prefix, meaning), f"{prefix}{sum(each == prefix for each, _ in self._known)}")
        if all(name != each.name for each in self.fields):
            self.fields.append(pa.field(name, kind))
            self.columns.append((name, sql))
        return name


class _Resolution:
    """A query on its way to a stage; it notes mistakes while it goes, so that all are told at once."""

    def __init__(self, name: str, statement: Statement, source: StreamDeclaration):
        self.name, self.statement, self.source = name, statement, source
        self.schema = source.arrow_schema
        self.spelled = {each.lower(): each for each in self.schema.names}
        self.used = {source.time}
        self.mistakes: list[Mistake] = []

    def stage(self) -> Stage:
        columns = self._columns()
        if self.statement.where is not None:
            self._bound(self.statement.where, is_condition=True)
        if self.statement.group or any(each.aggregate for each in columns):
            stage = self._totals(columns)
        else:
            stage = self._projection(columns)
        if stage is None:
            raise DeclarationError(sorted(self.mistakes, key=lambda each: (each.line or 0, each.column or 0)))
        return stage

    # ------------------------------------------------------------------------------------------------ columns

    def _columns(self) -> list[_Column]:
        """The select list with `*` written out and the event time in it."""
        found: dict[str, _Column] = {}
        for place, item in enumerate(self.statement.items, 1):
            entry = [_Column(item.alias or self._named(item, place), item.part, item)]
            for each in [_Column(name, item.part) for name in self.schema.names] if item.star else entry:
                if each.name.lower() in found:
                    message = f'two columns of the result are called "{each.name}"'
                    self.mistakes.append(each.part.mistake(message, "name one of them differently with AS"))
                elif each.name.startswith("__"):
                    message = f'the name "{each.name}" begins with "__", which is reserved'
                    self.mistakes.append(each.part.mistake(message, "choose another name with AS"))
                found.setdefault(each.name.lower(), each)
        own = _Column(self.source.time, self.statement.stream)
        time = found.setdefault(own.name.lower(), own)
        if time.canon != own.canon:
            message = f'"{time.name}" is the event time of the result and must be that of the input'
            self.mistakes.append(
                time.part.mistake(message, f'name this column differently, or select "{own.name}" itself')
            )
        return list(found.values())

    def _named(self, item: Item, place: int) -> str:
        argument = item.aggregate.argument if item.aggregate else None
        if item.aggregate and argument is None:
            return item.aggregate.function
        column = argument.name if argument else item.part.name
        if column is None:
            return f"column_{place}"
        spelled = self.spelled.get(column.lower(), column)
        return f"{item.aggregate.function}_{spelled}" if item.aggregate else spelled

    def _bound(self, part: Part, is_condition: bool = False) -> Bound | None:
        """What an expression is; None if it is a mistake, which is noted."""
        try:
            bound = (condition if is_condition else bind)(part.text, self.schema, self.statement.relation)
        except DeclarationError as error:
            self.mistakes += [_within(part, each) for each in error.mistakes]
            return None
        self.used |= bound.columns
        return bound

    # ------------------------------------------------------------------------------------------------ projections

    def _projection(self, columns: Sequence[_Column]) -> Stage | None:
        fields: list[pa.Field] = []
        for each in columns:
            if each.item is None:
                self.used.add(each.name)
                fields.append(pa.field(each.name, self.schema.field(each.name).type))
            elif bound := self._bound(each.part):
                fields.append(pa.field(each.name, bound.kind))
        if self.mistakes:
            return None
        schema = pa.schema(fields)
        side = self._map_side([(each.name, each.sql) for each in columns], schema)
        output = self._output(schema, slack=self.source.slack, ordered=self.source.ordered)
        return Stage(self.name, (side,), output, self._fingerprint("projection", output))

    def _map_side(self, columns: Sequence[tuple[str, str]], schema: pa.Schema, key: tuple[str, ...] = ()) -> Input:
        where = self.statement.where.text if self.statement.where else None
        side = Projection(tuple(columns), where, schema, self.statement.relation)
        return Input(self.source.name, side, schema, key)

    # ------------------------------------------------------------------------------------------------ totals

    def _totals(self, columns: Sequence[_Column]) -> Stage | None:
        if not self.statement.group:
            first = next(each.part for each in columns if each.aggregate)
            self.mistakes.append(
                first.mistake("aggregates without GROUP BY are not supported yet", "add: group by ...")
            )
        mapped = _MapSide()
        keys = {part.canon: self._key(part, mapped) for part in self._grouped()}
        fields: list[pa.Field] = []
        sources: list[_Source] = []
        arguments = [each.aggregate.argument for each in columns if each.aggregate and each.aggregate.function == "sum"]
        summed = {each.canon for each in arguments if each}
        for each in columns:
            found: tuple[pa.DataType, _Source] | None = None
            if each.aggregate:
                found = self._aggregate(each.part, each.aggregate, mapped, summed)
            elif each.canon in keys:
                found = keys[each.canon]
            elif each.canon == _quoted(self.source.time.lower()):
                found = self.schema.field(self.source.time).type, EventTime(self.source.time_scale)
            else:
                self._ungrouped(each)
            if found is not None:
                fields.append(pa.field(each.name, found[0]))
                sources.append(found[1])
        if not self.mistakes and not any(each.aggregate for each in columns):
            message = "GROUP BY without an aggregate is not supported yet"
            self.mistakes.append(self.statement.group[0].mistake(message, "select count(*) or sum(...) too"))
        if self.mistakes:
            return None
        schema, names = pa.schema(fields), tuple(key[1].column for key in keys.values() if key)
        side = self._map_side(mapped.columns, pa.schema(mapped.fields), names)
        output = self._output(schema, slack=0, ordered=True)
        config = TotalsConfig(names, tuple(sources), side.schema, schema)
        return Stage(self.name, (side,), output, self._fingerprint("totals", output), partial(RunningTotals, config))

    def _grouped(self) -> list[Part]:
        """The keys: GROUP BY may also name an entry of the select list by its place or, if no column, by its alias."""
        items = self.statement.items
        aliases = {each.alias.lower(): each for each in items if each.alias}
        found: list[Part] = []
        for part in self.statement.group:
            item = None
            if part.text.isdecimal():
                item = items[int(part.text) - 1] if 1 <= int(part.text) <= len(items) else None
                if item is None or item.star:
                    self.mistakes.append(part.mistake(f"GROUP BY {part.text} is no entry of the select list"))
                    continue
            elif part.name is not None and part.name.lower() not in self.spelled:
                item = aliases.get(part.name.lower())
            if item is not None and item.aggregate:
                self.mistakes.append(part.mistake("an aggregate cannot be a key", "group by columns of the record"))
            else:
                found.append(item.part if item else part)
        return found

    def _key(self, part: Part, mapped: _MapSide) -> tuple[pa.DataType, Key] | None:
        bound = self._bound(part)
        if bound is None:
            return None
        try:
            check_key_type(bound.kind)
        except DeclarationError as error:
            self.mistakes += [_within(part, each) for each in error.mistakes]
            return None
        return bound.kind, Key(mapped.add("k", part.canon, bound.kind, part.text))

    def _aggregate(
        self, part: Part, aggregate: Aggregate, mapped: _MapSide, summed: set[str]
    ) -> tuple[pa.DataType, Count | Sum] | None:
        argument = aggregate.argument
        if argument is None:
            return pa.int64(), Count()
        bound = self._bound(argument)
        if bound is None:
            return None
        if argument.canon not in summed:  # what is only counted need not travel
            there = f"CASE WHEN (\n{argument.text}\n) IS NOT NULL THEN true END"
            return pa.int64(), Count(mapped.add("a", f"{argument.canon} is not null", pa.bool_(), there))
        try:
            total = sum_type(bound.kind)
        except DeclarationError as error:
            self.mistakes += [_within(argument, each) for each in error.mistakes]
            return None
        name = mapped.add("a", argument.canon, bound.kind, argument.text)
        return (total, Sum(name, part.text)) if aggregate.function == "sum" else (pa.int64(), Count(name))

    def _ungrouped(self, column: _Column) -> None:
        if column.item is None or self._bound(column.part):
            written = column.part.text if column.item else column.name
            message = f'"{written}" is neither in GROUP BY nor in an aggregate'
            self.mistakes.append(column.part.mistake(message, "group by it, or count or sum it"))

    # ------------------------------------------------------------------------------------------------ the result

    def _output(self, schema: pa.Schema, slack: int, ordered: bool) -> StreamDeclaration:
        time = next(each for each in schema.names if each.lower() == self.source.time.lower())
        unit = self.source.time_unit
        return StreamDeclaration(
            self.name, ddl(schema), time, time_unit=unit, slack=slack, max_ahead=None, ordered=ordered
        )

    def _fingerprint(self, kind: str, output: StreamDeclaration) -> str:
        """A digest of what the results depend on: not the layout of the query, nor columns that it does not read."""
        read = pa.schema([self.schema.field(each) for each in self.schema.names if each in self.used])
        time = f"{self.source.time} {self.source.time_unit}"
        facts = (kind, str(_MEANING[kind]), self.statement.canon, self.source.name, ddl(read), time, output.schema)
        return hashlib.blake2b("\0".join(facts).encode(), digest_size=16).hexdigest()


def _within(part: Part, mistake: Mistake) -> Mistake:
    """A mistake about a part, placed in the query."""
    line, column = mistake.line or 1, mistake.column or 1
    return replace(mistake, line=part.line + line - 1, column=column + (part.column - 1 if line == 1 else 0))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
