"""Files as streams, for commands that need no pipeline: which file is which stream, its schema and its time column."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hayase.core.errors import DeclarationError, HayaseError, UnknownName

if TYPE_CHECKING:
    import pyarrow as pa

    from hayase.core.declarations import StreamDeclaration

__all__ = [
    "STDIN",
    "Described",
    "SchemaOption",
    "SlackOption",
    "StreamOption",
    "TimeOption",
    "TimeUnitOption",
    "declared",
    "given",
    "here",
]

STDIN = "-"
"""The file that is whatever comes in."""

StreamOption = Annotated[
    list[str] | None,
    typer.Option(
        "--stream", "-s", metavar="NAME=FILE", show_default=False,
        help="A stream and the CSV, NDJSON or Parquet file it is read from (.gz, .zst, .bz2 too; - is stdin). "
        "Repeat it for more streams, or for more files of one.",
    ),
]  # fmt: skip
TimeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--time", "-t", metavar="[NAME=]COLUMN", show_default=False,
        help="The event time; by default the only timestamp there is, or the column `time`.",
    ),
]  # fmt: skip
TimeUnitOption = Annotated[
    list[str] | None,
    typer.Option(
        "--time-unit", metavar="[NAME=]s|ms|us", help="What an integer time column counts.", show_default=False
    ),
]
SlackOption = Annotated[
    list[str] | None,
    typer.Option(
        "--slack", metavar="[NAME=]DURATION", show_default=False,
        help="How far records may be out of order; later ones are refused. By default as far as they are.",
    ),
]  # fmt: skip
SchemaOption = Annotated[
    list[str] | None,
    typer.Option(
        "--schema", metavar="[NAME=]COLUMNS", show_default=False,
        help='The columns, like "time timestamp, amount double", if what is in the file does not tell.',
    ),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Described:
    """What the options say about one stream."""

    name: str
    files: tuple[str, ...]
    time: str | None = None
    time_unit: str | None = None
    slack: str | None = None
    schema: str | None = None


def given(
    streams: Iterable[str] | None,
    time: Iterable[str] | None,
    time_unit: Iterable[str] | None,
    slack: Iterable[str] | None,
    schema: Iterable[str] | None,
) -> list[Described]:
    """The streams that the options describe; one with a schema of its own needs no file.

    >>> given(["a=x.csv", "b=y.csv"], ["ts", "b=at"], None, None, None)[1]
    Described(name='b', files=('y.csv',), time='at', time_unit=None, slack=None, schema=None)
    """
    files: dict[str, list[str]] = {}
    for stream in streams or ():
        name, equals, file = stream.partition("=")
        if not (name and equals and file):
            raise HayaseError(
                f'"--stream {stream}" does not say which is which; write it like --stream orders={stream}'
            )
        files.setdefault(name, []).append(file)
    if [file for some in files.values() for file in some].count(STDIN) > 1:
        raise HayaseError("stdin can be read once only; put the others into files")
    for each in schema or ():
        if not files or "=" in each:
            files.setdefault(each.partition("=")[0].strip(), [])
    per_stream = {
        option: _by_stream(option, values, list(files))
        for option, values in (("time", time), ("time_unit", time_unit), ("slack", slack), ("schema", schema))
    }
    return [
        Described(name, tuple(some), **{option: values.get(name) for option, values in per_stream.items()})
        for name, some in files.items()
    ]


def _by_stream(option: str, values: Iterable[str] | None, names: Sequence[str]) -> Mapping[str, str]:
    """Of each stream its value: the one given for it, or the one given for all."""
    for_all: dict[str, str] = {}
    for_one: dict[str, str] = {}
    for each in values or ():
        name, equals, value = each.partition("=")
        if not equals:
            for_all |= dict.fromkeys(names, each)
        elif name.strip() in names:
            for_one[name.strip()] = value
        else:
            raise UnknownName("stream", name, names, f" in --{option.replace('_', '-')}")
    return for_all | for_one


def here(described: Described, directory: Path) -> list[Path]:
    """The stream's files; what comes from stdin is put into one in the directory."""
    paths = []
    for file in described.files:
        path = Path(file)
        if file == STDIN:
            path = directory / "stdin"
            with path.open("wb") as spool:
                shutil.copyfileobj(sys.stdin.buffer, spool)
        elif not path.exists():
            raise HayaseError(f'there is no file "{file}" for stream "{described.name}"; check the name')
        elif path.is_dir():
            raise HayaseError(f'"{file}" is a directory; give its files, each with --stream {described.name}=FILE')
        paths.append(path)
    return paths


def declared(described: Described, paths: Sequence[Path]) -> StreamDeclaration:
    """The declaration of a stream that is read from files, its schema inferred unless it is given."""
    from hayase.core.declarations import StreamDeclaration
    from hayase.core.schemas import arrow_schema, ddl
    from hayase.core.times import duration
    from hayase.streams.inference import schema_of

    if described.schema is not None:
        schema = arrow_schema(described.schema)
        time = described.time or _time_column(schema, described.name)
    else:
        schema = schema_of(paths)
        time = described.time or _time_column(schema, described.name)
        schema = _with_moments(schema, time)
    slack = 0 if described.slack is None else duration(described.slack)
    try:
        return StreamDeclaration(
            described.name, ddl(schema), time, time_unit=described.time_unit, slack=slack, max_ahead=None
        )
    except DeclarationError as error:
        raise HayaseError("\n".join(_as_options(str(mistake)) for mistake in error.mistakes)) from error


def _as_options(message: str) -> str:
    return message.replace("say what it counts: one of", "say what it counts with --time-unit, one of")


def _time_column(schema: pa.Schema, stream: str) -> str:
    """The column that must be the event time."""
    import pyarrow as pa

    moments = [each.name for each in schema if pa.types.is_timestamp(each.type)]
    if len(moments) == 1:
        return moments[0]
    if "time" in schema.names:
        return "time"
    found = f"it has {len(moments)} timestamps" if moments else "it has no timestamp"
    columns = ", ".join(f"{each.name} ({each.type})" for each in schema)
    raise HayaseError(
        f'which column is the event time of "{stream}"? {found}; say it with --time. Its columns are {columns}'
    )


def _with_moments(schema: pa.Schema, time: str) -> pa.Schema:
    """A day as event time is its first instant."""
    import pyarrow as pa

    at = schema.get_field_index(time)
    if at < 0 or not pa.types.is_date(schema.field(at).type):
        return schema
    return schema.set(at, pa.field(time, pa.timestamp("us", tz="UTC")))
