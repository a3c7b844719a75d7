"""Update rules: the YAML of the paper and its shorter form, mistakes in it, and what rules make of events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from hayase.core.errors import DeclarationError
from hayase.tables.jq import Events, Jq, Limits
from hayase.tables.rule_payloads import Payload, payloads
from hayase.tables.rule_text import read_rules, rules_in
from hayase.tables.rules import Branch, RuleSet, SourceRules, TableRules, Update, resolved

FIGURE_8 = """
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
FIGURE_5 = """
source: stream1
branches:
  - condition: '.type == "view"'
    tables:
      - tableName: user_status
        ops:
          - key: .user_id
            columnName: total_price_of_items
            method: incr
            paramJq: .item_price
"""
TABLES = {
    "user_purchase_status": {"last_purchase_time": ("set",), "total": ("incr",), "by_day": ("add",)},
    "user_status": {"total_price_of_items": ("incr",)},
}


@pytest.fixture(scope="module")
def jq() -> Iterator[Jq]:
    with Jq(Limits(seconds=0.2)) as opened:
        yield opened


def read(text: str, jq: Jq) -> RuleSet:
    return rules_in(dedent(text), jq).rules


def mistakes(text: str, jq: Jq) -> list[str]:
    with pytest.raises(DeclarationError) as caught:
        rules_in(dedent(text), jq)
    return [str(each) for each in caught.value.mistakes]


def test_figure_8_loads_as_it_is(jq: Jq) -> None:
    key = (".user_id",)
    assert read(FIGURE_8, jq) == RuleSet(
        (
            SourceRules(
                "stream1",
                (
                    Branch(
                        '.type == "purchase"',
                        (
                            TableRules(
                                "user_purchase_status",
                                (
                                    Update(0, key, "last_purchase_time", ".time", "set"),
                                    Update(1, key, "total", ".amount", "incr"),
                                    Update(2, key, "by_day", "{(.time[:10]):.amount}", "add"),
                                ),
                            ),
                        ),
                    ),
                ),
            ),
        )
    )


def test_figure_5_loads_as_it_is(jq: Jq) -> None:
    ((table, update),) = read(FIGURE_5, jq).updates()
    assert table == "user_status"
    assert update == Update(0, (".user_id",), "total_price_of_items", ".item_price", "incr")


def test_the_shorter_form_means_the_same(jq: Jq) -> None:
    shorter = """
        source: stream1
        rules:
          - when: .type == "purchase"
            tables:
              user_purchase_status:
                key: .user_id
                columns:
                  last_purchase_time: .time
                  total: {incr: .amount}
                  by_day: "{(.time[:10]):.amount}"
    """
    named = """
        source: stream1
        rules:
          - when: .type == "purchase"
            tables:
              - table: user_purchase_status
                key: .user_id
                ops:
                  - {column: last_purchase_time, value: .time}
                  - {column: total, value: .amount}
                  - {column: by_day, value: "{(.time[:10]):.amount}"}
    """
    whole = read(FIGURE_8, jq)
    assert resolved(read(shorter, jq), TABLES) == resolved(read(named, jq), TABLES) == resolved(whole, TABLES) == whole


def test_several_sources_tables_branches_and_parts_of_a_key(jq: Jq) -> None:
    branch = """
          branches:
            - tables:
                - {tableName: a, ops: [{key: [.country, .user_id], columnName: n, paramJq: 1}]}
                - {tableName: b, ops: [{key: .x, columnName: n, paramJq: 1}, {key: .y, columnName: m, paramJq: .z}]}
            - condition: .late
              tables: [{tableName: a, ops: [{key: [.c, .u], columnName: n, paramJq: "-1"}]}]
    """
    listed = (
        "- source: one"
        + branch.replace("\n          ", "\n  ")
        + "\n- source: two"
        + branch.replace("\n          ", "\n  ")
    )
    documents = (
        "source: one"
        + branch.replace("\n          ", "\n")
        + "\n---\nsource: two"
        + branch.replace("\n          ", "\n")
    )
    rules = rules_in(listed, jq).rules
    assert rules == rules_in(documents, jq).rules == rules_in(f"# two sources\n---\n{documents}", jq).rules
    assert [each.source for each in rules.sources] == ["one", "two"]
    assert [update.number for _, update in rules.updates()] == [*range(8)]
    assert next(rules.updates())[1].key == (".country", ".user_id")
    assert [branch.condition for branch in rules.branches("two")] == [None, ".late"]
    assert [*rules.branches("three")] == []


def test_json_round_trip(jq: Jq) -> None:
    for text in (FIGURE_8, FIGURE_5, FIGURE_8 + "---" + FIGURE_5):
        rules = read(text, jq)
        assert RuleSet.from_json(json.loads(json.dumps(rules.as_json()))) == rules


def test_all_mistakes_at_once_and_where(jq: Jq) -> None:
    text = """
        source: 1stream
        branches:
          - condition: .type = = "x"
            tabels: []
            tables:
              - tableName: t
                ops:
                  - {key: .a, columnName: n, methd: incr, paramJq: .b |}
                  - {columnName: n, paramJq: now}
                  - {key: [], columnName: 9n, paramJq: {a: .b}}
                  - {key: foo, columnName: m, method: ADD}
                  - just text
              - ops: []
          - when: .a
            condition: .b
    """
    assert mistakes(text, jq) == [
        "2:9: '1stream' cannot be the name of a stream; use letters, digits and _, a letter first, at most 63 of them",
        "4:24: the condition: jq: syntax error, unexpected '='; look at what stands right before it",
        '5:5: unknown key "tabels" in a branch; did you mean "tables"?',
        '9:38: unknown key "methd" in an update; did you mean "method"?',
        "9:63: the value: jq: syntax error, unexpected end of file; it ends too early: something must follow, or a bracket "
        "or a quote is not closed",
        '10:13: an update has no "key"; add "key: JQ", here or to the table',
        '10:38: the value: jq\'s "now" is refused here: it reads the clock, and a batch that runs again must give the '
        "same; use the time of the event",
        "11:19: the key is an empty list; write jq programs in it, like [.country, .user_id]",
        "11:35: '9n' cannot be the name of a column; use letters, digits and _, a letter first, at most 63 of them",
        "11:48: the value must be a jq program, not a mapping; put jq that begins with { or [ in quotes",
        '12:13: an update has no "paramJq"; add "paramJq: JQ"',
        '12:19: the key: jq: foo/0 is not defined; a field is .foo, a text "foo" in quotes of its own',
        '12:47: "ADD" cannot be the name of a method; methods are incr, set, add, remove, ...',
        "13:13: an update must be a mapping, not text; write it like {key: .user_id, columnName: total, method: "
        "incr, paramJq: .amount}",
        '14:9: a table has no "tableName"; add "tableName: NAME"',
        '14:14: "ops" must be a list, not an empty list; begin each item with "- "',
        '15:5: a branch has no "tables"; add "tables:" and a list below it',
        '16:5: "condition" and "when" in a branch mean the same; remove one of them',
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", '1:1: there are no rules; begin with "source: STREAM"'),
        ("just text", 'the rules must be a mapping, not text; write "source: STREAM" and "branches:"'),
        ("source: a\nbranches: {}", '"branches" must be a list, not a mapping'),
        ("source: a\nsource: b\nbranches: [{tables: {t: {key: ., columns: {c: .}}}}]", '"source" stands twice'),
        ("source: a\nbranches: [{tables: {t: {columns: {c: .}}}}]", 'the table has "columns" but no "key"'),
        ("source: a\nbranches: [{tables: {t: {key: .k, columns: {c: null}}}}]", "the value is missing"),
        ("source: a\nbranches: [{tables: {t: {key: .k, table: x, columns: {c: .}}}}]", 'unknown key "table"'),
        ("source: a\nbranches: [{tables: {t: {key: .k}}}]", 'a table has no "ops"'),
        ("source: a\nbranches: [1", 'a "[" is not closed'),
        ("source: [a]\nbranches: [{tables: {t: {key: ., columns: {c: .}}}}]", "this must be text, not a list"),
        ("source: a\nbranches: [{tables: {t: {key: ., columns: {c: ''}}}}]", "the jq program is empty"),
    ],
)
def test_wrong_shapes(text: str, expected: str, jq: Jq) -> None:
    assert expected in mistakes(text, jq)[0]


def test_mistakes_in_later_documents_stand_where_they_are(jq: Jq) -> None:
    text = (
        f"{FIGURE_8}---\n# another\nsource: b\nbranches:\n  - condition: |\n      .a\n      | foo\n    tables: [{{}}]\n"
    )
    places = [each.split(": ")[0] for each in mistakes(text, jq)]
    assert places[0] == f"{FIGURE_8.count(chr(10)) + 7}:9"


def test_a_file(tmp_path: Path, jq: Jq) -> None:
    path = tmp_path / "rules.yaml"
    with pytest.raises(DeclarationError, match=r"rules\.yaml: there is no such file"):
        read_rules(path, jq)
    path.write_text(FIGURE_8)
    found = read_rules(path, jq)
    assert found.path == path
    with pytest.raises(DeclarationError) as caught:
        resolved(found.rules, {"user_purchase_status": {"total": ("set",), "by_days": ("add",)}})
    assert [str(found.at(each)).removeprefix(f"{path}:") for each in caught.value.mistakes] == [
        '8:41: unknown column "last_purchase_time" in table "user_purchase_status"; known are: by_days, total',
        '9:56: column "total" of table "user_purchase_status" has no method "incr"; known are: set',
        '10:41: unknown column "by_day" in table "user_purchase_status"; did you mean "by_days"?',
    ]
    with pytest.raises(DeclarationError) as caught:
        resolved(found.rules, {"user_purchases_status": {}})
    assert str(found.at(caught.value.mistakes[0])).startswith(f'{path}:6:20: unknown table "user_purchase_status"; did')
    with pytest.raises(DeclarationError, match="has 2 parts, this one has 1"):
        resolved(found.rules, TABLES, {"user_purchase_status": 2})
    path.write_bytes(b"source: \xff")
    with pytest.raises(DeclarationError, match=r"rules\.yaml:1: the file is not UTF-8"):
        read_rules(path, jq)


PURCHASE = {"type": "purchase", "user_id": "taro", "time": "2017-01-02T10:00:00Z", "amount": 1200}


def test_the_payloads_of_figure_8(jq: Jq) -> None:
    events = [PURCHASE, {**PURCHASE, "type": "view"}, {"user_id": "hanako"}]
    outcome = payloads(read(FIGURE_8, jq), "stream1", Events(events), jq)
    table, key = "user_purchase_status", ("taro",)
    assert outcome.refusals == []
    assert outcome.by_event() == [
        [
            Payload(table, key, "last_purchase_time", "set", "2017-01-02T10:00:00Z", 0),
            Payload(table, key, "total", "incr", 1200, 1),
            Payload(table, key, "by_day", "add", {"2017-01-02": 1200}, 2),
        ],
        [],
        [],
    ]
    assert payloads(read(FIGURE_8, jq), "another", Events(events), jq).by_event() == [[], [], []]


def one(
    jq: Jq, event: object, key: str = ".k", value: str = ".v", condition: str = "true"
) -> tuple[list[object], list[str]]:
    """The (key, parameter, number) of an event, and the reasons for refusals, under a rule beside another that works."""
    tables = tuple(
        TableRules("t", (Update(number, keys, "c", each),))
        for number, keys, each in ((0, (key,), value), (1, ('"all"',), "1"))
    )
    rules = RuleSet(
        (SourceRules("s", (Branch(condition, tables[:1]), Branch(None, (TableRules("t", tables[1].updates),)))),)
    )
    outcome = payloads(rules, "s", Events([{"k": "fit", "v": 0}, event]), jq)
    found = outcome.by_event()
    assert found[1][-1].key == ("all",), "the other rule still sees the event"
    assert all(each.event == 1 for each in outcome.refusals), "and the event beside it is not refused"
    reasons = [f"{each.rule}: {each.reason}" for each in outcome.refusals]
    return [(each.key, each.parameter, each.number) for each in found[1][:-1]], reasons


@pytest.mark.parametrize(
    ("key", "expected"),
    [("x", "x"), (7, 7), (7.0, 7), (-0.0, 0), (2.5, 2.5), (True, True), ("", ""), (2**64, 2**64), (1e16, 10**16)],
)
def test_keys_have_one_form(jq: Jq, key: object, expected: object) -> None:
    for program in (".k", ".k | select(true)"):
        (((found,), _, _),), reasons = one(jq, {"k": key, "v": 1}, key=program)
        assert reasons == []
        assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(("key", "kind"), [(None, "null"), ([1], "an array"), ({"a": 1}, "an object")])
def test_keys_that_are_none(jq: Jq, key: object, kind: str) -> None:
    assert one(jq, {"k": key, "v": 1}) == (
        [],
        [f"update 1 (t.c): the key is {kind}; it must be a text, a number or a boolean"],
    )


def test_an_event_that_breaks_a_rule_is_refused_for_that_rule(jq: Jq) -> None:
    rule = "update 1 (t.c): "
    assert one(jq, {"k": "a", "v": "x"}, value="-.v") == ([], [rule + 'string ("x") cannot be negated'])
    assert one(jq, {"k": [3, 4], "v": 3}, key=".k | .[]? // .") == ([], [rule + "the key gives 2 results, not one"])
    assert one(jq, {"k": "a", "v": "go"}, value='if .v == "go" then last(repeat(1)) else . end') == (
        [],
        [rule + "it takes more than 0.2 s of computing"],
    )


def test_conditions(jq: Jq) -> None:
    event = {"k": "a", "v": 1}
    yes = [(("a",), 1, 0)]
    assert one(jq, event, condition=".v == 1") == (yes, [])
    assert one(jq, event, condition=".v") == (yes, [])
    assert one(jq, event, condition="0") == (yes, [])
    for condition in (".missing", '.k == "fit"', "empty", "null", "select(.v == 0)"):
        assert one(jq, event, condition=condition) == ([], [])
    assert one(jq, event, condition='if .k == "a" then (true, false) else true end') == (
        [],
        ["branch 1: the condition gives 2 results, not one"],
    )
    assert one(jq, event, condition='if .k == "a" then error("no") else true end') == ([], ["branch 1: no"])


def test_no_result_means_no_payload_and_several_are_payloads_of_their_own(jq: Jq) -> None:
    event = {"k": "a", "v": [5, None, 6]}
    assert one(jq, event, value=".v[]?") == ([(("a",), 5, 0), (("a",), None, 65536), (("a",), 6, 131072)], [])
    assert one(jq, event, value=".v[]? | select(. == 7)") == ([], [])
    assert one(jq, event, key='.k | select(. != "a")') == ([], [])
    assert one(jq, event, value="null") == ([(("a",), None, 0)], [])


def test_parts_of_a_key(jq: Jq) -> None:
    rules = RuleSet((SourceRules("s", (Branch(None, (TableRules("t", (Update(0, (".c", ".u"), "n", "1"),)),)),)),))
    outcome = payloads(rules, "s", Events.of_columns({"c": ["jp", None, "fr"], "u": [7, 8, [9]]}, 3), jq)
    assert [[each.key for each in event] for event in outcome.by_event()] == [[("jp", 7)], [], []]
    assert [(each.event, each.program) for each in outcome.refusals] == [(1, ".c"), (2, ".u")]
