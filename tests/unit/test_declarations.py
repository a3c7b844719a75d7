"""Declarations check themselves, all at once, and survive JSON; the texts of errors are part of the interface."""

from __future__ import annotations

import json

import pytest

from hayase.core.declarations import (
    DAY,
    PipelineDeclaration,
    QueryDeclaration,
    Retention,
    RulesDeclaration,
    StreamDeclaration,
    TableDeclaration,
    checked_name,
)
from hayase.core.errors import DeclarationError, HayaseError, Mistake, StreamError, UnknownName, nearest

EVENTS = StreamDeclaration("events", "time timestamp, user_id string, amount double", time="time")


def mistakes_of(**fields):
    with pytest.raises(DeclarationError) as caught:
        StreamDeclaration(
            **{"name": "events", "schema": "time timestamp, uuid string, n bigint", "time": "time"} | fields
        )
    return [str(each) for each in caught.value.mistakes]


def test_a_stream_has_its_defaults():
    assert (EVENTS.slack, EVENTS.max_ahead, EVENTS.idle_after, EVENTS.retention) == (0, DAY, None, Retention())
    assert EVENTS.time_scale == 1
    assert EVENTS.arrow_schema.names == ["time", "user_id", "amount"]


def test_schemas_are_kept_in_canonical_form():
    loose = StreamDeclaration("events", "TIME  Timestamp,\n`user_id` STRING, amount: double", time="TIME")
    assert loose.schema == "TIME timestamp, user_id string, amount double"


@pytest.mark.parametrize(("unit", "scale"), [("s", 1_000_000), ("ms", 1_000), ("us", 1)])
def test_an_integer_time_column_counts_units(unit, scale):
    assert StreamDeclaration("ticks", "t bigint", time="t", time_unit=unit).time_scale == scale


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"time": "tme"}, 'unknown time column "tme" in stream "events"; did you mean "time"?'),
        ({"id": "id"}, 'unknown id column "id" in stream "events"; did you mean "uuid"?'),
        ({"time": "uuid"}, 'time column "uuid" in stream "events" is a string; make it a timestamp or a bigint'),
        (
            {"time": "n"},
            'time column "n" in stream "events" is an integer and has no time_unit; '
            "say what it counts: one of s, ms, us",
        ),
        (
            {"time": "n", "time_unit": "minutes"},
            'time column "n" in stream "events" is an integer and has the unknown time_unit "minutes"; '
            "say what it counts: one of s, ms, us",
        ),
        (
            {"time_unit": "ms"},
            'time_unit in stream "events" is for integer time columns; this one is a timestamp; remove it',
        ),
        ({"slack": -1}, 'slack in stream "events" is negative; give a duration like 10 seconds'),
        ({"retention": Retention(size=-1)}, 'size of the retention in stream "events" is negative; give 0 or more'),
        (
            {"schema": "time timestamp, __offset int"},
            'column "__offset" in stream "events" begins with "__", which is reserved; rename the column',
        ),
        (
            {"schema": "time timestmp"},
            '1:6: schema of stream "events": column "time": unknown type "timestmp"; did you mean "timestamp"?',
        ),
        (
            {"name": "my events"},
            "'my events' cannot be the name of a stream; use letters, digits and _, a letter first, at most 63 of them",
        ),
    ],
)
def test_a_wrong_stream_says_what_where_and_what_to_do(fields, message):
    assert mistakes_of(**fields) == [message]


def test_all_mistakes_of_a_stream_come_at_once():
    found = mistakes_of(time="tme", id="uid", slack=-1, idle_after=-1)
    assert [text.split(" in ")[0] for text in found] == [
        'unknown time column "tme"', 'unknown id column "uid"', "slack", "idle_after"
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["", "1x", "a-b", "a.b", "../x", "_x", "x" * 64, "größe", "a\n", None, 3])
def test_names_that_are_unsafe_somewhere_are_refused(name):
    with pytest.raises(DeclarationError, match="cannot be the name of a query"):
        checked_name("query", name)


def test_streams_and_queries_share_one_name_space():
    with pytest.raises(DeclarationError) as caught:
        PipelineDeclaration(
            "shop", (EVENTS,), (QueryDeclaration("Events", "select 1"), QueryDeclaration("x", "select 1"))
        )
    assert str(caught.value) == (
        '"Events" is declared twice; streams, queries and tables share one name space, whatever the case'
    )


def test_a_table_has_its_defaults():
    table = TableDeclaration("purchases", ("user_id",), (("total", "Counter"), ("at", "Register")))
    assert (table.fold_after, table.horizon, table.column_names) == (DAY, 7 * DAY, ("total", "at"))
    shop = PipelineDeclaration("shop", (EVENTS,), tables=(table,))
    assert shop.table("purchases") is table
    with pytest.raises(UnknownName, match='unknown table "purchase"; did you mean "purchases"'):
        shop.table("purchase")
    with pytest.raises(DeclarationError, match='"Purchases" is declared twice'):
        PipelineDeclaration(
            "shop",
            (EVENTS,),
            (QueryDeclaration("purchases", "select 1"),),
            tables=(TableDeclaration("Purchases", ("k",), (("v", "GSet"),)),),
        )


def test_all_mistakes_of_a_table_come_at_once():
    with pytest.raises(DeclarationError) as caught:
        TableDeclaration("t", (), (("a-b", "Counter"), ("c", "Counter"), ("C", "GSet")), fold_after=-1, horizon=-2)
    assert [str(each) for each in caught.value.mistakes] == [
        "'a-b' cannot be the name of a column of table \"t\"; "
        "use letters, digits and _, a letter first, at most 63 of them",
        '"C" of table "t" stands there twice; name one of them differently',
        'table "t" has no key; name its parts, like user_id',
        'fold_after of table "t" is negative; give a duration like 1 day',
        'the horizon of table "t" is shorter than fold_after; '
        "repeated events must be recognised at least until their updates are folded",
    ]
    with pytest.raises(DeclarationError, match='"t" has no columns; give it one, like total: Counter'):
        TableDeclaration("t", ("k",), ())
    with pytest.raises(DeclarationError, match="cannot be the name of a table"):
        TableDeclaration("a b", ("k",), (("v", "Counter"),))


def test_the_end_of_a_query_s_text_says_nothing():
    assert QueryDeclaration("q", "select 1\n  ") == QueryDeclaration("q", "select 1")


def test_an_unknown_stream_names_the_nearest():
    with pytest.raises(UnknownName) as caught:
        PipelineDeclaration("shop", (EVENTS,)).stream("event")
    assert str(caught.value) == 'unknown stream "event"; did you mean "events"?'
    assert (caught.value.kind, caught.value.name, caught.value.known) == ("stream", "event", ("events",))


def test_a_definition_survives_json_on_disk():
    events = StreamDeclaration("events", EVENTS.schema, time="time", slack=5, retention=Retention(age=DAY, size=10))
    table = TableDeclaration("t", ("a", "b"), (("v", "Counter"), ("w", "GSet")), 0, 5)
    rules = RulesDeclaration("rules.yaml", "source: events\n")
    shop = PipelineDeclaration("shop", (events,), (QueryDeclaration("q", "select 1"),), 4, (), (table,), (rules,))
    assert PipelineDeclaration.from_json(json.loads(json.dumps(shop.as_json()))) == shop


def test_a_definition_from_before_there_were_tables_is_read():
    shop = PipelineDeclaration("shop", (EVENTS,))
    data = {key: value for key, value in shop.as_json().items() if key not in ("tables", "rules", "aggregates")}
    assert PipelineDeclaration.from_json(data) == shop


def test_mistakes_show_as_much_of_their_place_as_is_known():
    assert str(Mistake("wrong")) == "wrong"
    assert str(Mistake("wrong", "mend it", "a.yaml")) == "a.yaml: wrong; mend it"
    assert str(Mistake("wrong", None, "a.yaml", 3)) == "a.yaml:3: wrong"
    assert str(Mistake("wrong", None, None, 3, 4)) == "3:4: wrong"


def test_a_declaration_error_lists_its_mistakes_line_by_line():
    error = DeclarationError(Mistake(text, "mend it") for text in ("one", "two"))
    assert str(error) == "one; mend it\ntwo; mend it"
    assert DeclarationError("one", "mend it").mistakes == (Mistake("one", "mend it"),)


def test_errors_are_one_tree_and_keep_their_fields():
    error = StreamError("events", "broken")
    assert isinstance(error, HayaseError)
    assert (error.stream, str(error)) == ("events", "broken")


def test_nearest_lists_what_is_known_when_nothing_is_near():
    assert nearest("zzz", []) == ""
    assert nearest("zzz", ["b", "a"]) == "; known are: a, b"
