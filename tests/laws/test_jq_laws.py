"""What Hayase evaluates itself is exactly what libjq gives; nothing that is refused hides; processes lose no event."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Any

import orjson
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import jq as libjq
from effort import examples
from hayase.tables.jq import Events, Jq, Refused, Several
from hayase.tables.jq_columns import UNSURE, Values, results
from hayase.tables.jq_numbers import canonical, read
from hayase.tables.jq_refusals import REFUSED, refusals
from hayase.tables.jq_syntax import parsed

NAMES = ["a", "b", "env", "x y", "and", "é"]
whole = st.one_of(
    st.integers(-3, 12),
    st.sampled_from([0, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 10**15, 10**15 - 1, 10**16]),
)
fractions = st.one_of(
    st.sampled_from([0.0, -0.0, 0.1, 0.5, 1.0, 3.0, -2.5, 1e15, 1e16, 1e22, 1e23, 1.5e300, 1e-7, 0.30000000000000004]),
    st.floats(allow_nan=False, allow_infinity=False),
)
texts = st.one_of(
    st.sampled_from(["", "a", "b", "2017-01-01T10:00:00Z", "é😀x", '\t\n"\\']), st.text("ab\0é😀", max_size=5)
)
scalars = st.one_of(st.none(), st.booleans(), whole, fractions, texts)
documents = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)),
    max_leaves=8,
)
objects = st.one_of(
    st.dictionaries(st.sampled_from(NAMES), documents, max_size=5),
    st.fixed_dictionaries({"a": scalars, "b": scalars}),
    st.fixed_dictionaries({"a": texts, "b": whole, "x y": fractions}),
    st.fixed_dictionaries({"a": whole, "b": whole}),
)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


@st.composite
def paths(draw: st.DrawFn) -> str:
    program = draw(st.sampled_from([".", ".a", ".b", ".and", '."x y"', '.["é"]', ".env"]))
    for _ in range(draw(st.integers(0, 2))):
        program += draw(
            st.sampled_from([".a", ".b", '["x y"]', '."a"', ".[0]", "[0]", "[-1]", "[1:]", "[:2]", "[:10]", "[-2:-1]"])
        )
    return program


literals = st.one_of(
    st.sampled_from(
        ["null", "true", "false", "1.0", "1.50", "0.1", "1e2", "9007199254740993", "-1", "1e400", ".5", "1."]
    ),
    whole.map(str),
    texts.filter(lambda text: "\0" not in text).map(quoted),
)
leaves = st.one_of(paths(), paths(), literals)
comparing = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
computing = st.sampled_from(["+", "-", "*", "/"])
joining = st.sampled_from(["and", "or", "//", "|", ","])
keys = st.sampled_from(["a", "env", "if", '"x y"', "(.a)", "(.a[:2])", '"\\(.b)"', '("k")', "(1)", "$__loc__"])


def objects_of(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.lists(st.tuples(keys, inner), max_size=2)
    return pairs.map(lambda found: "{" + ", ".join(f"{name}: {each}" for name, each in found) + "}")


def texts_of(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(inner, inner).map(lambda parts: f'"<\\({parts[0]})-\\({parts[1]})\\n>"')


numeric = st.sampled_from([".a", ".b", '."x y"', "2", "0.1", "9007199254740991", "1e15"])
conditions = st.one_of(
    st.tuples(paths(), comparing, literals).map(" ".join), st.tuples(numeric, comparing, numeric).map(" ".join), paths()
)
simple = st.one_of(
    st.tuples(numeric, computing, numeric).map(" ".join),
    st.tuples(numeric, computing, numeric, comparing, numeric).map(" ".join),
    st.tuples(conditions, joining, conditions, joining, conditions).map(" ".join),
    st.tuples(leaves, comparing, leaves).map(" ".join),
    st.tuples(paths(), comparing, literals).map(" ".join),
    st.tuples(leaves, computing, leaves).map(" ".join),
    objects_of(leaves),
    texts_of(leaves),
    leaves,
)


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    sign = st.one_of(comparing, computing, joining, joining)
    return st.one_of(
        st.tuples(inner, sign, inner).map(" ".join),
        st.tuples(inner, sign, inner).map(lambda parts: f"({parts[0]}) {parts[1]} ({parts[2]})"),
        st.sampled_from(["({}) | not", "({}) | tostring", "-{}", "({})[:3]", "({}).a", "[{}]"]).flatmap(
            lambda shape: inner.map(shape.format)
        ),
        st.tuples(inner, inner).map(lambda parts: f"[{', '.join(parts)}]"),
        objects_of(st.one_of(inner, inner.map("({})".format))),
        st.sampled_from(["{a, b}", '{"x y", a: 1,}', "{and}", "[]", "{}"]),
        texts_of(inner),
        st.tuples(inner, inner, inner).map(lambda parts: f"if {parts[0]} then {parts[1]} else {parts[2]} end"),
        st.tuples(inner, inner).map(lambda parts: f"if {parts[0]} then {parts[1]} end"),
    )


programs = st.one_of(simple, larger(simple), larger(larger(simple)))
PIECES = """. .a .b [ ] { } ( ) : , | and or not == < + - * / // ? 1 0 -1 .5 1. 1e2 if then else end a tostring
    "x" "\\( )" " # \\ .. $x @text as def null reduce ;"""
soup = st.lists(st.sampled_from([*PIECES.split(), "\n"]), max_size=8).map(" ".join)


@lru_cache(maxsize=64)
def wrapped(program: str) -> Any:
    return libjq.compile(f"({program}\n\n)|tojson")


def judged(program: str, document: Any) -> Any:
    """What libjq gives: its results as values, or None if it fails."""
    try:
        return [read(text) for text in wrapped(program).input_text(json.dumps(document)).all()]
    except ValueError:
        return None


def typed(value: Any) -> Any:
    """A value that is equal only to one of the same types."""
    if isinstance(value, dict):
        return {key: typed(each) for key, each in value.items()}
    if isinstance(value, list):
        return [typed(each) for each in value]
    return type(value).__name__, value


@settings(max_examples=examples(350))
@given(programs, st.lists(st.one_of(objects, documents), min_size=1, max_size=4))
@example(".a == 100000000000000000000000", [{"a": 1e23}])
@example(".a + 1 == 9007199254740993", [{"a": 2**53 - 1}])
@example('"\\(if .a then 1.50 else .b end)"', [{"a": 1, "b": 0.1}])
@example(".a * -1", [{"a": 0}, {"a": -0.0}, {"a": 2**53 + 1}])
def test_known_shapes_give_what_libjq_gives(program: str, given_documents: list[Any]) -> None:
    node = parsed(program)
    assume(node is not None)
    assert node is not None
    libjq.compile(program)
    for document, found in zip(given_documents, results(node, Values(given_documents)), strict=True):
        if found is not UNSURE:
            expected = judged(program, document)
            assert expected is not None, "libjq fails"
            assert typed([found]) == typed(expected)


SAMPLES: list[Any] = [
    *(None, False, True, 0, 1, -1, 2, 10**15 - 1, 10**15, 2**53 - 1, 2**53, 2**53 + 1, -(2**53), 10**16, 10**23, 2**63),
    *(-0.0, 0.0, 0.1, 0.5, 2.0, -2.5, 1e15, 1e16, 9007199254740992.0, 1e23, 1.5e300, 5e-324),
    *("", "a", "b", "é😀", "2017-01-01T10:00:00Z", [], [1], [None, "x"], {}, {"a": 1}, {"c": [1, 2]}),
]
ONE = """.a[0];.a[-1];.a[1];.a[-2];.a[:1];.a[-1:];.a[1:3];.a.c;[.a];{b:.a}
    {(.a):1};{("x"):.a,(.a):2};.a//7;7//.a;.a.c//7;.a.c=="x";.a=="a";.a!="a"
    .a<1;.a>=0.5;.a==9007199254740993;.a<=1e23;.a and .a.c;.a or .a.c;.a.c and .a;.a.c or 1;.a+1;.a-1;.a*-1;.a/0;1/.a
    [.a,.a.c];{a:.a.c};{a:{b:.a}};(.a*1)==.a;(.a+0)<.a;.a+1==9007199254740992
    .a|.c;.a|not;(.a|not)|not;.a|tostring;-.a;-.a==.a;-.a|tostring;-.a*1;"\\(-.a)";-.a+.a;-(.a|.c);"<\\(.a)>";"\\(.a/3)"
    .a*2|tostring;.a-.a|tostring;.a|tostring|.[:2];{("\\(.a)"):1};if .a then .a.c else .a end;if .a.c then 1 end
    if .a==1 then "x" elif .a=="a" then .a else .a|tostring end;[.a|tostring];[.a,1|tostring|not];"\\(.a // "none")"
    .a==(-.a|tostring)"""
TWO = [f".a{sign}.b" for sign in ("==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", " and ", " or ", "//")]


@pytest.mark.parametrize("program", [each.strip() for each in ONE.replace("\n", ";").split(";")] + TWO)
def test_every_shape_on_every_kind_of_value(program: str) -> None:
    node = parsed(program)
    assert node is not None
    seconds = SAMPLES if ".b" in program else [None]
    rows = [{"a": first, "b": second} for first in SAMPLES for second in seconds]
    found = results(node, Events.of_columns({name: [row[name] for row in rows] for name in ("a", "b")}, len(rows)))
    assert typed([*found]) == typed([*results(node, Values(rows))])
    for row, value in zip(rows, found, strict=True):
        if value is not UNSURE:
            expected = judged(program, row)
            assert expected is not None, row
            assert typed([value]) == typed(expected), row


@given(
    st.lists(st.one_of(fractions, st.floats(-1e6, 1e6), st.decimals(-(10**6), 10**6, places=3).map(float)), min_size=1)
)
def test_numbers_are_written_as_libjq_writes_them(numbers: list[float]) -> None:
    for program in (".a|tostring", '"\\(.a * 1)"', '"\\(.a / 3)"', "-.a|tostring"):
        node = parsed(program)
        assert node is not None
        rows = [{"a": number} for number in numbers]
        for row, text in zip(rows, results(node, Values(rows)), strict=True):
            assert text is UNSURE or [text] == judged(program, row)


@settings(max_examples=examples(400))
@given(soup, st.lists(objects, min_size=1, max_size=2))
def test_whatever_is_recognised_is_valid_jq(program: str, given_documents: list[Any]) -> None:
    node = parsed(program)
    if node is None:
        return
    libjq.compile(program)
    for document, found in zip(given_documents, results(node, Values(given_documents)), strict=True):
        if found is not UNSURE:
            assert typed([found]) == typed(judged(program, document))


@given(st.lists(objects, min_size=1, max_size=5))
def test_common_shapes_on_common_values_are_not_left_to_libjq(given_documents: list[Any]) -> None:
    fitting = [{**each, "time": "2017-01-01T10:00:00Z", "amount": 3, "user": {"id": 7}} for each in given_documents]
    for program in (
        '.user.id == 7 and .missing != "x"',
        "{(.time[:10]): .amount}",
        ".amount * 2",
        "[.amount, .user.id]",
    ):
        node = parsed(program)
        assert node is not None
        assert UNSURE not in results(node, Values(fitting))


@given(st.lists(st.one_of(objects, documents), max_size=5), st.data())
def test_columns_are_documents(given_documents: list[Any], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.fixed_dictionaries({"a": documents, "b": documents}), max_size=5))
    columns = Events.of_columns({name: [row[name] for row in rows] for name in ("a", "b")}, len(rows))
    chosen = data.draw(st.lists(st.integers(0, max(len(rows) - 1, 0)), max_size=4)) if rows else []
    for program in (".a", ".missing", ".", "{a, c: .b}", ".a == .b"):
        node = parsed(program)
        assert node is not None
        whole_ones = Events(rows)
        assert typed([*results(node, columns)]) == typed([*results(node, whole_ones)])
        assert typed([*results(node, columns.take(chosen))]) == typed([*results(node, whole_ones.take(chosen))])


@pytest.fixture(scope="module")
def jq() -> Iterator[Jq]:
    with Jq() as opened:
        yield opened


@settings(max_examples=examples(75))
@given(program=programs, given_documents=st.lists(st.one_of(objects, documents), max_size=6))
def test_with_and_without_the_known_shapes_the_results_are_the_same(
    jq: Jq, program: str, given_documents: list[Any]
) -> None:
    assume(not jq.mistakes(program))
    by_libjq = Jq(known_shapes=False)
    by_libjq._process = jq._process
    events = Events(given_documents)
    found, expected = jq.evaluate(program, events), by_libjq.evaluate(program, events)
    assert typed([*found]) == typed([*expected])
    for document, value in zip(given_documents, expected, strict=True):
        outputs = judged(program, document)
        if outputs is None:
            assert isinstance(value, Refused)
        else:
            assert typed([*value.values] if isinstance(value, Several) else [value]) == typed(outputs)


@given(documents)
def test_numbers_have_one_form(value: Any) -> None:
    assert typed(read(orjson.dumps(value))) == typed(canonical(value))


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30))
def test_decimals_are_exact(value: Decimal) -> None:
    assume(len(value.as_tuple().digits) < 40 and value.adjusted() > -50)
    form = canonical(value)
    assert (Decimal(repr(form)) if isinstance(form, float) else Decimal(form)) == value
    assert typed(read(str(value))) == typed(form)


REACHING = {
    "env": "env|type",
    "input": "try input catch 1",
    "now": "now",
    "halt": "halt",
    "debug": "debug",
    "input_filename": "input_filename",
    "$ENV": "$ENV|type",
}
harmless = st.sampled_from(
    [
        '"{0}"',
        ".{0}",
        '."{0}"',
        "{{{0}: 1}}",
        "{{{0}}}",
        "1 # {0}",
        "1 # x \\\n{0}",
        '{{"{0}": 2}}',
        '"\\\\({0})"',
        ". as {{{0}: $x}} | $x",
    ]
)
harmful = st.sampled_from(
    [
        *("{0}", "[{0}]", '"\\({0})"', "{{a: {0}}}", "{{({0}): 1}}", '."\\({0})"', '"\\("\\({0})")"', "1, {0}"),
        *("# x\n{0}", "1 # x \\\\\n| {0}", "{{a: 1, b: {0}}}", "def f: {0}; f", ". as $x | {0}", "[1,{0}]"),
        *('@text "\\({0})"', "{{a: (1, {0})}}", "{{a: [1, {0}]}}", ".a[{0}]?", "try error({0}) catch ."),
    ]
)


@given(harmless, st.sampled_from([name for name in REACHING if name[0] != "$"]))
def test_names_of_fields_and_texts_are_not_refused(shape: str, name: str) -> None:
    program = shape.format(name)
    libjq.compile(program)
    assert refusals(program) == []


@given(harmful, st.sampled_from([*REACHING]))
def test_calls_are_refused_wherever_they_stand(shape: str, name: str) -> None:
    program = shape.format(name)
    libjq.compile(program)
    assert [name in each.message for each in refusals(program)] == [True]


# What may stand around an expression, as often as one likes: `{0}` is a place for a whole one, `{k}` for a name that is not a call.
AROUND = [
    "({0})",
    "[{0}]",
    '"a\\({0})b"',
    "{{a: ({0})}}",
    "{{({0} | tostring): 1}}",
    "{{a: if . then 1, {0} else 2 end, {k}}}",
    "{{a: if {0} then 1 elif 2, {0} then 3 end}}",
    "{{{k}, a: [{0}, 1], {k}: 2}}",
    "if . then {0} else 1 end",
    "if {0} then {{{k}: 1}} else 2, 3 end",
    "def f: {0}; f",
    "def f(g): g; f({0})",
    "def f($x; g): {0}; f(1; {0})",
    ". as {{{k}: $x}} | {0}",
    ". as [$x, {{b: $y}}] ?// $x | {0}",
    '. as {{"a\\({0})": $x}} | 1',
    "reduce ({0}) as $x (0; . + 1)",
    "reduce range(2) as $x ({0}; {0})",
    "foreach .[]? as [$x] (0; {0}; 1)",
    "label $l | {0}, break $l",
    "try ({0}) catch .",
    "try error(1) catch ({0})",
    "({0})? // 1",
    "1 as $x | 2, {0}",
    '@base64 "x\\({0})"',
    '{{@json "a\\({0})": 1}}',
    ".a[{0}]?",
    ".[{0}:]?",
    ".[1:({0})]?",
    '."a\\({0})"?',
    "-({0})",
    "1 + ({0})",
    "({0}) and true",
    ".a |= ({0})",
    "limit(1; {0})",
    "{{a: {{b: [{{c: ({0})}}]}}}}",
    "# {k}\n{0}",
    "[.[]? | {0}]",
    "{{a: 1 | ({0}), {k}: {{{k}}}}}",
    "1 as $v | {{$v, a: ({0})}}",
]
CALLS = {
    "halt_error": "halt_error",
    "debug": "debug(1)",
    "strflocaltime": 'strflocaltime("%H")',
    "import": None,
    "include": None,
    "module": None,
    "$__prog_args": None,
}


@st.composite
def programs(draw: st.DrawFn, core: str) -> str:
    """A program around an expression."""
    program = core
    for _ in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from([each for each in REFUSED if each.isidentifier()]))
        program = draw(st.sampled_from(AROUND)).format(program, k=name)
    return program


@settings(max_examples=examples(150))
@given(st.data())
def test_programs_are_refused_exactly_for_what_they_call(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([each for each in REFUSED if CALLS.get(each, each)]))
    harmless = data.draw(programs(".length"))
    libjq.compile(harmless)
    assert refusals(harmless) == []
    harmful = data.draw(programs(CALLS.get(name) or name))
    libjq.compile(harmful)
    found = refusals(harmful)
    assert found
    for each in found:
        assert f'"{name}"' in each.message
        line = harmful.split("\n")[(each.line or 1) - 1]
        assert line[(each.column or 1) - 1 :].startswith(name)
