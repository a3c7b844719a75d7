"""Connectors: Kafka in beside files and beside Spark's own source, PostgreSQL in and out, with real servers.

Kafka in     a topic through a source, the log and a lane on two cores: to the same records appended as a file to the same pipeline,
             and to Spark's own source for Kafka with the same totals by `applyInPandas`, on two cores of their own
direct       an estimate of how much faster it could be if map tasks read Kafka: the seconds of tasks that read and decode the
             topic and write nothing, and of the lane over records that are in the log, against those of the way through the log
fetched      the topic, fetched by the client and thrown away: the least that client and broker take
PostgreSQL   row changes that an output writes, as a mirror by key, by row, and as a history; updates that replication brings in

The servers are those of `tests/servers`; they run on the same two cores. Start-up is excluded: the lane and the process of the
source run before the time begins, and the first batch of Spark's own source does not count. Every run checks that nothing is
missing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import kafka_lane, local_servers
from benchmarks.kafka_lane import PARTITIONS, Topic
from benchmarks.measure import alternate, median
from hayase.engine.spark.session import local_master, open_session

__all__ = ["draw", "run"]

FEW = 20_000
"""Messages of the first topic, which warms up."""


def run(*, quick: bool, out: Path) -> dict[str, Any]:
    """Measure all of it in one run, at most eight minutes; `quick` has a tenth of the records."""
    records = 200_000 if quick else 2_000_000
    kafka = _kafka(records, repetitions=1 if quick else 3)
    postgres = _postgres(portions=4 if quick else 15, updates=20_000 if quick else 100_000)
    rates = kafka["records_per_second"]
    plain = rates["Spark's own source, applyInPandas"]
    ratios = {
        "Kafka in, to the same records as a file (at least 0.7)": rates["Kafka"] / rates["file"],
        "Kafka in, to Spark's own source with applyInPandas (at least 2)": rates["Kafka"] / plain,
        "Kafka in, to Spark's own source with applyInPandasWithState": rates["Kafka"]
        / rates["Spark's own source, applyInPandasWithState"],
        "Kafka in, what reading in map tasks could gain, by estimate": kafka["direct"]["gain"],
        "PostgreSQL, mirror by key, to 50,000 row changes/s (at least 1)": postgres["mirror by key"] / 50_000,
        "PostgreSQL, mirror by row, to 50,000 row changes/s (at least 1)": postgres["mirror by row"] / 50_000,
        "PostgreSQL, replication, transactions of 10, to 30,000 updates/s (at least 1)": postgres[
            "in, transactions of 10"
        ]
        / 30_000,
        "PostgreSQL, replication, transactions of 1,000, to 30,000 updates/s (at least 1)": postgres[
            "in, transactions of 1,000"
        ]
        / 30_000,
    }
    draw(out / "connectors.png", rates, postgres)
    return {**kafka, "postgres_changes_per_second": postgres, "ratios": ratios}


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _kafka(records: int, repetitions: int) -> dict[str, Any]:
    _say("Kafka is started ...")
    with local_servers.kafka() as kafka, tempfile.TemporaryDirectory(prefix="hayase-bench-") as folder:
        few, many = Topic(kafka.bootstrap, "few", FEW), Topic(kafka.bootstrap, "many", records)
        path, small = Path(folder) / "many.ndjson", Path(folder) / "few.ndjson"
        _say(f"{records:,} records are written to a topic and to a file ...")
        values = kafka_lane.lines(records)
        for topic, file in ((few, small), (many, path)):
            kafka.create_topic(topic.name, PARTITIONS)
            kafka_lane.fill(topic.brokers, topic.name, values[: topic.messages])
            file.write_bytes(b"\n".join(values[: topic.messages]) + b"\n")
        del values
        fetched = _said("fetched and thrown away", kafka_lane.fetched(many))
        plain = _plain(many, folder)
        session = open_session(local_master(2), settings={"spark.driver.memory": "3g"})
        try:
            _say("the lane warms up ...")
            kafka_lane.from_kafka(session, few)
            kafka_lane.from_file(session, small, few.messages)
            runs = alternate(repetitions, {
                "Kafka": lambda: _said("Kafka", kafka_lane.from_kafka(session, many)),
                "file": lambda: _said("file", kafka_lane.from_file(session, path, many.messages)),
            })  # fmt: skip
            through = many.messages / median([each["records_per_second"] for each in runs["Kafka"]])
            direct = _direct(session, many, path, through)
        finally:
            session.stop()
    figures = {name: _medians(each) for name, each in runs.items()}
    rates = {name: each.pop("records_per_second") for name, each in figures.items()}
    return {
        "records": records,
        "records_per_second": rates | plain,
        "ways": figures,
        "fetched": fetched,
        "direct": direct,
    }


def _plain(topic: Topic, folder: str) -> dict[str, float]:
    """Return the records per second of Spark's own source, in a process of its own."""
    _say("Spark's own source reads the topic ...")
    told = {
        "brokers": topic.brokers, "topic": topic.name, "jars": local_servers.spark_kafka_jars(),
        "rows": topic.messages // 4, "work": f"{folder}/plain",
    }  # fmt: skip
    command = [sys.executable, "-m", "benchmarks.plain_kafka", json.dumps(told)]
    root = Path(__file__).resolve().parent.parent
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore"}  # pandas warns in every group
    done = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True, env=quiet)
    found: dict[str, list[tuple[int, float]]] = json.loads(done.stdout.splitlines()[-1])
    rates = {}
    for way, batches in found.items():
        if sum(rows for rows, _ in batches) != topic.messages:
            raise RuntimeError(f"Spark's own source read {batches}, not {topic.messages:,} messages")
        name = f"Spark's own source, {way}"
        rates[name] = sum(rows for rows, _ in batches[1:]) / sum(seconds for _, seconds in batches[1:])
        _say(f"  {name}: {rates[name]:,.0f} records/s")
    return rates


def _direct(session: Any, topic: Topic, path: Path, through_log: float) -> dict[str, float]:
    """Return what reading Kafka in map tasks could save, by estimate."""
    _say("map tasks read the topic themselves; the lane alone ...")
    tasks = min(kafka_lane.direct(session, topic) for _ in range(2))
    lane = min(kafka_lane.lane_alone(session, path, topic.messages) for _ in range(2))
    figures = {
        "seconds_through_the_log": through_log,
        "seconds_of_map_tasks_that_read": tasks,
        "seconds_of_the_lane_alone": lane,
        "gain": through_log / (tasks + lane),
    }
    return _said("direct", figures)


def _postgres(portions: int, updates: int) -> dict[str, float]:
    from benchmarks.postgres_changes import replicated_per_second, written_per_second

    _say("PostgreSQL is started ...")
    found = {}
    with local_servers.postgres() as postgres:
        ways: dict[str, dict[str, Any]] = {
            "mirror by key": {"key": "user"}, "mirror by row": {}, "history": {"mode": "history"}
        }  # fmt: skip
        for name, options in ways.items():
            found[name] = written_per_second(postgres.dsn, name.replace(" ", "_"), portions, **options)
            _say(f"  {name}: {found[name]:,.0f} row changes/s")
        for size in (10, 1_000):
            name = f"in, transactions of {size:,}"
            found[name] = replicated_per_second(postgres.dsn, f"followed_{size}", updates, size)
            _say(f"  {name}: {found[name]:,.0f} updates/s")
    return found


def _said(name: str, figures: dict[str, float]) -> dict[str, float]:
    _say(f"  {name}: " + ", ".join(f"{key.replace('_', ' ')} {value:,.6g}" for key, value in figures.items()))
    return figures


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: median([each[name] for each in runs]) for name in runs[0]}


def draw(path: Path, kafka: Mapping[str, float], postgres: Mapping[str, float]) -> Path:
    """Draw a bar for each way: records per second from Kafka, row changes per second of PostgreSQL."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4))
    for axes, rates, title in (
        (left, kafka, "Kafka: records per second"),
        (right, postgres, "PostgreSQL: row changes per second"),
    ):
        axes.barh(list(rates), list(rates.values()), color=[f"C{number}" for number in range(len(rates))])
        axes.invert_yaxis()
        axes.set_title(title)
        axes.grid(axis="x", alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path
