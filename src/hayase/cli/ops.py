"""The commands `hayase ops`: add, try, update, remove, rollback, list, show, history.

They change the definition in the home, whether or not the pipeline runs; the pipeline file stays as it is.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from hayase.cli import completion
from hayase.cli.pipeline_location import locate
from hayase.cli.project import Begin
from hayase.cli.terminal import AsJson, HomeOption, PipelineOption, as_json, output
from hayase.core.declaration_fields import OPERATION, Field
from hayase.core.errors import HayaseError

if TYPE_CHECKING:
    import pyarrow as pa

    from hayase.engine.definition.definitions import Definition
    from hayase.engine.definition.operation_changes import OperationVersion
    from hayase.engine.definition.trial_runs import TrialRun
    from hayase.engine.home import Home

__all__ = ["app"]

_Command = TypeVar("_Command", bound=Callable[..., None])

app = typer.Typer(
    help="Operations, changed while the pipeline runs: add, try, update, remove, rollback, list, show, history.",
    epilog="Example: [cyan]hayase ops update scores --from-file fix.py[/]",
    no_args_is_help=True,
)

New = Annotated[str, typer.Argument(metavar="NAME", help="The name of the operation and of its output stream.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The operation.", autocompletion=completion.operations)]
FromFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.py",
        help="The file of the function. Its name is that of --function, else the present one, else that of the new operation.",
        show_default=False,
    ),
]
Reset = Annotated[
    Begin | None,
    typer.Option(
        help="Reset it, so that its results may have other columns; what it has written is removed.", show_default=False
    ),
]


def _with_field_options(command: _Command) -> _Command:
    """Give a command that takes `**options` one option for each field of an operation, before its other options."""
    signature = inspect.signature(command, eval_str=True)
    name, *others = [parameter for parameter in signature.parameters.values() if parameter.name != "options"]
    fields = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(field))
        for field in OPERATION
    ]
    others = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in others]
    command.__signature__ = signature.replace(parameters=[name, *fields, *others])  # type: ignore[attr-defined]
    return command


def _option(field: Field) -> Any:
    """The type of the option for a field, with its help."""
    kind = {int: int, bool: bool, str | list[str]: list[str]}.get(field.kind.plain, str)
    flags = ["--together/--apart"] if field.name == "together" else []
    completed = completion.streams if field.name == "reads" else None
    text = f"{field.help_with_default}{' May be repeated.' if kind == list[str] else ''}"
    option = typer.Option(*flags, metavar=field.metavar, help=text, show_default=False, autocompletion=completed)
    return Annotated[kind | None, option]


@app.command()
@_with_field_options
def add(
    name: New,
    from_file: FromFile = None,
    start: Annotated[
        Begin, typer.Option("--from", help="The earliest record there is, or only what comes from now on.")
    ] = Begin.EARLIEST,
    pipeline: PipelineOption = None,
    home: HomeOption = None,
    **options: Any,
) -> None:
    """Add an operation. It is tried on the newest records first, and refused if it fails.

    Example: [cyan]hayase ops add scores --reads orders --function scoring:score[/]

    Ten orders of a user at a time: [cyan]hayase ops add habits --reads orders --from-file habits.py --key user --window 10[/]
    """
    from hayase.engine.definition.operation_changes import add_operation

    place = locate(pipeline, home).home
    data = _operation_data(options)
    if from_file is not None:
        data["function"] = _in_file(from_file, data.get("function") or name)
    definition = add_operation(place, name, data, _directory(pipeline), start.value)
    _report(place, definition, name, "is added")


@app.command()
@_with_field_options
def update(
    name: Name,
    from_file: FromFile = None,
    reset: Reset = None,
    pipeline: PipelineOption = None,
    home: HomeOption = None,
    **options: Any,
) -> None:
    """Change the given options of an operation. It is tried on the newest records first, and refused if it fails.

    Windows that are being processed finish with the version before.

    Example: [cyan]hayase ops update scores --from-file fix.py[/]

    Only an option: [cyan]hayase ops update scores --time-limit "5 s" --attempts 1[/]
    """
    from hayase.engine.definition.operation_changes import update_operation

    place = locate(pipeline, home).home
    data = _changed_data(place, name, from_file, options)
    if not data and reset is None:
        raise typer.BadParameter("give at least one option to change", param_hint="OPTIONS")
    definition = update_operation(place, name, data, _directory(pipeline), None if reset is None else reset.value)
    _report(place, definition, name, "is changed")


@app.command("try")
@_with_field_options
def try_(
    name: Name,
    from_file: FromFile = None,
    windows: Annotated[
        int, typer.Option(metavar="N", min=1, max=100, help="How many of the newest windows to try it on.")
    ] = 20,
    pipeline: PipelineOption = None,
    home: HomeOption = None,
    json: AsJson = False,
    **options: Any,
) -> None:
    """Try a change of an operation on the newest records: what each window gives, or why it fails. Nothing is written.

    The exit code is 1 if an update would be refused: the function fails for half of the windows or more.

    Example: [cyan]hayase ops try scores --from-file fix.py[/]
    """
    from hayase.engine.definition.trial_runs import try_update

    place = locate(pipeline, home).home
    data = _changed_data(place, name, from_file, options)
    run = try_update(place, name, data, _directory(pipeline), windows=windows)
    _show_trial(run, as_json(json))
    if not run.passes:
        raise typer.Exit(1)


@app.command()
def remove(name: Name, pipeline: PipelineOption = None, home: HomeOption = None) -> None:
    """Remove an operation; its output stays in the home. It is refused while other stages read the output.

    Example: [cyan]hayase ops remove scores[/]
    """
    from hayase.engine.definition.operation_changes import remove_operation

    place = locate(pipeline, home).home
    _report(place, remove_operation(place, name), name, "is removed")


@app.command()
def rollback(
    name: Name,
    to: Annotated[
        int | None,
        typer.Option(
            metavar="VERSION",
            help="The version of the pipeline to go back to; by default the one before the last change of the operation.",
            show_default=False,
        ),
    ] = None,
    reset: Reset = None,
    pipeline: PipelineOption = None,
    home: HomeOption = None,
) -> None:
    """Restore an earlier version of an operation, with its code; also of one that was removed.

    Example: [cyan]hayase ops rollback scores[/]

    To a version in its history: [cyan]hayase ops rollback scores --to 3[/]
    """  # fmt: skip
    from hayase.engine.definition.operation_changes import rollback_operation

    place = locate(pipeline, home).home
    definition = rollback_operation(place, name, to, None if reset is None else reset.value)
    _report(place, definition, name, "is rolled back")


@app.command("list")
def list_(pipeline: PipelineOption = None, home: HomeOption = None, json: AsJson = False) -> None:
    """List operations: version of the last change, inputs, columns of the results, and whether the file or a command set them.

    Example: [cyan]hayase ops list[/]
    """
    from hayase.engine.definition.definitions import latest
    from hayase.engine.definition.operation_changes import operations_of

    place = locate(pipeline, home).home
    operations = operations_of(place)
    if as_json(json):
        _write({"name": name, **versions[-1].as_json()} for name, versions in operations.items())
        return
    from hayase.console.listings import plain_table

    table = plain_table("operation", "version", "reads", "gives", "window", "since", "as")
    for name, versions in operations.items():
        newest = versions[-1]
        data = newest.as_json()["operation"]
        origin = "changed by command" if newest.by_command else "the file says"
        table.add_row(
            name, f"{newest.version} ({newest.short})", _listed(data["reads"]), data.get("schema", "—"), _window(data),
            f"{newest.time.astimezone():%Y-%m-%d %H:%M:%S}", origin,
        )  # fmt: skip
    output().print(table)
    current = latest(place)
    removed = [change.name for change in current.changes if change.now is None] if current else []
    if removed:
        output().print(f"\nremoved by command: {', '.join(removed)}", style="dim")


@app.command()
def show(name: Name, pipeline: PipelineOption = None, home: HomeOption = None, json: AsJson = False) -> None:
    """Show all fields of an operation, and where its code is.

    Example: [cyan]hayase ops show scores[/]
    """
    from hayase.engine.definition.operation_changes import history

    place = locate(pipeline, home).home
    newest = history(place, name)[-1]
    digest = None if newest.declaration is None else newest.declaration.code
    code = None if digest is None else place.code(digest)
    about = {"name": name, **newest.as_json(), "files": _files(code)}
    if as_json(json):
        _write([about])
        return
    from hayase.console.listings import facts_grid

    grid = facts_grid()
    for key, value in {**(about.pop("operation") or {"operation": "removed"}), **about}.items():
        if key not in ("changed", "files", "code"):
            grid.add_row(key, _listed(value))
    grid.add_row("code", "installed" if code is None or not code.exists() else f"{code}\n{_listed(about['files'])}")
    output().print(grid)


@app.command()
def history(name: Name, pipeline: PipelineOption = None, home: HomeOption = None, json: AsJson = False) -> None:
    """List all versions of an operation, the newest last.

    Example: [cyan]hayase ops history scores[/]
    """
    from hayase.engine.definition.operation_changes import history

    versions = history(locate(pipeline, home).home, name)
    if as_json(json):
        _write({"name": name, **version.as_json()} for version in versions)
        return
    from hayase.console.listings import plain_table

    table = plain_table("version", "since", "fingerprint", "function", "by", "what changed")
    for version in versions:
        table.add_row(
            f"{version.version}", f"{version.time.astimezone():%Y-%m-%d %H:%M:%S}", version.short or "—", _function(version),
            "command" if version.by_command else "file", ", ".join(version.changed) or "—",
        )  # fmt: skip
    output().print(table)


# ---------------------------------------------------------------------------------------------------- input


def _operation_data(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, as the plain data of an operation; a file of a function by its absolute path."""
    data = {name: value for name, value in options.items() if value is not None}
    place, colon, attribute = data.get("function", "").rpartition(":")
    if colon and place.endswith(".py"):
        data["function"] = f"{Path(place).absolute()}:{attribute}"
    return data


def _changed_data(home: Home, name: str, from_file: Path | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return the fields to change of an operation; a file without the name of a function has that of the present one."""
    from hayase.engine.definition.operation_changes import history

    data = _operation_data(options)
    if from_file is not None:
        before = None if "function" in data else history(home, name)[-1].declaration
        data["function"] = _in_file(from_file, data.get("function") or (name if before is None else before.function))
    return data


def _in_file(file: Path, function: str) -> str:
    """Return the name of a function in a file; a module in `function` is ignored."""
    if file.suffix != ".py":
        raise HayaseError(f'"{file}" is not a Python file; name one that ends in .py')
    return f"{file.absolute()}:{function.rpartition(':')[2]}"


def _directory(pipeline: Path | None) -> str:
    """Return the directory in which modules are looked for: that of the pipeline file, or the working directory."""
    return str((pipeline.parent if pipeline is not None else Path()).absolute())


# ---------------------------------------------------------------------------------------------------- output


def _report(home: Home, definition: Definition, name: str, what: str) -> None:
    when = "takes effect at the next batch" if home.is_locked() else "takes effect when the pipeline runs next"
    typer.echo(f"{name} {what}: version {definition.version} of {definition.declaration.name}, which {when}")


def _show_trial(run: TrialRun, json: bool) -> None:
    """Show the windows of a trial, the newest first, and a line about all of them."""
    import orjson

    from hayase.streams.record_text import record_text

    def texts(rows: pa.Table) -> list[str]:
        return [record_text(row) for row in rows.to_pylist()]

    windows = run.windows[::-1]
    if json:
        _write(
            {
                "records": [orjson.Fragment(text) for text in texts(window.records)],
                "results": [orjson.Fragment(text) for text in texts(window.results)],
                "failure": None if window.failure is None else window.failure.as_json(),
                "seconds": window.seconds,
            }
            for window in windows
        )
        return
    from rich.text import Text

    from hayase.console.listings import plain_table

    table = plain_table("gives", "for")
    for window in windows:
        failure, records = window.failure, texts(window.records)
        gives = "\n".join(texts(window.results)) if failure is None else f"failed: {failure.reason}{failure.place}"
        table.add_row(Text(gives or "nothing"), Text("\n".join(records[:3]) + ("\n…" if len(records) > 3 else "")))
    output().print(table)
    verdict = "an update would pass its check" if run.passes else "an update would be refused"
    untried = f", no time for {run.untried} more" if run.untried else ""
    output().print(f"\n{len(windows)} windows tried, {run.failed} failed{untried}: {verdict}", markup=False)


def _write(rows: Any) -> None:
    import orjson

    sys.stdout.write("".join(orjson.dumps(row).decode() + "\n" for row in rows))
    sys.stdout.flush()


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _window(data: dict[str, Any]) -> str:
    window = data.get("window", 1)
    text = window if isinstance(window, str) else "1 record" if window == 1 else f"{window} records"
    text += f", slides by {data['slide']}" if "slide" in data else ""
    text += f", per {_listed(data['key'])}" if "key" in data else ""
    return text + (", together" if data.get("together") else "")


def _function(version: OperationVersion) -> str:
    return "—" if version.declaration is None else version.declaration.function


def _files(code: Path | None) -> list[str]:
    if code is None:
        return []
    return sorted(file.relative_to(code).as_posix() for file in code.rglob("*.py"))
