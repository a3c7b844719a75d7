"""Compares the results of the shop with the expected ones, and adds up what every stage has read.

Every record that a stage read is processed, dead or waiting; every output equals `expected_results` to the last row.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hayase.core.data_classes import dataclass
from hayase.demo.events import BLOCKED, SLACK
from hayase.demo.expected_results import ExpectedResults, Interval, coalesce, expected_results
from hayase.demo.sender import Sent
from hayase.demo.shop_pipeline import SPREE
from hayase.engine.batch.report import Figures
from hayase.engine.definition.operation_changes import history
from hayase.engine.results.query_results import Results
from hayase.pipeline import Pipeline
from hayase.streams import StreamLog
from hayase.streams.dead_letters import APPEND, SETTLED

__all__ = ["CheckReport", "OutputCheck", "check_results"]


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """One output: how many rows are expected, how many there are, and whether they are equal. `good` is None if the output
    cannot be judged, because somebody changed the stage while it ran."""

    name: str
    what: str
    expected: int
    actual: int
    good: bool | None


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The counts of the sender and of every stage, and the comparison of every output."""

    sent: Sent
    stages: Mapping[str, Figures]
    outputs: tuple[OutputCheck, ...]

    @property
    def _all_sent(self) -> bool:
        return self.sent.records == self.sent.accepted + self.sent.refused

    @property
    def good(self) -> bool:
        """Whether all counts add up and no output differs."""
        return (
            self._all_sent
            and all(_adds_up(figures) for figures in self.stages.values())
            and all(output.good is not False for output in self.outputs)
        )

    def __rich__(self) -> RenderableType:
        stages = _table("stage", "read", "= processed", "+ dead", "+ waiting", "")
        sent = self.sent
        stages.add_row(
            "the shop's appends", *_numbers(sent.records, sent.accepted, sent.refused, 0), _mark(self._all_sent)
        )
        for name, figures in self.stages.items():
            counts = _numbers(figures.read, figures.processed, figures.dead, figures.waiting)
            stages.add_row(name, *counts, _mark(_adds_up(figures)))
        outputs = _table("output", "by plain Python", "found", "")
        for output in self.outputs:
            outputs.add_row(
                f"{output.name}: {output.what}", *_numbers(output.expected, output.actual), _mark(output.good)
            )
        summary = Text("everything adds up", "green") if self.good else Text("it does not add up", "bold red")
        repeats = f"{sent.repeats:,} appends were sent twice, and recognised."
        return Group(stages, outputs, Text(repeats), summary)


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    table.add_column(first, no_wrap=True, overflow="ellipsis")
    for name in others:
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    return table


def _numbers(*counts: int) -> list[str]:
    return [f"{count:,}" for count in counts]


def _mark(good: bool | None) -> Text:
    if good is None:
        return Text("changed", "yellow")
    return Text("✓", "green") if good else Text("✗", "bold red")


def _adds_up(figures: Figures) -> bool:
    return figures.read == figures.processed + figures.dead + figures.repeated + figures.waiting


def check_results(pipeline: Pipeline, sent: Sent, stages: Mapping[str, Figures]) -> CheckReport:
    """Check a shop that has closed: its streams are finished, and all stages have read everything."""
    orders = pipeline.results("orders").table().to_pylist()
    lines = pipeline.results("lines").table().to_pylist()
    expected = expected_results(orders, lines, BLOCKED, SLACK, SPREE)
    dead = _dead_offsets(pipeline)
    accepted, refused = len(orders) + len(lines), len(dead[APPEND])
    # at least as many: people may append too while they try things out
    outputs = [
        OutputCheck("streams", "records", sent.accepted, accepted, accepted >= sent.accepted),
        *_outputs(pipeline, expected),
        *_dead_letters(stages, expected, dead),
        OutputCheck("streams", "dead letters", sent.refused, refused, refused >= sent.refused),
    ]
    changed = _changed_stages(pipeline)
    return CheckReport(
        sent, stages, tuple(replace(output, good=None) if output.name in changed else output for output in outputs)
    )


def _changed_stages(pipeline: Pipeline) -> set[str]:
    """Return the stages whose operation was changed, or whose dead letters were replayed or dropped."""
    log = StreamLog(pipeline.home.path, SETTLED)
    settled = {row["stage"] for row in Results(log).rows()} if log.path.exists() else set()
    changed = {"scores"} if len(history(pipeline.home, "scores")) > 1 else set()
    return settled | changed


def _outputs(pipeline: Pipeline, expected: ExpectedResults) -> Iterator[OutputCheck]:
    for name, what, intervals in (
        ("spree", "rows with lifetimes", expected.spree),
        ("revenue", "rows of three windows", expected.revenue),
    ):
        actual = _intervals(pipeline, name)
        yield OutputCheck(name, what, len(intervals), len(actual), intervals == actual)
    rows = _table_rows(pipeline)
    yield OutputCheck("purchases", "rows of the table", len(expected.purchases), len(rows), expected.purchases == rows)
    blocked = _blocked_hits(pipeline)
    expected_hits, hits = (sum(count for count, _ in by_address.values()) for by_address in (expected.blocked, blocked))
    yield OutputCheck("blocked", "hits of blocked addresses", expected_hits, hits, expected.blocked == blocked)
    scores = Counter(tuple(row.values()) for row in pipeline.results("scores").rows())
    yield OutputCheck("scores", "scored orders", expected.scores.total(), scores.total(), expected.scores == scores)


def _dead_letters(
    stages: Mapping[str, Figures], expected: ExpectedResults, dead: Mapping[str, list[int]]
) -> Iterator[OutputCheck]:
    """Check that each stage has one dead letter for each record at fault, and counts as many."""
    for name, figures in stages.items():
        offsets, actual = expected.dead[name], dead.get(name, [])
        good = sorted(offsets) == sorted(actual) and figures.dead == len(actual)
        yield OutputCheck(name, "dead letters", len(offsets), len(actual), good)


def _intervals(pipeline: Pipeline, name: str) -> list[Interval]:
    """Return the rows of a query with their lifetimes; ends beyond the query's clock are not reached yet: None."""
    results = pipeline.results(name)
    last = results.final()
    return coalesce(
        (tuple(row.values()), since, None if until is None or until > last else until)
        for row, since, until in results.intervals()
    )


def _table_rows(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    rows = {}
    for row in pipeline.table("purchases").rows():
        time = row["last_purchase_time"]
        row["last_purchase_time"] = datetime.fromisoformat(str(time)) if time is not None else None
        rows[str(row["user_id"])] = {name: value for name, value in row.items() if name != "user_id"}
    return rows


def _blocked_hits(pipeline: Pipeline) -> dict[str, tuple[int, str]]:
    hits: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    for row in pipeline.results("blocked").rows():
        hits[row["address"]] += row["hits"]
        reasons[row["address"]] = row["reason"]
    return {address: (hits[address], reasons[address]) for address in hits}


def _dead_offsets(pipeline: Pipeline) -> dict[str, list[int]]:
    offsets: dict[str, list[int]] = defaultdict(list)
    for letter in pipeline.dead_letters():
        offsets[letter["stage"]].append(letter["offset"])
    return offsets
