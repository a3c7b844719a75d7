"""Dead letters on screen: many in short, groups of them, one with all that is known of it, and what replaying came to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.console import Group as Together
from rich.console import RenderableType
from rich.text import Text

from hayase.console.listings import facts_grid, plain_table
from hayase.console.records import cell_text
from hayase.core.reasons import KIND_MEANINGS, ReasonKind
from hayase.core.times import instant_text

if TYPE_CHECKING:
    from hayase.engine.dead_letters.letters import Group, Letter, LetterState
    from hayase.engine.dead_letters.settlement import Settlement

__all__ = ["group_table", "letter_details", "letter_list", "report_lines"]

_SHOWN = 10
"""Refused letters that are told."""


def letter_list(letters: Iterable[Letter]) -> RenderableType:
    """Letters, each with its number, where it happened, why, and the record."""
    lines: list[RenderableType] = []
    for each in letters:
        columns = each.columns
        state = "" if each.fate.state == "open" else f"  {each.fate.state}"
        lines.append(
            Text.assemble(
                (f"#{each.number}", "bold cyan"), "  ", (cell_text(columns["time"])[:19], "dim"), "  ",
                (columns["stage"], "bold"), f" ← {_place(each)}", "  ", (columns["kind"], "magenta"), (state, "green"),
            )
        )  # fmt: skip
        lines.append(Text(f"  {columns['reason'].partition(chr(10))[0]}", style="yellow"))
        lines.append(Text(f"  {columns['record']}", style="dim", no_wrap=True, overflow="ellipsis"))
    return Together(*lines)


def group_table(groups: Iterable[Group]) -> RenderableType:
    """Groups of letters, the largest first."""
    table = plain_table("stage", "stream", "kind", "letters", "numbers", "first", "last", "reason", right=("letters",))
    for each in groups:
        numbers = str(each.first) if each.first == each.last else f"{each.first} to {each.last}"
        times = (instant_text(time)[:19].replace("T", " ") for time in (each.since, each.until))
        table.add_row(each.stage, each.stream, each.kind, f"{each.count:,}", numbers, *times, Text(each.reason))
    return table


def letter_details(letter: Letter, obstacle: str | None = None) -> RenderableType:
    """All of one letter, and why it cannot be replayed, if so."""
    columns, grid = letter.columns, facts_grid()
    facts = {
        "letter": f"#{letter.number}",
        "when": cell_text(columns["time"]),
        "stage": columns["stage"],
        "version": columns["version"],
        "record of": _place(letter),
        "kind": f"{columns['kind']}: {KIND_MEANINGS[ReasonKind(columns['kind'])]}",
        "attempts": str(columns["attempts"]),
        "now": _fate(letter.fate, letter.again),
    }
    for name, value in facts.items():
        grid.add_row(name, Text(value if value is not None else "—"))
    reason, record = Text(columns["reason"], style="yellow"), Text(columns["record"])
    parts: list[RenderableType] = [grid, Text(), reason, Text(), record]
    if obstacle is not None and letter.fate.at is None:
        parts += [Text(), Text("it cannot be replayed", style="dim"), Text(obstacle)]
    if letter.fate.record is not None and letter.fate.record != columns["record"]:
        parts += [Text(), Text("replayed as", style="dim"), Text(letter.fate.record)]
    return Together(*parts)


def _place(letter: Letter) -> str:
    stream, offset = letter.columns["stream"], letter.columns["offset"]
    return stream if offset is None else f"{stream} #{offset}"


def _fate(fate: LetterState, again: int | None) -> str:
    if fate.at is None:
        return "open"
    told = f"{fate.state} at {instant_text(fate.at)}"
    if fate.appended is not None:
        told += f", appended to its stream as #{fate.appended}"
    return told if again is None else f"{told}, and refused again as letter #{again}"


def report_lines(report: Settlement, what: str) -> Iterator[str]:
    """What became of letters, or would: `what` is said of those that are settled."""
    appended = f", {report.appended:,} of them by an append to a stream" if report.appended else ""
    yield f"{what} {_counted(report.settled)}{appended}"
    if report.unchanged:
        yield f"  {_counted(report.unchanged)} for a stage that is as it was when it refused the record, and may again"
    if report.again:
        yield f"  {_counted(report.again)} that the stage will refuse again, as it is now:"
        yield from (f"    #{number}: {reason}" for number, reason in report.refused_again[:_SHOWN])
    if report.before:
        yield f"  {_counted(report.before)} had been settled before"
    for reason, count in report.left.most_common():
        yield f"  {_counted(count)} left open: {reason}"
    for number, reason in report.refusals[:_SHOWN]:
        yield f"    #{number}: {reason}"
    if len(report.refusals) > _SHOWN:
        yield "    …"


def _counted(count: int) -> str:
    return f"{count:,} letter{'' if count == 1 else 's'}"
