"""Appends to streams: conformed records go into their stream, refused ones into the dead letters, files chunk by chunk.

An append has its whole effect or none: records and dead letters together. With a producer and a sequence it can be
repeated. Logs that were appended to stay open in the process, so that their directories need not be read again for each
append.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import HayaseError, OffsetGone
from hayase.core.reasons import ReasonKind
from hayase.streams.dead_letters import DEAD, append_letters, with_kinds
from hayase.streams.event_time import event_times
from hayase.streams.file_formats import Format, read_records
from hayase.streams.log import FIRST, Letters, StreamLog
from hayase.streams.records import Conformed

__all__ = ["Accepted", "append_conformed", "append_source", "last_sequence"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The result of an append: how many records are durable in the stream, and how many became dead letters."""

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
    after: int | None = None,
) -> Accepted:
    """Append the conforming records, and dead letters for the others: both, or neither if that fails. `after` is that of
    `StreamLog.append`."""
    log, refused = _log(home, declaration), conformed.refused
    rows, count = conformed.rows, conformed.rows.num_rows + len(refused)
    if producer is not None and sequence is not None and rows.num_rows:
        rows = _without_refused(home, declaration, conformed, f"{declaration.name}/{producer}", sequence)
    letters = None
    if refused:
        letters = Letters(_log(home, DEAD), append_letters(declaration.name, refused, now))
    appended = log.append(rows, now=now, producer=producer, sequence=sequence, letters=letters, after=after)
    return Accepted(rows.num_rows, count - rows.num_rows, appended.first, appended.next, appended.repeated)


def last_sequence(home: Path, declaration: StreamDeclaration, producer: str) -> int:
    """Return the sequence of a producer's last append to a stream, of records or of dead letters only; `FIRST` if there is
    none."""
    appends = (
        _log(home, declaration).last_of(producer),
        _log(home, DEAD).last_of(f"{declaration.name}/{producer}"),
    )
    return max(FIRST if append is None else append.sequence for append in appends)


def _without_refused(
    home: Path, declaration: StreamDeclaration, conformed: Conformed, sender: str, sequence: int
) -> pa.Table:
    """Return the records without those that the first attempt of the same append made dead letters because they were
    too far ahead of the clock then: the records with the greatest event times, as many as were refused for that reason.
    """
    rows = conformed.rows
    if declaration.max_ahead is None:
        return rows
    dead = _log(home, DEAD)
    before = dead.last_of(sender)
    if before is None or before.sequence != sequence:
        return rows
    try:
        letters = [with_kinds(piece.rows) for piece in dead.read(before.first, before.next)]
    except OffsetGone:  # retention has removed the letters: the first attempt was long ago
        return rows
    refused_before = sum(rows.column("kind").to_pylist().count(ReasonKind.AHEAD) for rows in letters)
    refused_again = sum(refusal.kind is ReasonKind.AHEAD for refusal in conformed.refused)
    count = min(refused_before - refused_again, rows.num_rows)
    if count <= 0:
        return rows
    latest = np.argsort(event_times(rows, declaration), kind="stable")[-count:]
    kept = np.setdiff1d(np.arange(rows.num_rows), latest)
    return rows.take(pa.array(kept))


_KEPT = 256
_open: OrderedDict[tuple[int, Path, str], StreamLog] = OrderedDict()
"""Open logs by process, home and stream; the most recently used last."""
_turn = threading.Lock()


def _log(home: Path, declaration: StreamDeclaration) -> StreamLog:
    """Return the log of a declared stream, as `StreamLog.ensure` does; cached as long as the declaration is unchanged."""
    key = (os.getpid(), home.absolute(), declaration.name)
    with _turn:
        log = _open.get(key)
        if log is None or log.declaration != declaration or not log.is_declared():
            log = _open[key] = StreamLog.ensure(home.absolute(), declaration)
        _open.move_to_end(key)
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
    """Append a file or pipe in bounded memory; yields, per chunk, the bytes read so far and the result.

    With a producer the chunks are numbered, so that a repeat after a crash continues where it stopped.
    """
    for number, chunk in enumerate(read_records(source, form, declaration, clock), 1):
        sequence = None if producer is None else number
        result = append_conformed(home, declaration, chunk.conformed, clock(), producer, sequence)
        if result.repeated and result.first >= 0 and result.next - result.first != result.accepted:
            raise HayaseError(
                f'"{source}" is not what it was when producer "{producer}" appended it: its part {number} had '
                f"{result.next - result.first:,} records and has {result.accepted:,}; put what is new into a file of its own"
            )
        yield chunk.done, result
