"""The books: of every stage what it read and what became of it, of every output whether it is what the judge says."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hayase.demo.events import BLOCKED, SLACK
from hayase.demo.judge import Interval, Verdict, coalesced, verdict
from hayase.demo.shop_pipeline import SPREE
from hayase.engine.batch.reduce_side import Figures
from hayase.engine.definition.operation_changes import history
from hayase.engine.results.query_results import Results
from hayase.pipeline import Pipeline
from hayase.streams import StreamLog
from hayase.streams.dead_letters import APPEND, SETTLED

__all__ = ["Books", "Entry", "Sent", "books_of"]


@dataclass(slots=True)
class Sent:
    """What the shop sent, and what it was answered."""

    records: int = 0
    accepted: int = 0
    refused: int = 0
    repeats: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """An output: how much there must be, how much there is, and whether it is the same to the last row; None if that cannot
    be said, since somebody has changed what it should be."""

    name: str
    what: str
    wanted: int
    found: int
    good: bool | None


@dataclass(frozen=True, slots=True)
class Books:
    """Everything that can be added up."""

    sent: Sent
    stages: Mapping[str, Figures]
    outputs: tuple[Entry, ...]

    @property
    def _all_sent(self) -> bool:
        return self.sent.records == self.sent.accepted + self.sent.refused

    @property
    def good(self) -> bool:
        """Whether all of it adds up."""
        return (
            self._all_sent
            and all(_reconciles(each) for each in self.stages.values())
            and all(each.good is not False for each in self.outputs)
        )

    def __rich__(self) -> RenderableType:
        stages = _table("stage", "read", "= processed", "+ dead", "+ waiting", "")
        shop = self.sent
        stages.add_row(
            "the shop's appends", *_numbers(shop.records, shop.accepted, shop.refused, 0), _mark(self._all_sent)
        )
        for name, each in self.stages.items():
            numbers = _numbers(each.read, each.processed, each.dead, each.waiting)
            stages.add_row(name, *numbers, _mark(_reconciles(each)))
        outputs = _table("output", "by plain Python", "found", "")
        for entry in self.outputs:
            outputs.add_row(f"{entry.name}: {entry.what}", *_numbers(entry.wanted, entry.found), _mark(entry.good))
        told = Text("everything adds up", "green") if self.good else Text("it does not add up", "bold red")
        repeats = f"{shop.repeats:,} appends were sent twice, and recognised."
        return Group(stages, outputs, Text(repeats), told)


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    table.add_column(first, no_wrap=True, overflow="ellipsis")
    for name in others:
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    return table


def _numbers(*counts: int) -> list[str]:
    return [f"{each:,}" for each in counts]


def _mark(good: bool | None) -> Text:
    if good is None:
        return Text("changed", "yellow")
    return Text("✓", "green") if good else Text("✗", "bold red")


def _reconciles(figures: Figures) -> bool:
    return figures.read == figures.processed + figures.dead + figures.waiting


def books_of(pipeline: Pipeline, sent: Sent, stages: Mapping[str, Figures]) -> Books:
    """The books of a shop that has closed: its streams are finished, and all stages are through."""
    orders = pipeline.results("orders").table().to_pylist()
    lines = pipeline.results("lines").table().to_pylist()
    wanted = verdict(orders, lines, BLOCKED, SLACK, SPREE)
    dead = _dead_of(pipeline)
    taken, refused = len(orders) + len(lines), len(dead[APPEND])
    # whoever tries something out may append too
    outputs = [
        Entry("streams", "records", sent.accepted, taken, taken >= sent.accepted),
        *_outputs(pipeline, wanted),
        *_letters(stages, wanted, dead),
        Entry("streams", "dead letters", sent.refused, refused, refused >= sent.refused),
    ]
    touched = _touched(pipeline)
    judged = (replace(each, good=None) if each.name in touched else each for each in outputs)
    return Books(sent, stages, tuple(judged))


def _touched(pipeline: Pipeline) -> set[str]:
    """Stages that somebody has changed while they ran, or to which dead letters were given once more."""
    log = StreamLog(pipeline.home.path, SETTLED)
    settled = {row["stage"] for row in Results(log).rows()} if log.path.exists() else set()
    changed = {"scores"} if len(history(pipeline.home, "scores")) > 1 else set()
    return settled | changed


def _outputs(pipeline: Pipeline, wanted: Verdict) -> Iterator[Entry]:
    for name, what, intervals in (
        ("spree", "rows with lifetimes", wanted.spree),
        ("revenue", "rows of three windows", wanted.revenue),
    ):
        rows = _intervals(pipeline, name)
        yield Entry(name, what, len(intervals), len(rows), intervals == rows)
    purchases = _purchases(pipeline)
    yield Entry("purchases", "rows of the table", len(wanted.purchases), len(purchases), wanted.purchases == purchases)
    blocked = _blocked(pipeline)
    hits, found = (sum(count for count, _ in each.values()) for each in (wanted.blocked, blocked))
    yield Entry("blocked", "hits of blocked addresses", hits, found, wanted.blocked == blocked)
    scores = Counter(tuple(row.values()) for row in pipeline.results("scores").rows())
    yield Entry("scores", "scored orders", wanted.scores.total(), scores.total(), wanted.scores == scores)


def _letters(stages: Mapping[str, Figures], wanted: Verdict, dead: Mapping[str, list[int]]) -> Iterator[Entry]:
    """The dead letters of each stage are those of the records at fault, each once, and as many as it says."""
    for name, figures in stages.items():
        offsets, found = wanted.dead[name], dead.get(name, [])
        good = sorted(offsets) == sorted(found) and figures.dead == len(found)
        yield Entry(name, "dead letters", len(offsets), len(found), good)


def _intervals(pipeline: Pipeline, name: str) -> list[Interval]:
    results = pipeline.results(name)
    last = results.final()
    found = ((tuple(row.values()), since, _passed(until, last)) for row, since, until in results.intervals())
    return coalesced(found)


def _passed(until: datetime | None, last: datetime) -> datetime | None:
    """The end of a row, if it has come."""
    return None if until is None or until > last else until


def _purchases(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    found = {}
    for row in pipeline.table("purchases").rows():
        time = row["last_purchase_time"]
        row["last_purchase_time"] = datetime.fromisoformat(str(time)) if time is not None else None
        found[str(row["user_id"])] = {name: value for name, value in row.items() if name != "user_id"}
    return found


def _blocked(pipeline: Pipeline) -> dict[str, tuple[int, str]]:
    hits: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    for row in pipeline.results("blocked").rows():
        hits[row["address"]] += row["hits"]
        reasons[row["address"]] = row["reason"]
    return {address: (hits[address], reasons[address]) for address in hits}


def _dead_of(pipeline: Pipeline) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for letter in pipeline.dead_letters():
        found[letter["stage"]].append(letter["offset"])
    return found
