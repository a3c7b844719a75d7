"""Session windows: tuples with equal keys of which each is less than the gap later than the one before.

The tuples of a session appear when it has ended, because only then its end is known; with `early`, those so far also at the
multiples of `early` inside it (`plans.Session`).

Order: (time, offset).   Per tuple: O(1), one pass over the step; per step: O(open sessions).   State: "sessions", the first and
last time of each open session; "waiting", its tuples; with `early` also a counter for ids. An ended session keeps no state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.data_classes import dataclass
from hayase.core.keys import KeyIndex, check_key_type, encode, hashes, raw_values
from hayase.core.stages import OFFSET, TIME, Tuples
from hayase.lifetimes.bounded_windows import bounds_columns
from hayase.lifetimes.plans import Session, Windowed
from hayase.lifetimes.relations import OPEN, Delta, Span, Step, no_delta
from hayase.lifetimes.slot_columns import grown
from hayase.lifetimes.state_registers import Registers, check_section
from hayase.lifetimes.tuples import TupleStore

__all__ = ["SessionWindow"]

_SESSIONS, _WAITING = "sessions", "waiting"
_START, _LAST = "__start", "__last"
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class _Appearing:
    """Tuples that appear: their slots in the store, the bounds of their session, when they appear, and until when they stay."""

    slots: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    start: np.ndarray
    until: np.ndarray
    final: np.ndarray


class SessionWindow:
    """The operator of `plans.Session`. Without `early` the id of a tuple is its offset, else a counter."""

    def __init__(self, node: Windowed, window: Session) -> None:
        self.schema = node.schema
        self._node, self._window = node, window
        self._own = [field.name for field in node.schema if field.name not in window.columns]
        self._index = KeyIndex()
        self._sessions = np.zeros((1, 5), np.int64)
        self._following = np.empty(0, np.int64)
        self._alive = np.zeros(0, np.bool_)
        self._waiting: TupleStore | None = None
        self._restored: dict[str, list[tuple[pa.RecordBatch, int]]] = {_SESSIONS: [], _WAITING: []}
        self._counter = Registers(("next",), (0,))
        self._clock = -OPEN

    # ------------------------------------------------------------------------------------------ steps

    def advance(self, batches: Sequence[pa.RecordBatch], span: Span) -> Step:
        """Return the tuples of the sessions that end within the step, and of those that appear early."""
        batch = batches[self._node.input]
        waiting = self._waiting or self._create_store(batch.schema)
        self._settle(waiting, span.since)
        time = raw_values(batch.column(TIME), np.int64)
        columns = [batch.column(name) for name in self._window.keys]
        keys = self._keys(columns, batch.num_rows)
        numbers = self._add(waiting, batch, time)
        parts: list[_Appearing] = []
        over: list[np.ndarray] = [_NONE]
        done = 0
        for instant in self._instants(time, span):
            stop = int(np.searchsorted(time, instant))
            ended, appearing = self._extend(keys[done:stop], time[done:stop], numbers[done:stop], instant)
            over.append(ended)
            parts.append(appearing)
            if instant < span.clock:
                parts.append(self._appear_early(instant))
            done = stop
        delta = self._delta(waiting, parts)
        state = [*self._written(keys, columns), *waiting.changes(), *self._counter.changes(span.version)]
        self._forget(np.concatenate(over))
        self._clock = span.clock
        return Step(delta, state)

    def _create_store(self, schema: pa.Schema) -> TupleStore:
        """Create the store of waiting tuples, once the types of the keys are known."""
        kinds = [schema.field(name).type for name in self._window.keys]
        for kind in kinds:
            check_key_type(kind)
        own = [pa.field(field.name, field.type) for field in self.schema if field.name in self._own]
        keys = [pa.field(f"key_{at}", kind) for at, kind in enumerate(kinds)]
        self._waiting = TupleStore(pa.schema([*own, *keys]), _WAITING)
        return self._waiting

    def _keys(self, columns: Sequence[pa.Array], rows: int) -> np.ndarray:
        """Return the number of each row's key; without keys there is one, 0."""
        if not self._window.keys:
            return np.zeros(rows, np.int64)
        encoded = encode(columns, rows)
        keys = self._index.slots(encoded, hashes(encoded))
        missing = int(keys.max(initial=-1)) + 1 - len(self._sessions)
        if missing > 0:
            more = np.zeros((max(missing, len(self._sessions)), 5), np.int64)
            self._sessions = np.concatenate((self._sessions, more))
        return keys

    def _add(self, waiting: TupleStore, batch: pa.RecordBatch, time: np.ndarray) -> np.ndarray:
        """Store the tuples of a step that pass the filter; return the slot of each tuple, -1 if it does not pass."""
        id = raw_values(batch.column(OFFSET), np.int64)
        passed = np.arange(batch.num_rows)
        columns = [batch.column(name) for name in (*self._own, *self._window.keys)]
        if self._node.where is not None:
            flags = pc.fill_null(batch.column(self._node.where), False).to_numpy(zero_copy_only=False)
            passed = np.flatnonzero(flags)
            columns = [column.take(pa.array(passed)) for column in columns]
        rows = pa.RecordBatch.from_arrays(columns, schema=waiting.schema)
        slots = waiting.add(rows, time[passed], np.full(len(passed), OPEN), id[passed])
        self._note(waiting, slots)
        numbers = np.full(batch.num_rows, -1)
        numbers[passed] = slots
        return numbers

    def _note(self, waiting: TupleStore, slots: np.ndarray) -> None:
        """Note that there are tuples in these slots."""
        known = len(self._alive)
        if waiting.capacity > known:
            self._alive, self._following = (
                grown(self._alive, waiting.capacity),
                grown(self._following, waiting.capacity),
            )
            self._alive[known:] = False
        self._alive[slots] = True

    def _instants(self, time: np.ndarray, span: Span) -> list[int]:
        """Return the instants that divide the step: the multiples of `early` at which there may be a session, and the clock."""
        if self._window.early is None:
            return [span.clock]
        early, gap = self._window.early, self._window.gap
        latest = np.concatenate((self._sessions[self._sessions[:, 0] == 1, 2], time))
        first = np.maximum(latest // early + 1, -(-span.since // early))
        last = np.minimum(-(-(latest + gap) // early), -(-span.clock // early)) - 1
        counts = np.maximum(last - first + 1, 0)
        numbers = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts - first, counts)
        return [*(np.unique(numbers) * early).tolist(), span.clock]

    def _extend(
        self, keys: np.ndarray, time: np.ndarray, numbers: np.ndarray, until: int
    ) -> tuple[np.ndarray, _Appearing]:
        """Add tuples to their sessions. Return the keys of sessions that end before `until`, and the tuples of these and of
        the sessions that a later tuple has ended."""
        from hayase.lifetimes import session_loops as loops

        gap, sessions = self._window.gap, self._sessions
        ended = np.empty((len(keys), 4), np.int64)
        count = loops.extend(sessions, self._following, keys, time, numbers, gap, ended)
        over = np.flatnonzero((sessions[:, loops.IS_OPEN] == 1) & (sessions[:, loops.LAST] + gap < until))
        lines = sessions[over][:, [loops.START, loops.LAST, loops.FIRST]]
        sessions[over, loops.IS_OPEN] = 0
        begins, last, firsts = np.concatenate((ended[:count, 1:], lines)).T
        of, slots = self._members(firsts)
        ends = (last + gap)[of]
        until_then = np.minimum(ends + min(self._window.keep, OPEN), OPEN)
        return over, _Appearing(slots, begins[of], ends, ends, until_then, np.ones(len(of), np.bool_))

    def _appear_early(self, instant: int) -> _Appearing:
        """Return the tuples so far of all open sessions: they appear at an instant, until the next or the session's end."""
        from hayase.lifetimes import session_loops as loops

        opened = self._sessions[self._sessions[:, loops.IS_OPEN] == 1]
        opened = opened[opened[:, loops.LAST] + self._window.gap > instant]
        of, slots = self._members(opened[:, loops.FIRST])
        ends = opened[of, loops.LAST] + self._window.gap
        until = np.minimum(ends, instant + (self._window.early or 0))
        start, final = np.full(len(of), instant), np.zeros(len(of), np.bool_)
        return _Appearing(slots, opened[of, loops.START], ends, start, until, final)

    def _members(self, firsts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the slots of the tuples of sessions, given the first of each, after the number of the session."""
        from hayase.lifetimes import session_loops as loops

        found = np.empty((int(np.count_nonzero(self._alive)) if len(firsts) else 0, 2), np.int64)
        count = loops.members(np.ascontiguousarray(firsts), self._following, found)
        return found[:count, 0].copy(), found[:count, 1].copy()

    def _delta(self, waiting: TupleStore, parts: Sequence[_Appearing]) -> Delta:
        """Return the tuples that appear, and release those whose session has ended."""
        slots, begins, ends, start, until, final = (
            np.concatenate([getattr(part, name) for part in parts]) for name in _Appearing.__slots__
        )
        if not len(slots):
            return no_delta(self.schema)
        order = np.lexsort((waiting.id[slots], waiting.start[slots], start))
        slots, begins, ends, start, until, final = (
            array[order] for array in (slots, begins, ends, start, until, final)
        )
        taken = waiting.take(slots).columns[: len(self._own)]
        bounds = bounds_columns(self._window, self.schema, begins, ends, final)
        rows = pa.RecordBatch.from_arrays([*taken, *bounds], schema=self.schema)
        ids = waiting.id[slots].copy()
        closed = slots[final]
        waiting.close(waiting.id[closed].copy(), ends[final])
        waiting.release(waiting.expire(int(ends.max()) + 1))
        self._alive[closed] = False
        if self._window.early is not None:
            self._counter["next"] += len(slots)
            ids = np.arange(self._counter["next"] - len(slots), self._counter["next"])
        return Delta(rows, start, until, ids)

    def _forget(self, keys: np.ndarray) -> None:
        """Drop the keys whose sessions have ended, unless they have begun another one."""
        keys = np.unique(keys[self._sessions[keys, 0] == 0])
        if self._window.keys and len(keys):
            self._index.drop(keys)

    # ------------------------------------------------------------------------------------------ state

    def _written(self, keys: np.ndarray, columns: Sequence[pa.Array]) -> list[Tuples]:
        """Return the open sessions that tuples of the step have begun or extended."""
        touched, rows = np.unique(keys, return_index=True)
        still = self._sessions[touched, 0] == 1
        touched, rows = touched[still], rows[still]
        if not len(touched):
            return []
        named = {f"key_{at}": column.take(pa.array(rows)) for at, column in enumerate(columns)}
        start, last = self._sessions[touched, 1], self._sessions[touched, 2]
        written = pa.RecordBatch.from_pydict({**named, _START: pa.array(start), _LAST: pa.array(last)})
        return [Tuples(_SESSIONS, written, int(last.max()) + self._window.gap)]

    def _settle(self, waiting: TupleStore, since: int) -> None:
        """Load what was restored, and drop the sessions that have ended while another worker ran the stage."""
        for rows, version in self._restored[_WAITING]:
            waiting.restore(rows, version)
        added, removed = waiting.settle(since)
        is_behind = since > self._clock
        if not (is_behind or self._restored[_SESSIONS] or len(added) or len(removed)):
            return
        self._note(waiting, added)
        self._alive[removed] = False
        waiting.release(removed)
        for rows, _ in self._restored[_SESSIONS]:
            columns = rows.columns[: len(self._window.keys)]
            check_section(_SESSIONS, rows, self._section(waiting))
            keys = self._keys(columns, rows.num_rows)
            start, last = (raw_values(rows.column(name), np.int64) for name in (_START, _LAST))
            order = np.argsort(last, kind="stable")
            order = order[(self._sessions[keys[order], 0] == 0) | (self._sessions[keys[order], 2] < last[order])]
            self._sessions[keys[order], :3] = np.column_stack(
                (np.ones(len(order), np.int64), start[order], last[order])
            )
        self._restored = {_SESSIONS: [], _WAITING: []}
        over = np.flatnonzero((self._sessions[:, 0] == 1) & (self._sessions[:, 2] + self._window.gap < since))
        self._sessions[over, 0] = 0
        self._link(waiting)
        self._forget(over)

    def _section(self, waiting: TupleStore) -> pa.Schema:
        keys = [field for field in waiting.schema if field.name not in self._own]
        return pa.schema([*keys, (_START, pa.int64()), (_LAST, pa.int64())])

    def _link(self, waiting: TupleStore) -> None:
        """Make the waiting tuples members of the sessions of their keys."""
        from hayase.lifetimes import session_loops as loops

        slots = np.flatnonzero(self._alive)
        slots = slots[np.lexsort((waiting.id[slots], waiting.start[slots]))]
        keys = self._keys(waiting.take(slots).columns[len(self._own) :], len(slots))
        self._sessions[:, loops.FIRST] = self._sessions[:, loops.TAIL] = -1
        known = self._sessions[:, : loops.FIRST].copy()
        self._sessions[:, loops.IS_OPEN] = 1
        loops.extend(
            self._sessions, self._following, keys, waiting.start[slots], slots, OPEN, np.empty((0, 4), np.int64)
        )
        self._sessions[:, : loops.FIRST] = known

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Load open sessions, waiting tuples, or the counter; they are used from the next step on."""
        if section == self._counter.section:
            self._counter.restore(section, rows, version)
        elif rows.num_rows:
            self._restored[section].append((rows, version))

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the rows of open sessions and waiting tuples, or the counter."""
        if section == self._counter.section:
            return self._counter.live(section, rows, version)
        if section == _WAITING:
            return rows if self._waiting is None else self._waiting.live(rows, version)
        last = raw_values(rows.column(_LAST), np.int64)
        return rows.filter(pa.array(last + self._window.gap >= self._clock))

    def size(self, section: str) -> int:
        """Return the number of open sessions or waiting tuples, or 1 for the counter."""
        if section == self._counter.section:
            return self._counter.size(section)
        if section == _WAITING:
            return 0 if self._waiting is None else self._waiting.size()
        return int(np.count_nonzero(self._sessions[:, 0]))
