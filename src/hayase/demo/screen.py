"""The shop on screen: stages at work above, below it what they give; and the same as lines, for logs and pipes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from hayase.console.figures import StageView, compact, seconds_text, uptime_text
from hayase.console.pipeline_view import RUNNING
from hayase.demo.observer import Move, Sight

if TYPE_CHECKING:
    from hayase.engine.batch.lane_governor import Seen

__all__ = ["Scene", "plain_lines"]

LEAST, MOST = 4, 14
"""Lines of a panel."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One moment of the demo, drawn as wide and as high as the terminal is."""

    phase: str
    stages: Sequence[StageView]
    sight: Sight
    uptime: float
    governors: Sequence[Seen] = ()
    hint: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        stages = _stages(self.stages, self.governors)
        room = (options.max_width - 1) // 2
        left = max(LEAST, min(MOST, (console.height - len(self.stages) - 8) // 2 - 1))
        upper = _side_by_side(
            Panel(_spree(self.sight, left), title="on a spree: 10 minutes", title_align="left"),
            Panel(_revenue(self.sight), title="revenue", title_align="left"),
            room,
            left,
        )
        lower = _side_by_side(
            Panel(_purchases(self.sight, left, room), title="purchases", title_align="left"),
            Panel(_letters(self.sight, left), title="dead letters", title_align="left"),
            room,
            left,
        )
        hint = Text.assemble(("try: ", "dim"), (self.hint, "cyan"), no_wrap=True, overflow="ellipsis")
        yield Group(self._head(), stages, upper, lower, _counted(self.sight), hint)

    def _head(self) -> Text:
        behind = sum(each.behind for each in self.stages)
        state = self.phase if self.phase != RUNNING else "caught up" if not behind else f"{behind:,} behind"
        clock = "" if self.sight.clock is None else f"{self.sight.clock:%Y-%m-%d %H:%M} in the shop"
        return Text.assemble(
            ("shop", "bold"), "  ", (state, "cyan"), f"  {clock}  ", (f"up {uptime_text(self.uptime)}  Ctrl-C closes it", "dim"),
            no_wrap=True, overflow="ellipsis",
        )  # fmt: skip


def _side_by_side(left: Panel, right: Panel, width: int, height: int) -> Table:
    """Two panels of the same size."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    for each in (left, right):
        each.height, each.box, each.padding, each.border_style = height + 2, box.ROUNDED, (0, 1), "dim"
        grid.add_column(width=width)
    grid.add_row(left, right)
    return grid


def _plain_table(*columns: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", show_edge=False, expand=True)
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=True, overflow="ellipsis")
    return table


def _stages(stages: Sequence[StageView], governors: Sequence[Seen]) -> Table:
    """Stages that read a stream in one pass share a load: it stands with the first of them."""
    numbers = ("in/s", "out/s", "lag", "waiting", "dead", "batch", "load", "share")
    table = _plain_table("stage", *numbers, right=numbers)
    known = {(each.stage, each.stream): each for one in governors for each in one.queues}
    shown: set[tuple[str, str]] = set()
    for stage in stages:
        load, share = Text("—", style="dim"), Text("—", style="dim")
        for stream, _ in stage.lag:
            queue = (stage.name, stream) if (stage.name, stream) in known else ("", stream)
            if queue in shown:
                load, share = Text("″", style="dim"), Text("″", style="dim")
            elif queue in known:
                load, share = Text(f"{known[queue].load:.2f}"), Text(f"{known[queue].share:.0%}")
            shown.add(queue)
        table.add_row(
            Text(stage.name, style="bold"),
            _lively(stage.read_rate),
            _lively(stage.written_rate),
            Text(compact(stage.behind), style="yellow" if stage.behind else "dim"),
            Text(compact(stage.waiting)),
            Text(compact(stage.dead), style="yellow" if stage.dead else "dim"),
            Text(seconds_text(stage.batch_seconds)),
            load,
            share,
        )
    return table


def _lively(rate: float) -> Text:
    return Text(compact(rate), style="green" if rate else "dim")


def _spree(sight: Sight, lines: int) -> RenderableType:
    """Who is on a spree now, and who has just come or gone."""
    moves = list(sight.moves)[-max(2, lines - 1 - len(sight.spree)) :]
    room = max(1, lines - 1 - min(len(moves), max(1, lines // 3)))
    table = _plain_table("customer", "orders", "yen", right=("orders", "yen"))
    for row in sight.spree[:room]:
        table.add_row(Text(row["user_id"], style="bold"), str(row["orders"]), Text(f"{row['spent']:,}", style="green"))
    left = max(1, lines - 1 - min(len(sight.spree), room))
    return Group(table, *(_move(each) for each in reversed(moves[-left:])))


def _move(move: Move) -> Text:
    style = "green" if move.sign == "+" else "red"
    what = "is on a spree" if move.sign == "+" else "is not any more"
    return Text.assemble(
        (f"{move.sign} ", style), (f"{move.at:%H:%M} ", "dim"), f"{move.row['user_id']} {what}",
        no_wrap=True, overflow="ellipsis",
    )  # fmt: skip


def _revenue(sight: Sight) -> RenderableType:
    """All windows of the one statement."""
    table = _plain_table("window", "orders", "yen", "largest", right=("orders", "yen", "largest"))
    for row in sight.revenue:
        table.add_row(row["window"], compact(row["orders"]), _yen(row["revenue"]), _yen(row["largest"]))
    return table


def _counted(sight: Sight) -> Text:
    """What the job and the operation have come to."""
    blocked = ", ".join(f"{address} {hits}×" for address, hits in sight.blocked.items())
    return Text.assemble(
        (" blocked ", "dim"), blocked or "—", ("   scored ", "dim"), f"{sight.scores:,} orders",
        no_wrap=True, overflow="ellipsis",
    )  # fmt: skip


def _yen(amount: int | None) -> Text:
    return Text("—" if amount is None else compact(amount))


def _purchases(sight: Sight, lines: int, width: int) -> RenderableType:
    """The latest buyers; rows that have just changed stand out."""
    columns = ["customer", "total", "last"] + (["in the basket"] if width >= 50 else [])
    table = _plain_table(*columns, right=("total",))
    for row in sight.purchases[: max(1, lines - 1)]:
        fresh = row["user_id"] in sight.fresh
        cells = [
            Text(row["user_id"], style="bold" if fresh else ""),
            Text(compact(row["total"]), style="green" if fresh else ""),
            Text(str(row["last_purchase_time"])[11:19]),
        ]
        table.add_row(*cells, *([Text(", ".join(row["basket"]), style="dim")] if width >= 50 else []))
    return table


def _letters(sight: Sight, lines: int) -> RenderableType:
    """The newest dead letters, the latest first, one of each kind."""
    reasons = _reasons(list(reversed(sight.letters)))
    cut = 2 * len(reasons) > lines
    return Group(
        *(
            Text.assemble(
                (f"{stage} ", "bold"), (reason, "yellow"), no_wrap=cut, overflow="ellipsis" if cut else "fold"
            )
            for (stage, _), reason in list(reasons.items())[:lines]
        )
    )


# ------------------------------------------------------------------------------------------------ lines


def plain_lines(scene: Scene, before: Scene | None) -> Iterator[str]:
    """What has changed since the scene before, line by line."""
    told = set() if before is None else {line for _, line in _facts(before)}
    for told_with, line in _facts(scene):
        if line not in told:
            yield f"{line}{told_with}"
    old = () if before is None else before.sight.moves
    for move in scene.sight.moves:
        if move not in old:
            yield f"spree: {move.sign} {move.row['user_id']} at {move.at:%H:%M}, {move.row['spent']:,} yen"
    reasons = {} if before is None else _reasons(before.sight.letters)
    for place, reason in _reasons(scene.sight.letters).items():
        if place not in reasons:
            yield f"dead: {place[0]}: {reason}"


def _facts(scene: Scene) -> Iterator[tuple[str, str]]:
    """Lines that are worth saying again when they change, each with what is said behind it and is no change by itself."""
    sight = scene.sight
    for stage in scene.stages:
        lag = " ".join(f"{stream}:{count}" for stream, count in stage.lag)
        rates = (
            f", in {stage.read_rate:.0f}/s, out {stage.written_rate:.0f}/s, batch {seconds_text(stage.batch_seconds)}"
        )
        yield rates, f"{stage.name}: read {stage.read}, lag {lag or '0'}, waiting {stage.waiting}, dead {stage.dead}"
    for seen in scene.governors:
        for queue in seen.queues:
            yield "", f"governor: {queue.name}: load {queue.load:.2f}, share {queue.share:.0%}, waiting {queue.waiting}"
    for row in sight.revenue:
        yield (
            f" at {_clock(sight.clock)}",
            f"revenue: {row['window']}: {row['orders']} orders, {row['revenue'] or 0:,} yen",
        )
    for row in sight.purchases[:3]:
        basket = ", ".join(row["basket"]) or "nothing"
        yield "", f"purchases: {row['user_id']}: {row['orders']} orders, {row['total']:,} yen, {basket} in the basket"
    if sight.blocked:
        yield "", f"blocked: {', '.join(f'{address} {hits}' for address, hits in sight.blocked.items())}"


def _reasons(letters: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """The first reason of each kind: of a stage those are alike that differ in their numbers only."""
    found: dict[tuple[str, str], str] = {}
    for each in letters:
        reason = re.sub(r"^operation .* attempts?: ", "", each["reason"].splitlines()[0])
        found.setdefault((each["stage"], re.sub(r"\d.*", "", reason)), reason)
    return found


def _clock(time: datetime | None) -> str:
    return "—" if time is None else f"{time:%H:%M}"
