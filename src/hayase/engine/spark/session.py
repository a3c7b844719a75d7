"""Spark sessions for lanes: Java check, settings, log redirection and warm Python workers, for any master."""

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
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pyarrow as pa
import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from hayase.core.errors import EnvironmentUnfit
from hayase.engine.doctor import LEAST_FILES
from hayase.engine.spark.class_archive import JAVA_OPTIONS, ClassArchive, class_archive
from hayase.engine.spark.failures import failure_of
from hayase.engine.spark.warm_interpreters import LONGEST_SOCKET, WarmInterpreters

__all__ = [
    "JAVA_HINT",
    "imports_pyspark",
    "is_one_process",
    "java_build",
    "java_version",
    "keep_warm",
    "local_master",
    "open_session",
    "python_starts",
    "task_slots",
    "warm_up",
]

JAVA_HINT = (
    "Spark needs Java 17 or newer. Install one (Debian and Ubuntu: `apt-get install openjdk-17-jre-headless`, "
    "macOS: `brew install openjdk@17`) or point JAVA_HOME at it"
)
LEAST_JAVA = 17
LEAST_IDLE = 4
"""Least number of idle workers that Spark keeps. A dead one is noticed only when a task that is given to it fails."""
SLOTS_ELSEWHERE = 8
"""Assumed number of slots of an executor on another machine."""
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
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 2**20),  # a row of a lane is a message of megabytes
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
QUICK_START = "-XX:TieredStopAtLevel=1"
"""The option of a JVM that runs driver and executor: it compiles quickly, not thoroughly. The work is done in Python, so that the
JVM needs half of the CPU time up to 160 batches, and no more for a batch after 600 (docs/design/0019-start.md)."""
_PATIENT = {
    "spark.network.timeout": "3600s",
    "spark.executor.heartbeatInterval": "60s",
    "spark.python.authenticate.socketTimeout": "600s",
}
"""Timeouts where all of Spark is one process: a part that does not answer there is slow, not lost."""


def java_build() -> str | None:
    """Return what `java -version` of the Java that Spark would use prints: version, vendor and build. None if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not java:
        return None
    try:
        return subprocess.run([java, "-version"], capture_output=True, text=True, timeout=300, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None


def java_version(build: str | None = None) -> int | None:
    """Return the major version of a Java, by default of that which Spark would use; None if there is none.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_402"')
    (17, 8)
    """
    version = (build or java_build() or "").partition('"')[2].partition('"')[0]
    major = version.removeprefix("1.").partition(".")[0].partition("-")[0]
    return int(major) if major.isdigit() else None


def local_master(cores: int | None = None) -> str:
    """Return the master URL of this machine. A task has enough attempts to meet every idle worker, should all have been killed."""
    slots = cores or os.cpu_count() or 1
    return f"local[{slots},{_idle_workers(slots) + 4}]"


def _idle_workers(slots: int) -> int:
    """Return how many idle workers Spark keeps: two more than slots, since a task that reads a source and reduces needs two. A new
    one would begin without the processes of operations."""
    return max(LEAST_IDLE, slots + 2)


def task_slots(session: SparkSession) -> int:
    """Return how many tasks the session can run at once."""
    return max(1, session.sparkContext.defaultParallelism)


def check_spark_version(version: str) -> None:
    if not re.match(r"4\.3\b", version):
        hint = 'install it with `pip install "pyspark>=4.3,<4.4"`'
        raise EnvironmentUnfit(f"found pyspark {version}; this version of Hayase runs on Spark 4.3: {hint}")


def open_session(
    master: str | None = None,
    *,
    log: Path | None = None,
    verbose: bool = False,
    settings: Mapping[str, str] | None = None,
    on_phase: Callable[[str], None] = lambda phase: None,
) -> SparkSession:
    """Return a session for lanes. `master` is any Spark master, by default this machine with all its cores.

    The output of the JVM and the workers goes to `log`, or with `verbose` to the terminal. `on_phase` gets what the start is
    waiting for, if that takes long. Raise EnvironmentUnfit if Spark cannot start here.
    """
    check_spark_version(pyspark.__version__)
    build = java_build()
    version = None if build is None else java_version(build)
    if build is None or version is None or version < LEAST_JAVA:
        home = os.environ.get("JAVA_HOME")
        place = f" in {home}, where JAVA_HOME points" if home else " on the PATH"
        raise EnvironmentUnfit(f"found {'no Java' if version is None else f'Java {version}'}{place}. {JAVA_HINT}")
    where = master or local_master()
    _check_files()
    chosen = _SETTINGS | _local_settings(where) | dict(settings or {})
    archive = class_archive(build, chosen)
    if is_one_process(where):
        chosen.setdefault(JAVA_OPTIONS, QUICK_START)
    # the JVM inherits stderr when it starts, and keeps it
    with _stderr_to(None if verbose else log or Path(os.devnull)), _secret_settings(where, chosen):
        warm = _warm_interpreters(where)
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["PYSPARK_PYTHON"] = sys.executable if warm is None else str(warm.executable)
        with _started(log), _without_children_after_interrupt():
            session = _session_with(archive, chosen)
    session.sparkContext.setLogLevel("WARN" if verbose or log else "OFF")
    if warm is not None:
        warm.wait(on_phase)  # Spark waits ten seconds for an interpreter; on a busy machine the server may need longer
    return session


def _session_with(archive: ClassArchive | None, settings: Mapping[str, str]) -> SparkSession:
    """Start the session, or return the one that runs. A JVM that does not start with the class archive is started without it; if
    there is no archive yet, it is recorded when this process ends."""
    options = "" if archive is None or SparkContext._gateway is not None else archive.java_options()
    with_archive = {**settings, JAVA_OPTIONS: f"{settings.get(JAVA_OPTIONS, '')} {options}"} if options else settings
    try:
        session = _builder(with_archive).getOrCreate()
    except (PySparkException, Py4JError, OSError):
        if archive is None or not options or SparkContext._gateway is not None:
            raise
        archive.remove()
        return _builder(settings).getOrCreate()
    if archive is not None and not options:
        archive.record_at_exit()
    return session


def _builder(settings: Mapping[str, str]) -> SparkSession.Builder:
    builder = SparkSession.builder.appName("hayase")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder


def keep_warm() -> None:
    """Restart the fork server if it has ended; until it is ready, plain interpreters are started."""
    if _warm is not None:
        _warm.start()


def python_starts() -> bool:
    """Whether Spark's interpreters are known to work on this machine, however slowly they start: a fork server runs, or else, as
    for a cluster, the interpreter that Spark would start imports PySpark."""
    return (_warm is not None and _warm.is_ready) or imports_pyspark(os.environ.get("PYSPARK_PYTHON", sys.executable))


def imports_pyspark(python: str, patience: float = 600.0) -> bool:
    """Whether an interpreter starts here and imports PySpark within `patience` seconds; Spark itself gives it ten."""
    command = [python, "-c", "import pyspark.worker"]
    try:
        return subprocess.run(command, capture_output=True, timeout=patience, check=False).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


_warm: WarmInterpreters | None = None
"""The fork server for the sessions of this process."""


def _warm_interpreters(master: str) -> WarmInterpreters | None:
    """Start the fork server and return it; None where Spark starts plain interpreters, as on a cluster, which needs the same
    executable on all machines."""
    global _warm
    if not is_one_process(master):
        return None
    if _warm is None or not _warm.executable.exists():
        folder = _scratch()
        if not WarmInterpreters.can_serve(folder):
            return None
        _warm = WarmInterpreters(folder)
    _warm.start()
    return _warm


def warm_up(session: SparkSession) -> threading.Thread:
    """Start the Python workers in a background thread; Spark itself would start them with the first task."""
    slots = task_slots(session)

    def start_workers() -> None:
        with contextlib.suppress(Exception):  # the first task that needs a worker reports the error
            session.range(slots, numPartitions=slots).mapInArrow(_same, "id bigint").collect()

    thread = threading.Thread(target=start_workers, name="warm-up", daemon=True)
    thread.start()
    return thread


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def _local_settings(master: str) -> dict[str, str]:
    """Return the settings that depend on the master. Temporary files of Spark go to one scratch directory, which is removed."""
    _remove_left_behind()
    scratch = _scratch()
    quarter_mb = psutil.virtual_memory().total // 4 // 2**20
    local = re.match(r"local\[(\d+|\*)", master)
    slots = SLOTS_ELSEWHERE if local is None else os.cpu_count() or 1 if local[1] == "*" else int(local[1])
    idle = _idle_workers(slots)
    settings = {
        "spark.master": master,
        "spark.python.factory.idleWorkerMaxPoolSize": str(idle),
        "spark.task.maxFailures": str(idle + 4),
        "spark.driver.memory": f"{max(1024, min(quarter_mb, 4096))}m",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.local.dir": str(scratch),
        **socket_settings(scratch),
    }
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        settings["spark.authenticate"] = "true"
    return settings | (_PATIENT if is_one_process(master) else {})


def socket_settings(scratch: Path) -> dict[str, str]:
    """Return how the JVM and its Python workers connect: by Unix sockets in the scratch directory, or by TCP on this machine if
    its path is too long for them.

    >>> socket_settings(Path("/tmp/hayase-spark-1"))
    {'spark.python.unix.domain.socket.dir': '/tmp/hayase-spark-1'}
    >>> socket_settings(Path("/tmp", "long" * 20))
    {'spark.python.unix.domain.socket.enabled': 'false'}
    """
    if len(os.fsencode(scratch / f".{uuid.UUID(int=0)}.sock")) > LONGEST_SOCKET:
        return {"spark.python.unix.domain.socket.enabled": "false"}
    return {"spark.python.unix.domain.socket.dir": str(scratch)}


@contextlib.contextmanager
def _started(log: Path | None) -> Iterator[None]:
    """Turn errors at the start of Spark into EnvironmentUnfit with cause and remedy."""
    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        failure = failure_of(str(error), log or Path("the terminal (-v)"))
        remedy = failure.remedy or "`hayase doctor` says what this machine lacks"
        raise EnvironmentUnfit(f"Spark did not start: {failure.cause}\n{remedy}") from error


@contextlib.contextmanager
def _without_children_after_interrupt() -> Iterator[None]:
    """After Ctrl-C, end the processes that were started in the block: a JVM that is still starting would go on for a while."""
    before = psutil.Process().children()
    try:
        yield
    except KeyboardInterrupt:
        for child in psutil.Process().children():
            if child not in before:
                for process in (*child.children(recursive=True), child):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
        raise


def is_one_process(master: str) -> bool:
    """Whether driver and executor run in one JVM on this machine."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


@contextlib.contextmanager
def _secret_settings(master: str, chosen: Mapping[str, str]) -> Iterator[None]:
    """Pass a JVM that starts here the secret by which its processes authenticate each other, generated for this run.

    In one process Spark generates it itself. A `local-cluster` reads it from a file that only this user can read and that is
    removed once the session has started; on a command line, every user could see it. A real cluster has a secret of its own in
    its `spark-defaults.conf`.
    """
    if not master.startswith("local-cluster") or "PYSPARK_SUBMIT_ARGS" in os.environ:
        yield
        return
    path = Path(chosen["spark.local.dir"]) / "secret.conf"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as output:
        output.write(f"spark.authenticate.secret {secrets.token_hex(32)}\n")
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--properties-file {shlex.quote(str(path))} --load-spark-defaults pyspark-shell"
    )
    try:
        yield
    finally:
        del os.environ["PYSPARK_SUBMIT_ARGS"]
        path.unlink(missing_ok=True)


def _check_files() -> None:
    """Raise the limit of open files to the hard limit; raise EnvironmentUnfit if that is too low for Spark."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard_limit != resource.RLIM_INFINITY and hard_limit < LEAST_FILES:
        raise EnvironmentUnfit(
            f"a process may open {hard_limit} files here, and Spark needs more than that to start\n"
            f"allow at least {LEAST_FILES:,}, for instance by `ulimit -n 65536`, then start again"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


def _scratch() -> Path:
    """Create a directory that only this user can read; it is removed when this process ends."""
    path = tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)


def _remove_left_behind() -> None:
    """Remove the scratch directories of processes that were killed."""
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
    original = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)
