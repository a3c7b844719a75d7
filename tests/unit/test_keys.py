"""Keys: what the encoding is, byte by byte, the hash for ever, the index under collisions."""

from __future__ import annotations

import decimal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from hayase.core.errors import DeclarationError
from hayase.core.keys import EncodedKeys, KeyIndex, buckets, check_key_type, encode, hashes, split


def rows_of(encoded: EncodedKeys) -> list[bytes]:
    return [
        encoded.data[start:stop].tobytes()
        for start, stop in zip(encoded.offsets.tolist(), encoded.offsets[1:].tolist())
    ]


def one(value: object, kind: pa.DataType) -> bytes:
    (row,) = rows_of(encode([pa.array([value], kind)]))
    return row


def test_encoding_of_each_type_is_written_down() -> None:
    assert one(True, pa.bool_()) == one(1, pa.int8()) == one(1, pa.int64()) == bytes.fromhex("0100000000000000")
    assert one(-2, pa.int16()) == one(-2, pa.int64()) == bytes.fromhex("feffffffffffffff")
    assert one(1.5, pa.float32()) == one(1.5, pa.float64()) == bytes.fromhex("000000000000f83f")
    assert one(-0.0, pa.float64()) == one(0.0, pa.float64()) == bytes(8)
    assert one(decimal.Decimal("-1.5"), pa.decimal128(5, 1)) == (-15).to_bytes(16, "little", signed=True)
    assert one("abcde", pa.string()) == one(b"abcde", pa.binary()) == b"\5\0\0\0abcde" + bytes(7)
    assert one("", pa.string()) == bytes(8)
    assert one(None, pa.string()) == bytes.fromhex("ffffffff00000000")
    assert one(None, pa.int64()) == bytes(8) + bytes.fromhex("0100000000000000")
    assert one(3, pa.date32()) == one(3, pa.timestamp("us", tz="UTC")) == one(3, pa.int64())


def test_encoding_of_nested_types_is_written_down() -> None:
    assert one({"a": -2, "b": "x"}, pa.struct([("a", pa.int64()), ("b", pa.string())])) == (
        b"\x10\0\0\0" + one(-2, pa.int64()) + one("x", pa.string()) + bytes(4)
    )
    numbers = pa.list_(pa.int32())
    assert one([], numbers) == b"\x08\0\0\0" + bytes(12)
    parts = (2, 8, 16)
    assert one([7, None], numbers) == b"\x30\0\0\0" + b"".join(each.to_bytes(8, "little") for each in parts) + one(
        7, pa.int64()
    ) + one(None, pa.int64()) + bytes(4)
    assert one(None, numbers) == one(None, pa.string())


def test_other_forms_of_text_are_the_same_key() -> None:
    plain = rows_of(encode([pa.array(["a", None, "bcdefghijklmnop"])]))
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()), pa.large_binary()):
        assert rows_of(encode([pa.array(["a", None, "bcdefghijklmnop"]).cast(kind)])) == plain
    assert one(b"abcd", pa.binary(4)) == one("abcd", pa.string())


def test_nan_is_one_key_whatever_its_bits() -> None:
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], np.uint64)
    assert len(set(rows_of(encode([pa.array(bits.view(np.float64))])))) == 1


def test_slices_encode_like_copies() -> None:
    columns = [
        pa.array([1, None, 3, 4]),
        pa.array(["a", "bb", None, "dddddddddd"]),
        pa.array([None, True, False, True]),
        pa.array([None, decimal.Decimal(1), decimal.Decimal(2), None], pa.decimal128(9, 2)),
    ]
    whole = rows_of(encode(columns))
    assert rows_of(encode([column.slice(1, 3) for column in columns])) == whole[1:]
    for column in columns:
        assert rows_of(encode([column.slice(2)])) == rows_of(encode([column]))[2:]


def test_unaligned_buffers_are_taken() -> None:
    raw = pa.py_buffer(b"\0" + np.arange(4, dtype=np.int64).tobytes()).slice(1)
    column = pa.Array.from_buffers(pa.int64(), 4, [None, raw])
    assert rows_of(encode([column])) == rows_of(encode([pa.array(range(4))]))


def test_no_columns_is_the_empty_key_and_no_rows_are_fine() -> None:
    assert rows_of(encode([], rows=3)) == [b"", b"", b""]
    assert rows_of(encode([pa.array([], pa.string())])) == []
    assert rows_of(encode([pa.array([], pa.int64())])) == []


@pytest.mark.parametrize(
    "kind", [pa.map_(pa.string(), pa.int64()), pa.null(), pa.list_(pa.null()), pa.struct([("a", pa.list_(pa.null()))])]
)
def test_other_types_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(DeclarationError, match=r"cannot be a key; use its atomic parts"):
        check_key_type(kind)
    with pytest.raises(DeclarationError, match="cannot be a key"):
        encode([pa.array([None], kind)])


def test_too_many_key_columns_are_refused() -> None:
    with pytest.raises(DeclarationError, match="65 key columns are too many"):
        encode([pa.array([1])] * 65)


def test_hash_is_xxh64_and_golden() -> None:
    texts = ["x" * length for length in range(80)]
    encoded = encode([pa.array(texts), pa.array(range(80))])
    assert hashes(encoded).tolist() == [xxhash.xxh64_intdigest(row) for row in rows_of(encoded)]
    # State on disk lies where these say; if this test fails, the code is wrong, not the numbers.
    golden = encode([pa.array([0, 1, -1, None]), pa.array(["", "hayase", None, "早瀬 the rapids, and on and on"])])
    assert hashes(golden).tolist() == GOLDEN_HASHES
    assert buckets([pa.array(range(12))], 8).tolist() == GOLDEN_BUCKETS


GOLDEN_HASHES = [12612883901365648434, 11831310802246810137, 11388144029772859212, 5476882055331226007]
GOLDEN_BUCKETS = [1, 4, 7, 4, 1, 4, 4, 0, 7, 5, 0, 3]


def test_split_without_keys_or_with_one_bucket_copies_nothing() -> None:
    batch = pa.record_batch({"a": [1, 2, 3]})
    assert split(batch, ["a"], 1)[0][1] is batch
    assert split(batch, [], 8) == [(0, batch)]
    assert split(batch.slice(0, 0), ["a"], 8) == []


def test_index_keeps_keys_apart_whose_hashes_collide() -> None:
    names = [f"key {number % 50}" for number in range(200)]
    encoded = encode([pa.array(names)])
    for same in (0, 2**64 - 1, 0xDEADBEEF00000000):
        index = KeyIndex()
        assert index.slots(encoded, np.full(200, same, np.uint64)).tolist() == [number % 50 for number in range(200)]
        assert index.slots(encoded, np.full(200, same, np.uint64), insert=False).tolist() == list(range(50)) * 4
        stranger = encode([pa.array(["key 50"])])
        assert index.slots(stranger, np.full(1, same, np.uint64), insert=False).tolist() == [-1]
        assert len(index) == 50


def test_index_grows_and_takes_a_key_larger_than_its_arena() -> None:
    index = KeyIndex()
    long = encode([pa.array(["y" * 1_000_000, "z" * 3_000_000, "y" * 1_000_000])])
    assert index.slots(long, hashes(long)).tolist() == [0, 1, 0]
    many = encode([pa.array(np.arange(100_000)[::-1].copy())])
    assert index.slots(many, hashes(many)).tolist() == list(range(2, 100_002))
    assert index.slots(many, hashes(many), insert=False).tolist() == list(range(2, 100_002))
    assert len(index) == 100_002
    assert index.nbytes < 20_000_000


@pytest.mark.parametrize("single", [True, False])
def test_an_index_whose_keys_come_and_go_does_not_grow(single: bool) -> None:
    index = KeyIndex()
    for number in range(200):
        names = np.arange(1000 * number, 1000 * number + 2000)
        texts = [pa.array([f"a text of some length {name}" for name in names])]
        encoded = encode([pa.array(names), *(() if single else texts)])
        assert encoded.single == single
        slots = index.slots(encoded, hashes(encoded))
        assert index.encoded(slots).data.tolist() == encoded.data.tolist()
        index.drop(slots[:1000])
        assert len(index) == 1000
    assert index.capacity == 2000
    assert index.nbytes < 400_000


def test_an_index_of_single_words_takes_other_keys_later() -> None:
    index = KeyIndex()
    numbers = encode([pa.array(range(100))])
    slots = index.slots(numbers, hashes(numbers))
    index.drop(slots[10:20])
    texts = encode([pa.array([f"text {number}" for number in range(30)])])
    mixed = index.slots(texts, hashes(texts))
    assert sorted(mixed.tolist()) == [*range(10, 20), *range(100, 120)]
    left = np.r_[0:10, 20:100]
    assert index.slots(numbers, hashes(numbers), insert=False)[left].tolist() == left.tolist()
    assert index.slots(numbers, hashes(numbers), insert=False)[10:20].tolist() == [-1] * 10
    assert index.encoded(mixed).data.tolist() == texts.data.tolist()
    index.keep(mixed[::2])
    assert index.slots(texts, hashes(texts), insert=False)[::2].tolist() == list(range(15))


def test_an_index_of_keys_keeps_the_ones_it_is_told() -> None:
    index = KeyIndex()
    texts = [f"key {number} " * (number % 7) for number in range(3000)]
    encoded = encode([pa.array(range(3000)), pa.array(texts)])
    index.slots(encoded, hashes(encoded))
    some = np.arange(2999, 0, -3)
    index.keep(some)
    found = index.slots(encoded, hashes(encoded), insert=False)
    assert found[some].tolist() == list(range(len(some)))
    assert np.count_nonzero(found >= 0) == len(index) == len(some)
    assert len(np.unique(index.slots(encoded, hashes(encoded)))) == 3000
    index.keep(np.empty(0, np.int64))
    assert len(index) == 0
    assert index.slots(encoded, hashes(encoded)).tolist() == list(range(3000))


def test_checking_a_type_does_not_load_the_compiler() -> None:
    program = "import sys, hayase.core.keys, hayase.lifetimes.kernel; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
