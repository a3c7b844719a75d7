"""Damaged stores of tables: every read is right or names the file, and a reset brings the table back.

`HAYASE_SEEDS=N` asks for N rounds of the damage test.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from test_table_store import TABLE, ingest

import hayase as hy
from hayase.core.errors import DamagedState, HayaseError
from hayase.engine.local import InProcess
from hayase.tables import rocksdb, seals
from hayase.tables.lookups import reader_of
from hayase.tables.stores import verify
from hayase.tables.table import open_own, open_reader

ROUNDS = int(os.environ.get("HAYASE_SEEDS", "24"))
HARMLESS = ("LOG", "LOCK")
"""What RocksDB writes for people, or holds by its name."""


def flip(file: Path, chance: random.Random) -> None:
    """Turn one bit, more often near the end, where the index of an SST file lies."""
    data = bytearray(file.read_bytes())
    first = max(0, len(data) - 1500) if chance.random() < 0.5 else 0
    data[chance.randrange(first, len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)


@pytest.fixture(scope="module", params=["merged", "to be merged"])
def whole(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A store with snapshots, marks, deletions and runs, whose files were merged, or will be as soon as it is opened."""
    room = tmp_path_factory.mktemp("whole")
    with closing(open_own(room / "users", TABLE)) as table:
        table.begin("one")
        if request.param == "to be merged":
            table.store._database.set_options({"disable_auto_compactions": "true"})  # type: ignore[attr-defined]
        for number in range(11):
            users = [f"u{random.Random(number * 1000 + at).randrange(200)}" for at in range(100)]
            ingest(
                table,
                room,
                b"%02d" % number,
                [(user, number * 1000 + at, f"{number}-{at}", at) for at, user in enumerate(users)],
            )
            if number % 4 == 3:
                table.fold(number * 1000 - 500, number * 1000 - 3000)
    return room


def rows_of(path: Path, opened: Callable[..., Any]) -> list[Any]:
    with closing(opened(path, TABLE)) as table:
        return list(table.scan(limit=1000).rows)


def damage_of(path: Path) -> str:
    """What `verify` says about a store; empty if it finds nothing."""
    try:
        verify(path)
    except DamagedState as error:
        return str(error)
    return ""


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_damaged_file_is_named_or_does_no_harm(whole: Path, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    wanted = rows_of(whole / "users", open_reader)
    shutil.copytree(whole, tmp_path / "tables")
    path = tmp_path / "tables" / "users"
    files = [each for each in path.iterdir() if each.name not in HARMLESS] + [seals.seal_path(path)]
    file = sorted(files)[seed % len(files)]
    if seed % 5 == 4 or not file.stat().st_size:
        file.unlink()
    else:
        flip(file, chance)
    damage = damage_of(path)
    for opened in (open_reader, open_own):
        told = ""
        try:
            assert rows_of(path, opened) == wanted
        except DamagedState as error:
            told = str(error)
        if told:
            assert file.name in told
            assert "hayase reset users --from earliest" in told
            assert file.name in damage


@pytest.mark.parametrize("cut", [1, 3, 40, 400])
def test_a_manifest_that_lost_its_end_is_not_an_earlier_state(whole: Path, tmp_path: Path, cut: int) -> None:
    shutil.copytree(whole, tmp_path / "tables")
    path = tmp_path / "tables" / "users"
    (manifest,) = path.glob("MANIFEST-*")
    manifest.write_bytes(manifest.read_bytes()[:-cut])
    for opened in (open_reader, open_own):
        with pytest.raises(DamagedState, match=f"{manifest.name} ends after"):
            rows_of(path, opened)


def test_an_unsealed_manifest_is_checked_record_by_record(whole: Path, tmp_path: Path) -> None:
    """As in a store that was written before there were seals. RocksDB itself would loop forever over some of these."""
    shutil.copytree(whole, tmp_path / "tables")
    path = tmp_path / "tables" / "users"
    seals.seal_path(path).unlink()
    (manifest,) = path.glob("MANIFEST-*")
    data = manifest.read_bytes()
    assert rows_of(path, open_reader)
    for at in range(0, 300, 7):
        manifest.write_bytes(data[:at] + bytes((data[at] ^ 16,)) + data[at + 1 :])
        with pytest.raises(DamagedState, match=manifest.name):
            seals.check(path)


def test_a_lookup_in_a_worker_fails_too(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "tables")
    path = tmp_path / "tables" / "users"
    reader = reader_of(path, TABLE)
    assert reader.get(("u1",))
    with closing(open_own(path, TABLE)) as table:
        ingest(table, tmp_path, b"99", [("u1", 99_000, "new", 1)])
    file = max(path.glob("*.sst"))
    file.unlink()
    with pytest.raises(DamagedState, match=file.name):
        reader.refresh()
    with pytest.raises(DamagedState, match=file.name):  # and again, not an empty table
        reader.refresh()


# ---------------------------------------------------------------------------------------------------- pipelines


@cache
def _rules() -> str:
    return "{source: events, rules: [{tables: {accounts: {key: .user, columns: {n: '1', last: .at}}}}]}"


def _pipeline(home: Path) -> hy.Pipeline:
    pipeline = hy.Pipeline("bank", home, clock=lambda: 0, buckets=2)
    pipeline.stream(
        "events", "at bigint not null, id bigint, user bigint", "at", id="id", time_unit="us", max_ahead=None
    )
    pipeline.table("accounts", key="user", n=hy.Counter(), last=hy.Register())
    pipeline.rules(text=_rules())
    return pipeline


def _run(home: Path, numbers: range) -> None:
    pipeline = _pipeline(home)
    if numbers:
        pipeline.append("events", [{"at": at, "id": at, "user": at % 7} for at in numbers])
    pipeline.apply()
    with closing(InProcess(pipeline.home, lambda: 0)) as runner:
        runner.run_until_idle()


def _rows(home: Path) -> list[dict[str, Any]]:
    with _pipeline(home).table("accounts") as table:
        return list(table.rows())


def _unlink_sst(path: Path) -> None:
    min(path.glob("*.sst")).unlink()


def _damage_sst(path: Path) -> None:
    file = min(path.glob("*.sst"))
    file.write_bytes(bytes(reversed(file.read_bytes())))


DAMAGES: dict[str, Callable[[Path], None]] = {
    "a file of the table is gone": _unlink_sst,
    "a file is damaged": _damage_sst,
    "CURRENT is gone": lambda path: (path / "CURRENT").unlink(),
    "the store is gone": shutil.rmtree,
    "all stores are gone": lambda path: shutil.rmtree(path.parent),
    "the seal is damaged": lambda path: flip(seals.seal_path(path), random.Random(3)),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("more", [0, 30], ids=["reset at once", "reset with new records"])
def test_a_damaged_table_stops_the_run_and_a_reset_brings_it_back(tmp_path: Path, damage: str, more: int) -> None:
    home, clean = tmp_path / "home", tmp_path / "clean"
    _run(home, range(50))
    _run(home, range(50, 100))
    path = _pipeline(home).home.table("accounts")
    DAMAGES[damage](path)
    for _ in range(2):
        with pytest.raises(DamagedState, match="hayase reset accounts --from earliest"):
            _run(home, range(0))
    if damage != "all stores are gone":
        with pytest.raises(DamagedState, match="hayase reset accounts --from earliest"):
            _rows(home)
    _pipeline(home).reset("accounts", "earliest")
    _run(home, range(100, 100 + more))
    _run(clean, range(100 + more))
    assert _rows(home) == _rows(clean)
    assert not list(path.parent.glob("*.discarded"))
    _run(home, range(200, 210))
    _run(clean, range(200, 210))
    assert _rows(home) == _rows(clean)


def test_a_table_damaged_in_its_first_batch_is_not_begun_again_in_silence(tmp_path: Path) -> None:
    """The newest manifest says that it begins: that its store is damaged must not be taken for one of before."""
    _run(tmp_path, range(50))
    path = _pipeline(tmp_path).home.table("accounts")
    _damage_sst(path)
    with pytest.raises(DamagedState):
        _run(tmp_path, range(0))
    shutil.rmtree(path)
    with pytest.raises(DamagedState):
        _run(tmp_path, range(0))
    _pipeline(tmp_path).reset("accounts")
    _run(tmp_path, range(0))
    assert sum(row["n"] for row in _rows(tmp_path)) == 50


def test_a_damaged_table_that_is_no_more_declared_is_in_nobodys_way(tmp_path: Path) -> None:
    _run(tmp_path, range(50))
    _damage_sst(_pipeline(tmp_path).home.table("accounts"))
    pipeline = hy.Pipeline("bank", tmp_path, clock=lambda: 0, buckets=2)
    pipeline.stream(
        "events", "at bigint not null, id bigint, user bigint", "at", id="id", time_unit="us", max_ahead=None
    )
    pipeline.apply()
    with closing(InProcess(pipeline.home, lambda: 0)) as runner:
        runner.run_until_idle()
    _run(tmp_path, range(50, 60))  # declared again, it begins anew
    assert sum(row["n"] for row in _rows(tmp_path)) == 60


def test_a_store_of_before_seals_goes_on_and_gets_one(tmp_path: Path) -> None:
    _run(tmp_path, range(50))
    path = _pipeline(tmp_path).home.table("accounts")
    seals.seal_path(path).unlink()
    before = _rows(tmp_path)
    _run(tmp_path, range(0))
    assert seals.read_seal(path) is not None
    assert _rows(tmp_path) == before
    assert damage_of(path) == ""


def test_what_is_no_damage_is_not_called_so(tmp_path: Path) -> None:
    _run(tmp_path, range(5))
    path = _pipeline(tmp_path).home.table("accounts")
    error = rocksdb.error_of(
        Exception("IO error: While open a file for random read: 000008.sst: Too many open files"), path
    )
    assert isinstance(error, HayaseError)
    assert "ulimit -n" in str(error)
    assert "reset" not in str(error)
    assert damage_of(tmp_path / "tables" / "never") == ""
