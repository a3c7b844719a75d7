"""Start: from a command to its first result, by phases, with and without the class archive; `--help`, and a query over a file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import psutil

from benchmarks.measure import alternate, median

PHASES = ("imports", "JVM", "session", "first plan", "first batch", "commit")
VARIANTS = {
    "archive": {},
    "no archive": {"HAYASE_CLASS_ARCHIVE": "0"},
    "no archive, all compilers": {"HAYASE_CLASS_ARCHIVE": "0", "JAVA_OPTIONS": "-XX:TieredStopAtLevel=4"},
}
"""Environments of a run. The last one is how Spark starts by default."""
QUERY = "select user, sum(amount) as spend from orders [Range 1 minute] group by user"
ORDERS = "time,user,amount\n2026-01-31T12:00:00Z,taro,1.0\n2026-01-31T12:00:01Z,hana,2.0\n"


def run(*, quick: bool, out: Path) -> dict[str, Any]:
    """Start the same pipeline and the same commands in turn, each in a process of its own. CPU seconds are those of all processes
    of a start; on a busy machine they say more than the wall clock."""
    _record_archive()
    repetitions = 1 if quick else 5
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as directory:
        home = _prepared_home(Path(directory))
        starts = alternate(
            repetitions, {name: partial(_start, home, variables) for name, variables in VARIANTS.items()}
        )
        (Path(directory) / "orders.csv").write_text(ORDERS)
        query = ["query", QUERY, "-s", "orders=orders.csv", "--time", "time"]
        commands = alternate(
            3 * repetitions,
            {"--help": partial(_command, ["--help"], directory), "query": partial(_command, query, directory)},
        )
    phases = {
        name: {
            unit: {phase: median([start[unit][phase] for start in measured]) for phase in PHASES}
            for unit in ("seconds", "cpu_seconds")
        }
        for name, measured in starts.items()
    }
    draw(phases, out / "start.png")
    seconds, cpu = (
        {name: sum(told[unit].values()) for name, told in phases.items()} for unit in ("seconds", "cpu_seconds")
    )
    shown = {
        command: {
            "seconds": median([wall for wall, _ in measured]),
            "cpu_seconds": median([cpu for _, cpu in measured]),
        }
        for command, measured in commands.items()
    }
    bare, plain = list(VARIANTS)[1:]
    return {
        "phases": phases,
        "to_first_commit_seconds": seconds,
        "to_first_commit_cpu_seconds": cpu,
        "commands": shown,
        "ratios": {
            "first committed batch, CPU seconds, with archive to without": cpu["archive"] / cpu[bare],
            "first committed batch, seconds, with archive to without": seconds["archive"] / seconds[bare],
            "first committed batch, CPU seconds, with archive to Spark's defaults": cpu["archive"] / cpu[plain],
            "first committed batch, seconds, with archive to Spark's defaults": seconds["archive"] / seconds[plain],
            "first committed batch to 8 seconds (at most 1)": seconds["archive"] / 8,
            "a query over a small file to half a second (at most 1)": shown["query"]["seconds"] / 0.5,
            "--help to a quarter of a second (at most 1)": shown["--help"]["seconds"] / 0.25,
        },
    }


def _record_archive() -> None:
    from hayase.engine.spark.class_archive import class_archive
    from hayase.engine.spark.class_recorder import record
    from hayase.engine.spark.session import java_build

    archive = class_archive(java_build() or "", {})
    if archive is None or not (archive.file or record(archive)):
        raise RuntimeError("no class archive can be recorded here")


def _prepared_home(directory: Path) -> Path:
    from hayase import Pipeline

    pipeline = Pipeline("start", home=directory / "home")
    pipeline.stream("orders", "time timestamp, user string, amount double", time="time")
    pipeline.query("spend", QUERY)
    pipeline.append("orders", [{"time": "2026-01-31T12:00:00Z", "user": "taro", "amount": 1.0}])
    pipeline.finish("orders")
    pipeline.apply()
    return directory / "home"


def _start(home: Path, variables: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Run a copy of the home until its first commit, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="hayase-bench-") as directory:
        shutil.copytree(home, Path(directory) / "home")
        program = "from benchmarks.start import first_commit; first_commit()"
        command = [sys.executable, "-c", program, f"{directory}/home", f"{directory}/phases.json"]
        subprocess.run(command, env=os.environ | variables, check=True, stdout=subprocess.DEVNULL)
        return orjson.loads((Path(directory) / "phases.json").read_bytes())


def first_commit() -> None:
    """Run the home named by the first argument until its first commit; write the duration of each phase to the second."""
    process = psutil.Process()
    marks: list[tuple[float, float]] = [(process.create_time(), 0.0)]

    def mark() -> None:
        running = [process, *process.children(recursive=True)]
        marks.append((time.time(), sum(sum(each.cpu_times()[:4]) for each in running)))

    from pyspark.core import context

    from hayase.engine.home import Home, log_file
    from hayase.engine.spark.class_archive import JAVA_OPTIONS
    from hayase.engine.spark.runner import run_lanes
    from hayase.engine.spark.session import local_master, open_session, warm_up

    mark()
    context.launch_gateway = _followed(context.launch_gateway, mark)
    home, java_options = Home(Path(sys.argv[1])), os.environ.get("JAVA_OPTIONS")
    settings = {} if java_options is None else {JAVA_OPTIONS: java_options}
    session = open_session(local_master(), log=log_file(home), settings=settings)
    warm_up(session)
    mark()
    with run_lanes(home, session=session, on_commit=lambda manifest: mark() if len(marks) == 4 else None) as lanes:
        while len(marks) < 5 or not session.streams.active or not session.streams.active[0].recentProgress:
            lanes.check()
            time.sleep(0.01)
        durations = session.streams.active[0].recentProgress[0].durationMs
    seconds, cpu = ([after[at] - before[at] for before, after in pairwise(marks)] for at in (0, 1))
    work = durations.get("addBatch", 0) / 1000
    commit = (durations.get("commitOffsets", 0) + durations.get("walCommit", 0)) / 1000
    plan = max(0.0, seconds[3] - work)
    result = {
        "seconds": dict(zip(PHASES, (*seconds[:3], plan, min(work, seconds[3]), commit))),
        "cpu_seconds": dict(zip(PHASES, (*cpu[:3], 0.0, cpu[3], 0.0))),  # of plan, batch and commit together
    }
    Path(sys.argv[2]).write_bytes(orjson.dumps(result))


def _followed(function: Callable[..., Any], then: Callable[[], None]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        then()
        return result

    return call


def _command(arguments: Sequence[str], directory: str) -> tuple[float, float]:
    """Return the seconds and the CPU seconds of a command."""
    began = time.perf_counter()
    program = [sys.executable, "-c", "from hayase.cli import program; program()", *arguments]
    child = subprocess.Popen(program, cwd=directory, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{arguments} ended with {child.returncode}")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


def draw(phases: Mapping[str, Mapping[str, Mapping[str, float]]], path: Path) -> None:
    """Draw a bar of phases for each variant, by the wall clock and by CPU time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, both = plt.subplots(1, 2, figsize=(11, 3.2), sharey=True)
    for axes, unit in zip(both, ("seconds", "cpu_seconds")):
        left = dict.fromkeys(phases, 0.0)
        for phase in PHASES:
            widths = [told[unit][phase] for told in phases.values()]
            axes.barh(list(phases), widths, left=list(left.values()), label=phase)
            left = {name: left[name] + width for name, width in zip(phases, widths)}
        axes.set(xlabel=unit.replace("cpu_", "CPU "), title="from the command to the first committed batch")
        axes.grid(alpha=0.3, axis="x")
    both[0].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
