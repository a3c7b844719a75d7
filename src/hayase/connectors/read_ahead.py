"""Reads a source one portion ahead: while records are appended to the log, the next ones are fetched and decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from hayase.connectors.source import Portion

__all__ = ["ReadAhead"]

Read = Callable[[Mapping[str, int], float], Sequence[Portion]]


class ReadAhead:
    """The `read` of a source, called by a thread as soon as the positions of the next call can be told. A call with other
    positions reads anew. Behind an empty answer nothing is read ahead: a topic without messages keeps no thread busy."""

    def __init__(self, read: Read):
        self._read = read
        self._pool = ThreadPoolExecutor(1, "read-ahead")
        self._next: tuple[dict[str, int], Future[Sequence[Portion]]] | None = None

    def __call__(self, positions: Mapping[str, int], patience: float) -> Sequence[Portion]:
        """Return records from these positions on, as `Source.read` does."""
        at, ahead = dict(positions), self._next
        self._next = None
        if ahead is not None and ahead[0] == at:
            portions = ahead[1].result()
        else:
            if ahead is not None:
                ahead[1].exception()  # whatever it reads is not wanted
            portions = self._read(at, patience)
        if portions:
            behind = at | {portion.partition: portion.next for portion in portions}
            self._next = behind, self._pool.submit(self._read, behind, patience)
        return portions

    def close(self) -> None:
        """Wait until nothing is being read."""
        self._pool.shutdown()
