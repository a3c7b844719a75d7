"""Draws conflict-free tables: a list of them, one with the rules that write to it, and rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from hayase.console.figures import bytes_text, clock_text, compact
from hayase.console.listings import facts_grid, plain_table
from hayase.console.records import cell_text
from hayase.core.times import BEGINNING, duration_text
from hayase.tables.payloads import json_bytes

if TYPE_CHECKING:
    from hayase.core.declarations import TableDeclaration

__all__ = ["cells", "row_grid", "table_details", "table_list"]


def table_list(tables: Iterable[Mapping[str, Any]]) -> RenderableType:
    """Show all tables of a pipeline; the numbers of rows and updates are estimates of the store."""
    numbers = ("rows about", "updates about", "size")
    table = plain_table("table", "key", *numbers, "folded up to", "clock", right=numbers)
    for about in tables:
        table.add_row(
            about["name"], ", ".join(about["key"]), compact(about["rows_about"]), compact(about["updates_about"]),
            bytes_text(about["bytes"]), _moment(about["folded_before_us"]), clock_text(about["clock_us"]),
        )  # fmt: skip
    return table


def table_details(
    about: Mapping[str, Any], table: TableDeclaration, rules: Iterable[Mapping[str, Any]]
) -> RenderableType:
    """Show one table: its declaration, its contents, and the rules that write to it."""
    facts = facts_grid()
    facts.add_row("table", Text(table.name, style="bold"))
    facts.add_row("key", ", ".join(table.key))
    pad = max(len(name) for name in table.column_names)
    facts.add_row("columns", Text("\n".join(f"{name:<{pad}}  {kind}" for name, kind in table.columns)))
    facts.add_row("folds after", duration_text(table.fold_after))
    facts.add_row("horizon", f"{duration_text(table.horizon)}: older events are refused")
    facts.add_row("rows", f"about {about['rows_about']:,}")
    facts.add_row("updates", f"about {about['updates_about']:,} that are not folded yet")
    facts.add_row("size", bytes_text(about["bytes"]))
    folded = _moment(about["folded_before_us"])
    facts.add_row("folded up to", folded if folded == "—" else f"{folded}: rows can be read as of then and later")
    facts.add_row("clock", clock_text(about["clock_us"]))
    shown = plain_table("fed by", "when", "key", "column", "value")
    for rule in rules:
        when = "always" if rule["condition"] is None else rule["condition"]
        key, column = ", ".join(rule["key"]), f"{rule['column']}.{rule['method']}"
        shown.add_row(*(Text(text) for text in (rule["source"], when, key, column, rule["value"])))
    feeding = shown if shown.row_count else Text("no rule feeds it", style="yellow")
    return Group(facts, Text(), feeding)


def _moment(time: int | None) -> str:
    return clock_text(BEGINNING if time is None else time)


def row_grid(row: Mapping[str, Any], key: Iterable[str]) -> RenderableType:
    """Show one row, a column per line; sets and maps have an entry per line."""
    parts = set(key)
    shown = facts_grid()
    for name, value in row.items():
        shown.add_row(name, Text("\n".join(_lines(value)), style="bold" if name in parts else ""))
    return shown


def _lines(value: Any) -> list[str]:
    if isinstance(value, dict) and value:
        return [f"{cell_text(name)}: {_text(item)}" for name, item in value.items()]
    if isinstance(value, list) and value:
        return [_text(item) for item in value]
    return [_text(value)]


def cells(row: Mapping[str, Any]) -> dict[str, str | None]:
    """Return a row with its values as text for the cells of a table; null stays null."""
    return {name: None if value is None else _text(value) for name, value in row.items()}


def _text(value: Any) -> str:
    """Return a string as it is, any other value as JSON."""
    return cell_text(value) if isinstance(value, str) else json_bytes(value).decode()
