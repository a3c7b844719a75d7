"""The command `hayase governor`: the policy, the dial u and the loads of queues. `--u` sets the dial while the pipeline runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hayase.cli.pipeline_location import locate
from hayase.cli.terminal import AsJson, HomeOption, PipelineOption, as_json, output
from hayase.core.errors import HayaseError

if TYPE_CHECKING:
    from hayase.engine.definition.governor_dial import DialStatus
    from hayase.engine.home import Home

__all__ = ["governor"]


def governor(
    u: Annotated[
        float | None,
        typer.Option(
            "--u",
            metavar="U",
            min=0,
            help="Set the dial, from 0 up to 1: near 1 saves polls, 0 polls eagerly.",
            show_default=False,
        ),
    ] = None,
    as_declared: Annotated[
        bool, typer.Option("--as-declared", help="Set the dial back to what the pipeline file says.")
    ] = False,
    pipeline: PipelineOption = None,
    home: HomeOption = None,
    json: AsJson = False,
) -> None:
    """Show the governor: its policy, its dial u, and the load and share of every queue. Or set the dial, at the next batch.

    The dial stays until the pipeline file says something else of the governor.

    Example: [cyan]hayase governor[/]

    Poll less often: [cyan]hayase governor --u 0.99[/]    and back: [cyan]hayase governor --as-declared[/]
    """
    from hayase.engine.definition.definitions import latest
    from hayase.engine.definition.governor_dial import dial_status, set_dial

    if u is not None and as_declared:
        raise typer.BadParameter("give one of them", param_hint="--u, --as-declared")
    place = locate(pipeline, home).home
    if u is not None or as_declared:
        _report(place, dial_status(set_dial(place, u)))
        return
    definition = latest(place)
    if definition is None:
        raise HayaseError(
            f"no pipeline was declared in the home {place.path} yet; declare one with `hayase apply FILE`"
        )
    _show(place, dial_status(definition), as_json(json))


def _report(home: Home, dial: DialStatus) -> None:
    when = "takes effect at the next batch" if home.is_locked() else "takes effect when the pipeline runs next"
    origin = "by command" if dial.by_command else "as the file says"
    typer.echo(f"u is {dial.u:g}, {origin}: version {dial.version} of the pipeline, which {when}")


def _show(home: Home, dial: DialStatus, json: bool) -> None:
    from hayase.engine.batch.lane_governor import governor_statuses

    lanes = governor_statuses(home)
    if json:
        import orjson

        rows: list[dict[str, Any]] = [{**dial.as_json(), "lanes": lanes}]
        sys.stdout.write("".join(orjson.dumps(row).decode() + "\n" for row in rows))
        sys.stdout.flush()
        return
    from hayase.console.pipeline_view import governors_view

    origin = f"by command; the file says {dial.declared_u:g}" if dial.by_command else "as the file says"
    value = "no u" if dial.u is None else f"u {dial.u:g}, {origin}"
    output().print(f"policy {dial.policy}, {value}", markup=False)
    if any(lane.queues for lane in lanes):
        output().print(governors_view(lanes))
