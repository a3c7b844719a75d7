"""Sources of Spark: each batch one append, with a death before and behind the append."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hayase import Pipeline, Spark
from hayase.connectors.intake import Intake
from hayase.connectors.source import SourceSetting
from hayase.connectors.spark_source import SparkSource
from hayase.core.connector_data import declared_source, source_data
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DeclarationError, EndpointError
from hayase.streams import StreamLog

pytestmark = pytest.mark.spark

NOW = 1_800_000_000_000_000
LOGS = StreamDeclaration("logs", "time bigint, n bigint", "time", time_unit="s")


def write(directory: Path, name: str, *numbers: int) -> None:
    directory.mkdir(exist_ok=True)
    draft = directory / f".{name}"
    draft.write_text("".join(json.dumps({"time": 1, "n": number}) + "\n" for number in numbers))
    draft.rename(directory / f"{name}.json")


def options(directory: Path) -> dict[str, Any]:
    return {"options": {"path": str(directory), "maxFilesPerTrigger": "1"}, "schema": "time bigint, n bigint"}


def source(home: Path, directory: Path) -> SparkSource:
    values = declared_source("logs", {"spark": {"format": "json", **options(directory)}}).values
    StreamLog.ensure(home, LOGS)
    return SparkSource(SourceSetting(LOGS, values, "shop", lambda: NOW, home / "sources" / "logs"))


def numbers(home: Path) -> list[int]:
    log = StreamLog.ensure(home, LOGS)
    return [n for piece in log.read(0, log.index().next) for n in piece.rows.column("n").to_pylist()]


def test_every_batch_is_appended_once_whoever_dies_when(tmp_path: Path) -> None:
    home, files = tmp_path / "home", tmp_path / "in"
    for number in range(4):
        write(files, f"{number}", number, number + 10)
    for appends in (True, False, True):  # dies behind the append, before Spark knows; before the append; and so on
        reader = source(home, files)
        intake = Intake(home, LOGS, reader, lambda: NOW)
        if appends:
            while not intake.step(0.1):
                pass
        else:
            positions = {"batches": len(numbers(home)) // 2}
            reader.starts()
            while not reader.read(positions, 0.1):
                pass
        reader.close()
    reader = source(home, files)
    intake = Intake(home, LOGS, reader, lambda: NOW)
    while len(numbers(home)) < 8 or not intake.has_reached({}):
        intake.step(0.1)
    reader.close()
    assert sorted(numbers(home)) == [0, 1, 2, 3, 10, 11, 12, 13]


def test_a_pipeline_reads_what_is_there(tmp_path: Path) -> None:
    write(tmp_path / "in", "a", 1, 2)
    pipeline = Pipeline("shop", home=tmp_path / "home")
    read = Spark("json", **options(tmp_path / "in"))
    pipeline.stream("logs", "time bigint, n bigint", time="time", time_unit="s", source=read)
    pipeline.query("total", "SELECT sum(n) AS total FROM logs [RANGE UNBOUNDED]")
    pipeline.run_until_idle(spark=False)
    assert numbers(tmp_path / "home") == [1, 2]


def test_what_spark_refuses_is_an_error_of_the_endpoint(tmp_path: Path) -> None:
    values = declared_source("logs", {"spark": {"format": "nonsense"}}).values
    with pytest.raises(EndpointError, match='cannot read the format "nonsense"'):
        SparkSource(SourceSetting(LOGS, values, "shop", lambda: NOW)).ends()


def test_the_declaration() -> None:
    data = {
        "spark": {"format": "kafka", "options": {"subscribe": "a"}, "options_env": {"kafka.sasl.jaas.config": "JAAS"}}
    }
    assert source_data(declared_source("logs", data)) == data
    with pytest.raises(DeclarationError, match="options_env"):
        declared_source("logs", {"spark": {"format": "kafka", "options": {"kafka.ssl.key.password": "x"}}})
