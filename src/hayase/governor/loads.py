"""Loads: how fast each queue fills, and how long one of its records takes (paper 3, 4.1).

The load of a queue is `rate * service`, the seconds of work that come to it in a second; S is the sum over all queues. Both
factors are measured over a sliding window, from totals that only grow: the ends of the logs, and the seconds and records
that the tasks report. Those who decide see *published* loads. A queue's is published again when it differs from what it
was by more than a threshold; that is the paper's notice, and `version` counts them.

Samples are kept at least a sixteenth of the window apart, so that the cost and the space do not depend on how often
somebody looks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hayase.core.errors import HayaseError

__all__ = ["GUESS", "THRESHOLD", "WINDOW", "LoadMeter", "Loads"]

WINDOW = 30.0
"""Seconds over which rates and service times are taken."""
THRESHOLD = 0.2
"""A load that differs by more than this share of what was published is published again."""
LEAST = 0.01
"""Loads below this, a hundredth of a worker, are not worth a notice of their own; the threshold is a share of it at least."""
GUESS = 0.1
"""Seconds that a record is taken to need while none was seen: rather too long, so that the first ones tell."""
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
        """S: how many workers it takes at least."""
        return float(self.load.sum())


class _Sample(NamedTuple):
    at: float
    ends: np.ndarray
    seconds: np.ndarray
    records: np.ndarray


class LoadMeter:
    """Measures the loads of some queues. Time is an argument; equal figures give equal loads."""

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
        """What is measured now; the published loads follow it."""
        self.loads = self.measured
        """What was published last."""

    def observe(self, now: float, ends: np.ndarray, seconds: np.ndarray, records: np.ndarray) -> bool:
        """Take in totals per queue: records that ever came, seconds of work and records done. True if that made a notice.

        >>> meter = LoadMeter(["a"], window=16.0)
        >>> meter.observe(0.0, np.array([0]), np.array([0.0]), np.array([0]))
        False
        >>> meter.observe(8.0, np.array([24]), np.array([40.0]), np.array([8]))
        True
        >>> meter.loads.rate, meter.loads.service
        (array([3.]), array([5.]))
        """
        sample = _Sample(now, *(np.array(each, np.float64) for each in (ends, seconds, records)))
        if any(each.shape != self._known.shape for each in sample[1:]):
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

    def among(self, queues: Sequence[Hashable]) -> LoadMeter:
        """A meter of other queues, which knows what this one knows of those it has too; the window begins anew."""
        other = LoadMeter(queues, window=self._window, threshold=self._threshold, guess=self._guess)
        places = {each: place for place, each in enumerate(self.queues)}
        old = np.array([places.get(each, -1) for each in other.queues], np.int64)
        new = np.flatnonzero(old >= 0)
        other._known[new] = self._known[old[new]]
        rate, service = other.measured.rate, other.measured.service
        rate[new], service[new] = self.measured.rate[old[new]], self.measured.service[old[new]]
        other.loads = Loads(rate, service, self.loads.version + 1)
        return other

    def _estimate(self, sample: _Sample, due: bool) -> Loads:
        """Rates when enough time has gone by; service times of all that was done, or what was known before."""
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
        # a queue to which nothing comes has no load, but what its records take must be known when some do
        changed |= np.abs(now.service - before.service) > self._threshold * before.service
        if not changed.any():
            return False
        self.loads = Loads(
            np.where(changed, now.rate, before.rate), np.where(changed, now.service, before.service), before.version + 1
        )
        return True
