"""Sources and outputs as parts of the graph of a pipeline: nodes, edges with figures, problems in words, pausing over HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import hayase as hy
from hayase.connectors.status import ConnectorStatus, Figures, directory_of
from hayase.core.clock import now_us
from hayase.engine.definition.pipeline_graph import Edge, declaration_of, graph_of
from hayase.engine.local import InProcess
from hayase.serving import Status, serving
from hayase.serving.connector_figures import connector_notices

KAFKA = hy.Kafka(brokers="localhost:9092", topic="orders")


def shop(home: Path) -> hy.Pipeline:
    p = hy.Pipeline("shop", home=home)
    p.stream("orders", "time timestamp, user string, amount double", source=KAFKA)
    p.query("spend", "select user, sum(amount) as total from orders group by user")
    p.output("spend", reads="spend", to=hy.Webhook(url="http://localhost:9/spend"))
    p.output("orders", reads="orders", to=hy.Parquet(path="copies"))
    return p


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[hy.Pipeline, httpx.Client]]:
    """The shop, served; its home is locked, as that of a pipeline that runs."""
    p = shop(tmp_path / "home")
    p.apply()
    with p.home.lock(), contextlib.closing(InProcess(p.home, now_us)) as runner:
        status = Status("running", runner.run_until_idle())
        with (
            serving(p.home, "127.0.0.1:0", tables=runner.tables, status=status) as server,
            httpx.Client(base_url=server.url, trust_env=False) as http,
        ):
            yield p, http


def test_sources_and_outputs_are_nodes_with_names_of_their_own(tmp_path: Path) -> None:
    definition = shop(tmp_path / "home").apply()
    graph = graph_of(definition)
    assert [(node.name, node.kind, node.connector) for node in graph.nodes] == [
        ("source:orders", "source", "orders"), ("orders", "stream", None), ("spend", "query", None),
        ("output:spend", "output", "spend"), ("output:orders", "output", "orders"),
    ]  # fmt: skip
    assert set(graph.edges) == {
        Edge("source:orders", "orders", "moves"), Edge("orders", "spend"),
        Edge("spend", "output:spend", "moves"), Edge("orders", "output:orders", "moves"),
    }  # fmt: skip
    source = declaration_of(definition, graph.node("source:orders"))
    assert source == declaration_of(definition, graph.node("orders"))
    assert "from:" in source
    output = declaration_of(definition, graph.node("output:spend"))
    assert output.startswith("outputs:\n  spend:")
    assert "queries" not in output


def test_an_output_of_a_job_hangs_on_the_stage_that_writes_its_results(tmp_path: Path) -> None:
    p = hy.Pipeline("shop", home=tmp_path / "home")
    p.stream("orders", "time timestamp, user string")
    p.query(
        "users", "select user, count(*) as n from (select user from orders [Range 1 minute]) as recent group by user"
    )
    p.output("out", reads="users", to=hy.Parquet(path="copies"))
    definition = p.apply()
    writer = next(record.name for record in definition.records if record.output.name == "users")
    assert Edge(writer, "output:out", "moves") in graph_of(definition).edges


def figures(http: httpx.Client) -> tuple[dict[str, Any], dict[tuple[str, str], Any], list[dict[str, Any]]]:
    told = http.get("/pipeline").json()
    nodes = {node["name"]: node for node in told["nodes"]}
    return nodes, {(edge["source"], edge["target"]): edge for edge in told["edges"]}, told["problems"]


def test_the_graph_says_what_they_are_doing(served: tuple[hy.Pipeline, httpx.Client]) -> None:
    p, http = served
    source, (output, _) = p.declaration.sources[0], p.declaration.outputs
    moving = Figures(p.home, "sources", source)
    moving.count(120)
    moving.show("running", lag=7, positions=(("0", "120"),))
    Figures(p.home, "outputs", output).fail("localhost:9 cannot be reached", 3, now_us(), 1000.0)
    nodes, edges, problems = figures(http)
    assert nodes["orders"]["connector"] is None
    assert nodes["source:orders"]["connector"] == {
        "role": "sources", "name": "orders", "kind": "kafka", "target": "topic orders at localhost:9092", "state": "running",
        "attempts": 0, "failures": 0, "last_error": None,
    }  # fmt: skip
    assert (nodes["source:orders"]["figures"]["lag"], nodes["source:orders"]["figures"]["written"]) == (7, 120)
    moved = edges["source:orders", "orders"]
    assert (moved["kind"], moved["state"], moved["lag"]) == ("moves", "running", 7)
    failing = edges["spend", "output:spend"]
    assert (failing["state"], failing["attempts"]) == ("retrying", 3)
    assert edges["orders", "spend"]["state"] is None
    (problem,) = problems
    assert (problem["severity"], problem["subject"]) == ("error", "output:spend")
    assert (
        problem["text"] == 'output "spend" failed 3 times and is tried again in 1000 s: localhost:9 cannot be reached'
    )
    assert nodes["output:orders"]["connector"]["state"] == "stopped"
    one = http.get("/sources/orders").json()
    assert (one["target"], one["positions"]) == ("topic orders at localhost:9092", {"0": "120"})
    assert http.get("/pipeline/stages/output:spend").json()["kind"] == "output"


def test_they_are_paused_and_resumed(served: tuple[hy.Pipeline, httpx.Client]) -> None:
    p, http = served
    Figures(p.home, "sources", p.declaration.sources[0]).show("running", lag=1)
    foreign = http.post("/sources/orders/pause", headers={"Origin": "http://elsewhere.example"})
    assert foreign.status_code == 403
    assert figures(http)[2] == []
    assert http.post("/sources/orders/pause").json()["state"] == "paused"
    paused = next(
        problems[0]["text"] for _ in iter(int, 1) if (problems := figures(http)[2])
    )  # figures are computed at most once a second
    assert paused == 'the source of "orders" is paused, with 1 record waiting when it stopped'
    Figures(p.home, "sources", p.declaration.sources[0]).show("paused")
    assert http.post("/sources/orders/resume").json()["state"] == "starting"  # its process has not looked yet


def test_a_status_of_an_older_version_is_read(served: tuple[hy.Pipeline, httpx.Client]) -> None:
    p, http = served
    path = directory_of(p.home, "sources", "orders") / "status.json"
    path.parent.mkdir(parents=True)
    old = '"role":"sources","name":"orders","kind":"kafka","state":"running","records":5,"positions":{"0":"5"}'
    path.write_text("{" + old + f',"written":{now_us()}' + "}")
    told = http.get("/sources/orders").json()
    assert (told["state"], told["records"], told["failures"]) == ("running", 5, 0)


# -- problems in words ----------------------------------------------------------------------------------------------------
FAILING = ConnectorStatus(
    "sources", "orders", "kafka", state="retrying", error="Kafka at localhost:9092:\n  no brokers", attempts=1,
    again=20_000_000,
)  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "now", "text"),
    [
        ({}, 12_500_000, 'the source of "orders" failed and is tried again in 8 s: Kafka at localhost:9092: no brokers'),
        ({}, 8_000_000, 'the source of "orders" failed and is tried again in 15 s: Kafka at localhost:9092: no brokers'),
        ({}, 20_000_000, 'the source of "orders" failed and is being tried again: Kafka at localhost:9092: no brokers'),
        ({"attempts": 1_200}, 19_500_000, 'the source of "orders" failed 1,200 times and is tried again in 1 s: Kafka at '
         'localhost:9092: no brokers'),
        ({"role": "outputs", "error": None}, 0, 'output "orders" failed and is tried again in 20 s: no reason is known'),
        ({"state": "paused", "lag": 1_204}, 0, 'the source of "orders" is paused, with 1,204 records waiting when it stopped'),
        ({"state": "paused", "role": "outputs"}, 0, 'output "orders" is paused'),
    ],
)  # fmt: skip
def test_problems_in_words(changed: dict[str, Any], now: int, text: str) -> None:
    (notice,) = connector_notices([replace(FAILING, **changed)], now)
    assert notice.text == text
    assert notice.subject in ("source:orders", "output:orders")


def test_what_fails_comes_before_what_is_paused_and_the_rest_is_no_problem() -> None:
    states = ("paused", "running", "starting", "stopped", "retrying")
    statuses = [replace(FAILING, name=state, state=state) for state in states]
    told = [(notice.severity, notice.subject) for notice in connector_notices(statuses, 0)]
    assert told == [("error", "source:retrying"), ("warning", "source:paused")]


def test_a_long_error_is_cut() -> None:
    (notice,) = connector_notices([replace(FAILING, error="x" * 1_000)], 0)
    assert notice.text.endswith("xxx…")
    assert len(notice.text) < 500
