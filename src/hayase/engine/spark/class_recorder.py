"""Records a class archive: `python -m hayase.engine.spark.class_recorder [DIRECTORY KEY]` runs a small pipeline and stops.

Without arguments it records the archive that sessions here use. It runs at the lowest priority, and once at a time for each
archive. The pipeline uses what every lane uses, so that the JVM has loaded the classes of a first batch; the JVM writes the
archive as it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import tempfile
from pathlib import Path

from hayase.engine.spark.class_archive import JAVA_OPTIONS, ClassArchive, class_archive

__all__ = ["record"]


def record(archive: ClassArchive) -> bool:
    """Record the archive unless it is there or is being recorded; return whether it is there now."""
    with (archive.directory / f"{archive.key}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        for draft in archive.directory.glob(f"{archive.key}.*.draft"):  # of a recording that was killed
            draft.unlink(missing_ok=True)
        if archive.file is not None:
            return True
        draft = archive.directory / f"{archive.key}.{os.getpid()}.draft"
        try:
            _run_pipeline(archive.recording_options(draft))
            archive.take(draft)
        except Exception as error:
            archive.fail(f"{type(error).__name__}: {error}")
            draft.unlink(missing_ok=True)
            return False
        return True


def _run_pipeline(java_options: str) -> None:
    """Run a pipeline on a local Spark whose JVM has the options, and wait until the JVM has ended."""
    from hayase.core.declarations import PipelineDeclaration, QueryDeclaration, StreamDeclaration
    from hayase.engine.definition.proposals import propose
    from hayase.engine.home import Home, log_file
    from hayase.engine.spark.runner import run_until_idle
    from hayase.engine.spark.session import local_master, open_session, warm_up
    from hayase.streams import StreamLog
    from hayase.streams.appends import append_conformed
    from hayase.streams.records import conform

    stream = StreamDeclaration("orders", "time timestamp, user string, amount double", "time")
    query = QueryDeclaration("spend", "select user, sum(amount) as spend from orders [Range 1 minute] group by user")
    orders = [{"time": f"2026-01-31T12:00:0{second}Z", "user": "taro", "amount": 1.0} for second in range(3)]
    with tempfile.TemporaryDirectory(prefix="hayase-classes-") as directory:
        home = Home(Path(directory) / "home")
        propose(home, PipelineDeclaration("classes", (stream,), (query,)))
        session = open_session(local_master(), log=log_file(home), settings={JAVA_OPTIONS: java_options})
        jvm = session.sparkContext._gateway.proc
        warm_up(session).join()
        append_conformed(home.path, stream, conform(orders, stream, 0), 0)
        StreamLog.ensure(home.path, stream).finish()
        run_until_idle(home, session=session)
        session.stop()
        jvm.stdin.close()  # by which the JVM ends
        if jvm.wait() != 0:
            raise RuntimeError(f"the JVM ended with status {jvm.returncode}")


def _archive() -> ClassArchive | None:
    if len(sys.argv) == 3:
        return ClassArchive(Path(sys.argv[1]), sys.argv[2])
    from hayase.engine.spark.session import java_build

    return class_archive(java_build() or "", {})


if __name__ == "__main__":
    with contextlib.suppress(OSError):
        os.nice(19)
    archive = _archive()
    sys.exit(0 if archive is not None and record(archive) else 1)
