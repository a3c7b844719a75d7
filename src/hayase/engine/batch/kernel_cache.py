"""The stage runtimes of this process: kernels that tasks have built, kept for the next batch.

A task takes a runtime out and puts it back when it has succeeded, so a task that fails leaves none behind. The cache holds at
most `LIMIT` runtimes; beyond that, those that have not been used for the longest time are dropped, and rebuilt from their state
if they are needed again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from threading import Lock
from typing import NamedTuple

from hayase.engine.batch.stage_runtime import StageRuntime

__all__ = ["LIMIT", "KernelCache", "KernelKey", "forget_kernels", "kernels"]

LIMIT = 16_384
"""Runtimes of a process: a thousand stages in sixteen buckets. Fewer than a batch needs would rebuild all of them in every
batch."""


class KernelKey(NamedTuple):
    """Which kernel: `epoch` is the start of the lane, `identity` and `fingerprint` are those of the stage."""

    home: str
    lane: str
    epoch: str
    identity: str
    fingerprint: str
    bucket: int


class KernelCache:
    """Runtimes by key, the least recently used first. Threads may share it."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit, self._lock = limit, Lock()
        self._runtimes: dict[KernelKey, StageRuntime] = {}  # in the order of use: every use takes out and puts back

    def take(self, key: KernelKey) -> StageRuntime | None:
        """Take a runtime out of the cache; None if it is not there."""
        with self._lock:
            return self._runtimes.pop(key, None)

    def put(self, key: KernelKey, runtime: StageRuntime) -> None:
        """Put a runtime in, as the one that was used last."""
        with self._lock:
            self._runtimes.pop(key, None)
            self._runtimes[key] = runtime
            while len(self._runtimes) > self._limit:
                del self._runtimes[next(iter(self._runtimes))]

    def retain(self, home: str, lane: str, epoch: str, stages: Collection[tuple[str, str]]) -> None:
        """Of a lane, drop what belongs to earlier epochs or to other stages than these (identity and fingerprint)."""
        with self._lock:
            for key in [key for key in self._runtimes if (key.home, key.lane) == (home, lane)]:
                if key.epoch != epoch or (key.identity, key.fingerprint) not in stages:
                    del self._runtimes[key]

    def __iter__(self) -> Iterator[KernelKey]:
        """The keys, the least recently used first."""
        with self._lock:
            return iter(list(self._runtimes))

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._runtimes.clear()


kernels = KernelCache()
"""The cache of this process."""


def forget_kernels() -> None:
    """Drop every kernel of this process, as the loss of a worker does."""
    kernels.clear()
