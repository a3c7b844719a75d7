"""Versions of the pipeline: what may change, what is refused, and what begins anew."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import hayase as hy
import shop
from hayase.core.errors import DamagedState, DeclarationError, SchemaMismatch, StageChanged, UnknownName
from hayase.engine.definition import definitions, stage_comparison
from hayase.engine.home import Home
from hayase.testing import trial


@pytest.fixture
def pipeline(tmp_path: Path) -> hy.Pipeline:
    return shop.shop(tmp_path, 0, ["big", "spend", "ranks"])


def generations(definition: definitions.Definition) -> dict[str, int]:
    return {each.name: each.generation for each in definition.records}


def changed(pipeline: hy.Pipeline, name: str, text: str) -> None:
    pipeline.remove(name)
    pipeline.query(name, text)


def test_the_same_declaration_is_the_same_version(pipeline: hy.Pipeline) -> None:
    first = pipeline.apply()
    assert pipeline.apply() == first == definitions.latest(pipeline.home) == definitions.load(pipeline.home, 1)
    assert generations(first) == {"big": 1, "spend": 1, "ranks": 1}


def test_a_stage_that_is_added_removed_and_added_again_begins_anew(pipeline: hy.Pipeline) -> None:
    pipeline.apply()
    pipeline.query("copy", shop.COPY)
    assert generations(pipeline.apply())["copy"] == 2
    pipeline.remove("copy")
    pipeline.apply()
    pipeline.query("copy", shop.COPY)
    assert generations(pipeline.apply()) == {"big": 1, "spend": 1, "ranks": 1, "copy": 4}


def test_a_stage_without_state_may_change_and_one_with_state_is_refused_with_the_way_out(pipeline: hy.Pipeline) -> None:
    pipeline.apply()
    changed(pipeline, "big", "select user, amount * 3 as twice from events where amount > 7")
    assert generations(pipeline.apply())["big"] == 1
    changed(pipeline, "spend", shop.SPEND.replace("from events", "from events where amount > 0"))
    with pytest.raises(StageChanged, match=r"hayase reset spend --from earliest"):
        pipeline.apply()
    assert definitions.latest_version(pipeline.home) == 2, "what is refused leaves nothing behind"
    assert generations(pipeline.reset("spend")) == {"big": 1, "spend": 3, "ranks": 3}, "its reader begins with it"


def test_layout_is_no_change(pipeline: hy.Pipeline) -> None:
    pipeline.apply()
    changed(pipeline, "spend", shop.SPEND.replace(", ", ",\n   ").replace("select", "SELECT"))
    assert generations(pipeline.apply())["spend"] == 1


def test_another_shape_of_output_needs_a_reset(pipeline: hy.Pipeline) -> None:
    pipeline.append("events", [shop.Event(1, "a", 5).row()])
    pipeline.run_until_idle(spark=False)
    changed(pipeline, "big", "select user, amount as twice, 1 as one from events")
    with pytest.raises(StageChanged):
        pipeline.apply()
    pipeline.reset("big")
    pipeline.query("copy", shop.COPY)
    pipeline.apply()  # before any lane took the reset up
    pipeline.run_until_idle(spark=False)
    assert shop.rows_of(pipeline, "big") == {("a", 5, 1, 1): 1}


def test_reset_of_an_unknown_stage_names_the_nearest(pipeline: hy.Pipeline) -> None:
    with pytest.raises(UnknownName, match='did you mean "spend"'):
        pipeline.reset("spent")
    with pytest.raises(DeclarationError, match="earliest"):
        pipeline.reset("spend", "yesterday")  # type: ignore[arg-type]


def test_a_schema_that_does_not_fit_the_stream_on_disk_is_refused(pipeline: hy.Pipeline, tmp_path: Path) -> None:
    pipeline.apply()
    other = hy.Pipeline("shop", tmp_path)
    other.stream("events", "at bigint, user string", "at", time_unit="us")
    with pytest.raises(SchemaMismatch, match='"amount" is missing'):
        other.apply()
    other = hy.Pipeline("shop", tmp_path)
    other.stream("events", shop.EVENTS + ", note string", "at", time_unit="us")
    other.apply()


def test_a_query_cannot_take_the_name_of_a_stream_with_records(tmp_path: Path) -> None:
    """Its output is emptied when it begins: somebody's records would be gone."""
    first = shop.shop(tmp_path, 0, [])
    first.append("events", [shop.Event(1, "a", 1).row()])
    second = hy.Pipeline("shop", tmp_path)
    second.stream("clicks", shop.EVENTS, "at", time_unit="us")
    second.query("events", "select user, amount from clicks")
    with pytest.raises(DeclarationError, match="another name"):
        second.run_until_idle(spark=False)
    assert len(first.results("events").rows()) == 1


def test_a_damaged_definition_says_so(pipeline: hy.Pipeline) -> None:
    pipeline.apply()
    path = pipeline.home.definitions / "0000000001.json"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DamagedState, match="put back a copy"):
        definitions.load(pipeline.home, 1)


def test_a_home_without_definitions(tmp_path: Path) -> None:
    assert definitions.latest(Home(tmp_path)) is None


def test_a_query_that_other_code_recorded_is_not_taken_for_one_without_state(pipeline: hy.Pipeline) -> None:
    """Code from before may have kept records back for a query that now has no state."""
    current = pipeline.apply()
    older = replace(current, records=tuple(replace(each, fingerprint="of other code") for each in current.records))
    assert set(stage_comparison.compare(older, definitions.stages_of(current)).values()) == {"refused"}


def test_all_stages_that_must_begin_anew_are_named_and_can_begin_anew_at_once(pipeline: hy.Pipeline) -> None:
    pipeline.apply()
    changed(pipeline, "spend", shop.SPEND.replace("from events", "from events where amount > 0"))
    changed(pipeline, "ranks", shop.RANKS.replace("as users", "as people"))
    with pytest.raises(StageChanged, match=r"`hayase reset spend ranks --from earliest`"):
        pipeline.apply()
    assert generations(pipeline.reset(["spend", "ranks"])) == {"big": 1, "spend": 2, "ranks": 2}


def test_everything_that_must_begin_anew_is_named_at_once() -> None:
    with trial() as p:
        p.stream("s", schema="at bigint, x bigint", time="at", time_unit="s")
        for name in ("a", "b"):
            p.query(name, "select x, count(*) as n from s group by x")
        p.query("c", "select n, count(*) as m from b group by n")
        p.append("s", [{"at": 1, "x": 1}])
        p.run()
        for name in ("a", "b"):
            p.remove(name)
            p.query(name, "select x, sum(x) as n from s group by x")
        with pytest.raises(StageChanged) as raised:
            p.apply()
        told = str(raised.value)
        assert "`hayase reset b a --from earliest`" in told
        assert "c, which read what they write, begin anew with them" in told
        p.reset(["a", "b"])
        p.finish("s")
        p.run()
        assert p.at("a", 1) == [{"x": 1, "n": 1}]


def test_a_home_that_is_created_again_at_the_same_path_has_its_own_definition(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for stage in ("big", "spend"):
        pipeline = shop.shop(home, 0, [stage])
        pipeline.apply()
        definition = definitions.definition_of(pipeline.home, 1)
        assert list(generations(definition)) == [stage]
        assert definitions.definition_of(pipeline.home, 1) is definition, "it is read once"
        shutil.rmtree(pipeline.home.path)
    with pytest.raises(DamagedState, match="is missing"):
        definitions.definition_of(pipeline.home, 1)
