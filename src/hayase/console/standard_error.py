"""Standard error of a command that runs PySpark: its threads print tracebacks when the JVM ends or is interrupted, also after the
command has said why it ends. They go to a file."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

__all__ = ["stderr_in"]


class _StandardError(io.TextIOBase):
    """Writes to a file; if `is_shown`, writes what the thread that created it prints to the terminal, and the rest to the file.

    The file is opened for each write: threads may print until the process ends, and nobody would close it.
    """

    def __init__(self, terminal: TextIO, file: Path) -> None:
        self.terminal, self.file = terminal, file
        self.is_shown = False
        self._thread = threading.current_thread()

    def write(self, text: str) -> int:
        if self._goes_to_terminal():
            return self.terminal.write(text)
        with contextlib.suppress(OSError), self.file.open("a", encoding="utf-8", errors="replace") as output:
            output.write(text)
        return len(text)

    def flush(self) -> None:
        if self._goes_to_terminal():
            self.terminal.flush()

    def isatty(self) -> bool:
        return self._goes_to_terminal() and self.terminal.isatty()

    def fileno(self) -> int:
        return self.terminal.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # of typeshed, in which it can be set
        return self.terminal.encoding

    def _goes_to_terminal(self) -> bool:
        return self.is_shown and threading.current_thread() is self._thread


@contextlib.contextmanager
def stderr_in(file: Path) -> Iterator[None]:
    """Send `sys.stderr` to a file inside the block. After it, what other threads write still goes there."""
    terminal = sys.stderr.terminal if isinstance(sys.stderr, _StandardError) else sys.stderr
    redirected = _StandardError(terminal, file)
    sys.stderr = redirected
    try:
        yield
    finally:
        redirected.is_shown = True
