"""Whatever is killed when: every record of a source is in its stream once, and every change of a result in its target once."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector_parts import ListSource, Target, TargetSink, UpsertSource
from hayase import Pipeline
from hayase.connectors import Portion
from hayase.connectors.delivery import Delivery
from hayase.connectors.intake import Intake
from hayase.connectors.laws import LawBroken, check_sink, check_source
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import EndpointError, OutOfTurn, PositionMoved
from hayase.streams import StreamLog
from hayase.streams.dead_letters import DEAD

NOW = 1_800_000_000_000_000
EVENTS = StreamDeclaration("events", "time timestamp, part string, n bigint", "time", slack=3_600_000_000)


def event(part: str, number: int, broken: bool) -> dict[str, Any]:
    return {"time": "2026-01-01T00:00:00Z", "part": part, "n": "x" if broken else number}


@given(data=st.data())
def test_every_record_of_a_source_is_in_its_stream_once(data: st.DataObject) -> None:
    """Several processes read the same source, each until it fails or ends; the others may still be alive."""
    counts = data.draw(st.dictionaries(st.sampled_from("abc"), st.integers(0, 12), min_size=1, max_size=3))
    flags = {part: data.draw(st.lists(st.booleans(), min_size=count, max_size=count)) for part, count in counts.items()}
    partitions = {part: [event(part, at, broken) for at, broken in enumerate(flags[part])] for part in counts}
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)

        def intake() -> Intake:
            return Intake(home, EVENTS, ListSource(partitions, lambda: data.draw(st.integers(1, 5))), lambda: NOW)

        alive = [intake()]
        for _ in range(200):
            if all(one.has_reached({part: len(rows) for part, rows in partitions.items()}) for one in alive):
                break
            chosen = data.draw(st.integers(0, len(alive) - 1))
            try:
                alive[chosen].step(0.0)
            except OutOfTurn:
                alive[chosen] = intake()
            if len(alive) < 3 and data.draw(st.booleans()):
                alive.append(intake())  # the others are thought dead, and are not
        else:
            pytest.fail("the records do not get into the stream")
        log = StreamLog.ensure(home, EVENTS)
        rows = [row for piece in log.read(0, log.index().next) for row in piece.rows.to_pylist()]
        for part in counts:
            good = [at for at, broken in enumerate(flags[part]) if not broken]
            assert [row["n"] for row in rows if row["part"] == part] == good
        assert StreamLog.ensure(home, DEAD).index().next == sum(sum(broken) for broken in flags.values())


USERS = StreamDeclaration(
    "users", "at bigint, op string, id string, n bigint", "at", slack=5_000_000, time_unit="s", changes="op"
)


@given(data=st.data())
def test_upserts_and_tombstones_are_the_changes_of_a_relation(data: st.DataObject) -> None:
    """Several processes read the same topic, any of them killed or thought dead at any step: the relation is what the topic says,
    each change has its partner, no change is late, and no change of a key is before the one before it."""
    message = st.tuples(st.sampled_from("xy"), st.integers(0, 20), st.none() | st.integers(0, 3))
    partitions = {
        part: [(part + key, *rest) for key, *rest in data.draw(st.lists(message, max_size=12))] for part in "ab"
    }
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)

        def intake() -> Intake:
            return Intake(
                home, USERS, UpsertSource(USERS, partitions, lambda: data.draw(st.integers(0, 5))), lambda: NOW
            )

        alive = [intake()]
        for _ in range(data.draw(st.integers(0, 20))):
            chosen = data.draw(st.integers(0, len(alive) - 1))
            try:
                alive[chosen].step(0.0)
            except OutOfTurn:
                alive[chosen] = intake()
            what = data.draw(st.sampled_from(("nothing", "killed", "thought dead")))
            if what == "killed":
                alive[chosen] = intake()
            elif what == "thought dead" and len(alive) < 3:
                alive.append(intake())
        last_one = Intake(home, USERS, UpsertSource(USERS, partitions, lambda: 4), lambda: NOW)
        while not last_one.has_reached({part: len(messages) for part, messages in partitions.items()}):
            last_one.step(0.0)
        log = StreamLog.ensure(home, USERS)
        changes = [row for piece in log.read(0, log.index().next) for row in piece.rows.to_pylist()]
        present: dict[str, int] = {}
        times: dict[str, int] = {}
        latest = 0
        for change in changes:
            key, at = change["id"], change["at"]
            if change["op"] == "-":
                assert present.pop(key) == change["n"]
            else:
                assert key not in present
                present[key] = change["n"]
            assert at >= times.get(key, 0)
            assert at >= latest - 5
            times[key], latest = at, max(latest, at)
        last = {key: number for messages in partitions.values() for key, _, number in messages}
        assert present == {key: number for key, number in last.items() if number is not None}
        added = [(change["id"], change["n"]) for change in changes if change["op"] == "+"]
        sent = [(key, number) for part in partitions.values() for key, _, number in part if number is not None]
        assert sorted(added) == sorted(sent)


class Killed(Exception):
    """The process of an output was killed."""


@given(data=st.data())
def test_every_change_of_a_result_is_in_its_target_once(data: st.DataObject) -> None:
    """Batches, deliveries that are killed at any step or thought dead, resets: in the end the target equals the result."""
    with tempfile.TemporaryDirectory() as directory:
        p = Pipeline("shop", home=directory, clock=lambda: NOW)
        p.stream("events", "time timestamp, part string, n bigint", slack="5 s")
        p.query("sums", "select part, sum(n) as total from events [Range 4 seconds] group by part")
        target = Target()

        def fail(step: str) -> None:
            if data.draw(st.integers(0, 9)) == 0:
                raise Killed(step)

        def delivery() -> Delivery | None:
            try:
                return Delivery(p.home, "mirror", StreamLog.open(p.home.path, "sums"), TargetSink(target, fail))
            except Killed:
                return None

        def deliver(alive: list[Delivery | None]) -> None:
            chosen = data.draw(st.integers(0, len(alive) - 1))
            one = alive[chosen]
            try:
                if one is None or data.draw(st.integers(0, 5)) == 0:
                    alive[chosen] = delivery()
                else:
                    one.step()
            except (Killed, PositionMoved):
                alive[chosen] = delivery()

        alive: list[Delivery | None] = [None, None]
        time = 0
        for _ in range(data.draw(st.integers(1, 5))):
            rows = []
            for _ in range(data.draw(st.integers(0, 6))):
                time += data.draw(st.integers(0, 3))
                rows.append(
                    {"time": f"2026-01-01T00:00:{time % 60:02}Z", "part": data.draw(st.sampled_from("ab")), "n": time}
                )
            p.append("events", rows)
            if data.draw(st.integers(0, 6)) == 0:
                p.reset("sums")
            p.run_until_idle(spark=False)
            for _ in range(data.draw(st.integers(0, 6))):
                deliver(alive)
        p.finish("events")
        p.run_until_idle(spark=False)
        last = Delivery(p.home, "mirror", StreamLog.open(p.home.path, "sums"), TargetSink(target))
        while last.step() or last.lag():
            pass
        results = p.query("sums")
        expected = [(sign == "+", row) for _, sign, row in results.changes()]
        told = [(appears, row) for _, appears, row in target.changes]
        assert sorted(map(repr, told)) == sorted(map(repr, expected))
        assert sorted(map(repr, target.rows.values())) == sorted(map(repr, results.at()))
        times = [at for at, _, _ in target.changes]
        assert times == sorted(times)


def test_a_source_that_keeps_the_law_is_read_whole() -> None:
    partitions = {"a": [{"n": 1}, {"n": 2}], "b": []}
    assert check_source(lambda: ListSource(partitions)) == {"a": [{"n": 1}, {"n": 2}], "b": []}


def test_sources_that_break_the_law_are_found() -> None:
    class Shifting(ListSource):
        made = 0

        def __init__(self, partitions: Any):
            super().__init__(partitions)
            Shifting.made += 1
            self._shift = Shifting.made

        def read(self, positions: Any, patience: float) -> list[Portion]:
            return [
                portion._replace(records=[self._shift for _ in portion.records])
                for portion in super().read(positions, patience)
            ]

    class Backward(ListSource):
        def read(self, positions: Any, patience: float) -> list[Portion]:
            return [Portion("a", [1], 0)]

    class Endless(ListSource):
        def read(self, positions: Any, patience: float) -> list[Portion]:
            return []

    class Stranger(ListSource):
        def read(self, positions: Any, patience: float) -> list[Portion]:
            return [Portion("z", [1], 1)]

    for broken, reason in (
        (Shifting, "other records"),
        (Backward, "end at position 0"),
        (Endless, "does not get"),
        (Stranger, "not asked"),
    ):
        with pytest.raises(LawBroken, match=reason):
            check_source(lambda broken=broken: broken({"a": [1, 2, 3]}))  # type: ignore[misc]


def test_a_sink_that_keeps_the_law() -> None:
    target = Target()
    check_sink(lambda: TargetSink(target), pa.table({"n": [1, 2]}), lambda: list(target.rows.values()))


def test_sinks_that_break_the_law_are_found() -> None:
    class Forgetful(TargetSink):
        def position(self) -> None:
            return None

    class Careless(TargetSink):
        def write(self, changes: Any) -> None:
            self._target.position = changes.since
            super().write(changes)

    for broken in (Forgetful, Careless):
        target = Target()
        with pytest.raises((LawBroken, PositionMoved)):
            check_sink(lambda: broken(target), pa.table({"n": [1, 2]}), lambda: list(target.rows.values()))  # noqa: B023


def test_a_source_that_goes_back_is_an_error(tmp_path: Path) -> None:
    class Backward(ListSource):
        def read(self, positions: Any, patience: float) -> list[Portion]:
            return [Portion("a", [], positions["a"] - 1)]

    with pytest.raises(EndpointError, match="came with position -1"):
        Intake(tmp_path, EVENTS, Backward({"a": []}), lambda: NOW).step(0.0)
