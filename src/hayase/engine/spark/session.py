"""The one place that builds a Spark session: settings, quiet screen, any master."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import resource
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from hayase.core.errors import EnvironmentUnfit
from hayase.engine.doctor import LEAST_FILES
from hayase.engine.spark.failures import failure_of
from hayase.engine.spark.warm_interpreters import WarmInterpreters

__all__ = ["JAVA_HINT", "is_warm", "java_version", "keep_warm", "local_master", "open_session", "task_slots", "warm_up"]

JAVA_HINT = (
    "Spark needs Java 17 or newer. Install one (Debian and Ubuntu: `apt-get install openjdk-17-jre-headless`, "
    "macOS: `brew install openjdk@17`) or point JAVA_HOME at it"
)
LEAST_JAVA = 17
LEAST_IDLE = 4
"""Workers that Spark keeps for later, or as many as there are slots: one that died there is noticed only when a task is given
to it, and fails."""
SLOTS_ELSEWHERE = 8
"""Slots of an executor that is not on this machine, at a guess."""
_SCRATCH = "hayase-spark-"

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.sql.streaming.stopTimeout": "600000",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "4",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.scheduler.mode": "FAIR",
    "spark.python.worker.reuse": "true",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "hayase.engine.spark.worker_daemon",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 2**20),  # a row of a lane is a blob of megabytes
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_PATIENT = {
    "spark.network.timeout": "3600s",
    "spark.executor.heartbeatInterval": "60s",
    "spark.python.authenticate.socketTimeout": "600s",
}
"""Settings where all of Spark is one process: whoever does not answer there is slow, not lost."""


def java_version() -> int | None:
    """The major version of the Java that Spark would use, or None."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not java:
        return None
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=300, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    quoted = said.partition('"')[2].partition('"')[0]
    major = quoted.removeprefix("1.").partition(".")[0].partition("-")[0]
    return int(major) if major.isdigit() else None


def local_master(cores: int | None = None) -> str:
    """This machine as a master. A task is tried often enough to outlive every idle worker that was killed meanwhile."""
    slots = cores or os.cpu_count() or 1
    return f"local[{slots},{max(LEAST_IDLE, slots) + 4}]"


def task_slots(session: SparkSession) -> int:
    """How many tasks the session can run at once."""
    return max(1, session.sparkContext.defaultParallelism)


def open_session(
    master: str | None = None,
    *,
    log: Path | None = None,
    verbose: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session for lanes. `master` is any Spark master, by default this machine with all its cores.

    What the JVM and the workers print goes to `log`; with `verbose` it goes to the terminal.
    """
    version = java_version()
    if version is None or version < LEAST_JAVA:
        home = os.environ.get("JAVA_HOME")
        place = f" in {home}, where JAVA_HOME points" if home else " on the PATH"
        raise EnvironmentUnfit(f"found {'no Java' if version is None else f'Java {version}'}{place}. {JAVA_HINT}")
    where = master or local_master()
    _check_files()
    chosen = _SETTINGS | _local_settings(where) | dict(settings or {})
    builder = SparkSession.builder.appName("hayase")
    for key, value in chosen.items():
        builder = builder.config(key, value)
    # the JVM keeps the stderr that it is born with
    with _stderr_to(None if verbose else log or Path(os.devnull)), _secret_settings(where, chosen):
        warm = _warm_interpreters(where)
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["PYSPARK_PYTHON"] = sys.executable if warm is None else str(warm.executable)
        with _started(log):
            session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN" if verbose or log else "OFF")
    if warm is not None:
        warm.wait()  # Spark gives what it starts ten seconds; the server may need more on a busy machine
    return session


def keep_warm() -> None:
    """Start the server of interpreters again if it has ended; until it is ready, plain ones are started."""
    if _warm is not None:
        _warm.start()


def is_warm() -> bool:
    """Whether the interpreters that Spark starts come from a server, so that they are known to work here."""
    return _warm is not None and _warm.is_ready


_warm: WarmInterpreters | None = None
"""What serves the interpreters of this process' sessions."""


def _warm_interpreters(master: str) -> WarmInterpreters | None:
    """The server of interpreters, started; None where Spark starts plain ones, as on a cluster: a function is called by the
    same executable on all its machines."""
    global _warm
    if not _is_one_process(master):
        return None
    if _warm is None or not _warm.executable.exists():
        folder = _scratch()
        if not WarmInterpreters.can_serve(folder):
            return None
        _warm = WarmInterpreters(folder)
    _warm.start()
    return _warm


def warm_up(session: SparkSession) -> threading.Thread:
    """Start the workers beside whatever else there is to start: Spark would not before the first task needs one."""
    slots = task_slots(session)

    def start_workers() -> None:
        with contextlib.suppress(Exception):  # who needs a worker will see what is wrong with it
            session.range(slots, numPartitions=slots).mapInArrow(_same, "id bigint").collect()

    thread = threading.Thread(target=start_workers, name="warm-up", daemon=True)
    thread.start()
    return thread


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def _local_settings(master: str) -> dict[str, str]:
    """Settings that depend on where the session runs; what it leaves on disk goes into one folder that is removed."""
    _remove_left_behind()
    scratch = _scratch()
    quarter = psutil.virtual_memory().total // 4 // 2**20
    local = re.match(r"local\[(\d+|\*)", master)
    slots = SLOTS_ELSEWHERE if local is None else os.cpu_count() or 1 if local[1] == "*" else int(local[1])
    idle = max(LEAST_IDLE, slots)
    chosen = {
        "spark.master": master,
        "spark.python.factory.idleWorkerMaxPoolSize": str(idle),
        "spark.task.maxFailures": str(idle + 4),
        "spark.driver.memory": f"{max(1024, min(quarter, 4096))}m",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.local.dir": str(scratch),
        "spark.python.unix.domain.socket.dir": str(scratch),
    }
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        chosen |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        chosen["spark.authenticate"] = "true"
    return chosen | (_PATIENT if _is_one_process(master) else {})


@contextlib.contextmanager
def _started(log: Path | None) -> Iterator[None]:
    """Say in words why Spark did not start."""
    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        told = failure_of(str(error), log or Path("the terminal (-v)"))
        remedy = told.remedy or "`hayase doctor` says what this machine lacks"
        raise EnvironmentUnfit(f"Spark did not start: {told.cause}\n{remedy}") from error


def _is_one_process(master: str) -> bool:
    """Whether driver and executor are one JVM on this machine."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


@contextlib.contextmanager
def _secret_settings(master: str, chosen: Mapping[str, str]) -> Iterator[None]:
    """Give a JVM that starts here the secret with which its processes know each other, made for this run.

    In one process Spark makes it by itself. A cluster within this machine reads it from a file that only this user can read
    and that is gone when the session stands: what is on a command line, everybody can see. A cluster of its own has a secret
    of its own, from its `spark-defaults.conf`.
    """
    if not master.startswith("local-cluster") or "PYSPARK_SUBMIT_ARGS" in os.environ:
        yield
        return
    file = Path(chosen["spark.local.dir"]) / "secret.conf"
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as writing:
        writing.write(f"spark.authenticate.secret {secrets.token_hex(32)}\n")
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--properties-file {shlex.quote(str(file))} --load-spark-defaults pyspark-shell"
    )
    try:
        yield
    finally:
        del os.environ["PYSPARK_SUBMIT_ARGS"]
        file.unlink(missing_ok=True)


def _check_files() -> None:
    """Allow this process as many open files as it may have; refuse to start Spark where those are too few."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < LEAST_FILES:
        raise EnvironmentUnfit(
            f"a process may open {most} files here, and Spark needs more than that to start\n"
            f"allow at least {LEAST_FILES:,}, for instance by `ulimit -n 65536`, then start again"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _scratch() -> Path:
    """A new folder that only this user can look into; it is removed when this process ends."""
    path = tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)


def _remove_left_behind() -> None:
    """Remove the scratch folders of processes that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        owner = path.name.removeprefix(_SCRATCH).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)) and path.stat().st_uid == os.getuid():
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _stderr_to(path: Path | None) -> Iterator[None]:
    if path is None:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
