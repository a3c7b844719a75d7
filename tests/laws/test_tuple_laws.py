"""Laws of the tuple store and the expiry queue: they hold what a dict would, in order, however often they are restored."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from hayase.lifetimes.expiry import ExpiryQueue, end_order
from hayase.lifetimes.relations import OPEN, Delta, Span, Step, no_delta
from hayase.lifetimes.tuples import IdMap, TupleStore
from interval_relations import Driver, Told, clock_lists, cut, told_relations

COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "whole": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": (pa.int16(), st.integers(-3, 3)),
    "flag": (pa.bool_(), st.booleans()),
    "number": (pa.float32(), st.sampled_from([0.5, -1.0, float("inf")])),
    "money": (pa.decimal128(20, 2), st.sampled_from([Decimal("1.50"), Decimal("-7.00"), Decimal("1e16")])),
    "text": (pa.string(), st.text(max_size=5)),
    "bytes": (pa.binary(), st.binary(max_size=5)),
    "time": (pa.timestamp("us", tz="UTC"), st.just(datetime(2020, 1, 1, tzinfo=UTC))),
    "list": (pa.list_(pa.int64()), st.lists(st.integers(0, 5), max_size=3)),
}


@st.composite
def relations(draw: st.DrawFn) -> tuple[pa.Schema, list[Told]]:
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), max_size=3, unique=True))
    rows = st.fixed_dictionaries({name: st.none() | COLUMNS[name][1] for name in names})
    return pa.schema([(name, COLUMNS[name][0]) for name in names]), draw(told_relations(rows, most=30))


class StoredDeclaration:
    """An operator that keeps its input, and an index of it by slot such as a join would have; a step in parts or whole."""

    def __init__(self, schema: pa.Schema, whole: bool) -> None:
        self.schema = schema
        self.whole = whole
        self.store = TupleStore(schema)
        self.index: dict[int, int] = {}
        self.gone: list[tuple[int, int]] = []

    def advance(self, inputs: Sequence[Delta], span: Span) -> Step:
        (delta,) = inputs
        added, removed = self.store.settle(span.since)
        for slot in removed.tolist():
            del self.index[slot]
        self.store.release(removed)
        self._enter(added)
        if self.whole:
            passed = self.store.advance(delta.rows, delta, span.clock)
            self._enter(passed.slots)
            ended = passed.ended
            assert passed.ends.tolist() == self.store.end[ended].tolist()
        else:
            self._enter(self.store.add(delta.rows, delta.start, delta.end, delta.id))
            self.store.close(delta.closed, delta.closed_end)
            ended = self.store.expire(span.clock)
        self.gone = list(zip(self.store.end[ended].tolist(), self.store.id[ended].tolist()))
        for slot in ended.tolist():
            assert self.index.pop(slot) == self.store.id[slot]
        self.store.release(ended)
        return Step(no_delta(self.schema), self.store.changes())

    def _enter(self, slots: np.ndarray) -> None:
        for slot in slots.tolist():
            assert slot not in self.index
            self.index[slot] = int(self.store.id[slot])

    def content(self) -> dict[int, tuple[Any, int, int]]:
        slots = np.array(list(self.index), np.int64)
        rows = self.store.take(slots).to_pylist() if len(self.schema) else [{}] * len(slots)
        store = self.store
        return {
            int(store.id[slot]): (row, int(store.start[slot]), int(store.end[slot])) for slot, row in zip(slots, rows)
        }

    def restore(self, section: str, rows: pa.RecordBatch, version: int) -> None:
        self.store.restore(rows, version)

    def live(self, section: str, rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
        return self.store.live(rows, version)

    def size(self, section: str) -> int:
        return self.store.size()


@given(relations(), clock_lists(), st.none() | st.integers(0, 1000), st.booleans())
def test_a_store_is_a_dict_of_what_is_alive(
    made: tuple[pa.Schema, list[Told]], clocks: list[int], seed: int | None, whole: bool
) -> None:
    schema, relation = made
    driver = Driver(lambda: StoredDeclaration(schema, whole), seed)
    model: dict[int, tuple[Any, int, int]] = {}
    for span, delta in cut(relation, schema, clocks, since=0):
        rows = delta.rows.to_pylist() if len(schema) else [{}] * len(delta)
        times = zip(delta.id.tolist(), rows, delta.start.tolist(), delta.end.tolist())
        model |= {number: (row, start, end) for number, row, start, end in times}
        for number, end in zip(delta.closed.tolist(), delta.closed_end.tolist()):
            model[number] = (*model[number][:2], end)
        gone = sorted((end, number) for number, (_, _, end) in model.items() if end < span.clock)
        for _, number in gone:
            del model[number]
        driver.advance([delta], span)
        assert driver.operator.gone == gone
        assert driver.operator.content() == model
        assert len(driver.operator.store) == driver.operator.size("tuples") == len(model)


@given(relations(), clock_lists(), st.booleans())
def test_what_is_written_is_what_is_alive(made: tuple[pa.Schema, list[Told]], clocks: list[int], whole: bool) -> None:
    schema, relation = made
    driver = Driver(lambda: StoredDeclaration(schema, whole))
    for span, delta in cut(relation, schema, clocks, since=0):
        driver.advance([delta], span)
    kept = driver.operator
    live = [kept.live(each.section, each.rows, len(clocks)) for each in driver.state]
    ids = [number for rows in live for number in rows.column("__id").to_pylist()]
    assert sorted(ids) == sorted(kept.content())
    assert all(each.until is None or each.until >= clocks[-1] for each in driver.state)


@given(st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10**6)), max_size=30), max_size=30), st.data())
def test_a_queue_gives_out_by_end_and_id(batches: list[list[tuple[int, int]]], data: st.DataObject) -> None:
    queue, held, clock = ExpiryQueue(), set[tuple[int, int]](), 0
    for number, batch in enumerate(batches):
        new = [(clock + end, id) for end, id in dict.fromkeys(batch) if (clock + end, id) not in held]
        if data.draw(st.booleans()):
            new.sort()
        lines = np.array(new, np.int64).reshape(-1, 2)
        held |= set(new)
        queue.push(lines[:, 0].copy(), lines[:, 1].copy(), lines[:, 0] * 10**7 + lines[:, 1])
        asked = [*sorted(held)[::2], (clock, -1), (clock + number, 10**6 + 1)]
        pairs = np.array(asked, np.int64)
        if number % 5 == 4:
            assert queue.has(pairs[:, 0], pairs[:, 1]).tolist() == [each in held for each in asked]
        clock += data.draw(st.integers(0, 4))
        due = sorted(each for each in held if each[0] < clock)
        assert queue.pop(clock).tolist() == [end * 10**7 + id for end, id in due]
        held -= set(due)
        assert len(queue) == len(held)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=50, unique=True))
def test_the_order_of_ends_breaks_ties_by_id(pairs: list[tuple[int, int]]) -> None:
    lines = np.array(pairs, np.int64).reshape(-1, 2)
    assert [pairs[at] for at in end_order(lines[:, 0], lines[:, 1])] == sorted(pairs)


@given(
    st.lists(st.tuples(st.sampled_from("eot"), st.lists(st.integers(-5, 40) | st.integers(), unique=True)), max_size=20)
)
def test_a_map_of_ids_is_a_dict(steps: list[tuple[str, list[int]]]) -> None:
    map_, model = IdMap(), dict[int, int]()
    for number, (what, ids) in enumerate(steps):
        ids = [each for each in ids if -(2**63) <= each < 2**63]
        given_ids = np.array(ids, np.int64)
        if what == "e":
            map_.enter(given_ids, np.arange(len(ids)) + number)
            model |= {each: at + number for at, each in enumerate(ids)}
        elif what == "o":
            assert map_.look_up(given_ids).tolist() == [model.get(each, -1) for each in ids]
        else:
            assert map_.take_out(given_ids).tolist() == [model.pop(each, -1) for each in ids]
        assert len(map_) == len(model)
    everything = np.array(list(model), np.int64)
    assert map_.look_up(everything).tolist() == list(model.values())


def test_open_ends_are_open() -> None:
    store = TupleStore(pa.schema([]))
    slots = store.add(pa.record_batch([], schema=pa.schema([])), np.array([1]), np.array([OPEN]), np.array([9]))
    assert store.end[slots].tolist() == [OPEN]
    assert not len(store.expire(10**18))
