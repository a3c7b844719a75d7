"""Jobs on Spark: the monitor of the guide finds in a log what a plain program does. Deaths are a matter of the campaign."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import access_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_monitor_finds_what_a_plain_program_does(spark: SparkSession, tmp_path: Path) -> None:
    chunks = 8
    access_log.monitor(tmp_path, buckets=2)
    access_log.work(tmp_path, chunks, session=spark)
    access_log.check(access_log.monitor(tmp_path, buckets=2), access_log.log_of(chunks))
