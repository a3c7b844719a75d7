"""Log files: how messages are written, as text or as JSON lines, and files that are rotated.

`console.log_output` uses them for `--log-file`, the HTTP server for `logs/serving.log` in the home.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from hayase.core.errors import HayaseError

__all__ = ["FILE_BYTES", "FILE_COUNT", "LogFormat", "rotated_file"]

FILE_BYTES, FILE_COUNT = 10 * 2**20, 5
"""A log file is rotated when it reaches this size; this many older files are kept beside it, as FILE.1 (the newest) to FILE.5."""


class LogFormat(StrEnum):
    """How a message is written: as a line of text, or as a JSON object on one line."""

    TEXT = "text"
    JSON = "json"

    def formatter(self) -> logging.Formatter:
        """Return a formatter of `logging` for this form."""
        return _JsonFormatter() if self is LogFormat.JSON else _TextFormatter()


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


def rotated_file(path: Path, level: int, form: LogFormat = LogFormat.TEXT) -> logging.Handler:
    """Return a handler that writes messages of at least `level` to a file, and rotates the file."""
    from logging.handlers import RotatingFileHandler

    try:
        handler = RotatingFileHandler(path, maxBytes=FILE_BYTES, backupCount=FILE_COUNT, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise HayaseError(f'cannot write the log file "{path}": {reason}; name a file that can be written') from error
    handler.setLevel(level)
    handler.setFormatter(form.formatter())
    return handler
