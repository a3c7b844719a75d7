"""The field table of every declaration: name, kind, default, limits and a sentence of help for each field.

A table is the only place where a field is spelled out. From it come the defaults of the dataclasses in `declarations`, the
reader and the writer of pipeline files, the options of `hayase ops add` and `hayase ops update`, the HTTP bodies of
operations, the JSON schema that `hayase schema` prints, and the tables in docs/reference.md. To add a field, add it here and to
its dataclass. Defaults are in the canonical form in which a pipeline file is written, so that defaults are left out of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hayase.core.data_classes import dataclass
from hayase.core.errors import HayaseError, Mistake
from hayase.core.field_kinds import (
    COLUMNS,
    COUNT,
    DURATION,
    EXTENT,
    FLAG,
    LIST,
    MAPPING,
    NAME,
    NAMES,
    NUMBER,
    OPTIONAL_DURATION,
    SECONDS,
    SIZE,
    TEXT,
    Kind,
    choice,
)
from hayase.core.plain_data import mistakes_of

__all__ = [
    "FUNCTION",
    "GOVERNOR",
    "JOB",
    "OPERATION",
    "PIPELINE",
    "RETENTION",
    "STEP",
    "STREAM",
    "TABLE",
    "Field",
    "FieldTable",
]


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `default` is its canonical plain form, None if the field may be absent; `absent` is how None is written.

    `required` is empty, or tells what to write if the field is missing. `only` names the kinds of steps that have the field.
    `remote` says whether a request over HTTP may set it.
    """

    name: str
    kind: Kind
    help: str
    default: Any = None
    required: str = ""
    at_least: int | None = None
    at_most: int | None = None
    absent: str | None = None
    only: tuple[str, ...] = ()
    metavar: str | None = None
    remote: bool = True

    @property
    def value(self) -> Any:
        """The default as the declaration keeps it."""
        return None if self.default is None else self.kind.read(self.default)

    def written(self, value: Any) -> Any:
        """The canonical plain form of a declared value."""
        return self.absent if value is None else self.kind.write(value)

    @property
    def help_with_default(self) -> str:
        """The help text, followed by the default if there is one to tell."""
        return self.help if self.default in (None, [], {}, False) else f"{self.help} Default: {self.default}."


@dataclass(frozen=True, slots=True)
class FieldTable:
    """The fields of one kind of declaration, in the order in which they are written."""

    fields: tuple[Field, ...]

    def __getitem__(self, name: str) -> Field:
        return next(field for field in self.fields if field.name == name)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @property
    def required(self) -> dict[str, str]:
        """The fields that must be there, each with what to write if it is missing."""
        return {field.name: field.required for field in self.fields if field.required}

    def read(self, data: Mapping[str, Any], of: str) -> tuple[dict[str, Any], list[Mistake]]:
        """The declared values of the fields in `data`, and the mistakes in those that cannot be read.

        >>> OPERATION.read({"pause": "1 s", "attempts": "few"}, ' of operation "scores"')[0]
        {'pause': 1000000}
        """
        values: dict[str, Any] = {}
        mistakes: list[Mistake] = []
        for field in self.fields:
            if field.name in data:
                value = data[field.name]
                try:
                    values[field.name] = None if value is None and field.value is None else field.kind.read(value)
                except HayaseError as error:
                    mistakes += [
                        Mistake(f"{field.name}{of}: {mistake.message}", mistake.hint, subject=field.name)
                        for mistake in mistakes_of(error)
                    ]
        return values, mistakes

    def write(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The canonical plain form of declared values; defaults are left out, required fields stay.

        >>> OPERATION.write({"reads": ("orders",), "attempts": 3, "pause": 1_000_000})
        {'reads': 'orders', 'pause': '1 s'}
        """
        data = {field.name: field.written(values[field.name]) for field in self.fields if field.name in values}
        return {name: value for name, value in data.items() if self[name].required or value != self[name].default}


PIPELINE = FieldTable((
    Field("pipeline", NAME, "Name of the pipeline.", required='add "pipeline: NAME"'),
    Field("home", TEXT, "Directory of the pipeline, relative to the file; by default beside it, named like the pipeline."),
    Field(
        "buckets", COUNT, "Number of buckets that keys are spread over, about as many as task slots; "
        "decided by the first run, changed by `hayase rebucket`.",
        at_least=1, at_most=1024,
    ),
))  # fmt: skip
"""The fields of a pipeline file beside its sections."""

RETENTION = FieldTable((
    Field("age", DURATION, "Records are removed when they were appended longer ago than this."),
    Field("size", SIZE, "The oldest records are removed when the stream is larger than this."),
))  # fmt: skip

STREAM = FieldTable((
    Field(
        "schema", TEXT, "Columns and their types, in Spark DDL.",
        required='add "schema: time timestamp, amount double"',
    ),
    Field(
        "time", TEXT, "Column of the event time: a timestamp, or an integer with a time_unit.",
        required='say which column is the event time: "time: COLUMN"',
    ),
    Field("id", TEXT, "Column that identifies a record."),
    Field("time_unit", choice("s", "ms", "us"), "What an integer time column counts."),
    Field("changes", TEXT, "The stream is a relation: in this column, + adds a row and - removes an equal one."),
    Field("slack", DURATION, "How far a record may be behind the greatest event time before it.", "0 s"),
    Field(
        "max_ahead", OPTIONAL_DURATION, "How far an event time may be ahead of the wall clock; none: no limit.", "1 day",
        absent="none",
    ),
    Field(
        "idle_after", OPTIONAL_DURATION, "After this time without records, the clock of the stream follows the wall clock.", "off",
        absent="off",
    ),
    Field("retention", MAPPING, "How much of the stream is kept; by default everything.", {}),
    Field(
        "dedupe", DURATION,
        "Records with the same id are repeats, and left out, for this much event time; older records are refused. At least slack.",
    ),
    Field(
        "extra_fields", choice("refuse", "ignore", "keep"),
        "What happens to a record with fields that the schema does not have: it is a dead letter (refuse), the fields are dropped "
        "(ignore), or they go into the json column extra (keep).", "refuse",
    ),
))  # fmt: skip

FUNCTION = FieldTable((
    Field(
        "function", TEXT,
        "Python function, as module:function, found beside the pipeline's file or installed, or as path/to/file.py:function.",
    ),
    Field("sql", TEXT, "Expression in SQL over the arguments, which stands for the call; instead of a Python function."),
    Field(
        "arguments", COLUMNS,
        'Arguments. Of a Python function their names and types, like "title string, size bigint", by default those of its '
        "annotations. Of an expression their names, by default in the order in which they first appear in it.",
    ),
    Field("returns", TEXT, "Type of the result of a Python function, like double; by default that of its annotation."),
    Field(
        "takes", choice("values", "arrays"),
        "Whether the Python function takes the values of one record, or Arrow arrays with those of many records; by default its "
        "annotations decide.",
    ),
    Field(
        "nulls", choice("skip", "pass"),
        "What happens if an argument is NULL: the result is NULL, without a call (skip), or the Python function gets it (pass).",
        "skip",
    ),
    Field(
        "time_limit", DURATION,
        "Time that a call of the Python function may take, of one on arrays for all its records; a record with a longer one is a "
        "dead letter.", "30 s",
    ),
    Field("files", NAMES, "Data files to ship with the module: a path beside it, or a pattern like models/*.json.", []),
))  # fmt: skip

TABLE = FieldTable((
    Field(
        "key", NAMES, "Column, or columns, of the key.",
        required='say which column it has, or which: "key: user_id" or "key: [country, user_id]"',
    ),
    Field(
        "columns", MAPPING, "Columns and their conflict-free types, such as total: Counter.",
        required='add "columns: {total: Counter}"',
    ),
    Field(
        "fold_after", DURATION, "Age at which updates are folded, in event time; the table can be read as of any later time.",
        "1 day",
    ),
    Field(
        "horizon", DURATION, "Age up to which a repeated event is recognised, in event time; older events are refused.", "7 days"
    ),
))  # fmt: skip

STEP = FieldTable((
    Field("batches", FLAG, "Whether the function takes and returns Arrow batches.", False),
    Field("schema", TEXT, "Columns of the tuples that the step emits; without it, a tuple is a key and a value."),
    Field("key", NAMES, "Columns by which the tuples are grouped.", []),
    Field("window", DURATION, "Length of the sliding window of event time.", only=("reduce",)),
    Field("every", DURATION, "Interval at which the sliding window is computed.", only=("reduce",)),
    Field("order", choice("time"), "Values come in the order of their event time.", only=("reduce", "merge")),
    Field("table", TEXT, "Table whose stored tuples the merge meets.", only=("merge",)),
    Field(
        "side", choice("left", "right", "both"),
        "Keys that the merge is called for: those that arrived (left), all that are stored (right), or both.", "left",
        only=("merge",),
    ),
    Field(
        "attempts", COUNT, "How often a call is tried before its tuples become dead letters.", 1, at_least=1, at_most=100
    ),
    Field("reads", NAMES, "Streams or groups to read; by default the tuples of the step before.", []),
    Field("writes", TEXT, "Group that the tuples go to; by default the next step."),
    Field("also", NAMES, "Groups that the function names itself.", []),
))  # fmt: skip
"""The options of a step of a job, beside its function."""

JOB = FieldTable((
    Field("reads", NAMES, "Stream, or streams, to read.", required="name a stream or several"),
    Field("every", DURATION, "Interval at which the job fires; it takes all tuples that are there.", "1 s"),
    Field("rounds", COUNT, "Tuples leave a loop after this number of rounds.", at_least=1),
    Field("steps", LIST, "Steps: map, reduce and merge.", required="give it a map, a reduce or a merge"),
))  # fmt: skip

OPERATION = FieldTable((
    Field(
        "reads", NAMES, "Stream to read, or a pattern such as q*; all streams have the same columns.",
        required="name a stream, several, or q*", metavar="STREAM",
    ),
    Field(
        "function", TEXT,
        "Function, as module:function, found beside the pipeline's file or installed, or as path/to/file.py:function.",
        required="write it like module:function", metavar="F",
    ),
    Field(
        "window", EXTENT, 'Length of a window: a number of records, or a duration of event time like "5 minutes".', 1, metavar="W"
    ),
    Field(
        "slide", EXTENT, "Distance from the start of a window to that of the next; by default the length of the window.",
        metavar="S",
    ),
    Field("key", NAMES, "Column of the key: each of its values has windows of its own, across all streams.", [], metavar="COLUMN"),
    Field("together", FLAG, "Whether all streams share one sequence of windows, or each has its own.", False),
    Field(
        "schema", TEXT, 'Columns of the results, like "user string, score double"; by default those of a trial.',
        metavar="COLUMNS",
    ),
    Field(
        "takes", choice("records", "batch"),
        "Whether the function takes records (a list of dicts) or an Arrow batch; by default its annotation decides.", metavar="T",
    ),
    Field(
        "attempts", COUNT, "How often a window is tried before its records become dead letters.", 3,
        at_least=1, at_most=100, metavar="N",
    ),
    Field("pause", DURATION, "Pause before the second attempt; it doubles before each further one.", "50 ms", metavar="D"),
    Field("time_limit", DURATION, "Time that a window may take.", "30 s", metavar="D"),
    Field("memory_limit", SIZE, "Memory that a window may take.", "1 GiB", metavar="SIZE"),
    Field(
        "concurrency", COUNT, "Windows that an asynchronous function processes at the same time.", 16, at_least=1, metavar="N"
    ),
    Field(
        "files", NAMES, "Data files to ship with the module: a path beside it, or a pattern like models/*.json.", [],
        metavar="PATH", remote=False,
    ),
))  # fmt: skip

GOVERNOR = FieldTable((
    Field("policy", TEXT, "Policy that divides the work: round-robin, als, asc or informed.", "informed"),
    Field("seconds", SECONDS, "Seconds of work for each worker in a batch."),
    Field("window", SECONDS, "Seconds over which loads are measured."),
    Field("threshold", NUMBER, "Relative change of a load from which on it is reported."),
))  # fmt: skip
"""The fields of the governor. All others are options of its policy, which are numbers."""
