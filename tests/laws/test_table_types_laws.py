"""Laws of the column types: one for all of them, that they converge; and that their bytes are in the right order."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.tables import TYPES, DistinctCount, Quantiles, versions
from hayase.tables import payloads as bytes_of
from hayase.tables.entries import many_key_bytes, text_keys
from hayase.tables.types import ColumnType

Done = tuple[versions.Version, str, Any]
"""An update: its version, the method, the parameter."""

texts = st.sampled_from(["", "a", "b", "\0", "\1", "\0\1", "a\0", "ü", "\U0001f600", "\uffff"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=4
)
decimals = st.decimals(-1000, 1000, places=3) | st.sampled_from(
    [Decimal("1e-390"), Decimal("-12345678901234567890.123")]
)
numbers = (
    st.integers(-3, 3)
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0.1, 0.2, -0.0, 1.0, 1e22, 5e-324])
    | decimals
)
scalars = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=5
)
few = st.sampled_from([None, True, 0, 1, 1.0, Decimal("1.00"), "1", "a", [1], [1.0, "x"], {"a": 1}]) | values
keys = st.sampled_from(["a", "b", "2017-01-02"]) | texts
PARAMETERS: dict[str, st.SearchStrategy[Any]] = {
    "Counter": numbers,
    "Register": few,
    "MinRegister": few.filter(lambda value: value is not None),
    "MaxRegister": few.filter(lambda value: value is not None),
    "GSet": few,
    "TwoPhaseSet": few,
    "ORSet": few,
    "ORSet.remove_seen": st.fixed_dictionaries({"value": few, "seen": st.lists(st.deferred(lambda: ids), max_size=3)}),
    "LWWSet": few,
    "MapCounter": st.dictionaries(keys, numbers, max_size=3),
    "MapRegister": st.dictionaries(keys, few, max_size=3),
    "MapRegister.remove": keys | st.lists(keys, max_size=3),
    "MapSet": st.dictionaries(keys, few, max_size=3),
    "MapSet.remove": keys | st.lists(keys, max_size=3),
    "DistinctCount": few,
    "Quantiles": st.integers(-3, 3) | st.floats(-1e6, 1e6) | decimals,
}
ids = st.sampled_from(["a", "b", "0b8f7a6e-91c2-4d5e-8f10-2a3b4c5d6e7f"]) | st.uuids().map(str) | st.integers(0, 3)
made_versions = st.builds(versions.Version, st.integers(-2, 3), ids, st.sampled_from([0, 1, 239, 240, 70_000]))


def several(name: str) -> st.SearchStrategy[Any]:
    """What `add_all` takes."""
    elements = st.lists(few, max_size=3)
    return st.dictionaries(keys, elements, max_size=3) if name == "MapSet" else elements


def one_by_one(done: Done) -> list[Done]:
    """An update on many elements as one on each."""
    version, method, parameter = done
    if method != "add_all":
        return [done]
    if isinstance(parameter, dict):
        return [(version, "add", {key: each}) for key, elements in parameter.items() for each in elements]
    return [(version, "add", each) for each in parameter]


# ---------------------------------------------------------------------------------------------------- plain models


def exact(value: Any) -> Fraction:
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


def compared(one: Any, other: Any) -> int:
    """jq's order of values, written down once more."""

    def rank(value: Any) -> int:
        kinds = [type(None), bool, (int, float, Decimal), str, list, dict]
        return next(at for at, kind in enumerate(kinds) if isinstance(value, kind))

    if rank(one) != rank(other):
        return rank(one) - rank(other)
    if one is None:
        return 0
    if isinstance(one, list):
        for pair in zip(one, other):
            if found := compared(*pair):
                return found
        return len(one) - len(other)
    if isinstance(one, dict):
        mine, theirs = sorted(one), sorted(other)
        return compared(mine, theirs) or compared([one[key] for key in mine], [other[key] for key in theirs])
    if not isinstance(one, (str, bool)):
        one, other = exact(one), exact(other)
    return (one > other) - (one < other)


by_jq = functools.cmp_to_key(compared)


def distinct(parameters: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in sorted(parameters, key=by_jq):
        if not found or compared(found[-1], value):
            found.append(value)
    return found


def summed(parameters: list[Any]) -> Fraction:
    return sum((exact(each) for each in parameters), Fraction(0))


def latest(done: list[Done]) -> Any:
    return max(done, key=in_order)[2] if done else None


def in_order(each: Done) -> tuple[Any, ...]:
    (time, id, update), _, _ = each
    is_uuid = isinstance(id, str) and len(id) == 36
    return time, 0 if isinstance(id, int) else 1 if is_uuid else 2, id, update


def removed(done: list[Done]) -> list[Any]:
    return [parameter for _, method, parameter in done if method == "remove"]


def model_two_phase(done: list[Done]) -> list[Any]:
    gone = removed(done)
    return [value for value in distinct(parameters(done)) if not any(compared(value, each) == 0 for each in gone)]


def model_or_set(done: list[Done]) -> list[Any]:
    """Every addition that no removal has observed."""

    def observed(removal: Done, addition: Done) -> bool:
        (time, *_), method, parameter = removal
        if method == "remove":
            return compared(parameter, addition[2]) == 0 and addition[0].time < time
        same = method == "remove_seen" and compared(parameter["value"], addition[2]) == 0
        return same and addition[0].id in parameter["seen"]

    additions = [each for each in done if each[1] == "add"]
    return distinct([each[2] for each in additions if not any(observed(other, each) for other in done)])


def model_lww_set(done: list[Done]) -> list[Any]:
    found = []
    for value in distinct(parameters(done)):
        same = [each for each in done if compared(each[2], value) == 0]
        if max(same, key=in_order)[1] == "add":
            found.append(value)
    return found


def by_key(done: list[Done], model: Callable[[list[Done]], Any]) -> dict[str, Any]:
    named = sorted({key for _, _, parameter in done for key in parameter})
    return {key: model([(v, m, p[key]) for v, m, p in done if key in p]) for key in named}


def model_map_register(done: list[Done]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _, method, parameter in sorted(done, key=in_order):
        if method == "add":
            found |= parameter
        else:
            for key in [parameter] if isinstance(parameter, str) else parameter:
                found.pop(key, None)
    return found


def model_map_set(done: list[Done]) -> dict[str, list[Any]]:
    """The additions to each key that are not before a removal of it."""
    removals = [(version.time, [key] if isinstance(key, str) else key) for version, m, key in done if m == "remove"]
    found: dict[str, list[Any]] = {}
    for version, method, parameter in done:
        for key, element in parameter.items() if method == "add" else ():
            if not any(version.time < time and key in gone for time, gone in removals):
                found.setdefault(key, []).append(element)
    return {key: distinct(each) for key, each in found.items()}


def parameters(done: list[Done]) -> list[Any]:
    return [parameter for _, _, parameter in done]


def model_quantiles(done: list[Done]) -> dict[str, Any]:
    ordered = sorted(float(each) for each in parameters(done))
    ranks = {"min": 0, "max": len(ordered) - 1}
    for name, share in {"p50": 50, "p90": 90, "p99": 99}.items():
        ranks[name] = max(0, -(-share * len(ordered) // 100) - 1)
    return {"count": len(ordered)} | {name: ordered[rank] if ordered else None for name, rank in ranks.items()}


MODELS: dict[str, Callable[[list[Done]], Any]] = {
    "Counter": lambda done: summed(parameters(done)),
    "Register": latest,
    "MinRegister": lambda done: min(parameters(done), key=by_jq, default=None),
    "MaxRegister": lambda done: max(parameters(done), key=by_jq, default=None),
    "GSet": lambda done: distinct(parameters(done)),
    "TwoPhaseSet": model_two_phase,
    "ORSet": model_or_set,
    "LWWSet": model_lww_set,
    "MapCounter": lambda done: by_key(done, lambda part: summed(parameters(part))),
    "MapRegister": model_map_register,
    "MapSet": model_map_set,
    "DistinctCount": lambda done: len(distinct(parameters(done))),
    "Quantiles": model_quantiles,
}


def same(one: Any, other: Any) -> bool:
    """Equal in JSON, where Fractions stand for exact numbers."""
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
        return one is other
    if isinstance(one, (int, float, Decimal, Fraction)) and isinstance(other, (int, float, Decimal, Fraction)):
        return exact(one) == exact(other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(type(one) is type(other) and one == other)


# ---------------------------------------------------------------------------------------------------- the laws


def version_of(each: Done) -> bytes:
    return versions.to_bytes(*each[0])


def stored(kind: ColumnType[Any], done: list[Done]) -> dict[bytes, bytes]:
    """What a store has after these updates, in the order of their arrival: the same version overwrites itself."""
    return {versions.to_bytes(*version): kind.payload(method, parameter) for version, method, parameter in done}


def folded_in_steps(kind: ColumnType[Any], payloads: list[tuple[bytes, bytes]], data: st.DataObject) -> bytes:
    """A replica: payloads as they arrive, folded at random moments, what is left at the end."""
    snapshot = None
    while payloads:
        cut = data.draw(st.integers(1, len(payloads)))
        snapshot = kind.fold(snapshot, payloads[:cut] if data.draw(st.booleans()) else sorted(payloads[:cut]))
        payloads = payloads[cut:]
    return kind.fold(snapshot, [])


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_every_type_converges(name: str, data: st.DataObject) -> None:
    kind = TYPES[name]()
    update = st.one_of(
        st.tuples(made_versions, st.just(method), PARAMETERS.get(f"{name}.{method}", PARAMETERS[name]))
        if method != "add_all"
        else st.tuples(made_versions, st.just(method), several(name))
        for method in kind.methods
    )
    done: list[Done] = data.draw(st.lists(update, max_size=14, unique_by=version_of))
    once = kind.fold(None, sorted(stored(kind, done).items()))

    arrived = data.draw(
        st.permutations(done + (data.draw(st.lists(st.sampled_from(done), max_size=4)) if done else []))
    )
    replicas: list[list[tuple[bytes, bytes]]] = [[] for _ in range(data.draw(st.integers(1, 3)))]
    for payload in stored(kind, arrived).items():
        replicas[data.draw(st.integers(0, len(replicas) - 1))].append(payload)
    snapshots = [folded_in_steps(kind, each, data) for each in replicas]
    while len(snapshots) > 1:
        one, other = (snapshots.pop(data.draw(st.integers(0, len(snapshots) - 1))) for _ in range(2))
        snapshots.append(kind.merge(one, other))

    assert snapshots == [once]
    expected = MODELS[name]([each for many in done for each in one_by_one(many)])
    assert same(kind.value(once), expected), (kind.value(once), expected)
    assert same(kind.read(None, stored(kind, arrived).items()), expected)
    json.loads(bytes_of.json_bytes(kind.value(once)))


@settings(max_examples=examples(30))
@given(data=st.data())
def test_an_orset_of_concurrent_replicas_keeps_what_no_removal_has_observed(data: st.DataObject) -> None:
    """Replicas that add, remove what they see, and hear of each other now and then; the judge is the set of the papers, in
    which an element is there while it has a tag that no removal has listed."""
    kind = TYPES["ORSet"]()
    known: list[set[int]] = [set() for _ in range(3)]
    updates: list[tuple[bytes, bytes]] = []
    tags: dict[int, tuple[str, int]] = {}
    removed_tags: dict[int, frozenset[int]] = {}
    for number in range(data.draw(st.integers(1, 14))):
        replica = known[data.draw(st.integers(0, 2))]
        element = data.draw(st.sampled_from("ab"))
        at = data.draw(st.integers(0, 5))  # clocks of replicas may differ: what is listed counts, not the time
        if data.draw(st.booleans()):
            tags[number] = (element, at)
            delta = kind.payload("add", element)
        else:
            gone = {each for each in replica if each in tags and tags[each][0] == element}
            removed_tags[number] = frozenset(gone)
            delta = kind.payload("remove_seen", {"value": element, "seen": sorted(gone)})
        updates.append((versions.to_bytes(at, number), delta))
        replica.add(number)
        if data.draw(st.booleans()):
            replica |= known[data.draw(st.integers(0, 2))]
    gone = {tag for each in removed_tags.values() for tag in each}
    expected = sorted({element for tag, (element, _) in tags.items() if tag not in gone})
    assert kind.read(None, data.draw(st.permutations(updates))) == expected


@settings(max_examples=examples(20))
@given(data=st.data(), scale=st.sampled_from([1.0, 1e3, 1e150]))
def test_quantiles_of_many_converge_and_keep_their_bound(data: st.DataObject, scale: float) -> None:
    kind = Quantiles()
    seed, count = data.draw(st.integers(0, 2**32)), data.draw(st.sampled_from([100, 128, 129, 200, 3000, 6000]))
    random = Random(seed)
    spread = data.draw(st.sampled_from([0.1, 3.0, 30.0]))
    given_values = [random.choice((-1, 1, 1)) * scale * math.exp(random.gauss(0, spread)) for _ in range(count)]
    payloads = [(versions.to_bytes(at, at), kind.payload("add", value)) for at, value in enumerate(given_values)]
    once = kind.fold(None, payloads)
    random.shuffle(payloads)
    cuts = sorted(random.randrange(count) for _ in range(3))
    parts = [payloads[a:b] for a, b in zip([0, *cuts], [*cuts, count])]
    snapshots = [kind.fold(kind.fold(None, part[: len(part) // 2]), part[len(part) // 2 :]) for part in parts]
    random.shuffle(snapshots)
    assert functools.reduce(kind.merge, snapshots) == once

    found, ordered = kind.spread(once), sorted(given_values)
    assert (found.level < 0) == (count <= 128)
    assert found.at(0, 1) == [ordered[0], ordered[-1]]
    fractions = (0.01, 0.07, 0.25, 0.5, 0.9, 0.99)
    for fraction, value in zip(fractions, found.at(*fractions)):
        true = ordered[math.ceil(Fraction(repr(fraction)) * count) - 1]
        off = 0 if found.level < 0 else 2.0 ** (found.level - 8)
        assert abs(value - true) <= off * abs(true) * (1 + 1e-12)


@settings(max_examples=examples(15))
@given(seed=st.integers(0, 2**32), count=st.sampled_from([7, 8, 383, 384, 385, 500, 3000]))
def test_distinct_counts_of_many_converge(seed: int, count: int) -> None:
    kind, random = DistinctCount(), Random(seed)
    payloads = [(b"", kind.payload("add", at % count)) for at in range(count + 50)]
    once = kind.fold(None, payloads)
    random.shuffle(payloads)
    cuts = sorted(random.randrange(len(payloads)) for _ in range(3))
    parts = [payloads[a:b] for a, b in zip([0, *cuts], [*cuts, len(payloads)])]
    snapshots = [kind.fold(kind.fold(None, part[: len(part) // 2]), part[len(part) // 2 :]) for part in parts]
    random.shuffle(snapshots)
    assert functools.reduce(kind.merge, snapshots) == once
    assert abs(kind.value(once) - count) <= (0 if count <= 384 else 0.08 * count)


@given(st.lists(values, min_size=2, max_size=6))
def test_the_order_of_the_bytes_is_jqs_order(given_values: list[Any]) -> None:
    encoded = [bytes_of.value_bytes(value) for value in given_values]
    for one, data in zip(given_values, encoded):
        assert same(bytes_of.value_from(data), one)
        for other, other_data in zip(given_values, encoded):
            assert (data > other_data) - (data < other_data) == max(-1, min(1, compared(one, other)))


@given(st.lists(st.builds(versions.Version, st.integers(-(2**63), 2**63 - 1), ids | texts.filter(bool),
                          st.integers(0, 2**32 - 1)) | made_versions, min_size=2, max_size=6))  # fmt: skip
def test_the_order_of_the_bytes_is_that_of_versions(given_versions: list[versions.Version]) -> None:
    encoded = [versions.to_bytes(*each) for each in given_versions]
    assert [versions.from_bytes(data) for data in encoded] == given_versions
    ordered = sorted(given_versions, key=lambda each: in_order((each, "", None)))
    assert [versions.from_bytes(data) for data in sorted(encoded)] == ordered
    for each, data in zip(given_versions, encoded):
        assert data >= versions.since(each.time)
        assert each.time == 2**63 - 1 or data < versions.since(each.time + 1)


@pytest.mark.parametrize(
    ("chosen", "kind"),
    [(st.uuids().map(str), pa.string()), (ids.map(str) | texts.filter(bool), pa.string()),
     (st.uuids().map(str) | st.uuids().map(lambda id: str(id).upper()), pa.string()),
     (st.text("0a-", min_size=36, max_size=36), pa.string()), (st.integers(-(2**63), 2**63 - 1), pa.int64()),
     (st.integers(-(2**31), 2**31 - 1), pa.int32()), (st.uuids().map(str), pa.large_string())],
)  # fmt: skip
@settings(max_examples=examples(20))
@given(data=st.data(), update=st.sampled_from([0, 239, 240]), first=st.integers(0, 2))
def test_many_versions_are_each_of_them(
    chosen: st.SearchStrategy[Any], kind: pa.DataType, data: st.DataObject, update: int, first: int
) -> None:
    times = st.integers(-(2**63), 2**63 - 1)
    rows = data.draw(st.lists(st.tuples(times, chosen), max_size=5))[first:]
    column = pa.array(["0" * 36 if pa.types.is_string(kind) else None] * 2 + [id for _, id in rows], kind)[2:]
    found = versions.many_to_bytes(np.array([time for time, _ in rows], np.int64), column, update)
    assert found == [versions.to_bytes(time, id, update) for time, id in rows]


plain_numbers = (
    st.integers(-(2**62), 2**62)
    | st.floats()
    | st.decimals(-(10**9), 10**9, places=2).map(float)
    | st.sampled_from([0.1 + 0.2, 1e15, 10**15 - 1, 0.1234567, 0.12345678, 127, 128, -128, -129, 2**53 + 1, 10**400])
)


@settings(max_examples=examples(150))
@given(
    st.lists(plain_numbers, max_size=12)
    | st.lists(texts, max_size=6)
    | st.lists(st.dictionaries(texts | st.sampled_from(["\ud800"]), plain_numbers, min_size=1, max_size=1), max_size=6)
    | st.lists(few, max_size=5),
)
def test_many_deltas_are_what_each_would_be(parameters: list[Any]) -> None:
    def alone(kind: ColumnType[Any], parameter: Any) -> bytes | str:
        try:
            named = kind.methods[0]
            return kind.payload_head(1) + kind.delta(named, parameter)
        except bytes_of.UnfitParameter as error:
            return f"{kind.name}.{named}: {error}"

    for kind in (TYPES[name]() for name in ("Counter", "Register", "MapCounter")):
        many = [each if isinstance(each, bytes) else str(each) for each in kind.payloads(None, parameters)]
        assert many == [alone(kind, parameter) for parameter in parameters]
        column = kind.column(None, parameters)
        assert column is None or column.to_pylist() == many
    whole = [each for each in parameters if type(each) is int and abs(each) < 10**99]
    assert many_key_bytes([(each,) for each in whole]) == [bytes_of.value_bytes(each) for each in whole]
    keys = text_keys(parameters)
    assert keys is None or keys.to_pylist() == many_key_bytes([(each,) for each in parameters])
