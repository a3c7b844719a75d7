"""The command `hayase show`: the rows of one relation of a home, now, as of a time, with their lifetimes, or as they change."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hayase.cli import completion
from hayase.cli.answer_output import Form, FormOption, OutputOption, chosen_form, write_answer
from hayase.cli.light_process import lighten_process
from hayase.cli.terminal import HomeOption, PipelineOption, errors
from hayase.core.errors import HayaseError

if TYPE_CHECKING:
    import pyarrow as pa

    from hayase.relations import HomeReader
    from hayase.relations.relation import PresentRows, Records, Relation

__all__ = ["show"]

ON_TERMINAL = 1_000
"""How many rows a terminal gets, unless --limit says another number."""
FOLLOWED = 10
"""How many records of a stream come before those that are followed, unless --limit says another number."""
_ALL = 2**31 - 1


def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A query, table or stream, dead_letters, or figures like hayase.stages.",
            autocompletion=completion.relations,
        ),
    ],
    as_of: Annotated[
        str | None,
        typer.Option(
            "--at", "--as-of", metavar="TIME", help="As of this event time, or: complete, latest.", show_default=False
        ),
    ] = None,
    history: Annotated[
        bool, typer.Option("--history", help="All rows of a query, with the times from which and until which they hold.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Then continue with the changes as they come, until Ctrl-C.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, show_default=False,
            help="At most N rows: the first ones, of streams and dead letters the last ones. "
            f"By default all, on a terminal {ON_TERMINAL:,}.",
        ),
    ] = None,
    format: FormOption = None,
    output: OutputOption = None,
    pipeline: PipelineOption = None,
    home: HomeOption = None,
) -> None:  # fmt: skip
    """Show the rows of a query, table or stream of a pipeline, whether or not it runs, in their order.

    Rows are those of the last commit. They come in the order of the query, of the key, or of the log.

    Example: [cyan]hayase show totals[/]

    As it was, and as it changes: [cyan]hayase show totals --at 2026-01-31T12:00Z[/]    [cyan]hayase show totals --follow[/]

    Into a file: [cyan]hayase show totals --history -o totals.parquet[/]
    """
    if follow and (history or output is not None or format in (Form.CSV, Form.PARQUET)):
        other = "--history" if history else "--output" if output is not None else "--format"
        raise typer.BadParameter("changes are written as text or JSON lines; choose one of them", param_hint=other)
    form = chosen_form(format, output)
    lighten_process()
    from hayase.cli.home_query import open_home

    with open_home(pipeline, home) as reader:
        if follow:
            _follow(reader, name, as_of, limit, form)
            return
        if limit is None and form is Form.TABLE and output is None and sys.stdout.isatty():
            limit = ON_TERMINAL
        relation = _found(reader, name, history)
        table, is_all = _rows(reader, relation, as_of, limit)
        write_answer(table, form, output)
        if form is Form.TABLE and output is None:
            _print_notes(table, relation, limit, is_all)


def _found(reader: HomeReader, name: str, history: bool) -> Relation:
    """Return the relation with a name, such as `spend` or `hayase.stages`."""
    from hayase.relations.relation_catalogue import LETTERS
    from hayase.streams.dead_letters import DEAD

    schema, _, own = (LETTERS if name == DEAD.name else name).rpartition(".")
    catalogue = reader.catalogue()
    relation = catalogue.find(own, schema or None)
    if not history:
        return relation
    if relation.kind != "query":
        raise HayaseError(f'"{name}" has no lifetimes: only queries over relations have; leave out --history')
    return catalogue.find(f"{own}_history", schema or None)


def _rows(reader: HomeReader, relation: Relation, as_of: str | None, limit: int | None) -> tuple[pa.Table, bool]:
    """Return rows of a relation, and whether these are all."""
    import pyarrow as pa

    from hayase.cli.home_query import checked_as_of
    from hayase.relations.relation import Records

    when = checked_as_of(as_of)
    if limit is not None and isinstance(relation, Records):
        return _last(reader, relation, when, limit)
    kept, rows = [], 0
    for batch in reader.rows(relation, when):
        kept.append(batch)
        rows += batch.num_rows
        if limit is not None and rows > limit:
            break
    table = pa.Table.from_batches(kept, schema=relation.schema)
    return (table, True) if limit is None else (table.slice(0, limit), rows <= limit)


def _last(reader: HomeReader, relation: Records, as_of: str, limit: int) -> tuple[pa.Table, bool]:
    """Return the last records of a stream, and whether these are all; of its log, only the end is read."""
    import pyarrow as pa

    from hayase.relations.bounds import Bounds

    names, size = relation.schema.names, limit + 1
    while True:
        first = max(relation.index.start, relation.index.next - size)
        batches = reader.rows(relation, as_of, Bounds(least={names[-1].lower(): first}))
        table = pa.Table.from_batches(batches, schema=relation.schema)
        if table.num_rows > limit or first == relation.index.start:
            return table.slice(max(0, table.num_rows - limit)), table.num_rows <= limit
        size *= 8  # some were left out: repeats, and records after the instant


def _print_notes(table: pa.Table, relation: Relation, limit: int | None, is_all: bool) -> None:
    """Say on standard error if there are no rows, or more than were shown."""
    if not table.num_rows and limit != 0:
        errors().print(f"no rows in {relation.name}", style="dim", markup=False)
    elif not is_all:
        note = f"… and more; --limit N shows N rows, -o FILE writes all of {relation.name} to a file"
        errors().print(note, style="dim", markup=False, soft_wrap=True)


def _follow(reader: HomeReader, name: str, as_of: str | None, limit: int | None, form: Form) -> None:
    from hayase.cli.stream_tail import follow, tail_of
    from hayase.relations.relation import PresentRows, Records

    relation = _found(reader, name, False)
    is_json = form is Form.JSON
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how following ends
        if isinstance(relation, PresentRows):
            _follow_query(relation, as_of, limit, is_json)
        elif isinstance(relation, Records):
            if as_of is not None:
                raise typer.BadParameter("a stream is followed from its last records on", param_hint="--at")
            follow(tail_of(relation.log, FOLLOWED if limit is None else limit, as_json=is_json, follows=True))
        else:
            what = "a table" if relation.kind == "table" else "this"
            raise HayaseError(
                f'"{name}" cannot be followed: {what} has no log of changes; ask for it again, without --follow'
            )


def _follow_query(relation: PresentRows, as_of: str | None, limit: int | None, is_json: bool) -> None:
    """Print the rows of a query, then its changes. As JSON lines, the rows are changes too: they appear."""
    import shutil

    from hayase.cli.stream_tail import SPARE, ChangeTail, follow
    from hayase.console.results_view import write_json, write_table
    from hayase.engine.results.live_results import Live

    live = Live(relation.results.log)
    time = None if as_of in (None, "complete", "latest") else as_of
    page = live.page(time, limit=_ALL if limit is None else limit)
    if is_json:
        write_json(live.appearing(page), sys.stdout)
    else:
        write_table(page.rows, sys.stdout, shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
    sys.stdout.flush()
    follow(ChangeTail(live.changes_from(page.changes), as_json=is_json, spare=SPARE))
