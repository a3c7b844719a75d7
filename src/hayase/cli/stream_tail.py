"""Prints the end of a stream and what follows: records in the order of the log, or the changes of a query in event time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from hayase.cli.pipeline_location import index_of
from hayase.cli.terminal import errors, output

if TYPE_CHECKING:
    import pyarrow as pa

    from hayase.engine.results.live_results import Changes
    from hayase.streams import StreamLog

__all__ = ["ChangeTail", "RecordTail", "Tail", "follow", "tail_of"]

POLL = 0.2
"""Seconds between two looks at a stream that is followed."""
TOGETHER = 1_000
"""Records or changes that are printed at once."""
SPARE = 12
"""How many characters columns are widened, where there is room, when longer values may follow."""


class Tail(Protocol):
    """The end of a stream, which may grow."""

    @property
    def is_finished(self) -> bool:
        """Whether everything is printed and nothing more will come."""

    def print_next(self) -> None:
        """Print what was added since the last call."""


def tail_of(log: StreamLog, count: int, *, as_json: bool, follows: bool) -> Tail:
    """Print the last `count` records, or changes if the stream has the results of a relation; return what follows."""
    spare = SPARE if follows else 0
    if not log.declaration.lifetimes:
        tail = RecordTail(log, count, as_json=as_json, spare=spare)
        tail.print_next()
        return tail
    from hayase.engine.results.live_results import Live

    changes = ChangeTail(Live(log).changes_of_last(count), as_json=as_json, spare=spare)
    changes.print_last(count)
    return changes


def follow(tail: Tail) -> None:
    """Print what is added until the stream is finished, or until Ctrl-C, which is KeyboardInterrupt."""
    while True:
        tail.print_next()
        if tail.is_finished:
            return
        time.sleep(POLL)


class RecordTail:
    """The records of a stream from one of the last on; on a terminal, later ones are aligned with the first."""

    def __init__(self, log: StreamLog, count: int, *, as_json: bool, spare: int = 0):
        self._log, self._as_json, self._spare = log, as_json, spare
        index = index_of(log)
        self._at = max(index.start, index.next - count)
        self._columns: Any = None
        self._is_empty = False
        """Whether it was said that there are no records."""

    @property
    def is_finished(self) -> bool:
        index = index_of(self._log)
        return index.finished and self._at >= index.next

    def print_next(self) -> None:
        index = index_of(self._log)
        first, self._at = max(self._at, index.start), index.next
        for at, records in self._batches(first, index.next):
            if self._as_json:
                _write_lines(records)
            else:
                self._show(at, records)
        if first == index.next and not self._as_json and self._columns is None and not self._is_empty:
            self._is_empty = True
            _print_none(f"no records in {self._log.declaration.name} yet")

    def _batches(self, first: int, next_: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """Yield records with the offset of the first, in batches that fit into memory."""
        from hayase.streams.json_columns import written_records
        from hayase.streams.repeats import first_rows

        for start in range(first, next_, TOGETHER):
            batches = first_rows(self._log, start, min(next_, start + TOGETHER))
            yield (
                start,
                [record for rows in batches for record in written_records(self._log.declaration.shown(rows))],
            )

    def _show(self, first: int, records: list[dict[str, Any]]) -> None:
        from hayase.console.records import Columns, dead_letters, record_table
        from hayase.streams.dead_letters import DEAD

        console = output()
        if self._log.declaration.name == DEAD.name:
            console.print(dead_letters(records))
            return
        header = self._columns is None
        if self._columns is None:
            names = self._log.declaration.shown_schema.names
            self._columns = Columns(names, records, first + len(records), console.width, spare=self._spare)
        console.print(record_table(self._columns, first, records, header=header))


class ChangeTail:
    """The changes of a query, "+" for a row that appears and "-" for one that ends, with their times."""

    def __init__(self, changes: Changes, *, as_json: bool, spare: int = 0):
        self._changes, self._as_json, self._spare = changes, as_json, spare
        self._columns: Any = None

    @property
    def is_finished(self) -> bool:
        return self._changes.is_finished

    def print_last(self, count: int) -> None:
        """Print the last `count` of the changes that are final now."""
        import pyarrow as pa

        kept: list[pa.Table] = []
        for changes in self._read():
            kept = [*kept, changes]
            while sum(table.num_rows for table in kept[1:]) >= count:
                del kept[0]
        if not kept or count == 0:
            if not self._as_json and count:
                _print_none("no changes yet")
            return
        last = pa.concat_tables(kept)
        self._print(last.slice(max(0, last.num_rows - count)))

    def print_next(self) -> None:
        for changes in self._read():
            self._print(changes)

    def _read(self) -> Iterator[pa.Table]:
        while True:
            changes = self._changes.read_instants(TOGETHER, TOGETHER)
            if not changes.num_rows:
                return
            yield self._changes.table(changes)

    def _print(self, changes: pa.Table) -> None:
        from hayase.streams.json_columns import written_records

        records = written_records(changes)
        if self._as_json:
            _write_lines(records)
            return
        from hayase.console.records import Columns, change_table

        console, header = output(), self._columns is None
        if self._columns is None:
            time_, _, *names = changes.column_names
            self._columns = Columns([time_, *names], records, 1, console.width, spare=self._spare)
        console.print(change_table(self._columns, changes.column_names[1], records, header=header))


def _write_lines(records: list[dict[str, Any]]) -> None:
    from hayase.streams.record_text import record_text

    for record in records:
        sys.stdout.write(record_text(record) + "\n")
    sys.stdout.flush()


def _print_none(text: str) -> None:
    errors().print(text, style="dim", markup=False)
