"""What somebody declares, as frozen data: the YAML file and the Python API build the same ones.

A declaration is checked when it is built as far as it can be alone; `hayase.core.pipeline_file` and the planner check
the rest. `as_json` and `from_json` are exact inverses; the JSON of a pipeline is what the home keeps as a definition.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from hayase.core.algebra import Aggregate
from hayase.core.errors import DeclarationError, Mistake, UnknownName, nearest
from hayase.core.schemas import arrow_schema, ddl
from hayase.core.times import UNITS

__all__ = [
    "DAY",
    "LIFETIME_COLUMNS",
    "AggregateDeclaration",
    "FieldMistake",
    "PipelineDeclaration",
    "QueryDeclaration",
    "Retention",
    "StreamDeclaration",
    "checked_name",
    "clashes",
]

DAY = 86_400_000_000
LIFETIME_COLUMNS = ("row_id", "valid_from", "valid_to", "changed_at")
"""What a stream of lifetimes has behind the columns of its rows. `valid_to` is null while a row is open; a second row
with the same `row_id` closes it. `changed_at` is the event time: when the row appears or, on the second row, ends."""
MOST_BUCKETS = 1024
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")


def checked_name(kind: str, name: object) -> str:
    """A name that is safe as a file name, an SQL identifier and a URL segment; a leading underscore is Hayase's own."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise DeclarationError(
        f"{name!r} cannot be the name of a {kind}", "use letters, digits and _, a letter first, at most 63 of them"
    )


@dataclass(frozen=True, slots=True)
class FieldMistake(Mistake):
    """A mistake in one field of a declaration: whoever read the fields from a file knows where that one stands.

    The line and column, if any, count within the field's own text.
    """

    field: str = ""


def checked_buckets(count: int) -> int:
    """A number of buckets that makes sense: about as many as the cluster has task slots."""
    if 1 <= count <= MOST_BUCKETS:
        return count
    raise DeclarationError(f"{count} is no number of buckets", f"give 1 to {MOST_BUCKETS}, about as many as task slots")


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of a stream is kept; None keeps everything. Age counts from the append, in microseconds."""

    age: int | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class StreamDeclaration:
    """A stream: its schema (Spark DDL), the event-time column, optionally the column that identifies a record.

    Durations are microseconds. `time_unit` is given for integer time columns only. A stream of `changes` declares a
    relation: that string column says `+` for a row that appears and `-` for an equal one that goes. `ordered` streams
    are written by a stage that emits in time order and says how far it is; nothing in them is late. Streams of
    `lifetimes` are results of queries: each row tells when it is valid (see `LIFETIME_COLUMNS`).
    """

    name: str
    schema: str
    time: str
    id: str | None = None
    time_unit: str | None = None
    slack: int = 0
    max_ahead: int | None = DAY
    idle_after: int | None = None
    retention: Retention = field(default_factory=Retention)
    ordered: bool = False
    changes: str | None = None
    lifetimes: bool = False

    def __post_init__(self) -> None:
        checked_name("stream", self.name.removeprefix("_"))
        where, of = f' in stream "{self.name}"', f' of stream "{self.name}"'
        try:
            schema = self.arrow_schema
        except DeclarationError as error:
            raise DeclarationError(
                FieldMistake(f"schema{of}: {each.message}", each.hint, None, each.line, each.column, "schema")
                for each in error.mistakes
            ) from error
        object.__setattr__(self, "schema", ddl(schema))
        mistakes = [
            _mistake(what, f'unknown {what} column "{name}"{where}', nearest(name, schema.names).removeprefix("; "))
            for what, name in (("time", self.time), ("id", self.id), ("changes", self.changes))
            if name is not None and name not in schema.names
        ]
        mistakes += [
            _mistake("schema", f'column "{name}"{where} begins with "__", which is reserved', "rename the column")
            for name in schema.names
            if name.startswith("__")
        ]
        if self.time in schema.names:
            mistakes += self._time_mistakes(schema.field(self.time).type, where)
        if self.changes in schema.names and schema.field(self.changes).type != pa.string():
            message = f'changes column "{self.changes}"{where} is a {schema.field(self.changes).type}'
            mistakes.append(_mistake("changes", message, "make it a string that holds + or -"))
        for what in ("slack", "max_ahead", "idle_after"):
            value = getattr(self, what)
            if value is not None and value < 0:
                mistakes.append(_mistake(what, f"{what}{where} is negative", "give a duration like 10 seconds"))
        for what in ("age", "size"):
            value = getattr(self.retention, what)
            if value is not None and value < 0:
                mistakes.append(_mistake("retention", f"{what} of the retention{where} is negative", "give 0 or more"))
        if mistakes:
            raise DeclarationError(mistakes)

    def _time_mistakes(self, kind: pa.DataType, where: str) -> list[FieldMistake]:
        if pa.types.is_timestamp(kind):
            if self.time_unit is not None:
                message = f"time_unit{where} is for integer time columns; this one is a timestamp"
                return [_mistake("time_unit", message, "remove it")]
        elif pa.types.is_integer(kind):
            if self.time_unit not in UNITS:
                given = (
                    "has no time_unit" if self.time_unit is None else f'has the unknown time_unit "{self.time_unit}"'
                )
                message = f'time column "{self.time}"{where} is an integer and {given}'
                return [_mistake("time_unit", message, f"say what it counts: one of {', '.join(UNITS)}")]
        else:
            message = f'time column "{self.time}"{where} is a {kind}'
            return [_mistake("time", message, "make it a timestamp or a bigint")]
        return []

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StreamDeclaration:
        """The inverse of `dataclasses.asdict`."""
        return cls(**{**data, "retention": Retention(**data["retention"])})

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema as Arrow sees it; the time and id columns of records are never null."""
        return arrow_schema(self.schema)

    @property
    def time_scale(self) -> int:
        """Microseconds in one unit of the time column."""
        return UNITS[self.time_unit] if self.time_unit else 1


def _mistake(field: str, message: str, hint: str) -> FieldMistake:
    return FieldMistake(message, hint or None, field=field)


@dataclass(frozen=True, slots=True)
class QueryDeclaration:
    """A continuous query; its results are a stream of the same name. White space after the text says nothing."""

    name: str
    text: str

    def __post_init__(self) -> None:
        checked_name("query", self.name)
        object.__setattr__(self, "text", self.text.rstrip())


@dataclass(frozen=True, slots=True)
class AggregateDeclaration:
    """A user's own aggregate: its name in queries, and where it is found, "module:attribute".

    `directory` is where the module lies, if it is not installed; all who run the pipeline look there too.
    """

    name: str
    source: str
    directory: str | None = None

    def __post_init__(self) -> None:
        checked_name("aggregate", self.name)
        module, _, attribute = self.source.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), attribute)):
            raise DeclarationError(f'"{self.source}" names no aggregate', "write it like module:attribute")

    def load(self) -> Aggregate:
        """The aggregate itself, or a DeclarationError that says why it cannot be had."""
        if self.directory is not None and self.directory not in sys.path:
            sys.path.append(self.directory)
        return Aggregate.from_name(self.source)


def clashes(names: Iterable[str]) -> list[FieldMistake]:
    """A mistake for every name that was there before, whatever its case: names are files, and SQL does not tell case.

    >>> [mistake.message for mistake in clashes(["events", "totals", "Events"])]
    ['"Events" is declared twice']
    """
    seen: set[str] = set()
    mistakes = []
    for name in names:
        if name.lower() in seen:
            hint = "streams and queries share one name space, whatever the case"
            mistakes.append(_mistake(name, f'"{name}" is declared twice', hint))
        seen.add(name.lower())
    return mistakes


@dataclass(frozen=True, slots=True)
class PipelineDeclaration:
    """Everything that is declared in one place.

    `buckets` is into how many parts keys are spread, and so how many tasks can reduce at once; None lets the machine on
    which the home is made decide.
    """

    name: str
    streams: tuple[StreamDeclaration, ...] = ()
    queries: tuple[QueryDeclaration, ...] = ()
    buckets: int | None = None
    aggregates: tuple[AggregateDeclaration, ...] = ()

    def __post_init__(self) -> None:
        checked_name("pipeline", self.name)
        if self.buckets is not None:
            checked_buckets(self.buckets)
        twice = [each.name for each in self.aggregates if [one.name for one in self.aggregates].count(each.name) > 1]
        if twice:
            raise DeclarationError(f'the aggregate "{twice[0]}" is declared twice', "name one of them differently")
        mistakes = clashes([each.name for each in self.streams] + [each.name for each in self.queries])
        if mistakes:
            raise DeclarationError(mistakes)

    def stream(self, name: str) -> StreamDeclaration:
        """The declared stream of that name."""
        for each in self.streams:
            if each.name == name:
                return each
        raise UnknownName("stream", name, [each.name for each in self.streams])

    def as_json(self) -> dict[str, Any]:
        """Plain data, ready for a JSON writer."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PipelineDeclaration:
        """The inverse of `as_json`."""
        return cls(
            name=data["name"],
            streams=tuple(StreamDeclaration.from_json(each) for each in data["streams"]),
            queries=tuple(QueryDeclaration(**each) for each in data["queries"]),
            buckets=data["buckets"],
            aggregates=tuple(AggregateDeclaration(**each) for each in data.get("aggregates", ())),
        )
