"""Expressions over batches: values, types, refused rows, and what may not be said."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest

from hayase.core import expressions
from hayase.core.errors import DeclarationError
from hayase.core.expressions import Projection, bind, check, condition
from hayase.core.reasons import ReasonKind
from hayase.core.schemas import arrow_schema, ddl
from hayase.core.stages import Mapped

SCHEMA = arrow_schema("time timestamp, user_id string, amount double, n bigint, small tinyint, tags array<string>")
ROWS = [
    {"time": datetime(2026, 1, 1, tzinfo=UTC), "user_id": "1", "amount": 1.5, "n": 1, "small": 100, "tags": ["a"]},
    {
        "time": datetime(2026, 1, 2, tzinfo=UTC),
        "user_id": "two",
        "amount": None,
        "n": 2**63 - 1,
        "small": 1,
        "tags": [],
    },
    {"time": datetime(2026, 1, 3, tzinfo=UTC), "user_id": None, "amount": math.nan, "n": 0, "small": 2, "tags": None},
    {"time": datetime(2026, 1, 4, tzinfo=UTC), "user_id": "4", "amount": -2.0, "n": None, "small": None, "tags": ["b"]},
]
BATCH = pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA)


def projected(*columns: tuple[str, str], where: str | None = None, batch: pa.RecordBatch = BATCH) -> Mapped:
    return Projection(columns, where, check(columns, where, batch.schema))(batch)


def values(sql: str) -> list[object]:
    mapped = projected(("v", sql))
    assert len(mapped.refused) == 0
    return mapped.rows.column("v").to_pylist()


def refused(sql: str, relation: str = "input") -> str:
    with pytest.raises(DeclarationError) as caught:
        bind(sql, SCHEMA, relation)
    return str(caught.value)


def test_rows_keep_their_order_and_say_where_they_came_from() -> None:
    mapped = projected(("who", "user_id"), ("twice", "cast(small as int) * 2"), where="small > 1")
    assert mapped.rows.to_pylist() == [{"who": "1", "twice": 200}, {"who": None, "twice": 4}]
    assert mapped.input_rows.tolist() == [0, 2]
    assert len(mapped.refused) == 0


def test_a_row_that_raises_is_refused_and_its_neighbours_live() -> None:
    mapped = projected(("v", "cast(user_id as int)"), ("n", "n"))
    assert mapped.rows.column("v").to_pylist() == [1, None, 4]
    assert mapped.input_rows.tolist() == [0, 2, 3]
    assert mapped.refused.rows.tolist() == [1]
    ((kind, reason),) = mapped.refused.reasons
    assert kind is ReasonKind.EXPRESSION
    assert "cast(user_id as int)" in reason
    assert "'two'" in reason


def test_integer_overflow_is_refused() -> None:
    mapped = projected(("v", "n + 1"))
    assert mapped.rows.column("v").to_pylist() == [2, 1, None]
    assert mapped.refused.rows.tolist() == [1]
    assert "Overflow" in mapped.refused.reasons[0].text


def test_a_condition_that_raises_refuses_the_row() -> None:
    mapped = projected(("n", "n"), where="cast(user_id as int) > 1")
    assert mapped.input_rows.tolist() == [3]
    assert mapped.refused.rows.tolist() == [1]
    assert mapped.refused.reasons[0].text.startswith('cannot compute "where cast(user_id as int) > 1": ')


def test_selected_expressions_are_evaluated_only_where_the_condition_holds() -> None:
    mapped = projected(("v", "cast(user_id as int)"), where="user_id is null or user_id <> 'two'")
    assert (mapped.input_rows.tolist(), len(mapped.refused)) == ([0, 2, 3], 0)


def test_the_first_expression_that_raises_is_the_reason() -> None:
    mapped = projected(("a", "amount"), ("b", "n + 1"), ("c", "cast(user_id as int)"))
    assert mapped.refused.rows.tolist() == [1]
    assert '"n + 1"' in mapped.refused.reasons[0].text


@pytest.mark.parametrize("where", ["user_id <> 'two' and cast(user_id as int) > 0", "user_id = 'two' or n + 1 > 0"])
def test_the_fate_of_a_row_does_not_depend_on_its_neighbours(where: str) -> None:
    columns = (("n", "n"),)
    projection = Projection(columns, where, check(columns, where, SCHEMA))
    together = projection(BATCH)
    alone = [projection(BATCH.slice(row, 1)) for row in range(len(BATCH))]
    assert together.refused.rows.tolist() == [row for row, each in enumerate(alone) if len(each.refused)]
    assert together.input_rows.tolist() == [row for row, each in enumerate(alone) if len(each.input_rows)]


def test_a_part_that_occurs_twice_is_still_tried() -> None:
    where = "cast(user_id as int) + cast(user_id as int) > 0"
    mapped = projected(("v", "cast(user_id as int) * cast(user_id as int)"), where=where)
    assert (mapped.rows.column("v").to_pylist(), mapped.refused.rows.tolist()) == ([1, 16], [1])


def test_only_so_many_rows_are_explained() -> None:
    batch = pa.record_batch({"s": ["x"] * (expressions.EXPLAINED + 3)})
    mapped = projected(("v", "cast(s as int)"), batch=batch)
    assert len(mapped.refused) == len(batch)
    assert [": " in reason.text for reason in mapped.refused.reasons] == [True] * expressions.EXPLAINED + [False] * 3


def test_an_empty_batch_gives_an_empty_batch() -> None:
    mapped = projected(("v", "n + 1"), batch=BATCH.slice(0, 0))
    assert (mapped.rows.num_rows, mapped.rows.schema, len(mapped.input_rows)) == (0, pa.schema({"v": pa.int64()}), 0)


def test_a_slice_is_its_rows() -> None:
    assert projected(("v", "small"), batch=BATCH.slice(2)).rows.column("v").to_pylist() == [2, None]


def test_null_nan_and_division() -> None:
    assert values("amount is null") == [False, True, False, False]
    for sql in ("n / 0", "amount / 0", "n / 0.0"):  # DuckDB's rule: IEEE for floats, an error for whole numbers
        assert all(each is None or not math.isfinite(each) for each in values(sql)), sql
    for sql in ("n // 0", "n % 0"):
        refused = projected(("v", sql)).refused
        assert "Division by zero" in refused.reasons[0].text
    amounts = values("amount * 2")
    assert amounts[0] == 3.0
    assert amounts[1] is None
    assert math.isnan(amounts[2])  # type: ignore[arg-type]


def test_timestamps_are_utc() -> None:
    assert values("time + interval 1 hour")[0] == datetime(2026, 1, 1, 1, tzinfo=UTC)
    assert values("extract(hour from time)") == [0] * 4
    assert values("cast('2026-01-01' as timestamptz) = time") == [True, False, False, False]


@pytest.mark.parametrize(
    ("sql", "kind", "value"),
    [
        ("cast(1 as hugeint)", "decimal(38, 0)", Decimal(1)),
        ("cast(1 as utinyint)", "smallint", 1),
        ("cast(1 as usmallint)", "int", 1),
        ("cast(1 as uinteger)", "bigint", 1),
        ("cast(1 as ubigint)", "decimal(20, 0)", Decimal(1)),
        ("cast('a' as enum('a', 'b'))", "string", "a"),
        ("cast('5d3e1c5e-0000-4000-8000-000000000000' as uuid)", "string", "5d3e1c5e-0000-4000-8000-000000000000"),
        ("cast('2026-01-01' as timestamp_ns)", "timestamp_ntz", datetime(2026, 1, 1)),
        ("cast('2026-01-01' as timestamp_s)", "timestamp_ntz", datetime(2026, 1, 1)),
        ("cast('2026-01-01' as date)", "date", date(2026, 1, 1)),
        ("cast('[1]' as json)", "string", "[1]"),
        ("[cast(1 as utinyint)]", "array<smallint>", [1]),
        ("{'a': cast(1 as hugeint), 'B c': 'x'}", "struct<a: decimal(38, 0), `B c`: string>", {"a": 1, "B c": "x"}),
        ("map {'k': 1}", "map<string, int>", [("k", 1)]),
        ("array_value(1, 2)", "array<int>", [1, 2]),
        ("1.50", "decimal(3, 2)", Decimal("1.50")),
        ("encode('a')", "binary", b"a"),
        ("cast('01:00' as time)", "time", time(1)),
        ("list_transform([1, 2], lambda x: x + 1)", "array<int>", [2, 3]),
    ],
)
def test_types_are_those_of_streams(sql: str, kind: str, value: object) -> None:
    mapped = projected(("v", sql))
    assert ddl(mapped.rows.schema) == f"v {kind}"
    assert mapped.rows.column("v").to_pylist() == [value] * 4
    assert Projection((("v", sql),), None, mapped.rows.schema).row_by_row(BATCH).rows.equals(mapped.rows)


@pytest.mark.parametrize("sql", ["interval 1 day", "cast('01:00+02' as timetz)", "cast('101' as bit)", "null"])
def test_types_that_streams_do_not_have_are_refused_with_a_hint(sql: str) -> None:
    assert "a stream cannot hold a value of type " in refused(sql)


def test_results_may_always_be_null() -> None:
    assert check((("v", "x"),), None, pa.schema([pa.field("x", pa.int64(), nullable=False)])).field("v").nullable


@pytest.mark.parametrize(
    "sql",
    ["random()", "uuid()", "NOW()", "current_timestamp", "current_date", "localtimestamp", "today()", "age(time)",
     "nextval('s')", "ago(interval 1 day)", "amount + random()", "list_transform(tags, lambda x: x || random())"],
)  # fmt: skip
def test_what_changes_from_run_to_run_is_refused_by_name(sql: str) -> None:
    message = refused(sql)
    assert "is not supported; a batch that runs again must give the same rows" in message


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("(select 1)", "1:1: sub-queries are not supported in expressions"),
        ("n in (select 1)", "sub-queries"),
        ("exists (select 1)", "sub-queries"),
        ("row_number() over ()", "1:1: window functions are not supported"),
        ("n + $1", "1:5: parameters are not supported"),
        ("?", "parameters are not supported"),
        ("columns(*)", "* inside an expression"),
        ("#1", "references by position"),
        ("1 +\n max(n)", "2:2: the aggregate max is not supported here"),
        ("json_group_array(n)", "the aggregate json_group_array is not supported here"),
        ("geometric_mean(n)", "the aggregate geometric_mean is not supported here"),
        ("unnest(tags)", "unnest is not supported"),
        ("amuont + 1", '1:1: unknown column "amuont"; did you mean "amount"?'),
        ("'é' || usr_id", '1:8: unknown column "usr_id"; did you mean "user_id"?'),
        ("e.nn", '1:1: unknown column "nn"'),
        ("x.n", '1:1: unknown column "x.n"'),
        ("__row", "unknown column"),
        ("e", 'unknown column "e"'),
        ("n +", "1:4: syntax error"),
        ("1) from t where (1", "is not one expression"),
        ("1; select 2", "syntax error"),
        ("nosuch(n)", "nosuch"),
        ("tags + 1", "1:1: "),
    ],
)
def test_mistakes_are_named_and_placed(sql: str, message: str) -> None:
    assert message in refused(sql, relation="e")


def test_names_do_not_depend_on_case_and_may_be_qualified() -> None:
    assert bind('E.Amount + "N"', SCHEMA, "e").columns == {"amount", "n"}
    columns = (("v", "e.N"),)
    assert Projection(columns, None, check(columns, None, SCHEMA, "e"), "e")(BATCH).rows.num_rows == 4


def test_a_condition_is_a_boolean() -> None:
    assert condition("n > 1", SCHEMA).columns == {"n"}
    with pytest.raises(DeclarationError, match="must be a boolean and this is a int64"):
        condition("n", SCHEMA)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(DeclarationError) as caught:
        check((("a", "nope"), ("b", "n"), ("c", "random()")), "never", SCHEMA)
    assert len(caught.value.mistakes) == 3


def test_a_projection_can_be_sent_elsewhere() -> None:
    columns = (("v", "n"),)
    projection = Projection(columns, "n > 0", check(columns, "n > 0", SCHEMA))
    sent = pickle.loads(pickle.dumps(projection))
    assert sent == projection
    assert sent(BATCH).rows.equals(projection(BATCH).rows)


def test_nothing_outside_can_be_reached(tmp_path: object) -> None:
    columns = (("v", "n"),)
    Projection(columns, None, check(columns, None, SCHEMA))(BATCH)
    settings = dict(
        expressions.thread_connection()
        .execute(
            "select name, value from duckdb_settings() where name in ('enable_external_access', 'lock_configuration')"
        )
        .fetchall()
    )
    assert settings == {"enable_external_access": "false", "lock_configuration": "true"}


def test_threads_have_connections_of_their_own() -> None:
    found: list[int] = []

    def work() -> None:
        found.append(id(expressions.thread_connection()))
        found.extend([projected(("v", "small")).rows.num_rows] * 1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found.count(4) == 3
    assert id(expressions.thread_connection()) not in found


FORK = """
import os, sys, pyarrow as pa
from hayase.core import expressions
from hayase.core.expressions import Projection, check
batch = pa.record_batch({"n": [1, 2]})
columns = (("v", "n + 1"),)
side = Projection(columns, None, check(columns, None, batch.schema))
assert side(batch).rows.num_rows == 2
mine = id(expressions.thread_connection())
child = os.fork()
if child == 0:
    ok = side(batch).rows.column("v").to_pylist() == [2, 3] and id(expressions.thread_connection()) != mine
    os._exit(0 if ok else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_does_not_touch_its_parents_connection() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], env=dict(os.environ), timeout=600, check=False)
    assert done.returncode == 0


# ------------------------------------------------------------------------------------------ kinds of values, and sizes


@pytest.mark.parametrize(
    "sql",
    [
        "n = user_id", "n < user_id", "n <> user_id", "n in (1, 'two')", "n is distinct from user_id", "time > '2026-01-01'",
        "n between 1 and user_id", "case n when 'a' then 1 end", "nullif(n, user_id)", "not (n = 1 or time = user_id)",
        "(n, user_id) = (user_id, n)", "list_contains(tags, n)", "list_filter(tags, lambda tag: tag = n)",
        "user_id->>'x' = 5", "amount = true",
    ],
)  # fmt: skip
def test_values_of_different_kinds_are_not_compared(sql: str) -> None:
    with pytest.raises(DeclarationError, match=r"CAST\(") as raised:
        bind(sql, SCHEMA)
    assert raised.value.mistakes[0].line == 1


@pytest.mark.parametrize(
    "sql",
    [
        "n = amount", "n = null", "time > timestamp '2026-01-01'", "time > date '2026-01-01'", "n in (1, 2.5, null)",
        "cast(n as varchar) = user_id", "list_contains(tags, user_id)", "list_filter(tags, lambda tag: tag = user_id)",
        "case user_id when 'a' then 1 end", "contains(user_id, 'a')",
    ],
)  # fmt: skip
def test_values_of_one_kind_are_compared(sql: str) -> None:
    bind(sql, SCHEMA)


def test_an_arrow_reads_a_field_of_json_and_in_some_functions_makes_no_lambda() -> None:
    json = pa.record_batch({"value": ['{"x": {"y": 1}}', '{"x": null}', None]})
    found = (("x", "value->'x'"), ("y", "value->'x'->>'y'"), ("length", "length(value->'x')"))
    rows = Projection(found, None, check(found, None, json.schema))(json).rows.to_pylist()
    assert rows[0] == {"x": '{"y":1}', "y": "1", "length": 7}
    assert rows[2] == {"x": None, "y": None, "length": None}
    with pytest.raises(DeclarationError, match='unknown column "valeu"'):
        bind("valeu->'x'", json.schema)


@pytest.mark.parametrize(
    "sql",
    [
        "repeat(s, n)", "lpad(s, n, 'a')", "rpad(s, n, 'a')", "range(n)", "len(range(n))", "range(1, n)", "range(1, n, 2)",
        "generate_series(n)", "list_resize([n], n)", "list_resize([n], n, 0)", "repeat([n], n)", "bitstring('01', n)::varchar",
        "replace(repeat(s, 30000), 'x', repeat('b', case when n > 2 then 30000 else 0 end))",
        "range(timestamp '2026-01-01', timestamp '2026-01-01' + to_seconds(n), interval 1 millisecond)",
        "repeat(s, case when n > 2 then 9000000 else 1 end) || repeat(s, case when n > 2 then 9000000 else 1 end)",
        "levenshtein(repeat(s, case when n > 2 then 5000 else 1 end), repeat('b', 5000))",
        "editdist3(repeat(s, case when n > 2 then 5000 else 1 end), repeat('b', 5000))",
        "damerau_levenshtein(repeat(s, case when n > 2 then 5000 else 1 end), repeat('b', 5000))",
    ],
)  # fmt: skip
def test_a_value_that_would_be_too_large_refuses_its_row_alone(sql: str) -> None:
    batch = pa.record_batch({"n": pa.array([2, 2_000_000_000]), "s": ["x", "x"]})
    columns = (("v", sql),)
    mapped = Projection(columns, None, check(columns, None, batch.schema))(batch)
    assert (mapped.input_rows.tolist(), mapped.refused.rows.tolist()) == ([0], [1])
    assert "larger than 16 MiB" in mapped.refused.reasons[0].text


@pytest.mark.parametrize(
    "sql", ["REPEAT(s, n)", '"Repeat"(s, n)', "s.repeat(n)", "repeat/**/(s, n)", "main.repeat(s, n)"]
)
def test_a_limit_holds_however_the_function_is_written(sql: str) -> None:
    """On a connection that has not seen the function yet: it gets the limited one when a text names it."""
    rows = pa.record_batch({"s": ["ab", "ab"], "n": [2, 1 << 30]})

    def mapped() -> tuple[list[object], list[int]]:
        columns = (("v", sql),)
        result = Projection(columns, None, check(columns, None, rows.schema))(rows)
        return result.rows.column(0).to_pylist(), result.refused.rows.tolist()

    with ThreadPoolExecutor(1) as fresh:
        assert fresh.submit(mapped).result() == (["abab"], [1])


@pytest.mark.parametrize(
    "sql",
    [
        "format('{:>1000000000}', user_id)", "printf('%2000000000d', n)", "format(user_id, n)",
        "list_reduce(tags, lambda a, b: a || a)", "list_transform(tags, lambda tag: range(1000000))",
    ],
)  # fmt: skip
def test_what_grows_without_a_bound_that_can_be_checked_is_refused(sql: str) -> None:
    with pytest.raises(DeclarationError, match="not supported"):
        bind(sql, SCHEMA)


def test_a_batch_that_takes_too_much_memory_is_halved_until_one_row_is_to_blame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = expressions.run_statement

    def limited(sql: str, batch: pa.RecordBatch) -> pa.Table:
        if 7 in batch["n"].to_pylist():
            raise expressions.duckdb.OutOfMemoryException("no memory")
        return run(sql, batch)

    monkeypatch.setattr(expressions, "run_statement", limited)
    batch = pa.record_batch({"n": pa.array([*range(10)])})
    columns = (("v", "n + 1"),)
    mapped = Projection(columns, None, check(columns, None, batch.schema))(batch)
    assert mapped.rows["v"].to_pylist() == [1, 2, 3, 4, 5, 6, 7, 9, 10]
    assert mapped.input_rows.tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert mapped.refused.rows.tolist() == [7]
    assert "more memory" in mapped.refused.reasons[0].text


def test_a_statement_that_takes_long_prints_no_progress() -> None:
    """In an interactive Python, which DuckDB takes `-c` for, a statement of two seconds would print a bar among other output."""
    program = (
        "import pyarrow as pa\nfrom hayase.core.expressions import run_statement\n"
        "rows = run_statement(\"SELECT current_setting('enable_progress_bar') AS v\", pa.RecordBatch.from_pydict({'x': [1]}))\n"
        "print(rows.to_pylist())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[{'v': False}]\n"
