"""jq for rules: what is refused, what libjq does in its process, and what happens to it there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psutil
import pytest

import jq as libjq
from hayase.core.errors import EnvironmentUnfit
from hayase.core.frames import readable
from hayase.tables import jq_process
from hayase.tables.jq import Events, Jq, Limits, Refused, Several
from hayase.tables.jq_child import GROUP, depth
from hayase.tables.jq_refusals import REFUSED, refusals
from hayase.tables.jq_syntax import parsed
from hayase.tables.jq_tokens import tokens

QUICK = Limits(seconds=0.2, memory=256 << 20, results=10, size=10_000)


@pytest.fixture(scope="module")
def jq() -> Iterator[Jq]:
    with Jq(QUICK) as opened:
        yield opened


def texts(program: str) -> list[str]:
    return [token.text for token in tokens(program)]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (".a.b[0]", [".a", ".b", "[", "0", "]"]),
        ("..a", ["..", "a"]),
        (".5.a 1.e3", [".5", ".a", "1.e3"]),
        (".a?//1", [".a", "?//", "1"]),
        ("$__loc__ $ENV.x", ["$__loc__", "$ENV", ".x"]),
        ("a::b @base64", ["a::b", "@base64"]),
        (". # env \\\n still\n|.", [".", "|", "."]),
        (". # env \\\\\n|.", [".", "|", "."]),
        (
            '"a\\(.b + "c\\(1)")d\\"e"',
            ['"', "a", "\\(", ".b", "+", '"', "c", "\\(", "1", ")", '"', ")", "d", '\\"', "e", '"'],
        ),
    ],
)
def test_tokens(program: str, expected: list[str]) -> None:
    assert texts(program) == expected


@pytest.mark.parametrize(
    "program",
    [
        *("env", "$ENV", "$ENV.HOME", "input", "[inputs]", "debug", "debug(1)", "stderr", "input_filename", "now"),
        *("halt", '"x" | halt_error', "localtime", 'strflocaltime("%H")', "input_line_number", '"m" | modulemeta'),
        *('import "a" as a; .', 'include "a"; .', "get_search_list", '"\\(env)"', "{a: env}", "{(env|tostring): 1}"),
        *(
            "{$ENV}",
            '."\\(now)"',
            "def f: input; f",
            "{a: 1 | env}",
            '{"a\\(now)": 1}',
            "[.[] | now]",
            'module {"a": 1}; .',
        ),
    ],
)
def test_what_reaches_outside_is_refused_by_name(program: str) -> None:
    found = refusals(program)
    assert len(found) == 1
    assert "is refused here" in found[0].message
    assert program[(found[0].column or 0) - 1 :].startswith(found[0].message.split('"')[1])


@pytest.mark.parametrize(
    "program",
    [
        *(
            ".env",
            ".input.now",
            '."debug"',
            '.["halt"]',
            "{env: 1, now: 2}",
            "{env}",
            "{input, debug}",
            "# now\n.",
            '"now"',
        ),
        *(
            "$__loc__",
            'getpath(["env"])',
            "limit(3; repeat(1))",
            "[range(10)]",
            "recurse",
            "mktime",
            "todate",
        ),
        *(
            ". as {env: $x} | $x",
            "{import: 1}",
            "{a: {now: 1}}",
            "reduce .[] as $now (0; . + $now)",
            '{"env": 1}',
            ".a.now?",
        ),
    ],
)
def test_what_only_looks_like_it_is_not(program: str, jq: Jq) -> None:
    assert refusals(program) == []
    assert jq.mistakes(program) == []


@pytest.mark.parametrize(
    "program",
    ["{a: if true then 1, now else 2 end}", "{a: if true then 1, env else 2 end, now}", "def now: 1; 2", "def f(env): 1; f(2)",
     "$__prog_args", "$ ENV", "{a: if . then if . then 1, halt else 2 end end}", "{a: if . then 1, debug}", "builtins"],
)  # fmt: skip
def test_what_hides_behind_a_comma_or_a_definition_is_refused(program: str) -> None:
    assert len(refusals(program)) == 1


PURE = """
IN INDEX JOIN abs acos acosh add all any arrays ascii_downcase ascii_upcase asin asinh atan atan2 atanh booleans bsearch
capture cbrt ceil combinations contains copysign cos cosh del delpaths drem empty endswith erf erfc error exp exp10 exp2
explode expm1 fabs fdim finites first flatten floor fma fmax fmin fmod format frexp from_entries fromdate
fromdateiso8601 fromjson fromstream gamma getpath gmtime group_by gsub has hypot implode in index indices infinite
inside isempty isfinite isinfinite isnan isnormal iterables j0 j1 jn join keys keys_unsorted last ldexp length lgamma
lgamma_r limit log log10 log1p log2 logb ltrim ltrimstr map map_values match max max_by min min_by mktime modf nan
nearbyint nextafter nexttoward normals not nth nulls numbers objects path paths pick pow range recurse remainder repeat
reverse rindex rint round rtrim rtrimstr scalars scalb scalbln scan select setpath significand sin sinh skip sort
sort_by split splits sqrt startswith strftime strings strptime sub tan tanh test tgamma to_entries toboolean todate
todateiso8601 tojson tonumber tostream tostring transpose trim trimstr trunc truncate_stream type unique unique_by until
utf8bytelength values walk while with_entries y0 y1 yn
"""


def test_every_builtin_of_jq_is_refused_or_known_to_depend_on_its_input_only() -> None:
    """A newer jq may bring others: look at each, and refuse it or add it here."""
    known = set(libjq.compile("builtins").input_value(None).first())
    others = {each.split("/")[0] for each in known} - {*REFUSED}
    assert others == set(PURE.split())
    words = {"import", "include", "module"}
    assert {each for each in REFUSED if each[0] != "$"} <= {each.split("/")[0] for each in known} | words


def test_hostile_texts_are_refused_before_libjq_sees_them() -> None:
    assert "longer than" in refusals("." * 10_001)[0].message
    assert "deep" in refusals("(" * 200 + "." + ")" * 200)[0].message
    assert "U+0000" in refusals("1\0env")[0].message
    assert refusals("1 |\n \ud800")[0].line == 2


def test_mistakes_say_where(jq: Jq) -> None:
    (mistake,) = jq.mistakes('.a\n| "é" + foo')
    assert (mistake.message, mistake.line, mistake.column) == ("jq: foo/0 is not defined", 2, 9)
    assert mistake.hint == 'a field is .foo, a text "foo" in quotes of its own'
    assert "syntax error" in jq.mistakes(".a ==")[0].message
    assert "empty" in jq.mistakes("  ")[0].message
    for slice_ in (".a.[:1]", ".a.[1:]", ".[0].[1:2]"):  # which jq does not know, though it knows .a.[1]
        assert "syntax error" in jq.mistakes(slice_)[0].message
    assert jq.mistakes("1 # the end \\") == []


@pytest.mark.parametrize(
    "program",
    [
        *(
            ".items[]",
            ".a?",
            "..",
            ".[.a]",
            "@base64",
            "1 + 2",
            "{(1): 2}",
            ".a == .b == .c",
            ".a, .b",
            "1e400",
            "-0.0",
        ),
        *(
            "select(.a)",
            "not(1)",
            ".[1.5]",
            "$x",
            "[.a,]",
            "{1: 2}",
            ".a as $x | $x",
            '."\\(.a)"',
            "0.12345678901234567890",
        ),
        *('"\\ud800"', '"\\q"', "if .a then .b", "", "{a b}", ".a . b", "a::b"),
    ],
)
def test_what_is_in_doubt_is_left_to_libjq(program: str) -> None:
    assert parsed(program) is None


def test_no_process_is_started_for_known_shapes() -> None:
    with Jq() as unused:
        assert unused.mistakes(".a.b == 1") == []
        assert unused.evaluate(".a[:2]", Events([{"a": "xyz"}, {}])) == ["xy", None]
        assert unused.starts == 0


def test_digits_survive(jq: Jq) -> None:
    events = Events([{"a": 2**63 + 1}, {"a": 9007199254740993}, {"a": Decimal("0.1234567890123456789")}, {"a": 3.0}])
    expected = [2**63 + 1, 9007199254740993, Decimal("0.1234567890123456789"), 3]
    assert jq.evaluate(".a", events) == expected
    assert jq.evaluate(".a | select(true)", events) == expected


def test_what_is_no_json_is_refused_where_libjq_must_read_it(jq: Jq) -> None:
    events = Events([{"a": {1}}, {"a": 1}, {"a": "\ud800"}])
    found = jq.evaluate(".a | select(true)", events)
    assert isinstance(found[0], Refused)
    assert found[1] == 1
    assert isinstance(found[2], Refused)
    assert jq.evaluate(".a | length", Events([{"a": "x" * 10_000}])) == [
        Refused("the event is larger than 10,000 bytes")
    ]
    assert jq.evaluate(".a | length", Events.of_columns({"a": [float("nan"), 2.5]}, 2)) == [0, 2.5]


def test_only_the_event_that_is_too_much_is_refused(jq: Jq) -> None:
    count = 3 * GROUP + 5
    bad = {GROUP - 1: "loop", GROUP + 7: "memory", GROUP + 8: "many", 2 * GROUP: "large", count - 1: "deep"}
    program = """
        if . == "loop" then last(repeat(.)) elif . == "memory" then [limit(30; recurse(. + .))] | length
        elif . == "many" then range(11) elif . == "large" then "x" * 10001
        elif . == "deep" then reduce range(101) as $i (0; [.]) else [.] end
    """
    events = Events([bad.get(at, at) for at in range(count)])
    before = jq.starts
    found = jq.evaluate(program, events)
    assert {at: value.reason for at, value in enumerate(found) if isinstance(value, Refused)} == {
        GROUP - 1: "it takes more than 0.2 s of computing",
        GROUP + 7: "it takes more than 256 MB of memory, or is nested too deep",
        GROUP + 8: "it gives more than 10 results",
        2 * GROUP: "its results are larger than 10,000 bytes",
        count - 1: "a result is nested more than 100 deep",
    }
    assert [value for value in found if not isinstance(value, Refused)] == [
        [at] for at in range(count) if at not in bad
    ]
    assert jq.starts <= before + 3


def test_results_of_any_number(jq: Jq) -> None:
    events = Events([[], [1], [1, 2.5, "x\ty\n"], 5, [[], {}]])
    assert jq.evaluate(".[]", events) == [
        Several(()),
        1,
        Several((1, 2.5, "x\ty\n")),
        Refused("Cannot iterate over number (5)"),
        Several(([], {})),
    ]
    assert jq.evaluate(".[]", Events([])) == []


def test_odd_results_are_refused_alone(jq: Jq) -> None:
    program = "if . == 1 then 1e999 elif . == 2 then error({a: 1}) elif . == 3 then error(null) elif . == 4 then nan else . end"
    found = jq.evaluate(program, Events([0, 1, 2, 3, 4, 5]))
    assert found[0] == 0
    assert found[1] == Refused("a result holds a number out of range")
    assert isinstance(found[2], Refused)
    assert isinstance(found[3], Refused)
    assert found[4:] == [None, 5]


def test_an_interrupt_does_not_end_the_process(jq: Jq) -> None:
    assert jq.evaluate(".[]", Events([[1]])) == [1]
    process = jq.process_id
    os.kill(process, signal.SIGINT)
    assert jq.evaluate(".[]", Events([[1]])) == [1]
    assert jq.process_id == process


def test_a_process_that_is_killed_is_replaced(jq: Jq) -> None:
    assert jq.evaluate(".[]", Events([[1]])) == [1]
    os.kill(jq.process_id, signal.SIGKILL)
    assert jq.evaluate(".[]", Events([[1]])) == [1]
    jq.close()
    assert jq.evaluate(".[]", Events([[2]])) == [2]


def test_a_process_that_stands_still_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with Jq() as opened:
        assert opened.evaluate(".[]", Events([[1]])) == [1]
        stopped = opened.process_id

        def impatient(sources: Any, seconds: float) -> Any:  # with the stopped process only: another may start slowly
            return readable(sources, 0.2 if psutil.pid_exists(stopped) else seconds)

        monkeypatch.setattr(jq_process, "readable", impatient)
        os.kill(stopped, signal.SIGSTOP)
        assert opened.evaluate(".[]", Events([[1], [2]])) == [1, 2]
        assert opened.starts > 1


def test_a_program_that_is_too_much_to_compile_is_a_mistake(jq: Jq) -> None:
    expected = "jq: compiling it takes more than 256 MB of memory, or is nested too deep"
    assert [each.message for each in jq.mistakes('"a" * 500000000')] == [expected]
    assert jq.mistakes(".[]") == []


def test_a_machine_on_which_it_cannot_run_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with Jq() as unfit, pytest.raises(EnvironmentUnfit, match="ended 3 times"):
        unfit.evaluate(".[]", Events([[1]]))
    monkeypatch.setattr(jq_process.importlib.util, "find_spec", lambda name: None)
    with Jq() as unfit, pytest.raises(EnvironmentUnfit, match="pip install jq"):
        unfit.mistakes(".[]")


def test_the_process_sees_nothing_of_ours(jq: Jq, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_OURS", "1")
    with Jq() as fresh:
        fresh.evaluate(".[]", Events([[1]]))
        process = psutil.Process(fresh.process_id)
        assert "SECRET_OF_OURS" not in process.environ()
        assert len(process.open_files()) <= 1


PARENT = """
import sys
from hayase.tables.jq import Events, Jq, Limits
jq = Jq(Limits(seconds=0.2))
jq.evaluate(".[]", Events([[1]]))
print(jq.process_id, flush=True)
if sys.argv[1] == "busy":
    jq.evaluate("last(repeat(1))", Events([0] * 1000))
sys.stdin.read()
"""


@pytest.mark.parametrize("state", ["idle", "busy"])
def test_it_does_not_survive_its_parent(state: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, state], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        process: Any = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    psutil.wait_procs([process], timeout=600)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_depth() -> None:
    assert [depth(text) for text in ("1", "[]", '{"a":[1,"]]["]}', '["\\"[[", [[]]]')] == [0, 1, 2, 3]
