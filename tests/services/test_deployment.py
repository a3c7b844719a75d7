"""The files in deploy/, checked with the tools that read them, and its pipeline with real servers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import kubernetes_validate
import pytest
import yaml
from confluent_kafka import Producer
from deltalake import DeltaTable

from hayase import Pipeline
from servers.kafka import Kafka
from servers.postgres import Postgres
from servers.process import Missing
from servers.promtool import promtool
from servers.s3 import S3

DEPLOY = Path(__file__).parent.parent.parent / "deploy"


def run(*command: object, directory: Path | None = None) -> str:
    done = subprocess.run([*map(str, command)], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def test_alerts_fire_when_they_should() -> None:
    try:
        program = promtool()
    except Missing as missing:
        pytest.skip(str(missing))
    run(program, "check", "rules", "alerts.yaml", directory=DEPLOY / "prometheus")
    run(program, "test", "rules", "alerts_test.yaml", directory=DEPLOY / "prometheus")


def test_the_image() -> None:
    run(Path(sys.executable).with_name("hadolint"), DEPLOY / "Dockerfile")


def test_kubernetes_takes_the_manifests() -> None:
    documents = [*yaml.safe_load_all((DEPLOY / "kubernetes" / "hayase.yaml").read_text())]
    assert len(documents) == 4
    for document in documents:
        kubernetes_validate.validate(document, "1.34", strict=True)


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd on this machine, which checks its units")
    unit = (DEPLOY / "systemd" / "hayase@.service").read_text()
    (tmp_path / "hayase@shop.service").write_text(unit.replace("/opt/hayase/bin/hayase", sys.executable))
    assert run("systemd-analyze", "verify", tmp_path / "hayase@shop.service") == ""


def test_the_pipeline_of_the_composition(
    kafka: Kafka, postgres: Postgres, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, topic = f"b{uuid4().hex}", f"t{uuid4().hex}"
    s3.create_bucket(bucket)
    for variable, value in {**s3.environment_of_clients, "SHOP_DSN": postgres.dsn}.items():
        monkeypatch.setenv(variable, value)
    for name in (topic, f"{topic}-alerts"):
        kafka.create_topic(name)
    text = (DEPLOY / "pipeline" / "pipeline.yaml").read_text()
    places = {
        "kafka:9092": kafka.client()["bootstrap.servers"],
        "topic: orders": f"topic: {topic}",
        "topic: alerts": f"topic: {topic}-alerts",
        "s3://shop/": f"s3://{bucket}/",
        "public.spend": f"public.{topic}",
    }
    for named, here in places.items():
        assert named in text
        text = text.replace(named, here)
    (tmp_path / "pipeline.yaml").write_text(text)
    producer = Producer(kafka.client())
    for minute, user, amount in ((0, "taro", 30.0), (1, "taro", 120.0), (2, "taro", 250.0), (3, "hana", 1.0)):
        order = {"id": str(minute), "time": f"2026-01-31T12:0{minute}:00Z", "user": user, "amount": amount}
        producer.produce(topic, json.dumps(order).encode())
    producer.flush()
    pipeline = Pipeline.from_file(tmp_path / "pipeline.yaml", tmp_path / "home")
    pipeline.run_until_idle(spark=False)
    assert sorted(DeltaTable(f"s3://{bucket}/large").to_pyarrow_table().column("amount").to_pylist()) == [120.0, 250.0]
    assert postgres.execute(f'select "user", orders, spend from public."{topic}"') == [("taro", 3, 400.0)]
