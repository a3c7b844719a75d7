"""The command line, `hayase`: how a command is run, and the exit codes.

Commands import other packages when they run, so that `hayase --help` is quick. A HayaseError, or an error of the system such
as a full disk, ends a command with its text on standard error and exit code 1; wrong usage exits with 2, Ctrl-C with 130.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from typing import Annotated

import typer

from hayase import __version__
from hayase.cli.command_table import CommandGroup
from hayase.cli.terminal import Verbose, errors, is_verbose
from hayase.console.log_output import log_output
from hayase.core.errors import HayaseError
from hayase.core.system_errors import explained_error

__all__ = ["app", "main", "program"]

app = typer.Typer(
    name="hayase",
    cls=CommandGroup,
    help="Exact, live answers over data that never stops arriving, on Apache Spark.",
    epilog="First steps: [cyan]hayase demo[/]    or    [cyan]hayase init shop && cd shop && hayase check[/]",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hayase {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Exact, live answers over data that never stops arriving, on Apache Spark."""
    context.with_resource(log_output(verbose=verbose))


def program() -> None:
    """The entry point of the program `hayase`: `main` in a process of its own.

    The process loads many modules and ends soon. So garbage is collected rarely, and at the end the interpreter is not torn
    down, which takes longer than many commands; with Spark, the normal shutdown runs.
    """
    gc.set_threshold(250_000, 20, 50)
    try:
        main()
    except SystemExit as end:
        if "pyspark" not in sys.modules and isinstance(end.code, int | None):
            with contextlib.suppress(BrokenPipeError):  # the reader of the pipe has closed it
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(end.code or 0)
        raise


def main() -> None:
    """Run the command in `sys.argv`; always raises SystemExit."""
    try:
        app(prog_name="hayase")  # also when it is run as a module
    except (HayaseError, OSError) as error:
        shown = error if isinstance(error, HayaseError) else explained_error(error)
        if is_verbose() or shown is None:
            raise
        from hayase.console.errors import show_error

        show_error(errors(), shown)
        sys.exit(1)
