"""The command `hayase append`: appends files, a pipe or the files of a directory to a stream, in bounded memory.

With a producer, every file is cut into the same chunks each time, and the stream remembers the last chunk of each file: a
command that was killed and is repeated continues exactly where it stopped.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from hayase.cli import completion
from hayase.cli.pipeline_location import locate
from hayase.cli.terminal import (
    HomeOption,
    LogFileOption,
    LogFormatOption,
    PipelineOption,
    Verbose,
    errors,
    is_verbose,
)
from hayase.console.log_output import log_output
from hayase.console.stop_signals import Stopping
from hayase.core.clock import now_us
from hayase.core.data_classes import dataclass
from hayase.core.errors import HayaseError, StreamError
from hayase.core.followed_directory import Following, list_files, producer_of
from hayase.core.log_files import LogFormat

if TYPE_CHECKING:
    from rich.progress import Progress

    from hayase.core.declarations import StreamDeclaration
    from hayase.pipeline import Pipeline
    from hayase.streams.file_formats import Format

__all__ = ["append"]

STDIN = "-"
_log = logging.getLogger(__name__)


class FileFormat(StrEnum):
    """The format of a file."""

    CSV = "csv"
    NDJSON = "ndjson"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of records; `there` were already in the stream, from the same producer."""

    accepted: int = 0
    refused: int = 0
    there: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.accepted + other.accepted, self.refused + other.refused, self.there + other.there)

    def answer(self, stream: str) -> str:
        """Return the message of the command.

        >>> Tally(12345, 3).answer("events")
        'appended 12,345 records to events (3 refused: see `hayase dead list`)'
        """
        notes = [f"{self.refused:,} refused: see `hayase dead list`"] if self.refused else []
        notes += [f"{self.there:,} were there already"] if self.there else []
        noun = "record" if self.accepted == 1 else "records"
        return f"appended {self.accepted:,} {noun} to {stream}" + (f" ({'; '.join(notes)})" if notes else "")


def append(
    stream: Annotated[
        str,
        typer.Argument(
            metavar="STREAM", help="The stream, as it is declared.", autocompletion=completion.declared_streams
        ),
    ],
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE|-", help="Files, or - for a pipe.", show_default=False)
    ] = None,
    follow: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Append each file that appears in DIR, once, until Ctrl-C.", show_default=False
        ),
    ] = None,
    pipeline: PipelineOption = None,
    home: HomeOption = None,
    format: Annotated[
        FileFormat | None,
        typer.Option(help="The format, if the file name does not say it; a pipe is ndjson.", show_default=False),
    ] = None,
    producer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Remember files under NAME, so that repeating the command adds nothing.",
            show_default=False,
        ),
    ] = None,
    poll: Annotated[float, typer.Option(metavar="SECONDS", help="How often DIR is checked.", min=0.01)] = 1.0,
    verbose: Verbose = False,
    log_file: LogFileOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Append records to a stream; a record that does not fit becomes a dead letter, and the others are appended.

    CSV, NDJSON and Parquet, also as .gz, .zst or .bz2 (not Parquet). With --follow, write files under another name
    (for instance ending in .part) and rename them when they are complete; they are appended in the order of their names.

    Example: [cyan]hayase append events monday.csv tuesday.csv.gz --producer import[/]
    """
    if (follow is None) == (not files):
        if follow is not None:
            raise typer.BadParameter("give files or --follow DIR, not both", param_hint="FILE")
        if sys.stdin.isatty():
            raise typer.BadParameter("give files, - for a pipe, or --follow DIR", param_hint="FILE")
        files = [STDIN]
    from hayase.core.machine_code import do_without_numba

    located = locate(pipeline, home)
    declaration = _writable(located, stream)
    kind = None if format is None else format.value
    do_without_numba()
    with log_output(verbose=is_verbose(), file=log_file, form=log_format):
        if follow is not None:
            _follow(located, declaration, follow, kind, producer, poll)
        else:
            _append_files(located, declaration, files or [], kind, producer)


def _writable(pipeline: Pipeline, stream: str) -> StreamDeclaration:
    declared = pipeline.declaration
    for kind, section in (("query", declared.queries), ("job", declared.jobs), ("operation", declared.operations)):
        if stream in [entry.name for entry in section]:
            raise HayaseError(f'"{stream}" is written by the {kind} of that name; append to a stream that it reads')
    if stream in [table.name for table in declared.tables]:
        hint = "append events for its rules, or load rows with `hayase groups load`"
        raise HayaseError(f'"{stream}" is a table, not a stream; {hint}')
    return declared.stream(stream)


def _append_files(
    pipeline: Pipeline, declaration: StreamDeclaration, files: list[str], kind: str | None, producer: str | None
) -> None:
    from hayase.streams.file_formats import format_of

    sources = []
    for name in files:
        if name != STDIN and not Path(name).is_file():
            if Path(name).is_dir():
                raise HayaseError(f'"{name}" is a directory; name its files, or use --follow {name}')
            raise HayaseError(f'there is no file "{name}"; check the name')
        form = format_of(name, kind or ("ndjson" if name == STDIN else None))
        sources.append((name, form))
    total = None if STDIN in files else sum(Path(name).stat().st_size for name in files)
    tally = Tally()
    with _progress() as progress:
        bar = progress.add_task(f"to {declaration.name}", total=total, records=0)
        try:
            for name, form in sources:
                source = Path(name) if name != STDIN else _stdin(producer)
                known_as = name if name == STDIN else str(Path(name).absolute())
                sender = None if producer is None else producer_of(producer, known_as)
                behind = progress.tasks[bar].completed
                for done, part in read_chunks(pipeline, declaration, source, form, sender):
                    tally += part
                    progress.update(bar, completed=behind + done, records=tally.accepted)
        except (KeyboardInterrupt, HayaseError):
            progress.stop()
            errors().print(f"stopped early: {tally.answer(declaration.name)}", markup=False, soft_wrap=True)
            raise
    _log.info("%s: %s", ", ".join(files), tally.answer(declaration.name))
    typer.echo(tally.answer(declaration.name))


def _stdin(producer: str | None) -> BinaryIO:
    """Return standard input; for a producer in full blocks, so that a repeat is cut into the same chunks at any speed."""
    return sys.stdin.buffer if producer is None else _BlockReader(sys.stdin.buffer)


class _BlockReader(io.BytesIO):
    """Reads a pipe in full blocks, as if it were a file."""

    def __init__(self, source: BinaryIO):
        super().__init__()
        self._source = source
        self.name = "<stdin>"

    def read(self, size: int | None = -1, /) -> bytes:
        return self._source.read(-1 if size is None else size)

    def seekable(self) -> bool:
        return False


def read_chunks(
    pipeline: Pipeline, declaration: StreamDeclaration, source: Path | BinaryIO, form: Format, producer: str | None
) -> Iterator[tuple[int, Tally]]:
    """Append a source chunk by chunk; yield the bytes read so far and the counts of each chunk."""
    from hayase.streams.appends import append_source

    for behind, done in append_source(pipeline.home.path, declaration, source, form, now_us, producer):
        yield behind, Tally(there=done.accepted) if done.repeated else Tally(done.accepted, done.refused)


def _follow(
    pipeline: Pipeline,
    declaration: StreamDeclaration,
    directory: Path,
    kind: str | None,
    producer: str | None,
    poll: float,
) -> None:
    from hayase.streams.file_formats import format_of

    if not directory.is_dir():
        raise HayaseError(f'there is no directory "{directory}"; make it, then rename files into it')
    sender = producer or f"follow:{directory.resolve()}"
    console = errors()
    console.print(
        f"following {directory}: rename complete files into it; Ctrl-C stops", markup=False, soft_wrap=True, style="dim"
    )
    tally, state = Tally(), Following()
    with Stopping().listening() as stopping:
        while not stopping:
            now = list_files(directory)
            taken = []
            for name in state.ready(now):
                if stopping:
                    break
                try:
                    form = format_of(name, kind)
                    part = _append_file(
                        pipeline, declaration, directory / name, form, producer_of(sender, name), stopping
                    )
                except StreamError:
                    raise
                except HayaseError as error:
                    console.print(f"left out {name}: {error}", markup=False, soft_wrap=True, style="yellow")
                    _log.info("left out %s: %s", directory / name, error)
                else:
                    tally += part
                    _log.info("%s: %s", directory / name, part.answer(declaration.name))
                    if part.accepted or part.refused:
                        typer.echo(f"{name}: {part.answer(declaration.name)}")
                taken.append(name)
            state = state.after(now, taken)
            stopping.wait(poll)
    typer.echo(tally.answer(declaration.name))


def _append_file(
    pipeline: Pipeline, declaration: StreamDeclaration, path: Path, form: Format, producer: str, stopping: Stopping
) -> Tally:
    """Append one file; at a stop signal only up to the end of a chunk: the rest follows after a restart."""
    tally = Tally()
    for _, part in read_chunks(pipeline, declaration, path, form, producer):
        tally += part
        if stopping:
            break
    return tally


def _progress() -> Progress:
    """Return a progress bar on standard error, shown only on a terminal."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = errors()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        DownloadColumn(),
        TransferSpeedColumn(),
        TextColumn("{task.fields[records]:,} records"),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
