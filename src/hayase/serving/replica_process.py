"""Replicas of a home in processes that share a listening socket: the kernel gives each connection to one of them.

with replicas(home, "127.0.0.1:8422", workers=2) as running:
    while not stopping:
        running.check()  # starts a worker anew that has ended by itself
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from hayase.core.access import OPEN, Access
from hayase.core.addresses import Address, listening
from hayase.core.clock import now_us
from hayase.core.errors import EnvironmentUnfit
from hayase.core.log_files import LogFormat
from hayase.core.socket_processes import end_process, options_of_this_process, start_process
from hayase.engine.home import Home

__all__ = ["Replicas", "main", "replicas"]

_log = logging.getLogger("hayase.serving")
_MODULE = "hayase.serving.replica_process"
RESTART_SECONDS = 1.0
"""Seconds between two starts of a worker that ends by itself."""
MOST_EARLY_ENDS = 5
"""So many workers may end one after the other, without one that runs for `STEADY_SECONDS`."""
STEADY_SECONDS = 30.0


class Replicas:
    """Running replicas of one home."""

    def __init__(self, home: Home, listener: socket.socket, place: Address, workers: int, access: Access):
        self.address, self.has_tls = place, access.certificate is not None
        self._listener = listener
        self._options = {"home": str(home.path), "host": place.host, "access": access.as_json()}
        self._early_ends = 0
        self._workers = [self._start() for _ in range(workers)]

    @property
    def url(self) -> str:
        """The URL of the replicas, without a path."""
        return f"{'https' if self.has_tls else 'http'}://{self.address}"

    @property
    def processes(self) -> list[int]:
        """The ids of the processes."""
        return [process.pid for process, _ in self._workers]

    def check(self) -> None:
        """Start workers anew that have ended; EnvironmentUnfit if they end again and again."""
        for at, (process, begun) in enumerate(self._workers):
            code = process.poll()
            moment = time.monotonic()
            if code is None or moment < begun + RESTART_SECONDS:
                continue
            self._early_ends = 0 if moment > begun + STEADY_SECONDS else self._early_ends + 1
            if self._early_ends > MOST_EARLY_ENDS:
                raise EnvironmentUnfit(
                    f"the workers end again and again, the last one with code {code}; see what they report"
                )
            _log.warning("worker %d has ended with code %d, and another one is started", process.pid, code)
            end_process(process)
            self._workers[at] = self._start()

    def close(self) -> None:
        """End all workers; requests in progress are finished. One that has not begun to serve ends at once."""
        for process, _ in self._workers:
            process.terminate()
        for process, _ in self._workers:
            end_process(process)

    def _start(self) -> tuple[subprocess.Popen[bytes], float]:
        return start_process(_MODULE, self._listener, self._options), time.monotonic()


@contextlib.contextmanager
def replicas(home: Home, address: str, *, workers: int = 1, access: Access = OPEN) -> Iterator[Replicas]:
    """Serve a home for reading inside the block, from `workers` processes; requests wait until the first has started."""
    wanted = Address.from_text(address)
    access.check()  # what cannot be used is an error here, not in a worker
    with listening(wanted, access.is_secured) as listener:
        place = Address(wanted.host, listener.getsockname()[1])
        with contextlib.closing(Replicas(home, listener, place, workers, access)) as running:
            yield running


def main() -> None:
    """Serve as the first line of standard input says, until standard input ends."""
    from hayase.serving.app import create_app
    from hayase.serving.follower import Follower
    from hayase.serving.replica_service import ReplicaService
    from hayase.serving.server import served_at
    from hayase.serving.service import Status

    listener, options = options_of_this_process()
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormat.TEXT.formatter())
    for name in ("hayase", "uvicorn"):
        logging.getLogger(name).addHandler(handler)
    home, access, status = Home(Path(options["home"])), Access.from_json(options["access"]), Status()
    app = create_app(ReplicaService(home, now_us, status), access=access, hosts=[options["host"]])
    stop, follower = threading.Event(), Follower(home, status)
    following = threading.Thread(target=follower.run, args=[stop], name="follower")
    following.start()
    try:
        with contextlib.suppress(KeyboardInterrupt), served_at(listener, app, access):
            signal.signal(signal.SIGTERM, _end)
            sys.stdin.buffer.read()
    finally:
        stop.set()
        following.join()


def _end(number: int, frame: FrameType | None) -> None:
    """Let the main thread stop serving, once."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
