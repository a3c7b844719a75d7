"""Python functions in expressions: CPU time per call, in the way that was chosen and in those that were not.

    python -m benchmarks.functions

Every way computes the same column of 200,000 rows: as projections do (values, arrays), with a native function of DuckDB, and with
the expression split around the call (arguments by DuckDB, the calls in Python, the rest by DuckDB). Then 1 % of the rows fail:
noted by row, or found by TRY. Printed is the least CPU time of five rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.expressions import Projection, check, run_statement, thread_connection
from hayase.core.function_data import declared_function
from hayase.core.scalar_functions import FUNCTIONS
from hayase.cql.user_functions import registered_functions

__all__ = ["main"]

ROWS, FAILING, ROUNDS = 200_000, 100, 5
SCHEMA = pa.schema([("title", pa.string()), ("bad", pa.bool_())])


def slug(title: str) -> str:
    """Return a title as part of an address."""
    return title.lower().replace(" ", "-")


def slugs(title: pa.Array) -> pa.Array:
    """The same for all titles of an array."""
    return pc.replace_substring(pc.utf8_lower(title), " ", "-")


def picky(title: str, bad: bool) -> str:
    """The same, except for some rows."""
    if bad:
        raise ValueError("no title")
    return slug(title)


def main() -> None:
    """Measure, and print the figures."""
    arrays = {"arguments": "title string", "returns": "string"}
    keys = registered_functions([
        declared_function(name, {"function": f"benchmarks.functions:{name}", **options})
        for name, options in (("slug", {}), ("slugs", arrays), ("picky", {}))
    ])  # fmt: skip
    rows = pa.record_batch(
        [pa.array([f"Some Title {n % 1000}" for n in range(ROWS)]), pa.array(np.arange(ROWS) % FAILING == 0)], schema=SCHEMA
    )  # fmt: skip
    titles = rows.column("title").to_pylist()
    thread_connection().create_function("native_slug", slug, ["VARCHAR"], "VARCHAR")
    _print("the Python function alone", lambda: [slug(title) for title in titles])
    _print("without a function: lower(title)", lambda: _projected("lower(title)", rows))
    _print("chosen, values", lambda: _projected(f"{keys['slug']}(title)", rows))
    _print("chosen, arrays", lambda: _projected(f"{keys['slugs']}(title)", rows))
    _print("native function, results unchecked", lambda: _projected("native_slug(title)", rows))
    _print("split around the call, values", lambda: _split(keys["slug"], rows))
    _print("split around the call, arrays", lambda: _split(keys["slugs"], rows))
    few = rows.slice(0, ROWS // 10)
    _print("1 % fail: noted by row", lambda: _projected(f"{keys['picky']}(title, bad)", few), few.num_rows)
    tried = f"SELECT TRY(struct_pack(v := {keys['picky']}(title, bad))) FROM __batch"
    _print("1 % fail: found by TRY", lambda: run_statement(tried, few), few.num_rows)


def _projected(sql: str, rows: pa.RecordBatch) -> None:
    columns = (("x", sql),)
    Projection(columns, None, check(columns, None, SCHEMA))(rows)


def _split(key: str, rows: pa.RecordBatch) -> None:
    schema = pa.schema([("x", pa.string())])
    arguments = Projection((("x", "title"),), None, schema)(rows).rows
    results = FUNCTIONS[key].call(arguments.columns, rows.num_rows).values
    Projection((("x", "x"),), None, schema)(pa.record_batch([results], schema=schema))


def _print(way: str, action: Callable[[], object], rows: int = ROWS) -> None:
    spent = []
    for _ in range(ROUNDS):
        began = time.process_time()
        action()
        spent.append(time.process_time() - began)
    print(f"{way:35} {min(spent) / rows * 1e6:7.3f} us of CPU time for a row")


if __name__ == "__main__":
    main()
