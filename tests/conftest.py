"""What all tests share: one Spark session per run, and kernels that no test inherits from another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of a test run; tasks are tried four times, as in a cluster."""
    from hayase.engine.session import open_session

    session = open_session("local[2,4]", log=tmp_path_factory.mktemp("spark") / "spark.log")
    yield session
    session.stop()
