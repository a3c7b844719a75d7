"""Planning: stages, their outputs, keys and fingerprints, and mistakes with their places."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from hayase.core.declarations import PipelineDeclaration, QueryDeclaration, Retention, StreamDeclaration
from hayase.core.stages import OFFSET, TIME, Stage
from hayase.cql import Planned, plan

EVENTS = StreamDeclaration(
    "events",
    "time timestamp not null, user_id string, amount double, n int, tags array<string>, price decimal(10, 2)",
    time="time",
    id="user_id",
    slack=5_000_000,
    retention=Retention(age=1),
)
SENSORS = StreamDeclaration("sensors", "ts bigint, value double", time="ts", time_unit="ms", ordered=True)


def planned(*queries: tuple[str, str] | str, streams: tuple[StreamDeclaration, ...] = (EVENTS, SENSORS)) -> Planned:
    named = [each if isinstance(each, tuple) else (f"q{place}", each) for place, each in enumerate(queries)]
    return plan(PipelineDeclaration("p", streams, tuple(QueryDeclaration(*each) for each in named)))


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
        "q0", "user_id string, Twice double, time timestamp", "time", slack=5_000_000, max_ahead=None
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


# ---------------------------------------------------------------------------------------------------- totals


def test_running_totals() -> None:
    found = stage(
        "select sum(n) as total, lower(user_id) u, count(*), count(n), count(tags), sum(amount) from events "
        "where n >= 0 group by u"
    )
    assert found.output == StreamDeclaration(
        "q0",
        "total bigint, u string, count bigint, count_n bigint, count_tags bigint, sum_amount double, time timestamp",
        "time",
        max_ahead=None,
        ordered=True,
    )
    (read,) = found.inputs
    assert (read.key, read.schema.names) == (("k0",), ["k0", "a0", "a1", "a2"])
    assert read.schema.field("a1").type == pa.bool_()  # tags are only counted
    times = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    rows = [
        {"time": times[0], "user_id": "A", "n": 1, "amount": 0.5, "tags": []},
        {"time": times[1], "user_id": "b", "n": -1, "amount": 0.5, "tags": []},
        {"time": times[2], "user_id": "a", "n": 2, "amount": None, "tags": None},
    ]
    mapped = read.map_side(pa.RecordBatch.from_pylist(rows, schema=EVENTS.arrow_schema))
    assert mapped.origin.tolist() == [0, 2]
    batch = mapped.rows.append_column(TIME, pa.array([0, 2], pa.int64())).append_column(OFFSET, pa.array([0, 2]))
    batch = batch.set_column(batch.schema.get_field_index(TIME), TIME, pa.array(times[::2]).cast("int64"))
    assert found.kernel is not None
    outcome = found.kernel().process([batch], clock=2**62, version=1)
    assert outcome.rows.schema == found.output.arrow_schema
    assert [list(row.values()) for row in outcome.rows.to_pylist()] == [
        [1, "a", 1, 1, 1, 0.5, times[0]],
        [3, "a", 2, 2, 1, 0.5, times[2]],
    ]


def test_keys_may_be_given_by_place_and_need_not_be_selected() -> None:
    assert stage("select upper(user_id), count(*) from events group by 1").output.schema.startswith("column_1 string")
    hidden = stage("select count(*) from events group by user_id, n % 2, user_id")
    assert hidden.inputs[0].key == ("k0", "k1")
    assert hidden.output.schema == "count bigint, time timestamp"


def test_the_event_time_may_be_selected_or_be_a_key() -> None:
    assert stage("select time, user_id, count(*) from events group by user_id").output.schema.startswith("time timest")
    assert stage("select ts, count(*) from sensors group by ts").output.schema == "ts bigint, count bigint"


def test_decimals_are_summed() -> None:
    text = "select user_id, sum(price) from events group by user_id"
    assert "sum_price decimal(38, 2)" in stage(text).output.schema


# ---------------------------------------------------------------------------------------------------- identity


def test_stages_can_be_sent_elsewhere() -> None:
    found = planned("select n from events", "select user_id, count(*) from events group by user_id").stages
    sent = pickle.loads(pickle.dumps(found))
    assert [each.fingerprint for each in sent] == [each.fingerprint for each in found]
    assert sent[1].kernel is not None
    assert sent[1].kernel().size("totals") == 0


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
        ("select *\nfrom events where amuont > 1", '2:19: unknown column "amuont"; did you mean "amount"?'),
        ("select n,\n  1 +\n  usr_id x from events", '3:3: unknown column "usr_id"; did you mean "user_id"?'),
        ("select n, N from events", '1:11: two columns of the result are called "n"'),
        ("select *, n from events", '1:11: two columns of the result are called "n"'),
        ("select n as __n from events", '1:8: the name "__n" begins with "__", which is reserved'),
        ("select n as time from events", '1:8: "time" is the event time of the result and must be that of the input'),
        ("select now() as t from events", "1:8: now() is not supported"),
        ("select n from events where n", "1:28: a condition must be a boolean and this is a int32"),
        ("select (select 1) as x from events", "1:8: sub-queries are not supported in expressions"),
        ("select n from events where n in (select 1)", "sub-queries are not supported in expressions"),
        ("select avg(n) from events group by user_id", "1:8: the aggregate avg is not supported here"),
        ("select sum(n) + 1 as x, count(*) from events group by user_id", "1:8: the aggregate sum is not supported"),
        ("select count(*) from events where sum(n) > 1 group by n", "1:35: the aggregate sum is not supported here"),
        ("select sum(n) over () from events", "1:8: window functions are not supported"),
        ("select count(*) from events", "1:8: aggregates without GROUP BY are not supported yet"),
        ("select n from events group by n", "1:31: GROUP BY without an aggregate is not supported yet"),
        ("select amount, count(*) from events group by n", '1:8: "amount" is neither in GROUP BY nor in an aggregate'),
        ("select count(*) from events group by 2", "1:38: GROUP BY 2 is no entry of the select list"),
        ("select count(*) from events group by 1", "1:38: an aggregate cannot be a key"),
        ("select count(*) from events group by tags", "1:38: a list<"),
        ("select sum(user_id) from events group by n", "1:12: there is no sum of a string"),
        ("select interval 1 day as d from events", "1:8: a value of type interval has no place in a stream"),
        ("select z.* from events e", '1:8: unknown stream "z"; this query reads "e"'),
        ("select end from events", '1:8: syntax error at or near "end"; a column of that name is written in double'),
    ],
)
def test_a_mistake_is_named_and_placed(text: str, expected: str) -> None:
    (message,) = mistakes(text)
    assert expected in message


def test_all_mistakes_of_all_queries_are_told() -> None:
    found = planned(
        ("one", "select nope, n, neither from events where also"),
        ("two", "select * from one"),
        ("three", "select * from events limit 1"),
        ("four", "select n from events"),
    )
    assert [(name, each.line, each.column) for name, each in found.mistakes] == [
        ("one", 1, 8),
        ("one", 1, 17),
        ("one", 1, 43),
        ("three", 1, 22),
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


def test_a_pipeline_without_queries() -> None:
    assert planned() == Planned()
