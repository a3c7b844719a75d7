"""Shared scans: the results of a query do not depend on the other queries of its group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from effort import examples, sample
from hayase.engine.batch.map_side import map_task
from hayase.engine.batch.messages import Data, DeadLetters
from hayase.engine.batch.offsets import Batch, Offset, Position, ranges
from hayase.engine.batch.scan_groups import scan_groups
from hayase.engine.local import InProcess
from hayase.engine.logs import Logs
from hayase.testing import Trial, at, trial

SCHEMA = "time timestamp, k string, a int, x double"
WHOLE = {
    "short": "select sum(a) as s, max(x) as m from s [Rows 3 Slide 2]",
    "long": "select avg(x) as m, count(*) as n from s [Rows 7]",
    "many": "select min(a) as least, first(x) as oldest from s [Rows 2, 5, 11 Slide 3]",
    "times": "select sum(x) as s from s [Range 3 seconds, 8 seconds Slide 2 seconds]",
}
BY_KEY = {
    "each": "select k, sum(a) as s from s [Partition By k Rows 4] group by k",
    "late": "select k, last(x) as newest, count(*) as n from s [Partition By k Rows 2, 9 Slide 2] group by k",
    "spans": "select k, max(a) as most from s [Range 5 seconds Slide 1 second] group by k",
}
ALL = {**WHOLE, **BY_KEY}


def records(count: int, seed: int = 0) -> list[dict[str, Any]]:
    numbers = [(seed + 7 * number * number) % 23 for number in range(count)]
    return [
        {"time": at(number // 2), "k": "abc"[value % 3], "a": None if value == 5 else value, "x": value / 8}
        for number, value in enumerate(numbers)
    ]


def alone(name: str, rows: Sequence[dict[str, Any]]) -> list[Any]:
    with trial() as t:
        t.stream("s", SCHEMA)
        t.query(name, ALL[name])
        t.append("s", rows)
        t.finish("s")
        t.run()
        return results_of(t, name)


def results_of(t: Trial, name: str) -> list[Any]:
    return sorted(map(repr, t.query(name).intervals()))


Act = tuple[str, Any]


@st.composite
def acts(draw: st.DrawFn) -> list[Act]:
    """Queries come and go while records arrive."""
    there: list[str] = []
    script: list[Act] = []
    for _ in range(draw(st.integers(3, 9))):
        kind = draw(st.sampled_from(["add", "add", "append", "append", "remove", "run", "restart"]))
        if kind == "add" and len(there) < len(ALL):
            there.append(draw(st.sampled_from([name for name in ALL if name not in there])))
            script.append(("add", there[-1]))
        elif kind == "remove" and there:
            script.append(("remove", there.pop(draw(st.integers(0, len(there) - 1)))))
        elif kind == "append":
            script.append(("append", draw(st.integers(1, 9))))
        elif kind in ("run", "restart"):
            script.append((kind, draw(st.sampled_from([None, 1, 3]))))
    return script


@settings(max_examples=examples(8, 120), suppress_health_check=[HealthCheck.too_slow])
@given(acts(), st.integers(1, 3))
def test_queries_come_and_go_without_effect_on_others(script: list[Act], buckets: int) -> None:
    waiting, appended = records(60), 0
    with trial() as t:
        t.declaration = replace(t.declaration, buckets=buckets)
        t.stream("s", SCHEMA)
        there: list[str] = []
        for kind, what in script:
            if kind == "add":
                t.query(what, ALL[what])
                there.append(what)
            elif kind == "remove":
                t.remove(what)
                there.remove(what)
            elif kind == "append":
                t.append("s", waiting[appended : appended + what])
                appended += what
            elif there:
                t.run(batch_rows=what)
                if kind == "restart":
                    t.restart()
        t.finish("s")
        t.run()
        for name in there:
            assert results_of(t, name) == alone(name, waiting[:appended]), name


def test_a_query_that_begins_later_counts_by_itself() -> None:
    """Slides are counted from the first record of the query itself."""
    rows = records(30)
    with trial() as t:
        t.stream("s", SCHEMA)
        t.query("short", WHOLE["short"])
        t.query("long", WHOLE["long"])
        t.append("s", rows[:11])
        t.run()
        t.reset("short", "now")
        t.run()
        t.append("s", rows[11:])
        t.finish("s")
        t.run()
        assert results_of(t, "long") == alone("long", rows)
        assert results_of(t, "short") == alone("short", rows[11:])


def whole(positions: dict[str, Position], end: int = 11) -> Batch:
    """A batch in which stages go on from their positions to the same end."""
    after = {stage: {"s": replace(each, at=end)} for stage, each in positions.items()}
    return Batch(Offset(1, {stage: {"s": each} for stage, each in positions.items()}), Offset(1, after))


def test_a_shared_scan_reads_once() -> None:
    """Members of a group get one message with the columns of all of them; what is late for them is late for each."""
    with trial() as t:
        t.declaration = replace(t.declaration, buckets=1)
        t.stream("s", SCHEMA)
        for name, text in WHOLE.items():
            t.query(name, text)
        t.append("s", [*records(10), {"time": at(-100), "k": "a", "a": 1, "x": 1.0}])
        definition = t.apply()
        batch = whole(dict.fromkeys(WHOLE, Position(0)))
        (task,) = ranges(batch.start, batch.end, slots=1)
        sent = [
            message
            for messages in map_task(definition, Logs(t.home, definition), batch, task, 0, 0)
            for message in messages
        ]
        together = tuple(WHOLE)
        data = [(message.stages, message.input) for message in sent if isinstance(message, Data)]
        assert data == [(together, 0), (together, 1)]
        dead = [message.letters.column("stage").to_pylist() for message in sent if isinstance(message, DeadLetters)]
        assert sorted(dead) == sorted([name] for name in WHOLE)


def test_stages_are_a_group_while_their_positions_are_equal() -> None:
    with trial() as t:
        t.stream("s", SCHEMA)
        for name, text in ALL.items():
            t.query(name, text)
        definition = t.apply()

        def groups(positions: dict[str, Position]) -> list[tuple[str, ...]]:
            return [group.names for group in scan_groups(definition, whole(positions)) if len(group.stages) > 1]

        same = dict.fromkeys(ALL, Position(5, 3, 2))
        assert groups(same) == [tuple(WHOLE), tuple(BY_KEY)]
        apart = {"short": Position(4, 3, 2), "each": Position(5, 4, 2), "late": Position(5, 3, 2, first=1)}
        assert groups({**same, **apart}) == [("long", "many", "times")]
        (group, *_) = scan_groups(definition, whole(same))
        assert [part.names for part in group.split({"many"})] == [("short", "long", "times"), ("many",)]
        assert list(group.split({"other"})) == [group]


def test_kernels_that_ran_apart_run_together_from_then_on() -> None:
    """In one run of a lane: a query that is added catches up by itself, and then joins the group with a kernel of its own."""
    rows = records(40)
    with trial() as t:
        t.stream("s", SCHEMA)
        t.query("short", WHOLE["short"])
        t.append("s", rows[:10])
        t.apply()
        runner = InProcess(t.home, lambda: 0)
        runner.run_until_idle()
        t.query("long", WHOLE["long"])
        t.apply()
        runner.run_until_idle()
        for first in (10, 20):
            t.append("s", rows[first : first + 10])
            runner.run_until_idle()
        t.remove("short")
        t.apply()
        t.append("s", rows[30:])
        t.finish("s")
        runner.run_until_idle()
        runner.close()
        assert results_of(t, "long") == alone("long", rows)


def test_figures_count_every_member() -> None:
    with trial() as t:
        t.stream("s", SCHEMA)
        for name in ("short", "long"):
            t.query(name, WHOLE[name])
        t.append("s", records(10))
        t.finish("s")
        t.run()
        for name in ("short", "long"):
            figures = t.figures(name)
            assert (figures.read, figures.processed, figures.dead) == (10, 10, 0)


def test_a_query_that_joins_later_keeps_its_own_state() -> None:
    """Queries that join a group later: each has written its own columns, as far back as it needs them."""
    rows = records(60)
    pairs = [(group, pair) for group in (WHOLE, BY_KEY) for pair in permutations(group, 2)]
    for group, (first, second) in sample(pairs, most=8):
        with trial() as t:
            t.stream("s", SCHEMA)
            t.query(first, group[first])
            t.append("s", rows[:20])
            t.run()
            t.query(second, group[second])
            t.run()
            t.append("s", rows[20:30])
            t.run()
            t.restart()
            t.append("s", rows[30:40])
            t.finish("s")
            t.run()
            for name in (first, second):
                assert results_of(t, name) == alone(name, rows[:40]), (first, second)
