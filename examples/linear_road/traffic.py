"""Traffic of the Linear Road benchmark: position reports and requests of cars on expressways, and the tolls of ten weeks before.

What the benchmark fixes is kept: expressways of 100 segments of a mile in two directions; a report every 30 seconds, the first in
the entry lane, the last in the exit lane; an accident every 20 minutes on each expressway, cleared after 10 to 20 minutes; after
one report of a hundred a request, half of them for a balance, a tenth for the expenditure of a day, the others for a travel time;
one car of ten comes back later, on any expressway; traffic that grows for three hours. How fast a car drives follows from a plain
rule, not from MITSIM: the fuller its segment, the slower. The same seed gives the same records.

    python traffic.py 600 records --expressways 2        # 600 seconds: records/input.csv and records/daily_tolls.csv
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

COLUMNS = (
    "type", "time", "vid", "spd", "xway", "lane", "dir", "seg", "pos", "qid", "s_init", "s_end", "dow", "tod", "day",
)  # fmt: skip
MILE, EVERY, HOUR = 5280, 30, 3600
"""Feet in a segment; seconds between two reports of a car."""
ENTRY, EXIT = 0, 4
"""Lanes; those between are for travel."""
DAYS = 69
"""Days of the history, yesterday first."""
SLOWED = 0.3
"""What an accident leaves of the speed in its segment."""


@dataclass(frozen=True)
class Traffic:
    """What the traffic is like, on each expressway."""

    expressways: int = 1
    seed: int = 1
    segments: int = 100
    cars: int = 400
    """Cars that enter within the first 30 seconds."""
    entering: float = 20.0
    """Cars that enter each second after three hours; until then their number grows evenly."""
    since: int = 0
    """How many seconds of these three hours have passed when the records begin."""
    room: int = 400
    """Cars in a segment at which its traffic all but stands."""
    accident_every: int = 1200
    clearing: tuple[int, int] = (600, 1200)
    """The least and the most seconds that an accident lasts."""
    alone: float = 0.2
    """The share of accidents in which only one car stops: a breakdown, of which nobody is notified."""


@dataclass
class _Cars:
    """Cars that report in the same second of every 30. Places are in feet from where the carriageway begins."""

    vid: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    road: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    """The number of the carriageway: twice the expressway, plus the direction."""
    place: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    leaves: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    """Where its exit is."""
    lane: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    likes: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    """How fast it drives on an empty road, in miles an hour."""
    stopped_until: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    def columns(self) -> dict[str, np.ndarray]:
        return vars(self)

    def kept(self, which: np.ndarray) -> _Cars:
        return _Cars(**{name: values[which] for name, values in self.columns().items()})

    def with_others(self, others: _Cars) -> _Cars:
        return _Cars(
            **{name: np.concatenate([values, others.columns()[name]]) for name, values in self.columns().items()}
        )


class _Simulation:
    """The cars on all carriageways, second by second."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        self.dice = np.random.default_rng([traffic.seed, 0])
        self.groups = [_Cars() for _ in range(EVERY)]
        self.crowd = np.zeros((2 * traffic.expressways, traffic.segments), np.int64)
        self.accidents: list[tuple[int, int, int]] = []
        """Carriageway, segment and end of accidents that slow others down."""
        self.returning: deque[tuple[int, int]] = deque()
        """Cars that come back: from when on, and which."""
        self.next_vid, self.next_qid = 100, 1

    def second(self, now: int) -> pa.Table:
        """Move the cars that report in this second, let others enter, and return the records of all of them."""
        group = self.groups[now % EVERY]
        speeds = self._move(group, now)
        entering = self._entering(now)
        self.crowd += self._counted(entering)
        group = group.with_others(entering)
        speeds = np.concatenate([speeds, self.dice.integers(10, 40, len(entering.vid))])
        reports = self._reports(group, speeds, now)
        requests = self._requests(reports, now)
        self.groups[now % EVERY] = self._without_those_who_leave(group, now)
        self._crash(now)
        return pa.table({name: np.concatenate([reports[name], requests[name]]) for name in COLUMNS})

    # ------------------------------------------------------------------------------------------------ cars

    def _move(self, cars: _Cars, now: int) -> np.ndarray:
        """Move cars by the way of 30 seconds; return their speeds."""
        segment = cars.place // MILE
        fullness = self.crowd[cars.road, segment]
        slow = np.ones(self.crowd.shape)
        for road, at, _ in self.accidents:
            slow[road, at] = SLOWED
        speeds = cars.likes * np.clip(1.1 - fullness / self.traffic.room, 0.1, 1.0) * slow[cars.road, segment]
        speeds = np.clip(speeds + self.dice.integers(-3, 4, len(speeds)), 1, 100).astype(np.int64)
        speeds[cars.stopped_until > now] = 0
        moving = speeds > 0
        self.crowd -= self._counted(cars)
        cars.place += speeds * MILE * EVERY // HOUR
        changes = moving & ((cars.lane == ENTRY) | (self.dice.random(len(speeds)) < 0.1))
        cars.lane[changes] = self.dice.integers(1, EXIT, int(changes.sum()))
        out = moving & (cars.place >= cars.leaves)
        cars.lane[out] = EXIT
        cars.place[out] = np.minimum(cars.place[out], (cars.leaves[out] // MILE + 1) * MILE - 1)
        self.crowd += self._counted(cars)
        return speeds

    def _entering(self, now: int) -> _Cars:
        traffic = self.traffic
        expected = traffic.entering * min(1.0, (traffic.since + now) / (3 * HOUR)) * traffic.expressways
        count = int(self.dice.poisson(expected))
        if now < EVERY:
            whole = traffic.cars * traffic.expressways
            count += (now + 1) * whole // EVERY - now * whole // EVERY
        first = self.dice.integers(0, traffic.segments - 1, count)
        last = first + 1 + (self.dice.random(count) * (traffic.segments - 1 - first)).astype(np.int64)
        return _Cars(
            vid=self._vids(count, now),
            road=self.dice.integers(0, 2 * traffic.expressways, count),
            place=first * MILE + self.dice.integers(0, MILE // 4, count),
            leaves=last * MILE + self.dice.integers(0, MILE, count),
            lane=np.full(count, ENTRY),
            likes=self.dice.integers(50, 80, count),
            stopped_until=np.zeros(count, np.int64),
        )

    def _vids(self, count: int, now: int) -> np.ndarray:
        """Return new numbers, and those of cars that come back."""
        back = []
        while self.returning and self.returning[0][0] <= now and len(back) < count:
            back.append(self.returning.popleft()[1])
        new = np.arange(self.next_vid, self.next_vid + count - len(back))
        self.next_vid += len(new)
        return np.concatenate([np.array(back, np.int64), new])

    def _without_those_who_leave(self, cars: _Cars, now: int) -> _Cars:
        out = cars.lane == EXIT
        if not out.any():
            return cars
        gone = cars.kept(out)
        self.crowd -= self._counted(gone)
        back = gone.vid[self.dice.random(len(gone.vid)) < 0.1]
        self.returning.extend((now + 61 + int(self.dice.integers(0, 1000)), int(vid)) for vid in back)
        return cars.kept(~out)

    def _crash(self, now: int) -> None:
        """Stop two cars at one place, or one alone, on each expressway when it is time."""
        self.accidents = [accident for accident in self.accidents if accident[2] > now]
        if (self.traffic.since + now + 1) % self.traffic.accident_every:
            return
        for xway in range(self.traffic.expressways):
            road = 2 * xway + int(self.dice.integers(0, 2))
            first, second = (self.groups[phase] for phase in self.dice.choice(EVERY, 2, replace=False))
            driving = np.flatnonzero((first.road == road) & (first.lane != ENTRY) & (first.stopped_until <= now))
            if not len(driving):
                continue
            one = self.dice.choice(driving)
            segment = first.place[one] // MILE
            behind = np.flatnonzero((second.road == road) & (second.place // MILE == segment) & (second.lane != ENTRY))
            until = now + int(self.dice.integers(*self.traffic.clearing))
            first.stopped_until[one] = until
            if len(behind) and self.dice.random() >= self.traffic.alone:
                other = self.dice.choice(behind)
                second.place[other], second.lane[other] = first.place[one], first.lane[one]
                second.stopped_until[other] = until
                self.accidents.append((road, int(segment), until))

    def _counted(self, cars: _Cars) -> np.ndarray:
        """Return how many of these cars are in each segment."""
        places = cars.road * self.traffic.segments + cars.place // MILE
        return np.bincount(places, minlength=self.crowd.size).reshape(self.crowd.shape)

    # ------------------------------------------------------------------------------------------------ records

    def _reports(self, cars: _Cars, speeds: np.ndarray, now: int) -> dict[str, np.ndarray]:
        direction = cars.road % 2
        position = np.where(direction == 0, cars.place, self.traffic.segments * MILE - 1 - cars.place)
        known = {
            "type": 0, "time": now, "vid": cars.vid, "spd": speeds, "xway": cars.road // 2, "lane": cars.lane,
            "dir": direction, "seg": position // MILE, "pos": position,
        }  # fmt: skip
        return _filled(known, len(cars.vid))

    def _requests(self, reports: dict[str, np.ndarray], now: int) -> dict[str, np.ndarray]:
        """Return the requests of one car of a hundred of those that report."""
        vids = reports["vid"][self.dice.random(len(reports["vid"])) < 0.01]
        kind = self.dice.choice([2, 3, 4], len(vids), p=[0.5, 0.1, 0.4])
        day = self.dice.integers(1, DAYS + 1, len(vids))
        elsewhere = self.dice.integers(0, self.traffic.expressways, len(vids))
        xway = np.where(self.dice.random(len(vids)) < 0.9, history_of(vids, day, self.traffic)[0], elsewhere)
        ends = self.dice.integers(0, self.traffic.segments, (2, len(vids)))
        of_a_day, of_travel = kind == 3, kind == 4
        known = {
            "type": kind, "time": now, "vid": vids, "qid": np.arange(self.next_qid, self.next_qid + len(vids)),
            "xway": np.where(kind == 2, -1, xway), "day": np.where(of_a_day, day, -1),
            "s_init": np.where(of_travel, ends[0], -1), "s_end": np.where(of_travel, ends[1], -1),
            "dow": np.where(of_travel, self.dice.integers(1, 8, len(vids)), -1),
            "tod": np.where(of_travel, self.dice.integers(1, 1441, len(vids)), -1),
        }  # fmt: skip
        self.next_qid += len(vids)
        return _filled(known, len(vids))


def _filled(known: dict[str, int | np.ndarray], count: int) -> dict[str, np.ndarray]:
    """Return all columns; those that a record of this type does not have are -1, as in the published files."""
    return {name: np.broadcast_to(np.asarray(known.get(name, -1), np.int64), count) for name in COLUMNS}


def seconds(traffic: Traffic, count: int) -> Iterator[pa.Table]:
    """Yield the records of each second, from 0 on, in their order."""
    simulation = _Simulation(traffic)
    for now in range(count):
        yield simulation.second(now)


def history_of(vids: np.ndarray, days: np.ndarray, traffic: Traffic) -> tuple[np.ndarray, np.ndarray]:
    """Return on which expressway each car was on a day of the ten weeks before, and what tolls it paid there."""
    mixed = (vids * (DAYS + 1) + days + traffic.seed * 1_000_003).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    return (mixed % np.uint64(traffic.expressways)).astype(np.int64), (mixed // np.uint64(97) % np.uint64(100)).astype(
        np.int64
    )


def history(vids: Sequence[int] | np.ndarray, traffic: Traffic) -> pa.Table:
    """Return the tolls of each of these cars, one row for each day."""
    every, days = np.repeat(np.asarray(vids, np.int64), DAYS), np.tile(np.arange(1, DAYS + 1), len(vids))
    xway, toll = history_of(every, days, traffic)
    return pa.table({"vid": every, "day": days, "xway": xway, "toll": toll})


def main() -> None:
    """Write so many seconds of traffic, and the history of the cars that ask for it."""
    parser = argparse.ArgumentParser(description="Traffic of the Linear Road benchmark.")
    parser.add_argument("seconds", type=int)
    parser.add_argument("directory", type=Path, nargs="?", default=Path("records"))
    parser.add_argument("--expressways", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cars", type=int, default=Traffic.cars, help="cars that enter within the first 30 seconds")
    asked = parser.parse_args()
    traffic = Traffic(asked.expressways, asked.seed, cars=asked.cars)
    asked.directory.mkdir(parents=True, exist_ok=True)
    records = pa.concat_tables(seconds(traffic, asked.seconds))
    pa.csv.write_csv(records, asked.directory / "input.csv")
    askers = pa.compute.unique(records.filter(pa.compute.equal(records.column("type"), 3)).column("vid"))
    pa.csv.write_csv(history(askers.to_numpy(), traffic), asked.directory / "daily_tolls.csv")


if __name__ == "__main__":
    main()
