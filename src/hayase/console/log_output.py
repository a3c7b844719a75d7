"""Configures where the log of Hayase goes: standard error, and with `--log-file` a file that is rotated.

Every module logs through `logging.getLogger(__name__)`; only the command line calls `log_output`. Inside the block, warnings
and errors of the logger "hayase" go to standard error, and with `verbose` its information too. The file receives information
and more severe messages, with `verbose` also debugging messages. Programs that use the Python API configure `logging` themselves.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from hayase.core.errors import HayaseError

__all__ = ["LogFormat", "log_output", "log_through"]

LOGGER = logging.getLogger("hayase")
FILE_BYTES, FILE_COUNT = 10 * 2**20, 5
"""A log file is rotated when it reaches this size; this many older files are kept beside it, as FILE.1 (the newest) to FILE.5."""


class LogFormat(StrEnum):
    """How a message is written: as a line of text, or as a JSON object on one line."""

    TEXT = "text"
    JSON = "json"


class _TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z WARNING hayase.engine.spark.lane: MESSAGE`, followed by the traceback if there is one."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's name
        """Return the time of the message in UTC, with milliseconds."""
        moment = datetime.fromtimestamp(record.created, UTC)
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


class _JsonFormatter(_TextFormatter):
    """A JSON object with `time`, `level`, `logger`, `message`, and `exception` (the traceback) if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message as one line of JSON."""
        fields = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


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
    formatter = _JsonFormatter() if form is LogFormat.JSON else _TextFormatter()
    terminal = _TerminalHandler()
    terminal.setLevel(logging.INFO if verbose else logging.WARNING)
    handlers: list[logging.Handler] = [terminal]
    if file is not None:
        handlers.append(_rotated_file(file, logging.DEBUG if verbose else logging.INFO))
    for handler in handlers:
        handler.setFormatter(formatter)
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


def _rotated_file(path: Path, level: int) -> logging.Handler:
    from logging.handlers import RotatingFileHandler

    try:
        handler = RotatingFileHandler(path, maxBytes=FILE_BYTES, backupCount=FILE_COUNT, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise HayaseError(f'cannot write the log file "{path}": {reason}; name a file that can be written') from error
    handler.setLevel(level)
    return handler


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
