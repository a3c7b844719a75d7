"""A pipeline from a table of PostgreSQL to others: `python postgres_pipeline.py HOME TABLE` moves all that there is, without Spark.

The connection string is in SHOP_DSN. The table has the columns id, name and n.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hayase import Pipeline, Postgres

__all__ = ["shop"]


def shop(home: Path, table: str) -> Pipeline:
    """The pipeline: the present rows of a table in TABLE_mirror, their history in TABLE_history, all changes in TABLE_changes."""
    pipeline = Pipeline("shop", home=home)
    schema = "op string, at timestamp, id bigint, name string, n bigint"
    source = Postgres(dsn_env="SHOP_DSN", table=table, slot=table)
    pipeline.stream("users", schema, time="at", changes="op", slack=0, source=source)
    pipeline.query("present", "select id, name, n from users")
    to = {"mirror": {"key": "id"}, "history": {"mode": "history"}}
    for name, options in to.items():
        pipeline.output(name, reads="present", to=Postgres(dsn_env="SHOP_DSN", table=f"{table}_{name}", **options))
    pipeline.output("changes", reads="users", to=Postgres(dsn_env="SHOP_DSN", table=f"{table}_changes"))
    return pipeline


if __name__ == "__main__":
    shop(Path(sys.argv[1]), sys.argv[2]).run_until_idle(spark=False)
