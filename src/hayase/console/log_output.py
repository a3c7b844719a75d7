"""Configures where the log of Hayase goes: standard error, and with `--log-file` a file that is rotated.

Every module logs through `logging.getLogger(__name__)`; only the command line calls `log_output`. Inside the block, warnings
and errors of the logger "hayase" go to standard error, and with `verbose` its information too. The file receives information
and more severe messages, with `verbose` also debugging messages. Programs that use the Python API configure `logging` themselves.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from hayase.core.log_files import LogFormat, rotated_file

__all__ = ["log_output", "log_through"]

LOGGER = logging.getLogger("hayase")


class _TerminalHandler(logging.Handler):
    """Writes to the standard error of the time when it was made: `hayase run` redirects `sys.stderr` for PySpark's threads."""

    def __init__(self) -> None:
        super().__init__()
        self._stream = sys.stderr
        self.write: Callable[[str], None] = self._write

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.write(self.format(record))
        except Exception:
            self.handleError(record)


@contextlib.contextmanager
def log_output(*, verbose: bool = False, file: Path | None = None, form: LogFormat = LogFormat.TEXT) -> Iterator[None]:
    """Send the messages of the logger "hayase" to standard error and to `file` inside the block.

    Blocks can be nested: the inner one replaces the handlers of the outer one until it ends.
    """
    terminal = _TerminalHandler()
    terminal.setLevel(logging.INFO if verbose else logging.WARNING)
    terminal.setFormatter(form.formatter())
    handlers: list[logging.Handler] = [terminal]
    if file is not None:
        handlers.append(rotated_file(file, logging.DEBUG if verbose else logging.INFO, form))
    before = LOGGER.handlers, LOGGER.level, LOGGER.propagate
    LOGGER.handlers, LOGGER.propagate = handlers, False
    LOGGER.setLevel(min(handler.level for handler in handlers))
    try:
        yield
    finally:
        LOGGER.handlers, level, LOGGER.propagate = before
        LOGGER.setLevel(level)
        for handler in handlers:
            handler.close()


@contextlib.contextmanager
def log_through(write: Callable[[str], None]) -> Iterator[None]:
    """Write the messages for the terminal by `write` inside the block, so that they do not disturb a live view."""
    terminals = [handler for handler in LOGGER.handlers if isinstance(handler, _TerminalHandler)]
    before = [handler.write for handler in terminals]
    for handler in terminals:
        handler.write = write
    try:
        yield
    finally:
        for handler, original in zip(terminals, before):
            handler.write = original
