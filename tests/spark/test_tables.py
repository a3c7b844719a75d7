"""Tables on Spark: section 5 of paper 4.

The paper replaces the HiveQL of figure 6, run day by day over complete partitions by event date without repetitions, by
the rules of figure 8, which take the events as they come. Both give the same table.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import purchases
from hayase.core.stages import MAIN
from hayase.engine.batch.gate import FileGate, Grants
from hayase.engine.commit import housekeeping
from hayase.engine.commit.manifests import Manifest
from hayase.engine.spark.runner import run_lanes
from purchases import DAY, FIGURE_6, MERGEMAP, Answers, Purchase, answers_of, purchase_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
TABLE = "user_purchase_status"
DECIMAL = "decimal(18,2)"


def hive(spark: SparkSession, directory: Path, events: Sequence[Purchase], number: str) -> Answers:
    """The table that the daily HiveQL makes of different events: the partition of the last day."""
    given, made = directory / "input_purchase_events", directory / "hive_purchase"
    days = sorted({each.day for each in events})
    amount = pa.decimal128(18, 2) if number == DECIMAL else pa.int64()
    schema = pa.schema(
        [(name, amount if name == "amount" else pa.string()) for name in ("user_id", "amount", "time", "type")]
    )
    for day in days:
        rows = [
            {"user_id": each.user_id, "amount": each.amount, "time": each.time, "type": each.type}
            for each in events
            if each.day == day
        ]
        (given / f"dt={day}").mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows, schema), given / f"dt={day}" / "events.parquet")
    kept = f"user_id string, total {number}, last_purchase_time string, by_day map<string, {number}>"
    before, slots = "none", spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.sql(MERGEMAP.format(number=number))
    spark.read.schema(f"{', '.join(_ddl(schema, number))}, dt string").parquet(str(given)).createOrReplaceTempView(
        "input_purchase_events"
    )
    made.mkdir()
    for day in days:  # a view knows only the partitions that were there when it was made
        spark.read.schema(f"{kept}, dt string").parquet(str(made)).createOrReplaceTempView("hive_purchase")
        spark.sql(FIGURE_6.format(hive_purchase=made, day=day, day_before=before, number=number))
        before = day
    rows = spark.read.parquet(str(made / f"dt={before}")).collect()
    spark.conf.set("spark.sql.shuffle.partitions", slots)
    return {(row.user_id,): _plain(row.asDict()) for row in rows}


def _ddl(schema: pa.Schema, number: str) -> Iterator[str]:
    for each in schema:
        yield f"{each.name} {number if each.name == 'amount' else 'string'}"


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _numbers(value) for name, value in row.items() if name != "user_id"}


def _numbers(value: Any) -> Any:
    """Amounts, a decimal or the JSON number that it is, in one form."""
    if isinstance(value, dict):
        return {key: _numbers(each) for key, each in sorted(value.items())}
    return Decimal(str(value)).normalize() if isinstance(value, (int, float, Decimal)) else value


def same(answers: Answers) -> Answers:
    return {key: _plain(row) for key, row in answers.items()}


@pytest.mark.parametrize("number", [pytest.param("bigint", marks=pytest.mark.long), DECIMAL])
def test_figure_8_fed_late_and_repeated_gives_the_table_of_figure_6(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    monkeypatch.setattr(housekeeping, "PAUSE", 0.1)
    events = purchases.purchases(seed=6, count=1_500, cents=number == DECIMAL)
    arrivals = purchases.delivered(events, seed=8)
    assert len(arrivals) > len(events)
    assert [each.at for each in arrivals] != sorted(each.at for each in arrivals)
    wanted = hive(spark, tmp_path, events, number)
    assert wanted == same(purchase_table(events)), "the model itself"

    pipeline = purchases.purchase_pipeline(tmp_path / "home", number, fold_after=DAY // 2)
    committed: list[Manifest] = []
    with pipeline.home.lock():
        pipeline.apply()
        with run_lanes(pipeline.home, session=spark, on_commit=committed.append) as lane:
            FileGate(pipeline.home.gate(MAIN)).set(Grants(limit=400))
            for first in range(0, len(arrivals), 700):
                pipeline.append("stream1", [each.row() for each in arrivals[first : first + 700]])
                while not lane.is_idle():
                    lane.check()
                    time.sleep(0.02)
    assert len(committed) > 4
    assert pipeline.table(TABLE).info().folded_before is not None, "old updates were folded meanwhile"
    found = same(answers_of(pipeline, TABLE))
    for column in purchases.TABLE_4:
        assert {key: row[column] for key, row in found.items()} == {key: row[column] for key, row in wanted.items()}
    assert found == wanted
    totals = pipeline.progress().totals[TABLE]
    assert (totals.read, totals.processed, totals.dead) == (len(arrivals), len(arrivals), 0)
    assert not pipeline.dead_letters()
