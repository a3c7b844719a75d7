"""The console's side of the server: its files, the session of a browser, the pipeline with its figures, and their fan-out."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from hayase.core.times import END
from hayase.core.tokens import SINGLE, Tokens
from hayase.engine.batch.lane_governor import GovernorStatus, QueueStatus
from hayase.engine.batch.offsets import Position
from hayase.engine.condition import Condition
from hayase.engine.stage_figures import StageView
from hayase.serving.console_routes import DIRECTORY, POLICY
from hayase.serving.fan_out import FanOut
from hayase.serving.live_figures import Figures
from hayase.serving.service import Service
from hayase.serving.sessions import SECONDS, Sessions
from hayase.serving.stage_notices import StreamFacts, notices
from hayase.testing import at
from serving_shop import Shop, shop

TOKEN = "Zp-q0Jm3vYx8kT2s"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop(tmp_path_factory.mktemp("shop"), token=TOKEN) as made:
        yield made


# -- files ----------------------------------------------------------------------------------------------------------------
def test_the_page_and_all_that_it_names_are_served_without_a_token(secured: Shop) -> None:
    page = secured.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"] == POLICY
    assert page.headers["cache-control"] == "no-cache"
    named = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert named
    for path in named:
        file = secured.get(path)
        assert file.status_code == 200
        assert "immutable" in file.headers["cache-control"]
        assert secured.get(path, headers={"If-None-Match": file.headers["etag"]}).status_code == 304


def test_the_page_has_nothing_inline_and_nothing_from_elsewhere(served: Shop) -> None:
    text = served.get("/").text
    assert "<style" not in text
    assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
    assert re.findall(r'(?:src|href)="(?!/)', text) == []
    assert re.findall(r"\b(?:style|on\w+)=", text) == []
    assert "unsafe" not in POLICY


def test_files_are_compressed_for_those_who_take_that(served: Shop) -> None:
    path = re.findall(r'src="([^"]+)"', served.get("/").text)[0]
    plain = served.get(path, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert served.get(path).headers["content-encoding"] == "gzip"
    assert served.get(path).content == plain.content


def test_only_files_of_the_console_are_served(served: Shop) -> None:
    for path in ("/console/app.py", "/console/..%2Fapp.py", "/console/%2e%2e/app.py", "/console/", "/console/a%20b"):
        assert served.get(path).status_code in (404, 422), path


def test_all_files_together_are_small() -> None:
    assert sum(len(gzip.compress(path.read_bytes(), 9)) for path in DIRECTORY.iterdir()) < 600_000


def test_what_is_shipped_was_built_from_the_sources() -> None:
    """`make console-check` builds it again and compares; this sees that a build was forgotten, without Node."""
    web = Path(__file__).parents[2] / "console-web"
    files = ["index.html", "package-lock.json", "package.json", "tsconfig.json", "vite.config.ts"]
    files += [path.relative_to(web).as_posix() for path in (web / "src").rglob("*") if path.is_file()]
    digest = sha256()
    for file in sorted(files):
        digest.update(file.encode() + b"\0" + (web / file).read_bytes() + b"\0")
    assert (DIRECTORY / "sources.sha256").read_text().strip() == digest.hexdigest(), "run make console, and commit it"


def test_the_lock_file_names_no_registry_and_all_bundled_licences_are_listed() -> None:
    web = Path(__file__).parents[2] / "console-web"
    assert '"resolved"' not in (web / "package-lock.json").read_text()
    listed = (DIRECTORY / "licenses.txt").read_text()
    for package in json.loads((web / "package.json").read_text())["dependencies"]:
        assert re.search(rf"^{re.escape(package)} [\d.]+ \(", listed, flags=re.MULTILINE), package


# -- sessions -------------------------------------------------------------------------------------------------------------
def own(secured: Shop, **more: str) -> dict[str, str]:
    """The headers that a browser sends from a page of this server."""
    return {"Origin": secured.server.url, "Sec-Fetch-Site": "same-origin", **more}


def logged_in(secured: Shop) -> dict[str, str]:
    """The cookie of a session."""
    answer = secured.http.post("/session", json={"token": TOKEN}, headers=own(secured))
    assert answer.status_code == 204
    secured.http.cookies.clear()  # each request says which cookie it sends
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


def test_a_session_begins_with_the_token_and_ends(secured: Shop) -> None:
    assert secured.get("/session").json() == {"token_required": True, "open": False}
    answer = secured.http.post("/session", json={"token": TOKEN}, headers=own(secured))
    assert re.fullmatch(
        r"hayase-session-\d+=\d+\.token\.[0-9a-f]{64}; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict",
        answer.headers["set-cookie"],
    )
    assert TOKEN not in answer.headers["set-cookie"]
    cookie = logged_in(secured)
    assert secured.get("/session", headers=cookie).json()["open"]
    assert secured.get("/tables", headers=cookie).status_code == 200
    ended = secured.http.delete("/session", headers=own(secured, **cookie))
    assert "Max-Age=0" in ended.headers["set-cookie"]
    secured.http.cookies.clear()


@pytest.mark.parametrize(
    "wrong", [{"token": TOKEN + "x"}, {"token": ""}, {"token": "\udc80".encode("utf-8", "replace").decode()}]
)
def test_a_wrong_token_begins_no_session(secured: Shop, wrong: dict[str, str]) -> None:
    answer = secured.http.post("/session", json=wrong, headers=own(secured))
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"token=" + TOKEN.encode(), "application/x-www-form-urlencoded", 415),
        (json.dumps({"token": TOKEN}).encode(), "text/plain", 415),
        (b"[]", "application/json", 422),
        (b'{"token": "' + b"x" * 5000 + b'"}', "application/json", 413),
        (b"{", "application/json", 400),
    ],
)
def test_only_a_page_of_this_server_can_log_in(secured: Shop, body: bytes, kind: str, status: int) -> None:
    headers = own(secured, **{"Content-Type": kind})
    assert secured.http.post("/session", content=body, headers=headers).status_code == status


def test_a_session_counts_only_for_pages_of_this_server(secured: Shop) -> None:
    cookie = logged_in(secured)
    append: dict[str, Any] = {"json": [], "headers": None}

    def status(**headers: str) -> int:
        append["headers"] = {**cookie, **headers}
        return secured.http.post("/streams/orders", **append).status_code

    assert status(**own(secured)) == 200
    assert status() == 401  # a browser that changes something names the origin of the page
    assert status(Origin="http://evil.example") == 401
    assert status(Origin=secured.server.url, **{"Sec-Fetch-Site": "same-site"}) == 401
    assert status(Origin="null") == 401
    assert secured.get("/tables", headers={**cookie, "Sec-Fetch-Site": "cross-site"}).status_code == 401
    assert secured.get("/tables", headers={**cookie, "Sec-Fetch-Site": "same-site"}).status_code == 401
    assert secured.get("/tables", headers={**cookie, "Authorization": "Bearer wrong"}).status_code == 401


def test_a_changed_or_old_session_is_none() -> None:
    now = 1_000_000_000
    sessions, host = Sessions(Tokens(TOKEN), lambda: now), "127.0.0.1:8421"
    cookie = sessions.cookie(host, SINGLE).partition(";")[0]
    end = cookie.partition("=")[2].partition(".")[0]
    assert sessions.holder(host, [f"other=1; {cookie}"])
    assert not sessions.holder("127.0.0.1:8422", [cookie])
    assert not sessions.holder(host, [cookie.replace(end, str(int(end) + 1))])
    assert not sessions.holder(host, [cookie[:-1], "", "=", "a;;b", f"hayase-session-8421={end}"])
    assert not Sessions(Tokens(TOKEN + "x"), lambda: now).holder(host, [cookie])
    now += SECONDS * 1_000_000
    assert not sessions.holder(host, [cookie])


def test_without_a_token_there_is_nothing_to_log_in_to(served: Shop) -> None:
    assert served.get("/session").json() == {"token_required": False, "open": True}
    answer = served.http.post("/session", json={"token": "x"})
    assert answer.status_code == 204
    assert "set-cookie" not in answer.headers


# -- the pipeline ---------------------------------------------------------------------------------------------------------
def test_the_graph_has_all_nodes_and_what_they_read(served: Shop) -> None:
    told = served.get("/pipeline").json()
    assert told["name"] == "shop"
    assert told["dead_open"] == 1
    kinds = {node["name"]: node["kind"] for node in told["nodes"]}
    assert kinds == {
        "orders": "stream", "prices": "stream", "spend": "query", "recent": "query", "large": "query", "costs": "query",
        "purchases": "table", "by_place": "table",
    }  # fmt: skip
    edges = {(edge["source"], edge["target"]): edge for edge in told["edges"]}
    assert ("orders", "spend") in edges
    assert ("prices", "costs") in edges
    assert edges["orders", "spend"]["lag"] == 0
    figures = {node["name"]: node["figures"] for node in told["nodes"]}
    assert figures["spend"]["read"] == 5
    assert figures["orders"]["written"] == 5
    assert figures["orders"]["clock"] == "2026-01-01T00:00:05Z"


def test_a_table_that_a_query_joins_is_looked_up(tmp_path: Path) -> None:
    from hayase.engine.definition.pipeline_graph import Edge, graph_of
    from hayase.testing import trial

    with trial("shop", home=tmp_path) as pipeline:
        pipeline.stream("orders", "time timestamp, uuid string, user string", id="uuid")
        pipeline.table("people", key="user", title="Register")
        pipeline.query("named", "select o.user, p.title from orders [Now] as o, people as p where o.user = p.user")
        pipeline.query("last", "select user, count(*) as n from orders [Range 10 seconds Slide 1 second] group by user")
        pipeline.query("sums", "select user, count(*) as n from orders [Range 5 seconds Slide 1 second] group by user")
        graph = graph_of(pipeline.apply())
        assert Edge("people", "named", "looks up") in graph.edges
        assert graph.node("last").shares == ("sums",)
        assert graph.node("people").lane is None


def test_a_node_says_how_it_is_declared_and_understood(served: Shop) -> None:
    spend = served.get("/pipeline/stages/spend").json()
    assert spend["declaration"] == "queries:\n  spend: select user, sum(amount) as spend from orders group by user\n"
    assert "Logical plan" in spend["explain"]
    table = served.get("/pipeline/stages/purchases").json()
    assert table["explain"] is None
    assert "tableName: purchases" in table["declaration"]
    answer = served.get("/pipeline/stages/spent")
    assert answer.status_code == 404
    assert 'did you mean "spend"' in answer.json()["detail"]


def events(text: str) -> list[tuple[str, Any]]:
    return [
        (kind, json.loads(data)) for kind, data in re.findall(r"^event: (\w+)\ndata: (.*)$", text, flags=re.MULTILINE)
    ]


def test_the_figures_come_as_events(fresh: Shop) -> None:
    told = events(fresh.get("/pipeline/events?wait=0").text)
    assert [kind for kind, _ in told] == ["pipeline"]
    with fresh.http.stream("GET", "/pipeline/events", timeout=60) as answer:
        lines = answer.iter_lines()
        first = next(json.loads(line[6:]) for line in lines if line.startswith("data: "))
        fresh.pipeline.append("orders", [{"time": at(9), "uuid": "f", "user": "taro", "amount": 1.0}])
        fresh.run()
        for line in lines:
            if line.startswith("data: ") and json.loads(line[6:])["version"] > first["version"]:
                break
        figures = {node["name"]: node["figures"] for node in json.loads(line[6:])["nodes"]}
        assert figures["orders"]["written"] == 6


def test_rates_lags_and_samples(fresh: Shop) -> None:
    moment = 100.0
    service = Service(fresh.pipeline.home, fresh.pipeline.clock, fresh.runner.tables, fresh.status)
    figures = Figures(service, lambda: moment)
    figures.take_sample(figures.look(fresh.status.now))
    fresh.pipeline.append(
        "orders", [{"time": at(9 + n), "uuid": f"f{n}", "user": "taro", "amount": 1.0} for n in range(4)]
    )
    moment += 2
    waiting = figures.look(fresh.status.now)
    edges = {(edge["source"], edge["target"]): (edge["rate"], edge["lag"]) for edge in waiting["edges"]}
    assert edges["orders", "spend"] == (0.0, 4)
    assert {node["name"]: node["figures"]["rate"] for node in waiting["nodes"]}["orders"] == 2.0
    fresh.run()
    moment += 1
    done = figures.look(fresh.status.now)
    edges = {(edge["source"], edge["target"]): (edge["rate"], edge["lag"]) for edge in done["edges"]}
    assert edges["orders", "spend"] == (1.33, 0)
    figures.take_sample(done)
    history = figures.history()
    assert history["sample"] == 2
    assert history["rates"]["spend"] == [0.0, 1.33]
    assert history["lags"]["spend"] == [0, 0]


# -- fan-out --------------------------------------------------------------------------------------------------------------
def test_all_listeners_get_the_same_events_and_slow_ones_are_dropped() -> None:
    async def play() -> tuple[list[bytes], list[bytes], int]:
        fan, quick, slow = FanOut(queued=2), list[bytes](), list[bytes]()
        reader = fan.listen(b"first", heartbeat=60)
        lazy = fan.listen(b"first", heartbeat=60)
        quick.append(await anext(reader))
        slow.append(await anext(lazy))
        for number in range(4):
            fan.send(b"%d" % number)
            quick.append(await anext(reader))
        slow += [data async for data in lazy]
        left = len(fan)
        fan.close()
        quick += [data async for data in reader]
        return quick, slow, left

    quick, slow, left = asyncio.run(play())
    assert quick == [b"first", b"0", b"1", b"2", b"3"]
    assert slow[0] == b"first"
    assert slow[1].startswith(b"event: dropped\n")
    assert len(slow) == 2
    assert left == 1


def test_a_quiet_stream_of_events_shows_that_it_lives() -> None:
    async def play() -> list[bytes]:
        listener = FanOut().listen(b"first", heartbeat=0.001)
        return [await anext(listener), await anext(listener)]

    assert asyncio.run(play()) == [b"first", b": still here\n\n"]


# -- problems in words ----------------------------------------------------------------------------------------------------
def view(name: str = "spend", **more: Any) -> StageView:
    figures: dict[str, Any] = {
        "read_rate": 0.0, "written_rate": 0.0, "lag": (), "read": 10, "processed": 10, "dead": 0, "repeated": 0,
        "waiting": 0, "written": 5, "batch_seconds": None, "clock": 0,
    }  # fmt: skip
    return StageView(name=name, **{**figures, **more})


def texts(*stages: StageView, **more: Any) -> list[str]:
    given: dict[str, Any] = {
        "condition": Condition("running"),
        "positions": {},
        "streams": {},
        "refused": {},
        "governors": (),
    }
    given |= more
    return [notice.text for notice in notices(given.pop("condition"), stages, **given)]


def test_a_silent_stream_for_which_records_wait() -> None:
    waiting = {
        "positions": {"spend": {"orders": Position(5, clock=100), "prices": Position(5, clock=900)}},
        "streams": {"orders": StreamFacts(5, 100, 40.0, False), "prices": StreamFacts(5, 900, 1.0, False)},
    }
    assert texts(view(waiting=12), **waiting) == [
        '"orders" has been silent for 40 s: "spend" waits for it, with 12 records'
    ]
    assert texts(view(waiting=0), **waiting) == []
    waiting["streams"]["orders"] = StreamFacts(5, 100, 3.0, False)
    assert texts(view(waiting=12), **waiting) == []
    waiting["positions"]["spend"]["orders"] = Position(0)
    waiting["streams"]["orders"] = StreamFacts(0, 0, None, False)
    assert texts(view(waiting=1), **waiting) == ['"orders" has no records yet: "spend" waits for it, with 1 record']
    waiting["positions"] = {"spend": {"orders": Position(5, clock=END)}}
    assert texts(view(waiting=1), **waiting) == []


def test_a_backlog_refusals_and_an_overload() -> None:
    behind = view(read_rate=10.0, lag=(("orders", 3_000),))
    assert texts(behind) == ['"spend" is 3,000 records behind, 5 min of work at its present rate']
    assert texts(view(read_rate=10.0, lag=(("orders", 30),))) == []
    assert texts(refused={"spend": 1}) == ['"spend" refused 1 record in the last minute; see the dead letters']
    assert texts(refused={"a": 2, "b": 30}) == [
        '2 stages refused records in the last minute: "b" 30, "a" 2; see the dead letters'
    ]
    queue = QueueStatus(
        "scores", "orders", rate=10, service=0.3, load=3.0, share=1, waiting=50, waited=3, polls=1, empty=0
    )
    assert texts(governors=(GovernorStatus("operations", "informed", 2, 0, 1, 0, (queue,)),)) == [
        "lane operations has work for 3.0 workers and 2 of them; queues grow"
    ]


def test_a_condition_that_needs_attention() -> None:
    assert texts(condition=Condition("failed", "the disk is full")) == ["the pipeline is failed: the disk is full"]
    assert texts(condition=Condition("running", notice="the wall clock was set")) == ["the wall clock was set"]
    assert texts(condition=Condition("starting", "class archive")) == ["the pipeline is starting: class archive"]


# -- lifetimes ------------------------------------------------------------------------------------------------------------
def test_lifetimes_in_a_range(served: Shop) -> None:
    told = served.get(
        "/queries/recent/lifetimes", params={"from": "2026-01-01T00:00:02Z", "to": "2026-01-01T00:00:03Z", "bins": 2}
    ).json()
    assert [row["row"]["amount"] for row in told["rows"]] == [3.5, 1.5]
    assert told["rows"][0]["valid_from"] == "2026-01-01T00:00:01Z"
    assert told["matching"] == 2
    assert told["density"] == [2, 2]
    assert told["complete"]
    assert told["first_us"] == 1_767_225_601_000_000
    assert told["final_us"] == 1_767_225_605_000_000


def test_a_row_that_has_not_ended_has_no_end(served: Shop) -> None:
    asked = {"from": "2026-01-01T00:00:01Z", "to": "2026-01-01T00:00:04Z"}
    rows = served.get("/queries/spend/lifetimes", params=asked).json()["rows"]
    assert [(row["row"]["spend"], row["valid_to"]) for row in rows if row["row"]["user"] == "taro"] == [
        (3.5, "2026-01-01T00:00:03Z"),
        (5.5, None),
    ]


def test_records_of_a_stream_are_instants(served: Shop) -> None:
    told = served.get("/queries/large/lifetimes", params={"from": "2026-01-01T00:00:02Z", "bins": 3}).json()
    assert [row["row"]["amount"] for row in told["rows"]] == [1.5, 2.0]
    assert told["density"] == [1, 1, 0]
    costs = served.get("/queries/costs/lifetimes").json()
    assert costs["start_us"] == 1_000_000 or costs["rows"] == []


def test_a_range_that_is_none(served: Shop) -> None:
    for asked in (
        {"from": "2030-01-01T00:00:00Z"},
        {"from": "x"},
        {"to": "2020-01-01T00:00:00Z", "from": "2021-01-01T00:00:00Z"},
    ):
        assert served.get("/queries/recent/lifetimes", params=asked).status_code == 422
    assert served.get("/queries/none/lifetimes").status_code == 404


def test_a_sample_of_many_rows_counts_all_of_them(tmp_path: Path) -> None:
    with shop(tmp_path / "shop") as many:
        rows = [{"time": at(10 + n / 100), "uuid": f"n{n}", "user": f"u{n % 7}", "amount": 2.0} for n in range(2_000)]
        many.pipeline.append("orders", rows)
        many.run()
        asked = {"from": "2026-01-01T00:00:10Z", "limit": 100, "bins": 10}
        told = many.get("/queries/recent/lifetimes", params=asked).json()
        exact = [
            (start, end)
            for _, start, end in many.pipeline.intervals("recent")
            if end > at(10) and start.timestamp() * 1e6 < told["end_us"]
        ]
        assert told["matching"] == len(exact)
        assert len(told["rows"]) == 100
        edges = told["start_us"] + np.arange(10) * (told["end_us"] - told["start_us"]) // 10
        spans = [(start.timestamp() * 1e6, end.timestamp() * 1e6) for start, end in exact]
        assert told["density"] == [sum(start <= edge < end for start, end in spans) for edge in edges]
        starts = [row["from_us"] for row in told["rows"]]
        assert starts == sorted(starts)
        assert told["rows"] == many.get("/queries/recent/lifetimes", params=asked).json()["rows"]
        large = many.get("/queries/large/lifetimes", params=asked).json()
        assert (large["matching"], len(large["rows"]), sum(large["density"])) == (1_999, 100, 1_999)


# -- records, dry runs, groups, payloads ----------------------------------------------------------------------------------
def test_the_newest_records_in_pages(served: Shop) -> None:
    page = served.get("/streams/orders/records?limit=2").json()
    assert [record["offset"] for record in page["records"]] == [4, 3]
    assert page["records"][0]["record"]["uuid"] == "e"
    assert (page["next"], page["older"]) == (5, 3)
    page = served.get("/streams/orders/records?before=3").json()
    assert [record["offset"] for record in page["records"]] == [2, 1, 0]
    assert page["older"] is None
    assert served.get("/streams/orders/records?before=0").json()["records"] == []
    assert len(served.get("/streams/spend/records").json()["records"]) == 4
    assert served.get("/streams/_dead/records").status_code == 404
    assert served.get("/streams/order/records").status_code == 404


def test_an_append_can_be_tried(fresh: Shop) -> None:
    records = [
        {"time": at(8).isoformat(), "uuid": "x", "amount": "free"},
        {"time": at(8).isoformat(), "uuid": "y", "amount": 1},
    ]
    told = fresh.http.post("/streams/orders?dry_run=true", json=records).json()
    assert (told["accepted"], told["refused"], told["first"]) == (1, 1, None)
    assert 'column "amount" must be double' in told["refusals"][0]["reason"]
    assert fresh.get("/streams/orders").json()["next"] == 5
    assert fresh.get("/dead").json()["next"] == 1
    fresh.pipeline.finish("orders")
    assert fresh.http.post("/streams/orders?dry_run=true", json=records).status_code == 409


def test_a_stream_says_its_slack_and_clock(served: Shop) -> None:
    told = served.get("/streams/orders").json()
    assert (told["slack"], told["clock"], told["written_at"]) == ("0 s", "2026-01-01T00:00:05Z", "2026-01-01T00:00:00Z")


def test_dead_letters_in_groups(fresh: Shop) -> None:
    wrong = [{"time": at(8).isoformat(), "uuid": f"x{n}", "amount": f"free {n}"} for n in range(3)]
    fresh.http.post("/streams/orders", json=wrong)
    told = fresh.get("/dead/groups").json()
    assert told["open"] == 4
    assert [(group["stage"], group["letters"]) for group in told["groups"]] == [("append", 3), ("by_place", 1)]
    assert told["groups"][0]["first"] == 1
    assert fresh.get("/dead/groups?stage=by_place").json()["open"] == 1
    assert fresh.get("/dead/groups?kind=nothing").status_code == 422


def test_the_payloads_behind_a_row(served: Shop) -> None:
    told = served.get("/payloads/purchases/taro").json()
    assert [(each["column"], each["method"], each["event"], each["alone"]) for each in told["payloads"]] == [
        ("total", "incr", "c", 2),
        ("last", "set", "c", "2026-01-01T00:00:03Z"),
        ("total", "incr", "a", 3.5),
        ("last", "set", "a", "2026-01-01T00:00:01Z"),
    ]
    assert (told["folded"], told["more"]) == (False, False)
    early = served.get("/payloads/purchases/taro?as_of=2026-01-01T00:00:02Z&limit=1").json()
    assert [each["event"] for each in early["payloads"]] == ["a"]
    assert early["more"]
    assert served.get("/payloads/by_place/%22JP%22/5?json=true").json()["key"] == ["JP", 5]
    assert served.get("/payloads/purchases/nobody").status_code == 404
    assert served.get("/payloads/purchases/a/b").status_code == 422


def test_every_answer_of_the_pipeline_is_as_described(served: Shop) -> None:
    from hayase.serving import pipeline_models as models

    for path, model in (
        ("/pipeline", models.PipelineAnswer), ("/pipeline/history", models.History), ("/session", models.Session),
        ("/pipeline/stages/spend", models.StageAnswer), ("/queries/recent/lifetimes", models.Lifetimes),
        ("/streams/orders/records", models.Records), ("/dead/groups", models.DeadGroups),
        ("/payloads/purchases/taro", models.Payloads),
    ):  # fmt: skip
        answer: httpx.Response = served.get(path)
        told = answer.json()
        assert set(model.model_validate(told).model_dump()) == set(told), path
