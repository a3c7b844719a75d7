"""The commands `hayase groups`: list, load, get, export. A group is a stream, which jobs consume, or a stored table. All
commands but `load` work whether or not the pipeline runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hayase.cli import completion, streams, tables
from hayase.cli.append import FileFormat
from hayase.cli.pipeline_location import index_of, locate, log_of, names_of, reading, table_of, tables_of
from hayase.cli.terminal import AsJson, HomeOption, PipelineOption, as_json, output, row_progress
from hayase.core.errors import HayaseError, UnknownName

if TYPE_CHECKING:
    from hayase.pipeline import Pipeline
    from hayase.streams import StreamLog
    from hayase.tables.load_sources import Rows

__all__ = ["app"]

app = typer.Typer(
    help="Tuple groups, streams and stored tables: list, load, get, export.",
    epilog="Example: [cyan]hayase groups load blocklist blocked.csv[/]",
    no_args_is_help=True,
)

LOOKED_AT = 1_000_000
"""How many records of a stream, the newest ones, `get` searches for a key."""
TOGETHER = 50_000
"""Records that are read at once."""

Group = Annotated[str, typer.Argument(metavar="GROUP", help="A stream or a table.", autocompletion=completion.groups)]


@app.command("list")
def list_(pipeline: PipelineOption = None, home: HomeOption = None, json: AsJson = False) -> None:
    """List all groups of a pipeline: streams with the tuples that wait for each reader, tables with their sizes.

    Example: [cyan]hayase groups list[/]
    """
    located = locate(pipeline, home)
    about = [*_streams(located), *_tables(located)]
    if as_json(json):
        import orjson

        sys.stdout.write("".join(orjson.dumps(group).decode() + "\n" for group in about))
        sys.stdout.flush()
    else:
        from hayase.console.groups_view import group_list

        output().print(group_list(about))


@app.command()
def load(
    name: tables.Name,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A file: .csv, .ndjson or .parquet.", show_default=False),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Load the rows that are valid now in the results of this query.",
            show_default=False,
            autocompletion=completion.queries,
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="PART=COLUMN", help="The column that is a part of the key.", show_default=False),
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column of event times.", show_default=False)
    ] = None,
    ignore_others: Annotated[
        bool, typer.Option("--ignore-others", help="Ignore columns that the table does not have.")
    ] = False,
    schema: Annotated[
        str | None,
        typer.Option(metavar="COLUMNS", help='The types of CSV columns, like "user_id string".', show_default=False),
    ] = None,
    format: Annotated[
        FileFormat | None, typer.Option(help="The format, if the name does not say it.", show_default=False)
    ] = None,
    pipeline: PipelineOption = None,
    home: HomeOption = None,
) -> None:
    """Load rows into a table, all of them or none, while the pipeline does not run.

    Columns have the names of the key parts and columns of the table. A value is the parameter of the first method of its
    column's type; a null changes nothing. Events override loaded values, unless --time gives the rows event times. A row
    that does not fit becomes a dead letter, and the others are loaded.

    Example: [cyan]hayase groups load blocklist blocked.csv --key ip=address[/]

    From a query: [cyan]hayase groups load last_week --query rates[/]
    """
    if (file is None) == (query is None):
        raise typer.BadParameter("give a file or --query NAME, one of them", param_hint="FILE")
    if query is not None and (schema is not None or format is not None):
        raise typer.BadParameter("they are for files", param_hint="--schema, --format")
    parts = dict(_part(text) for text in key or ())
    located = locate(pipeline, home)
    table = table_of(located, name)
    rows: Rows = file if file is not None else _valid_rows(located, query or "")
    from hayase.engine.commit.table_writer import open_for_writing
    from hayase.tables.load_sources import count_of
    from hayase.tables.table_results import TableResults

    with row_progress() as progress:
        total = count_of(rows)
        reads, writes = (progress.add_task(f"{what} {name}", total=total) for what in ("rows for", "into"))

        def show(read: int, written: int) -> None:
            if written:
                progress.update(reads, total=read)
            progress.update(reads, completed=read)
            progress.update(writes, completed=written, total=read if written else total)

        results = TableResults(located.home.table(name), table, open_for_writing)
        kind = None if format is None else format.value
        done = results.load(
            rows, key=parts, time=time, ignore_others=ignore_others, format=kind, schema=schema, progress=show
        )
    noun = "row" if done.rows == 1 else "rows"
    refused = f" ({done.refused:,} refused: see `hayase dead list`)" if done.refused else ""
    typer.echo(f"loaded {done.rows:,} {noun} into {name}{refused}")


@app.command()
def get(
    name: Group,
    key: Annotated[list[str], typer.Argument(metavar="KEY", help="The key: its parts in their order.")],
    count: Annotated[int, typer.Option("-n", metavar="N", help="How many tuples of a stream.", min=1)] = 10,
    json_key: tables.JsonKey = False,
    pipeline: PipelineOption = None,
    home: HomeOption = None,
    json: AsJson = False,
) -> None:
    """Print the tuples of a group with a key: the row of a table, or the newest tuples of a stream, the newest last.

    The exit code is 1 if there are none. Of a stream, the last million records are searched.

    Example: [cyan]hayase groups get blocklist 10.0.0.7[/]
    """
    located = locate(pipeline, home)
    if _is_table(located, name):
        tables.get(name, key, json_key=json_key, pipeline=pipeline, home=home, json=json)
        return
    log = _log_of(located, name)
    if not {"key", "value"} <= set(log.declaration.arrow_schema.names):
        hint = f"`hayase streams tail {name}` shows them"
        raise HayaseError(f'the records of "{name}" have no key and value, so they are not kept by a key; {hint}')
    written_by_job = all(stream.name != name for stream in located.declaration.streams)
    text = _key_text(key, json_key) if written_by_job or json_key else " ".join(key)
    tuples = _newest_with_key(log, text, count)
    if not tuples:
        index = index_of(log)
        looked = min(LOOKED_AT, index.next - index.start)
        raise HayaseError(f'no tuple of "{name}" has the key {text}, of the last {looked:,}; check the key')
    from hayase.streams.record_text import record_text

    for row in tuples:
        sys.stdout.write(record_text(_parsed_tuple(row) if written_by_job else row) + "\n")
    sys.stdout.flush()


@app.command()
def export(
    name: Group,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file ending in .parquet, .csv or .ndjson.")],
    pipeline: PipelineOption = None,
    home: HomeOption = None,
) -> None:
    """Write all tuples of a group to a file, in bounded memory: the rows of a table, or the records of a stream.

    Example: [cyan]hayase groups export last_week last_week.parquet[/]
    """
    located = locate(pipeline, home)
    if _is_table(located, name):
        tables.export(name, file, pipeline=pipeline, home=home)
    else:
        _log_of(located, name)
        streams.export(name, file, pipeline=pipeline, home=home)


# ---------------------------------------------------------------------------------------------------- which groups


def _is_table(pipeline: Pipeline, name: str) -> bool:
    return any(table.name == name for table in tables_of(pipeline))


def _log_of(pipeline: Pipeline, name: str) -> StreamLog:
    """Return the log of a stream; the error for an unknown name lists tables too."""
    try:
        return log_of(pipeline, name)
    except UnknownName:
        known = [*_stream_names(pipeline), *(table.name for table in tables_of(pipeline))]
        raise UnknownName("group", name, known) from None


def _stream_names(pipeline: Pipeline) -> list[str]:
    """Return all streams but the internal ones; outputs of jobs also before the first run."""
    stored = {table.name for table in tables_of(pipeline)}
    written = [name for job in pipeline.declaration.jobs for name in _groups_of_job(job)[1]]
    names = dict.fromkeys([*names_of(pipeline), *written])
    return [name for name in names if not name.startswith("_") and name not in stored]


def _groups_of_job(job: Any) -> tuple[list[str], list[str]]:
    """Return the groups that a job reads, and those that it writes."""
    read = [*job.reads, *(name for step in job.steps for name in (*step.reads, step.table))]
    written = [job.name, *(name for step in job.steps for name in (step.writes, *step.also))]
    return [name for name in read if name], [name for name in written if name]


def _jobs_of_group(pipeline: Pipeline, name: str) -> dict[str, list[str]]:
    parts = {job.name: _groups_of_job(job) for job in pipeline.declaration.jobs}
    return {
        what: [job for job, groups in parts.items() if name in groups[side]]
        for side, what in ((1, "written_by"), (0, "read_by"))
    }


def _streams(pipeline: Pipeline) -> Iterator[dict[str, Any]]:
    from hayase.streams import StreamLog

    positions = pipeline.progress().offset.positions
    for name in _stream_names(pipeline):
        records = size = end = 0
        if (pipeline.home.path / "streams" / name / "stream.json").exists():
            log = StreamLog.open(pipeline.home.path, name)
            index = log.index()
            records, end = index.next - index.start, index.next
            size = sum(path.stat().st_size for entry in index.entries if (path := log.path / entry.name).exists())
        waiting = {stage: max(0, end - inputs[name].at) for stage, inputs in positions.items() if name in inputs}
        about = {"name": name, "kind": "stream", "records": records, "bytes": size, "waiting": waiting}
        yield {**about, **_jobs_of_group(pipeline, name)}


def _tables(pipeline: Pipeline) -> Iterator[dict[str, Any]]:
    for table in tables_of(pipeline):
        with reading(pipeline, table) as reader:
            info = reader.info()
        about = {"name": table.name, "kind": "table", "rows_about": info.keys, "bytes": info.bytes}
        yield {**about, **_jobs_of_group(pipeline, table.name)}


# ---------------------------------------------------------------------------------------------------- loading


def _part(text: str) -> tuple[str, str]:
    part, is_, column = text.partition("=")
    if not (is_ and part and column):
        raise typer.BadParameter(f'"{text}" does not say which column it is; write PART=COLUMN', param_hint="--key")
    return part, column


def _valid_rows(pipeline: Pipeline, query: str) -> Rows:
    """Return the rows of a query that are valid now."""
    from hayase.engine.results.query_results import Results

    known = [declared.name for declared in pipeline.declaration.queries]
    if query not in known:
        raise UnknownName("query", query, known)
    return Results(log_of(pipeline, query)).at_table()


# ---------------------------------------------------------------------------------------------------- tuples


def _key_text(key: list[str], json_key: bool) -> str:
    """Return a key as jobs write it to a stream."""
    import orjson

    from hayase.jobs.tuples import Unfit, key_text

    try:
        parts = [orjson.loads(part) for part in key] if json_key else list(key)
        return key_text(parts[0] if len(parts) == 1 else parts).decode()
    except (orjson.JSONDecodeError, Unfit) as error:
        raise HayaseError(
            f"{' '.join(key)} is not a key: {error}; write parts as JSON, or leave out --json-key"
        ) from error


def _newest_with_key(log: StreamLog, key: str, count: int) -> list[dict[str, Any]]:
    """Return the newest records with a key among the last `LOOKED_AT`, in the order of their offsets."""
    import pyarrow as pa
    import pyarrow.compute as pc

    index = index_of(log)
    end, first = index.next, max(index.start, index.next - LOOKED_AT)
    matches: list[dict[str, Any]] = []
    while end > first and len(matches) < count:
        start = max(first, end - TOGETHER)
        rows = pa.Table.from_batches([piece.rows for piece in log.read(start, end)], log.declaration.arrow_schema)
        same = rows.filter(pc.equal(rows.column("key").cast(pa.string()), key))
        matches = [*same.slice(max(0, same.num_rows - count)).to_pylist(), *matches][-count:]
        end = start
    return matches


def _parsed_tuple(record: dict[str, Any]) -> dict[str, Any]:
    """Return a tuple with its key and value parsed; they are stored as JSON."""
    import orjson

    return {**record, "key": orjson.loads(record["key"]), "value": orjson.loads(record["value"])}
