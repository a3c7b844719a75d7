"""The commands `check`, `schema`, `plan`, `apply`, `reset` and `rebucket`, which are about the declaration of a pipeline."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hayase.cli.pipeline_location import DEFAULT, locate
from hayase.cli.terminal import HomeOption, PipelineFile, PipelineOption, output

if TYPE_CHECKING:
    from hayase.engine.definition.diff import Preview

__all__ = ["Begin", "apply", "check", "plan", "rebucket", "reset", "schema"]


class Begin(StrEnum):
    """Where a stage begins after a reset."""

    EARLIEST = "earliest"
    NOW = "now"


def check(
    file: PipelineFile = DEFAULT,
    connect: Annotated[
        bool,
        typer.Option("--connect", help="Also connect to what sources and outputs name; nothing is read or written."),
    ] = False,
) -> None:
    """Find every mistake in a pipeline file, without starting Spark.

    Example: [cyan]hayase check pipeline.yaml[/]

    With its sources and outputs: [cyan]hayase check --connect[/]
    """
    from hayase.connectors.kinds import check_classes
    from hayase.console.listings import declared
    from hayase.core.pipeline_file import read_pipeline
    from hayase.engine.definition.check import check_file

    read = read_pipeline(file, partly=True)
    stages = check_file(read)
    check_classes(read.declaration)
    console = output()
    console.print(declared(read.declaration, stages))
    counts = f"{_counted(len(read.declaration.streams), 'stream')}, {_counted(len(stages), 'stage')}"
    if connect:
        from hayase.connectors.transfers import connect_all

        for connector in connect_all(read.declaration, stages):
            console.print(f"[green]✓[/] {connector} can be reached", soft_wrap=True)
    console.print(f"\n[green]✓[/] {file} is sound: {counts}", soft_wrap=True)


def schema() -> None:
    """Print the JSON schema of pipeline files, with which editors complete and check them.

    Example: [cyan]hayase schema > pipeline.schema.json[/]
    """
    import orjson

    from hayase.core.pipeline_schema import pipeline_schema
    from hayase.governor import POLICIES
    from hayase.tables import TYPES

    text = orjson.dumps(pipeline_schema(TYPES, POLICIES), option=orjson.OPT_INDENT_2).decode()
    sys.stdout.write(f"{text}\n")


def plan(
    file: PipelineFile = DEFAULT,
    home: HomeOption = None,
    json: Annotated[bool, typer.Option("--json", help="A JSON object instead of text.")] = False,
) -> None:
    """Show what applying a file would change in its home, without changing anything.

    For every stream, table and stage: whether it is kept, changed in place, added, removed, or must be rebuilt, with the
    command that lets it begin anew. The exit code is 1 if the change would be refused.

    Example: [cyan]hayase plan pipeline.yaml[/]
    """
    from hayase.engine.definition.diff import preview

    pipeline = locate(file, home, whole=True)
    difference = preview(pipeline.home, pipeline.declaration)
    if json:
        import orjson

        sys.stdout.write(orjson.dumps(difference.as_json(), option=orjson.OPT_INDENT_2).decode() + "\n")
        sys.stdout.flush()
    else:
        _show(difference)
        typer.echo(f"\n{_verdict(difference, file, pipeline.declaration.name)}")
    if not difference.is_possible:
        raise typer.Exit(1)


def _verdict(difference: Preview, file: Path, name: str) -> str:
    if not difference.is_possible:
        return "as it is, this change is refused"
    if difference.version and difference.changes_nothing:
        return f"nothing would change: {file} is version {difference.version} of {name}"
    return f"`hayase apply {file}` would make this version {difference.version + 1}"


def apply(
    file: PipelineFile = DEFAULT,
    home: HomeOption = None,
    beside: Annotated[
        bool,
        typer.Option(
            "--beside", help="Build changed queries beside the old ones, which answer until they have caught up."
        ),
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Give up what --beside builds; the old version stays.")
    ] = False,
) -> None:
    """Make a file the newest definition; a running pipeline takes it up at its next batch.

    Example: [cyan]hayase apply pipeline.yaml[/]

    Without a reset, for queries that must begin anew: [cyan]hayase apply pipeline.yaml --beside[/]

    What it would do: [cyan]hayase plan pipeline.yaml[/]
    """
    from hayase.engine.definition.definitions import latest
    from hayase.engine.definition.diff import done

    if beside and cancel:
        raise typer.BadParameter("say --beside or --cancel, not both", param_hint="--cancel")
    pipeline = locate(file, home, whole=True)
    before = latest(pipeline.home)
    when = "it is taken up at the next batch" if pipeline.home.is_locked() else "the next run begins with it"
    if cancel:
        version = pipeline.cancel().version
        typer.echo(f"nothing is built beside {pipeline.declaration.name} any more (version {version}); {when}")
        return
    definition = pipeline.apply(beside=beside)
    if before is not None and before.version == definition.version:
        typer.echo(f"nothing has changed: {file} is version {definition.version} of {pipeline.declaration.name}")
        return
    _show(done(before, definition))
    if definition.build is not None:
        begins = "the next batch" if pipeline.home.is_locked() else "the next run"
        typer.echo(
            f"\n{file} is built beside {pipeline.declaration.name} from {begins} on (version {definition.version}), and replaces it"
        )
        return
    typer.echo(f"\n{file} is now version {definition.version} of {pipeline.declaration.name}; {when}")


def reset(
    start: Annotated[
        Begin, typer.Option("--from", help="Begin with the earliest retained record, or with new records only.")
    ],
    stages: Annotated[
        list[str] | None, typer.Argument(metavar="STAGE...", help="The stages to begin anew.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All stages.")] = False,
    pipeline: PipelineOption = None,
    home: HomeOption = None,
) -> None:
    """Reset stages: remove their state and output and begin anew, together with the stages that read them.

    Example: [cyan]hayase reset totals --from earliest[/]

    When the newest manifest or definition is lost: [cyan]hayase reset --all --from earliest[/]
    """
    if (not stages) != everything:
        raise typer.BadParameter("name the stages, or say --all", param_hint="STAGE")
    located = locate(pipeline, home, whole=True)
    definition = located.reset(stages, start.value) if stages else located.reset_all(start.value)
    anew = [record.name for record in definition.records if record.generation == definition.version]
    when = "at the next batch" if located.home.is_locked() else "in the next run"
    typer.echo(f"{', '.join(anew)} will begin anew from {start.value} {when} (version {definition.version})")


def rebucket(
    buckets: Annotated[int, typer.Argument(metavar="N", help="The number of buckets, 1 to 1024.", show_default=False)],
    pipeline: PipelineOption = None,
    home: HomeOption = None,
) -> None:
    """Change the number of buckets of a home, without losing or doubling anything.

    Queries with state are built anew beside the old ones, which answer until the new ones have caught up.

    Example: [cyan]hayase rebucket 16[/]
    """
    located = locate(pipeline, home, whole=True)
    definition = located.rebucket(buckets)
    if definition.build is None:
        typer.echo(f"{located.declaration.name} has {definition.buckets} buckets (version {definition.version})")
        return
    begins = "the next batch" if located.home.is_locked() else "the next run"
    typer.echo(
        f"{located.declaration.name} is built in {buckets} buckets from {begins} on (version {definition.version}); it has "
        f"{definition.buckets} until that has caught up. Say `buckets: {buckets}` in its file then, or nothing"
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


_STYLES = {"kept": "dim", "added": "green", "removed": "red", "rebuilt": "bold red", "refused": "bold red"}


def _show(preview: Preview) -> None:
    """Print what becomes of every stream, table and stage, one per line."""
    from rich.text import Text

    from hayase.console.listings import plain_table

    table = plain_table("name", "what", "becomes", "")
    for difference in preview.differences:
        table.add_row(
            difference.name,
            difference.kind,
            Text(difference.fate, _STYLES.get(difference.fate, "yellow")),
            difference.note,
        )
    output().print(table)
