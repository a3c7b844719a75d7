"""The commands `hayase home`: show, size, verify, repair, clean, copy, upgrade: they work on files, whatever is computed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hayase.cli.pipeline_location import DEFAULT
from hayase.core.errors import HayaseError

if TYPE_CHECKING:
    from hayase.engine.home import Home

__all__ = ["app"]

app = typer.Typer(
    help="Look after the directory of a pipeline: show, size, verify, repair, clean, copy, upgrade.",
    epilog="Example: [cyan]hayase home verify[/]",
    no_args_is_help=True,
)

Place = Annotated[
    Path | None,
    typer.Argument(
        metavar="HOME", help="The home; without it, the one that ./pipeline.yaml names.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="A JSON object instead of text.")]


@app.command()
def show(home: Place = None, json: Json = False) -> None:
    """Show the format of a home, and the sizes of its directories.

    Example: [cyan]hayase home show[/]
    """
    from hayase.streams.home_format import format_of

    located = _home(home)
    number = format_of(located.path)
    sizes = {path.name: _size(path) for path in sorted(located.path.iterdir()) if path.is_dir()}
    mode = located.path.stat().st_mode & 0o777
    about = {"home": str(located.path), "format": number, "mode": f"{mode:04o}", "bytes": sizes}
    if json:
        _write(about)
        return
    who = "its owner only" if not mode & 0o077 else f"others too (mode {mode:04o})"
    typer.echo(f"{located.path}\nformat {number}, open to {who}")
    for name, size in sizes.items():
        typer.echo(f"  {name:<12} {size:>14,} bytes")


@app.command()
def verify(home: Place = None, json: Json = False) -> None:
    """Read and check every file of a home; the exit code is 1 if something is wrong.

    Each finding says what to do. The pipeline may run meanwhile.

    Example: [cyan]hayase home verify[/]
    """
    from hayase.engine.integrity.verification import verify as findings_of

    located = _home(home)
    findings = list(findings_of(located))
    if json:
        _write({"home": str(located.path), "findings": [finding.as_json() for finding in findings]})
    elif findings:
        for finding in findings:
            typer.echo(f"{finding.path}\n  {finding.problem}\n  what to do: {finding.remedy}")
    else:
        typer.echo(f"{located.path} is sound")
    if findings:
        raise typer.Exit(1)


@app.command()
def repair(
    home: Place = None,
    accept_loss: Annotated[
        list[str] | None,
        typer.Option(
            "--accept-loss",
            metavar="STREAM",
            help="Go on without records that this stream has lost (and without those before a gap); its readers begin anew.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Rewrite lost files whose content is known from elsewhere; give up lost records of the named streams.

    Example: [cyan]hayase home repair[/]

    When files of a stream are lost for good: [cyan]hayase home repair --accept-loss orders[/]
    """
    from hayase.engine.integrity.repairs import accept_loss as accepted
    from hayase.engine.integrity.repairs import rewrite

    located = _home(home)
    with located.lock():
        done = list(rewrite(located)) if not accept_loss else []
        for name in accept_loss or ():
            lost, anew = accepted(located, name)
            readers = f"; {', '.join(anew)} will begin anew from earliest in the next run" if anew else ""
            done.append(f'stream "{name}" goes on without {lost} lost records{readers}')
    typer.echo("\n".join(done) or "nothing can be written again; `hayase home verify` tells what is wrong")


@app.command()
def size(home: Place = None, json: Json = False) -> None:
    """Show what takes how much space in a home, by kind and name, largest first.

    Example: [cyan]hayase home size[/]
    """
    from dataclasses import asdict

    from hayase.engine.home_sizes import sizes_of

    located = _home(home)
    sizes = sizes_of(located)
    total = sum(entry.bytes for entry in sizes)
    if json:
        _write({"home": str(located.path), "bytes": total, "sizes": [asdict(entry) for entry in sizes]})
        return
    typer.echo(f"{located.path}: {total:,} bytes")
    for entry in sizes:
        typer.echo(f"  {entry.bytes:>16,} bytes  {entry.files:>6,} files  {entry.kind:<12} {entry.name}".rstrip())


@app.command()
def clean(
    home: Place = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    json: Json = False,
) -> None:
    """Remove what nothing names: drafts, state and staged files of runs that were killed, unused code and old definitions.

    Refused while the pipeline runs; others may append and read meanwhile. Data is never removed.

    Example: [cyan]hayase home clean --dry-run[/]
    """
    from hayase.engine.integrity.leftovers import clean as cleaned
    from hayase.engine.integrity.leftovers import leftovers_of

    located = _home(home)
    leftovers = leftovers_of(located) if dry_run else cleaned(located)
    total = sum(leftover.bytes for leftover in leftovers)
    if json:
        found = [{"kind": each.kind, "path": str(each.path), "bytes": each.bytes} for each in leftovers]
        _write({"home": str(located.path), "removed": not dry_run, "bytes": total, "leftovers": found})
        return
    for leftover in leftovers:
        typer.echo(f"  {leftover.kind:<12} {leftover.path.relative_to(located.path)}  {leftover.bytes:,} bytes")
    verb = "can be removed" if dry_run else "removed"
    typer.echo(f"{len(leftovers):,} leftovers with {total:,} bytes {verb}" if leftovers else "nothing is left over")


@app.command()
def copy(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A home, or the address of a copy such as s3://bucket/shop.")
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="A directory or an address (s3://, gs://, az://) with nothing yet, or with an older copy.",
        ),
    ],
    json: Json = False,
) -> None:
    """Copy a home to another directory or to an object store, or a copy from there back.

    The pipeline may run meanwhile: the copy is the home at one instant. What an older copy at the target has too is not sent
    again. The target has its older copy, or nothing, until all of the new one is there; if it is interrupted, run it again.

    Example: [cyan]hayase home copy ./shop s3://backups/shop[/]

    To restore it: [cyan]hayase home copy s3://backups/shop ./shop[/]
    """
    from dataclasses import asdict

    from hayase.core.clock import now_us
    from hayase.engine.copies.home_copy import copy_home

    shown = _Shown() if sys.stderr.isatty() and not json else None
    try:
        copied = copy_home(source, target, now_us(), shown or _unshown)
    finally:
        if shown is not None:
            sys.stderr.write("\r\x1b[K")
    if json:
        _write({"source": source, "target": target, **asdict(copied)})
        return
    typer.echo(
        f"{target} has copy {copied.number} of {source}: {copied.files:,} files, {copied.bytes:,} bytes; "
        f"{copied.sent_files:,} files with {copied.sent_bytes:,} bytes were sent for it"
    )


class _Shown:
    """Shows on the terminal how many files are done."""

    def __init__(self) -> None:
        self._files, self._bytes = 0, 0

    def __call__(self, file: str, sent: int) -> None:
        self._files, self._bytes = self._files + 1, self._bytes + sent
        sys.stderr.write(f"\r\x1b[K{self._files:,} files, {self._bytes:,} bytes sent  {file[:60]}")
        sys.stderr.flush()


def _unshown(file: str, sent: int) -> None:
    """Show nothing."""


@app.command()
def upgrade(home: Place = None) -> None:
    """Bring a home that an earlier version wrote to the format of this version.

    Stop the pipeline and all who append first, and keep a copy. If it is interrupted, run it again.

    Example: [cyan]hayase home upgrade[/]
    """
    from hayase.engine.integrity.migrations import upgrade as upgraded

    located = _home(home)
    done = upgraded(located)
    if done.before == done.after:
        typer.echo(f"{located.path} has format {done.after} already")
    else:
        typer.echo(
            f"{located.path} has format {done.after} now (it had {done.before}); {done.files} files were rewritten"
        )


def _home(path: Path | None) -> Home:
    """Return the home at a path, or the one of ./pipeline.yaml; it must be a directory."""
    from hayase.core.pipeline_file import read_pipeline
    from hayase.engine.home import Home

    if path is None:
        if not DEFAULT.exists():
            raise HayaseError("there is no pipeline.yaml here; name the home")
        read = read_pipeline(DEFAULT)
        path = Path(read.home or read.declaration.name)
    if not path.is_dir():
        raise HayaseError(f'there is no directory "{path}"; name the home of a pipeline')
    return Home(path.absolute())


def _size(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # a running pipeline has removed it
            continue
    return total


def _write(about: object) -> None:
    import orjson

    sys.stdout.write(orjson.dumps(about, option=orjson.OPT_INDENT_2).decode() + "\n")
    sys.stdout.flush()
