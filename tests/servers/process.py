"""A server in a process of its own: started until it answers, stopped, killed, paused, and ended with the tests."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import psutil

from campaign.processes import kill_tree, send, tree

__all__ = ["PATIENCE", "Missing", "NotStarted", "Server", "free_port", "port_open", "unprivileged"]

PATIENCE = 180.0
"""Seconds until a server that does not answer has failed; a busy machine is not a failure."""
_TAIL = 4000
_NOBODY = 65534
_PORTS = range(20_000, 30_000)
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="servers")
"""Starts all servers: Linux signals the death of a parent when the thread ends that started the child."""


class Missing(Exception):
    """Parts of a server are not on this machine; the message says how to get them."""


class NotStarted(Exception):
    """A server ended or did not answer; the message has the end of its log."""


def free_port() -> int:
    """Return a port at 127.0.0.1 that nothing listens on.

    It lies below the ports that the system gives to clients: a server that is down for a while finds its port free.
    """
    for _ in range(1000):
        port = _PORTS[secrets.randbelow(len(_PORTS))]
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise NotStarted(f"no port between {_PORTS.start} and {_PORTS.stop} is free at 127.0.0.1")


def unprivileged() -> int | None:
    """Return the user id for servers that refuse to run as root, or None if this process is not root."""
    return _NOBODY if os.geteuid() == 0 else None


class Server:
    """A server in a process of its own, with a temporary directory that `close` removes.

    A subclass gives `name`, `command` and `answers`, and may prepare its directory before the first start (`prepare`). All but
    `close` keep the data. As a context manager it is started, and closed at the end.
    """

    name = "server"
    environment: dict[str, str] | None = None
    user: int | None = None
    stop_signal = signal.SIGTERM

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"hayase-{self.name.lower()}-"))
        if self.user is not None:
            os.chown(self.directory, self.user, self.user)
        self.log = self.directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._prepared = False
        self._log_start = 0

    def command(self) -> list[str]:
        """Return the command that runs the server in the foreground."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Whether the server that was started serves requests."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Fill the directory before the first start."""

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, wait: bool = True) -> Self:
        """Start the server, on its old data if it has run before; by default wait until it answers."""
        assert not self.running, f"{self.name} runs already"
        if not self._prepared:
            self.prepare()
            self._prepared = True
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self._process = self._launch(self.command())
        if wait:
            self.wait()
        return self

    def wait(self) -> None:
        """Wait until the server answers."""
        deadline = time.monotonic() + PATIENCE
        while self.running and time.monotonic() < deadline:
            if self.answers():
                return
            time.sleep(0.05)
        what = f"does not answer after {PATIENCE:.0f} s" if self.running else f"ended with status {self._status}"
        self.kill()
        raise NotStarted(f"{self.name} {what}; the end of its log:\n{self.log_text()[-_TAIL:]}")

    def stop(self) -> None:
        """End the server as an administrator does, and wait until it is gone."""
        if self._process is not None:
            self._process.send_signal(self.stop_signal)
            self.resume()
            try:
                self._process.wait(PATIENCE)
            finally:
                self.kill()

    def kill(self) -> None:
        """End the server at once, with all its processes (SIGKILL)."""
        if self._process is not None:
            if self.running:
                self.pause()  # so that none starts another meanwhile
            kill_tree(self._process)

    def restart(self) -> None:
        """Stop the server and start it again on the same data and port."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stop all processes of the server where they are; its connections stay open and nothing is answered."""
        processes = tree(self.process_id)
        send(processes, signal.SIGSTOP)
        deadline = time.monotonic() + PATIENCE
        while not all(map(_has_stopped, processes)):  # a signal takes its time on a busy machine
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} does not stop")
            time.sleep(0.001)

    def resume(self) -> None:
        """Let the server go on after `pause`."""
        send(reversed(tree(self.process_id)), signal.SIGCONT)

    def close(self) -> None:
        """End the server and remove its directory."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *error: object) -> None:
        self.close()

    def log_text(self) -> str:
        """Return what the server has logged since it was last started."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode(errors="replace")

    def run(self, command: list[str]) -> None:
        """Run a command that prepares the directory, as the server's user; its output goes to the log."""
        process = self._launch(command)
        if status := process.wait(PATIENCE):
            raise NotStarted(f"{command[0]} of {self.name} ended with status {status}:\n{self.log_text()[-_TAIL:]}")

    @property
    def _status(self) -> int | None:
        return self._process.poll() if self._process else None

    def _launch(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return _starter.submit(
                subprocess.Popen, [*self._bounds(), *command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, start_new_session=True,
                env=None if self.environment is None else {**os.environ, **self.environment},
            ).result()  # fmt: skip

    def _bounds(self) -> list[str]:
        """Return the command before the command: the server dies with this process and has its user's rights."""
        if (setpriv := shutil.which("setpriv")) is None:  # not Linux: `close` and the end of the tests must do
            return []
        user = [] if self.user is None else [f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"]
        return [setpriv, *user, "--pdeathsig=KILL", "--"]


def port_open(port: int) -> bool:
    """Whether something accepts connections at a port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _has_stopped(process: psutil.Process) -> bool:
    try:
        return process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
