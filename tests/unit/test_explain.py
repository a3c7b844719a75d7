"""What `explain` says, word by word: `tests/golden` has a text for every case, under its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hayase.core.declarations import PipelineDeclaration, QueryDeclaration, StreamDeclaration, TableDeclaration
from hayase.core.errors import DeclarationError, UnknownName
from hayase.core.stages import Refusals
from hayase.cql.explain import explain
from hayase.cql.plan_graph import plan_graph
from hayase.cql.planner import plan

GOLDEN = Path(__file__).parent.parent / "golden"
STREAMS = (
    StreamDeclaration("events", "time timestamp, user_id string, amount double, n int", "time"),
    StreamDeclaration("sensors", "ts bigint, value bigint", "ts", time_unit="ms"),
    StreamDeclaration("users", "time timestamp, id string, age bigint", "time"),
    StreamDeclaration("stock", "time timestamp, op string, item string, n bigint", "time", changes="op"),
)
TABLES = (
    TableDeclaration("purchases", ("user_id",), (("total", "Counter"), ("country", "Register"))),
    TableDeclaration("countries", ("code", "year"), (("people", "Counter"),)),
)


class Empty:
    """A table without rows."""

    def __init__(self, table: TableDeclaration):
        self.table = table
        kinds = {"Counter": pa.float64(), "Register": pa.string()}
        self.schema = pa.schema({name: kinds[kind] for name, kind in table.columns})

    def find(
        self, keys: pa.RecordBatch, columns: Sequence[str] | None = None
    ) -> tuple[np.ndarray, pa.RecordBatch, Refusals]:
        return np.empty(0, np.int64), pa.RecordBatch.from_pylist([], self.schema), Refusals()


LOOKUPS = {each.name: Empty(each) for each in TABLES}
CASES = {
    "first-rows-of-each-group": {
        "best": """select distinct on (user_id) user_id, n
from events [Range 1 hour]
order by amount desc""",
    },
    "first-rows-of-rows-that-never-end": {
        "best": """select distinct on (user_id) user_id, n
from events
order by amount desc""",
    },
    "first-ranks": {
        "best": """select user_id, n, place
from (select *, row_number() over (partition by user_id order by amount desc) as place from events [Range 1 hour])
where place <= 3 and n > 0""",
    },
    "streams-inside": {
        "alarms": """select user_id, count(*) as times
from Istream(select user_id from events [Range 1 hour] group by user_id having sum(amount) > 100) [Range 1 day] as x
join (select id as user_id from users where age > 20) [Rows 5] as u using (user_id)
group by user_id""",
    },
    "union-of-streams": {
        "all_ids": "select user_id as id from events where n > 0 union all select id from users",
    },
    "window-functions-of-a-stream": {
        "moving": """select user_id, row_number() over w as place, lag(amount) over w as before,
    sum(amount) over (w range between interval '10 minutes' preceding and current row) as recent
from events
where n > 0
window w as (partition by user_id order by time)
qualify place > 1""",
    },
    "window-functions": {
        "moving": """select user_id, sum(amount) as total, rank() over (order by sum(amount) desc) as place,
    max(count(*)) over () as most
from events [Range 1 hour]
group by user_id
qualify place < 10""",
    },
    "asof-join": {
        "priced": """select e.user_id, e.n, u.age
from events [Range 1 hour] as e asof left join users as u on e.user_id = u.id and e.time >= u.time
where e.n > 0 and u.age > 18""",
    },
    "join-bounded-by-time": {
        "grown": """select e.user_id, e.n, u.age
from events as e join users as u
on e.user_id = u.id and u.time between e.time - interval '5 minutes' and e.time + interval '1 hour'""",
    },
    "first-rows-of-all": {
        "leaders": """select user_id, sum(amount) as total
from events [Range 1 hour]
group by user_id
order by total desc nulls first
limit 10 offset 2""",
    },
    "records-one-by-one": {
        "large": "select *, lower(user_id) as who from events where amount > 1000 and n is not null",
    },
    "view-rows-having": {
        "big": "select user_id as u, n from events where n > 10",
        "busy": """select u, count(*) as orders
from big [Rows 5]
where n < 100
group by u
having count(*) > 2""",
    },
    "join-of-three": {
        "seen": """select e.user_id, u.age, s.value
from events [Range 10 seconds] e, users u, sensors [Now] s
where e.user_id = u.id and s.value = u.age and e.amount > 3 and e.n < u.age""",
    },
    "one-key-throughout": {
        "again": """select e.user_id, max(e.amount) as most, count(distinct e.n) as kinds
from events [Range 10 minutes] e join users u on e.user_id = u.id
where exists (select 1 from stock s where s.item = e.user_id and s.n > 0)
group by e.user_id""",
    },
    "key-changes": {
        "ages": """select u.age, avg(e.amount) as mean
from events [Range 10 minutes Slide 1 minute] e left join users u on e.user_id = u.id
group by u.age""",
    },
    "global-aggregate": {
        "total": """select count(*) as sold, sum(n) as items
from (select distinct user_id, n from events [Range 1 hour])
where n > 0""",
    },
    "partition-and-changes": {
        "left_over": """Istream(select s.item, e.n
from stock s join events [Partition By user_id Rows 3] e on s.item = e.user_id
where s.n > 0 and e.n > 1)""",
    },
    "set-operations": {
        "strange": """select user_id from events [Unbounded]
except
(select id from users union all select user_id from events [Rows 10 Slide 5] where n = 0)""",
    },
    "relation-read": {
        "spent": "select user_id, sum(amount) as spent from events [Range 1 day] group by user_id",
        "rich": "Rstream(select user_id from spent where spent > 1000)",
    },
    "rstream-every-slide": {
        "load": "Rstream(select value % 2 as odd, count(*) from sensors [Range 1 minute Slide 10 seconds] group by 1)",
    },
    "shared-windows": {
        "hourly": "select max(amount) as most from events [Range 1 hour Slide 1 minute]",
        "other": "select sum(n * 2) as twice from events [Rows 100]",
        "trend": """select avg(amount) as average, first(n) as oldest
from events [Rows 10, 100, 1000 Slide 10]
having count(*) > 9""",
    },
    "several-windows-one-by-one": {
        "each": "select user_id, count(distinct n) as kinds from events [Rows 10, 20] where n > 0 group by user_id",
    },
    "windows-with-bounds": {
        "hops": """select user_id, window_end, sum(n) as total
from events [Hop 10 minutes Every 1 minute Offset 30 s]
where amount * 2 > 10 and window_start > '2026-01-01'::timestamptz
group by user_id, window_start, window_end""",
    },
    "windows-with-bounds-in-one-pass": {
        "hours": "select n, window_end, count(*) as amounts from events [Tumble 1 hour, 1 day] group by n, window_end",
        "days": """select user_id, window_start, last(amount) as newest
from events [Session 1 day Keep Unbounded]
where n > 0
group by window_start, user_id, window_end
having window_end > '2026-01-01'::timestamptz""",
        "visits": "select user_id, window_start, max(amount) as most from events [Hop 1 hour Every 5 minutes] group by 1, 2",
        "quick": "select user_id, window_end, max(n) as most from events [Tumble 5 minutes Offset 1 minute] group by 1, 2",
    },
    "sessions-in-one-pass": {
        "days": """select user_id, window_start, last(amount) as newest
from events [Session 1 day Keep Unbounded]
where n > 0
group by window_start, user_id, window_end
having window_end > '2026-01-01'::timestamptz""",
    },
    "sessions": {
        "visits": """select upper(user_id) as who, window_start, is_final, count(*) as visits, max(amount) as most
from events [Session 30 minutes Keep Unbounded Early 5 minutes]
where n > 0
group by upper(user_id), window_start, window_end, is_final""",
    },
    "windows-by-partition": {
        "last": """select user_id, max(amount) as most
from events [Partition By user_id Rows 3, 5]
where n > 0
group by user_id""",
    },
    "tables-met": {
        "seen": """select e.user_id, p.total, c.people
from events [Now] e, countries c, purchases p
where c.code = p.country and c.year = e.n + 2000 and p.user_id = e.user_id and p.total > 100 and e.amount > 0""",
    },
    "table-behind-a-view": {
        "known": "Rstream(select e.user_id, total from events [Now] e left join purchases p on p.user_id = e.user_id)",
        "spent": "select user_id, max(total) as most from known [Range 1 hour] group by user_id",
    },
    "table-or-nulls": {
        "all_of_them": """Rstream(select user_id, n, total
from events [Now] left join purchases using (user_id))""",
    },
    "theta-join": {
        "near": "select a.n, b.n as m from events [Range 1 second] a, events [Range 1 second] b where a.n < b.n",
    },
}


def declared(queries: dict[str, str]) -> PipelineDeclaration:
    return PipelineDeclaration("p", STREAMS, tuple(QueryDeclaration(*each) for each in queries.items()), tables=TABLES)


@pytest.mark.parametrize("case", CASES)
def test_what_explain_says(case: str) -> None:
    """The last query of a case."""
    queries = CASES[case]
    assert explain(declared(queries), list(queries)[-1], LOOKUPS) + "\n" == (GOLDEN / f"{case}.txt").read_text()


def test_every_text_has_its_case() -> None:
    assert {each.stem for each in GOLDEN.glob("*.txt")} == set(CASES)


def test_the_case_of_a_name_does_not_matter() -> None:
    queries = CASES["records-one-by-one"]
    assert explain(declared(queries), "LARGE") == explain(declared(queries), "large")


def test_queries_that_cannot_be_explained() -> None:
    queries = {"good": "select n from events", "bad": "select m from events", "after": "select m from bad"}
    with pytest.raises(UnknownName, match=r'unknown query "god"; did you mean "good"\?'):
        explain(declared(queries), "god")
    for name in ("bad", "after"):
        with pytest.raises(DeclarationError, match='1:8: unknown column "m"'):
            explain(declared(queries), name)
    assert explain(declared(queries), "good").startswith("Query good\n  select n from events\n")


@pytest.mark.parametrize("case", CASES)
def test_a_plan_is_one_graph_without_circles_that_ends_in_the_result(case: str) -> None:
    queries = tuple(QueryDeclaration(name, text) for name, text in CASES[case].items())
    planned = plan(PipelineDeclaration("shop", STREAMS, queries, tables=TABLES), LOOKUPS)
    for query in planned.queries:
        graph = plan_graph(query)
        names = [node.name for node in graph.nodes]
        assert len(names) == len(set(names))
        assert [node.title for node in graph.nodes if node.kind == "result"] == [query.name]
        assert all(names.index(source) < names.index(target) for source, target in graph.edges)
        reached = {f"{query.drafts[-1].stage.name} result"}
        for source, target in sorted(graph.edges, key=lambda edge: -names.index(edge[1])):
            if target in reached:
                reached.add(source)
        assert reached == set(names)
