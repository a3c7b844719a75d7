"""Settlement of dead letters: each letter is replayed to the stage that refused it, or dropped, exactly once.

Settling holds a lock in the home. Letters are settled by one atomic append to `_settled`, from which the lanes read the records
for their stages. A record that an append had refused is appended to its stream instead: the append is first written to a file
with a producer sequence number, so that after a crash the next process completes it without duplicates.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DamagedState, HomeInUse, StreamFinished
from hayase.core.numbers import exact_loads
from hayase.core.reasons import ReasonKind
from hayase.engine.dead_letters.destinations import Destinations, is_append
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

_LATE = pa.array([ReasonKind.LATE, ReasonKind.TOO_OLD], pa.string())
"""Kinds of reasons that hold at a replay too."""
_AGAIN = "it was late, and its stage would refuse it again; to try it, ask for late ones too (--late)"
_UNFIT = "the record does not fit"
_LOST = "; the record itself was removed by retention, and this is what the stage had taken of it: edit it"
LOT, _LOT_BYTES = 5_000, 32 << 20
"""Most letters, and bytes of letters, that are settled in one step."""
_NEAR = 1_000
"""Records of a stream whose offsets are at most this far apart are read in one range."""
_REFUSALS = 100
_PATIENCE = 30.0
_POLL = 0.05
_PLACE, _BEGUN = "dead", "appending.json"
_PRODUCER = "replay of dead letters"


@dataclass(slots=True)
class Settlement:
    """The report of a replay or drop: what was done, or with `dry` would be done.

    `settled` letters were replayed or dropped; of these, `appended` went to their streams, and `unchanged` to the same version
    of the stage that refused them. `left` counts letters that stay open, by reason; `late` of these stay because they were late.
    `refusals` are the first letters whose records do not fit, with the reasons. `again` of the settled ones will be refused
    again by their stage, the first of them for the reasons in `refused_again`. `before` were settled already. `next` is the
    letter to continue with if the limit or the deadline was reached.
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
        """How many letters stay open."""
        return self.left.total()

    def plain(self) -> dict[str, Any]:
        """Return the report as JSON values."""
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
        """Note letters that their stage will refuse again, with the reasons."""
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
    """Settle letters without replaying them; see `Letters.drop`, and `replay` for the other arguments."""
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
    """Replay letters to their stages; see `Letters.replay`. Once `expired` returns true, the remaining letters stay open.
    If another process settles letters of this home, wait for it up to `patience` seconds, then raise HomeInUse."""
    report = Settlement()
    with _settling(letters, dry, patience):
        report.before = _settled_before(letters, wanted)
        ways = Destinations(letters)
        begun = _begun(letters) if dry else ()
        possible = partial(_possible, ways=ways, late=late, report=report)
        for lot in _limited(letters, wanted, limit, report, expired, lambda lot: possible(_without(lot, begun))):
            _replay(letters, lot, ways, editing, dry, report)
    return report


# -- selecting letters --------------------------------------------------------------------------------------------------
def _settled_before(letters: Letters, wanted: Filter) -> int:
    """Return how many of the letters that the filter names by number are settled already."""
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
    """Yield matching letters that pass `chosen`, at most `limit`; `report.next` is set if letters remain."""
    remaining = limit
    for lot in lots_of(letters.matching(wanted), LOT, _LOT_BYTES):
        if remaining == 0 or expired():
            report.next = int(lot.numbers[0])
            return
        selected = chosen(lot)
        if remaining is not None:
            if len(selected.numbers) > remaining:
                report.next = int(selected.numbers[remaining])
                selected = selected.take(np.arange(remaining))
            remaining -= len(selected.numbers)
        if len(selected.numbers):
            yield selected
        if report.next is not None:
            return


def _possible(lot: Lot, ways: Destinations, late: bool, report: Settlement) -> Lot:
    """Return the letters that can be replayed; the report counts why others cannot."""
    possible = np.ones(len(lot.numbers), bool)
    for stage, stream, placed, at in _by_place(lot):
        reason = ways.obstacle(stage, stream, placed)
        if reason is not None:
            report.left[reason] += len(at)
            possible[at] = False
    if not late:
        late_letters = possible & pc.is_in(lot.rows.column("kind"), _LATE).to_numpy(zero_copy_only=False)
        if late_letters.any():
            report.late += int(late_letters.sum())
            report.left[_AGAIN] += int(late_letters.sum())
            possible &= ~late_letters
    return lot.take(np.flatnonzero(possible))


def _without(lot: Lot, numbers: Sequence[int]) -> Lot:
    """Return the lot without the letters of these numbers."""
    return lot.take(np.flatnonzero(~np.isin(lot.numbers, numbers))) if len(numbers) else lot


def _begun(letters: Letters) -> Sequence[int]:
    """Return the letters of an append that was begun and not completed: the next settling completes it first."""
    try:
        numbers: Sequence[int] = orjson.loads((letters.home.path / _PLACE / _BEGUN).read_bytes())["letters"]
        return numbers
    except (FileNotFoundError, ValueError, KeyError):
        return ()


def _by_place(lot: Lot) -> Iterator[tuple[str, str, bool, np.ndarray]]:
    """Yield (stage, stream, placed, positions); `placed` says whether the records have an offset in the stream."""
    columns = [lot.rows.column("stage"), lot.rows.column("stream"), pc.is_valid(lot.rows.column("offset"))]
    table = pa.table([*columns, pa.array(np.arange(len(lot.numbers)))], names=["stage", "stream", "placed", "at"])
    groups = table.group_by(["stage", "stream", "placed"], use_threads=False).aggregate([("at", "list")])
    for row in groups.to_pylist():
        yield row["stage"], row["stream"], row["placed"], np.array(row["at_list"], np.int64)


# -- records ------------------------------------------------------------------------------------------------------------
def _replay(
    letters: Letters, lot: Lot, ways: Destinations, editing: Editing | None, dry: bool, report: Settlement
) -> None:
    """Settle letters that can be replayed, except those whose records do not fit."""
    texts: dict[int, str] = {}
    for stage, stream, placed, positions in _by_place(lot):
        part, declaration = lot.take(positions), ways.stream(stream)
        records: list[str] = part.rows.column("record").to_pylist()
        if placed:
            records = _originals(letters.home, declaration, part.rows.column("offset").to_numpy(), records)
        if placed and editing is None and not any(isinstance(record, _Told) for record in records):
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
        rows = conform_rows([read(record) for record in fit.values()], replace(declaration, max_ahead=None), 0).rows
        if rows.num_rows == len(fit):
            refused, numbers = ways.refused_again(stage, stream, rows), part.numbers[list(fit)].tolist()
            report.expect({numbers[position]: reason for position, reason in refused.items()})
        texts |= {int(positions[position]): text for position, text in fit.items()}
    if texts and not dry:
        settled = sorted(texts)
        settled_lot = lot.take(np.array(settled))
        _settle(letters, settled_lot, settled_lot.rows.column("offset"), [texts[index] for index in settled])


class _Told(str):
    """The text of a record from its letter, used when the record itself is no longer in its stream."""

    __slots__ = ()


def _originals(home: Home, stream: StreamDeclaration, offsets: np.ndarray, told: list[str]) -> list[str]:
    """Return records as they are in the log of their stream. A letter may hold only the columns that its stage reads, so its
    text is used only if retention has removed the record."""
    log = StreamLog(home.path, stream)
    records: list[str] = [_Told(record) for record in told]
    index = log.index()
    present = np.flatnonzero((offsets >= index.start) & (offsets < index.next))
    present = present[np.argsort(offsets[present], kind="stable")]
    for part in np.split(present, np.flatnonzero(np.diff(offsets[present]) > _NEAR) + 1) if len(present) else ():
        first, last = int(offsets[part[0]]), int(offsets[part[-1]])
        rows = pa.Table.from_batches([piece.rows for piece in log.read(first, last + 1)], schema=stream.arrow_schema)
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
    """Return the edited records that fit their stream, as texts by position; those that do not fit are reported."""
    # unedited records keep the form of their numbers: a double column accepts 1e23, but not the equal integer
    values: list[Any] = [_value(record, exact_loads if editing is None else read) for record in records]
    if editing is not None:
        values = editing(values, stream)
    edited_at = [at for at, value in enumerate(values) if not isinstance(value, Unedited)]
    edited = [values[at] for at in edited_at]
    conformed = conform_rows(edited, stream, now, Origin(lambda places: [str(place) for place in places]))
    reasons = {at: value.reason for at, value in enumerate(values) if isinstance(value, Unedited)}
    for refusal in conformed.refused:
        at = edited_at[int(refusal.record)]
        lost = editing is None and isinstance(records[at], _Told)
        reasons[at] = refusal.reason + (_LOST if lost else "")
    for at in sorted(reasons):
        report.refuse(numbers[at], reasons[at])
    return dict(zip((at for at in edited_at if at not in reasons), row_texts(conformed.rows)))


def _value(text: str, loads: Callable[[str], Any]) -> Any:
    """Return the record as a dict if it is a JSON object, else its text."""
    try:
        value = loads(str(text))
    except (ValueError, RecursionError):
        return str(text)
    return value if isinstance(value, dict) else str(text)


# -- durable steps ------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def _settling(letters: Letters, dry: bool, patience: float) -> Iterator[None]:
    """Hold the lock for settling, and complete an append that was begun before. A dry run, or a home without letters, takes no
    lock and writes nothing."""
    if dry or not letters.bounds()[1]:
        yield
        return
    place = letters.home.path / _PLACE
    with writing(str(place)), contextlib.ExitStack() as stack:
        durable.make_directory(place)
        descriptor = durable.open_file(place / "lock", os.O_RDWR | os.O_CREAT)
        stack.callback(os.close, descriptor)
        _wait(descriptor, letters.home, patience)
        stack.callback(fcntl.flock, descriptor, fcntl.LOCK_UN)  # with `close` alone, a forked process would keep it
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
    """Append the settlement of letters to `_settled`, durably."""
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
    """Append records to their stream and settle their letters, exactly once: note the append in a file, then complete it. The
    sequence number is derived from the end of `_settled`, which every settlement moves, so it is greater than all before."""
    StreamLog.ensure(letters.home.path, stream)
    sequence = StreamLog.ensure(letters.home.path, SETTLED).index().next + 1
    pending = {"stream": stream.name, "sequence": sequence, "letters": numbers, "records": records}
    durable.write_atomic(letters.home.path / _PLACE / _BEGUN, seal("replay", orjson.dumps(pending)))
    _complete(letters)


def _complete(letters: Letters) -> None:
    """Complete an append that this or another process has begun, if there is one."""
    path = letters.home.path / _PLACE / _BEGUN
    hint = "restore it from a copy, or remove it: then records that were being appended may be so twice"
    try:
        pending = orjson.loads(read_sealed(path, "replay", hint))
    except FileNotFoundError:
        return
    except ValueError as error:
        raise DamagedState(f"{path} cannot be read: {error}", hint) from error
    if not np.isin(pending["letters"], letters.settled()).any():
        _append_once(letters, pending)
    durable.remove(path)


def _append_once(letters: Letters, begun: Mapping[str, Any]) -> None:
    """Append the noted records unless that has been done, and settle their letters with the offsets of the records.
    Does nothing if the stream is finished."""
    log = StreamLog.open(letters.home.path, begun["stream"])
    declaration = replace(log.declaration, max_ahead=None)  # checked before
    rows = conform_rows([exact_loads(record) for record in begun["records"]], declaration, letters.clock()).rows
    try:
        appended = log.append(rows, now=letters.clock(), producer=_PRODUCER, sequence=begun["sequence"])
    except StreamFinished:
        return
    count = len(begun["letters"])
    offsets = [None if appended.first == UNKNOWN else appended.first + at for at in range(count)]
    lot = next(lots_of(letters.matching(Filter(numbers=tuple(begun["letters"]))), count))
    _settle(letters, lot, pa.array(offsets, pa.int64()), [None] * count)
