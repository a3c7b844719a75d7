"""OVER over a stream, from text to results: every record has the values that DuckDB gives it over all records, in any batches, and
results are in the order of event time, then offset."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
from given_streams import COLUMNS, Stream, streams
from hypothesis import given, settings
from hypothesis import strategies as st
from product import Plan, plans

from effort import examples
from hayase.testing import trial

KINDS = {"a": pa.int64(), "b": pa.int32(), "x": pa.float64(), "s": pa.string()}
FRAMES = [
    "", "", "rows unbounded preceding", "rows 2 preceding", "rows between 1 preceding and current row",
    "range unbounded preceding", "range between current row and current row",
    "range between interval '2 seconds' preceding and current row", "range interval '7 s' preceding",
]  # fmt: skip


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, str]:
    """A call for Hayase and for DuckDB, which has the place of every record to order equal times."""
    column, frame = draw(st.sampled_from(COLUMNS)), draw(st.sampled_from(FRAMES))
    keys = draw(st.lists(st.sampled_from([*COLUMNS, "b + 1"]), max_size=2, unique=True))
    by = f"partition by {', '.join(keys)} " if keys else ""
    number = draw(st.sampled_from(["a", "b", "x", "a + b"]))
    call, kind = draw(
        st.sampled_from(
            [
                ("row_number()", "place"), ("rank()", "peers"), ("dense_rank()", "peers"), (f"lag({column})", "place"),
                (f"lag({column}, 2)", "place"), (f"first_value({column}{{}})", "value"), (f"last_value({column}{{}})", "value"),
                (f"nth_value({column}, 2{{}})", "value"), ("count(*)", "frame"), (f"count({column})", "frame"),
                (f"sum({number})", "frame"), (f"min({column})", "frame"), (f"max({number})", "frame"), (f"avg({number})", "frame"),
                (f"count(*) filter (where {number} > 0)", "frame"),
            ]
        )
    )  # fmt: skip
    frame = frame if kind in ("value", "frame") else ""
    by_rows = frame.startswith("rows") or kind == "place"
    inner = " order by time, o" if kind == "value" and not by_rows else ""
    own = f"{call.format('')} over ({by}order by {draw(st.sampled_from(['time', 'event_time']))} {frame})"
    return own, f"{call.format(inner)} over ({by}order by {'time, o' if by_rows else 'time'} {frame})"


def wanted(stream: Stream, texts: list[str], condition: str) -> list[str]:
    columns = {name: pa.array([row[at] for row in stream.rows], kind) for at, (name, kind) in enumerate(KINDS.items())}
    times = pa.array(stream.times, pa.int64()).cast(pa.timestamp("us"))
    records = pa.table({"time": times, **columns, "o": pa.array(range(len(stream.rows)), pa.int64())})
    with duckdb.connect(config={"threads": "1"}) as connection:
        connection.register("records", records)
        select = f"select {', '.join(texts)} from records {condition} order by time, o"
        return [*map(repr, connection.execute(select).fetchall())]


def found(stream: Stream, texts: list[str], condition: str, plan: Plan) -> list[str]:
    with trial() as t:
        t.declaration = replace(t.declaration, buckets=plan.buckets)
        t.stream("s", stream.schema, time_unit=stream.unit)
        t.query("q", f"select {', '.join(f'{text} as c{at}' for at, text in enumerate(texts))} from s {condition}")
        waiting: list[Any] = stream.records()
        for _, count, run in plan.pieces:
            if waiting[:count]:
                t.append("s", waiting[:count])
            del waiting[:count]
            if run:
                t.run(batch_rows=plan.batch_rows)
                if plan.forget:
                    t.restart()
        if waiting:
            t.append("s", waiting)
        t.finish("s")
        t.run(batch_rows=plan.batch_rows)
        assert not t.dead_letters()
        names = [f"c{at}" for at in range(len(texts))]
        log = t.query("q").log
        records = [row for piece in log.read(0, log.index().next) for row in piece.rows.select(names).to_pylist()]
        assert sorted(map(repr, records)) == sorted(
            repr({name: row[name] for name in names}) for row, _, _ in t.query("q").intervals()
        )
        return [repr(tuple(row.values())) for row in records]


@given(
    streams("s", unit=None, most=16), st.lists(calls(), min_size=1, max_size=3), plans(),
    st.sampled_from(["", "", "where a > 0", "where s is not null and b is not null"]),
)  # fmt: skip
@settings(max_examples=examples(40))
def test_every_record_has_the_values_that_duckdb_gives_it(
    stream: Stream, drawn: list[tuple[str, str]], plan: Plan, condition: str
) -> None:
    own, others = [one for one, _ in drawn], [other for _, other in drawn]
    assert found(stream, own, condition, plan) == wanted(stream, others, condition)
