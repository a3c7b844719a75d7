"""Laws of keys: equal bytes exactly for equal keys, the index is a dict, the split a stable permutation, dealing is even."""

from __future__ import annotations

import math
from datetime import UTC
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hayase.core.keys import KeyIndex, buckets, deal, decode, encode, hashes, split

KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-3, 3),
    pa.int64(): st.integers(-2, 2) | st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.sampled_from([0.0, -0.0, math.nan, -math.nan, math.inf, 1.0]) | st.floats(),
    pa.float32(): st.floats(width=32),
    pa.decimal128(20, 2): st.decimals(-1000, 1000, places=2),
    pa.string(): st.sampled_from(["", "a", "\0", "a\0", "aaaa", "aaaaa"]) | st.text(st.characters(codec="utf-8")),
    pa.binary(): st.sampled_from([b"", b"\0", b"\0" * 8]) | st.binary(max_size=40),
    pa.date32(): st.dates(),
    pa.timestamp("us", tz="UTC"): st.datetimes().map(lambda time: time.replace(tzinfo=UTC)),
}


FLOATS = st.none() | st.sampled_from([0.0, -0.0, math.nan, 1.5])
TEXTS = st.none() | st.sampled_from(["", "a", "\0", "a longer text"])
KINDS |= {
    pa.list_(pa.int64()): st.lists(st.none() | st.integers(0, 2), max_size=3),
    pa.list_(pa.string()): st.lists(TEXTS, max_size=3),
    pa.struct([("a", pa.float64()), ("b", pa.string())]): st.builds(dict, a=FLOATS, b=TEXTS),
    pa.list_(pa.struct([("a", pa.list_(pa.float64()))])): st.lists(
        st.none() | st.builds(dict, a=st.none() | st.lists(FLOATS, max_size=2)), max_size=2
    ),
}

# the first example loads compiled loops
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def keys(draw: st.DrawFn, most: int = 30) -> list[pa.Array]:
    kinds = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=3))
    row = st.tuples(*(st.none() | KINDS[kind] for kind in kinds))
    rows = draw(st.lists(row, max_size=most))
    again = draw(st.lists(st.sampled_from(rows), max_size=most)) if rows else []
    rows += again
    return [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]


def sql_value(value: Any) -> Any:
    """A value that is equal, in Python, exactly where SQL calls keys equal."""
    if isinstance(value, list | dict):
        return type(value), tuple(map(sql_value, value if isinstance(value, list) else value.values()))
    return "nan" if isinstance(value, float) and math.isnan(value) else (value,)


def plain(columns: list[pa.Array]) -> list[Any]:
    return list(zip(*([sql_value(value) for value in column.to_pylist()] for column in columns)))


@given(keys(), st.data())
@untimed
def test_keys_are_decoded_as_they_were_encoded(columns: list[pa.Array], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(columns[0])))
    columns = [column.slice(first) for column in columns]
    decoded = decode(encode(columns), [column.type for column in columns])
    assert [column.type for column in decoded] == [column.type for column in columns]
    assert plain(decoded) == plain(columns)
    for column in decoded:
        column.validate(full=True)


@given(keys())
@untimed
def test_bytes_are_equal_exactly_if_keys_are(columns: list[pa.Array]) -> None:
    encoded = encode(columns)
    rows = [encoded.data[start:stop].tobytes() for start, stop in zip(encoded.offsets, encoded.offsets[1:])]
    expected = plain(columns)
    assert len(set(rows)) == len(set(expected)) == len(set(zip(rows, expected)))
    assert len(set(hashes(encoded).tolist())) == len(set(rows))


@given(keys(), st.data())
@untimed
def test_a_row_encodes_the_same_in_any_company(columns: list[pa.Array], data: st.DataObject) -> None:
    count = len(columns[0])
    first = data.draw(st.integers(0, count))
    length = data.draw(st.integers(0, count - first))
    part = hashes(encode([column.slice(first, length) for column in columns]))
    assert part.tolist() == hashes(encode(columns)).tolist()[first : first + length]


@given(keys(), st.integers(1, 9), st.integers(0, 3), st.booleans())
@untimed
def test_index_is_a_dict(columns: list[pa.Array], step: int, bits: int, insert: bool) -> None:
    """Also when only a few bits of the hashes are left, so that most of them collide."""
    index, model = KeyIndex(), dict[Any, int]()
    expected = plain(columns)
    for first in range(0, len(expected), step):
        encoded = encode([column.slice(first, step) for column in columns])
        hashed = hashes(encoded) & np.uint64((2**bits - 1) << 31 if bits else 2**64 - 1)
        chunk = expected[first : first + step]
        if insert or first == 0:
            assert index.slots(encoded, hashed).tolist() == [model.setdefault(key, len(model)) for key in chunk]
        else:
            assert index.slots(encoded, hashed, insert=False).tolist() == [model.get(key, -1) for key in chunk]
        assert len(index) == len(model)


@given(keys(), st.integers(1, 9), st.integers(0, 3), st.data())
@untimed
def test_an_index_that_drops_keys_is_a_dict_with_slots_used_again(
    columns: list[pa.Array], step: int, bits: int, data: st.DataObject
) -> None:
    """Whatever is dropped and comes again, in whatever order; all others keep their slots and their bytes."""
    index, model = KeyIndex(), dict[Any, int]()
    expected = plain(columns)
    most = 0
    for first in range(0, len(expected), step):
        encoded = encode([column.slice(first, step) for column in columns])
        hashed = hashes(encoded) & np.uint64((2**bits - 1) << 31 if bits else 2**64 - 1)
        chunk = expected[first : first + step]
        assert index.slots(encoded, hashed, insert=False).tolist() == [model.get(key, -1) for key in chunk]
        slots = index.slots(encoded, hashed).tolist()
        for key, slot in zip(chunk, slots):
            assert model.setdefault(key, slot) == slot
        assert len(set(model.values())) == len(model) == len(index)
        most = max(most, len(model))
        assert index.capacity == most
        again = index.encoded(np.array(slots, np.int64))
        assert (again.data.tolist(), again.offsets.tolist()) == (encoded.data.tolist(), encoded.offsets.tolist())
        dropped = data.draw(st.lists(st.sampled_from(list(model)), unique=True)) if model else []
        index.drop(np.array([model.pop(key) for key in dropped], np.int64))


@given(keys(), st.integers(1, 20))
@untimed
def test_split_is_a_stable_permutation_by_bucket(columns: list[pa.Array], count: int) -> None:
    names = [f"k{at}" for at in range(len(columns))]
    rows = len(columns[0])
    batch = pa.RecordBatch.from_arrays([*columns, pa.array(range(rows), pa.int64())], [*names, "at"])
    expected: dict[int, list[int]] = {}
    for at, bucket in enumerate(buckets(columns, count).tolist()):
        assert 0 <= bucket < count
        expected.setdefault(bucket, []).append(at)
    parts = split(batch, names, count)
    assert [(bucket, part.column("at").to_pylist()) for bucket, part in parts] == sorted(expected.items())
    for _, part in parts:
        taken = batch.take(part.column("at"))
        assert [plain([column]) for column in part.columns] == [plain([column]) for column in taken.columns]


@given(st.integers(0, 300), st.integers(0, 2**62), st.integers(1, 20))
@untimed
def test_dealing_is_even_and_keeps_the_order(rows: int, start: int, count: int) -> None:
    parts = deal(pa.record_batch({"at": np.arange(rows)}), start, count)
    dealt = [part.column("at").to_pylist() for _, part in parts]
    assert sorted(at for part in dealt for at in part) == list(range(rows))
    assert all(part == sorted(part) for part in dealt)
    assert [bucket for bucket, _ in parts] == sorted({bucket for bucket, _ in parts})
    sizes = [len(part) for part in dealt] + [0] * (count - len(parts))
    assert max(sizes) - min(sizes) <= 1
    if rows:
        ((first, _),) = deal(pa.record_batch({"at": [0]}), start, count)
        assert first == start % count, "single rows with consecutive starts fill all buckets"


@given(st.integers(2, 8), st.integers(0, 100))
@untimed
def test_rows_that_recur_at_regular_intervals_are_dealt_to_all_buckets(count: int, start: int) -> None:
    rows = np.arange(count * 200)
    regular = [np.count_nonzero(part.column("at").to_numpy() % count == 0) for _, part in deal(
        pa.record_batch({"at": rows}), start, count
    )]  # fmt: skip
    assert sum(regular) == 200
    assert max(regular) <= 2 * 200 / count
