"""Aggregates over interval relations: a row per group, with the interval in which it holds.

- Sweep: at each instant first the ends, then the starts, in the order given; then the groups they touch are looked at.
  A row whose values stay the same lives on.
- Cost: constant per start and end, logarithmic for min and max; memory follows what is alive. If no tuple of the child
  ever ends there are no tuples to be kept, only accumulators.
- Exact: counts; sums of integers and decimals, where a tuple that would take a sum out of its range is spoiled and
  counts for nothing. If the *end* of a tuple does that, the sum is NULL while it lasts, and the row is reported.
- Sums of floats are kept in two doubles, with a bound on what rounding may have done to them. When that is no longer
  small beside the sizes of the live numbers (something large has left), the sum is made anew from the tuples, exactly.
  NaN and the infinities are counted apart and leave with their tuples.
- min and max: a pairing heap of tuples per group. NaN is the greatest; texts are ordered by their bytes.

State: "tuples" (a `TupleStore`), "groups" (keys, open row, accumulators; the last version counts), "registers" (the next
row's id) and, for an endless count(distinct), "distinct.N" (keys and values). Lists, heaps and the counts of
distinct values are rebuilt from the tuples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.errors import DamagedState
from hayase.core.keys import EncodedKeys, KeyIndex, encode, fixed_column, flags, hashes, text_column, values
from hayase.core.scratch import scratch
from hayase.core.stages import Spoiled, Tuples
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
from hayase.lifetimes.state_registers import Registers
from hayase.lifetimes.tuples import TupleStore

__all__ = ["AggregateOperator"]

_TUPLES, _GROUPS, _REGISTERS, _VALUES = "tuples", "groups", "registers", "distinct"
_SIGN = np.int64(-(2**63))
_SPARE = 65_536
"""So many bytes of texts, or pairs, that nobody needs are not worth a rewrite."""


class AggregateOperator:
    """A `plans.Aggregate` (`relations.Operator`). `endless` says that no tuple of the child ever ends."""

    def __init__(self, node: Aggregate, endless: bool) -> None:
        self.schema = node.schema
        self._keys = node.keys
        child = node.child.schema
        self._layout = layout(node.calls, child, endless)
        self._program, self._calls = self._layout.program(), self._layout.calls()
        self._shape = self._layout.shape()
        self._scales = np.array([each.scale for each in self._layout.outputs])
        self._groups = Groups(
            [child.field(name).type for name in node.keys], self._layout.group_words, 1 + self._layout.heaps
        )
        columns = dict.fromkeys([*node.keys, *(each.column for each in self._layout.arguments)])
        self._needed = list(columns)
        self._store = (
            None
            if endless
            else TupleStore(pa.schema([child.field(name) for name in columns]), _TUPLES, with_values=False)
        )
        self._cells = np.zeros((1, max(self._layout.cell_words, 3)), np.int64)
        self._texts = _Texts()
        self._distinct = [at for at, each in enumerate(self._layout.accumulators) if each.kind == DISTINCT]
        self._pairs = _Pairs(len(self._distinct))
        self._state = _GroupState(self._layout.accumulators, self._layout.arguments, endless, node.keys, child)
        self._registers = Registers(("next",), (0,), _REGISTERS)
        self._lanes = np.zeros((4, LANES), np.int64)
        self._version = 0

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        """The rows that begin and end in the step."""
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
        made, noting, closing, spoiling, overdue, bringing = aggregates_loops.sweep(
            *self._arrays(), delta.start, groups, slots, lines, valid, known, ends, ended.copy(),
            self._shape, self._program, self._calls, self._scales, self._birth(span), first, not self._keys,
            out, there, carried, carried_there, rows, noted, closed, spoiled, beyond, fresh, self._lanes,
        )  # fmt: skip
        self._registers["next"] += made
        self._groups.alive += made - closing - int(np.count_nonzero(rows[1, :made] != OPEN))
        result = self._result(delta.rows, rows[:, :made], out[:, :made], there[:, :made])
        trouble = self._spoiled(delta, spoiled[:, :spoiling]) + self._beyond(result, beyond[:overdue])
        state = self._changes(noted[:, :noting], delta.rows, fresh[:bringing], span.version)
        if self._store is not None:
            unused = slots[spoiled[0, :spoiling]]
            unused = unused[self._store.end[unused] >= span.clock]
            self._store.end[unused] = self._store.start[
                unused
            ]  # so it is not written, and goes when it would have ended
            self._store.release(ended)
            state += self._store.changes()
        self._tidy()
        ids = np.arange(first, first + made)
        start, end = rows[0, :made].copy(), rows[1, :made].copy()
        return Step(
            Delta(result, start, end, ids, closed[0, :closing].copy(), closed[1, :closing].copy()), state, trouble
        )

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        """Take up tuples; of a group's the latest written counts, of those of one version the last."""
        if section == _REGISTERS:
            self._registers.restore(section, rows, version)
        elif section == _TUPLES:
            assert self._store is not None
            self._store.restore(rows, version)
        elif section == _GROUPS:
            self._state.check(rows)
            slots = self._groups.slots(rows.columns[: len(self._keys)], rows.num_rows)
            self._groups.put(slots, self._state.words(rows, self._texts), self._state.all_places, version)
        else:
            groups = self._groups.slots(rows.columns[: len(self._keys)], rows.num_rows)
            number = int(section.rpartition(".")[2])
            self._pairs.bring(number, self._pairs.slots(groups, number, rows.column(len(self._keys))))
        self._version = max(self._version, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Of tuples written up to `version`, those that still matter. Groups count as written anew from then on."""
        if section == _REGISTERS:
            return self._registers.live(section, rows, version)
        if section == _TUPLES:
            assert self._store is not None
            return self._store.live(rows, version)
        if section == _GROUPS:
            self._state.check(rows)
            keys = rows.columns[: len(self._keys)]
            slots = self._groups.slots(keys, rows.num_rows, insert=False)
            positions = self._groups.unchanged(slots, version)
            chosen = pa.array(positions)
            return self._group_rows([column.take(chosen) for column in keys], slots[positions], self._version)
        return rows  # a value once seen is never unseen

    def size(self, section: str) -> int:
        """How many tuples of a section are alive."""
        if section == _REGISTERS:
            return self._registers.size(section)
        if section == _TUPLES:
            return 0 if self._store is None else self._store.size()
        return self._groups.alive if section == _GROUPS else self._pairs.sizes[int(section.rpartition(".")[2])]

    # ------------------------------------------------------------------------------------------ what comes in

    def _birth(self, span: Span) -> int:
        """When the one row of an aggregate without keys begins, if that is in this step; else OPEN."""
        if self._keys or span.began == BEGINNING or span.began >= span.clock or self._groups.words[0, ROW] >= 0:
            return OPEN
        return max(span.began, span.since)

    def _settle(self, span: Span) -> None:
        """Index tuples that were restored, and forget those that ended meanwhile."""
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
        """Keep the tuples that begin; their slots, and slots and ends of those that end in the step."""
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
        """The arguments of rows as lines of words; lines that say which are there; and, by argument, which of these (-1:
        all are there)."""
        parts: list[np.ndarray] = []
        there: list[np.ndarray] = []
        known = np.full(len(self._layout.arguments), -1, np.int64)
        pairs = 0
        for at, each in enumerate(self._layout.arguments):
            column = rows.column(each.column)
            if column.null_count:
                known[at] = len(there)
                there.append(flags(column))
            if each.form == PAIR:
                parts.append(self._pairs.slots(groups, pairs, column).reshape(1, -1))
                pairs += 1
            elif each.form == TEXT:
                parts.append(self._texts.append(column))
            elif each.form != PRESENCE:
                parts.append(_words(column, each.form))
        lines = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty((0, count), np.int64)
        valid = np.stack(there) if there else np.empty((0, count), np.bool_)
        return lines, valid, known

    # ------------------------------------------------------------------------------------------ what goes out

    def _result(self, source: pa.RecordBatch, rows: np.ndarray, out: np.ndarray, there: np.ndarray) -> pa.RecordBatch:
        """The rows of the result: keys and calls."""
        columns: list[pa.Array] = []
        if self._keys and self._store is None:  # every row comes with a tuple that has its keys
            given = [source.column(name) for name in self._keys]
            chosen = rows[3]
            if len(chosen) != source.num_rows or (chosen[1:] <= chosen[:-1]).any():
                taken = pa.array(chosen)
                given = [column.take(taken) for column in given]
            columns += given
        elif self._keys:
            columns += self._groups.keys(rows[2])
        for at, each in enumerate(self._layout.outputs):
            columns.append(self._column(each, out[each.to : each.to + each.lines], there[at]))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, output: Output, lines: np.ndarray, there: np.ndarray) -> pa.Array:
        if output.form == TEXT:
            return self._texts.column(output.kind, lines[1], lines[2], there)
        if output.form == UNSIGNED:
            lines = lines ^ _SIGN
        return fixed_column(output.kind, lines.T, there)

    def _spoiled(self, delta: Delta, spoiled: np.ndarray) -> list[Spoiled]:
        """The tuples that would have taken a sum out of its range."""
        if not spoiled.shape[1]:
            return []
        reasons = []
        for culprit in spoiled[1].tolist():
            each = self._layout.accumulators[culprit]
            reasons.append(f"{each.text} of its group would overflow {_limit(each)}")
        return [Spoiled(delta.rows.take(pa.array(spoiled[0])), reasons, delta.id[spoiled[0]])]

    def _beyond(self, result: pa.RecordBatch, beyond: np.ndarray) -> list[Spoiled]:
        """The rows of the result in which a sum is NULL because the end of a tuple took it out of its range."""
        if not len(beyond):
            return []
        rows, calls = np.divmod(beyond, len(self._calls))
        reasons = []
        for call in calls.tolist():
            each = self._layout.accumulators[self._layout.outputs[call].of]
            reasons.append(
                f"{each.text} is beyond {_limit(each)} since a tuple of its group ended; it is NULL meanwhile"
            )
        return [Spoiled(result.take(pa.array(rows)), reasons)]

    # ------------------------------------------------------------------------------------------ state

    def _changes(self, noted: np.ndarray, rows: pa.RecordBatch, fresh: np.ndarray, version: int) -> list[Tuples]:
        """The groups that the step touched, the values that it brought, the next id."""
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
                    columns = [rows.column(each).take(chosen) for each in (*self._keys, name)]
                    names = [*(f"key_{key}" for key in range(len(self._keys))), "value"]
                    state.append(Tuples(f"{_VALUES}.{number}", pa.RecordBatch.from_arrays(columns, names)))
        return state

    def _group_rows(self, keys: list[pa.Array], slots: np.ndarray, version: int) -> pa.RecordBatch:
        """Groups as they are written, from now on as of `version`."""
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
        """Give back the memory of what is alive no more, when it is as much as what is."""
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
        """Rows of words, and where in them a text's place stands (its length behind it)."""
        if self._store is None:
            alive = self._groups.words[: len(self._groups)]
            return [(alive, np.flatnonzero(alive[:, at] > 0), at + 2) for at in self._state.texts]
        held = np.flatnonzero(self._cells.view(np.int32)[:, 0] >= 0)
        return [
            (self._cells, held[~self._nulls(held, number)], self._layout.base + each.line + 1)
            for number, each in enumerate(self._layout.arguments)
            if each.form == TEXT
        ]


def _limit(accumulator: Accumulator) -> str:
    return "64 bits" if accumulator.limit == BITS64 else "38 digits"


def _words(column: pa.Array, form: int) -> np.ndarray:
    """A column of fixed width as lines of words."""
    if form == FLOAT:
        with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN like any other
            numbers = values(column.cast(pa.float64()), np.float64) + 0.0  # -0.0 becomes 0.0
        numbers[np.isnan(numbers)] = np.nan
        return numbers.view(np.int64).reshape(1, -1)
    if form == DECIMAL:
        wide = column.cast(pa.decimal128(38, column.type.scale if pa.types.is_decimal(column.type) else 0))
        return np.ascontiguousarray(values(wide, np.int64, 2).reshape(-1, 2).T)
    if form == UNSIGNED:
        return (values(column, np.int64) ^ _SIGN).reshape(1, -1)
    column = pc.cast(column.view(pa.int32()) if column.type == pa.date32() else column, pa.int64())
    return values(column, np.int64).reshape(1, -1)


class _GroupState:
    """How groups are written: keys, the open row, the count of tuples, the words of the accumulators.

    The words of a text in an endless min or max say where it stands, so the text itself is written in their place.
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
            each for each in accumulators if endless and each.kind == EXTREME and arguments[each.argument].form == TEXT
        ]
        hidden = {word for each in texts for word in range(each.at + 1, each.at + 1 + LINES[TEXT])}
        width = GROUP_WORDS + sum(each.words for each in accumulators)
        own = [word for word in range(GROUP_WORDS, width) if word not in hidden]
        self.places = np.array([ROW, COUNTED, *own], np.int64)
        """The words that are written."""
        self.all_places = np.array([*self.places, *sorted(hidden)], np.int64)
        """The words that are read: those of the texts follow."""
        self.texts = [each.at for each in texts]
        """Where the accumulators of texts begin."""
        fields = [pa.field(f"key_{at}", child.field(name).type) for at, name in enumerate(keys)]
        fields += [pa.field(name, pa.int64()) for name in ("row", "count", *(f"word_{word}" for word in own))]
        fields += [pa.field(f"text_{at}", pa.binary()) for at in self.texts]
        self.schema = pa.schema(fields)
        self._keys = len(keys)

    def check(self, rows: pa.RecordBatch) -> None:
        if rows.schema.names != self.schema.names or rows.schema.types != self.schema.types:
            raise DamagedState(
                f'the state section "{_GROUPS}" has the columns {", ".join(rows.schema.names)} '
                f"instead of {', '.join(self.schema.names)}; reset the stage"
            )

    def words(self, rows: pa.RecordBatch, texts: _Texts) -> np.ndarray:
        """The words of written groups, at `all_places`."""
        columns = rows.columns[self._keys :]
        plain = [values(column, np.int64).reshape(1, -1) for column in columns[: len(self.places)]]
        return np.concatenate([*plain, *(texts.append(column) for column in columns[len(self.places) :])])


class _Texts:
    """The bytes of arguments that are texts, one behind the other, and often garbage between them."""

    def __init__(self) -> None:
        self.arena = np.empty(0, np.uint8)
        self.used = 0
        self.enough = _SPARE

    def append(self, column: pa.Array) -> np.ndarray:
        """Take up texts; for each its first eight bytes, its place and its length, int64[3, n]."""
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
        aggregates_loops.describe_texts(self.arena, starts, flags(column), self.used, lines)
        self.used += size
        return lines

    def column(self, kind: pa.DataType, places: np.ndarray, lengths: np.ndarray, there: np.ndarray) -> pa.Array:
        """Texts as a column, NULL where `there` says no."""
        ends = np.zeros(len(places) + 1, np.int64)
        np.cumsum(np.where(there, lengths, 0), out=ends[1:])
        return text_column(kind, self._copied(places, ends), ends, there)

    def keep(self, rows: Sequence[tuple[np.ndarray, np.ndarray, int]]) -> None:
        """Forget all texts but those of some rows: (words, which of them, the word of the place)."""
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
        self.enough = 2 * used + _SPARE

    def _copied(self, places: np.ndarray, ends: np.ndarray) -> np.ndarray:
        from hayase.lifetimes import aggregates_loops

        copy = np.empty(ends[-1], np.uint8)
        aggregates_loops.copy_texts(self.arena, np.ascontiguousarray(places), ends, copy)
        return copy


class _Pairs:
    """Pairs of a group and a value of a distinct count, numbered, and how many live tuples each has."""

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._index = KeyIndex()
        self.counts = np.zeros(0, np.int64)
        self.sizes = [0] * calls
        self.enough = _SPARE

    def __len__(self) -> int:
        return len(self._index)

    def slots(self, groups: np.ndarray, call: int, column: pa.Array) -> np.ndarray:
        """The numbers of pairs of groups and values."""
        encoded = encode([pa.array(groups * self._calls + call), column])
        slots = self._index.slots(encoded, hashes(encoded))
        self._make_room(len(self._index))
        return slots

    def bring(self, call: int, slots: np.ndarray) -> None:
        """Take up pairs that will stay for ever."""
        new = np.unique(slots[self.counts[slots] == 0])
        self.counts[new] = 1
        self.sizes[call] += len(new)

    def shed(self, groups: np.ndarray | None, spare: int) -> np.ndarray:
        """Forget pairs without tuples, and go over to new numbers of the groups; the new number of each pair, or -1."""
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
        self.enough = 2 * len(kept) + spare + _SPARE
        return numbers

    def _make_room(self, pairs: int) -> None:
        known = len(self.counts)
        if pairs > known:
            counts = np.zeros(max(2 * known, pairs), np.int64)
            counts[:known] = self.counts
            self.counts = counts
