"""Whatever is killed when: the target of an output that mirrors a table has its rows, and the cost follows the change."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

import hayase as hy
from connector_parts import MirrorSink, Target
from effort import examples
from hayase.connectors.table_delivery import TableDelivery
from hayase.core.errors import PositionMoved
from hayase.engine.commit.housekeeping import run_housekeeping
from hayase.engine.commit.ledger import Ledger
from hayase.engine.local import InProcess

NOW = 1_800_000_000_000_000
RULES = """
source: events
rules:
  - tables: {totals: {key: .user, columns: {total: .amount, last: .time}}}
"""


def shop(home: Path, has_output: bool = True) -> hy.Pipeline:
    p = hy.Pipeline("shop", home=home, clock=lambda: NOW)
    p.stream("events", "time timestamp, id string, user string, amount bigint", id="id")
    p.table("totals", key="user", total="Counter", last="Register")
    p.rules(text=RULES)
    if has_output:
        p.output("mirror", reads="totals", to=hy.PythonClass("connector_parts:FileSink", file=str(home / "nowhere")))
    return p


def run(p: hy.Pipeline) -> None:
    """Run the stages, without outputs."""
    p.apply()
    with p.home.lock(), closing(InProcess(p.home, lambda: NOW)) as runner:
        runner.run_until_idle()


def keep_house(p: hy.Pipeline) -> None:
    with p.home.lock(), closing(Ledger(p.home)) as ledger:
        commits = ledger.of("main")
        commits.recover()
        run_housekeeping(p.home, NOW, commits)


def purchases(first: int, users: list[str]) -> list[dict[str, Any]]:
    return [
        {"time": f"2026-01-01T00:{at // 60 % 60:02}:{at % 60:02}Z", "id": f"e{at}", "user": user, "amount": at}
        for at, user in enumerate(users, first)
    ]


def rows_of(p: hy.Pipeline) -> dict[str, dict[str, Any]]:
    return {row["user"]: row for row in p.table("totals").table().to_pylist()}


def delivered(p: hy.Pipeline, target: Target, **options: Any) -> MirrorSink:
    """Deliver everything by another process."""
    sink = MirrorSink(target, **options)
    with closing(TableDelivery(p.home, "mirror", p.declaration.table("totals"), sink)) as last:
        while last.step() or last.lag():
            pass
    return sink


class Killed(Exception):
    """The process of an output was killed."""


@settings(max_examples=examples(15))
@given(data=st.data())
def test_the_target_has_the_rows_of_the_table(data: st.DataObject) -> None:
    """Batches, deliveries that are killed at any step or thought dead, resets, loads, forgotten keys, an output that was away."""
    with tempfile.TemporaryDirectory() as directory, patch("hayase.tables.changed_keys.MANY", 1):
        home, target, sent = Path(directory), Target(), 0
        p = shop(home)
        run(p)

        def fail(step: str) -> None:
            if data.draw(st.integers(0, 7)) == 0:
                raise Killed(step)

        def delivery() -> TableDelivery | None:
            try:
                sink = MirrorSink(target, fail, most=2)
                return TableDelivery(p.home, "mirror", p.declaration.table("totals"), sink)
            except Killed:
                return None

        alive: list[TableDelivery | None] = [None, None]
        for _ in range(data.draw(st.integers(1, 6))):
            users = data.draw(st.lists(st.sampled_from("abcde"), max_size=5))
            p.append("events", purchases(sent, users))
            sent += len(users)
            what = data.draw(st.sampled_from(("run", "run", "run", "reset", "load", "housekeeping", "away")))
            if what == "reset":
                p.reset("totals")
            if what == "away":  # a batch runs while nothing reads the table
                run(shop(home, has_output=False))
            run(p)
            if what == "load":
                p.table("totals").load([{"user": data.draw(st.sampled_from("aef")), "total": 1000}])
            if what == "housekeeping":
                keep_house(p)
            for _ in range(data.draw(st.integers(0, 6))):
                chosen = data.draw(st.integers(0, 1))
                one = alive[chosen]
                try:
                    if one is None or data.draw(st.integers(0, 5)) == 0:
                        alive[chosen] = delivery()
                    else:
                        one.step()
                except (Killed, PositionMoved):
                    alive[chosen] = delivery()
        delivered(p, target)
        assert target.mirror == rows_of(p)
        for one in alive:
            if one is not None:
                one.close()


def test_a_target_gets_all_rows_once_and_then_those_that_change(tmp_path: Path) -> None:
    p, target = shop(tmp_path), Target()
    p.append("events", purchases(0, [f"u{at}" for at in range(100)]))
    run(p)
    assert delivered(p, target, most=30).written == 100
    assert delivered(p, target).written == 0
    p.append("events", purchases(100, ["u7", "u8", "u7"]))
    run(p)
    assert delivered(p, target).written == 2
    assert target.mirror == rows_of(p)
    p.append("events", purchases(103, ["u9"]))
    run(shop(tmp_path, has_output=False))  # which does not keep the keys
    run(p)
    assert delivered(p, target).written == 100
    assert target.mirror == rows_of(p)
    p.reset("totals")
    run(p)
    delivered(p, target)
    assert target.rewritten == 1
    assert target.mirror == rows_of(p)


def test_changed_keys_are_forgotten_once_they_are_delivered(tmp_path: Path) -> None:
    from hayase.tables.changed_keys import changed_keys
    from hayase.tables.table import open_reader

    p, target = shop(tmp_path), Target()
    path, declaration = p.home.table("totals"), p.declaration.table("totals")

    def known() -> list[bytes] | None:
        with closing(open_reader(path, declaration)) as table:
            return table.store.read(lambda view: changed_keys(view, b"main/000000000000"))

    with patch("hayase.tables.changed_keys.MANY", 1):
        p.append("events", purchases(0, ["a", "b"]))
        run(p)
        assert len(known() or ()) == 2
        delivered(p, target)
        keep_house(p)
    assert known() is None
    p.append("events", purchases(2, ["a"]))
    run(p)
    assert delivered(p, target).written == 1
