"""The test kit does what it promises: a clock that is set, any batching, restarts, and the figures of a stage."""

from __future__ import annotations

from pathlib import Path

from hayase.testing import at, trial

ORDERS = "time timestamp, user string, amount double"
SPEND = "select user, sum(amount) as spend from orders group by user"


def test_any_batching_and_restarts_give_the_same_results() -> None:
    rows = [{"time": at(second), "user": "ab"[second % 2], "amount": float(second)} for second in range(50)]
    found = []
    for size in (1, 7, 1000):
        with trial() as t:
            t.stream("orders", ORDERS)
            t.query("spend", SPEND)
            for half in (rows[:20], rows[20:]):
                t.append("orders", half)
                t.run(batch_rows=size)
                t.restart()
            t.finish("orders")
            t.run()
            found.append((t.intervals("spend"), t.changes("spend"), t.at("spend"), t.at("spend", at(30))))
            assert t.figures("spend").read == t.figures("spend").processed == 50
    assert found[0] == found[1] == found[2]
    intervals, changes, last, earlier = found[0]
    assert (len(intervals), len(changes)) == (50, 98)
    assert [row["spend"] for row in last] == [sum(range(0, 50, 2)), sum(range(1, 50, 2))]
    assert [row["spend"] for row in earlier] == [sum(range(1, 30, 2)), sum(range(0, 31, 2))]


def test_the_clock_stands_until_it_is_set() -> None:
    with trial() as t:
        t.stream("orders", ORDERS, slack="10 seconds", idle_after="1 minute")
        t.query("spend", SPEND)
        t.append("orders", [{"time": at(0), "user": "a", "amount": 1.0}])
        t.run()
        assert t.rows("spend") == []  # it may still be overtaken
        t.clock.advance("2 minutes")
        t.run()
        assert [row["spend"] for row in t.rows("spend")] == [1.0]
        t.append("orders", [{"time": at(1), "user": "a", "amount": 1.0}])
        t.run()
        assert [letter["stage"] for letter in t.dead_letters()] == ["spend"]


def test_a_trial_of_a_pipeline_file(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"pipeline: shop\nstreams:\n  orders: {{schema: '{ORDERS}', time: time}}\nqueries:\n  spend: {SPEND}\n"
    )
    with trial(file=file) as t:
        t.append("orders", [{"time": at(0), "user": "a", "amount": 1.5}])
        t.finish("orders")
        t.run()
        assert t.at("spend") == [{"user": "a", "spend": 1.5}]
    assert not (tmp_path / "shop").exists()
