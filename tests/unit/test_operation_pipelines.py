"""Operations in pipelines: how they are declared, planned, tried and run in this process; the governor; views."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hayase.core.declarations import (
    GovernorDeclaration,
    JobDeclaration,
    OperationDeclaration,
    PipelineDeclaration,
    QueryDeclaration,
    RulesDeclaration,
    StepDeclaration,
    StreamDeclaration,
    TableDeclaration,
)
from hayase.core.errors import DamagedState, DeclarationError, UnknownName
from hayase.core.operation_data import declared_operation
from hayase.core.pipeline_file import read_pipeline
from hayase.core.stages import OFFSET, OPERATIONS, TIME, Stage
from hayase.engine.definition import check, definitions
from hayase.engine.definition.stage_graph import Planned, plan
from hayase.engine.home import Home
from hayase.engine.results.subscriptions import Subscription, Subscriptions, added
from hayase.operations.operation_planner import AllColumns
from hayase.pipeline import Pipeline
from hayase.streams import StreamLog

COLUMNS = "time timestamp, user string, amount double"
FUNCTIONS = '''
"""What the operations of these tests do."""


def double(records):
    return [{**each, "amount": each["amount"] * 2} for each in records]


def total(records):
    return {"user": records[0]["user"], "total": sum(each["amount"] for each in records)}


def no_negative(records):
    if any(each["amount"] < 0 for each in records):
        raise ValueError("a negative amount")
    return {"amounts": len(records)}


def broken(records):
    return records[0]["amonut"]


def nothing(records):
    return None
'''


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with functions for operations."""
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stream(name: str, schema: str = COLUMNS, time: str = "time", **options: Any) -> StreamDeclaration:
    return StreamDeclaration(name, schema, time, **options)


def operation(name: str, **data: Any) -> OperationDeclaration:
    return declared_operation(name, {"function": "functions:total", "schema": "user string, total double", **data})


def planned(
    *operations: OperationDeclaration,
    streams: Sequence[StreamDeclaration] = (),
    queries: Sequence[tuple[str, str]] = (),
    jobs: Sequence[JobDeclaration] = (),
) -> Planned:
    declared = (stream("q1"), stream("q2"), *streams)
    asked = tuple(QueryDeclaration(*each) for each in queries)
    return plan(PipelineDeclaration("shop", declared, asked, jobs=tuple(jobs), operations=operations))


def stage(name: str, found: Planned) -> Stage:
    assert not found.mistakes
    return next(each for each in found.stages if each.name == name)


# ------------------------------------------------------------------------------------------------ what is planned


@pytest.mark.parametrize(
    ("data", "every", "buckets", "key"),
    [
        ({"reads": "q*"}, 0, [None, None], (OFFSET,)),
        ({"reads": "q*", "key": "user"}, 0, [None, None], (OFFSET,)),
        ({"reads": "q1", "window": 3}, 0, [0], ()),
        ({"reads": "q*", "window": 3}, 0, [0, 1], ()),
        ({"reads": "q1", "window": 3, "key": "user"}, 0, [None], ("user",)),
        ({"reads": "q1", "window": 3, "together": True}, 0, [0], ()),
        ({"reads": "q*", "window": 3, "key": "user"}, None, [None, None], ("user",)),
        ({"reads": "q*", "window": 3, "together": True}, None, [0, 0], ()),
        ({"reads": "q1", "window": "3 s"}, None, [0], ()),
        ({"reads": "q*", "window": "3 s", "slide": "1 s"}, None, [0, 1], ()),
        ({"reads": "q*", "window": "3 s", "key": ["user", "amount"]}, None, [None, None], ("user", "amount")),
    ],
)
def test_how_windows_are_laid_out(
    data: dict[str, Any], every: int | None, buckets: list[int | None], key: tuple[str, ...]
) -> None:
    made = stage("totals", planned(operation("totals", **data)))
    assert (made.lane, made.every) == (OPERATIONS, every)
    assert [each.bucket for each in made.inputs] == buckets
    assert {each.key for each in made.inputs} == {key}
    assert (made.state_digest == "") == ("window" not in data)
    assert made.stream == stream("totals", "time timestamp, user string, total double", max_ahead=None, ordered=True)


def test_the_map_side_passes_records_on() -> None:
    schema = pa.schema([("time", pa.int64()), ("user", pa.string())])
    batch = pa.RecordBatch.from_pylist([{"user": "taro", "time": 1}], schema=pa.schema(reversed(list(schema))))
    made = AllColumns(("time", "user"))(batch)
    assert made.rows.to_pylist() == [{"time": 1, "user": "taro"}]
    assert (made.rows.schema.names, made.input_rows.tolist(), len(made.refused)) == (["time", "user"], [0], 0)


def test_a_pattern_stands_for_all_that_is_there_but_for_itself_and_internal_streams() -> None:
    queries = [
        ("q4", "select * from q1 where amount > 1"),
        ("r", "select user, count(*) as n from q1 [range 1 minute] as x group by user having count(*) > 1"),
    ]
    same = "time timestamp, user string, amount double"
    found = planned(
        operation("q3", reads="q*", schema=same), operation("q5", reads=["q2", "q*"], schema=same), queries=queries
    )
    assert [str(each[2]) for each in found.mistakes] == [
        "operations read each other: q3 -> q5 -> q3; let one of them read something else",
        "operations read each other: q5 -> q3 -> q5; let one of them read something else",
    ]
    found = planned(operation("q3", reads=["q2", "q*"], schema=same), queries=queries)
    assert [each.stream for each in stage("q3", found).inputs] == ["q2", "q1", "q4"]


def test_everything_reads_everything() -> None:
    """Queries of operations, operations of queries and of jobs, in whatever order they stand."""
    job = JobDeclaration(
        "counts", ("first",), 1_000_000, (StepDeclaration("reduce", aggregates=(("n", "count(*)"),), key=("user",)),)
    )
    found = planned(
        operation("last", reads="middle", schema="n bigint"),
        operation("of_job", reads="counts", schema="n bigint"),
        operation("second", reads="rich", schema="user string, total double"),
        operation("first", reads="q*", schema="time timestamp, user string, total double"),
        queries=[
            ("middle", "select * from second where total > 1"),
            ("rich", "select user, total from first where total > 5"),
            ("sums", "select user, sum(total) as s from second group by user"),
        ],
        jobs=[job],
    )
    assert not found.mistakes
    order = [each.name for each in found.stages]
    assert sorted(order) == sorted({"first", "rich", "second", "middle", "last", "sums", "counts", "of_job"})
    for one, other in (
        ("first", "rich"),
        ("rich", "second"),
        ("second", "middle"),
        ("middle", "last"),
        ("second", "sums"),
    ):
        assert order.index(one) < order.index(other)


def _kinds(kind: str, name: str, reads: str) -> dict[str, list[Any]]:
    """A declaration of one kind that reads a stream and passes users on."""
    if kind == "query":
        return {"queries": [(name, f"select user from {reads}")]}
    if kind == "job":
        steps = (StepDeclaration("reduce", aggregates=(("n", "count(*)"),), key=("user",)),)
        return {"jobs": [JobDeclaration(name, (reads,), 1_000_000, steps)]}
    return {"operations": [operation(name, reads=reads, schema="user string")]}


def _chained(*things: tuple[str, str, str]) -> Planned:
    declared: dict[str, list[Any]] = {"queries": [], "jobs": [], "operations": []}
    for kind, name, reads in things:
        for key, each in _kinds(kind, name, reads).items():
            declared[key] += each
    return planned(*declared["operations"], queries=declared["queries"], jobs=declared["jobs"])


@pytest.mark.parametrize("kinds", [*product(("query", "job", "operation"), repeat=3)], ids="-".join)
def test_stages_of_all_kinds_chain_in_any_order(kinds: tuple[str, str, str]) -> None:
    names = ("one", "two", "three")
    things = [*zip(kinds, names, ("q1", "one", "two")), ("query", "last", "three"), ("job", "very_last", "last")]
    found = _chained(*things[::-1])
    assert not found.mistakes
    order = [each.name for each in found.stages]
    assert sorted(order) == sorted([*names, "last", "very_last"])
    assert [order.index(each) for each in (*names, "last", "very_last")] == sorted(
        order.index(each) for each in (*names, "last", "very_last")
    )


@pytest.mark.parametrize("kinds", [*product(("query", "job", "operation"), repeat=2)], ids="-".join)
def test_a_circle_is_told_by_its_way(kinds: tuple[str, str]) -> None:
    found = _chained((kinds[0], "one", "two"), (kinds[1], "two", "one"), ("query", "behind", "two"))
    assert found.mistakes
    assert {name for _, name, _ in found.mistakes} <= {"one", "two"}
    if kinds[0] != kinds[1]:
        told = [str(each) for _, _, each in found.mistakes]
        assert len(told) == 1
        assert "reads, through others, what it writes: " in told[0]
        assert "one -> two" in told[0]


def test_rules_may_read_what_any_stage_writes() -> None:
    table = TableDeclaration("seen", ("user",), (("n", "Counter"),))
    for kind in ("query", "job", "operation"):
        given = _kinds(kind, "one", "q1")
        text = "source: one\nrules: [{tables: {seen: {key: .user, columns: {n: '1'}}}}]"
        declaration = PipelineDeclaration(
            "shop", (stream("q1", id="user"),), tuple(QueryDeclaration(*each) for each in given.get("queries", ())),
            tables=(table,),
            jobs=tuple(given.get("jobs", ())), operations=tuple(given.get("operations", ())),
            rules=(RulesDeclaration("rules.yaml", text),),
        )  # fmt: skip
        found = plan(declaration)
        assert not found.mistakes
        assert found.stages[-1].name == "seen"


def test_every_mistake_is_told_at_once() -> None:
    wrong = tuple(QueryDeclaration(f"w{number}", f"select nothing_{number} from q1") for number in range(15))
    table = TableDeclaration("seen", ("user",), (("n", "Contre"), ("m", "Counter")))
    text = "source: nobody\nrules: [{tables: {seen: {key: .user, columns: {m: '1', x: '1'}}}}]"
    declaration = PipelineDeclaration(
        "shop", (stream("q1"), stream("q2")), wrong, tables=(table,), operations=(operation("lost", reads="nowhere"),),
        jobs=tuple(_kinds("job", "bad", "nobody")["jobs"]), rules=(RulesDeclaration("rules.yaml", text),),
    )  # fmt: skip
    told = "\n".join(str(each) for _, _, each in plan(declaration).mistakes)
    for part in (
        *(f'"nothing_{number}"' for number in range(15)),
        '"nowhere"',
        'group "nobody"',
        '"Contre"',
        'stream "nobody"',
    ):
        assert part in told


def test_records_of_a_relation_are_read_as_they_are() -> None:
    found = planned(
        operation("alarms", reads="spend", schema="user string"),
        queries=[("spend", "select user, sum(amount) as spend from q1 group by user")],
    )
    made = stage("alarms", found)
    assert made.inputs[0].schema.names == ["user", "spend", "row_id", "valid_from", "valid_to", "event_time"]
    assert made.stream.time == "changed_at"
    assert made.stream.schema == "changed_at timestamp, `user` string"
    assert made.stream.shown_schema.names == ["event_time", "user"]


def test_times_of_the_output_are_those_of_what_it_reads() -> None:
    ticks = stream("ticks", "at bigint, x double", "at", time_unit="ms")
    made = stage("scores", planned(operation("scores", reads="ticks", schema="y double"), streams=[ticks]))
    assert (made.stream.schema, made.stream.time, made.stream.time_unit) == ("at bigint, y double", "at", "ms")


def test_all_mistakes_are_told_with_the_field_that_they_speak_of() -> None:
    found = planned(
        operation("a", reads="x*"),
        operation("b", reads=["q1", "tick"]),
        operation("c", reads=["q1", "ticks"]),
        operation("d", reads="q1", key="usr"),
        operation("e", reads="q1", schema=None),
        operation("f", reads="q1", schema="time timestamp"),
        operation("g", reads="q1", schema="__x double"),
        operation("h", reads=["q1", "other"]),
        streams=[
            stream("ticks", "at bigint, x double", "at", time_unit="ms"),
            stream("other", "time timestamp, user string, amount bigint"),
        ],
        queries=[("k", "select * from e"), ("l", "select * from nobody"), ("m", "select * from k")],
    )
    assert [(kind, name, str(each), each.subject) for kind, name, each in found.mistakes] == [
        (
            "operation", "a",
            'no stream matches "x*" of operation "a"; there are: b, c, d, e, f, g, h, k, l, m, other, q1, q2, ticks',
            "reads",
        ),
        ("operation", "b", 'unknown stream "tick" of operation "b"; did you mean "ticks"?', "reads"),
        (
            "operation", "c",
            'what operation "c" reads must have the same columns; "q1" and "ticks" differ: "ticks" has no "time"; '
            "select the same columns by a query, or read less", "reads",
        ),
        ("operation", "d", 'operation "d": unknown key column "usr"; did you mean "user"?', "key"),
        (
            "operation", "e",
            'what operation "e" gives is not known; declare its schema, like "user string, score double", or append some '
            "records and check again", "schema",
        ),
        (
            "operation", "f",
            'the schema of operation "f" has no column besides "time"; say what else its function gives', "schema",
        ),
        (
            "operation", "g",
            'output of operation "g": column "__x" in stream "g" begins with "__", which is reserved; rename the column',
            "schema",
        ),
        (
            "operation", "h",
            'what operation "h" reads must have the same columns; "q1" and "other" differ: amount double is not amount bigint; '
            "select the same columns by a query, or read less", "reads",
        ),
        ("query", "l", '1:15: unknown stream "nobody"; known are: a, b, c, d, e, f, g, h, k, m, other, q1, q2, ticks', ""),
    ]  # fmt: skip


def test_streams_of_one_shape_must_tell_time_in_the_same_way() -> None:
    schema = "at bigint, other bigint"
    streams = [
        stream("s1", schema, "at", time_unit="ms"),
        stream("s2", schema, "at", time_unit="s"),
        stream("s3", schema, "other", time_unit="ms"),
    ]
    told = [str(each[2]) for each in planned(operation("x", reads="s*"), streams=streams).mistakes]
    assert len(told) == 1
    assert '"s1" and "s2" differ: their times count ms and s; "s1" and "s3" differ: their time columns are' in told[0]


@pytest.mark.parametrize(
    ("queries", "reads"),
    [
        ([("b", "select * from a")], ["b"]),
        ([("b", "select time, user, total as amount from a")], ["q1", "b"]),
        ([("c", "select * from a"), ("b", "select * from c")], ["b"]),
    ],
)
def test_a_loop_through_queries_is_refused(queries: list[tuple[str, str]], reads: list[str]) -> None:
    found = planned(operation("a", reads=reads), queries=queries)
    assert [(kind, name) for kind, name, _ in found.mistakes] == [("operation", "a")]
    assert 'operation "a" reads, through others, what it writes' in str(found.mistakes[0][2])


def test_an_operation_that_reads_itself_is_refused() -> None:
    found = planned(operation("a", reads=["q1", "a"]))
    assert [str(each) for _, _, each in found.mistakes] == [
        "operations read each other: a -> a; let one of them read something else"
    ]


def test_what_changes_results_changes_the_fingerprint() -> None:
    plain = operation("totals", reads="q1", window=3)
    shipped = replace(plain, code="abc", directory=None)

    def fingerprint(declared: OperationDeclaration, *streams: StreamDeclaration) -> str:
        return stage("totals", planned(declared, streams=streams)).fingerprint

    same = fingerprint(shipped)
    assert fingerprint(replace(shipped, directory="elsewhere")) == same
    others = [
        replace(shipped, **change)
        for change in (
            {"code": "abd"},
            {"attempts": 2},
            {"time_limit": 5},
            {"window": 4},
            {"slide": 1},
            {"key": ("user",)},
            {"function": "functions:double"},
            {"schema": "user string"},
            {"reads": ("q2",)},
            {"takes": "batch"},
        )
    ]
    assert len({same, *(fingerprint(each) for each in others)}) == len(others) + 1


def test_what_a_stage_remembers_are_its_windows_and_their_columns() -> None:
    def remembered(**data: Any) -> str | None:
        return stage("totals", planned(operation("totals", **{"reads": "q1", "window": 3, **data}))).state_digest

    same = remembered()
    assert same
    assert remembered(attempts=7, schema="user string") == same
    others = [remembered(window=4), remembered(slide=1), remembered(key="user"), remembered(window="3 s")]
    assert len({same, *others}) == 5


def test_the_kernel_goes_to_other_processes_and_works_there(place: Path) -> None:
    declared = replace(operation("totals", reads="q1", window=2), directory=str(place))
    made: Callable[[int, int], Any] = pickle.loads(pickle.dumps(stage("totals", planned(declared)).kernel))
    schema = stage("totals", planned(declared)).inputs[0].schema
    rows = [{"time": at, "user": "taro", "amount": float(at)} for at in range(4)]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    numbers = pa.array(np.arange(4))
    batch = batch.append_column(TIME, numbers).append_column(OFFSET, numbers)
    outcome = made(0, 1).process([batch], -1, 4, 1)
    assert outcome.rows.select(["user", "total"]).to_pylist() == [
        {"user": "taro", "total": 1.0},
        {"user": "taro", "total": 5.0},
    ]


# ------------------------------------------------------------------------------------------------ how it is declared


def given(records: list[dict[str, Any]]) -> dict[str, Any]:
    return {"n": len(records)}


def test_operations_are_declared_by_functions_and_by_names(place: Path) -> None:
    p = Pipeline("shop", home=place / "home")
    p.stream("orders", COLUMNS)
    assert p.operation(given, reads="orders", schema="n bigint") is given
    assert p.operation("functions:total", reads=["orders"], writes="totals", window=timedelta(minutes=5)) is None
    decorate = p.operation(
        reads="o*", writes="all", window=10, slide=2, key="user", together=True, attempts=1, pause="1 s",
        time_limit=2_000_000, memory_limit="2 GB", concurrency=3, takes="records",
    )  # fmt: skip
    assert decorate(given) is given
    here = str(Path(__file__).parent)
    assert p.declaration.operations == (
        OperationDeclaration("given", ("orders",), f"{__name__}:given", here, "n bigint"),
        OperationDeclaration(
            "totals", ("orders",), "functions:total", str(place), window=300_000_000, by_time=True
        ),
        OperationDeclaration(
            "all", ("o*",), f"{__name__}:given", here, window=10, slide=2, key=("user",), together=True,
            takes="records", attempts=1, pause=1_000_000, time_limit=2_000_000, memory_limit=2 * 10**9, concurrency=3,
        ),
    )  # fmt: skip
    p.remove("totals")
    assert [each.name for each in p.declaration.operations] == ["given", "all"]
    with pytest.raises(UnknownName, match='did you mean "given"'):
        p.remove("givn")


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        (lambda records: None, {}, "a lambda cannot be found by other processes"),
        ("total", {}, '"total" names no function; write it like module:function'),
        (given, {"window": "soon"}, 'window of operation "given": "soon" is not a window'),
        (given, {"window": 2.5}, 'window of operation "given": 2.5 is not a whole number'),
        (given, {"window": True}, 'window of operation "given": True is not a whole number'),
        (given, {"window": 3, "slide": timedelta(seconds=1)}, "last so many records, and do not slide by that"),
        (given, {"window": 3, "slide": 4}, 'windows of operation "given" leave records out'),
        (given, {"key": 3}, 'key of operation "given": 3 is not a name'),
        (given, {"together": "maybe"}, '"maybe" is neither true nor false; write one of them'),
        (given, {"schema": "n bigunt"}, 'schema of operation "given": column "n": unknown type'),
        (given, {"writes": "not-a-name"}, "'not-a-name' cannot be the name of"),
        (given, {"writes": "orders"}, '"orders" is declared twice'),
        (given, {"time_limit": 1.5}, 'time_limit of operation "given": 1.5 is not a duration'),
        (given, {"memory_limit": "much"}, '"much" is not a size'),
    ],
)
def test_what_cannot_be_declared(tmp_path: Path, function: Any, options: dict[str, Any], said: str) -> None:
    p = Pipeline("shop", home=tmp_path / "home")
    p.stream("orders", COLUMNS)
    with pytest.raises(DeclarationError) as caught:
        p.operation(function, reads="orders", **options)
    assert said in str(caught.value)
    assert p.declaration.operations == ()


def test_the_governor_is_declared_and_its_policy_checked(tmp_path: Path) -> None:
    p = Pipeline("shop", home=tmp_path / "home")
    p.governor("als", u=0.5, window="30 s", seconds=timedelta(seconds=2))
    assert p.declaration.governor == GovernorDeclaration("als", (("u", 0.5),), 2.0, 30.0)
    p.governor()
    assert p.declaration.governor == GovernorDeclaration()
    for options, said in (
        ({"policy": "fair"}, 'unknown policy "fair"; known are: '),
        ({"policy": "als", "v": 1}, 'unknown option "v" of policy "als"'),
        ({"u": "much"}, 'u of the governor: "much" is not a number'),
        ({"threshold": 0}, "threshold of the governor is not positive"),
    ):
        with pytest.raises(DeclarationError) as caught:
            p.governor(**options)  # type: ignore[arg-type]
        assert said in str(caught.value)
    assert p.declaration.governor == GovernorDeclaration()


# ------------------------------------------------------------------------------------------------ functions are tried

FILE = """\
pipeline: shop
streams:
  orders: {schema: "time timestamp, user string, amount double", time: time}
operations:
  doubles: {reads: orders, function: functions:double}
  totals: {reads: doubles, function: functions:total, window: 2, schema: "user string, total double"}
governor: {policy: als, u: 0.5}
"""


def orders(*amounts: float) -> list[dict[str, Any]]:
    return [
        {"time": f"2026-01-01T00:00:{at:02}Z", "user": "taro", "amount": float(amount)}
        for at, amount in enumerate(amounts)
    ]


def test_mistakes_of_functions_and_of_the_governor_have_their_place(place: Path) -> None:
    (place / "shop.yaml").write_text(FILE.replace("u: 0.5", "v: 1, u: 2"))
    with pytest.raises(DeclarationError) as caught:
        check.check_file(read_pipeline(Path("shop.yaml")))
    told = [str(each) for each in caught.value.mistakes]
    assert [each.partition(": ")[0] for each in told] == ["shop.yaml:5:38", "shop.yaml:7:31", "shop.yaml:7:25"]
    assert "the schema of what functions:double gives is not known without a sample" in told[0]
    assert "u is 2" in told[1]
    assert 'unknown option "v" of policy "als"' in told[2]
    (place / "shop.yaml").write_text(FILE.replace("functions:double", "nowhere:double"))
    with pytest.raises(DeclarationError, match=r"shop\.yaml:5:38: .*there is no module nowhere"):
        check.check_file(read_pipeline(Path("shop.yaml")))


def test_a_pipeline_whose_schemas_are_not_known_yet_takes_records(place: Path) -> None:
    (place / "shop.yaml").write_text(FILE)
    p = Pipeline.from_file("shop.yaml")
    assert p.declaration.operations[0].schema is None
    with pytest.raises(DeclarationError, match="not known without a sample"):
        p.check()
    with pytest.raises(DeclarationError, match="not known without a sample"):
        p.query("big", "select * from doubles where amount > 3")
    p.append("orders", orders(1, 2, 3))
    assert "amount" in p.query("big", "select * from doubles where amount > 3").table().column_names
    p.check()
    assert p.declaration.operations[0].schema is None
    made = p.apply()
    assert made.declaration.operations[0].schema == "`user` string, amount double"
    assert made.declaration.operations[0].code is not None
    assert Pipeline.from_file("shop.yaml").declaration.operations[0].schema == "`user` string, amount double"
    assert p.apply().version == made.version


def test_schemas_of_a_chain_are_found_one_after_the_other(place: Path) -> None:
    home = Home(place / "home")
    declared = PipelineDeclaration(
        "shop",
        (stream("orders"),),
        operations=(
            replace(operation("totals", reads="doubles"), schema=None, directory=str(place)),
            replace(
                operation("doubles", reads="orders", function="functions:double"), schema=None, directory=str(place)
            ),
        ),
    )
    p = Pipeline("shop", home=home.path)
    p.declaration = declared
    p.append("orders", orders(1, 2))
    with pytest.raises(DeclarationError, match="totals"):  # there are no doubles yet
        check.infer_operations(home, declared)
    p.declaration = replace(declared, operations=declared.operations[1:])
    p.run_until_idle(spark=False)
    found = check.infer_operations(home, declared)
    assert [each.schema for each in found.operations] == ["`user` string, total double", "`user` string, amount double"]


def test_a_function_that_does_not_work_is_refused(place: Path) -> None:
    p = Pipeline("shop", home=place / "home")
    p.stream("orders", COLUMNS)
    p.operation("functions:broken", reads="orders", schema="n double")
    p.check()  # it can be loaded, and there is nothing to try it on
    p.append("orders", orders(1, 2))
    for attempt in (p.check, p.apply):
        with pytest.raises(DeclarationError, match=r'(?s)operation "broken".*KeyError: \'amonut\''):
            attempt()
    assert definitions.latest(p.home) is None


# ------------------------------------------------------------------------------------------------ at work


def test_operations_run_with_queries_before_and_behind_them(place: Path) -> None:
    p = Pipeline("shop", home=place / "home", buckets=3)
    p.stream("orders", COLUMNS)
    p.query("real", "select * from orders where amount <> 0")
    p.operation("functions:double", reads="real", writes="doubles", schema="user string, amount double")
    p.operation("functions:no_negative", reads="doubles", writes="fine", window=2, schema="amounts bigint", attempts=1)
    p.query("sums", "select user, sum(amount) as s, count(*) as n from doubles group by user")
    p.append("orders", orders(*range(40), -1, *range(5)))
    p.finish("orders")
    p.run_until_idle(spark=False)
    wanted = sum(range(40)) - 1 + sum(range(5))
    assert sum(each["amount"] for each in p.results("doubles")) == 2 * wanted
    assert p.query("sums").at() == [{"user": "taro", "s": 2.0 * wanted, "n": 44}]
    assert sum(each["amounts"] for each in p.results("fine")) == 43
    (letter,) = p.dead_letters()
    assert (letter["stage"], letter["stream"]) == ("fine", "doubles")
    assert "ValueError: a negative amount" in letter["reason"]


@pytest.mark.parametrize("buckets", [1, 3])
def test_windows_of_a_queue_take_records_as_they_came(place: Path, buckets: int) -> None:
    """Whatever their times, the batches, and who else goes to the same bucket."""
    p = Pipeline("shop", home=place / "home", buckets=buckets)
    for name in ("q1", "q2"):
        p.stream(name, COLUMNS)
    p.operation("functions:total", reads="q*", window=2, schema="user string, total double")
    for first, second in (((5, 1, 3, 2, 9), (40, 0, 7)), ((8,), (60, 1))):
        for name, times in (("q1", first), ("q2", second)):
            rows = [{"time": f"2026-01-01T00:00:{at % 10:02}Z", "user": name, "amount": at} for at in times]
            p.append(name, rows)
        p.run_until_idle(spark=False)
    found = [(row["user"], row["total"]) for row in p.results("total").table().to_pylist()]
    assert [total for user, total in found if user == "q1"] == [6.0, 5.0, 17.0]
    assert [total for user, total in found if user == "q2"] == [40.0, 67.0]
    assert p.dead_letters() == []


# ------------------------------------------------------------------------------------------------ views


class Seen:
    """A view that keeps what it is given, in lists."""

    def __init__(self) -> None:
        self.calls: list[list[dict[str, Any]]] = []

    def __call__(self, records: list[dict[str, Any]]) -> None:
        self.calls.append(records)

    @property
    def amounts(self) -> list[float]:
        return [each["amount"] for call in self.calls for each in call]


def shop(place: Path) -> Pipeline:
    p = Pipeline("shop", home=place / "home")
    p.stream("orders", COLUMNS)
    p.query("large", "select * from orders where amount > 1")
    return p


def test_views_get_results_in_order_and_once(tmp_path: Path) -> None:
    p = shop(tmp_path)
    seen, all_orders = Seen(), Seen()
    p.view("large", seen)
    p.view("orders")(all_orders)
    p.append("orders", orders(1, 2, 3))
    p.run_until_idle(spark=False)
    assert (seen.amounts, all_orders.amounts) == ([2.0, 3.0], [1.0, 2.0, 3.0])
    p.append("orders", [{"time": "2026-01-01T00:00:09Z", "user": "taro", "amount": 9}])
    p.run_until_idle(spark=False)
    p.run_until_idle(spark=False)
    assert seen.amounts == [2.0, 3.0, 9.0]
    assert (tmp_path / "home" / "views" / "large.Seen.json").read_text().endswith('{"next":3}')


def test_a_view_that_raises_goes_on(tmp_path: Path) -> None:
    p = shop(tmp_path)
    seen = Seen()

    @p.view("large")
    def picky(records: list[dict[str, Any]]) -> None:
        if any(each["amount"] == 3 for each in records):
            raise SystemExit("three is too much")
        seen(records)

    p.append("orders", orders(2, 3))
    p.run_until_idle(spark=False)
    p.append("orders", [{"time": "2026-01-01T00:00:09Z", "user": "taro", "amount": 9}])
    p.run_until_idle(spark=False)
    assert seen.amounts == [9.0]
    letters = p.dead_letters()
    assert [(each["stage"], each["stream"], each["offset"]) for each in letters] == [
        ("view large", "large", 0),
        ("view large", "large", 1),
    ]
    assert letters[0]["reason"].startswith('view "picky" raised SystemExit: three is too much\nTraceback')
    assert "views.py" not in letters[0]["reason"]


def test_a_view_gets_again_what_it_was_not_seen_to_take(tmp_path: Path) -> None:
    p = shop(tmp_path)
    seen = Seen()
    p.view("large", seen)
    p.append("orders", orders(2, 3))
    p.run_until_idle(spark=False)
    kept = tmp_path / "home" / "views" / "large.Seen.json"
    kept.unlink()  # as if it had ended between the call and that
    p.run_until_idle(spark=False)
    assert seen.amounts == [2.0, 3.0, 2.0, 3.0]
    kept.write_text("{")
    with pytest.raises(DamagedState, match=r"the place of a view .*Seen\.json"):
        p.run_until_idle(spark=False)


def test_many_records_come_in_portions(tmp_path: Path) -> None:
    p = shop(tmp_path)
    seen = Seen()
    p.append("orders", pa.table({"time": range(2500), "user": ["taro"] * 2500, "amount": [float(at) for at in range(2500)]},
                                schema=p.declaration.streams[0].arrow_schema))  # fmt: skip
    with Subscriptions(p.home, [Subscription("orders", seen)], lambda: 0):
        pass
    assert [len(each) for each in seen.calls] == [1000, 1000, 500]
    assert seen.amounts == [float(at) for at in range(2500)]


def test_views_of_a_stream_that_begins_anew_get_its_results_again(tmp_path: Path) -> None:
    p = shop(tmp_path)
    seen = Seen()
    p.view("large", seen)
    p.append("orders", orders(2, 3))
    p.run_until_idle(spark=False)
    p.reset("large")
    p.run_until_idle(spark=False)
    assert seen.amounts == [2.0, 3.0, 2.0, 3.0]


def test_views_that_cannot_be(tmp_path: Path) -> None:
    p = shop(tmp_path)
    seen = Seen()
    newer = Subscription("large", Seen())
    assert added((Subscription("large", seen), Subscription("orders", seen)), newer)[1:] == (newer,)
    p.view("larg", seen)
    with pytest.raises(UnknownName, match='did you mean "large"'):
        p.run_until_idle(spark=False)


def test_after_an_error_views_are_not_waited_for(tmp_path: Path) -> None:
    p = shop(tmp_path)
    seen = Seen()
    StreamLog.ensure(p.home.path, p.declaration.streams[0])
    with (
        pytest.raises(RuntimeError, match="elsewhere"),
        Subscriptions(p.home, [Subscription("orders", seen)], lambda: 0),
    ):
        raise RuntimeError("elsewhere")
