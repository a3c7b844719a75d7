"""Waiting for new files in directories."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hayase.streams.directory_watch import DirectoryWatch

LONG = 600.0
"""Seconds that no wait here takes."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is part of Linux")


@pytest.fixture
def watch(tmp_path: Path) -> DirectoryWatch:
    (tmp_path / "log").mkdir()
    watch = DirectoryWatch()
    watch.watch([tmp_path / "log", tmp_path / "missing"])
    return watch


def test_a_file_that_is_created_or_renamed_into_a_directory_ends_the_wait(
    watch: DirectoryWatch, tmp_path: Path
) -> None:
    (tmp_path / "log" / "clock").touch()
    assert watch.wait(LONG)
    watch.forget()
    (tmp_path / "draft").touch()
    (tmp_path / "draft").rename(tmp_path / "log" / "segment")
    assert watch.wait(LONG)


def test_what_came_before_is_forgotten(watch: DirectoryWatch, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / "log" / f"{number}").touch()
    watch.forget()
    assert not watch.wait(0.0)


def test_removals_and_other_directories_do_not_matter(watch: DirectoryWatch, tmp_path: Path) -> None:
    (tmp_path / "log" / "old").touch()
    watch.forget()
    (tmp_path / "log" / "old").unlink()
    (tmp_path / "other").touch()
    assert not watch.wait(0.0)


def test_a_directory_that_is_created_later_is_watched_by_the_next_call(watch: DirectoryWatch, tmp_path: Path) -> None:
    (tmp_path / "missing").mkdir()
    watch.watch([tmp_path / "missing"])
    (tmp_path / "missing" / "segment").touch()
    assert watch.wait(LONG)
