"""The commands `hayase ops`: add, update, remove, rollback, list, show, history. They work whether or not the pipeline runs,
and change its definition in the home; the pipeline's file stays as it is."""

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
    from hayase.engine.definition.definitions import Definition
    from hayase.engine.definition.operation_changes import OperationVersion
    from hayase.engine.home import Home

__all__ = ["app"]

_Command = TypeVar("_Command", bound=Callable[..., None])

app = typer.Typer(
    help="Operations, changed while the pipeline runs: add, update, remove, rollback, list, show, history.",
    epilog="Example: [cyan]hayase ops update scores --from-file fix.py[/]",
    no_args_is_help=True,
)

New = Annotated[str, typer.Argument(metavar="NAME", help="The name, which its output stream will have too.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The operation.", autocompletion=completion.operations)]
FromFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.py",
        help="The file of the function, which is called as before, or like a new operation, if --function does not say it.",
        show_default=False,
    ),
]
Reset = Annotated[
    Begin | None,
    typer.Option(
        help="Let it begin anew, so that it may write something else: what it has written goes.", show_default=False
    ),
]


def _with_field_options(command: _Command) -> _Command:
    """Give a command that takes `**options` one option for each field of an operation, before its other options."""
    signature = inspect.signature(command, eval_str=True)
    name, *others = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    fields = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(field))
        for field in OPERATION
    ]
    others = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in others]
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
    """Add an operation. It is tried on the newest records first, and not taken if it fails.

    Example: [cyan]hayase ops add scores --reads orders --function scoring:score[/]

    Ten orders of a user at a time: [cyan]hayase ops add habits --reads orders --from-file habits.py --key user --window 10[/]
    """
    from hayase.engine.definition.operation_changes import add_operation

    found = locate(pipeline, home).home
    data = _operation_data(options)
    if from_file is not None:
        data["function"] = _in_file(from_file, data.get("function") or name)
    made = add_operation(found, name, data, _directory(pipeline), start.value)
    _tell(found, made, name, "is added")


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
    """Change an operation; what is not given stays. It is tried on the newest records first, and not taken if it fails.

    Windows that are being worked on finish under the version before.

    Example: [cyan]hayase ops update scores --from-file fix.py[/]

    Only an option: [cyan]hayase ops update scores --time-limit "5 s" --attempts 1[/]
    """
    from hayase.engine.definition.operation_changes import history, update_operation

    found = locate(pipeline, home).home
    data = _operation_data(options)
    if from_file is not None:
        before = None if "function" in data else history(found, name)[-1].declaration
        data["function"] = _in_file(from_file, data.get("function") or (name if before is None else before.function))
    if not data and reset is None:
        raise typer.BadParameter("nothing to change is given", param_hint="OPTIONS")
    made = update_operation(found, name, data, _directory(pipeline), None if reset is None else reset.value)
    _tell(found, made, name, "is changed")


@app.command()
def remove(name: Name, pipeline: PipelineOption = None, home: HomeOption = None) -> None:
    """Remove an operation. What it has written stays in the home; refused while others read it.

    Example: [cyan]hayase ops remove scores[/]
    """
    from hayase.engine.definition.operation_changes import remove_operation

    found = locate(pipeline, home).home
    _tell(found, remove_operation(found, name), name, "is removed")


@app.command()
def rollback(
    name: Name,
    to: Annotated[
        int | None,
        typer.Option(
            metavar="VERSION",
            help="What it was in this version of the pipeline; else before its last change.",
            show_default=False,
        ),
    ] = None,
    reset: Reset = None,
    pipeline: PipelineOption = None,
    home: HomeOption = None,
) -> None:
    """Make an operation what it was, with the code that it had; also one that was removed.

    Example: [cyan]hayase ops rollback scores[/]

    To a version that history tells: [cyan]hayase ops rollback scores --to 3[/]
    """  # fmt: skip
    from hayase.engine.definition.operation_changes import rollback_operation

    found = locate(pipeline, home).home
    made = rollback_operation(found, name, to, None if reset is None else reset.value)
    _tell(found, made, name, "is what it was")


@app.command("list")
def list_(pipeline: PipelineOption = None, home: HomeOption = None, json: AsJson = False) -> None:
    """List operations: since which version each is as it is, what it reads and writes, and who said so.

    Example: [cyan]hayase ops list[/]
    """
    from hayase.engine.definition.definitions import latest
    from hayase.engine.definition.operation_changes import operations_of

    found = locate(pipeline, home).home
    known = operations_of(found)
    if as_json(json):
        _write({"name": name, **versions[-1].as_json()} for name, versions in known.items())
        return
    from hayase.console.listings import plain_table

    table = plain_table("operation", "version", "reads", "gives", "window", "since", "as")
    for name, versions in known.items():
        now = versions[-1]
        data = now.as_json()["operation"]
        said = "changed by command" if now.by_command else "the file says"
        table.add_row(
            name, f"{now.version} ({now.short})", _listed(data["reads"]), data.get("schema", "—"), _window(data),
            f"{now.time.astimezone():%Y-%m-%d %H:%M:%S}", said,
        )  # fmt: skip
    output().print(table)
    current = latest(found)
    removed = [each.name for each in current.changes if each.now is None] if current else []
    if removed:
        output().print(f"\nremoved by command: {', '.join(removed)}", style="dim")


@app.command()
def show(name: Name, pipeline: PipelineOption = None, home: HomeOption = None, json: AsJson = False) -> None:
    """Show all that is said of an operation, and where its code is.

    Example: [cyan]hayase ops show scores[/]
    """
    from hayase.engine.definition.operation_changes import history

    found = locate(pipeline, home).home
    now = history(found, name)[-1]
    code = None if now.declaration is None or now.declaration.code is None else found.code(now.declaration.code)
    about = {"name": name, **now.as_json(), "files": _files(code)}
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
    """List all that an operation has been, the newest last.

    Example: [cyan]hayase ops history scores[/]
    """
    from hayase.engine.definition.operation_changes import history

    versions = history(locate(pipeline, home).home, name)
    if as_json(json):
        _write({"name": name, **each.as_json()} for each in versions)
        return
    from hayase.console.listings import plain_table

    table = plain_table("version", "since", "fingerprint", "function", "by", "what changed")
    for each in versions:
        table.add_row(
            f"{each.version}", f"{each.time.astimezone():%Y-%m-%d %H:%M:%S}", each.short or "—", _function(each),
            "command" if each.by_command else "file", ", ".join(each.changed) or "—",
        )  # fmt: skip
    output().print(table)


# ---------------------------------------------------------------------------------------------------- what is given


def _operation_data(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, as the plain data of an operation; a file of a function by its absolute path."""
    data = {name: value for name, value in options.items() if value is not None}
    place, colon, attribute = data.get("function", "").rpartition(":")
    if colon and place.endswith(".py"):
        data["function"] = f"{Path(place).absolute()}:{attribute}"
    return data


def _in_file(file: Path, function: str) -> str:
    """A function of a file; only its own name counts."""
    if file.suffix != ".py":
        raise HayaseError(f'"{file}" is no file of Python; name one that ends in .py')
    return f"{file.absolute()}:{function.rpartition(':')[2]}"


def _directory(pipeline: Path | None) -> str:
    """Where modules are looked for: beside the pipeline's file, or here."""
    return str((pipeline.parent if pipeline is not None else Path()).absolute())


# ---------------------------------------------------------------------------------------------------- what is told


def _tell(home: Home, made: Definition, name: str, what: str) -> None:
    when = "takes effect at the next batch" if home.is_locked() else "takes effect when the pipeline runs next"
    typer.echo(f"{name} {what}: version {made.version} of {made.declaration.name}, which {when}")


def _write(rows: Any) -> None:
    import orjson

    sys.stdout.write("".join(orjson.dumps(each).decode() + "\n" for each in rows))
    sys.stdout.flush()


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _window(data: dict[str, Any]) -> str:
    window = data.get("window", 1)
    told = window if isinstance(window, str) else "1 record" if window == 1 else f"{window} records"
    told += f", slides by {data['slide']}" if "slide" in data else ""
    told += f", per {_listed(data['key'])}" if "key" in data else ""
    return told + (", together" if data.get("together") else "")


def _function(version: OperationVersion) -> str:
    return "—" if version.declaration is None else version.declaration.function


def _files(code: Path | None) -> list[str]:
    if code is None:
        return []
    return sorted(each.relative_to(code).as_posix() for each in code.rglob("*.py"))
