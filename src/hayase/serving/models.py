"""Pydantic models of requests and answers. Bodies of requests are validated by them; answers only described in OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, create_model

from hayase.core.declaration_fields import OPERATION
from hayase.core.reasons import ReasonKind
from hayase.engine.condition import State

__all__ = [
    "AppendAnswer",
    "ColumnOfTable",
    "DeadLetter",
    "DeadLetterAnswer",
    "DeadLetters",
    "DropAsked",
    "Health",
    "KeysAsked",
    "LetterRefused",
    "Operation",
    "OperationAnswer",
    "OperationAsked",
    "OperationChanged",
    "OperationMade",
    "OperationSources",
    "OperationVersion",
    "Operations",
    "ProblemAnswer",
    "Queries",
    "QueryChange",
    "QueryName",
    "ReasonLeft",
    "RefusedRecord",
    "ReplayAsked",
    "RollbackAsked",
    "Row",
    "RowOrNone",
    "Rows",
    "RowsOfKeys",
    "SettledLetters",
    "Snapshot",
    "SourceFile",
    "StreamAnswer",
    "Streams",
    "TableAnswer",
    "Tables",
    "TrialAnswer",
    "TrialAsked",
    "TrialFailure",
    "TriedWindow",
]

_KEY: list[JsonValue] = ["JP", "taro"]
_ROW = {"total": 1250.5, "last_purchase_time": "2026-01-31T12:00:00Z", "by_day": {"2026-01-31": 1250.5}}


class _Model(BaseModel):
    model_config = ConfigDict(json_schema_serialization_defaults_required=True)


class ProblemAnswer(_Model):
    """What went wrong and what to do (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"title": "Not Found", "status": 404, "detail": 'unknown table "purchase"; did you mean "purchases"?'}
            ]
        },
        extra="allow",
    )

    title: str
    status: int
    detail: str = Field(description="What happened, and what to do about it.")


class ColumnOfTable(_Model):
    """A column and its conflict-free type."""

    name: str = Field(examples=["total"])
    type: str = Field(examples=["Counter"])


class TableAnswer(_Model):
    """A table: its declaration, its approximate size, and how far back it can be read."""

    name: str = Field(examples=["purchases"])
    key: list[str] = Field(description="The names of the key's parts.", examples=[["country", "user_id"]])
    columns: list[ColumnOfTable]
    fold_after: str = Field(description="The age at which updates are folded.", examples=["1 day"])
    horizon: str = Field(description="The age up to which a repeated event is recognised.", examples=["7 days"])
    keys: int = Field(description="The approximate number of keys.")
    payloads: int = Field(description="The approximate number of updates that are not folded yet.")
    bytes: int = Field(description="The approximate size on disk.")
    readable_from: str | None = Field(description="The oldest `as_of` that is answered; null if there is no limit.")
    clock: str | None = Field(description="The event time up to which the streams of the table are processed.")


class Tables(_Model):
    """The names of all tables."""

    tables: list[str] = Field(examples=[["purchases"]])


class Row(_Model):
    """One row of a table."""

    key: list[Any] = Field(examples=[_KEY])
    row: dict[str, Any] = Field(description="Columns and their values, numbers in full.", examples=[_ROW])


class RowOrNone(_Model):
    """One row of a table, or null if the table has no such key."""

    key: list[Any] = Field(examples=[_KEY])
    row: dict[str, Any] | None = Field(examples=[_ROW])


class Rows(_Model):
    """Rows in the order of their keys, and where the next page begins."""

    rows: list[Row]
    next: str | None = Field(description="Send it as `after` for the next page; null if this is the last one.")


class RowsOfKeys(_Model):
    """One row for each key, in the order of the request, all from one state of the table."""

    rows: list[RowOrNone]


class KeysAsked(_Model):
    """The keys to read. A key is an array of its parts; a key of one part may be that part alone."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"keys": [["JP", "taro"], ["US", 5]], "columns": ["total"]}]}
    )

    keys: list[Any] = Field(max_length=1000)
    columns: list[str] | None = None
    as_of: str | int | None = Field(None, description="An event time: ISO text or microseconds.")


class StreamAnswer(_Model):
    """A stream and the offsets of its log."""

    name: str = Field(examples=["orders"])
    schema_: str = Field(alias="schema", examples=["time timestamp, user string, amount double"])
    time: str = Field(description="The column of the event time.", examples=["time"])
    time_unit: str | None = Field(description="The unit of an integer time column.", examples=[None])
    id: str | None = Field(description="The column that identifies a record.", examples=[None])
    first: int = Field(description="The offset of the first retained record.")
    next: int = Field(description="The offset that the next record will have.")
    latest: str | None = Field(description="The greatest event time so far.")
    finished: bool = Field(description="Whether it accepts no more records.")
    slack: str = Field(description="How far a record may be behind the latest event time.", examples=["10 s"])
    clock: str | None = Field(description="The event time up to which the stream is complete.")
    written_at: str | None = Field(description="When the newest record was appended.")


class Streams(_Model):
    """All streams that accept records."""

    streams: list[str] = Field(examples=[["orders"]])


class RefusedRecord(_Model):
    """A record that became a dead letter."""

    record: str
    reason: str = Field(examples=['column "amount" must be double, not "free"'])


class AppendAnswer(_Model):
    """The result of an append: all records are durable, in the stream or in the dead letters."""

    accepted: int
    refused: int
    first: int | None = Field(description="The offset of the first accepted record; null if none was.")
    next: int | None = Field(description="The offset behind the last accepted record; null if none was.")
    repeated: bool = Field(description="Whether they were appended before, with this Idempotency-Key.")
    refusals: list[RefusedRecord] = Field(description="The refused records with their reasons, at most 100 of them.")


class QueryName(_Model):
    """A query and its text."""

    name: str = Field(examples=["spend"])
    text: str = Field(examples=["select user, sum(amount) as spend from orders group by user"])
    schema_: str = Field(alias="schema", description="The columns of its rows.", examples=["user string, spend double"])
    kind: Literal["relation", "stream"] = Field(
        description="Rows of a relation appear and disappear; records of a stream are only added."
    )


class Queries(_Model):
    """All queries."""

    queries: list[QueryName]


class Snapshot(_Model):
    """The rows of a query that are valid at a time."""

    query: str = Field(examples=["spend"])
    at: Any = Field(
        description="The time, in the query's own form; null if nothing is final yet.",
        examples=["2026-01-31T12:00:00Z"],
    )
    rows: list[dict[str, Any]] = Field(examples=[[{"user": "taro", "spend": 5.0}]])
    next: str | None = Field(
        description="Send it as `after` for the next page of this snapshot; null if this is the last."
    )
    cursor: str = Field(description="Send it as `from` to /changes to receive the changes after this snapshot.")


class QueryChange(_Model):
    """The data of one server-sent event."""

    time: Any = Field(description="The event time, in the query's own form.", examples=["2026-01-31T12:00:00Z"])
    change: Literal["+", "-"]
    row: dict[str, Any] = Field(examples=[{"user": "taro", "spend": 5.0}])


class DeadLetter(_Model):
    """A record that could not be processed."""

    letter: int = Field(description="The number of the letter.")
    time: str = Field(description="When it was refused.")
    stage: str = Field(description="The stage that refused it; `append` if it did not get into its stream.")
    version: str | None = Field(description="The version of the stage.")
    stream: str
    offset: int | None = Field(description="The offset of the record in its stream, if it has one.")
    kind: ReasonKind = Field(description="The kind of reason; `unknown` in letters from before there were kinds.")
    reason: str = Field(description="Why, with a traceback where there is one.")
    record: str = Field(description="The record as JSON text, or the text that it was.")
    attempts: int
    state: Literal["open", "replayed", "dropped"]


class DeadLetterAnswer(DeadLetter):
    """A dead letter, with its settlement."""

    settled_at: str | None = Field(description="When it was replayed or dropped.")
    replayed: str | None = Field(description="The record that its stage was given.")
    appended: int | None = Field(description="The offset at which its record was appended to its stream.")
    again: int | None = Field(description="The letter of the next refusal of the same record, if there was one.")


class DeadLetters(_Model):
    """The newest dead letters, in the order of their numbers."""

    first: int = Field(description="The number of the first one here; that of the next one if there is none.")
    next: int = Field(description="The number that the next letter will have.")
    letters: list[DeadLetter]
    older: int | None = Field(description="Send it as `before` for older ones; null if there are none.")


class _LettersAsked(_Model):
    """Which letters are selected: those that satisfy all conditions. At least one condition, or `all`, is required."""

    model_config = ConfigDict(extra="forbid", strict=True)

    letters: list[Annotated[int, Field(ge=0, lt=2**62)]] | None = Field(
        None, min_length=1, max_length=1000, description="Letters by their numbers."
    )
    stage: str | None = Field(None, max_length=200)
    stream: str | None = Field(None, max_length=200)
    kind: Annotated[ReasonKind, Field(strict=False)] | None = Field(None, description="The kind of reason.")
    reason: str | None = Field(None, max_length=1000, description="A part of the reason.")
    since: str | int | None = Field(None, description="From this time on: ISO text or microseconds.")
    until: str | int | None = Field(None, description="Before this time.")
    version: str | None = Field(None, max_length=200, description="A version of the stage, or its beginning.")
    first_offset: int | None = Field(None, ge=0, lt=2**62, description="The least offset of the record in its stream.")
    last_offset: int | None = Field(None, ge=0, lt=2**62, description="The greatest offset of it.")
    first: int = Field(0, ge=0, lt=2**62, description="The least number of a letter: the `next` of the last answer.")
    all: bool = Field(False, description="All open letters.")
    limit: int = Field(1000, ge=1, le=10_000, description="The greatest number of letters per request.")
    dry_run: bool = Field(False, description="Only say what would be done.")


class DropAsked(_LettersAsked):
    """Letters to drop."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "late", "until": "2026-01-31T12:00:00Z"}]})


class ReplayAsked(_LettersAsked):
    """Letters to replay, unchanged or edited: first by a jq program, then by new values of columns."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"letters": [17], "set": {"amount": 12.5}}]})

    late: bool = Field(False, description="Also records that were refused because they were late.")
    edit: str | None = Field(
        None, min_length=1, max_length=4096, description="A jq program that returns one record for each."
    )
    set: dict[str, Any] | None = Field(None, description="Columns and their new values.")


class ReasonLeft(_Model):
    """A reason why letters stay open, and their number."""

    reason: str
    letters: int


class LetterRefused(_Model):
    """A letter whose edited record does not fit its stream."""

    letter: int
    reason: str


class SettledLetters(_Model):
    """The result of a replay or drop; of a dry run, what it would be."""

    settled: int = Field(description="Letters that were replayed or dropped.")
    appended: int = Field(description="Of these, those whose records were appended to their streams.")
    unchanged: int = Field(description="Of these, those whose stage is as it was when it refused them.")
    again: int = Field(description="Of these, those that their stage will refuse again, as it is now.")
    late: int = Field(description="Letters left open because they were late.")
    before: int = Field(description="Letters asked for by number that had been settled before.")
    left: list[ReasonLeft] = Field(description="Why letters stay open.")
    refusals: list[LetterRefused] = Field(description="Those whose records do not fit, at most 100 of them.")
    next: int | None = Field(description="Send it as `first` to go on; null if there are no more.")


class OperationVersion(_Model):
    """A version of an operation."""

    version: int = Field(description="The version of the pipeline's definition that changed it.")
    since: str = Field(description="When that definition was written.")
    fingerprint: str | None = Field(description="The version in dead letters; null if the operation was removed.")
    by: Literal["file", "command"] = Field(description="Whether the pipeline file or a command declared it.")
    changed: list[str] = Field(description="The fields that differ from the version before.", examples=[["code"]])
    operation: dict[str, Any] | None = Field(
        description="The fields of the operation, as in a pipeline file; null if it was removed.",
        examples=[{"reads": "orders", "function": "scoring:score", "schema": "user string, score double"}],
    )
    code: str | None = Field(description="The digest of its shipped code.")


class Operation(OperationVersion):
    """An operation as it is now."""

    name: str = Field(examples=["scores"])
    in_effect: bool = Field(description="Whether the running pipeline uses this version already.")


class OperationAnswer(Operation):
    """An operation with all its versions, oldest first."""

    history: list[OperationVersion]


class SourceFile(_Model):
    """A Python file of an operation's code."""

    path: str = Field(examples=["scoring.py"])
    text: str | None = Field(description="Its text; null if the files are longer than 1 MB together.")


class OperationSources(OperationVersion):
    """A version of an operation with its code."""

    name: str = Field(examples=["scores"])
    files: list[SourceFile] = Field(
        description="The file of the function first. Empty if its module is installed and has changed since then."
    )


class Operations(_Model):
    """All operations."""

    operations: list[Operation]


class _OperationOptions(_Model):
    model_config = ConfigDict(extra="forbid", strict=True)

    source: str | None = Field(None, description="The text of the module with the function.", min_length=1)


_Options = TypeVar("_Options", bound=_OperationOptions)
_FUNCTION = "The name of the function in the source, or module:function if it is installed."
_LIMITS: dict[str, dict[str, int]] = {"reads": {"min_length": 1}, "concurrency": {"le": 10_000}}
"""Limits of fields that hold only for requests over HTTP."""


def _with_operation_fields(model: type[_Options]) -> type[_Options]:
    """Add the fields of an operation that HTTP may set (`OPERATION`). Those that `model` declares itself stay as they are."""
    fields: dict[str, Any] = {}
    for field in OPERATION:
        attribute = "schema_" if field.name == "schema" else field.name
        if field.remote and attribute not in model.model_fields:
            choices = field.kind.schema.get("enum")
            kind = Literal[tuple(choices)] if choices and field.kind.plain is str else field.kind.plain
            limits: dict[str, Any] = {"description": field.help_with_default, "ge": field.at_least, "le": field.at_most}
            examples = [field.default] if isinstance(field.default, str) else None
            limits |= {"alias": field.name, "examples": examples, **_LIMITS.get(field.name, {})}
            fields[attribute] = (kind | None, Field(None, **limits))
    return create_model(model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **fields)


@_with_operation_fields
class OperationAsked(_OperationOptions):
    """An operation to add."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "scores",
                    "reads": "orders",
                    "function": "score",
                    "source": "def score(records):\n    return {'score': records[0]['amount'] * 2}\n",
                }
            ]
        }
    )

    name: str = Field(description="The name of the operation and of its output stream.", max_length=63)
    function: str = Field(description=_FUNCTION, max_length=500)
    reads: str | list[str] = Field(description=OPERATION["reads"].help, min_length=1)
    start: Literal["earliest", "now"] = Field("earliest", description="The record with which it starts.")


@_with_operation_fields
class OperationChanged(_OperationOptions):
    """Fields of an operation to change."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "function": "score",
                    "source": "def score(records):\n    return {'score': records[0]['amount'] * 3}\n",
                }
            ]
        }
    )

    function: str | None = Field(None, description=_FUNCTION, max_length=500)
    reset: Literal["earliest", "now"] | None = Field(
        None, description="Reset it, so that its results may have other columns; what it has written is removed."
    )


class TrialAsked(OperationChanged):
    """A change of an operation to try."""

    windows: int = Field(20, ge=1, le=100, description="How many of the newest windows to try it on.")


class TrialFailure(_Model):
    """How a call failed."""

    kind: str = Field(examples=["raised"])
    reason: str = Field(examples=["KeyError: 'usr' in score, line 2"])
    traceback: str


class TriedWindow(_Model):
    """A window, with what the function gave for it. At most 20 records and results are shown."""

    records: list[dict[str, Any]] = Field(examples=[[{"user": "taro", "amount": 3.0}]])
    more_records: int = Field(description="Records of the window that are not shown.")
    results: list[dict[str, Any]] = Field(examples=[[{"user": "taro", "score": 6.0}]])
    more_results: int = Field(description="Results that are not shown.")
    failure: TrialFailure | None = Field(description="How the call failed; null if it did not.")
    seconds: float = Field(description="How long the call took.")


class TrialAnswer(_Model):
    """What an operation would give, as of now; nothing was written."""

    name: str = Field(examples=["scores"])
    schema_: str = Field(
        alias="schema", description="The columns of the results.", examples=["user string, score double"]
    )
    tried: int = Field(description="Windows that were tried.")
    failed: int = Field(description="Of these, those for which the function failed.")
    untried: int = Field(description="Windows for which there was no time.")
    passes: bool = Field(description="Whether an update passes its check on these windows: less than half fail.")
    windows: list[TriedWindow] = Field(description="The newest first.")


class RollbackAsked(_Model):
    """The version of an operation to restore."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"to": 3}]})

    to: int | None = Field(
        None, ge=1, lt=2**62, description="A version of the pipeline; by default the one before the last change."
    )
    reset: Literal["earliest", "now"] | None = Field(None, description="Reset it.")


class OperationMade(_Model):
    """A change that was accepted."""

    name: str = Field(examples=["scores"])
    version: int = Field(description="The version of the pipeline's definition that has it.")
    takes_effect: str = Field(examples=["at the next batch"])


class ReplicaLag(_Model):
    """How far a replica is behind its home."""

    batches: int = Field(description="Batches that are committed and not shown here yet.")
    seconds: float = Field(description="For how long there have been such.")


class Health(_Model):
    """The condition of the pipeline."""

    state: State
    reason: str | None = Field(description="Why it is starting, recovering, stalled, or has failed.")
    notice: str | None = Field(
        description="Something unusual that is not a failure, such as a wall clock that was set."
    )
    version: int = Field(description="How many batches were committed in this home.")
    committed_at: str | None = Field(description="When the last batch was committed.")
    lag: dict[str, dict[str, int]] = Field(
        description="Records that each stage has not yet read, by stream.", examples=[{"spend": {"orders": 0}}]
    )
    versions: dict[str, int] = Field(description="The version of each lane that is served.", examples=[{"main": 12}])
    behind: ReplicaLag | None = Field(
        description="In a replica: how far it is behind the newest manifests of the home; null in the pipeline's own server."
    )
