"""Declarations as frozen data: pipeline, streams, queries, aggregates, functions, tables, rules, jobs, operations, governor.
Those of functions, sources and outputs have modules of their own.

The pipeline file and the Python API build the same declarations. A declaration checks itself when it is built, as far as
that is possible without the others; `hayase.core.pipeline_file` and the planner check the rest. `as_json` and `from_json` are
exact inverses; a home stores the JSON of a pipeline as its definition. Fields and defaults come from `declaration_fields`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field, replace
from typing import Any, TypeVar

import pyarrow as pa

from hayase.core.algebra import Aggregate
from hayase.core.connector_declarations import OutputDeclaration, SourceDeclaration
from hayase.core.data_classes import dataclass
from hayase.core.declaration_fields import OPERATION, PIPELINE, STEP, STREAM, TABLE, FieldTable
from hayase.core.errors import DeclarationError, Mistake, UnknownName, nearest, suggestion
from hayase.core.function_declarations import FunctionDeclaration
from hayase.core.keys import check_atomic_key
from hayase.core.schemas import arrow_schema, ddl, is_json
from hayase.core.times import UNITS

__all__ = [
    "DAY",
    "EVENT_TIME",
    "EXTRA",
    "LIFETIME_COLUMNS",
    "AggregateDeclaration",
    "FunctionDeclaration",
    "GovernorDeclaration",
    "JobDeclaration",
    "OperationDeclaration",
    "OutputDeclaration",
    "PipelineDeclaration",
    "QueryDeclaration",
    "Retention",
    "RulesDeclaration",
    "SourceDeclaration",
    "StepDeclaration",
    "StreamDeclaration",
    "TableDeclaration",
    "checked_name",
    "clashes",
]

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)
DAY = 86_400_000_000
EVENT_TIME = "event_time"
"""The name under which the event time of a result is shown if the query does not select it as a column."""
EXTRA_FIELDS = STREAM["extra_fields"].kind.schema["enum"]
EXTRA = "extra"
"""The json column that gets the fields of a record that the schema does not have, with `extra_fields: keep`."""
LIFETIME_COLUMNS = ("row_id", "valid_from", "valid_to", "changed_at")
"""The columns that a stream of lifetimes has after the columns of its rows. `valid_to` is null while a row is open; a second
row with the same `row_id` closes it. `changed_at` is the event time: when the row appears or, on the second row, ends."""
MOST_COLUMNS = 250
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_PATTERN = re.compile(r"[A-Za-z*][A-Za-z0-9_*]{0,62}")


def checked_name(kind: str, name: object) -> str:
    """Return a name that is safe as a file name, an SQL identifier and a URL segment; raise a DeclarationError otherwise.

    Names with a leading underscore are reserved for Hayase.
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    article = "an" if kind[0] in "aeiou" else "a"
    raise DeclarationError(
        f"{name!r} cannot be the name of {article} {kind}",
        "use letters, digits and _, a letter first, at most 63 of them",
    )


def checked_buckets(count: int) -> int:
    """Return a number of buckets within its limits; raise a DeclarationError otherwise."""
    most = PIPELINE["buckets"].at_most
    if most is not None and 1 <= count <= most:
        return count
    raise DeclarationError(f"{count} is not a number of buckets", f"give 1 to {most}, about as many as task slots")


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of a stream is kept: by age since the append, in microseconds, and by size, in bytes. None is no limit."""

    age: int | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class StreamDeclaration:
    """A stream: its schema (Spark DDL), the column of the event time, optionally the column that identifies a record.

    Durations are microseconds. `time_unit` is for integer time columns only. `changes` declares a relation: this string column
    is `+` in a record that adds a row and `-` in one that removes an equal row. An `ordered` stream is written by a stage that
    emits in time order and advances the clock; nothing in it is late. A stream of `lifetimes` is the result of a query: its
    records say when rows are valid (see `LIFETIME_COLUMNS`). With `hidden_time`, the query does not select the time column.
    `extra_fields` says what happens to fields of a record that the schema does not have: refuse, ignore, or keep in `EXTRA`.
    With `dedupe`, readers see only the first record with an id (see `hayase.streams.repeats`).
    `order` is the order in which rows of a result are read at an instant: columns, whether descending, whether NULLs are first.
    """

    name: str
    schema: str
    time: str
    id: str | None = None
    time_unit: str | None = None
    slack: int = STREAM["slack"].value
    max_ahead: int | None = STREAM["max_ahead"].value
    idle_after: int | None = STREAM["idle_after"].value
    retention: Retention = field(default_factory=Retention)
    ordered: bool = False
    changes: str | None = None
    lifetimes: bool = False
    hidden_time: bool = False
    extra_fields: str = STREAM["extra_fields"].value
    dedupe: int | None = STREAM["dedupe"].value
    order: tuple[tuple[str, bool, bool], ...] = ()

    def __post_init__(self) -> None:
        checked_name("stream", self.name.removeprefix("_").partition("@")[0])  # `spend@7` is that of a build
        where, of = f' in stream "{self.name}"', f' of stream "{self.name}"'
        try:
            schema = self.arrow_schema
        except DeclarationError as error:
            raise DeclarationError(
                Mistake(f"schema{of}: {mistake.message}", mistake.hint, None, mistake.line, mistake.column, "schema")
                for mistake in error.mistakes
            ) from error
        object.__setattr__(self, "schema", ddl(schema))
        mistakes = [
            _mistake(what, f'unknown {what} column "{name}"{where}', suggestion(name, schema.names))
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
        for what in ("slack", "max_ahead", "idle_after", "dedupe"):
            value = getattr(self, what)
            if value is not None and value < 0:
                mistakes.append(_mistake(what, f"{what}{where} is negative", "give a duration like 10 seconds"))
        for what in ("age", "size"):
            value = getattr(self.retention, what)
            if value is not None and value < 0:
                mistakes.append(_mistake("retention", f"{what} of the retention{where} is negative", "give 0 or more"))
        if self.dedupe is not None:
            mistakes += self._dedupe_mistakes(schema, of)
        if self.extra_fields not in EXTRA_FIELDS:
            message = f'extra_fields{of} is "{self.extra_fields}"'
            mistakes.append(_mistake("extra_fields", message, f"write one of {', '.join(EXTRA_FIELDS)}"))
        if self.extra_fields == "keep" and not (EXTRA in schema.names and is_json(schema.field(EXTRA))):
            message = f'extra_fields{of} is keep, and the schema has no column "{EXTRA}" of type json'
            mistakes.append(_mistake("extra_fields", message, f'add "{EXTRA} json" to the schema'))
        if mistakes:
            raise DeclarationError(mistakes)

    def _dedupe_mistakes(self, schema: pa.Schema, of: str) -> list[Mistake]:
        mistakes = []
        if self.id is None:
            message = f"dedupe{of} needs the column that identifies a record"
            mistakes.append(_mistake("dedupe", message, 'name it, like "id: uuid"'))
        elif self.id in schema.names:
            try:
                check_atomic_key(schema.field(self.id).type)
            except DeclarationError as error:
                mistakes += [
                    _mistake("id", f"dedupe{of}: {mistake.message}", mistake.hint) for mistake in error.mistakes
                ]
        if self.changes is not None:
            message = f"dedupe{of} is for streams of records; this one is a relation (changes: {self.changes})"
            mistakes.append(_mistake("dedupe", message, "remove one of the two"))
        if (self.dedupe or 0) < self.slack:
            message = f"dedupe{of} is shorter than its slack"
            hint = "give at least the slack: a record within it must be recognised as a repeat"
            mistakes.append(_mistake("dedupe", message, hint))
        return mistakes

    def _time_mistakes(self, kind: pa.DataType, where: str) -> list[Mistake]:
        if pa.types.is_timestamp(kind):
            if self.time_unit is not None:
                message = f"time_unit{where} is for integer time columns; this one is a timestamp"
                return [_mistake("time_unit", message, "remove it")]
        elif pa.types.is_signed_integer(kind):
            if self.time_unit not in UNITS:
                problem = (
                    "has no time_unit" if self.time_unit is None else f'has the unknown time_unit "{self.time_unit}"'
                )
                message = f'time column "{self.time}"{where} is an integer and {problem}'
                return [_mistake("time_unit", message, f"say what it counts: one of {', '.join(UNITS)}")]
        else:
            message = f'time column "{self.time}"{where} is a {kind}'
            return [_mistake("time", message, "make it a timestamp or a bigint")]
        return []

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StreamDeclaration:
        """The inverse of `dataclasses.asdict`."""
        order = tuple((name, descending, nulls_first) for name, descending, nulls_first in data.get("order", ()))
        return cls(**{**data, "retention": Retention(**data["retention"]), "order": order})

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema; the time and id columns of records are never null."""
        return arrow_schema(self.schema)

    @property
    def time_scale(self) -> int:
        """Microseconds in one unit of the time column."""
        return UNITS[self.time_unit] if self.time_unit else 1

    @property
    def hides_time(self) -> bool:
        """Whether the time column of the log is not a column of the result; then it is shown as `EVENT_TIME`."""
        return self.hidden_time or (self.ordered and self.time == LIFETIME_COLUMNS[-1])

    def shown_name(self, column: str) -> str:
        """Return the name under which a column of the log is shown."""
        hidden = column == self.time and self.hides_time and EVENT_TIME not in self.arrow_schema.names
        return EVENT_TIME if hidden else column

    @property
    def shown_schema(self) -> pa.Schema:
        """The schema with the names under which columns are shown."""
        return pa.schema([column.with_name(self.shown_name(column.name)) for column in self.arrow_schema])

    def shown(self, rows: Rows) -> Rows:
        """Return records of the log with the names under which columns are shown."""
        return rows.rename_columns([self.shown_name(name) for name in rows.schema.names]) if self.hides_time else rows


def _mistake(field: str, message: str, hint: str | None) -> Mistake:
    return Mistake(message, hint, subject=field)


@dataclass(frozen=True, slots=True)
class QueryDeclaration:
    """A continuous query; its results are a stream of the same name. White space at the end of the text is dropped."""

    name: str
    text: str

    def __post_init__(self) -> None:
        checked_name("query", self.name)
        object.__setattr__(self, "text", self.text.rstrip())


@dataclass(frozen=True, slots=True)
class AggregateDeclaration:
    """An aggregate of the user: its name in queries, and its source, "module:attribute".

    `directory` holds the module if it is not installed; every process of the pipeline looks there.
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
        """Import and return the aggregate; a DeclarationError says why that is not possible."""
        if self.directory is not None and self.directory not in sys.path:
            sys.path.append(self.directory)
        return Aggregate.from_name(self.source)


@dataclass(frozen=True, slots=True)
class TableDeclaration:
    """A table: the names of its key columns, and its other columns, each with the name of a conflict-free type.

    Columns are identified by position, so new ones are added at the end. Ages are microseconds of event time before the newest
    event of the streams that feed the table. Updates older than `fold_after` are folded into snapshots, and the table cannot be
    read as of an earlier time. A repeated event is recognised within the `horizon`; an older event is refused.
    """

    name: str
    key: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    fold_after: int = TABLE["fold_after"].value
    horizon: int = TABLE["horizon"].value

    def __post_init__(self) -> None:
        checked_name("table", self.name)
        where = f' of table "{self.name}"'
        mistakes: list[Mistake] = []
        names = [*self.key, *(column for column, _ in self.columns)]
        for name in names:
            try:
                checked_name("column", name)
            except DeclarationError as error:
                mistakes += [
                    _mistake("columns", f"{mistake.message}{where}", mistake.hint) for mistake in error.mistakes
                ]
        twice = [name for at, name in enumerate(names) if name.lower() in [other.lower() for other in names[:at]]]
        for name in dict.fromkeys(twice):
            mistakes.append(_mistake("columns", f'"{name}"{where} stands there twice', "name one of them differently"))
        if not self.key:
            mistakes.append(_mistake("key", f'table "{self.name}" has no key', "name its parts, like user_id"))
        if not self.columns:
            mistakes.append(
                _mistake("columns", f'table "{self.name}" has no columns', "give it one, like total: Counter")
            )
        if len(names) > MOST_COLUMNS:
            mistakes.append(_mistake("columns", f"{len(names)} columns{where}", f"at most {MOST_COLUMNS} fit"))
        if self.fold_after < 0:
            mistakes.append(_mistake("fold_after", f"fold_after{where} is negative", "give a duration like 1 day"))
        if self.horizon < self.fold_after:
            message = f"the horizon{where} is shorter than fold_after"
            hint = "repeated events must be recognised at least until their updates are folded"
            mistakes.append(_mistake("horizon", message, hint))
        if mistakes:
            raise DeclarationError(mistakes)

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TableDeclaration:
        """The inverse of `dataclasses.asdict`."""
        columns = tuple((name, kind) for name, kind in data["columns"])
        return cls(**{**data, "key": tuple(data["key"]), "columns": columns})


@dataclass(frozen=True, slots=True)
class RulesDeclaration:
    """Update rules as text; `name` is what messages call their source, such as the path of the file."""

    name: str = field(compare=False)
    text: str


STEP_KINDS = ("map", "reduce", "merge")
MERGE_SIDES = STEP["side"].kind.schema["enum"]
_FUNCTION = re.compile(r"(?:[^\W\d]\w*(?:\.[^\W\d]\w*)*|.+\.py):[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class StepDeclaration:
    """A step of a job: a function, "module:function" or "path/to/file.py:function", or aggregates instead of one.

    `aggregates` are pairs of a name and a call like sum(size); a single one may have no name. `directory` holds the module if
    it is not installed. `schema` and `key` are the columns of typed tuples and those by which they are grouped; without a
    schema a tuple is a key and a value. A merge looks keys up in `table`: those that arrived, those stored, or both, by `side`.
    `window` and `every` (microseconds) are those of a sliding reduce. `order` may be "time". A step reads the output of the step
    before it, or `reads`; its tuples go to the next step, or to the group `writes`; `also` are groups that the function names.
    """

    kind: str
    function: str | None = None
    directory: str | None = None
    aggregates: tuple[tuple[str, str], ...] = ()
    batches: bool = False
    schema: str | None = None
    key: tuple[str, ...] = ()
    table: str | None = None
    side: str = "left"
    window: int | None = None
    every: int | None = None
    order: str | None = None
    attempts: int = 1
    reads: tuple[str, ...] = ()
    writes: str | None = None
    also: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The name of the step in messages."""
        if self.function is not None:
            return self.function.rpartition(":")[2]
        return ", ".join(f"{name}={call}" if name else call for name, call in self.aggregates)

    @property
    def mistakes(self) -> list[Mistake]:
        """Everything that is wrong with the step by itself."""
        mistakes: list[Mistake] = []
        if self.kind not in STEP_KINDS:
            return [_mistake("kind", f'there is no step "{self.kind}"', nearest(self.kind, STEP_KINDS)[2:])]
        if (self.function is None) != bool(self.aggregates):
            mistakes.append(_mistake("function", f"a {self.kind} has a function or aggregates", "give one of them"))
        if self.function is not None and not _FUNCTION.fullmatch(self.function):
            mistakes.append(
                _mistake("function", f'"{self.function}" names no function', "write it like module:function")
            )
        if self.aggregates and self.kind != "reduce":
            mistakes.append(_mistake("aggregates", f"a {self.kind} has no aggregates", "only a reduce has"))
        if len(self.aggregates) > 1 and not all(name for name, _ in self.aggregates):
            mistakes.append(_mistake("aggregates", "one of several aggregates has no name", 'write hits="count(*)"'))
        mistakes += self._misplaced()
        if self.schema is not None:
            mistakes += _schema_mistakes(self.schema, ("time", "group", "round"))
        if self.batches and self.schema is None:
            mistakes.append(_mistake("schema", "a function of batches gives no schema", "say which columns it gives"))
        if self.side not in MERGE_SIDES:
            mistakes.append(_mistake("side", f'a merge has no side "{self.side}"', f"say {' or '.join(MERGE_SIDES)}"))
        if self.kind == "merge" and not self.table:
            mistakes.append(_mistake("table", "the merge names no table", "say which stored tuples it meets"))
        if (self.window is None) != (self.every is None):
            mistakes.append(
                _mistake("window", "a window has a length and an interval", "give window and every, or neither")
            )
        for what in ("window", "every"):
            value = getattr(self, what)
            if value is not None and value <= 0:
                mistakes.append(_mistake(what, f"{what} is not positive", "give a duration like 6 minutes"))
        if self.order not in (None, "time"):
            mistakes.append(_mistake("order", f'there is no order "{self.order}"', 'say "time" or leave it out'))
        mistakes += _attempts_mistakes(self.attempts, STEP, "")
        for group in (*self.also, *([] if self.writes is None else [self.writes])):
            try:
                checked_name("group", group)
            except DeclarationError as error:
                mistakes += [_mistake("writes", mistake.message, mistake.hint) for mistake in error.mistakes]
        return mistakes

    def _misplaced(self) -> list[Mistake]:
        """Mistakes for fields that a step of this kind, or a step with aggregates, does not have."""
        mistakes = [
            _mistake(field.name, f"a {self.kind} has no {field.name}", f"only a {' or a '.join(field.only)} has")
            for field in STEP
            if field.only and self.kind not in field.only and getattr(self, field.name) not in (field.value, "")
        ]
        if self.aggregates and (self.schema is not None or self.batches):
            mistakes.append(
                _mistake("schema", "aggregates know their columns themselves", "leave schema and batches out")
            )
        return mistakes

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StepDeclaration:
        """The inverse of `dataclasses.asdict`."""
        lists = {name: tuple(data[name]) for name in ("key", "reads", "also")}
        return cls(**{**data, **lists, "aggregates": tuple((name, call) for name, call in data["aggregates"])})


def _attempts_mistakes(attempts: int, fields: FieldTable, where: str) -> list[Mistake]:
    least, most = fields["attempts"].at_least or 0, fields["attempts"].at_most or 0
    if least <= attempts <= most:
        return []
    return [_mistake("attempts", f"{attempts} attempts{where}", f"give {least} to {most}")]


def _schema_mistakes(text: str, reserved: tuple[str, ...] = ()) -> list[Mistake]:
    """What is wrong with a schema, whose columns must not have the `reserved` names."""
    try:
        names = arrow_schema(text).names
    except DeclarationError as error:
        return [
            Mistake(mistake.message, mistake.hint, None, mistake.line, mistake.column, "schema")
            for mistake in error.mistakes
        ]
    return [
        _mistake("schema", f'a column cannot be called "{name}" here', "Hayase adds one of that name; rename it")
        for name in names
        if reserved and (name.startswith("__") or name.lower() in reserved)
    ]


@dataclass(frozen=True, slots=True)
class JobDeclaration:
    """A job: maps, reduces and merges, in sequence or connected by groups. The tuples of its last step are a stream of its name.

    It fires at multiples of `every` (microseconds) and takes all tuples that are there. With `rounds`, tuples that have passed
    through a loop this number of times leave it for the job's stream.
    """

    name: str
    reads: tuple[str, ...]
    every: int
    steps: tuple[StepDeclaration, ...]
    rounds: int | None = None

    def __post_init__(self) -> None:
        checked_name("job", self.name)
        where = f' of job "{self.name}"'
        mistakes: list[Mistake] = []
        if not self.reads:
            mistakes.append(_mistake("reads", f'job "{self.name}" reads nothing', "name a stream or several"))
        if self.every <= 0:
            mistakes.append(_mistake("every", f"every{where} is not positive", "give a duration like 2 seconds"))
        if not self.steps:
            mistakes.append(_mistake("steps", f'job "{self.name}" has no steps', "give it a map, a reduce or a merge"))
        if self.rounds is not None and self.rounds < 1:
            mistakes.append(_mistake("rounds", f"rounds{where} is not positive", "give 1 or more"))
        for number, step in enumerate(self.steps, 1):
            mistakes += [
                replace(
                    mistake,
                    message=f"step {number}{where}: {mistake.message}",
                    subject=f"steps.{number - 1}.{mistake.subject}",
                )
                for mistake in step.mistakes
            ]
        if mistakes:
            raise DeclarationError(mistakes)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JobDeclaration:
        """The inverse of `dataclasses.asdict`."""
        steps = tuple(StepDeclaration.from_json(step) for step in data["steps"])
        return cls(**{**data, "reads": tuple(data["reads"]), "steps": steps})


@dataclass(frozen=True, slots=True)
class OperationDeclaration:
    """An operation: a function on windows of records, whose results are a stream of the operation's name.

    `reads` are names of streams, or patterns such as `q*`; all of these streams have the same columns. A window has `window`
    records or, with `by_time`, lasts that many microseconds; a window starts every `slide`. Each stream has its own windows,
    unless they are processed `together`; with a `key`, each of its values has its own windows, across all streams. `schema` is
    that of the results, None until the function has been tried. `directory` holds the module until it is shipped: then the home
    has a copy under the name `code`, with the data `files` beside the module, paths or patterns such as `models/*.json`.
    """

    name: str
    reads: tuple[str, ...]
    function: str
    directory: str | None = None
    schema: str | None = None
    window: int = 1
    slide: int | None = None
    by_time: bool = False
    key: tuple[str, ...] = ()
    together: bool = False
    takes: str | None = None
    attempts: int = OPERATION["attempts"].value
    pause: int = OPERATION["pause"].value
    time_limit: int = OPERATION["time_limit"].value
    memory_limit: int = OPERATION["memory_limit"].value
    concurrency: int = OPERATION["concurrency"].value
    code: str | None = None
    files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checked_name("operation", self.name)
        where = f' of operation "{self.name}"'
        mistakes: list[Mistake] = []
        if not self.reads:
            mistakes.append(
                _mistake("reads", f'operation "{self.name}" reads nothing', "name a stream, several, or q*")
            )
        mistakes += [
            _mistake("reads", f'"{stream}" names no stream{where}', "use letters, digits, _ and *")
            for stream in self.reads
            if not _PATTERN.fullmatch(stream)
        ]
        place, _, attribute = self.function.rpartition(":")
        if not place or not attribute.isidentifier():
            mistakes.append(
                _mistake("function", f'"{self.function}" names no function', "write it like module:function")
            )
        if self.window < 1 or (self.slide is not None and self.slide < 1):
            mistakes.append(_mistake("window", f"a window{where} of nothing", "give a number of records or a duration"))
        elif self.slide is not None and self.slide > self.window:
            mistakes.append(_mistake("slide", f"windows{where} leave records out", "slide by the window or less"))
        if self.takes not in (None, "records", "batch"):
            mistakes.append(_mistake("takes", f'no function takes "{self.takes}"', "say records or batch"))
        mistakes += _attempts_mistakes(self.attempts, OPERATION, where)
        if self.pause < 0:
            mistakes.append(_mistake("pause", f"the pause{where} is negative", "give a duration like 50 ms, or 0 s"))
        for what, hint in (("time_limit", "30 s"), ("memory_limit", "1 GB"), ("concurrency", "16")):
            if getattr(self, what) < 1:
                mistakes.append(_mistake(what, f"{what}{where} is not positive", f"give more, like {hint}"))
        for path in self.files:
            if not path or path.startswith(("/", "~")) or ".." in path.split("/"):
                hint = "name a path, or a pattern such as models/*.json, relative to the directory of the module"
                mistakes.append(_mistake("files", f'"{path}" names no file{where} that lies beside its module', hint))
        if self.schema is not None:
            mistakes += _schema_mistakes(self.schema)
        if mistakes:
            raise DeclarationError(mistakes)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> OperationDeclaration:
        """The inverse of `dataclasses.asdict`."""
        listed = {"reads": tuple(data["reads"]), "key": tuple(data["key"]), "files": tuple(data.get("files", ()))}
        return cls(**{**data, **listed})


@dataclass(frozen=True, slots=True)
class GovernorDeclaration:
    """How work is divided: the name of a policy and its options, and the `seconds` of work for each worker in a batch.

    Loads are measured over `window` seconds, and reported when they have changed by more than the share `threshold`.
    """

    policy: str = "informed"
    options: tuple[tuple[str, float], ...] = ()
    seconds: float | None = None
    window: float | None = None
    threshold: float | None = None

    def __post_init__(self) -> None:
        for name in ("seconds", "window", "threshold"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise DeclarationError(
                    [_mistake(name, f"{name} of the governor is not positive", "give a number above 0")]
                )

    def with_option(self, name: str, value: float) -> GovernorDeclaration:
        """Return the declaration with an option of its policy set.

        >>> GovernorDeclaration(options=(("u", 0.9), ("shortest", 0.1))).with_option("u", 0.5).options
        (('shortest', 0.1), ('u', 0.5))
        """
        return replace(self, options=tuple(sorted({**dict(self.options), name: value}.items())))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GovernorDeclaration:
        """The inverse of `dataclasses.asdict`."""
        return cls(**{**data, "options": tuple((name, value) for name, value in data["options"])})


def clashes(names: Iterable[str]) -> list[Mistake]:
    """Return a mistake for every name that occurred before. Case is ignored: names are files, and SQL ignores case.

    >>> [mistake.message for mistake in clashes(["events", "totals", "Events"])]
    ['"Events" is declared twice']
    """
    seen: set[str] = set()
    mistakes = []
    for name in names:
        if name.lower() in seen:
            hint = "streams, queries and tables share one name space, whatever the case"
            mistakes.append(_mistake(name, f'"{name}" is declared twice', hint))
        seen.add(name.lower())
    return mistakes


def _output_clashes(names: list[str]) -> list[Mistake]:
    """Return a mistake for every output whose name is no name or occurred before; outputs have a name space of their own."""
    mistakes = []
    for at, name in enumerate(names):
        checked_name("output", name)
        if name.lower() in (other.lower() for other in names[:at]):
            mistakes.append(_mistake(name, f'the output "{name}" is declared twice', "name one of them differently"))
    return mistakes


@dataclass(frozen=True, slots=True)
class PipelineDeclaration:
    """All declarations of a pipeline.

    `buckets` is the number of parts that keys are spread over, and so the number of tasks that can reduce at the same time;
    None takes the number of cores of the machine on which the home is created.
    """

    name: str
    streams: tuple[StreamDeclaration, ...] = ()
    queries: tuple[QueryDeclaration, ...] = ()
    buckets: int | None = None
    aggregates: tuple[AggregateDeclaration, ...] = ()
    tables: tuple[TableDeclaration, ...] = ()
    rules: tuple[RulesDeclaration, ...] = ()
    jobs: tuple[JobDeclaration, ...] = ()
    operations: tuple[OperationDeclaration, ...] = ()
    governor: GovernorDeclaration | None = None
    functions: tuple[FunctionDeclaration, ...] = ()
    sources: tuple[SourceDeclaration, ...] = ()
    outputs: tuple[OutputDeclaration, ...] = ()

    def __post_init__(self) -> None:
        checked_name("pipeline", self.name)
        if self.buckets is not None:
            checked_buckets(self.buckets)
        for function in self.functions:
            checked_name("function", function.name)
        functions = [function.name for function in self.functions]
        aggregates = [aggregate.name for aggregate in self.aggregates]
        called = [name.lower() for name in (*aggregates, *functions)]
        for name in (*functions, *aggregates):
            if called.count(name.lower()) > 1:
                kind = "function" if name in functions else "aggregate"
                raise DeclarationError(f'the {kind} "{name}" is declared twice', "name one of them differently")
        named = (self.streams, self.queries, self.tables, self.jobs, self.operations)
        mistakes = clashes([declaration.name for declarations in named for declaration in declarations])
        mistakes += _output_clashes([output.name for output in self.outputs])
        mistakes += [
            _mistake(source.stream, f'a source of the unknown stream "{source.stream}"', "declare the stream")
            for source in self.sources
            if all(stream.name != source.stream for stream in self.streams)
        ]
        if mistakes:
            raise DeclarationError(mistakes)

    def stream(self, name: str) -> StreamDeclaration:
        """Return the declared stream of that name."""
        for stream in self.streams:
            if stream.name == name:
                return stream
        raise UnknownName("stream", name, [stream.name for stream in self.streams])

    def table(self, name: str) -> TableDeclaration:
        """Return the declared table of that name."""
        for table in self.tables:
            if table.name == name:
                return table
        raise UnknownName("table", name, [table.name for table in self.tables])

    def as_json(self) -> dict[str, Any]:
        """Return plain data, ready for a JSON writer."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PipelineDeclaration:
        """The inverse of `as_json`."""
        return cls(
            name=data["name"],
            streams=tuple(StreamDeclaration.from_json(stream) for stream in data["streams"]),
            queries=tuple(QueryDeclaration(**query) for query in data["queries"]),
            buckets=data["buckets"],
            aggregates=tuple(AggregateDeclaration(**aggregate) for aggregate in data.get("aggregates", ())),
            tables=tuple(TableDeclaration.from_json(table) for table in data.get("tables", ())),
            rules=tuple(RulesDeclaration(**rules) for rules in data.get("rules", ())),
            jobs=tuple(JobDeclaration.from_json(job) for job in data.get("jobs", ())),
            operations=tuple(OperationDeclaration.from_json(operation) for operation in data.get("operations", ())),
            governor=GovernorDeclaration.from_json(data["governor"]) if data.get("governor") else None,
            functions=tuple(FunctionDeclaration.from_json(function) for function in data.get("functions", ())),
            sources=tuple(SourceDeclaration.from_json(source) for source in data.get("sources", ())),
            outputs=tuple(OutputDeclaration.from_json(output) for output in data.get("outputs", ())),
        )
