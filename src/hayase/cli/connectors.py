"""The commands `hayase sources` and `hayase outputs`: list, show, pause, resume. They work whether or not the pipeline runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hayase.cli.pipeline_location import locate
from hayase.cli.terminal import AsJson, HomeOption, PipelineOption, as_json, output

if TYPE_CHECKING:
    from hayase.connectors.status import Role
    from hayase.pipeline import Pipeline

__all__ = ["outputs", "sources"]

sources = typer.Typer(
    help="Sources, from which streams get their records: list, show, pause, resume.",
    epilog="Example: [cyan]hayase sources list[/]",
    no_args_is_help=True,
)
outputs = typer.Typer(
    help="Outputs, to which results go: list, show, pause, resume.",
    epilog="Example: [cyan]hayase outputs list[/]",
    no_args_is_help=True,
)


Name = Annotated[str, typer.Argument(metavar="NAME", help="The stream of a source, or the output.")]


def _add_commands(app: typer.Typer, role: Role, noun: str, example: str) -> None:
    """Add the commands of one role; they differ in their words only."""

    def text(what: str, command: str) -> str:
        return f"{what}\n\nExample: [cyan]hayase {role} {command}[/]"

    @app.command("list", help=text(f"List the {role} of a pipeline with their states, rates and lags.", "list"))
    def list_(pipeline: PipelineOption = None, home: HomeOption = None, json: AsJson = False) -> None:
        from hayase.connectors.status import connectors_of, status_of

        located = locate(pipeline, home)
        found = [status_of(located.home, role, each) for each in connectors_of(located.declaration, role)]
        if as_json(json):
            import orjson

            sys.stdout.write("".join(orjson.dumps(status.as_json()).decode() + "\n" for status in found))
            sys.stdout.flush()
        else:
            from hayase.console.connectors_view import connector_list

            output().print(connector_list(found, noun))

    @app.command(
        "show", help=text(f"Show one {noun}: how it is declared, its state and its positions.", f"show {example}")
    )
    def show(name: Name, pipeline: PipelineOption = None, home: HomeOption = None, json: AsJson = False) -> None:
        from hayase.connectors.status import connector_named, status_of

        located = locate(pipeline, home)
        declared = connector_named(located.declaration, role, name)
        status = status_of(located.home, role, declared)
        if as_json(json):
            import orjson

            sys.stdout.write(orjson.dumps({**status.as_json(), "options": dict(declared.options)}).decode() + "\n")
            sys.stdout.flush()
        else:
            from hayase.console.connectors_view import connector_details

            output().print(connector_details(status, declared))

    @app.command(
        "pause",
        help=text(f"Pause a {noun} until it is resumed, also over restarts. Nothing is lost.", f"pause {example}"),
    )
    def pause_(name: Name, pipeline: PipelineOption = None, home: HomeOption = None) -> None:
        from hayase.connectors.status import pause

        located = _with(name, pipeline, home)
        changed = pause(located.home, role, name)
        typer.echo(f"{name} is paused" if changed else f"{name} was paused already")

    @app.command("resume", help=text(f"Let a paused {noun} go on.", f"resume {example}"))
    def resume_(name: Name, pipeline: PipelineOption = None, home: HomeOption = None) -> None:
        from hayase.connectors.status import resume

        located = _with(name, pipeline, home)
        changed = resume(located.home, role, name)
        typer.echo(f"{name} goes on" if changed else f"{name} was not paused")

    def _with(name: str, pipeline: PipelineOption, home: HomeOption) -> Pipeline:
        from hayase.connectors.status import connector_named

        located = locate(pipeline, home)
        connector_named(located.declaration, role, name)
        return located


_add_commands(sources, "sources", "source", "orders")
_add_commands(outputs, "outputs", "output", "alerts")
