"""The aggregate operator: GROUP BY over an interval relation, one row per group with the lifetime of its values.

- Sweep: at each instant the ends are processed first, then the starts in input order; then rows are emitted for the groups
  that these touch. A row whose values do not change lives on.
- Cost: constant per start and end, logarithmic for min and max. Memory is proportional to the live tuples; if no tuple of
  the child ever ends, only accumulators are kept.
- Counts and sums of integers and decimals are exact. A tuple that would take a sum out of its range is refused. If the
  *end* of a tuple does so, the sum is NULL while that lasts, and the row is reported.
- Sums of floats are kept in two doubles with a bound of their rounding error. When the bound is no longer small relative
  to the live numbers (a large number has left), the sum is recomputed exactly from the tuples. NaN and the infinities are
  counted separately and leave with their tuples.
- min and max use a pairing heap of tuples per group. NaN is the greatest number; texts are ordered by their bytes.

State: "tuples" (a `TupleStore`), "groups" (keys, open row, accumulators; the last version counts), "registers" (the id of
the next row) and, for count(distinct) over tuples that never end, "distinct.N" (keys and values). Lists, heaps and the
counts of distinct values are rebuilt from the tuples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.keys import EncodedKeys, KeyIndex, encode, fixed_column, hashes, raw_values, text_column, validity
from hayase.core.reasons import ReasonKind, reasons_of
from hayase.core.scratch import scratch
from hayase.core.stages import FailedRows, Tuples
from hayase.core.times import BEGINNING
from hayase.lifetimes.accumulators import (
    BITS64,
    COUNTED,
    DECIMAL,
    DISTINCT,
    EXTREME,
    FLOAT,
    GROUP_WORDS,
    LANES,
    LINES,
    PAIR,
    PRESENCE,
    ROW,
    TEXT,
    UNSIGNED,
    Accumulator,
    Argument,
    Output,
    layout,
)  # fmt: skip
from hayase.lifetimes.aggregate_groups import Groups
from hayase.lifetimes.plans import Aggregate
from hayase.lifetimes.relations import OPEN, Delta, Span, Step
from hayase.lifetimes.state_registers import Registers, check_section
from hayase.lifetimes.tuples import TupleStore

__all__ = ["AggregateOperator"]

_TUPLES, _GROUPS, _REGISTERS, _VALUES = "tuples", "groups", "registers", "distinct"
_SIGN = np.int64(-(2**63))
SPARE_TUPLES = 65_536
"""Fewer unused bytes of text, or pairs, than this do not cause a rewrite."""


class AggregateOperator:
    """The operator of `plans.Aggregate` (`relations.Operator`). `endless`: no tuple of the child ever ends."""

    def __init__(self, node: Aggregate, endless: bool) -> None:
        self.schema = node.schema
        self._keys = node.keys
        child = node.child.schema
        self._layout = layout(node.calls, child, endless)
        self._program, self._calls = self._layout.program(), self._layout.calls()
        self._shape = self._layout.shape()
        self._scales = np.array([output.scale for output in self._layout.outputs])
        self._groups = Groups(
            [child.field(name).type for name in node.keys], self._layout.group_words, 1 + self._layout.heaps
        )
        columns = dict.fromkeys([*node.keys, *(argument.column for argument in self._layout.arguments)])
        self._needed = list(columns)
        self._store = (
            None
            if endless
            else TupleStore(pa.schema([child.field(name) for name in columns]), _TUPLES, with_values=False)
        )
        self._cells = np.zeros((1, max(self._layout.cell_words, 3)), np.int64)
        self._texts = _Texts()
        self._distinct = [
            at for at, accumulator in enumerate(self._layout.accumulators) if accumulator.kind == DISTINCT
        ]
        self._pairs = _Pairs(len(self._distinct))
        self._state = _GroupState(self._layout.accumulators, self._layout.arguments, endless, node.keys, child)
        self._registers = Registers(("next",), (0,), _REGISTERS)
        self._lanes = np.zeros((4, LANES), np.int64)
        self._version = 0

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        """Process a step and return the rows that begin and end in it."""
        from hayase.lifetimes import aggregates_loops

        (delta,) = inputs
        count = len(delta)
        self._version = max(self._version, span.version)
        self._settle(span)
        keys = [delta.rows.column(name) for name in self._keys]
        groups = self._groups.slots(keys, count if keys else max(count, 1))[:count]
        lines, valid, known = self._lines(delta.rows, count, groups)
        slots, ended, ends = self._tuples(delta, span)
        first, events = self._registers["next"], count + len(ended) + 1
        outputs, calls = self._layout.output_lines, len(self._calls)
        out, carried = scratch(outputs, events), scratch(outputs, events)
        there, carried_there = scratch(calls, events, kind=np.bool_), scratch(calls, events, kind=np.bool_)
        rows, closed, spoiled, noted = (scratch(words, events) for words in (4, 2, 2, 2))
        beyond, fresh = scratch(events), scratch(count * len(self._distinct))
        emitted, touched, closings, refusals, overflows, fresh_values = aggregates_loops.sweep(
            *self._arrays(), delta.start, groups, slots, lines, valid, known, ends, ended.copy(),
            self._shape, self._program, self._calls, self._scales, self._birth(span), first, not self._keys,
            out, there, carried, carried_there, rows, noted, closed, spoiled, beyond, fresh, self._lanes,
        )  # fmt: skip
        self._registers["next"] += emitted
        self._groups.alive += emitted - closings - int(np.count_nonzero(rows[1, :emitted] != OPEN))
        result = self._result(delta.rows, rows[:, :emitted], out[:, :emitted], there[:, :emitted])
        refused = self._spoiled(delta, spoiled[:, :refusals]) + self._beyond(result, beyond[:overflows])
        state = self._changes(noted[:, :touched], delta.rows, fresh[:fresh_values], span.version)
        if self._store is not None:
            unused = slots[spoiled[0, :refusals]]
            unused = unused[self._store.end[unused] >= span.clock]
            # with an empty lifetime a refused tuple is not written, and is removed when it would have ended
            self._store.end[unused] = self._store.start[unused]
            self._store.release(ended)
            state += self._store.changes()
        self._tidy()
        ids = np.arange(first, first + emitted)
        start, end = rows[0, :emitted].copy(), rows[1, :emitted].copy()
        return Step(
            Delta(result, start, end, ids, closed[0, :closings].copy(), closed[1, :closings].copy()), state, refused
        )

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Load state. Of several rows of a group the latest version counts, and within a version the last row."""
        if section == _REGISTERS:
            self._registers.restore(section, rows, version)
        elif section == _TUPLES:
            assert self._store is not None
            self._store.restore(rows, version)
        elif section == _GROUPS:
            check_section(_GROUPS, rows, self._state.schema)
            slots = self._groups.slots(rows.columns[: len(self._keys)], rows.num_rows)
            self._groups.put(slots, self._state.words(rows, self._texts), self._state.all_places, version)
        else:
            groups = self._groups.slots(rows.columns[: len(self._keys)], rows.num_rows)
            number = int(section.rpartition(".")[2])
            self._pairs.bring(number, self._pairs.slots(groups, number, rows.column(len(self._keys))))
        self._version = max(self._version, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Return the rows, written up to `version`, that are still needed. Groups count as written anew from then on."""
        if section == _REGISTERS:
            return self._registers.live(section, rows, version)
        if section == _TUPLES:
            assert self._store is not None
            return self._store.live(rows, version)
        if section == _GROUPS:
            check_section(_GROUPS, rows, self._state.schema)
            keys = rows.columns[: len(self._keys)]
            slots = self._groups.slots(keys, rows.num_rows, insert=False)
            positions = self._groups.unchanged(slots, version)
            chosen = pa.array(positions)
            return self._group_rows([column.take(chosen) for column in keys], slots[positions], self._version)
        return rows  # a value that was seen stays counted for ever

    def size(self, section: str) -> int:
        """Return the number of live tuples of a section."""
        if section == _REGISTERS:
            return self._registers.size(section)
        if section == _TUPLES:
            return 0 if self._store is None else self._store.size()
        return self._groups.alive if section == _GROUPS else self._pairs.sizes[int(section.rpartition(".")[2])]

    # ------------------------------------------------------------------------------------------ input

    def _birth(self, span: Span) -> int:
        """Return when the row of an aggregate without keys begins, if it does in this step; else OPEN."""
        if self._keys or span.began == BEGINNING or span.began >= span.clock or self._groups.words[0, ROW] >= 0:
            return OPEN
        return max(span.began, span.since)

    def _settle(self, span: Span) -> None:
        """Index restored tuples, and remove those that ended while another worker ran the stage."""
        if self._store is None:
            return
        from hayase.lifetimes import aggregates_loops

        added, removed = self._store.settle(span.since)
        if len(removed):
            aggregates_loops.detach(*self._arrays(), removed, self._shape, self._program)
        if len(added):
            rows = self._store.take(added)
            self._make_room()
            groups = self._groups.slots([rows.column(name) for name in self._keys], len(added))
            lines, valid, known = self._lines(rows, len(added), groups)
            aggregates_loops.attach(*self._arrays(), added, groups, lines, valid, known, self._shape, self._program)
        self._store.release(removed)

    def _arrays(self) -> tuple[np.ndarray, ...]:
        """Return the arrays of groups and live tuples, in the order in which the loops take them."""
        return self._groups.words, self._groups.anchors, self._cells, self._texts.arena, self._pairs.counts

    def _tuples(self, delta: Delta, span: Span) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Store the new tuples; return their slots, and the slots and ends of the tuples that end in the step."""
        none = np.empty(0, np.int64)
        if self._store is None:
            return none, none, none
        passed = self._store.advance(delta.rows.select(self._needed), delta, span.clock)
        self._make_room()
        return passed.slots, passed.ended, passed.ends

    def _make_room(self) -> None:
        assert self._store is not None
        known = len(self._cells)
        if self._store.capacity > known:
            cells = np.empty((max(2 * known, self._store.capacity), self._cells.shape[1]), np.int64)
            cells[:known] = self._cells
            cells.view(np.int32)[known:, 0] = -1
            self._cells = cells

    def _lines(self, rows: pa.RecordBatch, count: int, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the arguments of rows as lines of words, the validity masks of those with NULLs, and the number of each
        argument's mask (-1: none)."""
        parts: list[np.ndarray] = []
        masks: list[np.ndarray] = []
        known = np.full(len(self._layout.arguments), -1, np.int64)
        pairs = 0
        for at, argument in enumerate(self._layout.arguments):
            column = rows.column(argument.column)
            if column.null_count:
                known[at] = len(masks)
                masks.append(validity(column))
            if argument.form == PAIR:
                parts.append(self._pairs.slots(groups, pairs, column).reshape(1, -1))
                pairs += 1
            elif argument.form == TEXT:
                parts.append(self._texts.append(column))
            elif argument.form != PRESENCE:
                parts.append(_words(column, argument.form))
        lines = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty((0, count), np.int64)
        valid = np.stack(masks) if masks else np.empty((0, count), np.bool_)
        return lines, valid, known

    # ------------------------------------------------------------------------------------------ output

    def _result(self, source: pa.RecordBatch, rows: np.ndarray, out: np.ndarray, there: np.ndarray) -> pa.RecordBatch:
        """Return the rows of the result: keys and the values of the calls."""
        columns: list[pa.Array] = []
        if self._keys and self._store is None:  # every row is caused by a new tuple, which has its keys
            keys = [source.column(name) for name in self._keys]
            chosen = rows[3]
            if len(chosen) != source.num_rows or (chosen[1:] <= chosen[:-1]).any():
                taken = pa.array(chosen)
                keys = [column.take(taken) for column in keys]
            columns += keys
        elif self._keys:
            columns += self._groups.keys(rows[2])
        for at, output in enumerate(self._layout.outputs):
            columns.append(self._column(output, out[output.to : output.to + output.lines], there[at]))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, output: Output, lines: np.ndarray, there: np.ndarray) -> pa.Array:
        """Return a column of the result, NULL where `there` is false."""
        if output.form == TEXT:
            return self._texts.column(output.kind, lines[1], lines[2], there)
        if output.form == UNSIGNED:
            lines = lines ^ _SIGN
        return fixed_column(output.kind, lines.T, there)

    def _spoiled(self, delta: Delta, spoiled: np.ndarray) -> list[FailedRows]:
        """Return the tuples that would have taken a sum out of its range."""
        if not spoiled.shape[1]:
            return []
        reasons = []
        for culprit in spoiled[1].tolist():
            accumulator = self._layout.accumulators[culprit]
            reasons.append(f"{accumulator.text} of its group would overflow {_limit(accumulator)}")
        refused = reasons_of(ReasonKind.OVERFLOW, reasons)
        return [FailedRows(delta.rows.take(pa.array(spoiled[0])), refused, delta.id[spoiled[0]])]

    def _beyond(self, result: pa.RecordBatch, beyond: np.ndarray) -> list[FailedRows]:
        """Return the rows of the result in which a sum is NULL because the end of a tuple took it out of its range."""
        if not len(beyond):
            return []
        rows, calls = np.divmod(beyond, len(self._calls))
        reasons = []
        for call in calls.tolist():
            accumulator = self._layout.accumulators[self._layout.outputs[call].of]
            reasons.append(
                f"{accumulator.text} is beyond {_limit(accumulator)} since a tuple of its group ended; it is NULL meanwhile"
            )
        return [FailedRows(result.take(pa.array(rows)), reasons_of(ReasonKind.OVERFLOW, reasons))]

    # ------------------------------------------------------------------------------------------ state

    def _changes(self, noted: np.ndarray, rows: pa.RecordBatch, fresh: np.ndarray, version: int) -> list[Tuples]:
        """Return the change of the state: the groups touched, new distinct values, the next id."""
        state = self._registers.changes(version)
        if noted.shape[1]:
            groups, firsts = noted[0].copy(), pa.array(noted[1])
            if self._store is None:
                keys = [rows.column(name).take(firsts) for name in self._keys]
            else:
                keys = self._groups.keys(groups)
            state.append(Tuples(_GROUPS, self._group_rows(keys, groups, version)))
        if self._store is None and len(fresh):
            tuples, accumulators = np.divmod(fresh, len(self._program))
            for number, at in enumerate(self._distinct):
                chosen = pa.array(tuples[accumulators == at])
                self._pairs.sizes[number] += len(chosen)
                if len(chosen):
                    name = self._layout.arguments[self._layout.accumulators[at].argument].column
                    columns = [rows.column(column).take(chosen) for column in (*self._keys, name)]
                    names = [*(f"key_{key}" for key in range(len(self._keys))), "value"]
                    state.append(Tuples(f"{_VALUES}.{number}", pa.RecordBatch.from_arrays(columns, names)))
        return state

    def _group_rows(self, keys: list[pa.Array], slots: np.ndarray, version: int) -> pa.RecordBatch:
        """Return groups as rows of the state; they count as written at `version`."""
        gathered = self._groups.gather(slots, self._state.places, version)
        texts = [
            self._texts.column(
                pa.binary(),
                self._groups.words[slots, at + 2],
                self._groups.words[slots, at + 3],
                self._groups.words[slots, at] > 0,
            )
            for at in self._state.texts
        ]
        return pa.RecordBatch.from_arrays([*keys, *map(pa.array, gathered), *texts], schema=self._state.schema)

    def _tidy(self) -> None:
        """Free the memory of groups, pairs and texts that are no longer alive, when it is as large as that of the live ones."""
        halves = self._cells.view(np.int32)
        tuples = 0 if self._store is None else len(self._store)
        numbers = self._groups.shed(tuples // 16) if self._keys else None
        if numbers is not None:
            held = np.flatnonzero(halves[:, 0] >= 0)
            halves[held, 0] = numbers[halves[held, 0]]
        if (self._store is not None and len(self._pairs) > self._pairs.enough) or numbers is not None:
            moved = self._pairs.shed(numbers, tuples // 4)
            for at in self._distinct:
                held = np.flatnonzero(halves[:, 0] >= 0)
                argument = self._layout.arguments[self._layout.accumulators[at].argument]
                place = self._layout.base + argument.line
                present = held[~self._nulls(held, self._layout.accumulators[at].argument)]
                self._cells[present, place] = moved[self._cells[present, place]]
        if self._texts.used > self._texts.enough:
            self._texts.keep(self._places_of_texts())

    def _nulls(self, slots: np.ndarray, argument: int) -> np.ndarray:
        return (self._cells.view(np.int32)[slots, 1 + (argument >> 5)] >> (argument & 31)) & 1 == 1

    def _places_of_texts(self) -> list[tuple[np.ndarray, np.ndarray, int]]:
        """Return arrays of words, the rows in use, and the word that holds the place of a text (its length follows)."""
        if self._store is None:
            alive = self._groups.words[: len(self._groups)]
            return [(alive, np.flatnonzero(alive[:, at] > 0), at + 2) for at in self._state.texts]
        held = np.flatnonzero(self._cells.view(np.int32)[:, 0] >= 0)
        return [
            (self._cells, held[~self._nulls(held, number)], self._layout.base + argument.line + 1)
            for number, argument in enumerate(self._layout.arguments)
            if argument.form == TEXT
        ]


def _limit(accumulator: Accumulator) -> str:
    return "64 bits" if accumulator.limit == BITS64 else "38 digits"


def _words(column: pa.Array, form: int) -> np.ndarray:
    """Return a column of fixed width as lines of words."""
    if form == FLOAT:
        with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN like any other
            numbers = raw_values(column.cast(pa.float64()), np.float64) + 0.0  # -0.0 becomes 0.0
        numbers[np.isnan(numbers)] = np.nan
        return numbers.view(np.int64).reshape(1, -1)
    if form == DECIMAL:
        wide = column.cast(pa.decimal128(38, column.type.scale if pa.types.is_decimal(column.type) else 0))
        return np.ascontiguousarray(raw_values(wide, np.int64, 2).reshape(-1, 2).T)
    if form == UNSIGNED:
        return (raw_values(column, np.int64) ^ _SIGN).reshape(1, -1)
    column = pc.cast(column.view(pa.int32()) if column.type == pa.date32() else column, pa.int64())
    return raw_values(column, np.int64).reshape(1, -1)


class _GroupState:
    """The layout of the section "groups": keys, the open row, the number of tuples, the words of the accumulators.

    For a text in an endless min or max, the text is written instead of the words that hold its place.
    """

    def __init__(
        self,
        accumulators: Sequence[Accumulator],
        arguments: Sequence[Argument],
        endless: bool,
        keys: Sequence[str],
        child: pa.Schema,
    ) -> None:
        texts = [
            accumulator
            for accumulator in accumulators
            if endless and accumulator.kind == EXTREME and arguments[accumulator.argument].form == TEXT
        ]
        hidden = {word for accumulator in texts for word in range(accumulator.at + 1, accumulator.at + 1 + LINES[TEXT])}
        width = GROUP_WORDS + sum(accumulator.words for accumulator in accumulators)
        own = [word for word in range(GROUP_WORDS, width) if word not in hidden]
        self.places = np.array([ROW, COUNTED, *own], np.int64)
        """The words that are written as numbers."""
        self.all_places = np.array([*self.places, *sorted(hidden)], np.int64)
        """The words that are set when a group is loaded: also those of the texts."""
        self.texts = [accumulator.at for accumulator in texts]
        """The first words of the accumulators of texts."""
        fields = [pa.field(f"key_{at}", child.field(name).type) for at, name in enumerate(keys)]
        fields += [pa.field(name, pa.int64()) for name in ("row", "count", *(f"word_{word}" for word in own))]
        fields += [pa.field(f"text_{at}", pa.binary()) for at in self.texts]
        self.schema = pa.schema(fields)
        self._keys = len(keys)

    def words(self, rows: pa.RecordBatch, texts: _Texts) -> np.ndarray:
        """Return the words of written groups, at `all_places`."""
        columns = rows.columns[self._keys :]
        plain = [raw_values(column, np.int64).reshape(1, -1) for column in columns[: len(self.places)]]
        return np.concatenate([*plain, *(texts.append(column) for column in columns[len(self.places) :])])


class _Texts:
    """The bytes of text arguments in one arena, possibly with garbage between them."""

    def __init__(self) -> None:
        self.arena = np.empty(0, np.uint8)
        self.used = 0
        self.enough = SPARE_TUPLES

    def append(self, column: pa.Array) -> np.ndarray:
        """Append texts; return the first eight bytes, the place and the length of each, int64[3, n]."""
        from hayase.lifetimes import aggregates_loops

        column = column.cast(pa.binary())
        lines = np.zeros((3, len(column)), np.int64)
        if not len(column):
            return lines
        _, at, data = column.buffers()
        starts = np.frombuffer(at, np.int32, len(column) + 1, 4 * column.offset).astype(np.int64)
        size = int(starts[-1] - starts[0])
        if self.used + size > len(self.arena):
            larger = np.empty(max(2 * len(self.arena), self.used + size), np.uint8)
            larger[: self.used] = self.arena[: self.used]
            self.arena = larger
        if size:
            self.arena[self.used : self.used + size] = np.frombuffer(data, np.uint8, size, int(starts[0]))
        aggregates_loops.describe_texts(self.arena, starts, validity(column), self.used, lines)
        self.used += size
        return lines

    def column(self, kind: pa.DataType, places: np.ndarray, lengths: np.ndarray, there: np.ndarray) -> pa.Array:
        """Return texts as a column, NULL where `there` is false."""
        ends = np.zeros(len(places) + 1, np.int64)
        np.cumsum(np.where(there, lengths, 0), out=ends[1:])
        return text_column(kind, self._copied(places, ends), ends, there)

    def keep(self, rows: Sequence[tuple[np.ndarray, np.ndarray, int]]) -> None:
        """Drop all texts except those of some rows, passed as (words, rows in use, the word that holds the place)."""
        parts = []
        used = 0
        for words, chosen, at in rows:
            ends = np.zeros(len(chosen) + 1, np.int64)
            np.cumsum(words[chosen, at + 1], out=ends[1:])
            parts.append(self._copied(words[chosen, at], ends))
            words[chosen, at] = ends[:-1] + used
            used += int(ends[-1])
        self.arena = np.concatenate([*parts, np.empty(0, np.uint8)])
        self.used = used
        self.enough = 2 * used + SPARE_TUPLES

    def _copied(self, places: np.ndarray, ends: np.ndarray) -> np.ndarray:
        from hayase.lifetimes import aggregates_loops

        copy = np.empty(ends[-1], np.uint8)
        aggregates_loops.copy_texts(self.arena, np.ascontiguousarray(places), ends, copy)
        return copy


class _Pairs:
    """The (group, value) pairs of distinct counts, numbered, with the number of live tuples of each."""

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._index = KeyIndex()
        self.counts = np.zeros(0, np.int64)
        self.sizes = [0] * calls
        self.enough = SPARE_TUPLES

    def __len__(self) -> int:
        return len(self._index)

    def slots(self, groups: np.ndarray, call: int, column: pa.Array) -> np.ndarray:
        """Return the numbers of pairs of groups and values; new pairs are added."""
        encoded = encode([pa.array(groups * self._calls + call), column])
        slots = self._index.slots(encoded, hashes(encoded))
        self._make_room(len(self._index))
        return slots

    def bring(self, call: int, slots: np.ndarray) -> None:
        """Load pairs that stay for ever."""
        new = np.unique(slots[self.counts[slots] == 0])
        self.counts[new] = 1
        self.sizes[call] += len(new)

    def shed(self, groups: np.ndarray | None, spare: int) -> np.ndarray:
        """Drop pairs without tuples and adopt new numbers of the groups; return the new number of each pair, or -1."""
        kept = np.flatnonzero(self.counts[: len(self)])
        numbers = np.full(len(self), -1, np.int64)
        numbers[kept] = np.arange(len(kept))
        encoded = self._index.encoded(kept)
        if groups is not None and len(kept):
            words = encoded.words
            at = encoded.offsets[:-1] >> 3
            old, call = np.divmod(words[at].view(np.int64), self._calls)
            words[at] = (groups[old] * self._calls + call).view(np.uint64)
            encoded = EncodedKeys(encoded.offsets, words.view(np.uint8))
        counts = self.counts[kept]
        self._index = KeyIndex()
        self._index.slots(encoded, hashes(encoded))
        self.counts = np.zeros(0, np.int64)
        self._make_room(len(kept))
        self.counts[: len(kept)] = counts
        self.enough = 2 * len(kept) + spare + SPARE_TUPLES
        return numbers

    def _make_room(self, pairs: int) -> None:
        known = len(self.counts)
        if pairs > known:
            counts = np.zeros(max(2 * known, pairs), np.int64)
            counts[:known] = self.counts
            self.counts = counts
