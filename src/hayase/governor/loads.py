"""The measurement of loads: arrival rate and mean service time of each queue (paper 3, 4.1).

The load of a queue is `rate * service`, the seconds of work that arrive per second; S is the sum over all queues. Both factors are
measured over a sliding window, from totals that only grow: the ends of the logs, and the seconds and records that tasks report.
Policies see *published* loads. A load is published again when it differs from the published one by more than a threshold; that is
the paper's notice, and `version` counts them.

Samples are at least a sixteenth of the window apart, so that time and space do not depend on the frequency of calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from hayase.core.data_classes import dataclass
from hayase.core.errors import HayaseError

__all__ = ["GUESS", "THRESHOLD", "WINDOW", "LoadMeter", "Loads"]

WINDOW = 30.0
"""Seconds over which rates and service times are measured."""
THRESHOLD = 0.2
"""A load that differs by more than this share from the published one is published again."""
LEAST = 0.01
"""The threshold is a share of at least this load, a hundredth of a worker, so that changes of tiny loads make no notice."""
GUESS = 0.1
"""The assumed service time in seconds before any record was processed: rather too long, since the first ones correct it."""
PANES = 16


@dataclass(frozen=True, slots=True)
class Loads:
    """Records per second and seconds per record, for every queue.

    >>> loads = Loads(rate=np.array([3.0, 1.0]), service=np.array([5.0, 0.5]))
    >>> loads.load, loads.total
    (array([15. ,  0.5]), 15.5)
    """

    rate: np.ndarray
    service: np.ndarray
    version: int = 0

    @property
    def load(self) -> np.ndarray:
        return self.rate * self.service

    @property
    def total(self) -> float:
        """S: the least number of workers that can process the load."""
        return float(self.load.sum())


class _Sample(NamedTuple):
    at: float
    ends: np.ndarray
    seconds: np.ndarray
    records: np.ndarray


class LoadMeter:
    """Measures the loads of queues. Time is an argument, so equal measurements give equal loads."""

    def __init__(
        self,
        queues: Sequence[Hashable],
        *,
        window: float = WINDOW,
        threshold: float = THRESHOLD,
        guess: float = GUESS,
    ) -> None:
        self.queues = tuple(queues)
        self._window, self._threshold, self._guess = window, threshold, guess
        count = len(self.queues)
        self._samples: deque[_Sample] = deque()
        self._known = np.zeros(count, np.bool_)
        self.measured = Loads(np.zeros(count), np.full(count, guess))
        """The loads as measured now; the published loads follow them."""
        self.loads = self.measured
        """The loads as last published."""

    def observe(self, now: float, ends: np.ndarray, seconds: np.ndarray, records: np.ndarray) -> bool:
        """Record totals per queue: records arrived, seconds of work, records processed. Return whether loads were published.

        >>> meter = LoadMeter(["a"], window=16.0)
        >>> meter.observe(0.0, np.array([0]), np.array([0.0]), np.array([0]))
        False
        >>> meter.observe(8.0, np.array([24]), np.array([40.0]), np.array([8]))
        True
        >>> meter.loads.rate, meter.loads.service
        (array([3.]), array([5.]))
        """
        sample = _Sample(now, *(np.array(totals, np.float64) for totals in (ends, seconds, records)))
        if any(totals.shape != self._known.shape for totals in sample[1:]):
            raise HayaseError(f"there are {len(self.queues)} queues; the figures are of {len(sample.ends)}")
        if not self._samples:
            self._samples.append(sample)
            return False
        fresh = not self._known.all() and bool((sample.records > self._samples[0].records)[~self._known].any())
        due = now - self._samples[-1].at >= self._window / PANES
        if not due and not fresh:
            return False
        while len(self._samples) > 1 and self._samples[1].at <= now - self._window:
            self._samples.popleft()
        self.measured = self._estimate(sample, due)
        if due:
            self._samples.append(sample)
        return self._publish()

    def for_queues(self, queues: Sequence[Hashable]) -> LoadMeter:
        """Return a meter of other queues that keeps the measurements of common ones; its window begins anew."""
        other = LoadMeter(queues, window=self._window, threshold=self._threshold, guess=self._guess)
        places = {queue: place for place, queue in enumerate(self.queues)}
        old = np.array([places.get(queue, -1) for queue in other.queues], np.int64)
        new = np.flatnonzero(old >= 0)
        other._known[new] = self._known[old[new]]
        rate, service = other.measured.rate, other.measured.service
        rate[new], service[new] = self.measured.rate[old[new]], self.measured.service[old[new]]
        other.loads = Loads(rate, service, self.loads.version + 1)
        return other

    def _estimate(self, sample: _Sample, due: bool) -> Loads:
        """Return new rates if enough time has passed, and service times: of the records processed, or as known before."""
        first = self._samples[0]
        rate = np.maximum(sample.ends - first.ends, 0) / (sample.at - first.at) if due else self.measured.rate
        done = sample.records - first.records
        has = done > 0
        self._known |= has
        service = np.where(has, (sample.seconds - first.seconds) / np.where(has, done, 1), self.measured.service)
        return Loads(rate, np.maximum(service, 0.0))

    def _publish(self) -> bool:
        before, now = self.loads, self.measured
        changed = np.abs(now.load - before.load) > self._threshold * np.maximum(before.load, LEAST)
        # a queue without arrivals has no load, but its service time must be known when records arrive
        changed |= np.abs(now.service - before.service) > self._threshold * before.service
        if not changed.any():
            return False
        self.loads = Loads(
            np.where(changed, now.rate, before.rate), np.where(changed, now.service, before.service), before.version + 1
        )
        return True
