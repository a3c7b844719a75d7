"""Appending: conformed records into their stream, refused ones into the dead letters, whole files chunk by chunk.

An append with a producer and a sequence can be repeated as a whole: the dead letters go first, so that a repeat after a
crash between the two adds neither twice. Logs that were appended to stay open in the process: what a log knows of its
directory need not be found out again for each append.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import HayaseError, OffsetGone
from hayase.streams.dead_letters import APPEND, DEAD, dead_table
from hayase.streams.event_time import event_times
from hayase.streams.file_formats import Format, read_records
from hayase.streams.log import StreamLog
from hayase.streams.records import Conformed

__all__ = ["Accepted", "append_conformed", "append_source"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer to an append: how many records are durable in the stream, and how many in the dead letters."""

    accepted: int
    refused: int
    first: int
    next: int
    repeated: bool = False


def append_conformed(
    home: Path,
    declaration: StreamDeclaration,
    conformed: Conformed,
    now: int,
    producer: str | None = None,
    sequence: int | None = None,
) -> Accepted:
    """Append what conforms, after the dead letters of what does not. If the records cannot be appended, there are no letters."""
    log, refused = _log(home, declaration), conformed.refused
    sender = None if producer is None else f"{declaration.name}/{producer}"
    rows = conformed.rows
    if sender is not None and sequence is not None and rows.num_rows:
        rows = _without_refused(home, declaration, conformed, sender, sequence)

    def letters() -> None:
        if refused:
            records, reasons = [each.record for each in refused], [each.reason for each in refused]
            table = dead_table(APPEND, None, declaration.name, None, records, reasons, 1, now)
            _log(home, DEAD).append(table, now=now, producer=sender, sequence=sequence)

    if not rows.num_rows:
        letters()
        end = log.index().next
        return Accepted(0, len(refused) + conformed.rows.num_rows, end, end)
    done = log.append(rows, now=now, producer=producer, sequence=sequence, before=letters)
    return Accepted(
        rows.num_rows, len(refused) + conformed.rows.num_rows - rows.num_rows, done.first, done.next, done.repeated
    )


def _without_refused(
    home: Path, declaration: StreamDeclaration, conformed: Conformed, sender: str, sequence: int
) -> pa.Table:
    """The records without those that the same append, stopped before its records had their place, has made dead letters
    because they were too far ahead of the clock then: those with the greatest event times, as many as were refused for it."""
    rows = conformed.rows
    if declaration.max_ahead is None:
        return rows
    dead = _log(home, DEAD)
    before = dead.last_of(sender)
    if before is None or before.sequence != sequence:
        return rows
    try:
        reasons = [
            reason for piece in dead.read(before.first, before.next) for reason in piece.rows["reason"].to_pylist()
        ]
    except OffsetGone:  # retention has removed them: that was long after they were told
        return rows
    still = sum(_AHEAD in each.reason for each in conformed.refused)
    count = min(sum(_AHEAD in each for each in reasons) - still, rows.num_rows)
    if count <= 0:
        return rows
    latest = np.argsort(event_times(rows, declaration), kind="stable")[-count:]
    kept = np.setdiff1d(np.arange(rows.num_rows), latest)
    return rows.take(pa.array(kept))


_AHEAD = "max_ahead is "
"""What reasons say of records that are too far ahead of the clock."""
_KEPT = 256
_open: OrderedDict[tuple[int, Path, str], StreamLog] = OrderedDict()
"""Logs by process, home and stream; those that were used last come last."""
_turn = threading.Lock()


def _log(home: Path, declaration: StreamDeclaration) -> StreamLog:
    """The log of a declared stream, as `StreamLog.ensure` gives it; the same one as before if nothing was declared anew."""
    place = (os.getpid(), home.absolute(), declaration.name)
    with _turn:
        log = _open.get(place)
        if log is None or log.declaration != declaration or not log.is_declared():
            log = _open[place] = StreamLog.ensure(home.absolute(), declaration)
        _open.move_to_end(place)
        while len(_open) > _KEPT:
            _open.popitem(last=False)
    return log


def append_source(
    home: Path,
    declaration: StreamDeclaration,
    source: Path | BinaryIO,
    form: Format,
    clock: Callable[[], int],
    producer: str | None = None,
) -> Iterator[tuple[int, Accepted]]:
    """Append a file or pipe in bounded memory; gives, chunk by chunk, the bytes behind and what became of it.

    With a producer the chunks are numbered, so that a repeat after a crash goes on where it was.
    """
    for number, chunk in enumerate(read_records(source, form, declaration, clock), 1):
        rows = chunk.conformed.rows.num_rows
        sequence = None if producer is None else number
        done = append_conformed(home, declaration, chunk.conformed, clock(), producer, sequence)
        if done.repeated and done.first >= 0 and done.next - done.first != rows:
            raise HayaseError(
                f'"{source}" is not what it was when producer "{producer}" appended it: its part {number} had '
                f"{done.next - done.first:,} records and has {rows:,}; put what is new into a file of its own"
            )
        yield chunk.done, done
