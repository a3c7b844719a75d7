"""Homes and bytes of earlier releases: ORSet was the name of what is LWWSet now, and a MapSet was written without times."""

from __future__ import annotations

import tarfile
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import hayase as hy
from hayase.core.errors import StageChanged
from hayase.engine.home import Home
from hayase.engine.integrity.migrations import upgrade
from hayase.engine.local import InProcess
from hayase.tables import DamagedPayload, MapSet
from hayase.tables.payloads import pack, text_bytes, value_bytes
from hayase.tables.versions import to_bytes

HOME = Path(__file__).parents[1] / "homes" / "carts_before_lwwset.tar.gz"
"""Thirty events of two users, of which nine are folded, written by the code before LWWSet."""
BEFORE = [{"user": 0, "basket": ["c"]}, {"user": 1, "basket": ["a", "b", "c"]}]
RULES = """{source: events, rules: [
    {when: .put != null, tables: {carts: {key: .user, columns: {basket: {add: .put}}}}},
    {when: .drop != null, tables: {carts: {key: .user, columns: {basket: {remove: .drop}}}}}]}"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with tarfile.open(HOME) as file:
        file.extractall(tmp_path, filter="data")
    upgrade(Home(tmp_path))
    return tmp_path


def _pipeline(home: Path, kind: str) -> hy.Pipeline:
    pipeline = hy.Pipeline("carts", home, clock=lambda: 0, buckets=2)
    schema = "at bigint not null, id bigint, user bigint, put string, drop string"
    pipeline.stream("events", schema, "at", id="id", time_unit="us", max_ahead=None)
    pipeline.table("carts", key="user", fold_after=10, horizon=10, basket=kind)
    pipeline.rules(text=RULES)
    return pipeline


def _run(pipeline: hy.Pipeline, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    pipeline.append("events", list(rows))
    pipeline.apply()
    with closing(InProcess(pipeline.home, lambda: 0)) as runner:
        runner.run_until_idle()
    with pipeline.table("carts") as table:
        return list(table.rows())


def test_a_table_of_old_sets_goes_on_when_they_are_declared_lwwset(home: Path) -> None:
    pipeline = _pipeline(home, "LWWSet")
    with pipeline.table("carts") as table:
        assert list(table.rows()) == BEFORE
    more = {"at": 40, "id": 40, "user": 0, "put": "z"}
    assert _run(pipeline, more) == [{"user": 0, "basket": ["c", "z"]}, BEFORE[1]]


def test_old_sets_declared_orset_are_refused_with_both_ways_on(home: Path) -> None:
    pipeline = _pipeline(home, "ORSet")
    with pytest.raises(StageChanged, match=r"declare them LWWSet.*hayase reset carts --from earliest"):
        pipeline.apply()
    with pipeline.table("carts") as table, pytest.raises(DamagedPayload, match="declare the column LWWSet"):
        list(table.rows())
    pipeline.reset("carts")
    assert _run(pipeline) == BEFORE  # no two operations of these events are concurrent


def test_an_orset_goes_on_and_does_not_become_another_set(tmp_path: Path) -> None:
    first = {"at": 1, "id": 1, "user": 0, "put": "a"}
    wanted = [{"user": 0, "basket": ["a"]}]
    assert _run(_pipeline(tmp_path, "ORSet"), first) == wanted
    assert _run(_pipeline(tmp_path, "ORSet"), {"at": 1, "id": 2, "user": 0, "drop": "a"}) == wanted, "concurrent"
    with pytest.raises(StageChanged):
        _pipeline(tmp_path, "LWWSet").apply()


def test_a_map_of_sets_that_was_written_without_times_reads_as_before() -> None:
    kind = MapSet()
    elements = pack(sorted(map(value_bytes, ["x", 1])))
    body = pack((text_bytes("a"), elements, text_bytes("b"), pack([value_bytes("y")])))
    old = bytes((kind.tag, 0x10)) + zlib.crc32(body, kind.tag).to_bytes(4, "big") + body
    assert kind.value(old) == {"a": [1, "x"], "b": ["y"]}
    assert kind.fold(old, []) == old
    added, removed = kind.payload("add", {"a": "z"}), kind.payload("remove", "a")
    more = kind.fold(old, [(to_bytes(5, "e"), added)])
    assert kind.value(more) == {"a": [1, "x", "z"], "b": ["y"]}
    assert kind.value(kind.fold(more, [(to_bytes(5, "f"), removed)])) == {"a": ["z"], "b": ["y"]}, "concurrent"
    assert kind.value(kind.fold(more, [(to_bytes(6, "f"), removed)])) == {"b": ["y"]}
