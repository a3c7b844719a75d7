"""Writes the rows that a command answers with: as a table, JSON lines, CSV or Parquet, to standard output or to a file."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hayase.core.errors import HayaseError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Form", "FormOption", "OutputOption", "chosen_form", "write_answer"]


class Form(StrEnum):
    """The format in which rows are written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


FormOption = Annotated[
    Form | None,
    typer.Option("--format", help="By default a table on a terminal, and JSON lines elsewhere.", show_default=False),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="FILE", help="Write there; its suffix can say the format.", show_default=False
    ),
]

_SUFFIXES = {
    ".txt": Form.TABLE, ".json": Form.JSON, ".ndjson": Form.JSON, ".jsonl": Form.JSON, ".csv": Form.CSV,
    ".parquet": Form.PARQUET, ".pq": Form.PARQUET,
}  # fmt: skip


def chosen_form(chosen: Form | None, output: Path | None) -> Form:
    """Return the format that the options ask for."""
    if output is None:
        if chosen is Form.PARQUET:
            raise typer.BadParameter("Parquet goes into a file; name it with --output", param_hint="--format")
        return chosen or (Form.TABLE if sys.stdout.isatty() else Form.JSON)
    if chosen is None and output.suffix.lower() not in _SUFFIXES:
        raise typer.BadParameter(
            f'the name "{output}" does not say what to write; give --format, or a name ending in {", ".join(_SUFFIXES)}',
            param_hint="--output",
        )
    return chosen or _SUFFIXES[output.suffix.lower()]


def write_answer(table: pa.Table, form: Form, output: Path | None) -> None:
    """Write rows to standard output, or to a file, which appears when it is complete."""
    from hayase.console.results_view import write_csv, write_json, write_table

    if output is None:
        if form is Form.CSV:
            write_csv(table, sys.stdout.buffer)
        elif form is Form.JSON:
            write_json(table, sys.stdout)
        else:
            _print_table(table)
        sys.stdout.flush()
        return
    draft = output.with_name(f".{output.name}.part")
    try:
        if form is Form.PARQUET:
            import pyarrow.parquet as pq

            pq.write_table(table, draft, compression="zstd")
        elif form is Form.CSV:
            with draft.open("wb") as binary:
                write_csv(table, binary)
        else:
            with draft.open("w", encoding="utf-8") as sink:
                write_json(table, sink) if form is Form.JSON else write_table(table, sink)
        draft.replace(output)
    except OSError as error:
        raise HayaseError(f'"{output}" cannot be written: {error.strerror}; choose another place') from error
    finally:
        draft.unlink(missing_ok=True)


def _print_table(table: pa.Table) -> None:
    """Print a table; on a terminal it is cut to its width, and goes through a pager if it has more lines than that."""
    from hayase.console.results_view import write_table

    if not sys.stdout.isatty():
        write_table(table, sys.stdout)
        return
    import shutil

    from hayase.console.pager import paged

    size = shutil.get_terminal_size()
    with paged(sys.stdout, table.num_rows + 2 > size.lines - 1) as sink:
        write_table(table, sink, size.columns)
