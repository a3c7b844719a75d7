"""Who gets in: token, Host, origin and limits; and that nothing leaves the process that should not."""

from __future__ import annotations

import contextlib
import http.client
import io
import re
import select
import socket
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import orjson
import pyarrow as pa
import pytest
from starlette.routing import Route

from hayase.core.access import Access
from hayase.core.clock import now_us
from hayase.core.declarations import StreamDeclaration
from hayase.engine.home import Home
from hayase.serving import Limits, Service, Status, body_admission, connections, create_app
from hayase.serving.bodies import ARROW, JSON, NDJSON, records_in
from hayase.serving.route_support import Abandoned
from hayase.serving.server import Address
from serving_shop import Shop, shop

TOKEN = "Zp-q0Jm3vYx8kT2s"
OPEN = {"/", "/console/x", "/session"}
"""Paths without the token: the console's files, which hold nothing secret, and where a browser gives the token."""
SMALL = Limits(body=1000, headers=2000, target=500, page=3, seconds=0.4, requests=3, listeners=1)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop(tmp_path_factory.mktemp("shop"), token=TOKEN) as made:
        yield made


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop(tmp_path_factory.mktemp("shop"), limits=SMALL) as made:
        yield made


def problem(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    return str(answer.json()["detail"])


# -- the token ------------------------------------------------------------------------------------------------------------
def routes(secured: Shop) -> list[tuple[str, str]]:
    """Every route that the application has, with every method, filled in."""
    home = Home(secured.pipeline.home.path)
    app = create_app(Service(home, now_us, None, Status()), access=Access(TOKEN))
    found = []
    for route in app.routes:
        assert isinstance(route, Route), "a route of another kind: see to it that it asks for the token"
        path = re.sub(r"\{(\w+)(:path)?\}", "x", route.path)
        found += [(method, path) for method in route.methods or {"GET"}]
    return found


def test_every_route_asks_for_the_token(secured: Shop) -> None:
    found = [(method, path) for method, path in routes(secured) if path not in OPEN]
    assert {path for _, path in found} >= {"/docs", "/openapi.json", "/health", "/metrics", "/tables/x/x"}
    for method, path in [*found, ("GET", "/nothing"), ("OPTIONS", "/tables"), ("DELETE", "/docs")]:
        for wrong in (
            None,
            "",
            "Bearer",
            f"Bearer {TOKEN}x",
            f"Bearer {TOKEN[:-1]}",
            f"Basic {TOKEN}",
            TOKEN,
        ):
            headers = {} if wrong is None else {"Authorization": wrong}
            answer = secured.http.request(method, path, headers=headers)
            assert answer.status_code == 401, (method, path, wrong)
            assert answer.headers["www-authenticate"] == "Bearer"
        asked = {"wait": 0} if path.endswith("/events") else {}  # it would go on for as long as somebody listens
        answer = secured.http.request(method, path, params=asked, headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.status_code != 401, (method, path)


def test_with_the_token_all_is_as_without(secured: Shop) -> None:
    headers = {"Authorization": f"bearer {TOKEN}"}
    assert secured.get("/tables/purchases/taro", headers=headers).json()["row"]["total"] == 5.5
    described = secured.get("/openapi.json", headers=headers).json()
    assert described["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert "asks for its token" in problem(secured.get("/tables/purchases/taro"), 401)


# -- the Host -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8421", "LOCALHOST:9", "[::1]:80", "192.168.0.7"])
def test_an_address_or_a_known_name(small: Shop, host: str) -> None:
    assert small.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8421", "localhost.evil.example", "127.0.0.1.evil.example",
                                  "127.0.0.1:x", "::1", "a b", "", "2130706433.example"])  # fmt: skip
def test_another_name_is_turned_away(small: Shop, host: str) -> None:
    assert "not a name of this server" in problem(small.get("/health", headers={"Host": host}), 421)


def test_no_host_at_all(small: Shop) -> None:
    with socket.create_connection((small.server.address.host, small.server.address.port)) as raw:
        raw.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 421")


# -- pages from elsewhere ---------------------------------------------------------------------------------------------------
ORDER = {"time": "2026-01-01T00:00:09Z", "uuid": "n1"}


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
     {"Origin": "http://127.0.0.1:1"}],
)  # fmt: skip
def test_a_page_from_elsewhere_changes_nothing(small: Shop, headers: dict[str, str]) -> None:
    assert "page from elsewhere" in problem(small.http.post("/streams/orders", json=ORDER, headers=headers), 403)
    assert "page from elsewhere" in problem(small.http.options("/streams/orders", headers=headers), 403)
    answer = small.get("/tables", headers=headers)
    assert not [each for each in answer.headers if each.startswith("access-control")]


def test_our_own_page_and_programs_may(small: Shop) -> None:
    asked: dict[str, Any] = {"keys": ["taro"]}
    own = {"Origin": small.server.url, "Sec-Fetch-Site": "same-origin"}
    assert small.http.post("/tables/purchases", json=asked, headers=own).status_code == 200
    assert small.http.post("/tables/purchases", json=asked).status_code == 200


# -- limits ---------------------------------------------------------------------------------------------------------------
def test_a_body_that_is_too_long(small: Shop) -> None:
    assert "longer than 1,000 bytes" in problem(small.http.post("/streams/orders", json=["x" * 1000]), 413)

    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 100

    headers = {"content-type": "application/x-ndjson"}
    try:
        answer = small.http.post("/streams/orders", content=endless(), headers=headers)
    except httpx.WriteError:  # the server hung up before all was sent
        return
    assert "longer than" in problem(answer, 413)


def test_a_body_that_does_not_come(small: Shop) -> None:
    address = small.server.address
    connection = http.client.HTTPConnection(address.host, address.port)
    connection.putrequest("POST", "/streams/orders")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", "100")
    connection.endheaders(b"{")
    answer = connection.getresponse()
    assert answer.status == 408
    assert b"did not arrive" in answer.read()
    connection.close()


def test_headers_and_addresses_that_are_too_long(small: Shop) -> None:
    assert "longer than 2,000 bytes" in problem(small.get("/health", headers={"X-Long": "x" * 2000}), 431)
    assert "longer than 500 bytes" in problem(small.get("/tables/purchases/" + "x" * 500), 414)
    assert "longer than 500 bytes" in problem(small.get("/health?" + "x" * 500), 414)


def test_pages_are_no_longer_than_allowed(small: Shop) -> None:
    assert len(small.get("/scan/purchases?limit=100").json()["rows"]) == 3
    assert len(small.get("/queries/recent?limit=100").json()["rows"]) == 3
    assert "3 fit into one request" in problem(small.http.post("/tables/purchases", json={"keys": ["a"] * 4}), 422)


def test_a_request_that_takes_too_long(small: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    held = threading.Event()
    monkeypatch.setattr(Service, "table_names", lambda self, now: held.wait(600) and [])
    try:
        answer = small.get("/tables")
        assert "took longer than 0.4 seconds" in problem(answer, 503)
        assert answer.headers["retry-after"] == "1"
    finally:
        held.set()


def test_too_many_requests_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    held, begun = threading.Event(), threading.Semaphore(0)

    def wait(self: Service, now: object) -> list[str]:
        begun.release()
        held.wait(600)
        return []

    monkeypatch.setattr(Service, "table_names", wait)
    with shop(tmp_path, limits=Limits(requests=3)) as made:
        threads = [threading.Thread(target=httpx.get, args=(f"{made.server.url}/tables",)) for _ in range(3)]
        for each in threads:
            each.start()
        for _ in threads:
            begun.acquire()
        answer = made.get("/streams")
        health = made.get("/health")  # which has a thread of its own, and is never one too many
        held.set()
        for each in threads:
            each.join()
        assert "3 requests are being answered" in problem(answer, 503)
        assert answer.headers["retry-after"] == "1"
        assert health.status_code == 200


def slow_body(made: Shop) -> socket.socket:
    """A connection whose body has begun and does not go on."""
    raw = socket.create_connection((made.server.address.host, made.server.address.port))
    head = "POST /streams/orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    raw.sendall(head.encode())
    return raw


def test_slow_bodies_are_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_admission, "FRESH_SECONDS", 0.0)
    with shop(tmp_path, limits=Limits(requests=3, bodies=4, seconds=600)) as made, contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(slow_body(made)) for _ in range(8)]
        while len(waiting) > 4:  # slower ones make room for newer ones, which are refused where none is slow yet
            assert answered(waiting) <= {408, 503}
        assert made.get("/tables").status_code == 200
        assert made.http.post("/streams/orders", json=ORDER).json()["accepted"] == 1
        assert answered(waiting) == {408}, "one has made room for the order"
        assert len(waiting) == 3


def answered(waiting: list[socket.socket]) -> set[int]:
    """Wait until some of these connections are answered, take them out of the list and return the statuses."""
    statuses = set()
    for done in select.select(waiting, [], [], 600)[0]:
        statuses.add(int(done.recv(100).split()[1]))
        waiting.remove(done)
    return statuses


def test_a_client_that_goes_away_is_no_fault_of_the_server(tmp_path: Path) -> None:
    with shop(tmp_path) as made:
        with slow_body(made):
            while "hayase_http_running 2" not in made.get("/metrics").text:
                pass
        while "hayase_http_running 1" not in made.get("/metrics").text:
            pass
    assert (tmp_path / "logs" / "serving.log").read_text() == ""


def test_idle_connections_are_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 16)
    with shop(tmp_path) as made, contextlib.ExitStack() as stack:
        place = (made.server.address.host, made.server.address.port)
        idle = [stack.enter_context(socket.create_connection(place)) for _ in range(40)]
        assert httpx.get(f"{made.server.url}/tables").status_code == 200
        idle[0].settimeout(600)
        with contextlib.suppress(ConnectionResetError):
            assert idle[0].recv(1) == b""


def test_work_that_nobody_waits_for_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    begun, ended = threading.Event(), threading.Event()

    def work(body: bytes, kind: str, *_: Any, check: Any) -> None:
        begun.set()
        try:
            while True:
                check()
        except Abandoned:
            ended.set()
            raise

    monkeypatch.setattr("hayase.serving.stream_routes.records_in", work)
    with shop(tmp_path) as made:
        with slow_body(made) as raw:
            raw.sendall(b" " * 99)
            assert begun.wait(600)
        assert ended.wait(600)
        assert made.get("/streams/orders").json()["next"] == 5


def test_an_import_that_never_ends_is_ended(tmp_path: Path) -> None:
    with shop(tmp_path, token=TOKEN, limits=Limits(seconds=300, trial=1.0)) as made:
        source = "while True: pass\ndef score(rows): return []"
        asked = {
            "name": "scores",
            "reads": ["orders"],
            "function": "score",
            "source": source,
            "schema": "time timestamp, x int",
        }
        answer = made.http.post("/operations", json=asked, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=300)
        assert "its import took longer than" in problem(answer, 422)


# -- bodies that grow -----------------------------------------------------------------------------------------------------
def ipc(table: pa.Table, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (ipc(pa.table({"time": pa.nulls(10**6)})), 413, "1,000,000 rows or more"),
        (ipc(pa.table({"user": pa.array(["x" * 1000]).take(pa.array([0] * 100_000))}), "zstd"), 413, "once it is decoded"),
        (ipc(pa.table({"user": pa.FixedSizeListArray.from_arrays(pa.nulls(10**8), 10**8)})), 413, "100,000,001 values"),
        (ipc(pa.table({"user": pa.DictionaryArray.from_arrays([0] * 100_000, ["x" * 10_000])})), 413, "bytes once it is"),
        (ipc(pa.table({"user": pa.RunEndEncodedArray.from_arrays([10**9], ["x"])})), 413, "rows"),
        (ipc(pa.table({"user": pa.RunEndEncodedArray.from_arrays([5], ["x"])})), 422, "is not taken here"),
        (ipc(pa.table({"user": pa.array([["x"]], pa.list_view(pa.string()))})), 422, "is not taken here"),
        (ipc(pa.table({"user": ["x"]}))[:-100], 400, "not an Arrow stream"),
    ],
)  # fmt: skip
def test_arrow_that_grows_is_refused_before_it_does(secured: Shop, body: bytes, status: int, reason: str) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/vnd.apache.arrow.stream"}
    assert reason in problem(secured.http.post("/streams/orders", content=body, headers=headers), status)


def test_arrow_of_the_common_encodings_is_taken(tmp_path: Path) -> None:
    times = pa.array([1_000_000, 2_000_000], pa.timestamp("us", tz="UTC"))
    users = [
        pa.array(["a", "b"]).dictionary_encode(),
        pa.array(["a", "b"], pa.string_view()),
        pa.array(["a", "b"], pa.large_string()),
    ]
    with shop(tmp_path) as made:
        for user in users:
            for compression in (None, "zstd", "lz4"):
                body = ipc(pa.table({"time": times, "uuid": ["1", "2"], "user": user}), compression)
                answer = made.http.post(
                    "/streams/orders", content=body, headers={"Content-Type": "application/vnd.apache.arrow.stream"}
                )
                assert answer.json()["accepted"] == 2


def test_a_body_of_very_many_records_is_refused_unread(secured: Shop) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    for body in (
        b'[{"a":1}' + b',{"a":1}' * 900_000 + b"]",
        b"[1" + b",1" * 4_000_000 + b"]",
        b"[1" + b",1" * 300_000 + b"]",
    ):
        assert "send it in parts" in problem(secured.http.post("/streams/orders", content=body, headers=headers), 413)


# -- faults ---------------------------------------------------------------------------------------------------------------
def test_no_traceback_leaves_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    def fail(self: Service, now: object) -> list[str]:
        raise ZeroDivisionError("secret thing in /root/place")

    monkeypatch.setattr(Service, "table_names", fail)
    with shop(tmp_path) as made:
        answer = made.get("/tables")
        detail = problem(answer, 500)
        assert "secret" not in answer.text
        assert "Traceback" not in answer.text
        incident = answer.json()["incident"]
        assert incident in detail
        assert made.get("/tables/purchases/taro").status_code == 200
    log = (tmp_path / "logs" / "serving.log").read_text()
    assert incident in log
    assert "ZeroDivisionError: secret thing" in log
    assert capfd.readouterr() == ("", "")


def test_the_log_of_the_server_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Service, now: object) -> list[str]:
        raise ZeroDivisionError

    monkeypatch.setattr(Service, "table_names", fail)
    monkeypatch.setattr("hayase.core.log_files.FILE_BYTES", 1_000)
    with shop(tmp_path) as made:
        incidents = [made.get("/tables").json()["incident"] for _ in range(3)]
    newest, older = ((tmp_path / "logs" / name).read_text() for name in ("serving.log", "serving.log.1"))
    assert incidents[-1] in newest
    assert incidents[-2] in older
    assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z ERROR hayase\.serving: incident", newest)


def test_a_damaged_table_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hayase.tables.payloads import DamagedPayload
    from hayase.tables.table import Table

    def damaged(*_: Any, **__: Any) -> None:
        raise DamagedPayload("bytes of /home/secret")

    with shop(tmp_path) as made:
        monkeypatch.setattr(Table, "get", damaged)
        assert "incident" in problem(made.get("/tables/purchases/taro"), 500)


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hayase.core.errors import StreamError

    def full(*_: Any, **__: Any) -> None:
        raise StreamError("orders", "no room on disk; free some space")

    with shop(tmp_path) as made:
        monkeypatch.setattr("hayase.serving.service.append_conformed", full)
        assert "free some space" in problem(made.http.post("/streams/orders", json=ORDER), 503)


def test_addresses() -> None:
    assert str(Address.from_text("[::1]:0")) == "[::1]:0"


LARGE = {
    "array<decimal(20, 2)>": [0.25] * 20_000,
    "array<struct<a: bigint>>": [{"a": number} for number in range(20_000)],
    "array<timestamp>": ["2026-01-01T00:00:00Z"] * 20_000,
    "map<string, double>": {str(number): number for number in range(20_000)},
}


@pytest.mark.parametrize(
    ("kind", "column"), [*product((JSON, NDJSON), LARGE), (ARROW, "array<decimal(20, 2)>"), (ARROW, "array<timestamp>")]
)
def test_one_large_record_is_abandoned_too(kind: str, column: str) -> None:
    """The client goes while the values of the record are converted."""
    declaration = StreamDeclaration("s", f"ts bigint, v {column}", "ts", time_unit="s")
    row = {"ts": 1, "v": LARGE[column]}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, (table := pa.Table.from_pylist([row])).schema) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes() if kind == ARROW else orjson.dumps(row)
    checks = iter(range(3))

    def check() -> None:
        if next(checks, None) is None:
            raise Abandoned

    with pytest.raises(Abandoned):
        records_in(body, kind, declaration, 0, check=check)
