"""Jobs as they are declared: by decorators, by names, as plain data; and everything that is wrong with one at once."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from hayase.core.declarations import JobDeclaration, PipelineDeclaration, StepDeclaration, StreamDeclaration
from hayase.core.errors import DeclarationError
from hayase.core.job_data import declared_job
from hayase.jobs.job_builder import Job

LOGS = StreamDeclaration("logs", "t timestamp", "t")


def parse(record: dict[str, Any]) -> tuple[int, int]:
    return record["status"], 1


def count(key: int, values: list[int]) -> tuple[int, int]:
    return key, len(values)


def alert(key: int, values: list[int], stored: dict[str, Any] | None) -> None:
    return None


def test_decorators_collect_steps_and_leave_functions_alone() -> None:
    told: list[JobDeclaration] = []
    job = Job("traffic", ["logs", "more"], "2 seconds", changed=told.append)
    assert job.map(parse) is parse
    assert job.reduce(window="15 minutes", every="6 minutes", attempts=3)(count) is count
    assert job.merge("blocklist", side="both", writes="alerts")(alert) is alert
    assert len(told) == 3
    made = told[-1]
    assert made == job.declaration
    assert (made.reads, made.every) == (("logs", "more"), 2_000_000)
    assert [step.kind for step in made.steps] == ["map", "reduce", "merge"]
    assert made.steps[0].function == f"{__name__}:parse"
    assert made.steps[0].directory == str(Path(__file__).parent)
    assert (made.steps[1].window, made.steps[1].every, made.steps[1].attempts) == (900_000_000, 360_000_000, 3)
    assert (made.steps[2].table, made.steps[2].side, made.steps[2].writes) == ("blocklist", "both", "alerts")


def test_aggregates_by_name() -> None:
    job = Job("traffic", "logs")
    job.reduce("count", key="status")
    job.reduce(hits="count(*)", bytes="sum(size)", aggregates={"order": "max(size)"})
    job.reduce("access:count")
    steps = job.declaration.steps
    assert steps[0].aggregates == (("", "count"),)
    assert steps[1].aggregates == (("order", "max(size)"), ("hits", "count(*)"), ("bytes", "sum(size)"))
    assert (steps[2].function, steps[2].aggregates) == ("access:count", ())
    assert steps[1].title == "order=max(size), hits=count(*), bytes=sum(size)"


def test_plain_data_says_the_same() -> None:
    job = Job("traffic", "logs", "2 seconds", rounds=3, directory="/somewhere")
    job.map("access:parse", schema="status int, size bigint", key="status", also=["errors", "again"])
    job.reduce(hits="count(*)", bytes="sum(size)", window="15 minutes", every="6 minutes")
    job.merge("blocklist", "access:alert", side="right", attempts=2)
    steps = [
        {"map": "access:parse", "schema": "status int, size bigint", "key": "status", "also": ["errors", "again"]},
        {"reduce": {"hits": "count(*)", "bytes": "sum(size)"}, "window": "15 minutes", "every": "6 minutes"},
        {"merge": "access:alert", "table": "blocklist", "side": "right", "attempts": 2},
    ]
    data = {"reads": "logs", "every": "2 seconds", "rounds": 3, "steps": steps}
    assert declared_job("traffic", data, "/somewhere") == job.declaration


def test_a_pipeline_keeps_its_jobs() -> None:
    job = Job("traffic", "logs")
    job.map(attempts=2)(parse)
    job.reduce(total="sum(value)")
    pipeline = PipelineDeclaration("p", (LOGS,), jobs=(job.declaration,))
    assert PipelineDeclaration.from_json(json.loads(json.dumps(pipeline.as_json()))) == pipeline
    assert JobDeclaration.from_json(json.loads(json.dumps(asdict(job.declaration)))) == job.declaration
    with pytest.raises(DeclarationError, match='"Logs" is declared twice'):
        PipelineDeclaration("p", (LOGS,), jobs=(JobDeclaration("Logs", ("logs",), 1, job.declaration.steps),))


def test_all_mistakes_of_a_job_are_told_at_once() -> None:
    with pytest.raises(DeclarationError) as caught:
        JobDeclaration(
            "j",
            (),
            0,
            (
                StepDeclaration("mop", "a:b"),
                StepDeclaration("map", "no function", window=3, every=3, order="time", side="both", attempts=0),
                StepDeclaration("map", "a:b", schema="x foo", batches=True),
                StepDeclaration("map", "a:b", batches=True, table="t", writes="no name"),
                StepDeclaration("reduce", "a:b", aggregates=(("", "count"),), order="size"),
                StepDeclaration("reduce", aggregates=(("", "count"), ("x", "sum(y)")), schema="time int", window=-1),
                StepDeclaration("merge", "dir/file.py:f", side="top"),
                StepDeclaration("map"),
            ),
            rounds=0,
        )
    told = [str(each) for each in caught.value.mistakes]
    assert told == [
        'job "j" reads nothing; name a stream or several',
        'every of job "j" is not positive; give a duration like 2 seconds',
        'rounds of job "j" is not positive; give 1 or more',
        'step 1 of job "j": there is no step "mop"; did you mean "map"?',
        'step 2 of job "j": "no function" names no function; write it like module:function',
        'step 2 of job "j": a map has no window; only a reduce has',
        'step 2 of job "j": a map has no every; only a reduce has',
        'step 2 of job "j": a map has no order; only a reduce or a merge has',
        'step 2 of job "j": a map has no side; only a merge has',
        'step 2 of job "j": 0 attempts; give 1 to 100',
        told[10],
        'step 4 of job "j": a map has no table; only a merge has',
        'step 4 of job "j": a function of batches gives no schema; say which columns it gives',
        "step 4 of job \"j\": 'no name' cannot be the name of a group; "
        "use letters, digits and _, a letter first, at most 63 of them",
        'step 5 of job "j": a reduce has a function or aggregates; give one of them',
        'step 5 of job "j": there is no order "size"; say "time" or leave it out',
        'step 6 of job "j": one of several aggregates has no name; write hits="count(*)"',
        'step 6 of job "j": aggregates know their columns themselves; leave schema and batches out',
        'step 6 of job "j": a column cannot be called "time" here; Hayase adds one of that name; rename it',
        'step 6 of job "j": a window has a length and an interval; give window and every, or neither',
        'step 6 of job "j": window is not positive; give a duration like 6 minutes',
        'step 7 of job "j": a merge has no side "top"; say left or right or both',
        'step 7 of job "j": the merge names no table; say which stored tuples it meets',
        'step 8 of job "j": a map has a function or aggregates; give one of them',
    ]
    assert 'unknown type "foo"' in told[10]
    assert [each.subject for each in caught.value.mistakes[:5]] == [
        "reads",
        "every",
        "rounds",
        "steps.0.kind",
        "steps.1.function",
    ]


def test_a_step_that_is_wrong_is_not_added() -> None:
    job = Job("j", "logs")
    job.map(parse)
    with pytest.raises(DeclarationError, match="0 attempts"):
        job.reduce("count", attempts=0)
    assert len(job.declaration.steps) == 1


def test_mistakes_in_plain_data() -> None:
    data = {
        "read": "logs",
        "every": "soon",
        "steps": [{"reduce": 3}, {"map": "a:b", "atempts": 2}, "x", {"map": "a:b", "window": "1"}],
    }
    with pytest.raises(DeclarationError) as caught:
        declared_job("j", data)
    told = [str(each) for each in caught.value.mistakes]
    assert told[:4] == [
        'job "j" has no "read"; did you mean "reads"?',
        'step 1 of job "j": 3 is not a function; write it like module:function',
        'step 2 of job "j": a map has no "atempts"; did you mean "attempts"?',
        'step 3 of job "j": it is not a step; begin it with map:, reduce: or merge:',
    ]
    assert "is not a duration" in told[4]
    assert told[5].startswith('every of job "j": "soon" is not a duration')
    with pytest.raises(DeclarationError, match="are not a list"):
        declared_job("j", {"reads": "logs", "steps": {"map": "a:b"}})
