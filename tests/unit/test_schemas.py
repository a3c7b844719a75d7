"""Schemas: what DDL says, and what is said about DDL that is wrong."""

from __future__ import annotations

import pyarrow as pa
import pytest

from hayase.core.errors import DeclarationError
from hayase.core.schemas import arrow_schema, ddl

KNOWN = (
    "known are: array<...>, bigint, binary, boolean, date, decimal(p, s), double, float, int, json, map<..., ...>, smallint, "
    "string, struct<name: ...>, time, timestamp, timestamp_ntz, tinyint, ubigint"
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("boolean", pa.bool_()),
        ("tinyint", pa.int8()),
        ("byte", pa.int8()),
        ("smallint", pa.int16()),
        ("INT", pa.int32()),
        ("Integer", pa.int32()),
        ("bigint", pa.int64()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("string", pa.string()),
        ("varchar(20)", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_ltz", pa.timestamp("us", tz="UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("decimal", pa.decimal128(10, 0)),
        ("decimal(12)", pa.decimal128(12, 0)),
        ("numeric(38, 38)", pa.decimal128(38, 38)),
        ("array<array<int>>", pa.list_(pa.list_(pa.int32()))),
        ("map<string, decimal(3, 1)>", pa.map_(pa.string(), pa.decimal128(3, 1))),
        ("struct<a: int, b string>", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("struct<`a b`: int not null>", pa.struct([pa.field("a b", pa.int32(), nullable=False)])),
    ],
)
def test_types_are_spark_s(text, kind):
    assert arrow_schema(f"x {text}") == pa.schema([pa.field("x", kind)])


def test_any_word_can_name_a_column_as_in_spark():
    names = ["group", "order", "select", "time", "timestamp", "not", "comment", "array", "größe", "_x", "2nd"]
    schema = arrow_schema(", ".join(f"{name} int" for name in names))
    assert schema.names == names
    assert arrow_schema(ddl(schema)) == schema


def test_words_that_sql_keeps_for_itself_are_written_in_backquotes():
    schema = pa.schema([pa.field(name, pa.int32()) for name in ("time", "group", "Order", "user", "a b", "`", "größe")])
    assert ddl(schema) == "time int, `group` int, `Order` int, `user` int, `a b` int, ```` int, `größe` int"


def test_lines_comments_and_colons_are_taken():
    text = "a: int not null comment 'it''s the key',\n  b string comment 'b\\'s', c int NOT NULL"
    with pytest.raises(DeclarationError):
        arrow_schema(text)  # Spark escapes a quote with a backslash, not by doubling it
    schema = arrow_schema(text.replace("''", "\\'"))
    assert ddl(schema) == "a int not null, b string, c int not null"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'the schema is empty; write it like "time timestamp, amount double"'),
        ("x foo", f'1:3: column "x": unknown type "foo"; {KNOWN}'),
        ("x strng", '1:3: column "x": unknown type "strng"; did you mean "string"?'),
        ("x", '1:2: column "x": found the end where a type should be; write "name type, name type"'),
        ("x int,", '1:7: found the end where a name should be; write "name type, name type"'),
        ("x int y int", '1:7: column "x": found "y"; after the type comes "not null", a comma or the end'),
        ("x int not", '1:10: column "x": found the end; write "not null"'),
        (
            "user-id int",
            '1:5: column "user": found "-" where a type should be; '
            "a name that is not only letters, digits and _ must be in backquotes: `my name`",
        ),
        ("x array", '1:8: column "x": found the end; write the type like array<...>'),
        ("x array<int", '1:12: column "x": found the end; close "array<" with ">"'),
        ("x map<int>", '1:10: column "x": found ">"; a map has two types: map<key, value>'),
        ("x struct<>", '1:10: column "x": found ">" where a name should be; write "name type, name type"'),
        (
            "x decimal(39, 2)",
            '1:3: column "x": decimal(39, 2) does not exist; the precision is 1 to 38, the scale at most that',
        ),
        ("x decimal(a)", '1:11: column "x": found "a" where a number should be; write it like decimal(10, 2)'),
        ("x int, X int", '1:8: column "X": the name "X" stands twice; rename one; case makes no difference'),
        (
            "x struct<a: int, a: int>",
            '1:18: column "x": the name "a" stands twice; rename one; case makes no difference',
        ),
        ("x int comment y", "1:15: column \"x\": a comment is text in single quotes; write comment 'what it is'"),
        ("x int) x", '1:6: column "x": found ")"; after the type comes "not null", a comma or the end'),
    ],
)
def test_mistakes_say_what_where_and_what_to_do(text, message):
    with pytest.raises(DeclarationError) as caught:
        arrow_schema(text)
    assert str(caught.value) == message


def test_all_mistakes_of_a_schema_come_at_once():
    with pytest.raises(DeclarationError) as caught:
        arrow_schema("a int,\n  b map<strin, int>,\n  c int,, d\n")
    assert [(each.line, each.column) for each in caught.value.mistakes] == [(2, 9), (3, 9), (4, 1)]


@pytest.mark.parametrize(
    "text", ["x " + "array<" * 10_000, "`\0` int", "`\ud800` int", "`x int", "x decimal(" + "9" * 9999]
)
def test_hostile_schemas_are_refused_like_others(text):
    with pytest.raises(DeclarationError) as caught:
        arrow_schema(text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "kind", [pa.uint32(), pa.time32("s"), pa.timestamp("ns"), pa.duration("us"), pa.dictionary(pa.int8(), pa.string())]
)
def test_arrow_types_without_ddl_are_refused(kind):
    with pytest.raises(DeclarationError, match=r"a stream cannot hold the Arrow type .*; known are: boolean"):
        ddl(pa.schema([("x", kind)]))


def test_a_column_needs_a_name():
    with pytest.raises(DeclarationError, match="a column has no name"):
        ddl(pa.schema([("", pa.int8())]))
