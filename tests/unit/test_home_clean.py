"""What takes space in a home, and what of it can go: only what nothing names, and nothing while the pipeline runs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import every_file
import hayase as hy
from command_line import Command
from hayase.core.errors import HomeInUse
from hayase.engine.batch.kernel_cache import forget_kernels
from hayase.engine.definition.definitions import versions
from hayase.engine.definition.operation_changes import operations_of
from hayase.engine.home import Home
from hayase.engine.home_sizes import sizes_of
from hayase.engine.integrity.leftovers import clean, leftovers_of
from hayase.engine.integrity.verification import verify
from hayase.streams import StreamLog, durable
from interruptions import passing_home


@pytest.fixture(scope="module")
def shop() -> Iterator[Path]:
    """A pipeline whose queries were changed several times; nobody goes on with it."""
    with passing_home() as room:
        directory = room / "shop"
        every_file.lay_out(directory)
        text = (directory / "pipeline.yaml").read_text()
        for least in (4, 5, 6):
            (directory / "pipeline.yaml").write_text(text.replace("amount >= 4", f"amount >= {least}"))
            pipeline = every_file.opened(directory)
            if least == 4:
                every_file.append(pipeline, 0, 1, 1)
            else:
                pipeline.reset("large", start="earliest")
            every_file.run(pipeline)
        yield directory


@pytest.fixture
def pipeline(shop: Path) -> Iterator[hy.Pipeline]:
    with passing_home() as room:
        shutil.copytree(shop, room / "shop")
        forget_kernels()
        yield every_file.opened(room / "shop")


def files_below(home: Home) -> set[str]:
    return {path.relative_to(home.path).as_posix() for path in home.path.rglob("*") if path.is_file()}


def test_only_what_nothing_names_goes(pipeline: hy.Pipeline) -> None:
    home = pipeline.home
    clean(home)
    before, answers, history = files_below(home), every_file.answers(pipeline), operations_of(home)
    left = [
        home.state("main") / "000000000099-0-ff.state",
        home.staged("main") / "000000000099-ff.seg",
        home.exchange("main") / "1" / "blob",
        home.checkpoints("operations") / "1" / "offsets",
        home.code("ff") / "unused.py",
        home.tables / "purchases.discarded" / "000001.sst",
        home.path / "streams" / "orders" / "staging" / "append.1-1.tmp",
        home.path / "pins" / "ff" / "lock",
        home.path / "pins" / "ff" / "state" / "main" / "000000000001-0-ff.state",
    ]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"left")
    held = durable.temporary(home.path / "streams" / "orders" / "staging", "append")
    with held as (draft, _):
        kept = draft.relative_to(home.path).as_posix()
        found = {leftover.path for leftover in leftovers_of(home)}
        assert {leftover.path for leftover in clean(home)} == found
        assert files_below(home) - {"lock"} == (before | {kept}) - {"lock"}
    assert leftovers_of(home) == []
    assert list(verify(home)) == []
    assert every_file.answers(pipeline) == answers
    assert operations_of(home) == history
    every_file.later(pipeline)


def test_definitions_that_are_needed_stay(pipeline: hy.Pipeline) -> None:
    home = pipeline.home
    all_versions, history = versions(home), operations_of(home)
    assert len(all_versions) > 2
    removed = [leftover.path.name for leftover in clean(home) if leftover.kind == "definitions"]
    assert len(removed) == len(all_versions) - 2  # the first has the operation, the last is the newest
    assert versions(home) == [all_versions[0], all_versions[-1]]
    assert operations_of(home) == history
    assert list(verify(home)) == []
    every_file.later(pipeline)


def test_segments_that_others_cover_go(pipeline: hy.Pipeline) -> None:
    log = StreamLog.open(pipeline.home.path, "orders")
    for number in range(3):
        order = {"time": "2026-01-01T00:00:09Z", "id": f"x{number}", "user": "a", "amount": 1}
        pipeline.append("orders", [order])
    single = {path.name: path.read_bytes() for path in log.path.glob("*.seg")}
    rows = pipeline.stream("orders").rows()
    assert log.compact(at_least=2)
    single = {name: data for name, data in single.items() if not (log.path / name).exists()}
    for name, data in single.items():  # as if it had been killed before it removed them
        (log.path / name).write_bytes(data)
    assert {leftover.path.name for leftover in clean(pipeline.home) if leftover.kind == "segments"} == set(single)
    assert pipeline.stream("orders").rows() == rows


def test_a_home_in_use_is_not_cleaned(pipeline: hy.Pipeline) -> None:
    with pipeline.home.lock(), pytest.raises(HomeInUse):
        clean(pipeline.home)


def test_sizes_add_up_to_what_is_there(shop: Path, hayase_: Command) -> None:
    home = Home(shop / "home")
    sizes = sizes_of(home)
    assert sum(size.bytes for size in sizes) == sum(
        path.stat().st_size for path in home.path.rglob("*") if path.is_file()
    )
    assert [size.bytes for size in sizes] == sorted((size.bytes for size in sizes), reverse=True)
    assert {("streams", "orders"), ("tables", "purchases"), ("state", "main")} <= {
        (size.kind, size.name) for size in sizes
    }
    said = json.loads(hayase_("home", "size", home.path, "--json").out)
    assert said["bytes"] == sum(size.bytes for size in sizes)
    assert "orders" in hayase_("home", "size", home.path).out


def test_a_link_counts_once(pipeline: hy.Pipeline) -> None:
    home = pipeline.home
    before = sum(size.bytes for size in sizes_of(home))
    (home.path / "pins").mkdir()
    os.link(next(home.state("main").glob("*")), home.path / "pins" / "a")
    assert sum(size.bytes for size in sizes_of(home)) == before


def test_the_command_says_what_would_go(pipeline: hy.Pipeline, hayase_: Command) -> None:
    home = pipeline.home
    before = files_below(home)
    said = json.loads(hayase_("home", "clean", home.path, "--dry-run", "--json").out)
    assert said["removed"] is False
    assert said["leftovers"]
    assert files_below(home) == before
    assert "removed" in hayase_("home", "clean", home.path).out
    assert "nothing is left over" in hayase_("home", "clean", home.path).out
