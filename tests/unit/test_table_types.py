"""The column types: what they take, what they refuse and why, what their bytes are, and what damage is noticed."""

from __future__ import annotations

import math
import pickle
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hayase.core.errors import DeclarationError, UnknownName
from hayase.tables import (
    TYPES,
    Counter,
    DamagedPayload,
    DistinctCount,
    GSet,
    LWWSet,
    MapCounter,
    MapRegister,
    MaxRegister,
    MinRegister,
    ORSet,
    Quantiles,
    Register,
    TwoPhaseSet,
    UnfitParameter,
    versions,
)
from hayase.tables.payloads import LARGEST, json_bytes, value_bytes, value_from
from hayase.tables.types import ColumnType

UUID = "0b8f7a6e-91c2-4d5e-8f10-2a3b4c5d6e7f"
FITTING: dict[str, Any] = {"MapCounter": {"a": 1.5}, "MapRegister": {"a": "x"}, "MapSet": {"a": ["x", None]}}


def payloads(kind: ColumnType[Any], *updates: Any) -> list[tuple[bytes, bytes]]:
    """Operations in the order of their time: a parameter, or a method and a parameter."""
    named = [each if isinstance(each, tuple) else (None, each) for each in updates]
    return [(versions.to_bytes(at, UUID), kind.payload(*each)) for at, each in enumerate(named)]


def value(kind: ColumnType[Any], *updates: Any) -> Any:
    return kind.value(kind.fold(None, payloads(kind, *updates)))


def nested(depth: int) -> Any:
    inner: Any = 1
    for _ in range(depth):
        inner = [inner]
    return inner


# ---------------------------------------------------------------------------------------------------- meaning


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Counter", 0), ("Register", None), ("MinRegister", None), ("MaxRegister", None), ("GSet", []),
     ("TwoPhaseSet", []), ("ORSet", []), ("LWWSet", []), ("MapCounter", {}), ("MapRegister", {}), ("MapSet", {}),
     ("DistinctCount", 0),
     ("Quantiles", {"count": 0, "min": None, "max": None, "p50": None, "p90": None, "p99": None})],
)  # fmt: skip
def test_before_all_payloads(name: str, expected: Any) -> None:
    kind = TYPES[name]()
    nothing = kind.fold(None, [])
    assert kind.value(nothing) == kind.read(None, []) == expected
    some = kind.fold(None, payloads(kind, FITTING.get(name, 3)))
    assert (
        kind.merge(nothing, some)
        == kind.merge(some, nothing)
        == kind.fold(nothing, payloads(kind, FITTING.get(name, 3)))
    )


def test_types_are_values_with_names_methods_and_tags_of_their_own() -> None:
    assert len({kind.tag for kind in TYPES.values()}) == len(TYPES) == 13
    for name, kind in TYPES.items():
        assert kind().name == name
        assert kind() == pickle.loads(pickle.dumps(kind()))
        assert kind().method(None) == kind.methods[0]
        fitting = FITTING.get(name, 3)
        assert kind().payload(None, fitting) == kind().payload(kind.methods[0], fitting)


@pytest.mark.parametrize(
    ("increments", "expected"),
    [([0.1] * 10, 1), ([0.1, 0.2], 0.3), ([1, -3], -2), ([Decimal("0.10"), 0.9], 1), ([2**63 - 1, 1, -1], 2**63 - 1),
     ([2**63 - 1, 1], Decimal(2**63)), ([1e22, 1, -1e22], 1), ([5e-324, 1e308, -1e308], 5e-324), ([-0.0], 0),
     ([Decimal("12345678901234567890.5"), 1], Decimal("12345678901234567891.5")), ([10**300] * 2, 2e300)],
)  # fmt: skip
def test_counters_are_exact(increments: list[Any], expected: Any) -> None:
    found = value(Counter(), *increments)
    assert found == expected
    assert type(found) is type(expected)
    assert value(MapCounter(), *({"a": each} for each in increments)) == {"a": expected}


def test_registers() -> None:
    assert value(Register(), "a", "b", None) is None
    assert value(Register(), {"b": [1, 2.50], "a": None}) == {"a": None, "b": [1, 2.5]}
    assert value(MinRegister(), 10, 9, "1", True) is True
    assert value(MaxRegister(), 10, 9, "1", True) == "1"
    assert value(MaxRegister(), "a", "ä", "b") == "ä"
    assert value(MinRegister(), -10, -9.99, Decimal("-10.001"), 5) == -10.001


def test_ties_are_broken_by_id_then_by_operation() -> None:
    register = Register()
    written = [(5, "a", 9), (5, "b", 0), (5, "b", 1), (4, "z", 0)]
    found = [(versions.to_bytes(*version), register.payload("set", list(version))) for version in written]
    for _ in range(5):
        random.shuffle(found)
        assert register.read(None, found) == [5, "b", 1]


def test_sets() -> None:
    assert value(GSet(), "b", 1, 1.0, Decimal("1.00"), "a", None) == [None, 1, "a", "b"]
    come_and_go = [("add", 1), ("remove", 1), ("add", 1), ("add", 2), ("remove", 2), ("remove", 3)]
    assert value(TwoPhaseSet(), *come_and_go) == []
    assert value(ORSet(), *come_and_go) == [1]
    assert value(TwoPhaseSet(), ("remove", 3), ("add", 3), ("add", 4)) == [4]
    assert value(ORSet(), ("remove", 3), ("add", 3), ("add", 4)) == [3, 4]


def test_a_late_addition_does_not_undo_a_removal_that_was_folded() -> None:
    for kind in (ORSet(), TwoPhaseSet()):
        late, removal = payloads(kind, ("add", "x"), ("remove", "x"))
        assert kind.read(kind.fold(None, [removal]), [late]) == []


def test_maps() -> None:
    assert value(MapCounter(), {"b": 1, "a": 2}, {}, {"b": -1}) == {"a": 2, "b": 0}
    assert list(value(MapRegister(), {"b": 1}, {"\U0001f600": 1}, {"\uffff": 1}, {"a": 1})) == [
        "a", "b", "\uffff", "\U0001f600",
    ]  # fmt: skip
    assert value(TYPES["MapSet"](), {"a": [1]}, {"a": [1.0]}, {"a": 1}) == {"a": [1, [1]]}


def test_distinct_counts() -> None:
    assert value(DistinctCount(), 1, 1.0, "1", "", "", None, False, 0, [1], 1.5, Decimal("1.50")) == 8
    kind = DistinctCount()
    many = [(b"", kind.payload("add", f"user {at}")) for at in range(20_000)]
    found = kind.read(kind.fold(None, many[:300]), many[200:])
    assert abs(found - 20_000) < 20_000 * 0.05


def test_the_image_of_a_distinct_count_is_that_of_the_library() -> None:
    library = pytest.importorskip("datasketches")
    kind = DistinctCount()
    for count in (0, 1, 7, 8, 24, 25, 96, 97, 384, 385, 5000):
        ours = library.hll_union(12)
        ours.update(library.hll_sketch.deserialize(kind.image(kind.fold(None, payloads(kind, *range(count))))))
        theirs = library.hll_sketch(12)
        for each in range(count):
            theirs.update(each)
        union = library.hll_union(12)
        union.update(theirs)
        union.update(theirs)
        assert ours.get_estimate() == union.get_estimate()
        ours.update(theirs)
        assert ours.get_estimate() == union.get_estimate()


def test_quantiles() -> None:
    assert value(Quantiles(), 3, 1, 2) == {"count": 3, "min": 1, "max": 3, "p50": 2, "p90": 3, "p99": 3}
    assert value(Quantiles([0.999, 0, 0.07]), *range(100)) == {
        "count": 100, "min": 0, "max": 99, "p99.9": 99, "p0": 0, "p7": 6,
    }  # fmt: skip
    found = value(Quantiles([0.25, 0.5]), *range(-500, 501))
    assert (found["count"], found["min"], found["max"], found["p50"]) == (1001, -500, 500, 0)
    assert abs(found["p25"] + 250) <= 250 / 256


def test_quantiles_of_all_floats_stay_small() -> None:
    kind = Quantiles()
    source = random.Random(7)
    wide = [source.choice((-1, 1)) * 2.0 ** source.uniform(-1070, 1023.9) for _ in range(20_000)]
    snapshot = kind.fold(None, payloads(kind, *wide))
    assert len(snapshot) < 16_384
    assert kind.spread(snapshot).at(1) == [max(wide)]
    assert all(map(math.isfinite, kind.spread(snapshot).at(*(at / 100 for at in range(101)))))


# ---------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("name", "method", "parameter", "reason"),
    [("Counter", "incr", "5", "Counter.incr: cannot add a text; it takes a number"),
     ("Counter", "incr", True, "Counter.incr: cannot add a boolean; it takes a number"),
     ("Counter", "incr", None, "Counter.incr: cannot add null; it takes a number"),
     ("Counter", "incr", math.nan, "Counter.incr: a number is NaN"),
     ("Counter", "incr", -math.inf, "Counter.incr: a number is not finite"),
     ("Counter", "incr", Decimal("sNaN"), "Counter.incr: a number is NaN"),
     ("Counter", "incr", 10**500, "Counter.incr: a number is too large; at most 400 digits fit"),
     ("Counter", "incr", Decimal("1e999999"), "too large or too small"),
     ("Counter", "incr", Decimal("1e-999999"), "too large or too small"),
     ("Counter", "incr", Decimal("1." + "0" * 400 + "1"), "a number has 401 decimals; at most 400 fit"),
     ("Register", "set", "x" * LARGEST, "Register.set: a parameter of 65,538 bytes is too large; at most 65,536 fit"),
     ("Register", "set", "\ud800", "a text is not Unicode"),
     ("Register", "set", {1: 2}, "an object has a key that is not a text"),
     ("Register", "set", b"x", "a parameter is a bytes; it must be a JSON value"),
     ("Register", "set", [math.nan], "a number is NaN"),
     ("Register", "set", nested(101), "nested more than 100 deep"),
     ("MinRegister", "set", None, "null cannot be a minimum"),
     ("MapCounter", "add", 5, "MapCounter.add: cannot add a number to a map; it takes an object, {key: value}"),
     ("MapCounter", "add", {"a": "x"}, "MapCounter.add: cannot add a text; it takes a number"),
     ("MapSet", "add", {"a": "x" * 40_000, "b": "x" * 40_000}, "too large"),
     ("DistinctCount", "add", "\ud800", "a text is not Unicode"),
     ("Quantiles", "add", 10**309, "a number is too large for a 64-bit float"),
     ("Quantiles", "add", Decimal("sNaN"), "Quantiles.add: a number is NaN"),
     ("Quantiles", "add", math.inf, "Quantiles.add: a number is not finite"),
     ("Quantiles", "add", Decimal("1e390"), "a number is too large for a 64-bit float"),
     ("Quantiles", "add", [1], "Quantiles.add: cannot add an array; it takes a number")],
)  # fmt: skip
def test_a_parameter_that_does_not_fit_is_refused(name: str, method: str, parameter: Any, reason: str) -> None:
    with pytest.raises(UnfitParameter) as caught:
        TYPES[name]().payload(method, parameter)
    assert reason in str(caught.value)


def test_a_method_that_is_none_is_refused() -> None:
    with pytest.raises(UnknownName, match=r'unknown method "inc" of Counter; did you mean "incr"\?'):
        Counter().payload("inc", 1)
    with pytest.raises(UnknownName, match='unknown method "remove" of GSet'):
        GSet().payload("remove", 1)
    with pytest.raises(DeclarationError, match=r"1\.5 is not a fraction"):
        Quantiles([1.5])


@pytest.mark.parametrize(
    ("time", "id", "update", "reason"),
    [(2**63, "a", 0, "does not fit 64 bits"), (0, "", 0, "empty text"), (0, "x" * 1025, 0, "too long"),
     (0, True, 0, "an event id is a bool"), (0, 1.5, 0, "an event id is a float"), (0, 2**63, 0, "write it as a text"),
     (0, "\ud800", 0, "not Unicode"), (0, "a", -1, "no update number -1"), (0, "a", 2**32, "no update number")],
)  # fmt: skip
def test_a_version_that_cannot_be_is_refused(time: int, id: Any, update: int, reason: str) -> None:
    with pytest.raises(UnfitParameter, match=reason):
        versions.to_bytes(time, id, update)


def test_one_unfit_parameter_does_not_spoil_the_others() -> None:
    good, bad, other = Counter().payloads("incr", [1, "x", 2.5])
    assert (good, other) == (Counter().payload("incr", 1), Counter().payload("incr", 2.5))
    assert str(bad) == "Counter.incr: cannot add a text; it takes a number"


def test_an_id_that_only_looks_like_a_uuid_stays_a_text() -> None:
    for almost in (UUID.replace("-", "_"), UUID.replace("-", "0"), UUID.upper(), UUID[:-1] + "g"):
        (found,) = versions.many_to_bytes(np.array([1]), pa.array([almost]))
        assert found == versions.to_bytes(1, almost)
        assert versions.from_bytes(found).id == almost


def test_an_event_without_an_id_has_no_version() -> None:
    with pytest.raises(UnfitParameter, match="an event id is null"):
        versions.many_to_bytes(np.array([1, 2]), pa.array(["a", None]))


# ---------------------------------------------------------------------------------------------------- bytes


def test_the_bytes_are_these_for_ever() -> None:
    """Files hold them: a change here is a new format version."""
    assert Counter().payload("incr", 19.99).hex() == "4311821007cf"
    assert Register().payload("set", [None, -12.5, "ü"]).hex() == "5211f20156ecaefff1c3bc0000"
    assert LWWSet().payload("remove", {"a": 7}).hex() == "4f12f3f1610000997100"
    assert ORSet().payload("remove", {"a": 7}).hex() == "6f12f3f1610000997100"
    assert (
        MapCounter().payload("add", {"b": 1, "a": 300}).hex() == "6311" + "02" + "610003" + "02012c" + "620002" + "0101"
    )
    assert DistinctCount().payload("add", "abc").hex() == "4411218d8704"
    assert Quantiles().payload("add", 1).hex() == "51113ff0000000000000"
    assert versions.to_bytes(1, UUID, 2).hex() == "800000000000000102" + UUID.replace("-", "") + "02"
    assert Counter().fold(None, payloads(Counter(), 1, 2)).hex() == "43101a9f6ec20103"


@pytest.mark.parametrize("name", TYPES)
def test_damage_is_noticed(name: str) -> None:
    kind = TYPES[name]()
    found = payloads(kind, FITTING.get(name, 3), FITTING.get(name, 40))
    snapshot = kind.fold(None, found)
    for at in range(len(snapshot)):
        changed = bytearray(snapshot)
        changed[at] ^= 0x10
        with pytest.raises(DamagedPayload):
            kind.value(bytes(changed))
        with pytest.raises(DamagedPayload):
            kind.merge(snapshot, snapshot[:at])
    (version, delta), _ = found
    for wrong in (*(delta[:end] for end in range(len(delta))), delta + b"\0", delta + b"x", b"\0" * 12, snapshot):
        with pytest.raises(DamagedPayload):
            kind.read(None, [(version, wrong)])
    with pytest.raises(DamagedPayload):
        kind.value(delta)


def test_bytes_of_others_are_refused_with_the_reason() -> None:
    counter, (payload,) = Counter(), payloads(Register(), 1)
    with pytest.raises(DamagedPayload, match="not a payload of a Counter"):
        counter.fold(None, [payload])
    with pytest.raises(DamagedPayload, match="format 2 and only format 1 is known"):
        counter.value(b"C\x20" + counter.fold(None, [])[2:])
    with pytest.raises(DamagedPayload, match="bytes of a Counter are not a snapshot"):
        counter.value(counter.payload("incr", 1))


def test_random_bytes_are_a_value_or_damaged() -> None:
    source = random.Random(3)
    good = [value_bytes(each) for each in ("a\0b", -1.5, 10**90, [1, {"k": None}], {"a": [True], "b": "\1"})]
    for _ in range(3000):
        data = bytearray(source.choice(good))
        for _ in range(source.randint(1, 3)):
            data[source.randrange(len(data))] = source.choice((0, 1, 2, 255, 0xF2, source.randrange(256)))
        for read, write in (
            (value_from, value_bytes),
            (versions.from_bytes, lambda version: versions.to_bytes(*version)),
        ):
            try:
                found = read(bytes(data))
            except DamagedPayload:
                continue
            assert write(found) == data
    with pytest.raises(DamagedPayload):
        value_from(b"\xf2" * 5000)


def test_numbers_are_written_in_full() -> None:
    total = value(MapCounter(), {"a": Decimal("0.1")}, {"a": 10**20}, {"b": 0.5})
    assert json_bytes(total) == b'{"a":100000000000000000000.1,"b":0.5}'
