"""Aggregates of one's own in queries: declared by module and attribute, found beside the pipeline file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import hayase as hy
from hayase.core.errors import DeclarationError
from hayase.core.pipeline_file import pipeline_text, read_pipeline
from hayase.testing import at, trial

MODULE = """
import pyarrow as pa
from hayase.core.algebra import user_aggregate

joined = user_aggregate("joined", lift=str, combine=lambda a, b: f"{a}{b}", result=pa.string())
spread = user_aggregate(
    "spread", lift=lambda x: (x, x), combine=lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
    lower=lambda p: p[1] - p[0], result=pa.float64(), commutative=True, idempotent=True,
)
weighted = user_aggregate(
    "weighted", arity=2, lift=lambda x, w: (x * w, w), combine=lambda a, b: (a[0] + b[0], a[1] + b[1]),
    lower=lambda p: p[0] / p[1] if p[1] else None, result=pa.float64(), commutative=True,
)
"""
FILE = """pipeline: own
streams:
  s:
    schema: time timestamp, k string, x double, w double
    time: time
queries:
  all: select joined(k) as ks, spread(x) as width, weighted(x, w) as mean from s [Rows 2, 3]
aggregates:
  joined: {module}:joined
  spread: {module}:spread
  weighted: {module}:weighted
"""


@pytest.fixture
def module(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A module that nobody has loaded before."""
    name = f"own_{abs(hash(request.node.nodeid))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    before = list(sys.path)
    yield name
    sys.path[:] = before
    sys.modules.pop(name, None)


def test_own_aggregates_of_a_pipeline_file(tmp_path: Path, module: str) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(FILE.format(module=module))
    with trial(file=path) as t:
        rows = [("a", 1.0, 1.0), ("b", 4.0, 3.0), (None, 0.0, None), ("c", 2.0, 0.0)]
        t.append("s", [{"time": at(i), "k": k, "x": x, "w": w} for i, (k, x, w) in enumerate(rows)])
        t.finish("s")
        t.run()
        told = {each["window"]: each for each in t.at("all")}
    assert told[2] == {"window": 2, "ks": "c", "width": 2.0, "mean": None}
    assert told[3] == {"window": 3, "ks": "bc", "width": 4.0, "mean": 4.0}


def test_the_text_of_a_pipeline_names_them(tmp_path: Path, module: str) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(FILE.format(module=module))
    declared = read_pipeline(path).declaration
    path.write_text(pipeline_text(declared))
    assert read_pipeline(path).declaration == declared
    assert type(declared).from_json(declared.as_json()) == declared


def test_changes_stand_in_the_text_of_a_pipeline(tmp_path: Path) -> None:
    p = hy.Pipeline("p", tmp_path)
    p.stream("rel", "time timestamp, op string, a bigint", changes="op")
    path = tmp_path / "pipeline.yaml"
    path.write_text(pipeline_text(p.declaration))
    assert read_pipeline(path).declaration == p.declaration


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nowhere_to_be_found:x", "there is no module nowhere_to_be_found; it must be installed"),
        ("{module}:jioned", 'has no "jioned"; did you mean "joined"?'),
        ("{module}:pa", "is a module, not an aggregate; make it with user_aggregate"),
        ("{module}", "names no aggregate; write it like module:attribute"),
    ],
)
def test_what_is_wrong_with_one_is_told_where_it_stands(tmp_path: Path, module: str, source: str, words: str) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        FILE.format(module=module).replace(f"spread: {module}:spread", f"spread: {source.format(module=module)}")
    )
    with pytest.raises(DeclarationError) as caught:
        read_pipeline(path)
    (mistake,) = caught.value.mistakes
    assert words in str(mistake)
    assert 'aggregate "spread": ' in str(mistake)
    assert (mistake.line, mistake.column) == (10, 11)


def test_one_is_refused_with_too_few_arguments(tmp_path: Path, module: str) -> None:
    with trial() as t:
        t.stream("s", "time timestamp, k string, x double, w double")
        t.aggregate("weighted", f"{module}:weighted", tmp_path)
        with pytest.raises(DeclarationError, match="1:8: weighted takes two arguments"):
            t.query("q", "select weighted(x) from s [Rows 3]")
        t.aggregate("weighted", f"{module}:weighted", tmp_path)
        assert len(t.declaration.aggregates) == 1
        t.query("q", "select weighted(x, w) as m from s [Range 3 seconds Slide 1 second]")
        t.remove("weighted")
        assert not t.declaration.aggregates
        with pytest.raises(DeclarationError):
            t.check()
        t.declaration = replace(t.declaration, queries=())
        t.check()


def test_one_is_folded_over_any_relation_in_its_order(tmp_path: Path, module: str) -> None:
    with trial() as t:
        t.stream("s", "time timestamp, k string, x double, w double")
        for name in ("joined", "weighted"):
            t.aggregate(name, f"{module}:{name}", tmp_path)
        t.query("newest", "select joined(k) as ks, weighted(x, w) as m from s [Range 3 seconds]")
        t.query("counts", "select k, count(*) as n from s [Range 10 seconds] group by k")
        t.query("over", "select joined(k) as ks, joined(k order by n desc) as by_n from counts")
        rows = [("b", 1.0, 1.0), ("a", 3.0, 3.0), ("b", 5.0, 0.0)]
        t.append("s", [{"time": at(i), "k": k, "x": x, "w": w} for i, (k, x, w) in enumerate(rows)])
        t.finish("s")
        t.run()
        assert t.at("newest") == [{"ks": "bab", "m": 2.5}]
        assert t.at("over") == [{"ks": "ab", "by_n": "ba"}]
