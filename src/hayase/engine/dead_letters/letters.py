"""Dead letters that wait: which of them are open, what they have in common, what became of the others.

A letter is open until a record in `_settled` says that it was replayed or dropped. Letters are looked at where they lie, column
by column: a home may have millions of them, and of the settled ones only the numbers are kept, and where in `_settled` they are.

>>> import tempfile
>>> letters = Letters(Path(tempfile.mkdtemp()))
>>> letters.count(), letters.newest().letters
(0, ())
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.clock import now_us
from hayase.core.declarations import PipelineDeclaration
from hayase.core.errors import HayaseError, UnknownName
from hayase.core.times import BEGINNING, END, instant
from hayase.engine.home import Home
from hayase.engine.results.query_results import Time
from hayase.streams import StreamLog
from hayase.streams.dead_letters import APPEND, DEAD, SETTLED

if TYPE_CHECKING:
    from hayase.engine.dead_letters.edits import Edit
    from hayase.engine.dead_letters.settlement import Settlement

__all__ = ["Filter", "Group", "Letter", "LetterState", "Letters", "Lot", "Page", "spent"]

State = Literal["open", "replayed", "dropped"]

_AT_ONCE = 16_384
"""Letters that are looked at at once, from the newest backwards."""
_GROUPED = 65_536
"""Letters that are sorted into groups at once."""
_GROUPS = 1_000
_NEAR = 1_000
"""Numbers of letters that are no further apart are read in one go."""
_OTHERS = "other reasons"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which letters are meant: all of those that are what is said here, and nothing said means any.

    Times are microseconds, from `since` to before `until`. `reason` is a part of the reason, in whatever case, and `version` the
    beginning of the version. `offsets` are those of the record in its stream, the last one included; `numbers` are the letters'
    own, and `first` is the least of these.
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

    def __post_init__(self) -> None:
        for text in (self.stage, self.stream, self.reason, self.version):
            try:
                (text or "").encode()
            except UnicodeEncodeError:
                raise HayaseError("a text that letters are looked for by has half a character in it") from None

    @classmethod
    def of(cls, *numbers: int, since: Time | None = None, until: Time | None = None, **others: Any) -> Filter:
        """A filter as people give it: numbers of letters, and times in any form.

        >>> Filter.of(3, 5, since="1970-01-01T00:00:01Z", stage="scores").since
        1000000
        """
        times = [None if each is None else instant(each) for each in (since, until)]
        return cls(numbers=tuple(numbers) or None, since=times[0], until=times[1], **others)

    def chosen(self, rows: pa.RecordBatch, first: int, among: np.ndarray) -> np.ndarray:
        """Of the positions `among` those of letters that are meant; the batch begins with letter `first`. The reason, which
        may be long, is looked at last."""
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
        for column, wanted in (("stage", self.stage), ("stream", self.stream)):
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
    """Letters, in the order of their numbers."""

    numbers: np.ndarray
    rows: pa.RecordBatch

    def take(self, positions: np.ndarray) -> Lot:
        """Some of them."""
        return Lot(self.numbers[positions], self.rows.take(pa.array(positions)))


@dataclass(frozen=True, slots=True)
class LetterState:
    """What became of a letter, and when (microseconds); a replayed one has the `record` that its stage got, or where in its
    stream it was `appended`."""

    state: State
    at: int | None = None
    record: str | None = None
    appended: int | None = None


OPEN = LetterState("open")


@dataclass(frozen=True, slots=True)
class Letter:
    """One letter: its number and columns, and what became of it; `again` is the letter of its next refusal, if there was one."""

    number: int
    columns: dict[str, Any]
    fate: LetterState = OPEN
    again: int | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Letters, the newest first; `older` is where to go on (`before` it), None if there are no more."""

    letters: tuple[Letter, ...]
    older: int | None


@dataclass(frozen=True, slots=True)
class Group:
    """Letters of one stage and stream whose reasons are alike: how many, the first and the last with their times, and the
    reason of the last."""

    stage: str
    stream: str
    reason: str
    count: int
    first: int
    last: int
    since: int
    until: int

    def joined(self, other: Group) -> Group:
        """Both in one."""
        newer = self if self.last >= other.last else other
        return replace(
            newer,
            count=self.count + other.count,
            first=min(self.first, other.first),
            since=min(self.since, other.since),
            until=max(self.until, other.until),
        )


class Letters:
    """The dead letters of a home; one that does not exist has none. Threads may share one.

    `declaration` is what streams are declared like, if not as in the newest definition of the home.
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

    # -- which there are ------------------------------------------------------------------------------------------------
    def bounds(self) -> tuple[int, int]:
        """The number of the first letter that is kept, and the one that the next will have."""
        return _bounds(self._log)

    def settled(self) -> np.ndarray:
        """The numbers of all letters that are settled, in order."""
        return self._index()[0]

    def _index(self) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of all letters that are settled, in order, and where in `_settled` the last word about each is; only
        what was settled since the last look is read."""
        log = StreamLog(self.home.path, SETTLED)
        with self._turn:
            start, end = _bounds(log)
            if end > self._known:
                first = max(start, self._known)
                pieces = log.read(first, end)
                new = np.concatenate([each.rows.column("letter").to_numpy(zero_copy_only=False) for each in pieces])
                letters = np.concatenate([self._settled, new])[::-1]
                places = np.concatenate([self._places, np.arange(first, end)])[::-1]
                self._settled, newest = np.unique(letters, return_index=True)
                self._places, self._known = places[newest], end
            return self._settled, self._places

    def matching(self, wanted: Filter = Filter(), *, settled: bool = False) -> Iterator[Lot]:  # noqa: B008 - frozen
        """The open letters that are meant, oldest first, lot by lot; with `settled`, the others too."""
        gone = np.empty(0, np.int64) if settled else self.settled()
        for first, end in self._ranges(wanted):
            for piece in self._log.read(first, end):
                lot = _lot(piece.rows, piece.first, wanted, gone)
                if len(lot.numbers):
                    yield lot

    def _ranges(self, wanted: Filter) -> list[tuple[int, int]]:
        """Where letters that are meant can lie."""
        start, end = self.bounds()
        if wanted.numbers is None:
            first = max(start, wanted.first)
            return [(first, end)] if first < end else []
        self.check(wanted)
        numbers = np.unique(np.array(wanted.numbers, np.int64))
        parts = np.split(numbers, np.flatnonzero(np.diff(numbers) > _NEAR) + 1)
        return [(int(each[0]), int(each[-1]) + 1) for each in parts if each[-1] >= wanted.first]

    def check(self, wanted: Filter) -> None:
        """UnknownName if a letter is asked for by a number that none has."""
        start, end = self.bounds()
        for number in wanted.numbers or ():
            if not start <= number < end:
                raise unknown_letter(number, start, end)

    def count(self, wanted: Filter = Filter()) -> int:  # noqa: B008 - frozen
        """How many open letters are meant."""
        return sum(len(lot.numbers) for lot in self.matching(wanted))

    # -- looking at them ------------------------------------------------------------------------------------------------
    def newest(
        self,
        wanted: Filter = Filter(),  # noqa: B008 - frozen
        limit: int = 20,
        *,
        before: int | None = None,
        settled: bool = False,
        look_at: int | None = None,
    ) -> Page:
        """The newest letters that are meant, those with smaller numbers than `before`; at most `look_at` are looked at for it."""
        start, end = self.bounds()
        start = max(start, wanted.first)
        end = end if before is None else min(end, before)
        stop = start if look_at is None else max(start, end - look_at)
        gone = np.empty(0, np.int64) if settled else self.settled()
        found: list[Letter] = []
        while end > stop and len(found) < limit:
            first = max(stop, end - _AT_ONCE)
            for piece in reversed(list(self._log.read(first, end))):
                lot = _lot(piece.rows, piece.first, wanted, gone)
                last = lot.take(np.arange(len(lot.numbers))[-(limit - len(found)) :])
                found += reversed([Letter(*each) for each in zip(last.numbers.tolist(), last.rows.to_pylist())])
                if len(found) == limit:
                    break
            end = first
        if len(found) == limit:
            end = found[-1].number
        if settled and found:
            fates = self._states([each.number for each in found])
            found = [replace(each, fate=fates.get(each.number, OPEN)) for each in found]
        return Page(tuple(found), end if end > start else None)

    def get(self, number: int) -> Letter:
        """One letter, with what became of it."""
        start, end = self.bounds()
        if not start <= number < end:
            raise unknown_letter(number, start, end)
        columns = next(self._log.read(number, number + 1)).rows.to_pylist()[0]
        fate = self._states([number]).get(number, OPEN)
        again = None
        if fate.state == "replayed" and columns["offset"] is not None:
            same = Filter(
                columns["stage"], columns["stream"], offsets=(columns["offset"],) * 2, since=fate.at, first=number + 1
            )
            again = next((int(lot.numbers[0]) for lot in self.matching(same, settled=True)), None)
        return Letter(number, columns, fate, again)

    def groups(self, wanted: Filter = Filter(), *, settled: bool = False) -> list[Group]:  # noqa: B008 - frozen
        """The letters that are meant, in groups, the largest first. Reasons are alike if they differ only in numbers and
        quoted values; past a thousand groups, further reasons of a stage are one group."""
        found: dict[tuple[str, str, str], Group] = {}
        for lot in lots_of(self.matching(wanted, settled=settled), _GROUPED):
            for kind, group in _grouped(lot):
                key = (group.stage, group.stream, kind)
                if key not in found and len(found) >= _GROUPS:
                    key = (group.stage, group.stream, _OTHERS)
                    group = replace(group, reason=_OTHERS)
                found[key] = found[key].joined(group) if key in found else group
        return sorted(found.values(), key=lambda each: (-each.count, each.first))

    def _states(self, numbers: Sequence[int]) -> dict[int, LetterState]:
        """What became of letters; those that are open are left out."""
        settled, places = self._index()
        log = StreamLog(self.home.path, SETTLED)
        wanted = np.intersect1d(np.array(numbers, np.int64), settled)
        found = {}
        for place in np.sort(places[np.searchsorted(settled, wanted)]).tolist():
            row = next(log.read(place, place + 1)).rows
            (time,) = row.column("time").cast(pa.int64()).to_pylist()
            (told,) = row.to_pylist()
            appended = told["offset"] if told["stage"] == APPEND and told["record"] is None else None
            state: State = "dropped" if told["record"] is None and appended is None else "replayed"
            found[told["letter"]] = LetterState(state, time, told["record"], appended)
        return found

    # -- settling them --------------------------------------------------------------------------------------------------
    def replay(
        self,
        wanted: Filter = Filter(),  # noqa: B008 - frozen
        edit: Edit | None = None,
        *,
        late: bool = False,
        limit: int | None = None,
        dry: bool = False,
    ) -> Settlement:
        """Give open letters once more to the stages that refused them, and to nobody else; oldest first, at most `limit`.

        `edit` gets each record, as a dict of JSON values, and gives the one to replay. Letters that were refused because
        they were late stay, unless `late` is said. With `dry` nothing is done, and the report says what would be.
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
        """Settle open letters without doing anything with them; they stay readable."""
        from hayase.engine.dead_letters.settlement import drop

        return drop(self, wanted, limit=limit, dry=dry)


def spent(home: Home) -> int:
    """The offset in `_settled` up to which all tell about letters that retention has removed: without what follows, a letter
    would be open again."""
    log, (first, _) = StreamLog(home.path, SETTLED), _bounds(StreamLog(home.path, DEAD))
    start, end = _bounds(log)
    for piece in log.read(start, end) if start < end and first else ():
        alive = np.flatnonzero(piece.rows.column("letter").to_numpy(zero_copy_only=False) >= first)
        if len(alive):
            return piece.first + int(alive[0])
    return end if first else start


def unknown_letter(number: int, start: int, end: int) -> UnknownName:
    """The error about a number that no letter has."""
    there = f"they are numbered {start:,} to {end - 1:,}" if end > start else "there are none"
    return UnknownName("dead letter", str(number), (), f"; {there}")


def lots_of(lots: Iterator[Lot], rows: int, size: int | None = None) -> Iterator[Lot]:
    """The same letters in lots of at least so many, or so many bytes, but for the last; none of much more."""
    held: list[Lot] = []
    for lot in lots:
        for at in range(0, len(lot.numbers), rows):
            held.append(Lot(lot.numbers[at : at + rows], lot.rows.slice(at, rows)))
            if sum(len(each.numbers) for each in held) >= rows or (
                size is not None and sum(each.rows.nbytes for each in held) >= size
            ):
                yield _joined(held)
                held = []
    if held:
        yield _joined(held)


def _joined(lots: Sequence[Lot]) -> Lot:
    if len(lots) == 1:
        return lots[0]
    return Lot(np.concatenate([each.numbers for each in lots]), pa.concat_batches([each.rows for each in lots]))


def _bounds(log: StreamLog) -> tuple[int, int]:
    if not log.path.is_dir():
        return 0, 0
    index = log.index()
    return index.start, index.next


def _lot(rows: pa.RecordBatch, first: int, wanted: Filter, settled: np.ndarray) -> Lot:
    """Of the letters from number `first` on, those that are meant and not settled."""
    open_ = np.ones(rows.num_rows, bool)
    low, high = np.searchsorted(settled, [first, first + rows.num_rows])
    open_[settled[low:high] - first] = False
    open_[: max(0, wanted.first - first)] = False
    at = wanted.chosen(rows, first, np.flatnonzero(open_))
    return Lot(at + first, rows if len(at) == rows.num_rows else rows.take(pa.array(at)))


def _true(found: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(found, False).to_numpy(zero_copy_only=False), bool)


def head(reasons: pa.Array) -> pa.Array:
    """The first lines of reasons; tracebacks follow in others."""
    return pc.replace_substring_regex(reasons, r"(?s)\n.*", "")


def _alike(reasons: pa.Array) -> pa.Array:
    """Reasons without what makes each of a kind different: numbers, and values that are quoted."""
    for pattern, instead in ((r'not "[^"]*"', "not _"), (r"'[^']*'", "_"), (r"[0-9]+", "0")):
        reasons = pc.replace_substring_regex(reasons, pattern, instead)
    return reasons


def _grouped(lot: Lot) -> Iterator[tuple[str, Group]]:
    reasons = head(lot.rows.column("reason"))
    columns = {
        "stage": lot.rows.column("stage"),
        "stream": lot.rows.column("stream"),
        "kind": _alike(reasons),
        "number": pa.array(lot.numbers),
        "time": lot.rows.column("time").cast(pa.int64()),
    }
    told = [("number", "count"), ("number", "min"), ("number", "max"), ("time", "min"), ("time", "max")]
    found = pa.table(columns).group_by(["stage", "stream", "kind"]).aggregate(told)
    newest = reasons.take(pa.array(np.searchsorted(lot.numbers, found.column("number_max").to_numpy())))
    for row, reason in zip(found.to_pylist(), newest.to_pylist()):
        yield row["kind"], Group(
            row["stage"], row["stream"], reason, row["number_count"], row["number_min"], row["number_max"],
            row["time_min"], row["time_max"],
        )  # fmt: skip
