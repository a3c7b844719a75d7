"""The shapes of answers, as the OpenAPI description shows them; the answers themselves are written without them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

__all__ = [
    "AppendAnswer",
    "ColumnOfTable",
    "DeadLetter",
    "DeadLetters",
    "Health",
    "KeysAsked",
    "ProblemAnswer",
    "Queries",
    "QueryChange",
    "QueryName",
    "RefusedRecord",
    "Row",
    "RowOrNone",
    "Rows",
    "RowsOfKeys",
    "Snapshot",
    "StreamAnswer",
    "Streams",
    "TableAnswer",
    "Tables",
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
    """A table: what was declared, about how much is in it, and how far back it can be read."""

    name: str = Field(examples=["purchases"])
    key: list[str] = Field(description="The names of the key's parts.", examples=[["country", "user_id"]])
    columns: list[ColumnOfTable]
    fold_after: str = Field(description="The age at which updates are folded.", examples=["1 day"])
    horizon: str = Field(description="How long a repeated event is recognised.", examples=["7 days"])
    keys: int = Field(description="About how many keys there are.")
    payloads: int = Field(description="About how many updates have not been folded yet.")
    bytes: int = Field(description="Bytes on disk, about.")
    readable_from: str | None = Field(description="The oldest `as_of` that is answered; null if there is no limit.")
    clock: str | None = Field(description="The event time up to which the streams of the table have been taken in.")


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
    """One row for each key, in the order asked, all from one state of the table."""

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
    """A stream and how far its log reaches."""

    name: str = Field(examples=["orders"])
    schema_: str = Field(alias="schema", examples=["time timestamp, user string, amount double"])
    time: str = Field(description="The column of the event time.", examples=["time"])
    time_unit: str | None = Field(description="What an integer time column counts.", examples=[None])
    id: str | None = Field(description="The column that identifies a record.", examples=[None])
    first: int = Field(description="The offset of the first record that is kept.")
    next: int = Field(description="The offset that the next record will have.")
    latest: str | None = Field(description="The greatest event time so far.")
    finished: bool = Field(description="Whether it takes no more records.")


class Streams(_Model):
    """All streams that take records."""

    streams: list[str] = Field(examples=[["orders"]])


class RefusedRecord(_Model):
    """A record that went to the dead letters."""

    record: str
    reason: str = Field(examples=['column "amount" must be double, not "free"'])


class AppendAnswer(_Model):
    """What became of the records: all of them are durable, in the stream or in the dead letters."""

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
    kind: Literal["relation", "stream"] = Field(description="A relation's rows come and go; a stream's only come.")


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
    cursor: str = Field(description="Send it as `from` to /changes to hear what happens behind this snapshot.")


class QueryChange(_Model):
    """The data of one server-sent event."""

    time: Any = Field(description="The event time, in the query's own form.", examples=["2026-01-31T12:00:00Z"])
    change: Literal["+", "-"]
    row: dict[str, Any] = Field(examples=[{"user": "taro", "spend": 5.0}])


class DeadLetter(_Model):
    """A record that could not be taken."""

    time: str
    stage: str
    version: str | None
    stream: str
    offset: int | None
    reason: str
    record: str
    attempts: int


class DeadLetters(_Model):
    """The newest dead letters, in the order in which they came."""

    first: int = Field(description="The offset of the first one here.")
    next: int = Field(description="The offset behind the last one there is.")
    letters: list[DeadLetter]


class Health(_Model):
    """How the pipeline is."""

    state: Literal["starting", "running", "stopping", "failed"]
    reason: str | None = Field(description="Why it failed.")
    version: int = Field(description="How many batches were committed in this home.")
    committed_at: str | None = Field(description="When the last batch was committed.")
    lag: dict[str, dict[str, int]] = Field(
        description="Records that each stage has yet to take, by stream.", examples=[{"spend": {"orders": 0}}]
    )
