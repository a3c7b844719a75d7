"""The streams that the stages of queries write, and the type of their times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from hayase.core.declarations import LIFETIME_COLUMNS, StreamDeclaration
from hayase.core.schemas import ddl
from hayase.core.times import UNITS
from hayase.cql.columns import column
from hayase.cql.logical import Column, Distinct, Filter, Node, Project, SetOperation, ToStream

__all__ = ["Times", "intermediate_stream", "nullable", "output_stream", "written_columns"]


@dataclass(frozen=True, slots=True)
class Times:
    """The type of a result's times, as DDL, and the unit if it is an integer."""

    kind: str = "timestamp"
    unit: str | None = None

    @property
    def scale(self) -> int:
        """Microseconds in one unit."""
        return UNITS[self.unit] if self.unit else 1

    @classmethod
    def of(cls, sources: Iterable[StreamDeclaration]) -> Times:
        """That of the streams, if they agree; else timestamps."""
        found = {cls._own(each) for each in sources}
        return found.pop() if len(found) == 1 else cls()

    @classmethod
    def _own(cls, stream: StreamDeclaration) -> Times:
        kind = stream.arrow_schema.field(stream.time).type
        if pa.types.is_integer(kind):
            return cls("bigint", stream.time_unit)  # a narrower one may not hold when a row ends
        return cls("timestamp" if kind.tz else "timestamp_ntz")


def intermediate_stream(times: Times, name: str, schema: pa.Schema) -> StreamDeclaration:
    """The stream in which a fragment leaves its rows for the next one; its columns have names that any stream may have."""
    taken = set(LIFETIME_COLUMNS)
    fields: list[pa.Field] = []
    for number, each in enumerate(schema, 1):
        usable = not each.name.startswith("__") and each.name.lower() not in taken
        fields.append(pa.field(each.name if usable else f"value {number}", each.type))
        taken.add(fields[-1].name.lower())
    return _lifetime_stream(times, name, pa.schema(fields))


def _lifetime_stream(times: Times, name: str, schema: pa.Schema) -> StreamDeclaration:
    added = f"row_id bigint, valid_from {times.kind}, valid_to {times.kind}, changed_at {times.kind}"
    return StreamDeclaration(
        name,
        f"{ddl(nullable(schema))}, {added}",
        "changed_at",
        time_unit=times.unit,
        max_ahead=None,
        ordered=True,
        lifetimes=True,
    )


def _record_stream(times: Times, name: str, schema: pa.Schema) -> StreamDeclaration:
    text = f"{ddl(nullable(schema))}, changed_at {times.kind}"
    return StreamDeclaration(name, text, "changed_at", time_unit=times.unit, max_ahead=None, ordered=True)


def nullable(schema: pa.Schema) -> pa.Schema:
    """The same columns, any of which may be null."""
    return pa.schema([pa.field(each.name, each.type) for each in schema])


def output_stream(times: Times, name: str, root: Node) -> StreamDeclaration:
    """The stream of a query's results: the rows' lifetimes, or records as they come."""
    return (_record_stream if isinstance(root, ToStream) else _lifetime_stream)(times, name, root.schema)


def written_columns(node: Node) -> Sequence[Column]:
    """The columns of a relation, with the places where they were written."""
    match node:
        case Project():
            return node.columns
        case Filter() | Distinct() | ToStream():
            return written_columns(node.child)
        case SetOperation():
            return written_columns(node.left)
        case _:
            return [Column(each.name, column(each.name, each.type)) for each in node.schema]
