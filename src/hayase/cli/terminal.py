"""The terminal that commands share: where they write, whether they say more, and options that several of them have."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hayase.console.log_output import LogFormat

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
    """`-v` counts wherever it stands on the line."""
    global _verbose
    _verbose = _verbose or wanted
    return wanted


def is_verbose() -> bool:
    """Whether the person asked for more than the text of an error."""
    return _verbose


Verbose = Annotated[
    bool,
    typer.Option(
        "-v", "--verbose", help="Say more: the log, Spark's log, and tracebacks of errors.", callback=_remember
    ),
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
AsJson = Annotated[bool, typer.Option("--json", help="JSON lines, as always when the output is not a terminal.")]


def as_json(wanted: bool) -> bool:
    """Whether to write JSON lines: if that is wanted, or nobody looks."""
    return wanted or not sys.stdout.isatty()


def output() -> Console:
    """The console on stdout."""
    from rich.console import Console

    return Console(highlight=False)


def errors() -> Console:
    """The console on stderr."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def row_progress() -> Progress:
    """Bars on stderr, seen only on a terminal. How many rows there will be need not be known."""
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
