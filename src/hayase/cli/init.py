"""The command `hayase init`: writes a small working pipeline from a template."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hayase.cli.completion import templates
from hayase.cli.terminal import output
from hayase.core.errors import HayaseError

__all__ = ["init"]

_FIRST_STEPS = {
    "queries": ("hayase append events events.ndjson", "hayase run --until-idle", "hayase show totals"),
    "tables": ("hayase append events events.ndjson", "hayase run --until-idle", "hayase show purchases"),
    "jobs": (
        "hayase groups load blocklist blocklist.csv",
        "hayase append logs logs.ndjson",
        "hayase run --until-idle",
        "hayase show alerts",
    ),
    "operations": ("hayase append orders orders.ndjson", "hayase run --until-idle", "hayase show scores"),
    "all": (
        "hayase groups load blocklist blocklist.csv",
        "hayase append orders orders.ndjson",
        "hayase append logs logs.ndjson",
        "hayase run --until-idle",
        "hayase show purchases",
    ),
}


def init(
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="The directory to write into.", show_default=False)
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            "--template",
            "-t",
            metavar="NAME",
            autocompletion=templates,
            help="What the pipeline shows: queries, tables, jobs, operations, or all.",
        ),
    ] = "queries",
    listed: Annotated[bool, typer.Option("--list", help="List the templates, and write nothing.")] = False,
) -> None:
    """Write a small working pipeline with sample data, and print the first commands to try. No file is overwritten.

    Example: [cyan]hayase init shop --template tables[/]

    What there is: [cyan]hayase init --list[/]
    """  # fmt: skip
    from hayase.cli.templates import TEMPLATES, template

    if listed:
        for known, about in TEMPLATES.items():
            typer.echo(f"{known:<12} {about}")
        return
    if directory is None:
        raise typer.BadParameter("say where to write, like `hayase init shop`", param_hint="DIR")
    files = template(name)
    taken = [file for file in files if (directory / file).exists()]
    if taken:
        raise HayaseError(f'"{directory}" already has {", ".join(taken)}; choose another directory')
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (directory / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise HayaseError(f'"{directory}" cannot be written: {error.strerror}; choose another directory') from error
    console = output()
    console.print(f"wrote {', '.join(files)} to [bold]{directory}[/]", soft_wrap=True)
    console.print("\nnow try:", style="dim")
    for step in (f"cd {directory}", "hayase check", *_FIRST_STEPS[name]):
        console.print(f"  [cyan]{step}[/]", soft_wrap=True)
