"""`python -m campaign.connector_driver PIPELINE.yaml`: a pipeline that runs in this process, with the processes of its sources and
outputs beside it, as `hayase run` has them. It ends with SIGTERM or when its standard input ends."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from contextlib import closing
from pathlib import Path

import hayase as hy
from hayase.connectors.supervision import Connectors
from hayase.core.clock import now_us
from hayase.engine.local import InProcess


def main(file: Path) -> None:
    """Run the pipeline until it is told to stop."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threading.Thread(target=_await_end, args=(stop,), daemon=True).start()
    pipeline = hy.Pipeline.from_file(file)
    with pipeline.home.lock():
        pipeline.apply()
        with Connectors(pipeline.home), closing(InProcess(pipeline.home, now_us)) as runner:
            while not stop.is_set():
                if not runner.step():
                    stop.wait(0.1)


def _await_end(stop: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    stop.set()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    main(Path(sys.argv[1]))
