"""What the governors of the lanes measure, as JSON data, and the samples of it for an hour."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from hayase.core.data_classes import dataclass
from hayase.engine.batch.lane_governor import GovernorStatus

__all__ = ["LoadSamples", "lane_figures"]

MOST_QUEUES = 100
"""Queues of a lane that are shown and sampled, the busiest ones."""


def lane_figures(statuses: Iterable[GovernorStatus]) -> list[dict[str, Any]]:
    """Return the measurements of each lane; rounded, so that an idle pipeline gives the same again and again.

    >>> lane_figures([GovernorStatus("main", "informed", 4, 0, 10, 5, u=0.97)])[0]["empty"]
    0.5
    """
    return [_lane(status) for status in statuses]


def _lane(status: GovernorStatus) -> dict[str, Any]:
    busiest = sorted(status.queues, key=lambda queue: (-queue.load, -queue.waiting))
    return {
        "lane": status.lane,
        "policy": status.policy,
        "u": status.u,
        "slots": status.slots,
        "load": _rounded(status.load),
        "empty": round(status.empty / status.polls, 2) if status.polls else 0.0,
        "queues": [
            {
                "stage": queue.stage, "stream": queue.stream, "rate": _rounded(queue.rate), "service": _rounded(queue.service),
                "load": _rounded(queue.load), "share": round(queue.share, 3), "waiting": queue.waiting,
            }
            for queue in busiest[:MOST_QUEUES]
        ],
        "more": max(0, len(busiest) - MOST_QUEUES),
    }  # fmt: skip


def _rounded(value: float) -> float:
    return float(f"{value:.3g}") if value >= 1e-6 else 0.0


@dataclass(slots=True)
class _Samples:
    loads: deque[float]
    shares: deque[float]


@dataclass(slots=True)
class LoadSamples:
    """Loads and shares of the queues, sample by sample; of each queue the last `most`."""

    most: int
    _queues: dict[tuple[str, str, str], _Samples] = field(default_factory=dict)

    def add(self, lanes: Sequence[Mapping[str, Any]]) -> None:
        """Add a sample of `lane_figures`; queues that are gone are dropped."""
        figures = {(lane["lane"], queue["stage"], queue["stream"]): queue for lane in lanes for queue in lane["queues"]}
        self._queues = {
            name: self._queues.get(name) or _Samples(deque(maxlen=self.most), deque(maxlen=self.most)) for name in figures
        }  # fmt: skip
        for name, samples in self._queues.items():
            samples.loads.append(figures[name]["load"])
            samples.shares.append(figures[name]["share"])

    def as_json(self) -> list[dict[str, Any]]:
        """Return the samples as plain data."""
        return [
            {"lane": lane, "stage": stage, "stream": stream, "loads": list(samples.loads), "shares": list(samples.shares)}
            for (lane, stage, stream), samples in self._queues.items()
        ]  # fmt: skip
