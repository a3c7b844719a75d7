"""Sources and outputs in a real browser: files come in, results go out by Parquet and by requests to a server that is down at
first. Their processes are those of `hayase run`; the stages run here, without Spark."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from console_checks import check, panel, violations
from playwright.sync_api import Locator, Page, expect

import hayase as hy
from hayase.connectors.supervision import Connectors
from hayase.core.clock import now_us
from hayase.engine.local import InProcess
from hayase.serving import Server, Status, serving
from hayase.testing import at

PIPELINE = """
pipeline: shop
streams:
  orders:
    schema: "time timestamp, user string, amount double"
    time: time
    from: {{files: {{path: "orders/*.ndjson", watch: 1 second}}}}
queries:
  spend: select user, sum(amount) as total from orders group by user
  large: select user, amount from orders where amount > 30
outputs:
  mart: {{reads: spend, to: {{parquet: {{path: mart, every: 1 second}}}}}}
  alerts: {{reads: large, to: {{webhook: {{url: "http://127.0.0.1:{port}/alerts"}}}}}}
"""


@dataclass
class ConnectedShop:
    """A shop that reads files and writes to two outputs, and what it needs to go on."""

    directory: Path
    port: int
    server: Server
    status: Status
    runner: InProcess
    requests: list[bytes] = field(default_factory=list)

    def add_orders(self, name: str, first: int, count: int = 20) -> None:
        """Put a file with orders where the source finds it, in one step."""
        rows = [
            {"time": at(number).isoformat(), "user": f"u{number % 3}", "amount": float(number * 7 % 50)}
            for number in range(first, first + count)
        ]
        new = self.directory / name
        new.write_text("".join(json.dumps(row) + "\n" for row in rows))
        (self.directory / "orders").mkdir(exist_ok=True)
        new.rename(self.directory / "orders" / name)

    def run(self) -> None:
        self.status.committed(self.runner.run_until_idle())

    @contextlib.contextmanager
    def webhook(self) -> Iterator[None]:
        """The server that the output sends requests to."""
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                requests.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", self.port), Handler) as listening:
            thread = threading.Thread(target=listening.serve_forever)
            thread.start()
            try:
                yield
            finally:
                listening.shutdown()
                thread.join()


@pytest.fixture
def connected(tmp_path: Path) -> Iterator[ConnectedShop]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(port=port))
    p = hy.Pipeline.from_file(file, tmp_path / "home")
    with p.home.lock():
        p.apply()
        with contextlib.closing(InProcess(p.home, now_us)) as runner, Connectors(p.home):
            status = Status("running", runner.run_until_idle())
            with serving(p.home, "127.0.0.1:0", tables=runner.tables, status=status) as server:
                yield ConnectedShop(tmp_path, port, server, status, runner)


def node(page: Page, label: str) -> Locator:
    """The node of the graph, by what is read out of it."""
    return page.locator(".graph").get_by_role("link", name=re.compile(f"^{label}:"))


def problem(page: Page, text: str) -> Locator:
    return page.get_by_role("list", name="Problems").get_by_role("listitem").filter(has_text=text)


def test_a_source_and_outputs_are_seen_paused_and_resumed(page: Page, connected: ConnectedShop, tmp_path: Path) -> None:
    connected.add_orders("a.ndjson", 0)
    page.goto(connected.server.url)
    expect(node(page, "stream orders")).to_contain_text("20 records")  # the source has read the file
    connected.run()
    expect(node(page, "source orders")).to_contain_text("running")
    expect(node(page, "source orders")).to_contain_text("files")
    expect(node(page, "output mart")).to_contain_text("running")
    rows = page.get_by_role("region", name="Sources and outputs").locator("tbody tr")
    expect(rows.nth(0)).to_contain_text("orders/*.ndjson")
    expect(rows.nth(1).locator("td").nth(3)).not_to_have_text("0")  # changes that went to the mart
    while not list((tmp_path / "mart").rglob("*.parquet")):  # they are collected for a second
        page.wait_for_timeout(100)

    failing = problem(page, 'output "alerts" failed')
    expect(failing).to_contain_text(f"http://127.0.0.1:{connected.port}/alerts cannot be reached")
    expect(node(page, "output alerts")).to_contain_text("retrying")
    expect(page.locator(".edge.retrying text").first).to_contain_text("retrying")
    failing.get_by_role("link").click()
    alerts = page.get_by_role("complementary", name="output alerts")
    expect(alerts).to_contain_text("Last error")
    expect(alerts).to_contain_text("next attempt")
    expect(alerts.locator(".facts div", has_text="waiting")).to_have_text(re.compile("[1-9]"))
    expect(alerts.get_by_role("region", name="Declaration")).to_contain_text("reads: large")
    check(page, "connectors", tmp_path)

    with connected.webhook():
        button = alerts.get_by_role("button", name="Pause")
        button.focus()
        page.keyboard.press("Enter")  # keyboard alone; the focus stays on the button
        expect(alerts).to_contain_text("It is paused until it is resumed")
        resume = alerts.get_by_role("button", name="Resume")
        expect(resume).to_be_focused()
        page.keyboard.press("Enter")  # and the next attempt is made at once
        expect(alerts.locator(".connector-state")).to_have_text(re.compile("running"))
        expect(node(page, "output alerts")).to_contain_text("running")
        expect(problem(page, 'output "alerts"')).to_have_count(0)
    assert connected.requests

    node(page, "source orders").click()
    source = page.get_by_role("complementary", name="source orders")
    expect(source.get_by_role("region", name="Positions")).to_contain_text("20")
    source.get_by_role("button", name="Pause").click()
    expect(problem(page, 'the source of "orders" is paused')).to_be_visible()
    expect(page.locator(".edge.paused text").first).to_contain_text("paused")
    expect(source.locator(".connector-state")).to_have_text(re.compile("paused"))
    assert violations(page) == []
    connected.add_orders("b.ndjson", 20)
    source.get_by_role("button", name="Resume").click()
    expect(source.get_by_role("region", name="Positions")).to_contain_text("40")
    expect(node(page, "stream orders")).to_contain_text("40 records")
    expect(problem(page, "the source of")).to_have_count(0)


def test_on_a_phone_they_are_in_a_table(page: Page, connected: ConnectedShop) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(connected.server.url)
    table = panel(page, "Sources and outputs")
    expect(table).to_contain_text("running")
    table.get_by_role("link", name="orders").click()
    expect(page.get_by_role("complementary", name="source orders").get_by_role("button", name="Pause")).to_be_visible()
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
