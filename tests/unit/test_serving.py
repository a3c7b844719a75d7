"""The routes, asked over a real socket: what they answer, how it is labelled, and how they say no."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import orjson
import pyarrow as pa
import pytest

from hayase.core.times import BEGINNING
from hayase.engine.condition import Condition, State
from hayase.engine.results.live_results import NOT_BEGUN, Cursor
from hayase.serving import Limits
from hayase.serving.bodies import ARROW, NDJSON
from hayase.testing import at
from serving_shop import Shop, shop


def problem(answer: httpx.Response, status: int) -> str:
    """The detail of a problem, which every error must be."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["status"] == status
    assert told["title"]
    return str(told["detail"])


# -- tables ---------------------------------------------------------------------------------------------------------------
def test_tables_are_listed_and_described(served: Shop) -> None:
    assert served.get("/tables").json() == {"tables": ["purchases", "by_place"]}
    told = served.get("/tables/by_place").json()
    assert told["key"] == ["country", "number"]
    assert told["columns"] == [{"name": "orders", "type": "Counter"}]
    assert told["clock"] == "2026-01-01T00:00:05Z"
    assert 'did you mean "purchases"' in problem(served.get("/tables/purchase"), 404)


@pytest.mark.parametrize("user", ["taro", "花子/../?#%", "5"])
def test_a_key_is_a_segment_of_the_path(served: Shop, user: str) -> None:
    answer = served.get(f"/tables/purchases/{quote(user, safe='')}")
    assert answer.json()["key"] == [user]


def test_a_key_is_read_as_json_if_that_is_asked_for(served: Shop) -> None:
    assert served.get("/tables/purchases/%22..%22?json=true").json()["row"]["total"] == 0.1
    assert served.get("/tables/by_place/%22JP%22/5?json=true").json() == {"key": ["JP", 5], "row": {"orders": 1}}
    assert "for numbers write ?json=true" in problem(served.get("/tables/by_place/JP/5"), 404)
    assert "is not JSON" in problem(served.get("/tables/by_place/JP/5?json=true"), 400)
    assert '"json" is true or false' in problem(served.get("/tables/by_place/JP/5?json=yes"), 422)


def test_a_key_has_all_its_parts(served: Shop) -> None:
    assert "has 2 parts (country, number)" in problem(served.get("/tables/by_place/JP"), 422)
    assert "has 1 parts" in problem(served.get("/tables/purchases/taro/x"), 422)


def test_some_columns(served: Shop) -> None:
    assert served.get("/tables/purchases/taro?columns=total").json()["row"] == {"total": 5.5}
    assert 'did you mean "total"' in problem(served.get("/tables/purchases/taro?columns=totl"), 422)


@pytest.mark.parametrize("time", ["2026-01-01T00:00:02Z", "2026-01-01T09:00:02+09:00", "1767225602000000"])
def test_as_of_a_time(served: Shop, time: str) -> None:
    assert served.get(f"/tables/purchases/taro?as_of={time}").json()["row"]["total"] == 3.5


def test_a_misspelt_parameter_is_not_left_out(served: Shop) -> None:
    assert 'did you mean "as_of"' in problem(served.get("/tables/purchases/taro?asof=2026-01-01"), 422)
    assert 'did you mean "limit"' in problem(served.get("/scan/purchases?limits=3"), 422)


@pytest.mark.parametrize("time", ["yesterday", "", "9" * 19, "-9999999999999999999", "2026-13-01"])
def test_what_is_no_time(served: Shop, time: str) -> None:
    problem(served.get("/tables/purchases/taro", params={"as_of": time}), 422)
    problem(served.get("/queries/spend", params={"at": time}), 422)


def test_before_the_oldest_fold_the_table_is_gone(fresh: Shop) -> None:
    fresh.pipeline.append("orders", [{"time": "2026-01-02T00:00:00Z", "uuid": "z", "user": "taro", "amount": 1.0}])
    fresh.run()
    fresh.runner.tables.own(fresh.runner.tables.declaration("purchases")).fold(1_767_225_604_000_000, 0)
    assert "oldest time that can be asked for" in problem(
        fresh.get("/tables/purchases/taro?as_of=2026-01-01T00:00:01Z"), 410
    )
    assert fresh.get("/tables/purchases/taro?as_of=2026-01-01T00:00:04Z").json()["row"]["total"] == 5.5
    assert fresh.get("/tables/purchases").json()["readable_from"] == "2026-01-01T00:00:03.999999Z"


def test_many_keys_at_once(served: Shop) -> None:
    asked: dict[str, Any] = {"keys": ["taro", ["nobody"]], "columns": ["total"]}
    assert served.http.post("/tables/purchases", json=asked).json() == {
        "rows": [{"key": ["taro"], "row": {"total": 5.5}}, {"key": ["nobody"], "row": None}]
    }
    asked = {"keys": [["US", 5]], "as_of": "2026-01-01T00:00:03Z"}
    assert served.http.post("/tables/by_place", json=asked).json()["rows"][0]["row"] == {"orders": 1}


@pytest.mark.parametrize(
    "body",
    [[], {}, {"keys": 5}, {"keys": [["a", "b"]]}, {"keys": [], "column": []}, {"keys": [], "columns": "total"},
     {"keys": [], "as_of": True}, {"keys": [], "as_of": "soon"}, {"keys": ["x" * 2000]}, {"keys": ["a"] * 1001}],
)  # fmt: skip
def test_bodies_that_ask_for_nothing(served: Shop, body: Any) -> None:
    problem(served.http.post("/tables/purchases", json=body), 422)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b'{"keys": [NaN]}'])
def test_bodies_that_are_no_json(served: Shop, body: bytes) -> None:
    problem(served.http.post("/tables/purchases", content=body, headers={"content-type": "application/json"}), 400)


@pytest.mark.parametrize("number", ["1e-10000000", "1e99999999999999999999", "9" * 3000, "9" * 5000])
def test_a_number_beyond_all_costs_nothing_but_itself(served: Shop, number: str) -> None:
    json_ = {"content-type": "application/json"}
    rows = f'[{{"at": 1, "item": "a", "price": {number}}}, {{"at": {number}}}, {{"at": 2, "item": "b", "price": 1.5}}]'
    for kind, body in (("json", rows), ("x-ndjson", rows[1:-1].replace("}, {", "}\n{"))):
        answer = served.http.post(
            "/streams/prices", content=body, headers={"content-type": f"application/{kind}"}
        ).json()
        assert (answer["accepted"], answer["refused"]) == (1, 2)
        assert all(len(each["record"]) <= 1001 for each in answer["refusals"])
    for path, body in (
        ("/tables/purchases", '{"keys": [%s]}'),
        ("/dead/replay", '{"letters": [%s]}'),
        ("/dead/drop", '{"limit": %s}'),
    ):
        problem(served.http.post(path, content=body % number, headers=json_), 422)
    problem(served.get(f"/tables/purchases/{number}?json=true"), 422)
    problem(served.get(f'/scan/by_place?prefix=["JP",{number}]'), 422)


def test_a_scan_goes_page_by_page(served: Shop) -> None:
    rows, after = [], None
    while True:
        page = served.get("/scan/purchases", params={"limit": 1} | ({"after": after} if after else {})).json()
        rows += page["rows"]
        after = page["next"]
        if after is None:
            break
    assert [each["key"] for each in rows] == [[".."], ["5"], ["taro"], ["花子/../?#%"]]


def test_a_scan_by_prefix(served: Shop) -> None:
    found = served.get("/scan/by_place", params={"prefix": '["JP"]', "columns": "orders"}).json()
    assert [each["key"] for each in found["rows"]] == [["JP", 5], ["JP", 7]]
    found = served.get("/scan/purchases", params={"text_prefix": "花"}).json()
    assert [each["key"] for each in found["rows"]] == [["花子/../?#%"]]
    found = served.get("/scan/purchases", params={"as_of": "2026-01-01T00:00:01Z"}).json()
    assert [each["key"] for each in found["rows"]] == [["taro"]]


@pytest.mark.parametrize(
    "asked",
    [{"limit": "0"}, {"limit": "1001"}, {"limit": "x"}, {"prefix": '"JP"'}, {"prefix": '["a","b"]'}, {"after": "!"},
     {"prefix": '["a"]', "text_prefix": "b"}],
)  # fmt: skip
def test_scans_that_cannot_be(served: Shop, asked: dict[str, str]) -> None:
    problem(served.get("/scan/purchases", params=asked), 422)


@pytest.mark.parametrize("path", ["/tables/purchases/" + "k" * 2000, "/tables/" + "t" * 65, "/tables/" + "t" * 65 + "/a",
                                  "/tables/purchases/%ff"])  # fmt: skip
def test_names_and_keys_that_are_too_long_or_no_text(served: Shop, path: str) -> None:
    assert served.get(path).status_code in (404, 422)
    assert served.get(path).headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "path",
    ["/tables/..%2F..%2Fetc%2Fpasswd", "/tables/%2e%2e/%2e%2e", "/tables/purchases%2Ftaro", "/tables/a%00b",
     "/streams/..%2Forders", "/streams/%00", "/queries/..%5c..", "/queries/_dead", "/streams/_dead", "/tables//x"],
)  # fmt: skip
def test_paths_lead_nowhere_else(served: Shop, path: str) -> None:
    problem(served.get(path), 404)


def test_any_character_can_be_in_a_key(served: Shop) -> None:
    problem(served.get("/tables/purchases/%00"), 404)
    problem(served.get("/tables/purchases/%F0%9F%8C%8A"), 404)


# -- labels ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "path", ["/tables", "/tables/purchases", "/tables/purchases/taro", "/scan/purchases", "/streams", "/streams/orders",
             "/queries", "/queries/spend", "/dead"]
)  # fmt: skip
def test_an_answer_that_is_known_is_not_sent_again(served: Shop, path: str) -> None:
    answer = served.get(path)
    tag = answer.headers["etag"]
    assert tag.startswith('"')
    assert answer.headers["hayase-state"] == "running"
    assert answer.headers["hayase-committed-at"] == "2026-01-01T00:00:00Z"
    for known in (tag, f'"x", {tag}', f"W/{tag}", "*"):
        again = served.get(path, headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert served.get(path, headers={"If-None-Match": '"x"'}).status_code == 200


def test_the_tag_changes_with_what_was_read(fresh: Shop) -> None:
    before = fresh.get("/tables/purchases/taro")
    other = fresh.get("/tables/purchases/5")
    fresh.pipeline.append("orders", [{"time": at(6), "uuid": "f", "user": "taro", "amount": 1.0}])
    fresh.run()
    after = fresh.get("/tables/purchases/taro")
    assert after.json()["row"]["total"] == 6.5
    assert after.headers["etag"] != before.headers["etag"]
    assert after.headers["hayase-clock"] > before.headers["hayase-clock"]
    assert fresh.get("/tables/purchases/5").headers["etag"] == other.headers["etag"]


def test_nothing_is_told_before_the_pipeline_has_recovered(tmp_path: Path) -> None:
    with shop(tmp_path, state="starting") as made:
        others = ("/health", "/metrics", "/docs", "/openapi.json", "/session")
        paths = [each for each in _paths(made) if each not in others]
        assert len(paths) >= 10
        for path in paths:
            answer = made.get(path)
            assert "is starting" in problem(answer, 503)
            assert answer.headers["retry-after"] == "1"
        answer = made.http.post("/streams/orders", json={})
        assert "is starting" in problem(answer, 503)
        health = made.get("/health")
        assert (health.status_code, health.json()["state"]) == (503, "starting")
        assert made.get("/metrics").status_code == 200
        made.status.committed(made.runner.manifest)
        assert made.get("/tables/purchases/taro").headers["hayase-state"] == "starting"  # the lanes, that is
        made.status.set("failed", "the lane failed")
        health = made.get("/health")
        assert (health.status_code, health.json()["reason"]) == (503, "the lane failed")
        assert made.get("/tables/purchases/taro").headers["hayase-state"] == "failed"
        made.status.set("stopping")
        assert made.get("/health").status_code == 200


def _paths(made: Shop) -> list[str]:
    found = made.get("/openapi.json").json()["paths"]
    return [
        path.format(
            table="purchases",
            key="taro",
            stream="orders",
            query="spend",
            letter="0",
            operation="scores",
            stage="spend",
            version="1",
            name="orders",
        )
        for path, operations in found.items()
        if "get" in operations
    ]


# -- streams --------------------------------------------------------------------------------------------------------------
ORDER = {"time": "2026-01-01T00:00:09Z", "uuid": "n1", "user": "jiro", "country": "JP", "number": 1, "amount": 2.5}


def arrow(rows: list[dict[str, Any]], schema: pa.Schema | None = None) -> bytes:
    sink = io.BytesIO()
    table = pa.Table.from_pylist(rows, schema=schema)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("kind", "body", "count"),
    [
        ("application/json", orjson.dumps(ORDER), 1),
        ("application/json; charset=utf-8", orjson.dumps([ORDER, ORDER]), 2),
        ("application/json", b"[]", 0),
        (NDJSON, orjson.dumps(ORDER) + b"\n\n" + orjson.dumps(ORDER), 2),
        ("application/jsonl", b"", 0),
        (ARROW, arrow([ORDER, ORDER, ORDER]), 3),
    ],
)
def test_records_in_every_form(fresh: Shop, kind: str, body: bytes, count: int) -> None:
    answer = fresh.http.post("/streams/orders", content=body, headers={"content-type": kind})
    told = answer.json()
    assert (told["accepted"], told["refused"], told["repeated"]) == (count, 0, False)
    assert (told["first"], told["next"]) == ((5, 5 + count) if count else (None, None))
    rows = fresh.pipeline.rows("orders")[5:]
    assert [each["user"] for each in rows] == ["jiro"] * count
    assert fresh.get("/streams/orders").json()["next"] == 5 + count


def test_what_does_not_fit_is_told_and_kept(fresh: Shop) -> None:
    bad = {**ORDER, "amount": "free"}
    told = fresh.http.post("/streams/orders", json=[bad, ORDER, 5, {"colour": 1.50}]).json()
    assert (told["accepted"], told["refused"]) == (1, 3)
    assert 'column "amount" must be double, not "free"' in told["refusals"][0]["reason"]
    letters = fresh.get("/dead").json()["letters"][-3:]
    assert [each["reason"] for each in letters] == [each["reason"] for each in told["refusals"]]
    assert letters[2]["record"] == '{"colour":1.5}'


def test_numbers_keep_their_digits(fresh: Shop) -> None:
    body = b'{"at": 2000, "item": "rice", "price": 98765432109876543210.0123456789}'
    for content, kind in ((body, "application/json"), (b"[" + body + b"]", "application/json"), (body, NDJSON)):
        fresh.http.post("/streams/prices", content=content, headers={"content-type": kind}).raise_for_status()
    fresh.pipeline.append("prices", [{"at": 9_000, "item": "salt", "price": "1"}])
    fresh.run()
    answer = fresh.get("/queries/costs?at=8000")
    assert answer.content.count(b'"price":98765432109876543210.0123456789') == 3
    assert b'"price":12345678901234567890.5000000000' in answer.content


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        (None, b"{}", 415),
        ("text/plain", b"{}", 415),
        ("application/x-www-form-urlencoded", b"a=b", 415),
        ("application/json; charset=utf-16", b"{}", 415),
        ("application/json", b"", 400),
        ("application/json", b'{"amount": NaN}', 400),
        (ARROW, b"", 400),
        (ARROW, b"not arrow at all", 400),
        (ARROW, arrow([ORDER])[:-200], 400),
        (ARROW, arrow([{"colour": 1}]), 422),
    ],
)
def test_bodies_that_are_no_records(fresh: Shop, kind: str | None, body: bytes, status: int) -> None:
    headers = {} if kind is None else {"content-type": kind}
    problem(fresh.http.post("/streams/orders", content=body, headers=headers), status)
    assert fresh.get("/streams/orders").json()["next"] == 5


def test_a_repeated_append_adds_nothing(tmp_path: Path) -> None:
    key = {"Idempotency-Key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}
    body = [{**ORDER, "amount": "free"}, ORDER, ORDER]
    with shop(tmp_path) as made:
        first = made.http.post("/streams/orders", json=body, headers=key)
        again = made.http.post("/streams/orders", json=body, headers=key)
    with shop(tmp_path) as made:
        later = made.http.post("/streams/orders", json=body, headers=key)
        assert made.get("/streams/orders").json()["next"] == 7
        assert len(made.get("/dead").json()["letters"]) == 2
        assert "was used for another request" in problem(
            made.http.post("/streams/orders", json=ORDER, headers=key), 422
        )
        assert made.http.post("/streams/orders", json=ORDER, headers={"Idempotency-Key": "k"}).json()["first"] == 7
    assert "idempotency-replayed" not in first.headers
    for each in (again, later):
        assert each.headers["idempotency-replayed"] == "true"
        assert each.json() == {**first.json(), "repeated": True}


def test_a_producer_counts_its_appends(fresh: Shop) -> None:
    def send(number: object) -> httpx.Response:
        headers = {"Hayase-Producer": "till 3", "Hayase-Sequence": str(number)}
        return fresh.http.post("/streams/orders", json=ORDER, headers=headers)

    assert send(1).json()["first"] == 5
    assert send(5).json()["first"] == 6
    assert send(5).json() == {**send(5).json(), "first": 6, "repeated": True}
    assert "is not above its last one" in problem(send(2), 409)
    problem(send(-1), 422)
    problem(send("x"), 422)


@pytest.mark.parametrize(
    "headers",
    [{"Idempotency-Key": ""}, {"Idempotency-Key": "x" * 201}, {"Hayase-Producer": "a"}, {"Hayase-Sequence": "1"},
     {"Idempotency-Key": "x", "Hayase-Producer": "a", "Hayase-Sequence": "1"}],
)  # fmt: skip
def test_keys_that_cannot_be(served: Shop, headers: dict[str, str]) -> None:
    problem(served.http.post("/streams/orders", json=ORDER, headers=headers), 422)


def test_a_stream_that_takes_no_records(fresh: Shop) -> None:
    assert "is written by the query" in problem(fresh.http.post("/streams/spend", json=ORDER), 404)
    assert 'did you mean "orders"' in problem(fresh.http.post("/streams/order", json=ORDER), 404)
    fresh.pipeline.finish("orders")
    assert "takes no more records" in problem(fresh.http.post("/streams/orders", json=ORDER), 409)
    assert fresh.get("/streams/orders").json()["finished"] is True


# -- queries --------------------------------------------------------------------------------------------------------------
def test_queries_are_listed(served: Shop) -> None:
    told = {each["name"]: each for each in served.get("/queries").json()["queries"]}
    assert told["spend"]["kind"] == "relation"
    assert told["spend"]["schema"] == "`user` string, spend double"
    assert told["large"]["kind"] == "stream"


def test_the_snapshot_now_and_then(served: Shop) -> None:
    told = served.get("/queries/spend").json()
    assert told["at"] == "2026-01-01T00:00:04.999999Z"
    assert {each["user"]: each["spend"] for each in told["rows"]} == {"taro": 5.5, "花子/../?#%": 1.5, "..": 0.1}
    told = served.get("/queries/spend?at=2026-01-01T00:00:01Z").json()
    assert told["rows"] == [{"user": "taro", "spend": 3.5}]
    told = served.get("/queries/recent?at=2026-01-01T00:00:01Z&lifetimes=true").json()
    assert told["rows"][0]["valid_to"] == "2026-01-01T00:00:11Z"
    told = served.get("/queries/large?at=1767225602000000&lifetimes=true").json()
    assert [each["valid_from"] for each in told["rows"]] == ["2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"]


def test_a_time_that_is_not_final_yet(served: Shop) -> None:
    assert "is final up to 2026-01-01T00:00:04.999999Z" in problem(
        served.get("/queries/spend?at=2026-01-01T00:00:05Z"), 409
    )
    assert 'did you mean "spend"' in problem(served.get("/queries/spent"), 404)


def test_a_cursor_from_before_the_query_began_has_missed_nothing(fresh: Shop) -> None:
    from_start = fresh.get("/queries/recent/changes", params={"from": "start", "wait": 0}).text
    early = Cursor(NOT_BEGUN, BEGINNING)
    assert fresh.get("/queries/recent/changes", params={"from": str(early), "wait": 0}).text == from_start
    assert "data: {" in from_start


def test_pages_of_one_snapshot(fresh: Shop) -> None:
    first = fresh.get("/queries/recent?limit=3").json()
    fresh.pipeline.append("orders", [{"time": at(60), "uuid": "f", "user": "taro", "amount": 1.0}])
    fresh.run()
    second = fresh.get("/queries/recent", params={"after": first["next"], "limit": 3}).json()
    assert (len(first["rows"]), len(second["rows"]), second["next"]) == (3, 1, None)
    assert second["at"] == first["at"]
    assert fresh.get("/queries/recent").json()["rows"] == []
    problem(fresh.get("/queries/recent", params={"after": first["next"], "at": "5"}), 422)
    for cursor in ("x", "1.2", "1.2.x", "1.99999999999999999999.0", "1.2.-1", "." * 200):
        problem(fresh.get("/queries/recent", params={"after": cursor}), 422)
    fresh.pipeline.reset("recent")
    fresh.run()
    assert "was reset" in problem(fresh.get("/queries/recent", params={"after": first["next"]}), 410)


# -- about the pipeline -----------------------------------------------------------------------------------------------------
def test_dead_letters(fresh: Shop) -> None:
    told = fresh.get("/dead?limit=1").json()
    assert told["letters"][0]["stage"] == "by_place"
    assert told["next"] == told["first"] + 1


@pytest.mark.parametrize("state", ["starting", "recovering", "stalled", "failed"])
def test_health_is_503_with_the_reason_unless_all_is_well(fresh: Shop, state: State) -> None:
    fresh.status.set_condition(Condition(state, "because of it", "the wall clock was set back", 1, -60.0))
    answer = fresh.get("/health")
    told = answer.json()
    assert (answer.status_code, answer.headers["hayase-state"]) == (503, state)
    assert (told["state"], told["reason"], told["notice"]) == (state, "because of it", "the wall clock was set back")
    assert fresh.get("/tables/purchases/taro").status_code == 200  # what was committed can be read all the same
    metrics = fresh.get("/metrics").text
    assert f'hayase_state{{state="{state}"}} 1.0' in metrics
    assert "hayase_clock_jumps_total 1\n" in metrics
    assert "hayase_clock_jump_seconds -60.0\n" in metrics
    fresh.status.set("running")
    assert fresh.get("/health").status_code == 200


def test_health_tells_the_lag(fresh: Shop) -> None:
    assert fresh.get("/health").json()["lag"]["spend"] == {"orders": 0}
    fresh.http.post("/streams/orders", json=ORDER)
    told = fresh.get("/health").json()
    assert (told["state"], told["lag"]["spend"]) == ("running", {"orders": 1})


def test_metrics_are_what_prometheus_reads(served: Shop) -> None:
    served.get("/tables/purchases/taro")
    answer = served.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#"))
    assert all(float(each) >= 0 for each in samples.values())
    assert samples['hayase_stage_read_total{stage="spend"}'] == "5"
    assert samples['hayase_stage_dead_total{stage="by_place"}'] == "1"
    assert samples['hayase_state{state="running"}'] == "1.0"
    assert samples['hayase_stage_lag_records{stage="spend",stream="orders"}'] == "0"
    assert int(samples['hayase_http_requests_total{method="GET",route="/tables/{table}/{key:path}",status="200"}']) > 0
    names = [line.split()[2] for line in answer.text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names)) > 10


def test_the_description_is_complete(served: Shop) -> None:
    told = served.get("/openapi.json").json()
    routes = {(method, path) for path, operations in told["paths"].items() for method in operations}
    assert ("post", "/streams/{stream}") in routes
    assert ("get", "/tables/{table}/{key}") in routes
    for path, operations in told["paths"].items():
        for operation in operations.values():
            assert operation["description"], path
            for parameter in operation.get("parameters", ()):
                assert parameter["schema"], path
            assert "application/problem+json" in operation["responses"]["422"]["content"], path
    for schema in told["components"]["schemas"].values():
        assert schema["description"]
    text = orjson.dumps(told).decode()
    for each in text.split('"#/components/schemas/')[1:]:
        assert each.split('"')[0] in told["components"]["schemas"]


def test_the_docs_need_nothing_from_elsewhere(served: Shop) -> None:
    page = served.get("/docs").text
    assert "/queries/{query}/changes" in page
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page


def test_what_is_not_there(served: Shop) -> None:
    problem(served.get("/index.html"), 404)
    problem(served.get("/tables/"), 404)
    answer = served.http.delete("/tables/purchases")
    problem(answer, 405)
    assert "GET" in answer.headers["allow"]


def test_a_stream_in_pages_in_the_order_of_its_log(fresh: Shop) -> None:
    first = fresh.get("/queries/large?limit=2").json()
    assert [each["amount"] for each in first["rows"]] == [3.5, 1.5]
    second = fresh.get("/queries/large", params={"after": first["next"], "limit": 2}).json()
    assert ([each["amount"] for each in second["rows"]], second["next"]) == ([2.0], None)
    assert first["cursor"] == second["cursor"]
    whole = fresh.get("/queries/large?limit=3&lifetimes=true").json()
    assert whole["next"] is None
    assert {each["valid_to"] for each in whole["rows"]} == {None}


def test_a_compressed_body_is_not_taken(served: Shop) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    assert "is compressed" in problem(served.http.post("/streams/orders", content=b"x", headers=headers), 415)


def test_head_is_get_without_the_body(served: Shop) -> None:
    for path in ("/tables/purchases/taro", "/tables", "/queries/spend"):
        answer = served.http.head(path)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["etag"] == served.get(path).headers["etag"]


# -- how fresh ------------------------------------------------------------------------------------------------------------
def test_an_append_says_from_when_it_can_be_read(shop_of_its_own: Shop) -> None:
    made = shop_of_its_own
    order = {"time": at(9).isoformat(), "uuid": "z", "user": "mei", "country": "JP", "number": 1, "amount": 7}
    versions = made.http.post("/streams/orders", json=order).headers["hayase-versions"]
    before = made.get("/tables/purchases/taro").headers["hayase-versions"]
    assert versions == f"{before},orders@6"
    asked = {"at_least": versions, "columns": "total"}
    late = made.get("/tables/purchases/mei", params=asked)
    assert late.headers["retry-after"] == "1"
    assert 'has read "orders" up to 5, not 6' in problem(late, 503)
    made.run()
    assert made.get("/tables/purchases/mei", params=asked).json()["row"] == {"total": 7}
    many = made.http.post("/tables/purchases", params={"at_least": versions}, json={"keys": ["mei"]})
    assert many.json()["rows"][0]["row"]["total"] == 7
    assert "unknown parameter" in problem(made.http.post("/streams/orders?at_least=main=1", json=order), 422)


@pytest.fixture
def shop_of_its_own(tmp_path: Path) -> Iterator[Shop]:
    with shop(tmp_path, limits=Limits(freshness=0.1)) as made:
        yield made
