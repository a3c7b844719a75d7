"""Scenarios and outcomes of the governor simulator: arrivals, service times and workers; waiting times and polls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hayase.governor.loads import THRESHOLD, WINDOW

__all__ = ["Arrivals", "Factors", "Outcome", "Poisson", "Scenario", "Trace", "constant", "exponential"]

Factors = Callable[[np.random.Generator, int], np.ndarray]
"""Draws service times of some records, in multiples of their queue's mean: any distribution with mean 1."""


def constant(random: np.random.Generator, count: int) -> np.ndarray:
    """All records of a queue have the same service time."""
    return np.ones(count)


def exponential(random: np.random.Generator, count: int) -> np.ndarray:
    """Exponentially distributed service times: the second M of M/M/c."""
    return random.exponential(1.0, count)


class Arrivals(Protocol):
    """Returns the times and queues of arrivals in [start, stop), in order of time. Called for consecutive intervals."""

    @property
    def queues(self) -> int: ...

    def between(self, start: float, stop: float, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]: ...


@dataclass(frozen=True)
class Poisson:
    """Independent arrivals, with a rate for every queue."""

    rates: np.ndarray

    @property
    def queues(self) -> int:
        return len(self.rates)

    def between(self, start: float, stop: float, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        counts = random.poisson(self.rates * (stop - start))
        times = start + random.random(int(counts.sum())) * (stop - start)
        order = np.argsort(times)
        return times[order], np.repeat(np.arange(len(counts)), counts)[order]


@dataclass(frozen=True)
class Trace:
    """Recorded arrivals: times in order, with their queues."""

    times: np.ndarray
    to: np.ndarray
    queues: int

    def between(self, start: float, stop: float, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        first, last = np.searchsorted(self.times, (start, stop))
        return self.times[first:last], self.to[first:last]


@dataclass(frozen=True)
class Scenario:
    """The input of a simulation. Seconds before `warmup` do not count; a queue longer than `limit` ends the run as failed."""

    arrivals: Arrivals
    service: np.ndarray
    workers: int
    seconds: float
    empty_poll: float
    factors: Factors = constant
    warmup: float = 0.0
    limit: float = math.inf
    changes: Sequence[tuple[float, int]] = ()
    """Changes of the number of workers: (time, number), in order; each takes effect at the next sample."""
    window: float = WINDOW
    threshold: float = THRESHOLD


@dataclass(frozen=True)
class Outcome:
    """The result of a simulation. Waiting ends when service begins; lengths, sampled every second, exclude records in service."""

    seconds: float
    failed: bool
    arrived: int
    served: np.ndarray
    waits: np.ndarray
    services: np.ndarray
    lengths: np.ndarray
    longest: int
    left: int
    polls: int
    empty: int
    rested: float
    notices: int

    @property
    def empty_share(self) -> float:
        return self.empty / self.polls if self.polls else 0.0

    @property
    def wait(self) -> float:
        """Mean seconds from arrival to the beginning of service."""
        return float(self.waits.mean()) if len(self.waits) else 0.0

    @property
    def completion(self) -> float:
        """Mean seconds from arrival to the end of service."""
        return self.wait + (float(self.services.mean()) if len(self.services) else 0.0)

    @property
    def length(self) -> float:
        """Mean number of waiting records per queue."""
        return float(self.lengths.mean()) if len(self.lengths) else 0.0
