"""What a session runs in threads, so that no statement holds up the server: asking, reading answers, following changes.

A session asks at the newest set of manifests, or in a transaction at the one with which the transaction began.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.engine.results.lifespans import own_columns
from hayase.engine.results.live_results import Changes, Live
from hayase.relations.home_reader import HomeReader
from hayase.relations.relation import PresentRows, Records
from hayase.relations.relation_catalogue import Catalogue
from hayase.relations.statement_runs import Answer, Control
from hayase.wire.column_types import ColumnType, column_type, values
from hayase.wire.commands import CopyOut
from hayase.wire.copied_lines import copied_line
from hayase.wire.dialect import is_about_the_catalogue, translated
from hayase.wire.messages import data_row, message
from hayase.wire.settings import Settings
from hayase.wire.sql_errors import SqlError
from hayase.wire.system_relations import with_system_relations

__all__ = ["Asking", "Following", "Rows", "Workers", "binary_columns", "copied", "format_at"]

_T = TypeVar("_T")
ROWS = 2048
"""Rows that are sent at once."""
CHANGES = 1000
"""Changes that a subscription sends at once."""


class Workers:
    """The threads of a server, in which everything that may wait for the disk or for DuckDB is done."""

    def __init__(self, threads: int):
        self._pool = ThreadPoolExecutor(threads, "sql")

    async def run(self, work: Callable[..., _T], *arguments: Any) -> _T:
        """Return what a function returns, from one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)

    def close(self) -> None:
        """End the threads when they are done."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Asking:
    """The statements of one session."""

    def __init__(self, reader: HomeReader, settings: Settings):
        self._reader, self._settings = reader, settings
        self._pinned: Catalogue | None = None

    def pin(self) -> None:
        """Let all statements from now on see the same versions."""
        self._pinned = self._reader.catalogue()

    def unpin(self) -> None:
        """Let each statement see the newest versions again."""
        self._pinned = None

    def ask(self, sql: str, parameters: Sequence[Any], control: Control) -> Answer:
        """Begin a SELECT."""
        text, at = self._read(sql)
        return self._reader.statement(
            text, parameters, as_of=self._settings.as_of, at=at, seconds=self._settings.seconds, control=control
        )

    def begin(
        self, sql: str, parameters: Sequence[Any], formats: Sequence[int], control: Control, most: int = 0
    ) -> tuple[Rows, list[bytes], bool]:
        """Begin a SELECT and return its rows, the first of them as messages, and whether these are all."""
        answer = self.ask(sql, parameters, control)
        try:
            rows = Rows(answer, formats)
            return rows, *rows.take(most)
        except BaseException:
            answer.close()
            raise

    def columns(self, sql: str, parameters: Sequence[Any]) -> pa.Schema:
        """Return the columns of a SELECT without running it."""
        text, at = self._read(sql)
        return self._reader.columns(text, parameters, at=at)

    def _read(self, sql: str) -> tuple[str, Catalogue | None]:
        if not is_about_the_catalogue(sql):
            return translated(sql), self._pinned
        return translated(sql), with_system_relations(self._pinned or self._reader.catalogue())

    def follow(self, name: str, from_start: bool) -> Following:
        """Begin to follow the changes of a query, or the records of a stream."""
        relation = (self._pinned or self._reader.catalogue()).find(name)
        if isinstance(relation, PresentRows):
            log = relation.results.log
        elif isinstance(relation, Records):
            log = relation.log
        else:
            raise SqlError("0A000", f'"{name}" has no changes to follow', "subscribe to a query or a stream")
        live = Live(log)
        changes = live.changes_from_oldest() if from_start else live.changes_from(None)
        return Following(changes, 2 + len(own_columns(log.declaration)))


@dataclass(frozen=True, slots=True)
class Following:
    """A subscription: each line has the event time, + or -, and the row."""

    changes: Changes
    width: int
    """The number of columns of a line."""

    def lines(self, form: CopyOut) -> list[bytes]:
        """Return the changes that became final since the last call, at most `CHANGES`, as messages of a COPY."""
        _, rows = self.changes.read(CHANGES)
        times = [str(time).encode() for time in self.changes.times(rows)]
        signs = [b"+" if appears else b"-" for appears in rows.column("__appears").to_pylist()]
        own = rows.drop_columns(["__time", "__appears", "__row"])
        columns = [values(column, column_type(column.type), False) for column in own.columns]
        return [message(b"d", copied_line(line, form)) for line in zip(times, signs, *columns)]


class Rows:
    """The rows of an answer as messages, in the formats that the client has asked for (0 text, 1 binary)."""

    def __init__(self, answer: Answer, formats: Sequence[int]):
        self.schema = answer.schema
        self.types = [column_type(field.type) for field in answer.schema]
        self.binary = binary_columns(self.types, formats)
        self._answer, self._rest = answer, pa.RecordBatch.from_pylist([], schema=answer.schema)

    def take(self, most: int = 0) -> tuple[list[bytes], bool]:
        """Return the next rows, about `ROWS` of them and at most as many as are asked for, and whether they were the last."""
        messages: list[bytes] = []
        wanted = min(most or ROWS, ROWS)
        while len(messages) < wanted:
            batch = self._rest if self._rest.num_rows else next(iter(self._answer), None)
            if batch is None:
                self._answer.close()
                return messages, True
            left = most - len(messages) if most else batch.num_rows
            self._rest = batch.slice(left)
            messages += rows_of(batch.slice(0, left), self.types, self.binary)
        return messages, False

    def close(self) -> None:
        """End the statement."""
        self._answer.close()


def binary_columns(types: Sequence[ColumnType], formats: Sequence[int]) -> list[bool]:
    """Return which columns are sent in binary. A type without a binary form is refused in it, as it would be misread."""
    wanted = [bool(format_at(formats, at)) for at in range(len(types))]
    for kind, is_binary in zip(types, wanted):
        if is_binary and kind.binary is None:
            raise SqlError(
                "0A000", f"values of type {kind.name} are sent as text only", "ask for text, or cast the column"
            )
    return wanted


def format_at(formats: Sequence[int], at: int) -> int:
    """Return the format of a parameter or column: clients send none, one for all, or one for each."""
    return formats[at] if len(formats) > 1 else formats[0] if formats else 0


def rows_of(batch: pa.RecordBatch, types: Sequence[ColumnType], binary: Sequence[bool]) -> list[bytes]:
    """Return a batch as messages, one a row."""
    columns = [values(column, kind, flag) for column, kind, flag in zip(batch.columns, types, binary)]
    if not columns:
        return [data_row(())] * batch.num_rows
    return [data_row(row) for row in zip(*columns)]


def copied(batch: pa.RecordBatch, form: CopyOut) -> Iterator[bytes]:
    """Yield the rows of a batch as messages of a COPY."""
    columns = [values(column, column_type(column.type), False) for column in batch.columns]
    for row in zip(*columns):
        yield message(b"d", copied_line(row, form))
