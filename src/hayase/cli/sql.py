"""The command `hayase sql`: a prompt for SQL over the relations of a home, or a script from standard input."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from hayase.cli.answer_output import FormOption, chosen_form
from hayase.cli.light_process import hide_pandas
from hayase.cli.terminal import HomeOption, PipelineOption
from hayase.console.stop_signals import INTERRUPTED

if TYPE_CHECKING:
    from hayase.cli.sql_session import Session

__all__ = ["sql"]


def sql(pipeline: PipelineOption = None, home: HomeOption = None, format: FormOption = None) -> None:
    """Ask the queries, tables and streams of a home by SQL, at a prompt, whether or not the pipeline runs.

    A statement ends with a semicolon; Tab completes relations, columns and keywords; Ctrl-C interrupts a statement, Ctrl-D ends.
    Commands begin with a backslash; \\\\? lists them. A script from standard input ends at its first mistake, with exit code 1.

    Example: [cyan]hayase sql --home shop[/]

    A script: [cyan]hayase sql --format csv < report.sql[/]
    """
    form = chosen_form(format, None)
    hide_pandas()
    from hayase.cli.home_query import open_home
    from hayase.cli.sql_session import Session

    with open_home(pipeline, home) as reader:
        session = Session(reader, form)
        if sys.stdin.isatty() and sys.stdout.isatty():
            from hayase.cli.sql_prompt import prompt

            prompt(session)
        else:
            _run_script(session)


def _run_script(session: Session) -> None:
    try:
        is_sound = session.run(sys.stdin.read())
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    if not is_sound:
        raise typer.Exit(1)
