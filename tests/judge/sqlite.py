"""The judge itself: what SQLite says about the snapshots of the windows, instant by instant.

SQLite lacks variances (made here, by their definition) and is given tables without types: numbers and text as they are.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from given_cases import Case, Query
from given_queries import View
from given_streams import ALWAYS, Row, Stream, grain_of, snapshot

__all__ = ["Judge", "alike", "difference"]


class Judge:
    """Answers the queries of a case over the snapshots at any instant."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._database = sqlite3.connect(":memory:", isolation_level=None)
        for name, pick in _VARIANCES.items():
            self._database.create_aggregate(name, 1, _variance(pick))  # type: ignore[arg-type]
        self._lifetimes: dict[str, list[tuple[int, int, Row]]] = {}
        for query in case.queries:
            grain = grain_of(case.unit(query))
            for each in query.readings:
                columns = ", ".join(each.source.types)
                self._database.execute(f"CREATE TABLE {each.table} ({columns})")
                if isinstance(each.source, Stream):
                    self._lifetimes[each.table] = each.window.lifetimes(each.source, grain)

    def close(self) -> None:
        self._database.close()

    def instants(self, query: Query) -> list[int]:
        """From a query's first event to its last: where anything begins or ends, and a point between any two of them."""
        first, last = self._case.extent(query)
        times = {first, last}
        for table in self._case.tables(query):
            for start, end, _ in self._lifetimes.get(table, ()):
                times |= {start, end}
        times.update(at for stream in self._case.streams_of(query) for at in stream.times)
        known = sorted(at for at in times if first <= at <= last and at != ALWAYS)
        grain = grain_of(self._case.unit(query))
        between = [(one + other) // 2 // grain * grain for one, other in pairwise(known)]
        return sorted({*known, *between})

    def answer(self, query: Query, at: int) -> list[Row]:
        """The rows of a query at an instant; before its first event it has none."""
        if at < self._case.extent(query)[0]:
            return []
        given = [(each.table, self._rows(each.source, each.table, at)) for each in query.readings]
        for table, rows in given:
            self._database.execute(f"DELETE FROM {table}")
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                self._database.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        return self._database.execute(query.made.sql).fetchall()

    def _rows(self, source: Stream | View, table: str, at: int) -> list[Row]:
        if isinstance(source, View):
            return self.answer(self._case.query(source.name), at)
        return snapshot(self._lifetimes[table], at)


def _variance(pick: Any) -> type:
    class Variance:
        def __init__(self) -> None:
            self.values: list[float] = []

        def step(self, value: float | None) -> None:
            if value is not None:
                self.values.append(value)

        def finalize(self) -> float | None:
            return pick(self.values)

    return Variance


def _spread(values: Sequence[float], less: int) -> float | None:
    """The mean square of the distances from the mean, over n or n - 1."""
    if len(values) <= less:
        return None
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - less)


def _root(value: float | None) -> float | None:
    return None if value is None else math.sqrt(value)


_VARIANCES = {
    "var_samp": lambda values: _spread(values, 1),
    "variance": lambda values: _spread(values, 1),
    "var_pop": lambda values: _spread(values, 0),
    "stddev_samp": lambda values: _root(_spread(values, 1)),
    "stddev": lambda values: _root(_spread(values, 1)),
    "stddev_pop": lambda values: _root(_spread(values, 0)),
}


def alike(one: Any, other: Any) -> bool:
    """Equal values; floats to nine digits."""
    if not (isinstance(one, float) or isinstance(other, float)) or one is None or other is None:
        return type(one) is type(other) and one == other
    if isinstance(one, str) or isinstance(other, str):
        return False
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)


def difference(found: Sequence[Row], wanted: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The rows that one multiset has beyond the other, each way."""
    missing, surplus = [], list(found)
    for row in wanted:
        at = next((at for at, each in enumerate(surplus) if len(each) == len(row) and all(map(alike, each, row))), None)
        if at is None:
            missing.append(row)
        else:
            del surplus[at]
    return surplus, missing
