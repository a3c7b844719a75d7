"""Options that describe files as streams, for commands without a pipeline: the stream of a file, its schema and time column."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError, HayaseError, Mistake, UnknownName

if TYPE_CHECKING:
    import pyarrow as pa

    from hayase.core.declarations import FunctionDeclaration, StreamDeclaration

__all__ = [
    "STDIN",
    "Described",
    "FunctionOption",
    "SchemaOption",
    "SlackOption",
    "StreamOption",
    "TimeOption",
    "TimeUnitOption",
    "declare_stream",
    "declared_functions",
    "described_streams",
    "local_files",
]

STDIN = "-"
"""The name that stands for standard input."""

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
        help="The event time; by default the only timestamp column, or the column `time`.",
    ),
]  # fmt: skip
TimeUnitOption = Annotated[
    list[str] | None,
    typer.Option(
        "--time-unit", metavar="[NAME=]s|ms|us", help="The unit of an integer time column.", show_default=False
    ),
]
SlackOption = Annotated[
    list[str] | None,
    typer.Option(
        "--slack", metavar="[NAME=]DURATION", show_default=False,
        help="How far records may be out of order; later ones are refused. By default as far as needed.",
    ),
]  # fmt: skip
SchemaOption = Annotated[
    list[str] | None,
    typer.Option(
        "--schema", metavar="[NAME=]COLUMNS", show_default=False,
        help='The columns, like "time timestamp, amount double", if they cannot be inferred from the file.',
    ),
]  # fmt: skip
FunctionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--function", "-f", metavar="NAME=FUNCTION", show_default=False,
        help='A function of your own: a Python function, as "slug=module:function", which is installed or in the working '
        'directory; or an expression, as "vat=x * 1.1" or "vat(x)=x * 1.1". Repeat it for more.',
    ),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Described:
    """The options of one stream."""

    name: str
    files: tuple[str, ...]
    time: str | None = None
    time_unit: str | None = None
    slack: str | None = None
    schema: str | None = None


def described_streams(
    streams: Iterable[str] | None,
    time: Iterable[str] | None,
    time_unit: Iterable[str] | None,
    slack: Iterable[str] | None,
    schema: Iterable[str] | None,
) -> list[Described]:
    """Return the streams that the options describe; one with a schema needs no file.

    >>> described_streams(["a=x.csv", "b=y.csv"], ["ts", "b=at"], None, None, None)[1]
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
    for columns in schema or ():
        if not files or "=" in columns:
            files.setdefault(columns.partition("=")[0].strip(), [])
    per_stream = {
        option: _by_stream(option, values, list(files))
        for option, values in (("time", time), ("time_unit", time_unit), ("slack", slack), ("schema", schema))
    }
    return [
        Described(name, tuple(some), **{option: values.get(name) for option, values in per_stream.items()})
        for name, some in files.items()
    ]


def _by_stream(option: str, values: Iterable[str] | None, names: Sequence[str]) -> Mapping[str, str]:
    """Return the value of an option for each stream: its own, or the one for all streams."""
    for_all: dict[str, str] = {}
    for_one: dict[str, str] = {}
    for text in values or ():
        name, equals, value = text.partition("=")
        if not equals:
            for_all |= dict.fromkeys(names, text)
        elif name.strip() in names:
            for_one[name.strip()] = value
        else:
            raise UnknownName("stream", name, names, f" in --{option.replace('_', '-')}")
    return for_all | for_one


_FUNCTION = re.compile(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*=(.*)", re.DOTALL)
_SOURCE = re.compile(r"\s*(?:[^\W\d][\w.]*|\S+\.py):[^\W\d]\w*\s*")


def declared_functions(functions: Iterable[str] | None) -> tuple[FunctionDeclaration, ...]:
    """Return the functions that the options declare.

    >>> declared_functions(["vat(price, rate) = price * (1 + rate)"])[0].signature
    'vat(price, rate)'
    """
    declared = []
    for text in functions or ():
        match = _FUNCTION.fullmatch(text)
        if match is None:
            raise HayaseError(f'"--function {text}" is not NAME=FUNCTION; write it like --function "vat=x * 1.1"')
        from hayase.core.function_data import declared_function

        name, arguments, source = match.groups()
        data: dict[str, str] = {"function" if _SOURCE.fullmatch(source) else "sql": source.strip()}
        if arguments is not None:
            data["arguments"] = arguments.strip()
        declared.append(declared_function(name, data, str(Path.cwd())))
    return tuple(declared)


def local_files(described: Described, directory: Path) -> list[Path]:
    """Return the files of a stream; standard input is copied to a file in the directory."""
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


def declare_stream(described: Described, paths: Sequence[Path]) -> StreamDeclaration:
    """Return the declaration of a stream of files; the schema is inferred unless the options have it."""
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
        raise HayaseError("\n".join(str(_as_options(mistake, described)) for mistake in error.mistakes)) from error


def _as_options(mistake: Mistake, described: Described) -> Mistake:
    """Return a mistake in the declaration of a stream with a hint that names the option from which it was made."""
    if mistake.subject != "time_unit":
        return mistake
    from hayase.core.times import UNITS

    known = described.time_unit in UNITS
    return replace(
        mistake,
        hint="leave --time-unit out" if known else f"say what it counts with --time-unit, one of {', '.join(UNITS)}",
    )


def _time_column(schema: pa.Schema, stream: str) -> str:
    """Return the event time column: the only timestamp, or the column `time`."""
    import pyarrow as pa

    moments = [field.name for field in schema if pa.types.is_timestamp(field.type)]
    if len(moments) == 1:
        return moments[0]
    if "time" in schema.names:
        return "time"
    reason = f"it has {len(moments)} timestamps" if moments else "it has no timestamp"
    columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
    raise HayaseError(
        f'which column is the event time of "{stream}"? {reason}; say it with --time. Its columns are {columns}'
    )


def _with_moments(schema: pa.Schema, time: str) -> pa.Schema:
    """Turn a date column that is the event time into a timestamp: the first instant of the day."""
    import pyarrow as pa

    at = schema.get_field_index(time)
    if at < 0 or not pa.types.is_date(schema.field(at).type):
        return schema
    return schema.set(at, pa.field(time, pa.timestamp("us", tz="UTC")))
