"""The process of one source or output: `python -m hayase.connectors.worker HOME sources|outputs NAME VERSION`.

Each has a process of its own, so that one that hangs, crashes or takes much time disturbs nobody else. It ends when its standard
input does: with the pipeline, however that ends.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from hayase.connectors.status import Role, connector_named
from hayase.connectors.transfers import run_transfer
from hayase.core.log_files import LogFormat
from hayase.core.signal_event import SignalEvent
from hayase.engine.definition.definitions import load
from hayase.engine.home import Home

__all__ = ["main"]

YOUNG = 100_000
"""Objects that the garbage collector waits for. Messages and rows come by the thousand and are soon gone; to look at all of them
after every 700, as is usual, takes longer than to decode them."""


def main(home: Home, role: Role, name: str, version: int) -> None:
    """Move the records of a connector until standard input ends or a signal asks to stop."""
    stop = SignalEvent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pipeline, which closes our input
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threading.Thread(target=_await_end, args=(stop,), name="input", daemon=True).start()
    declaration = load(home, version).declaration
    gc.set_threshold(YOUNG, 10, 10)
    run_transfer(home, declaration, connector_named(declaration, role, name), stop.wait)


def _await_end(stop: SignalEvent) -> None:
    while os.read(0, 4096):
        pass
    stop.set()


if __name__ == "__main__":
    home, role, name, version = Home(Path(sys.argv[1])), sys.argv[2], sys.argv[3], int(sys.argv[4])
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormat.TEXT.formatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    main(home, "sources" if role == "sources" else "outputs", name, version)
