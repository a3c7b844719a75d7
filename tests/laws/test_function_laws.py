"""A query with a user's function equals the query with the built-in expression, in any batches, alone and beside others."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from function_samples import low, plus, plus_arrays, strict
from hayase.testing import Trial, at, trial

FORMS = {
    "low({k})": "lower({k})",
    "plus({a}, {b})": "({a} + {b})",
    "plus_arrays({a}, {b})": "({a} + {b})",
    "plus_sql({a}, {b})": "({a} + {b})",
    "strict({a})": "(CASE WHEN {a} % 3 = 0 THEN CAST('three divides ' || {a} AS BIGINT) ELSE {a} END)",
    "strict(plus_sql(plus({a}, {b}), 1))": "(CASE WHEN ({a} + {b} + 1) % 3 = 0 THEN CAST('x' || {a} AS BIGINT) "
    "ELSE {a} + {b} + 1 END)",
}  # fmt: skip
QUERIES = (
    "select a, {f} as x from s where b is not null",
    "select k from s where {f} = {f}",
    "select {f} as x, count(*) as n, sum(a) as t from s [Range 3 s] group by {f}",
    "select k, max({f}) as m from s [Rows 4] group by k having count({f}) > 1",
    "select k, max(a) as m, min({f}) as n from s [Partition By k Rows 2] group by k",
    "select s.a, t.b from s [Range 2 s] join s [Range 2 s] as t on s.k = t.k and {g} = {g}",
    "select distinct {f} as x from s [Range 4 s]",
    "select k, a from s [Range 5 s] order by {f}, a, b limit 2",
)
RECORDS = st.lists(
    st.fixed_dictionaries({
        "k": st.sampled_from(["A", "a", "Bc", None]), "a": st.one_of(st.none(), st.integers(0, 5)), "b": st.integers(0, 3),
    }),
    max_size=12,
)  # fmt: skip


def declared(t: Trial) -> None:
    t.stream("s", "time timestamp, k string, a bigint, b bigint")
    t.function(low)
    t.function(plus)
    t.function(strict)
    t.function(plus_arrays, arguments="x bigint, y bigint", returns="bigint")
    t.function(name="plus_sql", sql="x + y")


def answers(t: Trial, name: str) -> tuple[Any, Counter[Any], int]:
    """The intervals or records of a query, and its dead letters by record."""
    results = t.query(name)
    rows = results.intervals() if results.log.declaration.lifetimes else results.rows()
    dead = Counter((letter["kind"], str(letter["record"])) for letter in t.dead_letters() if letter["stage"] == name)
    return Counter(map(str, rows)), dead, t.figures(name).dead


@given(
    form=st.sampled_from(sorted(FORMS)),
    query=st.sampled_from(QUERIES),
    records=RECORDS,
    rows=st.sampled_from([1, 3, 100]),
    beside=st.booleans(),
)
@settings(max_examples=examples(30), deadline=None)
def test_a_function_is_what_it_computes(
    form: str, query: str, records: list[dict[str, Any]], rows: int, beside: bool
) -> None:
    plain, joined = {name: name for name in "kab"}, {name: f"s.{name}" for name in "kab"}
    called = query.format(f=form.format(**plain), g=form.format(**joined))
    written = query.format(f=FORMS[form].format(**plain), g=FORMS[form].format(**joined))
    with trial() as t:
        declared(t)
        t.query("called", called)
        if beside:
            t.query("others", "select count(*) as n, max(strict(a)) as m from s [Range 3 s]")
        t.query("written", written)
        t.append("s", [{"time": at(number), **record} for number, record in enumerate(records)])
        t.finish("s")
        t.run(batch_rows=rows)
        if rows == 3:
            t.restart()
            t.run()
        assert answers(t, "called") == answers(t, "written"), (called, written)
