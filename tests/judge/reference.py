"""The reference interpreter: evaluates queries by brute force, from the definitions of docs/semantics.md.

Nothing here depends on how Hayase computes, and nothing is fast. A window gives every record its lifetime (`given_streams`); the
rows that are valid at an instant are loaded into SQLite, which evaluates the query's SQL: that is R(t). Istream, Dstream and
Rstream are computed from R by their definitions, instant by instant.

SQLite lacks variances and some other functions, which are defined here, as are the user's functions of the judge. Its tables have
no types: they hold numbers and text as they are.
"""

from __future__ import annotations

import json
import math
import operator
import sqlite3
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

from given_cases import Case, Query
from given_queries import Reading, View
from given_streams import ALWAYS, Row, Stream, grain_of, snapshot

__all__ = ["Reference", "alike", "difference"]


class Reference:
    """Evaluates the queries of a case."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._database = sqlite3.connect(":memory:", isolation_level=None)
        for name, pick in _VARIANCES.items():
            self._database.create_aggregate(name, 1, _aggregate(pick))  # type: ignore[arg-type]
        for name, (count, pick) in _OTHERS.items():
            self._database.create_aggregate(name, count, _aggregate(pick))  # type: ignore[arg-type]
        for name, (count, function) in _FUNCTIONS.items():
            self._database.create_function(name, count, function, deterministic=True)
        self._lifetimes: dict[str, list[tuple[int, int, Row]]] = {}
        self._snapshots: dict[tuple[str, int], list[Row]] = {}
        self._records: dict[str, list[tuple[int, Row]]] = {}
        for query in case.queries:
            for reading in query.readings:
                self._database.execute(f"CREATE TABLE {reading.table} ({', '.join(reading.types)})")

    def close(self) -> None:
        self._database.close()

    # ------------------------------------------------------------------------------------------------ relations

    def rows(self, query: Query, at: int) -> list[Row]:
        """Return R(t): the rows of a query's relation at an instant. It is empty before the first event."""
        if at < self._case.extent(query)[0]:
            return []
        if (query.name, at) not in self._snapshots:
            tables = [(reading.table, self._alive(query, reading, at)) for reading in query.readings]
            for table, rows in tables:
                self._database.execute(f"DELETE FROM {table}")
                if rows:
                    marks = ", ".join("?" * len(rows[0]))
                    self._database.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
            self._snapshots[query.name, at] = self._database.execute(query.made.sql).fetchall()
        return self._snapshots[query.name, at]

    def changes(self, query: Query) -> list[int]:
        """Return the instants from a query's first event to its last at which its relation may change."""
        first, last = self._case.extent(query)
        return sorted(at for at in {first, last, *self._borders(query)} if first <= at <= last)

    def instants(self, query: Query) -> list[int]:
        """Return the instants at which a query's relation may change, and one between any two of them."""
        known, grain = self.changes(query), grain_of(self._case.unit(query))
        return sorted({*known, *((one + other) // 2 // grain * grain for one, other in pairwise(known))})

    def _alive(self, query: Query, reading: Reading, at: int) -> list[Row]:
        """Return the rows of one source of a query at an instant."""
        if self._is_relation(reading):
            return self.rows(self._case.query(reading.source.name), at)
        return snapshot(self._read(query, reading), at)

    def _is_relation(self, reading: Reading) -> bool:
        return isinstance(reading.source, View) and self._case.query(reading.source.name).kind is None

    def _read(self, query: Query, reading: Reading) -> list[tuple[int, int, Row]]:
        """Return the records of a stream with their lifetimes."""
        if reading.table not in self._lifetimes:
            window, grain = reading.window, grain_of(self._case.unit(query))
            self._lifetimes[reading.table] = window.lifetimes(self._stream(reading), grain)
        return self._lifetimes[reading.table]

    def _stream(self, reading: Reading) -> Stream:
        if isinstance(reading.source, Stream):
            return reading.source
        query = self._case.query(reading.source.name)
        records = self.records(query)
        unit = self._case.unit(query)
        return Stream(query.name, unit, tuple(at for at, _ in records), tuple(row for _, row in records), bare=True)

    def _borders(self, query: Query) -> Iterable[int]:
        for reading in query.readings:
            if self._is_relation(reading):
                yield from self._borders(self._case.query(reading.source.name))
            else:
                yield from (at for start, end, _ in self._read(query, reading) for at in (start, end) if at != ALWAYS)
                yield from self._stream(reading).times

    # ------------------------------------------------------------------------------------------------ streams

    def records(self, query: Query) -> list[tuple[int, Row]]:
        """Return the records of a query that yields a stream, in time order."""
        if query.name not in self._records:
            assert query.kind is not None
            emitted: list[tuple[int, Row]] = []
            for at in self._moments(query):
                now, before = self.rows(query, at), self.rows(query, at - grain_of(self._case.unit(query)))
                came, went = difference(now, before)
                emitted += [(at, row) for row in {"istream": came, "dstream": went, "rstream": now}[query.kind]]
            self._records[query.name] = emitted
        return self._records[query.name]

    def _moments(self, query: Query) -> Sequence[int]:
        if query.kind != "rstream":
            return self.changes(query)
        first, last = self._case.extent(query)
        return sorted(at for at in set(self._moves(query)) if first <= at <= last)

    def _moves(self, query: Query) -> Iterable[int]:
        """Yield E: the instants at which the windows over the streams behind a query move."""
        grain = grain_of(self._case.unit(query))
        for reading in query.readings:
            if isinstance(reading.source, View):
                yield from self._moves(self._case.query(reading.source.name))
            if not self._is_relation(reading):
                yield from reading.window.moves(self._stream(reading), grain)


def _aggregate(pick: Any) -> type:
    """Return an aggregate for SQLite: a function of all tuples of arguments without NULL."""

    class Aggregate:
        def __init__(self) -> None:
            self.values: list[Any] = []

        def step(self, *values: Any) -> None:
            if None not in values:
                self.values.append(values if len(values) > 1 else values[0])

        def finalize(self) -> Any:
            return pick(self.values)

    return Aggregate


def _spread(values: Sequence[float], less: int) -> float | None:
    """Return the variance: the sum of squared distances from the mean, over n - `less`."""
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


def _median(values: Sequence[float]) -> float | None:
    return None if not values else (values := sorted(values))[(len(values) - 1) // 2] / 2 + values[len(values) // 2] / 2


def _mode(values: Sequence[Any]) -> Any:
    """Return the most frequent value; of several the least."""
    return min(values, key=lambda value: (-values.count(value), value), default=None)


def _quantile(pairs: Sequence[tuple[Any, float]]) -> Any:
    """Return the least value up to which there are at least that many of the values, as a fraction of all."""
    values = sorted(value for value, _ in pairs)
    return values[max(1, math.ceil(len(values) * pairs[0][1])) - 1] if values else None


def _bits(combine: Any) -> Any:
    return lambda values: reduce(combine, values) if values else None


def _covariance(pairs: Sequence[tuple[float, float]]) -> float | None:
    if not pairs:
        return None
    means = [math.fsum(column) / len(pairs) for column in zip(*pairs)]
    return math.fsum((one - means[0]) * (other - means[1]) for one, other in pairs) / len(pairs)


def _squares(pairs: Sequence[tuple[float, float]]) -> float | None:
    spread = _spread([x for _, x in pairs], 0)
    return None if spread is None else spread * len(pairs)


_OTHERS = {
    "median": (1, _median),
    "mode": (1, _mode),
    "quantile_disc": (2, _quantile),
    "bit_and": (1, _bits(operator.and_)),
    "bit_or": (1, _bits(operator.or_)),
    "bit_xor": (1, _bits(operator.xor)),
    "covar_pop": (2, _covariance),
    "regr_sxx": (2, _squares),
    "string_agg": (1, lambda values: ",".join(sorted(values)) if values else None),
}


def _on_values(function: Any) -> Any:
    """Return a function that is NULL if an argument is."""
    return lambda *values: None if None in values else function(*values)


_FUNCTIONS = {
    "twice": (1, _on_values(lambda number: 2 * number)),
    "halved": (1, _on_values(lambda number: number / 2)),
    "paired": (2, _on_values(lambda one, other: f"{one}-{other}")),
    "encode": (1, _on_values(str.encode)),
    "octet_length": (1, _on_values(len)),
    "hex": (1, _on_values(lambda text: text.encode().hex().upper())),
    "json_extract_string": (2, _on_values(lambda text, path: json.loads(text)[path.removeprefix("$.")])),
}


def alike(one: Any, other: Any) -> bool:
    """Return whether two values are equal; floats to nine digits."""
    if not (isinstance(one, float) or isinstance(other, float)) or one is None or other is None:
        return type(one) is type(other) and one == other
    if isinstance(one, str) or isinstance(other, str):
        return False
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)


def difference(found: Sequence[Row], wanted: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return the rows that are only in the first multiset, and those that are only in the second."""
    missing, surplus = [], list(found)
    for row in wanted:
        at = next(
            (at for at, other in enumerate(surplus) if len(other) == len(row) and all(map(alike, other, row))), None
        )
        if at is None:
            missing.append(row)
        else:
            del surplus[at]
    return surplus, missing
