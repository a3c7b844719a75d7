"""Laws of stored tables: whatever the order, the repetitions, the runs, the folds and the crashes, a row is what its
different events come to. The judge is a plain set of events, folded from scratch for every answer."""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.core.declarations import TableDeclaration
from hayase.tables import TYPES, entries, fold, stores, versions
from hayase.tables.entries import key_bytes, key_from
from hayase.tables.table import OwnTable, Table, TooOld, open_own, open_reader

COLUMNS = (
    ("total", "Counter"),
    ("last", "Register"),
    ("tags", "ORSet"),
    ("days", "MapCounter"),
    ("least", "MinRegister"),
)
TABLE = TableDeclaration("users", ("country", "user"), COLUMNS)
KINDS = [TYPES[kind]() for _, kind in COLUMNS]
LAST = 40
"""No event is later."""

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=3) | st.sampled_from(
    ["", "a", "ab", "\0", "\1", "é"]
)
scalars = (
    texts
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(-10, 10, places=2)
)
ids: st.SearchStrategy[str | int] = st.sampled_from(["a", "b", "0b8f7a6e-91c2-4d5e-8f10-2a3b4c5d6e7f"]) | st.integers(
    1, 2
)
any_key = st.tuples(scalars, scalars)


@dataclass(frozen=True)
class Event:
    """What one event does to one key; the updates as (column, number, method, parameter)."""

    key: tuple[Any, ...]
    time: int
    id: str | int
    source: int
    updates: tuple[tuple[int, int, str | None, Any], ...]

    @property
    def identity(self) -> tuple[Any, ...]:
        return key_bytes(self.key), self.time, self.id, self.source

    def packed(self) -> tuple[bytes, bytes, list[tuple[int, bytes, bytes]]]:
        version = versions.to_bytes(self.time, self.id, self.source)
        made = [
            (at, versions.update_number_bytes(n), KINDS[at].payload(how, what)) for at, n, how, what in self.updates
        ]
        return key_bytes(self.key), version, made


def batch_of(events: Iterable[Event]) -> Any:
    keys, stamps, updates = zip(*[each.packed() for each in events])
    return entries.pack(keys, stamps, updates)


PARAMETERS: list[st.SearchStrategy[tuple[str | None, Any]]] = [
    st.tuples(st.none(), st.integers(-5, 5) | st.sampled_from([0.1, Decimal("2.50")])),
    st.tuples(st.just("set"), st.sampled_from([None, "x", "y", 3, [1]])),
    st.tuples(st.sampled_from(["add", "remove"]), st.sampled_from(["x", "y", 1])),
    st.tuples(st.none(), st.dictionaries(st.sampled_from(["mo", "tu"]), st.integers(-2, 2), max_size=2)),
    st.tuples(st.none(), st.integers(-9, 9)),
]


@st.composite
def event_lists(draw: st.DrawFn, most: int = 16) -> list[Event]:
    """Different events of a few keys."""
    keys = draw(st.lists(any_key, min_size=1, max_size=4, unique_by=key_bytes))
    found: dict[tuple[Any, ...], Event] = {}
    for _ in range(draw(st.integers(1, 3) | st.integers(1, most))):
        updates = []
        for order in range(draw(st.integers(1, 3))):
            column = draw(st.integers(0, len(COLUMNS) - 1))
            number = draw(st.sampled_from([0, 7, 300])) * 4 + order
            updates.append((column, number, *draw(PARAMETERS[column])))
        id = draw(ids)
        event = Event(draw(st.sampled_from(keys)), draw(st.integers(0, LAST)), id, 0, tuple(updates))
        found[event.identity] = event
    if draw(st.booleans()):  # the same from another source: different versions of other updates
        for event in list(found.values())[:3]:
            shifted = tuple((at, n + 65_536, how, what) for at, n, how, what in event.updates)
            other = Event(event.key, event.time, event.id, 1, shifted)
            found[other.identity] = other
    return list(found.values())


@dataclass
class Judge:
    """The different events that were taken in."""

    events: dict[tuple[Any, ...], Event] = field(default_factory=dict)

    def take(self, events: Iterable[Event]) -> None:
        self.events.update({event.identity: event for event in events})

    def rows(self, as_of: int | None = None) -> dict[bytes, dict[str, Any]]:
        counted: dict[bytes, list[list[tuple[bytes, bytes]]]] = {}
        for event in self.events.values():
            if as_of is None or event.time <= as_of:
                columns = counted.setdefault(key_bytes(event.key), [[] for _ in COLUMNS])
                for at, number, how, what in event.updates:
                    version = versions.to_bytes(event.time, event.id, number)
                    columns[at].append((version, KINDS[at].payload(how, what)))
        return {
            key: {name: KINDS[at].read(None, columns[at]) for at, (name, _) in enumerate(COLUMNS)}
            for key, columns in counted.items()
        }

    def snapshots(self) -> dict[bytes, list[bytes]]:
        """What the snapshots of the columns must be once everything is folded."""
        counted: dict[bytes, list[list[tuple[bytes, bytes]]]] = {}
        for event in self.events.values():
            columns = counted.setdefault(key_bytes(event.key), [[] for _ in COLUMNS])
            for at, number, how, what in event.updates:
                columns[at].append((versions.to_bytes(event.time, event.id, number), KINDS[at].payload(how, what)))
        return {
            key: [KINDS[at].fold(None, payloads) if payloads else b"" for at, payloads in enumerate(columns)]
            for key, columns in counted.items()
        }


# ---------------------------------------------------------------------------------------------------- a store to crash


class Crash(Exception):
    """The process ends here."""


@dataclass
class Disk:
    """What a store in memory keeps when the process ends, and the steps after which it will end."""

    data: dict[bytes, bytes] = field(default_factory=dict)
    crashes: list[int] = field(default_factory=list)
    steps: int = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps in self.crashes:
            raise Crash


class MemoryView:
    def __init__(self, data: dict[bytes, bytes]):
        self._data = data

    def get(self, key: bytes) -> bytes | None:
        return self._data.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self._data.get(key) for key in keys]

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted((key, value) for key, value in self._data.items() if start <= key < stop))

    def scan_each(self, ranges: Sequence[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
        return ([*self.scan(start, stop)] for start, stop in ranges)


class MemoryStore:
    """The least that a table needs of a store."""

    def __init__(self, disk: Disk):
        self._disk = disk

    def read(self, work: Callable[[MemoryView], Any]) -> Any:
        return work(MemoryView(self._disk.data))

    def write(
        self,
        puts: Iterable[tuple[bytes, bytes]] = (),
        deletes: Iterable[bytes] = (),
        ranges: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        self._disk.step()
        within = [each for each in self._disk.data if any(start <= each < stop for start, stop in ranges)]
        gone = {*within, *deletes}
        self._disk.data = {key: value for key, value in self._disk.data.items() if key not in gone} | dict(puts)
        self._disk.step()

    def ingest(self, files: Sequence[Path]) -> None:
        self._disk.step()
        after = dict(self._disk.data)
        for file in files:
            after.update(pickle.loads(file.read_bytes()))
        self._disk.data = after
        for file in files:
            self._disk.step()
            file.unlink()
        self._disk.step()

    def clear(self) -> None:
        self._disk.step()
        self._disk.data = {}
        self._disk.step()

    def refresh(self) -> None: ...

    def size(self) -> int:
        return sum(len(key) + len(value) for key, value in self._disk.data.items())

    def close(self) -> None: ...


def write_memory_run(path: Path, batches: Iterable[Any], marker: bytes) -> int:
    (head, count), keys, values = stores.run_of(path.name, batches, marker)
    path.write_bytes(pickle.dumps({head: count} | {stores.PAYLOAD + key: value for key, value in zip(keys, values)}))
    return len(keys)


# ---------------------------------------------------------------------------------------------------- the scenario


@dataclass
class Scenario:
    """A table and its judge, and what may happen to them."""

    directory: Path
    reopen: Callable[[], OwnTable]
    write: Callable[[Path, Iterable[Any], bytes], int]
    draw: Callable[[st.SearchStrategy[Any]], Any]
    events: list[Event]
    judge: Judge = field(default_factory=Judge)
    floor: int = -1
    """No stream brings an older event any more."""
    batches: list[tuple[bytes, list[list[Event]]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = self.reopen()
        self.surely(lambda: self.table.begin("one"))

    def surely(self, action: Callable[[], Any]) -> None:
        """Do it; whenever the process ends meanwhile, open the table again and do it again."""
        while True:
            try:
                action()
                return
            except Crash:
                self.table = self.reopen()

    def staged(self, marker: bytes, runs: list[list[Event]]) -> list[Path]:
        files = [self.directory / f"{marker.decode()}-{at}.run" for at in range(len(runs))]
        for file, events in zip(files, runs):
            self.write(file, [batch_of(events)] if events else [], marker)
        return files

    def ingest(self) -> None:
        """A batch of new and repeated events, in one run or several."""
        fresh = [event for event in self.events if event.time >= self.floor]
        marker = b"%04d" % len(self.batches)
        if not fresh:
            return
        chosen = self.draw(st.lists(st.sampled_from(fresh), min_size=1, max_size=6))
        cut = self.draw(st.integers(0, len(chosen)))
        runs = [chosen[:cut], chosen[cut:]] if self.draw(st.booleans()) else [chosen]
        files = self.staged(marker, runs)
        self.batches.append((marker, runs))
        self.surely(lambda: self.table.ingest(files, marker))
        assert not any(file.exists() for file in files)
        self.judge.take(chosen)

    def ingest_again(self) -> None:
        """The same batch again: its files still there, or gone, or some of them."""
        if self.batches:
            marker, runs = self.draw(st.sampled_from(self.batches[-16:]))
            files = self.staged(marker, runs)
            for file in files:
                if self.draw(st.booleans()):
                    file.unlink()
            self.surely(lambda: self.table.ingest(files, marker))
            assert not any(file.exists() for file in files)

    def fold(self) -> None:
        near = st.sampled_from([event.time + by for event in self.events for by in (0, 1)])
        before, keep_from = self.draw(near | st.integers(0, LAST + 2)), self.draw(near | st.integers(0, LAST + 2))
        self.floor = max(self.floor, keep_from)
        chunks = self.draw(st.integers(0, 4) | st.just(1000))
        asked = 0

        def stop() -> bool:
            nonlocal asked
            asked += 1
            if asked > chunks:
                return True
            if asked < 4 and self.draw(st.booleans()):
                self.draw(st.sampled_from([self.ingest, self.ingest_again, self.check]))()
            return False

        self.surely(lambda: self.table.fold(before, keep_from, stop))

    def begin_again(self) -> None:
        self.surely(lambda: self.table.begin("one"))

    def check(self) -> None:
        """All ways to read say what the judge says."""
        check(self.table, self.judge, self.draw)

    def finish(self) -> dict[bytes, bytes]:
        """Fold everything; the rows in the store."""
        self.surely(lambda: self.table.fold(LAST + 9, LAST + 9))
        self.surely(lambda: self.table.fold(LAST + 9, LAST + 9))  # one that was stopped before may only have been ended
        self.check()
        return dump(self.table)


def dump(table: Table) -> dict[bytes, bytes]:
    def stored(kind: bytes) -> dict[bytes, bytes]:
        return dict(table.store.read(lambda view: list(view.scan(kind, bytes((kind[0] + 1,))))))

    assert stored(stores.PAYLOAD) == stored(stores.MARK) == {}
    return stored(stores.ROW)


def check(table: Table, judge: Judge, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
    as_of = draw(st.none() | st.integers(-1, LAST + 1))
    folded = table.folded_before()
    if as_of is not None and folded is not None and as_of < folded - 1:
        for read in (lambda: table.get(("x", "y"), as_of=as_of), lambda: table.scan(as_of=as_of)):
            with pytest.raises(TooOld, match="the oldest time"):
                read()
        as_of = folded - 1
    expected = judge.rows(as_of)
    keys = sorted({key_bytes(event.key) for event in judge.events.values()} | {key_bytes(("no", "body"))})
    assert [table.get(key_from(key), as_of=as_of) for key in keys] == [expected.get(key) for key in keys]
    assert table.get_many([key_from(key) for key in keys], as_of=as_of) == [expected.get(key) for key in keys]
    column = draw(st.sampled_from([name for name, _ in COLUMNS]))
    for key in expected:
        assert table.get(key_from(key), columns=[column], as_of=as_of) == {column: expected[key][column]}
    limit, after, rows = draw(st.integers(1, 6)), None, []
    while True:
        page = table.scan(limit=limit, after=after, as_of=as_of)
        assert len(page.rows) == limit if page.next is not None else len(page.rows) <= limit
        rows += page.rows
        after = page.next
        if after is None:
            break
    assert rows == [(key_from(key), expected[key]) for key in sorted(expected)]


def run(scenario: Scenario, steps: int) -> None:
    actions = [scenario.ingest, scenario.ingest, scenario.ingest_again, scenario.fold, scenario.begin_again]
    for _ in range(steps):
        scenario.draw(st.sampled_from(actions))()
        scenario.check()


def judged_end(scenario: Scenario) -> None:
    rows = scenario.finish()
    expected = scenario.judge.snapshots()
    assert rows.keys() == {stores.ROW + key for key in expected}
    for key, columns in expected.items():
        opened = scenario.table._columns.decode_snapshot(key, rows[stores.ROW + key])
        assert [*opened.columns, *[b""] * (len(COLUMNS) - len(opened.columns))] == columns
        newest = max(each.packed()[1] for each in scenario.judge.events.values() if key_bytes(each.key) == key)
        assert opened.newest == newest
    # The same in one run, folded at once: the same bytes.
    disk = Disk()
    plain = OwnTable(TABLE, MemoryStore(disk))
    if scenario.judge.events:
        path = scenario.directory / "plain.run"
        write_memory_run(path, [batch_of(scenario.judge.events.values())], b"0000")
        plain.ingest([path], b"0000")
    plain.fold(LAST + 9, LAST + 9)
    assert dump(plain) == rows


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "STEP_FOLDED", 2)
    monkeypatch.setattr(fold, "STEP_READ", 4)
    monkeypatch.setattr(fold, "WRITTEN_FOLDED", 3)


@contextmanager
def room() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="hayase-test-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


@settings(max_examples=examples(60))
@given(st.data())
def test_any_order_repetition_and_fold_gives_what_the_events_come_to(data: st.DataObject) -> None:
    with room() as directory:
        disk = Disk()
        scenario = Scenario(
            directory, lambda: OwnTable(TABLE, MemoryStore(disk)), write_memory_run, data.draw, data.draw(event_lists())
        )
        run(scenario, data.draw(st.integers(1, 10)))
        judged_end(scenario)


@settings(max_examples=examples(60))
@given(st.data())
def test_a_crash_at_any_step_changes_no_answer(data: st.DataObject) -> None:
    with room() as directory:
        disk = Disk(crashes=data.draw(st.lists(st.integers(1, 60), min_size=1, max_size=12)))
        scenario = Scenario(
            directory, lambda: OwnTable(TABLE, MemoryStore(disk)), write_memory_run, data.draw, data.draw(event_lists())
        )
        run(scenario, data.draw(st.integers(1, 10)))
        judged_end(scenario)


@settings(max_examples=examples(12))
@given(st.data())
def test_rocksdb_does_as_the_store_in_memory(data: st.DataObject) -> None:
    with room() as directory:
        opened: list[OwnTable] = []

        def reopen() -> OwnTable:
            if opened:
                opened.pop().close()
            opened.append(open_own(directory / "users", TABLE))
            return opened[-1]

        scenario = Scenario(directory, reopen, stores.write_run, data.draw, data.draw(event_lists()))
        reader = open_reader(directory / "users", TABLE)
        try:
            for _ in range(data.draw(st.integers(1, 3))):
                run(scenario, data.draw(st.integers(1, 4)))
                reader.refresh()
                check(reader, scenario.judge, data.draw)
                if data.draw(st.booleans()):
                    scenario.table = reopen()
            judged_end(scenario)
            reader.refresh()
            check(reader, scenario.judge, data.draw)
        finally:
            reader.close()
            opened.pop().close()


# ---------------------------------------------------------------------------------------------------- keys


@settings(max_examples=examples(50))
@given(st.data())
def test_a_scan_of_a_prefix_is_a_filter(data: st.DataObject) -> None:
    keys = data.draw(st.lists(any_key, max_size=12, unique_by=key_bytes))
    folded = data.draw(st.integers(0, len(keys)))
    with room() as directory:
        table = OwnTable(TABLE, MemoryStore(Disk()))
        for at, part in enumerate((keys[:folded], keys[folded:])):
            if part:
                path, marker = directory / f"{at}.run", b"%d" % at
                write_memory_run(path, [batch_of(Event(key, at, "a", 0, ((0, 0, None, 1),)) for key in part)], marker)
                table.ingest([path], marker)
        table.fold(1, 1)
        some = st.sampled_from([part for key in keys for part in key]) if keys else scalars
        prefix = data.draw(st.lists(some | scalars, max_size=2))
        text = data.draw(
            st.none() | texts | some.filter(lambda part: isinstance(part, str)).map(lambda part: str(part)[:1])
        )
        text = None if len(prefix) == 2 else text

        def within(key: tuple[Any, ...]) -> bool:
            first = key_bytes(key[: len(prefix)]) == key_bytes(prefix)
            following = key[len(prefix)] if len(prefix) < 2 else None
            return first and (text is None or (isinstance(following, str) and following.startswith(text)))

        rows, after, limit = [], None, data.draw(st.integers(1, 5))
        while True:
            page = table.scan(prefix, text_prefix=text, after=after, limit=limit)
            rows += page.rows
            after = page.next
            if after is None:
                break
        expected = sorted(key_bytes(key) for key in keys if within(key))
        assert [key_bytes(key) for key, _ in rows] == expected
        assert {repr(row["total"]) for _, row in rows} <= {"1"}


@settings(max_examples=examples(30))
@given(event_lists())
def test_columns_pack_as_rows_do(events: list[Event]) -> None:
    """`pack_columns` with a column for each place in an event's updates of the same kind is `pack`."""
    packed = [event.packed() for event in events]
    heads = sorted({(at, number) for event in events for at, number, *_ in event.updates})
    keys, stamps = [key for key, _, _ in packed], [version for _, version, _ in packed]
    columns: list[entries.UpdateColumn] = []
    ordered: list[list[tuple[int, bytes, bytes]]] = [[] for _ in packed]
    for at, number in heads:
        deltas: list[bytes | None] = [None] * len(packed)
        for row, (_, _, updates) in enumerate(packed):
            for place, update, delta in updates:
                if (place, update) == (at, versions.update_number_bytes(number)) and deltas[row] is None:
                    deltas[row] = delta
                    ordered[row].append((place, update, delta))
        columns.append(entries.UpdateColumn(at, number, deltas))
    one, other = entries.pack(keys, stamps, ordered), entries.pack_columns(keys, stamps, columns)
    assert one.equals(other)
    for row, value in enumerate(one["value"].to_pylist()):
        assert entries.updates_of(value) == ordered[row]
        assert entries.split(one["entry"][row].as_py(), value) == (keys[row], stamps[row])
    assert entries.many_key_bytes([event.key for event in events]) == keys
