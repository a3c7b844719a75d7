"""A program to be flooded: serves the project's pipeline over HTTP and runs it in its own process, without Spark.

    python -m campaign.served PROJECT PORT

It ends with SIGTERM, when everything that it took has been processed.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from pathlib import Path

import hayase as hy
from hayase.core.clock import now_us
from hayase.engine.local import InProcess
from hayase.serving import Status, serving


def main(project: Path, port: int) -> None:
    """Serve until told to end."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    pipeline = hy.Pipeline.from_file(project / "pipeline.yaml")
    with pipeline.home.lock():
        pipeline.apply()
        with contextlib.closing(InProcess(pipeline.home, now_us)) as runner:
            status = Status("running", runner.manifest)
            with serving(pipeline.home, f"127.0.0.1:{port}", tables=runner.tables, status=status):
                while not ended.wait(0.05):
                    if runner.step():
                        status.committed(runner.manifest)
            runner.run_until_idle()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
