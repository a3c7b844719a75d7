"""Draws the shop: stages above, their results below; and the same as lines of text, for logs and pipes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from hayase.console.figures import compact, seconds_text, uptime_text
from hayase.console.pipeline_view import RUNNING
from hayase.core.data_classes import dataclass
from hayase.demo.observer import Observation, SpreeChange
from hayase.engine.stage_figures import StageView

if TYPE_CHECKING:
    from hayase.engine.batch.lane_governor import GovernorStatus

__all__ = ["Screen", "plain_lines"]

LEAST, MOST = 4, 14
"""Lines of a panel, at least and at most."""


@dataclass(frozen=True, slots=True)
class Screen:
    """One frame of the demo, drawn as wide and as high as the terminal."""

    phase: str
    stages: Sequence[StageView]
    shop: Observation
    uptime: float
    governors: Sequence[GovernorStatus] = ()
    hint: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        stages = _stages(self.stages, self.governors)
        room = (options.max_width - 1) // 2
        left = max(LEAST, min(MOST, (console.height - len(self.stages) - 8) // 2 - 1))
        upper = _side_by_side(
            Panel(_spree(self.shop, left), title="on a spree: 10 minutes", title_align="left"),
            Panel(_revenue(self.shop), title="revenue", title_align="left"),
            room,
            left,
        )
        lower = _side_by_side(
            Panel(_purchases(self.shop, left, room), title="purchases", title_align="left"),
            Panel(_dead_letters(self.shop, left), title="dead letters", title_align="left"),
            room,
            left,
        )
        hint = Text.assemble(("try: ", "dim"), (self.hint, "cyan"), no_wrap=True, overflow="ellipsis")
        yield Group(self._head(), stages, upper, lower, _counts(self.shop), hint)

    def _head(self) -> Text:
        behind = sum(stage.behind for stage in self.stages)
        state = self.phase if self.phase != RUNNING else "caught up" if not behind else f"{behind:,} behind"
        clock = "" if self.shop.clock is None else f"{self.shop.clock:%Y-%m-%d %H:%M} in the shop"
        return Text.assemble(
            ("shop", "bold"), "  ", (state, "cyan"), f"  {clock}  ", (f"up {uptime_text(self.uptime)}  Ctrl-C closes it", "dim"),
            no_wrap=True, overflow="ellipsis",
        )  # fmt: skip


def _side_by_side(left: Panel, right: Panel, width: int, height: int) -> Table:
    """Put two panels of the same size beside each other."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    for panel in (left, right):
        panel.height, panel.box, panel.padding, panel.border_style = height + 2, box.ROUNDED, (0, 1), "dim"
        grid.add_column(width=width)
    grid.add_row(left, right)
    return grid


def _plain_table(*columns: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", show_edge=False, expand=True)
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=True, overflow="ellipsis")
    return table


def _stages(stages: Sequence[StageView], governors: Sequence[GovernorStatus]) -> Table:
    """Draw the stages. Stages of a shared scan share a load, which is shown with the first of them."""
    numbers = ("in/s", "out/s", "lag", "waiting", "dead", "batch", "load", "share")
    table = _plain_table("stage", *numbers, right=numbers)
    queues = {(queue.stage, queue.stream): queue for governor in governors for queue in governor.queues}
    shown: set[tuple[str, str]] = set()
    for stage in stages:
        load, share = Text("—", style="dim"), Text("—", style="dim")
        for stream, _ in stage.lag:
            queue = (stage.name, stream) if (stage.name, stream) in queues else ("", stream)
            if queue in shown:
                load, share = Text("″", style="dim"), Text("″", style="dim")
            elif queue in queues:
                load, share = Text(f"{queues[queue].load:.2f}"), Text(f"{queues[queue].share:.0%}")
            shown.add(queue)
        table.add_row(
            Text(stage.name, style="bold"),
            _rate(stage.read_rate),
            _rate(stage.written_rate),
            Text(compact(stage.behind), style="yellow" if stage.behind else "dim"),
            Text(compact(stage.waiting)),
            Text(compact(stage.dead), style="yellow" if stage.dead else "dim"),
            Text(seconds_text(stage.batch_seconds)),
            load,
            share,
        )
    return table


def _rate(rate: float) -> Text:
    return Text(compact(rate), style="green" if rate else "dim")


def _spree(shop: Observation, lines: int) -> RenderableType:
    """Draw who is on a spree now, and the last changes."""
    changes = list(shop.spree_changes)[-max(2, lines - 1 - len(shop.spree)) :]
    room = max(1, lines - 1 - min(len(changes), max(1, lines // 3)))
    table = _plain_table("customer", "orders", "yen", right=("orders", "yen"))
    for row in shop.spree[:room]:
        table.add_row(Text(row["user_id"], style="bold"), str(row["orders"]), Text(f"{row['spent']:,}", style="green"))
    left = max(1, lines - 1 - min(len(shop.spree), room))
    return Group(table, *(_spree_change(change) for change in reversed(changes[-left:])))


def _spree_change(change: SpreeChange) -> Text:
    style = "green" if change.sign == "+" else "red"
    what = "is on a spree" if change.sign == "+" else "is not any more"
    return Text.assemble(
        (f"{change.sign} ", style), (f"{change.at:%H:%M} ", "dim"), f"{change.row['user_id']} {what}",
        no_wrap=True, overflow="ellipsis",
    )  # fmt: skip


def _revenue(shop: Observation) -> RenderableType:
    """Draw the three windows of the query."""
    table = _plain_table("window", "orders", "yen", "largest", right=("orders", "yen", "largest"))
    for row in shop.revenue:
        table.add_row(row["window"], compact(row["orders"]), _yen(row["revenue"]), _yen(row["largest"]))
    return table


def _counts(shop: Observation) -> Text:
    """Draw the counts of the job and of the operation."""
    blocked = ", ".join(f"{address} {hits}×" for address, hits in shop.blocked.items())
    return Text.assemble(
        (" blocked ", "dim"), blocked or "—", ("   scored ", "dim"), f"{shop.scores:,} orders",
        no_wrap=True, overflow="ellipsis",
    )  # fmt: skip


def _yen(amount: int | None) -> Text:
    return Text("—" if amount is None else compact(amount))


def _purchases(shop: Observation, lines: int, width: int) -> RenderableType:
    """Draw the latest buyers; rows that have just changed are highlighted."""
    columns = ["customer", "total", "last"] + (["in the basket"] if width >= 50 else [])
    table = _plain_table(*columns, right=("total",))
    for row in shop.purchases[: max(1, lines - 1)]:
        changed = row["user_id"] in shop.changed
        cells = [
            Text(row["user_id"], style="bold" if changed else ""),
            Text(compact(row["total"]), style="green" if changed else ""),
            Text(str(row["last_purchase_time"])[11:19]),
        ]
        table.add_row(*cells, *([Text(", ".join(row["basket"]), style="dim")] if width >= 50 else []))
    return table


def _dead_letters(shop: Observation, lines: int) -> RenderableType:
    """Draw the newest dead letters, the latest first, one for each stage and reason."""
    reasons = _reasons(list(reversed(shop.dead_letters)))
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


def plain_lines(screen: Screen, before: Screen | None) -> Iterator[str]:
    """Yield a line for each thing that has changed since the screen before."""
    written = set() if before is None else {line for line, _ in _facts(before)}
    for line, remark in _facts(screen):
        if line not in written:
            yield f"{line}{remark}"
    old = () if before is None else before.shop.spree_changes
    for change in screen.shop.spree_changes:
        if change not in old:
            yield f"spree: {change.sign} {change.row['user_id']} at {change.at:%H:%M}, {change.row['spent']:,} yen"
    reasons = {} if before is None else _reasons(before.shop.dead_letters)
    for place, reason in _reasons(screen.shop.dead_letters).items():
        if place not in reasons:
            yield f"dead: {place[0]}: {reason}"


def _facts(screen: Screen) -> Iterator[tuple[str, str]]:
    """Yield lines to write when they change, each with a remark that is appended but does not count as a change."""
    shop = screen.shop
    for stage in screen.stages:
        lag = " ".join(f"{stream}:{count}" for stream, count in stage.lag)
        rates = (
            f", in {stage.read_rate:.0f}/s, out {stage.written_rate:.0f}/s, batch {seconds_text(stage.batch_seconds)}"
        )
        yield f"{stage.name}: read {stage.read}, lag {lag or '0'}, waiting {stage.waiting}, dead {stage.dead}", rates
    for governor in screen.governors:
        for queue in governor.queues:
            yield f"governor: {queue.name}: load {queue.load:.2f}, share {queue.share:.0%}, waiting {queue.waiting}", ""
    for row in shop.revenue:
        yield (
            f"revenue: {row['window']}: {row['orders']} orders, {row['revenue'] or 0:,} yen",
            f" at {_clock(shop.clock)}",
        )
    for row in shop.purchases[:3]:
        basket = ", ".join(row["basket"]) or "nothing"
        yield f"purchases: {row['user_id']}: {row['orders']} orders, {row['total']:,} yen, {basket} in the basket", ""
    if shop.blocked:
        yield f"blocked: {', '.join(f'{address} {hits}' for address, hits in shop.blocked.items())}", ""


def _reasons(letters: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """Return the first reason of each kind; two reasons of a stage are of one kind if they differ from a number on only."""
    reasons: dict[tuple[str, str], str] = {}
    for letter in letters:
        reason = re.sub(r"^operation .* attempts?: ", "", letter["reason"].splitlines()[0])
        reasons.setdefault((letter["stage"], re.sub(r"\d.*", "", reason)), reason)
    return reasons


def _clock(time: datetime | None) -> str:
    return "—" if time is None else f"{time:%H:%M}"
