"""The output streams of the stages of queries, and the type of their time columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import LIFETIME_COLUMNS, StreamDeclaration
from hayase.core.schemas import ddl
from hayase.core.times import UNITS
from hayase.cql.columns import identity_columns
from hayase.cql.logical import Column, Distinct, Filter, Node, Project, SetOperation, Top, ToStream

__all__ = ["Times", "intermediate_stream", "nullable", "output_stream", "written_columns"]


@dataclass(frozen=True, slots=True)
class Times:
    """The DDL type of a result's time columns, and their unit if they are integers."""

    kind: str = "timestamp"
    unit: str | None = None

    @property
    def scale(self) -> int:
        """Microseconds in one unit."""
        return UNITS[self.unit] if self.unit else 1

    @classmethod
    def of(cls, sources: Iterable[StreamDeclaration]) -> Times:
        """Return the type that all these streams use for event time; `timestamp` if they differ."""
        types = {cls._own(stream) for stream in sources}
        return types.pop() if len(types) == 1 else cls()

    @classmethod
    def _own(cls, stream: StreamDeclaration) -> Times:
        kind = stream.arrow_schema.field(stream.time).type
        if pa.types.is_integer(kind):
            return cls("bigint", stream.time_unit)  # a narrower integer may be too small for the end of a lifetime
        return cls("timestamp" if kind.tz else "timestamp_ntz")


def intermediate_stream(times: Times, name: str, schema: pa.Schema) -> StreamDeclaration:
    """Declare the stream between two fragments. Columns whose names a stream cannot have are renamed."""
    taken = set(LIFETIME_COLUMNS)
    fields: list[pa.Field] = []
    for number, field in enumerate(schema, 1):
        usable = not field.name.startswith("__") and field.name.lower() not in taken
        fields.append(pa.field(field.name if usable else f"value {number}", field.type))
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
    """Return the schema with all columns nullable."""
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def output_stream(times: Times, name: str, root: Node) -> StreamDeclaration:
    """Declare the stream of a query's results: lifetimes of rows or, for a query that yields a stream, records."""
    return (_record_stream if isinstance(root, ToStream) else _lifetime_stream)(times, name, root.schema)


def written_columns(node: Node) -> Sequence[Column]:
    """Return the columns of a relation, with their places in the query's text."""
    match node:
        case Project():
            return node.columns
        case Filter() | Distinct() | Top() | ToStream():
            return written_columns(node.child)
        case SetOperation():
            return written_columns(node.left)
        case _:
            return identity_columns(node.schema)
