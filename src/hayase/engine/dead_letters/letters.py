"""Dead letters: search, groups of similar ones, and their states (open, replayed, dropped).

A letter is open until a record in `_settled` says that it was replayed or dropped. Letters are filtered in the log, column by
column, since a home may have millions of them; of settled ones only numbers and offsets in `_settled` are held in memory.

>>> import tempfile
>>> letters = Letters(Path(tempfile.mkdtemp()))
>>> letters.count(), letters.newest().letters
(0, ())
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.clock import now_us
from hayase.core.data_classes import dataclass
from hayase.core.declarations import PipelineDeclaration
from hayase.core.errors import HayaseError, UnknownName
from hayase.core.reasons import KIND_MEANINGS
from hayase.core.times import BEGINNING, END, instant
from hayase.engine.dead_letters.recent_letters import KeptGroups, RecentLetters
from hayase.engine.home import Home
from hayase.engine.logs import index_of
from hayase.engine.results.query_results import Time
from hayase.streams import Piece, StreamLog
from hayase.streams.dead_letters import APPEND, DEAD, SETTLED, with_kinds

if TYPE_CHECKING:
    from hayase.engine.dead_letters.edits import Edit
    from hayase.engine.dead_letters.settlement import Settlement

__all__ = ["Filter", "Group", "Letter", "LetterState", "Letters", "Lot", "Page", "obsolete_before"]

State = Literal["open", "replayed", "dropped"]

_AT_ONCE = 16_384
"""Letters that are read at once when going from the newest backwards."""
_GROUPED = 65_536
"""Letters that are grouped at once."""
MOST_GROUPS = 1_000
_NEAR = 1_000
"""Letters whose numbers are at most this far apart are read in one range."""
_OTHERS = "other reasons"
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of letters: a letter matches if it meets all conditions that are set.

    Times are microseconds, `since` inclusive, `until` exclusive. `kind` is a kind of reason (`core.reasons.ReasonKind`), `reason`
    a substring of its text, ignoring case; `version` is a prefix of the version. `offsets` is an inclusive range of offsets of
    the record in its stream. `numbers` are the numbers of letters, and `first` is the least number.
    """

    stage: str | None = None
    stream: str | None = None
    reason: str | None = None
    since: int | None = None
    until: int | None = None
    version: str | None = None
    offsets: tuple[int, int] | None = None
    numbers: tuple[int, ...] | None = None
    first: int = 0
    kind: str | None = None

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in KIND_MEANINGS:
            raise UnknownName("kind of dead letter", self.kind, KIND_MEANINGS)
        for text in (self.stage, self.stream, self.reason, self.version):
            try:
                (text or "").encode()
            except UnicodeEncodeError:
                raise HayaseError("a text that letters are looked for by has half a character in it") from None

    @classmethod
    def of(cls, *numbers: int, since: Time | None = None, until: Time | None = None, **others: Any) -> Filter:
        """Return a filter from numbers of letters and times in any form.

        >>> Filter.of(3, 5, since="1970-01-01T00:00:01Z", stage="scores").since
        1000000
        """
        times = [None if time is None else instant(time) for time in (since, until)]
        return cls(numbers=tuple(numbers) or None, since=times[0], until=times[1], **others)

    def chosen(self, rows: pa.RecordBatch, first: int, among: np.ndarray) -> np.ndarray:
        """Return those of the positions `among` whose letters match; the batch begins with letter `first`. The reason, which
        may be long, is compared last."""
        if self.numbers is not None:
            among = among[np.isin(among + first, self.numbers)]
        if self.since is not None or self.until is not None:
            times = rows.column("time").cast(pa.int64()).to_numpy(zero_copy_only=False)[among]
            since, until = (
                (BEGINNING if self.since is None else self.since),
                (END if self.until is None else self.until),
            )
            among = among[(times >= since) & (times < until)]
        if self.offsets is not None:
            offsets = pc.fill_null(rows.column("offset"), -1).to_numpy(zero_copy_only=False)[among]
            among = among[(offsets >= self.offsets[0]) & (offsets <= self.offsets[1])]
        for column, wanted in (("stage", self.stage), ("stream", self.stream), ("kind", self.kind)):
            if wanted is not None and len(among):
                among = among[_true(pc.equal(rows.column(column), wanted))[among]]
        if self.version is not None and len(among):
            among = among[_true(pc.starts_with(rows.column("version").take(pa.array(among)), self.version))]
        if self.reason is not None and len(among):
            reasons = rows.column("reason").take(pa.array(among))
            among = among[_true(pc.match_substring(reasons, self.reason, ignore_case=True))]
        return among


@dataclass(frozen=True, slots=True)
class Lot:
    """A batch of letters, in the order of their numbers."""

    numbers: np.ndarray
    rows: pa.RecordBatch

    def take(self, positions: np.ndarray) -> Lot:
        """Return the letters at these positions."""
        return Lot(self.numbers[positions], self.rows.take(pa.array(positions)))


@dataclass(frozen=True, slots=True)
class LetterState:
    """The state of a letter, and since when (microseconds). A replayed letter has the `record` that its stage received, or the
    offset at which it was `appended` to its stream."""

    state: State
    at: int | None = None
    record: str | None = None
    appended: int | None = None


OPEN = LetterState("open")


@dataclass(frozen=True, slots=True)
class Letter:
    """A letter: its number, columns and state. `again` is the number of the letter of the next refusal after a replay, if any."""

    number: int
    columns: dict[str, Any]
    fate: LetterState = OPEN
    again: int | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Letters, newest first. `older` is the `before` of the next page; None if there are no more."""

    letters: tuple[Letter, ...]
    older: int | None


@dataclass(frozen=True, slots=True)
class Group:
    """Letters of one stage, stream and kind with similar reasons: how many, the first and the last with their times, and
    the reason of the last."""

    stage: str
    stream: str
    kind: str
    reason: str
    count: int
    first: int
    last: int
    since: int
    until: int

    def joined(self, other: Group) -> Group:
        """Return the union of two groups."""
        newer = self if self.last >= other.last else other
        return replace(
            newer,
            count=self.count + other.count,
            first=min(self.first, other.first),
            since=min(self.since, other.since),
            until=max(self.until, other.until),
        )


class Letters:
    """The dead letters of a home; a home that does not exist has none. Safe to share between threads.

    `declaration` overrides the declarations of streams in the home's newest definition.
    """

    def __init__(
        self, home: Home | Path, declaration: PipelineDeclaration | None = None, clock: Callable[[], int] = now_us
    ):
        self.home = home if isinstance(home, Home) else Home(home)
        self.declaration, self.clock = declaration, clock
        self._log = StreamLog(self.home.path, DEAD)
        self._turn = threading.Lock()
        self._settled = np.empty(0, np.int64)
        self._places = np.empty(0, np.int64)
        self._known = 0
        self._recent = RecentLetters(self._read)
        self._groups: KeptGroups[dict[tuple[str, str, str, str], Group]] = KeptGroups()

    # -- searching ------------------------------------------------------------------------------------------------------
    def bounds(self) -> tuple[int, int]:
        """Return the number of the first letter that is kept, and the number of the next one to come."""
        return _bounds(self._log)

    def settled(self) -> np.ndarray:
        """Return the numbers of all settled letters, ascending."""
        return self._index()[0]

    def _index(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of all settled letters, ascending, and the offset of the newest settlement of each in `_settled`.
        Only settlements since the last call are read."""
        log = StreamLog(self.home.path, SETTLED)
        with self._turn:
            start, end = _bounds(log)
            if end > self._known:
                first = max(start, self._known)
                pieces = log.read(first, end)
                new = np.concatenate([piece.rows.column("letter").to_numpy(zero_copy_only=False) for piece in pieces])
                letters = np.concatenate([self._settled, new])[::-1]
                places = np.concatenate([self._places, np.arange(first, end)])[::-1]
                self._settled, newest = np.unique(letters, return_index=True)
                self._places, self._known = places[newest], end
            return self._settled, self._places

    def _read(self, first: int, end: int) -> Iterator[Piece]:
        """Yield letters by their numbers, each with a kind."""
        for piece in self._log.read(first, end):
            yield replace(piece, rows=with_kinds(piece.rows))

    def matching(self, wanted: Filter = Filter(), *, settled: bool = False) -> Iterator[Lot]:  # noqa: B008 - frozen
        """Yield the open letters that match, oldest first, in lots; with `settled`, settled ones too."""
        excluded = _NONE if settled else self.settled()
        for first, end in self._ranges(wanted):
            for piece in self._read(first, end):
                lot = _lot(piece.rows, piece.first, wanted, excluded)
                if len(lot.numbers):
                    yield lot

    def _ranges(self, wanted: Filter) -> list[tuple[int, int]]:
        """Return the ranges of numbers that can hold matching letters."""
        start, end = self.bounds()
        if wanted.numbers is None:
            first = max(start, wanted.first)
            return [(first, end)] if first < end else []
        self.check(wanted)
        numbers = np.unique(np.array(wanted.numbers, np.int64))
        parts = np.split(numbers, np.flatnonzero(np.diff(numbers) > _NEAR) + 1)
        return [(int(part[0]), int(part[-1]) + 1) for part in parts if part[-1] >= wanted.first]

    def check(self, wanted: Filter) -> None:
        """Raise UnknownName if the filter names a number that no letter has."""
        start, end = self.bounds()
        for number in wanted.numbers or ():
            if not start <= number < end:
                raise unknown_letter(number, start, end)

    def count(self, wanted: Filter = Filter()) -> int:  # noqa: B008 - frozen
        """Return the number of open letters that match."""
        return sum(len(lot.numbers) for lot in self.matching(wanted))

    # -- reading --------------------------------------------------------------------------------------------------------
    def newest(
        self,
        wanted: Filter = Filter(),  # noqa: B008 - frozen
        limit: int = 20,
        *,
        before: int | None = None,
        settled: bool = False,
        look_at: int | None = None,
    ) -> Page:
        """Return the newest letters that match, with numbers below `before`; at most `look_at` letters are examined."""
        start, end = bounds = self.bounds()
        start = max(start, wanted.first)
        end = end if before is None else min(end, before)
        stop = start if look_at is None else max(start, end - look_at)
        excluded = _NONE if settled else self.settled()
        matches: list[Letter] = []
        while end > stop and len(matches) < limit:
            first = max(stop, end - _AT_ONCE)
            for number, rows in self._recent.newest_first(*bounds, first, end):
                lot = _lot(rows, number, wanted, excluded)
                last = lot.take(np.arange(len(lot.numbers))[-(limit - len(matches)) :])
                matches += reversed([Letter(*letter) for letter in zip(last.numbers.tolist(), last.rows.to_pylist())])
                if len(matches) == limit:
                    break
            end = first
        if len(matches) == limit:
            end = matches[-1].number
        if settled and matches:
            states = self._states([letter.number for letter in matches])
            matches = [replace(letter, fate=states.get(letter.number, OPEN)) for letter in matches]
        return Page(tuple(matches), end if end > start else None)

    def get(self, number: int) -> Letter:
        """Return one letter with its state."""
        start, end = self.bounds()
        if not start <= number < end:
            raise unknown_letter(number, start, end)
        columns = next(self._read(number, number + 1)).rows.to_pylist()[0]
        state = self._states([number]).get(number, OPEN)
        again = None
        if state.state == "replayed" and columns["offset"] is not None:
            same = Filter(
                columns["stage"], columns["stream"], offsets=(columns["offset"],) * 2, since=state.at, first=number + 1
            )
            again = next((int(lot.numbers[0]) for lot in self.matching(same, settled=True)), None)
        return Letter(number, columns, state, again)

    def groups(self, wanted: Filter = Filter(), *, settled: bool = False) -> list[Group]:  # noqa: B008 - frozen
        """Return the letters that match, in groups, largest first. Reasons are similar if they have one kind and differ only in
        numbers and quoted values; beyond a thousand groups, all further reasons of a stage, stream and kind form one group.
        Groups are kept: if no letter was settled or removed since, only new ones are read."""
        (start, end), excluded = self.bounds(), _NONE if settled else self.settled()
        seen, known = self._groups.get((wanted, settled), start, excluded) or (wanted.first, {})
        groups = dict(known)
        for lot in lots_of(self.matching(replace(wanted, first=max(seen, wanted.first)), settled=settled), _GROUPED):
            end = max(end, int(lot.numbers[-1]) + 1)
            for alike, group in _grouped(lot):
                key = (group.stage, group.stream, group.kind, alike)
                if key not in groups and len(groups) >= MOST_GROUPS:
                    key = (group.stage, group.stream, group.kind, _OTHERS)
                    group = replace(group, reason=_OTHERS)
                groups[key] = groups[key].joined(group) if key in groups else group
        self._groups.put((wanted, settled), start, excluded, end, groups)
        return sorted(groups.values(), key=lambda item: (-item.count, item.first))

    def _states(self, numbers: Sequence[int]) -> dict[int, LetterState]:
        """Return the states of letters; open letters are left out."""
        settled, places = self._index()
        log = StreamLog(self.home.path, SETTLED)
        letters = np.intersect1d(np.array(numbers, np.int64), settled)
        states = {}
        for place in np.sort(places[np.searchsorted(settled, letters)]).tolist():
            row = next(log.read(place, place + 1)).rows
            (time,) = row.column("time").cast(pa.int64()).to_pylist()
            (settlement,) = row.to_pylist()
            appended = settlement["offset"] if settlement["stage"] == APPEND and settlement["record"] is None else None
            state: State = "dropped" if settlement["record"] is None and appended is None else "replayed"
            states[settlement["letter"]] = LetterState(state, time, settlement["record"], appended)
        return states

    # -- settling -------------------------------------------------------------------------------------------------------
    def replay(
        self,
        wanted: Filter = Filter(),  # noqa: B008 - frozen
        edit: Edit | None = None,
        *,
        late: bool = False,
        limit: int | None = None,
        dry: bool = False,
    ) -> Settlement:
        """Replay open letters to the stages that refused them, and only to these; oldest first, at most `limit`.

        `edit` takes each record, as a dict of JSON values, and returns the record to replay. Letters that were refused as
        late stay open, unless `late` is set. With `dry` nothing is changed, and the report says what would be done.
        """
        from hayase.engine.dead_letters.edits import one_by_one
        from hayase.engine.dead_letters.settlement import replay

        return replay(self, wanted, None if edit is None else one_by_one(edit), late=late, limit=limit, dry=dry)

    def drop(
        self,
        wanted: Filter = Filter(),  # noqa: B008 - frozen
        *,
        limit: int | None = None,
        dry: bool = False,
    ) -> Settlement:
        """Settle open letters without replaying them; they stay readable."""
        from hayase.engine.dead_letters.settlement import drop

        return drop(self, wanted, limit=limit, dry=dry)


def obsolete_before(home: Home) -> int:
    """Return the offset in `_settled` before which all settlements are of letters that retention has removed. Those from it on
    must be kept: without its settlement, a letter would be open again."""
    log, (first, _) = StreamLog(home.path, SETTLED), _bounds(StreamLog(home.path, DEAD))
    start, end = _bounds(log)
    for piece in log.read(start, end) if start < end and first else ():
        alive = np.flatnonzero(piece.rows.column("letter").to_numpy(zero_copy_only=False) >= first)
        if len(alive):
            return piece.first + int(alive[0])
    return end if first else start


def unknown_letter(number: int, start: int, end: int) -> UnknownName:
    """Return the error for a number that no letter has."""
    range_text = f"they are numbered {start:,} to {end - 1:,}" if end > start else "there are none"
    return UnknownName("dead letter", str(number), (), f"; {range_text}")


def lots_of(lots: Iterator[Lot], rows: int, size: int | None = None) -> Iterator[Lot]:
    """Regroup letters into lots of at least `rows` letters or `size` bytes, except the last one; none is much larger."""
    pending: list[Lot] = []
    count = bytes_ = 0
    for lot in lots:
        for at in range(0, len(lot.numbers), rows):
            part = Lot(lot.numbers[at : at + rows], lot.rows.slice(at, rows))
            pending.append(part)
            count += len(part.numbers)
            bytes_ += 0 if size is None else part.rows.nbytes
            if count >= rows or (size is not None and bytes_ >= size):
                yield _joined(pending)
                pending, count, bytes_ = [], 0, 0
    if pending:
        yield _joined(pending)


def _joined(lots: Sequence[Lot]) -> Lot:
    if len(lots) == 1:
        return lots[0]
    return Lot(np.concatenate([lot.numbers for lot in lots]), pa.concat_batches([lot.rows for lot in lots]))


def _bounds(log: StreamLog) -> tuple[int, int]:
    index = index_of(log)
    return (0, 0) if index is None else (index.start, index.next)


def _lot(rows: pa.RecordBatch, first: int, wanted: Filter, settled: np.ndarray) -> Lot:
    """Return those letters of a batch, which begins with number `first`, that match and are not settled."""
    open_ = np.ones(rows.num_rows, bool)
    low, high = np.searchsorted(settled, [first, first + rows.num_rows])
    open_[settled[low:high] - first] = False
    open_[: max(0, wanted.first - first)] = False
    positions = wanted.chosen(rows, first, np.flatnonzero(open_))
    return Lot(positions + first, rows if len(positions) == rows.num_rows else rows.take(pa.array(positions)))


def _true(found: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(found, False).to_numpy(zero_copy_only=False), bool)


def head(reasons: pa.Array) -> pa.Array:
    """Return the first line of each reason; tracebacks are in the lines after it."""
    return pc.replace_substring_regex(reasons, r"(?s)\n.*", "")


def _alike(reasons: pa.Array) -> pa.Array:
    """Replace numbers and quoted values, in which similar reasons differ."""
    for pattern, replacement in ((r'not "[^"]*"', "not _"), (r"'[^']*'", "_"), (r"[0-9]+", "0")):
        reasons = pc.replace_substring_regex(reasons, pattern, replacement)
    return reasons


def _grouped(lot: Lot) -> Iterator[tuple[str, Group]]:
    reasons = head(lot.rows.column("reason"))
    columns = {
        "stage": lot.rows.column("stage"),
        "stream": lot.rows.column("stream"),
        "kind": lot.rows.column("kind"),
        "alike": _alike(reasons),
        "number": pa.array(lot.numbers),
        "time": lot.rows.column("time").cast(pa.int64()),
    }
    aggregates = [("number", "count"), ("number", "min"), ("number", "max"), ("time", "min"), ("time", "max")]
    groups = pa.table(columns).group_by(["stage", "stream", "kind", "alike"]).aggregate(aggregates)
    newest = reasons.take(pa.array(np.searchsorted(lot.numbers, groups.column("number_max").to_numpy())))
    for row, reason in zip(groups.to_pylist(), newest.to_pylist()):
        yield row["alike"], Group(
            row["stage"], row["stream"], row["kind"], reason, row["number_count"], row["number_min"], row["number_max"],
            row["time_min"], row["time_max"],
        )  # fmt: skip
