"""A replica of a home: what it answers before, beside and after the runs of a pipeline, and what it refuses."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import hayase as hy
from commit_steps import run_asking
from hayase.core.access import Access
from hayase.engine.home import Home
from hayase.serving import Limits
from hayase.serving.replica_process import replicas
from relation_shop import purchase, relation_shop
from replicas import Replica, replica_of

TABLE = "/tables/by_user/u1"


def run(pipeline: hy.Pipeline, number: int) -> None:
    """Let a purchase by u1 be appended and processed."""
    pipeline.append("purchases", [purchase(number, number, 4)])
    pipeline.run_until_idle(spark=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def replica(home: Path) -> Iterator[Replica]:
    with replica_of(home, Limits(freshness=0.2)) as replica:
        yield replica


def test_it_waits_for_a_home_and_for_a_batch(home: Path, replica: Replica) -> None:
    answer = replica.newest("/tables")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "there is no home" in answer.json()["detail"]
    assert "there is no home" in replica.get("/health").json()["reason"]
    assert replica.get("/metrics").status_code == 200
    assert not home.exists()
    pipeline = relation_shop(home)
    pipeline.apply()
    assert "has not committed a batch" in replica.newest(TABLE).json()["detail"]
    run(pipeline, 1)
    assert replica.newest(TABLE).json()["row"] == {"n": 1, "spent": 4}


def test_answers_are_those_of_the_versions_that_they_name(home: Path, replica: Replica) -> None:
    pipeline = relation_shop(home)
    run(pipeline, 1)
    before = replica.newest(TABLE)
    run(pipeline, 2)
    paths = [
        TABLE,
        "/scan/by_amount",
        "/queries/total?lifetimes=true",
        "/streams/big/records",
        "/queries/total/lifetimes",
    ]
    old = [replica.get(path) for path in paths]
    assert {answer.headers["hayase-versions"] for answer in old} == {before.headers["hayase-versions"]}
    assert old[0].json() == before.json()
    new = [replica.newest(path) for path in paths]
    assert new[0].json()["row"] == {"n": 2, "spent": 8}
    assert new[1].json()["rows"][0]["row"] == {"n": 2}
    assert [row["n"] for row in new[2].json()["rows"]] == [1]
    assert new[2].headers["hayase-versions"] != before.headers["hayase-versions"]


def test_it_follows_restarts_new_definitions_resets_and_another_home(home: Path, replica: Replica) -> None:
    run(relation_shop(home), 1)
    assert replica.newest("/queries").json()["queries"][-1]["name"] == "big"
    changed = relation_shop(home)
    changed.query("small", "select user, amount from purchases where amount <= 5")
    run(changed, 2)
    assert [query["name"] for query in replica.newest("/queries").json()["queries"]][-1] == "small"
    assert replica.get(TABLE).json()["row"] == {"n": 2, "spent": 8}
    changed.reset("by_user", start="now")
    changed.run_until_idle(spark=False)
    assert replica.newest(TABLE).status_code == 404
    run(changed, 3)
    assert replica.newest(TABLE).json()["row"] == {"n": 1, "spent": 4}
    shutil.rmtree(home)
    assert "there is no home" in replica.newest(TABLE).json()["detail"]
    run(relation_shop(home), 7)
    assert replica.newest(TABLE).json()["row"] == {"n": 1, "spent": 4}
    assert replica.get(TABLE).headers["hayase-clock"] == "2026-01-01T00:00:07Z"


def test_changes_go_on_behind_a_cursor(home: Path, replica: Replica) -> None:
    pipeline = relation_shop(home)
    run(pipeline, 1)
    run(pipeline, 2)
    cursor = replica.newest("/queries/total").json()["cursor"]
    run(pipeline, 3)
    assert "event: change" not in replica.get(f"/queries/total/changes?from={cursor}&wait=0").text
    text = replica.newest(f"/queries/total/changes?from={cursor}&wait=0").text
    assert text.count("event: change") == 2
    assert '"change":"+","row":{"spent":8,"n":2}' in text


def test_what_changes_something_is_refused_with_where_to_send_it(home: Path, replica: Replica) -> None:
    run(relation_shop(home), 1)
    replica.follower.look()
    for method, path in (
        ("POST", "/streams/purchases"), ("POST", "/dead/replay"), ("DELETE", "/queries/big"), ("PATCH", "/governor"),
        ("POST", "/operations"), ("POST", "/queries"), ("POST", "/outputs/a/pause"),
    ):  # fmt: skip
        answer = replica.http.request(method, path, json={})
        assert (answer.status_code, "`hayase run --serve`" in answer.text) == (403, True)
    rows = replica.http.post("/tables/by_user", json={"keys": ["u1", "u2"]}).json()["rows"]
    assert [row["row"] for row in rows] == [{"n": 1, "spent": 4}, None]


def test_a_request_waits_until_it_is_as_fresh_as_asked_for(home: Path, replica: Replica) -> None:
    pipeline = relation_shop(home)
    run(pipeline, 1)
    versions = replica.newest(TABLE).headers["hayase-versions"]
    assert replica.get(f"{TABLE}?at_least={versions}&columns=n").json()["row"] == {"n": 1}
    run(pipeline, 2)
    lane, _, number = versions.partition("=")
    newer = f"{lane}={int(number) + 1}"
    late = replica.get(f"{TABLE}?at_least={newer}")
    assert (late.status_code, late.headers["retry-after"]) == (503, "1")
    assert f'lane "{lane}" is at version {number}' in late.json()["detail"]
    assert replica.newest(f"{TABLE}?at_least={newer}").json()["row"]["n"] == 2
    assert replica.get(f"{TABLE}?at_least=purchases@2").json()["row"]["n"] == 2
    assert '"purchases" up to 2, not 3' in replica.get(f"{TABLE}?at_least=purchases@3").json()["detail"]
    assert replica.get(f"{TABLE}?at_least=soon").status_code == 422


def test_an_append_is_read_where_it_is_asked_for(home: Path) -> None:
    pipeline = relation_shop(home)
    run(pipeline, 1)
    with replica_of(home, Limits(freshness=60.0)) as replica:
        replica.follower.look()
        first = pipeline.append("purchases", [purchase(2, 2, 4)])
        answers: list[httpx.Response] = []
        asking = threading.Thread(
            target=lambda: answers.append(replica.get(f"{TABLE}?at_least=purchases@{first.next}"))
        )
        asking.start()
        pipeline.run_until_idle(spark=False)
        replica.follower.look()
        asking.join()
        assert answers[0].json()["row"]["n"] == 2


def test_health_says_how_far_behind_it_is(home: Path, replica: Replica) -> None:
    pipeline = relation_shop(home)
    run(pipeline, 1)
    health = replica.newest("/health").json()
    assert (health["state"], health["versions"], health["behind"]) == (
        "stopped",
        {"main": 2},
        {"batches": 0, "seconds": 0.0},
    )
    behind = []

    def look() -> None:
        replica.follower.look()
        behind.append(replica.get("/health").json()["behind"]["batches"])

    run_asking(pipeline, [[5]], look)
    assert set(behind) == {0, 1}
    assert replica.newest("/health").json()["behind"]["batches"] == 0


def test_workers_share_an_address_and_are_started_anew(home: Path) -> None:
    run(relation_shop(home), 1)
    with replicas(Home(home), "127.0.0.1:0", workers=2, access=Access("a-token-of-24-characters")) as running:
        with httpx.Client(base_url=running.url, trust_env=False, timeout=60) as http:
            token = {"Authorization": "Bearer a-token-of-24-characters"}
            ready = f"{TABLE}?at_least=main=2"
            assert http.get(ready, headers=token).json()["row"] == {"n": 1, "spent": 4}
            assert http.get(TABLE).status_code == 401
            before = running.processes
            os.kill(before[0], signal.SIGKILL)
            while running.processes[0] == before[0]:
                running.check()
            assert http.get(ready, headers=token).status_code == 200
        assert running.processes[1] == before[1]


def test_another_machine_needs_a_token(home: Path) -> None:
    with pytest.raises(hy.HayaseError, match="can be reached from other machines"), replicas(Home(home), "0.0.0.0:0"):
        pass
