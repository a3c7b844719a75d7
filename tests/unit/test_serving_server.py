"""The server itself, and events over a real connection."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from hayase.core.access import Access
from hayase.core.errors import EnvironmentUnfit, HayaseError
from hayase.engine.home import Home
from hayase.serving import Limits, connections, serving
from hayase.testing import at
from serving_shop import Shop, shop

QUICK = Limits(heartbeat=0.05, listeners=2)


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Shop]:
    with shop(tmp_path, limits=QUICK) as made:
        yield made


Event = tuple[str, str, Any]


def events(lines: Iterator[str]) -> Iterator[Event]:
    """The events of a stream: id, kind, data; a comment is an event of kind `comment`."""
    found: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            yield "", "comment", line
        elif line:
            name, _, value = line.partition(": ")
            found[name] = value
        elif "data" in found:
            yield found.get("id", ""), found["event"], orjson.loads(found["data"])
            found = {}


@contextlib.contextmanager
def listening(made: Shop, path: str, **headers: str) -> Iterator[Iterator[Event]]:
    with httpx.stream("GET", made.server.url + path, headers=headers, timeout=600, trust_env=False) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield events(answer.iter_lines())


def changes(found: Iterator[Event], count: int) -> list[Event]:
    """The next changes, whatever is said between them."""
    told = (each for each in found if each[1] == "change")
    return [next(told) for _ in range(count)]


def order(second: float, user: str, amount: float = 1.0) -> dict[str, Any]:
    return {"time": at(second), "uuid": f"{second}", "user": user, "country": "JP", "number": 1, "amount": amount}


# -- events ---------------------------------------------------------------------------------------------------------------
def test_changes_are_told_as_they_happen(quick: Shop) -> None:
    with listening(quick, "/queries/spend/changes") as found:
        quick.pipeline.append("orders", [order(6, "jiro"), order(7, "jiro")])
        quick.run()
        told = changes(found, 2)
        assert [(each[2]["time"], each[2]["change"], each[2]["row"]) for each in told] == [
            ("2026-01-01T00:00:05Z", "+", {"user": "5", "spend": 0.2}),
            ("2026-01-01T00:00:06Z", "+", {"user": "jiro", "spend": 1.0}),
        ]
        quick.pipeline.append("orders", [order(8, "jiro")])
        quick.run()
        assert [each[2]["change"] for each in changes(found, 2)] == ["-", "+"]


def test_rows_go_when_their_time_is_over(quick: Shop) -> None:
    cursor = quick.get("/queries/recent").json()["cursor"]
    with listening(quick, f"/queries/recent/changes?from={cursor}") as found:
        quick.pipeline.append("orders", [order(30, "jiro")])
        quick.run()
        told = changes(found, 6)
        assert [(each[2]["time"][17:19], each[2]["change"]) for each in told] == [
            ("05", "+"), ("11", "-"), ("12", "-"), ("13", "-"), ("14", "-"), ("15", "-"),
        ]  # fmt: skip


def test_a_listener_that_comes_back_misses_nothing(quick: Shop) -> None:
    quick.pipeline.append("orders", [order(30, "jiro"), order(31, "jiro")])
    quick.run()
    whole = list(events(quick.get("/queries/recent/changes?from=start&wait=0").text.splitlines().__iter__()))
    assert len(whole) == 11
    for at_, (cursor, _, _) in enumerate(whole):
        rest = quick.get("/queries/recent/changes?wait=0&from=start", headers={"Last-Event-ID": cursor})
        assert list(events(iter(rest.text.splitlines()))) == whole[at_ + 1 :]


def test_records_of_a_stream_come_in_the_order_of_its_log(quick: Shop) -> None:
    with listening(quick, "/queries/large/changes?from=start") as found:
        told = changes(found, 3)
        quick.pipeline.append("orders", [order(9, "jiro", 9.0)])
        quick.run()
        told += changes(found, 1)
    assert [each[2]["row"]["amount"] for each in told] == [3.5, 1.5, 2.0, 9.0]
    with listening(quick, "/queries/large/changes", **{"Last-Event-ID": told[1][0]}) as found:
        assert changes(found, 2) == told[2:]


def test_silence_is_filled_with_heartbeats(quick: Shop) -> None:
    with listening(quick, "/queries/spend/changes") as found:
        assert next(found)[1] == "comment"
        assert next(found)[1] == "comment"


def test_a_query_that_begins_anew_ends_the_stream(quick: Shop) -> None:
    with listening(quick, "/queries/recent/changes?from=start") as found:
        told = changes(found, 4)
        quick.pipeline.reset("recent")
        quick.run()
        gone = next(each for each in found if each[1] == "gone")
        assert "was reset" in gone[2]["detail"]
        assert list(found) == []
    answer = quick.get("/queries/recent/changes", headers={"Last-Event-ID": told[-1][0]})
    assert (answer.status_code, answer.headers["content-type"]) == (410, "application/problem+json")


def test_as_many_listen_as_are_allowed(quick: Shop) -> None:
    with listening(quick, "/queries/spend/changes?from=start") as one:
        changes(one, 1)
        with listening(quick, "/queries/large/changes?from=start") as other:
            changes(other, 1)
            answer = quick.get("/queries/spend/changes")
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert quick.get("/metrics").text.count("hayase_http_listening 2") == 1
    for _ in range(1000):
        if quick.get("/queries/spend/changes?wait=0").status_code == 200:
            return
    pytest.fail("those who have left are still counted")


@pytest.mark.parametrize(
    ("path", "status"),
    [("/queries/nothing/changes", 404), ("/queries/spend/changes?from=x", 422), ("/queries/spend/changes?from=0.5.0", 410),
     ("/queries/large/changes?from=1.99.0", 410), ("/queries/spend/changes?wait=-1", 422),
     ("/queries/spend/changes?since=now", 422)],
)  # fmt: skip
def test_events_that_cannot_be(quick: Shop, path: str, status: int) -> None:
    answer = quick.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


def test_stopping_ends_the_streams(tmp_path: Path) -> None:
    told: list[Event] = []
    with contextlib.ExitStack() as stack:
        with shop(tmp_path) as made:
            found = stack.enter_context(listening(made, "/queries/spend/changes?from=start"))
            told += changes(found, 1)
        told += list(found)
    assert len(told) == 5


# -- the server -----------------------------------------------------------------------------------------------------------
def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with (
        serving(Home(tmp_path), "127.0.0.1:0") as one,
        pytest.raises(EnvironmentUnfit, match="choose another port"),
        serving(Home(tmp_path), str(one.address)),
    ):
        pass


@pytest.mark.parametrize("address", ["", "8421", ":8421", "localhost", "localhost:", "localhost:http", "localhost:99999",
                                     "::1:8421", "a:b:1", "[::1]"])  # fmt: skip
def test_what_is_no_address(tmp_path: Path, address: str) -> None:
    with pytest.raises(HayaseError, match=r"like 127\.0\.0\.1:8421"), serving(Home(tmp_path), address):
        pass


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_other_machines_need_a_token(tmp_path: Path, address: str) -> None:
    with pytest.raises(HayaseError, match="there is no token"), serving(Home(tmp_path), address):
        pass
    with serving(Home(tmp_path), "0.0.0.0:0", access=Access("x" * 16)) as server:
        url = f"http://127.0.0.1:{server.address.port}/metrics"
        assert httpx.get(url).status_code == 401
        assert httpx.get(url, headers={"Authorization": "Bearer " + "x" * 16}).status_code == 200


@pytest.mark.parametrize("token", ["", "short", "with a space in it", "schlüsselschlüsselschlüssel"])
def test_tokens_that_are_none(tmp_path: Path, token: str) -> None:
    with pytest.raises(HayaseError, match="at least 16"), serving(Home(tmp_path), access=Access(token)):
        pass


def test_a_machine_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HayaseError, match="no machine"), serving(Home(tmp_path), "nowhere.invalid:1"):
        pass


def test_the_port_is_free_again_and_signals_are_left_alone(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    threads = set(threading.enumerate())
    with serving(Home(tmp_path), "127.0.0.1:0") as server:
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
        assert httpx.get(f"{server.url}/health").json()["state"] == "starting"
    with serving(Home(tmp_path), str(server.address)) as again:
        assert httpx.get(f"{again.url}/health").status_code == 503
    assert not [each for each in set(threading.enumerate()) - threads if each.name.startswith("serving")]


def test_an_error_in_the_block_comes_through(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), serving(Home(tmp_path), "127.0.0.1:0"):
        raise ZeroDivisionError


def test_a_home_without_a_pipeline(tmp_path: Path) -> None:
    with serving(Home(tmp_path), "127.0.0.1:0") as server:
        server.status.set("running")
        answer = httpx.get(f"{server.url}/streams")
        assert (answer.status_code, answer.json()["detail"]) == (503, "no pipeline was declared in this home yet")
        assert httpx.get(f"{server.url}/tables").json() == {"tables": []}
        assert httpx.get(f"{server.url}/tables/x/y").status_code == 404


@pytest.mark.parametrize("sent", [b"\x00\xff\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: " + b"y" * 70_000,
                                  b"GET /\xff HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"])  # fmt: skip
def test_what_is_no_request_is_hung_up_on(quick: Shop, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    address = quick.server.address
    with (
        socket.create_connection((address.host, address.port), timeout=600) as raw,
        contextlib.suppress(ConnectionError),
    ):
        raw.sendall(sent)
        answer = raw.recv(4096)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert quick.get("/health").status_code == 200


def test_reads_go_on_while_batches_are_taken_in(quick: Shop) -> None:
    """An answer is always that of some commit, never older than the one before it, nor than its label says."""
    done = threading.Event()
    failed: list[BaseException] = []

    def write() -> None:
        try:
            for number in range(1, 9):
                quick.pipeline.append("orders", [order(10 + number, "taro"), order(10.5 + number, "taro")])
                quick.run()
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    writer = threading.Thread(target=write)
    writer.start()
    totals, clocks = [], []
    while not done.is_set() or not totals:
        answer = quick.get("/tables/purchases/taro")
        totals.append(answer.json()["row"]["total"])
        clocks.append(answer.headers["hayase-clock"])
        many = quick.http.post("/tables/purchases", json={"keys": ["taro", "taro"]}).json()["rows"]
        assert many[0] == many[1]
    writer.join()
    assert failed == []
    assert totals == sorted(totals)
    assert {each - 5.5 for each in totals} <= set(range(0, 17, 2))
    assert clocks == sorted(clocks)
    for total, clock in zip(totals, clocks):
        batches = max(0, int(clock[17:19]) - 10)
        assert total >= 5.5 + 2 * batches
    assert quick.get("/tables/purchases/taro").json()["row"]["total"] == 21.5
