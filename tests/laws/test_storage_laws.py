"""The verbs of storage, over a directory, a client of object stores and a store that fails: each does what a dictionary does, and
of several writers exactly one wins."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import MemoryStore

from hayase.core.errors import EndpointError
from hayase.storage import DirectoryStore, ObjectStore, Store, Stored
from hayase.storage.object_store import PAUSES
from hayase.storage.obstore_requests import ObstoreRequests
from hayase.streams import durable
from simulated_store import FAULTS, Fault, SimulatedRequests

NAMES = st.sampled_from(["a", "b/1", "b/2", "c/d/e"])
DATA = st.binary(max_size=6)


@contextmanager
def directory() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as place, durable.without_syncs():
        yield DirectoryStore(Path(place) / "store")


@contextmanager
def obstore_client() -> Iterator[Store]:
    yield ObjectStore(ObstoreRequests("memory://", "", MemoryStore()))


@contextmanager
def simulated() -> Iterator[Store]:
    yield ObjectStore(SimulatedRequests(), wait=lambda seconds: None)


class Drawn:
    """Faults as a list says, but fewer in a row than attempts; then none. A request without a fault between faults may be the one
    that reads back what a verb has done: only two of them end a row."""

    def __init__(self, faults: list[Fault]) -> None:
        self._faults, self._row, self._without = list(faults), 0, 0

    def __call__(self) -> Fault:
        fault = self._faults.pop() if self._faults and self._row < len(PAUSES) else "none"
        self._without = self._without + 1 if fault in ("none", "repeated") else 0
        self._row = self._row + 1 if not self._without else 0 if self._without > 1 else self._row
        return fault


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES, DATA),
        st.tuples(st.just("replace"), NAMES, DATA, st.booleans()),
        st.tuples(st.just("put"), NAMES, DATA),
        st.tuples(st.just("delete"), st.lists(NAMES, max_size=3)),
        st.tuples(st.just("range"), NAMES, st.integers(0, 7), st.integers(0, 7)),
        st.tuples(st.just("list"), st.sampled_from(["", "b", "c"]), st.sampled_from(["", "a", "b/1", "z"])),
    ),
    max_size=12,
)


def check_like_a_dictionary(store: Store, acts: list[tuple[Any, ...]]) -> None:
    model: dict[str, bytes] = {}
    versions: dict[str, str] = {}
    for number, (verb, *arguments) in enumerate(acts):
        name = arguments[0]
        if verb in ("create", "replace", "put"):
            data = b"%d " % number + arguments[1]  # contents carry the writer's identity
        if verb == "create":
            version = store.create(name, data)
            assert (version is None) == (name in model)
            if version is not None:
                model[name], versions[name] = data, version
        elif verb == "replace":
            current = arguments[2] and name in model
            version = store.replace(name, data, versions[name] if current else "another")
            assert (version is None) == (not current)
            if version is not None:
                model[name], versions[name] = data, version
        elif verb == "put":
            store.put(name, data)
            model[name] = data
            versions[name] = store.read(name).version  # type: ignore[union-attr]
        elif verb == "delete":
            store.delete(name)
            for each in name:
                model.pop(each, None)
        elif verb == "range":
            expected = model[name][arguments[1] : arguments[2]] if name in model else None
            assert store.read_range(name, arguments[1], arguments[2]) == expected
        else:
            below = f"{name}/" if name else ""
            expected_names = sorted(each for each in model if each.startswith(below) and each > arguments[1])
            assert [status.name for status in store.list_after(name, arguments[1])] == expected_names
    for name in ("a", "b/1", "b/2", "c/d/e"):
        stored, status = store.read(name), store.status(name)
        assert (stored and stored.data) == model.get(name)
        assert (status and status.size) == (len(model[name]) if name in model else None)
        assert stored is None or name not in versions or name not in model or stored.version == versions[name]


@pytest.mark.parametrize("opened", [directory, obstore_client, simulated])
@given(acts=ACTS)
def test_every_store_is_like_a_dictionary(opened: Callable[[], Any], acts: list[tuple[Any, ...]]) -> None:
    with opened() as store:
        check_like_a_dictionary(store, acts)


@given(acts=ACTS, faults=st.lists(st.sampled_from(FAULTS), max_size=60))
def test_a_store_that_fails_is_like_a_dictionary(acts: list[tuple[Any, ...]], faults: list[Fault]) -> None:
    waits: list[float] = []
    check_like_a_dictionary(ObjectStore(SimulatedRequests(Drawn(faults)), wait=waits.append), acts)
    assert set(waits) <= set(PAUSES)


class Meanwhile:
    """Lets other writers act before a request, as a list of numbers says; not inside of one another."""

    def __init__(self, turns: list[int], others: list[Callable[[], None]]) -> None:
        self._turns, self._others, self._busy = list(turns), others, False

    def __call__(self) -> None:
        if self._turns and not self._busy:
            turn = self._turns.pop()
            if turn < len(self._others):
                self._busy = True
                try:
                    self._others[turn]()
                finally:
                    self._busy = False


@given(
    faults=st.lists(st.sampled_from(FAULTS), max_size=40),
    turns=st.lists(st.integers(0, 5), max_size=20),
)
def test_of_several_creators_exactly_one_wins(faults: list[Fault], turns: list[int]) -> None:
    won: list[bytes] = []
    others: list[Callable[[], None]] = []
    requests = SimulatedRequests(Drawn(faults), Meanwhile(turns, others))
    store = ObjectStore(requests, wait=lambda seconds: None)

    def create(writer: int) -> None:
        data = b"of %d" % writer
        with suppress(EndpointError):  # it gives up after many faults
            if store.create("name", data) is not None:
                won.append(data)

    others.extend((lambda writer=writer: create(writer)) for writer in range(3))
    create(9)
    if won:  # a writer that asks again is told again that it is its own
        assert set(won) == {requests.objects["name"].data}


@given(
    faults=st.lists(st.sampled_from(FAULTS), max_size=60),
    turns=st.lists(st.integers(0, 3), max_size=30),
)
def test_no_replacement_is_lost(faults: list[Fault], turns: list[int]) -> None:
    """Several writers add their names to a list, each reading it before. What is there at the end has all that were told that they
    succeeded, once each. A writer that gives up after many faults is told nothing."""
    told: list[str] = []
    others: list[Callable[[], None]] = []
    requests = SimulatedRequests(Drawn(faults), Meanwhile(turns, others))
    store = ObjectStore(requests, wait=lambda seconds: None)
    requests.objects["list"] = Stored(b"", "0")
    numbers = iter(range(1000))

    def add() -> None:
        name = f"w{next(numbers)}"
        with suppress(EndpointError):
            there = store.read("list")
            assert there is not None
            if store.replace("list", there.data + f" {name}".encode(), there.version) is not None:
                told.append(name)

    others.extend([add, add])
    for _ in range(3):
        add()
    names = requests.objects["list"].data.decode().split()
    assert len(set(names)) == len(names)
    assert set(told) <= set(names)


def test_a_store_that_stays_away_is_an_error_after_growing_pauses() -> None:
    waits: list[float] = []
    store = ObjectStore(SimulatedRequests(lambda: "unavailable"), wait=waits.append)
    with pytest.raises(EndpointError, match="503"):
        store.read("name")
    assert waits == sorted(waits) == list(PAUSES)


def test_time_is_limited_too() -> None:
    times = iter(range(0, 1000, 30))
    waits: list[float] = []
    store = ObjectStore(SimulatedRequests(lambda: "lost answer"), wait=waits.append, now=lambda: next(times))
    with pytest.raises(EndpointError, match="timed out"):
        store.put("name", b"")
    assert len(waits) < len(PAUSES)
