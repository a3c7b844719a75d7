"""The kind of a dead letter: each is provoked through the public interface, is found by it everywhere, and old letters have one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

import hayase as hy
from command_line import Command
from hayase.core.clock import now_us
from hayase.core.errors import UnknownName
from hayase.core.reasons import KIND_MEANINGS, ReasonKind
from hayase.engine.dead_letters.letters import Letters
from hayase.engine.local import InProcess
from hayase.serving import Status, serving
from hayase.streams import StreamLog
from hayase.streams.dead_letters import DEAD
from hayase.testing import Trial, at, trial

MOST = 2**63 - 1


@pytest.fixture
def t() -> Iterator[Trial]:
    with trial("shop") as pipeline:
        yield pipeline


def kinds(pipeline: hy.Pipeline, stage: str) -> list[str]:
    """The kinds of the letters of a stage, which its figures count."""
    letters = [letter["kind"] for letter in pipeline.dead_letters() if letter["stage"] == stage]
    if stage in pipeline.progress().totals:
        assert pipeline.progress().totals[stage].kinds == {kind: letters.count(kind) for kind in letters}
    return letters


def test_every_kind_has_a_meaning_and_stands_in_the_guide() -> None:
    assert set(KIND_MEANINGS) == set(ReasonKind)
    guide = (Path(__file__).parents[2] / "docs" / "dead-letters.md").read_text()
    missing = [kind.value for kind in ReasonKind if f"| `{kind.value}` | {KIND_MEANINGS[kind]} |" not in guide]
    assert not missing


# -- each kind -----------------------------------------------------------------------------------------------------------------
def test_of_appends(t: Trial, tmp_path: Path) -> None:
    t.stream("orders", "time timestamp, amount double", max_ahead="1 minute")
    good = {"time": at(0), "amount": 1}
    t.append(
        "orders", [good, {**good, "amount": "free"}, {**good, "time": at(3600)}, {"time": at(3600), "amount": "x"}]
    )
    (tmp_path / "orders.jsonl").write_text('{"time": "2026-01-01T00:00:00Z", "amount": 1}\n{"time"\n[]\n')
    t.append("orders", tmp_path / "orders.jsonl")
    assert kinds(t, "append") == ["schema", "ahead", "schema", "unreadable", "unreadable"]


def test_of_queries(t: Trial) -> None:
    t.stream("orders", "time timestamp, user string, amount bigint, text string")
    t.stream("stock", "time timestamp, op string, item string", changes="op")
    t.query("numbers", "select text::int as number from orders")
    t.query("sums", "select user, sum(amount) as amount from orders group by user")
    t.query("items", "select item from stock")
    amounts = [(5, MOST, "1"), (6, 1, "x"), (1, 7, "3"), (9, -1, "4")]
    t.append("orders", [{"time": at(s), "user": "a", "amount": n, "text": text} for s, n, text in amounts])
    t.append("stock", [{"time": at(s), "op": op, "item": "x"} for s, op in enumerate(["+", "-", "-", "*", "+"])])
    t.finish("orders")
    t.finish("stock")
    t.run()
    assert kinds(t, "numbers") == ["expression"]
    assert kinds(t, "sums") == ["late", "overflow"]
    assert kinds(t, "items") == ["change", "change"]


def test_of_tables(t: Trial, tmp_path: Path) -> None:
    t.stream("events", "time timestamp, id string, user string, amount string", id="id")
    t.table("totals", key="user", horizon="1 hour", fold_after="1 minute", total=hy.Counter())
    t.rules(
        text="source: events\nrules: [{tables: {totals: {key: .user, columns: {total: '.amount | fromjson'}}}}]",
    )
    amounts = [(9000, "1"), (9001, "{"), (9002, '"text"'), (0, "2")]
    t.append("events", [{"time": at(s), "id": f"{s}", "user": "a", "amount": n} for s, n in amounts])
    t.run()
    assert kinds(t, "totals") == ["rule", "schema", "too_old"]
    (tmp_path / "totals.jsonl").write_text('{"user": "a", "total": 1}\n{"user": "b", "total": "x"}\n{"user"\n')
    t.table("totals").load(tmp_path / "totals.jsonl")
    (tmp_path / "totals.csv").write_text('user,total\na,1\nb,x\n"c"d,1\n')
    t.table("totals").load(tmp_path / "totals.csv", schema="user string, total bigint")
    assert kinds(t, "load") == ["schema", "unreadable", "schema", "unreadable"]


JOB = """
def pairs(record):
    if record["n"] == 0:
        raise ValueError("zero")
    yield ("a", record["n"]) if record["n"] > 0 else {"n": record["n"]}


def fails(key, values):
    raise RuntimeError("no")
"""


def test_of_jobs(t: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "steps.py").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    t.stream("numbers", "time timestamp, n bigint")
    for name, reduce in (("sums", "sum(value)"), ("failing", "steps:fails")):
        job = t.job(name, reads="numbers", every="1 second")
        job.map("steps:pairs")
        job.reduce(reduce)
    t.append("numbers", [{"time": at(0), "n": n} for n in (1, 0, -1, 2)])
    t.run()
    assert sorted(kinds(t, "failing")) == ["function", "function", "function", "result"]
    assert kinds(t, "sums") == ["function", "result"]
    t.append("numbers", [{"time": at(5), "n": n} for n in (MOST, 1)])
    t.run()
    assert kinds(t, "sums") == ["function", "result", "overflow"]


OPERATION = """
import os, time


def work(records):
    match records[0]["what"]:
        case "raise":
            raise ValueError("no")
        case "wrong":
            return {"n": "text"}
        case "large":
            return {"n": len(bytearray(8 << 30))}
        case "exit":
            os._exit(3)
    return {"n": 1}


def slow(records):
    if records[0]["what"] == "sleep":
        time.sleep(600)
    return {"n": 1}
"""


def test_of_operations(t: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "functions.py").write_text(OPERATION)
    monkeypatch.chdir(tmp_path)
    t.stream("tasks", "time timestamp, what string")
    options: Any = {"reads": "tasks", "schema": "n bigint", "attempts": 1}
    t.operation("functions:work", **options, time_limit="5 minutes")
    t.operation("functions:slow", **options, time_limit="300 ms")
    t.apply()
    words = ["raise", "wrong", "large", "exit", "sleep"]
    t.append("tasks", [{"time": at(second), "what": what} for second, what in enumerate(words)])
    t.finish("tasks")
    t.run()
    assert sorted(kinds(t, "work")) == ["crash", "function", "memory", "result"], "in the order of their buckets"
    assert "timeout" in kinds(t, "slow")


def test_of_views_and_of_letters_themselves(t: Trial, hayase_: Command) -> None:
    t.stream("orders", "time timestamp, amount string")
    t.query("numbers", "select amount::int as amount from orders")

    @t.view("orders")
    def refuse(records: list[dict[str, Any]]) -> None:
        raise ValueError("no")

    t.append("orders", [{"time": at(0), "amount": "x"}])
    t.run()
    assert (kinds(t, "view orders"), kinds(t, "numbers")) == (["function"], ["expression"])
    assert t.replay(stage="numbers").settled == 1
    t.remove("numbers")
    t.query("others", "select * from orders")
    t.run()
    assert [letter["kind"] for letter in t.dead_letters() if letter["stage"] == "numbers"] == ["expression", "gone"]
    last = t.home.path / "streams" / "_dead"
    max(last.glob("*.seg")).unlink()
    assert hayase_("home", "repair", t.home.path, "--accept-loss", "_dead").code == 0
    assert [letter["kind"] for letter in t.dead_letters()].count("lost") == 1


# -- finding letters by kind ---------------------------------------------------------------------------------------------------
@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> hy.Pipeline:
    """A pipeline in the working directory with letters 0 (schema), 1 (expression), 2 and 3 (late)."""
    (tmp_path / "pipeline.yaml").write_text(
        "pipeline: shop\nhome: ./home\nstreams: {orders: {schema: 'time timestamp, user string, text string', time: time}}\n"
        "queries: {sums: 'select user, sum(text::int) as n from orders group by user'}\n"
    )
    monkeypatch.chdir(tmp_path)
    pipeline = hy.Pipeline.from_file("pipeline.yaml")
    pipeline.append("orders", [{"time": at(9), "user": "a", "text": 5}])
    texts = [(9, "1"), (10, "x"), (1, "3"), (2, "4")]
    pipeline.append("orders", [{"time": at(second), "user": "a", "text": text} for second, text in texts])
    pipeline.run_until_idle(spark=False)
    return pipeline


def test_by_command(orders: hy.Pipeline, hayase_: Command) -> None:
    assert [row["kind"] for row in hayase_("dead", "list").rows] == ["late", "late", "expression", "schema"]
    assert [row["letter"] for row in hayase_("dead", "list", "--kind", "late").rows] == [3, 2]
    assert [(row["kind"], row["count"]) for row in hayase_("dead", "list", "--grouped").rows] == [
        ("late", 2), ("schema", 1), ("expression", 1),
    ]  # fmt: skip
    assert hayase_("dead", "show", 1).rows[0]["kind"] == "expression"
    assert hayase_("dead", "replay", "--kind", "late").rows[0]["late"] == 2
    assert hayase_("dead", "replay", "--kind", "late", "--late", "--yes").rows[0]["settled"] == 2
    assert hayase_("dead", "drop", "--kind", "schema").rows[0]["settled"] == 1
    assert [row["letter"] for row in hayase_("dead", "list").rows] == [1]
    wrong = hayase_("dead", "list", "--kind", "lat")
    assert wrong.code == 2
    assert "too_old" in wrong.err


def test_in_python(orders: hy.Pipeline) -> None:
    assert [letter["kind"] for letter in orders.dead_letters(kind="late")] == ["late", "late"]
    assert orders.drop_letters(kind="expression").settled == 1
    assert orders.replay(kind="schema", edit=lambda record: {**record, "text": "5"}).appended == 1
    for call in (orders.dead_letters, orders.replay, orders.drop_letters):
        with pytest.raises(UnknownName, match='unknown kind of dead letter "lat"; did you mean "late"'):
            call(kind="lat")  # type: ignore[operator]


@contextlib.contextmanager
def served(pipeline: hy.Pipeline) -> Iterator[httpx.Client]:
    with contextlib.ExitStack() as stack:
        runner = stack.enter_context(contextlib.closing(InProcess(pipeline.home, now_us)))
        status = Status("running", runner.manifest)
        server = stack.enter_context(serving(pipeline.home, "127.0.0.1:0", tables=runner.tables, status=status))
        yield stack.enter_context(httpx.Client(base_url=server.url, trust_env=False))


def test_over_http(orders: hy.Pipeline) -> None:
    with served(orders) as client:
        assert [letter["letter"] for letter in client.get("/dead?kind=late").json()["letters"]] == [2, 3]
        assert client.get("/dead/1").json()["kind"] == "expression"
        assert client.get("/dead?kind=lat").status_code == 422
        assert 'hayase_stage_dead_letters_total{stage="sums",kind="late"} 2' in client.get("/metrics").text
        assert client.post("/dead/drop", json={"kind": "expression"}).json()["settled"] == 1
        assert client.post("/dead/replay", json={"kind": "late"}).json()["late"] == 2
        assert client.post("/dead/drop", json={"kind": "lat"}).status_code == 422


# -- homes from before there were kinds ----------------------------------------------------------------------------------------
FORMER = replace(DEAD, schema=DEAD.schema.replace("kind string, ", ""))
"""The stream of dead letters as it was declared then."""


def write_former(home: Path, *letters: tuple[str, int | None, str, str], **producer: Any) -> None:
    """Append letters as they were written then: stage, offset, record and reason of each."""
    stages, offsets, records, reasons = zip(*letters)
    columns = {
        "time": [0] * len(letters), "stage": stages, "version": ["v1"] * len(letters), "stream": ["orders"] * len(letters),
        "offset": offsets, "reason": reasons, "record": records, "attempts": [1] * len(letters),
    }  # fmt: skip
    schema = FORMER.arrow_schema
    table = pa.table({name: pa.array(columns[name], schema.field(name).type) for name in schema.names}, schema)
    StreamLog.ensure(home, FORMER).append(table, now=0, **producer)


def test_former_letters_are_listed_filtered_and_replayed(t: Trial, hayase_: Command) -> None:
    t.stream("orders", "time timestamp, text string")
    t.query("numbers", "select text::int as number from orders")
    t.append("orders", [{"time": at(second), "text": f"{second}"} for second in range(3)])
    t.run()
    write_former(
        t.home.path,
        ("numbers", 0, "{}", 'cannot compute "text::int"'),
        ("numbers", 1, "{}", "late: 2026-01-01T00:00:01Z is before 2026-01-01T00:00:02Z"),
        ("numbers", 2, "{}", "too old: 2026-01-01T00:00:02Z is before 2026-01-01T00:00:03Z"),
        ("append", None, '{"time": "2026-01-01T00:00:09Z", "text": "9"}', 'column "text" must be string'),
        ("append", None, "{}", 'column "time": 2126-01-01T00:00:00Z is 100 years ahead of now; max_ahead is 1 day'),
    )
    letters = Letters(t.home)
    assert [letter["kind"] for letter in t.dead_letters()] == ["unknown", "late", "too_old", "unknown", "ahead"]
    assert [row["letter"] for row in hayase_("dead", "list", "--home", t.home.path, "--kind", "unknown").rows] == [3, 0]
    assert hayase_("dead", "show", 1, "--home", t.home.path).rows[0]["kind"] == "late"
    with served(t) as client:
        assert [letter["letter"] for letter in client.get("/dead?kind=too_old").json()["letters"]] == [2]
    report = letters.replay()
    assert (report.settled, report.appended, report.late) == (2, 1, 2)
    t.append("orders", [{"time": at(99), "text": 5}])  # the stream takes letters with and without a kind
    t.run()
    assert [row["number"] for row in t.rows("numbers")] == [0, 0, 1, 2, 9]
    assert [letter["kind"] for letter in t.dead_letters()][-1] == "schema"
    assert [row["kind"] for row in t.rows("_dead")] == [None] * 5 + ["schema"]


def test_a_repeated_append_finds_what_was_too_far_ahead_in_a_former_letter(t: Trial) -> None:
    t.stream("orders", "time timestamp, text string", max_ahead="1 minute")
    ahead = 'column "time": 2026-01-01T01:00:00Z is 1 hour ahead of now; max_ahead is 1 minute'
    write_former(t.home.path, ("append", None, "{}", ahead), producer="orders/p", sequence=1)
    t.clock.advance("2 hours")
    records = [{"time": at(second), "text": "x"} for second in (0, 3600)]
    assert t.append("orders", records, producer="p", sequence=1).accepted == 1
