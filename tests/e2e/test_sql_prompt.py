"""`hayase sql` on a terminal: a pseudo-terminal types, and reads what is shown."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from asked_shop import shop_in

LONG = "select count(*) from range(10000000) a, range(10000000) b where (a.range * b.range) % 7 = 3;"
_CONTROL = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()=>][0-9A-Za-z]?|\r")


class Terminal:
    """A terminal with `hayase sql` in it."""

    def __init__(self, home: Path, state: Path):
        self._main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
        environment = {
            **os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "XDG_STATE_HOME": str(state), "PAGER": "cat",
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-c", "import hayase.cli; hayase.cli.program()", "sql", "--home", str(home)],
            stdin=side, stdout=side, stderr=side, env=environment, start_new_session=True,
            preexec_fn=partial(_own_terminal, side),
        )  # fmt: skip
        os.close(side)
        self._seen = b""

    def type(self, text: str) -> None:
        """Type a text; it is shown behind what was read so far."""
        os.write(self._main, text.encode())

    def wait_for(self, text: str) -> None:
        """Read until a text is shown behind what was waited for before."""
        while text.encode() not in self._seen:
            try:
                read = os.read(self._main, 65536)
            except OSError:  # the program has ended
                read = b""
            assert read, f"{text!r} is not in {self._seen!r}"
            self._seen += _CONTROL.sub(b"", read)
        self._seen = self._seen.partition(text.encode())[2]

    def exit_code(self) -> int:
        """Read all that is left, without which a program cannot restore its terminal, and return the exit code."""
        with contextlib.suppress(OSError):  # there is no reader on the other side any more
            while os.read(self._main, 65536):
                pass
        return self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._main)


def _own_terminal(side: int) -> None:
    fcntl.ioctl(side, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shop_in(tmp_path_factory.mktemp("shop")).home.path


@pytest.fixture
def terminal(home: Path, tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(home, tmp_path)
    yield opened
    opened.close()


def test_a_conversation(terminal: Terminal, tmp_path: Path) -> None:
    terminal.wait_for("home>")
    terminal.type("select 41\r+ 1 as answer;\r")  # a statement of two lines
    terminal.wait_for("42")
    terminal.wait_for("(1 row)")
    terminal.wait_for("home>")
    terminal.type("select user from purch\t")
    terminal.wait_for("purchases")
    terminal.type(" where total > 10;\r")
    terminal.wait_for("hana")
    terminal.wait_for("home>")
    terminal.type("select usr from spend;\r")
    terminal.wait_for('did you mean "user"?')
    terminal.wait_for("home>")
    terminal.type("\\as_of complete\r")
    terminal.wait_for("home as of complete>")
    terminal.type("\\d spend\r")
    terminal.wait_for("spend (query)")
    terminal.wait_for("double")
    terminal.wait_for("home as of complete>")
    terminal.type("\x04")
    assert terminal.exit_code() == 0
    history = tmp_path / "hayase" / "sql_history"
    assert "+ 1 as answer;" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_ctrl_c_interrupts_a_statement_and_drops_a_line(terminal: Terminal) -> None:
    terminal.wait_for("home>")
    terminal.type(f"select 6 * 7 as answer; {LONG}\r")
    terminal.wait_for("42")
    terminal.wait_for("(1 row)")  # now the second statement runs
    terminal.type("\x03")
    terminal.wait_for("interrupted")
    terminal.wait_for("home>")
    terminal.type("half of it")
    terminal.wait_for("half of it")
    terminal.type("\x03")
    terminal.wait_for("half of it")  # it is drawn once more, and left
    terminal.wait_for("home>")
    terminal.type("select 41 + 1 as answer;\r")
    terminal.wait_for("42")
    terminal.wait_for("home>")
    terminal.type("\\q\r")
    assert terminal.exit_code() == 0
