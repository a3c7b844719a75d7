"""The queries of Nexmark (`examples/nexmark`) against DuckDB: at many instants, the rows are those of the same text as plain SQL
over the records up to then. A window in brackets becomes the sub-query that its definition says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import yaml

import hayase as hy

EXAMPLE = Path(__file__).parents[2] / "examples" / "nexmark"
sys.path.insert(0, str(EXAMPLE))
import generator  # noqa: E402  (it lies beside the example)

EVENTS, PER_SECOND, INSTANTS = 4_000, 80, 12
FILE = yaml.safe_load((EXAMPLE / "pipeline.yaml").read_text())
QUERIES: dict[str, str] = FILE["queries"]
STREAMS = ("person", "auction", "bid")
SIDE = [{"key": key, "value": f"side {key}"} for key in range(1000, 1100)]
PLACES = {"person": "id", "auction": "id", "bid": "bidder"}
_WINDOW = re.compile(r"(\w+) \[(\w+) (\d+) seconds(?: Every (\d+) seconds)?\]")


@pytest.fixture(scope="module")
def events() -> dict[str, pa.Table]:
    blocks = list(generator.blocks(EVENTS, per_second=PER_SECOND, seed=7))
    return {stream: pa.concat_tables([getattr(block, stream) for block in blocks]) for stream in STREAMS}


@pytest.fixture(scope="module")
def nexmark(events: dict[str, pa.Table], tmp_path_factory: pytest.TempPathFactory) -> hy.Pipeline:
    directory = tmp_path_factory.mktemp("nexmark")
    (directory / "pipeline.yaml").write_text((EXAMPLE / "pipeline.yaml").read_text())
    pipeline = hy.Pipeline.from_file(directory / "pipeline.yaml")
    pipeline.table("side_input").load(SIDE)
    for stream in STREAMS:
        pipeline.append(stream, events[stream])
        pipeline.finish(stream)
    pipeline.run_until_idle(spark=False)
    return pipeline


@pytest.fixture(scope="module")
def database(events: dict[str, pa.Table]) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for stream, records in events.items():
            connection.register(f"all_{stream}", records)
        connection.execute("CREATE TABLE side_input (key BIGINT, value VARCHAR)")
        connection.executemany("INSERT INTO side_input VALUES (?, ?)", [tuple(row.values()) for row in SIDE])
        yield connection


def instants(events: dict[str, pa.Table]) -> list[datetime]:
    """Instants from the first event to the last: some of the bids' times, and ends of windows."""
    times = events["bid"].column("date_time").to_pylist()
    first = datetime.fromtimestamp(generator.BEGINNING / 1000, UTC)
    ends = [first + timedelta(seconds=seconds) for seconds in (10, 20, 30, 40)]
    return sorted([*times[len(times) // INSTANTS : -len(times) // INSTANTS : len(times) // INSTANTS], *ends])


def in_window(match: re.Match[str]) -> str:
    """Return the rows of a stream with bounds that are alive at the instant, as a sub-query."""
    stream, kind, length, step = match[1], match[2], int(match[3]), int(match[4] or match[3])
    if kind == "Session":
        rows = f"""
            SELECT *, min(date_time) OVER session AS window_start,
                   max(date_time) OVER session + INTERVAL {length} SECOND AS window_end
            FROM (SELECT *, sum(opens) OVER (PARTITION BY {PLACES[stream]} ORDER BY date_time ROWS UNBOUNDED PRECEDING) AS number
                  FROM (SELECT *, (date_time - lag(date_time) OVER (PARTITION BY {PLACES[stream]} ORDER BY date_time)
                                   < INTERVAL {length} SECOND) IS NOT TRUE AS opens FROM all_{stream}))
            WINDOW session AS (PARTITION BY {PLACES[stream]}, number)"""
    else:
        rows = f"""
            SELECT r.*, to_timestamp(w.start) AS window_start, to_timestamp(w.start + {length}) AS window_end
            FROM all_{stream} AS r, LATERAL (
                SELECT unnest(generate_series(
                    (floor(epoch(r.date_time) / {step}) * {step})::BIGINT - {length} + {step},
                    (floor(epoch(r.date_time) / {step}) * {step})::BIGINT, {step})) AS start) AS w"""
    return f"(SELECT * FROM ({rows}) WHERE window_end <= instant() AND instant() < window_end + INTERVAL {step} SECOND)"


def judged(database: duckdb.DuckDBPyConnection, query: str, instant: datetime) -> Counter[str]:
    """Return what DuckDB answers at an instant."""
    database.execute(f"CREATE OR REPLACE MACRO instant() AS TIMESTAMPTZ '{instant.isoformat()}'")
    for stream in STREAMS:
        database.execute(f"CREATE OR REPLACE VIEW {stream} AS SELECT * FROM all_{stream} WHERE date_time <= instant()")
    for name, text in QUERIES.items():
        if name == query:
            break
        if not name.startswith("q"):
            database.execute(f"CREATE OR REPLACE VIEW {name} AS {as_sql(text)}")
    return counted(database.sql(as_sql(QUERIES[query])).to_arrow_table().to_pylist())


def as_sql(text: str) -> str:
    """Return the text of a query with its windows as sub-queries."""
    return _WINDOW.sub(in_window, text.replace("bid [Now]", "(SELECT * FROM bid WHERE date_time = instant())"))


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr([_plain(value) for value in row.values()]) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return round(float(value), 6) if isinstance(value, int | float | Decimal) else value


@pytest.mark.parametrize("query", [name for name in QUERIES if name.startswith("q")])
def test_every_snapshot_is_what_duckdb_answers(
    query: str, nexmark: hy.Pipeline, events: dict[str, pa.Table], database: duckdb.DuckDBPyConnection
) -> None:
    results = nexmark.query(query)
    if not results.log.declaration.lifetimes:  # a record in, a record out: all of them at once
        rows = [{name: value for name, value in row.items() if name != "event_time"} for row in results.rows()]
        assert counted(rows) == judged(database, query, datetime(2100, 1, 1, tzinfo=UTC))
        assert rows
        return
    seen = 0
    for instant in instants(events):
        answer = counted(results.at(instant))
        assert answer == judged(database, query, instant), f"{query} at {instant}"
        seen += answer.total()
    assert seen, "some instant has rows"


def test_nothing_is_refused(nexmark: hy.Pipeline) -> None:
    assert nexmark.dead_letters() == []


def test_the_files_of_the_generator_can_be_appended(tmp_path: Path) -> None:
    program = [sys.executable, str(EXAMPLE / "generator.py"), "500", str(tmp_path / "events")]
    subprocess.run(program, check=True)
    (tmp_path / "pipeline.yaml").write_text((EXAMPLE / "pipeline.yaml").read_text())
    pipeline = hy.Pipeline.from_file(tmp_path / "pipeline.yaml")
    for stream in STREAMS:
        pipeline.append(stream, tmp_path / "events" / f"{stream}.ndjson")
    assert [len(pipeline.results(stream).rows()) for stream in STREAMS] == [10, 30, 460]
    assert pipeline.dead_letters() == []
    (block,) = generator.blocks(500)
    assert pipeline.results("bid").rows()[-1]["price"] == block.bid.column("price")[-1].as_py(), "the seed decides"


def test_people_and_auctions_are_the_same_without_bids() -> None:
    both = zip(generator.blocks(60_000), generator.blocks(60_000, with_bids=False))
    for whole, without in both:
        assert (whole.person, whole.auction) == (without.person, without.auction)
        assert (whole.bid.num_rows > 0, without.bid.num_rows) == (True, 0)
