"""The pipeline file: what it declares, where it says so, and every mistake with its file, line, column and hint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hayase.core.declarations import (
    DAY,
    GovernorDeclaration,
    OperationDeclaration,
    PipelineDeclaration,
    QueryDeclaration,
    Retention,
    RulesDeclaration,
    StreamDeclaration,
    TableDeclaration,
)
from hayase.core.errors import DeclarationError, Mistake
from hayase.core.pipeline_file import Place, pipeline_text, read_pipeline
from hayase.engine.definition.check import check_file
from hayase.tables.jq import Jq
from hayase.tables.rule_text import rules_in

SHOP = """\
pipeline: shop
home: ./shop-home
streams:
  events:
    schema: time timestamp, uuid string, type string, user_id string, amount double
    time: time
    id: uuid
    slack: 10 seconds
    max_ahead: none
    idle_after: 30 seconds
    retention: {age: 7 days, size: 10 GB}
  ticks:
    schema: |
      t bigint,
      price double
    time: t
    time_unit: ms
    idle_after: off
queries:
  large: select time, user_id, amount from events where amount > 100
  totals: |
    select user_id, count(*) as orders, sum(amount) as spend
    from events group by user_id
  again: {cql: "select * from large"}
"""


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Read a text, or bytes, as the file `shop.yaml` of the current directory."""
    monkeypatch.chdir(tmp_path)

    def reading(text):
        Path("shop.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_pipeline(Path("shop.yaml"))

    return reading


@pytest.fixture
def mistakes(read):
    def found(text):
        with pytest.raises(DeclarationError) as caught:
            read(text)
        return str(caught.value).splitlines()

    return found


def test_a_file_declares_what_the_python_api_declares(read):
    shop = read(SHOP)
    assert shop.declaration == PipelineDeclaration(
        "shop",
        streams=(
            StreamDeclaration(
                "events",
                "time timestamp, uuid string, type string, user_id string, amount double",
                time="time",
                id="uuid",
                slack=10_000_000,
                max_ahead=None,
                idle_after=30_000_000,
                retention=Retention(age=7 * DAY, size=10**10),
            ),
            StreamDeclaration("ticks", "t bigint, price double", time="t", time_unit="ms"),
        ),
        queries=(
            QueryDeclaration("large", "select time, user_id, amount from events where amount > 100"),
            QueryDeclaration(
                "totals",
                "select user_id, count(*) as orders, sum(amount) as spend\nfrom events group by user_id",
            ),
            QueryDeclaration("again", "select * from large"),
        ),
    )
    assert (shop.home, shop.path) == (Path("shop-home"), Path("shop.yaml"))


@pytest.mark.parametrize(
    ("line", "home"),
    [("", "x/shop"), ("home: data", "x/data"), ("home: ../data", "x/../data"), ("home: /data", "/data")],
)
def test_the_home_is_relative_to_the_file_and_by_default_named_like_the_pipeline(tmp_path, line, home):
    (tmp_path / "x").mkdir()
    path = tmp_path / "x" / "pipeline.yaml"
    path.write_text(f"pipeline: shop\n{line}\n")
    assert read_pipeline(path).home == tmp_path / home


def test_names_are_texts_even_where_yaml_sees_something_else(read):
    text = "pipeline: off\nqueries:\n  on: select 1\n  null: select 2\n  no: '3'\n  yes: 4\n"
    declared = read(text).declaration
    assert declared.name == "off"
    assert [(each.name, each.text) for each in declared.queries] == [
        ("on", "select 1"), ("null", "select 2"), ("no", "3"), ("yes", "4")
    ]  # fmt: skip


def test_empty_sections_and_aliases_are_taken(read):
    assert read("pipeline: p\nstreams:\nqueries:\n").declaration == PipelineDeclaration("p")
    stream = "{schema: t timestamp, time: t, retention: "
    text = f"pipeline: p\nstreams:\n  a: {stream}&keep {{age: 1 h}}}}\n  b: {stream}*keep}}\n"
    first, second = read(text).declaration.streams
    assert first.retention == second.retention == Retention(age=3_600_000_000)


def test_windows_line_ends_and_a_byte_order_mark_are_taken(read):
    shop = read(b"\xef\xbb\xbf" + SHOP.replace("\n", "\r\n").encode())
    assert shop.declaration == read(SHOP).declaration
    assert shop.places == read(SHOP).places


def test_places_are_where_texts_begin(read):
    assert read(SHOP).places == {
        ("stream", "events"): Place(4, 3),
        ("schema", "events"): Place(5, 13),
        ("stream", "ticks"): Place(12, 3),
        ("schema", "ticks"): Place(14, 7),
        ("query", "large"): Place(20, 10),
        ("query", "totals"): Place(22, 5),
        ("query", "again"): Place(24, 17),
    }


@pytest.mark.parametrize(
    "written",
    [
        "q: select a, WRONG from b",
        "q: select a,\n     WRONG\n     from b",
        "q:\n    select a,\n\n     WRONG from b",
        "q: 'it''s a, WRONG'",
        "q: 'it''s a,\n\n    WRONG'",
        'q: "\\x41\\u0042\\"\\t a,\\n\\\n   WRONG"',
        "q: |\n    select a,\n      WRONG\n    from b",
        "q: |2\n\n      select a,\n      WRONG\n",
        "q: |- # a comment | with marks\n    select a,\n    WRONG",
        "q: >\n    select a,\n    WRONG\n\n    from b",
        "q: >-\n    select a,\n\n      indented\n      WRONG\n    b",
        "q: &anchor !!str |\n    select a,\n    WRONG",
        "q: &anchor 'a, WRONG'",
        "q: {cql: 'a, WRONG'}",
        "q: größe 早瀬 WRONG",
    ],
)
def test_a_mistake_inside_a_query_is_shown_in_the_file(read, written):
    text = f"pipeline: p\nqueries:\n  {written}\n"
    file = read(text)
    query = file.declaration.queries[0].text
    before = query[: query.index("WRONG")]
    inside = Mistake("wrong", "mend it", line=before.count("\n") + 1, column=len(before) - before.rfind("\n"))
    before = text[: text.index("WRONG")]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    assert file.at("query", "q", inside) == Mistake("wrong", "mend it", "shop.yaml", line, column)


def test_a_mistake_without_a_place_is_shown_where_the_thing_begins(read):
    shop = read(SHOP)
    assert str(shop.at("query", "totals", Mistake("wrong"))) == "shop.yaml:22:5: wrong"
    assert str(shop.at("query", "totals", Mistake("wrong", line=2))) == "shop.yaml:23:5: wrong"
    assert str(shop.at("query", "totals", Mistake("wrong", line=99, column=99))) == "shop.yaml:23:33: wrong"
    assert str(shop.at("stream", "ticks", Mistake("wrong", line=1, column=1))) == "shop.yaml:12:3: wrong"
    assert str(shop.at("query", "other", Mistake("wrong", line=1, column=1))) == "shop.yaml: wrong"


def test_all_mistakes_come_at_once_in_the_order_of_the_file(mistakes):
    assert mistakes("""\
pipelin: shop
streams:
  events:
    schema: |
      time timestamp,
      user-id string,
      amount dubble
    time: time
    slack: 10
    slak: 3 s
    retention: {age: 7 dys, sise: 10 GB}
  Clicks:
    schema: n bigint, t bigint
    time: t
    id: [n]
    slack: 5 s
    slack: 6 s
  _own: {}
  lists: [a]
  half:
    schema: time timestmp
  odd:
    schema: time timestamp
    time: tme
queries:
  clicks: select 1
  empty:
  other: {cq: select}
  2x: select 1
""") == [
        'shop.yaml:1:1: unknown key "pipelin" in the pipeline file; did you mean "pipeline"?',
        'shop.yaml:1:1: the pipeline has no name; add "pipeline: NAME"',
        'shop.yaml:6:11: schema of stream "events": column "user": found "-" where a type should be; '
        "a name that is not only letters, digits and _ must be in backquotes: `my name`",
        'shop.yaml:7:14: schema of stream "events": column "amount": unknown type "dubble"; did you mean "double"?',
        'shop.yaml:9:12: slack of stream "events": "10" is not a duration; '
        'write a number and a unit, like "10 minutes", "500 ms" or "1h 30m"',
        'shop.yaml:10:5: unknown key "slak" in stream "events"; did you mean "slack"?',
        'shop.yaml:11:22: age in retention of stream "events": "7 dys" is not a duration; '
        'write a number and a unit, like "10 minutes", "500 ms" or "1h 30m"',
        'shop.yaml:11:29: unknown key "sise" in retention of stream "events"; did you mean "size"?',
        'shop.yaml:14:11: time column "t" in stream "Clicks" is an integer and has no time_unit; '
        "say what it counts: one of s, ms, us",
        'shop.yaml:15:9: id of stream "Clicks": this must be text, not a list; write it after the colon',
        'shop.yaml:17:5: "slack" stands twice in stream "Clicks"; the first is in line 16; remove one',
        "shop.yaml:18:3: '_own' cannot be the name of a stream; "
        "use letters, digits and _, a letter first, at most 63 of them",
        'shop.yaml:19:10: stream "lists" must be a mapping, not a list; '
        'write below it "schema: ..." and "time: ..."',
        'shop.yaml:20:3: stream "half" has no time; say which column is the event time: "time: COLUMN"',
        'shop.yaml:21:18: schema of stream "half": column "time": unknown type "timestmp"; did you mean "timestamp"?',
        'shop.yaml:24:11: unknown time column "tme" in stream "odd"; did you mean "time"?',
        'shop.yaml:26:3: "clicks" is declared twice; '
        "streams, queries and tables share one name space, whatever the case",
        'shop.yaml:27:9: query "empty": there is no value; write one after the colon, or remove the key',
        'shop.yaml:28:3: query "other" has no text; add "cql: select ..."',
        'shop.yaml:28:11: unknown key "cq" in query "other"; did you mean "cql"?',
        "shop.yaml:29:3: '2x' cannot be the name of a query; "
        "use letters, digits and _, a letter first, at most 63 of them",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", '1: the file is empty; begin with "pipeline: NAME", or let "hayase init DIR" write a first one'),
        ("# only\n", '1: the file is empty; begin with "pipeline: NAME", or let "hayase init DIR" write a first one'),
        (
            "- a\n",
            "1:1: the pipeline file must be a mapping, not a list; "
            'begin with "pipeline: NAME", or let "hayase init DIR" write a first one',
        ),
        ("pipeline: x\n\tstreams:\n", "2:1: a tab cannot stand here; indent with spaces"),
        (
            "pipeline: x\nqueries:\n  q: select 1: 2\n",
            '3:14: a ":" cannot stand here; quote a value that has ": " in it; end the key above with ":"',
        ),
        (
            "pipeline: x\nstreams\n",
            '3:1: a ":" is missing after a key; write "key: value", with a space after the colon',
        ),
        (
            "pipeline: x\nqueries:\n    q: a\n  r: b\n",
            "4:3: the indentation does not fit the lines above; indent the keys of one block alike",
        ),
        (
            "pipeline: x\nhome: 'abc\n",
            "2:7: a quote is not closed; close it, or write the text after |",
        ),
        ("pipeline: x\nqueries: {a: b\n", '2:10: a "{" is not closed; write it like {age: 7 days, size: 10 GB}'),
        ("pipeline: x\n--- \na: b\n", '2:1: the file holds more than one document; remove the "---" between them'),
        ("pipeline: *x\n", "1:11: this alias (*) stands for nothing; put a value that begins with * in quotes"),
        ("pipeline: @x\n", "1:11: this character cannot begin a value; put the value in quotes"),
        (
            "pipeline: !!python/name:os.system x\n",
            "1:11: tags (!) have no meaning in this file; remove it, or put a value that begins with ! in quotes",
        ),
        (
            "%YAML 3.0\n---\na: b\n",
            "1:1: this is not valid YAML: found incompatible YAML document (version 1.* is required)",
        ),
        ("pipeline: x\nhome: a\0b\n", "2:8: the character U+0000 cannot stand in a YAML file; remove it"),
        ('pipeline: "\\UFFFFFFFF"\n', "1:14: an escape in a quoted text is not a character; correct it"),
        (
            'pipeline: "\\ud800"\n',
            "1:11: pipeline: the text holds half a character (a lone surrogate); correct the escape",
        ),
        (b"pipeline: x\nhome: \xff\n", "2: the file is not UTF-8 text; save it as UTF-8"),
        ("pipeline: x\n? [a]\n: b\n", "2:3: a key in the pipeline file is a list; a key is a name"),
        ("pipeline: x\nhome: ~no_such_user/x\n", "2:7: home: there is no such user; write the directory without ~"),
        ("pipeline: x\nqueries: {q: ' '}\n", '2:14: query "q": the text is empty; write a query: select ...'),
        ('pipeline: x\nhome: "\\0"\n', "2:7: home: no directory can have that name; remove the \\0"),
        (
            "pipeline: x\nstreams:\n  s: {schema: 't bigint', time: t, time_unit: [ms]}\n",
            '3:47: time_unit of stream "s": this must be text, not a list; write it after the colon',
        ),
        ("pipeline: x\nhome:\n", "2:6: home: there is no value; write one after the colon, or remove the key"),
        (
            "pipeline: x\nstreams: [a]\n",
            '2:10: streams must be a mapping, not a list; write below it "NAME:" and what the stream is',
        ),
    ],
)
def test_a_file_that_cannot_be_read_says_why(mistakes, text, message):
    assert mistakes(text) == ["shop.yaml:" + message]


def test_files_that_are_not_there_or_not_files_or_too_large_are_refused(tmp_path, monkeypatch, mistakes):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DeclarationError, match=r"^none\.yaml: there is no such file; write one, or let"):
        read_pipeline(Path("none.yaml"))
    Path("folder").mkdir()
    with pytest.raises(DeclarationError, match=r"^folder: this is a directory; give the pipeline file in it"):
        read_pipeline(Path("folder"))
    Path("shop.yaml").touch()
    with pytest.raises(DeclarationError, match=r"^shop\.yaml/x: the file cannot be read: Not a directory"):
        read_pipeline(Path("shop.yaml/x"))
    assert mistakes("#" * 1_000_001) == [
        "shop.yaml: the file is larger than 1 MB, which no pipeline is; is it a file of records?"
    ]


BOMB = "a: &a [x, x, x, x]\n" + "".join(
    f"{key}: &{key} [{', '.join([f'*{last}'] * 10)}]\n" for last, key in zip("abcde", "bcdef")
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "values are nested more than 20 deep"),
        ("a: &a [*a]\n", "this alias (*) stands for a value that contains it"),
        (BOMB, "the file holds more than 50,000 values"),
    ],
    ids=["deep", "recursive", "bomb"],
)
def test_hostile_files_are_refused_at_once(mistakes, text, message):
    (found,) = mistakes(text)
    assert message in found


def test_a_declaration_is_written_as_people_write_it(read):
    text = pipeline_text(read(SHOP).declaration)
    assert (
        text
        == """\
pipeline: shop
streams:
  events:
    schema: time timestamp, uuid string, type string, user_id string, amount double
    time: time
    id: uuid
    slack: 10 s
    max_ahead: none
    idle_after: 30 s
    retention:
      age: 7 days
      size: 10 GB
  ticks:
    schema: t bigint, price double
    time: t
    time_unit: ms
queries:
  large: select time, user_id, amount from events where amount > 100
  totals: |-
    select user_id, count(*) as orders, sum(amount) as spend
    from events group by user_id
  again: select * from large
"""
    )
    assert read(text).declaration == read(SHOP).declaration


def test_streams_that_stages_make_are_not_written():
    made = StreamDeclaration("totals", "time timestamp", time="time", ordered=True)
    with pytest.raises(DeclarationError, match='stream "totals" is made by a stage'):
        pipeline_text(PipelineDeclaration("shop", (made,)))


@pytest.mark.parametrize(
    ("text", "said"), [("0", "0 is not a number of buckets"), ("many", '"many" is not a number of')]
)
def test_a_number_of_buckets_that_makes_no_sense(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"pipeline: shop\nbuckets: {text}\n")
    with pytest.raises(DeclarationError, match=f"pipeline.yaml:2:10: buckets: {said}"):
        read_pipeline(file)


# -- tables ------------------------------------------------------------------------------------------------------------
TABLES = """\
pipeline: p
tables:
  purchases:
    key: user_id
    columns: {total: Counter, last_purchase_time: Register, by_day: MapCounter}
    fold_after: 2 days
    horizon: 30 days
  seen:
    key: [country, user_id]
    columns:
      at: Register
"""


def test_a_table_has_a_key_columns_and_two_ages(read):
    file = read(TABLES)
    columns = (("total", "Counter"), ("last_purchase_time", "Register"), ("by_day", "MapCounter"))
    assert file.declaration.tables == (
        TableDeclaration("purchases", ("user_id",), columns, 2 * DAY, 30 * DAY),
        TableDeclaration("seen", ("country", "user_id"), (("at", "Register"),), DAY, 7 * DAY),
    )
    assert file.places == {
        ("table", "purchases"): Place(3, 3),
        ("column", "purchases.total"): Place(5, 22),
        ("column", "purchases.last_purchase_time"): Place(5, 51),
        ("column", "purchases.by_day"): Place(5, 69),
        ("table", "seen"): Place(8, 3),
        ("column", "seen.at"): Place(11, 11),
    }


def test_a_mistake_of_a_table_or_of_the_type_of_a_column_is_shown_in_the_file(read):
    file = read(TABLES)
    assert str(file.at("column", "seen.at", Mistake("unknown type"))) == "shop.yaml:11:11: unknown type"
    assert str(file.at("table", "seen", Mistake("nothing feeds it"))) == "shop.yaml:8:3: nothing feeds it"
    elsewhere = Mistake("wrong", file="rules.yaml", line=3, column=4)
    assert file.at("table", "seen", elsewhere) == elsewhere


def test_all_mistakes_of_tables_come_at_once(mistakes):
    assert mistakes("""\
pipeline: p
streams:
  events: {schema: t timestamp, time: t}
tables:
  bare:
  empty: {}
  Events: {key: k, columns: {v: Counter}}
  many:
    key: [a, 2b, A, []]
    columns:
      total: Counter
      total: Register
      Total: Register
      a: GSet
      time-of: Register
      kind:
      parts: [Counter]
    fold_after: 3 fortnights
    horizn: 1 day
  ages: {key: k, columns: {v: Counter}, fold_after: 2 days, horizon: 1 day}
  older: {key: k, columns: {v: Counter}, fold_after: 8 days}
  broken: {key: [], columns: {}, fold_after: 8 days, horizon: -1 h}
  listed: {key: k, columns: [Counter]}
  2x: {key: k, columns: {v: Counter}}
""") == [
        'shop.yaml:5:8: table "bare" must be a mapping, not nothing; write below it "key: user_id" and "columns:"',
        'shop.yaml:6:3: table "empty" has no key; say which column it has, or which: '
        '"key: user_id" or "key: [country, user_id]"',
        'shop.yaml:6:3: table "empty" has no columns; add "columns: {total: Counter}"',
        'shop.yaml:7:3: "Events" is declared twice; '
        "streams, queries and tables share one name space, whatever the case",
        "shop.yaml:9:14: table \"many\": '2b' cannot be the name of a column; "
        "use letters, digits and _, a letter first, at most 63 of them",
        'shop.yaml:9:18: "A" stands twice in table "many"; the first is in line 9; '
        "name one of them differently, keys and columns share one name space",
        'shop.yaml:9:21: table "many": this must be text, not a list; write it after the colon',
        'shop.yaml:12:7: "total" stands twice in columns of table "many"; the first is in line 11; remove one',
        'shop.yaml:13:7: "Total" stands twice in table "many"; the first is in line 11; '
        "name one of them differently, keys and columns share one name space",
        'shop.yaml:14:7: "a" stands twice in table "many"; the first is in line 9; '
        "name one of them differently, keys and columns share one name space",
        "shop.yaml:15:7: table \"many\": 'time-of' cannot be the name of a column; "
        "use letters, digits and _, a letter first, at most 63 of them",
        'shop.yaml:16:12: type of column "kind" of table "many": there is no value; '
        "write one after the colon, or remove the key",
        'shop.yaml:17:14: type of column "parts" of table "many": this must be text, not a list; '
        "write it after the colon",
        'shop.yaml:18:17: fold_after of table "many": "3 fortnights" is not a duration; '
        'write a number and a unit, like "10 minutes", "500 ms" or "1h 30m"',
        'shop.yaml:19:5: unknown key "horizn" in table "many"; did you mean "horizon"?',
        'shop.yaml:20:70: the horizon of table "ages" is shorter than fold_after; '
        "repeated events must be recognised at least until their updates are folded",
        'shop.yaml:21:54: the horizon of table "older" is shorter than fold_after; add "horizon: 8 days", or longer; '
        "repeated events must be recognised at least until their updates are folded",
        'shop.yaml:22:17: the key of table "broken" is an empty list; name its parts, like [country, user_id]',
        'shop.yaml:22:30: table "broken" has no columns; add "columns: {total: Counter}"',
        'shop.yaml:22:63: horizon of table "broken": "-1 h" is not a duration; '
        'write a number and a unit, like "10 minutes", "500 ms" or "1h 30m"',
        'shop.yaml:23:29: columns of table "listed" must be a mapping, not a list; '
        'write below it "NAME: TYPE", like "total: Counter"',
        "shop.yaml:24:3: '2x' cannot be the name of a table; "
        "use letters, digits and _, a letter first, at most 63 of them",
    ]  # fmt: skip


def test_more_columns_than_fit_are_refused(mistakes):
    columns = ", ".join(f"c{number}: Counter" for number in range(250))
    text = f"pipeline: p\ntables:\n  t: {{key: k, columns: {{{columns}}}}}\n"
    assert mistakes(text) == ['shop.yaml:3:24: 251 columns of table "t"; at most 250 fit']


# -- rules -------------------------------------------------------------------------------------------------------------
FIGURE_5 = """\
source: stream1
branches:
  - condition: '.type == "view"'
    tables:
      - tableName: user_status
        ops:
          - {key: .user_id, columnName: total_price_of_items, method: incr, paramJq: .item_price}
"""
FIGURE_8 = """\
source: stream1
branches:
  - condition: '.type == "purchase"'
    tables:
      - tableName: user_purchase_status
        ops:
          - {key: .user_id, columnName: last_purchase_time, method: set, paramJq: .time}
          - {key: .user_id, columnName: total, method: incr, paramJq: .amount}
          - {key: .user_id, columnName: by_day, method: add, paramJq: "{(.time[:10]):.amount}"}
"""


@pytest.fixture
def meaning():
    with Jq() as jq:
        yield lambda text: rules_in(text, jq).rules


def indented(text, first, rest):
    return first + text.rstrip().replace("\n", "\n" + rest) + "\n"


def test_rules_are_the_text_of_files_beside_the_pipeline(tmp_path, monkeypatch, meaning):
    monkeypatch.chdir(tmp_path)
    Path("x/more").mkdir(parents=True)
    Path("x/figure_5.yaml").write_text(FIGURE_5)
    Path("x/more/figure_8.yaml").write_text(FIGURE_8)
    Path("x/p.yaml").write_text("pipeline: p\nrules: [figure_5.yaml, more/figure_8.yaml]\n")
    file = read_pipeline(Path("x/p.yaml"))
    five, eight = file.declaration.rules
    assert (five, eight) == (
        RulesDeclaration("x/figure_5.yaml", FIGURE_5),
        RulesDeclaration("x/more/figure_8.yaml", FIGURE_8),
    )
    assert file.places == {
        ("rules", "x/figure_5.yaml"): Place(2, 9),
        ("rules", "x/more/figure_8.yaml"): Place(2, 24),
    }
    assert [update.column for _, update in meaning(five.text).updates()] == ["total_price_of_items"]
    assert [update.column for _, update in meaning(eight.text).updates()] == [
        "last_purchase_time", "total", "by_day"
    ]  # fmt: skip
    Path("x/p.yaml").write_text("rules: figure_5.yaml\npipeline: p\n")
    assert read_pipeline(Path("x/p.yaml")).declaration.rules == (five,)


FLOW = """\
{source: stream1, branches: [{tables: [
{tableName: t, ops: [{key: .k, columnName: c, paramJq: .v}]}]}]}
"""
IN_PLACE = {
    "a mapping": (indented(FIGURE_8, "rules:\n  ", "  "), [FIGURE_8]),
    "behind a comment": (indented(FIGURE_8, "rules: # what\n\n      ", "      ") + "# and now:\n", [FIGURE_8]),
    "a list": (
        "rules:\n" + indented(FIGURE_5, "  - ", "    ") + indented(FIGURE_8, "  - ", "    "),
        [FIGURE_5, FIGURE_8],
    ),
    "not indented": (
        "rules:\n" + indented(FIGURE_5, "- ", "  ") + indented(FIGURE_8, "- ", "  "),
        [FIGURE_5, FIGURE_8],
    ),
    "an anchor": (indented(FIGURE_8, "rules: &these\n  ", "  "), [FIGURE_8]),
    "a tag": (indented(FIGURE_8, "rules: !!map\n  ", "  "), [FIGURE_8]),
    "in braces": (f"rules: {FLOW}", [FLOW]),
    "in brackets": (f"rules: [{FLOW}, {FLOW}]\n", [FLOW, FLOW]),
    "the key in quotes": (indented(FIGURE_8, '"rules":\n  ', "  "), [FIGURE_8]),
}
"""What is written in a pipeline file, and the rules that it means."""


@pytest.mark.parametrize("behind", ["", "queries: {q: select 1}\n"], ids=["last", "between"])
@pytest.mark.parametrize(("written", "alone"), IN_PLACE.values(), ids=IN_PLACE)
def test_rules_that_stand_in_the_file_mean_what_they_mean_in_one_of_their_own(read, meaning, written, alone, behind):
    (rules,) = read(f"# größe 早瀬\npipeline: p\nhome: 'a\u2028b'\n{written}{behind}").declaration.rules
    assert rules.name == "shop.yaml"
    assert meaning(rules.text) == meaning("---\n".join(alone))


@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["unix", "windows"])
@pytest.mark.parametrize("written", [written for written, _ in IN_PLACE.values()], ids=IN_PLACE)
def test_a_mistake_in_rules_that_stand_in_the_file_is_at_its_place_there(read, meaning, written, ends):
    for right, wrong in ((".k,", ".k k,"), ("paramJq: .amount", "paramJq: .amount +"), ("source:", "sauce:")):
        text = f"# größe 早瀬{ends}pipeline: p{ends}" + written.replace(right, wrong).replace("\n", ends)
        if wrong not in text:
            continue
        (rules,) = read(text).declaration.rules
        with pytest.raises(DeclarationError) as caught:
            meaning(rules.text)
        lines = text.split("\n")
        starts = [(at + 1, line.index(wrong) + 1) for at, line in enumerate(lines) if wrong in line]
        found = {(each.line, each.column) for each in caught.value.mistakes}
        for line, column in starts:
            assert any(line == at and column <= beside <= column + len(wrong) for at, beside in found), (starts, found)


def test_files_and_rules_stand_in_one_list_in_their_order(read, meaning, tmp_path):
    (tmp_path / "five.yaml").write_text(FIGURE_5)
    text = "pipeline: p\nrules:\n  - five.yaml\n" + indented(FIGURE_8, "  - ", "    ") + f"  - {FLOW}"
    first, second, third = read(text).declaration.rules
    assert first == RulesDeclaration("five.yaml", FIGURE_5)
    assert second.name == third.name == "shop.yaml"
    assert meaning(second.text) == meaning(FIGURE_8)
    assert meaning(third.text) == meaning(FLOW)


def test_no_rules_are_no_rules(read):
    assert read("pipeline: p\nrules:\n").declaration.rules == ()
    assert read("pipeline: p\nrules: []\n").declaration.rules == ()


def test_all_mistakes_of_rules_come_at_once(mistakes, tmp_path):
    (tmp_path / "latin.yaml").write_bytes(b"source: a\n# caf\xe9\n")
    (tmp_path / "once.yaml").write_text(FIGURE_5)
    (tmp_path / "folder").mkdir()
    (tmp_path / "large.yaml").write_text("#" * 1_000_001)
    assert mistakes("""\
pipeline: p
streams:
  events: &anchor {schema: t timestamp, time: t}
rules:
  - none.yaml
  - folder
  - latin.yaml
  - once.yaml
  - ./once.yaml
  - large.yaml
  - [once.yaml]
  - ""
  - "\\0"
  - source: events
    branches: [*anchor]
tabels: {}
""") == [
        'latin.yaml:2: the file is not UTF-8 text; save it as UTF-8',
        'shop.yaml:5:5: rules "none.yaml": there is no such file; write one; rules begin with source: STREAM',
        'shop.yaml:6:5: rules "folder": this is a directory; give the rule file in it',
        'shop.yaml:9:5: the rules "once.yaml" stand here twice; remove one; each event would count twice',
        'shop.yaml:10:5: rules "large.yaml": the file is larger than 1 MB, which no rule is; is it a file of records?',
        "shop.yaml:11:5: rules: this must be text, not a list; write it after the colon",
        "shop.yaml:12:5: rules: there is no value; write one after the colon, or remove the key",
        "shop.yaml:13:5: rules: no file can have that name; remove the \\0",
        "shop.yaml:15:16: this alias (*) stands for something outside of the rules; "
        "write out here what it stands for there",
        'shop.yaml:16:1: unknown key "tabels" in the pipeline file; did you mean "tables"?',
    ]  # fmt: skip


def test_rules_given_as_an_empty_text_are_no_file(mistakes):
    assert mistakes("pipeline: p\nrules: ''\n") == [
        "shop.yaml:2:8: rules: there is no value; write one after the colon, or remove the key"
    ]


def test_tables_and_rules_are_written_as_people_write_them(read, tmp_path, meaning):
    (tmp_path / "two.yaml").write_text(f"# both\n{FIGURE_5}---\n{FIGURE_8}")
    in_place = "source: later  # in place\nrules:\n  - tables: {seen: {key: [.c, .u], columns: {at: 'null'}}}\n"
    text = TABLES.replace("fold_after: 2 days", "fold_after: 1 day") + "rules:\n  - two.yaml\n"
    declared = read(text + indented(in_place, "  - ", "    ")).declaration
    written = pipeline_text(declared)
    assert (
        written
        == """\
pipeline: p
tables:
  purchases:
    key: user_id
    columns:
      total: Counter
      last_purchase_time: Register
      by_day: MapCounter
    horizon: 30 days
  seen:
    key:
    - country
    - user_id
    columns:
      at: Register
rules:
- source: stream1
  branches:
  - condition: '.type == "view"'
    tables:
    - tableName: user_status
      ops:
      - {key: .user_id, columnName: total_price_of_items, method: incr, paramJq: .item_price}
- source: stream1
  branches:
  - condition: '.type == "purchase"'
    tables:
    - tableName: user_purchase_status
      ops:
      - {key: .user_id, columnName: last_purchase_time, method: set, paramJq: .time}
      - {key: .user_id, columnName: total, method: incr, paramJq: .amount}
      - {key: .user_id, columnName: by_day, method: add, paramJq: "{(.time[:10]):.amount}"}
- source: later
  rules:
  - tables: {seen: {key: [.c, .u], columns: {at: 'null'}}}
"""
    )
    again = read(written).declaration
    assert (again.tables, pipeline_text(again)) == (declared.tables, written)
    (rules,) = again.rules
    assert meaning(rules.text) == meaning("---\n".join(each.text for each in declared.rules))


def test_rules_that_are_no_yaml_are_not_written():
    for text in ("{", "[" * 100_000, '"\\UFFFFFFFF"'):
        with pytest.raises(DeclarationError, match='the rules "x" are not YAML; correct them'):
            pipeline_text(PipelineDeclaration("p", rules=(RulesDeclaration("x", text),)))


JOBS = """
pipeline: site
streams:
  logs: {schema: "time timestamp, line string", time: time}
jobs:
  traffic:
    reads: logs
    every: 2 s
    rounds: 3
    steps:
      - {map: access:parse, schema: "status int, size bigint", key: status, batches: true, attempts: 2}
      - reduce: {hits: count(*), bytes: sum(size)}
        window: 15 minutes
        every: 6 minutes
        writes: totals
"""


def test_jobs_are_read_and_written(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(JOBS)
    (job,) = read_pipeline(tmp_path / "pipeline.yaml").declaration.jobs
    first, second = job.steps
    assert (job.reads, job.every, job.rounds) == (("logs",), 2_000_000, 3)
    assert (first.function, first.directory, first.batches, first.attempts) == ("access:parse", str(tmp_path), True, 2)
    assert (second.aggregates, second.window) == ((("hits", "count(*)"), ("bytes", "sum(size)")), 900_000_000)
    again = tmp_path / "again.yaml"
    again.write_text(pipeline_text(read_pipeline(tmp_path / "pipeline.yaml").declaration))
    assert read_pipeline(again).declaration == read_pipeline(tmp_path / "pipeline.yaml").declaration


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("map: access:parse", "mop: access:parse", 'pipeline.yaml:11:9: step 1 of job "traffic": it is not a step'),
        ("window: 15 minutes", "windows: 15 minutes", 'pipeline.yaml:12:9: step 2 of job "traffic": a reduce has no "windows"'),
        ("every: 2 s", "every: soon", 'pipeline.yaml:6:3: every of job "traffic"'),
        ("reads: logs", "red: logs", 'pipeline.yaml:6:3: job "traffic" has no "red"'),
        ("attempts: 2", "attempts: 0", 'pipeline.yaml:11:9: step 1 of job "traffic": 0 attempts'),
    ],
)  # fmt: skip
def test_mistakes_in_jobs_have_their_place(tmp_path: Path, old: str, new: str, said: str) -> None:
    (tmp_path / "pipeline.yaml").write_text(JOBS.replace(old, new, 1))
    with pytest.raises(DeclarationError) as caught:
        read_pipeline(tmp_path / "pipeline.yaml")
    assert said in str(caught.value)


def test_mistakes_in_steps_that_planning_finds_have_their_place(tmp_path: Path) -> None:
    (tmp_path / "access.py").write_text("def parse(record):\n    yield record\n")
    path = tmp_path / "pipeline.yaml"
    path.write_text(JOBS.replace("sum(size)", "sum(sise)").replace("batches: true", "reads: totls"))
    with pytest.raises(DeclarationError) as caught:
        check_file(read_pipeline(path))
    texts = [str(mistake).removeprefix(f"{tmp_path}/") for mistake in caught.value.mistakes]
    assert [text.partition(" (")[0] for text in texts] == ["pipeline.yaml:11:9: step 1"]
    assert 'unknown stream or group "totls"' in texts[0]
    path.write_text(JOBS.replace("sum(size)", "sum(sise)"))
    with pytest.raises(
        DeclarationError, match=r'pipeline.yaml:12:9: step 2 .*unknown column "sise"; did you mean "size"'
    ):
        check_file(read_pipeline(path))


OPERATIONS = """\
pipeline: shop
streams:
  orders: {schema: "time timestamp, user_id string, amount double", time: time}
  returns: {schema: "time timestamp, user_id string, amount double", time: time}
operations:
  scores:
    reads: [orders, returns]
    function: shop_functions:score
    window: 10
    slide: 5
    key: user_id
    schema: |
      user_id string,
      score double
    takes: batch
    attempts: 5
    pause: 100 ms
    time_limit: 2 s
    memory_limit: 512 MiB
    concurrency: 4
  minutes: {reads: "*s", function: functions/script.py:each, window: 5 minutes, together: true, schema: n bigint}
governor: {policy: als, u: 0.5, length: 20, seconds: 1, window: 30 s, threshold: 0.2}
"""


def test_operations_and_the_governor_are_read_and_written(read, tmp_path):
    declared = read(OPERATIONS).declaration
    where = str(tmp_path)
    assert declared.operations == (
        OperationDeclaration(
            "scores", ("orders", "returns"), "shop_functions:score", where, "user_id string, score double",
            window=10, slide=5, key=("user_id",), takes="batch", attempts=5, pause=100_000, time_limit=2_000_000,
            memory_limit=512 * 2**20, concurrency=4,
        ),
        OperationDeclaration(
            "minutes", ("*s",), "functions/script.py:each", where, "n bigint",
            window=300_000_000, by_time=True, together=True,
        ),
    )  # fmt: skip
    assert declared.governor == GovernorDeclaration("als", (("length", 20), ("u", 0.5)), 1.0, 30.0, 0.2)
    assert read(pipeline_text(declared)).declaration == declared
    assert PipelineDeclaration.from_json(json.loads(json.dumps(declared.as_json()))) == declared


def test_what_operations_do_not_say_is_left_out(read):
    text = """\
pipeline: shop
operations:
  scores:
    reads: orders
    function: shop:score
governor:
  policy: round-robin
"""
    assert pipeline_text(read(text).declaration) == text


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("reads: [orders, returns]", "red: orders", '7:5: unknown key "red" in operation "scores"; did you mean "reads"?'),
        ("reads: [orders, returns]", "red: orders", '6:3: operation "scores" has no reads; name a stream, several, or q*'),
        ("reads: [orders, returns]", "reads: [a-b]", '7:12: "a-b" names no stream of operation "scores"'),
        ("reads: [orders, returns]", "reads: {a: b}", '7:12: reads of operation "scores": this must be text, not a mapping'),
        ("function: shop_functions:score", "function: score", '8:15: "score" names no function; write it like module'),
        ("window: 10", "window: soon", '9:13: window of operation "scores": "soon" is not a window; give a number of'),
        ("window: 10", "window: 3", '10:12: windows of operation "scores" leave records out'),
        ("window: 10", "window: 0", '9:13: a window of operation "scores" of nothing'),
        ("slide: 5", "slide: 5 s", '10:12: windows of operation "scores" last so many records, and do not slide by that'),
        ("slide: 5", "slide:", '10:11: slide of operation "scores": there is no value'),
        ("score double", "score duble", '14:13: schema of operation "scores": column "score": unknown type'),
        ("takes: batch", "takes: rows", '15:12: no function takes "rows"; say records or batch'),
        ("attempts: 5", "attempts: five", '16:15: attempts of operation "scores": "five" is not a whole number'),
        ("pause: 100 ms", "pause: short", '17:12: pause of operation "scores": "short" is not a duration'),
        ("512 MiB", "512", '19:19: memory_limit of operation "scores": "512" is not a size'),
        ("concurrency: 4", "concurrency: 0", '20:18: concurrency of operation "scores" is not positive'),
        ("together: true", "together: perhaps", '21:91: together of operation "minutes": "perhaps" is neither true nor false'),
        ("u: 0.5", "u: half", '22:28: u of the governor: "half" is not a number; write one, like 0.5'),
        ("seconds: 1", "seconds: 0", "22:54: seconds of the governor is not positive"),
        ("window: 30 s", "window: long", '22:65: window of the governor: "long" is not a duration'),
        ("  minutes:", "  orders:", '21:3: "orders" is declared twice'),
        ("  scores:\n", "  scores: yes\n  other:\n", '6:11: operation "scores" must be a mapping, not text'),
    ],
)  # fmt: skip
def test_mistakes_in_operations_have_their_place(mistakes, old, new, said):
    assert OPERATIONS.count(old) == 1
    assert any(line.startswith(f"shop.yaml:{said}") for line in mistakes(OPERATIONS.replace(old, new))), said


def test_all_mistakes_of_an_operation_are_told(mistakes):
    text = (
        OPERATIONS.replace("attempts: 5", "attempts: 0").replace("pause: 100 ms", "pause: x").replace("batch", "rows")
    )
    assert [line.partition(": ")[0] for line in mistakes(text)] == [
        f"shop.yaml:{at}" for at in ("15:12", "16:15", "17:12")
    ]


def test_mistakes_of_the_planner_have_the_place_of_the_field(read):
    file = read(OPERATIONS)
    assert str(file.at("operation", "scores", Mistake("bad", subject="key"))) == "shop.yaml:11:10: bad"
    assert str(file.at("operation", "scores", Mistake("bad", subject="together"))) == "shop.yaml:6:3: bad"
    assert str(file.at("governor", "", Mistake("bad", subject="u"))) == "shop.yaml:22:25: bad"


@pytest.mark.parametrize(
    "secret",
    [
        "root:$6$hunter2:19000:0:99999:7:::\ndaemon:hunter2:19000:::::\n", "password: hunter2\nother: hunter2\n", "hunter2 is text",
        "- hunter2: 1\n- hunter2\n", "[hunter2", "hunter2: hunter2: hunter2", "{a: !hunter2 b}", "&hunter2 a: *hunter",
    ],
)  # fmt: skip
def test_a_file_that_is_something_else_is_not_quoted(tmp_path: Path, secret: str) -> None:
    (tmp_path / "secret").write_text(secret)
    text = "pipeline: p\nstreams: {s: {schema: 'ts timestamp, x bigint', time: ts, id: x}}\n"
    text += "tables: {t: {key: x, columns: {n: Counter}}}\n"
    (tmp_path / "pipeline.yaml").write_text(f"{text}rules: secret\n")
    with pytest.raises(DeclarationError) as raised:
        check_file(read_pipeline(tmp_path / "pipeline.yaml"))
    assert "hunter2" not in str(raised.value)
    with pytest.raises(DeclarationError) as raised:
        read_pipeline(tmp_path / "secret")
    assert "hunter2" not in str(raised.value)
