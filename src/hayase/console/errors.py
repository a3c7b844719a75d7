"""Prints errors for people: what, where and what to do, without a traceback."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from hayase.core.errors import DeclarationError, HayaseError, Mistake

__all__ = ["show_error"]


def show_error(console: Console, error: HayaseError) -> None:
    """Print an error: the mistakes of a declaration one per line, in the form that editors parse; others in a panel.

    Without a terminal, print the plain text.
    """
    if isinstance(error, DeclarationError):
        for mistake in error.mistakes:
            console.print(_mistake(mistake), soft_wrap=True)
        if console.is_terminal and len(error.mistakes) > 1:
            console.print(Text(f"{len(error.mistakes)} mistakes", style="bold red"))
    elif console.is_terminal:
        panel = Panel(Text(str(error)), title="error", title_align="left", border_style="red")
        console.print(Padding(panel, (0, 0)))
    else:
        console.print(Text(f"error: {error}"), soft_wrap=True)


def _mistake(mistake: Mistake) -> Text:
    hint = f"; {mistake.hint}" if mistake.hint else ""
    return Text.assemble((mistake.place, "bold"), mistake.message, (hint, "cyan"))
