"""The commands `hayase queries`: add, remove. They change the definition in the home, whether or not the pipeline runs; the
pipeline file stays as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hayase.cli import completion
from hayase.cli.pipeline_location import locate
from hayase.cli.project import Begin
from hayase.cli.terminal import HomeOption, PipelineOption

if TYPE_CHECKING:
    from hayase.engine.definition.definitions import Definition
    from hayase.engine.home import Home

__all__ = ["app"]

app = typer.Typer(
    help="Queries, changed while the pipeline runs: add, remove.",
    epilog='Example: [cyan]hayase queries add large "select user, amount from orders where amount > 100"[/]',
    no_args_is_help=True,
)

New = Annotated[str, typer.Argument(metavar="NAME", help="The name of the query and of its results.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The query.", autocompletion=completion.queries)]
Text = Annotated[str, typer.Argument(metavar="TEXT", help="The query in CQL.")]
From = Annotated[
    Begin, typer.Option("--from", help="Begin with the earliest retained record, or with new records only.")
]


@app.command()
def add(
    name: New, text: Text, begin: From = Begin.EARLIEST, pipeline: PipelineOption = None, home: HomeOption = None
) -> None:
    """Add a query. It stays until it is removed, or until the pipeline file declares its name.

    Example: [cyan]hayase queries add large "select user, amount from orders where amount > 100" --from now[/]
    """
    from hayase.engine.definition.query_changes import add_query

    place = locate(pipeline, home).home
    _report(place, add_query(place, name, text, begin.value), name, "is added")


@app.command()
def remove(name: Name, pipeline: PipelineOption = None, home: HomeOption = None) -> None:
    """Remove a query that was added by command or in the console; its results stay in the home. It is refused for a query of the
    pipeline file, and while other stages read the results.

    Example: [cyan]hayase queries remove large[/]
    """
    from hayase.engine.definition.query_changes import remove_query

    place = locate(pipeline, home).home
    _report(place, remove_query(place, name), name, "is removed")


def _report(home: Home, definition: Definition, name: str, what: str) -> None:
    when = "takes effect at the next batch" if home.is_locked() else "takes effect when the pipeline runs next"
    typer.echo(f"{name} {what}: version {definition.version} of {definition.declaration.name}, which {when}")
