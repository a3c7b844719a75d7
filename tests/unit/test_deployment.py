"""The files in deploy/ agree with the package: metrics, options, versions, the pipeline. Tools check them in tests/services."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

import hayase.cli
from command_line import Command
from hayase.core.times import BEGINNING
from hayase.engine.commit.manifests import Manifest
from hayase.serving.metrics import exposition
from hayase.serving.server_figures import HttpFigures
from hayase.serving.service import Status

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def exported() -> set[str]:
    """Return the names of all metrics that /metrics has."""
    text = exposition(Status("running", Manifest()).now, BEGINNING, 0.0, {}, HttpFigures())
    return set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))


def expressions() -> Iterator[str]:
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
    yield from (rule["expr"] for group in alerts["groups"] for rule in group["rules"])
    dashboard = json.loads((DEPLOY / "grafana" / "hayase.json").read_text())
    yield from (target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ()))
    yield from (each["definition"] for each in dashboard["templating"]["list"] if "definition" in each)


def test_alerts_and_dashboard_use_metrics_that_there_are() -> None:
    used = {name for text in expressions() for name in re.findall(r"\bhayase_\w+", text)}
    assert len(used) > 10
    assert used <= exported()


def test_panels_do_not_overlap_and_have_names() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "hayase.json").read_text())
    places = [
        (x, y)
        for panel in dashboard["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(places) == len(set(places))
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert all(panel["title"] for panel in dashboard["panels"])


def compose() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return read


def manifests() -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes" / "hayase.yaml").read_text())}


def container() -> dict[str, Any]:
    (only,) = manifests()["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    return dict(only)


def commands() -> Iterator[list[str]]:
    """Yield the arguments of every `hayase` that the files start."""
    unit = (DEPLOY / "systemd" / "hayase@.service").read_text()
    (started,) = re.findall(r"^ExecStart=\S+/hayase (.*)$", unit, re.MULTILINE)
    yield shlex.split(started)
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    (default,) = re.findall(r"^CMD (\[.*\])$", dockerfile, re.MULTILINE)
    yield json.loads(default)
    yield compose()["services"]["hayase"]["command"]
    yield container()["args"]
    yield compose()["services"]["hayase"]["healthcheck"]["test"][2:]
    yield from (
        container()[probe]["exec"]["command"][1:] for probe in ("startupProbe", "readinessProbe", "livenessProbe")
    )


@pytest.mark.parametrize("arguments", [*commands()], ids=" ".join)
def test_commands_have_options_that_there_are(arguments: list[str]) -> None:
    program: Any = typer.main.get_command(hayase.cli.app)
    name, *rest = arguments
    command = program.get_command(None, name)
    command.make_context(name, rest)  # raises if an option is unknown or lacks its value


def test_one_version_of_the_image() -> None:
    image = f"hayase:{VERSION}"
    assert compose()["services"]["hayase"]["image"] == container()["image"] == image
    assert f"-t {image} " in (DEPLOY / "Dockerfile").read_text()
    assert f"-t {image} " in (DEPLOY / "compose.yaml").read_text()


def test_secrets_have_no_defaults() -> None:
    variables = re.findall(r"\$\{(\w+)(:.)?", (DEPLOY / "compose.yaml").read_text())
    secret = [(name, mark) for name, mark in variables if name != "HAYASE_PIPELINE"]
    assert {name for name, _ in secret} == {"HAYASE_TOKEN", "POSTGRES_PASSWORD", "S3_SECRET"}
    assert {mark for _, mark in secret} == {":?"}


def test_the_pipeline_is_without_mistakes(hayase_: Command) -> None:
    checked = hayase_("check", DEPLOY / "pipeline" / "pipeline.yaml")
    assert checked.code == 0, checked.err
