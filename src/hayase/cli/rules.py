"""The command `hayase rules try`: shows what update rules would do with an event, without running a pipeline."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from hayase.cli import completion
from hayase.cli.pipeline_location import DEFAULT
from hayase.cli.terminal import AsJson, as_json, output
from hayase.core.errors import HayaseError, UnknownName

if TYPE_CHECKING:
    import pyarrow as pa

    from hayase.core.declarations import StreamDeclaration
    from hayase.tables.jq import Jq
    from hayase.tables.rule_payloads import Outcome
    from hayase.tables.rules import RuleSet
    from hayase.tables.rules_map_side import RulesMapSide

__all__ = ["app"]

app = typer.Typer(
    help="Try update rules on events: try.",
    epilog="Example: [cyan]hayase rules try pipeline.yaml --events events.ndjson[/]",
    no_args_is_help=True,
)


@app.callback()
def _options() -> None:
    """Try update rules on events."""


STDIN = "-"
Trial: TypeAlias = dict[str, Any]
"""The result for an event, as plain data: the branches, the payloads, and the refusals."""
TryEvent: TypeAlias = Callable[[str, bytes], Trial]
"""Tries the rules for a source on the JSON text of an event."""


@app.command("try")
def try_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A pipeline file, or a file of rules.")] = DEFAULT,
    event: Annotated[
        list[str] | None, typer.Option(metavar="JSON", help="An event; may be repeated.", show_default=False)
    ] = None,
    events: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="NDJSON, an event to a line.", show_default=False)
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="STREAM",
            help="The stream, if the rules are for several.",
            show_default=False,
            autocompletion=completion.declared_streams,
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Show the payloads that events would produce, the branches that apply to them, and the refusals.

    With a pipeline file, an event is read as a record of its stream, with its time and id, and payloads have versions; a file
    of rules does not have the types of columns. The exit code is 1 if anything would be refused. Nothing is written.

    Example: [cyan]hayase rules try rules.yaml --event '{"type": "purchase", "user_id": "taro", "amount": 120}'[/]

    Many, for one of several streams: [cyan]hayase rules try pipeline.yaml --source orders --events orders.ndjson[/]
    """
    from hayase.tables.jq import Jq

    texts = _event_texts(event, events)
    refused = False
    with Jq() as jq:
        sources, try_event, typed = _pipeline_trial(file, jq) if _is_pipeline(file) else _rules_trial(file, jq)
        chosen = _chosen_source(source, sources, file)
        for number, text in enumerate(texts, 1):
            trial = {"event": number, "source": chosen, **try_event(chosen, text)}
            refused = refused or bool(trial["refusals"])
            _show(trial, typed, as_json(json))
    if refused:
        raise typer.Exit(1)


def _event_texts(event: list[str] | None, events: str | None) -> Iterator[bytes]:
    """Return the JSON texts of the events."""
    if event and events is not None:
        raise typer.BadParameter("give --event or --events, not both", param_hint="--event")
    if event:
        return (text.encode() for text in event)
    if events is None and sys.stdin.isatty():
        raise typer.BadParameter("give an event like '{\"amount\": 5}', or many with --events", param_hint="--event")
    return _lines(events or STDIN)


def _lines(events: str) -> Iterator[bytes]:
    if events == STDIN:
        yield from _nonblank(sys.stdin.buffer)
        return
    try:
        with Path(events).open("rb") as file:
            yield from _nonblank(file)
    except OSError as error:
        raise HayaseError(f'"{events}" cannot be read: {error.strerror}; check the name') from error


def _nonblank(lines: Iterable[bytes]) -> Iterator[bytes]:
    return (line for line in lines if line.strip())


def _is_pipeline(file: Path) -> bool:
    """Whether a file declares a pipeline; a file of rules has the key "source", several documents, or a list."""
    from dataclasses import replace

    import yaml

    from hayase.core.errors import DeclarationError
    from hayase.core.yaml_nodes import compose, file_text

    try:
        text = file_text(file, "rule", "check the name")
    except DeclarationError as error:
        raise DeclarationError(replace(mistake, file=str(file)) for mistake in error.mistakes) from error
    try:
        root = compose(text)
    except DeclarationError:
        return False
    keys = [key.value for key, _ in root.value] if isinstance(root, yaml.MappingNode) else ["source"]
    return "source" not in keys


def _chosen_source(source: str | None, sources: Sequence[str], file: Path) -> str:
    if not sources:
        raise HayaseError(f'"{file}" has no rules; add "rules:" and what events do to tables')
    if source is None and len(sources) > 1:
        raise HayaseError(f'the rules in "{file}" are for {", ".join(sources)}; say whose event it is with --source')
    if source is not None and source not in sources:
        raise UnknownName("source", source, sources, f' of the rules in "{file}"')
    return source or sources[0]


# ------------------------------------------------------------------------------------------------------ rules alone


def _rules_trial(file: Path, jq: Jq) -> tuple[list[str], TryEvent, bool]:
    from hayase.tables.jq import Events
    from hayase.tables.jq_numbers import read
    from hayase.tables.rule_payloads import payloads
    from hayase.tables.rule_text import read_rules

    rules = read_rules(file, jq).rules

    def try_event(source: str, text: bytes) -> Trial:
        try:
            document = read(text)
        except ValueError as error:
            return {"branches": [], "payloads": [], "refusals": [_refusal("event", None, f"it is not JSON: {error}")]}
        outcome = payloads(rules, source, Events([document]), jq)
        shown = [
            {"table": payload.table, "key": list(payload.key), "column": payload.column, "method": payload.method,
             "parameter": payload.parameter}
            for payload in outcome.by_event()[0]
        ]  # fmt: skip
        return {"branches": _branches(rules, source, outcome), "payloads": shown, "refusals": _refusals(outcome)}

    return list(dict.fromkeys(part.source for part in rules.sources)), try_event, False


def _branches(rules: RuleSet, source: str, outcome: Outcome) -> list[Trial]:
    """Return the branches for a source, and which of them apply to the event: those whose updates were evaluated."""
    looked = {evaluated.update.number for evaluated in outcome.updates}
    branches = []
    for branch in rules.branches(source):
        numbers = {update.number for table in branch.tables for update in table.updates}
        tables = list(dict.fromkeys(part.table for part in branch.tables))
        branches.append({"condition": branch.condition, "concerns": bool(numbers & looked), "tables": tables})
    return branches


def _refusals(outcome: Outcome) -> list[Trial]:
    return [_refusal(refusal.rule, refusal.program, refusal.reason) for refusal in outcome.refusals]


def _refusal(rule: str, program: str | None, reason: str) -> Trial:
    return {"rule": rule, "program": program, "reason": reason}


# ------------------------------------------------------------------------------------------------------ a pipeline


def _pipeline_trial(file: Path, jq: Jq) -> tuple[list[str], TryEvent, bool]:
    from hayase.core.pipeline_file import read_pipeline
    from hayase.engine.definition.check import check_file
    from hayase.tables.rules_map_side import RulesMapSide

    inputs = [item for stage in check_file(read_pipeline(file, partly=True)) for item in stage.inputs]
    sides = [item.map_side for item in inputs if isinstance(item.map_side, RulesMapSide)]

    def try_event(source: str, text: bytes) -> Trial:
        fed = [side for side in sides if side.stream.name == source]
        batch = _as_record(text, fed[0].stream)
        trial: Trial = {"branches": [], "payloads": [], "refusals": []}
        if isinstance(batch, str):
            trial["refusals"].append(_refusal("stream", None, batch))
            return trial
        for side in fed:
            for part, items in _apply_rules(side, batch, jq).items():
                trial[part] += items
        return trial

    return list(dict.fromkeys(side.stream.name for side in sides)), try_event, True


def _as_record(text: bytes, stream: StreamDeclaration) -> pa.RecordBatch | str:
    """Return the event as a record of the stream, or the reason why it is refused."""
    import io

    from hayase.core.clock import now_us
    from hayase.streams.file_formats import format_of, read_records

    line = b" ".join(text.splitlines()) + b"\n"
    for chunk in read_records(io.BytesIO(line), format_of(STDIN, "ndjson"), stream, now_us):
        for refusal in chunk.conformed.refused:
            return refusal.reason.removeprefix("line 1: ")
        for batch in chunk.conformed.rows.to_batches():
            return batch
    return "there is no event"


def _apply_rules(side: RulesMapSide, batch: pa.RecordBatch, jq: Jq) -> dict[str, list[Trial]]:
    """Apply the rules of one table to an event."""
    from hayase.streams import event_times
    from hayase.tables import TYPES, UnfitParameter, versions
    from hayase.tables.entries import key_bytes
    from hayase.tables.events import events_of
    from hayase.tables.rule_payloads import payloads

    outcome = payloads(side.rules, side.stream.name, events_of(batch), jq)
    time, id = int(event_times(batch, side.stream)[0]), batch.column(side.id)[0].as_py()
    kinds = dict(side.table.columns)
    shown, refusals = [], _refusals(outcome)
    for evaluated in outcome.updates:
        update = evaluated.update
        for key, parameter, number in zip(evaluated.keys, evaluated.parameters, evaluated.numbers, strict=True):
            within = side.targets[update.number].number + number - update.number
            try:
                versions.to_bytes(time, id, within)
                key_bytes(key)
                delta = TYPES[kinds[update.column]]().payload(update.method, parameter)
            except UnfitParameter as error:
                refusals.append(_refusal(evaluated.rule, update.value, str(error)))
                continue
            shown.append(
                {
                    "table": evaluated.table, "key": list(key), "column": update.column, "method": update.method,
                    "parameter": parameter, "version": {"time_us": time, "id": id, "operation": within},
                    "delta": delta.hex(),
                }
            )  # fmt: skip
    return {"branches": _branches(side.rules, side.stream.name, outcome), "payloads": shown, "refusals": refusals}


def _show(trial: Trial, typed: bool, as_json: bool) -> None:
    if as_json:
        from hayase.console.rules_view import json_text

        sys.stdout.write(json_text(trial) + "\n")
        sys.stdout.flush()
    else:
        from hayase.console.rules_view import trial_view

        output().print(trial_view(trial, typed=typed))
