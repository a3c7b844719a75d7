"""The tuple store, the expiry queue and registers, by example."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from hayase.core.errors import DamagedState
from hayase.lifetimes.expiry import ExpiryQueue
from hayase.lifetimes.relations import OPEN
from hayase.lifetimes.state_registers import Registers
from hayase.lifetimes.tuples import TupleStore

SCHEMA = pa.schema([("name", pa.string())])


def array(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def rows(*names: str | None) -> pa.RecordBatch:
    return pa.record_batch([pa.array(names, pa.string())], schema=SCHEMA)


def names(store: TupleStore, slots: np.ndarray) -> list[str | None]:
    return store.take(slots).column(0).to_pylist()


def stored() -> TupleStore:
    """a until 5, b open, c until 3, d open."""
    store = TupleStore(SCHEMA)
    store.add(rows("a", "b", "c", "d"), array(0, 0, 1, 1), array(5, OPEN, 3, OPEN), array(10, 11, 12, 13))
    return store


def test_tuples_leave_in_the_order_of_their_ends() -> None:
    store = stored()
    slots = store.close(array(11, 99), array(4, 4))
    assert names(store, slots) == ["b"]
    assert len(store) == 4
    assert not len(store.expire(3))
    gone = store.expire(6)
    assert names(store, gone) == ["c", "b", "a"]
    assert store.end[gone].tolist() == [3, 4, 5]
    assert len(store) == 1


def test_released_slots_are_used_again() -> None:
    store = stored()
    gone = store.expire(4)
    store.release(gone)
    again = store.add(rows("e"), array(4), array(9), array(14))
    assert again.tolist() == gone.tolist()
    assert store.capacity == 4
    assert names(store, np.concatenate((again, again))) == ["e", "e"]


def test_known_ends_and_open_ones_are_written_apart() -> None:
    store = stored()
    store.release(store.expire(4))
    known, opened = store.changes()
    assert known.rows.to_pylist() == [{"name": "a", "__start": 0, "__end": 5, "__id": 10}]
    assert known.until == 5
    assert opened.rows.column("__id").to_pylist() == [11, 13]
    assert opened.until is None
    assert store.changes() == []


def test_an_open_tuple_that_was_written_gets_a_tombstone() -> None:
    store = stored()
    store.changes()
    store.close(array(13), array(2))
    store.release(store.expire(3))
    (tombs,) = store.changes()
    assert tombs.rows.to_pylist() == [{"name": None, "__start": 2, "__end": 2, "__id": 13}]


def test_what_never_was_written_needs_no_tombstone() -> None:
    store = stored()
    store.close(array(11, 13), array(2, 2))
    store.release(store.expire(6))
    assert store.changes() == []


def test_a_store_that_fell_behind_catches_up() -> None:
    here, there = stored(), TupleStore(SCHEMA)
    written = here.changes()
    for each in written:
        there.restore(each.rows, 1)
        there.restore(each.rows, 1)
    added, removed = there.settle(2)
    assert sorted(names(there, added)) == ["a", "b", "c", "d"]
    assert not len(removed)
    here.close(array(11), array(2))
    here.release(here.expire(4))
    for each in here.changes():
        there.restore(each.rows, 2)
    added, removed = there.settle(4)
    assert not len(added)
    assert sorted(names(there, removed)) == ["b", "c"]
    there.release(removed)
    assert len(there) == len(here) == 2


def test_live_tuples_are_those_that_are_there() -> None:
    store = stored()
    known, opened = store.changes()
    store.close(array(11), array(2))
    store.release(store.expire(4))
    (tombs,) = store.changes()
    store.release(store.expire(5))  # a ends at 5, which is not yet over
    assert store.live(known.rows, 1).column("name").to_pylist() == ["a"]
    assert store.live(opened.rows, 1).column("name").to_pylist() == ["d"]
    assert store.live(tombs.rows, 2).num_rows == 0


def test_state_of_another_make_is_refused() -> None:
    with pytest.raises(DamagedState, match='"tuples" has the columns name instead of name, __start'):
        TupleStore(SCHEMA).restore(rows("a"), 1)


@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.int64()), pa.int64()], ids=str)
def test_memory_follows_what_is_alive(kind: pa.DataType) -> None:
    value = {pa.string(): "x" * 100, pa.int64(): 7}.get(kind, list(range(12)))
    schema = pa.schema([("value", kind)])
    store, before = TupleStore(schema), pa.total_allocated_bytes()
    batch = pa.record_batch([pa.array([value] * 1000, kind)], schema=schema)
    for step in range(100):
        start = np.arange(step * 1000, step * 1000 + 1000)
        slots = store.add(batch, start, start + 3000, start)
        store.release(store.expire(step * 1000 + 1000))
        store.changes()
    assert len(store) == 3000
    assert store.capacity <= 4000
    assert pa.total_allocated_bytes() - before < 12_000 * 100
    assert store.take(slots[:10]).column(0).to_pylist() == [value] * 10


def test_ends_in_order_are_one_run_and_never_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hayase.lifetimes.expiry.end_order", None)
    queue = ExpiryQueue()
    for step in range(50):
        ends = np.arange(step * 10, step * 10 + 10)
        queue.push(ends + 100, ends, ends)
        queue.pop(step * 10)
    assert queue.pop(10**6).tolist() == list(range(390, 500))


def test_ends_in_no_order_are_sorted_when_the_first_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    from hayase.lifetimes import expiry

    calls: list[int] = []
    real = expiry.end_order

    def counted(end: np.ndarray, id: np.ndarray) -> np.ndarray:
        calls.append(len(end))
        return real(end, id)

    monkeypatch.setattr(expiry, "end_order", counted)
    queue = ExpiryQueue()
    queue.push(array(9, 7, 8), array(1, 2, 3), array(1, 2, 3))
    queue.push(array(6, 5), array(4, 5), array(4, 5))
    assert not len(queue.pop(5))
    assert not calls
    assert queue.pop(8).tolist() == [5, 4, 2]
    assert calls == [5]


def test_registers_are_rewritten_once() -> None:
    registers = Registers(("next", "other"), (0, 7))
    registers["next"] = 5
    (written,) = registers.changes(1)
    assert written.rows.to_pylist() == [{"next": 5, "other": 7}]
    assert registers.changes(2) == []
    assert registers.live(registers.section, written.rows, 1).to_pylist() == [{"next": 5, "other": 7}]
    assert registers.live(registers.section, written.rows, 1).num_rows == 0


def test_registers_take_the_latest() -> None:
    registers = Registers(("next",), (0,))
    old, new = (pa.record_batch({"next": [value]}) for value in (1, 2))
    registers.restore("registers", new, 5)
    registers.restore("registers", old, 4)
    assert registers["next"] == 2
    with pytest.raises(DamagedState, match="instead of next"):
        registers.restore("registers", rows("a"), 6)
