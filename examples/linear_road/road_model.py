"""Linear Road in plain Python: reads the records in order, keeps dictionaries, and says which answers are due.

It follows the words of the benchmark one by one and shares nothing with `pipeline.yaml`, whose answers are compared with it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import floor, fsum
from typing import NamedTuple

import pyarrow as pa

ENTRY, EXIT, TRAVEL = 0, 4, (1, 2, 3)


class Segment(NamedTuple):
    """A segment of an expressway, in one direction."""

    xway: int
    dir: int
    seg: int

    def downstream(self, by: int) -> Segment:
        return self._replace(seg=self.seg + by if self.dir == 0 else self.seg - by)


class Spot(NamedTuple):
    """Where a car stands."""

    xway: int
    lane: int
    dir: int
    pos: int


@dataclass
class Car:
    """What is known of a vehicle."""

    reported: int | None = None
    segment: Segment | None = None
    spots: deque[Spot] = field(default_factory=lambda: deque(maxlen=4))
    quoted: int = 0
    balance: int = 0
    updated: int | None = None


@dataclass
class Accident:
    """From when until when two cars or more stood at one spot."""

    segment: Segment
    began: int
    cleared: int | None = None

    def in_force(self, minute: int) -> bool:
        """Not before the minute after the one in which it occurred, not after the minute in which it was cleared."""
        return minute > self.began // 60 and (self.cleared is None or minute <= self.cleared // 60)


@dataclass
class Answers:
    """All answers that are due, in the order of the records."""

    tolls: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Time, vehicle, latest average velocity, toll."""
    accidents: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """Time, vehicle, expressway, direction, segment of the accident."""
    balances: list[tuple[int, int, int, int, int | None]] = field(default_factory=list)
    """Time, request, vehicle, balance, time of the last charge."""
    expenditures: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Time, request, vehicle, tolls of that day on that expressway."""


class LinearRoad:
    """The system as its rules describe it."""

    def __init__(self, history: Iterable[Mapping[str, int]] = ()) -> None:
        self.history = {(row["vid"], row["day"], row["xway"]): row["toll"] for row in history}
        self.cars: dict[int, Car] = defaultdict(Car)
        self.speeds: dict[tuple[int, Segment], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        """By minute and segment: the speeds that each vehicle reported."""
        self.velocities: dict[tuple[int, Segment], float] = {}
        """Those that were asked for: the minutes before are over, so they do not change."""
        self.standing: dict[Spot, set[int]] = defaultdict(set)
        self.accidents: list[Accident] = []
        self.current: dict[Spot, Accident] = {}
        self.answers = Answers()

    def take(self, records: pa.Table) -> Answers:
        """Take records, ordered by time; within a second, requests come after all reports. Return all answers so far."""
        rows = records.to_pylist()
        for row in sorted(rows, key=lambda row: (row["time"], row["type"])):
            match row["type"]:
                case 0:
                    self._report(row)
                case 2:
                    car = self.cars[row["vid"]]
                    self.answers.balances.append((row["time"], row["qid"], row["vid"], car.balance, car.updated))
                case 3:
                    spent = self.history.get((row["vid"], row["day"], row["xway"]), 0)
                    self.answers.expenditures.append((row["time"], row["qid"], row["vid"], spent))
        return self.answers

    # ------------------------------------------------------------------------------------------------ a position report

    def _report(self, row: Mapping[str, int]) -> None:
        time, vid, lane = row["time"], row["vid"], row["lane"]
        segment = Segment(row["xway"], row["dir"], row["seg"])
        car = self.cars[vid]
        if car.reported != time - 30 or car.segment != segment:
            self._enter(car, time, vid, lane, segment)
        self._stand(car, vid, Spot(row["xway"], lane, row["dir"], row["pos"]), segment, time)
        self.speeds[time // 60, segment][vid].append(row["spd"])
        car.reported, car.segment = time, segment

    def _enter(self, car: Car, time: int, vid: int, lane: int, segment: Segment) -> None:
        """Charge the toll of the segment before, and notify of the toll of this one and of accidents ahead."""
        if lane != ENTRY and car.quoted:
            car.balance += car.quoted
            car.updated = time
        car.quoted = 0
        if lane == EXIT:
            return
        minute = time // 60
        velocity, accident = self._velocity(minute, segment), self._accident_ahead(minute, segment)
        cars = len(self.speeds.get((minute - 1, segment), ()))
        if velocity < 40 and cars > 50 and accident is None:
            car.quoted = 2 * (cars - 50) ** 2
        self.answers.tolls.append((time, vid, floor(velocity), car.quoted))
        if accident is not None:
            self.answers.accidents.append((time, vid, *accident))

    def _velocity(self, minute: int, segment: Segment) -> float:
        """Return the average of the five minutes before, of the averages of the cars, of the averages of each car."""
        if (minute, segment) in self.velocities:
            return self.velocities[minute, segment]
        minutes = [
            self.speeds[before, segment] for before in range(minute - 5, minute) if (before, segment) in self.speeds
        ]
        averages = [_average([_average(speeds) for speeds in cars.values()]) for cars in minutes]
        self.velocities[minute, segment] = _average(averages) if averages else 0.0
        return self.velocities[minute, segment]

    def _accident_ahead(self, minute: int, segment: Segment) -> Segment | None:
        """Return the nearest segment with an accident, this one or one of the next four."""
        places = {accident.segment for accident in self.accidents if accident.in_force(minute)}
        return next((place for by in range(5) if (place := segment.downstream(by)) in places), None)

    def _stand(self, car: Car, vid: int, spot: Spot, segment: Segment, time: int) -> None:
        """Note whether a car stands: four reports from one spot, one after the other. Two that stand there are an accident."""
        if car.reported != time - 30:
            car.spots.clear()
        before = car.spots[-1] if car.spots else None
        car.spots.append(spot)
        if before is not None and before != spot and vid in self.standing[before]:
            self.standing[before].remove(vid)
            if len(self.standing[before]) == 1:
                self.current.pop(before).cleared = time
        if spot.lane in TRAVEL and len(car.spots) == 4 and set(car.spots) == {spot} and vid not in self.standing[spot]:
            self.standing[spot].add(vid)
            if len(self.standing[spot]) == 2:
                self.current[spot] = Accident(segment, time)
                self.accidents.append(self.current[spot])


def _average(numbers: list[float] | list[int]) -> float:
    return fsum(numbers) / len(numbers)
