"""The command `hayase query`: asks a home, or runs a continuous query over files, from the first record to the last."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hayase.cli.answer_output import Form, FormOption, OutputOption, chosen_form, write_answer
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
from hayase.cli.light_process import hide_pandas, lighten_process
from hayase.cli.pipeline_location import DEFAULT
from hayase.cli.terminal import HomeOption, PipelineOption, errors, is_verbose
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
"""Up to how many bytes of input the process is a light one; for more, Numba is worth loading."""


class Emit(StrEnum):
    """The form of the results."""

    INTERVALS = "intervals"
    CHANGES = "changes"
    FINAL = "final"


def query(
    text: Annotated[str, typer.Argument(metavar="QUERY", help="The query; - reads it from stdin.")],
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
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            "--at",
            metavar="TIME",
            show_default=False,
            help="The rows that are valid at this time. Over a home also: complete, the latest time that all relations of the "
            "query have reached; latest (the default), each relation at its own.",
        ),
    ] = None,
    pipeline: PipelineOption = None,
    home: HomeOption = None,
    format: FormOption = None,
    output: OutputOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if a record is refused; its reason is printed in any case.")
    ] = False,
    spark: Annotated[bool, typer.Option("--spark", help="Run it on Spark, for large files.")] = False,
) -> None:
    """Answer a query: over the relations of a pipeline's home, or over files without a pipeline.

    Over a home, running or not, QUERY is SQL (or just a name) over queries, tables, streams and dead letters as they are now, all
    from one commit. The home is that of --home, of -p, or of ./pipeline.yaml. Over files (--stream), QUERY is continuous, in CQL,
    from the first record to the last. Rows come from CSV, NDJSON or Parquet; columns and types are inferred, unless --schema gives
    them.

    Examples:

    [cyan]hayase query "select user, spend from totals order by spend desc limit 5" --home shop[/]

    [cyan]hayase query totals --as-of 2026-01-31T12:00Z --format csv[/]

    [cyan]hayase query "select user, sum(amount) as spend from o \\[Range 10 minutes] group by user" -s o=orders.csv[/]

    [cyan]hayase query "select * from o where amount > 100" -s o=orders.ndjson.gz --time placed --strict -o large.parquet[/]

    [cyan]hayase query "select count(*) as n from s" -s s=- --time ts --time-unit ms --emit final < log.csv[/]

    [cyan]hayase query "select vat(amount) as gross from o" -s o=orders.csv -f "vat=x * 1.1"[/]
    """
    form = chosen_form(format, output)
    if not (stream or schema):
        _refuse_file_options(
            time=time, time_unit=time_unit, slack=slack, function=function, no_header=no_header, emit=emit, strict=strict,
            spark=spark,
        )  # fmt: skip
        if pipeline is None and home is None and not DEFAULT.exists():
            raise typer.BadParameter(
                "say what the query reads, like --stream orders=orders.csv for a file, or --home DIR for a pipeline",
                param_hint="--stream",
            )
        lighten_process()
        from hayase.cli.home_query import answer_home

        text = sys.stdin.read() if text == STDIN else text
        write_answer(answer_home(text, pipeline, home, as_of), form, output)
        return
    if pipeline is not None or home is not None:
        raise typer.BadParameter("it is asked without --stream and --schema, which are for files", param_hint="--home")
    if emit is not None and as_of is not None:
        raise typer.BadParameter("it is a choice of its own; give it without --emit", param_hint="--as-of")
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
    refused = _answer_files(text, streams, function or (), emit, as_of, form, output, spark=spark, header=not no_header)
    if strict and refused:
        raise typer.Exit(1)


def _refuse_file_options(**given: object) -> None:
    """Refuse options that describe files, for a query over a home."""
    for name, value in given.items():
        if value:
            raise typer.BadParameter(
                "it is for a query over files; name them with --stream NAME=FILE",
                param_hint=f"--{name.replace('_', '-')}",
            )


def _answer_files(
    text: str,
    streams: Sequence[Described],
    functions: Sequence[str],
    emit: Emit | None,
    as_of: str | None,
    form: Form,
    output: Path | None,
    *,
    spark: bool,
    header: bool,
) -> int:
    """Write the answer over files; return the number of refused records."""
    with tempfile.TemporaryDirectory(prefix="hayase-query-", ignore_cleanup_errors=True) as directory:
        files = {stream.name: local_files(stream, Path(directory)) for stream in streams}
        if not spark:
            _lighten(files, functions)
        with _without_syncing():
            home = Path(directory) / "home"
            pipeline, name = _run_query(text, streams, files, functions, home, spark, header)
            write_answer(_result_table(pipeline.results(name), emit, as_of), form, output)
            return _print_dead_letters(pipeline)


def _lighten(files: Mapping[str, Sequence[Path]], functions: Sequence[str]) -> None:
    """Load less, before anything large is imported: this process ends soon."""
    if sum(path.stat().st_size for paths in files.values() for path in paths) >= SMALL:
        hide_pandas()
    else:
        lighten_process(stand_ins=not functions)  # a Python function may use all of any library


@contextmanager
def _without_syncing() -> Iterator[None]:
    """Write without syncing inside the block: the pipeline of this command is temporary."""
    from hayase.streams import durable

    with durable.without_syncs():
        yield


def _run_query(
    text: str,
    streams: Sequence[Described],
    files: Mapping[str, Sequence[Path]],
    functions: Sequence[str],
    home: Path,
    spark: bool,
    header: bool,
) -> tuple[Pipeline, str]:
    """Run the query over all files; return the pipeline and the name of the query."""
    from hayase.pipeline import Pipeline

    pipeline = Pipeline("query", home, buckets=None if spark else 1)
    pipeline.declaration = replace(pipeline.declaration, functions=declared_functions(functions))
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


def _result_table(results: Results, emit: Emit | None, as_of: str | None) -> pa.Table:
    """Return the results in the form that was asked for, as a table."""
    import pyarrow.compute as pc

    if as_of is not None:
        return results.at_table(as_of)
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


def _print_dead_letters(pipeline: Pipeline) -> int:
    """Print the refused records on standard error; return their number."""
    from hayase.streams.dead_letters import DEAD

    letters: Any = pipeline.results(DEAD.name).table()
    if not letters.num_rows:
        return 0
    from hayase.console.results_view import dead_lines

    for line in dead_lines(letters.slice(0, SHOWN).to_pylist(), letters.num_rows):
        errors().print(line, markup=False, soft_wrap=True, style="yellow")
    return int(letters.num_rows)
