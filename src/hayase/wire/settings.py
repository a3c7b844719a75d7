"""The settings of a session: what clients set and ask for. Two of them have an effect: `hayase.as_of` and `statement_timeout`."""

from __future__ import annotations

import re

from hayase.core.errors import HayaseError
from hayase.core.times import duration, instant
from hayase.relations.home_reader import COMPLETE, LATEST
from hayase.wire.dialect import USER, VERSION
from hayase.wire.sql_errors import SqlError

__all__ = ["AS_OF", "REPORTED", "TIMEOUT", "Settings"]

AS_OF, TIMEOUT = "hayase.as_of", "statement_timeout"
REPORTED = (
    "server_version", "server_encoding", "client_encoding", "application_name", "is_superuser", "session_authorization",
    "DateStyle", "IntervalStyle", "TimeZone", "integer_datetimes", "standard_conforming_strings", "default_transaction_read_only",
    "in_hot_standby",
)  # fmt: skip
"""Settings that a client is told when it connects, and when they change."""
_FIXED = {
    "server_version": VERSION, "server_version_num": "160000", "server_encoding": "UTF8", "is_superuser": "off",
    "session_authorization": USER, "integer_datetimes": "on", "in_hot_standby": "off", "transaction_isolation": "repeatable read",
    "max_identifier_length": "63", "block_size": "8192", "lc_collate": "C", "lc_ctype": "C", "transaction_read_only": "on",
    "default_transaction_isolation": "repeatable read",
}  # fmt: skip
_FREE = {
    "client_encoding": "UTF8", "application_name": "", "datestyle": "ISO, MDY", "intervalstyle": "postgres", "timezone": "UTC",
    "standard_conforming_strings": "on", "default_transaction_read_only": "on", "search_path": "public", "extra_float_digits": "1",
    "client_min_messages": "notice", "bytea_output": "hex", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0",
    "row_security": "off", "synchronous_commit": "on", "work_mem": "4MB", "jit": "off", "geqo": "on", "enable_seqscan": "on",
    "backslash_quote": "safe_encoding", "escape_string_warning": "on", "default_tablespace": "", "xmloption": "content",
    "check_function_bodies": "on", "default_table_access_method": "heap", "statement_timeout": "0", AS_OF: LATEST,
}  # fmt: skip
_NUMBER = re.compile(r"\s*(\d+)\s*([a-z]*)\s*", re.IGNORECASE)


class Settings:
    """The settings of one session, by their names in any case."""

    def __init__(self, timeout: float | None):
        self._values = dict(_FREE)
        self._values[TIMEOUT] = str(int(timeout * 1000)) if timeout else "0"
        self._at_start = self._before = dict(self._values)
        self._most = timeout

    def get(self, name: str) -> str:
        """Return the value of a setting; SqlError if there is none of that name."""
        key = name.lower()
        if key in _FIXED:
            return _FIXED[key]
        if key not in self._values:
            raise SqlError("42704", f'unrecognized configuration parameter "{name}"', "SHOW ALL lists them")
        return self._values[key]

    def set(self, name: str, value: str | None) -> None:
        """Set a setting; without a value, back to what it was when the session began."""
        key = name.lower()
        if key in _FIXED:
            raise SqlError("55P02", f'parameter "{name}" cannot be changed')
        if key not in self._values:
            raise SqlError("42704", f'unrecognized configuration parameter "{name}"', "SHOW ALL lists them")
        new = self._at_start[key] if value is None else value
        if key == AS_OF:
            _check_as_of(new)
        if key == TIMEOUT:
            _milliseconds(new)
        if key == "client_encoding" and new.upper().replace("-", "").replace("UNICODE", "UTF8") != "UTF8":
            raise SqlError("22023", f'client_encoding "{new}" is not supported', "use UTF8")
        self._values[key] = new

    def all(self) -> list[tuple[str, str]]:
        """Return all settings, in the order of their names."""
        return sorted((self._values | _FIXED).items())

    def begin(self) -> None:
        """Note the settings: `undo` sets them back, as the end of a transaction without success does."""
        self._before = dict(self._values)

    def undo(self) -> None:
        """Set everything back to what it was at `begin`."""
        self._values = dict(self._before)

    def reset(self) -> None:
        """Set everything back to what it was when the session began."""
        self._values = dict(self._at_start)

    @property
    def as_of(self) -> str:
        """As of when statements read: `latest`, `complete` or an event time."""
        return self._values[AS_OF]

    @property
    def seconds(self) -> float:
        """How long a statement may take: what the client wishes, and at most what the server allows; 0 is without end."""
        wished = _milliseconds(self._values[TIMEOUT]) / 1000
        if self._most is None:
            return wished
        return min(wished, self._most) if wished else self._most


def _check_as_of(value: str) -> None:
    if value in (LATEST, COMPLETE) or value.strip().lstrip("+-").isdigit():
        return
    try:
        instant(value)
    except HayaseError:
        raise SqlError(
            "22023",
            f'"{value}" is not a time for {AS_OF}',
            "write 'latest', 'complete', or a time like '2026-01-31T12:00:00Z'",
        ) from None


def _milliseconds(text: str) -> int:
    """Return a duration as clients write it: a number is in milliseconds."""
    number = _NUMBER.fullmatch(text)
    if number is not None and not number[2]:
        return int(number[1])
    try:
        return duration(text) // 1000
    except HayaseError:
        raise SqlError("22023", f'"{text}" is not a duration', "write milliseconds, or like '5 s'") from None
