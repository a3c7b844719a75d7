"""The playground over HTTP: words, checks with places, plans, trials on the newest records, and queries added to the pipeline."""

from __future__ import annotations

import os
import signal
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from hayase.engine.definition import definitions
from hayase.serving import Limits
from hayase.serving.playground_routes import MOST_BYTES
from hayase.testing import at
from serving_shop import Shop, shop

SPEND = "select user, sum(amount) as s from orders [Range 2 seconds] group by user"
CROSS = "select a.user from orders as a, orders as b, orders as c where a.country = b.country and b.country = c.country"


def post(shop: Shop, path: str, status: int = 200, **body: Any) -> Any:
    answer = shop.http.post(path, json=body, timeout=60)
    assert answer.status_code == status, answer.text
    return answer.json()


def every_file(path: Path) -> dict[str, bytes]:
    """All files of a home with what is in them, but for its logs."""
    files = (file for file in sorted(path.rglob("*")) if file.is_file())
    return {str(file): file.read_bytes() for file in files if file.relative_to(path).parts[0] != "logs"}


def running_trials() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if "trial_process" in command_of(child)]


def command_of(process: psutil.Process) -> str:
    """The command of a process; one that is gone, or a zombie of Spark, has none."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


# -- words ----------------------------------------------------------------------------------------------------------------
def test_the_words_are_those_of_the_pipeline_and_of_the_language(served: Shop) -> None:
    words = served.get("/playground/words").json()
    sources = {source["name"]: source for source in words["sources"]}
    kinds = {name: source["kind"] for name, source in sources.items()}
    assert kinds == {
        "orders": "stream", "prices": "stream", "spend": "query", "recent": "query", "large": "query", "costs": "query",
        "purchases": "table", "by_place": "table",
    }  # fmt: skip
    assert {"name": "amount", "type": "double"} in sources["orders"]["columns"]
    assert [column["name"] for column in sources["spend"]["columns"]] == ["user", "spend"]
    assert [column["name"] for column in sources["purchases"]["columns"]] == ["user", "total", "last"]
    functions = {function["name"]: function for function in words["functions"]}
    assert functions["sum"]["kind"] == "aggregate"
    assert functions["lower"] == {"name": "lower", "kind": "scalar", "arguments": "string"}
    assert functions["Istream"]["kind"] == "stream operator"
    assert "random" not in functions  # it would give other results in every run
    assert "select" in words["keywords"]
    assert "[Rows 5]" in words["windows"]


def test_every_window_that_is_offered_is_one(served: Shop) -> None:
    for window in served.get("/playground/words").json()["windows"]:
        text = f"select count(*) as n from orders {window.replace('By k', 'By user')}"
        assert post(served, "/playground/check", text=text)["valid"], window


# -- checks ---------------------------------------------------------------------------------------------------------------
def test_a_sound_query_has_columns(served: Shop) -> None:
    checked = post(served, "/playground/check", text=SPEND)
    assert checked == {
        "valid": True, "mistakes": [], "kind": "relation", "reads": ["orders"],
        "columns": [{"name": "user", "type": "string"}, {"name": "s", "type": "double"}],
    }  # fmt: skip
    assert post(served, "/playground/check", text="select user from large")["kind"] == "stream"


@pytest.mark.parametrize(
    ("text", "line", "column", "message", "hint"),
    [
        ("select user,\n  amunt from orders", 2, 3, 'unknown column "amunt" in "orders"', 'did you mean "amount"?'),
        ("select user from order_s", 1, 18, 'unknown stream "order_s"', 'did you mean "orders"?'),
        ("selec user from orders", 1, 12, "cannot read the query", 'did you mean "select" and not "selec"?'),
        ("", 1, 1, "", ""),
    ],
)
def test_mistakes_have_a_place_and_a_remedy(
    served: Shop, text: str, line: int, column: int, message: str, hint: str
) -> None:
    checked = post(served, "/playground/check", text=text)
    assert not checked["valid"]
    (mistake,) = checked["mistakes"]
    assert (mistake["line"], mistake["column"]) == (line, column)
    assert message in mistake["message"]
    assert hint in mistake["hint"]
    for path in ("/playground/explain", "/playground/run"):
        refused = post(served, path, 422, text=text)
        assert refused["mistakes"] == checked["mistakes"]


def test_bodies_are_bounded(served: Shop) -> None:
    assert "at most 20000" in post(served, "/playground/check", 422, text="x" * 20_001)["detail"]
    assert served.http.post("/playground/check", json={"text": "x" * MOST_BYTES}).status_code == 413
    assert served.http.post("/playground/check", content=b"{}").status_code == 415
    assert "records" in post(served, "/playground/run", 422, text=SPEND, records=10_001)["detail"]
    assert "name" in post(served, "/playground/plan", 422, text=SPEND, name="../x")["detail"]
    assert "txt" in post(served, "/playground/check", 422, txt=SPEND)["detail"]


# -- plans ----------------------------------------------------------------------------------------------------------------
def test_a_plan_is_a_graph_from_the_streams_to_the_result(served: Shop) -> None:
    explained = post(served, "/playground/explain", text=SPEND)
    assert "Stage result: in all buckets" in explained["text"]
    titles = [(node["kind"], node["title"]) for node in explained["nodes"]]
    assert titles == [
        ("stream", "orders"), ("map side", "Map side"), ("operator", "Window"), ("operator", "Aggregate"),
        ("operator", "Scalar"), ("result", "result"),
    ]  # fmt: skip
    names = [node["name"] for node in explained["nodes"]]
    assert [(edge["source"], edge["target"]) for edge in explained["edges"]] == list(pairwise(names))


def test_what_an_addition_would_do(served: Shop) -> None:
    before = every_file(served.pipeline.home.path)
    plan = post(
        served, "/playground/plan", name="slow", text="select user, avg(amount) as a from orders [Rows 2] group by user"
    )
    (stage,) = plan["stages"]
    assert (stage["name"], stage["lane"], stage["reads"]) == ("slow", "main", ["orders"])
    assert any("[Rows 2]" in kept for kept in stage["keeps"])
    assert plan["declaration"] == "queries:\n  slow: select user, avg(amount) as a from orders [Rows 2] group by user\n"
    assert plan["changed"] == []
    assert post(served, "/playground/plan", name="x", text="select user from orders")["stages"][0]["keeps"] == []
    assert '"spend" is a query' in post(served, "/playground/plan", 422, name="spend", text=SPEND)["detail"]
    assert every_file(served.pipeline.home.path) == before


# -- trials ---------------------------------------------------------------------------------------------------------------
def test_a_trial_gives_rows_with_lifetimes_and_writes_nothing(served: Shop) -> None:
    before = every_file(served.pipeline.home.path)
    trial = post(served, "/playground/run", text=SPEND)
    rows = [(row["row"]["user"], row["row"]["s"], row["valid_from"], row["valid_to"]) for row in trial["rows"]]
    assert rows[0] == ("taro", 3.5, "2026-01-01T00:00:01Z", "2026-01-01T00:00:03Z")
    assert rows[-1] == ("5", 0.2, "2026-01-01T00:00:05Z", None)
    assert (trial["kind"], trial["matching"], trial["cut"], trial["read"]) == ("relation", 5, False, {"orders": 5})
    assert trial["start_us"] == trial["rows"][0]["from_us"]
    assert len(trial["density"]) == 100
    assert every_file(served.pipeline.home.path) == before


def test_a_trial_over_queries_and_tables(served: Shop) -> None:
    over = post(served, "/playground/run", text="select user, spend from spend where spend > 5")
    assert [(row["row"]["user"], row["row"]["spend"]) for row in over["rows"]] == [("taro", 5.5)]
    text = "select o.user, p.total from orders [Now] as o, purchases as p where o.user = p.user"
    looked_up = post(served, "/playground/run", text=text, records=1)
    assert [row["row"] for row in looked_up["rows"]] == [{"user": "5", "total": 0.2}]
    exact = post(served, "/playground/run", text="select item, price from prices")
    assert exact["kind"] == "stream"
    assert exact["rows"][0]["valid_from"] == 1000


def test_a_trial_is_bounded_and_says_so(served: Shop) -> None:
    newest = post(served, "/playground/run", text="select uuid from orders", records=2)
    assert [row["row"]["uuid"] for row in newest["rows"]] == ["d", "e"]
    few = post(served, "/playground/run", text="select uuid from orders", limit=3, bins=7)
    assert (len(few["rows"]), few["matching"], few["cut"], len(few["density"])) == (3, 5, True, 7)


def test_records_that_a_query_refuses_are_counted(served: Shop) -> None:
    trial = post(served, "/playground/run", text="select cast(country as bigint) as n from orders")
    assert trial["refused"] == 5
    (reason,) = trial["reasons"]
    assert (reason["stage"], reason["kind"], reason["records"]) == ("result", "expression", 5)
    assert "cannot compute" in reason["reason"]


def test_a_trial_that_takes_too_long_or_too_much_is_killed(tmp_path: Path) -> None:
    with shop(tmp_path / "shop", limits=Limits(trial=0.01)) as made:
        assert "stopped after 0.01 seconds" in post(made, "/playground/run", 422, text=SPEND)["detail"]
    with shop(tmp_path / "shop", limits=Limits(trial_memory=64 << 20)) as made:
        assert "64 MB of memory" in post(made, "/playground/run", 422, text=SPEND)["detail"]
        assert running_trials() == []
        assert made.get("/health").status_code == 200


def test_a_trial_whose_process_is_killed_is_a_problem(fresh: Shop) -> None:
    fresh.pipeline.append(
        "orders",
        [
            {"time": at(6 + n), "uuid": f"u{n}", "user": "x", "country": "JP", "number": 1, "amount": 1.0}
            for n in range(2000)
        ],
    )
    answers: list[Any] = []
    asked = threading.Thread(
        target=lambda: answers.append(post(fresh, "/playground/run", 422, text=CROSS, records=2000))
    )
    asked.start()
    while not (trials := running_trials()):
        asked.join(0.02)
        assert asked.is_alive()
    os.kill(trials[0].pid, signal.SIGKILL)
    asked.join()
    assert "killed from outside" in answers[0]["detail"]


# -- additions ------------------------------------------------------------------------------------------------------------
def test_an_added_query_runs_from_the_next_batch_on(fresh: Shop) -> None:
    made = post(fresh, "/queries", name="large_spend", text=SPEND)
    assert made == {"name": "large_spend", "version": 2, "takes_effect": "at the next batch"}
    assert post(fresh, "/playground/check", text="select s from large_spend")["valid"]
    fresh.run()
    rows = fresh.get("/queries/large_spend?at=2026-01-01T00:00:03Z").json()["rows"]
    assert sorted((row["user"], row["s"]) for row in rows) == [("taro", 2.0), ("花子/../?#%", 1.5)]
    assert [query["name"] for query in fresh.get("/queries").json()["queries"]][-1] == "large_spend"
    refused = post(fresh, "/queries", 422, name="Large_Spend", text=SPEND)
    assert '"Large_Spend" is a query of this pipeline' in refused["detail"]


def test_an_added_query_can_start_with_new_records(fresh: Shop) -> None:
    post(fresh, "/queries", name="newer", text="select user from orders", start="now")
    fresh.run()
    fresh.pipeline.append(
        "orders", [{"time": at(9), "uuid": "n", "user": "new", "country": "", "number": 1, "amount": 1.0}]
    )
    fresh.run()
    assert fresh.pipeline.results("newer").rows()[0]["user"] == "new"


def test_only_added_queries_can_be_removed(fresh: Shop) -> None:
    post(fresh, "/queries", name="one", text=SPEND)
    post(fresh, "/queries", name="two", text="select user from one")
    assert "is read by" in fresh.http.delete("/queries/one").json()["detail"]
    for name in ("two", "one"):
        assert fresh.http.delete(f"/queries/{name}").status_code == 200
    declared = fresh.http.delete("/queries/spend")
    assert (declared.status_code, "declared by the file" in declared.json()["detail"]) == (409, True)
    assert fresh.http.delete("/queries/nothing").status_code == 404
    current = definitions.latest(fresh.pipeline.home)
    assert current is not None
    assert (current.version, current.added) == (5, ())


def test_nothing_is_planned_before_there_is_a_pipeline(tmp_path: Path) -> None:
    with shop(tmp_path / "shop", state="starting") as made:
        assert made.http.post("/playground/check", json={"text": SPEND}).status_code == 503
        assert made.http.post("/queries", json={"name": "x", "text": SPEND}).status_code == 503
