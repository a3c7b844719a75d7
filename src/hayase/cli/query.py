"""The command `hayase query`: runs a continuous query over files, from the first record to the last, without a pipeline."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hayase.cli.files import (
    STDIN,
    Described,
    FunctionOption,
    SchemaOption,
    SlackOption,
    StreamOption,
    TimeOption,
    TimeUnitOption,
    declare_stream,
    declared_functions,
    described_streams,
    local_files,
)
from hayase.cli.terminal import errors, is_verbose
from hayase.core.clock import now_us
from hayase.core.errors import DeclarationError, HayaseError

if TYPE_CHECKING:
    import pyarrow as pa

    from hayase.core.declarations import StreamDeclaration
    from hayase.pipeline import Pipeline, Results

__all__ = ["query", "showing_mistakes"]

SHOWN = 5
"""How many dead letters are shown; the others are counted."""
SMALL = 1 << 20
"""Up to how many bytes of input loops are called without Numba: fewer calls than loading it is worth."""


class Emit(StrEnum):
    """The form of the results."""

    INTERVALS = "intervals"
    CHANGES = "changes"
    FINAL = "final"


class Form(StrEnum):
    """The format in which results are written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


_SUFFIXES = {
    ".txt": Form.TABLE, ".json": Form.JSON, ".ndjson": Form.JSON, ".jsonl": Form.JSON, ".csv": Form.CSV,
    ".parquet": Form.PARQUET, ".pq": Form.PARQUET,
}  # fmt: skip


def query(
    text: Annotated[str, typer.Argument(metavar="QUERY", help="The query, in CQL; - reads it from stdin.")],
    stream: StreamOption = None,
    time: TimeOption = None,
    time_unit: TimeUnitOption = None,
    slack: SlackOption = None,
    schema: SchemaOption = None,
    function: FunctionOption = None,
    no_header: Annotated[
        bool,
        typer.Option("--no-header", help="CSV files have no header: their columns are those of --schema, in order."),
    ] = False,
    emit: Annotated[
        Emit | None,
        typer.Option(
            help="intervals: each row with the time from which and until which it is valid (the default for relations). "
            "changes: rows as they appear (+) and disappear (-). final: the rows that are valid at the end. By default, a "
            "query whose result is a stream gives its records.",
            show_default=False,
        ),
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="The rows that are valid at this time.", show_default=False)
    ] = None,
    format: Annotated[
        Form | None,
        typer.Option(help="By default a table on a terminal, and JSON lines elsewhere.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Write there; its suffix can say the format.", show_default=False
        ),
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Run it on Spark, for large files.")] = False,
) -> None:
    """Answer a query over files, from the first record to the last, without a pipeline.

    Rows come from CSV, NDJSON or Parquet; columns and their types are inferred, unless --schema gives them.

    Examples:

    [cyan]hayase query "select user, sum(amount) as spend from o \\[Range 10 minutes] group by user" -s o=orders.csv[/]

    [cyan]hayase query "select * from o where amount > 100" -s o=orders.ndjson.gz --time placed --format csv[/]

    [cyan]hayase query "select count(*) as n from s" -s s=- --time ts --time-unit ms --emit final < log.csv[/]

    [cyan]hayase query "select vat(amount) as gross from o" -s o=orders.csv -f "vat=x * 1.1"[/]
    """
    if emit is not None and at is not None:
        raise typer.BadParameter("it is a choice of its own; give it without --emit", param_hint="--at")
    form = _form(format, output)
    streams = described_streams(stream, time, time_unit, slack, schema)
    if no_header and any(source.schema is None for source in streams):
        raise typer.BadParameter(
            'files without a header need their columns: --schema "time timestamp, amount double"',
            param_hint="--no-header",
        )
    if text == STDIN:
        if any(STDIN in source.files for source in streams):
            raise HayaseError("stdin can be read once only; give the query as text, or the records as a file")
        text = sys.stdin.read()
    if not any(source.files for source in streams):
        raise typer.BadParameter("say what the query reads, like --stream orders=orders.csv", param_hint="--stream")
    if not spark and "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas())  # never removed: this process ends soon
    with (
        tempfile.TemporaryDirectory(prefix="hayase-query-", ignore_cleanup_errors=True) as directory,
        _without_syncing(),
    ):
        pipeline, name = _run_query(text, streams, function or (), Path(directory), spark, header=not no_header)
        _write(_result_table(pipeline.results(name), emit, at), form, output)
        _print_dead_letters(pipeline)


@contextmanager
def _without_syncing() -> Iterator[None]:
    """Write without syncing inside the block: the pipeline of this command is temporary."""
    from hayase.streams import durable

    with durable.without_syncs():
        yield


class _NoPandas:
    """An import hook that hides pandas: DuckDB and Arrow import it, if it is installed, as soon as they see a table or a list,
    which takes longer than most queries."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=name)


def _form(chosen: Form | None, output: Path | None) -> Form:
    if output is None:
        if chosen is Form.PARQUET:
            raise typer.BadParameter("Parquet goes into a file; name it with --output", param_hint="--format")
        return chosen or (Form.TABLE if sys.stdout.isatty() else Form.JSON)
    if chosen is None and output.suffix.lower() not in _SUFFIXES:
        raise typer.BadParameter(
            f'the name "{output}" does not say what to write; give --format, or a name ending in {", ".join(_SUFFIXES)}',
            param_hint="--output",
        )
    return chosen or _SUFFIXES[output.suffix.lower()]


def _run_query(
    text: str, streams: Sequence[Described], functions: Sequence[str], directory: Path, spark: bool, header: bool
) -> tuple[Pipeline, str]:
    """Run the query over all files; return the pipeline and the name of the query."""
    from hayase.core.machine_code import do_without_numba
    from hayase.pipeline import Pipeline

    pipeline = Pipeline("query", directory / "home", buckets=None if spark else 1)
    pipeline.declaration = replace(pipeline.declaration, functions=declared_functions(functions))
    files = {stream.name: local_files(stream, directory) for stream in streams}
    if not spark and sum(path.stat().st_size for paths in files.values() for path in paths) < SMALL:
        do_without_numba()
    for stream in streams:
        declaration = declare_stream(stream, files[stream.name])
        pipeline.declaration = replace(pipeline.declaration, streams=(*pipeline.declaration.streams, declaration))
    name = "result"
    while name in {stream.name.lower() for stream in streams}:
        name += "_"
    with showing_mistakes(text):
        pipeline.query(name, text)
    for stream in streams:
        declaration = pipeline.declaration.stream(stream.name)
        _append(pipeline, declaration, files[stream.name], header)
        if stream.slack is None:
            _allow_disorder(pipeline, declaration)
        pipeline.finish(stream.name)
    pipeline.run_until_idle(spark=spark)
    return pipeline, name


@contextmanager
def showing_mistakes(text: str) -> Iterator[None]:
    """Show mistakes raised in the block with the lines of the query, and end the command."""
    try:
        yield
    except DeclarationError as error:
        if is_verbose():
            raise
        from hayase.console.results_view import marked

        for line in marked(text, error.mistakes):
            errors().print(line, markup=False, soft_wrap=True)
        raise typer.Exit(1) from error


def _append(pipeline: Pipeline, declaration: StreamDeclaration, paths: Sequence[Path], header: bool) -> None:
    from hayase.streams.appends import append_source
    from hayase.streams.inference import format_in

    for path in paths:
        form = replace(format_in(path), header=header)
        for _ in append_source(pipeline.home.path, declaration, path, form, now_us):
            pass


def _allow_disorder(pipeline: Pipeline, declaration: StreamDeclaration) -> None:
    """Set the slack of a stream to the greatest disorder of its records: the order in a file means little."""
    import numpy as np

    from hayase.streams import StreamLog, event_times

    log = StreamLog.ensure(pipeline.home.path, declaration)
    slack = 0
    for piece in log.read(log.index().start, log.index().next):
        times = event_times(piece.rows, declaration)
        peaks = np.maximum(np.maximum.accumulate(times), piece.running_max_before)
        slack = max(slack, int((peaks - times).max()))
    if slack:
        changed = replace(declaration, slack=slack)
        streams = tuple(changed if stream == declaration else stream for stream in pipeline.declaration.streams)
        pipeline.declaration = replace(pipeline.declaration, streams=streams)


def _result_table(results: Results, emit: Emit | None, at: str | None) -> pa.Table:
    """Return the results in the form that was asked for, as a table."""
    import pyarrow.compute as pc

    if at is not None:
        return results.at_table(at)
    match emit:
        case Emit.CHANGES:
            return results.changes_table()
        case Emit.FINAL:
            return results.at_table()
        case Emit.INTERVALS:
            return results.intervals_table()
    if results.log.declaration.lifetimes:
        return results.intervals_table()
    table, declaration = results.table(), results.log.declaration
    return table.take(pc.sort_indices(table.column(declaration.shown_name(declaration.time))))


def _write(table: pa.Table, form: Form, output: Path | None) -> None:
    from hayase.console.results_view import write_csv, write_json, write_table

    if output is None:
        if form is Form.CSV:
            write_csv(table, sys.stdout.buffer)
        elif form is Form.JSON:
            write_json(table, sys.stdout)
        else:
            write_table(table, sys.stdout, _width())
        sys.stdout.flush()
        return
    draft = output.with_name(f".{output.name}.part")
    try:
        if form is Form.PARQUET:
            import pyarrow.parquet as pq

            pq.write_table(table, draft, compression="zstd")
        elif form is Form.CSV:
            with draft.open("wb") as binary:
                write_csv(table, binary)
        else:
            with draft.open("w", encoding="utf-8") as sink:
                write_json(table, sink) if form is Form.JSON else write_table(table, sink)
        draft.replace(output)
    except OSError as error:
        raise HayaseError(f'"{output}" cannot be written: {error.strerror}; choose another place') from error
    finally:
        draft.unlink(missing_ok=True)


def _width() -> int | None:
    if not sys.stdout.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().columns


def _print_dead_letters(pipeline: Pipeline) -> None:
    """Print the refused records on standard error."""
    from hayase.streams.dead_letters import DEAD

    letters: Any = pipeline.results(DEAD.name).table()
    if not letters.num_rows:
        return
    from hayase.console.results_view import dead_lines

    for line in dead_lines(letters.slice(0, SHOWN).to_pylist(), letters.num_rows):
        errors().print(line, markup=False, soft_wrap=True, style="yellow")
