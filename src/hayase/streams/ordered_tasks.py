"""Runs tasks in threads, ahead of whoever takes their results, and gives the results in the order of the tasks."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Generic, TypeVar

__all__ = ["results_ahead"]

_AHEAD = 8
"""Maximal number of tasks whose results nobody has taken yet, beside those that run."""
_T = TypeVar("_T")


class _Result(Generic[_T]):
    """The result of one task, or its error, once `ready` is set."""

    __slots__ = ("error", "ready", "value")

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.value: _T
        self.error: BaseException | None = None

    def run(self, task: Callable[[], _T]) -> None:
        try:
            self.value = task()
        except BaseException as error:
            self.error = error
        self.ready.set()


def results_ahead(tasks: Iterator[Callable[[], _T]], threads: int = 1) -> Generator[_T, None, None]:
    """Yield the results of tasks in their order, and raise the first error of a task or of the iterator in its place.

    The threads draw tasks in turn, one at a time, and run them at the same time. They end with the generator.

    >>> list(results_ahead((lambda at=at: at * at for at in range(5)), threads=2))
    [0, 1, 4, 9, 16]
    """
    in_order: queue.Queue[_Result[_T] | None] = queue.Queue(_AHEAD)
    turn, ended = threading.Lock(), threading.Event()

    def draw() -> tuple[_Result[_T], Callable[[], _T]] | None:
        """Draw the next task and queue its result; None at the end."""
        with turn:
            if ended.is_set():
                return None
            result: _Result[_T] = _Result()
            try:
                task = next(tasks)
            except StopIteration:
                ended.set()
                in_order.put(None)
                return None
            except BaseException as error:
                ended.set()
                result.error = error
                result.ready.set()
                in_order.put(result)
                return None
            in_order.put(result)
            return result, task

    def work() -> None:
        while (drawn := draw()) is not None:
            result, task = drawn
            result.run(task)

    workers = [threading.Thread(target=work, name="reading", daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        while (result := in_order.get()) is not None:
            result.ready.wait()
            if result.error is not None:
                raise result.error
            yield result.value
    finally:
        ended.set()
        with contextlib.suppress(queue.Empty):
            in_order.get_nowait()  # a thread may wait for room, and puts at most one more result
        for worker in workers:
            worker.join()
