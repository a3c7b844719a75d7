"""The command `hayase explain`: shows the plan of a query in a pipeline file, or of a query over files."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hayase.cli import completion
from hayase.cli.files import (
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
from hayase.cli.query import showing_mistakes
from hayase.core.errors import HayaseError, UnknownName

__all__ = ["explain"]


def explain(
    what: Annotated[
        str, typer.Argument(metavar="FILE|QUERY", help="A pipeline file, or the text of a query with --stream.")
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A query of the file; without it, all of them.",
            show_default=False,
            autocompletion=completion.queries,
        ),
    ] = None,
    stream: StreamOption = None,
    time: TimeOption = None,
    time_unit: TimeUnitOption = None,
    slack: SlackOption = None,
    schema: SchemaOption = None,
    function: FunctionOption = None,
) -> None:
    """Show how a query is understood: its syntax, its logical plan, and its stages.

    Examples:

    [cyan]hayase explain pipeline.yaml totals[/]

    [cyan]hayase explain "select count(*) as n from o \\[Rows 10]" --schema o="time timestamp, amount double"[/]
    """
    if stream or schema:
        if name is not None:
            raise typer.BadParameter("the text is the only query there is", param_hint="NAME")
        _explain_text(what, stream, time, time_unit, slack, schema, function)
    elif Path(what).is_file() or Path(what).suffix in (".yaml", ".yml"):
        _explain_file(Path(what), name)
    else:
        raise HayaseError(
            f'"{what}" is not a pipeline file; if it is a query, say what it reads with --stream NAME=FILE, or with '
            f'--schema NAME="time timestamp, ..."'
        )


def _explain_file(file: Path, name: str | None) -> None:
    from hayase.core.declarations import StreamDeclaration
    from hayase.core.pipeline_file import read_pipeline
    from hayase.cql.explain import explain as explained
    from hayase.engine.definition.check import check_file
    from hayase.engine.definition.stage_graph import lookups_of

    read = read_pipeline(file, partly=True)
    stages = check_file(read)
    names = [query.name for query in read.declaration.queries]
    if name is not None and name not in names:
        raise UnknownName("query", name, names, f" in {file}")
    tables = lookups_of(read.declaration)
    wanted = [name] if name else names
    others = [stage.output for stage in stages if stage.query not in names and not stage.name.startswith("_")]
    streams = (*read.declaration.streams, *(output for output in others if isinstance(output, StreamDeclaration)))
    declaration = replace(read.declaration, streams=streams, jobs=(), operations=())  # their outputs are streams here
    typer.echo("\n\n".join(explained(declaration, query_name, tables).rstrip() for query_name in wanted))


def _explain_text(
    text: str,
    stream: list[str] | None,
    time: list[str] | None,
    time_unit: list[str] | None,
    slack: list[str] | None,
    schema: list[str] | None,
    function: list[str] | None,
) -> None:
    from hayase.core.declarations import PipelineDeclaration, QueryDeclaration
    from hayase.cql.explain import explain as explained
    from hayase.engine.definition.check import check

    with tempfile.TemporaryDirectory(prefix="hayase-explain-") as directory:
        streams = described_streams(stream, time, time_unit, slack, schema)
        declarations = tuple(
            declare_stream(described, local_files(described, Path(directory))) for described in streams
        )
    name = "result"
    while name in {source.name.lower() for source in declarations}:
        name += "_"
    functions = declared_functions(function)
    declaration = PipelineDeclaration("query", declarations, (QueryDeclaration(name, text),), functions=functions)
    with showing_mistakes(text):
        check(declaration)
    typer.echo(explained(declaration, name).rstrip())
