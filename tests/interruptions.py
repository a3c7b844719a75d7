"""What tests that interrupt a pipeline share: a script of acts, homes in memory, a gate, a full disk."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from effort import LONG, sample
from hayase.core.errors import HayaseError
from hayase.engine.batch.gate import Grants
from hayase.engine.batch.kernel_cache import forget_kernels
from hayase.streams import durable

Check = Callable[[Path, int], None]
"""Takes a home to its end, and says whether it holds what it must when so much was appended."""
DEATHS_CHECKED = 6
"""How many of an act's deaths a short run checks."""
Deaths = dict[str, list[tuple[str, Path]]]
"""What `kill -9` would leave at every durable step, by act: the step, and the home as it was then."""


@dataclass(frozen=True)
class Act:
    """A step of a script, that can be repeated; `upto` is how much has been appended when it is done."""

    name: str
    do: Callable[[Path], object]
    upto: int


@dataclass
class Granting:
    """A gate that a test sets."""

    now: Grants = field(default_factory=Grants)

    def grants(self) -> Grants:
        return self.now


@contextmanager
def room_for_homes() -> Iterator[Path]:
    """A place for many homes: in memory, if that can be."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


@contextmanager
def passing_home() -> Iterator[Path]:
    """A home for one run, which waits for no disk."""
    with room_for_homes() as directory, durable.without_syncs():
        yield directory


def check_deaths(act: Act, deaths: Deaths, check: Check) -> None:
    """Homes that a death in the act left are started again and taken to the end: all of them in a long run, else a sample."""
    assert deaths[act.name]
    for step, home in sample(deaths[act.name], most=DEATHS_CHECKED):
        forget_kernels()
        try:
            act.do(home)
            check(home, act.upto)
        except Exception as error:
            raise AssertionError(f'after a death at "{step}": {error}') from error


class FullDisk:
    """No room, from the n-th durable step on that needs some, until told otherwise."""

    NEEDS_ROOM = ("write", "create", "make directory", "fsync file", "rename", "write of a store", "ingest of a store")

    def __init__(self, after: int):
        self.left, self.full, self.met = after, True, False

    def __call__(self, step: str) -> None:
        if self.full and step.removeprefix("before ") in self.NEEDS_ROOM:
            self.left -= 1
            if self.left < 0:
                self.met = True
                raise OSError(errno.ENOSPC, "No space left on device")


def check_full_disk(act: Act, before: Path, check: Check, patch: pytest.MonkeyPatch, each_of: int) -> None:
    """The disk is full from each of the first so many steps of the act on (a third as many outside of long runs), and from every
    ninth of the others: it says so, and the same process goes on when there is room again. `before` is the home as it was when
    the act began."""
    room_for, met = 0, True
    each_of, stride = (each_of, 9) if LONG else (each_of // 3, 27)
    while met:
        home = before.with_name(f"{before.name} full {room_for}")
        shutil.copytree(before, home)
        disk = FullDisk(after=room_for)
        patch.setattr(durable, "reached", disk)
        told = "No space left"
        try:
            act.do(home)
        except (HayaseError, OSError) as error:
            told = str(error)
        met, disk.full = disk.met, False
        assert "No space left" in told
        act.do(home)
        check(home, act.upto)
        shutil.rmtree(home)
        room_for += 1 if room_for < each_of else stride
