"""A source that is read ahead gives the portions that it gives without."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

import pytest

from hayase.connectors.read_ahead import ReadAhead
from hayase.connectors.source import Portion


class Numbers:
    """Thirty numbers of each partition, ten at once; it notes from which positions it was read."""

    def __init__(self) -> None:
        self.calls: list[dict[str, int]] = []
        self.failing = False
        self.called = threading.Semaphore(0)

    def read(self, positions: Mapping[str, int], patience: float) -> Sequence[Portion]:
        self.calls.append(dict(positions))
        self.called.release()
        if self.failing:
            raise ValueError("the other side is gone")
        return [
            Portion(partition, [{"n": number} for number in range(first, first + 10)], first + 10)
            for partition, first in positions.items()
            if first < 30
        ]


@pytest.fixture
def numbers() -> Numbers:
    return Numbers()


@pytest.fixture
def ahead(numbers: Numbers) -> Iterator[ReadAhead]:
    with closing(ReadAhead(numbers.read)) as made:
        yield made


def test_portions_follow_one_another_and_each_is_read_once(numbers: Numbers, ahead: ReadAhead) -> None:
    at, seen = {"0": 0}, []
    while portions := ahead(at, 0.0):
        seen += [row["n"] for portion in portions for row in portion.records]  # type: ignore[union-attr]
        at = at | {portion.partition: portion.next for portion in portions}
    assert seen == list(range(30))
    assert numbers.calls == [{"0": 0}, {"0": 10}, {"0": 20}, {"0": 30}]


def test_other_positions_are_read_anew(numbers: Numbers, ahead: ReadAhead) -> None:
    ahead({"0": 0}, 0.0)
    assert [portion.next for portion in ahead({"0": 0}, 0.0)] == [10]
    assert [portion.next for portion in ahead({"0": 10, "1": 0}, 0.0)] == [20, 10]
    assert numbers.calls[:2] == [{"0": 0}, {"0": 10}]


def test_the_positions_of_the_caller_may_change_meanwhile(numbers: Numbers, ahead: ReadAhead) -> None:
    positions = {"0": 0}
    ahead(positions, 0.0)
    positions["0"] = 10
    assert [portion.next for portion in ahead(positions, 0.0)] == [20]


def test_an_error_comes_where_its_records_were_expected(numbers: Numbers, ahead: ReadAhead) -> None:
    numbers.failing = True
    with pytest.raises(ValueError, match="gone"):
        ahead({"0": 0}, 0.0)
    numbers.failing = False
    ahead({"0": 10}, 0.0)
    for _ in range(3):  # two calls, and the one that reads ahead
        assert numbers.called.acquire(timeout=60)
    numbers.failing = True
    ahead({"0": 20}, 0.0)
    with pytest.raises(ValueError, match="gone"):
        ahead({"0": 30}, 0.0)


def test_an_error_of_what_is_not_wanted_is_not_raised(numbers: Numbers, ahead: ReadAhead) -> None:
    ahead({"0": 0}, 0.0)
    for _ in range(2):
        assert numbers.called.acquire(timeout=60)
    numbers.failing = True
    ahead({"0": 10}, 0.0)
    assert numbers.called.acquire(timeout=60)
    numbers.failing = False
    assert [portion.next for portion in ahead({"0": 0}, 0.0)] == [10]


def test_nothing_is_read_ahead_behind_an_empty_answer(numbers: Numbers, ahead: ReadAhead) -> None:
    assert not ahead({"0": 30}, 0.0)
    ahead.close()
    assert numbers.calls == [{"0": 30}]
