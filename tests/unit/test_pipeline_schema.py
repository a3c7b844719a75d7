"""The JSON schema of pipeline files accepts what `hayase check` accepts, and refuses what it refuses for its shape."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from command_line import Command
from guide_pages import ROOT, pages
from hayase.cli.templates import TEMPLATES, template
from hayase.core.errors import DeclarationError
from hayase.core.pipeline_file import read_pipeline
from hayase.core.pipeline_schema import pipeline_schema
from hayase.governor import POLICIES
from hayase.tables import TYPES

SCHEMA = pipeline_schema(TYPES, POLICIES)
VALIDATOR = jsonschema_rs.Draft202012Validator(SCHEMA)
BASE = """\
pipeline: shop
home: ./home
buckets: 8
streams:
  orders: {schema: "time timestamp, user string, amount double", time: time, slack: 10 seconds, max_ahead: none}
  ticks: {schema: "t bigint, n double", time: t, time_unit: ms, retention: {age: 7 days, size: 10 GB}, idle_after: off}
queries:
  large: select time, user, amount from orders where amount > 100
  totals: {cql: select user from orders}
tables:
  purchases: {key: [country, user], columns: {total: Counter}, fold_after: 1 day}
jobs:
  traffic:
    reads: orders
    every: 2 seconds
    rounds: 3
    steps:
      - {map: access:parse, schema: "status int, size bigint", key: status, batches: true, attempts: 2}
      - {reduce: {hits: count(*)}, window: 15 minutes, every: 6 minutes}
      - {merge: access:alert, table: purchases, side: right}
operations:
  scores: {reads: [orders], function: "shop:score", window: 10, slide: 5, together: false, takes: batch, attempts: 3, pause: 50 ms,
           memory_limit: 1 GB, concurrency: 4, files: models/*.json}
governor: {policy: als, u: 0.5, seconds: 1, window: 30 s, threshold: 0.2}
"""


def is_valid(text: str) -> bool:
    """Whether the schema accepts a file as an editor reads it: YAML 1.2, so `off` and dates are texts."""
    return VALIDATOR.is_valid(json.loads(json.dumps(yaml.load(text, Loader=_Editor))))


class _Editor(yaml.SafeLoader):
    """The loader without the booleans and dates of YAML 1.1."""


_Editor.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(("bool", "timestamp"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Editor.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("true|false"), list("tf"))


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates(name: str) -> None:
    assert is_valid(template(name)["pipeline.yaml"])


def test_pipeline_files_of_the_guide_and_of_the_tests() -> None:
    blocks = [block for page in pages() for block in page.all() if block.language == "yaml" and not block.skipped]
    texts = [block.text for block in blocks if not block.remark.startswith("adds to ")]
    files = [
        text if "pipeline:" in text else f"pipeline: shown\n{text}" for text in texts if "source:" not in text[:20]
    ]
    files += [path.read_text() for path in ROOT.glob("tests/**/pipeline.yaml")]
    assert len(files) > 15
    assert [text for text in files if not is_valid(text)] == []


def test_every_field_of_the_base_file_is_taken(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(BASE)
    read_pipeline(tmp_path / "pipeline.yaml")
    assert is_valid(BASE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("schema: \"status int, size bigint\", key: status, batches: true", "batches: false"),
        ("batches: true", "side: left"),
        ("attempts: 3", "attempts: '3'"),
        ("u: 0.5", "u: .5"),
        ("window: 30 s", "window: 1e1"),
        ("files: models/*.json", "files: []"),
        ("queries:", "aggregates:\nqueries:"),
    ],
)  # fmt: skip
def test_what_check_accepts(tmp_path: Path, old: str, new: str) -> None:
    assert BASE.count(old) == 1
    (tmp_path / "pipeline.yaml").write_text(BASE.replace(old, new))
    read_pipeline(tmp_path / "pipeline.yaml")
    assert is_valid(BASE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("batches: true", "side: right"),
        ("schema: \"status int, size bigint\", key: status, batches", "batches"),
        ("pipeline: shop", "pipelines: shop"),
        ("pipeline: shop", "pipeline: [shop]"),
        ("pipeline: shop", "pipeline: 3shop"),
        ("buckets: 8", "buckets: 0"),
        ("buckets: 8", "buckets: many"),
        ("home: ./home", "home:"),
        ("queries:", "querys:"),
        ("  large: select", "  la-rge: select"),
        ("{cql: ", "{sql: "),
        ("schema: \"time timestamp", "shcema: \"time timestamp"),
        ("time: time, slack", "slack"),
        ("slack: 10 seconds", "slack: 10"),
        ("slack: 10 seconds", "slack: [10]"),
        ("max_ahead: none", "max_ahead: soon"),
        ("time_unit: ms", "time_unit: minutes"),
        ("size: 10 GB", "size: 10"),
        ("retention: {age", "retention: {aged"),
        ("key: [country, user], ", ""),
        ("{total: Counter}", "{}"),
        ("{total: Counter}", "[total]"),
        ("fold_after: 1 day", "fold_after: 1"),
        ("rounds: 3", "rounds: many"),
        ("every: 2 seconds", "evry: 2 seconds"),
        ("{map: access:parse,", "{"),
        ("{map: access:parse,", "{map: access:parse, reduce: count,"),
        ("key: status, batches", "kye: status, batches"),
        ("batches: true", "batches: perhaps"),
        ("attempts: 2", "attempts: 0"),
        (", every: 6 minutes", ""),
        ("side: right", "side: top"),
        ("{merge: access:alert, table: purchases", "{merge: access:alert"),
        ("count(*)}, window", "count(*)}, side: left, table: purchases, window"),
        ("reads: [orders], ", ""),
        ("function: \"shop:score\", ", ""),
        ("takes: batch", "takes: rows"),
        ("together: false", "together: perhaps"),
        ("attempts: 3", "attempts: 101"),
        ("attempts: 3", "attempts: few"),
        ("pause: 50 ms", "pause: 50"),
        ("memory_limit: 1 GB", "memory_limit: 1"),
        ("concurrency: 4", "concurrency: 0"),
        ("window: 10,", "window: soon,"),
        ("u: 0.5", "u: half"),
        ("policy: als", "policy: [als]"),
        ("seconds: 1,", "seconds: {a: b},"),
    ],
)  # fmt: skip
def test_what_check_refuses_for_its_shape(tmp_path: Path, old: str, new: str) -> None:
    assert BASE.count(old) == 1
    text = BASE.replace(old, new)
    (tmp_path / "pipeline.yaml").write_text(text)
    with pytest.raises(DeclarationError):
        read_pipeline(tmp_path / "pipeline.yaml")
    assert not is_valid(text)


def test_the_command_prints_it(hayase_: Command) -> None:
    printed: dict[str, Any] = json.loads(hayase_("schema").out)
    assert printed == json.loads(json.dumps(SCHEMA))
    jsonschema_rs.meta.validate(printed)
