"""Sources and outputs of a pipeline: declared, checked, run in this process, listed, paused; with parts of the user's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

import hayase as hy
from command_line import Command
from hayase.connectors import status
from hayase.connectors.status import ConnectorStatus, pause, resume, status_of
from hayase.connectors.supervision import Connectors
from hayase.connectors.transfers import run_transfer
from hayase.core.connector_data import declared_output, declared_source
from hayase.core.connector_fields import OUTPUTS, SOURCES
from hayase.core.declarations import OutputDeclaration, PipelineDeclaration, SourceDeclaration
from hayase.core.errors import DeclarationError, EndpointError
from hayase.core.pipeline_file import read_pipeline
from hayase.core.pipeline_text import pipeline_text
from hayase.engine.commit.housekeeping import run_housekeeping
from hayase.engine.definition.check import check_file
from hayase.engine.definition.diff import preview
from hayase.serving.connector_figures import connector_notices
from library_stand_ins import replace_in

NUMBERS = "connector_parts:Numbers"
FILE = "connector_parts:FileSink"

PIPELINE = """
pipeline: shop
streams:
  orders:
    schema: "time timestamp, user string, amount double, key string"
    time: time
    from:
      kafka:
        brokers: localhost:9092
        topic: orders
        start: latest
        key_column: key
        tls: true
        sasl: SCRAM-SHA-256
        username: shop
        password_env: SHOP_PASSWORD
queries:
  spend: select user, sum(amount) as total from orders group by user
outputs:
  alerts: {reads: spend, to: {kafka: {brokers: "localhost:9092", topic: alerts, emit: upserts, key: [user]}}}
  raw: {reads: orders, to: {kafka: {brokers: "localhost:9092", topic: raw, emit: rows}}}
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text(text)
    return path


def mistakes_in(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(DeclarationError) as caught:
        check_file(read_pipeline(written(tmp_path, text), partly=True))
    return [f"{mistake.line}: {mistake.message}" for mistake in caught.value.mistakes]


def test_a_file_declares_sources_and_outputs(tmp_path: Path) -> None:
    declared = read_pipeline(written(tmp_path, PIPELINE)).declaration
    assert [(source.stream, source.kind) for source in declared.sources] == [("orders", "kafka")]
    assert declared.sources[0].values["start"] == "latest"
    assert declared.sources[0].values["tls"] is True
    assert [(output.name, output.reads, output.values["emit"]) for output in declared.outputs] == [
        ("alerts", "spend", "upserts"),
        ("raw", "orders", "rows"),
    ]
    assert PipelineDeclaration.from_json(orjson.loads(orjson.dumps(declared.as_json()))) == declared
    again = read_pipeline(written(tmp_path, pipeline_text(declared))).declaration
    assert again == declared


@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        ("start: latest", "strat: latest", '11: the source of stream "orders" has no option "strat"'),
        ("start: latest", "start: never", '11: start of the source of stream "orders" is "never"'),
        ("        topic: orders\n", "", '8: the source of stream "orders" has no topic'),
        ("password_env: SHOP_PASSWORD", "password: abc", '16: the source of stream "orders" has the secret "password"'),
        ("username: shop\n", "\n", '14: sasl needs a name and a password in the source of stream "orders"'),
        ("tls: true", "tls_ca: ca.pem", '13: tls_ca without tls in the source of stream "orders"'),
        ("key_column: key", "key_column: kee", '4: key_column of the source of stream "orders" names the unknown column "kee"'),
        ("kafka:\n        brokers", "kafak:\n        brokers", '8: the source of stream "orders" has the unknown kind "kafak"'),
        ("reads: spend", "reads: spent", '20: output "alerts" reads the unknown "spent"'),
        ("key: [user]", "key: [usr]", '20: the key of output "alerts" has the unknown column "usr"'),
        (", key: [user]", "", '20: upserts without a key in output "alerts"'),
        ("to: {kafka: {brokers: \"localhost:9092\", topic: raw, emit: rows}}", "too: {}", '21: output "raw" has no "too"'),
    ],
)  # fmt: skip
def test_mistakes_are_found_in_their_places(tmp_path: Path, old: str, new: str, mistake: str) -> None:
    assert any(found.startswith(mistake) for found in mistakes_in(tmp_path, PIPELINE.replace(old, new))), mistakes_in(
        tmp_path, PIPELINE.replace(old, new)
    )


UPSERTS = """
pipeline: shop
streams:
  users:
    schema: "op string, at timestamp, id string, name string"
    time: at
    changes: op
    from: {kafka: {brokers: "localhost:9092", topic: users, upserts: true, key_column: id, timestamp_column: at}}
queries:
  names: select name, count(*) as users from users group by name
"""


@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        (", key_column: id", "", '8: upserts without key_column in the source of stream "users"'),
        (", timestamp_column: at", "", '8: upserts without timestamp_column in the source of stream "users"'),
        ("    changes: op\n", "", '4: stream "users" gets upserts and does not say which column has the sign'),
        ("changes: op", "changes: op\n    retention: {age: 1 day}", '4: stream "users" has a retention'),
        ("timestamp_column: at", "timestamp_column: name", '4: upserts of stream "users" get their time in "name"'),
        ("key_column: id", "key_column: op", '4: key_column of the source of stream "users" names "op"'),
        ("id string", "id bigint", '4: key_column of the source of stream "users" names "id"'),
    ],
)  # fmt: skip
def test_upserts_that_cannot_be_are_refused(tmp_path: Path, old: str, new: str, mistake: str) -> None:
    check_file(read_pipeline(written(tmp_path, UPSERTS), partly=True))
    found = mistakes_in(tmp_path, UPSERTS.replace(old, new))
    assert any(one.startswith(mistake) for one in found), found


def test_a_secret_is_not_repeated_in_the_message(tmp_path: Path) -> None:
    text = PIPELINE.replace("password_env: SHOP_PASSWORD", "password: hunter2")
    assert not any("hunter2" in found for found in mistakes_in(tmp_path, text))


TABLE = """
pipeline: shop
streams:
  orders: {schema: "time timestamp, id string, user string, amount double", time: time, id: id}
tables:
  totals: {key: user, columns: {total: Counter}}
rules:
  source: orders
  rules:
    - tables: {totals: {key: .user, columns: {total: .amount}}}
outputs:
  mart: {reads: totals, to: {postgres: {dsn_env: SHOP_DSN, table: totals, key: user}}}
"""
TO = "postgres: {dsn_env: SHOP_DSN, table: totals, key: user}"


@pytest.mark.parametrize(
    "to",
    [
        TO,
        'kafka: {brokers: "localhost:9092", topic: totals, emit: upserts, key: user}',
        "delta: {path: totals, emit: mirror, key: user}",
        'webhook: {url: "https://localhost/", emit: rows}',
    ],
)
def test_an_output_mirrors_a_table(tmp_path: Path, to: str) -> None:
    check_file(read_pipeline(written(tmp_path, TABLE.replace(TO, to)), partly=True))


@pytest.mark.parametrize(
    ("to", "mistake"),
    [
        ("postgres: {dsn_env: SHOP_DSN, table: totals}", "with another key than that of the table"),
        ("postgres: {dsn_env: SHOP_DSN, table: totals, mode: history}", "with mode: history"),
        ('kafka: {brokers: "localhost:9092", topic: totals}', "with emit: changes"),
        ("delta: {path: totals, emit: mirror, key: total}", "with another key than that of the table"),
        ("delta: {path: totals}", "with emit: changes"),
        ('webhook: {url: "https://localhost/"}', "with emit: changes"),
        ("parquet: {path: totals}", "and parquet keeps changes"),
        ("iceberg: {path: totals, table: a.totals}", "and iceberg keeps changes"),
    ],
)
def test_an_output_of_a_table_that_keeps_changes_is_refused(tmp_path: Path, to: str, mistake: str) -> None:
    (found,) = mistakes_in(tmp_path, TABLE.replace(TO, to))
    assert 'output "mart" reads the table "totals"' in found
    assert mistake in found


def test_a_plan_names_sources_and_outputs(tmp_path: Path) -> None:
    declared = read_pipeline(written(tmp_path, PIPELINE)).declaration
    p = hy.Pipeline("shop", home=tmp_path / "home")
    p.declaration = declared
    p.apply()
    changed = read_pipeline(
        written(tmp_path, PIPELINE.replace("topic: alerts", "topic: alarms").replace("  raw:", "  copy:"))
    ).declaration
    fates = {(one.kind, one.name): one.fate for one in preview(p.home, changed).differences}
    assert fates["source", "orders"] == "kept"
    assert fates["output", "alerts"] == "changed in place"
    assert fates["output", "copy"] == "added"
    assert fates["output", "raw"] == "removed"


def numbers(home: Path, count: int = 20, file: str = "out.txt", **options: str) -> hy.Pipeline:
    p = hy.Pipeline("numbers", home=home)
    source = hy.PythonClass(NUMBERS, count=str(count), **options)
    p.stream("numbers", "time timestamp, n bigint", slack="1 minute", source=source)
    p.query("sums", "select n % 2 as odd, sum(n) as total from numbers group by n % 2")
    p.output("file", reads="sums", to=hy.PythonClass(FILE, file=str(home.parent / file)))
    return p


def test_a_run_reads_what_there_is_and_writes_what_comes_out(tmp_path: Path) -> None:
    p = numbers(tmp_path / "home")
    p.run_until_idle(spark=False)
    assert p.stream("numbers").table().column("n").to_pylist() == list(range(20))
    p.run_until_idle(spark=False)
    assert p.stream("numbers").table().num_rows == 20
    p.finish("numbers")
    p.run_until_idle(spark=False)
    lines = (tmp_path / "out.txt").read_text().splitlines()
    assert sum(not line.startswith("at") for line in lines) == len(p.query("sums").changes())
    p.run_until_idle(spark=False)
    assert (tmp_path / "out.txt").read_text().splitlines() == lines


def test_after_a_reset_the_target_is_written_anew(tmp_path: Path) -> None:
    p = numbers(tmp_path / "home")
    p.run_until_idle(spark=False)
    p.finish("numbers")
    p.run_until_idle(spark=False)
    changes = len(p.query("sums").changes())
    p.reset("sums")
    p.run_until_idle(spark=False)
    lines = (tmp_path / "out.txt").read_text().splitlines()
    assert sum(not line.startswith("at") for line in lines) == changes


def test_an_endpoint_that_cannot_be_reached_is_an_error_of_a_run_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hayase.connectors.transfers.GIVE_UP", 0.1)
    p = numbers(tmp_path / "home", broken="yes")
    with pytest.raises(EndpointError, match="the numbers are gone; look for them"):
        p.run_until_idle(spark=False)


def test_a_paused_source_is_left_out(tmp_path: Path) -> None:
    p = numbers(tmp_path / "home")
    p.apply()
    assert pause(p.home, "sources", "numbers")
    assert not pause(p.home, "sources", "numbers")
    p.run_until_idle(spark=False)
    assert p.stream("numbers").table().num_rows == 0
    assert status_of(p.home, "sources", p.declaration.sources[0]).state == "paused"
    assert resume(p.home, "sources", "numbers")
    p.run_until_idle(spark=False)
    assert p.stream("numbers").table().num_rows == 20


def test_a_source_that_fails_says_when_it_is_tried_again(tmp_path: Path) -> None:
    p = numbers(tmp_path / "home", broken="yes")
    p.apply()
    source, waits = p.declaration.sources[0], list[ConnectorStatus]()

    def stopping(seconds: float) -> bool:
        if seconds:
            waits.append(status_of(p.home, "sources", source))
        return len(waits) == 4

    with p.home.lock():
        run_transfer(p.home, p.declaration, source, stopping)
    assert [(status.state, status.attempts, status.failures) for status in waits] == [
        ("retrying", 1, 1), ("retrying", 2, 2), ("retrying", 3, 3), ("retrying", 3, 3),
    ]  # fmt: skip
    assert [(status.again or 0) - (status.failed or 0) for status in waits] == [
        500_000,
        1_000_000,
        2_000_000,
        2_000_000,
    ]
    ended = status_of(p.home, "sources", source)
    assert (ended.state, ended.error, ended.attempts) == ("stopped", None, 0)
    assert (ended.last_error, ended.failures) == ("the numbers are gone; look for them", 3)


def test_what_waits_is_known_of_an_output_whose_target_is_down(tmp_path: Path) -> None:
    p = hy.Pipeline("numbers", home=tmp_path / "home")
    p.stream("numbers", "time timestamp, n bigint")
    p.output("there", reads="numbers", to=hy.Webhook(url="http://127.0.0.1:1/"))
    p.append("numbers", [{"time": f"2026-01-01T00:00:0{n}Z", "n": n} for n in range(5)])
    p.finish("numbers")
    waits = list[ConnectorStatus]()

    def stopping(seconds: float) -> bool:
        if seconds:
            waits.append(status_of(p.home, "outputs", p.declaration.outputs[0]))
        return len(waits) == 2  # the first write fails, then the attempt to open it

    p.apply()
    with p.home.lock():
        run_transfer(p.home, p.declaration, p.declaration.outputs[0], stopping)
    assert [(status.state, status.lag, status.records) for status in waits] == [("retrying", 5, 0)] * 2
    assert "Connection refused" in (waits[0].error or "")


def test_a_pause_ends_the_wait_for_the_next_attempt(tmp_path: Path) -> None:
    p = numbers(tmp_path / "home", broken="yes")
    p.apply()
    source, waits = p.declaration.sources[0], list[float]()

    def stopping(seconds: float) -> bool:
        if seconds:
            waits.append(seconds)
        if len(waits) == 3:
            pause(p.home, "sources", "numbers")
        return len(waits) == 4

    with p.home.lock():
        run_transfer(p.home, p.declaration, source, stopping)
        assert waits == [0.5, 1.0, 1.0, 0.2]  # not the second of two seconds
        resume(p.home, "sources", "numbers")
        waits.clear()
        run_transfer(p.home, p.declaration, source, stopping)
    assert waits[0] == 0.5


def test_a_status_stays_fresh_between_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not written for half a minute counts as that of a process that has ended, and attempts may be further apart."""
    p = numbers(tmp_path / "home", broken="yes")
    p.apply()
    source, moment, states = p.declaration.sources[0], [1_000_000.0], set[str]()
    monkeypatch.setattr("hayase.connectors.status.now_us", lambda: round(moment[0] * 1e6))
    replace_in(monkeypatch, status, "time", monotonic=lambda: moment[0])

    def stopping(seconds: float) -> bool:
        if seconds:
            moment[0] += seconds + 4  # an attempt takes its time too
            states.add(status_of(p.home, "sources", source).state)
        return moment[0] > 1_000_200

    with p.home.lock():
        run_transfer(p.home, p.declaration, source, stopping)
    assert states == {"retrying"}


def test_targets_in_a_few_words(tmp_path: Path) -> None:
    declared = read_pipeline(written(tmp_path, PIPELINE)).declaration
    assert declared.sources[0].target == "topic orders at localhost:9092"
    assert numbers(tmp_path / "home").declaration.outputs[0].target == FILE
    for tables, needed in ((SOURCES, "orders"), (OUTPUTS, "alerts")):
        for kind, fields in tables.items():
            options = tuple((field.name, "x") for field in fields if field.required)
            connector = (
                SourceDeclaration(needed, kind, options)
                if tables is SOURCES
                else OutputDeclaration(needed, "q", kind, options)
            )
            assert "x" in connector.target, kind


def test_retention_keeps_what_an_output_has_not_delivered(tmp_path: Path) -> None:
    p = hy.Pipeline("numbers", home=tmp_path / "home")
    p.stream("numbers", "time timestamp, n bigint", max_ahead=None, retention=hy.Retention(age=0))
    p.output("file", reads="numbers", to=hy.PythonClass(FILE, file=str(tmp_path / "out.txt")))
    p.append("numbers", [{"time": "2026-01-01T00:00:00Z", "n": 1}])
    p.apply()
    pause(p.home, "outputs", "file")
    p.run_until_idle(spark=False)
    run_housekeeping(p.home, int(time.time() * 1e6) + 10**12)
    assert p.stream("numbers").table().num_rows == 1
    resume(p.home, "outputs", "file")
    p.run_until_idle(spark=False)
    assert "'n': 1" in (tmp_path / "out.txt").read_text()
    run_housekeeping(p.home, int(time.time() * 1e6) + 10**12)
    assert p.stream("numbers").table().num_rows == 0


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_process_that_dies_is_a_problem_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent.parent)  # where the module of the source lies
    p = numbers(tmp_path / "home", dies="yes")
    p.apply()
    source = p.declaration.sources[0]
    with p.home.lock(), Connectors(p.home):
        wait_for(lambda: status_of(p.home, "sources", source).attempts >= 2)
        dying = status_of(p.home, "sources", source)
        (problem,) = [notice.text for notice in connector_notices([dying], dying.again or 0)]
    assert dying.state == "retrying"
    assert (dying.error or "").startswith("its process has ended by SIGKILL; see ")
    assert problem.startswith(
        'the source of "numbers" failed 2 times and is being tried again: its process has ended by SIGKILL'
    )


def test_processes_of_connectors_start_change_and_end_with_the_definition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parent.parent)  # where the module of the source lies
    p = numbers(tmp_path / "home", count=5)
    p.apply()

    def count() -> int:
        return p.stream("numbers").table().num_rows

    def states() -> dict[str, str]:
        return {
            "source": status_of(p.home, "sources", p.declaration.sources[0]).state if p.declaration.sources else "none",
            "output": status_of(p.home, "outputs", p.declaration.outputs[0]).state if p.declaration.outputs else "none",
        }

    with p.home.lock(), Connectors(p.home):
        wait_for(lambda: count() == 5)
        wait_for(lambda: states()["source"] == "running")
        pause(p.home, "sources", "numbers")
        changed = numbers(tmp_path / "home", count=9)
        changed.apply()
        p.declaration = changed.declaration
        wait_for(lambda: states()["source"] == "paused")
        resume(p.home, "sources", "numbers")
        wait_for(lambda: count() == 9)
    assert states() == {"source": "stopped", "output": "stopped"}
    assert p.stream("numbers").table().column("n").to_pylist() == list(range(9))


def test_commands_list_show_pause_and_resume(tmp_path: Path, hayase_: Command) -> None:
    file = written(tmp_path, PIPELINE)
    listed = hayase_("sources", "list", "--pipeline", str(file), "--json")
    assert orjson.loads(listed.out)["state"] == "stopped"
    shown = hayase_("outputs", "show", "alerts", "--pipeline", str(file), "--json")
    assert orjson.loads(shown.out)["options"]["topic"] == "alerts"
    assert "raw is paused" in hayase_("outputs", "pause", "raw", "--pipeline", str(file)).out
    assert "was paused already" in hayase_("outputs", "pause", "raw", "--pipeline", str(file)).out
    table = hayase_("outputs", "list", "--pipeline", str(file))
    assert "paused" in table.out
    assert "raw goes on" in hayase_("outputs", "resume", "raw", "--pipeline", str(file)).out
    unknown = hayase_("sources", "pause", "order", "--pipeline", str(file))
    assert unknown.code == 1


def test_python_and_files_declare_the_same() -> None:
    in_file = declared_source("orders", {"kafka": {"brokers": "b:1", "topic": "t", "tls": "true"}})
    in_python = declared_source("orders", hy.Kafka(brokers="b:1", topic="t", tls=True).data)
    assert in_file == in_python
    to = {"kafka": {"brokers": "b:1", "topic": "t", "emit": "upserts", "key": ["a", "b"]}}
    assert declared_output("o", {"reads": "q", "to": to}) == declared_output(
        "o", {"reads": "q", "to": hy.Kafka(brokers="b:1", topic="t", emit="upserts", key=["a", "b"]).data}
    )


def test_drafts_of_killed_processes_are_removed(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.ndjson").write_text('{"time": "2026-01-01T00:00:00Z", "n": 1}\n')
    p = hy.Pipeline("numbers", home=tmp_path / "home")
    p.stream("s", "time timestamp, n bigint", source=hy.Files(path=str(tmp_path / "files")))
    p.output("copy", reads="s", to=hy.Parquet(path=str(tmp_path / "out")))
    p.apply()
    left = [tmp_path / "home" / place / "x.json.1-0.tmp" for place in ("sources/s", "sources/s/files", "outputs/copy")]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    p.run_until_idle(spark=False)
    assert [path for path in left if path.exists()] == []
