"""Answers that many clients ask for at once: computed once, never older than what a client has seen, never mixed up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hayase.serving import shared_answers
from hayase.serving.server_figures import HttpFigures
from hayase.serving.shared_answers import SharedAnswers
from serving_shop import shop
from virtual_time import run_in_virtual_time

SHARED = {"cache-control": "max-age=2"}


class Server:
    """The middleware around an application that counts what it computes, and can be held up."""

    def __init__(self) -> None:
        self.computed = 0
        self.commit, self.number = object(), 0
        self.going = asyncio.Event()
        self.going.set()
        self.figures = HttpFigures()
        self.stopping = asyncio.Event()
        self.took = 0.0
        self.shared = SharedAnswers(self._app, self.figures, lambda: (self.commit, self.number), self.stopping)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.computed += 1
        number = self.computed
        await self.going.wait()
        await asyncio.sleep(self.took)
        path, scope["route"] = scope["raw_path"], "the route"
        if path == b"/broken":
            raise RuntimeError("broken")
        headers = [(b"content-type", b"text/plain")] + ([] if path == b"/untagged" else [(b"etag", b'"%d"' % number)])
        assert all(name != b"if-none-match" for name, _ in scope["headers"]) or path != b"/a"
        await send({"type": "http.response.start", "status": 404 if path == b"/missing" else 200, "headers": headers})
        if path == b"/pieces":
            await send({"type": "http.response.body", "body": b"first ", "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"%d %s" % (number, scope["query_string"])})

    async def get(self, path: str = "/a", query: str = "", **headers: str) -> tuple[int, bytes]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append({**message})

        pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": "GET", "raw_path": path.encode(), "query_string": query.encode()}
        scope |= {"headers": pairs}
        await self.shared(scope, None, send)  # type: ignore[arg-type]
        assert scope["route"] == "the route"
        return sent[0]["status"], b"".join(message["body"] for message in sent[1:])

    async def ask(self, path: str = "/a", query: str = "", **more: str) -> tuple[int, bytes]:
        return await self.get(path, query, cache_control="max-age=2", **more)


def test_equal_requests_are_computed_once() -> None:
    async def work() -> None:
        server = Server()
        server.going.clear()
        asked = [asyncio.create_task(server.ask()) for _ in range(50)]
        other = asyncio.create_task(server.ask(query="limit=3"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert server.figures.sharing == 49  # which do not count as being answered
        server.going.set()
        assert set(await asyncio.gather(*asked)) == {(200, b"1 ")}
        assert await other == (200, b"2 limit=3")
        assert await server.ask() == (200, b"1 ")
        assert (server.computed, server.figures.sharing) == (2, 0)

    run_in_virtual_time(work)


def test_an_answer_is_not_from_before_a_commit_or_a_change_of_the_figures() -> None:
    async def work() -> None:
        server = Server()
        assert await server.ask() == (200, b"1 ")
        server.commit = object()
        assert await server.ask() == (200, b"2 ")
        server.number += 1
        server.going.clear()
        slow = asyncio.create_task(server.ask())
        await asyncio.sleep(0)
        server.number += 1
        server.going.set()
        assert await server.ask() == (200, b"4 ")  # not that of the slow one, which began before
        assert await slow == (200, b"3 ")
        assert await server.ask() == (200, b"4 ")

    run_in_virtual_time(work)


def test_only_those_who_accept_an_older_answer_get_one() -> None:
    async def work() -> None:
        server = Server()
        assert await server.ask() == (200, b"1 ")
        for number, control in enumerate(("no-cache", "max-age=0", "max-age=", "max-age=x", "max-age=99999999999"), 2):
            assert await server.get(cache_control=control) == (200, b"%d " % number)
        assert await server.get() == (200, b"7 ")
        assert await server.ask() == (200, b"1 ")
        await asyncio.sleep(2)
        assert await server.ask() == (200, b"8 ")

    run_in_virtual_time(work)


def test_what_takes_long_is_not_computed_all_the_time() -> None:
    async def work() -> None:
        server, loop = Server(), asyncio.get_running_loop()
        server.took = 0.1
        assert await server.ask() == (200, b"1 ")
        ended = loop.time()
        server.commit = object()
        held = [asyncio.create_task(server.ask()) for _ in range(20)]
        assert await server.get() == (200, b"2 ")  # at once: it does not take part
        assert loop.time() == pytest.approx(ended + 0.1)
        assert server.figures.sharing == 20
        server.commit = object()  # they get what is newest then
        assert set(await asyncio.gather(*held)) == {(200, b"3 ")}
        assert loop.time() == pytest.approx(ended + 0.1 * shared_answers.REST + 0.1)
        assert await server.ask(query="x") == (200, b"4 x")
        server.took = 100.0
        assert await server.ask(query="y") == (200, b"5 y")
        server.commit, began = object(), loop.time()
        held = [asyncio.create_task(server.ask(query="y"))]
        await asyncio.sleep(shared_answers.MOST_REST - 0.1)
        assert server.computed == 5
        server.stopping.set()
        assert await held[0] == (200, b"6 y")
        assert loop.time() == pytest.approx(began + shared_answers.MOST_REST - 0.1 + 100)

    run_in_virtual_time(work)


def test_a_client_that_has_the_content_is_told_so() -> None:
    async def work() -> None:
        server = Server()
        assert await server.ask(if_none_match='"0"') == (200, b"1 ")
        assert await server.ask(if_none_match='"0", W/"1"') == (304, b"")
        assert await server.ask() == (200, b"1 ")

    run_in_virtual_time(work)


@pytest.mark.parametrize("path", ["/missing", "/untagged", "/pieces"])
def test_other_answers_are_each_computed(path: str) -> None:
    async def work() -> None:
        server = Server()
        status = 404 if path == "/missing" else 200
        begin = b"first " if path == "/pieces" else b""
        asked = await asyncio.gather(*(server.ask(path) for _ in range(3)))
        assert sorted(asked) == [(status, begin + b"%d " % number) for number in (1, 2, 3)]

    run_in_virtual_time(work)


def test_a_stream_of_events_holds_nobody_up() -> None:
    """Whoever asks for an answer in pieces while another one receives it gets its own."""

    async def work() -> None:
        server = Server()
        both = await asyncio.gather(server.ask("/pieces"), server.ask("/pieces"))
        assert sorted(both) == [(200, b"first 1 "), (200, b"first 2 ")]

    run_in_virtual_time(work)


def test_those_who_waited_for_an_answer_that_failed_ask_themselves() -> None:
    async def work() -> None:
        server = Server()
        results = await asyncio.gather(*(server.ask("/broken") for _ in range(3)), return_exceptions=True)
        assert [str(result) for result in results] == ["broken"] * 3
        assert server.figures.sharing == 0

    run_in_virtual_time(work)


def test_how_much_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        server = Server()
        for number in range(1, 5):
            assert await server.ask(query=str(number)) == (200, b"%d %d" % (number, number))
        assert await server.ask(query="1") == (200, b"1 1")
        assert await server.ask(query="4") == (200, b"5 4")

    monkeypatch.setattr(shared_answers, "MOST_ANSWERS", 3)
    run_in_virtual_time(work)
    monkeypatch.setattr(shared_answers, "MOST_ANSWERS", 64)
    monkeypatch.setattr(shared_answers, "MOST_BYTES", 10)
    run_in_virtual_time(work)


def test_a_served_shop_shares_answers_until_the_next_commit(tmp_path: Path) -> None:
    with shop(tmp_path / "shop") as served:
        first = served.get("/queries/spend", headers=SHARED)
        assert served.get("/queries/spend", headers=SHARED).content == first.content
        known = {**SHARED, "If-None-Match": first.headers["ETag"]}
        assert served.get("/queries/spend", headers=known).status_code == 304
        late = {
            "time": "2026-01-01T00:01:00Z",
            "uuid": "z",
            "user": "yuki",
            "country": "JP",
            "number": 1,
            "amount": 9.0,
        }
        assert served.http.post("/streams/orders", json=late).json()["accepted"] == 1
        length = served.get("/streams/orders").json()["next"]
        assert length == 6  # as appended, without a commit
        served.run()
        assert served.get("/queries/spend", headers=SHARED).content == served.get("/queries/spend").content
        assert served.get("/streams/orders", headers=SHARED).json()["next"] == 6
        routes = served.get("/metrics").text
        assert 'hayase_http_requests_total{method="GET",route="/queries/{query}",status="304"} 1' in routes
        seconds = next(line for line in routes.splitlines() if line.startswith("hayase_http_processor_seconds_total"))
        assert float(seconds.split()[1]) > 0
