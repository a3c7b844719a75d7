"""The field tables of sources and outputs, by the kind of what they connect to, such as `kafka`.

Like `declaration_fields`, this is the only place where an option is spelled out. A kind is implemented in
`hayase.connectors`, which imports its client only when a pipeline uses it.
"""

from __future__ import annotations

from collections.abc import Mapping

from hayase.core.declaration_fields import Field, FieldTable
from hayase.core.field_kinds import COUNT, DURATION, FLAG, MAPPING, NAMES, TEXT, choice

__all__ = ["OUTPUT", "OUTPUTS", "SOURCES", "STREAM_SOURCE", "secret_fields"]


def secret_fields(name: str, what: str) -> tuple[Field, ...]:
    """The fields that say where a secret stands: in a variable of the environment or in a file, never in the pipeline's file."""
    return (
        Field(f"{name}_env", TEXT, f"Variable of the environment that holds {what}."),
        Field(f"{name}_file", TEXT, f"File that holds {what}."),
    )


_BROKERS = (
    Field(
        "brokers", TEXT, "Addresses of some brokers, like localhost:9092, separated by commas.",
        required='add "brokers: HOST:PORT"',
    ),
    Field("topic", TEXT, "Topic.", required='add "topic: NAME"'),
)  # fmt: skip
_SECURITY = (
    Field("tls", FLAG, "Whether the connection is encrypted (TLS).", False),
    Field("tls_ca", TEXT, "File with the certificates (PEM) that are trusted; by default those of the system."),
    Field("sasl", choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), "How Hayase says who it is; by default it does not."),
    Field("username", TEXT, "Name for SASL."),
    *secret_fields("password", "the password for SASL"),
)  # fmt: skip
_REGISTRY = Field("registry", TEXT, "Address of the schema registry, for the format avro.")
_PYTHON = (
    Field(
        "class", TEXT, "Your class, as module:Class, found beside the pipeline's file or installed.",
        required="write it like module:Class",
    ),
    Field("options", MAPPING, "Options for it, as texts.", {}),
)  # fmt: skip
_POSTGRES = (
    *secret_fields("dsn", "the connection string of PostgreSQL, like postgresql://user:password@host:5432/database"),
    Field("table", TEXT, "Table, like public.users.", required='add "table: SCHEMA.NAME"'),
)  # fmt: skip

_FILES = (
    Field(
        "path", TEXT,
        "Directory, pattern like logs/*.ndjson.gz, or address in an object store like s3://bucket/logs/**/*.parquet; relative to "
        "the pipeline's file.", required='add "path: DIRECTORY" or a pattern like logs/*.csv',
    ),
    Field("watch", DURATION, "Interval at which new files are looked for.", "10 s"),
    Field("format", choice("csv", "ndjson", "parquet"), "Format of the files; by default their names say it."),
    Field("header", FLAG, "Whether CSV files begin with a line of column names; without one they have those of the schema.", True),
    Field(
        "unreadable", choice("stop", "skip"),
        "What happens at a file that cannot be read: reading stops with an error, or goes on behind it, with a dead letter that "
        "names it.", "stop",
    ),
    Field(
        "changed", choice("report", "read"),
        "What happens to a file that was changed after it was read: a dead letter names it, or it is read again as a new file.",
        "report",
    ),
)  # fmt: skip

SOURCES: Mapping[str, FieldTable] = {
    "files": FieldTable(_FILES),
    "kafka": FieldTable((
        *_BROKERS,
        Field("format", choice("json", "csv", "text", "avro"), "How the value of a message is read.", "json"),
        _REGISTRY,
        Field(
            "start", choice("earliest", "latest"),
            "Where reading begins: with the first message of each partition, or with new ones.", "earliest",
        ),
        Field("group", TEXT, "Consumer group to which positions are reported; by default hayase-PIPELINE-STREAM."),
        Field(
            "missing", choice("stop", "skip"),
            "What happens if the topic has removed messages before they were read: reading stops with an error, or goes on behind "
            "them.", "stop",
        ),
        Field(
            "upserts", FLAG,
            "Whether a message is the new row of its key, and one without a value the end of that row; for compacted topics. The "
            "stream has changes, key_column and timestamp_column.", False,
        ),
        Field("text_column", TEXT, "Column that gets the value of a message, with the format text.", "text"),
        Field("timestamp_column", TEXT, "Column that gets the time of the message in Kafka."),
        Field("key_column", TEXT, "Column that gets the key of the message, as text."),
        Field("headers_column", TEXT, "Column that gets the headers of the message, as JSON."),
        Field("partition_column", TEXT, "Column that gets the partition of the message."),
        Field("offset_column", TEXT, "Column that gets the offset of the message."),
        *_SECURITY,
    )),
    "postgres": FieldTable((
        *_POSTGRES,
        Field(
            "mode", choice("replication", "poll"),
            "How changes are found: all of them in the server's log (logical replication), or rows that are new by a column that "
            "only grows.", "replication",
        ),
        Field("slot", TEXT, "Replication slot, which the source creates; by default hayase_PIPELINE_STREAM."),
        Field("publication", TEXT, "Publication, which is created if it is missing; by default it has the name of the slot."),
        Field("column", TEXT, "With the mode poll: column that only grows, a number or a time."),
        Field("every", DURATION, "With the mode poll: pause between two looks at a table that has nothing new.", 1_000_000),
    )),
    "spark": FieldTable((
        Field("format", TEXT, "Format of a streaming source of Spark, like kafka or json.", required='add "format: FORMAT"'),
        Field("options", MAPPING, "Options of that source, as texts.", {}),
        Field("options_env", MAPPING, "Options whose values stand in variables of the environment, by the variables' names.", {}),
        Field("schema", TEXT, "Columns that the source has, in Spark DDL; only for formats that need them."),
        Field("settings", MAPPING, "Settings of the Spark session, such as spark.jars.packages.", {}),
    )),
    "python": FieldTable(_PYTHON),
}  # fmt: skip
"""What a stream can come from."""

_EVERY = Field("every", DURATION, "Interval at which what has changed is written together.", "1 minute")
_EMIT = Field(
    "emit", choice("changes", "rows"),
    "What is written: changes of the result, with their time and sign in the columns _time and _change; or rows that appear.",
    "changes",
)  # fmt: skip

OUTPUTS: Mapping[str, FieldTable] = {
    "parquet": FieldTable((
        Field(
            "path", TEXT, "Directory, or address in an object store like s3://bucket/revenue; relative to the pipeline's file.",
            required='add "path: DIRECTORY"',
        ),
        _EVERY,
        _EMIT,
        Field(
            "partition_by", TEXT,
            "Directories of the files: date for the date of the event time, or a column of type timestamp or date.",
        ),
    )),
    "webhook": FieldTable((
        Field("url", TEXT, "Address that gets the requests (POST).", required='add "url: https://..."'),
        Field("every", DURATION, "Interval at which what has changed is sent together.", "0 s"),
        Field("most", COUNT, "Changes in one request.", 1000, at_least=1, at_most=20_000),
        Field(
            "emit", choice("changes", "rows"),
            "What is sent: changes of the result, with their time and sign; or rows that appear.", "changes",
        ),
        Field("timeout", DURATION, "Time that a request may take.", "30 s"),
        *secret_fields("token", "the token that is sent with each request (Authorization: Bearer)"),
    )),
    "delta": FieldTable((
        Field(
            "path", TEXT, "Directory of the table, or address in an object store like s3://bucket/revenue; relative to the "
            "pipeline's file.", required='add "path: DIRECTORY"',
        ),
        _EVERY,
        Field(
            "emit", choice("changes", "rows", "mirror"),
            "What the table has: changes of the result, with their time and sign in the columns _time and _change; rows that "
            "appear; or the present rows (mirror), by their key.", "changes",
        ),
        Field("key", NAMES, "Columns that identify a row of a mirror.", []),
    )),
    "iceberg": FieldTable((
        Field("table", TEXT, "Table, as NAMESPACE.NAME.", required='add "table: NAMESPACE.NAME"'),
        Field("catalog", TEXT, "Catalog, as pyiceberg's configuration names it; by default one in the home, for the table alone."),
        Field("path", TEXT, "Directory or address of the data, without a catalog; relative to the pipeline's file."),
        _EVERY,
        _EMIT,
    )),
    "kafka": FieldTable((
        *_BROKERS,
        Field(
            "emit", choice("changes", "rows", "upserts"),
            "What a message is: a change of the result, with its sign and its time; a row that appears; or the present row of a "
            "key, and an empty message when there is none any more.", "changes",
        ),
        Field("key", NAMES, "Columns that are the key of the message.", []),
        Field("format", choice("json"), "How the value of a message is written.", "json"),
        *_SECURITY,
    )),
    "postgres": FieldTable((
        *_POSTGRES,
        Field("key", NAMES, "Columns that identify a row of the table; by default a column row_id is added.", []),
        Field(
            "mode", choice("mirror", "history"),
            "What the table holds: the present rows, or every row with the times between which it was valid.", "mirror",
        ),
    )),
    "python": FieldTable(_PYTHON),
}  # fmt: skip
"""Where the results of a stage can go."""

STREAM_SOURCE = FieldTable((
    Field(
        "from", MAPPING,
        "What its records come from: the kind, such as kafka, and below it its options; by default they are appended.",
    ),
))  # fmt: skip
"""The field of a stream that has a source."""

OUTPUT = FieldTable((
    Field("reads", TEXT, "Query, stream, job, operation or table whose results go out.", required="name a query or a stream"),
    Field(
        "to", MAPPING, "Where they go: the kind, and below it its options.",
        required='say where it goes, like "to: {kafka: {...}}"',
    ),
))  # fmt: skip
"""The fields of an output."""
