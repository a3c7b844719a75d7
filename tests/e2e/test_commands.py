"""The command line as a person meets it: real processes, real files, and once a pipeline on Spark."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest

HAYASE = [sys.executable, "-c", "from hayase.cli import main; main()"]


def hayase(*args: str, cwd: Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HAYASE, *args], cwd=cwd, input=stdin, capture_output=True, text=True, timeout=1500, check=False
    )


def rows(done: subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    assert hayase("init", "shop", cwd=tmp_path).returncode == 0
    return tmp_path / "shop"


def test_help_and_check_load_no_more_than_they_need(shop: Path) -> None:
    def loaded(*args: str) -> set[str]:
        script = (
            "import sys\n"
            f"sys.argv = ['hayase', *{list(args)!r}]\n"
            "from hayase.cli import main\n"
            "try:\n    main()\n"
            "finally:\n    print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=shop, capture_output=True, text=True, check=True, timeout=600
        )
        return set(done.stderr.split())

    assert not loaded("--help") & {"pyspark", "duckdb", "numba", "pandas", "pyarrow", "sqlglot"}
    assert "pyspark" not in loaded("check", "pipeline.yaml")


def test_the_first_steps_of_the_template(shop: Path) -> None:
    assert "is sound" in hayase("check", cwd=shop).stdout
    done = hayase("append", "events", "events.ndjson", cwd=shop)
    assert done.stdout == "appended 23 records to events (1 refused: see `hayase dead list`)\n"
    assert len(rows(hayase("streams", "tail", "events", "-n", "30", cwd=shop))) == 23
    assert len(rows(hayase("streams", "tail", "_dead", cwd=shop))) == 1


def test_a_mistake_is_a_line_and_not_a_traceback(shop: Path) -> None:
    file = shop / "pipeline.yaml"
    file.write_text(file.read_text().replace("amount > 100", "prise > 100"))
    done = hayase("check", cwd=shop)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("pipeline.yaml:16:57: unknown column")
    assert len(done.stderr.splitlines()) == 1


def test_a_reader_that_goes_away_ends_the_command_quietly(shop: Path) -> None:
    event = {"time": "2026-01-05T09:00:00Z", "uuid": "x", "type": "view", "user_id": "u" * 50, "amount": 1.0}
    hayase("append", "events", "-", cwd=shop, stdin=(json.dumps(event) + "\n") * 20_000)
    with subprocess.Popen(
        [*HAYASE, "streams", "tail", "events", "-n", "20000"], cwd=shop, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        tail.stdout.readline()
        tail.stdout.close()
        said = tail.stderr.read()
    assert said == b""


def test_ctrl_c_ends_a_tail_quietly(shop: Path) -> None:
    hayase("append", "events", "events.ndjson", cwd=shop)
    with subprocess.Popen(
        [*HAYASE, "streams", "tail", "events", "-n", "1", "-f"],
        cwd=shop,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # ignored where tests run in the background
    ) as tail:
        assert tail.stdout is not None
        tail.stdout.readline()
        tail.send_signal(signal.SIGINT)
        _, said = tail.communicate(timeout=600)
    assert (tail.returncode, said) == (0, b"")


def test_the_doctor_finds_this_machine_fit(tmp_path: Path) -> None:
    done = hayase("doctor", cwd=tmp_path)
    assert "Python" in done.stdout
    assert "Java" in done.stdout
    assert "packages" in done.stdout


@pytest.mark.spark
def test_a_pipeline_runs_until_it_is_idle(shop: Path) -> None:
    hayase("append", "events", "events.ndjson", cwd=shop)
    done = hayase("run", "--until-idle", "--master", "local[2,4]", cwd=shop)
    assert done.returncode == 0, done.stderr
    assert "does not add up" not in done.stdout
    assert len(rows(hayase("streams", "tail", "large", cwd=shop))) == 5


@pytest.mark.spark
@pytest.mark.long
def test_a_pipeline_runs_stops_and_goes_on(shop: Path) -> None:
    test_a_pipeline_runs_until_it_is_idle(shop)
    first = rows(hayase("streams", "tail", "totals", "-n", "100", cwd=shop))

    event = {"time": "2026-01-05T09:04:00Z", "uuid": "x", "type": "purchase", "user_id": "taro", "amount": 1.0}
    with subprocess.Popen(
        [*HAYASE, "run", "--plain", "--master", "local[2,4]"],
        cwd=shop, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as running:  # fmt: skip
        assert running.stdout is not None
        while "waiting for the first batch" not in running.stdout.readline():
            assert running.poll() is None
        second = hayase("run", "--until-idle", cwd=shop)
        assert second.returncode == 1
        assert f"in use by process {running.pid}" in second.stderr
        hayase("append", "events", "-", cwd=shop, stdin=json.dumps(event))
        hayase("streams", "finish", "events", cwd=shop)
        with subprocess.Popen(
            [*HAYASE, "streams", "tail", "totals", "-n", "0", "-f"], cwd=shop, stdout=subprocess.PIPE, text=True
        ) as tail:  # ends with the stream, which ends when its query has seen the end of events
            assert tail.stdout is not None
            tail.stdout.read()
        running.send_signal(signal.SIGTERM)
        said = running.stdout.read()
    assert running.returncode == 0, said
    assert "stopped after" in said
    totals = rows(hayase("streams", "tail", "totals", "-n", "100", cwd=shop))
    assert totals[: len(first)] == first
    appeared = [row for row in totals if row["change"] == "+" and row["user_id"] == "taro"]
    assert [row["orders"] for row in appeared] == list(range(1, 5))


def _group(leader: int) -> list[psutil.Process]:
    """The processes of a group, without its leader."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(process.pid) == leader != process.pid:
                found.append(process)
    return found


@pytest.mark.spark
@pytest.mark.parametrize(
    "command", [["run", "--plain"], pytest.param(["demo", "--plain"], marks=pytest.mark.long)], ids=["run", "demo"]
)
def test_ctrl_c_while_spark_starts_says_what_happens(shop: Path, tmp_path: Path, command: list[str]) -> None:
    java = (
        shutil.which("java") if "JAVA_HOME" not in os.environ else str(Path(os.environ["JAVA_HOME"]) / "bin" / "java")
    )
    slow = tmp_path / "java-home" / "bin" / "java"  # Spark does not start before Ctrl-C, however busy the machine is
    slow.parent.mkdir(parents=True)
    slow.write_text(
        f'#!/bin/sh\ncase "$*" in *launcher.Main*|-version) exec {java} "$@";; esac\nwhile :; do sleep 1; done\n'
    )
    slow.chmod(0o755)
    with subprocess.Popen(
        [*HAYASE, *command],
        cwd=shop, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "JAVA_HOME": str(slow.parent.parent)},
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        start_new_session=True,
    ) as run:  # fmt: skip
        assert run.stdout is not None
        while "starting Spark" not in run.stdout.readline():
            pass
        started: list[psutil.Process] = []
        while not any("SparkSubmit" in " ".join(process.info["cmdline"] or ()) for process in started):
            psutil.wait_procs([psutil.Process(run.pid)], timeout=0.1)
            started = _group(run.pid)
        os.killpg(run.pid, signal.SIGINT)  # as a terminal does
        said = run.stdout.read()
    assert run.returncode == 130
    assert said.splitlines()[-1] == "stopping: Spark was still starting, and nothing was processed"
    assert "Traceback" not in said
    _, left = psutil.wait_procs(started, timeout=600)
    assert not left
