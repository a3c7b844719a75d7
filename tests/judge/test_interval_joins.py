"""Compares joins that are bounded by time with SQLite, which joins all records so far at every instant."""

from __future__ import annotations

from given_cases import Case, Query
from given_queries import Made, Reading
from given_streams import SECOND, TYPES, Window, grain_of, streams
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from product import Plan, plans, running
from test_snapshots import check_all, told

from effort import examples

SOME = settings(
    max_examples=examples(25, 300), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
_ALWAYS = Window("unbounded", "")


@st.composite
def conditions(draw: st.DrawFn, left: str, right: str, unit: str | None) -> tuple[str, str]:
    """Draw a condition on the times of two relations, for CQL and for SQLite."""
    low, high = sorted(draw(st.tuples(st.integers(-6, 6), st.integers(-6, 6))))
    bounds = []
    for seconds in (low, high):
        number = seconds * SECOND // grain_of(unit)
        interval = f"interval '{abs(seconds)} seconds'"
        sign = "-" if seconds < 0 else "+"
        bounds.append((f"{sign} {interval}" if unit is None else f"{sign} {abs(number)}", f"{sign} {abs(number)}"))
    one, other = f"{left}.time", f"{right}.time"
    form = draw(
        st.sampled_from(
            [
                "{r} between {l} {low} and {l} {high}",
                "{r} >= {l} {low} and {r} <= {l} {high}",
                "{l} {low} < {r} and {l} {high} > {r}",
                "{r} >= {l} {low}",
                "{r} < {l} {high}",
                "{l} = {r}",
            ]
        )
    )
    cql, sql = (form.format(l=one, r=other, low=bounds[0][side], high=bounds[1][side]) for side in (0, 1))
    return cql, sql


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a join of two or three streams without windows."""
    unit = draw(st.sampled_from([None, "ms", "s"]))
    count = draw(st.sampled_from([2, 2, 3]))
    read = [draw(streams(f"s{number}", unit=unit, most=15)) for number in range(count)]
    aliases = [f"t{number}" for number in range(count)]
    pieces = []
    for number in range(1, count):
        cql, sql = draw(conditions(aliases[draw(st.integers(0, number - 1))], aliases[number], unit))
        keys = draw(st.sampled_from(["", "{0}.s = {1}.s AND ", "{0}.a = {1}.a AND ", "{0}.a < {1}.b AND "]))
        key = keys.format(aliases[number - 1], aliases[number])
        pieces.append((key + cql, key + sql))
    items = [f"{alias}.{name}" for alias in aliases for name in ("time", "a")]
    listed = ", ".join(f"{item} AS c{at}" for at, item in enumerate(items))
    where = " AND ".join(piece[0] for piece in pieces), " AND ".join(piece[1] for piece in pieces)
    made = []
    for side, tables in enumerate(([stream.name for stream in read], [f"r{number}" for number in range(count)])):
        named = [f"{table} AS {alias}" for table, alias in zip(tables, aliases)]
        joined = named[0] + "".join(f" JOIN {name} ON {piece[side]}" for name, piece in zip(named[1:], pieces))
        commas = f"{', '.join(named)} WHERE {where[side]}"
        made.append((f"SELECT {listed} FROM {joined}", f"SELECT {listed} FROM {commas}"))
    form = draw(st.integers(0, 1))
    kinds = [f"time:{unit or 'timestamp'}", TYPES["a"]] * count
    columns = tuple((f"c{at}", kind) for at, kind in enumerate(kinds))
    readings = tuple(Reading(f"r{number}", stream, _ALWAYS) for number, stream in enumerate(read))
    cql, sql = made[0][form], made[1][form]
    return Case(tuple(read), (Query("q", cql, Made(cql, sql, columns), readings),))


@SOME
@given(cases(), plans())
def test_a_join_bounded_by_time_is_that_of_all_records(case: Case, plan: Plan) -> None:
    note(told(case))
    with running(case, plan) as product:
        check_all(case, product)
        assert not product.dead()
