"""Standard error of a command that runs PySpark, whose threads print tracebacks at any time."""

from __future__ import annotations

import io
import logging
import sys
import threading
from pathlib import Path

import pytest

from hayase.console.standard_error import stderr_in


def _terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Called in the test: pytest sets `sys.stderr` again between a fixture and the test."""
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    return shown


def _in_a_thread(text: str) -> None:
    thread = threading.Thread(target=lambda: print(text, file=sys.stderr))
    thread.start()
    thread.join()


def test_inside_the_block_everything_goes_to_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    terminal = _terminal(monkeypatch)
    with stderr_in(tmp_path / "log"):
        print("one", file=sys.stderr)
        _in_a_thread("two")
    assert terminal.getvalue() == ""
    assert (tmp_path / "log").read_text() == "one\ntwo\n"


def test_after_the_block_threads_still_write_to_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The thread of PySpark's accumulators prints a traceback up to a second after the JVM has ended."""
    terminal = _terminal(monkeypatch)
    with stderr_in(tmp_path / "first"), stderr_in(tmp_path / "log"):
        pass
    _in_a_thread("a traceback")
    print("error: the JVM has ended", file=sys.stderr)
    assert terminal.getvalue() == "error: the JVM has ended\n"
    assert (tmp_path / "log").read_text() == "a traceback\n"


def test_a_message_that_is_logged_while_the_block_ends_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """py4j logs without a handler of its own, into the stream that it has just looked up."""
    terminal = _terminal(monkeypatch)
    with stderr_in(tmp_path / "log"):
        handler = logging.StreamHandler(sys.stderr)
    record = logging.LogRecord("py4j", logging.ERROR, "", 0, "the connection was lost", None, None)
    thread = threading.Thread(target=handler.handle, args=(record,))
    thread.start()
    thread.join()
    assert terminal.getvalue() == ""
    assert (tmp_path / "log").read_text() == "the connection was lost\n"


def test_a_home_that_is_removed_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    terminal = _terminal(monkeypatch)
    with stderr_in(tmp_path / "gone" / "log"):
        _in_a_thread("a traceback")
    assert terminal.getvalue() == ""
