"""Planning: stages, their outputs, keys and fingerprints, and mistakes with their places."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from hayase.core.declarations import (
    LIFETIME_COLUMNS,
    PipelineDeclaration,
    QueryDeclaration,
    Retention,
    StreamDeclaration,
)
from hayase.core.errors import DeclarationError
from hayase.core.reasons import ReasonKind
from hayase.core.stages import Input, Mapped, Stage
from hayase.cql.planner import Planned, plan
from hayase.cql.shared_scans import KernelFactory
from hayase.engine.definition import check
from hayase.lifetimes import plans
from hayase.lifetimes.kernel import KernelConfig
from hayase.lifetimes.plans import ADDED, ROW_ID, VALID_FROM, VALID_TO
from hayase.testing import trial

EVENTS = StreamDeclaration(
    "events",
    "time timestamp not null, user_id string, amount double, n int, tags map<string, string>, price decimal(10, 2)",
    time="time",
    id="user_id",
    slack=5_000_000,
    retention=Retention(age=1),
)
SENSORS = StreamDeclaration("sensors", "ts bigint, value double", time="ts", time_unit="ms", ordered=True)
STOCK = StreamDeclaration("stock", "time timestamp, op string, item string, n bigint", time="time", changes="op")


def planned(*queries: tuple[str, str] | str, streams: tuple[StreamDeclaration, ...] = (EVENTS, SENSORS)) -> Planned:
    named = [each if isinstance(each, tuple) else (f"q{place}", each) for place, each in enumerate(queries)]
    return plan(PipelineDeclaration("p", streams, tuple(QueryDeclaration(*each) for each in named)))


def mapped_by(read: Input, stream: StreamDeclaration, rows: Sequence[Mapping[str, object]]) -> Mapped:
    mapped = read.map_side(pa.RecordBatch.from_pylist(list(rows), schema=stream.arrow_schema))
    assert mapped.rows.schema == read.schema
    return mapped


def stage(text: str, **kwargs: tuple[StreamDeclaration, ...]) -> Stage:
    found = planned(text, **kwargs)
    assert found.mistakes == ()
    return found.stages[0]


def mistakes(text: str) -> list[str]:
    found = planned(text)
    assert found.stages == ()
    return [str(each) for _, each in found.mistakes]


# ---------------------------------------------------------------------------------------------------- projections


def test_a_projection() -> None:
    found = stage("select USER_ID, amount * 2 as Twice from events e where e.amount > 1")
    assert (found.name, found.kernel, found.inputs[0].stream, found.inputs[0].key) == ("q0", None, "events", ())
    assert found.output == StreamDeclaration(
        "q0",
        "user_id string, Twice double, time timestamp",
        "time",
        id="user_id",
        slack=5_000_000,
        max_ahead=None,
        hidden_time=True,
    )
    rows = [
        {"time": datetime(2026, 1, 1, tzinfo=UTC), "user_id": "a", "amount": 2.0},
        {"time": datetime(2026, 1, 2, tzinfo=UTC), "user_id": "b", "amount": 1.0},
    ]
    mapped = found.inputs[0].map_side(pa.RecordBatch.from_pylist(rows, schema=EVENTS.arrow_schema))
    assert mapped.rows.schema == found.inputs[0].schema == found.output.arrow_schema
    assert mapped.rows.to_pylist() == [{"user_id": "a", "Twice": 4.0, "time": rows[0]["time"]}]


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("select * from sensors", "ts bigint, value double"),
        ("select s.*, value + 1 as more from sensors s", "ts bigint, value double, more double"),
        ("select value, ts from sensors", "value double, ts bigint"),
        ("select value from sensors", "value double, ts bigint"),
        ("select value + 1, -value from sensors", "column_1 double, column_2 double, ts bigint"),
        ('select value as "a b" from sensors', "`a b` double, ts bigint"),
        ("select sensors.ts, 'x' as k from sensors", "ts bigint, k string"),
    ],
)
def test_output_columns(text: str, schema: str) -> None:
    output = stage(text).output
    assert output.schema == schema
    assert (output.time, output.time_unit, output.ordered, output.id) == ("ts", "ms", True, None)


def test_queries_read_queries_whatever_the_order_they_are_declared_in() -> None:
    found = planned(("c", "select a from B"), ("b", "select a + 1 as a from a_"), ("a_", "select n as a from events"))
    assert found.mistakes == ()
    assert [each.name for each in found.stages] == ["a_", "b", "c"]
    assert found.stages[2].inputs[0].stream == "events"  # a stage without a kernel serves as a view
    assert found.stages[2].output.slack == 5_000_000


def test_a_projection_of_records_as_they_come() -> None:
    texts = ["select n from events", "Istream(select n from events)", "Rstream(select n from events [Now])"]
    for text in [*texts, "select m as n from (select n as m, user_id from events where n > 0) where user_id = 'a'"]:
        found = stage(text)
        assert (found.kernel, found.output.schema) == (None, "n int, time timestamp")
    for text in [
        "select n from events [Now]",
        "Rstream(select n from events)",
        "Istream(select n from events [Rows 1])",
        "Istream(select n from events [Now])",
    ]:
        assert stage(text).kernel is not None


def test_a_refusal_is_in_the_words_of_the_query() -> None:
    text = (
        "select user_id::int as id from (select user_id, amount from events e where e.n / 2 > 0) where amount::int > 1"
    )
    rows = [
        {"time": datetime(2026, 1, 1, tzinfo=UTC), "user_id": user, "amount": amount, "n": 2}
        for user, amount in (("1", 2.0), ("x", 2.0), ("2", 1e300))
    ]
    mapped = mapped_by(stage(text).inputs[0], EVENTS, rows)
    assert mapped.rows.to_pylist() == [{"id": 1, "time": rows[0]["time"]}]
    assert mapped.refused.rows.tolist() == [1, 2]
    assert mapped.refused.reasons[0].text.startswith('cannot compute "user_id::int": Conversion Error')
    assert mapped.refused.reasons[1].text.startswith(
        'cannot compute "where e.n / 2 > 0 and amount::int > 1": Conversion'
    )


# ---------------------------------------------------------------------------------------------------- kernels


def config(found: Stage) -> KernelConfig:
    assert isinstance(found.kernel, KernelFactory)
    return found.kernel.config


def test_a_relation_carries_its_lifetimes() -> None:
    found = stage("select user_id, sum(n) as total from events [Range 1 second] where n > 0 group by user_id")
    assert found.output == StreamDeclaration(
        "q0",
        "user_id string, total bigint, row_id bigint, valid_from timestamp, valid_to timestamp, changed_at timestamp",
        "changed_at",
        max_ahead=None,
        ordered=True,
        lifetimes=True,
    )
    (read,) = found.inputs
    assert (read.stream, read.key, read.broadcast) == ("events", ("events.user_id",), False)
    assert read.schema == pa.schema({"events.user_id": pa.string(), "events.n": pa.int32()})
    assert config(found).output == found.output.arrow_schema
    assert isinstance(config(found).plan, plans.Scalar)


def test_a_stream_of_results_carries_its_times() -> None:
    output = stage("Dstream(select distinct user_id from events [Rows 2])").output
    assert (output.schema, output.time) == ("user_id string, changed_at timestamp", "changed_at")
    assert (output.ordered, output.lifetimes, output.slack, output.max_ahead) == (True, False, 0, None)


@pytest.mark.parametrize(
    ("text", "kind", "scale"),
    [
        ("select value from sensors [Now]", "bigint", 1000),
        ("select n from events [Now]", "timestamp", 1),
        ("select n, value from events [Now], sensors [Now]", "timestamp", 1),
        ("select a.ts as t from sensors [Now] a, narrow [Now] b", "bigint", 1000),
        ("select t from plain [Now]", "timestamp_ntz", 1),
    ],
)
def test_times_are_those_of_the_streams_if_these_agree(text: str, kind: str, scale: int) -> None:
    others = (
        StreamDeclaration("narrow", "ts int", "ts", time_unit="ms"),
        StreamDeclaration("plain", "t timestamp_ntz", "t"),
    )
    found = stage(text, streams=(EVENTS, SENSORS, *others))
    assert found.output.schema.endswith(f"changed_at {kind}")
    assert (config(found).scale, found.output.time_scale) == (scale, scale)
    windows = [each.window for each in _leaves(config(found).plan) if isinstance(each, plans.Windowed)]
    assert {each.length for each in windows if isinstance(each, plans.Range)} == {scale}


def _leaves(node: plans.Node) -> list[plans.Node]:
    inner = plans.children(node)
    return [leaf for child in inner for leaf in _leaves(child)] if inner else [node]


def test_a_window_by_rows_ranks_by_the_times_of_all_records() -> None:
    found = stage(
        "select a.n, b.n as m from events [Rows 3] a join events [Rows 5 Slide 2] b on a.n = b.n where a.n > 1"
    )
    assert [(each.stream, each.key, each.broadcast) for each in found.inputs] == [
        ("events", ("a.n",), False),
        ("events", (), True),
        ("events", ("b.n",), False),
    ]
    assert len(found.inputs[1].schema) == 0
    windows = [each.window for each in _leaves(config(found).plan) if isinstance(each, plans.Windowed)]
    assert windows == [plans.Rows(3, 1), plans.Rows(5, 1, 2)]


def test_a_window_by_partition_takes_all_records_and_marks_them() -> None:
    found = stage("select n, user_id || '!' as u from events [Partition By user_id Rows 2] where amount > 1")
    (read,) = found.inputs
    assert (read.key, read.schema.names) == (("events.user_id",), ["events.user_id", "events.n", "__let_through"])
    rows = [{"time": datetime(2026, 1, 1, tzinfo=UTC), "user_id": "a", "amount": each, "n": 2} for each in (2.0, None)]
    mapped = mapped_by(read, EVENTS, rows)
    assert mapped.rows.column("__let_through").to_pylist() == [True, False]
    (leaf,) = _leaves(config(found).plan)
    assert leaf == plans.Windowed(
        0, plans.Partition(("events.user_id",), 2), _without_last(read.schema), "__let_through"
    )


def _without_last(schema: pa.Schema) -> pa.Schema:
    return schema.remove(len(schema) - 1)


def test_changes_say_plus_or_minus() -> None:
    found = stage("select item from stock where n > 1", streams=(STOCK,))
    (read,) = found.inputs
    assert (read.key, read.schema.names) == (("stock.item", "stock.n"), ["stock.item", "stock.n", ADDED])
    time = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [{"time": time, "op": op, "item": "a", "n": number} for number, op in enumerate(("+", "-", "*", None))]
    mapped = mapped_by(read, STOCK, rows)
    assert (mapped.rows.column(ADDED).to_pylist(), mapped.input_rows.tolist()) == ([True, False], [0, 1])
    assert mapped.refused.rows.tolist() == [2, 3]
    assert mapped.refused.reasons == [
        (ReasonKind.CHANGE, 'a change is + or -, and column "op" is "*"'),
        (ReasonKind.CHANGE, 'a change is + or -, and column "op" is null'),
    ]


def test_a_relation_is_read_with_its_lifetimes() -> None:
    found = planned(
        ("a", "select ts, value from sensors [Range 1 second]"), ("b", "select -value as v from a where ts > 1")
    )
    read = found.stages[1].inputs[0]
    assert (read.stream, read.key) == ("a", (ROW_ID,))
    assert read.schema.names == ["v", ROW_ID, VALID_FROM, VALID_TO]
    rows: list[dict[str, object]] = [
        {"ts": 5, "value": 2.0, "row_id": 7, "valid_from": 5, "valid_to": None, "changed_at": 5},
        {"ts": 1, "value": 3.0, "row_id": 8, "valid_from": 6, "valid_to": 7, "changed_at": 6},
    ]
    mapped = mapped_by(read, found.stages[0].output, rows)
    assert mapped.rows.to_pylist() == [{"v": -2.0, ROW_ID: 7, VALID_FROM: 5000, VALID_TO: None}]
    assert isinstance(_leaves(config(found.stages[1]).plan)[0], plans.Lifetimes)


def test_a_stream_of_results_is_read_like_any_other() -> None:
    found = planned(
        ("a", "Istream(select distinct n from events)"), ("b", "select count(*) from a [Rows 2] group by n")
    )
    assert [each.stream for each in found.stages[1].inputs] == ["a", "a"]
    (leaf,) = _leaves(config(found.stages[1]).plan)
    assert isinstance(leaf, plans.Windowed)
    last = planned(("a", "Istream(select distinct n from events)"), ("b", "select n + 1 as m from a")).stages[-1]
    assert (last.kernel, last.output.schema, last.output.ordered) == (None, "m int, changed_at timestamp", True)


def test_stages_between_hand_on_lifetimes() -> None:
    found = planned(
        "select total, count(*) as users from (select user_id, sum(n) total from events group by user_id) group by total"
    )
    between, last = found.stages
    assert (between.name, between.output.name, last.name) == ("_q0_1", "_q0_1", "q0")
    assert between.output.lifetimes
    assert [(each.stream, each.key) for each in last.inputs] == [("_q0_1", (last.inputs[0].schema.names[0],))]
    assert between.fingerprint != last.fingerprint


def test_an_aggregate_over_everything_begins_with_the_first_record_of_any_stream() -> None:
    found = planned(
        ("a", "select n from events where n > 100"),
        ("b", "select distinct value from sensors"),
        ("c", "select count(*) as n from (select n from a union all select value from b) where n > 3"),
    )
    assert found.mistakes == ()
    last = found.stages[-1]
    assert [(each.stream, each.key) for each in last.inputs] == [
        ("events", ()),
        ("b", ()),
        ("events", ()),
        ("sensors", ()),
    ]
    assert config(last).earliest == (2, 3)
    rows: list[dict[str, object]] = [{"time": datetime(2026, 1, day, tzinfo=UTC), "n": 0} for day in (3, 2, 4)]
    mapped = mapped_by(last.inputs[2], EVENTS, rows)
    assert mapped.input_rows.tolist() == [1]
    assert mapped_by(last.inputs[2], EVENTS, rows[:0]).input_rows.tolist() == []


def test_views_are_looked_through_wherever_they_are_read() -> None:
    found = planned(
        ("big", "select user_id as u, n from events where n > 10"),
        ("bigger", "select u from big where n > 20"),
        ("pairs", "select a.u from bigger [Rows 2] a join big b on a.u = b.u"),
    )
    pairs = found.stages[2]
    assert [(each.stream, each.key) for each in pairs.inputs] == [
        ("events", ("a.u",)),
        ("events", ()),
        ("events", ("b.u",)),
    ]
    rows = [{"time": datetime(2026, 1, 1, tzinfo=UTC), "user_id": "a", "n": n} for n in (5, 15, 25)]
    assert [mapped_by(each, EVENTS, rows).input_rows.tolist() for each in pairs.inputs] == [[2], [2], [1, 2]]
    alone = planned(("big", "select user_id as u, n from events where n > 11"), ("pairs", "select u from big [Rows 2]"))
    other = planned(("big", "select user_id as u, n from events where n > 10"), ("pairs", "select u from big [Rows 2]"))
    assert alone.stages[1].fingerprint != other.stages[1].fingerprint  # a view is part of who looks through it


# ---------------------------------------------------------------------------------------------------- identity


def test_stages_can_be_sent_elsewhere() -> None:
    found = planned("select n from events", "select user_id, count(*) from events group by user_id").stages
    sent = pickle.loads(pickle.dumps(found))
    assert [each.fingerprint for each in sent] == [each.fingerprint for each in found]
    assert sent[1].kernel is not None
    assert sent[1].kernel(1, 2) is not None


def test_a_fingerprint_follows_meaning_and_nothing_else() -> None:
    text = "select user_id, sum(n) as total from events where n > 0 group by user_id"
    one = stage(text).fingerprint
    wider = StreamDeclaration("events", EVENTS.schema + ", more string", "time", slack=1, retention=Retention(size=1))
    assert stage(text.upper().replace("TOTAL", "total").replace(" FROM", "\n FROM")).fingerprint == one
    assert stage(text, streams=(wider,)).fingerprint == one
    retyped = StreamDeclaration("events", EVENTS.schema.replace("n int", "n bigint"), "time")
    others = {
        stage(text.replace("> 0", "> 1")).fingerprint,
        stage(text.replace("total", "sums")).fingerprint,
        stage(text, streams=(retyped,)).fingerprint,
    }
    assert len(others | {one}) == 4
    assert len(one) == 32


# ---------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select a from evnts", '1:15: unknown stream "evnts"; did you mean "events"?'),
        ("select e.n from events e, evnts, users", '1:27: unknown stream "evnts"; did you mean "events"?'),
        ("select amuont from events", '1:8: unknown column "amuont"'),
        ("select n as event_time from events", '1:8: "event_time" is the event time of the result, and of type int32'),
        (
            "select n, max(time) as event_time from events group by n",
            "1:11: the event time of these results is when rows",
        ),
        ("select count(*) from events group by tags", "1:38: a map<"),
        ("select distinct n, tags from events", "1:20: a map<"),
        ("Istream(select n,\n tags from events [Range 1 second])", "2:2: Istream compares values, and a map<"),
        (
            "select end from events",
            '1:8: syntax error at or near "end"; a column or stream of that name is written in double',
        ),
    ],
)
def test_a_mistake_is_named_and_placed(text: str, expected: str) -> None:
    assert expected in mistakes(text)[0]


def test_all_mistakes_of_all_queries_are_told() -> None:
    found = planned(
        ("one", "select nope, n, neither from events where also"),
        ("two", "select * from one"),
        ("three", "select * from events limit 0"),
        ("four", "select n from events"),
    )
    assert [(name, each.line, each.column) for name, each in found.mistakes] == [
        ("one", 1, 8),
        ("one", 1, 17),
        ("one", 1, 43),
        ("three", 1, 28),
    ]
    assert [each.name for each in found.stages] == ["four"]


def test_queries_in_a_circle() -> None:
    found = planned(
        ("a", "select n from b"), ("b", "select n from a"), ("c", "select n from a"), ("d", "select n from d")
    )
    assert [(name, each.message) for name, each in found.mistakes] == [
        ("a", "queries read each other: a -> b -> a"),
        ("b", "queries read each other: b -> a -> b"),
        ("d", "queries read each other: d -> d"),
    ]
    found = planned(("a", "select e.n from events e,\n b"), ("b", "select b.n from users u, a b"))
    assert [(name, each.line, each.column) for name, each in found.mistakes] == [("a", 2, 2), ("b", 1, 26)]


def test_a_pipeline_without_queries() -> None:
    assert planned() == Planned()


# ---------------------------------------------------------------------------------------------------- event time


def _outputs(**queries: str) -> dict[str, StreamDeclaration]:
    ticks = StreamDeclaration("s", "ts bigint, x bigint, y bigint", "ts", time_unit="s")
    declared = tuple(QueryDeclaration(name, text) for name, text in queries.items())
    found = plan(PipelineDeclaration("shop", (ticks,), declared))
    assert found.mistakes == ()
    return {each.name: each.stream for each in found.stages}


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        ("select x from s", "select distinct * from p [Range 10 seconds]", ["x"]),
        ("select x from s", "select * from p", ["x", "event_time"]),
        ("select x from s", "select * from p [Rows 3]", ["x"]),
        ("select x from s", "select p.*, event_time as seen from p", ["x", "seen", "event_time"]),
        ("select x from s", "select event_time as ts, x from p", ["ts", "x"]),
        ("select x, y as ts from s", "select * from p", ["x", "ts", "event_time"]),
        ("select ts as event_time, x from s", "select * from p", ["event_time", "x"]),
        ("Istream(select x from s [Range 5 seconds])", "select * from p", ["x", "event_time"]),
        ("Istream(select x from s [Range 5 seconds])", "select distinct * from p [Range 10 seconds]", ["x"]),
        ("select x, count(*) as n from s group by x", "select *, event_time as since from p", ["x", "n", "since"]),
    ],
)
def test_the_columns_of_a_query_are_those_it_selects(first: str, second: str, names: list[str]) -> None:
    output = _outputs(p=first, q=second)["q"]
    told = LIFETIME_COLUMNS[:3]
    assert [each for each in output.shown_schema.names if each not in told][: len(names)] == names
    assert output.shown_schema.names.count("event_time") == (names != ["ts", "x"])
    assert {"changed_at", "ts"}.isdisjoint(set(output.shown_schema.names) - set(names))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select ts, x from p [Now]", '1:8: unknown column "ts" in "p"; the event time of "p" is event_time'),
        ("select a.ts from p [Now] as a", '1:8: unknown column "ts" in "a"; the event time of "a" is event_time'),
        ("select changed_at as t from i [Now]", '1:8: unknown column "changed_at" in "i"; the event time of "i" is'),
        ("select x from p [Partition By ts Rows 1]", '1:31: unknown column "ts" in "p"; the event time of "p" is'),
        ("select x from p where ts > 1", '1:23: unknown column "ts" in "p"; the event time of "p" is event_time'),
    ],
)
def test_the_event_time_of_a_query_has_no_other_name(query: str, message: str) -> None:
    with trial() as p:
        p.stream("s", "ts bigint, x bigint", time="ts", time_unit="s")
        p.query("p", "select x from s")
        p.query("i", "Istream(select x from s [Range 5 seconds])")
        with pytest.raises(DeclarationError, match=f"^{re.escape(message)}"):
            p.query("q", query)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # A column that p does not have makes no name ambiguous, and hides none of the query around it.
        ("select s.x, ts from p [Now], s [Now]", [(5, 1), (6, 2)]),
        ("select x, ts from s [Now] as a where exists (select 1 from p as b where b.x < a.x and ts = 2)", [(6, 2)]),
        ("select x, event_time as t from p [Partition By event_time Rows 1]", [(5, 1), (6, 2)]),
        ("select x, ts from s [Partition By event_time Rows 1]", [(5, 1), (6, 2)]),
    ],
)
def test_a_column_that_a_query_does_not_select_is_not_there(query: str, expected: list[tuple[int, int]]) -> None:
    with trial() as p:
        p.stream("s", "ts bigint, x bigint", time="ts", time_unit="s")
        p.query("p", "select x from s")
        p.query("q", query)
        p.append("s", [{"ts": 1, "x": 5}, {"ts": 2, "x": 6}])
        p.finish("s")
        p.run()
        assert [tuple(row.values()) for row, _, _ in p.intervals("q")] == expected


def test_a_query_may_choose_the_event_time_of_its_results() -> None:
    with trial() as p:
        p.stream("s", schema="ts bigint, x bigint, y bigint", time="ts", time_unit="s")
        p.query("shifted", "select x, y as event_time from s")
        p.query("counted", "Istream(select count(*) as n from shifted [Range 5 seconds])")
        rows = [
            {"ts": 1, "x": 1, "y": 101},
            {"ts": 2, "x": 2, "y": 102},
            {"ts": 3, "x": 3, "y": None},
            {"ts": 4, "x": 4, "y": 120},
        ]
        p.append("s", rows)
        p.finish("s")
        p.run()
        assert p.rows("shifted") == [{"x": row["x"], "event_time": row["y"]} for row in rows if row["y"]]
        assert [(row["event_time"], row["n"]) for row in p.rows("counted")] == [
            (101, 1),
            (102, 2),
            (106, 1),
            (107, 0),
            (120, 1),
        ]
        (letter,) = p.dead_letters()
        assert "the event_time is null" in letter["reason"]


def _seen(record: dict[str, int]) -> list[dict[str, int]]:
    return [{"x": record["x"], "seen": record["event_time"]}]


def test_everybody_sees_the_event_time_under_one_name() -> None:
    with trial() as p:
        p.stream("s", schema="ts bigint, x bigint", time="ts", time_unit="s")
        p.query("hidden", "select x from s")
        p.query("changed", "Istream(select x from s [Range 5 seconds])")
        p.query("relation", "select x, count(*) as n from s [Range 5 seconds] group by x")
        job = p.job("tuples", reads="hidden", every="1 second")
        job.map(_seen, schema="x bigint, seen bigint")
        p.append("s", [{"ts": 1, "x": 5}, {"ts": 2, "x": 6}])
        p.finish("s")
        p.clock.advance("1 second")
        p.run()
        assert p.rows("hidden") == [{"x": 5, "event_time": 1}, {"x": 6, "event_time": 2}]
        assert p.rows("changed") == p.rows("hidden")
        assert p.results("hidden").at_table().column_names == ["x", "event_time"]
        assert p.results("hidden").intervals_table().column_names == ["x", "valid_from", "valid_to"]
        assert p.results("hidden").changes_table().column_names == ["event_time", "change", "x"]
        assert p.results("relation").table().column_names == [
            "x",
            "n",
            "row_id",
            "valid_from",
            "valid_to",
            "event_time",
        ]
        assert p.at("relation", 2) == [{"x": 5, "n": 1}, {"x": 6, "n": 1}]
        assert [row["seen"] for row in p.rows("tuples")] == [1, 2]


def test_the_query_that_is_declared_is_never_suggested() -> None:
    stream = StreamDeclaration("orders", "ts bigint, x bigint", "ts", time_unit="s")
    for text, hint in (
        ("select x from totls", "known are: orders"),
        ("select x from ordres", 'did you mean "orders"?'),
    ):
        declared = PipelineDeclaration("p", streams=(stream,), queries=(QueryDeclaration("totals", text),))
        with pytest.raises(DeclarationError) as caught:
            check.check(declared)
        assert [mistake.hint for mistake in caught.value.mistakes] == [hint]
