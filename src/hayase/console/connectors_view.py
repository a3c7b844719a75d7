"""Draws sources and outputs: their states, rates, lags and errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hayase.console.figures import compact
from hayase.console.listings import plain_table
from hayase.core.times import instant_text

if TYPE_CHECKING:
    from hayase.connectors.status import ConnectorStatus
    from hayase.core.declarations import OutputDeclaration, SourceDeclaration

__all__ = ["connector_details", "connector_lines", "connector_list", "connectors_table"]

_STYLES = {"running": "green", "retrying": "red", "paused": "yellow"}


def connectors_table(statuses: Sequence[ConnectorStatus]) -> RenderableType:
    """Draw sources and outputs beside a running pipeline, a line for each: state, rate, what waits, and the last error."""
    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", show_edge=False, expand=True
    )
    table.add_column("source, output", style="bold", no_wrap=True, overflow="ellipsis", max_width=28)
    table.add_column("state", no_wrap=True, min_width=8)
    for name, width in (("per second", 10), ("waiting", 7)):
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    table.add_column("last error", no_wrap=True, overflow="ellipsis", ratio=1)  # the space that is left
    for status in statuses:
        table.add_row(
            _name(status),
            Text(status.state, style=_STYLES.get(status.state, "dim")),
            Text(compact(status.rate), style="green" if status.rate else "dim"),
            Text("—" if status.lag is None else compact(status.lag), style="yellow" if status.lag else "dim"),
            Text(_one_line(status.last_error), style="red" if status.error else "dim", overflow="ellipsis"),
        )
    return table


def connector_lines(statuses: Sequence[ConnectorStatus]) -> list[str]:
    """Return a line of text for each source and output of a running pipeline."""
    lines = []
    for status in statuses:
        waiting = "" if status.lag is None else f", waiting {status.lag}"
        error = f", last error: {_one_line(status.last_error)}" if status.last_error else ""
        lines.append(
            f"{_name(status)}: {status.state}, {status.rate:.0f} per second, moved {status.records}{waiting}"
            + (f", failed attempts {status.attempts}" if status.attempts else "")
            + error
        )
    return lines


def _name(status: ConnectorStatus) -> str:
    return f"{status.role.removesuffix('s')} {status.name}"


def _one_line(error: str | None) -> str:
    return " ".join((error or "").split())


def connector_list(statuses: Sequence[ConnectorStatus], noun: str) -> RenderableType:
    """Show sources or outputs, one in a row, and below them the errors of those that are tried again."""
    if not statuses:
        return f"the pipeline has no {noun}s"
    numbers = ("moved", "per second", "waiting")
    table = plain_table(noun, "kind", "state", *numbers, right=numbers)
    for status in statuses:
        lag = "—" if status.lag is None else f"{status.lag:,}"
        state = Text(status.state, _STYLES.get(status.state, ""))
        table.add_row(status.name, status.kind, state, f"{status.records:,}", f"{status.rate:,.0f}", lag)
    errors = [Text(f"\n{status.name}: {status.error}", "red") for status in statuses if status.error]
    return Group(table, *errors)


def connector_details(status: ConnectorStatus, declared: SourceDeclaration | OutputDeclaration) -> RenderableType:
    """Show one source or output."""
    table = plain_table("", "")
    table.add_row("kind", status.kind)
    table.add_row("target", status.target)
    table.add_row("state", Text(status.state, _STYLES.get(status.state, "")))
    if status.error:
        since = f" since {instant_text(status.since)}" if status.since else ""
        table.add_row("error", Text(f"{status.error} ({status.attempts} attempts{since})", "red"))
    elif status.last_error and status.failed:
        table.add_row("last error", f"{status.last_error} (at {instant_text(status.failed)})")
    table.add_row("moved", f"{status.records:,} since the pipeline started, {status.rate:,.1f} per second")
    table.add_row("waiting", "—" if status.lag is None else f"{status.lag:,}")
    for name, value in declared.options:
        table.add_row(name, str(value))
    for name, position in status.positions:
        table.add_row(f"at {name}", position)
    return table
