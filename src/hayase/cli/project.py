"""Commands about a pipeline's declaration: init, check, apply, reset."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hayase.cli.places import DEFAULT, locate
from hayase.cli.terminal import HomeOption, PipelineFile, PipelineOption, output
from hayase.core.errors import HayaseError

__all__ = ["apply", "check", "init", "reset"]


_FIRST_STEPS = (
    "hayase check",
    "hayase append events events.ndjson",
    "hayase run --until-idle",
    "hayase streams tail totals",
)


class Begin(StrEnum):
    """Where a stage begins anew."""

    EARLIEST = "earliest"
    NOW = "now"


def init(directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory to write into.")]) -> None:
    """Write a small pipeline that runs.

    Example: [cyan]hayase init shop[/]
    """
    from hayase.core.templates import template

    files = template()
    taken = [name for name in files if (directory / name).exists()]
    if taken:
        raise HayaseError(f'"{directory}" already has {", ".join(taken)}; choose another directory')
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (directory / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise HayaseError(f'"{directory}" cannot be written: {error.strerror}; choose another directory') from error
    console = output()
    console.print(f"wrote {', '.join(files)} to [bold]{directory}[/]", soft_wrap=True)
    console.print("\nnow try:", style="dim")
    for step in (f"cd {directory}", *_FIRST_STEPS):
        console.print(f"  [cyan]{step}[/]", soft_wrap=True)


def check(file: PipelineFile = DEFAULT) -> None:
    """Find every mistake in a pipeline file, without starting Spark.

    Example: [cyan]hayase check pipeline.yaml[/]
    """
    from hayase.console.tables import declared
    from hayase.core.pipeline_file import read_pipeline
    from hayase.engine.checking import check_file

    read = read_pipeline(file)
    stages = check_file(read)
    console = output()
    console.print(declared(read.declaration, stages))
    counts = f"{_counted(len(read.declaration.streams), 'stream')}, {_counted(len(stages), 'stage')}"
    console.print(f"\n[green]✓[/] {file} is sound: {counts}", soft_wrap=True)


def apply(file: PipelineFile = DEFAULT, home: HomeOption = None) -> None:
    """Make a file the newest definition; a pipeline that runs takes it up at its next batch.

    Example: [cyan]hayase apply pipeline.yaml[/]
    """
    from hayase.engine.definitions import latest

    pipeline = locate(file, home, whole=True)
    before = latest(pipeline.home)
    made = pipeline.apply()
    if before is not None and before.version == made.version:
        typer.echo(f"nothing has changed: {file} is version {made.version} of {pipeline.declaration.name}")
        return
    when = "it is taken up at the next batch" if pipeline.home.is_locked() else "the next run begins with it"
    typer.echo(f"{file} is now version {made.version} of {pipeline.declaration.name}; {when}")


def reset(
    stage: Annotated[str, typer.Argument(metavar="STAGE", help="The stage to begin anew.")],
    start: Annotated[
        Begin, typer.Option("--from", help="The earliest record there is, or only what comes from now on.")
    ],
    pipeline: PipelineOption = None,
    home: HomeOption = None,
) -> None:
    """Let a stage begin anew: its state and its output go, and the stages that read it begin anew too.

    Example: [cyan]hayase reset totals --from earliest[/]
    """
    found = locate(pipeline, home, whole=True)
    made = found.reset(stage, start.value)
    anew = [each.name for each in made.records if each.generation == made.version]
    when = "at the next batch" if found.home.is_locked() else "in the next run"
    typer.echo(f"{', '.join(anew)} will begin anew from {start.value} {when} (version {made.version})")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
