"""The mistakes of the first ten minutes, and what is said about each: word by word, as in `tests/golden/errors`.

A text must say what is wrong, where, and what to do. With HAYASE_REWRITE_GOLDEN=1 the texts are written anew: read them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from command_line import Answer, answer
from hayase.core.access import Access
from hayase.engine.doctor import Facts
from hayase.engine.home import Home
from hayase.operations.processes import NURSERY
from hayase.pipeline import Pipeline
from hayase.serving import Status, serving

GOLDEN = Path(__file__).parent.parent / "golden" / "errors"
REWRITE = "HAYASE_REWRITE_GOLDEN" in os.environ
SHOP = """\
pipeline: shop
home: ./home

streams:
  orders:
    schema: time timestamp, id string, user string, amount double
    time: time
    id: id

queries:
  large: select user, amount from orders where amount > 100
  spend: |
    select user, sum(amount) as spend
    from orders [Range 10 minutes]
    group by user

tables:
  purchases: {key: user, columns: {total: Counter}}

rules:
  source: orders
  rules:
    - when: .amount > 0
      tables:
        purchases: {key: .user, columns: {total: .amount}}
"""
JOB = """
jobs:
  sizes:
    reads: orders
    steps:
      - map: functions:size
"""
OPERATION = """
operations:
  scores:
    reads: orders
    function: functions:score
    schema: id string, score double
    attempts: 2
    pause: 0 s
"""
FUNCTIONS = """\
def size(record):
    return record["user"], 100 / record["amount"]


def score(records):
    return {"id": records[0]["id"], "score": 100 / records[0]["amount"]}
"""
ORDERS = [
    {"time": "2026-01-31T12:00:00Z", "id": "o1", "user": "hana", "amount": 120.0},
    {"time": "2026-01-31T12:00:05Z", "id": "o2", "user": "taro", "amount": 0.0},
    {"time": "2026-01-31T12:00:09Z", "id": "o3", "user": "hana", "amount": 30.0},
]


class Beginner:
    """Somebody in a directory of their own, who types commands; `seen` is what is on the screen then."""

    def __init__(self, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
        self.place, self.patch = place, monkeypatch
        self._capsys = capsys
        self._seen: list[str] = []
        self._names: dict[str, str] = {str(place): "/home/you/shop", str(os.getpid()): "PID"}

    def has(self, **files: str) -> None:
        """Files, by their names with _ for the dot."""
        for name, text in files.items():
            (self.place / name.replace("_", ".")).write_text(text)

    def shop(self, *changed: tuple[str, str], more: str = "") -> None:
        """A pipeline file that is sound but for what is changed in it."""
        text = SHOP + more
        for old, new in changed:
            assert old in text, old
            text = text.replace(old, new)
        self.has(pipeline_yaml=text)

    def types(self, line: str) -> Answer:
        """Run a command."""
        done = answer(self._capsys, self.patch, *shlex.split(line)[1:])
        assert "Traceback" not in done.out + done.err
        self.sees(f"$ {line}", done.out.rstrip("\n"), done.err.rstrip("\n"), f"[exit code {done.code}]")
        return done

    def runs(self) -> None:
        """Run the pipeline in this process, as `hayase run --until-idle` does on Spark."""
        Pipeline.from_file("pipeline.yaml").run_until_idle(spark=False)
        self.sees("$ hayase run --until-idle")

    def sees(self, *lines: str) -> None:
        self._seen += [line for line in lines if line]

    def calls(self, name: str, found: object) -> None:
        """What differs from time to time has a name in the golden text."""
        self._names[str(found)] = name

    @property
    def seen(self) -> str:
        text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(self._seen))
        for found, name in self._names.items():
            text = re.sub(rf"(?<![\w.]){re.escape(found)}(?!\w)", name, text)
        text = re.sub(r"\b[0-9a-f]{32}\b", "DIGEST", text)
        return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


Mistake = Callable[[Beginner], None]
MISTAKES: dict[str, Mistake] = {}


def mistake(made: Mistake) -> Mistake:
    """One of the mistakes, by the name of its golden text."""
    MISTAKES[made.__name__.replace("_", "-")] = made
    return made


# ---------------------------------------------------------------------------------------------------- the pipeline file


@mistake
def typo_in_a_column(you: Beginner) -> None:
    you.shop(("amount > 100", "amuont > 100"))
    you.types("hayase check")


@mistake
def unknown_stream_in_a_query(you: Beginner) -> None:
    you.shop(("from orders [Range", "from ordres [Range"))
    you.types("hayase check")
    you.shop(("from orders [Range", "from order [Range"))
    you.types("hayase check")


@mistake
def unknown_word_in_a_window(you: Beginner) -> None:
    you.shop(("[Range 10 minutes]", "[Rang 10 minutes]"))
    you.types("hayase check")
    you.shop(("[Range 10 minutes]", "[Range 10 minuets]"))
    you.types("hayase check")


@mistake
def query_that_is_no_query(you: Beginner) -> None:
    you.shop(("select user, amount from orders", "select user, amount form orders"))
    you.types("hayase check")
    you.shop(("    group by user\n", "    group by\n"))
    you.types("hayase check")
    you.shop(("select user, sum(amount)", "select user sum(amount)"))
    you.types("hayase check")
    you.shop(("sum(amount) as", "sum(amount as"))
    you.types("hayase check")


@mistake
def column_that_is_not_grouped(you: Beginner) -> None:
    you.shop(("select user, sum(amount)", "select id, sum(amount)"))
    you.types("hayase check")


@mistake
def wrong_indentation(you: Beginner) -> None:
    you.shop(("    time: time", "   time: time"))
    you.types("hayase check")
    you.shop(("    time: time", "\ttime: time"))
    you.types("hayase check")


@mistake
def unknown_key_in_the_file(you: Beginner) -> None:
    you.shop(("queries:", "querys:"))
    you.types("hayase check")
    you.shop(("    id: id", "    slak: 10 seconds"), ("home: ./home\n", ""))
    you.types("hayase check")


@mistake
def pipeline_without_a_name(you: Beginner) -> None:
    you.shop(("pipeline: shop\n", ""))
    you.types("hayase check")


@mistake
def stream_without_a_time(you: Beginner) -> None:
    you.shop(("    time: time\n", ""))
    you.types("hayase check")


@mistake
def unknown_type_of_a_column(you: Beginner) -> None:
    you.shop(("amount double", "amount dubble"), ("total: Counter", "total: Conter"))
    you.types("hayase check")


@mistake
def rule_that_is_no_jq(you: Beginner) -> None:
    you.shop((".amount > 0", ".amount >"), ("key: .user,", "key: user,"))
    you.types("hayase check")


@mistake
def rule_for_an_unknown_column(you: Beginner) -> None:
    you.shop(("{total: .amount}", "{totl: .amount}"))
    you.types("hayase check")


@mistake
def module_that_is_not_there(you: Beginner) -> None:
    you.shop(more=JOB)
    you.types("hayase check")


@mistake
def function_that_is_not_there(you: Beginner) -> None:
    you.shop(("functions:size", "functions:sise"), more=JOB)
    you.has(functions_py=FUNCTIONS)
    you.types("hayase check")


@mistake
def module_that_cannot_be_loaded(you: Beginner) -> None:
    you.shop(more=JOB)
    you.has(functions_py="import pandsa\n\n\ndef size(record):\n    return record\n")
    you.types("hayase check")


@mistake
def module_of_an_operation_that_is_not_there(you: Beginner) -> None:
    you.shop(more=OPERATION)
    you.types("hayase check")


@mistake
def function_of_an_operation_that_is_not_there(you: Beginner) -> None:
    you.shop(("functions:score", "functions:scoer"), more=OPERATION)
    you.has(functions_py=FUNCTIONS)
    you.types("hayase check")


# ---------------------------------------------------------------------------------------------------- files and names


@mistake
def no_pipeline_file(you: Beginner) -> None:
    you.types("hayase check")
    you.types("hayase run shop.yaml")
    you.types("hayase append orders orders.ndjson")
    you.types("hayase streams list --home ./home")


@mistake
def no_data_file(you: Beginner) -> None:
    you.shop()
    you.types("hayase append orders order.ndjson")
    you.types("hayase append orders .")
    you.types("hayase query 'select * from orders' --stream orders=order.csv")


@mistake
def data_file_of_an_unknown_kind(you: Beginner) -> None:
    you.shop()
    you.has(orders_txt="hello\n")
    you.types("hayase append orders orders.txt")


@mistake
def append_to_what_takes_no_records(you: Beginner) -> None:
    you.shop()
    you.has(orders_ndjson=_lines())
    you.types("hayase append order orders.ndjson")
    you.types("hayase append spend orders.ndjson")
    you.types("hayase append purchases orders.ndjson")


@mistake
def unknown_stream(you: Beginner) -> None:
    you.shop()
    you.types("hayase streams tail spent")


@mistake
def unknown_table(you: Beginner) -> None:
    you.shop()
    you.types("hayase tables get purchase hana")
    you.types("hayase tables get spend hana")


@mistake
def unknown_key_of_a_table(you: Beginner) -> None:
    you.shop()
    you.has(orders_ndjson=_lines())
    you.types("hayase append orders orders.ndjson")
    you.runs()
    you.types("hayase tables get purchases hanna")
    you.types("hayase tables get purchases ken")
    you.types("hayase tables get purchases hana ken")


@mistake
def unknown_command_or_option(you: Beginner) -> None:
    you.types("hayase chek")
    you.types("hayase streams tial orders")
    you.types("hayase run --untilidle")
    you.types("hayase append")


@mistake
def init_into_a_directory_that_is_not_empty(you: Beginner) -> None:
    you.shop()
    you.types("hayase init . --template tables")
    you.types("hayase init there --template tabels")


# ---------------------------------------------------------------------------------------------------- records


def _lines(*more: dict[str, object]) -> str:
    return "".join(json.dumps(each) + "\n" for each in (*ORDERS, *more))


@mistake
def record_that_does_not_fit(you: Beginner) -> None:
    you.shop()
    broken = {**ORDERS[0], "id": "o4", "amount": "a lot"}
    stranger = {**ORDERS[0], "id": "o5", "colour": "red"}
    timeless = {**ORDERS[0], "id": "o6", "time": None}
    you.has(orders_ndjson=_lines(broken, stranger, timeless) + "{not JSON\n")
    you.types("hayase append orders orders.ndjson")
    _reasons(you)


@mistake
def late_record(you: Beginner) -> None:
    you.shop()
    you.has(orders_ndjson=_lines({**ORDERS[0], "id": "o4", "time": "2026-01-31T11:00:00Z"}))
    you.types("hayase append orders orders.ndjson")
    you.runs()
    _reasons(you)


@mistake
def function_of_a_job_that_raises(you: Beginner) -> None:
    you.shop(more=JOB)
    you.has(orders_ndjson=_lines(), functions_py=FUNCTIONS)
    you.types("hayase append orders orders.ndjson")
    you.runs()
    _reasons(you)


@mistake
def function_of_an_operation_that_raises(you: Beginner) -> None:
    you.shop(more=OPERATION)
    you.has(orders_ndjson=_lines(), functions_py=FUNCTIONS)
    you.types("hayase append orders orders.ndjson")
    you.runs()
    _reasons(you)


def _reasons(you: Beginner) -> None:
    """What stands in the dead letters, as a terminal shows it: stage, record, reason."""
    you.sees("$ hayase streams tail _dead")
    for letter in Pipeline.from_file("pipeline.yaml").dead_letters():
        reason = "\n".join("  " + line for line in letter["reason"].splitlines())
        you.sees(f"{letter['stage']}: {letter['record']}", reason)


# ---------------------------------------------------------------------------------------------------- running


@mistake
def changed_query_that_needs_a_reset(you: Beginner) -> None:
    you.shop()
    you.has(orders_ndjson=_lines())
    you.types("hayase append orders orders.ndjson")
    you.runs()
    you.shop(("[Range 10 minutes]", "[Range 1 hour]"))
    you.types("hayase apply")


@mistake
def home_that_is_in_use(you: Beginner) -> None:
    you.shop()
    with Home(you.place / "home").lock():
        you.types("hayase run")


@mistake
def port_that_is_taken(you: Beginner) -> None:
    you.shop()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        you.calls("8421", port)
        you.types(f"hayase run --plain --serve --address 127.0.0.1:{port}")


@mistake
def request_without_a_token(you: Beginner) -> None:
    you.shop()
    pipeline = Pipeline.from_file("pipeline.yaml")
    pipeline.run_until_idle(spark=False)
    status = Status("running", pipeline.progress())
    with serving(pipeline.home, "127.0.0.1:0", status=status, access=Access("0123456789abcdef")) as server:
        you.calls("127.0.0.1:8421", server.address)
        said = httpx.get(f"{server.url}/streams")
        you.sees(f"$ curl {server.url}/streams", str(said.status_code), said.text)
        said = httpx.get(f"{server.url}/streams", headers={"authorization": "Bearer wrong"})
        you.sees(f"$ curl -H 'Authorization: Bearer wrong' {server.url}/streams", str(said.status_code), said.text)


@mistake
def server_for_others_without_a_token(you: Beginner) -> None:
    you.shop()
    you.types("hayase run --plain --address 0.0.0.0:8421")


@mistake
def no_java(you: Beginner) -> None:
    you.shop()
    (you.place / "empty").mkdir()
    you.patch.delenv("JAVA_HOME", raising=False)
    you.patch.setenv("PATH", str(you.place / "empty"))
    _with_java(you)


@mistake
def java_home_that_has_no_java(you: Beginner) -> None:
    you.shop()
    (you.place / "empty").mkdir()
    you.patch.setenv("JAVA_HOME", str(you.place / "empty"))
    _with_java(you)


@mistake
def java_that_is_too_old(you: Beginner) -> None:
    you.shop()
    java = you.place / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.22\" 2024-01-16' >&2\n")
    java.chmod(0o755)
    you.patch.delenv("JAVA_HOME", raising=False)
    you.patch.setenv("PATH", f"{you.place}:/usr/bin:/bin")
    _with_java(you)


def _with_java(you: Beginner) -> None:
    """What is said of the Java that is found; the doctor looks at nothing else of this machine."""
    from hayase.engine.spark.session import java_version

    facts = Facts(
        system="Linux", python=(3, 11, 7), java=java_version(), cores=2, memory=8 * 10**9, memory_free=4 * 10**9,
        disks={"/": 50 * 10**9}, packages={"pyspark": "4.3.0"}, required={"pyspark": ">=4.3,<4.4"},
    )  # fmt: skip
    you.patch.setattr("hayase.engine.doctor.examine", lambda home: facts)
    you.types("hayase doctor")
    you.types("hayase run --plain --until-idle")


@pytest.fixture
def you(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Beginner]:
    place = tmp_path / "shop"
    place.mkdir()
    monkeypatch.chdir(place)
    # other tests leave directories of templates on the path, which have this module
    monkeypatch.setattr(sys, "path", [each for each in sys.path if not Path(each, "functions.py").exists()])
    monkeypatch.delitem(sys.modules, "functions", raising=False)
    NURSERY.close()  # it keeps the path of its first use
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("HAYASE_TOKEN", raising=False)
    yield Beginner(place, capsys, monkeypatch)
    sys.modules.pop("functions", None)


@pytest.mark.parametrize("name", MISTAKES)
def test_what_is_said(name: str, you: Beginner) -> None:
    MISTAKES[name](you)
    text = GOLDEN / f"{name}.txt"
    if REWRITE:
        text.write_text(you.seen)
    assert you.seen == text.read_text()


def test_every_golden_text_has_its_mistake() -> None:
    assert {each.stem for each in GOLDEN.glob("*.txt")} == set(MISTAKES)
