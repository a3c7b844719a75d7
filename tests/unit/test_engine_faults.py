"""Every durable step of a pipeline, interrupted before and after, without a JVM.

A script appends, runs, resets, compacts, trims and finishes. At each step the home is copied as it is on disk, which is
what `kill -9` would leave there; every copy is then started again and taken to the end. A full disk is an error instead
of a death: it is raised at each step, and the same process goes on when there is room again.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import pytest

import hayase as hy
import shop
from hayase.core.declarations import PipelineDeclaration, Retention
from hayase.core.errors import HayaseError
from hayase.core.stages import MAIN
from hayase.engine.batch.gate import Grants
from hayase.engine.commit.housekeeping import run_housekeeping
from hayase.engine.commit.manifests import Commits
from hayase.engine.local import InProcess
from hayase.streams import StreamLog, durable
from interruptions import Act, Deaths, Granting, check_deaths, check_full_disk, room_for_homes
from shop import Event, check, expected

SLACK = 4
EVENTS = [
    Event(at, user, amount)
    for at, user, amount in [
        (1, "a", 5), (4, "b", None), (2, "a", 2**62), (9, "c", 7), (3, "a", 1), (8, "b", 2), (6, None, 3), (12, "a", 1),
        (11, "b", 1), (16, "c", 2**62), (1, "c", 1), (15, "c", 2**62), (20, "a", 4), (19, "", 2), (30, "b", 8),
    ]
]  # fmt: skip
STAGES = ("big", "spend", "ranks")


@cache
def _declaration() -> PipelineDeclaration:
    return shop.shop(Path("nowhere"), SLACK, STAGES, retention=Retention(age=0)).declaration


def _pipeline(home: Path) -> hy.Pipeline:
    pipeline = hy.Pipeline("shop", home, clock=lambda: 100)
    pipeline.declaration = _declaration()
    return pipeline


def _append(number: int, first: int, last: int) -> Act:
    rows = [each.row() for each in EVENTS[first:last]]
    refused = [{"at": "never", "user": f"of append {number}"}]

    def do(home: Path) -> None:
        _pipeline(home).append("events", rows + refused, producer="till", sequence=number)

    return Act(f"append {number}", do, last)


def _run(home: Path, limit: int = 100) -> None:
    pipeline = _pipeline(home)
    with pipeline.home.lock():
        pipeline.apply()
        InProcess(pipeline.home, lambda: 100, gate=Granting(Grants(limit=limit))).run_until_idle()


def _reset(home: Path) -> None:
    _pipeline(home).reset("ranks")


def _compact(home: Path) -> None:
    for name in ("events", "spend", "_dead"):
        while StreamLog.open(home, name).compact(at_least=2):
            pass


def _keep_house(home: Path) -> None:
    run_housekeeping(_pipeline(home).home, now=101)


def _finish(home: Path) -> None:
    _pipeline(home).finish("events")


SCRIPT = (
    _append(1, 0, 4),
    Act("first run", _run, 4),
    _append(2, 4, 10),
    Act("run in small batches", partial(_run, limit=3), 10),
    Act("reset", _reset, 10),
    Act("run after the reset", _run, 10),
    Act("compaction", _compact, 10),
    _append(3, 10, 15),
    Act("run after the compaction", partial(_run, limit=4), 15),
    Act("retention", _keep_house, 15),
    Act("finish", _finish, 15),
    Act("last run", _run, 15),
)


def _check(home: Path, upto: int) -> None:
    """Taken to its end, the home holds what it must, once, and nothing else."""
    _finish(home)
    _run(home)
    pipeline = _pipeline(home)
    check(pipeline, expected(EVENTS[:upto], SLACK, finished=True))
    refused = [row["record"] for row in pipeline.dead_letters() if row["stage"] == "append"]
    assert (
        len(refused)
        == len(set(refused))
        == sum(each.name.startswith("append") and each.upto <= upto for each in SCRIPT)
    )
    commits = Commits(pipeline.home, MAIN)
    commits.recover()
    state = {path.name for path in pipeline.home.state(MAIN).iterdir()}
    assert state == commits.latest().files(), "files that no manifest names were not cleared away"
    assert not list(pipeline.home.staged(MAIN).iterdir())


@pytest.fixture(scope="module")
def room() -> Iterator[Path]:
    with room_for_homes() as directory:
        yield directory


def _look(home: Path) -> frozenset[tuple[str, int]]:
    """What is there, by name and inode; how much of a temporary file is written makes no difference."""
    return frozenset((str(path.relative_to(home)), path.stat().st_ino) for path in home.rglob("*"))


@pytest.fixture(scope="module")
def deaths(room: Path) -> Deaths:
    """What `kill -9` would leave at every durable step of an undisturbed run of the script, by act."""
    home = room / "undisturbed"
    home.mkdir()
    found: Deaths = {each.name: [] for each in SCRIPT}
    seen = set()
    with pytest.MonkeyPatch.context() as patch:
        for act in SCRIPT:

            def reached(step: str, act: Act = act) -> None:
                look = _look(home)
                if look not in seen:
                    seen.add(look)
                    shutil.copytree(home, room / f"{len(seen):04d}")
                    found[act.name].append((step, room / f"{len(seen):04d}"))

            patch.setattr(durable, "reached", reached)
            act.do(home)
    assert StreamLog.open(home, "events").index().start > 0, "the script should come to trim something"
    _check(home, len(EVENTS))
    return found


@pytest.mark.parametrize("act", SCRIPT, ids=lambda act: act.name)
def test_a_death_at_any_durable_step_changes_nothing(act: Act, deaths: Deaths) -> None:
    check_deaths(act, deaths, _check)


@pytest.mark.parametrize("act", [each for each in SCRIPT if each.name != "reset"], ids=lambda act: act.name)
def test_a_full_disk_is_said_and_nothing_is_lost(act: Act, deaths: Deaths, monkeypatch: pytest.MonkeyPatch) -> None:
    before = deaths[act.name][0][1]  # as it was when the act began
    check_full_disk(act, before, _check, monkeypatch, each_of=12)


def test_a_runner_goes_on_from_the_files_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = _pipeline(tmp_path)
    SCRIPT[0].do(tmp_path)
    pipeline.apply()
    runner = InProcess(pipeline.home, lambda: 100)
    renamed = 0

    def refuse_to_publish(step: str) -> None:
        nonlocal renamed
        renamed += step == "after rename" and any(pipeline.home.commits(MAIN).glob("*2.json"))
        if renamed == 2:  # the manifest and one part are in place
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(durable, "reached", refuse_to_publish)
    with pytest.raises(HayaseError, match="Input/output error"):
        runner.run_until_idle()
    monkeypatch.undo()
    runner.run_until_idle()
    _check(tmp_path, 4)
