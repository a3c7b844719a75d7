"""Tables that commands print: streams, declarations of a pipeline, findings of the doctor, ratios of a benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hayase.console.figures import bytes_text, clock_text
from hayase.core.declarations import TableDeclaration
from hayase.core.schemas import ddl
from hayase.core.times import duration_text

if TYPE_CHECKING:
    from hayase.core.declarations import PipelineDeclaration, Retention, StreamDeclaration
    from hayase.core.stages import Stage
    from hayase.engine.doctor import Finding

__all__ = ["declared", "facts_grid", "findings", "plain_table", "ratios", "stream_details", "stream_list"]

_MARKS = {"good": ("✓", "green"), "advice": ("!", "yellow"), "missing": ("✗", "bold red")}


def plain_table(*columns: str, right: Iterable[str] = ()) -> Table:
    """Return a table without a frame, its first column bold; the columns in `right` are right-aligned."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", show_edge=False)
    numbers = set(right)
    for name in columns:
        style = "bold" if name == columns[0] else None
        table.add_column(name, style=style, justify="right" if name in numbers else "left", overflow="fold")
    return table


def facts_grid() -> Table:
    """Return a grid of two columns for names and values."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    return grid


def declared(declaration: PipelineDeclaration, stages: Sequence[Stage]) -> RenderableType:
    """Show what a pipeline file declares: its streams, its stages, and its tables with their input streams."""
    streams = plain_table("stream", "columns", "time", "slack")
    for stream in declaration.streams:
        streams.add_row(stream.name, ", ".join(stream.arrow_schema.names), _time(stream), duration_text(stream.slack))
    queries = plain_table("stage", "reads", "kind", "writes")
    tables = plain_table("table", "key", "columns", "fed by", "folds after", "horizon")
    for stage in stages:
        inputs = ", ".join(dict.fromkeys(source.stream for source in stage.inputs))
        if isinstance(stage.output, TableDeclaration):
            _add_table(tables, stage.output, inputs)
        else:
            kind = "row by row" if stage.kernel is None else "keyed, in time order"
            queries.add_row(stage.name, inputs, kind, ", ".join(stage.output.shown_schema.names))
    fed = {stage.name for stage in stages}
    for table in declaration.tables:
        if table.name not in fed:
            _add_table(tables, table, "nothing yet")
    parts: list[RenderableType] = []
    for part in (streams, queries, tables):
        if part.row_count:
            parts += [Text(), part] if parts else [part]
    return Group(*parts)


def _add_table(tables: Table, table: TableDeclaration, inputs: str) -> None:
    columns = "\n".join(f"{name} {kind}" for name, kind in table.columns)
    ages = (duration_text(table.fold_after), duration_text(table.horizon))
    tables.add_row(table.name, ", ".join(table.key), columns, inputs, *ages)


def _time(stream: StreamDeclaration) -> str:
    return f"{stream.time} ({stream.time_unit})" if stream.time_unit else stream.time


def stream_list(streams: Iterable[Mapping[str, Any]]) -> RenderableType:
    """Show all streams of a pipeline."""
    numbers = ("records", "size", "segments")
    table = plain_table("stream", "kind", *numbers, "latest event", right=numbers)
    for stream in streams:
        table.add_row(
            stream["name"], stream["kind"], f"{stream['records']:,}", bytes_text(stream["bytes"]), f"{stream['segments']:,}",
            clock_text(stream["latest_us"]) + (" (finished)" if stream["finished"] else ""),
        )  # fmt: skip
    return table


def stream_details(about: Mapping[str, Any], declaration: StreamDeclaration) -> RenderableType:
    """Show one stream: its declaration, its records and its readers."""
    grid = facts_grid()
    grid.add_row("stream", Text(f"{about['name']} ({about['kind']})", style="bold"))
    grid.add_row("schema", Text("\n".join(_columns(declaration))))
    disorder = f", at most {duration_text(declaration.slack)} out of order" if declaration.slack else ""
    grid.add_row("time", _time(declaration) + disorder)
    if declaration.id:
        grid.add_row("id", declaration.id)
    grid.add_row("max ahead", "no limit" if declaration.max_ahead is None else duration_text(declaration.max_ahead))
    if declaration.idle_after is not None:
        grid.add_row("idle after", duration_text(declaration.idle_after))
    grid.add_row("retention", retention_text(declaration.retention))
    offsets = f"{about['start']:,} to {about['next'] - 1:,}" if about["records"] else "none"
    grid.add_row("records", f"{about['records']:,} (offsets {offsets})")
    grid.add_row(
        "size", f"{bytes_text(about['bytes'])} in {about['segments']:,} segment{'s' * (about['segments'] != 1)}"
    )
    if about["records"]:
        grid.add_row("events", f"{clock_text(about['earliest_us'])} to {clock_text(about['latest_us'])}")
    grid.add_row("clock", clock_text(about["clock_us"]))
    for name, reader in about["readers"].items():
        behind = f"{reader['behind']:,} behind" if reader["behind"] else "caught up"
        grid.add_row(f"read by {name}", f"at {reader['at']:,}, {behind}")
    return grid


def _columns(declaration: StreamDeclaration) -> list[str]:
    names, schema = declaration.shown_schema.names, ddl(declaration.shown_schema)
    pad = max(map(len, names))
    described = schema.split(", ")
    if len(described) != len(names):  # a nested column
        return [schema]
    return [f"{name:<{pad}}  {column.removeprefix(name).strip()}" for name, column in zip(names, described)]


def retention_text(retention: Retention) -> str:
    """Format the retention of a stream."""
    parts = [] if retention.age is None else [duration_text(retention.age)]
    parts += [] if retention.size is None else [bytes_text(retention.size)]
    return f"at most {' and '.join(parts)}" if parts else "everything"


def findings(results: Iterable[Finding]) -> RenderableType:
    """Show the findings of the doctor, with advice where there is any."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for finding in results:
        text = Text(finding.found)
        if finding.advice:
            text.append(f"\n{finding.advice}", style="cyan")
        grid.add_row(Text(*_MARKS[finding.state]), finding.what, text)
    return grid


def ratios(measured: Mapping[str, Any]) -> RenderableType:
    """Show the ratios of a benchmark."""
    table = plain_table("ratio", "measured", right=("measured",))
    for name, value in measured.items():
        table.add_row(name, f"{value:.3g}" if isinstance(value, float) else str(value))
    return table
