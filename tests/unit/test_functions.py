"""Python functions of one's own in queries: how they are declared, where they can be called, and what their failures cost."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import hayase as hy
from hayase.core.errors import DeclarationError
from hayase.core.function_data import declared_function
from hayase.core.pipeline_file import pipeline_text, read_pipeline
from hayase.core.scalar_functions import FUNCTIONS, Computed, shown, with_rows
from hayase.cql.user_functions import UserFunction, function_versions
from hayase.engine.definition.check import check_file
from hayase.testing import Trial, at, trial

SCHEMA = "time timestamp, k string, a bigint, b double, d decimal(10, 2), l array<bigint>"


def slug(title: str) -> str:
    if title == "bad":
        raise ValueError("no such title")
    return title.lower().replace(" ", "-")


def half(x: int) -> int:
    return x / 2  # type: ignore[return-value]


def plus_one(x: pa.Array) -> pa.Array:
    if pc.any(pc.equal(x, 7)).as_py():
        raise ValueError("seven")
    return pc.add(x, 1)


def known(x: int | None) -> str | None:
    return "nothing" if x is None else None if x == 1 else "something"


def next_day(time: datetime) -> datetime:
    return time.replace(day=time.day + 1)


def doubled(x: Decimal) -> Decimal:
    return 2 * x


def constant() -> int:
    return 42


def initcap(text: str, sep: str = " ") -> str:
    return sep.join(word.capitalize() for word in text.split(sep))


def shorter(x: pa.Array) -> pa.Array:
    return x.slice(1)


@pytest.fixture
def t() -> Iterator[Trial]:
    with trial() as made:
        made.stream("s", SCHEMA)
        for function in (slug, half, known, next_day, doubled, constant, initcap):
            made.function(function)
        made.function(plus_one, arguments="x bigint", returns="bigint")
        yield made


def rows_of(t: Trial, text: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The result of a query at the end, or its records, without their times."""
    t.query("q", text)
    t.append("s", [{"time": at(number), **row} for number, row in enumerate(rows)])
    t.finish("s")
    t.run()
    if t.query("q").log.declaration.lifetimes:
        return t.at("q")
    return [{name: value for name, value in row.items() if name != "event_time"} for row in t.rows("q")]


def reasons(t: Trial) -> list[tuple[str, str]]:
    return [(letter["kind"], letter["reason"]) for letter in t.dead_letters()]


# ---------------------------------------------------------------------------------------------------- calls


def test_a_function_in_a_select_list_and_in_where(t: Trial) -> None:
    given = [{"k": "A b"}, {"k": None}, {"k": "C"}]
    assert rows_of(t, "select slug(k) as x, Slug(k || '!') as y from s where slug(k) <> 'c' or k is null", given) == [
        {"x": "a-b", "y": "a-b!"},
        {"x": None, "y": None},
    ]
    assert not t.dead_letters()


def test_a_record_for_which_a_function_raises_is_a_dead_letter_and_its_neighbours_are_not(t: Trial) -> None:
    given = [{"k": "ok"}, {"k": "bad"}, {"k": "OK"}]
    assert rows_of(t, "select slug(k) as x from s", given) == [{"x": "ok"}, {"x": "ok"}]
    [(kind, reason)] = reasons(t)
    assert kind == "expression"
    assert reason.startswith(
        'cannot compute "slug(k)": slug raised ValueError: no such title (test_functions.py, line '
    )
    figures = t.figures("q")
    assert (figures.read, figures.processed, figures.dead) == (3, 2, 1)


def patient(text: str) -> str:
    while text == "hang":
        time.sleep(3600)
    if text == "stop":
        raise StopIteration
    return text


def patient_arrays(x: pa.Array) -> pa.Array:
    while 7 in x.to_pylist():
        pass
    return x


def test_a_record_for_which_a_function_takes_too_long_is_a_dead_letter_and_its_neighbours_are_not(t: Trial) -> None:
    t.function(patient, time_limit="100 ms")
    given = [{"k": text} for text in ("a", "hang", None, "b", "stop", "hang")]
    assert rows_of(t, "select patient(k) as x from s", given) == [{"x": "a"}, {"x": None}, {"x": "b"}]
    overdue, stopped, again = reasons(t)
    assert overdue == again
    assert overdue[0] == "expression"
    assert overdue[1].startswith('cannot compute "patient(k)": patient took more than 100 ms (test_functions.py, line ')
    assert "patient raised StopIteration" in stopped[1]


def test_a_function_on_arrays_that_takes_too_long_loses_the_records_that_make_it_so(t: Trial) -> None:
    t.function(patient_arrays, arguments="x bigint", returns="bigint", time_limit="50 ms")
    given = [{"a": number} for number in (1, 7, 8)]
    assert rows_of(t, "select patient_arrays(a) as x from s", given) == [{"x": 1}, {"x": 8}]
    ((_, reason),) = reasons(t)
    assert "patient_arrays took more than 50 ms (test_functions.py, line " in reason


def test_a_function_that_takes_too_long_inside_of_try_gives_null(t: Trial) -> None:
    t.function(patient, time_limit="50 ms")
    assert rows_of(t, "select try(patient(k)) as x from s", [{"k": "a"}, {"k": "hang"}]) == [{"x": "a"}, {"x": None}]
    assert not t.dead_letters()


def test_a_function_that_takes_too_long_in_another_thread_is_interrupted_too() -> None:
    declared = declared_function("spin", {"function": "test_functions:spin", "time_limit": "50 ms"}, None, spin)
    computed: list[Computed] = []
    thread = Thread(target=lambda: computed.append(UserFunction(declared)([pa.array([1, 2, 3])], 3)))
    thread.start()
    thread.join()
    assert computed[0].values.to_pylist() == [1, None, 3]
    assert list(computed[0].failures) == [1]


def spin(x: int) -> int:
    while x == 2:
        pass
    return x


def test_a_limit_of_time_is_no_part_of_the_version_and_none_of_an_expression(t: Trial) -> None:
    quick, slow = (
        declared_function("patient", {"function": "test_functions:patient", "time_limit": limit}, None, patient)
        for limit in ("1 s", "1 hour")
    )
    assert function_versions([quick]) == function_versions([slow])
    with pytest.raises(DeclarationError, match="an expression has no time_limit"):
        t.function(name="vat", sql="x * 1.1", time_limit="1 s")
    with pytest.raises(DeclarationError, match="time_limit"):
        t.function(patient, time_limit="0 s")


def test_a_result_that_does_not_fit_is_a_dead_letter(t: Trial) -> None:
    assert rows_of(t, "select half(a) as x from s", [{"a": 4}, {"a": 3}, {"a": None}]) == [{"x": 2}, {"x": None}]
    assert reasons(t) == [("expression", 'cannot compute "half(a)": half: its result must be bigint, not 1.5')]


def test_a_function_on_arrays(t: Trial) -> None:
    given = [{"a": number} for number in (1, None, 7, 8, 7)]
    assert rows_of(t, "select plus_one(a) as x from s", given) == [{"x": 2}, {"x": None}, {"x": 9}]
    assert len(reasons(t)) == 2
    assert all("plus_one raised ValueError: seven" in reason for _, reason in reasons(t))


def test_a_function_on_arrays_gives_a_value_for_each_row(t: Trial) -> None:
    t.function(shorter, arguments="x bigint", returns="bigint")
    assert rows_of(t, "select shorter(a) as x from s", [{"a": 1}, {"a": 2}]) == []
    assert all("it took 1 rows and gave 0" in reason for _, reason in reasons(t))


def test_nulls_are_skipped_or_passed(t: Trial) -> None:
    t.function(known, name="knows", nulls="pass")
    given = [{"a": None}, {"a": 1}, {"a": 2}]
    assert rows_of(t, "select known(a) as x, knows(a) as y from s", given) == [
        {"x": None, "y": "nothing"},
        {"x": None, "y": None},
        {"x": "something", "y": "something"},
    ]


def test_types_of_arguments_and_results(t: Trial) -> None:
    given = [{"d": "1.25", "a": 3}]
    text = "select next_day(time) as x, doubled(d) as y, constant() as z, initcap('one two') as i from s"
    [row] = rows_of(t, text, given)
    assert row == {"x": datetime(2026, 1, 2, tzinfo=UTC), "y": Decimal("2.5"), "z": 42, "i": "One Two"}


def test_a_function_may_have_a_name_that_another_system_gives_a_syntax(t: Trial) -> None:
    t.function(initcap, name="predict", arguments="text string, sep string")
    t.function(initcap, name="match", arguments="text string")
    given = [{"k": "one-two"}]
    assert rows_of(t, "select predict(k, '-') as x, match(k) as y from s", given) == [{"x": "One-Two", "y": "One-two"}]


def test_case_decides_for_which_rows_a_function_is_called(t: Trial) -> None:
    given = [{"k": "bad"}, {"k": "A"}]
    text = "select case when k <> 'bad' then slug(k) else 'none' end as x from s"
    assert rows_of(t, text, given) == [{"x": "none"}, {"x": "a"}]
    assert not t.dead_letters()


def test_try_gives_null_where_a_function_raises(t: Trial) -> None:
    given = [{"k": "bad"}, {"k": "A"}]
    assert rows_of(t, "select coalesce(try(slug(k)), 'none') as x from s", given) == [{"x": "none"}, {"x": "a"}]
    assert not t.dead_letters()


def test_a_function_in_a_lambda(t: Trial) -> None:
    given: list[dict[str, Any]] = [{"l": [1, 2]}, {"l": [7]}, {"l": []}]
    text = "select list_transform(l, lambda y: plus_one(y) * 2) as x from s"
    assert rows_of(t, text, given) == [{"x": [4, 6]}, {"x": []}]
    assert len(reasons(t)) == 1


def test_failures_of_functions_beside_those_of_other_expressions(t: Trial) -> None:
    given = [{"k": "bad", "a": 0}, {"k": "x", "a": 2}, {"k": "3", "a": 3}, {"k": "4", "a": 4}]
    assert rows_of(t, "select half(a) as x, cast(slug(k) as bigint) as y from s", given) == [{"x": 2, "y": 4}]
    texts = [reason for _, reason in reasons(t)]
    assert "no such title" in texts[0]
    assert "Could not convert string 'x'" in texts[1]
    assert "half: its result must be bigint, not 1.5" in texts[2]


def test_the_expression_that_failed_is_named_if_several_call_the_function(t: Trial) -> None:
    given = [{"a": 2}, {"a": 4}]
    assert rows_of(t, "select half(a) as x, half(a + 1) as y from s where half(a) > 1", given) == []
    assert [reason.partition(":")[0] for _, reason in reasons(t)] == ['cannot compute "half(a + 1)"']


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select slug(k) as x, count(*) as n from s group by slug(k)", [{"x": "a", "n": 2}, {"x": "b", "n": 1}]),
        ("select slug(k) || '!' as x from s group by slug(k) having slug(slug(k)) = 'a'", [{"x": "a!"}]),
        ("select sum(plus_one(a)) as n, max(slug(k)) as m from s", [{"n": 9, "m": "b"}]),
        ("select k from s group by k having plus_one(sum(a)) > 2", [{"k": "a"}, {"k": "b"}]),
        ("select string_agg(slug(k), ',' order by plus_one(a) desc) as x from s", [{"x": "b,a,a"}]),
        ("select count(*) filter (where slug(k) = 'a') as n from s", [{"n": 2}]),
        ("select k, row_number() over (partition by slug(k) order by plus_one(a)) as n from s",
         [{"k": "A", "n": 1}, {"k": "a", "n": 2}, {"k": "b", "n": 1}]),
        ("select a from s qualify row_number() over (partition by slug(k) order by a desc) = 1", [{"a": 2}, {"a": 3}]),
        ("select a from s order by slug(k) desc, plus_one(a) limit 2", [{"a": 3}, {"a": 1}]),
        ("select distinct slug(k) as x from s", [{"x": "a"}, {"x": "b"}]),
        ("select x.a as one, y.a as other from s x join s y on slug(x.k) = slug(y.k) and x.a < y.a", [{"one": 1, "other": 2}]),
        ("select x.a as one from s x join s y on plus_one(x.a) > plus_one(y.a) + 1", [{"one": 3}]),
        ("select a from s where slug(k) in (select slug(k) from s where a = 3)", [{"a": 3}]),
        ("select (select max(plus_one(a)) from s) as m from s where a = 1", [{"m": 4}]),
    ],
)  # fmt: skip
def test_where_functions_can_be_called(t: Trial, text: str, expected: list[dict[str, Any]]) -> None:
    given = [{"k": "A", "a": 1}, {"k": "a", "a": 2}, {"k": "b", "a": 3}]
    found = rows_of(t, text, given)
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert not t.dead_letters()


def test_a_function_that_raises_after_an_aggregate(t: Trial) -> None:
    rows = [{"k": "x", "a": 5}, {"k": "y", "a": 7}, {"k": "x", "a": 1}]
    assert rows_of(t, "select k, plus_one(sum(a)) as n from s group by k", rows) == [{"k": "x", "n": 7}]
    assert [kind for kind, _ in reasons(t)] == ["expression"]
    assert "plus_one raised ValueError: seven" in reasons(t)[0][1]


def test_results_larger_than_a_value_may_be_are_refused(t: Trial) -> None:
    t.function(large, name="large")
    assert rows_of(t, "select length(large(a)) as x from s", [{"a": 1}, {"a": 1 << 25}]) == [{"x": 1}]
    assert "a value would be larger than 16 MiB" in reasons(t)[0][1]


def large(n: int) -> str:
    return "x" * n


# ---------------------------------------------------------------------------------------------------- declarations


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("lower", {"sql": "x"}, 'function "lower": there is a function lower already; choose another name'),
        ("Median", {"sql": "x"}, 'function "Median": there is a function Median already; choose another name'),
        ("logical_or", {"sql": "x"}, 'function "logical_or": there is an aggregate logical_or already; choose another name'),
        ("case", {"sql": "x"}, 'function "case": case is a word of the query language; choose another name'),
        ("coalesce", {"sql": "x"}, 'function "coalesce": coalesce is a word of the query language; choose another name'),
        ("Tumble", {"sql": "x"}, 'function "Tumble": Tumble is a word of the query language; choose another name'),
        ("no name", {"sql": "x"}, "function \"no name\": 'no name' cannot be the name of a function; use letters, digits and _, "
         "a letter first, at most 63 of them"),
        ("f", {}, 'function "f": it has neither a function nor sql; write function: module:function, or sql: x * 1.1'),
        ("f", {"sql": "x", "function": "a:b"}, 'function "f": an expression has no function; only a Python function has'),
        ("f", {"sql": "x", "nulls": "pass"}, 'function "f": an expression has no nulls; only a Python function has'),
        ("f", {"sql": "x", "arguments": "x int"}, 'function "f": "x int" is not the name of an argument; an expression has names, '
         "without types, as its arguments: x, rate"),
        ("f", {"sql": "x", "arguments": ["x", "X"]}, 'function "f": "x" stands twice in the arguments; remove one'),
        ("f", {"sql": "x +\n y", "arguments": "x"}, '2:2: function "f": "y" is not an argument; its arguments are x; add it to '
         "them"),
        ("f", {"sql": "now() > x"}, '1:1: function "f": now() is not supported; a batch that runs again must give the same rows; '
         "use the columns of the record"),
        ("f", {"function": "json:dumps", "retruns": "string"}, 'function "f": it has no "retruns"; did you mean "returns"?'),
        ("f", {"function": "json"}, 'function "f": "json" names no function; write it like module:function'),
        ("f", {"function": "nosuchmodule:f"}, 'function "f": there is no module nosuchmodule; it must be installed, or lie in the '
         "directory of the pipeline"),
        ("f", {"function": "json:dumps", "arguments": "x foo", "returns": "bar"}, None),
        ("f", {"function": "textwrap:dedent"}, 'function "f": the type of "text" is not known; annotate it with int, float, str, '
         'bool, bytes, datetime, date, time or Decimal, or declare arguments: "text string"'),
        ("f", {"function": "textwrap:dedent", "arguments": "a string, b string", "returns": "string"},
         'function "f": it cannot take 2 arguments: too many positional arguments; declare those it has'),
        ("f", {"function": "textwrap:dedent", "arguments": "a string", "returns": "string", "takes": "both"},
         'function "f": takes is "both"; write values or arrays'),
        ("f", {"function": "textwrap:dedent", "arguments": "a string", "returns": "string", "files": "../x"}, None),
    ],
)  # fmt: skip
def test_mistakes_in_declarations(name: str, data: dict[str, Any], message: str | None) -> None:
    with pytest.raises(DeclarationError) as error:
        declared_function(name, data)
    assert message is None or str(error.value).startswith(message), str(error.value)


def test_functions_from_libraries_have_declared_types() -> None:
    declared = declared_function(
        "dedent", {"function": "textwrap:dedent", "arguments": "t string", "returns": "string"}
    )
    assert (declared.signature, declared.takes, declared.nulls) == ("dedent(t string)", "values", "skip")


def test_mistakes_in_calls(t: Trial) -> None:
    for text, message in {
        "select slug(a) from s": "1:8: there is no 'slug(BIGINT)'; it is slug(title string); write CAST(...) around an "
        "argument of another type",
        "select slug(k, k) from s": "1:8: there is no 'slug(VARCHAR, VARCHAR)'; it is slug(title string); write CAST(...)",
        "select slgu(k) from s": '1:8: unknown function "slgu"; did you mean "slug"?',
        "select k from s where slug(k) = 3": "1:23: a text is compared with a number; write CAST(... AS bigint) around one side",
        "select slug(sum(a)) over () from s": "1:8: slug with OVER is not supported; there are ",
        "select slug(distinct k) from s": None,
    }.items():
        with pytest.raises(DeclarationError) as error:
            t.query("wrong", text)
        assert message is None or str(error.value).startswith(message), str(error.value)


def test_names_are_unique(t: Trial) -> None:
    with pytest.raises(DeclarationError, match='the function "slug" is declared twice'):
        t.function(slug, name="SLUG")
    t.remove("slug")
    t.function(slug, name="SLUG")


def test_a_function_is_declared_by_a_decorator_by_name_and_by_itself(tmp_path: Path) -> None:
    p = hy.Pipeline("p", tmp_path / "home")
    assert p.function(slug) is slug
    assert p.function(name="other", nulls="pass")(slug) is slug
    p.function("textwrap:dedent", arguments="t string", returns="string")
    assert [one.name for one in p.declaration.functions] == ["slug", "other", "dedent"]
    with pytest.raises(DeclarationError, match="a lambda cannot be found by other processes"):
        p.function(lambda x: x)


# ---------------------------------------------------------------------------------------------------- files


FILE = """pipeline: own
home: ./home
streams:
  s: {schema: "time timestamp, k string, a bigint", time: time}
functions:
  tidy: MODULE:tidy
  twice: {function: "MODULE:twice", arguments: [x bigint], returns: bigint, takes: arrays, nulls: pass}
  vat: {sql: "x * 1.1"}
  gross: {sql: "vat(twice(price)) + fee", arguments: [price, fee]}
queries:
  all: select tidy(k) as k, gross(a, 1) as g from s
  totals: select tidy(k) as k, sum(a) as n from s group by tidy(k)
"""
CODE = """
import pyarrow.compute as pc
from MODULE_helper import lower

def tidy(text: str) -> str:
    return lower(text)

def twice(x):
    return pc.multiply(x, 2)
"""


@pytest.fixture
def module(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A module that nobody has loaded before, in a directory with a pipeline file."""
    name = f"functions_{abs(hash(request.node.nodeid))}"
    (tmp_path / f"{name}.py").write_text(CODE.replace("MODULE", name))
    (tmp_path / f"{name}_helper.py").write_text("def lower(text):\n    return text.lower()\n")
    (tmp_path / "pipeline.yaml").write_text(FILE.replace("MODULE", name))
    before = list(sys.path)
    yield name
    sys.path[:] = before
    for loaded in (name, f"{name}_helper"):
        sys.modules.pop(loaded, None)


def test_functions_of_a_pipeline_file(tmp_path: Path, module: str) -> None:
    with trial(file=tmp_path / "pipeline.yaml") as t:
        t.append("s", [{"time": at(0), "k": "A", "a": 5}, {"time": at(1), "k": "a", "a": None}])
        t.finish("s")
        t.run()
        assert [(row["k"], row["g"]) for row in t.rows("all")] == [("a", Decimal("12.0")), ("a", None)]
        assert t.at("totals") == [{"k": "a", "n": 5}]


def test_the_text_of_a_pipeline_has_them(tmp_path: Path, module: str) -> None:
    path = tmp_path / "pipeline.yaml"
    declared = read_pipeline(path).declaration
    assert [one.arguments for one in declared.functions] == ["text string", "x bigint", "x", "price, fee"]
    path.write_text(pipeline_text(declared))
    assert read_pipeline(path).declaration == declared
    assert type(declared).from_json(json.loads(json.dumps(declared.as_json()))) == declared


def test_mistakes_in_a_file_have_their_places(tmp_path: Path, module: str) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        f"""pipeline: own
streams:
  s: {{schema: "time timestamp, k string, a bigint", time: time}}
functions:
  lower: {module}:tidy
  absent: {module}:nosuch
  two: {{function: "{module}:tidy", sql: x}}
  later: {{sql: "x + now()"}}
  odd: {{sql: "x + ", retruns: x}}
  less: {{sql: "vat(x)", arguments: y}}
  vat: {{sql: "x * 1.1"}}
  more: {{sql: "1 + vat(x, y)"}}
  one: {{sql: "other(x)"}}
  other: {{sql: "one(x)"}}
  broken: {{sql: "1 +"}}
queries:
  fine: select vat(a) as x from s
  used: select absent(a) as x from s
  again: select vat() as x from s
"""
    )
    with pytest.raises(DeclarationError) as error:
        check_file(read_pipeline(path, partly=True))
    found = [f"{one.line}:{one.column}: {one.message}" for one in error.value.mistakes]
    assert found == [
        '5:3: function "lower": there is a function lower already',
        f'6:3: function "absent": {module} has no "nosuch"',
        '7:19: function "two": an expression has no function',
        '8:21: function "later": now() is not supported',
        '9:22: unknown key "retruns" in function "odd"',
        '10:20: function "less": "x" is not an argument',
        '15:21: function "broken": syntax error at or near ")"',
        "13:15: the function one calls itself: one -> other -> one",
        "14:17: the function other calls itself: other -> one -> other",
        '12:20: function "more": vat takes 1 argument (x), and is given 2',
        "19:17: vat takes 1 argument (x), and is given none",
    ]


# ---------------------------------------------------------------------------------------------------- SQL of the plan


def test_calls_take_the_row_except_inside_of_try(t: Trial) -> None:
    t.query("q", "select slug(k) as x, constant() as y from s")
    slugs = next(key for key in FUNCTIONS if key.startswith("slug__fn_"))
    constants = next(key for key in FUNCTIONS if key.startswith("constant__fn_"))
    sql = f"{slugs}({slugs} (\"k\")) || '{slugs}(' || try(({slugs}(k))) || {constants}()"
    expected = (
        f"{slugs}_rows(__row, {slugs}_rows(__row, \"k\")) || '{slugs}(' || try(({slugs}(k))) || {constants}_rows(__row)"
    )
    assert with_rows(sql, "__row") == expected
    assert shown(f"{slugs}_rows(x)") == "slug(x)"
    assert with_rows("lower(k)", "__row") == "lower(k)"
