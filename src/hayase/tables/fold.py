"""Folding: merges old payloads into their rows' snapshots and deletes them, concurrently with reads and ingestions.

A pass goes over all payloads in the order of their keys. It reads in short steps, so that no ingestion waits long, and writes the
results of many steps at once: snapshots, deletions, and for every folded version that may be repeated a mark that it is in the
snapshot. A payload that arrives meanwhile has another version, or is a repetition that has a mark; and nobody else writes
snapshots or marks. Large writes make few files, which RocksDB merges less often.

A pass that was stopped continues where it was, so that the last keys are folded too. At its end, every payload that is left is
not older than some `before` of the pass, or arrived meanwhile and is not older than its least `keep_from`. So marks below both
are no longer needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import NamedTuple

from hayase.core.data_classes import dataclass
from hayase.tables import store_reader
from hayase.tables.payloads import DamagedPayload
from hayase.tables.rows import Columns, Entry, RowSnapshot
from hayase.tables.store_reader import end_of_prefix, mark, not_in_snapshot, payloads_by_key
from hayase.tables.stores import MARK, PAYLOAD, ROW, Store, View
from hayase.tables.versions import since

__all__ = ["Folding"]

STEP_FOLDED = 4_000
STEP_READ = 5_000
WRITTEN_FOLDED = 100_000
_WRITTEN_BYTES = 32 << 20
_KEPT_MARKERS = 16


@dataclass
class _Pass:
    """How far a pass over the payloads has come."""

    marker: bytes
    """The marker of the newest batch when the pass began."""
    drop_before: int
    """Marks with an older time are deleted at the end of the pass."""
    cursor: bytes = PAYLOAD
    left: int = 0
    """How many payloads the pass has read and not folded."""
    damaged: DamagedPayload | None = None


@dataclass
class _Step:
    """The changes of some keys, and where the pass continues; None at its end."""

    cursor: bytes | None = None
    read: int = 0
    gone: int = 0
    new_rows: int = 0
    size: int = 0
    puts: list[tuple[bytes, bytes]] = field(default_factory=list)
    deletes: list[bytes] = field(default_factory=list)
    ranges: list[tuple[bytes, bytes]] = field(default_factory=list)
    damaged: DamagedPayload | None = None

    def add(self, following: _Step) -> None:
        self.cursor = following.cursor
        self.read += following.read
        self.gone += following.gone
        self.new_rows += following.new_rows
        self.size += following.size
        self.puts += following.puts
        self.deletes += following.deletes
        self.damaged = self.damaged or following.damaged


class _Row(NamedTuple):
    """A key with its snapshot, whether it had none, and the entries that are to be folded into it."""

    key: bytes
    is_new: bool
    snapshot: RowSnapshot
    entries: Sequence[Entry]


class Folding:
    """Folds the payloads of one table. For one thread at a time."""

    def __init__(self, store: Store, columns: Columns):
        self._store, self._columns = store, columns
        self._pass: _Pass | None = None

    def restart(self) -> None:
        """Forget the position of an unfinished pass, because the table was emptied."""
        self._pass = None

    def fold(self, before: int, keep_from: int, stop: Callable[[], bool]) -> int:
        """Fold payloads with time < before, leave marks for versions >= keep_from, and return how many were folded."""
        gone = 0
        if self._pass is None:
            markers = [marker for _, marker, _ in self._store.read(store_reader.runs)]
            self._pass = _Pass(max(markers, default=b""), min(before, keep_from))
        state, self._pass = self._pass, None  # after an error, a new pass begins
        state.drop_before = min(state.drop_before, before, keep_from)
        old, lasting = since(before), since(keep_from)
        done = _Step(state.cursor)
        while done.cursor is not None and not stop():
            cursor = done.cursor
            done.add(self._store.read(lambda view: self._step(view, cursor, old, lasting)))  # noqa: B023
            if done.cursor is not None and (done.gone >= WRITTEN_FOLDED or done.size >= _WRITTEN_BYTES):
                gone += done.gone
                done = self._write(state, done, old)
        gone += done.gone
        done = self._write(state, done, old)
        if done.cursor is not None:
            self._pass = state
        elif state.damaged is not None:
            raise state.damaged
        return gone

    def _step(self, view: View, cursor: bytes, before: bytes, lasting: bytes) -> _Step:
        """Fold the next keys, in memory."""
        step, old, found = _Step(), dict[bytes, list[Entry]](), 0
        for key, entries in payloads_by_key(view, cursor, end_of_prefix(PAYLOAD)):
            if step.read >= STEP_READ or found >= STEP_FOLDED:
                step.cursor = PAYLOAD + key
                break
            step.read += len(entries)
            if entries[0][0] < before:
                old[key] = [entry for entry in entries if entry[0] < before]
                found += len(old[key])
        self._fold_keys(view, old, lasting, step)
        return step

    def _write(self, state: _Pass, done: _Step, before: bytes) -> _Step:
        """Write the results of steps and return an empty step at the same position."""
        state.left += done.read - done.gone
        state.damaged = state.damaged or done.damaged
        final = self._store.read(lambda view: self._facts(view, state, done, before))
        puts, deletes = done.puts + final.puts, done.deletes + final.deletes
        if puts or deletes or final.ranges:
            self._store.write(puts, deletes, final.ranges)
        following = _Step(done.cursor)
        if done.cursor is not None:
            state.cursor = done.cursor
        return following

    def _facts(self, view: View, state: _Pass, done: _Step, before: bytes) -> _Step:
        """Return what is written besides rows: facts, and at the end of a pass the deletion of marks."""
        facts = _Step()
        counts = store_reader.counts(view)
        payloads, marker = max(counts.payloads - done.gone, 0), counts.marker
        if done.cursor is None:
            payloads, marker = state.left, state.marker
            self._drop_marks(view, state, facts)
        counted = store_reader.Counts(counts.rows + done.new_rows, payloads, marker)
        if counted != counts:
            facts.puts.append((store_reader.COUNTS, counted.to_bytes()))
        if done.gone:
            folded_before = view.get(store_reader.FOLDED_BEFORE)
            if folded_before is None or folded_before < before:
                facts.puts.append((store_reader.FOLDED_BEFORE, before))
        return facts

    def _fold_keys(self, view: View, old: dict[bytes, list[Entry]], lasting: bytes, step: _Step) -> None:
        """Fold the given entries of keys; keys with damaged bytes stay as they are."""
        rows: list[_Row] = []
        for (key, entries), stored in zip(old.items(), view.get_many([ROW + key for key in old])):
            try:
                snapshot = self._columns.decode_snapshot(key, stored)
            except DamagedPayload as error:
                step.damaged = step.damaged or error
            else:
                rows.append(_Row(key, stored is None, snapshot, not_in_snapshot(view, key, snapshot.newest, entries)))
        for row, folded in zip(rows, self._columns.fold_rows([(row.key, row.snapshot, row.entries) for row in rows])):
            if isinstance(folded, DamagedPayload):
                step.damaged = step.damaged or folded
                continue
            if folded is not None:
                step.puts.append((ROW + row.key, folded))
                step.puts += [(mark(row.key, version), b"") for version, _ in row.entries if version >= lasting]
                step.new_rows += row.is_new
                step.size += len(folded)
            head, entries = PAYLOAD + row.key, old[row.key]
            step.deletes += [head + version for version, _ in entries]
            step.gone += len(entries)

    def _drop_marks(self, view: View, state: _Pass, facts: _Step) -> None:
        """At the end of a pass, delete the marks and markers that are no longer needed."""
        if state.damaged is None:
            end = MARK + since(state.drop_before)
            first = next(view.scan(MARK, end), None)
            if first is not None:
                facts.ranges.append((first[0], end))
        runs = store_reader.runs(view)
        kept = set(sorted({marker for _, marker, _ in runs})[-_KEPT_MARKERS:])
        facts.deletes += [run for run, marker, _ in runs if marker not in kept and marker <= state.marker]
