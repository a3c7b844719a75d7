"""Governor: workers needed against a hot queue, and empty polls against waiting time, under every policy (simulated).

figure 5   n - 1 queues with a record a second and a hot one: the least workers, of 50, with which no queue passes 600
           records in half an hour; 50 and 200 queues
figure 8   30 queues with a record a second, 28 workers: length of the queues and share of empty polls against u, and
           where the informed policy stands; a look of its that finds nothing counts as an empty poll
size       10,000 queues, 1,100 workers: polls that are simulated in a second of CPU time

Paper 3 gives a service time for figure 8 alone, 0.1 s, which is used throughout, and not the cost of an empty poll. But its
98.8% of empty polls at u = 0 tell: 25 idle workers make 30 * 98.8 / 1.2 = 2,470 of them in a second, 10 ms each. Arrivals
are Poisson, service times constant. Loads are measured over 30 s and published when they change by 20%.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hayase.governor import Adaptive, Informed, Policy, RoundRobin
from hayase.governor.scenarios import Outcome, Poisson, Scenario
from hayase.governor.simulator import simulate

SEED = 5
SERVICE = 0.1
EMPTY_POLL = 0.01
LIMIT = 600
MOST = 50
SIZES = (50, 200)
POLICIES: Mapping[str, Policy] = {"round-robin": RoundRobin(), "ALS": Adaptive(), "informed": Informed()}


def run(*, quick: bool, out: Path) -> dict[str, Any]:
    """Simulate, draw into `out`, and return plain data."""
    out.mkdir(parents=True, exist_ok=True)
    hot_rates, seconds = ((1, 10), 700.0) if quick else ((1, 5, 10, 20, 40, 80), 1800.0)
    knobs = (0.0, 0.5, 0.9) if quick else (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
    needed = {
        queues: {
            name: {hot: _needed(policy, queues, hot, seconds) for hot in hot_rates} for name, policy in POLICIES.items()
        }
        for queues in SIZES
    }
    length = 240.0 if quick else 1200.0
    against_u = {u: _figures(_figure_8(Adaptive(u=u), length)) for u in knobs}
    informed = _figures(_figure_8(Informed(), length))
    size = {name: _polls_per_second(policy, 5.0 if quick else 60.0) for name, policy in POLICIES.items()}
    picture = _draw(out / "governor.png", hot_rates, needed, against_u, informed)
    return {
        "service_seconds": SERVICE,
        "empty_poll_seconds": EMPTY_POLL,
        "figure_5_seconds": seconds,
        "figure_5_workers": needed,
        "figure_8": against_u,
        "figure_8_informed": informed,
        "polls_simulated_per_second_10000_queues": size,
        "picture": str(picture),
        "ratios": {
            **_against_load(needed),
            "200 queues, hot queue of 10 records a second: workers, round-robin to ALS": _count(
                needed[200]["round-robin"][10]
            )
            / _count(needed[200]["ALS"][10]),
            "largest difference between the share of empty polls and 1 - u": max(
                abs(each["empty_share"] - (1 - u)) for u, each in against_u.items()
            ),
            "share of empty polls, informed (at most 0.05)": informed["empty_share"],
            "time to completion, informed to u = 0 (at most 2)": informed["completion_seconds"]
            / against_u[0.0]["completion_seconds"],
            "time to completion, u = 0.9 to u = 0": against_u[0.9]["completion_seconds"]
            / against_u[0.0]["completion_seconds"],
        },
    }


def _load(queues: int, hot: float) -> float:
    return (queues - 1 + hot) * SERVICE


def _needed(policy: Policy, queues: int, hot: float, seconds: float) -> int | None:
    """The least number of workers that is enough; None if more than there are.

    Tried from the load S on: with fewer, queues grow for ever, though 200 of them do so too slowly for any run to tell.
    """
    rates = np.ones(queues)
    rates[-1] = hot

    def enough(workers: int) -> bool:
        scenario = Scenario(Poisson(rates), np.full(queues, SERVICE), workers, seconds, EMPTY_POLL, limit=LIMIT)
        return not simulate(scenario, policy, SEED).failed

    most = math.ceil(_load(queues, hot))
    step, least = 1, most - 1
    while not enough(most):
        if most >= MOST:
            return None
        least, most, step = most, min(most + step, MOST), 2 * step
    while most - least > 1:
        middle = (least + most) // 2
        if enough(middle):
            most = middle
        else:
            least = middle
    return most


def _figure_8(policy: Policy, seconds: float) -> Outcome:
    scenario = Scenario(
        Poisson(np.ones(30)), np.full(30, SERVICE), workers=28, seconds=seconds, empty_poll=EMPTY_POLL, warmup=60.0
    )
    return simulate(scenario, policy, SEED)


def _figures(outcome: Outcome) -> dict[str, float]:
    return {
        "empty_share": outcome.empty_share,
        "queue_length": outcome.length,
        "completion_seconds": outcome.completion,
        "polls": outcome.polls,
    }


def _polls_per_second(policy: Policy, seconds: float) -> float:
    scenario = Scenario(
        Poisson(np.ones(10_000)), np.full(10_000, SERVICE), workers=1_100, seconds=seconds, empty_poll=EMPTY_POLL
    )
    began = time.process_time()
    outcome = simulate(scenario, policy, SEED)
    return outcome.polls / (time.process_time() - began)


def _against_load(needed: Mapping[int, Mapping[str, Mapping[int, int | None]]]) -> dict[str, float]:
    """The worst over all rates of the hot queue."""
    return {
        f"{queues} queues: workers, {name} to 1.1 S + 1, at worst{' (at most 1)' if name == 'ALS' else ''}": max(
            _count(workers) / (1.1 * _load(queues, hot) + 1) for hot, workers in needed[queues][name].items()
        )
        for queues in SIZES
        for name in ("ALS", "informed")
    }


def _count(workers: int | None) -> float:
    """What 50 workers do not do counts as infinitely many."""
    return math.inf if workers is None else workers


def _draw(
    path: Path,
    hot_rates: Sequence[int],
    needed: Mapping[int, Mapping[str, Mapping[int, int | None]]],
    against_u: Mapping[float, Mapping[str, float]],
    informed: Mapping[str, float],
) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (workers, empty, length) = plt.subplots(1, 3, figsize=(15, 4.8))
    styles = {"round-robin": "o:", "ALS": "s-", "informed": "^--"}
    for number, queues in enumerate(SIZES):
        for name, counts in needed[queues].items():
            found = [(hot, count) for hot, count in counts.items() if count is not None]
            workers.plot(*zip(*found, strict=True), styles[name], color=f"C{number}", label=f"{name}, {queues} queues")
        workers.plot(
            hot_rates,
            [_load(queues, hot) for hot in hot_rates],
            color="0.6",
            linewidth=1,
            label="load S" if number == 0 else None,
        )
    workers.set(
        title=f"Workers needed (x = {SERVICE:g} s, an empty poll {EMPTY_POLL * 1000:g} ms)",
        xlabel="records per second of the hot queue",
        ylabel=f"workers, of {MOST}",
        ylim=(0, MOST + 2),
    )
    knobs = list(against_u)
    empty.plot(knobs, [each["empty_share"] for each in against_u.values()], "s-", label="ASC")
    empty.plot([0, 1], [1, 0], color="0.6", linewidth=1, label="1 - u")
    empty.axhline(informed["empty_share"], color="C2", linestyle="--", label="informed")
    empty.set(title="30 queues, 28 workers: empty polls", xlabel="u", ylabel="share of all polls", ylim=(0, 1))
    length.plot(knobs, [each["queue_length"] for each in against_u.values()], "s-", label="ASC")
    length.axhline(informed["queue_length"], color="C2", linestyle="--", label="informed")
    length.set(title="Length of a queue", xlabel="u", ylabel="records", yscale="log")
    for axes in (workers, empty, length):
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path
