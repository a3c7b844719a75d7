"""The commands `hayase tables`: list, show, get, scan, export. They read the store, whether or not the pipeline runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hayase.cli import completion
from hayase.cli.pipeline_location import locate, reading, table_of, tables_of
from hayase.cli.terminal import AsJson, HomeOption, PipelineOption, as_json, errors, output, row_progress
from hayase.core.errors import HayaseError, UnknownName, nearest

if TYPE_CHECKING:
    from hayase.core.declarations import TableDeclaration
    from hayase.pipeline import Pipeline
    from hayase.tables.table import Table

__all__ = ["app"]

app = typer.Typer(
    help="Read tables: list, show, get, scan, export.",
    epilog="Example: [cyan]hayase tables get purchases taro[/]",
    no_args_is_help=True,
)

TOGETHER = 1_000
"""Rows that are read and printed at once."""
CLOSE = 100
"""How many rows are searched for a similar key when a key is unknown."""

Name = Annotated[
    str, typer.Argument(metavar="TABLE", help="The table, as it is declared.", autocompletion=completion.tables)
]
AsOf = Annotated[
    str | None,
    typer.Option("--as-of", metavar="TIME", help="As of this event time, like 2026-01-31T12:00Z.", show_default=False),
]
Columns = Annotated[
    str | None,
    typer.Option("--columns", metavar="A,B", help="Only these columns, beside the key.", show_default=False),
]
JsonKey = Annotated[
    bool,
    typer.Option("--json-key", help="Parse the parts of the key as JSON, like 42 or true; by default they are text."),
]


@app.command("list")
def list_(pipeline: PipelineOption = None, home: HomeOption = None, json: AsJson = False) -> None:
    """List the tables of a pipeline: their keys, approximate numbers of rows and updates, and clocks.

    Example: [cyan]hayase tables list[/]
    """
    located = locate(pipeline, home)
    about = [_about(located, table) for table in tables_of(located)]
    if as_json(json):
        _write(about)
    elif about:
        from hayase.console.table_view import table_list

        output().print(table_list(about))
    else:
        hint = 'declare one below "tables:" in its file'
        errors().print(f'no tables in the pipeline "{located.declaration.name}"; {hint}', style="dim", markup=False)


@app.command()
def show(name: Name, pipeline: PipelineOption = None, home: HomeOption = None, json: AsJson = False) -> None:
    """Show one table: its declaration, its contents, and the rules that write to it.

    Example: [cyan]hayase tables show purchases[/]
    """
    located = locate(pipeline, home)
    table = table_of(located, name)
    about, rules = _about(located, table), _rules_of(located, table)
    if as_json(json):
        ages = {"fold_after_us": table.fold_after, "horizon_us": table.horizon}
        _write([{**about, "columns": dict(table.columns), **ages, "rules": rules}])
    else:
        from hayase.console.table_view import table_details

        output().print(table_details(about, table, rules))


@app.command()
def get(
    name: Name,
    key: Annotated[list[str], typer.Argument(metavar="KEY", help="The key: its parts in their order.")],
    as_of: AsOf = None,
    columns: Columns = None,
    json_key: JsonKey = False,
    pipeline: PipelineOption = None,
    home: HomeOption = None,
    json: AsJson = False,
) -> None:
    """Print one row: the values of a key now, or as of an event time that has not been folded yet.

    Without such a row the exit code is 1. Put -- before a key that begins with a dash.

    Example: [cyan]hayase tables get purchases taro --as-of 2026-01-31T12:00Z[/]

    A composite key with a number in it: [cyan]hayase tables get by_country '"jp"' 42 --json-key[/]
    """
    located = locate(pipeline, home)
    table = table_of(located, name)
    parts = _key_parts(table, key, json_key, whole=True)
    with reading(located, table) as reader:
        row = reader.get(parts, columns=_chosen_columns(table, columns), as_of=_instant(as_of))
        if row is None:
            raise HayaseError(_missing_row_text(reader, parts, key, as_of, json_key))
    whole = {**dict(zip(table.key, parts)), **row}
    if as_json(json):
        _write([whole])
    else:
        from hayase.console.table_view import row_grid

        output().print(row_grid(whole, table.key))


@app.command()
def scan(
    name: Name,
    prefix: Annotated[
        list[str] | None,
        typer.Argument(metavar="PREFIX", help="The first parts of the keys, each whole.", show_default=False),
    ] = None,
    begins: Annotated[
        str | None,
        typer.Option("--begins", metavar="TEXT", help="The next part of the key begins with TEXT.", show_default=False),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="Print at most N rows.", min=0, show_default=False)
    ] = None,
    as_of: AsOf = None,
    columns: Columns = None,
    json_key: JsonKey = False,
    pipeline: PipelineOption = None,
    home: HomeOption = None,
    json: AsJson = False,
) -> None:
    """Print rows in the order of their keys, all or those with a prefix, from one state of the table.

    Example: [cyan]hayase tables scan purchases --begins ta --limit 20[/]

    All of one country, into a pipe: [cyan]hayase tables scan by_country jp | jq .total[/]
    """
    located = locate(pipeline, home)
    table = table_of(located, name)
    parts = _key_parts(table, prefix or [], json_key, whole=False)
    if begins is not None and len(parts) == len(table.key):
        raise HayaseError(
            f"--begins speaks of the part behind the prefix, and {_key_description(table)}; leave one of them out"
        )
    chosen, moment = _chosen_columns(table, columns), _instant(as_of)
    write, shown = _write if as_json(json) else _Printer().print, False
    with reading(located, table) as reader:
        for rows in _pages(reader, limit, prefix=parts, text_prefix=begins, columns=chosen, as_of=moment):
            write(rows)
            shown = True
    if not (shown or limit == 0 or as_json(json)):
        errors().print(f"no rows in {name}" + (" with such keys" if parts or begins else " yet"), style="dim")


@app.command()
def export(
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file ending in .parquet, .csv or .ndjson.")],
    as_of: AsOf = None,
    columns: Columns = None,
    pipeline: PipelineOption = None,
    home: HomeOption = None,
) -> None:
    """Write all rows to a file, from one state of the table, in bounded memory.

    In Parquet and CSV a Counter is a double, a Register is text (other values as JSON), a set is a list, a map is a map.
    NDJSON keeps every value exactly.

    Example: [cyan]hayase tables export purchases purchases.parquet[/]
    """
    from hayase.cli.exports import write_table

    located = locate(pipeline, home)
    table = table_of(located, name)
    chosen, moment = _chosen_columns(table, columns), _instant(as_of)
    with reading(located, table) as reader, row_progress() as progress:
        bar = progress.add_task(f"from {name}", total=reader.info().keys or None)
        pages = _pages(reader, None, columns=chosen, as_of=moment)
        done = write_table(table, chosen, pages, file, lambda rows: progress.advance(bar, rows))
    typer.echo(f"wrote {done.rows:,} rows of {name} to {file}")
    for column, count in done.rounded.items():
        values = "value was" if count == 1 else "values were"
        note = f"{count:,} {values} rounded in {column}, to what a double holds; .ndjson keeps every digit"
        errors().print(note, style="yellow", markup=False, soft_wrap=True)
    for column in done.mixed:
        note = f"{column} has texts beside other values, which are texts too in {file.name}; .ndjson tells them apart"
        errors().print(note, style="yellow", markup=False, soft_wrap=True)
    for column, kind in table.columns:
        if kind in ("DistinctCount", "Quantiles") and (chosen is None or column in chosen):
            note = (
                f"{column} is a {kind}: the file has what it comes to, not what was counted; it cannot be loaded again"
            )
            errors().print(note, style="yellow", markup=False, soft_wrap=True)


def _write(rows: Sequence[Mapping[str, Any]]) -> None:
    """Write JSON lines, numbers in full."""
    from hayase.tables.payloads import json_bytes

    sys.stdout.write("".join(json_bytes(row).decode() + "\n" for row in rows))
    sys.stdout.flush()


def _about(pipeline: Pipeline, table: TableDeclaration) -> dict[str, Any]:
    """Return the figures of a table from its store and the last commit; times are microseconds."""
    from hayase.core.times import BEGINNING

    with reading(pipeline, table) as reader:
        info = reader.info()
    inputs = pipeline.progress().offset.positions.get(table.name, {})
    return {
        "name": table.name,
        "key": list(table.key),
        "rows_about": info.keys,
        "updates_about": info.payloads,
        "bytes": info.bytes,
        "folded_before_us": info.folded_before,
        "clock_us": min((position.clock for position in inputs.values()), default=BEGINNING),
    }


def _rules_of(pipeline: Pipeline, table: TableDeclaration) -> list[dict[str, Any]]:
    """Return the updates of all rules that write to the table, in their order."""
    from hayase.tables import TYPES
    from hayase.tables.table_planner import read_declared

    kinds = dict(table.columns)
    return [
        {
            "rules": file.name, "source": source.source, "condition": branch.condition, "key": list(update.key),
            "column": update.column, "method": update.method or TYPES[kinds[update.column]].methods[0],
            "value": update.value,
        }
        for file in pipeline.declaration.rules
        for source in read_declared(file.name, file.text).rules.sources
        for branch in source.branches
        for rules in branch.tables
        if rules.table == table.name
        for update in rules.updates
        if update.column in kinds
    ]  # fmt: skip


def _key_parts(table: TableDeclaration, texts: Sequence[str], json_key: bool, *, whole: bool) -> tuple[Any, ...]:
    """Return the parts of a key as values: strings, or with `json_key` parsed JSON."""
    if len(texts) > len(table.key) or (whole and len(texts) < len(table.key)):
        count = f"{len(texts)} {'was' if len(texts) == 1 else 'were'} given"
        raise HayaseError(f"{_key_description(table)}, and {count}; quote a part with spaces in it")
    return tuple(_value(text) for text in texts) if json_key else tuple(texts)


def _key_description(table: TableDeclaration) -> str:
    parts = "part" if len(table.key) == 1 else "parts"
    return f'the key of table "{table.name}" has {len(table.key)} {parts} ({", ".join(table.key)})'


def _value(text: str) -> Any:
    from hayase.tables.jq_numbers import read

    try:
        value = read(text)
    except ValueError as error:
        raise HayaseError(
            f"""{text} is not JSON: {error}; write a text as '"{text}"', or leave out --json-key"""
        ) from error
    if value is None or isinstance(value, (list, dict)):
        raise HayaseError(f"{text} cannot be part of a key; it must be a text, a number or a boolean")
    return value


def _chosen_columns(table: TableDeclaration, columns: str | None) -> list[str] | None:
    if columns is None:
        return None
    chosen = list(dict.fromkeys(part.strip() for part in columns.split(",") if part.strip()))
    for name in chosen:
        if name not in table.column_names:
            raise UnknownName("column", name, table.column_names, f' of table "{table.name}"')
    return chosen


def _instant(text: str | None) -> int | None:
    from hayase.core.times import instant

    return None if text is None else instant(text)


def _missing_row_text(
    table: Table, key: tuple[Any, ...], texts: Sequence[str], as_of: str | None, json_key: bool
) -> str:
    """Return the error for a key that the table does not have, with a similar key if there is one."""
    name = table.declaration.name
    what = f'table "{name}" has no row {_key_text(key)}' + ("" if as_of is None else f" as of {as_of}")
    if as_of is not None and table.get(key, columns=()) is not None:
        return f"{what}; it came later: leave out --as-of"
    typed = key if json_key else tuple(_parsed_or_text(text) for text in texts)
    if typed != key and table.get(typed, columns=()) is not None:
        return f"{what}, but {_key_text(typed)}; write each part as JSON and add --json-key"
    last = key[-1]
    if isinstance(last, str) and last:
        page = table.scan(key[:-1], text_prefix=last[:1], limit=CLOSE, columns=())
        close = nearest(last, [str(other[-1]) for other, _ in page.rows])
        if "did you mean" in close:
            return what + close
    return f"{what}; `hayase tables scan {name}` lists the rows there are"


def _parsed_or_text(text: str) -> Any:
    """Return the value of a part of a key if it is JSON, else the text."""
    try:
        return _value(text)
    except HayaseError:
        return text


def _key_text(key: tuple[Any, ...]) -> str:
    from hayase.tables.payloads import json_bytes

    return " ".join(json_bytes(part).decode() for part in key)


def _pages(table: Table, limit: int | None, **wanted: Any) -> Iterator[list[dict[str, Any]]]:
    """Yield rows page by page, the parts of the key first."""
    left, after = limit, None
    while left is None or left > 0:
        page = table.scan(after=after, limit=TOGETHER if left is None else min(left, TOGETHER), **wanted)
        if page.rows:
            yield [{**dict(zip(table.declaration.key, key)), **row} for key, row in page.rows]
        after = page.next
        left = None if left is None else left - len(page.rows)
        if after is None:
            return


class _Printer:
    """Prints pages of rows on a terminal; the first page decides the widths of the columns."""

    def __init__(self) -> None:
        self._columns: Any = None
        self._shown = 0

    def print(self, rows: Sequence[Mapping[str, Any]]) -> None:
        from hayase.console.records import Columns, record_table
        from hayase.console.table_view import cells

        console = output()
        texts, first, header = [cells(row) for row in rows], self._shown + 1, self._columns is None
        if self._columns is None:
            self._columns = Columns(list(texts[0]), texts, first + len(texts), console.width)
        console.print(record_table(self._columns, first, texts, header=header))
        self._shown += len(rows)
