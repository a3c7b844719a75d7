"""The commands `hayase dead`: list, show, replay, drop. They work whether or not the pipeline runs."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from hayase.cli import completion
from hayase.cli.pipeline_location import locate
from hayase.cli.terminal import AsJson, HomeOption, PipelineOption, as_json, errors, output
from hayase.core.errors import HayaseError
from hayase.core.reasons import ReasonKind

if TYPE_CHECKING:
    from hayase.engine.dead_letters.edits import Editing
    from hayase.engine.dead_letters.letters import Filter, Letter, Letters
    from hayase.engine.dead_letters.settlement import Settlement
    from hayase.pipeline import Pipeline

__all__ = ["app"]

app = typer.Typer(
    help="Dead letters, records that could not be taken: list, show, replay, drop.",
    epilog="Example: [cyan]hayase dead replay --stage scores[/]",
    no_args_is_help=True,
)

Stage = Annotated[
    str | None,
    typer.Option(
        metavar="STAGE", help="Of this stage; append for records that no stream took.", show_default=False,
        autocompletion=completion.stages,
    ),
]  # fmt: skip
Stream = Annotated[
    str | None,
    typer.Option(
        metavar="STREAM", help="Records of this stream.", show_default=False, autocompletion=completion.streams
    ),
]
Kind = Annotated[
    ReasonKind | None,
    typer.Option(metavar="KIND", help=f"With a reason of this kind: {', '.join(ReasonKind)}.", show_default=False),
]
Reason = Annotated[str | None, typer.Option(metavar="TEXT", help="With this in the reason.", show_default=False)]
Since = Annotated[
    str | None,
    typer.Option(metavar="TIME", help='From this time on, or for so long: "2026-01-31T12:00", "1 hour".', show_default=False),
]  # fmt: skip
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Before this time, or longer ago.", show_default=False)]
Version = Annotated[
    str | None, typer.Option(metavar="VERSION", help="Of this version of the stage, or its beginning.", show_default=False)
]  # fmt: skip
Offsets = Annotated[
    str | None, typer.Option(metavar="FROM..TO", help="Records with these offsets, both included.", show_default=False)
]
Numbers = Annotated[list[int] | None, typer.Argument(metavar="N", help="Letters, by number.", show_default=False)]
Everything = Annotated[bool, typer.Option("--all", help="All open letters.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")]
Most = Annotated[int | None, typer.Option("--limit", metavar="N", help="At most so many.", min=1, show_default=False)]


def _filter(
    stage: Stage = None,
    stream: Stream = None,
    kind: Kind = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    version: Version = None,
    offsets: Offsets = None,
) -> Filter:
    """Return the filter that the options of a command state."""
    from hayase.engine.dead_letters.letters import Filter

    times = _time(since, "--since"), _time(until, "--until")
    return Filter(stage, stream, reason, *times, version, None if offsets is None else _range(offsets), kind=kind)


def _filtering(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `_filter`, in place of its parameter `wanted`, which gets the filter."""
    options = _parameters(_filter)

    @wraps(command)
    def with_filter(**given: Any) -> None:
        command(wanted=_filter(**{option.name: given.pop(option.name) for option in options}), **given)

    parameters = [
        part for parameter in _parameters(command) for part in (options if parameter.name == "wanted" else (parameter,))
    ]
    with_filter.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_filter.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_filter


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function with their types, as Typer needs them; `Filter` is imported only when it is used."""
    types = get_type_hints(function, localns={"Filter": object}, include_extras=True)
    return [
        parameter.replace(annotation=types[name]) for name, parameter in inspect.signature(function).parameters.items()
    ]


@app.command("list")
@_filtering
def list_(
    wanted: Filter,
    settled: Annotated[bool, typer.Option("--all", help="Also those that were replayed or dropped.")] = False,
    grouped: Annotated[bool, typer.Option("-g", "--grouped", help="Count them by stage and reason.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", help="At most so many, the newest.", min=1)] = 20,
    pipeline: PipelineOption = None,
    home: HomeOption = None,
    json: AsJson = False,
) -> None:
    """List dead letters that are open, the newest first.

    Example: [cyan]hayase dead list --stage scores --since "1 hour"[/]

    What is wrong, in short: [cyan]hayase dead list --grouped[/]
    """
    letters = _letters(locate(pipeline, home))
    if grouped:
        groups = letters.groups(wanted, settled=settled)
        if as_json(json):
            _write(asdict(each) for each in groups[:limit])
        elif groups:
            from hayase.console.letters_view import group_table

            output().print(group_table(groups[:limit]))
        else:
            _none(settled)
        return
    page = letters.newest(wanted, limit, settled=settled)
    if as_json(json):
        _write(_plain(each) for each in page.letters)
    elif page.letters:
        from hayase.console.letters_view import letter_list

        output().print(letter_list(page.letters))
        if page.older is not None:
            errors().print("there may be more: --limit N shows them, --grouped counts them", style="dim", markup=False)
    else:
        _none(settled)


@app.command()
def show(
    number: Annotated[int, typer.Argument(metavar="N", help="The number of the letter.")],
    pipeline: PipelineOption = None,
    home: HomeOption = None,
    json: AsJson = False,
) -> None:
    """Show one letter whole: the record, the reason with its traceback, what became of it, and what to do if it cannot be replayed.

    Example: [cyan]hayase dead show 17[/]
    """
    from hayase.engine.dead_letters.destinations import Destinations

    letters = _letters(locate(pipeline, home))
    letter = letters.get(number)
    place = letter.columns
    obstacle = Destinations(letters).obstacle(place["stage"], place["stream"], place["offset"] is not None)
    if as_json(json):
        _write([{**_plain(letter), "obstacle": obstacle}])
    else:
        from hayase.console.letters_view import letter_details

        output().print(letter_details(letter, obstacle))


@app.command()
@_filtering
def replay(
    wanted: Filter,
    numbers: Numbers = None,
    everything: Everything = False,
    edit: Annotated[
        str | None,
        typer.Option(metavar="JQ", help="A jq program that makes a new record of each.", show_default=False),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="COLUMN=VALUE", help="Give a column another value.", show_default=False),
    ] = None,
    late: Annotated[
        bool, typer.Option("--late", help="Also records that were refused because they were late.")
    ] = False,
    limit: Most = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    pipeline: PipelineOption = None,
    home: HomeOption = None,
    json: AsJson = False,
) -> None:
    """Give records once more to the stage that refused them, and to nobody else.

    Records that no stream took are appended to theirs. What is edited must fit its stream; if it does not, the letter stays open.

    Example: [cyan]hayase dead replay 17 --set amount=12.5[/]

    After a fix: [cyan]hayase dead replay --stage scores --kind function[/]

    With jq: [cyan]hayase dead replay --stream orders --edit '.amount |= tonumber' --dry-run[/]
    """
    found = locate(pipeline, home)
    letters = _letters(found)
    wanted = _selected(wanted, numbers, everything)
    from hayase.engine.dead_letters.settlement import replay

    with _editing(edit, set_ or []) as editing:

        def work(dry: bool) -> Settlement:
            return replay(letters, wanted, editing, late=late, limit=limit, dry=dry)

        plan = work(True)
        if dry_run or not plan.settled:
            _print_settlement(plan, "would replay", json)
        else:
            _confirm(plan, "replay", yes)
            _print_settlement(work(False), "replayed", json)
            if not found.home.is_locked():
                errors().print(
                    "the pipeline does not run; stages take them when it runs next", style="dim", markup=False
                )
    if not plan.settled and plan.kept:
        raise typer.Exit(1)


@app.command()
@_filtering
def drop(
    wanted: Filter,
    numbers: Numbers = None,
    everything: Everything = False,
    limit: Most = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    pipeline: PipelineOption = None,
    home: HomeOption = None,
    json: AsJson = False,
) -> None:
    """Settle letters without doing anything with them. They are not listed any more, unless with --all.

    Example: [cyan]hayase dead drop --kind late --until "7 days"[/]
    """
    letters = _letters(locate(pipeline, home))
    wanted = _selected(wanted, numbers, everything)
    plan = letters.drop(wanted, limit=limit, dry=True)
    if dry_run or not plan.settled:
        _print_settlement(plan, "would drop", json)
    else:
        _confirm(plan, "drop", yes)
        _print_settlement(letters.drop(wanted, limit=limit), "dropped", json)


def _letters(pipeline: Pipeline) -> Letters:
    from hayase.engine.dead_letters.letters import Letters

    return Letters(pipeline.home, pipeline.declaration)


# ---------------------------------------------------------------------------------------------------- which letters


def _selected(wanted: Filter, numbers: list[int] | None, everything: bool) -> Filter:
    """Return the filter with the numbers of letters. Who settles all letters must say so."""
    from hayase.engine.dead_letters.letters import Filter

    if not (everything or numbers) and wanted == Filter():
        raise typer.BadParameter("say which letters: their numbers, --stage and the like, or --all", param_hint="N")
    if everything and numbers:
        raise typer.BadParameter("give numbers or --all, one of them", param_hint="--all")
    return replace(wanted, numbers=tuple(numbers)) if numbers else wanted


def _time(text: str | None, option: str) -> int | None:
    """A point in time, also as how long ago it is."""
    from hayase.core.clock import now_us
    from hayase.core.times import duration, instant

    if text is None:
        return None
    with contextlib.suppress(HayaseError):
        return now_us() - duration(text)
    try:
        return instant(text)
    except HayaseError:
        told = f'"{text}" is not a time; write it like "2026-01-31T12:00:00Z", or how long ago it is, like "1 hour"'
        raise typer.BadParameter(told, param_hint=option) from None


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("..")
    if not (first.isdigit() and (last.isdigit() or (not last and ".." not in text))):
        raise typer.BadParameter(f'"{text}" is not a range of offsets; write it like 100..250', param_hint="--offsets")
    return int(first), int(last or first)


# ---------------------------------------------------------------------------------------------------- settling


@contextlib.contextmanager
def _editing(program: str | None, settings: list[str]) -> Iterator[Editing | None]:
    from hayase.engine.dead_letters.edits import by_jq, in_turn, setting_texts

    given = {}
    for each in settings:
        column, is_, value = each.partition("=")
        if not (is_ and column):
            raise typer.BadParameter(f'"{each}" sets nothing; write COLUMN=VALUE', param_hint="--set")
        given[column] = value
    with contextlib.ExitStack() as stack:
        edits = [] if program is None else [stack.enter_context(by_jq(program))]
        edits += [setting_texts(given)] if given else []
        yield in_turn(*edits) if edits else None


def _confirm(plan: Settlement, what: str, yes: bool) -> None:
    """Ask before more than one letter is settled."""
    if yes or plan.settled == 1:
        return
    from hayase.console.letters_view import report_lines

    if not sys.stdin.isatty():
        raise HayaseError(f"this would {what} {plan.settled:,} letters; say that you mean it with --yes")
    for line in report_lines(plan, f"this will {what}"):
        errors().print(line, markup=False)
    typer.confirm("go on?", abort=True, err=True)


def _print_settlement(report: Settlement, what: str, json: bool) -> None:
    if as_json(json):
        _write([report.plain()])
        return
    from hayase.console.letters_view import report_lines

    for line in report_lines(report, what):
        output().print(line, markup=False)


# ---------------------------------------------------------------------------------------------------- output


def _none(settled: bool) -> None:
    errors().print("no dead letters" if settled else "no open dead letters", style="dim", markup=False)


def _plain(letter: Letter) -> dict[str, Any]:
    """A letter as plain data; what became of it stands behind its columns."""
    fate: dict[str, Any] = {"state": letter.fate.state, "settled_us": letter.fate.at}
    if letter.fate.state == "replayed":
        fate |= {"replayed": letter.fate.record, "appended": letter.fate.appended, "again": letter.again}
    return {"letter": letter.number, **letter.columns, **fate}


def _write(rows: Any) -> None:
    from hayase.streams.record_text import record_text

    sys.stdout.write("".join(record_text(each) + "\n" for each in rows))
    sys.stdout.flush()
