"""The law of the source of files: whatever appears when, whoever is killed where, and however many processes read: every record
of every file is in the stream once, and so is the dead letter of every line that is no record."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples, sample
from hayase.connectors import file_source
from hayase.connectors.file_source import FileSource
from hayase.connectors.intake import Intake
from hayase.connectors.source import SourceSetting
from hayase.core.connector_data import declared_source
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import HayaseError
from hayase.streams import StreamLog, durable, file_formats
from hayase.streams.dead_letters import DEAD
from interruptions import passing_home

NOW = 1_800_000_000_000_000
LOGS = StreamDeclaration("logs", "time bigint, n bigint", "time", time_unit="s")


class Killed(BaseException):
    """The end of a process: nothing catches it."""


class Readers:
    """Two processes that read the same files into one home, each unaware of the other; a death leaves a copy of the home as it is
    then, in which both begin anew."""

    def __init__(self, room: Path):
        self.room, self.lives = room, 0
        self.files = room / "in"
        self.files.mkdir()
        self.open: list[Intake | None] = [None, None]
        self.left: int | None = None
        """How many durable steps are left to live; None for ever."""

    @property
    def home(self) -> Path:
        return self.room / f"home {self.lives}"

    def step(self, reader: int) -> int:
        """Let a reader take a step; one that finds another in its place begins anew."""
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(durable, "reached", self._strike)
                intake = self.open[reader] or self._intake()
                self.open[reader] = intake
                return intake.step(0.0)
        except Killed:
            self._close(0, 1)
        except HayaseError:
            self._close(reader)
        return 1

    def _close(self, *readers: int) -> None:
        """Let readers go; what they hold open would otherwise be closed by the collector, in the middle of something else."""
        for reader in readers:
            intake, self.open[reader] = self.open[reader], None
            if intake is not None:
                with contextlib.suppress(Killed, HayaseError):
                    intake.close()

    def _strike(self, step: str) -> None:
        """Die at a durable step, if so many have been taken."""
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            before, self.left = self.home, None
            self.lives += 1
            if before.exists():
                shutil.copytree(before, self.home)
            raise Killed

    def _intake(self) -> Intake:
        values = declared_source("logs", {"files": {"path": f"{self.files}/*.ndjson"}}).values | {"watch": 0}
        StreamLog.ensure(self.home, LOGS)
        setting = SourceSetting(LOGS, values, "shop", lambda: NOW, self.home / "sources" / "logs")
        return Intake(self.home, LOGS, FileSource(setting), lambda: NOW)

    def column(self, stream: StreamDeclaration, name: str) -> list[object]:
        log = StreamLog.ensure(self.home, stream)
        return [value for piece in log.read(0, log.index().next) for value in piece.rows.column(name).to_pylist()]


SIZES = [8, 2, 0, 5]


def write(files: Path, number: int, size: int, name: object) -> None:
    """Write a file, in which every fourth line is no record, and rename it into place."""
    rows = [f'{{"time": 1, "n": {number * 100 + at}}}' if at % 4 != 3 else f"bad {number}.{at}" for at in range(size)]
    draft = files / f"{name}.part"
    draft.write_text("".join(f"{row}\n" for row in rows))
    draft.rename(draft.with_suffix(".ndjson"))


def check(readers: Readers, sizes: list[int]) -> None:
    """Read to the end, and compare the stream and the dead letters with the files."""
    quiet = 0
    while quiet < 4:
        quiet = 0 if readers.step(0) else quiet + 1
    StreamLog.ensure(readers.home, LOGS).settle_letters()
    lines = [(number, at) for number, size in enumerate(sizes) for at in range(size)]
    assert Counter(readers.column(LOGS, "n")) == Counter(number * 100 + at for number, at in lines if at % 4 != 3)
    assert Counter(readers.column(DEAD, "record")) == Counter(
        f"bad {number}.{at}" for number, at in lines if at % 4 == 3
    )


@contextmanager
def two_readers() -> Iterator[Readers]:
    with pytest.MonkeyPatch.context() as patch, passing_home() as room:
        patch.setattr(file_formats, "CHUNK_RECORDS", 3)
        patch.setattr(file_source, "SETTLE", 0.0)
        yield Readers(room)


def _dies_at(step: int, zombie: bool) -> bool:
    """Read some files with a death at a durable step; return whether it was reached."""
    with two_readers() as readers:
        for number, size in enumerate(SIZES):
            write(readers.files, number, size, number)
        readers.left = step
        for turn in range(24):
            readers.step(turn % 2 if zombie else 0)
        readers.left = None
        check(readers, SIZES)
        return readers.lives > 0


@pytest.mark.parametrize("zombie", [False, True], ids=["one process", "two processes"])
def test_a_death_at_any_durable_step_loses_and_repeats_nothing(zombie: bool) -> None:
    steps = 0
    while _dies_at(steps * 16, zombie):
        steps += 1
    assert steps > 3
    for step in sample(range(steps * 16), most=60):
        _dies_at(step, zombie)


@given(
    sizes=st.lists(st.integers(0, 8), min_size=1, max_size=6),
    names=st.permutations(range(6)),
    acts=st.lists(
        st.tuples(st.sampled_from(["appear", "step", "step", "die"]), st.integers(0, 1), st.integers(0, 40)),
        max_size=30,
    ),
)
@settings(max_examples=examples(40), deadline=None)
def test_every_record_of_every_file_is_read_once(
    sizes: list[int], names: list[int], acts: list[tuple[str, int, int]]
) -> None:
    with two_readers() as readers:
        waiting = list(enumerate(sizes))
        for act, reader, count in acts:
            if act == "appear" and waiting:
                number, size = waiting.pop(0)
                write(readers.files, number, size, names[number])
            elif act != "appear":
                readers.left = count if act == "die" else None
                readers.step(reader)
                readers.left = None
        for number, size in waiting:
            write(readers.files, number, size, names[number])
        check(readers, sizes)
