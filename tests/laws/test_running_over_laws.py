"""Laws of OVER in stream mode: every record has the values that DuckDB computes over all records, however the instants are cut
into steps and however often the operator is lost and restored."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.lifetimes.plans import Frame, RunningCall, RunningOver, Unbounded, Windowed
from hayase.lifetimes.running_over import RunningOverOperator
from interval_relations import Driver, Told, clock_lists, cut

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("tm", pa.int64())])
CHILD = Windowed(0, Unbounded(), SCHEMA)
ROWS = st.builds(
    dict,
    k=st.sampled_from([None, "one", "two"]),
    n=st.none() | st.integers(-3, 3),
    x=st.none() | st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16, 3.0]),
    s=st.none() | st.sampled_from(["a", "bc", ""]),
)
DUCKDB = duckdb.connect(config={"threads": "1"})
FRAMES = {
    Frame("unbounded", 0, True): "RANGE UNBOUNDED PRECEDING",
    Frame("unbounded"): "ROWS UNBOUNDED PRECEDING",
    Frame("rows", 0): "ROWS BETWEEN CURRENT ROW AND CURRENT ROW",
    Frame("rows", 1): "ROWS 1 PRECEDING",
    Frame("rows", 3): "ROWS BETWEEN 3 PRECEDING AND CURRENT ROW",
    Frame("range", 0, True): "RANGE BETWEEN CURRENT ROW AND CURRENT ROW",
    Frame("range", 1, True): "RANGE BETWEEN 1 PRECEDING AND CURRENT ROW",
    Frame("range", 4, True): "RANGE BETWEEN 4 PRECEDING AND CURRENT ROW",
}
KINDS = {name: SCHEMA.field(name).type for name in SCHEMA.names}


@st.composite
def calls(draw: st.DrawFn, name: str) -> tuple[RunningCall, str, pa.DataType]:
    """A call, the same for DuckDB, and its type."""
    frame = draw(st.sampled_from(list(FRAMES)))
    column = draw(st.sampled_from(["n", "x", "s"]))
    kind, over = KINDS[column], f"{'ORDER BY tm' if frame.peers else 'ORDER BY tm, o'} {FRAMES[frame]}"
    function = draw(
        st.sampled_from(["counter", "lag", "first_value", "last_value", "nth_value", "aggregate", "aggregate"])
    )
    if function == "counter":
        function = draw(st.sampled_from(["row_number", "rank", "dense_rank"]))
        order = "ORDER BY tm, o" if function == "row_number" else "ORDER BY tm"
        return RunningCall(name, function, (), Frame("unbounded")), f"{function}() OVER (KEYS {order})", pa.int64()
    if function == "lag":
        back, default = draw(st.integers(0, 3)), draw(st.booleans()) and column == "n"
        call = RunningCall(name, "lag", (column,), Frame("rows", back), default="tm" if default else None)
        return call, f"lag({column}, {back}{', tm' if default else ''}) OVER (KEYS ORDER BY tm, o)", kind
    if function == "aggregate":
        options = {"n": ["sum", "count", "min", "avg"], "x": ["sum", "max", "count"], "s": ["min", "max", "count"]}
        function = draw(st.sampled_from(options[column]))
        kind = pa.int64() if function == "count" else pa.float64() if function == "avg" else kind
        return RunningCall(name, function, (column,), frame), f"{function}({column}) OVER (KEYS {over})", kind
    ignores = function != "nth_value" and draw(st.booleans())
    place = draw(st.integers(1, 3)) if function == "nth_value" else 0
    inner = f"{column}{f', {place}' if place else ''}{' ORDER BY tm, o' if frame.peers else ''}"
    call = RunningCall(name, function, (column,), frame, place, ignores_nulls=ignores)
    return call, f"{function}({inner}{' IGNORE NULLS' if ignores else ''}) OVER (KEYS {over})", kind


@st.composite
def overs(draw: st.DrawFn) -> tuple[RunningOver, list[str]]:
    drawn = [draw(calls(f"f{number}")) for number in range(draw(st.integers(1, 4)))]
    keys = draw(st.sampled_from([(), ("k",), ("k", "n")]))
    fields = [pa.field(call.name, kind) for call, _, kind in drawn]
    by = f"PARTITION BY {', '.join(keys)}" if keys else ""
    node = RunningOver(CHILD, keys, tuple(call for call, _, _ in drawn), pa.schema([*SCHEMA, *fields]))
    return node, [sql.replace("KEYS", by) for _, sql, _ in drawn]


@st.composite
def streams(draw: st.DrawFn) -> list[Told]:
    times = sorted(draw(st.lists(st.integers(0, 12), max_size=25)))
    return [Told(draw(ROWS) | {"tm": at}, at, None) for at in times]


def by_definition(texts: list[str], stream: list[Told]) -> list[tuple[Any, ...]]:
    """What DuckDB says about all records."""
    table = pa.Table.from_pylist([told.row for told in stream], schema=SCHEMA)
    table = table.append_column("o", pa.array(range(len(stream)), pa.int64()))
    DUCKDB.register("records", table)
    return DUCKDB.execute(f"SELECT {', '.join(texts)} FROM records ORDER BY tm, o").fetchall()


def result(node: RunningOver, stream: list[Told], clocks: list[int], seed: int | None) -> list[tuple[Any, ...]]:
    driver = Driver(lambda: RunningOverOperator(node), seed)
    rows: list[tuple[Any, ...]] = []
    for span, delta in cut(stream, SCHEMA, clocks, since=0):
        given = driver.advance([delta], span)
        assert given.id.tolist() == delta.id.tolist()
        rows += [tuple(row[call.name] for call in node.calls) for row in given.rows.to_pylist()]
    return rows


def close(one: Any, other: Any) -> bool:
    return one == other or (
        isinstance(one, float) and abs(one - other) < 10
    )  # DuckDB rounds sums of 1e16 at every step


@given(overs(), streams(), clock_lists())
@settings(max_examples=examples(60))
def test_records_have_the_values_that_duckdb_gives_them(
    over: tuple[RunningOver, list[str]], stream: list[Told], clocks: list[int]
) -> None:
    node, texts = over
    found, wanted = result(node, stream, clocks, None), by_definition(texts, stream)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted):
        assert all(map(close, one, other)), (found, wanted)


@given(overs(), streams(), clock_lists(), clock_lists(), st.integers(0, 10_000))
@settings(max_examples=examples(60))
def test_neither_steps_nor_restores_make_a_difference(
    over: tuple[RunningOver, list[str]], stream: list[Told], clocks: list[int], others: list[int], seed: int
) -> None:
    assert result(over[0], stream, others, seed) == result(over[0], stream, clocks, None)
