"""Repeats: the records of a stream with `dedupe` whose id came before. Which these are follows from the log alone.

Records are taken in the order of the log. A record is *too old* if its event time is before the running maximum of event
time (its own included) less `dedupe`. Any other record is a *repeat* if an earlier record that is neither has the same id,
and that record's event time is not before that bound; else it is the first with its id.

The repeats of a log are computed once and stored in `repeats/{first}-{next}.marks` beside its segments: sealed JSON with the
`dedupe` that held and the runs of offsets that are repeats. Whoever computes them holds a lock and goes on where the last file
ends. Since the result is a function of the log, a process that is killed leaves nothing to undo, files that are lost are computed
again, and every reader that leaves the same records out sees the same stream. A reader that may not write keeps them in memory.
The ids since the bound are in memory, and are read again from the log after a start.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from hayase.core import keys
from hayase.core.data_classes import dataclass
from hayase.core.errors import DamagedState, HayaseError
from hayase.core.times import BEGINNING
from hayase.streams import durable
from hayase.streams.event_time import event_times
from hayase.streams.log import Piece, StreamLog
from hayase.streams.sealed import read_sealed, seal
from hayase.streams.segments import write_error

__all__ = [
    "Marks",
    "check_marks",
    "first_pieces",
    "first_rows",
    "forget_repeats",
    "mark_repeats",
    "marks_between",
    "needed_for_repeats",
    "repeated_in",
]

DIRECTORY = "repeats"
_KIND = "repeats"
_NAME = re.compile(r"(\d{20})-(\d{20})\.marks")
_KEPT = 64
"""Streams whose ids a process keeps in memory."""
_SPARE = 100_000
"""Ids that may be in memory although they are older than the bound, so that they are not looked through for each record."""
_TRIES = 5
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
"""Errors of a home that this process may only read."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Which of the records [first, next) are repeats, as runs of offsets; `dedupe` is the duration that held."""

    first: int
    next: int
    dedupe: int
    runs: np.ndarray

    def repeated(self, offsets: np.ndarray) -> np.ndarray:
        """Return a mask of the offsets that are repeats.

        >>> Marks(0, 9, 10, np.array([[2, 4], [7, 8]])).repeated(np.arange(9)).nonzero()[0].tolist()
        [2, 3, 7]
        """
        if not len(self.runs):
            return np.zeros(len(offsets), bool)
        at = np.searchsorted(self.runs[:, 0], offsets, side="right") - 1
        return (at >= 0) & (offsets < self.runs[at, 1])

    @property
    def name(self) -> str:
        return f"{self.first:020d}-{self.next:020d}.marks"

    def as_bytes(self) -> bytes:
        """Return the content of the file."""
        return seal(_KIND, orjson.dumps({"dedupe": self.dedupe, "runs": self.runs.tolist()}))

    def joined(self, later: Marks) -> Marks:
        """Return the marks of these records and those that follow them."""
        return Marks(self.first, later.next, self.dedupe, np.concatenate([self.runs, later.runs]))


def mark_repeats(log: StreamLog, next_: int) -> None:
    """Compute and store the repeats before the offset `next_`, if the stream has `dedupe` and they are not stored yet."""
    if log.declaration.dedupe is not None:
        _repeats_of(log).mark(log, next_)


def marks_between(log: StreamLog, first: int, next_: int) -> list[Marks]:
    """Return the marks of the records [first, next_), in their order; none if the stream has no `dedupe`."""
    if log.declaration.dedupe is None or first >= next_:
        return []
    return _repeats_of(log).between(log, first, next_)


def first_pieces(log: StreamLog, first: int, next_: int) -> Iterator[Piece]:
    """Yield the records [first, next_) like `StreamLog.read`, without repeats."""
    marks = marks_between(log, first, next_)
    for piece in log.read(first, next_):
        if not any(len(part.runs) for part in marks):
            yield piece
            continue
        _, maxima = _times_of(piece, log)
        repeated = repeated_in(marks, _offsets(piece))
        bounds = np.flatnonzero(np.diff(np.concatenate([[True], repeated, [True]]).astype(np.int8)))
        for start, stop in bounds.reshape(-1, 2).tolist():  # the runs between repeats
            before = int(maxima[start - 1]) if start else piece.running_max_before
            yield Piece(piece.rows.slice(start, stop - start), piece.first + start, before)


def first_rows(log: StreamLog, first: int, next_: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the records [first, next_) without repeats."""
    marks = marks_between(log, first, next_)
    for piece in log.read(first, next_):
        if any(len(part.runs) for part in marks):
            yield piece.rows.filter(pa.array(~repeated_in(marks, _offsets(piece))))
        else:
            yield piece.rows


def _offsets(piece: Piece) -> np.ndarray:
    return np.arange(piece.first, piece.first + piece.rows.num_rows)


def repeated_in(marks: list[Marks], offsets: np.ndarray) -> np.ndarray:
    """Return a mask of the offsets that are repeats by any of the marks."""
    mask = np.zeros(len(offsets), bool)
    for part in marks:
        mask |= part.repeated(offsets)
    return mask


def needed_for_repeats(log: StreamLog) -> int | None:
    """Return the offset from which on records must be kept, because their ids are needed; None without `dedupe`."""
    if log.declaration.dedupe is None:
        return None
    index = log.index()
    return _since(log, index.next, index.running_max, log.declaration.dedupe)


def check_marks(path: Path) -> None:
    """Read a file of marks; DamagedState if it is damaged."""
    _read(path)


def _read(path: Path) -> Marks:
    remedy = "remove the file; the repeats are computed again from the log"
    name = _NAME.fullmatch(path.name)
    try:
        data = orjson.loads(read_sealed(path, _KIND, remedy))
        runs = np.array(data["runs"], np.int64).reshape(-1, 2)
        return Marks(int(name[1]), int(name[2]), data["dedupe"], runs)  # type: ignore[index]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedState(f"the {_KIND} {path} cannot be read: {error}", remedy) from error


def _since(log: StreamLog, next_: int, peak: int, dedupe: int) -> int:
    """Return an offset before which all records are older than `peak` less `dedupe`."""
    for entry in log.index().entries:
        if entry.next > entry.first and entry.running_max >= peak - dedupe:
            return min(entry.first, next_)
    return next_


class _Ids:
    """The ids that are known, each with the event time of the first record that had it."""

    def __init__(self) -> None:
        self._index = keys.KeyIndex()
        self._times = np.full(1024, BEGINNING, np.int64)
        self._live = 0

    def take(self, ids: pa.Array, times: np.ndarray, bounds: np.ndarray, oldest: int) -> np.ndarray:
        """Take records in the order of the log, and return a mask of those that are repeats. A record counts if it is not
        before its bound; ids of records before `oldest` may be forgotten."""
        from hayase.core import repeat_loops

        encoded = keys.encode([ids])
        slots = self._index.slots(encoded, keys.hashes(encoded))
        if self._index.capacity > len(self._times):
            more = np.full(2 * self._index.capacity - len(self._times), BEGINNING, np.int64)
            self._times = np.concatenate([self._times, more])
        repeated = np.zeros(len(slots), bool)
        repeat_loops.find_repeats(slots, times, bounds, self._times, repeated)
        if len(self._index) > 2 * self._live + _SPARE:
            live = np.flatnonzero(self._times[: self._index.capacity] >= oldest)
            self._index.keep(live)
            self._live = len(live)
            self._times[: self._live] = self._times[live]
            self._times[self._live :] = BEGINNING
        return repeated


class _Repeats:
    """The marks of one stream as this process knows them, and the ids before the offset `_end`, with their event times."""

    def __init__(self, log: StreamLog):
        assert log.declaration.dedupe is not None
        assert log.declaration.id is not None
        self._path = log.path / DIRECTORY
        self._dedupe, self._id = log.declaration.dedupe, log.declaration.id
        self._marks: list[Marks] = []
        self._files: list[tuple[str, int, int]] = []
        """Name, first and next of all files when they were listed last."""
        self._ids = _Ids()
        self._end: int | None = None
        self._inode = -1
        self._turn = threading.RLock()

    def between(self, log: StreamLog, first: int, next_: int) -> list[Marks]:
        with self._turn:
            self.mark(log, next_)
            return [part for part in self._marks if part.first < next_ and first < part.next]

    def mark(self, log: StreamLog, next_: int) -> None:
        with self._turn:
            if self._is_same_directory() and self._reach() >= next_:
                return
            self._load(log)
            if self._reach() >= next_:
                return
            try:
                durable.make_directory(self._path)
                self._is_same_directory()
                with self._locked():
                    self._load(log)  # another process may have gone on meanwhile
                    marks = self._following(log, next_)
                    if marks is not None:
                        self._store(marks, log.index().start)
            except OSError as error:
                if error.errno not in _READ_ONLY:
                    raise write_error(log.declaration.name, error) from error
                marks = self._following(log, next_)
                if marks is not None:
                    self._marks.append(marks)

    def _following(self, log: StreamLog, next_: int) -> Marks | None:
        """Return the marks of the records from where the known ones end to `next_`; None if there are no such records."""
        first = max(self._reach(), log.index().start)
        if first >= next_:
            return None
        self._follow(log, first)
        return self._marked(log, first, next_)

    def _is_same_directory(self) -> bool:
        """Return whether the directory is that of the last call; if not, forget what was in it."""
        try:
            inode = self._path.stat().st_ino
        except FileNotFoundError:
            inode = -1
        if inode != self._inode:
            self._marks, self._end, self._inode = [], None, inode
        return inode >= 0

    def _reach(self) -> int:
        return self._marks[-1].next if self._marks else 0

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = durable.open_file(self._path / "lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _load(self, log: StreamLog) -> None:
        """List the files and read those that are new; of files that overlap, the one that reaches furthest counts. Those behind
        records that have no marks are left out: their file was lost, and is computed again."""
        start = log.index().start
        for _ in range(_TRIES):
            try:
                matches = [match for match in map(_NAME.fullmatch, os.listdir(self._path)) if match]
            except FileNotFoundError:
                self._marks, self._files = [], []
                return
            known = {part.name: part for part in self._marks}
            chosen: list[str] = []
            reach = -1
            self._files = [(match[0], int(match[1]), int(match[2])) for match in matches]
            for name, first, next_ in sorted(self._files, key=lambda file: (file[1], -file[2])):
                if first > max(start, reach):
                    break
                if next_ > reach:
                    chosen.append(name)
                    reach = next_
            try:
                self._marks = [known.get(name) or _read(self._path / name) for name in chosen]
                return
            except FileNotFoundError:  # joined with others meanwhile
                continue
        raise HayaseError(f"the files in {self._path} change faster than they can be read; try again")

    def _follow(self, log: StreamLog, end: int) -> None:
        """Take the ids of the marked records before `end` into memory."""
        if self._end == end:
            return
        peak = log.running_max_at(end)
        since = max(_since(log, end, peak, self._dedupe), log.index().start)
        if self._end is None or not since <= self._end < end:
            self._ids, self._end = _Ids(), since
        for part in self._marks:
            begin, stop = max(part.first, self._end), min(part.next, end)
            for piece in log.read(begin, stop) if begin < stop else ():
                times, maxima = _times_of(piece, log)
                oldest = peak - self._dedupe
                firsts = ~part.repeated(_offsets(piece)) & (times >= np.maximum(maxima - part.dedupe, oldest))
                if (
                    firsts.any()
                ):  # of several with one id, the later ones have greater times, as the earlier were forgotten
                    ids, times = piece.rows.column(self._id).filter(pa.array(firsts)), times[firsts]
                    self._ids.take(ids, times, times, oldest)
        self._end = end

    def _marked(self, log: StreamLog, first: int, next_: int) -> Marks:
        """Return the marks of the records [first, next_), and take their ids into memory."""
        self._end = None  # if this is interrupted, the ids are read again
        repeats = [np.empty(0, np.int64)]
        for piece in log.read(first, next_):
            times, maxima = _times_of(piece, log)
            bounds = maxima - self._dedupe
            repeated = self._ids.take(piece.rows.column(self._id), times, bounds, int(bounds[-1]))
            repeats.append(np.flatnonzero(repeated) + piece.first)
        self._end = next_
        return Marks(first, next_, self._dedupe, _runs(np.concatenate(repeats)))

    def _store(self, marks: Marks, start: int) -> None:
        """Write marks, joined with files before them that are not much larger; then remove the files that it covers, and
        those of records that retention has removed."""
        kept = [part for part in self._marks if part.next > start]
        while kept and kept[-1].next == marks.first and kept[-1].dedupe == marks.dedupe:
            if len(kept[-1].runs) > 2 * len(marks.runs) + 64:
                break
            marks = kept.pop().joined(marks)
        durable.write_atomic(self._path / marks.name, marks.as_bytes())
        self._marks = [*kept, marks]
        for name, first, next_ in self._files:
            if next_ <= start or (name != marks.name and marks.first <= first and next_ <= marks.next):
                durable.remove(self._path / name)


def _times_of(piece: Piece, log: StreamLog) -> tuple[np.ndarray, np.ndarray]:
    """Return the event times of records, and the running maximum at each, its own time included."""
    times = event_times(piece.rows, log.declaration)
    return times, np.maximum(np.maximum.accumulate(times), piece.running_max_before)


def _runs(places: np.ndarray) -> np.ndarray:
    if not len(places):
        return np.empty((0, 2), np.int64)
    begins = np.flatnonzero(np.diff(places, prepend=places[0] - 2) != 1)
    ends = np.append(begins[1:], len(places))
    return np.stack([places[begins], places[ends - 1] + 1], axis=1)


_known: OrderedDict[tuple[int, Path, int, str | None], _Repeats] = OrderedDict()
_turn = threading.Lock()


def _repeats_of(log: StreamLog) -> _Repeats:
    assert log.declaration.dedupe is not None
    key = (os.getpid(), log.path.absolute(), log.declaration.dedupe, log.declaration.id)
    with _turn:
        repeats = _known.get(key)
        if repeats is None:
            repeats = _known[key] = _Repeats(log)
        _known.move_to_end(key)
        while len(_known) > _KEPT:
            _known.popitem(last=False)
    return repeats


def forget_repeats() -> None:
    """Forget all ids and marks in memory, as a new process has none."""
    with _turn:
        _known.clear()
