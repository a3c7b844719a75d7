"""Linear Road through a lane on Spark: the answers are those of the model, also if it stops half-way and goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hayase.engine.spark.runner import run_until_idle
from linear_road import answers, due, history, linear_road, records, road_model, small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SECONDS = 360


def test_the_answers_are_those_of_the_model(spark: SparkSession, tmp_path: Path) -> None:
    given = records(small(2, 5), SECONDS)
    before = history(small(2, 5), given)
    model = road_model.LinearRoad(before.to_pylist())
    model.take(given)
    pipeline = linear_road(tmp_path, before)
    pipeline.apply()
    half = given.num_rows // 2
    pipeline.append("input", given.slice(0, half))
    run_until_idle(pipeline.home, session=spark)
    pipeline.append("input", given.slice(half))
    pipeline.finish("input")
    run_until_idle(pipeline.home, session=spark)
    told, expected = answers(pipeline), due(model)
    for query, answer in told.items():
        assert answer == expected[query], query
        assert answer, f"there are {query}"
    assert pipeline.dead_letters() == []
