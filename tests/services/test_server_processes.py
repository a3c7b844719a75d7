"""Processes of servers: they keep their port and log, say why they did not start, and end with the tests."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from campaign.processes import alive
from servers.process import PATIENCE, NotStarted, Server, free_port, port_open

LISTEN = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
while True:
    listener.accept()[0].close()
"""
KEEP = """
import sys
from test_server_processes import Listener
server = Listener().start()
print(server.process_id, server.directory, flush=True)
sys.stdin.read()
"""
HERE = Path(__file__).parent


class Listener(Server):
    """A server that accepts connections and closes them."""

    name = "Listener"
    program = LISTEN

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port()

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.program, str(self.port)]

    def answers(self) -> bool:
        return port_open(self.port)


class Failing(Listener):
    name = "Failing"
    program = "raise SystemExit('the port is taken by aliens')"


def test_a_server_is_killed_and_started_again_at_its_port() -> None:
    with Listener() as server:
        first = server.process_id
        server.kill()
        assert not server.running
        assert not port_open(server.port)
        server.start()
        assert server.process_id != first
        assert server.log_text() == "listening\n"  # of this start only
        server.restart()
        assert port_open(server.port)
    assert not server.running
    assert not server.directory.exists()


def test_a_paused_server_goes_on() -> None:
    with Listener() as server:
        server.pause()
        assert psutil.Process(server.process_id).status() == psutil.STATUS_STOPPED
        server.resume()
        assert psutil.Process(server.process_id).status() != psutil.STATUS_STOPPED
        server.pause()
        server.stop()  # also while it is paused
        assert not server.running


def test_a_server_that_does_not_start_shows_the_end_of_its_log() -> None:
    with pytest.raises(
        NotStarted, match=r"Failing ended with status 1; the end of its log:\nthe port is taken by aliens"
    ):
        Failing().__enter__()


def test_a_server_outlives_the_thread_that_started_it() -> None:
    server = Listener()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    try:
        server.wait()
        assert server.running
    finally:
        server.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has died")
def test_a_server_ends_with_the_process_that_started_it() -> None:
    paths = ":".join([str(HERE), str(HERE.parent)])
    with subprocess.Popen(
        [sys.executable, "-c", KEEP],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": paths, "PATH": "/usr/bin"},
    ) as tests:
        assert tests.stdout is not None
        process_id, directory = tests.stdout.readline().split()
        server = psutil.Process(int(process_id))
        tests.send_signal(signal.SIGKILL)
        tests.wait()
        deadline = time.monotonic() + PATIENCE
        while alive([server]) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert alive([server]) == []
    Path(directory.decode(), "server.log").unlink()
    Path(directory.decode()).rmdir()
