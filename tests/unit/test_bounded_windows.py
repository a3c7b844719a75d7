"""Windows with bounds as queries see them: which rows they have, when these are final, and what `finish` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from hayase.core.errors import DeclarationError
from hayase.testing import Trial, trial

RECORDS = [(1, "a", 1), (2, "b", 2), (4, "a", 3), (11, "a", 4), (12, "b", 5), (14, "b", 6), (40, "a", 7)]


@pytest.fixture
def t() -> Iterator[Trial]:
    with trial() as pipeline:
        pipeline.stream("s", "ts bigint, k string, x bigint", time="ts", time_unit="s")
        yield pipeline


def append(t: Trial, records: Sequence[tuple[int, str, int]] = RECORDS, stream: str = "s") -> None:
    t.append(stream, [dict(zip(("ts", "k", "x"), record)) for record in records])


def rows(t: Trial, name: str) -> list[tuple[Any, ...]]:
    """The values of a query's rows, each with its start and end."""
    return [(*row.values(), start, end) for row, start, end in t.intervals(name)]


def run(t: Trial, query: str) -> list[tuple[Any, ...]]:
    t.query("q", query)
    append(t)
    t.finish("s")
    t.run()
    assert t.dead_letters() == []
    return rows(t, "q")


def test_a_row_for_every_window_and_key(t: Trial) -> None:
    found = run(
        t, "select window_start, window_end, k, sum(x) from s [Tumble 10 s] group by window_start, window_end, k"
    )
    assert [row[:5] for row in found] == [
        (0, 10, "a", 4, 10), (0, 10, "b", 2, 10), (10, 20, "a", 4, 20), (10, 20, "b", 11, 20), (40, 50, "a", 7, 50),
    ]  # fmt: skip
    assert [row[5] for row in found[:4]] == [20, 20, 30, 30]
    assert t.query("q").final() == 50
    assert t.at("q") == [{"window_start": 40, "window_end": 50, "k": "a", "sum_x": 7}]


def test_the_records_of_a_window(t: Trial) -> None:
    found = run(t, "select * from s [Hop 10 s Every 5 s] where x = 3")
    assert found == [(4, "a", 3, -5, 5, 5, 10), (4, "a", 3, 0, 10, 10, 15)]


def test_hops_longer_than_the_window_leave_gaps(t: Trial) -> None:
    found = run(t, "select x, window_start from s [Hop 3 s Every 10 s]")
    assert sorted(row[:2] for row in found) == [(1, 0), (2, 0), (4, 10), (5, 10), (7, 40)]


def test_windows_that_grow(t: Trial) -> None:
    found = run(t, "select window_start, window_end, sum(x) as x from s [Cumulate 20 s By 10 s] group by 1, 2")
    assert [row[:4] for row in found] == [(0, 10, 6, 10), (0, 20, 21, 20), (40, 50, 7, 50), (40, 60, 7, 60)]


def test_offset_keep_and_early(t: Trial) -> None:
    text = "select window_start, is_final, sum(x) as x from s [Tumble 10 s Offset 2 s Keep 1 s Early 3 s] group by 1, 2"
    assert [row for row in run(t, text) if row[0] == 2] == [
        (2, False, 2, 3, 6), (2, False, 5, 6, 12), (2, True, 9, 12, 13),
    ]  # fmt: skip


def test_sessions_are_those_of_the_groups(t: Trial) -> None:
    found = run(
        t, "select k, window_start, window_end, sum(x) from s [Session 5 s] group by k, window_start, window_end"
    )
    assert [row[:5] for row in found] == [
        ("b", 2, 7, 2, 7), ("a", 1, 9, 4, 9), ("a", 11, 16, 4, 16), ("b", 12, 19, 11, 19), ("a", 40, 45, 7, 45),
    ]  # fmt: skip
    assert t.query("q").final() == 45


def test_sessions_of_groups_are_those_by_partition(t: Trial) -> None:
    for name, window, key in (("own", "", "upper(k)"), ("by", "Partition By k ", "k")):
        t.query(name, f"select window_start, window_end, sum(x) as x from s [{window}Session 5 s] group by {key}, 1, 2")
    append(t)
    t.finish("s")
    t.run()
    assert rows(t, "own") == rows(t, "by")


def test_a_session_without_keys_is_of_the_whole_stream(t: Trial) -> None:
    found = run(
        t, "select window_start, window_end, count(*) as n from s [Session 5 s] group by window_start, window_end"
    )
    assert [row[:3] for row in found] == [(1, 9, 3), (11, 19, 3), (40, 45, 1)]


def test_a_record_that_where_removes_is_in_its_session(t: Trial) -> None:
    text = (
        "select k, window_start, window_end, sum(x) as x from s [Session 5 s] where x <> 3 and x <> 7 group by 1, 2, 3"
    )
    assert [row[:4] for row in run(t, text)] == [("b", 2, 7, 2), ("a", 1, 9, 1), ("a", 11, 16, 4), ("b", 12, 19, 11)]


def test_a_record_that_where_removes_is_in_its_session_also_if_the_key_is_computed(t: Trial) -> None:
    text = "select upper(k), window_start, window_end, count(*) as n from s [Session 5 s] where x <> 3 group by 1, 2, 3"
    assert [row[:4] for row in run(t, text)] == [
        ("B", 2, 7, 1), ("A", 1, 9, 1), ("A", 11, 16, 1), ("B", 12, 19, 2), ("A", 40, 45, 1),
    ]  # fmt: skip


def test_a_record_at_the_end_of_a_session_opens_another(t: Trial) -> None:
    t.query(
        "q", "select window_start, window_end, count(*) as n from s [Session 5 s] group by window_start, window_end"
    )
    append(t, [(0, "a", 1), (4, "a", 1), (9, "a", 1)])
    t.finish("s")
    t.run()
    assert [row[:3] for row in rows(t, "q")] == [(0, 9, 2), (9, 14, 1)]


def test_a_record_that_fails_is_one_dead_letter_and_in_its_session(t: Trial) -> None:
    t.query("h", "select window_start, sum(k::int) as k from s [Hop 10 s Every 5 s] group by window_start")
    t.query("q", "select k, window_start, window_end, sum((8 - k::int) * x) as x from s [Session 5 s] group by 1, 2, 3")
    append(t, [(1, "1", 1), (4, "x", 2), (7, "1", 3)])
    t.finish("s")
    t.run()
    assert sorted((letter["stage"], letter["offset"]) for letter in t.dead_letters()) == [("h", 1), ("q", 1)]
    assert [row[:4] for row in rows(t, "q")] == [("1", 1, 6, 7), ("1", 7, 12, 21)]


def test_finish_ends_the_windows_of_readers_too(t: Trial) -> None:
    t.query("small", "Istream(select window_end as until, count(*) as n from s [Tumble 10 s] group by window_end)")
    t.query("large", "select window_start, sum(n) as n from small [Tumble 60 s] group by window_start")
    t.query("all", "select count(*) as n, max(n) as most from large")
    append(t)
    t.finish("s")
    t.run()
    assert [row[:3] for row in rows(t, "large")] == [(0, 7, 60)]
    assert t.at("all") == [{"n": 1, "most": 7}]
    assert t.query("all").final() == 60


def test_finish_leaves_other_windows_at_the_last_event(t: Trial) -> None:
    t.query("other", "select count(*) as n from s [Range 5 s]")
    run(t, "select count(*) as n from s [Tumble 10 s] group by window_start")
    assert (t.query("other").final(), t.query("q").final()) == (40, 50)


def test_a_join_of_equal_windows(t: Trial) -> None:
    t.stream("r", "ts bigint, k string, x bigint", time="ts", time_unit="s")
    one, other = (f"select k, window_start, sum(x) as x from {name} [Tumble 10 s] group by 1, 2" for name in "sr")
    t.query(
        "q", f"select a.k, window_start, a.x, b.x as y from ({one}) as a join ({other}) as b using (k, window_start)"
    )
    append(t)
    append(t, [(3, "a", 30), (13, "b", 50)], "r")
    t.finish("s")
    t.finish("r")
    t.run()
    assert [row[:5] for row in rows(t, "q")] == [("a", 0, 4, 30, 10), ("b", 10, 11, 50, 20)]


def test_results_are_final_as_the_clock_goes_on(t: Trial) -> None:
    t.query("q", "select k, window_start, window_end, count(*) as n from s [Session 5 s] group by 1, 2, 3")
    append(t, RECORDS[:4])
    t.run()
    assert [row[:4] for row in rows(t, "q")] == [("b", 2, 7, 1), ("a", 1, 9, 2)]
    t.restart()
    append(t, RECORDS[4:])
    t.run()
    assert [row[:4] for row in rows(t, "q")][2:] == [("a", 11, 16, 1), ("b", 12, 19, 2)]


def test_several_lengths_in_one_statement(t: Trial) -> None:
    found = run(t, "select window_start, count(*) as n from s [Tumble 10 s, 20 s] group by window_start")
    assert sorted(row[:3] for row in found) == [
        ("10 s", 0, 3), ("10 s", 10, 3), ("10 s", 40, 1), ("20 s", 0, 6), ("20 s", 40, 1),
    ]  # fmt: skip


def test_a_stream_that_has_the_names_of_the_bounds(t: Trial) -> None:
    t.query("w", "Istream(select window_start, count(*) as n from s [Tumble 10 s] group by window_start)")
    with pytest.raises(DeclarationError, match='has a column "window_start", and this window adds one of that name'):
        t.query("q", "select n from w [Tumble 20 s]")


FUNCTIONS = {
    "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECONDS)": "s [Tumble 10 s]",
    "TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '-3' SECONDS))": "s [Tumble 10 s Offset 7 s]",
    "tumble(s, ts, interval '10 seconds')": "s [Tumble 10 s]",
    "HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)": "s [Hop 10 s Every 5 s]",
    "HOP(DATA => TABLE s, SIZE => INTERVAL '10' SECOND, TIMECOL => DESCRIPTOR(ts), SLIDE => INTERVAL '5' SECOND)": (
        "s [Hop 10 s Every 5 s]"
    ),
    "TABLE(CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL 20 SECOND))": "s [Cumulate 20 s By 10 s]",
    "SESSION(TABLE s PARTITION BY k, DESCRIPTOR(event_time), INTERVAL '5' SECOND)": "s [Partition By k Session 5 s]",
    "SESSION(TABLE s PARTITION BY (k, x), DESCRIPTOR(ts), INTERVAL '5' SECOND)": "s [Partition By k, x Session 5 s]",
}


@pytest.mark.parametrize("call", FUNCTIONS)
def test_a_table_function_is_a_window_in_brackets(t: Trial, call: str) -> None:
    t.query("named", f"select w.window_start, w.window_end, w.x from {call} as w where w.x > 1")
    t.query("joined", f"select a.x, b.x as y from {call} as a join {call} b on a.k = b.k")
    t.query("brackets", f"select window_start, window_end, x from {FUNCTIONS[call]} where x > 1")
    t.query("beside", f"select a.x, b.x as y from {FUNCTIONS[call]} as a, {FUNCTIONS[call]} as b where a.k = b.k")
    append(t)
    t.finish("s")
    t.run()
    assert rows(t, "named") == rows(t, "brackets") != []
    assert rows(t, "joined") == rows(t, "beside") != []


MISTAKES = {
    "select x from TUMBLE(TABLE s, DESCRIPTOR(x), INTERVAL '10' SECOND)": (
        '1:42: windows follow the event time of "s", and "x" is not that; write DESCRIPTOR(ts)'
    ),
    "select x from TUMBLE(TABLE s, DESCRIPTOR(ts))": (
        "1:15: TUMBLE lacks its argument size; write it like TUMBLE(TABLE orders, DESCRIPTOR(time), INTERVAL '10' MINUTES)"
    ),
    "select x from TUMBLE(TABLE s, DESCRIPTOR(ts), 10)": (
        "1:15: \"10\" is not an interval; write it like TUMBLE(TABLE orders, DESCRIPTOR(time), INTERVAL '10' MINUTES)"
    ),
    "select x from SESSION(TABLE s PARTITION BY z, DESCRIPTOR(ts), INTERVAL '5' SECOND)": (
        '1:44: unknown column "z" in "s"; known are: k, ts, x'
    ),
    "select x from TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND) [Now]": (
        "1:69: a stream has one window; remove one of the two"
    ),
    "select x from TUMBLE(TABLE (select x from s), DESCRIPTOR(ts), INTERVAL '10' SECOND)": None,
    "select x from CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL '3' SECOND, INTERVAL '10' SECOND)": (
        "1:15: the length 10 SECOND is not a multiple of the step after By; write it like [Cumulate 1 hour By 10 minutes]"
    ),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_in_a_table_function(t: Trial, text: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        t.query("q", text)
    assert MISTAKES[text] in (None, str(caught.value))


def test_sessions_of_grouping_sets_are_those_of_the_groups_of_each_set() -> None:
    with trial("sets") as pipeline:
        pipeline.stream("s", "t bigint, k string", time="t", time_unit="s")
        pipeline.query(
            "q",
            "select k, count(*) as n, window_start, window_end from s [Session 3 seconds Keep Unbounded] "
            "group by grouping sets ((k, window_start, window_end), (window_start, window_end))",
        )
        pipeline.append("s", [{"t": t, "k": k} for t, k in ((0, "a"), (2, "b"), (4, "a"), (9, "b"))])
        pipeline.finish("s")
        pipeline.run_until_idle(spark=False)
        rows = {
            (row["k"], row["n"], row["window_start"], row["window_end"])
            for row, _, _ in pipeline.query("q").intervals()
        }
    assert rows == {
        ("a", 1, 0, 3), ("a", 1, 4, 7), ("b", 1, 2, 5), ("b", 1, 9, 12),
        (None, 3, 0, 7), (None, 1, 9, 12),
    }  # fmt: skip
