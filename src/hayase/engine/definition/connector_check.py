"""Checks of sources and outputs that depend on the rest of a pipeline: that what they read, and the columns they name, exist."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import pyarrow as pa

from hayase.core.declarations import (
    OutputDeclaration,
    PipelineDeclaration,
    Retention,
    SourceDeclaration,
    StreamDeclaration,
    TableDeclaration,
)
from hayase.core.errors import Mistake, suggestion
from hayase.core.stages import Stage
from hayase.engine.results.lifespans import own_columns

__all__ = ["connector_mistakes"]

_Placed = tuple[str, str, Mistake]


def connector_mistakes(
    declaration: PipelineDeclaration, stages: Iterable[Stage], unread: Collection[str] = ()
) -> Iterator[_Placed]:
    """Yield the mistakes of sources and outputs as (kind, name, mistake); `unread` as in `plan`."""
    streams = {stream.name: stream for stream in declaration.streams}
    for source in declaration.sources:
        if source.stream in streams:
            yield from (("stream", source.stream, mistake) for mistake in _of_source(source, streams[source.stream]))
    outputs = {stage.output.name: stage.output for stage in stages}
    streams |= {name: output for name, output in outputs.items() if isinstance(output, StreamDeclaration)}
    tables = {table.name: table for table in declaration.tables}
    for output in declaration.outputs:
        if output.reads not in unread:
            yield from (("output", output.name, mistake) for mistake in _of_output(output, streams, tables))


def _of_source(source: SourceDeclaration, stream: StreamDeclaration) -> Iterator[Mistake]:
    names, values = stream.arrow_schema.names, source.values
    for option, column in values.items():
        is_used = option != "text_column" or values.get("format") == "text"
        if option.endswith("_column") and column and is_used and column not in names:
            message = f'{option} of the source of stream "{stream.name}" names the unknown column "{column}"'
            yield Mistake(message, suggestion(column, names), subject="from")
    if source.kind == "postgres":
        yield from _of_table(source, stream)
    if source.kind == "kafka" and values["upserts"]:
        yield from _of_upserts(source, stream)


def _of_table(source: SourceDeclaration, stream: StreamDeclaration) -> Iterator[Mistake]:
    """Replication gives changes of rows, polling gives rows."""
    is_replicated = source.values["mode"] == "replication"
    if is_replicated and stream.changes is None:
        message = f'stream "{stream.name}" gets the changes of a table and does not say which column has their sign'
        yield Mistake(message, 'add a string column "op" to the schema, and "changes: op"', subject="changes")
    if not is_replicated and stream.changes is not None:
        message = f'stream "{stream.name}" has changes, and its source polls rows'
        yield Mistake(message, "leave out changes, or mode: poll", subject="changes")


def _of_upserts(source: SourceDeclaration, stream: StreamDeclaration) -> Iterator[Mistake]:
    """Upserts are changes of a relation, known by the key of their messages and at the time of these."""
    values, schema = source.values, stream.arrow_schema
    if stream.changes is None:
        message = f'stream "{stream.name}" gets upserts and does not say which column has the sign of a change'
        yield Mistake(message, 'add a string column "op" to the schema, and "changes: op"', subject="changes")
    if values["timestamp_column"] != stream.time:
        message = f'upserts of stream "{stream.name}" get their time in "{values["timestamp_column"]}", not in its time column'
        yield Mistake(message, f"write timestamp_column: {stream.time}", subject="from")
    key = values["key_column"]
    if key in schema.names and (key in (stream.time, stream.changes) or schema.field(key).type != pa.string()):
        message = (
            f'key_column of the source of stream "{stream.name}" names "{key}", which is no string column for keys'
        )
        yield Mistake(message, "add a string column for the keys of messages", subject="from")
    if stream.retention != Retention():
        message = f'stream "{stream.name}" has a retention, and its source knows by its records which rows it has'
        yield Mistake(message, "remove the retention", subject="retention")


def _of_output(
    output: OutputDeclaration, streams: dict[str, StreamDeclaration], tables: Mapping[str, TableDeclaration]
) -> Iterator[Mistake]:
    if output.reads in tables:
        yield from _of_mirror(output, tables[output.reads])
        return
    stream = streams.get(output.reads)
    if stream is None:
        known = [name for name in (*streams, *tables) if not name.startswith("_")]
        message = f'output "{output.name}" reads the unknown "{output.reads}"'
        yield Mistake(message, suggestion(output.reads, known), subject="reads")
        return
    names = own_columns(stream)
    for column in output.values.get("key") or ():
        if column not in names:
            message = f'the key of output "{output.name}" has the unknown column "{column}"'
            yield Mistake(message, suggestion(column, names), subject="key")
    date = output.values.get("partition_by")
    if date and date != "date" and date not in names:
        message = f'partition_by of output "{output.name}" names the unknown column "{date}"'
        yield Mistake(message, suggestion(date, names), subject="to")
    elif date and date in names and not _has_date(stream, date):
        message = f'partition_by of output "{output.name}" names "{date}", which is neither a timestamp nor a date'
        yield Mistake(message, "write date for the date of the event time", subject="to")


_MIRRORS = {
    "kafka": ("emit", "upserts"),
    "postgres": ("mode", "mirror"),
    "delta": ("emit", "mirror"),
    "webhook": ("emit", "rows"),
}
"""How an output of a table is written, by kind; the other kinds keep changes, which a table does not have."""


def _of_mirror(output: OutputDeclaration, table: TableDeclaration) -> Iterator[Mistake]:
    """A table has the present row of each key: a target can hold these, by their key."""
    what = f'output "{output.name}" reads the table "{table.name}"'
    if output.kind == "python":
        return
    if output.kind not in _MIRRORS:
        message = f"{what}, which has present rows and no changes, and {output.kind} keeps changes"
        yield Mistake(message, "mirror it with kafka, postgres or delta, or let it read a query", subject="to")
        return
    option, wanted = _MIRRORS[output.kind]
    if output.values[option] != wanted:
        message = f"{what}, which has present rows and no changes, with {option}: {output.values[option]}"
        yield Mistake(message, f"write {option}: {wanted}, or let it read a query", subject="to")
    elif "key" in output.values and sorted(output.values["key"]) != sorted(table.key):
        message = f"{what} with another key than that of the table"
        yield Mistake(message, f"write key: [{', '.join(table.key)}]", subject="key")


def _has_date(stream: StreamDeclaration, column: str) -> bool:
    kind = stream.arrow_schema.field(column).type
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind)
