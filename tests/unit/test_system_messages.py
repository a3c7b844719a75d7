"""What the machine lacks is told in one line of cause and one of remedy, without a traceback."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

import hayase as hy
from command_line import Command
from hayase.core.errors import EnvironmentUnfit, LaneFailed
from hayase.engine.doctor import diagnose, examine
from hayase.engine.spark import session
from hayase.engine.spark.failures import failure_of, translated

LOG = Path("home/logs/spark.log")
PIPELINE = """
pipeline: shop
streams:
  orders: {schema: "time timestamp, user string", time: time}
queries:
  q: select user from orders
"""


def two_lines(text: str) -> tuple[str, str]:
    cause, remedy = text.removeprefix("error: ").strip().splitlines()
    return cause, remedy


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    return tmp_path


def test_a_home_that_is_a_file(project: Path, hayase_: Command) -> None:
    (project / "file").write_text("")
    told = hayase_("run", "--home", "file")
    assert told.code == 1
    cause, remedy = two_lines(told.err)
    assert cause == f"a file is in the place of a folder: {project / 'file'}"
    assert "--home" in remedy


@pytest.mark.parametrize(
    "command",
    [
        "streams list",
        "streams tail orders",
        "streams export orders o.csv",
        "streams compact",
        "dead list",
        "dead show 0",
    ],
)
def test_reading_a_home_that_is_a_file(project: Path, hayase_: Command, command: str) -> None:
    (project / "file").write_text("")
    told = hayase_(*command.split(), "--home", "file")
    assert told.code == 1
    assert told.out == ""
    cause, remedy = two_lines(told.err)
    assert cause.startswith("a file is in the place of a folder:")
    assert "--home" in remedy


@pytest.fixture
def read_only(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a table that nothing may be written to, as far as this process asks the system."""
    (project / "pipeline.yaml").write_text("""
pipeline: shop
streams:
  orders: {schema: "time timestamp, user string", time: time, id: user}
tables:
  seen: {key: user, columns: {count: Counter}}
rules: {source: orders, rules: [{tables: {seen: {key: .user, columns: {count: "1"}}}}]}
""")
    p = hy.Pipeline.from_file("pipeline.yaml")
    p.append("orders", [{"time": f"2026-01-01T00:00:0{at}Z", "user": "ab"[at % 2]} for at in range(5)])
    p.run_until_idle(spark=False)
    (p.home.table("seen") / "rocksdict-config.json").unlink()
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    return p.home.path


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("tables get seen a", '{"user":"a","count":3}'),
        ("tables scan seen", '"count":2'),
        ("tables list", '"name":"seen"'),
        ("tables export seen ../seen.ndjson", "2 rows"),
        ("plan pipeline.yaml", "kept"),
        ("home verify shop", "is sound"),
    ],
)
def test_a_home_that_cannot_be_written_can_be_read(read_only: Path, hayase_: Command, command: str, shown: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in read_only.rglob("*")}
    told = hayase_(*command.split())
    assert told.code == 0, told.err
    assert shown in told.out
    assert {path: path.stat().st_mtime_ns for path in read_only.rglob("*")} == before


def test_a_table_that_the_system_refuses_is_not_sound(
    read_only: Path, hayase_: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: object, **options: object) -> None:
        raise OSError("Read-only file system (os error 30)")

    monkeypatch.setattr("hayase.tables.rocksdb.rocksdict.Rdict", refused)
    told = hayase_("home", "verify", "shop")
    assert told.code == 1
    cause, remedy = two_lines(told.err)
    assert 'table "seen" cannot be used' in cause
    assert "make it writable" in remedy


@pytest.mark.parametrize(
    ("number", "words"), [(errno.EROFS, "read-only"), (errno.ENOSPC, "the disk is full"), (errno.EACCES, "may not")]
)
def test_a_home_that_cannot_be_written(
    project: Path, hayase_: Command, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def refused(path: str, *more: object) -> int:
        raise OSError(number, os.strerror(number), str(path))

    with monkeypatch.context() as patched:
        patched.setattr("hayase.engine.home.os.open", refused)
        told = hayase_("run")
    cause, _ = two_lines(told.err)
    assert words in cause
    assert str(project) in cause


def test_too_few_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "java_version", lambda *build: 17)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 256))
    with pytest.raises(EnvironmentUnfit) as caught:
        session.open_session("local[2]")
    cause, remedy = two_lines(str(caught.value))
    assert "256 files" in cause
    assert "ulimit -n" in remedy
    assert [each.state for each in diagnose(examine()) if each.what == "open files"] == ["missing"]


@pytest.mark.parametrize(
    ("said", "cause", "again"),
    [
        ("Job aborted\njava.io.IOException: No space left on device", "the disk is full", "never"),
        ("x\nOSError: [Errno 28] No space left on device: '/h/staged/main/1'", "the disk is full", "never"),
        ("java.io.FileNotFoundException: /a/b (Too many open files)", "Spark may not open more files", "never"),
        ("java.nio.file.NoSuchFileException: /tmp/hayase-spark-1-x/blockmgr-2/0b", "temporary folder", "never"),
        ('Cannot run program "/tmp/hayase-spark-1-x/python": error=2', "temporary folder", "never"),
        ("Python worker failed to connect back.", "took too long", "slow"),
        ("Broken pipe\n=== Streaming Query ===", "a process beside Spark was lost", "passing"),
        (
            "py4j.protocol.Py4JJavaError: An error occurred while calling o480.collectToPython.\n: "
            "org.apache.spark.SparkException: Job aborted due to stage failure: A shuffle map stage with indeterminate output "
            "was failed and retried. However, Spark cannot rollback the ResultStage 31",
            "an executor was lost",
            "passing",
        ),
        ("[STREAM_FAILED] terminated with exception: SQLSTATE: XXKST (no cause message)", "was lost", "passing"),
        ("Traceback\nhayase.core.errors.DamagedState: the manifest m cannot be read", "the manifest m", "never"),
        ("Traceback\nValueError: no such thing", "ValueError: no such thing", "never"),
    ],
)
def test_what_spark_says(said: str, cause: str, again: str) -> None:
    failure = failure_of(said, LOG)
    assert cause in failure.cause
    assert failure.again == again
    assert len(str(failure).splitlines()) <= 2


@pytest.mark.parametrize("behind", ["", " SQLSTATE: 38000\n\tat org.apache.spark", "\n=== Streaming Query ===\nx"])
def test_an_error_of_a_worker_keeps_its_remedy(behind: str) -> None:
    said = (
        "Job aborted: Traceback (most recent call last):\n"
        "hayase.core.errors.EnvironmentUnfit: the data /h/e cannot be written: [Errno 28] No space left on device\n"
        f"free some space there, then try again: nothing is lost\n{behind}"
    )
    cause, remedy = two_lines(str(failure_of(said, LOG)))
    assert cause.startswith("the data /h/e cannot be written")
    assert remedy == "free some space there, then try again: nothing is lost"


@pytest.mark.parametrize(
    "behind", [" SQLSTATE: 38000", "\tat org.apache.spark", "=== Streaming Query ===", "", "\n\nx"]
)
def test_an_error_of_a_worker_of_one_line_has_no_foreign_remedy(behind: str) -> None:
    said = f"Traceback\nhayase.core.errors.DamagedState: the manifest m cannot be read; put back a copy\n{behind}"
    assert str(failure_of(said, LOG)) == "the manifest m cannot be read; put back a copy"


def test_a_jvm_that_is_gone() -> None:
    with pytest.raises(LaneFailed) as caught, translated(LOG):
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    cause, remedy = two_lines(str(caught.value))
    assert "the JVM" in cause
    assert str(LOG) in remedy


def test_damaged_state_names_its_stage(tmp_path: Path) -> None:
    p = hy.Pipeline("shop", tmp_path)
    p.stream("s", "t bigint, x bigint", time="t", time_unit="ms")
    p.query("sums", "select sum(x) as s from s [Range 10 seconds]")
    p.append("s", [{"t": 1, "x": 1}])
    p.run_until_idle(spark=False)
    for path in (tmp_path / "state").rglob("*.state"):
        path.write_bytes(b"")
    p.append("s", [{"t": 2, "x": 1}])
    with pytest.raises(hy.HayaseError, match=r'stage "sums" .*hayase reset sums --from earliest'):
        p.run_until_idle(spark=False)
