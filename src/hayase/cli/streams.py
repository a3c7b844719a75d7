"""The commands `hayase streams`: list, show, tail, export, compact, finish."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hayase.cli import completion
from hayase.cli.pipeline_location import index_of, kind_of, locate, log_of, names_of
from hayase.cli.stream_tail import follow as follow_tail
from hayase.cli.stream_tail import tail_of
from hayase.cli.terminal import AsJson, HomeOption, PipelineOption, as_json, output
from hayase.core.errors import HayaseError

if TYPE_CHECKING:
    from hayase.pipeline import Pipeline
    from hayase.streams import StreamLog

__all__ = ["app"]

app = typer.Typer(
    help="Look at streams: list, show, tail, export, compact, finish.",
    epilog="Example: [cyan]hayase streams tail totals -n 5 -f[/]",
    no_args_is_help=True,
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="A stream, the results of a query, or _dead.", autocompletion=completion.streams
    ),
]


@app.command("list")
def list_(pipeline: PipelineOption = None, home: HomeOption = None, json: AsJson = False) -> None:
    """List the streams of a pipeline, with the results of its queries and the dead letters.

    Example: [cyan]hayase streams list[/]
    """
    from hayase.console.listings import stream_list

    located = locate(pipeline, home)
    about = [_about(located, log_of(located, name), kind_of(located, name)) for name in names_of(located)]
    if as_json(json):
        for stream in about:
            _write_json(stream)
    else:
        output().print(stream_list(about))


@app.command()
def show(name: Name, pipeline: PipelineOption = None, home: HomeOption = None, json: AsJson = False) -> None:
    """Show one stream: its declaration, its records, and the positions of its readers.

    Example: [cyan]hayase streams show events[/]
    """
    from hayase.console.listings import stream_details

    located = locate(pipeline, home)
    log = log_of(located, name)
    about = _about(located, log, kind_of(located, name))
    about |= {"earliest_us": _earliest(log), "readers": _readers(located, log)}
    if as_json(json):
        from dataclasses import asdict

        _write_json({**about, "declaration": asdict(log.declaration)})
    else:
        output().print(stream_details(about, log.declaration))


@app.command()
def tail(
    name: Name,
    count: Annotated[int, typer.Option("-n", metavar="N", help="How many records or changes.", min=0)] = 10,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Continue with new ones as they arrive, until Ctrl-C.")
    ] = False,
    pipeline: PipelineOption = None,
    home: HomeOption = None,
    json: AsJson = False,
) -> None:
    """Print the last records of a stream, in the order of its log; of a query, the last changes of its rows.

    A row of a query appears (+) and ends (-), each at its event time; changes are printed once they are final.

    Example: [cyan]hayase streams tail totals -n 5 -f[/]
    """
    log = log_of(locate(pipeline, home), name)
    with contextlib.suppress(*([KeyboardInterrupt] if follow else [])):  # Ctrl-C is how following ends
        tail = tail_of(log, count, as_json=as_json(json), follows=follow)
        if follow:
            follow_tail(tail)


@app.command()
def export(
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file ending in .parquet, .csv or .ndjson.")],
    pipeline: PipelineOption = None,
    home: HomeOption = None,
) -> None:
    """Write all records of a stream to a file, in bounded memory.

    Example: [cyan]hayase streams export totals totals.parquet[/]
    """
    from hayase.cli.exports import write_file

    log = log_of(locate(pipeline, home), name)
    count = write_file(log, file)
    typer.echo(f"wrote {count:,} records of {name} to {file}")


@app.command()
def compact(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A stream; without it, all of them.", autocompletion=completion.streams),
    ] = None,
    pipeline: PipelineOption = None,
    home: HomeOption = None,
) -> None:
    """Join small segments into bigger ones. A running pipeline does so by itself.

    Example: [cyan]hayase streams compact events[/]
    """
    located = locate(pipeline, home)
    for stream in [name] if name is not None else names_of(located):
        log = log_of(located, stream)
        before = len(index_of(log).entries)
        while before > 1 and log.compact(at_least=2):
            pass
        typer.echo(f"{stream}: {before:,} segments, now {len(index_of(log).entries):,}")


@app.command()
def finish(name: Name, pipeline: PipelineOption = None, home: HomeOption = None) -> None:
    """State that a stream gets no more records, so that results that wait for later records are completed.

    Example: [cyan]hayase streams finish events[/]
    """
    located = locate(pipeline, home)
    if any(query.name == name for query in located.declaration.queries):
        raise HayaseError(f'"{name}" is written by a query and finishes when the streams that it reads do')
    located.finish(name)
    typer.echo(f"{name} is finished: it takes no more records")


def _write_json(about: dict[str, Any]) -> None:
    import orjson

    typer.echo(orjson.dumps(about).decode())


def _about(pipeline: Pipeline, log: StreamLog, kind: str) -> dict[str, Any]:
    """Return the figures of a log; times are microseconds."""
    index = index_of(log)
    return {
        "name": log.declaration.name,
        "kind": kind,
        "records": index.next - index.start,
        "start": index.start,
        "next": index.next,
        "bytes": sum(_size(log.path / entry.name) for entry in index.entries),
        "segments": len(index.entries),
        "latest_us": index.running_max,
        "clock_us": _clock(log),
        "finished": index.finished,
    }


def _clock(log: StreamLog) -> int:
    """Return the clock of the stream: the one its writer has set, or the greatest event time less the slack."""
    from hayase.core.times import BEGINNING

    index, declaration = index_of(log), log.declaration
    if declaration.ordered or index.running_max <= BEGINNING:
        return index.clock
    return max(index.clock, index.running_max - declaration.slack)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # compacted just now
        return 0


def _earliest(log: StreamLog) -> int:
    from hayase.core.times import BEGINNING
    from hayase.streams.segments import read_trailer

    times = []
    for entry in index_of(log).entries:
        with contextlib.suppress(FileNotFoundError):  # compacted just now
            times.append(read_trailer(log.path / entry.name, log.declaration.name).earliest)
    return min(times, default=BEGINNING)


def _readers(pipeline: Pipeline, log: StreamLog) -> dict[str, dict[str, int]]:
    """Return the position of each stage that reads the stream."""
    name, end = log.declaration.name, index_of(log).next
    positions = pipeline.progress().offset.positions
    return {
        stage: {"at": inputs[name].at, "behind": max(0, end - inputs[name].at)}
        for stage, inputs in positions.items()
        if name in inputs
    }
