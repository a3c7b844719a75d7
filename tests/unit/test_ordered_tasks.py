"""Results of tasks that run in threads: in order, with the error in its place, and no thread that stays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from hayase.core.errors import HayaseError
from hayase.streams.ordered_tasks import results_ahead


def numbers(count: int) -> Iterator[Callable[[], int]]:
    return (lambda at=at: at for at in range(count))  # type: ignore[misc]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_order_and_the_error_of_the_iterator_behind_them(threads: int) -> None:
    def tasks() -> Iterator[Callable[[], int]]:
        yield from numbers(100)
        raise HayaseError("the end")

    results: list[int] = []
    with pytest.raises(HayaseError, match="the end"):
        results.extend(results_ahead(tasks(), threads))
    assert results == list(range(100))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_first_error_of_a_task_comes_in_its_place(threads: int) -> None:
    def fail(at: int) -> int:
        if at in (17, 18):
            raise HayaseError(f"task {at}")
        return at

    results: list[int] = []
    with pytest.raises(HayaseError, match="task 17"):
        results.extend(results_ahead((lambda at=at: fail(at) for at in range(100)), threads))  # type: ignore[misc]
    assert results == list(range(17))


def test_tasks_run_at_the_same_time() -> None:
    both = threading.Barrier(2)  # neither task ends before the other has begun

    def meet() -> int:
        return both.wait(60) * 0

    assert list(results_ahead(iter([meet, meet]), threads=2)) == [0, 0]


@pytest.mark.parametrize("threads", [1, 3])
def test_who_stops_early_leaves_no_thread_behind(threads: int) -> None:
    before = threading.active_count()
    ahead = results_ahead(numbers(1000), threads)
    assert next(ahead) == 0
    ahead.close()
    assert threading.active_count() == before
