"""When a source has a backlog, by the speed at which its positions move, and how a lane comes to know of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hayase.connectors.backlog import AGAIN, SOON, WINDOW, Backlog
from hayase.core.clock import now_us
from hayase.engine.home import Home
from hayase.engine.source_backlogs import FRESH, clear_backlog, has_backlog, note_backlog


class Said:
    """What a backlog has said, in order; the first is that there is none, whatever a process before this one has left."""

    def __init__(self, ends: dict[str, int]) -> None:
        self.words: list[str] = []
        self.backlog = Backlog(lambda: self.words.append("backlog"), lambda: self.words.append("none"))
        self.backlog.set_ends(ends)
        assert self.words.pop() == "none"

    def at(self, moment: float, **positions: int) -> list[str]:
        """What it says to positions at a moment."""
        self.words.clear()
        self.backlog.update(positions, moment)
        return list(self.words)


def test_more_than_is_read_in_a_moment_is_a_backlog_until_the_rest_is_less() -> None:
    said = Said({"a": 1_000, "b": 500})
    assert said.at(0.0) == [], "nothing has been read"
    assert said.at(1.0, a=0, b=0) == [], "how fast it is read is not known"
    assert said.at(1.1, a=100, b=50) == ["backlog"]
    assert said.at(1.2, a=200, b=100) == [], "it was said"
    assert said.at(1.4, a=400, b=200) == []
    assert said.at(1.6, a=700, b=260) == ["none"]
    assert said.at(1.7, a=900, b=400) == []


def test_a_backlog_that_goes_on_is_said_again() -> None:
    said = Said({"a": 1_000_000})
    said.at(0.0, a=0)
    found = [moment for moment in range(1, 40) if said.at(moment / 10, a=moment * 100) == ["backlog"]]
    assert [each / 10 for each in found] == pytest.approx([0.1, 0.1 + AGAIN, 0.1 + 2 * AGAIN, 0.1 + 3 * AGAIN])


def test_new_records_at_the_end_are_a_backlog_only_if_reading_them_takes_a_while() -> None:
    said = Said({"a": 100})
    said.at(0.0, a=0)
    assert said.at(1.0, a=100) == []
    said.backlog.set_ends({"a": 100 + int(90 * SOON)})
    assert said.at(1.5, a=150) == []
    said.backlog.set_ends({"a": 1_000})
    assert said.at(1.6, a=160) == ["backlog"]


def test_a_source_that_stands_still_has_none() -> None:
    said = Said({"a": 1_000})
    said.at(0.0, a=0)
    assert said.at(0.5, a=10) == ["backlog"]
    for moment in (1.0, 1.5):
        said.at(moment, a=10)
    assert said.at(0.5 + 2 * WINDOW, a=10) == ["none"]


def test_a_source_that_is_closed_has_none() -> None:
    said = Said({"a": 1_000})
    said.at(0.0, a=0)
    assert said.at(0.1, a=10) == ["backlog"]
    said.backlog.close()
    assert said.words[-1] == "none"


def test_a_lane_knows_of_a_backlog_for_a_few_seconds_and_until_its_end(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert not has_backlog(home, "orders", now_us())
    note_backlog(home, "orders")
    path = tmp_path / "sources" / "orders" / "backlog"
    os.utime(path, (1_000, 1_000))
    assert has_backlog(home, "orders", 1_001_000_000)
    assert not has_backlog(home, "users", 1_001_000_000)
    assert not has_backlog(home, "orders", round((1_000 + FRESH) * 1e6)), "its process was killed"
    clear_backlog(home, "orders")
    assert not has_backlog(home, "orders", 1_001_000_000)
    clear_backlog(home, "orders")
