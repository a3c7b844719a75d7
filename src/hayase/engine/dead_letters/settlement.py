"""Settling dead letters: they are replayed to the stage that refused them, or dropped; each once, whoever else tries it too.

Whoever settles holds a lock of the home. One append to `_settled` is one step: it is done or not, whatever is killed when, and
the lanes take from there what is for their stages. A record that never got into its stream is appended to it instead. Before
such an append it is written down under a number, by which the stream knows it again: who comes after one that was killed
first completes what was begun.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DamagedState, HomeInUse, StreamFinished
from hayase.core.numbers import exact_loads
from hayase.engine.dead_letters.destinations import Ways, is_append
from hayase.engine.dead_letters.edits import Editing, Unedited
from hayase.engine.dead_letters.letters import Filter, Letters, Lot, lots_of
from hayase.engine.home import Home, writing
from hayase.streams import StreamLog, durable
from hayase.streams.dead_letters import SETTLED
from hayase.streams.log import UNKNOWN
from hayase.streams.records import Origin, conform_rows, row_texts
from hayase.streams.sealed import read_sealed, seal
from hayase.tables.jq_numbers import read

__all__ = ["Settlement", "drop", "replay"]

_LATE = ("late: ", "too old: ")
"""How reasons begin that a stage will have again."""
_AGAIN = "it was late, and its stage would refuse it again; to try it, ask for late ones too (--late)"
_UNFIT = "the record does not fit"
_LOST = "; the record itself was removed by retention, and this is what the stage had taken of it: edit it"
_LOT, _LOT_BYTES = 5_000, 32 << 20
"""Letters, and bytes of them, that are settled at once."""
_NEAR = 1_000
"""Records of a stream that are no further apart are read in one go."""
_REFUSALS = 100
_PATIENCE = 30.0
_POLL = 0.05
_PLACE, _BEGUN = "dead", "appending.json"
_PRODUCER = "replay of dead letters"


@dataclass(slots=True)
class Settlement:
    """What was done, or would be.

    `settled` letters were replayed or dropped, of which `appended` went to their streams and `unchanged` to the same version of
    their stage that refused them. `left` says why others stay open, and how many; `late` of these are so because they were late.
    `refusals` are the first letters whose records do not fit, with the reasons. `again` of the settled ones will be refused by
    their stage as they are, the first of them for the reasons in `refused_again`. `before` were settled already. `next` is the
    letter to go on with if this ended early, at its limit.
    """

    settled: int = 0
    appended: int = 0
    unchanged: int = 0
    late: int = 0
    before: int = 0
    left: Counter[str] = field(default_factory=Counter)
    refusals: list[tuple[int, str]] = field(default_factory=list)
    again: int = 0
    refused_again: list[tuple[int, str]] = field(default_factory=list)
    next: int | None = None

    @property
    def kept(self) -> int:
        """How many stay open."""
        return self.left.total()

    def plain(self) -> dict[str, Any]:
        """The same as JSON can say it."""
        return {
            "settled": self.settled,
            "appended": self.appended,
            "unchanged": self.unchanged,
            "again": self.again,
            "late": self.late,
            "before": self.before,
            "left": [{"reason": reason, "letters": count} for reason, count in self.left.most_common()],
            "refusals": [{"letter": letter, "reason": reason} for letter, reason in self.refusals],
            "next": self.next,
        }

    def expect(self, letters: Mapping[int, str]) -> None:
        """Note letters that their stage will refuse once more, with the reasons."""
        self.again += len(letters)
        self.refused_again += [*letters.items()][: _REFUSALS - len(self.refused_again)]

    def refuse(self, letter: int, reason: str) -> None:
        """Note a letter whose record does not fit."""
        self.left[_UNFIT] += 1
        if len(self.refusals) < _REFUSALS:
            self.refusals.append((letter, reason))


def drop(
    letters: Letters,
    wanted: Filter,
    *,
    limit: int | None = None,
    dry: bool = False,
    expired: Callable[[], bool] = lambda: False,
    patience: float = _PATIENCE,
) -> Settlement:
    """Settle letters as they are; `Letters.drop`. See `replay` for the rest."""
    report = Settlement()
    with _settling(letters, dry, patience):
        report.before = _settled_before(letters, wanted)
        for lot in _limited(letters, wanted, limit, report, expired):
            if not dry:
                _settle(letters, lot, lot.rows.column("offset"), [None] * len(lot.numbers))
            report.settled += len(lot.numbers)
    return report


def replay(
    letters: Letters,
    wanted: Filter,
    editing: Editing | None = None,
    *,
    late: bool = False,
    limit: int | None = None,
    dry: bool = False,
    expired: Callable[[], bool] = lambda: False,
    patience: float = _PATIENCE,
) -> Settlement:
    """Give letters to their stages once more; `Letters.replay`. When it has `expired`, what is left stays for another time.
    Somebody else who settles letters here is waited for, for `patience` seconds."""
    report = Settlement()
    with _settling(letters, dry, patience):
        report.before = _settled_before(letters, wanted)
        ways = Ways(letters)
        begun = _begun(letters) if dry else ()
        possible = partial(_possible, ways=ways, late=late, report=report)
        for lot in _limited(letters, wanted, limit, report, expired, lambda lot: possible(_without(lot, begun))):
            _replay(letters, lot, ways, editing, dry, report)
    return report


# -- which letters ------------------------------------------------------------------------------------------------------
def _settled_before(letters: Letters, wanted: Filter) -> int:
    """Of letters that were asked for by their numbers, how many are settled."""
    letters.check(wanted)
    return 0 if wanted.numbers is None else int(np.isin(np.unique(wanted.numbers), letters.settled()).sum())


def _limited(
    letters: Letters,
    wanted: Filter,
    limit: int | None,
    report: Settlement,
    expired: Callable[[], bool],
    chosen: Callable[[Lot], Lot] = lambda lot: lot,
) -> Iterator[Lot]:
    """The letters that are meant, at most so many of those that are chosen."""
    rest = limit
    for lot in lots_of(letters.matching(wanted), _LOT, _LOT_BYTES):
        if rest == 0 or expired():
            report.next = int(lot.numbers[0])
            return
        found = chosen(lot)
        if rest is not None:
            if len(found.numbers) > rest:
                report.next = int(found.numbers[rest])
                found = found.take(np.arange(rest))
            rest -= len(found.numbers)
        if len(found.numbers):
            yield found
        if report.next is not None:
            return


def _possible(lot: Lot, ways: Ways, late: bool, report: Settlement) -> Lot:
    """The letters that can be replayed; of the others it is noted why not."""
    possible = np.ones(len(lot.numbers), bool)
    for stage, stream, placed, at in _by_place(lot):
        reason = ways.obstacle(stage, stream, placed)
        if reason is not None:
            report.left[reason] += len(at)
            possible[at] = False
    if not late:
        reasons = lot.rows.column("reason")
        again = [pc.starts_with(reasons, each).to_numpy(zero_copy_only=False) for each in _LATE]
        left = possible & np.logical_or.reduce(again)
        if left.any():
            report.late += int(left.sum())
            report.left[_AGAIN] += int(left.sum())
            possible &= ~left
    return lot.take(np.flatnonzero(possible))


def _without(lot: Lot, numbers: Sequence[int]) -> Lot:
    """Letters but for some."""
    return lot.take(np.flatnonzero(~np.isin(lot.numbers, numbers))) if len(numbers) else lot


def _begun(letters: Letters) -> Sequence[int]:
    """Letters whose append somebody has begun and not completed: whoever settles next completes that first."""
    try:
        found: Sequence[int] = orjson.loads((letters.home.path / _PLACE / _BEGUN).read_bytes())["letters"]
        return found
    except (FileNotFoundError, ValueError, KeyError):
        return ()


def _by_place(lot: Lot) -> Iterator[tuple[str, str, bool, np.ndarray]]:
    """Positions by stage, stream, and whether the record has a place in that."""
    columns = [lot.rows.column("stage"), lot.rows.column("stream"), pc.is_valid(lot.rows.column("offset"))]
    table = pa.table([*columns, pa.array(np.arange(len(lot.numbers)))], names=["stage", "stream", "placed", "at"])
    found = table.group_by(["stage", "stream", "placed"], use_threads=False).aggregate([("at", "list")])
    for row in found.to_pylist():
        yield row["stage"], row["stream"], row["placed"], np.array(row["at_list"], np.int64)


# -- records ------------------------------------------------------------------------------------------------------------
def _replay(letters: Letters, lot: Lot, ways: Ways, editing: Editing | None, dry: bool, report: Settlement) -> None:
    """Settle letters that can be replayed, but for those whose records do not fit."""
    texts: dict[int, str] = {}
    for stage, stream, placed, at in _by_place(lot):
        part, declaration = lot.take(at), ways.stream(stream)
        records: list[str] = part.rows.column("record").to_pylist()
        if placed:
            records = _originals(letters.home, declaration, part.rows.column("offset").to_numpy(), records)
        if placed and editing is None and not any(isinstance(each, _Told) for each in records):
            fit = dict(enumerate(records))
        else:
            fit = _fitting(records, declaration, editing, letters.clock(), part.numbers.tolist(), report)
        report.settled += len(fit)
        if is_append(stage, placed):
            report.appended += len(fit)
            if fit and not dry:
                _append(letters, declaration, part.numbers[list(fit)].tolist(), list(fit.values()))
            continue
        if editing is None:
            same = pc.equal(part.rows.column("version").take(pa.array(list(fit), pa.int64())), ways.version(stage))
            report.unchanged += pc.sum(same).as_py() or 0
        rows = conform_rows([read(each) for each in fit.values()], replace(declaration, max_ahead=None), 0).rows
        if rows.num_rows == len(fit):
            told, numbers = ways.refused_again(stage, stream, rows), part.numbers[list(fit)].tolist()
            report.expect({numbers[position]: reason for position, reason in told.items()})
        texts |= {int(at[position]): text for position, text in fit.items()}
    if texts and not dry:
        chosen = sorted(texts)
        done = lot.take(np.array(chosen))
        _settle(letters, done, done.rows.column("offset"), [texts[each] for each in chosen])


class _Told(str):
    """A record as its letter tells it, of which there is nothing else any more."""

    __slots__ = ()


def _originals(home: Home, stream: StreamDeclaration, offsets: np.ndarray, told: list[str]) -> list[str]:
    """Records as they are in the log of their stream. Letters may tell only what a stage had taken of them, so that counts
    only for those that retention has removed."""
    log = StreamLog(home.path, stream)
    records: list[str] = [_Told(each) for each in told]
    index = log.index()
    there = np.flatnonzero((offsets >= index.start) & (offsets < index.next))
    there = there[np.argsort(offsets[there], kind="stable")]
    for part in np.split(there, np.flatnonzero(np.diff(offsets[there]) > _NEAR) + 1) if len(there) else ():
        first, last = int(offsets[part[0]]), int(offsets[part[-1]])
        rows = pa.Table.from_batches([each.rows for each in log.read(first, last + 1)], schema=stream.arrow_schema)
        for position, text in zip(part.tolist(), row_texts(rows.take(pa.array(offsets[part] - first)))):
            records[position] = text
    return records


def _fitting(
    records: Sequence[str],
    stream: StreamDeclaration,
    editing: Editing | None,
    now: int,
    numbers: Sequence[int],
    report: Settlement,
) -> dict[int, str]:
    """The records, edited, as their stream takes them, by position; what does not fit is reported."""
    # what nobody edits keeps the form of its numbers too: in a double column 1e23 is taken, and that integer is not
    values: list[Any] = [_value(each, exact_loads if editing is None else read) for each in records]
    if editing is not None:
        values = editing(values, stream)
    good = [at for at, each in enumerate(values) if not isinstance(each, Unedited)]
    given = [values[at] for at in good]
    done = conform_rows(given, stream, now, Origin(lambda places: [str(each) for each in places]))
    reasons = {at: each.reason for at, each in enumerate(values) if isinstance(each, Unedited)}
    for each in done.refused:
        at = good[int(each.record)]
        lost = editing is None and isinstance(records[at], _Told)
        reasons[at] = each.reason + (_LOST if lost else "")
    for at in sorted(reasons):
        report.refuse(numbers[at], reasons[at])
    return dict(zip((at for at in good if at not in reasons), row_texts(done.rows)))


def _value(text: str, loads: Callable[[str], Any]) -> Any:
    """A record to edit: the JSON object that it is, or its text."""
    try:
        value = loads(str(text))
    except (ValueError, RecursionError):
        return str(text)
    return value if isinstance(value, dict) else str(text)


# -- durable steps ------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def _settling(letters: Letters, dry: bool, patience: float) -> Iterator[None]:
    """One at a time: what another settles meanwhile is seen before anything is done. Who only looks, or has nothing to settle,
    waits for nobody and writes nothing."""
    if dry or not letters.bounds()[1]:
        yield
        return
    place = letters.home.path / _PLACE
    with writing(str(place)), contextlib.ExitStack() as held:
        durable.make_directory(place)
        descriptor = durable.opened(place / "lock", os.O_RDWR | os.O_CREAT)
        held.callback(os.close, descriptor)
        _wait(descriptor, letters.home, patience)
        held.callback(fcntl.flock, descriptor, fcntl.LOCK_UN)  # not left to `close`: a forked process would hold it
        _complete(letters)
        yield


def _wait(descriptor: int, home: Home, patience: float) -> None:
    until = time.monotonic() + patience
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise HomeInUse(
                    f"somebody else replays or drops dead letters of {home.path}; wait for them, then try again"
                ) from None
        time.sleep(_POLL)


def _settle(letters: Letters, lot: Lot, offsets: pa.Array, records: Sequence[str | None]) -> None:
    """Say durably what became of letters."""
    now, schema = letters.clock(), SETTLED.arrow_schema
    columns: Mapping[str, pa.Array] = {
        "time": pa.repeat(pa.scalar(now, schema.field("time").type), len(records)),
        "letter": pa.array(lot.numbers, pa.int64()),
        "stage": lot.rows.column("stage"),
        "stream": lot.rows.column("stream"),
        "offset": offsets,
        "record": pa.array(records, pa.string()),
    }
    StreamLog.ensure(letters.home.path, SETTLED).append(pa.table(columns, schema=schema), now=now)


def _append(letters: Letters, stream: StreamDeclaration, numbers: Sequence[int], records: Sequence[str]) -> None:
    """Append records to their stream and settle their letters, once: written down first, then completed. Every settling moves
    the end of `_settled`, so that the number of an append is above that of all before it."""
    StreamLog.ensure(letters.home.path, stream)
    number = StreamLog.ensure(letters.home.path, SETTLED).index().next + 1
    begun = {"stream": stream.name, "sequence": number, "letters": numbers, "records": records}
    durable.write_atomic(letters.home.path / _PLACE / _BEGUN, seal("replay", orjson.dumps(begun)))
    _complete(letters)


def _complete(letters: Letters) -> None:
    """Complete an append that was begun, by whomever."""
    path = letters.home.path / _PLACE / _BEGUN
    hint = "restore it from a copy, or remove it: then records that were being appended may be so twice"
    try:
        begun = orjson.loads(read_sealed(path, "replay", hint))
    except FileNotFoundError:
        return
    except ValueError as error:
        raise DamagedState(f"{path} cannot be read: {error}; {hint}") from error
    if not np.isin(begun["letters"], letters.settled()).any():
        _append_once(letters, begun)
    durable.remove(path)


def _append_once(letters: Letters, begun: Mapping[str, Any]) -> None:
    """Append what was written down, unless that was done, and settle the letters, which tell then where their records are.
    Nothing is done if the stream takes no more."""
    log = StreamLog.open(letters.home.path, begun["stream"])
    declaration = replace(log.declaration, max_ahead=None)  # how far it is ahead was judged before
    rows = conform_rows([exact_loads(each) for each in begun["records"]], declaration, letters.clock()).rows
    try:
        done = log.append(rows, now=letters.clock(), producer=_PRODUCER, sequence=begun["sequence"])
    except StreamFinished:
        return
    count = len(begun["letters"])
    offsets = [None if done.first == UNKNOWN else done.first + at for at in range(count)]
    lot = next(lots_of(letters.matching(Filter(numbers=tuple(begun["letters"]))), count))
    _settle(letters, lot, pa.array(offsets, pa.int64()), [None] * count)
