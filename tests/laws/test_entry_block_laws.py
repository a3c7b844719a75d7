"""Laws of folds by compiled loops: rows of many entries are what the methods of their column types make of each row by itself, the
same values or the same error, also where bytes are damaged."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.core.declarations import TableDeclaration
from hayase.tables import TYPES, entries, entry_blocks, store_reader, versions
from hayase.tables.entries import key_bytes
from hayase.tables.payloads import DamagedPayload, value_bytes
from hayase.tables.rows import Columns, RowSnapshot
from hayase.tables.stores import PAYLOAD

KINDS = ["Counter", "Register", "MapCounter", "MinRegister", "MaxRegister", "MapRegister", "ORSet", "LWWSet"]
TABLE = TableDeclaration("users", ("user",), tuple((kind.lower(), kind) for kind in KINDS))
TYPES_OF_COLUMNS = [TYPES[kind]() for kind in KINDS]
COLUMNS = Columns(TABLE)

numbers = (
    st.integers(-300, 300)
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([2**61, -(2**61), 2**63 - 1, 2**53 + 1, 0, -1, 127, 128, -128, -129])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(-1000, 1000, places=3)
    | st.sampled_from([0.1, Decimal("1e-14"), Decimal("1e-17"), Decimal("1e40"), 1e70, 1e-31])
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4) | st.sampled_from(["", "a", "\0", "\1", "é"])
plain = numbers | texts | st.booleans()
values = plain | st.none() | st.lists(plain, max_size=2)
maps = st.dictionaries(texts, numbers, max_size=3)
PARAMETERS: dict[str, st.SearchStrategy[Any]] = {
    "Counter": numbers, "Register": values, "MapCounter": maps, "MinRegister": plain, "MaxRegister": plain,
    "MapRegister": maps, "ORSet": plain, "LWWSet": plain,
}  # fmt: skip
ids: st.SearchStrategy[str | int] = st.sampled_from(["a", "b", "0b8f7a6e-91c2-4d5e-8f10-2a3b4c5d6e7f"]) | st.integers(
    1, 2
)


@st.composite
def updates_of_an_event(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, bytes, bytes]]]:
    version = versions.to_bytes(draw(st.integers(0, 3)), draw(ids), draw(st.integers(0, 2)))
    made = []
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(KINDS) - 1))
        number = versions.update_number_bytes(draw(st.sampled_from([0, 1, 239, 240, 300, 65_536])))
        made.append((place, number, TYPES_OF_COLUMNS[place].payload(None, draw(PARAMETERS[KINDS[place]]))))
    return version, made


@st.composite
def stored_rows(draw: st.DrawFn) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Keys, and entries with their values in the order of a store."""
    keys = draw(st.lists(texts | st.integers(-2, 2), min_size=1, max_size=4, unique_by=value_bytes))
    packed: dict[bytes, bytes] = {}
    for key in keys:
        events = draw(st.lists(updates_of_an_event(), min_size=1, max_size=6))
        batch = entries.pack([key_bytes((key,))] * len(events), *zip(*events))
        packed |= dict(zip(batch["entry"].to_pylist(), batch["value"].to_pylist()))
    stored = sorted(packed)
    return sorted(key_bytes((key,)) for key in keys), [PAYLOAD + entry for entry in stored], [packed[e] for e in stored]


def outcome(read: Any) -> Any:
    """The values with their types, or the text of the error."""
    try:
        return repr(read())
    except DamagedPayload as error:
        return str(error)


@pytest.fixture(autouse=True)
def loops_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_blocks, "COMPILED_ENTRIES", 1)


def compare(keys: list[bytes], snapshots: list[RowSnapshot], block: entry_blocks.EntryBlock) -> None:
    places = range(len(KINDS))

    def one_by_one() -> list[dict[str, Any]]:
        rows = zip(keys, snapshots, range(len(keys)))
        return [COLUMNS.read(key, snapshot, block.entries(row), places) for key, snapshot, row in rows]

    assert outcome(lambda: COLUMNS.read_rows(keys, snapshots, block, places)) == outcome(one_by_one)
    rows = [(key, snapshot, block.entries(row)) for row, (key, snapshot) in enumerate(zip(keys, snapshots))]
    alone = [outcome(lambda row=row: COLUMNS.fold(*row)) if row[2] else repr(None) for row in rows]
    assert [str(each) if isinstance(each, DamagedPayload) else repr(each) for each in COLUMNS.fold_rows(rows)] == alone


@settings(max_examples=examples(150))
@given(stored_rows(), st.data())
def test_many_rows_are_each_of_them(rows: tuple[list[bytes], list[bytes], list[bytes]], data: st.DataObject) -> None:
    keys, stored, values = rows
    block = entry_blocks.EntryBlock.of(stored, values)
    assert [stored[start][1:cut] for start, cut in zip(block.starts, block.cuts)] == keys
    none = COLUMNS.decode_snapshot(keys[0], None)
    snapshots, kept = [], []
    for row, key in enumerate(keys):  # some of the first entries are in a snapshot
        folded = data.draw(st.integers(0, block.count(row)))
        snapshot = COLUMNS.fold(key, none, block.entries(row)[:folded]) if folded else None
        snapshots.append(COLUMNS.decode_snapshot(key, snapshot))
        kept += [at >= folded for at in range(block.count(row))]
    compare(keys, snapshots, block.where(kept))


@settings(max_examples=examples(150))
@given(stored_rows(), st.data())
def test_damaged_bytes_are_found_as_in_each_row(
    rows: tuple[list[bytes], list[bytes], list[bytes]], data: st.DataObject
) -> None:
    keys, stored, values = rows
    block = entry_blocks.EntryBlock.of(stored, values)
    at = data.draw(st.integers(0, len(values) - 1))
    value = bytearray(values[at])
    for _ in range(data.draw(st.integers(1, 2))):
        if len(value) > 2:
            place = data.draw(st.integers(2, len(value) - 1))
            value[place : place + data.draw(st.integers(0, 1))] = data.draw(st.binary(max_size=2))
    damaged = [*values[:at], bytes(value), *values[at + 1 :]]
    none = COLUMNS.decode_snapshot(keys[0], None)
    compare(keys, [none] * len(keys), entry_blocks.EntryBlock(stored, damaged, block.starts, block.cuts))


class View:
    """The least of a store that a scan needs."""

    def __init__(self, data: dict[bytes, bytes]):
        self.data = data

    def scan(self, start: bytes, stop: bytes) -> Any:
        return iter([(key, self.data[key]) for key in sorted(self.data) if start <= key < stop])


@settings(max_examples=examples(100))
@given(stored_rows(), st.sets(texts, max_size=4), st.integers(1, 8))
def test_blocks_have_all_keys_in_order(
    rows: tuple[list[bytes], list[bytes], list[bytes]], others: set[str], most: int
) -> None:
    keys, stored, values = rows
    with_snapshots = sorted({key_bytes((other,)) for other in others} | set(keys[::2]))
    data = dict(zip(stored, values)) | {b"z" + key: b"s" + key for key in with_snapshots}
    expected = sorted({*keys, *with_snapshots})
    if len(with_snapshots) >= most:
        expected = [key for key in expected if key <= with_snapshots[most - 1]]
    found = []
    for some, snapshots, block in store_reader.blocks_in_range(View(data), b"", None, most):  # type: ignore[arg-type]
        for row, (key, snapshot) in enumerate(zip(some, snapshots)):
            found.append(key)
            assert snapshot == (b"s" + key if key in with_snapshots[:most] else None)
            assert block.entries(row) == [(e[1 + len(key) :], data[e]) for e in stored if e.startswith(b"p" + key)]
    assert found == expected
