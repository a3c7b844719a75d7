"""The law of the reader: what it gives beside commits is never torn.

At every step of the disk during every commit, relations that agree at each version agree in one statement: two queries, two
tables, and all of them as of one event time. The same holds in a thread beside the runner, and after a run that ended at any step.
"""

from __future__ import annotations

import threading
from contextlib import closing

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from commit_steps import run_asking
from effort import examples
from hayase.engine.local import InProcess
from hayase.relations import HomeReader
from interruptions import room_for_homes
from relation_shop import purchase, relation_shop

LAW = settings(
    max_examples=examples(1, 60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
ALL = """select (select coalesce(sum(n), 0) from spend), (select coalesce(sum(n), 0) from total),
    (select coalesce(sum(spent), 0) from spend), (select coalesce(sum(spent), 0) from total),
    (select coalesce(sum(n), 0) from by_user), (select coalesce(sum(n), 0) from by_amount),
    (select count(*) from purchases for system_time as of 'complete'),
    (select coalesce(sum(n), 0) from total for system_time as of 'complete'),
    (select coalesce(sum(n), 0) from by_user for system_time as of 'complete')"""
batches = st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=6), min_size=2, max_size=3)


def agree(reader: HomeReader) -> int:
    """Raise if a statement is torn; return how many purchases the queries have counted."""
    (row,) = reader.statement(ALL).table().to_pylist()
    in_spend, in_total, spent, all_spent, by_user, by_amount, records, total_then, by_user_then = row.values()
    assert (in_spend, spent, by_user) == (in_total, all_spent, by_amount)
    assert records == total_then == by_user_then
    return int(in_total)


@LAW
@given(batches)
def test_a_statement_is_not_torn_at_any_step_of_a_commit(appended: list[list[int]]) -> None:
    with room_for_homes() as home:
        pipeline = relation_shop(home)
        pipeline.apply()
        seen, alone = [0], [0]
        with HomeReader(home) as reader:

            def ask() -> None:
                seen.append(agree(reader))
                (row,) = reader.statement("select coalesce(sum(n), 0)::bigint from by_user").table().to_pylist()
                alone.append(*row.values())

            run_asking(pipeline, appended, ask)
            assert agree(reader) == max(seen)
            assert seen == sorted(seen)  # a reader never goes back, whatever a statement names
            assert alone == sorted(alone)


def test_a_statement_is_not_torn_beside_a_runner() -> None:
    with room_for_homes() as home:
        pipeline = relation_shop(home)
        pipeline.apply()
        failures: list[BaseException] = []
        done = threading.Event()

        def ask() -> None:
            try:
                with HomeReader(home) as reader:
                    while not done.is_set():
                        agree(reader)
            except BaseException as error:
                failures.append(error)

        asker = threading.Thread(target=ask)
        asker.start()
        try:
            with pipeline.home.lock(), closing(InProcess(pipeline.home, lambda: 0, tasks=1)) as runner:
                for second in range(12):
                    pipeline.append("purchases", [purchase(second, second, second)])
                    runner.run_until_idle()
        finally:
            done.set()
            asker.join()
        assert not failures
