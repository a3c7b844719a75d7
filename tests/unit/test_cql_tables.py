"""Joins of streams with tables: what they give, against plain Python and against a stream that has the columns already;
what they refuse, in the words and at the places in which it is told; and what is planned for them."""

# ruff: noqa: E501 - a mistake stands on one line, as it is printed

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.core.declarations import PipelineDeclaration, QueryDeclaration, StreamDeclaration, TableDeclaration
from hayase.core.stages import OFFSET, TIME, Mapped, Refusals, Stage
from hayase.core.times import BEGINNING
from hayase.cql.map_sides import TableRows
from hayase.cql.planner import Planned, plan

Row = dict[str, Any]


@dataclass
class Known:
    """A table in memory."""

    table: TableDeclaration
    schema: pa.Schema
    rows: Mapping[tuple[Any, ...], Row] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)

    def find(
        self, keys: pa.RecordBatch, columns: Sequence[str] | None = None
    ) -> tuple[np.ndarray, pa.RecordBatch, Refusals]:
        assert keys.schema.names == list(self.table.key)
        self.asked.append(keys.num_rows)
        given = [tuple(each.values()) for each in keys.to_pylist()]
        known = [at for at, key in enumerate(given) if None not in key and key in self.rows]
        rows = pa.RecordBatch.from_pylist([self.rows[given[at]] for at in known], self.schema)
        return np.array(known, np.int64), rows, Refusals()


S = StreamDeclaration("S", "time timestamp, user_id string, area string, year int, amount double", "time", slack=5)
T = StreamDeclaration("T", "time timestamp, user_id string, x double", "time")
CH = StreamDeclaration("ch", "time timestamp, op string, user_id string", "time", changes="op")
PURCHASES = TableDeclaration(
    "purchases", ("user_id",), (("total", "Counter"), ("area", "Register"), ("by_day", "MapCounter"), ("tags", "GSet"))
)
AREAS = TableDeclaration("areas", ("area", "year"), (("people", "Counter"), ("head", "Register")))
P_SCHEMA = pa.schema(
    {"total": pa.float64(), "area": pa.string(), "by_day": pa.map_(pa.string(), pa.float64()), "tags": pa.list_(pa.string())}
)  # fmt: skip
A_SCHEMA = pa.schema({"people": pa.float64(), "head": pa.string()})


def tables(purchases: Mapping[Any, Row] | None = None, areas: Mapping[Any, Row] | None = None) -> dict[str, Known]:
    return {
        "purchases": Known(PURCHASES, P_SCHEMA, purchases or {}),
        "areas": Known(AREAS, A_SCHEMA, areas or {}),
    }


def planned(
    *queries: str, lookups: Mapping[str, Known] | None = None, streams: tuple[StreamDeclaration, ...] = (S, T, CH)
) -> Planned:
    named = tuple(QueryDeclaration(f"q{number}", text) for number, text in enumerate(queries))
    declared = PipelineDeclaration("p", streams, named, tables=(PURCHASES, AREAS))
    return plan(declared, tables() if lookups is None else lookups)


def last(*queries: str, lookups: Mapping[str, Known] | None = None) -> Stage:
    found = planned(*queries, lookups=lookups)
    assert found.mistakes == ()
    return found.stages[-1]


@cache
def planned_once(*queries: str, streams: tuple[StreamDeclaration, ...]) -> tuple[Planned, dict[str, Known]]:
    """A plan, and the tables that it reads, to be filled."""
    lookups = tables()
    found = planned(*queries, lookups=lookups, streams=streams)
    assert found.mistakes == ()
    return found, lookups


def batch(rows: Sequence[Row], stream: StreamDeclaration = S) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), stream.arrow_schema)


def mapped(stage: Stage, rows: pa.RecordBatch) -> Mapped:
    found = stage.inputs[0].map_side(rows)
    assert found.rows.schema == stage.inputs[0].schema
    assert len(found.input_rows) == found.rows.num_rows
    return found


def record(
    user: str | None, area: str | None = "x", year: int | None = 1, amount: float | None = 1.0, time: int = 0
) -> Row:
    return {"time": time, "user_id": user, "area": area, "year": year, "amount": amount}


# ---------------------------------------------------------------------------------------------------- what they give

TEXTS = st.sampled_from(["a", "b", "c", ""])
AMOUNTS = st.none() | st.sampled_from([-1.0, 0.0, 1.5, 150.0])
YEARS = st.sampled_from([1, 2])
RECORDS = st.lists(
    st.builds(record, st.none() | TEXTS, st.none() | TEXTS, st.none() | YEARS, AMOUNTS, st.integers(0, 6)), max_size=12
)
P_ROWS = st.dictionaries(
    st.tuples(TEXTS),
    st.fixed_dictionaries(
        {
            "total": AMOUNTS,
            "area": st.none() | TEXTS,
            "by_day": st.none() | st.lists(st.tuples(TEXTS, st.just(2.0)), max_size=2, unique_by=lambda each: each[0]),
            "tags": st.none() | st.lists(TEXTS, max_size=2),
        }
    ),
)
A_ROWS = st.dictionaries(st.tuples(TEXTS, YEARS), st.fixed_dictionaries({"people": AMOUNTS, "head": st.none() | TEXTS}))
NO_P = {"p.user_id": None, **{f"p.{name}": None for name in P_SCHEMA.names}}
NO_A = {"a.area": None, "a.year": None, **{f"a.{name}": None for name in A_SCHEMA.names}}


def purchases_of(key: str | None, rows: Mapping[Any, Row]) -> Row | None:
    found = rows.get((key,)) if key is not None else None
    return None if found is None else {"p.user_id": key, **{f"p.{name}": each for name, each in found.items()}}


def areas_of(area: str | None, year: int | None, rows: Mapping[Any, Row]) -> Row | None:
    found = rows.get((area, year)) if area is not None and year is not None else None
    if found is None:
        return None
    return {"a.area": area, "a.year": year, **{f"a.{name}": each for name, each in found.items()}}


def above(value: float | None, limit: float) -> bool:
    return value is not None and value > limit


def simple(row: Row, p: Mapping[Any, Row], a: Mapping[Any, Row]) -> Row | None:
    met = purchases_of(row["user_id"], p)
    return row | met if met and above(met["p.total"], 0) else None


def padded(row: Row, p: Mapping[Any, Row], a: Mapping[Any, Row]) -> Row | None:
    met = purchases_of(row["user_id"], p)
    return row | (met if met and above(met["p.total"], 0) and above(row["amount"], 0) else NO_P)


def composite(row: Row, p: Mapping[Any, Row], a: Mapping[Any, Row]) -> Row | None:
    return row | (areas_of(row["area"], row["year"], a) or NO_A)


def chained(row: Row, p: Mapping[Any, Row], a: Mapping[Any, Row]) -> Row | None:
    one = purchases_of(row["user_id"], p)
    two = areas_of(one["p.area"], row["year"], a) if one else None
    return row | one | two if one and two and above(row["amount"], -1) else None


def padded_twice(row: Row, p: Mapping[Any, Row], a: Mapping[Any, Row]) -> Row | None:
    one = purchases_of(row["user_id"], p) or NO_P
    return row | one | (areas_of(one["p.area"], 1, a) or NO_A)


def mixed(row: Row, p: Mapping[Any, Row], a: Mapping[Any, Row]) -> Row | None:
    two = areas_of(row["area"], row["year"], a)
    one = purchases_of(two["a.head"], p) if two else None
    return None if two is None else row | two | (one or NO_P)


def strangers(row: Row, p: Mapping[Any, Row], a: Mapping[Any, Row]) -> Row | None:
    return row | NO_P if purchases_of(row["user_id"], p) is None else None


S_ALL = ["time", "user_id", "area", "year", "amount"]
P_ALL = list(NO_P)
A_ALL = list(NO_A)
CASES = {
    "from S [Now] s, purchases p where s.user_id = p.user_id and p.total > 0": (simple, P_ALL),
    "from S [Now] s join purchases p on p.user_id = s.user_id and p.total > 0": (simple, P_ALL),
    "from purchases p join S [Now] s on p.user_id = s.user_id where p.total > 0": (simple, P_ALL),
    "from S [Now] s join purchases p using (user_id) where total > 0": (simple, P_ALL),
    "from S [Now] s, purchases p where s.user_id || '' = p.user_id and p.total > 0 and p.user_id = s.user_id": (simple, P_ALL),
    "from (select * from S [Now]) s, PURCHASES p where (s.user_id) = (p.user_id) and p.total > 0": (simple, P_ALL),
    "from S [Now] s left join purchases p on p.user_id = s.user_id and p.total > 0 and s.amount > 0": (padded, P_ALL),
    "from S [Now] s left join areas a on a.area = s.area and s.year = a.year": (composite, A_ALL),
    "from S [Now] s left join areas a using (area, year)": (composite, A_ALL),
    "from S [Now] s left join areas a on a.year = s.year + 0 and a.area = s.area": (composite, A_ALL),
    "from S [Now] s, areas a, purchases p where a.area = p.area and a.year = s.year and p.user_id = s.user_id and s.amount > -1": (chained, P_ALL + A_ALL),
    "from S [Now] s join (purchases p join areas a on a.area = p.area) on a.year = s.year and p.user_id = s.user_id where s.amount > -1": (chained, P_ALL + A_ALL),
    "from S [Now] s left join purchases p on p.user_id = s.user_id left join areas a on a.area = p.area and a.year = 1": (padded_twice, P_ALL + A_ALL),
    "from S [Now] s join areas a on a.area = s.area and a.year = s.year left join purchases p on p.user_id = a.head": (mixed, P_ALL + A_ALL),
    "from S [Now] s left join purchases p on p.user_id = s.user_id where p.user_id is null": (strangers, P_ALL),
}  # fmt: skip


@pytest.mark.parametrize("text", CASES)
@settings(max_examples=examples(10), deadline=None)
@given(records=RECORDS, p=P_ROWS, a=A_ROWS)
def test_every_record_meets_the_row_of_its_key(
    text: str, records: list[Row], p: dict[Any, Row], a: dict[Any, Row]
) -> None:
    expected, shown = CASES[text]
    selected = [*(f"s.{name} as {name}" for name in S_ALL), *(f'{name} as "{name}"' for name in shown)]
    plan, lookups = planned_once(f"Rstream(select {', '.join(selected)} {text})", streams=(S,))
    lookups["purchases"].rows, lookups["areas"].rows = p, a
    (stage,) = plan.stages
    assert stage.kernel is None
    found = mapped(stage, batch(records))
    whole = batch(records).to_pylist()
    wanted = [(at, row) for at, each in enumerate(whole) if (row := expected(each, p, a)) is not None]
    assert found.input_rows.tolist() == [at for at, _ in wanted]
    assert found.rows.to_pylist() == [{name: row[name] for name in [*S_ALL, *shown]} for _, row in wanted]
    assert len(found.refused) == 0


WIDE = StreamDeclaration(
    "W",
    S.schema + ", " + ", ".join(f"{name} {kind}" for name, kind in (("total", "double"), ("home", "string"))),
    "time",
)
FORMS = [
    "select {c} from {f}",
    "select {c} from {f} {w} {t} > 0",
    "Istream(select {c} from {f})",
    "Dstream(select {c} from {f})",
    "Istream(select distinct {h} as h from {f})",
    "select {h} as h, count(*) as n, sum({t}) as s from {f} group by {h} having count(*) > 1",
    "select {c} from {f} union all select {c} from {f} {w} {t} is null",
    "select {c} from {f} {w} exists (select 1 from S [Now] z where z.time = s.time and z.year = 1)",
]


def outcome(stages: Sequence[Stage], streams: Mapping[str, pa.RecordBatch]) -> list[Row]:
    """The rows of a query, its stages one after the other, in one bucket."""
    known = dict(streams)
    for stage in stages:
        inputs = []
        for each in stage.inputs:
            rows = known[each.stream]
            found = each.map_side(rows)
            time = rows.column("changed_at" if "changed_at" in rows.schema.names else "time").cast(pa.int64())
            given = found.rows.append_column(TIME, time.take(pa.array(found.input_rows)))
            given = given.append_column(OFFSET, pa.array(found.input_rows, pa.int64()))
            inputs.append(given.sort_by([(TIME, "ascending"), (OFFSET, "ascending")]))
        assert stage.kernel is not None
        known[stage.name] = stage.kernel(0, 1).process(inputs, BEGINNING, 100, 1).rows
    shown: list[Row] = [
        {name: each for name, each in row.items() if name != "row_id"} for row in known[stages[-1].name].to_pylist()
    ]
    return sorted(shown, key=str)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["join", "left join"])
@settings(max_examples=examples(5), deadline=None)
@given(records=RECORDS, p=P_ROWS)
def test_a_join_is_like_a_stream_that_has_the_columns(
    form: str, kind: str, records: list[Row], p: dict[Any, Row]
) -> None:
    joined = {"f": f"S [Now] s {kind} purchases p on p.user_id = s.user_id", "t": "p.total", "h": "p.area"}
    wide = {"f": "W [Now] s", "t": "s.total", "h": "s.home"}
    columns = "s.user_id, s.amount, {t} as total, {h} as home"
    texts = [form.format(**each, c=columns.format(**each), w="where") for each in (joined, wide)]
    (one, lookups), (other, _) = (planned_once(text, streams=(S, WIDE)) for text in texts)
    lookups["purchases"].rows = p
    rows = []
    for each in batch(records).to_pylist():
        met = purchases_of(each["user_id"], p)
        if met or kind == "left join":
            rows.append(each | {"total": met and met["p.total"], "home": met and met["p.area"]})
    streams = {"S": batch(records), "W": batch(rows, WIDE)}
    assert outcome(one.stages, streams) == outcome(other.stages, streams)
    assert [each.stream.schema for each in one.stages] == [each.stream.schema for each in other.stages]


KINDS: list[tuple[str, list[Any]]] = [
    ("string", ["a", None, "b", "a"]),
    ("bigint", [1, 2**62, None, 1]),
    ("tinyint", [1, 1, None, -3]),
    ("double", [0.5, -0.0, float("inf"), None]),
    ("boolean", [True, False, None, True]),
    ("decimal(10, 2)", [Decimal("1.50"), None, Decimal("1.50"), Decimal("-2.00")]),
]


@pytest.mark.parametrize(("kind", "values"), KINDS)
@pytest.mark.parametrize("join", ["join", "left join"])
def test_keys_of_every_kind(kind: str, values: list[Any], join: str) -> None:
    stream = StreamDeclaration("K", f"time timestamp, k {kind}, n int", "time")
    lookups = tables({(values[0],): {"total": 1.0}})
    text = f"Rstream(select p.user_id as k, n, total from K [Now] {join} purchases p on p.user_id = k)"
    found = planned(text, lookups=lookups, streams=(stream,))
    assert found.mistakes == ()
    rows = batch([{"time": 0, "k": each, "n": at} for at, each in enumerate(values)], stream)
    wanted: list[tuple[Any, int, float | None]] = []
    for at, each in enumerate(values):
        if each == values[0]:
            wanted.append((each, at, 1.0))
        elif join == "left join":
            wanted.append((None, at, None))
    given = mapped(found.stages[0], rows)
    assert [(row["k"], row["n"], row["total"]) for row in given.rows.to_pylist()] == wanted
    assert given.input_rows.tolist() == [n for _, n, _ in wanted]


def test_a_key_is_looked_up_once_in_a_batch() -> None:
    lookups = tables({("a",): {"total": 1.0}}, {("x", 1): {"head": "h"}})
    text = "Rstream(select total, head from S [Now] s, purchases p, areas a where p.user_id = s.user_id and a.area = s.area and a.year = s.year)"
    rows = [record(user, area, year) for user in "ab" for area in "xy" for year in (1, 2) for _ in range(50)]
    found = mapped(last(text, lookups=lookups), batch(rows))
    assert found.rows.num_rows == 50
    assert (lookups["purchases"].asked, lookups["areas"].asked) == ([2], [4])
    assert mapped(last(text, lookups=lookups), batch([])).rows.num_rows == 0
    assert lookups["purchases"].asked == [2]


def test_a_filter_of_the_stream_goes_before_the_table() -> None:
    lookups = tables({("a",): {"total": 1.0}})
    text = (
        "Rstream(select total from S [Now] s, purchases p "
        "where p.user_id = s.user_id and s.amount > 0 and p.user_id <> 'b')"
    )
    rows = [record("a", amount=-1.0), record("b"), record("a"), record("c")]
    assert mapped(last(text, lookups=lookups), batch(rows)).input_rows.tolist() == [2]
    assert lookups["purchases"].asked == [2]


def test_a_record_that_raises_is_refused_alone() -> None:
    """In the key, in the condition of a left join, in WHERE and in the select list, and told in the words of the query."""
    lookups = tables({(1,): {"total": 1.0, "area": "7"}, (2,): {"total": 2.0, "area": "x"}})
    found = mapped(
        last("Rstream(select p.area::int as n, total from S [Now] join purchases p on p.user_id = S.user_id::int)", lookups=lookups),
        batch([record("1"), record("x"), record("2"), record("3"), record("1")]),
    )  # fmt: skip
    assert [row["n"] for row in found.rows.to_pylist()] == [7, 7]
    assert (found.input_rows.tolist(), found.refused.rows.tolist()) == ([0, 4], [1, 2])
    assert found.refused.reasons[0].text.startswith('cannot compute "S.user_id::int": Conversion Error')
    assert found.refused.reasons[1].text.startswith('cannot compute "p.area::int": Conversion Error')
    text = "Rstream(select total from S [Now] left join purchases p on p.user_id = S.year and p.area::int > 0 where S.area::int > 0)"
    found = mapped(
        last(text, lookups=lookups),
        batch(
            [record("a", "1", 1), record("a", "1", 2), record("a", "1", 3), record("a", "z", 1), record("a", "0", 2)]
        ),
    )
    assert [row["total"] for row in found.rows.to_pylist()] == [1.0, None]
    assert (found.input_rows.tolist(), found.refused.rows.tolist()) == ([0, 2], [1, 3])
    assert found.refused.reasons[0].text.startswith('cannot compute "p.area::int > 0": Conversion Error')
    assert found.refused.reasons[1].text.startswith('cannot compute "where S.area::int > 0": Conversion Error')


def test_stars_show_the_table_behind_the_stream() -> None:
    found = last("Rstream(select * from S [Now] s, areas where s.area = areas.area and areas.year = s.year)")
    names = "time timestamp, user_id string, area string, year int, amount double, area_1 string, year_1 int, people double, head string"
    assert found.stream.schema == names
    assert last("Rstream(select a.* from S [Now] join areas a using (area, year))").stream.schema == (
        "area string, year int, people double, head string, time timestamp"
    )
    assert last("Rstream(select * from S [Now] join areas a using (area, year))").stream.schema == (
        "time timestamp, user_id string, area string, year int, amount double, people double, head string"
    )
    both = "Rstream(select * from S [Now] join purchases p using (user_id) join areas a on a.year = 1 and a.area = user_id)"
    assert "user_id_1" not in last(both).stream.schema


def test_columns_of_all_kinds_pass() -> None:
    met = {"total": 1.0, "area": "x", "by_day": [("a", 2.0)], "tags": ["b"]}
    found = last(
        "Rstream(select by_day, tags, by_day['a'] as day, len(tags) as n from S [Now] left join purchases using (user_id))",
        lookups=tables({("a",): met}),
    )
    rows = mapped(found, batch([record("a"), record("b")])).rows.select(["by_day", "tags", "day", "n"]).to_pylist()
    assert rows == [
        {"by_day": [("a", 2.0)], "tags": ["b"], "day": 2.0, "n": 1},
        {"by_day": None, "tags": None, "day": None, "n": None},
    ]


# ---------------------------------------------------------------------------------------------------- what is planned


def test_only_what_is_used_of_stream_and_table_is_taken() -> None:
    stage = last("select p.total from S [Now] s, purchases p where s.user_id = p.user_id and p.area = 'x'")
    assert stage.inputs[0].schema == pa.schema({"total": pa.float64()})
    met = [each for each in _sides(stage.inputs[0].map_side) if isinstance(each, TableRows)]
    assert [(each.own, each.keys, each.columns) for each in met] == [
        (("s.user_id",), ("s.user_id",), ("total", "area"))
    ]


def _sides(side: Any) -> list[Any]:
    return [*_sides(side.first), *_sides(side.second)] if hasattr(side, "first") else [side]


def test_a_view_that_meets_a_table_is_looked_through() -> None:
    """Lateness is judged where the records are; who reads the view meets the table when it takes the record."""
    lookups = tables({("a",): {"total": 1.0}, ("b",): {"total": 2.0}})
    view = "Rstream(select user_id, total from S [Now] join purchases using (user_id) where total > 1)"
    records = batch([record("a"), record("b"), record("c"), record("b")])
    for text in ("select count(*) as n from q0 [Range 1 hour]", "select total from q0 [Rows 2]"):
        stage = last(view, text, lookups=lookups)
        assert [each.stream for each in stage.inputs] == ["S", "S"]
        assert stage.inputs[0].map_side(records).input_rows.tolist() == [1, 3]
    assert stage.inputs[1].map_side(records).input_rows.tolist() == [
        1,
        3,
    ]  # places in the window are counted in the view
    assert planned(view, "select 1 as x from q0").queries[0].drafts[0].stage.stream.slack == S.slack
    twice = last(
        view,
        "Rstream(select q0.user_id, people from q0 [Now], areas a where a.area = q0.user_id and a.year = 1)",
        lookups=lookups,
    )
    assert (twice.kernel, twice.inputs[0].stream) == (None, "S")
    changed = {**lookups, "purchases": replace(lookups["purchases"], table=replace(PURCHASES, key=("id",)))}
    text = view.replace("using (user_id)", "p on p.id = S.user_id")
    assert planned(text, "select 1 as x from q0", lookups=changed).mistakes == ()


def test_a_fingerprint_covers_what_is_used_of_a_table() -> None:
    def fingerprint(purchases: TableDeclaration, schema: pa.Schema, form: str = "Rstream({})") -> str:
        text = form.format("select s.user_id, p.total from S [Now] s, purchases p where s.user_id = p.user_id")
        return last(text, lookups={**tables(), "purchases": Known(purchases, schema)}).fingerprint

    for form in ("Rstream({})", "{}"):
        own = fingerprint(PURCHASES, P_SCHEMA, form)
        more = replace(PURCHASES, columns=(*PURCHASES.columns, ("new", "Counter")), horizon=PURCHASES.horizon * 2)
        assert fingerprint(more, P_SCHEMA.append(pa.field("new", pa.float64())), form) == own
        fewer = replace(PURCHASES, columns=PURCHASES.columns[:1])
        assert fingerprint(fewer, pa.schema([P_SCHEMA.field(0)]), form) == own
        other = replace(PURCHASES, columns=(("total", "Quantiles"), *PURCHASES.columns[1:]))
        assert fingerprint(other, P_SCHEMA, form) != own
        wider = pa.schema([pa.field("total", pa.string()), *list(P_SCHEMA)[1:]])
        assert fingerprint(PURCHASES, wider, form) != own


def test_stages_can_be_pickled() -> None:
    stage = last(
        "Rstream(select total from S [Now] join purchases using (user_id))", lookups=tables({("a",): {"total": 3.0}})
    )
    again = pickle.loads(pickle.dumps(stage))
    assert mapped(again, batch([record("a")])).rows.column("total").to_pylist() == [3.0]
    assert again.inputs[0].map_side == stage.inputs[0].map_side
    assert "Known" not in repr(stage.inputs[0].map_side)


def test_a_table_without_a_lookup_cannot_be_read() -> None:
    found = planned("select 1 as x from S", "select total from S [Now] join purchases using (user_id)", lookups={})
    assert [str(each) for _, each in found.mistakes] == [
        '1:32: the table "purchases" cannot be looked up here; give `plan` a lookup for it'
    ]
    assert [each.name for each in found.stages] == ["q0"]


# ---------------------------------------------------------------------------------------------------- what is refused

STAY = "write [Now] after the stream; for a window over the result, name this query and read it in another"
OTHER = "with columns of the stream on the other side"
ASKED = "of a table only rows that a record asks for are read"
SIDES = "write JOIN or LEFT JOIN, with the stream on the left and one table on the right"
ON = "p.user_id = s.user_id"

MISTAKES: dict[str, list[str]] = {
    "select * from purchases": [
        '1:15: the table "purchases" has no records of its own to read; join it with a stream [Now]; `hayase tables scan purchases` and GET /tables/purchases read it by itself',
    ],
    "select count(*) from purchases p, areas a where a.area = p.area and a.year = 1": [
        '1:22: the table "purchases" has no records of its own to read; join it with a stream [Now]; `hayase tables scan purchases` and GET /tables/purchases read it by itself',
    ],
    "select amount from S [Now] s where exists (\n  select 1 from purchases p where p.user_id = s.user_id)": [
        '2:17: the table "purchases" has no records of its own to read; join it with a stream [Now]; `hayase tables scan purchases` and GET /tables/purchases read it by itself',
    ],
    "select * from S [Now], purchases": [
        f'1:24: the key "user_id" of the table "purchases" is not compared with anything; write purchases.user_id = ... in WHERE or ON, {OTHER}',
    ],
    "select total from S [Now] s,\n  purchases p where p.user_id > s.user_id": [
        f'2:3: the key "user_id" of the table "purchases" is not compared with anything; write p.user_id = ... in WHERE or ON, {OTHER}',
    ],
    "select total from S [Now] s, purchases p where p.user_id::int = s.year or p.user_id = s.area": [
        f'1:30: the key "user_id" of the table "purchases" is not compared with anything; write p.user_id = ... in WHERE or ON, {OTHER}',
    ],
    "select people from S [Now] s, areas a where a.area = s.area and a.year > s.year": [
        f'1:31: the key "year" of the table "areas" is not compared with anything; write a.year = ... in WHERE or ON, {OTHER}',
    ],
    "select people from S [Now] s join areas on true": [
        f'1:35: the key "area" and "year" of the table "areas" is not compared with anything; write areas.area = ... in WHERE or ON, {OTHER}',
    ],
    "select total from S [Now] s left join purchases p on true where p.user_id = s.user_id": [
        f'1:39: the key "user_id" of the table "purchases" is not compared with anything; write p.user_id = ... in ON, {OTHER}',
    ],
    "select total from S [Now] s, purchases p, areas a where p.user_id = a.head and a.area = p.area and a.year = 3": [
        '1:30: the table "purchases" has a key that depends on tables whose keys depend on it; compare its key with columns of the stream in WHERE or ON',
        '1:43: the table "areas" has a key that depends on tables whose keys depend on it; compare its key with columns of the stream in WHERE or ON',
    ],
    f"select total from S s, purchases p where {ON}": [
        f'1:19: a table can only be joined with a stream [Now], and "S" has another window; {STAY}',
    ],
    f"select total from S [Range 1 hour] s, purchases p where {ON}": [
        f'1:21: a table can only be joined with a stream [Now], and "S" has another window; {STAY}',
    ],
    f"select total from S [Rows 1, 2] s join purchases p on {ON}": [
        f'1:21: a table can only be joined with a stream [Now], and "S" has another window; {STAY}',
    ],
    f"select total from ch s, purchases p where {ON}": [
        '1:19: a table can only be joined with a stream [Now], and "ch" is a relation; join the table with a stream [Now] instead',
    ],
    f"select total from (select user_id from S [Rows 3]) s, purchases p where {ON}": [
        "1:19: a table can only be joined with a stream [Now], and this sub-query is not one; join a stream [Now] with the table inside of it",
    ],
    f"select total from (select distinct user_id from S [Now]) s, purchases p where {ON}": [
        "1:19: a table can only be joined with a stream [Now], and this sub-query is not one; join a stream [Now] with the table inside of it",
    ],
    f"select total from S [Now] s, purchases [Range 1 hour] p where {ON}": [
        '1:40: a window after the table "purchases" is not supported; a table has only its current rows; leave the window out',
    ],
    f"select total from S s, purchases p [Now] where {ON} and p.totl > 0": [
        f'1:19: a table can only be joined with a stream [Now], and "S" has another window; {STAY}',
        '1:36: a window after the table "purchases" is not supported; a table has only its current rows; leave the window out',
        '1:74: unknown column "totl" in "p"; did you mean "total"?',
    ],
    f"select p.totl, nope from S [Now] s, purchases p where {ON}": [
        '1:8: unknown column "totl" in "p"; did you mean "total"?',
        '1:16: unknown column "nope" in "s" or "p"; known are: amount, area, by_day, tags, time, total, user_id, year',
    ],
    "select total from S [Now] s, purchases p where p.user_id = s.usr_id": [
        '1:60: unknown column "usr_id" in "s"; did you mean "user_id"?',
    ],
    "select total from S [Now] s, purchases p where p.usr_id = s.user_id": [
        '1:48: unknown column "usr_id" in "p"; did you mean "user_id"?',
    ],
    "select total from S [Now] s, purchases p where p.user_id = user_id": [
        '1:60: the column "user_id" is ambiguous; say which: "s.user_id" or "p.user_id"',
    ],
    f"select user_id, area from S [Now] s, purchases p where {ON}": [
        '1:8: the column "user_id" is ambiguous; say which: "s.user_id" or "p.user_id"',
        '1:17: the column "area" is ambiguous; say which: "s.area" or "p.area"',
    ],
    "select total from S [Now] s, purchases p where p.user_id = s.time": [
        '1:60: a timestamp[us, tz=UTC] cannot be "p.user_id": keys of tables are texts, numbers, true and false; cast it to what the key is made of, such as string',
    ],
    "select total from S [Now] s, purchases p where p.user_id = s.user_id + 1": [
        "1:60: Binder Error: No function matches the given name and argument types '+(VARCHAR, INTEGER_LITERAL)'. You might need to add explicit type casts.",
    ],
    f"select total from S [Now] s, purchases p where {ON} and p.by_day > 3": [
        "1:74: a map of text, number is compared with a number; write CAST(... AS bigint) around one side",
    ],
    f"select total from S [Now] s, purchases p where {ON} and p.user_id > s.year": [
        "1:74: a text is compared with a number; write CAST(... AS bigint) around one side",
    ],
    f"select total from S [Now] s left join purchases p on {ON} and p.total": [
        "1:80: a condition must be a boolean and this is a double; compare it with something",
    ],
    f"select total from S [Now] s, T [Now] t, purchases p where {ON} and t.user_id = s.user_id": [
        '1:41: a join of several streams with the table "purchases" is not supported; let a query of its own join one stream with the table, and join its result here',
    ],
    f"select total from S [Now] s full join purchases p on {ON}": [
        f"1:29: FULL JOIN is not supported here: {ASKED}; {SIDES}",
    ],
    f"select total from S [Now] s right join purchases p on {ON}": [
        f"1:29: RIGHT JOIN is not supported here: {ASKED}; {SIDES}",
    ],
    f"select total from purchases p left join S [Now] s on {ON}": [
        f"1:31: LEFT JOIN is not supported here: {ASKED}; {SIDES}",
    ],
    f"select amount from S [Now] s semi join purchases p on {ON}": [
        f"1:30: SEMI JOIN is not supported here: {ASKED}; write JOIN, and select only what is the stream's",
    ],
    f"select amount from S [Now] s anti join purchases p on {ON}": [
        f"1:30: ANTI JOIN is not supported here: {ASKED}; write LEFT JOIN, and in WHERE that the table's key IS NULL",
    ],
    "select total from S [Now] s join purchases p using (user)": [
        f'1:34: the key "user_id" of the table "purchases" is not compared with anything; write p.user_id = ... in WHERE or ON, {OTHER}',
        '1:53: unknown column "user" in "s"; did you mean "user_id"?',
        '1:53: unknown column "user" in "p"; did you mean "user_id"?',
    ],
    "select total from S [Now] s join purchases p using (user_id, area)": [
        '1:62: "area" is not part of the key of a table here; write ON, and compare it there',
    ],
    "select total from S [Now] s, purchases s where s.user_id = 1": [
        '1:30: two relations are called "s"; name one of them differently with AS',
    ],
    f"select total from S [Now] s, purchase p where {ON}": [
        '1:30: unknown stream "purchase"; did you mean "purchases"?',
    ],
    f"Rstream(select total as event_time from S [Now] s, purchases p where {ON})": [
        '1:16: "event_time" is the event time of the result, and of type double, not timestamp[us, tz=UTC]; '
        'cast it to the type of the event time of "S", or name it differently with AS',
    ],
}  # fmt: skip


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_named_and_placed(text: str) -> None:
    found = planned(text)
    assert found.stages == ()
    assert [str(each) for _, each in found.mistakes] == MISTAKES[text]
