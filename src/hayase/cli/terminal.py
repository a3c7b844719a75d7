"""Shared by all commands: the consoles for output and errors, progress bars, `-v`, and options that several commands have."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hayase.core.log_files import LogFormat

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = [
    "AsJson",
    "HomeOption",
    "LogFileOption",
    "LogFormatOption",
    "Master",
    "PipelineFile",
    "PipelineOption",
    "Verbose",
    "as_json",
    "errors",
    "is_verbose",
    "output",
    "row_progress",
]

_verbose = False


def _remember(wanted: bool) -> bool:
    """Remember `-v` wherever it is given on the command line."""
    global _verbose
    _verbose = _verbose or wanted
    return wanted


def is_verbose() -> bool:
    """Whether `-v` was given."""
    return _verbose


Verbose = Annotated[
    bool,
    typer.Option("-v", "--verbose", help="Print the log, Spark's log, and tracebacks of errors.", callback=_remember),
]
LogFileOption = Annotated[
    Path | None,
    typer.Option(
        "--log-file",
        metavar="FILE",
        help="Write the log to FILE too; rotated at 10 MiB, 5 older files are kept.",
        show_default=False,
    ),
]
LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", help="Write the log as lines of text or as JSON lines.")
]
PipelineFile = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline file.", show_default=True)]
PipelineOption = Annotated[
    Path | None,
    typer.Option(
        "-p", "--pipeline", metavar="FILE", help="The pipeline file, if not ./pipeline.yaml.", show_default=False
    ),
]
HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home", metavar="DIR", help="The pipeline's home, if not the one its file names.", show_default=False
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master", metavar="M", help="A Spark master, like local[4]; by default all cores here.", show_default=False
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Write JSON lines; the default when the output is not a terminal.")
]


def as_json(wanted: bool) -> bool:
    """Whether to write JSON lines: if `--json` was given, or the output is not a terminal."""
    return wanted or not sys.stdout.isatty()


def output() -> Console:
    """Return the console of standard output."""
    from rich.console import Console

    return Console(highlight=False)


def errors() -> Console:
    """Return the console of standard error."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def row_progress() -> Progress:
    """Return progress bars on standard error, shown only on a terminal; the total number of rows may be unknown."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = errors()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.completed:,} rows"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
