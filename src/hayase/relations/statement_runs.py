"""Runs statements by DuckDB over Arrow relations: read-only, without files, network, extensions or settings, in bounded memory.

This module and `hayase.core.expressions` are the only ones that import duckdb. DuckDB's own parser decides that a text is one
SELECT. A run can be interrupted from another thread, and ends by itself when its time is over.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.duckdb_errors import hint_of, message_of
from hayase.core.errors import HayaseError
from hayase.relations.bounds import Value
from hayase.relations.statement import StatementError, Unsupported

__all__ = ["Answer", "Interrupted", "Limits", "OutOfMemory", "Scan", "StatementRuns"]

_AGAIN = 0.02
"""Seconds between two interrupts of a statement that has not ended yet."""
_BATCH_ROWS = 2048
_PARAMETER = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\$(\d+)")
"""A parameter, or something in quotes, in which there is none."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What statements may take: bytes of memory of all that run at once, threads, and seconds each."""

    memory: int = 512 << 20
    threads: int = 2
    seconds: float | None = 60.0


class Interrupted(HayaseError):
    """A statement was ended before it was done: by whoever asked, or because its time was over."""


class OutOfMemory(HayaseError):
    """A statement needs more memory than it may have."""


class Scan:
    """A relation that DuckDB scans, as often as it likes: each scan begins `batches` anew. Keeps the error of a scan, which
    DuckDB would turn into text."""

    def __init__(self, schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]]):
        self.schema, self._batches = schema, batches
        self.error: BaseException | None = None

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self.schema, self._kept())
        return reader.__arrow_c_stream__(requested_schema)

    def _kept(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches()
        except BaseException as error:
            self.error = error
            raise


class Answer:
    """The result of a statement, to be read once: its columns, and its rows as Arrow batches. Close it when it is not read to
    the end."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch], close: Callable[[], None]):
        self.schema, self._batches, self._close = schema, batches, close

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches

    def table(self) -> pa.Table:
        """Return all rows."""
        return pa.Table.from_batches(self._batches, schema=self.schema)

    def close(self) -> None:
        """End the statement."""
        self._close()

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class StatementRuns:
    """A DuckDB database without data for the statements of one reader. Any number of threads may run statements."""

    def __init__(self, limits: Limits, functions: Sequence[str] = ()):
        self.limits = limits
        settings = {
            "memory_limit": f"{limits.memory}B",
            "threads": str(limits.threads),
            "enable_external_access": "false",
            "autoload_known_extensions": "false",
            "autoinstall_known_extensions": "false",
            "python_enable_replacements": "false",
            "temp_directory": "",
        }
        self._database = duckdb.connect(":memory:", config=settings)
        for function in functions:
            self._database.execute(f"CREATE MACRO {function}").fetchall()
        for setting in ("TimeZone = 'UTC'", "enable_progress_bar = false", "lock_configuration = true"):
            self._database.execute(f"SET {setting}").fetchall()
        self._lock = threading.Lock()

    def run(
        self,
        text: str,
        scans: Mapping[str, Scan],
        parameters: Sequence[Value | None] = (),
        *,
        seconds: float | None = None,
        control: Control | None = None,
    ) -> Answer:
        """Begin a statement over relations by the names that it has in the text, and return its answer.

        It ends after `seconds` (by default those of the limits), counted until its answer is read."""
        with self._lock:
            connection = self._database.cursor()
        run = _Run(connection, scans, control or Control())
        return run.begin(text, parameters, self.limits.seconds if seconds is None else seconds or None)

    def close(self) -> None:
        """Close the database; statements that still run end with an error."""
        self._database.close()


class Control:
    """The handle by which another thread ends a statement."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self.reason: str | None = None

    def attach(self, connection: duckdb.DuckDBPyConnection | None) -> None:
        """Say which connection runs the statement; None when it is over."""
        with self._lock:
            self._connection = connection

    def interrupt(self, reason: str) -> None:
        """End the statement, now or as soon as it begins."""
        with self._lock:
            is_first, self.reason = self.reason is None, self.reason or reason
        if is_first:
            self._insist()

    def _insist(self) -> None:
        """Interrupt the statement again and again until it is over: DuckDB forgets what comes before it has begun to run."""
        with self._lock:
            if self._connection is None:
                return
            self._connection.interrupt()
            again = threading.Timer(_AGAIN, self._insist)
            again.daemon = True
            again.start()


class _Run:
    """One run of a statement."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, scans: Mapping[str, Scan], control: Control):
        self._connection, self._scans, self._control = connection, scans, control
        self._timer: threading.Timer | None = None
        self._is_open = True

    def begin(self, text: str, parameters: Sequence[Value | None], seconds: float | None) -> Answer:
        if seconds is not None:
            late = f"the statement took longer than {seconds:g} s"
            self._timer = threading.Timer(seconds, self._control.interrupt, [late])
            self._timer.daemon = True
            self._timer.start()
        try:
            self._control.attach(self._connection)
            if self._control.reason is not None:
                raise Interrupted(self._control.reason)
            _check_select(self._connection, text)
            for name, scan in self._scans.items():
                self._connection.register(name, scan)
            reader = self._connection.sql(text, params=_named(text, parameters)).to_arrow_reader(_BATCH_ROWS)
        except BaseException as error:
            self.close()
            raise self._translated(error) from error
        return Answer(reader.schema, self._batches(reader), self.close)

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            while True:
                if self._control.reason is not None:
                    raise Interrupted(self._control.reason)
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    return
                if batch.num_rows:
                    yield batch
        except Exception as error:
            raise self._translated(error) from error
        finally:
            self.close()

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
        self._control.attach(None)
        self._connection.close()

    def _translated(self, error: BaseException) -> BaseException:
        if self._control.reason is not None:
            return Interrupted(self._control.reason, "ask for less, or allow it more time")
        for scan in self._scans.values():
            if isinstance(scan.error, Exception):
                return scan.error
        if isinstance(error, duckdb.OutOfMemoryException) or "Out of Memory" in str(error):
            return OutOfMemory(
                "the statement needs more memory than it may have", "ask for fewer rows or groups at once"
            )
        if isinstance(error, duckdb.Error | pa.ArrowException):
            return StatementError(message_of(error), hint_of(error))
        return error


def _named(text: str, parameters: Sequence[Value | None]) -> dict[str, Value | None]:
    """Return the parameters that a text uses, by their numbers: one in AS OF is not in the text any more."""
    used = {int(found[1]) for found in _PARAMETER.finditer(text) if found[1]}
    return {str(number): parameters[number - 1] for number in sorted(used) if 0 < number <= len(parameters)}


def _check_select(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    """Raise if a text is not one statement that only reads, by the parser that will run it."""
    statements = connection.extract_statements(text)
    if len(statements) != 1:
        raise StatementError(f"{len(statements)} statements where one is expected", "send them one by one")
    if statements[0].type != duckdb.StatementType.SELECT:
        raise Unsupported("a home can only be read here: this is not a SELECT")
