"""Interpreters from the fork server behave like those that are started: streams, arguments, environment, status, signals."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hayase.engine.spark.warm_interpreters import WarmInterpreters

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the fork server needs Linux")

LATE_GUARD = 300
"""Seconds after which a test that hangs is given up."""


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmInterpreters]:
    interpreters = WarmInterpreters(tmp_path_factory.mktemp("w"))
    interpreters.start()
    assert interpreters.wait()
    yield interpreters
    interpreters.close()


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    (tmp_path / "told.py").write_text(
        "import os, sys\n"
        "print(sys.argv[1:], os.getcwd(), os.environ['COLOUR'], sys.stdin.readline().strip(), __name__)\n"
        "print(os.getpid(), 'pyarrow' in sys.modules, flush=True)\n"
        "sys.exit(7)\n"
    )
    (tmp_path / "waits.py").write_text("import os, sys, time\nprint(os.getpid(), flush=True)\ntime.sleep(10**6)\n")
    return tmp_path


def start(warm: WarmInterpreters, folder: Path, *arguments: str, **more: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONHASHSEED": "0", "COLOUR": "blå", **more}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [warm.executable, *arguments], cwd=folder, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )


def waiting(warm: WarmInterpreters, folder: Path) -> tuple[subprocess.Popen[str], psutil.Process]:
    """A launcher, and the child that runs for it."""
    launcher = start(warm, folder, "-m", "waits")
    assert launcher.stdout is not None
    child = psutil.Process(int(launcher.stdout.readline()))
    assert child.pid != launcher.pid, "a plain interpreter was started, whose parent is this process"
    return launcher, child


def ended(launcher: subprocess.Popen[str]) -> int:
    launcher.communicate(timeout=LATE_GUARD)
    return launcher.returncode


def test_a_module_runs_as_if_it_were_started(warm: WarmInterpreters, modules: Path) -> None:
    launcher = start(warm, modules, "-m", "told", "one", "", "drei")
    output, errors = launcher.communicate("hello\n", timeout=LATE_GUARD)
    first, second = output.splitlines()
    assert first == f"{['one', '', 'drei']} {modules} blå hello __main__"
    assert second == f"{second.split()[0]} True"  # imported before it was forked
    assert int(second.split()[0]) != launcher.pid
    assert (launcher.returncode, errors) == (7, "")


@pytest.mark.parametrize("another", [["-c", "import sys; print(len(sys.argv))"], ["-m", "told"]])
def test_what_the_server_does_not_serve_is_run_by_a_plain_interpreter(
    warm: WarmInterpreters, modules: Path, another: list[str]
) -> None:
    launcher = start(warm, modules, *another, PYTHONHASHSEED="1")
    output, _ = launcher.communicate("hello\n", timeout=LATE_GUARD)
    assert launcher.returncode == (7 if "told" in another else 0)
    assert "True" not in output


def test_signals_reach_the_child_and_its_end_the_launcher(warm: WarmInterpreters, modules: Path) -> None:
    launcher, child = waiting(warm, modules)
    launcher.send_signal(signal.SIGTERM)
    assert ended(launcher) == -signal.SIGTERM
    psutil.wait_procs([child], timeout=LATE_GUARD)
    assert not child.is_running()
    launcher, child = waiting(warm, modules)
    child.kill()
    assert ended(launcher) == -signal.SIGKILL


def test_a_killed_launcher_takes_its_child_along(warm: WarmInterpreters, modules: Path) -> None:
    launcher, child = waiting(warm, modules)
    child.suspend()
    launcher.kill()
    ended(launcher)
    psutil.wait_procs([child], timeout=LATE_GUARD)
    assert not child.is_running()


def test_only_this_user_can_ask(warm: WarmInterpreters) -> None:
    socket = warm.executable.with_name("fork-server.sock")
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600


def test_the_server_ends_with_its_parent_and_the_children_with_it(tmp_path: Path, modules: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom hayase.engine.spark.warm_interpreters import WarmInterpreters\n"
        "warm = WarmInterpreters(Path(sys.argv[1]))\nwarm.start()\nprint(warm.wait(), flush=True)\ntime.sleep(10**6)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "True\n"
    (server,) = psutil.Process(parent.pid).children()
    launcher = subprocess.Popen(
        [tmp_path / "python", "-m", "waits"], cwd=modules, env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert launcher.stdout is not None
    child = psutil.Process(int(launcher.stdout.readline()))
    assert child.ppid() == server.pid
    parent.kill()
    parent.communicate(timeout=LATE_GUARD)
    psutil.wait_procs([server, child], timeout=LATE_GUARD)
    assert not server.is_running()
    assert not child.is_running()
    ended(launcher)
    again = subprocess.run([tmp_path / "python", "-c", "print(1)"], capture_output=True, text=True, check=True)
    assert again.stdout == "1\n"


def test_a_server_that_was_killed_is_started_again(warm: WarmInterpreters, modules: Path) -> None:
    launcher, child = waiting(warm, modules)
    psutil.Process(child.ppid()).kill()
    assert ended(launcher) == 1
    psutil.wait_procs([child], timeout=LATE_GUARD)
    assert not child.is_running()
    warm.start()
    assert warm.wait()
    launcher, child = waiting(warm, modules)
    launcher.terminate()
    assert ended(launcher) == -signal.SIGTERM
