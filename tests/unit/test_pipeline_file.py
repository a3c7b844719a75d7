"""The pipeline file: what it declares, where it says so, and every mistake with its file, line, column and hint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hayase.core.declarations import DAY, PipelineDeclaration, QueryDeclaration, Retention, StreamDeclaration
from hayase.core.errors import DeclarationError, Mistake, UnknownName
from hayase.core.pipeline_file import Place, pipeline_text, read_pipeline
from hayase.core.templates import template
from hayase.core.times import instant

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
        "a name that is not only letters, digits and _ stands in backquotes: `my name`",
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
        'shop.yaml:26:3: "clicks" is declared twice; streams and queries share one name space, whatever the case',
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
        ('pipeline: "\\UFFFFFFFF"\n', "1:14: an escape in a quoted text is no character; correct it"),
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


def test_the_template_is_a_pipeline_with_a_broken_and_a_late_event(tmp_path):
    files = template()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    shop = read_pipeline(tmp_path / "pipeline.yaml")
    assert shop.home == tmp_path / "home"
    assert files[".gitignore"].splitlines()[-1] == "/home/"
    (events,) = shop.declaration.streams
    rows = [json.loads(line) for line in files["events.ndjson"].splitlines()]
    assert len(rows) == 24
    assert all(list(row) == events.arrow_schema.names for row in rows)
    assert len({row["uuid"] for row in rows}) == 24
    assert [row["uuid"] for row in rows if isinstance(row["amount"], str)] == ["e12"]
    latest, late = 0, []
    for row in rows:
        time = instant(row["time"])
        late += [row["uuid"]] if time < latest - events.slack else []
        latest = max(latest, time)
    assert late == ["e17"]


def test_an_unknown_template_is_refused():
    with pytest.raises(UnknownName, match='unknown template "shops"; did you mean "shop"'):
        template("shops")


@pytest.mark.parametrize(("text", "said"), [("0", "0 is no number of buckets"), ("many", '"many" is no number of')])
def test_a_number_of_buckets_that_makes_no_sense(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"pipeline: shop\nbuckets: {text}\n")
    with pytest.raises(DeclarationError, match=f"pipeline.yaml:2:10: buckets: {said}"):
        read_pipeline(file)
