"""Governor: workers needed against a hot queue, and empty polls against waiting time, under every policy.

figure 5   n - 1 queues with a record a second and a hot one: the least workers, of 50, with which no queue passes 600
           records in half an hour; 50 and 200 queues
figure 8   30 queues with a record a second, 28 workers: length of the queues and share of empty polls against u, and
           where the informed policy stands; a look of its that finds nothing counts as an empty poll
size       10,000 queues, 1,100 workers: polls that are simulated in a second of CPU time

Paper 3 gives a service time for figure 8 alone, 0.1 s, which is used throughout, and not the cost of an empty poll. But its
98.8% of empty polls at u = 0 tell: 25 idle workers make 30 * 98.8 / 1.2 = 2,470 of them in a second, 10 ms each. Arrivals
are Poisson, service times constant. Loads are measured over 30 s and published when they change by 20%.

The same on Spark, at a size that fits: a function that sleeps 20 ms, 20 queues (50 in one case), up to 8 workers, which
sleep on however few cores there are. What a record takes there is its sleep, its part of the batch, and the wait for the
slowest worker in that. A batch costs about the same however many visits are made in it, so an empty poll costs its part of
one. Both are measured first, and what Spark needs is drawn beside what the simulator says with them. CPU while idle is that of
all processes, the JVM among them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import governor_lane as lane
from benchmarks.governor_scenarios import Outcome, Poisson, Scenario
from benchmarks.governor_simulator import simulate
from benchmarks.operation_functions import SERVICE as SLEEP
from hayase.governor import Adaptive, Informed, Policy, RoundRobin

SEED = 5
SERVICE = 0.1
EMPTY_POLL = 0.01
LIMIT = 600
MOST = 50
SIZES = (50, 200)
POLICIES: Mapping[str, Policy] = {"round-robin": RoundRobin(), "ALS": Adaptive(), "informed": Informed()}
ON_SPARK = 8
"""Workers there are on Spark."""

Needed = Mapping[int, Mapping[str, Mapping[int, int | None]]]
"""Workers, by queues, policy and records a second of the hot queue."""


@dataclass(frozen=True, slots=True)
class Pool:
    """What a record takes, what an empty poll does, in seconds, and the most workers there are."""

    service: float = SERVICE
    empty_poll: float = EMPTY_POLL
    most: int = MOST

    def load(self, queues: int, hot: float) -> float:
        """S, where all queues but the hot one get a record a second."""
        return (queues - 1 + hot) * self.service


PAPER = Pool()


def run(*, quick: bool, out: Path) -> dict[str, Any]:
    """Simulate, draw into `out`, and return plain data."""
    out.mkdir(parents=True, exist_ok=True)
    hot_rates, seconds = ((1, 10), 700.0) if quick else ((1, 5, 10, 20, 40, 80), 1800.0)
    knobs = (0.0, 0.5, 0.9) if quick else (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
    needed = {
        queues: {
            name: {hot: needed_slots(policy, queues, hot, seconds) for hot in hot_rates}
            for name, policy in POLICIES.items()
        }
        for queues in SIZES
    }
    length = 240.0 if quick else 1200.0
    against_u = {u: _figures(_figure_8(Adaptive(u=u), length)) for u in knobs}
    informed = _figures(_figure_8(Informed(), length))
    size = {name: _polls_per_second(policy, 5.0 if quick else 60.0) for name, policy in POLICIES.items()}
    picture = draw(out / "governor.png", hot_rates, needed, against_u, informed)
    spark = _on_spark(quick, out)
    return {
        "service_seconds": SERVICE,
        "empty_poll_seconds": EMPTY_POLL,
        "figure_5_seconds": seconds,
        "figure_5_workers": needed,
        "figure_8": against_u,
        "figure_8_informed": informed,
        "polls_simulated_per_second_10000_queues": size,
        "picture": str(picture),
        "spark": {name: each for name, each in spark.items() if name != "ratios"},
        "ratios": {
            **against_load(needed),
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
            **spark["ratios"],
        },
    }


def _rates(queues: int, hot: float) -> np.ndarray:
    rates = np.ones(queues)
    rates[-1] = hot
    return rates


def needed_slots(policy: Policy, queues: int, hot: float, seconds: float, pool: Pool = PAPER) -> int | None:
    """The least number of workers that is enough; None if more than there are.

    Tried from the load S on: with fewer, queues grow for ever, though 200 of them do so too slowly for any run to tell.
    """

    def enough(workers: int) -> bool:
        coming = Poisson(_rates(queues, hot))
        service = np.full(queues, pool.service)
        scenario = Scenario(coming, service, workers, seconds, pool.empty_poll, limit=LIMIT)
        return not simulate(scenario, policy, SEED).failed

    most = math.ceil(pool.load(queues, hot))
    step, least = 1, most - 1
    while not enough(most):
        if most >= pool.most:
            return None
        least, most, step = most, min(most + step, pool.most), 2 * step
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


def against_load(needed: Needed) -> dict[str, float]:
    """The worst over all rates of the hot queue."""
    return {
        f"{queues} queues: workers, {name} to 1.1 S + 1, at worst{' (at most 1)' if name == 'ALS' else ''}": max(
            _count(workers) / (1.1 * PAPER.load(queues, hot) + 1) for hot, workers in needed[queues][name].items()
        )
        for queues in SIZES
        for name in ("ALS", "informed")
    }


def _count(workers: int | None) -> float:
    """What 50 workers do not do counts as infinitely many."""
    return math.inf if workers is None else workers


def draw(
    path: Path,
    hot_rates: Sequence[int],
    needed: Needed,
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
            [PAPER.load(queues, hot) for hot in hot_rates],
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


# ---------------------------------------------------------------------------------------------------- on Spark


def _on_spark(quick: bool, out: Path) -> dict[str, Any]:
    """The same with sleeping workers in a lane, beside the simulator with what a record and an empty poll cost there."""
    began = time.monotonic()
    session = lane.session_of(ON_SPARK)
    try:
        costs = lane.costs(session, 4, 3.0 if quick else 6.0)
        sizes: dict[int, tuple[int, ...]] = {20: (1, 30)} if quick else {20: (1, 20, 60), 50: (10,)}
        names = ("round-robin", "ALS") if quick else tuple(POLICIES)
        pools = {queues: Pool(costs.record, costs.visit(queues), ON_SPARK) for queues in sizes}
        simulated: Needed = {
            queues: {
                name: {hot: needed_slots(POLICIES[name], queues, hot, 600.0, pools[queues]) for hot in hot_rates}
                for name in names
            }
            for queues, hot_rates in sizes.items()
        }
        found: Needed = {
            queues: {
                name: {
                    hot: _needed_there(session, name, queues, hot, simulated[queues][name][hot], pools[queues], quick)
                    for hot in hot_rates
                }
                for name in names
            }
            for queues, hot_rates in sizes.items()
        }
        seconds = 6.0 if quick else 15.0
        against_u = {
            u: lane.watched(session, 20, ON_SPARK, "asc" if u else "als", seconds, u=u)
            for u in ((0.0, 0.5) if quick else (0.0, 0.5, 0.9))
        }
        informed = lane.watched(session, 20, ON_SPARK, "informed", seconds)
        idle_seconds = 5.0 if quick else 20.0
        idle = {
            "round-robin": lane.idle_cpu(session, 20, ON_SPARK, "round-robin", idle_seconds),
            "ASC, u = 0.5": lane.idle_cpu(session, 20, ON_SPARK, "asc", idle_seconds, u=0.5),
            "informed": lane.idle_cpu(session, 20, ON_SPARK, "informed", idle_seconds),
        }
    finally:
        session.stop()
    picture = draw_spark(out / "governor-spark.png", pools, simulated, found, against_u, informed, idle)
    return {
        "function_sleeps_seconds": SLEEP,
        "service_seconds": costs.record,
        "batch_seconds": costs.batch,
        "empty_poll_seconds": {queues: each.empty_poll for queues, each in pools.items()},
        "workers": found,
        "workers_simulated": simulated,
        "figure_8": against_u,
        "figure_8_informed": informed,
        "idle_cpu_seconds_per_second": idle,
        "seconds": time.monotonic() - began,
        "picture": str(picture),
        "ratios": ratios_there(pools, simulated, found, against_u, informed, idle),
    }


def _needed_there(
    session: Any, name: str, queues: int, hot: float, guess: int | None, pool: Pool, quick: bool
) -> int | None:
    """The least number of workers that is enough on Spark; fewer than the load are not tried, as in the simulator."""
    least = math.ceil(pool.load(queues, hot))

    def enough(workers: int) -> bool:
        seconds = 5.0 if quick else 10.0
        return workers >= least and lane.keeps_up(session, _rates(queues, hot), workers, name.lower(), seconds)

    return lane.least(enough, max(guess or pool.most, least), pool.most)


def ratios_there(
    pools: Mapping[int, Pool],
    simulated: Needed,
    found: Needed,
    against_u: Mapping[float, Mapping[str, float]],
    informed: Mapping[str, float],
    idle: Mapping[str, float],
) -> dict[str, float]:
    """How Spark stands to the simulator and to the load. More workers than there are count as one more."""

    def count(workers: int | None) -> int:
        return ON_SPARK + 1 if workers is None else workers

    hot = max(found[20]["ALS"])
    return {
        f"Spark, 20 queues, hot queue of {hot} records a second: workers, round-robin to ALS (above 1)": count(
            found[20]["round-robin"][hot]
        )
        / count(found[20]["ALS"][hot]),
        f"the same, simulated with what Spark costs, x = {pools[20].service:.3f} s": count(
            simulated[20]["round-robin"][hot]
        )
        / count(simulated[20]["ALS"][hot]),
        "Spark: workers, ALS to 1.1 S + 1, at worst": max(
            count(workers) / (1.1 * pools[queues].load(queues, rate) + 1)
            for queues, policies in found.items()
            for rate, workers in policies["ALS"].items()
        ),
        "Spark: workers, farthest from the simulator's": max(
            (
                count(workers) / count(simulated[queues][name][rate])
                for queues, policies in found.items()
                for name, rates in policies.items()
                for rate, workers in rates.items()
            ),
            key=lambda ratio: abs(math.log(ratio)),
        ),
        "Spark: share of empty polls, informed (at most 0.05)": informed["empty_share"],
        "Spark: time to completion, informed to u = 0 (at most 2)": informed["completion_seconds"]
        / against_u[0.0]["completion_seconds"],
        "Spark: share of empty polls, u = 0 less u = 0.5 (above 0)": against_u[0.0]["empty_share"]
        - against_u[0.5]["empty_share"],
        "Spark: CPU while idle, informed to round-robin": idle["informed"] / idle["round-robin"],
    }


def draw_spark(
    path: Path,
    pools: Mapping[int, Pool],
    simulated: Needed,
    found: Needed,
    against_u: Mapping[float, Mapping[str, float]],
    informed: Mapping[str, float],
    idle: Mapping[str, float],
) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (workers, empty, length, cpu) = plt.subplots(1, 4, figsize=(19, 4.8))
    marks = {20: "o", 50: "s"}
    for queues, policies in found.items():
        for number, (name, counts) in enumerate(policies.items()):
            for told, line, suffix in ((counts, "-", ""), (simulated[queues][name], ":", ", simulated")):
                points = [(hot, count) for hot, count in told.items() if count is not None]
                if points:
                    style, label = f"{marks[queues]}{line}", f"{name}, {queues} queues{suffix}"
                    workers.plot(*zip(*points, strict=True), style, color=f"C{number}", label=label, alpha=0.8)
    pool = pools[20]
    workers.set(
        title=f"Spark: workers needed (x = {pool.service * 1000:.0f} ms, empty poll {pool.empty_poll * 1000:.1f} ms)",
        xlabel="records per second of the hot queue",
        ylabel=f"workers, of {ON_SPARK}",
        ylim=(0, ON_SPARK + 1),
    )
    knobs = list(against_u)
    for axes, what, title in (
        (empty, "empty_share", f"Spark, 20 queues, {ON_SPARK} workers: empty polls"),
        (length, "queue_length", "Records in a queue"),
    ):
        axes.plot(knobs, [each[what] for each in against_u.values()], "s-", label="ASC")
        axes.axhline(informed[what], color="C2", linestyle="--", label="informed")
        axes.set(title=title, xlabel="u")
        axes.set_ylim(bottom=0)
    empty.plot([0, 1], [1, 0], color="0.6", linewidth=1, label="1 - u")
    cpu.bar(list(idle), list(idle.values()), color=["C0", "C1", "C2"])
    cpu.set(title="CPU seconds in a second without work")
    for axes in (workers, empty, length):
        axes.legend(fontsize=7)
    for axes in (workers, empty, length, cpu):
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path
